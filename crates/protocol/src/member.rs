//! The members of a cluster as a helper reports them: parts of the answers in [`wire`](crate::wire).

use std::fmt;

use serde::{Deserialize, Serialize};
use verbena_terms::{Incarnation, Load, ViewNumber};

use crate::api::Told;

/// One member of the view.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its name in the configuration.
    pub name: String,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// Where it is reached, without the address's secret.
    pub address: String,
    /// What it is there for: `home`, `reader`, `updater`.
    pub roles: String,
    /// Whether it has acknowledged the view, as far as is known here.
    pub acknowledged: bool,
    /// Whether it has run out of lease in the view.
    pub out: bool,
}

/// What is known of a member beside the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Detail {
    /// Which.
    pub incarnation: Incarnation,
    /// How many of [`SAMPLED_KEYS`] names it is the home of; nothing if it is no home.
    pub keys: Option<u32>,
    /// What it told of itself, with the times as they are by now, and how many milliseconds ago that was.
    pub told: Option<(Told, u64)>,
}

/// How loaded a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadOf {
    /// Which.
    pub incarnation: Incarnation,
    /// What its board said.
    pub load: Load,
    /// How long ago that was new, milliseconds.
    pub age_ms: u64,
}

/// An incarnation that left and is not settled (rule P6).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Departed {
    /// What it was called, if that is known here.
    pub name: Option<String>,
    /// The departed incarnation.
    pub incarnation: Incarnation,
    /// The first view without it.
    pub since: ViewNumber,
    /// What it keeps out of the cache at the home that tells this; nothing if it keeps nothing out there.
    #[serde(default)]
    pub keeps_out: Option<KeepsOut>,
}

/// What the updates of an incarnation that left keep out of the cache at a home, and how long (rule P6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeepsOut {
    /// No page of the home is cached: it is not known what was open, or an open update touches everything.
    pub everything: bool,
    /// Updates that are known to be open. With `everything` unset, only pages that they touch are not cached.
    pub updates: u64,
    /// The record of open updates that it left is read when its lease is over, which may end this at once.
    pub unread: bool,
    /// Milliseconds until it ends by itself at the latest.
    pub left_ms: u64,
}

impl fmt::Display for KeepsOut {
    /// What is not cached, why, and for how long yet: `no page of this home is cached: what it had open is not known; 31 s more at most`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.left_ms.div_ceil(1000);
        match (self.everything, self.updates) {
            (true, 0) => f.write_str("no page of this home is cached: what it had open is not known")?,
            (true, _) => f.write_str("no page of this home is cached: it had an update of everything open")?,
            (false, 1) => f.write_str("what the update touches that it had open is not cached")?,
            (false, updates) => write!(f, "what the {updates} updates touch that it had open is not cached")?,
        }
        if self.unread {
            f.write_str("; its record is read when its lease is over")?;
        }
        write!(f, "; {seconds} s more at most")
    }
}

/// A view that a helper has learnt, or a part of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// Which.
    pub view: ViewNumber,
    /// How long ago it was learnt, milliseconds.
    pub learnt_ms_ago: u64,
    /// How long after that it was known to be in effect, milliseconds; nothing if that was not heard.
    pub in_effect_after_ms: Option<u64>,
    /// Its members, and those that the view learnt before had and it has not. At most [`PART_NAMES`], in order.
    pub concerned: Vec<Concerned>,
    /// Whether more follow.
    pub more: bool,
}

/// An incarnation that a view concerns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Concerned {
    /// Its name in the configuration.
    pub name: String,
    /// The incarnation.
    pub incarnation: Incarnation,
    /// What the view is to it.
    pub change: Change,
}

/// What a view is to an incarnation, beside the view that was learnt before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// It was in and is in.
    Stayed,
    /// It is in for the first time.
    Came,
    /// It is in no more.
    Went(Why),
}

/// Why a view is without an incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// It left with nothing open (rule P6).
    LeftAtRest,
    /// It left, and something of it was open.
    LeftOpen,
    /// It was not heard for a lease, or did not follow.
    RanOut,
    /// A program asked for it.
    Expelled,
    /// A later incarnation of the node has joined.
    Superseded,
    /// The helper does not know the reason: it was not there, or the keeper was started again.
    Untold,
}
