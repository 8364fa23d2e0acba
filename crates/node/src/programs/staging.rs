//! A shared budget for the bytes of values between programs and their helper: values being staged, put, or waiting to
//! be fetched.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that all programs together may have here.
pub(crate) const MOST_BYTES: usize = 256 << 20;

/// What is counted. Clones count together.
#[derive(Clone, Default)]
pub(crate) struct Budget(Arc<AtomicUsize>);

impl Budget {
    pub(crate) fn taken(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// The budget has no room for these bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Full;

/// A number of bytes that count against the budget until this is dropped.
pub(crate) struct Counted {
    bytes: usize,
    budget: Budget,
}

impl Counted {
    fn more(&mut self, bytes: usize) -> Result<(), Full> {
        let fits = |taken: usize| taken.checked_add(bytes).filter(|sum| *sum <= MOST_BYTES);
        self.budget.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).map_err(|_| Full)?;
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.budget.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Bytes that are counted.
pub(crate) struct Parcel {
    bytes: Vec<u8>,
    counted: Counted,
}

impl Parcel {
    pub(crate) fn new(budget: &Budget) -> Parcel {
        Parcel { bytes: vec![], counted: Counted { bytes: 0, budget: budget.clone() } }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// These follow what is in it.
    ///
    /// # Errors
    /// If there is no room for them: it is as it was.
    pub(crate) fn add(&mut self, bytes: &[u8]) -> Result<(), Full> {
        self.counted.more(bytes.len())?;
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// Has these and nothing else.
    ///
    /// # Errors
    /// If there is no room for them: nothing is in it.
    pub(crate) fn hold(&mut self, bytes: Vec<u8>) -> Result<(), Full> {
        self.empty();
        self.counted.more(bytes.len())?;
        self.bytes = bytes;
        Ok(())
    }

    pub(crate) fn empty(&mut self) {
        drop(self.take());
    }

    /// What is in it, which counts as long as the other one is kept.
    pub(crate) fn take(&mut self) -> (Vec<u8>, Counted) {
        let budget = self.counted.budget.clone();
        let counted = std::mem::replace(&mut self.counted, Counted { bytes: 0, budget });
        (std::mem::take(&mut self.bytes), counted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_counts_until_it_is_dropped_and_no_more_than_there_is_room_for_is_let_in() {
        let budget = Budget::default();
        let (mut first, mut second) = (Parcel::new(&budget), Parcel::new(&budget));
        first.add(&[1; 10]).unwrap();
        first.add(&[2; 10]).unwrap();
        let (bytes, counted) = first.take();
        assert_eq!((bytes.len(), first.bytes().len(), budget.taken()), (20, 0, 20));
        assert_eq!(second.hold(vec![0; MOST_BYTES - 19]), Err(Full));
        assert_eq!((second.bytes().len(), budget.taken()), (0, 20));
        second.hold(vec![0; MOST_BYTES - 20]).unwrap();
        assert_eq!((first.add(&[1]), budget.taken()), (Err(Full), MOST_BYTES));
        drop(counted);
        first.add(&[1; 20]).unwrap();
        // What it had before does not count beside it.
        second.hold(vec![0; MOST_BYTES - 20]).unwrap();
        second.empty();
        assert_eq!(budget.taken(), 20);
        drop(first);
        assert_eq!(budget.taken(), 0);
    }
}
