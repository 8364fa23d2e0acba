//! `coop.trace`: a real key trace through four nodes that are one cache, beside one central memory and four that know nothing of each other, both simulated.
//!
//! No figure of the papers. Several copies of the trace go side by side, each with keys of its own: a node lends a mebibyte at the least, which is more than a quarter of what a
//! twentieth of one copy takes.

mod simulated;

use std::collections::HashMap;
use std::path::Path;
use std::time::Instant;

use rand_core::Rng;
use rand_pcg::Pcg64;

use self::simulated::{Lru, S3Fifo};
use super::client::Client;
use super::pools::{Pools, failed};
use crate::error::BenchError;
use crate::report::{Axis, Claim, Findings, Measurement, Panel, Ratio};
use crate::rounds::Progress;
use crate::run::Plan;
use crate::stats::{RoundSummary, Spread};
use crate::traces::{KeyReader, TraceError, generator, open};

const NODES: usize = 4;
/// Copies of the trace, and of them those that one client replays.
const COPIES: usize = 8;
const CLIENTS: usize = 4;
const OF_CLIENT: usize = COPIES / CLIENTS;
/// Of all bytes, what the nodes together lend.
const SHARES: [f64; 3] = [0.05, 0.10, 0.25];
/// What is counted of an object beside its value, in bytes.
const BESIDE: u64 = 60;
/// Lines of the trace that are replayed before the clock is looked at.
const LINES: usize = 250;
/// What is wanted: so little less than a central memory hits, of 1.
const WITHIN: f64 = 0.015;
const KINDS: [&str; 3] = ["adaptive", "one S3-FIFO", "four LRU alone"];

/// What is asked for.
pub(super) struct Trace {
    /// Of each object, the bytes of its value.
    sizes: Vec<u32>,
    pub(super) lines: Vec<u32>,
    /// Of each object, what is counted.
    pub(super) bytes: Vec<u64>,
}

impl Trace {
    fn read(path: &Path) -> Result<Self, TraceError> {
        let (name, file) = open(path)?;
        let mut numbers: HashMap<String, u32> = HashMap::new();
        let mut trace = Trace { sizes: vec![], lines: vec![], bytes: vec![] };
        for request in KeyReader::new(name, file)? {
            let request = request?;
            let next = trace.sizes.len() as u32;
            let number = *numbers.entry(request.key).or_insert(next);
            if number == next {
                trace.sizes.push(request.size_bytes as u32);
                trace.bytes.push(request.size_bytes + BESIDE);
            }
            trace.lines.push(number);
        }
        Ok(trace)
    }

    /// Bytes of all objects, as they are counted.
    fn set(&self) -> u64 {
        self.bytes.iter().sum()
    }

    /// Of an object of any copy: copies stand behind each other.
    fn bytes(&self, object: u32) -> u64 {
        self.bytes[object as usize % self.bytes.len()]
    }

    fn object(&self, copy: usize, line: usize) -> u32 {
        (copy * self.sizes.len()) as u32 + self.lines[line]
    }
}

/// Hits of the kinds of caches, and requests.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    hits: [u64; 3],
    requests: u64,
}

/// Four nodes with some memory, their clients, and what would be with the same memory.
struct Stack {
    /// Ended with it.
    _pools: Pools,
    clients: Vec<(Pcg64, Vec<Client>)>,
    central: S3Fifo,
    alone: Vec<Lru>,
    random: Pcg64,
}

