//! The n-th call of the file system fails, for n from 1 on, once and for good, as in SQLite's own tests: afterwards the database opens, is whole, and has a transaction or has not.

use std::sync::atomic::{AtomicU64, Ordering};

use rusqlite::{Connection, ErrorCode, OpenFlags};

use self::model::{Fault, Kind, State, World};
use crate::{Options, Vfs, last_error};

mod model;

const KINDS: [Kind; 7] =
    [Kind::NoRoom, Kind::Late, Kind::Done, Kind::NotDone, Kind::DoneLater, Kind::Lapsed, Kind::Over];
const BLOCK: u32 = 1024;
/// More than any database here takes.
const ROOM: usize = 10_000;
/// Calls of an operation, at most: one that has more goes round in circles.
const MOST_CALLS: u64 = 5000;

/// What a database is used for while a call fails.
#[derive(Clone, Copy, Debug)]
struct Use {
    what: &'static str,
    before: &'static str,
    /// Whether most pages are put before the commit, for want of memory.
    spills: bool,
    /// Whether a program was killed in the middle of a transaction before: then it is opened while a call fails.
    is_killed: bool,
    text: &'static str,
    /// Whether the rows have the next number if it is done.
    adds: bool,
}

const USE: Use = Use { what: "read", before: "", spills: false, is_killed: false, text: SUM, adds: false };
const SUM: &str = "SELECT sum(number) FROM rows";
const ADD: &str = "UPDATE rows SET number = number + 1";
const USES: [Use; 8] = [
    USE,
    Use { what: "commit", text: ADD, adds: true, ..USE },
    Use { what: "spill", spills: true, text: ADD, adds: true, ..USE },
    Use {
        what: "grow",
        text: "BEGIN; UPDATE rows SET number = number + 1; INSERT INTO more SELECT randomblob(900) FROM rows; COMMIT",
        adds: true,
        ..USE
    },
    Use {
        what: "rollback",
        spills: true,
        text: "BEGIN; UPDATE rows SET number = number + 1; INSERT INTO more SELECT randomblob(900) FROM rows; ROLLBACK",
        ..USE
    },
    Use {
        what: "savepoint",
        spills: true,
        text: "BEGIN; UPDATE rows SET number = number + 1; SAVEPOINT s; DELETE FROM rows; ROLLBACK TO s; COMMIT",
        adds: true,
        ..USE
    },
    Use { what: "vacuum", before: "DELETE FROM more", text: "VACUUM", ..USE },
    Use { what: "hot journal", spills: true, is_killed: true, ..USE },
];

/// A VFS of its own name, over a world of its own.
fn vfs() -> (Vfs, World) {
    static NTH: AtomicU64 = AtomicU64::new(0);
    let world = World::default();
    *world.0.lock() = State::with_room(ROOM);
    let options = Options { block_bytes: BLOCK, ..Options::default() };
    let name = format!("faults-{}", NTH.fetch_add(1, Ordering::Relaxed));
    (Vfs::register_at(&name, world.clone(), options).unwrap(), world)
}

/// Opens a database of the VFS, and makes it if it does not exist.
fn open(vfs: &Vfs, database: &str) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
    let connection = Connection::open_with_flags_and_vfs(database, flags, vfs.name())?;
    connection.execute_batch(&vfs.pragmas())?;
    Ok(connection)
}

fn opened(vfs: &Vfs, journal: &str, syncs: &str, spills: bool) -> rusqlite::Result<Connection> {
    let database = open(vfs, "d")?;
    database.query_row(&format!("PRAGMA journal_mode = {journal}"), [], |_| Ok(()))?;
    database.pragma_update(None, "synchronous", syncs)?;
    database.pragma_update(None, "cache_size", if spills { 2 } else { 100 })?;
    Ok(database)
}

fn number(database: &Connection, query: &str) -> rusqlite::Result<i64> {
    database.query_row(query, [], |row| row.get(0))
}

