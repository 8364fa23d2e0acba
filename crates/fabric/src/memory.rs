//! Memory that another process may change at any moment.
//!
//! The rule (after vm-memory): never a reference to it, only volatile and atomic accesses through [`Words`]. A `&[u8]` would let
//! the compiler assume that two reads of one byte agree; here they need not.

use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

use crate::error::{Error, Result};
use crate::operation::{Done, Operation};

/// A mapping of shared (or to be shared) memory: words of 8 bytes, unmapped when dropped.
///
/// What `unsafe` code may rely on: `base` is page-aligned and `bytes` long and stays mapped as long as `self`. What it may
/// not rely on: any value read from it, twice or at all.
#[derive(Debug)]
pub struct Words {
    base: NonNull<u8>,
    bytes: NonZeroUsize,
    writable: bool,
}

// SAFETY: all access goes through atomics, so that sharing between threads is what the type is for.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

impl Words {
    /// Zeroed memory of this process, `bytes` rounded up to pages. An error if the system has none.
    pub fn anonymous(bytes: u64) -> Result<Self> {
        let bytes = whole_pages(bytes)?;
        // SAFETY: a fresh anonymous mapping at an address that the kernel chooses touches no memory in use.
        let base = unsafe {
            mmap_anonymous(std::ptr::null_mut(), bytes.get(), ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED)
        }
        .map_err(|error| Error::system("map memory", error))?;
        Words::from_mapping(base, bytes, true)
    }

    /// Zeroed memory that other processes can be handed, `bytes` rounded up to pages. An error if the system has none.
    pub(crate) fn sealed(bytes: u64) -> Result<(Self, Sealed)> {
        let descriptor = Sealed::make(bytes)?;
        Ok((Words::map(descriptor.writable(), bytes, true)?, descriptor))
    }

