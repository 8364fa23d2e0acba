//! How the processes of a network namespace come to one program, and what becomes of a share whose process ended without a word.
//!
//! **A share is a name.** Who has bound the abstract socket of a number (a name that is known in its network namespace alone) has that share,
//! until the process ends, by whatever end. So nobody has to be asked, and nothing is left.
//!
//! **Descriptors are handed on.** A process that has the program listens at its share's name. A newcomer connects to the names
//! in turn; whoever answers sends, in one packet, descriptors of the program, of its maps and of its links to interfaces. Each holder keeps
//! the program there for itself, so it survives whoever loaded it. Descriptors go to processes of the same user only, and are taken from
//! no other. One newcomer at a time, by a name again: of two that find nobody, each would load a program of its own.
//!
//! ```text
//!  0         8       12       16
//!  +---------+--------+--------+---- - -    descriptors: program, maps (in their order), links
//!  | VXSH, 1 | number | mode   | ...        number: of the interface; mode: 1 native, 2 generic
//!  +---------+--------+--------+---- - -
//! ```
//!
//! **What somebody left is taken away.** What a share may have in it is said in a map. Each process looks a few times a
//! second for a share with something in it whose name it can bind: its process is gone. Whoever has bound it empties it, and gives the name back. Until
//! then the kernel answers for a node that is no more, as it does for one that is stopped; what must not happen then is the business of
//! leases and views, as on any hardware that answers by itself.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use verbena_terms::{BootClock, Clock, Format};

use super::program::{DESCRIPTORS, Program};
use super::share::MOST_PROCESSES;
use crate::choose::XdpMode as Mode;
use crate::error::{Error, Result};
use crate::packets::{self, MOST_ATTACHED};

const OFFER: Format = Format::new(*b"VXSH", 1);
const LINK_BYTES: usize = 8;
const MOST_LINKS: usize = MOST_ATTACHED - DESCRIPTORS;

/// The name of whoever looks for the program, or loads it.
const NEWCOMER: &[u8] = b"verbena.xdp.newcomer";
/// How long others may take for that; without CAP_PERFMON the kernel takes seconds to check the program.
const NEWCOMERS: Duration = Duration::from_secs(30);
/// How long a process that has the program may take to hand it on. One that is stopped never does.
const PATIENCE: Duration = Duration::from_millis(500);
/// From one look for ended processes to the next, as the kernel counts it.
const LOOK_AROUND: Timespec = Timespec { tv_sec: 0, tv_nsec: 250_000_000 };

/// The program on an interface. It is there for as long as any process holds it.
pub(super) struct Link {
    /// The interface's number.
    pub(super) interface: u32,
    /// Never [`Mode::Auto`].
    pub(super) mode: Mode,
    pub(super) descriptor: OwnedFd,
}

/// A process's links.
pub(super) type Links = Mutex<Vec<Weak<Link>>>;

/// A share's number, which is nobody else's for as long as this is there.
pub(super) struct Claim {
    number: u32,
    name: OwnedFd,
    links: Arc<Links>,
    usher: Mutex<Option<Usher>>,
}

/// The thread that hands the program on, and looks for what ended processes left.
struct Usher {
    thread: JoinHandle<()>,
    stop: OwnedFd,
}

impl Claim {
    /// The first that is free.
    ///
    /// # Errors
    /// [`Error::Full`].
    pub(super) fn new() -> Result<Self> {
        for number in 0..MOST_PROCESSES {
            if let Some(name) = bind(&name(number))? {
                return Ok(Claim { number, name, links: Arc::default(), usher: Mutex::default() });
            }
        }
        Err(Error::Full { what: "the processes of a network that use xdp", most: MOST_PROCESSES as usize })
    }

    /// Which it is.
    pub(super) fn number(&self) -> u32 {
        self.number
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

    /// Hands `program` on to whoever comes, if it does not already.
    pub(super) fn serve(&self, program: &Arc<Program>) -> Result<()> {
        let mut usher = self.usher.lock();
        if usher.is_some() {
            return Ok(());
        }
        let failed = |error: Errno| Error::system("hand a program on", error);
        rustix::net::listen(&self.name, packets::BACKLOG).map_err(failed)?;
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(failed)?;
        let host = Host {
            listener: self.name.try_clone().map_err(|error| Error::system("hand a program on", error))?,
            stop: stop.try_clone().map_err(|error| Error::system("hand a program on", error))?,
            program: program.clone(),
            links: self.links.clone(),
            share: self.number,
        };
        let started = thread::Builder::new().name("xdp-usher".into()).spawn(move || host.work());
        let thread = started.map_err(|error| Error::system("start a thread", error))?;
        *usher = Some(Usher { thread, stop });
        Ok(())
    }

    /// Hands nothing on any more. The name is kept until this is dropped.
    pub(super) fn end(&self) {
        if let Some(Usher { thread, stop }) = self.usher.lock().take() {
            // It fails only when it was told before.
            let _ = rustix::io::write(&stop, &1u64.to_ne_bytes());
            let _ = thread.join();
        }
    }
}

struct Host {
    listener: OwnedFd,
    stop: OwnedFd,
    program: Arc<Program>,
    links: Arc<Links>,
    share: u32,
}

impl Host {
    fn work(self) {
        loop {
            let mut ready = [PollFd::new(&self.listener, PollFlags::IN), PollFd::new(&self.stop, PollFlags::IN)];
            let woken = poll(&mut ready, Some(&LOOK_AROUND));
            let [comes, is_over] = ready.map(|ready| !ready.revents().is_empty());
            match woken {
                Ok(_) if is_over => return,
                Ok(_) if comes => self.hand_on(),
                Ok(_) => sweep(&self.program, self.share),
                // Nothing was waited for; the next turn will.
                Err(_) => thread::sleep(PATIENCE),
            }
        }
    }

