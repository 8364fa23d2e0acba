//! Names, attributes, listings and targets of links, as the kernel asks for them: from the bank where it may say them, else from below.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Instant;

use rustix::fs::{FileType, OFlags, Stat, fstat, listxattr, readlinkat};
use rustix::io::Errno;
use verbena_bank::{Attributes, Listing, NameEntry};

use crate::cache::{Arrival, attributes_of};
use crate::caller::Caller;
use crate::files::{Files, Result};
use crate::handles::{DirectoryNames, Handle};
use crate::names::{Collector, NameAnswer, NameKind, Names};
use crate::nodes::{Node, NodeKey};

/// A file that the kernel knows once more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileLookup {
    /// Its number in FUSE's protocol.
    pub(crate) id: u64,
    /// The number that programs see, where it was looked at without its name.
    pub(crate) number: u64,
    pub(crate) attributes: Attributes,
    /// Until when this counts, if that is not what the promise says of an answer from below.
    pub(crate) until: Option<Instant>,
}

/// What a name leads to.
pub(crate) enum NameLookup {
    File(FileLookup),
    /// To nothing, until then.
    Missing(Instant),
}

/// One name of a listing.
pub(crate) struct ListedName<'a> {
    pub(crate) name: &'a OsStr,
    pub(crate) number: u64,
    pub(crate) kind: FileType,
    /// Where the next listing begins, to go on behind this name.
    pub(crate) next: u64,
    /// Its file, where that was asked for and could be looked up.
    pub(crate) file: Option<FileLookup>,
}

impl ListedName<'_> {
    /// The directory itself, or the one above it. The kernel makes no node of these two, so they are no lookups (`fuse_direntplus_link`).
    fn is_dot(&self) -> bool {
        is_dot(self.name)
    }
}

fn is_dot(name: &OsStr) -> bool {
    name == "." || name == ".."
}

impl Files {
    /// What the bank may say of names, where it says it for a time.
    fn timed_names(&self) -> Option<&Names> {
        self.names.as_ref().filter(|names| names.has_ages())
    }

    /// What was looked at below, as the kernel is told of it.
    pub(crate) fn tell(&self, node: &Node, stat: &Stat) -> FileLookup {
        self.lookup(node, stat.st_ino, attributes_of(stat), None)
    }

    /// A file as the kernel is told of it: `number` is its own.
    fn lookup(&self, node: &Node, number: u64, attributes: Attributes, until: Option<Instant>) -> FileLookup {
        if self.believes
            && let Some(cache) = &self.cache
        {
            cache.told(node, &attributes);
        }
        FileLookup { id: node.id, number: node.number(number), attributes, until }
    }

    fn said(&self, names: &Names, node: &Node) -> Option<(NameEntry, Instant)> {
        names.said(node, self.parent(node).as_deref())
    }

    /// What an extended attribute is answered with that a file surely does not have.
    pub(crate) fn lacks(&self, node: &Node, name: &OsStr) -> Option<Errno> {
        let names = self.timed_names()?;
        let lacks = self.said(names, node).and_then(|(entry, _)| Names::lacks(&entry, name));
        names.count(NameKind::Extended, lacks.is_some());
        lacks
    }

    /// Whether everyone may list and search a directory, by what the bank says.
    pub(crate) fn all_may_search(&self, node: &Node) -> bool {
        self.timed_names().is_some_and(|names| names.all_may_search(node))
    }

