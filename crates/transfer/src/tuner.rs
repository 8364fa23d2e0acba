//! How many streams a session uses, and over which channel, found by measuring (rule T13).
//!
//! A round changes one thing and compares the rate behind it with the rate before it:
//! ```text
//!   Settle --(the change has its effect)--> Measure --+--> a tenth faster, few sent again: double again --> Settle
//!      ^                                              +--> neither: back to the count before ----------> Rest
//!      +----------- ten seconds later ----------------------------------------------------------------- Rest
//! ```
//! The channel is a thing that a round may change, too. A session begins on the first of its channels, the one that takes the least processor
//! time. Where packets are lost, the round that ends the growth is followed by one on the next channel of the session with as many streams; it
//! keeps the channel or goes back by the same tenth, and a later look may try the one behind that: `udp` comes last, and stays only if it measures better. A channel that did not pay gets its next trial a minute later at the earliest, one
//! that cannot be reached none.
//!
//! The machine reads no clock and no socket: the caller hands it samples of what the link did. A time in which the sender
//! had nothing to send, because a disk or a small file held it up, says nothing about the link and is not counted.

use std::fmt;
use std::time::Duration;

use verbena_terms::Time;

use crate::channel::{Lanes, MOST_STREAMS};
use crate::channel_kind::ChannelKind;
use crate::frame::Measured;

/// Time between two looks for a better count.
pub const LOOK_EVERY: Duration = Duration::from_secs(10);
/// A change pays when the rate grows by one part in so many.
const PAYS: f64 = 1.1;
/// More than one packet in so many sent again ends the growth.
const MOST_AGAIN: u64 = 50;
/// More than one packet in so many sent again makes the next channel worth a trial.
const LOSSY: u64 = 2000;
/// Time between two trials of one channel.
const TRY_EVERY: Duration = Duration::from_secs(60);
/// Round trips until a change has its effect, and those that are then measured.
const SETTLE_TRIPS: u32 = 6;
const MEASURE_TRIPS: u32 = 12;
/// The same where the round trip is tiny or unknown, and at most.
const LEAST_SETTLE: Duration = Duration::from_millis(60);
const LEAST_MEASURE: Duration = Duration::from_millis(120);
const MOST_SPAN: Duration = Duration::from_secs(3);

/// What all streams of a session did since the sample before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Bytes that the link took.
    pub bytes: u64,
    /// Packets that were sent, those that were sent again included. 0: the channel does not tell.
    pub packets: u64,
    /// Packets that were sent again.
    pub again: u64,
    /// The round trip, smoothed.
    pub round_trip: Option<Duration>,
    /// Whether the sender had nothing to send for a part of the time.
    pub is_idle: bool,
    /// Whether streams that were in use before still send what they were given.
    pub is_draining: bool,
    /// Streams that can carry data.
    pub streams: u16,
}

/// What the caller is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Use so many streams.
    Streams(u16),
    /// Use as many streams of another channel.
    Channel(ChannelKind),
}

/// Why a step was taken, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The first one, or what an earlier session with this peer ended with.
    Start,
    /// More streams are tried.
    Look,
    /// The change paid.
    Paid,
    /// The rate did not grow by a tenth.
    NoGain,
    /// More than one packet in fifty was sent again.
    SentAgain,
    /// No further stream could be made.
    Refused,
    /// Packets are lost: a channel that stands it better is tried.
    Lossy,
    /// No stream of the channel could be made.
    Unreachable,
    /// The most streams are in use.
    Most,
}

/// One entry of what the tuner writes down.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision {
    /// Since the session began.
    pub at: Duration,
    /// The channel that was measured.
    pub channel: ChannelKind,
    /// Streams that were measured.
    pub from: u16,
    /// What follows; `None` leaves all as it is.
    pub step: Option<Step>,
    /// Why.
    pub why: Why,
    /// Bytes per second that were measured.
    pub rate: f64,
    /// Bytes per second before the change that was judged.
    pub before: Option<f64>,
    /// Packets sent, and sent again, in the measured time.
    pub packets: (u64, u64),
    /// The round trip.
    pub round_trip: Option<Duration>,
}

