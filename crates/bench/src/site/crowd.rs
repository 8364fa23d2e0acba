//! Clients that read the pages of a site and check each answer, and editors that change pages by the application's own interface.
//!
//! A page says its version. An answer is stale that shows less than the version whose edit was confirmed before it was asked for.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use rand_core::Rng;
use rand_pcg::Pcg64;

use super::arms::{Arm, PAGES, Site};
use crate::error::BenchError;
use crate::traces::generator;
use crate::web::{Answer, Asker};

/// Clients that read, and editors. Editor `n` has the pages `n`, `n + EDITORS`, ...: a page has one writer at a time.
const READERS: usize = 4;
pub(super) const EDITORS: usize = 4;
/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(60);
/// From one try to the next of a page that is to come for the first time, and how long it may take.
const LOOK: Duration = Duration::from_millis(100);
/// In a page of MediaWiki stands the number of the request that made it.
const MADE_BY: &str = "\"wgRequestId\":\"";

/// What was counted in one turn.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Found {
    pub(super) answers: u64,
    pub(super) hits: u64,
    pub(super) stale: u64,
    /// Answers of the application's own cache that were not the page. They are none of `answers`.
    pub(super) broken: u64,
    pub(super) edits: u64,
    /// Edits that the application refused.
    pub(super) refused: u64,
    /// Until the last answer of the readers.
    pub(super) seconds: f64,
}

impl Found {
    pub(super) fn add(&mut self, other: Found) {
        self.answers += other.answers;
        self.hits += other.hits;
        self.stale += other.stale;
        self.broken += other.broken;
        self.edits += other.edits;
        self.refused += other.refused;
        self.seconds += other.seconds;
    }
}

/// An arm of a site, as its clients see it.
pub(super) struct Scene {
    site: Site,
    pub(super) arm: Arm,
    address: SocketAddr,
    /// The numbers of WordPress's posts.
    posts: Vec<u64>,
    /// Of each page, the version of the last edit that was sent, and of the last one that was confirmed.
    begun: [AtomicU64; PAGES],
    confirmed: [AtomicU64; PAGES],
    /// By which requests pages were made that were shown: the second time one is out of the application's own cache.
    makers: Mutex<HashSet<String>>,
    turns: AtomicU64,
}

impl Scene {
    pub(super) fn new(site: Site, arm: Arm, address: SocketAddr, posts: &[u64]) -> Self {
        Scene {
            site,
            arm,
            address,
            posts: posts.to_vec(),
            begun: Default::default(),
            confirmed: Default::default(),
            makers: Mutex::default(),
            turns: AtomicU64::new(0),
        }
    }

    /// Its name in the report.
    pub(super) fn name(&self) -> String {
        format!("{}, {}", self.site, self.arm.name())
    }

    fn failed(&self, doing: &str, reason: String) -> BenchError {
        BenchError::Target { doing: format!("{doing} ({})", self.name()), reason }
    }

    /// Waits until it shows each page. The first one takes seconds, while PHP compiles what it is made by.
    pub(super) fn ready(&self) -> Result<(), BenchError> {
        let mut asker = Asker::new(self.address, PATIENCE);
        let until = Instant::now() + PATIENCE;
        for page in 0..PAGES {
            loop {
                match self.read(&mut asker, page).map_err(|error| error.to_string()) {
                    Ok(answer) if version(&answer.body, page).is_some() => break,
                    Ok(answer) if Instant::now() > until => return Err(self.failed("show a page", answer.head)),
                    Err(error) if Instant::now() > until => return Err(self.failed("show a page", error)),
                    _ => std::thread::sleep(LOOK),
                }
            }
        }
        Ok(())
    }

