//! A mount over sshfs, whose files have no number that two clients share, times in seconds and no change time; and the promise `age`.

use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::sleep;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use verbena_mount::{Identity, Promise, check};

use crate::banked::Bank;
use crate::mounts::{Mounts, has_births};
use crate::setup::{Pair, eventually};

const SERVER: &str = "/usr/lib/openssh/sftp-server";

/// sshfs without ssh: it speaks with a server of this machine over a pair of sockets.
pub struct Sshfs(Vec<Child>);

impl Sshfs {
    /// The same, how many requests it sent to its server, and the milliseconds that each takes longer.
    pub fn slowed(of: &Path, at: &Path) -> Option<(Self, Arc<AtomicU64>, Arc<AtomicU64>)> {
        let [requests, pause_ms]: [Arc<AtomicU64>; 2] = Default::default();
        let sshfs = Self::start(of, at, Some((requests.clone(), pause_ms.clone())))?;
        Some((sshfs, requests, pause_ms))
    }

    pub fn new(of: &Path, at: &Path) -> Option<Self> {
        Self::start(of, at, None)
    }

    fn start(of: &Path, at: &Path, requests: Option<(Arc<AtomicU64>, Arc<AtomicU64>)>) -> Option<Self> {
        if !Path::new(SERVER).exists() || Command::new("sshfs").arg("--version").output().is_err() {
            eprintln!("skipped: sshfs or openssh-sftp-server is not installed");
            return None;
        }
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        if let Some(requests) = requests {
            let (near, far) = UnixStream::pair().unwrap();
            relay(std::mem::replace(&mut theirs, far), near, requests.0, requests.1);
        }
        let run = |mut command: Command, end: UnixStream| {
            let other: OwnedFd = end.try_clone().unwrap().into();
            command.stdin(Stdio::from(OwnedFd::from(end))).stdout(Stdio::from(other)).spawn().unwrap()
        };
        let mut client = Command::new("sshfs");
        client.args(["-f", "-o", "passive,cache=no,attr_timeout=0,entry_timeout=0,direct_io"]);
        client.arg(format!(":{}", of.display())).arg(at);
        let sshfs = Sshfs(vec![run(Command::new(SERVER), theirs), run(client, ours)]);
        eventually("sshfs is mounted", || at.join("here").exists());
        Some(sshfs)
    }
}

impl Sshfs {
    /// The server, or the client before it.
    fn signal(&self, of: usize, signal: Signal) {
        kill_process(Pid::from_raw(self.0[of].id() as i32).unwrap(), signal).unwrap();
    }
}

impl Drop for Sshfs {
    fn drop(&mut self) {
        for child in &mut self.0 {
            _ = child.kill();
            _ = child.wait();
        }
    }
}

