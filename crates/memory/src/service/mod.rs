//! Memory at work in one node: a thread that drives the machine over a fabric, and the handle that programs' requests come by.
//!
//! The driver makes no decisions. It gives [`Memory`](crate::Memory) what arrives, and carries out its actions in
//! order.

mod batches;
mod config;
mod driver;
mod metrics;
mod own;
mod region;
mod requests;
#[cfg(feature = "testing")]
mod stepped;

use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use verbena_cluster::{LeaseWord, View};
use verbena_fabric::Fabric;
use verbena_service::executor::{Admission, Driver as _, Executor};
use verbena_service::hosted::Hosted;
use verbena_terms::{BootClock, ViewNumber};

use crate::node::REQUESTS;
use crate::{Answer, MemoryOptions, RequestId, Wish};
pub use config::MemoryConfig;
pub use metrics::Metrics;
use own::Own;
pub use own::{Forgets, OwnMemory};
use requests::RequestTable;
#[cfg(feature = "testing")]
pub use stepped::{Look, Stepped};

/// A request did not get to the service: those before it do not get through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("too many requests for memory are waiting")]
pub struct Overloaded;

/// A request that names at least this many bytes of a value is done by the service's thread, because copying them would
/// delay the caller. A get of a whole value names none: most are small, and a detour by the thread takes longer than
/// they do.
const LARGE: u64 = 256 << 10;

/// Callback with the outcome of a request. Runs on the thread that drives the service; must not block.
pub type OnAnswer = Box<dyn FnOnce(Answer) + Send>;
/// Callback for the moment when nothing of some puts is in flight. Runs on the thread that drives the service; must not
/// block.
type Settled = Box<dyn FnOnce() + Send>;
/// Callback that learns whether all requests have ended. Runs on the thread that drives the service; must not block.
type Closed = Box<dyn FnOnce(bool) + Send>;

/// What callers submit to the executor.
enum Command {
    View { view: Arc<View>, prepared: Box<dyn FnOnce(ViewNumber) + Send> },
    Request { id: RequestId, wish: Wish, patience: Duration, told: OnAnswer },
    Settle { puts: Vec<RequestId>, settled: Settled },
    Close { patience: Duration, closed: Closed },
}

/// A node's memory. Cheap to clone; the thread ends when the last clone is gone.
///
/// A request is done before the call returns, on the caller's thread. If another thread is running the service, or the
/// request has many bytes to copy, that thread or the service's own does it.
#[derive(Clone)]
pub struct MemoryService(Arc<Handle>);

struct Handle {
    executor: Executor<RequestTable>,
    admission: Arc<Admission>,
    own: Arc<Own>,
}

impl MemoryService {
    /// Starts the thread. Nothing is served before [`life_begins`](Hosted::life_begins). `forgets` hears of [`Memory::forgets`](crate::Memory::forgets).
    ///
    /// # Errors
    /// If there can be no thread.
    pub fn start(options: MemoryOptions, metrics: Metrics, forgets: Forgets) -> verbena_fabric::Result<MemoryService> {
        let own = Own::new(forgets);
        let driver = driver::new(options, Arc::new(BootClock), metrics.clone(), own.clone());
        let admission = Arc::new(Admission::new(REQUESTS));
        let executor = Executor::start("memory", RequestTable::new(driver, admission.clone(), metrics))?;
        Ok(MemoryService(Arc::new(Handle { executor, admission, own })))
    }

    /// A program wants something, for so long. `told` hears what became of it, once; it may hear it before this returns.
    ///
    /// # Errors
    /// If too many wait.
    pub fn request(
        &self,
        wish: Wish,
        patience: Duration,
        told: impl FnOnce(Answer) + Send + 'static,
    ) -> Result<RequestId, Overloaded> {
        let id = self.0.admission.admit().map(RequestId).ok_or(Overloaded)?;
        let is_large = wish.bytes().is_some_and(|bytes| bytes >= LARGE);
        let command = Command::Request { id, wish, patience, told: Box::new(told) };
        if is_large {
            self.0.executor.submit_to_thread(command);
        } else {
            self.0.executor.submit(command);
        }
        Ok(id)
    }

    /// This node's own memory, for programs of its user to read.
    pub fn own_memory(&self) -> OwnMemory {
        OwnMemory(self.0.own.clone())
    }

    /// Waits for these puts, some of which may have no answer, or a doubtful one. `settled` runs on the thread that
    /// drives the service when nothing of any of them is in flight: then a lock under which they were made may pass to
    /// another client (rules M3, F5). It must not block.
    pub fn when_settled(&self, puts: Vec<RequestId>, settled: impl FnOnce() + Send + 'static) {
        self.0.executor.submit(Command::Settle { puts, settled: Box::new(settled) });
    }
}

impl Hosted for MemoryService {
    const NAME: &'static str = "memory";

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

    /// What is on its way at other homes' memory would land there while they copy it (rules C3, P6).
    fn close(&self, patience: Duration, closed: impl FnOnce(bool) + Send + 'static) {
        self.0.executor.submit_to_thread(Command::Close { patience, closed: Box::new(closed) });
    }
}
