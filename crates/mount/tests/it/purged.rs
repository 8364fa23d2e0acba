//! What a purge takes from a mount, and from the bank.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use verbena_bank::{Bank, BlockSize, Blocks, Daemons, FileKey, Memcached, Options, Placement, Rules, Secret, Stamp};
use verbena_mount::{MountOptions, Promise, Purged, explain, purge};

use crate::banked::{self, NO_CHANGE_TIME, byte, cached, restore};
use crate::setup::{Pair, eventually};

/// Writes a file of one stamp, whatever its bytes.
fn write(path: &Path, content: u8, bytes: usize) {
    fs::write(path, vec![content; bytes]).unwrap();
    restore(path, 1_000_000);
}

fn drop_pages(file: &fs::File) {
    rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}

/// Two mounts of one directory that share blocks, where only mtime and size show a change.
fn two(bank: &banked::Bank, deadline: Duration) -> Option<(Pair, Pair, tempfile::NamedTempFile)> {
    let secret = tempfile::NamedTempFile::new().unwrap();
    fs::write(secret.path(), "6".repeat(64)).unwrap();
    let set = |options: &mut MountOptions| {
        options.bank = bank.list.parse().unwrap();
        options.secret = Some(secret.path().to_owned());
        options.volume = Some("v".to_owned());
        options.clocks = Some(NO_CHANGE_TIME);
        options.deadline = deadline;
    };
    let one = Pair::new(set)?;
    let two = Pair::new(|options| {
        set(options);
        options.below = one.slow.clone();
    })?;
    Some((one, two, secret))
}

#[test]
fn a_purged_file_is_read_anew_here_and_at_the_mounts_that_share_its_blocks() {
    let Some(bank) = banked::Bank::new(2) else { return };
    let Some((one, two, _secret)) = two(&bank, Duration::from_secs(10)) else { return };
    fs::create_dir(one.slow.join("d")).unwrap();
    for name in ["d/f", "g"] {
        write(&one.slow.join(name), 1, 200_000);
        assert_eq!(fs::read(one.fast.join(name)).unwrap(), [1; 200_000]);
    }
    eventually("the bank has both", || one.count("bank_stored") == 8);
    for name in ["d/f", "g"] {
        write(&one.slow.join(name), 2, 200_000);
    }
    let open = cached(&one, "d/f");
    assert_eq!((byte(&open), byte(&cached(&two, "d/f"))), (1, 1), "no promise sees this change");
    let done = purge(&one.fast.join("d")).unwrap();
    assert_eq!(done, Purged { files: 1, blocks: 4, ..Purged::default() });
    assert!(explain(&one.fast.join("d/f")).unwrap().starts_with("purged"));
    assert_eq!(byte(&open), 2, "a file that was open is read below");
    assert_eq!(byte(&cached(&one, "d/f")), 2);
    // The kernel has pages of the other mount.
    let other = cached(&two, "d/f");
    assert_eq!(byte(&other), 1);
    drop_pages(&other);
    assert_eq!((byte(&other), explain(&two.fast.join("d/f")).unwrap().contains("not in the bank")), (2, true));
    assert_eq!((byte(&cached(&one, "g")), one.count("purged_files")), (1, 1), "what is beside the tree stays");
    // It is in the bank again, and hits.
    purge(&one.fast).unwrap();
    // A purge waits for the fills before it.
    let stored = one.count("bank_stored");
    assert_eq!(fs::read(one.fast.join("d/f")).unwrap(), [2; 200_000]);
    eventually("the bank has it again", || one.count("bank_stored") == stored + 4);
    let file = cached(&one, "d/f");
    drop_pages(&file);
    let (hits, filled) = (one.count("bank_hits"), one.count("filled_bytes"));
    assert_eq!((byte(&file), one.count("filled_bytes")), (2, filled));
    assert!(one.count("bank_hits") > hits);
}

