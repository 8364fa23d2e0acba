//! For how long the machine had other things to do. A promise in leases is one of a machine that runs: where others want it too, time that nobody was given is not counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long the thread sleeps each time.
const SLEEPS: Duration = Duration::from_millis(5);

/// A thread that does nothing but sleep, and adds up by how much it is late. On a machine that is idle that is a hundredth of the time.
pub struct Pulse(Arc<Shared>);

#[derive(Default)]
struct Shared {
    late: AtomicU64,
    is_over: AtomicBool,
}

impl Pulse {
    pub fn start() -> Pulse {
        let shared = Arc::new(Shared::default());
        let beats = shared.clone();
        std::thread::spawn(move || {
            while !beats.is_over.load(Ordering::Relaxed) {
                let began = Instant::now();
                std::thread::sleep(SLEEPS);
                let late = began.elapsed() - SLEEPS;
                beats.late.fetch_add(late.as_nanos() as u64, Ordering::Relaxed);
            }
        });
        Pulse(shared)
    }

    /// So far.
    pub fn late(&self) -> Duration {
        Duration::from_nanos(self.0.late.load(Ordering::Relaxed))
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Relaxed);
    }
}
