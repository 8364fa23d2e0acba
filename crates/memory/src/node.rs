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
mod operations;
mod requests;
mod routing;

use std::collections::{BTreeMap, BTreeSet};
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
use crate::access::{Given, Outcome, Post, PostId, Step};
use crate::actions::Renewal;
use crate::get::Get;
use crate::home::Home;
use crate::home::Note;
use crate::put::Put;
use crate::registrar::Registrar;
use crate::request::{Answer, RequestId, Wish};
use crate::wire::{Frame, Question};
use crate::{MemoryOptions, Refusal, Segment, SegmentId};

/// Requests that may be open at a node.
pub(crate) const REQUESTS: usize = 8192;
/// Bytes of the long values among them: what is asked for beyond is refused.
const UNDER_WAY: u64 = 256 << 20;
/// Values up to so long are not counted: they are let in however much is under way, and their number bounds them.
const SHORT: u64 = 16 << 10;
/// When a put that found no free slot looks again.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
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
    requests: BTreeMap<RequestId, Request>,
    /// Bytes of the long values of all of them.
    under_way: u64,
    handles: Handles,
    in_flight: InFlight,
    /// What was done for its home while it had no lease.
    held_back: Vec<(SegmentId, Vec<Given>)>,
    spread: u64,
}

struct Request {
    wish: Wish,
    until: Time,
    stage: Doing,
    /// Answered already, as unknown or timed out: the request only waits for what is in flight.
    is_over: bool,
    /// It was asked for at this home, maybe in an earlier view.
    asked_at: Option<Incarnation>,
    /// It was: the end of that view took the answer.
    was_asked: bool,
    /// How often it was sent from one home to another since it was begun.
    sent_on: u8,
    /// Bytes of a long value that go with it.
    takes: u64,
}