/// Rule B2: nothing is deleted for correctness. A daemon that does not answer, or a fill that is late, has the old blocks afterwards.
#[test]
fn a_purge_counts_although_the_old_block_comes_back() {
    let Some(bank) = banked::Bank::new(1) else { return };
    // The purge waits so long for the daemon that is stopped.
    let Some((one, two, _secret)) = two(&bank, Duration::from_secs(2)) else { return };
    write(&one.slow.join("f"), 1, 100);
    assert_eq!(byte(&cached(&one, "f")), 1);
    eventually("the bank has it", || one.count("bank_stored") == 1);
    write(&one.slow.join("f"), 2, 100);
    assert_eq!(byte(&cached(&one, "f")), 1);
    let signal = |signal| {
        bank.pids().iter().for_each(|pid| kill_process(Pid::from_raw(*pid as i32).unwrap(), signal).unwrap());
    };
    signal(Signal::STOP);
    // Each thread of it stops when it gets to it.
    eventually("the daemon is stopped", || {
        let is_stopped = |task: &Path| fs::read_to_string(task.join("stat")).unwrap().contains(") T ");
        let tasks = bank.pids().into_iter().flat_map(|pid| fs::read_dir(format!("/proc/{pid}/task")).unwrap());
        tasks.map(|task| task.unwrap().path()).all(|task| is_stopped(&task))
    });
    let done = purge(&one.fast.join("f"));
    signal(Signal::CONT);
    assert_eq!(done.unwrap(), Purged { files: 1, unreached: 1, ..Purged::default() });
    let mut bytes = 1;
    eventually("the daemon is used again", || {
        let absent = one.count("bank_absent");
        write(&one.slow.join("other"), 0, bytes);
        bytes += 1;
        byte(&cached(&one, "other")) == 0 && one.count("bank_absent") > absent
    });
    let memcached = Memcached::new(Daemons::parse(&bank.list).unwrap(), Options::default()).unwrap();
    let secret = Secret::parse(&"6".repeat(64)).unwrap().of_volume("v");
    let late = Blocks::new(secret, Bank::Memcached(memcached, Placement::default()), Rules::default());
    let time = 1_000_000 * 1_000_000_000;
    let stamp = Stamp { modified: time, changed: time, size: 100 };
    let number = fs::metadata(one.slow.join("f")).unwrap().ino();
    let file = FileKey::new(&[&b"n"[..], &number.to_le_bytes()].concat(), &stamp.bytes(), Rules::default());
    late.store(&[(file.block(BlockSize::default(), 0), vec![1; 100])]);
    assert_eq!(byte(&cached(&two, "f")), 1, "the old block is there again");
    assert_eq!(byte(&cached(&one, "f")), 2);
}

#[test]
fn names_that_the_kernel_believes_are_asked_for_anew() {
    let Some(bank) = banked::Bank::new(1) else { return };
    let Some(pair) = Pair::new(|options| {
        options.bank = bank.list.parse().unwrap();
        options.promise = Promise::Sealed;
        options.deadline = Duration::from_secs(10);
    }) else {
        return;
    };
    let (slow, fast) = (&pair.slow, &pair.fast);
    for folder in ["d", "e"] {
        fs::create_dir(slow.join(folder)).unwrap();
        fs::write(slow.join(folder).join("replaced"), b"one").unwrap();
        fs::write(slow.join(folder).join("removed"), b"one").unwrap();
        fs::write(slow.join(folder).join("moved"), b"one").unwrap();
    }
    let read = |name: &str| fs::read_to_string(fast.join(name)).map_err(|error| error.kind());
    for name in ["replaced", "removed", "moved"] {
        for folder in ["d", "e"] {
            assert_eq!(read(&format!("{folder}/{name}")), Ok("one".into()));
        }
    }
    let change = |folder: &str| {
        fs::write(slow.join("new"), b"two").unwrap();
        fs::rename(slow.join("new"), slow.join(folder).join("replaced")).unwrap();
        fs::remove_file(slow.join(folder).join("removed")).unwrap();
        fs::rename(slow.join(folder).join("moved"), slow.join(format!("{folder}.moved"))).unwrap();
    };
    change("d");
    // A directory is replaced as a whole.
    fs::rename(slow.join("e"), slow.join("old")).unwrap();
    fs::create_dir(slow.join("e")).unwrap();
    fs::write(slow.join("e/replaced"), b"two").unwrap();
    for folder in ["d", "e"] {
        let found = ["replaced", "removed", "moved"].map(|name| fs::metadata(fast.join(folder).join(name)).is_ok());
        assert_eq!(found, [true; 3], "a sealed name is believed");
    }
    // A program that works in a directory is not cut off from it.
    let inside = fs::File::open(fast.join("d")).unwrap();
    purge(fast).unwrap();
    let path = fs::read_link(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&inside))).unwrap();
    assert_eq!(path, fast.join("d"));
    for folder in ["d", "e"] {
        assert_eq!(read(&format!("{folder}/replaced")), Ok("two".into()), "{folder}");
        assert_eq!(read(&format!("{folder}/removed")), Err(std::io::ErrorKind::NotFound), "{folder}");
        assert_eq!(read(&format!("{folder}/moved")), Err(std::io::ErrorKind::NotFound), "{folder}");
    }
}

