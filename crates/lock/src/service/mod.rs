//! Locks at work in one node: a thread that drives the machine over a fabric, and the handle that programs' requests come by.
//!
//! There is nothing to decide here. The driver gives [`Locks`](crate::Locks) what arrives, and does what it says, in order.

mod config;
mod driver;
mod life;
mod listings;
mod metrics;
mod posts;
#[cfg(feature = "testing")]
mod stepped;
mod thread;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use thiserror::Error;
use tokio::sync::mpsc;
use verbena_cluster::{LeaseWord, View};
use verbena_fabric::Fabric;
use verbena_terms::{BootClock, ViewNumber};

use crate::listing::Cursor;
use crate::{Answer, Asker, LocksOptions, Name, Request, RequestId, Strange};
pub use config::LocksConfig;
use driver::Driver;
pub use listings::{List, Shown};
pub use metrics::Metrics;
#[cfg(feature = "testing")]
pub use stepped::Stepped;

/// Requests that may wait for the thread. One more is refused.
const REQUESTS: usize = 8192;

/// Why a request did not get to the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refused {
    /// Its requests do not get through.
    #[error("{REQUESTS} requests for locks are waiting")]
    Overloaded,
    /// The service is stopping.
    #[error("the service of locks has stopped")]
    Stopped,
}

/// Is told what becomes of a request, and how often all that clients held had been lost by then; on the service's thread: must not block.
pub type Told = Box<dyn FnMut(Answer, u64) + Send>;
/// Is told that nothing is open, on the service's thread: must not block.
type Closed = Box<dyn FnOnce() + Send>;
/// Is told whether it was done, on the service's thread: must not block.
pub type Done = Box<dyn FnOnce(Result<(), Strange>) + Send>;

/// How the thread waits for what is to come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Attention {
    /// Anything is looked for without a pause, for half a millisecond after the last that came: for a machine with a core to spare.
    Everything,
    /// It sleeps until it is woken, by answers too.
    #[default]
    Woken,
}

/// A node's locks. Cheap to clone; the thread ends when the last clone is gone.
#[derive(Clone)]
pub struct LockService {
    shared: Arc<Shared>,
    commands: mpsc::UnboundedSender<Command>,
}

/// What the thread shares with whoever holds a [`LockService`].
#[derive(Default)]
struct Shared {
    requests: AtomicU64,
    /// Requests that wait for the thread.
    waiting: AtomicUsize,
}

enum Command {
    LifeBegins {
        fabric: Arc<dyn Fabric>,
        lease: Arc<LeaseWord>,
        reply: std::sync::mpsc::SyncSender<verbena_fabric::Result<()>>,
    },
    LifeEnds(std::sync::mpsc::SyncSender<()>),
    LeaseLost(std::sync::mpsc::SyncSender<()>),
    View {
        view: Arc<View>,
        prepared: Box<dyn FnOnce(ViewNumber) + Send>,
    },
    Acquire {
        id: RequestId,
        asker: Asker,
        name: Name,
        request: Request,
        told: Told,
    },
    Release {
        id: RequestId,
        done: Done,
    },
    Downgrade {
        id: RequestId,
        done: Done,
    },
    Forget(RequestId),
    List {
        after: Option<Cursor>,
        prefix: Vec<u8>,
        shown: Shown,
    },
    Opened(Box<life::Opened>),
    Close {
        patience: Duration,
        closed: Closed,
    },
}

impl LockService {
    /// Starts the thread. Nobody is granted anything before [`life_begins`](Self::life_begins). `lapsed` is called on that thread whenever all that clients
    /// hold is lost, before anybody else can get it, with how often that was: it must not block.
    ///
    /// # Errors
    /// If there can be no thread.
    pub fn start(
        options: LocksOptions,
        metrics: Metrics,
        lapsed: impl FnMut(u64) + Send + 'static,
    ) -> verbena_fabric::Result<LockService> {
        LockService::start_with(Attention::default(), options, metrics, lapsed)
    }

