//! What is left to chance, from a seed.
//!
//! Every rule of a way draws from a stream of its own, so what one draws does not depend on which others there are: with the same seed,
//! the same packets are lost whether or not there is jitter as well.

use rand_core::Rng;
use rand_pcg::Pcg64;

/// Which stream of a seed is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Loss,
    DropRate,
    Burst,
    BurstLoss,
    Corrupt,
    Bit,
    Duplicate,
    Jitter,
    OutOfOrder,
}

/// A source of chance that gives the same from the same seed on every machine.
#[derive(Clone, Debug)]
pub(crate) struct Chance(Pcg64);

impl Chance {
    /// That of one rule of the way with this number.
    pub fn new(seed: u64, way: u64, purpose: Purpose) -> Self {
        Chance(Pcg64::new(u128::from(seed), u128::from(way) << 8 | purpose as u128))
    }

    /// A number from 0 to `bound - 1`; `bound` is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        debug_assert!(bound > 0);
        ((u128::from(self.0.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// True with this probability.
    pub fn happens(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// Uniform in [0, 1), of 53 random bits.
    pub fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Standard normal (Box and Muller; one of the two, so that a packet takes two draws whatever came before).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * libm::log(1.0 - self.unit())).sqrt();
        radius * libm::cos(std::f64::consts::TAU * self.unit())
    }
}
