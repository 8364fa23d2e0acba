//! A node of the pool: home, holder and reader in one state machine, without input or output.
//!
//! The life of a set: the object is whole in this node's memory but for its version; the home decides and gives the version; the version word is
//! written; lease and view are looked at; the program is answered (rule K6). The life of a get: both buckets of the key are read from its
//! home, and beside them the object at the place that was remembered; lease and view are looked at; the program is answered (rule K5). What
//! rests on the old value is read, computed by `memcache::semantics`, and installed if the version is still the one that was read.
//!
//! A node that enters a view answers `unknown` for what its homes may have decided, and `failed` for what they did not hear of.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use verbena_cluster::{Lease, View, pool_home_of};
use verbena_memcache::semantics::Answer;
use verbena_memcache::{Limits, Mode, Operation};
use verbena_terms::{Incarnation, Time, ViewNumber};

use crate::fetch::Next;
use crate::holder::{Evicted, Holder, Memory};
use crate::home::Home;
use crate::message::{Expect, Frame};
use crate::mirror::{Mirrors, Outbox};
use crate::object::ReadBack;
use crate::place::Place;
use crate::placement::{Chosen, Scheme, SchemeName};
use crate::rules::Rules;
use crate::table::{Entry, Geometry, Look, Table};
use crate::tenant::{Share, Tenant};
use crate::version::Version;
use crate::work::{Command, Failure, Looking, Reply, Stage, Work};

mod decide;
mod measured;
mod messages;
mod mirrored;
mod room;

pub use measured::Tally;

/// Both clocks of a node.
#[derive(Clone, Copy, Debug)]
pub struct Clocks {
    /// For leases and deadlines.
    pub now: Time,
    /// Seconds of the Unix clock, for expiry (rule K13).
    pub seconds: u64,
}

/// What a node is to be like.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Units of memory that it lends.
    pub units: u32,
    /// Buckets of its table at first and at most.
    pub buckets: (u32, u32),
    /// How long a program waits at most.
    pub patience: Duration,
    /// What a value may be.
    pub limits: Limits,
    /// Where objects go, until another scheme is chosen.
    pub scheme: SchemeName,
    /// Homes have mirrors (rule K9).
    pub mirror: bool,
    /// What tenants may have of its memory. Of one that is not named nothing is guaranteed, and nothing refused.
    pub shares: BTreeMap<Tenant, Share>,
    /// Which rules are kept.
    pub rules: Rules,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Send a message, in this view.
    Send {
        /// To whom.
        to: Incarnation,
        /// In which view.
        view: ViewNumber,
        /// What.
        frame: Frame,
    },
    /// Read three words and two buckets of a home's table, in one batch; [`Completion::Table`] is the outcome.
    ReadTable {
        /// Whose outcome it is.
        id: u64,
        /// Whose table.
        home: Incarnation,
        /// Of the key.
        hash: u64,
        /// By which the buckets are found.
        geometry: Geometry,
    },
    /// Read an object in one batch: its version, its bytes, its version; [`Completion::Object`] is the outcome.
    ReadObject {
        /// Whose outcome it is.
        id: u64,
        /// Where it lies.
        place: Place,
        /// The holder, if one of this view is meant.
        holder: Option<Incarnation>,
    },
    /// Tell a program.
    Answer {
        /// Its command.
        id: u64,
        /// What.
        reply: Reply,
    },
}

/// The outcome of a batch.
#[derive(Clone, Debug)]
pub enum Completion {
    /// Of [`Action::ReadTable`]; `None` if the home is not reached.
    Table(Option<Look>),
    /// Of [`Action::ReadObject`], empty if the holder is not reached.
    Object(Place, ReadBack),
}