#[test]
fn what_cannot_be_purged_says_why() {
    let said = |path: &Path| purge(path).unwrap_err().to_string();
    let folder = tempfile::tempdir().unwrap();
    assert!(said(folder.path()).contains("no Verbena mount"));
    assert!(said(&folder.path().join("none")).contains("none"));
    let Some(pair) = Pair::new(|_| {}) else { return };
    assert!(said(&pair.fast).contains("without a bank"));
    fs::write(pair.slow.join("f"), b"x").unwrap();
    assert!(said(&pair.fast.join("f")).contains("without a bank"));
}

#[test]
fn a_purge_is_for_the_user_who_mounted() {
    let Some(bank) = banked::Bank::new(1) else { return };
    let Some(pair) = Pair::new(|options| {
        options.bank = bank.list.parse().unwrap();
        options.allow_other = true;
        options.deadline = Duration::from_secs(10);
    }) else {
        return;
    };
    // The temporary directory itself is its owner's alone.
    fs::set_permissions(pair.slow.parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(pair.slow.join("f"), b"x").unwrap();
    let path = pair.fast.join("f");
    let as_other = || {
        rustix::thread::set_thread_res_uid(None, rustix::process::Uid::from_raw(1234), None).unwrap();
        purge(&path).unwrap_err().to_string()
    };
    let said = std::thread::scope(|scope| scope.spawn(as_other).join().unwrap());
    assert!(said.contains("a mount of another user"), "{said}");
    assert_eq!(purge(&path).unwrap(), Purged { files: 1, ..Purged::default() });
}

#[test]
fn a_file_of_a_million_blocks_stays_in_the_bank_and_is_not_used() {
    let Some(bank) = banked::Bank::new(1) else { return };
    let Some(pair) = Pair::new(|options| {
        options.bank = bank.list.parse().unwrap();
        options.block = BlockSize::new(256).unwrap();
        options.clocks = Some(NO_CHANGE_TIME);
        options.deadline = Duration::from_secs(10);
    }) else {
        return;
    };
    let write = |content: u8| {
        let file = fs::File::create(pair.slow.join("f")).unwrap();
        file.write_all_at(&[content; 4096], 0).unwrap();
        file.set_len((256 << 20) + 1).unwrap();
        restore(&pair.slow.join("f"), 1_000_000);
    };
    write(1);
    assert_eq!(byte(&cached(&pair, "f")), 1);
    eventually("the bank has its first blocks", || pair.count("bank_stored") >= 16);
    write(2);
    assert_eq!(byte(&cached(&pair, "f")), 1);
    assert_eq!(purge(&pair.fast).unwrap(), Purged { files: 1, large: 1, ..Purged::default() });
    assert_eq!(byte(&cached(&pair, "f")), 2);
}
