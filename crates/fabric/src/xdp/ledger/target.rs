//! A target for tests: does with a frame what the kernel's program does (`../program/check.h`, `../program/execute.h`), on plain memory and one
//! frame at a time.

use std::ops::Range;

use crate::operation::{OperationId, Settled};
use crate::window::{Claim, WINDOW, Window};
use crate::xdp::wire::{ELEMENT_WORDS, FRAME_WORDS, ITEM_WORDS, MOST_WORDS, TagKey, tag};

pub(super) const CALLER: u32 = 77;
pub(super) const REGION: u32 = 5;
pub(super) const VIEW: u32 = 1;
pub(super) const CHANGE: u8 = 1;
pub(super) const READ_ONLY: u8 = 2;

const DONE: u64 = 0;
const REVOKED: u64 = 1;
const DENIED: u64 = 2;
const OUT_OF_BOUNDS: u64 = 3;
const MISALIGNED: u64 = 4;
const UNKNOWN: u64 = 5;
const TAG: usize = 3;

pub(super) struct Target {
    pub(super) memory: Vec<u64>,
    pub(super) key: TagKey,
    /// Whether it knows the caller.
    pub(super) knows: bool,
    window: Window,
    serials: Vec<u64>,
}

/// An item of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Asked {
    /// Its first word in the frame.
    start: usize,
    pub(super) is_settle: bool,
    pub(super) id: u64,
    pub(super) elements: Vec<Element>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Element {
    pub(super) code: u64,
    pub(super) at: u64,
    skip: u64,
    keep: u64,
    /// Words of the frame.
    pub(super) body: Range<usize>,
}

impl Element {
    const fn has_effect(&self) -> bool {
        !matches!(self.code, 1 | 5)
    }
}

pub(super) fn words_of(bytes: &[u8]) -> Vec<u64> {
    let (words, rest) = bytes.as_chunks::<8>();
    assert!(rest.is_empty() && words.len() <= MOST_WORDS, "a frame of {} bytes", bytes.len());
    words.iter().map(|word| u64::from_le_bytes(*word)).collect()
}

/// The bytes of a frame of these words, with its tag.
pub(super) fn tagged(words: &[u64], key: TagKey) -> Vec<u8> {
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    tag(&mut bytes, key);
    bytes
}

/// Serial and items of a request that is well-formed to its last word.
pub(super) fn look(words: &[u64]) -> (u64, Vec<Asked>) {
    assert_eq!(words[0], u64::from(u32::from_le_bytes(*b"VXDP")) | 1 << 32 | 1 << 40 | (words.len() as u64) << 48);
    let mut items = Vec::new();
    let mut at = FRAME_WORDS;
    while at < words.len() {
        let (head, start) = (words[at], at);
        let (elements, end) = (head >> 16 & 0xffff, at + (head >> 48) as usize);
        assert_eq!(head & 0x0000_ffff_0000_ff00, 0, "room for an outcome is zero");
        assert!(end <= words.len() && at + ITEM_WORDS <= end);
        let is_settle = head & 0xff == 2;
        assert!(if is_settle { elements == 0 } else { head & 0xff == 1 && elements > 0 }, "{head:x}");
        at += ITEM_WORDS;
        let mut asked = Asked { start, is_settle, id: words[start + 2], elements: Vec::new() };
        for _ in 0..elements {
            let head = words[at];
            let (code, skip, keep, all) = (head & 0xff, head >> 8 & 0xff, head >> 16 & 0xff, head >> 32 & 0xffff);
            assert_eq!(head & 0xffff_0000_ff00_0000, 0);
            match code {
                1..=4 => assert!(skip == 0 && keep == 0 && all == if code == 3 { 2 } else { 1 }),
                5 | 6 => assert!(skip <= 7 && keep <= 7 && skip + keep <= 8 * all),
                _ => panic!("operation {code}"),
            }
            let body = at + ELEMENT_WORDS..at + ELEMENT_WORDS + all as usize;
            asked.elements.push(Element { code, at: words[at + 1], skip, keep, body: body.clone() });
            at = body.end;
        }
        assert_eq!(at, end);
        items.push(asked);
    }
    assert_eq!(words[1] >> 32, items.len() as u64);
    assert!(!items.is_empty());
    (words[2], items)
}

impl Target {
    pub(super) fn new(memory: Vec<u64>) -> Self {
        Target { memory, key: TagKey([1, 2]), knows: true, window: Window::default(), serials: vec![0; WINDOW] }
    }

    /// A caller whose next identifier is this one is introduced, after it was forgotten.
    pub(super) fn introduce(&mut self, next: OperationId) -> TagKey {
        self.knows = true;
        self.key.0[0] += 1;
        self.window = Window::resumed(WINDOW, next);
        self.key
    }

