//! A node's side of membership: joins, renews, prepares views and acknowledges them, and notices when it must stop.
//!
//! ```text
//!            durable            a view names it                  a view without it
//!  starting ---------> joining ----------------> in ------------------------------> leaving ----> ended
//!      ^                  |                      |  (it asked to leave)                  acknowledged, and in effect
//!      |   start used     |        expelled      |                                       or out of lease
//!      +------------------+----------------------+----> ended: superseded by a later life of the node
//! ```
//!
//! Each way back to *starting* is another incarnation (rule C1): with a higher start number, which is stored by the
//! node itself, or with a new rank where a register gives them. A lease that runs out does not by itself end the
//! incarnation. If the keeper renews it in time, for example because only the keeper was stopped, the node goes on
//! where it was: no other node has heard that it was out.

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use verbena_terms::{Incarnation, Rank, Time, ViewNumber};

use crate::{
    Body, ClusterError, Lease, LeaseTerms, Member, Membership, Message, Notice, ParticipantAction, ParticipantEvent,
    Refusal, Renewal, Rules, Standing, StartRecord, View,
};

/// Requests whose sending is remembered; more than are ever unanswered within one lease.
const REMEMBERED: usize = 32;

/// A node's part in the cluster.
#[derive(Debug)]
pub struct Participant {
    terms: LeaseTerms,
    /// `Rank::NOBODY` where it is not known yet.
    keeper: Rank,
    /// Each incarnation has a rank of its own.
    enrols: bool,
    rules: Rules,
    /// As it joins; its incarnation is the present one.
    member: Member,
    state: State,
    /// Told to leave: whether nothing of it is open.
    leaving: Option<bool>,
    /// The newest view of this incarnation.
    view: Option<Arc<View>>,
    /// The highest view number that any incarnation of this process has learnt.
    learnt: ViewNumber,
    lease: Lease,
    /// Services have heard of a lease and not of its loss.
    held: bool,
    /// It acknowledged a view without itself: it is gone when that is in effect, or then.
    leave_by: Option<Time>,
    /// Requests and when they were sent.
    sent: VecDeque<(u64, Time)>,
    next_request: u64,
    heard: u64,
    next_send: Time,
    /// Facts about `view` that services have heard.
    told: BTreeSet<(Fact, Incarnation)>,
    refused: Option<Refusal>,
    settled: BTreeSet<Incarnation>,
    now: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Starting,
    Joining,
    In,
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fact {
    Acknowledged,
    Out,
    Settled,
}

type Actions = Vec<ParticipantAction>;

impl Participant {
    /// The node's own line of `membership`, reached at `address`, in a new incarnation after those of `record`; or,
    /// where ranks are enrolled, in one that has none yet.
    pub fn start(
        membership: &Membership,
        address: String,
        record: Option<StartRecord>,
        now: Time,
    ) -> Result<(Self, Vec<ParticipantAction>), ClusterError> {
        Participant::with_rules(membership, address, record, now, Rules::ALL)
    }

    #[doc(hidden)]
    pub fn with_rules(
        membership: &Membership,
        address: String,
        record: Option<StartRecord>,
        now: Time,
        rules: Rules,
    ) -> Result<(Self, Vec<ParticipantAction>), ClusterError> {
        let first = match membership.rank() {
            None => None,
            Some(rank) => {
                if let Some(found) = record.map(|record| record.rank).filter(|found| *found != rank) {
                    return Err(ClusterError::OthersState { expected: rank, found });
                }
                let start = record.map_or(0, |record| record.start);
                let start = start.checked_add(1).ok_or(ClusterError::StartsUsedUp { rank })?;
                Some(Incarnation { rank, start })
            }
        };
        let own = membership.own();
        let mut participant = Participant {
            terms: membership.terms(),
            keeper: membership.keeper().unwrap_or(Rank::NOBODY),
            enrols: membership.rank().is_none(),
            rules,
            member: Member {
                incarnation: first.unwrap_or_default(),
                name: own.name.clone(),
                address,
                roles: own.roles,
            },
            state: State::Starting,
            leaving: None,
            view: None,
            learnt: ViewNumber(0),
            lease: Lease::NONE,
            held: false,
            leave_by: None,
            sent: VecDeque::with_capacity(REMEMBERED),
            next_request: 1,
            heard: 0,
            next_send: now,
            told: BTreeSet::new(),
            refused: None,
            settled: BTreeSet::new(),
            now,
        };
        let mut out = Vec::new();
        participant.begin(first, &mut out);
        Ok((participant, out))
    }

