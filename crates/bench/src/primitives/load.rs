//! `fabric.load`: reads of another node's memory while its core has other things to do.
//!
//! After Figures 6.5 and 8.8 of the dissertation. Target and busy threads are on one core, the caller on another. Every way to read has a
//! caller and a target of its own, two processes; those of all but one sleep.

use std::time::{Duration, Instant};

use super::calls::{Order, Ready, Way};
use super::samples::Stretch;
use super::{CALLS, CPU, LATENCY};
use crate::child::{ON_CORE, Target};
use crate::cores::{self, Stay};
use crate::error::BenchError;
use crate::report::{Axis, Claim, FabricFound, Findings, Line, Measurement, Panel, Ratio};
use crate::rounds::{Budget, interleave};
use crate::run::Plan;
use crate::scale::number;
use crate::stats::{RoundSummary, Spread};
use crate::web;

/// Threads on the target's core.
const LEVELS: [usize; 4] = [0, 50, 100, 200];

/// What latency and bandwidth are measured with, in bytes. The larger one is the most that a fabric takes for control.
const WORD: usize = 8;
const BLOCK: usize = super::LARGEST_CONTROL;

/// How much slower a one-sided read may be under load: by its median, and by its 99th percentile.
const FLAT: f64 = 1.2;
const FLAT_P99: f64 = 3.0;

/// The least length of a turn, even if the threads took so long to begin that no time is left: their own time is
/// measured in the system's ticks.
const SHORTEST_TURN: Duration = Duration::from_millis(10);

/// A caller at work.
struct Caller {
    name: &'static str,
    is_one_sided: bool,
    process: Target,
}

/// One caller at one point.
#[derive(Clone, Copy, Debug)]
struct Turn {
    caller: usize,
    bytes: usize,
    busy: usize,
}

/// What it gave.
#[derive(Clone, Copy)]
struct Taken {
    stretch: Stretch,
    /// Cores that busy threads had meanwhile.
    busy_cores: f64,
}

/// One turn, over all rounds.
struct Measured {
    turn: Turn,
    rounds: Vec<Taken>,
}

/// Measures the row.
pub(crate) fn measure(plan: Plan) -> Result<Findings, BenchError> {
    let [targets_core, callers_core] = cores::two(plan.name, "one for the target and one for the caller")?;
    // The thread that gives the orders must not wait for its turn among busy threads; during a turn it does nothing.
    let failed = |reason: String| BenchError::NothingToMeasure { name: plan.name, reason };
    let _stay = Stay::on(callers_core).map_err(failed)?;
    let [targets_core, callers_core] = [targets_core, callers_core].map(|core| core.to_string());
    let mut findings = Findings::default();
    let mut callers = Vec::new();
    let mut turns = Vec::new();
    for way in Way::ALL {
        let mut process = Target::start(&[ON_CORE, &callers_core, CALLS, way.name(), &targets_core])?;
        let found = match process.answer::<Ready>("begin") {
            Err(error) => {
                let because = if let BenchError::Target { reason, .. } = error { reason } else { error.to_string() };
                FabricFound { name: way.name().to_owned(), measured: false, because, capabilities: None }
            }
            Ok(Ready { found, is_one_sided, largest }) => {
                let sizes = [WORD, BLOCK].into_iter().filter(|bytes| *bytes <= largest);
                turns.extend(sizes.map(|bytes| Turn { caller: callers.len(), bytes, busy: 0 }));
                callers.push(Caller { name: way.name(), is_one_sided, process });
                found
            }
        };
        findings.fabrics.push(found);
    }
    if callers.is_empty() {
        let reasons = findings.fabrics.iter().map(|found| format!("{}: {}", found.name, found.because));
        let reason = reasons.collect::<Vec<_>>().join("; ");
        return Err(BenchError::NothingToMeasure { name: plan.name, reason });
    }
    // By level: what is compared stands next to each other in time.
    let turns: Vec<Turn> =
        LEVELS.into_iter().flat_map(|busy| turns.iter().map(move |turn| Turn { busy, ..*turn })).collect();

    let steps = (plan.rounds + 1) * turns.len() as u32;
    let each = plan.measuring / steps;
    let measured = take_all(plan, &mut callers, turns, &targets_core)?;
    findings.ratios = ratios(&measured, &callers);
    findings.panels = panels(&measured, &callers);
    findings.measurements = measured.iter().flat_map(|one| one.measurements(&callers)).collect();
    findings.notes = notes(each);
    Ok(findings)
}

