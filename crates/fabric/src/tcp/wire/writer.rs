//! Putting items into frames.

use verbena_terms::ViewNumber;

use super::{BatchHead, Element, FRAME, FRAME_HEADER_BYTES, FULL_FRAME_BYTES, LARGEST_MESSAGE, Outcome, RESULTS_BYTES};
use crate::message::Port;
use crate::operation::{LARGEST_BATCH, OperationId, Settled};

/// Writes frames into a buffer that it keeps. A frame without items is not sent.
#[derive(Debug, Default)]
pub(in crate::tcp) struct FrameWriter {
    bytes: Vec<u8>,
    items: u32,
}

impl FrameWriter {
    /// Whether what waits should go into another frame.
    pub(in crate::tcp) fn is_full(&self) -> bool {
        self.bytes.len() >= FULL_FRAME_BYTES
    }

    /// Ends the frame: its bytes, none if nothing was put in. The next item begins another.
    pub(in crate::tcp) fn finish(&mut self) -> &[u8] {
        if self.items > 0 {
            let length = (self.bytes.len() - FRAME_HEADER_BYTES) as u32;
            self.bytes[8..12].copy_from_slice(&length.to_le_bytes());
            self.bytes[12..16].copy_from_slice(&self.items.to_le_bytes());
            self.items = 0;
        }
        &self.bytes
    }

    /// Forgets the finished frame, and its memory too if it was out of the ordinary.
    pub(in crate::tcp) fn clear(&mut self) {
        if self.bytes.capacity() > 2 * FULL_FRAME_BYTES {
            self.bytes = Vec::new();
        }
        self.bytes.clear();
        self.items = 0;
    }

    pub(in crate::tcp) fn batch(&mut self, head: &BatchHead, elements: usize) {
        debug_assert!((1..=LARGEST_BATCH).contains(&elements), "checked when it was posted");
        self.begin_item();
        self.bytes.extend_from_slice(&[1, 0]);
        self.bytes.extend_from_slice(&(elements as u16).to_le_bytes());
        for word in [head.number, head.region, head.view.0] {
            self.bytes.extend_from_slice(&word.to_le_bytes());
        }
        self.bytes.extend_from_slice(&head.first.map_or(0, |id| id.0).to_le_bytes());
        self.bytes.extend_from_slice(&head.secret.0);
    }

    /// One of the elements that the last [`batch`](Self::batch) announced.
    pub(in crate::tcp) fn element(&mut self, element: Element<'_>) {
        let (at, length, is_word) = element.range();
        let kind: u32 = match element {
            Element::ReadWord { .. } => 1,
            Element::WriteWord { .. } => 2,
            Element::CompareSwap { .. } => 3,
            Element::FetchAdd { .. } => 4,
            Element::Read { .. } => 5,
            Element::Write { .. } => 6,
        };
        self.bytes.extend_from_slice(&kind.to_le_bytes());
        self.bytes.extend_from_slice(&(if is_word { 0 } else { length as u32 }).to_le_bytes());
        self.bytes.extend_from_slice(&at.to_le_bytes());
        match element {
            Element::ReadWord { .. } | Element::Read { .. } => {}
            Element::WriteWord { value, .. } => self.bytes.extend_from_slice(&value.to_le_bytes()),
            Element::CompareSwap { expected, desired, .. } => {
                self.bytes.extend_from_slice(&expected.to_le_bytes());
                self.bytes.extend_from_slice(&desired.to_le_bytes());
            }
            Element::FetchAdd { addend, .. } => self.bytes.extend_from_slice(&addend.to_le_bytes()),
            Element::Write { from, .. } => self.bytes.extend_from_slice(from),
        }
    }

    pub(in crate::tcp) fn settle(&mut self, number: u32, id: OperationId) {
        self.begin_item();
        self.bytes.extend_from_slice(&[2, 0, 0, 0]);
        self.bytes.extend_from_slice(&number.to_le_bytes());
        self.bytes.extend_from_slice(&id.0.to_le_bytes());
    }

    pub(in crate::tcp) fn message(&mut self, port: Port, view: ViewNumber, number: u64, body: &[u8]) {
        debug_assert!(body.len() <= LARGEST_MESSAGE, "checked when it was sent");
        self.begin_item();
        self.bytes.extend_from_slice(&[3, 0]);
        self.bytes.extend_from_slice(&port.0.to_le_bytes());
        self.bytes.extend_from_slice(&view.0.to_le_bytes());
        self.bytes.extend_from_slice(&number.to_le_bytes());
        self.bytes.extend_from_slice(&(body.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(body);
    }

    /// The answer to batch `number`. `fill` appends the results and says how many elements were executed and how it ended.
    pub(in crate::tcp) fn results(&mut self, number: u32, fill: impl FnOnce(&mut Vec<u8>) -> (u16, Outcome)) {
        self.begin_item();
        let start = self.bytes.len();
        self.bytes.resize(start + RESULTS_BYTES, 0);
        let (done, outcome) = fill(&mut self.bytes);
        let length = (self.bytes.len() - start - RESULTS_BYTES) as u32;
        let (code, detail) = match outcome {
            Outcome::Done => (0, 0),
            Outcome::Revoked => (1, 0),
            Outcome::Denied => (2, 0),
            Outcome::OutOfBounds(region_bytes) => (3, region_bytes),
            Outcome::Misaligned => (4, 0),
            Outcome::Unknown => (5, 0),
        };
        let head = &mut self.bytes[start..start + RESULTS_BYTES];
        head[..2].copy_from_slice(&[1, code]);
        head[2..4].copy_from_slice(&done.to_le_bytes());
        head[4..8].copy_from_slice(&number.to_le_bytes());
        head[8..12].copy_from_slice(&length.to_le_bytes());
        head[16..].copy_from_slice(&detail.to_le_bytes());
    }

    pub(in crate::tcp) fn settled(&mut self, number: u32, settled: Option<Settled>) {
        let (outcome, value) = match settled {
            Some(Settled::Barred) => (0, 0),
            Some(Settled::Executed(value)) => (1, value),
            None => (2, 0),
        };
        self.begin_item();
        self.bytes.extend_from_slice(&[2, outcome, 0, 0]);
        self.bytes.extend_from_slice(&number.to_le_bytes());
        self.bytes.extend_from_slice(&u64::to_le_bytes(value));
    }

    fn begin_item(&mut self) {
        if self.items == 0 {
            self.bytes.clear();
            self.bytes.extend_from_slice(&FRAME.header());
            self.bytes.extend_from_slice(&[0; 8]);
        }
        self.items += 1;
    }
}
