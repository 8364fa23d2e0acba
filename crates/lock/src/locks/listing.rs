//! What clients of a node have of its locks, for a list.

use std::ops::Bound;

use verbena_terms::{Incarnation, Rank};

use super::{Here, Locks, LocksAction};
use crate::listing::{Cursor, Listed, MOST_NAMED, Page, Row};
use crate::local_queue::RequestId;
use crate::name::Name;
use crate::wire::MemberMessage;
use crate::{Mode, Token};

impl Locks {
    /// All members are asked what their clients have of the locks whose names begin so, behind this place; each answers by [`LocksAction::Listed`]. Gives who
    /// was asked.
    pub fn list(
        &mut self,
        number: u64,
        after: Option<Cursor>,
        prefix: Vec<u8>,
        out: &mut Vec<LocksAction>,
    ) -> Vec<Incarnation> {
        self.settle(out);
        let asked: Vec<Incarnation> = self.members.all().collect();
        if asked.is_empty() {
            let page = self.page(after, &prefix);
            out.push(LocksAction::Listed { number, from: self.me, page });
            return vec![self.me];
        }
        self.members.say_to_all(&MemberMessage::List { number, after, prefix });
        self.hear_self(out);
        asked
    }

    /// What clients here have, behind this place.
    pub(super) fn page(&self, after: Option<Cursor>, prefix: &[u8]) -> Page {
        let from = after.as_ref().map(|(name, _)| name.as_bytes()).unwrap_or_default().max(prefix);
        let rows = self
            .here
            .range::<[u8], _>((Bound::Included(from), Bound::Unbounded))
            .take_while(|(name, _)| name.as_bytes().starts_with(prefix));
        let is_new = |name: &Name| after.as_ref().is_none_or(|(last, rank)| (name, self.me.rank) > (last, *rank));
        Page::of(rows.filter(|(name, _)| is_new(name)).filter_map(|(name, here)| self.row(name, here)))
    }

    /// Nothing where no client has anything of it.
    fn row(&self, name: &Name, here: &Here) -> Option<Row> {
        let (holders, waiting) = (here.local.holders(), here.local.waiting());
        if holders.is_empty() && waiting.len() == 0 {
            return None;
        }
        // A node that is becoming a reader has no token for a moment.
        let (mode, token) = here.local.held().map_or((Mode::Shared, None), |(mode, token)| (mode, Some(token)));
        let more = |all: usize| all.saturating_sub(MOST_NAMED) as u32;
        let (more_holders, more_waiting) = (more(holders.len()), more(waiting.len()));
        let holders = holders.iter().take(MOST_NAMED).filter_map(|id| self.listed(*id, mode, token));
        let waiting = waiting.take(MOST_NAMED).filter_map(|(id, request)| self.listed(id, request.mode, None));
        let (holders, waiting): (Vec<Listed>, Vec<Listed>) = (holders.collect(), waiting.collect());
        let ahead = if holders.is_empty() { here.local.ahead() } else { Rank::NOBODY };
        Some(Row { name: name.clone(), node: self.me, ahead, holders, more_holders, waiting, more_waiting })
    }

    fn listed(&self, id: RequestId, mode: Mode, token: Option<Token>) -> Option<Listed> {
        let asked = self.askers.get(id)?;
        Some(Listed { asker: asked.asker, mode, token, age: self.now.since(asked.since) })
    }
}
