//! The home of pages: the only writer of their words (rules P2 to P6).
//!
//! A home holds, for every update that it knows to be open, the words that the update can touch, and keeps them busy.
//! It learns of updates from streams, one for each updater: numbered messages, handled without gaps, whose progress it
//! writes into its own word at the updater. It is asked by proxies whether a page that they made may be stored.
//!
//! What an updater's incarnation has open here changes in four ways: a begin adds, an end removes, a sync removes what
//! it does not name, and the settling of a dead incarnation removes all. What is removed bumps, but for an update of everything of which nothing came.
//!
//! A node that becomes a home does not know what is open elsewhere. It keeps its everything word busy until every
//! incarnation of the views up to its first has sent its whole open set in a view in which this node is a home, or
//! was settled. So every member runs an updater, if only to say that it has nothing open.

mod departure;
mod registration;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use verbena_cluster::{Lease, Role, View};
use verbena_terms::{Incarnation, MAX_DEPENDENCIES, Time, ViewNumber};

pub use self::departure::KeptOut;
use self::departure::{Departure, updaters_until};
use crate::board::{Board, Notes};
use crate::change::Change;
use crate::names::{Dependency, Scope};
use crate::pages::Pages;
use crate::rules::Rules;
use crate::table::{Acknowledged, PageTable};
use crate::wire::{Body, MAX_OPEN_UPDATES, Message, Updates};

/// Bounds of a home, and the two times that rule P6 rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HomeLimits {
    /// Page words, rounded up to a power of two; with the two beside it 24 bytes each, in shared memory. Too few cost misses.
    pub slots: u32,
    /// Stamps of dependencies, rounded up to a power of two; 8 bytes each. Too few cost refused registrations.
    pub stamps: u32,
    /// Pages with a dependency set, at least 1. Beyond it the one registered longest ago is dropped, with a bump.
    pub pages: usize,
    /// Dependencies in all sets together, at least [`MAX_DEPENDENCIES`]. Beyond it pages are dropped likewise.
    pub dependencies: usize,
    /// Dependencies in flight. An update that would exceed it is held as one of every copy.
    pub in_flight: usize,
    /// The cluster's lease.
    pub lease: Duration,
    /// Longest that a transaction goes on after its updater lost its lease: an assumption (rules P6, P10).
    pub max_transaction_time: Duration,
}

impl Default for HomeLimits {
    fn default() -> Self {
        HomeLimits {
            slots: 1 << 16,
            stamps: 1 << 16,
            pages: 1 << 17,
            dependencies: 1 << 20,
            in_flight: 1 << 16,
            lease: Duration::from_secs(2),
            max_transaction_time: Duration::from_secs(30),
        }
    }
}

/// What a home wants done, in this order: a word is stored before any other node learns of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HomeAction {
    /// Store a word into the own page table.
    Store {
        /// Byte offset in the region.
        offset: u64,
        /// The word.
        word: u64,
    },
    /// Write how far an updater's messages were handled, one-sidedly, into this home's word there. May be lost, late or
    /// done twice: the updater takes the highest, and asks again.
    Acknowledge {
        /// The updater.
        to: Incarnation,
        /// Which of its words.
        word: u32,
        /// What to write: [`Acknowledged`].
        value: u64,
    },
    /// Send a message to its addressee. May be lost.
    Send(Message),
    /// Read the record of open updates that this departed incarnation kept, and give it to [`Home::recorded`] (rule P6).
    /// A record that cannot be read is not given: the incarnation is settled in time.
    ReadRecord {
        /// The incarnation.
        of: Incarnation,
        /// It forwards nothing more. Otherwise its record counts only if its process is gone.
        lease_is_over: bool,
    },
    /// Tell the cluster that this departed incarnation is settled here (rules C3, P6).
    Settled(Incarnation),
}

