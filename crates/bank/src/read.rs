//! One read, from its blocks to its bytes.
//!
//! The read covers whole blocks (its ends are widened). All are asked of the bank together. What misses is read below in runs,
//! and then the file's version is taken again (rule B13): equal, the bytes go out and the missing blocks into the bank; else
//! nothing is kept, and the read is answered below from start to end, so no answer is half old and half new (rule B9).

use std::sync::Arc;

use thiserror::Error;

use crate::Rules;

/// Bytes of a block: a power of two from 256 B to 1 MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockSize(u32);

/// A size that no block can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a block of {bytes} bytes: choose a power of two from 256 to 1048576")]
pub struct BlockSizeError {
    /// The size that was asked for.
    pub bytes: u32,
}

impl BlockSize {
    /// Blocks of `bytes`.
    pub fn new(bytes: u32) -> Result<Self, BlockSizeError> {
        let fits = bytes.is_power_of_two() && (256..=1 << 20).contains(&bytes);
        if fits { Ok(BlockSize(bytes)) } else { Err(BlockSizeError { bytes }) }
    }

    /// Its bytes.
    pub fn bytes(self) -> u32 {
        self.0
    }
}

impl Default for BlockSize {
    /// 64 KiB.
    fn default() -> Self {
        BlockSize(64 << 10)
    }
}

/// Neighbouring blocks that the bank did not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Where it begins in the file.
    pub offset: u64,
    /// Its bytes, at least 1.
    pub bytes: usize,
}

/// What the second look at the version says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// The file is as it was.
    Same,
    /// It changed, or could not be looked at.
    Moved,
}

/// How a read ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// These are the bytes.
    Serve {
        /// What the caller gets. Shorter than asked for only at the end of the file.
        bytes: Vec<u8>,
        /// Blocks that the bank did not have.
        fills: Vec<(u64, Arc<Vec<u8>>)>,
    },
    /// Read below from start to end.
    Below,
}

/// A read of a file whose version and size are known.
#[derive(Debug)]
pub struct Read {
    block: u64,
    size: u64,
    /// First byte asked for, and the one after the last; both within the file.
    start: u64,
    end: u64,
    slots: Vec<Slot>,
    rules: Rules,
}

#[derive(Debug)]
enum Slot {
    Missing,
    Banked(Arc<Vec<u8>>),
    Below(Arc<Vec<u8>>),
}

impl Read {
    /// A read of `bytes` at `offset` in a file of `size`.
    pub fn new(block: BlockSize, size: u64, offset: u64, bytes: u64, rules: Rules) -> Self {
        let block = u64::from(block.0);
        let start = offset.min(size);
        let end = offset.saturating_add(bytes).min(size).max(start);
        let count = if start == end { 0 } else { end.div_ceil(block) - start / block };
        let slots = (0..count).map(|_| Slot::Missing).collect();
        Read { block, size, start, end, slots, rules }
    }

    /// The blocks to ask the bank for.
    pub fn blocks(&self) -> impl ExactSizeIterator<Item = u64> + use<> {
        let first = self.start / self.block;
        (0..self.slots.len()).map(move |at| first + at as u64)
    }

    /// What the bank answered for `block`. A block of another length than the file's size gives it is a miss. Says whether it was taken.
    pub fn banked(&mut self, block: u64, bytes: impl Into<Arc<Vec<u8>>>) -> bool {
        let bytes = bytes.into();
        let fits = bytes.len() as u64 == self.length(block);
        if fits && let Some(slot) = self.slot(block) {
            *slot = Slot::Banked(bytes);
            return true;
        }
        false
    }

    /// What is to be read below, in order.
    pub fn runs(&self) -> Vec<Run> {
        let mut runs: Vec<Run> = vec![];
        for (block, slot) in self.blocks().zip(&self.slots) {
            if !matches!(slot, Slot::Missing) {
                continue;
            }
            let (offset, bytes) = (block * self.block, self.length(block) as usize);
            match runs.last_mut() {
                Some(run) if run.offset + run.bytes as u64 == offset => run.bytes += bytes,
                _ => runs.push(Run { offset, bytes }),
            }
        }
        runs
    }

    /// What was read below for a run. Fewer bytes than asked for say that the file changed.
    pub fn below(&mut self, run: Run, bytes: &[u8]) {
        let first = run.offset / self.block;
        for (block, part) in (first..).zip(bytes.chunks(self.block as usize)) {
            if part.len() as u64 == self.length(block)
                && let Some(slot) = self.slot(block)
            {
                *slot = Slot::Below(Arc::new(part.to_vec()));
            }
        }
    }

