//! One answer to `GET /overview`.

use serde::{Deserialize, Serialize};
use verbena_client::wire::{Member, State, Status};
use verbena_metrics::Snapshot;
use verbena_terms::ViewNumber;

/// How a node, the others as far as it knows, and its metrics are.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The node that was asked.
    pub status: Status,
    /// The members of its view.
    pub members: Vec<Node>,
    /// All of its metrics, as they count since it began.
    pub metrics: Snapshot,
}

/// A member of the view.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Node {
    /// What the view and its standing say.
    #[serde(flatten)]
    pub member: Member,
    /// The node that was asked.
    pub is_self: bool,
    /// What it says of itself, if it was heard.
    pub told: Option<Told>,
}

/// What a member says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub struct Told {
    /// Where its life stands.
    pub state: State,
    /// The newest view that it has learnt.
    pub view: ViewNumber,
    /// The newest that it has acknowledged.
    pub acknowledged: ViewNumber,
    /// The newest that it knows to be in effect.
    pub in_effect: ViewNumber,
    /// How long its lease lasts, milliseconds.
    pub lease_ms: u64,
    /// What is left of it, milliseconds.
    pub lease_left_ms: u64,
    /// How long its process has been running, milliseconds.
    pub uptime_ms: u64,
    /// How long ago it said so, milliseconds.
    pub age_ms: u64,
}

#[derive(Deserialize)]
struct Form {
    status: Status,
    members: Vec<Node>,
    metrics: serde_json::Value,
}

impl Reading {
    /// The reading in the body of an answer.
    ///
    /// # Errors
    /// What is not as it should be, for people.
    pub fn parse(body: &[u8]) -> Result<Reading, String> {
        let Form { status, members, metrics } = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        let metrics = Snapshot::from_json(metrics).map_err(|error| error.to_string())?;
        Ok(Reading { status, members, metrics })
    }
}
