//! The section `[pool]` of the configuration file.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use verbena_memcache::Limits;
use verbena_terms::{Contradiction, Lapse, Size, section};

use super::wire::Layout;
use crate::place::{Place, UNIT_BYTES};
use crate::placement::SchemeName;
use crate::table::Table;
use crate::{Rules, Settings, Share, Tenant};

/// Bytes of memory for each bucket of a table at its largest: four entries, so one for each 128 bytes.
const BUCKET_FOR: u64 = 512;
/// Buckets of a table at first.
const FIRST_BUCKETS: u32 = 64;
/// The least memory that a node lends.
const LEAST: Size = Size(1 << 20);

section! {
    /// The cooperative cache: memory of nodes that is one cache for every memcached client.
    pub struct PoolConfig as "pool", checked by PoolConfig::check {
        /// Memory for objects that this node lends, in bytes; 0 lends none, and then the node has no part in the pool. `verbena pool` lends 64 MiB where this is not set. Beside it a
        /// node has a table of keys, of which it uses 20 to 50 bytes for each key whose home it is.
        pub memory: Size as "SIZE" = Size(0),
        /// How long a command waits for another node at the most. A change that was sent and not answered by then has an unknown outcome.
        pub patience: Lapse as "TIME" = Lapse::seconds(1),
        /// Whether what a node is home of is known to one other, which is its home when it dies: then a dead node costs what lay in its memory and nothing more. A change takes one more message
        /// each way.
        pub mirror: bool as "BOOL" = true,
        /// Where objects go: `adaptive`, or one of the schemes of the literature, `ac`, `bcc`, `ccwr`, `mtacc`, `hybcc` (docs/concepts/pool.md). A pool has one: that of its first node, and a node that joins
        /// goes by it, whatever is configured there, and says so. It can be changed while nodes run, for all of them at once, by `verbena pool scheme`.
        pub scheme: SchemeName as "NAME" = SchemeName::Adaptive,
        /// Whether the node lends memory and no more: it is no home of keys. Another node of the pool has to be one.
        pub passive: bool as "BOOL" = false,
        /// The largest value, in bytes. A set of a larger one is refused, and deletes what the key had.
        pub largest: Size as "SIZE" = Size(1 << 20),
        /// Tenants: clients with keys and a flush of their own. `name` (1 to 32 letters, digits, `-`, `_` and `.`) is all that is needed. Of this node's memory `guaranteed` is what no other tenant
        /// takes, `most` and `items` what it has at most: beyond that its own objects go. `connections` are its clients of this node at most; `uids` the users whose
        /// clients at the unix socket are its clients.
        pub tenants: Vec<TenantConfig> as "TENANTS" = Vec::new(),
    }
}

/// One of `pool.tenants`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantConfig {
    /// What it is called.
    pub name: String,
    /// Bytes of this node's memory that no other tenant takes.
    #[serde(default)]
    pub guaranteed: Size,
    /// Bytes of it that it has at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most: Option<Size>,
    /// Objects in it that it has at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items: Option<u32>,
    /// Connections of its clients to this node at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<usize>,
    /// Users whose clients at the unix socket are its clients.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uids: Vec<u32>,
}

/// What clients of no tenant are called.
pub const DEFAULT_TENANT: &str = "default";

/// Looks at a tenant's name.
///
/// # Errors
/// What it has to be.
pub fn check_tenant_name(name: &str) -> Result<(), String> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_good = (1..=32).contains(&name.len()) && name.bytes().all(is_allowed) && name != DEFAULT_TENANT;
    let problem =
        || format!("{name:?} is no tenant's name: 1 to 32 letters, digits, '-', '_' and '.', and not {DEFAULT_TENANT}");
    is_good.then_some(()).ok_or_else(problem)
}

/// What to do about two names that are one tenant to nodes, or would share a floor word.
pub fn clash_of(name: &str, other: &str) -> String {
    format!("nodes cannot tell {name} from {other}: call one of them something else")
}

impl TenantConfig {
    /// As the nodes know it.
    pub fn tenant(&self) -> Tenant {
        Tenant::named(&self.name)
    }

    fn share(&self) -> Share {
        Share {
            // What is guaranteed is not rounded away.
            guaranteed: units_of(Size(self.guaranteed.0.next_multiple_of(UNIT_BYTES as u64))),
            most: self.most.map_or(u32::MAX, units_of),
            objects: self.items.unwrap_or(u32::MAX),
        }
    }

