//! An application in Python's standard library, unchanged, behind `verbena proxy`: slow between its query and its answer, so that
//! whoever stores without care stores what is old already.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use common::verbena;

const PAGES: usize = 4;
const READERS: usize = 6;
const WRITERS: usize = 2;

/// A process that ends with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn application(directory: &Path) -> (Ended, String) {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/apps/plain.py");
    let mut python = Command::new("python3");
    python.arg(program).arg(directory.join("app.db")).args(["--slow", "10"]);
    let (process, line) = started(&mut python, |line| line.starts_with("port "));
    (process, format!("127.0.0.1:{}", line["port ".len()..].trim()))
}

fn proxy(directory: &Path, name: &str, origin: &str, more: &[&str]) -> (Ended, String) {
    let (runtime, state) = (directory.join("run"), directory.join(name));
    let mut command = verbena(&["proxy", "--json", "--listen", "127.0.0.1:0", "--origin", &format!("http://{origin}")]);
    command.arg("--node-runtime").arg(runtime).arg("--node-state").arg(state).args(more);
    let (process, line) = started(command.current_dir(directory), |line| line.contains(r#""event":"serving""#));
    let serving: serde_json::Value = serde_json::from_str(&line).unwrap();
    (process, serving["address"].as_str().unwrap().to_owned())
}

/// Starts a program, and gives the first line of this kind that it prints.
fn started(command: &mut Command, is_it: impl Fn(&str) -> bool) -> (Ended, String) {
    let mut process = Ended(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(process.0.stdout.take().unwrap()).lines();
    let line = lines.by_ref().map(Result::unwrap).find(|line| is_it(line)).expect("it says that it serves");
    // It must not find its output closed.
    std::thread::spawn(move || lines.for_each(drop));
    (process, line)
}

struct Answer {
    status: u16,
    hit: bool,
    body: String,
}

/// One kept connection.
struct Client(BufReader<TcpStream>);

impl Client {
    fn new(address: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        Client(BufReader::new(stream))
    }

    fn ask(&mut self, method: &str, path: &str) -> Answer {
        let request = format!("{method} {path} HTTP/1.1\r\nhost: shop\r\ncontent-length: 0\r\n\r\n");
        self.0.get_mut().write_all(request.as_bytes()).unwrap();
        let mut answer = Answer { status: 0, hit: false, body: String::new() };
        let mut length = 0;
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line).unwrap();
            let line = line.trim().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(status) = line.strip_prefix("http/1.1 ") {
                answer.status = status[..3].parse().unwrap();
            } else if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            } else if let Some(value) = line.strip_prefix("cache-status:") {
                answer.hit = value.split(';').any(|word| word.trim() == "hit");
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).unwrap();
        answer.body = String::from_utf8(body).unwrap();
        answer
    }
}

/// What readers and writers share: for each page, the highest value that anyone was told.
#[derive(Default)]
struct Seen {
    told: [AtomicU64; PAGES],
    answers: AtomicU64,
    hits: AtomicU64,
    writes: AtomicU64,
    stale: AtomicU64,
    done: AtomicBool,
}

impl Seen {
    fn read(&self, client: &mut Client, page: usize) {
        let before = self.told[page].load(SeqCst);
        let answer = client.ask("GET", &format!("/page/{page}"));
        assert_eq!(answer.status, 200, "{}", answer.body);
        let numbers: Vec<u64> =
            answer.body.split(|letter: char| !letter.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect();
        let [one, two] = numbers[..] else { panic!("{:?} shows no two counters", answer.body) };
        assert_eq!(one, two, "a page of two states");
        self.stale.fetch_add(u64::from(one < before), SeqCst);
        self.told[page].fetch_max(one, SeqCst);
        self.answers.fetch_add(1, SeqCst);
        self.hits.fetch_add(u64::from(answer.hit), SeqCst);
    }

    fn write(&self, client: &mut Client, page: usize) {
        let answer = client.ask("POST", &format!("/page/{page}"));
        assert_eq!(answer.status, 200, "{}", answer.body);
        self.told[page].fetch_max(answer.body.strip_prefix("value ").unwrap().parse().unwrap(), SeqCst);
        self.writes.fetch_add(1, SeqCst);
    }
}

/// Readers and writers through these proxies, for as long or until something stale was seen.
fn traffic(proxies: &[String], limit: Duration) -> Seen {
    let (seen, began) = (Seen::default(), Instant::now());
    let goes_on = || !seen.done.load(SeqCst) && seen.stale.load(SeqCst) == 0 && began.elapsed() < limit;
    // Whoever fails takes the others with it.
    struct Over<'a>(&'a AtomicBool);
    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(true, SeqCst);
        }
    }
    std::thread::scope(|scope| {
        for number in 0..READERS + WRITERS {
            let (seen, goes_on, proxy) = (&seen, &goes_on, &proxies[number % proxies.len()]);
            scope.spawn(move || {
                let _over = Over(&seen.done);
                let (mut client, mut turn) = (Client::new(proxy), number);
                while goes_on() {
                    turn += 1;
                    if number < READERS {
                        seen.read(&mut client, turn % PAGES);
                    } else {
                        seen.write(&mut client, turn % PAGES);
                        std::thread::sleep(Duration::from_millis(60));
                    }
                }
            });
        }
    });
    seen
}

