//! The keeper's office: moves from member to member by a [register](crate::register), where no node is the keeper for
//! good.
//!
//! ```text
//!           it is as it was for an authority and the drift,          the answer says that it is this life's
//!           or its holder resigned: take it
//!  looking --------------------------------------------------> taking --------------------------------------> holding
//!     ^                                                           |                                              |
//!     |                             somebody else was first       |           resigned, or a beat or the record  |
//!     +-----------------------------------------------------------+           found another term                 |
//!     +----------------------------------------------------------------------------------------------------------+
//! ```
//!
//! The holder has *authority* for half a lease, less the drift, from the sending of each beat that the register took. A
//! member that sees the beat unchanged counts half a lease and the drift from the *arrival* of the first answer that
//! showed it. The last beat was sent before that answer left, so the authority is over by either clock before the
//! office is taken. The transaction that takes it fails if there was a beat meanwhile. Nothing here is a lease of the
//! store's.
//!
//! A term outlives the holder's authority. Where the store was away for a while, the first beat that it takes again
//! proves that no other keeper was appointed in between, and the same keeper goes on.
//!
//! Members look only while their keeper is silent; a node that is not in a view yet lets members go first. A keeper
//! that resigned because it heard too few stands back, so that the other side of a cut has its turn.

#[cfg(test)]
mod tests;

use std::time::Duration;

use verbena_terms::{Incarnation, Time};

use crate::{Answer, Beat, Holder, KeeperRecord, LeaseTerms, Membership, Question, Revision, Rules, Sight, Term};

/// What happens to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OfficeEvent {
    /// The node needs another incarnation.
    Enrol,
    /// An incarnation of this node has begun, and is reached at this address.
    Begun(Incarnation, String),
    /// It is over. What this node held, it holds no longer.
    Over,
    /// A keeper was heard.
    Heard {
        /// Which.
        from: Incarnation,
        /// A view names the present incarnation.
        is_member: bool,
    },
    /// What the register answered to this question, or that nothing is known of it.
    Answered(u64, Option<Answer>),
    /// What the keeper wants stored. One at a time.
    Store(Box<KeeperRecord>),
    /// The keeper heard too few.
    Unheard,
    /// The node has left, or ends for another reason.
    Left,
    /// Time has passed.
    Tick,
}

/// What it wants done, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OfficeAction {
    /// Ask the register; say [`OfficeEvent::Answered`] once for each question, within a bounded time.
    Ask(u64, Question),
    /// This node's next incarnation.
    Enrolled(Incarnation),
    /// Begin to keep: [`Keeper::appointed`](crate::Keeper::appointed) with the present incarnation.
    Appoint(Option<Box<KeeperRecord>>, Term),
    /// The keeper may act until then.
    Authority(Time),
    /// What the keeper wanted stored is stored.
    Stored,
    /// Keep no longer: forget the keeper.
    Dismiss,
    /// This one keeps.
    Follow(Holder),
}

/// A node's part in who keeps the cluster.
#[derive(Debug)]
pub struct Office {
    name: String,
    terms: LeaseTerms,
    rules: Rules,
    life: Option<(Incarnation, String)>,
    is_member: bool,
    state: State,
    /// The keeper that this node follows.
    follows: Option<Incarnation>,
    heard: Time,
    /// It does not take the office before then.
    stands_back: Time,
    /// The questions that are not answered: at most one of each kind.
    enrolling: Option<Asked>,
    office: Option<Asked>,
    storing: Option<Asked>,
    /// What is asked again then, because nothing is known of the last time.
    enrol_again: Option<Time>,
    office_again: Time,
    store_again: Option<Time>,
    next_number: u64,
    now: Time,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    number: u64,
    sent: Time,
}

#[derive(Debug)]
enum State {
    Looking(Option<Seen>),
    /// The sight that was taken, for what its last beat said.
    Taking {
        after_unheard: bool,
    },
    Holding(Held),
}

/// The office as it was seen, and when the first answer that showed it so arrived.
#[derive(Clone, Copy, Debug)]
struct Seen {
    term: Revision,
    beat: Revision,
    since: Time,
}

#[derive(Debug)]
struct Held {
    term: Revision,
    /// Of the record.
    changed: Revision,
    to_store: Option<Box<KeeperRecord>>,
}

type Actions = Vec<OfficeAction>;

impl Office {
    /// An office without a holder, as far as this node knows.
    pub fn new(membership: &Membership, now: Time) -> Self {
        Office::with_rules(membership, now, Rules::ALL)
    }

