//! Memory at work in one node: a thread that drives the machine over a fabric, and the handle that programs' requests come by.
//!
//! There is nothing to decide here. The driver gives [`Memory`](crate::Memory) what arrives, and does what it says, in order.

mod driver;
mod life;
mod posts;
#[cfg(feature = "testing")]
mod stepped;
mod thread;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use thiserror::Error;
use tokio::sync::mpsc;
use verbena_cluster::{LeaseWord, View};
use verbena_fabric::Fabric;
use verbena_terms::ViewNumber;

use crate::{Answer, MemoryOptions, RequestId, Wish};
#[cfg(feature = "testing")]
pub use stepped::Stepped;

/// Requests that may wait for the thread. One more is refused.
const REQUESTS: usize = 8192;

/// A request did not get to the service: those before it do not get through, or its thread has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("too many requests for memory are waiting")]
pub struct Overloaded;

/// Is told what became of a request, on the service's thread: must not block.
pub type Told = Box<dyn FnOnce(Answer) + Send>;
type Begun = Box<dyn FnOnce(verbena_fabric::Result<()>) + Send>;
type Done = Box<dyn FnOnce() + Send>;

/// What the thread is to do.
enum Command {
    Life { fabric: Arc<dyn Fabric>, lease: Arc<LeaseWord>, begun: Begun },
    LifeEnds(Done),
    View { view: Arc<View>, prepared: Box<dyn FnOnce(ViewNumber) + Send> },
    Request { id: RequestId, wish: Wish, patience: Duration, told: Told },
}

/// A node's memory. Cheap to clone; the thread ends when the last clone is gone.
#[derive(Clone)]
pub struct MemoryService {
    commands: mpsc::Sender<Command>,
    requests: Arc<AtomicU64>,
}

impl MemoryService {
    /// Starts the thread. Nothing is served before [`life_begins`](Self::life_begins).
    ///
    /// # Errors
    /// If there can be no thread.
    pub fn start(options: MemoryOptions) -> verbena_fabric::Result<MemoryService> {
        let (commands, waiting) = mpsc::channel(REQUESTS);
        thread::spawn(options, waiting)?;
        Ok(MemoryService { commands, requests: Arc::default() })
    }

    /// A life of this node begins on this fabric, as the incarnation that the fabric is (rule C1), and acts by this lease. Blocks until it has.
    ///
    /// # Errors
    /// If its port is taken.
    pub fn life_begins(&self, fabric: Arc<dyn Fabric>, lease: &Arc<LeaseWord>) -> verbena_fabric::Result<()> {
        let (tell, told) = std::sync::mpsc::channel();
        let begun = Box::new(move |result| drop(tell.send(result)));
        let command = Command::Life { fabric, lease: lease.clone(), begun };
        self.commands.blocking_send(command).map_err(|_| verbena_fabric::Error::Closed)?;
        told.recv().unwrap_or(Err(verbena_fabric::Error::Closed))
    }

    /// The life is over. Blocks until its regions and its fabric are dropped.
    pub fn life_ends(&self) {
        let (tell, told) = std::sync::mpsc::channel();
        // An error means that the thread has ended, and its life with it.
        let done = Box::new(move || tell.send(()).unwrap_or_default());
        if self.commands.blocking_send(Command::LifeEnds(done)).is_ok() {
            told.recv().unwrap_or_default();
        }
    }

    /// The cluster has a newer view. `prepared` is told, on the service's thread, when the node has ended what it did in older ones (rule C3).
    ///
    /// # Errors
    /// If too much waits for the thread.
    pub fn view_learnt(
        &self,
        view: Arc<View>,
        prepared: impl FnOnce(ViewNumber) + Send + 'static,
    ) -> Result<(), Overloaded> {
        let prepared = Box::new(prepared);
        self.commands.try_send(Command::View { view, prepared }).map_err(|_| Overloaded)
    }

    /// A program wants something, for so long. `told` hears what became of it, once.
    ///
    /// # Errors
    /// If too many wait.
    pub fn request(
        &self,
        wish: Wish,
        patience: Duration,
        told: impl FnOnce(Answer) + Send + 'static,
    ) -> Result<RequestId, Overloaded> {
        let id = RequestId(self.requests.fetch_add(1, Ordering::Relaxed) + 1);
        let command = Command::Request { id, wish, patience, told: Box::new(told) };
        self.commands.try_send(command).map_err(|_| Overloaded)?;
        Ok(id)
    }
}
