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
//!
//! Where the volume is encrypted, all but the header and the salt is sealed ([`Seal`]), the key among it, which may hold a path:
//!
//! ```text
//!  0        8          40
//!  +--------+----------+--------------------------------------------+---------+
//!  | header | salt: 32 | sealed: key's bytes, its bytes, key, bytes | tag: 16 |
//!  +--------+----------+--------------------------------------------+---------+
//! ```

use thiserror::Error;
use verbena_terms::{Format, HEADER_BYTES};

use crate::seal::Seal;
use crate::{BlockKey, Rules, Secret, SecretError};

const FORMAT: Format = Format::new(*b"VBNK", 1);
const SEALED: Format = Format::new(*b"VBNE", 1);
/// Where what is sealed begins.
const CLEAR_BYTES: usize = HEADER_BYTES + Seal::SALT;
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
    /// Its seal does not open: turned bits, or another volume's secret.
    #[error("its seal does not open")]
    Seal,
}

/// Blocks into envelopes, and out again.
pub struct Envelope;

impl Envelope {
    /// Bytes that an envelope takes beside those of the block, for a key of `key` bytes. A sealed one takes 32 more.
    pub const fn overhead(key: usize) -> usize {
        HEADER_BYTES + 8 + key + CHECKSUM_BYTES
    }

    /// `bytes` as an item that proves itself. An encrypted volume needs random bytes of the system for it.
    pub fn seal(secret: &Secret, key: &BlockKey, bytes: &[u8]) -> Result<Vec<u8>, SecretError> {
        let mut item = Vec::with_capacity(Self::overhead(key.bytes().len()) + Seal::SALT + bytes.len());
        let salt = secret.seal().map(|seal| Ok((seal, Seal::salt()?))).transpose()?;
        match &salt {
            Some((_, salt)) => {
                item.extend(SEALED.header());
                item.extend(salt);
            }
            None => item.extend(FORMAT.header()),
        }
        item.extend((key.bytes().len() as u32).to_le_bytes());
        item.extend((bytes.len() as u32).to_le_bytes());
        item.extend(key.bytes());
        item.extend(bytes);
        match &salt {
            Some((seal, salt)) => seal.close(salt, &mut item, CLEAR_BYTES),
            None => item.extend(secret.checksum(&[&item])),
        }
        Ok(item)
    }

    /// The block in an item, if the item proves that it is this block.
    pub fn open(secret: &Secret, key: &BlockKey, mut item: Vec<u8>, rules: Rules) -> Result<Vec<u8>, Fault> {
        let range = match secret.seal() {
            Some(seal) => opened(seal, key, &mut item)?,
            None if rules.envelope => proven(secret, key, &item)?,
            None => claimed(&item, HEADER_BYTES, CHECKSUM_BYTES)?,
        };
        item.truncate(range.end);
        item.drain(..range.start);
        Ok(item)
    }
}

/// Where the bytes of the block stand by what the item says of itself: lengths at `at`, and `behind` bytes at its end.
fn claimed(item: &[u8], at: usize, behind: usize) -> Result<std::ops::Range<usize>, Fault> {
    let length = |at: usize| -> Option<usize> {
        let four: [u8; 4] = item.get(at..at + 4)?.try_into().ok()?;
        usize::try_from(u32::from_le_bytes(four)).ok()
    };
    let (key, bytes) = length(at).zip(length(at + 4)).ok_or(Fault::Length)?;
    let start = at + 8 + key;
    match item.len().checked_sub(start + behind) {
        Some(rest) if rest == bytes => Ok(start..start + bytes),
        _ => Err(Fault::Length),
    }
}

fn opened(seal: &Seal, key: &BlockKey, item: &mut [u8]) -> Result<std::ops::Range<usize>, Fault> {
    if item.get(..HEADER_BYTES).ok_or(Fault::Length)? != SEALED.header() {
        return Err(Fault::Format);
    }
    let salt = item.get(HEADER_BYTES..CLEAR_BYTES).and_then(|salt| salt.try_into().ok()).ok_or(Fault::Length)?;
    seal.open(&salt, item, CLEAR_BYTES).map_err(|_| Fault::Seal)?;
    let range = claimed(item, CLEAR_BYTES, Seal::TAG)?;
    if item[CLEAR_BYTES + 8..range.start] == *key.bytes() { Ok(range) } else { Err(Fault::Key) }
}

