//! The application's processes: which one a request goes to, and how it fails.
//!
//! Reads go over kept connections, and once more over a new one if a kept one turns out to be closed. Writes always
//! go over a new connection: so it is known whether a byte was sent (rule P7), and an idle connection that the application closes
//! at the wrong moment leaves no update of unknown outcome.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderValue, Request, Response, StatusCode, Uri, Version, request};
use http_body::Body as HttpBody;
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::time::{sleep_until, timeout};
use verbena_caching::is_framed_plainly;

use crate::upload::{Cut, Upload};

/// How long an origin that did not take a connection is left alone, unless no other is there.
const DOWN_FOR: Duration = Duration::from_secs(2);
/// How often one that is down is tried.
const PROBE_EVERY: Duration = Duration::from_millis(500);
/// Connections kept open to each origin, by each thread.
const IDLE_EACH: usize = 64;
/// After how long an idle connection is closed: less than most applications wait.
const IDLE_FOR: Duration = Duration::from_secs(4);

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// No origin takes a connection: nothing was sent.
    Unreachable,
    /// It did not begin to answer in time.
    Silent,
    /// The connection broke, or what came is no HTTP.
    Broken,
    /// The client did not send its request's body in time.
    ClientSlow,
    /// The client broke off in its request's body.
    ClientBroken,
}

impl From<Cut> for Failure {
    fn from(cut: Cut) -> Self {
        match cut {
            Cut::Slow => Failure::ClientSlow,
            Cut::Broken => Failure::ClientBroken,
        }
    }
}

impl Failure {
    pub const fn status(self) -> StatusCode {
        match self {
            Failure::Unreachable | Failure::Broken => StatusCode::BAD_GATEWAY,
            Failure::Silent => StatusCode::GATEWAY_TIMEOUT,
            Failure::ClientSlow => StatusCode::REQUEST_TIMEOUT,
            Failure::ClientBroken => StatusCode::BAD_REQUEST,
        }
    }

    /// Whether the application failed, and not the client.
    pub const fn is_of_origin(self) -> bool {
        !matches!(self, Failure::ClientSlow | Failure::ClientBroken)
    }

    /// As a token, for `Cache-Status` and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Failure::Unreachable => "origin-unreachable",
            Failure::Silent => "origin-silent",
            Failure::Broken => "origin-broken",
            Failure::ClientSlow => "client-slow",
            Failure::ClientBroken => "client-broken",
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
    kept: Client<HttpConnector, Empty<Bytes>>,
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

    /// Sends a request that only reads and has no body; again if a kept connection turns out to be closed.
    pub async fn read(&self, head: &request::Parts) -> Result<Response<Incoming>, Failure> {
        for origin in self.origins.order() {
            let _under_way = UnderWay::new(origin);
            let request = outgoing(head, origin, origin.uri(&head.uri), Empty::new());
            match timeout(self.origins.answer_timeout, self.kept.request(request)).await {
                Err(_) => return Err(Failure::Silent),
                Ok(Ok(answer)) => return usable(answer),
                Ok(Err(error)) if error.is_connect() => origin.went_down(),
                Ok(Err(_)) => match self.origins.open(origin).await {
                    Some(stream) => {
                        let request = outgoing(head, origin, target(head), Empty::new());
                        let (answer, patience) = (converse(stream, request), self.origins.answer_timeout);
                        return timeout(patience, answer).await.map_err(|_| Failure::Silent)?.and_then(usable);
                    }
                    None => continue,
                },
            }
        }
        Err(Failure::Unreachable)
    }

    /// Sends a request over a new connection; never twice once a byte of it was sent.
    pub async fn write(&self, head: &request::Parts, body: Upload) -> Result<Response<Incoming>, Failure> {
        for origin in self.origins.order() {
            let _under_way = UnderWay::new(origin);
            let Some(stream) = self.origins.open(origin).await else { continue };
            let progress = body.progress();
            let answer = converse(stream, outgoing(head, origin, target(head), body));
            tokio::pin!(answer);
            // The application's time begins when it has the whole request, or as much as it wants of it.
            let mut until = tokio::time::Instant::now() + self.origins.answer_timeout;
            return loop {
                tokio::select! {
                    answer = &mut answer => {
                        let answer = answer.map_err(|failure| progress.cut().map_or(failure, Failure::from));
                        break answer.and_then(usable);
                    }
                    () = sleep_until(until) => {
                        let moved = progress.moved() + self.origins.answer_timeout;
                        if moved <= until {
                            break Err(Failure::Silent);
                        }
                        until = moved;
                    }
                }
            };
        }
        Err(Failure::Unreachable)
    }
}

/// One exchange over a connection of its own.
async fn converse<B>(stream: TcpStream, request: Request<B>) -> Result<Response<Incoming>, Failure>
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|_| Failure::Broken)?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to the application ended");
        }
    });
    sender.send_request(request).await.map_err(|_| Failure::Broken)
}

/// An answer that a client can be given: no change of protocol, which nobody asked for, and no coding that is taken off without being undone.
fn usable(answer: Response<Incoming>) -> Result<Response<Incoming>, Failure> {
    let is_usable = !answer.status().is_informational() && is_framed_plainly(answer.headers());
    if is_usable { Ok(answer) } else { Err(Failure::Broken) }
}

fn target(head: &request::Parts) -> Uri {
    head.uri.path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/")).into()
}

fn outgoing<B: HttpBody>(head: &request::Parts, origin: &Origin, uri: Uri, body: B) -> Request<B> {
    let mut headers = head.headers.clone();
    if !headers.contains_key(HOST)
        && let Ok(host) = HeaderValue::try_from(origin.authority.as_str())
    {
        headers.insert(HOST, host);
    }
    if body.size_hint().exact().is_none() {
        headers.remove(CONTENT_LENGTH);
        headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    let mut request = Request::new(body);
    *request.method_mut() = head.method.clone();
    *request.uri_mut() = uri;
    *request.version_mut() = Version::HTTP_11;
    *request.headers_mut() = headers;
    request
}
