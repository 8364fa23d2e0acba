//! A node of these experiments, a process: stations, which carry out one order at a time.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use verbena_cluster::View;
use verbena_fabric::RegionKey;
use verbena_lock::service::Attention;
use verbena_lock::{Mode, Name};
use verbena_terms::{BootClock, Clock, Incarnation, Time};

use super::counted::Counts;
use super::station::{Asked, Held, Station, Way};
use crate::child::{Answer, hear, say};
use crate::primitives::fabrics::Place;
use crate::stats::RoundSummary;
use crate::web::KeyTrace;

/// What a node is asked for by.
pub(crate) const ROLE: &str = "lock-node";

/// From one sample to the next, so that what one leaves to be done is over when the next begins, and no thread is awake
/// by chance.
pub(super) const PAUSE: Duration = Duration::from_micros(100);
/// Samples that a stretch has at least.
const FEWEST: usize = 3;
/// Locks that are taken before any is timed: the first time in a view a node asks the home where its words are.
const WARMING: usize = 2;

/// An order to a station.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// Be in this view. The key is of a home's words for batches without a service. Answer: nothing.
    Meet { view: View, words: RegionKey },
    /// Take a lock that no other client wants, and release it, again and again. Answer: [`Timed`].
    Alone { exclusive: bool, length: Duration },
    /// The same by batches, without a service. Answer: [`Timed`], where a release is not timed.
    Raw { length: Duration },
    /// Take a lock shared that another program of this node holds so already: nothing leaves the node. Answer: [`Timed`].
    Joined { length: Duration },
    /// Take and release `times` free locks, and count. Answer: [`Counted`].
    Count { times: u32 },
    /// Count from now on, or no more. Answer: nothing.
    Counting(bool),
    /// Answer: [`Counts`].
    Counts,
    /// Ask for this lock, and hold it for `hold` after [`Order::Wait`]. Answer: nothing.
    Ask { name: u64, exclusive: bool, hold: Duration },
    /// Wait for what was asked for, hold it, release it. Answer: [`Time`] of the grant.
    Wait,
    /// Wait for what was asked for. Answer: nothing.
    Take,
    /// Release what was taken. Answer: [`Time`] before.
    Release,
    /// Read every `of`-th of the first requests of a trace, from `nth` on. Answer: how many locks they are for.
    Load { trace: PathBuf, first: usize, nth: usize, of: usize },
    /// Take each lock of the trace once, so that all their words are known. Answer: nothing.
    Learn,
    /// From `start` on take and release locks: those of the trace, or this one. Answer: [`Worked`].
    Work { name: Option<u64>, exclusive: bool, hold: Duration, start: Time, length: Duration },
}

/// Microseconds, of a stretch.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Timed {
    pub(super) lock: RoundSummary,
    pub(super) unlock: Option<RoundSummary>,
}

/// What taking and releasing cost.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Counted {
    pub(super) times: u64,
    pub(super) lock: Counts,
    pub(super) unlock: Counts,
}

/// What a client came to.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Worked {
    /// Times that it had a lock.
    pub(crate) taken: u64,
    /// Seconds from the start to its last release.
    pub(crate) took_s: f64,
    /// Microseconds that it waited, all in all.
    pub(crate) waited_us: f64,
    /// Microseconds of its longest wait.
    pub(crate) longest_us: f64,
    /// The median.
    pub(crate) median_us: f64,
}

impl Worked {
    /// Calls `once`, which gives how long it waited, from `start` on for `length`.
    pub(crate) fn work(
        start: Time,
        length: Duration,
        mut once: impl FnMut() -> Result<Duration, String>,
    ) -> Result<Self, String> {
        std::thread::sleep(start.since(BootClock.now()));
        let began = Instant::now();
        let mut waits = Vec::new();
        while waits.is_empty() || began.elapsed() < length {
            waits.push(once()?.as_secs_f64() * 1e6);
        }
        let took_s = began.elapsed().as_secs_f64();
        let waited_us = waits.iter().sum();
        let summary = RoundSummary::of(&mut waits).ok_or("no lock was taken")?;
        let (longest_us, median_us) = (summary.max, summary.median);
        Ok(Worked { taken: summary.count, took_s, waited_us, longest_us, median_us })
    }
}

