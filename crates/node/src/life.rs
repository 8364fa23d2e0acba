//! One incarnation of this node, as services see it.

use std::sync::Arc;

use verbena_cluster::{LeaseWord, Membership};
use verbena_fabric::Fabric;
use verbena_metrics::Registry;
use verbena_terms::Incarnation;

/// What a service gets when a life begins.
#[derive(Clone)]
pub struct Life {
    /// Which life.
    pub incarnation: Incarnation,
    /// Its endpoint on the interconnect. Port 1 is membership's.
    pub fabric: Arc<dyn Fabric>,
    /// Until when and in which view the node may act: for hot paths, read without a lock. The same word in all lives.
    pub lease: Arc<LeaseWord>,
    /// The configured nodes.
    pub membership: Membership,
    /// Where metrics are registered. The same registry in all lives.
    pub metrics: Arc<Registry>,
}
