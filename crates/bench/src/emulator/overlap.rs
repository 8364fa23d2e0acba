//! `wan.overlap`: what communication leaves of the processor, at either end.
//!
//! After Figures 8.7 to 8.9 of the dissertation: how much of a message there and back is hidden behind a computation; how long it takes to fetch 1 KiB from a
//! process that computes; how much longer a computation takes while 40 senders send to its process.

mod senders;
mod summary;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use verbena_fabric::{Batch, Class, Done, Operation, Provider};
use verbena_wan::pin;
use verbena_wan::router::Mode;

use super::adapters::Adapters;
use super::far::{Beside, Pair, failed};
use super::line::{BODY_AT, FILLED, Line, is_pattern};
use super::node::text;
use super::paths::{Link, Path};
use super::ways::{Way, Ways};
use super::work::{Work, compute_for};
use crate::child::ON_CORE;
use crate::cores::{self, Stay};
use crate::error::BenchError;
use crate::report::{FabricFound, Findings};
use crate::rounds::{Budget, interleave};
use crate::run::Plan;
use crate::stats::RoundSummary;
use senders::Senders;

/// Bytes of a message that is hidden, and of what is fetched.
const MESSAGE: usize = FILLED;
/// How long is computed between sending and waiting, in microseconds.
const COMPUTING: [u64; 4] = [100, 500, 2_000, 10_000];
/// With which delays of the link, in microseconds.
const COMPUTING_DELAYS: [u64; 2] = [0, 1_000];
/// Where the delay varies.
const LONGEST: u64 = COMPUTING[COMPUTING.len() - 1];
const DELAYS: [u64; 4] = [0, 100, 1_000, 10_000];
/// How long the target computes before it looks, in microseconds.
const LOADS: [u64; 4] = [0, 1_000, 4_000, 16_000];
/// As in the paper, where the delay varies.
const LOAD: u64 = 16_000;
/// Bytes of what senders send.
const SENT: [usize; 3] = [1 << 10, 16 << 10, 64 << 10];
/// Where the delay varies: as in the paper, or the most of a write over `xdp`.
fn sent_far(way: Way) -> usize {
    if way == Way::OneSided(Provider::Xdp) { SENT[0] } else { SENT[1] }
}

const SENT_DELAYS: [u64; 3] = [0, 1_000, 10_000];
/// What a computation takes alone, as it is reported.
const ALONE: Duration = Duration::from_millis(10);
/// And how long it really is, at least and at most.
const COMPUTATION: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(40)];
/// Senders have so long to begin, beside what the link takes.
const BEGINNING: Duration = Duration::from_millis(4);

