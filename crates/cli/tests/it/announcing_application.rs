//! The example of the layer behind `verbena proxy`: its writes are announced, and nothing is stale although the proxy lets them pass.

use std::io::{Read, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use verbena_client::{Place, Socket, Updates};
use verbena_testkit::programs;

use crate::common::traffic::{Ended, started};

const PATIENCE: Duration = Duration::from_secs(30);

/// The guest book, and a proxy in front of it.
struct Town {
    directory: tempfile::TempDir,
    address: String,
    _proxy: Ended,
    _book: Ended,
}

impl Town {
    fn new() -> Town {
        Town::telling(|own| own)
    }

    /// The guest book tells the helper at this place, of which its own is given.
    fn telling(helper: impl FnOnce(Place) -> Place) -> Town {
        let directory = tempfile::tempdir().unwrap();
        let mut book = Command::new(programs::path("examples/guestbook"));
        book.args(["127.0.0.1:0", &helper(place(directory.path())).to_string()]);
        let (book, line) = started(&mut book, |line| line.starts_with("guestbook: "));
        let origin = line["guestbook: ".len()..].split(',').next().unwrap();
        let routes = r#"[{ prefix = "/", writes = "announced" }]"#;
        let arguments = [
            "proxy",
            "--json",
            "--listen",
            "127.0.0.1:0",
            "--origin",
            origin,
            "--proxy-routes",
            routes,
            "--node-runtime",
        ];
        let mut command = programs::verbena(&arguments);
        command.arg(directory.path().join("run")).arg("--node-state").arg(directory.path().join("state"));
        let command = command.current_dir(directory.path());
        let (proxy, line) = started(command, |line| line.contains(r#""event":"serving""#));
        let serving: serde_json::Value = serde_json::from_str(&line).unwrap();
        Town { directory, address: serving["address"].as_str().unwrap().to_owned(), _proxy: proxy, _book: book }
    }

    /// The status and the rest of the answer.
    fn ask(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let length = body.len();
        let head =
            format!("{method} {path} HTTP/1.1\r\nhost: book\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
        stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        (answer["HTTP/1.1 ".len()..][..3].parse().unwrap(), answer)
    }

    /// The lines of a book, and whether they came from the cache.
    fn book(&self, number: usize) -> (usize, bool) {
        let (status, answer) = self.ask("GET", &format!("/books/{number}"), "");
        assert_eq!(status, 200, "{answer}");
        assert!(!answer.contains("erbena-dependencies"), "what it is made of stays here: {answer}");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (body.lines().count() - 1, head.contains("; hit"))
    }

    fn read_until_it_hits(&self, number: usize) -> usize {
        let until = Instant::now() + PATIENCE;
        loop {
            match self.book(number) {
                (lines, true) => return lines,
                _ if Instant::now() > until => panic!("book {number} is never cached"),
                _ => {}
            }
        }
    }

    fn write(&self, number: usize) {
        let (status, answer) = self.ask("POST", &format!("/books/{number}"), "a line");
        assert_eq!(status, 204, "{answer}");
    }
}

fn place(directory: &Path) -> Place {
    Place::from(Socket::new(Some(&directory.join("run")), None).unwrap())
}

#[test]
fn a_write_costs_the_pages_that_it_touches_and_no_others() {
    let town = Town::new();
    for round in 0..5 {
        assert_eq!((town.read_until_it_hits(1), town.read_until_it_hits(2)), (round, 0));
        town.write(1);
        assert_eq!(town.book(1), (round + 1, false));
        assert_eq!(town.book(2), (0, true));
    }
    // What the layer does not know of is everything.
    assert_eq!(town.ask("DELETE", "/elsewhere", "").0, 404);
    assert_eq!(town.book(2), (0, false));
    town.read_until_it_hits(2);

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let updates = Updates::at(place(town.directory.path()));
        let words = updates.words("book", "/books/2").await.unwrap();
        assert!(!words.page.busy && !words.everything.busy, "{words:?}");
    });
}

#[test]
fn a_page_is_purged_by_its_address_and_its_neighbours_stay() {
    let town = Town::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let updates = Updates::at(place(town.directory.path()));
        town.read_until_it_hits(1);
        town.read_until_it_hits(2);
        for round in 0..5 {
            updates.purge_pages(["http://book/books/1"]).await.unwrap();
            assert_eq!((town.book(1), town.book(2)), ((0, false), (0, true)), "round {round}");
            town.read_until_it_hits(1);
        }
        let told = updates.purge_pages(["/books/1"]).await.unwrap_err().to_string();
        assert!(told.contains("\"/books/1\" is no address of a page"), "{told}");
        let told = updates.purge_pages([""; 0]).await.unwrap_err().to_string();
        assert!(told.contains("\"pages\": [addresses]"), "{told}");
        assert_eq!((town.book(1), town.book(2)), ((0, true), (0, true)), "what was refused touched nothing");
    });
}

#[test]
fn readers_beside_writers_never_see_less_than_was_told() {
    let town = Town::new();
    let (told, hits, answers) = ([const { AtomicU64::new(0) }; 3], AtomicU64::new(0), AtomicU64::new(0));
    let until = Instant::now() + Duration::from_secs(3);
    std::thread::scope(|scope| {
        for (number, told) in told.iter().enumerate() {
            let (town, hits, answers) = (&town, &hits, &answers);
            scope.spawn(move || {
                while Instant::now() < until {
                    town.write(number);
                    told.fetch_add(1, SeqCst);
                    std::thread::sleep(Duration::from_millis(30));
                }
            });
            scope.spawn(move || {
                while Instant::now() < until {
                    let before = told.load(SeqCst);
                    let (lines, hit) = town.book(number);
                    assert!(lines as u64 >= before, "book {number}: {lines} lines, {before} were told of");
                    hits.fetch_add(u64::from(hit), SeqCst);
                    answers.fetch_add(1, SeqCst);
                }
            });
        }
    });
    let (answers, hits) = (answers.into_inner(), hits.into_inner());
    let writes: u64 = told.into_iter().map(AtomicU64::into_inner).sum();
    println!("counted: {answers} answers, {hits} hits, {writes} announced writes");
    assert!(answers > 100 && hits > 20 && writes > 20, "{answers} answers, {hits} hits, {writes} writes");
}

/// So that we know that the tests above see: the proxy was told that the application announces, and it tells the helper of another proxy.
#[test]
fn without_the_announcements_it_is_stale() {
    let elsewhere = Town::new();
    let town = Town::telling(|_| place(elsewhere.directory.path()));
    town.read_until_it_hits(1);
    town.write(1);
    assert_eq!(town.book(1), (0, true));
}

/// No helper, no write: the service is not called, and what is cached stays right.
#[test]
fn without_a_helper_nothing_is_written() {
    let town = Town::telling(|_| "/nowhere/local.http.sock".parse().unwrap());
    town.read_until_it_hits(1);
    let (status, answer) = town.ask("POST", "/books/1", "a line");
    assert!(status == 503 && answer.to_ascii_lowercase().contains("retry-after: 1"), "{answer}");
    assert_eq!(town.book(1).0, 0);
}
