//! The application's processes: which one a request goes to, and how it fails.
//!
//! Reads go over kept connections, and once more over a new one if a kept one turns out to be closed. Writes always
//! go over a new connection: so it is known whether a byte was sent (rule P7), and an idle connection that the application closes
//! at the wrong moment leaves no update of unknown outcome.

mod address;
mod connector;
mod machines;
mod places;
mod secure;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderValue, Request, Response, StatusCode, Uri, Version, request};
use http_body::Body as HttpBody;
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until, timeout};
use verbena_caching::is_framed_plainly;
use verbena_metrics::Gauge;

use crate::health::{Health, Standing};
use crate::observed::Observed;
use crate::upload::{Cut, Upload};

use address::Stream;
pub(crate) use address::{Address, HTTP_PORT, HTTPS_PORT};
use connector::Connector;
pub(crate) use machines::Machines;
pub(crate) use places::Place;
use places::Places;
pub(crate) use secure::Secure;

/// Lines that the head of an answer may have. Beyond, it counts as broken.
const MOST_FIELDS: usize = 1024;
/// How often one that took no connection is tried.
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
    /// As many fills as may be are under way, and as many wait, or it waited too long: nothing was sent.
    Crowded,
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
            Failure::Crowded => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// Whether the application failed, and not the client.
    pub const fn is_of_origin(self) -> bool {
        !matches!(self, Failure::ClientSlow | Failure::ClientBroken | Failure::Crowded)
    }

    /// As a token, for `Cache-Status` and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Failure::Unreachable => "origin-unreachable",
            Failure::Silent => "origin-silent",
            Failure::Broken => "origin-broken",
            Failure::ClientSlow => "client-slow",
            Failure::ClientBroken => "client-broken",
            Failure::Crowded => "fills-crowded",
        }
    }
}

/// The origins, shared by all threads.
pub(crate) struct Origins {
    all: Vec<Origin>,
    machines: Machines,
    next: AtomicUsize,
    places: Places,
    /// If one of them speaks TLS.
    secure: Option<Secure>,
    connect_timeout: Duration,
    answer_timeout: Duration,
}

struct Origin {
    /// Among all.
    number: usize,
    address: Address,
    /// Of its URIs: its own, or for a unix socket one by which the connector knows it.
    authority: Authority,
    in_flight: AtomicU32,
    /// Places that are taken.
    fills: AtomicUsize,
    health: Mutex<Health>,
    up: Gauge,
}

impl Origins {
    pub fn new(
        addresses: Vec<Address>,
        machines: Machines,
        secure: Option<Secure>,
        fills: usize,
        (connect_timeout, answer_timeout): (Duration, Duration),
        observed: &Observed,
    ) -> Self {
        let origin = |(number, address): (usize, Address)| {
            let up = observed.origin_up.with([address.to_string().as_str()]);
            let authority = connector::authority_of(number, &address);
            up.set(1);
            let (in_flight, fills) = (AtomicU32::new(0), AtomicUsize::new(0));
            Origin { number, address, authority, in_flight, fills, health: Mutex::default(), up }
        };
        let all: Vec<Origin> = addresses.into_iter().enumerate().map(origin).collect();
        let places = Places::new(fills, all.len(), observed);
        Origins { all, machines, next: AtomicUsize::new(0), places, secure, connect_timeout, answer_timeout }
    }

    /// Origins that answer as far as is known, and all.
    pub fn health(&self) -> (usize, usize) {
        (self.all.iter().filter(|origin| origin.health.lock().is_well()).count(), self.all.len())
    }

    /// Tries those that take no connection until they are back. Runs as long as it is polled.
    pub async fn probe(self: Arc<Self>) {
        loop {
            tokio::time::sleep(PROBE_EVERY).await;
            for origin in &self.all {
                let wants_connection = origin.health.lock().wants_connection();
                if wants_connection && self.open(origin).await.is_some() {
                    origin.learn(|health, _| health.connected());
                }
            }
        }
    }

    /// Connects to each once, so that what takes no connection is known, and said, before the first request.
    pub async fn look(&self) {
        for origin in &self.all {
            // Dropped at once: what is kept is what it says of the application.
            let _ = self.open(origin).await;
        }
    }

    /// In the order in which to try them: those that are well first, of them those on the least loaded machines, and of these the least busy; equals in turn.
    /// One that was ill is tried with one request that `may_try` it. Those that are ill come last: they may be all that there is.
    fn order(&self, may_try: bool) -> Vec<&Origin> {
        self.ranked(may_try, self.turn()).into_iter().map(|(_, origin)| origin).collect()
    }

