//! Messages of one size back and forth, one at a time: written into the other's memory, where it looks, or by a socket.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use verbena_fabric::{Batch, Buffer, Class, Completed, Done, Operation, Pending, SharedRemote};

use super::node::{Met, Node, PATIENCE, text};

/// The word of a region that says how many messages were written into it.
const COUNT_AT: u64 = 0;
/// Where messages are written.
pub(super) const BODY_AT: u64 = 4_096;
/// The place for writes that are never read.
pub(super) const ASIDE_AT: u64 = BODY_AT + LARGEST as u64 / 2;
/// Bytes of the word, which are the last of a message.
const WORD: usize = 8;
/// Larger writes travel with the bulk, as they would in any service.
pub(super) const LARGEST_CONTROL: usize = 4 << 10;
/// The most bytes of a message.
pub(super) const LARGEST: usize = 1 << 20;
/// What the region of a node has to have for them.
pub(super) const REGION: u64 = BODY_AT + LARGEST as u64;

/// The byte of a message that stands `at` bytes behind its first.
const fn pattern(at: usize) -> u8 {
    (at % 251) as u8
}

/// Makes a region look as after a message of [`FILLED`] bytes.
pub(super) fn fill(node: &Node) -> verbena_fabric::Result<()> {
    let message: Vec<u8> = (0..FILLED).map(pattern).collect();
    node.region.write(BODY_AT, &message)
}

/// Bytes of a region, from where messages are written, that are always those of one.
pub(super) const FILLED: usize = 1 << 10;

/// A message is on its way, or waited for.
pub(super) enum Line<'a> {
    Writes(Writes<'a>),
    Socket(Socket<'a>),
}

impl<'a> Line<'a> {
    /// By writes of `node` into the region of `met`. Nothing is under way.
    pub(super) fn of_writes(node: &'a Node, met: &'a Met, bytes: usize) -> Result<Self, String> {
        node.region.store(COUNT_AT, 0).map_err(text)?;
        let body = (0..bytes - WORD).map(pattern).collect();
        let class = if bytes <= LARGEST_CONTROL { Class::Control } else { Class::Bulk };
        let (sent, seen) = (0, 0);
        let (under_way, spare) = Default::default();
        Ok(Line::Writes(Writes { node, remote: &met.remote, class, body, sent, seen, under_way, spare }))
    }

    /// By a socket, on which nothing is under way.
    pub(super) fn of_socket(stream: &'a TcpStream, bytes: usize) -> Self {
        Line::Socket(Socket {
            stream,
            body: (0..bytes).map(pattern).collect(),
            into: vec![0; bytes],
            got: 0,
            has_come: false,
        })
    }

    /// Sends the next message.
    pub(super) fn send(&mut self) -> Result<(), String> {
        match self {
            Line::Writes(writes) => writes.send(),
            Line::Socket(socket) => socket.send(),
        }
    }

    /// Whether the next message is here, all of it.
    pub(super) fn look(&mut self) -> Result<bool, String> {
        match self {
            Line::Writes(writes) => writes.look(),
            Line::Socket(socket) => socket.look(),
        }
    }

    /// Looks again and again until it is. Others who have something to do get the core in between.
    pub(super) fn wait(&mut self) -> Result<(), String> {
        let since = Instant::now();
        while !self.look()? {
            if since.elapsed() > PATIENCE {
                return Err(format!("no message came within {PATIENCE:?}"));
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Sends a message, waits for another, and says how long that took.
    pub(super) fn there_and_back(&mut self) -> Result<Duration, String> {
        let began = Instant::now();
        self.send()?;
        self.wait()?;
        Ok(began.elapsed())
    }

    /// Nothing of this side is to be under way any more, and the last message that came must be as it was sent.
    pub(super) fn finish(self) -> Result<(), String> {
        match self {
            Line::Writes(writes) => writes.finish(),
            Line::Socket(socket) if socket.has_come => is_pattern(&socket.into),
            Line::Socket(_) => Ok(()),
        }
    }
}

pub(super) fn is_pattern(message: &[u8]) -> Result<(), String> {
    match message.iter().enumerate().position(|(at, byte)| *byte != pattern(at)) {
        Some(at) => Err(format!("byte {at} of {} is another", message.len())),
        None => Ok(()),
    }
}

pub(super) struct Writes<'a> {
    node: &'a Node,
    remote: &'a SharedRemote,
    class: Class,
    body: Vec<u8>,
    sent: u64,
    seen: u64,
    under_way: VecDeque<Pending<Completed>>,
    spare: Vec<Buffer>,
}

impl Writes<'_> {
    /// The message and, behind it, the word by which it is known to be there: a batch is executed in order.
    fn send(&mut self) -> Result<(), String> {
        self.sent += 1;
        let mut batch = Batch::new();
        if !self.body.is_empty() {
            let spare = self.spare.pop().map_or_else(|| self.node.fabric.pool().copy_of(&self.body), Ok);
            batch.push(Operation::Write { at: BODY_AT, from: spare.map_err(text)? });
        }
        batch.push(Operation::WriteWord { at: COUNT_AT, value: self.sent });
        self.under_way.push_back(self.remote.post(batch, self.class, self.node.deadline()));
        Ok(())
    }

    fn look(&mut self) -> Result<bool, String> {
        while let Some(result) = self.under_way.front_mut().and_then(Pending::poll_now) {
            self.under_way.pop_front();
            self.take_back(result.map_err(text)?);
        }
        let is_here = self.node.region.load(COUNT_AT).map_err(text)? > self.seen;
        self.seen += u64::from(is_here);
        Ok(is_here)
    }

    fn take_back(&mut self, completed: Completed) {
        let buffers =
            completed.into_iter().filter_map(|done| if let Done::Buffer(buffer) = done { Some(buffer) } else { None });
        self.spare.extend(buffers);
    }

    fn finish(mut self) -> Result<(), String> {
        for pending in std::mem::take(&mut self.under_way) {
            pending.wait().map_err(text)?;
        }
        let mut message = vec![0; self.body.len()];
        self.node.region.read(BODY_AT, &mut message).map_err(text)?;
        is_pattern(&message)
    }
}

pub(super) struct Socket<'a> {
    stream: &'a TcpStream,
    body: Vec<u8>,
    into: Vec<u8>,
    got: usize,
    has_come: bool,
}

impl Socket<'_> {
    fn send(&mut self) -> Result<(), String> {
        let (mut stream, mut left) = (self.stream, &self.body[..]);
        let since = Instant::now();
        while !left.is_empty() {
            match stream.write(left) {
                Ok(written) => left = &left[written..],
                Err(error) if error.kind() == ErrorKind::WouldBlock && since.elapsed() < PATIENCE => {
                    std::thread::yield_now();
                }
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(())
    }

    fn look(&mut self) -> Result<bool, String> {
        let mut stream = self.stream;
        match stream.read(&mut self.into[self.got..]) {
            Ok(0) => return Err("the other side has closed the connection".to_owned()),
            Ok(bytes) => self.got += bytes,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.to_string()),
        }
        let is_here = self.got == self.into.len();
        if is_here {
            (self.got, self.has_come) = (0, true);
        }
        Ok(is_here)
    }
}

/// By what a message goes: the node of this number, or the connection of this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Route {
    Node(usize),
    Connection(usize),
}
