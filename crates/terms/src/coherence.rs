//! What a segment promises to those who read and write it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The coherence of a segment, chosen when it is allocated (DDSS, section 2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Coherence {
    /// Nothing: values are written in place, and a reader may see half of one.
    Null,
    /// Who reads sees one put, whole.
    Read,
    /// Besides, writers come one at a time: a put of a part changes the value that it replaces, and no other.
    Write,
    /// Linearizable: each operation happens at one moment between its beginning and its end (rule M4).
    Strict,
    /// A put names the version that it replaces, and is refused when it is no longer that.
    Version,
    /// Who reads may be served by its node's copy, at most this many versions behind.
    Delta(u32),
    /// Who reads may be served by its node's copy, which was the value at most so many microseconds ago.
    Temporal(u64),
}

impl Coherence {
    /// The oldest that a node's copy may be, where age decides.
    pub const fn patience(self) -> Option<Duration> {
        match self {
            Coherence::Temporal(micros) => Some(Duration::from_micros(micros)),
            _ => None,
        }
    }

    /// Whether nodes keep copies.
    pub const fn has_copies(self) -> bool {
        matches!(self, Coherence::Delta(_) | Coherence::Temporal(_))
    }
}

impl fmt::Display for Coherence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Coherence::Null => f.write_str("null"),
            Coherence::Read => f.write_str("read"),
            Coherence::Write => f.write_str("write"),
            Coherence::Strict => f.write_str("strict"),
            Coherence::Version => f.write_str("version"),
            Coherence::Delta(versions) => write!(f, "delta({versions})"),
            Coherence::Temporal(micros) => write!(f, "temporal({micros}us)"),
        }
    }
}

/// What is no coherence.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{0:?} is no coherence: null, read, write, strict, version, delta(VERSIONS) or temporal(TIME), TIME as 500us, 20ms or 1s"
)]
pub struct CoherenceError(String);

impl FromStr for Coherence {
    type Err = CoherenceError;

    fn from_str(text: &str) -> Result<Self, CoherenceError> {
        let error = || CoherenceError(text.to_owned());
        let (word, argument) = match text.split_once('(') {
            Some((word, rest)) => (word, Some(rest.strip_suffix(')').ok_or_else(error)?)),
            None => (text, None),
        };
        match (word, argument) {
            ("null", None) => Ok(Coherence::Null),
            ("read", None) => Ok(Coherence::Read),
            ("write", None) => Ok(Coherence::Write),
            ("strict", None) => Ok(Coherence::Strict),
            ("version", None) => Ok(Coherence::Version),
            ("delta", Some(versions)) => versions.parse().map(Coherence::Delta).map_err(|_| error()),
            ("temporal", Some(time)) => micros(time).map(Coherence::Temporal).ok_or_else(error),
            _ => Err(error()),
        }
    }
}

fn micros(text: &str) -> Option<u64> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let each = match unit {
        "us" => 1,
        "ms" => 1_000,
        "s" => 1_000_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(each)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_coherence_reads_as_it_is_written() {
        for text in ["null", "read", "write", "strict", "version", "delta(3)", "temporal(2500us)"] {
            assert_eq!(text.parse::<Coherence>().unwrap().to_string(), text);
        }
        assert_eq!("temporal(20ms)".parse(), Ok(Coherence::Temporal(20_000)));
        assert_eq!("temporal(1s)".parse(), Ok(Coherence::Temporal(1_000_000)));
    }

    #[test]
    fn what_is_none_is_refused() {
        let wrong =
            ["", "Strict", "strict(1)", "delta", "delta()", "delta(-1)", "delta(1", "temporal(5)", "temporal(1h)"];
        for text in wrong {
            assert!(text.parse::<Coherence>().unwrap_err().to_string().contains("is no coherence"), "{text}");
        }
        assert!("temporal(99999999999999999999s)".parse::<Coherence>().is_err());
        assert!("temporal(18446744073709551615s)".parse::<Coherence>().is_err());
    }
}
