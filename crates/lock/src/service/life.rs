//! What belongs to one incarnation of a node, and ends with it: its words, and the members that it knows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use verbena_cluster::{Role, View};
use verbena_fabric::{Address, Class, Fabric, Inbox, Peer, Port, Region, RegionKey, Rights, SharedRemote, Views};
use verbena_terms::{Incarnation, Time};

use super::posts::Posts;
use crate::wire::Frame;

/// Messages about locks.
const LOCKS: Port = Port(18);
/// How long opening a home's words may take.
const OPEN_DEADLINE: Duration = Duration::from_secs(1);
/// When words that could not be opened are tried again.
const OPEN_AGAIN: Duration = Duration::from_millis(50);

pub(super) struct Life {
    fabric: Arc<dyn Fabric>,
    pub(super) inbox: Inbox,
    own: Option<Box<dyn Region>>,
    peers: BTreeMap<Incarnation, Arc<dyn Peer>>,
    words: BTreeMap<Incarnation, Words>,
    pub(super) posts: Posts,
    frames: u64,
}

/// A home's words, as this node has them.
struct Words {
    key: RegionKey,
    access: Access,
}

enum Access {
    ToOpen(Time),
    Opening,
    Open(SharedRemote),
}

/// Words that are to be opened. That may block a thread, so it happens away from the driver.
pub(super) struct Opening {
    peer: Arc<dyn Peer>,
    key: RegionKey,
    deadline: Time,
}

/// They are open, or cannot be opened.
pub(super) struct Opened {
    key: RegionKey,
    words: verbena_fabric::Result<SharedRemote>,
}

impl Opening {
    /// Opens them. May block.
    pub(super) fn run(self) -> Opened {
        let words = self.peer.open(&self.key, self.deadline);
        Opened { key: self.key, words }
    }
}

impl Life {
    pub(super) fn begin(fabric: Arc<dyn Fabric>) -> verbena_fabric::Result<Life> {
        let inbox = fabric.listen(LOCKS, Views::CurrentAndLater)?;
        let (own, peers, words, posts) = (None, BTreeMap::new(), BTreeMap::new(), Posts::default());
        Ok(Life { fabric, inbox, own, peers, words, posts, frames: 0 })
    }

    pub(super) fn me(&self) -> Incarnation {
        self.fabric.identity()
    }

    /// Ends what was done in older views, and gives the node's own words in this one, if it is a home in it: new memory (rule F4).
    ///
    /// # Errors
    /// If there is no memory for them.
    pub(super) fn view(&mut self, view: &View, bytes: u64) -> verbena_fabric::Result<Option<RegionKey>> {
        let me = self.me();
        self.words.clear();
        self.peers.retain(|peer, _| view.member(*peer).is_some());
        self.posts.view_ends(|home| view.member(home).is_some());
        for member in view.members() {
            let (peer, address) = (member.incarnation, Address(member.address.clone()));
            if self.peers.contains_key(&peer) {
                continue;
            }
            let address = if peer == me { self.fabric.address() } else { address };
            match self.fabric.connect(peer, &address) {
                Ok(connected) => drop(self.peers.insert(peer, connected)),
                Err(error) => tracing::warn!(%peer, %address, %error, "a member cannot be reached on this fabric"),
            }
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
        let mut openings = vec![];
        for (home, words) in &mut self.words {
            if let (Access::ToOpen(at), Some(peer)) = (&words.access, self.peers.get(home))
                && *at <= now
            {
                words.access = Access::Opening;
                openings.push(Opening { peer: peer.clone(), key: words.key.clone(), deadline: now + OPEN_DEADLINE });
            }
        }
        openings
    }

    pub(super) fn opened(&mut self, opened: Opened, now: Time) {
        let Opened { key, words } = opened;
        let Some(known) = self.words.get_mut(&key.owner).filter(|known| known.key == key) else { return };
        known.access = match words {
            Ok(words) => Access::Open(words),
            Err(error) => {
                tracing::debug!(home = %key.owner, %error, "a home's words could not be opened");
                Access::ToOpen(now + OPEN_AGAIN)
            }
        };
    }

    /// Posts what can be, and gives what came of what was.
    pub(super) fn look(&mut self, now: Time) -> Vec<(crate::PostId, crate::Outcome)> {
        let words = &self.words;
        self.posts.look(now, |home| match words.get(&home)?.access {
            Access::Open(ref remote) => Some(remote.clone()),
            Access::ToOpen(_) | Access::Opening => None,
        })
    }

    /// It may be lost: it is said again.
    pub(super) fn send(&mut self, frame: &Frame) {
        let Some(peer) = self.peers.get(&frame.to) else { return };
        self.frames += 1;
        if let Err(error) = peer.send(Class::Control, frame.view, LOCKS, self.frames, &frame.encode()) {
            tracing::debug!(to = %frame.to, %error, "a message about locks was not sent");
        }
    }

    /// When something is to be done if nothing arrives; and whether an answer is awaited.
    pub(super) fn next_deadline(&self) -> (Option<Time>, bool) {
        let (posts, is_awaited) = self.posts.next_deadline();
        let openings = self.words.values().filter_map(|words| match words.access {
            Access::ToOpen(at) => Some(at),
            Access::Opening | Access::Open(_) => None,
        });
        (openings.chain(posts).min(), is_awaited)
    }
}
