//! Commands that no client at hand sends, at a real MariaDB with the relay and without: the same bytes come back.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::dialogue::{packet, query};
use crate::mysql_real::Site;
use verbena_testkit::mariadb::Mariadb;
use verbena_testkit::programs::output;

/// PROTOCOL_41, LOCAL_FILES, TRANSACTIONS, SECURE_CONNECTION, MULTI_STATEMENTS, MULTI_RESULTS, PS_MULTI_RESULTS,
/// PLUGIN_AUTH.
pub const USUAL: u32 = 0x0200 | 0x80 | 0x2000 | 0x8000 | 0x1_0000 | 0x2_0000 | 0x4_0000 | 0x8_0000;
const DEPRECATE_EOF: u32 = 1 << 24;
const SESSION_TRACK: u32 = 1 << 23;

struct Raw {
    stream: UnixStream,
    heard: Vec<Vec<u8>>,
    last_statement: u32,
}

impl Raw {
    fn connect(at: &Path, bits: u32, mariadb: u32) -> Self {
        let stream = UnixStream::connect(at).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut raw = Self { stream, heard: Vec::new(), last_statement: 0 };
        raw.read();
        let mut response = bits.to_le_bytes().to_vec();
        response.extend_from_slice(&[0, 0, 0, 1, 45]);
        response.extend_from_slice(&[0; 19]);
        response.extend_from_slice(&mariadb.to_le_bytes());
        response.extend_from_slice(b"root\0\0mysql_native_password\0");
        raw.send(&packet(1, &response));
        assert_eq!(raw.read()[4], 0, "login");
        raw
    }

    fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    fn read(&mut self) -> Vec<u8> {
        let mut raw = vec![0; 4];
        self.stream.read_exact(&mut raw).unwrap();
        let length = u32::from_le_bytes([raw[0], raw[1], raw[2], 0]) as usize;
        raw.resize(4 + length, 0);
        self.stream.read_exact(&mut raw[4..]).unwrap();
        raw
    }

    /// Sends commands and hears their answers; the answer of COM_STATISTICS, sent behind them, is the end.
    fn step(&mut self, commands: &[u8]) {
        self.send(&[commands, &packet(0, b"\x09")].concat());
        let mut is_first = true;
        loop {
            let mut raw = self.read();
            if raw[4..].starts_with(b"Uptime: ") {
                return;
            }
            if is_first && raw[4] == 0 && raw.len() == 16 {
                self.last_statement = u32::from_le_bytes(raw[5..9].try_into().unwrap());
                // The server counts the statements of all connections.
                raw[5..9].fill(0);
            }
            is_first = false;
            if raw[4] == 0xFF {
                // Some messages name the statement's number.
                raw[..3].fill(0);
                raw.retain(|byte| !byte.is_ascii_digit());
            }
            self.heard.push(raw);
        }
    }

    fn prepare(&mut self, text: &str) -> [u8; 4] {
        self.step(&packet(0, &[b"\x16", text.as_bytes()].concat()));
        self.last_statement.to_le_bytes()
    }

    fn execute(&mut self, statement: [u8; 4], cursor: u8, parameters: &[u8]) {
        self.step(&execute(statement, cursor, parameters));
    }
}

fn execute(statement: [u8; 4], cursor: u8, parameters: &[u8]) -> Vec<u8> {
    packet(0, &[&[0x17][..], &statement, &[cursor, 1, 0, 0, 0], parameters].concat())
}

/// No NULLs, types follow: an INT and a text.
const INT_AND_TEXT: [u8; 6] = [0, 1, 3, 0, 0xFD, 0];

