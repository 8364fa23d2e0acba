//! One incarnation of this node, as services see it.

use std::sync::Arc;

use verbena_cluster::{LeaseWord, Membership};
use verbena_fabric::Fabric;
use verbena_metrics::Registry;
use verbena_terms::Incarnation;

/// What a service gets when an incarnation begins.
#[derive(Clone)]
pub struct Life {
    /// Its identity.
    pub incarnation: Incarnation,
    /// Its endpoint on the interconnect. Port 1 is membership's.
    pub fabric: Arc<dyn Fabric>,
    /// Until when and in which view the node may act: for hot paths, read without a lock. All incarnations share this
    /// word.
    pub lease: Arc<LeaseWord>,
    /// The configured nodes.
    pub membership: Membership,
    /// Where metrics are registered. All incarnations share this registry.
    pub metrics: Arc<Registry>,
}
