//! The errors of a fabric. Every case says whether the operation can have been executed.

use thiserror::Error;
use verbena_terms::{FormatError, Incarnation, ViewNumber};

use crate::operation::OperationId;

/// What the operations of this crate return.
pub type Result<T> = std::result::Result<T, Error>;

/// Why something failed. After [`Error::Unknown`] operations with an effect may still be executed; after every other
/// case the element that failed and all that follow it in the batch were not executed and will not be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Error {
    /// The answer is missing: deadline, lost connection, lost frame, full window. Elements with an effect carry the
    /// identifiers `first..=last`; settle each (F2). A batch of reads alone carries none and may simply be retried.
    #[error("no answer from {target}: it is not known whether the operation was executed{}", ids(*.first, *.last))]
    Unknown {
        /// The owner of the memory.
        target: Incarnation,
        /// First identifier to settle, if the batch had an effect.
        first: Option<OperationId>,
        /// Last identifier to settle.
        last: Option<OperationId>,
    },
    /// The region was made anew or given up, or its owner is another incarnation now (F4).
    #[error("the key of region {region} at {target}, issued in {view}, is revoked: ask its owner for a new one")]
    Revoked {
        /// The owner of the memory.
        target: Incarnation,
        /// Which region.
        region: u32,
        /// The view in which the key was issued.
        view: ViewNumber,
    },
    /// The key does not allow this.
    #[error("the key of region {region} at {target} does not allow to change it")]
    Denied {
        /// The owner of the memory.
        target: Incarnation,
        /// Which region.
        region: u32,
    },
    /// Outside the region.
    #[error("bytes {at}..{at}+{length} are outside a region of {region_bytes} bytes")]
    OutOfBounds {
        /// First byte asked for.
        at: u64,
        /// Bytes asked for.
        length: u64,
        /// Bytes that there are.
        region_bytes: u64,
    },
    /// A word operation at an address that is not a multiple of 8.
    #[error("a word operation at byte {at}: it must be a multiple of 8")]
    Misaligned {
        /// The address.
        at: u64,
    },
    /// More than the provider can do at once.
    #[error("{what} of {asked}: at most {most} here")]
    TooLarge {
        /// What was too large: "a read", "a batch" ...
        what: &'static str,
        /// What was asked for.
        asked: u64,
        /// What there can be.
        most: u64,
    },
    /// The deadline had passed before anything was sent.
    #[error("the deadline had passed before the operation was sent")]
    Late,
    /// No node answers there, or the wrong incarnation does.
    #[error("{target} at {address} cannot be reached: {reason}")]
    Unreachable {
        /// The incarnation that was meant.
        target: Incarnation,
        /// Where.
        address: String,
        /// Why not.
        reason: String,
    },
    /// A bounded thing is full: nothing was sent, try again later.
    #[error("{what} is full ({most}): try again when something has completed")]
    Full {
        /// What is full.
        what: &'static str,
        /// Its limit.
        most: usize,
    },
    /// Identifiers are kept for a bounded window. An operation ended as unknown, and those posted since fill the
    /// window: it must be settled first.
    #[error("operation {oldest} at {target} must be settled before another is posted")]
    SettleFirst {
        /// The owner of the memory.
        target: Incarnation,
        /// The oldest operation that is not settled.
        oldest: OperationId,
    },
    /// The outcome is no longer kept: it was settled or answered long ago.
    #[error("the outcome of operation {operation} at {target} is no longer kept")]
    Forgotten {
        /// The owner of the memory.
        target: Incarnation,
        /// Which operation.
        operation: OperationId,
    },
    /// Bytes of another layout or version, or bytes that make no sense (F6).
    #[error("{from} sent something that cannot be read: {reason}")]
    Malformed {
        /// The sender, as far as is known.
        from: String,
        /// What is wrong, with the place.
        reason: String,
    },
    /// The processor's own atomics are not atomic against this fabric's (F3): post the operation instead.
    #[error("the owner must post its atomics on this fabric: they are not atomic against the processor's")]
    PostInstead,
    /// A buffer of another fabric's pool, where an adapter reaches only those of this one's.
    #[error("a buffer of another fabric's pool: this fabric's adapter does not reach it")]
    ForeignBuffer,
    /// The fabric was closed.
    #[error("the fabric is closed")]
    Closed,
    /// The fabric cannot be opened as asked for.
    #[error("{provider} cannot be used here: {reason}. {remedy}")]
    Unusable {
        /// Which provider.
        provider: &'static str,
        /// What is missing.
        reason: String,
        /// How to get it.
        remedy: String,
    },
    /// The operating system refused.
    #[error("{what}: {reason}")]
    System {
        /// What was attempted.
        what: &'static str,
        /// What the system said.
        reason: String,
    },
}

impl Error {
    /// Whether the operation can still be executed, or has been.
    pub const fn may_have_happened(&self) -> bool {
        matches!(self, Error::Unknown { first: Some(_), .. })
    }

    /// A refused system call.
    pub fn system(what: &'static str, reason: impl std::fmt::Display) -> Self {
        Error::System { what, reason: reason.to_string() }
    }

    /// A block in another layout.
    pub fn format(from: impl std::fmt::Display, reason: &FormatError) -> Self {
        Error::Malformed { from: from.to_string(), reason: reason.to_string() }
    }
}

fn ids(first: Option<OperationId>, last: Option<OperationId>) -> String {
    match (first, last) {
        (Some(first), Some(last)) => format!(" (settle {first} to {last})"),
        _ => String::new(),
    }
}
