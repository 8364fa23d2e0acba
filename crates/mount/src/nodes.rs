//! Files that the kernel knows: each is held by a descriptor, so it lives on however it is renamed or unlinked.
//!
//! A file that is known from names alone, of a listing that did not come from below, is held by none until an operation needs it. Then its name
//! is looked up below, and what stands there must be the same file (rule B3): that of the same number, or, where a file is its path, of the same time and size. If it is not, the operation says `ESTALE`, upon
//! which the kernel asks for the names anew, and what was said of the names of that directory counts no more.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, openat};
use rustix::io::Errno;

use crate::names::attributes_of;
use crate::state::State;

/// The number of the root, in FUSE's protocol.
pub(crate) const ROOT: u64 = 1;

/// One file below that the kernel knows.
#[derive(Debug)]
pub(crate) struct Node {
    /// Its number in FUSE's protocol.
    pub(crate) id: u64,
    /// Its device and number below; not known of a file that is its path, before it is held.
    key: OnceLock<(u64, u64)>,
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
    origin: Mutex<Option<(Arc<Node>, OsString)>>,
    /// The directory and the name by which it was looked up last, where the kernel believes names.
    place: Mutex<Option<(u64, OsString)>>,
    /// How often the mount asked below.
    calls: Arc<AtomicU64>,
}

/// When a file changed last, in seconds and nanoseconds since 1970, and its bytes.
type PathVersion = ((i64, u32), u64);

/// What names a file that is known from names alone.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NamedBy {
    /// Its device and number.
    Number(u64, u64),
    /// Its path, with this version.
    Path(PathVersion),
}

impl Node {
    fn held(id: u64, fd: OwnedFd, stat: &Stat, calls: &Arc<AtomicU64>) -> Self {
        let by = NamedBy::Number(stat.st_dev, stat.st_ino);
        let node = Self::unheld(id, by, FileType::from_raw_mode(stat.st_mode), calls);
        node.hold(fd, key_of(stat));
        node
    }

