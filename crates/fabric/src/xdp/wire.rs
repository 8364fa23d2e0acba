//! Frames: how they are written and taken apart. Their layout is in [the module's documentation](super).

use std::hash::Hasher;

use siphasher::sip::SipHasher24;

use crate::ending::{Outcome, RegionId};
use crate::operation::{Operation, OperationId, Settled};

/// Words of the largest frame: what fits in an Ethernet frame of 1500 bytes with IPv6.
pub(crate) const MOST_WORDS: usize = 180;
/// Words before the items of a frame.
pub(crate) const FRAME_WORDS: usize = 4;
/// Words of an item before its elements.
pub(crate) const ITEM_WORDS: usize = 5;
/// Words of an element before its body.
pub(crate) const ELEMENT_WORDS: usize = 2;

const MAGIC: u32 = u32::from_le_bytes(*b"VXDP");
const VERSION: u8 = 1;
const REQUEST: u8 = 1;
const ANSWER: u8 = 2;
const STRANGER: u8 = 3;
const TAG: usize = 3;

const BATCH: u8 = 1;
const SETTLE: u8 = 2;

/// What a caller shares with a node that it was introduced to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct TagKey(pub(crate) [u64; 2]);

impl TagKey {
    fn tag(self, words: &[u64]) -> u64 {
        let mut hasher = SipHasher24::new_with_keys(self.0[0], self.0[1]);
        for (at, word) in words.iter().enumerate() {
            hasher.write(&if at == TAG { 0 } else { *word }.to_le_bytes());
        }
        hasher.finish()
    }
}

/// How many words an element takes in a frame.
pub(crate) fn element_words(operation: &Operation) -> usize {
    let body = match operation {
        Operation::CompareSwap { .. } => 2,
        Operation::Read { at, into } => transfer_words(*at, into.len()),
        Operation::Write { at, from } => transfer_words(*at, from.len()),
        _ => 1,
    };
    ELEMENT_WORDS + body
}

/// Words that hold `length` bytes from byte `at` on.
fn transfer_words(at: u64, length: usize) -> usize {
    if length == 0 { 0 } else { ((at % 8) as usize + length).div_ceil(8) }
}

/// Writes a frame of requests.
#[derive(Default)]
pub(crate) struct FrameWriter {
    words: Vec<u64>,
    items: u16,
}

impl FrameWriter {
    /// Words that still fit.
    pub(crate) fn room(&self) -> usize {
        MOST_WORDS - self.words.len().max(FRAME_WORDS)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items == 0
    }

    /// Adds a batch; there must be room for it.
    pub(crate) fn batch(&mut self, of: &RegionId, first: Option<OperationId>, operations: &[Operation]) {
        let start = self.item(BATCH, operations.len());
        self.right(of, first);
        operations.iter().for_each(|operation| self.element(operation));
        self.end_item(start);
    }

    /// Adds a batch of one read; there must be room for it.
    pub(crate) fn read(&mut self, of: &RegionId, at: u64, length: usize) {
        let start = self.item(BATCH, 1);
        self.right(of, None);
        self.read_element(at, length);
        self.end_item(start);
    }

    /// Adds a settle; there must be room for it.
    pub(crate) fn settle(&mut self, id: OperationId) {
        let start = self.item(SETTLE, 0);
        self.words.extend([0, id.0, 0, 0]);
        self.end_item(start);
    }

    fn item(&mut self, kind: u8, elements: usize) -> usize {
        self.words.resize(self.words.len().max(FRAME_WORDS), 0);
        self.words.push(u64::from(kind) | (elements as u64) << 16);
        self.items += 1;
        self.words.len() - 1
    }

    fn right(&mut self, of: &RegionId, first: Option<OperationId>) {
        self.words.push(u64::from(of.region) | u64::from(of.view.0) << 32);
        self.words.push(first.map_or(0, |id| id.0));
        self.words.extend(of.secret.words());
    }

    fn end_item(&mut self, start: usize) {
        let words = self.words.len() - start;
        self.words[start] |= (words as u64) << 48;
        debug_assert!(self.words.len() <= MOST_WORDS, "whoever adds an item has asked for room");
    }

    fn element(&mut self, operation: &Operation) {
        let (code, at) = match operation {
            Operation::ReadWord { at } => (1, *at),
            Operation::WriteWord { at, .. } => (2, *at),
            Operation::CompareSwap { at, .. } => (3, *at),
            Operation::FetchAdd { at, .. } => (4, *at),
            Operation::Read { at, .. } => (5, *at),
            Operation::Write { at, .. } => (6, *at),
        };
        let body = element_words(operation) - ELEMENT_WORDS;
        let head = code | (body as u64) << 32;
        match operation {
            Operation::ReadWord { .. } => self.words.extend([head, at, 0]),
            Operation::WriteWord { value, .. } => self.words.extend([head, at, *value]),
            Operation::CompareSwap { expected, desired, .. } => self.words.extend([head, at, *expected, *desired]),
            Operation::FetchAdd { addend, .. } => self.words.extend([head, at, *addend]),
            Operation::Read { into, .. } => self.read_element(at, into.len()),
            Operation::Write { from, .. } => {
                self.transfer(head, at, from.len());
                let mut bytes = vec![0; 8 * body];
                let places = bytes.iter_mut().skip((at % 8) as usize);
                places.zip(from.bytes()).for_each(|(place, byte)| *place = *byte);
                let (words, _) = bytes.as_chunks::<8>();
                self.words.extend(words.iter().map(|word| u64::from_le_bytes(*word)));
            }
        }
    }

