//! The fabric, its peers and their remotes: what the contract sees of this provider.

use std::net::Ipv6Addr;
use std::sync::Arc;
use std::sync::atomic::Ordering as Atomic;
use std::thread::{self, JoinHandle};

use verbena_terms::{BootClock, Clock, Incarnation, Rank, Time, ViewNumber};

use super::adapter::{Adapter, unusable};
use super::batches::{LARGEST_TRANSFER, Place};
use super::burial::Burial;
use super::clerk::Clerk;
use super::config::{Completions, VerbsConfig};
use super::connecting::Ways;
use super::enquiries::Enquiries;
use super::envelope::LONGEST_BODY;
use super::guests::Guests;
use super::introductions::Purpose;
use super::link::Link;
use super::manager::Listener;
use super::porter::{Desk, Porter, Ties};
use super::receiver::{self, Receiver, Terms};
use super::regions::Registered;
use super::sender::Sender;
use crate::capability::{Atomics, BatchTrips, Capabilities, Classes, Executor, Ordering};
use crate::completion::Pending;
use crate::ending::RegionId;
use crate::error::{Error, Result};
use crate::message::{Class, Inbox, Port, Views};
use crate::operation::{Batch, Completed, OperationId, Settled};
use crate::pool::Pool;
use crate::provider::{Address, Connections, Fabric, Messages, Peer};
use crate::region::{Region, RegionKey, Remote, SharedRemote};
use crate::tcp::{LARGEST_MESSAGE, TcpFabric, try_key};

/// One incarnation's endpoint on an RDMA adapter.
pub struct VerbsFabric {
    capabilities: Capabilities,
    tcp: Arc<TcpFabric>,
    pool: Pool,
    adapter: Arc<Adapter>,
    regions: Arc<Registered>,
    clerks: [Arc<Clerk>; 2],
    burial: Burial,
    desk: Arc<Desk>,
    porters: Vec<JoinHandle<()>>,
}

impl VerbsFabric {
    /// Opens the device, and listens for messages.
    ///
    /// # Errors
    /// [`Error::Unusable`], with what the device lacks; and as [`TcpFabric::open`].
    pub fn open(identity: Incarnation, config: VerbsConfig) -> Result<Self> {
        let adapter = Adapter::open(&config)?;
        let found = Ipv6Addr::from(adapter.gid);
        if let Some(chosen) = config.gid.filter(|chosen| *chosen != found) {
            let reason = format!("GID {} of {} is {found}, no longer {chosen}", config.gid_index, config.device);
            return Err(unusable(reason, "Start again: the addresses of the interface have changed"));
        }
        let regions = Arc::new(Registered::new(adapter.clone())?);
        let most_callers = config.tcp.most_callers;
        let buffers = match receiver::buffers(&adapter, &config) {
            Ok(buffers) => Some(buffers),
            Err(reason) => {
                tracing::info!(reason, "all messages go by tcp");
                None
            }
        };
        let pool = Pool::registered(config.tcp.pool_bytes, adapter.clone());
        let tcp = Arc::new(TcpFabric::open_on(identity, config.tcp, regions.clone())?);
        let desk = Arc::new(Desk::default());
        let clerk = |name, class, completions| {
            let terms = Terms { class, pool: &pool, inboxes: tcp.inboxes(), tally: desk.tally.clone() };
            Clerk::start(name, &adapter, completions, |channel| {
                buffers.map(|buffers| Receiver::new(&adapter, channel, buffers, terms)).transpose()
            })
        };
        let clerks = [
            clerk("verbs-control", Class::Control, config.completions)?,
            clerk("verbs-bulk", Class::Bulk, Completions::Told)?,
        ];
        let receivers = clerks.each_ref().map(|clerk| clerk.receiver().cloned());
        let listener = adapter.managed.map(|address| Listener::new(&adapter, address)).transpose()?;
        let listener = listener.map(Arc::new);
        let porter = Porter {
            listener: listener.clone(),
            adapter: adapter.clone(),
            guests: Arc::new(Guests::new(adapter.clone(), receivers, most_callers, desk.tally.clone())),
            regions: regions.clone(),
            tcp: Arc::downgrade(&tcp),
            desk: desk.clone(),
        };
        let mut fabric = VerbsFabric {
            capabilities: capabilities(&adapter, buffers.is_some()),
            tcp,
            pool,
            adapter,
            regions,
            clerks,
            burial: Burial::start()?,
            desk,
            porters: Vec::new(),
        };
        if let Some(listener) = listener {
            let porter = porter.clone();
            fabric.start("verbs-calls", move || porter.take_calls(&listener))?;
        }
        for (name, purpose) in [("verbs-porter", Purpose::Operations), ("verbs-post", Purpose::Messages)] {
            let (porter, inbox) = (porter.clone(), fabric.tcp.listen(purpose.port(), Views::Any)?);
            fabric.start(name, move || porter.work(&inbox))?;
        }
        Ok(fabric)
    }

