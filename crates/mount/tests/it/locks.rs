//! Locks taken at the mount, and those of programs that use the directory below.

use std::fs::{self, File};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};

use crate::mounts::{Mounts, listed};
use crate::setup::{Pair, eventually};

fn lock(kind: i32, start: i64, length: i64) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: start,
        l_len: length,
        l_pid: 0,
    }
}

fn set(file: &File, kind: i32, start: i64, length: i64) -> Result<(), Errno> {
    fcntl(file, FcntlArg::F_OFD_SETLK(&lock(kind, start, length))).map(|_| ())
}

fn open(path: &std::path::Path) -> File {
    File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

#[test]
fn locks_hold_between_the_mount_and_below_and_between_two_owners_of_the_mount() {
    let Some(pair) = Pair::new(|_| {}) else { return };
    let (ours, other, below) = (open(&pair.fast.join("f")), open(&pair.fast.join("f")), open(&pair.slow.join("f")));
    set(&ours, libc::F_WRLCK, 10, 10).unwrap();
    for file in [&other, &below] {
        assert_eq!(set(file, libc::F_RDLCK, 15, 1), Err(Errno::EAGAIN));
        set(file, libc::F_RDLCK, 30, 10).unwrap();
    }
    assert_eq!(set(&ours, libc::F_WRLCK, 35, 1), Err(Errno::EAGAIN), "both others read there");
    // A part is given back.
    set(&ours, libc::F_UNLCK, 15, 5).unwrap();
    set(&below, libc::F_WRLCK, 15, 5).unwrap();
    assert_eq!(set(&below, libc::F_WRLCK, 14, 1), Err(Errno::EAGAIN));
    // And the rest when its description is closed.
    drop(ours);
    eventually("a closed file has no locks", || set(&below, libc::F_WRLCK, 10, 5).is_ok());
    assert_eq!(set(&other, libc::F_WRLCK, 0, 0), Err(Errno::EAGAIN));
    drop(below);
    set(&other, libc::F_WRLCK, 0, 0).unwrap();
}

#[test]
fn a_lock_that_waits_comes_when_the_holder_below_gives_it_back_and_others_are_served_meanwhile() {
    let Some(pair) = Pair::new(|_| {}) else { return };
    let below = open(&pair.slow.join("f"));
    set(&below, libc::F_WRLCK, 0, 0).unwrap();
    let has_it = Arc::new(AtomicBool::new(false));
    // More than the mount has threads.
    let waiters: Vec<_> = (0..8)
        .map(|_| {
            let (file, has_it) = (open(&pair.fast.join("f")), has_it.clone());
            std::thread::spawn(move || {
                fcntl(&file, FcntlArg::F_OFD_SETLKW(&lock(libc::F_WRLCK, 0, 0))).unwrap();
                has_it.store(true, SeqCst);
            })
        })
        .collect();
    std::thread::sleep(Duration::from_millis(100));
    std::fs::write(pair.fast.join("g"), b"served").unwrap();
    assert!(!has_it.load(SeqCst));
    set(&below, libc::F_UNLCK, 0, 0).unwrap();
    waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    assert!(has_it.load(SeqCst));
}

/// What stands beside a file that is locked says how it is to be read: SQLite looks for a journal under a lock.
#[test]
fn a_lock_shows_the_journal_that_came_before_it() {
    let Some(mounts) = Mounts::with_names("age=1h") else { return };
    let Some(one) = mounts.mount(None) else { return };
    fs::create_dir(one.slow.join("d")).unwrap();
    fs::write(one.slow.join("d/db"), b"x").unwrap();
    listed(&one, 2);
    let two = mounts.mount(Some(&one.slow)).unwrap();
    let journal = two.fast.join("d/db-journal");
    assert!(!journal.exists() && two.count("missing_hits") == 1);
    fs::write(one.slow.join("d/db-journal"), b"x").unwrap();
    let file = File::options().read(true).write(true).open(two.fast.join("d/db")).unwrap();
    assert!(!journal.exists(), "no promise sees it");
    set(&file, libc::F_RDLCK, 0, 1).unwrap();
    assert!(journal.exists());
}
