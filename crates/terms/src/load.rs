//! How loaded a node is.

use serde::{Deserialize, Serialize};

/// How loaded a node's machine is, and what the node has done since it began, as it publishes it for others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// Processors of the machine.
    pub cores: u32,
    /// How many of them were busy, in thousandths of one: a mean of about the last second.
    pub busy_milli: u32,
    /// Tasks that ran or waited for a processor, in thousandths of one: a mean of about the last second. More than there are processors when they wait for each
    /// other.
    pub runnable_milli: u32,
    /// TCP connections of the node's network that are established.
    pub connections: u32,
    /// Programs that are connected to the helper.
    pub programs: u32,
    /// How often it is published, milliseconds.
    pub every_ms: u32,
    /// Memory of the machine, bytes.
    pub memory_bytes: u64,
    /// What programs could still have of it without swapping, bytes.
    pub available_bytes: u64,
    /// What the node has done since it began.
    pub counts: LoadCounts,
}

/// What a node has done since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadCounts {
    /// Answers of its proxy.
    pub answers: u64,
    /// Those from the cache.
    pub hits: u64,
    /// Updates that began at every home.
    pub updates: u64,
    /// Requests of its programs about locks.
    pub locks: u64,
    /// Requests of its programs about memory.
    pub memory: u64,
    /// Requests of its programs of any kind.
    pub requests: u64,
}

impl Load {
    /// Tasks that run or wait on each processor, in thousandths, if `more` come to them.
    pub const fn pressure_milli(&self, more: u32) -> u64 {
        let cores = if self.cores == 0 { 1 } else { self.cores as u64 };
        (self.runnable_milli as u64 + more as u64 * 1000) / cores
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_is_of_each_processor() {
        let load = Load { cores: 4, runnable_milli: 6000, ..Load::default() };
        assert_eq!((load.pressure_milli(0), load.pressure_milli(2)), (1500, 2000));
        assert_eq!(Load::default().pressure_milli(1), 1000, "one that says nothing has one");
    }
}
