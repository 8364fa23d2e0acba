//! The messages between a program and its helper over HTTP.
//!
//! ```text
//!  POST /v1/updates            Touched   201 Begun    every home knows of it: write now
//!                                        503 Problem  it could not begin: write nothing
//!  POST /v1/updates/UPDATE/end End       200 Ended    whether to tell the client that it is done (rule P7)
//!                                        404 Problem  no such update is open
//!  POST /v1/purge              Touched   200 Purged   an update that writes nothing
//!                                        503 Problem  it could not begin
//!  GET  /v1/words/TARGET?host=HOST       200 Words    of a page, at its home
//!                                        503 Problem  they cannot be read
//!  GET  /overview                        200 Overview how the node, the others and its metrics are
//!
//!  each                                  400 Problem  the request makes no sense
//!
//!  Touched   {"dependencies": ["product:7"], "pages": ["http://shop/product/7?in=red"]}, both or one of them, or {"everything": true};
//!            of a purge also "soft": true
//!  Begun     {"update": "5f0c19d2a7e34b86-17"}
//!  End       {"outcome": "done" | "not-sent" | "unknown"}
//!  Ended     {"acknowledge": true}
//!  Purged    {"purged": true}
//!  Words     {"home": "1.4", "view": 3, "generation": 8, "busy": false, "everything": {"generation": 2, "busy": false}, "clock": 12}
//!  Overview  {"status": {...}, "members": [Node, ...], "sampled_keys": 65536, "metrics": {...}}; docs/reference/API.md says what
//!            the first and the last are
//!  Node      a Member and {"is_self": true, "told": Heard or null, "keys": 21845 or null, "load": Loaded or null, "answers": Counted or null}
//!  Heard     a Told and {"age_ms": 12}
//!  Loaded    a Load and {"age_ms": 12}
//!  Counted   {"hit": 8, "miss": 1, "pass": 0, "update": 1, "error": 0, "at_ns": 8123456789}: of its proxy, since that began
//!  Problem   {"error": "..."}
//! ```
//!
//! All of it JSON. A request that has more members than these is refused; of an answer the others are passed over.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use verbena_terms::{Load, ViewNumber};

use crate::wire::{Member, State, Status};

/// The helper closes a connection on which it has waited for a request for so long.
pub const HELPER_WAITS: Duration = Duration::from_secs(10);

/// What an update is about to touch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Touched {
    /// What bears these names, 1 to [`MAX_DEPENDENCIES`](verbena_terms::MAX_DEPENDENCIES) of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dependencies: Vec<String>,
    /// These pages, by the address that clients ask for: `http://HOST/PATH?QUERY`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pages: Vec<String>,
    /// The pages whose path begins so, by whole segments: `http://HOST/PATH`, of 16 segments at most. `http://HOST/` is the whole host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prefixes: Vec<String>,
    /// All there is; then there are no names and no pages.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub everything: bool,
    /// Of a purge: copies are old and not wrong (rule H3).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub soft: bool,
}

/// A request that the proxy beside the helper is to explain, and not to answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Explain {
    /// Its method; without it `GET`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub method: String,
    /// The address that a client asks for: `http://HOST/PATH?QUERY`.
    pub url: String,
    /// Its fields, name and value, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<(String, String)>,
}

/// An update has begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begun {
    /// The update's name: ASCII letters, digits and hyphens. No helper gives one name to two updates, even after a
    /// restart.
    pub update: String,
}

/// An update is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct End {
    /// What became of it.
    pub outcome: Outcome,
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The database has answered: whatever was written is seen by every read from now on (rule P10).
    Done,
    /// It is sure that nothing was written, and never will be.
    NotSent,
    /// Something may have been written, or may yet be: what it touches stays out of the cache for as long as the longest
    /// transaction takes (rule P6).
    Unknown,
}

/// An update has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// Whether the client may be informed that its write is done. If not, some cache may not know of the write.
    pub acknowledge: bool,
}

/// A purge is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Purged {
    /// True.
    pub purged: bool,
}

/// The words of a page, as they are at its home.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Words {
    /// The incarnation that is the page's home.
    pub home: String,
    /// The view that they were read in.
    pub view: u32,
    /// The page's own word.
    #[serde(flatten)]
    pub page: Word,
    /// The home's everything word (rule P4).
    pub everything: Word,
    /// The movements of that home.
    pub clock: u64,
}

/// A word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Word {
    /// Grows with every update that can touch the page.
    pub generation: u64,
    /// Whether such an update is open.
    pub busy: bool,
}

/// A member of the view, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// What the view and its standing say.
    #[serde(flatten)]
    pub member: Member,
    /// The node that was asked.
    pub is_self: bool,
    /// What the node said of itself, if it answered in the present incarnation of the node that was asked.
    #[serde(rename = "told")]
    pub heard: Option<Heard>,
    /// How many of [`SAMPLED_KEYS`](crate::wire::SAMPLED_KEYS) names it is the home of; nothing if it is no home.
    pub keys: Option<u32>,
    /// How loaded its machine is, if that is known.
    #[serde(default)]
    pub load: Option<Loaded>,
    /// What its proxy has answered, if it has one and has sent its counts.
    #[serde(default)]
    pub answers: Option<Counted>,
}

/// How many requests the proxy of a node has answered since it began, by what was done. Encoded by `postcard`, so the order counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answers {
    /// From its cache.
    pub hit: u64,
    /// Could have been hits.
    pub miss: u64,
    /// Were passed on.
    pub pass: u64,
    /// Wrote.
    pub update: u64,
    /// Were errors.
    pub error: u64,
}

/// What was counted, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// The counts.
    #[serde(flatten)]
    pub answers: Answers,
    /// When this node learnt it, on the clock of the metrics, nanoseconds.
    pub at_ns: u64,
}

/// A member's load, as its board said some time ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loaded {
    /// What it said.
    #[serde(flatten)]
    pub load: Load,
    /// How long ago that was new, milliseconds. Much more than `every_ms` if the node publishes nothing any more.
    pub age_ms: u64,
}

/// What a member told of itself, some time ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heard {
    /// With the times as they are by now, if all went on as it was.
    #[serde(flatten)]
    pub told: Told,
    /// The age of that status, milliseconds.
    pub age_ms: u64,
}

/// The status that a node gives the other members. Encoded by `postcard`, so the order of the fields counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// The state of its incarnation.
    pub state: State,
    /// The newest view that it has learnt; 0 if none.
    pub view: ViewNumber,
    /// The newest that it has acknowledged; 0 if none.
    pub acknowledged: ViewNumber,
    /// The newest that it knows to be in effect; 0 if none.
    pub in_effect: ViewNumber,
    /// How long its lease lasts, milliseconds.
    pub lease_ms: u64,
    /// What is left of it, milliseconds.
    pub lease_left_ms: u64,
    /// How long its process has been running, milliseconds.
    pub uptime_ms: u64,
}

impl From<&Status> for Told {
    fn from(status: &Status) -> Self {
        Told {
            state: status.state,
            view: status.view,
            acknowledged: status.acknowledged,
            in_effect: status.in_effect,
            lease_ms: status.lease_ms,
            lease_left_ms: status.lease_left_ms,
            uptime_ms: status.uptime_ms,
        }
    }
}

/// Why not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// For people.
    pub error: String,
}
