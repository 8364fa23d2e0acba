//! The way to one target in one class: a connection that is made when it is needed and made again when it ends, and the ledger of what goes by it.
//! What is decided is in [`Ledger`].

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use verbena_terms::{BootClock, Clock, Incarnation, Time, ViewNumber};

use super::adapter::Adapter;
use super::batches::Place;
use super::burial::Burial;
use super::clerk::Clerk;
use super::enquiries::Enquiries;
use super::entries::Failure;
use super::introductions::{self, Endpoint, Meeting, Said};
use super::ledger::Ledger;
use super::line::Line;
use super::tally::Tally;
use crate::completion::Pending;
use crate::ending::{Endings, RegionId};
use crate::error::{Error, Result};
use crate::lookout::Lookout;
use crate::message::Class;
use crate::operation::{Batch, Completed, OperationId, Settled};
use crate::pool::Pool;
use crate::provider::{Address, Peer};
use crate::region::{RegionKey, SharedRemote};

/// Who is not connected asks again after so long.
const ASK_AGAIN: Duration = Duration::from_millis(50);
/// After so long without an answer it asks with a connection of its own anew.
const GIVE_UP: Duration = Duration::from_secs(2);

pub(super) struct Link {
    target: Incarnation,
    class: Class,
    ways: Ways,
    side: Mutex<Side>,
}

/// By what a link goes.
pub(super) struct Ways {
    pub(super) adapter: Arc<Adapter>,
    pub(super) clerk: Arc<Clerk>,
    pub(super) burial: Burial,
    /// The target's channel for messages.
    pub(super) channel: Arc<dyn Peer>,
    /// Where its answers reach this node.
    pub(super) answers: Address,
    pub(super) enquiries: Arc<Enquiries>,
    pub(super) tally: Arc<Tally>,
}

/// How a target answers a request for a connection.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answer {
    /// It has made its end.
    Connected(Endpoint),
    /// It is to be called.
    Expected(Meeting),
}

struct Side {
    ledger: Ledger,
    line: Option<Line>,
    asking: Option<Asking>,
    /// Number of the newest request for a connection.
    request: u64,
    /// Why there is no connection, while there is none.
    refusal: Error,
    /// Whether the clerk looks after it.
    is_left: bool,
    /// Whether the owner is being asked about a key.
    is_enquiring: bool,
    lookout: Lookout,
    tally: Arc<Tally>,
}

/// A connection of which the other end has still to be made.
struct Asking {
    /// None while it is being connected.
    line: Option<Line>,
    again: Time,
    until: Time,
}

impl Link {
    /// To this target. Nothing is sent before something is posted.
    pub(super) fn new(target: Incarnation, class: Class, ways: Ways, pool: Pool) -> Self {
        let side = Side {
            ledger: Ledger::new(target, pool, ways.adapter.refusals),
            line: None,
            asking: None,
            request: 0,
            refusal: unreachable(target, &ways.adapter, NO_ANSWER.to_owned()),
            is_left: false,
            is_enquiring: false,
            lookout: Lookout::default(),
            tally: ways.tally.clone(),
        };
        Link { target, class, ways, side: Mutex::new(side) }
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

    /// The target has answered a request for a connection. May take as long as the network looks for it.
    pub(super) fn answered(self: &Arc<Self>, number: u64, answer: std::result::Result<Answer, String>) {
        // An earlier request was answered by an end that a later one has destroyed.
        let is_meant = |side: &Side| number == side.request && side.asking.is_some();
        let mut side = self.side.lock();
        let line = if is_meant(&side) { side.asking.as_mut().and_then(|asking| asking.line.take()) } else { None };
        drop(side);
        let Some(mut line) = line else { return };
        let answer = answer.map_err(|reason| self.unreachable(reason));
        let connected = answer.and_then(|answer| match answer {
            Answer::Connected(end) => line.connect(&end),
            Answer::Expected(meeting) => line.call(&meeting),
        });
        let connected = connected.and_then(|()| if self.ways.clerk.is_told() { line.arm() } else { Ok(()) });

        let mut endings = Endings::default();
        let mut side = self.side.lock();
        if is_meant(&side) {
            side.asking = None;
            side.lookout.heard(BootClock.now());
            match connected {
                Ok(()) => {
                    side.line = Some(line);
                    side.tally.made();
                    side.refusal = self.unreachable(NO_ANSWER.to_owned());
                    side.ledger.connected(&mut endings);
                }
                Err(error) => {
                    let error = match error {
                        Error::Unreachable { .. } => error,
                        other => self.unreachable(other.to_string()),
                    };
                    tracing::warn!(peer = %self.target, %error, "no connection of adapters");
                    side.ledger.unreachable(&error, &mut endings);
                    side.refusal = error;
                }
            }
        }
        drop(side);
        endings.hand_over();
        self.with(|_, _| ());
    }

    /// Ends everything that waits or is under way.
    pub(super) fn close(&self) {
        let mut endings = Endings::default();
        let mut side = self.side.lock();
        side.give_up_asking(&self.ways.burial);
        side.ledger.close(&mut endings);
        side.end(&self.ways.burial, &mut endings);
        let agent = side.lookout.leave();
        drop(side);
        drop(agent);
        endings.hand_over();
    }

    /// What has come and what is due. When to look again, at the latest; `None` when nothing is waited for.
    pub(super) fn serve(self: &Arc<Self>) -> Option<Time> {
        let mut endings = Endings::default();
        let mut side = self.side.lock();
        let now = BootClock.now();
        side.take(now, &self.ways.burial, &mut endings);
        if side.ledger.is_stalled(now) {
            tracing::warn!(peer = %self.target, "a connection of adapters stands still, and is ended");
            side.stop(now, &self.ways, &mut endings);
        }
        let look = side.look_for_target(now, &self.ways.burial, &mut endings);
        let Side { ledger, refusal, .. } = &mut *side;
        ledger.expire(now, refusal, &mut endings);
        self.send(&mut side, now, &mut endings);
        if self.ways.clerk.is_told() {
            // What completes from now on is told; what did before is taken.
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
        self.ways.clerk.rota().tell(self, waits, was_left, until);
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
                tracing::warn!(peer = %self.target, %error, "a connection of adapters has ended");
                side.end(&self.ways.burial, endings);
            }
        }
        if side.ledger.wants_connection()
            && let Err(error) = self.ask(side, now)
        {
            tracing::warn!(peer = %self.target, %error, "no connection of adapters");
            side.give_up_asking(&self.ways.burial);
            side.ledger.unreachable(&error, endings);
            side.refusal = error;
        }
    }

