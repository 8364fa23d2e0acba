//! Clients that ask for pages and check them, and threads that change pages and purge them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rand_core::Rng;
use rand_pcg::Pcg64;
use verbena_client::api::Touched;
use verbena_client::{Place, Updates};

use super::caches::{Addresses, CACHES, Kind};
use crate::error::BenchError;
use crate::traces::generator;
use crate::web::Asker;
use crate::web::versions::{HOSTS, NUMBERS, OF_HOST, PAGES, SECTIONS, host, place, section, tag};

/// Threads of an arm that ask, and those that purge: one for each host.
pub(super) const CLIENTS: u64 = 4;
pub(super) const PURGERS: u64 = HOSTS;
/// From one purge of a host's pages to the next.
const EVERY: Duration = Duration::from_millis(17);
/// One that is so much behind does not catch up.
const BEHIND: Duration = Duration::from_secs(1);
/// Of a thousand purges: of a page, of a tag, of a prefix and of a host. The rest are of everything.
const OF_A_THOUSAND: [u64; 4] = [880, 60, 57, 2];
/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a client rests whose cache does not answer.
const REST: Duration = Duration::from_millis(5);

/// What was counted since the beginning.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) answers: AtomicU64,
    pub(super) hits: AtomicU64,
    /// Answers older than a purge that was acknowledged before they were asked for.
    pub(super) old: AtomicU64,
    pub(super) purged: AtomicU64,
    /// Purges that no fault was beside, and those of them that were acknowledged.
    pub(super) undisturbed: AtomicU64,
    pub(super) undisturbed_purged: AtomicU64,
}

/// An arm, as its clients see it.
pub(super) struct Scene {
    kind: Kind,
    at: Addresses,
    seed: u64,
    pub(super) counts: Counts,
    /// Of each page, the version that was acknowledged.
    acknowledged: Vec<AtomicU64>,
    /// Faults that began and ended: odd while one lasts.
    pub(super) faults: AtomicU64,
    pub(super) stop: AtomicBool,
}

fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Scene {
    pub(super) fn new(kind: Kind, at: Addresses, seed: u64) -> Self {
        let acknowledged = (0..PAGES).map(|_| AtomicU64::new(0)).collect();
        let (counts, faults, stop) = Default::default();
        Scene { kind, at, seed, counts, acknowledged, faults, stop }
    }

    fn random(&self, nth: u64) -> Pcg64 {
        generator(self.seed, 8_800 + u128::from(nth) + 100 * self.kind.name().len() as u128)
    }

    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    /// Asks for pages at all caches and checks each answer, until it is to stop.
    pub(super) fn ask(&self, nth: u64) -> Result<(), BenchError> {
        let mut random = self.random(nth);
        let mut caches = self.at.caches.map(|address| Asker::new(address, PATIENCE));
        while self.goes_on() {
            let page = random.next_u64() % PAGES;
            let (of_host, of_section, number) = place(page);
            let request = format!("GET {}/{number} HTTP/1.1\r\nHost: {}", section(of_section), host(of_host));
            let least = self.acknowledged[page as usize].load(Ordering::Acquire);
            let Ok(answer) = caches[(random.next_u64() % CACHES as u64) as usize].ask(&request) else {
                std::thread::sleep(REST);
                continue;
            };
            if !answer.is_well() {
                continue;
            }
            let version = version(&answer.body, page).ok_or_else(|| {
                let reason = format!("{request:?} was answered with {:?}", answer.head);
                BenchError::Target { doing: "show a page".to_owned(), reason }
            })?;
            add(&self.counts.answers);
            if answer.is_hit() {
                add(&self.counts.hits);
            }
            if version < least {
                add(&self.counts.old);
            }
        }
        Ok(())
    }

    /// Changes pages of a host and purges them, until it is to stop.
    pub(super) fn purge(&self, of_host: u64) -> Result<(), BenchError> {
        let failed = |reason: String| BenchError::Target { doing: "change pages".to_owned(), reason };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| failed(error.to_string()))?;
        let helpers = self.at.helpers.map(|address| Updates::at(Place::Loopback(address)).with_patience(PATIENCE));
        let mut caches = self.at.caches.map(|address| Asker::new(address, PATIENCE));
        let mut application = Asker::new(self.at.origin, PATIENCE);
        let mut random = self.random(100 + of_host);
        let mut versions = vec![0; PAGES as usize];
        let mut due = Instant::now();
        while self.goes_on() {
            let now = Instant::now();
            due = (due + EVERY).max(now.checked_sub(BEHIND).unwrap_or(now));
            std::thread::sleep(due.saturating_duration_since(now));
            let change = Change::choose(of_host, &mut random);
            let written = application.ask(&change.write()).map_err(|error| failed(error.to_string()))?;
            if !written.is_well() {
                return Err(failed(format!("the application said {:?}", written.head)));
            }
            change.pages().for_each(|page| versions[page as usize] += 1);
            let before = self.faults.load(Ordering::SeqCst);
            let nth = (random.next_u64() % CACHES as u64) as usize;
            let is_purged = match self.kind {
                Kind::Ours(_) => runtime.block_on(helpers[nth].purge_as(&change.touched())).is_ok(),
                Kind::Varnish => {
                    let request = change.request();
                    caches.iter_mut().all(|cache| cache.ask(&request).is_ok_and(|answer| answer.is_well()))
                }
            };
            if is_purged {
                add(&self.counts.purged);
                for page in change.pages() {
                    self.acknowledged[page as usize].fetch_max(versions[page as usize], Ordering::Release);
                }
            }
            if before.is_multiple_of(2) && self.faults.load(Ordering::SeqCst) == before {
                add(&self.counts.undisturbed);
                if is_purged {
                    add(&self.counts.undisturbed_purged);
                }
            }
        }
        Ok(())
    }
}