/// A node of the pool.
pub struct Coop<M> {
    me: Incarnation,
    view: Option<Arc<View>>,
    lease: Lease,
    home: Home,
    outbox: Outbox,
    mirrors: Mirrors,
    /// The view before this one.
    before: Option<Arc<View>>,
    holder: Holder<M>,
    scheme: Box<dyn Scheme + Send>,
    chosen: Chosen,
    settings: Settings,
    works: BTreeMap<u64, Work>,
    /// Requests that were sent to homes.
    asks: u64,
    geometries: BTreeMap<Incarnation, Geometry>,
    remembered: BTreeMap<u64, Place>,
    /// Versions that left this node's memory a little while ago: a copy at the same place would make a read look whole that began before the
    /// object left and ended when it was back.
    dropped: BTreeMap<Version, Time>,
    now: Time,
    /// Reads of other nodes' memory that their holders have not been told of: a sample.
    hits: Vec<(Place, Version)>,
    room: room::Elsewhere,
    measured: measured::Measured,
    /// Hand-overs of views that are still to be acknowledged here.
    early: Vec<(ViewNumber, Vec<(u64, Entry)>)>,
}

impl<M: Memory> Coop<M> {
    /// A node that is in no view.
    pub fn new(me: Incarnation, memory: M, settings: Settings) -> Coop<M> {
        let table = Table::new(settings.buckets.0, settings.buckets.1);
        Coop::over(me, memory, table, settings)
    }

    /// The same, with this empty table.
    pub fn over(me: Incarnation, memory: M, table: Table, settings: Settings) -> Coop<M> {
        let scheme = settings.scheme.scheme();
        let mut holder = Holder::new(memory, settings.units);
        holder.set_lru(scheme.replaces_lru());
        let mut shares = settings.shares.clone();
        if !settings.rules.keeps_guarantees {
            shares.values_mut().for_each(|share| share.guaranteed = 0);
        }
        holder.set_shares(shares);
        Coop {
            me,
            view: None,
            lease: Lease::NONE,
            home: Home::new(table, settings.rules),
            outbox: Outbox::default(),
            mirrors: Mirrors::default(),
            before: None,
            holder,
            scheme,
            chosen: Chosen { nth: 0, name: settings.scheme },
            settings,
            works: BTreeMap::new(),
            asks: 0,
            geometries: BTreeMap::new(),
            remembered: BTreeMap::new(),
            dropped: BTreeMap::new(),
            now: Time::ZERO,
            hits: vec![],
            room: room::Elsewhere::default(),
            measured: measured::Measured::default(),
            early: vec![],
        }
    }

    /// What others read of it as home.
    pub fn table(&self) -> &Table {
        &self.home.table
    }

    /// What others read of it as holder.
    pub fn holder(&self) -> &Holder<M> {
        &self.holder
    }

    /// The scheme that it goes by.
    pub fn chosen(&self) -> Chosen {
        self.chosen
    }

    /// The keys that this tenant's clients read most, the hottest first, at most so many; a count for each that says how much more one is read than another.
    pub fn hottest(&self, tenant: Tenant, most: usize) -> Vec<(Vec<u8>, u64)> {
        self.measured.hottest(tenant, most)
    }

    /// What it counted.
    pub fn tally(&self) -> Tally {
        self.measured.tally
    }

    /// Another scheme from now on, at all nodes as they hear of it. Objects stay where they are.
    pub fn choose(&mut self, name: SchemeName) {
        self.follow(Chosen { nth: self.chosen.nth + 1, name });
    }

    /// The scheme that others go by, if it was chosen later.
    pub fn follow(&mut self, chosen: Chosen) {
        if self.chosen.yields_to(chosen) {
            if self.chosen.name != chosen.name {
                self.scheme = chosen.name.scheme();
                self.holder.set_lru(self.scheme.replaces_lru());
            }
            self.chosen = chosen;
        }
    }

    fn number(&self) -> ViewNumber {
        self.view.as_ref().map_or(ViewNumber(0), |view| view.number())
    }