    /// Reads as fast as answers come, with `rate` edits a second, for this long. `due` says how much of an edit is due at the beginning, and then at the end.
    pub(super) fn play(&self, rate: u32, length: Duration, due: &mut f64, seed: u64) -> Result<Found, BenchError> {
        let turn = self.turns.fetch_add(1, Ordering::Relaxed);
        let random = |nth: usize| generator(seed, 9_900 + u128::from(turn) * 16 + nth as u128);
        let edits = AtomicU64::new(0);
        let began = Instant::now();
        let until = began + length;
        let first = *due;
        // Waits until the next edit is due; `false`: not in this turn. One that was waited for is made, however late a busy machine wakes its editor.
        let next = || {
            let nth = edits.fetch_add(1, Ordering::Relaxed) as f64;
            let at = began + Duration::from_secs_f64((nth + 1.0 - first).max(0.0) / f64::from(rate));
            let is_due = at < until && Instant::now() < until;
            std::thread::sleep(at.min(until).saturating_duration_since(Instant::now()));
            is_due
        };
        let next = &next;
        let found = std::thread::scope(|scope| {
            let readers: Vec<_> =
                (0..READERS).map(|nth| scope.spawn(move || self.read_until(until, random(nth)))).collect();
            let editors: Vec<_> = (0..EDITORS)
                .map(|nth| scope.spawn(move || self.edit_while(next, nth, random(READERS + nth))))
                .collect();
            let mut found = joined(readers);
            let seconds = began.elapsed().as_secs_f64();
            let edited = joined(editors);
            if let (Ok(found), Ok(edited)) = (&mut found, &edited) {
                found.add(*edited);
                found.seconds = seconds;
            }
            edited.and(found)
        })?;
        *due = (first + f64::from(rate) * length.as_secs_f64()).fract();
        Ok(found)
    }

    fn read_until(&self, until: Instant, mut random: Pcg64) -> Result<Found, BenchError> {
        let mut asker = Asker::new(self.address, PATIENCE);
        let mut found = Found::default();
        while Instant::now() < until {
            let page = random.next_u64() as usize % PAGES;
            let least = self.confirmed[page].load(Ordering::Acquire);
            let failed = |reason| self.failed("show a page", reason);
            let answer = self.read(&mut asker, page).map_err(|error| failed(error.to_string()))?;
            let shown = version(&answer.body, page).filter(|_| answer.is_well());
            if shown.is_none() && answer.is_well() && self.arm == Arm::Own {
                found.broken += 1;
                continue;
            }
            let shown = shown.ok_or_else(|| failed(format!("page {page} was answered with {:?}", answer.head)))?;
            let most = self.begun[page].load(Ordering::Acquire);
            if shown > most {
                return Err(failed(format!("page {page} shows version {shown}, which was never written")));
            }
            found.answers += 1;
            found.hits += u64::from(self.is_hit(&answer));
            found.stale += u64::from(shown < least);
        }
        Ok(found)
    }

    fn read(&self, asker: &mut Asker, page: usize) -> std::io::Result<Answer> {
        let path = match self.site {
            Site::MediaWiki => format!("/index.php/Page_{page}"),
            Site::WordPress => format!("/?p={}", self.posts[page]),
        };
        asker.ask(&format!("GET {path} HTTP/1.1\r\nHost: {}", self.site.host()))
    }

    fn is_hit(&self, answer: &Answer) -> bool {
        if self.arm != Arm::Own {
            return answer.is_hit();
        }
        let body = String::from_utf8_lossy(&answer.body);
        let maker = body.split_once(MADE_BY).and_then(|(_, rest)| rest.split('"').next());
        let mut makers = self.makers.lock().unwrap_or_else(PoisonError::into_inner);
        maker.is_some_and(|maker| !makers.insert(maker.to_owned()))
    }

    fn edit_while(&self, next: impl Fn() -> bool, nth: usize, mut random: Pcg64) -> Result<Found, BenchError> {
        let mut asker = Asker::new(self.address, PATIENCE);
        let mut found = Found::default();
        while next() {
            let page = nth + EDITORS * (random.next_u64() as usize % (PAGES / EDITORS));
            let version = self.begun[page].fetch_add(1, Ordering::AcqRel) + 1;
            let (head, body) = self.edit(page, version);
            let answer = asker.ask_with(&head, &body);
            let answer = answer.map_err(|error| self.failed("edit a page", error.to_string()))?;
            if self.is_done(&answer) {
                self.confirmed[page].store(version, Ordering::Release);
                found.edits += 1;
            } else {
                found.refused += 1;
            }
        }
        Ok(found)
    }

