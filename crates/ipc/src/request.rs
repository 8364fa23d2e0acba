//! What a service sees: clients that come and go, and requests that it answers now or later.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::EventfdFlags;

use crate::counters::Counters;
use crate::error::{Error, Refusal};
use crate::mode::Common;
use crate::session::Session;

/// One connection, never used again for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId(pub(crate) u64);

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// What happened.
pub enum Event<'a> {
    /// A client connected. `pid` is 0 if its process has no number in this namespace.
    Arrived {
        /// Which.
        client: ClientId,
        /// Its user, as the kernel says.
        uid: u32,
        /// Its process when it connected, as the kernel says.
        pid: u32,
    },
    /// A request came.
    Request(Request<'a>),
    /// A client went, died or was dropped. Nothing more comes from it, and answers to it go nowhere.
    Gone {
        /// Which.
        client: ClientId,
    },
}

/// A request, to be answered now ([`answer`](Self::answer)) or later ([`defer`](Self::defer)). Dropped, it is refused
/// as [`Refusal::Unanswered`].
pub struct Request<'a> {
    number: u64,
    bytes: &'a [u8],
    session: &'a mut Session,
    mailbox: &'a Arc<Mailbox>,
    counters: &'a mut Counters,
    settled: bool,
}

impl<'a> Request<'a> {
    pub(crate) fn new(
        number: u64,
        bytes: &'a [u8],
        session: &'a mut Session,
        mailbox: &'a Arc<Mailbox>,
        counters: &'a mut Counters,
    ) -> Self {
        Request { number, bytes, session, mailbox, counters, settled: false }
    }

    /// The client that sent it.
    pub fn client(&self) -> ClientId {
        self.session.client
    }

    /// The client's user.
    pub fn uid(&self) -> u32 {
        self.session.peer.uid
    }

    /// The client's process when it connected, 0 if it has no number in this namespace.
    pub fn pid(&self) -> u32 {
        self.session.peer.pid
    }

    /// The client's number for it.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// What the client sent: a copy, which the client cannot change any more.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Answers. Never blocks: without room in the client's ring the answer waits in the helper.
    ///
    /// # Errors
    /// [`Error::TooLong`] if a ring does not take an answer of that length; the client gets a refusal that says so.
    pub fn answer(mut self, bytes: &[u8]) -> Result<(), Error> {
        self.settled = true;
        let checked = self.mailbox.check(bytes);
        let response = checked.as_ref().map(|()| bytes).map_err(|refusal| *refusal);
        self.session.respond(self.number, response, self.counters);
        checked.map_err(|_| self.mailbox.too_long(bytes))
    }

    /// Answers, and hands a descriptor over with that, if there is one: [`Connection::attached`](crate::Connection::attached) has it, unless the client has left too many untaken.
    ///
    /// # Errors
    /// As [`answer`](Self::answer).
    pub fn answer_with(self, bytes: &[u8], descriptor: Option<BorrowedFd<'_>>) -> Result<(), Error> {
        if let Some(descriptor) = descriptor {
            self.session.attach(self.number, descriptor);
        }
        self.answer(bytes)
    }

    /// Leaves the answer to a [`Responder`], which any thread may use.
    pub fn defer(mut self) -> Responder {
        self.settled = true;
        self.session.defer();
        let (mailbox, client, number) = (self.mailbox.clone(), self.session.client, self.number);
        Responder { mailbox, client, number, settled: false }
    }
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        if !self.settled {
            self.session.respond(self.number, Err(Refusal::Unanswered), self.counters);
        }
    }
}

/// Answers one request later, from any thread. Dropped, it refuses it as [`Refusal::Unanswered`].
pub struct Responder {
    mailbox: Arc<Mailbox>,
    client: ClientId,
    number: u64,
    settled: bool,
}

impl Responder {
    /// The client that sent the request.
    pub fn client(&self) -> ClientId {
        self.client
    }

    /// Answers. If the client is gone the answer is dropped.
    ///
    /// # Errors
    /// As [`Request::answer`].
    pub fn answer(self, bytes: Vec<u8>) -> Result<(), Error> {
        self.answer_with(bytes, None)
    }

