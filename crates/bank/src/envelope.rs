//! What a block stands in: whatever does not prove itself is a miss (rule B2).
//!
//! ```text
//!  0        8             12          16     16+k
//!  +--------+-------------+-----------+------+-------+--------------+
//!  | header | key's bytes | its bytes | key  | bytes | checksum: 16 |     little endian
//!  +--------+-------------+-----------+------+-------+--------------+
//! ```
//!
//! The checksum is keyed with the volume's secret and covers all before it. An item of another volume, another version of the layout,
//! another file or another block fails, as does one with a bit turned or the end cut off.

use thiserror::Error;
use verbena_terms::{Format, HEADER_BYTES};

use crate::{BlockKey, Rules, Secret};

const FORMAT: Format = Format::new(*b"VBNK", 1);
const CHECKSUM_BYTES: usize = 16;

/// Why an item of a bank is no block of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Error)]
pub enum Fault {
    /// It is shorter than it says, or longer.
    #[error("its length is not what it says")]
    Length,
    /// It is something else, or another version of the layout.
    #[error("it is something else, or another version")]
    Format,
    /// It is another block.
    #[error("it is another block")]
    Key,
    /// Its checksum is wrong: turned bits, or another volume's secret.
    #[error("its checksum is wrong")]
    Checksum,
}

/// Blocks into envelopes, and out again.
pub struct Envelope;

impl Envelope {
    /// Bytes that an envelope takes beside those of the block, for a key of `key` bytes.
    pub const fn overhead(key: usize) -> usize {
        HEADER_BYTES + 8 + key + CHECKSUM_BYTES
    }

    /// `bytes` as an item that proves itself.
    pub fn seal(secret: &Secret, key: &BlockKey, bytes: &[u8]) -> Vec<u8> {
        let mut sealed = Vec::with_capacity(Self::overhead(key.bytes().len()) + bytes.len());
        sealed.extend(FORMAT.header());
        sealed.extend((key.bytes().len() as u32).to_le_bytes());
        sealed.extend((bytes.len() as u32).to_le_bytes());
        sealed.extend(key.bytes());
        sealed.extend(bytes);
        let checksum = secret.checksum(&[&sealed]);
        sealed.extend(checksum);
        sealed
    }

    /// The block in an item, if the item proves that it is this block.
    pub fn open(secret: &Secret, key: &BlockKey, mut item: Vec<u8>, rules: Rules) -> Result<Vec<u8>, Fault> {
        let range = if rules.envelope { proven(secret, key, &item)? } else { claimed(&item)? };
        item.truncate(range.end);
        item.drain(..range.start);
        Ok(item)
    }
}

/// Where the bytes of the block stand by what the item says of itself.
fn claimed(item: &[u8]) -> Result<std::ops::Range<usize>, Fault> {
    let length = |at: usize| -> Option<usize> {
        let four: [u8; 4] = item.get(at..at + 4)?.try_into().ok()?;
        usize::try_from(u32::from_le_bytes(four)).ok()
    };
    let (key, bytes) = length(HEADER_BYTES).zip(length(HEADER_BYTES + 4)).ok_or(Fault::Length)?;
    let start = HEADER_BYTES + 8 + key;
    match item.len().checked_sub(start + CHECKSUM_BYTES) {
        Some(rest) if rest == bytes => Ok(start..start + bytes),
        _ => Err(Fault::Length),
    }
}

fn proven(secret: &Secret, key: &BlockKey, item: &[u8]) -> Result<std::ops::Range<usize>, Fault> {
    if item.get(..HEADER_BYTES).ok_or(Fault::Length)? != FORMAT.header() {
        return Err(Fault::Format);
    }
    let range = claimed(item)?;
    if item[HEADER_BYTES + 8..range.start] != *key.bytes() {
        return Err(Fault::Key);
    }
    let checksum = secret.checksum(&[&item[..range.end]]);
    // Every byte is looked at, so that the time says nothing of how many were right.
    let differs = checksum.iter().zip(&item[range.end..]).fold(0, |differs, (ours, theirs)| differs | (ours ^ theirs));
    if differs == 0 { Ok(range) } else { Err(Fault::Checksum) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{BlockSize, FileKey};

    fn key(block: u64) -> BlockKey {
        FileKey::new(b"file", b"version", Rules::default()).block(BlockSize::new(4096).unwrap(), block)
    }

    fn open(secret: u8, block: u64, item: &[u8]) -> Result<Vec<u8>, Fault> {
        Envelope::open(&Secret::new([secret; 32]), &key(block), item.to_vec(), Rules::default())
    }

    #[test]
    fn only_the_block_that_was_asked_for_proves_itself() {
        let item = Envelope::seal(&Secret::new([1; 32]), &key(3), b"bytes");
        assert_eq!(item.len(), Envelope::overhead(key(3).bytes().len()) + 5);
        assert_eq!(open(1, 3, &item).unwrap(), b"bytes");
        assert_eq!(open(2, 3, &item), Err(Fault::Checksum));
        assert_eq!(open(1, 4, &item), Err(Fault::Key));
        assert_eq!(open(1, 3, b"VALUE of something else"), Err(Fault::Format));
    }

    #[test]
    fn a_turned_bit_anywhere_and_any_cut_is_a_miss() {
        let item = Envelope::seal(&Secret::new([1; 32]), &key(3), b"bytes");
        for bit in 0..item.len() * 8 {
            let mut turned = item.clone();
            turned[bit / 8] ^= 1 << (bit % 8);
            assert!(open(1, 3, &turned).is_err(), "bit {bit}");
        }
        for end in 0..item.len() {
            assert!(open(1, 3, &item[..end]).is_err(), "cut at {end}");
        }
        assert_eq!(open(1, 3, &[&item[..], b"x"].concat()), Err(Fault::Length));
    }

    proptest! {
        #[test]
        fn any_bytes_are_judged(item in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(open(1, 3, &item).is_err());
        }
    }
}
