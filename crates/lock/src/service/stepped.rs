//! The service without a thread, for a simulation: the caller gives the same driver its turns and its clock.

use std::sync::Arc;

use verbena_cluster::{LeaseWord, View};
use verbena_fabric::Fabric;
use verbena_terms::{Clock, Time};

use super::driver::{self, Clients as _, Running};
use super::{Attention, Metrics};
use crate::{Answer, Asker, HomeWords, LocksOptions, Name, ProtocolViolation, Request, RequestId};

/// A driver that the caller polls.
pub struct Stepped {
    driver: Running,
    requests: u64,
    held_on: u64,
}

impl Stepped {
    /// On this clock, which must be that of its fabrics.
    pub fn new(options: LocksOptions, clock: Arc<dyn Clock>) -> Stepped {
        Stepped {
            driver: driver::new(options, clock, Attention::default(), Metrics::default(), Box::new(|_| {})),
            requests: 0,
            held_on: 0,
        }
    }

    /// Starts an incarnation on this fabric, as the incarnation that the fabric has (rule C1). It acts by this lease,
    /// the same for all incarnations.
    ///
    /// # Errors
    /// If the port is taken.
    pub fn life_begins(&mut self, fabric: Arc<dyn Fabric>, lease: &Arc<LeaseWord>) -> verbena_fabric::Result<()> {
        self.driver.start_incarnation(fabric, lease)
    }

    /// Ends the incarnation: its regions and its fabric are dropped, and the clients' holds are lost.
    pub fn life_ends(&mut self) {
        self.driver.end_incarnation();
    }

    /// The cluster has a newer view. When this returns the service has ended what it did in older ones.
    pub fn view_learnt(&mut self, view: &Arc<View>) {
        self.driver.enter_view(view);
    }

    /// A client that has nothing else wants a lock.
    pub fn acquire(&mut self, name: Name, request: Request) -> RequestId {
        self.acquire_for(Asker { number: u64::MAX - self.requests, pid: 0 }, name, request)
    }

    /// A client wants a lock.
    pub fn acquire_for(&mut self, asker: Asker, name: Name, request: Request) -> RequestId {
        self.requests += 1;
        let id = RequestId(self.requests);
        self.held_on += u64::from(self.driver.acquire(id, asker, name, request));
        id
    }

    /// Requests by which clients held on what was kept for them.
    pub fn held_on(&self) -> u64 {
        self.held_on
    }

    /// A client is done with it.
    ///
    /// # Errors
    /// When it does not hold it.
    pub fn release(&mut self, id: RequestId) -> Result<(), ProtocolViolation> {
        self.driver.release(id)
    }

    /// A client is done with it, and may ask for it again at once. Gives whether it is kept for it.
    ///
    /// # Errors
    /// When it does not hold it.
    pub fn release_soon(&mut self, id: RequestId) -> Result<bool, ProtocolViolation> {
        self.driver.release_soon(id).map(|()| self.driver.machine().keeps())
    }

    /// Releases the kept lock for all.
    pub fn settle(&mut self) {
        self.driver.settle();
    }

    /// Others may read with a client.
    ///
    /// # Errors
    /// When it does not hold the lock exclusively.
    pub fn downgrade(&mut self, id: RequestId) -> Result<(), ProtocolViolation> {
        self.driver.downgrade(id)
    }

    /// A client does not want it any more, or has died.
    pub fn forget(&mut self, id: RequestId) {
        self.driver.forget(id);
    }

    /// What became of requests since this was asked last.
    pub fn answers(&mut self) -> Vec<(RequestId, Answer)> {
        self.driver.host_mut().answers().into_iter().map(|answered| (answered.id, answered.answer)).collect()
    }

    /// How the words of this home stand.
    pub fn home_words(&self) -> HomeWords {
        self.driver.machine().home_words()
    }

    /// What broke the protocol or could not be read, so far.
    pub fn violation(&self) -> u64 {
        self.driver.dropped() + self.driver.host().violations()
    }

    /// Does what there is to do. Gives when the next turn is due if nothing arrives before.
    pub fn turn(&mut self) -> Time {
        self.driver.step()
    }
}