    /// Its lease, each time before anything that depends on it.
    pub fn lease(&mut self, lease: Lease, now: Time) {
        (self.lease, self.now) = (lease, now);
        self.holder.set_now((now.nanos() / 1_000_000) as u32);
        let Some(view) = self.view.clone() else { return };
        if (lease.in_effect >= view.number() || !self.settings.rules.opens_in_effect)
            && self.home.open(&view, self.me)
            && self.settings.mirror
        {
            let keys = self.home.table.iter().map(|(hash, _)| hash);
            self.outbox.open(self.before.as_deref(), &view, self.me, keys);
        }
    }

    /// A newer view. When this returns nothing more is done in older ones.
    pub fn view(&mut self, view: &Arc<View>, out: &mut Vec<Action>) {
        let number = view.number();
        for (home, entries) in self.home.enter(view, self.me) {
            out.push(Action::Send { to: home, view: number, frame: Frame::HandOver(entries) });
        }
        self.outbox.enter();
        let inherited = self.mirrors.enter(view, self.me, &self.settings.rules);
        self.home.inherit(inherited);
        self.before = self.view.replace(view.clone());
        self.geometries.clear();
        self.room.enter(view);
        for (of, entries) in std::mem::take(&mut self.early) {
            match of.cmp(&number) {
                std::cmp::Ordering::Less => {}
                std::cmp::Ordering::Equal => self.home.take_over(entries),
                std::cmp::Ordering::Greater => self.early.push((of, entries)),
            }
        }
        for (id, work) in std::mem::take(&mut self.works) {
            if matches!(work.stage, Stage::Flushing { .. }) {
                self.flush_again(id, work, out);
            } else {
                self.give_up(id, work, out);
            }
        }
    }

    /// A program's command. `id` is used once in this incarnation.
    pub fn command(&mut self, id: u64, command: Command, clocks: Clocks, out: &mut Vec<Action>) {
        let (tenant, key, operation, value) = match command {
            Command::Execute { tenant, key, operation, value } => (tenant, key, operation, value),
            Command::Flush(tenant) => (tenant, vec![], Operation::TooLarge, vec![]),
        };
        let is_flush = key.is_empty();
        let hash = tenant.hash_of(&key);
        let stage = Stage::Flushing { homes: BTreeSet::new() };
        let deadline = clocks.now + self.settings.patience;
        let work =
            Work { tenant, key, hash, operation, value, view: self.number(), deadline, attempts: 0, rereads: 0, stage };
        if work.is_read() {
            self.measured.asked(tenant, &work.key);
        }
        if is_flush { self.flush_again(id, work, out) } else { self.begin(id, work, clocks, out) }
    }

    fn flush_again(&mut self, id: u64, mut work: Work, out: &mut Vec<Action>) {
        let Some(view) = self.view.clone() else {
            return out.push(Action::Answer { id, reply: Reply::Failed(Failure::HomeAway) });
        };
        let mut homes: BTreeSet<Incarnation> = view.pool_homes().map(|home| home.incarnation).collect();
        // A flush that spans two views misses a key that went to a home which had answered, or came later.
        if let Stage::Flushing { homes: missing } = &work.stage
            && !self.settings.rules.flushes_in_one_view
            && !missing.is_empty()
        {
            homes.retain(|home| missing.contains(home));
            if homes.is_empty() {
                return out.push(Action::Answer { id, reply: Reply::Flushed });
            }
        }
        let tenant = work.tenant;
        (work.view, work.stage) = (view.number(), Stage::Flushing { homes: homes.clone() });
        self.works.insert(id, work);
        for to in homes {
            out.push(Action::Send { to, view: view.number(), frame: Frame::Flush { id, tenant } });
        }
    }

