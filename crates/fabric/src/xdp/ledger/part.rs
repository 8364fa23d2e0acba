//! A batch cut into parts, each of which is one item that fits a frame.

use std::ops::Range;

use smallvec::SmallVec;

use crate::ending::{Outcome, RegionId};
use crate::operation::{Completed, Done, Operation, OperationId};
use crate::xdp::wire::{Answer, ELEMENT_WORDS, FRAME_WORDS, FrameWriter, ITEM_WORDS, MOST_WORDS, element_words, fill};

/// Words for the elements of a part.
const PART_WORDS: usize = MOST_WORDS - FRAME_WORDS - ITEM_WORDS;
/// Words that one part can read.
const PIECE_WORDS: usize = PART_WORDS - ELEMENT_WORDS;

/// What of a batch is sent as one item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// These elements.
    Elements(Range<usize>),
    /// These bytes of the buffer of a read that does not fit a frame.
    Piece { element: usize, bytes: Range<usize> },
}

impl Part {
    /// The part that begins with this byte of this element's buffer.
    fn beginning(operations: &[Operation], element: usize, byte: usize) -> Option<Part> {
        let first = operations.get(element)?;
        if element_words(first) > PART_WORDS {
            // Up to the end of a word, so that the next piece begins with one.
            let skip = (first.range().0 % 8) as usize;
            let end = (skip + byte) / 8 * 8 + 8 * PIECE_WORDS - skip;
            return Some(Part::Piece { element, bytes: byte..end.min(first.range().1 as usize) });
        }
        let (mut room, mut has_read) = (PART_WORDS, false);
        let fitting = operations[element..].iter().take_while(|operation| {
            let words = element_words(operation);
            // A copy of a part whose effects were executed reads what they have left behind them: it could not tell what was before (F1).
            let fits = words <= room && !(has_read && operation.has_effect());
            room = room.saturating_sub(words);
            has_read |= !operation.has_effect();
            fits
        });
        Some(Part::Elements(element..element + fitting.count()))
    }

    /// The first part of a batch that is not empty.
    pub(super) fn first(operations: &[Operation]) -> Part {
        Part::beginning(operations, 0, 0).unwrap_or(Part::Elements(0..0))
    }

    /// The part that comes behind it.
    pub(super) fn next(&self, operations: &[Operation]) -> Option<Part> {
        match self {
            Part::Piece { element, bytes } if (bytes.end as u64) < operations[*element].range().1 => {
                Part::beginning(operations, *element, bytes.end)
            }
            Part::Piece { element, .. } => Part::beginning(operations, element + 1, 0),
            Part::Elements(elements) => Part::beginning(operations, elements.end, 0),
        }
    }

    /// Words of its item.
    pub(super) fn words(&self, operations: &[Operation]) -> usize {
        ITEM_WORDS + self.bodies(operations).map(|body| ELEMENT_WORDS + body).sum::<usize>()
    }

    /// Words of the body of each of its elements.
    fn bodies(&self, operations: &[Operation]) -> impl Iterator<Item = usize> {
        self.elements().map(|element| match self {
            Part::Elements(_) => element_words(&operations[element]) - ELEMENT_WORDS,
            Part::Piece { bytes, .. } => {
                let skip = (operations[element].range().0 as usize + bytes.start) % 8;
                (skip + bytes.len()).div_ceil(8)
            }
        })
    }

    /// The elements that it is of.
    pub(super) fn elements(&self) -> Range<usize> {
        match self {
            Part::Elements(elements) => elements.clone(),
            Part::Piece { element, .. } => *element..element + 1,
        }
    }
}

/// A batch, and what came back of it.
pub(super) struct Work {
    pub(super) region: RegionId,
    pub(super) operations: SmallVec<[Operation; 4]>,
    /// What came back for each word operation that is done.
    words: SmallVec<[u64; 4]>,
    pub(super) part: Part,
    pub(super) ids: Option<(OperationId, OperationId)>,
}

impl Work {
    pub(super) fn new(region: RegionId, operations: SmallVec<[Operation; 4]>) -> Self {
        let words = SmallVec::from_elem(0, operations.len());
        Work { region, part: Part::first(&operations), operations, words, ids: None }
    }

    pub(super) fn write(&self, frame: &mut FrameWriter) {
        match &self.part {
            Part::Piece { element, bytes } => {
                let at = self.operations[*element].range().0 + bytes.start as u64;
                frame.read(&self.region, at, bytes.len());
            }
            Part::Elements(elements) => {
                let (before, of_part) = self.operations[..elements.end].split_at(elements.start);
                let effects = before.iter().filter(|operation| operation.has_effect()).count() as u64;
                let has_effect = of_part.iter().any(Operation::has_effect);
                let first = self.ids.filter(|_| has_effect).map(|(first, _)| OperationId(first.0 + effects));
                frame.batch(&self.region, first, of_part);
            }
        }
    }

    /// Whether this can be an answer to the part.
    pub(super) fn is_answered_by(&self, answer: &Answer) -> bool {
        let Answer::Batch { outcome, done, bodies } = answer else { return false };
        let ends = if *outcome == Outcome::Done { *done == bodies.len() } else { *done < bodies.len() };
        ends && bodies.iter().map(Vec::len).eq(self.part.bodies(&self.operations))
    }

    /// The part is done, with these bodies. Whether there is another one now.
    pub(super) fn advance(&mut self, bodies: &[Vec<u64>]) -> bool {
        for (element, body) in self.part.elements().zip(bodies) {
            match &mut self.operations[element] {
                Operation::Read { at, into } => {
                    let bytes = match &self.part {
                        Part::Piece { bytes, .. } => bytes.clone(),
                        Part::Elements(_) => 0..into.len(),
                    };
                    fill(*at + bytes.start as u64, &mut into.bytes_mut()[bytes], body);
                }
                Operation::Write { .. } | Operation::WriteWord { .. } => {}
                _ => self.words[element] = body[0],
            }
        }
        let next = self.part.next(&self.operations);
        next.map(|part| self.part = part).is_some()
    }

    pub(super) fn completed(self) -> Completed {
        let results = self.operations.into_iter().zip(self.words).map(|(operation, word)| match operation {
            Operation::Read { into, .. } => Done::Buffer(into),
            Operation::Write { from, .. } => Done::Buffer(from),
            _ => Done::Word(word),
        });
        results.collect()
    }
}
