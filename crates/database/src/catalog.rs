//! What the database says of its tables, read anew after each change of it (rule Q18).

mod encrypted;
mod fingerprint;
mod mysql;
mod partitions;
mod postgres;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mysql_async::Conn;
use parking_lot::Mutex;
use thiserror::Error;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_postgres::Client;
use verbena_metrics::{Counter, Family};
use verbena_statements::{Analyser, Dialect, Product as Server, Schema};
use verbena_terms::{BootClock, Clock, Complaints};

use self::fingerprint::Fingerprint;
pub(crate) use self::mysql::texts;
pub(crate) use self::postgres::rows;
use crate::address::{Address, Product};
use crate::error::DatabaseError;
use crate::search::Paths;

/// How long the database may take to show its catalog.
const PATIENCE: Duration = Duration::from_secs(10);
/// After a failure it is asked again after so long.
const AGAIN: Duration = Duration::from_secs(1);
/// How often it is said that the catalog cannot be read.
const SAYS_EVERY: Duration = Duration::from_secs(60);
/// How long clients wait for the first catalog, and for one that has changed, at first and at most.
const FIRST_REST: Duration = Duration::from_secs(5);
const REST: Duration = Duration::from_secs(1);
const LONGEST_REST: Duration = Duration::from_secs(8);
/// How long they do not wait after that: so much longer than they waited, at most.
const BETWEEN_RESTS: u32 = 10;
const LONGEST_BETWEEN_RESTS: Duration = Duration::from_secs(20);
/// How often it is looked whether the catalog is known.
const LOOKS_EVERY: Duration = Duration::from_millis(10);
/// Default databases, or search paths, that are remembered apart.
const SEARCHES: usize = 64;

/// What the database is, as its catalog said at one moment.
#[derive(Clone, Debug)]
pub struct Catalog {
    /// How its statements are read.
    pub dialect: Dialect,
    /// Its tables, for a session without a default database.
    pub schema: Arc<Schema>,
    /// PostgreSQL: where sessions look for names.
    pub(crate) paths: Paths,
    /// By which it is seen that it has not changed; nothing where a change was under way when it was read.
    pub(crate) fingerprint: Option<Fingerprint>,
}

