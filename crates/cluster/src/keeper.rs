//! The keeper (rule C4): grants leases, numbers views, and waits.
//!
//! One view is on its way at a time. The newest view is either *in effect* or *proposed*; only when it is in effect is the
//! next one made, so every view takes effect, in order, and an acknowledgement can be meant for one view only:
//!
//! ```text
//!              somebody joined, left or lapsed          durable
//!  in effect ----------------------------------> making ---------> proposed --+
//!      ^                                                             |   ^    | a member lapsed: durable first,
//!      |                                                             |   +----+ then everybody is told
//!      +-------------------------------------------------------------+
//!        each member acknowledged it or is out; each leaver acknowledged it or lapsed
//! ```
//!
//! Why no node is left acting in an older view: a lease is held only by members of the newest view and by those that
//! the newest view dropped. No other node holds one, because the view before was in effect. The keeper waits for the
//! members by name. The dropped ones lapsed before they were dropped, or are leavers, for which the keeper waits too
//! (`leavers`). A keeper that restarts takes everyone that its record names for a holder of a lease granted a moment
//! ago. An incarnation that the keeper declared to be out is out in the durable record first, so no later incarnation
//! of the keeper renews it.
//!
//! Where the office of the keeper goes from member to member ([`Office`](crate::Office)), a keeper acts while it has
//! *authority* and is silent without. Only the holder of the office stores the record. Its successor starts from the
//! record as a keeper that restarts does. A keeper that hears less than half of the members gives the office up, once,
//! before it takes any member for gone: it may be the one that is cut off.

#[cfg(test)]
mod tests;
mod views;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use verbena_terms::{Incarnation, Rank, Time, ViewNumber};

use crate::seat::Seat;
use crate::{
    Body, KeeperRecord, LeaseTerms, MAX_DEPARTED, MAX_MEMBERS, Member, Membership, Message, RANKS_KEPT, Refusal,
    Renewal, Rules, View,
};

/// What happens to a keeper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeeperEvent {
    /// A message arrived.
    Message(Message),
    /// The record of the last [`KeeperAction::Persist`] would survive a loss of power.
    Persisted,
    /// It may act until then, and not after. Nothing is said of it where the keeper is always the same: then it may always act.
    Authority(Time),
    /// Time has passed.
    Tick,
}

/// What a keeper wants done, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeeperAction {
    /// Send it to `to`, by the way its last message came or else to its address in the newest view.
    Send(Message),
    /// Replace the durable record by this one, then say [`KeeperEvent::Persisted`]. One at a time. If it cannot be done the
    /// keeper goes on renewing leases in the view that it has and makes no other.
    Persist(KeeperRecord),
    /// Give the office up: this keeper has heard too few, and does nothing any more.
    Resign,
}

/// What the driver knows about earlier incarnations of the keeper's own node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EarlierLife {
    /// Nothing.
    MayRun,
    /// They have ended, and so has all that acts by their leases: this process holds the exclusive lock of the state directory, which each of them held for as long
    /// as it lived, and programs of theirs saw their end before that lock was free. Leases of this rank need not be waited for, so a node that is alone serves at once.
    Ended,
}

/// What makes a keeper that holds an office for a time another than one that is always the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term {
    /// When its authority ends, unless [`KeeperEvent::Authority`] says later.
    pub until: Time,
    /// The previous holder gave the office up because it heard too few members. Then those few are taken to be all
    /// there are.
    pub after_unheard: bool,
}