/// How a home is, for status and metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HomeCounts {
    /// Pages with a dependency set.
    pub pages: usize,
    /// Dependencies in all sets together.
    pub dependencies: usize,
    /// Updates open here.
    pub open: usize,
    /// Updates of everything among them: nothing is cached while there is one.
    pub open_everything: usize,
    /// Incarnations whose open updates this home does not know yet: nothing is cached while there is one.
    pub awaiting: usize,
    /// Dead incarnations to be settled.
    pub leaving: usize,
    /// Movements since this home began, but for those of everything.
    pub clock: u64,
}

/// The machine of one home, for one incarnation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Home {
    me: Incarnation,
    names: u64,
    limits: HomeLimits,
    rules: Rules,
    lease: Lease,
    /// The acknowledged view and the newest one learnt.
    views: Vec<Arc<View>>,
    board: Board,
    pages: Pages,
    open: BTreeMap<(Incarnation, u64), Open>,
    in_flight: BTreeMap<Dependency, u32>,
    streams: BTreeMap<Incarnation, Stream>,
    /// The updaters whose open updates are not known yet; `None` before the first view.
    awaiting: Option<BTreeSet<Incarnation>>,
    leaving: BTreeMap<Incarnation, Departure>,
}

/// An open update: what it keeps busy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Open {
    scope: Scope,
    slots: Box<[u64]>,
}

/// What came of an update.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Came {
    /// It may have changed what pages are made of.
    Something,
    /// It reached nothing, or the application refused it.
    Nothing,
}

/// How far an updater's messages were handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Stream {
    view: ViewNumber,
    handled: u32,
    through: u32,
}

impl Home {
    /// A home that knows nothing yet: its everything word is busy (rule P5).
    pub fn new(me: Incarnation, names_fingerprint: u64, limits: HomeLimits) -> Self {
        Home::with_rules(me, names_fingerprint, limits, Rules::ALL)
    }

    #[doc(hidden)]
    pub fn with_rules(me: Incarnation, names_fingerprint: u64, limits: HomeLimits, rules: Rules) -> Self {
        let limits = HomeLimits {
            pages: limits.pages.max(1),
            dependencies: limits.dependencies.max(MAX_DEPENDENCIES),
            ..limits
        };
        let notes = Notes { hard: rules.hard_words, changed: rules.change_words };
        let mut board =
            Board::new(PageTable::new(me, limits.slots, names_fingerprint), limits.stamps, notes, rules.voids_alone);
        if rules.new_homes_busy {
            board.hold_everything(&mut Vec::new());
            board.hold_purge(Change::Soft, &mut Vec::new());
        }
        Home {
            me,
            names: names_fingerprint,
            limits,
            rules,
            lease: Lease::NONE,
            views: Vec::new(),
            board,
            pages: Pages::default(),
            open: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            streams: BTreeMap::new(),
            awaiting: None,
            leaving: BTreeMap::new(),
        }
    }

    /// Layout of the region to be made for this home.
    pub fn table(&self) -> &PageTable {
        self.board.table()
    }

    /// Every word that is not zero by right, with its byte offset: what the region holds at first.
    pub fn words(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.board.words()
    }

    /// How it is.
    pub fn counts(&self) -> HomeCounts {
        HomeCounts {
            pages: self.pages.len(),
            dependencies: self.pages.dependencies(),
            open: self.open.len(),
            open_everything: self
                .open
                .values()
                .filter(|open| matches!(open.scope, Scope::Everything | Scope::All))
                .count(),
            awaiting: self.awaiting.as_ref().map_or(1, BTreeSet::len),
            leaving: self.leaving.values().filter(|departure| !departure.is_settled()).count(),
            clock: self.board.clock(),
        }
    }

    /// What this node may do changed. Must be said before anything that comes after the change.
    pub fn lease(&mut self, lease: Lease) {
        self.lease = lease;
        self.views.retain(|view| view.number() >= lease.acknowledged);
    }

