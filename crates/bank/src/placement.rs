//! Which daemon holds a block.

use std::hash::Hasher;

use siphasher::sip::SipHasher13;

use crate::{Daemons, Name};

/// How blocks are spread over daemons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Placement {
    /// By weight and address, whatever the order of the list. A daemon that joins or leaves moves only its own share.
    #[default]
    Rendezvous,
    /// CRC32 of the name as libmemcache computes it, modulo the number of daemons, in the order of the list.
    Crc32,
    /// The block's number modulo the number of daemons, in the order of the list.
    Modulo,
}

impl Placement {
    /// The daemon of a block, as its position in the list.
    pub fn of(self, daemons: &Daemons, name: &Name, block: u64) -> usize {
        let count = daemons.list().len();
        match self {
            Placement::Crc32 => libmemcache_crc32(name.bytes()) as usize % count,
            Placement::Modulo => (block % count as u64) as usize,
            Placement::Rendezvous => {
                let scores = daemons.list().iter().map(|daemon| score(daemon.id, daemon.weight, name));
                let best = scores.enumerate().max_by(|one, other| one.1.total_cmp(&other.1));
                best.map_or(0, |(at, _)| at)
            }
        }
    }

    /// Whether clients that list the daemons in another order look for blocks elsewhere.
    pub fn minds_order(self) -> bool {
        self != Placement::Rendezvous
    }
}

/// `-weight / ln(u)` with `u` uniform in (0, 1): the highest of all is that of one daemon as often as its share of the weights says.
fn score(daemon: u64, weight: u32, name: &Name) -> f64 {
    let mut hasher = SipHasher13::new_with_keys(daemon, 0);
    hasher.write(name.bytes());
    let uniform = ((hasher.finish() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
    f64::from(weight) / -uniform.ln()
}

const CRC32: [u32; 256] = {
    let mut table = [0; 256];
    let mut at = 0;
    while at < 256 {
        let mut value = at as u32;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { value >> 1 ^ 0xEDB8_8320 } else { value >> 1 };
            bit += 1;
        }
        table[at] = value;
        at += 1;
    }
    table
};

/// The hash by which libmemcache, and `MEMCACHED_HASH_CRC` of libmemcached, choose a daemon: 15 bits out of the middle of a CRC32.
pub fn libmemcache_crc32(key: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| crc >> 8 ^ CRC32[((crc ^ u32::from(*byte)) & 0xFF) as usize];
    !key.iter().fold(u32::MAX, step) >> 16 & 0x7FFF
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BlockSize, FileKey, Rules, Secret};

    fn names(count: u64) -> Vec<Name> {
        let file = FileKey::new(b"file", b"1", Rules::default());
        let name = |block| file.block(BlockSize::new(4096).unwrap(), block).name(&Secret::new([1; 32]));
        (0..count).map(name).collect()
    }

    /// Printed by a C program that calls `libhashkit_crc32` of libmemcached 1.1.
    #[test]
    fn crc32_is_that_of_libmemcached() {
        for (key, hash) in [
            ("", 0),
            ("a", 26807),
            ("abc", 13604),
            ("/a/b/c:0", 19469),
            ("/home/x/file.dat:2048", 2867),
            ("0123456789abcdef0123456789abcdef", 30553),
            ("/vol/f:1048576", 17213),
            ("The quick brown fox jumps over the lazy dog", 16719),
        ] {
            assert_eq!(libmemcache_crc32(key.as_bytes()), hash, "{key}");
        }
    }

    #[test]
    fn rendezvous_follows_weights_and_ignores_order() {
        let daemons = Daemons::parse("memcached://a:1,b:1=3").unwrap();
        let turned = Daemons::parse("memcached://b:1=3,a:1").unwrap();
        let names = names(20_000);
        let mut of_b = 0;
        for name in &names {
            let at = Placement::Rendezvous.of(&daemons, name, 0);
            assert_eq!(at, 1 - Placement::Rendezvous.of(&turned, name, 0));
            of_b += at;
        }
        assert!((14_600..15_400).contains(&of_b), "{of_b} of 20,000 for three quarters of the weight");
    }

    #[test]
    fn a_daemon_that_leaves_moves_only_its_own_blocks() {
        let three = Daemons::parse("memcached://a:1,b:1,c:1").unwrap();
        let two = Daemons::parse("memcached://a:1,b:1").unwrap();
        for name in names(5000) {
            let before = Placement::Rendezvous.of(&three, &name, 0);
            if before < 2 {
                assert_eq!(Placement::Rendezvous.of(&two, &name, 0), before);
            }
        }
    }

    #[test]
    fn modulo_deals_the_blocks_of_a_file_in_turn() {
        let daemons = Daemons::parse("memcached://a:1,b:1,c:1").unwrap();
        let name = names(1)[0];
        let places: Vec<usize> = (0..6).map(|block| Placement::Modulo.of(&daemons, &name, block)).collect();
        assert_eq!(places, [0, 1, 2, 0, 1, 2]);
    }
}
