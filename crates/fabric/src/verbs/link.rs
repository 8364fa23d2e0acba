//! The way to one target in one class: a connection that is made when it is needed and made again when it ends, and the ledger of what goes by it.
//! What is decided is in [`Ledger`].

use std::sync::Arc;

use parking_lot::Mutex;
use verbena_terms::{BootClock, Clock, Time};

use super::batches::Place;
use super::burial::Burial;
use super::clerk::Tended;
use super::connecting::{Answer, Connecting, GIVE_UP, NO_ANSWER, Ways};
use super::entries::Failure;
use super::introductions::Purpose;
use super::ledger::Ledger;
use super::line::Line;
use super::tally::Tally;
use crate::completion::Pending;
use crate::ending::{Endings, RegionId};
use crate::error::Error;
use crate::lookout::Lookout;
use crate::operation::{Batch, Completed, OperationId, Settled};
use crate::pool::Pool;
use crate::region::{RegionKey, SharedRemote};

pub(super) struct Link {
    ways: Ways,
    side: Mutex<Side>,
}

struct Side {
    ledger: Ledger,
    line: Option<Line>,
    connecting: Connecting,
    /// Why there is no connection, while it is missing.
    refusal: Error,
    /// Whether the clerk looks after it.
    is_left: bool,
    /// Whether the owner is being asked about a key.
    is_enquiring: bool,
    lookout: Lookout,
    tally: Arc<Tally>,
}

impl Link {
    /// To this target. Nothing is sent before something is posted.
    pub(super) fn new(ways: Ways, pool: Pool) -> Self {
        let side = Side {
            ledger: Ledger::new(ways.target, pool, ways.adapter.refusals),
            line: None,
            connecting: Connecting::new(Purpose::Operations),
            refusal: ways.unreachable(NO_ANSWER.to_owned()),
            is_left: false,
            is_enquiring: false,
            lookout: Lookout::default(),
            tally: ways.tally.clone(),
        };
        Link { ways, side: Mutex::new(side) }
    }

    pub(super) fn post(
        self: &Arc<Self>,
        key: &RegionKey,
        place: Place,
        batch: Batch,
        deadline: Time,
    ) -> Pending<Completed> {
        self.with(|ledger, now| ledger.post(now, key, place, batch, deadline))
    }

    pub(super) fn settle(self: &Arc<Self>, id: OperationId, deadline: Time) -> Pending<Settled> {
        self.with(|ledger, now| ledger.settle(now, id, deadline))
    }

    /// A region of the target was opened through its agent.
    pub(super) fn met(&self, agent: SharedRemote) {
        self.side.lock().lookout.met(agent);
    }

    /// Ends everything that waits or is under way.
    pub(super) fn close(&self) {
        let mut endings = Endings::default();
        let mut side = self.side.lock();
        side.connecting.give_up(&self.ways.burial);
        side.ledger.close(&mut endings);
        side.end(&self.ways.burial, &mut endings);
        let agent = side.lookout.leave();
        drop(side);
        drop(agent);
        endings.hand_over();
    }

    fn with<T>(self: &Arc<Self>, act: impl FnOnce(&mut Ledger, Time) -> T) -> T {
        let mut endings = Endings::default();
        let mut side = self.side.lock();
        let now = BootClock.now();
        if side.ledger.is_idle() {
            side.lookout.heard(now);
        }
        let outcome = act(&mut side.ledger, now);
        self.send(&mut side, now, &mut endings);
        let waits = !side.ledger.is_idle();
        let was_left = std::mem::replace(&mut side.is_left, waits);
        let until = side.ledger.armed().min(side.asks());
        drop(side);
        endings.hand_over();
        self.ways.clerk.rota().tell(|| self.clone(), waits, was_left, until);
        outcome
    }

    /// Posts what waits and has room, or asks for a connection.
    fn send(&self, side: &mut Side, now: Time, endings: &mut Endings) {
        while side.ledger.begin(now) {
            let Side { ledger, line, .. } = side;
            let posted = match (line.as_mut(), ledger.newest()) {
                (Some(line), Some((place, requests))) => line.post(place, requests),
                _ => Err(Error::Closed),
            };
            if let Err(error) = posted {
                tracing::warn!(peer = %self.ways.target, %error, "a connection of adapters has ended");
                side.end(&self.ways.burial, endings);
            }
        }
        if side.ledger.wants_connection()
            && let Err(error) = side.connecting.ask(&self.ways, now)
        {
            tracing::warn!(peer = %self.ways.target, %error, "no connection of adapters");
            side.connecting.give_up(&self.ways.burial);
            side.ledger.unreachable(&error, endings);
            side.refusal = error;
        }
    }

    /// Asks the owner about the keys of what is in doubt, in a thread of its own, for as long as there are any.
    fn enquire(self: &Arc<Self>, side: &mut Side, now: Time, endings: &mut Endings) {
        let Some(id) = side.ledger.doubted(now).filter(|_| !side.is_enquiring) else { return };
        let link = self.clone();
        let enquire = move || {
            let mut next = Some(id);
            while let Some(id) = next {
                let Ways { enquiries, channel, answers, .. } = &link.ways;
                let is_good = match enquiries.place_of(channel, answers, id, BootClock.now() + GIVE_UP) {
                    Ok(_) => Some(true),
                    Err(Error::Revoked { .. }) => Some(false),
                    Err(_) => None,
                };
                next = link.told(&id, is_good);
            }
        };
        side.is_enquiring = std::thread::Builder::new().name("verbs-enquiry".into()).spawn(enquire).is_ok();
        if !side.is_enquiring {
            side.ledger.told(&id, None, endings);
        }
    }

