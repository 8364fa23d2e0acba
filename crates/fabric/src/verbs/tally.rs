//! Counts what becomes of connections.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::provider::Connections;

#[derive(Debug, Default)]
pub(super) struct Tally {
    made: AtomicU64,
    taken: AtomicU64,
    lost: AtomicU64,
    refused: AtomicU64,
}

impl Tally {
    /// One to another node was made.
    pub(super) fn made(&self) {
        self.made.fetch_add(1, Ordering::Relaxed);
    }

    /// One of another node was taken.
    pub(super) fn taken(&self) {
        self.taken.fetch_add(1, Ordering::Relaxed);
    }

    /// One to another node has ended.
    pub(super) fn lost(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    /// Another node's request or call came to nothing.
    pub(super) fn refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> Connections {
        let [made, taken, lost, refused] =
            [&self.made, &self.taken, &self.lost, &self.refused].map(|count| count.load(Ordering::Relaxed));
        Connections { made, taken, lost, refused }
    }
}
