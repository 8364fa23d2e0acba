//! A node's part: what its programs ask for, what its share is asked for, and what it says to others.
//!
//! One view is one world. In it a node learns homes' keys and segments' places by asking, keeps them, and works on
//! memory one-sidedly. When the view ends the node forgets them all; what was in flight is unknown or starts again. The
//! result of an operation counts only if lease and view still hold after it came (rules C3, C5): then it was executed
//! before any home copied its memory into the next view's.
//!
//! ```text
//!   programs <--> requests ---------------> handles     the segments that this node knows
//!                     |
//!   members  <--> correspondence <-+
//!                     |            |
//!                     |        hosting, registrar       the node's home; which segment has a name
//!                     |            |
//!   fabric   <--> in_flight <------+
//!
//!   cluster  ---> membership                            all look at it, to know whether the node acts
//! ```
//!
//! Each part owns its data. [`Memory`] hands the parts events, those of members by [`routing`], and carries out what requests and the home give: questions,
//! posts, answers.

mod correspondence;
mod handles;
mod hosting;
mod in_flight;
mod membership;
mod put;
mod requests;
mod routing;

use std::sync::Arc;

use verbena_cluster::{Lease, View};
use verbena_fabric::RegionKey;
use verbena_terms::{Incarnation, Time, ViewNumber};

use self::correspondence::{Correspondence, Purpose};
use self::handles::Handles;
use self::hosting::Hosting;
pub use self::hosting::Standing;
use self::in_flight::{InFlight, Origin};
use self::membership::Membership;
use self::requests::{NodeState, RequestAction, Requests};
use crate::access::{Outcome, Post, PostId, Step};
use crate::actions::{HomeAction, Renewal, Stands};
use crate::home::Note;
use crate::registrar::Registrar;
use crate::request::{Answer, RequestId, Wish};
use crate::wire::{Frame, Question};
use crate::{MemoryOptions, Rules};

/// Requests that may be open at a node.
pub(crate) const REQUESTS: usize = 8192;

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// May be lost.
    Send(Frame),
    /// At a home whose key was opened, or will be; until then.
    Post(Post, Time),
    /// Answer a program's request.
    Answer(RequestId, Answer),
    /// The node's memory is made anew; [`Memory::renewed`] says what came of it.
    Renew(Renewal),
    /// A word of its own memory that no atomic changes.
    Store {
        /// Where.
        at: u64,
        /// What.
        word: u64,
    },
    /// A home's memory.
    Open(RegionKey),
    /// These bytes are unused, with no operation in flight to them: the system may have them.
    Discard {
        /// The first.
        at: u64,
        /// How many.
        bytes: u64,
    },
    /// To be logged and counted.
    Note(Note),
}

/// A node's memory, and the members' memory as the node sees it.
pub struct Memory {
    rules: Rules,
    membership: Membership,
    hosting: Hosting,
    registrar: Registrar,
    correspondence: Correspondence,
    requests: Requests,
    /// Empty between two events: kept, so that a request allocates no list of its own.
    request_actions: Vec<RequestAction>,
    handles: Handles,
    in_flight: InFlight,
}

impl Memory {
    /// A node that is in no view.
    pub fn new(options: MemoryOptions) -> Self {
        Memory {
            rules: options.rules,
            membership: Membership::new(options.rules),
            hosting: Hosting::new(options),
            registrar: Registrar::default(),
            correspondence: Correspondence::default(),
            requests: Requests::default(),
            request_actions: vec![],
            handles: Handles::new(options),
            in_flight: InFlight::default(),
        }
    }

    /// Starts anew as this incarnation, with empty memory (rule C1); for `Incarnation::default()`, between two.
    pub fn start_incarnation(&mut self, me: Incarnation, out: &mut Vec<Action>) {
        self.forget_view(out);
        self.membership.start_incarnation(me);
        self.hosting.start_incarnation(me);
        self.registrar = Registrar::default();
        self.correspondence = Correspondence::default();
    }

    /// The cluster has a newer view. When this returns the node has ended what it did in older ones (rule C3).
    pub fn view(&mut self, view: &Arc<View>, now: Time, out: &mut Vec<Action>) {
        if self.membership.view().is_some_and(|known| known.number() >= view.number()) {
            return;
        }
        self.membership.set_now(now);
        self.forget_view(out);
        self.membership.enter_view(view.clone());
        self.registrar.view(self.membership.me(), view);
        self.correspondence.enter_view(view);
        for home in view.homes() {
            let until = Time::FAR;
            self.ask(home.incarnation, Question::Key, Purpose::Key, until, out);
        }
        self.go_on_all(out);
    }

    /// Grows before something else can be where a segment was in this node's memory: before its part in a view ends, and before what was there is used again or works elsewhere.
    pub fn forgets(&self) -> u64 {
        self.handles.forgets()
    }

