//! Names of pages and of what they depend on, as keyed 64-bit hashes.
//!
//! Two names may share a hash, and nothing becomes stale by it:
//! - two dependencies that share one are moved together: pages are bumped that need not have been;
//! - two pages that share one have one dependency set at their home, and whichever registers another set than the one
//!   that stands bumps the word first (rule P2), so the other's copy is dead. A proxy finds its copies by the whole key,
//!   never by the hash.
//!
//! The key is secret, so that a stranger cannot choose names that share a hash and make a cache miss at will. It must
//! be the same on every node, or an update here would not touch what a page there depends on: so its fingerprint
//! stands in the page table and in every frame of updates, and a mismatch is refused.

use std::fmt;
use std::hash::Hasher as _;

use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher24;
use siphasher::sip128::{self, Hasher128 as _};
use verbena_terms::MAX_DEPENDENCIES;

/// A cached page: one method, address and variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PageId(pub u64);

/// Something in the database that pages are made of: a row, a column's value, a table, a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Dependency(pub u64);

impl From<PageId> for Dependency {
    /// Every page depends on itself, so that one page can be purged by an update of this.
    fn from(page: PageId) -> Self {
        Dependency(page.0)
    }
}

/// What a page depends on, or what an update touches.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Scope {
    /// All there is (rule P4): the answer whenever nothing better is known.
    Everything,
    /// These, sorted, each once; never none and never more than [`MAX_DEPENDENCIES`].
    On(Box<[Dependency]>),
    /// Every copy, also those that are compared with the purge word alone (rule H1). No page depends on it: an update touches it.
    All,
}

impl Scope {
    /// The scope of these dependencies; of none, or of too many, it is everything.
    pub fn of(dependencies: impl IntoIterator<Item = Dependency>) -> Scope {
        // What is beyond the bound is not looked at, so it must count as anything (rule P4).
        let mut dependencies = dependencies.into_iter();
        let mut set: Vec<Dependency> = dependencies.by_ref().take(4 * MAX_DEPENDENCIES).collect();
        if dependencies.next().is_some() {
            return Scope::Everything;
        }
        set.sort_unstable();
        set.dedup();
        if set.is_empty() || set.len() > MAX_DEPENDENCIES {
            return Scope::Everything;
        }
        Scope::On(set.into_boxed_slice())
    }

    /// The dependencies, none if the scope is everything.
    pub fn dependencies(&self) -> &[Dependency] {
        match self {
            Scope::Everything | Scope::All => &[],
            Scope::On(set) => set,
        }
    }

    /// The scope of an update that touches this: of too much, it is every copy, for what is not named may be what a copy
    /// of either kind is found by.
    #[must_use]
    pub fn of_update(dependencies: impl IntoIterator<Item = Dependency>) -> Scope {
        match Scope::of(dependencies) {
            Scope::Everything => Scope::All,
            scope => scope,
        }
    }

    /// Whether it keeps what [`of`](Self::of) establishes: a scope from outside may not.
    pub fn is_well_formed(&self) -> bool {
        match self {
            Scope::Everything | Scope::All => true,
            Scope::On(set) => {
                (1..=MAX_DEPENDENCIES).contains(&set.len()) && set.windows(2).all(|pair| pair[0] < pair[1])
            }
        }
    }
}

/// Turns names into hashes under the cluster's key.
#[derive(Clone)]
pub struct Names {
    key: [u8; 16],
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Names(key not shown)")
    }
}

impl Names {
    /// Names under the key that every node of the cluster shares.
    pub fn new(key: [u8; 16]) -> Self {
        Names { key }
    }

    /// The page of this cache key (method, address, variant: whatever tells two answers apart).
    pub fn page(&self, key: &[u8]) -> PageId {
        PageId(self.hash(b'p', key))
    }

    /// The dependency of this name. ASCII case is folded: some makers of tags do, and a name that matches more than it
    /// should is safe.
    pub fn dependency(&self, name: &[u8]) -> Dependency {
        let mut hasher = self.hasher(b'd');
        for byte in name {
            hasher.write(&[byte.to_ascii_lowercase()]);
        }
        Dependency(hasher.finish())
    }

    /// What two nodes compare to know that they share a key; tells nothing about it.
    pub fn fingerprint(&self) -> u64 {
        self.hash(b'f', b"verbena content names")
    }

    /// The secret from which a proxy makes the keys of its pages: the same at every node, and it reveals nothing about this key.
    pub fn page_secret(&self) -> [u8; 16] {
        let mut hasher = sip128::SipHasher24::new_with_key(&self.key);
        hasher.write(b"spages");
        hasher.finish128().as_bytes()
    }

    fn hash(&self, kind: u8, bytes: &[u8]) -> u64 {
        let mut hasher = self.hasher(kind);
        hasher.write(bytes);
        hasher.finish()
    }

    fn hasher(&self, kind: u8) -> SipHasher24 {
        let mut hasher = SipHasher24::new_with_key(&self.key);
        hasher.write(&[kind]);
        hasher
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_dependency_and_too_many_are_everything() {
        assert_eq!(Scope::of([]), Scope::Everything);
        let many = (0..MAX_DEPENDENCIES as u64 + 1).map(Dependency);
        assert_eq!(Scope::of(many), Scope::Everything);
        assert_eq!(Scope::of((0..u64::MAX).map(Dependency)), Scope::Everything);
        let repeated = std::iter::repeat_n(Dependency(1), 4 * MAX_DEPENDENCIES).chain([Dependency(2)]);
        assert_eq!(Scope::of(repeated), Scope::Everything, "the last of them is not lost");
        let most = Scope::of((0..MAX_DEPENDENCIES as u64).map(Dependency));
        assert_eq!(most.dependencies().len(), MAX_DEPENDENCIES);
        assert!(most.is_well_formed());
    }

    #[test]
    fn a_scope_is_sorted_and_each_once() {
        let scope = Scope::of([Dependency(3), Dependency(1), Dependency(3)]);
        assert_eq!(scope.dependencies(), [Dependency(1), Dependency(3)]);
        assert!(!Scope::On(Box::new([Dependency(3), Dependency(1)])).is_well_formed());
        assert!(!Scope::On(Box::new([])).is_well_formed());
    }

    #[test]
    fn names_differ_by_kind_and_key_and_fold_case() {
        let names = Names::new([7; 16]);
        assert_eq!(names.dependency(b"Product-1"), names.dependency(b"product-1"));
        assert_ne!(names.dependency(b"product-1").0, names.page(b"product-1").0);
        assert_ne!(names.page(b"a"), Names::new([8; 16]).page(b"a"));
        assert_ne!(names.fingerprint(), Names::new([8; 16]).fingerprint());
        assert_ne!(names.page_secret(), Names::new([8; 16]).page_secret());
        assert_eq!(format!("{names:?}"), "Names(key not shown)");
    }
}
