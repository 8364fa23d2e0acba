//! Messages that no client at hand sends, at a real PostgreSQL with the relay and without: the same bytes come back.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::dialogue::{extended, message};
use crate::postgres_real::Site;
use verbena_relay::Rejection;
use verbena_testkit::postgresql::{Postgresql, SOCKET};
use verbena_testkit::programs::output;

struct Raw {
    stream: UnixStream,
    heard: Vec<Vec<u8>>,
}

impl Raw {
    fn connect(at: &Path) -> Self {
        let stream = UnixStream::connect(at).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut raw = Self { stream, heard: Vec::new() };
        let startup = b"\0\x03\0\0user\0raw\0database\0postgres\0\0";
        raw.step(&[&(startup.len() as u32 + 4).to_be_bytes()[..], startup].concat(), 1);
        // The server's process has another number each time.
        raw.heard.clear();
        raw
    }

    fn read(&mut self) -> Vec<u8> {
        let mut raw = vec![0; 5];
        self.stream.read_exact(&mut raw).unwrap();
        let length = u32::from_be_bytes(raw[1..5].try_into().unwrap()) as usize;
        raw.resize(1 + length, 0);
        self.stream.read_exact(&mut raw[5..]).unwrap();
        raw
    }

    /// Sends messages and hears what comes up to the given count of ReadyForQuery.
    fn step(&mut self, messages: &[u8], ready: usize) {
        self.stream.write_all(messages).unwrap();
        let mut missing = ready;
        while missing > 0 {
            let raw = self.read();
            missing -= usize::from(raw[0] == b'Z');
            self.heard.push(raw);
        }
    }

    /// Sends messages and hears what comes up to a message of this type.
    fn until(&mut self, messages: &[u8], kind: u8) {
        self.stream.write_all(messages).unwrap();
        loop {
            let raw = self.read();
            let is_last = raw[0] == kind;
            self.heard.push(raw);
            if is_last {
                return;
            }
        }
    }
}

fn query(text: &str) -> Vec<u8> {
    message(b'Q', format!("{text}\0").as_bytes())
}

fn sync() -> Vec<u8> {
    message(b'S', b"")
}

fn execute(portal: &str, most: u32) -> Vec<u8> {
    message(b'E', &[portal.as_bytes(), &[0], &most.to_be_bytes()].concat())
}

/// A conversation about a table that is there and empty.
pub fn conversation(at: &Path, table: &str) -> Vec<Vec<u8>> {
    let mut raw = Raw::connect(at);
    let query = |text: &str| query(&text.replace("raw_t", table));
    let extended = |text: &str| extended(&text.replace("raw_t", table));
    raw.step(&[extended("insert into raw_t values (1, 'one')"), sync()].concat(), 1);
    let several = [
        extended("insert into raw_t values (2, 'two')"),
        extended("select * from raw_t order by a"),
        sync(),
        extended("select count(*) from raw_t"),
        sync(),
    ];
    raw.step(&several.concat(), 2);
    // The second one fails: the first is rolled back, the third ignored.
    let failing = [
        extended("insert into raw_t values (3, 'three')"),
        extended("insert into raw_t values (1, 'again')"),
        extended("insert into raw_t values (4, 'four')"),
        sync(),
        extended("select count(*) from raw_t"),
        sync(),
    ];
    raw.step(&failing.concat(), 2);
    let committing = [
        extended("begin"),
        extended("insert into raw_t values (5, 'five')"),
        extended("commit"),
        extended("insert into raw_t values (6, 'six')"),
        sync(),
        extended("select 1 / 0"),
        message(b'H', b""),
    ];
    raw.step(&committing.concat(), 1);
    raw.until(&[], b'E');
    raw.step(&[extended("commit"), query("select 'ignored'"), sync()].concat(), 1);
    // A portal that is read in parts.
    raw.step(&query("begin"), 1);
    let portal = [
        message(
            b'P',
            &[b"s\0select a, b from ", table.as_bytes(), b" where a > $1 order by a\0\0\x01\0\0\0\x17"].concat(),
        ),
        message(b'D', b"Ss\0"),
        message(b'B', b"portal\0s\0\0\0\0\x01\0\0\0\x010\0\0"),
        message(b'D', b"Pportal\0"),
        execute("portal", 2),
    ];
    raw.step(&[&portal.concat()[..], &sync()].concat(), 1);
    raw.step(&[execute("portal", 1), execute("portal", 0), message(b'C', b"Pportal\0"), sync()].concat(), 1);
    raw.step(&query("commit"), 1);
    raw.step(&[message(b'P', b"empty\0\0\0\0"), message(b'D', b"Sempty\0"), sync()].concat(), 1);
    raw.step(&[extended(""), sync()].concat(), 1);
    // COPY in each way: libpq sends a Sync with the Execute, and another one after the data.
    raw.until(&[extended("copy raw_t from stdin"), sync()].concat(), b'G');
    raw.step(&[message(b'd', b"7\tseven\n"), message(b'd', b"8\teight\n"), message(b'c', b""), sync()].concat(), 1);
    raw.until(&extended("copy raw_t from stdin"), b'G');
    raw.step(&[message(b'd', b"9\tnine\n"), message(b'f', b"no\0"), sync()].concat(), 1);
    // Within a block nothing waits for a bracket, so the server has the first Sync before the data.
    raw.step(&query("begin"), 1);
    raw.until(&[extended("copy raw_t from stdin"), sync()].concat(), b'G');
    raw.step(&[message(b'd', b"12\ttwelve\n"), message(b'c', b""), sync()].concat(), 1);
    raw.step(&query("commit"), 1);
    raw.until(&query("copy raw_t from stdin"), b'G');
    raw.step(&[message(b'd', b"7\tagain\n"), message(b'c', b"")].concat(), 1);
    raw.until(&query("select 1; copy raw_t from stdin; select 2"), b'G');
    raw.step(&[message(b'd', b"10\tten\n"), message(b'c', b"")].concat(), 1);
    raw.step(&query("copy raw_t to stdout; select 1; copy raw_t to stdout"), 1);
    raw.step(&[extended("copy (select * from raw_t) to stdout"), sync()].concat(), 1);
    // int4abs(-7) by its number.
    raw.step(&message(b'F', b"\0\0\x05\x75\0\x01\0\x01\0\x01\0\0\0\x04\xFF\xFF\xFF\xF9\0\x01"), 1);
    raw.step(&query(&format!("insert into raw_t values (11, '{}') returning b", "x".repeat(200_000))), 1);
    raw.step(&query("select repeat(b, 20) from raw_t where a = 11"), 1);
    raw.step(&query("begin; create table raw_u (a int); rollback; select 1"), 1);
    raw.step(&query("set application_name = 'raw'"), 1);
    raw.step(&query("select a from raw_t order by a"), 1);
    raw.stream.write_all(&message(b'X', b"")).unwrap();
    assert_eq!(raw.stream.read(&mut [0]).unwrap(), 0, "the server closes after Terminate");
    raw.heard
}

