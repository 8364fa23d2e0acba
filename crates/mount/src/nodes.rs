//! Files that the kernel knows: each is held by a descriptor, so it lives on however it is renamed or unlinked.
//!
//! A file that is known from names alone, of a listing that did not come from below, is held by none until an operation needs it. Then its name
//! is looked up below, and what stands there must be the same file (rule B3). If it is not, the operation says `ESTALE`, upon
//! which the kernel asks for the names anew, and what was said of the names of that directory counts no more.
//!
//! A number is no identity by itself: once a file is gone, another is given its number, and a file that is not held may go at any time. So a file that is
//! not held is named by its number and its time of birth. Where the file system tells no such time, each file is held.

mod key;

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, openat};
use rustix::io::Errno;

use crate::state::State;
pub(crate) use key::{NodeKey, born, path_inside, path_of};

/// The number of the root, in FUSE's protocol.
pub(crate) const ROOT: u64 = 1;

/// One file below that the kernel knows.
#[derive(Debug)]
pub(crate) struct Node {
    /// Its number in FUSE's protocol.
    pub(crate) id: u64,
    /// What names it below.
    pub(crate) key: NodeKey,
    /// The number that programs see, if it is not that of the file below.
    number: Option<u64>,
    /// What it is. A file of another kind is another one, whatever its number.
    pub(crate) kind: FileType,
    /// What the bank must know of it.
    pub(crate) state: State,
    /// Opened with `O_PATH`: the file itself, whatever its names are. While it is open the file's number is not given to another.
    held: OnceLock<OwnedFd>,
    /// Where it is looked up when it is needed, while it is not held.
    origin: Mutex<Option<Origin>>,
    /// The directory and the name by which it was looked up last, where the kernel believes names.
    place: Mutex<Option<(u64, OsString)>>,
    /// How often the mount asked below.
    calls: Arc<AtomicU64>,
}

/// Where a file is looked up when it is needed.
#[derive(Clone, Debug)]
struct Origin {
    parent: Arc<Node>,
    name: OsString,
    /// Files to look up one after another, this one included: as many directories above may not be held either.
    depth: usize,
}

impl Node {
    /// Files to look up one after another at most. One that would be deeper is looked up at once.
    const DEEPEST: usize = 64;

    fn new(id: u64, key: NodeKey, kind: FileType, calls: &Arc<AtomicU64>) -> Self {
        Node {
            id,
            key,
            // Another node may have the file's own number.
            number: Some(id).filter(|id| ![ROOT, key.number].contains(id)),
            kind,
            state: State::default(),
            held: OnceLock::new(),
            origin: Mutex::default(),
            place: Mutex::default(),
            calls: calls.clone(),
        }
    }

    /// The number that programs see of the file that has this one below.
    pub(crate) fn number(&self, below: u64) -> u64 {
        self.number.unwrap_or(below)
    }

    /// Counts a call of the file system below, for what a name leads to or what is said of a file.
    pub(crate) fn asked(&self) {
        self.calls.fetch_add(1, Relaxed);
    }

    /// The file itself, as a descriptor of `O_PATH`.
    pub(crate) fn fd(&self) -> Result<&OwnedFd, Errno> {
        if let Some(fd) = self.held.get() {
            return Ok(fd);
        }
        let origin = self.origin().clone();
        // It has none any more: another thread holds it by now.
        let Some(Origin { parent, name, .. }) = origin else { return self.held.get().ok_or(Errno::STALE) };
        let directory = parent.fd()?;
        self.asked();
        match open_path(directory, &name, self.key.born.is_some()) {
            Ok((fd, stat, key)) if self.is(&stat, key) => {
                self.hold(fd);
                self.held.get().ok_or(Errno::STALE)
            }
            Ok(_) | Err(Errno::NOENT | Errno::NOTDIR) => {
                parent.state.names_moved();
                Err(Errno::STALE)
            }
            Err(error) => Err(error),
        }
    }

    /// Whether a descriptor holds it.
    pub(crate) fn is_held(&self) -> bool {
        self.held.get().is_some()
    }

    /// Whether the file below is this one (rule B3).
    fn is(&self, stat: &Stat, key: NodeKey) -> bool {
        self.key == key && self.kind == FileType::from_raw_mode(stat.st_mode)
    }

    fn hold(&self, fd: OwnedFd) {
        // Two threads may look it up: both have the same file.
        _ = self.held.set(fd);
        *self.origin() = None;
    }

    /// Where it is looked up from now on, if it is not held. A directory keeps the origin that it had: so no two directories stand in each other.
    /// Says whether it is found there when it is needed; if not, it is to be looked up at once.
    fn comes_from(&self, parent: &Arc<Node>, name: &OsStr) -> bool {
        let depth = 1 + parent.origin().as_ref().map_or(0, |origin| origin.depth);
        let mut origin = self.origin();
        if self.is_held() {
            return true;
        }
        let is_here = |origin: &Origin| origin.parent.id == parent.id && origin.name == name;
        match &*origin {
            Some(origin) if self.kind == FileType::Directory => is_here(origin),
            _ if depth > Self::DEEPEST => false,
            _ => {
                *origin = Some(Origin { parent: parent.clone(), name: name.to_owned(), depth });
                true
            }
        }
    }

    /// A path that leads to the file itself, for system calls that take no descriptor of `O_PATH`.
    pub(crate) fn path(&self) -> Result<String, Errno> {
        Ok(path_of(self.fd()?))
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
        let path = self.path()?;
        self.asked();
        rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty())
    }

    fn origin(&self) -> MutexGuard<'_, Option<Origin>> {
        self.origin.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What has a name, and what is said of it.
