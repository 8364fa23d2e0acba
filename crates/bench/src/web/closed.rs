//! `closed`: a client with some connections, each of which asks for the next page as soon as it has the one before. It takes orders, so that
//! one process measures all variants of a row.
//!
//! Every answer is looked at: its status, its length, whose page it is, and, where pages change, whether it shows every update that was
//! acknowledged before it was asked for.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use serde::{Deserialize, Serialize};

use super::checked::Checked;
use super::connection::{Answered, BUFFER, Connection, open_all, wait};
use super::requests::{Page, Requests, Workload};
use super::threads;
use super::updating::{Acknowledged, Stream, Updating};
use crate::child::{Answer, hear, say};
use crate::stats::RoundSummary;

pub(crate) const ROLE: &str = "closed";

/// An answer that is later than this is not waited for.
const PATIENCE: Duration = Duration::from_secs(15);

/// Longer than anything is measured.
const ALWAYS: Duration = Duration::from_secs(1 << 20);

/// Of a stretch: the rest of it is measured.
const WARMING: f64 = 0.2;
/// At least this part of its length is left for a stretch, however long it took to ask for every page.
const LEAST: f64 = 0.5;

#[derive(Parser)]
struct Part {
    /// Where randomness starts.
    #[arg(long)]
    seed: u64,
}

/// An order to a client.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    /// The server to ask.
    pub(crate) address: SocketAddr,
    pub(crate) workload: Workload,
    /// Whether a cache may answer. If not, requests say `no-store`.
    pub(crate) cached: bool,
    pub(crate) connections: usize,
    /// Ask for every page once before anything counts, or for as many as can be asked for in this time.
    pub(crate) sweep: Duration,
    /// Updates beside it.
    pub(crate) updates: Option<Stream>,
    /// How long, in all.
    pub(crate) length: Duration,
}

/// What it found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Found {
    /// Answers a second.
    pub(crate) per_s: f64,
    /// Of 1, those that did not come out of a cache.
    pub(crate) misses: f64,
    /// Microseconds from a request to the end of its answer.
    pub(crate) latency_us: RoundSummary,
    /// The mean of the same.
    pub(crate) mean_us: f64,
    /// Updates that were acknowledged a second.
    pub(crate) updates_per_s: f64,
    #[serde(flatten)]
    pub(crate) held: Checked,
}

pub(super) fn serve(arguments: &[String]) -> Result<(), String> {
    let part: Part = threads::part(ROLE, arguments)?;
    let mut workloads: Vec<(Workload, Arc<Asked>)> = Vec::new();
    let mut acknowledged: HashMap<SocketAddr, Arc<Acknowledged>> = HashMap::new();
    let mut turn = 0;
    while let Some(order) = hear::<Order>()? {
        turn += 1;
        let asked = match workloads.iter().find(|(workload, _)| *workload == order.workload) {
            Some((_, asked)) => Arc::clone(asked),
            None => {
                let requests = order.workload.requests(part.seed).map_err(|error| error.to_string())?;
                let asked = Arc::new(Asked { requests, next: turn.into() });
                workloads.push((order.workload, Arc::clone(&asked)));
                asked
            }
        };
        let acknowledged = Arc::clone(acknowledged.entry(order.address).or_default());
        let updating = order
            .updates
            .map(|stream| Updating::start(order.address, stream, part.seed ^ (turn << 32), Arc::clone(&acknowledged)));
        let client = Client::new(order.address, order.connections, order.cached, &asked.requests, &acknowledged);
        let found = client.and_then(|client| client.run(&order, &asked.next));
        let updates = updating.map_or(Ok(0.0), Updating::end);
        say(&match (found, updates) {
            (Ok(found), Ok(updates_per_s)) => Answer::Done(Found { updates_per_s, ..found }),
            (Err(reason), _) | (_, Err(reason)) => Answer::Failed(reason),
        })?;
    }
    Ok(())
}

/// A workload and how far it is: a stretch goes on where the last one with it ended.
struct Asked {
    requests: Requests,
    next: AtomicU64,
}

