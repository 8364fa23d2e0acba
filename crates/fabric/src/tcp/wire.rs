//! What the bytes on a connection mean. Little endian throughout; every byte is checked, what is named zero too.
//!
//! A connection carries one class, one way: its maker asks, the other end answers. It begins with
//!
//! ```text
//!  preamble, in the clear, first the caller's and then the answer
//!  0                       8       9          10         16
//!  +-----------------------+-------+----------+----------+
//!  | "VTCP" version 0      | class | secured  |    0     |
//!  +-----------------------+-------+----------+----------+
//!                          | verdict  0       |
//!
//!  then, where secured is 1, a TLS 1.3 handshake; and then, within it,
//!
//!  hello, of the caller
//!  0                       8            16           24          32      33          40
//!  +-----------------------+------------+------------+-----------+-------+-----------+
//!  | "VTHI" version 0      | from       | to         | next id   | class |    0      |
//!  +-----------------------+------------+------------+-----------+-------+-----------+
//!  welcome, the answer
//!  0                       8            16        17             24
//!  +-----------------------+------------+---------+--------------+
//!  | "VTOK" version 0      | incarnation| verdict |      0       |
//!  +-----------------------+------------+---------+--------------+
//! ```
//!
//! The preamble is in the clear so that two versions, or a plain and a secured node, can name each other instead of
//! failing inside TLS; it is repeated inside, where no other host can change it. `next id` is the first operation
//! identifier that the caller has not used at this target in this class. The incarnation in a welcome is the one that
//! listens there, or with [`Verdict::Superseded`] the later incarnation that has been here.
//!
//! After that there are only frames, each with as many items as were waiting when it was made:
//!
//! ```text
//!  0                       8            12          16
//!  +-----------------------+------------+-----------+----------- - -
//!  | "VTFR" version 0      | bytes      | items     | items, one after the other
//!  +-----------------------+------------+-----------+----------- - -
//!                            after 16
//!
//!  batch, of the caller
//!  0    1    2         4          8          12        16          24          40
//!  +----+----+---------+----------+----------+---------+-----------+-----------+------ - -
//!  | 1  | 0  | elements| number   | region   | view    | first id  | secret    | elements
//!  +----+----+---------+----------+----------+---------+-----------+-----------+------ - -
//!    element
//!    0    1         4          8           16            24
//!    +----+---------+----------+-----------+-------------+-----------+
//!    | 1  |    0    | 0        | at        |                               read a word
//!    | 2  |    0    | 0        | at        | value       |                 write a word
//!    | 3  |    0    | 0        | at        | expected    | desired   |     compare and swap
//!    | 4  |    0    | 0        | at        | addend      |                 fetch and add
//!    | 5  |    0    | length   | at        |                               read
//!    | 6  |    0    | length   | at        | bytes ...                     write
//!    +----+---------+----------+-----------+-------------+-----------+
//!  settle, of the caller
//!  0    1         4          8           16
//!  +----+---------+----------+-----------+
//!  | 2  |    0    | number   | id        |
//!  +----+---------+----------+-----------+
//!  message, of the caller
//!  0    1    2         4          8           16         20
//!  +----+----+---------+----------+-----------+----------+----- - -
//!  | 3  | 0  | port    | view     | number    | length   | body
//!  +----+----+---------+----------+-----------+----------+----- - -
//!
//!  results, the answer to a batch
//!  0    1         2         4          8          12    16                 24
//!  +----+---------+---------+----------+----------+-----+------------------+----- - -
//!  | 1  | outcome | done    | number   | length   | 0   | detail           | length bytes
//!  +----+---------+---------+----------+----------+-----+------------------+----- - -
//!  settled, the answer to a settle
//!  0    1         2         4          8           16
//!  +----+---------+---------+----------+-----------+
//!  | 2  | outcome | 0       | number   | value     |
//!  +----+---------+---------+----------+-----------+
//! ```
//!
//! `number` counts the batches and settles of a connection from 0, and answers come in that order. `first id` is 0 in a batch
//! without effect. A results item has, for the `done` first elements of its batch, 8 bytes for a word operation, the bytes
//! of a read and nothing for a write. `detail` is the size of the region where `outcome` is out of bounds.

