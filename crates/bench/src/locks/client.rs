//! A program that takes locks: of a node's helper, as any program does, and of others to compare with.

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use verbena_client::wire::LockMode;
use verbena_client::{Hold, Locks, Socket};
use verbena_terms::Time;

use super::node::{PAUSE, Timed, Worked, hold_for, samples};
use super::redis::Redis;
use crate::child::{Answer, ON_CORE, Target, hear, say};
use crate::error::BenchError;
use crate::helpers::Helpers;
use crate::stats::RoundSummary;

/// What such a program is asked for by.
pub(crate) const ROLE: &str = "lock-client";

/// No lock may take longer.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// The longest time until a lock of Redis that was taken is tried again.
const REDIS_PAUSE: Duration = Duration::from_millis(2);

const NOT_JOINED: &str = "only a helper's locks are joined";

/// From one look for a helper to the next.
const LOOK: Duration = Duration::from_millis(20);

/// The lock that clients of a turn want.
const NAME: &str = "bench";
/// One that is held shared all the while.
const SHARED: &str = "bench-shared";

/// An order to a client.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// Take and release the lock again and again with pauses. Answer: [`Timed`].
    Alone { length: Duration },
    /// The same of a lock that another program at the node holds shared, shared. Answer: [`Timed`].
    Joined { length: Duration },
    /// From `start` on take and release it without a pause. Answer: [`Worked`].
    Work { hold: Duration, start: Time, length: Duration },
}

/// Something that has locks.
pub(super) trait Service {
    /// Waits until the client holds this lock.
    fn acquire(&mut self, name: &str) -> Result<(), String>;
    /// Gives it back.
    fn release(&mut self, name: &str) -> Result<(), String>;
}

/// A program at the node of this number, when that has taken it in.
pub(super) fn at(helpers: &mut Helpers, node: usize) -> Result<Target, BenchError> {
    let (run, name) = helpers.ready(node)?;
    let place = format!("{}#{name}", run.display());
    let connect = || {
        let before = helpers.core().into_iter().flat_map(|core| [ON_CORE, core]);
        let mut client = Target::start(&before.chain([ROLE, "verbena", &place]).collect::<Vec<_>>())?;
        let () = client.answer("connect to a node's helper")?;
        Ok(client)
    };
    connect().map_err(|error: BenchError| helpers.failed(node, &format!("was of no use: {error}")))
}

/// Plays a client of this kind, of a service that is there.
pub(crate) fn serve(kind: &str, place: &str) -> Result<(), String> {
    // Whatever becomes of the starter, nothing of it stays. A system that cannot do this leaves the ending to the starter.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    match kind {
        "verbena" => {
            let [mut second, mut third] = [Verbena::connect(place)?, Verbena::connect(place)?];
            obey(Verbena::connect(place)?, |length| second.joined(&mut third, length))
        }
        "redis" => obey(Redis::connect(place, REDIS_PAUSE)?, |_| Err(NOT_JOINED.to_owned())),
        "redis-at-once" => obey(Redis::connect(place, Duration::ZERO)?, |_| Err(NOT_JOINED.to_owned())),
        #[cfg(feature = "etcd")]
        "etcd" => obey(super::etcd::Etcd::connect(place)?, |_| Err(NOT_JOINED.to_owned())),
        _ => Err(format!("no service of locks is called {kind}")),
    }
}

fn obey(mut service: impl Service, mut joined: impl FnMut(Duration) -> Result<Timed, String>) -> Result<(), String> {
    say(&Answer::Done(()))?;
    while let Some(order) = hear::<Order>()? {
        match order {
            Order::Alone { length } => told(alone(&mut service, length))?,
            Order::Joined { length } => told(joined(length))?,
            Order::Work { hold, start, length } => {
                told(Worked::work(start, length, || once(&mut service, hold)))?;
            }
        }
    }
    Ok(())
}

fn told<T: Serialize>(result: Result<T, String>) -> Result<(), String> {
    say(&match result {
        Ok(done) => Answer::Done(done),
        Err(reason) => Answer::Failed(reason),
    })
}

fn once(service: &mut impl Service, hold: Duration) -> Result<Duration, String> {
    let asked = Instant::now();
    service.acquire(NAME)?;
    let waited = asked.elapsed();
    hold_for(hold);
    service.release(NAME)?;
    Ok(waited)
}

fn alone(service: &mut impl Service, length: Duration) -> Result<Timed, String> {
    once(service, Duration::ZERO)?;
    let mut unlocks = Vec::new();
    let lock = samples(length, || {
        let asked = Instant::now();
        service.acquire(NAME)?;
        let waited = asked.elapsed();
        std::thread::sleep(PAUSE);
        let before = Instant::now();
        service.release(NAME)?;
        unlocks.push(before.elapsed().as_secs_f64() * 1e6);
        Ok(waited)
    })?;
    Ok(Timed { lock, unlock: RoundSummary::of(&mut unlocks) })
}

/// A node's helper, by shared memory.
struct Verbena {
    locks: Locks,
    held: Option<Hold>,
}

impl Verbena {
    /// `place` is the helpers' directory and the node's name.
    fn connect(place: &str) -> Result<Self, String> {
        let (run, node) = place.split_once('#').ok_or("a helper has a directory and a name")?;
        let socket = Socket::new(Some(Path::new(run)), Some(node)).map_err(|error| error.to_string())?;
        let until = Instant::now() + PATIENCE;
        let locks = loop {
            match Locks::connect(&socket, PATIENCE) {
                Ok(locks) => break locks,
                // The node is about to begin.
                Err(_) if Instant::now() < until => std::thread::sleep(LOOK),
                Err(error) => return Err(error.to_string()),
            }
        };
        Ok(Verbena { locks, held: None })
    }

    fn joined(&mut self, other: &mut Verbena, length: Duration) -> Result<Timed, String> {
        let text = |error: verbena_client::Error| error.to_string();
        let first = other.locks.acquire(SHARED.as_bytes(), LockMode::Shared, Some(PATIENCE)).map_err(text)?;
        let lock = samples(length, || {
            let asked = Instant::now();
            let hold = self.locks.acquire(SHARED.as_bytes(), LockMode::Shared, Some(PATIENCE)).map_err(text)?;
            let waited = asked.elapsed();
            self.locks.release(hold).map_err(text)?;
            Ok(waited)
        });
        other.locks.release(first).map_err(text)?;
        Ok(Timed { lock: lock?, unlock: None })
    }
}

impl Service for Verbena {
    fn acquire(&mut self, name: &str) -> Result<(), String> {
        let hold = self.locks.acquire(name.as_bytes(), LockMode::Exclusive, Some(PATIENCE));
        self.held = Some(hold.map_err(|error| error.to_string())?);
        Ok(())
    }

    fn release(&mut self, _name: &str) -> Result<(), String> {
        let held = self.held.take().ok_or("nothing is held")?;
        self.locks.release(held).map_err(|error| error.to_string())
    }
}
