//! The service without a thread, for a simulation: the caller gives the same driver its turns and its clock.

use std::sync::Arc;
use std::time::Duration;

use verbena_cluster::{LeaseWord, View};
use verbena_fabric::{Fabric, Region};
use verbena_terms::{Clock, Time, ViewNumber};

use super::Metrics;
use super::driver::{self, Running};
use super::own::Own;
use crate::layout::{SLOT_HEAD_BYTES, Word, word_at};
use crate::{Answer, Coherence, MemoryOptions, RequestId, Segment, Standing, Value, Wish};

/// What is seen in a window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    /// Its newest value.
    Shown(Value),
    /// Nothing any more: another window is asked for.
    Over,
    /// It is said to show something, and the node's memory is another.
    Elsewhere,
}

fn look(own: &dyn Region, segment: &Segment) -> Option<Value> {
    let word = Word::from_bits(own.load(word_at(segment.control)).ok()?);
    let slot = segment.slot_at(segment.primary(), word.slot()?);
    let is_null = segment.wanted.coherence == Coherence::Null;
    if !is_null && own.load(slot).ok()? != word.version() {
        return None;
    }
    let mut bytes = vec![0; segment.wanted.bytes as usize];
    own.read(slot + SLOT_HEAD_BYTES, &mut bytes).ok()?;
    let stamp_ns = if is_null { 0 } else { own.load(slot + 8).ok()? };
    Some(Value { bytes, version: word.version(), stamp_ns })
}

/// A driver that the caller polls.
pub struct Stepped {
    driver: Running,
    metrics: Metrics,
    requests: u64,
}

impl Stepped {
    /// On this clock, which must be that of its fabrics.
    pub fn new(options: MemoryOptions, clock: Arc<dyn Clock>) -> Stepped {
        let metrics = Metrics::default();
        let driver = driver::new(options, clock, metrics.clone(), Own::new(Box::new(|_| {})));
        Stepped { driver, metrics, requests: 0 }
    }

    /// Starts an incarnation, which acts by this lease.
    ///
    /// # Errors
    /// If the port is taken.
    pub fn life_begins(&mut self, fabric: Arc<dyn Fabric>, lease: &Arc<LeaseWord>) -> verbena_fabric::Result<()> {
        self.driver.start_incarnation(fabric, lease)
    }

    /// Ends the incarnation: its regions and its fabric are dropped.
    pub fn life_ends(&mut self) {
        self.driver.end_incarnation();
    }

    /// The cluster has a newer view. When this returns the service has ended what it did in older ones.
    pub fn view_learnt(&mut self, view: &Arc<View>) {
        self.driver.enter_view(view);
    }

    /// A program wants something.
    pub fn request(&mut self, wish: Wish, patience: Duration) -> RequestId {
        self.requests += 1;
        let id = RequestId(self.requests);
        self.driver.command(|memory, _, now, out| memory.request(id, wish, now + patience, now, out));
        id
    }

    /// What became of requests since this was asked last.
    pub fn answers(&mut self) -> Vec<(RequestId, Answer)> {
        self.driver.host_mut().answers()
    }

    /// How often it has forgotten anything that programs read in place.
    pub fn forgets(&self) -> u64 {
        self.driver.machine().forgets()
    }

    /// What a program of this node sees in a window that it got when the node's count was `forgets`: at once, without
    /// the service.
    pub fn look(&self, segment: &Segment, view: ViewNumber, forgets: u64) -> Look {
        let until = self.driver.lease().until;
        if self.driver.now() >= until || self.forgets() != forgets {
            return Look::Over;
        }
        let own = self.driver.host().region().own_of(view);
        own.map_or(Look::Elsewhere, |own| look(own, segment).map_or(Look::Over, Look::Shown))
    }

    /// Free bytes of its own share, and those of the largest piece.
    pub fn free(&self) -> (u64, u64) {
        self.driver.machine().free()
    }

    /// How its share stands.
    pub fn standing(&self) -> Standing {
        self.driver.machine().standing()
    }

    /// Segments whose memory it took back: those that others hold now, and those that are gone.
    pub fn reclaimed(&self) -> [u64; 2] {
        self.metrics.reclaimed()
    }

    /// What could not be read, so far.
    pub fn strange(&self) -> u64 {
        self.driver.dropped()
    }

    /// Does what there is to do. Gives when the next turn is due if nothing arrives before.
    pub fn turn(&mut self) -> Time {
        self.driver.step()
    }
}
