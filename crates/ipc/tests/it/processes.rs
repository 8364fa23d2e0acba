//! Programs and helpers in processes of their own: killed, stopped, and hostile.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::common::{
    Dice, Helper, Role, SOCKET, connect, connect_when_there, dial, echo, existing, pattern, recorded_keys,
    request_seed, within,
};
use rustix::process::{Resource, Rlimit, Signal};
use verbena_ipc::{Connection, Error, Event, Farewell, Mode, Options, Over, Server};
use verbena_terms::{BootClock, Clock};

in_every_mode! {
    clients_killed_at_any_moment_leave_nothing_and_disturb_nobody
    a_helper_killed_in_a_call_is_seen_and_its_place_taken
    who_takes_a_dead_helpers_place_finds_that_its_clients_know
    a_stopped_client_with_a_full_ring_stalls_nobody
    a_client_that_scribbles_over_its_memory_disturbs_nobody
    another_user_is_served_only_if_allowed
    many_clients_are_served_by_one_thread
}

/// What a started process does; see [`Role::start`].
#[test]
#[ignore = "a role that the other tests start as a process"]
fn role() {
    let directory = PathBuf::from(std::env::var_os("IPC_DIRECTORY").unwrap());
    let mode: Mode = std::env::var("IPC_MODE").unwrap().parse().unwrap();
    match std::env::var("IPC_ROLE").unwrap().as_str() {
        "helper" => helper_role(&directory),
        "caller" => caller_role(mode, &directory),
        "hoarder" => hoarder_role(mode, &directory),
        "poor helper" => {
            let limit = Rlimit { current: Some(20), maximum: Some(20) };
            rustix::process::setrlimit(Resource::Nofile, limit).unwrap();
            helper_role(&directory);
        }
        "stranger" => stranger_role(mode, &directory),
        "scribbler" => scribbler_role(mode, &directory),
        other => panic!("no role {other}"),
    }
}

/// Echoes; `keep` is never answered.
fn helper_role(directory: &Path) {
    let mut server = Server::bind(directory, SOCKET, Options::default()).unwrap();
    let mut kept = Vec::new();
    loop {
        let handler = &mut |event: Event<'_>| match event {
            Event::Request(request) if request.bytes() == b"keep" => {
                kept.push(request.defer());
                println!("\nKEPT");
            }
            event => echo(event),
        };
        server.poll(Duration::from_secs(60), handler).unwrap();
    }
}

/// Calls, with every length, until killed.
fn caller_role(mode: Mode, directory: &Path) {
    let mut connection = connect(mode, &directory.join(SOCKET));
    for at in 0u64.. {
        let request = pattern(at, (at * 997 % 16_000) as usize);
        connection.post(&request, within(20)).unwrap();
        assert_eq!(connection.call(&request, within(20)).unwrap(), request);
        connection.poll(within(20)).unwrap().unwrap();
        if at == 3 {
            println!("\nREADY");
        }
    }
}

const HOARDED: usize = 40;

/// Asks for more than its ring holds, takes nothing until it is continued, and then finds everything.
fn hoarder_role(mode: Mode, directory: &Path) {
    let mut connection = connect(mode, &directory.join(SOCKET));
    let requests: Vec<String> = (0..HOARDED).map(|at| format!("size {}", 16_000 + at)).collect();
    for request in &requests {
        connection.post(request.as_bytes(), within(60)).unwrap();
    }
    println!("\nREADY");
    // To this thread, which therefore stops before it goes on; sent to the process, another thread may take the signal up later.
    // SAFETY: sends a signal that no handler can catch.
    assert_eq!(unsafe { libc::raise(libc::SIGSTOP) }, 0);
    for (at, request) in requests.iter().enumerate() {
        let response = connection.poll(within(60)).unwrap().unwrap();
        assert_eq!(response.answer.unwrap(), pattern(request_seed(request.as_bytes()), 16_000 + at));
    }
    println!("\nDONE");
}

const STRANGER: u32 = 65_534;

/// Becomes another user and connects.
fn stranger_role(mode: Mode, directory: &Path) {
    // SAFETY: a system call on this process's own identity, which is thrown away with the process.
    assert_eq!(unsafe { libc::setuid(STRANGER) }, 0);
    match Connection::connect_in(mode, &directory.join(SOCKET), within(20)) {
        Ok(mut connection) => {
            assert_eq!(connection.call(b"hello", within(20)).unwrap(), b"hello");
            println!("\nSERVED");
        }
        Err(Error::Over(Over::Dismissed(Farewell::Stranger))) => println!("\nREFUSED"),
        Err(error) => panic!("{error}"),
    }
}

