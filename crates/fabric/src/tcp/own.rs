//! A node's way to its own regions: the poster executes, and no agent has to run for it. No message can be lost on the
//! way, so no operation ends as unknown.

use verbena_terms::{BootClock, Clock, Time};

use super::regions::Regions;
use super::shape::{check_sizes, complete, to_element};
use super::wire::{BatchHead, Element};
use crate::completion::Pending;
use crate::ending::{RegionId, refusal};
use crate::error::{Error, Result};
use crate::message::Class;
use crate::operation::{Batch, Completed, OperationId, Settled};
use crate::region::{RegionKey, Remote};

pub(super) struct OwnRemote {
    pub(super) key: RegionKey,
    pub(super) regions: Regions,
}

impl OwnRemote {
    fn execute(&self, batch: Batch, deadline: Time) -> Result<Completed> {
        check_sizes(&batch)?;
        if self.regions.is_closed() {
            return Err(Error::Closed);
        }
        if deadline <= BootClock.now() {
            return Err(Error::Late);
        }
        let operations = batch.into_operations();
        let region = RegionId::from(&self.key);
        let RegionId { region: of, view, secret } = region;
        let head = BatchHead { number: 0, region: of, view, first: None, secret };
        let elements: Vec<Element<'_>> = operations.iter().map(to_element).collect();
        let mut results = Vec::new();
        let (done, outcome) = self.regions.execute(&head, &elements, None, &mut results);
        match refusal(self.key.owner, region, &operations, outcome, done.into(), None) {
            Some(error) => Err(error),
            None => Ok(complete(operations, &results)),
        }
    }
}

impl Remote for OwnRemote {
    fn key(&self) -> &RegionKey {
        &self.key
    }

    fn post(&self, batch: Batch, _: Class, deadline: Time) -> Pending<Completed> {
        Pending::ready(self.execute(batch, deadline))
    }

    fn settle(&self, operation: OperationId, _: Class, _: Time) -> Pending<Settled> {
        // None was given out.
        Pending::ready(Err(Error::Forgotten { target: self.key.owner, operation }))
    }
}
