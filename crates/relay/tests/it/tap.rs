//! A tap between the relay and a database: what the database gets and when it answers, in the log of the relay's
//! brackets. It forwards bytes and knows the heads of messages alone.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread;

use crate::words::Log;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Mysql,
    Postgres,
}

/// Listens at `at` and forwards to `to` until the test process ends.
pub fn tap(at: &Path, to: PathBuf, protocol: Protocol, log: Log) {
    let listener = UnixListener::bind(at).unwrap();
    thread::spawn(move || {
        for client in listener.incoming() {
            let (client, server) = (client.unwrap(), UnixStream::connect(&to).unwrap());
            let (answers_from, answers_to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            let forward = log.clone();
            let mut heads = Heads { protocol, bytes: Vec::new(), skip: 0, is_started: protocol == Protocol::Mysql };
            thread::spawn(move || {
                copy(client, server, |bytes| heads.take(bytes).into_iter().for_each(|line| forward.push(line)));
            });
            let log = log.clone();
            thread::spawn(move || copy(answers_from, answers_to, |_| log.push("from server")));
        }
    });
}

fn copy(mut from: UnixStream, mut to: UnixStream, mut look: impl FnMut(&[u8])) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        look(&buffer[..count]);
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = (to.shutdown(Shutdown::Write), from.shutdown(Shutdown::Read));
}

/// The messages of one direction.
struct Heads {
    protocol: Protocol,
    bytes: Vec<u8>,
    skip: usize,
    /// PostgreSQL: the startup message, which has no type, is over.
    is_started: bool,
}

impl Heads {
    fn take(&mut self, bytes: &[u8]) -> Vec<String> {
        let skipped = self.skip.min(bytes.len());
        self.skip -= skipped;
        self.bytes.extend_from_slice(&bytes[skipped..]);
        let mut lines = Vec::new();
        while let Some((head, length)) = self.head() {
            let shown = length.min(200);
            if self.bytes.len() < head + shown {
                break;
            }
            let body = String::from_utf8_lossy(&self.bytes[head..head + shown]).to_lowercase();
            let first = self.bytes[0];
            let line = match self.protocol {
                Protocol::Mysql if self.bytes[3] == 0 && body.starts_with(['\u{3}', '\u{17}']) => {
                    Some(body[1..].to_owned())
                }
                Protocol::Postgres if self.is_started && b"QEFS".contains(&first) => Some(match first {
                    b'Q' => body.replace('\0', ""),
                    b'E' => "execute".into(),
                    b'S' => "sync".into(),
                    _ => "call".into(),
                }),
                _ => None,
            };
            self.is_started = true;
            lines.extend(line.map(|line| format!("to server: {}", line.trim())));
            let here = (head + length).min(self.bytes.len());
            self.skip = head + length - here;
            self.bytes.drain(..here);
        }
        lines
    }

    /// The length of a head and of what follows it.
    fn head(&self) -> Option<(usize, usize)> {
        match self.protocol {
            Protocol::Mysql => {
                let head: [u8; 4] = *self.bytes.first_chunk()?;
                Some((4, u32::from_le_bytes([head[0], head[1], head[2], 0]) as usize))
            }
            Protocol::Postgres => {
                let at = usize::from(self.is_started);
                let length = u32::from_be_bytes(self.bytes.get(at..at + 4)?.try_into().unwrap()) as usize;
                Some((at + 4, length - 4))
            }
        }
    }
}

/// Checks that each bracket in the log was begun before its command reached the server, and ended after the server
/// had answered it. Gives the writes that were bracketed. For one connection at a time.
pub fn check(lines: &[String], protocol: Protocol) -> Vec<String> {
    let mut held = Vec::new();
    let mut open: Option<(String, bool, bool)> = None;
    for line in lines {
        if let Some(write) = line.strip_prefix("begin ") {
            assert_eq!(open, None, "begun within a bracket: {line}");
            open = Some((write.to_owned(), false, false));
        } else if let Some(text) = line.strip_prefix("to server: ") {
            match &mut open {
                Some((write, is_sent, _)) => {
                    assert!(!*is_sent, "{text} follows {write} before the end");
                    *is_sent = true;
                    held.push(write.clone());
                }
                None => assert!(!is_write(text, protocol), "without a bracket: {text}"),
            }
        } else if line == "from server" {
            if let Some((_, true, is_answered)) = &mut open {
                *is_answered = true;
            }
        } else if let Some(outcome) = line.strip_prefix("end ") {
            let (write, is_sent, is_answered) = open.take().expect("an end without a begin");
            assert_eq!(outcome, "Answered", "{write}");
            assert!(is_sent && is_answered, "{write} ended before the server answered (sent: {is_sent})");
        }
    }
    assert_eq!(open, None, "a bracket stayed open");
    held
}

/// What never runs outside a bracket, in these tests.
fn is_write(text: &str, protocol: Protocol) -> bool {
    let begins = |words: &[&str]| words.iter().any(|word| text.starts_with(word));
    let is_of_mysql = begins(&["create", "drop", "alter", "set autocommit"]) || begins(&["insert into files_myisam"]);
    text.contains("_alone") || begins(&["commit", "end"]) || protocol == Protocol::Mysql && is_of_mysql
}
