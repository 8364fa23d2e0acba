//! The channel `udp` on real sockets: proven by the secret and the token, whole to the last byte, and closed when one side goes.

use std::io::{Read, Write};
use std::net::{IpAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use verbena_transfer::{Arriving, ChannelKind, Endpoint, Ends, UdpListener, UdpListening};

use crate::both_ways::a_tree_goes_both_ways;

const LIMIT: Duration = Duration::from_secs(60);
const TOKEN: [u8; 16] = [5; 16];
const MOST: u16 = 4;

fn loopback() -> IpAddr {
    IpAddr::from([127, 0, 0, 1])
}

fn listening() -> (Endpoint, Arriving, UdpListening) {
    let listener = UdpListener::bind((loopback(), 0).into()).unwrap();
    let (address, secret) = (listener.address().unwrap(), Some(listener.secret()));
    let endpoint = Endpoint { channel: ChannelKind::Udp, address, token: TOKEN, fingerprint: None, secret };
    let (handed_on, arriving) = std::sync::mpsc::channel();
    let listening = listener.start(TOKEN, MOST, vec![loopback()], handed_on).unwrap();
    (endpoint, arriving, listening)
}

/// Both ends of a stream.
fn pair() -> ([Ends; 2], UdpListening) {
    let (endpoint, arriving, listening) = listening();
    let near = endpoint.make(0, MOST, LIMIT).unwrap();
    let (_, far) = arriving.recv_timeout(LIMIT).unwrap();
    ([near, far].map(|end| end.ends().unwrap()), listening)
}

#[test]
fn a_tree_goes_over_udp_both_ways() {
    a_tree_goes_both_ways(listening, MOST, "udp with a rate of its own");
}

#[test]
fn another_secret_and_another_token_are_refused() {
    let (endpoint, arriving, _listening) = listening();
    // One that does not know the secret is not answered.
    let short = Duration::from_millis(300);
    let forged = Endpoint { secret: Some([1; 32]), ..endpoint }.make(0, MOST, short).err().unwrap();
    assert_eq!(forged.kind(), std::io::ErrorKind::TimedOut);
    assert!(Endpoint { secret: None, ..endpoint }.make(0, MOST, LIMIT).is_err());
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    for length in [0, 1, 16, 31, 32, 200, 1352, 5000] {
        stranger.send_to(&vec![7; length], endpoint.address).unwrap();
    }
    // A thief is closed, and the session waits for its own stream.
    let thief = Endpoint { token: [6; 16], ..endpoint }.make(0, MOST, LIMIT).unwrap();
    let mut stolen = Vec::new();
    assert!(thief.ends().unwrap().read.read_to_end(&mut stolen).is_err() && stolen.is_empty());
    let ours = endpoint.make(2, MOST, LIMIT).unwrap();
    assert_eq!(arriving.recv_timeout(LIMIT).unwrap().0, 2);
    stranger.set_nonblocking(true).unwrap();
    assert!(stranger.recv(&mut [0; 9]).is_err(), "a stranger was answered");
    drop(ours);
}

#[test]
fn an_address_that_is_not_of_the_session_is_refused() {
    let listener = UdpListener::bind((loopback(), 0).into()).unwrap();
    let (address, secret) = (listener.address().unwrap(), Some(listener.secret()));
    let endpoint = Endpoint { channel: ChannelKind::Udp, address, token: TOKEN, fingerprint: None, secret };
    let (handed_on, arriving) = std::sync::mpsc::channel();
    let _listening = listener.start(TOKEN, MOST, vec![[192, 0, 2, 1].into()], handed_on).unwrap();
    assert!(endpoint.make(0, MOST, Duration::from_millis(300)).is_err());
    assert!(arriving.try_recv().is_err());
}

/// Passes datagrams on, either way, and keeps those of the maker.
fn tap(to: std::net::SocketAddr) -> (std::net::SocketAddr, Arc<std::sync::Mutex<Vec<Vec<u8>>>>) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (address, seen) = (socket.local_addr().unwrap(), Arc::<std::sync::Mutex<Vec<Vec<u8>>>>::default());
    let kept = seen.clone();
    std::thread::spawn(move || {
        let (mut buffer, mut maker) = ([0; 2000], None);
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            let datagram = &buffer[..length];
            if from == to {
                let _ = socket.send_to(datagram, maker.unwrap());
            } else {
                maker = Some(from);
                kept.lock().unwrap().push(datagram.to_vec());
                let _ = socket.send_to(datagram, to);
            }
        }
    });
    (address, seen)
}

