//! Memory that another process can change at any moment, and the few operations on it.
//!
//! There is never a reference to its bytes, only atomic access to whole words: what is read is a value of our own, and
//! what it says is checked once, in that value. A copy out of a ring is word by word, relaxed; the order between a
//! message and the position that announces it comes from the position alone (release, acquire).
//!
//! The trait lets the same code run on a mapping, under the schedule explorer, and under an adversary that answers
//! every read with whatever it likes.

use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::time::Duration;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use rustix::thread::futex;

use crate::error::Error;
use crate::layout::WORD_BYTES;

/// Words shared with another process. Indexes beyond the end are a mistake of ours and panic.
pub(crate) trait Memory {
    fn load(&self, word: usize, order: Ordering) -> u64;
    fn store(&self, word: usize, value: u64, order: Ordering);
    fn swap(&self, word: usize, value: u64, order: Ordering) -> u64;
    /// A sequentially consistent fence.
    fn fence(&self);
    /// Sleeps while the low half of the word is that of `expected`: at most that long, and possibly shorter.
    fn sleep(&self, word: usize, expected: u64, at_most: Duration);
    /// Wakes one that sleeps on the word.
    fn wake(&self, word: usize);
}

/// A sealed memfd, mapped. Unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: the mapping is reached only through atomics, which threads may share, and it stays mapped until the one
// owner drops it.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

/// What a peer may do with memory that we hand out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// Both sides write.
    Both,
    /// Only we write: later writable mappings are refused by the kernel.
    ReadOnly,
}

impl Mapping {
    /// New zeroed memory and the descriptor to pass on. Sealed, because a peer that could shrink it would kill us with
    /// SIGBUS at our next access.
    pub(crate) fn create(name: &str, bytes: usize, sharing: Sharing) -> Result<(Mapping, OwnedFd), Error> {
        let made = || -> rustix::io::Result<(Mapping, OwnedFd)> {
            let descriptor = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
            rustix::fs::ftruncate(&descriptor, bytes as u64)?;
            let mapping = Mapping::map(&descriptor, bytes, ProtFlags::READ | ProtFlags::WRITE)?;
            let mut seals = SIZE_SEALS;
            if sharing == Sharing::ReadOnly {
                seals |= SealFlags::FUTURE_WRITE;
            }
            rustix::fs::fcntl_add_seals(&descriptor, seals)?;
            Ok((mapping, descriptor))
        };
        made().map_err(|source| Error::system("make shared memory", source))
    }

    /// Maps memory that the helper passed, after a look at its seals and size.
    pub(crate) fn accept(descriptor: &OwnedFd, bytes: usize, sharing: Sharing) -> Result<Mapping, Error> {
        let seals = rustix::fs::fcntl_get_seals(descriptor)
            .map_err(|source| Error::system("read the seals of shared memory", source))?;
        if !seals.contains(SIZE_SEALS) {
            return Err(Error::Unsealed);
        }
        let found = rustix::fs::fstat(descriptor)
            .map_err(|source| Error::system("read the size of shared memory", source))?
            .st_size;
        if found != bytes as i64 {
            return Err(Error::MemorySize { expected: bytes, found });
        }
        let protection = match sharing {
            Sharing::Both => ProtFlags::READ | ProtFlags::WRITE,
            Sharing::ReadOnly => ProtFlags::READ,
        };
        Mapping::map(descriptor, bytes, protection).map_err(|source| Error::system("map shared memory", source))
    }

