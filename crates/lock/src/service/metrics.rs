//! What the service counts.

use verbena_metrics::{Counter, Family, Gauge, Latency, Registry, RegistryError};

/// The service's counters, for a registry. Cheap to clone.
#[derive(Clone)]
pub struct Metrics {
    pub(super) requests: Requests,
    /// From asking to having.
    pub(super) wait: Latency,
    pub(super) held_on: Counter,
    pub(super) held: Gauge,
    pub(super) waiting: Gauge,
    pub(super) losses: Counter,
    pub(super) batches: Counter,
    pub(super) atomics: Counter,
    pub(super) frames: Counter,
    pub(super) messages: Counter,
    pub(super) home_locks: Gauge,
    pub(super) home_free: Gauge,
    pub(super) evictions: Counter,
    pub(super) home_awaited: Gauge,
    pub(super) unusable: Counter,
}

/// Requests by what became of them.
#[derive(Clone)]
pub(super) struct Requests {
    pub(super) granted: Counter,
    pub(super) not_free: Counter,
    pub(super) refused: Counter,
    pub(super) deadlock: Counter,
    pub(super) cancelled: Counter,
}

impl Metrics {
    /// Registered here.
    ///
    /// # Errors
    /// If they are registered already.
    pub fn new(registry: &Registry) -> Result<Metrics, RegistryError> {
        let help = "Requests for locks by what became of them.";
        let outcomes: Family<Counter, 1> = registry.family("verbena_lock_requests_total", help, ["outcome"], 8)?;
        let outcome = |name| outcomes.with([name]);
        let requests = Requests {
            granted: outcome("granted"),
            not_free: outcome("not-free"),
            refused: outcome("refused"),
            deadlock: outcome("deadlock"),
            cancelled: outcome("cancelled"),
        };
        let counter = |name: &str, help: &str| registry.counter(name, help);
        Ok(Metrics {
            requests,
            wait: registry.latency("verbena_lock_wait_seconds", "From asking for a lock to having it.")?,
            held_on: counter(
                "verbena_lock_held_on_total",
                "Locks granted again to the client that had just released them, without a message.",
            )?,
            held: registry.gauge("verbena_lock_held", "Locks that programs of this node hold.")?,
            waiting: registry.gauge("verbena_lock_waiting", "Requests of programs of this node that wait.")?,
            losses: counter("verbena_lock_losses_total", "How often all that programs of this node held was lost.")?,
            batches: counter("verbena_lock_batches_total", "Batches posted at the words of locks.")?,
            atomics: counter("verbena_lock_atomics_total", "Atomic operations in them.")?,
            frames: counter("verbena_lock_frames_total", "Messages about locks sent to other members.")?,
            messages: counter("verbena_lock_letters_total", "What was said in them, repetitions too.")?,
            home_locks: registry.gauge("verbena_lock_home_locks", "Locks that have words at this home.")?,
            home_free: registry.gauge("verbena_lock_home_free", "Words at this home that any lock may get.")?,
            evictions: counter(
                "verbena_lock_evictions_total",
                "Unused locks that were evicted from their words here.",
            )?,
            home_awaited: registry.gauge(
                "verbena_lock_home_awaited",
                "Members that have not said what they have of locks: until then this home grants none.",
            )?,
            unusable: counter("verbena_lock_unusable_total", "Messages about locks that could not be used.")?,
        })
    }
}

/// Counters without a registry.
impl Default for Metrics {
    fn default() -> Self {
        Metrics::new(&Registry::new()).expect("invariant: a new registry has no metric of that name")
    }
}
