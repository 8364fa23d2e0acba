//! Listeners and threads.

use std::fs;
use std::future::poll_fn;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener as StdUnixListener, UnixStream as StdUnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::Duration;

use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_rustls::TlsAcceptor;
use verbena_coop::service::{PoolService, TenantConfig};
use verbena_listening::{CertificateError, Certificates, Files, Port};
use verbena_metrics::{Registry, RegistryError};
use verbena_terms::Section;

use crate::config::MemcachedConfig;
use crate::connection::{Session, serve};
use crate::observed::Observed;
use crate::statistics;
use crate::tenants::{Member, Rejection, Tenants, check_users};

/// Pause when no connection can be accepted, mostly for want of descriptors.
const PAUSE: Duration = Duration::from_millis(10);
/// How often the files of the certificate are looked at.
const LOOK_AT_FILES: Duration = Duration::from_secs(1);

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
    #[error("memcached.listen: cannot listen on {address}: {reason}")]
    Listen {
        /// Which.
        address: SocketAddr,
        /// Why not.
        reason: io::Error,
    },
    /// The socket.
    #[error("memcached.socket: cannot listen at {}: {reason}; name a path that is free, in a directory that exists", path.display())]
    Socket {
        /// Which.
        path: PathBuf,
        /// Why not.
        reason: io::Error,
    },
    /// TLS.
    #[error("TLS with memcached clients: {0}")]
    Tls(String),
    /// A thread.
    #[error("cannot start a thread for memcached clients: {0}")]
    Thread(io::Error),
    /// A metric has an owner already.
    #[error(transparent)]
    Registry(#[from] RegistryError),
}

impl From<CertificateError> for ServerError {
    fn from(error: CertificateError) -> ServerError {
        match error {
            CertificateError::File { key, problem } => ServerError::Setting { key: key.into(), problem },
            CertificateError::Tls(problem) => ServerError::Tls(problem),
        }
    }
}

/// A running server. Dropped, it ends.
pub struct Server {
    addresses: Vec<SocketAddr>,
    socket: Option<PathBuf>,
    stop: watch::Sender<bool>,
    threads: Vec<JoinHandle<()>>,
}

/// A server whose ports are taken, and that does not listen yet.
pub struct Bound {
    config: MemcachedConfig,
    /// `listen`, then the further ones, each with the tenant whose clients come there.
    ports: Vec<(Port, Option<String>)>,
    certificates: Option<Arc<Certificates>>,
}

impl Bound {
    /// Takes the ports and reads the files, before a helper joins a cluster that it would have to leave again where a port is another's or a file is wrong. Clients are refused until
    /// the server [starts](Server::start).
    ///
    /// # Errors
    /// What stands in the way.
    pub fn of(config: &MemcachedConfig) -> Result<Bound, ServerError> {
        if let Some(found) = config.contradictions().into_iter().next() {
            return Err(ServerError::Setting { key: found.key, problem: found.problem });
        }
        let further = config.listeners.iter().map(|listener| (listener.address, listener.tenant.clone()));
        let mut ports = vec![];
        for (address, tenant) in std::iter::once((config.listen, config.tenant.clone())).chain(further) {
            let port = Port::take(address).map_err(|reason| ServerError::Listen { address, reason })?;
            ports.push((port, tenant));
        }
        if let Some(path) = &config.users {
            check_users(path).map_err(|problem| ServerError::Setting { key: "users".into(), problem })?;
        }
        let files = config.tls_cert.clone().zip(config.tls_key.clone());
        let files = files.map(|(certificate, key)| Files { certificate, key });
        let certificates = files.map(|files| Certificates::open(vec![files])).transpose()?;
        Ok(Bound { config: config.clone(), ports, certificates })
    }
}

impl Server {
    /// Listens, and answers from then on.
    ///
    /// # Errors
    /// What stands in the way.
    pub fn start(
        bound: Bound,
        tenants: &[TenantConfig],
        pool: &PoolService,
        registry: &Registry,
    ) -> Result<Server, ServerError> {
        let Bound { config, ports, certificates } = bound;
        let observed = Observed::new(registry)?;
        statistics::started();
        let operator = rustix::process::geteuid().as_raw();
        let tenants = Tenants::new(&config, tenants, operator, observed.clone());
        let tenants = tenants.map_err(|(key, problem)| ServerError::Setting { key, problem })?;
        let tenants = Arc::new(tenants);
        let (mut listeners, mut addresses) = (vec![], vec![]);
        for (port, tenant) in ports {
            let address = port.address();
            let refused = |reason| ServerError::Listen { address, reason };
            let listener = port.listen().map_err(refused)?;
            addresses.push(listener.local_addr().map_err(refused)?);
            listeners.push((listener, tenant));
        }
        let bound = |path: &PathBuf| bind(path).map_err(|reason| ServerError::Socket { path: path.clone(), reason });
        let unix = config.socket.as_ref().map(bound).transpose()?;
        let tls = certificates.as_ref().map(|certificates| certificates.server(&[])).transpose()?;
        let tls = tls.map(TlsAcceptor::from);
        let threads = match config.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            threads => threads,
        };
        let connections = Arc::new(Semaphore::new(config.connections.min(Semaphore::MAX_PERMITS)));
        let (stop, stopped) = watch::channel(false);
        let mut server = Server { addresses, socket: config.socket.clone(), stop, threads: vec![] };
        for at in 0..threads {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(ServerError::Thread)?;
            let worker = Worker {
                session: Arc::new(Session {
                    pool: pool.clone(),
                    observed: observed.clone(),
                    tenants: tenants.clone(),
                    patience: config.client_timeout.0,
                }),
                tls: tls.clone(),
                // One of them looks at the files for all.
                certificates: certificates.clone().filter(|_| at == 0),
                connections: connections.clone(),
                stopped: stopped.clone(),
            };
            let again =
                |(listener, tenant): &(StdListener, Option<String>)| Ok((listener.try_clone()?, tenant.clone()));
            let listeners = listeners.iter().map(again).collect::<io::Result<Vec<_>>>().map_err(ServerError::Thread)?;
            let unix = unix.as_ref().map(StdUnixListener::try_clone).transpose().map_err(ServerError::Thread)?;
            let thread = std::thread::Builder::new().name(format!("pool-{at}"));
            let run = move || runtime.block_on(worker.run(listeners, unix));
            server.threads.push(thread.spawn(run).map_err(ServerError::Thread)?);
        }
        Ok(server)
    }

    /// Where it listens: first `listen`, then the further ones in their order.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
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
    session: Arc<Session>,
    tls: Option<TlsAcceptor>,
    certificates: Option<Arc<Certificates>>,
    connections: Arc<Semaphore>,
    stopped: watch::Receiver<bool>,
}

