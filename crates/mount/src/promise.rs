//! What a mount promises of its reads.

use std::fmt::{self, Display};
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;

/// How new what a program reads is. See docs/concepts/bank.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Promise {
    /// An open sees all that was closed before it, by whatever road it was written, as far as the file system below shows it.
    #[default]
    Open,
    /// Files never change once they are closed.
    Sealed,
    /// Names, attributes and bytes are at most this old.
    Age(Duration),
}

/// Why a promise is not given.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PromiseError {
    /// It needs writers that announce their writes.
    #[error(
        "a mount cannot promise `strong`: programs that write below it, on this machine or another, announce nothing, so a read cannot know that it is new; use `open`"
    )]
    Strong,
    /// It is none.
    #[error("{text:?} is no promise: use open, sealed or age=TIME, as in age=10s")]
    Unknown {
        /// What was written.
        text: String,
    },
    /// Its time is none.
    #[error(
        "{text:?} is no time for a promise: write a whole number with ms, s, m or h, from 1ms to 24h, as in age=10s"
    )]
    Age {
        /// What was written.
        text: String,
    },
}

impl Promise {
    /// How long the kernel may believe that a name is missing. New files may come into a sealed tree, and programs wait for them.
    pub(crate) fn missed(self) -> Duration {
        match self {
            Promise::Open | Promise::Sealed => Duration::ZERO,
            Promise::Age(age) => age,
        }
    }

    /// How long the kernel may believe names and attributes.
    pub(crate) fn believed(self) -> Duration {
        match self {
            Promise::Open => Duration::ZERO,
            Promise::Sealed => Duration::from_secs(3600),
            Promise::Age(age) => age,
        }
    }
}

impl FromStr for Promise {
    type Err = PromiseError;

    fn from_str(text: &str) -> Result<Self, PromiseError> {
        match text {
            "open" => return Ok(Promise::Open),
            "sealed" => return Ok(Promise::Sealed),
            "strong" => return Err(PromiseError::Strong),
            _ => {}
        }
        let age = text.strip_prefix("age=").ok_or_else(|| PromiseError::Unknown { text: text.to_owned() })?;
        let wrong = || PromiseError::Age { text: age.to_owned() };
        let digits = age.find(|letter: char| !letter.is_ascii_digit()).ok_or_else(wrong)?;
        let number: u64 = age[..digits].parse().map_err(|_| wrong())?;
        let unit_ms = match &age[digits..] {
            "ms" => 1,
            "s" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return Err(wrong()),
        };
        let ms = number.checked_mul(unit_ms).filter(|ms| (1..=86_400_000).contains(ms)).ok_or_else(wrong)?;
        Ok(Promise::Age(Duration::from_millis(ms)))
    }
}

impl Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Promise::Open => f.write_str("open"),
            Promise::Sealed => f.write_str("sealed"),
            Promise::Age(age) => write!(f, "age={}ms", age.as_millis()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_reads_as_it_is_written_and_no_other_is_given() {
        assert_eq!("open".parse(), Ok(Promise::Open));
        assert_eq!("sealed".parse(), Ok(Promise::Sealed));
        assert_eq!("age=90s".parse(), Ok(Promise::Age(Duration::from_secs(90))));
        assert_eq!("age=90000ms".parse(), "age=90s".parse::<Promise>());
        assert_eq!("strong".parse::<Promise>(), Err(PromiseError::Strong));
        for text in ["", "Open", "age", "close"] {
            assert_eq!(text.parse::<Promise>(), Err(PromiseError::Unknown { text: text.to_owned() }));
        }
        for age in ["", "0s", "s", "5", "5 s", "-1s", "25h", "99999999999999999999s"] {
            let error = PromiseError::Age { text: age.to_owned() };
            assert_eq!(format!("age={age}").parse::<Promise>(), Err(error));
        }
    }
}
