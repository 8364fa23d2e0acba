//! Paths of this machine as a root and a path below it: where files come from, and where they go.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::file_error::FileError;
use crate::files::Root;
use crate::path::VirtualPath;

/// Why a path of this machine is no place of a copy.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// The file system refused.
    #[error("{}: {error}", path.display())]
    File {
        /// What was asked for.
        path: PathBuf,
        /// Why.
        error: FileError,
    },
    /// A file whose name here is not known.
    #[error("{0} ends with no name of a file")]
    NoName(String),
}

/// Where files come from: a directory that nothing leads out of, or that of a file, and its name. A link is the file that it leads to.
///
/// # Errors
/// It cannot be opened.
pub fn source_place(path: &Path) -> Result<(Root, VirtualPath), PlaceError> {
    let refused = |error| PlaceError::File { path: path.to_owned(), error };
    if !path.is_file() {
        return Ok((Root::open(path).map_err(refused)?, VirtualPath::root()));
    }
    let file = std::fs::canonicalize(path).map_err(|error| refused(error.into()))?;
    let root = Root::open(file.parent().unwrap_or(Path::new("/"))).map_err(refused)?;
    let name = file.file_name().and_then(|name| VirtualPath::root().descend(name.as_bytes()));
    Ok((root, name.ok_or_else(|| refused(FileError::BadName))?))
}

/// Where a file goes that is called `name` where it comes from: below which directory, and by which name. A directory takes that name.
///
/// # Errors
/// There is no name, or what stands there is a device or the like, which a file does not replace.
pub fn target_place(to: &Path, name: &[u8]) -> Result<(Root, VirtualPath), PlaceError> {
    let refused = |path: &Path, error| PlaceError::File { path: path.to_owned(), error };
    if to.exists() && !to.is_dir() && !to.is_file() {
        return Err(refused(to, FileError::NotRegular));
    }
    if !to.is_dir() && to.as_os_str().as_bytes().ends_with(b"/") {
        return Err(refused(to, if to.exists() { FileError::NotDirectory } else { FileError::NotFound }));
    }
    let (directory, name) = match (to.is_dir(), to.file_name()) {
        (false, Some(name)) => (to.parent().filter(|parent| !parent.as_os_str().is_empty()), name.as_bytes()),
        _ => (Some(to), name),
    };
    let directory = directory.unwrap_or(Path::new("."));
    let below = Some(name).filter(|name| !name.is_empty()).and_then(|name| VirtualPath::root().descend(name));
    let below = below.ok_or_else(|| PlaceError::NoName(String::from_utf8_lossy(name).into_owned()))?;
    Ok((Root::open(directory).map_err(|error| refused(directory, error))?, below))
}
