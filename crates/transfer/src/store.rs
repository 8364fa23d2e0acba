//! Where files arrive: parts beside their targets, one writer each, one rename at the end (rules T5, T6, T8, T9).
//!
//! A part belongs to the session that its record names. A writer holds a shared lock of the part from its look at the
//! record to the end of the system call; taking over and publishing want it exclusively. The locks are of open file
//! descriptions, so that a killed session leaves none.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FallocateFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::attributes::same_attributes;
use crate::file_error::FileError;
use crate::files::{Root, create, only_modified, random, regular};
use crate::frame::{Entry, EntryKind, Failure, FileNumber, Identity};
use crate::part::Part;
use crate::path::{VirtualPath, owned_part_name, record_name};
use crate::receiver_action::Basis;
use crate::record::{Claims, HEAD, Owner, decode_claims, decode_owner, encode_record};
use crate::source_copy::SourceCopy;
use crate::tree::{Hash, chunk_hash};

/// How long a session waits for the writer before it (rule T6).
const TAKE_OVER: Duration = Duration::from_secs(1);
/// How often a part is looked for while other sessions publish.
const MOST_LOOKS: u32 = 8;
/// Records that are longer are of no use: they are passed over.
const LONGEST_RECORD: u64 = 1 << 30;

/// Who says how many bytes may still be stored: a quota.
pub trait Room: Send + Sync + std::fmt::Debug {
    /// Takes so many bytes. False if there are not as many, and then none are taken.
    fn take(&self, bytes: u64) -> bool;
}

/// The targets of one session below a directory.
#[derive(Debug)]
pub struct Store {
    root: Arc<Root>,
    base: VirtualPath,
    chunk_bytes: u64,
    is_durable: bool,
    room: Option<Arc<dyn Room>>,
    is_proven: bool,
    preserves: bool,
    /// Its session has ended: a copy that is being made is given up.
    is_over: Arc<AtomicBool>,
    open: HashMap<FileNumber, Target>,
    /// Sources that were handed over.
    sources: HashMap<FileNumber, SourceCopy>,
}

#[derive(Debug)]
struct Target {
    parent: OwnedFd,
    name: Vec<u8>,
    mode: u32,
    /// The part, or what stands at the target.
    file: File,
    /// `None`: the target itself, which is never written.
    owner: Option<Owner>,
}

/// What a file is written into, as whom, and what it claims.
type Found = (File, Option<Owner>, Basis);

fn failure(error: impl std::fmt::Display) -> Failure {
    Failure::Target(error.to_string())
}

impl Store {
    /// Files below `base`. *Durable*: they are on the disk before they are said to stand.
    pub fn new(root: Arc<Root>, base: VirtualPath, chunk_bytes: u64, is_durable: bool) -> Store {
        Store {
            root,
            base,
            chunk_bytes,
            is_durable,
            room: None,
            is_proven: true,
            preserves: false,
            is_over: Arc::default(),
            open: HashMap::new(),
            sources: HashMap::new(),
        }
    }

    /// Refuses files for which there is no room. What a file has more bytes than the one that it replaces is taken.
    #[must_use]
    pub fn within(mut self, room: Arc<dyn Room>) -> Store {
        self.room = Some(room);
        self
    }

    /// Copies without hashing, where files are handed over: nothing proves then that what stands is what was there, and a part of before counts for nothing.
    #[must_use]
    pub(crate) fn unproven(mut self) -> Store {
        self.is_proven = false;
        self
    }

    /// Gives files the extended attributes of their sources, where these are handed over.
    #[must_use]
    pub(crate) fn preserving(mut self) -> Store {
        self.preserves = true;
        self
    }

    /// Gives up the copy of a file that is being made when this is set.
    pub(crate) fn stops_copying(&mut self, is_over: Arc<AtomicBool>) {
        self.is_over = is_over;
    }

    fn take_room(&self, path: &VirtualPath, identity: &Identity) -> Result<(), Failure> {
        let Some(room) = &self.room else { return Ok(()) };
        let stands = self.root.facts(path).map_or(0, |facts| facts.size);
        match identity.size.checked_sub(stands) {
            Some(more) if more > 0 && !room.take(more) => Err(failure(FileError::Quota)),
            _ => Ok(()),
        }
    }

