//! Segments, as all members know them, and why something about one is refused.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher13;
use thiserror::Error;
use verbena_cluster::{View, home_of};
use verbena_terms::{Coherence, Incarnation, Rank, SegmentId};

use crate::layout::{End, slot_bytes};

/// Bytes that the name of a segment may have.
pub const MAX_NAME_BYTES: usize = 255;
/// Bytes that one segment may have.
pub const MAX_SEGMENT_BYTES: u64 = 16 << 20;
/// Writers that may fill a slot of one segment at a time.
pub const MAX_WRITERS: u8 = 62;
/// Homes that may hold a copy of one segment.
pub const MAX_COPIES: u8 = 4;

/// What a segment is called: text without control characters. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SegmentName(Arc<str>);

impl SegmentName {
    /// A name.
    ///
    /// # Errors
    /// When it is empty, too long, or has control characters.
    pub fn new(text: &str) -> Result<Self, Refusal> {
        let is_one = (1..=MAX_NAME_BYTES).contains(&text.len()) && !text.chars().any(char::is_control);
        if is_one {
            Ok(SegmentName(text.into()))
        } else {
            Err(Refusal::NoName { name: text.chars().take(32).collect() })
        }
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The home that knows in this view which segment has the name; `None` where the view has no home. SipHash-1-3
    /// under the key 0, 0, drawn for by [`home_of`].
    pub fn registrar(&self, view: &View) -> Option<Incarnation> {
        home_of(SipHasher13::new().hash(self.0.as_bytes()), view)
    }
}

impl fmt::Debug for SegmentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for SegmentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for SegmentName {
    type Error = Refusal;
    fn try_from(text: String) -> Result<Self, Refusal> {
        SegmentName::new(&text)
    }
}

impl From<SegmentName> for String {
    fn from(name: SegmentName) -> String {
        name.0.as_ref().to_owned()
    }
}

/// The home that knows in this view where a segment is whose maker has gone; `None` where the view has no home.
pub(crate) fn registrar_of(id: SegmentId, view: &View) -> Option<Incarnation> {
    let parts = [id.home.rank.0.into(), id.home.start.into(), id.number].map(u64::to_le_bytes);
    home_of(SipHasher13::new().hash(parts.as_flattened()), view)
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// None for an anonymous one.
    pub name: Option<SegmentName>,
    /// Bytes of its value.
    pub bytes: u64,
    /// What it promises.
    pub coherence: Coherence,
    /// Nodes that can fill a slot at a time; more wait for each other. Each takes the value's bytes once more. Of no meaning for `null`.
    pub writers: u8,
    /// Which user's it is.
    pub owner: u32,
    /// Homes that hold its value, 1 to [`MAX_COPIES`]: it is lost when all of them are. One for `null`.
    pub copies: u8,
}

impl Wanted {
    /// One copy, for three writers at a time.
    pub fn new(name: Option<SegmentName>, bytes: u64, coherence: Coherence, owner: u32) -> Self {
        Wanted { name, bytes, coherence, writers: 3, owner, copies: 1 }
    }

    /// Whether more homes than one are to hold it.
    pub fn is_replicated(&self) -> bool {
        self.copies > 1
    }

    /// Slots that it takes.
    pub fn slots(&self) -> u8 {
        if self.coherence == Coherence::Null { 1 } else { self.writers + 1 }
    }

    /// What is wrong with it.
    pub fn check(&self) -> Result<(), Refusal> {
        if self.bytes == 0 {
            return Err(Refusal::Empty);
        }
        if self.bytes > MAX_SEGMENT_BYTES {
            return Err(Refusal::TooLarge { asked: self.bytes, most: MAX_SEGMENT_BYTES });
        }
        if self.coherence != Coherence::Null && !(1..=MAX_WRITERS).contains(&self.writers) {
            return Err(Refusal::Writers { asked: self.writers });
        }
        if !(1..=MAX_COPIES).contains(&self.copies) {
            return Err(Refusal::Copies { asked: self.copies });
        }
        if self.coherence == Coherence::Null && self.is_replicated() {
            return Err(Refusal::NullCopies);
        }
        Ok(())
    }

