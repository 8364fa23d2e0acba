//! The fabric, its peers and their remotes: what the contract sees of this provider.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering as Atomic};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;
use verbena_terms::{BootClock, Clock, Incarnation, Rank, Time, ViewNumber};

use super::clerk::Clerk;
use super::config::XdpConfig;
use super::interface::Interface;
use super::introductions::{self, Callers, Said};
use super::ledger::{Counts as Sent, LARGEST_READ, LARGEST_WRITE};
use super::link::{Link, Ways};
use super::node::{Counts, Node};
use crate::capability::{AtomicScope, Atomics, BatchTrips, Capabilities, Classes, Executor, Ordering};
use crate::completion::Pending;
use crate::config::XdpMode as Mode;
use crate::error::{Error, Result};
use crate::message::{Class, Inbox, Message, Port, Views};
use crate::operation::{Batch, Completed, OperationId, Settled};
use crate::pool::Pool;
use crate::provider::{Address, Fabric, Frames, Peer};
use crate::region::{Region, RegionKey, Remote, SharedRemote};
use crate::tcp::{LARGEST_MESSAGE, TcpConfig, TcpFabric, try_key};

/// How long the thread that answers requests to be introduced waits for one before it looks whether the fabric is closed.
const LOOK_AROUND: Duration = Duration::from_millis(100);

/// Ports that the system may give which are not free for datagrams too.
const MOST_TRIES: u32 = 16;

/// One incarnation's endpoint on an interface that executes.
pub struct XdpFabric {
    tcp: Arc<TcpFabric>,
    /// Where frames are answered, and whence those to others are sent.
    address: SocketAddr,
    /// It is never read: it keeps other processes of this machine from the port, for what is sent to them there would
    /// be taken for frames.
    _own: UdpSocket,
    node: Arc<Node>,
    interfaces: Vec<Interface>,
    clerk: Arc<Clerk>,
    links: Arc<Links>,
    is_closed: Arc<AtomicBool>,
    porter: Option<JoinHandle<()>>,
}

type Links = Mutex<HashMap<Incarnation, Arc<Link>>>;

impl XdpFabric {
    /// Puts the program on the interfaces, where no other node of this network has, and answers at the address from then on.
    ///
    /// # Errors
    /// [`Error::Unusable`], with what is missing: rights, a driver that can do it, an interface without another
    /// program; and as
    /// [`TcpFabric::open`].
    pub fn open(identity: Incarnation, config: XdpConfig) -> Result<Self> {
        let asked = config.tcp.listen;
        if asked.ip().is_unspecified() {
            return Err(Error::Unusable {
                provider: "xdp",
                reason: format!("{asked} does not say which address of this machine is meant"),
                remedy: "Set fabric.listen to an address of the interface".into(),
            });
        }
        let names = match config.interfaces {
            named if named.is_empty() => vec![Interface::name_of(asked.ip())?],
            named => named,
        };
        let open = |name: &String| Interface::open(name, config.mode);
        let interfaces: Vec<Interface> = names.iter().map(open).collect::<Result<_>>()?;
        let node = Arc::new(Node::new(interfaces[0].share().clone())?);
        let (tcp, own) = open_channels(identity, &config.tcp, &node)?;
        let inbox = tcp.listen(introductions::PORT, Views::Any)?;
        let mut fabric = XdpFabric {
            address: own.local_addr().map_err(|error| Error::system("ask a socket for its address", error))?,
            _own: own,
            tcp,
            node,
            interfaces,
            clerk: Clerk::start()?,
            links: Arc::default(),
            is_closed: Arc::default(),
            porter: None,
        };
        let porter = Porter {
            callers: Callers::new(fabric.node.clone()),
            tcp: Arc::downgrade(&fabric.tcp),
            links: fabric.links.clone(),
            is_closed: fabric.is_closed.clone(),
        };
        let started = thread::Builder::new().name("xdp-porter".into()).spawn(move || porter.work(&inbox));
        fabric.porter = Some(started.map_err(|error| Error::system("start a thread", error))?);
        fabric.node.answer_at(fabric.address)?;
        Ok(fabric)
    }

    /// The present incarnation of `rank`, found at `address`. See [`TcpFabric::who_lives_at`].
    ///
    /// # Errors
    /// [`Error::Unreachable`] where no node answers, or none that can prove to be of that rank.
    pub fn who_lives_at(&self, rank: Rank, address: &Address, deadline: Time) -> Result<Incarnation> {
        self.tcp.who_lives_at(rank, &address.with_scheme("tcp"), deadline)
    }