/// Rows whose numbers are all the same between transactions: this one, if the database is whole.
fn whole(database: &Connection) -> rusqlite::Result<i64> {
    let said: String = database.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
    assert_eq!(said, "ok");
    assert_eq!(number(database, "SELECT count(*) FROM rows")?, 8);
    assert_eq!(number(database, "SELECT count(*) FROM rows WHERE number <> length(filling) - 900")?, 0);
    let (least, most): (i64, i64) =
        database.query_row("SELECT min(number), max(number) FROM rows", [], |row| Ok((row.get(0)?, row.get(1)?)))?;
    assert_eq!(least, most, "half of a transaction");
    Ok(least)
}

/// A world with a database, as it is before a use of it.
fn made(vfs: &Vfs, world: &World, journal: &str, syncs: &str, of: &Use) -> State {
    *world.0.lock() = State::with_room(ROOM);
    let database = opened(vfs, journal, syncs, of.spills).unwrap();
    let text = "CREATE TABLE rows (id INTEGER PRIMARY KEY, number INTEGER NOT NULL, filling BLOB NOT NULL);
         CREATE TABLE more (filling BLOB);
         CREATE INDEX numbered ON rows (number);
         CREATE TRIGGER fills AFTER UPDATE OF number ON rows
             BEGIN UPDATE rows SET filling = randomblob(900 + NEW.number) WHERE id = NEW.id; END;
         WITH RECURSIVE ids(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM ids WHERE id < 8)
         INSERT INTO rows SELECT id, 0, randomblob(900) FROM ids;
         INSERT INTO more SELECT filling FROM rows;";
    database.execute_batch(text).unwrap();
    database.execute_batch(of.before).unwrap();
    if of.is_killed {
        database.execute_batch(&format!("BEGIN; {ADD}")).unwrap();
    }
    let left = world.0.lock().clone().with_all_killed();
    drop(database);
    left
}

#[derive(Clone, Copy, Default)]
struct Tried {
    places: u64,
    told: u64,
}

/// How a database is used, and which calls fail.
#[derive(Clone, Copy, Debug)]
struct Trial<'a> {
    journal: &'a str,
    syncs: &'a str,
    of: &'a Use,
    fault: Fault,
}

impl Trial<'_> {
    fn open(&self, vfs: &Vfs) -> rusqlite::Result<Connection> {
        opened(vfs, self.journal, self.syncs, self.of.spills)
    }

    fn cannot(&self, error: &rusqlite::Error) -> ! {
        panic!("{self:?}: {error:?}, {:?}", last_error())
    }

    /// The number of all rows. A connection that has lost its helper may say so once.
    fn look(&self, database: &Connection) -> i64 {
        whole(database).or_else(|_| whole(database)).unwrap_or_else(|error| self.cannot(&error))
    }

    /// Whether a call failed at all, and whether SQLite said so.
    fn run(&self, vfs: &Vfs, world: &World, base: &State) -> (bool, bool) {
        *world.0.lock() = base.clone();
        let used = |database: &Connection| database.execute_batch(self.of.text);
        let (mut database, done);
        if self.of.is_killed {
            world.0.lock().fails(Some(self.fault));
            let opened = self.open(vfs).and_then(|opened| used(&opened).map(|()| opened));
            (database, done) = match opened {
                Ok(opened) => (Some(opened), Ok(())),
                Err(error) => (None, Err(error)),
            };
        } else {
            let opened = self.open(vfs).unwrap_or_else(|error| self.cannot(&error));
            world.0.lock().fails(Some(self.fault));
            done = used(&opened);
            database = Some(opened);
        }
        let is_hit = world.0.lock().has_failed();
        if self.fault.lasts {
            // While nothing goes.
            database = None;
        }
        world.0.lock().fails(None);
        if let Some(database) = &database {
            // Where a commit failed before anything of it was done the transaction is open still.
            let _ = if database.is_autocommit() { Ok(()) } else { database.execute_batch("ROLLBACK") };
            self.check(&done, self.look(database));
        }
        let second = self.open(vfs).unwrap_or_else(|error| self.cannot(&error));
        let there = self.look(&second);
        self.check(&done, there);
        second.execute_batch(ADD).unwrap_or_else(|error| self.cannot(&error));
        for database in database.iter().chain([&second]) {
            assert_eq!(self.look(database), there + 1, "{self:?}");
        }
        drop((database, second));
        assert_eq!(world.0.lock().held(), 0, "{self:?}: locks are held");
        assert!(is_hit || done.is_ok(), "{self:?}: {done:?}");
        (is_hit, done.is_err())
    }

    /// What was reported as done is done; what was reported as not done is not, unless the fault hides the outcome.
    fn check(&self, done: &rusqlite::Result<()>, added: i64) {
        let may_be_done = self.of.adds && matches!(self.fault.kind, Kind::Done | Kind::DoneLater);
        match done {
            Ok(()) => assert_eq!(added, i64::from(self.of.adds), "{self:?}: it was done"),
            Err(error) => {
                let codes = [ErrorCode::DiskFull, ErrorCode::SystemIoFailure, ErrorCode::CannotOpen];
                let is_one = error.sqlite_error_code().is_some_and(|code| codes.contains(&code));
                assert!(is_one, "{self:?}: {error}, {:?}", last_error());
                assert!(added == 0 || may_be_done && added == 1, "{self:?}: {added}, though {error}");
            }
        }
    }
}