    /// What is wrong with it, beside those before it.
    fn problem(&self, before: &[TenantConfig]) -> Option<(&'static str, String)> {
        let name = &self.name;
        if let Err(problem) = check_tenant_name(name) {
            return Some(("name", problem));
        }
        if let Some(other) = before.iter().find(|other| other.tenant().clashes_with(self.tenant())) {
            let problem = match &other.name == name {
                true => format!("two tenants are called {name}"),
                false => clash_of(name, &other.name),
            };
            return Some(("name", problem));
        }
        let user = |uid: &u32| before.iter().find(|other| other.uids.contains(uid)).map(|other| (*uid, &other.name));
        if let Some((uid, other)) = self.uids.iter().find_map(user) {
            return Some(("uids", format!("user {uid} is a client of tenant {other} already")));
        }
        if self.most.is_some_and(|most| most < self.guaranteed) {
            return Some(("most", "less than is guaranteed".into()));
        }
        (self.items == Some(0) || self.connections == Some(0) || self.most == Some(Size(0)))
            .then(|| ("name", format!("{name} could have nothing: leave out what is 0")))
    }
}

fn units_of(size: Size) -> u32 {
    u32::try_from(size.0 / UNIT_BYTES as u64).unwrap_or(u32::MAX)
}

impl PoolConfig {
    /// The most memory that one node can lend.
    pub const MOST_MEMORY: Size = Size(Place::MAX_OFFSET as u64 * UNIT_BYTES as u64);

    /// Whether the node has a part in the pool.
    pub fn is_on(&self) -> bool {
        self.memory.0 > 0
    }

    /// What clients may send.
    pub fn limits(&self) -> Limits {
        Limits { value_bytes: usize::try_from(self.largest.0).unwrap_or(usize::MAX), ..Limits::default() }
    }

    /// What the machine is started with.
    pub(super) fn settings(&self) -> Settings {
        let units = units_of(self.memory).min(Place::MAX_OFFSET);
        let buckets = u64::from(units) * UNIT_BYTES as u64 / BUCKET_FOR;
        let buckets = u32::try_from(buckets).unwrap_or(u32::MAX).clamp(FIRST_BUCKETS, 1 << 26).next_power_of_two();
        let patience: Duration = self.patience.0;
        Settings {
            units,
            buckets: (FIRST_BUCKETS, buckets),
            patience,
            limits: self.limits(),
            scheme: self.scheme,
            mirror: self.mirror,
            shares: self.tenants.iter().map(|tenant| (tenant.tenant(), tenant.share())).collect::<BTreeMap<_, _>>(),
            rules: Rules::ALL,
        }
    }

    fn check(&self) -> Vec<Contradiction> {
        let most = u64::from(Place::MAX_UNITS) * UNIT_BYTES as u64 - 1024;
        let small = (self.is_on() && self.memory.0 < LEAST.0)
            .then(|| Contradiction::new("memory", format!("at least {LEAST}, or 0 for none")));
        let large = (self.largest.0 > most)
            .then(|| Contradiction::new("largest", format!("an object has at most {}", Size(most))));
        let never =
            self.patience.0.is_zero().then(|| Contradiction::new("patience", "no other node answers in no time"));
        let guaranteed: u64 = self.tenants.iter().fold(0, |sum, tenant| sum.saturating_add(tenant.guaranteed.0));
        // The rest is for the buffer, and for what does not fit between objects.
        let part = self.memory.0 / 8 * 7;
        let promised = (self.is_on() && guaranteed > part).then(|| {
            let problem =
                format!("{} are guaranteed, of {} at most seven eighths can be", Size(guaranteed), self.memory);
            Contradiction::new("tenants", problem)
        });
        let tenants = self.tenants.iter().enumerate().filter_map(|(nth, tenant)| {
            let (key, problem) = tenant.problem(&self.tenants[..nth])?;
            Some(Contradiction::new(format!("tenants.{nth}.{key}"), problem))
        });
        small.into_iter().chain(large).chain(never).chain(promised).chain(tenants).collect()
    }
}

/// What is where in the region of a node with these settings.
pub(super) fn layout(settings: &Settings) -> Layout {
    // Objects begin at a page.
    let table_bytes = (8 * Table::words(settings.buckets.1) as u64).next_multiple_of(4096);
    Layout { table_bytes, units: settings.units }
}
