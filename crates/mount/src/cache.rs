//! Reads from the bank under a promise (rules B13 to B15, B18).
//!
//! An open asks the file system below, as it would without us: that is the one message of a hit. Its answer is the version.
//! Where the version is settled, reads ask the bank under it, and bring what is missing; where it is not, the file is read below. A
//! file's *epoch* ends when a writer of this mount opens or closes it, when a lock is taken, or when another stamp is seen:
//! files that were open before then are read below for the rest of their lives.
//!
//! Blocks that were read below go into the bank from a thread of their own. Its queue is bounded: what does not fit is dropped and
//! counted, for a bank may forget.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{FileType, OFlags, Stat, fstat};
use rustix::time::{ClockId, clock_gettime};
use verbena_bank::{
    After, Attributes, BlockKey, BlockSize, Blocks, Clocks, Direct, End, FileKey, Name, Opening, Read, Removed, Rules,
    Stamp, Time, decide,
};

use crate::below::{Below, Identity};
use crate::explain::LastAccess;
use crate::files::read_at;
use crate::handles::Handle;
use crate::names::Names;
use crate::nodes::{Node, path_inside};
use crate::promise::Promise;
use crate::purge::Distrusted;
use crate::state::Epoch;

/// How the kernel may use its own pages of a file for one open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pages {
    /// Not at all.
    Bypass,
    /// Anew: it drops those it has.
    Fresh,
    /// As they are: they were read under the version of this open.
    Keep,
}

/// When a request arrived, by our clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    time: Time,
    since_start: Time,
}

impl Arrival {
    pub(crate) fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let start = clock_gettime(ClockId::Boottime);
        let since_start = Time::from(start.tv_sec) * 1_000_000_000 + Time::from(start.tv_nsec);
        Arrival { time: since.as_nanos() as Time, since_start }
    }

    /// Nanoseconds since 1970.
    pub(crate) fn time(self) -> Time {
        self.time
    }

    /// Nanoseconds since the machine started. No clock that is set changes it.
    pub(crate) fn since_start(self) -> Time {
        self.since_start
    }
}

/// What was known of a file when it was opened.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) pages: Pages,
    /// Whether the kernel may believe another state of the file.
    pub(crate) is_news: bool,
    epoch: Epoch,
    stamp: Stamp,
    /// Under which its blocks stand in the bank. None: it is read below.
    key: Option<FileKey>,
}

/// The bank of a mount.
#[derive(Debug)]
pub(crate) struct Cache {
    blocks: Arc<Blocks>,
    size: BlockSize,
    below: Below,
    rules: Rules,
    work: Fills,
    distrusted: Distrusted,
    counts: CacheCounters,
}

/// The way to the thread of the bank, with what waits there.
#[derive(Clone, Debug)]
pub(crate) struct Fills {
    work: SyncSender<Work>,
    /// Bytes that wait.
    bytes: Arc<AtomicUsize>,
}

/// What the thread of the bank does, in the order in which it was asked.
pub(crate) enum Work {
    Store(Vec<(BlockKey, Arc<Vec<u8>>)>),
    Remove(Vec<BlockKey>, SyncSender<Removed>),
}

/// Counters of a mount, beside those of its bank.
#[derive(Debug, Default)]
pub(crate) struct CacheCounters {
    /// Opens that use the bank.
    pub(crate) opens: AtomicU64,
    /// Opens that do not, by reason ([`Direct::ALL`]).
    pub(crate) direct: [AtomicU64; Direct::ALL.len()],
    /// Reads that the bank answered without the file system below.
    pub(crate) whole: AtomicU64,
    /// Reads that needed some blocks from below.
    pub(crate) partial: AtomicU64,
    /// Reads that went below from start to end, since the file was in another epoch or changed meanwhile.
    pub(crate) below: AtomicU64,
    /// Bytes read below to fill the bank.
    pub(crate) filled_bytes: AtomicU64,
    /// Fills for which the queue had no room.
    pub(crate) dropped_fills: AtomicU64,
    /// Files whose blocks were purged.
    pub(crate) purged: AtomicU64,
}

impl Cache {
    /// Blocks of a file that a purge takes out of the bank. Of a larger file all stay there, and this mount does not use them.
    const REMOVED: u64 = 1 << 20;
    /// Blocks that are taken out together.
    const TOGETHER: usize = 1024;

    pub(crate) fn new(blocks: Arc<Blocks>, size: BlockSize, below: Below, rules: Rules) -> std::io::Result<Self> {
        let (work, queue) = Fills::new();
        let (bank, bytes) = (blocks.clone(), work.bytes.clone());
        // It ends when the cache, and with it the queue, is dropped.
        std::thread::Builder::new().name("fill".to_owned()).spawn(move || fill(&bank, &queue, &bytes))?;
        let distrusted = Distrusted::default();
        Ok(Cache { blocks, size, below, rules, work, distrusted, counts: CacheCounters::default() })
    }

