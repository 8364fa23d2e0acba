//! What clients saw, and what of it a register that may forget cannot have answered.

use std::collections::HashMap;
use std::time::Instant;

/// What became of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// This value, which no other set has. Acknowledged, or not known to be set.
    Set(u64),
    /// The key has no value.
    Deleted,
    /// A read gave this value.
    Hit(u64),
    /// A read gave none, which says nothing.
    Miss,
}

#[derive(Clone, Copy, Debug)]
struct Operation {
    key: u64,
    asked: Instant,
    /// `None`: it may have an effect at any time after it was asked for.
    answered: Option<Instant>,
    outcome: Outcome,
}

/// All operations.
#[derive(Debug, Default)]
pub struct History(Vec<Operation>);

impl History {
    pub fn record(&mut self, key: u64, asked: Instant, answered: Option<Instant>, outcome: Outcome) {
        self.0.push(Operation { key, asked, answered, outcome });
    }

    /// Reads, and those of them that found a value.
    pub fn reads(&self) -> usize {
        self.0.iter().filter(|one| matches!(one.outcome, Outcome::Hit(_) | Outcome::Miss)).count()
    }

    pub fn hits(&self) -> usize {
        self.0.iter().filter(|one| matches!(one.outcome, Outcome::Hit(_))).count()
    }

    pub fn unknown(&self) -> usize {
        self.0.iter().filter(|one| one.answered.is_none()).count()
    }

    /// Reads of a value that was replaced before they began: by an acknowledged set or deletion that began when the value's own set had ended, or as
    /// a read shows that had ended by then. And reads of values that were not yet asked to be set, or of another key.
    pub fn violations(&self) -> Vec<String> {
        let mut of_keys: HashMap<u64, Vec<&Operation>> = HashMap::new();
        for one in &self.0 {
            of_keys.entry(one.key).or_default().push(one);
        }
        let mut found = vec![];
        of_keys.values().for_each(|of_key| check(of_key, &mut found));
        found
    }
}

/// For each read: the latest beginning among the changes that were certainly made before it began. A value whose set had ended before that
/// beginning is old.
fn check(of_key: &[&Operation], found: &mut Vec<String>) {
    let sets: HashMap<u64, &Operation> = of_key
        .iter()
        .filter_map(|one| if let Outcome::Set(value) = one.outcome { Some((value, *one)) } else { None })
        .collect();
    let set_of = |value: u64| sets.get(&value).copied();
    // When what was certain by then had begun.
    let mut certain: Vec<(Instant, Instant)> = vec![];
    for one in of_key {
        match (one.outcome, one.answered) {
            (Outcome::Set(_) | Outcome::Deleted, Some(answered)) => certain.push((answered, one.asked)),
            (Outcome::Hit(value), Some(answered)) => {
                if let Some(set) = set_of(value) {
                    certain.push((answered, set.asked));
                }
            }
            _ => {}
        }
    }
    certain.sort();
    let mut latest: Vec<(Instant, Instant)> = vec![];
    for (by, begun) in certain {
        let before = latest.last().map_or(begun, |(_, latest)| *latest);
        latest.push((by, begun.max(before)));
    }
    for read in of_key {
        let Outcome::Hit(value) = read.outcome else { continue };
        let Some(set) = set_of(value) else {
            found.push(format!("{value} was never set on this key: {read:?}"));
            continue;
        };
        if read.answered.is_some_and(|answered| answered < set.asked) {
            found.push(format!("{read:?} before {set:?}"));
        }
        let before = latest.partition_point(|(by, _)| *by < read.asked);
        let begun = before.checked_sub(1).map(|last| latest[last].1);
        if let (Some(ended), Some(begun)) = (set.answered, begun)
            && ended < begun
        {
            found.push(format!("{read:?} of {set:?}, {:?} after what replaced it began", read.asked - begun));
        }
    }
}