    /// What the owner says of a key; the next one to ask about.
    fn told(self: &Arc<Self>, id: &RegionId, is_good: Option<bool>) -> Option<RegionId> {
        let mut endings = Endings::default();
        let mut side = self.side.lock();
        let now = BootClock.now();
        if side.ledger.told(id, is_good, &mut endings) {
            side.stop(now, &self.ways, &mut endings);
        }
        let next = side.ledger.doubted(now);
        side.is_enquiring = next.is_some();
        drop(side);
        endings.hand_over();
        self.with(|_, _| ());
        next
    }
}

impl Tended for Link {
    fn answered(self: Arc<Self>, number: u64, answer: std::result::Result<Answer, String>) {
        let line = self.side.lock().connecting.answered(number);
        let Some(mut line) = line else { return };
        let connected = self.ways.connect(&mut line, answer);

        let mut endings = Endings::default();
        let mut side = self.side.lock();
        if side.connecting.ends(number) {
            side.lookout.heard(BootClock.now());
            match connected {
                Ok(()) => {
                    side.line = Some(line);
                    side.tally.made();
                    side.refusal = self.ways.unreachable(NO_ANSWER.to_owned());
                    side.ledger.connected(&mut endings);
                }
                Err(error) => {
                    tracing::warn!(peer = %self.ways.target, %error, "no connection of adapters");
                    side.ledger.unreachable(&error, &mut endings);
                    side.refusal = error;
                }
            }
        }
        drop(side);
        endings.hand_over();
        self.with(|_, _| ());
    }

    fn serve(self: Arc<Self>) -> Option<Time> {
        let mut endings = Endings::default();
        let mut side = self.side.lock();
        let now = BootClock.now();
        side.take(now, &self.ways.burial, &mut endings);
        if side.ledger.is_stalled(now) {
            tracing::warn!(peer = %self.ways.target, "a connection of adapters stands still, and is ended");
            side.stop(now, &self.ways, &mut endings);
        }
        let look = side.look_for_target(now, &self.ways.burial, &mut endings);
        let Side { ledger, refusal, .. } = &mut *side;
        ledger.expire(now, refusal, &mut endings);
        self.send(&mut side, now, &mut endings);
        if self.ways.clerk.is_told() {
            // The channel reports what completes from now on; take what did before.
            if side.line.as_ref().is_some_and(|line| line.arm().is_err()) {
                side.end(&self.ways.burial, &mut endings);
            }
            if side.take(now, &self.ways.burial, &mut endings) {
                self.send(&mut side, now, &mut endings);
            }
        }
        self.enquire(&mut side, now, &mut endings);
        let next = (!side.ledger.is_idle()).then(|| side.ledger.armed().min(look).min(side.asks()));
        side.is_left = next.is_some();
        drop(side);
        endings.hand_over();
        next
    }
}

impl Side {
    /// Takes what has completed; whether anything had.
    fn take(&mut self, now: Time, burial: &Burial, endings: &mut Endings) -> bool {
        let Some(line) = &self.line else { return false };
        let (last, failed) = line.poll();
        if let Some(last) = last {
            self.ledger.moves(now);
            self.ledger.completed(last, |number, operation| line.word(number, operation), endings);
        }
        if let Some((number, failure)) = failed {
            self.ledger.failed(number, failure, |number, operation| line.word(number, operation), endings);
            self.bury(burial);
        }
        let has_come = last.is_some() || failed.is_some();
        if has_come {
            self.lookout.heard(now);
        }
        has_come
    }

    /// The connection is to be over, and what is under way is in doubt.
    fn stop(&mut self, now: Time, ways: &Ways, endings: &mut Endings) {
        self.take(now, &ways.burial, endings);
        let Some(line) = &mut self.line else { return };
        if line.stop().is_err() {
            return self.end(&ways.burial, endings);
        }
        self.ledger.failed(0, Failure::Lost, |_, _| 0, endings);
        self.bury(&ways.burial);
    }

    /// The connection is over.
    fn end(&mut self, burial: &Burial, endings: &mut Endings) {
        self.ledger.lost(endings);
        self.bury(burial);
    }

    fn bury(&mut self, burial: &Burial) {
        if let Some(line) = self.line.take() {
            self.tally.lost();
            burial.bury(line, self.ledger.take_retired());
        }
    }

    /// When a request for a connection is sent again.
    fn asks(&self) -> Time {
        if self.ledger.wants_connection() { self.connecting.again() } else { Time::FAR }
    }

    /// Finds out whether the target is gone, if it has been silent. When to look again.
    fn look_for_target(&mut self, now: Time, burial: &Burial, endings: &mut Endings) -> Time {
        match self.lookout.glance(now) {
            Ok(None) => {}
            Ok(Some(next)) => return next,
            Err(error) => {
                self.connecting.give_up(burial);
                self.end(burial, endings);
                self.ledger.unreachable(&error, endings);
                self.refusal = error;
            }
        }
        self.lookout.look(now, !self.ledger.is_idle())
    }
}
