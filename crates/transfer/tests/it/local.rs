//! Copies on one machine, on real files.

use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{XattrFlags, fgetxattr, fsetxattr};
use verbena_transfer::{Change, LocalError, LocalOptions, SessionError, Summary, copy_local};

use crate::real::{chance, fill, same};

fn options(from: &Path, to: &Path) -> LocalOptions {
    LocalOptions {
        from: from.to_owned(),
        to: to.to_owned(),
        is_durable: false,
        is_proven: true,
        compares: false,
        is_update: false,
        exclude: Vec::new(),
        deletes: false,
        is_dry: false,
        preserves: false,
    }
}

fn copied(options: &LocalOptions) -> (Summary, Vec<Change>) {
    let mut changes = Vec::new();
    let summary = copy_local(options, &mut |change| changes.push(change.clone()), &mut |_| true).unwrap();
    (summary, changes)
}

/// Without failures: files that stand, bytes, and changes.
#[track_caller]
fn counts(options: &LocalOptions) -> (u64, u64, usize) {
    let (summary, changes) = copied(options);
    assert_eq!(summary.failures, vec![]);
    (summary.files, summary.bytes, changes.len())
}

/// A directory with `from` in it.
fn place() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    std::fs::create_dir(&from).unwrap();
    (directory, from, to)
}

fn set_time(path: &Path, time: SystemTime) {
    std::fs::File::open(path).unwrap().set_modified(time).unwrap();
}

/// Proven or not, a tree arrives whole, holes stay, and the second time no file is even opened.
#[test]
fn a_tree_stands_and_the_second_time_nothing_is_copied() {
    for is_proven in [true, false] {
        let (_directory, from, to) = place();
        fill(&from, &mut chance(7));
        let options = LocalOptions { is_proven, ..options(&from, &to) };
        let (files, bytes, changes) = counts(&options);
        // The root stands already, because it was made.
        assert_eq!((files, changes), (211, 210));
        same(&from, &to);
        let blocks = std::fs::metadata(to.join("sparse")).unwrap().blocks();
        assert!(blocks * 512 < 4 << 20, "{blocks} blocks: the holes were filled");
        assert!(bytes > 8 << 20, "{bytes}");
        assert_eq!(counts(&options), (211, 0, 0));
        // A mode alone is a change; so is a time, although the content stands.
        std::fs::set_permissions(from.join("big"), std::fs::Permissions::from_mode(0o600)).unwrap();
        set_time(&from.join("deep/two"), SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 7));
        let (_, bytes, changes) = counts(&options);
        assert_eq!(changes, 2);
        assert!(!is_proven || bytes == 0, "{bytes} bytes of what stands");
        same(&from, &to);
        // What was there longer than it is goes.
        let file = std::fs::File::options().write(true).open(from.join("sparse")).unwrap();
        file.set_len(151 << 20).unwrap();
        file.write_all_at(b"end", (151 << 20) - 3).unwrap();
        assert_eq!(counts(&options).2, 1);
        same(&from, &to);
    }
}

/// Equal size, mode and time are believed, unless contents are to be compared.
#[test]
fn contents_are_compared_where_that_is_asked_for() {
    let (_directory, from, to) = place();
    fill(&from, &mut chance(8));
    counts(&options(&from, &to));
    let time = std::fs::metadata(to.join("big")).unwrap().modified().unwrap();
    std::fs::File::options().write(true).open(to.join("big")).unwrap().write_all_at(b"flipped", 3 << 20).unwrap();
    set_time(&to.join("big"), time);
    assert_eq!(counts(&options(&from, &to)).2, 0);
    let compared = LocalOptions { compares: true, ..options(&from, &to) };
    let (_, bytes, _) = counts(&compared);
    // The chunk, and the small files that are not asked about.
    assert!(((1 << 20)..(1 << 20) + 500_000).contains(&bytes), "{bytes}");
    same(&from, &to);
}

/// Whether two files have the same bytes; they are too large for memory.
fn is_equal(one: &Path, other: &Path) -> bool {
    let (one, other) = (std::fs::File::open(one).unwrap(), std::fs::File::open(other).unwrap());
    let size = one.metadata().unwrap().len();
    let (mut first, mut second) = (vec![0; 4 << 20], vec![0; 4 << 20]);
    let mut at = 0;
    while at < size {
        let length = (size - at).min(4 << 20) as usize;
        one.read_exact_at(&mut first[..length], at).unwrap();
        if other.read_exact_at(&mut second[..length], at).is_err() || first[..length] != second[..length] {
            return false;
        }
        at += length as u64;
    }
    other.metadata().unwrap().len() == size
}

