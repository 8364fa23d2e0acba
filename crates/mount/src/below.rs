//! What the file system below can carry, measured or looked at (rules B3, B13 and B14).

use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, CWD, OFlags, Timespec, Timestamps};
use verbena_bank::{Clocks, Time};

use crate::nodes::born;

/// What names a file for all clients of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// Its number, which the file system or its server gives. Hard links are one file, a rename changes nothing.
    Number,
    /// Its path below the root. Hard links are two files, and a renamed file is another one.
    Path,
}

/// What is known of the file system below a mount.
#[derive(Clone, Debug)]
pub struct Below {
    /// Its kind, as `/proc/self/mountinfo` names it.
    pub kind: String,
    /// The directory itself, without links.
    pub root: PathBuf,
    /// What names a file.
    pub identity: Identity,
    /// How far its times can be trusted.
    pub clocks: Clocks,
    /// Whether the times were measured on a scratch file. If not, the directory cannot be written and the worst is taken.
    pub measured: bool,
    /// Device of the root. Files of another are not cached.
    pub device: u64,
    /// Number of the file system, as `statfs` gives it; 0 if it has none.
    pub filesystem: u64,
    /// Whether a name in other letters is another name, as far as the directory itself shows it.
    pub(crate) lists_all: bool,
    /// Whether files have a time of birth by this machine's clock: with its number it names a file for good. Only then names come from the bank.
    pub has_births: bool,
}

const SECOND: Time = 1_000_000_000;

impl Below {
    /// Kinds whose file numbers are given by the file system, or by its server for all clients.
    const NUMBERED: [&str; 11] =
        ["ext2", "ext3", "ext4", "xfs", "btrfs", "tmpfs", "f2fs", "nfs", "nfs4", "ceph", "fuse.glusterfs"];

    /// Kinds whose times come from this machine's own clock.
    const LOCAL: [&str; 7] = ["ext2", "ext3", "ext4", "xfs", "btrfs", "tmpfs", "f2fs"];

    /// Looks at a directory, and measures on a scratch file in it where it can be written.
    pub fn look(root: &Path) -> std::io::Result<Self> {
        let root = root.canonicalize()?;
        let device = root.metadata()?.dev();
        let filesystem = rustix::fs::statvfs(&root).map_or(0, |stat| stat.f_fsid);
        let kind = kind_of(&root).unwrap_or_else(|| "unknown".to_owned());
        let identity = if Self::NUMBERED.contains(&kind.as_str()) { Identity::Number } else { Identity::Path };
        let has_births = Self::LOCAL.contains(&kind.as_str()) && hold(&root).is_ok_and(|root| born(&root).is_some());
        let mut measured = measure(&root);
        if let Some(clocks) = &mut measured
            && Self::LOCAL.contains(&kind.as_str())
        {
            clocks.ahead = 0;
        }
        // Of xfs all directories may fold letters, of others each says so.
        let lists_all = kind != "xfs" || tells_letters(&root);
        let clocks = measured.unwrap_or(Clocks { grain: 2 * SECOND, ahead: 2 * SECOND, has_changed: false });
        let measured = measured.is_some();
        Ok(Below { kind, root, identity, clocks, measured, device, filesystem, lists_all, has_births })
    }

    /// What tells this file system from all others whose names stand in the bank. No answer if the machine cannot be told from others.
    pub(crate) fn place(&self) -> Option<Vec<u8>> {
        // Of one start of one kernel. A machine that was copied has all other marks of the first.
        let kernel = std::fs::read("/proc/sys/kernel/random/boot_id").ok()?;
        // A container may count from another start of the machine.
        let clock = std::fs::read_link("/proc/self/ns/time").unwrap_or_default();
        let source = mount_of(&self.root).map(|mount| mount.source)?;
        let numbers = [self.device.to_le_bytes(), self.filesystem.to_le_bytes()].concat();
        Some([&kernel[..], clock.as_os_str().as_bytes(), &numbers, source.as_bytes()].concat())
    }

    /// What weakens a promise here, one sentence each.
    pub fn weaknesses(&self) -> Vec<String> {
        let mut said = vec![];
        let kind = &self.kind;
        if self.identity == Identity::Path {
            said.push(format!(
                "{kind} has no file numbers that all clients share: a file is its path, a renamed file is read anew"
            ));
        }
        if !self.has_births {
            said.push(format!(
                "{kind} tells no times of birth by this machine's clock, so a file is not known by its name alone: no name comes from the bank"
            ));
        }
        if !self.clocks.has_changed {
            said.push(format!(
                "{kind} has no change time of its own: mtime and size only. A change that restores both is not seen"
            ));
        }
        if self.clocks.grain >= SECOND {
            said.push(format!(
                "{kind} has times in steps of {} s: a file is cached once it is that old",
                self.clocks.grain / SECOND
            ));
        }
        if !self.measured {
            said.push("the directory cannot be written, so its times were not measured: the worst is taken".to_owned());
        }
        said
    }

    /// How old a change must be before its file is cached.
    pub fn margin(&self) -> Duration {
        Duration::from_nanos(u64::try_from(self.clocks.margin()).unwrap_or(0))
    }
}

/// The kind of the mount that a directory is on: the last of those with the longest path, for a mount can cover another.
pub(crate) fn kind_of(path: &Path) -> Option<String> {
    mount_of(path).map(|mount| mount.kind)
}

