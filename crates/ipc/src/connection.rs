//! A program's side of a connection to its helper.
//!
//! One thread uses a connection at a time; a program with many threads gives each its own. It is not for use after fork
//! in parent and child both: connect again in the child.
//!
//! A wait ends with the answer, with the deadline, or with the end of the helper, which is seen at once when the
//! helper has the time to say it, and by a look at the socket every tenth of a second when it was killed.

use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType,
};
use verbena_terms::{BootClock, Clock, Time};

use crate::beacon::BoardReader;
use crate::counters::ConnectionCounters;
use crate::error::{Breach, Error, Over, Refusal};
use crate::handshake::{REPLY_BYTES, Reply, hello};
use crate::layout::Geometry;
use crate::message::{ANSWER, REFUSED, REQUEST, parse_refusal};
use crate::mode::{self, ClientEnd, Mode, Waited, Want};
use crate::ring::Header;

/// A connection to the node's helper.
pub struct Connection {
    socket: OwnedFd,
    end: Box<dyn ClientEnd>,
    client: u64,
    /// The process that connected; a child that was forked from it only closes its copy.
    maker: u32,
    last_number: u64,
    /// Posted, not answered, and not given up; growing.
    outstanding: Vec<u64>,
    /// Answered, and not polled.
    arrived: VecDeque<Response>,
    /// Handed over with answers, and not taken: the latest.
    attached: VecDeque<(u64, OwnedFd)>,
    over: Option<Over>,
    counters: ConnectionCounters,
    payload: Vec<u8>,
}

/// Its socket. The helper takes the program for alive as long as any process has it.
impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The answer to a posted request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// What [`Connection::post`] returned.
    pub number: u64,
    /// The bytes, or why there is no answer.
    pub answer: Result<Vec<u8>, Refusal>,
}

/// Requests that one connection may have outstanding or answered and not polled.
pub const MAX_OUTSTANDING: usize = 256;

/// How long a helper that was killed goes unseen by a sleeping client.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const CONNECT_AGAIN_AFTER: Duration = Duration::from_millis(2);
/// Descriptors that wait to be taken; older ones are closed.
const MOST_ATTACHED: usize = 8;
/// More than any mode passes, so that too many are seen as too many.
const MOST_DESCRIPTORS: usize = 8;

impl Connection {
    /// Connects to the helper that listens at `path`, in the mode [`Mode::Adaptive`].
    ///
    /// # Errors
    /// As [`connect_in`](Self::connect_in).
    pub fn connect(path: &Path, deadline: Time) -> Result<Connection, Error> {
        Connection::connect_in(Mode::default(), path, deadline)
    }

    /// Connects to the helper that listens at `path`.
    ///
    /// # Errors
    /// [`Error::NoHelper`] if no helper listens, [`Error::NoGreeting`] at the deadline, [`Error::Over`] with the
    /// helper's
    /// reason if it refuses, [`Error::Format`] if it is of another version.
    pub fn connect_in(mode: Mode, path: &Path, deadline: Time) -> Result<Connection, Error> {
        let socket = dial(path, deadline)?;
        // A helper that refuses us closes before it has read this. Its word is then there to be read all the same.
        let _ = rustix::net::send(&socket, &hello(mode), SendFlags::NOSIGNAL);
        let (reply, descriptors) = loop {
            if !wait_readable(&socket, deadline.since(BootClock.now()))? {
                return Err(Error::NoGreeting { path: path.to_owned() });
            }
            match read_reply(&socket)? {
                // The greeting has all that it needs or nothing (MOST_DESCRIPTORS).
                Heard::Reply(Reply::Welcome { .. }, _, Passed::InPart) => return Err(Error::OutOfDescriptors),
                Heard::Reply(reply, descriptors, _) => break (reply, descriptors),
                Heard::Nothing => {}
                Heard::Closed => return Err(Error::Over(Over::HelperGone)),
            }
        };
        let (ring_bytes, client) = match reply {
            Reply::Welcome { ring_bytes, client } => (ring_bytes, client),
            Reply::Farewell(reason) => return Err(Error::Over(reason.into())),
            Reply::Attached { .. } => return Err(Error::Over(Over::Broken(Breach::Talk))),
        };
        let end = mode::accept(mode, Geometry::new(ring_bytes)?, descriptors)?;
        Ok(Connection {
            socket,
            end,
            client,
            maker: std::process::id(),
            last_number: 0,
            outstanding: Vec::new(),
            arrived: VecDeque::new(),
            attached: VecDeque::new(),
            over: None,
            counters: ConnectionCounters::default(),
            payload: Vec::new(),
        })
    }

    /// What the helper calls this client.
    pub fn client(&self) -> u64 {
        self.client
    }

    /// Longest request, bytes.
    pub fn longest_request(&self) -> usize {
        self.end.longest()
    }

    /// The helper's board, to be read by any thread.
    pub fn board(&self) -> BoardReader {
        self.end.board()
    }

    /// Whether the connection has ended.
    pub fn is_over(&self) -> bool {
        self.over.is_some()
    }

