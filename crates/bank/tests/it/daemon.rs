//! A memcached that a test starts, kills, stops and starts again at the same place.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use verbena_bank::{
    Answer, Bank, BlockKey, BlockSize, Blocks, Daemons, FileKey, Memcached, Options, Placement, Request, Rules, Secret,
};

/// Whether memcached is installed. If not, says that the test is skipped.
pub fn is_installed() -> bool {
    let found = Command::new("memcached").arg("-h").output().is_ok();
    if !found {
        eprintln!("skipped: memcached is not installed");
    }
    found
}

pub struct Daemon {
    place: PathBuf,
    child: Child,
}

impl Daemon {
    pub fn start(folder: &Path, name: &str) -> Self {
        let place = folder.join(name);
        let child = spawn(&place);
        let daemon = Daemon { place, child };
        daemon.wait();
        daemon
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        // It may answer until the signal has reached it.
        let is_stopped = || {
            let state = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
            state.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
        };
        let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while signal == Signal::STOP && !is_stopped() && std::time::Instant::now() < end {
            std::thread::yield_now();
        }
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn start_again(&mut self) {
        std::fs::remove_file(&self.place).unwrap();
        self.child = spawn(&self.place);
        self.wait();
    }

    fn wait(&self) {
        let one = memcached(&[self], 5000);
        eventually("the daemon answers", || {
            one.exchange(&[(0, Request::Get { name: b"x".to_vec() })]) == [Some(Answer::None)]
        });
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

fn spawn(place: &Path) -> Child {
    let mut command = Command::new("memcached");
    command.args(["-U", "0", "-m", "64", "-t", "1", "-u", "root", "-s"]).arg(place);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

pub fn memcached(daemons: &[&Daemon], deadline_ms: u64) -> Memcached {
    let places: Vec<String> = daemons.iter().map(|daemon| daemon.place.display().to_string()).collect();
    let list = Daemons::parse(&format!("memcached://{}", places.join(","))).unwrap();
    Memcached::new(list, Options { deadline: Duration::from_millis(deadline_ms), idle: 4 }).unwrap()
}

pub fn blocks(daemons: &[&Daemon], deadline_ms: u64) -> Blocks {
    let memcached = memcached(daemons, deadline_ms);
    Blocks::new(Secret::new([5; 32]), Bank::Memcached(memcached, Placement::Rendezvous), Rules::default())
}

pub fn keys(version: &str, count: u64) -> Vec<BlockKey> {
    let file = FileKey::new(b"file", version.as_bytes(), Rules::default());
    (0..count).map(|block| file.block(BlockSize::default(), block)).collect()
}

pub fn content(version: &str, block: u64, bytes: usize) -> Vec<u8> {
    format!("{version}:{block};").into_bytes().into_iter().cycle().take(bytes).collect()
}

pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(60), "not within 60 s: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
