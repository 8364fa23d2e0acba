//! The way to one target: a socket, the ledger of what goes over it, and how it is served. What is decided is in [`Ledger`].
//!
//! The poster sends, and takes what has come: where the answer is there when sending returns, as between namespaces of
//! one machine, nothing else is woken. Only what is not answered yet is left to the [`Clerk`].

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use socket2::SockRef;
use verbena_terms::{BootClock, Clock, Incarnation, Time, ViewNumber};

use super::clerk::Clerk;
use super::introductions::{self, Introduction};
use super::ledger::{Arrival, Counts, Ledger};
use super::wire::{FrameWriter, MOST_WORDS};
use crate::completion::{Gatherer, Pending};
use crate::ending::Endings;
use crate::error::{Error, Result};
use crate::lookout::Lookout;
use crate::message::Class;
use crate::operation::{Batch, Completed, OperationId, Settled};
use crate::provider::{Address, Peer};
use crate::region::{RegionKey, SharedRemote};
use crate::tcp::mark;

/// Without an introduction for this long, the caller asks again.
const ASK_AGAIN: Duration = Duration::from_millis(50);

pub(super) struct Link {
    /// Among those of its clerk.
    pub(super) number: u64,
    socket: UdpSocket,
    ways: Ways,
    clerk: Arc<Clerk>,
    side: Mutex<Side>,
}

/// Where a link goes, and where answers to its requests to be introduced come.
pub(super) struct Ways {
    /// An address of this machine, of the interface that frames leave by.
    pub(super) from: SocketAddr,
    /// The target's.
    pub(super) to: SocketAddr,
    /// The target's channel for messages.
    pub(super) channel: Arc<dyn Peer>,
    /// This node's.
    pub(super) answers: Address,
}

struct Side {
    ledger: Ledger,
    frame: FrameWriter,
    bytes: Vec<u8>,
    /// One byte longer than what an answer may be, so that what is longer is seen to be.
    arrived: [u8; 8 * MOST_WORDS + 1],
    /// Number of the newest request to be introduced, and when it is sent again.
    asked: (u64, Time),
    /// Whether the clerk looks after it.
    is_left: bool,
    lookout: Lookout,
}

