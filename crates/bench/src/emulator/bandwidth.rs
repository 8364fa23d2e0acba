//! `wan.bandwidth`: what goes through the emulator, beside a kernel that forwards: one stream of TCP in large frames and in single packets, packets of
//! 64 bytes, and the processor time that it takes.

use std::time::{Duration, Instant};

use verbena_terms::Lapse;
use verbena_wan::LARGEST_FRAME;
use verbena_wan::router::Mode;

use super::flows::{Flow, SENDS_AGAIN, large_windows};
use super::paths::{Ends, Forwarding, Link};
use super::rattan::{self, Rattan};
use super::{panel, router};
use crate::cpu;
use crate::error::BenchError;
use crate::report::{Axis, Claim, Findings, Line, Measurement, Panel, Point, Ratio};
use crate::rounds::{Budget, interleave};
use crate::run::Plan;
use crate::stats::{RoundSummary, Spread};

/// Added each way. The kernel that forwards adds none, and every stream is held against it.
const DELAYS: [Duration; 3] = [Duration::ZERO, Duration::from_millis(1), Duration::from_millis(10)];
/// A stream flows for this many round trips before it is measured, and at least for `SHORTEST_BEFORE`.
const ROUND_TRIPS: u32 = 5;
const SHORTEST_BEFORE: Duration = Duration::from_millis(50);
/// It is measured for so long at least.
const SHORTEST: Duration = Duration::from_millis(30);
/// Where nothing has come for this, and a way there and back, nothing is under way.
const QUIET: Duration = Duration::from_millis(5);
/// What was wanted of a stream, as a part of what the kernel forwards: without delay, and with.
const AT_ONCE: f64 = 0.8;
const DELAYED: f64 = 1.0;

const THROUGHPUT: &str = "throughput";
const PACKETS: &str = "packets of 64 bytes";
const CPU: &str = "processor time";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum System {
    /// In frames of this many bytes of IP, where they are large.
    Forwarding(u32),
    Router(Mode),
    /// The router in its mode precise, with packets that stay in the kernel.
    Nfqueue,
    Rattan,
}

impl System {
    fn name(self) -> &'static str {
        match self {
            System::Forwarding(LARGEST_FRAME) => "kernel forwarding, larger",
            System::Forwarding(_) => "kernel forwarding",
            System::Router(Mode::Precise) => "precise",
            System::Router(Mode::Sleep) => "sleep",
            System::Nfqueue => "nfqueue",
            System::Rattan => rattan::NAME,
        }
    }

    /// What its figures are parts of.
    fn held_against(self) -> &'static [System] {
        match self {
            System::Router(_) => &[System::Forwarding(USUAL_FRAME)],
            System::Nfqueue => &[System::Forwarding(USUAL_FRAME), System::Forwarding(LARGEST_FRAME)],
            System::Rattan => &[System::Router(Mode::Precise)],
            System::Forwarding(_) => &[],
        }
    }
}

/// What frames have on an interface of which nothing else is said, in bytes of IP.
const USUAL_FRAME: u32 = 64 << 10;

/// What crosses, and as what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Crossing {
    Large,
    Single,
    Smallest,
}

