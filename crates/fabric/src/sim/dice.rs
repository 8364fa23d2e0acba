//! Everything that is left to chance, from a seed.

use std::time::Duration;

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::seeds::Seed;

/// A source of chance that gives the same from the same seed on every machine. The world has its own; a scenario makes
/// one for what it decides itself.
#[derive(Clone, Debug)]
pub struct Dice(Pcg64Mcg);

impl Dice {
    /// Dice for a scenario: independent of the world's that has the same seed.
    pub fn new(seed: impl Into<Seed>) -> Self {
        Dice::stream(seed.into().number(), 0)
    }

    pub(super) fn stream(seed: u64, stream: u64) -> Self {
        Dice(Pcg64Mcg::seed_from_u64(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ stream))
    }

    /// A number from 0 to `bound - 1`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.0.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// True in `per_mille` of a thousand cases.
    pub fn happens(&mut self, per_mille: u32) -> bool {
        per_mille > 0 && self.below(1000) < u64::from(per_mille)
    }

    /// A length of time between the two, both included.
    pub fn between(&mut self, least: Duration, most: Duration) -> Duration {
        let least = nanos(least);
        Duration::from_nanos(least + self.below(nanos(most).saturating_sub(least) + 1))
    }

    /// One of the things. Panics if `things` is empty.
    pub fn pick<'a, T>(&mut self, things: &'a [T]) -> &'a T {
        &things[self.below(things.len() as u64) as usize]
    }

    pub(super) fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.0.fill_bytes(&mut bytes);
        bytes
    }
}

/// A length of time in nanoseconds; 2^63 at most, so that a few of them can be added.
pub(super) fn nanos(length: Duration) -> u64 {
    u64::try_from(length.as_nanos()).unwrap_or(u64::MAX).min(1 << 63)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_below_their_bound_and_reach_it() {
        let mut dice = Dice::new(1);
        let mut seen = [0; 6];
        for _ in 0..600 {
            seen[dice.below(6) as usize] += 1;
        }
        assert!(seen.iter().all(|count| (50..150).contains(count)), "{seen:?}");
        assert_eq!(dice.below(0), 0);
        let length = dice.between(Duration::from_nanos(5), Duration::from_nanos(5));
        assert_eq!(length, Duration::from_nanos(5));
    }

    #[test]
    fn a_seed_and_a_stream_give_their_own_numbers() {
        let draw = |seed, stream| Dice::stream(seed, stream).below(u64::MAX);
        assert_eq!(draw(7, 1), draw(7, 1));
        assert_ne!(draw(7, 1), draw(8, 1));
        assert_ne!(draw(7, 1), draw(7, 2));
    }
}
