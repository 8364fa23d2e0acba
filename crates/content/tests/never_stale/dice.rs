//! Chance from a seed: SplitMix64, the same on every machine.

/// A stream of chance.
pub struct Dice {
    state: u64,
    shortest: bool,
}

impl Dice {
    pub fn new(seed: u64) -> Self {
        Dice { state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d, shortest: false }
    }

    /// No chance at all: everything takes its shortest time, and what is not certain does not happen.
    pub fn shortest() -> Self {
        Dice { state: 0, shortest: true }
    }

    pub fn word(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.state ^ self.state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    /// Evenly in `low..high`.
    pub fn within(&mut self, low: u64, high: u64) -> u64 {
        if self.shortest { low } else { low + self.word() % (high - low).max(1) }
    }

    /// True that many times in a thousand.
    pub fn permille(&mut self, chance: u64) -> bool {
        if self.shortest { chance >= 1000 } else { self.word() % 1000 < chance }
    }
}
