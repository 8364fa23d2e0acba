//! The world whose orders of events are explored.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use stateright::{Model, Property};
use verbena_cluster::{Departed, Lease, Member, Role, Roles, View, home_of};
use verbena_content::{
    Dependency, FillId, Home, HomeAction, HomeLimits, Kind, Message, Outcome, PageId, PageTable, Reader, ReaderLimits,
    Rules, Scope, Stamp, Start, UpdateId, Updater, UpdaterAction, UpdaterLimits, Verdict, Word, Words, look,
};
use verbena_terms::{Incarnation, Time, ViewNumber};

const NOW: Time = Time::from_nanos(1);
const HOMES: [Incarnation; 2] = [Incarnation::new(1, 1), Incarnation::new(2, 1)];
const PROXIES: [Incarnation; 2] = [Incarnation::new(3, 1), Incarnation::new(4, 1)];
const OLD: ViewNumber = ViewNumber(1);
const NEW: ViewNumber = ViewNumber(2);
pub(crate) const ROW: Dependency = Dependency(7);
const NAMES: u64 = 1;

/// What changes with the view.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Change {
    Nothing,
    /// The page's home joins.
    HomeJoins,
    /// The page's home leaves, stopped: its memory stays and never moves again.
    HomeLeaves,
    /// The second proxy leaves: it died, or stopped and its lease ran out.
    ProxyLeaves,
}

/// How much happens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub updates: u8,
    /// Two are the least that shows a stale answer: a fill, and a hit that should be none.
    pub reads: u8,
    /// Both proxies read and update; else the first reads and the second updates.
    pub both: bool,
}

