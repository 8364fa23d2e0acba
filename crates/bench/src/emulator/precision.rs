//! `wan.precision`: how far the added one-way delay is from what was asked.
//!
//! One thread has a socket at either end, so that one clock times both, and looks without rest. What the same takes over a cable, at the same pace, is
//! taken off: whatever is done rarely finds its way less prepared.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use verbena_wan::probe::Probe;
use verbena_wan::router::Mode;

use super::handing::handed;
use super::paths::{Cable, Link};
use super::rattan::{self, Rattan};
use super::{panel, router};
use crate::error::BenchError;
use crate::report::{Axis, Claim, Findings, Line, Measurement, Panel, Point, Ratio};
use crate::rounds::{Budget, interleave};
use crate::run::Plan;
use crate::scale::number;
use crate::stats::{RoundSummary, Spread};

/// What is asked for, in microseconds. None is what the router itself takes.
const ASKED: [u64; 6] = [0, 10, 100, 1_000, 10_000, 100_000];
/// Of a burst.
const BURST_ASKED: u64 = 1_000;
/// Packets of a burst, and the time from one to the next: less than any path here has packets a second, and sent before the first comes.
const BURST: usize = 40;
const BURST_GAP: Duration = Duration::from_micros(20);
/// Bytes of a datagram; of one large frame, and of each of the packets that it stands for.
const SMALL: usize = 64;
const LARGE: usize = 40 * SEGMENT as usize;
const SEGMENT: u16 = 1_400;
/// The least from one packet to the next, and about how often there is one where the delay is longer.
const PAUSE: Duration = Duration::from_micros(300);
const OFTEN: Duration = Duration::from_millis(1);
/// So long packets are sent, at least.
const SHORTEST: Duration = Duration::from_millis(20);
/// Longer than asked no packet is waited for.
const PATIENCE: Duration = Duration::from_secs(1);
/// The wanted bounds, in microseconds: the median's error, the 99th percentile's, and the latter from `FAR`
/// microseconds of delay on.
const MEDIAN: f64 = 2.0;
const P99: f64 = 15.0;
const P99_FAR: f64 = 25.0;
const FAR: u64 = 10_000;

const ERROR: &str = "error of the added delay";
const ERROR_P99: &str = "error of the added delay, 99th percentile";
const HANDED: &str = "time from the thread that knows of it to the one that waits";
const OVER: &str = "delay of a burst's last packet over that of its first";

/// What crosses, and as what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Path {
    Small,
    Large,
    Single,
    /// A word of memory, and no packet.
    Word,
}

impl Path {
    const ALL: [Path; 3] = [Path::Small, Path::Large, Path::Single];

    fn name(self) -> &'static str {
        match self {
            Path::Small => "small datagrams",
            Path::Large => "large frames",
            Path::Single => "single packets",
            Path::Word => "a word",
        }
    }

    fn bytes(self) -> usize {
        if self == Path::Large { LARGE } else { SMALL }
    }

    /// What it is over a cable: there no rule is for single packets.
    fn over_a_cable(self) -> Path {
        if self == Path::Single { Path::Small } else { self }
    }
}

/// What packets cross.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum System {
    /// Two threads that look without rest: what the machine takes from them it takes from a router and a probe too.
    Threads,
    Cable,
    Router(Mode),
    /// The router with packets that stay in the kernel.
    Nfqueue(Mode),
    Rattan,
}

impl System {
    fn name(self) -> &'static str {
        match self {
            System::Threads => "two threads",
            System::Cable => "cable",
            System::Router(Mode::Precise) => "precise",
            System::Router(Mode::Sleep) => "sleep",
            System::Nfqueue(Mode::Precise) => "nfqueue",
            System::Nfqueue(Mode::Sleep) => "nfqueue, sleep",
            System::Rattan => rattan::NAME,
        }
    }

    /// Ours, in the mode that promises something.
    fn is_precise(self) -> bool {
        matches!(self, System::Router(Mode::Precise) | System::Nfqueue(Mode::Precise))
    }
}