    /// The request that changes a page.
    fn edit(&self, page: usize, version: u64) -> (String, String) {
        let host = self.site.host();
        match self.site {
            Site::MediaWiki => {
                let (one, other) = ((page + 1) % PAGES, (page + 2) % PAGES);
                let text =
                    format!("A+page:+version-{version}-of-{page}.+It+links+to+[[Page+{one}]]+and+[[Page+{other}]].");
                let body =
                    format!("action=edit&format=json&formatversion=2&title=Page+{page}&text={text}&token=%2B%5C");
                let kind = "application/x-www-form-urlencoded";
                (format!("POST /api.php HTTP/1.1\r\nHost: {host}\r\nContent-Type: {kind}"), body)
            }
            Site::WordPress => {
                let value = |kind: &str, value: &str| format!("<param><value><{kind}>{value}</{kind}></value></param>");
                let content = format!(
                    "<struct><member><name>post_content</name><value><string>version-{version}-of-{page}</string></value></member></struct>"
                );
                let parameters = [
                    value("int", "1"),
                    value("string", "admin"),
                    value("string", "one of many words"),
                    value("int", &self.posts[page].to_string()),
                    format!("<param><value>{content}</value></param>"),
                ];
                let body = format!(
                    "<methodCall><methodName>wp.editPost</methodName><params>{}</params></methodCall>",
                    parameters.concat()
                );
                (format!("POST /xmlrpc.php HTTP/1.1\r\nHost: {host}\r\nContent-Type: text/xml"), body)
            }
        }
    }

    /// Whether an answer confirms an edit.
    fn is_done(&self, answer: &Answer) -> bool {
        let says = match self.site {
            Site::MediaWiki => "\"result\":\"Success\"",
            Site::WordPress => "<boolean>1</boolean>",
        };
        answer.is_well() && String::from_utf8_lossy(&answer.body).contains(says)
    }
}

fn joined(threads: Vec<ScopedJoinHandle<Result<Found, BenchError>>>) -> Result<Found, BenchError> {
    let mut all = Found::default();
    for thread in threads {
        all.add(thread.join().expect("invariant: threads of the row do not panic")?);
    }
    Ok(all)
}

/// The version that a page shows.
fn version(body: &[u8], page: usize) -> Option<u64> {
    let (text, behind) = (String::from_utf8_lossy(body), format!("-of-{page}"));
    let mut parts = text.split("version-").skip(1);
    parts.find_map(|part| {
        let digits = part.find(|character: char| !character.is_ascii_digit())?;
        let (number, rest) = part.split_at(digits);
        let rest = rest.strip_prefix(&behind)?;
        (!rest.starts_with(|character: char| character.is_ascii_digit())).then(|| number.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_shows_its_version_alone() {
        let shown = |text: &str, page| version(text.as_bytes(), page);
        assert_eq!(shown("<p>version-12-of-3</p>", 3), Some(12));
        assert_eq!(shown("version-12-of-31 version-7-of-3.", 3), Some(7));
        assert_eq!((shown("version-12-of-31", 3), shown("version--of-3", 3), shown("", 3)), (None, None, None));
    }

    #[test]
    fn an_edit_is_confirmed_by_what_the_application_says() {
        let answer = |head: &str, body: &str| Answer { head: head.to_owned(), body: body.into() };
        let scene = |site| Scene::new(site, Arm::All, SocketAddr::from(([127, 0, 0, 1], 1)), &[0; PAGES]);
        let (wiki, blog) = (scene(Site::MediaWiki), scene(Site::WordPress));
        let well = "HTTP/1.1 200 OK\r\n";
        assert!(wiki.is_done(&answer(well, r#"{"edit":{"result":"Success"}}"#)));
        assert!(!wiki.is_done(&answer(well, r#"{"error":{"code":"readonly"}}"#)));
        assert!(!wiki.is_done(&answer("HTTP/1.1 500 No\r\n", r#"{"edit":{"result":"Success"}}"#)));
        assert!(blog.is_done(&answer(well, "<value>\n<boolean>1</boolean>")));
        assert!(!blog.is_done(&answer(well, "<fault>")));
    }

    #[test]
    fn a_page_of_the_applications_own_cache_is_a_hit_when_it_was_shown_before() {
        let scene = Scene::new(Site::MediaWiki, Arm::Own, SocketAddr::from(([127, 0, 0, 1], 1)), &[]);
        let answer = |maker: &str| Answer { head: String::new(), body: format!("{MADE_BY}{maker}\",").into() };
        let hits = ["a", "b", "a", "b", "c"].map(|maker| scene.is_hit(&answer(maker)));
        assert_eq!(hits, [false, false, true, true, false]);
    }
}
