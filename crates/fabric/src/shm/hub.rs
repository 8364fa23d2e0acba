//! What one fabric's threads share: its identity, its regions, its links, and what its service thread watches.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use verbena_terms::Incarnation;

use super::fabric::Settings;
use super::link::{End, Link};
use super::place::Place;
use super::segment::Segment;
use crate::error::{Error, Result};
use crate::message::{Class, InboxSender};

/// Messages that wait in one inbox; later ones are dropped and counted.
const MOST_WAITING: usize = 1024;

/// The watched descriptors of a hub itself; everything else takes a higher number.
pub(super) const WAKE: u64 = 0;
pub(super) const LISTENER: u64 = 1;
const FIRST_TOKEN: u64 = 2;

pub(super) struct Hub {
    pub(super) identity: Incarnation,
    pub(super) place: Place,
    pub(super) inboxes: InboxSender,
    pub(super) epoll: OwnedFd,
    /// The current making of every region.
    pub(super) segments: Mutex<HashMap<u32, Arc<Segment>>>,
    allowed_users: Vec<u32>,
    wake: OwnedFd,
    closed: AtomicBool,
    last_region: AtomicU32,
    links: Mutex<HashMap<(Incarnation, Place), Weak<Link>>>,
    watched: Mutex<HashMap<u64, (Weak<Link>, Part)>>,
    next_token: AtomicU64,
}

/// Which connection of a link is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// The one by which regions were opened: it hangs up when the owner is gone.
    Lifeline,
    /// Messages of one class.
    Messages(Class),
}

impl Hub {
    pub(super) fn new(settings: &Settings, place: Place) -> Result<Self> {
        let epoll =
            epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|error| Error::system("make an epoll", error))?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| Error::system("make an eventfd", error))?;
        epoll::add(&epoll, &wake, EventData::new_u64(WAKE), EventFlags::IN)
            .map_err(|error| Error::system("watch an eventfd", error))?;
        let mut allowed_users = settings.allowed_users.clone();
        allowed_users.push(rustix::process::geteuid().as_raw());
        Ok(Hub {
            identity: settings.identity,
            place,
            inboxes: InboxSender::new(MOST_WAITING),
            epoll,
            segments: Mutex::default(),
            allowed_users,
            wake,
            closed: AtomicBool::new(false),
            last_region: AtomicU32::new(0),
            links: Mutex::default(),
            watched: Mutex::default(),
            next_token: AtomicU64::new(FIRST_TOKEN),
        })
    }

    /// Whether a process of this user may talk to us, and we to it.
    pub(super) fn admits(&self, user: u32) -> bool {
        self.allowed_users.contains(&user)
    }

    /// A number for a new region, never given twice.
    pub(super) fn new_region(&self) -> Result<u32> {
        let full = Error::Full { what: "the numbering of regions", most: u32::MAX as usize };
        let next = |last: u32| last.checked_add(1);
        self.last_region.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).map(|last| last + 1).map_err(|_| full)
    }

    /// The link to a peer, made if it does not exist.
    pub(super) fn link(self: &Arc<Self>, peer: Incarnation, place: Place) -> Result<Arc<Link>> {
        let mut links = self.links.lock();
        if self.is_closed() {
            return Err(Error::Closed);
        }
        if let Some(link) = links.get(&(peer, place)).and_then(Weak::upgrade) {
            return Ok(link);
        }
        links.retain(|_, link| link.strong_count() > 0);
        let link = Link::new(self.clone(), peer, place);
        links.insert((peer, place), Arc::downgrade(&link));
        Ok(link)
    }

    /// A number to watch a descriptor by.
    pub(super) fn new_token(&self) -> u64 {
        self.next_token.fetch_add(1, Ordering::Relaxed)
    }

    /// Has the service thread watch a connection of a link, for being hung up and for `flags`.
    pub(super) fn watch(&self, socket: impl AsFd, link: &Weak<Link>, part: Part, flags: EventFlags) -> Result<u64> {
        let token = self.new_token();
        self.watched.lock().insert(token, (link.clone(), part));
        epoll::add(&self.epoll, socket, EventData::new_u64(token), flags | EventFlags::RDHUP).map_err(|error| {
            self.forget(token);
            Error::system("watch a connection", error)
        })?;
        Ok(token)
    }

    /// This number is not used any more: closes its connection.
    pub(super) fn forget(&self, token: u64) {
        self.watched.lock().remove(&token);
    }

    /// The link and the part of the connection with this number.
    pub(super) fn watched(&self, token: u64) -> Option<(Arc<Link>, Part)> {
        let watched = self.watched.lock();
        let (link, part) = watched.get(&token)?;
        let (link, part) = (link.clone(), *part);
        // Not under the lock: dropping what may be the last handle of the link takes it.
        drop(watched);
        Some((link.upgrade()?, part))
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Revokes every region, ends every link, and lets the service thread end. Once; again does nothing.
    pub(super) fn close(&self) {
        {
            let mut segments = self.segments.lock();
            self.closed.store(true, Ordering::Release);
            segments.drain().for_each(|(_, segment)| segment.revoke());
        }
        let links: Vec<_> = self.links.lock().values().filter_map(Weak::upgrade).collect();
        links.iter().for_each(|link| link.end(End::Closed));
        // A full counter wakes as well as one more would.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}
