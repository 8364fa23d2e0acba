//! What an experiment leaves behind. docs/reference/BENCH.md says what each field means to a reader.

use serde::{Deserialize, Serialize};
use verbena_fabric::{Capabilities, Provider};

use crate::machine::Machine;
use crate::rows::Row;
use crate::run::Options;
use crate::stats::{RoundSummary, Spread};

/// The layout of a report's JSON. Raised when a field changes its meaning or goes.
pub const FORMAT: &str = "verbena-bench 1";

/// One row, run once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`FORMAT`].
    pub format: String,
    /// The row's name.
    pub row: String,
    /// Where in the papers its figure is.
    pub paper: String,
    /// What the paper found.
    pub paper_found: String,
    /// The version of Verbena that was measured.
    pub verbena: String,
    /// Whether rounds were kept short.
    pub quick: bool,
    /// The seed.
    pub seed: u64,
    /// How many rounds were counted.
    pub rounds: u32,
    /// When it began, in seconds since 1970.
    pub started_unix_s: u64,
    /// How long it took, in seconds.
    pub took_s: f64,
    /// What it ran on.
    pub machine: Machine,
    /// What was measured.
    #[serde(flatten)]
    pub findings: Findings,
}

/// The measured part of a [`Report`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Findings {
    /// Every fabric that this build knows, whether it was measured, and why not.
    pub fabrics: Vec<FabricFound>,
    /// Every variant at every point.
    pub measurements: Vec<Measurement>,
    /// Variants against each other: what the row is about.
    pub ratios: Vec<Ratio>,
    /// The figure.
    pub panels: Vec<Panel>,
    /// What a reader must know to judge the numbers.
    pub notes: Vec<String>,
}

/// A fabric of this machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FabricFound {
    /// What it calls itself.
    pub name: String,
    /// Whether it was measured.
    pub measured: bool,
    /// Why it was not, or how.
    pub because: String,
    /// Its capabilities, if it could be opened.
    pub capabilities: Option<serde_json::Value>,
}

impl FabricFound {
    /// One that was measured, and how.
    pub(crate) fn measured(capabilities: &Capabilities, because: String) -> Self {
        let name = capabilities.provider.to_owned();
        FabricFound { name, measured: true, because, capabilities: serde_json::to_value(capabilities).ok() }
    }

    /// One that was not, and why.
    pub(crate) fn missing(provider: Provider, because: String) -> Self {
        FabricFound { name: provider.name().to_owned(), measured: false, because, capabilities: None }
    }
}

/// One variant at one point, over all rounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// What was done, and how: `fabric`, `operation`, `completion` and the like.
    pub labels: Vec<(String, String)>,
    /// At which point of the horizontal axis.
    pub x: f64,
    /// What is counted.
    pub quantity: String,
    /// In which unit.
    pub unit: String,
    /// The median over rounds of each round's median, and the extremes of these medians.
    pub spread: Spread,
    /// Each round by itself, in order.
    pub rounds: Vec<RoundSummary>,
}

impl Measurement {
    /// From what each round gave. `None` if there was no round.
    pub fn new(labels: &[(&str, &str)], x: f64, quantity: &str, unit: &str, rounds: Vec<RoundSummary>) -> Option<Self> {
        let medians: Vec<f64> = rounds.iter().map(|round| round.median).collect();
        Some(Measurement {
            labels: labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            x,
            quantity: quantity.to_owned(),
            unit: unit.to_owned(),
            spread: Spread::of(&medians)?,
            rounds,
        })
    }

    /// Each round's median.
    pub fn medians(&self) -> Vec<f64> {
        self.rounds.iter().map(|round| round.median).collect()
    }

    /// As a point of a figure.
    pub fn point(&self) -> Point {
        Point { x: self.x, y: self.spread }
    }
}

/// One variant against another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// Which over which.
    pub what: String,
    /// Under what circumstances.
    pub under: String,
    /// The ratio of the medians, and the extremes of the rounds' ratios.
    pub spread: Spread,
    /// What the paper claims of it, if it does.
    pub claim: Option<Claim>,
}