/// Lets `hold` pass. Short ones do not sleep, because that would take longer.
pub(crate) fn hold_for(hold: Duration) {
    const SHORT: Duration = Duration::from_micros(200);
    if hold >= SHORT {
        std::thread::sleep(hold);
    } else {
        let began = Instant::now();
        while began.elapsed() < hold {
            std::hint::spin_loop();
        }
    }
}

/// Plays a node of this rank at the place of this name, with a station for each way.
pub(crate) fn serve(place: &str, rank: &str, ways: &[String]) -> Result<(), String> {
    // Whatever becomes of the starter, nothing of it stays. A system that cannot do this leaves the ending to the starter.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let place = Place::named(place).ok_or("no fabric of this name is in this build")?;
    let rank: u32 = rank.parse().map_err(|_| format!("{rank} is no rank"))?;
    let way = |word: &String| word.parse().ok().and_then(Way::numbered).ok_or(format!("{word} is no way"));
    let ways: Vec<Way> = ways.iter().map(way).collect::<Result<_, _>>()?;
    let open = |way: &Way| Station::open(place, Incarnation::new(rank, 1), *way);
    let mut stations: Vec<Station> = ways.iter().map(open).collect::<Result<_, _>>()?;
    say(&Answer::Done(stations.iter().map(Station::met).collect::<Vec<_>>()))?;
    let mut node = Node::default();
    while let Some((at, order)) = hear::<(usize, Order)>()? {
        let (way, station) = ways.get(at).copied().zip(stations.get_mut(at)).ok_or("an order to no station")?;
        node.obey(station, way, order)?;
    }
    Ok(())
}

#[derive(Default)]
struct Node {
    /// What was asked for, and for how long it is to be held.
    asked: Option<(Asked, Duration)>,
    held: Option<Held>,
    /// The locks of a trace, in its order.
    trace: Vec<u32>,
    next: usize,
    token: u64,
}

fn told<T: Serialize>(result: Result<T, String>) -> Result<(), String> {
    say(&match result {
        Ok(done) => Answer::Done(done),
        Err(reason) => Answer::Failed(reason),
    })
}

fn mode(exclusive: bool) -> Mode {
    if exclusive { Mode::Exclusive } else { Mode::Shared }
}

fn named(number: u64) -> Name {
    Name::new(format!("lock {number}").as_bytes()).expect("invariant: this is a name")
}

impl Node {
    fn obey(&mut self, station: &mut Station, way: Way, order: Order) -> Result<(), String> {
        match order {
            Order::Meet { view, words } => told(station.meet(view, &words)),
            Order::Alone { exclusive, length } => told(alone(station, mode(exclusive), length)),
            Order::Raw { length } => told(self.raw(station, way, length)),
            Order::Joined { length } => told(joined(station, length)),
            Order::Count { times } => told(count(station, times)),
            Order::Counting(on) => {
                station.count(on);
                told(Ok(()))
            }
            Order::Counts => told(Ok(station.counts())),
            Order::Ask { name, exclusive, hold } => {
                let asked = station.ask(&named(name), mode(exclusive));
                told(asked.map(|asked| self.asked = Some((asked, hold))))
            }
            Order::Wait => told(self.wait(station)),
            Order::Take => told(self.take(station)),
            Order::Release => told(self.release(station)),
            Order::Load { trace, first, nth, of } => told(self.load(&trace, first, nth, of)),
            Order::Learn => told(self.learn(station)),
            Order::Work { name, exclusive, hold, start, length } => {
                told(self.work(station, name, mode(exclusive), hold, start, length))
            }
        }
    }

    fn raw(&mut self, station: &Station, way: Way, length: Duration) -> Result<Timed, String> {
        let lock = samples(length, || {
            self.token += 2;
            station.raw(way.attention != Attention::Woken, self.token)
        })?;
        Ok(Timed { lock, unlock: None })
    }

    fn wait(&mut self, station: &mut Station) -> Result<Time, String> {
        let (asked, hold) = self.asked.take().ok_or("nothing was asked for")?;
        let held = station.granted(asked)?;
        hold_for(hold);
        station.release(held)?;
        Ok(held.granted)
    }

    fn take(&mut self, station: &mut Station) -> Result<(), String> {
        let (asked, _) = self.asked.take().ok_or("nothing was asked for")?;
        self.held = Some(station.granted(asked)?);
        Ok(())
    }

