//! Numbers of files that are given again, to other files, while a mount knows the old ones by names alone.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::mounts::{Mounts, listed};
use crate::setup::Pair;

/// A file system that gives a number again, a tree on it, and a mount that knows the tree from names alone. Nothing holds its files.
struct Known {
    _mounts: Mounts,
    tree: TempDir,
    mount: Pair,
}

impl Known {
    fn new(promise: &str, name: &dyn Fn(u32) -> String, make: impl FnOnce(&Path)) -> Option<Self> {
        let mounts = Mounts::new(promise)?;
        let tree = tempfile::tempdir().unwrap();
        fs::set_permissions(tree.path(), fs::Permissions::from_mode(0o755)).unwrap();
        make(tree.path());
        listed(&mounts.mount(Some(tree.path()))?, fs::read_dir(tree.path()).unwrap().count() as u64 + 1);
        let mount = mounts.mount(Some(tree.path()))?;
        assert!((0..FILES).all(|nth| mount.fast.join(name(nth)).symlink_metadata().is_ok()));
        assert!(mount.count("name_hits") > u64::from(FILES) && mount.count("name_misses") == 0);
        Some(Known { _mounts: mounts, tree, mount })
    }

    fn slow(&self, name: &str) -> PathBuf {
        self.tree.path().join(name)
    }

    fn fast(&self, name: &str) -> PathBuf {
        self.mount.fast.join(name)
    }

    /// Files go one after another, and others are made, until one of these has the number of one that went. Says which two. Other programs take numbers too.
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
    for promise in ["age=1h", "sealed"] {
        let name = |nth| format!("d/f{nth}");
        let make = |slow: &Path| {
            fs::create_dir(slow.join("d")).unwrap();
            (0..FILES).for_each(|nth| fs::write(slow.join(name(nth)), b"old").unwrap());
        };
        let Some(known) = Known::new(promise, &name, make) else { return };
        let (gone, other) = known.replace(name, |name| fs::write(known.fast(name), b"another file").unwrap());
        fs::write(known.fast(&gone), b"new").unwrap();
        for path in [Known::slow, Known::fast] {
            assert_eq!(fs::read(path(&known, &other)).unwrap(), b"another file", "{promise}");
            assert_eq!(fs::read(path(&known, &gone)).unwrap(), b"new", "{promise}");
        }
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
        let Some(known) = Known::new("sealed", &name, make) else { return };
        let (gone, other) = known.replace(name, |name| create(known.slow(name), "another file"));
        let inner = if is_folder { format!("{other}/kept") } else { other };
        // New names are looked up below.
        assert_eq!(fs::read(known.fast(&inner)).unwrap(), b"another file");
        let opened = fs::File::options().write(true).truncate(true).open(known.fast(&gone));
        assert!(opened.is_err());
        _ = fs::remove_dir_all(known.fast(&gone));
        assert_eq!(fs::read(known.slow(&inner)).unwrap(), b"another file");
    }
}

#[test]
fn a_new_directory_does_not_show_the_names_of_the_one_that_had_its_number() {
    for (promise, by_other) in [("age=1h", false), ("sealed", false), ("sealed", true)] {
        let name = |nth| format!("d{nth}");
        let make = |slow: &Path| {
            for nth in 0..FILES {
                fs::create_dir(slow.join(name(nth))).unwrap();
                fs::write(slow.join(name(nth)).join("sub"), b"old").unwrap();
            }
        };
        let Some(known) = Known::new(promise, &|nth| format!("d{nth}/sub"), make) else { return };
        let (_, made) = known.replace(name, |name| {
            fs::create_dir(if by_other { known.slow(name) } else { known.fast(name) }).unwrap();
        });
        let names = || fs::read_dir(known.fast(&made)).unwrap().count();
        assert!(names() == 0 && !known.fast(&made).join("sub").exists(), "{promise}");
        fs::create_dir(known.fast(&made).join("sub")).unwrap();
        assert_eq!(names(), 1);
    }
}
