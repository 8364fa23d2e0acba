//! The target's side of exactly once (F2): one window for each caller, kept across its connections.
//!
//! A window can go when no caller can need it any more:
//!
//! * a later incarnation of the caller's rank has said hello: the earlier one never acts again (C1), so its window goes, and
//!   what still stands in its connections is refused;
//! * there is no room, and the caller has no connection: of those the one that left first goes. Nothing of it is under way, for its
//!   connections are closed and their bytes gone with them. Should it come back, its hello says which identifier comes next,
//!   and what came before is answered as forgotten: never a second execution, never a false "barred".
//!
//! Where all who are known have connections, another is refused before it sends anything.

use std::collections::HashMap;

use verbena_terms::{Incarnation, Rank};

use crate::operation::OperationId;
use crate::window::{WINDOW, Window};

/// The callers of one class. Takes at most `most` windows of `WINDOW` entries, 24 bytes each.
pub(super) struct Callers {
    by_rank: HashMap<Rank, Caller>,
    most: usize,
    departures: u64,
}

struct Caller {
    start: u32,
    window: Window,
    connections: usize,
    left: u64,
}

/// Why a caller may not have a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// This later incarnation of it has been here.
    Superseded(Incarnation),
    /// There is no room.
    Full,
}

impl Callers {
    pub(super) fn new(most: usize) -> Self {
        Callers { by_rank: HashMap::new(), most, departures: 0 }
    }

    /// A caller said hello on a new connection, and that `next` is its next identifier.
    pub(super) fn arrive(&mut self, caller: Incarnation, next: OperationId) -> Result<(), Refused> {
        if let Some(known) = self.by_rank.get_mut(&caller.rank) {
            if known.start > caller.start {
                return Err(Refused::Superseded(Incarnation { rank: caller.rank, start: known.start }));
            }
            if known.start == caller.start {
                known.connections += 1;
                return Ok(());
            }
        } else if self.by_rank.len() >= self.most {
            self.make_room()?;
        }
        let window = if next.0 == 1 { Window::default() } else { Window::resumed(WINDOW, next) };
        self.by_rank.insert(caller.rank, Caller { start: caller.start, window, connections: 1, left: 0 });
        Ok(())
    }

    /// A connection that [`arrive`](Self::arrive) let in has ended.
    pub(super) fn leave(&mut self, caller: Incarnation) {
        if let Some(known) = self.by_rank.get_mut(&caller.rank).filter(|known| known.start == caller.start) {
            debug_assert!(known.connections > 0, "who leaves has arrived");
            known.connections -= 1;
            self.departures += 1;
            known.left = self.departures;
        }
    }

    /// The caller's window; `None` when a later incarnation of it has been here.
    pub(super) fn window(&mut self, caller: Incarnation) -> Option<&mut Window> {
        let known = self.by_rank.get_mut(&caller.rank)?;
        (known.start == caller.start).then_some(&mut known.window)
    }

    fn make_room(&mut self) -> Result<(), Refused> {
        let absent = self.by_rank.iter().filter(|(_, caller)| caller.connections == 0);
        let longest = absent.min_by_key(|(_, caller)| caller.left).map(|(rank, _)| *rank).ok_or(Refused::Full)?;
        self.by_rank.remove(&longest);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::Settled;
    use crate::window::Claim;

    const FIRST: OperationId = OperationId(1);

    #[test]
    fn a_window_outlives_its_connections() {
        let mut callers = Callers::new(4);
        let caller = Incarnation::new(1, 1);
        callers.arrive(caller, FIRST).unwrap();
        assert_eq!(callers.window(caller).unwrap().claim(FIRST), Claim::Execute);
        callers.window(caller).unwrap().executed(FIRST, 9);
        callers.leave(caller);
        callers.arrive(caller, OperationId(2)).unwrap();
        assert_eq!(callers.window(caller).unwrap().claim(FIRST), Claim::Executed(9));
    }

    #[test]
    fn a_later_incarnation_ends_the_earlier() {
        let mut callers = Callers::new(4);
        let (early, late) = (Incarnation::new(1, 1), Incarnation::new(1, 2));
        callers.arrive(early, FIRST).unwrap();
        callers.arrive(late, FIRST).unwrap();
        assert!(callers.window(early).is_none());
        assert_eq!(callers.arrive(early, FIRST), Err(Refused::Superseded(late)));
        callers.leave(early);
        assert_eq!(callers.window(late).unwrap().claim(FIRST), Claim::Execute);
    }

    #[test]
    fn the_longest_absent_makes_room_and_is_remembered_by_its_next_identifier() {
        let mut callers = Callers::new(2);
        let [a, b, c] = [1, 2, 3].map(|rank| Incarnation::new(rank, 1));
        callers.arrive(a, FIRST).unwrap();
        callers.arrive(b, FIRST).unwrap();
        assert_eq!(callers.arrive(c, FIRST), Err(Refused::Full));
        callers.window(a).unwrap().claim(FIRST);
        callers.window(a).unwrap().executed(FIRST, 7);
        callers.leave(a);
        callers.leave(b);
        callers.arrive(c, FIRST).unwrap();
        assert!(callers.window(a).is_none() && callers.window(b).is_some());

        callers.arrive(a, OperationId(2)).unwrap();
        let window = callers.window(a).unwrap();
        assert_eq!(window.claim(FIRST), Claim::Unknown);
        assert_eq!(window.settle(FIRST), None, "executed once and forgotten is not barred");
        assert_eq!(window.settle(OperationId(2)), Some(Settled::Barred));
    }
}
