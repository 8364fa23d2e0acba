//! Every operation on the directory below, by file rather than by path.
//!
//! The kernel names a file by its node. A node holds the file itself (`O_PATH`), or finds it when it is needed and looks whether it is the same;
//! so no rename, hard link or unlink between two operations leads to another file. Nothing is kept here: each operation goes below, in the caller's name where the mount is
//! for all users, and answers what was answered there.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::fs::{
    Access, AtFlags, CWD, Dev, FallocateFlags, FileType, Mode, OFlags, RenameFlags, StatVfs, Timestamps, XattrFlags,
};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};

use crate::caller::{Acting, Caller, Identities};
use crate::explain::{EXPLAIN, LastAccess};
use crate::handles::{Handle, Handles};
use crate::locks::Locks;
use crate::lookups::FileLookup;
use crate::nodes::{Node, NodeKey, Nodes, ROOT, path_of};
use crate::status::{STATUS, status_text};

pub(crate) type Result<T> = std::result::Result<T, Errno>;

/// The directory below, as the kernel asks for it.
#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) nodes: Nodes,
    pub(crate) handles: Handles,
    pub(crate) locks: Locks,
    pub(crate) cache: Option<crate::cache::Cache>,
    /// What the bank may say of names, if that is anything.
    pub(crate) names: Option<crate::names::Names>,
    identities: Identities,
    /// Whether the kernel believes names for a while.
    pub(crate) believes: bool,
    /// The mount has ended: nobody waits for locks any more.
    pub(crate) has_ended: AtomicBool,
}

/// What `setattr` changes.
#[derive(Debug, Default)]
pub(crate) struct Change {
    pub(crate) mode: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) size: Option<u64>,
    pub(crate) times: Option<Timestamps>,
}

impl Files {
    /// Flags of an open that are passed below. `O_APPEND` is done write by write, for one description serves pages of mapped files
    /// too; `O_DIRECT` would ask for aligned buffers.
    const OPEN_FLAGS: OFlags = OFlags::RDONLY
        .union(OFlags::WRONLY)
        .union(OFlags::RDWR)
        .union(OFlags::TRUNC)
        .union(OFlags::SYNC)
        .union(OFlags::DSYNC)
        .union(OFlags::NOATIME)
        .union(OFlags::NONBLOCK);

    pub(crate) fn new(
        root: OwnedFd,
        identities: Identities,
        cache: Option<crate::cache::Cache>,
        names: Option<crate::names::Names>,
        believes: bool,
    ) -> Result<Self> {
        Ok(Files {
            nodes: Nodes::new(root, names.is_some())?,
            handles: Handles::default(),
            locks: Locks::default(),
            cache,
            names,
            identities,
            believes,
            has_ended: AtomicBool::new(false),
        })
    }

