//! Sessions of two channels: their tuner moves them from one to the other, whichever side sends.

use std::net::{IpAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use verbena_transfer::{
    Arriving, Channel, ChannelKind, Endpoint, Ends, Entry, EntryKind, Frame, Identity, Lanes, Later, LinkCounts, Links,
    Look, QuicListener, QuicListening, Root, Sender, SenderAction, SessionSettings, Sources, Store, Summary,
    TunerSettings, VirtualPath, Walk, receive, send, take_hello,
};

use crate::joining::slow_relay;

const LIMIT: Duration = Duration::from_secs(60);
const TOKEN: [u8; 16] = [4; 16];
/// Streams of a channel, and of both.
const MOST: u16 = 2;
const NUMBERS: u16 = 2 * MOST;

/// A connection that says that one packet in a thousand was sent again.
struct Lossy(Box<dyn Channel>);

impl Channel for Lossy {
    fn ends(self: Box<Self>) -> std::io::Result<Ends> {
        let ends = self.0.ends()?;
        let counts = ends.counts;
        let lossy = move || {
            let bytes = counts()?.bytes;
            Some(LinkCounts {
                bytes,
                packets: bytes / 100,
                again: bytes / 100_000,
                round_trip: Duration::from_millis(1),
            })
        };
        Ok(Ends { counts: Box::new(lossy), ..ends })
    }
}

/// The listening side of a session of two channels.
fn listening() -> ([Endpoint; 2], Arriving, QuicListening) {
    let loopback = IpAddr::from([127, 0, 0, 1]);
    let (handed_on, arriving) = std::sync::mpsc::channel::<(u16, Box<dyn Channel>)>();
    let quic = QuicListener::bind((loopback, 0).into()).unwrap();
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint =
        |channel, address, fingerprint| Endpoint { channel, address, token: TOKEN, fingerprint, secret: None };
    let endpoints = [
        endpoint(ChannelKind::Tcp, slow_relay(tcp.local_addr().unwrap(), 2 << 10), None),
        endpoint(ChannelKind::Quic, quic.address().unwrap(), Some(quic.fingerprint())),
    ];
    let listening = quic.start(TOKEN, NUMBERS, vec![loopback], handed_on.clone()).unwrap();
    std::thread::spawn(move || {
        for stream in tcp.incoming() {
            let mut stream: TcpStream = stream.unwrap();
            let (number, NUMBERS) = take_hello(&mut stream, &TOKEN, LIMIT).unwrap() else { return };
            if handed_on.send((number, Box::new(Lossy(Box::new(stream))))).is_err() {
                return;
            }
        }
    });
    (endpoints, arriving, listening)
}

/// A file by a session whose first channel is slow and loses packets.
fn transfer(is_put: bool, change: impl Fn(&mut Endpoint)) -> (Summary, Summary) {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let bytes: Vec<u8> = (0..40u32 << 20).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    std::fs::write(from.path().join("a"), &bytes).unwrap();
    std::fs::write(from.path().join("b"), &bytes[..2000]).unwrap();
    let (mut endpoints, arriving, _listening) = listening();
    change(&mut endpoints[1]);
    let make = move |number: u16| {
        let made = endpoints[usize::from(number / MOST)].make(number, NUMBERS, LIMIT)?;
        Ok(if number < MOST { Box::new(Lossy(made)) as Box<dyn Channel> } else { made })
    };
    let channels = vec![ChannelKind::Tcp, ChannelKind::Quic];
    let tuner = TunerSettings { first: 1, most: MOST, channels };
    let near =
        Links { first: vec![(0, make(0).unwrap())], later: Later::Make(Box::new(make)), tuner: Some(tuner.clone()) };
    let far = Links {
        first: vec![arriving.recv_timeout(LIMIT).unwrap()],
        later: Later::Arrive(arriving),
        tuner: Some(tuner),
    };
    let (out, into) = if is_put { (near, far) } else { (far, near) };
    let settings = SessionSettings::new(1, NUMBERS);
    let target = Arc::new(Root::open(to.path()).unwrap());
    let receiver = std::thread::spawn(move || {
        receive(into, Store::new(target, VirtualPath::root(), 1 << 20, false), settings, &mut |_| true).unwrap()
    });
    let root = Arc::new(Root::open(from.path()).unwrap());
    let walk = Walk::new(root.clone(), VirtualPath::root()).unwrap();
    let sent = send(out, Sources::new(root, VirtualPath::root()), walk, settings, &mut |_| true).unwrap();
    let received = receiver.join().unwrap();
    assert_eq!((sent.failures.len(), received.failures.len()), (0, 0));
    assert!(std::fs::read(to.path().join("a")).unwrap() == bytes, "another file arrived");
    assert!(std::fs::read(to.path().join("b")).unwrap() == bytes[..2000]);
    (sent, received)
}

#[test]
fn a_session_goes_over_to_the_channel_that_does_better() {
    for is_put in [true, false] {
        let (sent, received) = transfer(is_put, |_| ());
        let notes = sent.notes.join("\n");
        assert!(notes.contains("packets are lost, which TCP takes for a full link, try quic"), "{notes}");
        assert!(sent.notes.iter().any(|note| note == "quic with cubic"), "{notes}");
        assert_eq!((sent.channel, received.channel), (Some(ChannelKind::Quic), Some(ChannelKind::Quic)), "{notes}");
        assert!(sent.measured.rate > 0 && sent.measured == received.measured, "{:?}", sent.measured);
        assert!(received.streams > MOST, "{}", received.streams);
    }
}

#[test]
fn a_session_stays_where_the_other_channel_cannot_be_reached() {
    let (sent, received) = transfer(true, |quic| quic.fingerprint = Some([0; 32]));
    let notes = sent.notes.join("\n");
    assert!(notes.contains("no stream of it could be made, go back to tcp"), "{notes}");
    assert!(notes.contains("not the certificate that the control connection named"), "{notes}");
    assert_eq!((sent.channel, received.channel), (Some(ChannelKind::Tcp), Some(ChannelKind::Tcp)), "{notes}");
}

#[test]
fn the_streams_of_before_go_on_until_others_are_there() {
    let chunk_bytes = 1 << 20;
    let mut sender = Sender::new(SessionSettings::new(1, NUMBERS));
    let file = sender.add(Entry { path: b"a".to_vec(), kind: EntryKind::File, mode: 0o644 });
    sender.use_lanes(Lanes { first: 0, count: 1 });
    sender.frame(0, Frame::Credit { total: 8 << 20 });
    let identity = Identity { size: 4 * chunk_bytes, ..Identity::default() };
    sender.opened(file, Ok(Look { identity, is_young: false }));
    sender.frame(0, Frame::Ready { file });
    sender.use_lanes(Lanes { first: MOST, count: 1 });
    sender.actions();
    let goes_by = |sender: &mut Sender, chunk: u64| {
        sender.read(file, chunk, Ok((vec![1; chunk_bytes as usize], [chunk as u8; 32])));
        let sent = sender.actions().into_iter().find_map(|action| match action {
            SenderAction::Send { stream, frame: Frame::Chunk { .. }, .. } => Some(stream),
            _ => None,
        });
        sent.unwrap()
    };
    assert_eq!((sender.granted_streams(), goes_by(&mut sender, 0)), (0, 0));
    sender.frame(MOST, Frame::Credit { total: 8 << 20 });
    assert_eq!((sender.granted_streams(), goes_by(&mut sender, 1)), (1, MOST));
    // And back.
    sender.use_lanes(Lanes { first: 0, count: 1 });
    assert_eq!(goes_by(&mut sender, 2), 0);
}
