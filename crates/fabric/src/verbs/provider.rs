//! The fabric, its peers and their remotes: what the contract sees of this provider.

use std::collections::HashMap;
use std::net::Ipv6Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering as Atomic};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;
use verbena_terms::{BootClock, Clock, Incarnation, Rank, Time, ViewNumber};

use super::adapter::{Adapter, unusable};
use super::batches::{LARGEST_TRANSFER, Place};
use super::burial::Burial;
use super::clerk::Clerk;
use super::config::{Completions, VerbsConfig};
use super::guests::Guests;
use super::introductions::{self, Said};
use super::link::{Link, Ways};
use super::regions::Registered;
use crate::capability::{Atomics, BatchTrips, Capabilities, Classes, Executor, Ordering};
use crate::completion::Pending;
use crate::ending::RegionId;
use crate::error::{Error, Result};
use crate::message::{Class, Inbox, Message, Port, Views};
use crate::operation::{Batch, Completed, OperationId, Settled};
use crate::pool::Pool;
use crate::provider::{Address, Fabric, Peer};
use crate::region::{Region, RegionKey, Remote, SharedRemote};
use crate::tcp::{LARGEST_MESSAGE, TcpFabric, try_key};

/// How long the thread that answers introductions waits for one before it looks whether the fabric is closed.
const LOOK_AROUND: Duration = Duration::from_millis(100);
/// Who is not told where a region is asks again after so long.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// Connections that are being made at a time; whoever is not heeded asks again.
const MOST_ASIDE: usize = 64;

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
    porter: Option<JoinHandle<()>>,
}

/// The ways to one peer, by class.
type Links = [Arc<Link>; 2];

/// What is shared with the thread that answers introductions.
#[derive(Default)]
struct Desk {
    links: Mutex<HashMap<Incarnation, Arc<Links>>>,
    /// Who waits to be told where a region is, by the number of the request.
    asked: Mutex<HashMap<u64, SyncSender<Option<Place>>>>,
    next: AtomicU64,
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
        let adapter = Adapter::open(&config.device, config.port, config.gid_index)?;
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
        let porter = Porter {
            guests: Arc::new(Guests::new(adapter.clone(), most_callers)),
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
            porter: None,
        };
        let started = thread::Builder::new().name("verbs-porter".into()).spawn(move || porter.work(&inbox));
        fabric.porter = Some(started.map_err(|error| Error::system("start a thread", error))?);
        Ok(fabric)
    }

    /// The present incarnation of `rank`, found at `address`. See [`TcpFabric::who_lives_at`].
    ///
    /// # Errors
    /// [`Error::Unreachable`] where nobody answers, or nobody who can prove to be of that rank.
    pub fn who_lives_at(&self, rank: Rank, address: &Address, deadline: Time) -> Result<Incarnation> {
        self.tcp.who_lives_at(rank, &address.with_scheme("tcp"), deadline)
    }

    fn link(&self, peer: Incarnation, class: Class, channel: &Arc<dyn Peer>) -> Arc<Link> {
        let ways = Ways {
            adapter: self.adapter.clone(),
            clerk: self.clerks[class as usize].clone(),
            burial: self.burial.clone(),
            channel: channel.clone(),
            answers: self.tcp.address(),
        };
        Arc::new(Link::new(peer, class, ways, self.pool.clone()))
    }
}

fn capabilities(adapter: &Adapter) -> Capabilities {
    Capabilities {
        provider: "verbs",
        executor: Executor::Hardware,
        target_cpu_free: true,
        atomic_scope: adapter.scope,
        atomics: Atomics::Native,
        largest_read: LARGEST_TRANSFER as u32,
        largest_write: LARGEST_TRANSFER as u32,
        largest_message: LARGEST_MESSAGE as u32,
        batch: BatchTrips::OneAndFences,
        ordering: Ordering::None,
        zero_copy: true,
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
        let (links, desk, pool) = (links.clone(), self.desk.clone(), self.pool.clone());
        Ok(Arc::new(VerbsPeer { channel, links, desk, pool, answers: self.tcp.address() }))
    }

    fn listen(&self, port: Port, views: Views) -> Result<Inbox> {
        self.tcp.listen(port, views)
    }

    fn set_view(&self, view: ViewNumber) {
        self.tcp.set_view(view);
    }
}

