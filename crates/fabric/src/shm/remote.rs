//! A peer's side of a region: it executes its operations itself.

use std::sync::Arc;

use verbena_terms::{BootClock, Clock, Time};

use super::link::Link;
use super::segment::Mapped;
use crate::completion::Pending;
use crate::error::{Error, Result};
use crate::message::Class;
use crate::operation::{Batch, Completed, LARGEST_BATCH, Operation, OperationId, Settled};
use crate::region::{RegionKey, Remote, Rights};

/// Bytes of one read or write: the largest buffer of a pool.
pub(super) const LARGEST: u32 = 1 << 20;

pub(super) struct ShmRemote {
    link: Arc<Link>,
    key: RegionKey,
    memory: Mapped,
}

impl ShmRemote {
    pub(super) const fn new(link: Arc<Link>, key: RegionKey, memory: Mapped) -> Self {
        ShmRemote { link, key, memory }
    }

    fn execute(&self, batch: Batch, deadline: Time) -> Result<Completed> {
        let operations = batch.into_operations();
        if operations.len() > LARGEST_BATCH {
            let (asked, most) = (operations.len() as u64, LARGEST_BATCH as u64);
            return Err(Error::TooLarge { what: "a batch", asked, most });
        }
        if BootClock.now() >= deadline {
            return Err(Error::Late);
        }
        self.usable()?;
        let mut has_effect = false;
        let mut done = Completed::with_capacity(operations.len());
        for operation in operations {
            self.allowed(&operation)?;
            has_effect |= operation.has_effect();
            done.push(self.memory.execute(operation)?);
        }
        if !has_effect {
            // F4: what was read is what there was before it was revoked. (A batch with an effect cannot be taken back any more;
            // if it came too late it is in memory that nobody reads again.)
            self.usable()?;
        }
        Ok(done)
    }

    /// Refuses when the owner is gone or has revoked the memory.
    fn usable(&self) -> Result<()> {
        self.link.check()?;
        if !self.memory.is_live() {
            return Err(Error::Revoked { target: self.key.owner, region: self.key.region, view: self.key.view });
        }
        Ok(())
    }

    fn allowed(&self, operation: &Operation) -> Result<()> {
        if operation.has_effect() && self.key.rights == Rights::Read {
            return Err(Error::Denied { target: self.key.owner, region: self.key.region });
        }
        let (_, length) = operation.range();
        if length > u64::from(LARGEST) {
            return Err(Error::TooLarge { what: "a read or a write", asked: length, most: LARGEST.into() });
        }
        Ok(())
    }
}

impl Remote for ShmRemote {
    fn key(&self) -> &RegionKey {
        &self.key
    }

    fn post(&self, batch: Batch, _class: Class, deadline: Time) -> Pending<Completed> {
        // Nothing waits behind anything: the classes have no meaning here.
        Pending::ready(self.execute(batch, deadline))
    }

    fn settle(&self, operation: OperationId, _class: Class, _deadline: Time) -> Pending<Settled> {
        // F2: every operation was answered when its post returned, so that there is none to settle.
        Pending::ready(Err(Error::Forgotten { target: self.link.peer(), operation }))
    }
}
