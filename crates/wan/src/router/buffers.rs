//! Buffers of frames, which are used again: the ones used last are still in the caches.

use std::mem::MaybeUninit;

use super::frame::Frame;

/// Room for a frame of 64 KiB with all that may stand before it in a ring, where slots are multiples of 16 bytes.
pub(super) const LARGEST: usize = 69_888;
/// A frame that is longer keeps the room that it was received into; others are copied out of it, so that what is under way takes no more than twice
/// the memory that it is counted as.
const LARGE: usize = LARGEST / 2;
/// So many are kept of each kind: 32 MiB of large ones.
const SMALL_SPARE: usize = 1024;
const LARGE_SPARE: usize = 480;

/// Where frames are received into, and where they go when they have been sent.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    small: Vec<Vec<u8>>,
    large: Vec<Vec<u8>>,
    /// For the next one that comes; empty.
    room: Vec<u8>,
}

impl Buffers {
    /// Room for any frame, until [`filled`](Self::filled).
    pub fn room(&mut self) -> &mut [MaybeUninit<u8>] {
        if self.room.capacity() < LARGEST {
            self.room = self.large();
        }
        self.room.spare_capacity_mut()
    }

    /// The frame of so many bytes that was written into the [`room`](Self::room).
    ///
    /// # Safety
    /// So many bytes of it were written.
    pub unsafe fn filled(&mut self, bytes: usize) -> Frame {
        debug_assert!(bytes <= self.room.capacity());
        // SAFETY: the caller's.
        unsafe { self.room.set_len(bytes) };
        if bytes > LARGE {
            return Frame(std::mem::take(&mut self.room));
        }
        let mut copy = self.small.pop().unwrap_or_default();
        copy.extend_from_slice(&self.room);
        self.room.clear();
        Frame(copy)
    }

    fn large(&mut self) -> Vec<u8> {
        self.large.pop().unwrap_or_else(|| Vec::with_capacity(LARGEST))
    }

    /// A frame of these bytes.
    pub fn copy_of(&mut self, bytes: &[u8]) -> Frame {
        let mut copy = if bytes.len() > LARGE { self.large() } else { self.small.pop().unwrap_or_default() };
        copy.extend_from_slice(bytes);
        Frame(copy)
    }

    /// Takes a frame back that is not needed any more.
    pub fn take_back(&mut self, frame: Frame) {
        let mut bytes = frame.0;
        bytes.clear();
        let (spare, most) =
            if bytes.capacity() > LARGE { (&mut self.large, LARGE_SPARE) } else { (&mut self.small, SMALL_SPARE) };
        if spare.len() < most {
            spare.push(bytes);
        }
    }
}
