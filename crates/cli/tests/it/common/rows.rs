//! A shop whose database is behind the relay: its pages, and what a commit does to them.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use verbena_testkit::nodes::PATIENCE;
use verbena_testkit::programs::{output, wait_for};

use super::crowd::{Crowd, Seen};
use super::traffic::Client;

/// A read of `counters` that takes minutes.
pub struct LongRead<'a> {
    /// It.
    pub statement: &'a str,
    /// Whether the server runs it.
    pub runs: &'a dyn Fn() -> bool,
    /// The server ends it.
    pub end: &'a dyn Fn(),
}

/// Pages of rows of `products`, and a hand that writes through the relay.
pub trait RowPages {
    /// Where the proxy is.
    fn address(&self) -> &str;

    /// Where the proxy says its metrics.
    fn status(&self) -> &Path;

    /// Statements by hand, through the relay.
    fn write(&self, statements: &str);

    /// A page, and whether it was a hit.
    fn get(&self, path: &str) -> (String, bool) {
        let answer = Client::new(self.address()).ask("GET", path);
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        (answer.body, answer.hit)
    }

    /// Asks until it is a hit.
    fn warm(&self, path: &str) -> String {
        let mut last = String::new();
        wait_for(&format!("a hit of {path}"), || {
            let (body, is_hit) = self.get(path);
            last = body;
            is_hit
        });
        last
    }

    /// After each commit the next answer shows it, and most answers are hits.
    fn shows_each_commit(&self, rounds: usize) {
        let paths = ["/product/1", "/product/2", "/product/3", "/product/4"];
        paths.iter().for_each(|path| drop(self.warm(path)));
        let (mut hits, mut asked) = (0, 0);
        for round in 0..rounds {
            let (row, price) = (round % 4 + 1, 1000 + round);
            self.write(&format!("UPDATE products SET price = {price} WHERE id = {row}"));
            for (at, path) in paths.iter().enumerate() {
                let (body, is_hit) = self.get(path);
                asked += 1;
                hits += u32::from(is_hit);
                if at + 1 == row {
                    assert!(body.contains(&price.to_string()), "round {round}: {path} is {body}, stale");
                }
            }
        }
        println!("counted: {rounds} commits, {asked} answers, {hits} hits, 0 stale");
        assert!(hits * 2 > asked, "{hits} hits of {asked}");
    }

    /// The counters whose names begin so, of those that are not 0.
    fn counters(&self, beginning: &str) -> Vec<String> {
        let mut stream = UnixStream::connect(self.status()).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: node\r\nconnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let all = text.lines().filter(|line| line.starts_with(beginning) && !line.ends_with(" 0"));
        all.map(str::to_owned).collect()
    }

    /// How often the catalog was found so.
    fn catalogs(&self, found: &str) -> u64 {
        let all = self.counters("verbena_database_catalog_total");
        let line = all.iter().find(|line| line.contains(&format!("\"{found}\"")));
        line.map_or(0, |line| line.rsplit_once(' ').unwrap().1.parse().unwrap())
    }

    /// Transactions that the log of the database has shown, by whether the relay had held them.
    fn captured(&self, by: &str) -> u64 {
        let all = self.counters("verbena_database_captured_total");
        let line = all.iter().find(|line| line.contains(&format!("\"{by}\"")));
        line.map_or(0, |line| line.rsplit_once(' ').unwrap().1.parse().unwrap())
    }

    /// A hand that goes around the relay is found each time, and what goes through it never.
    fn finds_what_goes_around(&self, around: impl Fn(&str)) {
        self.warm("/product/1");
        for round in 0..5 {
            let found = self.captured("around");
            around(&format!("UPDATE products SET price = {} WHERE id = 1", 600 + round));
            wait_for("a change that went around", || self.captured("around") > found);
            assert_eq!(self.captured("around"), found + 1);
            assert!(self.warm("/product/1").contains(&(600 + round).to_string()), "round {round}");
        }
        let (found, held) = (self.captured("around"), self.captured("relay"));
        self.shows_each_commit(40);
        for statements in [
            "INSERT INTO products VALUES (50, 'maté', 1), (51, 'rooibos', 2)",
            "BEGIN; UPDATE products SET price = 2 WHERE id > 2; DELETE FROM products WHERE id = 51; COMMIT",
            "DELETE FROM products WHERE id = 50",
            // It writes nothing, and is not expected for ever.
            "UPDATE products SET price = price WHERE id = 4711",
        ] {
            self.write(statements);
        }
        wait_for("the relay's commits in the log", || self.captured("relay") >= held + 43);
        assert_eq!(
            (self.captured("relay"), self.captured("around")),
            (held + 43, found),
            "what the relay held is the relay's"
        );
        // After a while no commit of the relay's is left that a change could be taken for.
        wait_for("a change that went around", || {
            around("UPDATE products SET price = price + 1 WHERE id = 3");
            std::thread::sleep(Duration::from_millis(300));
            self.captured("around") > found
        });
    }

