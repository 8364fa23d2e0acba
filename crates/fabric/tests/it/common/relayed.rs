//! A node whose peers are reached by ways of their own.

use std::sync::Arc;

use verbena_fabric::{Address, Fabric, Layer, Peer, Result};
use verbena_terms::Incarnation;

pub struct Relayed<F, W> {
    pub inner: F,
    /// Where a peer is connected to that is at this address.
    pub way: W,
}

impl<F: Fabric, W: Fn(&Address) -> Address + Send + Sync> Layer for Relayed<F, W> {
    fn inner(&self) -> &dyn Fabric {
        &self.inner
    }

    fn connect(&self, peer: Incarnation, address: &Address) -> Result<Arc<dyn Peer>> {
        self.inner.connect(peer, &(self.way)(address))
    }
}
