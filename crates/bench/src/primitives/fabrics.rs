//! Which fabrics there are to try. The only place that knows them one by one; what they can do is asked of them.

use std::sync::Arc;

use verbena_fabric::shm::{Settings, Shm};
use verbena_fabric::tcp::{TcpConfig, TcpFabric};
use verbena_fabric::{Fabric, Pool, Result};
use verbena_terms::Incarnation;

/// A fabric that this build has.
pub(super) struct Candidate {
    /// By what the target process finds it again.
    pub(super) name: &'static str,
    /// Opens it on this machine for one incarnation.
    pub(super) open: fn(Incarnation) -> Result<Arc<dyn Fabric>>,
}

/// All of them.
pub(super) fn candidates() -> Vec<Candidate> {
    vec![Candidate { name: "shm", open: shm }, Candidate { name: "tcp", open: tcp }]
}

/// What either side may hold in buffers: the row has one of the largest in use at a time.
const POOL_BYTES: usize = 16 << 20;

fn shm(identity: Incarnation) -> Result<Arc<dyn Fabric>> {
    let settings = Settings { identity, pool: Pool::new(POOL_BYTES), allowed_users: Vec::new() };
    Ok(Shm::open(settings)?)
}

/// In the clear on loopback, like the two processes of one machine that they are.
fn tcp(identity: Incarnation) -> Result<Arc<dyn Fabric>> {
    Ok(Arc::new(TcpFabric::open(identity, TcpConfig { pool_bytes: POOL_BYTES, ..TcpConfig::default() })?))
}
