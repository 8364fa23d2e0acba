//! `locks.basic`: what it takes to get a lock that no other client wants, and to give it back.
//!
//! After Figures 4.6 and 4.7 and Table 4.2: three schemes, answers looked for or waited for. Beside each stand the batch that takes a free lock in one
//! round trip, by itself, and the way to a node's service without its network: a lock that another program of the node shares already.

use std::time::Duration;

use verbena_fabric::Provider;
use verbena_lock::Scheme;
use verbena_lock::service::Attention;

use super::client;
use super::counted::Counts;
use super::node::{Counted, Order, Timed};
use super::nodes::Nodes;
use super::station::Way;
use super::{PLACES, panel};
use crate::child::Target;
use crate::cores;
use crate::error::BenchError;
use crate::helpers::Helpers;
use crate::report::{Claim, Findings, Line, Measurement, Panel, Point, Ratio};
use crate::rounds::{Budget, interleave};
use crate::run::Plan;
use crate::scale::number;
use crate::stats::{RoundSummary, Spread};

/// The home of all locks, and the node that takes them.
const HOME: usize = 0;
const CALLER: usize = 1;
/// Locks that are taken to count what that costs.
const COUNTED: u32 = 40;
/// A stretch is at least so long.
const SHORTEST: Duration = Duration::from_millis(5);
/// What the chapter's schemes differ by: SRSL over the others, polled and notified.
const POLLED: f64 = 1.14;
const NOTIFIED: f64 = 1.396;
/// What one round trip may cost more than its batch by itself; and, where the batch is over at once, microseconds beside that.
const OVER_BATCH: f64 = 1.15;
const BESIDE_MEMORY_US: f64 = 0.5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Exclusive,
    Shared,
    Batch,
    Joined,
}

impl What {
    fn name(self) -> &'static str {
        match self {
            What::Exclusive => "exclusive",
            What::Shared => "shared",
            What::Batch => "the batch alone",
            What::Joined => "joined at the node",
        }
    }
}

/// By whom, on which fabric, and what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Turn {
    place: usize,
    /// The number of a station; none for a program at a helper.
    way: Option<usize>,
    what: What,
}

struct Outcome {
    turn: Turn,
    way: Option<Way>,
    rounds: Vec<Timed>,
}

/// Measures the row.
pub(crate) fn measure(plan: Plan) -> Result<Findings, BenchError> {
    let verbena = plan.verbena.ok_or(BenchError::NoProgram { name: plan.name })?;
    // Where a node's thread and the program that it wakes are on one core now and on two then, one takes three times as long as the other.
    let cores = cores::two(plan.name, "one for the home and one for who takes its locks")?;
    let ways = Way::all();
    let start = |place: &&str| Nodes::start_on(&cores, place, 2, false, &ways);
    let mut clusters: Vec<Nodes> = PLACES.iter().map(start).collect::<Result<_, _>>()?;
    let mut helpers: Vec<Helpers> = [Provider::Shm, Provider::Tcp]
        .into_iter()
        .map(|provider| Helpers::start(verbena, provider, 1, 1, Some(cores)))
        .collect::<Result<_, _>>()?;
    let mut clients: Vec<Target> =
        helpers.iter_mut().map(|helpers| client::at(helpers, 1)).collect::<Result<_, _>>()?;

    let mut turns = turns(&ways);
    let mut budget = Budget::new(plan.measuring, (plan.rounds + 1) * turns.len() as u32);
    let rounds = interleave(
        plan.rounds,
        &mut turns,
        |turn| {
            let who = turn.way.map_or("at a helper", |way| ways[way].scheme_name());
            format!("{} over {}, {who}", turn.what.name(), PLACES[turn.place])
        },
        |turn| {
            let length = budget.next().max(SHORTEST);
            match turn.way {
                Some(way) => clusters[turn.place].ask(CALLER, way, &turn.order(length)),
                None => clients[turn.place].ask(&turn.client_order(length), "take locks"),
            }
        },
        plan.progress,
    )?;
    helpers.iter_mut().try_for_each(Helpers::look)?;
    let outcomes: Vec<Outcome> = turns
        .into_iter()
        .zip(rounds)
        .map(|(turn, rounds)| Outcome { turn, way: turn.way.map(|way| ways[way]), rounds })
        .collect();

    let mut findings = Findings::default();
    for (place, cluster) in clusters.iter_mut().enumerate() {
        findings.fabrics.push(cluster.found.clone());
        for scheme in Way::SCHEMES {
            let way = Way { scheme, attention: Attention::default() };
            let at = ways.iter().position(|one| *one == way).expect("invariant: every way has a station");
            // It is counted, not timed: each round would give the same.
            let rounds: Vec<(Counted, Counts)> =
                (0..plan.rounds).map(|_| count(cluster, at)).collect::<Result<_, _>>()?;
            counted(place, way, &rounds, &mut findings);
        }
    }
    findings.measurements.extend(outcomes.iter().flat_map(Outcome::measurements));
    for place in 0..PLACES.len() {
        ratios(place, &outcomes, &mut findings);
        findings.panels.extend(panels(place, &outcomes));
    }
    findings.notes = notes();
    Ok(findings)
}