    #[doc(hidden)]
    pub fn with_rules(membership: &Membership, now: Time, rules: Rules) -> Self {
        Office {
            name: membership.own().name.clone(),
            terms: membership.terms(),
            rules,
            life: None,
            is_member: false,
            state: State::Looking(None),
            follows: None,
            heard: Time::ZERO,
            stands_back: Time::ZERO,
            enrolling: None,
            office: None,
            storing: None,
            enrol_again: None,
            office_again: now,
            store_again: None,
            next_number: 1,
            now,
        }
    }

    /// Takes an event at `now`.
    pub fn handle(&mut self, now: Time, event: OfficeEvent) -> Vec<OfficeAction> {
        let mut out = Vec::new();
        self.now = self.now.max(now);
        match event {
            OfficeEvent::Enrol => self.enrol_again = Some(self.now),
            OfficeEvent::Begun(who, address) => {
                self.life = Some((who, address));
                self.office_again = self.now;
            }
            OfficeEvent::Over => self.over(&mut out),
            OfficeEvent::Heard { from, is_member } => {
                self.is_member = is_member;
                if self.follows == Some(from) {
                    self.heard = self.now;
                }
            }
            OfficeEvent::Answered(number, answer) => self.answered(number, answer, &mut out),
            OfficeEvent::Store(record) => self.store(record, &mut out),
            OfficeEvent::Unheard => {
                self.stands_back = self.now + self.terms.lease() * 3 / 2;
                self.resign(Beat { resigned: true, unheard: true }, &mut out);
            }
            OfficeEvent::Left => self.resign(Beat { resigned: true, unheard: false }, &mut out),
            OfficeEvent::Tick => {}
        }
        self.go_on(&mut out);
        out
    }

    /// When it wants an [`OfficeEvent::Tick`] at the latest.
    pub fn wake_at(&self) -> Time {
        let office = match (&self.life, &self.state, self.office) {
            (None, ..) | (.., Some(_)) => Time::FAR,
            (_, State::Holding(_), _) => self.office_again,
            _ => self.office_again.max(self.silent_from()),
        };
        let enrol = self.enrol_again.filter(|_| self.enrolling.is_none());
        let store = self.store_again.filter(|_| self.storing.is_none());
        [Some(office), enrol, store].into_iter().flatten().min().unwrap_or(Time::FAR)
    }

    /// The present incarnation holds the office, with or without authority.
    pub fn holds(&self) -> bool {
        matches!(self.state, State::Holding(_))
    }

    // What is asked, and when.

    fn go_on(&mut self, out: &mut Actions) {
        if self.enrolling.is_none() && self.enrol_again.take_if(|at| *at <= self.now).is_some() {
            self.enrolling = Some(self.ask(Question::Enrol { name: self.name.clone() }, out));
        }
        if self.storing.is_none() && self.store_again.take_if(|at| *at <= self.now).is_some() {
            self.store_once(out);
        }
        if self.life.is_none() || self.office.is_some() || self.now < self.office_again {
            return;
        }
        match &self.state {
            State::Holding(held) => {
                let question = Question::Beat { term: held.term, says: Beat::default() };
                self.office = Some(self.ask(question, out));
            }
            State::Looking(_) if self.now >= self.silent_from() => self.office = Some(self.ask(Question::Look, out)),
            State::Looking(_) | State::Taking { .. } => {}
        }
    }

    fn ask(&mut self, question: Question, out: &mut Actions) -> Asked {
        let number = self.next_number;
        self.next_number += 1;
        out.push(OfficeAction::Ask(number, question));
        Asked { number, sent: self.now }
    }

    /// From when on the keeper counts as silent: a renewal and a half went unanswered.
    fn silent_from(&self) -> Time {
        if self.follows.is_some() { self.heard + self.terms.renew_every() * 3 / 2 } else { Time::ZERO }
    }

    /// Between two looks, and between two beats.
    fn often(&self) -> Duration {
        self.terms.renew_every() / 2
    }

    /// After what was not answered.
    fn soon(&self) -> Duration {
        self.terms.renew_every() / 8
    }

    // What the register answers.

    fn answered(&mut self, number: u64, answer: Option<Answer>, out: &mut Actions) {
        if let Some(asked) = self.office.take_if(|asked| asked.number == number) {
            return self.office_answered(asked, answer, out);
        }
        if self.enrolling.take_if(|asked| asked.number == number).is_some() {
            match answer {
                Some(Answer::Enrolled(life)) => out.push(OfficeAction::Enrolled(life)),
                _ => self.enrol_again = Some(self.now + self.soon()),
            }
        }
        if self.storing.take_if(|asked| asked.number == number).is_some() {
            self.store_answered(answer, out);
        }
    }

