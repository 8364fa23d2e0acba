//! The names of the nodes behind ranks, where every incarnation gets a new rank: a certificate can then be for the
//! node's name only.
//!
//! The node of a rank never changes, so what was found out once is kept. An unknown rank is looked up in the
//! background: the node that shows it is refused meanwhile, and tries again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use verbena_terms::Rank;

/// The names of nodes, by the ranks of their incarnations. Clones are one roster.
#[derive(Clone)]
pub struct Roster(Arc<Shared>);

/// By which names nodes prove who they are, where it is not by rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// This node's: its certificate is for `NAME.member.verbena`.
    pub own: String,
    /// The names of the other nodes.
    pub roster: Roster,
}

/// Receives, once, the result of a look-up: a name, or that there is none (yet).
pub struct Found {
    roster: Weak<Shared>,
    rank: Rank,
}

struct Shared {
    known: Mutex<Known>,
    look_up: Box<dyn Fn(Rank, Found) + Send + Sync>,
}

#[derive(Default)]
struct Known {
    names: BTreeMap<Rank, String>,
    asked: BTreeSet<Rank>,
}

/// Names that are kept; beyond that the lowest ranks, which are the oldest incarnations, are forgotten.
const MOST_NAMES: usize = 4096;

/// Ranks that are looked up at a time: a node that claims any other is refused.
const MOST_ASKED: usize = 16;

impl Roster {
    /// One that finds out what it does not know by `look_up`, which must not block: it is called on threads of the fabric.
    pub fn new(look_up: impl Fn(Rank, Found) + Send + Sync + 'static) -> Self {
        Roster(Arc::new(Shared { known: Mutex::default(), look_up: Box::new(look_up) }))
    }

    /// Says whose a rank is, as a view does.
    pub fn know(&self, rank: Rank, name: &str) {
        self.0.know(rank, name);
    }

    /// The name of the node whose incarnation has this rank. If it is not known it is looked up, for the next time.
    pub(super) fn name(&self, rank: Rank) -> Option<String> {
        {
            let mut known = self.0.known.lock();
            if let Some(name) = known.names.get(&rank) {
                return Some(name.clone());
            }
            if known.asked.len() >= MOST_ASKED || !known.asked.insert(rank) {
                return None;
            }
        }
        (self.0.look_up)(rank, Found { roster: Arc::downgrade(&self.0), rank });
        None
    }
}

impl Shared {
    fn know(&self, rank: Rank, name: &str) {
        let mut known = self.known.lock();
        known.names.entry(rank).or_insert_with(|| name.to_owned());
        if known.names.len() > MOST_NAMES {
            known.names.pop_first();
        }
    }
}

impl Found {
    /// The name that was found.
    pub fn is(self, name: &str) {
        if let Some(roster) = self.roster.upgrade() {
            roster.know(self.rank, name);
        }
    }
}

impl Drop for Found {
    /// Whether a name was found or not, it may be asked again.
    fn drop(&mut self) {
        if let Some(roster) = self.roster.upgrade() {
            roster.known.lock().asked.remove(&self.rank);
        }
    }
}

impl PartialEq for Roster {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Roster {}

impl fmt::Debug for Roster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Roster").field("known", &self.0.known.lock().names.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_is_looked_up_once_at_a_time_and_what_was_found_is_kept() {
        let asked: Arc<Mutex<Vec<(Rank, Found)>>> = Arc::default();
        let asks = asked.clone();
        let roster = Roster::new(move |rank, found| asks.lock().push((rank, found)));
        assert_eq!((roster.name(Rank(7)), roster.name(Rank(7))), (None, None));
        assert_eq!(asked.lock().len(), 1);
        // No node has it yet.
        drop(asked.lock().pop());
        assert_eq!((roster.name(Rank(7)), asked.lock().len()), (None, 1));
        asked.lock().pop().unwrap().1.is("app1");
        roster.know(Rank(7), "another");
        assert_eq!((roster.name(Rank(7)).as_deref(), asked.lock().len()), (Some("app1"), 0));

        for rank in 100..200 {
            roster.name(Rank(rank));
        }
        assert_eq!(asked.lock().len(), MOST_ASKED);
        for rank in 1000..1000 + MOST_NAMES as u32 {
            roster.know(Rank(rank), "many");
        }
        assert_eq!(roster.0.known.lock().names.len(), MOST_NAMES);
        assert!(!roster.0.known.lock().names.contains_key(&Rank(7)), "the oldest is forgotten");
    }
}