    /// Maps `bytes` of a descriptor. The descriptor must be sealed against shrinking, or its other holders could take the memory
    /// away and a later access would be a bus error (F4).
    pub fn map(descriptor: BorrowedFd<'_>, bytes: u64, writable: bool) -> Result<Self> {
        let seals = rustix::fs::fcntl_get_seals(descriptor)
            .map_err(|error| Error::system("read the seals of a region", error))?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(Error::Malformed {
                from: "the owner of a region".into(),
                reason: "its memory is not sealed against shrinking".into(),
            });
        }
        let have = rustix::fs::fstat(descriptor).map_err(|error| Error::system("size of a region", error))?.st_size;
        let length = whole_pages(bytes)?;
        if (have as u64) < length.get() as u64 {
            return Err(Error::Malformed {
                from: "the owner of a region".into(),
                reason: format!("its memory has {have} bytes where {bytes} were announced"),
            });
        }
        Words::mapped(descriptor, length, writable)
    }

    /// Maps `bytes` of a map of words of the kernel's, whose size never changes: no process can take the memory away.
    #[cfg(feature = "xdp")]
    pub(crate) fn of_map(map: BorrowedFd<'_>, bytes: u64) -> Result<Self> {
        Words::mapped(map, whole_pages(bytes)?, true)
    }

    /// Of a descriptor whose first `length` bytes no process can take away.
    fn mapped(descriptor: BorrowedFd<'_>, length: NonZeroUsize, writable: bool) -> Result<Self> {
        let protection = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: a fresh mapping at an address that the kernel chooses; the caller has made sure that all of it stays
        // backed.
        let base = unsafe { mmap(std::ptr::null_mut(), length.get(), protection, MapFlags::SHARED, descriptor, 0) }
            .map_err(|error| Error::system("map a region", error))?;
        Words::from_mapping(base, length, writable)
    }

    /// Zeroed memory in the place of reserved addresses.
    ///
    /// # Safety
    /// `base` is page-aligned and `bytes` a multiple of the page size; only a reservation of this process is mapped
    /// there, and no other code will map anything there or unmap it.
    #[cfg(feature = "verbs")]
    pub(crate) unsafe fn in_place_of_reserved(base: NonNull<u8>, bytes: usize) -> Result<(Self, Sealed)> {
        let bytes = NonZeroUsize::new(bytes).ok_or_else(|| Error::system("map memory", "of no bytes"))?;
        let sealed = Sealed::make(bytes.get() as u64)?;
        // Shared, so that a child of this process never takes a page away from an adapter that has it registered.
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the caller's; all of it stays backed, because the descriptor is sealed.
        let base = unsafe { mmap(base.as_ptr().cast(), bytes.get(), protection, flags, sealed.writable(), 0) }
            .map_err(|error| Error::system("map memory", error))?;
        Ok((Words::from_mapping(base, bytes, true)?, sealed))
    }

    fn from_mapping(base: *mut std::ffi::c_void, bytes: NonZeroUsize, writable: bool) -> Result<Self> {
        let base = NonNull::new(base.cast()).ok_or_else(|| Error::system("map memory", "mapped at address 0"))?;
        Ok(Words { base, bytes, writable })
    }

    /// How many bytes are mapped: a multiple of the page size.
    pub const fn bytes(&self) -> u64 {
        self.bytes.get() as u64
    }

    /// Where it is in this process.
    #[cfg(feature = "verbs")]
    pub(crate) fn address(&self) -> u64 {
        self.base.as_ptr() as u64
    }

    /// The word at byte `at`, an aligned address inside the mapping.
    pub fn load(&self, at: u64) -> u64 {
        self.word(at).load(Ordering::Acquire)
    }

    /// Stores a word. Sequentially consistent, so that it is visible before anything that the caller does next.
    pub fn store(&self, at: u64, value: u64) {
        self.writable_word(at).store(value, Ordering::SeqCst);
    }

    /// Adds to a word and gives what was there.
    pub fn fetch_add(&self, at: u64, addend: u64) -> u64 {
        self.writable_word(at).fetch_add(addend, Ordering::SeqCst)
    }

    /// Stores `desired` if the word is `expected`; gives what was there.
    pub fn compare_swap(&self, at: u64, expected: u64, desired: u64) -> u64 {
        match self.writable_word(at).compare_exchange(expected, desired, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(before) | Err(before) => before,
        }
    }

    /// Copies bytes out, aligned words untorn.
    pub fn copy_out(&self, at: u64, into: &mut [u8]) {
        self.assert_inside(at, into.len() as u64);
        let head = into.len().min(to_alignment(at));
        let (head, rest) = into.split_at_mut(head);
        let (words, tail) = rest.as_chunks_mut::<8>();
        let mut at = at;
        for byte in head {
            *byte = self.byte(at).load(Ordering::Relaxed);
            at += 1;
        }
        for word in words {
            *word = self.word(at).load(Ordering::Relaxed).to_ne_bytes();
            at += 8;
        }
        for byte in tail {
            *byte = self.byte(at).load(Ordering::Relaxed);
            at += 1;
        }
        std::sync::atomic::fence(Ordering::Acquire);
    }

    /// Copies bytes in, aligned words untorn.
    pub fn copy_in(&self, at: u64, from: &[u8]) {
        assert!(self.writable, "a caller checks rights before it writes");
        self.assert_inside(at, from.len() as u64);
        std::sync::atomic::fence(Ordering::Release);
        let (head, rest) = from.split_at(from.len().min(to_alignment(at)));
        let (words, tail) = rest.as_chunks::<8>();
        let mut at = at;
        for byte in head {
            self.byte(at).store(*byte, Ordering::Relaxed);
            at += 1;
        }
        for word in words {
            self.word(at).store(u64::from_ne_bytes(*word), Ordering::Relaxed);
            at += 8;
        }
        for byte in tail {
            self.byte(at).store(*byte, Ordering::Relaxed);
            at += 1;
        }
    }

    /// Gives the whole pages among these bytes back to the system, in all mappings: they are zeros, and are taken again
    /// when something is written.
    pub fn discard(&self, at: u64, length: u64) -> Result<()> {
        assert!(self.writable, "a caller checks rights before it writes");
        self.assert_inside(at, length);
        let page = rustix::param::page_size() as u64;
        let (from, until) = (at.next_multiple_of(page), (at + length) / page * page);
        if from >= until {
            return Ok(());
        }
        // SAFETY: whole pages inside the mapping (asserted), which stays as it is; what is in them may be read as zeros at any moment, and nothing relies on
        // what is read.
        unsafe { madvise(self.base.as_ptr().add(from as usize).cast(), (until - from) as usize, Advice::LinuxRemove) }
            .map_err(|error| Error::system("give memory back", error))
    }

    /// Executes one operation on the region that begins at byte `base` of this mapping and has `region_bytes`, as an executor
    /// that is a processor does. Refuses what is outside or misaligned.
    pub fn execute(&self, base: u64, region_bytes: u64, operation: Operation) -> Result<Done> {
        check(&operation, region_bytes)?;
        Ok(match operation {
            Operation::ReadWord { at } => Done::Word(self.load(base + at)),
            Operation::WriteWord { at, value } => {
                self.store(base + at, value);
                Done::Word(0)
            }
            Operation::CompareSwap { at, expected, desired } => {
                Done::Word(self.compare_swap(base + at, expected, desired))
            }
            Operation::FetchAdd { at, addend } => Done::Word(self.fetch_add(base + at, addend)),
            Operation::Read { at, mut into } => {
                self.copy_out(base + at, into.bytes_mut());
                Done::Buffer(into)
            }
            Operation::Write { at, from } => {
                self.copy_in(base + at, from.bytes());
                Done::Buffer(from)
            }
        })
    }

    fn writable_word(&self, at: u64) -> &AtomicU64 {
        assert!(self.writable, "a caller checks rights before it writes");
        self.word(at)
    }

    fn word(&self, at: u64) -> &AtomicU64 {
        assert!(at.is_multiple_of(8), "a caller checks alignment");
        self.assert_inside(at, 8);
        // SAFETY: inside the mapping (asserted), aligned because the base is page-aligned and `at` a multiple of 8, mapped as
        // long as `self`; atomics make concurrent access by anyone defined.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(at as usize).cast()) }
    }

    fn byte(&self, at: u64) -> &AtomicU8 {
        self.assert_inside(at, 1);
        // SAFETY: inside the mapping (asserted) and mapped as long as `self`; any address is aligned for a byte.
        unsafe { AtomicU8::from_ptr(self.base.as_ptr().add(at as usize)) }
    }

    fn assert_inside(&self, at: u64, length: u64) {
        assert!(
            at.checked_add(length).is_some_and(|end| end <= self.bytes()),
            "bytes {at}+{length} are outside a mapping of {}: a caller checks bounds",
            self.bytes
        );
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping that `from_mapping` took over; no reference to it outlives `self`.
        // A failure could only mean that it was unmapped already, which nothing else does.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes.get()) };
    }
}

