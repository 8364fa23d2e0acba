//! A helper and its programs in one process: what a call promises.

use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::common::{Helper, SOCKET, connect, dial, echo, existing, pattern, recorded_keys, request_seed, within};
use rustix::thread::{CpuSet, sched_getaffinity};
use verbena_ipc::{
    Connection, Error, Event, Farewell, MAX_OUTSTANDING, Mode, Options, Over, Refusal, Responder, Server,
};
use verbena_terms::{BootClock, Clock, Time};

in_every_mode! {
    answers_of_every_length_come_back_whole
    deferred_answers_come_in_any_order_from_any_thread
    a_call_takes_its_own_answer_and_leaves_the_others
    what_is_too_long_is_refused_and_nothing_is_lost
    a_full_request_ring_waits_until_the_deadline_and_then_says_so
    an_answer_after_the_deadline_is_dropped_and_not_taken_for_another
    full_rings_both_ways_resolve
    a_client_may_not_pile_up_requests
    a_helper_that_ends_says_so_and_one_that_is_full_does_too
    a_silent_newcomer_gives_way
    arrivals_and_departures_are_told_with_who_it_was
    what_was_posted_before_the_end_is_handled_first
    a_deadline_in_the_past_and_a_helper_that_does_not_greet_end_at_once
    what_was_answered_before_the_end_is_there_after_it
    a_helper_that_polls_serves_and_never_sleeps
    a_descriptor_goes_with_its_answer
}

fn small() -> Options {
    Options { ring_bytes: 4096, ..Options::default() }
}

fn answers_of_every_length_come_back_whole(mode: Mode) {
    let helper = Helper::start(Options::default(), echo);
    let mut connection = connect(mode, &helper.path);
    assert_eq!(connection.longest_request(), 16 << 10);
    for length in (0..64).chain((64..=16 << 10).step_by(509)).chain([16 << 10]) {
        let request = pattern(length as u64, length);
        assert_eq!(connection.call(&request, within(20)).unwrap(), request, "{length}");
    }
    drop(connection);
    assert!(helper.stop().requests > 90);
}

fn deferred_answers_come_in_any_order_from_any_thread(mode: Mode) {
    let (defer, deferred) = mpsc::channel::<(Vec<u8>, Responder)>();
    let later = std::thread::spawn(move || {
        let mut waiting: Vec<_> = deferred.iter().take(8).collect();
        while let Some((bytes, responder)) = waiting.pop() {
            responder.answer(bytes).unwrap();
        }
    });
    let helper = Helper::start(Options::default(), move |event| {
        if let Event::Request(request) = event {
            let bytes = request.bytes().to_vec();
            defer.send((bytes, request.defer())).unwrap();
        }
    });
    let mut connection = connect(mode, &helper.path);
    let posted: Vec<u64> = (0..8u8).map(|at| connection.post(&[at], within(20)).unwrap()).collect();
    assert_eq!(connection.poll(Time::ZERO).unwrap().map(|response| response.number).unwrap_or(posted[7]), posted[7]);
    later.join().unwrap();
    let mut seen = 1;
    while let Some(response) = connection.poll(if seen < 8 { within(20) } else { Time::ZERO }).unwrap() {
        let at = posted.iter().position(|number| *number == response.number).unwrap();
        assert_eq!(response.answer, Ok(vec![at as u8]));
        seen += 1;
    }
    assert!(seen >= 8);
}

