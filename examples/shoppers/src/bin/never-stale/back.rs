//! How long it takes until service is back.
//!
//! A probe at each proxy does rounds: a read is answered, an update is accepted, and each of its pages is a hit. A round that takes more
//! than half a lease is time without service; shorter ones follow each other while there is service. So service is back when the last long
//! round ends that has to do with the fault, and without one when the first round ends that began after it.
//!
//! A page that an open update touches is not served from the cache, and nothing is of a home that does not know yet what earlier incarnations
//! have open (rules P3, P5, P6): for a lease and the longest transaction after an updater died. So each home is asked, many times a second,
//! whether it holds such a thing. A reading whose round waited for hits alone, while a home did so but for less than half a lease, is *held*:
//! counted apart.

use std::fmt;
use std::time::{Duration, Instant};

use verbena_shoppers::Round;

/// From where it is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// The fault's beginning, at a proxy that it does not touch.
    Beginning,
    /// Its end, at any proxy.
    End,
}

/// One measurement at one proxy.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The name of the fault.
    pub after: &'static str,
    pub since: Since,
    /// The number of the proxy as a member.
    pub proxy: u8,
    /// Until updates were accepted.
    pub accepted: Duration,
    /// Until there were hits too.
    pub back: Duration,
    /// Why an update was not accepted sooner, if one was tried.
    pub refused: Option<String>,
    /// While its last round waited for hits, a home held something, but for less than half a lease.
    pub held: bool,
    /// For how long one did.
    pub held_for: Duration,
}

impl fmt::Display for Since {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Since::Beginning => "beginning",
            Since::End => "end",
        })
    }
}

impl fmt::Display for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Reading { after, since, proxy, accepted, back, held, held_for, refused } = self;
        let held = if *held { format!(", held for {} ms", held_for.as_millis()) } else { String::new() };
        let (accepted, back) = (accepted.as_millis(), back.as_millis());
        write!(f, "  member {proxy} back {back} ms after the {since} of {after}, updates after {accepted} ms{held}")?;
        refused.as_ref().map_or(Ok(()), |why| write!(f, " (before: {why})"))
    }
}

/// The round that ended what a fault did since `from`, of those that began before `until`.
pub fn ending(rounds: &[Round], from: Instant, until: Option<Instant>, slow: Duration) -> Option<&Round> {
    let concerned = |round: &&Round| round.done > from && until.is_none_or(|until| round.began < until);
    let long = rounds.iter().rev().filter(concerned).find(|round| round.done.duration_since(round.began) > slow);
    long.or_else(|| rounds.iter().filter(concerned).find(|round| round.began >= from))
}

/// What a home said at these moments, in order: whether it held something.
pub type Said = Vec<(Instant, bool)>;

/// For how long any of the homes held something between two moments. What one said twice it did meanwhile.
pub fn held<'a>(homes: impl IntoIterator<Item = &'a Said>, from: Instant, until: Instant) -> Duration {
    let mut spans: Vec<(Instant, Instant)> = Vec::new();
    for said in homes {
        let both = said.windows(2).filter(|both| both.iter().all(|(at, held)| *held && (from..=until).contains(at)));
        spans.extend(both.map(|both| (both[0].0, both[1].0)));
    }
    spans.sort_unstable();
    let mut counted = from;
    let mut sum = Duration::ZERO;
    for (begin, end) in spans {
        sum += end.saturating_duration_since(begin.max(counted));
        counted = counted.max(end);
    }
    sum
}

/// A distribution of readings of one kind, in leases.
pub struct Distribution {
    after: &'static str,
    since: Since,
    held: bool,
    /// In order.
    backs: Vec<f64>,
}

impl Distribution {
    /// One for each kind of fault, beginning of time, and whether held, in the order of their first readings.
    pub fn all(readings: &[Reading], lease: Duration) -> Vec<Self> {
        let mut all: Vec<Distribution> = Vec::new();
        for reading in readings {
            let &Reading { after, since, held, .. } = reading;
            let found = all.iter().position(|other| (other.after, other.since, other.held) == (after, since, held));
            let at = found.unwrap_or_else(|| {
                all.push(Distribution { after, since, held, backs: Vec::new() });
                all.len() - 1
            });
            all[at].backs.push(reading.back.as_secs_f64() / lease.as_secs_f64());
        }
        for distribution in &mut all {
            distribution.backs.sort_by(f64::total_cmp);
        }
        all.sort_by_key(|distribution| (distribution.held, distribution.after, distribution.since == Since::End));
        all
    }

    /// The value below or at which this part of them is.
    fn quantile(&self, part: f64) -> f64 {
        let rank = (self.backs.len() as f64 * part).ceil() as usize;
        self.backs[rank.clamp(1, self.backs.len()) - 1]
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let since = self.since;
        let (median, ninety, longest) = (self.quantile(0.5), self.quantile(0.9), self.quantile(1.0));
        write!(
            f,
            "back: after={} since={since} held={} readings={} median={median:.2} ninety%={ninety:.2} longest={longest:.2} leases",
            self.after,
            self.held,
            self.backs.len()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_is_back_when_the_last_long_round_ends() {
        let start = Instant::now();
        let at = |tenths: u32| start + Duration::from_millis(100) * tenths;
        let round = |began, done| Round { began: at(began), accepted: at(began), done: at(done), refused: None };
        let rounds = [round(0, 1), round(3, 4), round(6, 18), round(20, 21), round(22, 31), round(33, 34)];
        let slow = Duration::from_millis(500);
        let done = |from, until| ending(&rounds, at(from), until, slow).map(|round| round.done);
        assert_eq!(done(5, None), Some(at(31)));
        assert_eq!(done(5, Some(at(20))), Some(at(18)), "what the mending does is not the fault's");
        assert_eq!(done(32, None), Some(at(34)), "no long one: the first after it");
        assert_eq!(done(1, Some(at(5))), Some(at(4)));
        assert_eq!(done(34, None), None);
    }

    #[test]
    fn a_home_held_something_while_it_said_so() {
        let start = Instant::now();
        let at = |tenths: u32| start + Duration::from_millis(100) * tenths;
        let one: Said = (0..20).map(|tenths| (at(tenths), (5..12).contains(&tenths) || tenths == 14)).collect();
        let other: Said = (0..20).map(|tenths| (at(tenths), (9..14).contains(&tenths))).collect();
        assert_eq!(held([&one], at(0), at(19)), Duration::from_millis(600));
        assert_eq!(held([&one], at(7), at(10)), Duration::from_millis(300));
        assert_eq!(held([&one[..6].to_vec()], at(0), at(19)), Duration::ZERO);
        assert_eq!(held([&one, &other], at(0), at(19)), Duration::from_millis(800), "nothing counts twice");
    }

    #[test]
    fn distributions_are_told_in_leases() {
        let reading = |back, held| {
            let back = Duration::from_millis(back);
            Reading {
                after: "cut",
                since: Since::End,
                proxy: 3,
                accepted: back,
                back,
                refused: None,
                held,
                held_for: Duration::ZERO,
            }
        };
        let readings: Vec<_> =
            (1..=10).map(|tenths| reading(tenths * 100, false)).chain([reading(9000, true)]).collect();
        let all: Vec<String> =
            Distribution::all(&readings, Duration::from_millis(500)).iter().map(ToString::to_string).collect();
        assert_eq!(
            all,
            [
                "back: after=cut since=end held=false readings=10 median=1.00 ninety%=1.80 longest=2.00 leases",
                "back: after=cut since=end held=true readings=1 median=18.00 ninety%=18.00 longest=18.00 leases",
            ]
        );
    }
}