    /// This node learnt of a view.
    pub fn view(&mut self, view: &Arc<View>, now: Time, out: &mut Vec<HomeAction>) {
        if self.views.last().is_some_and(|newest| view.number() <= newest.number()) {
            return;
        }
        let acknowledged = self.lease.acknowledged;
        self.views.retain(|kept| kept.number() == acknowledged);
        self.views.push(Arc::clone(view));
        if self.awaiting.is_none() && is_home(view, self.me) {
            let updaters = updaters_until(view);
            // Without updaters no message will come, and so nothing would release it later.
            if updaters.is_empty() && self.rules.new_homes_busy {
                self.release_as_new(out);
            }
            self.awaiting = Some(updaters);
        }
        self.notice_departures(view, now, out);
        self.tick(now, out);
    }

    /// A message came in.
    pub fn receive(&mut self, message: Message, now: Time, out: &mut Vec<HomeAction>) {
        if message.to() != self.me {
            return;
        }
        match message {
            Message::Updates(updates) => self.updates(updates, out),
            Message::Register(register) => self.register(register, now, out),
            Message::Registered(_) => {}
        }
    }

    // Updates (rule P3).

    fn updates(&mut self, updates: Updates, out: &mut Vec<HomeAction>) {
        if updates.names != self.names || !self.may_update(updates.from, updates.view) {
            return;
        }
        let mut stream = match self.streams.get(&updates.from) {
            Some(stream) if updates.view < stream.view => return,
            Some(stream) if updates.view == stream.view => *stream,
            // A view's stream opens with the updater's whole open set; anything else came before it by accident.
            _ if matches!(updates.bodies.first(), Some(Body::Sync { .. })) => {
                Stream { view: updates.view, handled: updates.first.wrapping_sub(1), through: updates.first }
            }
            _ => return,
        };
        for (body, k) in
            updates.bodies.into_iter().zip(std::iter::successors(Some(updates.first), |k| Some(k.wrapping_add(1))))
        {
            let is_next = k == stream.handled.wrapping_add(1);
            let is_later = is_after(k, stream.handled);
            if !is_later {
                continue;
            }
            let stands_alone = matches!(body, Body::Sync { .. });
            if !is_next && !stands_alone && self.rules.without_gaps {
                break;
            }
            if !self.apply(updates.from, body, &mut stream, out) {
                break;
            }
            stream.handled = k;
        }
        self.streams.insert(updates.from, stream);
        if !is_after(stream.through, stream.handled) {
            self.no_longer_awaits(updates.from, out);
        }
        let value = Acknowledged { view: stream.view, k: stream.handled }.to_word();
        out.push(HomeAction::Acknowledge { to: updates.from, word: updates.word, value });
    }

    /// P5's exception to F5: a view that was learnt of counts as well as the acknowledged one. The home takes no more
    /// updates of an updater that has left the newest view: it is being settled.
    fn may_update(&self, updater: Incarnation, view: ViewNumber) -> bool {
        self.views.iter().any(|known| known.number() == view && is_home(known, self.me))
            && self.views.last().is_some_and(|newest| is_updater(newest, updater))
    }

    /// Handles one message; false if it cannot be handled now.
    fn apply(&mut self, updater: Incarnation, body: Body, stream: &mut Stream, out: &mut Vec<HomeAction>) -> bool {
        match body {
            Body::Sync { open, through } => {
                stream.through = through;
                let ended: Vec<u64> = self.numbers_of(updater).filter(|number| !open.contains(number)).collect();
                for number in ended {
                    self.end(updater, number, Came::Something, out);
                }
                true
            }
            Body::Begin { number, .. } if self.open.contains_key(&(updater, number)) => true,
            Body::Begin { .. } if self.numbers_of(updater).count() >= MAX_OPEN_UPDATES => false,
            Body::Begin { number, change, scope } => {
                self.begin(updater, number, (scope, change), out);
                true
            }
            Body::End { number } => {
                self.end(updater, number, Came::Something, out);
                true
            }
            Body::Void { number } => {
                self.end(updater, number, Came::Nothing, out);
                true
            }
        }
    }

