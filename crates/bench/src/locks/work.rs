//! Clients at work side by side: how often they have a lock, how alike, and how long the longest of them waits.

use super::node::Worked;
use crate::report::Measurement;
use crate::stats::{RoundSummary, jains_index};

/// What clients that worked in the same time came to.
#[derive(Clone, Debug)]
pub(super) struct Together {
    pub(super) clients: Vec<Worked>,
    /// Processor seconds that they and their nodes took, where it is known.
    pub(super) cpu_s: Option<f64>,
}

impl Together {
    pub(super) fn taken(&self) -> u64 {
        self.clients.iter().map(|one| one.taken).sum()
    }

    /// Locks a second.
    pub(super) fn rate(&self) -> f64 {
        self.clients.iter().map(|one| one.taken as f64 / one.took_s).sum()
    }

    /// Jain's index of how often each had the lock: 1 if all as often, 1 / clients if one alone.
    pub(super) fn fairness(&self) -> f64 {
        jains_index(self.clients.iter().map(|one| one.taken))
    }

    /// The longest wait of any client over the mean of all waits.
    pub(super) fn longest_over_mean(&self) -> f64 {
        let waited: f64 = self.clients.iter().map(|one| one.waited_us).sum();
        let longest = self.clients.iter().map(|one| one.longest_us).fold(0.0, f64::max);
        longest / (waited / self.taken() as f64)
    }

    /// Locks for a second of processor time.
    pub(super) fn per_cpu_s(&self) -> Option<f64> {
        Some(self.taken() as f64 / self.cpu_s?)
    }

    /// All of it, over the rounds.
    pub(super) fn measurements(labels: &[(&str, &str)], x: f64, rounds: &[Together]) -> Vec<Measurement> {
        let of = |quantity, unit, value: &dyn Fn(&Together) -> Option<f64>| {
            let one = |round: &Together| Some(RoundSummary::one(value(round)?, round.taken()));
            Measurement::new(labels, x, quantity, unit, rounds.iter().filter_map(one).collect())
        };
        let medians = |round: &Together| {
            let longest = round.clients.iter().map(|one| one.median_us);
            Some(longest.fold(0.0, f64::max))
        };
        let found = [
            of("locks", "1/s", &|round| Some(round.rate())),
            of("Jain's index", "of 1", &|round| Some(round.fairness())),
            of("longest wait over the mean", "times", &|round| Some(round.longest_over_mean())),
            of("median wait of who waited most", "us", &medians),
            of("locks for processor time", "1/s", &|round| round.per_cpu_s()),
        ];
        found.into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_compared() {
        let client =
            |taken, waited_us, longest_us| Worked { taken, took_s: 2.0, waited_us, longest_us, median_us: 1.0 };
        let alike = Together { clients: vec![client(10, 10.0, 2.0); 4], cpu_s: Some(0.5) };
        assert_eq!((alike.rate(), alike.fairness(), alike.longest_over_mean()), (20.0, 1.0, 2.0));
        assert_eq!(alike.per_cpu_s(), Some(80.0));
        let one = Together { clients: vec![client(0, 0.0, 0.0), client(8, 8.0, 8.0)], cpu_s: None };
        assert_eq!((one.fairness(), one.longest_over_mean(), one.per_cpu_s()), (0.5, 8.0, None));
    }
}
