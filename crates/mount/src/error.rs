//! Why nothing was mounted. Every error is told before anything is.

use std::path::PathBuf;

use thiserror::Error;
use verbena_bank::{ListError, SecretError};

/// Why a mount was refused. Each names the place and what to do.
#[derive(Debug, Error)]
pub enum MountError {
    /// A path is not there, or cannot be looked at.
    #[error("{path}: {error}; {part} must be a directory that you can enter")]
    Path {
        /// The path.
        path: PathBuf,
        /// Which of the two it is.
        part: &'static str,
        /// What the system says.
        error: std::io::Error,
    },
    /// A path is no directory.
    #[error("{path} is no directory; {part} must be one")]
    NoDirectory {
        /// The path.
        path: PathBuf,
        /// Which of the two it is.
        part: &'static str,
    },
    /// One of the two directories is in the other, or they are one.
    #[error("{inner} is inside {outer}: the mount would read itself; choose a mount point outside")]
    Inside {
        /// The inner directory.
        inner: PathBuf,
        /// The outer one.
        outer: PathBuf,
    },
    /// The mount point has a mount already.
    #[error("{at} has a mount of kind {kind} already: unmount it first, or choose an empty directory")]
    Taken {
        /// The mount point.
        at: PathBuf,
        /// The kind of what is mounted there.
        kind: String,
    },
    /// The directory below is a mount of ours.
    #[error("{below} is a Verbena mount itself: mount what is below it, once")]
    Twice {
        /// The directory.
        below: PathBuf,
    },
    /// Only root may mount for all users.
    #[error("--allow-other needs root: each operation is done with the caller's user and groups")]
    AllowOther,
    /// Nothing is there to be encrypted.
    #[error("--encrypt seals blocks in the bank, and --bank none has no blocks: leave one of them out")]
    Encrypt,
    /// The mount's own memory has no room, or no bank behind it.
    #[error(
        "--near of {bytes} bytes: it is memory before a bank (not with --bank none) for at least eight blocks of {block} bytes, as in --near 64MiB"
    )]
    Near {
        /// Bytes that were asked for.
        bytes: u64,
        /// Bytes of a block.
        block: u32,
    },
    /// The list of daemons is wrong.
    #[error(transparent)]
    List(#[from] ListError),
    /// A bank in memory has no room for a block.
    #[error(
        "a bank of {bytes} bytes has no room for a block of {block}: write a larger size, as in --bank memory:64MiB"
    )]
    Memory {
        /// Bytes of the bank.
        bytes: u64,
        /// Bytes of a block.
        block: u32,
    },
    /// A bank in memory without a helper.
    #[error("a bank in memory needs the socket of a helper")]
    NoHelper,
    /// The secret cannot be read.
    #[error("--secret {path}: {error}; give a file with 64 hexadecimal digits, which `openssl rand -hex 32` prints")]
    SecretFile {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// Other users can read the secret.
    #[error("--secret {path}: other users can read it (mode {mode:o}): chmod 600 it")]
    SecretMode {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The secret is none.
    #[error("--secret {path}: {error}")]
    Secret {
        /// The file.
        path: PathBuf,
        /// Why.
        error: SecretError,
    },
    /// The system gives no secret.
    #[error(transparent)]
    NoSecret(SecretError),
    /// Another client of the volume has another secret.
    #[error(
        "bank daemon {daemon}: another client of volume {volume:?} has another secret; give all clients the same file, or this one another --volume"
    )]
    OtherSecret {
        /// The daemon.
        daemon: String,
        /// The volume.
        volume: String,
    },
    /// Another client of the volume lists the daemons otherwise.
    #[error(
        "bank daemon {daemon}: another client of volume {volume:?} has another list of daemons, order or placement, so they look for a block at different daemons; give all clients the same --bank"
    )]
    OtherList {
        /// The daemon.
        daemon: String,
        /// The volume.
        volume: String,
    },
    /// A daemon takes no block of this size.
    #[error("bank daemon {daemon} takes no item of {bytes} bytes: start it with `-I 2m`, or choose a smaller --block")]
    Block {
        /// The daemon.
        daemon: String,
        /// Bytes of a block.
        bytes: u32,
    },
    /// The kernel refuses.
    #[error(
        "mounting at {at}: {error}; FUSE needs /dev/fuse, and fusermount3 (package fuse3) where the user is not root"
    )]
    Fuse {
        /// The mount point.
        at: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// Threads or descriptors are out.
    #[error("starting a mount: {0}; raise the limits of processes and open files (ulimit -u, ulimit -n)")]
    System(#[from] std::io::Error),
}

/// Why a mount was not taken away, or not asked.
#[derive(Debug, Error)]
pub enum UmountError {
    /// Nothing of ours is mounted there.
    #[error("{at} is no Verbena mount: `grep verbena: /proc/self/mounts` lists them")]
    NotOurs {
        /// The path.
        at: PathBuf,
    },
    /// The mount has no bank.
    #[error("{at} is on a mount without a bank (--bank none): all that it reads comes from below")]
    NoBank {
        /// The path.
        at: PathBuf,
    },
    /// Another user mounted it.
    #[error("{at} is on a mount of another user: only the user who mounted it, and root, can purge it")]
    NotYours {
        /// The path.
        at: PathBuf,
    },
    /// The kernel refuses.
    #[error("unmounting {at}: {error}; programs may have files open there (fuser -vm {at}), or use --lazy")]
    Refused {
        /// The path.
        at: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// The path cannot be looked at, or the process that serves it does not answer.
    #[error("{}: {error}; {}", at.display(), remedy(error))]
    Silent {
        /// The path.
        at: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
}

/// What to do about a path that cannot be looked at. Where nothing has the name, the process of the mount has answered.
fn remedy(error: &std::io::Error) -> &'static str {
    use std::io::ErrorKind;
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => "name a file or directory on a mount, or the mount itself",
        ErrorKind::PermissionDenied => "this user cannot look at it: run it as the user who mounted it",
        _ => "if the process of the mount is gone, `verbena fs mount` at the same place replaces it",
    }
}