    /// Finds or makes what a file is written into.
    pub fn prepare(&mut self, file: FileNumber, entry: &Entry, identity: &Identity) -> Result<Basis, Failure> {
        let path = self.base.descend(&entry.path).filter(|path| !path.is_hidden());
        let path = path.ok_or_else(|| failure("no file can have this name here"))?;
        self.make_parents(&path)?;
        match &entry.kind {
            EntryKind::Directory => self.make_directory(&path).map(|()| Basis::Done),
            EntryKind::Link(text) => self.make_link(&path, text).map(|()| Basis::Done),
            EntryKind::File => {
                self.take_room(&path, identity)?;
                let (parent, name) = self.root.parent(&path).map_err(failure)?;
                let (found, owner, basis) = self.find(&parent, name, identity)?;
                let target = Target { parent, name: name.to_vec(), mode: entry.mode, file: found, owner };
                self.open.insert(file, target);
                Ok(basis)
            }
        }
    }

    fn make_parents(&self, path: &VirtualPath) -> Result<(), Failure> {
        let parent = path.parent();
        if parent == *path || self.root.enter(&parent).is_ok() {
            return Ok(());
        }
        self.make_parents(&parent)?;
        self.make_directory(&parent)
    }

    fn make_directory(&self, path: &VirtualPath) -> Result<(), Failure> {
        if path.name().is_none() || self.root.enter(path).is_ok() {
            return Ok(());
        }
        self.root.make_directory(path).map_err(failure)
    }

    fn make_link(&self, path: &VirtualPath, text: &[u8]) -> Result<(), Failure> {
        let (parent, name) = self.root.parent(path).map_err(failure)?;
        let beside = owned_part_name(name, random().map_err(failure)?);
        rustix::fs::symlinkat(text, &parent, beside.as_slice()).map_err(failure)?;
        rustix::fs::renameat(&parent, beside.as_slice(), &parent, name).map_err(|error| {
            let _ = rustix::fs::unlinkat(&parent, beside.as_slice(), AtFlags::empty());
            failure(error)
        })
    }

    /// The part that an earlier session left, the target as it stands, or a new part.
    fn find(&self, parent: &OwnedFd, name: &[u8], identity: &Identity) -> Result<Found, Failure> {
        // A record that is gone or another one once its part is locked: its session has published meanwhile.
        for _ in 0..MOST_LOOKS {
            let Some((owner, claims)) = read_record(parent, name) else { break };
            let Ok(file) = open(parent, &owned_part_name(name, owner.part), OFlags::RDWR) else { break };
            if let Some((file, owner)) = take_over(parent, name, file, (owner, &claims), &self.is_over)? {
                if !self.is_proven {
                    rustix::fs::ftruncate(&file, 0).map_err(failure)?;
                    return Ok((file, Some(owner), Basis::Part(Vec::new())));
                }
                let is_same_cut = claims.chunk_bytes == self.chunk_bytes;
                let chunks = if is_same_cut { claims.chunks } else { Vec::new() };
                return Ok((file, Some(owner), Basis::Part(chunks)));
            }
        }
        match open(parent, name, OFlags::RDONLY) {
            Ok(file) if self.is_proven => {
                let size = rustix::fs::fstat(&file).map_err(failure)?.st_size;
                return Ok((file, None, Basis::Target(u64::try_from(size).unwrap_or(0))));
            }
            // What is no regular file is replaced by the rename, if it can be.
            Ok(_) | Err(Errno::NOENT | Errno::LOOP | Errno::NXIO | Errno::ACCESS) => {}
            Err(error) => return Err(failure(error)),
        }
        let (file, owner) = new_part(parent, name, 0, identity, self.chunk_bytes)?;
        Ok((file, Some(owner), Basis::Part(Vec::new())))
    }

    fn target(&self, file: FileNumber) -> Result<&Target, Failure> {
        self.open.get(&file).ok_or_else(|| failure("it is closed"))
    }

    /// Hashes a chunk that stands. `None` if it does not.
    pub fn verify(&self, file: FileNumber, offset: u64, length: u64, is_whole_file: bool) -> Option<Hash> {
        let target = self.open.get(&file)?;
        let mut bytes = vec![0; usize::try_from(length).ok()?];
        target.file.read_exact_at(&mut bytes, offset).ok()?;
        Some(chunk_hash(&bytes, offset, is_whole_file))
    }

