//! What nodes send each other about locks.
//!
//! ```text
//!  0        4         6         8
//!  +--------+---------+---------+------------------------------------------+
//!  | "VLCK" |    5    |    0    |  one frame, postcard 1 (varints)          |
//!  +--------+---------+---------+------------------------------------------+
//!
//!  frame   = view from to first heard messages          messages are numbered, from `first` on (src/stream.rs)
//!  message  = 0 words key                               home -> member: where its words are
//!          | 1 survives name survivor ahead            member -> home: I had this in the last view (rule L5)
//!          | 2 reported                                member -> home: and nothing else
//!          | 3 resolve name                            member -> home: where are this lock's words?
//!          | 4 found name slot?                        home -> member: there; nowhere, because there are no more
//!          | 5 about home slot to message              of a lock that has words
//!          | 6 of-survivor name to message             of a lock that somebody had in an earlier view
//!          | 7 waits probe                             to all: who holds what this one waits for? (rule L3)
//!          | 8 deadlock request cycle                 this one waits for itself
//!          | 9 list number after? prefix               to all: what do your clients have?
//!          | 10 listed number page                     that
//!          | 11 forget number slots                    home -> all: these words are no lock's any more; say when you have forgotten them (rule L4)
//!          | 12 forgotten number                       that
//!          | 13 remove number name                     member -> home: evict this lock, if nobody uses it
//!          | 14 removed number removal                 that, or not
//! ```
//!
//! A view, a sender and a number are in each (rule F5). Decoding is total: any bytes give a frame that keeps the bounds, or an error.

use serde::{Deserialize, Serialize};
use thiserror::Error;
use verbena_fabric::RegionKey;
use verbena_terms::{Format, FormatError, Incarnation, Rank, ViewNumber};

use crate::deadlock::{Cycle, Probe, Waiter};
use crate::listing::{Cursor, Page, Row};
use crate::local_queue::RequestId;
use crate::name::Name;
use crate::{Message, Removal, Survivor, To};

/// What a frame begins with.
pub const FRAME: Format = Format::new(*b"VLCK", 5);
/// Longest frame, in bytes. A longer one is refused unread.
pub const MAX_FRAME_BYTES: usize = 32 * 1024;

/// A run of one member's numbered messages to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// The view that their numbers belong to.
    pub view: ViewNumber,
    /// The sender.
    pub from: Incarnation,
    /// To whom.
    pub to: Incarnation,
    /// Number of the first message; the others follow without gaps. Of the next one if the run is empty.
    pub first: u64,
    /// Number of the last message received from the other member.
    pub heard: u64,
    /// What is said.
    pub messages: Vec<MemberMessage>,
}

/// The words of one lock: their home, and their number there. A slot means one lock in one view (rule L1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Slot {
    /// The home.
    pub home: Incarnation,
    /// Which of its slots.
    pub number: u32,
}

/// What is said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemberMessage {
    /// The home's words, to change.
    Words(RegionKey),
    /// The sender had this of a lock when the last view ended.
    Survives {
        /// Of which.
        name: Name,
        /// What.
        survivor: Survivor,
        /// The writer that it found at the tail; [`Rank::NOBODY`] where it found none, or does not know.
        ahead: Rank,
    },
    /// It has said all that survives at it.
    Reported,
    /// The sender wants to use this lock's words.
    Resolve(Name),
    /// Where they are.
    Found {
        /// Of which lock.
        name: Name,
        /// `None` where all slots of the home are in use.
        slot: Option<u32>,
    },
    /// To the home, a participant or the recovery holder of a lock.
    About {
        /// Which lock.
        slot: Slot,
        /// To whom of it at the addressee.
        to: To,
        /// What.
        message: Message,
    },
    /// To the server of those that had a lock before this view, or from it.
    OfSurvivor {
        /// Which lock.
        name: Name,
        /// To the server, or a survivor.
        to: To,
        /// What.
        message: Message,
    },
    /// Who holds what the last of these waits for?
    Waits(Probe),
    /// To the node of the cycle's youngest waiter: refuse its request.
    Deadlock {
        /// Its request.
        request: RequestId,
        /// The cycle of waiters.
        cycle: Cycle,
    },
    /// What do the clients of the addressee have?
    List {
        /// Of the sender's list.
        number: u64,
        /// Behind this.
        after: Option<Cursor>,
        /// Of locks whose names begin so.
        prefix: Vec<u8>,
    },
    /// What they have.
    Listed {
        /// Of the list.
        number: u64,
        /// At most [`PAGE_BYTES`](crate::listing::PAGE_BYTES).
        page: Page,
    },
    /// Forget these evicted words: another lock gets them when no member remembers them.
    Forget {
        /// Of the home's question; one at a time.
        number: u64,
        /// Which of its slots: [`MOST_FORGOTTEN`](crate::evicted::MOST_FORGOTTEN) at most.
        slots: Vec<u32>,
    },
    /// The sender remembers none of them, and nothing of it is on its way to them.
    Forgotten {
        /// Of the question.
        number: u64,
    },
    /// Evict this lock, if it is not used.
    Remove {
        /// Of the sender's wish.
        number: u64,
        /// Which.
        name: Name,
    },
    /// What became of that.
    Removed {
        /// Of the wish.
        number: u64,
        /// What.
        removal: Removal,
    },
}

