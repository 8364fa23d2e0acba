//! Files that the kernel knows: each is held by a descriptor, so it lives on however it is renamed or unlinked.
//!
//! A file that is known from names alone, of a listing that did not come from below, is held by none until an operation needs it. Then its name
//! is looked up below, and what stands there must be the same file (rule B3). If it is not, the operation says `ESTALE`, upon
//! which the kernel asks for the names anew, and what was said of the names of that directory counts no more.
//!
//! A number is no identity by itself: once a file is gone, another is given its number, and a file that is not held may go at any time. So a file that is
//! not held is named by its number and its time of birth, where the file system gives numbers again; or by its number alone, where it never does; or, where a file is its path, by its path, time and size.

mod key;

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, openat};
use rustix::io::Errno;

use crate::cache::attributes_of;
use crate::state::State;
use key::PathVersion;
pub(crate) use key::{NamedBy, Naming, NodeKey, born, path_inside, path_of};

/// The number of the root, in FUSE's protocol.
pub(crate) const ROOT: u64 = 1;

/// One file below that the kernel knows.
#[derive(Debug)]
pub(crate) struct Node {
    /// Its number in FUSE's protocol.
    pub(crate) id: u64,
    /// What names it below; not known of a file that is its path, before it is held.
    key: OnceLock<NodeKey>,
    /// The number that programs see, if it is not that of the file below.
    number: Option<u64>,
    /// What it is. A file of another kind is another one, whatever its number.
    pub(crate) kind: FileType,
    /// What the bank must know of it.
    pub(crate) state: State,
    /// Opened with `O_PATH`: the file itself, whatever its names are. While it is open the file's number is not given to another.
    held: OnceLock<OwnedFd>,
    /// Of a file that is its path: when it was changed and how large it was, as was said of it (rule B3).
    version: Option<PathVersion>,
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

    fn held(id: u64, fd: OwnedFd, stat: &Stat, key: NodeKey, calls: &Arc<AtomicU64>) -> Self {
        let node = Self::unheld(id, NamedBy::Number(key), FileType::from_raw_mode(stat.st_mode), calls);
        node.hold(fd, key);
        node
    }

    fn unheld(id: u64, by: NamedBy, kind: FileType, calls: &Arc<AtomicU64>) -> Self {
        let (key, number, version) = match by {
            // Another node may have the file's own number.
            NamedBy::Number(key) => (OnceLock::from(key), Some(id).filter(|id| ![ROOT, key.number].contains(id)), None),
            NamedBy::Path(version) => (OnceLock::new(), Some(id), Some(version)),
        };
        Node {
            id,
            key,
            number,
            kind,
            state: State::default(),
            held: OnceLock::new(),
            version,
            origin: Mutex::default(),
            place: Mutex::default(),
            calls: calls.clone(),
        }
    }

    /// What names it below, if that is known.
    pub(crate) fn key(&self) -> Option<NodeKey> {
        self.key.get().copied()
    }

    /// The number that programs see of the file that has this one below.
    pub(crate) fn number(&self, below: u64) -> u64 {
        self.number.unwrap_or(below)
    }

