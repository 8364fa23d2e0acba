//! Durable records of a node, each in a file of the state directory.
//!
//! A record is replaced in one step: the new one is written beside it and synchronised, renamed over it, and the directory is
//! synchronised. Only then would it survive a loss of power, whole. The directory has one owner, who holds the lock of the
//! file `lock` in it; the kernel releases that with the process, however it ends.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

use crate::error::{Error, Result};

/// Records are small. A larger file is no record: it is read one byte further than this, and refused.
const LARGEST_RECORD: u64 = 16 << 20;

/// The state directory, owned.
#[derive(Debug)]
pub(crate) struct Store {
    directory: PathBuf,
    _lock: File,
    /// Held shared: what cleans up passes over the directory.
    _held: Option<File>,
}

impl Store {
    /// Takes the directory, made if it is missing, for its owner alone.
    pub(crate) fn open(directory: &Path) -> Result<Self> {
        make_directory(directory)?;
        let path = directory.join("lock");
        let lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(|error| Error::file("open", &path, error))?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                let _held = verbena_ipc::hold(directory);
                Ok(Store { directory: directory.to_owned(), _lock: lock, _held })
            }
            Err(rustix::io::Errno::WOULDBLOCK) => Err(Error::StateInUse { directory: directory.to_owned() }),
            Err(error) => Err(Error::file("lock", path, error)),
        }
    }

    /// The record called `name`, if there is one.
    pub(crate) fn read(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let path = self.directory.join(name);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::file("open", path, error)),
        };
        let mut bytes = Vec::new();
        file.take(LARGEST_RECORD + 1).read_to_end(&mut bytes).map_err(|error| Error::file("read", &path, error))?;
        Ok(Some(bytes))
    }

    /// Replaces the record called `name`. When it returns the new one would survive a loss of power; if it fails the old one stands.
    pub(crate) fn replace(&self, name: &str, bytes: &[u8]) -> Result<()> {
        replace(&self.directory, name, bytes)
    }

    /// The directory.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }
}

/// Replaces the file `name` in `directory`, which must be locked by this process, as records are replaced.
pub(crate) fn replace(directory: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    let (path, beside) = (directory.join(name), directory.join(format!("{name}.new")));
    let options = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside);
    let mut file = options.map_err(|error| Error::file("make", &beside, error))?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    written.map_err(|error| Error::file("write", &beside, error))?;
    fs::rename(&beside, &path).map_err(|error| Error::file("replace", &path, error))?;
    let synchronised = File::open(directory).and_then(|directory| directory.sync_all());
    synchronised.map_err(|error| Error::file("synchronise", directory, error))
}

/// Makes a directory for its owner alone, with those above it that are missing.
pub(crate) fn make_directory(directory: &Path) -> Result<()> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
    made.map_err(|error| Error::file("make the directory", directory, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_replaced_whole_and_the_directory_has_one_owner() {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path().join("a/b");
        let store = Store::open(&state).unwrap();
        assert_eq!(store.read("start").unwrap(), None);
        store.replace("start", b"a longer one").unwrap();
        store.replace("start", b"two").unwrap();
        assert_eq!(store.read("start").unwrap().as_deref(), Some(&b"two"[..]));
        assert!(!state.join("start.new").exists());
        assert!(matches!(Store::open(&state), Err(Error::StateInUse { .. })));
        drop(store);
        assert_eq!(Store::open(&state).unwrap().read("start").unwrap().as_deref(), Some(&b"two"[..]));
    }

    #[test]
    fn what_cannot_be_written_leaves_the_old_record() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        store.replace("start", b"one").unwrap();
        fs::create_dir(directory.path().join("start.new")).unwrap();
        let refused = store.replace("start", b"two").unwrap_err().to_string();
        assert!(refused.contains("start.new"), "{refused}");
        assert_eq!(store.read("start").unwrap().as_deref(), Some(&b"one"[..]));
    }
}
