//! What was measured, as measurements, lines and ratios.

use super::lab::Turn;
use crate::report::{Axis, Claim, Line, Measurement, Panel, Ratio};
use crate::scale::number;
use crate::stats::{RoundSummary, Spread};
use crate::web::Found;

/// One turn.
#[derive(Clone, Debug)]
pub(super) enum Taken {
    Pages {
        found: Found,
        /// Microseconds that the proxy took for a hit, as it says itself, if it was asked.
        hit_us: Option<f64>,
    },
    /// Microseconds of a read.
    Reads(RoundSummary),
}

/// One variant at one point, in all rounds.
pub(super) struct Measured {
    pub(super) turn: Turn,
    pub(super) rounds: Vec<Taken>,
}

/// What can be said of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quantity {
    Throughput,
    Response,
    /// Mean of the response time: what parts of it are parts of.
    Mean,
    Misses,
    Updates,
    /// Of a hit within the proxy; not in a round without a hit.
    Hit,
    /// Of 1, that part of the mean response time.
    HitShare,
    Read,
}

impl Quantity {
    const ALL: [Quantity; 8] = [
        Quantity::Throughput,
        Quantity::Response,
        Quantity::Mean,
        Quantity::Misses,
        Quantity::Updates,
        Quantity::Hit,
        Quantity::HitShare,
        Quantity::Read,
    ];

    fn name(self) -> (&'static str, &'static str) {
        match self {
            Quantity::Throughput => ("throughput", "requests/s"),
            Quantity::Response => ("response time", "us"),
            Quantity::Mean => ("mean response time", "us"),
            Quantity::Misses => ("cache misses", "%"),
            Quantity::Updates => ("acknowledged updates", "updates/s"),
            Quantity::Hit => ("mean time of a hit in the proxy", "us"),
            Quantity::HitShare => ("a hit's time in the proxy, of its response time", "1"),
            Quantity::Read => ("read of a word", "us"),
        }
    }

    fn of(self, taken: &Taken) -> Option<RoundSummary> {
        match (self, taken) {
            (Quantity::Read, Taken::Reads(summary)) => Some(*summary),
            (_, Taken::Reads(_)) | (Quantity::Read, _) => None,
            (Quantity::Hit | Quantity::HitShare, Taken::Pages { hit_us, found }) => {
                let whole = if self == Quantity::Hit { 1.0 } else { found.mean_us };
                Some(RoundSummary::one((*hit_us)? / whole, found.latency_us.count))
            }
            (_, Taken::Pages { found, .. }) => Some(match self {
                Quantity::Response => found.latency_us,
                Quantity::Throughput => RoundSummary::one(found.per_s, found.latency_us.count),
                Quantity::Mean => RoundSummary::one(found.mean_us, found.latency_us.count),
                Quantity::Misses => RoundSummary::one(100.0 * found.misses, found.latency_us.count),
                _ => RoundSummary::one(found.updates_per_s, found.latency_us.count),
            }),
        }
    }
}

impl Measured {
    /// Answers that were held against acknowledged updates.
    pub(super) fn checked(&self) -> u64 {
        let of = |taken: &Taken| if let Taken::Pages { found, .. } = taken { found.held.checked } else { 0 };
        self.rounds.iter().map(of).sum()
    }

    /// One number a round; none if it was not measured.
    fn rounds_of(&self, quantity: Quantity) -> Vec<f64> {
        self.rounds.iter().filter_map(|taken| Some(quantity.of(taken)?.median)).collect()
    }

    fn measurement(&self, quantity: Quantity) -> Option<Measurement> {
        let rounds: Vec<RoundSummary> = self.rounds.iter().filter_map(|taken| quantity.of(taken)).collect();
        let (name, unit) = quantity.name();
        let busy = self.turn.busy.to_string();
        let labels = [("workload", self.turn.group), ("variant", &self.turn.variant), ("busy threads", &busy)];
        Measurement::new(&labels, self.turn.x, name, unit, rounds)
    }
}

/// Everything of all turns.
pub(super) fn measurements(measured: &[Measured]) -> Vec<Measurement> {
    let of = |one| Quantity::ALL.into_iter().filter_map(move |quantity| Measured::measurement(one, quantity));
    measured.iter().flat_map(of).collect()
}

/// What a group's variant gave at a point, one number a round; none if it was not measured.
pub(super) fn rounds(measured: &[Measured], group: &str, variant: &str, x: f64, quantity: Quantity) -> Vec<f64> {
    let one = measured.iter().find(|one| one.turn.group == group && one.turn.variant == variant && one.turn.x == x);
    one.map_or_else(Vec::new, |one| one.rounds_of(quantity))
}

/// Round by round, the product of two numbers.
pub(super) fn times(one: &[f64], other: &[f64]) -> Vec<f64> {
    one.iter().zip(other).map(|(one, other)| one * other).collect()
}

/// A group as a panel: `variants` are lines, each with its style.
pub(super) fn panel(
    measured: &[Measured],
    group: &str,
    quantity: Quantity,
    title: &str,
    x: &Axis,
    y: &Axis,
    variants: &[String],
) -> Panel {
    let line = |(style, variant): (usize, &String)| {
        let mut points: Vec<_> = measured
            .iter()
            .filter(|one| one.turn.group == group && one.turn.variant == *variant)
            .filter_map(|one| Some(one.measurement(quantity)?.point()))
            .collect();
        points.sort_by(|one, other| one.x.total_cmp(&other.x));
        (!points.is_empty()).then(|| Line { name: variant.clone(), style, points })
    };
    let series = variants.iter().enumerate().filter_map(line).collect();
    Panel { title: title.to_owned(), x: x.clone(), y: y.clone(), series }
}

/// A linear or logarithmic axis of plain numbers.
pub(super) fn axis(label: &str, logarithmic: bool) -> Axis {
    Axis { label: label.to_owned(), logarithmic, bytes: false }
}

/// What a paper says of a ratio.
pub(super) enum Said<'a> {
    Nothing,
    AtLeast(f64, &'a str, String),
    AtMost(f64, &'a str, String),
}

/// One number over another, round by round. `None` if either was not measured.
pub(super) fn ratio(what: &str, under: &str, above: &[f64], below: &[f64], said: Said) -> Option<Ratio> {
    let spread = Spread::ratio(above, below)?;
    let claim = match said {
        Said::Nothing => None,
        Said::AtLeast(least, text, reason) => Some(Claim::at_least(least, text, &spread, reason)),
        Said::AtMost(most, text, reason) => Some(Claim::at_most(most, text, &spread, reason)),
    };
    Some(Ratio { what: what.to_owned(), under: under.to_owned(), spread, claim })
}

/// The same of a number that is a share already.
pub(super) fn share(what: &str, under: &str, shares: &[f64], said: Said) -> Option<Ratio> {
    ratio(what, under, shares, &vec![1.0; shares.len()], said)
}

/// The median over the rounds, for a sentence.
pub(super) fn median(rounds: &[f64]) -> String {
    Spread::of(rounds).map_or_else(|| "nothing".to_owned(), |spread| number(spread.median))
}