    /// The present incarnation of `rank`, found at `address`. See [`TcpFabric::who_lives_at`].
    ///
    /// # Errors
    /// [`Error::Unreachable`] where no node answers, or none that can prove to be of that rank.
    pub fn who_lives_at(&self, rank: Rank, address: &Address, deadline: Time) -> Result<Incarnation> {
        self.tcp.who_lives_at(rank, &address.with_scheme("tcp"), deadline)
    }

    fn start(&mut self, name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
        let started = thread::Builder::new().name(name.into()).spawn(work);
        self.porters.push(started.map_err(|error| Error::system("start a thread", error))?);
        Ok(())
    }

    fn ties(&self, target: Incarnation, channel: &Arc<dyn Peer>) -> Ties {
        let ways = |class| Ways {
            target,
            class,
            adapter: self.adapter.clone(),
            clerk: self.clerks[class as usize].clone(),
            burial: self.burial.clone(),
            channel: channel.clone(),
            answers: self.tcp.address(),
            enquiries: self.desk.enquiries.clone(),
            tally: self.desk.tally.clone(),
        };
        let sender = |class| Arc::new(Sender::new(self.identity(), ways(class), self.pool.clone()));
        let receives = self.capabilities.largest_by_adapter > 0;
        Ties {
            links: Class::ALL.map(|class| Arc::new(Link::new(ways(class), self.pool.clone()))),
            senders: receives.then(|| Class::ALL.map(sender)),
        }
    }
}

fn capabilities(adapter: &Adapter, receives: bool) -> Capabilities {
    Capabilities {
        provider: "verbs",
        executor: Executor::Hardware,
        changes: if adapter.atomics == Atomics::Native { Executor::Hardware } else { Executor::Agent },
        target_cpu_free: true,
        atomic_scope: adapter.scope,
        atomics: adapter.atomics,
        largest_read: LARGEST_TRANSFER as u32,
        largest_write: LARGEST_TRANSFER as u32,
        largest_message: LARGEST_MESSAGE as u32,
        largest_by_adapter: if receives { LONGEST_BODY as u32 } else { 0 },
        batch: BatchTrips::OneAndFences,
        ordering: Ordering::None,
        zero_copy: true,
        pins_memory: true,
        classes: Classes::Separate,
        synchronous: false,
        crosses_machines: true,
    }
}

impl Fabric for VerbsFabric {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn identity(&self) -> Incarnation {
        self.tcp.identity()
    }

    fn address(&self) -> Address {
        self.tcp.address().with_scheme("verbs")
    }

    fn clock(&self) -> &dyn Clock {
        &BootClock
    }

    fn pool(&self) -> &Pool {
        &self.pool
    }

    fn register(&self, bytes: u64, view: ViewNumber) -> Result<Box<dyn Region>> {
        self.tcp.register(bytes, view)
    }

