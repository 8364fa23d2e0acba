//! The application's processes: which one a request goes to, and how it fails.
//!
//! Reads go over kept connections, and once more over a new one if a kept one turns out to be closed. Writes always
//! go over a new connection: so it is known whether a byte was sent (rule P7), and an idle connection that the application closes
//! at the wrong moment leaves no update of unknown outcome.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Request, Response, StatusCode, Uri, Version, request};
use http_body_util::{Either, Empty};
use hyper::body::{Body as _, Incoming};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long an origin that did not take a connection is left alone, unless no other is there.
const DOWN_FOR: Duration = Duration::from_secs(2);
/// How often one that is down is tried.
const PROBE_EVERY: Duration = Duration::from_millis(500);
/// Connections kept open to each origin, by each thread.
const IDLE_EACH: usize = 64;
/// After how long an idle connection is closed: less than most applications wait.
const IDLE_FOR: Duration = Duration::from_secs(4);

/// A request's body on its way to the origin.
pub(crate) type Upload = Either<Incoming, Empty<Bytes>>;

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// No origin takes a connection: nothing was sent.
    Unreachable,
    /// It did not begin to answer in time.
    Silent,
    /// The connection broke, or what came is no HTTP.
    Broken,
}

impl Failure {
    pub const fn status(self) -> StatusCode {
        match self {
            Failure::Unreachable | Failure::Broken => StatusCode::BAD_GATEWAY,
            Failure::Silent => StatusCode::GATEWAY_TIMEOUT,
        }
    }

    /// As a token, for `Cache-Status` and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Failure::Unreachable => "origin-unreachable",
            Failure::Silent => "origin-silent",
            Failure::Broken => "origin-broken",
        }
    }
}

/// The origins, shared by all threads.
pub(crate) struct Origins {
    all: Vec<Origin>,
    next: AtomicUsize,
    connect_timeout: Duration,
    answer_timeout: Duration,
}

struct Origin {
    authority: Authority,
    in_flight: AtomicU32,
    /// Milliseconds since `started` until which it is left alone.
    down_until: AtomicU64,
    started: tokio::time::Instant,
}

impl Origins {
    pub fn new(authorities: Vec<Authority>, connect_timeout: Duration, answer_timeout: Duration) -> Self {
        let started = tokio::time::Instant::now();
        let origin =
            |authority| Origin { authority, in_flight: AtomicU32::new(0), down_until: AtomicU64::new(0), started };
        let all = authorities.into_iter().map(origin).collect();
        Origins { all, next: AtomicUsize::new(0), connect_timeout, answer_timeout }
    }

    /// Origins that take connections, and all.
    pub fn health(&self) -> (usize, usize) {
        (self.all.iter().filter(|origin| !origin.is_down()).count(), self.all.len())
    }

    /// Tries those that are down until they are back. Runs as long as it is polled.
    pub async fn probe(self: Arc<Self>) {
        loop {
            tokio::time::sleep(PROBE_EVERY).await;
            for origin in self.all.iter().filter(|origin| origin.is_down()) {
                if self.open(origin).await.is_some() {
                    origin.down_until.store(0, Ordering::Relaxed);
                }
            }
        }
    }

    /// In the order in which to try them: those that are up first, the least busy of them first, equals in turn.
    fn order(&self) -> Vec<&Origin> {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        let mut order: Vec<&Origin> = (0..self.all.len()).map(|at| &self.all[(at + turn) % self.all.len()]).collect();
        order.sort_by_key(|origin| (origin.is_down(), origin.in_flight.load(Ordering::Relaxed)));
        order
    }

    async fn open(&self, origin: &Origin) -> Option<TcpStream> {
        match timeout(self.connect_timeout, TcpStream::connect(origin.authority.as_str())).await {
            Ok(Ok(stream)) => {
                // Small writes that wait for each other cost more than they save; a refusal costs only that.
                let _ = stream.set_nodelay(true);
                Some(stream)
            }
            _ => {
                origin.went_down();
                None
            }
        }
    }
}

impl Origin {
    fn is_down(&self) -> bool {
        (self.started.elapsed().as_millis() as u64) < self.down_until.load(Ordering::Relaxed)
    }

    fn went_down(&self) {
        let until = (self.started.elapsed() + DOWN_FOR).as_millis() as u64;
        self.down_until.store(until, Ordering::Relaxed);
    }

    fn uri(&self, target: &Uri) -> Uri {
        let path = target.path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/"));
        Uri::builder()
            .scheme(Scheme::HTTP)
            .authority(self.authority.clone())
            .path_and_query(path)
            .build()
            .expect("invariant: a scheme, an authority and a path make a URI")
    }
}

/// Counts a request as under way until its head is here.
struct UnderWay<'a>(&'a Origin);

impl<'a> UnderWay<'a> {
    fn new(origin: &'a Origin) -> Self {
        origin.in_flight.fetch_add(1, Ordering::Relaxed);
        UnderWay(origin)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One thread's connections to the origins.
pub(crate) struct Connections {
    origins: Arc<Origins>,
    kept: Client<HttpConnector, Upload>,
}

impl Connections {
    pub fn new(origins: Arc<Origins>) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(origins.connect_timeout));
        let kept = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE_FOR)
            .pool_max_idle_per_host(IDLE_EACH)
            .pool_timer(TokioTimer::new())
            .build(connector);
        Connections { origins, kept }
    }

    /// Sends a request that only reads.
    pub async fn read(&self, head: request::Parts, body: Incoming) -> Result<Response<Incoming>, Failure> {
        if !body.is_end_stream() {
            return self.write(head, body).await;
        }
        for origin in self.origins.order() {
            let _under_way = UnderWay::new(origin);
            let request = || outgoing(&head, origin.uri(&head.uri), Either::Right(Empty::new()));
            match timeout(self.origins.answer_timeout, self.kept.request(request())).await {
                Err(_) => return Err(Failure::Silent),
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) if error.is_connect() => origin.went_down(),
                // A kept connection that the origin had closed: once more over a new one.
                Ok(Err(_)) => match self.origins.open(origin).await {
                    Some(stream) => return self.over(stream, &head, Either::Right(Empty::new())).await,
                    None => continue,
                },
            }
        }
        Err(Failure::Unreachable)
    }

    /// Sends a request over a new connection; never twice once a byte of it was sent.
    pub async fn write(&self, head: request::Parts, body: Incoming) -> Result<Response<Incoming>, Failure> {
        for origin in self.origins.order() {
            let _under_way = UnderWay::new(origin);
            if let Some(stream) = self.origins.open(origin).await {
                return self.over(stream, &head, Either::Left(body)).await;
            }
        }
        Err(Failure::Unreachable)
    }

    async fn over(
        &self,
        stream: TcpStream,
        head: &request::Parts,
        body: Upload,
    ) -> Result<Response<Incoming>, Failure> {
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(|_| Failure::Broken)?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to the application ended");
            }
        });
        let target = head.uri.path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/"));
        match timeout(self.origins.answer_timeout, sender.send_request(outgoing(head, target.into(), body))).await {
            Err(_) => Err(Failure::Silent),
            Ok(answer) => answer.map_err(|_| Failure::Broken),
        }
    }
}

fn outgoing(head: &request::Parts, uri: Uri, body: Upload) -> Request<Upload> {
    let mut request = Request::new(body);
    *request.method_mut() = head.method.clone();
    *request.uri_mut() = uri;
    *request.version_mut() = Version::HTTP_11;
    *request.headers_mut() = head.headers.clone();
    request
}