    /// The file of a name that is about to go, or to lead elsewhere, lives on where it is used. Says which it is, if there is one and the bank may say something of it.
    pub(crate) fn hold(&self, parent: &Node, name: &OsStr) -> Result<Option<NodeKey>> {
        if self.timed_names().is_none() {
            return Ok(None);
        }
        match self.nodes.hold(parent, name) {
            Ok(found) => Ok(Some(found)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn look_up(&self, caller: Caller, parent: u64, name: &OsStr) -> Result<NameLookup> {
        let parent = self.nodes.node(parent)?;
        if let Some(names) = self.timed_names() {
            match names.find(&parent, name) {
                NameAnswer::Entry(entry, until) => {
                    if let Some(found) = self.known(names, &parent, &entry, until) {
                        return Ok(NameLookup::File(found));
                    }
                }
                NameAnswer::Missing(until) => {
                    names.count(NameKind::Missing, true);
                    return Ok(NameLookup::Missing(until));
                }
                NameAnswer::Unknown => {}
            }
        }
        let _acting = self.act(caller)?;
        let found = self.find(&parent, name);
        if let Some(names) = self.timed_names()
            && matches!(found, Err(Errno::NOENT))
        {
            names.count(NameKind::Missing, false);
        }
        Ok(NameLookup::File(found?))
    }

    /// A name of a listing that the bank gave, if what it says of the file may be so.
    fn known(&self, names: &Names, parent: &Arc<Node>, entry: &NameEntry, until: Instant) -> Option<FileLookup> {
        let (attributes, key) = (entry.attributes?, names.key(entry));
        let name = OsStr::from_bytes(&entry.name);
        if self.nodes.found(key).is_some_and(|node| !names.agrees(&node, &attributes)) {
            return None;
        }
        let node = self.nodes.name(parent, name, key, FileType::from_raw_mode(entry.kind))?;
        node.stands(parent.id, name);
        names.count(NameKind::Name, true);
        Some(self.lookup(&node, entry.number, attributes, Some(until)))
    }

    /// What has a name below.
    pub(crate) fn find(&self, parent: &Node, name: &OsStr) -> Result<FileLookup> {
        Ok(self.find_below(parent, name)?.0)
    }

    fn find_below(&self, parent: &Node, name: &OsStr) -> Result<(FileLookup, Stat, NodeKey)> {
        let (node, stat) = self.nodes.look_up(parent, name)?;
        if let Some(cache) = &self.cache {
            // What a listing says of it from another state is not taken for it.
            cache.observe(&node, &stat);
        }
        if self.believes {
            node.stands(parent.id, name);
        }
        if let Some(names) = self.timed_names() {
            names.count(NameKind::Name, false);
        }
        Ok((self.tell(&node, &stat), stat, node.key))
    }

    pub(crate) fn stat(&self, id: u64) -> Result<FileLookup> {
        let node = self.nodes.node(id)?;
        if let Some(names) = self.timed_names() {
            let said = self.said(names, &node);
            names.count(NameKind::Attributes, said.is_some());
            if let Some((NameEntry { number, attributes: Some(attributes), .. }, until)) = said {
                return Ok(self.lookup(&node, number, attributes, Some(until)));
            }
        }
        let fd = node.fd()?;
        node.asked();
        let stat = fstat(fd)?;
        if let Some(cache) = &self.cache {
            cache.observe(&node, &stat);
        }
        Ok(self.tell(&node, &stat))
    }

    pub(crate) fn read_link(&self, id: u64) -> Result<Vec<u8>> {
        let node = self.nodes.node(id)?;
        if let Some(names) = self.timed_names() {
            let target = self.parent(&node).and_then(|parent| names.target(&node, &parent));
            names.count(NameKind::Link, target.is_some());
            if let Some(target) = target {
                return Ok(target);
            }
        }
        let fd = node.fd()?;
        node.asked();
        Ok(readlinkat(fd, "", vec![])?.into_bytes())
    }

    pub(crate) fn open_directory(&self, caller: Caller, id: u64) -> Result<u64> {
        let node = self.nodes.node(id)?;
        let mut from = DirectoryNames::default();
        if let Some(names) = &self.names
            && let Some(known) = names.names_by_time(&node)
        {
            names.count(NameKind::Listing, true);
            from.known = Some(known);
            return Ok(self.handles.add(Handle::directory(node, None, from)));
        }
        let fd = {
            let _acting = self.act(caller)?;
            node.open(OFlags::RDONLY | OFlags::DIRECTORY)?
        };
        if let Some(names) = &self.names {
            if !names.has_ages() {
                node.asked();
                from.known = names.names_by_version(node.key, &fstat(&fd)?);
            }
            names.count(NameKind::Listing, from.known.is_some());
        }
        Ok(self.handles.add(Handle::directory(node, Some(fd), from)))
    }

    /// Gives names of an open directory from `offset` on to `add`, until it says that it is full or there are no more. With the files that they lead to,
    /// if there is an `is_late`, which ends it before a file is looked up.
    pub(crate) fn list(
        &self,
        handle: u64,
        offset: u64,
        is_late: Option<&dyn Fn() -> bool>,
        mut add: impl FnMut(&ListedName<'_>) -> bool,
    ) -> Result<()> {
        let handle = self.handles.file(handle)?;
        let mut from = handle.names(offset);
        if offset == 0
            && let Some(names) = self.timed_names()
            // A program may wait as long as it likes before it lists what it opened.
            && from.known.as_ref().is_some_and(|known| names.until(known).is_none())
        {
            from.known = None;
        }
        if let Some(known) = &from.known {
            return self.list_known(&handle.node, known, offset, is_late, add);
        }
        if offset == 0 {
            from.collector = self.collect(&handle)?;
        }
        let mut collector = from.collector.take();
        let ended = handle.list(offset, |entry| {
            let name = entry.name();
            if is_late.is_some_and(|is_late| is_late()) {
                return true;
            }
            let finds = is_late.is_some();
            let (file, below) = if is_dot(name) {
                let found = if finds { self.stat(handle.node.id).ok() } else { None };
                (found.map(|found| FileLookup { id: entry.number, ..found }), None)
            } else if finds {
                match self.find_below(&handle.node, name) {
                    Ok((found, stat, key)) => (Some(found), Some((stat, key))),
                    // Gone since it was listed.
                    Err(Errno::NOENT) => return false,
                    // The name is there all the same.
                    Err(_) => (None, None),
                }
            } else {
                (None, None)
            };
            let listed = ListedName { name, number: entry.number, kind: entry.kind, next: entry.next, file };
            let is_full = self.give(&listed, &mut add);
            if let Some(collected) = &mut collector
                && !is_full
                && !self.collected(collected, &handle, &listed, below)
            {
                collector = None;
            }
            is_full
        })?;
        match (collector, &self.names) {
            (Some(collector), Some(names)) if ended => {
                let look = || {
                    handle.node.asked();
                    fstat(handle.fd().ok()?).ok()
                };
                if !names.keep(&handle.node, collector, look)
                    && let Some(cache) = &self.cache
                {
                    cache.counts().dropped_fills.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                }
            }
            (collector, _) => from.collector = collector,
        }
        Ok(())
    }

    fn list_known(
        &self,
        node: &Arc<Node>,
        known: &Listing,
        offset: u64,
        is_late: Option<&dyn Fn() -> bool>,
        mut add: impl FnMut(&ListedName<'_>) -> bool,
    ) -> Result<()> {
        let names = self.names.as_ref().ok_or(Errno::BADF)?;
        let from = usize::try_from(offset).map_err(|_| Errno::INVAL)?;
        for (next, entry) in (1..).zip(known.entries()).skip(from) {
            let name = OsStr::from_bytes(&entry.name);
            if is_late.is_some_and(|is_late| is_late()) {
                break;
            }
            let file = if is_late.is_none() {
                Ok(None)
            } else if is_dot(name) {
                let number = node.number(entry.number);
                self.stat(node.id).map(|found| Some(FileLookup { id: number, ..found }))
            } else {
                let said =
                    names.entry(node, known, name).and_then(|(entry, until)| self.known(names, node, &entry, until));
                said.map_or_else(|| self.find(node, name), Ok).map(Some)
            };
            let file = match file {
                // Gone since it was listed.
                Err(Errno::NOENT) => continue,
                // The name is there all the same.
                file => file.unwrap_or(None),
            };
            let kind = FileType::from_raw_mode(entry.kind);
            if self.give(&ListedName { name, number: entry.number, kind, next, file }, &mut add) {
                break;
            }
        }
        Ok(())
    }

    /// Gives one name; a lookup that has no room is none. Says whether there was no room.
    fn give(&self, listed: &ListedName<'_>, add: &mut impl FnMut(&ListedName<'_>) -> bool) -> bool {
        let is_full = add(listed);
        if let Some(file) = &listed.file
            && is_full
            && !listed.is_dot()
        {
            self.nodes.forget(file.id, 1);
        }
        is_full
    }

    /// A directory that is listed below from its start, so that the bank may have it afterwards.
    fn collect(&self, handle: &Handle) -> Result<Option<Collector>> {
        let Some(names) = &self.names else { return Ok(None) };
        let arrived = Arrival::now();
        let fd = handle.fd()?;
        handle.node.asked();
        let stat = fstat(fd)?;
        Ok(names.collect(arrived, &handle.node, (fd, &stat), || extended(&handle.node)))
    }

    /// One more name of a directory that is listed below, with its file if that was looked up. Says whether it can be kept as a whole still.
    fn collected(
        &self,
        collector: &mut Collector,
        handle: &Handle,
        listed: &ListedName<'_>,
        below: Option<(Stat, NodeKey)>,
    ) -> bool {
        let Some(names) = &self.names else { return false };
        let stat = below.as_ref().map(|(stat, _)| stat);
        let (file, attributes) = (&listed.file, stat.filter(|stat| names.is_ours(stat)).map(attributes_of));
        let kind = stat.map_or(listed.kind, |stat| FileType::from_raw_mode(stat.st_mode));
        let is_link = attributes.is_some() && kind == FileType::Symlink;
        let target = if is_link && names.has_ages() {
            handle.node.asked();
            let target = handle.fd().and_then(|fd| readlinkat(fd, listed.name, vec![]));
            target.ok().map(std::ffi::CString::into_bytes)
        } else {
            None
        };
        let extended = match (attributes, file) {
            (Some(_), Some(file)) if names.has_ages() => self.nodes.node(file.id).ok().and_then(|node| extended(&node)),
            _ => None,
        };
        let number = stat.map_or(listed.number, |stat| stat.st_ino);
        let name = listed.name.as_bytes().to_vec();
        let born = below.and_then(|(_, key)| names.lasting(key, collector.arrived));
        let entry = NameEntry { name, number, born, kind: kind.as_raw_mode(), attributes, target, extended };
        collector.add(entry, listed.next)
    }
}

/// The names of all extended attributes of a file. A file system that has none says so, mostly without asking anyone.
fn extended(node: &Node) -> Option<Vec<u8>> {
    let path = node.path().ok()?;
    node.asked();
    let mut buffer = vec![0; 4 << 10];
    match listxattr(path, &mut buffer[..]) {
        Ok(length) => {
            buffer.truncate(length);
            Some(buffer)
        }
        Err(Errno::OPNOTSUPP) => Some(Names::NO_EXTENDED.to_vec()),
        // More names than anyone has.
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::caller::Identities;
    use crate::nodes::ROOT;

    #[test]
    fn no_file_is_looked_up_for_a_listing_that_is_late() {
        let folder = tempfile::tempdir().unwrap();
        (0..20).for_each(|nth| fs::write(folder.path().join(format!("f{nth}")), b"").unwrap());
        let root = crate::below::hold(folder.path()).unwrap();
        let files = Files::new(root, Identities::Own, None, None, false).unwrap();
        let handle = files.open_directory(Caller { uid: 0, gid: 0, pid: 0 }, ROOT).unwrap();
        let given = std::cell::Cell::new(0);
        let list = |offset, most: u64| {
            let mut next = 0;
            let is_late = || given.get() == most;
            files
                .list(handle, offset, Some(&is_late), |listed| {
                    given.set(given.get() + 1);
                    next = listed.next;
                    false
                })
                .unwrap();
            next
        };
        let next = list(0, 12);
        assert_eq!((given.get(), files.nodes.len() <= 13), (12, true));
        list(next, 100);
        assert_eq!((given.get(), files.nodes.len()), (22, 21));
    }
}
