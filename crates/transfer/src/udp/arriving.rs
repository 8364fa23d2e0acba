//! The half of a stream on datagrams that receives: bytes in their order, numbers to acknowledge, and what the other side may send.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use verbena_terms::Time;

use super::packet::Packet;
use super::ranges::Ranges;
use super::{DatagramRules, WINDOW};

/// Ranges of numbers that are kept.
const MOST_RANGES: usize = 256;
/// What one that overtook others takes beside its bytes, and what all of them may take: as much as a window of the longest packets does.
const BESIDE: u64 = 96;
const MOST_EARLY: u64 = WINDOW + WINDOW / 8;
/// Packets that wait for an acknowledgement, and how long the first one of them does.
const ACK_EVERY: u32 = 8;
const ACK_AFTER: Duration = Duration::from_millis(2);

#[derive(Debug)]
pub(crate) struct Arriving {
    rules: DatagramRules,
    ready: VecDeque<u8>,
    next: u64,
    early: BTreeMap<u64, Vec<u8>>,
    /// With what they take beside their bytes.
    early_bytes: u64,
    end: Option<u64>,
    told: u64,
    packets: Ranges,
    lowest: u64,
    to_ack: u32,
    ack_at: Option<Time>,
}

impl Arriving {
    pub(crate) fn new(rules: DatagramRules) -> Arriving {
        Arriving {
            rules,
            ready: VecDeque::new(),
            next: 0,
            early: BTreeMap::new(),
            early_bytes: 0,
            end: None,
            told: WINDOW,
            packets: Ranges::default(),
            lowest: 0,
            to_ack: 0,
            ack_at: None,
        }
    }

    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> usize {
        let (front, _) = self.ready.as_slices();
        let count = buffer.len().min(front.len());
        buffer[..count].copy_from_slice(&front[..count]);
        self.ready.drain(..count);
        count
    }

    pub(crate) fn has_bytes(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Whether every byte of the other side has come, and its end.
    pub(crate) fn has_all(&self) -> bool {
        self.end == Some(self.next)
    }

    pub(crate) fn held(&self) -> usize {
        self.ready.len() + self.early_bytes as usize
    }

    /// Takes a packet. False if it has come before, or if there is no room for it: it then counts as lost.
    pub(crate) fn packet(&mut self, number: u64, packet: &Packet<'_>, now: Time) -> bool {
        if number < self.lowest
            || number == u64::MAX
            || self.packets.covers(number, number + 1)
            || !self.take_bytes(packet)
        {
            return false;
        }
        self.packets.insert(number, number + 1);
        self.lowest = self.packets.keep(MOST_RANGES).unwrap_or(self.lowest);
        if packet.is_asking {
            self.to_ack += 1;
            let is_urgent = self.to_ack >= ACK_EVERY || packet.is_last;
            let at = if is_urgent { now } else { now + ACK_AFTER };
            self.ack_at = Some(self.ack_at.map_or(at, |before| before.min(at)));
        }
        true
    }

    fn take_bytes(&mut self, packet: &Packet<'_>) -> bool {
        let length = packet.bytes.len() as u64;
        // A packet was read whose end is a number.
        let end = packet.offset + length;
        let is_within = (end <= self.told || !self.rules.grant) && self.end.is_none_or(|last| end <= last);
        let is_early = packet.offset > self.next;
        if !is_within || (is_early && self.rules.grant && self.early_bytes + length + BESIDE > MOST_EARLY) {
            return false;
        }
        if packet.is_last {
            self.end = Some(end);
        }
        if is_early && length > 0 {
            let before = self.early.insert(packet.offset, packet.bytes.to_vec());
            self.early_bytes += length + BESIDE;
            self.early_bytes -= before.map_or(0, |before| before.len() as u64 + BESIDE);
        } else {
            self.join(packet.offset, packet.bytes);
        }
        while let Some(first) = self.early.first_entry().filter(|first| *first.key() <= self.next) {
            let (offset, bytes) = first.remove_entry();
            self.early_bytes -= bytes.len() as u64 + BESIDE;
            self.join(offset, &bytes);
        }
        true
    }

    /// Bytes from an offset that has come.
    fn join(&mut self, offset: u64, bytes: &[u8]) {
        let known = (self.next.saturating_sub(offset)).min(bytes.len() as u64) as usize;
        self.ready.extend(&bytes[known..]);
        self.next += (bytes.len() - known) as u64;
    }

    fn grant(&self) -> u64 {
        self.next - self.ready.len() as u64 + WINDOW
    }

    /// Whether a packet is due that lets the other side send more.
    pub(crate) fn is_grant_due(&self) -> bool {
        self.grant() >= self.told + WINDOW / 4
    }

    pub(crate) fn ack_at(&self) -> Option<Time> {
        self.ack_at
    }

    /// The highest numbers that have arrived, as at most `most` ranges.
    pub(crate) fn ranges(&self, most: usize) -> Vec<(u64, u64)> {
        self.packets.highest().take(most).collect()
    }

    /// A packet goes that acknowledges everything: the offset that it grants.
    pub(crate) fn tell(&mut self) -> u64 {
        (self.to_ack, self.ack_at) = (0, None);
        self.told = self.told.max(self.grant());
        self.told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A peer that leaves one byte out and sends all others one by one takes no more memory than one that sends long packets.
    #[test]
    fn bytes_that_overtook_others_are_bounded_with_what_they_take() {
        let mut arriving = Arriving::new(DatagramRules::ALL);
        let packet = |offset| Packet {
            ranges: vec![],
            granted: 0,
            offset,
            is_last: false,
            is_asking: false,
            is_closed: false,
            bytes: b"x",
        };
        let taken = (1..).take_while(|offset| arriving.packet(*offset, &packet(*offset), Time::ZERO)).count();
        assert_eq!(taken as u64, MOST_EARLY / (BESIDE + 1));
        assert!(arriving.held() as u64 <= MOST_EARLY);
        // The one that was left out sets all free.
        assert!(arriving.packet(1 << 40, &packet(0), Time::ZERO));
        assert_eq!((arriving.held(), arriving.early_bytes), (taken + 1, 0));
    }
}
