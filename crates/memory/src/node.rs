//! A node's part: what its programs ask for, what its share is asked for, and what it says to others.
//!
//! One view is one world. In it a node learns homes' keys and segments' places by asking, keeps them, and works on
//! memory one-sidedly. When the view ends the node forgets them all; what was in flight is unknown or starts again. The
//! result of an operation counts only if lease and view still hold after it came (rules C3, C5): then it was executed
//! before any home copied its memory into the next view's.

mod correspondence;
mod handles;
mod hosting;
mod in_flight;
mod membership;
mod requests;
mod routing;

use std::sync::Arc;
use std::time::Duration;

use verbena_cluster::{Lease, View};
use verbena_fabric::RegionKey;
use verbena_terms::{Incarnation, Time, ViewNumber};

use self::correspondence::{Correspondence, Purpose};
use self::handles::Handles;
pub use self::hosting::Standing;
use self::in_flight::{InFlight, Origin};
use self::membership::Membership;
use self::requests::{NodeState, RequestAction, Requests};
use crate::access::{Given, Outcome, Post, PostId, Step};
use crate::actions::Renewal;
use crate::home::Home;
use crate::home::Note;
use crate::registrar::Registrar;
use crate::request::{Answer, RequestId, Wish};
use crate::wire::{Frame, Question};
use crate::{MemoryOptions, SegmentId};

/// Requests that may be open at a node.
pub(crate) const REQUESTS: usize = 8192;
/// When a home that found no memory for a view tries again.
const RENEW_AGAIN: Duration = Duration::from_secs(1);

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
    options: MemoryOptions,
    membership: Membership,
    home: Home,
    /// Its memory as it is in this view.
    key: Option<RegionKey>,
    /// When it is to be made, if it could not be.
    renew_at: Time,
    /// What it knows was reported in this view.
    has_reported: bool,
    registrar: Registrar,
    correspondence: Correspondence,
    requests: Requests,
    /// Empty between two events: kept, so that a request allocates no list of its own.
    request_actions: Vec<RequestAction>,
    handles: Handles,
    in_flight: InFlight,
    /// What was done for its home while it had no lease.
    held_back: Vec<(SegmentId, Vec<Given>)>,
}

impl Memory {
    /// A node that is in no view.
    pub fn new(options: MemoryOptions) -> Self {
        Memory {
            options,
            membership: Membership::new(options.rules),
            home: Home::new(Incarnation::default(), options),
            key: None,
            renew_at: Time::ZERO,
            has_reported: false,
            registrar: Registrar::default(),
            correspondence: Correspondence::default(),
            requests: Requests::default(),
            request_actions: vec![],
            handles: Handles::new(options),
            in_flight: InFlight::default(),
            held_back: vec![],
        }
    }

    /// Starts anew as this incarnation, with empty memory (rule C1); for `Incarnation::default()`, between two.
    pub fn start_incarnation(&mut self, me: Incarnation, out: &mut Vec<Action>) {
        self.forget_view(out);
        self.membership.start_incarnation(me);
        self.home = Home::after(&self.home, me);
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
        self.home.view_ends();
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
        (self.key, self.has_reported, self.renew_at) = (None, false, Time::ZERO);
        self.correspondence.view_ends();
        self.in_flight.view_ends();
        self.held_back.clear();
        self.handles.view_ends();
        self.requests_act(out, |requests, _, actions| requests.view_ends(actions));
    }

    /// The lease as it is now. Comes before any other event, and after time has passed.
    pub fn lease(&mut self, lease: Lease, now: Time, out: &mut Vec<Action>) {
        let did_act = self.membership.acts();
        self.membership.set_lease(lease);
        self.membership.set_now(now);
        if self.membership.acts() && !did_act {
            for (id, given) in std::mem::take(&mut self.held_back) {
                self.home_completed(id, given, out);
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
            let answer = self.reclaim(bytes, notice, out);
            return out.push(Action::Answer(id, answer));
        }
        if let Err(refusal) = self.requests.admit(id, wish, until) {
            return out.push(Action::Answer(id, Answer::Refused(refusal)));
        }
        self.requests_act(out, |requests, node, actions| requests.go_on(id, node, actions));
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
                self.requests_act(out, |requests, node, actions| {
                    requests.completed(id, segment, outcome, node, actions);
                });
            }
            (Origin::Look(id, home), outcome) => {
                self.requests_act(out, |requests, node, actions| requests.looked(id, home, outcome, node, actions));
            }
            (Origin::Home(id), Outcome::Done(given)) if self.membership.acts() => self.home_completed(id, given, out),
            // It may have been done in a memory that others have left.
            (Origin::Home(id), Outcome::Done(given)) => self.held_back.push((id, given)),
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
        self.requests_act(out, |requests, node, actions| requests.tick(node, actions));
        self.give_back(out);
        self.correspondence.ask_again(&self.membership, out);
        self.come_into_effect(out);
        self.reclaim_if_due(out);
        self.serve_self(out);
    }

    /// The next deadline, if no event comes before.
    pub fn next_deadline(&self) -> Option<Time> {
        let renewal = (self.has_no_memory() && self.membership.acts()).then_some(self.renew_at);
        let reclaim = self.home.reclaim_at().filter(|_| self.membership.acts());
        let parts = [self.requests.next_deadline(), self.handles.give_back_at(), self.correspondence.next_at()];
        parts.into_iter().chain([renewal, reclaim]).flatten().min()
    }

    /// Whether anything of this request is in flight, or may be yet; also after it was answered as unknown.
    pub fn has_request(&self, id: RequestId) -> bool {
        self.requests.has(id)
    }

    /// Whether the memory of this view is there, and names are known.
    pub fn is_open(&self) -> bool {
        self.home.is_open() && self.registrar.is_open()
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
        self.requests_act(out, |requests, node, actions| requests.go_on_all(node, actions));
    }

    /// Requests take an event, and what they want is done.
    fn requests_act(
        &mut self,
        out: &mut Vec<Action>,
        event: impl FnOnce(&mut Requests, &mut NodeState<'_>, &mut Vec<RequestAction>),
    ) {
        let mut actions = std::mem::take(&mut self.request_actions);
        let (rules, membership, has_memory) = (self.options.rules, &self.membership, self.key.is_some());
        let mut node = NodeState { rules, membership, handles: &mut self.handles, has_memory };
        event(&mut self.requests, &mut node, &mut actions);
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

    /// Slots that were not used for a while are free for others.
    fn give_back(&mut self, out: &mut Vec<Action>) {
        for (id, home, step) in self.handles.give_back(self.membership.now()) {
            self.post(Origin::GiveBack(id), home, vec![step], Time::FAR, out);
        }
    }
}
