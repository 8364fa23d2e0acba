//! Updates that a program announces to its user's plain helper without naming an application: they concern all
//! applications (rule P3).
//!
//! The helper begins the update at its own cluster and, as any program would, at a helper of each other application's
//! cluster. The program gets its answer to the begin when all clusters have begun, and its answer to the end when all
//! have ended. A cluster that comes up in between would miss the update. So each such update holds a shared lock on a
//! file, and the first proxy of a cluster waits until no update holds it (module `application`).

use std::fs::{File, TryLockError};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use verbena_client::{Outcome, Place, Update, Updates};
use verbena_protocol::api::Touched;

use crate::error::{Error, Result};
use crate::local::application::{Applications, OPEN, TURN, open};

/// How long an application's cluster that runs may take to answer, and a proxy to start.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// An update, as it is open at the clusters of other applications.
pub(crate) struct Elsewhere {
    updates: Vec<Update>,
    /// Keeps clusters that this update does not reach from coming up.
    gate: Option<File>,
}

impl Elsewhere {
    /// Begins the update at each of these clusters that has a proxy. A purge is passed on as a purge, because
    /// "everything" means other pages in each cluster.
    ///
    /// # Errors
    /// Why a cluster could not begin it. The update then counts as not begun at any of them.
    pub(crate) async fn begin(
        applications: Option<&Applications>,
        touched: &Touched,
        is_purge: bool,
    ) -> Result<Elsewhere> {
        let Some(applications) = applications else { return Ok(Elsewhere { updates: Vec::new(), gate: None }) };
        let until = Instant::now() + PATIENCE;
        let gate = pass(applications, until).await?;
        let mut begun = Elsewhere { updates: Vec::new(), gate: Some(gate) };
        for name in applications.names() {
            let Some(updates) = helper_of(applications, &name, until).await? else {
                continue;
            };
            let told = match is_purge {
                true => updates.purge_as(touched).await.map(|()| None),
                false => updates.begin_as(touched).await.map(Some),
            };
            match told {
                Ok(update) => begun.updates.extend(update),
                Err(error) => {
                    // The update has written nothing yet. A cluster that misses this end only keeps its pages out of
                    // the cache for longer.
                    begun.end(Outcome::NotSent).await;
                    return Err(Error::Untold { name, reason: error.to_string() });
                }
            }
        }
        Ok(begun)
    }

    /// Ends it at all of them. False: one of them may not know.
    pub(crate) async fn end(self, outcome: Outcome) -> bool {
        let mut knows = true;
        for update in self.updates {
            knows &= update.end(outcome).await.is_ok();
        }
        drop(self.gate);
        knows
    }

    /// Its outcome is unknown: the clusters keep it open for so long, and none comes up before that.
    pub(crate) fn leave_open(self, longest_transaction: Duration) {
        tokio::spawn(async move {
            let gate = self.gate;
            for update in self.updates {
                // Untold they take as long, and then as long again.
                let _ = update.end(Outcome::Unknown).await;
            }
            sleep(longest_transaction).await;
            drop(gate);
        });
    }
}

/// Waits until no proxy starts, and keeps the next one from it.
async fn pass(applications: &Applications, until: Instant) -> Result<File> {
    let share = async |name: &str| -> Result<File> {
        let path = applications.directory.join(name);
        let file = open(&path)?;
        loop {
            match file.try_lock_shared() {
                Ok(()) => return Ok(file),
                Err(TryLockError::Error(error)) => return Err(Error::file("lock", &path, error)),
                Err(TryLockError::WouldBlock) if Instant::now() > until => {
                    return Err(Error::NotInTurn { because: "a proxy of this user is starting", patience: PATIENCE });
                }
                Err(TryLockError::WouldBlock) => sleep(LOOK_AGAIN).await,
            }
        }
    };
    let _turn = share(TURN).await?;
    share(OPEN).await
}

/// A helper of this cluster, if a proxy is in it.
async fn helper_of(applications: &Applications, name: &str, until: Instant) -> Result<Option<Updates>> {
    while applications.lives(name)? {
        // A seat whose process has ended refuses at once.
        if let Some(path) = applications.sockets(name).find(|path| UnixStream::connect(path).is_ok()) {
            return Ok(Some(Updates::at(Place::Unix(path)).with_patience(PATIENCE)));
        }
        if Instant::now() > until {
            return Err(Error::Untold { name: name.to_owned(), reason: "its helper does not listen".into() });
        }
        sleep(LOOK_AGAIN).await;
    }
    Ok(None)
}
