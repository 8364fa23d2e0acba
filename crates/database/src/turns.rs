//! The scheme `serialised`: reads and updates of a table take turns (dissertation section 5.2, Table 5.1).
//!
//! A table is a document of [`content::Serialised`](verbena_content::Serialised). A statement that reads outside of a transaction asks for its turn at each of its tables and gives it back when
//! it is answered; a commit asks for its own before it is announced to the homes, and gives it back when its end is confirmed. So no statement reads a table while an update of
//! it is open. The promise of the caches does not rest on it: it is the papers' way, off by default.
//!
//! ```text
//!                         at the database      at the tables t, u
//!   reads t               in all               in t
//!   reads all             in all               in each that is, and in each that comes meanwhile
//!   updates t             in all               alone in t
//!   updates all           alone in all
//! ```
//!
//! A commit at the end of a transaction joins the update that has its turn at a table, or that is the next: that one may wait at the database for a lock of the transaction. The turn ends when
//! all that have joined it are done.
//!
//! Turns are taken one after the other, that of the database first and tables by their names, so that no two requests wait for each other here. They may by way of the database: a
//! read waits there for a lock, and the commit that would free it waits here for the read. So nothing waits longer than the limit; then it goes on without its turn.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use verbena_content::{Proceed, Serialised, SerialisedError, SerialisedEvent, SerialisedRequest};
use verbena_statements::{Names, Reads};

/// A table, by the name that the catalog gives it.
pub(crate) type Table = Vec<u8>;

/// Which tables a statement reads or a commit writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Tables {
    /// All, as far as is known.
    All,
    /// These.
    Of(BTreeSet<Table>),
}

impl Tables {
    /// Those of a set of names.
    pub fn of(names: &Names) -> Tables {
        match names {
            Names::Everything => Tables::All,
            Names::Of(tables) => Tables::Of(tables.keys().cloned().collect()),
        }
    }

    /// Those that a statement reads; `None` where it reads none.
    pub fn read(reads: &Reads) -> Option<Tables> {
        if reads.is_everything() {
            return Some(Tables::All);
        }
        let tables: BTreeSet<Table> = reads.tables().map(<[u8]>::to_vec).collect();
        (!tables.is_empty()).then_some(Tables::Of(tables))
    }
}

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Read,
    Update,
    /// The end of a transaction, which holds locks that an update before it may wait for.
    Commit,
}

impl Purpose {
    /// What is asked for at a place.
    pub fn is_update(self) -> bool {
        self != Purpose::Read
    }
}

/// A request for turns.
pub(crate) type Id = u64;

/// Where turns are taken.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Database,
    Table(Table),
}

/// The turns of one database, without input or output.
#[derive(Default)]
pub(crate) struct Turns {
    places: BTreeMap<Place, At>,
    requests: BTreeMap<Id, Request>,
    numbered: Id,
}

/// The turns at one place.
#[derive(Default)]
struct At {
    table: Serialised,
    /// The update that has its turn, or that is the next.
    update: Option<Update>,
}

struct Update {
    /// By which the table knows it.
    number: SerialisedRequest,
    /// The update itself, and commits that have joined it.
    members: BTreeSet<Id>,
    has_its_turn: bool,
}

struct Request {
    purpose: Purpose,
    /// As many waited somewhere as may: it goes on without.
    is_without: bool,
    tables: Tables,
    /// Turns that it has, and how.
    has: Vec<(Place, Purpose)>,
    /// Those that it still has to ask for, the first of which it waits for.
    wants: VecDeque<(Place, Purpose)>,
}

impl Request {
    fn reads_all(&self) -> bool {
        !self.purpose.is_update() && self.tables == Tables::All
    }
}