fn a_descriptor_goes_with_its_answer(mode: Mode) {
    let helper = Helper::start(Options::default(), |event| {
        let Event::Request(request) = event else { return };
        let bytes = request.bytes().to_vec();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        match bytes.last() {
            Some(b'0'..=b'4') => request.answer_with(&bytes, Some(file.as_fd())).unwrap(),
            Some(b'x') => request.answer(&bytes).unwrap(),
            _ => request.defer().answer_with(bytes, Some(file.into())).unwrap(),
        }
    });
    let read = |descriptor: OwnedFd| {
        let (mut file, mut text) = (File::from(descriptor), String::new());
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        text
    };
    let mut connection = connect(mode, &helper.path);
    let posted: Vec<u64> =
        (0..8).map(|nth| connection.post(format!("file {nth}").as_bytes(), within(20)).unwrap()).collect();
    for _ in &posted {
        let response = connection.poll(within(20)).unwrap().unwrap();
        let text = String::from_utf8(response.answer.unwrap()).unwrap();
        assert_eq!(connection.attached(response.number).map(read), Some(text));
        assert!(connection.attached(response.number).is_none(), "it is taken once");
    }
    let without = connection.post(b"x", within(20)).unwrap();
    assert_eq!(connection.poll(within(20)).unwrap().unwrap().number, without);
    assert!(connection.attached(without).is_none());
    // Whoever takes none of them gets answers all the same.
    for nth in 0..1000 {
        assert!(connection.call(format!("file {}", nth % 8).as_bytes(), within(20)).is_ok());
    }
    assert!(connection.attached(posted[0]).is_none());
    assert_eq!(connection.call(b"still there x", within(20)).unwrap(), b"still there x");
    drop(connection);
    assert_eq!(helper.stop().bad_frames, 0);
}

fn a_call_takes_its_own_answer_and_leaves_the_others(mode: Mode) {
    let helper = Helper::start(Options::default(), echo);
    let mut connection = connect(mode, &helper.path);
    let first = connection.post(b"first", within(20)).unwrap();
    assert_eq!(connection.call(b"second", within(20)).unwrap(), b"second");
    let response = connection.poll(within(20)).unwrap().unwrap();
    assert_eq!((response.number, response.answer.unwrap()), (first, b"first".to_vec()));
    assert_eq!(connection.poll(Time::ZERO).unwrap(), None);
}

