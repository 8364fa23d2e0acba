//! What the service counts.

use std::time::Duration;

use verbena_memcache::Operation;
use verbena_memcache::semantics::Answer;
use verbena_metrics::{Counter, Family, Gauge, Latency, Registry, RegistryError};

use super::config::{DEFAULT_TENANT, TenantConfig};
use super::node::PoolNode;
use crate::{Command, Reply, Tenant, UNIT_BYTES, Usage};

/// Tenants of which metrics are kept apart.
const MOST_TENANTS: usize = 256;

/// The service's counters, for a registry. Cheap to clone.
#[derive(Clone)]
pub struct Metrics {
    commands: [[Counter; OUTCOMES.len()]; KINDS.len()],
    get: Latency,
    set: Latency,
    pub(super) letters: Counter,
    pub(super) unusable: Counter,
    pub(super) table_reads: Counter,
    pub(super) object_reads: Counter,
    objects: Gauge,
    entries: Gauge,
    free: Gauge,
    redundant: Gauge,
    members: Gauge,
    tenant_bytes: Family<Gauge, 1>,
    tenant_objects: Family<Gauge, 1>,
    tenant_evicted: Family<Gauge, 1>,
    tenants: Vec<(Tenant, OfTenant)>,
}

/// What is shown of one tenant.
#[derive(Clone)]
struct OfTenant {
    bytes: Gauge,
    objects: Gauge,
    evicted: Gauge,
}

/// What a command does, in the order of [`KINDS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Get,
    Set,
    Delete,
    Other,
}

impl Kind {
    pub(super) fn of(command: &Command) -> Kind {
        match command {
            Command::Execute { operation: Operation::Read(_), .. } => Kind::Get,
            Command::Execute { operation: Operation::Store(_) | Operation::TooLarge, .. } => Kind::Set,
            Command::Execute { operation: Operation::Remove(_), .. } => Kind::Delete,
            Command::Execute { .. } | Command::Flush(_) => Kind::Other,
        }
    }
}

const KINDS: [&str; 4] = ["get", "set", "delete", "other"];

/// What became of it, in the order of [`OUTCOMES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Hit,
    Miss,
    Done,
    Failed,
    Unknown,
}

const OUTCOMES: [&str; 5] = ["hit", "miss", "done", "failed", "unknown"];

/// What a node counted since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Commands that read.
    pub gets: u64,
    /// Those that found an item.
    pub hits: u64,
    /// Commands that store.
    pub sets: u64,
    /// Changes of which it is not known whether they were made.
    pub unknown: u64,
    /// Commands that were not executed.
    pub failed: u64,
    /// Reads of other nodes' objects.
    pub remote_reads: u64,
    /// Reads of other nodes' key tables.
    pub table_reads: u64,
    /// Messages to other nodes.
    pub letters: u64,
}

impl Metrics {
    /// Registered here.
    ///
    /// # Errors
    /// If they are registered already.
    pub fn new(registry: &Registry) -> Result<Metrics, RegistryError> {
        let counter = |name: &str, help: &str| registry.counter(name, help);
        let gauge = |name: &str, help: &str| registry.gauge(name, help);
        let help = "Commands of the pool's clients by what became of them.";
        let family: Family<Counter, 2> =
            registry.family("verbena_coop_commands_total", help, ["operation", "outcome"], 20)?;
        let of_tenants = |name: &str, help: &str| registry.family::<Gauge, 1>(name, help, ["tenant"], MOST_TENANTS);
        Ok(Metrics {
            tenant_bytes: of_tenants("verbena_coop_tenant_bytes", "Memory of this node that a tenant's objects take.")?,
            tenant_objects: of_tenants("verbena_coop_tenant_objects", "A tenant's objects in this node's memory.")?,
            tenant_evicted: of_tenants(
                "verbena_coop_tenant_evicted",
                "A tenant's objects that left this node's memory for want of room, since it joined.",
            )?,
            tenants: vec![],
            commands: KINDS.map(|kind| OUTCOMES.map(|outcome| family.with([kind, outcome]))),
            get: registry.latency("verbena_coop_get_seconds", "From a read's arrival to its answer.")?,
            set: registry.latency("verbena_coop_set_seconds", "From a storage command's arrival to its answer.")?,
            letters: counter("verbena_coop_letters_total", "Messages about the pool sent to other members.")?,
            unusable: counter("verbena_coop_unusable_total", "Messages about the pool that could not be used.")?,
            table_reads: counter("verbena_coop_table_reads_total", "Reads of other nodes' key tables.")?,
            object_reads: counter("verbena_coop_object_reads_total", "Reads of objects in other nodes' memory.")?,
            objects: gauge("verbena_coop_objects", "Objects in this node's memory.")?,
            entries: gauge("verbena_coop_entries", "Keys whose home this node is.")?,
            free: gauge("verbena_coop_free_bytes", "Memory that the node lends and that is free.")?,
            redundant: gauge("verbena_coop_copies_bytes", "Memory of objects that other nodes hold too.")?,
            members: gauge("verbena_coop_members", "Nodes that lend memory.")?,
        })
    }