/// Tries until no call fails any more, and gives how many places there were.
fn every_call(vfs: &Vfs, world: &World, base: &State, mut trial: Trial<'_>) -> Tried {
    let mut tried = Tried::default();
    for after in 0..MOST_CALLS {
        trial.fault.after = after;
        let (is_hit, is_told) = trial.run(vfs, world, base);
        if !is_hit {
            return tried;
        }
        tried = Tried { places: tried.places + 1, told: tried.told + u64::from(is_told) };
    }
    panic!("{trial:?}: more than {MOST_CALLS} calls");
}

/// All kinds of failures, once and for good.
fn every_kind(journal: &str, syncs: &str) {
    let (vfs, world) = vfs();
    for of in &USES {
        let base = made(&vfs, &world, journal, syncs, of);
        let mut sum = Tried::default();
        for (kind, lasts) in KINDS.into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
            let fault = Fault { kind, after: 0, lasts };
            let tried = every_call(&vfs, &world, &base, Trial { journal, syncs, of, fault });
            sum = Tried { places: sum.places + tried.places, told: sum.told + tried.told };
        }
        let Tried { places, told } = sum;
        println!("{journal} {syncs} {}: {places} places, of which {told} were told", of.what);
        assert!(places > 50 && told > 20, "{}: {places} {told}", of.what);
    }
}

#[test]
fn a_call_fails_with_a_journal_that_persists() {
    every_kind("persist", "full");
}

#[test]
fn a_call_fails_with_a_journal_that_is_deleted() {
    every_kind("delete", "full");
}

#[test]
fn a_call_fails_with_a_journal_that_is_truncated() {
    every_kind("truncate", "full");
}

#[test]
fn a_call_fails_where_nothing_is_synced() {
    every_kind("persist", "off");
}

