//! Promise `open` over real daemons: what hits, and each rule switched off once, so that what it protects is seen to break.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use nix::fcntl::{FcntlArg, fcntl};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};
use verbena_bank::{Clocks, Rules, Running, StartOptions, start};
use verbena_mount::MountOptions;

use crate::fsx::Exerciser;
use crate::setup::{Pair, eventually};

pub struct Bank {
    running: Option<Running>,
    _folder: tempfile::TempDir,
    pub list: String,
}

impl Bank {
    pub fn new(daemons: usize) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let sockets = Some(folder.path().to_owned());
        match start(&StartOptions { daemons, memory: 256 << 20, sockets, ..StartOptions::default() }) {
            Ok(running) => Some(Bank { list: running.daemons.to_string(), running: Some(running), _folder: folder }),
            Err(error) => {
                eprintln!("skipped: {error}");
                None
            }
        }
    }

    pub fn pids(&self) -> Vec<u32> {
        self.running.as_ref().map_or_else(Vec::new, Running::pids)
    }

    pub fn end(&mut self) {
        self.running.take().into_iter().for_each(Running::end);
    }
}

impl Drop for Bank {
    fn drop(&mut self) {
        self.end();
    }
}

fn pair(bank: &Bank, rules: Rules, clocks: Option<Clocks>) -> Option<Pair> {
    Pair::new(|options: &mut MountOptions| {
        options.bank = bank.list.parse().unwrap();
        options.rules = rules;
        options.clocks = clocks;
        options.deadline = std::time::Duration::from_secs(10);
    })
}

/// Opens until the file is old enough for the bank.
pub fn cached(pair: &Pair, name: &str) -> File {
    let mut found = None;
    eventually("the file settles", || {
        let before = pair.count("cached_opens");
        found = Some(File::open(pair.fast.join(name)).unwrap());
        pair.count("cached_opens") > before
    });
    found.unwrap()
}

pub fn byte(file: &File) -> u8 {
    let mut byte = [0];
    file.read_exact_at(&mut byte, 0).unwrap();
    byte[0]
}

fn read(pair: &Pair, name: &str) -> u8 {
    byte(&File::open(pair.fast.join(name)).unwrap())
}

/// Times as a restore or `cp -p` sets them.
pub fn restore(path: &Path, seconds: i64) {
    let time = Timespec { tv_sec: seconds, tv_nsec: 0 };
    let times = Timestamps { last_access: time, last_modification: time };
    utimensat(CWD, path, &times, AtFlags::empty()).unwrap();
}

pub const NO_CHANGE_TIME: Clocks = Clocks { grain: 10_000_000, ahead: 0, has_changed: false };

#[test]
fn a_second_mount_reads_from_the_bank_and_a_partial_hit_brings_only_what_is_missing() {
    let Some(bank) = Bank::new(3) else { return };
    let secret = tempfile::NamedTempFile::new().unwrap();
    fs::write(secret.path(), "5".repeat(64)).unwrap();
    let set = |options: &mut MountOptions| {
        options.bank = bank.list.parse().unwrap();
        options.volume = Some("v".to_owned());
        options.secret = Some(secret.path().to_owned());
        options.deadline = std::time::Duration::from_secs(10);
    };
    let Some(one) = Pair::new(set) else { return };
    let content: Vec<u8> = (0..300_000_u32).map(|at| (at / 7) as u8).collect();
    fs::write(one.slow.join("f"), &content).unwrap();
    let mut part = vec![0; 1000];
    cached(&one, "f").read_exact_at(&mut part, 70_000).unwrap();
    assert_eq!(part, content[70_000..71_000]);
    let first = one.count("filled_bytes");
    assert!((65_536..=200_000).contains(&first), "{first}");
    eventually("the bank has it", || one.count("bank_stored") * 65_536 >= first);
    assert_eq!(fs::read(one.fast.join("f")).unwrap(), content);
    assert_eq!(one.count("filled_bytes"), 300_000, "every block was read below once");
    eventually("the bank has all", || one.count("bank_stored") == 5);
    let Some(two) = Pair::new(|options| {
        set(options);
        options.below = one.slow.clone();
    }) else {
        return;
    };
    assert_eq!(fs::read(two.fast.join("f")).unwrap(), content);
    assert_eq!(two.count("filled_bytes"), 0);
    assert!(two.count("whole_reads") > 0);
    // A rename and a hard link are the same file, and need nothing from below.
    fs::rename(one.slow.join("f"), one.slow.join("g")).unwrap();
    assert_eq!(fs::read(two.fast.join("g")).unwrap(), content);
}