    fn map(descriptor: impl AsFd, bytes: usize, protection: ProtFlags) -> rustix::io::Result<Mapping> {
        assert!(bytes > 0 && bytes.is_multiple_of(WORD_BYTES));
        // SAFETY: a new mapping at a place that the kernel chooses: nothing of ours is replaced.
        let start =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, descriptor, 0) }?;
        let start = NonNull::new(start.cast()).ok_or(rustix::io::Errno::NOMEM)?;
        Ok(Mapping { start, words: bytes / WORD_BYTES })
    }

    /// Where it begins.
    pub(crate) fn address(&self) -> *const u8 {
        self.start.as_ptr().cast()
    }

    fn word(&self, word: usize) -> &AtomicU64 {
        assert!(word < self.words, "invariant: indexes come from the layout and are masked to it");
        // SAFETY: inside the mapping by the assertion, aligned because mappings begin at a page; mapped as long as
        // `self`; the size is sealed, so the pages stay. Others write the bytes only as we do, or are not Rust.
        unsafe { self.start.add(word).as_ref() }
    }

    /// Where the kernel finds the futex of a word.
    pub(crate) fn futex_address(&self, word: usize) -> *const AtomicU32 {
        std::ptr::from_ref(self.futex(word))
    }

    fn futex(&self, word: usize) -> &AtomicU32 {
        const LOW_HALF: usize = if cfg!(target_endian = "big") { 1 } else { 0 };
        // SAFETY: the half of a word that `word` proved to be inside. It is only handed to the kernel: this program
        // itself loads and stores whole words.
        unsafe { &*std::ptr::from_ref(self.word(word)).cast::<AtomicU32>().add(LOW_HALF) }
    }
}

const SIZE_SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

impl Memory for Mapping {
    fn load(&self, word: usize, order: Ordering) -> u64 {
        self.word(word).load(order)
    }

    fn store(&self, word: usize, value: u64, order: Ordering) {
        self.word(word).store(value, order);
    }

    fn swap(&self, word: usize, value: u64, order: Ordering) -> u64 {
        self.word(word).swap(value, order)
    }

    fn fence(&self) {
        fence(Ordering::SeqCst);
    }

    fn sleep(&self, word: usize, expected: u64, at_most: Duration) {
        let Ok(timeout) = at_most.try_into() else { return };
        // Woken, changed before we slept, interrupted or timed out: the caller looks again in every case. Not the
        // private kind: the other side is another process.
        let _ = futex::wait(self.futex(word), futex::Flags::empty(), expected as u32, Some(&timeout));
    }

    fn wake(&self, word: usize) {
        // It can fail only for an address that is not mapped.
        let _ = futex::wake(self.futex(word), futex::Flags::empty(), 1);
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map` with this length, and no reference into it outlives `self`.
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.words * WORD_BYTES) };
        debug_assert!(unmapped.is_ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_is_sealed_and_checked() {
        let (_mapping, descriptor) = Mapping::create("test", 4096, Sharing::Both).unwrap();
        assert!(rustix::fs::ftruncate(&descriptor, 0).is_err());
        assert!(rustix::fs::ftruncate(&descriptor, 8192).is_err());
        assert!(Mapping::accept(&descriptor, 4096, Sharing::Both).is_ok());
        assert!(matches!(Mapping::accept(&descriptor, 8192, Sharing::Both), Err(Error::MemorySize { .. })));
        let open = rustix::fs::memfd_create("open", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        assert!(matches!(Mapping::accept(&open, 4096, Sharing::Both), Err(Error::Unsealed)));
    }

    #[test]
    fn read_only_memory_is_not_writable_by_its_receiver() {
        let (mapping, descriptor) = Mapping::create("test", 4096, Sharing::ReadOnly).unwrap();
        let theirs = Mapping::accept(&descriptor, 4096, Sharing::ReadOnly).unwrap();
        mapping.store(3, 7, Ordering::Relaxed);
        assert_eq!(theirs.load(3, Ordering::Relaxed), 7);
        assert!(Mapping::accept(&descriptor, 4096, Sharing::Both).is_err());
        assert!(rustix::io::pwrite(&descriptor, b"x", 0).is_err());
    }

    #[test]
    #[should_panic(expected = "invariant")]
    fn an_index_beyond_the_end_panics() {
        Mapping::create("test", 4096, Sharing::Both).unwrap().0.load(512, Ordering::Relaxed);
    }
}
