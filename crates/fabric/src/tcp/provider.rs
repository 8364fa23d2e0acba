//! The fabric, its peers and their remotes: what the contract sees of this provider.

use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use parking_lot::Mutex;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use verbena_terms::{BootClock, Clock, Incarnation, Rank, Time, ViewNumber};

use super::agent::{Agent, Side};
use super::config::TcpConfig;
use super::counts::{Counters, Counts};
use super::dial::Dialer;
use super::link::Link;
use super::own::OwnRemote;
use super::regions::Regions;
use super::tls::Tls;
use super::wire::{LARGEST_MESSAGE, LARGEST_TRANSFER};
use crate::capability::{AtomicScope, Atomics, BatchTrips, Capabilities, Classes, Executor, Ordering};
use crate::completion::Pending;
use crate::error::{Error, Result};
use crate::message::{Class, Inbox, InboxSender, Port, Views};
use crate::operation::{Batch, Completed, Operation, OperationId, Settled};
use crate::pool::Pool;
use crate::provider::{Address, Fabric, Peer};
use crate::region::{Region, RegionKey, Remote, SharedRemote};
use crate::supply::{Anonymous, Supply};

/// Peers that a fabric keeps count for, dead ones too: their identifiers are never used again (F2).
const MOST_PEERS: usize = 16 << 10;

/// One incarnation's endpoint on TCP.
pub struct TcpFabric {
    identity: Incarnation,
    address: Address,
    #[cfg(feature = "xdp")]
    local: SocketAddr,
    pool: Pool,
    regions: Regions,
    inboxes: InboxSender,
    inbox_messages: usize,
    dialer: Arc<Dialer>,
    counters: Arc<Counters>,
    peers: Mutex<HashMap<Incarnation, Arc<Links>>>,
    threads: [Thread; 2],
}

/// The ways to one peer, by class.
type Links = [Arc<Link>; 2];

impl TcpFabric {
    /// Listens, and starts the two threads that do what is asked of this node, and what those who ask do not do themselves.
    ///
    /// [`Error::Unusable`] where the configuration would let any host in, or the certificates cannot be used.
    pub fn open(identity: Incarnation, config: TcpConfig) -> Result<Self> {
        TcpFabric::open_on(identity, config, Arc::new(Anonymous::default()))
    }

    /// As [`open`](TcpFabric::open), with memory for its regions from elsewhere.
    pub(crate) fn open_on(identity: Incarnation, config: TcpConfig, supply: Arc<dyn Supply>) -> Result<Self> {
        config.check()?;
        let tls = config
            .tls
            .as_ref()
            .map(|tls| Tls::open(tls, identity.rank, config.names.clone()).map(Arc::new))
            .transpose()?;
        let (listener, local) = listen(config.listen)?;
        let address = config.advertise.unwrap_or_else(|| local.to_string());
        let threads = [Thread::start("tcp-control")?, Thread::start("tcp-bulk")?];

        let counters = Arc::new(Counters::default());
        let regions = Regions::new(identity, config.region_bytes, supply);
        let inboxes = InboxSender::new(config.inbox_messages);
        let side = |thread: &Thread| Side::new(thread.handle.clone(), config.most_callers);
        let agent = Arc::new(Agent {
            identity,
            tls: tls.clone(),
            handshake: config.handshake,
            regions: regions.clone(),
            inboxes: inboxes.clone(),
            counters: counters.clone(),
            greeting: Agent::greeting_places(),
            classes: [side(&threads[0]), side(&threads[1])],
        });
        threads[0].handle.spawn(async move {
            match tokio::net::TcpListener::from_std(listener) {
                Ok(listener) => agent.accept(listener).await,
                Err(error) => {
                    tracing::error!(%error, "the agent cannot watch its port: no other node will reach this one")
                }
            }
        });
        Ok(TcpFabric {
            identity,
            address: Address(format!("tcp://{address}")),
            #[cfg(feature = "xdp")]
            local,
            pool: Pool::new(config.pool_bytes),
            regions,
            inboxes,
            inbox_messages: config.inbox_messages,
            dialer: Arc::new(Dialer { identity, tls, insecure: config.insecure, handshake: config.handshake }),
            counters,
            peers: Mutex::default(),
            threads,
        })
    }

