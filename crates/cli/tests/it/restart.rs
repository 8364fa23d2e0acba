//! A proxy alone that ends and starts again: how long its pages come from the application (rules C3, P5, P6), and what it says.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use verbena_testkit::nodes::PATIENCE;
use verbena_testkit::programs::{json, verbena};

use crate::common::traffic::{Client, Ended};

/// Shorter than the default, so that the tests that wait for it need not wait for long, and far above what a restart takes.
const LONGEST_TRANSACTION: Duration = Duration::from_secs(4);
/// Within this a page is in the cache again if nobody is waited for: one lease.
const SOON: Duration = Duration::from_secs(1);

/// Answers every GET and each POST of `/write`; breaks the connection in every other POST, but for `/held`, whose answer never comes.
fn application() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || answer(stream));
        }
    });
    address
}

fn answer(mut stream: TcpStream) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
    while let Some(first) = lines.next() {
        if lines.by_ref().find(String::is_empty).is_none() || breaks(&first) {
            return;
        }
        if first.starts_with("POST /held") {
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
    fn start(directory: &Path, origin: &str) -> Proxy {
        let longest = format!("{}s", LONGEST_TRANSACTION.as_secs());
        let mut command = verbena(&["proxy", "--json", "--listen", "127.0.0.1:0", "--origin"]);
        command.arg(format!("http://{origin}")).args(["--node-runtime", "run", "--node-state", "state"]);
        command.args(["--cluster-lease", "1s", "--pages-longest-transaction", &longest]).current_dir(directory);
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

    /// How long until the page comes from the cache.
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
fn after_a_clean_stop_pages_are_cached_again_at_once_and_the_stop_reads_like_one() {
    let (directory, origin) = (tempfile::tempdir().unwrap(), application());
    let mut proxy = Proxy::start(directory.path(), &origin);
    for round in 0..3 {
        let first = proxy.first_hit();
        assert!(first < SOON, "{first:?} in life {round}");
        assert_eq!(departed(directory.path()), 0, "nobody is waited for");
        let said: Vec<Value> = proxy.stop().iter().map(|event| event["event"].clone()).collect();
        assert_eq!(said, ["left", "ended"], "and nothing that reads like a failure");
        proxy = Proxy::start(directory.path(), &origin);
    }
}

/// Kills a proxy with nothing open, does something to its state, and says how long the next is without a hit.
fn first_hit_after_kill(meanwhile: impl Fn(&Proxy), then: impl Fn(&Path)) -> Duration {
    let (directory, origin) = (tempfile::tempdir().unwrap(), application());
    let proxy = Proxy::start(directory.path(), &origin);
    proxy.first_hit();
    meanwhile(&proxy);
    proxy.signal(Signal::KILL);
    proxy.ended();
    then(&directory.path().join("state/open-updates"));
    Proxy::start(directory.path(), &origin).first_hit()
}

#[test]
fn after_a_kill_with_nothing_open_pages_are_cached_again_without_waiting_for_a_transaction() {
    let first = first_hit_after_kill(|_| {}, |records| assert!(records.is_dir()));
    assert!(first < LONGEST_TRANSACTION, "{first:?}");
}

/// Writes that have ended are open no more, however often the node dies. `VERBENA_LONG=1` kills it 100 times.
#[test]
fn kill_after_kill_pages_are_cached_again_without_waiting_for_a_transaction() {
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
    println!(
        "{kills} kills, {writes} writes: a hit after {:?} at the median, {:?} at the 99th percentile",
        at(50),
        at(99)
    );
    assert!(at(100) < LONGEST_TRANSACTION, "{spans:?}");
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
    let first = first_hit_after_kill(held, |_| {});
    assert!(first > LONGEST_TRANSACTION, "{first:?}");
}

#[test]
fn after_a_kill_without_a_sound_record_pages_wait_for_the_longest_transaction() {
    let files =
        |records: &Path| -> Vec<_> { std::fs::read_dir(records).unwrap().map(|file| file.unwrap().path()).collect() };
    let removed = first_hit_after_kill(|_| {}, |records| std::fs::remove_dir_all(records).unwrap());
    assert!(removed > LONGEST_TRANSACTION, "{removed:?}");
    let truncated = first_hit_after_kill(
        |_| {},
        |records| {
            assert!(!files(records).is_empty());
            files(records).iter().for_each(|file| std::fs::write(file, "").unwrap());
        },
    );
    assert!(truncated > LONGEST_TRANSACTION, "{truncated:?}");
}

/// Two departures, one in order and one not, with an update whose outcome nobody knows in each.
#[test]
fn an_update_of_unknown_outcome_is_waited_for_through_restarts_in_order() {
    let (directory, origin) = (tempfile::tempdir().unwrap(), application());
    let proxy = Proxy::start(directory.path(), &origin);
    proxy.first_hit();
    assert_eq!(Client::new(&proxy.address).ask("POST", "/page").status, 502);
    let stopping = Instant::now();
    proxy.stop();
    assert!(stopping.elapsed() < LONGEST_TRANSACTION, "nobody waits for it while leaving");
    // This life has nothing open; the one before it is not settled all the same.
    let proxy = Proxy::start(directory.path(), &origin);
    assert_eq!(departed(directory.path()), 1);
    proxy.stop();
    let proxy = Proxy::start(directory.path(), &origin);
    assert_eq!(departed(directory.path()), 1, "the life with the update");
    let first = proxy.first_hit();
    assert!(first > LONGEST_TRANSACTION, "{first:?}");
}

#[test]
fn a_signal_that_comes_twice_at_once_is_one_and_a_later_one_ends_it() {
    let (directory, origin) = (tempfile::tempdir().unwrap(), application());
    let mut proxy = Proxy::start(directory.path(), &origin);
    proxy.first_hit();
    let address = proxy.address.clone();
    let mut held = TcpStream::connect(address).unwrap();
    held.write_all(b"POST /held HTTP/1.1\r\nhost: shop\r\ncontent-length: 0\r\n\r\n").unwrap();
    // The proxy waits for its answer, so it takes its time to leave.
    std::thread::sleep(Duration::from_millis(300));
    for _ in 0..3 {
        proxy.signal(Signal::INT);
        std::thread::sleep(Duration::from_millis(50));
    }
    std::thread::sleep(Duration::from_millis(600));
    assert!(proxy.process.0.try_wait().unwrap().is_none(), "it still leaves");
    proxy.signal(Signal::INT);
    let ending = Instant::now();
    assert_eq!(proxy.ended().code(), Some(1));
    assert!(ending.elapsed() < Duration::from_secs(3), "{:?}", ending.elapsed());
}
