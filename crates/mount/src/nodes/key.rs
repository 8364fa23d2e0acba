//! What names a file below.

use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, Stat, StatxFlags, statx};

/// What names a file below. While the file is held no other one has the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NodeKey {
    pub(crate) device: u64,
    pub(crate) number: u64,
    /// When it was made, in seconds and nanoseconds since 1970, where names come from the bank: then no other file ever has the same.
    pub(crate) born: Option<(i64, u32)>,
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