    /// The present incarnation of `rank`, found at `address`: for callers that know only the configured address of a
    /// node. Blocks its thread until `deadline` at most.
    ///
    /// # Errors
    /// [`Error::Unreachable`] where no node answers, or none that can prove to be of that rank.
    pub fn who_lives_at(&self, rank: Rank, address: &Address, deadline: Time) -> Result<Incarnation> {
        let (answer, answered) = std::sync::mpsc::sync_channel(1);
        let (dialer, at) = (self.dialer.clone(), address.0.clone());
        self.threads[0].handle.spawn(async move {
            // The caller may have stopped waiting.
            let _ = answer.send(dialer.ask(rank, &at).await);
        });
        let target = Incarnation { rank, start: 0 };
        let unreachable = |reason: String| Error::Unreachable { target, address: address.to_string(), reason };
        let left = deadline.since(BootClock.now());
        let answer = answered.recv_timeout(left).map_err(|_| unreachable("it did not answer in time".into()))?;
        match answer.map_err(unreachable)? {
            found if found.rank == rank => Ok(found),
            other => Err(unreachable(format!("{other} lives there"))),
        }
    }

    /// Where it listens.
    #[cfg(feature = "xdp")]
    pub(crate) fn local(&self) -> SocketAddr {
        self.local
    }

    /// Where what comes for this node by another way is delivered.
    #[cfg(feature = "verbs")]
    pub(crate) fn inboxes(&self) -> InboxSender {
        self.inboxes.clone()
    }

    /// What happened so far.
    pub fn counts(&self) -> Counts {
        self.counters.read()
    }
}

fn listen(on: SocketAddr) -> Result<(TcpListener, SocketAddr)> {
    let named = |error: std::io::Error| Error::System { what: "listen", reason: format!("{on}: {error}") };
    let listener = TcpListener::bind(on).map_err(named)?;
    listener.set_nonblocking(true).map_err(named)?;
    let local = listener.local_addr().map_err(named)?;
    Ok((listener, local))
}

impl Fabric for TcpFabric {
    fn capabilities(&self) -> &Capabilities {
        const CAPABILITIES: Capabilities = Capabilities {
            provider: "tcp",
            executor: Executor::Agent,
            changes: Executor::Agent,
            target_cpu_free: false,
            atomic_scope: AtomicScope::Processor,
            atomics: Atomics::Native,
            largest_read: LARGEST_TRANSFER as u32,
            largest_write: LARGEST_TRANSFER as u32,
            largest_message: LARGEST_MESSAGE as u32,
            largest_by_adapter: 0,
            batch: BatchTrips::One,
            ordering: Ordering::Posted,
            zero_copy: false,
            pins_memory: false,
            classes: Classes::Separate,
            synchronous: false,
            crosses_machines: true,
        };
        &CAPABILITIES
    }

    fn identity(&self) -> Incarnation {
        self.identity
    }

    fn address(&self) -> Address {
        self.address.clone()
    }

    fn clock(&self) -> &dyn Clock {
        &BootClock
    }

    fn pool(&self) -> &Pool {
        &self.pool
    }

    fn register(&self, bytes: u64, view: ViewNumber) -> Result<Box<dyn Region>> {
        Ok(Box::new(self.regions.register(bytes, view)?))
    }

    fn connect(&self, peer: Incarnation, address: &Address) -> Result<Arc<dyn Peer>> {
        let unreachable = |reason: String| Error::Unreachable { target: peer, address: address.to_string(), reason };
        if address.scheme() != "tcp" {
            return Err(unreachable("it is not a tcp address".into()));
        }
        let mut peers = self.peers.lock();
        let links = match peers.get(&peer) {
            Some(links) => links.clone(),
            None if peers.len() >= MOST_PEERS => {
                return Err(Error::Full { what: "the table of peers", most: MOST_PEERS });
            }
            None => {
                let links = Arc::new(Class::ALL.map(|class| self.link(peer, address, class)));
                peers.insert(peer, links.clone());
                links
            }
        };
        links.iter().for_each(|link| link.moved(&address.0));
        // Where another executor has the atomics it has those of this node's own words too (F3).
        let is_here = peer == self.identity && self.regions.atomics() == AtomicScope::Processor;
        let own = is_here.then(|| self.regions.clone());
        Ok(Arc::new(TcpPeer { peer, pool: self.pool.clone(), links, own }))
    }