/// The keeper of a cluster. One at a time: under `static` membership the driver holds an exclusive lock on the
/// directory of the durable record until the process ends; otherwise the keeper is appointed by the
/// [`Office`](crate::Office).
#[derive(Debug)]
pub struct Keeper {
    membership: Membership,
    identity: Incarnation,
    rules: Rules,
    /// What is durable.
    record: KeeperRecord,
    /// What is being made durable.
    making: Option<KeeperRecord>,
    phase: Phase,
    /// Members of the newest view and candidates: at most two for each of [`MAX_MEMBERS`] nodes.
    seats: BTreeMap<Incarnation, Seat>,
    /// Incarnations that the newest view dropped and that may hold a lease until then.
    leavers: BTreeMap<Incarnation, Time>,
    /// When the leases of earlier incarnations of the keeper are over, whatever their terms were.
    earlier_over: Time,
    /// When enough was gathered for a next view.
    gather_until: Option<Time>,
    /// It may act before then.
    authority: Time,
    /// It gives the office up rather than take most of the members for gone.
    resigns: bool,
    has_resigned: bool,
    last: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    InEffect,
    Proposed { since: Time },
}

impl Keeper {
    /// A keeper that runs in incarnation `identity` of its node, from what an earlier one left behind. Without a record
    /// it is the first ever: then no node holds a lease, and the keeper waits for none.
    pub fn start(
        membership: Membership,
        identity: Incarnation,
        record: Option<KeeperRecord>,
        earlier: EarlierLife,
        now: Time,
    ) -> Self {
        Keeper::with_rules(membership, identity, record, earlier, now, Rules::ALL)
    }

    #[doc(hidden)]
    pub fn with_rules(
        membership: Membership,
        identity: Incarnation,
        record: Option<KeeperRecord>,
        earlier: EarlierLife,
        now: Time,
        rules: Rules,
    ) -> Self {
        let terms = membership.terms();
        let record = record.unwrap_or(KeeperRecord { view: None, out: vec![], starts: BTreeMap::new(), terms });
        // Leases of earlier incarnations may be longer than those of this one (rule C2).
        let earlier_over = record.terms.longer(terms).over_at(now);
        let over = if rules.wait_after_restart { earlier_over } else { now };
        let ended = |who: Incarnation| earlier == EarlierLife::Ended && who.rank == identity.rank;
        let mut seats = BTreeMap::new();
        let mut leavers = BTreeMap::new();
        if let Some(view) = &record.view {
            for member in view.members() {
                let ended = ended(member.incarnation);
                let mut seat = Seat::new(member.clone(), if ended { now } else { over }, now);
                seat.ended = ended;
                seats.insert(member.incarnation, seat);
            }
            let gone = view.departed().iter().map(|gone| gone.incarnation).filter(|who| !ended(*who));
            leavers.extend(gone.map(|who| (who, over)));
        }
        let phase = if record.view.is_some() { Phase::Proposed { since: now } } else { Phase::InEffect };
        Keeper {
            membership,
            identity,
            rules,
            record,
            making: None,
            phase,
            seats,
            leavers,
            earlier_over,
            gather_until: None,
            authority: Time::FAR,
            resigns: false,
            has_resigned: false,
            last: now,
        }
    }

    /// The same for a keeper that was appointed for a term: from what earlier holders of the office left. While it
    /// holds the office, no other member makes views or grants leases. No earlier incarnation is known to have ended.
    pub fn appointed(
        membership: Membership,
        identity: Incarnation,
        record: Option<KeeperRecord>,
        term: Term,
        now: Time,
        rules: Rules,
    ) -> Self {
        let Term { until, after_unheard } = term;
        Keeper {
            authority: until,
            resigns: !after_unheard,
            ..Keeper::with_rules(membership, identity, record, EarlierLife::MayRun, now, rules)
        }
    }

    /// Takes an event at `now`.
    pub fn handle(&mut self, now: Time, event: KeeperEvent) -> Vec<KeeperAction> {
        let mut out = Vec::new();
        if self.has_resigned {
            return out;
        }
        let now = self.arrive_at(now);
        match event {
            KeeperEvent::Authority(until) => self.may_act_until(now, until),
            // It is durable, whichever node is the keeper.
            KeeperEvent::Persisted => self.persisted(now, &mut out),
            KeeperEvent::Message(message) if self.has_authority(now) => self.message(now, message, &mut out),
            KeeperEvent::Message(_) | KeeperEvent::Tick => {}
        }
        while self.making.is_none() && self.has_authority(now) && !self.has_resigned && self.step(now, &mut out) {}
        out
    }