/// Measures the row.
pub(crate) fn measure(plan: Plan) -> Result<Findings, BenchError> {
    let verbena = plan.verbena.ok_or(BenchError::NoProgram { name: plan.name })?;
    let trace = Trace::read(plan.trace)?;
    let (all, objects) = (trace.set() * COPIES as u64, trace.sizes.len() * COPIES);
    let began = Instant::now();
    let mut found = vec![];
    for (nth, share) in SHARES.into_iter().enumerate() {
        let memory = (all as f64 * share) as u64;
        let of_node = memory / NODES as u64;
        let mut pools = Pools::start(verbena, NODES, 0, of_node, &["--pool-mirror", "false"])?;
        pools.ready()?;
        pools.flush()?;
        let client = |nth: usize| {
            let connected = pools.addresses.iter().map(|address| Client::connect(*address)).collect::<Result<_, _>>();
            let connected = connected.map_err(|error| failed("connect to a pool", error))?;
            Ok((generator(plan.seed, 7_900 + nth as u128), connected))
        };
        let clients = (0..CLIENTS).map(client).collect::<Result<_, BenchError>>()?;
        let alone = (0..NODES).map(|_| Lru::of(of_node, objects)).collect();
        let (central, random) = (S3Fifo::of(memory, objects), generator(plan.seed, 7_950));
        let mut stack = Stack { _pools: pools, clients, central, alone, random };
        let until = began + plan.measuring * (nth as u32 + 1) / SHARES.len() as u32;
        let mut pieces = vec![];
        for from in (0..trace.lines.len()).step_by(LINES) {
            let of = (SHARES.len() * 100) as u32;
            let done = (nth * 100 + from * 100 / trace.lines.len()) as u32;
            let doing = format!("{:.0}% of the set in all", share * 100.0);
            (plan.progress)(&Progress { done, of, doing, elapsed: began.elapsed(), left: None });
            // However slow the machine is: enough pieces for each round to have one.
            if Instant::now() > until && pieces.len() > plan.rounds as usize {
                break;
            }
            pieces.push(stack.replay(&trace, from..(from + LINES).min(trace.lines.len()))?);
        }
        found.push((pieces.len() * LINES, rounds(&pieces, plan.rounds as usize)));
    }
    Ok(summarise(&found, all))
}

/// The pieces as rounds of the same length, behind a first part that is not counted.
fn rounds(pieces: &[Found], rounds: usize) -> Vec<Found> {
    let each = pieces.len() / (rounds + 1);
    let counted = &pieces[pieces.len() - each * rounds..];
    let sum = |part: &[Found]| {
        let mut sum = Found::default();
        for one in part {
            sum.requests += one.requests;
            sum.hits.iter_mut().zip(one.hits).for_each(|(sum, hits)| *sum += hits);
        }
        sum
    };
    counted.chunks(each.max(1)).map(sum).collect()
}

impl Stack {
    fn replay(&mut self, trace: &Trace, lines: std::ops::Range<usize>) -> Result<Found, BenchError> {
        let hits = std::thread::scope(|scope| {
            let clients = self.clients.iter_mut().enumerate();
            let asking: Vec<_> = clients
                .map(|(nth, (random, nodes))| {
                    let lines = lines.clone();
                    scope.spawn(move || -> std::io::Result<u64> {
                        let mut hits = 0;
                        for (line, copy) in
                            lines.flat_map(|line| (0..OF_CLIENT).map(move |of| (line, nth * OF_CLIENT + of)))
                        {
                            let object = trace.object(copy, line);
                            let node = &mut nodes[(random.next_u64() % NODES as u64) as usize];
                            hits += u64::from(hit_or_store(
                                node,
                                object,
                                trace.sizes[trace.lines[line] as usize] as usize,
                            )?);
                        }
                        Ok(hits)
                    })
                })
                .collect();
            let hits =
                asking.into_iter().map(|one| one.join().unwrap_or_else(|_| Err(std::io::ErrorKind::Other.into())));
            hits.sum::<std::io::Result<u64>>()
        });
        let hits = hits.map_err(|error| failed("ask a pool", error))?;
        let mut found = Found { hits: [hits, 0, 0], requests: 0 };
        for line in lines {
            for copy in 0..COPIES {
                let (object, node) = (trace.object(copy, line), (self.random.next_u64() % NODES as u64) as usize);
                found.requests += 1;
                found.hits[1] += u64::from(self.central.ask(object, |object| trace.bytes(object)));
                found.hits[2] += u64::from(self.alone[node].ask(object, |object| trace.bytes(object)));
            }
        }
        Ok(found)
    }
}

