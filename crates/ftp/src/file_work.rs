//! Work on files that takes no data connection, as a machine asks for it, and what came of it.

use verbena_transfer::{Facts, VirtualPath};

/// Work on files that takes no data connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileWork {
    /// Whether a directory can be entered.
    Enter(VirtualPath),
    /// What is known of a file.
    Facts(VirtualPath),
    /// Whether something has the name.
    Exists(VirtualPath),
    /// Removes a file.
    Remove(VirtualPath),
    /// Removes a directory.
    RemoveDirectory(VirtualPath),
    /// Makes a directory.
    MakeDirectory(VirtualPath),
    /// Renames.
    Rename(VirtualPath, VirtualPath),
    /// Sets the time of modification, in seconds since 1970.
    SetModified(VirtualPath, i64),
    /// Sets permission bits.
    SetMode(VirtualPath, u32),
    /// A digest of the bytes from the first number to before the second; `u64::MAX` is the end.
    Hash(Digest, VirtualPath, u64, u64),
    /// The first entries of a directory, as lines of `LIST`.
    Lines(VirtualPath),
}

/// How bytes are hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Digest {
    /// SHA-256.
    Sha256,
    /// MD5: GridFTP clients know it. It proves nothing against an attacker.
    Md5,
}

/// What came of [`FileWork`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileAnswer {
    /// It is done.
    Done,
    /// Of `Facts`.
    Facts(Facts),
    /// Of `Hash`: hexadecimal digits, and the bytes that were hashed, the second not included.
    Hash(String, u64, u64),
    /// Of `Lines`.
    Lines(Vec<u8>),
}
