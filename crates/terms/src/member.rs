//! Who is meant: ranks, incarnations, views (PROTOCOLS.md C1, C3).

use std::fmt;

use serde::{Deserialize, Serialize};

/// A node's number in the cluster. Under `static` membership it is the position in the configuration file, counted
/// from 1; a provider that gives every start a new rank never uses one twice. 0 is nobody.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rank(pub u32);

impl Rank {
    /// No node has this rank.
    pub const NOBODY: Rank = Rank(0);
    /// The largest that a node may have. Those above it stand in words of locks for who is no node.
    pub const LAST: Rank = Rank(u32::MAX - 2);
}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// One life of one node: the unit of membership (rule C1). A node that starts or joins again is another incarnation,
/// with other regions, and nothing addressed to the earlier one reaches it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Incarnation {
    /// Which node.
    pub rank: Rank,
    /// Which of its lives: durable, and larger at every start.
    pub start: u32,
}

impl Incarnation {
    /// Incarnation `start` of node `rank`.
    pub const fn new(rank: u32, start: u32) -> Self {
        Incarnation { rank: Rank(rank), start }
    }

    /// As one word, `[rank : 32 | start : 32]`, for tables and frames.
    pub const fn to_word(self) -> u64 {
        (self.rank.0 as u64) << 32 | self.start as u64
    }

    /// The inverse of [`to_word`](Self::to_word).
    pub const fn from_word(word: u64) -> Self {
        Incarnation { rank: Rank((word >> 32) as u32), start: word as u32 }
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.rank.0, self.start)
    }
}

/// The number of a membership view (rule C3). Views are durable and only grow; 0 is before the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ViewNumber(pub u32);

impl ViewNumber {
    /// The view after this one, or `None` when 2^32 views have been used up.
    pub const fn next(self) -> Option<ViewNumber> {
        match self.0.checked_add(1) {
            Some(number) => Some(ViewNumber(number)),
            None => None,
        }
    }
}

impl fmt::Display for ViewNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_incarnation_survives_its_word() {
        let incarnation = Incarnation::new(7, u32::MAX);
        assert_eq!(Incarnation::from_word(incarnation.to_word()), incarnation);
        assert_eq!(incarnation.to_word(), 0x0000_0007_ffff_ffff);
    }

    #[test]
    fn views_end_rather_than_wrap() {
        assert_eq!(ViewNumber(1).next(), Some(ViewNumber(2)));
        assert_eq!(ViewNumber(u32::MAX).next(), None);
    }
}
