//! Names, attributes, missing names, listings and targets of links from the bank (rule B16).
//!
//! What is in the bank is a [`Listing`]: all names of a directory, as a mount saw them that listed it below from start to end. What another mount
//! may say from it depends on the promise, as `crates/bank/tests/it/names.rs` explores it:
//!
//! | promise | what counts |
//! |---|---|
//! | `open` | the names of a listing, under the directory's version, which is looked at below after it was opened. Attributes never |
//! | `sealed`, `age=T` | all of it, for T less what has passed since before the file system below was asked. Sealed, a name that a listing lacks is missing only under the directory's version |
//!
//! A time is written as the file system's clock may have shown it at the earliest, and read as it may show at the latest, so no difference of two mounts' clocks
//! makes a listing younger. Only what was read below goes into the bank. What this mount changed counts from its change on: a listing that was
//! taken before is not used for the file and its directory.
//!
//! A name is said to this user, who may not be the one who listed the directory. So either everyone may list and search it, by its mode, or it is opened below once.

mod clock;
mod kind;
mod missing;
mod rights;
mod table;

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{FileType, Stat};
use rustix::io::Errno;
use verbena_bank::{
    Attributes, BlockKey, BlockSize, Blocks, Clocks, FileKey, Listing, ListingHead, NameEntry, Rules, Time,
};

use crate::below::{Below, Identity};
use crate::cache::{Arrival, Fills, Work, attributes_of, nanoseconds, stamp, stamp_of};
use crate::nodes::{NamedBy, Naming, Node, NodeKey, path_inside};
use crate::promise::Promise;
use clock::Clock;
pub(crate) use kind::NameKind;
use missing::{folds_letters, may_be_missing};
pub(crate) use table::Collector;
use table::{Changes, Slot, Table};

/// What is known of a name.
pub(crate) enum NameAnswer {
    /// It is there. The kernel may believe it until then.
    Entry(Box<NameEntry>, Instant),
    /// It is missing, until then.
    Missing(Instant),
    /// The file system below has to be asked.
    Unknown,
}

/// What a mount knows of names without asking below.
#[derive(Debug)]
pub(crate) struct Names {
    blocks: Arc<Blocks>,
    size: BlockSize,
    rules: Rules,
    /// Of the file system's times.
    clocks: Clocks,
    /// Of the times of listings.
    clock: Clock,
    /// Whether modes say who may list and search a directory, and access lists are shown.
    shows_rights: bool,
    /// Whether a name that is not listed is missing, in a directory where letters are not folded.
    lists_all: bool,
    device: u64,
    /// Whether a file is its number and its time of birth, rather than the number alone.
    by_birth: bool,
    /// What tells the file system from others of the volume.
    place: Vec<u8>,
    /// The directory below, where a file is its path.
    root: Option<PathBuf>,
    fills: Fills,
    /// How long names and attributes count by their time; nothing where they count by the directory's version alone.
    believed: Option<Duration>,
    /// How long a missing name does.
    missed: Duration,
    table: Mutex<Table>,
    changes: Mutex<Changes>,
    counts: [[AtomicU64; 2]; NameKind::ALL.len()],
}

impl Names {
    /// Beginnings of attributes that each user finds in the list, if they are there.
    const LISTED: [&[u8]; 3] = [b"user.", b"security.", b"system.posix_acl_"];
    /// A list of one empty name: the file system has no extended attributes.
    pub(crate) const NO_EXTENDED: &[u8] = b"\0";
    /// How long a directory that the bank does not have is not asked for again.
    const REST: Duration = Duration::from_secs(1);

    /// Nothing if no name may be said under this promise here.
    pub(crate) fn new(
        blocks: Arc<Blocks>,
        size: BlockSize,
        rules: Rules,
        below: &Below,
        fills: Fills,
        promise: Promise,
        is_named: bool,
    ) -> Option<Self> {
        let believed = Some(promise.believed()).filter(|believed| !believed.is_zero());
        // A directory's times can be set back where no change time shows it.
        if believed.is_none() && !below.clocks.has_changed {
            return None;
        }
        if believed.is_some() && !below.has_timed_names() {
            return None;
        }
        let place = FileKey::new(b"place", &below.place(is_named)?, Rules::default()).block(size, 0);
        Some(Names {
            // A hash of it, so that keys stay short.
            place: blocks.name(&place).bytes()[..16].to_vec(),
            blocks,
            size,
            rules,
            clocks: below.clocks,
            clock: Clock::new(below),
            shows_rights: below.shows_rights(),
            lists_all: below.lists_all,
            device: below.device,
            by_birth: below.has_births && believed.is_some(),
            root: (below.identity == Identity::Path).then(|| below.root.clone()),
            fills,
            believed,
            missed: promise.missed(),
            table: Mutex::default(),
            changes: Mutex::default(),
            counts: Default::default(),
        })
    }

