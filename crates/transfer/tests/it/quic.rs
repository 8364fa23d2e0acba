//! The channel `quic`: pinned, proven by the token, and whole to the last byte.

use std::time::Duration;

use verbena_transfer::{Arriving, ChannelKind, Endpoint, QuicListener, QuicListening};

use crate::both_ways::a_tree_goes_both_ways;

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
    a_tree_goes_both_ways(listening, MOST, "quic");
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
