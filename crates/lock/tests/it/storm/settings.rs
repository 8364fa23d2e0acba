//! What a seed decides, and what tests switch off.

use std::time::Duration;

use verbena_fabric::sim::{Dice, Faults, Seed};
use verbena_lock::{Rules, Scheme};
use verbena_testkit::keeper::LEASE;

/// How long it storms.
pub const STORM: Duration = Duration::from_millis(1200);
/// Names that there may be.
pub const MOST_NAMES: u64 = 6;

#[derive(Clone, Debug)]
pub struct Settings {
    pub seed: Seed,
    pub faults: Faults,
    pub nodes: usize,
    /// Of which so many are homes.
    pub homes: usize,
    /// At each node.
    pub clients: usize,
    /// Locks that there are.
    pub names: u64,
    /// Words of each home.
    pub slots: u32,
    /// One-sided operations are executed after the target's end too.
    pub leaves_memory: bool,
    pub rules: Rules,
    pub scheme: Scheme,
    /// Rule C3: a view is in effect when the leases of those who left are over.
    pub waits_for_leases: bool,
    /// Rule L6: a client looks whether its node still has the lease.
    pub looks_at_lease: bool,
    /// Rule L7: the store that clients write to compares tokens.
    pub is_guarded: bool,
}

impl Settings {
    pub fn of(seed: Seed) -> Settings {
        let mut dice = Dice::new(seed.number() ^ 0x5eed);
        let nodes = 3 + dice.below(2) as usize;
        Settings {
            seed,
            faults: Faults::swarm(seed, LEASE / 2),
            nodes,
            homes: 1 + dice.below(nodes as u64) as usize,
            clients: 1 + dice.below(3) as usize,
            slots: if dice.below(8) == 0 { 1 } else { 16 },
            names: 2,
            leaves_memory: dice.below(2) == 0,
            rules: Rules::ALL,
            scheme: Scheme::Ncosed,
            waits_for_leases: true,
            looks_at_lease: true,
            is_guarded: true,
        }
    }

    /// By the schemes that others are held against.
    pub fn by_other_schemes(seed: Seed) -> Settings {
        let settings = Settings::of(seed);
        if seed.number().is_multiple_of(2) {
            Settings { scheme: Scheme::Dqnl, ..settings }
        } else {
            // Its homes evict nothing: each lock that was ever used has its place.
            Settings { scheme: Scheme::Srsl, slots: 16, ..settings }
        }
    }

    /// There are more locks than words: homes evict them all the time.
    pub fn with_few_words(seed: Seed) -> Settings {
        let few = Dice::new(seed.number() ^ 0xfe3).below(3) as u32;
        Settings { names: MOST_NAMES, slots: 1 + few, ..Settings::of(seed) }
    }
}