/// What is compared stands next to each other in time.
fn turns(ways: &[Way]) -> Vec<Turn> {
    let mut turns = Vec::new();
    for place in 0..PLACES.len() {
        for attention in Way::ATTENTIONS {
            let here = ways.iter().enumerate().filter(|(_, way)| way.attention == attention);
            for (at, way) in here {
                let of = |what| Turn { place, way: Some(at), what };
                turns.extend([of(What::Exclusive), of(What::Shared)]);
                if way.scheme == Scheme::Ncosed {
                    turns.extend([of(What::Batch), of(What::Joined)]);
                }
            }
        }
        turns.extend([What::Exclusive, What::Joined].map(|what| Turn { place, way: None, what }));
    }
    turns
}

impl Turn {
    fn order(self, length: Duration) -> Order {
        match self.what {
            What::Exclusive => Order::Alone { exclusive: true, length },
            What::Shared => Order::Alone { exclusive: false, length },
            What::Batch => Order::Raw { length },
            What::Joined => Order::Joined { length },
        }
    }

    fn client_order(self, length: Duration) -> client::Order {
        match self.what {
            What::Joined => client::Order::Joined { length },
            _ => client::Order::Alone { length },
        }
    }
}

impl Outcome {
    fn scheme(&self) -> &'static str {
        self.way.map_or("N-CoSED, through a helper", Way::scheme_name)
    }

    fn attention(&self) -> &'static str {
        self.way.unwrap_or(Way { scheme: Scheme::Ncosed, attention: Attention::default() }).attention_name()
    }

    fn x(&self) -> f64 {
        let attention = self.way.map_or(Attention::default(), |way| way.attention);
        1.0 + Way::ATTENTIONS.iter().position(|one| *one == attention).unwrap_or(0) as f64
    }

    fn of(&self, quantity: &str, rounds: Vec<RoundSummary>) -> Option<Measurement> {
        let labels = [
            ("fabric", PLACES[self.turn.place]),
            ("scheme", self.scheme()),
            ("completion", self.attention()),
            ("lock", self.turn.what.name()),
        ];
        Measurement::new(&labels, self.x(), quantity, "us", rounds)
    }

    fn measurements(&self) -> Vec<Measurement> {
        let lock = self.of("latency of lock", self.rounds.iter().map(|round| round.lock).collect());
        let unlock = self.of("latency of unlock", self.rounds.iter().filter_map(|round| round.unlock).collect());
        lock.into_iter().chain(unlock).collect()
    }

    fn locks(&self) -> Vec<f64> {
        self.rounds.iter().map(|round| round.lock.median).collect()
    }
}

fn find(outcomes: &[Outcome], place: usize, way: Option<Way>, what: What) -> &Outcome {
    let found = outcomes.iter().find(|one| one.turn.place == place && one.way == way && one.turn.what == what);
    found.expect("invariant: each of these has a turn")
}

/// At the node that takes locks, and at their home.
fn count(cluster: &mut Nodes, way: usize) -> Result<(Counted, Counts), BenchError> {
    let () = cluster.ask(HOME, way, &Order::Counting(true))?;
    let before: Counts = cluster.ask(HOME, way, &Order::Counts)?;
    let counted = cluster.ask(CALLER, way, &Order::Count { times: COUNTED })?;
    let after: Counts = cluster.ask(HOME, way, &Order::Counts)?;
    let () = cluster.ask(HOME, way, &Order::Counting(false))?;
    Ok((counted, after - before))
}