#[test]
fn dead_daemons_are_misses() {
    let Some(mut bank) = Bank::new(2) else { return };
    let Some(pair) = pair(&bank, Rules::default(), None) else { return };
    fs::write(pair.slow.join("f"), [1; 200_000]).unwrap();
    drop(cached(&pair, "f"));
    assert_eq!(fs::read(pair.fast.join("f")).unwrap(), [1; 200_000]);
    bank.end();
    fs::write(pair.slow.join("f"), [2; 200_000]).unwrap();
    drop(cached(&pair, "f"));
    assert_eq!(fs::read(pair.fast.join("f")).unwrap(), [2; 200_000]);
    assert!(pair.count("bank_daemon_down") > 0);
}

#[test]
fn random_operations_over_a_bank() {
    let Some(bank) = Bank::new(2) else { return };
    let Some(pair) = pair(&bank, Rules::default(), None) else { return };
    let (path, below) = (pair.fast.join("f"), pair.slow.join("f"));
    let mut exerciser = Exerciser::new(&path, 51);
    for number in 0..crate::fsx::operations() / 4 {
        exerciser.step(number);
        if number % 500 == 0 {
            exerciser.check(&below);
            exerciser.check(&path);
        }
    }
}

/// Rule B1: the version stands in the key.
#[test]
fn a_changed_file_is_read_anew() {
    let run = |rules: Rules| {
        let bank = Bank::new(1)?;
        let pair = pair(&bank, rules, None)?;
        fs::write(pair.slow.join("f"), [1; 100]).unwrap();
        assert_eq!(byte(&cached(&pair, "f")), 1);
        eventually("the bank has it", || pair.count("bank_stored") == 1);
        fs::write(pair.slow.join("f"), [2; 100]).unwrap();
        Some(byte(&cached(&pair, "f")))
    };
    let Some(right) = run(Rules::default()) else { return };
    assert_eq!((right, run(Rules { version: false, ..Rules::default() })), (2, Some(1)));
}

/// Rule B3: two files of one version are two.
#[test]
fn files_with_equal_stamps_are_told_apart() {
    let run = |rules: Rules| {
        let bank = Bank::new(1)?;
        let pair = pair(&bank, rules, Some(NO_CHANGE_TIME))?;
        for (name, content) in [("a", 1), ("b", 2)] {
            fs::write(pair.slow.join(name), [content; 100]).unwrap();
            restore(&pair.slow.join(name), 1_000_000);
        }
        assert_eq!(byte(&cached(&pair, "a")), 1);
        eventually("the bank has it", || pair.count("bank_stored") == 1);
        Some(byte(&cached(&pair, "b")))
    };
    let Some(right) = run(Rules::default()) else { return };
    assert_eq!((right, run(Rules { identity: false, ..Rules::default() })), (2, Some(1)));
}

/// Rule B13: a second change within the grain of the times shows the same stamp.
#[test]
fn a_file_that_changed_a_moment_ago_is_read_below() {
    let seconds = Clocks { grain: 1_000_000_000, ahead: 0, has_changed: true };
    let run = |rules: Rules| {
        let bank = Bank::new(1)?;
        let pair = pair(&bank, rules, Some(seconds))?;
        let path = pair.slow.join("f");
        let mut found = None;
        eventually("two changes within a second", || {
            fs::write(&path, [1; 100]).unwrap();
            let first = fs::metadata(&path).unwrap().ctime();
            assert_eq!(read(&pair, "f"), 1);
            fs::write(&path, [2; 100]).unwrap();
            let is_same = fs::metadata(&path).unwrap().ctime() == first;
            found = is_same.then(|| read(&pair, "f"));
            is_same
        });
        found
    };
    let Some(right) = run(Rules::default()) else { return };
    assert_eq!((right, run(Rules { settled: false, ..Rules::default() })), (2, Some(1)));
}

/// Rule B13: bytes that were read while the file was another are stored under no version.
#[test]
fn the_version_is_looked_at_again_after_the_bytes() {
    let run = |rules: Rules| {
        let bank = Bank::new(1)?;
        let pair = pair(&bank, rules, Some(NO_CHANGE_TIME))?;
        let path = pair.slow.join("f");
        fs::write(&path, [1; 100]).unwrap();
        restore(&path, 1_000_000);
        let file = cached(&pair, "f");
        fs::write(&path, [2; 100]).unwrap();
        assert_eq!(byte(&file), 2);
        drop(file);
        if !rules.recheck {
            eventually("the bank has it", || pair.count("bank_stored") == 1);
        }
        fs::write(&path, [1; 100]).unwrap();
        restore(&path, 1_000_000);
        Some(byte(&cached(&pair, "f")))
    };
    let Some(right) = run(Rules::default()) else { return };
    assert_eq!((right, run(Rules { recheck: false, ..Rules::default() })), (1, Some(2)));
}

