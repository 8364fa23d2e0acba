//! Each operation at the mount, and the same one on a directory of the same file system: the same answers.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Mode, RenameFlags, Timespec, Timestamps, XattrFlags, fallocate, getxattr,
    lsetxattr, mknodat, removexattr, renameat_with, setxattr, utimensat,
};

use crate::setup::{Pair, said};

type Trace = Vec<String>;

/// Runs `operations` in a folder of the mount and in one beside it, and compares what they said and what they left.
fn same(operations: impl Fn(&Path) -> Trace) {
    let Some(pair) = Pair::new(|_| {}) else { return };
    let (mounted, below, beside) = (pair.fast.join("d"), pair.slow.join("d"), pair.slow.join("e"));
    fs::create_dir(&mounted).unwrap();
    fs::create_dir(&beside).unwrap();
    let (ours, theirs) = (operations(&mounted), operations(&beside));
    for (at, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
        assert_eq!(ours, theirs, "operation {at}: the mount left, the directory right");
    }
    assert!(!ours.is_empty() && ours.len() == theirs.len());
    assert_eq!(tree(&below), tree(&beside), "what was left below");
    assert_eq!(tree(&mounted), tree(&beside), "what the mount shows");
}

fn tree(root: &Path) -> Trace {
    let mut lines = vec![];
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
            let told = entry.symlink_metadata().unwrap();
            let size = if told.is_dir() { 0 } else { told.len() };
            let content = if told.is_file() { fs::read(&entry).unwrap() } else { vec![] };
            let sum = content.iter().fold(0_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
            let inner = entry.strip_prefix(root).unwrap();
            lines.push(format!("{inner:?} {:o} {} {size} {} {sum}", told.mode(), told.nlink(), told.rdev()));
            if told.is_dir() {
                folders.push(entry);
            }
        }
    }
    lines.sort();
    lines
}

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

#[test]
fn files_directories_and_their_errors() {
    same(|at| {
        let mut trace = vec![];
        let mut say = |line| trace.push(line);
        say(said(fs::create_dir(at.join("a"))));
        say(said(fs::create_dir(at.join("a"))));
        say(said(fs::write(at.join("a/f"), b"hello")));
        say(said(fs::read(at.join("a/f"))));
        say(said(fs::read(at.join("a/none"))));
        say(said(fs::read(at.join("a/f/x"))));
        say(said(fs::write(at.join("a"), b"x")));
        say(said(fs::remove_dir(at.join("a"))));
        say(said(fs::remove_file(at.join("a"))));
        say(said(OpenOptions::new().write(true).create_new(true).open(at.join("a/f")).map(|_| ())));
        say(said(OpenOptions::new().write(true).truncate(true).open(at.join("a/f")).map(|_| ())));
        say(said(fs::read(at.join("a/f"))));
        say(said(fs::set_permissions(at.join("a/f"), fs::Permissions::from_mode(0o4751))));
        say(said(std::os::unix::fs::chown(at.join("a/f"), Some(1234), Some(99))));
        say(said(fs::metadata(at.join("a/f")).map(|told| (told.mode(), told.uid(), told.gid()))));
        say(said(File::open(at.join("a")).and_then(|folder| folder.sync_all())));
        trace
    });
}

#[test]
fn hard_links_and_files_without_a_name() {
    same(|at| {
        let mut trace = vec![];
        let mut say = |line| trace.push(line);
        let path = |name: &str| at.join(name);
        fs::write(path("one"), b"content").unwrap();
        say(said(fs::hard_link(path("one"), path("two"))));
        say(said(fs::hard_link(path("one"), path("two"))));
        say(said(fs::hard_link(path("none"), path("three"))));
        let told = |name: &str| fs::metadata(path(name)).map(|told| (told.ino(), told.nlink()));
        say(format!("{}", told("one").unwrap() == told("two").unwrap()));
        fs::write(path("two"), b"changed by the other name").unwrap();
        say(said(fs::read(path("one"))));
        say(said(fs::remove_file(path("one"))));
        say(said(fs::metadata(path("two")).map(|told| told.nlink())));
        // A file lives as long as it is open.
        let mut file = open(&path("two"));
        say(said(fs::remove_file(path("two"))));
        say(said(file.metadata().map(|told| (told.nlink(), told.len()))));
        say(said(file.write_all(b"CHANGED")));
        say(said(file.set_len(12)));
        say(said(file.seek(SeekFrom::Start(0))));
        let mut text = String::new();
        say(said(file.read_to_string(&mut text)));
        say(text);
        fs::write(path("two"), b"another file of the name").unwrap();
        say(said(file.metadata().map(|told| told.len())));
        say(said(symlink("target", path("link"))));
        say(said(fs::hard_link(path("link"), path("link2"))));
        say(said(fs::read_link(path("link2"))));
        trace
    });
}

