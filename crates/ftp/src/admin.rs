//! The administrator's side of a server, over HTTP: metrics, who is there, and the end of a session. On a unix socket that
//! the server's user alone can reach; a port gives metrics and nothing else.

use std::convert::Infallible;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use verbena_metrics::Registry;
use verbena_terms::{BootClock, Clock};

use crate::serve::Shared;

/// Connections at a time; more wait.
const CONNECTIONS: usize = 16;
/// How long a request's head may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// The unix socket, removed at the end.
#[derive(Debug)]
pub(crate) struct Socket {
    pub listener: UnixListener,
    pub path: PathBuf,
}

impl Socket {
    /// Takes the path. What a killed server left is replaced, and what another one listens at is not.
    pub(crate) fn bind(path: &Path) -> std::io::Result<Socket> {
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(std::io::Error::new(std::io::ErrorKind::AddrInUse, "another server listens there"));
        }
        match std::fs::symlink_metadata(path) {
            Ok(found) if std::os::unix::fs::FileTypeExt::is_socket(&found.file_type()) => std::fs::remove_file(path)?,
            _ => {}
        }
        let listener = UnixListener::bind(path)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        Ok(Socket { listener, path: path.to_owned() })
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Answers for as long as it is polled.
pub(crate) async fn answer(shared: Arc<Shared>, socket: Option<Socket>, port: Option<TcpListener>) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        // The semaphore is never closed.
        let Ok(permit) = permits.clone().acquire_owned().await else { return };
        let accepted = tokio::select! {
            taken = accept_unix(socket.as_ref()) => taken.map(|stream| serve(stream, shared.clone(), true, permit)),
            taken = accept_tcp(port.as_ref()) => taken.map(|stream| serve(stream, shared.clone(), false, permit)),
        };
        if let Err(error) = accepted {
            tracing::warn!(%error, "a connection for metrics cannot be taken");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

async fn accept_unix(socket: Option<&Socket>) -> std::io::Result<tokio::net::UnixStream> {
    match socket {
        Some(socket) => socket.listener.accept().await.map(|(stream, _)| stream),
        None => std::future::pending().await,
    }
}

async fn accept_tcp(port: Option<&TcpListener>) -> std::io::Result<tokio::net::TcpStream> {
    match port {
        Some(port) => port.accept().await.map(|(stream, _)| stream),
        None => std::future::pending().await,
    }
}

fn serve<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    shared: Arc<Shared>,
    is_administrator: bool,
    permit: OwnedSemaphorePermit,
) {
    let service = service_fn(move |request| {
        let answer = respond(&shared, &request, is_administrator);
        async move { Ok::<_, Infallible>(answer) }
    });
    tokio::spawn(async move {
        let mut server = http1::Builder::new();
        server.half_close(true).keep_alive(false).timer(TokioTimer::new()).header_read_timeout(PATIENCE);
        if let Err(error) = server.serve_connection(TokioIo::new(stream), service).await {
            tracing::debug!(%error, "a connection for metrics ended");
        }
        drop(permit);
    });
}

fn respond(shared: &Shared, request: &Request<Incoming>, is_administrator: bool) -> Response<Full<Bytes>> {
    let segments: Vec<&str> = request.uri().path().trim_start_matches('/').split('/').collect();
    match (request.method(), segments.as_slice()) {
        (&Method::GET, ["metrics"]) => {
            let text = Registry::snapshot(&shared.registry, BootClock.now()).openmetrics();
            written(StatusCode::OK, "application/openmetrics-text; version=1.0.0; charset=utf-8", text)
        }
        (&Method::GET, ["sessions"]) if is_administrator => match serde_json::to_string(&shared.sessions.facts()) {
            Ok(text) => written(StatusCode::OK, "application/json", text),
            Err(error) => plain(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
        },
        (&Method::DELETE, ["sessions", id]) if is_administrator => match id.parse().map(|id| shared.kick(id)) {
            Ok(true) => plain(StatusCode::OK, "it ends"),
            _ => plain(StatusCode::NOT_FOUND, "no session has this number"),
        },
        _ => plain(StatusCode::NOT_FOUND, "GET /metrics, and on the socket GET /sessions and DELETE /sessions/NUMBER"),
    }
}

fn plain(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    written(status, "text/plain; charset=utf-8", format!("{text}\n"))
}

fn written(status: StatusCode, kind: &'static str, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(hyper::header::CONTENT_TYPE, hyper::header::HeaderValue::from_static(kind));
    response
}
