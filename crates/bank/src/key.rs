//! Under which name a block stands in a bank (rule B2).

use crate::{BlockSize, Rules, Secret};

/// One version of one file. Made once an open, used for each of its blocks.
///
/// ```text
///  | length: 2 | identity | length: 2 | version | tag: 8 |      little endian; a tag after a purge only
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileKey(Vec<u8>);

/// One block of one version of one file.
///
/// ```text
///  | file key | block size: 4 | block: 8 |      little endian
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockKey {
    bytes: Vec<u8>,
    block: u64,
    is_listing: bool,
}

/// The name of an item in a daemon: 32 characters of the alphabet of base64url.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name([u8; 32]);

impl FileKey {
    /// The key of `identity` at `version`. Either is cut at 65,535 bytes, which no file system reaches.
    pub fn new(identity: &[u8], version: &[u8], rules: Rules) -> Self {
        let mut bytes = Vec::with_capacity(identity.len() + version.len() + 4);
        let mut push = |part: &[u8], counts: bool| {
            let part = if counts { &part[..part.len().min(usize::from(u16::MAX))] } else { &[] };
            bytes.extend((part.len() as u16).to_le_bytes());
            bytes.extend(part);
        };
        push(identity, rules.identity);
        push(version, rules.version);
        FileKey(bytes)
    }

    /// The same version, whose blocks are other ones: those under the key without `tag` are not found under it.
    pub fn tagged(mut self, tag: u64) -> Self {
        self.0.extend(tag.to_le_bytes());
        self
    }

    /// The key of one of its blocks.
    pub fn block(&self, size: BlockSize, block: u64) -> BlockKey {
        let mut bytes = Vec::with_capacity(self.0.len() + 12);
        bytes.extend(&self.0);
        bytes.extend(size.bytes().to_le_bytes());
        bytes.extend(block.to_le_bytes());
        BlockKey { bytes, block, is_listing: false }
    }
}

impl BlockKey {
    /// All that the key says. It stands in the envelope.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The number of the block in its file.
    pub fn block(&self) -> u64 {
        self.block
    }

    /// The same, for a block of a listing, which is counted apart from blocks of files.
    pub(crate) fn of_listing(self) -> Self {
        BlockKey { is_listing: true, ..self }
    }

    /// Whether it is a block of a listing.
    pub(crate) fn is_listing(&self) -> bool {
        self.is_listing
    }

    /// The name under which the block stands in a daemon.
    pub fn name(&self, secret: &Secret) -> Name {
        const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let mut name = [0; 32];
        let letter = |bits: u32, place: u32| ALPHABET[(bits >> place & 63) as usize];
        for (three, four) in secret.name(&self.bytes).chunks_exact(3).zip(name.chunks_exact_mut(4)) {
            let bits = u32::from_be_bytes([0, three[0], three[1], three[2]]);
            four.copy_from_slice(&[letter(bits, 18), letter(bits, 12), letter(bits, 6), letter(bits, 0)]);
        }
        Name(name)
    }
}

impl Name {
    /// Its 32 printable bytes.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(identity: &[u8], version: &[u8], size: u32, block: u64) -> Name {
        let file = FileKey::new(identity, version, Rules::default());
        file.block(BlockSize::new(size).unwrap(), block).name(&Secret::new([1; 32]))
    }

    #[test]
    fn each_part_of_a_key_makes_another_name() {
        let one = name(b"ab", b"c", 4096, 0);
        assert!(one.bytes().iter().all(|byte| byte.is_ascii_graphic()));
        assert_eq!(one, name(b"ab", b"c", 4096, 0));
        // Lengths stand in the key, so no byte wanders from the identity to the version.
        assert_ne!(one, name(b"a", b"bc", 4096, 0));
        assert_ne!(one, name(b"ab", b"d", 4096, 0));
        assert_ne!(one, name(b"ab", b"c", 8192, 0));
        assert_ne!(one, name(b"ab", b"c", 4096, 1));
        let tagged = |tag| {
            let file = FileKey::new(b"ab", b"c", Rules::default()).tagged(tag);
            file.block(BlockSize::new(4096).unwrap(), 0).name(&Secret::new([1; 32]))
        };
        assert!(one != tagged(1) && tagged(1) != tagged(2));
    }
}
