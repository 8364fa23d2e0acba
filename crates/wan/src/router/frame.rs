//! Frames as packet sockets hand them over with PACKET_VNET_HDR: ten bytes that say what is still to be done to the frame (`struct
//! virtio_net_hdr`, include/uapi/linux/virtio_net.h, in the machine's byte order), then the Ethernet frame.
//!
//! ```text
//!  0       1         2..4        4..6       6..8        8..10        10..
//!  flags | gso_type | hdr_len | gso_size | csum_start | csum_offset | frame
//! ```

use crate::machine::Packet;

/// Bytes before the Ethernet frame.
pub(super) const HEADER: usize = 10;

/// VIRTIO_NET_HDR_F_NEEDS_CSUM: the sum that stands at `csum_start + csum_offset` is that of the pseudo header alone.
const NEEDS_CHECKSUM: u8 = 1;
/// VIRTIO_NET_HDR_GSO_NONE, _UDP_L4; the others that are sent are those of TCP.
const GSO_NONE: u8 = 0;
const GSO_UDP_L4: u8 = 5;
pub(super) const ETHERNET: usize = 14;

/// A frame with the header before it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Frame(pub Vec<u8>);

impl Frame {
    /// The Ethernet frame.
    pub fn ethernet(&self) -> &[u8] {
        self.0.get(HEADER..).unwrap_or_default()
    }

    fn word(&self, at: usize) -> usize {
        self.0.get(at..at + 2).map_or(0, |bytes| u16::from_ne_bytes([bytes[0], bytes[1]]).into())
    }

    /// What the machine is to know of it.
    pub fn packet(&self) -> Packet {
        let bytes = u32::try_from(self.ethernet().len()).unwrap_or(u32::MAX);
        Packet { bytes, segments: self.segments() }
    }

    /// How many packets it becomes on a wire.
    fn segments(&self) -> u16 {
        let (gso_type, gso_size) = (self.0.get(1).copied().unwrap_or(GSO_NONE), self.word(4));
        if gso_type == GSO_NONE || gso_size == 0 {
            return 1;
        }
        let transport = self.word(6);
        let header = match gso_type {
            GSO_UDP_L4 => 8,
            _ => usize::from(self.ethernet().get(transport + 12).map_or(0, |byte| byte >> 4)) * 4,
        };
        let payload = self.ethernet().len().saturating_sub(transport + header);
        u16::try_from(payload.div_ceil(gso_size).max(1)).unwrap_or(u16::MAX)
    }

    /// Whether by it the two ends of a link find each other: what is not IP, and IPv6 to all or to routers of the link (ff02::/16:
    /// neighbour discovery, multicast listeners).
    pub fn is_housekeeping(&self) -> bool {
        let frame = self.ethernet();
        match frame.get(12..ETHERNET) {
            Some([0x08, 0x00]) => false,
            Some([0x86, 0xdd]) => finds_neighbours(&frame[ETHERNET..]),
            _ => true,
        }
    }

    /// Changes one bit of what follows the Ethernet header, number `draw` modulo how many there are. A checksum that the sender left to the
    /// network card is computed before that: so the receiver finds the change, as it would on a wire.
    pub fn corrupt(&mut self, draw: u64) {
        self.complete_checksum();
        let first = HEADER + ETHERNET;
        let bits = 8 * self.0.len().saturating_sub(first) as u64;
        if let Some(bit) = draw.checked_rem(bits) {
            self.0[first + (bit / 8) as usize] ^= 1 << (bit % 8);
        }
    }

    fn complete_checksum(&mut self) {
        if self.0.first().is_none_or(|flags| flags & NEEDS_CHECKSUM == 0) {
            return;
        }
        let start = HEADER + self.word(6);
        let at = start + self.word(8);
        if start >= self.0.len() || at + 2 > self.0.len() {
            return;
        }
        let mut sum: u64 =
            self.0[start..].chunks(2).map(|pair| u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0))).sum();
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        // For UDP a sum of 0 means no checksum (RFC 768), and 0xffff is the same number.
        let checksum = match !(sum as u16) {
            0 => 0xffff,
            checksum => checksum,
        };
        self.0[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
        self.0[0] &= !NEEDS_CHECKSUM;
    }
}

/// Whether a packet of IPv6 that begins like this is to all or to routers of the link, or of neighbour discovery.
pub(super) fn finds_neighbours(packet: &[u8]) -> bool {
    let (protocol, to) = (packet.get(6), packet.get(24..26));
    // Neighbour discovery is ICMPv6 of type 133 to 137; what it says to one neighbour has an address of its own.
    let kind = packet.get(40).filter(|_| protocol == Some(&58));
    to == Some(&[0xff, 0x02]) || matches!(kind, Some(133..=137))
}

/// What happened, so that a replay of the corpus can say that every road was taken.
#[cfg(any(test, feature = "fuzzing"))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct FrameOutcomes {
    pub several: u32,
    pub housekeeping: u32,
    pub changed: u32,
    pub summed: u32,
}