    fn listen(&self, port: Port, views: Views) -> Result<Inbox> {
        self.inboxes
            .open(port, views)
            .ok_or(Error::Full { what: "the port, which has a reader,", most: self.inbox_messages })
    }

    fn set_view(&self, view: ViewNumber) {
        self.inboxes.set_view(view);
    }
}

impl TcpFabric {
    fn link(&self, peer: Incarnation, address: &Address, class: Class) -> Arc<Link> {
        let link = Arc::new(Link::new(peer, address.0.clone(), class, self.dialer.clone(), self.counters.clone()));
        self.threads[class as usize].handle.spawn(link.clone().run());
        link
    }
}

impl Drop for TcpFabric {
    fn drop(&mut self) {
        self.regions.close();
        self.threads.iter_mut().for_each(Thread::stop);
        for links in self.peers.get_mut().values() {
            links.iter().for_each(|link| link.close());
        }
    }
}

struct TcpPeer {
    peer: Incarnation,
    pool: Pool,
    links: Arc<Links>,
    /// This node's regions, where it is itself.
    own: Option<Regions>,
}

impl Peer for TcpPeer {
    fn incarnation(&self) -> Incarnation {
        self.peer
    }

    fn open(&self, key: &RegionKey, deadline: Time) -> Result<SharedRemote> {
        if key.owner != self.peer {
            return Err(Error::Revoked { target: key.owner, region: key.region, view: key.view });
        }
        let key = key.clone();
        let remote: SharedRemote = match self.own.clone() {
            Some(regions) => Arc::new(OwnRemote { key, regions }),
            None => Arc::new(TcpRemote { key, links: self.links.clone() }),
        };
        try_key(&*remote, &self.pool, deadline)?;
        Ok(remote)
    }

    fn send(&self, class: Class, view: ViewNumber, port: Port, number: u64, body: &[u8]) -> Result<()> {
        self.links[class as usize].send(view, port, number, body)
    }
}

/// Reads zero bytes of a region, so that a key that opens nothing is reported when it is opened.
pub(crate) fn try_key(remote: &dyn Remote, pool: &Pool, deadline: Time) -> Result<()> {
    loop {
        let nothing = Operation::Read { at: 0, into: pool.take(0)? };
        match remote.post(Batch::one(nothing), Class::Control, deadline).wait() {
            Ok(_) => return Ok(()),
            // Lost on the way: a read may be tried again, and the deadline ends it.
            Err(Error::Unknown { .. }) if BootClock.now() < deadline => {}
            Err(error) => return Err(error),
        }
    }
}

struct TcpRemote {
    key: RegionKey,
    links: Arc<Links>,
}

impl Remote for TcpRemote {
    fn key(&self) -> &RegionKey {
        &self.key
    }

    fn post(&self, batch: Batch, class: Class, deadline: Time) -> Pending<Completed> {
        self.links[class as usize].post(&self.key, batch, deadline)
    }

    fn settle(&self, operation: OperationId, class: Class, deadline: Time) -> Pending<Settled> {
        self.links[class as usize].settle(operation, deadline)
    }
}

/// A thread with a runtime of its own, until it is stopped.
struct Thread {
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Thread {
    fn start(name: &'static str) -> Result<Self> {
        let runtime = Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(|error| Error::system("start a runtime", error))?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let run = move || {
            let _ = runtime.block_on(stopped);
            // A name that is being looked up is not waited for.
            runtime.shutdown_background();
        };
        let thread = thread::Builder::new()
            .name(name.into())
            .spawn(run)
            .map_err(|error| Error::system("start a thread", error))?;
        Ok(Thread { handle, stop: Some(stop), thread: Some(thread) })
    }

    fn stop(&mut self) {
        drop(self.stop.take());
        // Its own thread cannot wait for itself: where the last holder of the fabric is a task on it, it ends after that task.
        if let Some(thread) = self.thread.take().filter(|thread| thread.thread().id() != thread::current().id()) {
            let _ = thread.join();
        }
    }
}
