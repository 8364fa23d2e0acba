//! What nodes send each other about memory.
//!
//! ```text
//!  0        4         6         8
//!  +--------+---------+---------+------------------------------------------+
//!  | "VMSG" |    4    |    0    |  one frame, postcard 1 (varints)          |
//!  +--------+---------+---------+------------------------------------------+
//!
//!  frame    = view from to message
//!  message  = 0 ask number oldest question        the asker waits for no answer to a number below `oldest`
//!           | 1 answer number answer
//!  question = 0 key                               member -> home: your memory?
//!           | 1 allocate token wanted others      member -> home: with copies at some of the others
//!           | 2 release id owner                  member -> home
//!           | 3 find name                         member -> registrar of the name
//!           | 4 where id                          member -> home
//!           | 5 list after prefix                 member -> home
//!           | 6 bury name owner                   member -> registrar: a lost segment's name may be used again
//!           | 7 report page pages segments        home -> registrar: these have names that are yours in this view
//!           | 8 register segment                  home -> registrar: this is a new one
//!           | 9 unregister name id end            home -> registrar
//!           | 10 forget id end                    home -> all: it is no more; say when you have nothing on its way to it
//!           | 11 reserve segment                  its home -> home: a place for a copy
//!           | 12 hold segment                     its home -> who holds a copy: these do; which word do you hold?
//!           | 13 drop id end                      its home -> who holds a copy: nobody works on it any more; moved: not on this copy
//!           | 14 holder id                        member -> registrar of the number: who serves it now?
//!           | 15 notice id                        member -> home: after how long is its memory taken back?
//!           | 16 yield id                         who holds a copy -> its home: move it from here
//!           | 17 leave id                         its home -> who holds a copy: you do not any more
//!           | 18 adopt segment                    its home -> who holds a copy: it is yours, I do not hold it any more
//!           | 19 moved id                         its home -> registrar of the number: I serve it
//!  end      = 0 released | 1 reclaimed | 2 moved
//!  answer   = 0 key | 1 segment | 2 done | 3 refused refusal | 4 page segments is-last going | 5 place | 6 holds word | 7 held id by
//!           | 8 notice time | 9 elsewhere id
//! ```
//!
//! A view, a sender and a number are in each (rule F5). A question without an answer is asked again; the receiver does
//! it once, and answers as before.
//! Decoding is total: any bytes give a frame that keeps the bounds, or an error.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use verbena_fabric::RegionKey;
use verbena_terms::{Format, FormatError, Incarnation, ViewNumber};

use crate::layout::End;
use crate::{MAX_COPIES, Place, Refusal, Segment, SegmentId, SegmentName, Wanted};

/// What a frame begins with.
pub const FRAME: Format = Format::new(*b"VMSG", 4);
/// Longest frame, in bytes. A longer one is refused unread.
pub const MAX_FRAME_BYTES: usize = 32 * 1024;
/// Segments in one frame.
pub const MOST_SEGMENTS: usize = 64;
/// Homes of one segment: one more than can be asked for, while it moves from one to another.
pub const MOST_PLACES: usize = MAX_COPIES as usize + 1;
/// Homes that are asked for copies of a new segment.
pub const MOST_HOMES: usize = 64;

/// One thing said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// In which view.
    pub view: ViewNumber,
    /// The sender.
    pub from: Incarnation,
    /// To whom.
    pub to: Incarnation,
    /// What.
    pub message: Message,
}

/// A question or an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// Something is asked.
    Ask {
        /// The asker's number for it, at whom it asks.
        number: u64,
        /// Its oldest that is open there.
        oldest: u64,
        /// What.
        question: Question,
    },
    /// It is answered.
    Answer {
        /// Which.
        number: u64,
        /// What is said.
        answer: Reply,
    },
}

