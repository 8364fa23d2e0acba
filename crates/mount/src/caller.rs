//! In whose name an operation below is done.

use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

/// The process that called, as the kernel says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Its thread.
    pub(crate) pid: u32,
}

/// Whether operations are done with each caller's identity. Only root can, and only a mount for all users needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Identities {
    Own,
    Callers,
}

/// While it lives, this thread acts as the caller. It goes back when it is dropped.
#[must_use]
pub(crate) struct Acting {
    is_other: bool,
}

impl Caller {
    /// Makes this thread act as the caller: user, group and supplementary groups. An error leaves the thread as it was.
    pub(crate) fn act(&self, identities: Identities) -> rustix::io::Result<Acting> {
        if identities == Identities::Own || (self.uid == 0 && self.gid == 0) {
            return Ok(Acting { is_other: false });
        }
        let acting = Acting { is_other: true };
        set_thread_groups(&self.groups())?;
        set_thread_res_gid(None, Gid::from_raw(self.gid), None)?;
        set_thread_res_uid(None, Uid::from_raw(self.uid), None)?;
        Ok(acting)
    }

    /// A caller that is gone already has its own group only.
    fn groups(&self) -> Vec<Gid> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap_or_default();
        line.split_whitespace().filter_map(|group| group.parse().ok()).map(Gid::from_raw).collect()
    }

    /// Whether a signal waits for the thread, so that it wants its system call to end. A thread that is gone wants that too.
    pub(crate) fn is_interrupted(&self) -> bool {
        let Ok(status) = std::fs::read_to_string(format!("/proc/{}/status", self.pid)) else { return true };
        let mask = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("0");
            u64::from_str_radix(line.trim(), 16).unwrap_or(0)
        };
        (mask("SigPnd:") | mask("ShdPnd:")) & !mask("SigBlk:") & !mask("SigIgn:") != 0
    }
}

impl Drop for Acting {
    fn drop(&mut self) {
        if !self.is_other {
            return;
        }
        let root = (Uid::ROOT, Gid::ROOT);
        let back = set_thread_res_uid(None, root.0, None)
            .and_then(|()| set_thread_res_gid(None, root.1, None))
            .and_then(|()| set_thread_groups(&[]));
        // A thread with another user's identity must serve nobody: the saved user is root, so this cannot fail on Linux.
        if back.is_err() {
            std::process::abort();
        }
    }
}
