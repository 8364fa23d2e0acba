//! Names, attributes, missing names, listings and targets of links from the bank (rule B16).
//!
//! What is in the bank is a [`Listing`]: all names of a directory, as a mount saw them that listed it below from start to end. What another mount
//! may say from it depends on the promise, as `crates/bank/tests/it/names.rs` explores it:
//!
//! | promise | what counts |
//! |---|---|
//! | `open` | the names of a listing, under the directory's version, which is looked at below after it was opened. Attributes never |
//! | `age=T` | all of it, for T less what has passed since before the file system below was asked |
//!
//! There are names where files have times of birth by this machine's clock ([`Below::has_births`]), so that a name that was said long ago leads to
//! its file or to none. All that find a listing are of one start of one machine ([`Below::place`]): its time counts from there, and no clock that is set
//! makes it younger. Nothing is said under `sealed`: a listing that was taken while a file was written has its attributes from before it was closed.
//!
//! Only what was read below goes into the bank, of a directory that did not change while it was listed. What this mount changed counts from its
//! change on: a listing that was taken before is not used for the file and its directory.
//!
//! A name is said to this user, who may not be the one who listed the directory. So either everyone may list and search it, by its mode, or it is opened below once.

mod kind;
mod missing;
mod rights;
mod table;

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{FileType, Stat};
use rustix::io::Errno;
use verbena_bank::{
    Attributes, BlockKey, BlockSize, Blocks, Clocks, FileKey, Listing, ListingHead, NameEntry, Rules, Time,
};

