//! One fabric's connections to one peer: the lifeline, by which regions are opened, and a channel for each class of messages.
//! All are made when they are first needed.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, MutexGuard};
use rustix::event::PollFlags;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use verbena_terms::{BootClock, Clock, Incarnation, Time, ViewNumber};

use super::frame::{Frame, HEAD_BYTES, LARGEST_BODY, NotOpened, Purpose, Refusal};
use super::hub::{Hub, Part};
use super::place::Place;
use super::remote::ShmRemote;
use super::segment::Mapped;
use crate::error::{Error, Result};
use crate::message::{Class, Port};
use crate::packets;
use crate::provider::Peer;
use crate::region::{RegionKey, SharedRemote};

/// Messages of one class that wait for one peer behind what its socket holds.
const MOST_QUEUED: usize = 256;

/// Messages that the service thread sends of one queue before it looks after others.
const BURST: usize = 16;

pub(super) struct Link {
    hub: Arc<Hub>,
    this: Weak<Link>,
    peer: Incarnation,
    place: Place,
    /// 0, or an [`End`]: looked at before every operation.
    end: AtomicU8,
    opener: Mutex<Opener>,
    channels: [Mutex<Channel>; 2],
}

/// Why a link will never work again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum End {
    /// The peer's process has ended, or its fabric was closed.
    Gone = 1,
    /// Another incarnation listens at the address (F4).
    AnotherIncarnation,
    /// The address's secret was refused.
    Secret,
    /// Our own fabric was closed.
    Closed,
}

#[derive(Default)]
struct Opener {
    lifeline: Option<Connection>,
    asked: u64,
}

#[derive(Default)]
struct Channel {
    connection: Option<Connection>,
    queue: VecDeque<Vec<u8>>,
}

/// A connection that the service thread watches under this number.
struct Connection {
    socket: OwnedFd,
    token: u64,
}

impl Link {
    pub(super) fn new(hub: Arc<Hub>, peer: Incarnation, place: Place) -> Arc<Self> {
        Arc::new_cyclic(|this| Link {
            hub,
            this: this.clone(),
            peer,
            place,
            end: AtomicU8::new(0),
            opener: Mutex::default(),
            channels: Default::default(),
        })
    }

    pub(super) const fn peer(&self) -> Incarnation {
        self.peer
    }

    /// Refuses if the link has ended.
    pub(super) fn check(&self) -> Result<()> {
        match self.end.load(Ordering::Acquire) {
            0 => Ok(()),
            end => Err(self.ended(end)),
        }
    }

    /// Ends the link for ever: an incarnation that is gone does not come back. The first reason stays.
    pub(super) fn end(&self, end: End) {
        let _ = self.end.compare_exchange(0, end as u8, Ordering::AcqRel, Ordering::Acquire);
    }

    #[cold]
    fn ended(&self, end: u8) -> Error {
        match end {
            end if end == End::Closed as u8 => Error::Closed,
            end if end == End::AnotherIncarnation as u8 => self.unreachable("another incarnation lives there"),
            end if end == End::Secret as u8 => self.unreachable("the secret in its address is not the right one"),
            _ => self.unreachable("its process has ended or its fabric was closed"),
        }
    }

    #[cold]
    fn unreachable(&self, reason: impl ToString) -> Error {
        Error::Unreachable { target: self.peer, address: self.place.to_string(), reason: reason.to_string() }
    }

    /// A connection on which hello was said.
    fn greet(&self, purpose: Purpose) -> Result<OwnedFd> {
        let socket = packets::connect(&self.place.socket_name()).map_err(|error| match error {
            Errno::CONNREFUSED => self.unreachable("no process listens there (any more)"),
            Errno::AGAIN => {
                Error::Full { what: "the line of those who connect to a node", most: packets::BACKLOG as usize }
            }
            error => Error::system("connect to a node on this machine", error),
        })?;
        // Names are free to take: after its owner's end another process may listen at this one.
        let user = packets::user(socket.as_fd()).map_err(|error| Error::system("ask who listens", error))?;
        if !self.hub.admits(user) {
            return Err(self.unreachable(format_args!("user {user} listens there, which is not allowed")));
        }
        let hello = Frame::Hello { from: self.hub.identity, to: self.peer, purpose, secret: self.place.secret };
        packets::send(socket.as_fd(), &hello.head(), &[], &[]).map_err(|error| self.unreachable(error))?;
        Ok(socket)
    }

    /// What a refusal says about the link.
    fn refused(&self, reason: Refusal) -> Error {
        match reason {
            Refusal::AnotherIncarnation => self.end(End::AnotherIncarnation),
            Refusal::Secret => self.end(End::Secret),
            Refusal::Unreadable => return self.unreachable("it cannot read what this program says"),
        }
        self.ended(self.end.load(Ordering::Acquire))
    }