    /// The address of the present incarnation. Call this before [`ParticipantEvent::Persisted`] reports its start
    /// number: a new incarnation has other regions and may have another address, and its request to join names that
    /// address.
    pub fn reached_at(&mut self, address: String) {
        debug_assert_eq!(self.state, State::Starting, "who has joined somewhere is looked for there");
        self.member.address = address;
    }

    /// Takes an event at `now`.
    pub fn handle(&mut self, now: Time, event: ParticipantEvent) -> Vec<ParticipantAction> {
        let mut out = Vec::new();
        self.now = self.now.max(now);
        if self.state == State::Ended {
            return out;
        }
        self.lapse(&mut out);
        if self.state == State::Ended {
            return out;
        }
        match event {
            ParticipantEvent::Persisted => self.persisted(),
            ParticipantEvent::Enrolled(life) => self.enrolled(life),
            ParticipantEvent::Keeper(who) => self.follow(who),
            ParticipantEvent::Message(message) => self.message(message, &mut out),
            ParticipantEvent::Prepared(view) => self.prepared(view, &mut out),
            ParticipantEvent::Settled(who) => self.settle(who),
            ParticipantEvent::Leave { at_rest } => self.leave(at_rest, &mut out),
            ParticipantEvent::Expel(who) if self.state == State::In => self.send(Body::Expel(who), &mut out),
            ParticipantEvent::Expel(_) => {}
            ParticipantEvent::Tick => {}
        }
        if matches!(self.state, State::Joining | State::In) && self.now >= self.next_send {
            self.ask(&mut out);
        }
        out
    }

    /// When it wants a [`ParticipantEvent::Tick`] at the latest.
    pub fn wake_at(&self) -> Time {
        match self.state {
            State::Starting | State::Ended => Time::FAR,
            _ => {
                let lapse = if self.held { self.lease.until } else { Time::FAR };
                self.next_send.min(lapse).min(self.leave_by.unwrap_or(Time::FAR))
            }
        }
    }

    /// The present incarnation.
    pub fn incarnation(&self) -> Incarnation {
        self.member.incarnation
    }

    /// The newest view of the present incarnation.
    pub fn view(&self) -> Option<&Arc<View>> {
        self.view.as_ref()
    }

    /// What was last published.
    pub fn lease(&self) -> Lease {
        self.lease
    }

    /// It has left or was superseded: it does nothing any more.
    pub fn ended(&self) -> bool {
        self.state == State::Ended
    }

    // An incarnation, from its start to its end.

    /// Begins `incarnation`: durable first (rule C1). `None`: one of the rank that will be enrolled, which is larger.
    fn begin(&mut self, incarnation: Option<Incarnation>, out: &mut Actions) {
        self.member.incarnation = incarnation.unwrap_or(self.incarnation());
        self.state = if self.rules.durable_start { State::Starting } else { State::Joining };
        self.view = None;
        self.sent.clear();
        self.next_request = 1;
        self.heard = 0;
        self.next_send = self.now;
        self.told.clear();
        self.refused = None;
        self.settled.clear();
        out.push(match incarnation {
            None => ParticipantAction::Enrol,
            Some(Incarnation { rank, start }) => ParticipantAction::Persist(StartRecord { rank, start }),
        });
    }

    fn enrolled(&mut self, life: Incarnation) {
        if self.state == State::Starting && self.enrols && life.rank > self.incarnation().rank {
            self.member.incarnation = life;
        }
    }

    fn persisted(&mut self) {
        if self.state == State::Starting && self.incarnation().rank != Rank::NOBODY {
            self.state = State::Joining;
            self.next_send = self.now;
        }
    }

    /// Another keeper: what is to be said is said to it, at once.
    fn follow(&mut self, keeper: Incarnation) {
        if self.keeper != keeper.rank {
            self.keeper = keeper.rank;
            self.next_send = self.now;
        }
    }

