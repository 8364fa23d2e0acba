//! How long it takes until service is back.
//!
//! A probe at each proxy does rounds: a read is answered, an update is accepted, and each of its pages is a hit. A round that takes more
//! than half a lease is time without service; shorter ones follow each other while there is service. So service is back when the last long
//! round ends before there is service for more than a lease, and without one when the first round ends that began after the fault. What is
//! long after that is a reading of its own, *later*: the length of that time.
//!
//! A page that an open update touches is not served from the cache, and nothing is of a home that does not know yet what earlier incarnations
//! have open (rules P3, P5, P6): for a lease and the longest transaction after an updater died. So each home is asked, many times a second,
//! whether it holds such a thing. A reading is *held*, and counted apart, when hits were waited for and a home held something for half a
//! lease of that time or more; what is left without that time must be as short as any other.

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
    /// The name of the fault; `later` for another time without service before the next fault.
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
    /// While hits were waited for, for so long a home held something.
    pub held: Duration,
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
        let Reading { after, since, proxy, accepted, back, held, refused } = self;
        let (accepted, back, held) = (accepted.as_millis(), back.as_millis(), held.as_millis());
        write!(
            f,
            "  member {proxy} back {back} ms after the {since} of {after}, updates after {accepted} ms, held for {held} ms"
        )?;
        refused.as_ref().map_or(Ok(()), |why| write!(f, " (before: {why})"))
    }
}

/// A time without service.
#[derive(Debug)]
pub struct Outage<'a> {
    /// The fault's; of a later one its own first round's.
    pub began: Instant,
    /// The rounds that it took; the last one ended it.
    pub rounds: Vec<&'a Round>,
    /// There had been service for a while since the fault.
    pub is_later: bool,
}

/// Times without service since `from`, by the rounds that began before `until`. The first one is the fault's, however short. Long rounds
/// with less than `steady` between them are one.
pub fn outages<'a>(
    rounds: &'a [Round],
    (from, until): (Instant, Option<Instant>),
    slow: Duration,
    steady: Duration,
) -> Vec<Outage<'a>> {
    let concerned = |round: &&Round| round.done > from && until.is_none_or(|until| round.began < until);
    let Some(first) = rounds.iter().filter(concerned).find(|round| round.began >= from || is_long(round, slow)) else {
        return Vec::new();
    };
    let mut found = vec![Outage { began: from, rounds: vec![first], is_later: false }];
    for round in rounds.iter().filter(concerned).filter(|round| is_long(round, slow) && round.done > first.done) {
        let outage = found.last_mut().expect("invariant: there is the first");
        let before = if is_long(outage.last(), slow) { outage.last().done } else { outage.began };
        if round.began.saturating_duration_since(before) < steady {
            outage.rounds.push(round);
        } else {
            found.push(Outage { began: round.began, rounds: vec![round], is_later: true });
        }
    }
    found
}

impl Outage<'_> {
    /// The round that ended it.
    pub fn last(&self) -> &Round {
        self.rounds.last().expect("invariant: it took one at least")
    }

    /// The last round in which it took long until an update was accepted; without one, the first.
    pub fn accepting(&self, slow: Duration) -> &Round {
        let long = |round: &&&Round| round.accepted.duration_since(round.began) > slow;
        self.rounds.iter().rev().find(long).unwrap_or(&self.rounds[0])
    }

    /// While its rounds waited for hits, for so long a home held something.
    pub fn held<'s>(&self, homes: impl IntoIterator<Item = &'s Said> + Clone, at_least: Duration) -> Duration {
        let of = |round: &&Round| held(homes.clone(), round.accepted.max(self.began), round.done, at_least);
        self.rounds.iter().map(of).sum()
    }
}

fn is_long(round: &Round, slow: Duration) -> bool {
    round.done.duration_since(round.began) > slow
}

/// What a home said at these moments, in order: whether it held something.
pub type Said = Vec<(Instant, bool)>;