impl Drop for VerbsFabric {
    fn drop(&mut self) {
        self.regions.close();
        self.desk.is_closed.store(true, Atomic::SeqCst);
        self.clerks.iter().for_each(|clerk| clerk.rota().stop());
        let links = std::mem::take(&mut *self.desk.links.lock());
        links.values().flat_map(|links| links.iter()).for_each(|link| link.close());
        if let Some(porter) = self.porter.take().filter(|porter| porter.thread().id() != thread::current().id()) {
            let _ = porter.join();
        }
    }
}

/// Connects those who ask for it and tells them where regions are, and takes the answers to what this node asked.
#[derive(Clone)]
struct Porter {
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

    fn heed(&self, message: Message) -> Result<()> {
        let Message { from, class, number, .. } = message;
        let link = || self.desk.links.lock().get(&from).map(|links| links[class as usize].clone());
        match Said::parse(from, &message.body)? {
            Said::Connect(end, address) => {
                let porter = self.clone();
                self.aside(move || {
                    let answer = match porter.guests.connect(from, class, number, &end) {
                        Ok(None) => return Ok(()),
                        Ok(Some(end)) => Said::Connected(end),
                        Err(error) => {
                            tracing::warn!(%from, %error, "a caller could not be connected");
                            Said::NotConnected(error.to_string())
                        }
                    };
                    porter.answer(&message, &address, &answer)
                })
            }
            Said::Place(id, address) => self.answer(&message, &address, &Said::Placed(self.regions.place(&id))),
            Said::Connected(end) => match link() {
                Some(link) => self.aside(move || {
                    link.answered(number, Ok(end));
                    Ok(())
                }),
                None => Ok(()),
            },
            Said::NotConnected(reason) => {
                link().into_iter().for_each(|link| link.answered(number, Err(reason.clone())));
                Ok(())
            }
            Said::Placed(place) => {
                let asked = self.desk.asked.lock().remove(&number);
                // Whoever asked may have stopped waiting.
                let _ = asked.map(|asked| asked.try_send(place));
                Ok(())
            }
        }
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
    desk: Arc<Desk>,
    pool: Pool,
    answers: Address,
}

impl VerbsPeer {
    /// Asks the owner where its adapter has a region.
    fn place_of(&self, key: &RegionKey, deadline: Time) -> Result<Place> {
        let number = self.desk.next.fetch_add(1, Atomic::Relaxed);
        let (tell, told) = sync_channel(1);
        self.desk.asked.lock().insert(number, tell);
        let request = Said::Place(RegionId::from(key), self.answers.clone()).to_bytes();
        let answer = self.ask(number, &request, &told, deadline);
        self.desk.asked.lock().remove(&number);
        let target = self.channel.incarnation();
        match answer? {
            Some(Some(place)) => Ok(place),
            Some(None) => Err(Error::Revoked { target, region: key.region, view: key.view }),
            None => {
                let reason = "it did not say in time where the region is".into();
                Err(Error::Unreachable { target, address: "its channel".into(), reason })
            }
        }
    }

    /// Asks until there is an answer, or the deadline has passed.
    fn ask(
        &self,
        number: u64,
        request: &[u8],
        told: &Receiver<Option<Place>>,
        deadline: Time,
    ) -> Result<Option<Option<Place>>> {
        while BootClock.now() < deadline {
            match self.channel.send(Class::Control, ViewNumber(0), introductions::PORT, number, request) {
                Ok(()) | Err(Error::Full { .. }) => {}
                Err(error) => return Err(error),
            }
            if let Ok(answer) = told.recv_timeout(ASK_AGAIN.min(deadline.since(BootClock.now()))) {
                return Ok(Some(answer));
            }
        }
        Ok(None)
    }
}

impl Peer for VerbsPeer {
    fn incarnation(&self) -> Incarnation {
        self.channel.incarnation()
    }

    fn open(&self, key: &RegionKey, deadline: Time) -> Result<SharedRemote> {
        let agent = self.channel.open(key, deadline)?;
        let place = self.place_of(key, deadline)?;
        self.links.iter().for_each(|link| link.met(agent.clone()));
        let remote = VerbsRemote { key: key.clone(), place, links: self.links.clone() };
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
}

impl Remote for VerbsRemote {
    fn key(&self) -> &RegionKey {
        &self.key
    }

    fn post(&self, batch: Batch, class: Class, deadline: Time) -> Pending<Completed> {
        self.links[class as usize].post(&self.key, self.place, batch, deadline)
    }

    fn settle(&self, operation: OperationId, class: Class, deadline: Time) -> Pending<Settled> {
        self.links[class as usize].settle(operation, deadline)
    }
}