    /// As [`Request::answer_with`].
    ///
    /// # Errors
    /// As [`Request::answer`].
    pub fn answer_with(mut self, bytes: Vec<u8>, descriptor: Option<OwnedFd>) -> Result<(), Error> {
        let checked = self.mailbox.check(&bytes);
        let told = checked.map_err(|_| self.mailbox.too_long(&bytes));
        self.settle(checked.map(|()| bytes), descriptor);
        told
    }

    fn settle(&mut self, response: Result<Vec<u8>, Refusal>, attached: Option<OwnedFd>) {
        self.settled = true;
        self.mailbox.put(Late { client: self.client, number: self.number, response, attached });
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        if !self.settled {
            self.settle(Err(Refusal::Unanswered), None);
        }
    }
}

/// Words in the page that all clients read and only this process writes: how a client knows what holds now without asking, and a client whose
/// helper has stopped what held last.
#[derive(Clone)]
pub struct Board(pub(crate) Arc<Common>);

impl Board {
    /// Whether clients see at once that this process has ended, however it ended: by [`BoardReader::helper_lives`](crate::BoardReader::helper_lives).
    pub fn tells_its_end(&self) -> bool {
        self.0.beacon.tells_its_end()
    }

    /// Writes a word. A reader of the word sees everything done before it.
    ///
    /// # Panics
    /// From [`BOARD_WORDS`](crate::BOARD_WORDS) on.
    pub fn publish(&self, at: usize, value: u64) {
        self.0.beacon.publish(at, value);
    }
}

/// Makes [`Server::poll`](crate::Server::poll) return, from any thread.
#[derive(Clone)]
pub struct Waker(pub(crate) Arc<Mailbox>);

impl Waker {
    /// The poll under way, or else the next one, returns without waiting further.
    pub fn wake(&self) {
        self.0.interrupted.store(true, Ordering::Release);
        self.0.ring();
    }
}

pub(crate) struct Late {
    pub(crate) client: ClientId,
    pub(crate) number: u64,
    pub(crate) response: Result<Vec<u8>, Refusal>,
    pub(crate) attached: Option<OwnedFd>,
}

/// Where other threads leave what is for the helper. Bounded by what sessions may defer.
pub(crate) struct Mailbox {
    late: Mutex<Vec<Late>>,
    any: AtomicBool,
    interrupted: AtomicBool,
    doorbell: OwnedFd,
    common: Arc<Common>,
    longest: usize,
}

impl Mailbox {
    pub(crate) fn new(common: Arc<Common>, longest: usize) -> Result<Self, Error> {
        let doorbell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|source| Error::system("make a doorbell", source))?;
        let (late, any, interrupted) = Default::default();
        Ok(Mailbox { late, any, interrupted, doorbell, common, longest })
    }

    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.doorbell.as_fd()
    }

    /// Whether the helper has to look: the flags are stored before the fence in [`ring`](Self::ring), so bell.rs's
    /// argument holds for them as for a ring's tail.
    pub(crate) fn is_waiting(&self) -> bool {
        self.any.load(Ordering::Acquire) || self.interrupted.load(Ordering::Acquire)
    }

    pub(crate) fn take_interruption(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed) && self.interrupted.swap(false, Ordering::Acquire)
    }

    /// Swaps what was left with `empty`.
    pub(crate) fn take(&self, empty: &mut Vec<Late>) {
        debug_assert!(empty.is_empty());
        if self.any.load(Ordering::Acquire) {
            let mut late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::swap(&mut *late, empty);
            self.any.store(false, Ordering::Relaxed);
        }
    }

    fn put(&self, answer: Late) {
        {
            let mut late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
            late.push(answer);
            self.any.store(true, Ordering::Release);
        }
        self.ring();
    }

    fn ring(&self) {
        if self.common.beacon.is_up() {
            // Fails only with the counter at its end, when the edge has long been seen.
            let _ = rustix::io::write(&self.doorbell, &1u64.to_ne_bytes());
        }
    }

    fn check(&self, answer: &[u8]) -> Result<(), Refusal> {
        if answer.len() <= self.longest {
            return Ok(());
        }
        let bytes = u32::try_from(answer.len()).unwrap_or(u32::MAX);
        Err(Refusal::AnswerTooLong { bytes, limit: self.longest as u32 })
    }

    fn too_long(&self, answer: &[u8]) -> Error {
        Error::TooLong { bytes: answer.len(), limit: self.longest }
    }
}
