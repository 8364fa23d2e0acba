//! Whom this node has to introduce itself to: the members whose regions it does not know yet.
//!
//! ```text
//!             introduction, of a home with its page table
//!   unknown -----------------------------------------------> reading
//!      |  ^    the head cannot be used, or the view ends        |
//!      |  +-----------------------------------------------------+
//!      | introduction of another member                         | the head was read
//!      +---------------------------> known <--------------------+
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use verbena_cluster::{Role, View};
use verbena_terms::{Incarnation, Time};

/// How often an introduction is repeated while it is not answered.
const INTRODUCE_AGAIN: Duration = Duration::from_millis(50);

/// The other members of a view, as one member knows them.
#[derive(Default)]
pub(super) struct Members(BTreeMap<Incarnation, Member>);

struct Member {
    is_home: bool,
    acquaintance: Acquaintance,
}

enum Acquaintance {
    /// This node introduces itself at this time.
    Unknown(Time),
    /// It has told its keys, and the head of its page table is being read.
    Reading,
    Known,
}

impl Members {
    /// A newer view. What was being read in the older one comes to nothing.
    pub(super) fn view(&mut self, view: &View, me: Incarnation, now: Time) {
        self.0.retain(|member, _| view.member(*member).is_some());
        for member in view.members().iter().filter(|member| member.incarnation != me) {
            let is_home = member.roles.has(Role::Home);
            let unknown = Member { is_home, acquaintance: Acquaintance::Unknown(now) };
            let known = self.0.entry(member.incarnation).or_insert(unknown);
            if !matches!(known.acquaintance, Acquaintance::Known) {
                known.acquaintance = Acquaintance::Unknown(now);
            }
        }
    }

    /// Messages to this member go through from now on.
    pub(super) fn connected(&mut self, member: Incarnation, now: Time) {
        self.introduce_at(member, now);
    }

    /// The members to which an introduction is due. They are introduced to again later, unless they have told their keys by then.
    pub(super) fn due(&mut self, now: Time) -> Vec<Incarnation> {
        let is_due = |member: &Member| matches!(member.acquaintance, Acquaintance::Unknown(at) if at <= now);
        let due: Vec<Incarnation> =
            self.0.iter().filter(|(_, member)| is_due(member)).map(|(&member, _)| member).collect();
        due.iter().for_each(|member| self.introduced_to(*member, now));
        due
    }

    /// This node has just introduced itself to this member.
    pub(super) fn introduced_to(&mut self, member: Incarnation, now: Time) {
        self.introduce_at(member, now + INTRODUCE_AGAIN);
    }

    /// Whether it is a member of the view.
    pub(super) fn has(&self, member: Incarnation) -> bool {
        self.0.contains_key(&member)
    }

    /// A member has introduced itself. Whether its regions are to be opened: it was unknown. Of a home the head of the page table is to be read.
    pub(super) fn told_keys(&mut self, member: Incarnation, has_table: bool) -> Option<Opening> {
        let known = self.0.get_mut(&member)?;
        let Acquaintance::Unknown(_) = known.acquaintance else { return None };
        if known.is_home && has_table {
            known.acquaintance = Acquaintance::Reading;
            return Some(Opening::WithTable);
        }
        // A home that does not say where its page table is says so later.
        if !known.is_home {
            known.acquaintance = Acquaintance::Known;
        }
        Some(Opening::AcknowledgementsOnly)
    }

    /// The head of this home's page table was read. Whether its table can be used; if not, the home is introduced to again after a pause.
    pub(super) fn head_read(&mut self, home: Incarnation, is_usable: bool, now: Time) {
        let Some(known) = self.0.get_mut(&home) else { return };
        known.acquaintance = if is_usable { Acquaintance::Known } else { Acquaintance::Unknown(now + INTRODUCE_AGAIN) };
    }

    /// When the next introduction is due.
    pub(super) fn next_deadline(&self) -> Option<Time> {
        let due = |member: &Member| match member.acquaintance {
            Acquaintance::Unknown(at) => Some(at),
            Acquaintance::Reading | Acquaintance::Known => None,
        };
        self.0.values().filter_map(due).min()
    }

    fn introduce_at(&mut self, member: Incarnation, at: Time) {
        if let Some(Member { acquaintance: Acquaintance::Unknown(due), .. }) = self.0.get_mut(&member) {
            *due = at;
        }
    }
}

/// Which regions of a member are to be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opening {
    /// Its acknowledgement words, and its page table.
    WithTable,
    /// Its acknowledgement words.
    AcknowledgementsOnly,
}