/// The descriptor of zeroed memory whose size never changes (F4): no process can take it away under a mapping.
#[derive(Debug)]
pub(crate) struct Sealed(OwnedFd);

impl Sealed {
    /// Of `bytes`, rounded up to pages.
    pub(crate) fn make(bytes: u64) -> Result<Self> {
        let failed = |what| move |error: rustix::io::Errno| Error::system(what, error);
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let descriptor =
            rustix::fs::memfd_create("verbena-region", flags).map_err(failed("make the memory of a region"))?;
        let pages = whole_pages(bytes)?.get() as u64;
        rustix::fs::ftruncate(&descriptor, pages).map_err(failed("size the memory of a region"))?;
        rustix::fs::fcntl_add_seals(&descriptor, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
            .map_err(failed("seal the memory of a region"))?;
        // Opening it again is for reading; this descriptor stays what it is.
        rustix::fs::fchmod(&descriptor, Mode::RUSR).map_err(failed("protect the memory of a region"))?;
        Ok(Sealed(descriptor))
    }

    /// For processes that may change the memory.
    pub(crate) fn writable(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// For processes that may read the memory: the kernel refuses to map it for writing.
    pub(crate) fn for_reading(&self) -> Result<OwnedFd> {
        let path = format!("/proc/self/fd/{}", self.0.as_raw_fd());
        rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|error| Error::system("open a region for reading through /proc", error))
    }
}

/// Refuses an operation that is not inside a region of `region_bytes` or not aligned.
pub(crate) fn check(operation: &Operation, region_bytes: u64) -> Result<()> {
    let (at, length) = operation.range();
    check_range(at, length, operation.is_word(), region_bytes)
}

/// Refuses `length` bytes at `at` that are not inside a region of `region_bytes`, and a word that is not aligned.
pub(crate) fn check_range(at: u64, length: u64, is_word: bool, region_bytes: u64) -> Result<()> {
    if is_word && !at.is_multiple_of(8) {
        return Err(Error::Misaligned { at });
    }
    match at.checked_add(length) {
        Some(end) if end <= region_bytes => Ok(()),
        _ => Err(Error::OutOfBounds { at, length, region_bytes }),
    }
}

fn to_alignment(at: u64) -> usize {
    (at.next_multiple_of(8) - at) as usize
}

fn whole_pages(bytes: u64) -> Result<NonZeroUsize> {
    let page = rustix::param::page_size() as u64;
    bytes
        .max(1)
        .checked_next_multiple_of(page)
        .and_then(|bytes| usize::try_from(bytes).ok())
        .filter(|bytes| *bytes <= isize::MAX as usize)
        .and_then(NonZeroUsize::new)
        .ok_or_else(|| Error::system("map memory", format!("{bytes} bytes are more than a process can map")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_survive_at_every_alignment() {
        let words = Words::anonymous(4096).unwrap();
        let pattern: Vec<u8> = (1..=40).collect();
        for at in 0..16 {
            for length in 0..pattern.len() {
                words.copy_in(at, &pattern[..length]);
                let mut back = vec![0; length];
                words.copy_out(at, &mut back);
                assert_eq!(back, pattern[..length], "at {at}, {length} bytes");
            }
        }
    }

    #[test]
    fn whole_pages_are_given_back_and_no_other_byte() {
        let page = rustix::param::page_size() as u64;
        let words = Words::anonymous(4 * page).unwrap();
        let all = || {
            let mut bytes = vec![0; 4 * page as usize];
            words.copy_out(0, &mut bytes);
            bytes
        };
        words.copy_in(0, &vec![7; 4 * page as usize]);
        words.discard(1, page - 1).unwrap();
        words.discard(page - 1, page).unwrap();
        assert!(all().iter().all(|byte| *byte == 7), "no page was whole");
        words.discard(8, 3 * page - 9).unwrap();
        let gone = |at: usize| (page as usize..2 * page as usize).contains(&at);
        assert!(all().iter().enumerate().all(|(at, byte)| *byte == if gone(at) { 0 } else { 7 }));
        words.store(page + 8, 9);
        assert_eq!((words.load(page + 8), words.load(page + 16)), (9, 0));
    }

    #[test]
    fn execution_refuses_what_is_outside_or_askew() {
        let words = Words::anonymous(4096).unwrap();
        assert_eq!(words.execute(0, 64, Operation::ReadWord { at: 60 }).unwrap_err(), Error::Misaligned { at: 60 });
        for at in [64, !7] {
            assert_eq!(
                words.execute(0, 64, Operation::FetchAdd { at, addend: 1 }).unwrap_err(),
                Error::OutOfBounds { at, length: 8, region_bytes: 64 }
            );
        }
    }

    #[test]
    fn a_descriptor_that_can_shrink_is_refused() {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memory = rustix::fs::memfd_create("unsealed", flags).unwrap();
        rustix::fs::ftruncate(&memory, 4096).unwrap();
        assert!(matches!(Words::map(memory.as_fd(), 4096, true), Err(Error::Malformed { .. })));
        rustix::fs::fcntl_add_seals(&memory, SealFlags::SHRINK).unwrap();
        assert!(Words::map(memory.as_fd(), 4096, true).is_ok());
        assert!(matches!(Words::map(memory.as_fd(), 8192, true), Err(Error::Malformed { .. })));
    }
}