    fn forget_view(&mut self, out: &mut Vec<Action>) {
        self.hosting.view_ends();
        self.correspondence.view_ends();
        self.in_flight.view_ends();
        self.handles.view_ends();
        self.requests_act(out, |requests, node| requests.view_ends(node.out));
    }

    /// The lease as it is now. Comes before any other event, and after time has passed.
    pub fn lease(&mut self, lease: Lease, now: Time, out: &mut Vec<Action>) {
        let did_act = self.membership.acts();
        self.membership.set_lease(lease);
        self.membership.set_now(now);
        if self.membership.acts() && !did_act {
            for (id, given) in self.hosting.held_back() {
                self.home_acts(out, |hosting, membership, actions| hosting.completed(id, given, membership, actions));
            }
            self.go_on_all(out);
        }
        self.come_into_effect(out);
    }

    /// Which view it is in, for what it says.
    pub(crate) fn view_number(&self) -> ViewNumber {
        self.membership.view_number()
    }

    /// A program wants something, until then. It hears of it by [`Action::Answer`], once.
    pub fn request(&mut self, id: RequestId, wish: Wish, until: Time, now: Time, out: &mut Vec<Action>) {
        self.membership.set_now(now);
        if let Wish::Reclaim { bytes, notice } = wish {
            let answer = match self
                .home_acts(out, |hosting, membership, actions| hosting.set_offer(bytes, notice, membership, actions))
            {
                Ok(()) => Answer::Reclaims(self.hosting.reclaims(now)),
                Err(refusal) => Answer::Refused(refusal),
            };
            return out.push(Action::Answer(id, answer));
        }
        if let Err(refusal) = self.requests.admit(id, wish, until) {
            return out.push(Action::Answer(id, Answer::Refused(refusal)));
        }
        self.requests_act(out, |requests, node| requests.go_on(id, node));
        self.serve_self(out);
    }

    /// Bytes of the values of others' segments that it keeps.
    pub(crate) fn copied_bytes(&self) -> u64 {
        self.handles.copied_bytes()
    }

    /// Bytes of the long values that are on their way between programs and homes.
    pub fn under_way(&self) -> u64 {
        self.requests.under_way()
    }

    /// A member has said something.
    pub fn heard(&mut self, frame: Frame, now: Time, out: &mut Vec<Action>) {
        self.membership.set_now(now);
        let is_of_view = frame.view == self.membership.view_number() && frame.to == self.membership.me();
        if is_of_view && self.membership.member(frame.from).is_some() {
            self.message(frame.from, frame.message, out);
            self.serve_self(out);
        }
    }

    /// What came of a post.
    pub fn completed(&mut self, post: PostId, outcome: Outcome, now: Time, out: &mut Vec<Action>) {
        self.membership.set_now(now);
        let Some(origin) = self.in_flight.end(post) else { return };
        if let Some(id) = origin.segment() {
            self.handles.post_ended(id);
        }
        match (origin, outcome) {
            (Origin::Request(id, segment), outcome) => {
                self.requests_act(out, |requests, node| requests.completed(id, segment, outcome, node));
            }
            (Origin::Look(id, home), outcome) => {
                self.requests_act(out, |requests, node| requests.looked(id, home, outcome, node));
            }
            (Origin::Home(id), Outcome::Done(given)) => {
                self.home_acts(out, |hosting, membership, actions| hosting.completed(id, given, membership, actions));
            }
            // The next view has other memory.
            (Origin::Home(_) | Origin::GiveBack(_), _) => {}
        }
        if let Some(id) = origin.segment() {
            self.forget_if_idle(id, out);
        }
        self.serve_self(out);
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Time, out: &mut Vec<Action>) {
        self.membership.set_now(now);
        self.requests_act(out, |requests, node| requests.tick(node));
        self.give_back(out);
        self.correspondence.ask_again(&self.membership, out);
        self.come_into_effect(out);
        self.home_acts(out, Hosting::reclaim_if_due);
        self.serve_self(out);
    }

    /// The next deadline, if no event comes before.
    pub fn next_deadline(&self) -> Option<Time> {
        let parts = [
            self.requests.next_deadline(),
            self.handles.give_back_at(),
            self.correspondence.next_at(),
            self.hosting.next_deadline(&self.membership),
        ];
        parts.into_iter().flatten().min()
    }

    /// Whether anything of this request is in flight, or may be yet; also after it was answered as unknown.
    pub fn has_request(&self, id: RequestId) -> bool {
        self.requests.has(id)
    }

    /// Whether the memory of this view is there, and names are known.
    pub fn is_open(&self) -> bool {
        self.hosting.is_open() && self.registrar.is_open()
    }