#[test]
fn messages_that_few_clients_send_have_the_same_answers() {
    let Some(server) = Postgresql::get() else { return };
    let site = Site::new(&server, None);
    // The same table in both: its number stands in the descriptions of rows.
    output(&mut server.psql("create table public.raw_t (a int primary key, b text)"));
    let fresh = || output(&mut server.psql("truncate public.raw_t"));
    let direct = conversation(&server.socket(), "raw_t");
    fresh();
    let relayed = conversation(&site.directory.path().join(SOCKET), "raw_t");
    for (place, (direct, relayed)) in direct.iter().zip(&relayed).enumerate() {
        let text = |raw: &[u8]| String::from_utf8_lossy(&raw[..raw.len().min(200)]).into_owned();
        assert!(direct == relayed, "message {place}: {:?} is {:?}", text(direct), text(relayed));
    }
    assert_eq!(direct.len(), relayed.len());
    assert!(direct.len() > 130, "only {} messages were compared", direct.len());
    let lines = site.log.lines();
    let held: Vec<_> = lines.iter().filter_map(|line| line.strip_prefix("begin ")).collect();
    let of = |start: &str| held.iter().filter(|write| write.starts_with(start)).count();
    assert_eq!((of("sync after insert"), of("sync after copy"), of("commit"), of("copy")), (3, 1, 3, 1), "{held:#?}");
}

#[test]
fn a_refused_pipeline_leaves_nothing() {
    let Some(server) = Postgresql::get() else { return };
    output(&mut server.psql("drop table if exists public.piped; create table public.piped (a int)"));
    for word in ["sync", "commit"] {
        let site = Site::new(&server, Some((word, Rejection::Retry)));
        let mut raw = Raw::connect(&site.directory.path().join(SOCKET));
        let write = extended("insert into piped values (1)");
        let pipeline = if word == "sync" {
            vec![write.clone(), extended("select 1"), sync()]
        } else {
            vec![extended("begin"), write.clone(), extended("commit"), write, sync()]
        };
        raw.step(&pipeline.concat(), 1);
        let errors: Vec<_> = raw.heard.iter().filter(|raw| raw[0] == b'E').collect();
        assert_eq!(errors.len(), 1);
        assert!(String::from_utf8_lossy(errors[0]).contains("C40001"));
        assert_eq!(raw.heard.last().unwrap(), &message(b'Z', b"I"));
        raw.step(&query("select count(*) from piped"), 1);
        assert!(raw.heard.contains(&message(b'D', b"\0\x01\0\0\0\x010")), "{word}: something stayed");
    }
}
