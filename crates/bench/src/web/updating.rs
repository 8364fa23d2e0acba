//! Updates beside a client: each changes an object, at the times of a Poisson process, and is noted when it is acknowledged.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::asker::Asker;
use super::requests::OBJECTS;
use crate::traces::{UpdateLaw, Updates};

/// Updates that may be under way at once: one that is slow does not hold up those behind it.
const TOGETHER: usize = 4;

/// An acknowledgement that is later than this is not waited for.
pub(super) const PATIENCE: Duration = Duration::from_secs(15);

/// From a look at whether to end to the next.
const LOOK: Duration = Duration::from_millis(2);

/// A stream of updates, by its law.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Stream {
    /// Updates a second.
    pub(crate) per_s: f64,
    /// Which objects change; 0 is all alike.
    pub(crate) alpha: f64,
}

/// Versions of the objects of one application that were acknowledged.
pub(super) struct Acknowledged(Box<[AtomicU64]>);

impl Default for Acknowledged {
    fn default() -> Self {
        Acknowledged::none_of(OBJECTS as usize)
    }
}

impl Acknowledged {
    /// Of `objects` objects, no update yet.
    pub(super) fn none_of(objects: usize) -> Self {
        Acknowledged((0..objects).map(|_| AtomicU64::new(0)).collect())
    }

    /// Two updates of one object may be acknowledged in the other order.
    pub(super) fn note(&self, object: u32, version: u64) {
        self.0[object as usize].fetch_max(version, Ordering::Release);
    }

    /// Those of `objects`, into `versions`.
    pub(super) fn of(&self, objects: &[u32], versions: &mut Vec<u64>) {
        versions.clear();
        versions.extend(objects.iter().map(|object| self.0[*object as usize].load(Ordering::Acquire)));
    }
}

/// A stream under way.
pub(super) struct Updating {
    stop: Arc<AtomicBool>,
    begun: Instant,
    threads: Vec<JoinHandle<Result<u64, String>>>,
}

impl Updating {
    pub(super) fn start(address: SocketAddr, stream: Stream, seed: u64, acknowledged: Arc<Acknowledged>) -> Self {
        let begun = Instant::now();
        let stop = Arc::new(AtomicBool::new(false));
        let law = UpdateLaw::new(u64::from(OBJECTS), stream.alpha, stream.per_s);
        let law = Arc::new(law.map(|law| Mutex::new(law.updates(seed))));
        let thread = |_| {
            let (stop, law, acknowledged) = (Arc::clone(&stop), Arc::clone(&law), Arc::clone(&acknowledged));
            std::thread::spawn(move || match &*law {
                Ok(updates) => write(address, updates, begun, &stop, &acknowledged),
                Err(error) => Err(error.to_string()),
            })
        };
        Updating { threads: (0..TOGETHER).map(thread).collect(), stop, begun }
    }

    /// Ends it when what is under way is acknowledged. Updates a second.
    pub(super) fn end(self) -> Result<f64, String> {
        self.stop.store(true, Ordering::Relaxed);
        let seconds = self.begun.elapsed().as_secs_f64();
        let each =
            self.threads.into_iter().map(|thread| thread.join().map_err(|_| "an updater panicked".to_owned())?);
        Ok(each.sum::<Result<u64, String>>()? as f64 / seconds)
    }
}

fn write(
    address: SocketAddr,
    updates: &Mutex<Updates>,
    begun: Instant,
    stop: &AtomicBool,
    acknowledged: &Acknowledged,
) -> Result<u64, String> {
    let mut client = Asker::new(address, PATIENCE);
    let mut done = 0;
    loop {
        let Some(update) = updates.lock().unwrap_or_else(PoisonError::into_inner).next() else { return Ok(done) };
        let due = begun + Duration::from_micros(update.at_us);
        loop {
            if stop.load(Ordering::Relaxed) {
                return Ok(done);
            }
            match due.saturating_duration_since(Instant::now()) {
                Duration::ZERO => break,
                wait => std::thread::sleep(wait.min(LOOK)),
            }
        }
        let object: u32 = update.key.parse::<u32>().map_err(|error| error.to_string())? - 1;
        let version = change(&mut client, address, &format!("/update/{object}"))?;
        acknowledged.note(object, version);
        done += 1;
    }
}

/// Makes an update by a `POST` to `path`. Returns the object's version after that.
pub(super) fn change(client: &mut Asker, address: SocketAddr, path: &str) -> Result<u64, String> {
    let failed = |what: String| format!("the update {path} at {address}: {what}");
    let asked = client.ask(&format!("POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: 0"));
    let answer = asked.map_err(|error| failed(error.to_string()))?;
    match answer.number() {
        Some(version) if answer.is_well() => Ok(version),
        _ => {
            let said = String::from_utf8_lossy(&answer.body).into_owned();
            Err(failed(answer.head.lines().next().unwrap_or_default().to_owned() + ": " + &said))
        }
    }
}
