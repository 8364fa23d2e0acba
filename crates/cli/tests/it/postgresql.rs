//! An application that nobody changed, whose database is PostgreSQL behind the relay: its pages are hits until a row that they show changes.

use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use verbena_testkit::postgresql::{Postgresql, psql};
use verbena_testkit::programs::{has, output, verbena, wait_for};

use crate::common::crowd::Crowd;
use crate::common::rows::{LongRead, RowPages};
use crate::common::traffic::{Client, Ended, started};

/// Debian's, which has the driver.
pub const PYTHON: &str = "/usr/bin/python3";

const TABLES: &str = "
    CREATE TABLE products (id int PRIMARY KEY, name text NOT NULL UNIQUE, price int NOT NULL);
    INSERT INTO products VALUES (1, 'tea', 10), (2, 'coffee', 20), (3, 'cocoa', 300), (4, 'mate', 40);
    CREATE TABLE visits (number int NOT NULL); INSERT INTO visits VALUES (0);
    CREATE TABLE counters (id int PRIMARY KEY, value int NOT NULL);
    INSERT INTO counters SELECT n, 0 FROM generate_series(0, 49) n;
    CREATE TABLE more_counters (id int PRIMARY KEY, value int NOT NULL);
    INSERT INTO more_counters SELECT n, 0 FROM generate_series(0, 49) n;
    CREATE TABLE changes (product int);
    CREATE VIEW offers AS SELECT id, name FROM products WHERE price < 15;
    CREATE FUNCTION total() RETURNS bigint LANGUAGE sql STABLE AS 'SELECT sum(price) FROM products';";

/// Makes the shop's database.
pub fn make(server: &Postgresql, database: &str) {
    let role = "DO $$ BEGIN CREATE ROLE shop LOGIN PASSWORD 'secret'; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$";
    output(&mut server.psql(role));
    output(&mut server.psql(&format!("CREATE DATABASE {database} OWNER shop")));
    output(&mut by_hand(server.directory.path(), "5432", database, TABLES));
}

/// `psql` as the shop's user.
pub fn by_hand(directory: &Path, port: &str, database: &str, statements: &str) -> Command {
    let mut command = psql(directory, &["-At", "-v", "ON_ERROR_STOP=1", "-U", "shop", "-d", database, "-p", port]);
    command.args(["-c", statements]);
    command
}

/// A shop behind a proxy with a relay.
struct Shop {
    directory: tempfile::TempDir,
    server: Arc<Postgresql>,
    database: String,
    more: Vec<String>,
    /// Where the application is.
    origin: String,
    /// Where the proxy is.
    address: String,
    /// The relay's port.
    relay: String,
    /// The relay's socket.
    socket: PathBuf,
    /// Where the proxy says its metrics.
    status: PathBuf,
    proxy: Option<Ended>,
    _application: Ended,
}

impl Shop {
    /// Nothing where PostgreSQL or its driver for Python is not installed.
    fn open(database: &str, more: &[&str]) -> Option<Shop> {
        Shop::open_with(database, more, &[])
    }

    fn open_with(database: &str, more: &[&str], of_application: &[&str]) -> Option<Shop> {
        Shop::at(Postgresql::get()?, database, more, of_application)
    }

    fn at(server: Arc<Postgresql>, database: &str, more: &[&str], of_application: &[&str]) -> Option<Shop> {
        if !has(PYTHON, &["-c", "import psycopg2"]) {
            return None;
        }
        make(&server, database);
        let directory = tempfile::tempdir().unwrap();
        let [listen, relay, port] = ports();
        let mut application = Command::new(PYTHON);
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/apps/shop_postgres.py");
        application
            .arg(program)
            .args(["127.0.0.1", &relay, &port, database])
            .args(of_application)
            .stderr(Stdio::null());
        let (application, _) = started(&mut application, |line| line.starts_with("serving"));
        let mut shop = Shop {
            directory,
            server,
            database: database.into(),
            more: more.iter().map(|&text| text.to_owned()).collect(),
            origin: format!("http://127.0.0.1:{port}"),
            address: format!("127.0.0.1:{listen}"),
            relay,
            socket: PathBuf::new(),
            status: PathBuf::new(),
            proxy: None,
            _application: application,
        };
        shop.start();
        Some(shop)
    }

