//! How the processes of a network namespace come to one program, and what becomes of a share whose process ended without a word.
//!
//! **Descriptors are handed on.** A process that has the program listens at an abstract socket, which is known in its
//! network namespace alone; its name says the user, the program (a hash of its code) and a random number. A newcomer
//! finds such names in /proc/net/unix and connects; the process that answers sends, in one packet, descriptors of the
//! program, of what it works on and of its links to interfaces. Each holder keeps the program there for itself, so it
//! survives the process that loaded it.
//!
//! ```text
//!  0         8       12       16
//!  +---------+--------+--------+---- - -    descriptors: those of the program (in their order), links
//!  | VXSH, 1 | number | mode   | ...        number: of the interface; mode: 1 native, 2 generic
//!  +---------+--------+--------+---- - -
//! ```
//!
//! **One program of a user.** One newcomer at a time looks or loads, by a name again. A newcomer that finds a process
//! that does not answer loads nothing: that process may have a program. So all processes of one user and one version
//! have the same one, and a link of one goes with the maps of any other. Other users and versions have programs of
//! their own, on other interfaces.
//!
//! **What an ended process left is taken away.** A share is a lock ([`claims`](super::claims)) that ends with its
//! process. What a share has in it is said in a map. Each process looks a few times a second for a share with something
//! in it that it can lock: its process is gone. The process that has locked it empties it, the addresses first, and
//! lets go. Until then the kernel answers for a node that is no more, as it does for one that is stopped; what must not
//! happen then is the business of leases and views, as on any hardware that answers by itself.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use verbena_terms::{BootClock, Clock, Format};

use super::claims::Claimed;
use super::program::{DESCRIPTORS, Program};
use super::share::MOST_PROCESSES;
use crate::config::XdpMode as Mode;
use crate::error::{Error, Result};
use crate::packets::{self, MOST_ATTACHED};

const OFFER: Format = Format::new(*b"VXSH", 1);
const LINK_BYTES: usize = 8;
const MOST_LINKS: usize = MOST_ATTACHED - DESCRIPTORS;

/// What all names begin with.
const NAMES: &str = "verbena.xdp.";
/// The name of the process that looks for the program, or loads it.
const NEWCOMER: &str = "verbena.xdp.newcomer";
/// How long others may take for that; without CAP_PERFMON the kernel takes seconds to check the program.
const NEWCOMERS: Duration = Duration::from_secs(30);
/// How long a process that has the program may take to hand it on. One that is stopped never does.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long all shares may seem to be taken: a process that empties one has it meanwhile.
const EMPTYING: Duration = Duration::from_secs(2);
/// From one look for ended processes to the next, as the kernel counts it.
const LOOK_AROUND: Timespec = Timespec { tv_sec: 0, tv_nsec: 250_000_000 };
const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// The program on an interface. It is there for as long as any process holds it.
pub(super) struct Link {
    /// The interface's number.
    pub(super) interface: u32,
    /// Never [`Mode::Auto`].
    pub(super) mode: Mode,
    pub(super) descriptor: OwnedFd,
}

/// What one process hands on to another.
type Taken = ([OwnedFd; DESCRIPTORS], Vec<Link>);

/// A process's links.
type Links = Mutex<Vec<Weak<Link>>>;

/// A share that this process has, with what others get of it.
pub(super) struct Claim {
    claimed: Claimed,
    links: Arc<Links>,
    host: Mutex<Option<Host>>,
}

/// The threads of a process that has the program: one hands it on, one takes away what ended processes left. The latter
/// waits for the kernel again and again, and no other thread is to wait for it.
struct Host {
    threads: [JoinHandle<()>; 2],
    stop: Arc<OwnedFd>,
}