    pub(crate) fn act(&self, caller: Caller) -> Result<Acting> {
        caller.act(self.identities)
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Relaxed)
    }

    /// A lock was taken: says whether what was validated before it counts no more (rule B18).
    pub(crate) fn drops_at_lock(&self, node: &Node) -> bool {
        let drops = self.cache.as_ref().is_some_and(|cache| cache.rules().locks);
        if drops {
            node.state.lock_taken();
            self.changed(node);
            // What stands beside it says how it is to be read: a journal, a log.
            if let Some(parent) = self.parent(node) {
                self.changed(&parent);
            }
        }
        drops
    }

    /// This mount changed a file, or the names of a directory: what the bank said of it before counts no more.
    fn changed(&self, node: &Node) {
        if let Some(names) = &self.names {
            names.changed(node);
        }
    }

    /// The same for a file that had a name until now.
    fn changed_name(&self, found: Result<Option<NodeKey>>) {
        let Some(names) = &self.names else { return };
        match found {
            Ok(Some(key)) => names.changed_key(key),
            Ok(None) => {}
            // Which file it was is not known.
            Err(_) => names.distrust(),
        }
    }

    /// The directory in which the kernel knows a file.
    pub(crate) fn parent(&self, node: &Node) -> Option<Arc<Node>> {
        self.nodes.node(node.place()?.0).ok()
    }

    pub(crate) fn change(&self, caller: Caller, id: u64, handle: Option<u64>, change: &Change) -> Result<FileLookup> {
        let node = self.nodes.node(id)?;
        let _acting = self.act(caller)?;
        let changed = self.set(&node, handle, change);
        // Also where a part of it failed.
        self.changed(&node);
        changed?;
        node.asked();
        Ok(self.tell(&node, &rustix::fs::fstat(node.fd()?)?))
    }

    fn set(&self, node: &Node, handle: Option<u64>, change: &Change) -> Result<()> {
        let path = node.path()?;
        if let Some(mode) = change.mode {
            rustix::fs::chmod(&*path, Mode::from_raw_mode(mode & 0o7777))?;
        }
        if change.uid.is_some() || change.gid.is_some() {
            let (uid, gid) = (change.uid.map(Uid::from_raw), change.gid.map(Gid::from_raw));
            rustix::fs::chownat(node.fd()?, "", uid, gid, AtFlags::EMPTY_PATH)?;
        }
        if let Some(size) = change.size {
            // By a descriptor, whatever the file's mode says by now: `ftruncate` has one, `truncate` has none.
            match handle {
                Some(handle) => rustix::fs::ftruncate(self.handles.file(handle)?.fd()?, size)?,
                None => rustix::fs::ftruncate(node.open(OFlags::WRONLY | OFlags::NONBLOCK)?, size)?,
            }
            node.state.writer_opens();
            node.state.writer_closes();
        }
        if let Some(times) = &change.times {
            rustix::fs::utimensat(CWD, &*path, times, AtFlags::empty())?;
        }
        Ok(())
    }

    pub(crate) fn make_node(
        &self,
        caller: Caller,
        parent: u64,
        name: &OsStr,
        mode: u32,
        device: Dev,
    ) -> Result<FileLookup> {
        self.make(caller, parent, name, |parent| {
            let kind = FileType::from_raw_mode(mode);
            rustix::fs::mknodat(parent.fd()?, name, kind, Mode::from_raw_mode(mode & 0o7777), device)
        })
    }

    pub(crate) fn make_directory(&self, caller: Caller, parent: u64, name: &OsStr, mode: u32) -> Result<FileLookup> {
        self.make(caller, parent, name, |parent| {
            rustix::fs::mkdirat(parent.fd()?, name, Mode::from_raw_mode(mode & 0o7777))
        })
    }

    pub(crate) fn make_link(&self, caller: Caller, parent: u64, name: &OsStr, target: &OsStr) -> Result<FileLookup> {
        self.make(caller, parent, name, |parent| rustix::fs::symlinkat(target, parent.fd()?, name))
    }

    /// Another name for a file. By its path in /proc, since a link from a bare descriptor is root's alone.
    pub(crate) fn hard_link(&self, caller: Caller, id: u64, parent: u64, name: &OsStr) -> Result<FileLookup> {
        let node = self.nodes.node(id)?;
        let made = self.make(caller, parent, name, |parent| {
            rustix::fs::linkat(CWD, node.path()?, parent.fd()?, name, AtFlags::SYMLINK_FOLLOW)
        });
        self.changed(&node);
        made
    }

    fn make(
        &self,
        caller: Caller,
        parent: u64,
        name: &OsStr,
        make: impl FnOnce(&Node) -> Result<()>,
    ) -> Result<FileLookup> {
        let parent = self.nodes.node(parent)?;
        let _acting = self.act(caller)?;
        let made = make(&parent);
        self.changed(&parent);
        made?;
        let found = self.find(&parent, name)?;
        // What has its number now is not what had it before.
        self.changed(self.nodes.node(found.id)?.as_ref());
        Ok(found)
    }

    pub(crate) fn remove(&self, caller: Caller, parent: u64, name: &OsStr, flags: AtFlags) -> Result<()> {
        let parent = self.nodes.node(parent)?;
        let _acting = self.act(caller)?;
        let gone = self.hold(&parent, name);
        let removed = rustix::fs::unlinkat(parent.fd()?, name, flags);
        self.changed(&parent);
        self.changed_name(gone);
        removed
    }

    pub(crate) fn rename(
        &self,
        caller: Caller,
        (parent, name): (u64, &OsStr),
        (new_parent, new_name): (u64, &OsStr),
        flags: u32,
    ) -> Result<()> {
        let (parent, new_parent) = (self.nodes.node(parent)?, self.nodes.node(new_parent)?);
        let _acting = self.act(caller)?;
        let flags = RenameFlags::from_bits_retain(flags);
        let moved = [self.hold(&parent, name), self.hold(&new_parent, new_name)];
        let renamed = rustix::fs::renameat_with(parent.fd()?, name, new_parent.fd()?, new_name, flags);
        for (parent, moved) in [&parent, &new_parent].into_iter().zip(moved) {
            self.changed(parent);
            // The file at either end: they may have changed places.
            self.changed_name(moved);
        }
        renamed?;
        self.stands(moved[0], &new_parent, new_name);
        if flags.contains(RenameFlags::EXCHANGE) {
            self.stands(moved[1], &parent, name);
        }
        Ok(())
    }

    /// A file that was held for a rename has this name now.
    fn stands(&self, held: Result<Option<NodeKey>>, parent: &Node, name: &OsStr) {
        if let Ok(Some(key)) = held
            && let Some(node) = self.nodes.found(key)
        {
            node.stands(parent.id, name);
        }
    }

    pub(crate) fn access(&self, caller: Caller, id: u64, mask: i32) -> Result<()> {
        let node = self.nodes.node(id)?;
        if mask & libc::W_OK == 0 && self.all_may_search(&node) {
            // A program may work in it from now on, wherever it is moved.
            node.fd()?;
            return Ok(());
        }
        let _acting = self.act(caller)?;
        node.asked();
        rustix::fs::accessat(CWD, node.path()?, Access::from_bits_retain(mask as u32), AtFlags::EACCESS)
    }

    /// Opens a file. The number of its handle, how the kernel may use its pages, and whether what it believes of the file is to be dropped before.
    pub(crate) fn open(&self, caller: Caller, id: u64, flags: i32) -> Result<(u64, crate::cache::Pages, bool)> {
        let node = self.nodes.node(id)?;
        let flags = OFlags::from_bits_retain(flags as u32);
        let arrived = crate::cache::Arrival::now();
        let writes = writes(flags);
        // Counted before the file can be written, and before O_TRUNC does it.
        let writer = writes.then(|| crate::handles::Writer::new(node.clone()));
        let fd = {
            let _acting = self.act(caller)?;
            node.open(flags & Self::OPEN_FLAGS)?
        };
        let view = self.cache.as_ref().map(|cache| cache.opened(&node, &fd, flags, &arrived));
        let (pages, is_news) =
            view.as_ref().map_or((crate::cache::Pages::Bypass, false), |view| (view.pages, view.is_news));
        if writes {
            self.changed(&node);
        }
        Ok((self.handles.add(Handle::file(node, fd, writer, view)), pages, is_news))
    }

    /// The kernel has dropped what it believed of a file that was opened.
    pub(crate) fn dropped(&self, handle: u64) {
        if let Ok(handle) = self.handles.file(handle) {
            handle.node.state.dropped(true);
        }
    }

    /// It could not be made to, and the open fails.
    pub(crate) fn not_dropped(&self, handle: u64) {
        if let Ok(handle) = self.handles.file(handle) {
            handle.node.state.dropped(false);
        }
        self.release(handle);
    }

    /// Creates a file, or opens it if it is there by now. Its node, attributes and handle.
    pub(crate) fn create(
        &self,
        caller: Caller,
        parent: u64,
        name: &OsStr,
        mode: u32,
        flags: i32,
    ) -> Result<(FileLookup, u64)> {
        let parent = self.nodes.node(parent)?;
        let flags = OFlags::from_bits_retain(flags as u32);
        let fd = {
            let _acting = self.act(caller)?;
            let all = flags & (Self::OPEN_FLAGS | OFlags::EXCL) | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            rustix::fs::openat(parent.fd()?, name, all, Mode::from_raw_mode(mode & 0o7777))?
        };
        self.changed(&parent);
        let held = rustix::fs::open(path_of(&fd), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let (node, stat) = self.nodes.know(held)?;
        if self.believes {
            node.stands(parent.id, name);
        }
        let writer = writes(flags).then(|| crate::handles::Writer::new(node.clone()));
        self.changed(&node);
        let handle = self.handles.add(Handle::file(node.clone(), fd, writer, None));
        Ok((self.tell(&node, &stat), handle))
    }

    pub(crate) fn read(&self, handle: u64, offset: u64, bytes: usize) -> Result<Vec<u8>> {
        let handle = self.handles.file(handle)?;
        if let (Some(cache), Some(view)) = (&self.cache, &handle.view)
            && let Some(bytes) = cache.read(&handle, view, offset, bytes)?
        {
            return Ok(bytes);
        }
        read_at(handle.fd()?, offset, bytes)
    }

    /// `appends` writes at the end, wherever that is by now.
    pub(crate) fn write(
        &self,
        caller: Option<Caller>,
        handle: u64,
        offset: u64,
        data: &[u8],
        appends: bool,
    ) -> Result<usize> {
        let handle = self.handles.file(handle)?;
        // Where set-user-id bits must go, the kernel below takes them away from a writer that is not root.
        let _acting = caller.map(|caller| self.act(caller)).transpose()?;
        if appends {
            let data = [std::io::IoSlice::new(data)];
            return rustix::io::pwritev2(handle.fd()?, &data, offset, rustix::io::ReadWriteFlags::APPEND);
        }
        let mut written = 0;
        while written < data.len() {
            match rustix::io::pwrite(handle.fd()?, &data[written..], offset + written as u64) {
                Ok(0) => break,
                Ok(bytes) => written += bytes,
                Err(Errno::INTR) => {}
                Err(_) if written > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(written)
    }

    /// One descriptor of the caller was closed: its locks go, and errors that the file system below tells at a close are told.
    pub(crate) fn flush(&self, id: u64, handle: u64, owner: u64) -> Result<()> {
        let handle = self.handles.file(handle)?;
        self.locks.close(id, owner);
        let copy = rustix::io::fcntl_dupfd_cloexec(handle.fd()?, 0)?;
        nix::unistd::close(copy).map_err(|error| Errno::from_raw_os_error(error as i32))
    }

    /// An open file is closed for good.
    pub(crate) fn release(&self, number: u64) {
        self.locks.release(number);
        // The last write is before it, and while the handle lives nothing that was said before counts.
        if let Ok(handle) = self.handles.file(number)
            && handle.writes()
        {
            self.changed(&handle.node);
        }
        self.handles.remove(number);
    }

    pub(crate) fn sync(&self, handle: u64, data_only: bool) -> Result<()> {
        let handle = self.handles.file(handle)?;
        if data_only { rustix::fs::fdatasync(handle.fd()?) } else { rustix::fs::fsync(handle.fd()?) }
    }

    pub(crate) fn space(&self, id: u64) -> Result<StatVfs> {
        rustix::fs::fstatvfs(self.nodes.node(id)?.fd()?)
    }

    pub(crate) fn set_attribute(&self, caller: Caller, id: u64, name: &OsStr, value: &[u8], flags: i32) -> Result<()> {
        let node = self.nodes.node(id)?;
        let _acting = self.act(caller)?;
        let set = rustix::fs::setxattr(node.path()?, name, value, XattrFlags::from_bits_retain(flags as u32));
        self.changed(&node);
        set
    }

    /// The value, or how long it is where `size` is 0.
    pub(crate) fn attribute(&self, caller: Caller, id: u64, name: &OsStr, size: u32) -> Result<Sized> {
        let node = self.nodes.node(id)?;
        if id == ROOT && name == STATUS {
            return Sized::of(size, status_text(self).into_bytes());
        }
        if name == EXPLAIN && self.cache.is_some() {
            let last = self.nodes.node(id)?.state.last();
            let words = last.as_ref().map_or_else(|| "nothing: it was not opened here".to_owned(), LastAccess::words);
            return Sized::of(size, words.into_bytes());
        }
        if let Some(error) = self.lacks(&node, name) {
            return Err(error);
        }
        let _acting = self.act(caller)?;
        node.asked();
        Sized::ask(size, |buffer| rustix::fs::getxattr(node.path()?, name, buffer))
    }

    /// The names of all attributes, each with a 0 behind it, or how long they are together where `size` is 0.
    pub(crate) fn attributes(&self, caller: Caller, id: u64, size: u32) -> Result<Sized> {
        let node = self.nodes.node(id)?;
        let _acting = self.act(caller)?;
        node.asked();
        Sized::ask(size, |buffer| rustix::fs::listxattr(node.path()?, buffer))
    }

    pub(crate) fn remove_attribute(&self, caller: Caller, id: u64, name: &OsStr) -> Result<()> {
        let node = self.nodes.node(id)?;
        let _acting = self.act(caller)?;
        let removed = rustix::fs::removexattr(node.path()?, name);
        self.changed(&node);
        removed
    }

    pub(crate) fn allocate(&self, handle: u64, offset: u64, bytes: u64, mode: i32) -> Result<()> {
        let handle = self.handles.file(handle)?;
        rustix::fs::fallocate(handle.fd()?, FallocateFlags::from_bits_retain(mode as u32), offset, bytes)
    }

    /// The next data or hole; the kernel answers other kinds of seeking itself.
    pub(crate) fn seek(&self, handle: u64, offset: i64, whence: i32) -> Result<u64> {
        let handle = self.handles.file(handle)?;
        let offset = u64::try_from(offset).map_err(|_| Errno::NXIO)?;
        let position = match whence {
            libc::SEEK_DATA => rustix::fs::SeekFrom::Data(offset),
            libc::SEEK_HOLE => rustix::fs::SeekFrom::Hole(offset),
            _ => return Err(Errno::INVAL),
        };
        rustix::fs::seek(handle.fd()?, position)
    }

    pub(crate) fn copy(&self, (from, at): (u64, u64), (to, to_at): (u64, u64), bytes: u64) -> Result<usize> {
        let (from, to) = (self.handles.file(from)?, self.handles.file(to)?);
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        rustix::fs::copy_file_range(from.fd()?, Some(&mut { at }), to.fd()?, Some(&mut { to_at }), bytes)
    }

    pub(crate) fn node(&self, id: u64) -> Result<Arc<Node>> {
        self.nodes.node(id)
    }
}

/// A value, or only how long it is.
pub(crate) enum Sized {
    Length(u32),
    Value(Vec<u8>),
}

impl Sized {
    fn ask(size: u32, ask: impl FnOnce(&mut [u8]) -> Result<usize>) -> Result<Self> {
        let mut buffer = vec![0; size as usize];
        let length = ask(&mut buffer)?;
        if size == 0 {
            return Ok(Sized::Length(length as u32));
        }
        buffer.truncate(length);
        Ok(Sized::Value(buffer))
    }

    pub(crate) fn of(size: u32, value: Vec<u8>) -> Result<Self> {
        match size {
            0 => Ok(Sized::Length(value.len() as u32)),
            size if value.len() > size as usize => Err(Errno::RANGE),
            _ => Ok(Sized::Value(value)),
        }
    }
}

fn writes(flags: OFlags) -> bool {
    flags.intersects(OFlags::WRONLY | OFlags::RDWR | OFlags::TRUNC)
}

/// Reads until all is there or the file ends.
pub(crate) fn read_at(fd: &OwnedFd, offset: u64, bytes: usize) -> Result<Vec<u8>> {
    let mut buffer = vec![0; bytes];
    let mut filled = 0;
    while filled < bytes {
        match rustix::io::pread(fd, &mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(Errno::INTR) => {}
            Err(_) if filled > 0 => break,
            Err(error) => return Err(error),
        }
    }
    buffer.truncate(filled);
    Ok(buffer)
}
