//! A proxy alone that ends and starts again (rules C3, P5, P6): what it says, and what it waits for. How long that takes is in the dialogues
//! of `verbena-content` (`never_stale::restarts`).

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
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

use crate::common::traffic::{Client, Ended};

/// Longer than any wait here: what comes at all was not kept waiting for it.
const LONGEST_TRANSACTION: Duration = Duration::from_secs(150);

/// Requests for `/held` that the application has.
static HELD: AtomicU32 = AtomicU32::new(0);

/// Answers every GET; breaks the connection in every POST, but for `/held`, whose answer never comes.
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
        if lines.by_ref().find(String::is_empty).is_none() || first.starts_with("POST") && !first.contains("/held") {
            return;
        }
        if first.starts_with("POST") {
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

    /// Waits until the page comes from the cache.
    fn first_hit(&self) {
        let (mut client, began) = (Client::new(&self.address), Instant::now());
        while began.elapsed() < PATIENCE {
            let answer = client.ask("GET", "/page");
            assert_eq!((answer.status, answer.body.as_str()), (200, "hello"));
            if answer.hit {
                return;
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

/// Twice in order with nothing open, once killed: then the longest transaction is waited for, which is longer than this test.
#[test]
fn a_stop_in_order_reads_like_one_and_nothing_is_waited_for_but_after_a_kill() {
    let (directory, origin) = (tempfile::tempdir().unwrap(), application());
    let mut proxy = Proxy::start(directory.path(), &origin);
    for _ in 0..2 {
        proxy.first_hit();
        assert_eq!(departed(directory.path()), 0, "no life is waited for");
        let said: Vec<Value> = proxy.stop().iter().map(|event| event["event"].clone()).collect();
        assert_eq!(said, ["left", "ended"], "and nothing that reads like a failure");
        proxy = Proxy::start(directory.path(), &origin);
    }
    proxy.first_hit();
    proxy.signal(Signal::KILL);
    proxy.ended();
    let proxy = Proxy::start(directory.path(), &origin);
    assert_eq!(departed(directory.path()), 1, "the life that was killed");
    let mut client = Client::new(&proxy.address);
    for _ in 0..20 {
        let answer = client.ask("GET", "/page");
        assert_eq!((answer.status, answer.body.as_str(), answer.hit), (200, "hello", false));
    }
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
