//! A daemon that is dead, stopped or new costs misses, and nothing else.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixListener;
use std::time::Duration;

use rustix::process::Signal;
use verbena_bank::{
    Bank, BlockKey, Blocks, Daemons, Memcached, Options, Placement, Rules, Secret, StartOptions, start,
};

use crate::daemon::{Daemon, blocks, content, eventually, is_installed, keys};

fn fill(bank: &Blocks, keys: &[BlockKey], version: &str) {
    let stored: Vec<_> = keys.iter().map(|key| (key.clone(), content(version, key.block(), 5000))).collect();
    bank.store(&stored);
}

fn hits(bank: &Blocks, keys: &[BlockKey], version: &str) -> usize {
    let found = bank.fetch(keys);
    for (key, found) in keys.iter().zip(&found) {
        if let Some(found) = found {
            assert_eq!(*found, content(version, key.block(), 5000), "block {}", key.block());
        }
    }
    found.iter().flatten().count()
}

#[test]
fn a_killed_daemon_costs_its_own_blocks_and_comes_back_empty() {
    if !is_installed() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (one, mut two) = (Daemon::start(folder.path(), "1"), Daemon::start(folder.path(), "2"));
    let bank = blocks(&[&one, &two], 20_000);
    let keys = keys("1", 60);
    fill(&bank, &keys, "1");
    assert_eq!(hits(&bank, &keys, "1"), 60);
    two.kill();
    let left = hits(&bank, &keys, "1");
    assert!((10..50).contains(&left), "{left}");
    let Bank::Memcached(memcached, _) = bank.bank() else { panic!() };
    assert!(memcached.is_up(0) && !memcached.is_up(1));
    assert_eq!(bank.counters().read().daemon_down, 60 - left as u64);
    two.start_again();
    eventually("the daemon is asked again", || {
        fill(&bank, &keys, "1");
        hits(&bank, &keys, "1") == 60
    });
}

/// An idle connection to the daemon's last life is no failure of this one.
#[test]
fn a_daemon_that_restarted_between_two_requests_is_asked_at_once() {
    if !is_installed() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut one = Daemon::start(folder.path(), "1");
    let bank = blocks(&[&one], 20_000);
    let keys = keys("1", 3);
    fill(&bank, &keys, "1");
    one.kill();
    one.start_again();
    assert_eq!(hits(&bank, &keys, "1"), 0);
    let counts = bank.counters().read();
    assert_eq!((counts.absent, counts.daemon_down), (3, 0));
}

/// Rule B1: a daemon that was cut off while a file changed has old blocks, under keys that nobody asks for.
#[test]
fn a_stopped_daemon_is_late_once_then_rests_and_has_nothing_old_when_it_goes_on() {
    if !is_installed() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let one = Daemon::start(folder.path(), "1");
    let patient = blocks(&[&one], 20_000);
    let (first, second) = (keys("1", 5), keys("2", 5));
    fill(&patient, &first, "1");
    one.signal(Signal::STOP);
    let hasty = blocks(&[&one], 200);
    for _ in 0..50 {
        assert_eq!(hits(&hasty, &first, "1"), 0);
    }
    assert_eq!(hasty.counters().read().daemon_down, 250);
    fill(&hasty, &second, "2");
    one.signal(Signal::CONT);
    eventually("the daemon is asked again", || hits(&patient, &first, "1") == 5);
    // A store that waited in the socket may have been carried out by now. Nothing old stands for the new version.
    hits(&patient, &second, "2");
    fill(&patient, &second, "2");
    assert_eq!(hits(&patient, &second, "2"), 5);
}

/// Late answers must never reach the requests of a later exchange.
#[test]
fn answers_that_come_too_late_are_never_those_of_the_next_request() {
    if !is_installed() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let one = Daemon::start(folder.path(), "1");
    let bank = blocks(&[&one], 150);
    let keys = keys("1", 20);
    eventually("all is stored", || {
        fill(&bank, &keys, "1");
        hits(&bank, &keys, "1") == 20
    });
    for round in 0..6 {
        one.signal(Signal::STOP);
        assert_eq!(hits(&bank, &keys[round..round + 3], "1"), 0);
        one.signal(Signal::CONT);
        eventually("the daemon is asked again", || hits(&bank, &keys[round + 5..round + 8], "1") == 3);
    }
    let counts = bank.counters().read();
    assert_eq!(
        counts.wrong_key + counts.wrong_checksum,
        0,
        "no answer was another's, to be saved by its envelope only"
    );
}

#[test]
fn a_server_that_is_no_memcached_costs_misses() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("s");
    let listener = UnixListener::bind(&place).unwrap();
    std::thread::spawn(move || {
        for (at, stream) in listener.incoming().flatten().enumerate() {
            let mut stream = stream;
            _ = stream.read(&mut [0; 1000]);
            let answers: [&[u8]; 4] = [
                b"HTTP/1.1 400 Bad Request\r\n\r\n",
                b"VA 4000000 O0\r\nabc",
                b"VA 3 O1\r\nabc\r\n",
                b"EN\r\nEN\r\nEN\r\n",
            ];
            _ = stream.write_all(answers[at % 4]);
        }
    });
    let options = Options { deadline: Duration::from_millis(500), idle: 4 };
    let list = Daemons::parse(&format!("memcached://{}", place.display())).unwrap();
    let bank = Blocks::new(
        Secret::new([5; 32]),
        Bank::Memcached(Memcached::new(list, options).unwrap(), Placement::Modulo),
        Rules::default(),
    );
    let keys = keys("1", 2);
    for _ in 0..8 {
        std::thread::sleep(Duration::from_millis(60));
        assert_eq!(bank.fetch(&keys), [None, None]);
    }
    let counts = bank.counters().read();
    assert!(counts.hits == 0 && counts.daemon_down > 0, "{counts:?}");
}

const WAITS: &str = "VERBENA_BANK_WAITS";

#[test]
#[ignore = "not a test: what another one starts and kills"]
fn a_process_with_daemons() {
    let Some(sockets) = std::env::var_os(WAITS) else { return };
    let sockets = (sockets != "tcp").then(|| sockets.into());
    let running = start(&StartOptions { daemons: 2, memory: 2 << 20, sockets, ..StartOptions::default() }).unwrap();
    println!("\ndaemons {:?}", running.pids());
    std::thread::sleep(std::time::Duration::from_secs(120));
}

#[test]
fn daemons_end_with_the_process_that_started_them_when_it_is_killed() {
    if !is_installed() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for place in ["tcp", folder.path().to_str().unwrap()] {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["faults::a_process_with_daemons", "--exact", "--ignored", "--nocapture"]).env(WAITS, place);
        let mut process = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines().map_while(Result::ok);
        let line = lines.find_map(|line| line.strip_prefix("daemons ").map(str::to_owned));
        let pids: Vec<u32> =
            line.unwrap().trim_matches(['[', ']']).split(", ").map(|pid| pid.parse().unwrap()).collect();
        let is_daemon = |pid: &u32| {
            std::fs::read_to_string(format!("/proc/{pid}/stat"))
                .is_ok_and(|stat| stat.contains("(memcached) ") && !stat.contains(") Z"))
        };
        assert!(pids.len() == 2 && pids.iter().all(is_daemon), "{pids:?}");
        process.kill().unwrap();
        process.wait().unwrap();
        eventually("the daemons end", || !pids.iter().any(is_daemon));
    }
}
