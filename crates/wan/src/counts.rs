//! What happened to packets, counted.

use serde::{Deserialize, Serialize};

use crate::router::Took;

/// Why a packet does not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It was the one of its block of `drop_rate`.
    DropRate,
    /// By the probability `loss`.
    Loss,
    /// It fell into a burst.
    Burst,
    /// The queue in front of the rate was full.
    QueueLimit,
    /// It had waited too long there (CoDel).
    CoDel,
    /// More was under way than `memory` allows.
    Memory,
}

/// Packets that did not arrive, by cause. Those of `drop_rate`, `loss` and `burst` were asked for; the others are what a queue or this machine
/// did not hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drops {
    /// [`Cause::DropRate`]
    pub drop_rate: u64,
    /// [`Cause::Loss`]
    pub loss: u64,
    /// [`Cause::Burst`]
    pub burst: u64,
    /// [`Cause::QueueLimit`]
    pub queue_limit: u64,
    /// [`Cause::CoDel`]
    pub codel: u64,
    /// [`Cause::Memory`]
    pub memory: u64,
}

impl Drops {
    pub(crate) fn add(&mut self, cause: Cause, packets: u64) {
        *match cause {
            Cause::DropRate => &mut self.drop_rate,
            Cause::Loss => &mut self.loss,
            Cause::Burst => &mut self.burst,
            Cause::QueueLimit => &mut self.queue_limit,
            Cause::CoDel => &mut self.codel,
            Cause::Memory => &mut self.memory,
        } += packets;
    }

    /// Of all causes.
    pub fn all(&self) -> u64 {
        let Drops { drop_rate, loss, burst, queue_limit, codel, memory } = self;
        drop_rate + loss + burst + queue_limit + codel + memory
    }
}

/// What happened in one direction since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Packets that were sent.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets handed over, second copies among them.
    pub arrived: u64,
    /// Their bytes.
    pub arrived_bytes: u64,
    /// Packets that are not handed over.
    pub dropped: Drops,
    /// Second copies made.
    pub duplicated: u64,
    /// Packets in which a bit was changed.
    pub corrupted: u64,
    /// Packets that took `ooo_delay`.
    pub out_of_order: u64,
    /// Packets that came in one large frame with others although a rule wanted single ones: what was decided of one was done to all of them.
    pub unsplit: u64,
    /// Frames by which the two ends know of each other: they take the delay, and no rule counts them.
    pub housekeeping: u64,
}

/// What a direction of a link has done so far.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    /// What happened to packets.
    #[serde(flatten)]
    pub counts: Counts,
    /// Frames that came while the router was too slow to take them. They are in no other count. Of the backend `kernel`: packets that came and did not
    /// get as far as the wire, though no queue dropped them.
    pub overrun: u64,
    /// Frames that the kernel did not take back. They count as arrived.
    pub unsent: u64,
    /// Packets that are on the wire now.
    pub under_way: u64,
    /// Packets that wait for the rate now.
    pub queued_packets: u64,
    /// Their bytes.
    pub queued_bytes: u64,
    /// How long frames took, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took: Option<Took>,
    /// Names of numbers that the backend does not have: here they are 0 or absent, and mean nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<String>,
}