fn proven(secret: &Secret, key: &BlockKey, item: &[u8]) -> Result<std::ops::Range<usize>, Fault> {
    if item.get(..HEADER_BYTES).ok_or(Fault::Length)? != FORMAT.header() {
        return Err(Fault::Format);
    }
    let range = claimed(item, HEADER_BYTES, CHECKSUM_BYTES)?;
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
        let item = Envelope::seal(&Secret::new([1; 32]), &key(3), b"bytes").unwrap();
        assert_eq!(item.len(), Envelope::overhead(key(3).bytes().len()) + 5);
        assert_eq!(open(1, 3, &item).unwrap(), b"bytes");
        assert_eq!(open(2, 3, &item), Err(Fault::Checksum));
        assert_eq!(open(1, 4, &item), Err(Fault::Key));
        assert_eq!(open(1, 3, b"VALUE of something else"), Err(Fault::Format));
    }

    #[test]
    fn a_turned_bit_anywhere_and_any_cut_is_a_miss() {
        let item = Envelope::seal(&Secret::new([1; 32]), &key(3), b"bytes").unwrap();
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

    fn encrypted(secret: u8) -> Secret {
        Secret::new([secret; 32]).encrypted("volume")
    }

    #[test]
    fn a_sealed_block_is_read_by_clients_of_its_volume_alone() {
        let open = |secret: &Secret, block: u64, item: &[u8]| {
            Envelope::open(secret, &key(block), item.to_vec(), Rules::default())
        };
        let item = Envelope::seal(&encrypted(1), &key(3), b"plain bytes").unwrap();
        assert_eq!(item.len(), Envelope::overhead(key(3).bytes().len()) + 32 + 11);
        assert_eq!(open(&encrypted(1), 3, &item).unwrap(), b"plain bytes");
        let is_in = |part: &[u8]| item.windows(part.len()).any(|window| window == part);
        assert!(!is_in(b"plain") && !is_in(b"file") && !is_in(&key(3).bytes()[..8]));
        // The same block is another item each time.
        assert_ne!(item, Envelope::seal(&encrypted(1), &key(3), b"plain bytes").unwrap());
        assert_eq!(open(&encrypted(2), 3, &item), Err(Fault::Seal));
        assert_eq!(open(&Secret::new([1; 32]).encrypted("other"), 3, &item), Err(Fault::Seal));
        assert_eq!(open(&encrypted(1), 4, &item), Err(Fault::Key));
        // Neither kind of client takes the other's, under whatever name.
        assert_eq!(open(&Secret::new([1; 32]), 3, &item), Err(Fault::Format));
        let clear = Envelope::seal(&Secret::new([1; 32]), &key(3), b"plain bytes").unwrap();
        assert_eq!(open(&encrypted(1), 3, &clear), Err(Fault::Format));
        for bit in 0..item.len() * 8 {
            let mut turned = item.clone();
            turned[bit / 8] ^= 1 << (bit % 8);
            let fault = if bit < HEADER_BYTES * 8 { Fault::Format } else { Fault::Seal };
            assert_eq!(open(&encrypted(1), 3, &turned), Err(fault), "bit {bit}");
        }
        for end in 0..item.len() {
            assert!(open(&encrypted(1), 3, &item[..end]).is_err(), "cut at {end}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_judged_by_an_encrypted_volume(mut item in proptest::collection::vec(any::<u8>(), 0..200), is_ours: bool) {
            if is_ours && item.len() >= HEADER_BYTES {
                item[..HEADER_BYTES].copy_from_slice(&SEALED.header());
            }
            prop_assert!(Envelope::open(&encrypted(1), &key(3), item, Rules::default()).is_err());
        }

        #[test]
        fn any_bytes_are_judged(item in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(open(1, 3, &item).is_err());
        }
    }
}
