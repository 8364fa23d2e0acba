//! A directory below and a mount over it.

use std::fmt::Debug;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use verbena_mount::{MountOptions, Mounted, mount};

pub struct Pair {
    pub slow: PathBuf,
    pub fast: PathBuf,
    pub mounted: Option<Mounted>,
    _folder: TempDir,
}

impl Pair {
    /// Nothing if this machine cannot mount; says so.
    pub fn new(change: impl FnOnce(&mut MountOptions)) -> Option<Self> {
        if std::fs::File::options().read(true).write(true).open("/dev/fuse").is_err()
            || !rustix::process::geteuid().is_root()
        {
            eprintln!("skipped: no /dev/fuse, or not root");
            return None;
        }
        let folder = TempDir::new().unwrap();
        let (slow, fast) = (folder.path().join("slow"), folder.path().join("fast"));
        std::fs::create_dir(&slow).unwrap();
        std::fs::create_dir(&fast).unwrap();
        let mut options = MountOptions::new(&slow, &fast);
        options.threads = 4;
        change(&mut options);
        let mounted = mount(&options).unwrap();
        Some(Pair { slow, fast, mounted: Some(mounted), _folder: folder })
    }

    pub fn count(&self, name: &str) -> u64 {
        let status = self.mounted.as_ref().unwrap().status();
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in {status}")).parse().unwrap()
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        // After a failure files may still be open.
        _ = verbena_mount::umount(&self.fast, true);
    }
}

/// A result as both sides must show it.
pub fn said<T: Debug, E: Into<io::Error>>(result: Result<T, E>) -> String {
    match result {
        Ok(value) => format!("{value:?}"),
        Err(error) => {
            let error: io::Error = error.into();
            error.raw_os_error().map_or_else(|| format!("{error}"), |code| format!("errno {code}"))
        }
    }
}

pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(60), "not within 60 s: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
