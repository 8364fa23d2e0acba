//! The relays between nodes: each reaches every other through one of its own, so that a fault can be between any two of them.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use verbena_fabric::{Address, Fabric};
use verbena_terms::Incarnation;

use super::relayed::Relayed;
use verbena_testkit::relay::{Relay, Relays};

/// By who calls and where to.
#[derive(Default)]
pub struct Network {
    relays: Relays,
    by_pair: Mutex<HashMap<(Incarnation, SocketAddr), Arc<Relay>>>,
    addresses: Mutex<HashMap<Incarnation, SocketAddr>>,
}

impl Network {
    /// A node that reaches others through relays.
    pub fn join<F: Fabric + 'static>(self: &Arc<Self>, inner: F) -> Arc<dyn Fabric> {
        let (incarnation, address) = (inner.identity(), inner.address());
        self.addresses.lock().insert(incarnation, socket(&address));
        let (network, scheme) = (self.clone(), address.scheme().to_owned());
        let way = move |to: &Address| {
            let relay = network.relay(incarnation, socket(to));
            Address(format!("{scheme}://{}", relay.address))
        };
        Arc::new(Relayed { inner, way })
    }

    /// A node that others reach through relays, and that calls nobody itself.
    pub fn note(&self, node: Incarnation, address: &Address) {
        self.addresses.lock().insert(node, socket(address));
    }

    pub fn between(&self, from: Incarnation, to: Incarnation) -> Arc<Relay> {
        let address = self.addresses.lock()[&to];
        self.relay(from, address)
    }

    fn relay(&self, from: Incarnation, to: SocketAddr) -> Arc<Relay> {
        self.by_pair.lock().entry((from, to)).or_insert_with(|| Arc::new(self.relays.to(to))).clone()
    }
}

/// Where a node of ours is, whose address is numeric.
pub fn socket(address: &Address) -> SocketAddr {
    address.rest().parse().unwrap()
}
