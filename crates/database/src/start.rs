//! A relay that runs.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::Mutex;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;
use verbena_content::service::Content;
use verbena_metrics::Registry;
use verbena_relay::mysql::Mysql;
use verbena_relay::postgres::Postgres;
use verbena_relay::{Limits, Listener, ServeLimits, serve};
use verbena_statements::{FillRules, Fills};

use crate::address::{Address, Product};
use crate::bracket::Homes;
use crate::catalog::Known;
use crate::config::DatabaseConfig;
use crate::error::DatabaseError;
use crate::postgres;
use crate::session::{Session, Shared};

/// A relay that runs on a thread of its own.
pub struct Database {
    address: SocketAddr,
    socket: PathBuf,
    upstream: Address,
    fills: Arc<Mutex<Fills>>,
    is_complete: bool,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Database {
    /// Starts the relay that the configuration asks for; none if it asks for none. `place` is the directory of this node's sockets and the beginning of their names.
    ///
    /// # Errors
    /// Why there is none.
    pub fn start(
        config: &DatabaseConfig,
        content: Content,
        place: &Path,
        registry: &Registry,
    ) -> Result<Option<Database>, DatabaseError> {
        let Some(upstream) = config.address()? else { return Ok(None) };
        let listen = config.listen.unwrap_or_else(|| upstream.beside());
        let failed = |reason| DatabaseError::Listen { address: listen, reason };
        let listener = std::net::TcpListener::bind(listen).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let socket = upstream.socket_beside(place, address.port());
        let local = bind(&socket).map_err(|reason| DatabaseError::Socket { path: socket.clone(), reason })?;

        let fills = Arc::new(Mutex::new(Fills::new(FillRules::default())));
        let statements = registry.family(
            "verbena_database_statements_total",
            "Statements that the relay has seen, by whether what they read and touch could be named.",
            ["names"],
            4,
        )?;
        let begun = registry.family(
            "verbena_database_updates_total",
            "Commits that the relay has held, by what it began for them.",
            ["scope"],
            4,
        )?;
        let open = fills.clone();
        registry.gauge_from(
            "verbena_database_fills",
            "Pages that are being made of what the database answers.",
            move || open.lock().len() as f64,
        )?;
        let known = Arc::new(Known::new(upstream.product));
        let shared = Arc::new(Shared { known: known.clone(), fills: fills.clone(), statements });
        let homes = Homes { content, identity: upstream.identity().into(), begun };
        let (stop, mut stopped) = watch::channel(false);
        let (catalog_of, to, product) = (upstream.clone(), upstream.upstream(), upstream.product);
        let relay = async move {
            let listeners =
                [TcpListener::from_std(listener).map(Listener::Tcp), UnixListener::from_std(local).map(Listener::Unix)];
            let listeners: Vec<Listener> = match listeners.into_iter().collect() {
                Ok(listeners) => listeners,
                Err(error) => return tracing::error!(%error, "the relay's listeners cannot be used"),
            };
            let keeper = catalog_of.user.is_some().then(|| tokio::spawn(known.keep(catalog_of)));
            let told = async move {
                // Its sender is gone with the proxy.
                let _ = stopped.wait_for(|stop| *stop).await;
            };
            let limits = ServeLimits::default();
            match product {
                Product::MySql => {
                    let conversation = move || Mysql::new(Session::new(shared.clone()), Limits::default());
                    serve(listeners, to, limits, homes, conversation, told).await;
                }
                Product::PostgreSql => {
                    let conversation = move || Postgres::new(postgres::Session::new(shared.clone()), Limits::default());
                    serve(listeners, to, limits, homes, conversation, told).await;
                }
            }
            if let Some(keeper) = keeper {
                keeper.abort();
            }
        };
        let thread = std::thread::Builder::new().name("relay".into()).spawn(move || {
            // Made here, because it may not end where others run.
            match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime.block_on(relay),
                Err(error) => tracing::error!(%error, "the relay cannot run"),
            }
        });
        let thread = Some(thread.map_err(DatabaseError::Thread)?);
        Ok(Some(Database { address, socket, upstream, fills, is_complete: config.complete, stop, thread }))
    }

    /// Where the application connects instead of the database.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The same by a socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The database itself.
    pub fn upstream(&self) -> &Address {
        &self.upstream
    }

    /// The fills under way, for the proxy of this process.
    pub fn fills(&self) -> Arc<Mutex<Fills>> {
        self.fills.clone()
    }

    /// What stands before the names of this database.
    pub fn identity(&self) -> Arc<[u8]> {
        self.upstream.identity().into()
    }

    /// Whether pages are promised to be made of the database alone.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Takes no more connections, lets those that there are come to rest, and ends.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        // The thread may have ended.
        let _ = self.stop.send(true);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of the relay panicked");
        }
        // The next one replaces it.
        let _ = fs::remove_file(&self.socket);
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        self.end();
    }
}

/// A socket that every user of this machine may connect to, as to the database's own: the database asks who they are.
fn bind(path: &Path) -> std::io::Result<std::os::unix::net::UnixListener> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = std::os::unix::net::UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o666))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}