/// A conversation about a database that is not there yet.
pub fn conversation(at: &Path, bits: u32, mariadb: u32, database: &str) -> Vec<Vec<u8>> {
    let mut raw = Raw::connect(at, bits, mariadb);
    raw.step(&query(&format!("create database {database}")));
    raw.step(&packet(0, &[b"\x02", database.as_bytes()].concat()));
    raw.step(&query("create table t (a int primary key, b text)"));
    let insert = raw.prepare("insert into t values (?, ?)");
    raw.execute(insert, 0, &[&INT_AND_TEXT[..], &[1, 0, 0, 0], b"\x03one"].concat());
    let long_data = |text: &[u8]| packet(0, &[&[0x18][..], &insert, &[1, 0], text].concat());
    let with_long_data =
        [long_data(b"in two "), long_data(b"parts"), execute(insert, 0, &[&INT_AND_TEXT[..], &[2, 0, 0, 0]].concat())];
    raw.step(&with_long_data.concat());
    if mariadb & 4 != 0 {
        let rows = [&[0, 3, 0, 0, 0, 0][..], b"\x05three", &[0, 4, 0, 0, 0, 1]].concat();
        let bulk = [&[0xFA][..], &insert, &[0x80, 0, 3, 0, 0xFD, 0], &rows].concat();
        raw.step(&packet(0, &bulk));
    }
    let select = raw.prepare("select a, b, a + 1 from t order by a");
    raw.execute(select, 0, &[]);
    // From the second time on a client that keeps columns hears none.
    raw.execute(select, 0, &[]);
    raw.execute(select, 1, &[]);
    let fetch = packet(0, &[&[0x1C][..], &select, &[2, 0, 0, 0]].concat());
    raw.step(&fetch);
    raw.step(&fetch);
    raw.step(&fetch);
    raw.step(&packet(0, &[&[0x1A][..], &select].concat()));
    raw.step(&packet(0, &[&[0x19][..], &select].concat()));
    raw.execute(select, 0, &[]);
    let latest = [0xFF; 4];
    for text in ["select b from t where a = 1", "insert into t values (9, 'nine')", "select nonsense from nowhere"] {
        let prepare = packet(0, &[b"\x16", text.as_bytes()].concat());
        raw.step(&[prepare, execute(latest, 0, &[])].concat());
    }
    raw.prepare("do 1");
    raw.step(&packet(0, b"\x04t\0"));
    raw.step(&query("select 1; select * from t; delete from t where a = 9; select 2"));
    raw.step(&packet(0, b"\x1B\x01\0"));
    raw.step(&query("select 1; select 2"));
    raw.step(&packet(0, b"\x1B\0\0"));
    raw.step(&query("set @x = 1, session_track_schema = 1"));
    raw.step(&packet(0, b"\x02mysql"));
    raw.step(&packet(0, b"\x0E"));
    raw.step(&packet(0, b"\x0D"));
    raw.step(&packet(0, b"\x1F"));
    raw.step(&query("select @x, database()"));
    let create = packet(0, b"\x05old");
    raw.step(&create);
    raw.send(&packet(0, &[b"\x11root\0\0", database.as_bytes(), b"\0\x2D\0mysql_native_password\0"].concat()));
    let answer = raw.read();
    if answer[4] == 0xFE {
        raw.send(&packet(answer[3] + 1, b""));
        let answer = raw.read();
        raw.heard.push(answer);
    } else {
        raw.heard.push(answer);
    }
    raw.step(&query("select a, b from t"));
    raw.step(&query("begin; insert into t values (10, ''); select count(*) from t; rollback"));
    raw.send(&packet(0, b"\x01"));
    assert_eq!(raw.stream.read(&mut [0]).unwrap(), 0, "the server closes after COM_QUIT");
    raw.heard
}

#[test]
fn commands_that_few_clients_send_have_the_same_answers() {
    let Some(server) = Mariadb::get() else { return };
    let site = Site::new(&server, None);
    let mut packets = 0;
    for bits in [USUAL, USUAL | DEPRECATE_EOF, USUAL | DEPRECATE_EOF | SESSION_TRACK] {
        for mariadb in [0, 0x1D] {
            let fresh = || output(server.client().args(["-e", "drop database if exists raw"]));
            fresh();
            let direct = conversation(&server.socket(), bits, mariadb, "raw");
            fresh();
            let relayed = conversation(&site.socket(), bits, mariadb, "raw");
            for (place, (direct, relayed)) in direct.iter().zip(&relayed).enumerate() {
                assert_eq!(direct, relayed, "packet {place} with {bits:x} and {mariadb:x}");
            }
            assert_eq!(direct.len(), relayed.len());
            packets += direct.len();
        }
    }
    assert!(packets > 6 * 80, "only {packets} packets were compared");
    let held = site.log.lines().iter().filter(|line| line.starts_with("begin ")).count();
    // A table and a database; an execution, one with long data, one pipelined; several statements twice; with bulk one
    // more.
    assert_eq!(held, 6 * 7 + 3, "{:#?}", site.log.lines());
}
