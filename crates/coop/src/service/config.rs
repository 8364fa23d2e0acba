//! The section `[pool]` of the configuration file.

use std::time::Duration;

use verbena_memcache::Limits;
use verbena_terms::{Contradiction, Lapse, Size, section};

use super::wire::Layout;
use crate::place::{Place, UNIT_BYTES};
use crate::placement::SchemeName;
use crate::table::Table;
use crate::{Rules, Settings};

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
    }
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
        let units = u32::try_from(self.memory.0 / UNIT_BYTES as u64).unwrap_or(u32::MAX).min(Place::MAX_OFFSET);
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
        small.into_iter().chain(large).chain(never).collect()
    }
}

/// What is where in the region of a node with these settings.
pub(super) fn layout(settings: &Settings) -> Layout {
    // Objects begin at a page.
    let table_bytes = (8 * Table::words(settings.buckets.1) as u64).next_multiple_of(4096);
    Layout { table_bytes, units: settings.units }
}
