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
            // F4: what was read is what there was before it was revoked. (A batch with an effect cannot be taken back
            // any more; if it came too late it is in memory that is never read again.)
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
        // F2: every operation was answered when its post returned, so none is left to settle.
        Pending::ready(Err(Error::Forgotten { target: self.link.peer(), operation }))
    }
}

#[cfg(test)]
mod tests {
    use verbena_terms::{Incarnation, ViewNumber};

    use super::super::{Settings, Shm};
    use super::*;
    use crate::pool::Pool;
    use crate::provider::Fabric;

    #[test]
    fn a_read_that_revocation_overtook_is_refused() {
        const LENGTH: usize = 256 << 10;
        let open = |rank| {
            let pool = Pool::new(64 * LENGTH);
            Shm::open(Settings { identity: Incarnation::new(rank, 1), pool, allowed_users: vec![] }).unwrap()
        };
        let (owner, caller) = (open(1), open(2));
        let region = owner.register(LENGTH as u64, ViewNumber(0)).unwrap();
        let peer = caller.connect(owner.identity(), &owner.address()).unwrap();
        let batch = || {
            let mut batch = Batch::new();
            for _ in 0..64 {
                batch.push(Operation::Read { at: 0, into: caller.pool().take(LENGTH).unwrap() });
            }
            batch
        };
        let undisturbed = (0..10).map(|_| {
            let (remote, batch) = (peer.open(&region.key(Rights::Read), Time::FAR).unwrap(), batch());
            let began = BootClock.now();
            remote.post(batch, Class::Bulk, Time::FAR).wait().unwrap();
            BootClock.now().since(began)
        });
        let least = undisturbed.min().unwrap();
        let mut overtaken = 0;
        // Whether the one comes in the first half of the other is up to the machine; mostly it does.
        for view in (1..=2_000).map(ViewNumber) {
            let (remote, batch) = (peer.open(&region.key(Rights::Read), Time::FAR).unwrap(), batch());
            let (began, revoked, result) = std::thread::scope(|scope| {
                let remaking = scope.spawn(|| {
                    std::thread::sleep(least / 4);
                    region.remake(view).unwrap();
                    BootClock.now()
                });
                let began = BootClock.now();
                let result = remote.post(batch, Class::Bulk, Time::FAR).wait();
                (began, remaking.join().unwrap(), result.map(|_| ()))
            });
            if began < revoked && revoked < began + least / 2 {
                assert!(matches!(result, Err(Error::Revoked { .. })), "read memory that was revoked meanwhile");
                overtaken += 1;
            }
            if overtaken == 3 {
                return;
            }
        }
        panic!("of 2000 reads {overtaken} were overtaken: too few to say anything");
    }
}
