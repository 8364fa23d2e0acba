//! The one thread of a fabric: lets peers in, hands out descriptors, delivers and sends on messages, and detects peers
//! that are gone. No one-sided operation needs it.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::io::Errno;
use verbena_terms::Incarnation;

use super::frame::{Frame, HEAD_BYTES, LARGEST_BODY, NotOpened, Purpose, Refusal};
use super::hub::{Hub, LISTENER, WAKE};
use crate::error::{Error, Result};
use crate::message::{Class, Message};
use crate::packets;
use crate::region::{RegionKey, Rights};

/// Connections that peers can have here: three for each peer, so this many are a thousand peers. Later ones are closed at once.
const MOST_CONNECTIONS: usize = 3 * 1024;

/// Packets that one connection is served before the others have their turn; fewer of bulk, which are larger.
const TURN: usize = 64;
const TURN_OF_BULK: usize = 8;

/// How long no peer is let in after the process had no descriptor left for one.
const BREATH: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

pub(super) struct Service {
    hub: Arc<Hub>,
    listener: OwnedFd,
    /// False while there are no descriptors to accept with.
    listening: bool,
    guests: HashMap<u64, Guest>,
    packet: Box<[u8]>,
}

/// A connection that a peer has made.
struct Guest {
    socket: OwnedFd,
    /// What its hello said: its incarnation and its purpose.
    greeted: Option<(Incarnation, Purpose)>,
}

/// What there was on a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Packet,
    Nothing,
    End,
}

impl Service {
    pub(super) fn new(hub: Arc<Hub>, listener: OwnedFd) -> Result<Self> {
        let mut service = Service {
            hub,
            listener,
            listening: false,
            guests: HashMap::new(),
            packet: vec![0; HEAD_BYTES + LARGEST_BODY].into_boxed_slice(),
        };
        service.listen().map_err(|error| Error::system("watch a listening socket", error))?;
        Ok(service)
    }

    /// Serves until the hub is closed.
    pub(super) fn run(mut self) {
        let mut events: Vec<Event> = Vec::with_capacity(64);
        while !self.hub.is_closed() {
            let patience = (!self.listening).then_some(&BREATH);
            match epoll::wait(&self.hub.epoll, spare_capacity(&mut events), patience) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => {
                    tracing::error!("the shm fabric of {} ends: epoll: {error}", self.hub.identity);
                    break;
                }
            }
            if !self.listening
                && let Err(error) = self.listen()
            {
                tracing::warn!("no connection is accepted: {error}");
            }
            // Control before bulk (F5).
            events.sort_by_key(|event| self.is_bulk(event.data.u64()));
            for event in events.drain(..) {
                self.serve(event.data.u64(), event.flags);
            }
        }
        self.hub.close();
    }

    fn is_bulk(&self, token: u64) -> bool {
        let purpose = self.guests.get(&token).and_then(|guest| guest.greeted);
        matches!(purpose, Some((_, Purpose::Messages(Class::Bulk))))
    }

    fn serve(&mut self, token: u64, flags: EventFlags) {
        match token {
            WAKE => {}
            LISTENER => self.let_in(),
            token if self.guests.contains_key(&token) => {
                let turn = if self.is_bulk(token) { TURN_OF_BULK } else { TURN };
                let next = (0..turn).map(|_| self.next_packet(token)).find(|next| *next != Next::Packet);
                if next == Some(Next::End) {
                    self.guests.remove(&token);
                }
            }
            token => {
                if let Some((link, part)) = self.hub.watched(token) {
                    link.seen(token, part, flags);
                }
            }
        }
    }

    fn listen(&mut self) -> rustix::io::Result<()> {
        epoll::add(&self.hub.epoll, &self.listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
        self.listening = true;
        Ok(())
    }

    fn let_in(&mut self) {
        for _ in 0..TURN {
            match packets::accept(self.listener.as_fd()) {
                Ok(socket) => self.welcome(socket),
                Err(Errno::AGAIN) => return,
                Err(Errno::CONNABORTED) => {}
                Err(error) => {
                    // Most likely no descriptor is left; the listener would wake us again at once, for ever.
                    tracing::warn!("no connection is accepted for a moment: {error}");
                    self.listening = epoll::delete(&self.hub.epoll, &self.listener).is_err();
                    return;
                }
            }
        }
    }

    fn welcome(&mut self, socket: OwnedFd) {
        let user = packets::user(socket.as_fd());
        if !user.is_ok_and(|user| self.hub.admits(user)) {
            return tracing::warn!("a connection of user {user:?}, which is not allowed, was closed");
        }
        if self.guests.len() >= MOST_CONNECTIONS {
            return tracing::warn!("a connection beyond the first {MOST_CONNECTIONS} was closed");
        }
        let token = self.hub.new_token();
        let flags = EventFlags::IN | EventFlags::RDHUP;
        match epoll::add(&self.hub.epoll, &socket, EventData::new_u64(token), flags) {
            Ok(()) => drop(self.guests.insert(token, Guest { socket, greeted: None })),
            Err(error) => tracing::warn!("a connection was closed: it cannot be watched: {error}"),
        }
    }

    /// Takes one packet of a guest.
    fn next_packet(&mut self, token: u64) -> Next {
        let Some(guest) = self.guests.get_mut(&token) else { return Next::End };
        let length = match packets::receive(guest.socket.as_fd(), &mut self.packet) {
            Ok(packet) => packet.length,
            Err(Errno::AGAIN) => return Next::Nothing,
            Err(error) => {
                tracing::debug!("a connection was lost: {error}");
                return Next::End;
            }
        };
        if length == 0 {
            return Next::End;
        }
        match guest.take(&self.hub, &self.packet[..length]) {
            Ok(()) => Next::Packet,
            Err(error) => {
                tracing::warn!("a connection was closed: {error}");
                Next::End
            }
        }
    }
}

