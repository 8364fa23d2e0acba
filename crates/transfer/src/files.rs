//! The files below a user's root, reached by the kernel's own confinement (rule T16).
//!
//! Each path is resolved by one `openat2` from the root's descriptor with RESOLVE_BENEATH and RESOLVE_NO_MAGICLINKS:
//! links inside the root are followed, and whatever leads out of it is refused with EXDEV, also when a directory is moved
//! meanwhile. The kernel may say EAGAIN then (openat2(2)); it is asked again, a bounded number of times. Commands that
//! change a directory open the parent that way, and name the last component by a call that follows no link.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, ResolveFlags, Stat, Timespec, Timestamps, UTIME_OMIT,
};
use rustix::io::Errno;

use crate::file_error::FileError;
use crate::part::Part;
use crate::path::{VirtualPath, is_hidden, part_name};

/// How often EAGAIN of `openat2` is tried again.
const MOST_ATTEMPTS: u32 = 128;

/// What a name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link and its text.
    Link(Vec<u8>),
    /// A device, socket or pipe: listed, never opened.
    Other,
}

/// What is known of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// What it is.
    pub kind: Kind,
    /// Bytes.
    pub size: u64,
    /// Seconds since 1970.
    pub modified: i64,
    /// The permission bits.
    pub mode: u32,
    /// Device and inode.
    pub unique: (u64, u64),
    /// Hard links.
    pub links: u64,
}

impl Facts {
    fn of(stat: &Stat, link: Option<Vec<u8>>) -> Facts {
        let kind = match (FileType::from_raw_mode(stat.st_mode), link) {
            (FileType::RegularFile, _) => Kind::File,
            (FileType::Directory, _) => Kind::Directory,
            (FileType::Symlink, link) => Kind::Link(link.unwrap_or_default()),
            _ => Kind::Other,
        };
        Facts {
            kind,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            modified: stat.st_mtime,
            mode: stat.st_mode & 0o7777,
            unique: (stat.st_dev, stat.st_ino),
            links: stat.st_nlink,
        }
    }
}

/// A directory out of which nothing leads.
#[derive(Debug)]
pub struct Root {
    descriptor: OwnedFd,
}

