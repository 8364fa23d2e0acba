//! Where the memory of regions comes from, for a provider whose agent executes on it.

use std::sync::atomic::{AtomicU32, Ordering};

use verbena_terms::ViewNumber;

use crate::capability::AtomicScope;
use crate::error::{Error, Result};
use crate::memory::{Sealed, Words};
use crate::region::{Readable, Rights, Secret};

/// What one making of a region consists of. Made anew it has another one (F4).
#[derive(Clone, Copy)]
pub(crate) struct Life {
    pub(crate) bytes: u64,
    pub(crate) view: ViewNumber,
    pub(crate) change: Secret,
    pub(crate) read: Secret,
}

impl Life {
    /// With secrets of its own.
    pub(crate) fn new(bytes: u64, view: ViewNumber) -> Result<Self> {
        Ok(Life { bytes, view, change: Secret::random()?, read: Secret::random()? })
    }

    /// What is allowed to a peer that shows this secret; `None` if it is not a secret of this making.
    pub(crate) fn rights(&self, view: ViewNumber, secret: &Secret) -> Option<Rights> {
        // Both are compared, so that the time does not tell which one was tried.
        let (change, read) = (self.change.matches(secret), self.read.matches(secret));
        match (self.view == view, change, read) {
            (true, true, _) => Some(Rights::Change),
            (true, false, true) => Some(Rights::Read),
            _ => None,
        }
    }
}

/// The memory of a region, where it is the rest of a mapping from some byte on.
#[derive(Debug)]
pub(crate) struct Part {
    words: Words,
    base: u64,
    /// Where other processes can be handed it.
    sealed: Option<Sealed>,
}

impl Part {
    /// From byte `base` of a mapping on: a multiple of 8.
    pub(crate) fn of(words: Words, base: u64) -> Self {
        Part { words, base, sealed: None }
    }

    /// The whole of a mapping that other processes can be handed for reading.
    pub(crate) fn sealed((words, sealed): (Words, Sealed)) -> Self {
        Part { words, base: 0, sealed: Some(sealed) }
    }

    pub(crate) fn readable(&self) -> Result<Option<Readable>> {
        let descriptor = self.sealed.as_ref().map(Sealed::for_reading).transpose()?;
        Ok(descriptor.map(|descriptor| Readable { descriptor, from: self.base }))
    }

    pub(crate) fn load(&self, at: u64) -> u64 {
        self.words.load(self.base + at)
    }

    pub(crate) fn store(&self, at: u64, value: u64) {
        self.words.store(self.base + at, value);
    }

    pub(crate) fn fetch_add(&self, at: u64, addend: u64) -> u64 {
        self.words.fetch_add(self.base + at, addend)
    }

    pub(crate) fn compare_swap(&self, at: u64, expected: u64, desired: u64) -> u64 {
        self.words.compare_swap(self.base + at, expected, desired)
    }

    pub(crate) fn discard(&self, at: u64, length: u64) -> Result<()> {
        self.words.discard(self.base + at, length)
    }

    pub(crate) fn copy_out(&self, at: u64, into: &mut [u8]) {
        self.words.copy_out(self.base + at, into);
    }

    pub(crate) fn copy_in(&self, at: u64, from: &[u8]) {
        self.words.copy_in(self.base + at, from);
    }
}

/// Gives zeroed memory to regions.
pub(crate) trait Supply: Send + Sync {
    /// Memory for a new region, and the region's number: never used again, so that an old key does not name a new region.
    fn make(&self, life: &Life) -> Result<(u32, Part)>;

    /// Other memory for a region that is made anew.
    fn make_anew(&self, number: u32, life: &Life) -> Result<Part>;

    /// The region is no more.
    fn take_back(&self, number: u32);

    /// Whether the memory is pinned, so that pages of it cannot be given back one by one.
    fn pins_memory(&self) -> bool {
        true
    }

    /// Against what the atomics of the memory's executor are atomic. If not against the processor's, those are refused (F3).
    fn atomics(&self) -> AtomicScope {
        AtomicScope::Processor
    }
}

/// Numbers of regions, from 1, each given out once.
pub(crate) struct Numbers(AtomicU32);

impl Default for Numbers {
    fn default() -> Self {
        Numbers(AtomicU32::new(1))
    }
}

impl Numbers {
    pub(crate) fn next(&self) -> Result<u32> {
        let number = self.0.try_update(Ordering::Relaxed, Ordering::Relaxed, |number| number.checked_add(1));
        number.map_err(|most| Error::Full { what: "the numbers of regions", most: most as usize })
    }
}

/// Memory of this process, which other processes are at most handed for reading.
#[derive(Default)]
pub(crate) struct Anonymous(Numbers);

impl Supply for Anonymous {
    fn make(&self, life: &Life) -> Result<(u32, Part)> {
        let memory = self.make_anew(0, life)?;
        Ok((self.0.next()?, memory))
    }

    fn make_anew(&self, _number: u32, life: &Life) -> Result<Part> {
        Words::sealed(life.bytes).map(Part::sealed)
    }

    fn take_back(&self, _number: u32) {}

    fn pins_memory(&self) -> bool {
        false
    }
}