/// Whether the object was there, with the value that it has. If it was not, it is stored.
fn hit_or_store(node: &mut Client, object: u32, bytes: usize) -> std::io::Result<bool> {
    let key = format!("object-{object:08}");
    let value = || key.bytes().cycle().take(bytes).collect::<Vec<u8>>();
    if node.get(&key)? {
        let is_it = node.value == value();
        return if is_it { Ok(true) } else { Err(std::io::Error::other(format!("{key} has another value"))) };
    }
    node.set(&key, &value())?;
    Ok(false)
}

fn summarise(found: &[(usize, Vec<Found>)], all: u64) -> Findings {
    let mut findings = Findings::default();
    for ((lines, rounds), share) in found.iter().zip(SHARES) {
        let of = |kind: usize| -> Vec<f64> {
            rounds.iter().map(|found| found.hits[kind] as f64 / found.requests.max(1) as f64).collect()
        };
        for (kind, name) in KINDS.into_iter().enumerate() {
            let summary = |(hits, found): (f64, &Found)| RoundSummary::one(hits, found.requests);
            let summaries = of(kind).into_iter().zip(rounds).map(summary).collect();
            let labels = [("variant", name), ("replacement", if kind == 2 { "LRU" } else { "S3-FIFO" })];
            findings.measurements.extend(Measurement::new(&labels, share * 100.0, "hits", "", summaries));
        }
        let under = format!("{:.0}% of the set in all", share * 100.0);
        let median = Spread::of(&of(1)).map_or(1.0, |spread| spread.median);
        if let Some(spread) = Spread::ratio(&of(0), &of(1)) {
            let least = 1.0 - WITHIN / median.max(WITHIN);
            let text = format!("within {} points of one central S3-FIFO ({least:.3}), our own", WITHIN * 100.0);
            let reason = format!("{:.3} of {median:.3}", Spread::of(&of(0)).map_or(0.0, |spread| spread.median));
            let claim = Some(Claim::at_least(least, &text, &spread, reason));
            findings.ratios.push(Ratio {
                what: "hits, adaptive over one S3-FIFO".into(),
                under: under.clone(),
                spread,
                claim,
            });
        }
        if let Some(spread) = Spread::ratio(&of(0), &of(2)) {
            findings.ratios.push(Ratio {
                what: "hits, adaptive over four LRU alone".into(),
                under: under.clone(),
                spread,
                claim: None,
            });
        }
        findings.notes.push(format!("{under}: {lines} lines of the trace, {COPIES} copies of each; the first part, in which the memory fills, is not counted."));
    }
    findings.notes.push(format!(
        "The set is {:.1} MB in all, an object counted with {BESIDE} bytes beside its value, in the simulated caches and where the nodes' memory is chosen. What a node keeps beside values is in its memory too. A request goes to a node at random.",
        all as f64 / 1e6
    ));
    let axis = |label: &str| Axis { label: label.to_owned(), logarithmic: false, bytes: false };
    let series = findings.lines(KINDS.map(str::to_owned), None);
    findings.panels.push(Panel {
        title: "hits".into(),
        x: axis("memory of all nodes (% of the set)"),
        y: axis("hits of requests"),
        series,
    });
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_of_one_length_and_the_first_part_is_not_counted() {
        let piece = |nth: u64| Found { hits: [nth, 1, 0], requests: 10 };
        let pieces: Vec<Found> = (0..23).map(piece).collect();
        let rounds = rounds(&pieces, 9);
        let all: Vec<([u64; 3], u64)> = rounds.iter().map(|found| (found.hits, found.requests)).collect();
        assert_eq!(all.len(), 9);
        assert!(all.iter().all(|(hits, requests)| hits[1] == 2 && *requests == 20), "{all:?}");
        assert_eq!((all[0].0[0], all[8].0[0]), (5 + 6, 21 + 22));
    }
}
