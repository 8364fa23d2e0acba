//! Memory in which nothing but pages is kept, and a page's piece of it.
//!
//! Pages stay, and what each request needs comes and goes: buffers of 8 KiB, futures of 2 to 3. In one memory pages settle in the holes that
//! these leave, and what remains of a hole is too small for the next page: small pages took as much again as they do beside their body.

use std::alloc::{GlobalAlloc, Layout, System, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

use parking_lot::RawMutex;
use talc::DefaultBinning;
use talc::source::GlobalAllocSource;
use talc::sync::TalcLock;

/// One heap for all stores of a process: code that gives a piece back needs no pointer to where it came from.
/// Memory is taken from the C library, and given back to it, in blocks of 4 MiB.
static PAGES: TalcLock<RawMutex, GlobalAllocSource<System>, DefaultBinning> =
    TalcLock::new(GlobalAllocSource::with_block_size(System, 4 << 20));

/// What the heap keeps of each piece, and the multiple that it rounds up to, in bytes.
const CHUNK: (usize, usize) = (8, 32);

/// A head and bytes behind it, in one piece, which its last holder gives back.
pub(crate) struct Piece<H: Copy>(NonNull<Front<H>>);

/// What stands before the bytes.
#[repr(C)]
struct Front<H> {
    holders: AtomicUsize,
    head: H,
    length: usize,
}

// SAFETY: all holders read a piece and none writes it, but for the count, which is atomic; the last holder gives it back, and the heap is behind a
// lock.
unsafe impl<H: Copy + Send + Sync> Send for Piece<H> {}
// SAFETY: as above.
unsafe impl<H: Copy + Send + Sync> Sync for Piece<H> {}

impl<H: Copy> Piece<H> {
    /// Bytes of memory of a piece with `bytes` bytes behind its head.
    pub const fn memory(bytes: usize) -> usize {
        (CHUNK.0 + size_of::<Front<H>>() + bytes).next_multiple_of(CHUNK.1)
    }

    /// A piece with one holder.
    pub fn new(head: H, bytes: &[u8]) -> Self {
        let layout = Self::layout(bytes.len());
        // SAFETY: the front has a count, so the layout is not empty.
        let place = unsafe { PAGES.alloc(layout) };
        let Some(front) = NonNull::new(place.cast::<Front<H>>()) else { handle_alloc_error(layout) };
        // SAFETY: the piece is ours alone, aligned for its front, and has room for that and the bytes behind it.
        unsafe {
            front.write(Front { holders: AtomicUsize::new(1), head, length: bytes.len() });
            place.add(size_of::<Front<H>>()).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
        Piece(front)
    }

    pub fn head(&self) -> &H {
        &self.front().head
    }

    pub fn bytes(&self) -> &[u8] {
        let length = self.front().length;
        // SAFETY: `new` wrote `length` bytes behind the front, and they are there as long as this holds the
        // piece.
        unsafe { NonNull::slice_from_raw_parts(self.0.add(1).cast(), length).as_ref() }
    }

    /// How many hold it.
    #[cfg(test)]
    pub fn holders(&self) -> usize {
        self.front().holders.load(Ordering::Relaxed)
    }

    fn front(&self) -> &Front<H> {
        // SAFETY: `new` wrote it, and it is there as long as this holds the piece.
        unsafe { self.0.as_ref() }
    }

    fn layout(bytes: usize) -> Layout {
        let size = size_of::<Front<H>>().checked_add(bytes);
        let layout = size.and_then(|size| Layout::from_size_align(size, align_of::<Front<H>>()).ok());
        layout.expect("invariant: the bytes are in memory already, in half of the address space")
    }
}

impl<H: Copy> Clone for Piece<H> {
    fn clone(&self) -> Self {
        // No other thread needs to see it: the thread that clones holds the piece, and hands the clone on by
        // other means.
        let before = self.front().holders.fetch_add(1, Ordering::Relaxed);
        if before > isize::MAX as usize {
            // Only leaked holders can reach this number; a count that wraps would free a piece that is held.
            std::process::abort();
        }
        Piece(self.0)
    }
}

impl<H: Copy> Drop for Piece<H> {
    fn drop(&mut self) {
        if self.front().holders.fetch_sub(1, Ordering::Release) != 1 {
            return;
        }
        // All that the other holders read is behind them.
        fence(Ordering::Acquire);
        let layout = Self::layout(self.front().length);
        // SAFETY: it came from `PAGES` with this layout, and this was the last that held it.
        unsafe { PAGES.dealloc(self.0.as_ptr().cast(), layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_there_until_its_last_holder_goes() {
        let pieces: Vec<_> = (0..100_u8).map(|nth| Piece::new(u64::from(nth), &vec![nth; usize::from(nth)])).collect();
        let others: Vec<_> = pieces.iter().step_by(3).cloned().collect();
        assert!(pieces.iter().enumerate().all(|(nth, piece)| piece.holders() == 1 + usize::from(nth % 3 == 0)));
        drop(pieces);
        let again: Vec<_> = (0..100_u8).map(|nth| Piece::new(0_u64, &[!nth; 77])).collect();
        for (nth, piece) in (0_u8..).step_by(3).zip(&others) {
            assert_eq!((*piece.head(), piece.bytes(), piece.holders()), (nth.into(), &vec![nth; nth.into()][..], 1));
        }
        assert!((0..100_u8).zip(&again).all(|(nth, piece)| piece.bytes() == [!nth; 77]));
    }

    #[test]
    fn threads_hold_pieces_and_let_go_of_them() {
        let pieces: Vec<_> = (0..64_u8).map(|nth| Piece::new((), &[nth; 200])).collect();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let held = pieces.clone();
                scope.spawn(move || {
                    for round in 0..2_000_usize {
                        let nth = (round * 31 + thread) % held.len();
                        let other = held[nth].clone();
                        let own = Piece::new(round, &vec![7; round % 900]);
                        assert!(other.bytes() == [nth as u8; 200] && own.bytes() == vec![7; round % 900]);
                    }
                });
            }
        });
        assert!(pieces.iter().all(|piece| piece.holders() == 1));
    }
}