/// Rule B15: what this mount writes is seen by files of this mount that were open before.
#[test]
fn a_writer_of_the_mount_ends_what_readers_knew() {
    let run = |rules: Rules| {
        let bank = Bank::new(1)?;
        let pair = pair(&bank, rules, None)?;
        fs::write(pair.slow.join("f"), [1; 100]).unwrap();
        let file = cached(&pair, "f");
        assert_eq!(byte(&file), 1);
        eventually("the bank has it", || pair.count("bank_stored") == 1);
        let writer = File::options().write(true).open(pair.fast.join("f")).unwrap();
        writer.write_all_at(&[2; 100], 0).unwrap();
        Some(byte(&file))
    };
    let Some(right) = run(Rules::default()) else { return };
    assert_eq!((right, run(Rules { writers: false, ..Rules::default() })), (2, Some(1)));
}

/// Rule B18: what is read under a lock was written before the lock was taken.
#[test]
fn a_lock_drops_what_was_known_before_it() {
    let run = |rules: Rules| {
        let bank = Bank::new(1)?;
        let pair = pair(&bank, rules, None)?;
        fs::write(pair.slow.join("f"), [1; 100]).unwrap();
        let file = cached(&pair, "f");
        assert_eq!(byte(&file), 1);
        eventually("the bank has it", || pair.count("bank_stored") == 1);
        File::options().write(true).open(pair.slow.join("f")).unwrap().write_all_at(&[2; 100], 0).unwrap();
        let lock = libc::flock {
            l_type: libc::F_RDLCK as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: 0,
            l_len: 0,
            l_pid: 0,
        };
        fcntl(&file, FcntlArg::F_OFD_SETLK(&lock)).unwrap();
        Some(byte(&file))
    };
    let Some(right) = run(Rules::default()) else { return };
    assert_eq!((right, run(Rules { locks: false, ..Rules::default() })), (2, Some(1)));
}

#[test]
fn a_tree_is_warmed_and_each_access_is_explained() {
    let Some(mut bank) = Bank::new(1) else { return };
    let Some(pair) = pair(&bank, Rules::default(), None) else { return };
    let folder = pair.slow.join("a/b");
    fs::create_dir_all(&folder).unwrap();
    for nth in 0..30 {
        fs::write(folder.join(nth.to_string()), vec![nth as u8; 1000 * nth]).unwrap();
    }
    fs::write(pair.slow.join("large"), vec![7; 300_000]).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", folder.join("link")).unwrap();
    let fast = pair.fast.clone();
    let explain = |name: &str| verbena_mount::explain(&fast.join(name)).unwrap();
    assert!(explain("large").starts_with("nothing"), "{}", explain("large"));
    drop(cached(&pair, "large"));
    assert!(explain("large").starts_with("opened"), "{}", explain("large"));
    let warmed = verbena_mount::warm(&fast, 4).unwrap();
    assert_eq!((warmed.files, warmed.bytes, warmed.failed), (31, 300_000 + 1000 * (0..30).sum::<u64>(), 0));
    assert!(explain("large").starts_with("miss: "), "{}", explain("large"));
    // Five blocks of the large file, and one of each other that has bytes.
    eventually("the bank has all", || pair.count("bank_stored") == 34);
    let two = Pair::new(|options| {
        options.bank = bank.list.parse().unwrap();
        options.below = pair.slow.clone();
        options.deadline = std::time::Duration::from_secs(10);
    });
    let Some(two) = two else { return };
    assert!(verbena_mount::explain(&pair.slow.join("large")).unwrap_err().to_string().contains("no Verbena mount"));
    // Another secret: no block is found.
    fs::read(two.fast.join("large")).unwrap();
    let explained = verbena_mount::explain(&two.fast.join("large")).unwrap();
    assert!(explained.contains("not in the bank"), "{explained}");
    let writer = File::options().write(true).open(fast.join("large")).unwrap();
    drop(File::open(fast.join("large")).unwrap());
    assert!(explain("large").contains("open for writing"), "{}", explain("large"));
    drop(writer);
    bank.end();
    fs::write(pair.slow.join("large"), vec![8; 300_000]).unwrap();
    let file = cached(&pair, "large");
    byte(&file);
    assert!(explain("large").contains("down"), "{}", explain("large"));
}
