//! `locks.cascade`: one node releases a lock that others wait for; how long until the last of them has it.
//!
//! After Figure 4.8. Each waiter is a node, which lets go as soon as it is granted the lock, or holds it for a while. Beside the times it is counted
//! what is said: for each that waited, and by those that wait.

use std::time::{Duration, Instant};

use verbena_lock::Scheme;
use verbena_terms::Time;

use super::counted::Counts;
use super::node::{Order, SETTLING};
use super::nodes::Nodes;
use super::station::Way;
use super::{PLACES, panel};
use crate::error::BenchError;
use crate::report::{Claim, Findings, Line, Measurement, Ratio};
use crate::rounds::{Budget, interleave};
use crate::run::Plan;
use crate::scale::number;
use crate::stats::{RoundSummary, Spread};

/// The node that holds it at first. The home is another, which takes no locks.
const HOLDER: usize = 1;
const FIRST_WAITER: usize = 2;
const WAITERS: [usize; 5] = [1, 2, 4, 8, 16];
const MOST: usize = WAITERS[WAITERS.len() - 1];
const HOLDS: [Duration; 2] = [Duration::ZERO, Duration::from_millis(1)];
/// Waiters whose messages and operations are counted.
const COUNTED: usize = 8;
/// How long all of them have waited before the holder lets go: longer than it takes to get into the queue.
const QUEUEING: Duration = Duration::from_millis(3);
/// The most looks until no node sends anything any more.
const MOST_LOOKS: usize = 50;
/// How long they are watched while they wait.
const WATCHED: Duration = Duration::from_millis(30);

/// The largest ratios that the chapter found: how much longer than N-CoSED it takes.
const SHARED_DQNL: f64 = 4.17;
const SHARED_SRSL: f64 = 1.25;
const EXCLUSIVE_MESSAGES: f64 = 2.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Turn {
    way: usize,
    is_shared: bool,
    waiters: usize,
    hold: Duration,
    /// Nothing is timed.
    is_counted: bool,
}

#[derive(Clone, Copy)]
enum Taken {
    /// Microseconds until the last has it.
    Last(RoundSummary),
    /// What the waiters sent and posted while they waited; and messages for each waiter from the release on, of all
    /// nodes.
    Said(Counts, f64),
}

/// Measures the row.
pub(crate) fn measure(plan: Plan) -> Result<Findings, BenchError> {
    let mut findings = Findings::default();
    for place in PLACES {
        let mut nodes = Nodes::start(place, FIRST_WAITER + MOST, false, &Way::usual())?;
        findings.fabrics.push(nodes.found.clone());
        let mut turns = turns();
        let mut budget = Budget::new(plan.measuring / PLACES.len() as u32, (plan.rounds + 1) * turns.len() as u32);
        let rounds = interleave(
            plan.rounds,
            &mut turns,
            |turn| format!("{} over {place}, {} wait", Way::usual()[turn.way].scheme_name(), turn.waiters),
            |turn| take(&mut nodes, *turn, budget.next()),
            &mut *plan.progress,
        )?;
        summarise(place, &turns, &rounds, &mut findings);
    }
    findings.notes = notes();
    Ok(findings)
}

/// Schemes innermost: what is compared stands next to each other in time.
fn turns() -> Vec<Turn> {
    let mut turns = Vec::new();
    for is_shared in [true, false] {
        for hold in HOLDS {
            for waiters in WAITERS {
                turns.extend((0..3).map(|way| Turn { way, is_shared, waiters, hold, is_counted: false }));
            }
        }
        let (waiters, hold) = (COUNTED, Duration::ZERO);
        turns.extend((0..3).map(|way| Turn { way, is_shared, waiters, hold, is_counted: true }));
    }
    turns
}

fn take(nodes: &mut Nodes, turn: Turn, length: Duration) -> Result<Taken, BenchError> {
    if turn.is_counted {
        return count(nodes, turn);
    }
    let mut us = Vec::new();
    let began = Instant::now();
    while us.is_empty() || began.elapsed() < length {
        queue(nodes, turn)?;
        std::thread::sleep(QUEUEING);
        us.push(release(nodes, turn)?);
    }
    Ok(Taken::Last(RoundSummary::of(&mut us).expect("invariant: there is a sample at least")))
}