    /// Makes a part that is a copy of the target.
    pub fn copy_target(&mut self, file: FileNumber) -> Result<(), Failure> {
        let chunk_bytes = self.chunk_bytes;
        let target = self.open.get_mut(&file).ok_or_else(|| failure("it is closed"))?;
        let number = read_record(&target.parent, &target.name).map_or(0, |(owner, _)| owner.number);
        let (part, owner) = new_part(&target.parent, &target.name, number, &Identity::default(), chunk_bytes)?;
        if let Err(error) = copy(&target.file, &part, &self.is_over) {
            // What stands is where the next session begins.
            for name in [owned_part_name(&target.name, owner.part), record_name(&target.name)] {
                let _ = rustix::fs::unlinkat(&target.parent, name.as_slice(), AtFlags::empty());
            }
            return Err(failure(error));
        }
        (target.file, target.owner) = (part, Some(owner));
        Ok(())
    }

    /// Writes a chunk, and the hash of what was handed to the kernel.
    pub fn write(&self, file: FileNumber, offset: u64, data: &[u8], is_whole_file: bool) -> Result<Hash, Failure> {
        let target = self.target(file)?;
        let owner = target.owner.ok_or_else(|| failure("it is not open for writing"))?;
        rustix::fs::flock(&target.file, FlockOperation::LockShared).map_err(failure)?;
        let written = match read_owner(&target.parent, &target.name) {
            Some(found) if found == owner => write_block(&target.file, offset, data).map_err(failure),
            _ => Err(Failure::TakenOver),
        };
        rustix::fs::flock(&target.file, FlockOperation::Unlock).map_err(failure)?;
        written.map(|()| chunk_hash(data, offset, is_whole_file))
    }

    /// Takes the source of a file that was handed over, before the file is prepared.
    pub(crate) fn hand_over(&mut self, file: FileNumber, source: SourceCopy) {
        self.sources.insert(file, source);
    }

    /// Copies a chunk from the source that was handed over: the hash of what was handed to the kernel, or `None` if the source has ended before.
    pub(crate) fn copy_source(
        &mut self,
        file: FileNumber,
        offset: u64,
        length: u64,
        is_whole_file: bool,
    ) -> Result<Option<Hash>, Failure> {
        let target = self.open.get(&file).ok_or_else(|| failure("it is closed"))?;
        let source = self.sources.get_mut(&file).ok_or_else(|| failure("it was not handed over"))?;
        let owner = target.owner.ok_or_else(|| failure("it is not open for writing"))?;
        rustix::fs::flock(&target.file, FlockOperation::LockShared).map_err(failure)?;
        let copied = match read_owner(&target.parent, &target.name) {
            Some(found) if found == owner && self.is_proven => {
                source.copy(&target.file, offset, length, is_whole_file, write_block)
            }
            Some(found) if found == owner => source.copy_unproven(&target.file, offset, length, write_block),
            _ => Err(Failure::TakenOver),
        };
        rustix::fs::flock(&target.file, FlockOperation::Unlock).map_err(failure)?;
        copied
    }

    /// Keeps a record. Nothing comes of it if another session owns the part.
    pub fn record(&self, file: FileNumber, identity: &Identity, hashes: &[Option<Hash>]) {
        let Ok(Target { parent, name, file, owner: Some(owner), .. }) = self.target(file) else { return };
        let chunks = hashes.iter().enumerate().filter_map(|(at, hash)| Some((at as u64, (*hash)?))).collect();
        // A hint that cannot be kept costs hashing later, nothing else.
        if rustix::fs::flock(file, FlockOperation::LockShared).is_ok() {
            if read_owner(parent, name) == Some(*owner) {
                let claims = Claims { identity: *identity, chunk_bytes: self.chunk_bytes, chunks };
                let _ = write_record(parent, name, *owner, &claims);
            }
            let _ = rustix::fs::flock(file, FlockOperation::Unlock);
        }
    }

