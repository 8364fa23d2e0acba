//! Mounts of one directory that share what is in the bank.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use tempfile::NamedTempFile;
use verbena_mount::{MountOptions, Promise, check};

use crate::banked::Bank;
use crate::setup::{Pair, eventually};

pub struct Mounts {
    pub bank: Bank,
    pub secret: NamedTempFile,
    pub promise: Promise,
    pub near: u64,
    pub encrypt: bool,
}

/// Whether files of temporary directories have times of birth, so that their names come from the bank. If not, says that the test is skipped.
pub fn has_births() -> bool {
    let folder = tempfile::tempdir().unwrap();
    let has_births = check(folder.path()).unwrap().has_births;
    if !has_births {
        eprintln!("skipped: files have no births here");
    }
    has_births
}

impl Mounts {
    /// For a test of names that come from the bank.
    pub fn with_names(promise: &str) -> Option<Self> {
        if has_births() { Self::new(promise) } else { None }
    }

    pub fn new(promise: &str) -> Option<Self> {
        let secret = NamedTempFile::new().unwrap();
        fs::write(secret.path(), "4".repeat(64)).unwrap();
        Some(Mounts { bank: Bank::new(2)?, secret, promise: promise.parse().unwrap(), near: 0, encrypt: false })
    }

    pub fn mount(&self, below: Option<&Path>) -> Option<Pair> {
        Pair::new(|options: &mut MountOptions| {
            options.bank = self.bank.list.parse().unwrap();
            options.secret = Some(self.secret.path().to_owned());
            options.volume = Some("v".to_owned());
            options.promise = self.promise;
            options.near = self.near;
            options.encrypt = self.encrypt;
            options.deadline = Duration::from_secs(10);
            below.into_iter().for_each(|below| options.below = below.to_owned());
        })
    }
}

pub fn run(at: &Path, program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).current_dir(at).env("LC_ALL", "C").output().unwrap();
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// All that `ls` and `find` show of a tree.
pub fn walk(at: &Path) -> [String; 2] {
    let mut found: Vec<String> = run(at, "find", &["."]).lines().map(str::to_owned).collect();
    found.sort();
    [found.concat(), run(at, "ls", &["-lAR", "--time-style=full-iso"])]
}

/// The listing of a directory is in the bank, as this mount saw it just now.
pub fn listed(mount: &Pair, folders: u64) {
    // A file as young as the grain of its birth is not said.
    sleep(Duration::from_millis(30));
    let stored = mount.count("listing_bank_stored");
    walk(&mount.fast);
    eventually("the bank has the listings", || mount.count("listing_bank_stored") >= stored + folders);
}
