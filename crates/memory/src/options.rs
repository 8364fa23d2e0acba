//! What a node offers, and what it allows.

use crate::Rules;

/// How a node takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryOptions {
    /// Bytes that it offers as a home.
    pub bytes: u64,
    /// Segments that may be in them.
    pub segments: u32,
    /// Bytes of them that one user may have, all slots counted.
    pub owner_bytes: u64,
    /// Bytes of copies that it may keep of others' segments.
    pub copies_bytes: u64,
    /// Which rules hold.
    pub rules: Rules,
}
