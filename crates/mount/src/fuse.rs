//! The only module that knows the crate `fuser`: requests of the kernel to operations on [`Files`], and their answers back.

mod kernel;
mod session;
mod translate;

use std::cell::OnceCell;
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant, SystemTime};

use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, FileHandle, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, Request, TimeOrNow, WriteFlags,
};
use fuser::{
    ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLock,
    ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr,
};
use rustix::fs::{AtFlags, Timestamps};
use rustix::io::Errno;

use crate::cache::Pages;
use crate::caller::Caller;
use crate::files::{Change, Files, Sized};
use crate::locks::Range;
use crate::lookups::{FileLookup, NameLookup};
use crate::purge::PURGE;
pub(crate) use kernel::Kernel;
pub(crate) use session::{Mounting, Serving, serve};
use translate::{absent, attributes, kind, name_alone, timespec};

struct Fuse {
    files: Arc<Files>,
    believed: Duration,
    missed: Duration,
    kernel: Kernel,
}

const NO_GENERATION: Generation = Generation(0);

fn error(errno: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(errno.raw_os_error())
}

fn caller(request: &Request) -> Caller {
    Caller { uid: request.uid(), gid: request.gid(), pid: request.pid() }
}

macro_rules! answer {
    ($reply:expr, $result:expr, $done:expr) => {
        match $result {
            Ok(value) => $done($reply, value),
            Err(errno) => $reply.error(error(errno)),
        }
    };
}

macro_rules! done {
    ($reply:expr, $result:expr) => {
        answer!($reply, $result, |reply: ReplyEmpty, ()| reply.ok())
    };
}

/// What was asked below after `arrived` may be as old as that, so the kernel believes it for what is left.
fn left(believed: Duration, arrived: Instant) -> Duration {
    believed.saturating_sub(arrived.elapsed())
}

impl Fuse {
    fn entry(&self, reply: ReplyEntry, arrived: Instant, found: FileLookup) {
        let believed = self.believed(&found, arrived);
        reply.entry(&believed, &attributes(found.id, &found.attributes), NO_GENERATION);
    }

    /// How long the kernel may believe what was said of a file.
    fn believed(&self, found: &FileLookup, arrived: Instant) -> Duration {
        found
            .until
            .map_or_else(|| left(self.believed, arrived), |until| until.saturating_duration_since(Instant::now()))
    }

    /// What is taken off the time for which the kernel may believe an entry of a listing. If the answer takes longer, the kernel is made to ask anew.
    fn reserve(&self) -> Duration {
        (self.believed / 16).max(Duration::from_millis(10).min(self.believed))
    }

    fn told(&self, reply: ReplyAttr, arrived: Instant, found: FileLookup) {
        reply.attr(&self.believed(&found, arrived), &attributes(found.number, &found.attributes));
    }

    fn flags(pages: Pages) -> FopenFlags {
        match pages {
            Pages::Bypass => FopenFlags::FOPEN_DIRECT_IO,
            Pages::Fresh => FopenFlags::empty(),
            Pages::Keep => FopenFlags::FOPEN_KEEP_CACHE,
        }
    }
}

