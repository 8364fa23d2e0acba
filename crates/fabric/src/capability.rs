//! What a provider can do, said truthfully: the only thing that code above may branch on.

use serde::Serialize;

/// What one opened fabric can do on this machine, now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Capabilities {
    /// The provider's name, for people: `doctor`, logs, figures. Never branched on.
    pub provider: &'static str,
    /// What executes a one-sided operation.
    pub executor: Executor,
    /// What executes batches that change the region. Where it differs from [`executor`](Self::executor), the latter
    /// only reads.
    pub changes: Executor,
    /// Whether the target's processor is left alone: a target that is stopped or busy still answers what its [`executor`](Self::executor) executes.
    pub target_cpu_free: bool,
    /// Against what the atomics are atomic (F3).
    pub atomic_scope: AtomicScope,
    /// Where the atomics come from.
    pub atomics: Atomics,
    /// Bytes that one `Read` can fetch.
    pub largest_read: u32,
    /// Bytes that one `Write` can store.
    pub largest_write: u32,
    /// Bytes that one message can carry.
    pub largest_message: u32,
    /// Bytes of the largest message that goes by the adapter, into a receive queue of the target. Larger ones, and all where it is 0, go by a socket.
    pub largest_by_adapter: u32,
    /// Round trips that a batch costs (F1).
    pub batch: BatchTrips,
    /// What is promised about order between batches.
    pub ordering: Ordering,
    /// Whether bytes of a `Read` or `Write` move without a copy in between.
    pub zero_copy: bool,
    /// Whether all memory of a region is the process's from the moment that it is registered. Where it is not, pages are taken when something is written to them, and can be
    /// [discarded](crate::Region::discard).
    pub pins_memory: bool,
    /// How the two service classes are kept apart.
    pub classes: Classes,
    /// Whether a posted operation is complete when the call returns.
    pub synchronous: bool,
    /// Whether peers can be on other machines.
    pub crosses_machines: bool,
}

/// What executes a one-sided operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Executor {
    /// The caller, on memory that it has mapped.
    Memory,
    /// The target's kernel, in its receive path.
    Kernel,
    /// The target's adapter.
    Hardware,
    /// A thread of the target process.
    Agent,
    /// The simulator.
    Simulator,
}

/// Against what a fabric atomic is atomic (F3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AtomicScope {
    /// Other fabric atomics on the region, and the processors' own atomics on the same memory.
    Processor,
    /// Other fabric atomics on the region only: where owner and peers both change a word, the owner uses the fabric too.
    Fabric,
}

/// Where atomics come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Atomics {
    /// The executor has them.
    Native,
    /// The executor lacks them (iWARP); they are executed at the home by message.
    Emulated,
}

/// Round trips of one batch. A batch is in order everywhere and atomic nowhere (F1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BatchTrips {
    /// None: the caller executes.
    Zero,
    /// One, whatever is in the batch.
    One,
    /// One for each frame that it fills, and one more for each read that is followed by a write or an atomic.
    OneAFrame,
    /// One, and one more for each read or atomic that is followed by a write or an atomic.
    OneAndFences,
}

/// Order between the batches that one caller posts to one region in one service class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ordering {
    /// Executed in the order they were posted, as long as none ended as unknown.
    Posted,
    /// No promise: wait for one before posting what must come after it.
    None,
}

/// How [`Class::Control`](crate::Class::Control) is kept from waiting behind [`Class::Bulk`](crate::Class::Bulk).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Classes {
    /// Channels of their own, end to end.
    Separate,
    /// Of one-sided operations the executor takes those of `Control` alone; those of `Bulk`, and all messages, go by channels to an agent of
    /// the target, which has to run for them.
    BulkByAgent,
    /// No operation can wait behind another: operations do not queue.
    Unqueued,
}
