//! Files that are sent: opened once, read by chunk, looked at before and after (rule T7).

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use crate::files::Root;
use crate::frame::{Entry, EntryKind, Failure, FileNumber, Identity};
use crate::path::VirtualPath;
use crate::sender::Look;
use crate::tree::{Hash, chunk_hash};

/// Two ticks of the slowest clock that stamps changes: a change within them does not show.
const TICKS: Duration = Duration::from_millis(20);

/// The files of one session below a directory.
#[derive(Debug)]
pub struct Sources {
    root: Arc<Root>,
    base: VirtualPath,
    open: HashMap<FileNumber, File>,
}

fn failure(error: impl std::fmt::Display) -> Failure {
    Failure::Source(error.to_string())
}

impl Sources {
    /// Files below `base`.
    pub fn new(root: Arc<Root>, base: VirtualPath) -> Sources {
        Sources { root, base, open: HashMap::new() }
    }

    /// Opens a file and looks at it. Waits until a change would show.
    pub fn open(&mut self, file: FileNumber, entry: &Entry) -> Result<Look, Failure> {
        if entry.kind != EntryKind::File {
            return Ok(Look { identity: Identity::default(), is_young: false });
        }
        let path = self.base.descend(&entry.path).ok_or_else(|| failure("no file can have this name"))?;
        let (opened, _) = self.root.read(&path).map_err(failure)?;
        let mut look = look(&opened)?;
        if look.is_young {
            std::thread::sleep(TICKS);
            look = self::look(&opened)?;
        }
        self.open.insert(file, opened);
        Ok(look)
    }

    /// Reads and hashes a chunk.
    pub fn read(
        &self,
        file: FileNumber,
        offset: u64,
        length: u64,
        is_whole_file: bool,
    ) -> Result<(Vec<u8>, Hash), Failure> {
        let opened = self.open.get(&file).ok_or_else(|| failure("it is closed"))?;
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        let mut filled = 0;
        while filled < bytes.len() {
            match opened.read_at(&mut bytes[filled..], offset + filled as u64) {
                // Cut short meanwhile: the next look says so.
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failure(error)),
            }
        }
        bytes.truncate(filled);
        let hash = chunk_hash(&bytes, offset, is_whole_file);
        Ok((bytes, hash))
    }

    /// The descriptor of a file that is open, once more. `None` of what is no file.
    pub(crate) fn descriptor(&self, file: FileNumber) -> Result<Option<OwnedFd>, Failure> {
        self.open.get(&file).map(|opened| opened.try_clone().map(OwnedFd::from)).transpose().map_err(failure)
    }

    /// Looks at a file again.
    pub fn look(&self, file: FileNumber) -> Result<Look, Failure> {
        look(self.open.get(&file).ok_or_else(|| failure("it is closed"))?)
    }

    /// Closes a file.
    pub fn close(&mut self, file: FileNumber) {
        self.open.remove(&file);
    }
}

fn look(file: &File) -> Result<Look, Failure> {
    let stat = rustix::fs::fstat(file).map_err(failure)?;
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    let nanoseconds = |seconds: i64, nanoseconds: u64| i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds);
    let age = nanoseconds(now.tv_sec, now.tv_nsec as u64) - nanoseconds(stat.st_ctime, stat.st_ctime_nsec);
    let identity = Identity {
        size: u64::try_from(stat.st_size).unwrap_or(0),
        modified: (stat.st_mtime, stat.st_mtime_nsec as u32),
        changed: (stat.st_ctime, stat.st_ctime_nsec as u32),
        inode: stat.st_ino,
        device: stat.st_dev,
    };
    Ok(Look { identity, is_young: (0..TICKS.as_nanos() as i128).contains(&age) })
}