    fn read_element(&mut self, at: u64, length: usize) {
        let body = transfer_words(at, length);
        self.transfer(5 | (body as u64) << 32, at, length);
        self.words.resize(self.words.len() + body, 0);
    }

    fn transfer(&mut self, head: u64, at: u64, length: usize) {
        let skip = if length == 0 { 0 } else { at % 8 };
        let keep = (skip + length as u64).next_multiple_of(8) - skip - length as u64;
        self.words.extend([head | skip << 8 | keep << 16, at - at % 8]);
    }

    /// The frame's bytes, put into `bytes`. The writer is empty after that.
    pub(crate) fn finish(&mut self, caller: u32, serial: u64, key: TagKey, bytes: &mut Vec<u8>) {
        let words = self.words.len();
        self.words[0] = head(REQUEST, words);
        self.words[1] = u64::from(caller) | u64::from(self.items) << 32;
        self.words[2] = serial;
        self.words[TAG] = key.tag(&self.words);
        bytes.clear();
        bytes.extend(self.words.iter().flat_map(|word| word.to_le_bytes()));
        self.words.clear();
        self.items = 0;
    }
}

fn head(kind: u8, words: usize) -> u64 {
    u64::from(MAGIC) | u64::from(VERSION) << 32 | u64::from(kind) << 40 | (words as u64) << 48
}

/// What came back.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Datagram {
    /// Answers to the frame with this serial, item by item.
    Answer(u64, Vec<Answer>),
    /// The frame with this serial was not looked at: its caller is not known. Any host could have sent this.
    Stranger(u64),
}

/// An item of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// A batch's: how it ended, how many elements were executed, and of those the words that came back.
    Batch {
        /// How it ended.
        outcome: Outcome,
        /// Elements that were executed.
        done: usize,
        /// The bodies of all elements.
        bodies: Vec<Vec<u64>>,
    },
    /// A settle's. `None`: the outcome is no longer kept.
    Settled(Option<Settled>),
}

impl Datagram {
    /// Takes a datagram apart. `None` if it is not of this version, or its sender does not have the key.
    pub(crate) fn parse(bytes: &[u8], caller: u32, key: TagKey) -> Option<Self> {
        let (words, rest) = bytes.as_chunks::<8>();
        let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        if !rest.is_empty() || words.len() < FRAME_WORDS || words.len() > MOST_WORDS || words[1] as u32 != caller {
            return None;
        }
        if words[0] == head(STRANGER, words.len()) {
            return Some(Datagram::Stranger(words[2]));
        }
        if words[0] != head(ANSWER, words.len()) || words[TAG] != key.tag(&words) {
            return None;
        }
        let mut items = Vec::new();
        let mut rest = &words[FRAME_WORDS..];
        while !rest.is_empty() {
            let length = (rest[0] >> 48) as usize;
            let (item, behind) = rest.split_at_checked(length).filter(|(item, _)| item.len() >= ITEM_WORDS)?;
            items.push(Answer::parse(item)?);
            rest = behind;
        }
        (items.len() as u64 == words[1] >> 32).then_some(Datagram::Answer(words[2], items))
    }
}

impl Answer {
    fn parse(item: &[u64]) -> Option<Self> {
        let (kind, outcome) = (item[0] as u8, (item[0] >> 8) as u8);
        let (elements, done) = ((item[0] >> 16) as u16, (item[0] >> 32) as u16);
        match (kind, outcome) {
            (BATCH, _) => {
                let mut bodies = Vec::with_capacity(elements.into());
                let mut rest = &item[ITEM_WORDS..];
                for _ in 0..elements {
                    let body = (rest.first()? >> 32) as u16;
                    let (element, behind) = rest.split_at_checked(ELEMENT_WORDS + usize::from(body))?;
                    bodies.push(element[ELEMENT_WORDS..].to_vec());
                    rest = behind;
                }
                let outcome = match outcome {
                    0 => Outcome::Done,
                    1 => Outcome::Revoked,
                    2 => Outcome::Denied,
                    3 => Outcome::OutOfBounds(item[3]),
                    4 => Outcome::Misaligned,
                    5 => Outcome::Unknown,
                    _ => return None,
                };
                let fits =
                    rest.is_empty() && (if outcome == Outcome::Done { done == elements } else { done < elements });
                fits.then_some(Answer::Batch { outcome, done: done.into(), bodies })
            }
            (SETTLE, 0) => Some(Answer::Settled(Some(Settled::Barred))),
            (SETTLE, 1) => Some(Answer::Settled(Some(Settled::Executed(item[3])))),
            (SETTLE, 2) => Some(Answer::Settled(None)),
            _ => None,
        }
    }
}

/// Puts the right tag into a frame that was changed.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn tag(frame: &mut [u8], key: TagKey) {
    let (words, _) = frame.as_chunks::<8>();
    let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
    frame[8 * TAG..8 * TAG + 8].copy_from_slice(&key.tag(&words).to_le_bytes());
}

/// The bytes of a read of `into` from byte `at`, out of the words that came back.
pub(crate) fn fill(at: u64, into: &mut [u8], body: &[u64]) {
    let bytes = body.iter().flat_map(|word| word.to_le_bytes()).skip((at % 8) as usize);
    into.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
}