    /// With whom of equals to begin: with each in turn.
    fn turn(&self) -> usize {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// The order, with how they are.
    fn ranked(&self, may_try: bool, turn: usize) -> Vec<(Standing, &Origin)> {
        let now = Instant::now();
        let standing = |origin: &Origin, in_flight| match origin.health.lock().standing(now) {
            Standing::Tried if may_try && in_flight == 0 => Standing::Well,
            standing => standing,
        };
        let steps = self.machines.steps(|at| self.all[at].in_flight.load(Ordering::Relaxed));
        let mut order: Vec<((Standing, u64, u32), &Origin)> = (0..self.all.len())
            .map(|at| {
                let origin = &self.all[turn.wrapping_add(at) % self.all.len()];
                let in_flight = origin.in_flight.load(Ordering::Relaxed);
                ((standing(origin, in_flight), steps[origin.number], in_flight), origin)
            })
            .collect();
        order.sort_by_key(|&(key, _)| key);
        order.into_iter().map(|((standing, ..), origin)| (standing, origin)).collect()
    }

    async fn open(&self, origin: &Origin) -> Option<Stream> {
        match timeout(self.connect_timeout, origin.address.connect(self.secure.as_ref())).await {
            Ok(Ok(stream)) => Some(stream),
            Ok(Err(error)) => {
                origin.refused(&error);
                None
            }
            Err(_) => {
                origin.refused(&"it takes no connection in time");
                None
            }
        }
    }
}

impl Origin {
    /// Changes what is known of it, and says so where it matters.
    fn learn(&self, change: impl FnOnce(&mut Health, Instant)) {
        let (was_well, is_well) = {
            let mut health = self.health.lock();
            let was_well = health.is_well();
            change(&mut health, Instant::now());
            self.up.set(i64::from(health.is_well()));
            (was_well, health.is_well())
        };
        if was_well != is_well {
            let origin = &self.address;
            match is_well {
                true => tracing::info!(%origin, "the application answers again"),
                false => tracing::warn!(%origin, "the application does not answer; others are asked, if there are any"),
            }
        }
    }

    /// It took no connection. The first one says why: a certificate that proves nothing must be told from a process that is not there.
    fn refused(&self, why: &dyn std::fmt::Display) {
        if self.health.lock().is_well() {
            tracing::warn!(origin = %self.address, %why, "no connection to the application");
        }
        self.learn(Health::refused);
    }

    /// What an attempt that began at `asked` says of it.
    fn learn_from<T>(&self, asked: Instant, answer: &Result<T, Failure>) {
        match answer {
            Ok(_) => self.learn(Health::answered),
            Err(Failure::Silent) => self.learn(|health, now| health.silent(asked, now)),
            // It spoke, or died in between, which the next connection tells; or it was the client.
            Err(_) => {}
        }
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
    kept: Client<Connector, Empty<Bytes>>,
}

impl Connections {
    pub fn new(origins: Arc<Origins>) -> Self {
        let addresses = origins.all.iter().map(|origin| origin.address.clone());
        let connector = Connector::new(addresses, origins.secure.clone(), origins.connect_timeout);
        let kept = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE_FOR)
            .pool_max_idle_per_host(IDLE_EACH)
            .pool_timer(TokioTimer::new())
            .http1_max_headers(MOST_FIELDS)
            .http1_preserve_header_case(true)
            .build(connector);
        Connections { origins, kept }
    }

    /// A place for a fill. Waits, if it must.
    pub async fn place(&self, until: Instant) -> Result<Place, Failure> {
        self.origins.place(until).await
    }

    /// Sends a request that only reads and has no body; again if a kept connection turns out to be closed. First to where its place is, if it
    /// has one.
    pub async fn read(
        &self,
        head: &request::Parts,
        mut place: Option<&mut Place>,
    ) -> Result<Response<Incoming>, Failure> {
        let order = match &place {
            Some(place) => self.origins.order_from(place),
            None => self.origins.order(true),
        };
        for origin in order {
            if let Some(place) = &mut place {
                place.moves_to(origin);
            }
            let _under_way = UnderWay::new(origin);
            let asked = Instant::now();
            let answer = match timeout(self.origins.answer_timeout, self.kept(head, origin)).await {
                Err(_) => Err(Failure::Silent),
                Ok(Ok(answer)) => Ok(answer),
                Ok(Err(error)) if error.is_connect() => {
                    origin.refused(&chain(&error));
                    continue;
                }
                Ok(Err(_)) => {
                    let Some(stream) = self.origins.open(origin).await else { continue };
                    let answer = converse(stream, outgoing(head, origin, target(head), Empty::new()));
                    timeout(self.origins.answer_timeout, answer).await.unwrap_or(Err(Failure::Silent))
                }
            };
            origin.learn_from(asked, &answer);
            return answer.and_then(usable);
        }
        Err(Failure::Unreachable)
    }