impl fmt::Display for Decision {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let streams = |count: u16| format!("{count} stream{}", if count == 1 { "" } else { "s" });
        write!(to, "{:.1} s: {} by {}", self.at.as_secs_f64(), streams(self.from), self.channel)?;
        if self.why == Why::Start {
            return write!(to, " to begin with");
        }
        write!(to, " gave {:.1} MB/s", self.rate / 1e6)?;
        if let Some(before) = self.before {
            write!(to, ", {:.2} times {:.1} MB/s", self.rate / before.max(1.0), before / 1e6)?;
        }
        match self.packets {
            (0, _) => {}
            (packets, again) => write!(to, "; {again} of {packets} packets were sent again")?,
        }
        if let Some(trip) = self.round_trip {
            write!(to, "; round trip {:.1} ms", trip.as_secs_f64() * 1e3)?;
        }
        let reason = match self.why {
            Why::Start | Why::Paid => "it pays",
            Why::Look => "more may pay",
            Why::NoGain => "it is no tenth more",
            Why::SentAgain => "more than one packet in fifty was lost",
            Why::Refused => "no further stream could be made",
            Why::Lossy if self.channel == ChannelKind::Tcp => "packets are lost, which TCP takes for a full link",
            Why::Lossy => "packets are lost, which its congestion control takes for a full link",
            Why::Unreachable => "no stream of it could be made",
            Why::Most => "no more are allowed",
        };
        match self.step {
            None => write!(to, ": {reason}, stay"),
            Some(Step::Streams(count)) => write!(to, ": {reason}, go to {}", streams(count)),
            Some(Step::Channel(channel)) if self.why == Why::Lossy => write!(to, ": {reason}, try {channel}"),
            Some(Step::Channel(channel)) => write!(to, ": {reason}, go back to {channel}"),
        }
    }
}

impl Decision {
    /// What was measured, as the other side is told.
    pub fn measured(&self) -> Measured {
        let micros = self.round_trip.unwrap_or_default().as_micros();
        Measured {
            rate: self.rate as u64,
            round_trip_us: u64::try_from(micros).unwrap_or(u64::MAX),
            packets: self.packets.0,
            again: self.packets.1,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// Until then a change has no effect yet. Streams that are still being made put it off.
    Settle(Time),
    /// What the count gives is measured.
    Measure,
    /// Until then nothing is changed.
    Rest(Time),
}

/// What is summed up since a time.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    span: Duration,
    bytes: u64,
    packets: u64,
    again: u64,
}

impl Sum {
    fn rate(&self) -> f64 {
        self.bytes as f64 / self.span.as_secs_f64().max(1e-9)
    }

    fn is_congested(&self) -> bool {
        self.again * MOST_AGAIN > self.packets
    }
}

/// What a tuner is set to.
#[derive(Clone, Debug)]
pub struct TunerSettings {
    /// Streams to begin with: 1, or what an earlier session with this peer ended with.
    pub first: u16,
    /// The most, up to [`MOST_STREAMS`].
    pub most: u16,
    /// The channels of the session: it begins with the first one, and may try the others.
    pub channels: Vec<ChannelKind>,
}

impl TunerSettings {
    /// Whether there is anything to find.
    pub fn has_a_choice(&self) -> bool {
        self.first < self.most || self.channels.len() > 1
    }
}

/// One of the channels.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    kind: ChannelKind,
    /// Streams that can be made of it.
    most: u16,
    tried: Option<Time>,
}

/// What was in use before the change that is being judged.
#[derive(Clone, Copy, Debug)]
struct Before {
    channel: usize,
    streams: u16,
    rate: f64,
}

/// The machine.
#[derive(Debug)]
pub struct Tuner {
    /// The most streams of a channel: how far the numbers of two channels are apart.
    most: u16,
    candidates: Vec<Candidate>,
    /// Which of them is in use.
    channel: usize,
    began: Time,
    last: Time,
    /// When the count was changed last.
    changed: Time,
    streams: u16,
    phase: Phase,
    trial: Option<Before>,
    /// Whether a count of streams was settled on: only then another channel is tried.
    has_grown: bool,
    sum: Sum,
    round_trip: Option<Duration>,
    decisions: Vec<Decision>,
}

