//! One change of a target, as a comparison of two trees finds it.

/// One change of the target. Paths are relative to the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A directory is made.
    Make(Vec<u8>),
    /// A file is copied.
    Copy(Vec<u8>),
    /// A file is removed.
    Remove(Vec<u8>),
    /// A directory is removed, which is empty by then.
    RemoveDirectory(Vec<u8>),
}