fn what_is_too_long_is_refused_and_nothing_is_lost(mode: Mode) {
    let helper = Helper::start(small(), |event| {
        if let Event::Request(request) = event {
            let bytes = request.bytes();
            match bytes {
                b"long" => {
                    assert!(matches!(request.answer(&[0; 1025]), Err(Error::TooLong { bytes: 1025, limit: 1024 })))
                }
                b"long, later" => assert!(request.defer().answer(vec![0; 2000]).is_err()),
                b"nothing" => drop(request),
                b"nothing, later" => drop(request.defer()),
                _ => request.answer(bytes).unwrap(),
            }
        }
    });
    let mut connection = connect(mode, &helper.path);
    let mut refused = |request: &[u8]| match connection.call(request, within(20)) {
        Err(Error::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(b"long"), Refusal::AnswerTooLong { bytes: 1025, limit: 1024 });
    assert_eq!(refused(b"long, later"), Refusal::AnswerTooLong { bytes: 2000, limit: 1024 });
    assert_eq!(refused(b"nothing"), Refusal::Unanswered);
    assert_eq!(refused(b"nothing, later"), Refusal::Unanswered);
    assert!(matches!(connection.call(&[0; 1025], within(20)), Err(Error::TooLong { bytes: 1025, limit: 1024 })));
    assert_eq!(connection.call(b"and on", within(20)).unwrap(), b"and on");
}

fn a_full_request_ring_waits_until_the_deadline_and_then_says_so(mode: Mode) {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::bind(directory.path(), SOCKET, small()).unwrap();
    let mut connection = accepted(mode, &mut server);
    let mut sent = 0;
    while connection.post(&[1; 1000], BootClock.now() + Duration::from_millis(20)).is_ok() {
        sent += 1;
    }
    // A kilobyte each, in a ring of 4 KiB or in a queue of 16.
    assert_eq!(sent, if mode == Mode::Mq { 16 } else { 3 });
    let started = Instant::now();
    let full = connection.post(&[1; 1000], BootClock.now() + Duration::from_millis(60));
    assert!(matches!(full, Err(Error::Full)), "{full:?}");
    assert!(started.elapsed() >= Duration::from_millis(60) && started.elapsed() < Duration::from_secs(5));
    assert_eq!(connection.counters().full_rings, 2);
    // It is no end: once the helper takes them, the rest goes through.
    while server.counters().requests < sent {
        server.poll(Duration::ZERO, &mut echo).unwrap();
    }
    connection.post(&[2; 1000], within(20)).unwrap();
}

fn an_answer_after_the_deadline_is_dropped_and_not_taken_for_another(mode: Mode) {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::bind(directory.path(), SOCKET, small()).unwrap();
    let mut connection = accepted(mode, &mut server);
    let late = connection.call(b"first", BootClock.now() + Duration::from_millis(30));
    assert!(matches!(late, Err(Error::Deadline { number: 1 })), "{late:?}");
    let second = connection.post(b"second", within(20)).unwrap();
    while server.counters().responses < 2 {
        server.poll(Duration::ZERO, &mut echo).unwrap();
    }
    let response = connection.poll(within(20)).unwrap().unwrap();
    assert_eq!((response.number, response.answer.unwrap()), (second, b"second".to_vec()));
    assert_eq!(connection.poll(Time::ZERO).unwrap(), None);
    assert_eq!(connection.counters().responses, 2);
}

/// Both rings full and each side waiting for the other would be a deadlock; the client takes while it waits.
fn full_rings_both_ways_resolve(mode: Mode) {
    let helper = Helper::start(small(), echo);
    let mut connection = connect(mode, &helper.path);
    let mut other = connect(mode, &helper.path);
    for at in 0..200u64 {
        connection.post(format!("size {}", 900 + at % 100).as_bytes(), within(20)).unwrap();
        assert_eq!(other.call(b"meanwhile", within(20)).unwrap(), b"meanwhile");
    }
    for at in 0..200u64 {
        let response = connection.poll(within(20)).unwrap().unwrap();
        let request = format!("size {}", 900 + at % 100);
        assert_eq!(response.number, at + 1);
        assert_eq!(response.answer.unwrap(), pattern(request_seed(request.as_bytes()), 900 + at as usize % 100));
    }
    assert!(helper.stop().full_rings > 0);
}

fn a_client_may_not_pile_up_requests(mode: Mode) {
    let helper = Helper::start(Options { max_deferred: 2, ..Options::default() }, {
        let mut kept = Vec::new();
        move |event| {
            if let Event::Request(request) = event {
                kept.push(request.defer());
                assert!(kept.len() <= 2, "more than max_deferred");
            }
        }
    });
    let mut connection = connect(mode, &helper.path);
    for _ in 0..MAX_OUTSTANDING {
        connection.post(b"x", within(20)).unwrap();
    }
    let refused = connection.post(b"x", within(20));
    assert!(matches!(refused, Err(Error::Outstanding { limit: MAX_OUTSTANDING })), "{refused:?}");
    drop(connection);
    drop(connect(mode, &helper.path));
    assert_eq!(helper.stop().requests, 2);
}

fn a_helper_that_ends_says_so_and_one_that_is_full_does_too(mode: Mode) {
    let helper = Helper::start(Options { max_clients: 1, ..Options::default() }, echo);
    let mut connection = connect(mode, &helper.path);
    assert_eq!(connection.call(b"x", within(20)).unwrap(), b"x");
    let crowded = Connection::connect_in(mode, &helper.path, within(20)).err();
    assert!(matches!(crowded, Some(Error::Over(Over::Dismissed(Farewell::Crowded)))), "{crowded:?}");
    let path = helper.path.clone();
    assert_eq!(helper.stop().refused_clients, 1);
    let over = connection.call(b"x", within(20));
    assert!(matches!(over, Err(Error::Over(Over::Dismissed(Farewell::ShuttingDown)))), "{over:?}");
    assert!(!path.exists());
    let nobody = Connection::connect_in(mode, &path, within(20)).err();
    assert!(matches!(nobody, Some(Error::NoHelper { .. })), "{nobody:?}");
}

fn a_silent_newcomer_gives_way(mode: Mode) {
    let helper = Helper::start(Options { max_clients: 2, ..Options::default() }, echo);
    let _silent: Vec<_> = (0..8).map(|_| dial(&helper.path)).collect();
    let (mut one, mut two) = (connect(mode, &helper.path), connect(mode, &helper.path));
    assert_eq!(one.call(b"1", within(20)).unwrap(), b"1");
    assert_eq!(two.call(b"2", within(20)).unwrap(), b"2");
}

#[test]
fn a_greeting_of_another_version_and_talk_afterwards_are_refused() {
    use rustix::net::{RecvFlags, SendFlags};
    let helper = Helper::start(Options::default(), echo);
    let exchange = |words: &[&[u8]]| {
        let socket = dial(&helper.path);
        words
            .iter()
            .map(|word| {
                rustix::net::send(&socket, word, SendFlags::NOSIGNAL).unwrap();
                let mut reply = [0; 64];
                let (_, length) = rustix::net::recv(&socket, &mut reply, RecvFlags::empty()).unwrap();
                reply[..length].to_vec()
            })
            .collect::<Vec<_>>()
    };
    let status = |reply: &[u8]| u32::from_le_bytes(reply[8..12].try_into().unwrap());
    let hello = b"VIPH\x01\0\0\0\x01\0\0\0";
    assert_eq!(status(&exchange(&[b"VIPH\x02\0\0\0\x01\0\0\0"])[0]), Farewell::Misunderstood as u32);
    assert_eq!(status(&exchange(&[b"VIPH\x01\0\0\0\x09\0\0\0"])[0]), Farewell::UnknownMode as u32);
    assert_eq!(status(&exchange(&[b"GET / HTTP/1.1\r\n\r\n and so on"])[0]), Farewell::Misunderstood as u32);
    let replies = exchange(&[hello, b"and another thing"]);
    assert_eq!((status(&replies[0]), status(&replies[1])), (0, Farewell::Breach as u32));
    let counters = helper.stop();
    assert_eq!((counters.refused_clients, counters.bad_frames), (3, 1));
}

fn arrivals_and_departures_are_told_with_who_it_was(mode: Mode) {
    let (tell, told) = mpsc::channel();
    let helper = Helper::start(Options::default(), move |event| match event {
        Event::Arrived { client, uid, pid } => tell.send((client.to_string(), Some((uid, pid)))).unwrap(),
        Event::Gone { client } => tell.send((client.to_string(), None)).unwrap(),
        Event::Request(request) => request.answer(b"").unwrap(),
    });
    let connection = connect(mode, &helper.path);
    let name = connection.client().to_string();
    let us = (rustix::process::getuid().as_raw(), std::process::id());
    assert_eq!(told.recv_timeout(Duration::from_secs(20)).unwrap(), (name.clone(), Some(us)));
    drop(connection);
    assert_eq!(told.recv_timeout(Duration::from_secs(20)).unwrap(), (name, None));
    assert_eq!(helper.stop().dead_clients, 1);
}

fn what_was_posted_before_the_end_is_handled_first(mode: Mode) {
    let (tell, told) = mpsc::channel();
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::bind(directory.path(), SOCKET, small()).unwrap();
    let mut connection = accepted(mode, &mut server);
    for at in 0..50u8 {
        connection.post(&[at], within(20)).unwrap();
    }
    drop(connection);
    // Long enough for a look at the sockets to be due before the rings' turn.
    std::thread::sleep(Duration::from_millis(5));
    while server.counters().clients > 0 {
        let handler = &mut |event: Event<'_>| match event {
            Event::Request(request) => tell.send(Some(request.bytes()[0])).unwrap(),
            Event::Gone { .. } => tell.send(None).unwrap(),
            Event::Arrived { .. } => {}
        };
        server.poll(Duration::from_millis(1), handler).unwrap();
    }
    let events: Vec<Option<u8>> = told.try_iter().collect();
    assert_eq!(events, (0..50).map(Some).chain([None]).collect::<Vec<_>>());
}

