//! Clients that have connected and not yet said in which mode they want to talk.

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType,
};
use verbena_terms::Time;

use crate::error::Error;
use crate::handshake::{Farewell, HELLO_BYTES, Reply, parse_hello};
use crate::mode::Mode;
use crate::peer::{self, Peer};
use crate::watch::{Ready, Watch};

const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
const BACKLOG: i32 = 128;
const ACCEPTS_AT_ONCE: usize = 16;

pub(crate) struct Newcomers {
    listener: OwnedFd,
    /// Users who may connect.
    uids: Vec<u32>,
    silent: BTreeMap<u64, (OwnedFd, Peer)>,
    last_client: u64,
    /// Set while no descriptors are left to accept with.
    accept_again: Option<Time>,
    /// Turned away so far.
    refused: u64,
}

/// One that has said what it wants.
pub(crate) struct Greeting {
    pub(crate) socket: OwnedFd,
    pub(crate) peer: Peer,
    pub(crate) mode: Result<Mode, Farewell>,
}

impl Newcomers {
    /// Listens at `path`, for these users.
    pub(crate) fn listen(path: &Path, uids: Vec<u32>, watch: &Watch) -> Result<Newcomers, Error> {
        let listener = listen(path, uids.len() > 1)?;
        watch.add(&listener, Ready::Listener)?;
        let (silent, last_client, accept_again, refused) = Default::default();
        Ok(Newcomers { listener, uids, silent, last_client, accept_again, refused })
    }

    /// Listens anew, where the socket's file was removed.
    pub(crate) fn listen_anew(&mut self, path: &Path, watch: &Watch) -> Result<(), Error> {
        let listener = listen(path, self.uids.len() > 1)?;
        watch.add(&listener, Ready::Listener)?;
        // The old listener, which no client can reach, leaves the watch with its only descriptor.
        (self.listener, self.accept_again) = (listener, None);
        Ok(())
    }

    /// How many were turned away.
    pub(crate) fn refused(&self) -> u64 {
        self.refused
    }

    /// How long to sleep at the most, of so long.
    pub(crate) fn sleep_of(&self, at_most: Duration, now: Time) -> Duration {
        self.accept_again.map_or(at_most, |again| again.since(now).min(at_most))
    }

    /// Accepts clients while there is room for them beside `clients` that are there already.
    pub(crate) fn accept(&mut self, now: Time, clients: usize, most: usize, watch: &Watch) {
        for _ in 0..ACCEPTS_AT_ONCE {
            match rustix::net::accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => self.admit(socket, clients, most, watch),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::AGAIN) => return,
                // No descriptors or no memory: leave the others in the queue for a moment instead of asking again
                // at once.
                Err(_) => {
                    self.refused += 1;
                    self.accept_again = Some(now + ACCEPT_PAUSE);
                    // If even this fails, epoll tells of the listener again and again: slow, not wrong.
                    let _ = watch.listen(&self.listener, false);
                    return;
                }
            }
        }
    }

    /// Listens again, when it is time to.
    pub(crate) fn listen_again_if_due(&mut self, now: Time, watch: &Watch) -> Result<(), Error> {
        if self.accept_again.is_some_and(|again| now >= again) {
            self.accept_again = None;
            watch.listen(&self.listener, true)?;
        }
        Ok(())
    }

    fn admit(&mut self, socket: OwnedFd, clients: usize, most: usize, watch: &Watch) {
        let Ok(peer) = peer::of(socket.as_fd()) else { return };
        if !self.uids.contains(&peer.uid) {
            return self.turn_away(socket, Farewell::Stranger);
        }
        if self.silent.len() + clients >= most {
            // A client that connected and never greeted gives way; otherwise a few of them would lock all others out.
            match self.silent.pop_first() {
                Some((_, (silent, _))) => self.turn_away(silent, Farewell::Crowded),
                None => return self.turn_away(socket, Farewell::Crowded),
            }
        }
        self.last_client += 1;
        let client = self.last_client;
        match watch.add(&socket, Ready::Socket(client)) {
            Ok(()) => drop(self.silent.insert(client, (socket, peer))),
            Err(_) => self.turn_away(socket, Farewell::Exhausted),
        }
    }

    pub(crate) fn has(&self, client: u64) -> bool {
        self.silent.contains_key(&client)
    }

    /// One of them said something, or went: returns its greeting, if it said one. It is no longer a newcomer.
    pub(crate) fn hear(&mut self, client: u64) -> Option<Greeting> {
        let mut hello = [0; HELLO_BYTES + 1];
        let (socket, peer) = self.silent.remove(&client)?;
        match rustix::net::recv(&socket, &mut hello[..], RecvFlags::DONTWAIT) {
            Ok((_, 0)) => None,
            Ok((_, length)) => Some(Greeting { socket, peer, mode: parse_hello(&hello[..length]) }),
            Err(Errno::AGAIN | Errno::INTR) => {
                self.silent.insert(client, (socket, peer));
                None
            }
            Err(_) => None,
        }
    }

    pub(crate) fn turn_away(&mut self, socket: OwnedFd, reason: Farewell) {
        self.refused += 1;
        tell(socket.as_fd(), Reply::Farewell(reason), &[]);
    }

    /// The helper ends.
    pub(crate) fn dismiss(&self) {
        for (socket, _) in self.silent.values() {
            tell(socket.as_fd(), Reply::Farewell(Farewell::ShuttingDown), &[]);
        }
    }
}

/// Says one thing on a socket, if it takes it at once. Whether it did.
pub(crate) fn tell(socket: BorrowedFd<'_>, reply: Reply, passed: &[BorrowedFd<'_>]) -> bool {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !passed.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(passed)) {
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
    // To connect takes the right to write. The user that connects is checked again, by name; no client can connect
    // before `listen`.
    let mode = if for_others { 0o622 } else { 0o600 };
    rustix::fs::chmod(path, rustix::fs::Mode::from_raw_mode(mode)).map_err(failed)?;
    rustix::net::listen(&socket, BACKLOG).map_err(failed)?;
    Ok(socket)
}
