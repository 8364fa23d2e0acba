//! Which bank a user means.

use std::fmt::{self, Display};
use std::str::FromStr;

use verbena_terms::Size;

use crate::{Daemons, ListError};

/// A bank, as a user writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `none`: nothing is cached.
    None,
    /// `memory` or `memory:SIZE`: segments of the local helper, of so many bytes together.
    Memory(u64),
    /// `memcached://HOST:PORT,...`.
    Memcached(Daemons),
}

impl Kind {
    /// Bytes of segments where no number is written: what a helper offers by default, with a third of it left for others.
    pub const MEMORY_BYTES: u64 = 48 << 20;
}

impl FromStr for Kind {
    type Err = ListError;

    fn from_str(text: &str) -> Result<Self, ListError> {
        let wrong = || ListError::Size { list: text.to_owned() };
        match text.trim() {
            "none" => Ok(Kind::None),
            "memory" => Ok(Kind::Memory(Self::MEMORY_BYTES)),
            memory if memory.starts_with("memory:") => {
                let size: Size = memory["memory:".len()..].parse().map_err(|_| wrong())?;
                if size.0 == 0 { Err(wrong()) } else { Ok(Kind::Memory(size.0)) }
            }
            list => Daemons::parse(list).map(Kind::Memcached),
        }
    }
}

impl Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::None => f.write_str("none"),
            Kind::Memory(bytes) => write!(f, "memory:{}", Size(*bytes)),
            Kind::Memcached(daemons) => daemons.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bank_reads_as_it_is_written() {
        for text in ["none", "memory:64MiB", "memcached://a:1,b:1=3"] {
            assert_eq!(text.parse::<Kind>().unwrap().to_string(), text);
        }
        assert_eq!("memory".parse::<Kind>(), Ok(Kind::Memory(48 << 20)));
        for text in ["memory:", "memory:0B", "memory:x", "memory://h:1"] {
            assert_eq!(text.parse::<Kind>(), Err(ListError::Size { list: text.to_owned() }), "{text}");
        }
        assert!(matches!("redis://h:1".parse::<Kind>(), Err(ListError::Kind { .. })));
    }
}