fn waiters(turn: Turn) -> Vec<usize> {
    (FIRST_WAITER..FIRST_WAITER + turn.waiters).collect()
}

/// One holds it, and all others ask for it.
fn queue(nodes: &mut Nodes, turn: Turn) -> Result<(), BenchError> {
    let ask = |exclusive, hold| Order::Ask { name: 0, exclusive, hold };
    let () = nodes.ask(HOLDER, turn.way, &ask(true, Duration::ZERO))?;
    let () = nodes.ask(HOLDER, turn.way, &Order::Take)?;
    waiters(turn).into_iter().try_for_each(|at| nodes.ask(at, turn.way, &ask(!turn.is_shared, turn.hold)))
}

/// It lets go. Gives the microseconds until the last has it.
fn release(nodes: &mut Nodes, turn: Turn) -> Result<f64, BenchError> {
    let waiters = waiters(turn);
    nodes.tell_all(&waiters, turn.way, |_| Order::Wait)?;
    let released: Time = nodes.ask(HOLDER, turn.way, &Order::Release)?;
    let granted: Vec<Time> = waiters.iter().map(|&at| nodes.answer(at)).collect::<Result<_, _>>()?;
    let last = granted.into_iter().max().unwrap_or(released);
    Ok(last.since(released).as_secs_f64() * 1e6)
}

fn count(nodes: &mut Nodes, turn: Turn) -> Result<Taken, BenchError> {
    let all: Vec<usize> = (0..FIRST_WAITER + MOST).collect();
    let _: Vec<()> = nodes.ask_all(&all, turn.way, |_| Order::Counting(true))?;
    queue(nodes, turn)?;
    let waiters = waiters(turn);
    // On a busy machine it takes a while until all of them are in the queue and everything is acknowledged.
    let mut before: Vec<Counts> = Vec::new();
    for _ in 0..MOST_LOOKS {
        std::thread::sleep(SETTLING);
        let now: Vec<Counts> = nodes.ask_all(&waiters, turn.way, |_| Order::Counts)?;
        let is_quiet = now == before;
        before = now;
        if is_quiet {
            break;
        }
    }
    std::thread::sleep(WATCHED);
    let after: Vec<Counts> = nodes.ask_all(&waiters, turn.way, |_| Order::Counts)?;
    let waiting: Counts = after.into_iter().zip(before).map(|(after, before)| after - before).sum();

    let before: Vec<Counts> = nodes.ask_all(&all, turn.way, |_| Order::Counts)?;
    release(nodes, turn)?;
    std::thread::sleep(SETTLING);
    let after: Vec<Counts> = nodes.ask_all(&all, turn.way, |_| Order::Counts)?;
    let _: Vec<()> = nodes.ask_all(&all, turn.way, |_| Order::Counting(false))?;
    let said: Counts = after.into_iter().zip(before).map(|(after, before)| after - before).sum();
    Ok(Taken::Said(waiting, said.letters as f64 / turn.waiters as f64))
}

fn name(is_shared: bool) -> &'static str {
    if is_shared { "shared" } else { "exclusive" }
}

fn milliseconds(hold: Duration) -> String {
    format!("{} ms", hold.as_millis())
}