    /// The service thread has seen something on a connection of this link.
    pub(super) fn seen(&self, token: u64, part: Part, flags: EventFlags) {
        match part {
            Part::Lifeline => self.end(End::Gone),
            Part::Messages(class) => {
                let mut channel = self.channels[class as usize].lock();
                if channel.connection.as_ref().is_none_or(|connection| connection.token != token) {
                    return;
                }
                if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::RDHUP | EventFlags::ERR) {
                    // All that ever comes back on it is a refusal.
                    channel.read_refusal(self);
                    channel.disconnect(&self.hub);
                } else {
                    channel.flush(&self.hub);
                }
            }
        }
    }
}

/// Opening regions.
impl Link {
    fn open(&self, key: &RegionKey, deadline: Time) -> Result<Mapped> {
        let mut opener = self.opener(deadline)?;
        self.check()?;
        if opener.lifeline.is_none() {
            opener.lifeline = Some(self.lifeline(deadline)?);
        }
        opener.asked += 1;
        let number = opener.asked;
        let socket = opener.lifeline.as_ref().expect("invariant: made above").socket.as_fd();
        // Whatever comes of it, the lifeline stays: packets are whole and answers numbered, so the next one to ask is not confused.
        self.ask(socket, number, key, deadline)
    }

    fn opener(&self, deadline: Time) -> Result<MutexGuard<'_, Opener>> {
        let patience = deadline.since(BootClock.now());
        self.opener.try_lock_for(patience).ok_or_else(|| self.unreachable("others open its regions until the deadline"))
    }

    fn lifeline(&self, deadline: Time) -> Result<Connection> {
        let socket = self.greet(Purpose::Regions)?;
        let mut packet = [0; HEAD_BYTES];
        self.receive(socket.as_fd(), &mut packet, deadline)?;
        match Frame::parse(&packet, &self.peer)? {
            Frame::Welcome { from } if from == self.peer => {}
            Frame::Refused { reason, .. } => return Err(self.refused(reason)),
            other => return Err(self.out_of_turn(&other)),
        }
        // Once: a connection that was hung up has no further events.
        let token = self.hub.watch(&socket, &self.this, Part::Lifeline, EventFlags::ONESHOT)?;
        Ok(Connection { socket, token })
    }

    fn ask(&self, socket: std::os::fd::BorrowedFd<'_>, number: u64, key: &RegionKey, deadline: Time) -> Result<Mapped> {
        let open = Frame::Open { number, key: key.clone() }.head();
        loop {
            match packets::send(socket, &open, &[], &[]) {
                Ok(()) => break,
                Err(Errno::AGAIN) => self.wait_for(socket, PollFlags::OUT, deadline)?,
                Err(error) => return Err(self.lost(error)),
            }
        }
        loop {
            let mut packet = [0; HEAD_BYTES];
            let attached = self.receive(socket, &mut packet, deadline)?;
            return match (Frame::parse(&packet, &self.peer)?, attached) {
                // The answer to one that was given up at its deadline.
                (Frame::Opened { number: n } | Frame::NotOpened { number: n, .. }, _) if n < number => continue,
                (Frame::Opened { number: n }, Some(descriptor)) if n == number => Mapped::open(descriptor.as_fd(), key),
                (Frame::NotOpened { number: n, reason, region_bytes }, _) if n == number => Err(match reason {
                    NotOpened::Revoked => Error::Revoked { target: self.peer, region: key.region, view: key.view },
                    NotOpened::Denied => Error::Denied { target: self.peer, region: key.region },
                    NotOpened::Length => Error::OutOfBounds { at: 0, length: key.bytes, region_bytes },
                    NotOpened::System => self.unreachable("its system did not let it open the region for reading"),
                }),
                (other, _) => Err(self.out_of_turn(&other)),
            };
        }
    }

    fn receive(
        &self,
        socket: std::os::fd::BorrowedFd<'_>,
        packet: &mut [u8],
        deadline: Time,
    ) -> Result<Option<OwnedFd>> {
        loop {
            match packets::receive(socket, packet) {
                Ok(received) if received.length == packet.len() => return Ok(received.attached.into_iter().next()),
                Ok(received) if received.length == 0 => return Err(self.lost(Errno::CONNRESET)),
                Ok(received) => Frame::parse(&packet[..received.length], &self.peer).map(|_| ())?,
                Err(Errno::AGAIN) => self.wait_for(socket, PollFlags::IN, deadline)?,
                Err(error) => return Err(self.lost(error)),
            }
        }
    }

    fn wait_for(&self, socket: std::os::fd::BorrowedFd<'_>, what: PollFlags, deadline: Time) -> Result<()> {
        match packets::wait_for(socket, what, &BootClock, deadline) {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.unreachable("it did not answer by the deadline")),
            Err(error) => Err(Error::system("wait for a node's answer", error)),
        }
    }

    /// A connection that broke: its other end is gone, or did not let us in.
    fn lost(&self, error: Errno) -> Error {
        self.check().err().unwrap_or_else(|| self.unreachable(format_args!("the connection was lost: {error}")))
    }

    fn out_of_turn(&self, frame: &Frame<'_>) -> Error {
        Error::Malformed { from: self.peer.to_string(), reason: format!("{frame:?} at this point") }
    }
}

