//! What the kernel keeps of files and names, and how it is told to drop it.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use fuser::{INodeNo, InitFlags, Notifier};

use crate::files::Files;

/// The kernel's side of a mount. Its calls may wait for requests of other programs, so no thread that serves those makes them.
#[derive(Clone, Default)]
pub(crate) struct Kernel(Arc<Inner>);

#[derive(Default)]
struct Inner {
    session: OnceLock<(Notifier, OwnedFd)>,
    /// Whether a name can be made to be asked for anew. Older kernels can only take it away.
    expires: AtomicBool,
}

impl Kernel {
    /// `FUSE_NOTIFY_INVAL_ENTRY` and `FUSE_EXPIRE_ONLY` of include/uapi/linux/fuse.h.
    const INVAL_ENTRY: u32 = 3;
    const EXPIRE_ONLY: u32 = 1;

    pub(super) fn is_there(&self, notifier: Notifier, device: OwnedFd) {
        _ = self.0.session.set((notifier, device));
    }

    pub(super) fn can(&self, capabilities: InitFlags) {
        self.0.expires.store(capabilities.contains(InitFlags::FUSE_HAS_EXPIRE_ONLY), Relaxed);
    }

    /// Drops pages and attributes of a file.
    pub(crate) fn drop_file(&self, id: u64) {
        if let Some((notifier, _)) = self.0.session.get() {
            // The kernel may have nothing of the file, and says so by an error.
            _ = notifier.inval_inode(INodeNo(id), 0, 0);
        }
    }

    /// Drops pages and attributes of a file that was opened, and then answers by `opened`; on a thread of its own.
    pub(super) fn drop_opened(&self, id: u64, files: &Arc<Files>, handle: u64, opened: impl FnOnce() + Send + 'static) {
        let (kernel, dropping) = (self.clone(), files.clone());
        let drop = move || {
            kernel.drop_file(id);
            dropping.dropped(handle);
            opened();
        };
        // Without a thread the open fails: `opened` goes with its answer, which is an error then.
        if std::thread::Builder::new().name("news".to_owned()).spawn(drop).is_err() {
            files.not_dropped(handle);
        }
    }

    /// Makes the kernel ask anew for names of a directory and for their files; on a thread of its own. Each with whether it is a directory.
    pub(super) fn drop_listed(&self, parent: u64, listed: Vec<(u64, OsString, bool)>) {
        let kernel = self.clone();
        let drop = move || {
            for (file, name, is_directory) in listed {
                kernel.drop_name(parent, &name, is_directory);
                kernel.drop_file(file);
            }
        };
        _ = std::thread::Builder::new().name("late".to_owned()).spawn(drop);
    }

    /// Makes the kernel ask anew for the names by which programs find, beside a file that they lock, what belongs to it: the journals of SQLite, and locks of mailboxes.
    pub(crate) fn drop_beside(&self, parent: u64, name: &OsStr) {
        for end in ["-journal", "-wal", "-shm", ".lock"] {
            self.drop_name(parent, &[name, OsStr::new(end)].into_iter().collect::<OsString>(), false);
        }
    }

    /// Makes the kernel ask for a name anew. Where it can only take a name away, a directory keeps its own: it would be cut off from
    /// programs that work in it, and from mounts inside it.
    ///
    /// Not by `fuser`, which has no way to let a name expire.
    pub(crate) fn drop_name(&self, parent: u64, name: &OsStr, is_directory: bool) {
        let Some((notifier, device)) = self.0.session.get() else { return };
        if !self.0.expires.load(Relaxed) {
            if !is_directory {
                _ = notifier.inval_entry(INodeNo(parent), name);
            }
            return;
        }
        // A header (length, code, 0), then the directory, the length of the name, flags, the name and a 0.
        let mut message = Vec::with_capacity(33 + name.len());
        message.extend((33 + name.len() as u32).to_ne_bytes());
        message.extend(Self::INVAL_ENTRY.to_ne_bytes());
        message.extend(0_u64.to_ne_bytes());
        message.extend(parent.to_ne_bytes());
        message.extend((name.len() as u32).to_ne_bytes());
        message.extend(Self::EXPIRE_ONLY.to_ne_bytes());
        message.extend(name.as_bytes());
        message.push(0);
        // As above.
        _ = rustix::io::write(device, &message);
    }
}