    /// The interfaces, each with where in its receive path the program stands.
    pub fn interfaces(&self) -> impl Iterator<Item = (&str, Mode)> {
        self.interfaces.iter().map(|interface| (interface.name(), interface.mode()))
    }

    fn link(&self, peer: Incarnation, to: SocketAddr, channel: &Arc<dyn Peer>) -> Result<Arc<Link>> {
        let ways = Ways { from: self.address, to, channel: channel.clone(), answers: self.tcp.address() };
        Link::new(peer, ways, self.clerk.clone())
    }

    /// What came of the frames that others sent to this node.
    pub fn counts(&self) -> Counts {
        self.node.counts()
    }

    /// What came of the frames that this node sent to others.
    pub fn sent(&self) -> Sent {
        let links = self.links.lock();
        links.values().map(|link| link.counts()).fold(Sent::default(), Sent::and)
    }
}

/// Opens the channels for messages, with the datagram port of the same number.
fn open_channels(identity: Incarnation, config: &TcpConfig, node: &Arc<Node>) -> Result<(Arc<TcpFabric>, UdpSocket)> {
    let mut tries = 0;
    loop {
        let tcp = TcpFabric::open_on(identity, config.clone(), node.clone())?;
        let address = SocketAddr::new(config.listen.ip(), tcp.local().port());
        match UdpSocket::bind(address) {
            Ok(own) => return Ok((Arc::new(tcp), own)),
            // The system gave a port that is free for connections.
            Err(error) if error.kind() == ErrorKind::AddrInUse && config.listen.port() == 0 && tries < MOST_TRIES => {
                tries += 1;
            }
            Err(error) => {
                return Err(Error::Unusable {
                    provider: "xdp",
                    reason: format!("datagrams to {address}: {error}"),
                    remedy: "Give the node a port that nothing else has, for connections or datagrams".into(),
                });
            }
        }
    }
}

pub(super) const CAPABILITIES: Capabilities = Capabilities {
    provider: "xdp",
    executor: Executor::Kernel,
    changes: Executor::Kernel,
    target_cpu_free: true,
    atomic_scope: AtomicScope::Processor,
    atomics: Atomics::Native,
    largest_read: LARGEST_READ as u32,
    largest_write: LARGEST_WRITE as u32,
    largest_message: LARGEST_MESSAGE as u32,
    largest_by_adapter: 0,
    batch: BatchTrips::OneAFrame,
    ordering: Ordering::None,
    zero_copy: false,
    pins_memory: true,
    classes: Classes::BulkByAgent,
    synchronous: false,
    crosses_machines: true,
};

impl Fabric for XdpFabric {
    fn capabilities(&self) -> &Capabilities {
        &CAPABILITIES
    }

    fn identity(&self) -> Incarnation {
        self.tcp.identity()
    }

    fn address(&self) -> Address {
        self.tcp.address().with_scheme("xdp")
    }

    fn clock(&self) -> &dyn Clock {
        &BootClock
    }

    fn pool(&self) -> &Pool {
        self.tcp.pool()
    }

    fn register(&self, bytes: u64, view: ViewNumber) -> Result<Box<dyn Region>> {
        self.tcp.register(bytes, view)
    }

    fn connect(&self, peer: Incarnation, address: &Address) -> Result<Arc<dyn Peer>> {
        let unreachable = |reason: String| Error::Unreachable { target: peer, address: address.to_string(), reason };
        if address.scheme() != "xdp" {
            return Err(unreachable("it is not an xdp address".into()));
        }
        let channel = self.tcp.connect(peer, &address.with_scheme("tcp"))?;
        let known = self.links.lock().get(&peer).cloned();
        let link = match known {
            Some(link) => Some(link),
            // Its own words a node reaches without a frame.
            None if peer == self.identity() => None,
            None => {
                // A name may take its time, and no other caller is to wait for it.
                let mut found = address.rest().to_socket_addrs().map_err(|error| unreachable(error.to_string()))?;
                let to = found.find(|to| to.is_ipv4() == self.address.is_ipv4());
                let to = to.ok_or_else(|| unreachable(format!("it has no address of the kind of {}", self.address)))?;
                // What stays on this machine goes by lo, where no other interface sees it.
                let sees_own = self.interfaces().any(|(name, _)| name == "lo");
                let is_seen = sees_own || Interface::name_of(to.ip()).is_err();
                let made = is_seen.then(|| self.link(peer, to, &channel)).transpose()?;
                // One for each peer: its identifiers are counted there (F2).
                made.map(|link| self.links.lock().entry(peer).or_insert(link).clone())
            }
        };
        Ok(Arc::new(XdpPeer { channel, link, pool: self.tcp.pool().clone() }))
    }