impl Worker {
    async fn run(mut self, listeners: Vec<(StdListener, Option<String>)>, unix: Option<StdUnixListener>) {
        let listeners = listeners.into_iter().map(|(listener, tenant)| Ok((TcpListener::from_std(listener)?, tenant)));
        let listeners: io::Result<Vec<_>> = listeners.collect();
        let unix = unix.map(UnixListener::from_std).transpose();
        let (listeners, unix) = match (listeners, unix) {
            (Ok(listeners), Ok(unix)) => (listeners, unix),
            (Err(error), _) | (_, Err(error)) => {
                return tracing::error!(%error, "a listener of the pool's server cannot be used");
            }
        };
        if let Some(certificates) = self.certificates.take() {
            tokio::spawn(async move {
                loop {
                    tokio::time::sleep(LOOK_AT_FILES).await;
                    certificates.refresh(false);
                }
            });
        }
        let mut first = 0;
        loop {
            let Some(permit) = self.permit().await else { return };
            first = (first + 1) % listeners.len();
            let tenants = &self.session.tenants;
            let accepted = tokio::select! {
                accepted = accept_any(&listeners, first) => accepted.map(|(stream, tenant)| {
                    // Small writes that wait for each other cost more than they save; a refusal costs only that.
                    let _ = stream.set_nodelay(true);
                    let whose = tenants.admit(tenant, None);
                    match &self.tls {
                        Some(tls) => self.spawn_secure(tls.clone(), stream, permit, whose),
                        None => self.spawn(stream, permit, whose),
                    }
                }),
                accepted = accept(unix.as_ref()) => accepted.map(|stream| {
                    let user = stream.peer_cred().ok().map(|credentials| credentials.uid());
                    self.spawn(stream, permit, tenants.admit(None, user));
                }),
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
        self.session.observed.delayed.increment();
        tokio::select! {
            permit = self.connections.clone().acquire_owned() => permit.ok(),
            _ = self.stopped.changed() => None,
        }
    }

    fn spawn_secure(
        &self,
        tls: TlsAcceptor,
        stream: TcpStream,
        permit: OwnedSemaphorePermit,
        whose: Option<Result<Member, Rejection>>,
    ) {
        let session = self.session.clone();
        tokio::spawn(async move {
            match tokio::time::timeout(session.patience, tls.accept(stream)).await {
                Ok(Ok(stream)) => converse(stream, &session, whose).await,
                Ok(Err(error)) => {
                    tracing::debug!(%error, "no TLS with a memcached client");
                    session.observed.handshakes_failed.increment();
                }
                Err(_) => session.observed.handshakes_failed.increment(),
            }
            drop(permit);
        });
    }

    fn spawn<S: AsyncRead + AsyncWrite + Send + 'static>(
        &self,
        stream: S,
        permit: OwnedSemaphorePermit,
        whose: Option<Result<Member, Rejection>>,
    ) {
        let session = self.session.clone();
        tokio::spawn(async move {
            converse(stream, &session, whose).await;
            drop(permit);
        });
    }
}

async fn converse<S>(stream: S, session: &Session, whose: Option<Result<Member, Rejection>>)
where
    S: AsyncRead + AsyncWrite + Send + 'static,
{
    session.observed.accepted.increment();
    session.observed.connections.add(1);
    serve(stream, session, whose).await;
    session.observed.connections.add(-1);
}

/// From the listener with this number, or the next ones: so none keeps the others waiting.
async fn accept_any(
    listeners: &[(TcpListener, Option<String>)],
    first: usize,
) -> io::Result<(TcpStream, Option<&str>)> {
    poll_fn(|context| {
        let (before, from) = listeners.split_at(first);
        for (listener, tenant) in from.iter().chain(before) {
            if let Poll::Ready(accepted) = listener.poll_accept(context) {
                return Poll::Ready(accepted.map(|(stream, _)| (stream, tenant.as_deref())));
            }
        }
        Poll::Pending
    })
    .await
}

async fn accept(listener: Option<&UnixListener>) -> io::Result<tokio::net::UnixStream> {
    match listener {
        Some(listener) => listener.accept().await.map(|(stream, _)| stream),
        None => std::future::pending().await,
    }
}
