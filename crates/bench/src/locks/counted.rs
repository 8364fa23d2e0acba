//! A fabric that counts what is posted and sent by it, while counting is on.

use std::ops::Sub;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde::{Deserialize, Serialize};
use verbena_fabric::{
    Address, Batch, Class, Completed, Fabric, Layer, Operation, OperationId, Peer, Pending, Port, RegionKey, Remote,
    Result, Settled, SharedRemote,
};
use verbena_lock::wire::Frame;
use verbena_terms::{Incarnation, Time, ViewNumber};

/// What was counted so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Counts {
    /// Batches that were posted: each is a round trip.
    pub(super) batches: u64,
    /// Atomics in them.
    pub(super) atomics: u64,
    /// Messages that were sent, apart from acknowledgements.
    pub(super) letters: u64,
    /// Messages that only say that others arrived.
    pub(super) acknowledgements: u64,
}

impl Sub for Counts {
    type Output = Counts;

    fn sub(self, before: Counts) -> Counts {
        Counts {
            batches: self.batches - before.batches,
            atomics: self.atomics - before.atomics,
            letters: self.letters - before.letters,
            acknowledgements: self.acknowledgements - before.acknowledgements,
        }
    }
}

impl std::iter::Sum for Counts {
    fn sum<I: Iterator<Item = Counts>>(all: I) -> Counts {
        all.fold(Counts::default(), |sum, one| Counts {
            batches: sum.batches + one.batches,
            atomics: sum.atomics + one.atomics,
            letters: sum.letters + one.letters,
            acknowledgements: sum.acknowledgements + one.acknowledgements,
        })
    }
}

/// Shared by all that counts. Nothing is looked into while nothing is counted, because others are timed meanwhile.
#[derive(Default)]
pub(super) struct Counters {
    is_on: AtomicBool,
    batches: AtomicU64,
    atomics: AtomicU64,
    letters: AtomicU64,
    acknowledgements: AtomicU64,
}

impl Counters {
    pub(super) fn turn(&self, on: bool) {
        self.is_on.store(on, Ordering::SeqCst);
    }

    pub(super) fn counts(&self) -> Counts {
        Counts {
            batches: self.batches.load(Ordering::SeqCst),
            atomics: self.atomics.load(Ordering::SeqCst),
            letters: self.letters.load(Ordering::SeqCst),
            acknowledgements: self.acknowledgements.load(Ordering::SeqCst),
        }
    }

    fn posted(&self, batch: &Batch) {
        if self.is_on.load(Ordering::Relaxed) {
            let is_atomic = |operation: &&Operation| {
                matches!(operation, Operation::CompareSwap { .. } | Operation::FetchAdd { .. })
            };
            let atomics = batch.operations().iter().filter(is_atomic).count() as u64;
            self.batches.fetch_add(1, Ordering::SeqCst);
            self.atomics.fetch_add(atomics, Ordering::SeqCst);
        }
    }

    fn sent(&self, body: &[u8]) {
        if self.is_on.load(Ordering::Relaxed) {
            match Frame::decode(body).map_or(1, |frame| frame.messages.len() as u64) {
                0 => self.acknowledgements.fetch_add(1, Ordering::SeqCst),
                letters => self.letters.fetch_add(letters, Ordering::SeqCst),
            };
        }
    }
}

/// The fabric.
pub(super) struct Counted {
    pub(super) fabric: Arc<dyn Fabric>,
    pub(super) counters: Arc<Counters>,
}

impl Layer for Counted {
    fn inner(&self) -> &dyn Fabric {
        &*self.fabric
    }

    fn connect(&self, peer: Incarnation, address: &Address) -> Result<Arc<dyn Peer>> {
        let peer = self.fabric.connect(peer, address)?;
        Ok(Arc::new(CountedPeer { peer, counters: self.counters.clone() }))
    }
}

struct CountedPeer {
    peer: Arc<dyn Peer>,
    counters: Arc<Counters>,
}

impl Peer for CountedPeer {
    fn incarnation(&self) -> Incarnation {
        self.peer.incarnation()
    }

    fn open(&self, key: &RegionKey, deadline: Time) -> Result<SharedRemote> {
        let remote = self.peer.open(key, deadline)?;
        Ok(Arc::new(CountedRemote { remote, counters: self.counters.clone() }))
    }

    fn send(&self, class: Class, view: ViewNumber, port: Port, number: u64, body: &[u8]) -> Result<()> {
        self.counters.sent(body);
        self.peer.send(class, view, port, number, body)
    }
}

struct CountedRemote {
    remote: SharedRemote,
    counters: Arc<Counters>,
}

impl Remote for CountedRemote {
    fn key(&self) -> &RegionKey {
        self.remote.key()
    }

    fn post(&self, batch: Batch, class: Class, deadline: Time) -> Pending<Completed> {
        self.counters.posted(&batch);
        self.remote.post(batch, class, deadline)
    }

    fn post_gathered(&self, batch: Batch, class: Class, deadline: Time) -> Pending<Completed> {
        self.counters.posted(&batch);
        self.remote.post_gathered(batch, class, deadline)
    }

    fn settle(&self, operation: OperationId, class: Class, deadline: Time) -> Pending<Settled> {
        self.remote.settle(operation, class, deadline)
    }
}