use crate::below::Below;
use crate::cache::{Arrival, Fills, Work, attributes_of, nanoseconds, stamp, stamp_of};
use crate::nodes::{Node, NodeKey};
use crate::promise::Promise;
pub(crate) use kind::NameKind;
use missing::{flags, folds_letters, is_encrypted, may_be_missing};
pub(crate) use table::Collector;
use table::{Changes, DirectoryTimes, Slot, Table};

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
    /// Whether a name that is not listed is missing, in a directory where letters are not folded.
    lists_all: bool,
    device: u64,
    /// What tells the file system from others.
    place: Vec<u8>,
    fills: Fills,
    /// How long names and attributes count by their time; nothing where they count by the directory's version alone.
    believed: Option<Duration>,
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
    ) -> Option<Self> {
        let believed = match promise {
            // A directory's times can be set back where no change time shows it.
            Promise::Open if below.clocks.has_changed => None,
            Promise::Open | Promise::Sealed => return None,
            Promise::Age(age) => Some(age),
        };
        if !below.has_births {
            return None;
        }
        let place = FileKey::new(b"place", &below.place()?, Rules::default()).block(size, 0);
        Some(Names {
            // A hash of it, so that keys stay short.
            place: blocks.name(&place).bytes()[..16].to_vec(),
            blocks,
            size,
            rules,
            clocks: below.clocks,
            lists_all: below.lists_all,
            device: below.device,
            fills,
            believed,
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

    /// What names a file for all that find a listing of it (rule B3). Without a time of birth, or on another device, it is in none.
    fn identity(&self, NodeKey { device, number, born }: NodeKey) -> Option<Vec<u8>> {
        let (seconds, nanoseconds) = born.filter(|_| device == self.device)?;
        let parts = [b"n", &self.place[..], &number.to_le_bytes(), &seconds.to_le_bytes(), &nanoseconds.to_le_bytes()];
        Some(parts.concat())
    }

    /// What names the file of an entry.
    pub(crate) fn key(&self, entry: &NameEntry) -> NodeKey {
        NodeKey { device: self.device, number: entry.number, born: entry.born }
    }

    /// This mount changed a file, or the names of a directory: what was said of it before counts no more.
    pub(crate) fn changed(&self, node: &Node) {
        node.state.rights_changed();
        self.changed_key(node.key);
    }

    /// The same for what names a file.
    pub(crate) fn changed_key(&self, key: NodeKey) {
        let Some(file) = self.identity(key) else { return };
        let now = Arrival::now().since_start();
        let believed = self.believed.unwrap_or_default().as_nanos() as Time;
        self.changes().add(file, now, now - believed);
    }

    /// Nothing that was said of any name before counts any more.
    pub(crate) fn distrust(&self) {
        *self.changes() = Changes::all(Arrival::now().since_start());
        *self.table() = Table::default();
    }

    /// Takes the listing of a directory out of the bank, as far as it answers.
    pub(crate) fn purge(&self, key: NodeKey, stat: &Stat) {
        let Some(directory) = self.identity(key) else { return };
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
            None if may_be_missing(&listing, name) => NameAnswer::Missing(until),
            None => NameAnswer::Unknown,
        }
    }

    /// When this mount changed the names of a directory last, or found one that leads elsewhere.
    fn since(&self, directory: &Node) -> Option<Time> {
        let moved = directory.state.names_since().unwrap_or(0);
        Some(self.changes().of(&self.identity(directory.key)?).max(moved))
    }

    /// An entry of a listing with attributes that count, and until when they do.
    pub(crate) fn entry(&self, directory: &Node, listing: &Listing, name: &OsStr) -> Option<(NameEntry, Instant)> {
        let entry = listing.entry(name.as_bytes()).filter(|entry| entry.attributes.is_some())?;
        let until = self.until(listing)?;
        // The name may lead to another file by now.
        let since = self.since(directory)?;
        let file = self.identity(self.key(entry))?;
        (listing.taken > self.changes().of(&file).max(since)).then(|| (entry.clone(), until))
    }

    /// Whether what a listing says of a file can be what it is now, by what this mount has seen of it.
    pub(crate) fn agrees(&self, node: &Node, attributes: &Attributes) -> bool {
        let seen = node.state.seen();
        node.state.writers() == 0 && seen.is_none_or(|seen| seen == stamp_of(attributes, self.clocks))
    }

    /// Whether an entry that has the name of a file is of this file.
    fn is_of(&self, entry: &NameEntry, node: &Node) -> bool {
        node.kind == FileType::from_raw_mode(entry.kind) && node.key == self.key(entry)
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

    /// All names of a directory that is opened, by their time.
    pub(crate) fn names_by_time(&self, node: &Node) -> Option<Arc<Listing>> {
        self.listing(node, true).map(|(listing, _)| listing)
    }

    /// All names of a directory under its version, which was looked at after it was opened.
    pub(crate) fn names_by_version(&self, key: NodeKey, stat: &Stat) -> Option<Arc<Listing>> {
        let directory = self.identity(key)?;
        let version = stamp(stat, self.clocks);
        let key = Listing::head_key(&directory, Some(version), self.size, self.rules);
        // What was purged counts no more, although a daemon may bring it back.
        let since = self.changes().of_all();
        let counts = |listing: &Listing| listing.version == Some(version) && listing.taken > since;
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
        let flags = flags(fd);
        if is_encrypted(flags) {
            return None;
        }
        let version = stamp(stat, self.clocks);
        // Else a change while it is listed may show nothing.
        if self.rules.settled && !version.is_settled(arrived.time(), self.clocks) {
            return None;
        }
        // The next directory with its number could be born in the same moment.
        let born = self.lasting(node.key, arrived)?;
        let own = NameEntry {
            name: b".".to_vec(),
            number: stat.st_ino,
            born: Some(born),
            kind: FileType::Directory.as_raw_mode(),
            attributes: Some(attributes_of(stat)),
            target: None,
            extended: self.believed.and_then(|_| extended()),
        };
        let lists_all = self.lists_all && !folds_letters(flags);
        Some(Collector::new(arrived, times(stat), version, lists_all, own))
    }

    /// When a file was born, if no later file with its number can be born then.
    pub(crate) fn lasting(&self, key: NodeKey, arrived: Arrival) -> Option<(i64, u32)> {
        let born = key.born?;
        (arrived.time() - self.clocks.ahead - nanoseconds(born) > self.clocks.grain).then_some(born)
    }

    /// What is said of an entry that was looked up below. Of a file on another device nothing is.
    pub(crate) fn is_ours(&self, stat: &Stat) -> bool {
        stat.st_dev == self.device
    }

    /// A directory was listed to its end: the names are kept here, and go into the bank, if it is as it was before. A listing of one that changed may
    /// lack a name that was never missing. Says whether there was room.
    pub(crate) fn keep(&self, node: &Node, collector: Collector, look: impl FnOnce() -> Option<Stat>) -> bool {
        let Some(directory) = self.identity(node.key) else { return true };
        let Collector { arrived, seen, version, lists_all, entries, bytes, .. } = collector;
        if look().is_none_or(|stat| times(&stat) != seen) {
            return true;
        }
        let under = if self.believed.is_some() { None } else { Some(version) };
        let mut listing = Listing::new(arrived.since_start(), under, entries);
        listing.lists_all = lists_all;
        let mut mark = [0; 16];
        if getrandom::fill(&mut mark).is_err() {
            return true;
        }
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
        let directory = self.identity(node.key)?;
        let known = match self.table().slots.get(&directory) {
            Some(Slot::Listing(listing, _)) => Some(listing.clone()),
            Some(Slot::Absent(until)) if Instant::now() < *until => return None,
            _ => None,
        };
        let counts = |listing: &Listing| {
            self.until(listing).is_some() && self.since(node).is_some_and(|since| listing.taken > since)
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
    pub(crate) fn until(&self, listing: &Listing) -> Option<Instant> {
        let asked = Instant::now();
        let age = Arrival::now().since_start() - listing.taken;
        let left = self.believed?.checked_sub(Duration::from_nanos(u64::try_from(age).ok()?))?;
        (!left.is_zero()).then(|| asked + left)
    }

    /// Whether everyone may list and search a directory, by what is known of it.
    pub(crate) fn all_may_search(&self, node: &Node) -> bool {
        let has = |listing: &Listing| listing.entry(b".").is_some_and(rights::all_may_search);
        let is_directory = node.kind == FileType::Directory;
        is_directory && self.listing(node, true).is_some_and(|(listing, _)| has(&listing))
    }

    /// Whether the names of a directory may be said to this user.
    fn may_be_said(&self, node: &Node, listing: &Listing) -> bool {
        let (Some(own), Some(believed)) = (listing.entry(b"."), self.believed) else { return false };
        rights::all_may_search(own)
            || rights::lists_as_it_searches(own) && node.state.may_list(believed, || rights::may_list(node))
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changes(&self) -> MutexGuard<'_, Changes> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What moves when a name of a directory comes or goes, as fine as the file system shows it.
fn times(stat: &Stat) -> DirectoryTimes {
    let Attributes { modified, changed, .. } = attributes_of(stat);
    (modified, changed)
}

/// Whether a name is in a list of names, if there is a list.
fn has_name(list: Option<&[u8]>, name: &[u8]) -> Option<bool> {
    list.map(|list| list.split(|byte| *byte == 0).any(|one| one == name))
}

#[cfg(test)]
mod tests;