/// A copy that is broken off goes on where it was. Without a proof, what it left counts for nothing.
#[test]
fn a_copy_that_was_broken_off_goes_on() {
    const SIZE: u64 = 1 << 30;
    const SOME: u64 = 64 << 20;
    for is_proven in [true, false] {
        let (_directory, from, to) = place();
        let large = std::fs::File::create(from.join("large")).unwrap();
        large.set_len(SIZE).unwrap();
        for at in 0..SIZE >> 20 {
            large.write_all_at(&at.to_le_bytes(), (at << 20) + 5).unwrap();
        }
        let broken = copy_local(&options(&from, &to), &mut |_| {}, &mut |progress| progress.bytes < SOME);
        assert!(matches!(broken, Err(LocalError::Session(SessionError::Stopped))), "{broken:?}");
        let parts = || {
            let found = std::fs::read_dir(&to).unwrap().flatten();
            found.filter(|entry| entry.file_name().to_string_lossy().starts_with(".~verbena")).count()
        };
        assert!(parts() == 2 && !to.join("large").exists(), "no part, or the file itself");
        // What had data has none any more.
        large.write_all_at(&[0; 8], 5).unwrap();
        let hole = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&large, hole, 1 << 20, 1 << 20).unwrap();
        let (files, bytes, _) = counts(&LocalOptions { is_proven, ..options(&from, &to) });
        assert_eq!((files, bytes == SIZE), (2, !is_proven), "{bytes} of {SIZE}");
        assert!(!is_proven || bytes <= SIZE - SOME / 2, "{bytes} of {SIZE}");
        assert!(is_equal(&from.join("large"), &to.join("large")) && parts() == 0);
    }
}

/// Entries of another kind are in the way of their sources and go first, with what they hold. What is left out stays, and its directories do.
#[test]
fn removing_makes_room_and_leaves_what_is_left_out() {
    let (_directory, from, to) = place();
    for path in [from.join("folder"), to.clone(), to.join("file/deep"), to.join("old/er"), to.join("held")] {
        std::fs::create_dir_all(path).unwrap();
    }
    std::fs::write(from.join("file"), "file").unwrap();
    std::fs::write(from.join("skip.tmp"), "x").unwrap();
    symlink("file", from.join("link")).unwrap();
    for name in ["folder", "file/deep/a", "old/er/b", "held/keep.tmp", "held/c"] {
        std::fs::write(to.join(name), "x").unwrap();
    }
    symlink("/etc/passwd", to.join("old/l")).unwrap();
    std::fs::write(to.join("link"), "x").unwrap();
    let all = |options: LocalOptions| LocalOptions { deletes: true, exclude: vec![b"*.tmp".to_vec()], ..options };
    let dry = copied(&LocalOptions { is_dry: true, ..all(options(&from, &to)) });
    assert!(to.join("old/er/b").exists() && !to.join("file").is_file(), "a dry run changed something");
    let (summary, mut changes) = copied(&all(options(&from, &to)));
    assert_eq!((summary.failures, &changes), (vec![], &dry.1));
    changes.sort_by_key(|change| format!("{change:?}"));
    let path = |text: &str| text.as_bytes().to_vec();
    let mut expected: Vec<Change> = ["file", "link"].map(|text| Change::Copy(path(text))).to_vec();
    expected.push(Change::Make(path("folder")));
    expected.extend(["file/deep/a", "folder", "held/c", "old/er/b", "old/l"].map(|text| Change::Remove(path(text))));
    expected.extend(["file", "file/deep", "old", "old/er"].map(|text| Change::RemoveDirectory(path(text))));
    expected.sort_by_key(|change| format!("{change:?}"));
    assert_eq!(changes, expected);
    assert!(to.join("held/keep.tmp").exists() && !to.join("held/c").exists() && !to.join("skip.tmp").exists());
    assert!(to.join("folder").is_dir() && Path::new("/etc/passwd").exists());
    assert_eq!(std::fs::read_link(to.join("link")).unwrap(), Path::new("file"));
    assert_eq!(copied(&all(options(&from, &to))).1, []);
    // Without it nothing goes, and what is in the way is a failure of the file alone.
    std::fs::remove_file(to.join("file")).unwrap();
    std::fs::create_dir(to.join("file")).unwrap();
    std::fs::write(to.join("more"), "x").unwrap();
    let (summary, _) = copied(&options(&from, &to));
    assert_eq!(summary.failures.iter().map(|(path, _)| path.as_slice()).collect::<Vec<_>>(), [b"file"]);
    assert!(to.join("more").exists());
}