    /// This incarnation is over and the node wants another, with a start number above `known`.
    fn begin_again(&mut self, known: u32, out: &mut Actions) {
        let was_in = self.state == State::In;
        self.withdraw(out);
        let Incarnation { rank, start } = self.incarnation();
        let next = match start.max(known).checked_add(1) {
            _ if self.enrols => None,
            Some(start) => Some(Incarnation { rank, start }),
            None => {
                self.state = State::Ended;
                return out.push(ParticipantAction::Tell(Notice::Failed(ClusterError::StartsUsedUp { rank })));
            }
        };
        if self.leaving.is_some() {
            return self.end(Notice::Left, out);
        }
        if was_in {
            out.push(ParticipantAction::Tell(Notice::Expelled(next)));
        }
        self.begin(next, out);
    }

    fn end(&mut self, notice: Notice, out: &mut Actions) {
        self.withdraw(out);
        self.state = State::Ended;
        out.push(ParticipantAction::Tell(notice));
    }

    /// Gives the lease up, at once and for every thread.
    fn withdraw(&mut self, out: &mut Actions) {
        self.lease = Lease::NONE;
        out.push(ParticipantAction::Publish(self.lease));
        if std::mem::take(&mut self.held) {
            out.push(ParticipantAction::Tell(Notice::LeaseLost));
        }
    }

    /// A lease runs out without any message (rule C5).
    fn lapse(&mut self, out: &mut Actions) {
        let lapsed = self.held && self.now >= self.lease.until;
        if lapsed {
            self.held = false;
            out.push(ParticipantAction::Tell(Notice::LeaseLost));
        }
        if lapsed && self.leaving.is_some() || self.leave_by.is_some_and(|by| self.now >= by) {
            self.end(Notice::Left, out);
        }
    }

    fn leave(&mut self, at_rest: bool, out: &mut Actions) {
        let at_rest = *self.leaving.get_or_insert(at_rest);
        match self.state {
            State::In if self.held => self.ask(out),
            State::Starting | State::Ended => self.end(Notice::Left, out),
            State::Joining | State::In => {
                self.send(Body::Leave { at_rest }, out);
                self.end(Notice::Left, out);
            }
        }
    }

    // What it says to the keeper.

    /// Says what the keeper should know, and when to say it next.
    fn ask(&mut self, out: &mut Actions) {
        let view = self.view.as_ref().map_or(ViewNumber(0), |view| view.number());
        let quiet = self.state == State::In && self.lease.in_effect == view;
        self.next_send = self.now + if quiet { self.terms.renew_every() } else { self.terms.ask_every() };
        if self.dropped() {
            if self.lease.acknowledged == view {
                self.send(Body::Acknowledge(view), out);
            }
            return;
        }
        let renewal = Renewal {
            terms: self.terms,
            heard: self.heard,
            acknowledged: self.lease.acknowledged,
            settled: self.settled.iter().copied().collect(),
        };
        match self.state {
            State::Joining => self.send(Body::Join { member: self.member.clone(), renewal }, out),
            _ => self.send(Body::Renew(renewal), out),
        }
        if let Some(at_rest) = self.leaving {
            self.send(Body::Leave { at_rest }, out);
        }
    }

    /// The newest view is without this incarnation.
    fn dropped(&self) -> bool {
        self.view.as_ref().is_some_and(|view| view.member(self.incarnation()).is_none())
    }

    fn send(&mut self, body: Body, out: &mut Actions) {
        if self.keeper == Rank::NOBODY {
            return;
        }
        let request = self.next_request;
        self.next_request += 1;
        if self.sent.len() == REMEMBERED {
            self.sent.pop_front();
        }
        self.sent.push_back((request, self.now));
        let to = Incarnation { rank: self.keeper, start: 0 };
        let (from, view) = (self.incarnation(), self.learnt);
        out.push(ParticipantAction::Send(Message { from, to, view, request, body }));
    }

    // What the keeper says.

    fn message(&mut self, message: Message, out: &mut Actions) {
        let awake = matches!(self.state, State::Joining | State::In);
        if message.to != self.incarnation() || message.from.rank != self.keeper || !awake {
            return;
        }
        match message.body {
            Body::Grant(standing) => {
                self.granted(message.request, out);
                self.standing(standing, out);
            }
            Body::Stand(standing) => self.standing(standing, out),
            Body::Propose(view) => self.propose(view, out),
            Body::Refuse(refusal) => self.refuse(refusal, out),
            // For people, whom the driver informs.
            Body::Explain(_) => {}
            Body::Join { .. } | Body::Renew(_) | Body::Acknowledge(_) | Body::Leave { .. } | Body::Expel(_) => {}
        }
    }