fn a_deadline_in_the_past_and_a_helper_that_does_not_greet_end_at_once(mode: Mode) {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::bind(directory.path(), SOCKET, Options::default()).unwrap();
    let started = Instant::now();
    let silent = Connection::connect_in(mode, &server.path(), BootClock.now() + Duration::from_millis(50)).err();
    assert!(matches!(silent, Some(Error::NoGreeting { .. })), "{silent:?}");
    assert!(started.elapsed() < Duration::from_secs(5));
}

fn what_was_answered_before_the_end_is_there_after_it(mode: Mode) {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::bind(directory.path(), SOCKET, small()).unwrap();
    let mut connection = accepted(mode, &mut server);
    let mut idle = accepted(mode, &mut server);
    let posted: Vec<u64> = (0..3u8).map(|at| connection.post(&[at], within(20)).unwrap()).collect();
    while server.counters().responses < 3 {
        server.poll(Duration::ZERO, &mut echo).unwrap();
    }
    let keys = recorded_keys(directory.path());
    drop(server);
    for (at, number) in (0..3u8).zip(posted) {
        let response = connection.poll(within(20)).unwrap().unwrap();
        assert_eq!((response.number, response.answer.unwrap()), (number, vec![at]));
    }
    for connection in [&mut connection, &mut idle] {
        let over = connection.poll(within(20));
        assert!(matches!(over, Err(Error::Over(Over::Dismissed(Farewell::ShuttingDown)))), "{over:?}");
    }
    drop((connection, idle));
    let has_queues = matches!(mode, Mode::Mq | Mode::Rmq);
    assert_eq!((!keys.is_empty(), existing(&keys)), (has_queues, vec![]));
}