    /// The same, with those of these tenants, and of clients of none.
    pub(super) fn of_tenants(mut self, tenants: &[TenantConfig]) -> Metrics {
        let configured = tenants.iter().map(|tenant| (tenant.tenant(), tenant.name.as_str()));
        self.tenants = std::iter::once((Tenant::DEFAULT, DEFAULT_TENANT))
            .chain(configured)
            .map(|(tenant, name)| {
                let [bytes, objects, evicted] =
                    [&self.tenant_bytes, &self.tenant_objects, &self.tenant_evicted].map(|family| family.with([name]));
                (tenant, OfTenant { bytes, objects, evicted })
            })
            .collect();
        self
    }

    pub(super) fn show(&self, node: &PoolNode) {
        self.members.set(node.members() as i64);
        let Some(coop) = node.coop() else { return };
        let bytes = |units: u32| i64::from(units) * UNIT_BYTES as i64;
        for Usage { tenant, units, objects, evicted } in coop.holder().usage() {
            if let Some((_, shown)) = self.tenants.iter().find(|(of, _)| *of == tenant) {
                shown.bytes.set(bytes(units));
                shown.objects.set(objects.into());
                shown.evicted.set(i64::try_from(evicted).unwrap_or(i64::MAX));
            }
        }
        self.objects.set(coop.holder().len() as i64);
        self.entries.set(coop.table().len() as i64);
        self.free.set(bytes(coop.holder().free_units()));
        self.redundant.set(bytes(coop.holder().redundant_units()));
    }

    /// A command was answered, after so long.
    pub(super) fn ended(&self, kind: Kind, after: Duration, reply: &Reply) {
        match kind {
            Kind::Get => self.get.record(after),
            Kind::Set => self.set.record(after),
            Kind::Delete | Kind::Other => {}
        }
        let outcome = match reply {
            Reply::Answer(Answer::Hit(_), _) => Outcome::Hit,
            Reply::Answer(Answer::Miss, _) => Outcome::Miss,
            Reply::Answer(..) | Reply::Flushed => Outcome::Done,
            Reply::Failed(_) => Outcome::Failed,
            Reply::Unknown => Outcome::Unknown,
        };
        self.commands[kind as usize][outcome as usize].increment();
    }

    /// All together.
    pub(super) fn counts(&self) -> Counts {
        let all = |kind: Kind| self.commands[kind as usize].iter().map(Counter::value).sum();
        let each = |outcome: Outcome| self.commands.iter().map(|of| of[outcome as usize].value()).sum();
        Counts {
            gets: all(Kind::Get),
            hits: self.commands[Kind::Get as usize][Outcome::Hit as usize].value(),
            sets: all(Kind::Set),
            unknown: each(Outcome::Unknown),
            failed: each(Outcome::Failed),
            remote_reads: self.object_reads.value(),
            table_reads: self.table_reads.value(),
            letters: self.letters.value(),
        }
    }
}

/// Counters without a registry.
impl Default for Metrics {
    fn default() -> Self {
        Metrics::new(&Registry::new()).expect("invariant: a new registry has no metric of that name")
    }
}
