//! The relay on a node of its own, and what people see who watch it.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use serde_json::Value;
use verbena_testkit::nodes::Cluster;
use verbena_testkit::postgresql::Postgresql;
use verbena_testkit::programs::{has, output, verbena, wait_for};

use crate::common::traffic::{Client, Ended, started};
use crate::postgresql::{PYTHON, by_hand, make, ports};

/// Starts a node of a cluster, and waits for this event of it.
fn start(cluster: &Cluster, arguments: &[&str], name: &str, event: &str) -> (Ended, Value) {
    let mut command = verbena(arguments);
    command.args(["--json", "--cluster-name", name, "--node-state", &format!("state-{name}")]);
    let log = std::fs::File::create(cluster.path().join(format!("{name}.log"))).unwrap();
    let (process, line) =
        started(command.current_dir(cluster.path()).stderr(log), |line| line.contains(&format!("\"{event}\"")));
    (process, serde_json::from_str(&line).unwrap())
}

/// A cluster of a relay and a proxy, and room for another relay.
struct Site {
    cluster: Cluster,
    database: &'static str,
    /// Where the database is.
    to: String,
    /// The relay's port, and its socket.
    relay: (String, PathBuf),
    proxy: String,
    /// Where the relay and the proxy say what they have counted.
    status: [PathBuf; 2],
    _server: Arc<Postgresql>,
    _processes: [Ended; 3],
}

impl Site {
    fn open(database: &'static str) -> Option<Site> {
        Site::with(database, &[])
    }

    /// The relay is started with these flags besides.
    fn with(database: &'static str, flags: &[&str]) -> Option<Site> {
        let server = Postgresql::get()?;
        if !has(PYTHON, &["-c", "import psycopg2"]) {
            return None;
        }
        make(&server, database);
        let cluster = Cluster::new(
            "2s",
            &[("relay", "shm://relay".into()), ("proxy", "shm://proxy".into()), ("other", "shm://other".into())],
        );
        let to = format!("postgres://shop:secret@localhost/{database}?socket={}", server.directory.path().display());
        let (relay, relaying) = start(
            &cluster,
            &[&["database", "--to", &to, "--listen", "127.0.0.1:0"], flags].concat(),
            "relay",
            "relaying",
        );
        let (_, port) = relaying["address"].as_str().unwrap().rsplit_once(':').unwrap();
        let [listen] = ports();
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/apps/shop_postgres.py");
        let mut application = Command::new(PYTHON);
        application.arg(program).args(["127.0.0.1", port, &listen, database]).stderr(Stdio::null());
        let (application, _) = started(&mut application, |line| line.starts_with("serving"));
        let origin = format!("http://127.0.0.1:{listen}");
        let (proxy, serving) =
            start(&cluster, &["proxy", "--listen", "127.0.0.1:0", "--origin", &origin], "proxy", "serving");
        let socket = cluster.path().join(relaying["socket"].as_str().unwrap());
        let relay_at = (port.to_owned(), socket);
        let address = serving["address"].as_str().unwrap().to_owned();
        let status = [&relaying, &serving].map(|of| cluster.path().join(of["http"].as_str().unwrap()));
        let _processes = [application, proxy, relay];
        Some(Site { cluster, database, to, relay: relay_at, proxy: address, status, _server: server, _processes })
    }

    /// A statement by hand through the relay's socket.
    fn by_hand(&self, statement: &str) -> Command {
        let (port, socket) = &self.relay;
        by_hand(socket.parent().unwrap(), port, self.database, statement)
    }

    /// Another relay before the same database, and its port and socket.
    fn other(&self) -> (Ended, String, PathBuf) {
        let arguments = ["database", "--to", &self.to, "--listen", "127.0.0.1:0", "--database-complete", "true"];
        let (relay, relaying) = start(&self.cluster, &arguments, "other", "relaying");
        let (_, port) = relaying["address"].as_str().unwrap().rsplit_once(':').unwrap();
        (relay, port.to_owned(), self.cluster.path().join(relaying["socket"].as_str().unwrap()))
    }

    /// Whether a page of a row that was made just now stays in the cache when another row is written. `None`: it is not there, or nothing was written.
    fn has_lists(&self, price: &mut u32) -> Option<bool> {
        *price += 1;
        let page = || self.get("/product/1");
        let update = |row| {
            let statement = format!("UPDATE products SET price = {price} WHERE id = {row}");
            self.by_hand(&statement).output().unwrap().status.success()
        };
        // It is made anew: one that was made before has the list of then.
        let is_written = update(1);
        page();
        let before = page();
        (is_written && before.1 && update(2)).then(|| page() == before)
    }

    fn get(&self, path: &str) -> (String, bool) {
        let answer = Client::new(&self.proxy).ask("GET", path);
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        (answer.body, answer.hit)
    }

    /// What the relay (0) or the proxy (1) has counted under this name and these labels.
    fn counted(&self, of: usize, name: &str) -> u64 {
        let mut stream = UnixStream::connect(&self.status[of]).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: node\r\nconnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map_or(0, |count| count.trim().parse().unwrap())
    }