    /// When it wants a [`KeeperEvent::Tick`] at the latest.
    pub fn wake_at(&self) -> Time {
        let lapses = self.seats.values().map(|seat| seat.lease_over).chain(self.leavers.values().copied());
        let soonest = lapses.chain(self.gather_until).filter(|at| *at > self.last).min().unwrap_or(Time::FAR);
        if self.has_resigned { Time::FAR } else { soonest.min(self.last + self.longest_nap() / 2) }
    }

    /// The newest view, if there ever was one.
    pub fn view(&self) -> Option<&View> {
        self.record.view.as_ref()
    }

    /// The newest view's number, if that view is in effect.
    pub fn in_effect(&self) -> Option<ViewNumber> {
        self.view().map(View::number).filter(|_| self.phase == Phase::InEffect)
    }

    /// Moves the time. Excuses all members if the keeper itself was stopped for so long that renewals may wait unread:
    /// to call that their silence would expel them all.
    fn arrive_at(&mut self, now: Time) -> Time {
        let now = now.max(self.last);
        if now.since(self.last) > self.longest_nap() {
            self.excuse_all(now);
        }
        self.last = now;
        now
    }

    fn excuse_all(&mut self, now: Time) {
        let terms = self.terms();
        self.seats.values_mut().for_each(|seat| seat.excuse(now, terms));
        if let Phase::Proposed { since } = &mut self.phase {
            *since = now;
        }
    }

    /// Whether what it says counts at `now`: it has authority, and has not resigned.
    #[doc(hidden)]
    pub fn may_act_at(&self, now: Time) -> bool {
        now < self.authority && !self.has_resigned
    }

    fn has_authority(&self, now: Time) -> bool {
        now < self.authority || !self.rules.silent_without_authority
    }

    /// A member that was silent while this keeper could not answer is excused.
    fn may_act_until(&mut self, now: Time, until: Time) {
        if now >= self.authority {
            self.excuse_all(now);
        }
        self.authority = self.authority.max(until);
    }

    fn longest_nap(&self) -> Duration {
        self.terms().renew_every()
    }

    fn terms(&self) -> LeaseTerms {
        self.membership.terms()
    }

    fn number(&self) -> ViewNumber {
        self.view().map_or(ViewNumber(0), View::number)
    }

    // What members say.

    fn message(&mut self, now: Time, message: Message, out: &mut Vec<KeeperAction>) {
        let Message { from, to, view, request, body } = message;
        if to.rank != self.identity.rank {
            return;
        }
        let answer = if !self.membership.knows(from.rank) {
            Err(Refusal::UnknownRank(from.rank))
        } else if view > self.number() && self.rules.durable_view {
            Err(Refusal::KeeperBehind(self.number()))
        } else {
            match body {
                Body::Join { member, renewal } => self.join(now, member, &renewal),
                Body::Renew(renewal) => self.renew(now, from, &renewal),
                Body::Acknowledge(acknowledged) => self.acknowledge(from, acknowledged),
                Body::Leave { at_rest } => self.leave(from, at_rest),
                Body::Expel(who) => self.expel(who),
                Body::Grant(_) | Body::Propose(_) | Body::Stand(_) | Body::Refuse(_) | Body::Explain(_) => return,
            }
        };
        let concerned = self.seats.contains_key(&from) || self.leavers.contains_key(&from);
        match answer {
            Ok(true) => out.push(self.to(from, request, Body::Grant(self.standing()))),
            Ok(false) => {}
            Err(refusal) => out.push(self.to(from, request, Body::Refuse(refusal))),
        }
        if let Some(newest) = self.view().filter(|newest| view < newest.number() && concerned)
            && (newest.member(from).is_some() || newest.has_departed(from))
        {
            out.push(self.to(from, 0, Body::Propose(newest.clone())));
        }
    }

