//! `memory.ipc`: what it takes to ask the helper of a node, and to hear its answer.
//!
//! After Figure 3(a): 8 bytes there and 8 bytes back, by the number of threads that ask, in each mode. The helper is a process of its own and does
//! nothing but answer. Beside it stands what two threads need to hand one cache line to each other and back: nothing that goes
//! through memory can be faster.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use verbena_ipc::{Connection, Error, Event, Mode, Options, Server, Waker};
use verbena_terms::{BootClock, Clock, Time};

use crate::child::{Answer, Target, hear, say};
use crate::cores;
use crate::error::BenchError;
use crate::machine;
use crate::report::{Axis, Claim, Findings, Line, Measurement, Panel, Ratio};
use crate::rounds::{Budget, interleave};
use crate::run::Plan;
use crate::scale::number;
use crate::stats::{RoundSummary, Spread};

/// What a target is called that plays the helper.
pub(crate) const ROLE: &str = "ipc-helper";

const SOCKET: &str = "node.sock";
/// As in the paper's figure.
const THREADS: [usize; 10] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];
/// A stretch is at least so long.
const SHORTEST: Duration = Duration::from_millis(20);
/// How long all threads of a turn may take to connect.
const CONNECTING: Duration = Duration::from_secs(30);
/// Calls between two looks at the clock, so that the looks cost nothing.
const BETWEEN_LOOKS: u64 = 64;
/// What is wanted: a polled round trip over a bare one, and `adaptive` over the best of the papers' modes.
const OVER_BARE: f64 = 1.8;
const OVER_BEST: f64 = 1.3;

/// A way to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Bare,
    /// As [`Way::Bare`], what two rings cost with nothing around them.
    Lines,
    Asked {
        mode: Mode,
        /// Whether the helper has a core of its own.
        dedicated: bool,
    },
}

impl Way {
    /// In the order of the figure.
    const ASKED: [Way; 4] = [Way::of(Mode::Mq), Way::of(Mode::Rmq), Way::of(Mode::Rcq), Way::of(Mode::Adaptive)];
    const DEDICATED: Way = Way::Asked { mode: Mode::Rcq, dedicated: true };
    const PAPERS: [Mode; 3] = [Mode::Mq, Mode::Rmq, Mode::Rcq];

    const fn of(mode: Mode) -> Way {
        Way::Asked { mode, dedicated: false }
    }

