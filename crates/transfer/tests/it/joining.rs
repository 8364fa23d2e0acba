//! Streams that join a session while it runs, as its tuner asks for them.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use verbena_transfer::{
    Channel, ChannelKind, Later, Links, Root, SessionSettings, Sources, Store, Summary, TunerSettings, VirtualPath,
    Walk, receive, say_hello, send, take_hello,
};

const MOST: u16 = 8;
const TOKEN: [u8; 16] = [3; 16];

/// A relay that gives each connection so many bytes a second: more streams pay.
pub fn slow_relay(to: std::net::SocketAddr, bytes_per_ms: usize) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for near in listener.incoming() {
            let (near, far) = (near.unwrap(), TcpStream::connect(to).unwrap());
            // Small buffers, so that the sender counts what the link took and not what waits in it.
            for end in [&near, &far] {
                let _ = rustix::net::sockopt::set_socket_recv_buffer_size(end, 64 << 10);
            }
            let (a, b) = (near.try_clone().unwrap(), far.try_clone().unwrap());
            std::thread::spawn(move || copy(near, far, bytes_per_ms));
            std::thread::spawn(move || copy(b, a, bytes_per_ms));
        }
    });
    address
}

fn copy(mut from: TcpStream, mut to: TcpStream, bytes_per_ms: usize) {
    let mut buffer = vec![0; bytes_per_ms];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let _ = (from.shutdown(std::net::Shutdown::Both), to.shutdown(std::net::Shutdown::Both));
}

fn tuner() -> TunerSettings {
    TunerSettings { first: 1, most: MOST, channels: vec![ChannelKind::Tcp] }
}

/// Takes connections for a session, and hands on those behind the first.
fn acceptor(listener: TcpListener) -> (Box<dyn Channel>, Later) {
    let (arriving, later) = std::sync::mpsc::channel::<(u16, Box<dyn Channel>)>();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            if let Ok((number, MOST)) = take_hello(&mut stream, &TOKEN, Duration::from_secs(60))
                && arriving.send((number, Box::new(stream))).is_err()
            {
                return;
            }
        }
    });
    let (number, first) = later.recv().unwrap();
    assert_eq!(number, 0);
    (first, Later::Arrive(later))
}

fn make(to: std::net::SocketAddr, number: u16) -> std::io::Result<Box<dyn Channel>> {
    let mut stream = TcpStream::connect(to)?;
    // What one connection may have under way is its window on a long link.
    let _ = rustix::net::sockopt::set_socket_send_buffer_size(&stream, 64 << 10);
    say_hello(&mut stream, TOKEN, number, MOST, 1 << 20)?;
    Ok(Box::new(stream))
}

/// A file over a link on which each stream is slow; the side that makes the streams sends or receives.
fn transfer(size: usize, is_put: bool, most_made: usize) -> (Summary, Summary) {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let bytes: Vec<u8> = (0..size as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    std::fs::write(from.path().join("a"), &bytes).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = slow_relay(listener.local_addr().unwrap(), 8 << 10);
    let made = Arc::new(AtomicUsize::new(1));
    let maker = Box::new(move |number| {
        if made.fetch_add(1, Ordering::SeqCst) >= most_made {
            return Err(std::io::Error::other("no more"));
        }
        make(address, number)
    });
    let near = Links { first: vec![(0, make(address, 0).unwrap())], later: Later::Make(maker), tuner: Some(tuner()) };
    let (first, later) = acceptor(listener);
    let far = Links { first: vec![(0, first)], later, tuner: Some(tuner()) };
    let (out, into) = if is_put { (near, far) } else { (far, near) };
    let target = Arc::new(Root::open(to.path()).unwrap());
    let settings = SessionSettings::new(1, MOST);
    let receiver = std::thread::spawn(move || {
        receive(into, Store::new(target, VirtualPath::root(), 1 << 20, false), settings, &mut |_| true).unwrap()
    });
    let root = Arc::new(Root::open(from.path()).unwrap());
    let walk = Walk::new(root.clone(), VirtualPath::root()).unwrap();
    let sent = send(out, Sources::new(root, VirtualPath::root()), walk, settings, &mut |_| true).unwrap();
    assert!(std::fs::read(to.path().join("a")).unwrap() == bytes, "another file arrived");
    (sent, receiver.join().unwrap())
}

#[test]
fn streams_join_while_they_pay_whoever_makes_them() {
    for is_put in [true, false] {
        // A machine that does other work measures anything: the file is right each time, the count once.
        let found = (0..8).any(|_| {
            let (sent, received) = transfer(24 << 20, is_put, usize::MAX);
            assert_eq!((&sent.failures, &received.failures), (&vec![], &vec![]));
            let notes = sent.notes.join("\n");
            assert!(notes.contains("tcp with "), "{notes}");
            // The other side reads the same reasons.
            let told = received.notes.iter().filter(|note| sent.notes.contains(note)).count();
            assert!(told > 1 && told == received.notes.len(), "{:?}", received.notes);
            eprintln!("put {is_put}: {notes}");
            notes.contains("it pays, go to 4 streams") && sent.streams >= 2 && received.streams >= 2
        });
        assert!(found, "put {is_put}: no stream joined in eight sessions");
    }
}

#[test]
fn a_stream_that_cannot_be_made_ends_no_session() {
    // On a machine that does other work packets are lost, and then none is to be made.
    let told = (0..8).any(|_| {
        let (sent, received) = transfer(12 << 20, true, 1);
        assert_eq!((sent.streams, received.streams), (1, 1));
        let notes = sent.notes.join("\n");
        eprintln!("{notes}");
        notes.contains("could not be made: no more") && notes.contains("go to 1 stream")
    });
    assert!(told, "no stream was to be made in eight sessions");
}
