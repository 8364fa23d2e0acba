//! Locks at work in one node: a thread that drives the machine over a fabric, and the handle that programs' requests come by.
//!
//! The driver makes no decisions. It gives [`Locks`](crate::Locks) what arrives, and carries out its actions in order.

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
use verbena_service::hosted::Hosted;
use verbena_terms::{BootClock, ViewNumber};

use crate::listing::Cursor;
use crate::{Answer, Asker, LocksOptions, Name, ProtocolViolation, Request, RequestId};
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

/// Callback with a request's outcome, and with how often the node had lost all holds by then. Runs on the thread that
/// drives the service; must not block.
pub type OnAnswer = Box<dyn FnMut(Answer, u64) + Send>;
/// Callback for the moment when no request is open. Runs on the thread that drives the service; must not block.
type Closed = Box<dyn FnOnce() + Send>;
/// Callback with the result. Runs on the thread that drives the service; must not block.
pub type Done = Box<dyn FnOnce(Result<(), ProtocolViolation>) + Send>;

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
/// A request is done before the call returns, on the caller's thread. If another thread is running the service, that
/// thread does it.
#[derive(Clone)]
pub struct LockService(Arc<Handle>);

struct Handle {
    executor: Executor<RequestTable>,
    admission: Arc<Admission>,
    /// Whether a lock is kept for the client that has released it.
    keeps: Arc<AtomicBool>,
}

/// What callers submit to the executor.
enum Command {
    View { view: Arc<View>, prepared: Box<dyn FnOnce(ViewNumber) + Send> },
    Acquire { id: RequestId, asker: Asker, name: Name, request: Request, told: OnAnswer },
    Release { id: RequestId, is_asked_again: bool, done: Done },
    Settle,
    Downgrade { id: RequestId, done: Done },
    Forget(RequestId),
    List { after: Option<Cursor>, prefix: Vec<u8>, shown: Shown },
    Remove { name: Name, removed: removals::OnRemoved },
    Close { patience: Duration, closed: Closed },
}

impl LockService {
    /// Starts the thread. No lock is granted before [`life_begins`](Hosted::life_begins). `lapsed` is called on that
    /// thread each time when all holds of the node's clients are lost, before any other client can get one. Its
    /// argument counts these times. It must not block.
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

    /// A client wants a lock. `told` hears that it is granted or refused; after a grant that it was lost, if it is, and that it is
    /// shared after a downgrade; and nothing after that. It may hear it before this returns.
    ///
    /// # Errors
    /// If too many wait.
    pub fn acquire(&self, asker: Asker, name: Name, request: Request, told: OnAnswer) -> Result<RequestId, Overloaded> {
        let id = self.0.admission.admit().map(RequestId).ok_or(Overloaded)?;
        self.0.executor.submit(Command::Acquire { id, asker, name, request, told });
        Ok(id)
    }

    /// A client is done with a lock. `done` hears an error if it did not hold it, or not any more.
    pub fn release(&self, id: RequestId, done: Done) {
        self.0.executor.submit(Command::Release { id, is_asked_again: false, done });
    }

    /// Releases a lock whose client is expected to acquire it again within microseconds. The node keeps the lock until
    /// the next request of any client, or until [`settle`](Self::settle), which must be called soon. If that request is
    /// an exclusive one of the same client, the client goes on with the hold, with a token of its own and without a
    /// message. Where other clients of the node wait, one client has this for half a millisecond; where other nodes
    /// wait, all clients of the node together. Then it is the others' turn. `done` hears at once that the lock is
    /// released, and for other clients of the node it is.
    pub fn release_soon(&self, id: RequestId, done: Done) {
        self.0.executor.submit(Command::Release { id, is_asked_again: true, done });
    }

    /// Whether a lock is kept for the client that has released it.
    pub fn keeps(&self) -> bool {
        self.0.keeps.load(Ordering::Relaxed)
    }

    /// Releases the kept lock for all.
    pub fn settle(&self) {
        self.0.executor.submit(Command::Settle);
    }

    /// Turns an exclusive hold into a shared one, from the moment at which the client's answer says so.
    pub fn downgrade(&self, id: RequestId, done: Done) {
        self.0.executor.submit(Command::Downgrade { id, done });
    }

    /// A client does not want a lock any more, or has died: it is released, or not waited for.
    pub fn forget(&self, id: RequestId) {
        self.0.executor.submit(Command::Forget(id));
    }

    /// The holders and waiters of the locks whose names have this prefix, behind this cursor. `shown` gets one page,
    /// within half a second or so.
    pub fn list(&self, after: Option<Cursor>, prefix: Vec<u8>, shown: Shown) {
        self.0.executor.submit(Command::List { after, prefix, shown });
    }

    /// Asks the lock's home to evict it, if it is not used. `removed` gets the outcome within two seconds or so.
    pub fn remove(&self, name: Name, removed: impl FnOnce(Removed) + Send + 'static) {
        self.0.executor.submit(Command::Remove { name, removed: Box::new(removed) });
    }
}

impl Hosted for LockService {
    const NAME: &'static str = "locks";

    fn life_begins(&self, fabric: Arc<dyn Fabric>, lease: &Arc<LeaseWord>) -> verbena_fabric::Result<()> {
        self.0.executor.with(|table| table.driver.start_incarnation(fabric, lease))
    }

    fn life_ends(&self) {
        self.0.executor.with(|table| table.driver.end_incarnation());
    }

    fn lease_lost(&self) {
        self.0.executor.with(|table| table.driver.check_lease());
    }

    fn view_learnt(&self, view: Arc<View>, prepared: impl FnOnce(ViewNumber) + Send + 'static) {
        self.0.executor.submit_to_thread(Command::View { view, prepared: Box::new(prepared) });
    }

    /// Waiting requests are refused too, and the last hold is waited for: a client that holds a lock may end what it does.
    fn close(&self, patience: Duration, closed: impl FnOnce(bool) + Send + 'static) {
        // What is held after that ends with the lease: nobody has to settle anything.
        let closed = Box::new(move || closed(true));
        self.0.executor.submit(Command::Close { patience, closed });
    }
}
