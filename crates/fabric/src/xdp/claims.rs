//! The claims to shares of a program: a file in memory, of which byte n is locked by the process that has share n.
//!
//! The lock belongs to an open file (`F_OFD_SETLK`): it is gone when the process that opened it is, by whatever end.
//! Only a process that was handed the file can take it.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use rustix::fs::{MemfdFlags, memfd_create};

use crate::error::{Error, Result};

/// The file, opened without a lock: so it is handed on.
pub(super) struct Claims(OwnedFd);

/// A share that no other process can have while this value exists.
pub(super) struct Claimed {
    share: u32,
    _locked: File,
}

impl Claims {
    /// Of a program of which no share is taken yet.
    pub(super) fn new() -> Result<Self> {
        let made = memfd_create("verbena-xdp-shares", MemfdFlags::CLOEXEC);
        made.map(Claims).map_err(|error| Error::system("make a file of locks", error))
    }

    /// Those that another process handed on.
    pub(super) fn of(file: OwnedFd) -> Self {
        Claims(file)
    }

    /// Claims a share; `None` if another process has it.
    pub(super) fn take(&self, share: u32) -> Result<Option<Claimed>> {
        let failed = |error: std::io::Error| Error::system("lock a share", error);
        // Opened anew: what is handed on must not hold the lock when this process is gone.
        let path = format!("/proc/self/fd/{}", self.0.as_raw_fd());
        let file = File::options().read(true).write(true).open(path).map_err(failed)?;
        let byte = libc::flock {
            l_type: libc::F_WRLCK as i16,
            l_whence: libc::SEEK_SET as i16,
            l_start: share.into(),
            l_len: 1,
            l_pid: 0,
        };
        match fcntl(&file, FcntlArg::F_OFD_SETLK(&byte)) {
            Ok(_) => Ok(Some(Claimed { share, _locked: file })),
            Err(Errno::EAGAIN | Errno::EACCES) => Ok(None),
            Err(error) => Err(failed(error.into())),
        }
    }
}

impl AsFd for Claims {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Claimed {
    /// Which it is.
    pub(super) fn share(&self) -> u32 {
        self.share
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_one_process_s_until_it_lets_go() {
        let claims = Claims::new().unwrap();
        let handed_on = Claims::of(claims.as_fd().try_clone_to_owned().unwrap());
        let first = claims.take(3).unwrap().unwrap();
        assert!(handed_on.take(3).unwrap().is_none() && claims.take(3).unwrap().is_none());
        assert_eq!(handed_on.take(4).unwrap().map(|claimed| claimed.share()), Some(4));
        // What was handed on stays open and holds nothing.
        drop((first, claims));
        assert!(handed_on.take(3).unwrap().is_some());
    }
}