use std::ops::Range;

use verbena_terms::{Format, ViewNumber};

use crate::ending::Outcome;
use crate::message::Port;
use crate::operation::{LARGEST_BATCH, OperationId, Settled};
use crate::region::Secret;

mod greeting;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

pub(super) use greeting::{
    HELLO_BYTES, Hello, PREAMBLE_BYTES, Preamble, Verdict, WELCOME_BYTES, Welcome, answer_preamble,
    check_preamble_answer, is_other_version,
};
pub(super) use reader::Malformed;
use reader::Reader;
pub(super) use writer::FrameWriter;

/// Frames.
const FRAME: Format = Format::new(*b"VTFR", 1);

/// Bytes before the items of a frame.
pub(super) const FRAME_HEADER_BYTES: usize = 16;
/// Bytes that a single read or write can move.
pub(super) const LARGEST_TRANSFER: usize = 1 << 20;
/// Bytes that the reads of one batch can fetch, and that its writes can store.
pub(super) const LARGEST_BATCH_BYTES: usize = 4 << 20;
/// Bytes of a message's body. An inbox is bounded by its number of messages, so this bounds its memory.
pub(crate) const LARGEST_MESSAGE: usize = 64 << 10;
/// A frame that has this many bytes is not added to: what still waits goes into the next one.
pub(super) const FULL_FRAME_BYTES: usize = 256 << 10;
/// Bytes of the items of a frame: a full one, and one largest batch more.
pub(super) const LARGEST_FRAME: usize = FULL_FRAME_BYTES + LARGEST_BATCH_BYTES + BATCH_BYTES + LARGEST_BATCH * 32;

const BATCH_BYTES: usize = 40;
const RESULTS_BYTES: usize = 24;

/// How many bytes the frame at the start of `bytes` has, header included; `None` while that is not known. Refuses as
/// soon as
/// what is there cannot become a frame.
pub(super) fn frame_bytes(bytes: &[u8]) -> Result<Option<usize>, Malformed> {
    let Some(header) = bytes.get(..FRAME_HEADER_BYTES) else {
        return Ok(None);
    };
    let mut reader = Reader::new(header);
    reader.format(&FRAME)?;
    let length = reader.u32()? as usize;
    if length > LARGEST_FRAME {
        return Err(Malformed { offset: 8, what: format!("a frame of {length} bytes, more than {LARGEST_FRAME}") });
    }
    Ok(Some(FRAME_HEADER_BYTES + length))
}

/// A frame of what callers send, taken apart and found well-formed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Requests<'a> {
    pub(super) items: Vec<Request<'a>>,
    /// Of all batches; each holds a range.
    pub(super) elements: Vec<Element<'a>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Request<'a> {
    Batch(BatchHead, Range<usize>),
    Settle { number: u32, id: OperationId },
    Message { port: Port, view: ViewNumber, number: u64, body: &'a [u8] },
}

/// All of a batch but its elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BatchHead {
    pub(super) number: u32,
    pub(super) region: u32,
    pub(super) view: ViewNumber,
    pub(super) first: Option<OperationId>,
    pub(super) secret: Secret,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Element<'a> {
    ReadWord { at: u64 },
    WriteWord { at: u64, value: u64 },
    CompareSwap { at: u64, expected: u64, desired: u64 },
    FetchAdd { at: u64, addend: u64 },
    Read { at: u64, length: u32 },
    Write { at: u64, from: &'a [u8] },
}

impl Element<'_> {
    pub(super) const fn has_effect(&self) -> bool {
        !matches!(self, Element::ReadWord { .. } | Element::Read { .. })
    }

    /// First byte, length in bytes, and whether it is a word operation.
    pub(super) const fn range(&self) -> (u64, u64, bool) {
        match *self {
            Element::ReadWord { at }
            | Element::WriteWord { at, .. }
            | Element::CompareSwap { at, .. }
            | Element::FetchAdd { at, .. } => (at, 8, true),
            Element::Read { at, length } => (at, length as u64, false),
            Element::Write { at, from } => (at, from.len() as u64, false),
        }
    }
}

