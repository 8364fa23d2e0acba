//! A mount as the kernel has it, from its beginning to its end.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fuser::{BackgroundSession, Config, MountOption, Session, SessionACL};

use super::{Fuse, Kernel};
use crate::files::Files;

/// A session that serves; ends, with the mount, when it is dropped.
pub(crate) struct Serving(BackgroundSession);

/// How to mount.
pub(crate) struct Mounting<'a> {
    pub(crate) at: &'a Path,
    pub(crate) source: String,
    pub(crate) for_all: bool,
    pub(crate) threads: usize,
    /// How long the kernel may believe names and attributes.
    pub(crate) believed: Duration,
    /// How long it may believe that a name is missing.
    pub(crate) missed: Duration,
}

pub(crate) fn serve(files: Arc<Files>, mounting: &Mounting<'_>) -> io::Result<Serving> {
    let kernel = Kernel::default();
    let fuse = Fuse { files, believed: mounting.believed, missed: mounting.missed, kernel: kernel.clone() };
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(mounting.source.clone()),
        MountOption::Subtype("verbena".to_owned()),
        MountOption::NoSuid,
        MountOption::NoDev,
    ];
    if mounting.for_all {
        config.acl = SessionACL::All;
        config.mount_options.retain(|option| !matches!(option, MountOption::NoSuid | MountOption::NoDev));
        config.mount_options.extend([MountOption::Suid, MountOption::Dev]);
    }
    config.n_threads = Some(mounting.threads);
    config.clone_fd = true;
    let session = Session::new(fuse, mounting.at, &config)?;
    // Before any request is served: a lock or a purge has what it needs.
    kernel.is_there(session.notifier(), session.as_fd().try_clone_to_owned()?);
    Ok(Serving(session.spawn()?))
}

impl Serving {
    pub(crate) fn end(self) -> io::Result<()> {
        self.0.umount_and_join()
    }

    /// Waits until the mount is taken away.
    pub(crate) fn wait(self) -> io::Result<()> {
        self.0.join()
    }
}
