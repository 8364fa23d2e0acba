//! The same random streams to memcached and to us, cut at random bytes: the same bytes come back.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use verbena_memcache::Limits;

use crate::generate::{Both, Random, VALUE_BYTES, round};
use crate::normal::normal;
use crate::server::Server;

const STREAMS: u64 = 2_000;
const STREAMS_LONG: u64 = 100_000;

struct Memcached {
    child: Child,
    socket: PathBuf,
    _folder: tempfile::TempDir,
}

impl Drop for Memcached {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Memcached {
    fn start() -> Option<Memcached> {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let child = Command::new("memcached")
            .args(["-u", "root", "-t", "1", "-m", "64"])
            // Its background threads refer to items now and then, and then a number is not written in place.
            .args(["-o", "no_modern", "-s"])
            .arg(&socket)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let child = match child {
            Ok(child) => child,
            Err(error) => {
                eprintln!("skipped: memcached does not start ({error}): apt-get install memcached");
                return None;
            }
        };
        let mut memcached = Memcached { child, socket, _folder: folder };
        let limit = Instant::now() + Duration::from_secs(60);
        while UnixStream::connect(&memcached.socket).is_err() {
            assert!(Instant::now() < limit, "memcached does not listen within 60 s");
            assert_eq!(memcached.child.try_wait().unwrap(), None, "memcached ended");
            std::thread::sleep(Duration::from_millis(5));
        }
        Some(memcached)
    }
}

fn seconds() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs()
}

/// Pieces of random lengths, most of them small.
fn pieces<'a>(random: &mut Random, mut bytes: &'a [u8]) -> Vec<&'a [u8]> {
    let mut pieces = vec![];
    while !bytes.is_empty() {
        let longest = if bytes.len() > 100_000 { 60_000 } else { random.one(&[1, 20, 200, 4000]) };
        let (piece, rest) = bytes.split_at((1 + random.below(longest)).min(bytes.len()));
        pieces.push(piece);
        bytes = rest;
    }
    pieces
}

/// Sends the pieces and reads until `MN` ends a line, or until the end if the server closes.
fn ask(connection: &mut UnixStream, pieces: &[&[u8]], ends: usize) -> Vec<u8> {
    for piece in pieces {
        // A server that closed takes no more.
        if connection.write_all(piece).is_err() {
            break;
        }
    }
    let mut answer = vec![];
    let mut buffer = [0; 65536];
    while count(&answer) < ends {
        match connection.read(&mut buffer) {
            Ok(0) | Err(_) => break,
            Ok(length) => answer.extend_from_slice(&buffer[..length]),
        }
    }
    answer
}

/// How many times the mark of the end stands in the answer. No value holds it.
fn count(answer: &[u8]) -> usize {
    answer.windows(4).filter(|four| four == b"MN\r\n").count()
}

fn compare(seed: u64, memcached: &Memcached) {
    let mut random = Random::new(seed);
    let limits = Limits { value_bytes: VALUE_BYTES, ..Limits::default() };
    let mut server = Server::new(limits, seconds());
    let mut connection = UnixStream::connect(&memcached.socket).unwrap();
    connection.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    ask(&mut connection, &[b"flush_all\r\nmn\r\n"], 1);
    let (mut known, mut to_theirs, mut to_ours) = (vec![], HashMap::new(), HashMap::new());
    let mut sent = String::new();
    for _ in 0..3 {
        let mut both: Both = round(&mut random, &known);
        let ends = 1 + both.theirs.windows(5).filter(|five| five == b"mn\r\n" || five[..] == *b"\nmn\r\n").count();
        let ends = ends + usize::from(both.theirs.starts_with(b"mn\r\n"));
        for side in [&mut both.ours, &mut both.theirs] {
            side.extend_from_slice(b"mn\r\n");
        }
        sent.push_str(&String::from_utf8_lossy(&both.ours));
        server.now = seconds();
        let our_pieces = pieces(&mut random, &both.ours);
        let ours: Vec<u8> = our_pieces.iter().flat_map(|piece| server.feed(piece)).collect();
        let their_pieces = pieces(&mut random, &both.theirs);
        let theirs = ask(&mut connection, &their_pieces, ends);
        let ((ours, our_cas), (theirs, their_cas)) = (normal(&ours), normal(&theirs));
        if ours != theirs {
            let (ours, theirs) = (String::from_utf8_lossy(&ours), String::from_utf8_lossy(&theirs));
            panic!("seed {seed}\n--- sent\n{sent}\n--- ours\n{ours}\n--- memcached's\n{theirs}");
        }
        for (ours, theirs) in our_cas.into_iter().zip(their_cas) {
            assert_eq!(
                *to_theirs.entry(ours).or_insert(theirs),
                theirs,
                "seed {seed}: one cas value of ours, two of theirs"
            );
            assert_eq!(
                *to_ours.entry(theirs).or_insert(ours),
                ours,
                "seed {seed}: one cas value of theirs, two of ours"
            );
            known.push((ours, theirs));
        }
    }
    let last: &[u8] = random.one(&[&b"quit\r\n"[..], b"POST / HTTP/1.1\r\nHost: x\r\n\r\n"]);
    assert_eq!(server.feed(last), b"");
    assert!(server.is_closed, "seed {seed}");
    assert_eq!(ask(&mut connection, &[last], 1), b"", "seed {seed}");
}

#[test]
fn random_streams_are_answered_as_memcached_answers_them() {
    let Some(memcached) = Memcached::start() else { return };
    let mut first = UnixStream::connect(&memcached.socket).unwrap();
    // No constant of a stream is a cas value.
    ask(&mut first, &[b"set k 0 0 1\r\nx\r\nset k 0 0 1\r\nx\r\nset k 0 0 1\r\nx\r\nmn\r\n"], 1);
    let streams = if std::env::var_os("VERBENA_LONG").is_some() { STREAMS_LONG } else { STREAMS };
    for seed in 0..streams {
        compare(seed, &memcached);
    }
}

#[test]
fn an_answer_does_not_depend_on_the_cuts() {
    for seed in 0..100 {
        let mut random = Random::new(seed);
        let stream = round(&mut random, &[]).ours;
        let limits = Limits { value_bytes: VALUE_BYTES, ..Limits::default() };
        let whole = Server::new(limits, 1_700_000_000).feed(&stream);
        let mut server = Server::new(limits, 1_700_000_000);
        let cut: Vec<u8> = stream.chunks(1).flat_map(|byte| server.feed(byte)).collect();
        assert_eq!(cut, whole, "seed {seed}");
        assert_eq!(server.pending_bytes(), 0, "seed {seed}");
    }
}
