//! The application's processes: which one a request goes to, and how it fails.
//!
//! Reads go over kept connections, and once more over a new one if a kept one turns out to be closed. Writes always
//! go over a new connection: so it is known whether a byte was sent (rule P7), and an idle connection that the application closes
//! at the wrong moment leaves no update of unknown outcome. Over HTTP/2 reads share one connection of their thread ([`multiplexed`]).
//!
//! One builder makes the heads of both versions ([`messages`]), and an answer of either is framed for the client anew.

mod address;
mod connector;
mod machines;
mod messages;
mod multiplexed;
mod places;
mod secure;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::uri::{Authority, Scheme};
use http::{Response, StatusCode, Uri, request};
use http_body::Body as HttpBody;
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until, timeout};
use verbena_metrics::Gauge;

use crate::config::OriginHttp;
use crate::health::{Health, Standing};
use crate::observed::Observed;
use crate::proxy_protocol::{Ends, ProxyVersion};
use crate::upload::{Cut, Upload};

use address::Stream;
pub(crate) use address::{Address, HTTP_PORT, HTTPS_PORT};
use connector::Connector;
pub(crate) use machines::Machines;
use messages::{Form, converse, outgoing, path, target, upgraded, usable};
use multiplexed::{Multiplexed, Way};
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

/// How connections to the origins are made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    pub http: OriginHttp,
    /// Each connection begins with a header that says whose it is, so it is for one request.
    pub introduces: Option<ProxyVersion>,
    pub connect_timeout: Duration,
    pub answer_timeout: Duration,
}

/// The origins, shared by all threads.
pub(crate) struct Origins {
    all: Vec<Origin>,
    machines: Machines,
    next: AtomicUsize,
    places: Places,
    /// If one of them speaks TLS.
    secure: Option<Secure>,
    manner: Manner,
}

