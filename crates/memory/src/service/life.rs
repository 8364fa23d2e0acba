//! What belongs to one incarnation of a node, and ends with it: its memory, and the members that it knows.

use std::sync::Arc;
use std::task::{Context, Poll};

use verbena_cluster::View;
use verbena_fabric::contacts::Contacts;
use verbena_fabric::{Address, Class, Fabric, Inbox, Port, Readable, Region, RegionKey, Rights, Views};
use verbena_terms::{Incarnation, Time, ViewNumber};

use super::Metrics;
use super::posts::Posts;
use crate::layout::{REGION, Word, claims_at, slot_bytes, word_at};
use crate::wire::Frame;
use crate::{Outcome, Post, PostId, Renewal, Stands, Stay};

/// Messages about memory.
const MEMORY: Port = Port(19);
/// Bytes that are copied at a time when memory is made anew.
const COPY_BYTES: usize = 64 << 10;

pub(super) struct Life {
    fabric: Arc<dyn Fabric>,
    pub(super) inbox: Inbox,
    own: Option<Box<dyn Region>>,
    pub(super) contacts: Contacts,
    posts: Posts,
    frames: u64,
    metrics: Metrics,
}

impl Life {
    pub(super) fn begin(fabric: Arc<dyn Fabric>, metrics: Metrics) -> verbena_fabric::Result<Life> {
        let inbox = fabric.listen(MEMORY, Views::CurrentAndLater)?;
        let (contacts, posts) = (Contacts::new(fabric.clone()), Posts::default());
        Ok(Life { fabric, inbox, own: None, contacts, posts, frames: 0, metrics })
    }

    pub(super) fn me(&self) -> Incarnation {
        self.fabric.identity()
    }

    /// Ends what was done in older views. Its own memory stays as it is until the view is in effect.
    pub(super) fn view(&mut self, view: &View, now: Time) {
        self.posts.view_ends(|home| view.member(home).is_some());
        let members = view.members().iter().map(|member| (member.incarnation, Address(member.address.clone())));
        self.contacts.view(members, now);
    }

    /// Makes its memory anew, with what stands in the old one (rules M2 and F4). Nobody changes what stands there: whoever did acts no more. What may
    /// still land in the old memory after that nobody reads.
    pub(super) fn renew(
        &mut self,
        renewal: &Renewal,
        view: ViewNumber,
    ) -> verbena_fabric::Result<(RegionKey, Vec<Stands>)> {
        let is_pinned = self.fabric.capabilities().pins_memory;
        let bytes = if is_pinned { renewal.least } else { renewal.bytes };
        let new = self.fabric.register(bytes, view)?;
        new.store(0, REGION.word())?;
        let mut stand = vec![];
        if let Some(old) = &self.own {
            let mut buffer = vec![0; COPY_BYTES];
            for Stay { from, place, segment } in &renewal.segments {
                let word = Word::from_bits(old.load(word_at(place.control))?);
                stand.push(Stands { id: segment.id, word });
                // Nothing is in a place of version 0, or in one that was released.
                let Some(slot) = word.slot().filter(|_| word.version() > 0) else { continue };
                let bytes = slot_bytes(segment.wanted.bytes);
                let slot_at = u64::from(slot) * bytes;
                for at in (slot_at..slot_at + bytes).step_by(COPY_BYTES) {
                    let piece = &mut buffer[..COPY_BYTES.min((slot_at + bytes - at) as usize)];
                    old.read(from + at, piece)?;
                    new.write(place.at + at, piece)?;
                }
                new.store(word_at(place.control), word.to_bits())?;
                new.store(claims_at(place.control), 1 << slot)?;
            }
        }
        let key = new.key(Rights::Change);
        self.own = Some(new);
        Ok((key, stand))
    }

    /// Its own memory, for programs of this machine to read, where the fabric's is of such a kind.
    pub(super) fn readable(&self) -> Option<Readable> {
        let readable = self.own.as_ref()?.readable();
        readable.unwrap_or_else(|error| {
            tracing::warn!(%error, "programs cannot read values where they are");
            None
        })
    }

    /// Its own memory, if it is that of this view.
    #[cfg(feature = "testing")]
    pub(super) fn own_of(&self, view: ViewNumber) -> Option<&dyn Region> {
        self.own.as_deref().filter(|own| own.key(Rights::Read).view == view)
    }

    /// Stores a word of its own memory that no atomic changes.
    pub(super) fn store(&self, at: u64, word: u64) {
        let stored = self.own.as_ref().map(|own| own.store(at, word));
        if let Some(Err(error)) = stored {
            tracing::warn!(%error, "free memory was not published");
        }
    }

    /// Nothing stands there any more: the system may have it, where memory is not pinned.
    pub(super) fn discard(&self, at: u64, bytes: u64) {
        let discarded = self.own.as_ref().map(|own| own.discard(at, bytes));
        if let Some(Err(error)) = discarded {
            tracing::warn!(%error, at, bytes, "free memory was not given back to the system");
        }
    }

    pub(super) fn post(&mut self, post: Post, until: Time, now: Time) {
        self.metrics.batches.increment();
        self.posts.post(post, until, &*self.fabric, now);
    }

    /// Posts what can be, and gives what came of what was.
    pub(super) fn look(&mut self, now: Time) -> Vec<(PostId, Outcome)> {
        let contacts = &self.contacts;
        self.posts.look(now, &*self.fabric, |home| contacts.region(home).cloned())
    }

    /// It may be lost: it is said again.
    pub(super) fn send(&mut self, frame: &Frame) {
        let Some(peer) = self.contacts.peer(frame.to) else { return };
        self.frames += 1;
        self.metrics.frames.increment();
        if let Err(error) = peer.send(Class::Control, frame.view, MEMORY, self.frames, &frame.encode()) {
            tracing::debug!(to = %frame.to, %error, "a message about memory was not sent");
        }
    }

    pub(super) fn poll_answered(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.posts.poll_answered(context)
    }

    pub(super) fn has_posts(&self) -> bool {
        self.posts.are_under_way()
    }

    #[cfg(feature = "testing")]
    pub(super) fn is_awaiting(&self) -> bool {
        self.posts.are_awaited()
    }

    /// When something is to be done if nothing arrives.
    pub(super) fn next_deadline(&self) -> Option<Time> {
        let posts = self.posts.next_deadline(|home| self.contacts.region(home).is_some());
        self.contacts.next_deadline().into_iter().chain(posts).min()
    }
}
