//! What belongs to one incarnation of a node, and ends with it: its memory, and the members that it knows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use verbena_cluster::View;
use verbena_fabric::{Address, Class, Fabric, Inbox, Peer, Port, Region, RegionKey, Rights, SharedRemote, Views};
use verbena_terms::{Incarnation, Time, ViewNumber};

use super::posts::Posts;
use crate::layout::{REGION, Word, claims_at, slot_bytes, word_at};
use crate::wire::Frame;
use crate::{Outcome, Post, PostId, Renewal};

/// Messages about memory.
const MEMORY: Port = Port(19);
/// How long opening a home's memory may take.
const OPEN_DEADLINE: Duration = Duration::from_secs(1);
/// When what could not be opened is tried again.
const OPEN_AGAIN: Duration = Duration::from_millis(50);
/// Bytes that are copied at a time when memory is made anew.
const COPY_BYTES: usize = 64 << 10;

pub(super) struct Life {
    fabric: Arc<dyn Fabric>,
    pub(super) inbox: Inbox,
    own: Option<Box<dyn Region>>,
    peers: BTreeMap<Incarnation, Link>,
    memory: BTreeMap<Incarnation, Opened>,
    posts: Posts,
    frames: u64,
}

/// A member, as this node reaches it.
struct Link {
    address: Address,
    access: Access<Arc<dyn Peer>>,
}

/// A home's memory.
struct Opened {
    key: RegionKey,
    access: Access<SharedRemote>,
}

enum Access<T> {
    ToOpen(Time),
    Opening,
    Open(T),
}

impl<T> Access<T> {
    fn due(&self) -> Option<Time> {
        match self {
            Access::ToOpen(at) => Some(*at),
            Access::Opening | Access::Open(_) => None,
        }
    }

    fn open(&self) -> Option<&T> {
        match self {
            Access::Open(open) => Some(open),
            Access::ToOpen(_) | Access::Opening => None,
        }
    }
}

/// What is to be opened. That may block a thread, so it happens away from the driver.
pub(super) struct Opening {
    /// In whose life.
    me: Incarnation,
    what: ToOpen,
}

enum ToOpen {
    Peer { fabric: Arc<dyn Fabric>, member: Incarnation, address: Address },
    Memory { peer: Arc<dyn Peer>, key: RegionKey, deadline: Time },
}

/// It is open, or cannot be opened.
pub(super) struct HasOpened {
    me: Incarnation,
    what: IsOpen,
}

enum IsOpen {
    Peer(Incarnation, verbena_fabric::Result<Arc<dyn Peer>>),
    Memory(RegionKey, verbena_fabric::Result<SharedRemote>),
}

impl Opening {
    /// Opens it. May block.
    pub(super) fn run(self) -> HasOpened {
        let what = match self.what {
            ToOpen::Peer { fabric, member, address } => IsOpen::Peer(member, fabric.connect(member, &address)),
            ToOpen::Memory { peer, key, deadline } => {
                let memory = peer.open(&key, deadline);
                IsOpen::Memory(key, memory)
            }
        };
        HasOpened { me: self.me, what }
    }
}

impl Life {
    pub(super) fn begin(fabric: Arc<dyn Fabric>) -> verbena_fabric::Result<Life> {
        let inbox = fabric.listen(MEMORY, Views::CurrentAndLater)?;
        let (peers, memory, posts) = (BTreeMap::new(), BTreeMap::new(), Posts::default());
        Ok(Life { fabric, inbox, own: None, peers, memory, posts, frames: 0 })
    }

    pub(super) fn me(&self) -> Incarnation {
        self.fabric.identity()
    }

    /// Ends what was done in older views. Its own memory stays as it is until the view is in effect.
    pub(super) fn view(&mut self, view: &View, now: Time) {
        let me = self.me();
        self.memory.clear();
        self.peers.retain(|peer, _| view.member(*peer).is_some());
        self.posts.view_ends(|home| view.member(home).is_some());
        for member in view.members() {
            let peer = member.incarnation;
            let address = if peer == me { self.fabric.address() } else { Address(member.address.clone()) };
            self.peers.entry(peer).or_insert(Link { address, access: Access::ToOpen(now) });
        }
    }

    /// Makes its memory anew, with what stands in the old one (rules M2 and F4). Nobody changes what stands there: whoever did acts no more. What may
    /// still land in the old memory after that nobody reads.
    pub(super) fn renew(&mut self, renewal: &Renewal, view: ViewNumber) -> verbena_fabric::Result<RegionKey> {
        let new = self.fabric.register(renewal.bytes, view)?;
        new.store(0, REGION.word())?;
        if let Some(old) = &self.own {
            let mut buffer = vec![0; COPY_BYTES];
            for segment in &renewal.segments {
                let word = Word::from_bits(old.load(word_at(segment.control))?);
                let Some(slot) = word.slot() else { continue };
                let bytes = slot_bytes(segment.wanted.bytes);
                let from = segment.at + u64::from(slot) * bytes;
                for at in (from..from + bytes).step_by(COPY_BYTES) {
                    let piece = &mut buffer[..COPY_BYTES.min((from + bytes - at) as usize)];
                    old.read(at, piece)?;
                    new.write(at, piece)?;
                }
                new.store(word_at(segment.control), word.to_bits())?;
                new.store(claims_at(segment.control), 1 << slot)?;
            }
        }
        let key = new.key(Rights::Change);
        self.own = Some(new);
        Ok(key)
    }

