//! Names, attributes, listings and links from the bank, at a second mount (rule B16).

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{XattrFlags, setxattr};
use verbena_mount::{MountOptions, purge, warm};

use crate::mounts::{Mounts, listed, walk};
use crate::setup::{Pair, eventually};

#[test]
fn a_second_mounts_first_walk_asks_below_for_almost_nothing() {
    const FOLDERS: u64 = 100;
    const FILES: u64 = 100;
    let tree = tempfile::tempdir().unwrap();
    fs::set_permissions(tree.path(), fs::Permissions::from_mode(0o755)).unwrap();
    for folder in 0..FOLDERS {
        // Some stand in others.
        let folder = tree.path().join(format!("d{}/e{folder}", folder / 10));
        fs::create_dir_all(&folder).unwrap();
        for file in 0..FILES {
            fs::write(folder.join(format!("f{file}")), vec![7; file as usize]).unwrap();
        }
        symlink("f7", folder.join("link")).unwrap();
    }
    let all = FOLDERS * (FILES + 1);
    for (near, encrypt) in [(0, false), (8 << 20, true)] {
        let Some(mounts) = Mounts::with_names("age=1h") else { return };
        let mounts = Mounts { near, encrypt, ..mounts };
        let Some(one) = mounts.mount(Some(tree.path())) else { return };
        listed(&one, FOLDERS + 11);
        let first = one.count("below_calls");
        assert!(first > all, "{first}");
        let two = mounts.mount(Some(tree.path())).unwrap();
        let before = two.count("below_calls");
        assert_eq!(walk(&two.fast), walk(tree.path()));
        let calls = two.count("below_calls") - before;
        println!("{calls} calls below instead of {first}\n{}", two.mounted.as_ref().unwrap().status());
        assert!(calls <= 20, "{calls} calls below");
        assert!(two.count("name_hits") >= all && two.count("name_misses") <= FOLDERS + 11);
        // A mount changes the directory at its top, where it measures times: each of the two walks may list that one below.
        assert!(two.count("listing_hits") >= 2 * (FOLDERS + 10) && two.count("listing_misses") <= 2);
        assert!(two.count("link_hits") >= FOLDERS && two.count("link_misses") == 0);
        assert!(two.count("xattr_hits") >= all);
        (0..50).for_each(|nth| assert!(!two.fast.join(format!("d0/e1/none{nth}")).exists()));
        assert_eq!((two.count("missing_hits"), two.count("missing_misses")), (50, 0));
        // What the names lead to is read as before.
        assert_eq!(fs::read(two.fast.join("d3/e31/f9")).unwrap(), [7; 9]);
        assert_eq!(fs::read(two.fast.join("d3/e31/link")).unwrap(), [7; 7]);
    }
}

#[test]
fn a_tree_that_was_warmed_is_walked_without_its_file_system() {
    let Some(mounts) = Mounts::with_names("age=1h") else { return };
    let Some(one) = mounts.mount(None) else { return };
    fs::create_dir(one.slow.join("d")).unwrap();
    // More names than one answer holds.
    for nth in 0..1500 {
        fs::write(one.slow.join(format!("d/a file with a name of some length, number {nth}")), b"x").unwrap();
    }
    // A file as young as the grain of its birth is not said.
    sleep(Duration::from_millis(30));
    assert_eq!(warm(&one.fast, 4).unwrap().files, 1500);
    eventually("the bank has both", || one.count("listing_bank_stored") >= 2);
    let two = mounts.mount(Some(&one.slow)).unwrap();
    let before = two.count("below_calls");
    assert_eq!(walk(&two.fast), walk(&one.slow));
    let calls = two.count("below_calls") - before;
    assert!(calls <= 20, "{calls} calls below");
    assert_eq!(warm(&two.fast, 4).unwrap().files, 1500);
}