impl fuser::Filesystem for Fuse {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Each is asked for where the kernel has it. No writeback cache: it makes the kernel the owner of sizes and times.
        for wanted in [
            InitFlags::FUSE_POSIX_LOCKS,
            InitFlags::FUSE_ATOMIC_O_TRUNC,
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_HANDLE_KILLPRIV_V2,
            InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
        ] {
            _ = config.add_capabilities(wanted);
        }
        self.kernel.can(config.capabilities());
        // Times are the file system's own, to the nanosecond.
        _ = config.set_time_granularity(Duration::from_nanos(1));
        _ = config.set_max_write(1 << 20);
        Ok(())
    }

    fn destroy(&mut self) {
        self.files.has_ended.store(true, Relaxed);
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let arrived = Instant::now();
        match self.files.look_up(caller(request), parent.0, name) {
            Err(Errno::NOENT) if !self.missed.is_zero() => {
                reply.entry(&left(self.missed, arrived), &absent(), NO_GENERATION);
            }
            found => answer!(reply, found, |reply: ReplyEntry, found| match found {
                NameLookup::File(found) => self.entry(reply, arrived, found),
                NameLookup::Missing(until) => {
                    reply.entry(&until.saturating_duration_since(Instant::now()), &absent(), NO_GENERATION);
                }
            }),
        }
    }

    fn forget(&self, _: &Request, id: INodeNo, lookups: u64) {
        self.files.nodes.forget(id.0, lookups);
    }

    fn getattr(&self, _: &Request, id: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let arrived = Instant::now();
        answer!(reply, self.files.stat(id.0), |reply, found| self.told(reply, arrived, found));
    }

    fn setattr(
        &self,
        request: &Request,
        id: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _: Option<SystemTime>,
        handle: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let arrived = Instant::now();
        let sets_times = accessed.is_some() || modified.is_some();
        let times = Timestamps { last_access: timespec(accessed), last_modification: timespec(modified) };
        let change = Change { mode, uid, gid, size, times: sets_times.then_some(times) };
        let done = self.files.change(caller(request), id.0, handle.map(u64::from), &change);
        answer!(reply, done, |reply, found| self.told(reply, arrived, found));
    }

    fn readlink(&self, _: &Request, id: INodeNo, reply: ReplyData) {
        answer!(reply, self.files.read_link(id.0), |reply: ReplyData, target: Vec<u8>| reply.data(&target));
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        packed: u32,
        reply: ReplyEntry,
    ) {
        let arrived = Instant::now();
        let device = rustix::fs::makedev((packed >> 8) & 0xFFF, (packed & 0xFF) | ((packed >> 12) & 0xFFF00));
        let made = self.files.make_node(caller(request), parent.0, name, mode, device);
        answer!(reply, made, |reply, made| self.entry(reply, arrived, made));
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, _: u32, reply: ReplyEntry) {
        let arrived = Instant::now();
        let made = self.files.make_directory(caller(request), parent.0, name, mode);
        answer!(reply, made, |reply, made| self.entry(reply, arrived, made));
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let done = self.files.remove(caller(request), parent.0, name, AtFlags::empty());
        done!(reply, done);
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let done = self.files.remove(caller(request), parent.0, name, AtFlags::REMOVEDIR);
        done!(reply, done);
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let arrived = Instant::now();
        let made = self.files.make_link(caller(request), parent.0, name, target.as_os_str());
        answer!(reply, made, |reply, made| self.entry(reply, arrived, made));
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: fuser::RenameFlags,
        reply: ReplyEmpty,
    ) {
        let done = self.files.rename(caller(request), (parent.0, name), (new_parent.0, new_name), flags.bits());
        done!(reply, done);
    }

    fn link(&self, request: &Request, id: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let arrived = Instant::now();
        let made = self.files.hard_link(caller(request), id.0, parent.0, name);
        answer!(reply, made, |reply, made| self.entry(reply, arrived, made));
    }

    fn open(&self, request: &Request, id: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let opened = self.files.open(caller(request), id.0, flags.0);
        answer!(reply, opened, |reply: ReplyOpen, (handle, pages, is_news): (u64, Pages, bool)| {
            let opened = move || reply.opened(FileHandle(handle), Self::flags(pages));
            if !is_news {
                return opened();
            }
            // The program that opened it is shown what is there now.
            self.kernel.drop_opened(id.0, &self.files, handle, opened);
        });
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let arrived = Instant::now();
        let created = self.files.create(caller(request), parent.0, name, mode, flags);
        answer!(reply, created, |reply: ReplyCreate, (found, handle): (FileLookup, u64)| {
            let (handle, flags) = (FileHandle(handle), FopenFlags::FOPEN_DIRECT_IO);
            let (believed, attributes) = (self.believed(&found, arrived), attributes(found.id, &found.attributes));
            reply.created(&believed, &attributes, NO_GENERATION, handle, flags);
        });
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let read = self.files.read(handle.0, offset, size as usize);
        answer!(reply, read, |reply: ReplyData, bytes: Vec<u8>| reply.data(&bytes));
    }

    fn write(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        how: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        // Pages of a mapped file have their place, whatever the flags of the descriptor that the kernel guesses.
        let appends = flags.0 & libc::O_APPEND != 0 && !how.contains(WriteFlags::FUSE_WRITE_CACHE);
        let as_caller = how.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID).then(|| caller(request));
        let written = self.files.write(as_caller, handle.0, offset, data, appends);
        answer!(reply, written, |reply: ReplyWrite, bytes| reply.written(bytes as u32));
    }

    fn flush(&self, _: &Request, id: INodeNo, handle: FileHandle, owner: LockOwner, reply: ReplyEmpty) {
        done!(reply, self.files.flush(id.0, handle.0, owner.0));
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.files.release(handle.0);
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, handle: FileHandle, data_only: bool, reply: ReplyEmpty) {
        done!(reply, self.files.sync(handle.0, data_only));
    }

    fn opendir(&self, request: &Request, id: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let opened = self.files.open_directory(caller(request), id.0);
        answer!(reply, opened, |reply: ReplyOpen, handle| reply.opened(FileHandle(handle), FopenFlags::empty()));
    }

    fn readdir(&self, _: &Request, _: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let listed = self.files.list(handle.0, offset, None, |entry| {
            reply.add(INodeNo(entry.number), entry.next, kind(entry.kind), entry.name)
        });
        answer!(reply, listed, |reply: ReplyDirectory, ()| reply.ok());
    }

    fn readdirplus(&self, _: &Request, id: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectoryPlus) {
        let arrived = Instant::now();
        let (mut told, mut is_empty, first) = (vec![], true, OnceCell::new());
        // The kernel counts from the answer, and an entry has its time when it is added: what lies between is taken off before.
        let reserve = self.reserve();
        let passed = || first.get().map_or(Duration::ZERO, Instant::elapsed);
        // Asked before a file is looked up, which may take long.
        let is_late = || !reserve.is_zero() && passed() > reserve / 2;
        let listed = self.files.list(handle.0, offset, Some(&is_late), |entry| {
            first.get_or_init(Instant::now);
            let (believed, attributes) = match &entry.file {
                Some(file) => (self.believed(file, arrived), attributes(file.id, &file.attributes)),
                None => (Duration::ZERO, name_alone(entry.kind)),
            };
            let believed = believed.saturating_sub(reserve);
            let is_full = reply.add(attributes.ino, entry.next, entry.name, &believed, &attributes, NO_GENERATION);
            if let (Some(file), false) = (&entry.file, is_full || reserve.is_zero()) {
                told.push((file.id, entry.name.to_owned(), entry.kind == rustix::fs::FileType::Directory));
            }
            is_empty &= is_full;
            is_full
        });
        // The kernel forgets those lookups alone that it was told of, so they are told; it asks for the rest again.
        match listed {
            Err(errno) if is_empty => return reply.error(error(errno)),
            _ => reply.ok(),
        }
        if !reserve.is_zero() && passed() > reserve {
            self.kernel.drop_listed(id.0, told);
        }
    }

    fn releasedir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.files.handles.remove(handle.0);
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, handle: FileHandle, data_only: bool, reply: ReplyEmpty) {
        done!(reply, self.files.sync(handle.0, data_only));
    }

    fn statfs(&self, _: &Request, id: INodeNo, reply: ReplyStatfs) {
        answer!(reply, self.files.space(id.0), |reply: ReplyStatfs, space: rustix::fs::StatVfs| {
            reply.statfs(
                space.f_blocks,
                space.f_bfree,
                space.f_bavail,
                space.f_files,
                space.f_ffree,
                space.f_bsize as u32,
                space.f_namemax as u32,
                space.f_frsize as u32,
            );
        });
    }

    fn setxattr(
        &self,
        request: &Request,
        id: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        let done = self.files.set_attribute(caller(request), id.0, name, value, flags);
        done!(reply, done);
    }

    fn getxattr(&self, request: &Request, id: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        if name != PURGE || self.files.cache.is_none() {
            return answer!(reply, self.files.attribute(caller(request), id.0, name, size), sized);
        }
        let (files, kernel, caller) = (self.files.clone(), self.kernel.clone(), caller(request));
        let work = move || {
            let purged = files.purge(caller, id.0, &kernel);
            let value = purged.and_then(|purged| Sized::of(size, purged.text().into_bytes()));
            answer!(reply, value, sized);
        };
        _ = std::thread::Builder::new().name("purge".to_owned()).spawn(work);
    }

    fn listxattr(&self, request: &Request, id: INodeNo, size: u32, reply: ReplyXattr) {
        answer!(reply, self.files.attributes(caller(request), id.0, size), sized);
    }

    fn removexattr(&self, request: &Request, id: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let done = self.files.remove_attribute(caller(request), id.0, name);
        done!(reply, done);
    }

    fn access(&self, request: &Request, id: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        let done = self.files.access(caller(request), id.0, mask.bits());
        done!(reply, done);
    }

    fn getlk(
        &self,
        _: &Request,
        id: INodeNo,
        _: FileHandle,
        owner: LockOwner,
        start: u64,
        end: u64,
        kind: i32,
        _: u32,
        reply: ReplyLock,
    ) {
        let node = self.files.node(id.0);
        let asked = Range { start, end, kind };
        let found = node.and_then(|node| self.files.locks.conflict(&node, owner.0, asked));
        answer!(reply, found, |reply: ReplyLock, found: Option<Range>| match found {
            Some(other) => reply.locked(other.start, other.end, other.kind, 0),
            None => reply.locked(start, end, libc::F_UNLCK, 0),
        });
    }

    /// On a thread of its own where it may wait: for the lock, or for pages of the kernel that other requests must bring.
    fn setlk(
        &self,
        request: &Request,
        id: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        start: u64,
        end: u64,
        kind: i32,
        _: u32,
        waits: bool,
        reply: ReplyEmpty,
    ) {
        let (files, kernel, caller) = (self.files.clone(), self.kernel.clone(), caller(request));
        let range = Range { start, end, kind };
        let work = move || {
            let node = files.node(id.0);
            let done = node.and_then(|node| {
                let ended = || files.has_ended();
                let locks = &files.locks;
                let taken = if waits {
                    locks.wait(&node, (handle.0, owner.0), range, caller, ended)
                } else {
                    locks.set(&node, handle.0, owner.0, range)
                };
                taken?;
                if kind != libc::F_UNLCK && files.drops_at_lock(&node) {
                    kernel.drop_file(id.0);
                    if let Some((parent, name)) = node.place() {
                        kernel.drop_beside(parent, &name);
                    }
                }
                Ok(())
            });
            done!(reply, done);
        };
        if waits || self.files.cache.is_some() {
            _ = std::thread::Builder::new().name("lock".to_owned()).spawn(work);
        } else {
            work();
        }
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        bytes: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let done = self.files.allocate(handle.0, offset, bytes, mode);
        done!(reply, done);
    }

    fn lseek(&self, _: &Request, _: INodeNo, handle: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        let found = self.files.seek(handle.0, offset, whence);
        answer!(reply, found, |reply: ReplyLseek, offset| reply.offset(offset as i64));
    }

    fn copy_file_range(
        &self,
        _: &Request,
        _: INodeNo,
        from: FileHandle,
        from_offset: u64,
        _: INodeNo,
        to: FileHandle,
        to_offset: u64,
        bytes: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        // An answer has 32 bits for the length; programs ask again for the rest.
        let copied = self.files.copy((from.0, from_offset), (to.0, to_offset), bytes.min(1 << 30));
        answer!(reply, copied, |reply: ReplyWrite, bytes| reply.written(bytes as u32));
    }
}

fn sized(reply: ReplyXattr, value: Sized) {
    match value {
        Sized::Length(length) => reply.size(length),
        Sized::Value(value) => reply.data(&value),
    }
}