#[test]
fn a_mode_that_is_not_served_is_refused() {
    let helper = Helper::start(Options { modes: vec![Mode::Rcq, Mode::Mq], ..Options::default() }, echo);
    for mode in Mode::ALL {
        let connected = Connection::connect_in(mode, &helper.path, within(20));
        match mode {
            Mode::Rcq | Mode::Mq => assert_eq!(connected.unwrap().call(b"x", within(20)).unwrap(), b"x"),
            _ => assert!(matches!(connected.err(), Some(Error::Over(Over::Dismissed(Farewell::NotServed))))),
        }
    }
    let none = Options { modes: vec![], ..Options::default() };
    let refused = Server::bind(helper.directory.path(), "other", none).err();
    assert!(matches!(refused, Some(Error::ZeroOption { option: "modes" })), "{refused:?}");
    let counters = helper.stop();
    assert_eq!(counters.of_mode.map(|of| of.requests), [1, 0, 1, 0]);
}

fn a_helper_that_polls_serves_and_never_sleeps(mode: Mode) {
    let core = *verbena_terms::usable_cores().unwrap().last().unwrap();
    let (tell, told) = mpsc::channel();
    let helper = Helper::start(Options { progress_core: Some(core), ..small() }, move |event| {
        if matches!(event, Event::Arrived { .. }) {
            let here = sched_getaffinity(None).unwrap();
            tell.send((here.count(), here.is_set(core))).unwrap();
        }
        echo(event);
    });
    let mut connection = connect(mode, &helper.path);
    assert_eq!(told.recv_timeout(Duration::from_secs(20)).unwrap(), (1, true));
    for at in 0..200u64 {
        let request = pattern(at, at as usize);
        assert_eq!(connection.call(&request, within(20)).unwrap(), request);
        if at % 40 == 0 {
            std::thread::sleep(Duration::from_millis(3));
        }
    }
    let counters = helper.stop();
    assert_eq!((counters.requests, counters.sleeps), (200, 0));
}

#[test]
fn a_core_that_there_is_not_is_refused_before_anything_is_there() {
    let directory = tempfile::tempdir().unwrap();
    for core in [CpuSet::MAX_CPU - 1, CpuSet::MAX_CPU] {
        let options = Options { progress_core: Some(core), ..small() };
        let refused = Server::bind(directory.path(), SOCKET, options).err().unwrap();
        assert!(
            refused.to_string().starts_with(&format!("this process cannot use core {core}: it may use ")),
            "{refused}"
        );
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

/// A connection to a helper that is polled by hand.
fn accepted(mode: Mode, server: &mut Server) -> Connection {
    let (path, clients) = (server.path(), server.counters().clients);
    let client = std::thread::spawn(move || connect(mode, &path));
    while server.counters().clients == clients {
        server.poll(Duration::from_millis(1), &mut echo).unwrap();
    }
    client.join().unwrap()
}