/// Asks, and looks at the answers.
pub(super) struct Client<'a> {
    asked: &'a Requests,
    acknowledged: &'a Acknowledged,
    epoll: OwnedFd,
    places: Vec<Place>,
    scratch: Vec<u8>,
    /// Each page's request, in full.
    requests: Vec<Vec<u8>>,
    counted: Counted,
}

struct Place {
    connection: Connection,
    page: usize,
    since: Instant,
    /// What had been acknowledged of the page's objects when it was asked for.
    least: Vec<u64>,
}

/// What was seen so far.
#[derive(Default)]
pub(super) struct Counted {
    /// Answers that come then count. If none does, the next one after it does.
    within: Option<(Instant, Instant)>,
    last: Option<Instant>,
    pub(super) answers: u64,
    pub(super) hits: u64,
    times_us: Vec<f64>,
    pub(super) held: Checked,
}

impl<'a> Client<'a> {
    /// One that asks at `address` for what `asked` holds; if a cache may not answer, requests say `no-store`.
    pub(super) fn new(
        address: SocketAddr,
        connections: usize,
        cached: bool,
        asked: &'a Requests,
        acknowledged: &'a Acknowledged,
    ) -> Result<Self, String> {
        let (epoll, connections) = open_all(address, connections)?;
        let place = |connection| Place { connection, page: 0, since: Instant::now(), least: Vec::new() };
        let places = connections.into_iter().map(place).collect();
        let control = if cached { "" } else { "Cache-Control: no-store\r\n" };
        let request =
            |page: &Page| format!("GET {} HTTP/1.1\r\nHost: {address}\r\n{control}\r\n", page.path).into_bytes();
        let requests = asked.pages.iter().map(request).collect();
        let scratch = vec![0; BUFFER];
        Ok(Client { asked, acknowledged, epoll, places, scratch, requests, counted: Counted::default() })
    }

    /// Asks for what `next` names until it names no more; every answer counts.
    pub(super) fn count(mut self, mut next: impl FnMut() -> Option<usize>) -> Result<Counted, String> {
        let from = Instant::now();
        self.counted.within = Some((from, from + ALWAYS));
        self.ask(|_| next())?;
        Ok(self.counted)
    }

    /// Asks for as long as `order` says, from where the last one of this workload ended.
    fn run(mut self, order: &Order, next: &AtomicU64) -> Result<Found, String> {
        let begun = Instant::now();
        if order.sweep > Duration::ZERO {
            let mut pages = 0..self.requests.len();
            self.ask(|now| if now < begun + order.sweep { pages.next() } else { None })?;
        }
        let left = order.length.saturating_sub(begun.elapsed()).max(order.length.mul_f64(LEAST));
        let from = Instant::now() + left.mul_f64(WARMING);
        let until = from + left.mul_f64(1.0 - WARMING);
        self.counted.within = Some((from, until));
        let asked = self.asked;
        let next = move || {
            let at = next.fetch_add(1, Ordering::Relaxed) as usize;
            asked.order[at % asked.order.len()] as usize
        };
        // On a machine that is too busy to begin in time, one answer on each connection is measured.
        let mut fewest = self.places.len();
        self.ask(|now| {
            let more = fewest > 0 || now < until;
            fewest = fewest.saturating_sub(1);
            more.then(&next)
        })?;
        let Counted { answers, hits, mut times_us, held, last, .. } = self.counted;
        let seconds = last.map_or(until, |last| last.max(until)).saturating_duration_since(from).as_secs_f64();
        let mean_us = times_us.iter().sum::<f64>() / times_us.len().max(1) as f64;
        let latency_us = RoundSummary::of(&mut times_us).ok_or("nothing was answered")?;
        Ok(Found {
            per_s: answers as f64 / seconds,
            misses: 1.0 - hits as f64 / answers as f64,
            latency_us,
            mean_us,
            updates_per_s: 0.0,
            held,
        })
    }

    /// Asks on every connection for what `next` names, until it names no more and all is answered. When that was.
    fn ask(&mut self, mut next: impl FnMut(Instant) -> Option<usize>) -> Result<Instant, String> {
        let mut under_way = 0;
        let mut now = Instant::now();
        for at in 0..self.places.len() {
            under_way += usize::from(self.send(at, now, next(now))?);
        }
        let mut events = Vec::with_capacity(64);
        while under_way > 0 {
            if !wait(&self.epoll, &mut events, PATIENCE)? {
                return Err(format!("{under_way} requests were not answered within {PATIENCE:?}"));
            }
            for event in &events {
                let at = event.data.u64() as usize;
                now = Instant::now();
                if self.receive(at, now)? {
                    under_way -= usize::from(!self.send(at, now, next(now))?);
                }
            }
        }
        Ok(now)
    }