    /// Free bytes of its own share, and those of the largest piece.
    pub fn free(&self) -> (u64, u64) {
        self.hosting.free()
    }

    /// How its share stands.
    pub fn standing(&self) -> Standing {
        self.hosting.standing()
    }

    /// Its memory is there, in the view it was asked for in, and these words stand in it; or it is not.
    pub fn renewed(&mut self, made: Option<(RegionKey, Vec<Stands>)>, out: &mut Vec<Action>) {
        let Some(view) = self.membership.view().cloned() else { return };
        match made {
            Some((key, stand)) if view.number() == key.view => {
                self.home_acts(out, |hosting, _, actions| hosting.renewed(key, &stand, &view, actions));
                // Work that needed the memory has waited for this.
                self.go_on_all(out);
            }
            _ => self.hosting.not_renewed(self.membership.now()),
        }
        if let Some(led) = self.hosting.report(&view) {
            for to in view.homes().map(|member| member.incarnation) {
                for question in self.registrar.reports(to, &view, &led) {
                    self.ask(to, question, Purpose::Report, Time::FAR, out);
                }
            }
        }
        self.serve_self(out);
    }

    // Within.

    fn post(&mut self, origin: Origin, home: Incarnation, steps: Vec<Step>, until: Time, out: &mut Vec<Action>) {
        if let Some(segment) = origin.segment() {
            self.handles.post_begins(segment, self.membership.now());
        }
        out.push(Action::Post(self.in_flight.begin(origin, home, steps), until));
    }

    fn ask(&mut self, to: Incarnation, question: Question, purpose: Purpose, until: Time, out: &mut Vec<Action>) {
        self.correspondence.ask(to, question, purpose, until, &self.membership, out);
    }

    /// What it says to itself it hears at once.
    fn serve_self(&mut self, out: &mut Vec<Action>) {
        while let Some(message) = self.correspondence.next_to_self() {
            self.message(self.membership.me(), message, out);
        }
    }

    fn go_on_all(&mut self, out: &mut Vec<Action>) {
        self.requests_act(out, |requests, node| requests.go_on_all(node));
    }

    /// Requests take an event, and what they want is done.
    fn requests_act(&mut self, out: &mut Vec<Action>, event: impl FnOnce(&mut Requests, &mut NodeState<'_>)) {
        let mut actions = std::mem::take(&mut self.request_actions);
        let (rules, membership, has_memory) = (self.rules, &self.membership, self.hosting.key().is_some());
        let mut node = NodeState { rules, membership, handles: &mut self.handles, has_memory, out: &mut actions };
        event(&mut self.requests, &mut node);
        for action in actions.drain(..) {
            match action {
                RequestAction::Ask { id, to, question, until } => {
                    self.ask(to, question, Purpose::Request(id), until, out);
                }
                RequestAction::Post { origin, home, steps, until } => self.post(origin, home, steps, until, out),
                RequestAction::Answer(id, answer) => out.push(Action::Answer(id, answer)),
            }
        }
        self.request_actions = actions;
    }

    /// The home takes an event, and what it wants is done.
    fn home_acts<T>(
        &mut self,
        out: &mut Vec<Action>,
        event: impl FnOnce(&mut Hosting, &Membership, &mut Vec<HomeAction>) -> T,
    ) -> T {
        let mut actions = vec![];
        let given = event(&mut self.hosting, &self.membership, &mut actions);
        self.carry_out(actions, out);
        given
    }

    fn carry_out(&mut self, actions: Vec<HomeAction>, out: &mut Vec<Action>) {
        for action in actions {
            match action {
                HomeAction::Post { id, at, steps } => self.post(Origin::Home(id), at, steps, Time::FAR, out),
                HomeAction::Ask { id, to, question } => self.ask(to, question, Purpose::Home(id), Time::FAR, out),
                HomeAction::Tell { to, question } => self.ask(to, question, Purpose::Abandoned, Time::FAR, out),
                HomeAction::Reply { to, reply } => self.correspondence.reply(to, reply, &self.membership, out),
                HomeAction::Store { at, word } => out.push(Action::Store { at, word }),
                HomeAction::Discard { at, bytes } => out.push(Action::Discard { at, bytes }),
                HomeAction::Note(note) => out.push(Action::Note(note)),
            }
        }
    }

    /// No node acts in older views any longer: the home makes its memory.
    fn come_into_effect(&mut self, out: &mut Vec<Action>) {
        out.extend(self.hosting.renewal(&self.membership).map(Action::Renew));
    }

    /// Slots that were not used for a while are free for others.
    fn give_back(&mut self, out: &mut Vec<Action>) {
        for (id, home, step) in self.handles.give_back(self.membership.now()) {
            self.post(Origin::GiveBack(id), home, vec![step], Time::FAR, out);
        }
    }
}
