/// The longest key, in bytes: protocol.txt, "Keys".
pub(crate) const KEY_BYTES: usize = 250;
/// The longest opaque token, with its letter.
pub(crate) const OPAQUE_BYTES: usize = 32;

/// What a client may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest command line but for those that name many keys.
    pub line_bytes: usize,
    /// The longest line of `get`, `gets`, `gat` and `gats`.
    pub keys_bytes: usize,
    /// The longest value.
    pub value_bytes: usize,
}

impl Default for Limits {
    /// memcached's own, with room for 100,000 of the longest keys in one line.
    fn default() -> Self {
        Limits { line_bytes: 2048, keys_bytes: 32 << 20, value_bytes: 1 << 20 }
    }
}