pub(crate) struct World {
    change: Change,
    page: PageId,
    views: [Arc<View>; 2],
    bounds: Bounds,
    scope: Scope,
    /// What the updates of each proxy touch.
    pub touched: [Scope; 2],
    pub rules: Rules,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    homes: [Home; 2],
    /// Page word, everything word and clock of each home.
    memory: [[u64; 3]; 2],
    proxies: [Proxy; 2],
    /// Learnt the new view: homes, then proxies.
    learnt: [bool; 4],
    wire: BTreeSet<Vec<u8>>,
    committed: u8,
    /// The oldest state that a request sent now may be answered with.
    oldest: u8,
    updates_left: u8,
    reads_left: u8,
    hits: u8,
    acknowledged: u8,
    stale: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Proxy {
    updater: Updater,
    reader: Reader<()>,
    lease: Lease,
    copy: Option<(Stamp, u8)>,
    /// The answer that is being registered.
    made: Option<(FillId, u8)>,
    reading: Reading,
    writing: Writing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Reading {
    Idle,
    Read { oldest: u8, view: ViewNumber, words: Words },
    Asked { oldest: u8, fill: Option<FillId> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Writing {
    Idle,
    Beginning,
    Checked(UpdateId),
    Committed(UpdateId, u8),
    Confirming(u8),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Deliver(usize),
    Read(usize),
    Look(usize),
    Query(usize),
    Update(usize),
    Commit(usize),
    /// The application writes nothing, and says so.
    Refuse(usize),
    Finish(usize),
    Learn(usize),
    LeaseEnds,
    Settle(usize),
    /// The home reads the record of the proxy that left.
    Record(usize),
}

fn view(
    number: ViewNumber,
    homes: &[Incarnation],
    proxies: &[Incarnation],
    departed: &[Incarnation],
    bounds: Bounds,
) -> Arc<View> {
    let member = |incarnation: &Incarnation, roles| Member {
        incarnation: *incarnation,
        name: incarnation.rank.to_string(),
        address: String::new(),
        roles,
    };
    let homes = homes.iter().map(|home| member(home, Roles::of(Role::Home)));
    let updates = |proxy: &Incarnation| bounds.both || *proxy == PROXIES[1];
    let reader = Roles::of(Role::Reader);
    let proxies =
        proxies.iter().map(|proxy| member(proxy, if updates(proxy) { reader.and(Role::Updater) } else { reader }));
    let departed = departed
        .iter()
        .map(|&incarnation| Departed { incarnation, since: number, at_rest: false, is_relay: false })
        .collect();
    Arc::new(View::new(number, homes.chain(proxies).collect(), departed).expect("a sound view"))
}

impl World {
    pub(crate) fn new(change: Change, bounds: Bounds, scope: Scope) -> Self {
        let (all, first, second) = (&HOMES[..], &HOMES[..1], &HOMES[1..]);
        let view = |number, homes, proxies, departed| view(number, homes, proxies, departed, bounds);
        let (old, new) = match change {
            Change::Nothing => (view(OLD, all, &PROXIES, &[]), view(NEW, all, &PROXIES, &[])),
            Change::HomeJoins => (view(OLD, first, &PROXIES, &[]), view(NEW, all, &PROXIES, &[])),
            Change::HomeLeaves => (view(OLD, all, &PROXIES, &[]), view(NEW, first, &PROXIES, second)),
            Change::ProxyLeaves => (view(OLD, second, &PROXIES, &[]), view(NEW, second, &PROXIES[..1], &PROXIES[1..])),
        };
        let with_all = view(OLD, all, &PROXIES, &[]);
        let page = (0..)
            .map(PageId)
            .find(|page| home_of(page.0, &with_all) == Some(HOMES[1]))
            .expect("a page of the second home");
        World {
            change,
            page,
            views: [old, new],
            bounds,
            scope,
            touched: [Scope::of([ROW]), Scope::of([ROW])],
            rules: Rules::ALL,
        }
    }

    fn is_member(&self, view: usize, who: Incarnation) -> bool {
        self.views[view].member(who).is_some()
    }

    /// The new view is in effect when whoever acted in the old one has acknowledged it or is out of lease.
    fn in_effect(&self, state: &State) -> bool {
        state.proxies.iter().all(|proxy| proxy.lease.acknowledged == NEW || proxy.lease.until == Time::ZERO)
            && (0..2).all(|home| {
                let stopped = self.change == Change::HomeLeaves && home == 1;
                state.learnt[home] || stopped || !self.is_member(0, HOMES[home])
            })
    }

    fn home_actions(&self, state: &mut State, home: usize, actions: Vec<HomeAction>) {
        let places = [
            state.homes[home].table().page_offset(self.page),
            PageTable::everything_offset(),
            PageTable::clock_offset(),
        ];
        for action in actions {
            match action {
                HomeAction::Store { offset, word } => {
                    if let Some(at) = places.iter().position(|&place| place == offset) {
                        state.memory[home][at] = word;
                    }
                }
                // An acknowledgement that lands late lets a check be made later, which lets less happen than an early one.
                HomeAction::Acknowledge { to, word, value } => {
                    let proxy = PROXIES.iter().position(|&proxy| proxy == to).expect("an updater");
                    let mut out = Vec::new();
                    state.proxies[proxy].updater.acknowledged(word, value, NOW, &mut out);
                    self.updater_actions(state, proxy, out);
                }
                HomeAction::Send(message) => {
                    state.wire.insert(message.encode());
                }
                // A record is read at any moment at which it may be: see `Action::Record`.
                HomeAction::ReadRecord { .. } | HomeAction::Settled(_) => {}
            }
        }
    }

    fn updater_actions(&self, state: &mut State, at: usize, actions: Vec<UpdaterAction>) {
        for action in actions {
            match action {
                UpdaterAction::Send(message) => {
                    state.wire.insert(message.encode());
                }
                UpdaterAction::Forward(id) => state.proxies[at].writing = Writing::Checked(id),
                UpdaterAction::Prepared(NEW) => {
                    state.proxies[at].lease.acknowledged = NEW;
                    self.publish(state);
                }
                UpdaterAction::Answer(_) => {
                    if let Writing::Confirming(commit) = state.proxies[at].writing {
                        state.proxies[at].writing = Writing::Idle;
                        state.oldest = state.oldest.max(commit);
                        state.acknowledged += 1;
                    }
                }
                UpdaterAction::Opened { .. } | UpdaterAction::Ended(_) => {}
                UpdaterAction::Abort(_) | UpdaterAction::Close(_) | UpdaterAction::Prepared(_) => {}
            }
        }
    }

    /// Tells everybody what they may do now.
    fn publish(&self, state: &mut State) {
        let in_effect = if self.in_effect(state) { NEW } else { OLD };
        for at in 0..2 {
            let home_view = if state.learnt[at] { NEW } else { OLD };
            state.homes[at].lease(Lease { until: Time::FAR, acknowledged: home_view, in_effect });
        }
        for at in 0..2 {
            let proxy = &mut state.proxies[at];
            let before = proxy.lease;
            proxy.lease.in_effect = in_effect;
            if proxy.lease.until != Time::ZERO {
                let (lease, mut out) = (proxy.lease, Vec::new());
                proxy.updater.lease(lease, NOW, &mut out);
                self.updater_actions(state, at, out);
            } else {
                proxy.lease = before;
            }
        }
    }

    fn served(&self, state: &mut State, oldest: u8, shows: u8) {
        state.stale |= shows < oldest;
        state.oldest = state.oldest.max(shows);
    }

    fn deliver(&self, state: &mut State, at: usize) {
        let frame = state.wire.iter().nth(at).expect("an offered frame").clone();
        state.wire.remove(&frame);
        let message = Message::decode(&frame).expect("a frame of ours");
        if let Some(home) = HOMES.iter().position(|&home| home == message.to()) {
            let mut out = Vec::new();
            state.homes[home].receive(message, NOW, &mut out);
            return self.home_actions(state, home, out);
        }
        let Message::Registered(registered) = message else { return };
        let at = PROXIES.iter().position(|&proxy| proxy == registered.to).expect("a proxy");
        let proxy = &mut state.proxies[at];
        let lease = proxy.lease;
        if let Some(settled) = proxy.reader.registered(&registered, &lease, NOW)
            && let (Ok(stamp), Some((_, shows))) = (settled.stored, proxy.made.take())
        {
            proxy.copy = Some((stamp, shows));
        }
    }

    fn look(&self, state: &mut State, at: usize) {
        let proxy = &mut state.proxies[at];
        let Reading::Read { oldest, view, words } = proxy.reading else { return };
        if let Some((stamp, shows)) = proxy.copy
            && look(&stamp, &words, view, &proxy.lease, NOW) == Verdict::Fresh
        {
            proxy.reading = Reading::Idle;
            state.hits += 1;
            return self.served(state, oldest, shows);
        }
        let start = proxy.reader.start(&(), (self.page, Kind::Coherent), 0, Some((view, words)), &proxy.lease, NOW);
        let fill = match start {
            Start::Lead(fill) => Some(fill),
            Start::Wait(_) | Start::Alone(_) => None,
        };
        proxy.reading = Reading::Asked { oldest, fill };
    }

    /// The application looks into the database. Its answer and the registration leave at once: the registration is a
    /// message, and that may take its time.
    fn query(&self, state: &mut State, at: usize) {
        let shows = state.committed;
        let proxy = &mut state.proxies[at];
        let Reading::Asked { oldest, fill } = proxy.reading else { return };
        proxy.reading = Reading::Idle;
        if let Some(fill) = fill
            && let Some(register) = proxy.reader.answered(fill, self.scope.clone(), NOW)
        {
            proxy.made = Some((fill, shows));
            state.wire.insert(Message::Register(register).encode());
        }
        self.served(state, oldest, shows);
    }

    fn finish(&self, state: &mut State, at: usize) {
        let Writing::Committed(id, commit) = state.proxies[at].writing else { return };
        state.proxies[at].writing = Writing::Confirming(commit);
        let mut out = Vec::new();
        // A node that is out of lease learns it by its clock.
        let now = if state.proxies[at].lease.until == Time::ZERO { Time::FAR - Duration::from_nanos(1) } else { NOW };
        if now != NOW {
            return;
        }
        state.proxies[at].updater.finished(id, Outcome::Answered, now, &mut out);
        self.updater_actions(state, at, out);
    }

    /// Its client is told nothing that anybody could rely on.
    fn refuse(&self, state: &mut State, at: usize) {
        let Writing::Checked(id) = state.proxies[at].writing else { return };
        state.proxies[at].writing = Writing::Idle;
        let mut out = Vec::new();
        state.proxies[at].updater.finished(id, Outcome::Refused, NOW, &mut out);
        self.updater_actions(state, at, out);
    }

    fn learn(&self, state: &mut State, who: usize) {
        state.learnt[who] = true;
        let new = &self.views[1];
        if who < 2 {
            let mut out = Vec::new();
            state.homes[who].view(new, NOW, &mut out);
            self.home_actions(state, who, out);
        } else {
            let mut out = Vec::new();
            state.proxies[who - 2].updater.view(new, NOW, &mut out);
            self.updater_actions(state, who - 2, out);
        }
        self.publish(state);
    }
}

impl Model for World {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let limits = HomeLimits { slots: 1, stamps: 1, ..HomeLimits::default() };
        let lease = Lease { until: Time::FAR, acknowledged: OLD, in_effect: OLD };
        let proxy = |me| Proxy {
            updater: Updater::with_rules(me, NAMES, UpdaterLimits::default(), self.rules),
            reader: Reader::with_rules(me, ReaderLimits { unstorable: 1, ..ReaderLimits::default() }, self.rules),
            lease,
            copy: None,
            made: None,
            reading: Reading::Idle,
            writing: Writing::Idle,
        };
        let mut state = State {
            homes: HOMES.map(|me| Home::with_rules(me, NAMES, limits, self.rules)),
            memory: [[0; 3]; 2],
            proxies: PROXIES.map(proxy),
            learnt: [false; 4],
            wire: BTreeSet::new(),
            committed: 0,
            oldest: 0,
            updates_left: self.bounds.updates,
            reads_left: self.bounds.reads,
            hits: 0,
            acknowledged: 0,
            stale: false,
        };
        for (at, home) in state.homes.iter_mut().enumerate() {
            let words: BTreeMap<u64, u64> = home.words().collect();
            let page = home.table().page_offset(self.page);
            state.memory[at] = [page, PageTable::everything_offset(), PageTable::clock_offset()].map(|at| words[&at]);
            if self.is_member(0, HOMES[at]) {
                home.view(&self.views[0], NOW, &mut Vec::new());
            }
        }
        for at in 0..2 {
            let mut out = Vec::new();
            state.proxies[at].updater.view(&self.views[0], NOW, &mut out);
            self.updater_actions(&mut state, at, out);
        }
        self.publish(&mut state);
        // Everybody has said that nothing is open: the world begins when the old view is under way.
        while !state.wire.is_empty() {
            self.deliver(&mut state, 0);
        }
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (at, frame) in state.wire.iter().enumerate() {
            let to = Message::decode(frame).expect("a frame of ours").to();
            let stopped = self.change == Change::HomeLeaves && state.learnt.contains(&true) && to == HOMES[1];
            if !stopped {
                actions.push(Action::Deliver(at));
            }
        }
        for (at, proxy) in state.proxies.iter().enumerate() {
            match proxy.reading {
                Reading::Idle if state.reads_left > 0 && (self.bounds.both || at == 0) => {
                    actions.push(Action::Read(at))
                }
                Reading::Read { .. } => actions.push(Action::Look(at)),
                Reading::Asked { .. } => actions.push(Action::Query(at)),
                Reading::Idle => {}
            }
            match proxy.writing {
                Writing::Idle if state.updates_left > 0 && (self.bounds.both || at == 1) => {
                    actions.push(Action::Update(at))
                }
                Writing::Checked(_) => {
                    actions.push(Action::Commit(at));
                    if self.touched[at] == Scope::Everything {
                        actions.push(Action::Refuse(at));
                    }
                }
                Writing::Committed(..) => actions.push(Action::Finish(at)),
                Writing::Idle | Writing::Beginning | Writing::Confirming(_) => {}
            }
        }
        if self.change == Change::Nothing {
            return;
        }
        for (who, learnt) in state.learnt.iter().enumerate() {
            let incarnation = if who < 2 { HOMES[who] } else { PROXIES[who - 2] };
            let out_of_lease = who >= 2 && state.proxies[who - 2].lease.until == Time::ZERO;
            // Who leaves is out of lease before the others learn of it.
            let gone = self.change == Change::ProxyLeaves && state.proxies[1].lease.until != Time::ZERO;
            if !learnt && self.is_member(1, incarnation) && !out_of_lease && !gone {
                actions.push(Action::Learn(who));
            }
        }
        if self.change == Change::ProxyLeaves {
            let leaver = &state.proxies[1];
            if leaver.lease.until != Time::ZERO {
                actions.push(Action::LeaseEnds);
            }
            // What P6 assumes: lease and longest transaction are over, so nothing of it can commit any more.
            if state.learnt[1] && state.homes[1].kept_out().next().is_some() {
                actions.push(Action::Record(1));
            }
            let over = !matches!(leaver.writing, Writing::Checked(_));
            if state.learnt[1] && over && state.homes[1].next_deadline().is_some() {
                actions.push(Action::Settle(1));
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Deliver(at) => self.deliver(&mut state, at),
            Action::Read(at) => {
                let proxy = &mut state.proxies[at];
                let oldest = state.oldest;
                state.reads_left -= 1;
                proxy.reading = match proxy.lease.valid_at(NOW) {
                    None => Reading::Asked { oldest, fill: None },
                    // Words read at once are the oldest that may be read.
                    Some(view) => {
                        let home = home_of(self.page.0, &self.views[view.0 as usize - 1]).expect("a home");
                        let at = HOMES.iter().position(|&other| other == home).expect("one of two");
                        let [word, everything, clock] = state.memory[at];
                        let words =
                            Words { home, word: Word(word), everything: Word(everything), purge: Word(0), clock };
                        Reading::Read { oldest, view, words }
                    }
                };
            }
            Action::Look(at) => self.look(&mut state, at),
            Action::Query(at) => self.query(&mut state, at),
            Action::Update(at) => {
                state.updates_left -= 1;
                state.proxies[at].writing = Writing::Beginning;
                let mut out = Vec::new();
                state.proxies[at].updater.begin(self.touched[at].clone(), NOW, &mut out).expect("room for two");
                self.updater_actions(&mut state, at, out);
            }
            Action::Commit(at) => {
                if let Writing::Checked(id) = state.proxies[at].writing {
                    state.committed += 1;
                    state.proxies[at].writing = Writing::Committed(id, state.committed);
                }
            }
            Action::Refuse(at) => self.refuse(&mut state, at),
            Action::Finish(at) => self.finish(&mut state, at),
            Action::Learn(who) => self.learn(&mut state, who),
            Action::LeaseEnds => {
                state.proxies[1].lease.until = Time::ZERO;
                self.publish(&mut state);
            }
            Action::Record(home) => {
                let updater = &state.proxies[1].updater;
                let open: Vec<(u64, Scope)> =
                    updater.open_set().map(|(number, scope)| (number, scope.clone())).collect();
                let mut out = Vec::new();
                state.homes[home].recorded(PROXIES[1], &open, &mut out);
                self.home_actions(&mut state, home, out);
            }
            Action::Settle(home) => {
                let mut out = Vec::new();
                state.homes[home].tick(Time::FAR, &mut out);
                self.home_actions(&mut state, home, out);
            }
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no answer is stale", |_, state: &State| !state.stale),
            Property::sometimes("a hit", |_, state: &State| state.hits > 0),
            Property::sometimes("an acknowledged update and then a hit", |_, state: &State| {
                state.acknowledged > 0
                    && state.proxies.iter().any(|proxy| proxy.copy.is_some_and(|(_, shows)| shows > 0))
            }),
        ]
    }
}
