//! For how long the machine had other things to do. A promise in leases is one of a machine that runs and has a disc: where others want them too, time that nobody was given
//! is not counted, nor is the time that the disc takes where somebody had to wait for it.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// How long the thread sleeps each time.
const SLEEPS: Duration = Duration::from_millis(5);
/// A disc that nobody else wants has written a little by then.
const WRITES_WITHIN: Duration = Duration::from_millis(20);
const WRITES_EVERY: Duration = Duration::from_millis(50);

/// Two threads that add up by how much they are late: one does nothing but sleep, which on a machine that is idle is a hundredth of the time; one writes to the disc
/// as nodes do before a view is in effect, or before one that starts is a member.
pub struct Pulse(Arc<Shared>);

#[derive(Default)]
struct Shared {
    late: AtomicU64,
    disc: Mutex<Disc>,
    is_over: AtomicBool,
}

#[derive(Default)]
struct Disc {
    late: Duration,
    /// When what is being written was begun.
    writes_since: Option<Instant>,
}

impl Pulse {
    /// With a file in this directory.
    pub fn start(directory: &Path) -> Pulse {
        let shared = Arc::new(Shared::default());
        let (sleeps, writes, path) = (shared.clone(), shared.clone(), directory.join("pulse"));
        std::thread::spawn(move || sleeps.sleep());
        std::thread::spawn(move || writes.write(path));
        Pulse(shared)
    }

    /// By how much who only computes was late so far.
    pub fn late(&self) -> Duration {
        Duration::from_nanos(self.0.late.load(Ordering::Relaxed))
    }

    /// The same of who writes.
    pub fn disc(&self) -> Duration {
        self.0.disc().late()
    }
}

impl Disc {
    fn late(&self) -> Duration {
        let late = |since: Instant| since.elapsed().saturating_sub(WRITES_WITHIN);
        self.late + self.writes_since.map_or(Duration::ZERO, late)
    }
}

impl Shared {
    fn disc(&self) -> MutexGuard<'_, Disc> {
        self.disc.lock().unwrap()
    }

    fn sleep(&self) {
        while !self.is_over.load(Ordering::Relaxed) {
            let began = Instant::now();
            std::thread::sleep(SLEEPS);
            let late = began.elapsed() - SLEEPS;
            self.late.fetch_add(late.as_nanos() as u64, Ordering::Relaxed);
        }
    }

    fn write(&self, path: PathBuf) {
        while !self.is_over.load(Ordering::Relaxed) {
            self.disc().writes_since = Some(Instant::now());
            let file = File::create(&path);
            let written = file.and_then(|mut file| file.write_all(b"late?").and_then(|()| file.sync_all()));
            let mut disc = self.disc();
            *disc = Disc { late: disc.late(), writes_since: None };
            drop(disc);
            if written.is_err() {
                // The test is over, and the directory is gone.
                return;
            }
            std::thread::sleep(WRITES_EVERY);
        }
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Relaxed);
    }
}