impl Tuner {
    /// A tuner of a session that begins now.
    pub fn new(settings: TunerSettings, now: Time) -> Tuner {
        let most = settings.most.clamp(1, MOST_STREAMS);
        let kinds = if settings.channels.is_empty() { vec![ChannelKind::Tcp] } else { settings.channels };
        let mut tuner = Tuner {
            most,
            candidates: kinds.into_iter().map(|kind| Candidate { kind, most, tried: None }).collect(),
            channel: 0,
            began: now,
            last: now,
            changed: now,
            streams: settings.first.clamp(1, most),
            phase: Phase::Settle(now + LEAST_SETTLE),
            trial: None,
            has_grown: false,
            sum: Sum::default(),
            round_trip: None,
            decisions: Vec::new(),
        };
        tuner.write_down(now, tuner.streams, None, Why::Start, None);
        tuner
    }

    /// Streams that are to be used.
    pub fn streams(&self) -> u16 {
        self.streams
    }

    /// The streams that are to be used, by number.
    pub fn lanes(&self) -> Lanes {
        Lanes { first: self.channel as u16 * self.most, count: self.streams }
    }

    /// The channel that is to be used.
    pub fn channel(&self) -> ChannelKind {
        self.candidates[self.channel].kind
    }

    /// What was decided since the last call, in order.
    pub fn decisions(&mut self) -> Vec<Decision> {
        std::mem::take(&mut self.decisions)
    }

    /// Takes what the link did since the sample before, and says what is to be changed.
    pub fn sample(&mut self, now: Time, sample: Sample) -> Option<Step> {
        let span = now.since(self.last);
        self.last = now;
        self.round_trip = sample.round_trip.or(self.round_trip);
        match self.phase {
            Phase::Settle(_) if sample.streams < self.streams => {
                if now.since(self.changed) >= LOOK_EVERY {
                    return Some(self.refused(sample.streams, now));
                }
                self.phase = Phase::Settle(now + self.trips(SETTLE_TRIPS, LEAST_SETTLE));
                None
            }
            Phase::Settle(_) if sample.is_draining => {
                self.phase = Phase::Settle(now + self.trips(SETTLE_TRIPS, LEAST_SETTLE));
                None
            }
            Phase::Settle(until) if now < until => None,
            Phase::Settle(_) => {
                // The sample that reaches into the settled time is half of each.
                (self.phase, self.sum) = (Phase::Measure, Sum::default());
                None
            }
            Phase::Rest(until) => {
                if now >= until && !sample.is_idle {
                    (self.phase, self.sum) = (Phase::Measure, Sum::default());
                }
                None
            }
            Phase::Measure if sample.is_idle => {
                self.sum = Sum::default();
                None
            }
            Phase::Measure => {
                self.sum.span += span;
                self.sum.bytes += sample.bytes;
                self.sum.packets += sample.packets;
                self.sum.again += sample.again.min(sample.packets);
                if self.sum.span < self.trips(MEASURE_TRIPS, LEAST_MEASURE) { None } else { self.judge(now) }
            }
        }
    }

    /// A stream that was asked for cannot be made: `streams` of the channel are there.
    pub fn refused(&mut self, streams: u16, now: Time) -> Step {
        if let Some(before) = self.trial.take().filter(|before| before.channel != self.channel) {
            self.candidates[self.channel].most = 0;
            return self.go_back(before, Why::Unreachable, now);
        }
        let from = self.streams;
        self.streams = streams.clamp(1, self.streams);
        self.candidates[self.channel].most = self.streams;
        self.phase = Phase::Rest(now + LOOK_EVERY);
        let step = Step::Streams(self.streams);
        self.write_down(now, from, Some(step), Why::Refused, None);
        step
    }

    fn trips(&self, trips: u32, least: Duration) -> Duration {
        (self.round_trip.unwrap_or_default() * trips).clamp(least, MOST_SPAN)
    }

