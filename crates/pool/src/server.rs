//! Listeners and threads.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener as StdUnixListener, UnixStream as StdUnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use verbena_coop::service::PoolService;
use verbena_metrics::{Registry, RegistryError};
use verbena_terms::Section;

use crate::config::MemcachedConfig;
use crate::connection::serve;
use crate::execute::Executor;
use crate::observed::Observed;
use crate::statistics;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;
/// Pause when no connection can be accepted, mostly for want of descriptors.
const PAUSE: Duration = Duration::from_millis(10);

/// Why the server does not run.
#[derive(Debug, Error)]
pub enum ServerError {
    /// A key of the configuration.
    #[error("memcached.{key}: {problem}")]
    Setting {
        /// Which.
        key: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The address.
    #[error("memcached.listen: no client can be served at {address}: {reason}")]
    Listen {
        /// Which.
        address: SocketAddr,
        /// Why not.
        reason: io::Error,
    },
    /// The socket.
    #[error("memcached.socket: no client can be served at {}: {reason}", path.display())]
    Socket {
        /// Which.
        path: PathBuf,
        /// Why not.
        reason: io::Error,
    },
    /// A thread.
    #[error("start a thread for memcached clients: {0}")]
    Thread(io::Error),
    /// A metric has an owner already.
    #[error(transparent)]
    Registry(#[from] RegistryError),
}

/// A running server. Dropped, it ends.
pub struct Server {
    address: SocketAddr,
    socket: Option<PathBuf>,
    stop: watch::Sender<bool>,
    threads: Vec<JoinHandle<()>>,
}

/// A server whose port is taken, and that does not listen yet.
pub struct Bound {
    config: MemcachedConfig,
    socket: Socket,
}

impl Bound {
    /// Takes the port: before a helper joins a cluster that it would have to leave again where the port is another's. Clients are refused until the server [starts](Server::start).
    ///
    /// # Errors
    /// What stands in the way.
    pub fn of(config: &MemcachedConfig) -> Result<Bound, ServerError> {
        if let Some(found) = config.contradictions().into_iter().next() {
            return Err(ServerError::Setting { key: found.key, problem: found.problem });
        }
        let refused = |reason| ServerError::Listen { address: config.listen, reason };
        Ok(Bound { socket: bind_port(config.listen).map_err(refused)?, config: config.clone() })
    }
}

impl Server {
    /// Listens, and answers from then on.
    ///
    /// # Errors
    /// What stands in the way.
    pub fn start(bound: Bound, pool: &PoolService, registry: &Registry) -> Result<Server, ServerError> {
        let Bound { config, socket } = bound;
        let observed = Observed::new(registry)?;
        statistics::started();
        let refused = |reason| ServerError::Listen { address: config.listen, reason };
        socket.listen(BACKLOG).map_err(refused)?;
        let listener = StdListener::from(socket);
        let address = listener.local_addr().map_err(refused)?;
        let bound = |path: &PathBuf| bind(path).map_err(|reason| ServerError::Socket { path: path.clone(), reason });
        let unix = config.socket.as_ref().map(bound).transpose()?;
        let threads = match config.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            threads => threads,
        };
        let connections = Arc::new(Semaphore::new(config.connections.min(Semaphore::MAX_PERMITS)));
        let (stop, stopped) = watch::channel(false);
        let mut server = Server { address, socket: config.socket.clone(), stop, threads: vec![] };
        for at in 0..threads {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(ServerError::Thread)?;
            let worker = Worker {
                pool: pool.clone(),
                observed: observed.clone(),
                patience: config.client_timeout.0,
                connections: connections.clone(),
                stopped: stopped.clone(),
            };
            let listener = listener.try_clone().map_err(refused)?;
            let unix = unix.as_ref().map(StdUnixListener::try_clone).transpose().map_err(ServerError::Thread)?;
            let thread = std::thread::Builder::new().name(format!("pool-{at}"));
            let run = move || runtime.block_on(worker.run(listener, unix));
            server.threads.push(thread.spawn(run).map_err(ServerError::Thread)?);
        }
        Ok(server)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes no more connections, and closes those that there are. What they have begun is decided or not.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        // The threads hold receivers until they end; if they have ended, there is nobody to tell.
        let _ = self.stop.send(true);
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the pool's server panicked");
            }
        }
        if let Some(path) = self.socket.take() {
            let _ = fs::remove_file(path);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

fn bind_port(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

/// A socket that a process left behind is replaced; one that answers is not.
fn bind(path: &Path) -> io::Result<StdUnixListener> {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    if is_socket && StdUnixStream::connect(path).is_err() {
        fs::remove_file(path)?;
    }
    let listener = StdUnixListener::bind(path)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// One thread.
struct Worker {
    pool: PoolService,
    observed: Observed,
    patience: Duration,
    connections: Arc<Semaphore>,
    stopped: watch::Receiver<bool>,
}

impl Worker {
    async fn run(mut self, listener: StdListener, unix: Option<StdUnixListener>) {
        let listener = TcpListener::from_std(listener);
        let unix = unix.map(UnixListener::from_std).transpose();
        let (listener, unix) = match (listener, unix) {
            (Ok(listener), Ok(unix)) => (listener, unix),
            (Err(error), _) | (_, Err(error)) => {
                return tracing::error!(%error, "a listener of the pool's server cannot be used");
            }
        };
        loop {
            let Some(permit) = self.permit().await else { return };
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted.map(|(stream, _)| {
                    // Small writes that wait for each other cost more than they save; a refusal costs only that.
                    let _ = stream.set_nodelay(true);
                    self.spawn(stream, permit);
                }),
                accepted = accept(unix.as_ref()) => accepted.map(|stream| self.spawn(stream, permit)),
                _ = self.stopped.changed() => return,
            };
            if let Err(error) = accepted {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    /// `None` at the end.
    async fn permit(&mut self) -> Option<OwnedSemaphorePermit> {
        if let Ok(permit) = self.connections.clone().try_acquire_owned() {
            return Some(permit);
        }
        self.observed.delayed.increment();
        tokio::select! {
            permit = self.connections.clone().acquire_owned() => permit.ok(),
            _ = self.stopped.changed() => None,
        }
    }

    fn spawn<S: AsyncRead + AsyncWrite + Send + 'static>(&self, stream: S, permit: OwnedSemaphorePermit) {
        let (pool, observed, patience) = (self.pool.clone(), self.observed.clone(), self.patience);
        tokio::spawn(async move {
            observed.accepted.increment();
            observed.connections.add(1);
            serve(stream, &Executor { pool: &pool, observed: &observed }, patience).await;
            observed.connections.add(-1);
            drop(permit);
        });
    }
}

async fn accept(listener: Option<&UnixListener>) -> io::Result<tokio::net::UnixStream> {
    match listener {
        Some(listener) => listener.accept().await.map(|(stream, _)| stream),
        None => std::future::pending().await,
    }
}
