//! Tenants: clients with keys, a floor and a share of the memory of their own.
//!
//! A tenant is known to all nodes by 16 bits of the hash of its name. They stand in the hash of each of its keys and in the head of each of its objects, so an
//! entry and an object say whose they are. Clients of no tenant are the tenant [`Tenant::DEFAULT`].

use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher13;

/// Where a tenant stands in the hash of a key: below the tag.
const AT: u32 = 41;
/// Its bits there.
const BITS: u64 = 0xFFFF << AT;
/// Floor words of a table: a power of two.
pub(crate) const FLOORS: usize = 4096;

/// A tenant, as nodes know it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tenant(pub u16);

impl Tenant {
    /// Clients of no tenant.
    pub const DEFAULT: Tenant = Tenant(0);

    /// The tenant with this name; the default one has none. Two names may be one tenant: [`clash`](Self::clashes_with) says so beforehand.
    pub fn named(name: &str) -> Tenant {
        if name.is_empty() {
            return Tenant::DEFAULT;
        }
        let hash = SipHasher13::new_with_keys(0, 1).hash(name.as_bytes());
        // None has the floor of the default one.
        let floor = 1 + hash % (FLOORS as u64 - 1);
        let above = (hash >> 48) & (0xFFFF / FLOORS as u64);
        Tenant((above * FLOORS as u64 + floor) as u16)
    }

    /// Whether a flush of one makes nothing of the other's keys too; or they are one tenant.
    pub fn clashes_with(self, other: Tenant) -> bool {
        self.floor_index() == other.floor_index()
    }

    /// Whose key has this hash.
    pub fn of(hash: u64) -> Tenant {
        Tenant(((hash & BITS) >> AT) as u16)
    }

    /// The hash of a key of this tenant, the same at every node and in every build: SipHash-1-3 under the key (tenant, 0), with the tenant in its bits 41 to 56.
    pub fn hash_of(self, key: &[u8]) -> u64 {
        let hash = SipHasher13::new_with_keys(u64::from(self.0), 0).hash(key);
        hash & !BITS | u64::from(self.0) << AT
    }

    /// Which of the floor words of a table is its own.
    pub(crate) fn floor_index(self) -> usize {
        usize::from(self.0) & (FLOORS - 1)
    }
}

/// What a tenant may have of one node's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Units of which no other tenant takes any.
    pub guaranteed: u32,
    /// Units at most.
    pub most: u32,
    /// Objects at most.
    pub objects: u32,
}

impl Default for Share {
    /// Nothing is guaranteed, nothing refused.
    fn default() -> Share {
        Share { guaranteed: 0, most: u32::MAX, objects: u32::MAX }
    }
}

/// What a tenant has of one node's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Whose.
    pub tenant: Tenant,
    /// Units of its objects.
    pub units: u32,
    /// Its objects.
    pub objects: u32,
    /// Its objects that left for want of room.
    pub evicted: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_says_whose_key_it_is() {
        let (one, other) = (Tenant::named("one"), Tenant::named("other"));
        assert!(one != other && !one.clashes_with(other) && !one.clashes_with(Tenant::DEFAULT));
        let mut seen = std::collections::BTreeSet::new();
        for key in 0..1000u32 {
            for tenant in [Tenant::DEFAULT, one, other, Tenant(u16::MAX)] {
                let hash = tenant.hash_of(&key.to_le_bytes());
                assert!(Tenant::of(hash) == tenant && seen.insert(hash));
            }
        }
        assert_eq!(Tenant::named(""), Tenant::DEFAULT);
        let shared = (0..5000).filter(|name| Tenant::named(&name.to_string()).floor_index() == 0).count();
        assert_eq!(shared, 0, "the default tenant has its floor for itself");
    }
}