    fn judge(&mut self, now: Time) -> Option<Step> {
        let (rate, from) = (self.sum.rate(), self.streams);
        let before = self.trial.map(|before| before.rate);
        let (is_congested, pays) = (self.sum.is_congested(), before.is_none_or(|before| rate >= before * PAYS));
        if let Some(trial) = self.trial.take()
            && (is_congested || !pays)
        {
            let why = if is_congested { Why::SentAgain } else { Why::NoGain };
            if trial.channel != self.channel {
                return Some(self.go_back(trial, why, now));
            }
            return self.settle_on(trial.streams, why, before, now);
        }
        if self.has_grown
            && before.is_none()
            && let Some(other) = self.worth_a_trial(now)
        {
            return Some(self.try_channel(other, now));
        }
        if is_congested && from > 1 {
            // What an earlier session found, or what the link was, is no longer so.
            return self.settle_on(from / 2, Why::SentAgain, before, now);
        }
        let most = self.candidates[self.channel].most;
        if is_congested || from >= most {
            let why = if is_congested { Why::SentAgain } else { Why::Most };
            return self.settle_on(from, why, before, now);
        }
        self.streams = (from * 2).min(most);
        self.trial = Some(Before { channel: self.channel, streams: from, rate });
        self.changed = now;
        self.phase = Phase::Settle(now + self.trips(SETTLE_TRIPS, LEAST_SETTLE));
        let why = if before.is_some() { Why::Paid } else { Why::Look };
        self.write_down(now, from, Some(Step::Streams(self.streams)), why, before);
        Some(Step::Streams(self.streams))
    }

    /// Ends a round with a count of streams. Where another channel may do better, it is tried with that count.
    fn settle_on(&mut self, streams: u16, why: Why, before: Option<f64>, now: Time) -> Option<Step> {
        let from = self.streams;
        self.has_grown = true;
        if streams == from
            && let Some(other) = self.worth_a_trial(now)
        {
            return Some(self.try_channel(other, now));
        }
        self.streams = streams;
        // A trial of a channel is compared with what the count gives that stays: it is measured first.
        let is_measured_again = self.worth_a_trial(now).is_some();
        self.phase = match is_measured_again {
            true => Phase::Settle(now + self.trips(SETTLE_TRIPS, LEAST_SETTLE)),
            false => Phase::Rest(now + LOOK_EVERY),
        };
        let step = (streams != from).then_some(Step::Streams(streams));
        self.write_down(now, from, step, why, before);
        step
    }

    fn try_channel(&mut self, other: usize, now: Time) -> Step {
        let step = Step::Channel(self.candidates[other].kind);
        self.write_down(now, self.streams, Some(step), Why::Lossy, None);
        self.trial = Some(Before { channel: self.channel, streams: self.streams, rate: self.sum.rate() });
        self.candidates[other].tried = Some(now);
        (self.channel, self.changed) = (other, now);
        self.phase = Phase::Settle(now + self.trips(SETTLE_TRIPS, LEAST_SETTLE));
        step
    }

    /// Another channel that may do better than the one that was measured.
    fn worth_a_trial(&self, now: Time) -> Option<usize> {
        let is_lossy = self.sum.again * LOSSY > self.sum.packets;
        let is_due = |other: &Candidate| other.tried.is_none_or(|tried| now.since(tried) >= TRY_EVERY);
        // Those behind stand losses better, and take more processor time.
        let behind = self.candidates.iter().enumerate().skip(self.channel + 1);
        let mut fits = behind.filter(|(_, other)| other.most >= self.streams && is_due(other));
        fits.next().map(|(index, _)| index).filter(|_| is_lossy)
    }

    /// Ends the trial of a channel.
    fn go_back(&mut self, before: Before, why: Why, now: Time) -> Step {
        let step = Step::Channel(self.candidates[before.channel].kind);
        self.write_down(now, self.streams, Some(step), why, Some(before.rate));
        (self.channel, self.streams) = (before.channel, before.streams);
        self.phase = Phase::Rest(now + LOOK_EVERY);
        step
    }

    fn write_down(&mut self, now: Time, from: u16, step: Option<Step>, why: Why, before: Option<f64>) {
        let decision = Decision {
            at: now.since(self.began),
            channel: self.channel(),
            from,
            step,
            why,
            rate: self.sum.rate(),
            before,
            packets: (self.sum.packets, self.sum.again),
            round_trip: self.round_trip,
        };
        tracing::info!(%decision, "tuner");
        self.decisions.push(decision);
    }
}