    async fn kept(
        &self,
        head: &request::Parts,
        origin: &Origin,
    ) -> Result<Response<Incoming>, hyper_util::client::legacy::Error> {
        self.kept.request(outgoing(head, origin, origin.uri(&head.uri), Empty::new())).await
    }

    /// Sends a request over a new connection; never twice once a byte of it was sent.
    pub async fn write(&self, head: &request::Parts, body: Upload) -> Result<Response<Incoming>, Failure> {
        for origin in self.origins.order(false) {
            let _under_way = UnderWay::new(origin);
            let asked = Instant::now();
            let Some(stream) = self.origins.open(origin).await else { continue };
            let progress = body.progress();
            let answer = converse(stream, outgoing(head, origin, target(head), body));
            tokio::pin!(answer);
            // The application's time begins when it has the whole request, or as much as it wants of it.
            let mut until = Instant::now() + self.origins.answer_timeout;
            let answer = loop {
                tokio::select! {
                    answer = &mut answer => {
                        break answer.map_err(|failure| progress.cut().map_or(failure, Failure::from));
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
            origin.learn_from(asked, &answer);
            return answer.and_then(usable);
        }
        Err(Failure::Unreachable)
    }
}

/// An answer that ends HTTP on its connection, or any other that a client can be given.
fn upgraded(answer: Response<Incoming>) -> Result<Response<Incoming>, Failure> {
    if answer.status() == StatusCode::SWITCHING_PROTOCOLS { Ok(answer) } else { usable(answer) }
}

/// An error, and what it came from.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

impl Connections {
    /// Sends a request that asks for another protocol, over a new connection, which may become one of that.
    pub async fn upgrade(&self, head: &request::Parts) -> Result<Response<Incoming>, Failure> {
        for origin in self.origins.order(false) {
            let _under_way = UnderWay::new(origin);
            let asked = Instant::now();
            let Some(stream) = self.origins.open(origin).await else { continue };
            let answer = converse(stream, outgoing(head, origin, target(head), Empty::<Bytes>::new()));
            let answer = timeout(self.origins.answer_timeout, answer).await.unwrap_or(Err(Failure::Silent));
            origin.learn_from(asked, &answer);
            return answer.and_then(upgraded);
        }
        Err(Failure::Unreachable)
    }
}

/// One exchange over a connection of its own.
async fn converse<B>(stream: Stream, request: Request<B>) -> Result<Response<Incoming>, Failure>
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut http = hyper::client::conn::http1::Builder::new();
    let handshake = http.max_headers(MOST_FIELDS).preserve_header_case(true).handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|_| Failure::Broken)?;
    tokio::spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(%error, "a connection to the application ended");
        }
    });
    sender.send_request(request).await.map_err(|_| Failure::Broken)
}

/// An answer that a client can be given: no change of protocol, which nobody asked for, and no coding that is taken off without being undone.
fn usable(mut answer: Response<Incoming>) -> Result<Response<Incoming>, Failure> {
    if answer.status().is_informational() || !is_framed_plainly(answer.headers()) {
        return Err(Failure::Broken);
    }
    // Where there are chunks they say how long it is, and clients must not be told anything else (RFC 9112 section 6.3).
    if answer.headers().contains_key(TRANSFER_ENCODING) {
        answer.headers_mut().remove(CONTENT_LENGTH);
    }
    Ok(answer)
}

fn target(head: &request::Parts) -> Uri {
    head.uri.path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/")).into()
}

fn outgoing<B: HttpBody>(head: &request::Parts, origin: &Origin, uri: Uri, body: B) -> Request<B> {
    let mut headers = head.headers.clone();
    if !headers.contains_key(HOST)
        && let Ok(host) = HeaderValue::try_from(origin.address.authority().map_or("localhost", Authority::as_str))
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
    // How their names are spelled.
    *request.extensions_mut() = head.extensions.clone();
    request
}