impl Root {
    /// Opens a directory of the machine.
    pub fn open(path: &Path) -> Result<Root, FileError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Root { descriptor: rustix::fs::open(path, flags, Mode::empty())? })
    }

    /// A root below this one: the home of a user.
    pub fn below(&self, home: &VirtualPath) -> Result<Root, FileError> {
        Ok(Root { descriptor: self.directory(home)? })
    }

    fn resolve(&self, path: &VirtualPath, flags: OFlags, mode: Mode) -> Result<OwnedFd, FileError> {
        if path.is_hidden() {
            return Err(FileError::NotFound);
        }
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let name = path.relative();
        for _ in 0..MOST_ATTEMPTS {
            match rustix::fs::openat2(&self.descriptor, name.as_slice(), flags | OFlags::CLOEXEC, mode, resolve) {
                Err(Errno::AGAIN) => std::thread::yield_now(),
                Err(Errno::INTR) => {}
                other => return Ok(other?),
            }
        }
        Err(FileError::Busy)
    }

    fn directory(&self, path: &VirtualPath) -> Result<OwnedFd, FileError> {
        self.resolve(path, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())
    }

    /// The parent's descriptor and the last component.
    pub(crate) fn parent<'a>(&self, path: &'a VirtualPath) -> Result<(OwnedFd, &'a [u8]), FileError> {
        let name = path.name().ok_or(FileError::Denied)?;
        if is_hidden(name) {
            return Err(FileError::NotFound);
        }
        Ok((self.directory(&path.parent())?, name))
    }

    /// Whether a directory can be entered.
    pub fn enter(&self, path: &VirtualPath) -> Result<(), FileError> {
        let descriptor = self.directory(path)?;
        // The descriptor says nothing about permission to enter.
        Ok(rustix::fs::accessat(&descriptor, c".", rustix::fs::Access::EXEC_OK, AtFlags::empty())?)
    }

    /// What is known of a file or directory; links inside the root are followed.
    pub fn facts(&self, path: &VirtualPath) -> Result<Facts, FileError> {
        let descriptor = self.resolve(path, OFlags::PATH, Mode::empty())?;
        Ok(Facts::of(&rustix::fs::fstat(&descriptor)?, None))
    }

    /// Opens a regular file for reading. Never waits for the other end of a pipe.
    pub fn read(&self, path: &VirtualPath) -> Result<(File, Facts), FileError> {
        let descriptor = self.resolve(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY, Mode::empty())?;
        let facts = regular(&descriptor)?;
        Ok((File::from(descriptor), facts))
    }

    /// Opens a regular file for writing in place, and makes it if there is none. The file keeps its first `from` bytes.
    /// One writer at a time.
    pub fn write(&self, path: &VirtualPath, from: From) -> Result<File, FileError> {
        let (parent, name) = self.parent(path)?;
        drop((parent, name));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NONBLOCK | OFlags::NOCTTY;
        let descriptor = self.resolve(path, flags, Mode::from_raw_mode(0o666))?;
        let facts = regular(&descriptor)?;
        rustix::fs::flock(&descriptor, FlockOperation::NonBlockingLockExclusive)?;
        match from {
            From::Byte(byte) if byte > facts.size => return Err(FileError::BehindEnd),
            From::Byte(byte) => {
                rustix::fs::ftruncate(&descriptor, byte)?;
                rustix::fs::seek(&descriptor, rustix::fs::SeekFrom::Start(byte))?;
            }
            From::End => {
                rustix::fs::seek(&descriptor, rustix::fs::SeekFrom::End(0))?;
            }
        }
        Ok(File::from(descriptor))
    }

    /// Makes a file that nobody has yet, with a name that begins with `stem`.
    pub fn write_unique(&self, directory: &VirtualPath, stem: &str) -> Result<(File, Vec<u8>), FileError> {
        let parent = self.directory(directory)?;
        for _ in 0..16 {
            let name = format!("{stem}.{:016x}", random()?).into_bytes();
            match create(&parent, &name) {
                Err(Errno::EXIST) => {}
                other => return Ok((File::from(other?), name)),
            }
        }
        Err(FileError::Busy)
    }

    /// Opens a part beside the target, which [`Part::publish`] puts in its place (rule T5).
    pub fn write_part(&self, path: &VirtualPath) -> Result<Part, FileError> {
        let (parent, name) = self.parent(path)?;
        let mode = match rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => {
                return Err(FileError::IsDirectory);
            }
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => Some(stat.st_mode & 0o777),
            Ok(_) | Err(Errno::NOENT) => None,
            Err(error) => return Err(error.into()),
        };
        let part = Part::begin(parent, name)?;
        if let Some(mode) = mode {
            rustix::fs::fchmod(&part.file, Mode::from_raw_mode(mode))?;
        }
        Ok(part)
    }

    /// Removes a file or a link.
    pub fn remove(&self, path: &VirtualPath) -> Result<(), FileError> {
        let (parent, name) = self.parent(path)?;
        Ok(rustix::fs::unlinkat(&parent, name, AtFlags::empty())?)
    }

    /// Removes an empty directory.
    pub fn remove_directory(&self, path: &VirtualPath) -> Result<(), FileError> {
        let (parent, name) = self.parent(path)?;
        Ok(rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR)?)
    }

    /// Makes a directory.
    pub fn make_directory(&self, path: &VirtualPath) -> Result<(), FileError> {
        let (parent, name) = self.parent(path)?;
        Ok(rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(0o777))?)
    }

    /// Gives a file another name; a file of that name goes.
    pub fn rename(&self, from: &VirtualPath, to: &VirtualPath) -> Result<(), FileError> {
        let (old_parent, old) = self.parent(from)?;
        let (new_parent, new) = self.parent(to)?;
        Ok(rustix::fs::renameat(&old_parent, old, &new_parent, new)?)
    }

    /// Whether something has the name; a link counts as itself.
    pub fn exists(&self, path: &VirtualPath) -> Result<(), FileError> {
        let (parent, name) = self.parent(path)?;
        rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(())
    }

    /// Sets the time of modification, and leaves that of access alone.
    pub fn set_modified(&self, path: &VirtualPath, seconds: i64) -> Result<(), FileError> {
        self.set_time(path, (seconds, 0))
    }

    /// The same in seconds and nanoseconds. Of a link, its own.
    pub(crate) fn set_time(&self, path: &VirtualPath, modified: (i64, u32)) -> Result<(), FileError> {
        let (parent, name) = self.parent(path)?;
        Ok(rustix::fs::utimensat(&parent, name, &only_modified(modified), AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// What has this name; a link counts as itself, and has its text.
    pub(crate) fn named(&self, path: &VirtualPath) -> Result<(Stat, Facts), FileError> {
        let (stat, link) = match path.name() {
            None => (rustix::fs::fstat(&self.descriptor)?, None),
            Some(_) => {
                let (parent, name) = self.parent(path)?;
                let stat = rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
                let is_link = FileType::from_raw_mode(stat.st_mode) == FileType::Symlink;
                let text = is_link.then(|| rustix::fs::readlinkat(&parent, name, Vec::new())).transpose()?;
                (stat, text.map(std::ffi::CString::into_bytes))
            }
        };
        Ok((stat, Facts::of(&stat, link)))
    }

    /// Gives a file a further name, in the place of what has the name.
    pub(crate) fn link(&self, existing: &VirtualPath, path: &VirtualPath) -> Result<(), FileError> {
        let (from, name) = self.parent(existing)?;
        let (to, new) = self.parent(path)?;
        let beside = part_name(random()?);
        rustix::fs::linkat(&from, name, &to, beside.as_slice(), AtFlags::empty())?;
        let renamed = rustix::fs::renameat(&to, beside.as_slice(), &to, new);
        // A rename between two names of one file does nothing, and leaves both.
        let _ = rustix::fs::unlinkat(&to, beside.as_slice(), AtFlags::empty());
        Ok(renamed?)
    }

    /// Opens a file or a directory as it is for its attributes.
    pub(crate) fn attributed(&self, path: &VirtualPath) -> Result<OwnedFd, FileError> {
        self.resolve(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY, Mode::empty())
    }

    /// Sets the permission bits of a file or directory.
    pub fn set_mode(&self, path: &VirtualPath, mode: u32) -> Result<(), FileError> {
        self.parent(path)?;
        let descriptor = self.resolve(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY, Mode::empty())?;
        Ok(rustix::fs::fchmod(&descriptor, Mode::from_raw_mode(mode & 0o777))?)
    }

    /// Opens a directory for listing.
    pub fn entries(&self, path: &VirtualPath) -> Result<Entries, FileError> {
        let descriptor = self.resolve(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
        let directory = Dir::read_from(&descriptor)?;
        Ok(Entries { descriptor, directory })
    }
}

/// Times that leave that of access alone.
pub(crate) fn only_modified((seconds, nanoseconds): (i64, u32)) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: seconds, tv_nsec: i64::from(nanoseconds) },
    }
}