/// Other programs fill the node, from no room at all to as much as is wanted. The database is whole while there is no
/// room, and goes on when there is some.
#[test]
fn a_node_runs_full_at_every_place() {
    let (vfs, world) = vfs();
    for journal in ["persist", "delete", "truncate"] {
        for of in USES.iter().filter(|of| of.adds || of.what == "vacuum") {
            let base = made(&vfs, &world, journal, "full", of);
            for room in 0..MOST_CALLS as usize {
                let at = format!("{} {journal}, room for {room}", of.what);
                *world.0.lock() = base.clone();
                let database = opened(&vfs, journal, "full", of.spills).unwrap();
                let count = world.0.lock().count();
                world.0.lock().set_room(count + room);
                let done = database.execute_batch(of.text);
                let added = i64::from(done.is_ok() && of.adds);
                if let Err(error) = &done {
                    assert_eq!(error.sqlite_error_code(), Some(ErrorCode::DiskFull), "{at}: {error}");
                    let _ = if database.is_autocommit() { Ok(()) } else { database.execute_batch("ROLLBACK") };
                }
                for _ in ["while it is full", "with room again"] {
                    let there = [whole(&database), opened(&vfs, journal, "full", false).and_then(|it| whole(&it))];
                    assert_eq!(there.map(Result::unwrap), [added; 2], "{at}: {done:?}, {:?}", last_error());
                    world.0.lock().set_room(ROOM);
                }
                database.execute_batch(of.text).unwrap();
                assert_eq!(whole(&database).unwrap(), added + i64::from(of.adds), "{at}");
                if done.is_ok() {
                    break;
                }
            }
        }
    }
}

/// The transaction of two databases is in both or in neither: which, its super-journal says.
#[test]
fn a_call_fails_in_a_transaction_of_two_databases() {
    let (vfs, world) = vfs();
    let tables = "ATTACH 'e' AS other; CREATE TABLE rows (number); CREATE TABLE other.rows (number);
        INSERT INTO rows VALUES (0); INSERT INTO other.rows VALUES (0)";
    opened(&vfs, "delete", "full", false).unwrap().execute_batch(tables).unwrap();
    let base = world.0.lock().clone();
    for (kind, lasts) in KINDS.into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
        for after in 0..MOST_CALLS {
            *world.0.lock() = base.clone();
            let database = opened(&vfs, "delete", "full", false).unwrap();
            database.execute_batch("ATTACH 'e' AS other").unwrap();
            world.0.lock().fails(Some(Fault { kind, after, lasts }));
            let text = "BEGIN; UPDATE main.rows SET number = 1; UPDATE other.rows SET number = 1; COMMIT";
            let done = database.execute_batch(text);
            let is_hit = world.0.lock().has_failed();
            drop(database);
            world.0.lock().fails(None);
            let at = format!("{kind:?} after {after} calls, for good: {lasts}, {done:?}");
            let there = ["d", "e"].map(|name| {
                let database = open(&vfs, name).unwrap_or_else(|error| panic!("{at}: {error}, {:?}", last_error()));
                number(&database, "SELECT number FROM rows").unwrap_or_else(|error| panic!("{at}: {error}"))
            });
            assert!(there == [0; 2] || there == [1; 2], "{at}: {there:?}");
            assert!(done.is_err() || there == [1; 2], "{at}");
            if !is_hit {
                break;
            }
        }
    }
}

/// A database that is being made is there afterwards, or can be made.
#[test]
fn a_call_fails_while_a_database_is_made() {
    let (vfs, world) = vfs();
    for (kind, lasts) in KINDS.into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
        for after in 0..MOST_CALLS {
            *world.0.lock() = State::with_room(ROOM);
            world.0.lock().fails(Some(Fault { kind, after, lasts }));
            let make = |database: &Connection| database.execute_batch("CREATE TABLE IF NOT EXISTS rows (number)");
            let done = opened(&vfs, "delete", "full", false).and_then(|database| make(&database));
            let is_hit = world.0.lock().has_failed();
            world.0.lock().fails(None);
            let at = format!("{kind:?} after {after} calls, for good: {lasts}, {done:?}");
            let cannot = |error: rusqlite::Error| -> ! { panic!("{at}: {error}, {:?}", last_error()) };
            let database = opened(&vfs, "delete", "full", false).unwrap_or_else(|error| cannot(error));
            if done.is_err() {
                make(&database).unwrap_or_else(|error| cannot(error));
            }
            assert_eq!(number(&database, "SELECT count(*) FROM rows").unwrap_or_else(|error| cannot(error)), 0, "{at}");
            if !is_hit {
                break;
            }
        }
    }
}