    /// `verbena database watch`, line by line.
    fn watch(&self, more: &[&str]) -> (Ended, Receiver<String>) {
        let mut watch = verbena(&["database", "watch", "--cluster-name", "relay"]);
        watch.args(more).current_dir(self.cluster.path()).stdout(Stdio::piped());
        let mut watch = Ended(watch.spawn().unwrap());
        let lines = BufReader::new(watch.0.stdout.take().unwrap()).lines();
        let (tell, told) = channel();
        std::thread::spawn(move || lines.map_while(Result::ok).all(|line| tell.send(line).is_ok()));
        (watch, told)
    }
}

#[test]
fn each_commit_through_a_relay_alone_reaches_the_proxies_of_its_cluster() {
    let Some(site) = Site::open("relay_alone") else { return };
    wait_for("a hit", || site.get("/product/1").1);
    for price in 100..110 {
        output(&mut site.by_hand(&format!("UPDATE products SET price = {price} WHERE id = 1")));
        assert_eq!(site.get("/product/1").0, format!("[(1, 'tea', {price})]"));
    }
    wait_for("a hit again", || site.get("/product/1").1);
    // Nothing is promised of its pages, so they depend on everything.
    output(&mut site.by_hand("UPDATE products SET price = 1 WHERE id = 2"));
    assert!(!site.get("/product/1").1);
}

#[test]
fn pages_of_a_proxy_in_another_process_have_lists_of_rows() {
    let Some(site) = Site::with("relay_lists", &["--database-complete", "true"]) else { return };
    // Until the catalog and the relay's log are known, pages depend on everything.
    let mut price = 100;
    wait_for("a page that an update of another row leaves in the cache", || site.has_lists(&mut price) == Some(true));
    let mut hits = 0;
    for price in 200..220 {
        output(&mut site.by_hand(&format!("UPDATE products SET price = {price} WHERE id = 2")));
        hits += u32::from(site.get("/product/1").1);
        assert_eq!(site.get("/product/2").0, format!("[(2, 'coffee', {price})]"), "after {price}");
        if price % 4 == 0 {
            output(&mut site.by_hand(&format!("UPDATE products SET price = {price} WHERE id = 1")));
            assert_eq!(site.get("/product/1").0, format!("[(1, 'tea', {price})]"));
        }
    }
    // Another statement on the same machine, say the relay's look at the catalog, may have counted for one.
    println!("{hits} of 20 hits by their lists");
    assert!(hits >= 15, "{hits} of 20");
    assert!(site.counted(1, "verbena_database_reads_fills_total{found=\"whole\"}") >= 6);
    assert!(site.counted(0, "verbena_database_reads_recorded_total") >= 6);
}

#[test]
fn of_several_relays_each_is_read_and_one_that_died_is_waited_for() {
    let Some(site) = Site::with("relay_several", &["--database-complete", "true"]) else { return };
    let mut price = 100;
    wait_for("pages with lists", || site.has_lists(&mut price) == Some(true));
    let (other, port, socket) = site.other();
    wait_for("pages with lists, of two relays", || site.has_lists(&mut price) == Some(true));
    // What is committed through the one reaches what was read through the other.
    for price in 200..210 {
        site.get("/product/1");
        let statement = format!("UPDATE products SET price = {price} WHERE id = 1");
        output(&mut by_hand(socket.parent().unwrap(), &port, site.database, &statement));
        assert_eq!(site.get("/product/1").0, format!("[(1, 'tea', {price})]"));
    }
    drop(other);
    // The application's connections to it may be there still, for all that the others know.
    wait_for("pages without lists", || (0..3).all(|_| site.has_lists(&mut price) == Some(false)));
    let (_other, ..) = site.other();
    wait_for("pages with lists again", || site.has_lists(&mut price) == Some(true));
}

#[test]
fn the_socket_of_a_relay_is_put_back() {
    let Some(site) = Site::open("relay_socket") else { return };
    let (_, socket) = &site.relay;
    output(&mut site.by_hand("SELECT 1"));
    std::fs::remove_file(socket).unwrap();
    wait_for("a socket that is put back", || site.by_hand("SELECT 1").output().unwrap().status.success());
}