/// Where writing in place begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// At this byte; what stands behind it goes.
    Byte(u64),
    /// At the end.
    End,
}

pub(crate) fn regular(descriptor: &OwnedFd) -> Result<Facts, FileError> {
    let facts = Facts::of(&rustix::fs::fstat(descriptor)?, None);
    match facts.kind {
        Kind::File => Ok(facts),
        Kind::Directory => Err(FileError::IsDirectory),
        Kind::Link(_) | Kind::Other => Err(FileError::NotRegular),
    }
}

pub(crate) fn create(parent: &OwnedFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, Mode::from_raw_mode(0o666))
}

pub(crate) fn random() -> Result<u64, FileError> {
    getrandom::u64().map_err(|_| FileError::System(Errno::IO))
}

/// The entries of a directory, read as they are asked for: memory does not grow with their number.
pub struct Entries {
    descriptor: OwnedFd,
    directory: Dir,
}

impl Iterator for Entries {
    type Item = Result<(Vec<u8>, Facts), FileError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let entry = match self.directory.next()? {
                Ok(entry) => entry,
                Err(error) => return Some(Err(error.into())),
            };
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") || is_hidden(name) {
                continue;
            }
            match rustix::fs::statat(self.descriptor.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => {
                    let is_link = FileType::from_raw_mode(stat.st_mode) == FileType::Symlink;
                    let link = is_link.then(|| rustix::fs::readlinkat(self.descriptor.as_fd(), name, Vec::new()));
                    let link = link.map(|target| target.map(|text| text.into_bytes()).unwrap_or_default());
                    return Some(Ok((name.to_vec(), Facts::of(&stat, link))));
                }
                // Removed since the directory was read.
                Err(Errno::NOENT) => {}
                Err(error) => return Some(Err(error.into())),
            }
        }
    }
}
