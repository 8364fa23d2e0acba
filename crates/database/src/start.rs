//! A relay that runs.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;
use verbena_content::service::Content;
use verbena_listening::{Certificates, Port};
use verbena_metrics::Registry;
use verbena_reads::Recorder;
use verbena_relay::mysql::Mysql;
use verbena_relay::postgres::Postgres;
use verbena_relay::{KeptSocket, Limits, Listener, ServeLimits, Tls, bind_socket, serve};
use verbena_statements::{FillRules, Fills};

use crate::address::{Address, Product};
use crate::bracket::Homes;
use crate::capture::{Capture, Held};
use crate::catalog::Known;
use crate::config::{DatabaseConfig, Scheme};
use crate::elsewhere::Recorded;
use crate::error::DatabaseError;
use crate::postgres;
use crate::session::{Session, Shared};
use crate::waiting::Queue;
use crate::watch::{Watchers, watch_socket};

/// Every user of this machine may connect, as to the database's own socket: the database asks who they are.
const FOR_ALL: u32 = 0o666;
/// What is shown to watchers carries what the application's users wrote.
const FOR_THIS_USER: u32 = 0o600;
/// How often it is looked whether statements may be passed.
const LOOKS_EVERY: Duration = Duration::from_millis(10);
/// How often it is looked whether there are other certificates.
const RENEWED_EVERY: Duration = Duration::from_secs(1);

