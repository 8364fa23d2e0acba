//! Numbers of files that are given again, to other files, while a mount knows the old ones by names alone.

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::{NamedTempFile, TempDir};

use crate::mounts::{Mounts, listed};
use crate::setup::Pair;

/// A file system on which no other program takes or gives back numbers.
struct OwnFileSystem {
    folder: TempDir,
    _image: NamedTempFile,
}

impl OwnFileSystem {
    /// Nothing if this machine cannot mount one; says so.
    fn new() -> Option<Self> {
        let (folder, image) = (tempfile::tempdir().unwrap(), NamedTempFile::new().unwrap());
        image.as_file().set_len(64 << 20).unwrap();
        let run = |program: &str, arguments: &[&str]| {
            Command::new(program).args(arguments).status().is_ok_and(|status| status.success())
        };
        let [at, path] = [folder.path(), image.path()].map(|path| path.to_str().unwrap());
        if !run("mkfs.ext4", &["-q", "-I", "256", path]) || !run("mount", &["-o", "loop", path, at]) {
            eprintln!("skipped: no mkfs.ext4, or no loop devices");
            return None;
        }
        Some(OwnFileSystem { folder, _image: image })
    }
}

impl Drop for OwnFileSystem {
    fn drop(&mut self) {
        _ = nix::mount::umount2(self.folder.path(), nix::mount::MntFlags::MNT_DETACH);
    }
}

/// A file system that gives a number again, a tree on it, and a mount that knows the tree from names alone. Nothing holds its files.
struct Known {
    _mounts: Mounts,
    mount: Pair,
    own: OwnFileSystem,
}

impl Known {
    fn new(name: &dyn Fn(u32) -> String, make: impl FnOnce(&Path)) -> Option<Self> {
        let mounts = Mounts::new("age=1h")?;
        let own = OwnFileSystem::new()?;
        let tree = own.folder.path();
        fs::set_permissions(tree, fs::Permissions::from_mode(0o755)).unwrap();
        make(tree);
        listed(&mounts.mount(Some(tree))?, fs::read_dir(tree).unwrap().count() as u64 + 1);
        let mount = mounts.mount(Some(tree))?;
        assert!((0..FILES).all(|nth| mount.fast.join(name(nth)).symlink_metadata().is_ok()));
        assert!(mount.count("name_hits") > u64::from(FILES) && mount.count("name_misses") == 0);
        Some(Known { _mounts: mounts, mount, own })
    }

    fn slow(&self, name: &str) -> PathBuf {
        self.own.folder.path().join(name)
    }

    fn fast(&self, name: &str) -> PathBuf {
        self.mount.fast.join(name)
    }

    /// Files go one after another, and others are made, until one of these has the number of one that went. Says which two.
    fn replace(&self, names: impl Fn(u32) -> String, make: impl Fn(&str)) -> (String, String) {
        let number = |name: &str| self.slow(name).symlink_metadata().unwrap().ino();
        for gone in (0..FILES).map(names) {
            let (old, path) = (number(&gone), self.slow(&gone));
            if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
            let made = (0..20).map(|nth| format!("{gone}.{nth}")).inspect(|name| make(name));
            if let Some(made) = { made }.find(|name| number(name) == old) {
                return (gone, made);
            }
        }
        panic!("this file system gives no number again");
    }
}

/// Files of which one is replaced.
const FILES: u32 = 30;

#[test]
fn a_write_by_the_name_of_a_file_that_is_gone_reaches_no_other_file() {
    let name = |nth| format!("d/f{nth}");
    let make = |slow: &Path| {
        fs::create_dir(slow.join("d")).unwrap();
        (0..FILES).for_each(|nth| fs::write(slow.join(name(nth)), b"old").unwrap());
    };
    let Some(known) = Known::new(&name, make) else { return };
    let (gone, other) = known.replace(name, |name| fs::write(known.fast(name), b"another file").unwrap());
    fs::write(known.fast(&gone), b"new").unwrap();
    for path in [Known::slow, Known::fast] {
        assert_eq!(fs::read(path(&known, &other)).unwrap(), b"another file");
        assert_eq!(fs::read(path(&known, &gone)).unwrap(), b"new");
    }
}

#[test]
fn a_file_that_is_looked_up_below_is_not_the_one_that_had_its_number() {
    let name = |nth: u32| if nth.is_multiple_of(2) { format!("d/f{nth}") } else { format!("d/g{nth}") };
    for is_folder in [false, true] {
        let name = |nth| name(2 * nth + u32::from(is_folder));
        let create = |path: PathBuf, text: &str| {
            if is_folder {
                fs::create_dir(&path).unwrap();
                fs::write(path.join("kept"), text).unwrap();
            } else {
                fs::write(path, text).unwrap();
            }
        };
        let make = |slow: &Path| {
            fs::create_dir(slow.join("d")).unwrap();
            (0..FILES).for_each(|nth| create(slow.join(name(nth)), "old"));
        };
        let Some(known) = Known::new(&name, make) else { return };
        // The kernel knows them for as long as they are used.
        let used = |name: String| {
            let file = fs::File::options().read(true).custom_flags(libc::O_PATH).open(known.fast(&name)).unwrap();
            (name, file)
        };
        let used: Vec<(String, fs::File)> = (0..FILES).map(name).map(used).collect();
        let (gone, other) = known.replace(name, |name| create(known.slow(name), "another file"));
        // All names are looked up below from now on.
        verbena_mount::purge(&known.mount.fast).unwrap();
        let inner = if is_folder { format!("{other}/kept") } else { other };
        assert_eq!(fs::read(known.fast(&inner)).unwrap(), b"another file");
        let (_, gone) = used.iter().find(|(name, _)| *name == gone).unwrap();
        let path = PathBuf::from(format!("/proc/self/fd/{}", gone.as_raw_fd()));
        assert!(fs::File::options().write(true).truncate(true).open(&path).is_err());
        assert!(fs::remove_file(path.join("kept")).is_err());
        assert_eq!(fs::read(known.slow(&inner)).unwrap(), b"another file");
    }
}

#[test]
fn a_new_directory_does_not_show_the_names_of_the_one_that_had_its_number() {
    let name = |nth| format!("d{nth}");
    let make = |slow: &Path| {
        for nth in 0..FILES {
            fs::create_dir(slow.join(name(nth))).unwrap();
            fs::write(slow.join(name(nth)).join("sub"), b"old").unwrap();
        }
    };
    let Some(known) = Known::new(&|nth| format!("d{nth}/sub"), make) else { return };
    let (_, made) = known.replace(name, |name| fs::create_dir(known.fast(name)).unwrap());
    let names = || fs::read_dir(known.fast(&made)).unwrap().count();
    assert!(names() == 0 && !known.fast(&made).join("sub").exists());
    fs::create_dir(known.fast(&made).join("sub")).unwrap();
    assert_eq!(names(), 1);
}
