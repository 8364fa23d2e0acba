//! The half of a stream on datagrams that sends: bytes that the other side may not have, and packets that are under way.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use verbena_terms::Time;

use super::pace::Pace;
use super::ranges::Ranges;
use super::{DatagramRules, WINDOW};
use crate::channel::LinkCounts;

/// Bytes that wait to be sent or acknowledged, at least and at most: between the two, what two windows have.
const LEAST_UNSENT: u64 = 256 << 10;
const MOST_UNSENT: u64 = 16 << 20;

/// What a packet had.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub offset: u64,
    pub length: u64,
    /// Whether the stream ends behind it.
    pub is_last: bool,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    at: Time,
    piece: Piece,
    bytes: usize,
}

#[derive(Debug)]
pub(crate) struct Sending {
    rules: DatagramRules,
    /// Bytes from `base` on: those that the other side may not have.
    unsent: VecDeque<u8>,
    base: u64,
    next: u64,
    is_finished: bool,
    is_end_sent: bool,
    is_end_acked: bool,
    lost: VecDeque<(u64, u64)>,
    acked: Ranges,
    granted: u64,
    sent: BTreeMap<u64, Sent>,
    under_way: u64,
    next_packet: u64,
    /// Numbers that are used again: without the rule against it.
    again: VecDeque<u64>,
    pub pace: Pace,
    /// The newest packet that has arrived.
    newest: Option<u64>,
    /// When something was acknowledged or sent behind a pause, and how often nothing came since.
    progress: Time,
    silences: u32,
    /// Whether a packet was lost that only said something.
    pub is_untold: bool,
    counts: LinkCounts,
}

impl Sending {
    pub(crate) fn new(rules: DatagramRules, now: Time) -> Sending {
        Sending {
            rules,
            unsent: VecDeque::new(),
            base: 0,
            next: 0,
            is_finished: false,
            is_end_sent: false,
            is_end_acked: false,
            lost: VecDeque::new(),
            acked: Ranges::default(),
            granted: WINDOW,
            sent: BTreeMap::new(),
            under_way: 0,
            next_packet: 0,
            again: VecDeque::new(),
            pace: Pace::new(rules, now),
            newest: None,
            progress: now,
            silences: 0,
            is_untold: false,
            counts: LinkCounts::default(),
        }
    }

