//! A proxy alone that ends and starts again (rules C3, P5, P6): what it says, and what it waits for. How long that takes is in the dialogues
//! of `verbena-content` (`never_stale::restarts`).

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use verbena_testkit::nodes::PATIENCE;
use verbena_testkit::programs::{json, verbena};

use crate::common::traffic::{Client, Ended, each_connection};

/// Longer than any wait here: what comes at all was not kept waiting for it.
const LONGEST_TRANSACTION: Duration = Duration::from_secs(150);

/// Requests for `/held` that the application has.
static HELD: AtomicU32 = AtomicU32::new(0);

/// Answers every GET and each POST of `/write`; breaks the connection in every other POST, but for `/held`, whose answer never comes.
fn application() -> String {
    each_connection(answer)
}

fn answer(mut stream: TcpStream) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
    while let Some(first) = lines.next() {
        if lines.by_ref().find(String::is_empty).is_none() || breaks(&first) {
            return;
        }
        if first.starts_with("POST /held") {
            HELD.fetch_add(1, SeqCst);
            // Until the other side closes.
            let _ = stream.read(&mut [0]);
            return;
        }
        if stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello").is_err() {
            return;
        }
    }
}

fn breaks(first: &str) -> bool {
    first.starts_with("POST") && !first.starts_with("POST /held") && !first.starts_with("POST /write")
}

struct Proxy {
    process: Ended,
    address: String,
    events: Receiver<Value>,
}

impl Proxy {
    /// Leases are short, for some are waited for.
    fn start(directory: &Path, origin: &str) -> Proxy {
        Proxy::with_lease("1s", directory, origin)
    }

    fn with_lease(lease: &str, directory: &Path, origin: &str) -> Proxy {
        let longest = format!("{}s", LONGEST_TRANSACTION.as_secs());
        let mut command = verbena(&["proxy", "--json", "--listen", "127.0.0.1:0", "--origin"]);
        command.arg(format!("http://{origin}")).args(["--node-runtime", "run", "--node-state", "state"]);
        command.args(["--cluster-lease", lease, "--pages-longest-transaction", &longest]).current_dir(directory);
        let mut process = Ended(command.stdout(Stdio::piped()).spawn().unwrap());
        let lines = BufReader::new(process.0.stdout.take().unwrap()).lines();
        let (tell, events) = channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if tell.send(serde_json::from_str(&line).unwrap()).is_err() {
                    return;
                }
            }
        });
        let mut proxy = Proxy { process, address: String::new(), events };
        let serving = proxy.said_until("serving");
        proxy.address = serving.last().unwrap()["address"].as_str().unwrap().to_owned();
        proxy
    }

    /// What it says, up to the first event of this kind.
    fn said_until(&self, kind: &str) -> Vec<Value> {
        let (mut said, until) = (vec![], Instant::now() + PATIENCE);
        while said.last().is_none_or(|event: &Value| event["event"] != kind) {
            let event = self.events.recv_timeout(until.saturating_duration_since(Instant::now()));
            said.push(event.unwrap_or_else(|_| panic!("no {kind:?} in time after {said:?}")));
        }
        said
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(i32::try_from(self.process.0.id()).unwrap()).unwrap(), signal).unwrap();
    }

    /// Ends it in good order; what it says of that.
    fn stop(self) -> Vec<Value> {
        while self.events.try_recv().is_ok() {}
        self.signal(Signal::TERM);
        let said = self.said_until("ended");
        assert!(self.ended().success());
        said
    }

    fn ended(mut self) -> ExitStatus {
        self.process.0.wait().unwrap()
    }

    /// Waits until the page comes from the cache: how long that took.
    fn first_hit(&self) -> Duration {
        let (mut client, began) = (Client::new(&self.address), Instant::now());
        while began.elapsed() < PATIENCE {
            let answer = client.ask("GET", "/page");
            assert_eq!((answer.status, answer.body.as_str()), (200, "hello"));
            if answer.hit {
                return began.elapsed();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("no hit in {PATIENCE:?}");
    }
}

/// How many departed are not settled, once it is a member.
fn departed(directory: &Path) -> Value {
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        let status = json(&["status", "--json", "--node-runtime", "run"], directory).1;
        if status["state"] == "member" && status["in_effect"] == status["view"] {
            return status["departed"].clone();
        }
    }
    panic!("no member in {PATIENCE:?}");
}

