//! What the database says of its tables, read anew after each change of it (rule Q18).

mod mysql;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use verbena_statements::{Analyser, Dialect, Product as Server, Schema};

use crate::address::{Address, Product};

/// How long the database may take to show its catalog.
const PATIENCE: Duration = Duration::from_secs(10);
/// After a failure it is asked again after so long.
const AGAIN: Duration = Duration::from_secs(1);
/// Default databases that are remembered apart.
const DEFAULTS: usize = 64;

/// What the database is, as its catalog said at one moment.
#[derive(Clone, Debug)]
pub struct Catalog {
    /// How its statements are read.
    pub dialect: Dialect,
    /// Its tables, for a session without a default database.
    pub schema: Arc<Schema>,
}

/// Reads the catalog by a connection of its own.
pub(crate) async fn read(address: &Address) -> mysql_async::Result<Catalog> {
    match address.product {
        Product::MySql => mysql::read(address).await,
    }
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
    /// Of sessions with this default database.
    by_default: BTreeMap<Option<Vec<u8>>, Arc<Mutex<Analyser>>>,
    /// Knows no table.
    blind: Arc<Mutex<Analyser>>,
}

/// What a statement is looked at with.
#[derive(Clone)]
pub(crate) struct Under {
    pub dialect: Dialect,
    pub analyser: Arc<Mutex<Analyser>>,
}

impl Known {
    pub fn new() -> Known {
        let blind = Arc::new(Mutex::new(Analyser::new(Server::MariaDb, Schema::default())));
        let state = State { version: 1, catalog: None, by_default: BTreeMap::new(), blind };
        Known { state: Mutex::new(state), changed: Notify::new() }
    }

    /// What a statement of a session with this default database is looked at with. While the catalog is not known, no table is.
    pub fn under(&self, default: Option<&[u8]>) -> Under {
        let mut state = self.state.lock();
        let State { version, catalog, by_default, blind } = &mut *state;
        let Some((_, catalog)) = catalog.as_ref().filter(|(of, _)| of == version) else {
            return Under { dialect: Dialect::new(Server::MariaDb), analyser: blind.clone() };
        };
        let default = default.map(<[u8]>::to_vec);
        if by_default.len() >= DEFAULTS && !by_default.contains_key(&default) {
            by_default.clear();
        }
        let search = default.clone();
        let made = || {
            let schema = Schema { search: search.into_iter().collect(), ..(*catalog.schema).clone() };
            Arc::new(Mutex::new(Analyser::new(catalog.dialect.product, schema)))
        };
        Under { dialect: catalog.dialect, analyser: by_default.entry(default).or_insert_with(made).clone() }
    }

    /// A statement is about to change the catalog, or has: what was read before counts no more.
    pub fn moved(&self) {
        self.state.lock().version += 1;
        self.changed.notify_one();
    }

    fn version(&self) -> u64 {
        self.state.lock().version
    }

    fn learnt(&self, version: u64, catalog: Catalog) {
        let mut state = self.state.lock();
        if version == state.version {
            state.catalog = Some((version, catalog));
            state.by_default.clear();
        }
    }

    /// Reads the catalog whenever it has changed, for as long as the relay runs.
    pub async fn keep(self: Arc<Self>, address: Address) {
        loop {
            let version = self.version();
            match tokio::time::timeout(PATIENCE, read(&address)).await {
                Ok(Ok(catalog)) => {
                    let tables = catalog.schema.tables.len();
                    self.learnt(version, catalog);
                    tracing::debug!(tables, "the database's catalog was read");
                }
                Ok(Err(error)) => {
                    tracing::warn!(%error, "the database's catalog cannot be read: until it is, every page depends on everything");
                    tokio::time::sleep(AGAIN).await;
                    continue;
                }
                Err(_) => {
                    tracing::warn!(
                        "the database does not show its catalog: until it does, every page depends on everything"
                    );
                    continue;
                }
            }
            while self.version() == version {
                self.changed.notified().await;
            }
        }
    }
}
