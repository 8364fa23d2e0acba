//! How many fills an origin has at once, and which fills wait for a place.
//!
//! One request fetches a page for all requests of it, but there are many pages. When a home comes or goes all of its pages are to be fetched
//! once more, and at a cold start all there are. So a fill takes a *place* at an origin before it is forwarded, and gives it back when the
//! whole answer is here, or, of an answer that is not kept, its head. Where no place is free the fill waits: in order, not longer than the
//! application may take to answer, and only while the queue is below its bound. A request that asks the application whatever the cache holds
//! takes no place.
//!
//! The first in the queue holds the turn and looks for a place whenever one is given back; the others wait for the turn, which is given in the
//! order in which it was asked for.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, Notify};
use tokio::time::{Instant, timeout, timeout_at};
use verbena_metrics::{Counter, Level};

use super::{Failure, Origin, Origins};
use crate::observed::{Counted, Observed};

/// Fills that may wait for each place. One more is refused.
const WAITING_EACH: usize = 32;
/// How often an origin that was ill is looked at, if none gives a place back.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The places of all origins.
pub(super) struct Places {
    /// At each origin.
    each: usize,
    turn: Mutex<()>,
    freed: Notify,
    waiting: AtomicUsize,
    most_waiting: usize,
    taken: Level,
    queued: Level,
    refused: Counter,
}

/// A place at an origin, until it is dropped.
pub(crate) struct Place {
    origins: Arc<Origins>,
    at: usize,
    /// Whether it had to be waited for: what was known before may be so no more.
    pub waited: bool,
}

impl Places {
    pub fn new(each: usize, origins: usize, observed: &Observed) -> Self {
        Places {
            each,
            turn: Mutex::new(()),
            freed: Notify::new(),
            waiting: AtomicUsize::new(0),
            most_waiting: each.saturating_mul(origins).saturating_mul(WAITING_EACH),
            taken: observed.fills.clone(),
            queued: observed.fills_waiting.clone(),
            refused: observed.fills_refused.clone(),
        }
    }
}

impl Origins {
    /// A place for a fill, at the origin that it should go to.
    pub async fn place(self: &Arc<Self>, until: Instant) -> Result<Place, Failure> {
        if let Ok(_turn) = self.places.turn.try_lock()
            && let Some(place) = self.free_place(false)
        {
            return Ok(place);
        }
        let place = match Waiting::new(&self.places) {
            Some(_waiting) => timeout_at(until, self.next_place()).await.ok(),
            None => None,
        };
        place.ok_or_else(|| {
            self.places.refused.increment();
            Failure::Crowded
        })
    }

    async fn next_place(self: &Arc<Self>) -> Place {
        let _turn = self.places.turn.lock().await;
        loop {
            match self.free_place(true) {
                Some(place) => return place,
                // Time alone tells that one is to be tried.
                None => drop(timeout(LOOK_EVERY, self.places.freed.notified()).await),
            }
        }
    }

    /// In which order to try them, for a fill that has this place.
    pub(super) fn order_from(&self, place: &Place) -> Vec<&Origin> {
        let mut order: Vec<&Origin> = self.ranked(true, place.at).into_iter().map(|(_, origin)| origin).collect();
        order.sort_by_key(|origin| origin.number != place.at);
        order
    }

    /// Only for the fill that has the turn. Origins that are ill have places only when all are.
    fn free_place(self: &Arc<Self>, waited: bool) -> Option<Place> {
        let order = self.ranked(true, self.turn());
        let (best, _) = *order.first()?;
        let mut candidates = order.into_iter().take_while(|(standing, _)| *standing == best);
        let (_, origin) = candidates.find(|(_, origin)| origin.fills.load(Ordering::Relaxed) < self.places.each)?;
        origin.fills.fetch_add(1, Ordering::Relaxed);
        self.places.taken.add(1);
        Some(Place { origins: self.clone(), at: origin.number, waited })
    }
}

impl Place {
    /// The one it was at takes no connection: its fills go to others, beyond their places.
    pub(super) fn moves_to(&mut self, origin: &Origin) {
        origin.fills.fetch_add(1, Ordering::Relaxed);
        self.origins.all[self.at].fills.fetch_sub(1, Ordering::Relaxed);
        self.at = origin.number;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.origins.all[self.at].fills.fetch_sub(1, Ordering::Relaxed);
        self.origins.places.taken.add(-1);
        self.origins.places.freed.notify_one();
    }
}

/// One more in the queue, until it is dropped.
struct Waiting<'a> {
    places: &'a Places,
    _counted: Counted<'a>,
}

impl<'a> Waiting<'a> {
    fn new(places: &'a Places) -> Option<Self> {
        let before = places.waiting.fetch_add(1, Ordering::Relaxed);
        let waiting = Waiting { places, _counted: Counted::new(&places.queued) };
        (before < places.most_waiting).then_some(waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.places.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