const MODES: [Mode; 2] = [Mode::Precise, Mode::Sleep];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Turn {
    system: System,
    path: Path,
    asked: u64,
    is_burst: bool,
}

const THREADS: Turn = Turn { system: System::Threads, path: Path::Word, asked: 0, is_burst: false };

impl Turn {
    fn name(&self) -> String {
        let what = if self.is_burst { "bursts of " } else { "" };
        format!("{}, {what}{}, {} us", self.system.name(), self.path.name(), self.asked)
    }
}

/// All that packets can cross.
struct Stage {
    cable: Cable,
    /// Of our routers, and whether each packet comes by itself.
    links: Vec<((System, bool), Link)>,
    /// One for each delay.
    rattans: Vec<Rattan>,
    lost: u64,
    sent: u64,
}

/// Measures the row.
pub(crate) fn measure(plan: Plan) -> Result<Findings, BenchError> {
    let cable = Cable::new()?;
    let mut links = vec![];
    for mode in MODES {
        for single in [false, true] {
            links.push(((System::Router(mode), single), Link::new(mode, single, plan.seed)?));
        }
    }
    let (held, of_held) = Link::held(&MODES, plan.seed)?;
    let has_held = !held.is_empty();
    links.extend(MODES.into_iter().zip(held).map(|(mode, link)| ((System::Nfqueue(mode), false), link)));
    let (rattans, found) = rattan::all(&ASKED.map(Duration::from_micros))?;
    let mut turns = turns(has_held, found.measured);
    let mut stage = Stage { cable, links, rattans, lost: 0, sent: 0 };
    let mut budget = Budget::new(plan.measuring, (plan.rounds + 1) * turns.len() as u32);
    let rounds =
        interleave(plan.rounds, &mut turns, Turn::name, |turn| stage.take(*turn, budget.next()), plan.progress)?;
    let mut findings = Findings { fabrics: vec![router(), of_held, found], ..Findings::default() };
    summarise(&turns, &rounds, &mut findings);
    findings.notes = notes(stage.sent, stage.lost);
    Ok(findings)
}

fn turns(has_held: bool, has_rattan: bool) -> Vec<Turn> {
    let each = |system, path, asked| Turn { system, path, asked, is_burst: false };
    let mut turns = vec![THREADS];
    for asked in ASKED {
        turns.extend([Path::Small, Path::Large].map(|path| each(System::Cable, path, asked)));
        for mode in MODES {
            turns.extend(Path::ALL.map(|path| each(System::Router(mode), path, asked)));
        }
        for mode in MODES.into_iter().filter(|_| has_held) {
            turns.extend([Path::Small, Path::Large].map(|path| each(System::Nfqueue(mode), path, asked)));
        }
        turns.extend(has_rattan.then(|| each(System::Rattan, Path::Small, asked)));
    }
    let burst = |system, path| Turn { system, path, asked: BURST_ASKED, is_burst: true };
    turns.push(burst(System::Cable, Path::Small));
    for mode in MODES {
        turns.extend([Path::Small, Path::Single].map(|path| burst(System::Router(mode), path)));
    }
    turns.extend(has_held.then(|| burst(System::Nfqueue(Mode::Precise), Path::Small)));
    turns.extend(has_rattan.then(|| burst(System::Rattan, Path::Small)));
    turns
}

