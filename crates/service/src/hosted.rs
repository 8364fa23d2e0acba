//! A service as a node hosts it: what it is told of the node's incarnations, lease and views.

use std::sync::Arc;
use std::time::Duration;

use verbena_cluster::{LeaseWord, View};
use verbena_fabric::{Fabric, Result};
use verbena_terms::ViewNumber;

/// The handle of a service, in the hands of its node.
pub trait Hosted: Send + 'static {
    /// What it is called, for people.
    const NAME: &'static str;

    /// Starts an incarnation on this fabric, as the incarnation that the fabric has (rule C1). It acts by this lease.
    ///
    /// # Errors
    /// If its port is taken.
    fn life_begins(&self, fabric: Arc<dyn Fabric>, lease: &Arc<LeaseWord>) -> Result<()>;

    /// Ends the incarnation. Returns when its regions and its fabric are dropped, and what clients had by it is lost.
    fn life_ends(&self);

    /// The lease has run out, and the next one is not published yet. Returns when what rested on it is lost or begun anew: the thread looks at the lease
    /// now and then, and might see the next one as if the last had been renewed in time.
    fn lease_lost(&self);

    /// The cluster has a newer view. `prepared` is called on the service's thread when the node has ended what it did in older ones (rule C3).
    fn view_learnt(&self, view: Arc<View>, prepared: impl FnOnce(ViewNumber) + Send + 'static);

    /// The node is about to leave: new requests are refused. `closed` is called when nothing is open any more, or after this time; it hears whether the node
    /// leaves nothing that others have to settle.
    fn close(&self, patience: Duration, closed: impl FnOnce(bool) + Send + 'static);
}
