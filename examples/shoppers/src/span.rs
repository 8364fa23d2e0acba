//! Numbers that only grow, and the spans of commits in which a row stood still.

use std::collections::VecDeque;
use std::time::Duration;

use crate::checker::Moment;

/// How far back things are remembered: longer than any request may take, so that what a request met is still known at its end.
pub(crate) const MEMORY: Duration = Duration::from_secs(60);
/// Spans kept of a row at most, and steps of a floor. The oldest go first: what they would have shown is then not seen.
const KEPT: usize = 16 << 10;

/// The largest number known at each moment.
#[derive(Debug, Default)]
pub(crate) struct Floor(VecDeque<(Moment, i64)>);

impl Floor {
    /// From this moment on it is at least so much. Moments come in order.
    pub fn raise(&mut self, moment: Moment, number: i64) {
        if self.0.back().is_none_or(|&(_, highest)| highest < number) {
            self.0.push_back((moment, number));
        }
        while self.0.len() > KEPT || self.0.get(1).is_some_and(|&(next, _)| next.is_longer_ago_than(MEMORY, moment)) {
            self.0.pop_front();
        }
    }

    /// What it was before this moment, and since when.
    pub fn before(&self, moment: Moment) -> Option<(Moment, i64)> {
        self.0.iter().rev().find(|&&(since, _)| since < moment).copied()
    }
}

/// A row that was changed by one commit and by none up to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub changed: i64,
    pub until: i64,
    learnt: Moment,
}

/// What is known of the commits that touched a row.
#[derive(Debug, Default)]
pub(crate) struct Spans(VecDeque<Span>);

/// This span says that nothing touched the row while another says that something did.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Contradicts(pub Span);

impl Spans {
    /// Learns that commit `changed` touched the row and none after it, up to `until`.
    pub fn learn(&mut self, changed: i64, until: i64, now: Moment) -> Result<(), Contradicts> {
        let at = self.0.partition_point(|span| span.changed < changed);
        if let Some(before) = at.checked_sub(1).map(|before| self.0[before])
            && before.until >= changed
        {
            return Err(Contradicts(before));
        }
        let known = self.0.get(at).is_some_and(|span| span.changed == changed);
        let after = self.0.get(at + usize::from(known)).copied();
        if let Some(after) = after.filter(|after| after.changed <= until) {
            return Err(Contradicts(after));
        }
        if known {
            self.0[at].until = self.0[at].until.max(until);
        } else {
            self.0.insert(at, Span { changed, until, learnt: now });
        }
        while self.0.len() > KEPT || self.0.get(1).is_some_and(|next| next.learnt.is_longer_ago_than(MEMORY, now)) {
            self.0.pop_front();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::after(Duration::from_secs(seconds))
    }

    #[test]
    fn a_floor_is_what_was_known_before() {
        let mut floor = Floor::default();
        floor.raise(at(1), 5);
        floor.raise(at(2), 4);
        floor.raise(at(3), 9);
        let before = |seconds| floor.before(at(seconds)).map(|(_, number)| number);
        assert_eq!([before(1), before(2), before(3), before(4)], [None, Some(5), Some(5), Some(9)]);
    }

    #[test]
    fn spans_that_overlap_contradict_each_other() {
        let mut spans = Spans::default();
        spans.learn(10, 14, at(1)).unwrap();
        spans.learn(20, 20, at(1)).unwrap();
        spans.learn(10, 19, at(1)).unwrap();
        // Said to have stood still over the commit 20.
        assert_eq!(spans.learn(10, 20, at(1)).unwrap_err().0.changed, 20);
        assert_eq!(spans.learn(9, 10, at(1)).unwrap_err().0.changed, 10);
        // Said to have changed where another saw it stand still.
        assert_eq!(spans.learn(15, 15, at(1)).unwrap_err().0.changed, 10);
        spans.learn(25, 30, at(1)).unwrap();
        assert_eq!(spans.learn(21, 25, at(1)).unwrap_err().0.changed, 25);
        spans.learn(21, 24, at(1)).unwrap();
    }

    #[test]
    fn memory_is_bounded() {
        let (mut floor, mut spans) = (Floor::default(), Spans::default());
        for second in 0..1000 {
            let number = second as i64;
            floor.raise(at(second), number);
            spans.learn(number, number, at(second)).unwrap();
        }
        assert!((60..=62).contains(&floor.0.len()) && (60..=62).contains(&spans.0.len()));
        for number in 1000..100_000 {
            floor.raise(at(1000), number);
            spans.learn(number, number, at(1000)).unwrap();
        }
        assert_eq!((floor.0.len(), spans.0.len()), (KEPT, KEPT));
    }
}
