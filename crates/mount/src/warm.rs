//! Reads a tree through a mount, so that its bank has it before it is needed.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use crate::below::{KIND, kind_of};
use crate::error::UmountError;

/// What was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Warmed {
    /// Files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files and directories that could not be read.
    pub failed: u64,
}

/// Reads each regular file of a tree on a mount once, by some threads. Links are not followed, and what is not on the mount is left out.
pub fn warm(path: &Path, threads: usize) -> Result<Warmed, UmountError> {
    let silent = |error: std::io::Error| UmountError::Silent { at: path.to_owned(), error };
    let path = path.canonicalize().map_err(silent)?;
    if kind_of(&path).is_none_or(|kind| kind != KIND) {
        return Err(UmountError::NotOurs { at: path });
    }
    let device = std::os::unix::fs::MetadataExt::dev(&path.symlink_metadata().map_err(silent)?);
    let (files, bytes, failed) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    // Directories first, so that the list of what is to be read stays as short as the tree is deep.
    let work = Mutex::new((vec![path], 0_usize));
    let take = || {
        let mut work = work.lock().unwrap_or_else(PoisonError::into_inner);
        let next = work.0.pop();
        work.1 += usize::from(next.is_some());
        (next, work.1)
    };
    let done = |found: Vec<PathBuf>| {
        let mut work = work.lock().unwrap_or_else(PoisonError::into_inner);
        work.0.extend(found);
        work.1 -= 1;
    };
    let run = || {
        let mut buffer = vec![0; 1 << 20];
        loop {
            match take() {
                (Some(next), _) => {
                    let read = one(&next, device, &mut buffer);
                    let mut inner = vec![];
                    match read {
                        Ok(Found::File(length)) => {
                            files.fetch_add(1, Relaxed);
                            bytes.fetch_add(length, Relaxed);
                        }
                        Ok(Found::Directory(entries)) => inner = entries,
                        Ok(Found::Other) => {}
                        Err(_) => _ = failed.fetch_add(1, Relaxed),
                    }
                    done(inner);
                }
                // Another thread may find more.
                (None, at_work) if at_work > 0 => std::thread::sleep(std::time::Duration::from_millis(1)),
                (None, _) => return,
            }
        }
    };
    std::thread::scope(|scope| (0..threads.clamp(1, 64)).for_each(|_| _ = scope.spawn(run)));
    Ok(Warmed { files: files.into_inner(), bytes: bytes.into_inner(), failed: failed.into_inner() })
}

enum Found {
    File(u64),
    Directory(Vec<PathBuf>),
    Other,
}

fn one(path: &Path, device: u64, buffer: &mut [u8]) -> std::io::Result<Found> {
    let found = path.symlink_metadata()?;
    if std::os::unix::fs::MetadataExt::dev(&found) != device {
        return Ok(Found::Other);
    }
    if found.is_dir() {
        // Each is looked at as it comes, so that the kernel asks for attributes with the names that follow.
        let entry = |entry: std::io::Result<std::fs::DirEntry>| {
            let entry = entry?;
            // What cannot be looked at is counted when its turn comes.
            _ = entry.metadata();
            Ok(entry.path())
        };
        return path.read_dir()?.map(entry).collect::<std::io::Result<_>>().map(Found::Directory);
    }
    if !found.is_file() {
        return Ok(Found::Other);
    }
    let mut file = File::open(path)?;
    let mut bytes = 0;
    loop {
        match file.read(buffer)? {
            0 => return Ok(Found::File(bytes)),
            length => bytes += length as u64,
        }
    }
}
