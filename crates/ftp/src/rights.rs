//! What a user may do below the home.

use std::net::IpAddr;

/// Rights of a session. Listing is always allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// Download and hash files.
    pub read: bool,
    /// Upload and replace files, make directories, set times and modes.
    pub write: bool,
    /// Remove and rename.
    pub delete: bool,
}

impl Rights {
    /// Read alone: what an anonymous user has by default.
    pub const READ: Rights = Rights { read: true, write: false, delete: false };
    /// All.
    pub const ALL: Rights = Rights { read: true, write: true, delete: true };
}

/// What a login gives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Login {
    /// What the user may do.
    pub rights: Rights,
    /// Other hosts to which `PORT` and `EPRT` may send data (rule T14).
    pub fxp: Vec<IpAddr>,
    /// Whether uploads replace the whole file by a rename (rule T5). Classic clients cannot resume then.
    pub atomic_stores: bool,
    /// Bytes a second, over all connections of the user and both directions.
    pub rate: Option<u64>,
    /// Bytes that all files in the home may have.
    pub quota: Option<u64>,
    /// Control connections at a time.
    pub connections: Option<usize>,
}

impl Login {
    /// Whether anything is limited.
    pub(crate) fn is_limited(&self) -> bool {
        self.rate.is_some() || self.quota.is_some() || self.connections.is_some()
    }
}
