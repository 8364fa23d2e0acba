//! What is said about samples: medians with their extremes, never a mean, and ratios between interleaved variants.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::scale::number;

/// Jain's index of how alike these are: 1 if all are the same, 1 / their number if one has all. Not a number if none has any.
pub fn jains_index(counts: impl ExactSizeIterator<Item = u64>) -> f64 {
    let number = counts.len() as f64;
    let (sum, squares) = counts.fold((0.0, 0.0), |(sum, squares), count| {
        let count = count as f64;
        (sum + count, squares + count * count)
    });
    sum * sum / (number * squares)
}

/// Many samples of one round.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoundSummary {
    /// How many samples.
    pub count: u64,
    /// Half of them are at most this.
    pub median: f64,
    /// 99 of 100 are at most this.
    pub p99: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl RoundSummary {
    /// Of a round that gave one number, made of `count` samples.
    pub fn one(value: f64, count: u64) -> Self {
        RoundSummary { count, median: value, p99: value, min: value, max: value }
    }

    /// The summary of `samples`, which it sorts. `None` without samples.
    pub fn of(samples: &mut [f64]) -> Option<Self> {
        samples.sort_unstable_by(f64::total_cmp);
        Some(RoundSummary {
            count: samples.len() as u64,
            median: quantile(samples, 0.5)?,
            p99: quantile(samples, 0.99)?,
            min: *samples.first()?,
            max: *samples.last()?,
        })
    }
}

/// One number over several rounds: its median, and the least and most of any round.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The median over the rounds.
    pub median: f64,
    /// The least of any round.
    pub min: f64,
    /// The most of any round.
    pub max: f64,
}

/// The median, and in brackets the extremes, with three significant digits: `1.42 (1.21 to 1.66)`.
impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} to {})", number(self.median), number(self.min), number(self.max))
    }
}

impl Spread {
    /// Of one number a round. `None` if there was no round.
    pub fn of(rounds: &[f64]) -> Option<Self> {
        let mut sorted = rounds.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        Some(Spread { median: quantile(&sorted, 0.5)?, min: *sorted.first()?, max: *sorted.last()? })
    }

    /// The ratio of two variants that were measured in the same rounds: of their medians, and the least and most ratio
    /// within a round. `None` if they have not the same number of rounds, or one, or if `below` has a zero.
    pub fn ratio(above: &[f64], below: &[f64]) -> Option<Self> {
        if above.len() != below.len() || below.contains(&0.0) {
            return None;
        }
        let within: Vec<f64> = above.iter().zip(below).map(|(above, below)| above / below).collect();
        let extremes = Spread::of(&within)?;
        Some(Spread { median: Spread::of(above)?.median / Spread::of(below)?.median, ..extremes })
    }
}

/// The least value that a share `q` of the sorted values does not exceed; between the two middle ones for the median of
/// an even number.
pub(crate) fn quantile(sorted: &[f64], q: f64) -> Option<f64> {
    let rank = q * sorted.len() as f64;
    let at = (rank.ceil() as usize).clamp(1, sorted.len().max(1)) - 1;
    let value = *sorted.get(at)?;
    if rank.fract() == 0.0 && q == 0.5 {
        return Some((value + sorted.get(at + 1)?) / 2.0);
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_extremes() {
        assert_eq!(Spread::of(&[3.0, 1.0, 2.0]), Some(Spread { median: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!(Spread::of(&[4.0, 1.0, 2.0, 3.0]).map(|spread| spread.median), Some(2.5));
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(Spread { median: 0.0109, min: 0.000_017_6, max: 1.0 }.to_string(), "0.0109 (0.0000176 to 1)");
        let summary = RoundSummary::of(&mut (1..=200).rev().map(f64::from).collect::<Vec<_>>()).unwrap();
        assert_eq!(summary, RoundSummary { count: 200, median: 100.5, p99: 198.0, min: 1.0, max: 200.0 });
    }

    #[test]
    fn a_ratio_is_of_medians_and_its_extremes_of_rounds() {
        // The machine was twice as slow in the second round: it touches both variants, and not their ratio.
        let ratio = Spread::ratio(&[10.0, 20.0, 12.0], &[5.0, 10.0, 4.0]).unwrap();
        assert_eq!(ratio, Spread { median: 12.0 / 5.0, min: 2.0, max: 3.0 });
        assert_eq!(Spread::ratio(&[1.0], &[1.0, 2.0]), None);
        assert_eq!(Spread::ratio(&[1.0], &[0.0]), None);
    }
}
