//! One connection of SQLite to its database: a connection for memory, the locks that it holds, and what it has not put yet.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rsqlite_vfs::{LockLevel, VfsError, VfsErrorCode, VfsResult};
use verbena_client::wire::LockMode;
use verbena_client::{Hold, Memory, NewSegment, PutOptions};
use verbena_terms::Format;

use crate::error::{failed, is_missing, is_there};
use crate::vfs::Options;

const FORMAT: Format = Format::new(*b"VSQF", 1);
const WORD: usize = 8;
const HEAD_WORDS: usize = 4;
/// How long a lock is waited for before SQLite is told that the database is busy: it asks again as long as its busy timeout says.
const WAIT: Duration = Duration::from_millis(100);

/// How a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    block_bytes: u64,
    size: u64,
    blocks: u64,
}

/// As far as it is known: while a lock is held nobody else changes it.
struct File {
    /// As it is in the segment.
    put: Head,
    /// As it will be.
    head: Head,
    /// Blocks that are not put yet.
    unsynced: BTreeMap<u64, Vec<u8>>,
}

pub(crate) struct Session {
    memory: Memory,
    options: Options,
    /// Of the database's locks; without it this connection only looks whether files are there.
    lock: Option<Vec<u8>>,
    level: LockLevel,
    /// Shared by who reads, held alone by who puts pages.
    readers: Option<Hold>,
    /// Of who is going to write, until it has the readers' alone.
    writer: Option<Hold>,
    /// Whether it is going to write or writes, for who cannot wait for this session.
    writes: Arc<AtomicBool>,
    files: BTreeMap<String, File>,
    /// Of segments, as they were when the locks were held.
    versions: BTreeMap<String, u64>,
}

impl Session {
    pub(crate) fn new(memory: Memory, options: Options) -> Self {
        Session {
            memory,
            options,
            lock: None,
            level: LockLevel::None,
            readers: None,
            writer: None,
            writes: Arc::default(),
            files: BTreeMap::new(),
            versions: BTreeMap::new(),
        }
    }

    /// Says, to who cannot wait for this session, whether it is going to write to its database, or writes.
    pub(crate) fn writes(&self) -> Arc<AtomicBool> {
        self.writes.clone()
    }

    /// Has the locks of the database of this name, which is there.
    pub(crate) fn guard(&mut self, name: &str) -> VfsResult<()> {
        let lock = self.memory.lock_name(name);
        self.lock = Some(lock.map_err(|error| failed(VfsErrorCode::CantOpen, name, &error))?);
        Ok(())
    }

    /// Whether there is a file of this name.
    pub(crate) fn exists(&mut self, name: &str) -> VfsResult<bool> {
        match self.memory.stat(name) {
            Ok(_) => Ok(true),
            Err(error) if is_missing(&error) => Ok(false),
            Err(error) => Err(failed(VfsErrorCode::IoAccess, name, &error)),
        }
    }

    /// Makes a file: whether there was none.
    pub(crate) fn create(&mut self, name: &str) -> VfsResult<bool> {
        if self.exists(name)? {
            return Ok(false);
        }
        match self.allocate(name, (HEAD_WORDS * WORD) as u64) {
            Ok(()) => Ok(true),
            Err(error) if is_there(&error) => Ok(false),
            Err(error) => Err(failed(VfsErrorCode::CantOpen, name, &error)),
        }
    }

    fn allocate(&mut self, segment: &str, bytes: u64) -> verbena_client::Result<()> {
        let Options { copies, placement, .. } = &self.options;
        // Two: whoever wrote last at another node has its slot still.
        let wanted = NewSegment { writers: 2, ..NewSegment::of(bytes) };
        self.memory.allocate(wanted.named(segment).copied(*copies).placed(placement.clone())).map(|_| ())
    }

    /// Looks anew how a file is, and gives its size.
    pub(crate) fn open(&mut self, name: &str) -> VfsResult<u64> {
        let cannot = |error| failed(VfsErrorCode::CantOpen, name, &error);
        let mut value = self.memory.get(name).map_err(cannot)?;
        if value.bytes.iter().all(|byte| *byte == 0) {
            // Just made. Whoever comes first says how long its blocks are.
            let head = Head { block_bytes: self.options.block_bytes.into(), size: 0, blocks: 0 };
            let over = PutOptions { offset: 0, over: Some(value.version) };
            let put = self.memory.put_with(name, &head.encode(), over);
            match put {
                Ok(_) | Err(verbena_client::Error::Memory { why: verbena_client::Failure::Conflict { .. }, .. }) => {}
                Err(error) => return Err(cannot(error)),
            }
            value = self.memory.get(name).map_err(cannot)?;
        }
        let head = Head::decode(name, &value.bytes)?;
        self.versions.insert(name.to_owned(), value.version);
        self.files.insert(name.to_owned(), File { put: head, head, unsynced: BTreeMap::new() });
        Ok(head.size)
    }