fn take_all(
    plan: Plan,
    callers: &mut [Caller],
    mut turns: Vec<Turn>,
    targets_core: &str,
) -> Result<Vec<Measured>, BenchError> {
    let mut busy = Target::start(&[ON_CORE, targets_core, web::BUSY])?;
    let mut level = 0;
    let mut budget = Budget::new(plan.measuring, (plan.rounds + 1) * turns.len() as u32);
    let names: Vec<&str> = callers.iter().map(|caller| caller.name).collect();
    let rounds = interleave(
        plan.rounds,
        &mut turns,
        |turn| format!("read of {} bytes, {}, {} busy threads", turn.bytes, names[turn.caller], turn.busy),
        |turn| {
            if level != turn.busy {
                let () = busy.ask(&turn.busy, "keep its core busy")?;
                level = turn.busy;
            }
            let (before, started) = (busy.cpu_ns()?, Instant::now());
            let order = Order { bytes: turn.bytes, length: budget.next().max(SHORTEST_TURN) };
            let stretch = callers[turn.caller].process.ask(&order, "time reads")?;
            let busy_cores = busy.cpu_ns()?.saturating_sub(before) as f64 / 1e9 / started.elapsed().as_secs_f64();
            Ok(Taken { stretch, busy_cores })
        },
        plan.progress,
    )?;
    Ok(turns.into_iter().zip(rounds).map(|(turn, rounds)| Measured { turn, rounds }).collect())
}

/// What is said of a turn: its name, its unit, and how it comes from what was taken.
type Quantity = (&'static str, &'static str, fn(&Turn, &Taken) -> RoundSummary);

const READ: Quantity = ("latency", "us", |_, taken| taken.stretch.latency_us);
const BANDWIDTH: Quantity = ("bandwidth", "MB/s", |turn, taken| {
    RoundSummary::one(taken.stretch.per_s * turn.bytes as f64 / 1e6, taken.stretch.latency_us.count)
});
const TARGETS: Quantity = ("processor time of the target", "s for a million operations", |_, taken| {
    RoundSummary::one(taken.stretch.peer_cpu_s, 1)
});
const CALLERS: Quantity = ("processor time of the caller", "s for a million operations", |_, taken| {
    RoundSummary::one(taken.stretch.own_cpu_s, 1)
});
const BUSY: Quantity =
    ("processor time of the busy threads", "cores", |_, taken| RoundSummary::one(taken.busy_cores, 1));

impl Measured {
    fn measurement(&self, callers: &[Caller], (name, unit, of): Quantity) -> Measurement {
        let bytes = self.turn.bytes.to_string();
        let labels = [("fabric", callers[self.turn.caller].name), ("operation", "read"), ("bytes", &bytes)];
        let rounds = self.rounds.iter().map(|taken| of(&self.turn, taken)).collect();
        Measurement::new(&labels, self.turn.busy as f64, name, unit, rounds)
            .expect("invariant: there are at least FEWEST_ROUNDS rounds")
    }

    fn measurements(&self, callers: &[Caller]) -> Vec<Measurement> {
        [READ, BANDWIDTH, TARGETS, CALLERS, BUSY].map(|quantity| self.measurement(callers, quantity)).into()
    }

    fn latencies(&self, of: fn(&RoundSummary) -> f64) -> Vec<f64> {
        self.rounds.iter().map(|taken| of(&taken.stretch.latency_us)).collect()
    }
}

const MEDIAN: fn(&RoundSummary) -> f64 = |summary| summary.median;
const P99: fn(&RoundSummary) -> f64 = |summary| summary.p99;

fn find(measured: &[Measured], caller: usize, busy: usize) -> Option<&Measured> {
    measured.iter().find(|one| {
        let turn = one.turn;
        turn.caller == caller && turn.busy == busy && turn.bytes == WORD
    })
}

