//! The segments that this node knows: where each is, the words that were seen of it last, the copy of its value, and the puts that wait for each other.
//!
//! A node works on a segment through its handle. It learns it from an answer, and has it until the view ends, the segment comes to its end, or another segment
//! needs the room. A home that asks a node to forget a segment gets its answer when no operation of the node is in flight there (rule M2).

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use verbena_terms::{Incarnation, Time};

use super::put::Known;
use crate::access::Step;
use crate::actions::QuestionId;
use crate::layout::{End, Word, claims_at};
use crate::{MemoryOptions, RequestId, Segment, SegmentId, SegmentName, Value};

/// Segments that a node remembers.
const HANDLES: usize = 65_536;
/// After so long without a put a node gives the slot back.
const KEEP: Duration = Duration::from_millis(50);

pub(super) struct Handles {
    options: MemoryOptions,
    handles: BTreeMap<SegmentId, Handle>,
    names: BTreeMap<SegmentName, SegmentId>,
    /// Segments that have come to their end. Answers to questions up to this one may still speak of them.
    ended: BTreeMap<SegmentId, (u64, End)>,
    /// How often anything was forgotten of which a program may read the value in this node's memory.
    forgets: u64,
    copied_bytes: u64,
}

/// A segment, as this node knows it.
pub(super) struct Handle {
    segment: Segment,
    known: Known,
    /// Puts of this node, of which the first is at work.
    puts: VecDeque<RequestId>,
    /// Posts in flight to it.
    open: usize,
    used: Time,
    copy: Option<CachedValue>,
    /// The question of the home that waits until this node has nothing in flight to the segment, and the end.
    forget: Option<(QuestionId, End)>,
}

/// A value that was read.
pub(super) struct CachedValue {
    pub(super) value: Value,
    /// It was the segment's then, or later.
    pub(super) since: Time,
}

/// A segment that this node does not know any longer.
pub(super) struct Farewell {
    pub(super) segment: Segment,
    pub(super) end: End,
    /// Puts that have not begun.
    pub(super) puts: VecDeque<RequestId>,
    /// The home's question, which can be answered now.
    pub(super) asker: QuestionId,
}

impl Handle {
    fn new(segment: Segment, now: Time) -> Self {
        let known = Known { claims: 1, ..Known::default() };
        Handle { segment, known, puts: VecDeque::new(), open: 0, used: now, copy: None, forget: None }
    }

    pub(super) fn segment(&self) -> &Segment {
        &self.segment
    }

    /// The end that the segment is about to come to.
    pub(super) fn end(&self) -> Option<End> {
        self.forget.map(|(_, end)| end)
    }

    pub(super) fn copy(&self) -> Option<&CachedValue> {
        self.copy.as_ref()
    }

    /// The word as it was seen last.
    pub(super) fn word(&self) -> Word {
        self.known.word
    }

    pub(super) fn set_word(&mut self, word: Word) {
        self.known.word = word;
    }

    /// For a put, which sees and changes the words.
    pub(super) fn words(&mut self) -> (&Segment, &mut Known) {
        (&self.segment, &mut self.known)
    }

    /// Its slot may be the value's.
    pub(super) fn loses_slot(&mut self) {
        self.known.kept = None;
    }

    /// Whether the put is the first, and is to begin.
    pub(super) fn queue_put(&mut self, id: RequestId) -> bool {
        self.puts.push_back(id);
        self.puts.len() == 1
    }

    /// A put has ended: the one that is to begin, if the other was at work.
    pub(super) fn put_ended(&mut self, id: RequestId) -> Option<RequestId> {
        if self.puts.front() != Some(&id) {
            self.puts.retain(|other| *other != id);
            return None;
        }
        self.puts.pop_front();
        // What is in flight to a segment that is about to be forgotten ends, and nothing is begun.
        self.puts.front().copied().filter(|_| self.forget.is_none())
    }

    /// Whether no operation of this node works on it.
    fn is_unused(&self) -> bool {
        self.puts.is_empty() && self.open == 0
    }

    /// When its slot is given back.
    fn give_back_at(&self) -> Option<Time> {
        (self.known.kept.is_some() && self.is_unused()).then(|| self.used + KEEP)
    }
}

impl Handles {
    pub(super) fn new(options: MemoryOptions) -> Self {
        let (handles, names, ended) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Handles { options, handles, names, ended, forgets: 0, copied_bytes: 0 }
    }

    /// The next view has other homes, and other memory.
    pub(super) fn view_ends(&mut self) {
        self.forgets += u64::from(self.options.rules.windows_end_with_views);
        self.handles.clear();
        self.names.clear();
        self.ended.clear();
        self.copied_bytes = 0;
    }

    /// A segment that this node works on from now on.
    pub(super) fn learn(&mut self, segment: Segment, now: Time) {
        if self.handles.len() >= HANDLES {
            let is_idle = |handle: &Handle| handle.is_unused() && handle.known.kept.is_none();
            if let Some(id) = self.handles.iter().find(|(_, handle)| is_idle(handle)).map(|(id, _)| *id) {
                self.remove(id);
            }
        }
        if let Some(name) = &segment.wanted.name {
            self.names.insert(name.clone(), segment.id);
        }
        self.handles.entry(segment.id).or_insert_with(|| Handle::new(segment, now));
    }

