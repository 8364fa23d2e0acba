//! Open files and directories.

use std::collections::HashMap;
use std::ffi::{CString, OsStr};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use rustix::fs::{FileType, RawDir, SeekFrom, seek};
use rustix::io::Errno;

use crate::cache::View;
use crate::nodes::Node;

/// One open file or directory.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) node: Arc<Node>,
    pub(crate) fd: OwnedFd,
    /// What the cache knew when the file was opened.
    pub(crate) view: Option<View>,
    _writer: Option<Writer>,
    /// One listing at a time: they share the position of the descriptor.
    listing: Mutex<()>,
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
        Handle { node, fd, view, _writer: writer, listing: Mutex::default() }
    }

    pub(crate) fn directory(node: Arc<Node>, fd: OwnedFd) -> Self {
        Self::file(node, fd, None, None)
    }

    /// Gives names from `offset` on to `add`, until it says that it is full or there are no more.
    pub(crate) fn list(&self, offset: u64, mut add: impl FnMut(Entry) -> Result<bool, Errno>) -> Result<(), Errno> {
        let _one = self.listing.lock().unwrap_or_else(PoisonError::into_inner);
        seek(&self.fd, SeekFrom::Start(offset))?;
        let mut buffer = [MaybeUninit::uninit(); 16 << 10];
        let mut names = RawDir::new(&self.fd, &mut buffer);
        while let Some(entry) = names.next() {
            let entry = entry?;
            let entry = Entry {
                name: entry.file_name().to_owned(),
                number: entry.ino(),
                kind: entry.file_type(),
                next: entry.next_entry_cookie(),
            };
            if add(entry)? {
                break;
            }
        }
        Ok(())
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
