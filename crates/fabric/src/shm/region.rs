//! The owner's side of a region: the same memory that peers map, and a new one whenever it is made anew.

use std::sync::Arc;

use arc_swap::ArcSwap;
use verbena_terms::ViewNumber;

use super::hub::Hub;
use super::layout::DATA;
use super::segment::Segment;
use crate::error::{Error, Result};
use crate::memory::check_range;
use crate::operation::Operation;
use crate::region::{Readable, Region, RegionKey, Rights, Secret};

/// Regions that one fabric can have: each holds a descriptor.
const MOST_REGIONS: usize = 4096;

pub(super) struct ShmRegion {
    hub: Arc<Hub>,
    current: ArcSwap<Segment>,
}

impl ShmRegion {
    /// Makes a region and lets peers open it.
    pub(super) fn register(hub: Arc<Hub>, bytes: u64, view: ViewNumber) -> Result<Self> {
        let segment = make(&hub, hub.new_region()?, bytes, view)?;
        {
            let mut segments = hub.segments.lock();
            if segments.len() >= MOST_REGIONS {
                return Err(Error::Full { what: "the table of regions", most: MOST_REGIONS });
            }
            segments.insert(segment.key(Rights::Read).region, segment.clone());
        }
        Ok(ShmRegion { hub, current: ArcSwap::new(segment) })
    }

    fn word(&self, operation: Operation) -> Result<u64> {
        // The owner is a processor like its peers: its atomics and theirs see each other (F3).
        let done = self.current.load().mapped().execute(operation)?;
        Ok(done.word().expect("invariant: a word operation gives a word"))
    }
}

fn make(hub: &Hub, region: u32, bytes: u64, view: ViewNumber) -> Result<Arc<Segment>> {
    let key = RegionKey { owner: hub.identity, region, view, bytes, rights: Rights::Read, secret: Secret::random()? };
    Segment::create(key).map(Arc::new)
}

impl Region for ShmRegion {
    fn key(&self, rights: Rights) -> RegionKey {
        self.current.load().key(rights)
    }

    fn load(&self, at: u64) -> Result<u64> {
        self.word(Operation::ReadWord { at })
    }

    fn store(&self, at: u64, value: u64) -> Result<()> {
        self.word(Operation::WriteWord { at, value }).map(|_| ())
    }

    fn fetch_add(&self, at: u64, addend: u64) -> Result<u64> {
        self.word(Operation::FetchAdd { at, addend })
    }

    fn compare_swap(&self, at: u64, expected: u64, desired: u64) -> Result<u64> {
        self.word(Operation::CompareSwap { at, expected, desired })
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<()> {
        let current = self.current.load();
        check_range(at, into.len() as u64, false, current.mapped().bytes())?;
        current.mapped().copy_out(at, into);
        Ok(())
    }

    fn write(&self, at: u64, from: &[u8]) -> Result<()> {
        let current = self.current.load();
        check_range(at, from.len() as u64, false, current.mapped().bytes())?;
        current.mapped().copy_in(at, from);
        Ok(())
    }

    fn discard(&self, at: u64, bytes: u64) -> Result<()> {
        let current = self.current.load();
        check_range(at, bytes, false, current.mapped().bytes())?;
        current.mapped().discard(at, bytes)
    }

    fn readable(&self) -> Result<Option<Readable>> {
        let descriptor = self.current.load().read_only_descriptor()?;
        Ok(Some(Readable { descriptor, from: DATA }))
    }

    fn remake(&self, view: ViewNumber) -> Result<()> {
        let RegionKey { region, bytes, .. } = self.key(Rights::Read);
        let next = make(&self.hub, region, bytes, view)?;
        let mut segments = self.hub.segments.lock();
        if self.hub.is_closed() {
            return Err(Error::Closed);
        }
        // F4: old before new, so that at no moment both are live.
        self.current.load().revoke();
        segments.insert(region, next.clone());
        self.current.store(next);
        Ok(())
    }

    fn everyone_is_in(&self, _view: ViewNumber) {
        // Memory of earlier views is never used for something else: each making is a memfd of its own, which the kernel takes back when
        // the last mapping of it is gone.
    }
}

impl Drop for ShmRegion {
    fn drop(&mut self) {
        let current = self.current.load();
        self.hub.segments.lock().remove(&current.key(Rights::Read).region);
        current.revoke();
    }
}
