//! What a block of bytes is: a magic and a version before everything that crosses a boundary (rule F6).
//!
//! ```text
//!  0        4         6         8
//!  +--------+---------+---------+
//!  | magic  | version |    0    |     little endian
//!  +--------+---------+---------+
//! ```

use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

/// Bytes that [`Format::header`] takes.
pub const HEADER_BYTES: usize = 8;

/// One layout: what it is, and which version of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// Four letters that stand first.
    pub magic: [u8; 4],
    /// Raised whenever the layout changes.
    pub version: u16,
}

/// Why a block was refused. Names both what was expected and what was found (rule F6).
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FormatError {
    /// Fewer bytes than a header has.
    #[error("{found} bytes where a header of {HEADER_BYTES} was expected")]
    Short {
        /// How many there were.
        found: usize,
    },
    /// It is something else.
    #[error("expected a block marked {expected:?}, found {found:?}")]
    Magic {
        /// The magic of the layout that was expected.
        expected: String,
        /// What stood there.
        found: String,
    },
    /// It is the right thing in another version.
    #[error("block {magic:?} has version {found}, this program speaks version {expected}")]
    Version {
        /// The layout.
        magic: String,
        /// What this program speaks.
        expected: u16,
        /// What was found.
        found: u16,
    },
}

impl Format {
    /// A layout with this magic and version.
    pub const fn new(magic: [u8; 4], version: u16) -> Self {
        Format { magic, version }
    }

    /// The header as bytes.
    pub fn header(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&self.magic);
        bytes[4..6].copy_from_slice(&self.version.to_le_bytes());
        bytes
    }

    /// The header as one little-endian word, for layouts in shared memory.
    pub fn word(&self) -> u64 {
        u64::from_le_bytes(self.header())
    }

    /// A block of this layout: the header, and `what` in postcard.
    pub fn encode<T: Serialize>(&self, what: &T) -> Vec<u8> {
        postcard::to_extend(what, self.header().to_vec())
            .expect("invariant: every field has a form in postcard, and a Vec does not end")
    }

    /// What is in such a block, where nothing follows it. Total; says what is wrong, for people.
    ///
    /// # Errors
    /// Another layout, another version, what is cut short, longer or no `T`.
    pub fn decode<T: DeserializeOwned>(&self, bytes: &[u8]) -> Result<T, String> {
        let rest = self.check(bytes).map_err(|error| error.to_string())?;
        match postcard::take_from_bytes(rest) {
            Ok((what, [])) => Ok(what),
            Ok((_, rest)) => Err(format!("{} bytes after its end", rest.len())),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Checks a header word read from shared memory.
    pub fn check_word(&self, word: u64) -> Result<(), FormatError> {
        self.check(&word.to_le_bytes()).map(|_| ())
    }

    /// Checks that `bytes` begin with this header, and gives back what follows it.
    pub fn check<'a>(&self, bytes: &'a [u8]) -> Result<&'a [u8], FormatError> {
        let (header, rest) = bytes.split_at_checked(HEADER_BYTES).ok_or(FormatError::Short { found: bytes.len() })?;
        if header[..4] != self.magic {
            return Err(FormatError::Magic { expected: name(&self.magic), found: name(&header[..4]) });
        }
        let found = u16::from_le_bytes([header[4], header[5]]);
        if found != self.version {
            return Err(FormatError::Version { magic: name(&self.magic), expected: self.version, found });
        }
        Ok(rest)
    }
}

/// A message that always crosses a boundary in one layout.
pub trait HasFormat: Serialize + DeserializeOwned {
    /// Marks it.
    const FORMAT: Format;

    /// Its bytes.
    fn encode(&self) -> Vec<u8> {
        Self::FORMAT.encode(self)
    }

    /// The message in `bytes`, which have nothing behind it. Total; says what is wrong, for people.
    ///
    /// # Errors
    /// As [`Format::decode`].
    fn decode(bytes: &[u8]) -> Result<Self, String> {
        Self::FORMAT.decode(bytes)
    }
}

fn name(magic: &[u8]) -> String {
    magic.escape_ascii().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: Format = Format::new(*b"VPAG", 3);

    #[test]
    fn a_header_is_taken_off() {
        let mut block = PAGE.header().to_vec();
        block.extend_from_slice(b"rest");
        assert_eq!(PAGE.check(&block), Ok(&b"rest"[..]));
        assert_eq!(PAGE.check_word(PAGE.word()), Ok(()));
    }

    #[test]
    fn refusals_name_both_sides() {
        assert_eq!(PAGE.check(b"VPA"), Err(FormatError::Short { found: 3 }));
        let other = Format::new(*b"V\0AG", 3);
        assert_eq!(
            PAGE.check(&other.header()).unwrap_err().to_string(),
            r#"expected a block marked "VPAG", found "V\\x00AG""#
        );
        let newer = Format::new(*b"VPAG", 4);
        assert_eq!(
            PAGE.check(&newer.header()).unwrap_err().to_string(),
            "block \"VPAG\" has version 4, this program speaks version 3"
        );
    }
}
