//! Why a transfer failed, and the answer that a client gets.

use verbena_transfer::FileError;

use crate::blocks::BlockError;

/// The code of the answer (RFC 959, section 5.4).
pub(crate) fn file_code(error: FileError) -> u16 {
    match error {
        FileError::Full | FileError::Quota => 452,
        FileError::Busy => 450,
        FileError::BadName => 553,
        FileError::BehindEnd | FileError::WholeOnly => 554,
        FileError::Cancelled => 426,
        FileError::System(_) => 451,
        _ => 550,
    }
}

/// Why a transfer ended before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransferError {
    /// The data connection was not made in time, or the client's port refused it.
    #[error("No data connection was made.")]
    NoConnection,
    /// The data connection broke.
    #[error("The data connection broke; the transfer is not complete.")]
    Broken,
    /// No byte moved for the time that is allowed.
    #[error("The data connection stood still; the transfer was given up.")]
    Stalled,
    /// Fewer bytes arrived than the client announced by `ALLO`.
    #[error("Fewer bytes arrived than ALLO announced; nothing was stored.")]
    Short,
    /// What came by MODE E is not what it has to be.
    #[error("{0}")]
    Block(#[from] BlockError),
    /// All data connections of MODE E have ended, and bytes are missing.
    #[error("Bytes between blocks are missing; nothing was stored.")]
    Gap,
    /// A session of many files has ended, and some of them do not stand.
    #[error("Some files or directories could not be read or stored.")]
    Incomplete,
    /// The file could not be opened, read or written.
    #[error("{0}")]
    File(#[from] FileError),
}

impl TransferError {
    /// The code of the answer.
    pub fn code(self) -> u16 {
        match self {
            TransferError::NoConnection => 425,
            TransferError::Incomplete => 450,
            TransferError::Broken | TransferError::Stalled | TransferError::Short | TransferError::Gap => 426,
            TransferError::Block(_) => 426,
            TransferError::File(error) => file_code(error),
        }
    }
}