/// Why bytes are no frame.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum WireError {
    /// Another format or version (rule F6).
    #[error(transparent)]
    Format(#[from] FormatError),
    /// Too long.
    #[error("a frame of {found} bytes; at most {MAX_FRAME_BYTES}")]
    Long {
        /// How long it is.
        found: usize,
    },
    /// It ends early, or a value in it is out of bounds.
    #[error("a frame of {length} bytes cannot be read: {source}")]
    Malformed {
        /// How long it is.
        length: usize,
        /// What postcard says.
        source: postcard::Error,
    },
    /// It goes on behind its end.
    #[error("{extra} bytes behind the end of a frame")]
    Trailing {
        /// How many.
        extra: usize,
    },
}

impl MemberMessage {
    /// The largest size of the encoded message, in bytes.
    pub fn max_bytes(&self) -> usize {
        let named = |name: &Name| name.as_bytes().len();
        let waiters = |waiters: &[Waiter]| waiters.iter().map(|waiter| 80 + named(&waiter.name)).sum::<usize>();
        64 + match self {
            MemberMessage::Survives { name, .. }
            | MemberMessage::Resolve(name)
            | MemberMessage::Found { name, .. }
            | MemberMessage::Remove { name, .. }
            | MemberMessage::OfSurvivor { name, .. } => named(name),
            MemberMessage::Waits(probe) => waiters(&probe.waiters),
            MemberMessage::Deadlock { cycle, .. } => waiters(cycle.waiters()),
            MemberMessage::List { after, prefix, .. } => {
                after.as_ref().map_or(0, |(name, _)| named(name)) + prefix.len()
            }
            MemberMessage::Listed { page, .. } => page.rows.iter().map(Row::max_bytes).sum(),
            MemberMessage::Forget { slots, .. } => 5 * slots.len(),
            MemberMessage::Words(_)
            | MemberMessage::Reported
            | MemberMessage::About { .. }
            | MemberMessage::Forgotten { .. }
            | MemberMessage::Removed { .. } => 0,
        }
    }
}

impl Frame {
    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        FRAME.encode(self)
    }

    /// The inverse.
    ///
    /// # Errors
    /// For whatever is no frame.
    pub fn decode(bytes: &[u8]) -> Result<Frame, WireError> {
        if bytes.len() > MAX_FRAME_BYTES {
            return Err(WireError::Long { found: bytes.len() });
        }
        let (frame, rest) = postcard::take_from_bytes(FRAME.check(bytes)?)
            .map_err(|source| WireError::Malformed { length: bytes.len(), source })?;
        if rest.is_empty() { Ok(frame) } else { Err(WireError::Trailing { extra: rest.len() }) }
    }
}