    /// What was counted so far.
    pub fn counters(&self) -> ConnectionCounters {
        self.counters
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    /// As [`post`](Self::post); [`Error::Deadline`] if the answer is not there by then; [`Error::Refused`].
    pub fn call(&mut self, request: &[u8], deadline: Time) -> Result<Vec<u8>, Error> {
        let number = self.post(request, deadline)?;
        loop {
            let waited = self.wait(Want { response: true, room: None, is_call: true }, deadline);
            while let Some(response) = self.next() {
                if response.number == number {
                    return Ok(response.answer?);
                }
                self.arrived.push_back(response);
            }
            if let Err(error) = waited {
                self.forget(number);
                return Err(error.unwrap_or(Error::Deadline { number }));
            }
        }
    }

    /// Sends a request and returns its number, waiting only while the ring is full.
    ///
    /// # Errors
    /// [`Error::Full`] if there was no room until the deadline, [`Error::TooLong`], [`Error::Outstanding`] after
    /// [`MAX_OUTSTANDING`] requests that were not polled: in these cases nothing was sent. [`Error::Over`] if the
    /// connection has ended.
    pub fn post(&mut self, request: &[u8], deadline: Time) -> Result<u64, Error> {
        if request.len() > self.end.longest() {
            return Err(Error::TooLong { bytes: request.len(), limit: self.end.longest() });
        }
        if self.outstanding.len() + self.arrived.len() >= MAX_OUTSTANDING {
            return Err(Error::Outstanding { limit: MAX_OUTSTANDING });
        }
        let header = Header { kind: REQUEST, number: self.last_number + 1 };
        let mut waited = false;
        while !self.send(header, request)? {
            if !waited {
                waited = true;
                self.counters.full_rings += 1;
            }
            // The helper takes nothing from us while our responses have no room: so we take them while we wait.
            self.drain();
            let want = Want { response: true, room: Some(request.len()), is_call: false };
            if let Err(error) = self.wait(want, deadline) {
                self.end.give_up();
                return Err(error.unwrap_or(Error::Full));
            }
        }
        self.last_number = header.number;
        self.outstanding.push(header.number);
        self.counters.requests += 1;
        Ok(header.number)
    }

    /// The next response that arrived, in any order; waits for one until the deadline, and not at all if it has passed.
    ///
    /// # Errors
    /// [`Error::Over`] once the connection has ended and every response that had arrived was returned.
    pub fn poll(&mut self, deadline: Time) -> Result<Option<Response>, Error> {
        loop {
            self.drain();
            if let Some(response) = self.arrived.pop_front() {
                return Ok(Some(response));
            }
            match self.wait(Want { response: true, room: None, is_call: false }, deadline) {
                Ok(()) => {}
                Err(None) => return Ok(None),
                Err(Some(error)) => return Err(error),
            }
        }
    }

    /// The descriptor that the helper handed over with its answer to this request, after that answer was taken; once. The latest few are kept.
    pub fn attached(&mut self, number: u64) -> Option<OwnedFd> {
        // It was sent before the answer.
        self.look_at_socket();
        let at = self.attached.iter().position(|(its, _)| *its == number);
        let found = at.and_then(|at| self.attached.remove(at)).map(|(_, descriptor)| descriptor);
        // The descriptor of a request that was given up is dropped.
        let (outstanding, arrived) = (&self.outstanding, &self.arrived);
        self.attached.retain(|(its, _)| outstanding.contains(its) || arrived.iter().any(|one| one.number == *its));
        found
    }

    fn send(&mut self, header: Header, request: &[u8]) -> Result<bool, Error> {
        if let Some(over) = self.over {
            return Err(Error::Over(over));
        }
        self.end.send(header, request).map_err(|breach| self.break_off(breach))
    }

    /// Takes every response that is there.
    fn drain(&mut self) {
        while let Some(response) = self.next() {
            self.arrived.push_back(response);
        }
    }

    /// Takes the next response that a caller waits for.
    fn next(&mut self) -> Option<Response> {
        loop {
            match self.take() {
                Ok(None) => return None,
                // Not outstanding any more: its caller gave up at a deadline.
                Ok(Some(response)) if !self.forget(response.number) => {}
                Ok(response) => return response,
                Err(breach) => {
                    self.break_off(breach);
                    return None;
                }
            }
        }
    }

    fn take(&mut self) -> Result<Option<Response>, Breach> {
        if matches!(self.over, Some(Over::Broken(_))) {
            return Ok(None);
        }
        let Some(Header { kind, number }) = self.end.receive(&mut self.payload)? else { return Ok(None) };
        let answer = match kind {
            ANSWER => Ok(std::mem::take(&mut self.payload)),
            REFUSED => Err(parse_refusal(&self.payload)?),
            _ => return Err(Breach::Kind { kind }),
        };
        if number == 0 || number > self.last_number {
            return Err(Breach::Number { number });
        }
        self.counters.responses += 1;
        Ok(Some(Response { number, answer }))
    }

    /// It is outstanding no more. Whether it was.
    fn forget(&mut self, number: u64) -> bool {
        let found = self.outstanding.binary_search(&number);
        if let Ok(at) = found {
            self.outstanding.remove(at);
        }
        found.is_ok()
    }

    /// Waits for what is wanted. An error without content is the deadline.
    fn wait(&mut self, want: Want, deadline: Time) -> Result<(), Option<Error>> {
        if let Some(over) = self.over {
            return Err(Some(Error::Over(over)));
        }
        if self.end.glance(want) {
            self.counters.spins += 1;
            return Ok(());
        }
        let left = deadline.since(BootClock.now());
        if left.is_zero() {
            return Err(None);
        }
        match self.end.wait(want, left.min(LOOK_EVERY)) {
            Waited::Spun => self.counters.spins += 1,
            Waited::Slept => self.counters.sleeps += 1,
            // What the helper put into the ring before it ended is taken first: the caller drains once more.
            Waited::InVain => self.look_at_socket(),
        }
        Ok(())
    }

    fn look_at_socket(&mut self) {
        // What is handed over was asked for, one by one.
        for _ in 0..=MAX_OUTSTANDING {
            let over = match read_reply(&self.socket) {
                Ok(Heard::Nothing) => return,
                // None where this process may have no more of them.
                Ok(Heard::Reply(Reply::Attached { number }, mut descriptors, _)) if descriptors.len() <= 1 => {
                    if self.attached.len() == MOST_ATTACHED {
                        self.attached.pop_front();
                    }
                    self.attached.extend(descriptors.pop().map(|descriptor| (number, descriptor)));
                    continue;
                }
                Ok(Heard::Reply(Reply::Farewell(reason), ..)) => Over::Dismissed(reason),
                // A second welcome is a breach.
                Ok(Heard::Reply(..)) => Over::Broken(Breach::Talk),
                Ok(Heard::Closed) | Err(_) => Over::HelperGone,
            };
            self.end_with(over);
            return;
        }
    }

    /// A queue is gone with the helper, which says so on the socket first.
    fn break_off(&mut self, breach: Breach) -> Error {
        if breach == Breach::Queue {
            self.look_at_socket();
        }
        self.end_with(breach.into())
    }

    /// The first reason stays.
    fn end_with(&mut self, over: Over) -> Error {
        Error::Over(*self.over.get_or_insert(over))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.maker != std::process::id() {
            return;
        }
        if self.over.is_none() {
            self.look_at_socket();
        }
        if self.over.is_some() {
            self.end.hang_up();
        }
    }
}

fn dial(path: &Path, deadline: Time) -> Result<OwnedFd, Error> {
    let failed = |source: Errno| Error::file("connect to", path, source);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).map_err(failed)?;
    let address = SocketAddrUnix::new(path).map_err(|_| Error::Name { path: path.to_owned() })?;
    loop {
        match rustix::net::connect(&socket, &address) {
            Ok(()) => return Ok(socket),
            Err(Errno::NOENT | Errno::CONNREFUSED) => return Err(Error::NoHelper { path: path.to_owned() }),
            // The helper's queue is full (unix(7)); the only thing to wait for is time.
            Err(Errno::AGAIN | Errno::INTR) => {
                let left = deadline.since(BootClock.now());
                if left.is_zero() {
                    return Err(Error::NoGreeting { path: path.to_owned() });
                }
                std::thread::sleep(left.min(CONNECT_AGAIN_AFTER));
            }
            Err(source) => return Err(failed(source)),
        }
    }
}

