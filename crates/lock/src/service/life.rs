//! What belongs to one incarnation of a node, and ends with it: its words, and the members that it knows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use verbena_cluster::{Role, View};
use verbena_fabric::{Address, Class, Fabric, Inbox, Peer, Port, Region, RegionKey, Rights, SharedRemote, Views};
use verbena_terms::{Incarnation, Time};

use super::Metrics;
use super::posts::Posts;
use crate::wire::Frame;

/// Messages about locks.
const LOCKS: Port = Port(18);
/// How long opening a home's words may take.
const OPEN_DEADLINE: Duration = Duration::from_secs(1);
/// When words that could not be opened are tried again.
const OPEN_AGAIN: Duration = Duration::from_millis(50);
/// When a member whose address could not be used is tried again.
const CONNECT_AGAIN: Duration = Duration::from_secs(1);

pub(super) struct Life {
    fabric: Arc<dyn Fabric>,
    pub(super) inbox: Inbox,
    own: Option<Box<dyn Region>>,
    peers: BTreeMap<Incarnation, Link>,
    words: BTreeMap<Incarnation, Words>,
    pub(super) posts: Posts,
    frames: u64,
    metrics: Metrics,
}

/// A member, as this node reaches it.
struct Link {
    address: Address,
    access: Access<Arc<dyn Peer>>,
}

/// A home's words, as this node has them.
struct Words {
    key: RegionKey,
    access: Access<SharedRemote>,
}

enum Access<T> {
    ToOpen(Time),
    Opening,
    Open(T),
}

impl<T> Access<T> {
    /// When it is to be opened.
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
    Words { peer: Arc<dyn Peer>, key: RegionKey, deadline: Time },
}

/// It is open, or cannot be opened.
pub(super) struct Opened {
    me: Incarnation,
    what: IsOpen,
}

enum IsOpen {
    Peer(Incarnation, verbena_fabric::Result<Arc<dyn Peer>>),
    Words(RegionKey, verbena_fabric::Result<SharedRemote>),
}

impl Opening {
    /// Opens it. May block.
    pub(super) fn run(self) -> Opened {
        let what = match self.what {
            ToOpen::Peer { fabric, member, address } => IsOpen::Peer(member, fabric.connect(member, &address)),
            ToOpen::Words { peer, key, deadline } => {
                let words = peer.open(&key, deadline);
                IsOpen::Words(key, words)
            }
        };
        Opened { me: self.me, what }
    }
}

impl Life {
    pub(super) fn begin(fabric: Arc<dyn Fabric>, metrics: Metrics) -> verbena_fabric::Result<Life> {
        let inbox = fabric.listen(LOCKS, Views::CurrentAndLater)?;
        let (own, peers, words, posts) = (None, BTreeMap::new(), BTreeMap::new(), Posts::new(metrics.clone()));
        Ok(Life { fabric, inbox, own, peers, words, posts, frames: 0, metrics })
    }

    pub(super) fn me(&self) -> Incarnation {
        self.fabric.identity()
    }

    /// Ends what was done in older views, and gives the node's own words in this one, if it is a home in it: new memory (rule F4).
    ///
    /// # Errors
    /// If there is no memory for them.
    pub(super) fn view(&mut self, view: &View, bytes: u64, now: Time) -> verbena_fabric::Result<Option<RegionKey>> {
        let me = self.me();
        self.words.clear();
        self.peers.retain(|peer, _| view.member(*peer).is_some());
        self.posts.view_ends(|home| view.member(home).is_some());
        for member in view.members() {
            let peer = member.incarnation;
            let address = if peer == me { self.fabric.address() } else { Address(member.address.clone()) };
            self.peers.entry(peer).or_insert(Link { address, access: Access::ToOpen(now) });
        }
        if !view.member(me).is_some_and(|member| member.roles.has(Role::Home)) {
            self.own = None;
            return Ok(None);
        }
        let own = match self.own.take() {
            Some(own) => {
                own.remake(view.number())?;
                own
            }
            None => self.fabric.register(bytes, view.number())?,
        };
        let key = own.key(Rights::Change);
        self.own = Some(own);
        Ok(Some(key))
    }

    /// Stores a word of a lock that nobody knows of yet.
    pub(super) fn store(&self, at: u64, word: u64) {
        let own = self.own.as_ref().expect("invariant: a directory is there as long as its words");
        own.store(at, word).expect("invariant: a directory has as many slots as its region");
    }

    /// A home has said where its words are.
    pub(super) fn learn(&mut self, key: RegionKey, now: Time) {
        self.words.insert(key.owner, Words { key, access: Access::ToOpen(now) });
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
        for (home, words) in &mut self.words {
            if is_due(words.access.due())
                && let Some(peer) = self.peers.get(home).and_then(|link| link.access.open())
            {
                words.access = Access::Opening;
                let (peer, key, deadline) = (peer.clone(), words.key.clone(), now + OPEN_DEADLINE);
                openings.push(Opening { me, what: ToOpen::Words { peer, key, deadline } });
            }
        }
        openings
    }

    /// Something was opened, or not. Gives the member that can be told something from now on.
    pub(super) fn opened(&mut self, opened: Opened, now: Time) -> Option<Incarnation> {
        if opened.me != self.me() {
            return None;
        }
        match opened.what {
            IsOpen::Peer(member, peer) => {
                let link = self.peers.get_mut(&member)?;
                let (is_open, address) = (peer.is_ok(), &link.address);
                link.access = peer.map(Access::Open).unwrap_or_else(|error| {
                    tracing::warn!(peer = %member, %address, %error, "a member cannot be reached on this fabric");
                    Access::ToOpen(now + CONNECT_AGAIN)
                });
                is_open.then_some(member)
            }
            IsOpen::Words(key, words) => {
                let known = self.words.get_mut(&key.owner).filter(|known| known.key == key)?;
                known.access = words.map(Access::Open).unwrap_or_else(|error| {
                    tracing::debug!(home = %key.owner, %error, "a home's words could not be opened");
                    Access::ToOpen(now + OPEN_AGAIN)
                });
                None
            }
        }
    }

    /// Posts what can be, and gives what came of what was.
    pub(super) fn look(&mut self, now: Time) -> Vec<(crate::PostId, crate::Outcome)> {
        let words = &self.words;
        self.posts.look(now, |home| words.get(&home)?.access.open().cloned())
    }

    /// It may be lost: it is said again.
    pub(super) fn send(&mut self, frame: &Frame) {
        let Some(peer) = self.peers.get(&frame.to).and_then(|link| link.access.open()) else { return };
        self.frames += 1;
        self.metrics.frames.increment();
        self.metrics.letters.add(frame.letters.len() as u64);
        if let Err(error) = peer.send(Class::Control, frame.view, LOCKS, self.frames, &frame.encode()) {
            tracing::debug!(to = %frame.to, %error, "a message about locks was not sent");
        }
    }

    /// When something is to be done if nothing arrives. Words wait until their owner can be reached, batches until the words are open: that is said by
    /// [`opened`](Self::opened).
    pub(super) fn next_deadline(&self) -> Option<Time> {
        let is_open = |home| self.words.get(&home).is_some_and(|words: &Words| words.access.open().is_some());
        let posts = self.posts.next_deadline(is_open);
        let is_reached = |home| self.peers.get(home).is_some_and(|link| link.access.open().is_some());
        let words = self.words.iter().filter(|(home, _)| is_reached(*home)).filter_map(|(_, words)| words.access.due());
        let links = self.peers.values().filter_map(|link| link.access.due());
        links.chain(words).chain(posts).min()
    }
}
