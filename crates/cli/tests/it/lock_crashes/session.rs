//! A connection for locks that writes down what it asks and is told.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use verbena_client::wire::LockMode;
use verbena_client::{Error, Hold, Locks, Socket};
use verbena_terms::{BootClock, Clock, Time};

/// How long it may take to connect.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where a cluster's nodes are reached, and where is written down what happens to their locks.
#[derive(Clone, Debug)]
pub struct Place {
    pub runtime: PathBuf,
    pub history: PathBuf,
}

pub struct Session {
    locks: Locks,
    file: File,
    calls: u64,
}

/// What a call got.
#[derive(Debug)]
pub struct Held {
    pub hold: Hold,
    call: u64,
    /// When the answer came.
    pub since: Time,
}

impl Place {
    /// Of a cluster with files in this directory.
    pub fn of(directory: &Path) -> Place {
        let place = Place { runtime: directory.join("run"), history: directory.join("history") };
        std::fs::create_dir_all(&place.history).unwrap();
        place
    }
}

impl Session {
    /// Connects to this node. `who` is what its file is called, with the process and a number.
    pub fn connect(place: &Place, node: &str, who: &str) -> Result<Session, Error> {
        static NTH: AtomicU64 = AtomicU64::new(0);
        let socket = Socket::new(Some(&place.runtime), Some(node))?;
        let locks = Locks::connect(&socket, PATIENCE)?;
        let name = format!("{who}-at-{node}-{}-{}", std::process::id(), NTH.fetch_add(1, Ordering::Relaxed));
        let file = OpenOptions::new().append(true).create_new(true).open(place.history.join(name)).unwrap();
        Ok(Session { locks, file, calls: 0 })
    }

    /// Waits so long; without that it only tries.
    pub fn acquire(&mut self, lock: &str, mode: LockMode, at_most: Option<Duration>) -> Result<Held, Error> {
        self.calls += 1;
        let kind = if mode == LockMode::Exclusive { "writer" } else { "reader" };
        let most = at_most.unwrap_or_default().as_nanos();
        self.note(&format!("ask {} {lock} {kind} {} {most}", self.calls, now()));
        let got = match at_most {
            Some(_) => self.locks.acquire(lock.as_bytes(), mode, at_most),
            None => self.locks.try_acquire(lock.as_bytes(), mode),
        };
        self.got(got)
    }

    /// Lets others read with it. What it was before ends with that, also where it fails.
    pub fn share(&mut self, held: Held) -> Result<Held, Error> {
        self.look(&held);
        self.calls += 1;
        self.note(&format!("share {} {} {}", self.calls, held.call, now()));
        let mut hold = held.hold;
        let shared = self.locks.share(&mut hold);
        self.got(shared.map(|()| hold))
    }

    fn got(&mut self, got: Result<Hold, Error>) -> Result<Held, Error> {
        let (call, since) = (self.calls, BootClock.now());
        match &got {
            Ok(hold) => self.note(&format!("got {call} {} {}", hold.token(), since.nanos())),
            Err(error) => self.note(&format!("not {call} {} {}", since.nanos(), why(error))),
        }
        got.map(|hold| Held { hold, call, since })
    }

    /// Whether it is held.
    pub fn look(&mut self, held: &Held) -> bool {
        let before = now();
        let is_held = self.locks.is_held(&held.hold);
        if is_held {
            self.note(&format!("held {} {before}", held.call));
        }
        is_held
    }

    /// Until when it is held if the node's lease is not renewed.
    pub fn held_until(&self) -> Time {
        self.locks.held_until()
    }

    pub fn release(&mut self, held: Held) -> Result<(), Error> {
        self.note(&format!("let {} {}", held.call, now()));
        let released = self.locks.release(held.hold);
        let how = released.as_ref().map_or_else(why, |()| "ok");
        self.note(&format!("out {} {} {how}", held.call, now()));
        released
    }

    /// By one write, so that what was written is whole whenever the process dies.
    fn note(&mut self, line: &str) {
        self.file.write_all(format!("{line}\n").as_bytes()).unwrap();
    }
}

fn now() -> u64 {
    BootClock.now().nanos()
}

fn why(error: &Error) -> &'static str {
    match error {
        Error::NotFree => "free",
        Error::NotInTime { .. } => "in-time",
        Error::Lost => "lost",
        _ => "error",
    }
}
