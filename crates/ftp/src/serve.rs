//! The server: one process that takes control connections and runs a machine on each.
//!
//! A control connection is a task; a transfer has a thread while it runs. Nothing here decides what a command does.

use std::collections::HashMap;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use verbena_metrics::Registry;
use verbena_terms::{BootClock, Clock};

use crate::address::canonical;
use crate::admin;
use crate::bans::Bans;
use crate::data::Ports;
use crate::encryption::Encryption;
use crate::limits::AllLimits;
use crate::machine::LoginError;
use crate::observed::Observed;
use crate::options::{ServeError, ServeOptions};
use crate::rights::Login;
use crate::session;
use crate::users::{Users, UsersError};
use crate::who::Sessions;
use crate::xferlog::TransferLog;
use verbena_transfer::Root;
use verbena_transfer::VirtualPath;

/// Passwords that are hashed at a time: each takes 19 MiB and a core.
const MOST_HASHES: usize = 2;

/// What all sessions share.
pub(crate) struct Shared {
    pub options: ServeOptions,
    pub root: Root,
    /// Replaced as a whole when the file is read again.
    users: Mutex<Arc<Users>>,
    pub ports: Ports,
    pub log: Option<TransferLog>,
    pub encryption: Option<Arc<Encryption>>,
    pub hashes: Semaphore,
    pub sessions: Arc<Sessions>,
    pub limits: AllLimits,
    pub registry: Registry,
    pub observed: Observed,
    bans: Mutex<Bans>,
    seats: Mutex<HashMap<IpAddr, usize>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("Shared").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Shared {
    fn users(&self) -> Arc<Users> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn bans(&self) -> std::sync::MutexGuard<'_, Bans> {
        self.bans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts what came of a login.
    pub(crate) fn logged_in(&self, peer: IpAddr, error: Option<LoginError>, is_anonymous: bool) {
        let outcome = match error {
            None => "done",
            Some(LoginError::Wrong) => "wrong",
            Some(LoginError::Home) => "home",
            Some(LoginError::TooMany) => "too-many",
        };
        self.observed.logins.with([outcome]).add(1);
        match error {
            None if !is_anonymous => self.bans().succeeded(peer),
            Some(LoginError::Wrong) if self.bans().failed(peer, BootClock.now()) => {
                tracing::warn!(%peer, "banned: too many logins failed");
            }
            _ => {}
        }
    }

    /// Ends a session. False if there is none of this number.
    pub(crate) fn kick(&self, id: u64) -> bool {
        let is_there = self.sessions.kick(id);
        if is_there {
            self.observed.kicked.add(1);
            tracing::info!(id, "the administrator ended a session");
        }
        is_there
    }

    /// What a name and password give. May take long: it hashes.
    pub(crate) fn check(&self, user: &[u8], password: &[u8]) -> Option<(VirtualPath, Login)> {
        match self.options.anonymous.filter(|_| is_anonymous(user)) {
            Some(rights) => {
                let atomic_stores = self.options.atomic_stores;
                Some((VirtualPath::root(), Login { rights, atomic_stores, ..Login::default() }))
            }
            None => self.users().check(user, password),
        }
    }

    fn seats(&self) -> std::sync::MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a session in, unless there are too many.
    fn enter(self: &Arc<Self>, peer: IpAddr) -> Option<Seat> {
        let mut sessions = self.seats();
        let all: usize = sessions.values().sum();
        let own = sessions.get(&peer).copied().unwrap_or(0);
        if all >= self.options.most_sessions || own >= self.options.most_sessions_per_address {
            return None;
        }
        sessions.insert(peer, own + 1);
        drop(sessions);
        Some(Seat { shared: self.clone(), peer })
    }
}

/// Whether a name is one of those that need no password.
pub(crate) fn is_anonymous(user: &[u8]) -> bool {
    matches!(user, b"anonymous" | b"ftp")
}

/// One counted session; dropped, it is counted out.
#[derive(Debug)]
struct Seat {
    shared: Arc<Shared>,
    peer: IpAddr,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut sessions = self.shared.seats();
        if let Some(count) = sessions.get_mut(&self.peer) {
            *count -= 1;
            if *count == 0 {
                sessions.remove(&self.peer);
            }
        }
    }
}

/// A server that listens.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    metrics: Option<TcpListener>,
    control: Option<admin::Socket>,
    shared: Arc<Shared>,
}

/// What can be told to a server that runs.
#[derive(Clone, Debug)]
pub struct Handle(Arc<Shared>);

impl Handle {
    /// Reads the file of users again: how many there are. Sessions keep what their login gave. If the file is wrong, the
    /// users of before stay.
    pub fn reload(&self) -> Result<usize, UsersError> {
        let Some(path) = &self.0.options.users else { return Ok(0) };
        let users = Arc::new(Users::load(path)?);
        let count = users.len();
        *self.0.users.lock().unwrap_or_else(PoisonError::into_inner) = users;
        Ok(count)
    }
}

