//! A bank in memory of the helper: what one mount read another one of the machine, or of the cluster, does not read below again.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use rustix::process::Signal;
use verbena_bank::{Bank, BlockKey, BlockSize, Blocks, FileKey, MemoryOptions, Rules, Secret, SharedMemory};
use verbena_client::Socket;
use verbena_testkit::nodes::{Cluster, are_in};
use verbena_testkit::programs::{output, verbena, wait_for};

use crate::common::traffic::{Ended, started};

struct Mount {
    at: PathBuf,
    said: String,
    _process: Ended,
}

impl Mount {
    fn new(cluster: &Cluster, node: &str, slow: &Path, name: &str) -> Self {
        let at = slow.with_file_name(name);
        fs::create_dir(&at).unwrap();
        let text = cluster.path().join(format!("{name}.said"));
        let mut command = verbena(&["fs", "mount", "--deadline", "10s", "--cluster-name", node]);
        command.args([slow, &at]).current_dir(cluster.path()).stdout(fs::File::create(&text).unwrap());
        let process = Ended(command.spawn().unwrap());
        let said = || fs::read_to_string(&text).unwrap();
        wait_for("the mount", || said().contains("cached") && said().starts_with("mounted"));
        Mount { said: said(), at, _process: process }
    }

    fn count(&self, name: &str) -> u64 {
        let status = output(&mut verbena(&["fs", "status", self.at.to_str().unwrap()]));
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in {status}")).parse().unwrap()
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.at.join(name)).unwrap()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        _ = verbena(&["fs", "umount", "--lazy", self.at.to_str().unwrap()]).status();
    }
}

/// Says so where nothing can be mounted.
pub fn can_mount() -> bool {
    let can = rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists();
    if !can {
        println!("skipped: no /dev/fuse, or not root");
    }
    can
}

fn content(nth: usize, turn: u8) -> Vec<u8> {
    let bytes = [10, 3000, 20_000, 70_000, 300_000][nth % 5] + nth;
    (0..bytes).map(|at| (at / 11 + nth) as u8 ^ turn).collect()
}

/// Files that are old enough for the bank.
fn write(slow: &Path, turn: u8) {
    (0..20).for_each(|nth| fs::write(slow.join(nth.to_string()), content(nth, turn)).unwrap());
    // More than the grain of the times, which is 10 ms.
    std::thread::sleep(Duration::from_millis(30));
}

fn read_all(mount: &Mount, turn: u8) {
    (0..20).for_each(|nth| assert!(mount.read(&nth.to_string()) == content(nth, turn), "{nth} at {:?}", mount.at));
}

#[test]
fn mounts_of_a_machine_and_of_a_cluster_share_what_one_read() {
    if !can_mount() {
        return;
    }
    let cluster = Cluster::on_shm("2s");
    let folder = tempfile::tempdir().unwrap();
    let slow = folder.path().join("slow");
    fs::create_dir(&slow).unwrap();
    let [a, b] = ["a", "b"].map(|name| cluster.start(name));
    a.wait_until("two in", |status| are_in(status, &[1, 2]));
    b.wait_until("two in", |status| are_in(status, &[1, 2]));
    write(&slow, 0);
    let bytes: u64 = (0..20).map(|nth| content(nth, 0).len() as u64).sum();

    let one = Mount::new(&cluster, "a", &slow, "one");
    assert!(one.said.contains("48 MiB of the helper's memory at a"), "{}", one.said);
    read_all(&one, 0);
    assert_eq!(one.count("filled_bytes"), bytes);
    let blocks = one.count("bank_absent");
    wait_for("the bank has all", || one.count("bank_stored") == blocks);
    // The second of the machine reads in its memory, the one at the other node one-sidedly.
    for (name, node) in [("two", "a"), ("three", "b")] {
        let other = Mount::new(&cluster, node, &slow, name);
        read_all(&other, 0);
        assert_eq!((other.count("filled_bytes"), other.count("bank_hits")), (0, blocks), "{name}");
        let faults = ["format", "key", "checksum", "length"].map(|fault| other.count(&format!("bank_wrong_{fault}")));
        assert_eq!(faults, [0; 4], "{name}");
    }
    // What changed has another version.
    write(&slow, 1);
    let three = Mount::new(&cluster, "b", &slow, "four");
    read_all(&three, 1);
    assert_eq!((three.count("filled_bytes"), three.count("bank_hits")), (bytes, 0));

    // A helper that is stopped, or dead, costs misses.
    a.signal(Signal::STOP);
    write(&slow, 2);
    read_all(&one, 2);
    a.signal(Signal::CONT);
    a.kill();
    write(&slow, 3);
    read_all(&one, 3);
    assert!(one.count("bank_daemon_down") > 0);
    let _a = cluster.start("a");
    wait_for("new segments", || one.count("segments") == 3 && one.count("segments_missing") == 0);
    write(&slow, 4);
    let stored = one.count("bank_stored");
    read_all(&one, 4);
    wait_for("the new helper has all", || one.count("bank_stored") == stored + blocks);
    let five = Mount::new(&cluster, "a", &slow, "five");
    read_all(&five, 4);
    assert_eq!(five.count("filled_bytes"), 0);
    // What one purges no other finds.
    let purged = output(&mut verbena(&["fs", "purge", five.at.to_str().unwrap()]));
    assert_eq!(purged, format!("20 files purged; {blocks} blocks were taken out of the bank\n"));
    let six = Mount::new(&cluster, "a", &slow, "six");
    read_all(&six, 4);
    assert_eq!((six.count("filled_bytes"), six.count("bank_hits")), (bytes, 0));
}