impl Stage {
    /// Microseconds: of each packet how long it took; of each burst how much longer its last one took than its first.
    fn take(&mut self, turn: Turn, length: Duration) -> Result<RoundSummary, BenchError> {
        let failed = |what: String| BenchError::Wrong {
            fabric: turn.system.name().to_owned(),
            doing: format!("sending {}", turn.name()),
            what,
        };
        if turn.system == System::Threads {
            let count = (length.max(SHORTEST).as_nanos() / PAUSE.as_nanos()) as u32;
            return RoundSummary::of(&mut handed(PAUSE, count)).ok_or_else(|| failed("nothing came".to_owned()));
        }
        let key = (turn.system, turn.path == Path::Single);
        let link = self.links.iter_mut().find(|(of, _)| *of == key);
        let mut link = link.map(|(_, link)| link);
        if let Some(link) = &mut link {
            link.set(Duration::from_micros(turn.asked))?;
        }
        let ends = match (&link, turn.system) {
            (Some(link), _) => link.ends()?,
            (None, System::Rattan) => {
                let number = ASKED.iter().position(|asked| *asked == turn.asked).unwrap_or(0);
                self.rattans[number].ends()
            }
            (None, _) => self.cable.ends(),
        };
        let opened = Probe::new(ends.near, ends.far, ends.address);
        let opened = match turn.path {
            Path::Large => opened.and_then(|probe| probe.in_large_frames(SEGMENT)),
            _ => opened,
        };
        let sent =
            opened.and_then(
                |mut probe| if turn.is_burst { bursts(&mut probe, length) } else { each(&mut probe, turn, length) },
            );
        let sent = sent.map_err(|error| failed(error.to_string()))?;
        if let Some(link) = &mut link {
            link.park()?;
        }
        self.sent += sent.len() as u64;
        let mut came: Vec<f64> = sent.iter().flatten().copied().collect();
        self.lost += (sent.len() - came.len()) as u64;
        RoundSummary::of(&mut came).ok_or_else(|| failed(format!("none of {} came in time", sent.len())))
    }
}

/// How long each took; `None` for one that did not come.
type Took = Vec<Option<f64>>;

fn each(probe: &mut Probe, turn: Turn, length: Duration) -> io::Result<Took> {
    let asked = Duration::from_micros(turn.asked);
    send(probe, turn.path.bytes(), gap(asked), length.saturating_sub(asked).max(SHORTEST), asked + PATIENCE)
}

/// From one packet to the next: what leaves does so midway between two that come, so that neither finds the other in its way.
fn gap(asked: Duration) -> Duration {
    let under_way = asked.as_nanos() / OFTEN.as_nanos();
    asked.div_f64(under_way as f64 + 0.5).max(PAUSE)
}

fn bursts(probe: &mut Probe, length: Duration) -> io::Result<Took> {
    let (asked, until) = (Duration::from_micros(BURST_ASKED), Instant::now() + length.max(SHORTEST));
    let mut over = vec![];
    while Instant::now() < until {
        let took = send(probe, SMALL, BURST_GAP, BURST_GAP * BURST as u32, asked + PATIENCE)?;
        let both = took.first().zip(took.last()).and_then(|(first, last)| Some((*first)? - (*last)?));
        over.push(both.map(|over| -over));
        std::thread::sleep(PAUSE);
    }
    Ok(over)
}

/// Sends for so long, and waits until all have come, but no longer than `patience`.
fn send(probe: &mut Probe, bytes: usize, gap: Duration, length: Duration, patience: Duration) -> io::Result<Took> {
    let until = Instant::now() + length;
    let (mut next, mut first, mut took) = (Instant::now(), None, vec![]);
    let mut waiting: VecDeque<(u64, Instant)> = VecDeque::new();
    loop {
        let now = Instant::now();
        if now >= next && now < until {
            let number = probe.send(bytes)?;
            first.get_or_insert(number);
            waiting.push_back((number, now));
            took.push(None);
            next = now + gap;
        }
        if let Some(found) = probe.receive()? {
            let came = Instant::now();
            // One that was given up before may come yet.
            if let Some(at) = waiting.iter().position(|(number, _)| *number == found)
                && let Some((number, sent)) = waiting.remove(at)
            {
                took[(number - first.unwrap_or(number)) as usize] = Some((came - sent).as_nanos() as f64 / 1e3);
            }
        }
        if now >= until && (waiting.is_empty() || now > until + patience) {
            return Ok(took);
        }
        std::hint::spin_loop();
    }
}

/// What rounds are, less what the same takes over a cable in the same round, and less what was asked.
fn errors(asked: u64, rounds: &[RoundSummary], cable: &[RoundSummary]) -> Vec<RoundSummary> {
    let less = |(round, cable): (&RoundSummary, &RoundSummary)| {
        let off = cable.median + asked as f64;
        RoundSummary {
            count: round.count,
            median: round.median - off,
            p99: round.p99 - off,
            min: round.min - off,
            max: round.max - off,
        }
    };
    rounds.iter().zip(cable).map(less).collect()
}