    fn begin(&mut self, id: u64, mut work: Work, clocks: Clocks, out: &mut Vec<Action>) {
        work.view = self.number();
        match &work.operation {
            // Nothing of the old item matters.
            Operation::Store(store) if store.mode == Mode::Set => {
                self.decide(id, work, None, Expect::Any, clocks, out);
            }
            Operation::TooLarge if !self.settings.rules.deletes_what_failed => {
                out.push(Action::Answer { id, reply: Reply::Failed(Failure::TooLarge) });
            }
            Operation::TooLarge => self.remove(id, work, Some(Failure::TooLarge), out),
            Operation::Remove(remove) if remove.compare.is_none() && !remove.is_invalidation && !remove.drops_value => {
                self.remove(id, work, None, out);
            }
            _ => self.look(id, work, out),
        }
    }

    fn look(&mut self, id: u64, mut work: Work, out: &mut Vec<Action>) {
        let home = self.view.as_ref().and_then(|view| pool_home_of(work.hash, view));
        let Some(home) = home else {
            return out.push(Action::Answer { id, reply: Reply::Failed(Failure::HomeAway) });
        };
        let geometry = self.geometries.get(&home).copied().unwrap_or(Geometry(1 << 32));
        let place = self.remembered.get(&work.hash).copied();
        out.push(Action::ReadTable { id, home, hash: work.hash, geometry });
        if let Some(place) = place {
            out.push(Action::ReadObject { id, place, holder: self.holder_at(place) });
        }
        work.stage = Stage::Looking(Box::new(Looking::new(work.tenant, geometry, place)));
        self.works.insert(id, work);
    }

    fn holder_at(&self, place: Place) -> Option<Incarnation> {
        let members = self.view.as_ref()?.members();
        members.iter().map(|member| member.incarnation).find(|member| place.is_at(member.rank))
    }

    /// A batch was carried out.
    pub fn completed(&mut self, id: u64, completion: Completion, clocks: Clocks, out: &mut Vec<Action>) {
        let rules = self.settings.rules;
        let number = self.number();
        if let Completion::Object(_, read) = &completion
            && room::is_of_offer(id)
        {
            return self.taken_in(id, read, out);
        }
        let Some(mut work) = self.works.remove(&id) else { return };
        let Stage::Looking(looking) = &mut work.stage else {
            self.works.insert(id, work);
            return;
        };
        let next = match completion {
            Completion::Table(None) => return self.give_up(id, work, out),
            Completion::Table(Some(look)) => {
                if rules.reads_open_word && look.open() != u64::from(work.view.0) {
                    return self.give_up(id, work, out);
                }
                if let Some(home) = self.view.as_ref().and_then(|view| pool_home_of(work.hash, view)) {
                    self.geometries.insert(home, look.geometry());
                }
                looking.looked(&work.key, work.hash, look, &rules)
            }
            Completion::Object(place, read) => match &looking.remembered {
                Some((remembered, None)) if *remembered == place => looking.read_remembered(&work.key, read, &rules),
                _ => looking.read(&work.key, &read, &rules),
            },
        };
        match next {
            Next::Wait => {}
            Next::Look(geometry) => {
                if let Some(home) = self.view.as_ref().and_then(|view| pool_home_of(work.hash, view)) {
                    out.push(Action::ReadTable { id, home, hash: work.hash, geometry });
                }
            }
            Next::Read(place) => out.push(Action::ReadObject { id, place, holder: self.holder_at(place) }),
            Next::Found(found) => {
                // The clock is read now, when all is in hand; then lease and view (rule K5).
                let is_valid = self.lease.valid_at(clocks.now) == Some(work.view) && work.view == number;
                if !is_valid && rules.checks_lease_of_read {
                    return self.give_up(id, work, out);
                }
                return self.found(id, work, *found, clocks, out);
            }
        }
        self.works.insert(id, work);
    }

    fn tell_gone(&mut self, evicted: Vec<Evicted>, out: &mut Vec<Action>) {
        for Evicted { hash, version, unit, units, is_redundant } in evicted {
            self.dropped.insert(version, self.now);
            if !is_redundant {
                let place = Place::new(hash, self.me.rank, unit, units);
                self.to_home(hash, Frame::Gone { hash, version, place }, out);
            }
        }
    }