    fn listen(&self, port: Port, views: Views) -> Result<Inbox> {
        self.tcp.listen(port, views)
    }

    fn set_view(&self, view: ViewNumber) {
        self.tcp.set_view(view);
    }

    fn frames(&self) -> Frames {
        let (came, went) = (self.node.counts(), self.sent());
        Frames {
            answered: came.answered,
            malformed: came.malformed,
            forged: came.forged,
            replayed: came.replayed,
            strange: came.unknown_callers,
            sent: went.sent,
            resent: went.resent,
        }
    }
}

impl Drop for XdpFabric {
    fn drop(&mut self) {
        self.node.close();
        self.is_closed.store(true, Atomic::SeqCst);
        self.clerk.rota().stop();
        let links = std::mem::take(&mut *self.links.lock());
        links.values().for_each(|link| link.close());
        if let Some(porter) = self.porter.take().filter(|porter| porter.thread().id() != thread::current().id()) {
            let _ = porter.join();
        }
    }
}

/// Answers those who ask to be introduced, and takes the answers to what this node asked.
struct Porter {
    callers: Callers,
    tcp: std::sync::Weak<TcpFabric>,
    links: Arc<Links>,
    is_closed: Arc<AtomicBool>,
}

impl Porter {
    fn work(mut self, inbox: &Inbox) {
        while !self.is_closed.load(Atomic::SeqCst) {
            let Some(message) = inbox.take(LOOK_AROUND) else { continue };
            let from = message.from;
            if let Err(error) = self.heed(&message) {
                tracing::warn!(%from, %error, "an introduction came to nothing");
            }
        }
    }

    fn heed(&mut self, message: &Message) -> Result<()> {
        match introductions::parse(message.from, &message.body)? {
            Said::Request(next, address) => {
                let Some(tcp) = self.tcp.upgrade() else { return Ok(()) };
                let Some(introduction) = self.callers.introduce(message.from, message.number, next)? else {
                    return Ok(());
                };
                let body = introductions::answer(&introduction);
                // The node that is found there has to prove that it is the asker.
                let caller = tcp.connect(message.from, &address)?;
                caller.send(Class::Control, ViewNumber(0), introductions::PORT, message.number, &body)
            }
            Said::Answer(introduction) => {
                let link = self.links.lock().get(&message.from).cloned();
                if let Some(link) = link {
                    link.introduced(message.number, introduction);
                }
                Ok(())
            }
        }
    }
}

struct XdpPeer {
    channel: Arc<dyn Peer>,
    /// None where its words are reached by its agent alone, or are this node's own.
    link: Option<Arc<Link>>,
    pool: Pool,
}

impl Peer for XdpPeer {
    fn incarnation(&self) -> Incarnation {
        self.channel.incarnation()
    }

    fn open(&self, key: &RegionKey, deadline: Time) -> Result<SharedRemote> {
        let agent = self.channel.open(key, deadline)?;
        let Some(link) = self.link.clone() else { return Ok(agent) };
        link.met(agent.clone());
        let remote = XdpRemote { link, agent };
        try_key(&remote, &self.pool, deadline)?;
        Ok(Arc::new(remote))
    }

    fn send(&self, class: Class, view: ViewNumber, port: Port, number: u64, body: &[u8]) -> Result<()> {
        self.channel.send(class, view, port, number, body)
    }
}

struct XdpRemote {
    link: Arc<Link>,
    agent: SharedRemote,
}

impl Remote for XdpRemote {
    fn key(&self) -> &RegionKey {
        self.agent.key()
    }

    fn post(&self, batch: Batch, class: Class, deadline: Time) -> Pending<Completed> {
        match class {
            Class::Control => self.link.post(self.key(), batch, deadline),
            Class::Bulk => self.agent.post(batch, class, deadline),
        }
    }

    fn post_gathered(&self, batch: Batch, class: Class, deadline: Time) -> Pending<Completed> {
        match class {
            Class::Control => self.link.post_gathered(self.key(), batch, deadline),
            Class::Bulk => self.agent.post(batch, class, deadline),
        }
    }

    fn settle(&self, operation: OperationId, class: Class, deadline: Time) -> Pending<Settled> {
        match class {
            Class::Control => self.link.settle(operation, deadline),
            Class::Bulk => self.agent.settle(operation, class, deadline),
        }
    }
}