impl<'a> Requests<'a> {
    /// Takes apart a whole frame, header included. Nothing of a frame is executed before all of it was found well-formed.
    pub(super) fn parse(frame: &'a [u8]) -> Result<Self, Malformed> {
        let (mut reader, count) = open_frame(frame)?;
        let mut parsed =
            Requests { items: Vec::with_capacity(count.min(1024)), elements: Vec::with_capacity(count.min(1024)) };
        for _ in 0..count {
            let item = parsed.item(&mut reader)?;
            parsed.items.push(item);
        }
        reader.end()?;
        Ok(parsed)
    }

    fn item(&mut self, reader: &mut Reader<'a>) -> Result<Request<'a>, Malformed> {
        match reader.u8()? {
            1 => self.batch(reader),
            2 => {
                reader.zeros(3)?;
                Ok(Request::Settle { number: reader.u32()?, id: OperationId(reader.u64()?) })
            }
            3 => {
                reader.zeros(1)?;
                let port = Port(reader.u16()?);
                let view = ViewNumber(reader.u32()?);
                let number = reader.u64()?;
                let length = reader.length("a message", LARGEST_MESSAGE)?;
                Ok(Request::Message { port, view, number, body: reader.take(length)? })
            }
            other => Err(reader.refuse_last(1, format!("no request is of kind {other}"))),
        }
    }

    fn batch(&mut self, reader: &mut Reader<'a>) -> Result<Request<'a>, Malformed> {
        reader.zeros(1)?;
        let count = usize::from(reader.u16()?);
        if count == 0 || count > LARGEST_BATCH {
            return Err(reader.refuse_last(2, format!("a batch of {count} elements, not 1 to {LARGEST_BATCH}")));
        }
        let number = reader.u32()?;
        let region = reader.u32()?;
        let view = ViewNumber(reader.u32()?);
        let first = reader.u64()?;
        let secret = Secret(reader.array()?);
        let start = self.elements.len();
        let (mut read, mut written, mut effects) = (0, 0, 0);
        for _ in 0..count {
            let element = element(reader)?;
            match element {
                Element::Read { length, .. } => read += length as usize,
                Element::Write { from, .. } => written += from.len(),
                _ => {}
            }
            effects += u64::from(element.has_effect());
            if read.max(written) > LARGEST_BATCH_BYTES {
                return Err(reader.refuse_last(0, format!("a batch that moves more than {LARGEST_BATCH_BYTES} bytes")));
            }
            self.elements.push(element);
        }
        if (first == 0) != (effects == 0) || first.checked_add(effects).is_none() {
            return Err(reader.refuse_last(0, format!("a batch with {effects} effects and first identifier {first}")));
        }
        let first = (first > 0).then_some(OperationId(first));
        Ok(Request::Batch(BatchHead { number, region, view, first, secret }, start..self.elements.len()))
    }
}

fn element<'a>(reader: &mut Reader<'a>) -> Result<Element<'a>, Malformed> {
    let kind = reader.u8()?;
    reader.zeros(3)?;
    if let 1..=4 = kind {
        reader.zeros(4)?;
        let at = reader.u64()?;
        return Ok(match kind {
            1 => Element::ReadWord { at },
            2 => Element::WriteWord { at, value: reader.u64()? },
            3 => Element::CompareSwap { at, expected: reader.u64()?, desired: reader.u64()? },
            _ => Element::FetchAdd { at, addend: reader.u64()? },
        });
    }
    if kind != 5 && kind != 6 {
        return Err(reader.refuse_last(4, format!("no element is of kind {kind}")));
    }
    let length = reader.length("a transfer", LARGEST_TRANSFER)?;
    let at = reader.u64()?;
    Ok(if kind == 5 {
        Element::Read { at, length: length as u32 }
    } else {
        Element::Write { at, from: reader.take(length)? }
    })
}

