//! Where a file is its path no name comes from the bank: over sshfs, whose server is of this machine.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::mounts::{Mounts, walk};
use crate::over::Sshfs;
use crate::setup::{Pair, eventually};

/// Directories of a server and its client.
struct Folders {
    _folder: tempfile::TempDir,
    server: PathBuf,
    client: PathBuf,
}

impl Folders {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let (server, client) = (folder.path().join("server"), folder.path().join("client"));
        fs::create_dir(&client).unwrap();
        fs::create_dir_all(&server).unwrap();
        fs::write(server.join("here"), b"").unwrap();
        Folders { _folder: folder, server, client }
    }

    /// After its mounts are gone.
    fn end(&self) {
        nix::mount::umount2(&self.client, nix::mount::MntFlags::MNT_DETACH).unwrap();
    }
}

/// Whether its status counts no names: none can come from the bank.
fn has_no_names(mount: &Pair) -> bool {
    !mount.mounted.as_ref().unwrap().status().contains("name_hits")
}

#[test]
fn no_name_of_sshfs_comes_from_the_bank() {
    for promise in ["open", "sealed", "age=1h"] {
        let Some(mounts) = Mounts::new(promise) else { return };
        let folders = Folders::new();
        fs::create_dir(folders.server.join("d")).unwrap();
        (0..20).for_each(|file| fs::write(folders.server.join(format!("d/f{file}")), b"x").unwrap());
        let Some(_sshfs) = Sshfs::new(&folders.server, &folders.client) else { return };
        let below = verbena_mount::check(&folders.client).unwrap();
        assert!(!below.has_births && below.weaknesses().concat().contains("no name comes from the bank"));
        if let Some(one) = mounts.mount(Some(&folders.client)) {
            assert_eq!(walk(&one.fast), walk(&folders.client), "{promise}");
            // What another client replaced is found where its name leads.
            fs::remove_file(folders.server.join("d/f7")).unwrap();
            fs::create_dir(folders.server.join("d/f7")).unwrap();
            fs::write(folders.server.join("d/f7/inner"), b"y").unwrap();
            let two = mounts.mount(Some(&folders.client)).unwrap();
            assert_eq!(walk(&two.fast), walk(&folders.client), "{promise}");
            assert!(has_no_names(&one) && has_no_names(&two), "{promise}");
        }
        folders.end();
    }
}

/// A directory that stands where another one stood is not that one, whichever road the first was moved by.
#[test]
fn writes_and_deletes_reach_what_has_the_name_now() {
    const AGE: Duration = Duration::from_secs(6);
    for is_moved_here in [false, true] {
        let Some(mounts) = Mounts::new("age=6s") else { return };
        let folders = Folders::new();
        fs::create_dir(folders.server.join("a")).unwrap();
        fs::write(folders.server.join("a/x"), b"kept").unwrap();
        fs::write(folders.server.join("f"), b"kept").unwrap();
        let Some(_sshfs) = Sshfs::new(&folders.server, &folders.client) else { return };
        if let Some(one) = mounts.mount(Some(&folders.client)) {
            let seen = || {
                walk(&one.fast);
                // If it put anything into the bank, it is there.
                sleep(Duration::from_millis(200));
            };
            seen();
            let two = mounts.mount(Some(&folders.client)).unwrap();
            assert_eq!(fs::read(two.fast.join("a/x")).unwrap(), b"kept");
            fs::File::options().append(true).open(two.fast.join("f")).unwrap();
            let moved = if is_moved_here { &two.fast } else { &folders.client };
            fs::rename(moved.join("a"), moved.join("b")).unwrap();
            fs::rename(moved.join("f"), moved.join("g")).unwrap();
            fs::create_dir(folders.server.join("a")).unwrap();
            fs::write(folders.server.join("a/y"), b"new").unwrap();
            fs::write(folders.server.join("f"), b"new!").unwrap();
            // What the other mount lists from now on is newer than all that this one knows.
            sleep(AGE + Duration::from_millis(50));
            seen();
            fs::remove_dir_all(two.fast.join("a")).unwrap();
            fs::File::options().append(true).open(two.fast.join("f")).unwrap().write_all(b" more").unwrap();
            assert_eq!(fs::read(folders.server.join("b/x")).unwrap(), b"kept");
            assert_eq!(fs::read(folders.server.join("g")).unwrap(), b"kept");
            assert_eq!(fs::read(folders.server.join("f")).unwrap(), b"new! more");
            assert!(!folders.server.join("a").exists());
        }
        folders.end();
    }
}

/// The kernel is told what it may believe when the last file of an answer was looked up, which takes long.
#[test]
fn the_first_file_of_a_slow_listing_is_believed_no_longer_than_the_promise() {
    const AGE: Duration = Duration::from_secs(6);
    const FILES: u64 = 12;
    let Some(mounts) = Mounts::new("age=6s") else { return };
    let folders = Folders::new();
    fs::create_dir(folders.server.join("d")).unwrap();
    (0..FILES).for_each(|file| fs::write(folders.server.join(format!("d/f{file}")), b"x").unwrap());
    let Some((_sshfs, requests, pause_ms)) = Sshfs::slowed(&folders.server, &folders.client) else { return };
    if let Some(pair) = mounts.mount(Some(&folders.client)) {
        let length = |file: u64| fs::metadata(pair.fast.join(format!("d/f{file}"))).unwrap().len();
        assert!(pair.fast.join("d").exists());
        let before = requests.load(Relaxed);
        pause_ms.store(200, Relaxed);
        let changed = std::thread::scope(|scope| {
            let listing = scope.spawn(|| fs::read_dir(pair.fast.join("d")).unwrap().count());
            // Some of the files were looked up, or the kernel asked for the names alone.
            eventually("the listing is under way", || requests.load(Relaxed) >= before + 18 || listing.is_finished());
            (0..FILES).for_each(|file| fs::write(folders.server.join(format!("d/f{file}")), b"longer").unwrap());
            let changed = Instant::now();
            assert_eq!(listing.join().unwrap() as u64, FILES);
            changed
        });
        pause_ms.store(0, Relaxed);
        sleep((AGE + Duration::from_millis(50)).saturating_sub(changed.elapsed()));
        assert_eq!((0..FILES).map(length).collect::<Vec<_>>(), [6; FILES as usize]);
    }
    folders.end();
}

/// What was missing, and is purged, is looked at anew.
#[test]
fn a_purge_takes_names_that_the_kernel_believes() {
    let Some(mounts) = Mounts::new("age=1h") else { return };
    let folders = Folders::new();
    fs::create_dir(folders.server.join("d")).unwrap();
    fs::write(folders.server.join("d/f"), b"x").unwrap();
    let Some(_sshfs) = Sshfs::new(&folders.server, &folders.client) else { return };
    if let Some(pair) = mounts.mount(Some(&folders.client)) {
        assert!(pair.fast.join("d/f").exists() && !pair.fast.join("d/new").exists());
        fs::write(folders.server.join("d/new"), b"x").unwrap();
        assert!(!pair.fast.join("d/new").exists(), "no promise sees it");
        verbena_mount::purge(&pair.fast).unwrap();
        assert!(pair.fast.join("d/new").exists());
    }
    folders.end();
}
