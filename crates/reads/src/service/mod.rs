//! The logs of reads of one node: the region of its relay, and those of the relays of other nodes that its proxy reads.
//!
//! [`Logs`](logs::Logs) is the machine: it asks relays for their keys, has their regions opened, and settles those that have left. The common runtime of services runs it
//! (`verbena_service`). A fill does not come near it: [`ReadLogs::begin`] and [`Watching::finish`] post from the thread of the request.
//!
//! **Which relays there are** is in the view: a relay's member has the role for it. A relay passes statements only when a view that has it is in effect
//! ([`Recorder::may_pass`]), so every proxy that may store pages knows of it.

mod header;
mod host;
mod logs;
mod recorder;
#[cfg(test)]
mod tests;
mod watching;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use verbena_cluster::{LeaseWord, View};
use verbena_fabric::Fabric;
use verbena_service::executor::{Executor, Service};
use verbena_terms::{Incarnation, ViewNumber};

use self::host::Running;
pub use self::recorder::Recorder;
use self::watching::Known;
pub use self::watching::Watching;
use crate::counts::Metrics;

/// That a relay runs in this process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RelaySettings {
    /// Pages are promised to be made of the database alone.
    pub is_complete: bool,
}

/// What the service is started from.
#[derive(Clone, Debug)]
pub struct Options {
    /// The relay of this process, if one runs.
    pub relay: Option<RelaySettings>,
    /// Under which key names are hashed.
    pub names: u64,
    /// How long a relay passes statements without a lease.
    pub patience: Duration,
    /// The nominal length of a lease.
    pub lease: Duration,
}

/// Says that this home has settled a departed incarnation (rule P6).
pub type Settles = Box<dyn Fn(Incarnation) + Send>;

/// A node's logs of reads. Cheap to clone; its thread ends with the last clone.
#[derive(Clone)]
pub struct ReadLogs(Arc<Parts>);

struct Parts {
    executor: Executor<Runner>,
    shared: Arc<Shared>,
}

/// What fills and the relay use beside the thread.
struct Shared {
    options: Options,
    recorder: Recorder,
    /// Known from the first incarnation on, and the same in all.
    lease: OnceLock<Arc<LeaseWord>>,
    known: ArcSwap<Known>,
    metrics: Metrics,
}

impl Shared {
    fn new(options: Options, metrics: Metrics) -> Arc<Shared> {
        let recorder = Recorder::new(metrics.recorded.clone(), options.patience);
        Arc::new(Shared { options, recorder, lease: OnceLock::new(), known: ArcSwap::default(), metrics })
    }
}

/// What other threads submit.
enum Command {
    /// A fill could not read this relay's log.
    Lost(Incarnation),
}

/// Runs the driver.
struct Runner {
    driver: Running,
}

impl Service for Runner {
    type Command = Command;
    type Driver = Running;

    fn driver(&mut self) -> &mut Running {
        &mut self.driver
    }

    fn command(&mut self, Command::Lost(owner): Command) {
        self.driver.command(|logs, _, now, out| logs.lost(owner, now, out));
    }

    fn deliver_answers(&mut self) {}

    fn idle(&mut self) {
        self.driver.idle();
    }
}

impl ReadLogs {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the system refuses one.
    pub fn start(options: Options, metrics: Metrics) -> verbena_fabric::Result<ReadLogs> {
        let shared = Shared::new(options, metrics);
        let executor = Executor::start("verbena-reads", Runner { driver: host::driver(shared.clone()) })?;
        Ok(ReadLogs(Arc::new(Parts { executor, shared })))
    }

    fn shared(&self) -> &Shared {
        &self.0.shared
    }

    /// By which the relay of this process records; none where none runs.
    pub fn recorder(&self) -> Option<Recorder> {
        self.shared().options.relay.as_ref().map(|_| self.shared().recorder.clone())
    }

    /// A request with this tag is about to be forwarded.
    pub async fn begin(&self, tag: u64) -> Watching {
        Watching::begin(self.clone(), tag).await
    }

    /// Whether a relay of another process is known at this moment.
    pub fn has_relays(&self) -> bool {
        !self.shared().known.load().logs.is_empty()
    }

    /// A relay's log could not be read: its key is asked for again.
    fn lost(&self, owner: Incarnation) {
        self.0.executor.submit(Command::Lost(owner));
    }

    /// An incarnation begins on this fabric, and acts by this lease, the same in all incarnations.
    ///
    /// # Errors
    /// If there is no memory for the log, or its port is taken.
    pub fn life_begins(&self, fabric: Arc<dyn Fabric>, lease: &Arc<LeaseWord>) -> verbena_fabric::Result<()> {
        self.shared().lease.get_or_init(|| lease.clone());
        self.0.executor.with(|runner| runner.driver.start_incarnation(fabric, lease))
    }

    /// A view was learnt. Its departed are settled by `settles`, some of them after a time.
    pub fn view_learnt(&self, view: &Arc<View>, settles: Settles) {
        self.0.executor.with(|runner| {
            runner.driver.host_mut().settles = Some(settles);
            runner.driver.enter_view(view);
        });
    }

    /// A view is in effect. A later one that is learnt has the relays of this one, or lists them.
    pub fn view_in_effect(&self, view: ViewNumber) {
        if self.0.executor.with(|runner| runner.driver.machine().is_in(view)) {
            self.shared().recorder.is_in_effect();
        }
    }

    /// The incarnation is over: nothing is held of it.
    pub fn life_ends(&self) {
        self.0.executor.with(|runner| runner.driver.end_incarnation());
    }
}
