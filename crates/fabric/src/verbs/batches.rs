//! What a batch is to an adapter: where it goes, what of it is refused before, and how much of it goes together.

use smallvec::SmallVec;

use crate::ending::at_most;
use crate::error::{Error, Result};
use crate::memory::check;
use crate::operation::{Completed, Done, Operation};
use crate::pool::Pool;
use crate::region::{RegionKey, Rights};

/// Largest read and write, in bytes: what the pool has buffers for.
pub(super) const LARGEST_TRANSFER: usize = 1 << 20;

/// A region as the adapter knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The key that the adapter of the owner asks for.
    pub(super) remote_key: u32,
    /// Where the region begins in the owner's memory.
    pub(super) address: u64,
    /// How large it is, as its owner says.
    pub(super) bytes: u64,
}

/// What the caller's end refuses: the adapter's refusal would cost the connection.
pub(super) fn refusal(pool: &Pool, key: &RegionKey, place: Place, operation: &Operation) -> Result<()> {
    if operation.has_effect() && key.rights == Rights::Read {
        return Err(Error::Denied { target: key.owner, region: key.region });
    }
    let buffer = match operation {
        Operation::Read { into, .. } => Some(("a read", into)),
        Operation::Write { from, .. } => Some(("a write", from)),
        _ => None,
    };
    if let Some((what, buffer)) = buffer {
        at_most(what, buffer.len(), LARGEST_TRANSFER)?;
        if !pool.has_lent(buffer) {
            return Err(Error::ForeignBuffer);
        }
    }
    check(operation, place.bytes)
}

/// How many of them go together. A request behind a read or an atomic may overtake it, unless it reads too (IBA 10.8.3.3, Table 79), so what changes
/// something there is posted when that is complete (F1). Adapters have fences of their own; that of soft-RoCE stands still for ever where a packet was lost,
/// and batches that need one are few.
pub(super) fn unfenced(operations: &[Operation]) -> usize {
    let fetched = operations.iter().position(fetches).unwrap_or(operations.len());
    let behind = operations.iter().skip(fetched + 1).position(Operation::has_effect);
    behind.map_or(operations.len(), |behind| fetched + 1 + behind)
}

/// Whether it fetches something, which what stands behind it could overtake.
const fn fetches(operation: &Operation) -> bool {
    !matches!(operation, Operation::WriteWord { .. } | Operation::Write { .. })
}

/// How many change the region.
pub(super) fn effects(operations: &[Operation]) -> u64 {
    operations.iter().filter(|operation| operation.has_effect()).count() as u64
}

/// What a batch gives that was executed, `words` of them fetched.
pub(super) fn results(operations: SmallVec<[Operation; 4]>, words: &[u64]) -> Completed {
    let done = |(operation, word): (Operation, &u64)| match operation {
        Operation::Read { into: buffer, .. } | Operation::Write { from: buffer, .. } => Done::Buffer(buffer),
        _ => Done::Word(*word),
    };
    operations.into_iter().zip(words).map(done).collect()
}