    /// Whether to grant a lease to one who asks to join.
    fn join(&mut self, now: Time, member: Member, renewal: &Renewal) -> Result<bool, Refusal> {
        let who = member.incarnation;
        if let Some(seat) = self.seats.get(&who) {
            // Two processes that were given one start number are two incarnations all the same (rule C1).
            return if seat.member == member { self.renew(now, who, renewal) } else { Err(self.start_used(who.rank)) };
        }
        if renewal.terms != self.terms() {
            return Err(Refusal::Terms(self.terms()));
        }
        if let Some(line) = self.membership.configured(who.rank).filter(|line| line.name != member.name) {
            return Err(Refusal::Name { rank: who.rank, expected: line.name.clone(), found: member.name });
        }
        if self.is_used(who) {
            return Err(self.start_used(who.rank));
        }
        if let Some(by) = self.later_life(who, &member.name) {
            return Err(Refusal::Superseded(by));
        }
        let names: BTreeSet<&str> = self.seats.values().map(|seat| seat.member.name.as_str()).collect();
        if names.len() >= MAX_MEMBERS && !names.contains(member.name.as_str()) {
            return Err(Refusal::Crowded);
        }
        if self.view().is_some_and(|view| view.departed().len() >= MAX_DEPARTED) {
            return Err(Refusal::Full);
        }
        if self.number().next().is_none() {
            return Err(Refusal::ViewsUsedUp);
        }
        self.supersede(now, &member.name);
        self.seats.insert(who, Seat::new(member, self.over_at(now), now));
        Ok(true)
    }

    /// A later incarnation of the node `name` joins: an earlier candidate is forgotten, and a member gets no lease any
    /// more. Its present lease still runs out in full (rule C2): the keeper granted it and knows its end, so it need
    /// not count from this moment.
    fn supersede(&mut self, now: Time, name: &str) {
        let named: Vec<Incarnation> = self.seats.keys().copied().filter(|who| self.named(*who)).collect();
        self.seats.retain(|who, seat| seat.member.name != name || named.contains(who));
        for seat in self.seats.values_mut().filter(|seat| seat.member.name == name) {
            seat.ended = true;
            if !self.rules.wait_a_full_lease {
                seat.lease_over = now;
            }
        }
    }

    /// Whether to renew the lease of `from`.
    fn renew(&mut self, now: Time, from: Incarnation, renewal: &Renewal) -> Result<bool, Refusal> {
        let (terms, rules, number) = (self.terms(), self.rules, self.number());
        if renewal.terms != terms {
            return Err(Refusal::Terms(terms));
        }
        let highest = self.highest_start(from.rank);
        if highest > from.start {
            return Err(Refusal::Superseded(Incarnation { rank: from.rank, start: highest }));
        }
        if let Some(by) = self.seats.get(&from).and_then(|seat| self.later_life(from, &seat.member.name)) {
            return Err(Refusal::Superseded(by));
        }
        // A member that a pending view leaves out must not get another answer in the meantime.
        let dropped = self.making.as_ref().is_some_and(|next| {
            let known = self.record.view.as_ref().is_some_and(|view| view.member(from).is_some());
            next.out.contains(&from) || known && next.view.as_ref().is_some_and(|view| view.member(from).is_none())
        });
        let out = (dropped || self.record.out.contains(&from)) && rules.out_is_final;
        let over = self.over_at(now);
        let in_view = self.record.view.as_ref().is_some_and(|view| view.member(from).is_some());
        let Some(seat) = self.seats.get_mut(&from).filter(|seat| !out && !seat.ended) else {
            return Err(Refusal::Expelled);
        };
        seat.note(now, renewal);
        if renewal.acknowledged == number || !rules.exact_acknowledgement && renewal.acknowledged > ViewNumber(0) {
            seat.acknowledged |= in_view;
        }
        if seat.deaf(now, terms) && rules.refuse_deaf {
            return Ok(false);
        }
        if let Phase::Proposed { since } = self.phase
            && in_view
            && !seat.acknowledged
            && now >= since + terms.lease()
            && rules.refuse_unacknowledged
        {
            return Err(Refusal::Unacknowledged(number));
        }
        if self.record.terms.longer(terms) != self.record.terms {
            return Ok(false);
        }
        seat.lease_over = seat.lease_over.max(over);
        Ok(true)
    }