fn summarise(turns: &[Turn], rounds: &[Vec<RoundSummary>], findings: &mut Findings) {
    let of = |wanted: Turn| turns.iter().position(|turn| *turn == wanted).map_or(&[][..], |at| rounds[at].as_slice());
    let cable = |turn: Turn| of(Turn { system: System::Cable, path: turn.path.over_a_cable(), ..turn });
    let error_of = |turn: Turn| errors(turn.asked, of(turn), cable(turn));
    for (turn, rounds) in turns.iter().zip(rounds) {
        let labels = [("system", turn.system.name()), ("path", turn.path.name())];
        let mut say = |quantity, rounds| {
            findings.measurements.extend(Measurement::new(&labels, turn.asked as f64, quantity, "us", rounds));
        };
        if turn.is_burst {
            say(OVER, rounds.clone());
        } else if turn.system == System::Threads {
            say(HANDED, rounds.clone());
        } else if turn.system == System::Cable {
            say("time over the cable", rounds.clone());
        } else {
            let errors = error_of(*turn);
            say(ERROR_P99, errors.iter().map(|round| RoundSummary::one(round.p99, round.count)).collect());
            say(ERROR, errors);
        }
    }
    for turn in turns.iter().filter(|turn| turn.is_burst && turn.system.is_precise()) {
        findings.ratios.extend(burst_target(turn, of(*turn), cable(*turn)));
    }
    for turn in turns.iter().filter(|turn| !turn.is_burst && turn.asked > 0) {
        let errors = error_of(*turn);
        match turn.system {
            system if system.is_precise() => {
                let nothing_asked = error_of(Turn { asked: 0, ..*turn });
                let beside = [&nothing_asked, cable(*turn), of(THREADS)];
                findings.ratios.extend(targets(turn, &errors, beside));
            }
            System::Rattan => {
                let ours = error_of(Turn { system: System::Router(Mode::Precise), ..*turn });
                findings.ratios.extend(beside(turn, &errors, &ours));
            }
            _ => {}
        }
    }
    findings.panels = panels(&findings.measurements);
}

type Part = fn(&RoundSummary) -> f64;

const MEDIAN_OF: Part = |round| round.median;
const P99_OF: Part = |round| round.p99;

/// How far from what was asked, whichever way: at least what the clock tells apart.
fn far_off(errors: &[RoundSummary], part: Part) -> Vec<f64> {
    errors.iter().map(|round| part(round).abs().max(1e-3)).collect()
}

/// What was wanted of it, and whether it was met.
fn targets(turn: &Turn, errors: &[RoundSummary], [nothing_asked, cable, threads]: [&[RoundSummary]; 3]) -> Vec<Ratio> {
    let reason = format!(
        "median {} us, 99th percentile {} us; with no delay asked the router takes {} us more than the cable, of which {} us is the 99th percentile and {} us the median; from one thread to another, which both look without rest, it is {} us and {} us",
        median(errors, MEDIAN_OF),
        median(errors, P99_OF),
        median(nothing_asked, MEDIAN_OF),
        median(cable, P99_OF),
        median(cable, MEDIAN_OF),
        median(threads, P99_OF),
        median(threads, MEDIAN_OF),
    );
    let most = if turn.asked < FAR { P99 } else { P99_FAR };
    let held = [("median", MEDIAN_OF, MEDIAN), ("99th percentile", P99_OF, most)];
    let target = |(what, part, most)| target(format!("{ERROR}, {what}"), turn, errors, (part, most), reason.clone());
    held.into_iter().filter_map(target).collect()
}

/// The same of bursts: their first packet finds a way on which nothing was for a while, also over a cable.
fn burst_target(turn: &Turn, over: &[RoundSummary], cable: &[RoundSummary]) -> Option<Ratio> {
    let reason = format!("{} us, over a cable {} us", median(over, MEDIAN_OF), median(cable, MEDIAN_OF));
    target(format!("{OVER}, less that over a cable"), turn, &errors(0, over, cable), (MEDIAN_OF, MEDIAN), reason)
}

