//! One incarnation in the world: its clock, its regions, and what waits for it while it is paused.

use std::collections::{BTreeMap, VecDeque};

use verbena_terms::{Incarnation, ViewNumber};

use crate::error::{Error, Result};
use crate::message::{Class, InboxSender};
use crate::operation::OperationId;
use crate::region::{RegionKey, Rights, Secret};
use crate::window::{WINDOW, Window};

use super::state::Event;

/// Messages that an inbox holds before it drops.
const INBOX_LIMIT: usize = 1024;

/// One incarnation.
pub(super) struct Node {
    pub(super) incarnation: Incarnation,
    pub(super) alive: bool,
    /// Its memory answers although it is not alive any more.
    pub(super) leaves_memory: bool,
    /// Its machine has no memory for another region.
    pub(super) is_short: bool,
    /// Time of the world until which it stands still.
    pub(super) paused_until: Option<u64>,
    /// What came while it stood still, in order.
    pub(super) deferred: Vec<Event>,
    pub(super) clock: NodeClock,
    pub(super) inboxes: InboxSender,
    /// By number. `None` where one was given up: numbers are not used again.
    pub(super) regions: Vec<Option<RegionState>>,
    /// What it remembers of its callers' operations (F2).
    pub(super) windows: BTreeMap<(Incarnation, u8), Window>,
    /// Requests that wait for their turn, the first one being executed, where order is promised.
    pub(super) turns: BTreeMap<(Incarnation, u8, u32), VecDeque<usize>>,
    /// How it numbers its own operations.
    pub(super) numbers: BTreeMap<(Incarnation, u8), Numbers>,
    /// Operations of its own that have not ended.
    pub(super) under_way: usize,
    /// Arrival of the last request of each line, and of the last message.
    pub(super) lines: BTreeMap<Line, LineState>,
}

/// A way on which frames keep their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Line {
    Requests { to: Incarnation, class: u8, region: u32 },
    Messages { to: Incarnation, class: u8 },
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LineState {
    pub(super) last_arrival: u64,
    pub(super) under_way: usize,
}

/// A region as its owner has it now.
pub(super) struct RegionState {
    pub(super) memory: usize,
    pub(super) bytes: u64,
    pub(super) view: ViewNumber,
    /// For reading, for everything.
    pub(super) secrets: [Secret; 2],
}

impl RegionState {
    pub(super) fn key(&self, owner: Incarnation, region: u32, rights: Rights) -> RegionKey {
        let secret = self.secrets[(rights == Rights::Change) as usize];
        RegionKey { owner, region, view: self.view, bytes: self.bytes, rights, secret }
    }
}

impl Node {
    pub(super) fn new(incarnation: Incarnation, clock: NodeClock) -> Self {
        Node {
            incarnation,
            alive: true,
            leaves_memory: false,
            is_short: false,
            paused_until: None,
            deferred: Vec::new(),
            clock,
            inboxes: InboxSender::new(INBOX_LIMIT),
            regions: Vec::new(),
            windows: BTreeMap::new(),
            turns: BTreeMap::new(),
            numbers: BTreeMap::new(),
            under_way: 0,
            lines: BTreeMap::new(),
        }
    }

    /// The region that a key opens, or why it does not (F4).
    pub(super) fn admit(&self, key: &RegionKey) -> Result<&RegionState> {
        let revoked = || Error::Revoked { target: key.owner, region: key.region, view: key.view };
        let region = self.regions.get(key.region as usize).and_then(Option::as_ref).ok_or_else(revoked)?;
        if (region.view, region.bytes) != (key.view, key.bytes)
            || !region.secrets[(key.rights == Rights::Change) as usize].matches(&key.secret)
        {
            return Err(revoked());
        }
        Ok(region)
    }

    pub(super) fn window(&mut self, caller: Incarnation, class: Class) -> &mut Window {
        self.windows.entry((caller, class as u8)).or_default()
    }
}