/// An allocation: the node that asked, and the number of its request. One that is asked for again in another view is
/// not made twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Token {
    /// The node that asked.
    pub asker: Incarnation,
    /// Which request.
    pub request: u64,
}

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Question {
    /// For the home's memory.
    Key,
    /// For a segment.
    Allocate {
        /// Which allocation.
        token: Token,
        /// What is wanted.
        wanted: Wanted,
        /// Homes that are asked for copies, in this order, until there are enough.
        others: Vec<Incarnation>,
    },
    /// A segment is not needed any more.
    Release {
        /// Which.
        id: SegmentId,
        /// The user that asks.
        owner: u32,
    },
    /// Which segment has this name.
    Find(SegmentName),
    /// Where this one is.
    Where(SegmentId),
    /// Which there are.
    List {
        /// Behind this one.
        after: SegmentId,
        /// What their names begin with; nameless ones have all beginnings that are empty.
        prefix: String,
    },
    /// The name of a lost segment may be used again.
    Bury {
        /// Which.
        name: SegmentName,
        /// The user that asks.
        owner: u32,
    },
    /// These have names of yours.
    Report {
        /// Which page, from 0.
        page: u32,
        /// How many there are; at least one.
        pages: u32,
        /// Some of them.
        segments: Vec<Segment>,
    },
    /// This one is new.
    Register(Segment),
    /// It is no more.
    Unregister {
        /// Its name.
        name: SegmentName,
        /// Which.
        id: SegmentId,
        /// How that came.
        end: End,
    },
    /// It is no more.
    Forget {
        /// Which.
        id: SegmentId,
        /// How that came.
        end: End,
    },
    /// For a place for a copy of this one.
    Reserve(Segment),
    /// Which word it holds of this one, whose copies are there.
    Hold(Segment),
    /// A copy is not needed any more.
    Drop {
        /// Of which.
        id: SegmentId,
        /// How it came to its end; `Moved`: it has not, and others hold it.
        end: End,
    },
    /// Which home serves a segment whose maker has gone?
    Holder(SegmentId),
    /// Whether, and after how long, its home takes its memory back.
    Notice(SegmentId),
    /// The sender holds a copy and wants to drop it.
    Yield(SegmentId),
    /// It does not hold it any more.
    Leave(SegmentId),
    /// Its home does not hold it any more: this is how it is, and it is the asked one's.
    Adopt(Segment),
    /// The sender serves it.
    Moved(SegmentId),
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// The home's memory, to change.
    Key(RegionKey),
    /// A segment.
    Segment(Segment),
    /// It is done.
    Done,
    /// It is not.
    Refused(Refusal),
    /// Some segments.
    Page {
        /// In order of their numbers.
        segments: Vec<Segment>,
        /// There are no more.
        is_last: bool,
        /// Which of them have notice, and after how long they go.
        going: Vec<(SegmentId, Duration)>,
    },
    /// A place for a copy.
    Place(Place),
    /// A copy's word.
    Holds(u64),
    /// The addressee can say where the segment is.
    Held {
        /// Which.
        id: SegmentId,
        /// The home that serves it.
        by: Incarnation,
    },
    /// After how long it goes, if it has notice.
    Notice(Option<Duration>),
    /// The addressee held it in this incarnation, and gave it to another home.
    Elsewhere(SegmentId),
}

/// What is no frame.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    /// Too long.
    #[error("a frame of {0} bytes: at most {MAX_FRAME_BYTES}")]
    TooLong(usize),
    /// Another format.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// Not one frame.
    #[error("a frame about memory that cannot be read: {0}")]
    Unreadable(String),
    /// More than there can be.
    #[error("{0} segments in a frame: at most {MOST_SEGMENTS}")]
    TooMany(usize),
    /// The same, of one segment.
    #[error("a segment at {0} homes: at most {MOST_PLACES}")]
    Copies(usize),
    /// The same, of homes that may be asked for copies.
    #[error("{0} homes to be asked for copies: at most {MOST_HOMES}")]
    Homes(usize),
}

impl Message {
    /// Those that it describes.
    fn segments(&self) -> &[Segment] {
        match self {
            Message::Ask { question: Question::Report { segments, .. }, .. }
            | Message::Answer { answer: Reply::Page { segments, .. }, .. } => segments,
            Message::Ask {
                question:
                    Question::Register(segment)
                    | Question::Reserve(segment)
                    | Question::Hold(segment)
                    | Question::Adopt(segment),
                ..
            }
            | Message::Answer { answer: Reply::Segment(segment), .. } => std::slice::from_ref(segment),
            _ => &[],
        }
    }
}