    /// An acknowledgement counts for its own view only (rule C3).
    fn acknowledge(&mut self, from: Incarnation, view: ViewNumber) -> Result<bool, Refusal> {
        if view == self.number() || !self.rules.exact_acknowledgement {
            if let Some(seat) = self.seats.get_mut(&from) {
                seat.acknowledged = true;
            }
            self.leavers.remove(&from);
        }
        Ok(false)
    }

    /// A member that leaves keeps its lease until it acknowledges a view without it.
    fn leave(&mut self, from: Incarnation, at_rest: bool) -> Result<bool, Refusal> {
        if !self.named(from) {
            self.seats.remove(&from);
        } else if let Some(seat) = self.seats.get_mut(&from) {
            seat.leaving = true;
            seat.at_rest |= at_rest;
        }
        Ok(false)
    }

    /// This incarnation, and no other of its node, gets no lease any more. What it has still runs out in full (rule C2).
    fn expel(&mut self, who: Incarnation) -> Result<bool, Refusal> {
        if who.rank == self.identity.rank {
            return Err(Refusal::KeepersOwn(who));
        }
        let is_in = self.view().is_some_and(|view| view.member(who).is_some());
        let seat = self.seats.get_mut(&who).filter(|_| is_in).ok_or(Refusal::NoMember(who))?;
        (seat.ended, seat.expelled) = (true, true);
        Ok(false)
    }

    /// Whether the newest view or the one that is being made names it: then its seat stays until a later one does not.
    fn named(&self, who: Incarnation) -> bool {
        let views = [Some(&self.record), self.making.as_ref()].into_iter().flatten().flat_map(|record| &record.view);
        views.into_iter().any(|view| view.member(who).is_some())
    }

    /// An incarnation of the node `name` that began after `who`, if one is seated. Under `static` membership a node's
    /// incarnations have one rank; elsewhere each has its own, larger than those before.
    fn later_life(&self, who: Incarnation, name: &str) -> Option<Incarnation> {
        self.seats.range(who..).map(|(later, seat)| (*later, seat)).find_map(|(later, seat)| {
            let is_later = later != who && seat.member.name == name;
            is_later.then_some(later)
        })
    }

    /// Whether this incarnation, or a later one of its rank, was let in before: one that is out never comes back (rule
    /// C1). Where each rank is given once, only the last ranks are remembered, and an older one counts as used.
    fn is_used(&self, who: Incarnation) -> bool {
        let last = || self.record.starts.keys().next_back().map_or(0, |rank| rank.0);
        let is_forgotten = || self.membership.size().is_none() && who.rank.0.saturating_add(RANKS_KEPT) <= last();
        who.start <= self.highest_start(who.rank) || is_forgotten()
    }

    fn start_used(&self, rank: Rank) -> Refusal {
        Refusal::StartUsed { known: self.highest_start(rank) }
    }

    /// The highest start number of `rank` that a view or a candidate has used.
    fn highest_start(&self, rank: Rank) -> u32 {
        let seated = self.seats.keys().filter(|who| who.rank == rank).map(|who| who.start).max().unwrap_or(0);
        let durable = self.making.as_ref().unwrap_or(&self.record).starts.get(&rank).copied().unwrap_or(0);
        seated.max(durable)
    }

    fn over_at(&self, granted: Time) -> Time {
        if self.rules.wait_a_full_lease { self.terms().over_at(granted) } else { granted + self.terms().lease() / 2 }
    }

    fn to(&self, to: Incarnation, request: u64, body: Body) -> KeeperAction {
        KeeperAction::Send(Message { from: self.identity, to, view: self.number(), request, body })
    }
}