/// The time is the first mount's, from before it asked; the kernel of the second is given the rest of it.
#[test]
fn what_the_bank_says_is_no_older_than_the_promise() {
    const AGE: Duration = Duration::from_secs(4);
    let Some(mounts) = Mounts::with_names("age=4s") else { return };
    let Some(one) = mounts.mount(None) else { return };
    for name in ["grows", "goes"] {
        fs::write(one.slow.join(name), b"x").unwrap();
    }
    // On a machine with much else to do a try may come too late to hit.
    for round in 0..10 {
        fs::write(one.slow.join("grows"), b"x").unwrap();
        fs::write(one.slow.join("goes"), b"x").unwrap();
        _ = fs::remove_file(one.slow.join("comes"));
        sleep(AGE);
        let two = mounts.mount(Some(&one.slow)).unwrap();
        listed(&one, 1);
        let taken = Instant::now();
        fs::write(one.slow.join("grows"), b"longer").unwrap();
        fs::remove_file(one.slow.join("goes")).unwrap();
        fs::write(one.slow.join("comes"), b"x").unwrap();
        sleep(AGE / 2);
        let seen = || {
            let length = fs::metadata(two.fast.join("grows")).unwrap().len();
            (length, two.fast.join("goes").exists(), two.fast.join("comes").exists())
        };
        let (first, hits) = (seen(), (two.count("name_hits"), two.count("missing_hits")));
        sleep((AGE + Duration::from_millis(50)).saturating_sub(taken.elapsed()));
        assert_eq!(seen(), (6, false, true), "after the promise's time");
        if first == (1, true, false) {
            assert_eq!(hits, (2, 1));
            return;
        }
        println!("round {round}: {first:?}, {hits:?}");
    }
    panic!("the bank never took part");
}

/// What is near gives way to what the bank has by then.
#[test]
fn a_newer_listing_is_found_behind_one_that_is_near() {
    const AGE: Duration = Duration::from_secs(4);
    let Some(mounts) = Mounts::with_names("age=4s") else { return };
    let mounts = Mounts { near: 8 << 20, ..mounts };
    let Some(one) = mounts.mount(None) else { return };
    fs::write(one.slow.join("f"), b"x").unwrap();
    let two = mounts.mount(Some(&one.slow)).unwrap();
    let look = || {
        let hits = two.count("name_hits");
        assert!(two.fast.join("f").exists());
        two.count("name_hits") > hits
    };
    // On a machine with much else to do a try may come too late to hit.
    for _ in 0..10 {
        listed(&one, 1);
        let first = look();
        sleep(AGE + Duration::from_millis(50));
        listed(&one, 1);
        if first && look() {
            assert!(two.count("near_blocks") > 0);
            return;
        }
        sleep(AGE);
    }
    panic!("the bank never took part");
}

#[test]
fn a_mount_sees_its_own_changes_at_once() {
    let Some(mounts) = Mounts::with_names("age=1h") else { return };
    let Some(one) = mounts.mount(None) else { return };
    for folder in ["d", "e"] {
        fs::create_dir(one.slow.join(folder)).unwrap();
        for name in ["a", "b", "c"] {
            fs::write(one.slow.join(folder).join(name), name).unwrap();
        }
    }
    listed(&one, 3);
    let at = |name: &str| Path::new("d").join(name);
    type Step<'a> = (&'a str, &'a dyn Fn(&Path));
    let steps: [Step<'_>; 13] = [
        ("create", &|top| fs::write(top.join(at("new")), b"new").unwrap()),
        ("mkdir", &|top| fs::create_dir(top.join(at("folder"))).unwrap()),
        ("symlink", &|top| symlink("a", top.join(at("link"))).unwrap()),
        ("link", &|top| fs::hard_link(top.join("e/a"), top.join(at("hard"))).unwrap()),
        ("unlink", &|top| fs::remove_file(top.join(at("b"))).unwrap()),
        ("rename", &|top| fs::rename(top.join(at("c")), top.join("e/moved")).unwrap()),
        ("replace", &|top| fs::rename(top.join("e/b"), top.join(at("a"))).unwrap()),
        ("folder", &|top| fs::rename(top.join("e"), top.join("f")).unwrap()),
        ("chmod", &|top| fs::set_permissions(top.join("d/a"), fs::Permissions::from_mode(0o600)).unwrap()),
        ("truncate", &|top| File::options().write(true).open(top.join("d/a")).unwrap().set_len(100).unwrap()),
        ("append", &|top| {
            File::options().append(true).open(top.join("d/a")).unwrap().write_all(b"more").unwrap();
        }),
        ("xattr", &|top| setxattr(top.join("d/a"), "user.x", b"x", XattrFlags::empty()).unwrap()),
        ("rmdir", &|top| {
            ["a", "moved"].iter().for_each(|name| fs::remove_file(top.join("f").join(name)).unwrap_or_default());
            ["c"].iter().for_each(|name| fs::remove_file(top.join("f").join(name)).unwrap_or_default());
            fs::remove_dir(top.join("f")).unwrap();
        }),
    ];
    let mut hits = 0;
    for (name, step) in steps {
        // A mount that never asked below for any of it.
        let two = mounts.mount(Some(&one.slow)).unwrap();
        let read = |name: &str| fs::read_to_string(two.fast.join(name)).ok();
        // Its memory has what the bank has. The kernel has nothing that the mount did not say.
        assert!(fs::symlink_metadata(two.fast.join("none")).is_err());
        let used = two.count("listing_bank_hits");
        step(&two.fast);
        assert_eq!(walk(&two.fast)[1], walk(&one.slow)[1], "{name}");
        let moved = ["d/a", "d/new", "e/moved", "f/moved"];
        assert!(moved.iter().all(|path| read(path) == fs::read_to_string(one.slow.join(path)).ok()), "{name}");
        let names = rustix::fs::getxattr(two.fast.join("d/a"), "user.x", &mut [0_u8; 9][..]);
        assert_eq!(names.is_ok(), rustix::fs::getxattr(one.slow.join("d/a"), "user.x", &mut [0_u8; 9][..]).is_ok());
        hits += two.count("name_hits") + two.count("listing_hits");
        assert!(used > 0, "{name}: the bank had a listing");
        drop(two);
        // What other mounts find is as new as what they say now.
        purge(&one.fast).unwrap();
        listed(&one, fs::read_dir(&one.slow).unwrap().count() as u64 + 1);
    }
    assert!(hits > 50, "{hits}");
}

