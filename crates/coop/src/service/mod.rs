//! The pool at work in one node: a thread that drives the machine over a fabric, and the handle that clients' commands come by.
//!
//! ```text
//!   commands --> RequestTable --> PoolNode: Coop, partners --deeds--> host --> region, letters, reads
//!                                     ^                                           |
//!                                     +---- letters, completed reads, views ------+
//! ```
//!
//! A node has one region for all views of an incarnation: its table, and its objects behind it (rule K1). Others read it; nothing is written
//! but by its owner. What a node reads of itself takes no way over the fabric, and is looked at with the clock read again behind it.

mod config;
mod host;
mod metrics;
mod node;
mod reads;
mod region;
mod requests;
mod wire;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use thiserror::Error;
use verbena_cluster::{LeaseWord, View};
use verbena_fabric::Fabric;
use verbena_memcache::Limits;
use verbena_service::executor::{Admission, Driver as _, Executor};
use verbena_service::hosted::Hosted;
use verbena_terms::{BootClock, ViewNumber};

use crate::{Command, Object, Reply, SchemeName, Tally, Tenant, UNIT_BYTES, Usage};
pub use config::{DEFAULT_TENANT, PoolConfig, TenantConfig, check_tenant_name, clash_of};
use host::new as driver;
pub use metrics::{Counts, Metrics};
pub use node::Lender;
use requests::{Item, RequestTable};
pub use wire::{LETTER, Layout, Letter, LetterError, MAX_LETTER_BYTES, Said};

/// Commands that may wait in the executor's queue. One more is refused.
const COMMANDS: usize = 65_536;

/// A command did not get to the service: those before it do not get through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("too many commands for the pool are waiting")]
pub struct Overloaded;

/// Callback with the outcome of a command. Runs on the thread that drives the service; must not block.
pub type OnReply = Box<dyn FnOnce(Reply) + Send>;

/// What a node knows of the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Nodes that lend memory, in its view.
    pub members: usize,
    /// Bytes that this node lends.
    pub memory: u64,
    /// Bytes of it that objects take.
    pub used: u64,
    /// Objects in them.
    pub objects: usize,
    /// Keys whose home it is.
    pub entries: usize,
    /// The scheme that it goes by.
    pub scheme: SchemeName,
    /// What it counted.
    pub counts: Counts,
    /// What its machine counted in this life.
    pub tally: Tally,
}

/// A node's part in the pool. Cheap to clone; the thread ends when the last clone is gone.
///
/// A command is done before the call returns, on the caller's thread, where it needs no other node. If another thread is running the service, that one does
/// it.
#[derive(Clone)]
pub struct PoolService(Arc<Handle>);

struct Handle {
    executor: Executor<RequestTable>,
    admission: Arc<Admission>,
    metrics: Metrics,
    limits: Limits,
    memory: u64,
}

impl PoolService {
    /// Starts the thread. Nothing is served before [`life_begins`](Hosted::life_begins).
    ///
    /// # Errors
    /// If there can be no thread.
    pub fn start(config: &PoolConfig, metrics: Metrics) -> verbena_fabric::Result<PoolService> {
        let (settings, metrics) = (config.settings(), metrics.of_tenants(&config.tenants));
        let (limits, memory) = (settings.limits, u64::from(settings.units) * UNIT_BYTES as u64);
        let driver = driver(settings, wall, Arc::new(BootClock), metrics.clone());
        let admission = Arc::new(Admission::new(COMMANDS));
        let executor = Executor::start("pool", RequestTable::new(driver, admission.clone(), metrics.clone()))?;
        Ok(PoolService(Arc::new(Handle { executor, admission, metrics, limits, memory })))
    }

    /// A client's command. `told` hears what became of it, once; it may hear it before this returns.
    ///
    /// # Errors
    /// If too many wait.
    pub fn command(&self, command: Command, told: impl FnOnce(Reply) + Send + 'static) -> Result<(), Overloaded> {
        let id = self.0.admission.admit().ok_or(Overloaded)?;
        self.0.executor.submit(Item::Command { id, command, told: Box::new(told) });
        Ok(())
    }

    /// What clients may send.
    pub fn limits(&self) -> Limits {
        self.0.limits
    }

    /// How the node stands.
    pub fn standing(&self) -> Standing {
        let (counts, memory) = (self.0.metrics.counts(), self.0.memory);
        self.0.executor.with(|table| {
            let node = table.driver.machine();
            let scheme = node.scheme().name;
            let standing = Standing { members: node.members(), memory, scheme, counts, ..Standing::default() };
            node.coop().map_or(standing, |coop| Standing {
                used: memory - u64::from(coop.holder().free_units()) * UNIT_BYTES as u64,
                objects: coop.holder().len(),
                entries: coop.table().len(),
                tally: coop.tally(),
                ..standing
            })
        })
    }

    /// The nodes that lend memory, as this one knows them.
    pub fn lenders(&self) -> Vec<Lender> {
        self.0.executor.with(|table| table.driver.machine().lenders())
    }

    /// The keys that this tenant's clients at this node read most, the hottest first, at most so many.
    pub fn hottest(&self, tenant: Tenant, most: usize) -> Vec<(Vec<u8>, u64)> {
        self.0.executor.with(|table| table.driver.machine().coop().map_or(vec![], |coop| coop.hottest(tenant, most)))
    }

    /// What each tenant has of this node's memory that has had anything.
    pub fn usage(&self) -> Vec<Usage> {
        self.0
            .executor
            .with(|table| table.driver.machine().coop().map_or(vec![], |coop| coop.holder().usage().collect()))
    }

    /// Another scheme for all nodes, as they hear of it. False if the node has no memory yet.
    pub fn choose(&self, name: SchemeName) -> bool {
        self.0.executor.with(|table| table.driver.command(|node, _, _, _| node.choose(name)))
    }

    /// Objects of this tenant in this node's memory, in no order, at most so many.
    pub fn objects(&self, tenant: Tenant, most: usize) -> Vec<Object> {
        self.0.executor.with(|table| {
            table.driver.machine().coop().map_or(vec![], |coop| {
                let objects = coop.holder().objects().filter(|object| object.tenant == tenant);
                objects.take(most).collect()
            })
        })
    }
}

impl Hosted for PoolService {
    const NAME: &'static str = "pool";

    fn life_begins(&self, fabric: Arc<dyn Fabric>, lease: &Arc<LeaseWord>) -> verbena_fabric::Result<()> {
        self.0.executor.with(|table| table.driver.start_incarnation(fabric, lease))
    }

    fn life_ends(&self) {
        self.0.executor.with(|table| table.driver.end_incarnation());
    }

    fn lease_lost(&self) {
        self.0.executor.with(|table| table.driver.check_lease());
    }

    /// And when what the node gives up has arrived at its new homes, or did not in time (rule K7).
    fn view_learnt(&self, view: Arc<View>, prepared: impl FnOnce(ViewNumber) + Send + 'static) {
        self.0.executor.submit_to_thread(Item::View { view, prepared: Box::new(prepared) });
    }

    /// At once: nothing of the pool is open anywhere, and what a client waits for ends with its deadline.
    fn close(&self, _: Duration, closed: impl FnOnce(bool) + Send + 'static) {
        closed(true);
    }
}

/// Seconds of the Unix clock.
fn wall() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
