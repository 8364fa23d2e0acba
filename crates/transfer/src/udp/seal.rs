//! Seals datagrams (AES-256-GCM), with keys that come from the session's secret.
//!
//! Each stream and each way has a key of its own, and so has each run of 2^24 packets, which keeps below what one key of this cipher may seal
//! (RFC 9001, 6.6). Both sides give a random name to a stream; the key of the side that listens has both names in it, so that a
//! repeated beginning of a stream makes it seal nothing by a key that was used before. The number of a packet is its nonce, and is never used again.

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

use super::packet::LONGEST_BODY;

/// What both sides of a session know, by the control connection, and no other.
pub type SessionSecret = [u8; 32];

/// Bytes before the body, and behind it.
pub(crate) const HEADER: usize = 16;
pub(crate) const TAG: usize = 16;
/// The longest datagram.
pub const LONGEST_DATAGRAM: usize = HEADER + LONGEST_BODY + TAG;
/// Packets of one key: 2 to the power of it.
const OF_A_KEY: u32 = 24;

/// Which side sends, and the names of the stream that its key has in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UdpSide {
    /// The side that made the stream, by its own name.
    Maker(u64),
    /// The side that listens: the maker's name and its own.
    Listener(u64, u64),
}

/// The keys of one way of a stream.
struct Keys {
    secret: SessionSecret,
    side: UdpSide,
    /// The run of packets that the key is of.
    run: u64,
    key: LessSafeKey,
}

fn key_of(secret: &SessionSecret, side: UdpSide, run: u64) -> LessSafeKey {
    let (way, maker, listener) = match side {
        UdpSide::Maker(maker) => (0u8, maker, 0),
        UdpSide::Listener(maker, listener) => (1, maker, listener),
    };
    let mut hasher = blake3::Hasher::new_derive_key("verbena-transfer udp key of a way and a run");
    hasher.update(secret).update(&[way]);
    for number in [maker, listener, run] {
        hasher.update(&number.to_le_bytes());
    }
    let Ok(key) = UnboundKey::new(&AES_256_GCM, hasher.finalize().as_bytes()) else {
        unreachable!("a key of AES-256 has the 32 bytes of a hash of BLAKE3")
    };
    LessSafeKey::new(key)
}

impl Keys {
    fn new(secret: &SessionSecret, side: UdpSide) -> Keys {
        Keys { secret: *secret, side, run: 0, key: key_of(secret, side, 0) }
    }

    fn of_run(&self, run: u64) -> LessSafeKey {
        key_of(&self.secret, self.side, run)
    }
}

fn nonce(number: u64) -> Nonce {
    let mut nonce = [0; 12];
    nonce[..8].copy_from_slice(&number.to_le_bytes());
    Nonce::assume_unique_for_key(nonce)
}

/// Seals what one side sends.
pub struct Sealer {
    keys: Keys,
    name: u64,
}

impl Sealer {
    /// Of a side. The datagrams bear its name.
    pub fn new(secret: &SessionSecret, side: UdpSide) -> Sealer {
        let name = match side {
            UdpSide::Maker(name) | UdpSide::Listener(_, name) => name,
        };
        Sealer { keys: Keys::new(secret, side), name }
    }

    /// Appends what is before a body, which is to be appended next.
    pub fn begin(&self, datagram: &mut Vec<u8>) {
        datagram.extend_from_slice(&self.name.to_le_bytes());
        datagram.extend_from_slice(&[0; 8]);
    }

    /// Seals the datagram that begins at `from`, whose body is there.
    pub fn seal(&mut self, number: u64, datagram: &mut Vec<u8>, from: usize) {
        let run = number >> OF_A_KEY;
        if run != self.keys.run {
            self.keys.key = self.keys.of_run(run);
            self.keys.run = run;
        }
        datagram[from + 8..from + HEADER].copy_from_slice(&number.to_le_bytes());
        let (header, body) = datagram[from..].split_at_mut(HEADER);
        let Ok(tag) = self.keys.key.seal_in_place_separate_tag(nonce(number), Aad::from(&*header), body) else {
            unreachable!("a datagram is shorter than what the cipher takes")
        };
        datagram.extend_from_slice(tag.as_ref());
    }
}

