//! Standard mode with real processes: what a write at one proxy changed, no other proxy answers as it was.

use std::path::Path;
use std::process::Command;

use crate::common::traffic::{Client, proxy_with, started};

/// Pages that live for ten minutes, two proxies, and writes through one that are read at once through the other.
#[test]
fn a_write_at_one_proxy_is_seen_at_the_other_before_its_client_is_answered() {
    let directory = tempfile::tempdir().unwrap();
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/apps/lasting.py");
    let (_application, line) = started(Command::new("python3").arg(program), |line| line.starts_with("port "));
    let origin = format!("127.0.0.1:{}", line["port ".len()..].trim());
    let standard = ["--mode", "standard"];
    // One state directory: the second takes a seat beside the first.
    let state = directory.path().join("state");
    let (_first, a) = proxy_with(directory.path(), "a", &state, &origin, &standard);
    let (_second, b) = proxy_with(directory.path(), "b", &state, &origin, &standard);
    let mut clients = [Client::new(&a), Client::new(&b)];
    let count = |body: &str| body.strip_prefix("count ").unwrap().parse::<u64>().unwrap();
    let (mut hits, mut stale, mut told) = (0, 0, [0; 8]);
    for turn in 0..600 {
        let (page, through) = (turn % 8, turn / 8 % 2);
        let path = format!("/page/{page}");
        if turn % 3 == 0 {
            let answer = clients[through].ask("POST", &path);
            assert_eq!(answer.status, 200, "{}", answer.body);
            told[page] = count(&answer.body);
        }
        for client in [1 - through, through, 1 - through] {
            let answer = clients[client].ask("GET", &path);
            hits += u64::from(answer.hit);
            stale += u64::from(count(&answer.body) < told[page]);
        }
    }
    println!("200 writes, 1,800 answers, {hits} hits, {stale} stale");
    assert_eq!(stale, 0);
    assert!(hits > 360, "{hits} hits say little");
}
