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
use crate::error::{Error, Result};
use crate::message::Class;

pub(super) struct Guests {
    adapter: Arc<Adapter>,
    most: usize,
    by_caller: Mutex<HashMap<(Rank, Class), Guest>>,
}

struct Guest {
    start: u32,
    /// Of the request that it came by.
    request: u64,
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
        Guests { adapter, most, by_caller: Mutex::default() }
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
        {
            let mut guests = self.by_caller.lock();
            match guests.get(&place) {
                Some(known) if known.cmp(caller, request) == Ordering::Greater => return Ok(None),
                Some(known) if known.cmp(caller, request) == Ordering::Equal => {
                    return Ok(known.served.as_ref().map(Served::endpoint));
                }
                None if guests.len() >= self.most => {
                    return Err(Error::Full { what: "the table of callers", most: self.most });
                }
                _ => {}
            }
            // The former end goes here.
            guests.insert(place, Guest { start: caller.start, request, served: None });
        }
        let made = Served::new(&self.adapter, from, class);
        let mut guests = self.by_caller.lock();
        let is_newest = guests.get(&place).is_some_and(|known| known.cmp(caller, request) == Ordering::Equal);
        match made {
            Ok(served) if is_newest => {
                let endpoint = served.endpoint();
                guests.insert(place, Guest { start: caller.start, request, served: Some(served) });
                Ok(Some(endpoint))
            }
            Ok(_) => Ok(None),
            Err(error) => {
                if is_newest {
                    guests.remove(&place);
                }
                Err(error)
            }
        }
    }

    /// No end answers any more.
    pub(super) fn close(&self) {
        self.by_caller.lock().clear();
    }
}