    /// Whether what is said counts by its time.
    pub(crate) fn has_ages(&self) -> bool {
        self.believed.is_some()
    }

    /// Counts an answer, from memory or the bank, or from below.
    pub(crate) fn count(&self, kind: NameKind, is_hit: bool) {
        self.counts[kind as usize][usize::from(!is_hit)].fetch_add(1, Relaxed);
    }

    /// Hits and misses of a kind.
    pub(crate) fn counted(&self, kind: NameKind) -> [u64; 2] {
        [0, 1].map(|at| self.counts[kind as usize][at].load(Relaxed))
    }

    /// Bytes of listings in this mount's memory.
    pub(crate) fn bytes(&self) -> usize {
        self.table().bytes
    }

    /// What a file is here.
    pub(crate) fn naming(&self) -> Naming {
        match self.root {
            Some(_) => Naming::Path,
            None if self.by_birth => Naming::Birth,
            None => Naming::Number,
        }
    }

    /// What names a file for all clients of the volume, if anything does (rule B3).
    fn identity(&self, node: &Node) -> Option<Vec<u8>> {
        match &self.root {
            Some(root) => {
                let is_inside = node.key().is_none_or(|key| key.device == self.device);
                node.path_inside(root).filter(|_| is_inside).map(|path| self.of_path(&path))
            }
            None => node.key().and_then(|key| self.of_key(key)),
        }
    }

    /// The same, of a file in a directory.
    fn inner(&self, directory: &Node, name: &[u8], key: NodeKey) -> Option<Vec<u8>> {
        match &self.root {
            Some(root) => Some(match name {
                b"." => self.of_path(&directory.path_inside(root)?),
                name => self.of_path(&[&directory.path_inside(root)?[..], b"/", name].concat()),
            }),
            None => self.of_key(key),
        }
    }

    /// The same, of an open file or directory.
    fn of_open(&self, fd: &OwnedFd, stat: &Stat) -> Option<Vec<u8>> {
        match &self.root {
            Some(root) => path_inside(fd, root).map(|path| self.of_path(&path)),
            None => self.of_key(NodeKey::of(fd, stat, self.by_birth)),
        }
    }

    fn of_path(&self, path: &[u8]) -> Vec<u8> {
        [b"p", &self.place[..], path].concat()
    }

    fn of_key(&self, NodeKey { device, number, born }: NodeKey) -> Option<Vec<u8>> {
        let (seconds, nanoseconds) = if self.by_birth { born? } else { (0, 0) };
        let parts = [b"n", &self.place[..], &number.to_le_bytes(), &seconds.to_le_bytes(), &nanoseconds.to_le_bytes()];
        (device == self.device).then(|| parts.concat())
    }

    /// What names the file of an entry by its number.
    fn key(&self, entry: &NameEntry) -> NodeKey {
        NodeKey { device: self.device, number: entry.number, born: entry.born }
    }

    /// This mount changed a file, or the names of a directory: what was said of it before counts no more.
    pub(crate) fn changed(&self, node: &Node) {
        node.state.rights_changed();
        if node.key().is_none_or(|key| key.device == self.device) {
            self.changed_file(self.identity(node));
        }
    }

    /// The same for a file that has a name, or had it until now.
    pub(crate) fn changed_name(&self, directory: &Node, name: &OsStr, key: NodeKey) {
        if key.device == self.device {
            self.changed_file(self.inner(directory, name.as_bytes(), key));
        }
    }

    fn changed_file(&self, file: Option<Vec<u8>>) {
        let now = self.clock.now();
        match file {
            Some(file) => {
                let believed = self.believed.unwrap_or_default().as_nanos() as Time;
                let forgotten = now - believed - 2 * (self.clock.ahead + self.clock.behind);
                self.changes().add(file, now, forgotten);
            }
            // Its path is not known, and a listing may have it.
            None if self.naming() == Naming::Path => self.distrust(),
            // Without a time of birth it is in no listing.
            None => {}
        }
    }

    /// Nothing that was said of any name before counts any more.
    pub(crate) fn distrust(&self) {
        *self.changes() = Changes::all(self.clock.now());
        *self.table() = Table::default();
    }

