//! The ends that answer: one for each caller and class. A caller's next connection takes the place of its former, which is gone before there is another: what was
//! under way by it is then never executed (F2).

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use verbena_terms::{Incarnation, Rank};

use super::adapter::Adapter;
use super::introductions::Endpoint;
use super::line::Served;
use super::manager::{Call, Ticket};
use super::tally::Tally;
use crate::error::{Error, Result};
use crate::message::Class;
use crate::region::Secret;

pub(super) struct Guests {
    adapter: Arc<Adapter>,
    most: usize,
    tally: Arc<Tally>,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    by_caller: HashMap<(Rank, Class), Guest>,
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
    /// It is there; what the caller was told of it, if it was by message.
    Served { _served: Served, endpoint: Option<Endpoint> },
}

impl Guest {
    /// Whether an earlier or a later request is meant, of this incarnation or of another one (C1).
    fn cmp(&self, caller: Incarnation, request: u64) -> Ordering {
        (self.start, self.request).cmp(&(caller.start, request))
    }
}

impl Guests {
    pub(super) fn new(adapter: Arc<Adapter>, most: usize, tally: Arc<Tally>) -> Self {
        Guests { adapter, most, tally, table: Mutex::default() }
    }

    /// Connects a caller, or says again how it was by this `request`. `None` for a request that a later one has superseded, and for one that is being
    /// answered. May take as long as the network looks for the caller.
    pub(super) fn connect(
        &self,
        caller: Incarnation,
        class: Class,
        request: u64,
        from: &Endpoint,
    ) -> Result<Option<Endpoint>> {
        let known = |state: &State| if let State::Served { endpoint, .. } = state { *endpoint } else { None };
        if let Err(known) = self.admit(caller, class, request, State::Making, known) {
            return Ok(known);
        }
        let made = Served::new(&self.adapter, from, class);
        self.seat((caller.rank, class), caller, request, made.map(|(served, endpoint)| (served, Some(endpoint))))
    }

    /// By which ticket a caller is expected to call. `None` as for [`connect`](Self::connect). May take as long as a former end of its takes to go.
    pub(super) fn expect(&self, caller: Incarnation, class: Class, request: u64) -> Result<Option<Ticket>> {
        let ticket = Secret::random()?.0;
        let known = |state: &State| if let State::Expected(ticket) = state { Some(*ticket) } else { None };
        Ok(match self.admit(caller, class, request, State::Expected(ticket), known) {
            Ok(()) => Some(ticket),
            Err(known) => known,
        })
    }

    /// Connects whoever calls with the ticket that it was given.
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
        let Some((place, guest)) = expected else {
            let reason = "a call without a ticket that is good".into();
            return Err(Error::Malformed { from: "a caller of the adapter".into(), reason });
        };
        guest.state = State::Making;
        let (place, caller, request) = (*place, Incarnation::new(place.0.0, guest.start), guest.request);
        drop(table);
        let made = Served::called(&self.adapter, call);
        self.seat(place, caller, request, made.map(|served| (served, None))).map(drop)
    }

    /// Takes note of a request, in the place of what its caller had, which is destroyed before this returns. Of one that is known, or that a later one has
    /// superseded, says what `known` finds.
    fn admit<T>(
        &self,
        caller: Incarnation,
        class: Class,
        request: u64,
        state: State,
        known: impl FnOnce(&State) -> Option<T>,
    ) -> std::result::Result<(), Option<T>> {
        let place = (caller.rank, class);
        let former = {
            let mut table = self.table.lock();
            match table.by_caller.get(&place).map(|guest| (guest.cmp(caller, request), guest)) {
                Some((Ordering::Greater, _)) => return Err(None),
                Some((Ordering::Equal, guest)) => return Err(known(&guest.state)),
                _ => {}
            }
            let is_new = !table.by_caller.contains_key(&place);
            let oldest = if is_new && table.by_caller.len() >= self.most { table.make_room() } else { None };
            table.made += 1;
            let guest = Guest { start: caller.start, request, turn: table.made, state };
            (table.by_caller.insert(place, guest), oldest)
        };
        // Before there is another; not while others wait, for it may take as long as packets of its own wait somewhere.
        drop(former);
        Ok(())
    }

    /// Keeps an end that was made, unless a later request has superseded its own; what its caller is to be told.
    fn seat(
        &self,
        place: (Rank, Class),
        caller: Incarnation,
        request: u64,
        made: Result<(Served, Option<Endpoint>)>,
    ) -> Result<Option<Endpoint>> {
        let mut table = self.table.lock();
        let newest = table.by_caller.get_mut(&place).filter(|known| known.cmp(caller, request) == Ordering::Equal);
        match (made, newest) {
            (Ok((served, endpoint)), Some(guest)) => {
                guest.state = State::Served { _served: served, endpoint };
                self.tally.taken();
                Ok(endpoint)
            }
            (Ok(_), None) => Ok(None),
            (Err(error), newest) => {
                if newest.is_some() {
                    table.by_caller.remove(&place);
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
    /// The connection that was made longest ago goes: its caller has most likely gone too, and if not it connects again, as it does when a connection is lost.
    fn make_room(&mut self) -> Option<Guest> {
        let oldest = self.by_caller.iter().min_by_key(|(_, guest)| guest.turn).map(|(place, _)| *place);
        self.by_caller.remove(&oldest?)
    }
}