/// An item of what targets answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer<'a> {
    Results {
        number: u32,
        outcome: Outcome,
        done: u16,
        payload: &'a [u8],
    },
    /// `None`: the outcome is no longer kept.
    Settled {
        number: u32,
        settled: Option<Settled>,
    },
}

/// Takes apart a whole frame of answers, header included.
pub(super) fn parse_answers(frame: &[u8]) -> Result<Vec<Answer<'_>>, Malformed> {
    let (mut reader, count) = open_frame(frame)?;
    let mut answers = Vec::with_capacity(count.min(1024));
    for _ in 0..count {
        answers.push(answer(&mut reader)?);
    }
    reader.end()?;
    Ok(answers)
}

fn answer<'a>(reader: &mut Reader<'a>) -> Result<Answer<'a>, Malformed> {
    let kind = reader.u8()?;
    let outcome = reader.u8()?;
    match kind {
        1 => {
            let done = reader.u16()?;
            let number = reader.u32()?;
            let length = reader.length("the results of a batch", LARGEST_BATCH_BYTES + 8 * LARGEST_BATCH)?;
            reader.zeros(4)?;
            let detail = reader.u64()?;
            let outcome = match (outcome, detail) {
                (0, 0) => Outcome::Done,
                (1, 0) => Outcome::Revoked,
                (2, 0) => Outcome::Denied,
                (3, region_bytes) => Outcome::OutOfBounds(region_bytes),
                (4, 0) => Outcome::Misaligned,
                (5, 0) => Outcome::Unknown,
                _ => return Err(reader.refuse_last(8, format!("no batch ends as {outcome} with detail {detail}"))),
            };
            Ok(Answer::Results { number, outcome, done, payload: reader.take(length)? })
        }
        2 => {
            reader.zeros(2)?;
            let number = reader.u32()?;
            let value = reader.u64()?;
            let settled = match (outcome, value) {
                (0, 0) => Some(Settled::Barred),
                (1, value) => Some(Settled::Executed(value)),
                (2, 0) => None,
                _ => return Err(reader.refuse_last(8, format!("nothing is settled as {outcome} with value {value}"))),
            };
            Ok(Answer::Settled { number, settled })
        }
        other => Err(reader.refuse_last(2, format!("no answer is of kind {other}"))),
    }
}

fn open_frame(frame: &[u8]) -> Result<(Reader<'_>, usize), Malformed> {
    let mut reader = Reader::new(frame);
    reader.format(&FRAME)?;
    let length = reader.u32()? as usize;
    if length > LARGEST_FRAME || frame.len() != FRAME_HEADER_BYTES + length {
        return Err(reader.refuse_last(4, format!("{length} bytes announced, {} there", frame.len() - 12)));
    }
    let count = reader.u32()? as usize;
    if count == 0 {
        return Err(reader.refuse_last(4, "a frame without an item".into()));
    }
    Ok((reader, count))
}

/// Takes bytes from anywhere, and checks that what parses is written again as it was.
#[cfg(any(test, feature = "fuzzing"))]
pub(super) fn exercise(data: &[u8]) {
    let _ = frame_bytes(data);
    let _ = Preamble::parse(data);
    let _ = Hello::parse(data);
    let _ = Welcome::parse(data);
    let mut writer = FrameWriter::default();
    if let Ok(requests) = Requests::parse(data) {
        for item in &requests.items {
            match item {
                Request::Batch(head, range) => {
                    writer.batch(head, range.len());
                    requests.elements[range.clone()].iter().for_each(|element| writer.element(*element));
                }
                Request::Settle { number, id } => writer.settle(*number, *id),
                Request::Message { port, view, number, body } => writer.message(*port, *view, *number, body),
            }
        }
        assert!(writer.finish() == data, "requests are written as they were read");
    }
    writer.clear();
    if let Ok(answers) = parse_answers(data) {
        for answer in &answers {
            match *answer {
                Answer::Results { number, outcome, done, payload } => writer.results(number, |bytes| {
                    bytes.extend_from_slice(payload);
                    (done, outcome)
                }),
                Answer::Settled { number, settled } => writer.settled(number, settled),
            }
        }
        assert!(writer.finish() == data, "answers are written as they were read");
    }
}