    fn to(&self) -> String {
        let Shop { server, database, .. } = self;
        format!("postgres://shop:secret@localhost/{database}?socket={}", server.directory.path().display())
    }

    fn start(&mut self) {
        let listen = format!("127.0.0.1:{}", self.relay);
        let mut proxy = verbena(&["proxy", "--json", "--listen", &self.address, "--origin", &self.origin]);
        proxy.args([
            "--database",
            &self.to(),
            "--database-listen",
            &listen,
            "--node-runtime",
            "run",
            "--node-state",
            "state",
        ]);
        proxy.args(&self.more).current_dir(self.directory.path());
        let log = std::fs::File::options().create(true).append(true).open(self.directory.path().join("log")).unwrap();
        let (proxy, line) = started(proxy.stderr(log), |line| line.contains(r#""serving""#));
        let serving: Value = serde_json::from_str(&line).unwrap();
        self.socket = self.directory.path().join(serving["database"]["socket"].as_str().unwrap());
        self.status = self.directory.path().join(serving["http"].as_str().unwrap());
        self.proxy = Some(proxy);
    }

    /// `psql` at the server itself.
    fn direct(&self, statements: &str) -> Command {
        self.by_hand_in(self.server.directory.path(), "5432", statements)
    }

    fn by_hand_in(&self, directory: &Path, port: &str, statements: &str) -> Command {
        by_hand(directory, port, &self.database, statements)
    }

    /// Statements by hand, through the relay's socket.
    fn by_hand(&self, statements: &str) -> Output {
        self.by_hand_in(self.socket.parent().unwrap(), &self.relay, statements).output().unwrap()
    }

    fn copy(&self, statement: &str, data: &str) {
        let mut command = self.by_hand_in(self.socket.parent().unwrap(), &self.relay, statement);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        process.stdin.take().unwrap().write_all(data.as_bytes()).unwrap();
        assert!(process.wait().unwrap().success());
    }
}

impl RowPages for Shop {
    fn address(&self) -> &str {
        &self.address
    }

    fn status(&self) -> &Path {
        &self.status
    }

    fn write(&self, statements: &str) {
        let output = self.by_hand(statements);
        assert!(output.status.success(), "{output:?}");
    }
}

pub fn ports<const N: usize>() -> [String; N] {
    let all: [TcpListener; N] = std::array::from_fn(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    all.each_ref().map(|listener| listener.local_addr().unwrap().port().to_string())
}

#[test]
fn in_the_scheme_serialised_reads_and_updates_of_a_table_take_turns() {
    let more = ["--database-scheme", "serialised", "--database-longest-turn", "100s"];
    let Some(shop) = Shop::open("turns", &more) else { return };
    let statement = "SELECT count(*) FROM counters a, counters b, counters c, counters d, counters e, counters f, counters g WHERE a.value + b.value + c.value + d.value + e.value + f.value + g.value < -1";
    let found = "FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'SELECT count(*) FROM counters a%'";
    let end = || drop(output(&mut shop.direct(&format!("SELECT pg_cancel_backend(pid) {found}"))));
    let runs = || output(&mut shop.direct(&format!("SELECT count(DISTINCT leader_pid IS NULL) {found}"))).trim() == "1";
    shop.takes_turns(&LongRead { statement, runs: &runs, end: &end }, |statements| {
        let mut client = shop.by_hand_in(shop.socket.parent().unwrap(), &shop.relay, statements[0]);
        client.args(statements[1..].iter().flat_map(|statement| ["-c", statement]));
        client
    });
}

#[test]
fn a_page_is_a_hit_until_a_row_that_it_shows_changes() {
    let Some(shop) = Shop::open("shop_pages", &["--database-complete", "true"]) else { return };
    for path in ["/product/1", "/product/2", "/named/tea", "/cheap", "/report", "/offers", "/log"] {
        shop.warm(path);
    }
    // By a hand that goes through the relay, by a request of the application's, and in a transaction.
    shop.write("UPDATE products SET price = 11 WHERE id = 1");
    assert_eq!(shop.get("/product/1"), ("[(1, 'tea', 11)]".into(), false));
    assert_eq!(shop.get("/named/tea"), ("[(1, 11)]".into(), false));
    assert!(shop.get("/product/2").1, "another row changed");
    assert!(shop.get("/log").1, "another table changed");
    assert!(shop.get("/cheap").0.contains("(1, 'tea', 11)"));
    assert_eq!(shop.get("/report").0, "[(4, 371)]");
    shop.warm("/product/1");
    assert_eq!(Client::new(&shop.address).ask("POST", "/product/1?price=14").status, 200);
    assert_eq!(shop.get("/product/1").0, "[(1, 'tea', 14)]");
    assert!(shop.get("/product/2").1, "a request that writes touches what it writes");
    shop.warm("/cheap");
    shop.warm("/offers");
    shop.write("BEGIN; UPDATE products SET price = 13 WHERE id = 3; SAVEPOINT s; UPDATE products SET price = 21 WHERE id = 2; COMMIT");
    assert_eq!(shop.get("/product/2").0, "[(2, 'coffee', 21)]");
    assert!(shop.get("/cheap").0.contains("(3, 'cocoa', 13)"), "a row that enters an answer");
    assert_eq!(shop.get("/offers").0, "[(1, 'tea'), (3, 'cocoa')]", "a view is its tables");
    // What is rolled back touches nothing.
    shop.warm("/product/2");
    let mut back = shop.by_hand_in(shop.socket.parent().unwrap(), &shop.relay, "BEGIN");
    output(back.args(["-c", "UPDATE products SET price = 99 WHERE id = 2", "-c", "ROLLBACK"]));
    assert_eq!(shop.get("/product/2"), ("[(2, 'coffee', 21)]".into(), true));
    // A copy, a trigger, and a second phase.
    shop.warm("/log");
    shop.copy("COPY changes FROM STDIN", "7\n");
    assert_eq!(shop.get("/log"), ("[(1,)]".into(), false));
    shop.write(
        "CREATE FUNCTION noted() RETURNS trigger LANGUAGE plpgsql AS
         'BEGIN INSERT INTO changes VALUES (NEW.id); RETURN NEW; END';
         CREATE TRIGGER noted AFTER UPDATE ON products FOR EACH ROW EXECUTE FUNCTION noted()",
    );
    assert_eq!(shop.warm("/log"), "[(1,)]");
    shop.warm("/product/4");
    shop.write("UPDATE products SET price = 22 WHERE id = 2");
    assert_eq!(shop.get("/log").0, "[(2,)]", "a trigger wrote");
    assert!(shop.get("/product/4").1, "the trigger was understood");
    shop.warm("/product/4");
    shop.write("BEGIN; UPDATE products SET price = 41 WHERE id = 4; PREPARE TRANSACTION 'four'");
    assert_eq!(shop.get("/product/4").0, "[(4, 'mate', 40)]");
    shop.warm("/product/4");
    shop.write("COMMIT PREPARED 'four'");
    assert_eq!(shop.get("/product/4").0, "[(4, 'mate', 41)]");
    // A table that changes its form, and a row that goes.
    shop.write("ALTER TABLE products ADD COLUMN stock int NOT NULL DEFAULT 5");
    shop.warm("/product/4");
    shop.write("DELETE FROM products WHERE id = 4");
    assert_eq!(shop.get("/product/4").0, "[]");
    // A page that writes, one that shows the time, and one of a function that is not known, are never stored.
    let visits: Vec<String> = (0..3).map(|_| shop.get("/visits").0).collect();
    assert_eq!(visits, ["[(1,)]", "[(2,)]", "[(3,)]"]);
    assert!((0..3).all(|_| !shop.get("/now").1 && !shop.get("/computed").1));
}

#[test]
fn a_statement_is_explained_under_the_catalog() {
    let Some(shop) = Shop::open("shop_explained", &[]) else { return };
    let explained =
        |statement: &str| output(&mut verbena(&["database", "explain", "--database-to", &shop.to(), statement]));
    let read = explained("SELECT id, name FROM products WHERE id = 7");
    for line in ["reads    public.products: id=7", "by its key in column 1 of the answer", "held     not", "may be"] {
        assert!(read.contains(line), "{read}");
    }
    assert!(explained("SELECT * FROM offers").contains("reads    public.products: the table"));
    let write = explained("UPDATE products SET price = 3 WHERE id = 7");
    assert!(
        write.contains("touches  public.products: the row 7") && write.contains("outside a transaction"),
        "{write}"
    );
    assert!(explained("SELECT now()").contains("it shows the time"));
    assert!(explained("SELECT total()").contains("touches  everything"));
    let wrong = shop.to().replace("secret", "wrong");
    let wrong = verbena(&["database", "explain", "--database-to", &wrong, "SELECT 1"]).output().unwrap();
    let said = String::from_utf8_lossy(&wrong.stderr);
    assert!(!wrong.status.success() && said.contains("password") && !said.contains("wrong@"), "{said}");
}

/// asyncpg and psycopg 3: values in binary, prepared statements, pipelines.
#[test]
fn drivers_of_the_extended_protocol_touch_their_rows_alone() {
    let Some(shop) = Shop::open("shop_extended", &["--database-complete", "true"]) else { return };
    if !has(PYTHON, &["-c", "import asyncpg, psycopg"]) {
        return;
    }
    let paths = ["/product/1", "/product/2", "/product/3", "/product/4"];
    paths.iter().for_each(|path| drop(shop.warm(path)));
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/apps/extended_postgres.py");
    let told = output(Command::new(PYTHON).arg(program).args(["127.0.0.1", &shop.relay, &shop.database]));
    assert_eq!(told, "[(2, 202)]\n[(3, 301)]\n");
    let prices = ["101", "202", "301", "40"];
    for (path, price) in paths.iter().zip(prices) {
        let (body, is_hit) = shop.get(path);
        assert!(body.contains(price) && is_hit == (price == "40"), "{path}: {body}");
    }
}

/// After each commit the next answer shows it, and most answers are hits.
#[test]
fn no_answer_is_older_than_the_last_commit() {
    let Some(shop) = Shop::open("shop_commits", &["--database-complete", "true"]) else { return };
    shop.shows_each_commit(40);
}

#[test]
fn readers_and_writers_at_once_have_hits_and_nothing_stale() {
    let Some(shop) = Shop::open("shop_crowd", &["--database-complete", "true"]) else { return };
    shop.is_crowded(20, Duration::from_millis(300), (200, 8, 60));
}

/// Writers that never rest: there is always another request whose statement it may be.
#[test]
fn with_tags_there_are_hits_while_writers_never_rest() {
    let Some(shop) = Shop::open_with("shop_tags", &["--database-complete", "true"], &["tags"]) else { return };
    shop.is_crowded(20, Duration::ZERO, (300, 40, 60));
}

#[test]
fn a_relay_that_is_killed_leaves_nothing_stale() {
    let Some(mut shop) = Shop::open("shop_killed", &["--database-complete", "true"]) else { return };
    let address = shop.address.clone();
    let crowd = Crowd { address: &address, pages: 4, readers: 3, writers: 1, pause: Duration::from_millis(300) };
    let seen = crowd.ask(|counts| {
        let enough = || {
            let before = counts.seen();
            wait_for("hits and writes", || {
                let now = counts.seen();
                now.hits >= before.hits + 10 && now.writes >= before.writes + 3
            });
        };
        for _ in 0..2 {
            enough();
            // Dropped, it is killed by a signal that it cannot hear.
            drop(shop.proxy.take());
            shop.start();
        }
        enough();
    });
    println!("counted: 2 kills, {seen:?}");
    assert_eq!(seen.stale, 0);
}

/// So that we know that the tests see: what goes around the relay is stale.
#[test]
fn what_is_written_around_the_relay_is_stale() {
    let Some(shop) = Shop::open("shop_around", &["--database-complete", "true"]) else { return };
    shop.warm("/product/1");
    output(&mut shop.direct("UPDATE products SET price = 12 WHERE id = 1"));
    assert_eq!(shop.get("/product/1"), ("[(1, 'tea', 10)]".into(), true));
}

/// Of a statement that is not understood nobody knows whether it has changed the catalog.
#[test]
fn a_catalog_that_has_not_changed_is_not_read_again() {
    let Some(shop) = Shop::open("shop_catalog", &["--database-complete", "true"]) else { return };
    shop.warm("/product/1");
    shop.reads_its_catalog_once("SELECT total()", "CREATE TABLE more (id int)");
    // What a function changes is seen.
    shop.write("CREATE FUNCTION widen() RETURNS void LANGUAGE plpgsql AS 'BEGIN ALTER TABLE products ADD COLUMN stock int NOT NULL DEFAULT 5; END'");
    let reads = shop.catalogs("read");
    shop.write("SELECT widen()");
    wait_for("the catalog to be read", || shop.catalogs("read") > reads);
}

#[test]
fn pgbench_makes_the_same_passes_through_the_relay() {
    let Some(shop) = Shop::open("shop_bench", &[]) else { return };
    if !has("pgbench", &["--version"]) {
        return;
    }
    let bench = |arguments: &[&str]| {
        let mut command = Command::new("pgbench");
        command.env("PGPASSWORD", "secret").arg("-h").arg(shop.socket.parent().unwrap()).args(["-p", &shop.relay]);
        output(command.args(["-U", "shop"]).args(arguments).arg("shop_bench"))
    };
    bench(&["-i", "-q"]);
    for mode in ["simple", "extended", "prepared"] {
        let told = bench(&["-n", "-c", "2", "-t", "15", "-M", mode]);
        assert!(told.contains("processed: 30/30"), "{told}");
    }
    let sums = "SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(delta) FROM pgbench_history), \
                (SELECT count(*) FROM pgbench_history)";
    assert_eq!(output(&mut shop.direct(sums)), "t|90\n");
}

/// What the relay did not commit is purged a moment after it took effect; what it did commit is not purged again.
#[test]
fn what_goes_around_the_relay_is_found_in_the_logical_replication() {
    let Some(server) = Postgresql::with("", &["listen_addresses=", "wal_level=logical"]) else { return };
    let server = Arc::new(server);
    let more = ["--database-complete", "true", "--database-capture", "true"];
    let Some(shop) = Shop::at(server.clone(), "shop_around", &more, &[]) else { return };
    shop.warm("/product/1");
    let log = || std::fs::read_to_string(shop.directory.path().join("log")).unwrap();
    assert!(log().contains("the database has no publication verbena"), "{}", log());
    let by_owner = |statement: &str| output(server.psql(statement).args(["-d", "shop_around"]));
    by_owner("ALTER ROLE shop REPLICATION");
    for table in ["visits", "changes"] {
        by_owner(&format!("ALTER TABLE {table} REPLICA IDENTITY FULL"));
    }
    by_owner("CREATE PUBLICATION verbena FOR ALL TABLES");
    // A slot is there before it is complete.
    wait_for("the log", || log().contains("the database's log is read"));
    shop.finds_what_goes_around(|statements| {
        output(&mut by_hand(server.directory.path(), "5432", "shop_around", statements));
    });
    // All rows at once.
    let found = shop.captured("around");
    shop.warm("/product/1");
    output(&mut by_hand(server.directory.path(), "5432", "shop_around", "TRUNCATE products"));
    wait_for("the rows to be gone", || shop.captured("around") > found && !shop.get("/product/1").0.contains("tea"));
}
