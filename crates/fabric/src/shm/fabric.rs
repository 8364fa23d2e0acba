//! One incarnation's endpoint among the processes of this machine.

use std::sync::Arc;
use std::thread::{self, JoinHandle};

use verbena_terms::{BootClock, Clock, Incarnation, ViewNumber};

use super::frame::LARGEST_BODY;
use super::hub::Hub;
use super::link::ShmPeer;
use super::place::Place;
use super::region::ShmRegion;
use super::remote::LARGEST;
use super::service::Service;
use crate::capability::{AtomicScope, Atomics, BatchTrips, Capabilities, Classes, Executor, Ordering};
use crate::error::{Error, Result};
use crate::message::{Inbox, Port, Views};
use crate::packets;
use crate::pool::Pool;
use crate::provider::{Address, Fabric, Peer};
use crate::region::Region;

/// The settings of an shm fabric.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The incarnation that opens it.
    pub identity: Incarnation,
    /// Where its buffers come from.
    pub pool: Pool,
    /// Users whose processes may be peers, beside the user of this process itself.
    pub allowed_users: Vec<u32>,
}

/// The shm fabric of one incarnation. Dropping it revokes its regions and closes its connections.
pub struct Shm {
    hub: Arc<Hub>,
    pool: Pool,
    capabilities: Capabilities,
    service: Option<JoinHandle<()>>,
}

impl Shm {
    /// Opens it: takes an abstract name and starts the service thread.
    pub fn open(settings: Settings) -> Result<Arc<Self>> {
        let place = Place::random()?;
        let listener = packets::listen(&place.socket_name()).map_err(|error| Error::Unusable {
            provider: PROVIDER,
            reason: format!("no socket can listen: {error}"),
            remedy: "It needs unix sockets of type SEQPACKET with abstract names (Linux)".into(),
        })?;
        let hub = Arc::new(Hub::new(&settings, place)?);
        let service = Service::new(hub.clone(), listener)?;
        let service = thread::Builder::new()
            .name("verbena-shm".into())
            .spawn(move || service.run())
            .map_err(|error| Error::system("start the service thread of a fabric", error))?;
        Ok(Arc::new(Shm { hub, pool: settings.pool, capabilities: capabilities(), service: Some(service) }))
    }
}

const PROVIDER: &str = "shm";

const fn capabilities() -> Capabilities {
    Capabilities {
        provider: PROVIDER,
        executor: Executor::Memory,
        changes: Executor::Memory,
        target_cpu_free: true,
        atomic_scope: AtomicScope::Processor,
        atomics: Atomics::Native,
        largest_read: LARGEST,
        largest_write: LARGEST,
        largest_message: LARGEST_BODY as u32,
        largest_by_adapter: 0,
        batch: BatchTrips::Zero,
        ordering: Ordering::Posted,
        zero_copy: true,
        pins_memory: false,
        classes: Classes::Separate,
        synchronous: true,
        crosses_machines: false,
    }
}

impl Fabric for Shm {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn identity(&self) -> Incarnation {
        self.hub.identity
    }

    fn address(&self) -> Address {
        self.hub.place.address()
    }

    fn clock(&self) -> &dyn Clock {
        &BootClock
    }

    fn pool(&self) -> &Pool {
        &self.pool
    }

    fn register(&self, bytes: u64, view: ViewNumber) -> Result<Box<dyn Region>> {
        Ok(Box::new(ShmRegion::register(self.hub.clone(), bytes, view)?))
    }

    fn connect(&self, peer: Incarnation, address: &Address) -> Result<Arc<dyn Peer>> {
        Ok(Arc::new(ShmPeer(self.hub.link(peer, Place::parse(address)?)?)))
    }

    fn listen(&self, port: Port, views: Views) -> Result<Inbox> {
        self.hub.inboxes.open(port, views).ok_or(Error::Full { what: "a port, which has one reader,", most: 1 })
    }

    fn set_view(&self, view: ViewNumber) {
        self.hub.inboxes.set_view(view);
    }
}

impl Drop for Shm {
    fn drop(&mut self) {
        self.hub.close();
        // Its own thread cannot wait for itself: where the last holder of the fabric was woken by it, it ends after that.
        if let Some(service) = self.service.take().filter(|service| service.thread().id() != thread::current().id()) {
            // It panics only if something in here is broken, which has been said by then.
            let _ = service.join();
        }
    }
}
