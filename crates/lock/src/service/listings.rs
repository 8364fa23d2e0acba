//! Lists that are being put together: each member says what its clients have.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use verbena_terms::{Incarnation, Time};

use crate::listing::{Page, Row};

/// How long members may take. A member that has not answered by then is named.
const PATIENCE: Duration = Duration::from_millis(500);

/// A part of the list of all locks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct List {
    /// In the order of names, and of nodes.
    pub rows: Vec<Row>,
    /// Members that did not answer: what their clients have is not in it.
    pub silent: Vec<Incarnation>,
    /// Whether more follow.
    pub more: bool,
}

/// Is told a part of the list, on the service's thread: must not block.
pub type Shown = Box<dyn FnOnce(List) + Send>;

#[derive(Default)]
pub(super) struct Listings {
    begun: u64,
    open: HashMap<u64, Open>,
}

struct Open {
    awaited: BTreeSet<Incarnation>,
    pages: Vec<Page>,
    until: Time,
    shown: Shown,
}

impl Listings {
    /// The number of the next one.
    pub(super) fn next(&mut self) -> u64 {
        self.begun += 1;
        self.begun
    }

    /// These were asked.
    pub(super) fn begin(&mut self, number: u64, asked: Vec<Incarnation>, shown: Shown, now: Time) {
        let open = Open { awaited: asked.into_iter().collect(), pages: vec![], until: now + PATIENCE, shown };
        self.open.insert(number, open);
    }

    pub(super) fn heard(&mut self, number: u64, from: Incarnation, page: Page) {
        if let Some(open) = self.open.get_mut(&number)
            && open.awaited.remove(&from)
        {
            open.pages.push(page);
        }
    }

    /// Gives what is complete, or late.
    pub(super) fn end(&mut self, now: Time) {
        let over = self.open.extract_if(|_, open| open.awaited.is_empty() || open.until <= now);
        for (_, Open { awaited, pages, shown, .. }) in over {
            let Page { rows, more } = Page::merged(pages);
            shown(List { rows, silent: awaited.into_iter().collect(), more });
        }
    }

    /// When one is late.
    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.open.values().map(|open| open.until).min()
    }
}
