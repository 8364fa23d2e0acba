//! Changes that went around the relay, from the database's own log: the announced weaker net (rule Q21).
//!
//! A relay holds each commit that passes it until every home knows. What commits on another connection it cannot hold: it is in the binlog of MySQL and MariaDB, or in the logical replication of PostgreSQL,
//! a moment after it took effect, and is purged then. **Weaker**: in that moment a page may be a hit that shows what was before. Rows that a cascade removes are not in MariaDB's log.
//!
//! Where the log cannot be followed on from where it was read (another server, one that went back, one that has thrown it away) everything is purged.

mod around;
mod mysql;
mod pgoutput;
mod postgres;

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use verbena_content::Change;
use verbena_content::service::Content;
use verbena_metrics::{Counter, Family};
use verbena_statements::Names;
use verbena_terms::{BootClock, Clock, Complaints, Time};

use crate::address::{Address, Product};
use crate::bracket::scope;
use crate::catalog::{CatalogError, Known};
use crate::explain::said;
pub(crate) use around::Around;
use around::Written;

/// How long until the log is asked for again that could not be read.
const AGAIN: Duration = Duration::from_secs(1);
/// How often that is said.
const SAYS_EVERY: Duration = Duration::from_secs(60);
/// How long clients wait for a log that was read and is not there any more: the database may be another one then.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often it is looked what of the relay's commits has passed.
const PASSES_EVERY: Duration = Duration::from_millis(100);
/// How long a commit is expected of which no answer came.
const UNKNOWN: Duration = Duration::from_secs(60);
/// How long until a purge is tried again that was refused.
const PURGES_AGAIN: Duration = Duration::from_millis(100);

/// The commits that the relay holds, for those who hold them.
#[derive(Clone, Default)]
pub(crate) struct Held(Option<Arc<Mutex<Around>>>);

impl Held {
    /// Of a log that is read, or of none.
    pub(crate) fn of(around: Option<Arc<Mutex<Around>>>) -> Held {
        Held(around)
    }

    /// These commits are about to be forwarded, each for itself.
    pub(crate) fn held(&self, writes: Vec<Names>) -> Vec<u64> {
        let Some(around) = &self.0 else { return Vec::new() };
        let mut around = around.lock();
        writes.into_iter().map(|names| around.held(names)).collect()
    }

    pub(crate) fn answered(&self, numbers: &[u64]) {
        self.all(numbers, |around, number| around.answered(number, BootClock.now()));
    }

    pub(crate) fn unknown(&self, numbers: &[u64]) {
        self.all(numbers, |around, number| around.answered(number, BootClock.now() + UNKNOWN));
    }

    pub(crate) fn unsent(&self, numbers: &[u64]) {
        self.all(numbers, Around::unsent);
    }

    fn all(&self, numbers: &[u64], each: impl Fn(&mut Around, u64)) {
        if let Some(around) = &self.0 {
            let mut around = around.lock();
            numbers.iter().for_each(|number| each(&mut around, *number));
        }
    }
}