impl Crossing {
    fn name(self) -> &'static str {
        match self {
            Crossing::Large => "large frames",
            Crossing::Single => "single packets",
            Crossing::Smallest => PACKETS,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Turn {
    system: System,
    crossing: Crossing,
    delay: Duration,
}

impl Turn {
    fn name(&self) -> String {
        format!("{}, {}, {}", self.system.name(), self.crossing.name(), Lapse(self.delay))
    }

    fn milliseconds(&self) -> f64 {
        self.delay.as_secs_f64() * 1e3
    }
}

/// What a turn gave.
#[derive(Clone, Copy, Debug)]
struct Given {
    /// Bits a second, or packets.
    rate: f64,
    /// Seconds of the whole machine for a gigabyte, or for a million packets.
    cpu_s: f64,
    count: u64,
}

/// Something to cross, which is the same in all rounds.
struct Way {
    turn: Turn,
    carrier: Carrier,
    flow: Flow,
}

enum Carrier {
    Forwarding(Forwarding),
    Link(Link),
    Rattan(Rattan),
}

impl Carrier {
    fn ends(&self) -> Result<Ends<'_>, BenchError> {
        Ok(match self {
            Carrier::Forwarding(forwarding) => forwarding.ends(),
            Carrier::Link(link) => link.ends()?,
            Carrier::Rattan(rattan) => rattan.ends(),
        })
    }
}

/// Measures the row.
pub(crate) fn measure(plan: Plan) -> Result<Findings, BenchError> {
    let mut ways = vec![];
    for turn in ours() {
        let is_single = turn.crossing != Crossing::Large;
        let carrier = match turn.system {
            System::Router(mode) => Carrier::Link(Link::new(mode, is_single, plan.seed)?),
            System::Nfqueue | System::Rattan => unreachable!("invariant: these two come next"),
            System::Forwarding(frame) => Carrier::Forwarding(Forwarding::new(is_single, frame)?),
        };
        ways.push(Way::new(turn, carrier)?);
    }
    let (links, held) = Link::held(&[Mode::Precise; DELAYS.len()], plan.seed)?;
    for (link, delay) in links.into_iter().zip(DELAYS) {
        let turn = Turn { system: System::Nfqueue, crossing: Crossing::Large, delay };
        ways.push(Way::new(turn, Carrier::Link(link))?);
    }
    let (rattans, found) = rattan::all(&DELAYS)?;
    for (rattan, delay) in rattans.into_iter().zip(DELAYS) {
        let turn = Turn { system: System::Rattan, crossing: Crossing::Large, delay };
        ways.push(Way::new(turn, Carrier::Rattan(rattan))?);
    }
    let turns: Vec<Turn> = ways.iter().map(|way| way.turn).collect();
    let mut budget = Budget::new(plan.measuring, (plan.rounds + 1) * ways.len() as u32);
    let rounds =
        interleave(plan.rounds, &mut ways, |way| way.turn.name(), |way| way.take(budget.next()), plan.progress)?;
    let mut findings = Findings { fabrics: vec![router(), held, found], ..Findings::default() };
    summarise(&turns, &rounds, &mut findings);
    findings.notes = notes();
    Ok(findings)
}

fn ours() -> Vec<Turn> {
    let mut turns = vec![];
    for crossing in [Crossing::Large, Crossing::Single] {
        let frames = if crossing == Crossing::Large { &[USUAL_FRAME, LARGEST_FRAME][..] } else { &[USUAL_FRAME] };
        turns.extend(frames.iter().map(|frame| Turn {
            system: System::Forwarding(*frame),
            crossing,
            delay: DELAYS[0],
        }));
        // What sleeping costs and saves is seen in large frames.
        let modes = if crossing == Crossing::Large { &[Mode::Precise, Mode::Sleep][..] } else { &[Mode::Precise] };
        for mode in modes {
            turns.extend(DELAYS.map(|delay| Turn { system: System::Router(*mode), crossing, delay }));
        }
    }
    let smallest = |system| Turn { system, crossing: Crossing::Smallest, delay: DELAYS[0] };
    turns.extend([System::Forwarding(USUAL_FRAME), System::Router(Mode::Precise)].map(smallest));
    turns
}

impl Way {
    fn new(turn: Turn, mut carrier: Carrier) -> Result<Self, BenchError> {
        // It is met as it is measured: a connection over a link that is put aside takes seconds.
        carrier.begin(turn.delay)?;
        let ends = carrier.ends()?;
        large_windows(ends.near)?;
        large_windows(ends.far)?;
        let opened = if turn.crossing == Crossing::Smallest { Flow::datagrams(ends) } else { Flow::stream(ends) };
        let flow = opened.map_err(|error| turn.failed("opening", &error))?;
        carrier.end()?;
        Ok(Way { turn, carrier, flow })
    }

    fn take(&mut self, length: Duration) -> Result<Given, BenchError> {
        let before = (self.turn.delay * 2 * ROUND_TRIPS).max(SHORTEST_BEFORE);
        self.carrier.begin(self.turn.delay)?;
        let quiet = self.turn.delay * 3 + QUIET;
        let measured = self.flow.run(before, quiet, |came| -> std::io::Result<(f64, f64)> {
            let (began, busy) = (Instant::now(), cpu::machine()?);
            std::thread::sleep(length.saturating_sub(before).max(SHORTEST));
            // A connection that has lost much at once rests until it sends again.
            while came() == 0 && began.elapsed() < length + SENDS_AGAIN {
                std::thread::sleep(QUIET);
            }
            Ok((began.elapsed().as_secs_f64(), (cpu::machine()? - busy).as_secs_f64()))
        });
        self.carrier.end()?;
        let (count, times) = measured.map_err(|error| self.turn.failed("measuring", &error))?;
        let (seconds, busy) = times.map_err(|error| self.turn.failed("measuring", &error))?;
        if count == 0 {
            return Err(self.turn.failed("measuring", &std::io::Error::other("nothing came")));
        }
        let (unit, part) = if self.turn.crossing == Crossing::Smallest { (1.0, 1e6) } else { (8.0, 1e9) };
        Ok(Given { rate: count as f64 * unit / seconds, cpu_s: busy * part / count as f64, count })
    }
}

impl Carrier {
    /// From now on it is so long.
    fn begin(&mut self, delay: Duration) -> Result<(), BenchError> {
        if let Carrier::Link(link) = self { link.set(delay) } else { Ok(()) }
    }

