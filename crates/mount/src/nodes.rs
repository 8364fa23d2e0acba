//! Files that the kernel knows: each is held by a descriptor, so it lives on however it is renamed or unlinked.
//!
//! A file that is known from names alone, of a listing that did not come from below, is held by none until an operation needs it. Then its name
//! is looked up below, and what stands there must be the same file (rule B3). If it is not, the operation says `ESTALE`, upon
//! which the kernel asks for the names anew, and what was said of the names of that directory counts no more.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, openat};
use rustix::io::Errno;

use crate::state::State;

/// The number of the root, in FUSE's protocol.
pub(crate) const ROOT: u64 = 1;

/// One file below that the kernel knows.
#[derive(Debug)]
pub(crate) struct Node {
    /// Its number in FUSE's protocol.
    pub(crate) id: u64,
    /// Its device and number below.
    pub(crate) key: (u64, u64),
    /// What it is. A file of another kind is another one, whatever its number.
    pub(crate) kind: FileType,
    /// What the bank must know of it.
    pub(crate) state: State,
    /// Opened with `O_PATH`: the file itself, whatever its names are. While it is open the file's number is not given to another.
    held: OnceLock<OwnedFd>,
    /// Where it is looked up when it is needed, while it is not held.
    origin: Mutex<Option<(Arc<Node>, OsString)>>,
    /// The directory and the name by which it was looked up last, where the kernel believes names.
    place: Mutex<Option<(u64, OsString)>>,
    /// How often the mount asked below.
    calls: Arc<AtomicU64>,
}

impl Node {
    fn held(id: u64, fd: OwnedFd, stat: &Stat, calls: &Arc<AtomicU64>) -> Self {
        let node = Self::unheld(id, key_of(stat), FileType::from_raw_mode(stat.st_mode), calls);
        node.hold(fd);
        node
    }

