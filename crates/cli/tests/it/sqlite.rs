//! SQLite databases in memory that nodes share, with real nodes and programs, of which some are killed.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, OpenFlags};
use verbena_client::{Memory, NewSegment, Placement, Socket};
use verbena_sqlite::{Error, LONGEST_NAME, Options, Vfs, last_error};
use verbena_testkit::nodes::{Cluster, Node, are_in};

const NAMES: [&str; 3] = ["a", "b", "c"];
/// Set for a test that is a program of another one: where its node's helper is, and what else it is told.
const PLAYS: &str = "VERBENA_TEST_PLAYS";

fn three(cluster: &Cluster) -> [Node; 3] {
    let nodes = NAMES.map(|name| cluster.start(name));
    for node in &nodes {
        node.wait_until("three in", |status| are_in(status, &[1, 2, 3]));
    }
    nodes
}

fn socket(cluster: &Cluster, node: &str) -> Socket {
    Socket::new(Some(&cluster.path().join("run")), Some(node)).unwrap()
}

/// A VFS of its own name.
fn vfs_with(socket: Socket, options: Options) -> Vfs {
    static NTH: AtomicU64 = AtomicU64::new(0);
    Vfs::register(&format!("segments-{}", NTH.fetch_add(1, Ordering::Relaxed)), socket, options).unwrap()
}

fn vfs(cluster: &Cluster, node: &str) -> Vfs {
    vfs_with(socket(cluster, node), Options::default())
}

/// Opens a database of the VFS, and makes it if there is none.
fn open(vfs: &Vfs, database: &str) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
    let connection = Connection::open_with_flags_and_vfs(database, flags, vfs.name())?;
    connection.execute_batch(&vfs.pragmas())?;
    Ok(connection)
}

fn is_whole(database: &Connection) {
    let said: String = database.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(said, "ok");
}

fn number(database: &Connection, query: &str) -> i64 {
    database
        .query_row(query, [], |row| row.get(0))
        .unwrap_or_else(|error| panic!("{query}: {error}, {:?}", last_error()))
}

/// Many pages, of which every transaction touches most: rows whose numbers are all the same between transactions.
fn fill(database: &Connection) {
    let text = "CREATE TABLE rows (id INTEGER PRIMARY KEY, number INTEGER NOT NULL, filling BLOB NOT NULL);
         WITH RECURSIVE ids(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM ids WHERE id < 200)
         INSERT INTO rows SELECT id, 0, randomblob(500) FROM ids;";
    database.execute_batch(text).unwrap();
}

#[test]
fn what_one_program_writes_another_reads() {
    for cluster in [Cluster::on_shm("2s"), Cluster::on_tcp("2s")] {
        let _nodes = three(&cluster);
        for (page, journal) in [(8192, "persist"), (4096, "delete"), (16_384, "truncate"), (512, "memory")] {
            let name = format!("of {page}");
            let written = open(&vfs(&cluster, "a"), &name).unwrap();
            written.pragma_update(None, "page_size", page).unwrap();
            written.query_row(&format!("PRAGMA journal_mode = {journal}"), [], |_| Ok(())).unwrap();
            fill(&written);
            written.execute_batch("CREATE VIRTUAL TABLE places USING rtree(id, west, east, south, north)").unwrap();
            written.execute("INSERT INTO places SELECT id, id, id + 1, -id, 1 - id FROM rows", []).unwrap();

            let read = open(&vfs(&cluster, "b"), &name).unwrap();
            assert_eq!(number(&read, "PRAGMA page_size"), page);
            assert_eq!(number(&read, "SELECT sum(length(filling)) FROM rows"), 200 * 500);
            assert_eq!(number(&read, "SELECT count(*) FROM places WHERE west >= 10 AND east <= 20"), 10);
            is_whole(&read);
            // Back again, over what the first one has in its cache; and a transaction that is rolled back.
            read.execute("UPDATE rows SET number = 7 WHERE id = 100", []).unwrap();
            read.execute_batch("BEGIN; DELETE FROM rows; ROLLBACK").unwrap();
            assert_eq!(number(&written, "SELECT number FROM rows WHERE id = 100"), 7);
            let before = number(&read, "PRAGMA page_count");
            written.execute("DELETE FROM rows WHERE id > 10", []).unwrap();
            written.execute_batch("VACUUM").unwrap();
            assert_eq!(number(&read, "SELECT count(*) FROM rows"), 10);
            let after = number(&read, "PRAGMA page_count");
            assert!(after < before - 80_000 / page, "{after} of {before} pages of {page}");
            is_whole(&read);
        }
    }
}