    /// Bytes of all its slots, at each home that holds it.
    pub fn extent_bytes(&self) -> u64 {
        slot_bytes(self.bytes) * u64::from(self.slots())
    }
}

/// Where a home holds a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The node whose memory it is.
    pub home: Incarnation,
    /// Which of the home's pairs of words.
    pub control: u32,
    /// Where the slots begin in the home's region.
    pub at: u64,
}

/// A segment, as its home describes it to a node that is to work on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// Which.
    pub id: SegmentId,
    /// What was asked for.
    pub wanted: Wanted,
    /// Its home: the one whose memory is read. The maker, or the holder of the copy that has taken the maker's place.
    pub home: Incarnation,
    /// Which of the home's pairs of words it has.
    pub control: u32,
    /// Where its slots begin in the home's region.
    pub at: u64,
    /// The other holders, in the order in which they began to hold it. Fewer than are wanted where homes were lost,
    /// until a view has others with room.
    pub backups: Vec<Place>,
}

impl Segment {
    /// Where it is read.
    pub fn primary(&self) -> Place {
        Place { home: self.home, control: self.control, at: self.at }
    }

    /// Everywhere that it is: its home first.
    pub fn places(&self) -> impl Iterator<Item = Place> + '_ {
        std::iter::once(self.primary()).chain(self.backups.iter().copied())
    }

    /// What is said of it, when it has come to its end.
    pub(crate) fn ended(&self, end: End) -> Refusal {
        match end {
            End::Released => Refusal::Released { id: self.id },
            End::Reclaimed => Refusal::Reclaimed { id: self.id, home: self.home },
            // A node that looks it up again finds it.
            End::Moved => Refusal::TimedOut { why: "the segment, which is moved".into() },
        }
    }

    /// The same without one of its holders: the first of the others is its home. `None` without another holder.
    pub(crate) fn without(&self, who: Incarnation) -> Option<Segment> {
        let mut left = self.places().filter(|place| place.home != who);
        let Place { home, control, at } = left.next()?;
        let backups = left.collect();
        Some(Segment { home, control, at, backups, ..self.clone() })
    }

    /// Whether other homes hold it, or are to.
    pub(crate) fn has_copies(&self) -> bool {
        self.wanted.is_replicated() || !self.backups.is_empty()
    }

    /// The nth in the order in which a put becomes visible: where it is decided first, where it is read last.
    pub(crate) fn link(&self, nth: usize) -> Place {
        self.backups.get(nth).copied().unwrap_or_else(|| self.primary())
    }

    /// Where a slot begins at one of its places.
    pub(crate) fn slot_at(&self, place: Place, slot: u8) -> u64 {
        place.at + u64::from(slot) * slot_bytes(self.wanted.bytes)
    }
}

/// Where a segment is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// At the node that asks, if it is a home.
    Local,
    /// At this node.
    Node(Rank),
    /// At the home with the most free memory, by the words that they publish.
    MostFree,
    /// At one home after the other.
    Spread,
}