impl Turns {
    /// Asks for turns. Gives the request's number, and whether it may go on at once; if not, a later call names it.
    pub fn ask(&mut self, purpose: Purpose, tables: Tables) -> (Id, bool) {
        self.numbered += 1;
        let id = self.numbered;
        let mut wants = VecDeque::new();
        let is_all = tables == Tables::All;
        wants.push_back((Place::Database, if is_all { purpose } else { Purpose::Read }));
        match &tables {
            Tables::Of(tables) => wants.extend(tables.iter().map(|table| (Place::Table(table.clone()), purpose))),
            Tables::All if !purpose.is_update() => {
                let tables = self.places.keys().filter(|place| **place != Place::Database);
                wants.extend(tables.map(|place| (place.clone(), purpose)));
            }
            Tables::All => {}
        }
        self.requests.insert(id, Request { purpose, is_without: false, tables, has: Vec::new(), wants });
        (id, self.go_on(id).is_some())
    }

    /// Whether a request went on without a turn somewhere, because as many waited there as may.
    pub fn is_without(&self, id: Id) -> bool {
        self.requests.get(&id).is_none_or(|request| request.is_without)
    }

    /// The request gives back what it has, and waits no longer. Gives those that may go on.
    pub fn done(&mut self, id: Id) -> Vec<Id> {
        let Some(request) = self.requests.remove(&id) else { return Vec::new() };
        let waits_at = request.wants.front().into_iter().cloned();
        let mut ready = Vec::new();
        for (place, purpose) in waits_at.chain(request.has) {
            let Some(at) = self.places.get_mut(&place) else { continue };
            let proceeds = if purpose.is_update() { at.update_done(id) } else { at.read_done(id) };
            ready.extend(proceeds.into_iter().map(|next| (place.clone(), next)));
            if at.table.is_idle() {
                self.places.remove(&place);
            }
        }
        self.proceed(ready)
    }

    /// Requests that had to wait at a place go on. Gives those that have all that they want.
    fn proceed(&mut self, ready: Vec<(Place, Proceed)>) -> Vec<Id> {
        let mut complete = Vec::new();
        for (place, next) in ready {
            let of = match next {
                Proceed::Read(read) => vec![read.client],
                Proceed::Update(update) => self.places.get_mut(&place).map(|at| at.begins(update)).unwrap_or_default(),
            };
            for id in of {
                let Some(request) = self.requests.get_mut(&id) else { continue };
                if let Some(has) = request.wants.pop_front_if(|(wanted, _)| *wanted == place) {
                    request.has.push(has);
                    complete.extend(self.go_on(id));
                }
            }
        }
        complete
    }

    /// Asks for what the request wants next, until it has to wait or has all.
    fn go_on(&mut self, id: Id) -> Option<Id> {
        loop {
            let Some((place, purpose)) = self.requests.get(&id)?.wants.front().cloned() else { return Some(id) };
            if !self.asked(id, &place, purpose) {
                return None;
            }
            if let Some(request) = self.requests.get_mut(&id) {
                request.wants.pop_front();
                request.has.push((place, purpose));
            }
        }
    }

    /// Asks at a place; whether the turn is there at once. Where as many wait as may, it is not asked for, and the request goes on without it.
    fn asked(&mut self, id: Id, place: &Place, purpose: Purpose) -> bool {
        if !self.places.contains_key(place) {
            self.places.insert(place.clone(), At::default());
            self.joined_by_readers_of_all(id, place);
        }
        let Some(at) = self.places.get_mut(place) else { return true };
        at.asked(id, purpose).unwrap_or_else(|_| {
            if let Some(request) = self.requests.get_mut(&id) {
                request.is_without = true;
            }
            true
        })
    }