/// Adders at three nodes take turns, and readers see no half of a transaction.
#[test]
fn programs_at_all_nodes_take_turns() {
    let cluster = Cluster::on_shm("2s");
    let _nodes = three(&cluster);
    fill(&open(&vfs(&cluster, "a"), "shared").unwrap());
    let until = Instant::now() + Duration::from_secs(4);
    let (added, looked) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for (nth, node) in NAMES.iter().cycle().take(6).enumerate() {
            let (cluster, added, looked) = (&cluster, &added, &looked);
            scope.spawn(move || {
                let mut database = open(&vfs(cluster, node), "shared").unwrap();
                database.busy_timeout(Duration::from_secs(20)).unwrap();
                while Instant::now() < until {
                    if nth < 3 {
                        let begun =
                            database.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).unwrap();
                        begun.execute("UPDATE rows SET number = number + 1", []).unwrap();
                        begun.commit().unwrap();
                        added.fetch_add(1, Ordering::Relaxed);
                    } else {
                        let query = "SELECT max(number) - min(number) FROM rows";
                        assert_eq!(number(&database, query), 0, "half of a transaction");
                        looked.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let database = open(&vfs(&cluster, "c"), "shared").unwrap();
    let (added, looked) = (added.into_inner(), looked.into_inner());
    assert_eq!(number(&database, "SELECT number FROM rows WHERE id = 1"), added as i64);
    assert!(added > 20 && looked > 20, "{added} {looked}");
    is_whole(&database);
}

/// A program that adds without end, in transactions, and says when each is done.
#[test]
fn plays_a_program_that_adds() {
    let Ok(told) = std::env::var(PLAYS) else { return };
    let [run, node, journal, syncs] = told.split(' ').collect::<Vec<_>>()[..] else { panic!("{told}") };
    let socket = Socket::new(Some(run.as_ref()), Some(node)).unwrap();
    let database = open(&vfs_with(socket, Options::default()), "killed").unwrap();
    database.busy_timeout(Duration::from_secs(20)).unwrap();
    // So that most transactions begin to write to the database before their end.
    database.pragma_update(None, "cache_size", 2).unwrap();
    database.query_row(&format!("PRAGMA journal_mode = {journal}"), [], |_| Ok(())).unwrap();
    database.pragma_update(None, "synchronous", syncs).unwrap();
    loop {
        database.execute("UPDATE rows SET number = number + 1", []).unwrap();
        println!("at {}", number(&database, "SELECT number FROM rows WHERE id = 1"));
    }
}

/// Programs are killed while they write: the next one, at another node, finds the database whole, with all that was committed and no half of a transaction.
#[test]
fn a_program_that_is_killed_leaves_the_database_whole() {
    let cluster = Cluster::on_shm("1s");
    let _nodes = three(&cluster);
    fill(&open(&vfs(&cluster, "a"), "killed").unwrap());
    let watcher = open(&vfs(&cluster, "b"), "killed").unwrap();
    watcher.busy_timeout(Duration::from_secs(20)).unwrap();
    let mut memory = Memory::connect(&socket(&cluster, "b"), Duration::from_secs(10)).unwrap();
    let (mut committed, mut hot) = (0, 0);
    for nth in 0..24u64 {
        let (node, journal) = (NAMES[nth as usize % 3], ["persist", "delete", "truncate"][nth as usize / 3 % 3]);
        let mut program = Command::new(std::env::current_exe().unwrap());
        program.args(["--exact", "sqlite::plays_a_program_that_adds", "--nocapture", "--test-threads=1"]);
        let syncs = ["full", "off"][nth as usize % 2];
        program.env(PLAYS, format!("{} {node} {journal} {syncs}", cluster.path().join("run").display()));
        let mut program = program.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let mut lines = BufReader::new(program.stdout.take().unwrap()).lines().map(Result::unwrap);
        // Not before it is at work.
        let first = lines.find_map(|line| line.rsplit("at ").next()?.parse::<i64>().ok()).unwrap();
        std::thread::sleep(Duration::from_micros(700 * (nth * 7 % 24)));
        program.kill().unwrap();
        program.wait().unwrap();
        let last = lines.filter_map(|line| line.rsplit("at ").next()?.parse::<i64>().ok()).last().unwrap_or(first);
        committed = committed.max(last);

        // What SQLite looks at: whether a journal begins with anything but zeros. Its size stands behind two words.
        let journal = memory.get("killed-journal").map(|head| head.bytes[16..24] != [0; 8]).unwrap_or(false);
        let begins = memory.get_part("killed-journal/0", 0, Some(1)).is_ok_and(|first| first.bytes != [0]);
        hot += u64::from(journal && begins);

        let there = number(&watcher, "SELECT number FROM rows WHERE id = 1");
        assert_eq!(number(&watcher, "SELECT max(number) - min(number) FROM rows"), 0, "half of a transaction");
        assert!(there == committed || there == committed + 1, "{there} after {committed} were committed");
        committed = there;
        is_whole(&watcher);
    }
    assert!(hot >= 6, "only {hot} of 24 were killed in the middle");
}

/// Who believes to hold the locks and does not, writes over nothing that another wrote: here somebody writes without any.
#[test]
fn a_page_is_put_over_the_version_that_was_read() {
    let cluster = Cluster::on_shm("2s");
    let _nodes = three(&cluster);
    fill(&open(&vfs(&cluster, "a"), "fenced").unwrap());
    let database = open(&vfs(&cluster, "a"), "fenced").unwrap();
    database.execute_batch("BEGIN IMMEDIATE; UPDATE rows SET number = 1").unwrap();
    let mut memory = Memory::connect(&socket(&cluster, "b"), Duration::from_secs(10)).unwrap();
    let page = memory.get("fenced/5").unwrap();
    memory.put("fenced/5", &page.bytes).unwrap();
    let error = database.execute_batch("COMMIT").unwrap_err();
    assert_eq!(error.sqlite_error_code(), Some(ErrorCode::SystemIoFailure), "{error}");
    assert!(
        last_error().is_some_and(|text| text.contains("fenced/5") && text.contains("version")),
        "{:?}",
        last_error()
    );
    drop(database);
    let database = open(&vfs(&cluster, "c"), "fenced").unwrap();
    assert_eq!(number(&database, "SELECT sum(number) FROM rows"), 0);
    is_whole(&database);
}

#[test]
fn what_cannot_be_is_said() {
    let cluster = Cluster::on_shm("2s");
    cluster.set("[memory]\nshare = \"2MiB\"\n");
    let _nodes = three(&cluster);
    let there = vfs(&cluster, "a");
    for bytes in [0, 256, 1000, 131_072] {
        let options = Options { block_bytes: bytes, ..Options::default() };
        let error = Vfs::register("never", socket(&cluster, "a"), options).unwrap_err();
        assert!(matches!(error, Error::Block { bytes: its } if its == bytes), "{error}");
    }
    let twice = Vfs::register(there.name(), socket(&cluster, "a"), Options::default()).unwrap_err();
    assert!(matches!(twice, Error::Register(_)) && twice.to_string().contains(there.name()), "{twice}");

    let said = |opened: rusqlite::Result<Connection>| (opened.unwrap_err().sqlite_error_code(), last_error().unwrap());
    let (code, text) = said(open(&there, &"x".repeat(LONGEST_NAME + 1)));
    assert_eq!(code, Some(ErrorCode::CannotOpen));
    assert!(text.contains("1 to 200 bytes"), "{text}");
    // A segment that is no file.
    let mut memory = Memory::connect(&socket(&cluster, "a"), Duration::from_secs(10)).unwrap();
    let other = memory.allocate(NewSegment::of(32).named("other")).unwrap().id;
    memory.put(other, &[7; 32]).unwrap();
    let (code, text) = said(open(&there, "other"));
    assert!(code == Some(ErrorCode::CannotOpen) && text.contains("other is no file"), "{text}");
    assert_eq!(memory.get(other).unwrap().bytes, [7; 32]);
    let ballast = memory.allocate(NewSegment::of(200_000)).unwrap().id;
    // No helper.
    let nobody = vfs_with(Socket::new(Some(cluster.path()), Some("nobody")).unwrap(), Options::default());
    let (_, text) = said(open(&nobody, "db"));
    assert!(text.contains("no helper runs"), "{text}");

    // There is no log that is written ahead: it would want memory that connections map.
    let database = open(&there, "db").unwrap();
    let mode: String = database.query_row("PRAGMA journal_mode = wal", [], |row| row.get(0)).unwrap();
    assert_eq!(mode, "persist");

    // Larger than the memory that there is.
    database.execute_batch("CREATE TABLE t (id INTEGER PRIMARY KEY, filling BLOB)").unwrap();
    database.execute("INSERT INTO t VALUES (0, randomblob(50000))", []).unwrap();
    let full = (1..1000).find_map(|id| {
        database.execute("INSERT INTO t VALUES (?1, randomblob(50000))", [id]).err().map(|error| (id, error))
    });
    let (id, error) = full.unwrap();
    assert_eq!(error.sqlite_error_code(), Some(ErrorCode::DiskFull), "{error}");
    assert!(last_error().is_some_and(|text| text.contains("bytes")), "{:?}", last_error());
    let other = open(&vfs(&cluster, "b"), "db").unwrap();
    assert_eq!(number(&other, "SELECT count(*) FROM t"), id);
    is_whole(&other);
    // With room again it goes on.
    memory.release(ballast).unwrap();
    other.execute("INSERT INTO t VALUES (?1, randomblob(50000))", [id]).unwrap();
    is_whole(&database);
}

/// A database whose home is lost is an error, and never older; one with copies goes on.
#[test]
fn a_home_is_lost() {
    let cluster = Cluster::on_shm("1s");
    let [_a, b, _c] = three(&cluster);
    let at_b = |copies| Options { copies, placement: Placement::Node("b".into()), ..Options::default() };
    let [one, two] = [1, 2].map(|copies| vfs_with(socket(&cluster, "a"), at_b(copies)));
    let [one, first] = [open(&one, "one").unwrap(), open(&two, "two").unwrap()];
    [&one, &first].into_iter().for_each(fill);
    // Its own pages are wherever there is room: nothing new can be at a node that is gone.
    let two = open(&vfs_with(socket(&cluster, "a"), Options { copies: 2, ..Options::default() }), "two").unwrap();
    two.execute("UPDATE rows SET number = number + 1", []).unwrap();
    let before = number(&two, "SELECT sum(number) FROM rows");
    b.kill();
    let until = Instant::now() + Duration::from_secs(20);
    let query = |database: &Connection| {
        let found: rusqlite::Result<i64> = database.query_row("SELECT sum(number) FROM rows", [], |row| row.get(0));
        found
    };
    let found = loop {
        match query(&two) {
            Ok(found) => break found,
            Err(error) => assert!(Instant::now() < until, "{error}, {:?}", last_error()),
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    assert_eq!(found, before);
    two.execute("UPDATE rows SET number = number + 1", [])
        .unwrap_or_else(|error| panic!("{error}, {:?}", last_error()));
    is_whole(&two);
    let error = query(&one).unwrap_err();
    assert!(
        last_error().is_some_and(|text| text.contains("lost") || text.contains("gone")),
        "{error}, {:?}",
        last_error()
    );
}
