//! Which bytes of a home's share are free.
//!
//! First fit by address, neighbours joined when they are given back: what is allocated for long gathers at one end. How torn the rest
//! is, is published ([`Heap::largest`] against [`Heap::free`]).
//!
//! *The bound.* Between two free extents there is one that is taken. So of k that are taken at most k + 1 are free, and if b bytes are refused each of those has less:
//! less than b (k + 1) bytes are free. Whoever has at most M bytes at a time, in extents of up to n lines, is refused nothing in a share of about M log2 n
//! bytes, and some sequence of theirs needs as much (Robson, Worst case fragmentation of first fit and best fit storage allocation strategies, 1977).

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

    /// The free extents: where, and how long.
    pub fn extents(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.extents.iter().map(|(at, length)| (*at, *length))
    }

    /// Takes these bytes, rounded up; whether all of them were free.
    pub fn take_at(&mut self, at: u64, bytes: u64) -> bool {
        let Some(bytes) = bytes.checked_next_multiple_of(EXTENT_ALIGNMENT) else { return false };
        let around = self.extents.range(..=at).next_back().map(|(at, length)| (*at, *length));
        let Some((from, length)) =
            around.filter(|(from, length)| at - from <= *length && bytes <= length - (at - from))
        else {
            return false;
        };
        self.extents.remove(&from);
        let behind = from + length - (at + bytes);
        self.extents.extend((at > from).then_some((from, at - from)));
        self.extents.extend((behind > 0).then_some((at + bytes, behind)));
        self.free -= bytes;
        true
    }

    /// Takes `bytes`, rounded up, and returns where; `None` if no extent has them.
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

    /// Gives back what was taken there, and gives the free extent that it is in now: where, and how long.
    pub fn give(&mut self, at: u64, bytes: u64) -> (u64, u64) {
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
        (at, length)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use verbena_fabric::sim::{Dice, Seed};

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

    #[test]
    fn what_is_taken_at_its_place_is_nobody_elses() {
        let mut heap = Heap::new(128, 640);
        assert!(heap.take_at(256, 100) && heap.take_at(128, 64) && heap.take_at(704, 64));
        assert_eq!(heap.extents().collect::<Vec<_>>(), [(192, 64), (384, 320)]);
        for (at, bytes) in
            [(128, 64), (192, 128), (256, 64), (320, 64), (384, 384), (64, 64), (768, 64), (384, u64::MAX)]
        {
            assert!(!heap.take_at(at, bytes), "{at}+{bytes}");
        }
        assert_eq!(heap.give(256, 100), (192, 512));
        assert_eq!((heap.give(128, 64), heap.give(704, 64)), ((128, 576), (128, 640)));
        assert_eq!(heap, Heap::new(128, 640));
    }

    /// Takes and releases segments of four slots, of 64 bytes to `largest`, all magnitudes equally often, so that the
    /// heap stays `full_percent` full. Returns how many of `allocations` were refused although there were enough bytes
    /// in all, and the largest free extent's mean share of the free bytes.
    fn use_for_long(largest: u64, full_percent: u64, allocations: u64) -> (u64, f64) {
        const SHARE: u64 = 64 << 20;
        let (mut heap, mut dice) = (Heap::new(64, SHARE), Dice::new(Seed::from(largest + full_percent)));
        let (mut taken, mut has, mut refused, mut whole) = (Vec::<(u64, u64)>::new(), 0, 0, 0.0);
        for _ in 0..allocations {
            let magnitude = 64 << dice.below(u64::from((largest / 64).ilog2()));
            let bytes = 4 * (magnitude + dice.below(magnitude)).next_multiple_of(EXTENT_ALIGNMENT);
            while has + bytes > SHARE * full_percent / 100 {
                let (at, its) = taken.swap_remove(dice.below(taken.len() as u64) as usize);
                heap.give(at, its);
                has -= its;
            }
            whole += heap.largest() as f64 / heap.free() as f64;
            match heap.take(bytes) {
                Some(at) => {
                    taken.push((at, bytes));
                    has += bytes;
                }
                None => refused += 1,
            }
        }
        (refused, whole / allocations as f64)
    }

    #[test]
    fn a_share_that_is_used_for_long_is_not_torn() {
        const ALLOCATIONS: u64 = 20_000;
        for (largest, full_percent, most) in
            [(64 << 10, 75, 0), (64 << 10, 90, 2200), (1 << 20, 75, 150), (1 << 20, 90, 4200)]
        {
            let (refused, whole) = use_for_long(largest, full_percent, ALLOCATIONS);
            println!(
                "counted: up to {largest} bytes, {full_percent}% full: {refused} of {ALLOCATIONS} refused, {:.0}% of what is free in one piece",
                100.0 * whole
            );
            assert!(refused <= most, "{refused} are refused at {full_percent}%, of up to {largest} bytes");
        }
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
                } else {
                    let asked = bytes.next_multiple_of(EXTENT_ALIGNMENT);
                    prop_assert!(heap.free() < asked * (taken.len() as u64 + 1), "{} bytes are free", heap.free());
                }
            }
            taken.into_iter().for_each(|(at, bytes)| _ = heap.give(at, bytes));
            prop_assert_eq!(heap, whole);
        }
    }
}