    /// What reads all tables reads one that is new here too: now, if its order has passed this place, or else when it comes to it. Taken out of its order, two requests could
    /// wait for each other.
    fn joined_by_readers_of_all(&mut self, id: Id, place: &Place) {
        let (Place::Table(_), Some(at)) = (place, self.places.get_mut(place)) else { return };
        let readers = self.requests.iter_mut().filter(|(reader, request)| **reader != id && request.reads_all());
        for (reader, request) in readers {
            let is_passed = request.wants.front().is_none_or(|(next, _)| place < next);
            if !is_passed {
                // It may want it already, from when it was here before.
                if let Err(before) = request.wants.binary_search_by(|(wanted, _)| wanted.cmp(place)) {
                    request.wants.insert(before, (place.clone(), Purpose::Read));
                }
            } else if at.table.handle(SerialisedEvent::ReadRequest(number(*reader))).is_ok() {
                // At once, for the place is idle.
                request.has.push((place.clone(), Purpose::Read));
            }
        }
    }
}

impl At {
    /// Whether the turn is there at once.
    fn asked(&mut self, id: Id, purpose: Purpose) -> Result<bool, SerialisedError> {
        match (purpose, &mut self.update) {
            (Purpose::Read, _) => Ok(!self.table.handle(SerialisedEvent::ReadRequest(number(id)))?.is_empty()),
            (Purpose::Commit, Some(update)) => {
                update.members.insert(id);
                Ok(update.has_its_turn)
            }
            (Purpose::Update | Purpose::Commit, update) => {
                let has_its_turn = !self.table.handle(SerialisedEvent::UpdateRequest(number(id)))?.is_empty();
                // Behind another one it waits before the table.
                if update.is_none() {
                    *update = Some(Update { number: number(id), members: [id].into(), has_its_turn });
                }
                Ok(has_its_turn)
            }
        }
    }

    /// An update has its turn: those that have it with it.
    fn begins(&mut self, number: SerialisedRequest) -> Vec<Id> {
        let fresh = || Update { number, members: [number.client].into(), has_its_turn: false };
        let update = self.update.take_if(|update| update.number == number).unwrap_or_else(fresh);
        let members = update.members.iter().copied().collect();
        self.update = Some(Update { has_its_turn: true, ..update });
        members
    }

    /// A read is done, or waits no longer.
    fn read_done(&mut self, id: Id) -> Vec<Proceed> {
        self.table.client_gone(id)
    }

    /// An update is done, or waits no longer. The turn ends with the last that has it.
    fn update_done(&mut self, id: Id) -> Vec<Proceed> {
        let Some(update) = self.update.as_mut().filter(|update| update.members.contains(&id)) else {
            // It waited before the table.
            return self.table.client_gone(id);
        };
        update.members.remove(&id);
        let number = update.number;
        if self.update.take_if(|update| update.members.is_empty()).is_none() {
            return Vec::new();
        }
        let proceeds = self.table.client_gone(number.client);
        // What came behind it, and waits for reads now, is the next.
        if let Some(next) = self.table.update() {
            let has_its_turn = proceeds.contains(&Proceed::Update(next));
            self.update = Some(Update { number: next, members: [next.client].into(), has_its_turn });
        }
        proceeds
    }
}