/// The version that a body says, if it is of this page.
fn version(body: &[u8], page: u64) -> Option<u64> {
    let text = std::str::from_utf8(body).ok()?;
    let (of, version) = text.lines().next()?.split_once(' ')?;
    (of.parse() == Ok(page)).then(|| version.parse().ok())?
}

/// Pages of one host that change together, and are purged together.
#[derive(Clone, Copy, Debug)]
struct Change {
    host: u64,
    which: Which,
    is_soft: bool,
}

#[derive(Clone, Copy, Debug)]
enum Which {
    Page(u64),
    Tag(u64),
    Section(u64),
    Host,
    /// The pages of the host change; those of all hosts are purged.
    Everything,
}

impl Change {
    fn choose(host: u64, random: &mut Pcg64) -> Self {
        let mut left = random.next_u64() % 1_000;
        let kind = OF_A_THOUSAND.iter().position(|share| {
            let is_it = left < *share;
            left = left.saturating_sub(*share);
            is_it
        });
        let which = match kind {
            Some(0) => Which::Page(random.next_u64() % OF_HOST),
            Some(1) => Which::Tag(random.next_u64() % NUMBERS),
            Some(2) => Which::Section(random.next_u64() % SECTIONS),
            Some(_) => Which::Host,
            None => Which::Everything,
        };
        Change { host, which, is_soft: random.next_u64().is_multiple_of(2) }
    }

    /// The first page, from each to the next, and how many.
    fn steps(self) -> (u64, u64, u64) {
        let first = self.host * OF_HOST;
        match self.which {
            Which::Page(page) => (first + page, 1, 1),
            Which::Tag(number) => (first + number, NUMBERS, SECTIONS),
            Which::Section(section) => (first + section * NUMBERS, 1, NUMBERS),
            Which::Host | Which::Everything => (first, 1, OF_HOST),
        }
    }

    fn pages(self) -> impl Iterator<Item = u64> {
        let (first, step, count) = self.steps();
        (0..count).map(move |nth| first + nth * step)
    }

    /// The request that changes them at the application.
    fn write(self) -> String {
        let (first, step, count) = self.steps();
        format!("POST /write/{first}/{step}/{count} HTTP/1.1\r\nHost: a\r\nContent-Length: 0")
    }

    fn path(self, page: u64) -> String {
        let (_, of_section, number) = place(page);
        format!("{}/{number}", section(of_section))
    }

    /// What the helper is asked for.
    fn touched(self) -> Touched {
        let at = |path: String| vec![format!("http://{}{path}", host(self.host))];
        let touched = Touched { soft: self.is_soft, ..Touched::default() };
        match self.which {
            Which::Page(page) => Touched { pages: at(self.path(page)), ..touched },
            Which::Tag(number) => Touched { dependencies: vec![tag(self.host, number)], ..touched },
            Which::Section(of) => Touched { prefixes: at(section(of)), ..touched },
            Which::Host => Touched { prefixes: at("/".to_owned()), ..touched },
            Which::Everything => Touched { everything: true, ..touched },
        }
    }

    /// What each Varnish is asked for.
    fn request(self) -> String {
        let host = host(self.host);
        let ban = match self.which {
            Which::Page(page) => return format!("PURGE {} HTTP/1.1\r\nHost: {host}", self.path(page)),
            Which::Tag(number) => format!("obj.http.cache-tag == {}", tag(self.host, number)),
            Which::Section(of) => format!("obj.http.x-host == {host} && obj.http.x-url ~ ^{}/", section(of)),
            Which::Host => format!("obj.http.x-host == {host}"),
            Which::Everything => "obj.http.x-host ~ .".to_owned(),
        };
        format!("BAN / HTTP/1.1\r\nHost: {host}\r\nX-Ban: {ban}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_is_what_is_purged() {
        let mut random = generator(1, 1);
        let mut seen = [false; 5];
        for _ in 0..20_000 {
            let change = Change::choose(2, &mut random);
            let (pages, touched): (Vec<u64>, Touched) = (change.pages().collect(), change.touched());
            assert!(pages.iter().all(|page| *page < PAGES && place(*page).0 == 2), "{change:?}");
            let (of_section, number) = (place(pages[0]).1, place(pages[0]).2);
            let kind = match change.which {
                Which::Page(_) => {
                    assert_eq!(touched.pages, [format!("http://h2.test{}/{number}", section(of_section))]);
                    0
                }
                Which::Tag(_) => {
                    assert!(pages.iter().all(|page| tag(2, place(*page).2) == touched.dependencies[0]));
                    assert_eq!(pages.len() as u64, SECTIONS);
                    1
                }
                Which::Section(_) => {
                    assert_eq!(touched.prefixes, [format!("http://h2.test{}", section(of_section))]);
                    2
                }
                Which::Host => 3,
                Which::Everything => 4,
            };
            seen[kind] = true;
        }
        assert_eq!(seen, [true; 5]);
        assert_eq!((version(b"12 7\n...", 12), version(b"12 7\n...", 13), version(b"", 0)), (Some(7), None, None));
    }
}