    fn release(&mut self, station: &mut Station) -> Result<Time, String> {
        let held = self.held.take().ok_or("nothing is held")?;
        let before = BootClock.now();
        station.release(held)?;
        Ok(before)
    }

    fn load(&mut self, trace: &std::path::Path, first: usize, nth: usize, of: usize) -> Result<usize, String> {
        let read = KeyTrace::read(trace, first).map_err(|error| error.to_string())?;
        self.trace = read.order.into_iter().skip(nth).step_by(of.max(1)).collect();
        self.next = 0;
        if self.trace.is_empty() { Err("no request is this node's".to_owned()) } else { Ok(read.bytes.len()) }
    }

    fn learn(&mut self, station: &mut Station) -> Result<(), String> {
        let keys: BTreeSet<u32> = self.trace.iter().copied().collect();
        keys.into_iter().try_for_each(|key| {
            let held = station.acquire(&named(key.into()), Mode::Shared)?;
            station.release(held)
        })
    }

    fn work(
        &mut self,
        station: &mut Station,
        name: Option<u64>,
        mode: Mode,
        hold: Duration,
        start: Time,
        length: Duration,
    ) -> Result<Worked, String> {
        let one = name.map(named);
        Worked::work(start, length, || {
            let lock = match &one {
                Some(name) => name.clone(),
                None => {
                    self.next += 1;
                    named(self.trace[(self.next - 1) % self.trace.len()].into())
                }
            };
            let asked = Instant::now();
            let held = station.acquire(&lock, mode)?;
            let waited = asked.elapsed();
            hold_for(hold);
            station.release(held)?;
            Ok(waited)
        })
    }
}

/// Microseconds that `once` says it took, again and again with pauses for about `length`.
pub(crate) fn samples(
    length: Duration,
    mut once: impl FnMut() -> Result<Duration, String>,
) -> Result<RoundSummary, String> {
    let mut us = Vec::new();
    let began = Instant::now();
    while us.len() < FEWEST || began.elapsed() < length {
        us.push(once()?.as_secs_f64() * 1e6);
        std::thread::sleep(PAUSE);
    }
    RoundSummary::of(&mut us).ok_or_else(|| "no samples".to_owned())
}

fn alone(station: &mut Station, mode: Mode, length: Duration) -> Result<Timed, String> {
    let name = named(0);
    for _ in 0..WARMING {
        let held = station.acquire(&name, mode)?;
        station.release(held)?;
    }
    lock_and_unlock(station, &name, mode, length)
}

fn joined(station: &mut Station, length: Duration) -> Result<Timed, String> {
    let name = named(1);
    let first = station.acquire(&name, Mode::Shared)?;
    let timed = lock_and_unlock(station, &name, Mode::Shared, length);
    station.release(first)?;
    timed
}

fn lock_and_unlock(station: &mut Station, name: &Name, mode: Mode, length: Duration) -> Result<Timed, String> {
    let mut unlocks = Vec::new();
    let lock = samples(length, || {
        let asked = Instant::now();
        let held = station.acquire(name, mode)?;
        let waited = asked.elapsed();
        std::thread::sleep(PAUSE);
        let before = Instant::now();
        station.release(held)?;
        unlocks.push(before.elapsed().as_secs_f64() * 1e6);
        Ok(waited)
    })?;
    Ok(Timed { lock, unlock: RoundSummary::of(&mut unlocks) })
}

fn count(station: &mut Station, times: u32) -> Result<Counted, String> {
    let name = named(0);
    let held = station.acquire(&name, Mode::Exclusive)?;
    station.release(held)?;
    // What is said later of what was before is not to be among it.
    std::thread::sleep(SETTLING);
    station.count(true);
    let (mut lock, mut unlock) = (Vec::new(), Vec::new());
    for _ in 0..times {
        let before = station.counts();
        let held = station.acquire(&name, Mode::Exclusive)?;
        let between = station.counts();
        station.release(held)?;
        std::thread::sleep(PAUSE);
        lock.push(between - before);
        unlock.push(station.counts() - between);
    }
    station.count(false);
    Ok(Counted { times: times.into(), lock: lock.into_iter().sum(), unlock: unlock.into_iter().sum() })
}

/// After this long everything is acknowledged that was said (after 5 ms at the latest, if nothing is said anyway).
pub(super) const SETTLING: Duration = Duration::from_millis(12);
