//! What the file system below can carry, measured or looked at (rules B3, B13 and B14).

use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, CWD, OFlags, Timespec, Timestamps};
use verbena_bank::{Clocks, Time};

use crate::cache::Arrival;
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
    /// By how much our clock can be behind the file system's, in nanoseconds.
    pub behind: Time,
    /// Whether the times were measured on a scratch file. If not, the directory cannot be written and the worst is taken.
    pub measured: bool,
    /// Device of the root. Files of another are not cached.
    pub device: u64,
    /// Number of the file system, as `statfs` gives it; 0 if it has none.
    pub filesystem: u64,
    /// From the start of this machine to the beginning of 1970 by its clock, in nanoseconds, when the times were measured.
    pub(crate) since: Time,
    /// Whether a name in other letters is another name, as far as the directory itself shows it, and each name that is found is listed too.
    pub(crate) lists_all: bool,
    /// Whether files have a time of birth by this machine's clock. With its number it names a file, also when the number is given again.
    pub has_births: bool,
}

const SECOND: Time = 1_000_000_000;

impl Below {
    /// Kinds whose file numbers are given by the file system, or by its server for all clients.
    const NUMBERED: [&str; 11] =
        ["ext2", "ext3", "ext4", "xfs", "btrfs", "tmpfs", "f2fs", "nfs", "nfs4", "ceph", "fuse.glusterfs"];

    /// Kinds whose times come from this machine's own clock.
    const LOCAL: [&str; 7] = ["ext2", "ext3", "ext4", "xfs", "btrfs", "tmpfs", "f2fs"];

    /// Kinds whose numbers are never given again.
    const UNIQUE: [&str; 2] = ["ceph", "fuse.glusterfs"];

    /// Looks at a directory, and measures on a scratch file in it where it can be written.
    pub fn look(root: &Path) -> std::io::Result<Self> {
        let root = root.canonicalize()?;
        let device = root.metadata()?.dev();
        let filesystem = rustix::fs::statvfs(&root).map_or(0, |stat| stat.f_fsid);
        let kind = kind_of(&root).unwrap_or_else(|| "unknown".to_owned());
        let identity = if Self::NUMBERED.contains(&kind.as_str()) { Identity::Number } else { Identity::Path };
        let has_births = Self::LOCAL.contains(&kind.as_str()) && hold(&root).is_ok_and(|root| born(&root).is_some());
        let arrived = Arrival::now();
        let mut measured = measure(&root);
        if let Some((clocks, behind)) = &mut measured
            && Self::LOCAL.contains(&kind.as_str())
        {
            (clocks.ahead, *behind) = (0, 0);
        }
        // Of xfs all directories may fold letters, of others each says so. A server may, and may find what it does not list: snapshots, and what is mounted when it is looked for.
        let lists_all = Self::LOCAL.contains(&kind.as_str()) && (kind != "xfs" || tells_letters(&root));
        let since = arrived.time() - arrived.since_start();
        let worst = Clocks { grain: 2 * SECOND, ahead: 2 * SECOND, has_changed: false };
        let (clocks, behind) = measured.unwrap_or((worst, 2 * SECOND));
        let measured = measured.is_some();
        Ok(Below { kind, root, identity, clocks, behind, measured, device, filesystem, since, lists_all, has_births })
    }

    /// Whether what names a file never names another one, so that something can be said of a file that is not open.
    fn has_lasting_names(&self) -> bool {
        self.identity == Identity::Path || self.has_births || Self::UNIQUE.contains(&self.kind.as_str())
    }

    /// Whether something can be said of names for a time: of files that are named for good, by a clock that is known.
    pub(crate) fn has_timed_names(&self) -> bool {
        self.has_lasting_names() && (self.measured || self.is_local())
    }

    /// Whether modes say who may list and search a directory, and access lists are shown.
    pub(crate) fn shows_rights(&self) -> bool {
        self.kind == "fuse.sshfs" || Self::NUMBERED.contains(&self.kind.as_str())
    }

    /// What tells this file system from others that a volume's clients have at the same path. Nothing where `is_named`, for then the volume's name says which it is; but a
    /// file system of this machine is no other machine's, whatever its name. No answer if the machine cannot be told from others.
    pub(crate) fn place(&self, is_named: bool) -> Option<Vec<u8>> {
        if is_named && !self.is_local() {
            return Some(vec![]);
        }
        // Of one start of one kernel. A machine that was copied has all other marks of the first.
        let kernel = std::fs::read("/proc/sys/kernel/random/boot_id").ok()?;
        // A container may count from another start of the machine.
        let clock = std::fs::read_link("/proc/self/ns/time").unwrap_or_default();
        let source = mount_of(&self.root).map(|mount| mount.source)?;
        let numbers = [self.device.to_le_bytes(), self.filesystem.to_le_bytes()].concat();
        Some([&kernel[..], clock.as_os_str().as_bytes(), &numbers, source.as_bytes()].concat())
    }

