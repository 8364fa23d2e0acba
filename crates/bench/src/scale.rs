//! An axis: where a value stands, and which values are written beside it.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

use crate::report::Axis;

/// A linear or logarithmic axis with its ticks.
#[derive(Clone, Debug)]
pub(crate) struct Scale {
    logarithmic: bool,
    bytes: bool,
    from: f64,
    to: f64,
    ticks: Vec<f64>,
}

/// More ticks than this do not fit on a panel's axis.
const MOST_TICKS: usize = 9;

impl Scale {
    /// An axis that holds `values`, with ticks at round numbers. A linear one begins at 0; a logarithmic one leaves out
    /// what is not positive.
    pub(crate) fn new(axis: &Axis, values: impl Iterator<Item = f64>) -> Self {
        let positive = |value: &f64| !axis.logarithmic || *value > 0.0;
        let (least, most) = values
            .filter(positive)
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), value| (least.min(value), most.max(value)));
        let (from, to, ticks) = if least > most {
            (if axis.logarithmic { 1.0 } else { 0.0 }, 10.0, vec![1.0, 10.0])
        } else if axis.logarithmic {
            let (from, to) = widened(least / 1.3, most * 1.3);
            (from, to, decades(from, to))
        } else {
            let to = if most > 0.0 { most * 1.08 } else { 1.0 };
            (least.min(0.0), to, steps(least.min(0.0), to))
        };
        Scale { logarithmic: axis.logarithmic, bytes: axis.bytes, from, to, ticks }
    }

    /// The same, with ticks at the values themselves where they are few: message sizes.
    pub(crate) fn with_ticks_at_values(axis: &Axis, values: impl Iterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.collect();
        let mut scale = Scale::new(axis, values.iter().copied());
        values.sort_unstable_by(f64::total_cmp);
        values.dedup();
        if !values.is_empty() && values.len() <= MOST_TICKS {
            scale.ticks = values;
        }
        scale
    }
}

/// At least a factor of four, so that there are ticks to read.
fn widened(from: f64, to: f64) -> (f64, f64) {
    let factor = (4.0 / (to / from)).sqrt().max(1.0);
    (from / factor, to * factor)
}

/// 1, 10, 100 ..., with as many numbers between as give at least three ticks and fit.
fn decades(from: f64, to: f64) -> Vec<f64> {
    let between = |digits: &[f64]| -> Vec<f64> {
        let exponents = from.log10().floor() as i32..=to.log10().ceil() as i32;
        let ticks = exponents.flat_map(|exponent| digits.iter().map(move |digit| digit * 10f64.powi(exponent)));
        ticks.filter(|tick| (from..=to).contains(tick)).collect()
    };
    let choices: [&[f64]; 3] = [&[1.0], &[1.0, 3.0], &[1.0, 2.0, 5.0]];
    let ticks = choices.into_iter().map(between).find(|ticks| ticks.len() >= 4);
    ticks.unwrap_or_else(|| between(&[1.0, 2.0, 3.0, 5.0, 7.0]))
}

/// Multiples of 1, 2 or 5 times a power of ten, about six of them.
fn steps(from: f64, to: f64) -> Vec<f64> {
    let rough = (to - from) / 6.0;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|digit| digit * power).into_iter().find(|step| *step >= rough);
    let step = step.unwrap_or(rough);
    let first = (from / step).ceil() as i64;
    (first..).map(|number| number as f64 * step).take_while(|tick| *tick <= to).collect()
}

impl Ranged for Scale {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (low, high): (i32, i32)) -> i32 {
        let value = value.clamp(self.from, self.to);
        let share = if self.logarithmic {
            (value / self.from).ln() / (self.to / self.from).ln()
        } else {
            (value - self.from) / (self.to - self.from)
        };
        low + (share * f64::from(high - low)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() { Vec::new() } else { self.ticks.clone() }
    }

    fn range(&self) -> Range<f64> {
        self.from..self.to
    }
}

impl ValueFormatter<f64> for Scale {
    fn format_ext(&self, value: &f64) -> String {
        if self.bytes { bytes(*value) } else { number(*value) }
    }
}

/// Bytes with a binary prefix, where it divides them.
pub(crate) fn bytes(value: f64) -> String {
    let whole = value as u64;
    match whole {
        1.. if whole.is_multiple_of(1 << 20) => format!("{}M", whole >> 20),
        1.. if whole.is_multiple_of(1 << 10) => format!("{}K", whole >> 10),
        _ => whole.to_string(),
    }
}

/// A number with three significant digits, and no more than it needs.
pub(crate) fn number(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let magnitude = value.abs().log10().floor() as i32;
    if magnitude < -5 {
        return format!("{value:.1e}");
    }
    let decimals = (2 - magnitude).max(0) as usize;
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(logarithmic: bool) -> Axis {
        Axis { label: String::new(), logarithmic, bytes: false }
    }

    #[test]
    fn every_axis_has_ticks_that_fit() {
        for logarithmic in [false, true] {
            for (least, most) in [(1.0, 1.0), (0.05, 0.06), (0.3, 7.0), (1.0, 1e6), (0.0, 0.0), (3.0, 12_000.0)] {
                let scale = Scale::new(&axis(logarithmic), [least, most].into_iter());
                let count = scale.ticks.len();
                assert!((2..=12).contains(&count), "{least}..{most}, logarithmic {logarithmic}: {:?}", scale.ticks);
                assert!(scale.ticks.iter().all(|tick| *tick >= scale.from && *tick <= scale.to));
                assert!(most <= scale.to && (logarithmic || scale.from <= least));
            }
        }
        assert!(Scale::new(&axis(true), std::iter::empty()).ticks.len() >= 2);
    }

    #[test]
    fn values_stand_where_they_should() {
        let log = Scale { logarithmic: true, bytes: false, from: 1.0, to: 10_000.0, ticks: vec![] };
        assert_eq!([1.0, 100.0, 10_000.0, 1e9].map(|value| log.map(&value, (0, 400))), [0, 200, 400, 400]);
        let linear = Scale { logarithmic: false, bytes: false, from: 0.0, to: 8.0, ticks: vec![] };
        assert_eq!([0.0, 2.0, 8.0].map(|value| linear.map(&value, (400, 0))), [400, 300, 0]);
    }

    #[test]
    fn numbers_are_short() {
        let shown = [0.0, 0.05, 0.123_45, 1.0, 2.5, 19.6, 1234.0, 1e-7].map(number);
        assert_eq!(shown, ["0", "0.05", "0.123", "1", "2.5", "19.6", "1234", "1.0e-7"]);
        assert_eq!([8.0, 1000.0, 4096.0, 1_048_576.0].map(bytes), ["8", "1000", "4K", "1M"]);
    }
}