impl Frame {
    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        FRAME.encode(self)
    }

    /// From bytes.
    ///
    /// # Errors
    /// Whatever is not exactly one frame of this version that keeps the bounds.
    pub fn decode(bytes: &[u8]) -> Result<Frame, FrameError> {
        if bytes.len() > MAX_FRAME_BYTES {
            return Err(FrameError::TooLong(bytes.len()));
        }
        let body = FRAME.check(bytes)?;
        let unreadable = |reason: &dyn std::fmt::Display| FrameError::Unreadable(reason.to_string());
        let (frame, rest) = postcard::take_from_bytes::<Frame>(body).map_err(|error| unreadable(&error))?;
        if !rest.is_empty() {
            return Err(unreadable(&format_args!("{} bytes behind its end", rest.len())));
        }
        let segments = frame.message.segments();
        if segments.len() > MOST_SEGMENTS {
            return Err(FrameError::TooMany(segments.len()));
        }
        if let Message::Answer { answer: Reply::Page { going, segments, .. }, .. } = &frame.message
            && going.len() > segments.len()
        {
            return Err(FrameError::TooMany(going.len()));
        }
        let copies = segments.iter().map(|segment| segment.places().count()).max().unwrap_or(0);
        if copies > MOST_PLACES {
            return Err(FrameError::Copies(copies));
        }
        if let Some(problem) = segments.iter().find_map(|segment| segment.wanted.check().err()) {
            return Err(unreadable(&problem));
        }
        match &frame.message {
            Message::Ask { question: Question::Allocate { others, .. }, .. } if others.len() > MOST_HOMES => {
                Err(FrameError::Homes(others.len()))
            }
            _ => Ok(frame),
        }
    }
}