    /// It is left alone while others are measured.
    fn end(&mut self) -> Result<(), BenchError> {
        if let Carrier::Link(link) = self { link.park() } else { Ok(()) }
    }
}

impl Turn {
    fn failed(&self, doing: &str, error: &std::io::Error) -> BenchError {
        BenchError::Wrong {
            fabric: self.system.name().to_owned(),
            doing: format!("{doing} {}", self.name()),
            what: error.to_string(),
        }
    }
}

fn summarise(turns: &[Turn], rounds: &[Vec<Given>], findings: &mut Findings) {
    let of = |wanted: Turn| turns.iter().position(|turn| *turn == wanted).map(|at| rounds[at].as_slice());
    let rates = |given: &[Given]| given.iter().map(|round| round.rate).collect::<Vec<f64>>();
    for (turn, given) in turns.iter().zip(rounds) {
        let labels = [("system", turn.system.name()), ("crossing", turn.crossing.name())];
        let (quantity, unit, per) = match turn.crossing {
            Crossing::Smallest => (PACKETS, "million a second", "s for a million packets"),
            _ => (THROUGHPUT, "Gbit/s", "s for a gigabyte"),
        };
        let scale = if turn.crossing == Crossing::Smallest { 1e6 } else { 1e9 };
        let mut say = |quantity, unit, part: fn(&Given) -> f64, scale: f64| {
            let rounds = given.iter().map(|round| RoundSummary::one(part(round) / scale, round.count)).collect();
            findings.measurements.extend(Measurement::new(&labels, turn.milliseconds(), quantity, unit, rounds));
        };
        say(quantity, unit, |round| round.rate, scale);
        say(CPU, per, |round| round.cpu_s, 1.0);
    }
    for (turn, given) in turns.iter().zip(rounds) {
        for other in turn.system.held_against() {
            let delay = if matches!(other, System::Forwarding(_)) { DELAYS[0] } else { turn.delay };
            let Some(below) = of(Turn { system: *other, delay, ..*turn }) else { continue };
            let Some(spread) = Spread::ratio(&rates(given), &rates(below)) else { continue };
            let what = format!("{}, {} over {}", turn.rate_of(), turn.system.name(), other.name());
            let claim = turn.wanted(*other).map(|least| {
                let reason = reason(given, below);
                Claim::at_least(least, &format!("at least {least}, our own"), &spread, reason)
            });
            findings.ratios.push(Ratio { what, under: turn.name(), spread, claim });
        }
    }
    findings.panels = panels(&findings.measurements);
}

impl Turn {
    fn rate_of(&self) -> &'static str {
        if self.crossing == Crossing::Smallest { PACKETS } else { THROUGHPUT }
    }

    /// The least part of what a kernel forwards with its default frames.
    fn wanted(&self, other: System) -> Option<f64> {
        let is_asked = self.crossing == Crossing::Large
            && matches!(self.system, System::Router(Mode::Precise) | System::Nfqueue)
            && other == System::Forwarding(USUAL_FRAME);
        is_asked.then_some(if self.delay.is_zero() { AT_ONCE } else { DELAYED })
    }
}

fn reason(given: &[Given], below: &[Given]) -> String {
    let median = |given: &[Given], part: fn(&Given) -> f64| {
        let parts: Vec<f64> = given.iter().map(part).collect();
        crate::scale::number(Spread::of(&parts).map_or(0.0, |spread| spread.median))
    };
    let of = |given| {
        format!(
            "{} Gbit/s at {} s of the machine's two cores for a gigabyte",
            median(given, |one| one.rate / 1e9),
            median(given, |one| one.cpu_s)
        )
    };
    format!("{}; the kernel forwards {}", of(given), of(below))
}

fn panels(measurements: &[Measurement]) -> Vec<Panel> {
    let ours = [System::Router(Mode::Precise), System::Router(Mode::Sleep), System::Nfqueue];
    let forwarding = [USUAL_FRAME, LARGEST_FRAME].map(System::Forwarding);
    let systems: Vec<System> = forwarding.into_iter().chain(ours).chain([System::Rattan]).collect();
    let mut panels = vec![];
    for crossing in [Crossing::Large, Crossing::Single] {
        for (quantity, y) in [(THROUGHPUT, "Gbit/s"), (CPU, "CPU seconds per GB")] {
            let line = |(style, system): (usize, System)| {
                let is_it = |one: &&Measurement| {
                    let has = |value: &str| one.labels.iter().any(|(_, label)| label == value);
                    one.quantity == quantity && has(system.name()) && has(crossing.name())
                };
                let points: Vec<Point> = measurements.iter().filter(is_it).map(Measurement::point).collect();
                Line { name: system.name().to_owned(), style, points }
            };
            let x = Axis { label: "added each way (ms)".to_owned(), logarithmic: false, bytes: false };
            let lines = systems.iter().copied().enumerate().map(line).collect();
            panels.push(panel(&format!("one stream, {}: {quantity}", crossing.name()), x, y, lines));
        }
    }
    panels
}

fn notes() -> Vec<String> {
    vec![
        format!(
            "One connection for each variant, kept over all rounds, with windows that may grow to 256 MB. It flows for {ROUND_TRIPS} times there and back before it is measured. \
             The kernel forwards between two veths, each end received by one processor, and adds no delay: every stream is held against that."
        ),
        format!(
            "A frame of several packets has up to {} KiB of IP, as a kernel has it that is told nothing, and up to {} by the path nfqueue and where the kernel that forwards is told so: `larger`.",
            USUAL_FRAME >> 10,
            LARGEST_FRAME >> 10
        ),
        "Processor time is that of the whole machine meanwhile, sender and receiver among it: nothing else should run. In the mode precise the router keeps a core busy where a delay \
         is short, whatever goes through."
            .to_owned(),
    ]
}