    fn unheld(id: u64, key: (u64, u64), kind: FileType, calls: &Arc<AtomicU64>) -> Self {
        let (origin, place, calls) = (Mutex::default(), Mutex::default(), calls.clone());
        Node { id, key, kind, state: State::default(), held: OnceLock::new(), origin, place, calls }
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
    fn is(&self, stat: &Stat) -> bool {
        self.key == key_of(stat) && self.kind == FileType::from_raw_mode(stat.st_mode)
    }

    fn hold(&self, fd: OwnedFd) {
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
    made: u64,
}

impl Nodes {
    pub(crate) fn new(root: OwnedFd) -> Result<Self, Errno> {
        let stat = fstat(&root)?;
        let (mut table, calls) = (Table::default(), Arc::default());
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
        Ok((self.add(fd, &stat), stat))
    }

    /// The file of a descriptor of `O_PATH`, known to the kernel once more.
    pub(crate) fn know(&self, fd: OwnedFd) -> Result<(Arc<Node>, Stat), Errno> {
        let stat = fstat(&fd)?;
        Ok((self.add(fd, &stat), stat))
    }

    fn add(&self, fd: OwnedFd, stat: &Stat) -> Arc<Node> {
        let kind = FileType::from_raw_mode(stat.st_mode);
        let mut table = self.table();
        if let Some(node) = table.know(key_of(stat), kind) {
            if !node.is_held() {
                node.hold(fd);
            }
            return node;
        }
        let id = table.free_id(stat.st_ino);
        table.add(Node::held(id, fd, stat, &self.calls))
    }

    /// The file of this device and number that has this name as far as is known, known to the kernel once more. Nothing below is asked.
    pub(crate) fn name(&self, parent: &Arc<Node>, name: &OsStr, key: (u64, u64), kind: FileType) -> Arc<Node> {
        let mut table = self.table();
        let node = table.know(key, kind).unwrap_or_else(|| {
            let id = table.free_id(key.1);
            table.add(Node::unheld(id, key, kind, &self.calls))
        });
        node.comes_from(parent, name);
        node
    }

    /// Holds what has this name below, if the kernel knows it by names alone: the name is about to go. Says which file has it.
    pub(crate) fn hold(&self, parent: &Node, name: &OsStr) -> Result<(u64, u64), Errno> {
        let directory = parent.fd()?;
        parent.asked();
        let (fd, stat) = open_path(directory, name)?;
        let key = key_of(&stat);
        if let Some(node) = self.known(key.0, key.1)
            && !node.is_held()
            && node.is(&stat)
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
    /// The file of this key, known once more. One of another kind is another file, which was given the number after this one was gone.
    fn know(&mut self, key: (u64, u64), kind: FileType) -> Option<Arc<Node>> {
        let (node, lookups) = self.by_id.get_mut(self.by_key.get(&key)?)?;
        if node.kind != kind {
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
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;

    use super::*;

    fn nodes(root: &Path) -> Nodes {
        Nodes::new(crate::below::hold(root).unwrap()).unwrap()
    }

    fn key(path: &Path) -> (u64, u64) {
        let told = path.symlink_metadata().unwrap();
        (told.dev(), told.ino())
    }

    fn named(nodes: &Nodes, parent: &Arc<Node>, root: &Path, path: &str, kind: FileType) -> Arc<Node> {
        let path = root.join(path);
        nodes.name(parent, path.file_name().unwrap(), key(&path), kind)
    }

    #[test]
    fn a_file_known_by_names_alone_is_held_when_it_is_needed() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::write(root.join("a/b/f"), b"text").unwrap();
        let nodes = nodes(root);
        let top = nodes.node(ROOT).unwrap();
        let a = named(&nodes, &top, root, "a", FileType::Directory);
        let b = named(&nodes, &a, root, "a/b", FileType::Directory);
        let f = named(&nodes, &b, root, "a/b/f", FileType::RegularFile);
        assert!(![&a, &b, &f].iter().any(|node| node.is_held()));
        assert_eq!((f.id, nodes.len()), (key(&root.join("a/b/f")).1, 4));
        assert_eq!(fs::read(f.path().unwrap()).unwrap(), b"text");
        assert!([&a, &b, &f].iter().all(|node| node.is_held()));
        // It lives on without its name, and is the same node by whatever way it is looked up.
        fs::rename(root.join("a/b/f"), root.join("g")).unwrap();
        assert_eq!(fs::read(f.path().unwrap()).unwrap(), b"text");
        assert!(Arc::ptr_eq(&f, &nodes.look_up(&top, OsStr::new("g")).unwrap().0));
        nodes.forget(f.id, 2);
        nodes.forget(b.id, 1);
        assert_eq!(nodes.len(), 2);
        assert!(nodes.known(f.key.0, f.key.1).is_none());
    }

    #[test]
    fn another_file_of_the_name_is_not_taken_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for name in ["replaced", "gone", "moved"] {
            fs::write(root.join(name), b"old").unwrap();
        }
        let nodes = nodes(root);
        let top = nodes.node(ROOT).unwrap();
        let [replaced, gone, moved] =
            ["replaced", "gone", "moved"].map(|name| named(&nodes, &top, root, name, FileType::RegularFile));
        assert_eq!(top.state.names_since(), 0);
        fs::write(root.join("new"), b"new").unwrap();
        fs::rename(root.join("new"), root.join("replaced")).unwrap();
        fs::remove_file(root.join("gone")).unwrap();
        fs::rename(root.join("moved"), root.join("elsewhere")).unwrap();
        for node in [&replaced, &gone, &moved] {
            assert_eq!(node.fd().unwrap_err(), Errno::STALE);
        }
        assert!(top.state.names_since() > 0, "the names of the directory are not believed any more");
        // What moved is the same file where it is found.
        assert!(Arc::ptr_eq(&moved, &nodes.look_up(&top, OsStr::new("elsewhere")).unwrap().0));
        assert_eq!(fs::read(moved.path().unwrap()).unwrap(), b"old");
        assert!(!Arc::ptr_eq(&replaced, &nodes.look_up(&top, OsStr::new("replaced")).unwrap().0));
    }

    #[test]
    fn a_file_is_held_before_its_name_goes() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::write(root.join("f"), b"text").unwrap();
        let nodes = nodes(root);
        let top = nodes.node(ROOT).unwrap();
        let f = named(&nodes, &top, root, "f", FileType::RegularFile);
        assert_eq!(nodes.hold(&top, OsStr::new("f")).unwrap(), f.key);
        fs::remove_file(root.join("f")).unwrap();
        assert_eq!(fs::read(f.path().unwrap()).unwrap(), b"text");
        assert_eq!(fstat(f.fd().unwrap()).unwrap().st_nlink, 0);
    }

    #[test]
    fn a_number_that_was_given_to_a_file_of_another_kind_is_another_node() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::create_dir(root.join("d")).unwrap();
        let nodes = nodes(root);
        let top = nodes.node(ROOT).unwrap();
        let old = named(&nodes, &top, root, "d", FileType::RegularFile);
        assert_eq!(old.fd().unwrap_err(), Errno::STALE);
        let (new, _) = nodes.look_up(&top, OsStr::new("d")).unwrap();
        assert!(new.id != old.id && new.key == old.key);
        nodes.forget(old.id, 1);
        assert!(Arc::ptr_eq(&new, &nodes.known(new.key.0, new.key.1).unwrap()));
    }
}