fn enough(seen: &Seen) {
    let [answers, hits, writes] = [&seen.answers, &seen.hits, &seen.writes].map(|count| count.load(SeqCst));
    println!(
        "counted: {answers} answers, {hits} hits, {writes} writes through caches in front of an unchanged application"
    );
    assert!(answers > 200 && hits > 40 && writes > 20, "{answers} answers, {hits} hits, {writes} writes");
}

#[test]
fn an_unchanged_application_is_never_stale() {
    let directory = tempfile::tempdir().unwrap();
    let (_application, origin) = application(directory.path());
    let (_proxy, address) = proxy(directory.path(), "a", &origin, &[]);
    let seen = traffic(&[address], Duration::from_secs(4));
    assert_eq!(seen.stale.load(SeqCst), 0);
    enough(&seen);
}

/// So that we know that the test above sees: told that this application announces its writes, which it does not, the proxy lets them pass.
#[test]
fn an_application_that_breaks_its_word_is_stale() {
    let directory = tempfile::tempdir().unwrap();
    let (_application, origin) = application(directory.path());
    let routes = r#"[{ prefix = "/", writes = "announced" }]"#;
    let (_proxy, address) = proxy(directory.path(), "a", &origin, &["--proxy-routes", routes]);
    let seen = traffic(&[address], Duration::from_secs(20));
    assert!(seen.stale.load(SeqCst) > 0, "nothing stale was seen");
}

/// Rule P11: a write through one proxy is seen through the other.
#[test]
fn two_proxies_that_know_each_other_are_never_stale() {
    let directory = tempfile::tempdir().unwrap();
    let (_application, origin) = application(directory.path());
    let members = r#"[{ name = "a", address = "shm://a" }, { name = "b", address = "shm://b" }]"#;
    let member = |name| proxy(directory.path(), name, &origin, &["--cluster-members", members, "--cluster-name", name]);
    let ((_a, a), (_b, b)) = (member("a"), member("b"));
    let seen = traffic(&[a, b], Duration::from_secs(4));
    assert_eq!(seen.stale.load(SeqCst), 0);
    enough(&seen);
}

/// Rule P11: two that do not know each other would be two islands, so the second says so and ends.
#[test]
fn a_second_proxy_that_knows_nobody_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (_application, origin) = application(directory.path());
    let (_first, _) = proxy(directory.path(), "a", &origin, &[]);
    let mut second = verbena(&["proxy", "--listen", "127.0.0.1:0", "--origin", &format!("http://{origin}")]);
    second.arg("--node-runtime").arg(directory.path().join("run")).arg("--node-state").arg(directory.path().join("b"));
    let refused = second.current_dir(directory.path()).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("run"), "{:?}: {said}", refused.status);
}