    /// Takes the listing of a directory out of the bank, as far as it answers.
    pub(crate) fn purge(&self, fd: &OwnedFd, stat: &Stat) {
        let Some(directory) = self.of_open(fd, stat) else { return };
        let version = Some(stamp(stat, self.clocks));
        let keys = [None, version].map(|version| Listing::head_key(&directory, version, self.size, self.rules));
        let (done, removed) = sync_channel(1);
        if self.fills.send(Work::Remove(keys.to_vec(), done)) {
            _ = removed.recv();
        }
    }

    /// What is known of a name in a directory.
    pub(crate) fn find(&self, parent: &Node, name: &OsStr) -> NameAnswer {
        let Some((listing, until)) = self.listing(parent, true) else { return NameAnswer::Unknown };
        match listing.entry(name.as_bytes()) {
            Some(_) => self
                .entry(parent, &listing, name)
                .map_or(NameAnswer::Unknown, |(entry, until)| NameAnswer::Entry(Box::new(entry), until)),
            None if may_be_missing(&listing, name) => {
                self.are_all_until(until).map_or(NameAnswer::Unknown, NameAnswer::Missing)
            }
            None => NameAnswer::Unknown,
        }
    }

    /// When this mount changed the names of a directory last, or found one that leads elsewhere.
    fn since(&self, directory: &Node) -> Option<Time> {
        let moved = directory.state.names_since().map_or(0, |moved| self.clock.of(moved));
        Some(self.changes().of(&self.identity(directory)?).max(moved))
    }

    /// An entry of a listing with attributes that count, and until when they do.
    pub(crate) fn entry(&self, directory: &Node, listing: &Listing, name: &OsStr) -> Option<(NameEntry, Instant)> {
        let entry = listing.entry(name.as_bytes()).filter(|entry| entry.attributes.is_some())?;
        let until = self.until(listing)?;
        // The name may lead to another file by now.
        let since = self.since(directory)?;
        let file = self.inner(directory, name.as_bytes(), self.key(entry))?;
        self.is_after(listing, self.changes().of(&file).max(since)).then(|| (entry.clone(), until))
    }

    /// Whether what a listing says of a file can be what it is now, by what this mount has seen of it.
    pub(crate) fn agrees(&self, node: &Node, attributes: &Attributes) -> bool {
        let seen = node.state.seen();
        node.state.writers() == 0 && seen.is_none_or(|seen| seen == stamp_of(attributes, self.clocks))
    }

    /// What names the file of an entry for this mount. Nothing without attributes.
    pub(crate) fn named_by(&self, entry: &NameEntry) -> Option<NamedBy> {
        let attributes = entry.attributes?;
        Some(match self.root {
            Some(_) => NamedBy::Path((attributes.modified, attributes.size)),
            None => NamedBy::Number(self.key(entry)),
        })
    }

    /// Whether an entry that has the name of a file is of this file.
    fn is_of(&self, entry: &NameEntry, node: &Node) -> bool {
        let is_kind = node.kind == FileType::from_raw_mode(entry.kind);
        is_kind && (self.naming() == Naming::Path || node.key() == Some(self.key(entry)))
    }

    /// What listings in memory say of a file that the kernel knows.
    pub(crate) fn said(&self, node: &Node, parent: Option<&Node>) -> Option<(NameEntry, Instant)> {
        let found = |directory: &Node, name: &OsStr| {
            let (listing, _) = self.listing(directory, false)?;
            let (entry, until) = self.entry(directory, &listing, name)?;
            let agrees = entry.attributes.is_some_and(|attributes| self.agrees(node, &attributes));
            (agrees && self.is_of(&entry, node)).then_some((entry, until))
        };
        if node.kind == FileType::Directory
            && let Some(own) = found(node, OsStr::new("."))
        {
            return Some(own);
        }
        let (_, name) = node.place()?;
        found(parent?, &name)
    }

    /// What an extended attribute is answered with that a file surely does not have.
    pub(crate) fn lacks(entry: &NameEntry, name: &OsStr) -> Option<Errno> {
        let (name, list) = (name.as_bytes(), entry.extended.as_deref());
        if list == Some(Self::NO_EXTENDED) {
            return Some(Errno::OPNOTSUPP);
        }
        let is_listed = Self::LISTED.iter().any(|listed| name.starts_with(listed));
        (is_listed && has_name(list, name) == Some(false)).then_some(Errno::NODATA)
    }