/// Whether these bytes are a frame; panics if what is read is not written as something that reads the same.
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub fn exercise(bytes: &[u8]) -> bool {
    let Ok(frame) = Frame::decode(bytes) else { return false };
    let written = frame.encode();
    assert!(written.len() <= bytes.len(), "{frame:?} has grown");
    assert_eq!(Frame::decode(&written), Ok(frame));
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Coherence;
    use verbena_fabric::{Rights, Secret};
    use verbena_terms::testing::corpus;

    fn segment() -> Segment {
        let name = SegmentName::new(&"n".repeat(255)).unwrap();
        let copies = MAX_COPIES;
        let wanted = Wanted { copies, ..Wanted::new(Some(name), 1 << 24, Coherence::Temporal(u64::MAX), u32::MAX) };
        let home = Incarnation::new(u32::MAX, u32::MAX);
        let place = Place { home, control: u32::MAX, at: u64::MAX };
        let (id, backups) = (SegmentId { home, number: u64::MAX }, vec![place; MOST_PLACES - 1]);
        Segment { id, wanted, home, control: u32::MAX, at: u64::MAX, backups }
    }

    fn framed(message: Message) -> Frame {
        let (from, to) = (Incarnation::new(1, 1), Incarnation::new(2, 3));
        Frame { view: ViewNumber(7), from, to, message }
    }

    #[test]
    fn the_longest_frame_fits_and_reads_as_it_was_written() {
        let segments = vec![segment(); MOST_SEGMENTS];
        let going = vec![(segment().id, Duration::MAX); MOST_SEGMENTS];
        let answer = Reply::Page { segments, is_last: false, going };
        let frame = framed(Message::Answer { number: u64::MAX, answer });
        let bytes = frame.encode();
        assert!(bytes.len() <= MAX_FRAME_BYTES, "{}", bytes.len());
        assert_eq!(Frame::decode(&bytes), Ok(frame));
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        let frame = framed(Message::Ask { number: 1, oldest: 1, question: Question::Register(segment()) });
        let good = frame.encode();
        let mut other = good.clone();
        other[4] = 9;
        let said = Frame::decode(&other).unwrap_err().to_string();
        assert_eq!(said, "block \"VMSG\" has version 9, this program speaks version 4");
        assert!((0..good.len()).all(|length| Frame::decode(&good[..length]).is_err()));
        assert!(Frame::decode(&[good.clone(), vec![0]].concat()).unwrap_err().to_string().contains("behind its end"));
        assert_eq!(Frame::decode(&vec![0; MAX_FRAME_BYTES + 1]), Err(FrameError::TooLong(MAX_FRAME_BYTES + 1)));
        let segments = vec![Segment { wanted: Wanted { name: None, ..segment().wanted }, ..segment() }; 65];
        let page = |segments, going| {
            framed(Message::Answer { number: 1, answer: Reply::Page { segments, is_last: true, going } })
        };
        assert_eq!(Frame::decode(&page(segments, vec![]).encode()), Err(FrameError::TooMany(65)));
        let going = vec![(segment().id, Duration::ZERO); 2];
        assert_eq!(Frame::decode(&page(vec![segment()], going).encode()), Err(FrameError::TooMany(2)));
        let backups = vec![segment().primary(); MOST_PLACES];
        for question in [Question::Register, Question::Hold, Question::Reserve, Question::Adopt] {
            let question = question(Segment { backups: backups.clone(), ..segment() });
            let many = framed(Message::Ask { number: 1, oldest: 1, question });
            assert_eq!(Frame::decode(&many.encode()), Err(FrameError::Copies(6)));
        }
        let wanted = Wanted { writers: u8::MAX, ..segment().wanted };
        let impossible = Question::Register(Segment { wanted, ..segment() });
        let impossible = framed(Message::Ask { number: 1, oldest: 1, question: impossible });
        assert!(Frame::decode(&impossible.encode()).unwrap_err().to_string().contains("255"));
        let (token, wanted) = (Token { asker: Incarnation::new(2, 1), request: 300 }, segment().wanted);
        let others = vec![Incarnation::new(2, 1); MOST_HOMES + 1];
        let question = Question::Allocate { token, wanted, others };
        let many = framed(Message::Ask { number: 1, oldest: 1, question });
        assert_eq!(Frame::decode(&many.encode()), Err(FrameError::Homes(65)));
    }

    /// One of each thing that can be said.
    fn messages() -> Vec<Message> {
        let (segment, name) = (segment(), SegmentName::new("a").unwrap());
        let (id, owner, wanted) = (segment.id, 7, segment.wanted.clone());
        let token = Token { asker: Incarnation::new(2, 1), request: 300 };
        let questions = [
            Question::Key,
            Question::Allocate {
                token,
                wanted: Wanted { coherence: Coherence::Delta(2), ..wanted },
                others: vec![Incarnation::new(3, 9)],
            },
            Question::Release { id, owner },
            Question::Find(name.clone()),
            Question::Where(id),
            Question::List { after: id, prefix: "p/".into() },
            Question::Bury { name: name.clone(), owner },
            Question::Report { page: 0, pages: 2, segments: vec![segment.clone()] },
            Question::Register(segment.clone()),
            Question::Unregister { name: name.clone(), id, end: End::Released },
            Question::Forget { id, end: End::Reclaimed },
            Question::Reserve(segment.clone()),
            Question::Hold(segment.clone()),
            Question::Drop { id, end: End::Moved },
            Question::Holder(id),
            Question::Notice(id),
            Question::Yield(id),
            Question::Leave(id),
            Question::Adopt(segment.clone()),
            Question::Moved(id),
        ];
        let key = RegionKey {
            owner: Incarnation::new(1, 1),
            region: 3,
            view: ViewNumber(2),
            bytes: 1 << 20,
            rights: Rights::Change,
            secret: Secret([9; 16]),
        };
        let replies = [
            Reply::Key(key),
            Reply::Segment(segment.clone()),
            Reply::Done,
            Reply::Refused(Refusal::Exists { name }),
            Reply::Place(segment.primary()),
            Reply::Holds(77),
            Reply::Held { id, by: segment.home },
            Reply::Page { segments: vec![segment], is_last: true, going: vec![(id, Duration::from_millis(1500))] },
            Reply::Notice(Some(Duration::from_millis(1500))),
            Reply::Elsewhere(id),
        ];
        let asked = questions.into_iter().map(|question| Message::Ask { number: 9, oldest: 4, question });
        asked.chain(replies.into_iter().map(|answer| Message::Answer { number: 9, answer })).collect()
    }

    #[test]
    fn whatever_is_said_reads_as_it_was_written() {
        for message in messages() {
            let frame = framed(message);
            let bytes = frame.encode();
            assert_eq!(Frame::decode(&bytes), Ok(frame));
            assert!(exercise(&bytes));
            for length in 0..bytes.len() {
                assert!(Frame::decode(&bytes[..length]).is_err());
            }
        }
    }

    #[test]
    fn the_corpus_has_frames_and_others() {
        let read: Vec<bool> = corpus("memory_message").iter().map(|bytes| exercise(bytes)).collect();
        let frames = read.iter().filter(|is_frame| **is_frame).count();
        assert!(frames >= 16 && frames < read.len(), "{frames} of {} are frames", read.len());
    }
}
