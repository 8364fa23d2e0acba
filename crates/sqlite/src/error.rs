//! Why something was not done.

use std::cell::RefCell;

use rsqlite_vfs::{VfsError, VfsErrorCode};
use thiserror::Error;
use verbena_client::Failure;

/// Why there is no VFS.
#[derive(Debug, Error)]
pub enum Error {
    /// A block has a number of bytes that no page can have.
    #[error("blocks of {bytes} bytes: it is a power of two from 512 to 65536, as SQLite's pages have")]
    Block {
        /// What was asked for.
        bytes: u32,
    },
    /// SQLite does not accept it: the name is taken, or is not valid.
    #[error("SQLite does not take the VFS: {0}")]
    Register(#[from] rsqlite_vfs::RegisterVfsError),
}

thread_local! {
    static LAST: RefCell<Option<VfsError>> = const { RefCell::new(None) };
}

/// What the last call of SQLite that failed on this thread failed for, in a VFS of this crate: SQLite itself hands on a number only.
pub fn last_error() -> Option<String> {
    noted().map(|error| error.message().to_owned())
}

pub(crate) fn note(error: VfsError) {
    LAST.with_borrow_mut(|last| *last = Some(error));
}

pub(crate) fn noted() -> Option<VfsError> {
    LAST.with_borrow(Clone::clone)
}

/// The error that SQLite gets: `code`, unless the reason has a code of its own. Within a transaction SQLite rolls back
/// only for errors of input and output, and for a file system that is full.
pub(crate) fn failed(code: VfsErrorCode, doing: &str, error: &verbena_client::Error) -> VfsError {
    let code = match (error, code) {
        (verbena_client::Error::Memory { why: Failure::NoRoom, .. }, _) => VfsErrorCode::Full,
        (verbena_client::Error::Memory { why: Failure::NotYours, .. }, VfsErrorCode::CantOpen) => {
            VfsErrorCode::Permission
        }
        _ => code,
    };
    VfsError::new(code, format!("{doing}: {error}").into())
}

/// Whether there is no such segment.
pub(crate) fn is_missing(error: &verbena_client::Error) -> bool {
    matches!(error, verbena_client::Error::Memory { why: Failure::NotFound | Failure::Released, .. })
}

/// Whether there is one already.
pub(crate) fn is_there(error: &verbena_client::Error) -> bool {
    matches!(error, verbena_client::Error::Memory { why: Failure::Exists, .. })
}

/// Whether a lock that was not taken or released for this reason is certainly not held, or the connection has ended.
pub(crate) fn is_settled(error: &verbena_client::Error) -> bool {
    use verbena_client::Error::{Deadlock, Lost, NotFree, NotInTime, Refused};
    matches!(error, Lost | NotFree | NotInTime { .. } | Deadlock { .. } | Refused(_))
}
