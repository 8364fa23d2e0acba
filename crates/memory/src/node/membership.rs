//! The node as a member of the cluster: which incarnation, in which view, under which lease, at what time.

use std::sync::Arc;

use verbena_cluster::{Lease, Member, Role, View};
use verbena_terms::{Incarnation, Time, ViewNumber};

use crate::Rules;

/// Decides whether the node may act, and whether its home may serve.
pub(super) struct Membership {
    rules: Rules,
    me: Incarnation,
    view: Option<Arc<View>>,
    lease: Lease,
    now: Time,
}

impl Membership {
    /// Of a node that is in no view.
    pub(super) fn new(rules: Rules) -> Self {
        Membership { rules, me: Incarnation::default(), view: None, lease: Lease::NONE, now: Time::ZERO }
    }

    /// Another incarnation, in no view yet.
    pub(super) fn start_incarnation(&mut self, me: Incarnation) {
        (self.me, self.view, self.lease) = (me, None, Lease::NONE);
    }

    pub(super) fn enter_view(&mut self, view: Arc<View>) {
        self.view = Some(view);
    }

    pub(super) fn set_lease(&mut self, lease: Lease) {
        self.lease = lease;
    }

    pub(super) fn set_now(&mut self, now: Time) {
        self.now = now;
    }

    pub(super) fn me(&self) -> Incarnation {
        self.me
    }

    pub(super) fn now(&self) -> Time {
        self.now
    }

    pub(super) fn view(&self) -> Option<&Arc<View>> {
        self.view.as_ref()
    }

    /// 0 in no view.
    pub(super) fn view_number(&self) -> ViewNumber {
        self.view.as_ref().map_or(ViewNumber(0), |view| view.number())
    }

    /// Whether the node may act in its view now (rule C5): so an answer that has just come counts.
    pub(super) fn acts(&self) -> bool {
        let Some(view) = &self.view else { return false };
        !self.rules.lease_looked_at || self.now < self.lease.until && self.lease.acknowledged == view.number()
    }

    /// Whether no node acts in an older view any longer (rule C3).
    pub(super) fn is_in_effect(&self) -> bool {
        self.view.is_some() && (self.lease.in_effect >= self.view_number() || !self.rules.waits_for_effect)
    }

    pub(super) fn member(&self, who: Incarnation) -> Option<&Member> {
        self.view.as_ref().and_then(|view| view.member(who))
    }

    pub(super) fn is_home(&self, who: Incarnation) -> bool {
        self.member(who).is_some_and(|member| member.roles.has(Role::Home))
    }

    pub(super) fn homes(&self) -> Vec<Incarnation> {
        self.view.iter().flat_map(|view| view.homes()).map(|member| member.incarnation).collect()
    }
}
