//! Nodes all of whose messages go by adapters.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use verbena_fabric::conformance::Target;
use verbena_fabric::{
    Address, Capabilities, Class, Connections, Fabric, Inbox, Messages, Peer, Pool, Port, Region, Result, Views,
};
use verbena_terms::{Clock, Incarnation, ViewNumber};

/// Bytes of the largest message that goes by an adapter.
pub const LARGEST: usize = 4064;
/// How long anything may take in an emulated machine.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// Nobody listens there.
const NOWHERE: Port = Port(77);

/// Nodes of a check, which live until what went is counted: when one ends, what others have not sent yet goes by tcp.
pub struct Kept<F: Fabric>(Vec<Arc<Sending<F>>>);

impl<F: Fabric> Default for Kept<F> {
    fn default() -> Self {
        Kept(Vec::new())
    }
}

/// What went between nodes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Went {
    /// By adapters.
    pub sent: u64,
    /// By tcp though there had been a connection.
    pub by_tcp: u64,
    /// What has come by adapters.
    pub arrived: u64,
}

impl<F: Fabric> Kept<F> {
    pub fn keep(&mut self, inner: F) -> Arc<Sending<F>> {
        let node = Arc::new(Sending::new(inner));
        self.0.push(node.clone());
        node
    }

    /// Adds what went, and lets the nodes end.
    pub fn count(&mut self, went: &mut Went) {
        for node in &self.0 {
            let Messages { sent, arrived, too_large, unconnected, .. } = node.messages();
            went.sent += sent;
            went.by_tcp += too_large + unconnected - *node.warming.lock();
            went.arrived += arrived;
        }
        self.0.clear();
    }
}

/// A node that has connections for messages before it says that it has connected, and whose messages all fit.
pub struct Sending<F: Fabric> {
    inner: F,
    capabilities: Capabilities,
    /// How many messages went by tcp until there were connections.
    warming: Mutex<u64>,
}

impl<F: Fabric> Sending<F> {
    pub fn new(inner: F) -> Self {
        let capabilities = Capabilities { largest_message: LARGEST as u32, ..inner.capabilities().clone() };
        Sending { inner, capabilities, warming: Mutex::default() }
    }
}

impl<F: Fabric> Fabric for Sending<F> {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
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
        let way = self.inner.connect(peer, address)?;
        let mut warming = self.warming.lock();
        let unconnected = self.inner.messages().unconnected;
        for class in Class::ALL {
            let (before, until) = (self.inner.messages().sent, Instant::now() + PATIENCE);
            while self.inner.messages().sent == before {
                way.send(class, Target::VIEW, NOWHERE, 0, &[]).expect("a message is taken");
                std::thread::sleep(Duration::from_millis(5));
                assert!(Instant::now() < until, "no connection for messages is made: {:?}", self.inner.messages());
            }
        }
        *warming += self.inner.messages().unconnected - unconnected;
        Ok(way)
    }

    fn listen(&self, port: Port, views: Views) -> Result<Inbox> {
        self.inner.listen(port, views)
    }

    fn set_view(&self, view: ViewNumber) {
        self.inner.set_view(view);
    }

    fn connections(&self) -> Connections {
        self.inner.connections()
    }

    fn messages(&self) -> Messages {
        self.inner.messages()
    }
}