/// Sending messages.
impl Link {
    fn send(&self, class: Class, message: &Frame<'_>, body: &[u8]) -> Result<()> {
        self.check()?;
        let head = message.head();
        let mut channel = self.channels[class as usize].lock();
        if channel.queue.is_empty() {
            // A connection that was lost since is made again, once.
            for _ in 0..2 {
                if channel.connection.is_none() {
                    channel.connection = Some(self.channel_connection(class)?);
                }
                match channel.send(&head, body) {
                    Ok(()) => return Ok(()),
                    Err(Errno::AGAIN) => break,
                    Err(_) => {
                        channel.read_refusal(self);
                        channel.disconnect(&self.hub);
                    }
                }
            }
        }
        self.check()?;
        if channel.connection.is_none() {
            return Err(self.unreachable("it closes every connection"));
        }
        channel.wait(&self.hub, &head, body)
    }

    fn channel_connection(&self, class: Class) -> Result<Connection> {
        let socket = self.greet(Purpose::Messages(class))?;
        let token = self.hub.watch(&socket, &self.this, Part::Messages(class), EventFlags::IN)?;
        Ok(Connection { socket, token })
    }
}

impl Channel {
    fn send(&self, head: &[u8], body: &[u8]) -> rustix::io::Result<()> {
        match &self.connection {
            Some(connection) => packets::send(connection.socket.as_fd(), head, body, &[]),
            None => Err(Errno::NOTCONN),
        }
    }

    /// Puts a message where it waits until the socket has room.
    fn wait(&mut self, hub: &Hub, head: &[u8], body: &[u8]) -> Result<()> {
        if self.queue.len() >= MOST_QUEUED {
            return Err(Error::Full { what: "the queue of messages to a node", most: MOST_QUEUED });
        }
        if self.queue.is_empty() {
            self.wake_when(hub, EventFlags::IN | EventFlags::RDHUP | EventFlags::OUT)?;
        }
        self.queue.push_back([head, body].concat());
        Ok(())
    }

    fn flush(&mut self, hub: &Hub) {
        for _ in 0..BURST {
            let Some(packet) = self.queue.front() else { break };
            match self.send(packet, &[]) {
                Ok(()) => drop(self.queue.pop_front()),
                Err(Errno::AGAIN) => return,
                Err(_) => return self.disconnect(hub),
            }
        }
        if self.queue.is_empty() && self.wake_when(hub, EventFlags::IN | EventFlags::RDHUP).is_err() {
            self.disconnect(hub);
        }
    }

    fn wake_when(&self, hub: &Hub, flags: EventFlags) -> Result<()> {
        let Some(connection) = &self.connection else { return Ok(()) };
        epoll::modify(&hub.epoll, &connection.socket, EventData::new_u64(connection.token), flags)
            .map_err(|error| Error::system("watch a connection", error))
    }

    /// Notes why the peer hung up, if it said so.
    fn read_refusal(&self, link: &Link) {
        let Some(connection) = &self.connection else { return };
        let mut packet = [0; HEAD_BYTES];
        let Ok(received) = packets::receive(connection.socket.as_fd(), &mut packet) else { return };
        if received.length == 0 {
            return;
        }
        match Frame::parse(&packet[..received.length], &link.peer) {
            Ok(Frame::Refused { reason, .. }) => tracing::warn!("{}", link.refused(reason)),
            Ok(other) => tracing::warn!("{}", link.out_of_turn(&other)),
            Err(error) => tracing::warn!("{error}"),
        }
    }

    /// Closes the connection and loses what waits, as messages may be lost.
    fn disconnect(&mut self, hub: &Hub) {
        self.queue.clear();
        if let Some(connection) = self.connection.take() {
            hub.forget(connection.token);
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let lifeline = self.opener.get_mut().lifeline.take();
        let channels = self.channels.iter_mut().filter_map(|channel| channel.get_mut().connection.take());
        for connection in lifeline.into_iter().chain(channels) {
            self.hub.forget(connection.token);
        }
    }
}

/// A peer: a link, as the contract sees it.
pub(super) struct ShmPeer(pub(super) Arc<Link>);

impl Peer for ShmPeer {
    fn incarnation(&self) -> Incarnation {
        self.0.peer
    }

    fn open(&self, key: &RegionKey, deadline: Time) -> Result<SharedRemote> {
        let link = &self.0;
        if key.owner != link.peer {
            return Err(link.unreachable(format_args!("the key is of a region of {}", key.owner)));
        }
        let memory = link.open(key, deadline)?;
        Ok(Arc::new(ShmRemote::new(link.clone(), key.clone(), memory)))
    }

    fn send(&self, class: Class, view: ViewNumber, port: Port, number: u64, body: &[u8]) -> Result<()> {
        if body.len() > LARGEST_BODY {
            return Err(Error::TooLarge { what: "a message", asked: body.len() as u64, most: LARGEST_BODY as u64 });
        }
        self.0.send(class, &Frame::Message { view, port, number, body }, body)
    }
}