/// A paper's claim, held against what was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// The claim.
    pub text: String,
    /// What the rounds say of it.
    pub verdict: Verdict,
    /// Where it does not hold: the measured reason.
    pub reason: Option<String>,
}

/// What the rounds say of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The ratio was within it in every round.
    Holds,
    /// The ratio was outside it in every round.
    DoesNotHold,
    /// Some rounds were within it and some outside: this run cannot tell.
    RoundsDisagree,
}

impl Claim {
    /// Holds the claim that a ratio is at most `most` against the rounds of `spread`. `reason` is kept if it fails.
    pub fn at_most(most: f64, text: &str, spread: &Spread, reason: String) -> Self {
        Claim::new(spread.max <= most, spread.min > most, text, reason)
    }

    /// The same of the claim that a ratio is at least `least`.
    pub fn at_least(least: f64, text: &str, spread: &Spread, reason: String) -> Self {
        Claim::new(spread.min >= least, spread.max < least, text, reason)
    }

    /// The same of the claim that a ratio is at least `least` and at most `most`.
    pub fn between(least: f64, most: f64, text: &str, spread: &Spread, reason: String) -> Self {
        let in_all = spread.min >= least && spread.max <= most;
        Claim::new(in_all, spread.max < least || spread.min > most, text, reason)
    }

    fn new(in_all: bool, in_none: bool, text: &str, reason: String) -> Self {
        let verdict = match (in_all, in_none) {
            (true, _) => Verdict::Holds,
            (false, true) => Verdict::DoesNotHold,
            (false, false) => Verdict::RoundsDisagree,
        };
        Claim { text: text.to_owned(), verdict, reason: (verdict == Verdict::DoesNotHold).then_some(reason) }
    }
}

impl Findings {
    /// A line for each of these values of the first label that has points, of measurements whose second label has this value, if it is given.
    pub(crate) fn lines(&self, names: impl IntoIterator<Item = String>, part: Option<&str>) -> Vec<Line> {
        let line = |(style, name): (usize, String)| {
            let is_its =
                |one: &&Measurement| one.labels[0].1 == name && part.is_none_or(|part| one.labels[1].1 == part);
            let points: Vec<Point> = self.measurements.iter().filter(is_its).map(Measurement::point).collect();
            (!points.is_empty()).then_some(Line { name, style, points })
        };
        names.into_iter().enumerate().filter_map(line).collect()
    }
}

/// One coordinate system of a figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Panel {
    /// What it shows.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The lines in it.
    pub series: Vec<Line>,
}

/// An axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Axis {
    /// What is on it, with its unit.
    pub label: String,
    /// Whether it is logarithmic.
    pub logarithmic: bool,
    /// Whether its numbers are bytes, to be shown with binary prefixes.
    pub bytes: bool,
}

/// One line of a panel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Its name in the legend.
    pub name: String,
    /// Which colour and mark it has (0 to 7): the same in every panel of the figure.
    pub style: usize,
    /// Its points, from left to right.
    pub points: Vec<Point>,
}

/// A point with its extremes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Where.
    pub x: f64,
    /// Median, least and most.
    pub y: Spread,
}

/// What is noted before the first measurement.
pub(crate) struct Started {
    pub(crate) unix_s: u64,
    pub(crate) machine: Machine,
}

impl Report {
    pub(crate) fn new(
        row: &Row,
        options: &Options,
        rounds: u32,
        started: Started,
        took_s: f64,
        findings: Findings,
    ) -> Self {
        Report {
            format: FORMAT.to_owned(),
            row: row.name.to_owned(),
            paper: row.paper.to_owned(),
            paper_found: row.found.to_owned(),
            verbena: env!("CARGO_PKG_VERSION").to_owned(),
            quick: options.quick,
            seed: options.seed,
            rounds,
            started_unix_s: started.unix_s,
            took_s,
            machine: started.machine,
            findings,
        }
    }
}

#[cfg(test)]
pub(crate) mod test {
    use super::*;

