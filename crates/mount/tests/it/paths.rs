//! Names from the bank where a file is its path: over sshfs, whose server is of this machine.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::mounts::{Mounts, listed, run, walk};
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

/// Without a name of its own a volume is its path, and two servers may be mounted there.
#[test]
fn what_is_mounted_at_the_same_path_later_has_its_own_names() {
    let Some(mounts) = Mounts::new("age=1h") else { return };
    let mounts = Mounts { volume: None, ..mounts };
    let folders = Folders::new();
    fs::write(folders.server.join("of_one"), b"x").unwrap();
    let other = folders.server.with_file_name("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("here"), b"").unwrap();
    fs::write(other.join("of_two"), b"x").unwrap();
    for (server, name) in [(&folders.server, "of_one"), (&other, "of_two")] {
        let Some(_sshfs) = Sshfs::new(server, &folders.client) else { return };
        {
            let Some(one) = mounts.mount(Some(&folders.client)) else { return folders.end() };
            let mut names = run(&one.fast, "ls", &["-1"]).lines().map(str::to_owned).collect::<Vec<_>>();
            names.sort();
            assert_eq!(names, ["here", name]);
            eventually("the bank has the listing", || one.count("listing_bank_stored") >= 1);
            let two = mounts.mount(Some(&folders.client)).unwrap();
            assert_eq!(walk(&two.fast), walk(&folders.client));
            assert!(two.count("listing_hits") > 0, "two mounts of one machine share its names");
        }
        folders.end();
    }
}

#[test]
fn a_file_that_another_client_replaced_by_a_directory_is_shown_as_one() {
    let Some(mounts) = Mounts::new("sealed") else { return };
    let folders = Folders::new();
    fs::create_dir(folders.server.join("d")).unwrap();
    (0..20).for_each(|file| fs::write(folders.server.join(format!("d/f{file}")), b"x").unwrap());
    let Some(_sshfs) = Sshfs::new(&folders.server, &folders.client) else { return };
    if let Some(one) = mounts.mount(Some(&folders.client)) {
        listed(&one, 2);
        fs::remove_file(folders.server.join("d/f7")).unwrap();
        fs::create_dir(folders.server.join("d/f7")).unwrap();
        fs::write(folders.server.join("d/f7/inner"), b"y").unwrap();
        let two = mounts.mount(Some(&folders.client)).unwrap();
        // The time of the directory itself is believed.
        assert_eq!(walk(&two.fast)[0], walk(&folders.client)[0]);
        assert!(two.fast.join("d/f7").is_dir() && two.count("name_hits") > 0);
    }
    folders.end();
}

#[test]
fn what_a_mount_renamed_is_not_found_by_its_old_name() {
    let Some(mounts) = Mounts::new("age=1h") else { return };
    let folders = Folders::new();
    fs::create_dir(folders.server.join("a")).unwrap();
    fs::write(folders.server.join("a/x"), b"kept").unwrap();
    fs::write(folders.server.join("f"), b"kept").unwrap();
    let Some(_sshfs) = Sshfs::new(&folders.server, &folders.client) else { return };
    if let Some(one) = mounts.mount(Some(&folders.client)) {
        listed(&one, 2);
        let two = mounts.mount(Some(&folders.client)).unwrap();
        assert_eq!(fs::read(two.fast.join("a/x")).unwrap(), b"kept");
        fs::set_permissions(two.fast.join("f"), fs::Permissions::from_mode(0o600)).unwrap();
        fs::rename(two.fast.join("a"), two.fast.join("b")).unwrap();
        fs::rename(two.fast.join("f"), two.fast.join("g")).unwrap();
        fs::create_dir(folders.server.join("a")).unwrap();
        fs::write(folders.server.join("a/y"), b"new").unwrap();
        fs::write(folders.server.join("f"), b"new").unwrap();
        // The bank has names that are newer for sure, whatever the two clocks show.
        sleep(Duration::from_secs(6));
        verbena_mount::purge(&one.fast).unwrap();
        listed(&one, 3);
        let hits = two.count("name_hits");
        assert_eq!(walk(&two.fast), walk(&folders.client));
        assert!(two.count("name_hits") > hits);
        fs::write(two.fast.join("f"), b"changed").unwrap();
        fs::remove_dir_all(two.fast.join("a")).unwrap();
        assert_eq!(fs::read(folders.server.join("b/x")).unwrap(), b"kept");
        assert_eq!(fs::read(folders.server.join("g")).unwrap(), b"kept");
        assert_eq!(fs::read(folders.server.join("f")).unwrap(), b"changed");
    }
    folders.end();
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

/// What was looked at through one mount, and is purged, is looked at anew.
#[test]
fn a_purge_takes_names_of_directories_that_were_never_looked_up_below() {
    let Some(mounts) = Mounts::new("age=1h") else { return };
    let folders = Folders::new();
    fs::create_dir(folders.server.join("d")).unwrap();
    fs::write(folders.server.join("d/f"), b"x").unwrap();
    let Some(_sshfs) = Sshfs::new(&folders.server, &folders.client) else { return };
    if let Some(one) = mounts.mount(Some(&folders.client)) {
        listed(&one, 2);
        let two: Pair = mounts.mount(Some(&folders.client)).unwrap();
        assert!(two.fast.join("d/f").exists() && !two.fast.join("d/new").exists());
        fs::write(folders.server.join("d/new"), b"x").unwrap();
        assert!(!two.fast.join("d/new").exists(), "no promise sees it");
        verbena_mount::purge(&two.fast).unwrap();
        assert!(two.fast.join("d/new").exists());
    }
    folders.end();
}
