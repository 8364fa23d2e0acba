//! Buffers of frames, which are used again: the ones used last are still in the caches.

use std::mem::MaybeUninit;

use super::frame::Frame;

/// Room for a frame of 64 KiB with all that may stand before it in a ring, where slots are multiples of 16 bytes.
pub(super) const LARGEST: usize = 69_888;
/// A frame that is longer keeps the room that it was received into; others are copied out of it, so that what is under way takes no more than twice
/// the memory that it is counted as.
const LARGE: usize = LARGEST / 2;
/// This many are kept of each kind: 32 MiB of large ones.
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

    /// The frame of `bytes` bytes that was written into the [`room`](Self::room).
    ///
    /// # Safety
    /// `bytes` bytes of it were written.
    pub unsafe fn filled(&mut self, bytes: usize) -> Frame {
        debug_assert!(bytes <= self.room.capacity());
        // SAFETY: the caller's.
        unsafe { self.room.set_len(bytes) };
        if bytes > LARGE {
            return Frame(std::mem::take(&mut self.room));
        }
        let mut copy = self.small(bytes);
        copy.extend_from_slice(&self.room);
        self.room.clear();
        Frame(copy)
    }

    /// A buffer with room for `bytes` bytes and, if it was not used before, no more: it does not grow into a large one.
    fn small(&mut self, bytes: usize) -> Vec<u8> {
        let mut small = self.small.pop().unwrap_or_default();
        small.reserve_exact(bytes);
        small
    }

    fn large(&mut self) -> Vec<u8> {
        self.large.pop().unwrap_or_else(|| Vec::with_capacity(LARGEST))
    }

    /// A frame of these bytes.
    pub fn copy_of(&mut self, bytes: &[u8]) -> Frame {
        let mut copy = if bytes.len() > LARGE { self.large() } else { self.small(bytes.len()) };
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame of `bytes` bytes that came into the room.
    fn received(buffers: &mut Buffers, bytes: usize) -> Frame {
        let room = buffers.room();
        assert!(room.len() >= LARGEST);
        for byte in &mut room[..bytes] {
            byte.write(7);
        }
        // SAFETY: `bytes` bytes were just written.
        unsafe { buffers.filled(bytes) }
    }

    #[test]
    fn large_frames_keep_their_room_and_small_ones_do_not() {
        let mut buffers = Buffers::default();
        for bytes in [0, 60, LARGE, LARGE + 1, LARGEST] {
            let frame = received(&mut buffers, bytes);
            assert_eq!(frame.0, vec![7; bytes]);
            let most = if bytes > LARGE { LARGEST } else { LARGE };
            assert!((bytes..=most).contains(&frame.0.capacity()), "{} for {bytes}", frame.0.capacity());
        }
    }

    #[test]
    fn a_small_buffer_that_grows_is_no_room_for_large_frames() {
        let mut buffers = Buffers::default();
        for bytes in [20_000, 30_000, LARGEST, LARGE, LARGEST] {
            let frame = received(&mut buffers, bytes);
            buffers.take_back(frame);
            let frame = buffers.copy_of(&vec![7; bytes]);
            buffers.take_back(frame);
        }
        assert_eq!((buffers.small.len(), buffers.large.len()), (1, 1));
    }

    #[test]
    fn a_buffer_is_used_again_by_frames_of_its_kind() {
        let mut buffers = Buffers::default();
        for bytes in [60, LARGEST] {
            let frame = received(&mut buffers, bytes);
            let place = frame.0.as_ptr();
            buffers.take_back(frame);
            let again = buffers.copy_of(&vec![1; bytes]);
            assert_eq!((again.0.as_ptr(), again.0.len()), (place, bytes));
        }
        // Of a burst not all are kept.
        let frames: Vec<Frame> = (0..LARGE_SPARE + 10).map(|_| buffers.copy_of(&[0; LARGE + 1])).collect();
        frames.into_iter().for_each(|frame| buffers.take_back(frame));
        assert_eq!(buffers.large.len(), LARGE_SPARE);
    }
}
