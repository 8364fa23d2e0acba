//! The register: what nodes agree on where no node is the keeper for good. Kept by etcd, under one prefix.
//!
//! ```text
//!  office                who keeps the cluster, or did last: a [`Holder`]. Its modification revision is the *term*
//!  beat                  a [`Beat`]; written again and again by the holder, whose term it proves to stand
//!  record                the keeper's record ([`KeeperRecord`](crate::KeeperRecord))
//!  views/0000000042      each view that was made, in the bytes of a record with that view (rule C3); the last thousand
//!  rank                  the last rank that was given to a life (rule C1), a decimal number
//!  era                   the start number of every life: chosen at random with the first rank, a decimal number
//!  ranks/0000000042      whose life has that rank: a name; the last [`RANKS_KEPT`]
//! ```
//!
//! Everything is asked by linearizable reads and compare-and-swap transactions. No key has a lease of the store's: those have floors, are
//! counted anew when the store changes its leader, and a stuck former leader can end them early. What a transaction compares is
//! what makes it safe, however late it is executed: one of a former holder finds another term, and does nothing.
//!
//! Where the keys are lost, ranks and revisions are counted from the beginning again. Incarnations from before and
//! after that differ in the era, and a node that enrolled in one era asks nothing of another.

use serde::{Deserialize, Serialize};
use verbena_terms::{Format, Incarnation};

use crate::record::{decode, encode};
use crate::{ClusterError, KeeperRecord, LeaseTerms};

/// Marks who holds the office.
pub const HOLDER_FORMAT: Format = Format::new(*b"VCHO", 1);
/// Marks a beat.
pub const BEAT_FORMAT: Format = Format::new(*b"VCBT", 1);

/// Ranks whose names are kept, and incarnations that a keeper remembers to have let in: older ones are refused (rule
/// C1).
pub const RANKS_KEPT: u32 = 1024;

const HOLDER: &str = "office";
const BEAT: &str = "beat";

/// When a key was last changed, as the store counts; 0 where it never was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Revision(pub u64);

/// The holder of the keeper's office.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Its incarnation.
    pub who: Incarnation,
    /// The node's name.
    pub name: String,
    /// Where it is reached.
    pub address: String,
    /// The terms by which it counts: a successor waits by the longer of these and its own.
    pub terms: LeaseTerms,
}

/// What a holder says with each beat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beat {
    /// The holder has given the office up and grants nothing any more: a successor need not wait.
    pub resigned: bool,
    /// The holder heard too few of the members, and so did each holder before it that gave the office up for that
    /// reason.
    pub unheard: bool,
}

/// The office as one read found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sight {
    /// Which term.
    pub term: Revision,
    /// Its holder.
    pub holder: Holder,
    /// The last beat.
    pub beat: Revision,
    /// What it said.
    pub said: Beat,
}

/// What is asked of the register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// An identity that no incarnation has had yet, for one of the node of this name. [`Answer::Enrolled`].
    Enrol {
        /// The node.
        name: String,
    },
    /// The office and its holder. [`Answer::Seen`].
    Look,
    /// The office, if it is as it was seen: the revisions of its two keys, 0 and 0 where it never had a holder. The
    /// same transaction reads the record. [`Answer::Taken`] or [`Answer::Overtaken`].
    Take {
        /// Of `office`.
        term: Revision,
        /// Of `beat`.
        beat: Revision,
        /// The new holder.
        holder: Holder,
        /// Its first beat.
        says: Beat,
    },
    /// A beat, if the term stands. One that resigns is the term's last: the same transaction writes `office` again as it is, so that a beat which was sent
    /// before and is executed later finds another term. [`Answer::Beaten`] or [`Answer::Overtaken`].
    Beat {
        /// The holder's.
        term: Revision,
        /// What it says.
        says: Beat,
    },
    /// The record, and its view among the views, if the term stands and the record was last changed as said: or one that comes late would bring an
    /// older record back. [`Answer::Stored`], also if this very record is there already, or [`Answer::Overtaken`].
    Store {
        /// The holder's.
        term: Revision,
        /// When `record` was last changed, as the holder knows.
        after: Revision,
        /// What to store.
        record: Box<KeeperRecord>,
    },
}

/// What it answers. Of an answer that does not come nothing is known: it may have been done, and may yet be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The incarnation that the asker got: a new rank, and the era.
    Enrolled(Incarnation),
    /// The office; `None` where it never had a holder.
    Seen(Option<Sight>),
    /// The office is the asker's.
    Taken {
        /// Its term.
        term: Revision,
        /// What earlier holders left.
        record: Option<Box<KeeperRecord>>,
        /// When that was last changed.
        changed: Revision,
    },
    /// The beat was taken.
    Beaten,
    /// The record is there, changed last at this revision.
    Stored(Revision),
    /// Nothing was done: another node was first.
    Overtaken,
}

impl Holder {
    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        encode(HOLDER_FORMAT, self)
    }

    /// The holder in `bytes`. Total.
    pub fn decode(bytes: &[u8]) -> Result<Self, ClusterError> {
        decode(HOLDER_FORMAT, HOLDER, bytes)
    }
}

impl Beat {
    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        encode(BEAT_FORMAT, self)
    }

    /// The beat in `bytes`. Total.
    pub fn decode(bytes: &[u8]) -> Result<Self, ClusterError> {
        decode(BEAT_FORMAT, BEAT, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_office_holds_survives() {
        let holder = Holder {
            who: Incarnation::new(7, 1),
            name: "app1".into(),
            address: "tcp://10.0.0.1:7001".into(),
            terms: LeaseTerms::DEFAULT,
        };
        assert_eq!(Holder::decode(&holder.encode()), Ok(holder.clone()));
        let beat = Beat { resigned: true, unheard: false };
        assert_eq!(Beat::decode(&beat.encode()), Ok(beat));
        assert!(Beat::decode(&holder.encode()).unwrap_err().to_string().contains("\"VCBT\", found \"VCHO\""));
    }
}
