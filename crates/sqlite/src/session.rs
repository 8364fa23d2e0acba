//! One connection of SQLite to its database: a connection for memory, the locks that it holds, and what it has not put yet.
//!
//! **Any call may fail, at any place.** SQLite's promise is that the transaction is rolled back, and the session does its part:
//!
//! - What was not put stays to be put: a sync that failed can be done again, and the head is put behind the blocks that it counts.
//! - A write to the database that failed changed nothing: SQLite writes the old page over it, or leaves that to the next session that opens the database.
//! - A put of unknown outcome counts neither as done nor as not done: the next put of that segment asks for the version first.
//! - After a failure SQLite may give up the locks without another write. Nothing is put then: the end of a journal would be a commit that SQLite has said had failed.
//! - A lock that could not be released may be held for ever. The connection is given up with it, as soon as nothing is to be held.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rsqlite_vfs::{LockLevel, VfsError, VfsErrorCode, VfsResult};
use verbena_client::NewSegment;

use crate::error::{failed, is_missing, is_there};
use crate::head::{Head, block_name, parts};
use crate::store::{Connect, Store};
use crate::vfs::{JOURNAL, Options};

mod locking;

/// A file's head and pending blocks, as far as known: while this session holds a lock, no other session changes the
/// file.
struct File {
    /// As it was put last, or found.
    put: Head,
    /// Whether the segment has `put`: false while the outcome of a put is unknown.
    is_put: bool,
    /// As it will be.
    head: Head,
    /// Blocks that are not put yet.
    unsynced: BTreeMap<u64, Vec<u8>>,
}

impl File {
    /// Whether all that was written is in the segments.
    fn is_synced(&self) -> bool {
        self.unsynced.is_empty() && self.is_put && self.put == self.head
    }

    /// As if what was not put had never been written.
    fn forget(&mut self) {
        self.unsynced.clear();
        self.head = self.put;
    }
}

type HoldOf<C> = <<C as Connect>::Store as Store>::Hold;

pub(crate) struct Session<C: Connect> {
    connect: C,
    /// None while there is no connection: the next call makes one.
    memory: Option<C::Store>,
    /// Whether the connection has ended, or may hold a lock that this session does not know: it is given up when nothing is held.
    is_worn: bool,
    options: Options,
    /// The database whose locks these are; without it this connection only looks whether files are there.
    guards: Option<(String, Vec<u8>)>,
    level: LockLevel,
    /// Shared by sessions that read; held alone by a session that puts pages.
    readers: Option<HoldOf<C>>,
    /// Whether the readers' lock is held alone.
    is_alone: bool,
    /// Held by a session that is going to write, until it has the readers' lock alone.
    writer: Option<HoldOf<C>>,
    /// Whether this session writes or is going to, for callers that cannot wait for the session.
    writes: Arc<AtomicBool>,
    files: BTreeMap<String, File>,
    /// Of segments, as they were when the locks were held.
    versions: BTreeMap<String, u64>,
    /// Whether the last call that was to change something failed.
    has_failed: bool,
}

impl<C: Connect> Session<C> {
    /// Connects.
    ///
    /// # Errors
    /// If there is no helper.
    pub(crate) fn new(connect: C, options: Options) -> VfsResult<Self> {
        let mut session = Session {
            connect,
            memory: None,
            is_worn: false,
            options,
            guards: None,
            level: LockLevel::None,
            readers: None,
            is_alone: false,
            writer: None,
            writes: Arc::default(),
            files: BTreeMap::new(),
            versions: BTreeMap::new(),
            has_failed: false,
        };
        let connected = session.ask(|_| Ok(()));
        connected.map_err(|error| failed(VfsErrorCode::CantOpen, "connect to the helper", &error))?;
        Ok(session)
    }

    /// Tells callers that cannot wait for this session whether it is going to write to its database, or writes.
    pub(crate) fn writes(&self) -> Arc<AtomicBool> {
        self.writes.clone()
    }

    /// Asks the helper, over a new connection where the old one is worn and nothing is held by it.
    fn ask<T>(&mut self, ask: impl FnOnce(&mut C::Store) -> verbena_client::Result<T>) -> verbena_client::Result<T> {
        if self.is_worn && self.level == LockLevel::None {
            (self.memory, self.is_worn) = (None, false);
        }
        let memory = match &mut self.memory {
            Some(memory) => memory,
            None => self.memory.insert(self.connect.connect()?),
        };
        let asked = ask(memory);
        self.is_worn |= asked.as_ref().is_err_and(verbena_client::Error::is_over);
        asked
    }

