//! What programs may do to their helper without end: leave answers in a ring, begin updates and not end them, name dependencies, stage values and not put them.
//! Each is bounded, refused by name where it is refused, and seen in the metrics.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use verbena_content::service::Content;
use verbena_content::{MAX_DEPENDENCIES, Reader, ReaderLimits, Scope, Stamp, Start, Verdict, look};
use verbena_ipc::Connection;
use verbena_metrics::Registry;
use verbena_node::{Helper, Settings};
use verbena_protocol::memory::{Failure, MemoryAnswer, MemoryRequest, NewSegment, VALUE_PART_BYTES, Which};
use verbena_protocol::wire::{Answer, LockAnswer, LockMode, LockRequest, Request};
use verbena_terms::{BootClock, Clock, Time};

use crate::common::{self, PATIENCE, within};

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
    let Start::Lead(fill) =
        reader.start(&page.to_owned(), (id, verbena_content::Kind::Coherent), 0, Some(words), &lease, now)
    else {
        return None;
    };
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

/// A program that asks for things of memory, one after the other.
struct Asker(Connection);

impl Asker {
    fn at(settings: &Settings) -> Asker {
        Asker(Connection::connect(&settings.socket().unwrap().path(), within()).unwrap())
    }

    fn asks(&mut self, asked: MemoryRequest) -> MemoryAnswer {
        self.asks_within(PATIENCE, asked)
    }

    fn asks_within(&mut self, patience: Duration, asked: MemoryRequest) -> MemoryAnswer {
        let patience_ms = patience.as_millis() as u64;
        let answer = self.0.call(&Request::Memory { patience_ms, asked }.encode(), within() + patience).unwrap();
        match Answer::decode(&answer).unwrap() {
            Answer::Memory(answer) => answer,
            other => panic!("{other:?}"),
        }
    }

    /// Stages so many bytes, in parts. The answer to the last of them, or the first that is a refusal.
    fn stages(&mut self, bytes: usize) -> MemoryAnswer {
        let froms = (0..bytes).step_by(VALUE_PART_BYTES);
        let mut answer = MemoryAnswer::Staged;
        for from in froms {
            let part = vec![7; VALUE_PART_BYTES.min(bytes - from)];
            answer = self.asks(MemoryRequest::Stage { from: from as u64, bytes: part });
            if answer != MemoryAnswer::Staged {
                break;
            }
        }
        answer
    }
}

const VALUES: &str = "verbena_memory_programs_bytes";
const LONG: usize = 16 << 20;

#[test]
fn values_that_are_staged_and_never_put_are_so_many_and_end_with_their_programs() {
    const MOST: usize = 16;
    let scene = Scene::new(|_| ());
    let mut programs: Vec<Asker> = (0..MOST).map(|_| Asker::at(&scene.settings)).collect();
    programs.iter_mut().for_each(|program| assert_eq!(program.stages(LONG), MemoryAnswer::Staged));
    assert_eq!(scene.gauge(VALUES), (MOST * LONG) as f64);
    let mut another = Asker::at(&scene.settings);
    let (why, text) = refused(another.stages(LONG));
    assert!(why == Failure::Unavailable && text.contains("268435456 bytes are on their way"), "{why:?}: {text}");
    // Who begins anew has the room of what it staged before.
    assert_eq!(programs[0].stages(LONG), MemoryAnswer::Staged);
    // What is short is not staged, and goes.
    let new = NewSegment::of(8).named("short");
    assert!(matches!(another.asks(MemoryRequest::Allocate(new)), MemoryAnswer::Allocated(_)));
    let (which, bytes) = (Which::Name("short".into()), vec![1; 8]);
    let put = another.asks(MemoryRequest::Put { which, offset: 0, is_staged: false, bytes, over: None });
    assert!(matches!(put, MemoryAnswer::Put(_)), "{put:?}");
    drop(programs);
    comes("room", || scene.gauge(VALUES) == 0.0);
    assert_eq!(another.stages(LONG), MemoryAnswer::Staged);
    scene.helper.stop().unwrap();
}

#[test]
fn a_value_that_is_not_fetched_ends_with_its_program() {
    let scene = Scene::new(|_| ());
    let mut program = Asker::at(&scene.settings);
    let new = NewSegment::of(1 << 20).named("long");
    assert!(matches!(program.asks(MemoryRequest::Allocate(new)), MemoryAnswer::Allocated(_)));
    let get = MemoryRequest::Get { which: Which::Name("long".into()), offset: 0, length: None, shelf: 1 };
    assert!(matches!(program.asks(get), MemoryAnswer::Value { bytes: 1_048_576, .. }));
    assert_eq!(scene.gauge(VALUES), f64::from(1 << 20));
    drop(program);
    comes("room", || scene.gauge(VALUES) == 0.0);
    scene.helper.stop().unwrap();
}

/// One of two, of which the other is not there: requests wait for a view, which does not come.
fn one_that_waits() -> Scene {
    let directory = tempfile::tempdir().unwrap();
    let mut settings = common::settings(directory.path());
    (settings.cluster.name, settings.cluster.members) = (Some("b".into()), common::members(&["a", "b"]));
    let registry = Arc::new(Registry::new());
    let helper = Helper::start(&settings, vec![], registry.clone(), Box::new(|_| {})).unwrap();
    Scene { settings, helper, registry, _directory: directory }
}