    pub(super) fn named(&self, name: &SegmentName) -> Option<SegmentId> {
        self.names.get(name).copied()
    }

    pub(super) fn get(&self, id: SegmentId) -> Option<&Handle> {
        self.handles.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: SegmentId) -> Option<&mut Handle> {
        self.handles.get_mut(&id)
    }

    fn remove(&mut self, id: SegmentId) -> Option<Handle> {
        let handle = self.handles.remove(&id)?;
        if let Some(name) = handle.segment.wanted.name.as_ref().filter(|name| self.names.get(name) == Some(&id)) {
            self.names.remove(name);
        }
        self.copied_bytes -= handle.copy.as_ref().map_or(0, |copy| copy.value.bytes.len() as u64);
        Some(handle)
    }

    // Posts, and slots that are not used.

    pub(super) fn post_begins(&mut self, id: SegmentId, now: Time) {
        let Some(handle) = self.handles.get_mut(&id) else { return };
        handle.open += 1;
        // A request that only gets keeps no slot from others.
        if !handle.puts.is_empty() {
            handle.used = now;
        }
    }

    pub(super) fn post_ended(&mut self, id: SegmentId) {
        if let Some(handle) = self.handles.get_mut(&id) {
            handle.open -= 1;
        }
    }

    /// Slots that were not used for a while are free for others: what is to be posted, and at which home.
    pub(super) fn give_back(&mut self, now: Time) -> Vec<(SegmentId, Incarnation, Step)> {
        let mut steps = vec![];
        for (id, handle) in &mut self.handles {
            if handle.give_back_at().is_some_and(|at| now >= at)
                && let Some(slot) = handle.known.kept.take()
            {
                // The bit is this node's: taking it away as a number changes no other.
                let step = Step::Add(claims_at(handle.segment.control), (1u64 << slot).wrapping_neg());
                steps.push((*id, handle.segment.home, step));
            }
        }
        steps
    }

    pub(super) fn give_back_at(&self) -> Option<Time> {
        self.handles.values().filter_map(Handle::give_back_at).min()
    }

    // The end of a segment.

    /// How often anything was forgotten of which a program may read the value in this node's memory.
    pub(super) fn forgets(&self) -> u64 {
        self.forgets
    }

    /// The home has the node forget a segment; the node's own home if `is_own`. Whether the node knows it, and answers when nothing is in flight to it.
    pub(super) fn forget(&mut self, id: SegmentId, end: End, asker: QuestionId, is_own: bool) -> bool {
        let handle = self.handles.get_mut(&id);
        // A node may be asked more than once by its own home.
        let is_first = handle.as_ref().is_none_or(|handle| handle.forget.is_none());
        self.forgets += u64::from(is_first && is_own && self.options.rules.windows_end_with_segments);
        let is_known = handle.is_some();
        if let Some(handle) = handle {
            handle.forget = Some((asker, end));
        }
        is_known
    }

    /// Drops a segment that its home has the node forget, if nothing is in flight to it.
    pub(super) fn drop_if_ended(&mut self, id: SegmentId) -> Option<Farewell> {
        let (asker, end) = self.handles.get(&id).filter(|handle| handle.open == 0)?.forget?;
        let Handle { segment, puts, .. } = self.remove(id)?;
        Some(Farewell { segment, end, puts, asker })
    }

    /// Answers to questions up to this one may still speak of the segment.
    pub(super) fn remember_end(&mut self, id: SegmentId, end: End, asked: u64) {
        self.ended.insert(id, (asked, end));
    }

    /// No question is open that is older than this.
    pub(super) fn answered_before(&mut self, oldest: u64) {
        self.ended.retain(|_, (asked, _)| *asked >= oldest);
    }

    /// The end of a segment, if it has come since this question was asked: what the answer says of it is not true any longer.
    pub(super) fn end_since(&self, id: SegmentId, question: u64) -> Option<End> {
        self.ended.get(&id).filter(|(asked, _)| question <= *asked).map(|(_, end)| *end)
    }

    /// How many ends are remembered.
    #[cfg(test)]
    pub(super) fn ends(&self) -> usize {
        self.ended.len()
    }

    // Copies.

    pub(super) fn copied_bytes(&self) -> u64 {
        self.copied_bytes
    }

    pub(super) fn keep_copy(&mut self, id: SegmentId, copy: CachedValue) {
        self.drop_copy(id);
        let (bytes, most) = (copy.value.bytes.len() as u64, self.options.copies_bytes);
        if bytes > most {
            return;
        }
        if self.copied_bytes + bytes > most {
            // Whatever is wanted again is read again.
            self.handles.values_mut().for_each(|handle| handle.copy = None);
            self.copied_bytes = 0;
        }
        if let Some(handle) = self.handles.get_mut(&id) {
            handle.copy = Some(copy);
            self.copied_bytes += bytes;
        }
    }

    pub(super) fn drop_copy(&mut self, id: SegmentId) {
        if let Some(copy) = self.handles.get_mut(&id).and_then(|handle| handle.copy.take()) {
            self.copied_bytes -= copy.value.bytes.len() as u64;
        }
    }
}
