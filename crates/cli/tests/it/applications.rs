//! Two applications of one user that have nothing to do with each other: what is done at one, or happens to its proxy, changes nothing at the other.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use verbena_testkit::nodes::PATIENCE;
use verbena_testkit::programs::verbena;

use crate::common::traffic::{Client, Ended, each_connection, proxy_with};

const LEASE: &str = "500ms";

/// An application in this process: pages that never change, writes that are answered at once, and writes at `/slow` that are never answered.
fn application() -> String {
    each_connection(answer)
}

fn answer(stream: TcpStream) {
    let (mut lines, mut stream) = (BufReader::new(stream.try_clone().unwrap()).lines(), stream);
    while let Some(Ok(first)) = lines.next() {
        while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
        if first.contains(" /slow ") {
            // For as long as the other end is there.
            let _ = lines.next();
            return;
        }
        if stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").is_err() {
            return;
        }
    }
}

fn plain(directory: &Path, log: &str, origin: &str, more: &[&str]) -> (Ended, Client, String) {
    let more = [&["--cluster-lease", LEASE], more].concat();
    let (process, address) = proxy_with(directory, log, &directory.join("state"), origin, &more);
    (process, Client::new(&address), address)
}

fn hits(client: &mut Client) {
    let began = Instant::now();
    while !client.ask("GET", "/page").hit {
        assert!(began.elapsed() < PATIENCE, "it is never cached");
    }
}

/// How many of so many requests are hits.
fn count(client: &mut Client, requests: usize) -> usize {
    (0..requests).filter(|_| client.ask("GET", "/page").hit).count()
}

/// What does not wait for its answer.
fn writes_slowly(address: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"POST /slow HTTP/1.1\r\nhost: shop\r\ncontent-length: 0\r\n\r\n").unwrap();
    stream
}

/// Waits until a write keeps the page out of the cache.
fn misses(client: &mut Client) {
    let began = Instant::now();
    while client.ask("GET", "/page").hit {
        assert!(began.elapsed() < PATIENCE, "the write keeps nothing out");
    }
}

#[test]
fn what_happens_at_one_changes_nothing_at_the_other() {
    let directory = tempfile::tempdir().unwrap();
    let (a, b) = (application(), application());
    let (_first, mut at_a, _) = plain(directory.path(), "a", &a, &[]);
    let (second, mut at_b, address) = plain(directory.path(), "b", &b, &[]);
    hits(&mut at_a);
    hits(&mut at_b);

    for _ in 0..20 {
        assert_eq!(at_b.ask("POST", "/page").status, 200);
        assert_eq!(count(&mut at_a, 10), 10, "while the other is written to");
    }

    hits(&mut at_b);
    let _slow = writes_slowly(&address);
    misses(&mut at_b);
    assert_eq!(count(&mut at_a, 200), 200, "while the other is written to slowly");
    assert!(!at_b.ask("GET", "/page").hit, "there nothing is cached meanwhile");

    // With that write open.
    kill_process(Pid::from_raw(i32::try_from(second.0.id()).unwrap()).unwrap(), Signal::KILL).unwrap();
    let (killed, mut asked) = (Instant::now(), 0);
    while killed.elapsed() < Duration::from_secs(2) {
        assert_eq!(count(&mut at_a, 10), 10, "{:?} after the other's proxy was killed", killed.elapsed());
        asked += 10;
    }
    println!(
        "counted: {asked} requests at one application, all hits, after the other's proxy was killed with a write open"
    );
    assert_eq!(at_a.ask("POST", "/page").status, 200);
    hits(&mut at_a);

    // It comes back to its own cluster, where that write is still open.
    let (_third, mut at_b, _) = plain(directory.path(), "c", &b, &[]);
    assert_eq!(at_b.ask("GET", "/page").status, 200);
    assert_eq!(count(&mut at_b, 20), 0, "the write could be done yet");
    assert_eq!(count(&mut at_a, 5), 5);
}

/// So that we know that the test above sees: with one name they are one, and a write at the one is a write at the other.
#[test]
fn with_one_name_two_applications_are_one() {
    let directory = tempfile::tempdir().unwrap();
    let (a, b) = (application(), application());
    let (_first, mut at_a, _) = plain(directory.path(), "a", &a, &["--name", "both"]);
    let (_second, mut at_b, address) = plain(directory.path(), "b", &b, &["--name", "both"]);
    hits(&mut at_a);
    assert_eq!(at_b.ask("POST", "/page").status, 200);
    assert!(!at_a.ask("GET", "/page").hit);
    hits(&mut at_a);
    let _slow = writes_slowly(&address);
    misses(&mut at_a);
}

#[test]
fn who_purges_or_announces_without_a_name_reaches_both() {
    let directory = tempfile::tempdir().unwrap();
    let (a, b) = (application(), application());
    let (_first, mut at_a, _) = plain(directory.path(), "a", &a, &[]);
    let (_second, mut at_b, _) = plain(directory.path(), "b", &b, &[]);
    for client in [&mut at_a, &mut at_b] {
        hits(client);
    }
    let purge = verbena(&["purge", "--everything", "--node-runtime", "run", "--node-state", "state"])
        .current_dir(&directory)
        .output()
        .unwrap();
    assert!(purge.status.success(), "{purge:?}");
    assert!(!at_a.ask("GET", "/page").hit && !at_b.ask("GET", "/page").hit);
}
