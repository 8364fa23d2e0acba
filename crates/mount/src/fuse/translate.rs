//! Attributes and times between the system's types and those of `fuser`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType, INodeNo, TimeOrNow};
use rustix::fs::{Timespec, UTIME_NOW, UTIME_OMIT};
use verbena_bank::Attributes;

use crate::nodes::ROOT;

fn time(seconds: i64, nanoseconds: i64) -> SystemTime {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let base = if seconds < 0 { UNIX_EPOCH - whole } else { UNIX_EPOCH + whole };
    base + Duration::from_nanos(nanoseconds.unsigned_abs())
}

pub(super) fn kind(kind: rustix::fs::FileType) -> FileType {
    use rustix::fs::FileType as Below;
    match kind {
        Below::Directory => FileType::Directory,
        Below::Symlink => FileType::Symlink,
        Below::Fifo => FileType::NamedPipe,
        Below::Socket => FileType::Socket,
        Below::CharacterDevice => FileType::CharDevice,
        Below::BlockDevice => FileType::BlockDevice,
        Below::RegularFile | Below::Unknown => FileType::RegularFile,
    }
}

/// FUSE carries a device in 32 bits, as the kernel's `new_encode_dev` packs it.
fn device(number: u64) -> u32 {
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    (minor & 0xFF) | (major << 8) | ((minor & !0xFF) << 12)
}

pub(super) fn attributes(number: u64, told: &Attributes) -> FileAttr {
    let moment = |(seconds, nanoseconds): (i64, u32)| time(seconds, nanoseconds.into());
    FileAttr {
        ino: INodeNo(number),
        size: told.size,
        blocks: told.blocks,
        atime: moment(told.accessed),
        mtime: moment(told.modified),
        ctime: moment(told.changed),
        crtime: UNIX_EPOCH,
        kind: kind(rustix::fs::FileType::from_raw_mode(told.mode)),
        perm: (told.mode & 0o7777) as u16,
        nlink: told.links as u32,
        uid: told.uid,
        gid: told.gid,
        rdev: device(told.device),
        blksize: told.block_size,
        flags: 0,
    }
}

/// No file: a name that the kernel may believe to be missing.
pub(super) fn absent() -> FileAttr {
    FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: FileType::RegularFile,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 0,
        flags: 0,
    }
}

/// Of a name whose file could not be looked up. The root's number is that of no other file: so the kernel gives the name to the program, with this
/// number, makes no node of it and forgets the root once more, which changes nothing (`fuse_direntplus_link` of fs/fuse/readdir.c). Without any number
/// it would do so too, but programs skip a name with the number 0.
pub(super) fn name_alone(below: rustix::fs::FileType) -> FileAttr {
    FileAttr { ino: INodeNo(ROOT), kind: kind(below), ..absent() }
}

pub(super) fn timespec(time: Option<TimeOrNow>) -> Timespec {
    match time {
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        Some(TimeOrNow::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        Some(TimeOrNow::SpecificTime(time)) => match time.duration_since(UNIX_EPOCH) {
            Ok(after) => Timespec { tv_sec: after.as_secs() as i64, tv_nsec: after.subsec_nanos().into() },
            Err(before) => {
                // `fuser` 0.18 gives seconds -5 and 3 ns as 5 s and 3 ns before 1970; so does this read it.
                let before = before.duration();
                Timespec { tv_sec: -(before.as_secs() as i64), tv_nsec: before.subsec_nanos().into() }
            }
        },
    }
}