fn open_path(directory: &OwnedFd, name: &OsStr, by_birth: bool) -> Result<(OwnedFd, Stat, NodeKey), Errno> {
    let fd = openat(directory, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let stat = fstat(&fd)?;
    let key = NodeKey::of(&fd, &stat, by_birth);
    Ok((fd, stat, key))
}

/// All files that the kernel knows.
#[derive(Debug)]
pub(crate) struct Nodes {
    table: Mutex<Table>,
    by_birth: bool,
    calls: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct Table {
    by_id: HashMap<u64, (Arc<Node>, u64)>,
    /// By what names it below. Two names of one file are one node.
    by_key: HashMap<NodeKey, u64>,
    made: u64,
}

impl Nodes {
    /// With times of birth in what names files, if `by_birth`.
    pub(crate) fn new(root: OwnedFd, by_birth: bool) -> Result<Self, Errno> {
        let stat = fstat(&root)?;
        let key = NodeKey::of(&root, &stat, by_birth);
        let (mut table, calls) = (Table::default(), Arc::default());
        table.add(Node::new(ROOT, key, FileType::Directory, &calls)).hold(root);
        Ok(Nodes { table: Mutex::new(table), by_birth, calls })
    }

    /// How often the file system below was asked what a name leads to, what is said of a file, or for the names of a directory, or to open one.
    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Relaxed)
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

    /// What names an open file.
    pub(crate) fn key(&self, fd: &OwnedFd, stat: &Stat) -> NodeKey {
        NodeKey::of(fd, stat, self.by_birth)
    }

    /// The file that this names, if the kernel knows it.
    pub(crate) fn found(&self, key: NodeKey) -> Option<Arc<Node>> {
        let table = self.table();
        let id = table.by_key.get(&key)?;
        table.by_id.get(id).map(|(node, _)| node.clone())
    }

    /// The file with this name, known to the kernel once more.
    pub(crate) fn look_up(&self, parent: &Node, name: &OsStr) -> Result<(Arc<Node>, Stat), Errno> {
        let directory = parent.fd()?;
        parent.asked();
        let (fd, stat, key) = open_path(directory, name, self.by_birth)?;
        Ok((self.add(fd, &stat, key), stat))
    }

    /// The file of a descriptor of `O_PATH`, known to the kernel once more.
    pub(crate) fn know(&self, fd: OwnedFd) -> Result<(Arc<Node>, Stat), Errno> {
        let stat = fstat(&fd)?;
        let key = self.key(&fd, &stat);
        Ok((self.add(fd, &stat, key), stat))
    }

    fn add(&self, fd: OwnedFd, stat: &Stat, key: NodeKey) -> Arc<Node> {
        let kind = FileType::from_raw_mode(stat.st_mode);
        let mut table = self.table();
        let found = table.know(key, kind, |_| true);
        let node = found.unwrap_or_else(|| {
            let id = table.free_id(key.number);
            table.add(Node::new(id, key, kind, &self.calls))
        });
        if !node.is_held() {
            node.hold(fd);
        }
        node
    }

    /// The file that has this name as far as is known, known to the kernel once more. Nothing below is asked; nothing if it has to be.
    pub(crate) fn name(&self, parent: &Arc<Node>, name: &OsStr, key: NodeKey, kind: FileType) -> Option<Arc<Node>> {
        let mut table = self.table();
        let is_found = |node: &Node| node.comes_from(parent, name);
        if table.has(key, kind) {
            return table.know(key, kind, is_found);
        }
        let node = Node::new(table.free_id(key.number), key, kind, &self.calls);
        is_found(&node).then(|| table.add(node))
    }

    /// Holds what has this name below, if the kernel knows it by names alone: the name is about to go. Says which file has it.
    pub(crate) fn hold(&self, parent: &Node, name: &OsStr) -> Result<NodeKey, Errno> {
        let directory = parent.fd()?;
        parent.asked();
        let (fd, stat, key) = open_path(directory, name, self.by_birth)?;
        if let Some(node) = self.found(key)
            && node.is(&stat, key)
            && !node.is_held()
        {
            node.hold(fd);
        }
        Ok(key)
    }

    /// The kernel forgets `lookups` of its lookups.
    pub(crate) fn forget(&self, id: u64, lookups: u64) {
        let mut table = self.table();
        let Some((node, known)) = table.by_id.get_mut(&id) else { return };
        *known = known.saturating_sub(lookups);
        if *known > 0 || id == ROOT {
            return;
        }
        let key = node.key;
        table.by_id.remove(&id);
        // Another file may have its number by now.
        if table.by_key.get(&key) == Some(&id) {
            table.by_key.remove(&key);
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Whether this names a file of this kind. One of another kind is another file, whatever its number.
    fn has(&self, key: NodeKey, kind: FileType) -> bool {
        self.by_key.get(&key).and_then(|id| self.by_id.get(id)).is_some_and(|(node, _)| node.kind == kind)
    }

    /// The file of this kind that this names, known once more if `is_it`.
    fn know(&mut self, key: NodeKey, kind: FileType, is_it: impl FnOnce(&Node) -> bool) -> Option<Arc<Node>> {
        let (node, lookups) = self.by_id.get_mut(self.by_key.get(&key)?)?;
        if node.kind != kind || !is_it(node) {
            return None;
        }
        *lookups += 1;
        Some(node.clone())
    }

    fn add(&mut self, node: Node) -> Arc<Node> {
        let node = Arc::new(node);
        self.by_id.insert(node.id, (node.clone(), 1));
        self.by_key.insert(node.key, node.id);
        node
    }

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

#[cfg(test)]
mod tests;
