//! What a seed decides, and what tests switch off.

use std::time::Duration;

use verbena_fabric::sim::{Dice, Faults, Seed};
use verbena_memory::Rules;
use verbena_testkit::keeper::LEASE;

use crate::common::history::MODELS;

/// How long it storms.
pub const STORM: Duration = Duration::from_millis(1000);

/// Segments, by what they promise (`history::MODELS`).
pub const NULL: usize = 0;
pub const READ: usize = 1;
pub const WRITE: usize = 2;
pub const STRICT: usize = 3;
pub const DELTA: usize = 5;
pub const TEMPORAL: usize = 6;
/// As it is put in parts.
pub const STRICT_PARTS: usize = 7;

#[derive(Clone, Debug)]
pub struct Settings {
    pub seed: Seed,
    pub faults: Faults,
    pub nodes: usize,
    /// Of which so many are homes.
    pub homes: usize,
    /// At each node.
    pub clients: usize,
    /// Which of the segments half of what is asked is about.
    pub focus: usize,
    /// Nodes that can fill a slot of a segment at a time.
    pub writers: u8,
    /// Homes that hold a segment, where that can be promised.
    pub copies: u8,
    /// Bytes that each home offers.
    pub bytes: u64,
    /// Homes take memory back.
    pub reclaims: bool,
    /// A home has all memory that it could use, from the beginning of a view.
    pub pins: bool,
    /// Now and then a machine has no memory for another region.
    pub starves: bool,
    /// One-sided operations are executed after the target's end too.
    pub leaves_memory: bool,
    pub rules: Rules,
}

impl Settings {
    pub fn of(seed: Seed) -> Settings {
        let mut dice = Dice::new(seed.number() ^ 0x5eed);
        let settings = Settings::few(seed, &mut dice);
        // At as many homes as can be asked for, and one more while a segment moves.
        let is_many = dice.below(8) == 0;
        let many = Settings { nodes: 5, homes: 5, copies: 4, reclaims: true, ..settings.clone() };
        Settings { starves: dice.below(4) == 0, ..if is_many { many } else { settings } }
    }

    fn few(seed: Seed, dice: &mut Dice) -> Settings {
        let nodes = 3 + dice.below(2) as usize;
        let homes = 1 + dice.below(nodes as u64) as usize;
        Settings {
            seed,
            faults: Faults::swarm(seed, LEASE / 2),
            nodes,
            homes,
            clients: 1 + dice.below(3) as usize,
            focus: if dice.below(2) == 0 { STRICT } else { dice.below(MODELS.len() as u64) as usize },
            writers: 1 + dice.below(3) as u8,
            copies: if dice.below(3) == 0 { 1 } else { 1 + dice.below(homes.min(3) as u64) as u8 },
            // Enough for all of them at one home, or just enough.
            bytes: if dice.below(2) == 0 { 64 << 10 } else { 12 << 10 },
            leaves_memory: dice.below(2) == 0,
            reclaims: dice.below(2) == 0,
            pins: dice.below(2) == 0,
            starves: false,
            rules: Rules::ALL,
        }
    }
}
