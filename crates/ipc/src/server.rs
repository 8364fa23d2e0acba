//! The helper's side: one thread serves all clients.
//!
//! A turn goes once over the sessions and looks into their rings, which costs a load each and no system call. When there
//! was nothing the helper spins over the same loads for a while, then sleeps in epoll: on the clients' doorbells, on its
//! own (answers given by other threads), on the listener and on the sockets, which tell of deaths. Under load it never
//! sleeps, so it looks at the sockets every millisecond in between.

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType,
};
use verbena_terms::{BootClock, Clock, Time};

use crate::beacon::Beacon;
use crate::cores;
use crate::counters::Counters;
use crate::directory::Claim;
use crate::error::Error;
use crate::handshake::{Farewell, HELLO_BYTES, Reply, parse_hello};
use crate::hints::Hints;
use crate::layout::Geometry;
use crate::mode::{self, Common, Mode};
use crate::peer::{self, Peer};
use crate::record::Queues;
use crate::request::{Board, ClientId, Event, Late, Mailbox, Waker};
use crate::session::{BATCH, Session};
use crate::spin::Spin;

/// What a helper may be told.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of each of a client's two rings: a power of two, 4 KiB to 16 MiB. The longest message is a quarter.
    pub ring_bytes: u32,
    /// Clients at once, those included that have not greeted yet. Each takes two descriptors and two rings.
    pub max_clients: usize,
    /// Requests of one client that may wait for a deferred answer; beyond it none is taken from that client.
    pub max_deferred: usize,
    /// Users who may connect beside the helper's own.
    pub allowed_uids: Vec<u32>,
    /// Which modes clients may ask for.
    pub modes: Vec<Mode>,
    /// A core for the thread that calls [`Server::poll`] (always the same one): it stays there from its first call on, and looks
    /// again and again instead of sleeping. None: it runs where it runs, and sleeps when nothing is to do.
    pub progress_core: Option<usize>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            ring_bytes: 64 << 10,
            max_clients: 1024,
            max_deferred: 64,
            allowed_uids: Vec::new(),
            modes: Mode::ALL.to_vec(),
            progress_core: None,
        }
    }
}

/// The helper's end of every client on one socket.
pub struct Server {
    claim: Claim,
    listener: OwnedFd,
    epoll: OwnedFd,
    options: Options,
    geometry: Geometry,
    uid: u32,
    common: Arc<Common>,
    mailbox: Arc<Mailbox>,
    newcomers: BTreeMap<u64, (OwnedFd, Peer)>,
    sessions: BTreeMap<u64, Session>,
    last_client: u64,
    spin: Spin,
    hints: Hints,
    counters: Counters,
    /// Until it is there.
    core_to_go_to: Option<usize>,
    /// Turns since the last look at the clock.
    turns: u32,
    /// When to look at the sockets without having slept.
    look_due: Time,
    /// Set while no descriptors are left to accept with.
    accept_again: Option<Time>,
    payload: Vec<u8>,
    late: Vec<Late>,
}

const LOOK_EVERY: Duration = Duration::from_millis(1);
/// Turns between two looks at the clock.
const TURNS: u32 = 16;
/// Looks into rings between two looks at the clock, where nothing comes.
const LOOKS: usize = 64;
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
const BACKLOG: i32 = 128;
const ACCEPTS_AT_ONCE: usize = 16;
const EVENTS_AT_ONCE: usize = 64;

/// What epoll says is ready: `[client << 2 | which]`; clients count from 1.
const LISTENER: u64 = 0;
const MAILBOX: u64 = 1;
const SOCKET: u64 = 2;
const DOORBELL: u64 = 3;

