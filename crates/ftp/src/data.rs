//! Data connections: the port of one passive transfer, and the connection to an active client.

use std::collections::HashMap;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;

use crate::address::canonical;
use crate::blocks::MOST_CONNECTIONS;
use crate::encryption::Private;
use crate::error::TransferError;

/// How long a port is left alone after a transfer, where others are free (rule T14).
const REST: Duration = Duration::from_secs(60);

/// The ports of passive data connections.
#[derive(Debug)]
pub(crate) struct Ports {
    range: Option<RangeInclusive<u16>>,
    /// When each port of the range was last given out.
    given: Mutex<HashMap<u16, Instant>>,
}

impl Ports {
    pub(crate) fn new(range: Option<RangeInclusive<u16>>) -> Ports {
        Ports { range, given: Mutex::new(HashMap::new()) }
    }

    /// Listens on a port for one transfer. `None`: none is free.
    pub(crate) fn listen(&self, host: IpAddr, now: Instant) -> Option<TcpListener> {
        let Some(range) = self.range.clone() else { return listen(SocketAddr::new(host, 0)).ok() };
        let mut given = self.given.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        given.retain(|_, at| now.duration_since(*at) < REST);
        // Those that have rested, from a random one on, then those that were given out longest ago.
        let mut ports: Vec<u16> = range.collect();
        let turn = getrandom::u32().unwrap_or(0) as usize % ports.len().max(1);
        ports.rotate_left(turn);
        ports.sort_by_key(|port| given.get(port).copied());
        for port in ports {
            if let Ok(listener) = listen(SocketAddr::new(host, port)) {
                given.insert(port, now);
                return Some(listener);
            }
        }
        None
    }
}

fn socket(host: IpAddr) -> std::io::Result<TcpSocket> {
    if host.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }
}

fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = socket(address.ip())?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    // As many as a client of MODE E may make at once.
    socket.listen(u32::from(MOST_CONNECTIONS))
}

/// Waits for the client. A peer of another address is closed, and waiting goes on (rule T14).
pub(crate) async fn accept(listener: &TcpListener, allowed: &[IpAddr]) -> Result<TcpStream, TransferError> {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) if allowed.contains(&canonical(peer.ip())) => return Ok(stream),
            Ok((_, peer)) => tracing::info!(%peer, "a stranger at a passive port was closed"),
            // A connection that broke before it was taken; out of descriptors is one that ends by the timeout.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

/// A data connection that stands.
pub(crate) enum Made {
    Clear(TcpStream),
    Private(Box<Private>),
}

/// Connections that may prove themselves at a time, and how long each has (rule T14).
pub(crate) const MOST_PROOFS: usize = 64;
pub(crate) const PROOF: Duration = Duration::from_secs(10);

/// Waits for the client where it proves itself. Proofs run side by side and the first counts, so that a silent stranger
/// holds up nobody (rule T14).
pub(crate) async fn accept_proven<T, F>(listener: &TcpListener, allowed: &[IpAddr], prove: impl Fn(TcpStream) -> F) -> T
where
    T: Send + 'static,
    F: Future<Output = Option<T>> + Send + 'static,
{
    let mut proofs = JoinSet::new();
    loop {
        tokio::select! {
            taken = listener.accept(), if proofs.len() < MOST_PROOFS => match taken {
                Ok((stream, peer)) if allowed.contains(&canonical(peer.ip())) => {
                    let proof = prove(stream);
                    proofs.spawn(async move { tokio::time::timeout(PROOF, proof).await.ok().flatten() });
                }
                Ok((_, peer)) => tracing::info!(%peer, "a stranger at a passive port was closed"),
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            },
            Some(proof) = proofs.join_next() => if let Ok(Some(proven)) = proof {
                return proven;
            }
        }
    }
}

/// Connects to the address that `PORT` or `EPRT` named, from the control connection's own.
pub(crate) async fn connect(from: IpAddr, to: SocketAddr) -> Result<TcpStream, TransferError> {
    let from = canonical(from);
    let connected = async {
        let socket = socket(to.ip())?;
        if from.is_ipv4() == to.is_ipv4() {
            socket.bind(SocketAddr::new(from, 0))?;
        }
        socket.connect(to).await
    };
    connected.await.map_err(|_| TransferError::NoConnection)
}
