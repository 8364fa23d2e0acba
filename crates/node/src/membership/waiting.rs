//! What membership waits for, beside messages.

use std::time::Duration;

use verbena_cluster::{KeeperRecord, StartRecord};
use verbena_terms::{Incarnation, Time};

/// What it waits for.
#[derive(Default)]
pub(crate) struct Waiting {
    /// An incarnation whose start number is stored and whose fabric is not open yet, and when to try next.
    pub(crate) to_open: Option<(Incarnation, Time)>,
    /// After how long the next attempt follows, if this one fails.
    pub(crate) open_again: Duration,
    /// A record that could not be stored, and when to try again.
    pub(crate) start: Option<(StartRecord, Time)>,
    pub(crate) keeper: Option<(KeeperRecord, Time)>,
    /// The keeper is being looked for.
    pub(crate) searching: bool,
    /// Before when it is not looked for again.
    pub(crate) search_after: Time,
    /// The services know that the present incarnation is over.
    pub(crate) life_is_over: bool,
    /// When the keeper was last heard.
    pub(crate) heard: Time,
    /// Since when the node has had no lease; none while it has one.
    pub(crate) without_since: Option<Time>,
    /// Whether it was said that it waits.
    pub(crate) is_said: bool,
    /// Why the last search did not find the keeper.
    pub(crate) not_found: Option<String>,
    /// When to look next whether the files by which others find this node are there.
    pub(crate) keep_files_at: Time,
    pub(crate) leaving: Leaving,
}

/// How far leaving is.
#[derive(Clone, Copy, Default, PartialEq)]
pub(crate) enum Leaving {
    #[default]
    No,
    /// What the services have open is ended first, for so long at most.
    Closing { until: Time },
    /// The keeper was asked; when to give up.
    Asked { until: Time },
}
