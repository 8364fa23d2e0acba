//! What another process of the same user can do to the queues of a client.

use std::time::{Duration, Instant};

use crate::common::{self, Helper, connect, echo, existing, recorded_keys, within};
use verbena_ipc::{Breach, Connection, Error, Farewell, Mode, Options, Over};
use verbena_terms::{BootClock, Clock, Time};

/// Puts a message of any kind and text into a queue, as anybody of this user may.
fn put(key: i32, kind: i64, text: &[u8]) {
    let mut message = kind.to_ne_bytes().to_vec();
    message.extend_from_slice(text);
    // SAFETY: the buffer begins with a kind and has as much text as is said.
    let status = unsafe { libc::msgsnd(libc::msgget(key, 0), message.as_ptr().cast(), text.len(), libc::IPC_NOWAIT) };
    assert_eq!(status, 0);
}

fn remove(key: i32) {
    // SAFETY: takes numbers; the structure is not used.
    let status = unsafe { libc::msgctl(libc::msgget(key, 0), libc::IPC_RMID, std::ptr::null_mut()) };
    assert_eq!(status, 0);
}

/// A client whose queues have these keys (requests, responses), and another one that must not notice.
fn two_clients(helper: &Helper) -> (Connection, [i32; 2], Connection) {
    let mut victim = connect(Mode::Mq, &helper.path);
    assert_eq!(victim.call(b"first", within(20)).unwrap(), b"first");
    let keys = recorded_keys(helper.directory.path()).try_into().unwrap();
    let mut other = connect(Mode::Mq, &helper.path);
    assert_eq!(other.call(b"other", within(20)).unwrap(), b"other");
    (victim, keys, other)
}

fn is_dismissed(result: Result<Vec<u8>, Error>) {
    let breach = Error::Over(Over::Dismissed(Farewell::Breach)).to_string();
    assert_eq!(result.unwrap_err().to_string(), breach);
}

#[test]
fn what_is_no_piece_ends_its_client_and_nobody_else() {
    let mut piece = [0; 24];
    piece[..4].copy_from_slice(&1u32.to_ne_bytes());
    let mut continues = piece;
    (continues[4], continues[8]) = (8, 4);
    let mut too_long = piece;
    too_long[4..8].copy_from_slice(&u32::MAX.to_ne_bytes());
    let bad: [(i64, &[u8]); 7] =
        [(1, b""), (1, b"no piece"), (1, &continues), (1, &too_long), (7, b"strange"), (2, b""), (1, &[9; 8192])];
    for (kind, text) in bad {
        let helper = Helper::start(Options::default(), echo);
        let (mut victim, keys, mut other) = two_clients(&helper);
        put(keys[0], kind, text);
        is_dismissed(victim.call(b"second", within(20)));
        assert_eq!(other.call(b"and on", within(20)).unwrap(), b"and on");
        assert_eq!(existing(&keys), vec![]);
        let counters = helper.stop();
        assert_eq!((counters.bad_frames, counters.dead_clients), (1, 0), "{kind} {text:?}");
    }
}

#[test]
fn a_client_does_not_believe_what_is_no_response() {
    let helper = Helper::start(Options::default(), echo);
    let (mut victim, keys, mut other) = two_clients(&helper);
    put(keys[1], 2, b"");
    assert_eq!(victim.call(b"a call is nothing", within(20)).unwrap(), b"a call is nothing");
    put(keys[1], 1, b"no piece");
    let over = victim.call(b"second", within(20));
    assert!(matches!(over, Err(Error::Over(Over::Broken(Breach::Piece)))), "{over:?}");
    assert_eq!(other.call(b"and on", within(20)).unwrap(), b"and on");
}

#[test]
fn a_queue_that_somebody_removes_ends_its_client_and_nobody_else() {
    for which in [0, 1] {
        let helper = Helper::start(Options::default(), echo);
        let (mut victim, keys, mut other) = two_clients(&helper);
        remove(keys[which]);
        let began = Instant::now();
        let over = victim.call(b"second", within(20));
        assert!(matches!(over, Err(Error::Over(_))), "{over:?}");
        assert!(began.elapsed() < Duration::from_secs(10));
        drop(victim);
        assert_eq!(other.call(b"and on", within(20)).unwrap(), b"and on");
        let end = Instant::now() + Duration::from_secs(20);
        while !existing(&keys).is_empty() {
            assert!(Instant::now() < end, "a queue is left");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// A queue holds less than one long message: it goes through in pieces, and what is given up in the middle is as if it never was.
#[test]
fn a_request_that_was_given_up_in_the_middle_is_forgotten() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = verbena_ipc::Server::bind(directory.path(), common::SOCKET, Options::default()).unwrap();
    let path = server.path();
    let client = std::thread::spawn(move || connect(Mode::Mq, &path));
    while server.counters().clients == 0 {
        server.poll(Duration::from_millis(1), &mut echo).unwrap();
    }
    let mut connection = client.join().unwrap();
    let soon = || BootClock.now() + Duration::from_millis(20);
    let long = vec![7; 16 << 10];
    let full = connection.post(&long, soon());
    assert!(matches!(full, Err(Error::Full)), "{full:?}");
    while server.poll(Duration::from_millis(5), &mut echo).unwrap() > 0 {}
    assert_eq!(server.counters().requests, 0);
    let number = connection.post(b"short", within(20)).unwrap();
    while server.counters().responses == 0 {
        server.poll(Duration::from_millis(1), &mut echo).unwrap();
    }
    let response = connection.poll(within(20)).unwrap().unwrap();
    assert_eq!((response.number, response.answer.unwrap()), (number, b"short".to_vec()));
    assert_eq!(connection.poll(Time::ZERO).unwrap(), None);
    assert_eq!(server.counters().bad_frames, 0);
}