/// A clock of a machine: starts anywhere, runs a little fast or slow, and can jump forward.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodeClock {
    pub(super) ahead: u64,
    pub(super) drift_ppm: i64,
}

impl NodeClock {
    /// What it shows at a time of the world.
    pub(super) fn local(&self, world: u64) -> u64 {
        let drift = i128::from(world) * i128::from(self.drift_ppm) / 1_000_000;
        u64::try_from(i128::from(world) + i128::from(self.ahead) + drift).unwrap_or(u64::MAX)
    }

    /// The first time of the world at which it shows `local` or later.
    pub(super) fn world(&self, local: u64) -> u64 {
        if local == u64::MAX {
            return u64::MAX;
        }
        let elapsed = i128::from(local) - i128::from(self.ahead);
        let near = elapsed * 1_000_000 / (1_000_000 + i128::from(self.drift_ppm));
        let mut world = u64::try_from(near.max(0)).unwrap_or(u64::MAX).saturating_sub(2);
        while self.local(world) < local {
            world += 1;
        }
        world
    }
}

/// The caller's side of exactly once, for one target incarnation and class (F2).
#[derive(Debug, Default)]
pub(super) struct Numbers {
    last: u64,
    /// Those that have not ended (false) or ended as unknown (true).
    open: BTreeMap<u64, bool>,
}

impl Numbers {
    /// The first of the next `count` identifiers.
    pub(super) fn take(&mut self, target: Incarnation, count: u64) -> Result<u64> {
        if let Some((&oldest, &unknown)) = self.open.first_key_value()
            && self.last + count >= oldest + WINDOW as u64
        {
            return Err(match unknown {
                true => Error::SettleFirst { target, oldest: OperationId(oldest) },
                false => Error::Full { what: "the window of operations under way", most: WINDOW },
            });
        }
        let first = self.last + 1;
        self.last += count;
        self.open.extend((first..=self.last).map(|id| (id, false)));
        Ok(first)
    }

    /// These ended, and it is known how.
    pub(super) fn ended(&mut self, first: u64, count: u64) {
        for id in first..first + count {
            self.open.remove(&id);
        }
    }

    /// These ended as unknown.
    pub(super) fn unknown(&mut self, first: u64, count: u64) {
        self.open.extend((first..first + count).map(|id| (id, true)));
    }

    /// Whether the target still has something to say of an identifier.
    pub(super) fn can_settle(&self, id: u64) -> bool {
        (1..=self.last).contains(&id) && id + WINDOW as u64 > self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_read_both_ways() {
        for drift_ppm in [-200, -1, 0, 1, 200] {
            let clock = NodeClock { ahead: 5_000_000_007, drift_ppm };
            for world in [0, 1, 999_999, 1_000_000, 3_600_000_000_123] {
                let back = clock.world(clock.local(world));
                assert!(back <= world && clock.local(back) == clock.local(world), "{drift_ppm} {world}");
            }
        }
        assert_eq!(NodeClock { ahead: 9, drift_ppm: 0 }.world(3), 0);
        assert_eq!(NodeClock { ahead: 9, drift_ppm: 0 }.world(u64::MAX), u64::MAX);
    }

    #[test]
    fn numbers_stop_before_an_open_one_leaves_the_window() {
        let target = Incarnation::new(1, 1);
        let mut numbers = Numbers::default();
        assert_eq!(numbers.take(target, 2), Ok(1));
        numbers.ended(1, 1);
        assert_eq!(numbers.take(target, WINDOW as u64 - 1), Ok(3));
        assert!(matches!(numbers.take(target, 1), Err(Error::Full { .. })));
        numbers.unknown(2, 1);
        assert_eq!(numbers.take(target, 1), Err(Error::SettleFirst { target, oldest: OperationId(2) }));
        numbers.ended(2, 1);
        assert_eq!(numbers.take(target, 1), Ok(WINDOW as u64 + 2));
        assert!(!numbers.can_settle(2) && numbers.can_settle(3) && !numbers.can_settle(WINDOW as u64 + 3));
    }
}
