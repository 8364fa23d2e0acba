//! Which bytes of a home's share are free.
//!
//! First fit by address, neighbours joined when they are given back: what is allocated for long gathers at one end. How torn the rest
//! is, is measured ([`Heap::largest`] against [`Heap::free`]).

use std::collections::BTreeMap;

/// What extents are multiples of, in bytes: no two segments share a line of the processor's cache.
pub const EXTENT_ALIGNMENT: u64 = 64;

/// The free extents of a range of bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heap {
    /// Length by place; no two touch.
    extents: BTreeMap<u64, u64>,
    free: u64,
}

impl Heap {
    /// All of `bytes`, from `at` on, are free.
    pub fn new(at: u64, bytes: u64) -> Self {
        let bytes = bytes / EXTENT_ALIGNMENT * EXTENT_ALIGNMENT;
        let extents = (bytes > 0).then_some((at, bytes)).into_iter().collect();
        Heap { extents, free: bytes }
    }

    /// Bytes that are free.
    pub fn free(&self) -> u64 {
        self.free
    }

    /// Bytes of the largest extent that is free.
    pub fn largest(&self) -> u64 {
        self.extents.values().copied().max().unwrap_or(0)
    }

    /// Takes so many bytes, rounded up, and gives where; `None` if no extent has them.
    pub fn take(&mut self, bytes: u64) -> Option<u64> {
        let bytes = bytes.checked_next_multiple_of(EXTENT_ALIGNMENT)?;
        let (&at, &length) = self.extents.iter().find(|(_, length)| **length >= bytes)?;
        self.extents.remove(&at);
        if length > bytes {
            self.extents.insert(at + bytes, length - bytes);
        }
        self.free -= bytes;
        Some(at)
    }

    /// Gives back what was taken there.
    pub fn give(&mut self, at: u64, bytes: u64) {
        let bytes = bytes.next_multiple_of(EXTENT_ALIGNMENT);
        let (mut at, mut length) = (at, bytes);
        if let Some((&before, &its)) = self.extents.range(..at).next_back() {
            assert!(before + its <= at, "invariant: bytes are given back once");
            if before + its == at {
                self.extents.remove(&before);
                (at, length) = (before, its + length);
            }
        }
        if let Some((&after, &its)) = self.extents.range(at + 1..).next() {
            assert!(at + length <= after, "invariant: bytes are given back once");
            if at + length == after {
                self.extents.remove(&after);
                length += its;
            }
        }
        self.extents.insert(at, length);
        self.free += bytes;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_given_back_is_joined() {
        let mut heap = Heap::new(128, 1000);
        assert_eq!((heap.free(), heap.largest()), (960, 960));
        let (a, b, c) = (heap.take(64).unwrap(), heap.take(1).unwrap(), heap.take(65).unwrap());
        assert_eq!((a, b, c, heap.free()), (128, 192, 256, 704));
        assert_eq!(heap.take(705), None);
        heap.give(a, 64);
        heap.give(c, 65);
        assert_eq!((heap.free(), heap.largest()), (896, 832));
        heap.give(b, 1);
        assert_eq!(heap, Heap::new(128, 1000));
        assert_eq!((heap.take(u64::MAX), Heap::new(0, 63).take(1)), (None, None));
    }

    proptest! {
        #[test]
        fn no_byte_is_taken_twice_and_all_come_back(asked in prop::collection::vec((1u64..5000, any::<bool>()), 1..60)) {
            let mut heap = Heap::new(64, 1 << 16);
            let whole = heap.clone();
            let mut taken: Vec<(u64, u64)> = vec![];
            for (bytes, gives) in asked {
                if gives && !taken.is_empty() {
                    let (at, bytes) = taken.swap_remove(bytes as usize % taken.len());
                    heap.give(at, bytes);
                } else if let Some(at) = heap.take(bytes) {
                    let end = at + bytes.next_multiple_of(EXTENT_ALIGNMENT);
                    prop_assert!(at >= 64 && end <= 64 + (1 << 16));
                    for (other, its) in &taken {
                        prop_assert!(end <= *other || other + its <= at, "{at}..{end} and {other}+{its}");
                    }
                    taken.push((at, bytes));
                }
            }
            taken.into_iter().for_each(|(at, bytes)| heap.give(at, bytes));
            prop_assert_eq!(heap, whole);
        }
    }
}
