//! `replay`: a client that asks for a shop's pages as a key trace did for its objects, in that order, while others sell what the trace makes
//! popular. It takes orders, so that one process replays for all variants of a row.
//!
//! Each key is a product. After a fixed number of requests one product is changed; requests wait where updates do not
//! keep up.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use clap::Parser;
use rand_core::Rng;
use serde::{Deserialize, Serialize};

use super::asker::Asker;
use super::checked::Checked;
use super::closed::Client;
use super::products::{self, LARGEST_BYTES, SMALLEST_BYTES};
use super::requests::{Page, Requests};
use super::threads;
use super::updating::{self, Acknowledged};
use crate::child::{Answer, hear, say};
use crate::traces::{KeyReader, TraceError, generator, open};

pub(crate) const ROLE: &str = "replay";

/// Requests under way at once: so few that what comes next in the trace seldom overtakes what it would have found in the cache.
pub(crate) const CONNECTIONS: usize = 4;

/// Updates under way at once, and as many more that wait for their turn.
const UPDATES: usize = 2;

/// What updates are drawn by, apart from all that traces are drawn by.
const DRAWN: u128 = 0x6b65_7973;

#[derive(Parser)]
struct Part {
    /// The trace.
    #[arg(long)]
    trace: PathBuf,
    /// Only so many requests from its start.
    #[arg(long)]
    first: usize,
    /// Where randomness starts.
    #[arg(long)]
    seed: u64,
    /// Requests for an update.
    #[arg(long)]
    every: usize,
}

/// A key trace with numbers for keys, in the order in which they are first asked for.
#[derive(Debug, PartialEq)]
pub(crate) struct KeyTrace {
    /// Bytes of each product's page.
    pub(crate) bytes: Vec<usize>,
    /// What is asked for.
    pub(crate) order: Vec<u32>,
    /// Objects that were smaller or larger than a page may be.
    pub(crate) fitted: usize,
}

impl KeyTrace {
    /// The first requests of a CSV with the columns `time_s`, `key` and `size_bytes`. An object has the size that it has first.
    pub(crate) fn read(path: &Path, first: usize) -> Result<Self, TraceError> {
        let (name, file) = open(path)?;
        let mut numbers: HashMap<String, u32> = HashMap::new();
        let mut trace = KeyTrace { bytes: Vec::new(), order: Vec::new(), fitted: 0 };
        for request in KeyReader::new(name, file)?.take(first) {
            let request = request?;
            let next = trace.bytes.len() as u32;
            let number = *numbers.entry(request.key).or_insert(next);
            if number == next {
                let bytes = request.size_bytes.clamp(SMALLEST_BYTES, LARGEST_BYTES);
                trace.fitted += usize::from(bytes != request.size_bytes);
                trace.bytes.push(bytes as usize);
            }
            trace.order.push(number);
        }
        Ok(trace)
    }

    /// What is changed: after `every` requests the first, and so on, each drawn from what is asked for, as often as it is.
    pub(crate) fn updates(&self, seed: u64, every: usize) -> Vec<u32> {
        let mut random = generator(seed, DRAWN);
        let draw = |_| self.order[(random.next_u64() % self.order.len() as u64) as usize];
        (0..self.order.len() / every).map(draw).collect()
    }
}

/// What to replay: a stretch of the trace.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Stretch {
    /// The server to ask.
    pub(crate) address: SocketAddr,
    /// From this request on, counted from 0.
    pub(crate) from: usize,
    /// The first that is no longer asked for.
    pub(crate) until: usize,
    /// Whether there are updates beside it.
    pub(crate) updates: bool,
}

/// What came of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Replayed {
    pub(crate) answers: u64,
    /// Of the answers, those that came out of a cache.
    pub(crate) hits: u64,
    /// Updates that were acknowledged.
    pub(crate) updates: u64,
    #[serde(flatten)]
    pub(crate) held: Checked,
}

pub(super) fn serve(arguments: &[String]) -> Result<(), String> {
    let part: Part = threads::part(ROLE, arguments)?;
    let trace = KeyTrace::read(&part.trace, part.first).map_err(|error| error.to_string())?;
    let updates = trace.updates(part.seed, part.every);
    let page =
        |(product, bytes): (u32, &usize)| Page { path: products::path(product), bytes: *bytes, objects: vec![product] };
    let requests = Requests { pages: (0..).zip(&trace.bytes).map(page).collect(), order: trace.order };
    let mut acknowledged: HashMap<SocketAddr, Arc<Acknowledged>> = HashMap::new();
    while let Some(stretch) = hear::<Stretch>()? {
        let products = requests.pages.len();
        let known = acknowledged.entry(stretch.address).or_insert_with(|| Arc::new(Acknowledged::none_of(products)));
        say(&match replay(&stretch, &requests, &updates, part.every, known) {
            Ok(replayed) => Answer::Done(replayed),
            Err(reason) => Answer::Failed(reason),
        })?;
    }
    Ok(())
}