    fn connect(&self, peer: Incarnation, address: &Address) -> Result<Arc<dyn Peer>> {
        if address.scheme() != "verbs" {
            let reason = "it is not a verbs address".into();
            return Err(Error::Unreachable { target: peer, address: address.to_string(), reason });
        }
        let channel = self.tcp.connect(peer, &address.with_scheme("tcp"))?;
        // One for each peer and class: its identifiers are counted there (F2).
        let ties = self.desk.ties.lock().entry(peer).or_insert_with(|| Arc::new(self.ties(peer, &channel))).clone();
        Ok(Arc::new(VerbsPeer {
            channel,
            ties,
            enquiries: self.desk.enquiries.clone(),
            pool: self.pool.clone(),
            answers: self.tcp.address(),
            atomics: self.adapter.atomics,
        }))
    }

    fn listen(&self, port: Port, views: Views) -> Result<Inbox> {
        self.tcp.listen(port, views)
    }

    fn set_view(&self, view: ViewNumber) {
        self.tcp.set_view(view);
    }

    fn connections(&self) -> Connections {
        self.desk.tally.connections()
    }

    fn messages(&self) -> Messages {
        self.desk.tally.messages()
    }
}

impl Drop for VerbsFabric {
    fn drop(&mut self) {
        self.regions.close();
        self.desk.is_closed.store(true, Atomic::SeqCst);
        self.clerks.iter().for_each(|clerk| clerk.rota().stop());
        let ties = std::mem::take(&mut *self.desk.ties.lock());
        for ties in ties.values() {
            ties.links.iter().for_each(|link| link.close());
            ties.senders.iter().flatten().for_each(|sender| sender.close());
        }
        let others = self.porters.drain(..).filter(|porter| porter.thread().id() != thread::current().id());
        others.for_each(|porter| drop(porter.join()));
    }
}

struct VerbsPeer {
    channel: Arc<dyn Peer>,
    ties: Arc<Ties>,
    enquiries: Arc<Enquiries>,
    pool: Pool,
    answers: Address,
    atomics: Atomics,
}

impl Peer for VerbsPeer {
    fn incarnation(&self) -> Incarnation {
        self.channel.incarnation()
    }

    fn open(&self, key: &RegionKey, deadline: Time) -> Result<SharedRemote> {
        let agent = self.channel.open(key, deadline)?;
        let place = self.enquiries.place_of(&self.channel, &self.answers, RegionId::from(key), deadline)?;
        self.ties.links.iter().for_each(|link| link.met(agent.clone()));
        let agent = (self.atomics == Atomics::Emulated).then_some(agent);
        let remote = VerbsRemote { key: key.clone(), place, ties: self.ties.clone(), agent };
        try_key(&remote, &self.pool, deadline)?;
        Ok(Arc::new(remote))
    }

    fn send(&self, class: Class, view: ViewNumber, port: Port, number: u64, body: &[u8]) -> Result<()> {
        match &self.ties.senders {
            Some(senders) => senders[class as usize].send(view, port, number, body),
            None => self.channel.send(class, view, port, number, body),
        }
    }
}

struct VerbsRemote {
    key: RegionKey,
    place: Place,
    ties: Arc<Ties>,
    /// What executes changes to the region, where adapters only read: the owner's agent. A batch with such an element
    /// goes to it whole.
    agent: Option<SharedRemote>,
}

impl Remote for VerbsRemote {
    fn key(&self) -> &RegionKey {
        &self.key
    }

    fn post(&self, batch: Batch, class: Class, deadline: Time) -> Pending<Completed> {
        match &self.agent {
            Some(agent) if batch.effects() > 0 => agent.post(batch, class, deadline),
            _ => self.ties.links[class as usize].post(&self.key, self.place, batch, deadline),
        }
    }

    fn settle(&self, operation: OperationId, class: Class, deadline: Time) -> Pending<Settled> {
        match &self.agent {
            Some(agent) => agent.settle(operation, class, deadline),
            None => self.ties.links[class as usize].settle(operation, deadline),
        }
    }
}