#[test]
fn renames_with_flags() {
    same(|at| {
        let mut trace = vec![];
        let mut say = |line| trace.push(line);
        let path = |name: &str| at.join(name);
        let rename = |from: &str, to: &str, flags| said(renameat_with(CWD, path(from), CWD, path(to), flags));
        for name in ["a", "b"] {
            fs::write(path(name), name).unwrap();
            fs::create_dir_all(path(&format!("{name}d/inner"))).unwrap();
        }
        say(rename("a", "b", RenameFlags::NOREPLACE));
        say(rename("a", "b", RenameFlags::EXCHANGE));
        say(said(fs::read(path("a"))));
        say(rename("a", "ad", RenameFlags::EXCHANGE));
        say(rename("ad", "a", RenameFlags::EXCHANGE));
        say(rename("a", "none", RenameFlags::EXCHANGE));
        say(rename("a", "b", RenameFlags::empty()));
        say(rename("a", "b", RenameFlags::empty()));
        say(rename("ad", "bd", RenameFlags::empty()));
        say(rename("ad", "ad/inner/x", RenameFlags::empty()));
        say(rename("b", "bd/inner/moved", RenameFlags::NOREPLACE));
        let file = File::open(path("bd/inner/moved")).unwrap();
        say(rename("bd", "cd", RenameFlags::empty()));
        say(rename("cd/inner/moved", "w", RenameFlags::empty()));
        say(said(std::io::read_to_string(file)));
        trace
    });
}

#[test]
fn extended_attributes() {
    same(|at| {
        let mut trace = vec![];
        let mut say = |line| trace.push(line);
        let path = at.join("f");
        fs::write(&path, b"x").unwrap();
        symlink("f", at.join("l")).unwrap();
        let get = |name: &str, room: usize| {
            let mut buffer = vec![0; room];
            said(getxattr(&path, name, &mut buffer[..]).map(|length| buffer[..length.min(room)].to_vec()))
        };
        say(said(setxattr(&path, "user.one", b"first", XattrFlags::CREATE)));
        say(said(setxattr(&path, "user.one", b"again", XattrFlags::CREATE)));
        say(said(setxattr(&path, "user.two", b"none", XattrFlags::REPLACE)));
        say(said(setxattr(&path, "user.two", b"\0\xFF", XattrFlags::empty())));
        say(said(setxattr(&path, "user.huge", &[7; 60_000], XattrFlags::empty())));
        say(said(setxattr(&path, "trusted.root", b"t", XattrFlags::empty())));
        say(said(setxattr(&path, "strange", b"t", XattrFlags::empty())));
        say(said(lsetxattr(at.join("l"), "user.of-link", b"t", XattrFlags::empty())));
        for (name, room) in [("user.one", 100), ("user.one", 3), ("user.one", 0), ("user.two", 10), ("user.none", 10)] {
            say(get(name, room));
        }
        let mut names = vec![0; 4096];
        let length = rustix::fs::listxattr(&path, &mut names[..]).unwrap();
        let mut names: Vec<_> = names[..length].split(|byte| *byte == 0).map(<[u8]>::to_vec).collect();
        names.sort();
        say(format!("{names:?}"));
        say(said(rustix::fs::listxattr(&path, &mut [0; 3][..])));
        say(said(removexattr(&path, "user.one")));
        say(said(removexattr(&path, "user.one")));
        trace
    });
}

#[test]
fn names_of_any_bytes_and_large_directories() {
    same(|at| {
        let mut trace = vec![];
        let any: Vec<u8> = (1..=255).filter(|byte| *byte != b'/').take(254).collect();
        trace.push(said(fs::write(at.join(OsString::from_vec(any)), b"any")));
        trace.push(said(fs::write(at.join("n".repeat(255)), b"long")));
        trace.push(said(fs::write(at.join("n".repeat(256)), b"longer")));
        for number in 0..700 {
            fs::write(at.join(format!("file {number} of a directory that no single answer holds")), b"").unwrap();
        }
        let mut names: Vec<_> = fs::read_dir(at).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        trace.push(format!("{names:?}"));
        for name in names {
            fs::remove_file(at.join(name)).unwrap();
        }
        trace
    });
}

#[test]
fn special_files_links_and_times() {
    same(|at| {
        let mut trace = vec![];
        let mut say = |line| trace.push(line);
        let path = |name: &str| at.join(name);
        let mode = Mode::from_raw_mode(0o640);
        for (name, kind, device) in [
            ("fifo", FileType::Fifo, 0),
            ("socket", FileType::Socket, 0),
            ("null", FileType::CharacterDevice, rustix::fs::makedev(1, 3)),
            ("large", FileType::BlockDevice, rustix::fs::makedev(2047, 70_000)),
            ("plain", FileType::RegularFile, 0),
        ] {
            say(said(mknodat(CWD, path(name), kind, mode, device)));
            say(said(mknodat(CWD, path(name), kind, mode, device)));
        }
        say(said(symlink("t".repeat(4000), path("long"))));
        say(said(fs::read_link(path("long"))));
        say(said(symlink("loop", path("loop"))));
        say(said(symlink("none", path("dangling"))));
        say(said(fs::read(path("loop"))));
        say(said(fs::read(path("dangling"))));
        for (seconds, nanoseconds) in [(0, 0), (-1_000_000_000, 5), (7_000_000_000, 999_999_999)] {
            let time = Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
            let times = Timestamps { last_access: time, last_modification: time };
            say(said(utimensat(CWD, path("plain"), &times, AtFlags::empty())));
            let told = fs::metadata(path("plain")).unwrap();
            say(format!("{:?}", (told.mtime(), told.mtime_nsec(), told.atime(), told.atime_nsec())));
            say(said(utimensat(CWD, path("dangling"), &times, AtFlags::SYMLINK_NOFOLLOW)));
            say(said(fs::symlink_metadata(path("dangling")).map(|told| (told.mtime(), told.mtime_nsec()))));
        }
        trace
    });
}

