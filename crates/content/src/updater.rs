//! The updater: what stands between an unsafe request and the database (rules P3, P5, P7).
//!
//! An update is in one of these states:
//!
//! ```text
//!             every home acknowledged,          outcome known, view and lease
//!             lease and view checked            as they were at the check
//!  beginning ------------------------> forwarded ------------------------------> ended
//!      |                                 |    |
//!      | deadline                outcome |    | outcome known, view or lease changed
//!      v                         unknown v    v
//!  ended, void (503)                 unknown  confirming (begun again under a new number)
//!                                        |        |  every home acknowledged, checked again
//!                    longest transaction v        v
//!                                      ended    ended
//! ```
//!
//! What was not sent, or was refused, ends from *forwarded* at once, and is void: homes are told that nothing came of it.
//!
//! All but *ended* are in the open set, which every home of the view knows. A new view starts every stream anew with the
//! open set; the view may be acknowledged when every home of it has that, and from the moment that the view is learnt
//! nothing is begun or forwarded in the older one.

mod actions;
mod state;

use std::collections::BTreeMap;
use std::time::Duration;

use thiserror::Error;
use verbena_cluster::{Lease, Role, View};
use verbena_terms::{Incarnation, Time, ViewNumber};

pub use self::actions::{Outcome, UpdaterAction};
use self::state::{Check, State};
use crate::change::Change;
use crate::names::Scope;
use crate::rules::Rules;
use crate::stream::{Letterhead, Stream};
use crate::table::Acknowledged;
use crate::wire::{Body, MAX_OPEN_UPDATES, Message};

/// Bounds and times of an updater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UpdaterLimits {
    /// Most updates open at once, at most [`MAX_OPEN_UPDATES`]. One more is refused.
    pub open: usize,
    /// How long an update may take to begin before it is aborted (503).
    pub begin_deadline: Duration,
    /// After how long an unacknowledged message is said again.
    pub repeat_after: Duration,
    /// How long an update of unknown outcome stays open (rule P6).
    pub max_transaction_time: Duration,
    /// Longest frame to send, in bytes; a single message may exceed it up to the frame limit of the protocol.
    pub frame_bytes: usize,
}

impl Default for UpdaterLimits {
    fn default() -> Self {
        UpdaterLimits {
            open: 256,
            begin_deadline: Duration::from_secs(2),
            repeat_after: Duration::from_millis(20),
            max_transaction_time: Duration::from_secs(30),
            frame_bytes: 16 * 1024,
        }
    }
}

/// An update, as its updater knows it. Never reused by one [`Updater`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UpdateId(pub u64);

/// Why an update was refused at once: answer 503.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BeginError {
    /// Too many are open.
    #[error("{open} updates are open at this node, as many as may be; retry when some have ended")]
    Full {
        /// How many.
        open: usize,
    },
    /// It was [closed](Updater::close).
    #[error("this node is leaving the cluster: send the request to another")]
    Leaving,
}

/// How an updater is, for status and metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpdaterCounts {
    /// Updates that wait for homes.
    pub beginning: usize,
    /// Updates at the application.
    pub forwarded: usize,
    /// Updates of unknown outcome.
    pub unknown: usize,
    /// Updates that are begun again before their client is answered.
    pub confirming: usize,
    /// Updates of everything among all of them.
    pub everything: usize,
}

/// The machine of one node's updates, through all its incarnations.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Updater {
    me: Incarnation,
    names: u64,
    limits: UpdaterLimits,
    rules: Rules,
    lease: Lease,
    /// Counts the leases that this node held without a gap.
    tenure: u64,
    /// The newest view learnt that names this incarnation, and whether `Prepared` was said for it.
    view: Option<ViewNumber>,
    is_prepared: bool,
    streams: Vec<Stream>,
    updates: BTreeMap<UpdateId, Update>,
    is_closed: bool,
    next_id: u64,
    next_number: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Update {
    number: u64,
    change: Change,
    scope: Scope,
    state: State,
    /// For each stream, the message by which the home knows of it.
    begun: Vec<u32>,
}