    /// What the bank may say of names under a promise, if that is anything.
    pub(crate) fn names(&self, promise: Promise) -> Option<Names> {
        Names::new(self.blocks.clone(), self.size, self.rules, &self.below, self.work.clone(), promise)
    }

    pub(crate) fn rules(&self) -> Rules {
        self.rules
    }

    pub(crate) fn blocks(&self) -> &Blocks {
        &self.blocks
    }

    pub(crate) fn counts(&self) -> &CacheCounters {
        &self.counts
    }

    /// The file system below showed this of a file.
    pub(crate) fn observe(&self, node: &Node, stat: &Stat) {
        node.state.observe(stamp(stat, self.below.clocks));
    }

    /// The kernel is told this of a file, and may believe it for a while.
    pub(crate) fn told(&self, node: &Node, attributes: &Attributes) {
        node.state.told(stamp_of(attributes, self.below.clocks));
    }

    /// A file was opened below, after the request arrived.
    pub(crate) fn opened(&self, node: &Node, fd: &OwnedFd, flags: OFlags, arrived: &Arrival) -> View {
        let direct = |stamp: Stamp, reason: Direct, is_news: bool| {
            self.counts.direct[reason as usize].fetch_add(1, Relaxed);
            node.state.accessed(LastAccess::Direct(reason));
            node.state.pages_are(None);
            View { pages: Pages::Bypass, is_news, epoch: node.state.epoch(self.rules), stamp, key: None }
        };
        let Ok(stat) = fstat(fd) else {
            return direct(Stamp { modified: 0, changed: 0, size: 0 }, Direct::Identity, false);
        };
        let now = stamp(&stat, self.below.clocks);
        node.state.observe(now);
        let is_news = node.state.is_news(now);
        // Before the count of writers: one that opens in between ends this epoch.
        let epoch = node.state.epoch(self.rules);
        let identity = node.fd().ok().and_then(|fd| self.identity(fd, &stat));
        let opening = Opening {
            is_regular: FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile,
            writes: flags.intersects(OFlags::WRONLY | OFlags::RDWR),
            writers: node.state.writers(),
            has_identity: identity.is_some(),
            settled: now.is_settled(arrived.time, self.below.clocks),
            direct: flags.contains(OFlags::DIRECT),
        };
        let (None, Some(identity)) = (decide(&opening, self.rules), identity) else {
            return direct(now, decide(&opening, self.rules).unwrap_or(Direct::Identity), is_news);
        };
        self.counts.opens.fetch_add(1, Relaxed);
        node.state.accessed(LastAccess::Opened);
        let pages = match node.state.pages_are(Some(now).filter(|_| !is_news)) {
            // It reads no further than the end that it believes.
            _ if is_news => Pages::Bypass,
            true => Pages::Keep,
            false => Pages::Fresh,
        };
        // After the epoch was taken: a purge that comes in between ends it.
        let key = self.key(&identity, now);
        View { pages, is_news, epoch, stamp: now, key: Some(key) }
    }

    /// The bytes, or nothing if they are to be read below.
    pub(crate) fn read(
        &self,
        handle: &Handle,
        view: &View,
        offset: u64,
        bytes: usize,
    ) -> Result<Option<Vec<u8>>, rustix::io::Errno> {
        let Some(key) = &view.key else { return Ok(None) };
        let is_current = || handle.node.state.epoch(self.rules) == view.epoch;
        // Behind the end there may be bytes by now.
        if !is_current() {
            return Ok(self.go_below(handle, LastAccess::Ended));
        }
        if offset >= view.stamp.size {
            return Ok(self.go_below(handle, LastAccess::End));
        }
        let mut read = Read::new(self.size, view.stamp.size, offset, bytes as u64, self.rules);
        let keys: Vec<BlockKey> = read.blocks().map(|block| key.block(self.size, block)).collect();
        let (mut misses, mut near) = (vec![], 0);
        for (key, found) in keys.iter().zip(self.blocks.look(&keys)) {
            match found {
                Ok(found) => {
                    near += usize::from(found.is_near);
                    read.banked(key.block(), found.bytes);
                }
                Err(miss) => misses.push(miss),
            }
        }
        let runs = read.runs();
        for run in &runs {
            let below = read_at(handle.fd()?, run.offset, run.bytes)?;
            self.counts.filled_bytes.fetch_add(below.len() as u64, Relaxed);
            read.below(*run, &below);
        }
        let after = || match handle.fd().and_then(fstat) {
            Ok(stat) if stamp(&stat, self.below.clocks) == view.stamp && is_current() => After::Same,
            _ => After::Moved,
        };
        match read.end(after) {
            // A lock or a writer that came meanwhile ends what the bank said before it.
            End::Serve { bytes, fills } if is_current() => {
                let counter = if runs.is_empty() { &self.counts.whole } else { &self.counts.partial };
                counter.fetch_add(1, Relaxed);
                let access = if misses.is_empty() {
                    LastAccess::Whole(keys.len(), near)
                } else {
                    LastAccess::Partial(keys.len(), misses)
                };
                handle.node.state.accessed(access);
                self.keep(key, fills);
                Ok(Some(bytes))
            }
            _ => Ok(self.go_below(handle, LastAccess::Moved)),
        }
    }

