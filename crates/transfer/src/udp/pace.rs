//! How fast a stream on datagrams sends, found by what comes of it: without input and output.
//!
//! A round is the time from a packet to its acknowledgement. At its end the rate is judged by what the round lost and by how much longer than the
//! shortest one its round trips were: a queue that fills slows the stream down before it overflows.
//! ```text
//!   starting: double each round --(loss, one round trip with a queue, or no more arrives)--> steady
//!   steady:   a queue: what arrived, less the part of the round trip that the queue is, so that it is empty a round later
//!             packets lost, and the queue is not empty, or more than one in fifty: 85 hundredths of what arrived
//!             neither: more, the further away from what arrived at the last one of both: a tenth below it, a hundredth
//!             near it, a twentieth and then a quarter above it
//!      | ^
//!      | +--(a round without a queue)
//!      +----(the queue is there after twelve rounds that were to empty it: it is not this stream's)--> beside others
//!   beside others, who fill the queue, it is as they are (AIMD):
//!             any packet lost: seven tenths
//!             none: a packet a round trip more
//! ```
//! What is lost of an empty queue, up to one packet in fifty, does not slow it down: on long links that is the line. Without any acknowledgement the rate is
//! halved, again and again, so that it never sends blindly.

use std::time::Duration;

use verbena_terms::Time;

use super::DatagramRules;

/// Bytes of a packet, for the least that is sent.
const PACKET: f64 = 1352.0;
/// The part of the packets that may be lost of an empty queue.
const MOST_LOST: f64 = 1.0 / 50.0;
/// Bytes per second before the first round trip is known, at least, and at most.
const FIRST: f64 = 10.0 * PACKET / 0.1;
const LEAST: f64 = 2.0 * PACKET / 0.2;
const MOST: f64 = 1e10;
/// How long an acknowledgement may take before the first round trip is known (RFC 6298, section 2.1).
const FIRST_PATIENCE: Duration = Duration::from_secs(1);
/// The least queue: how much longer than the shortest of all the shortest round trip of a round is. It is a quarter where that is more.
const QUEUE: Duration = Duration::from_millis(3);
/// The same of the mean round trip, where the queue counts as not empty. It is a tenth where that is more.
const NOT_EMPTY: Duration = Duration::from_millis(1);
/// Rounds with a queue, one behind the other, by which this stream's part of it has gone.
const OWN_QUEUE: u32 = 12;
/// What is left of the rate behind a loss, and beside others.
const AFTER_LOSS: f64 = 0.85;
const BESIDE_OTHERS: f64 = 0.7;
/// What is left behind a queue of what arrived while it was there.
const AFTER_QUEUE: f64 = 0.97;
/// Rounds without a quarter more that end the start.
const FLAT_ROUNDS: u32 = 3;
/// The shortest round that is judged, and after how long the shortest round trip is looked for anew.
const LEAST_ROUND: Duration = Duration::from_millis(5);
const FORGET: Duration = Duration::from_secs(10);
/// What may go at once behind a pause: time, and packets.
const BURST: f64 = 0.002;
const BURST_PACKETS: f64 = 10.0;
/// Time that packets are gathered in, so that the kernel is given many at once, and how many at most.
const GATHER: f64 = 0.000_5;
const MOST_GATHERED: f64 = 48.0;

/// The machine.
#[derive(Debug)]
pub(crate) struct Pace {
    rules: DatagramRules,
    rate: f64,
    is_starting: bool,
    best: f64,
    flat: u32,
    /// Bytes per second that arrived when there was a loss or a queue last.
    link: f64,
    /// Packets below this number were sent before the rate was lowered for a loss: those of them that are lost say no more.
    lowered: u64,
    /// Rounds with a queue, one behind the other.
    queued: u32,
    /// Bytes that may go now, and since when that was counted.
    credit: f64,
    counted: Time,
    smoothed: Option<Duration>,
    variation: Duration,
    /// The newest round trip.
    last: Duration,
    /// The shortest round trip of the last times, that of this time, and when it began.
    shortest: Option<Duration>,
    candidate: Option<Duration>,
    candidate_since: Time,
    round: Round,
}