/// How far a request is.
enum Doing {
    /// For a view, a lease, or its turn.
    Waiting(&'static str),
    /// How much is free where.
    Looking {
        until: Time,
        found: Vec<(u64, Incarnation)>,
        left: BTreeSet<Incarnation>,
    },
    /// The request has asked a member and waits for the answer.
    Asking(&'static str),
    Listing {
        left: BTreeSet<Incarnation>,
        found: Vec<Segment>,
        going: BTreeMap<SegmentId, Duration>,
    },
    /// How it is is known, and its home is asked when it goes.
    Stating {
        segment: Segment,
        version: u64,
        stamp_ns: u64,
    },
    /// The word alone, to know how old a copy is.
    Comparing,
    Getting {
        get: Get,
        since: Time,
    },
    /// Behind other puts of this node.
    Queued,
    Putting(Put),
    /// A put that looks for a free slot.
    Pausing(Put, Time),
}

impl Request {
    /// From now on the request carries `bytes` bytes of a value, of all that are under way.
    ///
    /// # Errors
    /// If there is no room for them: nothing is changed.
    fn takes(&mut self, bytes: u64, under_way: &mut u64) -> Result<(), Refusal> {
        let bytes = if bytes <= SHORT { 0 } else { bytes };
        let others = *under_way - self.takes;
        if bytes > 0 && others + bytes > UNDER_WAY {
            return Err(Refusal::TooMuch { most: UNDER_WAY });
        }
        (self.takes, *under_way) = (bytes, others + bytes);
        Ok(())
    }
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
            requests: BTreeMap::new(),
            under_way: 0,
            handles: Handles::new(options),
            in_flight: InFlight::default(),
            held_back: vec![],
            spread: 0,
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
        let ids: Vec<RequestId> = self.requests.keys().copied().collect();
        for id in ids {
            let Some(request) = self.requests.get_mut(&id) else { continue };
            let is_unknown = matches!(&request.stage, Doing::Putting(put) if put.is_publishing());
            request.stage = Doing::Waiting("a view in effect");
            request.was_asked = request.asked_at.is_some();
            if request.is_over {
                self.done_with(id);
            } else if is_unknown {
                self.answer(id, Answer::Refused(Refusal::Unknown), out);
            }
        }
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
        let refused = match wish.check() {
            _ if self.requests.len() >= REQUESTS => Some(Refusal::Overloaded { most: REQUESTS }),
            checked => checked.err(),
        };
        if let Some(refusal) = refused {
            return out.push(Action::Answer(id, Answer::Refused(refusal)));
        }
        let puts = if let Wish::Put { bytes, .. } = &wish { bytes.len() as u64 } else { 0 };
        let stage = Doing::Waiting("a lease");
        let (is_over, asked_at, was_asked, sent_on, takes) = (false, None, false, 0, 0);
        let mut request = Request { wish, until, stage, is_over, asked_at, was_asked, sent_on, takes };
        if let Err(refusal) = request.takes(puts, &mut self.under_way) {
            return out.push(Action::Answer(id, Answer::Refused(refusal)));
        }
        self.requests.insert(id, request);
        self.go_on(id, out);
        self.serve_self(out);
    }

    /// Bytes of the values of others' segments that it keeps.
    pub(crate) fn copied_bytes(&self) -> u64 {
        self.handles.copied_bytes()
    }

    /// Bytes of the long values that are on their way between programs and homes.
    pub fn under_way(&self) -> u64 {
        self.under_way
    }

    /// Nothing of it is on its way any more.
    fn done_with(&mut self, id: RequestId) -> Option<Request> {
        let request = self.requests.remove(&id)?;
        self.under_way -= request.takes;
        Some(request)
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
            (Origin::Request(id, segment), outcome) => self.worked(id, segment, outcome, out),
            (Origin::Look(id, home), outcome) => self.looked(id, home, outcome, out),
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
        let due = |request: &Request| request.until <= now && !request.is_over;
        let late: Vec<RequestId> =
            self.requests.iter().filter(|(_, request)| due(request)).map(|(id, _)| *id).collect();
        for id in late {
            self.out_of_time(id, out);
        }
        let paused = |request: &Request| matches!(request.stage, Doing::Pausing(_, until) if until <= now);
        let again: Vec<RequestId> =
            self.requests.iter().filter(|(_, request)| paused(request)).map(|(id, _)| *id).collect();
        for id in again {
            self.put_again(id, out);
        }
        self.give_back(out);
        self.correspondence.ask_again(&self.membership, out);
        self.come_into_effect(out);
        self.reclaim_if_due(out);
        self.serve_self(out);
    }

    /// The next deadline, if no event comes before.
    pub fn next_deadline(&self) -> Option<Time> {
        let requests = self.requests.values().filter(|request| !request.is_over).map(|request| match request.stage {
            Doing::Pausing(_, until) => until.min(request.until),
            _ => request.until,
        });
        let renewal = (self.has_no_memory() && self.membership.acts()).then_some(self.renew_at);
        let reclaim = self.home.reclaim_at().filter(|_| self.membership.acts());
        requests
            .chain(self.handles.give_back_at())
            .chain(self.correspondence.next_at())
            .chain(renewal)
            .chain(reclaim)
            .min()
    }

    /// Whether anything of this request is in flight, or may be yet; also after it was answered as unknown.
    pub fn has_request(&self, id: RequestId) -> bool {
        self.requests.contains_key(&id)
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

    fn answer(&mut self, id: RequestId, answer: Answer, out: &mut Vec<Action>) {
        if self.done_with(id).is_some_and(|request| !request.is_over) {
            out.push(Action::Answer(id, answer));
        }
    }

    /// Slots that were not used for a while are free for others.
    fn give_back(&mut self, out: &mut Vec<Action>) {
        for (id, home, step) in self.handles.give_back(self.membership.now()) {
            self.post(Origin::GiveBack(id), home, vec![step], Time::FAR, out);
        }
    }
}
