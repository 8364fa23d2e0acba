//! A stream of bytes each way on datagrams, without input and output: the paper's FTP-UDP, with selective acknowledgement and a rate that
//! [`super::pace`] finds.
//!
//! Numbers of packets are not used again: what is lost is sent again in a new packet, so that an acknowledgement says which one arrived. A packet is
//! lost if one that was sent behind it has arrived and a quarter more than the round trip has passed: what is only overtaken is not. The
//! reader grants bytes as a running total (rule T11).

use std::time::Duration;

use verbena_terms::Time;

use super::arriving::Arriving;
use super::packet::{HEAD, LONGEST_BODY, MOST_RANGES, Packet, RANGE};
use super::sending::{Piece, Sending};
use crate::channel::LinkCounts;

/// Bytes that may wait for the reader, each way.
pub(crate) const WINDOW: u64 = 16 << 20;
/// Ranges beside bytes.
const FEW_RANGES: usize = 4;
/// A silence of so long ends the stream; packets that ask whether the other side is there keep it from one.
const SILENCE: Duration = Duration::from_secs(60);
const PING_EVERY: Duration = Duration::from_secs(10);
/// Bytes that a writer that waits for room is woken for.
const ROOM: usize = 64 << 10;
/// How often a side that has closed says so to one that still sends.
const MOST_FAREWELLS: u32 = 16;

/// Rules that a simulation can switch off, to see what each is for. Products leave them all on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramRules {
    /// Loss slows the sender down.
    pub slow_on_loss: bool,
    /// So does a round trip that grows.
    pub slow_on_delay: bool,
    /// The reader says how much may be sent (T11).
    pub grant: bool,
    /// A packet that is sent again has a new number.
    pub fresh_numbers: bool,
}

impl DatagramRules {
    /// All of them.
    pub const ALL: DatagramRules =
        DatagramRules { slow_on_loss: true, slow_on_delay: true, grant: true, fresh_numbers: true };
}

/// Why a stream on datagrams ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DatagramError {
    /// Nothing has come for too long.
    #[error("the other side has been silent for a minute")]
    Silent,
    /// One of both sides has closed.
    #[error("the stream was closed")]
    Closed,
}

/// One end of a stream.
#[derive(Debug)]
pub struct Datagrams {
    sending: Sending,
    arriving: Arriving,
    heard: Time,
    has_heard: bool,
    pinged: Time,
    error: Option<DatagramError>,
    /// Whether to say that this side has closed, and how often that was said.
    is_farewell_due: bool,
    farewells: u32,
}

impl Datagrams {
    /// The most bytes that [`Datagrams::held`] can come to.
    pub const MOST_HELD: usize = (3 * WINDOW + WINDOW / 8) as usize;

    /// A stream that begins now.
    pub fn new(now: Time) -> Datagrams {
        Datagrams::with_rules(DatagramRules::ALL, now)
    }

    /// One that obeys not every rule.
    pub fn with_rules(rules: DatagramRules, now: Time) -> Datagrams {
        Datagrams {
            sending: Sending::new(rules, now),
            arriving: Arriving::new(rules),
            heard: now,
            has_heard: false,
            pinged: now,
            error: None,
            is_farewell_due: false,
            farewells: 0,
        }
    }

    /// Takes bytes to send: as many as there is room for.
    pub fn write(&mut self, bytes: &[u8]) -> usize {
        self.sending.write(bytes)
    }

    /// No bytes follow.
    pub fn finish(&mut self) {
        self.sending.finish();
    }

    /// Whether the other side has everything that was written, and its end.
    pub fn is_delivered(&self) -> bool {
        self.sending.is_delivered()
    }

    /// Bytes that have come, in their order.
    pub fn read(&mut self, buffer: &mut [u8]) -> usize {
        self.arriving.read(buffer)
    }

    /// Whether there is something to read.
    pub fn has_bytes(&self) -> bool {
        self.arriving.has_bytes()
    }

    /// Whether there is room for a good many bytes.
    pub fn has_room(&self) -> bool {
        self.sending.room() >= ROOM
    }

    /// Whether every byte of the other side was read, and it ends there.
    pub fn is_at_end(&self) -> bool {
        !self.arriving.has_bytes() && self.arriving.has_all()
    }

    /// Whether both sides have everything: what still comes asks for an acknowledgement that was lost.
    pub fn is_over(&self) -> bool {
        self.is_delivered() && self.arriving.has_all()
    }

