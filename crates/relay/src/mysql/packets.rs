//! Bytes of one direction cut into packets.
//!
//! ```text
//! 0..3  length of the payload, little-endian
//! 3     sequence number
//! 4..   payload
//! ```
//!
//! A payload of 0xFFFFFF bytes goes on in the next packet, and the last one is shorter, maybe empty.

/// Bytes before the payload.
pub(crate) const HEAD: usize = 4;
/// The longest payload of one packet.
pub(crate) const LONGEST: usize = 0xFF_FFFF;

/// Cuts one direction's bytes.
#[derive(Debug, Default)]
pub(crate) struct Packets {
    /// A longer packet is given in pieces.
    pub(crate) limit: usize,
    /// A packet whose payload begins with the first of these has the second for its limit.
    pub(crate) brief: Option<(u8, usize)>,
    /// What came of a packet that is not complete.
    partial: Vec<u8>,
    /// `partial` was given out, and goes with the next call.
    is_spent: bool,
    long: Option<Long>,
    /// The sequence number of the last packet whose head was complete.
    pub(crate) sequence: u8,
}

/// What is still to come of a packet that is given in pieces.
#[derive(Debug, Clone, Copy)]
struct Long {
    /// Bytes of this packet.
    left: usize,
    /// Another one follows.
    continues: bool,
}

/// A piece of what came, as it goes on the wire.
#[derive(Debug)]
pub(crate) enum Piece<'a> {
    /// A packet, or the beginning of one longer than the limit.
    Packet { raw: &'a [u8], is_whole: bool },
    /// More of it.
    More { raw: &'a [u8] },
}

impl Packets {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, ..Self::default() }
    }

    /// The beginning of a long packet was given out, and the rest is to come.
    pub(crate) fn is_inside(&self) -> bool {
        self.long.is_some()
    }

    /// Nothing has come of a packet that is not complete.
    pub(crate) fn is_empty(&self) -> bool {
        self.long.is_none() && (self.is_spent || self.partial.is_empty())
    }

    /// The next piece, taken from the front of `input`. `None` uses up `input`.
    pub(crate) fn next<'a, 'i: 'a>(&'a mut self, input: &mut &'i [u8]) -> Option<Piece<'a>> {
        if self.is_spent {
            self.is_spent = false;
            self.partial.clear();
            self.partial.shrink_to(4 << 10);
        }
        match self.long {
            Some(long) if long.left > 0 => self.body(long, input),
            Some(_) => self.continuation(input),
            None => self.packet(input),
        }
    }

    fn body<'a>(&mut self, long: Long, input: &mut &'a [u8]) -> Option<Piece<'a>> {
        let raw = take(input, long.left);
        if raw.is_empty() {
            return None;
        }
        let left = long.left - raw.len();
        self.long = (left > 0 || long.continues).then_some(Long { left, ..long });
        Some(Piece::More { raw })
    }

    fn continuation(&mut self, input: &mut &[u8]) -> Option<Piece<'_>> {
        let left = self.head(input)?;
        self.is_spent = true;
        let continues = left == LONGEST;
        self.long = (left > 0).then_some(Long { left, continues });
        Some(Piece::More { raw: &self.partial })
    }

    fn packet<'a, 'i: 'a>(&'a mut self, input: &mut &'i [u8]) -> Option<Piece<'a>> {
        if self.partial.is_empty()
            && let Some((head, _)) = input.split_first_chunk()
            && HEAD + length(head) <= input.len()
            && length(head) <= self.limit_of(input.get(HEAD))
        {
            self.sequence = head[3];
            return Some(Piece::Packet { raw: take(input, HEAD + length(head)), is_whole: true });
        }
        let length = self.head(input)?;
        if length > 0 && self.partial.len() == HEAD {
            self.partial.extend_from_slice(take(input, 1));
        }
        // The limit may have become lower since this packet began.
        let limit = self.limit_of(self.partial.get(HEAD)).max(self.partial.len() - HEAD);
        let shown = length.min(limit);
        let missing = HEAD + shown - self.partial.len();
        self.partial.extend_from_slice(take(input, missing));
        if self.partial.len() < HEAD + shown {
            return None;
        }
        self.is_spent = true;
        let left = length - shown;
        self.long = (left > 0).then_some(Long { left, continues: length == LONGEST });
        Some(Piece::Packet { raw: &self.partial, is_whole: left == 0 })
    }

    fn limit_of(&self, first: Option<&u8>) -> usize {
        // A packet of the greatest length goes on in the next one, so it is never whole.
        let limit = self.limit.min(LONGEST - 1);
        match self.brief {
            Some((brief, shorter)) if first == Some(&brief) => shorter.min(limit),
            _ => limit,
        }
    }

    /// Completes the head in `partial` and gives the length that it says.
    fn head(&mut self, input: &mut &[u8]) -> Option<usize> {
        let missing = HEAD.saturating_sub(self.partial.len());
        self.partial.extend_from_slice(take(input, missing));
        let head = self.partial.first_chunk()?;
        self.sequence = head[3];
        Some(length(head))
    }
}