impl Server {
    /// Listens as `directory`/`name`. The directory must exist and be writable by nobody else
    /// ([`runtime_directory`](crate::runtime_directory) makes the user's).
    ///
    /// # Errors
    /// [`Error::AlreadyServed`] names the process that serves it; the others name what is wrong with the directory, the
    /// name or the options.
    pub fn bind(directory: &Path, name: &str, options: Options) -> Result<Server, Error> {
        let geometry = Geometry::new(options.ring_bytes)?;
        let limits = [
            ("max_clients", options.max_clients),
            ("max_deferred", options.max_deferred),
            ("modes", options.modes.len()),
        ];
        for (option, value) in limits {
            if value == 0 {
                return Err(Error::ZeroOption { option });
            }
        }
        options.progress_core.map_or(Ok(()), cores::check)?;
        let claim = Claim::take(directory, name)?;
        let uid = rustix::process::geteuid().as_raw();
        let (queues, swept_queues) = Queues::swept(claim.socket(), uid)?;
        let listener = listen(claim.socket(), !options.allowed_uids.is_empty())?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|source| Error::system("make an epoll instance", source))?;
        let common =
            Arc::new(Common { beacon: Beacon::new(options.progress_core.is_some())?, queues: Arc::new(queues) });
        let mailbox = Arc::new(Mailbox::new(common.clone(), geometry.longest_message())?);
        let cores = cores::of_this_process();
        let mut server = Server {
            claim,
            listener,
            epoll,
            options,
            geometry,
            uid,
            common,
            mailbox,
            newcomers: BTreeMap::new(),
            sessions: BTreeMap::new(),
            last_client: 0,
            spin: Spin::new(cores),
            hints: Hints::new(cores),
            counters: Counters { swept_queues, ..Counters::default() },
            core_to_go_to: None,
            turns: TURNS,
            look_due: Time::ZERO,
            accept_again: None,
            payload: Vec::new(),
            late: Vec::new(),
        };
        server.core_to_go_to = server.options.progress_core;
        server.watch(server.listener.as_fd(), LISTENER, epoll::EventFlags::IN)?;
        server.watch(server.mailbox.bell(), MAILBOX, epoll::EventFlags::IN | epoll::EventFlags::ET)?;
        Ok(server)
    }

    /// Where clients connect.
    pub fn path(&self) -> PathBuf {
        self.claim.socket().to_owned()
    }

    /// What was counted so far.
    pub fn counters(&self) -> Counters {
        Counters { clients: self.sessions.len() as u64, ..self.counters }
    }

    /// What services write for all clients.
    pub fn board(&self) -> Board {
        Board(self.common.clone())
    }

    /// Ends [`poll`](Self::poll) early, from another thread.
    pub fn waker(&self) -> Waker {
        Waker(self.mailbox.clone())
    }

    /// Hands what happened to `handler`, waiting at most `timeout` for it. Returns how many requests were handled; 0 after
    /// the timeout, after [`Waker::wake`], and sometimes earlier.
    ///
    /// # Errors
    /// Only if the kernel refuses epoll itself, or the core. What a client does wrong ends that client.
    pub fn poll(&mut self, timeout: Duration, handler: &mut dyn FnMut(Event<'_>)) -> Result<usize, Error> {
        if let Some(core) = self.core_to_go_to.take() {
            cores::stay_on(core)?;
        }
        self.turns += 1;
        if self.turns >= TURNS {
            self.turns = 0;
            self.look_if_due(BootClock.now(), handler)?;
        }
        let handled = self.turn(handler);
        if handled > 0 || timeout.is_zero() || self.mailbox.take_interruption() {
            return Ok(handled);
        }
        let started = BootClock.now();
        if let Some(handled) = self.spin(started, timeout, handler)? {
            return Ok(handled);
        }
        let left = (started + timeout).since(BootClock.now());
        self.look(left, handler)?;
        self.mailbox.take_interruption();
        Ok(self.turn(handler))
    }

    /// Once over all rings.
    fn turn(&mut self, handler: &mut dyn FnMut(Event<'_>)) -> usize {
        self.mailbox.take(&mut self.late);
        for Late { client, number, response } in self.late.drain(..) {
            if let Some(session) = self.sessions.get_mut(&client.0) {
                session.respond_late(number, response.as_deref().map_err(|refusal| *refusal), &mut self.counters);
            }
        }
        let mut handled = 0;
        let mut broken = Vec::new();
        for session in self.sessions.values_mut() {
            handled +=
                session.serve(self.options.max_deferred, &mut self.payload, &self.mailbox, &mut self.counters, handler);
            if session.is_broken() {
                broken.push(session.client);
            }
        }
        for client in broken {
            self.drop_broken(client, handler);
        }
        handled
    }

    /// Turns until something comes, for as long as that pays. What was handled, if something came; also nothing, if it was a
    /// call of the waker, or the end of the timeout.
    fn spin(
        &mut self,
        started: Time,
        timeout: Duration,
        handler: &mut dyn FnMut(Event<'_>),
    ) -> Result<Option<usize>, Error> {
        let is_dedicated = self.options.progress_core.is_some();
        let allowed = if is_dedicated { timeout } else { self.spin.budget(self.hints.is_crowded()) };
        let budget = allowed.min(timeout);
        if budget.is_zero() {
            return Ok(None);
        }
        let mut now = started;
        loop {
            for _ in 0..(LOOKS / self.sessions.len().max(1)).clamp(1, TURNS as usize) {
                let handled = self.turn(handler);
                if handled > 0 || self.mailbox.take_interruption() {
                    self.spin.paid(now.since(started));
                    self.counters.spins += 1;
                    return Ok(Some(handled));
                }
            }
            std::hint::spin_loop();
            now = BootClock.now();
            self.look_if_due(now, handler)?;
            if now >= started + budget {
                break;
            }
        }
        if is_dedicated {
            return Ok(Some(0));
        }
        // That it was cut short says nothing of what it is worth.
        if budget == allowed {
            self.spin.wasted(budget);
        }
        Ok(None)
    }

    fn look_if_due(&mut self, now: Time, handler: &mut dyn FnMut(Event<'_>)) -> Result<(), Error> {
        self.hints.say_core(&self.common.beacon);
        if now < self.look_due {
            return Ok(());
        }
        self.look(Duration::ZERO, handler)
    }

    /// Looks at sockets and doorbells, and sleeps up to `at_most` if nothing is ready anywhere.
    fn look(&mut self, at_most: Duration, handler: &mut dyn FnMut(Event<'_>)) -> Result<(), Error> {
        let mut space = [MaybeUninit::uninit(); EVENTS_AT_ONCE];
        let events = self.wait(at_most, &mut space)?;
        let now = BootClock.now();
        self.look_due = now + LOOK_EVERY;
        self.hints.say_core(&self.common.beacon);
        let asked = self.sessions.values_mut().map(|session| &mut session.asked);
        self.hints.count(now, &self.common.beacon, self.counters.requests, asked);
        for event in events {
            let (client, which) = (event.data.u64() >> 2, event.data.u64() & 3);
            match which {
                LISTENER => self.accept(now),
                SOCKET if self.newcomers.contains_key(&client) => self.greet(client, handler),
                SOCKET => self.hear(client, handler),
                // A ring of the bell has done its work when epoll returned.
                MAILBOX | DOORBELL => {}
                _ => unreachable!("two bits"),
            }
        }
        if self.accept_again.is_some_and(|again| now >= again) {
            self.accept_again = None;
            self.listen_for(epoll::EventFlags::IN)?;
        }
        Ok(())
    }

    fn wait<'a>(
        &mut self,
        at_most: Duration,
        space: &'a mut [MaybeUninit<epoll::Event>],
    ) -> Result<&'a [epoll::Event], Error> {
        let Server { sessions, mailbox, options, common, epoll, counters, accept_again, .. } = self;
        let mut waited = Ok(&mut [][..]);
        let wait = |at_most: Duration| {
            let timeout = Timespec::try_from(at_most).ok();
            waited = epoll::wait(&*epoll, space, timeout.as_ref()).map(|(events, _)| events);
        };
        if at_most.is_zero() {
            wait(Duration::ZERO);
        } else {
            let pause = accept_again.map_or(at_most, |again| again.since(BootClock.now()).min(at_most));
            let there = || is_ready(sessions, mailbox, options);
            if common.beacon.sleep_unless(there, || wait(pause)) {
                counters.sleeps += 1;
            }
        }
        match waited {
            Ok(events) => Ok(events),
            Err(Errno::INTR) => Ok(&[]),
            Err(source) => Err(Error::system("wait for clients", source)),
        }
    }

    fn accept(&mut self, now: Time) {
        for _ in 0..ACCEPTS_AT_ONCE {
            match rustix::net::accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => self.admit(socket),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::AGAIN) => return,
                // No descriptors or no memory: leave the others in the queue for a moment instead of asking again
                // at once.
                Err(_) => {
                    self.counters.refused_clients += 1;
                    self.accept_again = Some(now + ACCEPT_PAUSE);
                    // If even this fails, epoll tells of the listener again and again: slow, not wrong.
                    let _ = self.listen_for(epoll::EventFlags::empty());
                    return;
                }
            }
        }
    }

    fn admit(&mut self, socket: OwnedFd) {
        let Ok(peer) = peer::of(socket.as_fd()) else { return };
        if peer.uid != self.uid && !self.options.allowed_uids.contains(&peer.uid) {
            return self.turn_away(socket, Farewell::Stranger);
        }
        if self.newcomers.len() + self.sessions.len() >= self.options.max_clients {
            // Who connected and never greeted gives way, or a few of them would lock everybody out.
            match self.newcomers.pop_first() {
                Some((_, (silent, _))) => self.turn_away(silent, Farewell::Crowded),
                None => return self.turn_away(socket, Farewell::Crowded),
            }
        }
        self.last_client += 1;
        let client = self.last_client;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
        match self.watch(socket.as_fd(), client << 2 | SOCKET, flags) {
            Ok(()) => drop(self.newcomers.insert(client, (socket, peer))),
            Err(_) => self.turn_away(socket, Farewell::Exhausted),
        }
    }

    /// A newcomer said something.
    fn greet(&mut self, client: u64, handler: &mut dyn FnMut(Event<'_>)) {
        let mut hello = [0; HELLO_BYTES + 1];
        let (socket, peer) = self.newcomers.remove(&client).expect("invariant: looked up by the caller");
        let length = match rustix::net::recv(&socket, &mut hello[..], RecvFlags::DONTWAIT) {
            Ok((_, length)) => length,
            Err(Errno::AGAIN | Errno::INTR) => return drop(self.newcomers.insert(client, (socket, peer))),
            Err(_) => return,
        };
        if length == 0 {
            return;
        }
        let opened = parse_hello(&hello[..length]).and_then(|mode| {
            if !self.options.modes.contains(&mode) {
                return Err(Farewell::NotServed);
            }
            let opened = mode::open(mode, &self.common, peer.uid, self.geometry);
            opened.map(|(end, passed)| (mode, end, passed)).map_err(|_| Farewell::Exhausted)
        });
        let (mode, end, passed) = match opened {
            Ok(opened) => opened,
            Err(reason) => return self.turn_away(socket, reason),
        };
        let doorbell = epoll::EventFlags::IN | epoll::EventFlags::ET;
        if self.watch(end.bell(), client << 2 | DOORBELL, doorbell).is_err() {
            return self.turn_away(socket, Farewell::Exhausted);
        }
        let id = ClientId(client);
        let session = Session::new(id, mode, peer, socket, end);
        let welcome = Reply::Welcome { ring_bytes: self.geometry.ring_bytes(), client };
        if !tell(session.socket.as_fd(), welcome, &passed) {
            self.forget_bell(&session);
            return;
        }
        self.counters.of_mode[mode as usize].clients += 1;
        self.sessions.insert(client, session);
        handler(Event::Arrived { client: id, uid: peer.uid, pid: peer.pid });
    }

    /// A client's socket is ready, which after the greeting means that it went, or talks where it must not.
    fn hear(&mut self, client: u64, handler: &mut dyn FnMut(Event<'_>)) {
        let Some(session) = self.sessions.get(&client) else { return };
        match rustix::net::recv(&session.socket, &mut [MaybeUninit::uninit(); 1], RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            Ok((_, 1..)) => self.drop_broken(ClientId(client), handler),
            Ok((_, 0)) | Err(_) => {
                self.counters.dead_clients += 1;
                self.serve_the_last(client, handler);
                self.remove(ClientId(client), handler);
            }
        }
    }

    /// What a client had put into its ring before it went is handled: a program may post and end. No more than a ring
    /// holds, because somebody else may still write into it.
    fn serve_the_last(&mut self, client: u64, handler: &mut dyn FnMut(Event<'_>)) {
        let Some(session) = self.sessions.get_mut(&client) else { return };
        for _ in 0..self.geometry.most_messages().div_ceil(BATCH) {
            let (mailbox, counters) = (&self.mailbox, &mut self.counters);
            if session.serve(self.options.max_deferred, &mut self.payload, mailbox, counters, handler) == 0 {
                return;
            }
        }
    }

    fn drop_broken(&mut self, client: ClientId, handler: &mut dyn FnMut(Event<'_>)) {
        self.counters.bad_frames += 1;
        if let Some(session) = self.sessions.get_mut(&client.0) {
            say_farewell(session, Farewell::Breach, false);
        }
        self.remove(client, handler);
    }

    fn remove(&mut self, client: ClientId, handler: &mut dyn FnMut(Event<'_>)) {
        let session = self.sessions.remove(&client.0).expect("invariant: the caller found it");
        self.counters.of_mode[session.mode as usize].clients -= 1;
        self.forget_bell(&session);
        drop(session);
        handler(Event::Gone { client });
    }

    /// epoll watches what a descriptor refers to, not the descriptor, and the client has its own of the same doorbell: to
    /// close ours would not end the watching.
    fn forget_bell(&self, session: &Session) {
        let forgotten = epoll::delete(&self.epoll, session.bell());
        debug_assert!(forgotten.is_ok());
    }

    fn turn_away(&mut self, socket: OwnedFd, reason: Farewell) {
        self.counters.refused_clients += 1;
        tell(socket.as_fd(), Reply::Farewell(reason), &[]);
    }

    fn watch(&self, what: BorrowedFd<'_>, token: u64, flags: epoll::EventFlags) -> Result<(), Error> {
        epoll::add(&self.epoll, what, epoll::EventData::new_u64(token), flags)
            .map_err(|source| Error::system("watch a descriptor", source))
    }

    fn listen_for(&self, flags: epoll::EventFlags) -> Result<(), Error> {
        epoll::modify(&self.epoll, &self.listener, epoll::EventData::new_u64(LISTENER), flags)
            .map_err(|source| Error::system("watch the listener", source))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for session in self.sessions.values_mut() {
            say_farewell(session, Farewell::ShuttingDown, true);
        }
        for (socket, _) in self.newcomers.values() {
            tell(socket.as_fd(), Reply::Farewell(Farewell::ShuttingDown), &[]);
        }
    }
}

fn is_ready(sessions: &mut BTreeMap<u64, Session>, mailbox: &Mailbox, options: &Options) -> bool {
    mailbox.is_waiting() || sessions.values_mut().any(|session| session.is_ready(options.max_deferred))
}

/// The word goes first, so that it is there when the client wakes.
fn say_farewell(session: &mut Session, reason: Farewell, keeps: bool) {
    tell(session.socket.as_fd(), Reply::Farewell(reason), &[]);
    session.hang_up(keeps);
}

/// Says one thing on a socket, if it takes it at once. Whether it did.
fn tell(socket: BorrowedFd<'_>, reply: Reply, passed: &[OwnedFd]) -> bool {
    let passed: Vec<BorrowedFd<'_>> = passed.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !passed.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(&passed)) {
        return false;
    }
    let bytes = reply.encode();
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    rustix::net::sendmsg(socket, &[std::io::IoSlice::new(&bytes)], &mut ancillary, flags).is_ok()
}

fn listen(path: &Path, for_others: bool) -> Result<OwnedFd, Error> {
    let failed = |source: Errno| Error::file("listen at", path, source);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).map_err(failed)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path).map_err(failed)?).map_err(failed)?;
    // To connect takes the right to write. Who connects is checked again, by name; nobody can before `listen`.
    let mode = if for_others { 0o622 } else { 0o600 };
    rustix::fs::chmod(path, rustix::fs::Mode::from_raw_mode(mode)).map_err(failed)?;
    rustix::net::listen(&socket, BACKLOG).map_err(failed)?;
    Ok(socket)
}

#[cfg(test)]
mod tests;