    fn unheld(id: u64, by: NamedBy, kind: FileType, calls: &Arc<AtomicU64>) -> Self {
        let (key, number, version) = match by {
            NamedBy::Number(device, number) => (OnceLock::from((device, number)), None, None),
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

    /// Its device and number below, if they are known.
    pub(crate) fn key(&self) -> Option<(u64, u64)> {
        self.key.get().copied()
    }

    /// The number that programs see of the file that has this one below.
    pub(crate) fn number(&self, below: u64) -> u64 {
        self.number.unwrap_or(below)
    }

    /// Its path from the root of the file system below, as far as is known: the one that it is held by, or where it is looked up.
    pub(crate) fn path_inside(&self, root: &Path) -> Option<Vec<u8>> {
        let origin = self.origin().clone();
        if let (None, Some((parent, name))) = (self.held.get(), origin) {
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
        // It has none any more: another thread holds it by now.
        let Some((parent, name)) = origin else { return self.held.get().ok_or(Errno::STALE) };
        let directory = parent.fd()?;
        self.asked();
        match open_path(directory, &name) {
            Ok((fd, stat)) if self.is(&stat) => {
                self.hold(fd, key_of(&stat));
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
    fn is(&self, stat: &Stat) -> bool {
        let is_same = match (self.key(), self.version) {
            (Some(key), _) => key == key_of(stat),
            // What stands in a directory moves its times, and is looked up by itself.
            (None, Some(version)) => {
                let attributes = attributes_of(stat);
                self.kind == FileType::Directory || version == (attributes.modified, attributes.size)
            }
            (None, None) => false,
        };
        is_same && self.kind == FileType::from_raw_mode(stat.st_mode)
    }

    fn hold(&self, fd: OwnedFd, key: (u64, u64)) {
        _ = self.key.set(key);
        // Two threads may look it up: both have the same file.
        _ = self.held.set(fd);
        *self.origin() = None;
    }

    /// It is known by this name from now on. A directory keeps the name that it had: so no two directories stand in each other.
    fn comes_from(&self, parent: &Arc<Node>, name: &OsStr) {
        let mut origin = self.origin();
        if !self.is_held() && (origin.is_none() || self.kind != FileType::Directory) {
            *origin = Some((parent.clone(), name.to_owned()));
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

    fn origin(&self) -> MutexGuard<'_, Option<(Arc<Node>, OsString)>> {
        self.origin.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn path_of(fd: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// The path of what a descriptor holds, from the root of the file system below. A file that has no name any more has none.
pub(crate) fn path_inside(fd: &OwnedFd, root: &Path) -> Option<Vec<u8>> {
    let path = rustix::fs::readlink(path_of(fd), vec![]).ok()?;
    let inner = path.as_bytes().strip_prefix(root.as_os_str().as_bytes())?;
    // The kernel writes this behind the path of a file that has none any more.
    (!inner.ends_with(b" (deleted)")).then(|| inner.to_vec())
}

fn key_of(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

/// What has a name, and what is said of it.
fn open_path(directory: &OwnedFd, name: &OsStr) -> Result<(OwnedFd, Stat), Errno> {
    let fd = openat(directory, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let stat = fstat(&fd)?;
    Ok((fd, stat))
}

/// All files that the kernel knows.
#[derive(Debug)]
pub(crate) struct Nodes {
    table: Mutex<Table>,
    calls: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct Table {
    by_id: HashMap<u64, (Arc<Node>, u64)>,
    /// By device and number below. Two names of one file are one node.
    by_key: HashMap<(u64, u64), u64>,
    /// By directory and name, where a file is its path.
    by_place: Option<HashMap<(u64, OsString), u64>>,
    made: u64,
}

impl Nodes {
    /// `by_path` where a file is its path, and its number nothing that another mount knows.
    pub(crate) fn new(root: OwnedFd, by_path: bool) -> Result<Self, Errno> {
        let stat = fstat(&root)?;
        let (mut table, calls) = (Table::default(), Arc::default());
        table.by_place = by_path.then(HashMap::new);
        table.add(Node::held(ROOT, root, &stat, &calls));
        Ok(Nodes { table: Mutex::new(table), calls })
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

    /// The file of this device and number, if the kernel knows it.
    pub(crate) fn known(&self, device: u64, number: u64) -> Option<Arc<Node>> {
        let table = self.table();
        let id = table.by_key.get(&(device, number))?;
        table.by_id.get(id).map(|(node, _)| node.clone())
    }

    /// The file with this name, known to the kernel once more.
    pub(crate) fn look_up(&self, parent: &Node, name: &OsStr) -> Result<(Arc<Node>, Stat), Errno> {
        let directory = parent.fd()?;
        parent.asked();
        let (fd, stat) = open_path(directory, name)?;
        Ok((self.add(fd, &stat, (parent.id, name)), stat))
    }

    /// The file of a descriptor of `O_PATH`, found by this name, known to the kernel once more.
    pub(crate) fn know(&self, fd: OwnedFd, parent: &Node, name: &OsStr) -> Result<(Arc<Node>, Stat), Errno> {
        let stat = fstat(&fd)?;
        Ok((self.add(fd, &stat, (parent.id, name)), stat))
    }

    fn add(&self, fd: OwnedFd, stat: &Stat, place: (u64, &OsStr)) -> Arc<Node> {
        let (key, kind) = (key_of(stat), FileType::from_raw_mode(stat.st_mode));
        let mut table = self.table();
        let found = table.know(key, kind);
        // A file that is its path, and was not held yet.
        let found = found.or_else(|| table.know_place(place, kind, |node| node.key().is_none_or(|other| other == key)));
        let node = found.unwrap_or_else(|| {
            let id = table.free_id(stat.st_ino);
            table.add(Node::unheld(id, NamedBy::Number(key.0, key.1), kind, &self.calls))
        });
        if !node.is_held() {
            node.hold(fd, key);
        }
        table.by_key.insert(key, node.id);
        table.stands(place, &node);
        node
    }

    /// The file of this device and number that has this name as far as is known, known to the kernel once more. Nothing below is asked.
    pub(crate) fn name(&self, parent: &Arc<Node>, name: &OsStr, by: NamedBy, kind: FileType) -> Arc<Node> {
        let mut table = self.table();
        let place = (parent.id, name);
        let (found, wanted) = match by {
            NamedBy::Number(device, number) => (table.know((device, number), kind), number),
            NamedBy::Path(_) => (table.know_place(place, kind, |_| true), 0),
        };
        let node = found.unwrap_or_else(|| {
            let id = table.free_id(wanted);
            table.add(Node::unheld(id, by, kind, &self.calls))
        });
        table.stands(place, &node);
        node.comes_from(parent, name);
        node
    }

    /// The file that is known from names by this name of a directory, or that has this number.
    pub(crate) fn known_by(&self, parent: &Node, name: &OsStr, by: NamedBy) -> Option<Arc<Node>> {
        let table = self.table();
        let id = match by {
            NamedBy::Number(device, number) => table.by_key.get(&(device, number))?,
            NamedBy::Path(_) => table.by_place.as_ref()?.get(&(parent.id, name.to_owned()))?,
        };
        table.by_id.get(id).map(|(node, _)| node.clone())
    }

    /// Holds what has this name below, if the kernel knows it by names alone: the name is about to go. Says which file has it, and of what kind.
    pub(crate) fn hold(&self, parent: &Node, name: &OsStr) -> Result<((u64, u64), FileType), Errno> {
        let directory = parent.fd()?;
        parent.asked();
        let (fd, stat) = open_path(directory, name)?;
        let key = key_of(&stat);
        let mut table = self.table();
        let by_place = table.by_place.as_ref().and_then(|places| places.get(&(parent.id, name.to_owned())).copied());
        let id = table.by_key.get(&key).copied().or(by_place);
        if let Some((node, _)) = id.and_then(|id| table.by_id.get(&id))
            && !node.is_held()
            && node.is(&stat)
        {
            node.hold(fd, key);
            let id = node.id;
            table.by_key.insert(key, id);
        }
        Ok((key, FileType::from_raw_mode(stat.st_mode)))
    }

    /// A file went to another place, or has none any more. Where a file is its path, what has the old name afterwards is another one.
    pub(crate) fn moved(&self, key: (u64, u64), to: Option<(u64, &OsStr)>) {
        let mut table = self.table();
        if table.by_place.is_none() {
            return;
        }
        let Some((node, _)) = table.by_key.get(&key).and_then(|id| table.by_id.get(id)) else { return };
        let node = node.clone();
        match to {
            Some(place) => table.stands(place, &node),
            None => {
                table.leaves(node.place(), node.id);
                *node.place.lock().unwrap_or_else(PoisonError::into_inner) = None;
            }
        }
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
    /// The file of this key, known once more. One of another kind is another file, which was given the number after this one was gone.
    fn know(&mut self, key: (u64, u64), kind: FileType) -> Option<Arc<Node>> {
        let (node, lookups) = self.by_id.get_mut(self.by_key.get(&key)?)?;
        if node.kind != kind {
            return None;
        }
        *lookups += 1;
        Some(node.clone())
    }

    /// The file that was found by this name last, known once more, if `is_it`.
    fn know_place(
        &mut self,
        (parent, name): (u64, &OsStr),
        kind: FileType,
        is_it: impl FnOnce(&Node) -> bool,
    ) -> Option<Arc<Node>> {
        let id = self.by_place.as_ref()?.get(&(parent, name.to_owned()))?;
        let (node, lookups) = self.by_id.get_mut(id)?;
        if node.kind != kind || !is_it(node) {
            return None;
        }
        *lookups += 1;
        Some(node.clone())
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