impl Guest {
    fn take(&mut self, hub: &Hub, packet: &[u8]) -> Result<()> {
        let frame = match &self.greeted {
            Some((from, _)) => Frame::parse(packet, from)?,
            None => Frame::parse(packet, &"a process that connected").inspect_err(|_| {
                // In our own version, so that the other side can name both (F6).
                self.refuse(hub, Refusal::Unreadable);
            })?,
        };
        match (frame, self.greeted) {
            (Frame::Hello { from, to, purpose, secret }, None) => {
                self.hello(hub, from, to, purpose, secret.matches(&hub.place.secret))
            }
            (Frame::Open { number, key }, Some((_, Purpose::Regions))) => self.open(hub, number, &key),
            (Frame::Message { view, port, number, body }, Some((from, Purpose::Messages(class)))) => {
                hub.inboxes.deliver(Message { from, view, number, class, port, body: body.to_vec() });
                Ok(())
            }
            (frame, greeted) => {
                let from = greeted.map_or("a process that connected".into(), |(from, _)| from.to_string());
                Err(Error::Malformed { from, reason: format!("{frame:?} at this point") })
            }
        }
    }

    fn hello(&mut self, hub: &Hub, from: Incarnation, to: Incarnation, purpose: Purpose, knows: bool) -> Result<()> {
        let refused = match (knows, to == hub.identity) {
            (false, _) => Some((Refusal::Secret, "it does not know the secret of the address".to_owned())),
            // F4: a peer that comes for a former incarnation does not get this one.
            (_, false) => {
                Some((Refusal::AnotherIncarnation, format!("it came for {to}, and this is {}", hub.identity)))
            }
            _ => None,
        };
        if let Some((refusal, reason)) = refused {
            self.refuse(hub, refusal);
            return Err(Error::Malformed { from: from.to_string(), reason });
        }
        self.greeted = Some((from, purpose));
        match purpose {
            Purpose::Regions => self.answer(&Frame::Welcome { from: hub.identity }, None),
            Purpose::Messages(_) => Ok(()),
        }
    }

    fn open(&self, hub: &Hub, number: u64, key: &RegionKey) -> Result<()> {
        let segment = hub.segments.lock().get(&key.region).cloned();
        let not = |reason, region_bytes| Frame::NotOpened { number, reason, region_bytes };
        let Some(segment) = segment.filter(|segment| {
            let current = segment.key(Rights::Read);
            (current.owner, current.view) == (key.owner, key.view)
        }) else {
            return self.answer(&not(NotOpened::Revoked, 0), None);
        };
        let region_bytes = segment.mapped().bytes();
        if !segment.secret(key.rights).matches(&key.secret) {
            return self.answer(&not(NotOpened::Denied, region_bytes), None);
        }
        if key.bytes != region_bytes {
            return self.answer(&not(NotOpened::Length, region_bytes), None);
        }
        match key.rights {
            Rights::Change => self.answer(&Frame::Opened { number }, Some(segment.descriptor())),
            Rights::Read => match segment.read_only_descriptor() {
                Ok(descriptor) => self.answer(&Frame::Opened { number }, Some(descriptor.as_fd())),
                Err(error) => {
                    tracing::warn!("region {} was not opened for a peer: {error}", key.region);
                    self.answer(&not(NotOpened::System, region_bytes), None)
                }
            },
        }
    }

    fn refuse(&self, hub: &Hub, reason: Refusal) {
        // A peer that does not read the reason is closed all the same.
        let _ = self.answer(&Frame::Refused { from: hub.identity, reason }, None);
    }

    /// Answers at once: a peer that does not read its answers is let go rather than waited for.
    fn answer(&self, frame: &Frame<'_>, attached: Option<BorrowedFd<'_>>) -> Result<()> {
        packets::send(self.socket.as_fd(), &frame.head(), &[], attached.as_slice())
            .map_err(|error| Error::system("answer a peer", error))
    }
}