    /// The answer, if there is one.
    pub(super) fn receive(&mut self, frame: &[u8]) -> Option<Vec<u8>> {
        let mut words = words_of(frame);
        if !self.knows {
            (words[0], words[TAG]) = (words[0] & !0xff00_0000_0000 | 3 << 40, 0);
            return Some(words.iter().flat_map(|word| word.to_le_bytes()).collect());
        }
        if words[1] as u32 != CALLER || tagged(&words, self.key) != frame {
            return None;
        }
        let (serial, items) = look(&words);
        let newest = &mut self.serials[serial as usize % WINDOW];
        if serial <= *newest {
            return None;
        }
        *newest = serial;
        for item in &items {
            let (outcome, done, detail) =
                if item.is_settle { self.settle(item.id) } else { self.batch(item, &mut words) };
            words[item.start] = words[item.start] & 0xffff_0000_ffff_00ff | outcome << 8 | done << 32;
            (words[item.start + 3], words[item.start + 4]) = (detail, 0);
        }
        words[0] = words[0] & !0xff00_0000_0000 | 2 << 40;
        Some(tagged(&words, self.key))
    }

    fn settle(&mut self, id: u64) -> (u64, u64, u64) {
        match self.window.settle(OperationId(id)) {
            Some(Settled::Barred) => (0, 0, 0),
            Some(Settled::Executed(outcome)) => (1, 0, outcome),
            None => (2, 0, 0),
        }
    }

    /// Outcome, elements done and detail.
    fn batch(&mut self, item: &Asked, words: &mut [u64]) -> (u64, u64, u64) {
        let secret = |byte: u8| u64::from_le_bytes([byte; 8]);
        let is_secret = |byte| [words[item.start + 3], words[item.start + 4]] == [secret(byte); 2];
        let may_change = is_secret(CHANGE);
        if words[item.start + 1] != u64::from(REGION) | u64::from(VIEW) << 32 || !(may_change || is_secret(READ_ONLY)) {
            return (REVOKED, 0, 0);
        }
        let (mut id, mut has_read) = (OperationId(item.id), false);
        for (done, element) in item.elements.iter().enumerate() {
            let refused = self.refusal(element, may_change);
            let mut before = None;
            if element.has_effect() {
                match self.window.claim(id) {
                    Claim::Execute if refused != DONE => self.window.refused(id),
                    Claim::Execute => {}
                    Claim::Executed(_) if has_read => return (UNKNOWN, done as u64, 0),
                    Claim::Executed(outcome) => before = Some(outcome),
                    Claim::Barred | Claim::Unknown => return (UNKNOWN, done as u64, 0),
                }
            }
            if before.is_none() && refused != DONE {
                let detail = if refused == OUT_OF_BOUNDS { 8 * self.memory.len() as u64 } else { 0 };
                return (refused, done as u64, detail);
            }
            has_read |= !element.has_effect();
            if before.is_none() {
                let outcome = self.execute(element, &mut words[element.body.clone()]);
                if element.has_effect() {
                    self.window.executed(id, outcome);
                }
                before = Some(outcome);
            }
            if element.code < 5 {
                words[element.body.start] = before.unwrap();
            }
            id.0 += u64::from(element.has_effect());
        }
        (DONE, item.elements.len() as u64, 0)
    }

    fn refusal(&self, element: &Element, may_change: bool) -> u64 {
        let bytes = 8 * self.memory.len() as u64;
        let length = 8 * if element.code < 5 { 1 } else { element.body.len() as u64 } - element.skip - element.keep;
        let begin = element.at.checked_add(element.skip);
        if element.has_effect() && !may_change {
            DENIED
        } else if !element.at.is_multiple_of(8) {
            MISALIGNED
        } else if begin.is_none_or(|begin| begin > bytes || length > bytes - begin) {
            OUT_OF_BOUNDS
        } else {
            DONE
        }
    }

    fn execute(&mut self, element: &Element, body: &mut [u64]) -> u64 {
        let at = (element.at / 8) as usize;
        match element.code {
            1 => return self.memory[at],
            2 => self.memory[at] = body[0],
            3 => {
                let before = self.memory[at];
                self.memory[at] = if before == body[0] { body[1] } else { before };
                return before;
            }
            4 => {
                self.memory[at] = self.memory[at].wrapping_add(body[0]);
                return self.memory[at].wrapping_sub(body[0]);
            }
            5 => body.copy_from_slice(&self.memory[at..at + body.len()]),
            _ => {
                let kept = 8 * body.len() - element.keep as usize;
                for byte in element.skip as usize..kept {
                    let mut word = self.memory[at + byte / 8].to_le_bytes();
                    word[byte % 8] = body[byte / 8].to_le_bytes()[byte % 8];
                    self.memory[at + byte / 8] = u64::from_le_bytes(word);
                }
            }
        }
        0
    }
}