impl Claim {
    /// Claims a free share of a program; if possible one that has nothing in it.
    ///
    /// # Errors
    /// [`Error::Unusable`] if no share is free.
    pub(super) fn new(program: &Program) -> Result<Self> {
        let until = Instant::now() + EMPTYING;
        loop {
            for empty in [true, false] {
                for share in (0..MOST_PROCESSES).filter(|share| (program.used(*share).nodes == 0) == empty) {
                    if let Some(claimed) = program.claims().take(share)? {
                        return Ok(Claim { claimed, links: Arc::default(), host: Mutex::default() });
                    }
                }
            }
            if Instant::now() > until {
                return Err(Error::Unusable {
                    provider: "xdp",
                    reason: format!("{MOST_PROCESSES} processes of this network use it, which is as many as can"),
                    remedy: "End one of them: `ss -xlp` shows who has a name that begins with @verbena.xdp".into(),
                });
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Which share it is.
    pub(super) fn number(&self) -> u32 {
        self.claimed.share()
    }

    /// This process's link to an interface, if it has one.
    pub(super) fn link(&self, interface: u32) -> Option<Arc<Link>> {
        living(&self.links).into_iter().find(|link| link.interface == interface)
    }

    /// From now on others get it too.
    pub(super) fn add(&self, link: &Arc<Link>) {
        let mut links = self.links.lock();
        links.retain(|link| link.strong_count() > 0);
        links.push(Arc::downgrade(link));
    }

    /// Hands `program` on to newcomers, if it does not already.
    pub(super) fn serve(&self, program: &Arc<Program>) -> Result<()> {
        let mut host = self.host.lock();
        if host.is_some() {
            return Ok(());
        }
        let failed = |error: Errno| Error::system("hand a program on", error);
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(|error| Error::system("random bytes", error))?;
        let name = format!("{}{:016x}", own_names(), u64::from_ne_bytes(random));
        let listener = packets::listen(name.as_bytes()).map_err(failed)?;
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(failed)?);
        let usher = {
            let (program, links, stop) = (program.clone(), self.links.clone(), stop.clone());
            move || {
                while next(&listener, &stop) {
                    hand_on(&listener, &program, &links)
                }
            }
        };
        let sweeper = {
            let (program, own, stop) = (program.clone(), self.number(), stop.clone());
            move || {
                while !is_over(&stop, &LOOK_AROUND) {
                    sweep(&program, own, &stop)
                }
            }
        };
        let start = |name: &str, work: Box<dyn FnOnce() + Send>| {
            let started = thread::Builder::new().name(name.into()).spawn(work);
            started.map_err(|error| Error::system("start a thread", error))
        };
        let usher = start("xdp-usher", Box::new(usher))?;
        *host = Some(Host { threads: [usher, start("xdp-sweeper", Box::new(sweeper))?], stop });
        Ok(())
    }

    /// Hands nothing on any more. The share is kept until this is dropped.
    pub(super) fn end(&self) {
        if let Some(Host { threads, stop }) = self.host.lock().take() {
            // It fails only when it was signalled before.
            let _ = rustix::io::write(&*stop, &1u64.to_ne_bytes());
            threads.into_iter().for_each(|thread| drop(thread.join()));
        }
    }
}

/// Waits for a process that wants the program; false when it is over.
fn next(listener: &OwnedFd, stop: &OwnedFd) -> bool {
    loop {
        let mut ready = [PollFd::new(listener, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
        let woken = poll(&mut ready, None);
        let [comes, is_over] = ready.map(|ready| !ready.revents().is_empty());
        match woken {
            Ok(_) if is_over => return false,
            Ok(_) if comes => return true,
            // A signal; anything else is out of memory for a moment.
            Ok(_) | Err(_) => {}
        }
    }
}

/// Waits so long, and whether it is over.
fn is_over(stop: &OwnedFd, wait: &Timespec) -> bool {
    let mut ready = [PollFd::new(stop, PollFlags::IN)];
    poll(&mut ready, Some(wait)).is_ok_and(|woken| woken > 0)
}

fn hand_on(listener: &OwnedFd, program: &Program, links: &Links) {
    let guest = match packets::accept(listener.as_fd()) {
        Ok(guest) => guest,
        Err(Errno::AGAIN | Errno::CONNABORTED) => return,
        Err(error) => {
            // Most likely no descriptor is left.
            tracing::warn!("no process gets the program of xdp for a moment: {error}");
            return thread::sleep(Duration::from_millis(100));
        }
    };
    if !is_of_this_user(guest.as_fd()) {
        return tracing::debug!("a process of another user asked for the program of xdp, and was given nothing");
    }
    let links = living(links);
    let links = &links[..links.len().min(MOST_LINKS)];
    let descriptors: Vec<BorrowedFd<'_>> =
        program.descriptors().into_iter().chain(links.iter().map(|link| link.descriptor.as_fd())).collect();
    let packet = offer(links.iter().map(|link| (link.interface, link.mode)));
    if let Err(error) = packets::send(guest.as_fd(), &packet, &[], &descriptors) {
        tracing::debug!("a process that asked for the program of xdp did not get it: {error}");
    }
}

/// Empties the shares of processes that have ended, but `own`.
fn sweep(program: &Program, own: u32, stop: &OwnedFd) {
    let used = (0..MOST_PROCESSES).filter(|share| *share != own && program.used(*share).nodes > 0);
    // While we have it, no other process puts anything there, or takes it away.
    let dead: Vec<Claimed> = used.filter_map(|share| program.claims().take(share).ok().flatten()).collect();
    let done = dead.iter().try_for_each(|dead| program.forget_addresses(dead.share()));
    let done = done.and_then(|()| {
        dead.iter().try_for_each(|dead| {
            let share = dead.share();
            program.wipe(share, || !is_over(stop, &AT_ONCE))?;
            tracing::info!(share, "took away what an ended process left in the program of xdp");
            Ok(())
        })
    });
    if let Err(error) = done {
        tracing::warn!(%error, "what an ended process left in the program of xdp is still there");
    }
}

/// No other process looks for the program, or loads it, while this value exists.
pub(super) struct Newcomer(#[expect(dead_code, reason = "it has the name")] OwnedFd);

impl Newcomer {
    /// When it is this one's turn.
    ///
    /// # Errors
    /// That others took too long.
    pub(super) fn enter() -> Result<Self> {
        let until = Instant::now() + NEWCOMERS;
        loop {
            match packets::bind(NEWCOMER.as_bytes()) {
                Ok(name) => return Ok(Newcomer(name)),
                Err(Errno::ADDRINUSE) if Instant::now() < until => thread::sleep(Duration::from_millis(5)),
                Err(Errno::ADDRINUSE) => {
                    return Err(Error::Unusable {
                        provider: "xdp",
                        reason: format!("another process has been loading its program for {NEWCOMERS:?}"),
                        remedy: format!("`ss -xap` shows which has @{NEWCOMER}: it may be stopped"),
                    });
                }
                Err(error) => return Err(Error::system("take a name", error)),
            }
        }
    }
}

/// What the others of this network have.
#[derive(Default)]
pub(super) struct Found {
    pub(super) program: Option<Arc<Program>>,
    /// To the interface that was asked for.
    pub(super) link: Option<Link>,
    /// Why a process of this user and version gave nothing.
    pub(super) silent: Option<String>,
    /// Whether verbena is there of another user or version.
    pub(super) has_others: bool,
}

/// Asks them, until one has the program on `interface`. `own` is the program that this process has.
pub(super) fn look_for(interface: u32, own: Option<&Arc<Program>>) -> Result<Found> {
    let mut found = Found { program: own.cloned(), ..Found::default() };
    let all = std::fs::read_to_string("/proc/thread-self/net/unix");
    let all = all.map_err(|error| Error::system("look for the names of sockets", error))?;
    let own_names = own_names();
    for name in all.lines().filter_map(|line| line.split_once(" @")).map(|(_, name)| name) {
        if !name.starts_with(&own_names) {
            found.has_others |= name.starts_with(NAMES) && name != NEWCOMER;
            continue;
        }
        let Ok(socket) = packets::connect(name.as_bytes()) else { continue };
        // Any process can take a name.
        if !is_of_this_user(socket.as_fd()) {
            continue;
        }
        let taken = take(socket.as_fd()).and_then(|taken| {
            // It ended while it was asked.
            let Some((descriptors, links)) = taken else { return Ok(Vec::new()) };
            if found.program.is_none() {
                let program = Program::of_descriptors(descriptors).map_err(|error| error.to_string())?;
                found.program = Some(program);
            }
            Ok(links)
        });
        match taken {
            Ok(links) => found.link = links.into_iter().find(|link| link.interface == interface),
            Err(why) => found.silent = Some(why),
        }
        if found.link.is_some() {
            break;
        }
    }
    Ok(found)
}

/// What a process hands on; `None` if it has ended.
fn take(socket: BorrowedFd<'_>) -> std::result::Result<Option<Taken>, String> {
    let deadline = BootClock.now() + PATIENCE;
    let comes = packets::wait_for(socket, PollFlags::IN, &BootClock, deadline).map_err(|error| error.to_string())?;
    if !comes {
        return Err(format!("a process that has it did not answer within {PATIENCE:?}: is it stopped?"));
    }
    let mut packet = [0; verbena_terms::HEADER_BYTES + MOST_LINKS * LINK_BYTES];
    let received = packets::receive(socket, &mut packet).ok().filter(|received| received.length > 0);
    let Some(mut received) = received else { return Ok(None) };
    let named = parse(&packet[..received.length])?;
    if received.attached.len() != DESCRIPTORS + named.len() {
        return Err(format!("{} descriptors came for {} links", received.attached.len(), named.len()));
    }
    let links = received.attached.split_off(DESCRIPTORS);
    let links = named.into_iter().zip(links);
    let links = links.map(|((interface, mode), descriptor)| Link { interface, mode, descriptor }).collect();
    let descriptors = received.attached.try_into().expect("invariant: so many were left");
    Ok(Some((descriptors, links)))
}

fn offer(links: impl Iterator<Item = (u32, Mode)>) -> Vec<u8> {
    let links = links.flat_map(|(interface, mode)| {
        let mode = if mode == Mode::Native { 1u32 } else { 2 };
        [interface, mode].map(u32::to_le_bytes).concat()
    });
    OFFER.header().into_iter().chain(links).collect()
}

fn parse(packet: &[u8]) -> std::result::Result<Vec<(u32, Mode)>, String> {
    let rest = OFFER.check(packet).map_err(|error| format!("another version of verbena is there: {error}"))?;
    let (words, behind) = rest.as_chunks::<4>();
    let (links, odd) = words.as_chunks::<2>();
    if !behind.is_empty() || !odd.is_empty() {
        return Err("what a process that is there sent is cut off".into());
    }
    let link = |[interface, mode]: &[[u8; 4]; 2]| match u32::from_le_bytes(*mode) {
        1 => Ok((u32::from_le_bytes(*interface), Mode::Native)),
        2 => Ok((u32::from_le_bytes(*interface), Mode::Generic)),
        other => Err(format!("a process that is there has a link of mode {other}")),
    };
    links.iter().map(link).collect()
}

fn living(links: &Links) -> Vec<Arc<Link>> {
    links.lock().iter().filter_map(Weak::upgrade).collect()
}

/// What the names of this user's processes begin with that have this very program.
fn own_names() -> String {
    format!("{NAMES}{}.{:016x}.", rustix::process::geteuid().as_raw(), Program::fingerprint())
}

fn is_of_this_user(socket: BorrowedFd<'_>) -> bool {
    packets::user(socket).is_ok_and(|user| user == rustix::process::geteuid().as_raw())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;

    #[test]
    fn an_offer_is_read_as_it_was_written() {
        for links in [vec![], vec![(7, Mode::Native), (u32::MAX, Mode::Generic)]] {
            let packet = offer(links.iter().copied());
            assert_eq!(parse(&packet).unwrap(), links);
            for length in 0..packet.len() {
                let whole = length >= 8 && (length - 8) % LINK_BYTES == 0;
                assert_eq!(parse(&packet[..length]).is_ok(), whole, "{length} bytes");
            }
        }
        let said = parse(b"VXSH\x02\0\0\0").unwrap_err();
        assert!(said.contains("version 2"), "{said}");
        let strange = [&OFFER.header()[..], &[1, 0, 0, 0, 3, 0, 0, 0]].concat();
        assert!(parse(&strange).unwrap_err().contains("mode 3"));
    }
}
