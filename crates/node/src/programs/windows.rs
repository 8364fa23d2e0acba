//! Gives programs the memory of this node, in which they read a segment's value without a copy.

use std::os::fd::OwnedFd;

use verbena_memory::Segment;
use verbena_memory::layout::{slot_bytes, word_at};
use verbena_memory::service::OwnMemory;
use verbena_protocol::memory::{Failure, MemoryAnswer, Pane};
use verbena_terms::ViewNumber;

use crate::programs::rights::{Refused, check_runs};

/// The memory is that of all segments of the node: it is for the user whose process the node is, who can read it anyway, and root.
pub(crate) fn may_read(user: u32, runs: u32) -> Result<(), Refused> {
    check_runs(user, runs, Failure::Elsewhere, "values of others are in its memory too; a get reads this one")
}

/// Where it is in the memory of this view, and the memory, unless the program has it.
pub(crate) fn pane(segment: &Segment, view: ViewNumber, has: u32, own: &OwnMemory) -> (MemoryAnswer, Option<OwnedFd>) {
    let Some(memory) = own.of(view) else {
        let why = "this node's memory is not of a kind that programs can read: a get reads the value".to_owned();
        return (MemoryAnswer::Failed(Failure::Elsewhere, why), None);
    };
    let pane = Pane {
        view: view.0,
        id: segment.id,
        coherence: segment.wanted.coherence,
        bytes: segment.wanted.bytes,
        word: memory.from + word_at(segment.control),
        slots: memory.from + segment.at,
        stride: slot_bytes(segment.wanted.bytes),
        count: segment.wanted.slots(),
    };
    if has == view.0 {
        return (MemoryAnswer::Window(pane), None);
    }
    match memory.descriptor.try_clone() {
        Ok(descriptor) => (MemoryAnswer::Window(pane), Some(descriptor)),
        Err(error) => {
            (MemoryAnswer::Failed(Failure::Unavailable, format!("no descriptor of the memory: {error}")), None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_runs_the_node_and_root_read_in_place() {
        assert_eq!((may_read(1000, 1000), may_read(0, 1000)), (Ok(()), Ok(())));
        for (user, runs) in [(1001, 1000), (1000, 0)] {
            let (why, text) = may_read(user, runs).unwrap_err();
            assert!(why == Failure::Elsewhere && text.contains(&format!("user {user} is not")), "{text}");
        }
    }
}
