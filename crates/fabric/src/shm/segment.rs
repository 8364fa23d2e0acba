//! One making of a region: sealed memory, mapped by its owner, and by a peer that was handed its descriptor.

use std::os::fd::{BorrowedFd, OwnedFd};

use super::layout::{self, DATA};
use crate::error::{Error, Result};
use crate::memory::{Sealed, Words};
use crate::operation::{Done, Operation};
use crate::region::{RegionKey, Rights, Secret};

/// The owner's side of a making. Dropping it unmaps it; peers that have it open keep the memory, which is never used
/// again (F4).
#[derive(Debug)]
pub(super) struct Segment {
    mapped: Mapped,
    descriptor: Sealed,
    /// A key to read; with `change` in place of its secret, one to change.
    key: RegionKey,
    change: Secret,
}

impl Segment {
    /// Makes memory for the region that `key` (to read) names, and a second secret to change it.
    pub(super) fn create(key: RegionKey) -> Result<Self> {
        let all = DATA.checked_add(key.bytes).ok_or(Error::TooLarge {
            what: "a region",
            asked: key.bytes,
            most: u64::MAX - DATA,
        })?;
        let (words, descriptor) = Words::sealed(all)?;
        layout::describe(&words, &key);
        let mapped = Mapped { words, bytes: key.bytes };
        Ok(Segment { mapped, descriptor, key, change: Secret::random()? })
    }

    pub(super) fn key(&self, rights: Rights) -> RegionKey {
        RegionKey { rights, secret: *self.secret(rights), ..self.key.clone() }
    }

    pub(super) fn secret(&self, rights: Rights) -> &Secret {
        match rights {
            Rights::Read => &self.key.secret,
            Rights::Change => &self.change,
        }
    }

    pub(super) fn mapped(&self) -> &Mapped {
        &self.mapped
    }

    /// The descriptor for a peer that may change the memory.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.writable()
    }

    /// A descriptor for a peer that may read the memory: the kernel refuses to map it for writing.
    pub(super) fn read_only_descriptor(&self) -> Result<OwnedFd> {
        self.descriptor.for_reading()
    }

    /// F4: from now on no operation begins on this memory.
    pub(super) fn revoke(&self) {
        layout::revoke(&self.mapped.words);
    }
}

/// A region's memory, mapped: header and data.
#[derive(Debug)]
pub(super) struct Mapped {
    words: Words,
    bytes: u64,
}

impl Mapped {
    /// Maps what an owner sent for `key`, and refuses what is something else.
    pub(super) fn open(descriptor: BorrowedFd<'_>, key: &RegionKey) -> Result<Self> {
        let words = Words::map(descriptor, DATA.saturating_add(key.bytes), key.rights == Rights::Change)?;
        layout::check(&words, key)?;
        Ok(Mapped { words, bytes: key.bytes })
    }

    pub(super) fn is_live(&self) -> bool {
        layout::is_live(&self.words)
    }

    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Executes an operation on the data. A caller has checked rights.
    pub(super) fn execute(&self, operation: Operation) -> Result<Done> {
        self.words.execute(DATA, self.bytes, operation)
    }

    /// Gives whole pages of the data back to the system; the caller has checked the range.
    pub(super) fn discard(&self, at: u64, length: u64) -> Result<()> {
        self.words.discard(DATA + at, length)
    }

    /// Copies data out; the caller has checked the range.
    pub(super) fn copy_out(&self, at: u64, into: &mut [u8]) {
        self.words.copy_out(DATA + at, into);
    }

    /// Copies data in; the caller has checked the range and its rights.
    pub(super) fn copy_in(&self, at: u64, from: &[u8]) {
        self.words.copy_in(DATA + at, from);
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::fs::SealFlags;
    use rustix::mm::{MapFlags, ProtFlags, mmap};
    use verbena_terms::{Incarnation, ViewNumber};

    use super::*;

    fn segment() -> Segment {
        let owner = Incarnation::new(1, 1);
        let secret = Secret([1; 16]);
        Segment::create(RegionKey { owner, region: 1, view: ViewNumber(1), bytes: 64, rights: Rights::Read, secret })
            .unwrap()
    }

    fn map_for_writing(descriptor: BorrowedFd<'_>) -> rustix::io::Result<()> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address that the kernel chooses; nothing is accessed through it.
        unsafe { mmap(std::ptr::null_mut(), 4096, protection, MapFlags::SHARED, descriptor, 0) }.map(|_| ())
    }

    #[test]
    fn a_descriptor_to_read_cannot_be_mapped_for_writing() {
        let segment = segment();
        let reading = segment.read_only_descriptor().unwrap();
        assert_eq!(map_for_writing(reading.as_fd()), Err(rustix::io::Errno::ACCESS));
        assert_eq!(map_for_writing(segment.descriptor()), Ok(()));
        let mapped = Mapped::open(reading.as_fd(), &segment.key(Rights::Read)).unwrap();
        segment.mapped().copy_in(0, b"seen");
        let mut seen = [0; 4];
        mapped.copy_out(0, &mut seen);
        assert_eq!(&seen, b"seen");
    }

    #[test]
    fn another_user_cannot_open_it_again_for_writing() {
        use std::os::unix::process::CommandExt;
        let segment = segment();
        for (descriptor, mode) in [
            (segment.read_only_descriptor().unwrap(), "a reader's"),
            (segment.descriptor().try_clone_to_owned().unwrap(), "a writer's"),
        ] {
            let mut shell = std::process::Command::new("/bin/sh");
            shell
                .args(["-c", ": 1<>/proc/self/fd/0 && echo opened"])
                .stdin(descriptor)
                .stderr(std::process::Stdio::null());
            if rustix::process::geteuid().is_root() {
                shell.uid(65534).gid(65534);
            }
            let output = shell.output().unwrap();
            assert_eq!(output.stdout, b"", "{mode} descriptor was opened for writing");
            assert!(!output.status.success());
        }
    }

    #[test]
    fn memory_keeps_its_size() {
        let segment = segment();
        assert_eq!(rustix::fs::ftruncate(segment.descriptor(), 0), Err(rustix::io::Errno::PERM));
        assert_eq!(rustix::fs::ftruncate(segment.descriptor(), 1 << 20), Err(rustix::io::Errno::PERM));
        let more = rustix::fs::fcntl_add_seals(segment.descriptor(), SealFlags::WRITE);
        assert_eq!(more, Err(rustix::io::Errno::PERM), "nor can a peer seal it against writing");
    }
}
