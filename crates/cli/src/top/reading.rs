//! One answer to `GET /overview`.

use serde::Deserialize;
use verbena_client::api::Node;
use verbena_client::wire::Status;
use verbena_metrics::Snapshot;

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
