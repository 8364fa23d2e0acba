//! `locks.contention`: nodes that want one lock exclusively, again and again: how often each gets it, and how long it
//! waits.

use std::time::Duration;

use super::nodes::Nodes;
use super::station::Way;
use super::trace::work;
use super::work::Together;
use super::{PLACES, panel};
use crate::error::BenchError;
use crate::report::{Findings, Line, Measurement, Ratio};
use crate::rounds::{Budget, interleave};
use crate::run::Plan;
use crate::stats::Spread;

const CLIENTS: [usize; 5] = [1, 2, 4, 8, 16];
const MOST: usize = CLIENTS[CLIENTS.len() - 1];
const HOLDS: [Duration; 3] = [Duration::ZERO, Duration::from_micros(100), Duration::from_millis(1)];
/// The lock that all want.
const NAME: u64 = 2;

#[derive(Clone, Copy, PartialEq, Eq)]
struct Turn {
    way: usize,
    clients: usize,
    hold: Duration,
}

/// Measures the row.
pub(crate) fn measure(plan: Plan) -> Result<Findings, BenchError> {
    let mut findings = Findings::default();
    for place in PLACES {
        let mut nodes = Nodes::start(place, 1 + MOST, false, &Way::usual())?;
        findings.fabrics.push(nodes.found.clone());
        let of = |hold| {
            CLIENTS
                .into_iter()
                .flat_map(move |clients| (0..Way::usual().len()).map(move |way| Turn { way, clients, hold }))
        };
        let mut turns: Vec<Turn> = HOLDS.into_iter().flat_map(of).collect();
        let mut budget = Budget::new(plan.measuring / PLACES.len() as u32, (plan.rounds + 1) * turns.len() as u32);
        let rounds = interleave(
            plan.rounds,
            &mut turns,
            |turn| format!("{} over {place}, {} clients", Way::usual()[turn.way].scheme_name(), turn.clients),
            |turn| {
                // The first node is the home, and takes no locks.
                let clients: Vec<usize> = (1..=turn.clients).collect();
                work(&mut nodes, &clients, turn.way, Some(NAME), true, turn.hold, budget.next())
            },
            &mut *plan.progress,
        )?;
        summarise(place, &turns, &rounds, &mut findings);
    }
    findings.notes = vec![
        "Each client is a node with one program; the home of the lock is another node. Those who have had the lock ask for it again at once.".to_owned(),
        "A hold of 100 us is spent computing, a longer one asleep. With as many clients as there are cores, and more, they also wait for a core.".to_owned(),
    ];
    Ok(findings)
}

fn held(hold: Duration) -> String {
    format!("{} us", hold.as_micros())
}

fn summarise(place: &str, turns: &[Turn], rounds: &[Vec<Together>], findings: &mut Findings) {
    let ways = Way::usual();
    for (turn, rounds) in turns.iter().zip(rounds) {
        let hold = held(turn.hold);
        let labels = [("fabric", place), ("scheme", ways[turn.way].scheme_name()), ("held for", &hold)];
        findings.measurements.extend(Together::measurements(&labels, turn.clients as f64, rounds));
    }
    let rates = |way, clients, hold| {
        let at = turns.iter().position(|turn| *turn == Turn { way, clients, hold });
        let at = at.expect("invariant: there is such a turn");
        rounds[at].iter().map(Together::rate).collect::<Vec<f64>>()
    };
    for hold in HOLDS {
        for clients in CLIENTS {
            for (way, name) in [(0, "SRSL"), (1, "DQNL")] {
                let spread = Spread::ratio(&rates(2, clients, hold), &rates(way, clients, hold));
                findings.ratios.extend(spread.map(|spread| Ratio {
                    what: format!("locks a second, N-CoSED over {name}"),
                    under: format!("{place}, {clients} clients, held for {}", held(hold)),
                    spread,
                    claim: None,
                }));
            }
        }
    }
    let mut add = |title: &str, y: &str, is_logarithmic, series| {
        findings.panels.push(panel(&format!("{place}: {title}"), "clients, each a node", y, is_logarithmic, series));
    };
    for (hold, quantity, y) in [
        (HOLDS[0], "locks", "locks a second"),
        (HOLDS[1], "locks", "locks a second"),
        (HOLDS[2], "locks", "locks a second"),
        (HOLDS[0], "Jain's index", "Jain's index"),
        (HOLDS[0], "longest wait over the mean", "longest wait over the mean"),
    ] {
        let hold = held(hold);
        let here: Vec<Measurement> = findings
            .measurements
            .iter()
            .filter(|one| one.labels.iter().any(|(of, it)| of == "held for" && *it == hold))
            .cloned()
            .collect();
        let series: Vec<Line> = super::trace::lines(&ways, place, quantity, &here);
        add(&format!("{y}, held for {hold}"), y, quantity.starts_with("longest"), series);
    }
}
