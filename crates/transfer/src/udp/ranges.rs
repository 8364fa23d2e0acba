//! Ranges of numbers that do not touch: packets that have come, and bytes that the other side has.

use std::collections::BTreeMap;

/// Half-open ranges, from their first number to behind their last one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    /// Adds a range. False if all of it was there.
    pub(crate) fn insert(&mut self, mut from: u64, mut to: u64) -> bool {
        if from >= to || self.covers(from, to) {
            return false;
        }
        while let Some((first, end)) = self.0.range(..=to).next_back().map(|(first, end)| (*first, *end)) {
            if end < from {
                break;
            }
            self.0.remove(&first);
            (from, to) = (from.min(first), to.max(end));
        }
        self.0.insert(from, to);
        true
    }

    /// Whether all of a range is there.
    pub(crate) fn covers(&self, from: u64, to: u64) -> bool {
        self.0.range(..=from).next_back().is_some_and(|(_, end)| *end >= to)
    }

    /// Where the range ends that has this number.
    pub(crate) fn end_at(&self, number: u64) -> Option<u64> {
        self.0.range(..=number).next_back().map(|(_, end)| *end).filter(|end| *end > number)
    }

    /// Drops what is below a number.
    pub(crate) fn forget_below(&mut self, number: u64) {
        while let Some((first, end)) = self.0.first_key_value().map(|(first, end)| (*first, *end)) {
            if first >= number {
                return;
            }
            self.0.remove(&first);
            if end > number {
                self.0.insert(number, end);
            }
        }
    }

    /// Drops the lowest ones until `most` are left: the number behind the last of them.
    pub(crate) fn keep(&mut self, most: usize) -> Option<u64> {
        let mut dropped = None;
        while self.0.len() > most {
            dropped = self.0.pop_first().map(|(_, end)| end);
        }
        dropped
    }

    /// The highest ones first.
    pub(crate) fn highest(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter().rev().map(|(first, end)| (*first, *end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_join_where_they_touch() {
        let mut ranges = Ranges::default();
        assert!(ranges.insert(5, 7) && ranges.insert(9, 10) && ranges.insert(1, 2));
        assert!(ranges.covers(5, 7) && !ranges.covers(5, 8) && !ranges.insert(6, 7) && !ranges.insert(3, 3));
        assert!(ranges.insert(6, 9));
        assert_eq!(ranges.highest().collect::<Vec<_>>(), [(5, 10), (1, 2)]);
        assert_eq!((ranges.end_at(5), ranges.end_at(10), ranges.end_at(0)), (Some(10), None, None));
        ranges.forget_below(6);
        assert_eq!(ranges.highest().collect::<Vec<_>>(), [(6, 10)]);
        assert!(ranges.insert(20, 30) && ranges.insert(0, 40));
        assert_eq!(ranges.highest().collect::<Vec<_>>(), [(0, 40)]);
        ranges.insert(50, 51);
        assert_eq!((ranges.keep(1), ranges.keep(1)), (Some(40), None));
    }
}