fn ratios(measured: &[Measured], callers: &[Caller]) -> Vec<Ratio> {
    let mut ratios = Vec::new();
    for (at, caller) in callers.iter().enumerate() {
        for busy in &LEVELS[1..] {
            ratios.extend(loaded_over_idle(measured, at, caller, *busy, "median", MEDIAN, FLAT));
            ratios.extend(loaded_over_idle(measured, at, caller, *busy, "99th percentile", P99, FLAT_P99));
        }
    }
    let first = callers.iter().position(|caller| caller.name == Way::Xdp.name());
    for (at, caller) in callers.iter().enumerate().filter(|(_, caller)| !caller.is_one_sided) {
        for busy in LEVELS {
            let medians = |caller| Some(find(measured, caller, busy)?.latencies(MEDIAN));
            let spread = medians(at).zip(first.and_then(medians)).and_then(|(own, xdp)| Spread::ratio(&own, &xdp));
            ratios.extend(spread.map(|spread| Ratio {
                what: format!("median latency, {} over {}", caller.name, Way::Xdp.name()),
                under: format!("{WORD} bytes, {busy} busy threads"),
                spread,
                claim: None,
            }));
        }
    }
    ratios
}

fn loaded_over_idle(
    measured: &[Measured],
    at: usize,
    caller: &Caller,
    busy: usize,
    what: &str,
    of: fn(&RoundSummary) -> f64,
    most: f64,
) -> Option<Ratio> {
    let (loaded, idle) = (find(measured, at, busy)?.latencies(of), find(measured, at, 0)?.latencies(of));
    let spread = Spread::ratio(&loaded, &idle)?;
    let median = |rounds: &[f64]| Spread::of(rounds).map_or(0.0, |spread| spread.median);
    let reason = format!("{} us against {} us", number(median(&loaded)), number(median(&idle)));
    let claim = match caller.is_one_sided {
        true => Claim::at_most(most, &format!("flat (at most {most})"), &spread, reason),
        false => Claim::at_least(FLAT, &format!("degrades (at least {FLAT})"), &spread, reason),
    };
    Some(Ratio {
        what: format!("latency ({what}), {busy} busy threads over none"),
        under: format!("{}, {WORD} bytes", caller.name),
        spread,
        claim: Some(claim),
    })
}

/// Figures 6.5a and b, with the 99th percentile between them, and what it costs.
fn panels(measured: &[Measured], callers: &[Caller]) -> Vec<Panel> {
    let panel = |title: &str, label: &str, bytes: usize, quantity: Quantity| {
        let lines = callers.iter().enumerate().map(|(at, caller)| {
            let here = measured.iter().filter(|one| one.turn.caller == at && one.turn.bytes == bytes);
            let points = here.map(|one| one.measurement(callers, quantity).point()).collect();
            Line { name: caller.name.to_owned(), style: at, points }
        });
        Panel {
            title: title.to_owned(),
            x: Axis { label: "busy threads on the target's core".to_owned(), logarithmic: false, bytes: false },
            y: Axis { label: label.to_owned(), logarithmic: true, bytes: false },
            series: lines.filter(|line| !line.points.is_empty()).collect(),
        }
    };
    const P99_READ: Quantity =
        ("", "", |_, taken| RoundSummary::one(taken.stretch.latency_us.p99, taken.stretch.latency_us.count));
    vec![
        panel("read of 8 bytes: median latency", LATENCY, WORD, READ),
        panel("read of 8 bytes: 99th percentile of latency", LATENCY, WORD, P99_READ),
        panel("read of 4 KiB: bandwidth", "bandwidth (MB/s)", BLOCK, BANDWIDTH),
        panel("read of 8 bytes: processor time of the target", CPU, WORD, TARGETS),
        panel("read of 8 bytes: processor time of the caller", CPU, WORD, CALLERS),
    ]
}

fn notes(each: Duration) -> Vec<String> {
    vec![
        "Target and busy threads share one core, the caller has another. One read is under way at a time, and its caller sleeps \
         until it is answered."
            .to_owned(),
        format!(
            "Each point was measured for about {} ms in each round. A sample is one read, or as many as take a microsecond, divided by \
             their number.",
            each.as_millis()
        ),
        "Processor time is that of whole processes. Where threads of the kernel do what the target receives, theirs is in the target's. \
         Otherwise a virtual link has it done in the time of whoever sends."
            .to_owned(),
    ]
}