    /// Whether the other side has said anything.
    pub fn has_heard(&self) -> bool {
        self.has_heard
    }

    /// Why it has ended early.
    pub fn error(&self) -> Option<DatagramError> {
        self.error
    }

    /// What the link did.
    pub fn counts(&self) -> LinkCounts {
        self.sending.counts()
    }

    /// Bytes per second at which it sends.
    pub fn rate(&self) -> f64 {
        self.sending.pace.rate()
    }

    /// Bytes in memory: those that wait to be sent, acknowledged or read.
    pub fn held(&self) -> usize {
        self.sending.held() + self.arriving.held()
    }

    /// Whether the other side waits for more to be read.
    pub fn is_grant_due(&self) -> bool {
        self.arriving.is_grant_due()
    }

    /// A packet has come. What is no packet, or has come before, changes nothing.
    pub fn packet(&mut self, now: Time, number: u64, body: &[u8]) {
        let Some(packet) = Packet::read(body) else { return };
        if !self.arriving.packet(number, &packet, now) {
            return;
        }
        (self.heard, self.has_heard) = (now, true);
        self.sending.granted(packet.granted);
        self.sending.acked(&packet.ranges, now);
        if packet.is_closed {
            self.error.get_or_insert(DatagramError::Closed);
            self.is_farewell_due = false;
        } else if self.error.is_some() && self.farewells < MOST_FAREWELLS {
            self.is_farewell_due = true;
        }
    }

    /// Ends it here, and says so to the other side. What has come can still be read.
    pub fn abort(&mut self) {
        if self.error.is_none() {
            self.error = Some(DatagramError::Closed);
            self.is_farewell_due = true;
        }
    }

    /// Whether nothing is to be sent any more, but for an answer to what may still come.
    pub fn is_silent(&self) -> bool {
        self.error.is_some() && !self.is_farewell_due
    }

    /// Appends the body of the next packet to send now. Its number.
    pub fn poll(&mut self, now: Time, body: &mut Vec<u8>) -> Option<u64> {
        if now.since(self.heard) >= SILENCE {
            self.error.get_or_insert(DatagramError::Silent);
        }
        if self.error.is_some() {
            if !std::mem::take(&mut self.is_farewell_due) {
                return None;
            }
            self.farewells += 1;
            return Some(self.packet_of(now, None, false, body));
        }
        self.sending.tick(now);
        let few = self.arriving.ranges(FEW_RANGES).len();
        let piece = self.sending.piece(now, (LONGEST_BODY - HEAD - few * RANGE) as u64);
        let is_ack_due = self.arriving.ack_at().is_some_and(|at| at <= now);
        let is_asking = self.is_grant_due() || self.sending.is_untold || now.since(self.pinged) >= PING_EVERY;
        if piece.is_none() && !is_ack_due && !is_asking {
            return None;
        }
        Some(self.packet_of(now, piece, is_asking, body))
    }

    fn packet_of(&mut self, now: Time, piece: Option<Piece>, is_asking: bool, body: &mut Vec<u8>) -> u64 {
        let is_asking = is_asking || piece.is_some();
        let ranges = self.arriving.ranges(if piece.is_some() { FEW_RANGES } else { MOST_RANGES });
        let granted = self.arriving.tell();
        let piece = piece.unwrap_or(Piece { offset: self.sending.base(), length: 0, is_last: false });
        let (offset, is_last, is_closed) = (piece.offset, piece.is_last, self.error.is_some());
        let began = body.len();
        Packet { ranges, granted, offset, is_last, is_asking, is_closed, bytes: &[] }.write_head(body);
        self.sending.append(piece, body);
        (self.pinged, self.sending.is_untold) = (now, false);
        let number = self.sending.number();
        if is_asking {
            self.sending.went(now, number, piece, body.len() - began);
        }
        number
    }

    /// When [`Datagrams::poll`] has something to do, if nothing comes before.
    pub fn deadline(&self) -> Time {
        if self.error.is_some() {
            return if self.is_farewell_due { Time::ZERO } else { Time::FAR };
        }
        if self.is_grant_due() || self.sending.is_untold {
            return Time::ZERO;
        }
        let at = (self.heard + SILENCE).min(self.pinged + PING_EVERY).min(self.sending.deadline());
        self.arriving.ack_at().map_or(at, |ack| at.min(ack))
    }
}
