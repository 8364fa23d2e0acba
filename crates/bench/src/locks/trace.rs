//! `locks.trace`: nodes that take shared locks as a web trace has it, more and more of them.
//!
//! After Figure 4.9. The keys of a trace are locks; each node takes those of its part of the requests, one after the other. Every node is a home, so
//! that the words are spread as the nodes are.

use std::time::Duration;

use verbena_terms::{BootClock, Clock};

use super::node::{Order, Worked};
use super::nodes::Nodes;
use super::station::Way;
use super::work::Together;
use super::{PLACES, panel};
use crate::error::BenchError;
use crate::report::{Claim, Findings, Line, Measurement, Ratio};
use crate::rounds::{Budget, interleave};
use crate::run::Plan;
use crate::scale::number;
use crate::stats::Spread;

const NODES: [usize; 4] = [1, 2, 4, 8];
/// Requests of the trace that are taken, at most; a node that is through with its part begins again.
const REQUESTS: usize = 8_000;
/// All begin at the same moment: when each has got its order.
const TELLING: Duration = Duration::from_millis(5);
/// A stretch is at least so long.
const SHORTEST: Duration = Duration::from_millis(10);
/// What counts as linear.
const LINEAR: f64 = 0.8;

#[derive(Clone, Copy)]
struct Turn {
    cluster: usize,
    way: usize,
}

/// Measures the row.
pub(crate) fn measure(plan: Plan) -> Result<Findings, BenchError> {
    let mut findings = Findings::default();
    let mut keys = 0;
    for place in PLACES {
        let start = |count| Nodes::start(place, count, true, &Way::usual());
        let mut clusters: Vec<Nodes> = NODES.into_iter().map(start).collect::<Result<_, _>>()?;
        findings.fabrics.push(clusters[0].found.clone());
        for (nodes, of) in clusters.iter_mut().zip(NODES) {
            let load = |nth| Order::Load { trace: plan.trace.to_owned(), first: REQUESTS, nth, of };
            let all: Vec<usize> = (0..of).collect();
            let loaded: Vec<usize> = nodes.ask_all(&all, 0, load)?;
            keys = loaded[0];
            for way in 0..Way::usual().len() {
                let _: Vec<()> = nodes.ask_all(&all, way, |_| Order::Learn)?;
            }
        }
        let schemes = |cluster| (0..3).map(move |way| Turn { cluster, way });
        let mut turns: Vec<Turn> = (0..NODES.len()).flat_map(schemes).collect();
        let mut budget = Budget::new(plan.measuring / PLACES.len() as u32, (plan.rounds + 1) * turns.len() as u32);
        let rounds = interleave(
            plan.rounds,
            &mut turns,
            |turn| format!("{} over {place}, {} nodes", Way::usual()[turn.way].scheme_name(), NODES[turn.cluster]),
            |turn| {
                let all: Vec<usize> = (0..NODES[turn.cluster]).collect();
                work(&mut clusters[turn.cluster], &all, turn.way, None, false, Duration::ZERO, budget.next())
            },
            &mut *plan.progress,
        )?;
        summarise(place, &turns, &rounds, &mut findings);
    }
    findings.notes = vec![
        format!(
            "The first {REQUESTS} requests of the key trace, for {keys} keys, dealt out to the nodes in turn; each takes the lock of a key shared and lets go, one \
             after the other. Before anything is timed each node has taken each of its locks once: it knows where their words are."
        ),
        "All nodes are processes of one machine, so what they can take together is bounded by its cores. Locks for processor time, that of all nodes, say what one more node \
         costs the others."
            .to_owned(),
    ];
    Ok(findings)
}