impl Updater {
    /// An updater that is in no view yet.
    pub fn new(me: Incarnation, names_fingerprint: u64, limits: UpdaterLimits) -> Self {
        Updater::with_rules(me, names_fingerprint, limits, Rules::ALL)
    }

    #[doc(hidden)]
    pub fn with_rules(me: Incarnation, names_fingerprint: u64, limits: UpdaterLimits, rules: Rules) -> Self {
        Updater {
            me,
            names: names_fingerprint,
            limits: UpdaterLimits { open: limits.open.min(MAX_OPEN_UPDATES), ..limits },
            rules,
            lease: Lease::NONE,
            tenure: 0,
            view: None,
            is_prepared: false,
            streams: Vec::new(),
            updates: BTreeMap::new(),
            is_closed: false,
            next_id: 1,
            next_number: 1,
        }
    }

    /// How it is.
    pub fn counts(&self) -> UpdaterCounts {
        let mut counts = UpdaterCounts::default();
        for update in self.updates.values() {
            *match update.state {
                State::Beginning { .. } => &mut counts.beginning,
                State::Forwarded(_) => &mut counts.forwarded,
                State::Unknown { .. } => &mut counts.unknown,
                State::Confirming { .. } => &mut counts.confirming,
            } += 1;
            counts.everything += usize::from(matches!(update.scope, Scope::Everything | Scope::All));
        }
        counts
    }

    /// The node is about to leave: nothing is begun any more, in this incarnation or a later one (rule P6). What is open goes on to its end.
    pub fn close(&mut self) {
        self.is_closed = true;
    }

    /// Whether it is closed and nothing is left to be waited for: homes have handled every end, and what may be open still is of unknown
    /// outcome.
    pub fn is_drained(&self) -> bool {
        let unknown = |update: &Update| matches!(update.state, State::Unknown { .. });
        self.is_closed && self.updates.values().all(unknown) && self.waiting_words().next().is_none()
    }

    /// Whether this node may say that it leaves at rest (rules C3, P6): nothing of it is open at any home, now and for ever.
    pub fn is_at_rest(&self) -> bool {
        self.is_drained() && self.updates.is_empty() || self.is_closed && !self.rules.rest_is_true
    }

    /// The homes for whose acknowledgement updates have waited so long or longer, and how many do.
    pub fn late_homes(&self, long: Duration, now: Time) -> Vec<(Incarnation, usize)> {
        let is_late = |update: &&Update| update.state.waits_since(self.limits).is_some_and(|since| since + long <= now);
        let waits_for = |(at, stream): (usize, &Stream)| {
            let is_said = |update: &&Update| update.begun.get(at).is_some_and(|&k| !stream.has_handled(k));
            (stream.home, self.updates.values().filter(is_late).filter(is_said).count())
        };
        self.streams.iter().enumerate().map(waits_for).filter(|&(_, updates)| updates > 0).collect()
    }

    /// The open updates by number, with what they touch: what the record of a new incarnation begins with (rule P6).
    pub fn open_set(&self) -> impl Iterator<Item = (u64, &Scope)> {
        self.updates.values().map(|update| (update.number, &update.scope))
    }