    /// Puts a part in the place of its target, or leaves a target that is the same.
    pub fn publish(&self, file: FileNumber, identity: &Identity) -> Result<(), Failure> {
        let target = self.target(file)?;
        if let Some(source) = self.sources.get(&file).filter(|_| self.preserves) {
            same_attributes(source.file(), &target.file).map_err(failure)?;
        }
        let Target { parent, name, file, owner, .. } = target;
        let Some(owner) = owner else {
            let (open, named) = (rustix::fs::fstat(file), rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW));
            let (open, named) = (open.map_err(failure)?, named.map_err(failure)?);
            if (open.st_ino, open.st_dev) != (named.st_ino, named.st_dev) || open.st_size as u64 != identity.size {
                return Err(failure("it was changed by another program; copy it again"));
            }
            forget_record_alone(parent, name);
            return finish(target, identity);
        };
        lock(file, Duration::from_secs(10)).map_err(|_| Failure::TakenOver)?;
        let published = match read_owner(parent, name) {
            Some(found) if found == *owner => self.put_in_place(target, *owner, identity),
            _ => Err(Failure::TakenOver),
        };
        let _ = rustix::fs::flock(file, FlockOperation::Unlock);
        published
    }

    fn put_in_place(&self, target: &Target, owner: Owner, identity: &Identity) -> Result<(), Failure> {
        let Target { parent, name, file, .. } = target;
        rustix::fs::ftruncate(file, identity.size).map_err(failure)?;
        finish(target, identity)?;
        if self.is_durable {
            rustix::fs::fsync(file).map_err(failure)?;
        }
        let part = owned_part_name(name, owner.part);
        rustix::fs::renameat(parent, part.as_slice(), parent, name.as_slice()).map_err(failure)?;
        let _ = rustix::fs::unlinkat(parent, record_name(name).as_slice(), AtFlags::empty());
        if self.is_durable {
            // The parent was opened as a path alone, which cannot be synced.
            let directory = rustix::fs::openat(parent, c".", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
            directory.and_then(|directory| rustix::fs::fsync(&directory)).map_err(failure)?;
        }
        Ok(())
    }

    /// Closes a file. Its part stays, unless another session goes on in another one.
    pub fn close(&mut self, file: FileNumber) {
        self.sources.remove(&file);
        if let Some(Target { parent, name, owner: Some(owner), .. }) = self.open.remove(&file)
            && read_owner(&parent, &name).is_none_or(|found| found.part != owner.part)
        {
            // Published already, mostly: then the name is gone.
            let _ = rustix::fs::unlinkat(&parent, owned_part_name(&name, owner.part).as_slice(), AtFlags::empty());
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let open: Vec<FileNumber> = self.open.keys().copied().collect();
        open.into_iter().for_each(|file| self.close(file));
    }
}

/// The mode and the time of the source.
fn finish(target: &Target, identity: &Identity) -> Result<(), Failure> {
    let times = only_modified(identity.modified);
    // A target of another user that is the same stays as it is.
    let done = rustix::fs::fchmod(&target.file, Mode::from_raw_mode(target.mode & 0o777))
        .and_then(|()| rustix::fs::futimens(&target.file, &times));
    match (done, target.owner) {
        (Err(error), Some(_)) => Err(failure(error)),
        _ => Ok(()),
    }
}

fn open(parent: &OwnedFd, name: &[u8], access: OFlags) -> Result<File, Errno> {
    let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let descriptor = rustix::fs::openat(parent, name, flags, Mode::empty())?;
    match regular(&descriptor) {
        Ok(_) => Ok(File::from(descriptor)),
        Err(crate::file_error::FileError::IsDirectory) => Err(Errno::ISDIR),
        Err(_) => Err(Errno::NXIO),
    }
}

/// Takes the lock alone, if it comes free in time.
fn lock(file: &File, most: Duration) -> Result<(), Errno> {
    let begun = Instant::now();
    loop {
        match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if begun.elapsed() < most => std::thread::sleep(Duration::from_millis(5)),
            other => return other,
        }
    }
}

/// Makes a part with a record that says whose it is. The record comes first: a part that no record names would never be found again.
fn new_part(
    parent: &OwnedFd,
    name: &[u8],
    earlier: u64,
    identity: &Identity,
    chunk_bytes: u64,
) -> Result<(File, Owner), Failure> {
    let owner = Owner { number: earlier + 1, part: random().map_err(failure)? };
    let claims = Claims { identity: *identity, chunk_bytes, chunks: Vec::new() };
    write_record(parent, name, owner, &claims).map_err(failure)?;
    Ok((make_part(parent, name, owner)?, owner))
}