/// Why the catalog cannot be read.
#[derive(Debug, Error)]
pub(crate) enum CatalogError {
    #[error("{}", once(.0))]
    MySql(#[from] mysql_async::Error),
    #[error("{}", said(.0))]
    Postgres(#[from] tokio_postgres::Error),
    #[error("{0} is no directory or socket of PostgreSQL")]
    Socket(String),
}

/// A failure of the connection repeats what kind of error it is.
fn once(error: &mysql_async::Error) -> String {
    error.to_string().trim_start_matches("Input/output error: ").to_owned()
}

/// What the server said, or else what the client library says.
fn said(error: &tokio_postgres::Error) -> String {
    match (error.as_db_error(), std::error::Error::source(error)) {
        (Some(error), _) => format!("{}: {} ({})", error.severity(), error.message(), error.code().code()),
        (None, Some(source)) => format!("{error}: {source}"),
        (None, None) => error.to_string(),
    }
}

impl Catalog {
    /// Reads the catalog of a database by a connection of its own.
    ///
    /// # Errors
    /// The address names no user, or the database refuses.
    pub async fn read(address: &Address) -> Result<Catalog, DatabaseError> {
        let refused = |problem| DatabaseError::Setting { key: "to", problem };
        if address.user.is_none() {
            return Err(refused("without a user the catalog cannot be read: write USER@ before the host".into()));
        }
        let unread = |reason: String| DatabaseError::Catalog { database: address.to_string(), reason };
        let catalog = read(address, None, || false).await.map_err(|error| unread(error.to_string()))?;
        catalog.ok_or_else(|| unread("it shows none".into()))
    }

    /// What looks at statements of a session that finds tables in these databases, or schemas.
    pub fn analyser(&self, search: Vec<Vec<u8>>) -> Analyser {
        Analyser::new(self.dialect.product, Schema { search, ..(*self.schema).clone() })
    }
}

/// Reads the catalog by a connection of its own; nothing if it is still the one of this fingerprint. `is_quiet` says whether no change is under way, nor was since this was asked for.
pub(crate) async fn read(
    address: &Address,
    before: Option<&Fingerprint>,
    is_quiet: impl Fn() -> bool,
) -> Result<Option<Catalog>, CatalogError> {
    match address.product {
        Product::MySql => Ok(mysql::read(address, before, is_quiet).await?),
        Product::PostgreSql => postgres::read(address, before).await,
    }
}

/// A connection of MySQL as the relay's own user.
pub(crate) async fn mysql_connection(address: &Address) -> Result<Conn, CatalogError> {
    Ok(mysql::connection(address).await?)
}

/// The same of PostgreSQL, and the task that carries it.
pub(crate) async fn postgres_connection(address: &Address) -> Result<(Client, JoinHandle<()>), CatalogError> {
    postgres::connection(address).await
}

/// The catalog that holds now, for all sessions.
pub(crate) struct Known {
    state: Mutex<State>,
    changed: Notify,
}

struct State {
    /// Counts what may have changed the catalog.
    version: u64,
    /// Which version this is of. Under another one nothing is known.
    catalog: Option<(u64, Catalog)>,
    /// Changes of the catalog that are under way at the database: nothing is known meanwhile.
    moving: usize,
    /// Of sessions that look for names there.
    by_search: BTreeMap<Vec<Vec<u8>>, Arc<Mutex<Analyser>>>,
    /// Knows no table.
    blind: Under,
}

/// What a statement is looked at with.
#[derive(Clone)]
pub(crate) struct Under {
    pub dialect: Dialect,
    pub analyser: Arc<Mutex<Analyser>>,
}

/// A change of the catalog that is under way.
pub(crate) struct Moving(Arc<Known>);

impl Drop for Moving {
    fn drop(&mut self) {
        self.0.state.lock().moving -= 1;
        self.0.moved();
    }
}

impl Known {
    pub fn new(product: Product) -> Known {
        let server = match product {
            Product::MySql => Server::MariaDb,
            Product::PostgreSql => Server::PostgreSql,
        };
        let analyser = Arc::new(Mutex::new(Analyser::new(server, Schema::default())));
        let blind = Under { dialect: Dialect::new(server), analyser };
        let state = State { version: 1, catalog: None, moving: 0, by_search: BTreeMap::new(), blind };
        Known { state: Mutex::new(state), changed: Notify::new() }
    }

    /// What a statement of a session with this default database is looked at with. While the catalog is not known, no table is.
    pub fn under(&self, default: Option<&[u8]>) -> Under {
        let search: Vec<Vec<u8>> = default.into_iter().map(<[u8]>::to_vec).collect();
        self.looking(|_| Some(search))
    }

    /// Likewise, of a session that looks for names where `search` says; without that no table is known either.
    pub fn looking(&self, search: impl FnOnce(&Paths) -> Option<Vec<Vec<u8>>>) -> Under {
        let mut state = self.state.lock();
        let State { version, catalog, by_search, blind, moving } = &mut *state;
        let Some((_, catalog)) = catalog.as_ref().filter(|(of, _)| of == version && *moving == 0) else {
            return blind.clone();
        };
        let Some(search) = search(&catalog.paths) else { return blind.clone() };
        if by_search.len() >= SEARCHES && !by_search.contains_key(&search) {
            by_search.clear();
        }
        let made = || Arc::new(Mutex::new(catalog.analyser(search.clone())));
        let analyser = match by_search.get(&search) {
            Some(analyser) => analyser.clone(),
            None => by_search.entry(search.clone()).or_insert_with(made).clone(),
        };
        Under { dialect: catalog.dialect, analyser }
    }

    /// What a statement is looked at with that may see another catalog than all others: no table is known.
    pub fn blind(&self) -> Under {
        let state = self.state.lock();
        let dialect = state.catalog.as_ref().map_or(state.blind.dialect, |(_, catalog)| catalog.dialect);
        Under { dialect, analyser: state.blind.analyser.clone() }
    }

    /// A statement is about to change the catalog. Until its answer is here nothing is known of it.
    pub fn moving(self: &Arc<Self>) -> Moving {
        self.state.lock().moving += 1;
        Moving(self.clone())
    }

    /// A statement has changed the catalog: what was read before counts no more.
    pub fn moved(&self) {
        self.state.lock().version += 1;
        self.changed.notify_one();
    }

    /// The name of a table as the log of the database has it. A partition is its root. `None`: it is not known, as one that was just made.
    pub fn table(&self, space: &[u8], table: &[u8]) -> Option<Vec<u8>> {
        let state = self.state.lock();
        let (_, catalog) = state.catalog.as_ref()?;
        let name = match catalog.schema.folds_tables {
            true => Schema::name(&space.to_ascii_lowercase(), &table.to_ascii_lowercase()),
            false => Schema::name(space, table),
        };
        let table = catalog.schema.tables.get(&name)?;
        Some(table.root.clone().unwrap_or(name))
    }

    /// Counts what may have changed the catalog.
    pub fn version(&self) -> u64 {
        self.state.lock().version
    }

    fn fingerprint(&self) -> Option<Fingerprint> {
        self.state.lock().catalog.as_ref().and_then(|(_, catalog)| catalog.fingerprint.clone())
    }

    /// Whether statements are looked at under the catalog.
    pub fn is_known(&self) -> bool {
        let state = self.state.lock();
        state.moving == 0 && state.catalog.as_ref().is_some_and(|(of, _)| *of == state.version)
    }

    /// Says when clients are read. While the catalog is not known a statement that only reads may be one that changes it, for all that is known, and where many come the catalog
    /// would never be known again: so they wait until it is, but not for long, and not often.
    pub async fn rest(self: Arc<Self>, reads: Arc<watch::Sender<bool>>) {
        let mut waits = FIRST_REST;
        loop {
            reads.send_replace(false);
            let until = Instant::now() + waits;
            while !self.is_known() && Instant::now() < until {
                sleep(LOOKS_EVERY).await;
            }
            reads.send_replace(true);
            let between;
            (between, waits) = after_rest(waits, self.is_known());
            sleep(between).await;
            while self.is_known() {
                sleep(LOOKS_EVERY).await;
            }
        }
    }

    /// No change is under way, and none has ended since this version.
    fn is_quiet(&self, version: u64) -> bool {
        let state = self.state.lock();
        state.version == version && state.moving == 0
    }

    /// The catalog that is known holds under this version too.
    fn is_still(&self, version: u64) {
        let mut state = self.state.lock();
        if version == state.version
            && let Some((of, _)) = &mut state.catalog
        {
            *of = version;
        }
    }

    pub fn learnt(&self, version: u64, catalog: Catalog) {
        let mut state = self.state.lock();
        if version == state.version {
            state.catalog = Some((version, catalog));
            state.by_search.clear();
        }
    }

    /// Reads the catalog whenever it has changed, for as long as the relay runs. `looked` counts how often it was `read`, and how often it was found `unchanged`.
    pub async fn keep(self: Arc<Self>, address: Address, looked: Family<Counter, 1>) {
        let mut complaints = Complaints::every(SAYS_EVERY);
        let mut is_unread = false;
        let mut may_say = || complaints.another(BootClock.now()).is_some();
        loop {
            let (version, before) = (self.version(), self.fingerprint());
            let is_quiet = || self.is_quiet(version);
            match tokio::time::timeout(PATIENCE, read(&address, before.as_ref(), is_quiet)).await {
                Ok(Ok(Some(catalog))) => {
                    if std::mem::take(&mut is_unread) {
                        tracing::info!(database = %address, "the database's catalog is read again");
                    }
                    let tables = catalog.schema.tables.len();
                    self.learnt(version, catalog);
                    looked.with(["read"]).increment();
                    tracing::debug!(tables, "the database's catalog was read");
                }
                Ok(Ok(None)) => {
                    self.is_still(version);
                    looked.with(["unchanged"]).increment();
                }
                Ok(Err(error)) => {
                    is_unread = true;
                    if may_say() {
                        tracing::warn!(database = %address, %error, "the database's catalog cannot be read: until it is, every page depends on everything");
                    }
                    tokio::time::sleep(AGAIN).await;
                    continue;
                }
                Err(_) => {
                    is_unread = true;
                    if may_say() {
                        tracing::warn!(database = %address, "the database does not show its catalog: until it does, every page depends on everything");
                    }
                    continue;
                }
            }
            while self.version() == version {
                self.changed.notified().await;
            }
        }
    }
}

/// How long clients do not wait after they waited so long, and how long they wait the next time: twice as long where the database had not shown its catalog by then, for it
/// would not the next time either.
fn after_rest(waited: Duration, is_known: bool) -> (Duration, Duration) {
    let between = (BETWEEN_RESTS * waited).min(LONGEST_BETWEEN_RESTS);
    (between, if is_known { REST } else { (2 * waited).min(LONGEST_REST) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_wait_longer_where_the_catalog_takes_longer_and_as_at_first_once_it_is_known() {
        let seconds = Duration::from_secs;
        let (mut waits, mut all) = (REST, vec![]);
        for _ in 0..5 {
            let (between, next) = after_rest(waits, false);
            all.push((waits, between));
            waits = next;
        }
        let expected = [(1, 10), (2, 20), (4, 20), (8, 20), (8, 20)];
        assert_eq!(all, expected.map(|(waited, between)| (seconds(waited), seconds(between))));
        assert_eq!(after_rest(waits, true), (seconds(20), REST));
        assert_eq!(after_rest(FIRST_REST, false).1, LONGEST_REST);
    }
}