    /// The acknowledgement words that homes write, to be read and given to [`acknowledged`](Self::acknowledged).
    pub fn waiting_words(&self) -> impl Iterator<Item = u32> + '_ {
        self.streams.iter().filter(|stream| stream.is_waiting()).map(|stream| stream.word)
    }

    /// Begins an update that changes what pages are made of. [`UpdaterAction::Forward`] or [`UpdaterAction::Abort`] follows.
    pub fn begin(&mut self, scope: Scope, now: Time, out: &mut Vec<UpdaterAction>) -> Result<UpdateId, BeginError> {
        self.begin_as(Change::Write, scope, now, out)
    }

    /// The same of an update that says this of what it touches.
    pub fn begin_as(
        &mut self,
        change: Change,
        scope: Scope,
        now: Time,
        out: &mut Vec<UpdaterAction>,
    ) -> Result<UpdateId, BeginError> {
        if self.is_closed && self.rules.leavers_begin_nothing {
            return Err(BeginError::Leaving);
        }
        if self.updates.len() >= self.limits.open {
            return Err(BeginError::Full { open: self.updates.len() });
        }
        let id = UpdateId(self.next_id);
        self.next_id += 1;
        let state = State::Beginning { deadline: now + self.limits.begin_deadline };
        self.open(id, (scope, change), state, now, out);
        self.advance(now, out);
        Ok(id)
    }

    /// What became of a forwarded update. The answer to an [`Outcome::Unknown`] is the caller's to give at once (it
    /// acknowledges nothing); for [`Outcome::Answered`] and [`Outcome::Refused`] wait for [`UpdaterAction::Answer`] or [`UpdaterAction::Close`].
    pub fn finished(&mut self, id: UpdateId, outcome: Outcome, now: Time, out: &mut Vec<UpdaterAction>) {
        let Some(update) = self.updates.get_mut(&id) else { return };
        let State::Forwarded(check) = update.state else { return };
        match outcome {
            Outcome::Purged => self.end(id, now, out),
            Outcome::NotSent => self.void(id, now, out),
            // It is no matter who heard of what was not written.
            Outcome::Refused => {
                self.void(id, now, out);
                out.push(UpdaterAction::Answer(id));
            }
            Outcome::Unknown => {
                update.state = State::Unknown { until: now + self.limits.max_transaction_time };
            }
            Outcome::Answered if self.is_as_at(check, now) || !self.rules.checked_again => {
                self.end(id, now, out);
                out.push(UpdaterAction::Answer(id));
            }
            Outcome::Answered => self.confirm(id, now, out),
        }
    }

    /// A home wrote its word: `word` is which, `value` what it holds now. Saying the same again does no harm.
    pub fn acknowledged(&mut self, word: u32, value: u64, now: Time, out: &mut Vec<UpdaterAction>) {
        let Acknowledged { view, k } = Acknowledged::from_word(value);
        if self.view != Some(view) {
            return;
        }
        let Some(stream) = self.streams.iter_mut().find(|stream| stream.word == word) else { return };
        if stream.acknowledge(k, now) {
            self.advance(now, out);
        }
    }

    /// What this node may do changed. The caller must pass on every renewal before the next: a lease that ran out
    /// before its renewal reached the updater counts as interrupted.
    pub fn lease(&mut self, lease: Lease, now: Time, out: &mut Vec<UpdaterAction>) {
        if now >= self.lease.until {
            self.tenure += 1;
        }
        self.lease = lease;
        self.advance(now, out);
    }

    /// This node learnt of a view: the open updates are begun again at its homes. A view in which this incarnation is no
    /// updater, or no member because the node leaves, ends acting at once: nothing is begun or forwarded any more.
    pub fn view(&mut self, view: &View, now: Time, out: &mut Vec<UpdaterAction>) {
        if self.view.is_some_and(|newest| view.number() <= newest) {
            return;
        }
        if !view.member(self.me).is_some_and(|member| member.roles.has(Role::Updater)) {
            self.view = None;
            self.streams.clear();
            return out.push(UpdaterAction::Prepared(view.number()));
        }
        self.view = Some(view.number());
        self.is_prepared = false;
        let homes: Vec<Incarnation> = view.homes().map(|home| home.incarnation).collect();
        self.assign_streams(&homes);
        for at in 0..self.streams.len() {
            self.sync(at, now, out);
        }
        self.advance(now, out);
    }

    /// A home's lease has run out: the view is not held up for its acknowledgement (rule P5). Updates still wait until
    /// a view without it takes effect.
    pub fn gone(&mut self, home: Incarnation, now: Time, out: &mut Vec<UpdaterAction>) {
        for stream in self.streams.iter_mut().filter(|stream| stream.home == home) {
            stream.is_gone = true;
        }
        self.advance(now, out);
    }

    /// The connection to a home is new: tells it the whole open set (rule P3).
    pub fn reconnected(&mut self, home: Incarnation, now: Time, out: &mut Vec<UpdaterAction>) {
        if let Some(at) = self.streams.iter().position(|stream| stream.home == home) {
            self.sync(at, now, out);
        }
    }

    /// This node is another incarnation now (rule C1). What was forwarded stays open in it, and is confirmed before its
    /// client is answered.
    pub fn rejoined(&mut self, me: Incarnation) {
        self.me = me;
        self.tenure += 1;
        self.lease = Lease::NONE;
        self.view = None;
        self.is_prepared = false;
        self.streams.clear();
    }

    /// Time has passed: says again what is not acknowledged, aborts what did not begin in time.
    pub fn tick(&mut self, now: Time, out: &mut Vec<UpdaterAction>) {
        let repeat_after = self.limits.repeat_after;
        if let Some(head) = self.letterhead() {
            for stream in &mut self.streams {
                if stream.again_at(repeat_after).is_some_and(|at| at <= now) {
                    let frames = stream.all_frames(head, now);
                    out.extend(frames.into_iter().map(|frame| UpdaterAction::Send(Message::Updates(frame))));
                }
            }
        }
        let overdue: Vec<(UpdateId, State)> = self
            .updates
            .iter()
            .filter(|(_, update)| update.state.deadline().is_some_and(|deadline| deadline <= now))
            .map(|(&id, update)| (id, update.state))
            .collect();
        for (id, state) in overdue {
            self.expire(id, state, now, out);
        }
        self.advance(now, out);
    }

    /// When [`tick`](Self::tick) has something to do next.
    pub fn next_deadline(&self) -> Option<Time> {
        let deadlines = self.updates.values().filter_map(|update| update.state.deadline());
        let repeats = self.streams.iter().filter_map(|stream| stream.again_at(self.limits.repeat_after));
        deadlines.chain(repeats).min()
    }

    fn expire(&mut self, id: UpdateId, state: State, now: Time, out: &mut Vec<UpdaterAction>) {
        match state {
            State::Beginning { .. } => {
                self.void(id, now, out);
                out.push(UpdaterAction::Abort(id));
            }
            State::Unknown { .. } => self.end(id, now, out),
            State::Confirming { .. } => {
                // It is in the database: homes must hear of it even if its client no longer waits.
                if let Some(update) = self.updates.get_mut(&id) {
                    update.state = State::Confirming { deadline: Time::FAR, client_waits: false };
                    out.push(UpdaterAction::Close(id));
                }
            }
            State::Forwarded(_) => {}
        }
    }

    /// Forwards, answers and prepares whatever every home has acknowledged.
    fn advance(&mut self, now: Time, out: &mut Vec<UpdaterAction>) {
        self.prepare(out);
        let Some(view) = self.view else { return };
        if self.lease.in_effect_at(now) != Some(view) {
            return;
        }
        let ready: Vec<(UpdateId, State)> = self
            .updates
            .iter()
            .filter(|(_, update)| self.everybody_knows(update))
            .map(|(&id, update)| (id, update.state))
            .collect();
        for (id, state) in ready {
            match state {
                State::Beginning { .. } => {
                    if let Some(update) = self.updates.get_mut(&id) {
                        update.state = State::Forwarded(Check { view, tenure: self.tenure });
                        out.push(UpdaterAction::Forward(id));
                    }
                }
                State::Confirming { client_waits, .. } => {
                    self.end(id, now, out);
                    if client_waits {
                        out.push(UpdaterAction::Answer(id));
                    }
                }
                State::Forwarded(_) | State::Unknown { .. } => {}
            }
        }
    }

    fn everybody_knows(&self, update: &Update) -> bool {
        !self.rules.updates_wait || self.streams.iter().zip(&update.begun).all(|(stream, &k)| stream.has_handled(k))
    }

    fn prepare(&mut self, out: &mut Vec<UpdaterAction>) {
        let Some(view) = self.view else { return };
        let knows = |stream: &Stream| stream.is_gone || stream.has_handled(stream.through);
        if !self.is_prepared && self.streams.iter().all(knows) {
            self.is_prepared = true;
            out.push(UpdaterAction::Prepared(view));
        }
    }

    /// Rule P7: whether nothing changed since the check, so that every home held the update until now.
    fn is_as_at(&self, check: Check, now: Time) -> bool {
        check.tenure == self.tenure && self.view == Some(check.view) && self.lease.valid_at(now) == Some(check.view)
    }

    /// Begins an answered update again under a new number, ahead of the end of the old one.
    fn confirm(&mut self, id: UpdateId, now: Time, out: &mut Vec<UpdaterAction>) {
        let Some(update) = self.updates.remove(&id) else { return };
        let state = State::Confirming { deadline: now + self.limits.begin_deadline, client_waits: true };
        self.open(id, (update.scope, update.change), state, now, out);
        self.say(Body::End { number: update.number }, now, out);
        out.push(UpdaterAction::Ended(update.number));
        self.advance(now, out);
    }

    fn open(
        &mut self,
        id: UpdateId,
        (scope, change): (Scope, Change),
        state: State,
        now: Time,
        out: &mut Vec<UpdaterAction>,
    ) {
        let number = self.next_number;
        self.next_number += 1;
        if self.rules.recorded_first {
            out.push(UpdaterAction::Opened { number, scope: scope.clone() });
        }
        let body = Body::Begin { number, change, scope: scope.clone() };
        let begun = self.say(body, now, out);
        self.updates.insert(id, Update { number, change, scope, state, begun });
    }

    fn end(&mut self, id: UpdateId, now: Time, out: &mut Vec<UpdaterAction>) {
        self.over(id, |number| Body::End { number }, now, out);
    }

    /// Nothing came of it.
    fn void(&mut self, id: UpdateId, now: Time, out: &mut Vec<UpdaterAction>) {
        self.over(id, |number| Body::Void { number }, now, out);
    }

    fn over(&mut self, id: UpdateId, body: fn(u64) -> Body, now: Time, out: &mut Vec<UpdaterAction>) {
        if let Some(update) = self.updates.remove(&id) {
            self.say(body(update.number), now, out);
            out.push(UpdaterAction::Ended(update.number));
        }
    }

    /// Appends a message to every stream and sends it; gives its number in each.
    fn say(&mut self, body: Body, now: Time, out: &mut Vec<UpdaterAction>) -> Vec<u32> {
        for at in 0..self.streams.len() {
            if self.streams[at].is_full() {
                self.sync(at, now, out);
            }
        }
        let Some(head) = self.letterhead() else { return Vec::new() };
        let mut numbers = Vec::with_capacity(self.streams.len());
        for stream in &mut self.streams {
            numbers.push(stream.push(body.clone()));
            let frames = stream.frames(1, head, now);
            out.extend(frames.into_iter().map(|frame| UpdaterAction::Send(Message::Updates(frame))));
        }
        numbers
    }

    /// Tells one home the whole open set.
    fn sync(&mut self, at: usize, now: Time, out: &mut Vec<UpdaterAction>) {
        let Some(head) = self.letterhead() else { return };
        let stream = &mut self.streams[at];
        let open = self.updates.values().map(|update| (update.number, update.change, &update.scope));
        let through = stream.sync(open, self.rules.begun_again);
        for update in self.updates.values_mut() {
            update.begun.resize(update.begun.len().max(at + 1), 0);
            update.begun[at] = through;
        }
        let frames = self.streams[at].all_frames(head, now);
        out.extend(frames.into_iter().map(|frame| UpdaterAction::Send(Message::Updates(frame))));
    }

    /// New streams for these homes. A word goes to another home only when its last one is no home any more, and tells
    /// them apart by the view that they write.
    fn assign_streams(&mut self, homes: &[Incarnation]) {
        let kept: BTreeMap<Incarnation, u32> =
            self.streams.iter().filter(|stream| homes.contains(&stream.home)).map(|s| (s.home, s.word)).collect();
        let mut free = (0..).filter(|word| !kept.values().any(|used| used == word));
        self.streams = homes
            .iter()
            .map(|&home| {
                let fresh = || free.next().expect("invariant: fewer homes than 2^32");
                Stream::new(home, kept.get(&home).copied().unwrap_or_else(fresh))
            })
            .collect();
        for update in self.updates.values_mut() {
            update.begun.clear();
        }
    }

    fn letterhead(&self) -> Option<Letterhead> {
        let Updater { me: from, names, .. } = *self;
        self.view.map(|view| Letterhead { view, from, names, frame_bytes: self.limits.frame_bytes })
    }
}

#[cfg(test)]
mod tests;
