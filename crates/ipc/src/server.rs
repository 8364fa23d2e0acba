//! The helper's side: one thread serves all clients.
//!
//! A turn goes once over the sessions and looks into their rings, which costs a load each and no system call. After an
//! empty turn the helper spins over the same loads for a while, if that can bring anything, then sleeps in epoll: on
//! the clients' doorbells, on its own (answers given by other threads), on the listener and on the sockets, which
//! report deaths. Under load it never sleeps, so it looks at the sockets every millisecond in between.

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::RecvFlags;
use verbena_terms::{BootClock, Clock, Time};

use crate::beacon::Beacon;
use crate::cores;
use crate::counters::Counters;
use crate::directory::Claim;
use crate::error::Error;
use crate::handshake::{Farewell, Reply};
use crate::hints::Hints;
use crate::layout::Geometry;
use crate::mode::{self, Common, Mode};
use crate::newcomers::{Greeting, Newcomers, tell};
use crate::record::Queues;
use crate::request::{Board, ClientId, Event, Late, Mailbox, Waker};
use crate::session::{BATCH, Session};
use crate::spin::Spin;
use crate::watch::{EVENTS_AT_ONCE, Ready, Space, Watch};

/// The settings of a server.
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
    watch: Watch,
    options: Options,
    geometry: Geometry,
    common: Arc<Common>,
    mailbox: Arc<Mailbox>,
    newcomers: Newcomers,
    sessions: BTreeMap<u64, Session>,
    spin: Spin,
    hints: Hints,
    counters: Counters,
    /// Until it is there.
    core_to_go_to: Option<usize>,
    /// Turns since the last look at the clock.
    turns: u32,
    /// When to look at the sockets without having slept.
    look_due: Time,
    payload: Vec<u8>,
    late: Vec<Late>,
}

/// How a spin ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spun {
    /// This many requests were handled: 0 after a call of the waker, or at the end of the timeout of a thread that
    /// never sleeps.
    Came(usize),
    Over,
    /// No client can ask while the spinning goes on.
    Pointless,
}

const LOOK_EVERY: Duration = Duration::from_millis(1);
/// Turns between two looks at the clock.
const TURNS: u32 = 16;
/// Looks into rings between two looks at the clock, where nothing comes.
const LOOKS: usize = 64;