fn make_part(parent: &OwnedFd, name: &[u8], owner: Owner) -> Result<File, Failure> {
    let part = owned_part_name(name, owner.part);
    create(parent, &part).map_err(failure)?;
    open(parent, &part, OFlags::RDWR).map_err(failure)
}

/// Makes this session the owner of a part, or of a copy of it if its writer does not let go (rule T6). `None` if the part
/// is not what the record names any more.
fn take_over(
    parent: &OwnedFd,
    name: &[u8],
    file: File,
    (earlier, claims): (Owner, &Claims),
    is_over: &AtomicBool,
) -> Result<Option<(File, Owner)>, Failure> {
    if lock(&file, TAKE_OVER).is_ok() {
        let owner = Owner { number: earlier.number + 1, part: earlier.part };
        let is_same = read_owner(parent, name) == Some(earlier);
        let written = if is_same { write_record(parent, name, owner, claims).map_err(failure) } else { Ok(()) };
        rustix::fs::flock(&file, FlockOperation::Unlock).map_err(failure)?;
        return written.map(|()| is_same.then_some((file, owner)));
    }
    // The record names the part of before until there is another one. From then on its writer writes nothing more, and it can be copied.
    let owner = Owner { number: earlier.number + 1, part: random().map_err(failure)? };
    let copied = make_part(parent, name, owner)?;
    let none = Claims { chunks: Vec::new(), ..claims.clone() };
    write_record(parent, name, owner, &none).map_err(failure)?;
    copy(&file, &copied, is_over).map_err(failure)?;
    write_record(parent, name, owner, claims).map_err(failure)?;
    let _ = rustix::fs::unlinkat(parent, owned_part_name(name, earlier.part).as_slice(), AtFlags::empty());
    Ok(Some((copied, owner)))
}

fn copy(from: &File, to: &File, is_over: &AtomicBool) -> Result<(), Errno> {
    let (mut read_at, mut write_at) = (0, 0);
    loop {
        if is_over.load(Ordering::Acquire) {
            return Err(Errno::CANCELED);
        }
        match rustix::fs::copy_file_range(from, Some(&mut read_at), to, Some(&mut write_at), 64 << 20) {
            Ok(0) => return Ok(()),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Zeros are a hole, where the file system has holes.
fn write_block(file: &File, offset: u64, data: &[u8]) -> std::io::Result<()> {
    if data.iter().all(|byte| *byte == 0) {
        let end = offset + data.len() as u64;
        if file.metadata()?.len() < end {
            rustix::fs::ftruncate(file, end)?;
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if rustix::fs::fallocate(file, flags, offset, data.len() as u64).is_ok() {
            return Ok(());
        }
    }
    file.write_all_at(data, offset)
}

fn read_owner(parent: &OwnedFd, name: &[u8]) -> Option<Owner> {
    let mut head = [0; HEAD];
    open(parent, &record_name(name), OFlags::RDONLY).ok()?.read_exact(&mut head).ok()?;
    decode_owner(&head)
}

fn read_record(parent: &OwnedFd, name: &[u8]) -> Option<(Owner, Claims)> {
    let mut bytes = Vec::new();
    open(parent, &record_name(name), OFlags::RDONLY).ok()?.take(LONGEST_RECORD).read_to_end(&mut bytes).ok()?;
    Some((decode_owner(&bytes)?, decode_claims(&bytes)))
}

/// Replaces the record by one rename, so that a reader sees one or the other.
fn write_record(parent: &OwnedFd, name: &[u8], owner: Owner, claims: &Claims) -> Result<(), FileError> {
    let record = Part::begin(parent.try_clone()?, &record_name(name))?;
    record.file.write_all_at(&encode_record(owner, claims), 0)?;
    record.publish()
}

/// Removes a record whose session was killed before it had made its part, or once that was in its place.
fn forget_record_alone(parent: &OwnedFd, name: &[u8]) {
    let alone = || {
        let (owner, _) = read_record(parent, name)?;
        let part = open(parent, &owned_part_name(name, owner.part), OFlags::RDONLY);
        matches!(part, Err(Errno::NOENT)).then_some(owner)
    };
    let Some(owner) = alone() else { return };
    // A session that lives makes its part at once.
    std::thread::sleep(Duration::from_millis(20));
    if alone() == Some(owner) {
        let _ = rustix::fs::unlinkat(parent, record_name(name).as_slice(), AtFlags::empty());
    }
}
