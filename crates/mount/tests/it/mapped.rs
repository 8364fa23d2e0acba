//! Mapped files, and files that ask for the device itself.

use std::fs;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};

use crate::setup::Pair;

#[test]
fn mapped_files_and_other_writes_see_each_other() {
    let Some(pair) = Pair::new(|_| {}) else { return };
    const BYTES: usize = 64 << 10;
    fs::write(pair.slow.join("f"), vec![1; BYTES]).unwrap();
    let file = openat(CWD, pair.fast.join("f"), OFlags::RDWR, Mode::empty()).unwrap();
    // SAFETY: a new mapping of its own place, which nothing else refers to. Only volatile reads and writes follow.
    let map = unsafe {
        mmap(std::ptr::null_mut(), BYTES, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &file, 0).unwrap()
    }
    .cast::<u8>();
    // SAFETY: in bounds of the mapping, which lives until the end of the test.
    let read = |at: usize| unsafe { map.add(at).read_volatile() };
    assert_eq!((read(0), read(BYTES - 1)), (1, 1));
    // SAFETY: as above.
    unsafe { map.add(5000).write_volatile(2) };
    // SAFETY: the whole mapping.
    unsafe { msync(map.cast(), BYTES, MsyncFlags::SYNC).unwrap() };
    assert_eq!(fs::read(pair.slow.join("f")).unwrap()[4999..5002], [1, 2, 1]);
    // A write to the file is in the mapping, and the other way round without msync.
    assert_eq!(rustix::io::pwrite(&file, &[3; 10], 20_000).unwrap(), 10);
    assert_eq!((read(19_999), read(20_000)), (1, 3));
    // SAFETY: as above.
    unsafe { map.add(30_000).write_volatile(4) };
    let mut byte = [0];
    assert_eq!(rustix::io::pread(&file, &mut byte, 30_000).unwrap(), 1);
    assert_eq!(byte, [4]);
    // SAFETY: nothing refers to the mapping any more.
    unsafe { munmap(map.cast(), BYTES).unwrap() };
    drop(file);
    assert_eq!(fs::read(pair.slow.join("f")).unwrap()[30_000], 4);
}

#[test]
fn direct_files_are_read_and_written_by_aligned_buffers() {
    let Some(pair) = Pair::new(|_| {}) else { return };
    let mut room = vec![0_u8; 3 * 4096];
    let skip = room.as_ptr().align_offset(4096);
    let buffer = &mut room[skip..skip + 4096];
    buffer.fill(9);
    let mut options = fs::OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).custom_flags(OFlags::DIRECT.bits() as i32);
    let file = options.open(pair.fast.join("f")).unwrap();
    file.write_all_at(buffer, 8192).unwrap();
    assert_eq!(fs::read(pair.slow.join("f")).unwrap()[8191..8194], [0, 9, 9]);
    fs::write(pair.slow.join("f"), vec![4; 10_000]).unwrap();
    assert_eq!(file.read_at(buffer, 8192).unwrap(), 10_000 - 8192);
    assert_eq!(buffer[..3], [4, 4, 4]);
}
