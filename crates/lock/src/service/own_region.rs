//! What belongs to one incarnation of a node, and ends with it: the words that it is the home of, and its endpoint on the fabric.

use std::sync::Arc;

use verbena_cluster::{Role, View};
use verbena_fabric::{Fabric, Port, Region, RegionKey, Rights};
use verbena_service::endpoint::Endpoint;
use verbena_terms::Time;

use super::Metrics;
use super::batches::WordBatch;
use crate::wire::{Frame, Slot};
use crate::{Batch, PostId};

/// Messages about locks.
const LOCKS: Port = Port(18);

pub(super) struct OwnRegion {
    pub(super) endpoint: Endpoint<WordBatch>,
    own: Option<Box<dyn Region>>,
    metrics: Metrics,
}

impl OwnRegion {
    pub(super) fn start(fabric: Arc<dyn Fabric>, metrics: Metrics) -> verbena_fabric::Result<Self> {
        Ok(OwnRegion { endpoint: Endpoint::listen(fabric, LOCKS)?, own: None, metrics })
    }

    /// Ends what was done in older views, and gives the node's own words in this one, if it is a home in it: new memory (rule F4).
    ///
    /// # Errors
    /// If there is no memory for them.
    pub(super) fn enter_view(
        &mut self,
        view: &View,
        bytes: u64,
        now: Time,
    ) -> verbena_fabric::Result<Option<RegionKey>> {
        self.endpoint.enter_view(view, now);
        if !view.member(self.endpoint.me()).is_some_and(|member| member.roles.has(Role::Home)) {
            self.own = None;
            return Ok(None);
        }
        let own = match self.own.take() {
            Some(own) => {
                own.remake(view.number())?;
                own
            }
            None => self.endpoint.fabric().register(bytes, view.number())?,
        };
        let key = own.key(Rights::Change);
        self.own = Some(own);
        Ok(Some(key))
    }

    /// Stores a word of a lock that no other node knows of yet.
    pub(super) fn store(&self, at: u64, word: u64) {
        let own = self.own.as_ref().expect("invariant: a directory is there as long as its words");
        own.store(at, word).expect("invariant: a directory has as many slots as its region");
    }

    pub(super) fn post(&mut self, id: PostId, slot: Slot, batch: Batch, now: Time) {
        self.endpoint.submit(WordBatch::new(id, slot, batch, self.metrics.clone()), now);
    }

    /// Sends a message, which may be lost: the machine repeats it.
    pub(super) fn send(&mut self, frame: &Frame) {
        if self.endpoint.send(frame.to, frame.view, &frame.encode()) {
            self.metrics.frames.increment();
            self.metrics.letters.add(frame.letters.len() as u64);
        }
    }
}