    /// Asks the target for the other end of a connection.
    fn ask(&self, side: &mut Side, now: Time) -> Result<()> {
        if side.asking.as_ref().is_some_and(|asking| asking.line.is_some() && now >= asking.until) {
            side.give_up_asking(&self.ways.burial);
        }
        if side.asking.is_none() {
            let line = Line::new(&self.ways.adapter, self.ways.clerk.channel(), self.class)?;
            side.request += 1;
            side.asking = Some(Asking { line: Some(line), again: now, until: now + GIVE_UP });
        }
        let number = side.request;
        let Some(asking) = side.asking.as_mut().filter(|asking| now >= asking.again) else { return Ok(()) };
        asking.again = now + ASK_AGAIN;
        let Some(line) = &asking.line else { return Ok(()) };
        let answers = self.ways.answers.clone();
        let is_managed = self.ways.adapter.managed.is_some();
        let body = if is_managed { Said::Call(answers) } else { Said::Connect(line.endpoint(), answers) }.to_bytes();
        match self.ways.channel.send(self.class, ViewNumber(0), introductions::PORT, number, &body) {
            // It asks again.
            Err(Error::Full { .. }) => Ok(()),
            sent => sent,
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

    fn unreachable(&self, reason: String) -> Error {
        unreachable(self.target, &self.ways.adapter, reason)
    }
}

/// Until there is a better reason.
const NO_ANSWER: &str = "it has not answered a request for a connection";

fn unreachable(target: Incarnation, by: &Adapter, reason: String) -> Error {
    Error::Unreachable { target, address: format!("its adapter, from {}", by.name), reason }
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

    /// Of a connection that is being made nothing comes.
    fn give_up_asking(&mut self, burial: &Burial) {
        if let Some(line) = self.asking.take().and_then(|asking| asking.line) {
            burial.bury(line, Vec::new());
        }
    }

    /// When a request for a connection is sent again.
    fn asks(&self) -> Time {
        match &self.asking {
            Some(asking) if self.ledger.wants_connection() => asking.again,
            _ => Time::FAR,
        }
    }

    /// Finds out whether the target is gone, if it has been silent. When to look again.
    fn look_for_target(&mut self, now: Time, burial: &Burial, endings: &mut Endings) -> Time {
        match self.lookout.glance(now) {
            Ok(None) => {}
            Ok(Some(next)) => return next,
            Err(error) => {
                self.give_up_asking(burial);
                self.end(burial, endings);
                self.ledger.unreachable(&error, endings);
                self.refusal = error;
            }
        }
        self.lookout.look(now, !self.ledger.is_idle())
    }
}
