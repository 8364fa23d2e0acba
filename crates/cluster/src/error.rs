//! The errors of this crate. Each text says what to do about it.

use thiserror::Error;
use verbena_terms::{FormatError, Rank};

/// Why a block, a record or a setting was refused. Nothing is changed by what is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ClusterError {
    /// A block does not begin with the header that it should (rule F6).
    #[error("{what}: {source}")]
    Format {
        /// Which kind of block.
        what: &'static str,
        /// What was expected and what was found.
        source: FormatError,
    },
    /// The header is right and what follows is not.
    #[error("{what}: {problem}")]
    Malformed {
        /// Which kind of block.
        what: &'static str,
        /// What is wrong in it.
        problem: String,
    },
    /// A durable record is not what was written.
    #[error(
        "{what}: checksum {found:016x} where {expected:016x} was written; restore the file from a copy of this node's own"
    )]
    Checksum {
        /// Which record.
        what: &'static str,
        /// What the record says.
        expected: u64,
        /// What its bytes give.
        found: u64,
    },
    /// The state directory is another node's.
    #[error(
        "the start record is of rank {found}, this node has rank {expected}: give each node a state directory of its own"
    )]
    OthersState {
        /// This node.
        expected: Rank,
        /// The rank that owns the record.
        found: Rank,
    },
    /// A node started 2^32 times.
    #[error("rank {rank} has used up its start numbers: give the node a new line in cluster.members")]
    StartsUsedUp {
        /// Which node.
        rank: Rank,
    },
    /// A value of the configuration cannot be taken.
    #[error("cluster.{key}: {problem}")]
    Setting {
        /// The key below `cluster`.
        key: String,
        /// What is wrong with it.
        problem: String,
    },
}