    /// Where a link leads.
    pub(crate) fn target(&self, node: &Node, parent: &Node) -> Option<Vec<u8>> {
        let (_, name) = node.place()?;
        let (listing, _) = self.listing(parent, true)?;
        let (entry, _) = self.entry(parent, &listing, &name)?;
        if self.is_of(&entry, node) { entry.target } else { None }
    }

    /// What is said of the names of a directory that is opened, by their time, and whether these are all; `look` looks at the directory below.
    pub(crate) fn names_by_time<E>(
        &self,
        node: &Node,
        look: impl FnOnce() -> Result<Stat, E>,
    ) -> Result<Option<(Arc<Listing>, bool)>, E> {
        let Some((listing, until)) = self.listing(node, true) else { return Ok(None) };
        let are_all = match listing.version {
            _ if self.are_all_until(until).is_some() => true,
            // The version says nothing where it can be set back.
            Some(version) if self.clocks.has_changed => stamp(&look()?, self.clocks) == version,
            _ => false,
        };
        Ok(Some((listing, are_all)))
    }

    /// All names of a directory under its version, which was looked at after it was opened.
    pub(crate) fn names_by_version(&self, fd: &OwnedFd, stat: &Stat) -> Option<Arc<Listing>> {
        let directory = self.of_open(fd, stat).filter(|_| self.believed.is_none())?;
        let version = stamp(stat, self.clocks);
        let key = Listing::head_key(&directory, Some(version), self.size, self.rules);
        // What was purged counts no more, although a daemon may bring it back.
        let since = self.changes().of_all();
        let counts = |listing: &Listing| listing.version == Some(version) && self.is_after(listing, since);
        self.fetch(&directory, &key, counts).map(Arc::new)
    }

    /// Begins to list a directory that is open below, of which `stat` was looked at after the request arrived. `extended` asks for the names of its extended attributes.
    pub(crate) fn collect(
        &self,
        arrived: Arrival,
        node: &Node,
        (fd, stat): (&OwnedFd, &Stat),
        extended: impl FnOnce() -> Option<Vec<u8>>,
    ) -> Option<Collector> {
        if stat.st_dev != self.device {
            return None;
        }
        let version = stamp(stat, self.clocks);
        let is_settled = self.clocks.has_changed && version.is_settled(arrived.time(), self.clocks);
        let version = Some(version).filter(|_| is_settled || !self.rules.settled);
        if self.believed.is_none() && version.is_none() {
            return None;
        }
        let born = self.lasting(node.key(), arrived);
        // The next directory with its number could be born in the same moment.
        if self.by_birth && born.is_none() {
            return None;
        }
        let own = NameEntry {
            name: b".".to_vec(),
            number: stat.st_ino,
            born,
            kind: FileType::Directory.as_raw_mode(),
            attributes: Some(attributes_of(stat)),
            target: None,
            extended: self.believed.and_then(|_| extended()),
        };
        // At the earliest.
        let taken = self.clock.at(arrived) - self.clock.ahead;
        let lists_all = self.lists_all && !folds_letters(fd);
        Some(Collector::new(arrived, taken, version, lists_all, own))
    }

    /// When a file was born, if no later file with its number can be born then.
    pub(crate) fn lasting(&self, key: Option<NodeKey>, arrived: Arrival) -> Option<(i64, u32)> {
        let born = key?.born?;
        (arrived.time() - self.clocks.ahead - nanoseconds(born) > self.clocks.grain).then_some(born)
    }

    /// What is said of an entry that was looked up below. Of a file on another device nothing is.
    pub(crate) fn is_ours(&self, stat: &Stat) -> bool {
        stat.st_dev == self.device
    }

    /// A directory was listed to its end: the names are kept here, and go into the bank.
    pub(crate) fn keep(&self, node: &Node, collector: Collector) -> bool {
        let Some(directory) = self.identity(node) else { return true };
        let taken = collector.taken();
        let Collector { version, lists_all, entries, bytes, .. } = collector;
        let mut listing = Listing::new(taken, version, entries);
        listing.lists_all = lists_all;
        let mut mark = [0; 16];
        if getrandom::fill(&mut mark).is_err() {
            return true;
        }
        let under = if self.believed.is_some() { None } else { version };
        let blocks = listing.blocks(&directory, under, mark, self.size, self.rules);
        let blocks: Vec<(BlockKey, Arc<Vec<u8>>)> =
            blocks.into_iter().map(|(key, bytes)| (key, Arc::new(bytes))).collect();
        blocks.iter().for_each(|(key, bytes)| self.blocks.keep_near(key, bytes));
        if self.believed.is_some() {
            self.table().put(directory, Slot::Listing(Arc::new(listing), bytes));
        }
        self.fills.store(blocks)
    }