impl Link {
    /// To this target. Nothing is sent before something is posted.
    pub(super) fn new(target: Incarnation, ways: Ways, clerk: Arc<Clerk>) -> Result<Arc<Self>> {
        let Ways { from, to, .. } = ways;
        let named = |error: std::io::Error| Error::System { what: "make a socket", reason: format!("{from}: {error}") };
        let socket = UdpSocket::bind(SocketAddr::new(from.ip(), 0)).map_err(named)?;
        socket.connect(to).map_err(named)?;
        socket.set_nonblocking(true).map_err(named)?;
        mark(&SockRef::from(&socket), from, Class::Control);
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(|error| Error::system("random bytes", error))?;
        // A host that would falsely report this caller as unknown has to guess a serial.
        let first_serial = 1 + (u64::from_ne_bytes(random) >> 16);
        let side = Side {
            ledger: Ledger::new(target, first_serial),
            frame: FrameWriter::default(),
            bytes: Vec::new(),
            arrived: [0; _],
            asked: (1, Time::ZERO),
            is_left: false,
            lookout: Lookout::default(),
        };
        let link = Arc::new(Link { number: clerk.number(), socket, ways, clerk, side: Mutex::new(side) });
        link.clerk.meet(&link)?;
        Ok(link)
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(super) fn post(self: &Arc<Self>, key: &RegionKey, batch: Batch, deadline: Time) -> Pending<Completed> {
        self.with(|ledger, now| ledger.post(now, key, batch, deadline))
    }

    /// Posts what is sent with others, when the waiter says so.
    pub(super) fn post_gathered(self: &Arc<Self>, key: &RegionKey, batch: Batch, deadline: Time) -> Pending<Completed> {
        let mut side = self.side.lock();
        let now = BootClock.now();
        if side.ledger.is_idle() {
            side.lookout.heard(now);
        }
        side.ledger.post(now, key, batch, deadline).gathered_by(self.clone())
    }

    pub(super) fn settle(self: &Arc<Self>, id: OperationId, deadline: Time) -> Pending<Settled> {
        self.with(|ledger, now| ledger.settle(now, id, deadline))
    }

    /// The target has answered a request to be introduced.
    pub(super) fn introduced(self: &Arc<Self>, number: u64, introduction: Introduction) {
        let mut side = self.side.lock();
        // An earlier request was answered by a window that a later one has replaced.
        if number == side.asked.0 {
            side.ledger.introduced(introduction.caller, introduction.key);
        }
        drop(side);
        self.with(|_, _| ());
    }

    /// A region of the target was opened through its agent.
    pub(super) fn met(&self, agent: SharedRemote) {
        self.side.lock().lookout.met(agent);
    }

    /// Ends everything that waits or is under way.
    pub(super) fn close(&self) {
        let mut endings = Endings::default();
        let mut side = self.side.lock();
        side.ledger.close(&mut endings);
        let _agent = side.lookout.leave();
        drop(side);
        endings.hand_over();
    }

    pub(super) fn counts(&self) -> Counts {
        self.side.lock().ledger.counts()
    }

    /// What has come and what is due. When to look again, at the latest; `None` when nothing is waited for.
    pub(super) fn serve(&self) -> Option<Time> {
        let mut endings = Endings::default();
        let mut side = self.side.lock();
        let now = BootClock.now();
        if side.take(&self.socket, &mut endings) {
            side.lookout.heard(now);
        }
        let look = side.look_for_target(now, &mut endings);
        side.ledger.expire(now, &mut endings);
        self.send(&mut side, now, &mut endings);
        let asks = if side.ledger.is_introduced() { Time::FAR } else { side.asked.1 };
        let next = (!side.ledger.is_idle()).then(|| side.ledger.armed().min(asks).min(look));
        side.is_left = next.is_some();
        drop(side);
        endings.hand_over();
        next
    }

    fn with<T>(self: &Arc<Self>, act: impl FnOnce(&mut Ledger, Time) -> T) -> T {
        let mut endings = Endings::default();
        let mut side = self.side.lock();
        let now = BootClock.now();
        if side.ledger.is_idle() {
            side.lookout.heard(now);
        }
        let outcome = act(&mut side.ledger, now);
        self.send(&mut side, now, &mut endings);
        let waits = !side.ledger.is_idle();
        let was_left = std::mem::replace(&mut side.is_left, waits);
        let until = side.ledger.armed();
        drop(side);
        endings.hand_over();
        self.clerk.rota().tell(|| self.clone(), waits, was_left, until);
        outcome
    }

    /// Sends what is due, and takes what has come meanwhile.
    fn send(&self, side: &mut Side, now: Time, endings: &mut Endings) {
        loop {
            if !side.ledger.is_introduced() {
                self.ask(side, now);
                return;
            }
            let mut has_sent = false;
            while side.ledger.gather(now, &mut side.frame, &mut side.bytes, endings) {
                has_sent = true;
                // What is lost here is as if the network had lost it: it is sent again.
                let _ = self.socket.send(&side.bytes);
            }
            if !has_sent || !side.take(&self.socket, endings) {
                return;
            }
        }
    }

    /// Asks to be introduced, if something waits for it.
    fn ask(&self, side: &mut Side, now: Time) {
        if side.ledger.is_idle() || now < side.asked.1 {
            return;
        }
        // It keeps its number until it is answered: a target that is slow would otherwise never answer the newest one.
        side.asked.1 = now + ASK_AGAIN;
        let request = introductions::request(side.ledger.next_id(), &self.ways.answers);
        let sent = self.ways.channel.send(Class::Control, ViewNumber(0), introductions::PORT, side.asked.0, &request);
        if let Err(error) = sent {
            tracing::debug!(%error, "a request to be introduced could not be sent");
        }
    }
}

impl Gatherer for Link {
    fn send_gathered(self: Arc<Self>) {
        self.with(|_, _| ());
    }
}

impl Side {
    /// Finds out whether the target is gone, if it has been silent. When to look again.
    fn look_for_target(&mut self, now: Time, endings: &mut Endings) -> Time {
        match self.lookout.glance(now) {
            Ok(None) => {}
            Ok(Some(next)) => return next,
            Err(error) => self.ledger.gone(&error, endings),
        }
        self.lookout.look(now, !self.ledger.is_idle())
    }

    /// Takes what has come; whether anything had.
    fn take(&mut self, socket: &UdpSocket, endings: &mut Endings) -> bool {
        let mut has_come = false;
        // An error is that nothing is there, or that a port was closed when an earlier frame came: both will be seen by what does not come.
        while let Ok(bytes) = socket.recv(&mut self.arrived) {
            has_come = true;
            if self.ledger.answered(&self.arrived[..bytes], endings) == Arrival::Stranger {
                self.asked = (self.asked.0 + 1, Time::ZERO);
            }
        }
        has_come
    }
}
