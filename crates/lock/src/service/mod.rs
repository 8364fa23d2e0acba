//! Locks at work in one node: a thread that drives the machine over a fabric, and the handle that programs' requests come by.
//!
//! There is nothing to decide here. The driver gives [`Locks`](crate::Locks) what arrives, and does what it says, in order.

mod batches;
mod config;
mod driver;
mod listings;
mod metrics;
mod removals;
mod requests;
#[cfg(feature = "testing")]
mod stepped;
mod words;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use thiserror::Error;
use verbena_cluster::{LeaseWord, View};
use verbena_fabric::Fabric;
use verbena_service::executor::{Admission, Driver as _, Executor};
use verbena_terms::{BootClock, ViewNumber};

use crate::listing::Cursor;
use crate::{Answer, Asker, LocksOptions, Name, Request, RequestId, Strange};
pub use config::LocksConfig;
pub use listings::{List, Shown};
pub use metrics::Metrics;
pub use removals::Removed;
use requests::{REQUESTS, RequestTable};
#[cfg(feature = "testing")]
pub use stepped::Stepped;

/// A request did not get to the service: those before it do not get through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("too many requests for locks are waiting")]
pub struct Overloaded;

/// Is told what becomes of a request, and how often all that clients held had been lost by then; by whoever does it: must not block.
pub type Told = Box<dyn FnMut(Answer, u64) + Send>;
/// Is told that nothing is open, by whoever does it: must not block.
type Closed = Box<dyn FnOnce() + Send>;
/// Is told whether it was done, by whoever does it: must not block.
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
///
/// What is asked is done before the call returns, on the caller's thread, unless somebody else is at it: then by that one.
#[derive(Clone)]
pub struct LockService(Arc<Handle>);

struct Handle {
    executor: Executor<RequestTable>,
    admission: Arc<Admission>,
    /// A lock is kept for who has released it.
    keeps: Arc<AtomicBool>,
}

/// What callers submit to the executor.
enum Command {
    View { view: Arc<View>, prepared: Box<dyn FnOnce(ViewNumber) + Send> },
    Acquire { id: RequestId, asker: Asker, name: Name, request: Request, told: Told },
    Release { id: RequestId, is_asked_again: bool, done: Done },
    Settle,
    Downgrade { id: RequestId, done: Done },
    Forget(RequestId),
    List { after: Option<Cursor>, prefix: Vec<u8>, shown: Shown },
    Remove { name: Name, removed: removals::Told },
    Close { patience: Duration, closed: Closed },
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
        let driver = driver::new(options, Arc::new(BootClock), attention, metrics.clone(), Box::new(lapsed));
        let (admission, keeps) = (Arc::new(Admission::new(REQUESTS)), Arc::new(AtomicBool::new(false)));
        let table = RequestTable::new(driver, admission.clone(), keeps.clone(), metrics);
        let executor = Executor::start("locks", table)?;
        Ok(LockService(Arc::new(Handle { executor, admission, keeps })))
    }

    /// A life of this node begins on this fabric, as the incarnation that the fabric is (rule C1), and acts by this lease, the same
    /// in all lives. What clients held before is lost; who waits goes on waiting.
    ///
    /// # Errors
    /// If its port is taken.
    pub fn life_begins(&self, fabric: Arc<dyn Fabric>, lease: &Arc<LeaseWord>) -> verbena_fabric::Result<()> {
        self.0.executor.with(|table| table.driver.start_incarnation(fabric, lease))
    }

    /// The life is over. Returns when its regions and its fabric are dropped. What clients held is lost.
    pub fn life_ends(&self) {
        self.0.executor.with(|table| table.driver.end_incarnation());
    }

    /// The lease has run out, and the next one is not published yet. Returns when all that clients held is lost: the thread looks at the lease now
    /// and then, and might see the next one as if the last had been renewed in time.
    pub fn lease_lost(&self) {
        self.0.executor.with(|table| table.driver.check_lease());
    }

    /// The cluster has a newer view. `prepared` is told, on the service's thread, when the node has ended what it did with locks in older ones (rule C3).
    pub fn view_learnt(&self, view: Arc<View>, prepared: impl FnOnce(ViewNumber) + Send + 'static) {
        self.0.executor.submit_to_thread(Command::View { view, prepared: Box::new(prepared) });
    }

    /// A client wants a lock. `told` hears that it is granted or refused; after a grant that it was lost, if it is, and that it is
    /// shared after a downgrade; and nothing after that. It may hear it before this returns.
    ///
    /// # Errors
    /// If too many wait.
    pub fn acquire(&self, asker: Asker, name: Name, request: Request, told: Told) -> Result<RequestId, Overloaded> {
        let id = self.0.admission.admit().map(RequestId).ok_or(Overloaded)?;
        self.0.executor.submit(Command::Acquire { id, asker, name, request, told });
        Ok(id)
    }

    /// A client is done with a lock. `done` hears an error if it did not hold it, or not any more.
    pub fn release(&self, id: RequestId, done: Done) {
        self.0.executor.submit(Command::Release { id, is_asked_again: false, done });
    }

    /// The same, of a client that is expected to ask for the lock again within microseconds. Until the next request of anybody, or until [`settle`](Self::settle), which must be
    /// called soon, the node keeps the lock: if that request is the client's, which wants it alone, it holds it on, with a token of its own, without a word to anybody.
    /// Where others of the node wait a client has this for half a millisecond, and where other nodes wait all clients of the node together; then it is their turn. `done` hears at once that it is released, and for other clients of the node it is.
    pub fn release_soon(&self, id: RequestId, done: Done) {
        self.0.executor.submit(Command::Release { id, is_asked_again: true, done });
    }

    /// Whether a lock is kept for who has released it.
    pub fn keeps(&self) -> bool {
        self.0.keeps.load(Ordering::Relaxed)
    }

    /// What is kept is for everybody.
    pub fn settle(&self) {
        self.0.executor.submit(Command::Settle);
    }

    /// Others may read with a client from the moment on at which it is told that it reads.
    pub fn downgrade(&self, id: RequestId, done: Done) {
        self.0.executor.submit(Command::Downgrade { id, done });
    }

    /// A client does not want a lock any more, or has died: it is released, or not waited for.
    pub fn forget(&self, id: RequestId) {
        self.0.executor.submit(Command::Forget(id));
    }

    /// Who has the locks whose names begin so, behind this place. `shown` hears of some of them, within half a second or so.
    pub fn list(&self, after: Option<Cursor>, prefix: Vec<u8>, shown: Shown) {
        self.0.executor.submit(Command::List { after, prefix, shown });
    }

    /// This lock's home is to forget it, if nobody uses it. `removed` hears what became of that within two seconds or so.
    pub fn remove(&self, name: Name, removed: impl FnOnce(Removed) + Send + 'static) {
        self.0.executor.submit(Command::Remove { name, removed: Box::new(removed) });
    }

    /// The node is about to leave: whoever waits is refused, and whoever asks. `closed` is called when nobody holds a lock any more, or after this time.
    pub fn close(&self, patience: Duration, closed: impl FnOnce() + Send + 'static) {
        self.0.executor.submit(Command::Close { patience, closed: Box::new(closed) });
    }
}
