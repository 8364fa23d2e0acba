//! Whether a fill may be stored (rule P2), and what the home then remembers of it.

use std::sync::Arc;

use verbena_cluster::View;
use verbena_terms::Time;

use super::{Home, HomeAction};
use crate::names::{Dependency, PageId, Scope};
use crate::table::Word;
use crate::wire::{Message, Refusal, Register, Registered};

impl Home {
    pub(super) fn register(&mut self, register: Register, now: Time, out: &mut Vec<HomeAction>) {
        let outcome = match self.refusal(&register, now) {
            Some(refusal) => Err(refusal),
            None => Ok(self.admit(register.page, &register.scope, out)),
        };
        out.push(HomeAction::Send(Message::Registered(Registered {
            view: self.lease.acknowledged,
            from: self.me,
            to: register.from,
            request: register.request,
            outcome,
        })));
    }

    fn refusal(&self, register: &Register, now: Time) -> Option<Refusal> {
        let is_member = |view: &Arc<View>| view.number() == register.view && view.member(register.from).is_some();
        if register.view != self.lease.acknowledged || !self.views.iter().any(is_member) {
            return Some(Refusal::OtherView);
        }
        if self.lease.valid_at(now) != Some(register.view) {
            return Some(Refusal::NoLease);
        }
        if !self.rules.fills_compare {
            return None;
        }
        let (word, common) = (self.board.page(register.page), self.board.common(register.kind));
        if word.is_busy() || common.is_busy() {
            return Some(Refusal::Busy);
        }
        if word != register.word || common != register.common {
            return Some(Refusal::Moved);
        }
        match &register.scope {
            // A page that depends on everything is moved by every movement, and touched by every open update (rule P4).
            // No page depends on it: such a message is not well-formed.
            Scope::All => Some(Refusal::DependencyBusy),
            Scope::Everything if !self.open.is_empty() => Some(Refusal::DependencyBusy),
            Scope::Everything => (self.board.clock() != register.clock).then_some(Refusal::DependencyMoved),
            Scope::On(set) => set
                .iter()
                .copied()
                .chain([register.page.into()])
                .find_map(|dependency| self.dependency_refusal(dependency, register.clock)),
        }
    }

    fn dependency_refusal(&self, dependency: Dependency, clock: u64) -> Option<Refusal> {
        if self.in_flight.contains_key(&dependency) {
            Some(Refusal::DependencyBusy)
        } else {
            (self.board.stamp(dependency) > clock).then_some(Refusal::DependencyMoved)
        }
    }

    /// Lets the set stand and gives the word to store under. If another stood it bumps first: copies made under that one
    /// would not notice what only the new one names. Where no set stood there is no copy to warn: what was stored under a
    /// set that is gone was bumped when it went, and what depends on everything compares the clock. So a page that comes
    /// here with a change of view costs the pages that share its word nothing. A page that depends on everything needs no
    /// set, and leaves the one that stands to the proxies that have copies under it.
    fn admit(&mut self, page: PageId, scope: &Scope, out: &mut Vec<HomeAction>) -> Word {
        if let Scope::On(_) = scope {
            if self.pages.another_stands(page, scope) && self.rules.other_sets_bump {
                self.board.bump(self.board.table().slot(page), out);
            }
            self.pages.put(page, scope);
            self.shed(out);
        }
        self.board.page(page)
    }

    /// Drops pages beyond the bounds, and bumps them: the home could not invalidate their copies on an update
    /// (rule P7). The page just put stays: it is the youngest, and the bounds hold at least one.
    fn shed(&mut self, out: &mut Vec<HomeAction>) {
        while let Some(page) = self.pages.shed(self.limits.pages, self.limits.dependencies) {
            if self.rules.drops_bump {
                self.board.bump(self.board.table().slot(page), out);
            }
        }
    }
}
