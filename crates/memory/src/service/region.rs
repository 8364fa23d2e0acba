//! The region with the memory that this node gives to segments.

use verbena_fabric::{Fabric, Readable, Region, RegionKey, Rights};
use verbena_terms::ViewNumber;

use crate::layout::{REGION, Word, claims_at, slot_bytes, word_at};
use crate::{Renewal, Stands, Stay};

/// Bytes that are copied at a time when memory is made anew.
const COPY_BYTES: usize = 64 << 10;

/// The node's own memory; none before the first view of an incarnation is in effect.
#[derive(Default)]
pub(super) struct OwnRegion(Option<Box<dyn Region>>);

impl OwnRegion {
    /// Makes its memory anew, with the values of the old one (rules M2 and F4). The old memory does not change: its
    /// writers act no longer. What may still land in it after that is never read.
    pub(super) fn renew(
        &mut self,
        renewal: &Renewal,
        view: ViewNumber,
        fabric: &dyn Fabric,
    ) -> verbena_fabric::Result<(RegionKey, Vec<Stands>)> {
        let is_pinned = fabric.capabilities().pins_memory;
        let bytes = if is_pinned { renewal.least } else { renewal.bytes };
        let new = fabric.register(bytes, view)?;
        new.store(0, REGION.word())?;
        let mut stand = vec![];
        if let Some(old) = &self.0 {
            let mut buffer = vec![0; COPY_BYTES];
            for Stay { from, place, segment } in &renewal.segments {
                let word = Word::from_bits(old.load(word_at(place.control))?);
                stand.push(Stands { id: segment.id, word });
                // Nothing is in a place of version 0, or in one that was released.
                let Some(slot) = word.slot().filter(|_| word.version() > 0) else { continue };
                let bytes = slot_bytes(segment.wanted.bytes);
                let slot_at = u64::from(slot) * bytes;
                for at in (slot_at..slot_at + bytes).step_by(COPY_BYTES) {
                    let piece = &mut buffer[..COPY_BYTES.min((slot_at + bytes - at) as usize)];
                    old.read(from + at, piece)?;
                    new.write(place.at + at, piece)?;
                }
                new.store(word_at(place.control), word.to_bits())?;
                new.store(claims_at(place.control), 1 << slot)?;
            }
        }
        let key = new.key(Rights::Change);
        self.0 = Some(new);
        Ok((key, stand))
    }

    /// Its own memory, for programs of this machine to read, where the fabric's is of such a kind.
    pub(super) fn readable(&self) -> Option<Readable> {
        let readable = self.0.as_ref()?.readable();
        readable.unwrap_or_else(|error| {
            tracing::warn!(%error, "programs cannot read values where they are");
            None
        })
    }

    /// Its own memory, if it is that of this view.
    #[cfg(feature = "testing")]
    pub(super) fn own_of(&self, view: ViewNumber) -> Option<&dyn Region> {
        self.0.as_deref().filter(|own| own.key(Rights::Read).view == view)
    }

    /// Stores a word of its own memory that no atomic changes.
    pub(super) fn store(&self, at: u64, word: u64) {
        let stored = self.0.as_ref().map(|own| own.store(at, word));
        if let Some(Err(error)) = stored {
            tracing::warn!(%error, "free memory was not published");
        }
    }

    /// Nothing stands there any more: the system may have it, where memory is not pinned.
    pub(super) fn discard(&self, at: u64, bytes: u64) {
        let discarded = self.0.as_ref().map(|own| own.discard(at, bytes));
        if let Some(Err(error)) = discarded {
            tracing::warn!(%error, at, bytes, "free memory was not given back to the system");
        }
    }
}