    /// The same, with a thread that waits in this way.
    ///
    /// # Errors
    /// If there can be no thread.
    pub fn start_with(
        attention: Attention,
        options: LocksOptions,
        metrics: Metrics,
        lapsed: impl FnMut(u64) + Send + 'static,
    ) -> verbena_fabric::Result<LockService> {
        let (commands, received) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared::default());
        let mut driver = Driver::new(options, Arc::new(BootClock), metrics.clone(), Box::new(lapsed));
        driver.attention = attention;
        thread::spawn(driver, shared.clone(), metrics, commands.downgrade(), received)?;
        Ok(LockService { shared, commands })
    }

    /// A life of this node begins on this fabric, as the incarnation that the fabric is (rule C1), and acts by this lease, the same
    /// in all lives. What clients held before is lost; who waits goes on waiting.
    ///
    /// # Errors
    /// If its port is taken, or the service has stopped.
    pub fn life_begins(&self, fabric: Arc<dyn Fabric>, lease: &Arc<LeaseWord>) -> verbena_fabric::Result<()> {
        let (reply, begun) = std::sync::mpsc::sync_channel(1);
        let stopped = |_| verbena_fabric::Error::Closed;
        self.tell(Command::LifeBegins { fabric, lease: lease.clone(), reply }).map_err(stopped)?;
        begun.recv().map_err(|_| verbena_fabric::Error::Closed)?
    }

    /// The life is over. Returns when its regions and its fabric are dropped. What clients held is lost.
    pub fn life_ends(&self) {
        let (reply, ended) = std::sync::mpsc::sync_channel(1);
        if self.tell(Command::LifeEnds(reply)).is_ok() {
            // A thread that has ended has dropped them too.
            let _ = ended.recv();
        }
    }

    /// The lease has run out, and the next one is not published yet. Returns when all that clients held is lost: the thread looks at the lease now
    /// and then, and might see the next one as if the last had been renewed in time.
    pub fn lease_lost(&self) {
        let (reply, lost) = std::sync::mpsc::sync_channel(1);
        if self.tell(Command::LeaseLost(reply)).is_ok() {
            // A thread that has ended has let go of everything.
            let _ = lost.recv();
        }
    }

    /// The cluster has a newer view. `prepared` is told when the node has ended what it did with locks in older ones (rule C3).
    ///
    /// # Errors
    /// If the service has stopped.
    pub fn view_learnt(
        &self,
        view: Arc<View>,
        prepared: impl FnOnce(ViewNumber) + Send + 'static,
    ) -> Result<(), Refused> {
        self.tell(Command::View { view, prepared: Box::new(prepared) })
    }

    /// A client wants a lock. `told` hears that it is granted or refused; after a grant that it was lost, if it is, and that it is
    /// shared after a downgrade; and nothing after that.
    ///
    /// # Errors
    /// If too many wait, or the service has stopped.
    pub fn acquire(&self, asker: Asker, name: Name, request: Request, told: Told) -> Result<RequestId, Refused> {
        if self.shared.waiting.fetch_add(1, Ordering::Relaxed) >= REQUESTS {
            self.shared.waiting.fetch_sub(1, Ordering::Relaxed);
            return Err(Refused::Overloaded);
        }
        let id = RequestId(self.shared.requests.fetch_add(1, Ordering::Relaxed) + 1);
        self.tell(Command::Acquire { id, asker, name, request, told })?;
        Ok(id)
    }

    /// A client is done with a lock. `done` hears an error if it did not hold it, or not any more.
    ///
    /// # Errors
    /// If the service has stopped.
    pub fn release(&self, id: RequestId, done: Done) -> Result<(), Refused> {
        self.tell(Command::Release { id, done })
    }

    /// Others may read with a client from the moment on at which it is told that it reads.
    ///
    /// # Errors
    /// If the service has stopped.
    pub fn downgrade(&self, id: RequestId, done: Done) -> Result<(), Refused> {
        self.tell(Command::Downgrade { id, done })
    }

    /// A client does not want a lock any more, or has died: it is released, or not waited for.
    pub fn forget(&self, id: RequestId) {
        // A service that has stopped has forgotten it.
        let _ = self.tell(Command::Forget(id));
    }

    /// Who has the locks whose names begin so, behind this place. `shown` hears of some of them, within half a second or so.
    ///
    /// # Errors
    /// If the service has stopped.
    pub fn list(&self, after: Option<Cursor>, prefix: Vec<u8>, shown: Shown) -> Result<(), Refused> {
        self.tell(Command::List { after, prefix, shown })
    }

    /// The node is about to leave: whoever waits is refused, and whoever asks. `closed` is called, on the service's thread, when nobody holds a lock any more, or
    /// after this time.
    ///
    /// # Errors
    /// If the service has stopped.
    pub fn close(&self, patience: Duration, closed: impl FnOnce() + Send + 'static) -> Result<(), Refused> {
        self.tell(Command::Close { patience, closed: Box::new(closed) })
    }

    /// Without a bound: what comes this way is as rare as views, or ends something that was counted when it was asked for.
    fn tell(&self, command: Command) -> Result<(), Refused> {
        self.commands.send(command).map_err(|_| Refused::Stopped)
    }
}