fn mount_of(path: &Path) -> Option<MountLine> {
    let covers = mounts()?.into_iter().filter(|mount| path.starts_with(&mount.point));
    covers.max_by_key(|mount| mount.point.as_os_str().len())
}

/// A line of `/proc/self/mountinfo`.
pub(crate) struct MountLine {
    pub(crate) point: PathBuf,
    pub(crate) kind: String,
    /// What is mounted: a device, or a server and its path.
    source: String,
}

/// What a mount of ours has before the path of its directory, as its source.
pub(crate) const SOURCE: &str = "verbena:";

/// The kind of our mounts. As root the kernel calls them `fuse`; then their source tells.
pub(crate) const KIND: &str = "fuse.verbena";

/// All mounts. A space in a path is written as `\040`.
pub(crate) fn mounts() -> Option<Vec<MountLine>> {
    const TRIES: usize = 10;
    let look = || std::fs::read_to_string("/proc/self/mountinfo").ok();
    // A list that changes while it is read can lack a mount that was there all the time.
    let mut text = look()?;
    for _ in 0..TRIES {
        let again = look()?;
        if text == again {
            break;
        }
        text = again;
    }
    let mount = |line: &str| {
        let (before, after) = line.split_once(" - ")?;
        let point = before.split(' ').nth(4)?;
        let point = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
            .iter()
            .fold(point.to_owned(), |point, (code, letter)| point.replace(code, letter));
        let mut after = after.split(' ');
        let (kind, source) = (after.next()?, after.next()?);
        let is_ours = kind.starts_with("fuse") && source.starts_with(SOURCE);
        let kind = if is_ours { KIND } else { kind }.to_owned();
        Some(MountLine { point: PathBuf::from(point), kind, source: source.to_owned() })
    };
    Some(text.lines().filter_map(mount).collect())
}

/// Times of a scratch file: how fine, how far from our clock, and whether a change time is the file system's own.
fn measure(root: &Path) -> Option<Clocks> {
    /// Of kernels whose times move once a tick, with the slowest tick.
    const TICK: Time = 10_000_000;
    const TRIES: usize = 20;
    let path = root.join(format!(".verbena-check-{}", std::process::id()));
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).open(&path).ok()?;
    let scratch = Scratch(&path);
    let mut is_whole = true;
    let mut ahead = Time::MAX;
    for _ in 0..TRIES {
        file.write_all(b"x").ok()?;
        rustix::fs::fsync(&file).ok()?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_nanos() as Time;
        let told = path.metadata().ok()?;
        let stamp = Time::from(told.mtime()) * SECOND + Time::from(told.mtime_nsec());
        is_whole &= told.mtime_nsec() == 0;
        // The stamp was given before `now` was read, so each try bounds the difference from above.
        ahead = ahead.min(now - stamp);
    }
    let old = Timespec { tv_sec: 1_000_000_000, tv_nsec: 0 };
    let times = Timestamps { last_access: old, last_modification: old };
    rustix::fs::utimensat(CWD, &path, &times, AtFlags::empty()).ok()?;
    let told = path.metadata().ok()?;
    drop(scratch);
    let grain = if is_whole { SECOND } else { TICK };
    Some(Clocks { grain, ahead: ahead.max(0), has_changed: told.ctime() != told.mtime() })
}

/// Whether a name of the directory's own in other letters leads to nothing, or to another file. Not if there is none to try.
fn tells_letters(directory: &Path) -> bool {
    let path = directory.join(format!(".verbena-letters-{}", std::process::id()));
    let other = directory.join(format!(".VERBENA-LETTERS-{}", std::process::id()));
    let made = std::fs::OpenOptions::new().write(true).create_new(true).open(&path);
    let _scratch = made.is_ok().then(|| Scratch(&path));
    made.is_ok() && other.symlink_metadata().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
}

struct Scratch<'a>(&'a Path);

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        // What cannot be removed was made by us a moment ago: the directory is gone.
        _ = std::fs::remove_file(self.0);
    }
}

/// A descriptor of the directory that stays what it is when a mount covers its path.
pub(crate) fn hold(root: &Path) -> rustix::io::Result<std::os::fd::OwnedFd> {
    rustix::fs::open(root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, rustix::fs::Mode::empty())
}

/// For tests of names: whether files of a directory have times of birth. If not, says that the test is skipped.
#[cfg(test)]
pub(crate) fn has_births(root: &Path) -> bool {
    let has_births = Below::look(root).unwrap().has_births;
    if !has_births {
        eprintln!("skipped: files have no births here");
    }
    has_births
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_is_told_from_others_of_its_volume() {
        let folder = tempfile::tempdir().unwrap();
        if !has_births(folder.path()) {
            return;
        }
        let local = Below::look(folder.path()).unwrap();
        assert!(local.has_births && !local.weaknesses().concat().contains("no name comes from the bank"), "{local:?}");
        let place = local.place().unwrap();
        for other in [
            Below { device: local.device + 1, ..local.clone() },
            Below { filesystem: local.filesystem + 1, ..local.clone() },
        ] {
            assert_ne!(other.place(), Some(place.clone()));
        }
        let without = Below { has_births: false, ..local };
        assert!(without.weaknesses().concat().contains("no name comes from the bank"));
    }

    #[test]
    fn letters_are_told_apart_here() {
        let folder = tempfile::tempdir().unwrap();
        assert!(tells_letters(folder.path()) && !tells_letters(&folder.path().join("none")));
        assert_eq!(folder.path().read_dir().unwrap().count(), 0);
    }
}
