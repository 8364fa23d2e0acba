//! Interleaving: A B C, A B C, ... so that whatever the machine does meanwhile it does to all variants.

use std::time::{Duration, Instant};

use crate::error::BenchError;

/// How far an experiment is.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// Steps done.
    pub done: u32,
    /// Steps in all.
    pub of: u32,
    /// What the next step does.
    pub doing: String,
    /// Time since the first step.
    pub elapsed: Duration,
    /// Time that is left if the steps go on as they did; `None` before there is anything to judge by.
    pub left: Option<Duration>,
}

/// The receiver of progress reports.
pub type ProgressSink<'a> = dyn FnMut(&Progress) + 'a;

/// Measures each of `variants` once a round, in their order, for `rounds` rounds after one that is not counted. Gives, for
/// each variant, what each round gave.
pub fn interleave<V, T>(
    rounds: u32,
    variants: &mut [V],
    name: impl Fn(&V) -> String,
    mut measure: impl FnMut(&mut V) -> Result<T, BenchError>,
    progress: &mut ProgressSink,
) -> Result<Vec<Vec<T>>, BenchError> {
    let started = Instant::now();
    let of = (rounds + 1) * variants.len() as u32;
    let mut done = 0;
    let mut measured: Vec<Vec<T>> = variants.iter().map(|_| Vec::with_capacity(rounds as usize)).collect();
    for round in 0..=rounds {
        for (variant, measured) in variants.iter_mut().zip(&mut measured) {
            let elapsed = started.elapsed();
            let left = (done > 0).then(|| elapsed / done * (of - done));
            progress(&Progress { done, of, doing: name(variant), elapsed, left });
            let result = measure(variant)?;
            if round > 0 {
                measured.push(result);
            }
            done += 1;
        }
    }
    progress(&Progress { done, of, doing: "done".to_owned(), elapsed: started.elapsed(), left: Some(Duration::ZERO) });
    Ok(measured)
}

/// Time for a number of steps. A step that takes longer than its part leaves less for those behind it, so that on a busy machine
/// the whole still ends about when it should.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    until: Instant,
    steps: u32,
}

impl Budget {
    /// `whole` for `steps` steps, from now on.
    pub(crate) fn new(whole: Duration, steps: u32) -> Self {
        Budget { until: Instant::now() + whole, steps }
    }

    /// How long the next step may take: an even part of what is left, and nothing when nothing is left.
    pub(crate) fn next(&mut self) -> Duration {
        let part = self.until.saturating_duration_since(Instant::now()) / self.steps.max(1);
        self.steps = self.steps.saturating_sub(1);
        part
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_take_turns_and_the_first_round_is_not_counted() {
        let mut order = String::new();
        let mut steps = Vec::new();
        let mut turn = 0;
        let measured = interleave(
            3,
            &mut ['a', 'b'],
            char::to_string,
            |variant| {
                order.push(*variant);
                turn += 1;
                Ok(turn)
            },
            &mut |progress| steps.push((progress.done, progress.of)),
        )
        .unwrap();
        assert_eq!(order, "abababab");
        assert_eq!(measured, [[3, 5, 7], [4, 6, 8]]);
        assert_eq!(steps, (0..=8).map(|done| (done, 8)).collect::<Vec<_>>());
    }

    #[test]
    fn a_failure_ends_it() {
        let mut turns = 0;
        let failed = interleave(
            9,
            &mut ["a", "b"],
            |name| name.to_string(),
            |_| {
                turns += 1;
                if turns == 3 { Err(BenchError::TooFewRounds { rounds: 0 }) } else { Ok(()) }
            },
            &mut |_| (),
        );
        assert!(failed.is_err());
        assert_eq!(turns, 3);
    }

    #[test]
    fn a_budget_is_shared_out_and_ends() {
        let mut budget = Budget::new(Duration::from_secs(1_000), 4);
        let parts: Vec<u64> = (0..4).map(|_| budget.next().as_secs_f64().round() as u64).collect();
        // Nothing was spent meanwhile, so each finds all of it before it.
        assert_eq!(parts, [250, 333, 500, 1_000]);
        assert_eq!(Budget::new(Duration::ZERO, 4).next(), Duration::ZERO);
    }
}