    fn office_answered(&mut self, asked: Asked, answer: Option<Answer>, out: &mut Actions) {
        self.office_again = asked.sent + self.often();
        match (answer, &mut self.state) {
            (Some(Answer::Seen(sight)), State::Looking(_)) => self.seen(sight, out),
            (Some(Answer::Taken { term, record, changed }), &mut State::Taking { after_unheard }) => {
                let until = self.authority_from(asked.sent);
                self.state = State::Holding(Held { term, changed, to_store: None });
                self.follow(self.holder(), out);
                out.push(OfficeAction::Appoint(record, Term { until, after_unheard }));
            }
            (Some(Answer::Beaten), State::Holding(_)) => {
                out.push(OfficeAction::Authority(self.authority_from(asked.sent)));
            }
            (Some(Answer::Overtaken), _) => self.dismiss(out),
            // Nothing is known: it may have been done, and may yet be.
            (_, state) => {
                if matches!(state, State::Taking { .. }) {
                    self.state = State::Looking(None);
                }
                self.office_again = self.now + self.soon();
            }
        }
    }

    fn seen(&mut self, sight: Option<Sight>, out: &mut Actions) {
        let Some(sight) = sight else {
            return self.take(Revision::default(), Revision::default(), false, out);
        };
        let Sight { term, holder, beat, said } = sight;
        let since = match self.state {
            State::Looking(Some(seen)) if (seen.term, seen.beat) == (term, beat) => seen.since,
            _ => self.now,
        };
        self.state = State::Looking(Some(Seen { term, beat, since }));
        // A holder under this incarnation's own name grants nothing: this node does not know that it holds the office,
        // or has given it up.
        let is_own = self.life.as_ref().is_some_and(|(who, _)| holder.who == *who);
        let terms = holder.terms.longer(self.terms);
        let members_first = if self.is_member { Duration::ZERO } else { self.terms.lease() / 2 };
        let over_at = since + terms.lease() / 2 + terms.drift() + members_first;
        let is_over = said.resigned || is_own || self.now >= over_at || !self.rules.wait_for_authority;
        if !is_own {
            self.follow(holder, out);
        }
        if is_over && self.now >= self.stands_back {
            self.take(term, beat, said.unheard, out);
        }
    }

    fn take(&mut self, term: Revision, beat: Revision, after_unheard: bool, out: &mut Actions) {
        let question = Question::Take { term, beat, holder: self.holder(), says: Beat::default() };
        self.state = State::Taking { after_unheard };
        self.office = Some(self.ask(question, out));
    }

    fn holder(&self) -> Holder {
        let (who, address) = self.life.clone().unwrap_or_default();
        Holder { who, name: self.name.clone(), address, terms: self.terms }
    }

    fn follow(&mut self, holder: Holder, out: &mut Actions) {
        if self.follows != Some(holder.who) {
            self.follows = Some(holder.who);
            // It has its time to be heard.
            self.heard = self.now;
            out.push(OfficeAction::Follow(holder));
        }
    }

    fn authority_from(&self, sent: Time) -> Time {
        sent + (self.terms.lease() / 2 - self.terms.drift())
    }

    // The record.

    fn store(&mut self, record: Box<KeeperRecord>, out: &mut Actions) {
        let State::Holding(held) = &mut self.state else { return };
        held.to_store = Some(record);
        self.store_once(out);
    }

    fn store_once(&mut self, out: &mut Actions) {
        let State::Holding(Held { term, changed, to_store: Some(record), .. }) = &self.state else { return };
        let question = Question::Store { term: *term, after: *changed, record: record.clone() };
        self.storing = Some(self.ask(question, out));
    }

    fn store_answered(&mut self, answer: Option<Answer>, out: &mut Actions) {
        let State::Holding(held) = &mut self.state else { return };
        match answer {
            Some(Answer::Stored(changed)) => {
                (held.changed, held.to_store) = (changed, None);
                out.push(OfficeAction::Stored);
            }
            Some(Answer::Overtaken) => self.dismiss(out),
            _ => self.store_again = Some(self.now + self.soon()),
        }
    }

    // The end of a term.

    fn dismiss(&mut self, out: &mut Actions) {
        if self.holds() {
            out.push(OfficeAction::Dismiss);
        }
        self.state = State::Looking(None);
        (self.storing, self.store_again) = (None, None);
        // The keeper, whichever member it is, must be found again.
        self.follows = None;
        self.office_again = self.now;
    }

    fn resign(&mut self, says: Beat, out: &mut Actions) {
        let State::Holding(Held { term, .. }) = self.state else { return };
        self.dismiss(out);
        self.office = Some(self.ask(Question::Beat { term, says }, out));
    }

    fn over(&mut self, out: &mut Actions) {
        match self.holds() {
            true => self.resign(Beat { resigned: true, unheard: false }, out),
            false => {
                self.dismiss(out);
                self.office = None;
            }
        }
        (self.life, self.is_member) = (None, false);
    }
}
