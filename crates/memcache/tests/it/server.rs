//! A cache of one map over the crate: what a real one does with requests and answers, without the network.

use std::collections::HashMap;

use verbena_memcache::semantics::{Answer, Change, Item, execute};
use verbena_memcache::{Limits, Operation, Parsed, Parser, Rejection, Request, Statistics, print, refuse_binary};

pub struct Server {
    parser: Parser,
    limits: Limits,
    pending: Vec<u8>,
    items: HashMap<Vec<u8>, Item>,
    last_cas: u64,
    flush_at: Option<u64>,
    pub now: u64,
    pub is_closed: bool,
}

impl Server {
    pub fn new(limits: Limits, now: u64) -> Server {
        let parser = Parser::new(limits);
        // No constant of a stream is a cas value.
        let last_cas = 1000;
        let (pending, items) = (vec![], HashMap::new());
        Server { parser, limits, pending, items, last_cas, flush_at: None, now, is_closed: false }
    }

    /// What is answered to these bytes.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut out = vec![];
        let mut input = std::mem::take(&mut self.pending);
        input.extend_from_slice(bytes);
        let mut at = 0;
        while !self.is_closed {
            let step = self.parser.parse(&input[at..]);
            at += step.consumed;
            match step.parsed {
                None => break,
                Some(parsed) => self.serve(parsed, &mut out),
            }
        }
        input.drain(..at);
        self.pending = input;
        out
    }

    pub fn pending_bytes(&self) -> usize {
        self.pending.len()
    }

    fn serve(&mut self, parsed: Parsed<'_>, out: &mut Vec<u8>) {
        if self.flush_at.is_some_and(|at| at <= self.now) {
            self.items.clear();
            self.flush_at = None;
        }
        match parsed {
            Parsed::Request(request) => self.request(request, out),
            Parsed::Rejected(Rejection { line, noreply }) if !noreply => print::line(line, out),
            Parsed::Rejected(_) => {}
            Parsed::Binary { opcode, opaque } => {
                refuse_binary(opcode, opaque, out);
                self.is_closed = true;
            }
            Parsed::Close(line) => {
                if let Some(line) = line {
                    print::line(line, out);
                }
                self.is_closed = true;
            }
        }
    }

    fn request(&mut self, request: Request<'_>, out: &mut Vec<u8>) {
        match request {
            Request::Get { keys, read, with_cas } => {
                for key in keys.iter() {
                    let (answer, bytes) = self.execute(key, &Operation::Read(read));
                    if let Answer::Hit(seen) = answer {
                        print::value(key, &seen.head, &bytes, with_cas, out);
                    }
                }
                print::line("END", out);
            }
            Request::Classic { key, operation, noreply } => {
                let (answer, _) = self.execute(key, &operation);
                print::classic(&answer, noreply, out);
            }
            Request::Meta(meta) => {
                let (answer, bytes) = self.execute(&meta.key, &meta.operation);
                print::meta(&meta, &answer, &bytes, out);
            }
            Request::Debug { key, is_base64 } => {
                let item = self.items.get(&*key);
                print::debug(&key, is_base64, item, 64 + key.len(), self.now, out);
            }
            Request::Noop => print::line("MN", out),
            Request::FlushAll { delay, noreply } => {
                let at = delay.moment(self.now);
                if delay.0 <= 0 || at <= self.now {
                    self.items.clear();
                    self.flush_at = None;
                } else {
                    self.flush_at = Some(at);
                }
                ok("OK", noreply, out);
            }
            Request::Verbosity { noreply, .. } => ok("OK", noreply, out),
            Request::MemoryLimit { mebibytes: 0..8, noreply } => {
                ok("MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m", noreply, out);
            }
            Request::MemoryLimit { noreply, .. } => ok("OK", noreply, out),
            Request::Stats(statistics) => self.statistics(statistics, out),
            Request::Version => print::line("VERSION 1", out),
            Request::Quit => self.is_closed = true,
            // memcached has no such command.
            Request::Scheme(_) => print::line("ERROR", out),
        }
    }

    fn statistics(&self, statistics: Statistics<'_>, out: &mut Vec<u8>) {
        match statistics {
            Statistics::Reset => print::line("RESET", out),
            Statistics::Detail(_) => print::line("OK", out),
            Statistics::Named(_) => print::line("ERROR", out),
            _ => {
                print::statistic("curr_items", &self.items.len().to_string(), out);
                print::line("END", out);
            }
        }
    }

    fn execute(&mut self, key: &[u8], operation: &Operation<'_>) -> (Answer, Vec<u8>) {
        self.last_cas += 1;
        let item = self.items.get(key);
        let outcome = execute(operation, item, self.now, self.last_cas, &self.limits);
        let bytes = match &outcome.answer {
            Answer::Hit(_) => item.filter(|item| !item.head.is_expired(self.now)).map(|item| item.value.clone()),
            _ => None,
        };
        match outcome.change {
            Change::Keep => {}
            Change::Trace(head) | Change::Head(head) => {
                self.items.get_mut(key).expect("an item that was read").head = head;
            }
            Change::Put(item) => {
                self.items.insert(key.to_vec(), item);
            }
            Change::Remove => {
                self.items.remove(key);
            }
        }
        (outcome.answer, bytes.unwrap_or_default())
    }
}

fn ok(line: &str, noreply: bool, out: &mut Vec<u8>) {
    if !noreply {
        print::line(line, out);
    }
}
