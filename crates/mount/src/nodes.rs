//! Files that the kernel knows: each is held by a descriptor, so it lives on however it is renamed or unlinked.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{Mode, OFlags, Stat, fstat, openat};
use rustix::io::Errno;

use crate::state::State;

/// The number of the root, in FUSE's protocol.
pub(crate) const ROOT: u64 = 1;

/// One file below that the kernel knows.
#[derive(Debug)]
pub(crate) struct Node {
    /// Its number in FUSE's protocol.
    pub(crate) id: u64,
    /// Opened with `O_PATH`: the file itself, whatever its names are. While it is open the file's number is not given to another.
    pub(crate) fd: OwnedFd,
    /// What the bank must know of it.
    pub(crate) state: State,
    /// The directory and the name by which it was looked up last, where the kernel believes names.
    place: Mutex<Option<(u64, OsString)>>,
}

impl Node {
    /// A path that leads to the file itself, for system calls that take no descriptor of `O_PATH`.
    pub(crate) fn path(&self) -> String {
        path_of(&self.fd)
    }

    /// Notes by which name of which directory the kernel knows it.
    pub(crate) fn stands(&self, parent: u64, name: &OsStr) {
        *self.place.lock().unwrap_or_else(PoisonError::into_inner) = Some((parent, name.to_owned()));
    }

    /// The directory and the name by which the kernel knows it.
    pub(crate) fn place(&self) -> Option<(u64, OsString)> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Opens the file anew.
    pub(crate) fn open(&self, flags: OFlags) -> Result<OwnedFd, Errno> {
        rustix::fs::open(self.path(), flags | OFlags::CLOEXEC, Mode::empty())
    }
}

pub(crate) fn path_of(fd: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// All files that the kernel knows.
#[derive(Debug)]
pub(crate) struct Nodes {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    by_id: HashMap<u64, (Arc<Node>, u64)>,
    /// By device and number below. Two names of one file are one node.
    by_key: HashMap<(u64, u64), u64>,
    made: u64,
}

impl Nodes {
    pub(crate) fn new(root: OwnedFd) -> Result<Self, Errno> {
        let stat = fstat(&root)?;
        let root = Arc::new(Node { id: ROOT, fd: root, state: State::default(), place: Mutex::default() });
        let mut table = Table::default();
        table.by_id.insert(ROOT, (root, 1));
        table.by_key.insert((stat.st_dev, stat.st_ino), ROOT);
        Ok(Nodes { table: Mutex::new(table) })
    }

    pub(crate) fn node(&self, id: u64) -> Result<Arc<Node>, Errno> {
        self.table().by_id.get(&id).map(|(node, _)| node.clone()).ok_or(Errno::STALE)
    }

    /// Number of files that the kernel knows.
    pub(crate) fn len(&self) -> usize {
        self.table().by_id.len()
    }

    /// All that the kernel knows now.
    pub(crate) fn all(&self) -> Vec<Arc<Node>> {
        self.table().by_id.values().map(|(node, _)| node.clone()).collect()
    }

    /// The file of this device and number, if the kernel knows it.
    pub(crate) fn known(&self, device: u64, number: u64) -> Option<Arc<Node>> {
        let table = self.table();
        let id = table.by_key.get(&(device, number))?;
        table.by_id.get(id).map(|(node, _)| node.clone())
    }

    /// The file with this name, known to the kernel once more.
    pub(crate) fn look_up(&self, parent: &Node, name: &OsStr) -> Result<(Arc<Node>, Stat), Errno> {
        let fd = openat(&parent.fd, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        self.know(fd)
    }

    /// The file of a descriptor of `O_PATH`, known to the kernel once more.
    pub(crate) fn know(&self, fd: OwnedFd) -> Result<(Arc<Node>, Stat), Errno> {
        let stat = fstat(&fd)?;
        let key = (stat.st_dev, stat.st_ino);
        let mut table = self.table();
        if let Some(id) = table.by_key.get(&key).copied()
            && let Some((node, lookups)) = table.by_id.get_mut(&id)
        {
            *lookups += 1;
            return Ok((node.clone(), stat));
        }
        let id = table.free_id(stat.st_ino);
        let node = Arc::new(Node { id, fd, state: State::default(), place: Mutex::default() });
        table.by_id.insert(id, (node.clone(), 1));
        table.by_key.insert(key, id);
        Ok((node, stat))
    }

    /// The kernel forgets `lookups` of its lookups.
    pub(crate) fn forget(&self, id: u64, lookups: u64) {
        let mut table = self.table();
        let Some((node, known)) = table.by_id.get_mut(&id) else { return };
        *known = known.saturating_sub(lookups);
        if *known > 0 || id == ROOT {
            return;
        }
        let stat = fstat(&node.fd);
        table.by_id.remove(&id);
        match stat {
            Ok(stat) => _ = table.by_key.remove(&(stat.st_dev, stat.st_ino)),
            // A file system that is gone cannot say the key.
            Err(_) => table.by_key.retain(|_, other| *other != id),
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// The file's own number, as programs see it; another where that is the root's, or that of a file on another device.
    fn free_id(&mut self, wanted: u64) -> u64 {
        let mut id = wanted;
        while id <= ROOT || self.by_id.contains_key(&id) {
            self.made += 1;
            id = 1 << 63 | self.made;
        }
        id
    }
}
