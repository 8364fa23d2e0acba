//! The tree of hashes of a file: BLAKE3's own, cut at our chunks, so that the root is what `b3sum` prints.

use blake3::Hasher;
use blake3::hazmat::{HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root};

/// A hash of a chunk or of a whole file.
pub type Hash = [u8; 32];

/// Bytes that are hashed at once, so that they are still in the cache of the core that copied them.
const PIECE: usize = 64 << 10;

/// How many chunks a file of `size` bytes has.
pub fn chunk_count(size: u64, chunk_bytes: u64) -> u64 {
    size.div_ceil(chunk_bytes)
}

/// The bytes of a chunk.
pub fn chunk_length(size: u64, chunk: u64, chunk_bytes: u64) -> u64 {
    size.saturating_sub(chunk * chunk_bytes).min(chunk_bytes)
}

/// The hash of the chunk at `offset`. A chunk that is the whole file has the file's root.
pub fn chunk_hash(bytes: &[u8], offset: u64, is_whole_file: bool) -> Hash {
    let mut hasher = ChunkHasher::new(offset, bytes.len() as u64, is_whole_file);
    hasher.update(bytes);
    hasher.finish()
}

/// The same for a chunk that comes in pieces.
pub(crate) struct ChunkHasher {
    hasher: Hasher,
    is_root: bool,
}

impl ChunkHasher {
    pub(crate) fn new(offset: u64, length: u64, is_whole_file: bool) -> ChunkHasher {
        let (mut hasher, is_root) = (Hasher::new(), is_whole_file || length == 0);
        if !is_root {
            hasher.set_input_offset(offset);
        }
        ChunkHasher { hasher, is_root }
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(PIECE) {
            self.hasher.update(piece);
        }
    }

    pub(crate) fn finish(self) -> Hash {
        if self.is_root { self.hasher.finalize().into() } else { self.hasher.finalize_non_root() }
    }
}

/// The root of a file, from the hashes of its chunks, all of which but the last are full.
pub fn root(chunks: &[Hash]) -> Hash {
    match chunks {
        [] => blake3::hash(b"").into(),
        [only] => *only,
        many => {
            let (left, right) = many.split_at(left_chunks(many.len()));
            merge_subtrees_root(&subtree(left), &subtree(right), Mode::Hash).into()
        }
    }
}

fn subtree(chunks: &[Hash]) -> Hash {
    match chunks {
        [only] => *only,
        many => {
            let (left, right) = many.split_at(left_chunks(many.len()));
            merge_subtrees_non_root(&subtree(left), &subtree(right), Mode::Hash)
        }
    }
}

/// The largest power of two below `count`, which is at least 2.
fn left_chunks(count: usize) -> usize {
    1 << (usize::BITS - 1 - (count - 1).leading_zeros())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_that_of_the_whole_file() {
        let bytes: Vec<u8> = (0..40_000u32).map(|at| (at % 251) as u8).collect();
        for chunk_bytes in [1024, 4096] {
            for size in [0, 1, 1023, 1024, 1025, 4096, 4097, 8192, 12_289, 40_000] {
                let file = &bytes[..size];
                let count = chunk_count(size as u64, chunk_bytes);
                let chunks: Vec<Hash> = (0..count)
                    .map(|chunk| {
                        let offset = chunk * chunk_bytes;
                        let length = chunk_length(size as u64, chunk, chunk_bytes);
                        chunk_hash(&file[offset as usize..(offset + length) as usize], offset, count == 1)
                    })
                    .collect();
                assert_eq!(root(&chunks), *blake3::hash(file).as_bytes(), "{size} in chunks of {chunk_bytes}");
            }
        }
    }
}