#[test]
fn a_stop_in_order_reads_like_one_and_nothing_is_waited_for() {
    let (directory, origin) = (tempfile::tempdir().unwrap(), application());
    // No lease is waited for, and none is lost on a busy machine.
    let start = || Proxy::with_lease("120s", directory.path(), &origin);
    let mut proxy = start();
    for _ in 0..2 {
        proxy.first_hit();
        assert_eq!(departed(directory.path()), 0, "no life is waited for");
        let said: Vec<Value> = proxy.stop().iter().map(|event| event["event"].clone()).collect();
        assert_eq!(said, ["left", "ended"], "and nothing that reads like a failure");
        proxy = start();
    }
    proxy.first_hit();
}

/// Kills a proxy with nothing open, unless `meanwhile` opens something, does something to the records of its state, and starts it again.
fn after_a_kill(directory: &Path, meanwhile: impl Fn(&Proxy), then: impl Fn(&Path)) -> Proxy {
    let origin = application();
    let proxy = Proxy::start(directory, &origin);
    proxy.first_hit();
    meanwhile(&proxy);
    proxy.signal(Signal::KILL);
    proxy.ended();
    then(&directory.join("state/open-updates"));
    Proxy::start(directory, &origin)
}

/// Its pages wait for the longest transaction, which is longer than any test is patient, and `verbena status` says so, and this why.
fn waits(directory: &Path, proxy: &Proxy, why: &str) {
    assert_eq!(departed(directory), 1, "the life that was killed");
    let (began, mut said) = (Instant::now(), String::new());
    while !said.contains(why) {
        assert!(began.elapsed() < PATIENCE, "{said}");
        let status = verbena(&["status", "--node-runtime", "run"]).current_dir(directory).output().unwrap();
        said = String::from_utf8_lossy(&status.stdout).into_owned();
    }
    let list = json(&["status", "--json", "--node-runtime", "run"], directory).1["departed_list"].clone();
    let keeps_out = &list[0]["keeps_out"];
    assert_eq!(keeps_out["everything"], true, "{list}");
    assert!(keeps_out["left_ms"].as_u64().is_some_and(|left| left > 60_000), "{list}");
    let doctor = verbena(&["doctor", "--node-runtime", "run"]).current_dir(directory).output().unwrap();
    let doctor = String::from_utf8_lossy(&doctor.stdout);
    assert!(doctor.contains("running node: ") && doctor.contains(why), "{doctor}");
    let mut client = Client::new(&proxy.address);
    for _ in 0..20 {
        let answer = client.ask("GET", "/page");
        assert_eq!((answer.status, answer.body.as_str(), answer.hit), (200, "hello", false));
    }
}

#[test]
fn after_a_kill_with_nothing_open_no_transaction_is_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    after_a_kill(directory.path(), |_| {}, |records| assert!(records.is_dir())).first_hit();
}

/// Writes that have ended are open no more, however often the node dies. `VERBENA_LONG=1` kills it 100 times.
#[test]
fn kill_after_kill_no_transaction_is_waited_for() {
    let kills = if std::env::var_os("VERBENA_LONG").is_some() { 100 } else { 3 };
    let (directory, origin) = (tempfile::tempdir().unwrap(), application());
    let mut proxy = Proxy::start(directory.path(), &origin);
    let (mut spans, mut writes) = (vec![], 0);
    proxy.first_hit();
    for _ in 0..kills {
        for _ in 0..3 {
            assert_eq!(Client::new(&proxy.address).ask("POST", "/write").status, 200);
            writes += 1;
            std::thread::sleep(Duration::from_millis(100));
        }
        proxy.signal(Signal::KILL);
        proxy.ended();
        proxy = Proxy::start(directory.path(), &origin);
        spans.push(proxy.first_hit());
    }
    spans.sort();
    let at = |part: usize| spans[(spans.len() - 1) * part / 100];
    let (median, worst) = (at(50), at(99));
    println!(
        "counted: {kills} kills, {writes} writes: a hit after {median:?} at the median, {worst:?} at the 99th percentile"
    );
}

