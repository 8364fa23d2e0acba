//! What can go wrong on the way of a frame: one struct of knobs. What happens to whole nodes and links (pauses,
//! crashes, partitions) is up to the scenario, through [`World`](super::World).

use std::time::Duration;

use super::dice::Dice;
use super::seeds::Seed;

/// The knobs. Rates are per thousand; where a rate is 0 nothing of the kind happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults {
    /// Shortest way of a frame from one node to another. At least a nanosecond is taken.
    pub travel_min: Duration,
    /// Longest way of a frame that nothing holds up.
    pub travel_max: Duration,
    /// How many frames take up to `tail_max` more.
    pub tail_per_mille: u32,
    /// The most that a frame of the tail takes more.
    pub tail_max: Duration,
    /// How many requests are lost.
    pub request_loss_per_mille: u32,
    /// How many answers are lost: the operation was executed, and the caller does not know.
    pub answer_loss_per_mille: u32,
    /// How many requests arrive twice: the window must swallow one copy (F2).
    pub request_copy_per_mille: u32,
    /// How many messages are lost.
    pub message_loss_per_mille: u32,
    /// How many messages arrive twice, as after a reconnection.
    pub message_copy_per_mille: u32,
    /// How many messages overtake those before them, as after a reconnection. Requests overtake each other by travel
    /// time wherever [`Ordering`](crate::Ordering) promises nothing else.
    pub message_overtake_per_mille: u32,
    /// Longest time at the target before each element of a batch (and each part of a torn one).
    pub execution_max: Duration,
    /// How many elements are executed up to `late_max` later: after the caller's deadline, if that is shorter.
    pub late_per_mille: u32,
    /// The most that a late element is late.
    pub late_max: Duration,
    /// How many frames clog the link that they go by: it carries nothing for up to `clog_max`, then everything.
    pub clog_per_mille: u32,
    /// The longest that a link stays clogged.
    pub clog_max: Duration,
    /// Clocks run up to this many parts per million too fast or too slow. Two of them differ by at most twice that,
    /// which a lease's drift allowance must cover (C2).
    pub clock_drift_ppm: u32,
    /// Clocks start at anything up to this: a time that crosses from one machine to another means nothing there.
    pub clock_spread: Duration,
}

impl Faults {
    /// A network that loses nothing: 2 to 6 microseconds one way, half a microsecond at most at the target. Clocks
    /// agree.
    pub fn none() -> Self {
        Faults {
            travel_min: Duration::from_micros(2),
            travel_max: Duration::from_micros(6),
            tail_per_mille: 0,
            tail_max: Duration::ZERO,
            request_loss_per_mille: 0,
            answer_loss_per_mille: 0,
            request_copy_per_mille: 0,
            message_loss_per_mille: 0,
            message_copy_per_mille: 0,
            message_overtake_per_mille: 0,
            execution_max: Duration::from_nanos(500),
            late_per_mille: 0,
            late_max: Duration::ZERO,
            clog_per_mille: 0,
            clog_max: Duration::ZERO,
            clock_drift_ppm: 0,
            clock_spread: Duration::ZERO,
        }
    }

    /// A choice of knobs that differs from seed to seed: each kind of fault is absent in about half of them, because
    /// some errors show only where others do not drown them. Long delays are up to `long`: take a lease, or a
    /// deadline.
    pub fn swarm(seed: impl Into<Seed>, long: Duration) -> Self {
        let mut dice = Dice::stream(seed.into().number(), 3);
        let mut rate = |most: u64| if dice.below(2) == 0 { 0 } else { 1 + dice.below(most) as u32 };
        let tail_per_mille = rate(100);
        let request_loss_per_mille = rate(100);
        let answer_loss_per_mille = rate(100);
        let request_copy_per_mille = rate(200);
        let message_loss_per_mille = rate(100);
        let message_copy_per_mille = rate(100);
        let message_overtake_per_mille = rate(100);
        let late_per_mille = rate(50);
        let clog_per_mille = rate(5);
        let clock_drift_ppm = rate(200);
        Faults {
            travel_max: dice.between(Duration::from_micros(3), Duration::from_micros(200)),
            tail_per_mille,
            tail_max: dice.between(Duration::ZERO, long),
            request_loss_per_mille,
            answer_loss_per_mille,
            request_copy_per_mille,
            message_loss_per_mille,
            message_copy_per_mille,
            message_overtake_per_mille,
            execution_max: dice.between(Duration::ZERO, Duration::from_micros(20)),
            late_per_mille,
            late_max: dice.between(Duration::ZERO, 2 * long),
            clog_per_mille,
            clog_max: dice.between(Duration::ZERO, long),
            clock_drift_ppm,
            clock_spread: Duration::from_secs(1000),
            ..Faults::none()
        }
    }
}