    /// Asks what changes nothing: once more where the connection turns out to have ended while nothing was held by it.
    fn look_up<T>(&mut self, ask: impl Fn(&mut C::Store) -> verbena_client::Result<T>) -> verbena_client::Result<T> {
        match self.ask(&ask) {
            Err(error) if error.is_over() && self.level == LockLevel::None => self.ask(&ask),
            asked => asked,
        }
    }

    /// Has the locks of the database of this name, which is there.
    pub(crate) fn guard(&mut self, name: &str) -> VfsResult<()> {
        let lock = self.look_up(|memory| memory.lock_name(name));
        let lock = lock.map_err(|error| failed(VfsErrorCode::CantOpen, name, &error))?;
        self.guards = Some((name.to_owned(), lock));
        Ok(())
    }

    /// Whether there is a file of this name.
    pub(crate) fn exists(&mut self, name: &str) -> VfsResult<bool> {
        match self.look_up(|memory| memory.version(name)) {
            Ok(_) => Ok(true),
            Err(error) if is_missing(&error) => Ok(false),
            Err(error) => Err(failed(VfsErrorCode::IoAccess, name, &error)),
        }
    }

    /// Makes a file. Returns whether it did not exist.
    pub(crate) fn create(&mut self, name: &str) -> VfsResult<bool> {
        if self.exists(name)? {
            return Ok(false);
        }
        match self.allocate(name, Head::BYTES) {
            Ok(()) => Ok(true),
            Err(error) if is_there(&error) => Ok(false),
            Err(error) => Err(failed(VfsErrorCode::CantOpen, name, &error)),
        }
    }

    fn allocate(&mut self, segment: &str, bytes: u64) -> verbena_client::Result<()> {
        let Options { copies, placement, .. } = &self.options;
        // Two: the last writer may be at another node, and still has its slot.
        let wanted = NewSegment { writers: 2, ..NewSegment::of(bytes) };
        let wanted = wanted.named(segment).copied(*copies).placed(placement.clone());
        self.ask(|memory| memory.allocate(wanted))
    }

    /// Looks anew how a file is.
    pub(crate) fn open(&mut self, name: &str) -> VfsResult<()> {
        self.look(name, VfsErrorCode::CantOpen).map(|_| ())
    }

    fn look(&mut self, name: &str, code: VfsErrorCode) -> VfsResult<&mut File> {
        let cannot = |error| failed(code, name, &error);
        let mut value = self.look_up(|memory| memory.get(name)).map_err(cannot)?;
        if value.bytes.iter().all(|byte| *byte == 0) {
            // The segment was just made. The first session that looks sets the length of the blocks.
            let head = Head { block_bytes: self.options.block_bytes.into(), size: 0, blocks: 0 };
            let put = self.ask(|memory| memory.put(name, &head.encode(), value.version));
            match put {
                Ok(_) | Err(verbena_client::Error::Memory { why: verbena_client::Failure::Conflict { .. }, .. }) => {}
                Err(error) => return Err(cannot(error)),
            }
            value = self.ask(|memory| memory.get(name)).map_err(cannot)?;
        }
        let head =
            Head::decode(name, &value.bytes).map_err(|why| VfsError::new(code, why.message().to_owned().into()))?;
        self.versions.insert(name.to_owned(), value.version);
        let file = File { put: head, is_put: true, head, unsynced: BTreeMap::new() };
        Ok(self.files.entry(name.to_owned()).insert_entry(file).into_mut())
    }

    /// A file's size.
    pub(crate) fn size(&mut self, name: &str) -> VfsResult<u64> {
        self.file(name, VfsErrorCode::IoStat).map(|file| file.head.size)
    }

    /// A file as it is known, or as it is; `code` is of a failure.
    fn file(&mut self, name: &str, code: VfsErrorCode) -> VfsResult<&mut File> {
        self.check_held(code)?;
        if !self.files.contains_key(name) {
            return self.look(name, code);
        }
        Ok(self.files.get_mut(name).expect("invariant: it was just seen"))
    }