/// Writes over all of its rings, again and again, in connections that the helper keeps dropping.
fn scribbler_role(mode: Mode, directory: &Path) {
    let mut dice = Dice(u64::from(std::process::id()));
    for round in 0u64.. {
        let mut connection = connect(mode, &directory.join(SOCKET));
        let (start, words) = rings_of(&fs::read_to_string("/proc/self/maps").unwrap());
        for write in 0..dice.roll(4_000) {
            // Control words more often than their share, and small values more often than chance.
            let word = if dice.roll(2) == 0 { 16 * dice.roll(8) } else { dice.roll(words) };
            let value = if dice.roll(2) == 0 { dice.roll(5_000) } else { dice.roll(u64::MAX) * dice.roll(u64::MAX) };
            // SAFETY: inside the mapping that the connection keeps until the end of the round. That it disturbs the
            // connection is what it is for; this process is thrown away.
            unsafe { std::ptr::with_exposed_provenance_mut::<u64>(start).add(word as usize).write_volatile(value) };
            if write % 256 == 0 {
                let _ = connection.post(b"hostile", BootClock.now());
            }
        }
        if round == 3 {
            println!("\nREADY");
        }
    }
}

/// Address and words of the last mapping of rings in a process.
fn rings_of(maps: &str) -> (usize, u64) {
    let line = maps.lines().rfind(|line| line.contains("verbena-ipc-rings")).unwrap();
    let (from, to) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
    let (from, to) = (usize::from_str_radix(from, 16).unwrap(), usize::from_str_radix(to, 16).unwrap());
    (from, (to - from) as u64 / 8)
}

/// Descriptors, and mappings of rings, of a process.
fn holdings(pid: u32) -> (usize, usize) {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    (descriptors, maps.lines().filter(|line| line.contains("verbena-ipc-rings")).count())
}

/// Calls without a pause until told to stop; how many, and the longest.
struct Steady {
    stop: Arc<AtomicBool>,
    calls: Arc<AtomicU64>,
    thread: std::thread::JoinHandle<Duration>,
}

impl Steady {
    fn start(mode: Mode, path: &Path) -> Steady {
        let mut connection = connect_when_there(mode, path);
        let (stop, calls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, counted) = (stop.clone(), calls.clone());
        let thread = std::thread::spawn(move || {
            let mut longest = Duration::ZERO;
            for at in 0.. {
                let request = pattern(at, (at * 61 % 3_000) as usize);
                let started = Instant::now();
                assert_eq!(connection.call(&request, within(20)).unwrap(), request);
                longest = longest.max(started.elapsed());
                counted.fetch_add(1, Ordering::Relaxed);
                if stopped.load(Ordering::Relaxed) {
                    break;
                }
                // A pause in some places, so that both sides also sleep and wake.
                if at % 16 == 0 {
                    std::thread::sleep(Duration::from_micros(300));
                }
            }
            longest
        });
        Steady { stop, calls, thread }
    }

    fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    fn stop(self) -> Duration {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

fn clients_killed_at_any_moment_leave_nothing_and_disturb_nobody(mode: Mode) {
    let directory = tempfile::tempdir().unwrap();
    let helper = Role::start(mode, "helper", directory.path());
    let steady = Steady::start(mode, &directory.path().join(SOCKET));
    // A call was answered: so the helper is done with the greeting, and with the descriptors that it passed.
    wait_until(|| steady.calls() > 0);
    let before = holdings(helper.child.id());
    assert_eq!(before.1, 1);
    let mut dice = Dice(1);
    let mut keys = recorded_keys(directory.path());
    for _ in 0..16 {
        let calls = steady.calls();
        let mut callers: Vec<Role> = (0..4).map(|_| Role::start(mode, "caller", directory.path())).collect();
        // Two killed wherever they are, perhaps in the greeting; two in the middle of calls.
        for (at, caller) in callers.iter_mut().enumerate() {
            if at >= 2 {
                caller.wait_for("READY");
            }
            std::thread::sleep(Duration::from_micros(dice.roll(8_000)));
            keys.extend(recorded_keys(directory.path()));
            caller.kill();
        }
        wait_until(|| steady.calls() > calls);
    }
    let deadline = Instant::now() + Duration::from_secs(10);
    while holdings(helper.child.id()) != before {
        assert!(Instant::now() < deadline, "{:?} held, {before:?} before", holdings(helper.child.id()));
        std::thread::sleep(Duration::from_millis(5));
    }
    // Of all queues that there were, those of the one that lives are left.
    keys.sort();
    keys.dedup();
    let queues = match mode {
        Mode::Mq => 2,
        Mode::Rmq => 1,
        _ => 0,
    };
    // The helper lets a client's descriptors go before its queues, so those take a moment more.
    wait_until(|| (recorded_keys(directory.path()).len(), existing(&keys).len()) == (queues, queues));
    let mine = recorded_keys(directory.path());
    assert!(keys.len() >= 32 * queues, "{} queues were seen", keys.len());
    steady.stop();
    // Its queues too, before the helper is killed: nobody would sweep here.
    wait_until(|| existing(&mine).is_empty());
    let leftovers: Vec<_> = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(leftovers.len(), if queues > 0 { 3 } else { 2 }, "{leftovers:?}");
}

fn a_helper_killed_in_a_call_is_seen_and_its_place_taken(mode: Mode) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(SOCKET);
    let (mut left, mut kept) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let mut helper = Role::start(mode, "helper", directory.path());
        let mut connection = connect_when_there(mode, &path);
        assert_eq!(connection.call(b"alive", within(20)).unwrap(), b"alive");
        // What the helper before this one left is gone.
        assert_eq!(existing(&left), vec![]);
        left = recorded_keys(directory.path());
        let refused = Server::bind(directory.path(), SOCKET, Options::default()).err();
        let pid = helper.child.id();
        assert!(matches!(refused, Some(Error::AlreadyServed { pid: Some(named), .. }) if named == pid), "{refused:?}");
        let caller = std::thread::spawn(move || {
            let answer = connection.call(b"keep", within(60));
            (answer, Instant::now(), connection.call(b"x", within(60)), connection)
        });
        helper.wait_for("KEPT");
        let killed = Instant::now();
        helper.kill();
        let (answer, seen, again, connection) = caller.join().unwrap();
        // Dropped, it would remove what is its own.
        kept.push(connection);
        assert!(matches!(answer, Err(Error::Over(Over::HelperGone))), "{answer:?}");
        assert!(matches!(again, Err(Error::Over(Over::HelperGone))), "{again:?}");
        assert!(seen.duration_since(killed) < Duration::from_secs(10));
        assert!(path.exists(), "a killed helper leaves its socket, which the next one replaces");
    }
    let queues = match mode {
        Mode::Mq => 2,
        Mode::Rmq => 1,
        _ => 0,
    };
    let server = Server::bind(directory.path(), SOCKET, Options::default()).unwrap();
    assert_eq!((left.len(), server.counters().swept_queues), (queues, queues as u64));
    assert_eq!(existing(&left), vec![]);
}

fn who_takes_a_dead_helpers_place_finds_that_its_clients_know(mode: Mode) {
    for round in 0..10 {
        // Processes that other tests start have a descriptor of this one's lock for a moment.
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(SOCKET);
        let mut helper = Role::start(mode, "helper", directory.path());
        let mut connection = connect_when_there(mode, &path);
        assert_eq!(connection.call(b"alive", within(20)).unwrap(), b"alive");
        let board = connection.board();
        // Stopped it is there.
        helper.signal(Signal::STOP);
        std::thread::sleep(Duration::from_millis(2));
        assert!(board.helper_lives() && Server::bind(directory.path(), SOCKET, Options::default()).is_err());
        helper.signal(Signal::KILL);
        let until = Instant::now() + Duration::from_secs(20);
        let server = loop {
            let lives = board.helper_lives();
            match Server::bind(directory.path(), SOCKET, Options::default()) {
                Ok(server) => break server,
                Err(Error::AlreadyServed { .. }) => {
                    assert!(Instant::now() < until, "the dead helper's place is not free")
                }
                Err(error) => panic!("{error}, and it is said to live: {lives}"),
            }
        };
        assert!(!board.helper_lives(), "round {round}: its place is free, and it is said to live");
        assert!(server.board().tells_its_end());
        helper.kill();
    }
}

fn a_stopped_client_with_a_full_ring_stalls_nobody(mode: Mode) {
    let helper = Helper::start(Options::default(), echo);
    let directory = helper.directory.path().to_owned();
    let mut hoarder = Role::start(mode, "hoarder", &directory);
    hoarder.wait_for("READY");
    let stat = format!("/proc/{}/stat", hoarder.child.id());
    wait_until(|| fs::read_to_string(&stat).unwrap().contains(") T "));
    let mut connection = connect(mode, &helper.path);
    for at in 0..500u64 {
        let request = pattern(at, at as usize * 13 % 4_000);
        assert_eq!(connection.call(&request, within(20)).unwrap(), request);
    }
    hoarder.signal(Signal::CONT);
    hoarder.wait_for("DONE");
    let counters = helper.stop();
    assert!(counters.full_rings > 0, "{counters:?}");
    assert_eq!(counters.requests, 500 + HOARDED as u64);
}