impl Server {
    /// Opens everything that the options name. Must be called within a tokio runtime with input, output and time.
    pub fn bind(options: ServeOptions) -> Result<Server, ServeError> {
        let unusable = |reason| ServeError::Root { path: options.root.clone(), reason };
        let root = Root::open(&options.root).map_err(unusable)?;
        // The descriptor alone would be had of a directory that nobody may read.
        root.enter(&VirtualPath::root()).and_then(|()| root.entries(&VirtualPath::root())).map_err(unusable)?;
        let users = options.users.as_deref().map(Users::load).transpose()?;
        if users.is_none() && options.anonymous.is_none() {
            return Err(ServeError::Nobody);
        }
        let log = options
            .transfer_log
            .as_deref()
            .map(|path| TransferLog::open(path).map_err(|error| ServeError::Log { path: path.to_owned(), error }));
        let log = log.transpose()?;
        let encryption = options.tls.as_ref().map(Encryption::load).transpose()?.map(Arc::new);
        let at = |error| ServeError::Listen { address: options.listen, error };
        let listener = listen(options.listen).map_err(at)?;
        let address = listener.local_addr().map_err(at)?;
        let metrics =
            options.metrics.map(|address| listen(address).map_err(|error| ServeError::Listen { address, error }));
        let metrics = metrics.transpose()?;
        let control = options.control.as_deref().map(|path| {
            let path = if path.is_dir() { path.join(format!("ftp-{}.sock", address.port())) } else { path.to_owned() };
            admin::Socket::bind(&path).map_err(|error| ServeError::Control { path, error })
        });
        let control = control.transpose()?;
        let registry = Registry::new();
        let shared = Shared {
            root,
            users: Mutex::new(Arc::new(users.unwrap_or_default())),
            sessions: Arc::default(),
            limits: AllLimits::default(),
            observed: Observed::new(&registry)?,
            bans: Mutex::new(Bans::new(options.ban_after, options.ban_lasts)),
            registry,
            ports: Ports::new(options.passive_ports.clone()),
            log,
            encryption,
            hashes: Semaphore::new(MOST_HASHES),
            seats: Mutex::default(),
            options,
        };
        let shared = Arc::new(shared);
        Observed::watch(&shared.registry, &Arc::downgrade(&shared))?;
        Ok(Server { listener, address, metrics, control, shared })
    }

    /// What can be told to it while it runs.
    pub fn handle(&self) -> Handle {
        Handle(self.shared.clone())
    }

    /// The administrator's socket.
    pub fn control(&self) -> Option<std::path::PathBuf> {
        Some(self.control.as_ref()?.path.clone())
    }

    /// Where metrics are given.
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.metrics.as_ref()?.local_addr().ok()
    }

    /// Where control connections come in.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address as users type it.
    pub fn url(&self) -> String {
        match self.address.port() {
            21 => format!("ftp://{}/", host(self.address.ip())),
            port => format!("ftp://{}:{port}/", host(self.address.ip())),
        }
    }

    /// Serves until `stop` is ready. Then no connection is taken any more, idle ones are closed with 421, and running
    /// transfers go on to their end, at most for the drain timeout.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let Server { listener, metrics, control, shared, .. } = self;
        let (draining, drained) = watch::channel(false);
        let mut tasks = JoinSet::new();
        // Dropped at the end of this function.
        let mut beside = JoinSet::new();
        beside.spawn(admin::answer(shared.clone(), control, metrics));
        tokio::pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => break,
                taken = listener.accept() => match taken {
                    Ok((stream, peer)) => {
                        let (shared, drained) = (shared.clone(), drained.clone());
                        tasks.spawn(admit(stream, peer, shared, drained));
                    }
                    Err(error) => {
                        // Out of descriptors, mostly: sessions that end give some back.
                        tracing::warn!(%error, "a control connection cannot be taken");
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                },
                Some(_) = tasks.join_next() => {}
            }
        }
        drop(listener);
        let _ = draining.send(true);
        let all = async { while tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(shared.options.drain_timeout, all).await.is_err() {
            tracing::warn!("transfers were cut off at the end of the drain timeout");
        }
    }
}

fn host(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    }
}

fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(1024)
}

async fn admit(mut stream: TcpStream, peer: SocketAddr, shared: Arc<Shared>, draining: watch::Receiver<bool>) {
    let host = canonical(peer.ip());
    if shared.bans().is_banned(host, BootClock.now()) {
        shared.observed.refused.with(["banned"]).add(1);
        let refused = stream.write_all(b"421 Too many logins from your address failed; try again later.\r\n");
        let _ = tokio::time::timeout(Duration::from_secs(1), refused).await;
        return;
    }
    let Some(_seat) = shared.enter(host) else {
        shared.observed.refused.with(["too-many"]).add(1);
        let refused = stream.write_all(b"421 Too many connections; try again later.\r\n");
        let _ = tokio::time::timeout(Duration::from_secs(1), refused).await;
        return;
    };
    shared.observed.accepted.add(1);
    if let Err(error) = session::run(stream, host, &shared, draining).await {
        tracing::debug!(%peer, %error, "a control connection broke");
    }
}