struct Origin {
    /// Among all.
    number: usize,
    address: Address,
    /// Of its URIs: its own, or for a unix socket one by which the connector knows it.
    authority: Authority,
    in_flight: AtomicU32,
    /// The last one that offered both versions was answered with HTTP/1.1.
    is_plain: AtomicBool,
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
        manner: Manner,
        observed: &Observed,
    ) -> Self {
        let origin = |(number, address): (usize, Address)| {
            let up = observed.origin_up.with([address.to_string().as_str()]);
            let authority = connector::authority_of(number, &address);
            up.set(1);
            let (in_flight, fills) = (AtomicU32::new(0), AtomicUsize::new(0));
            let is_plain = AtomicBool::new(false);
            Origin { number, address, authority, in_flight, is_plain, fills, health: Mutex::default(), up }
        };
        let all: Vec<Origin> = addresses.into_iter().enumerate().map(origin).collect();
        let places = Places::new(fills, all.len(), observed);
        Origins { all, machines, next: AtomicUsize::new(0), places, secure, manner }
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
                if wants_connection && self.open(origin, None).await.is_some() {
                    origin.learn(|health, _| health.connected());
                }
            }
        }
    }

    /// Connects to each once, so that what takes no connection is known, and said, before the first request.
    pub async fn look(&self) {
        for origin in &self.all {
            // Dropped at once: what is kept is what it says of the application.
            let _ = self.open(origin, None).await;
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

    /// A connection for a request with this head, or for none.
    async fn open(&self, origin: &Origin, head: Option<&request::Parts>) -> Option<Stream> {
        let stream = self.open_for(origin, head, self.manner.http).await?;
        if self.manner.http == OriginHttp::Auto {
            origin.is_plain.store(!stream.has_agreed_on_http2(), Ordering::Relaxed);
        }
        Some(stream)
    }

    async fn open_for(&self, origin: &Origin, head: Option<&request::Parts>, http: OriginHttp) -> Option<Stream> {
        let ends = head.and_then(|head| head.extensions.get::<Ends>());
        let first = self.manner.introduces.map(|version| version.header(ends)).unwrap_or_default();
        let connecting = origin.address.connect(self.secure.as_ref(), http, &first);
        match timeout(self.manner.connect_timeout, connecting).await {
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

impl Origins {
    /// Whether HTTP/2 is spoken on a connection.
    fn speaks_http2(&self, stream: &Stream) -> bool {
        self.manner.http == OriginHttp::Http2 || stream.has_agreed_on_http2()
    }

    /// Whether requests to it may share a connection.
    fn may_share(&self, origin: &Origin) -> bool {
        match self.manner.http {
            OriginHttp::Http1 => false,
            OriginHttp::Http2 => true,
            OriginHttp::Auto => matches!(origin.address, Address::Tls(_)) && !origin.is_plain.load(Ordering::Relaxed),
        }
    }

    /// One exchange over a connection of its own.
    async fn converse<B>(
        &self,
        stream: Stream,
        head: &request::Parts,
        origin: &Origin,
        body: B,
    ) -> Result<Response<Incoming>, Failure>
    where
        B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        if !self.speaks_http2(&stream) {
            return converse(stream, outgoing(head, origin, Form::Http1(target(head)), body)?).await;
        }
        let request = outgoing(head, origin, Form::Http2, body)?;
        let mut sender = multiplexed::handshake(stream).await?;
        sender.send_request(request).await.map_err(|_| Failure::Broken)
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

    /// It took no connection. The first failure says why: a certificate that proves nothing must be distinguishable from a process
    /// that is not there.
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
        Uri::builder()
            .scheme(Scheme::HTTP)
            .authority(self.authority.clone())
            .path_and_query(path(target))
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
    shared: Multiplexed,
}

impl Connections {
    pub fn new(origins: Arc<Origins>) -> Self {
        let addresses = origins.all.iter().map(|origin| origin.address.clone());
        let connector = Connector::new(addresses, origins.secure.clone(), origins.manner.connect_timeout);
        let shared = Multiplexed::new(origins.all.len());
        let kept = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE_FOR)
            .pool_max_idle_per_host(IDLE_EACH)
            .pool_timer(TokioTimer::new())
            .http1_max_headers(MOST_FIELDS)
            .http1_preserve_header_case(true)
            .build(connector);
        Connections { origins, kept, shared }
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
            let Some(answer) = self.ask(head, origin).await else { continue };
            origin.learn_from(asked, &answer);
            return answer.and_then(|answer| usable(answer, &head.method));
        }
        Err(Failure::Unreachable)
    }

    /// Sends a request that only reads to this origin. `None`: it takes no connection.
    async fn ask(&self, head: &request::Parts, origin: &Origin) -> Option<Result<Response<Incoming>, Failure>> {
        let manner = self.origins.manner;
        if manner.introduces.is_some() {
            return self.ask_alone(head, origin).await;
        }
        if self.origins.may_share(origin) {
            return match timeout(manner.answer_timeout, self.ask_with_others(head, origin)).await {
                Ok(answer) => answer,
                Err(_) => {
                    self.shared.forget(origin).await;
                    Some(Err(Failure::Silent))
                }
            };
        }
        let request = match outgoing(head, origin, Form::Http1(origin.uri(&head.uri)), Empty::new()) {
            Ok(request) => request,
            Err(failure) => return Some(Err(failure)),
        };
        match timeout(manner.answer_timeout, self.kept.request(request)).await {
            Err(_) => Some(Err(Failure::Silent)),
            Ok(Ok(answer)) => Some(Ok(answer)),
            Ok(Err(error)) if error.is_connect() => {
                origin.refused(&chain(&error));
                None
            }
            Ok(Err(_)) => self.ask_alone(head, origin).await,
        }
    }

    /// Over a new connection.
    async fn ask_alone(&self, head: &request::Parts, origin: &Origin) -> Option<Result<Response<Incoming>, Failure>> {
        let stream = self.origins.open(origin, Some(head)).await?;
        let answer = self.origins.converse(stream, head, origin, Empty::new());
        Some(timeout(self.origins.manner.answer_timeout, answer).await.unwrap_or(Err(Failure::Silent)))
    }

    /// Over the connection of HTTP/2; again over a new one if that breaks.
    async fn ask_with_others(
        &self,
        head: &request::Parts,
        origin: &Origin,
    ) -> Option<Result<Response<Incoming>, Failure>> {
        for _ in 0..2 {
            let mut sender = match self.shared.way(&self.origins, origin).await? {
                Ok(Way::Shared(sender)) => sender,
                Ok(Way::Own(stream)) => return Some(self.origins.converse(stream, head, origin, Empty::new()).await),
                Err(failure) => return Some(Err(failure)),
            };
            let request = match outgoing(head, origin, Form::Http2, Empty::new()) {
                Ok(request) => request,
                Err(failure) => return Some(Err(failure)),
            };
            match sender.send_request(request).await {
                Ok(answer) => return Some(Ok(answer)),
                Err(error) => tracing::debug!(%error, "a shared connection to the application broke"),
            }
            self.shared.forget(origin).await;
        }
        Some(Err(Failure::Broken))
    }

    /// Sends a request over a new connection; never twice once a byte of it was sent.
    pub async fn write(&self, head: &request::Parts, body: Upload) -> Result<Response<Incoming>, Failure> {
        for origin in self.origins.order(false) {
            let _under_way = UnderWay::new(origin);
            let asked = Instant::now();
            let Some(stream) = self.origins.open(origin, Some(head)).await else { continue };
            let progress = body.progress();
            let answer = self.origins.converse(stream, head, origin, body);
            tokio::pin!(answer);
            // The application's time begins when it has the whole request, or as much as it wants of it.
            let patience = self.origins.manner.answer_timeout;
            let mut until = Instant::now() + patience;
            let answer = loop {
                tokio::select! {
                    answer = &mut answer => {
                        break answer.map_err(|failure| progress.cut().map_or(failure, Failure::from));
                    }
                    () = sleep_until(until) => {
                        let moved = progress.moved() + patience;
                        if moved <= until {
                            break Err(Failure::Silent);
                        }
                        until = moved;
                    }
                }
            };
            origin.learn_from(asked, &answer);
            return answer.and_then(|answer| usable(answer, &head.method));
        }
        Err(Failure::Unreachable)
    }
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
            // Its protocol begins where HTTP/1.1 ends (RFC 9113 section 8.6).
            let opening = self.origins.open_for(origin, Some(head), OriginHttp::Http1);
            let Some(stream) = opening.await else { continue };
            let request = outgoing(head, origin, Form::Http1(target(head)), Empty::<Bytes>::new())?;
            let answer = converse(stream, request);
            let answer = timeout(self.origins.manner.answer_timeout, answer).await.unwrap_or(Err(Failure::Silent));
            origin.learn_from(asked, &answer);
            return answer.and_then(upgraded);
        }
        Err(Failure::Unreachable)
    }
}
