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

use crate::address::canonical;
use crate::data::Ports;
use crate::encryption::Encryption;
use crate::options::{ServeError, ServeOptions};
use crate::rights::Login;
use crate::session;
use crate::users::Users;
use crate::xferlog::TransferLog;
use verbena_transfer::Root;
use verbena_transfer::VirtualPath;

/// Passwords that are hashed at a time: each takes 19 MiB and a core.
const MOST_HASHES: usize = 2;

/// What all sessions share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub options: ServeOptions,
    pub root: Root,
    pub users: Users,
    pub ports: Ports,
    pub log: Option<TransferLog>,
    pub encryption: Option<Arc<Encryption>>,
    pub hashes: Semaphore,
    sessions: Mutex<HashMap<IpAddr, usize>>,
}

impl Shared {
    /// What a name and password give. May take long: it hashes.
    pub(crate) fn check(&self, user: &[u8], password: &[u8]) -> Option<(VirtualPath, Login)> {
        match self.options.anonymous.filter(|_| is_anonymous(user)) {
            Some(rights) => {
                let atomic_stores = self.options.atomic_stores;
                Some((VirtualPath::root(), Login { rights, fxp: Vec::new(), atomic_stores }))
            }
            None => self.users.check(user, password),
        }
    }

    fn sessions(&self) -> std::sync::MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a session in, unless there are too many.
    fn enter(self: &Arc<Self>, peer: IpAddr) -> Option<Seat> {
        let mut sessions = self.sessions();
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
        let mut sessions = self.shared.sessions();
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
    shared: Arc<Shared>,
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
        let shared = Shared {
            root,
            users: users.unwrap_or_default(),
            ports: Ports::new(options.passive_ports.clone()),
            log,
            encryption,
            hashes: Semaphore::new(MOST_HASHES),
            sessions: Mutex::default(),
            options,
        };
        Ok(Server { listener, address, shared: Arc::new(shared) })
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
        let Server { listener, shared, .. } = self;
        let (draining, drained) = watch::channel(false);
        let mut tasks = JoinSet::new();
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
    let Some(_seat) = shared.enter(host) else {
        let refused = stream.write_all(b"421 Too many connections; try again later.\r\n");
        let _ = tokio::time::timeout(Duration::from_secs(1), refused).await;
        return;
    };
    if let Err(error) = session::run(stream, host, &shared, draining).await {
        tracing::debug!(%peer, %error, "a control connection broke");
    }
}
