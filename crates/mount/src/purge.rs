//! What the mount keeps of a file or a tree is not used any more: `verbena fs purge`.
//!
//! A version that was purged is *distrusted*: from then on its blocks stand under a key with a tag that no other purge has, so what is in the bank
//! is not found, however late a fill or a daemon brings it back. That is what this mount promises. Besides, the blocks
//! are taken out of the bank, so that other mounts do not find them either; that goes as far as the bank answers (rule B2).
//! Files that are open are read below for the rest of that open, and the kernel drops pages, attributes and names.
//!
//! The tree is walked below, and the names that the kernel believes are followed too: it may believe one that is not there any more.

use std::collections::{HashMap, HashSet};
use std::ffi::{CString, OsStr};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, Stat, fstat, openat, readlink};
use rustix::io::Errno;
use verbena_bank::Name;

use crate::cache::Cache;
use crate::caller::Caller;
use crate::files::{Files, Result};
use crate::fuse::Kernel;
use crate::nodes::Node;

/// The attribute of a file or directory whose value is asked for to purge it.
pub(crate) const PURGE: &str = "user.verbena.purge";

/// What was purged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Purged {
    /// Regular files.
    pub files: u64,
    /// Blocks that the bank had, and has no more.
    pub blocks: u64,
    /// Blocks whose daemon, or the helper, did not answer. This mount does not use them; other mounts may find them.
    pub unreached: u64,
    /// Files with so many blocks that they stay in the bank. This mount does not use them; other mounts may find them.
    pub large: u64,
    /// Files and directories that could not be looked at.
    pub failed: u64,
}

/// Versions of files whose blocks are not believed, by the name of their first block, each with the tag of its purge.
#[derive(Debug, Default)]
pub(crate) struct Distrusted(RwLock<Versions>);

#[derive(Debug, Default)]
struct Versions {
    /// The tag of all that are not among `some`.
    all: Option<u64>,
    some: HashMap<Name, u64>,
}

impl Distrusted {
    /// Versions that are known one by one, at some 60 bytes each. With more, all files are distrusted.
    const MOST: usize = 1 << 16;

    /// The tag under which a version's blocks stand.
    pub(crate) fn tag(&self, version: &Name) -> Option<u64> {
        let versions = self.0.read().unwrap_or_else(PoisonError::into_inner);
        versions.some.get(version).copied().or(versions.all)
    }

    /// Says whether all versions have the tag now, since there are too many to be known one by one.
    pub(crate) fn add(&self, version: Name, tag: u64) -> bool {
        let mut versions = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if versions.some.len() >= Self::MOST && !versions.some.contains_key(&version) {
            *versions = Versions { all: Some(tag), some: HashMap::new() };
            return true;
        }
        if versions.all != Some(tag) {
            versions.some.insert(version, tag);
        }
        false
    }
}

impl Purged {
    const NAMES: [&str; 5] = ["files", "blocks", "unreached", "large", "failed"];

    /// Each count with its name.
    pub fn named(&self) -> [(&'static str, u64); 5] {
        let counts = [self.files, self.blocks, self.unreached, self.large, self.failed];
        std::array::from_fn(|at| (Self::NAMES[at], counts[at]))
    }

    /// The value of [`PURGE`].
    pub(crate) fn text(&self) -> String {
        self.named().map(|(name, count)| format!("{name} {count}\n")).concat()
    }

    /// What the process that serves the mount answered.
    pub(crate) fn parse(text: &str) -> Self {
        let count = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.and_then(|count| count.parse().ok()).unwrap_or(0)
        };
        let [files, blocks, unreached, large, failed] = Self::NAMES.map(count);
        Purged { files, blocks, unreached, large, failed }
    }
}

/// One purge.
struct Purge<'a> {
    files: &'a Files,
    cache: &'a Cache,
    kernel: &'a Kernel,
    tag: u64,
    done: Purged,
}

/// A name below that is still to be looked at. Its directory is open for as long as names of it are.
struct Ahead {
    directory: Arc<OwnedFd>,
    name: CString,
}

impl Files {
    /// Purges what a node stands for. The kernel may wait for other requests meanwhile, so this runs on no thread that serves them.
    pub(crate) fn purge(&self, caller: Caller, id: u64, kernel: &Kernel) -> Result<Purged> {
        let cache = self.cache.as_ref().ok_or(Errno::NODATA)?;
        if caller.uid != 0 && caller.uid != rustix::process::geteuid().as_raw() {
            return Err(Errno::PERM);
        }
        let mut tag = [0; 8];
        getrandom::fill(&mut tag).map_err(|_| Errno::IO)?;
        let tag = u64::from_le_bytes(tag);
        let target = self.nodes.node(id)?;
        if let Some(names) = &self.names {
            names.distrust();
        }
        let mut purge = Purge { files: self, cache, kernel, tag, done: Purged::default() };
        purge.below(&target)?;
        // Behind the versions: a file that is opened meanwhile finds them distrusted, or is ended here.
        purge.known(&target);
        Ok(purge.done)
    }
}