    /// A listing whose time counts, and until when: from memory, or from the bank if that is to be asked.
    fn listing(&self, node: &Node, asks: bool) -> Option<(Arc<Listing>, Instant)> {
        self.believed?;
        let directory = self.identity(node)?;
        let known = match self.table().slots.get(&directory) {
            Some(Slot::Listing(listing, _)) => Some(listing.clone()),
            Some(Slot::Absent(until)) if Instant::now() < *until => return None,
            _ => None,
        };
        let counts = |listing: &Listing| {
            self.until(listing).is_some() && self.since(node).is_some_and(|since| self.is_after(listing, since))
        };
        let listing = match known.filter(|listing| counts(listing)) {
            Some(listing) => listing,
            None if asks => {
                let key = Listing::head_key(&directory, None, self.size, self.rules);
                let found = self.fetch(&directory, &key, counts).map(Arc::new);
                let slot = match &found {
                    Some(listing) => {
                        let bytes = listing.entries().iter().map(NameEntry::bytes).sum();
                        Slot::Listing(listing.clone(), bytes)
                    }
                    None => Slot::Absent(Instant::now() + Self::REST),
                };
                self.table().put(directory.clone(), slot);
                found?
            }
            None => return None,
        };
        let until = self.until(&listing)?;
        self.may_be_said(node, &listing).then_some((listing, until))
    }

    /// A listing from the bank, if it counts. What is near may have been replaced in the bank.
    fn fetch(&self, directory: &[u8], key: &BlockKey, counts: impl Fn(&Listing) -> bool) -> Option<Listing> {
        let keys = std::slice::from_ref(key);
        loop {
            let head = self.blocks.look(keys).pop()?.ok()?;
            let listing = ListingHead::parse(&head.bytes).and_then(|head| {
                let keys = head.rest(directory, self.size, self.rules);
                let mut rest = Vec::with_capacity(keys.len());
                // As much together as a read asks for: a daemon that is late with more would count as failed.
                for keys in keys.chunks((Fills::TOGETHER / self.size.bytes() as usize).max(1)) {
                    let found: Option<Vec<_>> = self.blocks.look(keys).into_iter().map(|found| found.ok()).collect();
                    rest.extend(found?);
                }
                head.listing(rest.iter().map(|found| found.bytes.as_slice()))
            });
            match listing.filter(|listing| counts(listing)) {
                Some(listing) => return Some(listing),
                None if head.is_near => self.blocks.drop_near(key),
                None => return None,
            }
        }
    }

    /// Until when a listing counts, as old as it may be. One from the future is of a clock that is wrong.
    fn until(&self, listing: &Listing) -> Option<Instant> {
        let asked = Instant::now();
        let age = self.clock.now() + self.clock.behind - listing.taken;
        let left = self.believed?.checked_sub(Duration::from_nanos(u64::try_from(age).ok()?))?;
        (!left.is_zero()).then(|| asked + left)
    }

    /// Until when a name that a listing lacks is missing, if the listing itself counts so long.
    fn are_all_until(&self, until: Instant) -> Option<Instant> {
        let earlier = self.believed?.saturating_sub(self.missed);
        until.checked_sub(earlier).filter(|until| *until > Instant::now())
    }

    /// Whether a listing was surely taken later than a time of our clock.
    fn is_after(&self, listing: &Listing, time: Time) -> bool {
        listing.taken > time + self.clock.behind
    }

    /// Whether everyone may list and search a directory, by what is known of it.
    pub(crate) fn all_may_search(&self, node: &Node) -> bool {
        let has = |listing: &Listing| listing.entry(b".").is_some_and(rights::all_may_search);
        let is_directory = node.kind == FileType::Directory;
        self.shows_rights && is_directory && self.listing(node, true).is_some_and(|(listing, _)| has(&listing))
    }

    /// Whether the names of a directory may be said to this user.
    fn may_be_said(&self, node: &Node, listing: &Listing) -> bool {
        let (Some(own), Some(believed)) = (listing.entry(b"."), self.believed) else { return false };
        self.shows_rights && rights::all_may_search(own)
            || rights::lists_as_it_searches(own) && node.state.may_list(believed, || rights::may_list(node))
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changes(&self) -> MutexGuard<'_, Changes> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a name is in a list of names, if there is a list.
fn has_name(list: Option<&[u8]>, name: &[u8]) -> Option<bool> {
    list.map(|list| list.split(|byte| *byte == 0).any(|one| one == name))
}
