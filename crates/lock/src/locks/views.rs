//! Incarnations, views and leases: what a node may do, and what it carries over (rules C5, F4, F5, L5, L6).

use std::sync::Arc;

use verbena_cluster::{Lease, View};
use verbena_fabric::RegionKey;
use verbena_terms::{Incarnation, Time};

use super::{Locks, LocksAction, LocksOptions, Words};
use crate::directory::{Directory, HomeWords};
use crate::local_queue::LocalQueue;
use crate::members::Members;
use crate::name::Name;
use crate::wire::MemberMessage;

impl Locks {
    /// Starts anew as this incarnation. Earlier holds are lost, and waiting clients keep waiting.
    pub fn start_incarnation(&mut self, me: Incarnation, out: &mut Vec<LocksAction>) {
        out.push(LocksAction::Lapsed);
        self.me = me;
        self.act_in(None, 0);
        self.act_by(Lease::NONE, Time::ZERO);
        for name in self.names_here() {
            let fresh = self.fresh();
            self.with(&name, out, |local, actions| local.end_incarnation(fresh, actions));
        }
    }

    /// There is a newer view. `words` are the node's own, made anew for it, if it is a home in it: a home without them refuses new locks. From now on
    /// it does nothing in older views.
    pub fn view(&mut self, view: &Arc<View>, words: Option<RegionKey>, now: Time, out: &mut Vec<LocksAction>) {
        if !self.members.is_news(view.number()) {
            return;
        }
        self.act_in(Some(view.clone()), words.as_ref().map_or(0, |_| self.options.slots));
        if let Some(key) = words {
            self.members.say_to_all(&MemberMessage::Words(key));
        }
        for name in self.names_here() {
            self.survive(&name, out);
        }
        self.members.say_to_homes(&MemberMessage::Reported);
        self.lease(self.lease, now, out);
    }

    /// What the node may do, as it stands at this time. To be said before anything else is done at a time.
    pub fn lease(&mut self, lease: Lease, now: Time, out: &mut Vec<LocksAction>) {
        let could = self.may_grant;
        self.act_by(lease, now);
        if now >= lease.until && !std::mem::replace(&mut self.has_lapsed, true) {
            out.push(LocksAction::Lapsed);
            for name in self.names_here() {
                self.with(&name, out, LocalQueue::lapse);
            }
        }
        self.open(out);
        if self.may_grant && !could {
            self.names_here().iter().for_each(|name| self.advance(name, out));
        }
        self.hear_self(out);
    }

    /// Whether [`lease`](Self::lease) looks at every lock: a view has come into effect, or the node may grant locks again, or no more.
    pub fn is_changed_by(&self, lease: Lease, now: Time) -> bool {
        let lapses = now >= lease.until && !self.has_lapsed;
        lapses || lease.in_effect != self.lease.in_effect || self.may_grant_by(lease, now) != self.may_grant
    }

    fn may_grant_by(&self, lease: Lease, now: Time) -> bool {
        let view = self.members.view();
        view.is_some() && lease.valid_at(now) == view
    }

    /// In an order that does not change from run to run.
    fn names_here(&self) -> Vec<Name> {
        self.here.keys().cloned().collect()
    }

    fn act_by(&mut self, lease: Lease, now: Time) {
        (self.lease, self.now) = (lease, now);
        self.directory.iter_mut().for_each(|directory| directory.at(now));
        self.may_grant = self.may_grant_by(lease, now);
        self.has_lapsed &= now >= lease.until;
    }

    /// Forgets all that is of another view: its words, its slots, what was posted in it.
    fn act_in(&mut self, view: Option<Arc<View>>, slots: u32) {
        let HomeWords { evictions, reused, .. } = self.home_words();
        self.before = (evictions, reused);
        self.members = Members::new(self.me, view);
        let number = self.members.view().filter(|_| self.members.is_home());
        self.directory = number.map(|number| {
            let LocksOptions { scheme, rules, .. } = self.options;
            Directory::new(self.me, number, self.members.all(), (scheme, rules, slots))
        });
        self.names.clear();
        self.known.clear();
        self.posts.clear();
        self.forgetting.clear();
        self.here.values_mut().for_each(|here| here.words = Words::Unknown);
    }

    /// Reports to its home what clients here have of a lock from the view before.
    fn survive(&mut self, name: &Name, out: &mut Vec<LocksAction>) {
        let fresh = self.fresh();
        let Some(here) = self.here.get_mut(name) else { return };
        let mut actions = vec![];
        let survivor = here.local.view_ends(fresh, &mut actions);
        if let (Some((survivor, ahead)), Some(home)) = (survivor, self.members.home_of(name)) {
            self.members.say(home, MemberMessage::Survives { name: name.clone(), survivor, ahead });
        }
        self.act(name, actions, out);
        self.drop_if_over(name);
    }
}