    /// A statement that is not understood has the catalog looked at, and one that changes it has it read.
    fn reads_its_catalog_once(&self, unknown: &str, changes: &str) {
        // Changes of before may have come while it was read.
        wait_for("a catalog that is unchanged", || {
            let looks = || self.catalogs("unchanged") + self.catalogs("read");
            let (before, unchanged) = (looks(), self.catalogs("unchanged"));
            self.write(unknown);
            // A statement that came meanwhile would have it looked at once more.
            wait_for("a look at the catalog", || looks() > before);
            self.catalogs("unchanged") > unchanged
        });
        let reads = self.catalogs("read");
        for _ in 0..10 {
            let looks = self.catalogs("unchanged");
            self.write(unknown);
            wait_for("a look at the catalog", || self.catalogs("unchanged") > looks);
        }
        assert_eq!(self.catalogs("read"), reads, "read again for nothing");
        self.write(changes);
        wait_for("the catalog to be read", || self.catalogs("read") > reads);
    }

    /// Statements that wait for their turn, where the scheme is `serialised`.
    fn waiting(&self) -> u64 {
        let all = self.counters("verbena_database_turns_waiting");
        all.first().map_or(0, |line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap() as u64)
    }

    /// An update waits for a read of its table, and reads that come after it for the update; others do not.
    fn takes_turns(&self, long: &LongRead<'_>, through: impl Fn(&[&str]) -> Command) {
        let begins = |statements: &[&str]| through(statements).stdout(Stdio::piped()).spawn().unwrap();
        let ends = |child: Child| {
            let output = child.wait_with_output().unwrap();
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).unwrap()
        };
        let mut first = through(&[long.statement]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_for("a long read", || (long.runs)());
        let update = begins(&["UPDATE counters SET value = 7 WHERE id = 1"]);
        wait_for("the update to wait", || self.waiting() == 1);
        let read = begins(&["SELECT value FROM counters WHERE id = 1"]);
        wait_for("the read to wait", || self.waiting() == 2);
        assert!(output(&mut through(&["SELECT name FROM products WHERE id = 1"])).contains("tea"), "another table");
        let inside = ["BEGIN", "SELECT value FROM counters WHERE id = 1", "COMMIT"];
        let inside = output(&mut through(&inside));
        assert!(inside.contains('0'), "in a transaction it waits for none: {inside}");
        assert_eq!(self.waiting(), 2);
        (long.end)();
        first.wait().unwrap();
        ends(update);
        assert!(ends(read).contains('7'), "it came after the update");
        wait_for("the end", || self.waiting() == 0);
        for purpose in ["read", "update"] {
            let line = format!("verbena_database_turns_total{{for=\"{purpose}\",had=\"after waiting\"}} 1");
            let all = self.counters("verbena_database_turns_total");
            assert!(all.contains(&line), "{all:?}");
        }
        assert!(
            output(&mut through(&["SELECT value FROM counters WHERE id = 1"])).contains('7'),
            "nothing is left open"
        );
    }

    /// Readers and writers at once, of `pages` pages, until there are enough of both: nothing is stale.
    fn is_crowded(&self, pages: usize, pause: Duration, (answers, writes, hits): (u64, u64, u64)) {
        let crowd = Crowd { address: self.address(), pages, readers: 4, writers: 2, pause };
        let began = Instant::now();
        let is_enough =
            |seen: &Seen| seen.stale > 0 || seen.answers >= answers && seen.writes >= writes && seen.hits >= hits;
        let seen = crowd.ask(|counts| {
            while !is_enough(&counts.seen()) && began.elapsed() < PATIENCE {
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        println!("counted: {pages} pages, {seen:?}");
        for beginning in ["verbena_proxy_not_stored_total", "verbena_proxy_misses_total", "verbena_database_"] {
            self.counters(beginning).iter().for_each(|line| println!("  {line}"));
        }
        assert_eq!(seen.stale, 0);
        assert!(is_enough(&seen), "wanted {answers} answers, {writes} writes and {hits} hits");
    }
}