/// Opens what the other side has sealed.
pub struct Opener(Keys);

impl Opener {
    /// Of the side that sealed.
    pub fn new(secret: &SessionSecret, side: UdpSide) -> Opener {
        Opener(Keys::new(secret, side))
    }

    /// The number and the body of a datagram, opened in its place. `None`: the other side has not sealed this.
    pub fn open<'a>(&mut self, datagram: &'a mut [u8]) -> Option<(u64, &'a [u8])> {
        if datagram.len() < HEADER + TAG || datagram.len() > LONGEST_DATAGRAM {
            return None;
        }
        let (header, sealed) = datagram.split_at_mut(HEADER);
        let number = word(header, 8);
        let run = number >> OF_A_KEY;
        let other = (run != self.0.run).then(|| self.0.of_run(run));
        let key = other.as_ref().unwrap_or(&self.0.key);
        let body = key.open_in_place(nonce(number), Aad::from(&*header), sealed).ok()?;
        if let Some(other) = other.filter(|_| run > self.0.run) {
            // Those of the run before that are still under way are opened by a key that is made for each.
            (self.0.run, self.0.key) = (run, other);
        }
        Some((number, body))
    }
}

/// The name that a datagram bears.
pub(crate) fn name_of(datagram: &[u8]) -> Option<u64> {
    (datagram.len() >= HEADER + TAG).then(|| word(datagram, 0))
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: SessionSecret = [3; 32];

    fn sealed(side: UdpSide, number: u64, body: &[u8]) -> Vec<u8> {
        let mut sealer = Sealer::new(&SECRET, side);
        let mut datagram = b"before".to_vec();
        sealer.begin(&mut datagram);
        datagram.extend_from_slice(body);
        sealer.seal(number, &mut datagram, 6);
        datagram.split_off(6)
    }

    #[test]
    fn a_datagram_comes_back_and_no_flipped_bit_passes() {
        let (maker, listener) = (UdpSide::Maker(5), UdpSide::Listener(5, 6));
        for number in [0, 1, (1 << 24) - 1, 1 << 24, 5 << 24, 1 << 24] {
            let datagram = sealed(maker, number, b"the body");
            assert_eq!(name_of(&datagram), Some(5));
            let mut opener = Opener::new(&SECRET, maker);
            assert_eq!(opener.open(&mut datagram.clone()), Some((number, &b"the body"[..])));
            for bit in 0..datagram.len() * 8 {
                let mut flipped = datagram.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(opener.open(&mut flipped), None, "bit {bit} of number {number}");
            }
        }
        let datagram = sealed(listener, 7, b"the body");
        for (secret, side) in
            [(SECRET, maker), (SECRET, UdpSide::Listener(6, 6)), (SECRET, UdpSide::Listener(5, 7)), ([4; 32], listener)]
        {
            assert_eq!(Opener::new(&secret, side).open(&mut datagram.clone()), None, "{side:?}");
        }
        let mut opener = Opener::new(&SECRET, listener);
        for end in 0..datagram.len() {
            assert_eq!(opener.open(&mut datagram[..end].to_vec()), None);
        }
        assert_eq!(opener.open(&mut datagram.clone()), Some((7, &b"the body"[..])));
    }

    #[test]
    fn runs_of_packets_have_keys_of_their_own_and_late_ones_are_opened() {
        let side = UdpSide::Maker(9);
        let (mut sealer, mut opener) = (Sealer::new(&SECRET, side), Opener::new(&SECRET, side));
        let mut late = Vec::new();
        let mut bodies = std::collections::HashSet::new();
        for run in 0..4u64 {
            let mut datagram = Vec::new();
            sealer.begin(&mut datagram);
            datagram.extend_from_slice(&[0; 40]);
            sealer.seal(run << 24, &mut datagram, 0);
            assert!(bodies.insert(datagram[HEADER..].to_vec()), "run {run} has the key of another");
            late.push(datagram.clone());
            assert!(opener.open(&mut datagram).is_some());
        }
        for mut datagram in late {
            assert!(opener.open(&mut datagram).is_some());
        }
    }
}