    /// The end. `after` is asked only if something was read below: what the bank gave needs no second look.
    pub fn end(self, after: impl FnOnce() -> After) -> End {
        let read_below = self.slots.iter().any(|slot| matches!(slot, Slot::Below(_)));
        let is_whole = self.slots.iter().all(|slot| !matches!(slot, Slot::Missing));
        if !is_whole || (read_below && self.rules.recheck && after() == After::Moved) {
            return End::Below;
        }
        let mut bytes = Vec::with_capacity((self.end - self.start) as usize);
        let mut fills = vec![];
        for (block, slot) in self.blocks().zip(self.slots) {
            let (kept, is_new) = match slot {
                Slot::Banked(kept) => (kept, false),
                Slot::Below(kept) => (kept, true),
                Slot::Missing => return End::Below,
            };
            let offset = block * self.block;
            let from = self.start.saturating_sub(offset) as usize;
            let to = (self.end - offset).min(kept.len() as u64) as usize;
            bytes.extend_from_slice(&kept[from..to]);
            if is_new {
                fills.push((block, kept));
            }
        }
        End::Serve { bytes, fills }
    }

    /// Bytes of a block in a file of this size.
    fn length(&self, block: u64) -> u64 {
        self.size.saturating_sub(block * self.block).min(self.block)
    }

    fn slot(&mut self, block: u64) -> Option<&mut Slot> {
        let at = block.checked_sub(self.start / self.block)?;
        self.slots.get_mut(usize::try_from(at).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn file(size: usize) -> Vec<u8> {
        (0..size).map(|at| (at / 256 * 31 + at) as u8).collect()
    }

    /// A read of `file` with some blocks in the bank: its end, and what was read below.
    fn run(file: &[u8], offset: u64, bytes: u64, banked: impl Fn(u64) -> bool, after: After) -> (End, Vec<Run>) {
        let size = BlockSize::new(256).unwrap();
        let mut read = Read::new(size, file.len() as u64, offset, bytes, Rules::default());
        for block in read.blocks().filter(|block| banked(*block)) {
            let from = block as usize * 256;
            assert!(read.banked(block, file[from..file.len().min(from + 256)].to_vec()));
        }
        let runs = read.runs();
        for run in &runs {
            read.below(*run, &file[run.offset as usize..run.offset as usize + run.bytes]);
        }
        (read.end(|| after), runs)
    }

    #[test]
    fn a_partial_hit_reads_only_what_is_missing() {
        let file = file(2000);
        let (end, runs) = run(&file, 100, 1000, |block| block == 1 || block == 2, After::Same);
        assert_eq!(runs, [Run { offset: 0, bytes: 256 }, Run { offset: 768, bytes: 512 }]);
        let End::Serve { bytes, fills } = end else { panic!("{end:?}") };
        assert_eq!(bytes, file[100..1100]);
        assert_eq!(fills.iter().map(|fill| fill.0).collect::<Vec<_>>(), [0, 3, 4]);
    }

    #[test]
    fn a_file_that_moved_while_it_was_read_is_read_below() {
        let file = file(2000);
        assert_eq!(run(&file, 100, 1000, |block| block == 1, After::Moved).0, End::Below);
        // A full hit read nothing below, so nothing can have been torn.
        assert!(matches!(run(&file, 100, 1000, |_| true, After::Moved).0, End::Serve { .. }));
    }

    #[test]
    fn a_block_of_another_length_is_a_miss() {
        let mut read = Read::new(BlockSize::new(256).unwrap(), 300, 0, 300, Rules::default());
        assert!(!read.banked(0, vec![0; 255]));
        assert!(!read.banked(1, vec![0; 256]));
        assert!(read.banked(1, vec![0; 44]));
        assert!(!read.banked(2, vec![]));
        let run = read.runs()[0];
        read.below(run, &[1; 100]);
        assert_eq!(read.end(|| After::Same), End::Below, "fewer bytes came than the size says");
    }

    #[test]
    fn only_sizes_of_blocks_are_sizes() {
        for bytes in [0, 128, 257, 3000, 2 << 20] {
            assert_eq!(BlockSize::new(bytes), Err(BlockSizeError { bytes }));
        }
        assert_eq!(BlockSize::default().bytes(), 65_536);
    }

    proptest! {
        #[test]
        fn a_read_gives_what_the_file_has(size in 0_usize..3000, offset in 0_u64..4000, bytes in 0_u64..4000, bank in any::<u16>()) {
            let file = file(size);
            let (end, _) = run(&file, offset, bytes, |block| bank >> (block % 16) & 1 == 1, After::Same);
            let End::Serve { bytes: served, .. } = end else { panic!("{end:?}") };
            let from = size.min(offset as usize);
            prop_assert_eq!(&served[..], &file[from..size.min((offset + bytes) as usize)]);
        }

        #[test]
        fn no_offset_is_too_large(size in any::<u64>(), offset in any::<u64>(), bytes in 0_u64..2000) {
            let read = Read::new(BlockSize::new(256).unwrap(), size, offset, bytes, Rules::default());
            prop_assert!(read.blocks().len() <= 10);
            read.runs();
        }
    }
}
