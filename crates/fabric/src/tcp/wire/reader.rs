//! Bytes from another node, taken one field at a time: an error names its place.

use thiserror::Error;
use verbena_terms::{Format, HEADER_BYTES};

/// What is wrong with bytes that came in, and where.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("byte {offset}: {what}")]
pub(in crate::tcp) struct Malformed {
    /// Counted from the start of the block.
    pub(in crate::tcp) offset: usize,
    pub(in crate::tcp) what: String,
}

pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Reader<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Reader { bytes, offset: 0 }
    }

    pub(super) fn format(&mut self, format: &Format) -> Result<(), Malformed> {
        format.check(self.bytes).map_err(|error| Malformed { offset: self.offset, what: error.to_string() })?;
        let header: [u8; HEADER_BYTES] = self.array()?;
        if header != format.header() {
            return Err(self.refuse_last(2, "something behind the version".into()));
        }
        Ok(())
    }

    pub(super) fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let Some((taken, rest)) = self.bytes.split_at_checked(length) else {
            let what = format!("{length} bytes expected, {} there", self.bytes.len());
            return Err(Malformed { offset: self.offset, what });
        };
        self.bytes = rest;
        self.offset += length;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub(super) fn u8(&mut self) -> Result<u8, Malformed> {
        self.array().map(u8::from_le_bytes)
    }

    pub(super) fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    /// A length in bytes of at most `most`.
    pub(super) fn length(&mut self, of: &str, most: usize) -> Result<usize, Malformed> {
        let length = self.u32()? as usize;
        if length > most {
            return Err(self.refuse_last(4, format!("{of} of {length} bytes, more than {most}")));
        }
        Ok(length)
    }

    pub(super) fn zeros(&mut self, count: usize) -> Result<(), Malformed> {
        match self.take(count)?.iter().position(|byte| *byte != 0) {
            Some(at) => Err(self.refuse_last(count - at, "not zero".into())),
            None => Ok(()),
        }
    }

    pub(super) fn end(&self) -> Result<(), Malformed> {
        match self.bytes.len() {
            0 => Ok(()),
            more => Err(self.refuse_last(0, format!("{more} bytes behind the last item"))),
        }
    }

    /// Refuses what began `back` bytes ago.
    pub(super) const fn refuse_last(&self, back: usize, what: String) -> Malformed {
        Malformed { offset: self.offset - back, what }
    }
}
