//! A member's words that are read once, and not again: where they could not be read, something else is asked first.

use std::time::Duration;

use verbena_fabric::{Batch, Class, Completed, Fabric};
use verbena_terms::{Incarnation, Time};

use crate::batches::{End, Request};

/// What is read.
pub trait Words {
    /// What the words say.
    type Found: Copy;
    /// For the log: "a board".
    const SUBJECT: &'static str;

    /// The reads. `None` where there is no buffer for them at the moment.
    fn batch(&self, fabric: &dyn Fabric) -> Option<Batch>;
    /// What was read.
    fn found(&self, done: &Completed) -> Self::Found;
    /// It is over, with this; `None` if they could not be read.
    fn ended(&self, _found: Option<Self::Found>) {}
}

/// Reads words of a member's only region, once.
pub struct ReadOnce<W: Words> {
    owner: Incarnation,
    words: W,
    found: Option<W::Found>,
    is_missed: bool,
}

impl<W: Words> ReadOnce<W> {
    /// Of this member.
    pub fn new(owner: Incarnation, words: W) -> Self {
        ReadOnce { owner, words, found: None, is_missed: false }
    }
}

impl<W: Words> Request for ReadOnce<W> {
    type Id = Incarnation;
    /// `None` if they could not be read.
    type Outcome = Option<W::Found>;
    const TIMEOUT: Duration = Duration::from_secs(1);
    const SUBJECT: &'static str = W::SUBJECT;

    fn id(&self) -> Incarnation {
        self.owner
    }

    fn target(&self) -> Incarnation {
        self.owner
    }

    /// A region that was not reached is not tried again.
    fn deadline(&self) -> Time {
        if self.is_missed { Time::ZERO } else { Time::FAR }
    }

    fn batch(&mut self, fabric: &dyn Fabric) -> Option<(Batch, Class)> {
        Some((self.words.batch(fabric)?, Class::Control))
    }

    fn completed(&mut self, done: Completed) {
        self.found = Some(self.words.found(&done));
    }

    /// Reads have no effects to settle.
    fn executed(&mut self, _: u64) {}

    fn missed(&mut self) {
        self.is_missed = true;
    }

    fn is_complete(&self) -> bool {
        self.found.is_some()
    }

    fn outcome(&mut self, _: End) -> Option<Option<W::Found>> {
        self.words.ended(self.found);
        Some(self.found)
    }
}
