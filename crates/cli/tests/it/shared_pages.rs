//! Two proxies whose memory is one store: what one fetched the other answers without asking the application, and never as it was before a write.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use verbena_testkit::programs::wait_for;

use crate::common::traffic::{Client, Ended, proxy_with, started};

const PAGES: usize = 8;

fn application() -> (Ended, String) {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/apps/lasting.py");
    let (application, line) = started(Command::new("python3").arg(program), |line| line.starts_with("port "));
    (application, format!("127.0.0.1:{}", line["port ".len()..].trim()))
}

/// Asks for pages of two proxies that lend memory, and writes through one what is read at once through the other.
fn pages_in_both_memories(mode: &str) {
    let directory = tempfile::tempdir().unwrap();
    let (_application, origin) = application();
    let settings = ["--proxy-mode", mode, "--pool-memory", "16MiB"];
    let state = directory.path().join("state");
    let (_first, a) = proxy_with(directory.path(), "a", &state, &origin, &settings);
    let (_second, b) = proxy_with(directory.path(), "b", &state, &origin, &settings);
    let mut clients = [Client::new(&a), Client::new(&b)];
    let count = |body: &str| body.strip_prefix("count ").unwrap().parse::<u64>().unwrap();
    let (mut hits, mut from_pool, mut stale, mut told) = (0, 0, 0, [0; PAGES]);
    for turn in 0..1800 {
        let (page, through) = (turn * 5 % PAGES, turn / 2 % 2);
        let path = format!("/page/{page}");
        if turn % 9 == 0 {
            let answer = clients[through].ask("POST", &path);
            assert_eq!(answer.status, 200, "{}", answer.body);
            told[page] = count(&answer.body);
        }
        for client in [1 - through, through] {
            let answer = clients[client].ask("GET", &path);
            hits += u64::from(answer.hit);
            from_pool += u64::from(answer.from_pool);
            stale += u64::from(count(&answer.body) < told[page]);
            assert!(answer.hit || !answer.from_pool);
        }
    }
    println!(
        "{mode}: 200 writes, 3,600 answers, {hits} hits, {from_pool} of them from the other's memory, {stale} stale"
    );
    assert_eq!(stale, 0);
    assert!(hits > 360 && from_pool > 50, "{hits} hits, {from_pool} from the other's memory say little");
}

#[test]
fn coherent_pages_that_one_proxy_fetched_the_other_has() {
    pages_in_both_memories("coherent");
}

#[test]
fn standard_pages_that_one_proxy_fetched_the_other_has() {
    pages_in_both_memories("standard");
}

/// A page whose words have not moved, because it was changed behind the proxies: the one that is told so by a HEAD has it from no memory any more.
#[test]
fn what_a_proxy_forgets_is_in_the_pool_no_longer() {
    let directory = tempfile::tempdir().unwrap();
    let (_application, origin) = application();
    let settings = ["--proxy-mode", "standard", "--pool-memory", "16MiB"];
    let (_proxy, address) = proxy_with(directory.path(), "a", &directory.path().join("state"), &origin, &settings);
    let mut client = Client::new(&address);
    wait_for("a hit", || client.ask("GET", "/page/1").hit);
    assert_eq!(Client::new(&origin).ask("POST", "/page/1").body, "count 1");
    assert_eq!(client.ask("GET", "/page/1").body, "count 0", "it lives for ten minutes");
    let mut stream = TcpStream::connect(&address).unwrap();
    let head = "HEAD /page/1 HTTP/1.1\r\nhost: shop\r\ncache-control: no-cache\r\nconnection: close\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let mut told = String::new();
    stream.read_to_string(&mut told).unwrap();
    assert!(told.contains("\"count 1\""), "{told}");
    let answer = client.ask("GET", "/page/1");
    assert_eq!((answer.body.as_str(), answer.from_pool), ("count 1", false));
}