/// Such a part of the errors over the most that was wanted of it.
fn target(
    what: String,
    turn: &Turn,
    errors: &[RoundSummary],
    (part, most): (Part, f64),
    reason: String,
) -> Option<Ratio> {
    let spread = Spread::ratio(&far_off(errors, part), &vec![most; errors.len()])?;
    let claim = Claim::at_most(1.0, &format!("at most {most} us, our own"), &spread, reason);
    Some(Ratio { what: format!("{what}, over {most} us"), under: turn.name(), spread, claim: Some(claim) })
}

/// Over the rounds.
fn median(rounds: &[RoundSummary], part: Part) -> String {
    let parts: Vec<f64> = rounds.iter().map(part).collect();
    number(Spread::of(&parts).map_or(0.0, |spread| spread.median))
}

/// The other program's error divided by this router's.
fn beside(turn: &Turn, theirs: &[RoundSummary], ours: &[RoundSummary]) -> Vec<Ratio> {
    let ratio = |(what, part): (&str, Part)| {
        let spread = Spread::ratio(&far_off(theirs, part), &far_off(ours, part))?;
        let what = format!("{ERROR}, {what}, {} over precise", rattan::NAME);
        Some(Ratio { what, under: turn.name(), spread, claim: None })
    };
    [("median", MEDIAN_OF), ("99th percentile", P99_OF)].into_iter().filter_map(ratio).collect()
}

fn panels(measurements: &[Measurement]) -> Vec<Panel> {
    let mut panels = vec![];
    for mode in MODES {
        for (quantity, y) in [(ERROR, "median error, early or late (us)"), (ERROR_P99, "error, 99th percentile (us)")] {
            let others = [(System::Nfqueue(mode), Path::Small), (System::Rattan, Path::Small)];
            let lines = Path::ALL.map(|path| (System::Router(mode), path)).into_iter().chain(others);
            let line = |(style, (system, path)): (usize, (System, Path))| {
                let has = |one: &&Measurement| {
                    let labels = [("system", system.name()), ("path", path.name())];
                    let is_there =
                        |(name, value): &(&str, &str)| one.labels.iter().any(|(n, v)| n == name && v == value);
                    one.quantity == quantity && one.x > 0.0 && labels.iter().all(is_there)
                };
                let points: Vec<Point> = measurements.iter().filter(has).filter_map(how_far).collect();
                let name = if system == System::Router(mode) { path.name() } else { system.name() };
                Line { name: name.to_owned(), style, points }
            };
            let x = Axis { label: "asked (us)".to_owned(), logarithmic: true, bytes: false };
            let mut panel = panel(
                &format!("{}: {quantity}", System::Router(mode).name()),
                x,
                y,
                lines.enumerate().map(line).collect(),
            );
            // One round in which the machine was elsewhere would hide all others.
            panel.y.logarithmic = true;
            panels.push(panel);
        }
    }
    panels
}

/// How far off each round was, early or late.
fn how_far(errors: &Measurement) -> Option<Point> {
    Some(Point { x: errors.x, y: Spread::of(&far_off(&errors.rounds, MEDIAN_OF))? })
}

fn notes(sent: u64, lost: u64) -> Vec<String> {
    vec![
        format!(
            "One thread holds a socket in each of two networks and times one way by one clock, from the call that sends to the one that has it; what the same takes over \
             a cable (a veth between two networks) at the same pace, by the median of the same round, is taken off. Of {sent} packets {lost} did not come within {PATIENCE:?} more than asked."
        ),
        "Precise needs a core for the router and one for the probe that nobody else uses: a machine that is busy, or a virtual one that has to wait for a core, shows in the \
         99th percentile first. Look at that of the two threads, which hand on a word every 0.3 ms and look without rest: what they wait, a router and a probe wait too."
            .to_owned(),
    ]
}