/// For how long any of the homes held something between two moments, in stretches of this length at least: shorter ones are what updates
/// take. What one said twice it did meanwhile.
fn held<'a>(homes: impl IntoIterator<Item = &'a Said>, from: Instant, until: Instant, at_least: Duration) -> Duration {
    let mut spans: Vec<(Instant, Instant)> = Vec::new();
    for said in homes {
        let both = said.windows(2).filter(|both| both.iter().all(|(at, held)| *held && (from..=until).contains(at)));
        spans.extend(both.map(|both| (both[0].0, both[1].0)));
    }
    spans.sort_unstable();
    let mut stretches: Vec<(Instant, Instant)> = Vec::new();
    for (begin, end) in spans {
        match stretches.last_mut() {
            Some(last) if begin <= last.1 => last.1 = last.1.max(end),
            _ => stretches.push((begin, end)),
        }
    }
    stretches.into_iter().map(|(begin, end)| end - begin).filter(|long| *long >= at_least).sum()
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
            let held = !held.is_zero();
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
        let (slow, steady) = (Duration::from_millis(500), Duration::from_millis(800));
        let found = |from, until: Option<u32>| -> Vec<(u32, u32, bool)> {
            let found = outages(&rounds, (at(from), until.map(at)), slow, steady);
            let tenths = |at: Instant| ((at - start).as_millis() / 100) as u32;
            found.iter().map(|outage| (tenths(outage.began), tenths(outage.last().done), outage.is_later)).collect()
        };
        assert_eq!(found(5, None), [(5, 31, false)], "there was no service for long between the two");
        assert_eq!(found(5, Some(20)), [(5, 18, false)], "what the mending does is not the fault's");
        assert_eq!(found(10, None), [(10, 31, false)], "the one under way counts");
        assert_eq!(found(32, None), [(32, 34, false)], "no long one: the first after it");
        assert_eq!(found(1, Some(5)), [(1, 4, false)]);
        assert_eq!(found(34, None), []);
        let later = [round(1, 2), round(6, 7), round(20, 30), round(31, 32)];
        let found = outages(&later, (at(0), None), slow, steady);
        assert!(
            matches!(&found[..], [first, later] if first.last().done == at(2) && later.is_later && later.began == at(20))
        );
    }

    #[test]
    fn of_an_outage_each_round_counts() {
        let start = Instant::now();
        let at = |tenths: u32| start + Duration::from_millis(100) * tenths;
        let round =
            |began, accepted, done| Round { began: at(began), accepted: at(accepted), done: at(done), refused: None };
        let rounds = [round(1, 9, 20), round(21, 22, 28), round(29, 30, 31)];
        let (slow, said): (_, Said) = (at(5) - start, (0..40).map(|tenths| (at(tenths), tenths < 20)).collect());
        let found = outages(&rounds, (at(0), None), slow, at(12) - start);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].last().done, at(28));
        assert_eq!(found[0].accepting(slow).accepted, at(9));
        assert_eq!(
            found[0].held([&said], slow),
            Duration::from_millis(1000),
            "the first was held, and the last was not"
        );
    }

    #[test]
    fn a_home_held_something_while_it_said_so() {
        let start = Instant::now();
        let at = |tenths: u32| start + Duration::from_millis(100) * tenths;
        let one: Said = (0..20).map(|tenths| (at(tenths), (5..12).contains(&tenths) || tenths == 14)).collect();
        let other: Said = (0..20).map(|tenths| (at(tenths), (9..14).contains(&tenths))).collect();
        let held = |homes: &[&Said], from, until| held(homes.iter().copied(), at(from), at(until), at(2) - start);
        assert_eq!(held(&[&one], 0, 19), Duration::from_millis(600));
        assert_eq!(held(&[&one], 7, 10), Duration::from_millis(300));
        assert_eq!(held(&[&one], 7, 8), Duration::ZERO, "an update takes as long");
        assert_eq!(held(&[&one[..6].to_vec()], 0, 19), Duration::ZERO);
        assert_eq!(held(&[&one, &other], 0, 19), Duration::from_millis(800), "nothing counts twice");
    }

    #[test]
    fn distributions_are_told_in_leases() {
        let reading = |back, held| {
            let (back, held) = (Duration::from_millis(back), Duration::from_millis(held));
            Reading { after: "cut", since: Since::End, proxy: 3, accepted: back, back, refused: None, held }
        };
        let readings: Vec<_> = (1..=10).map(|tenths| reading(tenths * 100, 0)).chain([reading(9000, 8000)]).collect();
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
