//! The service without a thread, for a simulation: the same driver takes its turns when it is told to, on a clock that it is given.

use std::sync::Arc;
use std::time::Duration;

use verbena_cluster::{LeaseWord, View};
use verbena_fabric::Fabric;
use verbena_fabric::desk::Driver as _;
use verbena_terms::{Clock, Time};

use super::Metrics;
use super::driver::Driver;
use crate::{Answer, MemoryOptions, RequestId, Standing, Wish};

/// How often it looks for answers that are awaited: nothing wakes it.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// The shortest between two turns: time has to go on.
const PACE: Duration = Duration::from_micros(20);

/// A driver whose turns somebody else gives it.
pub struct Stepped {
    driver: Driver,
    metrics: Metrics,
    clock: Arc<dyn Clock>,
    requests: u64,
}

impl Stepped {
    /// On this clock, which must be that of its fabrics.
    pub fn new(options: MemoryOptions, clock: Arc<dyn Clock>) -> Stepped {
        let metrics = Metrics::default();
        Stepped { driver: Driver::new(options, clock.clone(), metrics.clone()), metrics, clock, requests: 0 }
    }

    /// A life of this node begins, by this lease.
    ///
    /// # Errors
    /// If the port is taken.
    pub fn life_begins(&mut self, fabric: Arc<dyn Fabric>, lease: &Arc<LeaseWord>) -> verbena_fabric::Result<()> {
        self.driver.life_begins(fabric, lease)
    }

    /// The life is over: its regions and its fabric are dropped.
    pub fn life_ends(&mut self) {
        self.driver.life_ends();
    }

    /// The cluster has a newer view. When this returns the service has ended what it did in older ones.
    pub fn view_learnt(&mut self, view: &Arc<View>) {
        self.driver.view(view);
    }

    /// A program wants something.
    pub fn request(&mut self, wish: Wish, patience: Duration) -> RequestId {
        self.requests += 1;
        let id = RequestId(self.requests);
        self.driver.request(id, wish, patience);
        id
    }

    /// What became of requests since this was asked last.
    pub fn answers(&mut self) -> Vec<(RequestId, Answer)> {
        self.driver.answers()
    }

    /// Free bytes of its own share, and those of the largest piece.
    pub fn free(&self) -> (u64, u64) {
        self.driver.memory().free()
    }

    /// How its share stands.
    pub fn standing(&self) -> Standing {
        self.driver.memory().standing()
    }

    /// Segments whose memory it took back: those that others hold now, and those that are gone.
    pub fn reclaimed(&self) -> [u64; 2] {
        self.metrics.reclaimed()
    }

    /// What could not be read, so far.
    pub fn strange(&self) -> u64 {
        self.driver.complained()
    }

    /// Does what there is to do. Gives when the next turn is due if nothing arrives before.
    pub fn turn(&mut self) -> Time {
        self.driver.turn(None);
        for opening in self.driver.openings() {
            self.driver.opened(opening.run());
        }
        let is_awaiting = self.driver.life.as_ref().is_some_and(|life| life.is_awaiting());
        let now = self.clock.now();
        let again = if is_awaiting { now + LOOK_AGAIN } else { Time::FAR };
        self.driver.next_deadline().min(again).max(now + PACE)
    }
}
