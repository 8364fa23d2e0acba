//! A fabric whose user takes its time: what it stores, sends and writes happens later, one after the other, and what it says to membership
//! too. Others act in between, and a process that stops or dies does so between two of them. Reads happen at once.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use verbena_fabric::{
    Address, Batch, Class, Completed, Completer, Error, Fabric, Layer, OperationId, Peer, Pending, Port, Region,
    RegionKey, Remote, Result, Rights, Settled, SharedRemote,
};
use verbena_terms::{Incarnation, Time, ViewNumber};

/// What is to happen, in order. Cheap to clone.
#[derive(Clone, Default)]
pub struct Doing(Arc<Mutex<Queue>>);

#[derive(Default)]
struct Queue {
    is_slow: bool,
    effects: VecDeque<Box<dyn FnOnce() + Send>>,
    /// Operations that were posted late, and who waits for them.
    posted: Vec<(Pending<Completed>, Completer<Completed>)>,
}

impl Doing {
    /// From now on everything happens when its turn comes.
    pub fn slowly(&self) {
        self.0.lock().is_slow = true;
    }

    /// What is left happens now, and from now on everything at once.
    pub fn at_once(&self) {
        while !self.is_done() {
            self.next();
        }
        self.0.lock().is_slow = false;
    }

    /// Nothing of what is left happens.
    pub fn forget(&self) {
        let left = std::mem::take(&mut *self.0.lock());
        drop(left);
    }

    /// Does it now, or when its turn comes.
    pub fn then(&self, effect: impl FnOnce() + Send + 'static) {
        let mut queue = self.0.lock();
        if queue.is_slow {
            queue.effects.push_back(Box::new(effect));
        } else {
            drop(queue);
            effect();
        }
    }

    pub fn is_done(&self) -> bool {
        self.0.lock().effects.is_empty()
    }

    /// Does the next.
    pub fn next(&self) {
        let next = self.0.lock().effects.pop_front();
        if let Some(effect) = next {
            effect();
        }
    }

    /// Hands over what has ended.
    pub fn complete(&self) {
        let posted = std::mem::take(&mut self.0.lock().posted);
        for (mut pending, completer) in posted {
            match pending.poll_now() {
                Some(result) => completer.complete(result),
                None => self.0.lock().posted.push((pending, completer)),
            }
        }
    }
}

pub struct SlowFabric {
    pub inner: Arc<dyn Fabric>,
    pub doing: Doing,
}

struct SlowRegion {
    inner: Arc<dyn Region>,
    doing: Doing,
}

struct SlowPeer {
    inner: Arc<dyn Peer>,
    doing: Doing,
}

struct SlowRemote {
    inner: SharedRemote,
    doing: Doing,
}

impl Layer for SlowFabric {
    fn inner(&self) -> &dyn Fabric {
        &*self.inner
    }

    fn register(&self, bytes: u64, view: ViewNumber) -> Result<Box<dyn Region>> {
        let inner = Arc::from(self.inner.register(bytes, view)?);
        Ok(Box::new(SlowRegion { inner, doing: self.doing.clone() }))
    }

    fn connect(&self, peer: Incarnation, address: &Address) -> Result<Arc<dyn Peer>> {
        Ok(Arc::new(SlowPeer { inner: self.inner.connect(peer, address)?, doing: self.doing.clone() }))
    }
}

impl Region for SlowRegion {
    fn key(&self, rights: Rights) -> RegionKey {
        self.inner.key(rights)
    }

    fn load(&self, at: u64) -> Result<u64> {
        self.inner.load(at)
    }

    fn store(&self, at: u64, value: u64) -> Result<()> {
        let inner = self.inner.clone();
        self.doing.then(move || inner.store(at, value).expect("a region of a life that goes on"));
        Ok(())
    }

    fn fetch_add(&self, at: u64, addend: u64) -> Result<u64> {
        self.inner.fetch_add(at, addend)
    }

    fn compare_swap(&self, at: u64, expected: u64, desired: u64) -> Result<u64> {
        self.inner.compare_swap(at, expected, desired)
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<()> {
        self.inner.read(at, into)
    }

    fn write(&self, at: u64, from: &[u8]) -> Result<()> {
        self.inner.write(at, from)
    }

    fn remake(&self, view: ViewNumber) -> Result<()> {
        self.inner.remake(view)
    }

    fn everyone_is_in(&self, view: ViewNumber) {
        self.inner.everyone_is_in(view);
    }
}

impl Peer for SlowPeer {
    fn incarnation(&self) -> Incarnation {
        self.inner.incarnation()
    }

    fn open(&self, key: &RegionKey, deadline: Time) -> Result<SharedRemote> {
        Ok(Arc::new(SlowRemote { inner: self.inner.open(key, deadline)?, doing: self.doing.clone() }))
    }

    fn send(&self, class: Class, view: ViewNumber, port: Port, number: u64, body: &[u8]) -> Result<()> {
        let (inner, body) = (self.inner.clone(), body.to_vec());
        // What cannot be sent is lost.
        self.doing.then(move || drop(inner.send(class, view, port, number, &body)));
        Ok(())
    }
}

impl Remote for SlowRemote {
    fn key(&self) -> &RegionKey {
        self.inner.key()
    }

    fn post(&self, batch: Batch, class: Class, deadline: Time) -> Pending<Completed> {
        if batch.effects() == 0 {
            return self.inner.post(batch, class, deadline);
        }
        let (completer, pending) = Pending::new(Error::Closed);
        let (inner, queue) = (self.inner.clone(), self.doing.0.clone());
        self.doing.then(move || {
            let posted = inner.post(batch, class, deadline);
            queue.lock().posted.push((posted, completer));
        });
        pending
    }

    fn settle(&self, operation: OperationId, class: Class, deadline: Time) -> Pending<Settled> {
        self.inner.settle(operation, class, deadline)
    }
}
