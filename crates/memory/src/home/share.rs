//! The bytes and words of a home's share, and how many of them segments have.

use std::collections::{BTreeMap, BTreeSet};

use verbena_terms::Incarnation;

use super::held::Control;
use crate::heap::Heap;
use crate::layout::{Word, extents_at};
use crate::{MemoryOptions, Place, Refusal, Wanted};

#[derive(Clone, Debug)]
pub(super) struct Share {
    home: Incarnation,
    options: MemoryOptions,
    heap: Heap,
    /// Bytes that the home offers. Segments may have more, from before it offered less.
    offered: u64,
    /// Bytes that segments have, copies among them.
    taken: u64,
    /// Free controls, and what stands in them.
    controls: Vec<Control>,
    /// Bytes of each user.
    owned: BTreeMap<u32, u64>,
}

/// A control in memory that was just made.
fn fresh(number: u32) -> Control {
    Control { number, word: Word::default(), claims: 0 }
}

impl Share {
    /// All of it is free, and offered.
    pub(super) fn new(home: Incarnation, options: MemoryOptions) -> Self {
        Share {
            home,
            options,
            heap: Heap::new(extents_at(options.segments), options.bytes),
            offered: options.bytes,
            taken: 0,
            controls: (0..options.segments).rev().map(fresh).collect(),
            owned: BTreeMap::new(),
        }
    }

    /// Bytes that the home offers.
    pub(super) fn offered(&self) -> u64 {
        self.offered
    }

    /// From now on the home offers `bytes` bytes.
    pub(super) fn offer(&mut self, bytes: u64) {
        self.offered = bytes;
    }

    /// Whether less is offered than could be.
    pub(super) fn is_reduced(&self) -> bool {
        self.offered < self.options.bytes
    }

    /// Bytes that segments have.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    /// Bytes that may be taken, and those of the largest piece.
    pub(super) fn free(&self) -> (u64, u64) {
        let room = self.offered.saturating_sub(self.taken);
        (self.heap.free().min(room), self.heap.largest().min(room))
    }

    /// The free extents: where, and how long.
    pub(super) fn extents(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.heap.extents()
    }

    /// Bytes and words for a segment, or for a copy of one.
    pub(super) fn take(&mut self, wanted: &Wanted) -> Result<(Control, Place), Refusal> {
        let (home, owner, asked) = (self.home, wanted.owner, wanted.extent_bytes());
        let (has, limit) = (self.owned.get(&owner).copied().unwrap_or(0), self.options.owner_bytes);
        if has.saturating_add(asked) > limit {
            return Err(Refusal::OverLimit { owner, home, has, asked, limit });
        }
        let none = Refusal::NoWords { home, most: self.options.segments };
        let control = *self.controls.last().ok_or(none)?;
        let (free, largest) = self.free();
        let is_offered = asked <= free || !self.options.rules.offer_kept;
        let at = is_offered.then(|| self.heap.take(asked)).flatten();
        let at = at.ok_or(Refusal::NoRoom { home, asked, free, largest })?;
        self.controls.pop();
        self.taken += asked;
        *self.owned.entry(owner).or_default() += asked;
        Ok((control, Place { home, control: control.number, at }))
    }

    /// The bytes there are free. Its control is not, before [`free_control`](Self::free_control).
    pub(super) fn give(&mut self, at: u64, wanted: &Wanted) {
        let (bytes, owner) = (wanted.extent_bytes(), wanted.owner);
        self.heap.give(at, bytes);
        self.taken -= bytes;
        let left = self.owned.get(&owner).map_or(0, |has| has - bytes);
        if left == 0 {
            self.owned.remove(&owner);
        } else {
            self.owned.insert(owner, left);
        }
    }

    /// A segment may have this control.
    pub(super) fn free_control(&mut self, control: Control) {
        self.controls.push(control);
    }

    /// A region of `bytes` bytes is there. [`occupy`](Self::occupy) says what is in it.
    pub(super) fn lay_out(&mut self, bytes: u64) {
        let from = extents_at(self.options.segments);
        self.heap = Heap::new(from, bytes.saturating_sub(from));
    }

    /// These bytes are a segment's.
    pub(super) fn occupy(&mut self, at: u64, bytes: u64) {
        let is_free = self.heap.take_at(at, bytes);
        assert!(is_free, "invariant: extents do not overlap, and the region has them all");
    }

    /// All controls are free but these.
    pub(super) fn keep_controls(&mut self, taken: &BTreeSet<u32>) {
        let free = (0..self.options.segments).rev().filter(|number| !taken.contains(number));
        self.controls = free.map(fresh).collect();
    }
}
