//! The ends that answer: one for each caller, class and purpose. A caller's next connection takes the place of its former, which is gone before there is another: what was
//! under way by it is then never executed (F2).

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use verbena_terms::{Incarnation, Rank};

use super::adapter::{Adapter, unusable};
use super::batches::Place;
use super::introductions::{Endpoint, Purpose};
use super::line::{End, Served};
use super::manager::{Call, Ticket};
use super::receiver::Receiver;
use super::tally::Tally;
use crate::error::{Error, Result};
use crate::message::Class;
use crate::region::Secret;

pub(super) struct Guests {
    adapter: Arc<Adapter>,
    /// Of each class that takes messages by the adapter.
    receivers: [Option<Arc<Receiver>>; 2],
    /// Callers of one class that ask for operations.
    most: usize,
    tally: Arc<Tally>,
    table: Mutex<Table>,
}

/// A request for a connection, and its caller.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    pub(super) caller: Incarnation,
    pub(super) class: Class,
    pub(super) purpose: Purpose,
    /// Number of the request.
    pub(super) request: u64,
}

type Seat = (Rank, Class, Purpose);

impl Wish {
    fn seat(&self) -> Seat {
        (self.caller.rank, self.class, self.purpose)
    }
}

#[derive(Default)]
struct Table {
    by_caller: HashMap<Seat, Guest>,
    /// Connections that were made so far.
    made: u64,
}

struct Guest {
    start: u32,
    /// Of the request that it came by.
    request: u64,
    /// Which of all that were made it is.
    turn: u64,
    state: State,
}

enum State {
    /// It is being made.
    Making,
    /// A call with this ticket is expected.
    Expected(Ticket),
    /// It is there. `endpoint` is what the caller got in the answer, if that was by message; `counts` is where taken
    /// messages are counted, if it is for messages.
    Served { _served: Served, endpoint: Option<Endpoint>, counts: Option<Place> },
}

impl Guest {
    /// Whether an earlier or a later request is meant, of this incarnation or of another one (C1).
    fn cmp(&self, wish: &Wish) -> Ordering {
        (self.start, self.request).cmp(&(wish.caller.start, wish.request))
    }
}

impl Guests {
    pub(super) fn new(
        adapter: Arc<Adapter>,
        receivers: [Option<Arc<Receiver>>; 2],
        most: usize,
        tally: Arc<Tally>,
    ) -> Self {
        Guests { adapter, receivers, most, tally, table: Mutex::default() }
    }

    /// Connects a caller, or says again how it was by this request. `None` for a request that a later one has superseded, and for one that is being
    /// answered. May take as long as the network looks for the caller.
    pub(super) fn connect(&self, wish: Wish, from: &Endpoint) -> Result<Option<Endpoint>> {
        let known = |state: &State| if let State::Served { endpoint, .. } = state { *endpoint } else { None };
        if let Err(known) = self.admit(&wish, State::Making, known) {
            return Ok(known);
        }
        let made = self.end(&wish).and_then(|(end, counts)| {
            let (served, endpoint) = Served::new(&self.adapter, end, from, wish.class)?;
            Ok(State::Served { _served: served, endpoint: Some(endpoint), counts })
        });
        self.seat(&wish, made)
    }

    /// By which ticket a caller is expected to call. `None` as for [`connect`](Self::connect). May take as long as a former end of its takes to go.
    pub(super) fn expect(&self, wish: Wish) -> Result<Option<Ticket>> {
        if wish.purpose == Purpose::Messages {
            self.receiver(wish.class)?;
        }
        let ticket = Secret::random()?.0;
        let known = |state: &State| if let State::Expected(ticket) = state { Some(*ticket) } else { None };
        Ok(match self.admit(&wish, State::Expected(ticket), known) {
            Ok(()) => Some(ticket),
            Err(known) => known,
        })
    }

    /// Connects a caller that shows the ticket that it was given.
    ///
    /// # Errors
    /// Besides what the adapter refuses, [`Error::Malformed`] for a call without a ticket that is good.
    pub(super) fn called(&self, call: Call) -> Result<()> {
        let is_good = |guest: &Guest| match (&guest.state, &call.ticket) {
            (State::Expected(expected), Some(shown)) => Secret(*expected).matches(&Secret(*shown)),
            _ => false,
        };
        let mut table = self.table.lock();
        let expected = table.by_caller.iter_mut().find(|(_, guest)| is_good(guest));
        let Some(((rank, class, purpose), guest)) = expected else {
            let reason = "a call without a ticket that is good".into();
            return Err(Error::Malformed { from: "a caller of the adapter".into(), reason });
        };
        guest.state = State::Making;
        let caller = Incarnation { rank: *rank, start: guest.start };
        let wish = Wish { caller, class: *class, purpose: *purpose, request: guest.request };
        drop(table);
        let made = self.end(&wish).and_then(|(end, counts)| {
            let served = Served::called(&self.adapter, end, call)?;
            Ok(State::Served { _served: served, endpoint: None, counts })
        });
        self.seat(&wish, made).map(drop)
    }

