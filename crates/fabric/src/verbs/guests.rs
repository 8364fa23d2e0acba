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
use crate::error::Result;
use crate::message::Class;

pub(super) struct Guests {
    adapter: Arc<Adapter>,
    most: usize,
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
    /// None while it is being made.
    served: Option<Served>,
}

impl Guest {
    /// Whether an earlier or a later request is meant, of this incarnation or of another one (C1).
    fn cmp(&self, caller: Incarnation, request: u64) -> Ordering {
        (self.start, self.request).cmp(&(caller.start, request))
    }
}

impl Guests {
    pub(super) fn new(adapter: Arc<Adapter>, most: usize) -> Self {
        Guests { adapter, most, table: Mutex::default() }
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
        let place = (caller.rank, class);
        let former = {
            let mut table = self.table.lock();
            match table.by_caller.get(&place) {
                Some(known) if known.cmp(caller, request) == Ordering::Greater => return Ok(None),
                Some(known) if known.cmp(caller, request) == Ordering::Equal => {
                    return Ok(known.served.as_ref().map(Served::endpoint));
                }
                _ => {}
            }
            let is_new = !table.by_caller.contains_key(&place);
            let oldest = if is_new && table.by_caller.len() >= self.most { table.make_room() } else { None };
            table.made += 1;
            let guest = Guest { start: caller.start, request, turn: table.made, served: None };
            (table.by_caller.insert(place, guest), oldest)
        };
        // Before there is another; not while others wait, for it may take as long as packets of its own wait somewhere.
        drop(former);
        let made = Served::new(&self.adapter, from, class);
        let mut table = self.table.lock();
        let newest = table.by_caller.get_mut(&place).filter(|known| known.cmp(caller, request) == Ordering::Equal);
        match (made, newest) {
            (Ok(served), Some(guest)) => Ok(Some(guest.served.insert(served).endpoint())),
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