/// What was counted of one scheme on one fabric.
fn counted(place: usize, way: Way, rounds: &[(Counted, Counts)], findings: &mut Findings) {
    let labels = [("fabric", PLACES[place]), ("scheme", way.scheme_name())];
    let mut of = |quantity: &str, count: fn(&Counted, &Counts) -> u64| {
        let each: Vec<f64> =
            rounds.iter().map(|(round, home)| count(round, home) as f64 / round.times as f64).collect();
        let summaries =
            rounds.iter().zip(&each).map(|((round, _), each)| RoundSummary::one(*each, round.times)).collect();
        findings.measurements.extend(Measurement::new(&labels, 0.0, quantity, "for one", summaries));
        let claims =
            way.scheme == Scheme::Ncosed && ["batches of a free lock", "atomics of a free lock"].contains(&quantity);
        if let (true, Some(spread)) = (claims, Spread::of(&each)) {
            let reason = format!("{} were counted", spread.median);
            let claim = Claim::at_most(1.0, "at most 1: one round trip with one atomic", &spread, reason);
            let under = format!("{}, {}", PLACES[place], way.scheme_name());
            findings.ratios.push(Ratio { what: quantity.to_owned(), under, spread, claim: Some(claim) });
        }
    };
    of("batches of a free lock", |round, _| round.lock.batches);
    of("atomics of a free lock", |round, _| round.lock.atomics);
    of("messages of a free lock", |round, _| round.lock.letters);
    of("batches of a release", |round, _| round.unlock.batches);
    of("atomics of a release", |round, _| round.unlock.atomics);
    of("messages of a release", |round, _| round.unlock.letters);
    of("messages of the home, for both", |_, home| home.letters);
}

fn ratios(place: usize, outcomes: &[Outcome], findings: &mut Findings) {
    let ratios = &mut findings.ratios;
    for attention in Way::ATTENTIONS {
        let of = |scheme, what| find(outcomes, place, Some(Way { scheme, attention }), what);
        let ncosed = of(Scheme::Ncosed, What::Exclusive);
        let under = format!("{}, {}", PLACES[place], ncosed.attention());
        for (scheme, what) in [(Scheme::Srsl, "SRSL"), (Scheme::Dqnl, "DQNL")] {
            let (above, below) = (of(scheme, What::Exclusive).locks(), ncosed.locks());
            let Some(spread) = Spread::ratio(&above, &below) else { continue };
            let least = match (scheme, attention) {
                (Scheme::Srsl, Attention::Everything) => Some(POLLED),
                (Scheme::Srsl, Attention::Woken) => Some(NOTIFIED),
                _ => None,
            };
            let reason = format!(
                "{} us against {} us, of which {} are the way to the node's service, as long for both",
                medians(&above),
                medians(&below),
                medians(&of(Scheme::Ncosed, What::Joined).locks())
            );
            let claim = least
                .map(|least| Claim::at_least(least, &format!("at least {least}, as in the paper"), &spread, reason));
            let what = format!("latency of a free lock, {what} over N-CoSED");
            ratios.push(Ratio { what, under: under.clone(), spread, claim });
        }
        let batch = of(Scheme::Ncosed, What::Batch).locks();
        ratios.extend(over_batch(place, &under, ncosed, &batch, &of(Scheme::Ncosed, What::Joined).locks()));
    }
    let usual = Some(Way { scheme: Scheme::Ncosed, attention: Attention::default() });
    let batch = find(outcomes, place, usual, What::Batch).locks();
    let through = find(outcomes, place, None, What::Exclusive);
    let under = format!("{}, through a node's helper", PLACES[place]);
    let ipc = find(outcomes, place, None, What::Joined).locks();
    ratios.extend(over_batch(place, &under, through, &batch, &ipc));
    let within = find(outcomes, place, usual, What::Exclusive).locks();
    ratios.extend(Spread::ratio(&through.locks(), &within).map(|spread| Ratio {
        what: "latency of a free lock, through a helper over within the node's process".to_owned(),
        under,
        spread,
        claim: None,
    }));
}