    fn hand_on(&self) {
        let guest = match packets::accept(self.listener.as_fd()) {
            Ok(guest) => guest,
            Err(Errno::AGAIN | Errno::CONNABORTED) => return,
            Err(error) => {
                tracing::warn!("nobody is given the program of xdp for a moment: {error}");
                return thread::sleep(PATIENCE);
            }
        };
        if !is_of_this_user(guest.as_fd()) {
            return tracing::warn!("a process of another user asked for the program of xdp, and was given nothing");
        }
        let links = living(&self.links);
        let links = &links[..links.len().min(MOST_LINKS)];
        let descriptors: Vec<BorrowedFd<'_>> =
            self.program.descriptors().into_iter().chain(links.iter().map(|link| link.descriptor.as_fd())).collect();
        // Whoever went away meanwhile does not need it.
        let _ = packets::send(
            guest.as_fd(),
            &offer(links.iter().map(|link| (link.interface, link.mode))),
            &[],
            &descriptors,
        );
    }
}

/// Empties the shares of processes that have ended, but `own`.
fn sweep(program: &Program, own: u32) {
    for share in (0..MOST_PROCESSES).filter(|share| *share != own && program.used(*share).nodes > 0) {
        // While we have its name, nobody else puts anything there, or takes it away.
        let Ok(Some(_name)) = bind(&name(share)) else { continue };
        match program.wipe(share) {
            Ok(()) => tracing::info!(share, "took away what an ended process left in the program of xdp"),
            Err(error) => {
                tracing::warn!(share, %error, "what an ended process left in the program of xdp is still there")
            }
        }
    }
}

/// Nobody else looks for the program, or loads it, while this is there.
pub(super) struct Newcomer(#[expect(dead_code, reason = "it has the name")] OwnedFd);

impl Newcomer {
    /// When it is this one's turn.
    ///
    /// # Errors
    /// That others took too long.
    pub(super) fn enter() -> Result<Self> {
        let until = Instant::now() + NEWCOMERS;
        loop {
            if let Some(name) = bind(NEWCOMER)? {
                return Ok(Newcomer(name));
            }
            if Instant::now() > until {
                return Err(Error::Unusable {
                    provider: "xdp",
                    reason: format!(
                        "another process has been looking for its program, or loading it, for {NEWCOMERS:?}"
                    ),
                    remedy: "`ss -xap` shows which has @verbena.xdp.newcomer: it may be stopped".into(),
                });
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// What the others of this network have.
#[derive(Default)]
pub(super) struct Found {
    pub(super) program: Option<Arc<Program>>,
    /// To the interface that was asked for.
    pub(super) link: Option<Link>,
    /// Why somebody gave nothing.
    pub(super) silent: Vec<String>,
}

/// Asks them, until one has the program on `interface`.
pub(super) fn look_for(interface: u32, own: Option<u32>) -> Result<Found> {
    let mut found = Found::default();
    for share in (0..MOST_PROCESSES).filter(|share| Some(*share) != own) {
        let socket = match packets::connect(&name(share)) {
            Ok(socket) => socket,
            // Nobody is there, or somebody who has nothing yet.
            Err(Errno::CONNREFUSED) => continue,
            Err(error) => {
                found.silent.push(format!("a process that is there could not be asked: {error}"));
                continue;
            }
        };
        match take(socket.as_fd()) {
            Ok((descriptors, links)) => {
                if found.program.is_none() {
                    found.program = Some(Program::of_descriptors(descriptors)?);
                }
                found.link = links.into_iter().find(|link| link.interface == interface);
                if found.link.is_some() {
                    break;
                }
            }
            Err(why) => found.silent.push(why),
        }
    }
    Ok(found)
}

fn take(socket: BorrowedFd<'_>) -> std::result::Result<([OwnedFd; DESCRIPTORS], Vec<Link>), String> {
    if !is_of_this_user(socket) {
        return Err("a process of another user is there".into());
    }
    let deadline = BootClock.now() + PATIENCE;
    let comes = packets::wait_for(socket, PollFlags::IN, &BootClock, deadline).map_err(|error| error.to_string())?;
    if !comes {
        return Err(format!("a process that is there did not answer within {PATIENCE:?}: is it stopped?"));
    }
    let mut packet = [0; verbena_terms::HEADER_BYTES + MOST_LINKS * LINK_BYTES];
    let mut received = packets::receive(socket, &mut packet).map_err(|error| error.to_string())?;
    let named = parse(&packet[..received.length])?;
    if received.attached.len() != DESCRIPTORS + named.len() {
        return Err(format!("{} descriptors came for {} links", received.attached.len(), named.len()));
    }
    let links = received.attached.split_off(DESCRIPTORS);
    let links = named.into_iter().zip(links);
    let links = links.map(|((interface, mode), descriptor)| Link { interface, mode, descriptor }).collect();
    let descriptors = received.attached.try_into().expect("invariant: so many were left");
    Ok((descriptors, links))
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

fn name(share: u32) -> Vec<u8> {
    format!("verbena.xdp.{share}").into_bytes()
}

/// `None` if somebody has the name.
fn bind(name: &[u8]) -> Result<Option<OwnedFd>> {
    match packets::bind(name) {
        Ok(socket) => Ok(Some(socket)),
        Err(Errno::ADDRINUSE) => Ok(None),
        Err(error) => Err(Error::system("take a name", error)),
    }
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