/// Why the log is not read.
#[derive(Debug, thiserror::Error)]
enum CaptureError {
    #[error(transparent)]
    Database(#[from] CatalogError),
    #[error("{0}")]
    Setting(String),
    #[error("the log is not in the form that is known: {0}")]
    Malformed(String),
    #[error("the database says nothing any more")]
    Silent,
}

impl From<mysql_async::Error> for CaptureError {
    fn from(error: mysql_async::Error) -> Self {
        CaptureError::Database(error.into())
    }
}

impl From<tokio_postgres::Error> for CaptureError {
    fn from(error: tokio_postgres::Error) -> Self {
        CaptureError::Database(error.into())
    }
}

/// What becomes of what the log shows.
pub(crate) struct Capture {
    /// What is expected in the log.
    pub around: Arc<Mutex<Around>>,
    pub content: Content,
    /// The identity of the database, in front of each name.
    pub identity: Arc<[u8]>,
    pub known: Arc<Known>,
    /// Transactions, by whether the relay held them.
    pub seen: Family<Counter, 1>,
    /// Clients may be read: the log is read, or was not there for a while.
    pub is_read: watch::Sender<bool>,
    /// The log is being read.
    pub is_followed: AtomicBool,
}

impl Capture {
    /// Reads the log for as long as the relay runs.
    pub(crate) async fn run(self, address: Address) {
        let mut complaints = Complaints::every(SAYS_EVERY);
        let mut last = None;
        let mut waits_until = Instant::now() + PATIENCE;
        loop {
            let follows = async {
                match address.product {
                    Product::MySql => mysql::follow(&self, &address, &mut last).await,
                    Product::PostgreSql => postgres::follow(&self, &address).await,
                }
            };
            let error =
                tokio::select! { error = follows => error, never = self.gives_up(waits_until) => match never {} };
            self.around.lock().rests();
            match error {
                // What is wrong with the settings stays wrong.
                CaptureError::Setting(_) => waits_until = Instant::now(),
                // It was read until now: clients wait for it, since they may be at another database.
                _ if self.is_followed.swap(false, Ordering::Relaxed) => {
                    waits_until = Instant::now() + PATIENCE;
                    self.is_read.send_replace(false);
                }
                _ => {}
            }
            if complaints.another(BootClock.now()).is_some() {
                tracing::warn!(database = %address, %error, "the database's log is not read (database.capture): changes that go around the relay are not seen");
            }
            tokio::select! { () = sleep(AGAIN) => {}, never = self.gives_up(waits_until) => match never {} };
        }
    }

    /// Clients wait until then for a log that is not read, and no longer.
    async fn gives_up(&self, until: Instant) -> Infallible {
        sleep_until(until).await;
        self.is_read.send_replace(true);
        std::future::pending().await
    }

    /// The log is read from here on, from where it stood at this moment or later. `follows` says that nothing was missed.
    async fn begins(&self, follows: bool, at: Time) {
        self.around.lock().begins();
        if !follows {
            self.passed(at);
            self.known.moved();
            self.purge(&Names::Everything).await;
        }
        self.is_followed.store(true, Ordering::Relaxed);
        tracing::info!(follows, "the database's log is read (database.capture)");
        self.is_read.send_replace(true);
    }

    /// The log shows a transaction. `told` says what of it people are told.
    async fn committed(&self, written: &Written, told: &str) {
        if written.is_nothing() {
            return;
        }
        let found = self.around.lock().committed(written);
        let Some(around) = found else {
            return self.seen.with(["relay"]).increment();
        };
        if around.is_more {
            self.known.moved();
        }
        let names = around.names();
        tracing::warn!(
            touches = said(&names).join("; "),
            told,
            "a change went around the relay: it is purged a moment after it took effect (database.capture, weaker)"
        );
        self.purge(&names).await;
        self.seen.with(["around"]).increment();
    }

    /// A definition has changed on another connection, or on the relay's.
    async fn defined(&self, statement: &str) {
        // The relay's own definitions touch tables that stand in no row of the log.
        let is_ours = self.around.lock().defined();
        if is_ours {
            return self.seen.with(["relay"]).increment();
        }
        tracing::warn!(
            statement,
            "a definition went around the relay: everything is purged a moment after it took effect (database.capture, weaker)"
        );
        self.known.moved();
        self.purge(&Names::Everything).await;
        self.seen.with(["around"]).increment();
    }

    /// The log was read up to where it stood at this moment.
    fn passed(&self, at: Time) {
        self.around.lock().passed(at);
    }

    fn is_waiting(&self) -> bool {
        self.around.lock().is_waiting()
    }

    /// Until every home has it: without a lease nothing is a hit here, and others ask for theirs.
    async fn purge(&self, names: &Names) {
        let scope = scope(&self.content, &self.identity, names);
        while let Err(error) = self.content.purge(Change::Write, scope.clone()).await {
            tracing::debug!(%error, "a purge is tried again");
            sleep(PURGES_AGAIN).await;
        }
    }
}
