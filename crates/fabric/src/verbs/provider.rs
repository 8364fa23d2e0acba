//! The fabric, its peers and their remotes: what the contract sees of this provider.

use std::collections::HashMap;
use std::net::Ipv6Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering as Atomic};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;
use verbena_terms::{BootClock, Clock, Incarnation, Rank, Time, ViewNumber};

use super::adapter::{Adapter, unusable};
use super::batches::{LARGEST_TRANSFER, Place};
use super::burial::Burial;
use super::clerk::Clerk;
use super::config::{Completions, VerbsConfig};
use super::enquiries::Enquiries;
use super::entries::Refusals;
use super::guests::Guests;
use super::introductions::{self, Meeting, Said};
use super::link::{Answer, Link, Ways};
use super::manager::Listener;
use super::regions::Registered;
use super::tally::Tally;
use crate::capability::{Atomics, BatchTrips, Capabilities, Classes, Executor, Ordering};
use crate::completion::Pending;
use crate::ending::RegionId;
use crate::error::{Error, Result};
use crate::message::{Class, Inbox, Message, Port, Views};
use crate::operation::{Batch, Completed, OperationId, Settled};
use crate::pool::Pool;
use crate::provider::{Address, Connections, Fabric, Peer};
use crate::region::{Region, RegionKey, Remote, SharedRemote};
use crate::tcp::{LARGEST_MESSAGE, TcpFabric, try_key};

/// How long the thread that answers introductions waits for one before it looks whether the fabric is closed.
const LOOK_AROUND: Duration = Duration::from_millis(100);

/// Connections that are being made at a time; whoever is not heeded asks again.
const MOST_ASIDE: usize = 64;

/// What to do where two nodes make connections in different ways.
const SAME_EVERYWHERE: &str = "All nodes have adapters of one kind, and the same fabric.verbs_rdma_cm";

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

/// The ways to one peer, by class.
type Links = [Arc<Link>; 2];

/// What is shared with the thread that answers introductions.
#[derive(Default)]
struct Desk {
    links: Mutex<HashMap<Incarnation, Arc<Links>>>,
    enquiries: Arc<Enquiries>,
    tally: Arc<Tally>,
    /// Threads that make connections.
    aside: AtomicUsize,
    is_closed: AtomicBool,
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
        let most_callers = 2 * config.tcp.most_callers;
        let pool = Pool::registered(config.tcp.pool_bytes, adapter.clone());
        let tcp = Arc::new(TcpFabric::open_on(identity, config.tcp, regions.clone())?);
        let inbox = tcp.listen(introductions::PORT, Views::Any)?;
        let clerks = [
            Clerk::start("verbs-control", &adapter, config.completions)?,
            Clerk::start("verbs-bulk", &adapter, Completions::Told)?,
        ];
        let desk = Arc::new(Desk::default());
        let listener = adapter.managed.map(|address| Listener::new(&adapter, address)).transpose()?;
        let listener = listener.map(Arc::new);
        let porter = Porter {
            listener: listener.clone(),
            adapter: adapter.clone(),
            guests: Arc::new(Guests::new(adapter.clone(), most_callers, desk.tally.clone())),
            regions: regions.clone(),
            tcp: Arc::downgrade(&tcp),
            desk: desk.clone(),
        };
        let mut fabric = VerbsFabric {
            capabilities: capabilities(&adapter),
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
        fabric.start("verbs-porter", move || porter.work(&inbox))?;
        Ok(fabric)
    }

    /// The present incarnation of `rank`, found at `address`. See [`TcpFabric::who_lives_at`].
    ///
    /// # Errors
    /// [`Error::Unreachable`] where nobody answers, or nobody who can prove to be of that rank.
    pub fn who_lives_at(&self, rank: Rank, address: &Address, deadline: Time) -> Result<Incarnation> {
        self.tcp.who_lives_at(rank, &address.with_scheme("tcp"), deadline)
    }

    fn start(&mut self, name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
        let started = thread::Builder::new().name(name.into()).spawn(work);
        self.porters.push(started.map_err(|error| Error::system("start a thread", error))?);
        Ok(())
    }

