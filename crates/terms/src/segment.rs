//! Which segment of memory that nodes share is meant.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{Incarnation, Rank};

/// Which segment: never used for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SegmentId {
    /// Whose memory it is in: it lives as long as this incarnation.
    pub home: Incarnation,
    /// From 1, in the order in which they were made there.
    pub number: u64,
}

impl fmt::Display for SegmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.home, self.number)
    }
}

/// What identifies no segment.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0:?} identifies no segment: it is RANK.START/NUMBER, as in 1.7/3")]
pub struct SegmentIdError(String);

impl FromStr for SegmentId {
    type Err = SegmentIdError;

    fn from_str(text: &str) -> Result<Self, SegmentIdError> {
        let parse = || {
            let (home, number) = text.split_once('/')?;
            let (rank, start) = home.split_once('.')?;
            let home = Incarnation { rank: Rank(rank.parse().ok()?), start: start.parse().ok()? };
            Some(SegmentId { home, number: number.parse().ok()? })
        };
        parse().filter(|id| id.to_string() == text).ok_or_else(|| SegmentIdError(text.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_reads_as_it_is_written() {
        let id = SegmentId { home: Incarnation::new(3, 12), number: 7 };
        assert_eq!(id.to_string().parse(), Ok(id));
        for text in ["", "3.12", "3/7", "3.12/", "3.12/x", "03.12/7", "3.12/7 ", "-3.12/7", "3.12/7/1"] {
            assert!(text.parse::<SegmentId>().is_err(), "{text}");
        }
    }
}
