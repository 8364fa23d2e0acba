//! What stands in the ring.
//!
//! ```text
//!  word 0        position of this word
//!  word 1        [ words of the entry : 32 | 0 : 16 | reason : 8 | kind : 8 ]
//!  word 2        the tag of the request whose statement it is; 0: it may be any request's
//!  word 3        the moment at which its transaction began; 0: it is in none
//!  word 4...     groups, only of kind 0:  names that follow | the table | the table's `any` | name ...
//!  last word     a hash of all words before it
//!
//!  kind    0: these names were read    1: more than can be named was read    2: what must not be stored was answered    3: it wrote
//! ```
//!
//! The position stands at the beginning and, in the hash, at the end: an entry that was changed while it was read, at whichever end or in its middle, is torn, and is found.

use crate::rules::Rules;

/// The most names that one entry has.
pub const MAX_NAMES: usize = 256;
/// Words before the groups, and the hash.
const FIXED: usize = 5;
/// The longest entry: each name in a group of its own.
pub(crate) const LONGEST: usize = FIXED + 4 * MAX_NAMES;

/// Names of one table, as hashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The table, which each write touches of which no row is known.
    pub table: u64,
    /// What each write of the table touches: with the table it stands for all of it.
    pub any: u64,
    /// What was read of it.
    pub names: Vec<u64>,
}

/// What a statement did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// It read what these names stand for.
    Names(Vec<Group>),
    /// It read more than can be named, for this reason.
    Everything(u8),
    /// It answered what must not be stored, for this reason.
    Unstorable(u8),
    /// It wrote.
    Wrote,
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The request whose statement it is; none where it may be any request's.
    pub tag: Option<u64>,
    /// When its transaction began, if it is in one.
    pub since: Option<u64>,
    /// What it did.
    pub seen: Seen,
}

impl Entry {
    /// Its words at a position.
    pub fn words(&self, position: u64) -> Vec<u64> {
        let (kind, reason) = match self.seen {
            Seen::Names(_) => (0, 0),
            Seen::Everything(reason) => (1, reason),
            Seen::Unstorable(reason) => (2, reason),
            Seen::Wrote => (3, 0),
        };
        let mut words = vec![position, 0, self.tag.unwrap_or(0), self.since.unwrap_or(0)];
        if let Seen::Names(groups) = &self.seen {
            for Group { table, any, names } in groups {
                words.extend([names.len() as u64, *table, *any]);
                words.extend(names);
            }
        }
        words[1] = (words.len() as u64 + 1) << 32 | u64::from(reason) << 8 | kind;
        words.push(hash(&words));
        words
    }

    /// The entry at the beginning of these words, which were read from `position` on, and how many words it has. `None`: it is torn.
    pub fn parse(words: &[u64], position: u64) -> Option<(Entry, usize)> {
        Entry::parse_with(Rules::default(), words, position)
    }

    pub(crate) fn parse_with(rules: Rules, words: &[u64], position: u64) -> Option<(Entry, usize)> {
        let (found, head) = (*words.first()?, *words.get(1)?);
        let length = usize::try_from(head >> 32).ok()?;
        if (found != position && rules.position) || !(FIXED..=LONGEST).contains(&length) {
            return None;
        }
        let (last, before) = words.get(..length)?.split_last()?;
        if *last != hash(before) && rules.hash {
            return None;
        }
        let is_there = |word: u64| (word != 0).then_some(word);
        let reason = (head >> 8) as u8;
        let seen = match head as u8 {
            0 => Seen::Names(groups(before.get(4..)?)?),
            1 => Seen::Everything(reason),
            2 => Seen::Unstorable(reason),
            3 => Seen::Wrote,
            _ => return None,
        };
        Some((Entry { tag: is_there(before[2]), since: is_there(before[3]), seen }, length))
    }
}

fn groups(mut words: &[u64]) -> Option<Vec<Group>> {
    let mut groups = Vec::new();
    while let [count, table, any, rest @ ..] = words {
        let count = usize::try_from(*count).ok()?;
        groups.push(Group { table: *table, any: *any, names: rest.get(..count)?.to_vec() });
        words = &rest[count..];
    }
    words.is_empty().then_some(groups)
}

/// Not secret: it finds words of two entries, not what an adversary writes.
fn hash(words: &[u64]) -> u64 {
    words.iter().fold(0x9E37_79B9_7F4A_7C15, |hash: u64, word| {
        (hash ^ word).wrapping_mul(0xD6E8_FEB8_6659_FD93).rotate_left(29)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry {
        let groups = vec![Group { table: 1, any: 2, names: vec![1, 5, 6] }, Group { table: 3, any: 4, names: vec![] }];
        Entry { tag: Some(9), since: Some(7), seen: Seen::Names(groups) }
    }

    #[test]
    fn what_was_written_is_read() {
        for seen in [Seen::Everything(3), Seen::Unstorable(255), Seen::Wrote, Seen::Names(vec![])] {
            let entry = Entry { tag: None, since: None, seen };
            assert_eq!(Entry::parse(&entry.words(77), 77), Some((entry, FIXED)));
        }
        let words = entry().words(5);
        let more = [&words[..], &[1, 2, 3]].concat();
        assert_eq!(Entry::parse(&more, 5), Some((entry(), words.len())));
    }

    #[test]
    fn a_torn_entry_is_found_wherever_it_is_torn() {
        let (before, after) = (entry().words(5), entry().words(5 + 64));
        assert_eq!(before.len(), after.len());
        for cut in 1..before.len() {
            for (head, tail) in [(&before, &after), (&after, &before)] {
                let torn = [&head[..cut], &tail[cut..]].concat();
                assert_eq!(Entry::parse(&torn, torn[0]), None, "torn at word {cut}");
            }
            assert_eq!(Entry::parse(&before[..cut], 5), None, "cut short");
        }
        assert_eq!(Entry::parse(&before, 6), None);
        assert_eq!(Entry::parse(&[], 5), None);
    }
}