    /// A file's size.
    pub(crate) fn size(&mut self, name: &str) -> VfsResult<u64> {
        self.check_held(VfsErrorCode::IoStat)?;
        match self.files.get(name) {
            Some(file) => Ok(file.head.size),
            None => self.open(name),
        }
    }

    fn file(&mut self, name: &str) -> VfsResult<&mut File> {
        self.size(name)?;
        Ok(self.files.get_mut(name).expect("invariant: it was opened"))
    }

    /// Reads as many bytes as there are from `offset` on.
    pub(crate) fn read(&mut self, name: &str, buffer: &mut [u8], offset: u64) -> VfsResult<usize> {
        let Head { block_bytes, size, .. } = self.file(name)?.head;
        let count = buffer.len().min(usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX));
        for (block, within, part) in parts(block_bytes, offset, &mut buffer[..count]) {
            if let Some(bytes) = self.file(name)?.unsynced.get(&block) {
                part.copy_from_slice(&bytes[within..within + part.len()]);
                continue;
            }
            let segment = block_name(name, block);
            let value = self.memory.get_part(segment.as_str(), within as u64, Some(part.len() as u64));
            let value = value.map_err(|error| failed(VfsErrorCode::IoRead, &segment, &error))?;
            part.copy_from_slice(value.bytes.get(..part.len()).ok_or_else(|| short(&segment))?);
            self.versions.insert(segment, value.version);
        }
        self.check_held(VfsErrorCode::IoRead)?;
        Ok(count)
    }

    /// Writes, to be put with the next [`sync`](Self::sync).
    pub(crate) fn write(&mut self, name: &str, bytes: &[u8], offset: u64) -> VfsResult<()> {
        let Head { block_bytes, size, .. } = self.file(name)?.head;
        if offset > size {
            // What is behind the end counts for nothing, and would count then.
            let gap = vec![0; (offset - size).min(block_bytes) as usize];
            self.write(name, &gap, size)?;
            return self.write(name, bytes, offset);
        }
        let mut rest = bytes.to_vec();
        for (block, within, part) in parts(block_bytes, offset, &mut rest) {
            let is_whole = part.len() as u64 == block_bytes;
            let has_data = block * block_bytes < size;
            if !self.file(name)?.unsynced.contains_key(&block) {
                let mut old = vec![0; block_bytes as usize];
                if has_data && !is_whole {
                    let there = (size - block * block_bytes).min(block_bytes) as usize;
                    self.read(name, &mut old[..there], block * block_bytes)?;
                }
                self.file(name)?.unsynced.insert(block, old);
            }
            let file = self.file(name)?;
            let block = file.unsynced.get_mut(&block).expect("invariant: it was inserted");
            block[within..within + part.len()].copy_from_slice(part);
        }
        let head = &mut self.file(name)?.head;
        head.size = head.size.max(offset + bytes.len() as u64);
        Ok(())
    }

    /// Makes a file shorter, at once.
    pub(crate) fn truncate(&mut self, name: &str, size: u64) -> VfsResult<()> {
        let file = self.file(name)?;
        file.head.size = file.head.size.min(size);
        let end = size.div_ceil(file.head.block_bytes);
        file.unsynced.retain(|block, _| *block < end);
        self.sync(name)
    }

    /// Puts what was written to other files, and then what was to this.
    pub(crate) fn sync_all(&mut self, last: &str) -> VfsResult<()> {
        self.sync_but(Some(last))?;
        self.sync(last)
    }

    fn sync_but(&mut self, last: Option<&str>) -> VfsResult<()> {
        let others: Vec<String> = self.files.keys().filter(|name| last != Some(*name)).cloned().collect();
        others.iter().try_for_each(|name| self.sync(name))
    }

    /// Puts what was written: blocks, and then how long the file is.
    pub(crate) fn sync(&mut self, name: &str) -> VfsResult<()> {
        let file = self.file(name)?;
        for (block, bytes) in std::mem::take(&mut file.unsynced) {
            while self.file(name)?.head.blocks <= block {
                let Head { blocks, block_bytes, .. } = self.file(name)?.head;
                let segment = block_name(name, blocks);
                match self.allocate(&segment, block_bytes) {
                    Ok(()) => {}
                    // Of a file of this name that is being deleted, or was not to the end.
                    Err(error) if is_there(&error) => {}
                    Err(error) => return Err(failed(VfsErrorCode::IoWrite, &segment, &error)),
                }
                self.file(name)?.head.blocks += 1;
            }
            self.put(&block_name(name, block), &bytes)?;
        }
        let File { put, head, .. } = *self.file(name)?;
        if put != head {
            self.put(name, &head.encode())?;
            self.file(name)?.put = head;
        }
        Ok(())
    }

    /// Puts over the version that there was while the locks were held.
    fn put(&mut self, segment: &str, bytes: &[u8]) -> VfsResult<()> {
        let cannot = |error| failed(VfsErrorCode::IoWrite, segment, &error);
        let over = match self.versions.remove(segment) {
            Some(version) => version,
            None => self.memory.stat(segment).map_err(cannot)?.version,
        };
        self.check_held(VfsErrorCode::IoWrite)?;
        let put = self.memory.put_with(segment, bytes, PutOptions { offset: 0, over: Some(over) });
        self.versions.insert(segment.to_owned(), put.map_err(cannot)?);
        Ok(())
    }

    /// Deletes a file. It counts for nothing from the moment on at which its size is 0.
    pub(crate) fn delete(&mut self, name: &str) -> VfsResult<()> {
        if !self.exists(name)? {
            return Err(VfsError::new(VfsErrorCode::IoDeleteNoEntry, format!("{name}: there is no such file").into()));
        }
        self.truncate(name, 0)?;
        let blocks = self.file(name)?.head.blocks;
        self.files.remove(name);
        let segments = std::iter::once(name.to_owned()).chain((0..blocks).map(|block| block_name(name, block)));
        for segment in segments {
            self.versions.remove(&segment);
            match self.memory.release(segment.as_str()) {
                Ok(()) => {}
                Err(error) if is_missing(&error) => {}
                Err(error) => return Err(failed(VfsErrorCode::IoDelete, &segment, &error)),
            }
        }
        Ok(())
    }

    /// Puts what was written, and forgets the file.
    pub(crate) fn close(&mut self, name: &str) -> VfsResult<()> {
        let synced = if self.files.contains_key(name) { self.sync(name) } else { Ok(()) };
        self.files.remove(name);
        synced
    }

    /// Whether what this connection believes to hold it holds.
    fn check_held(&mut self, code: VfsErrorCode) -> VfsResult<()> {
        let has_readers = self.level == LockLevel::None || self.readers.is_some();
        let locks = self.memory.locks();
        if has_readers && [self.readers, self.writer].iter().flatten().all(|hold| locks.is_held(hold)) {
            return Ok(());
        }
        Err(VfsError::new(code, "the database's locks were lost: the node had no lease for a while".into()))
    }

    /// Takes the database's locks, up to `level`.
    pub(crate) fn lock(&mut self, level: LockLevel) -> VfsResult<()> {
        if level <= self.level {
            return Ok(());
        }
        if self.level == LockLevel::None {
            self.readers = Some(self.acquire(false, LockMode::Shared)?);
            self.level = LockLevel::Shared;
            // What others wrote meanwhile is not known.
            self.files.clear();
            self.versions.clear();
        }
        if level == LockLevel::Shared {
            return Ok(());
        }
        if self.writer.is_none() {
            self.writer = Some(self.acquire(true, LockMode::Exclusive)?);
            self.writes.store(true, Ordering::Release);
            self.level = LockLevel::Reserved;
        }
        if level == LockLevel::Exclusive {
            // Nobody else writes until this one is alone, or reads again: who writes has the other lock.
            self.release_readers()?;
            let alone = self.acquire(false, LockMode::Exclusive);
            let and_again = if alone.is_err() { Some(self.acquire(false, LockMode::Shared)?) } else { None };
            (self.readers, self.level) = (and_again, LockLevel::Pending);
            self.readers = Some(alone?);
            self.level = LockLevel::Exclusive;
            // Should this program die, its two locks would not be free at one moment: who found the readers' free and this one not would believe that
            // it lives, and pass over its journal.
            self.release_writer()?;
        }
        Ok(())
    }

    /// Gives them back, down to `level`.
    pub(crate) fn unlock(&mut self, level: LockLevel) -> VfsResult<()> {
        if level >= self.level {
            return Ok(());
        }
        // Where nobody syncs the end of a transaction is not put yet.
        let synced = if self.level > LockLevel::Shared { self.sync_but(None) } else { Ok(()) };
        let unlocked = self.release_down_to(level);
        self.level = level;
        self.writes.store(false, Ordering::Release);
        synced.and(unlocked)
    }

    fn release_down_to(&mut self, level: LockLevel) -> VfsResult<()> {
        let cannot = |error| failed(VfsErrorCode::IoUnlock, "unlock", &error);
        if level == LockLevel::None {
            let (readers, writer) = (self.release_readers(), self.release_writer());
            return readers.and(writer);
        }
        if let Some(hold) = &mut self.readers
            && hold.mode() == LockMode::Exclusive
        {
            self.memory.locks().share(hold).map_err(cannot)?;
        }
        self.release_writer()
    }

    fn release_readers(&mut self) -> VfsResult<()> {
        let hold = self.readers.take();
        self.release(hold)
    }

    fn release_writer(&mut self) -> VfsResult<()> {
        let hold = self.writer.take();
        self.release(hold)
    }

    fn release(&mut self, hold: Option<Hold>) -> VfsResult<()> {
        let Some(hold) = hold else { return Ok(()) };
        self.memory.unlock(hold).map_err(|error| failed(VfsErrorCode::IoUnlock, "unlock", &error))
    }

    /// Whether anybody is going to write.
    pub(crate) fn is_reserved(&mut self) -> VfsResult<bool> {
        if self.level > LockLevel::Shared {
            return Ok(true);
        }
        match self.acquire(true, LockMode::Exclusive) {
            Ok(hold) => self.release(Some(hold)).map(|()| false),
            Err(error) if error.code() == VfsErrorCode::Busy => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// The writers' lock if it is free, or the readers'.
    fn acquire(&mut self, is_writers: bool, mode: LockMode) -> VfsResult<Hold> {
        let unguarded = || VfsError::new(VfsErrorCode::IoLock, "only databases are locked".into());
        let mut name = self.lock.clone().ok_or_else(unguarded)?;
        let locks = self.memory.locks();
        let held = if is_writers {
            locks.try_acquire(&name, mode)
        } else {
            name.extend(b"/readers");
            locks.acquire(&name, mode, Some(WAIT))
        };
        held.map_err(|error| match error {
            verbena_client::Error::NotFree | verbena_client::Error::NotInTime { .. } => {
                VfsError::new(VfsErrorCode::Busy, "others have the database locked".into())
            }
            error => failed(VfsErrorCode::IoLock, "lock", &error),
        })
    }
}

impl Head {
    fn encode(self) -> Vec<u8> {
        let words = [u64::from_le_bytes(FORMAT.header()), self.block_bytes, self.size, self.blocks];
        words.into_iter().flat_map(u64::to_le_bytes).collect()
    }

    fn decode(name: &str, bytes: &[u8]) -> VfsResult<Self> {
        let bad = |why: String| VfsError::new(VfsErrorCode::CantOpen, format!("{name} is no file: {why}").into());
        if bytes.len() != HEAD_WORDS * WORD {
            return Err(bad(format!("it has {} bytes", bytes.len())));
        }
        FORMAT.check(bytes).map_err(|error| bad(error.to_string()))?;
        let word = |at: usize| {
            let bytes = bytes[at * WORD..(at + 1) * WORD].try_into();
            u64::from_le_bytes(bytes.expect("invariant: as many bytes as a word has"))
        };
        let head = Head { block_bytes: word(1), size: word(2), blocks: word(3) };
        let holds = head.blocks.checked_mul(head.block_bytes).is_some_and(|bytes| head.size <= bytes);
        let is_one = Options::is_block(head.block_bytes) && holds;
        is_one.then_some(head).ok_or_else(|| bad(format!("{head:?}")))
    }
}

fn block_name(name: &str, block: u64) -> String {
    format!("{name}/{block}")
}

fn short(segment: &str) -> VfsError {
    VfsError::new(VfsErrorCode::IoRead, format!("{segment} is shorter than a block").into())
}

/// The blocks that `bytes` from `offset` on touch: which, from which byte of it on, and the part.
fn parts(block_bytes: u64, offset: u64, bytes: &mut [u8]) -> impl Iterator<Item = (u64, usize, &mut [u8])> {
    let (mut at, mut rest) = (offset, bytes);
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (block, within) = (at / block_bytes, at % block_bytes);
        let count = rest.len().min((block_bytes - within) as usize);
        let (part, behind) = std::mem::take(&mut rest).split_at_mut(count);
        (at, rest) = (at + count as u64, behind);
        Some((block, within as usize, part))
    })
}
