//! What is sealed in a datagram of the channel `udp`, and its bytes. Numbers are little-endian.
//!
//! ```text
//!  0       1        2          10         18           18 + 16 n
//!  +-------+--------+----------+----------+------------+--------------+
//!  | flags | n, of  | granted  | offset   | n ranges:  | bytes of the |
//!  |       | ranges |          |          | first, end | stream       |
//!  +-------+--------+----------+----------+------------+--------------+
//!  flags: 1 the stream ends behind these bytes, 2 asks for an acknowledgement, 4 this side has closed
//! ```
//! Ranges are of numbers of packets that have arrived, from the first to behind the last, the highest range first.

/// The longest body of a packet.
pub const LONGEST_BODY: usize = 1320;
/// Bytes before the ranges, and of one range.
pub(crate) const HEAD: usize = 18;
pub(crate) const RANGE: usize = 16;
/// Ranges of one packet.
pub(crate) const MOST_RANGES: usize = 32;

const LAST: u8 = 1;
const ASKING: u8 = 2;
const CLOSED: u8 = 4;

/// The body of a packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Packet<'a> {
    /// Numbers of packets that have arrived.
    pub ranges: Vec<(u64, u64)>,
    /// The other side may send the bytes of its stream below this offset (rule T11).
    pub granted: u64,
    /// Of the first byte.
    pub offset: u64,
    pub is_last: bool,
    pub is_asking: bool,
    pub is_closed: bool,
    pub bytes: &'a [u8],
}

fn number(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}

impl Packet<'_> {
    /// Appends what is before the bytes of the stream.
    pub(crate) fn write_head(&self, to: &mut Vec<u8>) {
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        to.push(flag(self.is_last, LAST) | flag(self.is_asking, ASKING) | flag(self.is_closed, CLOSED));
        // At most 32.
        to.push(self.ranges.len() as u8);
        to.extend_from_slice(&self.granted.to_le_bytes());
        to.extend_from_slice(&self.offset.to_le_bytes());
        for (first, end) in &self.ranges {
            to.extend_from_slice(&first.to_le_bytes());
            to.extend_from_slice(&end.to_le_bytes());
        }
    }

    /// The packet in a body. Total.
    pub(crate) fn read(body: &[u8]) -> Option<Packet<'_>> {
        if body.len() < HEAD || body.len() > LONGEST_BODY || body[0] > (LAST | ASKING | CLOSED) {
            return None;
        }
        let count = usize::from(body[1]);
        let behind = HEAD + count * RANGE;
        if count > MOST_RANGES || body.len() < behind {
            return None;
        }
        let mut ranges = Vec::with_capacity(count);
        let mut above = None;
        for at in (HEAD..behind).step_by(RANGE) {
            let (first, end) = (number(body, at), number(body, at + 8));
            if first >= end || above.is_some_and(|above| end >= above) {
                return None;
            }
            above = Some(first);
            ranges.push((first, end));
        }
        let (offset, bytes) = (number(body, 10), &body[behind..]);
        offset.checked_add(bytes.len() as u64)?;
        let has = |flag| body[0] & flag != 0;
        let (is_last, is_asking, is_closed) = (has(LAST), has(ASKING), has(CLOSED));
        Some(Packet { ranges, granted: number(body, 2), offset, is_last, is_asking, is_closed, bytes })
    }
}

/// Reads a body of a packet, for the fuzz target. What is a packet is written again byte for byte. Whether it is one.
#[cfg(any(test, feature = "fuzzing"))]
pub fn udp_packet(input: &[u8]) -> bool {
    let Some(packet) = Packet::read(input) else { return false };
    let mut written = Vec::new();
    packet.write_head(&mut written);
    written.extend_from_slice(packet.bytes);
    assert_eq!(written, input, "{packet:?}");
    assert!(packet.ranges.windows(2).all(|pair| pair[1].1 < pair[0].0), "ranges that touch: {packet:?}");
    // And it changes no stream into one that breaks.
    let now = verbena_terms::Time::from_nanos(1_000_000_000);
    let mut stream = super::Datagrams::new(now);
    stream.write(&[1; 5000]);
    while stream.poll(now, &mut Vec::new()).is_some() {}
    stream.packet(now, 3, input);
    assert!(stream.held() <= super::Datagrams::MOST_HELD, "{} bytes are held", stream.held());
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use verbena_terms::testing::corpus;

    #[test]
    fn the_corpus_has_each_outcome() {
        let files = corpus("udp_packet");
        let packets = files.iter().filter(|bytes| udp_packet(bytes)).count();
        assert!(packets >= 6 && files.len() - packets >= 6, "{packets} packets in {} files", files.len());
    }

    #[test]
    fn a_packet_comes_back_and_what_is_cut_or_strange_is_none() {
        let packet = Packet {
            ranges: vec![(u64::MAX - 1, u64::MAX), (7, 9), (1, 6)],
            granted: u64::MAX,
            offset: 5,
            is_last: true,
            is_asking: true,
            is_closed: true,
            bytes: b"abc",
        };
        let mut body = Vec::new();
        packet.write_head(&mut body);
        body.extend_from_slice(packet.bytes);
        assert_eq!(body.len(), HEAD + 3 * RANGE + 3);
        assert_eq!(Packet::read(&body), Some(packet));
        for end in 0..HEAD + 3 * RANGE {
            assert_eq!(Packet::read(&body[..end]), None, "{end}");
        }
        // An unknown flag, ranges in another order or empty, and bytes beyond the last offset.
        for (at, byte) in [(0, 8), (HEAD + RANGE, 2), (HEAD + RANGE + 8, 7), (17, 255)] {
            let mut strange = body.clone();
            strange[at] = byte;
            if at == 17 {
                strange[10..17].fill(255);
            }
            assert_eq!(Packet::read(&strange), None, "byte {at}");
        }
    }
}
