//! What a campaign has seen, and whether that is enough to say anything.

use std::fmt;
use std::time::Duration;

/// Processes that were killed, by what they were for.
#[derive(Debug, Default)]
pub struct Killed {
    pub holders: u64,
    pub waiters: u64,
    /// Whatever they had.
    pub traffic: u64,
    /// Each of them the home of a lock that is held elsewhere and has a queue, and the helper of programs that hold and wait.
    pub helpers: u64,
    /// Those among them that grant the leases of all.
    pub keepers: u64,
}

/// How often a promise was looked at, and how often it was kept: what is promised for as long as a lease lasts is not broken by a machine that did not run for a
/// part of one.
#[derive(Debug, Default)]
pub struct Checked {
    pub looked: u64,
    pub right: u64,
}

/// How often what was seen.
#[derive(Debug, Default)]
pub struct Seen {
    pub faults: u64,
    pub killed: Killed,
    pub helpers_stopped: u64,
    pub cuts: u64,
    /// Locks of clients that were killed, and of nodes that were struck: the longest time until somebody else had one.
    pub free_after_client: Duration,
    pub free_after_node: Duration,
    pub freed: u64,
    /// Holds at other nodes that outlived the blow to one.
    pub kept: Checked,
    /// Queues that were served in order in the view after that in which they stood.
    pub in_order: Checked,
    /// Leases that were lost though nothing had happened to the node, on a machine that did not run for a part of one.
    pub excused: u64,
}

impl Checked {
    pub fn add(&mut self, is_right: bool) {
        self.looked += 1;
        self.right += u64::from(is_right);
    }

    /// Looked at exactly so often. A busy machine may have excused half; one that excused more has shown nothing.
    fn is_enough(&self, times: u64, what: &str) {
        assert_eq!(self.looked, times, "{what}");
        assert!(2 * self.right >= self.looked, "{what}: {} of {times}", self.right);
    }
}

impl Seen {
    /// That what survivors are promised was looked at after each blow to a node that is not the keeper, at the three others.
    pub fn is_enough(&self, blows: u64) {
        self.kept.is_enough(3 * blows, "holds kept");
        self.in_order.is_enough(blows, "queues in order");
    }
}

impl fmt::Display for Killed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Killed { holders, waiters, traffic, helpers, keepers } = self;
        write!(out, "{holders} clients that held, {waiters} that waited and {traffic} others killed, ")?;
        write!(out, "{helpers} helpers killed, all of them homes and {keepers} that grant leases")
    }
}

impl fmt::Display for Checked {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} of {}", self.right, self.looked)
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Seen { faults, killed, helpers_stopped, cuts, freed, kept, in_order, excused, .. } = self;
        write!(out, "{faults} faults ({killed}, {helpers_stopped} helpers stopped, {cuts} cuts); ")?;
        write!(out, "{freed} freed: at most {:?} after a client, ", self.free_after_client)?;
        write!(out, "{:?} after a node; {kept} kept, {in_order} queues in order, ", self.free_after_node)?;
        write!(out, "{excused} leases lost to a busy machine")
    }
}