/// Passes on what client and server say, and counts requests: each begins with its length. Its threads end with the two processes.
fn relay(client: UnixStream, server: UnixStream, requests: Arc<AtomicU64>, pause_ms: Arc<AtomicU64>) {
    let (mut from_client, mut to_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    std::thread::spawn(move || {
        let mut length = [0; 4];
        while from_client.read_exact(&mut length).is_ok() {
            let mut request = vec![0; u32::from_be_bytes(length) as usize];
            requests.fetch_add(1, Relaxed);
            sleep(Duration::from_millis(pause_ms.load(Relaxed)));
            let passed = from_client.read_exact(&mut request).and_then(|()| to_server.write_all(&length));
            if passed.and_then(|()| to_server.write_all(&request)).is_err() {
                break;
            }
        }
        _ = to_server.shutdown(Shutdown::Both);
    });
    std::thread::spawn(move || {
        _ = std::io::copy(&mut { server }, &mut { client });
    });
}

#[test]
fn a_file_of_sshfs_is_its_path_and_is_cached_when_its_second_is_long_over() {
    let Some(bank) = Bank::new(1) else { return };
    let folder = tempfile::tempdir().unwrap();
    let (server, client) = (folder.path().join("server"), folder.path().join("client"));
    fs::create_dir(&server).unwrap();
    fs::create_dir(&client).unwrap();
    fs::write(server.join("here"), b"").unwrap();
    let Some(_sshfs) = Sshfs::new(&server, &client) else { return };
    let below = check(&client).unwrap();
    assert_eq!((below.kind.as_str(), below.identity, below.clocks.has_changed), ("fuse.sshfs", Identity::Path, false));
    assert!(below.clocks.grain == 1_000_000_000 && below.weaknesses().len() >= 3, "{below:?}");
    if let Some(pair) = Pair::new(|options| {
        options.below = client.clone();
        options.bank = bank.list.parse().unwrap();
        options.deadline = std::time::Duration::from_secs(10);
    }) {
        for content in [b"first", b"later"] {
            fs::write(server.join("f"), content).unwrap();
            let before = pair.count("bank_stored");
            eventually("it is in the bank", || {
                assert_eq!(fs::read(pair.fast.join("f")).unwrap(), content);
                pair.count("bank_stored") > before
            });
        }
    }
    nix::mount::umount2(&client, nix::mount::MntFlags::MNT_DETACH).unwrap();
}

#[test]
fn the_promise_age_shows_a_change_after_its_time() {
    let Some(bank) = Bank::new(1) else { return };
    let Some(pair) = Pair::new(|options| {
        options.bank = bank.list.parse().unwrap();
        options.promise = "age=300ms".parse::<Promise>().unwrap();
    }) else {
        return;
    };
    let (slow, fast) = (pair.slow.join("f"), pair.fast.join("f"));
    for round in 1_u8..6 {
        fs::write(&slow, vec![round; usize::from(round)]).unwrap();
        eventually("the change is seen", || {
            fs::read(&fast).is_ok_and(|bytes| bytes == vec![round; usize::from(round)])
        });
    }
    fs::remove_file(&slow).unwrap();
    eventually("the file is gone", || !fast.exists());
}

/// A file that comes by another road after its name was asked for: whether it is seen at once, and after a purge.
fn seen(bank: &Bank, promise: &str, allow_other: bool) -> Option<[bool; 2]> {
    let pair = Pair::new(|options| {
        options.bank = bank.list.parse().unwrap();
        options.promise = promise.parse::<Promise>().unwrap();
        options.allow_other = allow_other;
    })?;
    let (slow, fast) = (pair.slow.join("f"), pair.fast.join("f"));
    assert!(!fast.exists());
    fs::write(&slow, b"x").unwrap();
    let at_once = fast.exists();
    verbena_mount::purge(&pair.fast).unwrap();
    let purged = fast.exists();
    // What comes through the mount is there at once, under each promise.
    for name in ["made", "linked", "renamed"] {
        assert!(!pair.fast.join(name).exists());
    }
    fs::write(pair.fast.join("made"), b"x").unwrap();
    fs::hard_link(pair.fast.join("made"), pair.fast.join("linked")).unwrap();
    assert!(pair.fast.join("made").exists() && pair.fast.join("linked").exists());
    fs::rename(pair.fast.join("linked"), pair.fast.join("renamed")).unwrap();
    assert!(!pair.fast.join("linked").exists() && pair.fast.join("renamed").exists());
    Some([at_once, purged])
}

#[test]
fn a_missing_name_is_believed_where_the_promise_has_a_time_for_it() {
    let Some(bank) = Bank::new(1) else { return };
    let Some(open) = seen(&bank, "open", false) else { return };
    assert_eq!(open, [true, true]);
    assert_eq!(seen(&bank, "sealed", false), Some([true, true]));
    assert_eq!(seen(&bank, "age=1h", false), Some([false, true]));
    // Another user may not look a name up, and the kernel would not ask.
    assert_eq!(seen(&bank, "age=1h", true), Some([true, true]));
    let Some(pair) = Pair::new(|options| {
        options.bank = bank.list.parse().unwrap();
        options.promise = "age=300ms".parse::<Promise>().unwrap();
    }) else {
        return;
    };
    assert!(!pair.fast.join("f").exists());
    fs::write(pair.slow.join("f"), b"x").unwrap();
    eventually("the file is seen", || pair.fast.join("f").exists());
}

/// A file system that answers late: what it says is as old as the request when it comes.
#[test]
fn an_age_counts_from_the_request() {
    let Some(bank) = Bank::new(1) else { return };
    let folder = tempfile::tempdir().unwrap();
    let (server, client) = (folder.path().join("server"), folder.path().join("client"));
    fs::create_dir(&server).unwrap();
    fs::create_dir(&client).unwrap();
    fs::write(server.join("here"), b"").unwrap();
    let Some(sshfs) = Sshfs::new(&server, &client) else { return };
    let age = Duration::from_secs(2);
    if let Some(pair) = Pair::new(|options| {
        options.below = client.clone();
        options.bank = bank.list.parse().unwrap();
        options.promise = Promise::Age(age);
    }) {
        let file = fs::File::open(pair.fast.join("here")).unwrap();
        sleep(age + Duration::from_millis(100));
        // The server answers with no bytes, and its answer waits until there are three.
        sshfs.signal(0, Signal::STOP);
        let found = std::thread::scope(|scope| {
            let first = scope.spawn(|| file.metadata().unwrap().len());
            sleep(Duration::from_millis(300));
            sshfs.signal(1, Signal::STOP);
            sshfs.signal(0, Signal::CONT);
            sleep(Duration::from_millis(300));
            fs::write(server.join("here"), b"new").unwrap();
            sleep(age);
            sshfs.signal(1, Signal::CONT);
            [first.join().unwrap(), file.metadata().unwrap().len()]
        });
        assert_eq!(found, [0, 3]);
    }
    nix::mount::umount2(&client, nix::mount::MntFlags::MNT_DETACH).unwrap();
}

/// What mirrors a directory would remove a name that a listing lacks, so a file that cannot be looked up hides neither its own name nor any behind it.
#[test]
fn a_listing_has_all_names_although_a_file_cannot_be_looked_up() {
    const FILES: usize = 50;
    for promise in [None, Some("open"), Some("age=1h")] {
        if promise.is_some() && !has_births() {
            return;
        }
        let server = tempfile::tempdir().unwrap();
        fs::write(server.path().join("here"), b"").unwrap();
        let Some(mounts) = Mounts::new(promise.unwrap_or("open")) else { return };
        let mount = |below: Option<&Path>| match promise {
            Some(_) => mounts.mount(below),
            None => Pair::new(|options| below.into_iter().for_each(|below| options.below = below.to_owned())),
        };
        let Some(one) = mount(None) else { return };
        let broken = one.slow.join("d/broken");
        fs::create_dir_all(&broken).unwrap();
        (0..FILES).for_each(|file| fs::write(one.slow.join(format!("d/f{file}")), b"x").unwrap());
        sleep(Duration::from_millis(50));
        let Some(sshfs) = Sshfs::new(server.path(), &broken) else { return };
        drop(sshfs);
        eventually("its process is gone", || fs::metadata(&broken).is_err());
        // The second takes the names from the bank, if there is one.
        let two = mount(Some(&one.slow)).unwrap();
        let found = [&one, &two].map(|mount| {
            let names = fs::read_dir(mount.fast.join("d"));
            let names = names.and_then(|names| names.collect::<std::io::Result<Vec<_>>>());
            let error = fs::metadata(mount.fast.join("d/broken")).unwrap_err();
            if promise.is_some() && std::ptr::eq(mount, &raw const one) {
                eventually("the bank has the listing", || one.count("listing_bank_stored") > 0);
            }
            (names, error.raw_os_error())
        });
        nix::mount::umount2(&broken, nix::mount::MntFlags::MNT_DETACH).unwrap();
        for (names, error) in found {
            let names = names.unwrap();
            assert_eq!((names.len(), error), (FILES + 1, Some(libc::ENOTCONN)), "{promise:?}");
            let broken = names.iter().find(|entry| entry.file_name() == "broken").unwrap();
            assert!(broken.file_type().unwrap().is_dir(), "{promise:?}");
        }
        assert!(promise.is_none() || two.count("listing_hits") > 0, "{promise:?}");
    }
}