/// Takes what is behind eight bytes of chance for a frame, and changes it. What the fuzz target `wan_frame` drives.
///
/// # Panics
/// If it is more packets than it has bytes, or if another thing than one bit has changed once its checksum is there.
#[cfg(any(test, feature = "fuzzing"))]
pub fn wan_frame(input: &[u8]) -> FrameOutcomes {
    let (draw, bytes) = input.split_at(input.len().min(8));
    let draw = draw.iter().fold(0, |draw, byte| draw << 8 | u64::from(*byte));
    let mut frame = Frame(bytes.to_vec());
    let Packet { bytes: length, segments } = frame.packet();
    assert_eq!(length as usize, bytes.len().saturating_sub(HEADER));
    assert!(
        segments >= 1 && usize::from(segments) <= bytes.len().max(1),
        "{segments} packets in {} bytes",
        bytes.len()
    );
    let mut outcomes = FrameOutcomes {
        several: u32::from(segments > 1),
        housekeeping: u32::from(frame.is_housekeeping()),
        ..FrameOutcomes::default()
    };
    let mut summed = frame.clone();
    summed.complete_checksum();
    if summed != frame {
        outcomes.summed = 1;
        has_its_checksum(&frame, &summed);
    }
    frame.corrupt(draw);
    let differ = frame.0.iter().zip(&summed.0).map(|(one, other)| (one ^ other).count_ones());
    let changed = u32::from(bytes.len() > HEADER + ETHERNET);
    assert_eq!((frame.0.len(), differ.sum::<u32>()), (bytes.len(), changed));
    assert_eq!(
        frame.0.get(HEADER..HEADER + ETHERNET),
        summed.0.get(HEADER..HEADER + ETHERNET),
        "an address has changed"
    );
    outcomes.changed = changed;
    outcomes
}

/// That nothing else was changed, and that all together with what stood in its place, the sum of the pseudo header, add up to nothing (RFC 1071).
#[cfg(any(test, feature = "fuzzing"))]
fn has_its_checksum(before: &Frame, after: &Frame) {
    let (start, at) = (HEADER + before.word(6), HEADER + before.word(6) + before.word(8));
    let others = |frame: &Frame| [&frame.0[1..at.max(1)], &frame.0[(at + 2).max(1)..]].concat();
    assert_eq!(others(before), others(after));
    assert_eq!(after.0[0], before.0[0] & !NEEDS_CHECKSUM);
    // Where it stands across two words the sum does not say so.
    if at >= start + 2 && (at - start).is_multiple_of(2) && at > 0 {
        let stood = u64::from(before.0[at]) << 8 | u64::from(before.0[at + 1]);
        let words = after.0[start..].chunks(2);
        let sum: u64 = words.map(|pair| u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0))).sum();
        assert_eq!((sum + stood) % 0xffff, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame of this type with this behind its Ethernet header.
    fn frame(ethertype: u16, rest: &[u8]) -> Frame {
        let mut bytes = vec![0; HEADER + 12];
        bytes.extend(ethertype.to_be_bytes());
        bytes.extend(rest);
        Frame(bytes)
    }

    fn set(frame: &mut Frame, at: usize, word: u16) {
        frame.0[at..at + 2].copy_from_slice(&word.to_ne_bytes());
    }

    #[test]
    fn large_frames_are_as_many_packets_as_they_become() {
        let mut tcp = frame(0x0800, &vec![0; 20 + 32 + 10 * 1448 + 1]);
        assert_eq!(tcp.packet(), Packet { bytes: 14 + 20 + 32 + 14_481, segments: 1 });
        (tcp.0[1], tcp.0[HEADER + 34 + 12]) = (1, 8 << 4);
        set(&mut tcp, 4, 1448);
        set(&mut tcp, 6, 34);
        assert_eq!(tcp.packet().segments, 11);
        let mut udp = frame(0x86dd, &vec![0; 40 + 8 + 3000]);
        udp.0[1] = GSO_UDP_L4;
        set(&mut udp, 4, 1000);
        set(&mut udp, 6, 54);
        assert_eq!(udp.packet().segments, 3);
    }

    #[test]
    fn what_the_ends_say_to_find_each_other_is_told_apart() {
        let ipv6 = |protocol, to: [u8; 2], kind| {
            let mut rest = vec![0; 48];
            (rest[6], rest[24], rest[25], rest[40]) = (protocol, to[0], to[1], kind);
            frame(0x86dd, &rest).is_housekeeping()
        };
        assert!(frame(0x0806, &[0; 28]).is_housekeeping(), "ARP");
        assert!(!frame(0x0800, &[0; 28]).is_housekeeping());
        assert!(ipv6(58, [0xff, 0x02], 143) && ipv6(58, [0xfd, 0], 136));
        assert!(!ipv6(58, [0xfd, 0], 128) && !ipv6(17, [0xfd, 0], 136), "an echo and a datagram are not");
        assert!(Frame(vec![0; 12]).is_housekeeping() && Frame::default().is_housekeeping());
    }

    #[test]
    fn a_bit_is_changed_and_the_checksum_is_that_of_before() {
        // A UDP datagram whose sum is left to the card: the pseudo header's is there.
        let mut datagram = frame(0x0800, &[0; 20]);
        datagram.0.extend([0x12, 0x34, 0x56, 0x78, 0x00, 0x0b, 0x00, 0x25, b'a', b'b', b'c']);
        datagram.0[0] = NEEDS_CHECKSUM;
        set(&mut datagram, 6, 34);
        set(&mut datagram, 8, 6);
        let mut changed = datagram.clone();
        changed.corrupt(8 * 28);
        // 0x1234 + 0x5678 + 0x000b + 0x0025 + 0x6162 + 0x6300 = 0x12d3e, carried 0x2d3f, inverted 0xd2c0.
        assert_eq!(&changed.0[HEADER + 40..HEADER + 42], &[0xd2, 0xc0]);
        assert_eq!((changed.0[0], changed.0[HEADER + 42]), (0, b'a' ^ 1));
        let mut same = changed.clone();
        same.corrupt(8 * 28);
        assert_eq!(same.0[HEADER + 42], b'a');
        Frame(vec![0; 5]).corrupt(3);
    }

    #[test]
    fn heads_that_point_outside_are_left_alone() {
        let mut broken = frame(0x0800, &[0; 4]);
        broken.0[..HEADER].fill(0xff);
        assert_eq!(broken.packet().segments, 1);
        broken.corrupt(u64::MAX);
    }
}