#[test]
fn nothing_goes_in_clear_and_what_is_sent_again_by_another_makes_no_stream() {
    let (endpoint, arriving, _listening) = listening();
    let (address, seen) = tap(endpoint.address);
    let near = Endpoint { address, ..endpoint }.make(1, MOST, LIMIT).unwrap();
    let (1, far) = arriving.recv_timeout(LIMIT).unwrap() else { panic!("another number") };
    let ([mut near, mut far], word) = ([near, far].map(|end| end.ends().unwrap()), b"a word for the two ends alone");
    near.write.write_all(word).unwrap();
    let mut read = [0; 29];
    far.read.read_exact(&mut read).unwrap();
    assert_eq!(&read, word);
    let seen = seen.lock().unwrap().clone();
    let has = |what: &[u8]| seen.iter().any(|datagram| datagram.windows(what.len()).any(|part| part == what));
    assert!(!has(word) && !has(&TOKEN) && seen.len() > 1);
    // The first one has the length of the longest.
    assert_eq!(seen[0].len(), verbena_transfer::LONGEST_DATAGRAM);
    let again = UdpSocket::bind("127.0.0.1:0").unwrap();
    for datagram in &seen {
        again.send_to(datagram, endpoint.address).unwrap();
    }
    near.write.write_all(b"more").unwrap();
    far.read.read_exact(&mut read[..4]).unwrap();
    assert_eq!(&read[..4], b"more");
    assert!(arriving.try_recv().is_err(), "a repeated hello made a stream");
    // Nor does it once the stream has gone.
    (near.close)();
    drop((near, far));
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(150));
        for datagram in &seen {
            again.send_to(datagram, endpoint.address).unwrap();
        }
    }
    assert!(arriving.try_recv().is_err(), "a repeated hello made a stream");
}

#[test]
fn both_ends_are_told_of_an_end_and_of_a_close() {
    let ([mut near, mut far], _listening) = pair();
    let (finish, began) = (near.finish, Instant::now());
    near.write.write_all(&[1; 100_000]).unwrap();
    let finishing = std::thread::spawn(finish);
    let mut all = Vec::new();
    far.read.read_to_end(&mut all).unwrap();
    finishing.join().unwrap();
    assert!(all == [1; 100_000] && began.elapsed() < LIMIT / 2, "{:?}", began.elapsed());
    // The other way goes on.
    far.write.write_all(b"still").unwrap();
    let mut still = [0; 5];
    near.read.read_exact(&mut still).unwrap();
    let waiting = std::thread::spawn(move || near.read.read(&mut [0; 9]).map_err(|error| error.to_string()));
    (far.close)();
    assert_eq!(waiting.join().unwrap(), Err("the stream was closed".into()));
    assert!(far.write.write_all(b"a").is_err() && near.write.write_all(b"a").is_err());
    // One whose ends are dropped tells the other side.
    let ([near, mut far], _listening) = pair();
    drop(near);
    assert!(far.read.read(&mut [0; 9]).is_err());
}

#[test]
fn a_reader_that_rests_holds_the_writer_up() {
    let ([near, mut far], _listening) = pair();
    let Ends { mut write, finish, counts: sent, .. } = near;
    let written = Arc::new(AtomicU64::new(0));
    let count = written.clone();
    let writer = std::thread::spawn(move || {
        for _ in 0..64 {
            write.write_all(&vec![3; 1 << 20]).unwrap();
            count.fetch_add(1 << 20, Ordering::Relaxed);
        }
        finish();
    });
    let began = Instant::now();
    let mut before = (0, Instant::now());
    // The reader's window is full, and then what waits at the writer.
    while sent().unwrap().bytes < 16 << 20 || before.1.elapsed() < Duration::from_secs(1) {
        let now = written.load(Ordering::Relaxed);
        if now != before.0 {
            before = (now, Instant::now());
        }
        assert!(began.elapsed() < LIMIT);
        std::thread::sleep(Duration::from_millis(5));
    }
    // And what the hello had.
    assert!(sent().unwrap().bytes < 17 << 20, "{:?}", sent());
    assert!(before.0 <= 34 << 20, "{} bytes were taken", before.0);
    let mut all = Vec::new();
    far.read.read_to_end(&mut all).unwrap();
    writer.join().unwrap();
    assert!(all.len() == 64 << 20 && all.iter().all(|byte| *byte == 3));
    let counts = (far.counts)().unwrap();
    assert!(counts.bytes == 0 && counts.packets >= 1, "{counts:?}");
}