    /// Where it is counted what was taken of the messages of the connection that was made by this request; `None` within where there is no such. `None` while it is made.
    pub(super) fn counts(&self, wish: &Wish) -> Option<Option<Place>> {
        let table = self.table.lock();
        let guest = table.by_caller.get(&wish.seat()).filter(|guest| guest.cmp(wish) == Ordering::Equal);
        match guest.map(|guest| &guest.state) {
            Some(State::Served { counts, .. }) => Some(*counts),
            Some(State::Making | State::Expected(_)) => None,
            None => Some(None),
        }
    }

    /// An end that is to be connected.
    fn end(&self, wish: &Wish) -> Result<(End, Option<Place>)> {
        match wish.purpose {
            Purpose::Operations => Ok((End::answers(&self.adapter)?, None)),
            Purpose::Messages => {
                let (end, counts) = self.receiver(wish.class)?.end_for(wish.caller)?;
                Ok((End::Receives(end), Some(counts)))
            }
        }
    }

    fn receiver(&self, class: Class) -> Result<&Arc<Receiver>> {
        self.receivers[class as usize].as_ref().ok_or_else(|| {
            unusable("no messages are taken by the adapter here".into(), "They go by tcp; the node's log says why")
        })
    }

    /// Takes note of a request, in the place of what its caller had, which is destroyed before this returns. Of one that is known, or that a later one has
    /// superseded, says what `known` finds.
    fn admit<T>(
        &self,
        wish: &Wish,
        state: State,
        known: impl FnOnce(&State) -> Option<T>,
    ) -> std::result::Result<(), Option<T>> {
        let seat = wish.seat();
        let most = match (wish.purpose, &self.receivers[wish.class as usize]) {
            (Purpose::Operations, _) | (_, None) => self.most,
            (Purpose::Messages, Some(receiver)) => receiver.most(),
        };
        let former = {
            let mut table = self.table.lock();
            match table.by_caller.get(&seat).map(|guest| (guest.cmp(wish), guest)) {
                Some((Ordering::Greater, _)) => return Err(None),
                Some((Ordering::Equal, guest)) => return Err(known(&guest.state)),
                _ => {}
            }
            let is_new = !table.by_caller.contains_key(&seat);
            let oldest = if is_new { table.make_room(wish, most) } else { None };
            table.made += 1;
            let guest = Guest { start: wish.caller.start, request: wish.request, turn: table.made, state };
            (table.by_caller.insert(seat, guest), oldest)
        };
        // Before there is another; not while others wait, for it may take as long as packets of its own wait somewhere.
        drop(former);
        Ok(())
    }

    /// Keeps an end that was made, unless a later request has superseded its own. Returns the answer for its caller.
    fn seat(&self, wish: &Wish, made: Result<State>) -> Result<Option<Endpoint>> {
        let mut table = self.table.lock();
        let newest = table.by_caller.get_mut(&wish.seat()).filter(|known| known.cmp(wish) == Ordering::Equal);
        match (made, newest) {
            (Ok(state), Some(guest)) => {
                guest.state = state;
                self.tally.taken();
                let State::Served { endpoint, .. } = &guest.state else { return Ok(None) };
                Ok(*endpoint)
            }
            (Ok(_), None) => Ok(None),
            (Err(error), newest) => {
                if newest.is_some() {
                    table.by_caller.remove(&wish.seat());
                }
                Err(error)
            }
        }
    }

    /// No end answers any more.
    pub(super) fn close(&self) {
        self.table.lock().by_caller.clear();
    }
}

impl Table {
    /// Of as many as there can be the connection that was made longest ago goes: its caller has most likely gone too, and if not it connects again, as it does when a
    /// connection is lost.
    fn make_room(&mut self, wish: &Wish, most: usize) -> Option<Guest> {
        let like = |seat: &Seat| (seat.1, seat.2) == (wish.class, wish.purpose);
        let others = self.by_caller.iter().filter(|(seat, _)| like(seat));
        if others.clone().count() < most {
            return None;
        }
        let oldest = others.min_by_key(|(_, guest)| guest.turn).map(|(seat, _)| *seat);
        self.by_caller.remove(&oldest?)
    }
}