/// What is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// A message there and back, with `computing` microseconds of computing in between.
    Hidden { way: Way, computing: u64 },
    /// A read, or a request and its answer, of a process that computes for `load` microseconds before it looks.
    Fetched { way: Way, load: u64 },
    /// A computation, with senders of messages of a given length or without.
    Computed { senders: Option<(Way, usize)> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Turn {
    what: What,
    /// Of the link, one way, in microseconds.
    delay: u64,
}

impl Turn {
    fn name(&self) -> String {
        let what = match self.what {
            What::Hidden { way, computing } => format!("{} behind {computing} us of computing", way.name()),
            What::Fetched { way, load } => format!("fetching by {} from a load of {load} us", way.name()),
            What::Computed { senders: None } => "computing".to_owned(),
            What::Computed { senders: Some((way, bytes)) } => {
                format!("computing under senders of {bytes} bytes by {}", way.name())
            }
        };
        format!("{what}, {} us", self.delay)
    }
}

/// What a turn gave.
#[derive(Clone, Copy)]
struct Taken {
    found: RoundSummary,
    /// What senders got through meanwhile.
    mb_per_s: f64,
}

/// Two sites with a link between them.
struct Place {
    /// Whether the router has the core of the near end, and not that of the far one. `None` between adapters, which
    /// have no router.
    is_router_near: Option<bool>,
    ways: Ways,
    senders: Vec<(Way, Senders)>,
    path: Path,
}

/// Where a program of `xdp` receives, it sees all packets, so it has places of its own. There too a process is asked by
/// sockets.
const WITHOUT: [Way; 2] = [Way::OneSided(Provider::Tcp), Way::Sockets];
const WITH: [Way; 2] = [Way::OneSided(Provider::Xdp), Way::Sockets];

/// Measures the row.
pub(crate) fn measure(plan: Plan) -> Result<Findings, BenchError> {
    let cores = cores::two(plan.name, "one for either end")?;
    let _stay = Stay::on(cores[0]).map_err(|what| failed("choosing a core", what))?;
    let mut findings = Findings::default();
    let mut places = vec![];
    for is_router_near in [false, true] {
        for wanted in [&WITHOUT, &WITH] {
            let (place, found) = Place::open(wanted, is_router_near, cores, plan.seed)?;
            places.push(place);
            // The other two are alike.
            findings.fabrics.extend(found.into_iter().filter(|_| is_router_near));
        }
    }
    findings.fabrics.push(sockets());
    let (place, found) = Adapters::with(cores, |adapters| Place::of_adapters(adapters, cores[1]));
    places.extend(place);
    findings.fabrics.push(found);
    let steps_of_a_ms = steps_of_a_ms(&mut places)?;
    let mut turns = turns(&places);
    let mut budget = Budget::new(plan.measuring, (plan.rounds + 1) * turns.len() as u32);
    let rounds = interleave(
        plan.rounds,
        &mut turns,
        Turn::name,
        |turn| take(&mut places, *turn, steps_of_a_ms, budget.next()),
        plan.progress,
    )?;
    let executor = |way| places.iter().find_map(|place| place.ways.executor(way));
    summary::summarise(&turns, &rounds, &executor, &mut findings);
    Ok(findings)
}

fn sockets() -> FabricFound {
    let because = "TCP as a program has it: no delay for small messages, sockets that do not block".to_owned();
    FabricFound { name: Way::Sockets.name().to_owned(), measured: true, because, capabilities: None }
}

fn turns(places: &[Place]) -> Vec<Turn> {
    let mut turns = vec![];
    let mut each = |delay, what: &dyn Fn(Way) -> What| {
        let there = Way::ALL.map(|way| Turn { what: what(way), delay });
        turns.extend(there.into_iter().filter(|turn| places.iter().any(|place| place.has(turn.what))));
    };
    for delay in DELAYS {
        let all = if COMPUTING_DELAYS.contains(&delay) { &COMPUTING[..] } else { &[LONGEST] };
        all.iter().for_each(|computing| each(delay, &|way| What::Hidden { way, computing: *computing }));
    }
    for delay in DELAYS {
        let all = if delay == 0 { &LOADS[..] } else { &[LOAD] };
        all.iter().for_each(|load| each(delay, &|way| What::Fetched { way, load: *load }));
    }
    for delay in SENT_DELAYS {
        if delay > 0 {
            each(delay, &|way| What::Computed { senders: Some((way, sent_far(way))) });
            continue;
        }
        SENT.into_iter().for_each(|bytes| each(delay, &|way| What::Computed { senders: Some((way, bytes)) }));
    }
    turns.push(Turn { what: What::Computed { senders: None }, delay: 0 });
    turns
}

impl Place {
    /// Each end has a core, and the router one of the two: that of the end that it may disturb.
    fn open(
        wanted: &[Way],
        is_router_near: bool,
        [near_core, far_core]: [usize; 2],
        seed: u64,
    ) -> Result<(Self, Vec<FabricFound>), BenchError> {
        let stay = Stay::on(if is_router_near { near_core } else { far_core });
        let stay = stay.map_err(|what| failed("choosing a core", what))?;
        let mut link = Link::new(Mode::Sleep, false, seed)?;
        drop(stay);
        link.set(Duration::ZERO)?;
        let sites = link.sites()?;
        // As an adapter interrupts the core of its receiver.
        sites[1].network.enter(|| pin([sites[1].interface.to_owned()].into_iter(), far_core))?;
        let (mut ways, found) = Ways::open(wanted, sites, "link", &[ON_CORE, &far_core.to_string()])?;
        let mut senders = vec![];
        for way in wanted.iter().filter(|_| is_router_near) {
            match *way {
                Way::Sockets => senders.push((*way, Senders::by_connections(&mut ways.far, sites)?)),
                Way::OneSided(provider) => senders.extend(Senders::of_fabric(provider, &ways, sites[0])?),
            }
        }
        Ok((Place { is_router_near: Some(is_router_near), ways, senders, path: Path::Link(link) }, found))
    }

    /// Each end has a core.
    fn of_adapters(adapters: Adapters, far_core: usize) -> Result<(Self, FabricFound), BenchError> {
        // A process is asked by sockets too.
        let (ways, found) = Ways::by_adapters(&adapters, &[Way::Sockets], &[ON_CORE, &far_core.to_string()])?;
        let senders = Senders::of_fabric(Provider::Verbs, &ways, adapters.sites()[0])?.into_iter().collect();
        Ok((Place { is_router_near: None, ways, senders, path: Path::Adapters(adapters) }, found))
    }

    fn has(&self, what: What) -> bool {
        match what {
            What::Hidden { way, .. } => self.is_router_near != Some(true) && self.ways.has(way, MESSAGE),
            What::Fetched { way, .. } => self.is_router_near != Some(false) && self.ways.has(way, MESSAGE),
            What::Computed { senders: Some((way, bytes)) } => {
                self.is_router_near != Some(false) && self.ways.has(way, bytes)
            }
            What::Computed { senders: None } => self.is_router_near == Some(true),
        }
    }
}

/// How many steps of a computation at the far site take a millisecond there.
fn steps_of_a_ms(places: &mut [Place]) -> Result<u64, BenchError> {
    const TRIED: u64 = 1_000_000;
    let place = places.iter_mut().find(|place| place.is_router_near == Some(true));
    let place = place.expect("invariant: some places have their router there");
    let try_it = |beside: &mut Beside<'_>| (0..5).map(|_| beside.compute(TRIED)).collect::<Result<Vec<_>, _>>();
    let (tried, _) = place.ways.far.during(Work::Nothing, try_it)?;
    let quickest = tried.into_iter().min().unwrap_or(Duration::ZERO).as_secs_f64().max(1e-6);
    Ok((TRIED as f64 / quickest / 1e3) as u64)
}

fn take(places: &mut [Place], turn: Turn, steps_of_a_ms: u64, length: Duration) -> Result<Taken, BenchError> {
    let place = places.iter_mut().find(|place| place.has(turn.what));
    let place = place.expect("invariant: a turn is made of what a place has");
    let delay = Duration::from_micros(turn.delay);
    place.path.set(delay)?;
    match turn.what {
        What::Hidden { way, computing } => place.ways.answered(way, MESSAGE, |line| {
            let computing = Duration::from_micros(computing);
            repeat(length, || hidden(line, computing))
        }),
        What::Fetched { way, load } => place.ways.loaded(Duration::from_micros(load), MESSAGE, |connection, pairs| {
            let pair = pairs.iter().find(|(provider, _)| way == Way::OneSided(*provider)).map(|(_, pair)| pair);
            let taken = match pair {
                Some(pair) => repeat(length, || read(pair)),
                None => {
                    let mut line = Line::of_socket(connection, MESSAGE);
                    let asked = repeat(length, || Ok(line.there_and_back()?.as_nanos() as f64 / 1e3));
                    asked.and_then(|asked| line.finish().map(|()| asked))
                }
            };
            taken.map_err(|what| failed(&turn.name(), what))
        }),
        What::Computed { senders } => {
            let length = length.clamp(COMPUTATION[0], COMPUTATION[1]);
            let steps = steps_of_a_ms * length.as_millis() as u64;
            computed(place, senders, steps, BEGINNING + 2 * delay).map(|(took, mb_per_s)| {
                let in_ms = took.as_secs_f64() * 1e3 * ALONE.as_millis() as f64 / length.as_millis() as f64;
                Taken { found: RoundSummary::one(in_ms, 1), mb_per_s }
            })
        }
    }
}

/// At least once.
fn repeat(length: Duration, mut once: impl FnMut() -> Result<f64, String>) -> Result<Taken, String> {
    let began = Instant::now();
    let mut samples = vec![once()?];
    while began.elapsed() < length {
        samples.push(once()?);
    }
    let found = RoundSummary::of(&mut samples).ok_or("nothing was sampled")?;
    Ok(Taken { found, mb_per_s: 0.0 })
}

/// Which part of the whole was computing.
fn hidden(line: &mut Line<'_>, computing: Duration) -> Result<f64, String> {
    let began = Instant::now();
    line.send()?;
    let computed = compute_for(computing);
    line.wait()?;
    Ok(computed.as_secs_f64() / began.elapsed().as_secs_f64())
}

/// Microseconds of a read of what the far one's region has.
fn read(pair: &Pair) -> Result<f64, String> {
    let Pair { near, met, .. } = pair;
    let began = Instant::now();
    let into = near.fabric.pool().take(MESSAGE).map_err(text)?;
    let read = Batch::one(Operation::Read { at: BODY_AT, into });
    let mut completed = met.remote.post(read, Class::Control, near.deadline()).wait().map_err(text)?;
    let took = began.elapsed().as_nanos() as f64 / 1e3;
    match completed.pop() {
        Some(Done::Buffer(buffer)) => is_pattern(buffer.bytes()).map(|()| took),
        _ => Err("no buffer came back".to_owned()),
    }
}

/// How long the computation took, and how many megabytes a second senders sent meanwhile.
fn computed(
    place: &mut Place,
    senders: Option<(Way, usize)>,
    steps: u64,
    beginning: Duration,
) -> Result<(Duration, f64), BenchError> {
    let Place { ways, senders: all, .. } = place;
    let found = senders.and_then(|(way, bytes)| {
        let (_, senders) = all.iter().find(|(of, _)| *of == way)?;
        Some((senders, bytes))
    });
    let work = match found {
        Some((Senders::Connections(connections), _)) => {
            Work::Take { first: connections.first, count: connections.near.len() }
        }
        _ => Work::Nothing,
    };
    let stop = &AtomicBool::new(false);
    let (done, _) = ways.far.during(work, |beside| {
        std::thread::scope(|scope| {
            let sending = found.map(|(senders, bytes)| scope.spawn(move || senders.send(bytes, stop)));
            if sending.is_some() {
                std::thread::sleep(beginning);
            }
            let took = beside.compute(steps);
            stop.store(true, Ordering::Relaxed);
            let sent = sending.map(|sending| sending.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            let sent = sent.transpose().map_err(|what| failed("sending without rest", what))?;
            let mb_per_s = sent.map_or(0.0, |sent| sent.bytes as f64 / 1e6 / sent.took.as_secs_f64());
            Ok((took?, mb_per_s))
        })
    })?;
    Ok(done)
}
