//! A node whose peers are reached by ways of their own.

use std::sync::Arc;

use verbena_fabric::{Address, Capabilities, Fabric, Inbox, Peer, Pool, Port, Region, Result, Views};
use verbena_terms::{Clock, Incarnation, ViewNumber};

pub struct Relayed<F, W> {
    pub inner: F,
    /// Where a peer is connected to that is at this address.
    pub way: W,
}

impl<F: Fabric, W: Fn(&Address) -> Address + Send + Sync> Fabric for Relayed<F, W> {
    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }
    fn identity(&self) -> Incarnation {
        self.inner.identity()
    }
    fn address(&self) -> Address {
        self.inner.address()
    }
    fn clock(&self) -> &dyn Clock {
        self.inner.clock()
    }
    fn pool(&self) -> &Pool {
        self.inner.pool()
    }
    fn register(&self, bytes: u64, view: ViewNumber) -> Result<Box<dyn Region>> {
        self.inner.register(bytes, view)
    }
    fn connect(&self, peer: Incarnation, address: &Address) -> Result<Arc<dyn Peer>> {
        self.inner.connect(peer, &(self.way)(address))
    }
    fn listen(&self, port: Port, views: Views) -> Result<Inbox> {
        self.inner.listen(port, views)
    }
    fn set_view(&self, view: ViewNumber) {
        self.inner.set_view(view);
    }
}