    /// What the kernel is given now is of no known version, and so are its pages.
    fn go_below(&self, handle: &Handle, why: LastAccess) -> Option<Vec<u8>> {
        handle.node.state.accessed(why);
        self.counts.below.fetch_add(1, Relaxed);
        handle.node.state.pages_are(None);
        None
    }

    fn keep(&self, key: &FileKey, fills: Vec<(u64, Arc<Vec<u8>>)>) {
        if fills.is_empty() {
            return;
        }
        let fills: Vec<(BlockKey, Arc<Vec<u8>>)> =
            fills.into_iter().map(|(block, bytes)| (key.block(self.size, block), bytes)).collect();
        fills.iter().for_each(|(key, bytes)| self.blocks.keep_near(key, bytes));
        if !self.work.store(fills) {
            self.counts.dropped_fills.fetch_add(1, Relaxed);
        }
    }

    /// Under which its blocks stand: under a key that only this mount has, if they were purged.
    fn key(&self, identity: &[u8], stamp: Stamp) -> FileKey {
        let key = FileKey::new(identity, &stamp.bytes(), self.rules);
        match self.distrusted.tag(&self.name(&key)) {
            Some(tag) => key.tagged(tag),
            None => key,
        }
    }

    fn name(&self, key: &FileKey) -> Name {
        self.blocks.name(&key.block(self.size, 0))
    }

    /// From now on no block is used that this version of a file has in the bank. They are taken out of it too, for other mounts, as far
    /// as it answers; nothing if there are too many. Says too whether so many versions were purged that all files were.
    pub(crate) fn purge(&self, fd: &OwnedFd, stat: &Stat, tag: u64) -> (Option<Removed>, bool) {
        let Some(identity) = self.identity(fd, stat) else { return (Some(Removed::default()), false) };
        self.counts.purged.fetch_add(1, Relaxed);
        let stamp = stamp(stat, self.below.clocks);
        let plain = FileKey::new(&identity, &stamp.bytes(), self.rules);
        let now = self.key(&identity, stamp);
        let is_all = self.distrusted.add(self.name(&plain), tag);
        let count = stamp.size.div_ceil(self.size.bytes().into());
        if count > Self::REMOVED {
            return (None, is_all);
        }
        let mut keys = vec![&plain];
        keys.extend((now != plain).then_some(&now));
        let mut removed = Removed::default();
        for key in keys {
            for first in (0..count).step_by(Self::TOGETHER) {
                let blocks = first..count.min(first + Self::TOGETHER as u64);
                let some = self.remove(blocks.map(|block| key.block(self.size, block)).collect());
                removed =
                    Removed { blocks: removed.blocks + some.blocks, unreached: removed.unreached + some.unreached };
            }
        }
        (Some(removed), is_all)
    }

    /// Takes blocks out, behind the fills that wait.
    fn remove(&self, keys: Vec<BlockKey>) -> Removed {
        let all = Removed { blocks: 0, unreached: keys.len() as u64 };
        let (done, removed) = sync_channel(1);
        // The thread ends with the cache, so both ends are there.
        if !self.work.send(Work::Remove(keys, done)) {
            return all;
        }
        removed.recv().unwrap_or(all)
    }

    /// What names the file for all clients of the volume (rule B3).
    fn identity(&self, fd: &OwnedFd, stat: &Stat) -> Option<Vec<u8>> {
        if stat.st_nlink == 0 {
            return None;
        }
        match &self.below.identity {
            Identity::Number => {
                (stat.st_dev == self.below.device).then(|| [&b"n"[..], &stat.st_ino.to_le_bytes()].concat())
            }
            Identity::Path => Some([&b"p"[..], &path_inside(fd, &self.below.root)?].concat()),
        }
    }
}

