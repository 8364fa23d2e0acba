//! A file that is written beside its place and put there whole (rule T5).
//!
//! Its name is made of the target's name, of this machine since its start, and of a small number, and its writer holds a lock of it. So what a server of this machine that was
//! killed has left is found by the next upload to that target: nothing holds its lock. Other machines may not see the lock, and leave it alone.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::file_error::FileError;
use crate::files::{create, random};
use crate::path::{part_name, stored_part_name};

/// Uploads of a machine to one target that have names by number.
const MOST_WRITERS: u32 = 64;

/// A file that is not in its place yet. Dropped unpublished, it goes.
#[derive(Debug)]
pub struct Part {
    /// What is written.
    pub file: File,
    parent: OwnedFd,
    part: Vec<u8>,
    target: Vec<u8>,
    is_published: bool,
}

impl Part {
    /// Begins one, and removes what a server of this machine that was killed left of others.
    pub(crate) fn begin(parent: OwnedFd, target: &[u8]) -> Result<Part, FileError> {
        let mut own = None;
        for place in 0..MOST_WRITERS {
            let name = stored_part_name(target, own_machine(), place);
            if !clear(&parent, &name) {
                continue;
            }
            if own.is_some() {
                break;
            }
            own = locked(&parent, &name)?.map(|file| (file, name));
        }
        // Where the file system has no locks, or too many write: a name that nobody removes.
        let (file, part) = match own {
            Some(own) => own,
            None => {
                let name = part_name(random()?);
                (File::from(create(&parent, &name)?), name)
            }
        };
        Ok(Part { file, parent, part, target: target.to_vec(), is_published: false })
    }

    /// Whether the name is still of this file: without locks that all machines see, another one may have taken it.
    fn is_own(&self) -> bool {
        is_named(&self.parent, &self.part, &self.file).unwrap_or(false)
    }

    /// Puts the part in the place of its target by one rename.
    ///
    /// # Errors
    /// The file system refuses, or another writer has taken the part for one that was left.
    pub fn publish(mut self) -> Result<(), FileError> {
        if !self.is_own() {
            return Err(FileError::Busy);
        }
        rustix::fs::renameat(&self.parent, self.part.as_slice(), &self.parent, self.target.as_slice())?;
        self.is_published = true;
        Ok(())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.is_published && self.is_own() {
            let _ = rustix::fs::unlinkat(&self.parent, self.part.as_slice(), AtFlags::empty());
        }
    }
}

/// What stands for this machine since it was started: locks hold between its processes. Without /proc, this process.
fn own_machine() -> u32 {
    static MACHINE: OnceLock<u32> = OnceLock::new();
    *MACHINE.get_or_init(|| {
        let boot = std::fs::read("/proc/sys/kernel/random/boot_id");
        let bytes = boot.unwrap_or_else(|_| getrandom::u64().unwrap_or_default().to_le_bytes().to_vec());
        u32::from_le_bytes(*blake3::hash(&bytes).as_bytes().first_chunk().unwrap_or(&[0; 4]))
    })
}

fn lock(file: impl AsFd) -> Result<(), Errno> {
    rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive)
}

/// Removes what has a name if its writer has gone. The lock is held until it is removed: otherwise the name could be another writer's by then. Says whether nothing had the name.
fn clear(parent: &OwnedFd, name: &[u8]) -> bool {
    // For writing: some file systems lock nothing else alone.
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match rustix::fs::openat(parent, name, flags, Mode::empty()) {
        Ok(file) => {
            if lock(&file).is_ok() && is_named(parent, name, &file).unwrap_or(false) {
                // Where it is another user's it stays.
                let _ = rustix::fs::unlinkat(parent, name, AtFlags::empty());
            }
            false
        }
        Err(error) => error == Errno::NOENT,
    }
}

/// Makes a file of this name, with the lock of its writer. `None` where another one was faster, or there are no locks.
fn locked(parent: &OwnedFd, name: &[u8]) -> Result<Option<File>, FileError> {
    let file = match create(parent, name) {
        Ok(file) => File::from(file),
        Err(Errno::EXIST) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    match lock(&file) {
        Ok(()) => Ok(is_named(parent, name, &file)?.then_some(file)),
        // Another one looks whether it was left, and removes it.
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(_) => {
            let _ = rustix::fs::unlinkat(parent, name, AtFlags::empty());
            Ok(None)
        }
    }
}

/// Whether a file still has its name: the one that had it may have been published or removed meanwhile.
fn is_named(parent: &OwnedFd, name: &[u8], file: impl AsFd) -> Result<bool, Errno> {
    let own = rustix::fs::fstat(file)?;
    match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(named) => Ok((named.st_dev, named.st_ino) == (own.st_dev, own.st_ino)),
        Err(Errno::NOENT) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::path::Path;

    use super::*;

    fn begun(directory: &Path, bytes: &[u8]) -> Part {
        let parent = OwnedFd::from(File::open(directory).unwrap());
        let mut part = Part::begin(parent, b"a").unwrap();
        part.file.write_all(bytes).unwrap();
        part
    }

    fn names(directory: &Path) -> usize {
        std::fs::read_dir(directory).unwrap().count()
    }

    #[test]
    fn what_a_killed_server_left_goes_and_what_another_writes_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let (one, other) = (begun(path, b"one"), begun(path, b"other"));
        assert_eq!(names(path), 2);
        // As a kill leaves them: with their names, and without a lock.
        for part in [one, other] {
            let mut part = std::mem::ManuallyDrop::new(part);
            part.file = File::open("/dev/null").unwrap();
        }
        assert_eq!(names(path), 2);
        let (mut one, other) = (begun(path, b"new"), begun(path, b"newer"));
        assert_eq!(names(path), 2);
        one.file.write_all(b"est").unwrap();
        other.publish().unwrap();
        assert_eq!(std::fs::read(path.join("a")).unwrap(), b"newer");
        one.publish().unwrap();
        assert_eq!((std::fs::read(path.join("a")).unwrap(), names(path)), (b"newest".to_vec(), 1));
        drop(begun(path, b"broken off"));
        assert_eq!(names(path), 1);
        // Another machine that does not see the lock has put its own part there.
        let taken = begun(path, b"ours");
        let name = path.join(std::str::from_utf8(&taken.part).unwrap());
        std::fs::write(path.join("theirs"), "half").unwrap();
        std::fs::rename(path.join("theirs"), &name).unwrap();
        assert_eq!(taken.publish(), Err(FileError::Busy));
        assert_eq!(
            (std::fs::read(&name).unwrap(), std::fs::read(path.join("a")).unwrap()),
            (b"half".to_vec(), b"newest".to_vec())
        );
    }
}