/// Whether the socket became readable, or closed, in that time.
fn wait_readable(socket: &OwnedFd, at_most: Duration) -> Result<bool, Error> {
    let timeout = Timespec::try_from(at_most).ok();
    match rustix::event::poll(&mut [PollFd::new(socket, PollFlags::IN)], timeout.as_ref()) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(true),
        Err(source) => Err(Error::system("wait for the helper's greeting", source)),
    }
}

enum Heard {
    Nothing,
    Closed,
    Reply(Reply, Vec<OwnedFd>, Passed),
}

/// Whether the descriptors that the helper passed have all come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Passed {
    All,
    /// The kernel drops what this process may not have any more (cmsg(3), MSG_CTRUNC; scm_detach_fds in net/core/scm.c).
    InPart,
}

fn read_reply(socket: &OwnedFd) -> Result<Heard, Error> {
    let mut bytes = [0; REPLY_BYTES + 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let mut receive = || rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, flags);
    let received = match receive() {
        // The helper closed with our greeting unread. That is reported once, before what it had said.
        Err(Errno::CONNRESET) => receive(),
        other => other,
    };
    let (length, passed) = match received {
        Ok(message) if message.flags.contains(ReturnFlags::CTRUNC) => (message.bytes, Passed::InPart),
        Ok(message) => (message.bytes, Passed::All),
        Err(Errno::AGAIN | Errno::INTR) => return Ok(Heard::Nothing),
        Err(Errno::CONNRESET) => return Ok(Heard::Closed),
        Err(source) => return Err(Error::system("hear the helper", source)),
    };
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    if length == 0 {
        return Ok(Heard::Closed);
    }
    Ok(Heard::Reply(Reply::parse(&bytes[..length])?, descriptors, passed))
}