    /// Reads as many bytes as there are from `offset` on.
    pub(crate) fn read(&mut self, name: &str, buffer: &mut [u8], offset: u64) -> VfsResult<usize> {
        let code = VfsErrorCode::IoRead;
        let Head { block_bytes, size, .. } = self.file(name, code)?.head;
        let count = buffer.len().min(usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX));
        for (block, within, part) in parts(block_bytes, offset, &mut buffer[..count]) {
            if let Some(bytes) = self.file(name, code)?.unsynced.get(&block) {
                part.copy_from_slice(&bytes[within..within + part.len()]);
                continue;
            }
            let segment = block_name(name, block);
            let value = self.ask(|memory| memory.get_part(&segment, within as u64, part.len() as u64));
            let value = value.map_err(|error| failed(code, &segment, &error))?;
            part.copy_from_slice(value.bytes.get(..part.len()).ok_or_else(|| short(&segment))?);
            self.versions.insert(segment, value.version);
        }
        self.check_held(code)?;
        Ok(count)
    }

    /// Writes, to be put with the next [`sync`](Self::sync).
    pub(crate) fn write(&mut self, name: &str, bytes: &[u8], offset: u64) -> VfsResult<()> {
        let written = self.keep(name, bytes, offset);
        self.changed(written)
    }

    /// Writes to the database, behind the journal that says how the page was. Nothing is written if it fails, but for some of several blocks of a page.
    pub(crate) fn write_through(&mut self, name: &str, bytes: &[u8], offset: u64) -> VfsResult<()> {
        let written = self.keep(name, bytes, offset).and_then(|()| self.put_all(Some(name)));
        if written.is_err()
            && let Some(file) = self.files.get_mut(name)
        {
            file.forget();
        }
        self.changed(written)
    }

    fn changed<T>(&mut self, changed: VfsResult<T>) -> VfsResult<T> {
        self.has_failed = changed.is_err();
        changed
    }

    fn keep(&mut self, name: &str, bytes: &[u8], offset: u64) -> VfsResult<()> {
        let code = VfsErrorCode::IoWrite;
        let Head { block_bytes, size, .. } = self.file(name, code)?.head;
        if offset > size {
            // What is behind the end counts for nothing, and would count then.
            let gap = vec![0; (offset - size).min(block_bytes) as usize];
            self.keep(name, &gap, size)?;
            return self.keep(name, bytes, offset);
        }
        let mut rest = bytes.to_vec();
        for (block, within, part) in parts(block_bytes, offset, &mut rest) {
            let is_whole = part.len() as u64 == block_bytes;
            let has_data = block * block_bytes < size;
            if !self.file(name, code)?.unsynced.contains_key(&block) {
                let mut old = vec![0; block_bytes as usize];
                if has_data && !is_whole {
                    let there = (size - block * block_bytes).min(block_bytes) as usize;
                    self.read(name, &mut old[..there], block * block_bytes)?;
                }
                self.file(name, code)?.unsynced.insert(block, old);
            }
            let file = self.file(name, code)?;
            let block = file.unsynced.get_mut(&block).expect("invariant: it was inserted");
            block[within..within + part.len()].copy_from_slice(part);
        }
        let head = &mut self.file(name, code)?.head;
        head.size = head.size.max(offset + bytes.len() as u64);
        Ok(())
    }

    /// Makes a file shorter, at once; a database behind its journal. If it fails the file is as long as it was.
    pub(crate) fn truncate(&mut self, name: &str, size: u64) -> VfsResult<()> {
        let truncated = self.cut(name, size, VfsErrorCode::IoTruncate);
        self.changed(truncated)
    }

    fn cut(&mut self, name: &str, size: u64, code: VfsErrorCode) -> VfsResult<()> {
        if self.guards.as_ref().is_some_and(|(database, _)| database == name) {
            self.put_all(Some(name))?;
        }
        let file = self.file(name, code)?;
        let was = file.head.size;
        file.head.size = was.min(size);
        let end = size.div_ceil(file.head.block_bytes);
        let mut behind = file.unsynced.split_off(&end);
        let put = self.put_file(name);
        if put.is_err()
            && let Some(file) = self.files.get_mut(name)
        {
            file.head.size = was;
            file.unsynced.append(&mut behind);
        }
        put
    }

    /// Puts what was written: blocks, and then how long the file is.
    pub(crate) fn sync(&mut self, name: &str) -> VfsResult<()> {
        let synced = self.put_file(name);
        self.changed(synced)
    }

    /// Puts what was written to other files, and then what was to `last`.
    fn put_all(&mut self, last: Option<&str>) -> VfsResult<()> {
        let others: Vec<String> = self.files.keys().filter(|name| last != Some(*name)).cloned().collect();
        others.iter().map(String::as_str).chain(last).try_for_each(|name| self.put_file(name))
    }

    fn put_file(&mut self, name: &str) -> VfsResult<()> {
        let code = VfsErrorCode::IoWrite;
        if self.files.get(name).is_some_and(File::is_synced) {
            return Ok(());
        }
        while let Some((block, bytes)) = self.file(name, code)?.unsynced.pop_first() {
            if let Err(error) = self.put_block(name, block, &bytes) {
                // It is still to be put: what counts it must not come before it.
                if let Some(file) = self.files.get_mut(name) {
                    file.unsynced.insert(block, bytes);
                }
                return Err(error);
            }
        }
        let file = self.file(name, code)?;
        if !file.is_synced() {
            let head = file.head;
            file.is_put = false;
            self.put(name, &head.encode()).map_err(|error| failed(code, name, &error))?;
            if let Some(file) = self.files.get_mut(name) {
                (file.put, file.is_put) = (head, true);
            }
        }
        Ok(())
    }

    fn put_block(&mut self, name: &str, block: u64, bytes: &[u8]) -> VfsResult<()> {
        loop {
            let Head { blocks, block_bytes, .. } = self.file(name, VfsErrorCode::IoWrite)?.head;
            if blocks > block {
                break;
            }
            self.make(&block_name(name, blocks), block_bytes)?;
            self.file(name, VfsErrorCode::IoWrite)?.head.blocks += 1;
        }
        let segment = block_name(name, block);
        let put = match self.put(&segment, bytes) {
            // The file was being deleted, and was not to the end.
            Err(error) if is_missing(&error) => {
                self.make(&segment, bytes.len() as u64)?;
                self.put(&segment, bytes)
            }
            put => put,
        };
        put.map_err(|error| failed(VfsErrorCode::IoWrite, &segment, &error))
    }

    /// Makes a block, unless there is one: of a file of this name that is being deleted, or was not to the end.
    fn make(&mut self, segment: &str, bytes: u64) -> VfsResult<()> {
        match self.allocate(segment, bytes) {
            Err(error) if !is_there(&error) => Err(failed(VfsErrorCode::IoWrite, segment, &error)),
            _ => Ok(()),
        }
    }

    /// Puts over the version that there was while the locks were held.
    fn put(&mut self, segment: &str, bytes: &[u8]) -> verbena_client::Result<()> {
        let over = match self.versions.remove(segment) {
            Some(version) => version,
            None => self.ask(|memory| memory.version(segment))?,
        };
        if !self.is_held() {
            return Err(verbena_client::Error::Lost);
        }
        let put = self.ask(|memory| memory.put(segment, bytes, over))?;
        self.versions.insert(segment.to_owned(), put);
        Ok(())
    }

    /// Deletes a file. A journal counts for nothing from the moment on at which its size is 0: it is deleted then, whatever is left of it.
    pub(crate) fn delete(&mut self, name: &str) -> VfsResult<()> {
        if !self.exists(name)? {
            return Err(VfsError::new(VfsErrorCode::IoDeleteNoEntry, format!("{name}: there is no such file").into()));
        }
        let emptied = self.cut(name, 0, VfsErrorCode::IoDelete);
        self.changed(emptied)?;
        let blocks = self.files.remove(name).map_or(0, |file| file.head.blocks);
        // The head last: while it exists it counts the blocks that are left, so a session that deletes or writes the
        // file again finds them.
        let segments = (0..blocks).rev().map(|block| block_name(name, block)).chain([name.to_owned()]);
        for segment in segments {
            self.versions.remove(&segment);
            match self.ask(|memory| memory.release(&segment)) {
                Ok(()) => {}
                Err(error) if is_missing(&error) => {}
                Err(_) if name.ends_with(JOURNAL) => return Ok(()),
                Err(error) => return Err(failed(VfsErrorCode::IoDelete, &segment, &error)),
            }
        }
        Ok(())
    }

    /// Puts what was written, and forgets the file. After a failure, and where no locks are held, nothing is put.
    pub(crate) fn close(&mut self, name: &str) -> VfsResult<()> {
        let may_put = self.guards.is_none() || self.level > LockLevel::Shared && !self.has_failed;
        let synced = if may_put && self.files.contains_key(name) { self.put_file(name) } else { Ok(()) };
        self.files.remove(name);
        self.has_failed |= synced.is_err();
        synced
    }

    /// Whether what this connection believes to hold it holds.
    fn is_held(&mut self) -> bool {
        let has_readers = self.level == LockLevel::None || self.readers.is_some();
        let holds = [self.readers, self.writer];
        let mut held = holds.into_iter().flatten().map(|hold| self.memory.as_mut().is_some_and(|it| it.is_held(&hold)));
        has_readers && held.all(|is_held| is_held)
    }

    fn check_held(&mut self, code: VfsErrorCode) -> VfsResult<()> {
        if self.is_held() {
            return Ok(());
        }
        let text = "the database's locks were lost: the node had no lease for a while, or its helper has ended";
        Err(VfsError::new(code, text.into()))
    }
}

fn short(segment: &str) -> VfsError {
    VfsError::new(VfsErrorCode::IoRead, format!("{segment} is shorter than a block").into())
}
