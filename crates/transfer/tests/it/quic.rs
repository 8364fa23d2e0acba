//! The channel `quic`: pinned, proven by the token, and whole to the last byte.

use std::sync::Arc;
use std::time::Duration;

use verbena_transfer::{
    Arriving, ChannelKind, Endpoint, Later, Links, QuicListener, QuicListening, Root, SessionSettings, Sources, Store,
    TunerSettings, VirtualPath, Walk, receive, send,
};

const LIMIT: Duration = Duration::from_secs(60);
const TOKEN: [u8; 16] = [5; 16];
const MOST: u16 = 4;

fn listening() -> (Endpoint, Arriving, QuicListening) {
    let loopback = "127.0.0.1".parse().unwrap();
    let listener = QuicListener::bind((loopback, 0).into()).unwrap();
    let (address, fingerprint) = (listener.address().unwrap(), Some(listener.fingerprint()));
    let endpoint = Endpoint { channel: ChannelKind::Quic, address, token: TOKEN, fingerprint, secret: None };
    let (handed_on, arriving) = std::sync::mpsc::channel();
    let listening = listener.start(TOKEN, MOST, vec![loopback], handed_on).unwrap();
    (endpoint, arriving, listening)
}

#[test]
fn a_tree_goes_over_quic_both_ways() {
    for is_put in [true, false] {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let bytes: Vec<u8> = (0..9_000_001u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        std::fs::write(from.path().join("a"), &bytes).unwrap();
        for at in 0..50 {
            std::fs::write(from.path().join(format!("small {at}")), &bytes[at..2000]).unwrap();
        }
        let (endpoint, arriving, _listening) = listening();
        let tuner = TunerSettings { first: 1, most: MOST, channels: vec![ChannelKind::Quic] };
        let first = vec![(0, endpoint.make(0, MOST, LIMIT).unwrap())];
        let maker = Box::new(move |number| endpoint.make(number, MOST, LIMIT));
        let near = Links { first, later: Later::Make(maker), tuner: Some(tuner.clone()) };
        let first = vec![arriving.recv_timeout(LIMIT).unwrap()];
        let far = Links { first, later: Later::Arrive(arriving), tuner: Some(tuner) };
        let (out, into) = if is_put { (near, far) } else { (far, near) };
        let settings = SessionSettings::new(1, MOST);
        let target = Arc::new(Root::open(to.path()).unwrap());
        let receiver = std::thread::spawn(move || {
            receive(into, Store::new(target, VirtualPath::root(), 1 << 20, false), settings, &mut |_| true)
        });
        let root = Arc::new(Root::open(from.path()).unwrap());
        let walk = Walk::new(root.clone(), VirtualPath::root()).unwrap();
        let sent = send(out, Sources::new(root, VirtualPath::root()), walk, settings, &mut |_| true).unwrap();
        let received = receiver.join().unwrap().unwrap();
        assert_eq!((sent.files, received.files, sent.failures), (52, 52, vec![]), "put {is_put}");
        assert!(std::fs::read(to.path().join("a")).unwrap() == bytes);
        assert!(sent.notes[0].starts_with("quic"), "{:?}", sent.notes);
    }
}

#[test]
fn another_certificate_and_another_token_are_refused() {
    let (endpoint, arriving, _listening) = listening();
    let forged = Endpoint { fingerprint: Some([1; 32]), ..endpoint };
    let error = forged.make(0, MOST, LIMIT).err().unwrap().to_string();
    assert!(error.contains("not the certificate that the control connection named"), "{error}");
    // A thief is closed, and the session waits for its own stream.
    let thief = Endpoint { token: [6; 16], ..endpoint }.make(0, MOST, LIMIT).unwrap();
    let mut stolen = Vec::new();
    assert!(thief.ends().unwrap().read.read_to_end(&mut stolen).is_err() && stolen.is_empty());
    let ours = endpoint.make(2, MOST, LIMIT).unwrap();
    assert_eq!(arriving.recv_timeout(LIMIT).unwrap().0, 2);
    drop(ours);
}