    fn begin(
        &mut self,
        updater: Incarnation,
        number: u64,
        (scope, change): (Scope, Change),
        out: &mut Vec<HomeAction>,
    ) {
        let scope = match self.in_flight.len() + scope.dependencies().len() > self.limits.in_flight {
            // What it names may be what copies of either kind are found by.
            true => Scope::All,
            false => scope,
        };
        let slots = match &scope {
            Scope::Everything => {
                self.board.hold_everything(out);
                Box::default()
            }
            Scope::All => {
                self.board.hold_everything(out);
                if self.rules.purges_move {
                    self.board.hold_purge(change, out);
                }
                Box::default()
            }
            Scope::On(set) => self.hold_pages(set, change, out),
        };
        self.move_clock(&scope, out);
        self.open.insert((updater, number), Open { scope, slots });
    }

    fn hold_pages(&mut self, set: &[Dependency], change: Change, out: &mut Vec<HomeAction>) -> Box<[u64]> {
        let table = *self.board.table();
        let slots: BTreeSet<u64> = set
            .iter()
            .flat_map(|&dependency| self.pages.depending_on(dependency))
            .map(|page| table.slot(page))
            .collect();
        for &slot in &slots {
            self.board.hold(slot, change, out);
        }
        for &dependency in set {
            *self.in_flight.entry(dependency).or_insert(0) += 1;
        }
        slots.into_iter().collect()
    }

    /// Ends an update, if it is open here. Clock and stamps move too: a page that read its dependencies between begin
    /// and commit, and was no page here then, is caught by them alone.
    fn end(&mut self, updater: Incarnation, number: u64, came: Came, out: &mut Vec<HomeAction>) {
        let Some(open) = self.open.remove(&(updater, number)) else { return };
        let moves = self.rules.ends_move;
        for &slot in &open.slots {
            self.board.release(slot, moves, out);
        }
        for dependency in open.scope.dependencies() {
            self.land(*dependency);
        }
        match open.scope {
            Scope::Everything if came == Came::Nothing => self.board.release_everything_void(out),
            Scope::Everything => self.board.release_everything(moves, out),
            Scope::All => {
                self.board.release_everything(moves, out);
                if self.rules.purges_move {
                    self.board.release_purge(moves, out);
                }
            }
            Scope::On(_) => {}
        }
        if moves {
            self.move_clock(&open.scope, out);
        }
    }

    /// Clock and stamps say what an update moved that the everything word does not: coherent pages, which alone an update of everything touches, compare that word too.
    fn move_clock(&mut self, scope: &Scope, out: &mut Vec<HomeAction>) {
        if *scope != Scope::Everything {
            self.board.move_clock(scope.dependencies(), out);
        }
    }

    fn land(&mut self, dependency: Dependency) {
        let count =
            self.in_flight.get_mut(&dependency).expect("invariant: an open update's dependencies are in flight");
        *count -= 1;
        if *count == 0 {
            self.in_flight.remove(&dependency);
        }
    }

    fn numbers_of(&self, updater: Incarnation) -> impl Iterator<Item = u64> + '_ {
        self.open.range((updater, 0)..=(updater, u64::MAX)).map(|(&(_, number), _)| number)
    }
}

fn is_home(view: &View, who: Incarnation) -> bool {
    view.member(who).is_some_and(|member| member.roles.has(Role::Home))
}

fn is_updater(view: &View, who: Incarnation) -> bool {
    view.member(who).is_some_and(|member| member.roles.has(Role::Updater))
}

/// Whether message number `a` comes after `b`, modulo 2^32 (as RFC 1982): a view can outlive 2^32 messages.
pub(crate) fn is_after(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) > 0
}

#[cfg(test)]
mod tests;
