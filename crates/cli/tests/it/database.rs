//! An application that nobody changed, whose database is MariaDB behind the relay: its pages are hits until a row that they show changes.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use verbena_testkit::mariadb::Mariadb;
use verbena_testkit::programs::{has, output, verbena, wait_for};

use crate::common::rows::{LongRead, RowPages};
use crate::common::traffic::{Client, Ended, started};

/// Debian's, which has the driver.
const PYTHON: &str = "/usr/bin/python3";

/// A shop behind a proxy with a relay.
struct Shop {
    directory: tempfile::TempDir,
    server: Arc<Mariadb>,
    /// Where the proxy is.
    address: String,
    /// The relay's socket.
    socket: PathBuf,
    /// Where the proxy says its metrics.
    status: PathBuf,
    _processes: [Ended; 2],
}

impl Shop {
    /// Nothing where MariaDB or its driver for Python is not installed.
    fn open(more: &[&str]) -> Option<Shop> {
        Shop::open_with(more, &[])
    }

    fn open_with(more: &[&str], of_application: &[&str]) -> Option<Shop> {
        Shop::at(Mariadb::get()?, more, of_application)
    }

    fn at(server: Arc<Mariadb>, more: &[&str], of_application: &[&str]) -> Option<Shop> {
        if !has(PYTHON, &["-c", "import pymysql"]) {
            return None;
        }
        let tables = "DROP DATABASE IF EXISTS shop; CREATE DATABASE shop; USE shop;
            CREATE TABLE products (id INT PRIMARY KEY, name VARBINARY(100) NOT NULL, price INT NOT NULL);
            CREATE TABLE visits (number INT NOT NULL); INSERT INTO visits VALUES (0);
            INSERT INTO products VALUES (1, 'tea', 10), (2, 'coffee', 20), (3, 'cocoa', 300), (4, 'mate', 40);
            CREATE TABLE counters (id INT PRIMARY KEY, value INT NOT NULL);
            INSERT INTO counters SELECT seq, 0 FROM seq_0_to_49;
            CREATE TABLE more_counters AS SELECT * FROM counters; ALTER TABLE more_counters ADD PRIMARY KEY (id);
            CREATE OR REPLACE USER shop IDENTIFIED BY 'secret'; GRANT ALL ON shop.* TO shop;
            GRANT REPLICATION SLAVE, BINLOG MONITOR ON *.* TO shop;";
        output(server.client().args(["-e", tables]));
        let directory = tempfile::tempdir().unwrap();
        let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let port = free();
        let to = format!("mysql://shop:secret@localhost?socket={}", server.socket().display());
        let origin = format!("http://127.0.0.1:{port}");
        let mut proxy =
            verbena(&["proxy", "--json", "--listen", "127.0.0.1:0", "--origin", &origin, "--database", &to]);
        proxy.args(["--database-listen", "127.0.0.1:0", "--node-runtime", "run", "--node-state", "state"]).args(more);
        let log = std::fs::File::create(directory.path().join("log")).unwrap();
        let (proxy, line) =
            started(proxy.current_dir(directory.path()).stderr(log), |line| line.contains(r#""serving""#));
        let serving: Value = serde_json::from_str(&line).unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let database = &serving["database"];
        let (host, relay) =
            text(&database["address"]).rsplit_once(':').map(|(host, port)| (host.to_owned(), port.to_owned())).unwrap();
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/apps/products.py");
        let mut application = Command::new(PYTHON);
        application.arg(program).args([&host, &relay, &port.to_string()]).args(of_application).stderr(Stdio::null());
        let (application, _) = started(&mut application, |line| line.starts_with("serving"));
        let socket = directory.path().join(text(&database["socket"]));
        let address = text(&serving["address"]);
        let status = directory.path().join(text(&serving["http"]));
        Some(Shop { directory, server, address, socket, status, _processes: [proxy, application] })
    }

    /// A client of the relay that sends these statements one by one.
    fn client(&self, statements: &str) -> Command {
        let mut client = Command::new("mariadb");
        client.args(["--no-defaults", "-ushop", "-psecret", "shop", "-e", statements]);
        client.arg(format!("--socket={}", self.socket.display()));
        client
    }

    /// Statements by hand, through the relay.
    fn by_hand(&self, statements: &str) -> Output {
        self.client(statements).output().unwrap()
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

#[test]
fn a_page_is_a_hit_until_a_row_that_it_shows_changes() {
    let Some(shop) = Shop::open(&["--database-complete", "true"]) else { return };
    for path in ["/product/1", "/product/2", "/cheap", "/report"] {
        shop.warm(path);
    }
    // By a hand that goes through the relay, by a request of the application's, and in a transaction.
    shop.write("UPDATE products SET price = 11 WHERE id = 1");
    assert_eq!(shop.get("/product/1"), ("((1, b'tea', 11),)".into(), false));
    assert!(shop.get("/product/2").1, "another row changed");
    assert!(shop.get("/cheap").0.contains("(1, b'tea', 11)"));
    assert_eq!(shop.get("/report").0, "((4, Decimal('371')),)");
    shop.warm("/product/1");
    assert_eq!(Client::new(&shop.address).ask("POST", "/product/1?price=12").status, 200);
    assert_eq!(shop.get("/product/1").0, "((1, b'tea', 12),)");
    assert!(shop.get("/product/2").1, "a request that writes touches what it writes");
    shop.warm("/cheap");
    shop.write("START TRANSACTION; UPDATE products SET price = 30 WHERE id = 3; UPDATE products SET price = 21 WHERE id = 2; COMMIT");
    assert_eq!(shop.get("/product/2").0, "((2, b'coffee', 21),)");
    assert!(shop.get("/cheap").0.contains("(3, b'cocoa', 30)"), "a row that enters an answer");
    // What is rolled back touches nothing.
    shop.warm("/product/2");
    shop.write("START TRANSACTION; UPDATE products SET price = 99 WHERE id = 2; ROLLBACK");
    assert_eq!(shop.get("/product/2"), ("((2, b'coffee', 21),)".into(), true));
    // A table that changes its form, and a row that goes.
    shop.write("ALTER TABLE products ADD COLUMN stock INT NOT NULL DEFAULT 5");
    shop.warm("/product/4");
    shop.write("DELETE FROM products WHERE id = 4");
    assert_eq!(shop.get("/product/4").0, "()");
    // A page that writes, and one that shows the time, are never stored.
    let visits: Vec<String> = (0..3).map(|_| shop.get("/visits").0).collect();
    assert_eq!(visits, ["((1,),)", "((2,),)", "((3,),)"]);
    assert!((0..3).all(|_| !shop.get("/now").1));
}

#[test]
fn a_statement_is_explained_under_the_catalog() {
    let Some(shop) = Shop::open(&[]) else { return };
    let to = format!("mysql://shop:secret@localhost?socket={}", shop.server.socket().display());
    let explained = |statement: &str| {
        output(&mut verbena(&["database", "explain", "--database-to", &to, "--in", "shop", statement]))
    };
    let read = explained("SELECT id, name FROM products WHERE id = 7");
    for line in ["reads    shop.products: id=7", "by its key in column 1 of the answer", "held     not", "may be"] {
        assert!(read.contains(line), "{read}");
    }
    let write = explained("UPDATE products SET price = 3 WHERE id = 7");
    assert!(write.contains("touches  shop.products: the row 7") && write.contains("outside a transaction"), "{write}");
    assert!(explained("SELECT now()").contains("it shows the time"));
    let without =
        |to: &str| output(&mut verbena(&["database", "explain", "--database-to", to, "SELECT name FROM products"]));
    let in_address = to.replace("localhost?", "localhost/shop?");
    assert!(without(&to).contains("name one with --in") && without(&in_address).contains("shop.products: the table"));
    assert!(explained("CALL something()").contains("touches  everything"));
    let wrong = verbena(&["database", "explain", "--database-to", "mysql://nobody:x@127.0.0.1:1", "SELECT 1"])
        .output()
        .unwrap();
    assert_eq!(wrong.status.code(), Some(1), "it is no mistake of the command line");
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("127.0.0.1:1"), "{wrong:?}");
}

/// After each commit the next answer shows it, and most answers are hits.
#[test]
fn no_answer_is_older_than_the_last_commit() {
    let Some(shop) = Shop::open(&["--database-complete", "true"]) else { return };
    shop.shows_each_commit(60);
}

#[test]
fn readers_and_writers_at_once_have_hits_and_nothing_stale() {
    let Some(shop) = Shop::open(&["--database-complete", "true"]) else { return };
    shop.is_crowded(20, Duration::from_millis(300), (200, 8, 60));
}

/// Writers that never rest: there is always another request whose statement it may be.
#[test]
fn with_tags_there_are_hits_while_writers_never_rest() {
    let Some(shop) = Shop::open_with(&["--database-complete", "true"], &["tags"]) else { return };
    shop.is_crowded(20, Duration::ZERO, (300, 40, 60));
}

/// Of a statement that is not understood nobody knows whether it has changed the catalog.
#[test]
fn a_catalog_that_has_not_changed_is_not_read_again() {
    let Some(shop) = Shop::open(&["--database-complete", "true"]) else { return };
    shop.write("CREATE PROCEDURE nothing() SELECT 1; CREATE PROCEDURE widen() ALTER TABLE products ADD COLUMN stock INT NOT NULL DEFAULT 5");
    shop.warm("/product/1");
    shop.reads_its_catalog_once("CALL nothing()", "CREATE TABLE more (id INT)");
    // What a procedure changes is seen, and so is what is made of a text.
    for statement in ["CALL widen()", "EXECUTE IMMEDIATE CONCAT('DROP TABLE ', 'more')"] {
        let reads = shop.catalogs("read");
        shop.write(statement);
        wait_for("the catalog to be read", || shop.catalogs("read") > reads);
    }
}

#[test]
fn without_the_promise_each_commit_reaches_all_pages() {
    let Some(shop) = Shop::open(&[]) else { return };
    shop.warm("/product/1");
    shop.write("UPDATE products SET price = 21 WHERE id = 2");
    assert!(!shop.get("/product/1").1);
    shop.warm("/product/1");
    // A statement that writes nothing reaches none.
    shop.write("SELECT * FROM products");
    assert!(shop.get("/product/1").1);
}

#[test]
fn in_the_scheme_serialised_reads_and_updates_of_a_table_take_turns() {
    let Some(shop) = Shop::open(&["--database-scheme", "serialised", "--database-longest-turn", "100s"]) else {
        return;
    };
    let direct = |statement: &str| output(shop.server.client().args(["-N", "-e", statement]));
    let statement = "SELECT COUNT(*) FROM counters a, counters b, counters c, counters d, counters e, counters f, counters g WHERE a.value + b.value + c.value + d.value + e.value + f.value + g.value < -1";
    let found = "FROM information_schema.processlist WHERE info LIKE 'SELECT COUNT(*) FROM counters a%'";
    let end = || drop(direct(&format!("KILL QUERY {}", direct(&format!("SELECT id {found}")).trim())));
    let runs = || direct(&format!("SELECT COUNT(*) {found}")).trim() == "1";
    shop.takes_turns(&LongRead { statement, runs: &runs, end: &end }, |statements| shop.client(&statements.join("; ")));
}

/// What the relay did not commit is purged a moment after it took effect; what it did commit is not purged again.
#[test]
fn what_goes_around_the_relay_is_found_in_the_binlog() {
    let Some(server) = Mariadb::with(&["--skip-networking", "--log-bin=changes", "--binlog-format=ROW"]) else {
        return;
    };
    let server = Arc::new(server);
    let more = ["--database-complete", "true", "--database-capture", "true"];
    let Some(shop) = Shop::at(server.clone(), &more, &[]) else { return };
    let around = |statements: &str| {
        output(server.client().args(["-e", statements, "shop"]));
    };
    let log = || std::fs::read_to_string(shop.directory.path().join("log")).unwrap();
    wait_for("the log", || log().contains("the database's log is read"));
    shop.finds_what_goes_around(around);

    // A definition: everything is purged, and the catalog is read again.
    let (found, reads) = (shop.captured("around"), shop.catalogs("read"));
    shop.warm("/product/2");
    around("ALTER TABLE products ADD COLUMN colour INT NOT NULL DEFAULT 9");
    wait_for("the definition", || shop.captured("around") > found && shop.catalogs("read") > reads);
    shop.warm("/product/2");
    shop.write("ALTER TABLE products ADD COLUMN size INT NOT NULL DEFAULT 3");
    shop.write("UPDATE products SET price = 5 WHERE id = 2");
    assert!(shop.warm("/product/2").contains(", 5"));

    // The log is lost and followed on from where it was read: what is written meanwhile is found.
    let found = shop.captured("around");
    let dumps = "SELECT GROUP_CONCAT(CONCAT('KILL ', id) SEPARATOR ';') FROM information_schema.processlist WHERE command = 'Binlog Dump'";
    let kills = output(server.client().args(["-N", "-e", dumps]));
    shop.warm("/product/4");
    around(&format!("{}; UPDATE products SET price = 77 WHERE id = 4", kills.trim()));
    wait_for("what was written while the log was not read", || shop.captured("around") > found);
    assert!(shop.warm("/product/4").contains(", 77"));

    // Privileges are no writes of the application's. Without those for the log it is said what is missing, and clients go on.
    let found = shop.captured("around");
    around("REVOKE REPLICATION SLAVE, BINLOG MONITOR ON *.* FROM shop");
    around("UPDATE products SET price = 78 WHERE id = 4");
    wait_for("a change that went around", || shop.captured("around") > found);
    assert_eq!(shop.captured("around"), found + 1, "a privilege is no definition");
    let kills = output(server.client().args(["-N", "-e", dumps]));
    around(kills.trim());
    wait_for("what is missing", || log().contains("GRANT REPLICATION SLAVE, BINLOG MONITOR ON *.* TO 'shop'"));
    shop.write("UPDATE products SET price = 79 WHERE id = 4");
    assert!(shop.warm("/product/4").contains(", 79"));
    around("GRANT REPLICATION SLAVE, BINLOG MONITOR ON *.* TO shop");
    wait_for("the log to be read again", || {
        around("UPDATE products SET price = price + 1 WHERE id = 4");
        shop.captured("around") > found + 1
    });
}

#[test]
fn a_log_that_does_not_name_rows_is_said_and_stops_nothing() {
    let Some(shop) = Shop::open(&["--database-complete", "true", "--database-capture", "true"]) else { return };
    shop.warm("/product/1");
    let log = std::fs::read_to_string(shop.directory.path().join("log")).unwrap();
    assert!(log.contains("the database keeps no binlog") && log.contains("database.capture"), "{log}");
}
