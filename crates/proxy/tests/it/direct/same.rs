//! What clients send is answered the same in both ways.

use std::time::{Duration, Instant};

use verbena_proxy::Hits;

use super::requests::{Chance, script};
use super::twins::{Twin, count_the_same};

/// How long requests by chance are sent, unless a long run says how many.
const BUDGET: Duration = Duration::from_secs(5);
/// Requests of a long run.
const LONG: usize = 1_000_000;
/// Requests after which new twins begin: what a proxy remembers for a time is not over for both at once.
const GENERATION: usize = 20_000;

fn twins(are_far_from_home: bool) -> [Twin; 2] {
    [Hits::Direct, Hits::Hyper].map(|hits| Twin::new(hits, are_far_from_home))
}

/// Both get these pieces. Updates are the end of all pages; then these come into the cache again.
#[track_caller]
fn compare(twins: &mut [Twin; 2], pieces: &[&[u8]], what: &str) {
    let [direct, hyper] = [0, 1].map(|at| twins[at].converse(pieces));
    if direct != hyper {
        let sent: Vec<String> = pieces.iter().map(|piece| piece.escape_ascii().to_string()).collect();
        panic!("{what}: {sent:#?}\ndirect: {direct:#?}\nhyper: {hyper:#?}");
    }
    let updates = |twin: &Twin| twin.counted().keys().any(|name| name.contains("answers") && name.contains("update"));
    if twins.iter().any(updates) {
        count_the_same(twins);
        twins.iter_mut().for_each(Twin::fill);
    }
}

#[test]
fn requests_by_chance_are_answered_the_same() {
    by_chance(false);
}

#[test]
fn requests_by_chance_whose_words_are_waited_for_are_answered_the_same() {
    by_chance(true);
}

fn by_chance(are_far_from_home: bool) {
    let is_long = std::env::var_os("VERBENA_LONG").is_some();
    let (mut twins, began) = (twins(are_far_from_home), Instant::now());
    let (mut requests, mut fresh, mut nth, mut direct) = (0, 0, 0, 0);
    let seeds = if is_long { 1.. } else { 1_000_000.. };
    for seed in seeds {
        if requests >= LONG || (!is_long && began.elapsed() > BUDGET) {
            break;
        }
        if requests - fresh > GENERATION {
            (twins, fresh) = (self::twins(are_far_from_home), requests);
        }
        let mut chance = Chance::new(seed);
        let script = script(&mut chance, &mut nth);
        compare(&mut twins, &script.cut(&mut chance), &format!("seed {seed}"));
        requests += script.requests;
        if seed % 64 == 0 {
            count_the_same(&twins);
            direct = twins[0].scene.counted("verbena_proxy_answers_total", ("result", "hit"));
        }
    }
    count_the_same(&twins);
    println!("{requests} requests by chance, hits of the last proxies {direct}");
    assert!(requests > 100, "{requests} requests");
}

#[test]
fn the_corpus_is_answered_the_same() {
    let mut twins = twins(false);
    let mut nth = 0;
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/http_head");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    for (at, file) in files.iter().enumerate() {
        let bytes = std::fs::read(file).unwrap();
        let bytes = &bytes[..bytes.len().min(4 << 10)];
        // As it is; and as the lines of a request, behind one that is answered from the cache.
        let head = b"GET /p/small HTTP/1.1\r\nHost: shop\r\n";
        let hit = [&head[..], b"\r\n"].concat();
        let lines = String::from_utf8_lossy(bytes).lines().collect::<Vec<_>>().join("\r\n");
        let raw: [&[u8]; 2] = [&hit, bytes];
        let framed: [&[u8]; 4] = [&hit, head, lines.as_bytes(), b"\r\n\r\n"];
        for whole in [raw.concat(), framed.concat()] {
            nth += 1;
            compare(&mut twins, &[&whole], &format!("{at} of the corpus"));
        }
    }
    count_the_same(&twins);
    assert!(nth > 600, "{nth} of the corpus");
}
