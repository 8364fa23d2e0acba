//! Memory that another process of this machine writes, and this one reads.

use std::os::fd::OwnedFd;
use std::sync::atomic::{Ordering, fence};

use crate::error::Error;
use crate::layout::WORD_BYTES;
use crate::memory::{Mapping, Memory, Sharing};

/// All of a sealed memory that was handed over, mapped for reading.
#[derive(Debug)]
pub struct ReadableMemory {
    mapping: Mapping,
    bytes: u64,
}

impl ReadableMemory {
    /// Maps it.
    ///
    /// # Errors
    /// [`Error::Unsealed`] if another process could take it away, [`Error::System`] if the kernel refuses.
    pub fn map(descriptor: &OwnedFd) -> Result<Self, Error> {
        let found = rustix::fs::fstat(descriptor)
            .map_err(|source| Error::system("read the size of shared memory", source))?
            .st_size;
        let bytes = u64::try_from(found).ok().filter(|bytes| *bytes > 0 && bytes.is_multiple_of(WORD_BYTES as u64));
        let bytes = bytes.ok_or(Error::MemorySize { expected: WORD_BYTES, found })?;
        Ok(ReadableMemory { mapping: Mapping::accept(descriptor, bytes as usize, Sharing::ReadOnly)?, bytes })
    }

    /// Whether the `length` bytes from `at` on are in this memory.
    pub fn has(&self, at: u64, length: u64) -> bool {
        at.checked_add(length).is_some_and(|end| end <= self.bytes)
    }

    /// The word at byte `at`. What its writer did before it wrote that is seen by what is read after this.
    ///
    /// # Panics
    /// If `at` is not a multiple of 8, or is outside.
    pub fn word(&self, at: u64) -> u64 {
        assert!(at.is_multiple_of(WORD_BYTES as u64), "words are aligned");
        self.mapping.load(at as usize / WORD_BYTES, Ordering::Acquire)
    }

    /// Copies bytes out; only aligned words are untorn. What is read after this is read after them.
    ///
    /// # Panics
    /// If they are not of it.
    pub fn copy_out(&self, at: u64, into: &mut [u8]) {
        assert!(self.has(at, into.len() as u64), "bytes outside shared memory");
        let (at, mut done) = (at as usize, 0);
        while done < into.len() {
            let (word, skip) = ((at + done) / WORD_BYTES, (at + done) % WORD_BYTES);
            let bytes = self.mapping.load(word, Ordering::Relaxed).to_ne_bytes();
            let length = (WORD_BYTES - skip).min(into.len() - done);
            into[done..done + length].copy_from_slice(&bytes[skip..skip + length]);
            done += length;
        }
        fence(Ordering::Acquire);
    }

    /// The address of the `length` bytes from `at` on, for code that is not Rust. Their writer may change them at any
    /// moment, so Rust must hold no reference to them. Valid as long as `self`.
    ///
    /// # Panics
    /// If they are not of it.
    pub fn address(&self, at: u64, length: u64) -> *const u8 {
        assert!(self.has(at, length), "bytes outside shared memory");
        self.mapping.address().wrapping_add(at as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_those_that_were_written_at_every_alignment() {
        let (written, descriptor) = Mapping::create("test", 4096, Sharing::ReadOnly).unwrap();
        let memory = ReadableMemory::map(&descriptor).unwrap();
        for word in 0..8 {
            let bytes: [u8; 8] = std::array::from_fn(|nth| (word * 8 + nth) as u8);
            written.store(word, u64::from_ne_bytes(bytes), Ordering::Relaxed);
        }
        for at in 0..16 {
            for length in 0..32 {
                let mut bytes = vec![0xee; length];
                memory.copy_out(at as u64, &mut bytes);
                let expected: Vec<u8> = (at..at + length).map(|byte| byte as u8).collect();
                assert_eq!(bytes, expected, "{length} bytes at {at}");
            }
        }
        assert_eq!(memory.word(8), written.load(1, Ordering::Relaxed));
        assert!(memory.has(4090, 6) && !memory.has(4090, 7) && !memory.has(u64::MAX, 2));
    }

    #[test]
    fn what_somebody_could_take_away_is_not_mapped() {
        let open = rustix::fs::memfd_create("open", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
        assert!(matches!(ReadableMemory::map(&open), Err(Error::MemorySize { .. })));
        rustix::fs::ftruncate(&open, 4096).unwrap();
        assert!(matches!(ReadableMemory::map(&open), Err(Error::Unsealed)));
    }
}
