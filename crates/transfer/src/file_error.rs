//! Why the file system refused.

use rustix::io::Errno;

/// Why the file system refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// Nothing has this name.
    #[error("No such file or directory.")]
    NotFound,
    /// Something has this name already.
    #[error("There is something of this name already.")]
    Exists,
    /// The system's permissions do not allow it.
    #[error("Permission denied.")]
    Denied,
    /// The path leads out of the user's root.
    #[error("The path leads out of the served directory.")]
    Outside,
    /// A directory where a file is needed.
    #[error("This is a directory.")]
    IsDirectory,
    /// A file where a directory is needed.
    #[error("This is no directory.")]
    NotDirectory,
    /// The directory holds something.
    #[error("The directory is not empty.")]
    NotEmpty,
    /// Neither a regular file nor a directory.
    #[error("This is no regular file.")]
    NotRegular,
    /// The name is too long, or the file system cannot hold it.
    #[error("The file system does not take this name.")]
    BadName,
    /// No space is left.
    #[error("No space is left.")]
    Full,
    /// The user may not have as much.
    #[error("The quota is used up.")]
    Quota,
    /// Another client writes the file.
    #[error("Another client is writing this file; try again later.")]
    Busy,
    /// A restart or a range behind the end of the file.
    #[error("The file ends before that byte.")]
    BehindEnd,
    /// A restart of an upload into a directory where files are replaced as a whole.
    #[error("Uploads here replace the whole file: send it from its first byte.")]
    WholeOnly,
    /// The work was given up because the client has gone.
    #[error("The client has gone.")]
    Cancelled,
    /// Anything else that the system says.
    #[error("The system refused: {0}.")]
    System(Errno),
}

impl From<Errno> for FileError {
    fn from(errno: Errno) -> FileError {
        match errno {
            Errno::NOENT => FileError::NotFound,
            Errno::EXIST => FileError::Exists,
            Errno::ACCESS | Errno::PERM | Errno::ROFS => FileError::Denied,
            Errno::XDEV | Errno::LOOP => FileError::Outside,
            Errno::ISDIR => FileError::IsDirectory,
            Errno::NOTDIR => FileError::NotDirectory,
            Errno::NOTEMPTY => FileError::NotEmpty,
            Errno::NXIO => FileError::NotRegular,
            Errno::NAMETOOLONG | Errno::INVAL | Errno::ILSEQ => FileError::BadName,
            Errno::NOSPC => FileError::Full,
            Errno::DQUOT => FileError::Quota,
            Errno::WOULDBLOCK | Errno::TXTBSY => FileError::Busy,
            other => FileError::System(other),
        }
    }
}

impl From<std::io::Error> for FileError {
    fn from(error: std::io::Error) -> FileError {
        Errno::from_io_error(&error).unwrap_or(Errno::IO).into()
    }
}
