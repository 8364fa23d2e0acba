//! Membership's mailbox: what other threads leave for it to find, the latest of each kind, so that no queue grows.

use std::collections::BTreeSet;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use verbena_cluster::{Answer, View};
use verbena_fabric::Address;
use verbena_terms::{Incarnation, ViewNumber};

/// The mailbox.
pub(crate) struct Mailbox {
    papers: Mutex<Papers>,
    changed: Notify,
}

struct Papers {
    /// Of each service: the newest view that it is ready for.
    prepared: Vec<ViewNumber>,
    /// The incarnations that each service has settled. `view_learnt` drops those that the view no longer lists as
    /// departed, which bounds each set.
    settled: Vec<BTreeSet<Incarnation>>,
    /// Of each service: that it is closed, and whether it is at rest.
    closed: Vec<Option<bool>>,
    start_stored: Option<Result<(), String>>,
    keeper_stored: Option<Result<(), String>>,
    keeper_found: Option<Result<(Incarnation, Address), String>>,
    keeper_moved: bool,
    expel: Option<Incarnation>,
    /// Of the register: as many as questions are under way at most.
    answers: Vec<(u64, verbena_etcd::Result<Answer>)>,
    leave: bool,
}

/// What was on the mailbox.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Found {
    /// The newest view for which every service is ready.
    pub(crate) prepared: ViewNumber,
    /// The incarnations that every service has settled. `None` where the helper hosts no services, and so has nothing
    /// to settle.
    pub(crate) settled: Option<Vec<Incarnation>>,
    /// Whether all services are at rest, once every one is closed.
    pub(crate) closed: Option<bool>,
    pub(crate) start_stored: Option<Result<(), String>>,
    pub(crate) keeper_stored: Option<Result<(), String>>,
    pub(crate) keeper_found: Option<Result<(Incarnation, Address), String>>,
    pub(crate) keeper_moved: bool,
    pub(crate) expel: Option<Incarnation>,
    pub(crate) answers: Vec<(u64, verbena_etcd::Result<Answer>)>,
    pub(crate) leave: bool,
}

impl Mailbox {
    /// A mailbox for `services` services.
    pub(crate) fn new(services: usize) -> Self {
        let papers = Papers {
            prepared: vec![ViewNumber(0); services],
            settled: vec![BTreeSet::new(); services],
            closed: vec![None; services],
            start_stored: None,
            keeper_stored: None,
            keeper_found: None,
            keeper_moved: false,
            expel: None,
            answers: vec![],
            leave: false,
        };
        Mailbox { papers: Mutex::new(papers), changed: Notify::new() }
    }

    pub(crate) fn prepared(&self, service: usize, view: ViewNumber) {
        self.put(|papers| papers.prepared[service] = papers.prepared[service].max(view));
    }

    pub(crate) fn settled(&self, service: usize, who: Incarnation) {
        self.put(|papers| {
            papers.settled[service].insert(who);
        });
    }

    /// Forgets settled incarnations that this view no longer lists as departed: the keeper needs no answer about those.
    /// Call this before the services learn of the view, so that what they settle in it is kept.
    pub(crate) fn view_learnt(&self, view: &View) {
        let mut papers = self.papers.lock();
        papers.settled.iter_mut().for_each(|settled| settled.retain(|who| view.has_departed(*who)));
    }

    pub(crate) fn closed(&self, service: usize, at_rest: bool) {
        self.put(|papers| papers.closed[service] = Some(at_rest));
    }

    pub(crate) fn start_stored(&self, outcome: Result<(), String>) {
        self.put(|papers| papers.start_stored = Some(outcome));
    }

    pub(crate) fn keeper_stored(&self, outcome: Result<(), String>) {
        self.put(|papers| papers.keeper_stored = Some(outcome));
    }

    pub(crate) fn keeper_found(&self, outcome: Result<(Incarnation, Address), String>) {
        self.put(|papers| papers.keeper_found = Some(outcome));
    }

    /// Another incarnation keeps the cluster now. Membership looks for it before noticing the old one's silence.
    pub(crate) fn keeper_moved(&self) {
        self.put(|papers| papers.keeper_moved = true);
    }

    /// A program asks to expel this incarnation. A later call replaces one that was not taken yet; the program repeats
    /// its request.
    pub(crate) fn expel(&self, who: Incarnation) {
        self.put(|papers| papers.expel = Some(who));
    }