/// A relay that runs on a thread of its own.
pub struct Database {
    address: SocketAddr,
    socket: PathBuf,
    watched_at: PathBuf,
    upstream: Address,
    fills: Arc<Mutex<Fills>>,
    is_complete: bool,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

/// A relay whose port is taken, and that does not listen yet.
pub struct Bound {
    port: Port,
    upstream: Address,
    is_complete: bool,
    captures: bool,
    /// How long statements wait for turns, where they take any.
    longest_turn: Option<Duration>,
    certificates: Option<Arc<Certificates>>,
}

impl Bound {
    /// Takes the port of the relay that the configuration asks for; none if it asks for none. Before a helper joins a cluster that it would have to leave again where the port is
    /// another's. Clients are refused until it [starts](Database::start).
    ///
    /// # Errors
    /// Why there can be none.
    pub fn of(config: &DatabaseConfig) -> Result<Option<Bound>, DatabaseError> {
        let Some(upstream) = config.address()? else { return Ok(None) };
        let certificates = config.certificates()?;
        let listen = config.listen.unwrap_or_else(|| upstream.beside());
        let port = Port::take(listen).map_err(|reason| DatabaseError::Listen { address: listen, reason })?;
        let longest_turn = (config.scheme == Scheme::Serialised).then_some(config.longest_turn.0);
        let (is_complete, captures) = (config.complete, config.capture);
        Ok(Some(Bound { port, upstream, is_complete, captures, longest_turn, certificates }))
    }
}

impl Database {
    /// Listens, and relays from then on. `recorder` is the log by which proxies of other processes know what is read; `helper` is the socket of this node's helper: the relay's stand
    /// beside it.
    ///
    /// # Errors
    /// Why there is none.
    pub fn start(
        bound: Bound,
        (content, recorder): (Content, Option<Recorder>),
        helper: &Path,
        registry: &Registry,
    ) -> Result<Database, DatabaseError> {
        let Bound { port, upstream, is_complete, captures, longest_turn, certificates } = bound;
        let tls = tls(certificates.as_ref(), &upstream)?;
        let encryption = tls.encryption();
        let listen = port.address();
        let failed = |reason| DatabaseError::Listen { address: listen, reason };
        let listener = port.listen().map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let socket = upstream.socket_beside(&helper.with_extension(""), address.port());
        let watched_at = watch_socket(helper);
        let bound = |path: &Path, mode| {
            bind_socket(path, mode).map_err(|reason| DatabaseError::Socket { path: path.to_owned(), reason })
        };
        let (local, watched) = (bound(&socket, FOR_ALL)?, bound(&watched_at, FOR_THIS_USER)?);

        let identity: Arc<[u8]> = upstream.identity().into();
        let mut fills = Fills::new(FillRules::default());
        if let Some(recorder) = recorder.clone() {
            fills.tell(Box::new(Recorded { recorder, content: content.clone(), identity: identity.clone() }));
        }
        let fills = Arc::new(Mutex::new(fills));
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
        let looked = registry.family(
            "verbena_database_catalog_total",
            "How often the relay looked at the database's catalog, because a statement may have changed it: it was read, or was unchanged.",
            ["found"],
            4,
        )?;
        let open = fills.clone();
        registry.gauge_from(
            "verbena_database_fills",
            "Pages that are being made of what the database answers.",
            move || open.lock().len() as f64,
        )?;
        let known = Arc::new(Known::new(upstream.product));
        let watchers = Arc::new(Watchers::default());
        let turns = longest_turn.map(|limit| Queue::new(limit, registry)).transpose()?;
        let shared = Arc::new(Shared {
            known: known.clone(),
            fills: fills.clone(),
            statements,
            watchers: watchers.clone(),
            takes_turns: turns.is_some(),
        });
        let around = captures.then(Arc::default);
        let (is_captured, captured) = watch::channel(!captures);
        let capture = match &around {
            Some(around) => {
                let seen = registry.family(
                    "verbena_database_captured_total",
                    "Transactions that the database's log has shown, by whether the relay had held them or they went around it.",
                    ["by"],
                    4,
                )?;
                let (content, identity) = (content.clone(), identity.clone());
                Some(Capture {
                    around: Arc::clone(around),
                    content,
                    identity,
                    known: known.clone(),
                    seen,
                    is_read: is_captured,
                    is_followed: AtomicBool::new(false),
                })
            }
            None => None,
        };
        let held = Held::of(around);
        let homes = Homes { content, identity, begun, watchers: watchers.clone(), held, turns };
        let (stop, mut stopped) = watch::channel(false);
        let (catalog_of, to, product) = (upstream.clone(), upstream.upstream(), upstream.product);
        let kept_at = socket.clone();
        let relay = async move {
            let local = KeptSocket::new(kept_at, FOR_ALL, local);
            let listeners = [TcpListener::from_std(listener).map(Listener::Tcp), local.map(Listener::Kept)];
            let listeners: Vec<Listener> = match listeners.into_iter().collect() {
                Ok(listeners) => listeners,
                Err(error) => return tracing::error!(%error, "the relay's listeners cannot be used"),
            };
            let shown = UnixListener::from_std(watched).map(|listener| tokio::spawn(watchers.serve(listener)));
            let keeper =
                catalog_of.user.is_some().then(|| tokio::spawn(known.clone().keep(catalog_of.clone(), looked)));
            if keeper.is_none() {
                let database = &catalog_of;
                tracing::warn!(%database, "database.to names no user, so nothing is known of the tables, and every page depends on everything: write USER@ before the host");
            }
            let (reads, is_read) = watch::channel(true);
            let reads = Arc::new(reads);
            let rests = keeper.is_some().then(|| tokio::spawn(known.rest(reads.clone())));
            let (passes, is_passed) = watch::channel(recorder.is_none());
            let passes = recorder.map(|recorder| tokio::spawn(pass(recorder, is_read.clone(), passes)));
            let is_read = if passes.is_some() { is_passed } else { is_read };
            let log_of = catalog_of.clone();
            let captures = capture.map(|capture| tokio::spawn(capture.run(log_of)));
            let (both, is_both) = watch::channel(false);
            let joins = captures.is_some().then(|| tokio::spawn(join([is_read.clone(), captured], both)));
            let is_read = if joins.is_some() { is_both } else { is_read };
            let renewals = certificates.map(|certificates| tokio::spawn(renew(certificates)));
            let told = async move {
                // Its sender is gone with the proxy.
                let _ = stopped.wait_for(|stop| *stop).await;
            };
            let limits = ServeLimits::default();
            match product {
                Product::MySql => {
                    let conversation =
                        move || Mysql::new(Session::new(shared.clone()), Limits::default()).encrypting(encryption);
                    serve((listeners, is_read), (to, tls), limits, homes, conversation, told).await;
                }
                Product::PostgreSql => {
                    let conversation = move || {
                        let session = postgres::Session::new(shared.clone());
                        Postgres::new(session, Limits::default()).encrypting(encryption)
                    };
                    serve((listeners, is_read), (to, tls), limits, homes, conversation, told).await;
                }
            }
            drop(reads);
            for task in [keeper, rests, passes, captures, joins, renewals].into_iter().flatten().chain(shown.ok()) {
                task.abort();
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
        Ok(Database { address, socket, watched_at, upstream, fills, is_complete, stop, thread })
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
        for path in [&self.socket, &self.watched_at] {
            let _ = fs::remove_file(path);
        }
    }
}

fn tls(certificates: Option<&Arc<Certificates>>, upstream: &Address) -> Result<Tls, DatabaseError> {
    // Clients of PostgreSQL 17 ask for this protocol.
    let clients = certificates.map(|certificates| certificates.server(&[b"postgresql"])).transpose();
    let clients = clients.map_err(|error| DatabaseError::Setting { key: "tls_cert", problem: error.to_string() })?;
    let server = upstream.trust.as_ref().map(|trust| (trust.client.clone(), trust.name.clone()));
    Ok(Tls { clients, server, server_is_near: upstream.socket.is_some() })
}

/// Reads certificates again when their files change.
async fn renew(certificates: Arc<Certificates>) {
    loop {
        tokio::time::sleep(RENEWED_EVERY).await;
        certificates.refresh(false);
    }
}

/// Clients are read while the catalog is known, and the proxies of the cluster know of this relay (rule Q19).
async fn pass(recorder: Recorder, mut is_read: watch::Receiver<bool>, passes: watch::Sender<bool>) {
    loop {
        let may = *is_read.borrow_and_update() && recorder.may_pass();
        passes.send_if_modified(|passes| std::mem::replace(passes, may) != may);
        tokio::select! {
            changed = is_read.changed() => {
                if changed.is_err() {
                    return;
                }
            }
            () = tokio::time::sleep(LOOKS_EVERY) => {}
        }
    }
}

/// Says when both are true, for as long as they are there.
async fn join(mut of: [watch::Receiver<bool>; 2], both: watch::Sender<bool>) {
    loop {
        let [one, other] = of.each_mut().map(|one| *one.borrow_and_update());
        let now = one && other;
        both.send_if_modified(|both| std::mem::replace(both, now) != now);
        let [first, second] = &mut of;
        let changed = tokio::select! { changed = first.changed() => changed, changed = second.changed() => changed };
        if changed.is_err() {
            return;
        }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        self.end();
    }
}