impl Server {
    /// Listens as `directory`/`name`. The directory must exist and be writable by this user only
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
        let watch = Watch::new()?;
        let uids = [&[uid], &options.allowed_uids[..]].concat();
        let newcomers = Newcomers::listen(claim.socket(), uids, &watch)?;
        let common =
            Arc::new(Common { beacon: Beacon::new(options.progress_core.is_some())?, queues: Arc::new(queues) });
        let mailbox = Arc::new(Mailbox::new(common.clone(), geometry.longest_message())?);
        watch.add(mailbox.bell(), Ready::Mailbox)?;
        let (cores, core_to_go_to) = (cores::of_this_process(), options.progress_core);
        Ok(Server {
            claim,
            watch,
            options,
            geometry,
            common,
            mailbox,
            newcomers,
            sessions: BTreeMap::new(),
            spin: Spin::new(cores),
            hints: Hints::new(cores),
            counters: Counters { swept_queues, ..Counters::default() },
            core_to_go_to,
            turns: TURNS,
            look_due: Time::ZERO,
            payload: Vec::new(),
            late: Vec::new(),
        })
    }

    /// Where clients connect.
    pub fn path(&self) -> PathBuf {
        self.claim.socket().to_owned()
    }

    /// Puts back what was removed meanwhile of the files by which programs find the helper and others see that it is there. Programs that are connected
    /// notice nothing. Says whether anything was gone.
    ///
    /// # Errors
    /// [`Error::AlreadyServed`] if another process has taken the name by then; that a file cannot be made.
    pub fn keep_files(&mut self) -> Result<bool, Error> {
        let mut is_back = self.claim.keep()?;
        if std::fs::symlink_metadata(self.claim.socket()).is_err() {
            self.newcomers.listen_anew(self.claim.socket(), &self.watch)?;
            is_back = true;
        }
        Ok(is_back)
    }

    /// What was counted so far.
    pub fn counters(&self) -> Counters {
        Counters { clients: self.sessions.len() as u64, refused_clients: self.newcomers.refused(), ..self.counters }
    }

    /// What services write for all clients.
    pub fn board(&self) -> Board {
        Board(self.common.clone())
    }

    /// The handler knows that a request is to come within microseconds: the next [`poll`](Self::poll) looks for it for
    /// a while before it sleeps, unless that would keep the expected client from its core.
    pub fn expect(&mut self) {
        self.spin.expects();
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
        let spun = self.spin(started, timeout, handler)?;
        match spun {
            Spun::Came(handled) => return Ok(handled),
            Spun::Over => {}
            Spun::Pointless => self.spin.forgo(),
        }
        let left = (started + timeout).since(BootClock.now());
        self.look(left, handler)?;
        let is_called = self.mailbox.take_interruption();
        let handled = self.turn(handler);
        if (handled > 0 || is_called) && spun != Spun::Pointless {
            self.spin.slept(BootClock.now().since(started), self.hints.is_crowded());
        }
        Ok(handled)
    }

    /// Once over all rings.
    fn turn(&mut self, handler: &mut dyn FnMut(Event<'_>)) -> usize {
        self.mailbox.take(&mut self.late);
        for Late { client, number, response, attached } in self.late.drain(..) {
            if let Some(session) = self.sessions.get_mut(&client.0) {
                attached.iter().for_each(|descriptor| session.attach(number, descriptor.as_fd()));
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

    /// Whether all clients that may ask while this thread spins would have to run on its core: those that asked lately,
    /// of which at least one has all its answers. Never true where the thread has a core to itself.
    fn is_in_the_way(&self) -> bool {
        if self.options.progress_core.is_some() {
            return false;
        }
        let core = cores::current();
        let mut lately = self.sessions.values().filter(|session| session.asked);
        let mut is_free = false;
        let are_here = lately.all(|session| {
            is_free |= session.has_all_answers();
            session.client_core() == Some(core)
        });
        are_here && is_free
    }

    /// Turns until something comes, for as long as that pays.
    fn spin(&mut self, started: Time, timeout: Duration, handler: &mut dyn FnMut(Event<'_>)) -> Result<Spun, Error> {
        if self.is_in_the_way() {
            return Ok(Spun::Pointless);
        }
        let is_dedicated = self.options.progress_core.is_some();
        let allowed = if is_dedicated { timeout } else { self.spin.budget(self.hints.is_crowded()) };
        let budget = allowed.min(timeout);
        if budget.is_zero() {
            return Ok(Spun::Over);
        }
        let mut now = started;
        loop {
            for _ in 0..(LOOKS / self.sessions.len().max(1)).clamp(1, TURNS as usize) {
                let handled = self.turn(handler);
                if handled > 0 || self.mailbox.take_interruption() {
                    self.spin.paid(now.since(started));
                    self.counters.spins += 1;
                    return Ok(Spun::Came(handled));
                }
                std::hint::spin_loop();
            }
            now = BootClock.now();
            self.look_if_due(now, handler)?;
            if now >= started + budget {
                break;
            }
            // The thread may have moved, or a client may have an answer that another thread gave.
            if self.is_in_the_way() {
                return Ok(Spun::Pointless);
            }
        }
        if is_dedicated {
            return Ok(Spun::Came(0));
        }
        self.spin.wasted(budget, allowed);
        Ok(Spun::Over)
    }

    fn look_if_due(&mut self, now: Time, handler: &mut dyn FnMut(Event<'_>)) -> Result<(), Error> {
        if now < self.look_due {
            self.hints.say_core(&self.common.beacon);
            return Ok(());
        }
        self.look(Duration::ZERO, handler)
    }

    /// Looks at sockets and doorbells, and sleeps up to `at_most` if nothing is ready anywhere.
    fn look(&mut self, at_most: Duration, handler: &mut dyn FnMut(Event<'_>)) -> Result<(), Error> {
        let mut space: Space = [const { MaybeUninit::uninit() }; EVENTS_AT_ONCE];
        let events = self.wait(at_most, &mut space)?;
        let now = BootClock.now();
        self.look_due = now + LOOK_EVERY;
        self.hints.say_core(&self.common.beacon);
        let asked = self.sessions.values_mut().map(|session| &mut session.asked);
        self.hints.count(now, &self.common.beacon, self.counters.requests, asked);
        for event in events {
            match Ready::of(event.data) {
                Ready::Listener => {
                    self.newcomers.accept(now, self.sessions.len(), self.options.max_clients, &self.watch);
                }
                Ready::Socket(client) if self.newcomers.has(client) => self.greet(client, handler),
                Ready::Socket(client) => self.hear(client, handler),
                // A ring of the bell has done its work when epoll returned.
                Ready::Mailbox | Ready::Doorbell(_) => {}
            }
        }
        self.newcomers.listen_again_if_due(now, &self.watch)
    }

    fn wait<'a>(&mut self, at_most: Duration, space: &'a mut Space) -> Result<&'a [epoll::Event], Error> {
        let Server { sessions, mailbox, options, common, watch, counters, newcomers, .. } = self;
        if at_most.is_zero() {
            return watch.wait(at_most, space);
        }
        let at_most = newcomers.sleep_of(at_most, BootClock.now());
        let mut waited = None;
        let there = || is_ready(sessions, mailbox, options);
        if common.beacon.sleep_unless(there, || waited = Some(watch.wait(at_most, space))) {
            counters.sleeps += 1;
        }
        waited.unwrap_or(Ok(&[]))
    }

    /// A newcomer said something.
    fn greet(&mut self, client: u64, handler: &mut dyn FnMut(Event<'_>)) {
        let Some(Greeting { socket, peer, mode }) = self.newcomers.hear(client) else { return };
        let opened = mode.and_then(|mode| {
            if !self.options.modes.contains(&mode) {
                return Err(Farewell::NotServed);
            }
            let opened = mode::open(mode, &self.common, peer.uid, self.geometry);
            opened.map(|(end, passed)| (mode, end, passed)).map_err(|_| Farewell::Exhausted)
        });
        let (mode, end, passed) = match opened {
            Ok(opened) => opened,
            Err(reason) => return self.newcomers.turn_away(socket, reason),
        };
        if self.watch.add(end.bell(), Ready::Doorbell(client)).is_err() {
            return self.newcomers.turn_away(socket, Farewell::Exhausted);
        }
        let id = ClientId(client);
        let session = Session::new(id, mode, peer, socket, end);
        let welcome = Reply::Welcome { ring_bytes: self.geometry.ring_bytes(), client };
        let passed: Vec<_> = passed.iter().map(AsFd::as_fd).collect();
        if !tell(session.socket.as_fd(), welcome, &passed) {
            self.watch.forget(session.bell());
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

    /// Handles what a client had put into its ring before it went: a program may post and end. No more than a ring
    /// holds, because another process may still write into it.
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
        self.watch.forget(session.bell());
        drop(session);
        handler(Event::Gone { client });
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for session in self.sessions.values_mut() {
            say_farewell(session, Farewell::ShuttingDown, true);
        }
        self.newcomers.dismiss();
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

#[cfg(test)]
mod tests;