/// What a look below says of a file.
pub(crate) fn attributes_of(stat: &Stat) -> Attributes {
    Attributes {
        mode: stat.st_mode,
        links: stat.st_nlink,
        uid: stat.st_uid,
        gid: stat.st_gid,
        device: stat.st_rdev,
        size: stat.st_size as u64,
        blocks: stat.st_blocks as u64,
        block_size: stat.st_blksize as u32,
        accessed: (stat.st_atime, stat.st_atime_nsec as u32),
        modified: (stat.st_mtime, stat.st_mtime_nsec as u32),
        changed: (stat.st_ctime, stat.st_ctime_nsec as u32),
    }
}

/// What a look below says of a file's version.
pub(crate) fn stamp(stat: &Stat, clocks: Clocks) -> Stamp {
    stamp_of(&attributes_of(stat), clocks)
}

/// A stamp counts to the grain of its file system's times only.
pub(crate) fn stamp_of(told: &Attributes, clocks: Clocks) -> Stamp {
    let coarse = |time: Time| if clocks.grain >= 1_000_000_000 { time - time.rem_euclid(clocks.grain) } else { time };
    let modified = coarse(nanoseconds(told.modified));
    let changed = if clocks.has_changed { coarse(nanoseconds(told.changed)) } else { modified };
    Stamp { modified, changed, size: told.size }
}

/// A time in seconds and nanoseconds, in nanoseconds.
pub(crate) fn nanoseconds((seconds, nanoseconds): (i64, u32)) -> Time {
    Time::from(seconds) * 1_000_000_000 + Time::from(nanoseconds)
}

impl Fills {
    /// Reads and listings whose blocks may wait to be stored, and their bytes.
    const MOST: usize = 64;
    const BYTES: usize = 64 << 20;
    /// Bytes that are stored, or asked for, together: a bank that takes longer than its deadline for more would count as failed.
    pub(crate) const TOGETHER: usize = 1 << 20;

    fn new() -> (Self, Receiver<Work>) {
        let (work, queue) = sync_channel(Self::MOST);
        (Fills { work, bytes: Arc::default() }, queue)
    }

    /// Says whether there is room for them. What does not fit is not stored: a bank may forget.
    pub(crate) fn store(&self, fills: Vec<(BlockKey, Arc<Vec<u8>>)>) -> bool {
        let bytes = bytes(&fills);
        let has_room = self.bytes.fetch_add(bytes, Relaxed) + bytes <= Self::BYTES;
        let is_stored = has_room && self.work.try_send(Work::Store(fills)).is_ok();
        if !is_stored {
            self.bytes.fetch_sub(bytes, Relaxed);
        }
        is_stored
    }

    /// Waits for its turn in the queue. Says whether the thread is still there.
    pub(crate) fn send(&self, work: Work) -> bool {
        self.work.send(work).is_ok()
    }
}

fn bytes(fills: &[(BlockKey, Arc<Vec<u8>>)]) -> usize {
    fills.iter().map(|(key, bytes)| key.bytes().len() + bytes.len()).sum()
}

fn fill(blocks: &Blocks, queue: &Receiver<Work>, waiting: &AtomicUsize) {
    while let Ok(work) = queue.recv() {
        match work {
            Work::Store(fills) => {
                let most = fills.first().map_or(1, |(_, first)| (Fills::TOGETHER / first.len().max(1)).max(1));
                fills.chunks(most).for_each(|fills| blocks.store(fills));
                waiting.fetch_sub(bytes(&fills), Relaxed);
            }
            // A purge that is gone needs no answer.
            Work::Remove(keys, done) => _ = done.send(blocks.remove(&keys)),
        }
    }
}

#[cfg(test)]
mod tests {
    use verbena_bank::Rules;

    use super::*;

    #[test]
    fn what_waits_to_be_stored_is_bounded_by_its_bytes() {
        let (fills, queue) = Fills::new();
        let block = Arc::new(vec![0; 1 << 20]);
        let key = FileKey::new(b"f", b"v", Rules::default()).block(BlockSize::default(), 0);
        let listing = || vec![(key.clone(), block.clone()); 16];
        // Three, with their keys; a fourth is more than there is room for.
        assert!((0..3).all(|_| fills.store(listing())) && !fills.store(listing()));
        assert!(fills.store(vec![(key.clone(), block.clone())]) && fills.bytes.load(Relaxed) <= Fills::BYTES);
        drop(queue);
        let before = fills.bytes.load(Relaxed);
        assert!(!fills.store(vec![(key.clone(), block.clone())]) && !fills.send(Work::Store(vec![])));
        assert_eq!(fills.bytes.load(Relaxed), before, "what is dropped does not wait");
    }
}
