//! `wan.latency`: one way of a message between two sites, written into memory or sent by a socket.
//!
//! After Figures 8.5 and 8.10 of the dissertation: a message goes there, and one of as many bytes comes back; half of
//! it is one way.

use std::time::Duration;

use verbena_fabric::Provider;
use verbena_wan::router::Mode;

use super::adapters::Adapters;
use super::far::failed;
use super::panel;
use super::paths::{Cable, Link, Path};
use super::ways::{Way, Ways, executor_name};
use crate::child::ON_CORE;
use crate::cores::{self, Stay};
use crate::error::BenchError;
use crate::primitives::samples::Samples;
use crate::report::{Axis, Claim, FabricFound, Findings, Line, Measurement, Panel, Ratio};
use crate::rounds::{Budget, interleave};
use crate::run::Plan;
use crate::scale::{bytes, number};
use crate::stats::{RoundSummary, Spread};

/// Bytes of a message.
const SIZES: [usize; 5] = [8, 64, 1 << 10, 8 << 10, 64 << 10];
/// Where the delay varies.
const MESSAGE: usize = 1 << 10;
/// Of the link, one way, in microseconds.
const DELAYS: [u64; 5] = [0, 10, 100, 1_000, 10_000];
/// From here on a delay is far above what the ends take: "equal".
const FAR: u64 = 1_000;
const EQUAL: [f64; 2] = [0.95, 1.05];
/// "Half" of small messages where nothing is between.
const HALF: f64 = 0.6;

const ONE_WAY: &str = "one-way latency";
const US: &str = "latency, one way (us)";

/// What is between the sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Between {
    Cable,
    Link,
}

impl Between {
    const ALL: [Between; 2] = [Between::Cable, Between::Link];

