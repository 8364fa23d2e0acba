//! Reading the header of a relay's region.

use std::time::Duration;

use verbena_fabric::{Batch, Class, Completed, Fabric};
use verbena_service::batches::{End, Request};
use verbena_terms::{Incarnation, Time};

use crate::layout::HEADER_WORDS;

/// The first words of a relay's region.
pub(super) type Header = [u64; HEADER_WORDS];

/// Reads a header, once.
pub(super) struct ReadHeader {
    owner: Incarnation,
    found: Option<Header>,
    is_missed: bool,
}

impl ReadHeader {
    pub fn of(owner: Incarnation) -> ReadHeader {
        ReadHeader { owner, found: None, is_missed: false }
    }
}

impl Request for ReadHeader {
    type Id = Incarnation;
    /// `None` if it could not be read.
    type Outcome = Option<Header>;
    const TIMEOUT: Duration = Duration::from_secs(1);
    const SUBJECT: &'static str = "the header of a log of reads";

    fn id(&self) -> Incarnation {
        self.owner
    }

    fn target(&self) -> Incarnation {
        self.owner
    }

    /// A region that was not reached is not tried again: its key is asked for first.
    fn deadline(&self) -> Time {
        if self.is_missed { Time::ZERO } else { Time::FAR }
    }

    fn batch(&mut self, _: &dyn Fabric) -> Option<(Batch, Class)> {
        let at: Vec<u64> = (0..HEADER_WORDS as u64).map(|word| 8 * word).collect();
        Some((Batch::read_words(&at), Class::Control))
    }

    fn completed(&mut self, done: Completed) {
        let mut header = [0; HEADER_WORDS];
        for (word, done) in header.iter_mut().zip(&done) {
            *word = done.word().unwrap_or(0);
        }
        self.found = Some(header);
    }

    /// Reads have no effects to settle.
    fn executed(&mut self, _: u64) {}

    fn missed(&mut self) {
        self.is_missed = true;
    }

    fn is_complete(&self) -> bool {
        self.found.is_some()
    }

    fn outcome(&mut self, _: End) -> Option<Option<Header>> {
        Some(self.found)
    }
}