    fn send(&mut self, at: usize, now: Instant, page: Option<usize>) -> Result<bool, String> {
        let Some(page) = page else { return Ok(false) };
        let place = &mut self.places[at];
        place.page = page;
        place.since = now;
        self.acknowledged.of(&self.asked.pages[page].objects, &mut place.least);
        place.connection.send(&self.requests[page])?;
        Ok(true)
    }

    /// Whether that was a whole answer.
    fn receive(&mut self, at: usize, now: Instant) -> Result<bool, String> {
        let place = &mut self.places[at];
        let page = &self.asked.pages[place.page];
        let Some(answered) = place.connection.receive(&mut self.scratch)? else { return Ok(false) };
        let lacks = lacking(page, &place.least, &answered)?;
        let counted = &mut self.counted;
        counted.held.checked += u64::from(!page.objects.is_empty());
        if let Some(lacks) = lacks {
            counted.held.stale += 1;
            counted.held.stale_one = lacks;
        }
        let counts = |(from, until)| now >= from && (now < until || counted.answers == 0);
        if counted.within.is_some_and(counts) {
            counted.last = Some(now);
            counted.answers += 1;
            counted.hits += u64::from(answered.hit);
            counted.times_us.push(now.duration_since(place.since).as_secs_f64() * 1e6);
        }
        Ok(true)
    }
}

/// What an answer lacks of what had been acknowledged when it was asked for; an error if it is no such page at all.
///
/// A page begins with a line that is its path. Behind it, if it is made of objects, stands a line with their versions.
fn lacking(page: &Page, least: &[u64], answered: &Answered) -> Result<Option<String>, String> {
    let wrong = |what: &str| format!("{}: {what}", page.path);
    if answered.length != page.bytes {
        return Err(wrong(&format!("{} bytes came, and not {}", answered.length, page.bytes)));
    }
    let name = page.path.as_bytes();
    let name = &name[..name.len().min(page.bytes)];
    let Some(rest) = answered.beginning.strip_prefix(name) else { return Err(wrong("another page came")) };
    if least.is_empty() {
        return Ok(None);
    }
    let mut versions = rest.get(1..).unwrap_or_default().split(|byte| *byte == b'\n').next().unwrap_or_default();
    for (object, least) in page.objects.iter().zip(least) {
        let digits = versions.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 0 {
            return Err(wrong("it does not say how new it is"));
        }
        let version = versions[..digits].iter().fold(0_u64, |version, digit| version * 10 + u64::from(digit - b'0'));
        if version < *least {
            return Ok(Some(wrong(&format!("version {version} of object {object} after {least} was acknowledged"))));
        }
        versions = versions.get(digits + 1..).unwrap_or_default();
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_answer_lacks_is_seen() {
        let page = Page { path: "/page/2/7".to_owned(), bytes: 40, objects: vec![7, 44] };
        let lacks =
            |least: &[u64], beginning: &[u8], length| lacking(&page, least, &Answered { hit: true, length, beginning });
        let good = b"/page/2/7\n12 5\nand so on";
        assert_eq!(lacks(&[12, 5], good, 40), Ok(None));
        assert_eq!(lacks(&[0, 0], good, 40), Ok(None));
        let stale = lacks(&[12, 6], good, 40).unwrap().unwrap();
        assert_eq!(stale, "/page/2/7: version 5 of object 44 after 6 was acknowledged");
        assert!(lacks(&[13, 0], good, 40).unwrap().is_some());
        assert!(lacks(&[12, 5], good, 39).is_err(), "too short");
        assert!(lacks(&[12, 5], b"/page/2/8\n12 5\n", 40).is_err(), "another page");
        assert!(lacks(&[12, 5], b"/page/2/7\n12\n5", 40).is_err(), "a version is missing");
    }
}