    fn name(self) -> String {
        match self {
            Way::Bare => "a bare cache line".to_owned(),
            Way::Lines => "a line of a ring each way".to_owned(),
            Way::Asked { mode, dedicated: false } => mode.to_string(),
            Way::Asked { mode, dedicated: true } => format!("{mode}, helper on a core of its own"),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Turn {
    way: Way,
    threads: usize,
}

struct Outcome {
    turn: Turn,
    rounds: Vec<Asked>,
}

/// What one round gave.
#[derive(Clone, Copy, Debug)]
struct Asked {
    /// The time of all threads, by the round trips that were completed in it.
    mean_us: f64,
    count: u64,
    /// Threads that got no answer at all.
    starved_percent: f64,
}

/// An order to the process of the helper.
#[derive(Debug, Serialize, Deserialize)]
enum Order {
    Start { directory: PathBuf, progress_core: Option<usize> },
    Stop,
}

/// Measures the row.
pub(crate) fn measure(plan: Plan) -> Result<Findings, BenchError> {
    let [own, _] = cores::two(plan.name, "one for the helper and one for who asks it")?;
    let directory = tempfile::tempdir().map_err(|error| BenchError::io(&std::env::temp_dir(), error))?;
    raise_open_files().map_err(|reason| failed("open files for 512 clients", reason))?;
    let mut helper = Target::start(&[ROLE])?;
    let asked = THREADS.into_iter().flat_map(|threads| Way::ASKED.map(|way| Turn { way, threads }));
    let alone = [Way::Bare, Way::Lines, Way::DEDICATED].map(|way| Turn { way, threads: 1 });
    let mut turns: Vec<Turn> = alone.into_iter().chain(asked).collect();
    let mut budget = Budget::new(plan.measuring, (plan.rounds + 1) * turns.len() as u32);
    let rounds = interleave(
        plan.rounds,
        &mut turns,
        |turn| format!("{}, {} threads", turn.way.name(), turn.threads),
        |turn| {
            let length = budget.next().max(SHORTEST);
            let (mode, dedicated) = match turn.way {
                Way::Bare => return Ok(hand_over(length)),
                Way::Lines => return Ok(hand_lines_over(length)),
                Way::Asked { mode, dedicated } => (mode, dedicated),
            };
            let (directory, progress_core) = (directory.path().to_owned(), dedicated.then_some(own));
            let socket = directory.join(SOCKET);
            let () = helper.ask(&Order::Start { directory, progress_core }, "serve")?;
            let asked = ask(mode, turn.threads, length, &socket);
            let () = helper.ask(&Order::Stop, "end serving")?;
            asked.map_err(|reason| failed("be asked", reason))
        },
        plan.progress,
    )?;
    let outcomes: Vec<Outcome> = turns.into_iter().zip(rounds).map(|(turn, rounds)| Outcome { turn, rounds }).collect();

    let mut findings = Findings::default();
    findings.measurements.extend(outcomes.iter().filter_map(Outcome::mean));
    findings.measurements.extend(outcomes.iter().filter_map(Outcome::starved));
    findings.ratios = ratios(&outcomes);
    findings.panels = panels(&outcomes);
    findings.notes = notes();
    Ok(findings)
}

fn failed(doing: &str, reason: String) -> BenchError {
    BenchError::Target { doing: doing.to_owned(), reason }
}

/// Two for each client, here and at the helper.
pub(super) fn raise_open_files() -> Result<(), String> {
    machine::raise_open_files(2 * THREADS[THREADS.len() - 1] as u64 + 256)
}

/// Plays the helper.
pub(crate) fn serve() -> Result<(), String> {
    raise_open_files()?;
    let mut serving: Option<Serving> = None;
    while let Some(order) = hear::<Order>()? {
        match order {
            Order::Start { directory, progress_core } => serving = Some(Serving::start(directory, progress_core)?),
            Order::Stop => drop(serving.take()),
        }
        say(&Answer::Done(()))?;
    }
    Ok(())
}

/// A helper that gives back what it gets. Ended when dropped.
struct Serving {
    stop: Arc<AtomicBool>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

impl Serving {
    fn start(directory: PathBuf, progress_core: Option<usize>) -> Result<Self, String> {
        let options = Options { progress_core, ..Options::default() };
        let mut server = Server::bind(&directory, SOCKET, options).map_err(|error| error.to_string())?;
        let (stop, waker) = (Arc::new(AtomicBool::new(false)), server.waker());
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut answer = |event: Event<'_>| {
                if let Event::Request(request) = event {
                    let bytes = request.bytes();
                    // As long as the request, so it is never too long.
                    let _ = request.answer(bytes);
                }
            };
            while !stopped.load(Ordering::Relaxed) {
                if server.poll(Duration::from_millis(100), &mut answer).is_err() {
                    return;
                }
            }
        });
        Ok(Serving { stop, waker, thread: Some(thread) })
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.waker.wake();
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Has `threads` threads ask, each again when it has its answer.
fn ask(mode: Mode, threads: usize, length: Duration, socket: &Path) -> Result<Asked, String> {
    // All begin and end together: one that waits for its turn of a core waits within the time that is measured.
    let (begin, until) = (Barrier::new(threads + 1), AtomicU64::new(0));
    let deadline = BootClock.now() + CONNECTING;
    // One after the other, and by one thread: all at once they would mostly wait for each other.
    let connect = |_| Connection::connect_in(mode, socket, deadline).map_err(|error| error.to_string());
    let connections: Vec<Connection> = (0..threads).map(connect).collect::<Result<_, _>>()?;
    let counted: Result<Vec<u64>, String> = std::thread::scope(|scope| {
        let (begin, until) = (&begin, &until);
        let ask = |mut connection: Connection| {
            scope.spawn(move || {
                begin.wait();
                let until = Time::from_nanos(until.load(Ordering::Acquire));
                let mut count = 0u64;
                while !count.is_multiple_of(BETWEEN_LOOKS) || BootClock.now() < until {
                    let request = count.to_ne_bytes();
                    match connection.call(&request, until) {
                        Ok(answer) if answer == request => count += 1,
                        Ok(answer) => return Err(format!("{answer:?} is no answer to {request:?}")),
                        Err(Error::Deadline { .. } | Error::Full) => break,
                        Err(error) => return Err(error.to_string()),
                    }
                }
                Ok(count)
            })
        };
        let asking: Vec<_> = connections.into_iter().map(ask).collect();
        until.store((BootClock.now() + length).nanos(), Ordering::Release);
        begin.wait();
        let joined = asking.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err("it panicked".to_owned())));
        joined.collect()
    });
    let counted = counted?;
    let count: u64 = counted.iter().sum();
    let starved = counted.iter().filter(|count| **count == 0).count();
    Ok(Asked {
        mean_us: length.as_secs_f64() * 1e6 * threads as f64 / count.max(1) as f64,
        count,
        starved_percent: 100.0 * starved as f64 / threads as f64,
    })
}

/// How long it takes two threads to hand a cache line to each other and back.
fn hand_over(length: Duration) -> Asked {
    #[repr(align(128))]
    struct Alone(AtomicU64);
    let line = Alone(AtomicU64::new(0));
    let wait = |seen: u64| {
        loop {
            match line.0.load(Ordering::Acquire) {
                END => return false,
                found if found == seen => return true,
                _ => std::hint::spin_loop(),
            }
        }
    };
    let other = || {
        for mine in (1u64..).step_by(2) {
            if !wait(mine) {
                return;
            }
            line.0.store(mine + 1, Ordering::Release);
        }
    };
    let hand = |count| {
        line.0.store(2 * count + 1, Ordering::Release);
        wait(2 * count + 2);
    };
    in_turn(length, other, hand, || line.0.store(END, Ordering::Release))
}

/// How long it takes two threads to hand each other a message of two rings as a program and its helper have, one line and four words of it each way (crates/ipc/src/layout.rs), with
/// nothing around it.
fn hand_lines_over(length: Duration) -> Asked {
    /// Of the 64 KiB that a ring has by default.
    const LINES: u64 = 1024;
    #[repr(align(64))]
    #[derive(Default)]
    struct Line([AtomicU64; 4]);
    let ring = || (0..LINES).map(|_| Line::default()).collect::<Vec<Line>>();
    let [there, back] = [ring(), ring()];
    let put = |ring: &[Line], number: u64, first: u64, words: [u64; 3]| {
        let Line(line) = &ring[(number % LINES) as usize];
        line[1..].iter().zip(words).for_each(|(at, word)| at.store(word, Ordering::Relaxed));
        line[0].store(first, Ordering::Release);
    };
    let take = |ring: &[Line], number: u64| {
        let Line(line) = &ring[(number % LINES) as usize];
        loop {
            match line[0].load(Ordering::Acquire) {
                END => return None,
                found if found == number + 1 => return Some([1, 2, 3].map(|at| line[at].load(Ordering::Relaxed))),
                _ => std::hint::spin_loop(),
            }
        }
    };
    let other = || {
        for number in 0.. {
            let Some(words) = take(&there, number) else { return };
            put(&back, number, number + 1, words);
        }
    };
    let hand = |number| {
        put(&there, number, number + 1, [8, number, number]);
        take(&back, number);
    };
    in_turn(length, other, hand, || there.iter().for_each(|line| line.0[0].store(END, Ordering::Release)))
}

/// What ends the thread that is handed something.
const END: u64 = u64::MAX;

/// Hands something to a thread that runs `other`, and waits until that is back, again and again. At the end it calls
/// `stop`.
fn in_turn(length: Duration, other: impl FnOnce() + Send, hand: impl Fn(u64), stop: impl FnOnce()) -> Asked {
    std::thread::scope(|scope| {
        scope.spawn(other);
        let began = Instant::now();
        let mut count = 0;
        while began.elapsed() < length {
            for _ in 0..BETWEEN_LOOKS {
                hand(count);
                count += 1;
            }
        }
        let took = began.elapsed();
        stop();
        Asked { mean_us: took.as_secs_f64() * 1e6 / count as f64, count, starved_percent: 0.0 }
    })
}

impl Outcome {
    fn of(&self, quantity: &str, unit: &str, value: fn(&Asked) -> f64) -> Option<Measurement> {
        let rounds = self.rounds.iter().map(|round| RoundSummary::one(value(round), round.count)).collect();
        let name = self.turn.way.name();
        Measurement::new(&[("mode", &name)], self.turn.threads as f64, quantity, unit, rounds)
    }