fn summarise(place: &str, turns: &[Turn], rounds: &[Vec<Taken>], findings: &mut Findings) {
    let ways = Way::usual();
    for (turn, rounds) in turns.iter().zip(rounds) {
        let hold = milliseconds(turn.hold);
        let labels = [
            ("fabric", place),
            ("scheme", ways[turn.way].scheme_name()),
            ("lock", name(turn.is_shared)),
            ("held for", &hold),
        ];
        let mut add = |quantity, unit, of: &dyn Fn(&Taken) -> Option<RoundSummary>| {
            let rounds = rounds.iter().filter_map(of).collect();
            findings.measurements.extend(Measurement::new(&labels, turn.waiters as f64, quantity, unit, rounds));
        };
        if turn.is_counted {
            let waiters = turn.waiters as u64;
            add("sent and posted by those who wait", "for all of them", &|taken| match taken {
                Taken::Said(waiting, _) => {
                    let said = waiting.letters + waiting.acknowledgements + waiting.batches;
                    Some(RoundSummary::one(said as f64, waiters))
                }
                Taken::Last(_) => None,
            });
            add("messages from the release on", "for each that waited", &|taken| match taken {
                Taken::Said(_, letters) => Some(RoundSummary::one(*letters, waiters)),
                Taken::Last(_) => None,
            });
        } else {
            add("until the last has it", "us", &|taken| match taken {
                Taken::Last(summary) => Some(*summary),
                Taken::Said(..) => None,
            });
        }
    }
    let of = |scheme: Scheme, is_shared, waiters, hold, is_counted| {
        let way = Way::SCHEMES.iter().position(|one| *one == scheme).expect("invariant: it is one of these");
        let turn = Turn { way, is_shared, waiters, hold, is_counted };
        let at = turns.iter().position(|one| *one == turn).expect("invariant: there is such a turn");
        let one = |taken: &Taken| match taken {
            Taken::Last(summary) => summary.median,
            Taken::Said(_, letters) => *letters,
        };
        rounds[at].iter().map(one).collect::<Vec<f64>>()
    };
    let mut ratio = |what: String, under: String, above: &[f64], below: &[f64], least: Option<f64>| {
        let Some(spread) = Spread::ratio(above, below) else { return };
        let median = |rounds: &[f64]| Spread::of(rounds).map_or(0.0, |spread| spread.median);
        let reason = format!(
            "{} against {}; every message wakes a process, and all of them share the cores of one machine",
            number(median(above)),
            number(median(below))
        );
        let claim =
            least.map(|least| Claim::at_least(least, &format!("at least {least}, as in the paper"), &spread, reason));
        findings.ratios.push(Ratio { what, under, spread, claim });
    };
    for is_shared in [true, false] {
        for hold in HOLDS {
            let times = |scheme| of(scheme, is_shared, MOST, hold, false);
            let under = format!("{place}, {MOST} wait, {}, held for {}", name(is_shared), milliseconds(hold));
            let [srsl, dqnl] = match is_shared {
                true => [Some(SHARED_SRSL), Some(SHARED_DQNL)],
                false => [None, None],
            };
            let ncosed = times(Scheme::Ncosed);
            let what = |scheme| format!("until the last has it, {scheme} over N-CoSED");
            ratio(what("SRSL"), under.clone(), &times(Scheme::Srsl), &ncosed, srsl);
            ratio(what("DQNL"), under, &times(Scheme::Dqnl), &ncosed, dqnl);
        }
    }
    let letters = |scheme| of(scheme, false, COUNTED, Duration::ZERO, true);
    ratio(
        "messages for each that waited, SRSL over N-CoSED".to_owned(),
        format!("{place}, {COUNTED} wait, exclusive"),
        &letters(Scheme::Srsl),
        &letters(Scheme::Ncosed),
        Some(EXCLUSIVE_MESSAGES),
    );
    for is_shared in [true, false] {
        for hold in HOLDS {
            let lines = Way::usual().into_iter().enumerate().map(|(style, way)| Line {
                name: way.scheme_name().to_owned(),
                style,
                points: findings
                    .measurements
                    .iter()
                    .filter(|one| {
                        let has = |value: &str| one.labels.iter().any(|(_, it)| it == value);
                        let is_held = one.labels.iter().any(|(of, it)| of == "held for" && *it == milliseconds(hold));
                        one.unit == "us" && has(place) && has(way.scheme_name()) && has(name(is_shared)) && is_held
                    })
                    .map(Measurement::point)
                    .collect(),
            });
            let title = format!("{place}: {}, held for {}", name(is_shared), milliseconds(hold));
            let y = "until the last has it (microseconds)";
            findings.panels.push(panel(&title, "nodes that wait", y, true, lines.collect()));
        }
    }
}

fn notes() -> Vec<String> {
    vec![
        "A node holds the lock exclusively and others, each a process, wait for it. Time runs from its release until the last of them is told that it has it. They \
         let go at once, or after the time that the lock is held for."
            .to_owned(),
        format!(
            "What is sent and posted by those who wait is counted for {} ms, from the moment on at which all that was said before is acknowledged; \
             acknowledgements and batches are counted too.",
            WATCHED.as_millis()
        ),
        "Messages are counted where they are given to the fabric, acknowledgements apart: of all nodes, from the release on until all have let go.".to_owned(),
    ]
}
