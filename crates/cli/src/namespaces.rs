//! The right to make networks.

use std::fs;
use std::io;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{getegid, geteuid};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use verbena_namespaces::Namespace;

use crate::error::{Error, Result};

/// Sees to it that this process may make networks: it may, or it goes into a user namespace of its own where it does. This thread is the only one.
///
/// # Errors
/// [`Error::NoNetworks`]
pub fn may_make_networks() -> Result<()> {
    let Err(refused) = Namespace::new() else { return Ok(()) };
    enter_user_namespace().map_err(|source| Error::NoNetworks { source })?;
    // It can still be refused, by a security module for one.
    Namespace::new().map(drop).map_err(|_| Error::Wan(refused.into()))
}

fn enter_user_namespace() -> io::Result<()> {
    let (user, group) = (geteuid(), getegid());
    // The thread by which it was tried before has ended, but the kernel may not have put it away yet.
    let mut tries = 0;
    loop {
        // With a network of its own, to which it may come back from others: to that of before it may not.
        // SAFETY: files and memory stay as they are; only what this process may do and where changes.
        match unsafe { unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWNET) } {
            Err(Errno::INVAL) if tries < 100 => {
                tries += 1;
                std::thread::sleep(Duration::from_millis(1));
            }
            other => break other?,
        }
    }
    // A user that may not drop groups may map only its own group (user_namespaces(7)).
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {} 1", user.as_raw()))?;
    fs::write("/proc/self/gid_map", format!("0 {} 1", group.as_raw()))
}
