//! Counts, and how they are shown.

use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram;
use hyper::Version;
use serde::Serialize;

use crate::checker::Violation;
use crate::connection::{Answer, Failure};

/// Requests that were not answered as they should be, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Errors {
    /// No connection.
    pub connect: u64,
    /// The connection broke off.
    pub cut: u64,
    /// No whole answer in time.
    pub timed_out: u64,
    /// An answer with a status of 500 or more.
    pub status: u64,
}

impl Errors {
    /// All of them.
    pub fn sum(&self) -> u64 {
        self.connect + self.cut + self.timed_out + self.status
    }
}

/// What became of writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Updates {
    /// Answered with a commit number.
    pub acknowledged: u64,
    /// Answered that they are not possible now.
    pub refused: u64,
    /// Never sent, for want of a connection.
    pub not_sent: u64,
    /// The answer was lost or an error: made or not.
    pub unknown: u64,
}

/// All that was counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Totals {
    /// How long it took, seconds.
    pub seconds: f64,
    /// Pages that were received whole and checked.
    pub answers: u64,
    /// Of these, from a cache.
    pub hits: u64,
    /// Answers whose page had changed within 50 ms before it was asked for.
    pub soon_after_update: u64,
    /// Of these, from a cache.
    pub hits_soon_after_update: u64,
    /// Hits of pages that go by lifetimes.
    pub hits_with_lifetime: u64,
    /// Answers that were put together of two parts.
    pub in_parts: u64,
    /// Answers that came by HTTP/2.
    pub over_http2: u64,
    /// Writes.
    pub updates: Updates,
    /// Requests that failed, reads and writes.
    pub errors: Errors,
    /// Answers older than an acknowledged write.
    pub stale: u64,
    /// Answers older than one received before.
    pub backwards: u64,
    /// Answers that are not one state of the database.
    pub mixed: u64,
    /// Answers that are no page of the shop.
    pub malformed: u64,
    /// Median time from sending to having received, of reads, microseconds.
    pub median_us: u64,
    /// The same, of which one in a hundred takes longer.
    pub p99_us: u64,
    /// The same for writes.
    pub update_median_us: u64,
    /// The same for writes.
    pub update_p99_us: u64,
}

impl Totals {
    /// Answers that must not be.
    pub fn violations(&self) -> u64 {
        self.stale + self.backwards + self.mixed + self.malformed
    }
}

/// One second.
#[derive(Clone, Debug, Default)]
pub struct Line {
    /// Since the start.
    pub at: Duration,
    /// Of this second: answers, hits, median and p99 in microseconds, acknowledged updates, errors.
    pub second: (u64, u64, u64, u64, u64, u64),
    /// Answers checked since the start, and those that must not be.
    pub checked: (u64, u64),
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (answers, hits, median, p99, updates, errors) = self.second;
        let ratio = if answers == 0 { 0.0 } else { hits as f64 * 100.0 / answers as f64 };
        let (checked, wrong) = self.checked;
        write!(
            f,
            "{:4} s  {answers:6} requests  {ratio:5.1}% hits  median {:6.2} ms  p99 {:7.2} ms  {updates:4} updates  {errors:4} errors  \
             stale answers ({checked} checked, {wrong})",
            self.at.as_secs(),
            median as f64 / 1000.0,
            p99 as f64 / 1000.0,
        )
    }
}

/// Counts as it goes.
pub(crate) struct Tally {
    pub totals: Totals,
    before: Totals,
    second: Histogram<u64>,
    reads: Histogram<u64>,
    writes: Histogram<u64>,
}

impl Tally {
    pub fn new() -> Self {
        let times = || Histogram::new_with_bounds(1, 600_000_000, 3).expect("invariant: these bounds are allowed");
        let (totals, before) = (Totals::default(), Totals::default());
        Tally { totals, before, second: times(), reads: times(), writes: times() }
    }

    pub fn answer(&mut self, answer: &Answer, soon: bool) {
        self.totals.answers += 1;
        self.totals.hits += u64::from(answer.hit);
        self.totals.soon_after_update += u64::from(soon);
        self.totals.hits_soon_after_update += u64::from(soon && answer.hit);
        self.totals.hits_with_lifetime += u64::from(answer.hit && answer.has_lifetime);
        self.totals.in_parts += u64::from(answer.is_in_parts);
        self.totals.over_http2 += u64::from(answer.version == Version::HTTP_2);
        let taken = answer.received.micros_since(answer.sent);
        self.second.saturating_record(taken);
        self.reads.saturating_record(taken);
    }

    pub fn acknowledged(&mut self, answer: &Answer) {
        self.totals.updates.acknowledged += 1;
        self.writes.saturating_record(answer.received.micros_since(answer.sent));
    }

    pub fn failure(&mut self, failure: Failure) {
        let errors = &mut self.totals.errors;
        match failure {
            Failure::Connect => errors.connect += 1,
            Failure::Cut => errors.cut += 1,
            Failure::TimedOut => errors.timed_out += 1,
        }
    }

    pub fn violation(&mut self, violation: &Violation) {
        match violation {
            Violation::Stale { .. } => self.totals.stale += 1,
            Violation::Backwards { .. } => self.totals.backwards += 1,
            Violation::Mixed { .. } => self.totals.mixed += 1,
            Violation::Malformed { .. } => self.totals.malformed += 1,
        }
    }

    /// The second that ends now.
    pub fn line(&mut self, at: Duration) -> Line {
        let (now, before) = (&self.totals, &self.before);
        let line = Line {
            at,
            second: (
                now.answers - before.answers,
                now.hits - before.hits,
                self.second.value_at_quantile(0.5),
                self.second.value_at_quantile(0.99),
                now.updates.acknowledged - before.updates.acknowledged,
                now.errors.sum() - before.errors.sum(),
            ),
            checked: (now.answers, now.violations()),
        };
        self.before = now.clone();
        self.second.reset();
        line
    }

    pub fn end(mut self, after: Duration) -> Totals {
        self.totals.seconds = after.as_secs_f64();
        self.totals.median_us = self.reads.value_at_quantile(0.5);
        self.totals.p99_us = self.reads.value_at_quantile(0.99);
        self.totals.update_median_us = self.writes.value_at_quantile(0.5);
        self.totals.update_p99_us = self.writes.value_at_quantile(0.99);
        self.totals
    }
}