    /// Stores a word of its own memory that no atomic changes.
    pub(super) fn store(&self, at: u64, word: u64) {
        let stored = self.own.as_ref().map(|own| own.store(at, word));
        if let Some(Err(error)) = stored {
            tracing::warn!(%error, "free memory was not published");
        }
    }

    /// A home has said where its memory is.
    pub(super) fn learn(&mut self, key: RegionKey, now: Time) {
        self.memory.insert(key.owner, Opened { key, access: Access::ToOpen(now) });
    }

    /// What is to be opened now: it is being opened from now on.
    pub(super) fn openings(&mut self, now: Time) -> Vec<Opening> {
        let me = self.me();
        let is_due = |due: Option<Time>| due.is_some_and(|at| at <= now);
        let mut openings = vec![];
        for (member, link) in &mut self.peers {
            if is_due(link.access.due()) {
                link.access = Access::Opening;
                let (fabric, address) = (self.fabric.clone(), link.address.clone());
                openings.push(Opening { me, what: ToOpen::Peer { fabric, member: *member, address } });
            }
        }
        for (home, opened) in &mut self.memory {
            if is_due(opened.access.due())
                && let Some(peer) = self.peers.get(home).and_then(|link| link.access.open())
            {
                opened.access = Access::Opening;
                let (peer, key, deadline) = (peer.clone(), opened.key.clone(), now + OPEN_DEADLINE);
                openings.push(Opening { me, what: ToOpen::Memory { peer, key, deadline } });
            }
        }
        openings
    }

    /// Something was opened, or not.
    pub(super) fn opened(&mut self, opened: HasOpened, now: Time) {
        if opened.me != self.me() {
            return;
        }
        match opened.what {
            IsOpen::Peer(member, peer) => {
                let Some(link) = self.peers.get_mut(&member) else { return };
                let address = &link.address;
                link.access = peer.map(Access::Open).unwrap_or_else(|error| {
                    tracing::warn!(peer = %member, %address, %error, "a member cannot be reached on this fabric");
                    Access::ToOpen(now + OPEN_AGAIN)
                });
            }
            IsOpen::Memory(key, memory) => {
                let Some(known) = self.memory.get_mut(&key.owner).filter(|known| known.key == key) else { return };
                known.access = memory.map(Access::Open).unwrap_or_else(|error| {
                    tracing::debug!(home = %key.owner, %error, "a home's memory could not be opened");
                    Access::ToOpen(now + OPEN_AGAIN)
                });
            }
        }
    }

    pub(super) fn post(&mut self, post: Post, until: Time, now: Time) {
        self.posts.post(post, until, &*self.fabric, now);
    }

    /// Posts what can be, and gives what came of what was.
    pub(super) fn look(&mut self, now: Time) -> Vec<(PostId, Outcome)> {
        let memory = &self.memory;
        self.posts.look(now, &*self.fabric, |home| memory.get(&home)?.access.open().cloned())
    }

    /// It may be lost: it is said again.
    pub(super) fn send(&mut self, frame: &Frame) {
        let Some(peer) = self.peers.get(&frame.to).and_then(|link| link.access.open()) else { return };
        self.frames += 1;
        if let Err(error) = peer.send(Class::Control, frame.view, MEMORY, self.frames, &frame.encode()) {
            tracing::debug!(to = %frame.to, %error, "a message about memory was not sent");
        }
    }

    pub(super) fn poll_answered(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.posts.poll_answered(context)
    }

    #[cfg(feature = "testing")]
    pub(super) fn is_awaiting(&self) -> bool {
        self.posts.are_awaited()
    }

    /// When something is to be done if nothing arrives.
    pub(super) fn next_deadline(&self) -> Option<Time> {
        let is_open = |home| self.memory.get(&home).is_some_and(|opened: &Opened| opened.access.open().is_some());
        let posts = self.posts.next_deadline(is_open);
        let is_reached = |home| self.peers.get(home).is_some_and(|link| link.access.open().is_some());
        let memory = self.memory.iter().filter(|(home, _)| is_reached(*home)).filter_map(|(_, its)| its.access.due());
        let links = self.peers.values().filter_map(|link| link.access.due());
        links.chain(memory).chain(posts).min()
    }
}
