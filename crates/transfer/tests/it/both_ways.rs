//! A tree over a channel that has streams of its own kind, both ways: whole to the last byte.

use std::sync::Arc;
use std::time::Duration;

use verbena_transfer::{
    Arriving, Endpoint, Later, Links, Root, SessionSettings, Sources, Store, TunerSettings, VirtualPath, Walk, receive,
    send,
};

const LIMIT: Duration = Duration::from_secs(60);

/// `listening` gives an endpoint, what arrives there, and what listens while it is kept. The sender's first note begins with `about`.
pub fn a_tree_goes_both_ways<L>(listening: impl Fn() -> (Endpoint, Arriving, L), most: u16, about: &str) {
    for is_put in [true, false] {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let bytes: Vec<u8> = (0..9_000_001u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        std::fs::write(from.path().join("a"), &bytes).unwrap();
        for at in 0..50 {
            std::fs::write(from.path().join(format!("small {at}")), &bytes[at..2000]).unwrap();
        }
        let (endpoint, arriving, _listening) = listening();
        let tuner = TunerSettings { first: 1, most, channels: vec![endpoint.channel] };
        let first = vec![(0, endpoint.make(0, most, LIMIT).unwrap())];
        let maker = Box::new(move |number| endpoint.make(number, most, LIMIT));
        let near = Links { first, later: Later::Make(maker), tuner: Some(tuner.clone()) };
        let first = vec![arriving.recv_timeout(LIMIT).unwrap()];
        let far = Links { first, later: Later::Arrive(arriving), tuner: Some(tuner) };
        let (out, into) = if is_put { (near, far) } else { (far, near) };
        let settings = SessionSettings::new(1, most);
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
        assert!(sent.notes[0].starts_with(about), "{:?}", sent.notes);
    }
}