fn number(id: Id) -> SerialisedRequest {
    SerialisedRequest { client: id, number: id }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(tables: &[&str]) -> Tables {
        Tables::Of(tables.iter().map(|table| table.as_bytes().to_vec()).collect())
    }

    struct World(Turns);

    impl World {
        fn read(&mut self, tables: &[&str]) -> (Id, bool) {
            self.0.ask(Purpose::Read, of(tables))
        }

        fn update(&mut self, tables: &[&str]) -> (Id, bool) {
            self.0.ask(Purpose::Update, of(tables))
        }

        fn is_idle(&self) -> bool {
            self.0.places.is_empty() && self.0.requests.is_empty()
        }
    }

    #[test]
    fn reads_of_a_table_wait_for_its_open_update_and_the_update_for_reads_before_it() {
        let mut world = World(Turns::default());
        let (first, is_first) = world.read(&["t"]);
        let (beside, is_beside) = world.read(&["t", "u"]);
        assert!(is_first && is_beside);
        let (update, is_update) = world.update(&["t"]);
        let (late, is_late) = world.read(&["t"]);
        let (other, is_other) = world.read(&["u"]);
        assert!(!is_update && !is_late && is_other, "another table is read meanwhile");
        assert_eq!((world.0.done(first), world.0.done(other)), (vec![], vec![]));
        assert_eq!(world.0.done(beside), [update]);
        assert_eq!(world.0.done(update), [late]);
        assert_eq!(world.0.done(late), Vec::<Id>::new());
        assert!(world.is_idle());
    }

    #[test]
    fn one_that_waits_at_a_table_holds_those_before_it_and_asks_for_those_behind_it_later() {
        let mut world = World(Turns::default());
        let (at_u, _) = world.update(&["u"]);
        let (both, is_both) = world.update(&["t", "u", "v"]);
        let (at_v, is_at_v) = world.read(&["v"]);
        let (at_t, is_at_t) = world.read(&["t"]);
        assert_eq!((is_both, is_at_v, is_at_t), (false, true, false));
        assert_eq!(world.0.done(at_u), Vec::<Id>::new(), "it waits at v now");
        assert_eq!(world.0.done(at_v), [both]);
        assert_eq!(world.0.done(both), [at_t]);
        world.0.done(at_t);
        assert!(world.is_idle());
    }

    #[test]
    fn what_reads_all_waits_for_each_update_and_each_update_for_it() {
        let mut world = World(Turns::default());
        let (at_t, _) = world.update(&["t"]);
        let (all, is_all) = world.0.ask(Purpose::Read, Tables::All);
        let (at_u, is_at_u) = world.update(&["u"]);
        let (reads_t, is_reads_t) = world.read(&["t"]);
        assert_eq!((is_all, is_at_u, is_reads_t), (false, true, false), "it has not come to u");
        assert_eq!(world.0.done(at_t), [reads_t]);
        assert_eq!(world.0.done(at_u), [all]);
        let (at_s, is_at_s) = world.update(&["s"]);
        let (at_v, is_at_v) = world.update(&["v"]);
        assert!(!is_at_s && !is_at_v, "nothing was known of these tables when it began");
        assert_eq!(world.0.done(all), [at_s, at_v]);
        world.0.done(reads_t);
        world.0.done(at_s);
        world.0.done(at_v);
        assert!(world.is_idle());
    }

    #[test]
    fn what_updates_all_is_alone() {
        let mut world = World(Turns::default());
        let (reads_t, _) = world.read(&["t"]);
        let (at_u, _) = world.update(&["u"]);
        let (all, is_all) = world.0.ask(Purpose::Update, Tables::All);
        let (reads_v, is_reads_v) = world.read(&["v"]);
        let (reads_all, is_reads_all) = world.0.ask(Purpose::Read, Tables::All);
        assert_eq!((is_all, is_reads_v, is_reads_all), (false, false, false));
        world.0.done(reads_t);
        assert_eq!(world.0.done(at_u), [all]);
        assert_eq!(world.0.done(all), [reads_v, reads_all]);
        world.0.done(reads_v);
        world.0.done(reads_all);
        assert!(world.is_idle());
    }

    #[test]
    fn one_that_waits_no_longer_holds_up_no_other() {
        let mut world = World(Turns::default());
        let (reads, _) = world.read(&["t"]);
        let (update, _) = world.update(&["t"]);
        let (second, _) = world.update(&["t"]);
        let (late, _) = world.read(&["t"]);
        // The first update's time is over, and the second one takes its place.
        assert_eq!(world.0.done(update), [late], "it came behind the first one");
        assert_eq!(world.0.done(reads), Vec::<Id>::new());
        assert_eq!(world.0.done(late), [second]);
        assert_eq!((world.0.done(second), world.0.done(second)), (vec![], vec![]));
        assert!(world.is_idle());
    }

    #[test]
    fn a_commit_does_not_wait_for_an_update_that_may_wait_for_its_locks() {
        let mut world = World(Turns::default());
        let (update, is_update) = world.update(&["t"]);
        let (reads, is_reads) = world.read(&["t"]);
        let (commit, is_commit) = world.0.ask(Purpose::Commit, of(&["t", "u"]));
        let (behind, is_behind) = world.update(&["t"]);
        assert_eq!((is_update, is_reads, is_commit, is_behind), (true, false, true, false));
        // The turn ends with the last that has it.
        assert_eq!(world.0.done(update), Vec::<Id>::new());
        assert_eq!(world.0.done(commit), [reads]);
        assert_eq!(world.0.done(reads), [behind]);
        // One that waits for reads is joined too, and stays joined when the first one waits no longer.
        let (reads, _) = world.read(&["u"]);
        let (first, _) = world.update(&["u"]);
        let (commit, is_commit) = world.0.ask(Purpose::Commit, of(&["u"]));
        let (late, is_late) = world.read(&["u"]);
        assert!(!is_commit && !is_late);
        assert_eq!(world.0.done(first), Vec::<Id>::new());
        assert_eq!(world.0.done(reads), [commit]);
        assert_eq!(world.0.done(commit), [late]);
        world.0.done(late);
        world.0.done(behind);
        assert!(world.is_idle());
    }

    /// Random requests at random times: at each moment what may go on keeps the rule, and in the end all have had their turn.
    #[test]
    fn no_statement_reads_what_an_update_has_open() {
        let mut random = 1_u64;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        let (mut waited, mut served) = (0, 0);
        for _ in 0..400 {
            let (mut turns, mut active, mut waiting) = (Turns::default(), BTreeMap::new(), BTreeMap::new());
            let meets = |one: &Tables, other: &Tables| match (one, other) {
                (Tables::Of(one), Tables::Of(other)) => !one.is_disjoint(other),
                _ => true,
            };
            for step in 0..200 {
                if step < 120 && next(2) == 0 {
                    let purpose = [Purpose::Update, Purpose::Commit, Purpose::Read, Purpose::Read, Purpose::Read]
                        [usize::try_from(next(5)).unwrap()];
                    let tables = match next(8) {
                        0 => Tables::All,
                        _ => Tables::Of((0..=next(2)).map(|_| vec![u8::try_from(next(4)).unwrap()]).collect()),
                    };
                    let (id, is_ready) = turns.ask(purpose, tables.clone());
                    if is_ready { &mut active } else { &mut waiting }.insert(id, (purpose, tables));
                    waited += usize::from(!is_ready);
                } else {
                    let from = if next(6) == 0 { &mut waiting } else { &mut active };
                    let at = usize::try_from(next(8)).unwrap();
                    let Some(id) = from.keys().nth(at % from.len().max(1)).copied() else { continue };
                    from.remove(&id);
                    for ready in turns.done(id) {
                        active.insert(ready, waiting.remove(&ready).unwrap());
                        served += 1;
                    }
                }
                for (id, (purpose, tables)) in active.iter().filter(|(_, (purpose, _))| purpose.is_update()) {
                    let is_apart =
                        |theirs: &Purpose| !theirs.is_update() || *purpose == Purpose::Update && *theirs == *purpose;
                    let beside = active.iter().filter(|(other, (theirs, _))| *other != id && is_apart(theirs));
                    let met: Vec<_> = beside.filter(|(_, (_, theirs))| meets(tables, theirs)).collect();
                    assert!(met.is_empty(), "{purpose:?} of {tables:?} beside {met:?}");
                }
            }
            while let Some(id) = active.keys().next().copied() {
                active.remove(&id);
                for ready in turns.done(id) {
                    active.insert(ready, waiting.remove(&ready).unwrap());
                }
            }
            assert!(waiting.is_empty(), "{waiting:?} wait for ever");
            assert!(turns.places.is_empty() && turns.requests.is_empty());
        }
        assert!(waited > 5_000 && served > 2_000, "{waited} waited, {served} were served later");
    }
}