/// Has these nodes take locks at the same time.
pub(super) fn work(
    nodes: &mut Nodes,
    clients: &[usize],
    way: usize,
    name: Option<u64>,
    exclusive: bool,
    hold: Duration,
    length: Duration,
) -> Result<Together, BenchError> {
    let length = length.max(SHORTEST);
    let before = nodes.cpu_s()?;
    let start = BootClock.now() + TELLING;
    let worked: Vec<Worked> = nodes.ask_all(clients, way, |_| Order::Work { name, exclusive, hold, start, length })?;
    Ok(Together { clients: worked, cpu_s: Some(nodes.cpu_s()? - before) })
}

fn summarise(place: &str, turns: &[Turn], rounds: &[Vec<Together>], findings: &mut Findings) {
    let ways = Way::usual();
    let of = |cluster, way, value: &dyn Fn(&Together) -> f64| {
        let at = turns.iter().position(|turn| (turn.cluster, turn.way) == (cluster, way));
        let at = at.expect("invariant: there is such a turn");
        rounds[at].iter().map(value).collect::<Vec<f64>>()
    };
    for (turn, rounds) in turns.iter().zip(rounds) {
        let labels = [("fabric", place), ("scheme", ways[turn.way].scheme_name())];
        findings.measurements.extend(Together::measurements(&labels, NODES[turn.cluster] as f64, rounds));
    }
    let rate: &dyn Fn(&Together) -> f64 = &Together::rate;
    let per_cpu: &dyn Fn(&Together) -> f64 = &|round| round.per_cpu_s().unwrap_or(f64::NAN);
    for (way, scheme) in ways.iter().enumerate().map(|(at, way)| (at, way.scheme_name())) {
        for (cluster, nodes) in NODES.into_iter().enumerate().skip(1) {
            let under = format!("{place}, {scheme}");
            let many = of(cluster, way, rate);
            let as_many: Vec<f64> = of(0, way, rate).into_iter().map(|rate| rate * nodes as f64).collect();
            let median = |rounds: &[f64]| number(Spread::of(rounds).map_or(0.0, |spread| spread.median));
            let reason = format!(
                "{} locks a second by {nodes} nodes and {} by one, which has all words itself. A second of processor time has {} locks, and {} with one \
                 node; the nodes share the cores of one machine",
                median(&many),
                median(&of(0, way, rate)),
                median(&of(cluster, way, per_cpu)),
                median(&of(0, way, per_cpu)),
            );
            let linear = Spread::ratio(&many, &as_many).map(|spread| Ratio {
                what: format!("locks a second, {nodes} nodes over {nodes} times one node"),
                under: under.clone(),
                spread,
                claim: (scheme == "N-CoSED").then(|| {
                    Claim::at_least(LINEAR, &format!("linear (at least {LINEAR}), as in the paper"), &spread, reason)
                }),
            });
            let costs = Spread::ratio(&of(cluster, way, per_cpu), &of(1, way, per_cpu)).map(|spread| Ratio {
                what: format!("locks for processor time, {nodes} nodes over 2 nodes"),
                under,
                spread,
                claim: None,
            });
            findings.ratios.extend(linear.into_iter().chain(costs.filter(|_| nodes > 2)));
        }
    }
    for (quantity, y) in
        [("locks", "shared locks a second"), ("locks for processor time", "locks for a second of a core")]
    {
        let series = lines(&ways, place, quantity, &findings.measurements);
        findings.panels.push(panel(&format!("{place}: {y}"), "nodes", y, false, series));
    }
}

/// A line for each of these ways.
pub(super) fn lines(ways: &[Way], place: &str, quantity: &str, measurements: &[Measurement]) -> Vec<Line> {
    let line = |(style, way): (usize, &Way)| {
        let is_its = |one: &&Measurement| {
            let has = |value: &str| one.labels.iter().any(|(_, it)| it == value);
            one.quantity == quantity && has(place) && has(way.scheme_name())
        };
        let points = measurements.iter().filter(is_its).map(Measurement::point).collect();
        Line { name: way.scheme_name().to_owned(), style, points }
    };
    ways.iter().enumerate().map(line).collect()
}
