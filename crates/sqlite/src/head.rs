//! The head of a file, and which of its blocks have which bytes.

use rsqlite_vfs::{VfsError, VfsErrorCode, VfsResult};
use verbena_terms::Format;

use crate::vfs::Options;

const FORMAT: Format = Format::new(*b"VSQF", 1);
const WORD: usize = 8;
const WORDS: usize = 4;

/// How a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) block_bytes: u64,
    pub(crate) size: u64,
    /// Blocks that were made. Some may be gone again where a deletion ended early.
    pub(crate) blocks: u64,
}

impl Head {
    pub(crate) const BYTES: u64 = (WORDS * WORD) as u64;

    pub(crate) fn encode(self) -> Vec<u8> {
        let words = [u64::from_le_bytes(FORMAT.header()), self.block_bytes, self.size, self.blocks];
        words.into_iter().flat_map(u64::to_le_bytes).collect()
    }

    pub(crate) fn decode(name: &str, bytes: &[u8]) -> VfsResult<Self> {
        let bad = |why: String| VfsError::new(VfsErrorCode::CantOpen, format!("{name} is no file: {why}").into());
        if bytes.len() as u64 != Head::BYTES {
            return Err(bad(format!("it has {} bytes", bytes.len())));
        }
        FORMAT.check(bytes).map_err(|error| bad(error.to_string()))?;
        let word = |at: usize| {
            let bytes = bytes[at * WORD..(at + 1) * WORD].try_into();
            u64::from_le_bytes(bytes.expect("invariant: as many bytes as a word has"))
        };
        let head = Head { block_bytes: word(1), size: word(2), blocks: word(3) };
        let holds = head.blocks.checked_mul(head.block_bytes).is_some_and(|bytes| head.size <= bytes);
        let is_one = Options::is_block(head.block_bytes) && holds;
        is_one.then_some(head).ok_or_else(|| bad(format!("{head:?}")))
    }
}

pub(crate) fn block_name(name: &str, block: u64) -> String {
    format!("{name}/{block}")
}

/// The blocks that `bytes` from `offset` on touch: which, from which byte of it on, and the part.
pub(crate) fn parts(block_bytes: u64, offset: u64, bytes: &mut [u8]) -> impl Iterator<Item = (u64, usize, &mut [u8])> {
    let (mut at, mut rest) = (offset, bytes);
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (block, within) = (at / block_bytes, at % block_bytes);
        let count = rest.len().min((block_bytes - within) as usize);
        let (part, behind) = std::mem::take(&mut rest).split_at_mut(count);
        (at, rest) = (at + count as u64, behind);
        Some((block, within as usize, part))
    })
}