#[test]
fn a_mount_without_a_helper_says_so_and_uses_one_that_starts_later() {
    if !can_mount() {
        return;
    }
    let cluster = Cluster::new("2s", &[("a", "shm://a".to_owned())]);
    let folder = tempfile::tempdir().unwrap();
    let slow = folder.path().join("slow");
    fs::create_dir(&slow).unwrap();
    fs::create_dir(cluster.path().join("run")).unwrap();
    let mount = Mount::new(&cluster, "a", &slow, "fast");
    assert!(mount.said.contains("start one with `verbena node`"), "{}", mount.said);
    write(&slow, 0);
    read_all(&mount, 0);
    assert_eq!((mount.count("bank_hits"), mount.count("bank_stored")), (0, 0));
    let _a = cluster.start("a");
    wait_for("the helper's memory", || mount.count("segments") == 3);
    write(&slow, 1);
    read_all(&mount, 1);
    wait_for("blocks in it", || mount.count("bank_stored") > 0);
    let (mut status, _) =
        started(&mut verbena(&["fs", "status", mount.at.to_str().unwrap()]), |line| line.starts_with("segments 3"));
    assert!(status.0.wait().unwrap().success());
}

/// Rule B2, with writers and readers that nothing orders: what is torn or foreign is a miss.
#[test]
fn unordered_writers_of_one_set_give_no_reader_wrong_bytes() {
    let cluster = Cluster::new("2s", &[("a", "shm://a".to_owned())]);
    let _a = cluster.start("a");
    let socket = Socket::new(Some(&cluster.path().join("run")), Some("a")).unwrap();
    let block = BlockSize::default();
    let bank = |rules: Rules| {
        // One set of seven slots, which all blocks want.
        let (sockets, deadline) = (vec![socket.clone()], Duration::from_secs(10));
        let memory = SharedMemory::new(MemoryOptions { sockets, block, bytes: 600 << 10, deadline }).unwrap().unwrap();
        Blocks::new(Secret::new([5; 32]), Bank::Memory(memory), rules)
    };
    let file = FileKey::new(b"file", b"1", Rules::default());
    let keys: Vec<BlockKey> = (0..16).map(|nth| file.block(block, nth)).collect();
    let bytes = |key: &BlockKey| vec![key.block() as u8; 60_000];
    let is_over = AtomicBool::new(false);
    let banks = [Rules::default(), Rules { envelope: false, ..Rules::default() }].map(bank);
    wait_for("its segment", || {
        banks.iter().all(|bank| matches!(bank.bank(), Bank::Memory(memory) if memory.status().segments == 1))
    });
    std::thread::scope(|scope| {
        for turn in 0..2 {
            let (bank, keys, is_over) = (bank(Rules::default()), &keys, &is_over);
            scope.spawn(move || {
                // Bounded by the reader, and by itself.
                for key in keys.iter().cycle().skip(turn * 5).step_by(turn + 1).take(200_000) {
                    bank.store(&[(key.clone(), bytes(key))]);
                    if is_over.load(Relaxed) {
                        return;
                    }
                }
            });
        }
        let wrong = |bank: &Blocks| {
            let found = bank.fetch(&keys);
            keys.iter()
                .zip(found)
                .filter(|(key, found)| found.as_ref().is_some_and(|found| *found != bytes(key)))
                .count()
        };
        let [proven, believed] = &banks;
        let (mut ours, mut theirs) = (0, 0);
        let until = std::time::Instant::now() + Duration::from_secs(60);
        while std::time::Instant::now() < until && (theirs == 0 || proven.counters().read().hits < 100) {
            ours += wrong(proven);
            theirs += wrong(believed);
        }
        is_over.store(true, Relaxed);
        assert!(ours == 0, "{ours} blocks were other bytes");
        assert!(theirs > 0, "without the rule nothing wrong was seen: {:?}", proven.counters().read());
        let counts = proven.counters().read();
        assert!(counts.hits >= 100 && counts.wrong_key + counts.wrong_checksum + counts.wrong_length > 0, "{counts:?}");
    });
}