/// Why something was not done. Nothing was changed, but for [`Refusal::Unknown`].
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum Refusal {
    /// It cannot be the name of a segment.
    #[error("{name:?} cannot name a segment: 1 to {MAX_NAME_BYTES} bytes of text without control characters")]
    NoName {
        /// How it begins.
        name: String,
    },
    /// A segment of no bytes.
    #[error("a segment of 0 bytes: it must have at least 1")]
    Empty,
    /// More than a segment may have.
    #[error("a segment of {asked} bytes: at most {most}")]
    TooLarge {
        /// Bytes asked for.
        asked: u64,
        /// Bytes that there can be.
        most: u64,
    },
    /// Too many writers, or none.
    #[error("a segment for {asked} writers at a time: 1 to {MAX_WRITERS}")]
    Writers {
        /// How many were asked for.
        asked: u8,
    },
    /// Too many copies, or none.
    #[error("{asked} copies of a segment: 1 to {MAX_COPIES}")]
    Copies {
        /// How many were asked for.
        asked: u8,
    },
    /// Nothing is promised of its values, so nothing would say which copy is right.
    #[error("a segment of coherence null has one copy")]
    NullCopies,
    /// Fewer members offer memory than are to hold a copy.
    #[error("{asked} homes are to hold the segment, and {homes} offer memory: ask for fewer copies")]
    FewHomes {
        /// How many copies were asked for.
        asked: u8,
        /// How many homes there are.
        homes: usize,
    },
    /// There are too few bytes left at the home in one piece.
    #[error("home {home} has no room for {asked} bytes: {free} are free, {largest} of them in one piece")]
    NoRoom {
        /// Which home.
        home: Incarnation,
        /// Bytes of all slots.
        asked: u64,
        /// Bytes that are free.
        free: u64,
        /// Bytes of the largest free piece.
        largest: u64,
    },
    /// A home has as many segments as it can.
    #[error("home {home} has {most} segments, as many as its memory.segments allows")]
    NoWords {
        /// Which home.
        home: Incarnation,
        /// How many it can have.
        most: u32,
    },
    /// The user has all that it may have at this home.
    #[error("user {owner} has {has} of {limit} bytes at {home}: {asked} more are too many")]
    OverLimit {
        /// Which user.
        owner: u32,
        /// Which home.
        home: Incarnation,
        /// Bytes that it has.
        has: u64,
        /// Bytes that it asked for.
        asked: u64,
        /// Bytes that it may have.
        limit: u64,
    },
    /// Another segment has this name.
    #[error("there is a segment {name}")]
    Exists {
        /// Which name.
        name: SegmentName,
    },
    /// No segment has this name.
    #[error("there is no segment {name}")]
    NotFound {
        /// Which name.
        name: SegmentName,
    },
    /// It was released.
    #[error("segment {id} was released")]
    Released {
        /// Which.
        id: SegmentId,
    },
    /// Its home took its memory back, and its value went with it. Its name is free.
    #[error("segment {id} was reclaimed: {home} took its memory back")]
    Reclaimed {
        /// Which.
        id: SegmentId,
        /// The home that took it.
        home: Incarnation,
    },
    /// More than the node's configuration has it offer.
    #[error("{asked} bytes cannot be offered: this node is configured to offer {most} bytes (memory.share)")]
    OverShare {
        /// Bytes asked for.
        asked: u64,
        /// Bytes that it may offer.
        most: u64,
    },
    /// Its home is gone, and all that held a copy, and its value with them. Releasing it frees its name.
    #[error("segment {id} is lost: its home is no member any more")]
    Lost {
        /// Which.
        id: SegmentId,
    },
    /// It belongs to another user.
    #[error("segment {id} belongs to user {owner}")]
    NotYours {
        /// Which.
        id: SegmentId,
        /// The owner.
        owner: u32,
    },
    /// Its value is in another node's memory.
    #[error("segment {id} is at {home}, and not in this node's memory")]
    Elsewhere {
        /// Which.
        id: SegmentId,
        /// Where.
        home: Incarnation,
    },
    /// Bytes that the segment does not have.
    #[error("{length} bytes from byte {offset} on are outside a segment of {bytes} bytes")]
    OutOfRange {
        /// The first byte.
        offset: u64,
        /// How many.
        length: u64,
        /// How many it has.
        bytes: u64,
    },
    /// The value is not of the version that the put was to replace.
    #[error("the value is of version {current}, and not of version {named} that was to be replaced")]
    Conflict {
        /// The version that was named.
        named: u64,
        /// The version that there is.
        current: u64,
    },
    /// A put that names no version, to a segment that asks for one.
    #[error("a put to a segment of coherence version names the version that it replaces")]
    NoVersion,
    /// The placement names a node that offers no memory.
    #[error("{who} offers no memory")]
    NoHome {
        /// The name in the placement.
        who: String,
    },
    /// It could not be done in time, and was not done.
    #[error("it could not be done in time, and was not done: {why}")]
    TimedOut {
        /// What was waited for.
        why: String,
    },
    /// It is not known whether it was done, or will be.
    #[error("it is not known whether it was done: the answer did not come in time, or the view ended")]
    Unknown,
    /// Too many requests are open at this node.
    #[error("{most} requests about memory are open at this node: try again when some have ended")]
    Overloaded {
        /// How many there may be.
        most: usize,
    },
    /// This node is about to leave the cluster.
    #[error("this node is leaving the cluster: nothing is begun")]
    Leaving,
    /// Too much of values is on its way between programs of this node and homes.
    #[error("values of {most} bytes are on their way between this node and homes: try again when some have come")]
    TooMuch {
        /// Bytes that may be.
        most: u64,
    },
}