#[test]
fn a_value_that_is_put_counts_until_its_program_is_answered() {
    let scene = one_that_waits();
    let gauge = || scene.gauge(VALUES);
    let mut program = Asker::at(&scene.settings);
    assert_eq!(program.stages(LONG), MemoryAnswer::Staged);
    let waits = std::thread::spawn(move || {
        let (which, patience) = (Which::Name("none".into()), Duration::from_secs(2));
        let put = MemoryRequest::Put { which, offset: 0, is_staged: true, bytes: vec![1], over: None };
        (program.asks_within(patience, put), program.stages(1), program)
    });
    let mut seen = vec![];
    while !waits.is_finished() {
        seen.push(gauge());
        std::thread::sleep(Duration::from_millis(20));
    }
    let (answer, _, program) = waits.join().unwrap();
    assert!(matches!(answer, MemoryAnswer::Failed(Failure::Late, _)), "{answer:?}");
    // The last looks may be after its end.
    let counted = seen.iter().filter(|bytes| **bytes == LONG as f64).count();
    assert!(counted >= 5 && counted + 2 >= seen.len(), "{seen:?}");
    assert_eq!(gauge(), 1.0);
    drop(program);
    comes("room", || gauge() == 0.0);
    scene.helper.stop().unwrap();
}

/// Why it is refused.
fn refused(answer: MemoryAnswer) -> (Failure, String) {
    let MemoryAnswer::Failed(why, text) = answer else { panic!("{answer:?}") };
    (why, text)
}

#[test]
fn segments_beyond_a_homes_words_are_refused() {
    let scene = Scene::new(|settings| settings.memory.segments = 3);
    let mut program = Asker::at(&scene.settings);
    for _ in 0..3 {
        assert!(matches!(program.asks(MemoryRequest::Allocate(NewSegment::of(8))), MemoryAnswer::Allocated(_)));
    }
    let (why, text) = refused(program.asks(MemoryRequest::Allocate(NewSegment::of(8).named("one more"))));
    assert!(why == Failure::NoRoom && text.contains('3'), "{why:?}: {text}");
    let (why, _) = refused(program.asks(MemoryRequest::Stat(Which::Name("one more".into()))));
    assert_eq!(why, Failure::NotFound);
    scene.helper.stop().unwrap();
}

#[test]
fn requests_beyond_those_that_may_wait_are_refused_at_once() {
    /// At a node, and of one program.
    const MOST: usize = 8192;
    const EACH: usize = 64;
    let scene = one_that_waits();
    let get = MemoryRequest::Stat(Which::Name("none".into()));
    let asked = Request::Memory { patience_ms: 60_000, asked: get.clone() }.encode();
    let mut programs: Vec<Connection> = vec![];
    for _ in 0..MOST / EACH {
        let mut program = Connection::connect(&scene.settings.socket().unwrap().path(), within()).unwrap();
        (0..EACH).for_each(|_| _ = program.post(&asked, within()).unwrap());
        programs.push(program);
    }
    comes("the last", || scene.counter("verbena_ipc_requests_total") == MOST as u64);
    let (why, text) = refused(Asker::at(&scene.settings).asks(get.clone()));
    assert!(why == Failure::Unavailable && text.contains("8192"), "{why:?}: {text}");
    // The others wait.
    assert!(programs.iter_mut().all(|program| program.poll(Time::ZERO).unwrap().is_none()));
    scene.helper.stop().unwrap();
}

#[test]
fn a_node_that_leaves_begins_nothing() {
    let scene = Scene::new(|settings| settings.pages.longest_transaction.0 = Duration::from_secs(3));
    let mut program = Asker::at(&scene.settings);
    let new = NewSegment::of(8).named("kept");
    assert!(matches!(program.asks(MemoryRequest::Allocate(new)), MemoryAnswer::Allocated(_)));
    // It stays until this has ended.
    let (http, _) = scene.helper.http();
    assert_eq!(post(http, "/v1/updates", r#"{"everything": true}"#).0, 201);
    let helper = scene.helper;
    let leaves = std::thread::spawn(move || helper.stop());
    let until = within();
    let (why, text) = loop {
        match program.asks(MemoryRequest::Stat(Which::Name("kept".into()))) {
            MemoryAnswer::Failed(why, text) => break (why, text),
            answer => assert!(BootClock.now() < until, "{answer:?}"),
        }
    };
    assert!(why == Failure::Unavailable && text.contains("leaving the cluster"), "{why:?}: {text}");
    leaves.join().unwrap().unwrap();
}

/// The bytes of a request are a program's own: what is no request is refused, and what comes after it is not.
#[test]
fn a_mode_that_is_none_is_refused_and_nothing_is_held() {
    let scene = Scene::new(|_| {});
    let mut program = Connection::connect(&scene.settings.socket().unwrap().path(), within()).unwrap();
    let acquire = |ticket| {
        let name = b"x".to_vec();
        Request::Lock(LockRequest::Acquire { ticket, name, mode: LockMode::Exclusive, is_try: true }).encode()
    };
    let mut call = |bytes: &[u8]| Answer::decode(&program.call(bytes, within()).unwrap()).unwrap();
    let right = acquire(1);
    // The mode is the last byte but one.
    let at = right.len() - 2;
    assert_eq!(right[at..], [1, 1], "the mode and that it is a try");
    for mode in [2, 3, 0x7f, 0xff] {
        let mut wrong = right.clone();
        wrong[at] = mode;
        let answer = call(&wrong);
        assert!(matches!(&answer, Answer::Refused(why) if why.contains("cannot be read")), "{mode}: {answer:?}");
    }
    assert!(matches!(call(&right), Answer::Lock(LockAnswer::Held { mode: LockMode::Exclusive, .. })));
    let release = Request::Lock(LockRequest::Release { ticket: 1 }).encode();
    assert!(matches!(call(&release), Answer::Lock(LockAnswer::Done)));
    assert!(matches!(call(&acquire(2)), Answer::Lock(LockAnswer::Held { .. })));
}