    fn mean(&self) -> Option<Measurement> {
        self.of("mean round trip", "us", |round| round.mean_us)
    }

    fn starved(&self) -> Option<Measurement> {
        self.of("threads without an answer", "%", |round| round.starved_percent)
    }

    fn means(&self) -> Vec<f64> {
        self.rounds.iter().map(|round| round.mean_us).collect()
    }

    fn median(&self) -> f64 {
        Spread::of(&self.means()).map_or(f64::INFINITY, |spread| spread.median)
    }
}

fn find(outcomes: &[Outcome], way: Way, threads: usize) -> &Outcome {
    let found = outcomes.iter().find(|one| one.turn.way == way && one.turn.threads == threads);
    found.expect("invariant: each of these has a turn")
}

fn ratios(outcomes: &[Outcome]) -> Vec<Ratio> {
    let mut ratios = Vec::new();
    let mut add =
        |what: String, under: &str, above: &Outcome, below: &Outcome, claim: &dyn Fn(&Spread) -> Option<Claim>| {
            if let Some(spread) = Spread::ratio(&above.means(), &below.means()) {
                ratios.push(Ratio { what, under: under.to_owned(), claim: claim(&spread), spread });
            }
        };
    let (bare, one) = (find(outcomes, Way::Bare, 1), "1 thread");
    for way in [Way::of(Mode::Rcq), Way::DEDICATED] {
        let rcq = find(outcomes, way, 1);
        let reason = format!(
            "a bare round trip took {} us, one line of a ring each way with nothing around it {}, and one through the rings {}: what both sides do beside \
             looking weighs the more the nearer the two cores are",
            number(bare.median()),
            number(find(outcomes, Way::Lines, 1).median()),
            number(rcq.median())
        );
        let text = format!("at most {OVER_BARE}");
        add(format!("round trip, {} over a bare cache line", way.name()), one, rcq, bare, &|spread| {
            Some(Claim::at_most(OVER_BARE, &text, spread, reason.clone()))
        });
    }
    let lines = find(outcomes, Way::Lines, 1);
    add(format!("round trip, {} over a bare cache line", Way::Lines.name()), one, lines, bare, &|_| None);
    add(
        "round trip, rcq over a line of a ring each way".to_owned(),
        one,
        find(outcomes, Way::of(Mode::Rcq), 1),
        lines,
        &|_| None,
    );
    for mode in [Mode::Mq, Mode::Rmq] {
        let (slow, rcq) = (find(outcomes, Way::of(mode), 1), find(outcomes, Way::of(Mode::Rcq), 1));
        add(format!("round trip, {mode} over rcq"), one, slow, rcq, &|_| None);
    }
    for threads in THREADS {
        let adaptive = find(outcomes, Way::of(Mode::Adaptive), threads);
        let papers = Way::PAPERS.map(|mode| find(outcomes, Way::of(mode), threads));
        let best = papers.into_iter().min_by(|one, other| one.median().total_cmp(&other.median()));
        let best = best.expect("invariant: the papers have three");
        let reason = format!("{} us against {} us", number(adaptive.median()), number(best.median()));
        let text = format!("at most {OVER_BEST}");
        let under = format!("{threads} threads, {}", best.turn.way.name());
        add("round trip, adaptive over the best of mq, rmq and rcq".to_owned(), &under, adaptive, best, &|spread| {
            Some(Claim::at_most(OVER_BEST, &text, spread, reason.clone()))
        });
    }
    for threads in [16, 512] {
        let [_, rmq, rcq] = Way::PAPERS.map(|mode| find(outcomes, Way::of(mode), threads));
        let reason = format!("{} us against {} us", number(rcq.median()), number(rmq.median()));
        add("round trip, rcq over rmq".to_owned(), &format!("{threads} threads"), rcq, rmq, &|spread| {
            let text = "at least 1: rcq collapses past the cores, rmq does not";
            Some(Claim::at_least(1.0, text, spread, reason.clone()))
        });
    }
    ratios
}

fn panels(outcomes: &[Outcome]) -> Vec<Panel> {
    let axis = |label: &str, logarithmic| Axis { label: label.to_owned(), logarithmic, bytes: false };
    let panel = |title: &str, y, of: fn(&Outcome) -> Option<Measurement>| {
        let line = |(style, way): (usize, Way)| {
            let points = outcomes.iter().filter(|one| one.turn.way == way).filter_map(|one| Some(of(one)?.point()));
            Line { name: way.name(), style, points: points.collect() }
        };
        let series = Way::ASKED.into_iter().enumerate().map(line).collect();
        Panel { title: title.to_owned(), x: axis("threads that ask", true), y, series }
    };
    let us = axis("mean round trip (microseconds)", true);
    let starved = axis("threads without an answer (%)", false);
    vec![
        panel("Asking the helper, 8 bytes each way", us, Outcome::mean),
        panel("Who waits in vain", starved, Outcome::starved),
    ]
}

fn notes() -> Vec<String> {
    [
        "A round trip is the mean of the closed system: threads times time, by the calls that were answered in it. A median over calls would not see \
         those that wait for a core. Threads that got no answer at all are counted beside it: where they are many, the others had long turns of a core.",
        "The helper is a process of its own; where it has no core of its own it polls while that pays and sleeps otherwise, in every mode.",
        "mq and rmq go through System V message queues; a helper that sleeps is woken through a descriptor, a client that sleeps by the queue.",
    ]
    .map(str::to_owned)
    .to_vec()
}