    fn link(&self, peer: Incarnation, class: Class, channel: &Arc<dyn Peer>) -> Arc<Link> {
        let ways = Ways {
            adapter: self.adapter.clone(),
            clerk: self.clerks[class as usize].clone(),
            burial: self.burial.clone(),
            channel: channel.clone(),
            answers: self.tcp.address(),
            enquiries: self.desk.enquiries.clone(),
            tally: self.desk.tally.clone(),
        };
        Arc::new(Link::new(peer, class, ways, self.pool.clone()))
    }
}

fn capabilities(adapter: &Adapter) -> Capabilities {
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
        let mut links = self.desk.links.lock();
        let links =
            links.entry(peer).or_insert_with(|| Arc::new(Class::ALL.map(|class| self.link(peer, class, &channel))));
        Ok(Arc::new(VerbsPeer {
            channel,
            links: links.clone(),
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
        self.desk.tally.read()
    }
}

impl Drop for VerbsFabric {
    fn drop(&mut self) {
        self.regions.close();
        self.desk.is_closed.store(true, Atomic::SeqCst);
        self.clerks.iter().for_each(|clerk| clerk.rota().stop());
        let links = std::mem::take(&mut *self.desk.links.lock());
        links.values().flat_map(|links| links.iter()).for_each(|link| link.close());
        let others = self.porters.drain(..).filter(|porter| porter.thread().id() != thread::current().id());
        others.for_each(|porter| drop(porter.join()));
    }
}

/// Connects those who ask for it and tells them where regions are, and takes the answers to what this node asked.
#[derive(Clone)]
struct Porter {
    adapter: Arc<Adapter>,
    /// Where the manager takes calls.
    listener: Option<Arc<Listener>>,
    guests: Arc<Guests>,
    regions: Arc<Registered>,
    tcp: std::sync::Weak<TcpFabric>,
    desk: Arc<Desk>,
}

impl Porter {
    fn work(self, inbox: &Inbox) {
        while !self.desk.is_closed.load(Atomic::SeqCst) {
            let Some(message) = inbox.take(LOOK_AROUND) else { continue };
            let from = message.from;
            if let Err(error) = self.heed(message) {
                tracing::warn!(%from, %error, "an introduction came to nothing");
            }
        }
        self.guests.close();
    }

    /// Connects those who call.
    fn take_calls(self, listener: &Listener) {
        while !self.desk.is_closed.load(Atomic::SeqCst) {
            let taken = match listener.next(LOOK_AROUND) {
                Ok(None) => continue,
                Ok(Some(call)) => {
                    let porter = self.clone();
                    self.aside(move || porter.guests.called(call).inspect_err(|_| porter.desk.tally.refused()))
                }
                Err(error) => {
                    // It is not to be asked again without a pause.
                    thread::sleep(LOOK_AROUND);
                    Err(error)
                }
            };
            if let Err(error) = taken {
                tracing::warn!(%error, "a call came to nothing");
            }
        }
    }

    fn heed(&self, message: Message) -> Result<()> {
        let Message { from, class, number, .. } = message;
        let link = || self.desk.links.lock().get(&from).map(|links| links[class as usize].clone());
        match Said::parse(from, &message.body)? {
            Said::Connect(end, address) => {
                let porter = self.clone();
                self.aside(move || {
                    let made = match porter.adapter.refusals {
                        Refusals::Told => porter.guests.connect(from, class, number, &end),
                        Refusals::Untold => {
                            Err(unusable("connections of iWARP are made by rdma_cm".into(), SAME_EVERYWHERE))
                        }
                    };
                    porter.answer_with(&message, &address, made.map(|end| end.map(Said::Connected)))
                })
            }
            Said::Call(address) => {
                let porter = self.clone();
                self.aside(move || {
                    let expected = match &porter.listener {
                        Some(listener) => porter.guests.expect(from, class, number).map(|ticket| {
                            let (at, serves) = (listener.address, porter.adapter.serves);
                            ticket.map(|ticket| Said::Expected(Meeting { at, ticket, serves }))
                        }),
                        None => Err(unusable("connections are made by message here".into(), SAME_EVERYWHERE)),
                    };
                    porter.answer_with(&message, &address, expected)
                })
            }
            Said::Place(id, address) => self.answer(&message, &address, &Said::Placed(self.regions.place(&id))),
            Said::Connected(end) => self.connect(link(), number, Answer::Connected(end)),
            Said::Expected(meeting) => self.connect(link(), number, Answer::Expected(meeting)),
            Said::NotConnected(reason) => {
                link().into_iter().for_each(|link| link.answered(number, Err(reason.clone())));
                Ok(())
            }
            Said::Placed(place) => {
                self.desk.enquiries.told(number, place);
                Ok(())
            }
        }
    }

    /// Somebody has answered a request for a connection.
    fn connect(&self, link: Option<Arc<Link>>, number: u64, answer: Answer) -> Result<()> {
        let Some(link) = link else { return Ok(()) };
        self.aside(move || {
            link.answered(number, Ok(answer));
            Ok(())
        })
    }

    /// Does what may take as long as the network looks for somebody, in a thread of its own: nobody else is to wait for it.
    fn aside(&self, act: impl FnOnce() -> Result<()> + Send + 'static) -> Result<()> {
        let permit = Permit::of(&self.desk)?;
        let started = thread::Builder::new().name("verbs-connect".into()).spawn(move || {
            let _permit = permit;
            if let Err(error) = act() {
                tracing::warn!(%error, "an introduction came to nothing");
            }
        });
        started.map(drop).map_err(|error| Error::system("start a thread", error))
    }

    /// Says what was made for a caller, or why nothing was; nothing where another answer is on its way.
    fn answer_with(&self, request: &Message, address: &Address, made: Result<Option<Said>>) -> Result<()> {
        let said = match made {
            Ok(None) => return Ok(()),
            Ok(Some(said)) => said,
            Err(error) => {
                self.desk.tally.refused();
                tracing::warn!(from = %request.from, %error, "a caller could not be connected");
                Said::NotConnected(error.to_string())
            }
        };
        self.answer(request, address, &said)
    }

    fn answer(&self, request: &Message, address: &Address, said: &Said) -> Result<()> {
        let Some(tcp) = self.tcp.upgrade() else { return Ok(()) };
        // Whoever is found there has to prove to be who asked.
        let caller = tcp.connect(request.from, address)?;
        caller.send(request.class, ViewNumber(0), introductions::PORT, request.number, &said.to_bytes())
    }
}

/// One of the threads that make connections, for as long as it is there.
struct Permit(Arc<Desk>);

impl Permit {
    fn of(desk: &Arc<Desk>) -> Result<Self> {
        let permit = Permit(desk.clone());
        if desk.aside.fetch_add(1, Atomic::SeqCst) >= MOST_ASIDE {
            return Err(Error::Full { what: "the connections that are being made", most: MOST_ASIDE });
        }
        Ok(permit)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.aside.fetch_sub(1, Atomic::SeqCst);
    }
}

struct VerbsPeer {
    channel: Arc<dyn Peer>,
    links: Arc<Links>,
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
        self.links.iter().for_each(|link| link.met(agent.clone()));
        let agent = (self.atomics == Atomics::Emulated).then_some(agent);
        let remote = VerbsRemote { key: key.clone(), place, links: self.links.clone(), agent };
        try_key(&remote, &self.pool, deadline)?;
        Ok(Arc::new(remote))
    }

    fn send(&self, class: Class, view: ViewNumber, port: Port, number: u64, body: &[u8]) -> Result<()> {
        self.channel.send(class, view, port, number, body)
    }
}

struct VerbsRemote {
    key: RegionKey,
    place: Place,
    links: Arc<Links>,
    /// Who executes what changes the region, where adapters only read: the owner's agent. A batch with such an element goes to it whole.
    agent: Option<SharedRemote>,
}

impl Remote for VerbsRemote {
    fn key(&self) -> &RegionKey {
        &self.key
    }

    fn post(&self, batch: Batch, class: Class, deadline: Time) -> Pending<Completed> {
        match &self.agent {
            Some(agent) if batch.effects() > 0 => agent.post(batch, class, deadline),
            _ => self.links[class as usize].post(&self.key, self.place, batch, deadline),
        }
    }

    fn settle(&self, operation: OperationId, class: Class, deadline: Time) -> Pending<Settled> {
        match &self.agent {
            Some(agent) => agent.settle(operation, class, deadline),
            None => self.links[class as usize].settle(operation, deadline),
        }
    }
}
