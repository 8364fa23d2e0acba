//! Delay and rate that change as the time goes by.
//!
//! A trace is text, one line for each change: the time since the start, the delay, the rate, separated by commas or blanks; `-` leaves one as
//! it is without the trace. A last line `TIME repeat` begins anew at that time; without it the last change stays.
//!
//! ```text
//! # when  delay  rate
//! 0s      10ms   20mbit
//! 30s     80ms   1mbit
//! 45s     repeat
//! ```

use std::time::Duration;

use verbena_terms::{Lapse, Time};

use crate::units::Rate;

const MOST_CHANGES: usize = 1_000_000;

/// One change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Change {
    at: Duration,
    delay: Option<Duration>,
    rate: Option<Rate>,
}

/// How the delay and the rate of a way change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The first is at 0; in order of time.
    changes: Vec<Change>,
    length: Option<Duration>,
}

impl Trace {
    /// Reads one.
    ///
    /// # Errors
    /// What is wrong, with its line.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut trace = Trace { changes: vec![], length: None };
        for (line, number) in text.lines().zip(1..) {
            let line = line.split('#').next().unwrap_or_default();
            let words: Vec<&str> =
                line.split(|c: char| c == ',' || c.is_whitespace()).filter(|word| !word.is_empty()).collect();
            if !words.is_empty() {
                trace.add(&words).map_err(|problem| format!("line {number}: {problem}"))?;
            }
        }
        if trace.changes.is_empty() { Err("there is no change in it".into()) } else { Ok(trace) }
    }

    fn add(&mut self, words: &[&str]) -> Result<(), String> {
        if self.length.is_some() {
            return Err("there is nothing after `repeat`".into());
        }
        let Lapse(at) = words[0].parse()?;
        match self.changes.last() {
            None if !at.is_zero() => return Err("the first change is at 0s".into()),
            Some(last) if at <= last.at => return Err(format!("{} is not after {}", Lapse(at), Lapse(last.at))),
            _ => {}
        }
        match words[1..] {
            ["repeat"] if !self.changes.is_empty() => self.length = Some(at),
            [delay, rate] => {
                let delay = if delay == "-" { None } else { Some(delay.parse::<Lapse>()?.0) };
                let rate = if rate == "-" { None } else { Some(rate.parse()?) };
                self.changes.push(Change { at, delay, rate });
            }
            _ => return Err("expected `TIME DELAY RATE`, with `-` for what stays, or a last line `TIME repeat`".into()),
        }
        if self.changes.len() > MOST_CHANGES {
            return Err(format!("there may be {MOST_CHANGES} changes"));
        }
        Ok(())
    }

    /// Whether it ever says what the rate is.
    pub(crate) fn has_rate(&self) -> bool {
        self.changes.iter().any(|change| change.rate.is_some())
    }

    /// The longest delay in it.
    pub(crate) fn longest_delay(&self) -> Duration {
        self.changes.iter().filter_map(|change| change.delay).max().unwrap_or_default()
    }

    /// The shortest, where it is `usual` without the trace.
    pub(crate) fn shortest_delay(&self, usual: Duration) -> Duration {
        self.changes.iter().map(|change| change.delay.unwrap_or(usual)).min().unwrap_or(usual)
    }

    /// Delay and rate at `now`, of what began at `start`.
    pub(crate) fn at(&self, start: Time, now: Time) -> (Option<Duration>, Option<Rate>) {
        let mut since = now.since(start);
        if let Some(length) = self.length {
            let nanos = since.as_nanos() % length.as_nanos();
            since = Duration::from_nanos(u64::try_from(nanos).unwrap_or_default());
        }
        let next = self.changes.partition_point(|change| change.at <= since);
        let Change { delay, rate, .. } = self.changes[next.max(1) - 1];
        (delay, rate)
    }

    /// True. Panics if it does not read the same when it is written again, or if what holds at a change is not that change.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn is_read_again(&self) -> bool {
        let mut written = String::new();
        for Change { at, delay, rate } in &self.changes {
            let start = Time::from_nanos(7);
            // Farther than a clock goes no change is met.
            if at.as_nanos() < u128::from(u64::MAX - 7) {
                assert_eq!(self.at(start, start + *at), (*delay, *rate));
            }
            let delay = delay.map_or_else(|| "-".into(), |delay| Lapse(delay).to_string());
            let rate = rate.map_or_else(|| "-".into(), |rate| rate.to_string());
            written += &format!("{} {delay} {rate}\n", Lapse(*at));
        }
        if let Some(length) = self.length {
            written += &format!("{} repeat\n", Lapse(length));
        }
        assert_eq!(Trace::parse(&written).as_ref(), Ok(self));
        let _ = self.at(Time::ZERO, Time::from_nanos(u64::MAX));
        assert!(self.shortest_delay(Duration::ZERO) <= self.longest_delay());
        true
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;

    #[test]
    fn what_holds_is_the_last_change() {
        let trace = Trace::parse("# a day\n0s 10ms 20mbit\n30s, 80ms, -\n45s - 1mbit\n60s repeat\n").unwrap();
        let start = Time::from_nanos(5);
        let at = |seconds| trace.at(start, start + Duration::from_secs(seconds));
        let rate = |text: &str| Some(text.parse::<Rate>().unwrap());
        let ten = (Some(Duration::from_millis(10)), rate("20mbit"));
        assert_eq!([at(0), at(29), at(60), at(89)], [ten; 4]);
        assert_eq!(at(30), (Some(Duration::from_millis(80)), None));
        assert_eq!(at(59 + 60 * 7), (None, rate("1mbit")));
        let stays = Trace::parse("0s 10ms 20mbit\n30s 1ms 1mbit").unwrap();
        assert_eq!(stays.at(start, start + Duration::from_secs(9999)).0, Some(Duration::from_millis(1)));
    }

    #[test]
    fn a_mistake_names_its_line() {
        for (text, said) in [
            ("", "there is no change in it"),
            ("1s 1ms -", "line 1: the first change is at 0s"),
            ("0s 1ms -\n\n0s 2ms -", "line 3: 0s is not after 0s"),
            ("0s 1ms", "line 1: expected `TIME DELAY RATE`"),
            ("0s repeat", "line 1: expected `TIME DELAY RATE`"),
            ("0s 1ms 3", "line 1: \"3\" is not a rate"),
            ("0s 1ms -\n1s repeat\n2s 1ms -", "line 3: there is nothing after"),
        ] {
            let problem = Trace::parse(text).unwrap_err();
            assert!(problem.starts_with(said), "{problem}");
        }
    }
}
