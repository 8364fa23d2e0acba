//! One answer to `GET /overview`.

use serde::Deserialize;
use verbena_client::api::Node;
use verbena_client::wire::{Departed, Status};
use verbena_metrics::Snapshot;

/// How a node, the others as far as it knows, and its metrics are.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The node that was asked.
    pub status: Status,
    /// The departed incarnations that are not settled, with what they keep out of the cache at this node.
    pub departed: Vec<Departed>,
    /// The members of its view.
    pub members: Vec<Node>,
    /// All of its metrics, as they count since it began.
    pub metrics: Snapshot,
}

#[derive(Deserialize)]
struct Form {
    status: StatusForm,
    members: Vec<Node>,
    metrics: serde_json::Value,
}

#[derive(Deserialize)]
struct StatusForm {
    #[serde(flatten)]
    status: Status,
    #[serde(default)]
    departed_list: Vec<Departed>,
}

impl Reading {
    /// The reading in the body of an answer.
    ///
    /// # Errors
    /// What is not as it should be, for people.
    pub fn parse(body: &[u8]) -> Result<Reading, String> {
        let Form { status, members, metrics } = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        let metrics = Snapshot::from_json(metrics).map_err(|error| error.to_string())?;
        let StatusForm { status, departed_list: departed } = status;
        Ok(Reading { status, departed, members, metrics })
    }

    /// What the dead keep out of the cache at this node, for people; nothing if they keep nothing out.
    pub fn kept_out(&self) -> Option<String> {
        let longest = self.departed.iter().filter_map(|gone| Some((gone, gone.keeps_out?)));
        let (gone, keeps_out) = longest.max_by_key(|(_, keeps_out)| (keeps_out.everything, keeps_out.left_ms))?;
        let name = gone.name.clone().unwrap_or_else(|| gone.incarnation.to_string());
        Some(format!("{name} is gone: {keeps_out}"))
    }
}