fn replay(
    stretch: &Stretch,
    requests: &Requests,
    updates: &[u32],
    every: usize,
    acknowledged: &Arc<Acknowledged>,
) -> Result<Replayed, String> {
    let client = Client::new(stretch.address, CONNECTIONS, true, requests, acknowledged)?;
    let updaters = Updaters::start(stretch.address, acknowledged);
    let (mut next, mut changed) = (stretch.from, stretch.from / every);
    let counted = client.count(|| {
        if stretch.updates && changed < next / every {
            updaters.change(updates[changed]);
            changed += 1;
        }
        let page = (next < stretch.until).then(|| requests.order[next] as usize);
        next += usize::from(page.is_some());
        page
    });
    let updates = updaters.end();
    let (counted, updates) = (counted?, updates?);
    Ok(Replayed { answers: counted.answers, hits: counted.hits, updates, held: counted.held })
}

/// Those who change products, on connections of their own.
struct Updaters {
    orders: SyncSender<u32>,
    threads: Vec<JoinHandle<Result<u64, String>>>,
}

impl Updaters {
    fn start(address: SocketAddr, acknowledged: &Arc<Acknowledged>) -> Self {
        let (orders, waiting) = sync_channel(UPDATES);
        let waiting = Arc::new(Mutex::new(waiting));
        let thread = |_| {
            let (waiting, acknowledged) = (Arc::clone(&waiting), Arc::clone(acknowledged));
            std::thread::spawn(move || update(address, &waiting, &acknowledged))
        };
        Updaters { orders, threads: (0..UPDATES).map(thread).collect() }
    }

    /// Waits where too many wait already.
    fn change(&self, product: u32) {
        // If no seller is left to take it they all have failed, which the end reports.
        let _ = self.orders.send(product);
    }

    /// When all is acknowledged. How many there were.
    fn end(self) -> Result<u64, String> {
        drop(self.orders);
        let each =
            self.threads.into_iter().map(|thread| thread.join().map_err(|_| "an updater panicked".to_owned())?);
        each.sum()
    }
}

fn update(address: SocketAddr, waiting: &Mutex<Receiver<u32>>, acknowledged: &Acknowledged) -> Result<u64, String> {
    let mut client = Asker::new(address, updating::PATIENCE);
    let mut done = 0;
    loop {
        let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(product) = next else { return Ok(done) };
        let version = updating::change(&mut client, address, &products::path(product))?;
        acknowledged.note(product, version);
        done += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_become_products_in_the_order_of_the_trace() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("trace");
        std::fs::write(&file, "time_s,key,size_bytes\n1,b,100\n1,a,7\n2,b,120\n3,c,99999\n4,a,7\n5,d,50\n").unwrap();
        let read = |first| KeyTrace::read(&file, first).unwrap();
        assert_eq!(read(5), KeyTrace { bytes: vec![100, 40, 16_384], order: vec![0, 1, 0, 2, 1], fitted: 2 });
        assert_eq!(read(usize::MAX).order, [0, 1, 0, 2, 1, 3]);
        std::fs::write(&file, "time_s,key,size_bytes\n1,b,100\n1,a,x\n").unwrap();
        let error = KeyTrace::read(&file, 9).unwrap_err().to_string();
        assert!(error.contains("line 3, column 5"), "{error}");
    }

    #[test]
    fn updates_are_as_popular_as_requests() {
        let order: Vec<u32> = (0..10_000).map(|at| if at % 4 == 0 { at } else { 0 }).collect();
        let trace = KeyTrace { bytes: vec![40; 10_000], order, fitted: 0 };
        let updates = trace.updates(1, 10);
        assert_eq!((updates.len(), &updates), (1_000, &trace.updates(1, 10)));
        assert_ne!(updates, trace.updates(2, 10));
        let first = updates.iter().filter(|product| **product == 0).count();
        assert!((650..850).contains(&first), "{first} of 1,000, where three of four requests are for it");
    }
}