    /// Whether the file system is this machine's own.
    pub(crate) fn is_local(&self) -> bool {
        Self::LOCAL.contains(&self.kind.as_str())
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
        if !self.has_lasting_names() {
            said.push(format!(
                "{kind} gives the numbers of files again, and no times of birth: under sealed and age=T no name comes from the bank"
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
        if self.has_lasting_names() && !self.has_timed_names() {
            said.push("its clock is not known: under sealed and age=T no name comes from the bank".to_owned());
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

/// Times of a scratch file: how fine, how far before our clock, and whether a change time is the file system's own; and how far behind it.
fn measure(root: &Path) -> Option<(Clocks, Time)> {
    /// Of kernels whose times move once a tick, with the slowest tick.
    const TICK: Time = 10_000_000;
    const TRIES: usize = 20;
    let path = root.join(format!(".verbena-check-{}", std::process::id()));
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).open(&path).ok()?;
    let scratch = Scratch(&path);
    let mut is_whole = true;
    let stamp = || {
        let told = path.metadata().ok()?;
        Some((Time::from(told.mtime()) * SECOND + Time::from(told.mtime_nsec()), told.mtime_nsec() == 0))
    };
    let mut apart = Apart::new(stamp()?.0);
    let now = || Some(SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_nanos() as Time);
    for _ in 0..TRIES {
        let before = now()?;
        file.write_all(b"x").ok()?;
        rustix::fs::fsync(&file).ok()?;
        let after = now()?;
        let (stamp, is_second) = stamp()?;
        is_whole &= is_second;
        apart.tried(before, stamp, after);
    }
    let old = Timespec { tv_sec: 1_000_000_000, tv_nsec: 0 };
    let times = Timestamps { last_access: old, last_modification: old };
    rustix::fs::utimensat(CWD, &path, &times, AtFlags::empty()).ok()?;
    let told = path.metadata().ok()?;
    drop(scratch);
    let grain = if is_whole { SECOND } else { TICK };
    let clocks = Clocks { grain, ahead: apart.ahead.max(0), has_changed: told.ctime() != told.mtime() };
    // A stamp says when the grain began that it was given in.
    Some((clocks, (apart.behind() + grain).max(0)))
}

/// How far our clock can be from the file system's, by stamps that were given between two looks at ours: each bounds the difference from both sides.
struct Apart {
    last: Time,
    ahead: Time,
    /// By stamps that moved. One that stayed may be of an earlier try, so it does not say how far we are behind.
    moved: Option<Time>,
    stayed: Time,
}

impl Apart {
    /// Before the first try the file has this stamp.
    fn new(stamp: Time) -> Self {
        Apart { last: stamp, ahead: Time::MAX, moved: None, stayed: Time::MIN }
    }

    fn tried(&mut self, before: Time, stamp: Time, after: Time) {
        self.ahead = self.ahead.min(after - stamp);
        if std::mem::replace(&mut self.last, stamp) == stamp {
            self.stayed = self.stayed.max(stamp - before);
        } else {
            self.moved = Some(self.moved.map_or(stamp - before, |moved| moved.min(stamp - before)));
        }
    }

    /// If no stamp moved, the one that stayed is as coarse as any are: two seconds.
    fn behind(&self) -> Time {
        self.moved.unwrap_or(self.stayed + 2 * SECOND)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_is_told_from_others_of_its_volume() {
        let folder = tempfile::tempdir().unwrap();
        let local = Below::look(folder.path()).unwrap();
        assert!(local.is_local() && local.has_births && local.has_timed_names(), "{local:?}");
        // Another machine has a file system of that name too, and it is another one.
        let place = local.place(true).unwrap();
        assert!(!place.is_empty() && local.place(false).as_ref() == Some(&place));
        for other in [
            Below { device: local.device + 1, ..local.clone() },
            Below { filesystem: local.filesystem + 1, ..local.clone() },
        ] {
            assert_ne!(other.place(true), Some(place.clone()));
        }
        // Clients of a server agree on the volume by its name alone.
        let shared = Below { kind: "nfs4".to_owned(), ..local };
        assert_eq!((shared.place(true), shared.place(false)), (Some(vec![]), Some(place)));
    }

    #[test]
    fn names_are_said_for_a_time_where_files_are_named_for_good_and_the_clock_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let local = Below::look(folder.path()).unwrap();
        let is = |kind: &str, has_births: bool, measured: bool| {
            Below { kind: kind.to_owned(), has_births, measured, ..local.clone() }.has_timed_names()
        };
        assert!(is("ext4", true, true) && is("ext4", true, false), "its clock is this machine's");
        assert!(!is("ext4", false, true) && !is("nfs4", false, true), "numbers are given again");
        assert!(is("ceph", false, true) && !is("ceph", false, false));
    }

    #[test]
    fn a_stamp_that_stayed_does_not_say_that_our_clock_is_not_behind() {
        let apart = |tries: [(Time, Time, Time); 2]| {
            let mut apart = Apart::new(5);
            tries.into_iter().for_each(|(before, stamp, after)| apart.tried(before, stamp, after));
            (apart.ahead, apart.behind())
        };
        assert_eq!(apart([(10, 12, 14), (20, 21, 25)]), (2, 1));
        assert_eq!(apart([(10, 12, 14), (20, 12, 24)]), (2, 2));
        assert_eq!(apart([(4, 5, 6), (20, 5, 24)]), (1, 1 + 2 * SECOND));
    }

    #[test]
    fn letters_are_told_apart_here() {
        let folder = tempfile::tempdir().unwrap();
        assert!(tells_letters(folder.path()) && !tells_letters(&folder.path().join("none")));
        assert_eq!(folder.path().read_dir().unwrap().count(), 0);
    }
}