impl Purge<'_> {
    /// What stands below: the file itself, and what has its name by now.
    fn below(&mut self, target: &Node) -> Result<()> {
        let own = fstat(target.fd()?)?;
        self.tree(openat(CWD, target.path()?, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?, &own);
        let path = readlink(target.path()?, vec![])?.into_bytes();
        let path = path.strip_suffix(b" (deleted)").unwrap_or(&path).to_vec();
        let path = PathBuf::from(std::ffi::OsString::from_vec(path));
        let found = openat(CWD, &path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
        if let Ok(found) = found
            && let Ok(stat) = fstat(&found)
            && (stat.st_dev, stat.st_ino) != (own.st_dev, own.st_ino)
        {
            self.tree(found, &stat);
        }
        Ok(())
    }

    fn tree(&mut self, top: OwnedFd, stat: &Stat) {
        let mut ahead = vec![];
        self.one(&top, stat, &mut ahead);
        while let Some(Ahead { directory, name }) = ahead.pop() {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            match openat(&directory, &name, flags, Mode::empty()).and_then(|fd| Ok((fstat(&fd)?, fd))) {
                // What is on another device has nothing in the bank.
                Ok((found, fd)) if found.st_dev == stat.st_dev => self.one(&fd, &found, &mut ahead),
                Ok(_) | Err(Errno::NOENT) => {}
                Err(_) => self.done.failed += 1,
            }
        }
    }

    fn one(&mut self, fd: &OwnedFd, stat: &Stat, ahead: &mut Vec<Ahead>) {
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => self.file(fd, stat),
            FileType::Directory if self.directory(fd, stat, ahead).is_err() => self.done.failed += 1,
            _ => {}
        }
    }

    fn file(&mut self, fd: &OwnedFd, stat: &Stat) {
        self.done.files += 1;
        let (removed, is_all) = self.cache.purge(fd, stat, self.tag);
        match removed {
            Some(removed) => {
                self.done.blocks += removed.blocks;
                self.done.unreached += removed.unreached;
            }
            None => self.done.large += 1,
        }
        if is_all {
            self.files.nodes.all().iter().for_each(|node| self.end(node));
        } else if let Some(node) = self.files.nodes.found(self.files.nodes.key(fd, stat)) {
            self.end(&node);
        }
    }

    fn directory(&self, fd: &OwnedFd, stat: &Stat, ahead: &mut Vec<Ahead>) -> Result<()> {
        let key = self.files.nodes.key(fd, stat);
        if let Some(names) = &self.files.names {
            names.purge(key, stat);
        }
        let directory = openat(fd, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let directory = Arc::new(directory);
        let known = self.files.nodes.found(key);
        for entry in Dir::read_from(&directory)? {
            let entry = entry?;
            let name = entry.file_name().to_owned();
            let may_be_directory = matches!(entry.file_type(), FileType::Directory | FileType::Unknown);
            if name.as_bytes() == b"." || name.as_bytes() == b".." {
                continue;
            }
            if let Some(known) = &known {
                self.kernel.drop_name(known.id, OsStr::from_bytes(name.as_bytes()), may_be_directory);
            }
            ahead.push(Ahead { directory: directory.clone(), name });
        }
        Ok(())
    }

    /// What the kernel believes to be in the tree.
    fn known(&self, target: &Node) {
        self.end(target);
        let all = self.files.nodes.all();
        let parents: HashMap<u64, u64> = all.iter().filter_map(|node| Some((node.id, node.place()?.0))).collect();
        let is_inside = |id: u64| {
            let mut passed = HashSet::new();
            let mut at = Some(id);
            while let Some(id) = at {
                if id == target.id {
                    return true;
                }
                // Names move while they are looked at, so there may be a circle.
                at = if passed.insert(id) { parents.get(&id).copied() } else { None };
            }
            false
        };
        for node in all.iter().filter(|node| is_inside(node.id)) {
            self.end(node);
        }
    }

    fn end(&self, node: &Node) {
        node.state.purged();
        self.kernel.drop_file(node.id);
        if let Some((parent, name)) = node.place() {
            self.kernel.drop_name(parent, &name, node.kind == FileType::Directory);
        }
    }
}

#[cfg(test)]
mod tests {
    use verbena_bank::{BlockSize, FileKey, Rules, Secret};

    use super::*;

    fn name(nth: u64) -> Name {
        FileKey::new(&nth.to_le_bytes(), b"", Rules::default())
            .block(BlockSize::default(), 0)
            .name(&Secret::new([0; 32]))
    }

    #[test]
    fn versions_are_distrusted_one_by_one_and_all_of_them_when_they_are_too_many() {
        let distrusted = Distrusted::default();
        assert!(!distrusted.add(name(0), 7));
        assert_eq!((distrusted.tag(&name(0)), distrusted.tag(&name(1))), (Some(7), None));
        assert!(!distrusted.add(name(0), 8), "a second purge of the same version");
        assert_eq!(distrusted.tag(&name(0)), Some(8));
        let most = Distrusted::MOST as u64;
        assert_eq!((1..=most).filter(|nth| distrusted.add(name(*nth), 9)).collect::<Vec<_>>(), [most]);
        assert_eq!((distrusted.tag(&name(0)), distrusted.tag(&name(most + 5))), (Some(9), Some(9)));
        assert!(!distrusted.add(name(3), 10));
        assert_eq!((distrusted.tag(&name(3)), distrusted.tag(&name(4))), (Some(10), Some(9)));
    }

    #[test]
    fn a_report_reads_as_it_is_written() {
        let purged = Purged { files: 1, blocks: 2, unreached: 3, large: 4, failed: 5 };
        assert_eq!(Purged::parse(&purged.text()), purged);
    }
}
