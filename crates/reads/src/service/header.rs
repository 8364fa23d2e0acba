//! Reading the header of a relay's region.

use verbena_fabric::{Batch, Completed, Fabric};
use verbena_service::read_once::{ReadOnce, Words};

use crate::layout::HEADER_WORDS;

/// The first words of a relay's region.
pub(super) type Header = [u64; HEADER_WORDS];

/// Reads a header, once. Of a region that was not reached the key is asked for first.
pub(super) type ReadHeader = ReadOnce<HeaderWords>;

pub(super) struct HeaderWords;

impl Words for HeaderWords {
    type Found = Header;
    const SUBJECT: &'static str = "the header of a log of reads";

    fn batch(&self, _: &dyn Fabric) -> Option<Batch> {
        let at: Vec<u64> = (0..HEADER_WORDS as u64).map(|word| 8 * word).collect();
        Some(Batch::read_words(&at))
    }

    fn found(&self, done: &Completed) -> Header {
        let mut header = [0; HEADER_WORDS];
        for (word, done) in header.iter_mut().zip(done) {
            *word = done.word().unwrap_or(0);
        }
        header
    }
}
