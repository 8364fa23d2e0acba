//! What a node does for its share: its memory is made anew in each view, and what its home says is done.

use verbena_cluster::Role;
use verbena_fabric::RegionKey;
use verbena_terms::Time;

use crate::SegmentId;
use crate::access::Given;
use crate::held::{HomeAction, Stands};
use crate::home::Home;
use crate::node::{Action, AskOf, Memory, RENEW_AGAIN, Whose};

/// How a node's share stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Segments in it.
    pub segments: usize,
    /// Its bytes; 0 where this node is no home in this view.
    pub share: u64,
    /// Those that are free.
    pub free: u64,
    /// Those of the largest free piece.
    pub largest: u64,
    /// Bytes that it offers at the moment.
    pub offered: u64,
    /// Bytes that segments have.
    pub taken: u64,
    /// Bytes of segments that have notice to go, or are about to.
    pub going: u64,
}

impl Memory {
    /// Free bytes of its own share, and those of the largest piece.
    pub fn free(&self) -> (u64, u64) {
        self.home.free()
    }

    /// How its share stands.
    pub fn standing(&self) -> Standing {
        let (free, largest) = self.home.free();
        let share = if self.key.is_some() { self.options.bytes } else { 0 };
        let (taken, going) = (self.home.taken(), self.home.going_bytes());
        let offered = self.home.offered().min(share);
        Standing { segments: self.home.held(), share, free, largest, offered, taken, going }
    }

    /// Nobody acts in older views any more: homes make their memory, and then report what they have.
    pub(crate) fn come_into_effect(&mut self, out: &mut Vec<Action>) {
        let Some(view) = self.view.clone() else { return };
        let is_due = self.lease.in_effect >= view.number() || !self.options.rules.waits_for_effect;
        if !is_due || !self.acts() || !view.member(self.me).is_some_and(|member| member.roles.has(Role::Home)) {
            return;
        }
        if !self.home.is_open && self.now >= self.renew_at {
            self.renew_at = Time::FAR;
            out.push(Action::Renew(self.home.renewal()));
        }
    }

    /// Its memory is there, in the view it was asked for in, and these words stand in it; or it is not.
    pub fn renewed(&mut self, made: Option<(RegionKey, Vec<Stands>)>, out: &mut Vec<Action>) {
        let Some(view) = self.view.clone() else { return };
        match made {
            Some((key, stand)) if view.number() == key.view => {
                let bytes = key.bytes;
                self.key = Some(key);
                self.home_acts(out, |home, actions| home.renewed(bytes, &stand, &view, actions));
            }
            _ => self.renew_at = self.now + RENEW_AGAIN,
        }
        if !std::mem::replace(&mut self.has_reported, true) {
            let led = self.home.led(&view);
            for to in view.homes().map(|member| member.incarnation) {
                for question in self.registrar.reports(to, &view, &led) {
                    self.ask(to, question, AskOf::Report, Time::FAR, out);
                }
            }
        }
        self.serve_self(out);
    }

    pub(crate) fn home_completed(&mut self, id: SegmentId, given: Vec<Given>, out: &mut Vec<Action>) {
        let Some(view) = self.view.clone() else { return };
        self.home_acts(out, |home, actions| home.completed(id, &given, &view, actions));
    }

    pub(crate) fn home_acts<T>(
        &mut self,
        out: &mut Vec<Action>,
        event: impl FnOnce(&mut Home, &mut Vec<HomeAction>) -> T,
    ) -> T {
        let mut actions = vec![];
        let said = event(&mut self.home, &mut actions);
        for action in actions {
            match action {
                HomeAction::Post { id, at, steps } => self.post(Whose::Home(id), at, steps, Time::FAR, out),
                HomeAction::Ask { id, to, question } => self.ask(to, question, AskOf::Home(id), Time::FAR, out),
                HomeAction::Tell { to, question } => self.ask(to, question, AskOf::Nobody, Time::FAR, out),
                HomeAction::Reply { to, reply } => self.reply(to.from, to.number, reply, out),
                HomeAction::Store { at, word } => out.push(Action::Store { at, word }),
                HomeAction::Discard { at, bytes } => out.push(Action::Discard { at, bytes }),
                HomeAction::Note(note) => out.push(Action::Note(note)),
            }
        }
        said
    }
}