    fn name(self) -> &'static str {
        match self {
            Between::Cable => "cable",
            Between::Link => "link",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Turn {
    between: Between,
    way: Way,
    bytes: usize,
    /// Microseconds.
    delay: u64,
}

impl Turn {
    fn name(&self) -> String {
        let Turn { between, way, bytes, delay } = self;
        format!("{} of {bytes} bytes over the {}, {delay} us", way.name(), between.name())
    }
}

/// Two sites, with what is between them and some ways to cross it.
struct Place {
    /// What it is measured as: between adapters are a cable and, with the delay of netem, a link.
    between: &'static [Between],
    ways: Ways,
    /// Goes last.
    path: Path,
}

/// Where a program of `xdp` receives it sees all packets, so it has places of its own.
const WITHOUT: [Way; 2] = [Way::OneSided(Provider::Tcp), Way::Sockets];
const WITH: [Way; 1] = [Way::OneSided(Provider::Xdp)];

/// Measures the row.
pub(crate) fn measure(plan: Plan) -> Result<Findings, BenchError> {
    let cores = cores::two(plan.name, "one for the router and one for both ends")?;
    let _stay = Stay::on(cores[0]).map_err(|what| failed("choosing a core", what))?;
    let mut findings = Findings { notes: notes(), ..Findings::default() };
    let mut places = vec![];
    for between in Between::ALL {
        for wanted in [&WITHOUT[..], &WITH] {
            let (place, found) = Place::open(between, wanted, cores, plan.seed)?;
            places.push(place);
            findings.fabrics.extend(found);
        }
    }
    findings.fabrics.push(sockets());
    let (place, found) = Adapters::with(cores, |adapters| Place::of_adapters(adapters, cores[1]));
    places.extend(place);
    findings.fabrics.push(found);
    let mut turns = turns(&places);
    let mut budget = Budget::new(plan.measuring, (plan.rounds + 1) * turns.len() as u32);
    let rounds =
        interleave(plan.rounds, &mut turns, Turn::name, |turn| take(&mut places, *turn, budget.next()), plan.progress)?;
    summarise(&places, &turns, &rounds, &mut findings);
    Ok(findings)
}

fn sockets() -> FabricFound {
    let because = "TCP as a program has it: no delay for small messages, and both ends look again and again".to_owned();
    FabricFound { name: Way::Sockets.name().to_owned(), measured: true, because, capabilities: None }
}

fn turns(places: &[Place]) -> Vec<Turn> {
    let mut turns = vec![];
    let mut each = |between, bytes, delay| {
        let there = Way::ALL.into_iter().map(|way| Turn { between, way, bytes, delay });
        turns.extend(there.filter(|turn| places.iter().any(|place| place.has(turn))));
    };
    for between in Between::ALL {
        SIZES.into_iter().for_each(|bytes| each(between, bytes, 0));
    }
    DELAYS.into_iter().filter(|delay| *delay > 0).for_each(|delay| each(Between::Link, MESSAGE, delay));
    turns
}

impl Place {
    /// Over a cable either end has a core. A router that is exact keeps its core to itself, and both ends share the
    /// other one.
    fn open(
        between: Between,
        wanted: &[Way],
        [ends_core, routers_core]: [usize; 2],
        seed: u64,
    ) -> Result<(Self, Vec<FabricFound>), BenchError> {
        let stay = Stay::on(routers_core).map_err(|what| failed("choosing a core", what))?;
        let (path, far_core, alone): (_, _, &[Between]) = match between {
            Between::Cable => (Path::Cable(Cable::new()?), routers_core, &[Between::Cable]),
            Between::Link => (Path::Link(Link::new(Mode::Precise, false, seed)?), ends_core, &[Between::Link]),
        };
        drop(stay);
        let (ways, found) = Ways::open(wanted, path.sites()?, between.name(), &[ON_CORE, &far_core.to_string()])?;
        Ok((Place { between: alone, ways, path }, found))
    }

    /// Either end has a core.
    fn of_adapters(adapters: Adapters, far_core: usize) -> Result<(Self, FabricFound), BenchError> {
        let (ways, found) = Ways::by_adapters(&adapters, &[], &[ON_CORE, &far_core.to_string()])?;
        Ok((Place { between: &Between::ALL, ways, path: Path::Adapters(adapters) }, found))
    }

    fn has(&self, turn: &Turn) -> bool {
        self.between.contains(&turn.between) && self.ways.has(turn.way, turn.bytes)
    }
}

/// Microseconds, one way.
fn take(places: &mut [Place], turn: Turn, length: Duration) -> Result<RoundSummary, BenchError> {
    let place = places.iter_mut().find(|place| place.has(&turn));
    let Place { path, ways, .. } = place.expect("invariant: a turn is made of what a place has");
    if turn.between == Between::Link {
        path.set(Duration::from_micros(turn.delay))?;
    }
    let samples = ways.answered(turn.way, turn.bytes, |line| {
        Samples::take(length, Duration::ZERO, |times| (0..times).try_for_each(|_| line.there_and_back().map(|_| ())))
    })?;
    path.park()?;
    Ok(samples.summarise(2.0, 0).latency_us)
}

/// What varies along a horizontal axis.
#[derive(Clone, Copy)]
struct Varied {
    name: &'static str,
    between: Between,
    has: fn(&Turn) -> bool,
    x: fn(&Turn) -> f64,
    /// What stays.
    fixed: fn(&Turn) -> String,
    axis: (&'static str, bool),
}

const VARIED: [Varied; 3] = [
    Varied {
        name: "size",
        between: Between::Cable,
        has: |turn| turn.delay == 0,
        x: |turn| turn.bytes as f64,
        fixed: |turn| format!("{} us", turn.delay),
        axis: ("size (bytes)", true),
    },
    Varied {
        name: "size",
        between: Between::Link,
        has: |turn| turn.delay == 0,
        x: |turn| turn.bytes as f64,
        fixed: |turn| format!("{} us", turn.delay),
        axis: ("size (bytes)", true),
    },
    Varied {
        name: "delay",
        between: Between::Link,
        has: |turn| turn.bytes == MESSAGE && turn.delay > 0,
        x: |turn| turn.delay as f64,
        fixed: |turn| format!("{} bytes", turn.bytes),
        axis: ("added delay, one way (us)", false),
    },
];

fn summarise(places: &[Place], turns: &[Turn], rounds: &[Vec<RoundSummary>], findings: &mut Findings) {
    let all: Vec<(&Turn, &Vec<RoundSummary>)> = turns.iter().zip(rounds).collect();
    for varied in VARIED {
        let mut lines = vec![];
        for (style, way) in Way::ALL.into_iter().enumerate() {
            let mut points = vec![];
            for (turn, rounds) in &all {
                if turn.way == way && turn.between == varied.between && (varied.has)(turn) {
                    let (between, fixed) = (turn.between.name(), (varied.fixed)(turn));
                    let labels =
                        [("between", between), ("way", way.name()), ("varied", varied.name), ("fixed", &fixed)];
                    let one = Measurement::new(&labels, (varied.x)(turn), ONE_WAY, "us", rounds.to_vec());
                    points.extend(one.as_ref().map(Measurement::point));
                    findings.measurements.extend(one);
                }
            }
            lines.push(Line { name: way.name().to_owned(), style, points });
        }
        findings.panels.push(figure(&varied, lines));
    }
    let executor = |turn: &Turn| places.iter().find(|place| place.has(turn))?.ways.executor(turn.way);
    for (turn, rounds) in &all {
        let sockets = all.iter().find(|(other, _)| **other == Turn { way: Way::Sockets, ..**turn });
        if let (Some(executor), Some((_, sockets))) = (executor(turn), sockets) {
            findings.ratios.extend(ratio(turn, executor_name(executor), rounds, sockets));
        }
    }
}

fn figure(varied: &Varied, lines: Vec<Line>) -> Panel {
    let (label, is_bytes) = varied.axis;
    let title = format!("{}: {ONE_WAY} by {}", varied.between.name(), varied.name);
    let x = Axis { label: label.to_owned(), logarithmic: true, bytes: is_bytes };
    let mut panel = panel(&title, x, US, lines);
    panel.y.logarithmic = true;
    panel
}

fn ratio(turn: &Turn, executor: &str, one_sided: &[RoundSummary], sockets: &[RoundSummary]) -> Option<Ratio> {
    let [above, below] = [one_sided, sockets].map(|rounds| rounds.iter().map(|round| round.median).collect::<Vec<_>>());
    let spread = Spread::ratio(&above, &below)?;
    let median = |rounds: &[f64]| number(Spread::of(rounds).map_or(0.0, |spread| spread.median));
    let reason = format!("{executor} executes it: {} us against {} us", median(&above), median(&below));
    let [least, most] = EQUAL;
    let claim = if turn.delay >= FAR {
        Some(Claim::between(least, most, &format!("equal under delay ({least} to {most})"), &spread, reason))
    } else if turn.between == Between::Cable && turn.bytes <= MESSAGE {
        Some(Claim::at_most(HALF, &format!("half in the LAN (at most {HALF})"), &spread, reason))
    } else {
        None
    };
    let what = format!("{ONE_WAY}, write over {} over sockets", turn.way.name());
    let under = format!("{}, {} bytes, {} us added", turn.between.name(), bytes(turn.bytes as f64), turn.delay);
    Some(Ratio { what, under, spread, claim })
}

fn notes() -> Vec<String> {
    vec![
        "A message goes there and one of the same size comes back; half of that is one way. A write is known to be there by a word that is written behind it in \
         the same batch. Whoever waits looks again and again, at its own memory or at its socket, and lets others have the core in between."
            .to_owned(),
        "Cable is a virtual link between two networks, link the emulator in mode precise, which keeps a core busy where the delay is below 200 us: with two cores \
         both ends then share the other one."
            .to_owned(),
        format!(
            "Over {} a thread of the target executes writes, which is two-sided in the papers' sense; over {} the target's kernel does, in its receive path.",
            Provider::Tcp.name(),
            Provider::Xdp.name()
        ),
        format!(
            "Between adapters ({}) cable is their link as it is, and link is the same with netem at either end: nothing of ours carries what they send, and either end has a core.",
            Provider::Verbs.name()
        ),
    ]
}