    /// The register's answer to question `number`, or why it gave no answer.
    pub(crate) fn answered(&self, number: u64, answer: verbena_etcd::Result<Answer>) {
        self.put(|papers| papers.answers.push((number, answer)));
    }

    pub(crate) fn leave(&self) {
        self.put(|papers| papers.leave = true);
    }

    /// Takes what is there. What services prepared and settled stays, because they say it once.
    pub(crate) fn take(&self) -> Found {
        let mut papers = self.papers.lock();
        let prepared = papers.prepared.iter().copied().min().unwrap_or(ViewNumber(u32::MAX));
        let settled = papers.settled.split_first().map(|(first, rest)| {
            first.iter().filter(|who| rest.iter().all(|others| others.contains(who))).copied().collect()
        });
        let closed = papers.closed.iter().copied().try_fold(true, |all, one| one.map(|one| all && one));
        Found {
            prepared,
            settled,
            closed,
            start_stored: papers.start_stored.take(),
            keeper_stored: papers.keeper_stored.take(),
            keeper_found: papers.keeper_found.take(),
            keeper_moved: std::mem::take(&mut papers.keeper_moved),
            expel: papers.expel.take(),
            answers: std::mem::take(&mut papers.answers),
            leave: papers.leave,
        }
    }

    /// A new incarnation begins: forgets what services prepared and settled in the previous one.
    pub(crate) fn clear_services(&self) {
        let mut papers = self.papers.lock();
        papers.prepared.fill(ViewNumber(0));
        papers.settled.iter_mut().for_each(BTreeSet::clear);
    }

    /// Waits until something is put, at most so long. What was put before the call counts.
    pub(crate) async fn wait(&self, at_most: Duration) {
        let _ = tokio::time::timeout(at_most, self.changed.notified()).await;
    }

    fn put(&self, change: impl FnOnce(&mut Papers)) {
        change(&mut self.papers.lock());
        self.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use verbena_cluster::Departed;

    use super::*;

    #[test]
    fn a_view_is_prepared_when_every_service_is() {
        let mailbox = Mailbox::new(2);
        mailbox.prepared(0, ViewNumber(4));
        assert_eq!(mailbox.take().prepared, ViewNumber(0));
        mailbox.prepared(1, ViewNumber(3));
        assert_eq!(mailbox.take().prepared, ViewNumber(3));
        mailbox.prepared(1, ViewNumber(2));
        assert_eq!(mailbox.take().prepared, ViewNumber(3), "an older word does not undo a newer");
        mailbox.clear_services();
        assert_eq!(mailbox.take().prepared, ViewNumber(0));
        assert_eq!(Mailbox::new(0).take().prepared, ViewNumber(u32::MAX), "nobody is waited for");
    }

    #[test]
    fn at_rest_is_said_when_every_service_is_closed_and_at_rest() {
        let mailbox = Mailbox::new(2);
        mailbox.closed(1, true);
        assert_eq!(mailbox.take().closed, None);
        mailbox.closed(0, true);
        assert_eq!(mailbox.take().closed, Some(true));
        mailbox.clear_services();
        mailbox.closed(0, false);
        assert_eq!(mailbox.take().closed, Some(false), "closed is closed for good");
        assert_eq!(Mailbox::new(0).take().closed, Some(true), "nobody has anything open");
    }

    #[test]
    fn settled_is_who_all_have_settled_until_no_view_lists_them() {
        let mailbox = Mailbox::new(2);
        let [a, b] = [1, 2].map(|start| Incarnation::new(3, start));
        mailbox.settled(0, a);
        mailbox.settled(0, b);
        mailbox.settled(1, b);
        assert_eq!(mailbox.take().settled, Some(vec![b]));
        // However many: what a service has settled it says once, of the least rank too.
        for start in 0..3000 {
            mailbox.settled(0, Incarnation::new(4, start));
            mailbox.settled(1, Incarnation::new(4, start));
        }
        mailbox.settled(0, Incarnation::new(1, 1));
        mailbox.settled(1, Incarnation::new(1, 1));
        let listed = [Incarnation::new(1, 1), a, Incarnation::new(4, 2999)];
        let departed =
            listed.map(|incarnation| Departed { incarnation, since: ViewNumber(2), at_rest: false, is_relay: false });
        mailbox.view_learnt(&View::new(ViewNumber(2), vec![], departed.into()).unwrap());
        assert_eq!(mailbox.take().settled, Some(vec![listed[0], listed[2]]));
        assert_eq!(mailbox.papers.lock().settled[0].len(), 3);
    }
}
