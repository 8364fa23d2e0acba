//! What belongs to one incarnation of a node, and ends with it: its words, and the members that it knows.

use std::sync::Arc;

use verbena_cluster::{Role, View};
use verbena_fabric::contacts::Contacts;
use verbena_fabric::{Address, Class, Fabric, Inbox, Port, Region, RegionKey, Rights, Views};
use verbena_terms::{Incarnation, Time};

use super::Metrics;
use super::posts::Posts;
use crate::wire::Frame;

/// Messages about locks.
const LOCKS: Port = Port(18);

pub(super) struct Life {
    fabric: Arc<dyn Fabric>,
    pub(super) inbox: Inbox,
    own: Option<Box<dyn Region>>,
    pub(super) contacts: Contacts,
    pub(super) posts: Posts,
    frames: u64,
    metrics: Metrics,
}

impl Life {
    pub(super) fn begin(fabric: Arc<dyn Fabric>, metrics: Metrics) -> verbena_fabric::Result<Life> {
        let inbox = fabric.listen(LOCKS, Views::CurrentAndLater)?;
        let (contacts, posts) = (Contacts::new(fabric.clone()), Posts::new(metrics.clone()));
        Ok(Life { fabric, inbox, own: None, contacts, posts, frames: 0, metrics })
    }

    pub(super) fn me(&self) -> Incarnation {
        self.fabric.identity()
    }

    /// Ends what was done in older views, and gives the node's own words in this one, if it is a home in it: new memory (rule F4).
    ///
    /// # Errors
    /// If there is no memory for them.
    pub(super) fn view(&mut self, view: &View, bytes: u64, now: Time) -> verbena_fabric::Result<Option<RegionKey>> {
        self.posts.view_ends(|home| view.member(home).is_some());
        let members = view.members().iter().map(|member| (member.incarnation, Address(member.address.clone())));
        self.contacts.view(members, now);
        if !view.member(self.me()).is_some_and(|member| member.roles.has(Role::Home)) {
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

    /// Posts what can be, and gives what came of what was.
    pub(super) fn look(&mut self, now: Time) -> Vec<(crate::PostId, crate::Outcome)> {
        let contacts = &self.contacts;
        self.posts.look(now, |home| contacts.region(home).cloned())
    }

    /// It may be lost: it is said again.
    pub(super) fn send(&mut self, frame: &Frame) {
        let Some(peer) = self.contacts.peer(frame.to) else { return };
        self.frames += 1;
        self.metrics.frames.increment();
        self.metrics.letters.add(frame.letters.len() as u64);
        if let Err(error) = peer.send(Class::Control, frame.view, LOCKS, self.frames, &frame.encode()) {
            tracing::debug!(to = %frame.to, %error, "a message about locks was not sent");
        }
    }

    /// When something is to be done if nothing arrives. Batches wait until the words are open: that is said by [`Contacts::opened`].
    pub(super) fn next_deadline(&self) -> Option<Time> {
        let posts = self.posts.next_deadline(|home| self.contacts.region(home).is_some());
        self.contacts.next_deadline().into_iter().chain(posts).min()
    }
}
