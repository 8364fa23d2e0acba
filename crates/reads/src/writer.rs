//! The relay's side: which words to store, in which order.

use crate::entry::Entry;
use crate::layout::{EPOCH_AT, Layout, MOMENT_AT, WRITTEN_AT};

/// A word to be stored: its byte offset in the region, and its value.
pub type Stored = (u64, u64);

/// What a relay has recorded. It stores through what each call is given, which must keep the order.
#[derive(Debug)]
pub struct Writer {
    layout: Layout,
    position: u64,
    moment: u64,
    epoch: u64,
}

impl Writer {
    /// Of a region of zeros, after this moment: those of a relay's earlier regions are before it. It does not record yet.
    pub fn new(layout: Layout, moment: u64) -> Writer {
        Writer { layout, position: 0, moment, epoch: 0 }
    }

    /// The words that come first.
    pub fn begin(&self, mut store: impl FnMut(Stored)) {
        store((MOMENT_AT, self.moment));
        (0..).step_by(8).zip(self.layout.header()).for_each(&mut store);
    }

    /// Whether reads are recorded.
    pub fn is_open(&self) -> bool {
        self.epoch % 2 == 1
    }

    /// Reads are recorded from now on, or no more.
    pub fn open(&mut self, is_open: bool, mut store: impl FnMut(Stored)) {
        if self.is_open() != is_open {
            self.epoch += 1;
            store((EPOCH_AT, self.epoch));
        }
    }

    /// A statement comes that may begin a transaction: what the database shows in it is not older than the moment that is given, which is after those that readers have seen.
    pub fn moment(&mut self, mut store: impl FnMut(Stored)) -> u64 {
        self.moment += 1;
        store((MOMENT_AT, self.moment));
        self.moment
    }

    /// Records an entry, if reads are recorded. It is there for every look that begins after this.
    pub fn record(&mut self, entry: &Entry, mut store: impl FnMut(Stored)) {
        if !self.is_open() {
            return;
        }
        let words = entry.words(self.position);
        for word in words {
            store((self.layout.at(self.position), word));
            self.position += 1;
        }
        store((WRITTEN_AT, self.position));
    }
}