    /// A small report with everything in it.
    pub(crate) fn report() -> Report {
        let spread = Spread { median: 2.0, min: 1.5, max: 3.0 };
        let line = |style| Line {
            name: format!("variant {style}"),
            style,
            points: [8.0, 64.0, 4096.0]
                .map(|x| Point { x, y: Spread { median: spread.median * x, min: spread.min * x, max: spread.max * x } })
                .to_vec(),
        };
        let panel = |title: &str, logarithmic| Panel {
            title: title.to_owned(),
            x: Axis { label: "size (bytes)".to_owned(), logarithmic: true, bytes: true },
            y: Axis { label: "latency (us)".to_owned(), logarithmic, bytes: false },
            series: (0..8).map(line).collect(),
        };
        let round = RoundSummary { count: 10, median: 2.0, p99: 3.0, min: 1.0, max: 4.0 };
        let claim = Claim::at_most(1.4, "at most 1.4", &spread, "the <agent> executes".to_owned());
        let findings = Findings {
            fabrics: vec![FabricFound {
                name: "shm".to_owned(),
                measured: true,
                because: "opened".to_owned(),
                capabilities: None,
            }],
            measurements: vec![
                Measurement::new(&[("operation", "read")], 8.0, "latency", "us", vec![round; 9]).unwrap(),
            ],
            ratios: vec![Ratio {
                what: "read over send".to_owned(),
                under: "8 bytes".to_owned(),
                spread,
                claim: Some(claim),
            }],
            panels: vec![panel("Logarithmic & all", true), panel("Linear", false)],
            notes: vec!["A note.".to_owned()],
        };
        let options = Options {
            quick: true,
            seed: 1,
            rounds: None,
            measuring: None,
            verbena: None,
            trace: std::path::PathBuf::new(),
            out_dir: std::path::PathBuf::new(),
        };
        Report::new(
            crate::rows::row("fabric.primitives").unwrap(),
            &options,
            9,
            Started { unix_s: 1, machine: Machine::here() },
            1.0,
            findings,
        )
    }

    #[test]
    fn a_claim_is_decided_only_if_all_rounds_agree() {
        let verdict = |claim: fn(f64, &str, &Spread, String) -> Claim, min, max| {
            let spread = Spread { median: 1.0, min, max };
            let claim = claim(1.5, "1.5", &spread, "because".to_owned());
            assert_eq!(claim.reason.is_some(), claim.verdict == Verdict::DoesNotHold);
            claim.verdict
        };
        assert_eq!(verdict(Claim::at_most, 0.5, 1.5), Verdict::Holds);
        assert_eq!(verdict(Claim::at_most, 1.6, 9.0), Verdict::DoesNotHold);
        assert_eq!(verdict(Claim::at_most, 0.5, 1.6), Verdict::RoundsDisagree);
        assert_eq!(verdict(Claim::at_least, 1.5, 9.0), Verdict::Holds);
        assert_eq!(verdict(Claim::at_least, 0.5, 1.4), Verdict::DoesNotHold);
        assert_eq!(verdict(Claim::at_least, 1.4, 1.6), Verdict::RoundsDisagree);
        let between = |_, text: &str, spread: &Spread, reason| Claim::between(0.9, 1.5, text, spread, reason);
        assert_eq!(verdict(between, 0.9, 1.5), Verdict::Holds);
        assert_eq!(verdict(between, 0.1, 0.8), Verdict::DoesNotHold);
        assert_eq!(verdict(between, 1.6, 9.0), Verdict::DoesNotHold);
        assert_eq!(verdict(between, 0.1, 1.0), Verdict::RoundsDisagree);
        assert_eq!(verdict(between, 1.0, 1.6), Verdict::RoundsDisagree);
    }

    #[test]
    fn a_report_survives_its_json() {
        let report = report();
        let json = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&json).unwrap(), report);
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(value["format"], FORMAT);
        assert_eq!(value["ratios"][0]["spread"]["median"], 2.0);
        assert!(value["machine"]["cpu"].is_string());
    }
}