    /// The lease counts from the sending of the request, not from now (rule C2).
    fn granted(&mut self, request: u64, out: &mut Actions) {
        let Some((_, sent)) = self.sent.iter().find(|(number, _)| *number == request) else { return };
        let until = self.terms.held_until(if self.rules.count_from_sending { *sent } else { self.now });
        self.heard = self.heard.max(request);
        self.refused = None;
        if until > self.lease.until && until > self.now && !self.dropped() {
            self.lease.until = until;
            self.held = true;
            out.push(ParticipantAction::Publish(self.lease));
            out.push(ParticipantAction::Tell(Notice::LeaseExtended(until)));
        }
    }

    fn propose(&mut self, view: View, out: &mut Actions) {
        if view.number() <= self.learnt {
            return;
        }
        let named = view.member(self.incarnation()).is_some();
        self.learnt = view.number();
        if !named && self.leaving.is_none() {
            return self.begin_again(0, out);
        }
        self.state = State::In;
        self.settled.retain(|who| view.has_departed(*who));
        // Every home has settled the incarnations that the keeper takes off the record, also if the message about that
        // was lost.
        for gone in self.view.iter().flat_map(|before| before.departed()).map(|gone| gone.incarnation) {
            if !view.has_departed(gone) && self.told.insert((Fact::Settled, gone)) {
                out.push(ParticipantAction::Tell(Notice::DepartedSettled(gone)));
            }
        }
        self.told.clear();
        let view = Arc::new(view);
        self.view = Some(Arc::clone(&view));
        self.next_send = self.next_send.min(self.now + self.terms.ask_every());
        out.push(ParticipantAction::Tell(Notice::ViewLearnt(view)));
    }

    fn standing(&mut self, standing: Standing, out: &mut Actions) {
        let view = standing.view;
        if self.view.as_ref().is_none_or(|newest| newest.number() != view) {
            return;
        }
        let mut tell = |fact, who, notice| {
            if self.told.insert((fact, who)) {
                out.push(ParticipantAction::Tell(notice));
            }
        };
        for incarnation in standing.acknowledged {
            tell(Fact::Acknowledged, incarnation, Notice::MemberAcknowledged { incarnation, view });
        }
        for incarnation in standing.out {
            tell(Fact::Out, incarnation, Notice::MemberOut { incarnation, view });
        }
        for incarnation in standing.settled {
            tell(Fact::Settled, incarnation, Notice::DepartedSettled(incarnation));
        }
        if standing.in_effect && self.lease.in_effect < view {
            if !self.rules.stop_before_acknowledging {
                self.lease.acknowledged = view;
            }
            self.lease.in_effect = view;
            out.push(ParticipantAction::Publish(self.lease));
            out.push(ParticipantAction::Tell(Notice::ViewInEffect(view)));
            if self.dropped() {
                self.end(Notice::Left, out);
            }
        }
    }

    fn refuse(&mut self, refusal: Refusal, out: &mut Actions) {
        match refusal {
            Refusal::Expelled => self.begin_again(0, out),
            Refusal::StartUsed { known } => self.begin_again(known, out),
            Refusal::Superseded(by) => self.end(Notice::Superseded(by), out),
            other => {
                if self.refused.as_ref() != Some(&other) {
                    self.refused = Some(other.clone());
                    out.push(ParticipantAction::Tell(Notice::Refused(other)));
                }
            }
        }
    }

    // What the services say.

    /// Acknowledging ends acting in the older view, so that is published before it is said (rule C3).
    fn prepared(&mut self, number: ViewNumber, out: &mut Actions) {
        let newest = self.view.as_ref().map(|view| view.number());
        if newest != Some(number) || self.lease.acknowledged >= number {
            return;
        }
        if self.rules.stop_before_acknowledging {
            self.lease.acknowledged = number;
            if self.dropped() {
                self.leave_by = Some(self.lease.until);
                self.lease.until = Time::ZERO;
            }
            out.push(ParticipantAction::Publish(self.lease));
            if self.dropped() && std::mem::take(&mut self.held) {
                out.push(ParticipantAction::Tell(Notice::LeaseLost));
            }
        }
        self.send(Body::Acknowledge(number), out);
    }

    fn settle(&mut self, who: Incarnation) {
        if self.view.as_ref().is_some_and(|view| view.has_departed(who)) && self.settled.insert(who) {
            self.next_send = self.now;
        }
    }
}