    /// Bytes that can be taken.
    pub(crate) fn room(&self) -> usize {
        let most = (self.pace.window() * 2).clamp(LEAST_UNSENT, MOST_UNSENT);
        most.saturating_sub(self.unsent.len() as u64) as usize
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> usize {
        let count = if self.is_finished { 0 } else { bytes.len().min(self.room()) };
        self.unsent.extend(&bytes[..count]);
        count
    }

    pub(crate) fn finish(&mut self) {
        self.is_finished = true;
    }

    pub(crate) fn is_delivered(&self) -> bool {
        self.is_end_acked && self.unsent.is_empty()
    }

    pub(crate) fn held(&self) -> usize {
        self.unsent.len()
    }

    pub(crate) fn counts(&self) -> LinkCounts {
        LinkCounts { bytes: self.base, round_trip: self.pace.round_trip(), ..self.counts }
    }

    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    fn end(&self) -> u64 {
        self.base + self.unsent.len() as u64
    }

    pub(crate) fn granted(&mut self, granted: u64) {
        // No more than what this side can have under way, whatever the other side says.
        self.granted = self.granted.max(granted.min(self.base.saturating_add(WINDOW * 2)));
    }

    /// Packets of these numbers have arrived.
    pub(crate) fn acked(&mut self, ranges: &[(u64, u64)], now: Time) {
        // The ranges come the highest first. What was acknowledged late says nothing about the round trip.
        let of_range = |(first, end): &(u64, u64)| self.sent.range(*first..*end).next_back();
        let Some((newest, at)) = ranges.iter().find_map(of_range).map(|(number, sent)| (*number, sent.at)) else {
            return;
        };
        if self.newest.is_none_or(|before| before < newest) {
            self.newest = Some(newest);
            self.pace.measure(now.since(at), now);
        }
        for (first, end) in ranges {
            while let Some((number, sent)) = self.sent.range(*first..*end).next().map(|(number, sent)| (*number, *sent))
            {
                self.sent.remove(&number);
                self.under_way -= sent.bytes as u64;
                self.acked.insert(sent.piece.offset, sent.piece.offset + sent.piece.length);
                self.is_end_acked |= sent.piece.is_last;
                self.pace.acked(now, number, sent.bytes, self.next_packet);
            }
        }
        (self.progress, self.silences) = (now, 0);
        if let Some(end) = self.acked.end_at(self.base) {
            self.unsent.drain(..(end - self.base) as usize);
            self.base = end;
            self.acked.forget_below(end);
        }
        self.find_lost(now);
    }

    /// How long a packet is waited for once one behind it has arrived.
    fn reordering(&self) -> Duration {
        self.pace.round_trip() * 5 / 4 + Duration::from_millis(1)
    }

    fn find_lost(&mut self, now: Time) {
        let Some(newest) = self.newest else { return };
        let wait = self.reordering();
        let older = self.sent.range(..newest).take_while(|(_, sent)| now.since(sent.at) >= wait);
        let lost: Vec<u64> = older.map(|(number, _)| *number).collect();
        for number in lost {
            self.give_up(number);
            self.pace.lost(number);
        }
    }

    /// What a packet had is sent again.
    fn give_up(&mut self, number: u64) {
        let Some(Sent { piece, bytes, .. }) = self.sent.remove(&number) else { return };
        self.under_way -= bytes as u64;
        self.counts.again += 1;
        if piece.length > 0 {
            self.lost.push_back((piece.offset, piece.length));
        } else {
            self.is_untold |= !piece.is_last;
        }
        self.is_end_sent &= !piece.is_last;
        if !self.rules.fresh_numbers {
            self.again.push_back(number);
        }
    }

    /// What counts as lost by now.
    pub(crate) fn tick(&mut self, now: Time) {
        self.find_lost(now);
        if !self.sent.is_empty() && now.since(self.progress) >= self.patience() {
            self.silences += 1;
            self.progress = now;
            // All of it counts as lost, so that something can go again within the smaller window.
            let all: Vec<u64> = self.sent.keys().copied().collect();
            all.into_iter().for_each(|number| self.give_up(number));
            self.pace.silent(now, self.next_packet);
        }
    }

    fn patience(&self) -> Duration {
        self.pace.patience() * (1 << self.silences.min(6))
    }

    /// What is to be sent next, if the rate lets it: what was lost, or what is new.
    pub(crate) fn piece(&mut self, now: Time, room: u64) -> Option<Piece> {
        if !self.pace.may_send(now) || (self.under_way >= self.pace.window() && self.rules.slow_on_loss) {
            return None;
        }
        let end = self.end();
        while let Some((offset, length)) = self.lost.pop_front() {
            let from = offset.max(self.base);
            let from = self.acked.end_at(from).unwrap_or(from);
            let (to, all) = ((from + room).min(offset + length), offset + length);
            if to < all {
                self.lost.push_front((to, all - to));
            }
            if from < to {
                let is_last = self.is_finished && to == end;
                self.is_end_sent |= is_last;
                return Some(Piece { offset: from, length: to - from, is_last });
            }
        }
        let most = if self.rules.grant { end.min(self.granted) } else { end };
        let (offset, length) = (self.next, most.saturating_sub(self.next).min(room));
        let is_last = self.is_finished && offset + length == end && !self.is_end_sent && !self.is_end_acked;
        if length == 0 && !is_last {
            self.pace.idle();
            return None;
        }
        self.is_end_sent |= is_last;
        self.next += length;
        Some(Piece { offset, length, is_last })
    }

    /// A number for the next packet.
    pub(crate) fn number(&mut self) -> u64 {
        if let Some(number) = self.again.pop_front() {
            return number;
        }
        self.next_packet += 1;
        self.next_packet - 1
    }

    /// A packet went that is to be acknowledged.
    pub(crate) fn went(&mut self, now: Time, number: u64, piece: Piece, bytes: usize) {
        if self.sent.is_empty() {
            self.progress = now;
        }
        self.sent.insert(number, Sent { at: now, piece, bytes });
        self.under_way += bytes as u64;
        self.pace.sent(bytes);
        self.counts.packets += 1;
    }

    /// Appends the bytes of a piece.
    pub(crate) fn append(&self, piece: Piece, body: &mut Vec<u8>) {
        let (from, length) = ((piece.offset - self.base) as usize, piece.length as usize);
        let (front, back) = self.unsent.as_slices();
        let in_front = from.min(front.len())..(from + length).min(front.len());
        body.extend_from_slice(&front[in_front.clone()]);
        let rest = length - in_front.len();
        let at = from.saturating_sub(front.len());
        body.extend_from_slice(&back[at..at + rest]);
    }

    /// When there is something to do, if nothing comes before.
    pub(crate) fn deadline(&self) -> Time {
        let mut at = Time::FAR;
        if let Some((number, oldest)) = self.sent.first_key_value() {
            at = at.min(self.progress + self.patience());
            if self.newest.is_some_and(|newest| *number < newest) {
                at = at.min(oldest.at + self.reordering());
            }
        }
        let is_new = self.end().min(self.granted) > self.next
            || (self.is_finished && self.next == self.end() && !self.is_end_sent && !self.is_end_acked);
        if (is_new || !self.lost.is_empty()) && self.under_way < self.pace.window() {
            at = at.min(self.pace.next_send());
        }
        at
    }
}