    fn to_home(&self, hash: u64, frame: Frame, out: &mut Vec<Action>) {
        if let Some(view) = &self.view
            && let Some(to) = pool_home_of(hash, view)
        {
            out.push(Action::Send { to, view: view.number(), frame });
        }
    }

    fn flushed(&mut self, id: u64, from: Incarnation, clocks: Clocks, out: &mut Vec<Action>) {
        let is_valid = self.lease.valid_at(clocks.now) == Some(self.number());
        let Some(work) = self.works.get_mut(&id) else { return };
        let Stage::Flushing { homes } = &mut work.stage else { return };
        // A message may come twice, and says nothing of another home.
        if homes.remove(&from) && homes.is_empty() {
            self.works.remove(&id);
            let reply = if is_valid { Reply::Flushed } else { Reply::Unknown };
            out.push(Action::Answer { id, reply });
        }
    }

    /// Ends a command that cannot go on.
    fn give_up(&mut self, id: u64, work: Work, out: &mut Vec<Action>) {
        let reply = match work.stage {
            Stage::Looking(_) | Stage::Again { .. } if work.is_read() => Reply::Answer(Answer::Miss, vec![]),
            Stage::Looking(_) | Stage::Again { .. } => Reply::Failed(Failure::HomeAway),
            Stage::Deciding(deciding) => {
                if let Some(unit) = deciding.unit {
                    self.holder.drop_object(unit);
                }
                Reply::Unknown
            }
            Stage::Flushing { .. } => Reply::Unknown,
        };
        out.push(Action::Answer { id, reply });
    }

    /// Deadlines and expiry.
    pub fn tick(&mut self, clocks: Clocks, out: &mut Vec<Action>) {
        let late: Vec<u64> =
            self.works.iter().filter(|(_, work)| work.deadline <= clocks.now).map(|(id, _)| *id).collect();
        for id in late {
            let Some(mut work) = self.works.remove(&id) else { continue };
            let resends = !self.settings.rules.sends_once && work.attempts == 0;
            match &work.stage {
                Stage::Deciding(_) if resends => {
                    (work.attempts, work.deadline) = (1, clocks.now + self.settings.patience);
                    self.begin(id, work, clocks, out);
                }
                _ => self.give_up(id, work, out),
            }
        }
        let is_due = |work: &Work| matches!(work.stage, Stage::Again { at } if at <= clocks.now);
        let due: Vec<u64> = self.works.iter().filter(|(_, work)| is_due(work)).map(|(id, _)| *id).collect();
        for id in due {
            if let Some(work) = self.works.remove(&id) {
                self.begin(id, work, clocks, out);
            }
        }
        self.tell_hits(out);
        self.make_room(out);
        let is_full = self.holder.free_units() < self.settings.units / 8;
        if let Some(measures) = self.measured.take(is_full, self.active()) {
            self.scheme.measured(&measures);
        }
        self.mirror_again(out);
        let patience = self.settings.patience;
        self.dropped.retain(|_, at| clocks.now.since(*at) <= patience);
        let mut evicted = vec![];
        self.holder.sweep(clocks.seconds, &mut evicted);
        self.tell_gone(evicted, out);
    }

    /// A read leaves no trace in the memory that was read: so its holder is told now and then.
    fn tell_hits(&mut self, out: &mut Vec<Action>) {
        let mut by_holder: BTreeMap<Incarnation, Vec<(u32, Version, u8)>> = BTreeMap::new();
        for (place, version) in std::mem::take(&mut self.hits) {
            if let Some(holder) = self.holder_at(place) {
                by_holder.entry(holder).or_default().push((place.offset, version, 1));
            }
        }
        for (to, hits) in by_holder {
            out.push(Action::Send { to, view: self.number(), frame: Frame::Hits(hits) });
        }
    }

    /// When there is work even if nothing arrives.
    pub fn next_deadline(&self) -> Option<Time> {
        self.works.values().map(|work| work.deadline).chain(self.outbox.next_deadline()).min()
    }
}