/// A directory that cannot be read is a failure, and nothing of it goes at the target.
#[test]
fn what_cannot_be_read_stays_at_the_target() {
    let (directory, from, to) = place();
    for path in [from.join("closed"), to.join("closed"), to.join("other")] {
        std::fs::create_dir_all(path).unwrap();
    }
    std::fs::write(to.join("closed/a"), "a").unwrap();
    let (root, closed) = (directory.path().to_owned(), from.join("closed"));
    std::fs::set_permissions(&root, std::fs::Permissions::from_mode(0o777)).unwrap();
    let run = move || {
        if rustix::process::geteuid().is_root() {
            // Of this thread, and of those that it starts.
            let user = rustix::process::Uid::from_raw(65_533);
            for path in [&root.join("to"), &root.join("to/closed"), &root.join("to/other"), &root.join("to/closed/a")] {
                rustix::fs::chown(path, Some(user), None).unwrap();
            }
            rustix::thread::set_thread_res_uid(user, user, user).unwrap();
        }
        let options = LocalOptions { deletes: true, ..options(&root.join("from"), &root.join("to")) };
        copied(&options)
    };
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o000)).unwrap();
    let (summary, _) = std::thread::spawn(run).join().unwrap();
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(summary.failures.iter().map(|(path, _)| path.as_slice()).collect::<Vec<_>>(), [b"closed"]);
    assert!(to.join("closed/a").exists() && !to.join("other").exists());
}

/// A newer file at the target stays where that is asked for.
#[test]
fn newer_files_stay() {
    let (_directory, from, to) = place();
    std::fs::write(from.join("a"), "source").unwrap();
    std::fs::create_dir(&to).unwrap();
    std::fs::write(to.join("a"), "newer").unwrap();
    set_time(&to.join("a"), SystemTime::now() + Duration::from_secs(60));
    let update = LocalOptions { is_update: true, ..options(&from, &to) };
    assert_eq!(counts(&update), (2, 0, 0));
    assert_eq!(std::fs::read(to.join("a")).unwrap(), b"newer");
    set_time(&to.join("a"), SystemTime::UNIX_EPOCH);
    assert_eq!(counts(&update).2, 1);
    assert_eq!(std::fs::read(to.join("a")).unwrap(), b"source");
}

/// A newer file has several names neither taken away nor given.
#[test]
fn newer_files_stay_though_the_source_has_several_names_of_its_own() {
    for newer in ["a", "b"] {
        let (_directory, from, to) = place();
        std::fs::write(from.join("a"), "source").unwrap();
        std::fs::hard_link(from.join("a"), from.join("b")).unwrap();
        std::fs::create_dir(&to).unwrap();
        std::fs::write(to.join(newer), "newer").unwrap();
        set_time(&to.join(newer), SystemTime::now() + Duration::from_secs(60));
        counts(&LocalOptions { is_update: true, preserves: true, ..options(&from, &to) });
        let other = if newer == "a" { "b" } else { "a" };
        assert_eq!(std::fs::read(to.join(newer)).unwrap(), b"newer", "{newer}");
        assert_eq!(std::fs::read(to.join(other)).unwrap(), b"source", "{newer}");
    }
}

fn attribute(path: &Path) -> Option<Vec<u8>> {
    let mut value = vec![0; 100];
    let length = fgetxattr(std::fs::File::open(path).unwrap().as_fd(), "user.word", value.as_mut_slice()).ok()?;
    value.truncate(length);
    Some(value)
}

