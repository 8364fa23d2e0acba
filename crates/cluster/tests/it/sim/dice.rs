//! Everything that chance decides, from one seed.

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

pub struct Dice(Pcg64Mcg);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Dice(Pcg64Mcg::seed_from_u64(seed))
    }

    /// From `from` to `to`, both included.
    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.0.next_u64() % (to - from + 1)
    }

    /// True `per_mille` times in a thousand.
    pub fn chance(&mut self, per_mille: u64) -> bool {
        self.0.next_u64() % 1000 < per_mille
    }
}