fn length(head: &[u8; HEAD]) -> usize {
    usize::from(head[0]) | usize::from(head[1]) << 8 | usize::from(head[2]) << 16
}

fn take<'a>(input: &mut &'a [u8], most: usize) -> &'a [u8] {
    let (taken, rest) = input.split_at(most.min(input.len()));
    *input = rest;
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(sequence: u8, payload: &[u8]) -> Vec<u8> {
        let mut raw = (payload.len() as u32).to_le_bytes()[..3].to_vec();
        raw.push(sequence);
        raw.extend_from_slice(payload);
        raw
    }

    #[test]
    fn a_packet_of_the_brief_kind_has_a_limit_of_its_own() {
        let mut bytes = packet(0, b"\x18long data");
        bytes.extend(packet(0, b"\x03long text"));
        for step in 1..=bytes.len() {
            let mut packets = Packets::new(100);
            packets.brief = Some((0x18, 4));
            let mut shown = Vec::new();
            for chunk in bytes.chunks(step) {
                let mut input = chunk;
                while let Some(piece) = packets.next(&mut input) {
                    if let Piece::Packet { raw, .. } = piece {
                        shown.push(raw[HEAD..].to_vec());
                    }
                }
            }
            assert_eq!(shown, [&b"\x18lon"[..], b"\x03long text"], "in steps of {step}");
        }
    }

    /// What was given: the beginnings of packets, and all bytes.
    fn cut(limit: usize, bytes: &[u8], step: usize) -> (Vec<(Vec<u8>, bool)>, Vec<u8>) {
        let mut packets = Packets::new(limit);
        let (mut heads, mut all) = (Vec::new(), Vec::new());
        for chunk in bytes.chunks(step) {
            let mut input = chunk;
            while let Some(piece) = packets.next(&mut input) {
                match piece {
                    Piece::Packet { raw, is_whole } => {
                        heads.push((raw[HEAD..].to_vec(), is_whole));
                        all.extend_from_slice(raw);
                    }
                    Piece::More { raw } => all.extend_from_slice(raw),
                }
            }
            assert!(input.is_empty());
        }
        (heads, all)
    }

    #[test]
    fn packets_are_the_same_however_the_bytes_arrive() {
        let mut bytes = packet(0, b"abc");
        bytes.extend(packet(1, b""));
        bytes.extend(packet(2, &[7; 100]));
        bytes.extend(packet(3, b"after"));
        let expected = vec![(b"abc".to_vec(), true), (vec![], true), (vec![7; 10], false), (b"after".to_vec(), true)];
        for step in 1..=bytes.len() {
            assert_eq!(cut(10, &bytes, step), (expected.clone(), bytes.clone()), "in steps of {step}");
        }
    }

    #[test]
    fn a_packet_of_the_greatest_length_goes_on_in_the_next() {
        for last in [0, 5] {
            let mut bytes = packet(0, &vec![1; LONGEST]);
            bytes.extend(packet(1, &vec![2; LONGEST]));
            bytes.extend(packet(2, &vec![3; last]));
            bytes.extend(packet(0, b"next"));
            let (heads, all) = cut(LONGEST, &bytes, 1_000_003);
            assert_eq!(all.len(), bytes.len());
            assert!(all == bytes);
            assert_eq!(heads.len(), 2, "a continuation is no packet of its own");
            assert_eq!(heads[1], (b"next".to_vec(), true));
        }
    }
}