    /// Its path from the root of the file system below, as far as is known: the one that it is held by, or where it is looked up.
    pub(crate) fn path_inside(&self, root: &Path) -> Option<Vec<u8>> {
        let origin = self.origin().clone();
        if let (None, Some(Origin { parent, name, .. })) = (self.held.get(), origin) {
            let mut path = parent.path_inside(root)?;
            path.push(b'/');
            path.extend(name.as_bytes());
            return Some(path);
        }
        path_inside(self.held.get()?, root)
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
        // It has none any more: another thread holds it by now, or its name was taken away here.
        let Some(Origin { parent, name, .. }) = origin else { return self.held.get().ok_or(Errno::STALE) };
        let directory = parent.fd()?;
        self.asked();
        match open_path(directory, &name, self.key().is_some_and(|key| key.born.is_some())) {
            Ok((fd, stat, key)) if self.is(&stat, key) => {
                self.hold(fd, key);
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
        let is_same = match (self.key(), self.version) {
            (Some(own), _) => own == key,
            // What stands in a directory moves its times, and is looked up by itself.
            (None, Some(version)) => {
                let attributes = attributes_of(stat);
                self.kind == FileType::Directory || version == (attributes.modified, attributes.size)
            }
            (None, None) => false,
        };
        is_same && self.kind == FileType::from_raw_mode(stat.st_mode)
    }

    fn hold(&self, fd: OwnedFd, key: NodeKey) {
        _ = self.key.set(key);
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
    /// By directory and name, where a file is its path.
    by_place: Option<HashMap<(u64, OsString), u64>>,
    made: u64,
}

impl Nodes {
    pub(crate) fn new(root: OwnedFd, naming: Naming) -> Result<Self, Errno> {
        let stat = fstat(&root)?;
        let by_birth = naming == Naming::Birth;
        let key = NodeKey::of(&root, &stat, by_birth);
        let (mut table, calls) = (Table::default(), Arc::default());
        table.by_place = (naming == Naming::Path).then(HashMap::new);
        table.add(Node::held(ROOT, root, &stat, key, &calls));
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

    /// The file that this names, if the kernel knows it: that was found here last, where a file is its path.
    pub(crate) fn found(&self, key: NodeKey, place: Option<(u64, &OsStr)>) -> Option<Arc<Node>> {
        let table = self.table();
        let id = place.and_then(|place| table.at(place)).or_else(|| table.by_key.get(&key).copied())?;
        table.by_id.get(&id).map(|(node, _)| node.clone())
    }

    /// The file with this name, known to the kernel once more.
    pub(crate) fn look_up(&self, parent: &Node, name: &OsStr) -> Result<(Arc<Node>, Stat), Errno> {
        let directory = parent.fd()?;
        parent.asked();
        let (fd, stat, key) = open_path(directory, name, self.by_birth)?;
        Ok((self.add(fd, &stat, key, (parent.id, name)), stat))
    }

    /// The file of a descriptor of `O_PATH`, found by this name, known to the kernel once more.
    pub(crate) fn know(&self, fd: OwnedFd, parent: &Node, name: &OsStr) -> Result<(Arc<Node>, Stat), Errno> {
        let stat = fstat(&fd)?;
        let key = self.key(&fd, &stat);
        Ok((self.add(fd, &stat, key, (parent.id, name)), stat))
    }

    fn add(&self, fd: OwnedFd, stat: &Stat, key: NodeKey, place: (u64, &OsStr)) -> Arc<Node> {
        let kind = FileType::from_raw_mode(stat.st_mode);
        let mut table = self.table();
        let found = table.by_key.get(&key).copied();
        let found = found.and_then(|id| table.know(id, kind, |_| true));
        // A file that is its path, and was not held yet.
        let is_it = |node: &Node| node.key().is_none_or(|other| other == key);
        let found = found.or_else(|| table.at(place).and_then(|id| table.know(id, kind, is_it)));
        let node = found.unwrap_or_else(|| {
            let id = table.free_id(stat.st_ino);
            table.add(Node::unheld(id, NamedBy::Number(key), kind, &self.calls))
        });
        if !node.is_held() {
            node.hold(fd, key);
        }
        table.by_key.insert(key, node.id);
        table.stands(place, &node);
        node
    }

    /// The file that has this name as far as is known, known to the kernel once more. Nothing below is asked; nothing if it has to be.
    pub(crate) fn name(&self, parent: &Arc<Node>, name: &OsStr, by: NamedBy, kind: FileType) -> Option<Arc<Node>> {
        let mut table = self.table();
        let place = (parent.id, name);
        let (found, wanted) = match by {
            NamedBy::Number(key) => (table.by_key.get(&key).copied(), key.number),
            NamedBy::Path(_) => (table.at(place), 0),
        };
        let is_found = |node: &Node| node.comes_from(parent, name);
        let node = match found.filter(|id| table.is_of(*id, kind)) {
            Some(id) => table.know(id, kind, is_found)?,
            None => {
                let node = Node::unheld(table.free_id(wanted), by, kind, &self.calls);
                if !is_found(&node) {
                    return None;
                }
                table.add(node)
            }
        };
        table.stands(place, &node);
        Some(node)
    }

    /// The file that is known from names by this name of a directory, or by what names it.
    pub(crate) fn known_by(&self, parent: &Node, name: &OsStr, by: NamedBy) -> Option<Arc<Node>> {
        let table = self.table();
        let id = match by {
            NamedBy::Number(key) => *table.by_key.get(&key)?,
            NamedBy::Path(_) => table.at((parent.id, name))?,
        };
        table.by_id.get(&id).map(|(node, _)| node.clone())
    }

    /// Holds what has this name below, if the kernel knows it by names alone: the name is about to go. Says which file has it, and of what kind.
    pub(crate) fn hold(&self, parent: &Node, name: &OsStr) -> Result<(NodeKey, FileType), Errno> {
        let directory = parent.fd()?;
        parent.asked();
        let (fd, stat, key) = open_path(directory, name, self.by_birth)?;
        let mut table = self.table();
        let id = table.at((parent.id, name)).or_else(|| table.by_key.get(&key).copied());
        if let Some((node, _)) = id.and_then(|id| table.by_id.get(&id))
            && node.is(&stat, key)
        {
            if !node.is_held() {
                node.hold(fd, key);
            }
            let id = node.id;
            table.by_key.insert(key, id);
        }
        Ok((key, FileType::from_raw_mode(stat.st_mode)))
    }

    /// This mount took a name away, or gave its file another one; where they are exchanged, what had that one has the first now. Where a file is its path, what has an old name afterwards is another file.
    pub(crate) fn moved(&self, from: (u64, &OsStr), to: Option<(u64, &OsStr)>, are_exchanged: bool) {
        let mut table = self.table();
        let moved = table.take(from);
        let replaced = to.and_then(|to| table.take(to));
        moved.into_iter().for_each(|node| table.put(&node, to));
        replaced.into_iter().for_each(|node| table.put(&node, are_exchanged.then_some(from)));
    }

    /// The kernel forgets `lookups` of its lookups.
    pub(crate) fn forget(&self, id: u64, lookups: u64) {
        let mut table = self.table();
        let Some((node, known)) = table.by_id.get_mut(&id) else { return };
        *known = known.saturating_sub(lookups);
        if *known > 0 || id == ROOT {
            return;
        }
        let (key, place) = (node.key(), node.place());
        table.by_id.remove(&id);
        // Another file may have its number or its name by now.
        if let Some(key) = key
            && table.by_key.get(&key) == Some(&id)
        {
            table.by_key.remove(&key);
        }
        table.leaves(place, id);
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Whether a file is of this kind. One of another kind is another file, whatever its number.
    fn is_of(&self, id: u64, kind: FileType) -> bool {
        self.by_id.get(&id).is_some_and(|(node, _)| node.kind == kind)
    }

    /// This file of this kind, known once more if `is_it`.
    fn know(&mut self, id: u64, kind: FileType, is_it: impl FnOnce(&Node) -> bool) -> Option<Arc<Node>> {
        let (node, lookups) = self.by_id.get_mut(&id)?;
        if node.kind != kind || !is_it(node) {
            return None;
        }
        *lookups += 1;
        Some(node.clone())
    }

    /// The file that was found by this name last, where a file is its path.
    fn at(&self, (parent, name): (u64, &OsStr)) -> Option<u64> {
        self.by_place.as_ref()?.get(&(parent, name.to_owned())).copied()
    }

    /// The same, which does not have the name any more.
    fn take(&mut self, (parent, name): (u64, &OsStr)) -> Option<Arc<Node>> {
        let id = self.by_place.as_mut()?.remove(&(parent, name.to_owned()))?;
        self.by_id.get(&id).map(|(node, _)| node.clone())
    }

    /// A file whose name was taken away has this one. If it is not held it is found there alone, and nowhere without a name.
    fn put(&mut self, node: &Node, place: Option<(u64, &OsStr)>) {
        let above = place.and_then(|(parent, name)| Some((self.by_id.get(&parent)?.0.clone(), name)));
        if !node.is_held() {
            *node.origin() = above.map(|(parent, name)| Origin { parent, name: name.to_owned(), depth: 1 });
        }
        match place {
            Some(place) => self.stands(place, node),
            None => *node.place.lock().unwrap_or_else(PoisonError::into_inner) = None,
        }
    }

    /// A file was found by this name.
    fn stands(&mut self, (parent, name): (u64, &OsStr), node: &Node) {
        if self.by_place.is_none() {
            return;
        }
        let before = node.place();
        if before.as_ref().is_none_or(|(other, last)| *other != parent || last != name) {
            self.leaves(before, node.id);
        }
        node.stands(parent, name);
        if let Some(places) = &mut self.by_place {
            places.insert((parent, name.to_owned()), node.id);
        }
    }

    fn leaves(&mut self, place: Option<(u64, OsString)>, id: u64) {
        if let (Some(places), Some(place)) = (&mut self.by_place, place)
            && places.get(&place) == Some(&id)
        {
            places.remove(&place);
        }
    }

    fn add(&mut self, node: Node) -> Arc<Node> {
        let node = Arc::new(node);
        self.by_id.insert(node.id, (node.clone(), 1));
        if let Some(key) = node.key() {
            self.by_key.insert(key, node.id);
        }
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