#[derive(Debug)]
struct Round {
    began: Time,
    /// The packet whose acknowledgement ends it.
    until: u64,
    acked: u64,
    acked_packets: u64,
    lost_packets: u64,
    shortest: Option<Duration>,
    /// The sum and the number of its round trips.
    trips: (Duration, u32),
    /// Whether the sender ran dry in it.
    is_idle: bool,
}

impl Round {
    fn new(began: Time, until: u64) -> Round {
        Round {
            began,
            until,
            acked: 0,
            acked_packets: 0,
            lost_packets: 0,
            shortest: None,
            trips: (Duration::ZERO, 0),
            is_idle: false,
        }
    }
}

impl Pace {
    pub(crate) fn new(rules: DatagramRules, now: Time) -> Pace {
        Pace {
            rules,
            rate: FIRST,
            is_starting: true,
            best: 0.0,
            flat: 0,
            link: 0.0,
            lowered: 0,
            queued: 0,
            credit: BURST_PACKETS * PACKET,
            counted: now,
            smoothed: None,
            variation: Duration::ZERO,
            last: Duration::ZERO,
            shortest: None,
            candidate: None,
            candidate_since: now,
            round: Round::new(now, 0),
        }
    }

    /// Bytes per second.
    pub(crate) fn rate(&self) -> f64 {
        self.rate
    }

    /// The round trip, smoothed.
    pub(crate) fn round_trip(&self) -> Duration {
        self.smoothed.unwrap_or(Duration::from_millis(100))
    }

    /// How long an acknowledgement may take before it is missing.
    pub(crate) fn patience(&self) -> Duration {
        if self.smoothed.is_none() {
            return FIRST_PATIENCE;
        }
        (self.round_trip() + (self.variation * 4).max(Duration::from_millis(10))).max(Duration::from_millis(30))
    }

    /// Bytes that may be under way: twice what a round trip takes.
    pub(crate) fn window(&self) -> u64 {
        (2.0 * self.rate * self.round_trip().as_secs_f64() + 16.0 * PACKET) as u64
    }

    /// Whether a packet may go now.
    pub(crate) fn may_send(&mut self, now: Time) -> bool {
        let most = (self.rate * BURST).max(BURST_PACKETS * PACKET);
        self.credit = (self.credit + self.rate * now.since(self.counted).as_secs_f64()).min(most);
        self.counted = now;
        self.credit >= PACKET
    }

    /// When the next packets may go: as many as half a millisecond has, so that they take one system call.
    pub(crate) fn next_send(&self) -> Time {
        let gathered = (self.rate * GATHER).clamp(PACKET, MOST_GATHERED * PACKET);
        self.counted + Duration::from_secs_f64((gathered - self.credit).max(0.0) / self.rate)
    }

    /// A packet went.
    pub(crate) fn sent(&mut self, bytes: usize) {
        self.credit -= bytes as f64;
    }

    /// The sender has run dry.
    pub(crate) fn idle(&mut self) {
        self.round.is_idle = true;
    }

    /// A packet was lost.
    pub(crate) fn lost(&mut self, number: u64) {
        self.round.lost_packets += u64::from(number >= self.lowered);
    }

    /// Nothing was acknowledged for too long.
    pub(crate) fn silent(&mut self, now: Time, next_packet: u64) {
        self.is_starting = false;
        if self.rules.slow_on_loss {
            self.rate = (self.rate / 2.0).max(LEAST);
        }
        self.round = Round::new(now, next_packet);
    }

    /// A packet was acknowledged.
    pub(crate) fn acked(&mut self, now: Time, number: u64, bytes: usize, next_packet: u64) {
        self.round.acked += bytes as u64;
        self.round.acked_packets += 1;
        let is_long = now.since(self.round.began) >= LEAST_ROUND;
        // What is sent twice as fast each round fills a queue within one: the start does not wait for the end of the round.
        let has_overshot = self.is_starting && self.rules.slow_on_delay && self.last > self.longest_without_a_queue();
        if is_long && (number >= self.round.until || has_overshot) {
            let round = std::mem::replace(&mut self.round, Round::new(now, next_packet));
            self.judge(&round, now, next_packet);
        }
    }

