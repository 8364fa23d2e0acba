//! An object in its holder's memory.
//!
//! ```text
//!  0         8         16       20      24      28  29  30  32
//!  +---------+---------+--------+-------+-------+---+---+---+-----+-------+
//!  | version | cas     | expiry | flags | value | k | m | t | key | value |     k: bytes of the key; m: marks; t: tenant
//!  +---------+---------+--------+-------+-------+---+---+---+-----+-------+
//! ```
//!
//! The version word is [`FILLING`] from before the first other byte changes until all stand and the home has given the version (rule K3). A
//! reader reads the version, all bytes, and the version again, in one batch, and compares both with the version word of the entry (rule K2).

use verbena_memcache::semantics::{Head, Item};

use crate::place::UNIT_BYTES;
use crate::tenant::Tenant;
use crate::version::Version;

/// The version word of an object that is not whole. No home gives it.
pub const FILLING: Version = Version(u64::MAX);
/// Bytes before the key.
pub const HEAD_BYTES: usize = 32;

const IS_STALE: u8 = 1;
const IS_WON: u8 = 2;
const HAS_CAS: u8 = 4;

/// A key and its item, as they lie in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Whose it is.
    pub tenant: Tenant,
    /// The key.
    pub key: Vec<u8>,
    /// The item. Its cas value is the version unless a client chose one (rule K12).
    pub item: Item,
    /// Whether a client chose the cas value.
    pub has_cas: bool,
}

/// What a reader got in one batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadBack {
    /// The version word, read first.
    pub first: u64,
    /// All bytes of the object, read between.
    pub bytes: Vec<u8>,
    /// The version word, read last.
    pub last: u64,
}

/// How many units an object takes.
pub fn units(key: &[u8], value: &[u8]) -> usize {
    (HEAD_BYTES + key.len() + value.len()).div_ceil(UNIT_BYTES)
}

impl Object {
    /// Of its key.
    pub fn hash(&self) -> u64 {
        self.tenant.hash_of(&self.key)
    }

    /// All bytes, with this version.
    pub fn encode(&self, version: Version) -> Vec<u8> {
        let Head { flags, expires, cas, is_stale, is_won, .. } = self.item.head;
        let mut bytes = Vec::with_capacity(units(&self.key, &self.item.value) * UNIT_BYTES);
        bytes.extend_from_slice(&version.0.to_le_bytes());
        bytes.extend_from_slice(&cas.to_le_bytes());
        // Seconds of the Unix clock, until the year 2106.
        bytes.extend_from_slice(&u32::try_from(expires).unwrap_or(u32::MAX).to_le_bytes());
        bytes.extend_from_slice(&flags.to_le_bytes());
        bytes.extend_from_slice(&(self.item.value.len() as u32).to_le_bytes());
        let marks = [(is_stale, IS_STALE), (is_won, IS_WON), (self.has_cas, HAS_CAS)];
        let marks = marks.iter().filter(|(is_set, _)| *is_set).fold(0, |marks, (_, mark)| marks | mark);
        bytes.extend_from_slice(&[self.key.len() as u8, marks]);
        bytes.extend_from_slice(&self.tenant.0.to_le_bytes());
        bytes.extend_from_slice(&self.key);
        bytes.extend_from_slice(&self.item.value);
        bytes.resize(bytes.len().next_multiple_of(UNIT_BYTES), 0);
        bytes
    }

    /// The object in these bytes, if they are whole. Says nothing of its validity.
    pub fn decode(bytes: &[u8]) -> Option<(Version, Object)> {
        let word = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let half = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let (version, key_bytes, marks) = (Version(word(0)?), usize::from(*bytes.get(28)?), *bytes.get(29)?);
        let tenant = Tenant(u16::from_le_bytes(bytes.get(30..32)?.try_into().ok()?));
        let value_at = HEAD_BYTES + key_bytes;
        let value = bytes.get(value_at..value_at + half(24)? as usize)?;
        let has_cas = marks & HAS_CAS != 0;
        let head = Head {
            flags: half(20)?,
            expires: u64::from(half(16)?),
            cas: if has_cas { word(8)? } else { version.0 },
            is_stale: marks & IS_STALE != 0,
            is_won: marks & IS_WON != 0,
            is_fetched: false,
            accessed: 0,
        };
        let key = bytes[HEAD_BYTES..value_at].to_vec();
        Some((version, Object { tenant, key, item: Item { head, value: value.to_vec() }, has_cas }))
    }
}

impl ReadBack {
    /// The object, if it is that of this tenant's `key` in this version, whole (rules K2, K3).
    pub fn check(&self, tenant: Tenant, key: &[u8], version: Version) -> Option<Object> {
        let is_valid = version != FILLING && self.first == version.0 && self.last == version.0;
        let (_, object) = is_valid.then(|| Object::decode(&self.bytes))??;
        (object.tenant == tenant && object.key == key).then_some(object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(key: &[u8], value: &[u8]) -> Object {
        let head = Head { flags: 7, expires: 99, cas: 5, is_stale: true, is_won: false, ..Head::default() };
        Object { tenant: Tenant(0xABC), key: key.to_vec(), item: Item { head, value: value.to_vec() }, has_cas: true }
    }

    #[test]
    fn what_was_encoded_is_decoded() {
        for (key, value) in [(&b"k"[..], &b""[..]), (&[b'x'; 250], &[7; 1000]), (b"key", b"0123456789abcde")] {
            let object = object(key, value);
            let bytes = object.encode(Version(9));
            assert_eq!(bytes.len(), units(key, value) * UNIT_BYTES);
            assert_eq!(Object::decode(&bytes), Some((Version(9), object)));
            for cut in 0..HEAD_BYTES + key.len() + value.len() {
                assert_eq!(Object::decode(&bytes[..cut]), None);
            }
        }
        let plain = Object { has_cas: false, ..object(b"k", b"v") };
        assert_eq!(Object::decode(&plain.encode(Version(9))).unwrap().1.item.head.cas, 9);
    }

    #[test]
    fn only_the_whole_object_of_the_version_counts() {
        let bytes = object(b"k", b"v").encode(Version(9));
        let read = ReadBack { first: 9, bytes, last: 9 };
        let of = Tenant(0xABC);
        assert!(read.check(of, b"k", Version(9)).is_some());
        assert!(read.check(of, b"l", Version(9)).is_none() && read.check(of, b"k", Version(8)).is_none());
        assert!(read.check(Tenant::DEFAULT, b"k", Version(9)).is_none(), "of another tenant");
        for (first, last) in [(9, 8), (8, 9), (FILLING.0, FILLING.0)] {
            let torn = ReadBack { first, last, ..read.clone() };
            assert!(torn.check(of, b"k", Version(9)).is_none() && torn.check(of, b"k", FILLING).is_none());
        }
    }
}