/// Whether these bytes are a frame; panics if what is read is not written as something that reads the same.
#[cfg(any(test, feature = "fuzzing"))]
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
    use crate::{Mode, Refusal, Request, Token};
    use proptest::prelude::*;
    use std::time::Duration;
    use verbena_fabric::{Rights, Secret};
    use verbena_terms::Time;

    use crate::Asker;
    use crate::evicted::MOST_FORGOTTEN;
    use crate::listing::{Listed, MOST_NAMED};

    fn frame() -> Frame {
        let (name, me) = (Name::new(&[0xab; 1024]).unwrap(), Incarnation::new(u32::MAX, u32::MAX));
        let survivor = Survivor::Holds(Mode::Shared, Token::from_bits(u64::MAX));
        let key = RegionKey {
            owner: me,
            region: u32::MAX,
            view: ViewNumber(u32::MAX),
            bytes: u64::MAX,
            rights: Rights::Change,
            secret: Secret([7; 16]),
        };
        let slot = Slot { home: me, number: u32::MAX };
        let message = Message::After { writer: me.rank, readers: u32::MAX };
        let ask = Message::Ask(Request { mode: Mode::Shared, is_try: true });
        let waiter = Waiter {
            node: me,
            asker: Asker { number: u64::MAX, pid: u32::MAX },
            waits: RequestId(u64::MAX),
            name: name.clone(),
            waited: Duration::MAX,
            holds: Some(RequestId(u64::MAX)),
        };
        let waiter_name = name.clone();
        let listed = Listed {
            asker: waiter.asker,
            mode: Mode::Shared,
            token: Some(Token::from_bits(u64::MAX)),
            age: Duration::MAX,
        };
        let row = Row {
            name: name.clone(),
            node: me,
            ahead: me.rank,
            holders: vec![listed; MOST_NAMED],
            more_holders: u32::MAX,
            waiting: vec![listed; MOST_NAMED],
            more_waiting: u32::MAX,
        };
        let messages = vec![
            MemberMessage::Words(key),
            MemberMessage::Survives { name: name.clone(), survivor, ahead: me.rank },
            MemberMessage::Reported,
            MemberMessage::Resolve(name.clone()),
            MemberMessage::Found { name: name.clone(), slot: Some(u32::MAX) },
            MemberMessage::About { slot, to: To::Participant(me.rank), message },
            MemberMessage::OfSurvivor { name: name.clone(), to: To::Home, message: ask },
            MemberMessage::OfSurvivor {
                name: name.clone(),
                to: To::Survivor(me.rank),
                message: Message::Refuse(Refusal::NoRoom),
            },
            MemberMessage::Waits(Probe { started: Time::from_nanos(u64::MAX), waiters: vec![waiter.clone(); 2] }),
            MemberMessage::Deadlock {
                request: RequestId(u64::MAX),
                cycle: Cycle::of(Probe { started: Time::ZERO, waiters: vec![waiter; 2] }),
            },
            MemberMessage::List {
                number: u64::MAX,
                after: Some((waiter_name.clone(), me.rank)),
                prefix: vec![7; 1024],
            },
            MemberMessage::Listed { number: u64::MAX, page: Page { rows: vec![row], more: true } },
            MemberMessage::About { slot, to: To::Participant(me.rank), message: Message::Moved },
            MemberMessage::Forget { number: u64::MAX, slots: vec![u32::MAX; MOST_FORGOTTEN] },
            MemberMessage::Forgotten { number: u64::MAX },
            MemberMessage::Remove { number: u64::MAX, name: waiter_name },
            MemberMessage::Removed { number: u64::MAX, removal: Removal::TokensUsedUp },
        ];
        Frame { view: ViewNumber(3), from: me, to: me, first: u64::MAX, heard: u64::MAX, messages }
    }

    #[test]
    fn frames_survive_their_bytes() {
        assert!(exercise(&frame().encode()));
    }

    #[test]
    fn every_frame_of_the_corpus_is_read_as_it_is_written() {
        let inputs = verbena_terms::testing::corpus("lock_message");
        let read = inputs.iter().filter(|input| exercise(input)).count();
        assert!(read >= 8 && inputs.len() - read >= 6, "{read} of {} inputs are frames", inputs.len());
    }

    #[test]
    fn no_letter_is_longer_than_it_says() {
        let empty = Frame { messages: vec![], ..frame() };
        for member_message in frame().messages {
            let one = Frame { messages: vec![member_message.clone()], ..empty.clone() };
            assert!(one.encode().len() - empty.encode().len() <= member_message.max_bytes(), "{member_message:?}");
        }
    }

    #[test]
    fn what_is_no_frame_is_refused_with_a_reason() {
        let said = |bytes: &[u8]| Frame::decode(bytes).unwrap_err().to_string();
        let mut bytes = frame().encode();
        assert!(said(&bytes[..40]).starts_with("a frame of 40 bytes cannot be read"));
        bytes.push(0);
        assert_eq!(said(&bytes), "1 bytes behind the end of a frame");
        bytes[4] = 9;
        assert!(said(&bytes).contains("version"), "{}", said(&bytes));
        assert_eq!(said(&[0; MAX_FRAME_BYTES + 1]), "a frame of 32769 bytes; at most 32768");
        let long = Frame { messages: vec![MemberMessage::Reported], ..frame() }.encode();
        let resolve = [&long[..long.len() - 1], &[3, 0x81, 0x08][..], &[1; 1025]].concat();
        assert!(said(&resolve).contains("cannot be read"), "a name of 1025 bytes");
    }

    proptest! {
        #[test]
        fn decoding_is_total(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), is_whole in any::<bool>(), at in 0..4000usize) {
            exercise(&bytes);
            let mut sound = frame().encode();
            if is_whole {
                let at = at % sound.len();
                sound.splice(at..(at + 3).min(at + bytes.len()).min(sound.len()), bytes.drain(..bytes.len().min(3)));
            }
            exercise(&sound);
        }
    }
}