    /// How long it took until the newest packet was acknowledged.
    pub(crate) fn measure(&mut self, trip: Duration, now: Time) {
        let smoothed = self.smoothed.unwrap_or(trip);
        if self.smoothed.is_none() {
            // Ten packets a round trip, where that is more than what it began with.
            self.rate = self.rate.max(10.0 * PACKET / trip.as_secs_f64().max(1e-4)).min(MOST);
            self.variation = trip / 2;
        }
        self.variation = (self.variation * 3 + smoothed.abs_diff(trip)) / 4;
        (self.smoothed, self.last) = (Some((smoothed * 7 + trip) / 8), trip);
        let shorter = |other: Option<Duration>| Some(other.map_or(trip, |other| other.min(trip)));
        self.round.shortest = shorter(self.round.shortest);
        self.round.trips = (self.round.trips.0 + trip, self.round.trips.1 + 1);
        (self.shortest, self.candidate) = (shorter(self.shortest), shorter(self.candidate));
        if now.since(self.candidate_since) > FORGET {
            // A path that has become longer is no queue.
            (self.shortest, self.candidate, self.candidate_since) = (self.candidate, Some(trip), now);
        }
    }

    fn longest_without_a_queue(&self) -> Duration {
        let shortest = self.shortest.unwrap_or_default();
        shortest + QUEUE.max(shortest / 4)
    }

    fn judge(&mut self, round: &Round, now: Time, next_packet: u64) {
        let arrived = round.acked as f64 / now.since(round.began).as_secs_f64().max(1e-6);
        // What was not asked of the link says little of it.
        let arrives = if round.is_idle { self.rate } else { arrived };
        let lost = round.lost_packets as f64 / (round.lost_packets + round.acked_packets).max(1) as f64;
        let shortest = self.shortest.unwrap_or_default();
        let queue = round.shortest.unwrap_or_default().saturating_sub(shortest);
        let mean = round.trips.0.checked_div(round.trips.1).unwrap_or_default().saturating_sub(shortest);
        let has_overshot = self.is_starting && self.last > self.longest_without_a_queue();
        let is_queued = self.rules.slow_on_delay && (queue > QUEUE.max(shortest / 4) || has_overshot);
        let is_full = self.rules.slow_on_delay && mean > NOT_EMPTY.max(shortest / 10);
        let is_lossy = self.rules.slow_on_loss
            && ((round.lost_packets > 0 && is_full) || (lost > MOST_LOST && round.lost_packets > 2));
        let was_queued = self.queued;
        self.queued = if is_queued { was_queued + 1 } else { 0 };
        let (trip, before) = (self.round_trip().as_secs_f64().max(1e-4), self.rate);
        let a_packet = PACKET / trip;
        self.is_starting &= !is_lossy && !is_queued;
        if is_lossy {
            self.lowered = next_packet;
        }
        if self.queued > OWN_QUEUE {
            self.rate = match (is_lossy, round.is_idle) {
                (true, _) => before * BESIDE_OTHERS,
                (false, true) => before,
                (false, false) => before + a_packet,
            };
        } else if is_lossy {
            self.link = arrives;
            self.rate = before.min(arrives) * AFTER_LOSS.min((1.0 - lost / 2.0).max(0.5));
        } else if is_queued {
            self.link = arrives;
            let queue = if has_overshot { self.last.saturating_sub(shortest) } else { queue };
            let part = (queue.as_secs_f64() / trip).clamp(0.05, 0.5);
            self.rate = before.min(arrives * (1.0 - part));
        } else if round.is_idle {
            // It stays as it is.
        } else if self.is_starting {
            self.flat = if arrived > self.best * 1.25 { 0 } else { self.flat + 1 };
            self.best = self.best.max(arrived);
            if self.flat >= FLAT_ROUNDS {
                (self.is_starting, self.rate, self.link) = (false, self.best, self.best);
            } else {
                self.rate *= 2.0;
            }
        } else {
            let back = if (1..=OWN_QUEUE).contains(&was_queued) { self.link * AFTER_QUEUE } else { 0.0 };
            let from = before.max(back);
            let more = match from / self.link.max(1.0) {
                ..0.9 => 1.1,
                ..1.1 => 1.01,
                ..1.3 => 1.05,
                _ => 1.25,
            };
            self.rate = (from * more + a_packet).min(arrived * 1.5).max(from);
        }
        self.rate = self.rate.clamp(LEAST, MOST);
    }
}