/// Hard links, attributes, and times and modes of directories and links are kept where that is asked for.
#[test]
fn what_is_preserved() {
    let (_directory, from, to) = place();
    std::fs::create_dir_all(from.join("deep/er")).unwrap();
    std::fs::write(from.join("one"), "one").unwrap();
    std::fs::hard_link(from.join("one"), from.join("deep/two")).unwrap();
    std::fs::hard_link(from.join("one"), from.join("deep/er/three")).unwrap();
    symlink("one", from.join("link")).unwrap();
    let old = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    let (root, deep) = (std::fs::File::open(&from).unwrap(), std::fs::File::open(from.join("deep")).unwrap());
    let has_attributes = fsetxattr(&deep, "user.word", b"deep", XattrFlags::empty()).is_ok();
    if has_attributes {
        let one = std::fs::File::open(from.join("one")).unwrap();
        fsetxattr(&one, "user.word", b"one", XattrFlags::empty()).unwrap();
    } else {
        println!("skipped in part: this file system has no extended attributes");
    }
    std::fs::set_permissions(from.join("deep/er"), std::fs::Permissions::from_mode(0o750)).unwrap();
    for directory in [&root, &deep] {
        directory.set_modified(old).unwrap();
    }
    let time = |path: &Path| path.symlink_metadata().map(|data| (data.mtime(), data.mtime_nsec())).unwrap();
    let inode = |name: &str| std::fs::metadata(to.join(name)).unwrap().ino();
    let preserved = LocalOptions { preserves: true, ..options(&from, &to) };
    let is_kept = || {
        for name in ["", "deep", "link", "one"] {
            assert_eq!(time(&to.join(name)), time(&from.join(name)), "{name}");
        }
        assert!(inode("one") == inode("deep/two") && inode("one") == inode("deep/er/three"));
        assert_eq!(std::fs::metadata(to.join("deep/er")).unwrap().mode() & 0o777, 0o750);
        for name in ["one", "deep"] {
            assert_eq!(attribute(&to.join(name)), has_attributes.then(|| name.as_bytes().to_vec()));
        }
    };
    assert_eq!(counts(&preserved).0, 7);
    is_kept();
    assert_eq!(counts(&preserved), (7, 0, 0));
    is_kept();
    // Names that are files of their own at the target become one again, and an attribute alone is a change.
    std::fs::remove_file(to.join("deep/two")).unwrap();
    std::fs::write(to.join("deep/two"), "two").unwrap();
    if has_attributes {
        let file = std::fs::File::open(to.join("one")).unwrap();
        fsetxattr(&file, "user.other", b"x", XattrFlags::empty()).unwrap();
    }
    assert_eq!(counts(&preserved).2, 1 + usize::from(has_attributes));
    is_kept();
    let one = std::fs::File::open(to.join("one")).unwrap();
    assert!(fgetxattr(one.as_fd(), "user.other", vec![0; 9].as_mut_slice()).is_err());
    // Nothing of it without the option.
    let other = to.with_file_name("other");
    counts(&options(&from, &other));
    assert!(
        inode("one") != std::fs::metadata(other.join("one")).unwrap().ino() && attribute(&other.join("one")).is_none()
    );
    assert_eq!(std::fs::metadata(other.join("one")).unwrap().nlink(), 1);
}

/// A link at the target leads no file out of it, and a link of the source is copied as a link.
#[test]
fn nothing_is_written_outside_the_target() {
    let (directory, from, to) = place();
    let outside = directory.path().join("outside");
    for path in [&from.join("folder"), &to, &outside] {
        std::fs::create_dir_all(path).unwrap();
    }
    std::fs::write(from.join("folder/a"), "a").unwrap();
    std::fs::write(from.join("b"), "b").unwrap();
    std::fs::write(outside.join("b"), "before").unwrap();
    symlink(&outside, to.join("folder")).unwrap();
    symlink(outside.join("b"), to.join("b")).unwrap();
    let (summary, _) = copied(&options(&from, &to));
    assert!(summary.failures.iter().any(|(path, _)| path == b"folder/a"), "{:?}", summary.failures);
    assert!(!outside.join("a").exists() && std::fs::read(outside.join("b")).unwrap() == b"before");
    assert!(!to.join("b").symlink_metadata().unwrap().is_symlink() && std::fs::read(to.join("b")).unwrap() == b"b");
}

/// A tree is not copied into itself, nor its source removed.
#[test]
fn sides_that_lie_in_each_other_are_refused() {
    let (directory, from, _) = place();
    std::fs::write(from.join("a"), "a").unwrap();
    symlink(&from, directory.path().join("alias")).unwrap();
    let refused = |options: &LocalOptions| {
        let refused = copy_local(options, &mut |change| panic!("{change:?}"), &mut |_| true);
        assert!(matches!(refused, Err(LocalError::Within { .. })), "{refused:?}");
    };
    let alias = directory.path().join("alias");
    for to in [from.clone(), from.join("below"), alias.clone(), alias.join("below")] {
        refused(&options(&from, &to));
    }
    refused(&options(&from.join("a"), &from));
    refused(&options(&from.join("a"), &alias.join("a")));
    refused(&LocalOptions { deletes: true, ..options(&from, directory.path()) });
    assert_eq!(std::fs::read_dir(&from).unwrap().count(), 1);
    // The content of a directory goes into the one that it lies in.
    assert_eq!(counts(&options(&from, directory.path())).0, 2);
    assert!(directory.path().join("a").exists());
}