#[test]
fn what_the_relay_sees_is_shown_as_it_happens() {
    let Some(site) = Site::open("relay_watched") else { return };
    let (_json, lines) = site.watch(&["--json"]);
    let (_words, words) = site.watch(&["--wide"]);
    let tag = "/* verbena_fill='00000000000000ab' */";
    let (mut seen, mut said) = (Vec::<Value>::new(), Vec::<String>::new());
    let of = |seen: &[Value], event: &str, text: &str| {
        let is_it = |line: &&Value| {
            line["event"] == event && line["statement"].as_str().is_none_or(|statement| statement.contains(text))
        };
        seen.iter().rfind(is_it).cloned()
    };
    // Whoever watches sees what comes from then on, and the catalog is known at some time.
    wait_for("statements and updates", || {
        output(&mut site.by_hand(&format!("UPDATE products SET price = 5 WHERE id = 1 {tag}")));
        output(&mut site.by_hand("SELECT total()"));
        seen.extend(lines.try_iter().map(|line| serde_json::from_str::<Value>(&line).unwrap()));
        said.extend(words.try_iter());
        let is_known = of(&seen, "statement", "UPDATE").is_some_and(|line| line["named_by"] == "rows");
        is_known && of(&seen, "statement", "total").is_some() && !said.is_empty()
    });
    let update = of(&seen, "statement", "UPDATE").unwrap();
    assert_eq!((&update["tag"], &update["is_held"]), (&"00000000000000ab".into(), &true.into()), "{update}");
    assert!(update["touches"].as_array().unwrap().contains(&"public.products: the row 1".into()), "{update}");
    let unknown = of(&seen, "statement", "total").unwrap();
    assert!(unknown["named_by"] == "everything" && !unknown["reasons"].as_array().unwrap().is_empty(), "{unknown}");
    let begun = of(&seen, "update", "").unwrap();
    assert!(begun["result"] == "begun" && begun["commits"].as_u64() >= Some(1), "{begun}");
    assert_eq!(of(&seen, "ended", "").unwrap()["outcome"], "answered");
    assert!(said.iter().any(|line| line.starts_with("everything") && line.contains("SELECT total()")), "{said:?}");
    assert!(said.iter().all(|line| !line.starts_with("rows") && !line.starts_with("ended")), "{said:?}");
}

#[test]
fn without_a_relay_there_is_nothing_to_watch() {
    let directory = tempfile::tempdir().unwrap();
    let mut watch = verbena(&["database", "watch", "--node-runtime", "run"]);
    let told = watch.current_dir(directory.path()).output().unwrap();
    assert_eq!(told.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&told.stderr).contains("no relay runs here"), "{told:?}");
}

/// It could not know which application's proxies are to hear of its commits.
#[test]
fn a_relay_that_does_not_say_whose_it_is_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let mut relay = verbena(&["database", "--to", "postgres://app@127.0.0.1:1/shop", "--listen", "127.0.0.1:0"]);
    relay.args(["--node-runtime", "run", "--node-state", "state"]).current_dir(directory.path());
    let told = relay.output().unwrap();
    let said = String::from_utf8_lossy(&told.stderr).into_owned();
    assert!(told.status.code() == Some(2) && said.contains("--name NAME"), "{told:?}");
    assert!(!String::from_utf8_lossy(&told.stdout).contains("began incarnation"), "{told:?}");
}

/// Real clients of a relay whose database is not there: they hear which one, and the log says it once.
#[test]
fn clients_are_told_that_the_database_cannot_be_reached() {
    let directory = tempfile::tempdir().unwrap();
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let clients: [(&str, &str, &[&str], &str); 2] = [
        ("mysql", "mysql", &["-h", "127.0.0.1", "-u", "app", "-e", "SELECT 1", "-P"], "1429"),
        ("postgres", "psql", &["-h", "127.0.0.1", "-U", "app", "-d", "shop", "-c", "SELECT 1", "-p"], "FATAL"),
    ];
    for (scheme, client, words, expected) in clients {
        if !has(client, &["--version"]) {
            println!("skipped: no {client}");
            continue;
        }
        let [run, state] = ["run", "state"].map(|name| directory.path().join(format!("{scheme}-{name}")));
        let mut command = verbena(&["database", "--json", "--listen", "127.0.0.1:0", "--name", scheme]);
        command.args(["--to", &format!("{scheme}://app@{nobody}/{}", if scheme == "mysql" { "" } else { "shop" })]);
        command.arg("--node-runtime").arg(&run).arg("--node-state").arg(&state);
        let log = directory.path().join(format!("{scheme}.log"));
        command.stderr(std::fs::File::create(&log).unwrap());
        let (_relay, line) = started(&mut command, |line| line.contains("\"relaying\""));
        let relaying: Value = serde_json::from_str(&line).unwrap();
        let (_, port) = relaying["address"].as_str().unwrap().rsplit_once(':').unwrap();
        for _ in 0..2 {
            let refused = Command::new(client).args(words).arg(port).stdin(Stdio::null()).output().unwrap();
            let said = String::from_utf8_lossy(&refused.stderr).into_owned();
            assert!(!refused.status.success(), "{said}");
            assert!(said.contains(expected) && said.contains(&format!("the database at {nobody} cannot")), "{said}");
        }
        let said = || std::fs::read_to_string(&log).unwrap();
        wait_for("the catalog", || said().contains("catalog cannot be read"));
        // It is asked once a second. Two more of these, or a line each time, could not be told apart at once.
        std::thread::sleep(std::time::Duration::from_millis(2500));
        let said = said();
        let lines = |what: &str| said.lines().filter(|line| line.contains("WARN") && line.contains(what)).count();
        assert_eq!((lines("catalog cannot be read"), lines("database cannot be reached")), (1, 1), "{said}");
        let mut named = said.lines().filter(|line| line.contains("the database"));
        assert!(named.all(|line| line.contains(&nobody.to_string())), "{said}");
    }
}
