//! Memory at addresses that are used once: a key of an earlier region, under whatever number an adapter gives out again, never reaches what is there now (F4).

use std::ptr::NonNull;

use parking_lot::Mutex;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use crate::error::{Error, Result};
use crate::memory::{Sealed, Words};

/// Addresses that a fabric can give to regions in all: of 128 TiB that a process has. Nothing is behind them before
/// they are given out.
const RESERVED: usize = 16 << 40;

/// Gives out addresses in order, each one once.
pub(super) struct Arena {
    base: NonNull<u8>,
    /// Bytes that were given out.
    used: Mutex<usize>,
}

// SAFETY: `base` is an address that nothing is read from or written to through.
unsafe impl Send for Arena {}
// SAFETY: as above; what was given out is behind a lock.
unsafe impl Sync for Arena {}

impl Arena {
    pub(super) fn new() -> Result<Self> {
        // SAFETY: a fresh mapping at an address that the kernel chooses touches no memory in use; no code may access
        // it.
        let base = unsafe {
            mmap_anonymous(std::ptr::null_mut(), RESERVED, ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::NORESERVE)
        };
        let base = base.map_err(|error| Error::system("reserve addresses for regions", error))?;
        let base = NonNull::new(base.cast()).ok_or_else(|| Error::system("reserve addresses", "they begin at 0"))?;
        Ok(Arena { base, used: Mutex::new(0) })
    }

    /// Zeroed memory, `bytes` rounded up to pages.
    pub(super) fn take(&self, bytes: u64) -> Result<(Words, Sealed)> {
        let page = rustix::param::page_size() as u64;
        let full = || Error::Full { what: "the addresses for regions", most: RESERVED };
        let wanted = bytes.max(1).checked_next_multiple_of(page).and_then(|bytes| usize::try_from(bytes).ok());
        let wanted = wanted.ok_or_else(full)?;
        let mut used = self.used.lock();
        let end = used.checked_add(wanted).filter(|end| *end <= RESERVED).ok_or_else(full)?;
        // SAFETY: `used..end` is of the reservation, and nothing was ever mapped there: it was never given out before,
        // and is never given out again.
        let memory = unsafe { Words::in_place_of_reserved(self.base.add(*used), wanted) }?;
        *used = end;
        Ok(memory)
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let used = *self.used.get_mut();
        // SAFETY: the part of the reservation that was never given out. The rest is unmapped by its holders, and may
        // belong to other code by now.
        let _ = unsafe { munmap(self.base.as_ptr().add(used).cast(), RESERVED - used) };
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;

    #[test]
    fn no_address_is_given_out_twice() {
        let arena = Arena::new().unwrap();
        let mut last = 0;
        for bytes in [1, 4096, 4097, 1 << 20, 0] {
            let (words, _) = arena.take(bytes).unwrap();
            assert!(words.address() >= last && words.bytes() >= bytes && words.load(0) == 0);
            words.store(0, 7);
            last = words.address() + words.bytes();
        }
        assert!(matches!(arena.take(u64::MAX), Err(Error::Full { .. })));
        assert!(matches!(arena.take(RESERVED as u64), Err(Error::Full { .. })), "some of it is gone");
        arena.take(4096).unwrap();
    }
}
