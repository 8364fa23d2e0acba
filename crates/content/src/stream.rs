//! One updater's messages to one home: numbered, kept until they are acknowledged, said again (rule P3).
//!
//! The queue is bounded: when it would grow beyond its limit it is replaced by one sync, which is the whole truth, and
//! the begins of what is open. A home that does not answer costs no more than that.

use std::collections::VecDeque;

use verbena_terms::{Incarnation, Time, ViewNumber};

use crate::change::Change;
use crate::home::is_after;
use crate::names::Scope;
use crate::wire::{Body, Updates};

/// Unacknowledged messages of one stream. Beyond it they are replaced by a sync.
const QUEUE_LIMIT: usize = 4096;

/// The messages of this updater to one home in one view.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Stream {
    pub(crate) home: Incarnation,
    /// The word at this updater that the home writes.
    pub(crate) word: u32,
    /// Number of the last sync's last begin: with it the home knows all that was open when the view was learnt.
    pub(crate) through: u32,
    /// The home is out of lease: the view is not held up for it.
    pub(crate) is_gone: bool,
    acknowledged: u32,
    queue: VecDeque<Body>,
    /// When all that waits was said, or the home was last heard to handle something.
    since: Time,
}

/// What frames of this updater have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Letterhead {
    pub(crate) view: ViewNumber,
    pub(crate) from: Incarnation,
    pub(crate) names: u64,
    pub(crate) frame_bytes: usize,
}

impl Stream {
    pub(crate) fn new(home: Incarnation, word: u32) -> Self {
        Stream { home, word, through: 0, is_gone: false, acknowledged: 0, queue: VecDeque::new(), since: Time::ZERO }
    }

    /// Appends a message and gives its number.
    pub(crate) fn push(&mut self, body: Body) -> u32 {
        self.queue.push_back(body);
        self.last()
    }

    /// Replaces all that is not acknowledged by the whole open set, and gives the number with which all of it is begun
    /// (it is not begun again with that rule switched off).
    pub(crate) fn sync<'a>(
        &mut self,
        open: impl Iterator<Item = (u64, Change, &'a Scope)> + Clone,
        begun_again: bool,
    ) -> u32 {
        let first = self.last().wrapping_add(1);
        let begins: Vec<Body> = open
            .clone()
            .filter(|_| begun_again)
            .map(|(number, change, scope)| Body::Begin { number, change, scope: scope.clone() })
            .collect();
        // The sync keeps the number after everything that it stands for; the home may jump to it.
        self.acknowledged = first.wrapping_sub(1);
        self.queue.clear();
        let through = first.wrapping_add(begins.len() as u32);
        self.queue.push_back(Body::Sync { open: open.map(|(number, ..)| number).collect(), through });
        self.queue.extend(begins);
        self.through = through;
        through
    }

    /// Whether the next message should rather be a sync.
    pub(crate) fn is_full(&self) -> bool {
        self.queue.len() >= QUEUE_LIMIT
    }

    /// The home handled everything up to `k`. False if that is no news: a late or repeated write of the word.
    pub(crate) fn acknowledge(&mut self, k: u32, now: Time) -> bool {
        let is_news = is_after(k, self.acknowledged) && !is_after(k, self.last());
        if is_news {
            self.queue.drain(..k.wrapping_sub(self.acknowledged) as usize);
            self.acknowledged = k;
            self.since = now;
        }
        is_news
    }

    /// Whether the home has handled message `k`.
    pub(crate) fn has_handled(&self, k: u32) -> bool {
        !is_after(k, self.acknowledged)
    }

    /// Whether something waits to be acknowledged.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.queue.is_empty()
    }

    /// When to say it again.
    pub(crate) fn again_at(&self, after: std::time::Duration) -> Option<Time> {
        self.is_waiting().then(|| self.since + after)
    }

    /// The last `newest` messages as frames.
    pub(crate) fn frames(&mut self, newest: usize, head: Letterhead, now: Time) -> Vec<Updates> {
        let skip = self.queue.len().saturating_sub(newest);
        // What is new does not put off the repeating of what may be lost before it: the home handles nothing after that.
        if skip == 0 {
            self.since = now;
        }
        let mut first = self.acknowledged.wrapping_add(1).wrapping_add(skip as u32);
        let mut frames = Vec::new();
        let mut bodies = Vec::new();
        let mut bytes = 0;
        for body in self.queue.iter().skip(skip) {
            if !bodies.is_empty() && bytes + body.max_bytes() > head.frame_bytes {
                let full = std::mem::take(&mut bodies);
                let length = full.len() as u32;
                frames.push(self.frame(first, full, head));
                first = first.wrapping_add(length);
                bytes = 0;
            }
            bytes += body.max_bytes();
            bodies.push(body.clone());
        }
        if !bodies.is_empty() {
            frames.push(self.frame(first, bodies, head));
        }
        frames
    }

    /// Everything that is not acknowledged as frames.
    pub(crate) fn all_frames(&mut self, head: Letterhead, now: Time) -> Vec<Updates> {
        self.frames(self.queue.len(), head, now)
    }

    fn frame(&self, first: u32, bodies: Vec<Body>, head: Letterhead) -> Updates {
        Updates { view: head.view, from: head.from, to: self.home, word: self.word, names: head.names, first, bodies }
    }

    fn last(&self) -> u32 {
        self.acknowledged.wrapping_add(self.queue.len() as u32)
    }
}
