//! A file that is written beside its place and put there whole (rule T5).
//!
//! Its name is made of the target's name and of a small number, and its writer holds a lock of it. So what a server that was killed has left is found by the next upload to
//! that target: nothing holds its lock.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::file_error::FileError;
use crate::files::create;
use crate::path::stored_part_name;

/// Uploads to one target that are written at a time, and how often each name is tried while others begin.
const MOST_WRITERS: u32 = 64;
const TRIES: u32 = 8;

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
    /// Begins one, and removes what a server that was killed left of one.
    pub(crate) fn begin(parent: OwnedFd, target: &[u8]) -> Result<Part, FileError> {
        for place in 0..MOST_WRITERS {
            let part = stored_part_name(target, place);
            for _ in 0..TRIES {
                match create(&parent, &part) {
                    Ok(descriptor) => {
                        if !is_written(&lock(&descriptor)) && is_named(&parent, &part, &descriptor)? {
                            let (file, target) = (File::from(descriptor), target.to_vec());
                            return Ok(Part { file, parent, part, target, is_published: false });
                        }
                        // Another one has taken it for one that was left, and removed it.
                    }
                    Err(Errno::EXIST) => {
                        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
                        match rustix::fs::openat(&parent, part.as_slice(), flags, Mode::empty()) {
                            // Where the file system has no locks, nothing says that its writer has gone.
                            Ok(left) if lock(&left).is_ok() => {
                                if is_named(&parent, &part, &left)? {
                                    rustix::fs::unlinkat(&parent, part.as_slice(), AtFlags::empty())?;
                                }
                            }
                            Err(Errno::NOENT) => {}
                            // It is being written, or is none of ours.
                            _ => break,
                        }
                    }
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Err(FileError::Busy)
    }

    /// Puts the part in the place of its target by one rename.
    pub fn publish(mut self) -> Result<(), FileError> {
        rustix::fs::renameat(&self.parent, self.part.as_slice(), &self.parent, self.target.as_slice())?;
        self.is_published = true;
        Ok(())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.is_published {
            let _ = rustix::fs::unlinkat(&self.parent, self.part.as_slice(), AtFlags::empty());
        }
    }
}

/// Takes the lock of a writer.
fn lock(file: impl AsFd) -> Result<(), Errno> {
    rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive)
}

/// Whether another one holds the lock.
fn is_written(locked: &Result<(), Errno>) -> bool {
    *locked == Err(Errno::WOULDBLOCK)
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
    }
}
