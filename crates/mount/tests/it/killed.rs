//! Processes that are killed: one that serves a mount, and those that wait for a lock or hold one.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use verbena_mount::{MountOptions, mount, umount};

use crate::setup::{Pair, eventually};

const SERVED: &str = "VERBENA_TEST_SERVED";

/// Serves a mount where another test started this program anew to do so; else nothing.
#[test]
fn serve() {
    let Some(folder) = std::env::var_os(SERVED).map(PathBuf::from) else { return };
    mount(&MountOptions::new(folder.join("slow"), folder.join("fast"))).unwrap().wait().unwrap();
}

#[test]
fn a_mount_whose_process_was_killed_is_replaced_by_one_call() {
    // It shows whether this machine mounts at all.
    if Pair::new(|_| {}).is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (slow, fast) = (folder.path().join("slow"), folder.path().join("fast"));
    fs::create_dir(&slow).unwrap();
    fs::create_dir(&fast).unwrap();
    fs::write(slow.join("f"), b"content").unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "killed::serve"]).env(SERVED, folder.path()).stdout(Stdio::null());
    let mut child = command.spawn().unwrap();
    eventually("the mount is there", || fs::read(fast.join("f")).is_ok());
    let held = File::open(fast.join("f")).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    eventually("the mount is dead", || {
        fs::read(fast.join("f")).is_err_and(|error| error.raw_os_error() == Some(libc::ENOTCONN))
    });
    let mounted = mount(&MountOptions::new(&slow, &fast)).unwrap();
    assert_eq!(fs::read(fast.join("f")).unwrap(), b"content");
    drop(held);
    umount(&fast, false).unwrap();
    mounted.wait().unwrap();
    assert!(!fast.join("f").exists());
}

fn set(file: &File, kind: i32) -> Result<(), Errno> {
    let lock = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    fcntl(file, FcntlArg::F_OFD_SETLK(&lock)).map(|_| ())
}

/// A process that opens a file, says so, takes a classic lock, says so and sleeps.
fn locker(path: &std::path::Path) -> (Child, impl FnMut() -> String + use<>) {
    let script = "import fcntl, sys, time\nf = open(sys.argv[1], 'r+b')\nprint('opened', flush=True)\n\
                  fcntl.lockf(f, fcntl.LOCK_EX)\nprint('locked', flush=True)\ntime.sleep(600)";
    let mut command = Command::new("python3");
    command.args(["-c", script]).arg(path).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    (child, move || lines.next().unwrap().unwrap())
}

#[test]
fn a_process_that_waits_for_a_lock_can_be_killed_and_one_that_dies_gives_its_lock_back() {
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("skipped: python3 is not installed");
        return;
    }
    let Some(pair) = Pair::new(|_| {}) else { return };
    let below = File::options().read(true).write(true).create(true).truncate(false).open(pair.slow.join("f")).unwrap();
    set(&below, libc::F_WRLCK).unwrap();
    let (mut child, mut says) = locker(&pair.fast.join("f"));
    assert_eq!(says(), "opened");
    std::thread::sleep(Duration::from_millis(100));
    assert!(child.try_wait().unwrap().is_none());
    child.kill().unwrap();
    let mut ended = None;
    eventually("the waiter dies", || {
        ended = child.try_wait().unwrap();
        ended.is_some()
    });
    assert_eq!(ended.unwrap().signal(), Some(libc::SIGKILL));
    set(&below, libc::F_UNLCK).unwrap();
    let (mut child, mut says) = locker(&pair.fast.join("f"));
    assert_eq!((says(), says()), ("opened".to_owned(), "locked".to_owned()));
    assert_eq!(set(&below, libc::F_WRLCK), Err(Errno::EAGAIN));
    child.kill().unwrap();
    child.wait().unwrap();
    eventually("a dead process has no locks", || set(&below, libc::F_WRLCK).is_ok());
}
