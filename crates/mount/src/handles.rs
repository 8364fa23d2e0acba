//! Open files and directories.

use std::collections::HashMap;
use std::ffi::{CString, OsStr};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

use rustix::fs::{FileType, OFlags, RawDir, SeekFrom, seek};
use rustix::io::Errno;
use verbena_bank::Listing;

use crate::cache::View;
use crate::names::Collector;
use crate::nodes::Node;

/// One open file or directory.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) node: Arc<Node>,
    /// Opened below; a directory whose names are known is opened when it has to be.
    fd: OnceLock<OwnedFd>,
    /// What the cache knew when the file was opened.
    pub(crate) view: Option<View>,
    writer: Option<Writer>,
    /// One listing at a time: they share the position of the descriptor.
    names: Mutex<DirectoryNames>,
}

/// Where the names of an open directory come from.
#[derive(Debug, Default)]
pub(crate) struct DirectoryNames {
    /// They are known, for a listing from start to end.
    pub(crate) known: Option<Arc<Listing>>,
    /// Whether it began.
    has_begun: bool,
    /// They are read below, and become known so.
    pub(crate) collector: Option<Collector>,
}

/// While it lives, its file is open for writing (rule B15).
#[derive(Debug)]
pub(crate) struct Writer(Arc<Node>);

/// One name in a directory.
pub(crate) struct Entry {
    pub(crate) name: CString,
    pub(crate) number: u64,
    pub(crate) kind: FileType,
    /// Where the next listing begins, to go on behind this name.
    pub(crate) next: u64,
}

/// All open files and directories, by number.
#[derive(Debug, Default)]
pub(crate) struct Handles {
    table: RwLock<HashMap<u64, Arc<Handle>>>,
    last: AtomicU64,
}

impl Writer {
    pub(crate) fn new(node: Arc<Node>) -> Self {
        node.state.writer_opens();
        Writer(node)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.0.state.writer_closes();
    }
}

impl Entry {
    pub(crate) fn name(&self) -> &OsStr {
        OsStr::from_bytes(self.name.as_bytes())
    }
}

impl Handle {
    pub(crate) fn file(node: Arc<Node>, fd: OwnedFd, writer: Option<Writer>, view: Option<View>) -> Self {
        Handle { node, fd: OnceLock::from(fd), view, writer, names: Mutex::default() }
    }

    /// A directory that was opened below, or whose names are known.
    pub(crate) fn directory(node: Arc<Node>, fd: Option<OwnedFd>, names: DirectoryNames) -> Self {
        let fd = fd.map_or_else(OnceLock::new, OnceLock::from);
        Handle { node, fd, view: None, writer: None, names: Mutex::new(names) }
    }

    /// As it is open below.
    pub(crate) fn fd(&self) -> Result<&OwnedFd, Errno> {
        if self.fd.get().is_none() {
            // Another thread may do the same: one of the two counts.
            _ = self.fd.set(self.node.open(OFlags::RDONLY | OFlags::DIRECTORY)?);
        }
        self.fd.get().ok_or(Errno::BADF)
    }

    /// Whether it can write.
    pub(crate) fn writes(&self) -> bool {
        self.writer.is_some()
    }

    /// The names, of which a part from `offset` on is asked for. A listing that begins again is read below: what is known is as old as the open.
    pub(crate) fn names(&self, offset: u64) -> MutexGuard<'_, DirectoryNames> {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if offset == 0 && std::mem::replace(&mut names.has_begun, true) {
            names.known = None;
        }
        if offset == 0 || !names.collector.as_ref().is_some_and(|collector| collector.follows(offset)) {
            names.collector = None;
        }
        names
    }

    /// Gives names from `offset` on to `add`, until it says that it is full or there are no more. Says whether there are no more. For one caller at a time ([`Handle::names`]).
    pub(crate) fn list(&self, offset: u64, mut add: impl FnMut(Entry) -> bool) -> Result<bool, Errno> {
        let fd = self.fd()?;
        self.node.asked();
        seek(fd, SeekFrom::Start(offset))?;
        let mut buffer = [MaybeUninit::uninit(); 16 << 10];
        let mut names = RawDir::new(fd, &mut buffer);
        while let Some(entry) = names.next() {
            let entry = entry?;
            let entry = Entry {
                name: entry.file_name().to_owned(),
                number: entry.ino(),
                kind: entry.file_type(),
                next: entry.next_entry_cookie(),
            };
            if add(entry) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Handles {
    pub(crate) fn add(&self, handle: Handle) -> u64 {
        let number = self.last.fetch_add(1, Relaxed) + 1;
        self.table.write().unwrap_or_else(PoisonError::into_inner).insert(number, Arc::new(handle));
        number
    }

    pub(crate) fn file(&self, number: u64) -> Result<Arc<Handle>, Errno> {
        self.table.read().unwrap_or_else(PoisonError::into_inner).get(&number).cloned().ok_or(Errno::BADF)
    }

    /// Closes it when the last operation on it ends.
    pub(crate) fn remove(&self, number: u64) {
        let handle = self.table.write().unwrap_or_else(PoisonError::into_inner).remove(&number);
        // Outside the lock: closing may wait for the file system below.
        drop(handle);
    }

    pub(crate) fn len(&self) -> usize {
        self.table.read().unwrap_or_else(PoisonError::into_inner).len()
    }
}
