//! What programs may do to their helper without end: leave answers in a ring, begin updates and not end them, name dependencies.
//! Each is bounded, refused by name where it is refused, and seen in the metrics.
#![allow(clippy::unwrap_used, reason = "a helper function of a test that cannot go on fails the test")]

mod common;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use verbena_client::wire::Request;
use verbena_content::service::Content;
use verbena_content::{MAX_DEPENDENCIES, Reader, ReaderLimits, Scope, Stamp, Start, Verdict, look};
use verbena_ipc::Connection;
use verbena_metrics::Registry;
use verbena_node::{Helper, Settings};
use verbena_terms::{BootClock, Clock, Time};

use common::{PATIENCE, within};

/// A helper that is alone and has its place, and what it counts.
struct Scene {
    settings: Settings,
    helper: Helper,
    registry: Arc<Registry>,
    _directory: tempfile::TempDir,
}

impl Scene {
    fn new(change: impl FnOnce(&mut Settings)) -> Scene {
        let directory = tempfile::tempdir().unwrap();
        let mut settings = common::settings(directory.path());
        change(&mut settings);
        let registry = Arc::new(Registry::new());
        let helper = Helper::start(&settings, vec![], registry.clone(), Box::new(|_| {})).unwrap();
        let scene = Scene { settings, helper, registry, _directory: directory };
        comes("a home that knows that nothing is open", || scene.gauge("verbena_content_awaiting") == 0.0);
        comes("a lease", || scene.helper.lease().in_effect_at(BootClock.now()).is_some());
        scene
    }

    fn counter(&self, name: &str) -> u64 {
        self.registry.snapshot(Time::ZERO).counter(name, &[]).unwrap()
    }

    fn gauge(&self, name: &str) -> f64 {
        self.registry.snapshot(Time::ZERO).gauge(name, &[]).unwrap()
    }

    /// Updates of this node that are open, at the application or with an unknown outcome.
    fn open(&self) -> f64 {
        self.gauge("verbena_content_updates_forwarded") + self.gauge("verbena_content_updates_unknown")
    }
}

fn comes(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = within();
    while !is_so() {
        assert!(BootClock.now() < until, "{what} does not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_program_that_takes_no_answers_fills_its_ring_and_stops_being_heard() {
    const ASKED: u64 = 200;
    let scene = Scene::new(|_| ());
    let path = scene.settings.socket().unwrap().path();
    let mut hoarder = Connection::connect(&path, within()).unwrap();
    for _ in 0..ASKED {
        hoarder.post(&Request::Metrics { from: 0 }.encode(), within()).unwrap();
    }
    comes("a full ring", || scene.counter("verbena_ipc_full_rings_total") == 1);
    // As many as the ring has room for, and one that is kept.
    let heard = scene.counter("verbena_ipc_requests_total");
    assert!(heard < ASKED, "{heard} requests were taken though no answer was");
    // Others do not notice.
    let mut other = Connection::connect(&path, within()).unwrap();
    other.call(&Request::Status.encode(), within()).unwrap();
    comes("the other's request", || scene.counter("verbena_ipc_requests_total") == heard + 1);
    assert_eq!(scene.gauge("verbena_ipc_clients"), 2.0);
    // Nothing was lost.
    for _ in 0..ASKED {
        hoarder.poll(within()).unwrap().unwrap().answer.unwrap();
    }
    comes("the last request", || scene.counter("verbena_ipc_requests_total") == ASKED + 1);
    scene.helper.stop().unwrap();
}

/// What the helper answers to a program's POST: status and body.
fn post(socket: &Path, target: &str, body: &str) -> (u16, String) {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let length = body.len();
    write!(stream, "POST {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

#[test]
fn updates_that_never_end_are_so_many_and_end_after_the_longest_transaction() {
    const MOST: usize = 256;
    let scene = Scene::new(|settings| settings.pages.longest_transaction.0 = Duration::from_secs(3));
    let (http, _) = scene.helper.http();
    for nth in 0..MOST {
        let begun = post(http, "/v1/updates", &format!(r#"{{"dependencies": ["row {nth}"]}}"#));
        assert_eq!(begun.0, 201, "{}", begun.1);
    }
    let (status, told) = post(http, "/v1/updates", r#"{"everything": true}"#);
    assert_eq!(status, 503, "{told}");
    assert!(told.contains("256 updates are open at this node"), "{told}");
    comes("the count", || scene.open() == MOST as f64);
    // At first somebody could still end them; then their outcome is unknown for as long again.
    comes("unknown outcomes", || scene.gauge("verbena_content_updates_unknown") == MOST as f64);
    assert_eq!(post(http, "/v1/updates/1/end", r#"{"outcome": "done"}"#).0, 404);
    comes("the end", || scene.open() == 0.0);
    assert_eq!(post(http, "/v1/updates", r#"{"everything": true}"#).0, 201);
    scene.helper.stop().unwrap();
}

/// Registers a page, as a proxy does.
async fn fill(content: &Content, page: &str, scope: Scope) -> Option<Stamp> {
    let id = content.names().page(page.as_bytes());
    let words = content.read(id)?.words().await?;
    let (lease, now) = (content.lease(), content.now());
    let mut reader = Reader::new(content.identity(), ReaderLimits::default());
    let Start::Lead(fill) = reader.start(&page.to_owned(), id, 0, Some(words), &lease, now) else { return None };
    let register = reader.answered(fill, scope, now).unwrap();
    let registered = content.register(register).await?;
    reader.registered(&registered, &content.lease(), content.now())?.stored.ok()
}

async fn verdict(content: &Content, page: &str, stamp: &Stamp) -> Verdict {
    let (posted, words) = content.read(content.names().page(page.as_bytes())).unwrap().words().await.unwrap();
    look(stamp, &words, posted, &content.lease(), content.now())
}

#[test]
fn a_flood_of_pages_with_many_dependencies_keeps_the_newest_and_serves_no_other() {
    const SETS: usize = 8;
    const PAGES: usize = 60;
    let scene = Scene::new(|settings| settings.pages.sets = SETS);
    let content = scene.helper.content().clone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let mut stamps = Vec::new();
        for page in 0..PAGES {
            let name = |nth| content.names().dependency(format!("{page}/{nth}").as_bytes());
            let scope = Scope::of((0..MAX_DEPENDENCIES).map(name));
            assert_ne!(scope, Scope::Everything);
            stamps.push(fill(&content, &page.to_string(), scope).await.unwrap());
        }
        for (page, stamp) in stamps.iter().enumerate() {
            let verdict = verdict(&content, &page.to_string(), stamp).await;
            // A word that two pages share moves for both.
            assert!(
                page + SETS >= PAGES || verdict != Verdict::Fresh,
                "nobody would tell copies of {page} of an update"
            );
            assert!(page + 1 < PAGES || verdict == Verdict::Fresh, "the newest is not kept: {verdict:?}");
        }
    });
    comes("the count", || scene.gauge("verbena_content_pages") == SETS as f64);
    comes("the count", || scene.gauge("verbena_content_dependencies") == (SETS * MAX_DEPENDENCIES) as f64);
    scene.helper.stop().unwrap();
}