/// A free lock against what it may cost.
fn over_batch(place: usize, under: &str, lock: &Outcome, batch: &[f64], ipc: &[f64]) -> Vec<Ratio> {
    let beside = if PLACES[place] == "shm" { BESIDE_MEMORY_US } else { 0.0 };
    let allowed: Vec<f64> = batch.iter().zip(ipc).map(|(batch, ipc)| OVER_BATCH * batch + ipc + beside).collect();
    let locks = lock.locks();
    let reason = format!(
        "a lock took {} us, its batch by itself {}, and the way to the service and back {}; the rest is what is decided, with \
         cold caches, on two cores that the nodes share",
        medians(&locks),
        medians(batch),
        medians(ipc)
    );
    let text = match beside > 0.0 {
        true => format!("at most {OVER_BATCH} batches, the way to the service, and {BESIDE_MEMORY_US} us (1)"),
        false => format!("at most {OVER_BATCH} batches and the way to the service (1)"),
    };
    let over_allowed = Spread::ratio(&locks, &allowed).map(|spread| Ratio {
        what: "latency of a free lock over what it may be".to_owned(),
        under: under.to_owned(),
        spread,
        claim: Some(Claim::at_most(1.0, &text, &spread, reason)),
    });
    let over_batch = Spread::ratio(&locks, batch).map(|spread| Ratio {
        what: "latency of a free lock over its batch alone".to_owned(),
        under: under.to_owned(),
        spread,
        claim: None,
    });
    over_allowed.into_iter().chain(over_batch).collect()
}

fn medians(rounds: &[f64]) -> String {
    number(Spread::of(rounds).map_or(0.0, |spread| spread.median))
}

const COMPLETIONS: &str = "1 polling, 2 notification";
const MICROSECONDS: &str = "latency (microseconds)";

fn panels(place: usize, outcomes: &[Outcome]) -> Vec<Panel> {
    let name = PLACES[place];
    let line = |name: &str, style, of: &dyn Fn(Attention) -> Vec<f64>| {
        let points = (1..)
            .zip(Way::ATTENTIONS)
            .filter_map(|(x, attention)| Some(Point { x: f64::from(x), y: Spread::of(&of(attention))? }));
        Line { name: name.to_owned(), style, points: points.collect() }
    };
    let found = |scheme, what, attention| find(outcomes, place, Some(Way { scheme, attention }), what);
    let locks = |scheme, attention| found(scheme, What::Exclusive, attention).locks();
    let unlocks = |scheme, attention| -> Vec<f64> {
        let rounds = &found(scheme, What::Exclusive, attention).rounds;
        rounds.iter().filter_map(|round| Some(round.unlock?.median)).collect()
    };
    let part = |what| move |attention| found(Scheme::Ncosed, what, attention).locks();
    let rest = |attention| -> Vec<f64> {
        let [lock, batch, joined] =
            [What::Exclusive, What::Batch, What::Joined].map(|what| found(Scheme::Ncosed, what, attention).locks());
        lock.iter().zip(batch.iter().zip(joined)).map(|(lock, (batch, joined))| lock - batch - joined).collect()
    };
    let three = |of: &dyn Fn(Scheme, Attention) -> Vec<f64>| -> Vec<Line> {
        let named = ["SRSL", "DQNL", "N-CoSED"].into_iter().zip(Way::SCHEMES).enumerate();
        named.map(|(style, (name, scheme))| line(name, style, &|attention| of(scheme, attention))).collect()
    };
    vec![
        panel(&format!("{name}: lock"), COMPLETIONS, MICROSECONDS, false, three(&locks)),
        panel(&format!("{name}: unlock"), COMPLETIONS, MICROSECONDS, false, three(&unlocks)),
        panel(
            &format!("{name}: where the time of N-CoSED goes"),
            COMPLETIONS,
            MICROSECONDS,
            false,
            vec![
                line("to the service and back", 3, &part(What::Joined)),
                line("network: the batch alone", 4, &part(What::Batch)),
                line("the rest", 5, &rest),
            ],
        ),
    ]
}

fn notes() -> Vec<String> {
    vec![
        "One node takes a lock whose home is another, and nobody else wants it. Samples are apart: each begins when nothing is left to be done of the one before."
            .to_owned(),
        "Polling: the services of both nodes look without a pause for whatever may come. Notification, as nodes have it: they sleep \
         until they are woken. The program that asks always sleeps until it is told, as in the paper."
            .to_owned(),
        "The batch alone: a compare-and-swap and two reads, by the thread that times it. Joined at the node: a lock that another program there holds shared, so \
         that nothing leaves the node; all else is the same, and this is what is called the way to the service."
            .to_owned(),
        format!("Batches, atomics and messages were counted where they are given to the fabric, over {COUNTED} locks in each round."),
    ]
}
