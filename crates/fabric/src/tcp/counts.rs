//! What happened on a tcp fabric, counted.

use std::sync::atomic::{AtomicU64, Ordering};

/// A reading of the counters since the fabric was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames, greetings and answers that could not be read; each ended its connection.
    pub malformed: u64,
    /// Callers that were refused: another version, another incarnation meant, no or a wrong certificate.
    pub refused: u64,
    /// Connections turned away because too many were open or being made.
    pub turned_away: u64,
    /// Connections that did not identify themselves in time.
    pub silent: u64,
    /// Connections closed because their caller did not take its answers.
    pub stalled: u64,
    /// Connections that were let in.
    pub welcomed: u64,
    /// Connections to peers that were lost.
    pub lost: u64,
    /// Attempts to connect to a peer that failed.
    pub unreached: u64,
    /// Frames of requests that were executed.
    pub frames: u64,
    /// Batches that were executed.
    pub batches: u64,
    /// Frames of requests that the poster itself sent.
    pub by_posters: u64,
}

#[derive(Default)]
pub(super) struct Counters {
    pub(super) malformed: Counter,
    pub(super) refused: Counter,
    pub(super) turned_away: Counter,
    pub(super) silent: Counter,
    pub(super) stalled: Counter,
    pub(super) welcomed: Counter,
    pub(super) lost: Counter,
    pub(super) unreached: Counter,
    pub(super) frames: Counter,
    pub(super) batches: Counter,
    pub(super) by_posters: Counter,
}

impl Counters {
    pub(super) fn read(&self) -> Counts {
        Counts {
            malformed: self.malformed.read(),
            refused: self.refused.read(),
            turned_away: self.turned_away.read(),
            silent: self.silent.read(),
            stalled: self.stalled.read(),
            welcomed: self.welcomed.read(),
            lost: self.lost.read(),
            unreached: self.unreached.read(),
            frames: self.frames.read(),
            batches: self.batches.read(),
            by_posters: self.by_posters.read(),
        }
    }
}

#[derive(Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self, by: u64) {
        self.0.fetch_add(by, Ordering::Relaxed);
    }

    fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