fn a_client_that_scribbles_over_its_memory_disturbs_nobody(mode: Mode) {
    let helper = Helper::start(Options::default(), echo);
    let steady = Steady::start(mode, &helper.path);
    let mut scribblers: Vec<Role> = (0..2).map(|_| Role::start(mode, "scribbler", helper.directory.path())).collect();
    for scribbler in &mut scribblers {
        scribbler.wait_for("READY");
    }
    let calls = steady.calls();
    let end = Instant::now() + Duration::from_secs(3);
    // Where requests go through a queue there is nothing in memory that could be believed.
    let is_disturbed = || mode == Mode::Mq || helper.bad_frames() > 20;
    wait_until(|| steady.calls() > calls + 1_000 && Instant::now() > end && is_disturbed());
    for scribbler in &mut scribblers {
        assert!(scribbler.child.try_wait().unwrap().is_none(), "a scribbler ended early");
    }
    let longest = steady.stop();
    drop(scribblers);
    helper.stop();
    assert!(longest < Duration::from_secs(5), "{longest:?}");
}

#[test]
fn a_helper_without_descriptors_turns_away_and_goes_on() {
    let mode = Mode::default();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(SOCKET);
    let _helper = Role::start(mode, "poor helper", directory.path());
    let mut connections = vec![connect_when_there(mode, &path)];
    let refused = loop {
        match Connection::connect_in(mode, &path, BootClock.now() + Duration::from_millis(300)) {
            Ok(connection) => connections.push(connection),
            Err(error) => break error,
        }
        assert!(connections.len() < 20, "twenty clients within twenty descriptors");
    };
    let exhausted = Error::Over(Over::Dismissed(Farewell::Exhausted)).to_string();
    assert!(matches!(refused, Error::NoGreeting { .. }) || refused.to_string() == exhausted, "{refused}");
    assert!(connections.len() >= 2);
    // Those who connect and say nothing take what is left, down to where accepting itself fails.
    let silent: Vec<_> = (0..20).map(|_| dial(&path)).collect();
    for connection in &mut connections {
        assert_eq!(connection.call(b"still", within(20)).unwrap(), b"still");
    }
    drop((connections, silent));
    let mut again = None;
    wait_until(|| {
        again = Connection::connect_in(mode, &path, BootClock.now() + Duration::from_millis(300)).ok();
        again.is_some()
    });
    assert_eq!(again.unwrap().call(b"again", within(20)).unwrap(), b"again");
}

fn another_user_is_served_only_if_allowed(mode: Mode) {
    if !rustix::process::getuid().is_root() {
        eprintln!("skipped: only root can become another user");
        return;
    }
    for (allowed, word) in [(1, "REFUSED"), (STRANGER, "SERVED")] {
        let helper = Helper::start(Options { allowed_uids: vec![allowed], ..Options::default() }, echo);
        fs::set_permissions(helper.directory.path(), fs::Permissions::from_mode(0o711)).unwrap();
        Role::start(mode, "stranger", helper.directory.path()).wait_for(word);
    }
}

fn many_clients_are_served_by_one_thread(mode: Mode) {
    const CLIENTS: usize = 200;
    let helper = Helper::start(Options { ring_bytes: 4096, ..Options::default() }, echo);
    let mut connections: Vec<Connection> = (0..CLIENTS).map(|_| connect(mode, &helper.path)).collect();
    for round in 0..5u64 {
        for (at, connection) in connections.iter_mut().enumerate() {
            connection.post(&pattern(round * 1_000 + at as u64, 64), within(20)).unwrap();
        }
        for (at, connection) in connections.iter_mut().enumerate() {
            let response = connection.poll(within(20)).unwrap().unwrap();
            assert_eq!(response.answer.unwrap(), pattern(round * 1_000 + at as u64, 64));
        }
    }
    let counters = helper.stop();
    assert_eq!((counters.requests, counters.clients), (5 * CLIENTS as u64, CLIENTS as u64));
}

fn wait_until(mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(Instant::now() < deadline, "it did not come about within a minute");
        std::thread::sleep(Duration::from_millis(5));
    }
}
