//! What names a file below.

use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, Stat, StatxFlags, statx};

/// When a file changed last, in seconds and nanoseconds since 1970, and its bytes.
pub(super) type PathVersion = ((i64, u32), u64);

/// What names a file below. While the file is held no other one has the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NodeKey {
    pub(crate) device: u64,
    pub(crate) number: u64,
    /// When it was made, in seconds and nanoseconds since 1970, where numbers are given again: then no other file ever has the same.
    pub(crate) born: Option<(i64, u32)>,
}

/// What names a file that is known from names alone.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NamedBy {
    /// What no other file will have.
    Number(NodeKey),
    /// Its path, with this version.
    Path(PathVersion),
}

/// Whether files are found by something else than the number of an open one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Naming {
    /// By the number alone: each file is held, or its number is never given again.
    Number,
    /// By the number and the time of birth.
    Birth,
    /// By the path: its number is nothing that another mount knows.
    Path,
}

impl NodeKey {
    /// Of an open file. It has a time of birth where `by_birth`, and the file system has one of this file.
    pub(crate) fn of(fd: &OwnedFd, stat: &Stat, by_birth: bool) -> Self {
        let born = if by_birth { born(fd) } else { None };
        NodeKey { device: stat.st_dev, number: stat.st_ino, born }
    }
}

/// When a file was made, if its file system says so. Nothing is asked of a server: what it told with the name is enough.
pub(crate) fn born(fd: &OwnedFd) -> Option<(i64, u32)> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let told = statx(fd, "", flags, StatxFlags::BTIME).ok()?;
    let has_time = told.stx_mask & StatxFlags::BTIME.bits() != 0;
    has_time.then_some((told.stx_btime.tv_sec, told.stx_btime.tv_nsec))
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