#[test]
fn space_and_numbers_are_those_of_the_file_system_below() {
    let Some(pair) = Pair::new(|_| {}) else { return };
    let (ours, theirs) = (rustix::fs::statvfs(&pair.fast).unwrap(), rustix::fs::statvfs(&pair.slow).unwrap());
    let numbers = |space: &rustix::fs::StatVfs| (space.f_blocks, space.f_bsize, space.f_namemax, space.f_files);
    assert_eq!(numbers(&ours), numbers(&theirs));
    fs::write(pair.slow.join("f"), b"x").unwrap();
    let number = |path: &Path| fs::metadata(path).unwrap().ino();
    assert_eq!(number(&pair.fast.join("f")), number(&pair.slow.join("f")));
    assert_eq!(number(&pair.fast), number(&pair.slow));
}

#[test]
fn ranges_holes_and_copies() {
    same(|at| {
        let mut trace = vec![];
        let mut say = |line| trace.push(line);
        let file = open(&at.join("f"));
        file.write_all_at(&vec![7; 100_000], 50_000).unwrap();
        let allocate = |flags, offset, bytes| said(fallocate(&file, flags, offset, bytes));
        say(allocate(FallocateFlags::empty(), 140_000, 100_000));
        say(allocate(FallocateFlags::KEEP_SIZE, 300_000, 100_000));
        say(allocate(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 65_536, 8192));
        say(allocate(FallocateFlags::PUNCH_HOLE, 65_536, 8192));
        say(allocate(FallocateFlags::ZERO_RANGE, 90_000, 10));
        say(allocate(FallocateFlags::empty(), 0, 0));
        say(said(file.metadata().map(|told| told.len())));
        for offset in [0, 45_056, 70_000, 1 << 40] {
            say(said(rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(offset))));
            say(said(rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(offset))));
        }
        let to = open(&at.join("t"));
        say(said(rustix::fs::copy_file_range(&file, Some(&mut 60_000), &to, Some(&mut 10), 30_000)));
        say(said(to.set_len(5_000_000_000)));
        say(said(to.metadata().map(|told| told.len())));
        say(said(to.set_len(70)));
        let reader = File::open(at.join("t")).unwrap();
        say(said(reader.set_len(7)));
        say(said(reader.write_at(b"x", 0)));
        say(said(to.sync_all()));
        say(said(to.sync_data()));
        trace
    });
}

#[test]
fn appends_land_at_the_end_whoever_wrote_last() {
    let Some(pair) = Pair::new(|_| {}) else { return };
    let append = |folder: &Path| OpenOptions::new().append(true).create(true).open(folder.join("log")).unwrap();
    let (mut ours, mut theirs) = (append(&pair.fast), append(&pair.slow));
    let mut wanted = String::new();
    for number in 0..100 {
        let line = format!("line {number}\n");
        if number % 3 == 0 { &mut theirs } else { &mut ours }.write_all(line.as_bytes()).unwrap();
        wanted += &line;
    }
    assert_eq!(fs::read_to_string(pair.slow.join("log")).unwrap(), wanted);
    assert_eq!(fs::read_to_string(pair.fast.join("log")).unwrap(), wanted);
}

/// Nothing is cached: what is changed below is seen at once, by files that are open as well.
#[test]
fn a_plain_mount_shows_each_change_below_at_once() {
    let Some(pair) = Pair::new(|_| {}) else { return };
    let (slow, fast) = (pair.slow.join("f"), pair.fast.join("f"));
    let mut file = None;
    for round in 0_u8..50 {
        assert_eq!(fs::metadata(&fast).is_ok(), round > 0);
        fs::write(&slow, vec![round; usize::from(round) + 1]).unwrap();
        assert_eq!(fs::read(&fast).unwrap(), vec![round; usize::from(round) + 1]);
        let file: &mut File = file.get_or_insert_with(|| File::open(&fast).unwrap());
        let mut bytes = [0; 1];
        file.read_exact_at(&mut bytes, u64::from(round)).unwrap();
        assert_eq!(bytes, [round]);
        fs::rename(&slow, pair.slow.join("g")).unwrap();
        assert!(fs::metadata(&fast).is_err() && fs::metadata(pair.fast.join("g")).is_ok());
        fs::rename(pair.slow.join("g"), &slow).unwrap();
    }
}
