//! The characteristics of one direction of a link.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use verbena_terms::{Lapse, Size};

use crate::codel::CoDelOptions;
use crate::jitter::Jitter;
use crate::loss::Burst;
use crate::trace::Trace;
use crate::units::{Limit, Probability, Rate};

/// Light in a fibre: 5 microseconds a kilometre (dissertation, chapter 8).
const PER_KM: Duration = Duration::from_micros(5);

/// Longer than any network takes, and short enough that what is under way can be kept.
const LONGEST_DELAY: Duration = Duration::from_secs(3600);

/// No normal value that is made of 53 random bits is farther from the mean, in standard deviations.
const FARTHEST_NORMAL: u32 = 9;

/// What a queue of a rate limit holds where nothing else is said.
const USUAL_LIMIT: Limit = Limit::Packets(1000);

/// What may be under way where nothing else is said.
const USUAL_MEMORY: Size = Size(256 << 20);

/// One direction of a link: what happens to packets that take it. The default hands them over as they come.
#[derive(Clone, Debug, PartialEq)]
pub struct Way {
    /// How long every packet takes.
    pub delay: Duration,
    /// A distance, which adds 5 us a kilometre.
    pub km: f64,
    /// How the delay varies.
    pub jitter: Option<Jitter>,
    /// Whether packets with jitter may overtake each other. Otherwise one that would arrive before an earlier one arrives just behind it:
    /// most jitter of networks comes from queues, which keep the order, and TCP takes packets out of order for loss.
    pub may_overtake: bool,
    /// Packets lost, each by itself.
    pub loss: Probability,
    /// Exactly one packet in every block of this many is lost (dissertation 8.2.2).
    pub drop_rate: Option<u64>,
    /// Packets lost in bursts.
    pub burst: Option<Burst>,
    /// Packets that arrive twice.
    pub duplicate: Probability,
    /// Packets in which one bit is changed.
    pub corrupt: Probability,
    /// Exactly one packet in every block of this many takes `ooo_delay` (dissertation 8.2.2).
    pub ooo_rate: Option<u64>,
    /// More than the delay of the way.
    pub ooo_delay: Option<Duration>,
    /// How much is transmitted in a second.
    pub rate: Option<Rate>,
    /// How much may wait for that.
    pub limit: Option<Limit>,
    /// Whether what waits too long for too long is dropped, beside what does not fit.
    pub codel: Option<CoDelOptions>,
    /// Delay and rate that change, and the file that says so.
    pub trace: Option<(PathBuf, Arc<Trace>)>,
    /// How many bytes may be under way or wait: what is more is dropped, and counted apart.
    pub memory: Size,
}

impl Default for Way {
    fn default() -> Self {
        Way {
            delay: Duration::ZERO,
            km: 0.0,
            jitter: None,
            may_overtake: false,
            loss: Probability::default(),
            drop_rate: None,
            burst: None,
            duplicate: Probability::default(),
            corrupt: Probability::default(),
            ooo_rate: None,
            ooo_delay: None,
            rate: None,
            limit: None,
            codel: None,
            trace: None,
            memory: USUAL_MEMORY,
        }
    }
}

/// Options of a way that do not go together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{option}: {problem}")]
pub struct Impossible {
    /// The one to change first.
    pub option: &'static str,
    /// Why it cannot be.
    pub problem: String,
}

impl Way {
    /// Delay and distance together.
    pub fn whole_delay(&self) -> Duration {
        self.delay + PER_KM.mul_f64(self.km)
    }

    /// The least that a trace makes of delay and distance.
    fn least_delay(&self) -> Duration {
        let delay = self.whole_delay();
        self.trace.as_ref().map_or(delay, |(_, trace)| trace.shortest_delay(delay))
    }

    /// No packet takes less.
    pub(crate) fn shortest_delay(&self) -> Duration {
        let delay = self.least_delay();
        match &self.jitter {
            Some(Jitter::Uniform { width }) => delay.saturating_sub(*width),
            Some(Jitter::Normal { deviation }) => delay.saturating_sub(*deviation * FARTHEST_NORMAL),
            _ => delay,
        }
    }

    /// What the queue holds.
    pub(crate) fn queue_limit(&self) -> Limit {
        self.limit.unwrap_or(USUAL_LIMIT)
    }

    /// Whether a rule here chooses or times single packets, so that several which the sender put in one large frame have to come one by one.
    pub fn needs_single_packets(&self) -> bool {
        self.rule_for_single_packets().is_some()
    }

    /// The first such rule, by the name of its option.
    pub(crate) fn rule_for_single_packets(&self) -> Option<&'static str> {
        let is_there = |probability: Probability| probability.part() > 0.0;
        let rules = [
            (is_there(self.loss), "loss"),
            (is_there(self.duplicate), "duplicate"),
            (is_there(self.corrupt), "corrupt"),
            (self.drop_rate.is_some(), "drop_rate"),
            (self.burst.is_some(), "burst"),
            (self.ooo_rate.is_some(), "ooo_rate"),
            (self.jitter.is_some(), "jitter"),
            (self.rate.is_some(), "rate"),
            (self.has_rate(), "trace"),
        ];
        rules.into_iter().find(|(is_there, _)| *is_there).map(|(_, name)| name)
    }

    fn has_rate(&self) -> bool {
        self.rate.is_some() || self.trace.as_ref().is_some_and(|(_, trace)| trace.has_rate())
    }

    /// Looks whether all of it can be at once.
    ///
    /// # Errors
    /// The first that cannot.
    pub fn check(&self) -> Result<(), Impossible> {
        let delay = self.whole_delay();
        let wrong = |option, problem: String| Err(Impossible { option, problem });
        let longest = self.trace.as_ref().map_or(delay, |(_, trace)| trace.longest_delay().max(delay));
        if longest > LONGEST_DELAY {
            return wrong("delay", format!("{} is more than {}", Lapse(longest), Lapse(LONGEST_DELAY)));
        }
        match &self.jitter {
            Some(Jitter::Uniform { width }) if *width > self.least_delay() => {
                let problem = "would have packets arrive before they are sent";
                let least = Lapse(self.least_delay());
                return wrong("jitter", format!("{} around a delay of {least} {problem}", Lapse(*width)));
            }
            None if self.may_overtake => return wrong("order", "without jitter packets arrive in order".into()),
            _ => {}
        }
        match (self.ooo_rate, self.ooo_delay) {
            (Some(_), None) => return wrong("ooo_rate", "needs ooo_delay, how long the chosen packets take".into()),
            (None, Some(_)) => return wrong("ooo_delay", "needs ooo_rate, one packet in how many takes it".into()),
            (_, Some(ooo)) => {
                let varied = self.jitter.as_ref().and_then(Jitter::most).unwrap_or_default();
                if ooo <= longest + varied {
                    let problem = "is not more than the delay of all, which is";
                    let jittered = if varied.is_zero() { "" } else { " with its jitter" };
                    return wrong(
                        "ooo_delay",
                        format!("{} {problem} {}{jittered}", Lapse(ooo), Lapse(longest + varied)),
                    );
                }
            }
            (None, None) => {}
        }
        if !self.has_rate() && (self.limit.is_some() || self.codel.is_some()) {
            let option = if self.limit.is_some() { "limit" } else { "queue" };
            return wrong(option, "without a rate nothing waits".into());
        }
        Ok(())
    }
}
