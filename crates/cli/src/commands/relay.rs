//! The relay of a proxy, the only one of its cluster.
//!
//! What an application asks its database counts for the fills of the proxy that runs the relay. A second relay would see queries that the first does
//! not, so each holds a lock of the cluster; where it is lost, pages depend on everything until it is held again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use verbena_client::wire::LockMode;
use verbena_client::{Error as Refusal, Hold, Locks, Socket};
use verbena_content::service::Content;
use verbena_database::{Bound, Database};
use verbena_metrics::Registry;
use verbena_node::Helper;
use verbena_proxy::Queries;

use crate::error::{Error, Result};

/// The lock that a relay holds.
const LOCK: &[u8] = b"verbena: the relay before the database";
/// How long its helper may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often it is looked whether it is held.
const LOOKS_EVERY: Duration = Duration::from_millis(100);

/// The lock, held by a thread of its own as long as this is kept.
pub(super) struct Only {
    holds: Arc<Holds>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Holds {
    is_held: AtomicBool,
    /// For which incarnation: another one has lost it, whatever was seen last.
    incarnation: parking_lot::Mutex<Option<verbena_terms::Incarnation>>,
    stops: AtomicBool,
}

impl Only {
    /// Takes the lock.
    ///
    /// # Errors
    /// Another relay of the cluster holds it.
    pub fn take(socket: &std::path::Path, content: &Content) -> Result<Only> {
        let (socket, content) = (Socket::at(socket), content.clone());
        let mut locks = Locks::connect(&socket, PATIENCE)?;
        let hold = match locks.acquire(LOCK, LockMode::Exclusive, Some(PATIENCE)) {
            Ok(hold) => hold,
            Err(Refusal::NotFree | Refusal::NotInTime { .. }) => {
                let problem = "another node of this cluster runs a relay (`verbena lock ls` names it), and there is one for all: leave database.to out here, and have the application use that one".into();
                return Err(Error::Refused { problem, exit_code: 1 });
            }
            Err(error) => return Err(error.into()),
        };
        let holds = Arc::new(Holds::default());
        holds.got(&content);
        let watched = holds.clone();
        let watch = std::thread::Builder::new()
            .name("relay-lock".into())
            .spawn(move || watched.watch(&socket, &content, Some((locks, hold))));
        let thread = watch.map_err(|source| Error::System { doing: "start a thread", source })?;
        Ok(Only { holds, thread: Some(thread) })
    }

    /// Whether it is held now.
    pub fn is_held(&self, content: &Content) -> Arc<dyn Fn() -> bool + Send + Sync> {
        let (holds, content) = (self.holds.clone(), content.clone());
        Arc::new(move || holds.is_held.load(Ordering::SeqCst) && *holds.incarnation.lock() == Some(content.identity()))
    }
}

impl Drop for Only {
    fn drop(&mut self) {
        self.holds.stops.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            // It has nothing left to say.
            let _ = thread.join();
        }
    }
}

impl Holds {
    fn got(&self, content: &Content) {
        *self.incarnation.lock() = Some(content.identity());
        self.is_held.store(true, Ordering::SeqCst);
    }

    fn watch(&self, socket: &Socket, content: &Content, mut held: Option<(Locks, Hold)>) {
        while !self.stops.load(Ordering::SeqCst) {
            std::thread::sleep(LOOKS_EVERY);
            match &held {
                Some((locks, hold)) if locks.is_held(hold) => continue,
                Some(_) => {
                    self.is_held.store(false, Ordering::SeqCst);
                    held = None;
                    tracing::warn!(
                        "the lock of the relay is lost: every page depends on everything until it is held again"
                    );
                }
                None => {}
            }
            let taken = Locks::connect(socket, PATIENCE).and_then(|mut locks| {
                let hold = locks.try_acquire(LOCK, LockMode::Exclusive)?;
                Ok((locks, hold))
            });
            if let Ok(taken) = taken {
                held = Some(taken);
                self.got(content);
                tracing::info!("the lock of the relay is held again");
            }
        }
        self.is_held.store(false, Ordering::SeqCst);
        if let Some((mut locks, hold)) = held {
            // With the connection it is free in any case.
            let _ = locks.release(hold);
        }
    }
}

/// The relay whose port is taken, with the lock that keeps it the only one.
///
/// # Errors
/// It cannot start, or another one holds the lock.
pub(super) fn start(bound: Bound, helper: &Helper, registry: &Registry) -> Result<(Database, Only)> {
    let only = Only::take(helper.socket(), helper.content())?;
    let database = Database::start(bound, helper.content().clone(), helper.socket(), registry)?;
    Ok((database, only))
}

/// What the proxy of this process is told of the relay.
pub(super) fn queries(database: &Database, only: &Only, content: &Content) -> Queries {
    Queries {
        fills: database.fills(),
        identity: database.identity(),
        is_complete: database.is_complete(),
        is_only: only.is_held(content),
    }
}