#[test]
fn after_a_kill_with_an_update_open_what_it_touches_waits_for_the_longest_transaction() {
    let held = |proxy: &Proxy| {
        let mut held = TcpStream::connect(&proxy.address).unwrap();
        held.write_all(b"POST /held HTTP/1.1\r\nhost: shop\r\ncontent-length: 0\r\n\r\n").unwrap();
        let (mut client, until) = (Client::new(&proxy.address), Instant::now() + PATIENCE);
        while client.ask("GET", "/page").hit {
            assert!(Instant::now() < until, "the write does not begin");
        }
        // It goes with the process, and not before.
        std::mem::forget(held);
    };
    let directory = tempfile::tempdir().unwrap();
    let proxy = after_a_kill(directory.path(), held, |_| {});
    waits(directory.path(), &proxy, "it had an update of everything open");
}

#[test]
fn after_a_kill_without_a_sound_record_pages_wait_for_the_longest_transaction() {
    let files =
        |records: &Path| -> Vec<_> { std::fs::read_dir(records).unwrap().map(|file| file.unwrap().path()).collect() };
    let directory = tempfile::tempdir().unwrap();
    let proxy = after_a_kill(directory.path(), |_| {}, |records| std::fs::remove_dir_all(records).unwrap());
    waits(directory.path(), &proxy, "what it had open is not known");
    let directory = tempfile::tempdir().unwrap();
    let truncate = |records: &Path| {
        assert!(!files(records).is_empty());
        files(records).iter().for_each(|file| std::fs::write(file, "").unwrap());
    };
    let proxy = after_a_kill(directory.path(), |_| {}, truncate);
    waits(directory.path(), &proxy, "what it had open is not known");
}

/// Two departures, one in order and one not, with an update whose outcome nobody knows in the first.
#[test]
fn an_update_of_unknown_outcome_is_waited_for_through_restarts_in_order() {
    let (directory, origin) = (tempfile::tempdir().unwrap(), application());
    let proxy = Proxy::start(directory.path(), &origin);
    proxy.first_hit();
    assert_eq!(Client::new(&proxy.address).ask("POST", "/page").status, 502);
    // That it ends while the test is patient shows that the transaction is not waited for.
    proxy.stop();
    // This life has nothing open; the one before it is not settled all the same.
    let proxy = Proxy::start(directory.path(), &origin);
    assert_eq!(departed(directory.path()), 1);
    proxy.stop();
    let proxy = Proxy::start(directory.path(), &origin);
    assert_eq!(departed(directory.path()), 1, "the life with the update");
    let answer = Client::new(&proxy.address).ask("GET", "/page");
    assert_eq!((answer.status, answer.hit), (200, false));
}

/// That several at once are one signal is a unit test of the command's.
#[test]
fn a_signal_that_comes_again_ends_a_proxy_that_leaves() {
    let (directory, origin) = (tempfile::tempdir().unwrap(), application());
    let mut proxy = Proxy::start(directory.path(), &origin);
    proxy.first_hit();
    let address = proxy.address.clone();
    let mut held = TcpStream::connect(address).unwrap();
    held.write_all(b"POST /held HTTP/1.1\r\nhost: shop\r\ncontent-length: 0\r\n\r\n").unwrap();
    let (began, mut status) = (Instant::now(), None);
    while HELD.load(SeqCst) == 0 {
        assert!(began.elapsed() < PATIENCE, "the application is never asked");
        std::thread::sleep(Duration::from_millis(10));
    }
    // The proxy waits for the answer, so it takes its time to leave.
    while status.is_none() {
        assert!(began.elapsed() < PATIENCE, "it leaves for ever");
        proxy.signal(Signal::INT);
        std::thread::sleep(Duration::from_millis(100));
        status = proxy.process.0.try_wait().unwrap();
    }
    assert_eq!(status.unwrap().code(), Some(1), "it was not let go in order");
}
