//! POSIX locks of callers, taken below in the name of each owner.
//!
//! A lock of ours must be seen by programs that use the directory below, and two owners of this mount must exclude each other. So
//! each owner of locks on a file has an open file description of its own below, and its locks are those of the description
//! (`F_OFD_SETLK`). They go when the owner closes any descriptor of the file, as POSIX says; the kernel tells it by a flush.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::fcntl::{FcntlArg, fcntl};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::caller::Caller;
use crate::nodes::Node;

/// A range of a file and a kind of lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) start: u64,
    /// The last byte; `i64::MAX` is the end of the file, wherever that will be.
    pub(crate) end: u64,
    /// `F_RDLCK`, `F_WRLCK` or `F_UNLCK`.
    pub(crate) kind: i32,
}

/// Descriptions of owners, by node and owner.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    owners: Mutex<HashMap<(u64, u64), Owner>>,
}

/// An owner's description of a file below, and the open files of this mount through which it took locks.
#[derive(Debug)]
struct Owner {
    fd: Arc<OwnedFd>,
    handles: Vec<u64>,
}

impl Locks {
    /// Time between two tries of a lock that waits: first and last.
    const PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(32));

    /// The lock that keeps the owner from `range`, or nothing.
    pub(crate) fn conflict(&self, node: &Node, owner: u64, range: Range) -> Result<Option<Range>, Errno> {
        let known = self.owners().get(&(node.id, owner)).map(|owner| owner.fd.clone());
        let fd = match known {
            Some(fd) => fd,
            None => Arc::new(open(node)?),
        };
        let mut lock = range.flock();
        fcntl(&*fd, FcntlArg::F_OFD_GETLK(&mut lock)).map_err(errno)?;
        Ok(Range::of(&lock))
    }

    /// Takes, changes or gives back a lock, without waiting.
    pub(crate) fn set(&self, node: &Node, handle: u64, owner: u64, range: Range) -> Result<(), Errno> {
        let fd = self.owner(node, handle, owner)?;
        fcntl(&*fd, FcntlArg::F_OFD_SETLK(&range.flock())).map(|_| ()).map_err(errno)
    }

    /// Waits for a lock: until it is there, the caller has a signal, or `ended` says that nobody waits any more.
    /// The kernel's interrupts do not reach us through `fuser`, so the caller's pending signals are looked at.
    pub(crate) fn wait(
        &self,
        node: &Node,
        (handle, owner): (u64, u64),
        range: Range,
        caller: Caller,
        ended: impl Fn() -> bool,
    ) -> Result<(), Errno> {
        let mut pause = Self::PAUSES.0;
        loop {
            match self.set(node, handle, owner, range) {
                Err(Errno::AGAIN | Errno::ACCESS) => {}
                done => return done,
            }
            if ended() || caller.is_interrupted() {
                return Err(Errno::INTR);
            }
            std::thread::sleep(pause);
            pause = Self::PAUSES.1.min(pause * 2);
        }
    }

    /// The owner closed a descriptor of the file: all its locks on it go.
    pub(crate) fn close(&self, node: u64, owner: u64) {
        self.owners().remove(&(node, owner));
    }

    /// An open file is closed for good. Locks of open file descriptions (`F_OFD_SETLK`) end here, without a flush of their owner.
    pub(crate) fn release(&self, handle: u64) {
        self.owners().retain(|_, owner| !owner.handles.contains(&handle));
    }

    fn owner(&self, node: &Node, handle: u64, owner: u64) -> Result<Arc<OwnedFd>, Errno> {
        let key = (node.id, owner);
        let is_known = self.owners().contains_key(&key);
        let new = if is_known { None } else { Some(Arc::new(open(node)?)) };
        let mut owners = self.owners();
        let owner = match owners.entry(key) {
            Entry::Occupied(entry) => entry.into_mut(),
            // It closed its file meanwhile.
            Entry::Vacant(entry) => entry.insert(Owner { fd: new.ok_or(Errno::BADF)?, handles: vec![] }),
        };
        if !owner.handles.contains(&handle) {
            owner.handles.push(handle);
        }
        Ok(owner.fd.clone())
    }

    fn owners(&self) -> MutexGuard<'_, HashMap<(u64, u64), Owner>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The kernel has checked that the caller's own descriptor may take the lock.
fn open(node: &Node) -> Result<OwnedFd, Errno> {
    let modes = [OFlags::RDWR, OFlags::RDONLY, OFlags::WRONLY];
    let mut last = Errno::ACCESS;
    for mode in modes {
        match node.open(mode) {
            Ok(fd) => return Ok(fd),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn errno(error: nix::errno::Errno) -> Errno {
    Errno::from_raw_os_error(error as i32)
}

impl Range {
    fn flock(&self) -> libc::flock {
        let length = if self.end >= i64::MAX as u64 { 0 } else { self.end - self.start + 1 };
        libc::flock {
            l_type: self.kind as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: self.start as i64,
            l_len: length as i64,
            l_pid: 0,
        }
    }

    fn of(lock: &libc::flock) -> Option<Range> {
        let kind = i32::from(lock.l_type);
        let end = if lock.l_len == 0 { i64::MAX } else { lock.l_start.saturating_add(lock.l_len - 1) };
        (kind != libc::F_UNLCK).then_some(Range { start: lock.l_start as u64, end: end as u64, kind })
    }
}