#[test]
fn what_changed_below_is_found_where_its_name_leads_now() {
    let Some(mounts) = Mounts::with_names("age=1h") else { return };
    let Some(one) = mounts.mount(None) else { return };
    fs::create_dir_all(one.slow.join("d/inner")).unwrap();
    for name in ["replaced", "gone", "kept", "d/inner/f"] {
        fs::write(one.slow.join(name), b"old").unwrap();
    }
    listed(&one, 3);
    let two = mounts.mount(Some(&one.slow)).unwrap();
    let names = ["replaced", "gone", "kept", "d/inner/f"].map(|name| two.fast.join(name));
    assert!(names.iter().all(|name| name.metadata().unwrap().len() == 3));
    assert_eq!((two.count("name_hits"), two.count("name_misses")), (6, 0));
    fs::write(one.slow.join("new"), b"newer").unwrap();
    fs::rename(one.slow.join("new"), one.slow.join("replaced")).unwrap();
    fs::remove_file(one.slow.join("gone")).unwrap();
    fs::rename(one.slow.join("d"), one.slow.join("moved")).unwrap();
    assert_eq!(fs::read(&names[0]).unwrap(), b"newer", "another file has the name");
    assert_eq!(fs::read(&names[1]).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    assert_eq!(fs::read(&names[2]).unwrap(), b"old");
    assert_eq!(fs::read(&names[3]).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    assert_eq!(fs::read(two.fast.join("moved/inner/f")).unwrap(), b"old");
    // An open file lives on without its name, however it was found.
    let two = mounts.mount(Some(&one.slow)).unwrap();
    let file = File::open(two.fast.join("kept")).unwrap();
    fs::remove_file(two.fast.join("kept")).unwrap();
    assert_eq!((file.metadata().unwrap().nlink(), std::io::read_to_string(&file).unwrap().as_str()), (0, "old"));
}

#[test]
fn a_program_works_on_in_a_directory_that_moves() {
    let Some(mounts) = Mounts::with_names("age=1h") else { return };
    let Some(one) = mounts.mount(None) else { return };
    fs::create_dir(one.slow.join("d")).unwrap();
    fs::write(one.slow.join("d/f"), b"text").unwrap();
    listed(&one, 2);
    let two = mounts.mount(Some(&one.slow)).unwrap();
    let mut program = Command::new("sh");
    program.args(["-c", "read moved; cat f"]).current_dir(two.fast.join("d"));
    let mut program = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    fs::rename(one.slow.join("d"), one.slow.join("e")).unwrap();
    program.stdin.take().unwrap().write_all(b"moved\n").unwrap();
    let output = program.wait_with_output().unwrap();
    assert_eq!((String::from_utf8(output.stdout).unwrap().as_str(), output.status.success()), ("text", true));
    assert!(two.count("name_hits") > 0);
}

#[test]
fn an_open_promise_takes_names_under_the_version_of_their_directory_and_no_attributes() {
    let Some(mounts) = Mounts::with_names("open") else { return };
    let mounts = Mounts { near: 8 << 20, ..mounts };
    let Some(one) = mounts.mount(None) else { return };
    // A mount changes the directory at its top, where it measures times.
    let slow = one.slow.join("d");
    fs::create_dir(&slow).unwrap();
    for name in ["a", "b"] {
        fs::write(slow.join(name), b"x").unwrap();
    }
    sleep(Duration::from_millis(50));
    listed(&one, 1);
    let Mounts { mut bank, .. } = mounts;
    let list = bank.list.clone();
    let two = Pair::new(|options: &mut MountOptions| {
        options.bank = list.parse().unwrap();
        options.secret = Some(mounts.secret.path().to_owned());
        options.volume = Some("v".to_owned());
        options.near = mounts.near;
        options.below = one.slow.clone();
        options.deadline = Duration::from_secs(10);
    })
    .unwrap();
    let fast = two.fast.join("d");
    assert_eq!(walk(&fast), walk(&slow));
    let hits = two.count("listing_hits");
    assert!(hits >= 2 && two.count("name_hits") == 0 && two.count("attribute_hits") == 0);
    // A file's attributes do not move its directory.
    fs::write(slow.join("a"), b"longer").unwrap();
    assert_eq!(walk(&fast), walk(&slow));
    assert!(two.count("listing_hits") > hits);
    for round in 0..20 {
        fs::write(slow.join(format!("new{round}")), b"x").unwrap();
        assert_eq!(walk(&fast), walk(&slow), "a name that came");
        sleep(Duration::from_millis(round));
        assert_eq!(walk(&fast), walk(&slow));
        fs::remove_file(slow.join(format!("new{round}"))).unwrap();
        assert_eq!(walk(&fast), walk(&slow), "a name that went");
    }
    // What is near asks no bank.
    sleep(Duration::from_millis(50));
    walk(&fast);
    bank.end();
    let (hits, near) = (two.count("listing_hits"), two.count("near_hits"));
    walk(&fast);
    assert!(two.count("listing_hits") > hits && two.count("near_hits") > near);
}

/// Names come and go, at a mount and below; mounts list them meanwhile.
#[test]
fn no_listing_misses_a_name_that_was_there_before_it_or_has_one_that_was_gone() {
    const LISTINGS: u64 = 600;
    let Some(mounts) = Mounts::with_names("open") else { return };
    let Some(one) = mounts.mount(None) else { return };
    fs::create_dir(one.slow.join("d")).unwrap();
    let two = mounts.mount(Some(&one.slow)).unwrap();
    let [made, removing, removed, listed] = [(); 4].map(|()| AtomicU64::new(0));
    let name = |folder: &Path, number: u64| folder.join(format!("d/{number}"));
    let write = || {
        let mut number = 0;
        while listed.load(SeqCst) < LISTINGS {
            fs::write(name(if number % 3 == 0 { &one.fast } else { &one.slow }, number), b"").unwrap();
            made.fetch_add(1, SeqCst);
            if number >= 8 {
                removing.fetch_add(1, SeqCst);
                fs::remove_file(name(if number % 5 == 0 { &two.fast } else { &one.slow }, number - 8)).unwrap();
                removed.fetch_add(1, SeqCst);
            }
            // The directory settles now and then.
            sleep(Duration::from_millis(number % 7 * 10));
            number += 1;
        }
    };
    let read = |mount: &Pair| {
        while listed.fetch_add(1, SeqCst) < LISTINGS {
            let (there, gone) = (made.load(SeqCst), removed.load(SeqCst));
            let entries = fs::read_dir(mount.fast.join("d")).unwrap();
            let found: Vec<u64> =
                entries.map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap()).collect();
            let still = removing.load(SeqCst);
            assert!(found.iter().all(|number| *number >= gone), "{found:?}: {gone} were gone");
            assert!((still..there).all(|number| found.contains(&number)), "{found:?}: {still} to {there} were there");
            sleep(Duration::from_millis(2));
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(write);
        let readers = [&one, &two].map(|mount| scope.spawn(move || read(mount)));
        let ended = readers.map(|reader| reader.join());
        // The writer goes on for as long as they read.
        listed.store(LISTINGS, SeqCst);
        ended.map(|ended| ended.unwrap())
    });
    let hits = one.count("listing_hits") + two.count("listing_hits");
    assert!(hits > 20 && removed.load(SeqCst) > 5, "{hits} hits");
}

/// Names that come while a directory is listed may stand where the listing has been already.
#[test]
fn a_listing_of_a_directory_that_changed_meanwhile_is_not_kept() {
    const FILES: usize = 1500;
    let Some(mounts) = Mounts::with_names("age=1h") else { return };
    let Some(one) = mounts.mount(None) else { return };
    let name = |nth: usize| format!("a file with a name of some length, number {nth}");
    for folder in ["d", "e"] {
        fs::create_dir(one.slow.join(folder)).unwrap();
        (0..FILES).for_each(|nth| fs::write(one.slow.join(folder).join(name(nth)), b"x").unwrap());
    }
    sleep(Duration::from_millis(50));
    let list = |folder: &str, meanwhile: &dyn Fn()| {
        let mut names = fs::read_dir(one.fast.join(folder)).unwrap();
        assert!(names.next().unwrap().is_ok());
        meanwhile();
        assert!(names.count() >= FILES - 1);
    };
    list("d", &|| (FILES..FILES + 200).for_each(|nth| fs::write(one.slow.join("d").join(name(nth)), b"x").unwrap()));
    list("e", &|| ());
    eventually("the bank has the other one", || one.count("listing_bank_stored") >= 1);
    let two = mounts.mount(Some(&one.slow)).unwrap();
    assert!((0..FILES + 200).all(|nth| two.fast.join("d").join(name(nth)).exists()));
    assert_eq!(two.count("missing_hits"), 0);
    assert_eq!((two.fast.join("e").join(name(FILES)).exists(), two.count("missing_hits")), (false, 1));
}

#[test]
fn a_purge_takes_names_too() {
    let Some(mounts) = Mounts::with_names("age=1h") else { return };
    let Some(one) = mounts.mount(None) else { return };
    fs::create_dir(one.slow.join("d")).unwrap();
    fs::write(one.slow.join("d/a"), b"x").unwrap();
    listed(&one, 2);
    let [two, three] = [0, 1].map(|_| mounts.mount(Some(&one.slow)).unwrap());
    let length = |mount: &Pair| fs::metadata(mount.fast.join("d/a")).unwrap().len();
    assert_eq!((length(&two), two.count("name_hits")), (1, 2));
    fs::write(one.slow.join("d/a"), b"longer").unwrap();
    fs::write(one.slow.join("d/b"), b"x").unwrap();
    assert_eq!((length(&two), two.fast.join("d/b").exists()), (1, false), "no promise sees this change");
    purge(&two.fast).unwrap();
    assert_eq!((length(&two), two.fast.join("d/b").exists()), (6, true));
    // The bank has none of it any more.
    assert_eq!((length(&three), three.fast.join("d/b").exists()), (6, true));
}

#[test]
fn a_directory_that_not_all_may_list_is_opened_below_first() {
    let Some(mounts) = Mounts::with_names("age=1h") else { return };
    let Some(one) = mounts.mount(None) else { return };
    for (folder, mode) in [("all", 0o755), ("own", 0o700), ("odd", 0o744)] {
        let folder = one.slow.join(folder);
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("f"), b"x").unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
    }
    listed(&one, 4);
    let two = mounts.mount(Some(&one.slow)).unwrap();
    let calls = |folder: &str| {
        let before = (two.count("below_calls"), two.count("name_hits"));
        assert_eq!(fs::metadata(two.fast.join(folder).join("f")).unwrap().len(), 1);
        (two.count("below_calls") - before.0, two.count("name_hits") - before.1)
    };
    assert_eq!(calls("all"), (0, 2));
    // Its own name is looked up below, and it is opened.
    assert_eq!(calls("own"), (2, 2));
    // Who lists it may not search it: each name is asked for.
    assert_eq!(calls("odd"), (2, 1));
}
