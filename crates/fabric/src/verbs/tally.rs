//! Counts what becomes of connections and messages.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::provider::{Connections, Messages};

#[derive(Debug, Default)]
pub(super) struct Tally {
    made: AtomicU64,
    taken: AtomicU64,
    lost: AtomicU64,
    refused: AtomicU64,
    messages_sent: AtomicU64,
    messages_arrived: AtomicU64,
    messages_too_large: AtomicU64,
    messages_unconnected: AtomicU64,
    messages_lost: AtomicU64,
    messages_malformed: AtomicU64,
    dry: AtomicU64,
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

    /// The adapter has sent `count` messages.
    pub(super) fn sent(&self, count: usize) {
        self.messages_sent.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// A message of another node has come by the adapter.
    pub(super) fn arrived(&self) {
        self.messages_arrived.fetch_add(1, Ordering::Relaxed);
    }

    /// A message went by the channel, for no buffer holds it.
    pub(super) fn too_large(&self) {
        self.messages_too_large.fetch_add(1, Ordering::Relaxed);
    }

    /// The same for `count` messages without a connection.
    pub(super) fn unconnected(&self, count: usize) {
        self.messages_unconnected.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// `count` messages were under way when their connection ended.
    pub(super) fn left_open(&self, count: usize) {
        self.messages_lost.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// What has come by the adapter is no message.
    pub(super) fn malformed(&self) {
        self.messages_malformed.fetch_add(1, Ordering::Relaxed);
    }

    /// All buffers of a receive queue were used.
    pub(super) fn dry(&self) {
        self.dry.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn connections(&self) -> Connections {
        let [made, taken, lost, refused] = [&self.made, &self.taken, &self.lost, &self.refused].map(read);
        Connections { made, taken, lost, refused }
    }

    pub(super) fn messages(&self) -> Messages {
        Messages {
            sent: read(&self.messages_sent),
            arrived: read(&self.messages_arrived),
            too_large: read(&self.messages_too_large),
            unconnected: read(&self.messages_unconnected),
            lost: read(&self.messages_lost),
            malformed: read(&self.messages_malformed),
            dry: read(&self.dry),
        }
    }
}

fn read(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}
