//! The words of a lock, in memory of its home.
//!
//! ```text
//!      0            8            16          24         32
//!      +------------+------------+-----------+----------+
//!      | lock word  | token word | gate word |  unused  |
//!      +------------+------------+-----------+----------+
//!       63        32 31        0
//!      +------------+-----------+
//!      |    tail    |   count   |   lock word: the last writer in the queue, and how many readers came after it
//!      |    view    |   count   |   token word: the last writer's token
//!      +------------+-----------+
//! ```
//!
//! The lock word is changed by atomics alone. The exclusive holder writes the token word, and the home writes the gate
//! word. So no word that atomics change is ever written plainly (rule F3), even where the words of an evicted lock
//! become another lock's. The home frees such a lock word by a swap and stores the token word when every member has
//! said that it remembers the words no more and has nothing in flight to them (rule L4). The gate is open: the lock was
//! evicted at rest.

use std::fmt;

use serde::{Deserialize, Serialize};
use verbena_terms::{Rank, ViewNumber};

/// Bytes that the words of one lock take.
pub const LOCK_BYTES: u64 = 32;
/// Where the lock word begins, in bytes from the lock's first.
pub const LOCK_WORD_AT: u64 = 0;
/// Where the token word begins. The gate word follows it: one read brings both.
pub const TOKEN_WORD_AT: u64 = 8;
/// Where the gate word begins. 0: a node that wants the lock enters by itself; 1: it asks the home (rule L3).
pub const GATE_WORD_AT: u64 = 16;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Mode {
    /// With others that ask for the same: a reader.
    Shared,
    /// Alone: a writer.
    Exclusive,
}

/// The word that everything turns on (dissertation, 4.2): `[tail : 32 | count : 32]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LockWord {
    /// The writer that entered the queue last and has not left as the last one; [`Rank::NOBODY`] if the queue has no
    /// writer.
    pub tail: Rank,
    /// The readers that entered after the tail. Without a tail: after the last settlement.
    pub count: u32,
}

// No node has either rank, and they differ.
const _: () = assert!(LockWord::NO_LOCK.0 > Rank::LAST.0 && crate::RecoveryHolder::RANK.0 > LockWord::NO_LOCK.0);

impl LockWord {
    /// The lock has no holder and no waiter.
    pub const FREE: LockWord = LockWord { tail: Rank::NOBODY, count: 0 };
    /// What a reader adds.
    pub const READER: u64 = 1;
    /// The tail of a word whose lock was evicted: no node has this rank. A node that finds it asks the home again (rule
    /// L4). A reader that adds itself to the count does so once, because it forgets the word then: the count does not
    /// reach the tail.
    pub const NO_LOCK: Rank = Rank(u32::MAX - 1);
    /// What the home puts in place of [`FREE`](Self::FREE) when it evicts a lock.
    pub const EVICTED: LockWord = LockWord::writer(LockWord::NO_LOCK);

    /// The word with this writer at the tail and no reader behind it.
    pub const fn writer(tail: Rank) -> Self {
        LockWord { tail, count: 0 }
    }

    /// The word with no writer and `count` readers that are not settled.
    pub const fn readers(count: u32) -> Self {
        LockWord { tail: Rank::NOBODY, count }
    }

    /// Whether the lock was evicted, however many readers have added themselves to the count since.
    pub const fn is_evicted(self) -> bool {
        self.tail.0 == LockWord::NO_LOCK.0
    }

    /// As it stands in memory.
    pub const fn to_bits(self) -> u64 {
        (self.tail.0 as u64) << 32 | self.count as u64
    }

    /// The inverse of [`to_bits`](Self::to_bits).
    pub const fn from_bits(bits: u64) -> Self {
        LockWord { tail: Rank((bits >> 32) as u32), count: bits as u32 }
    }
}

/// A fencing token, `[view : 32 | count : 32]` (rule L2). A writer's is larger than those of all grants before it, a reader's than those of all writers before it, across
/// views, homes and restarts; readers that hold a lock together have the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Token(u64);

impl Token {
    /// What stands in the token word before the first writer of a view.
    pub const fn first_of(view: ViewNumber) -> Self {
        Token((view.0 as u64) << 32)
    }

    /// The token of a grant in this mode, where `self` is the last writer's: two more for a writer, one more for a reader. `None` when the
    /// view's 2^32 are used up: the next view has more.
    pub const fn next(self, mode: Mode) -> Option<Token> {
        let step = match mode {
            Mode::Shared => 1,
            Mode::Exclusive => 2,
        };
        match (self.0 as u32).checked_add(step) {
            Some(_) => Some(Token(self.0 + step as u64)),
            None => None,
        }
    }

    /// As it stands in memory, and as stores compare it.
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// The inverse of [`to_bits`](Self::to_bits).
    pub const fn from_bits(bits: u64) -> Self {
        Token(bits)
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_word_survives_its_bits() {
        let word = LockWord { tail: Rank(7), count: u32::MAX };
        assert_eq!(LockWord::from_bits(word.to_bits()), word);
        assert_eq!(LockWord::writer(Rank(7)).to_bits() + LockWord::READER, 0x0000_0007_0000_0001);
    }

    #[test]
    fn an_evicted_word_stays_one_whoever_reads() {
        let read = LockWord::from_bits(LockWord::EVICTED.to_bits() + 1000 * LockWord::READER);
        assert!(read.is_evicted() && !LockWord::FREE.is_evicted() && !crate::RecoveryHolder::WORD.is_evicted());
    }

    #[test]
    fn tokens_grow_with_writers_and_views() {
        let first = Token::first_of(ViewNumber(3));
        let reader = first.next(Mode::Shared).unwrap();
        let writer = first.next(Mode::Exclusive).unwrap();
        assert!(first < reader && reader < writer && writer < Token::first_of(ViewNumber(4)));
    }

    #[test]
    fn tokens_of_a_view_end_rather_than_reach_into_the_next() {
        let last = Token::from_bits(Token::first_of(ViewNumber(4)).to_bits() - 1);
        assert_eq!(last.next(Mode::Shared), None);
        assert_eq!(Token::from_bits(last.to_bits() - 1).next(Mode::Exclusive), None);
    }
}
