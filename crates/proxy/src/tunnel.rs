//! Connections that become WebSockets (RFC 6455), where a route lets them (rule H14).
//!
//! ```text
//!  GET with Upgrade: websocket  -->  a connection of its own to the application  --101-->  bytes pass, both ways
//!      bytes behind the request wait                       |                                |
//!                                                          +--any other answer-->  passed on, and the connection ends
//! ```
//!
//! Over HTTP/2 a client asks by `CONNECT` with `:protocol = websocket` (RFC 8441), and gets 200 in the place of 101. The application is asked over HTTP/1.1 all the same, by a
//! question of the proxy's own ([`WebSocketKey`]).
//!
//! Until the application has said 101 nothing but the request is sent to it: what a client sent behind it may be the next request as well as the beginning of
//! another protocol, and only one of the two ends may decide which. No other protocol than `websocket` is passed, `h2c` least of all: in it requests would pass
//! that no rule here has checked.

use std::io::Result as IoResult;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::{CONNECTION, CONTENT_LENGTH, UPGRADE};
use http::{HeaderValue, Method, Request, Response, StatusCode, Version};
use hyper::body::{Body as _, Incoming};
use hyper::ext::Protocol;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional_with_sizes};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{sleep, timeout};
use verbena_caching::{Conditions, Intent, Reason, Request as Wanted, Route, received};

use crate::answer::{self, forwarded};
use crate::body::Body;
use crate::connection::Asked;
use crate::exchange::{Exchange, Unanswered};
use crate::observed::{Counted, Done};
use crate::origin::Failure;
use crate::proxy_protocol::Ends;
use crate::responding::Responding;
use crate::streams::Streams;
use crate::websocket_key::{ACCEPT, KEY, WebSocketKey};

/// The one protocol that is passed.
const WEBSOCKET: HeaderValue = HeaderValue::from_static("websocket");
/// Bytes under way in a tunnel, each way.
const BUFFER: usize = 16 << 10;

/// The tunnels of a proxy, shared by its threads.
pub(crate) struct Tunnels {
    places: Arc<Semaphore>,
    /// How long one may carry nothing.
    patience: Duration,
}

/// A request for a tunnel.
struct Wish {
    head: http::request::Parts,
    route: Route,
    client: IpAddr,
    /// The client's end, once its 101 or 200 is out.
    end: OnUpgrade,
    /// The connection of which it becomes a stream, where that is one of HTTP/2.
    streams: Option<Arc<Streams>>,
    ending: watch::Receiver<()>,
}

impl Tunnels {
    /// At most `most` tunnels at once, each closed when it carries nothing for `patience`.
    pub fn new(most: usize, patience: Duration) -> Self {
        Tunnels { places: Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS))), patience }
    }

    /// Answers a request: by a tunnel if it asks for one, and may have it.
    pub fn respond(
        self: &Arc<Self>,
        exchange: &Arc<Exchange>,
        mut request: Request<Incoming>,
        client: IpAddr,
        asked: Asked,
        ending: &watch::Receiver<()>,
    ) -> Responding {
        let Some((head, route)) = wish(exchange, &request) else {
            return exchange.respond(request, client, asked);
        };
        let end = hyper::upgrade::on(&mut request);
        let wish = Wish { head, route, client, end, streams: asked.streams(), ending: ending.clone() };
        Responding::later(asked, self.clone().open(exchange.clone(), wish))
    }

    async fn open(self: Arc<Self>, exchange: Arc<Exchange>, wish: Wish) -> Result<Response<Body>, Unanswered> {
        let observed = exchange.cache.observed.clone();
        let in_flight = Counted::new(&observed.in_flight);
        let answer = match self.places.clone().try_acquire_owned() {
            Ok(place) => self.ask(&exchange, wish, place).await,
            Err(_) => {
                observed.tunnels_refused.increment();
                let text = "as many tunnels are open as may be";
                answer::own(StatusCode::SERVICE_UNAVAILABLE, text, forwarded("bypass", Some("tunnels-full")))
            }
        };
        drop(in_flight);
        let done = if answer.status().is_server_error() { Done::Error } else { Done::Pass };
        observed.answered(done, answer::reason(&answer));
        Ok(answer)
    }

    async fn ask(&self, exchange: &Exchange, wish: Wish, place: OwnedSemaphorePermit) -> Response<Body> {
        let Wish { head, route, client, end, streams, ending } = wish;
        let (mut head, hidden) =
            exchange.outgoing(head, Intent::Pass(Reason::Upgrade), Conditions::All, &route, client);
        head.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        head.headers.insert(UPGRADE, WEBSOCKET);
        // Of HTTP/1.1 the client asks itself, and sees itself what is answered.
        let key = streams.is_some().then(WebSocketKey::new);
        if let Some(key) = &key {
            head.headers.insert(KEY, key.value());
        }
        let closing = if streams.is_some() { |response| response } else { closing };
        let mut answered = match exchange.connections.upgrade(&head).await {
            Ok(answered) => answered,
            Err(failure) => return closing(exchange.failed(failure, "bypass")),
        };
        let noted = forwarded("bypass", Some(Reason::Upgrade.name()));
        if answered.status() != StatusCode::SWITCHING_PROTOCOLS {
            // To a client of HTTP/2 each 2xx would say that there is a tunnel.
            return match streams.is_some() && answered.status().is_success() {
                true => exchange.failed(Failure::Broken, "bypass"),
                false => closing(exchange.passed(answered, (&hidden, route.mode), noted, None)),
            };
        }
        if key.as_ref().is_some_and(|key| !key.is_answered_by(answered.headers())) {
            return exchange.failed(Failure::Broken, "bypass");
        }
        let other_end = hyper::upgrade::on(&mut answered);
        let mut response = exchange.passed(answered, (&hidden, route.mode), noted, None);
        *response.body_mut() = Body::empty();
        if streams.is_some() {
            *response.status_mut() = StatusCode::OK;
            // Neither means anything of a 101, and of this 200 a length would be one of a body.
            for name in [ACCEPT, CONTENT_LENGTH] {
                response.headers_mut().remove(name);
            }
        } else {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
            response.headers_mut().insert(UPGRADE, WEBSOCKET);
        }
        let observed = exchange.cache.observed.clone();
        let opening = exchange.client_patience;
        let patience = Patience { carries_nothing: self.patience, is_over: opening.min(self.patience) };
        // Its connection does not rest while the tunnel is there.
        let stream = streams.map(TunnelStream::begin);
        tokio::spawn(async move {
            let _counted = Counted::new(&observed.tunnels);
            let ends = async { tokio::try_join!(end, other_end) };
            match timeout(opening, ends).await {
                Ok(Ok((client, application))) => carry((client, stream), application, patience, ending).await,
                other => tracing::debug!(failed = ?other.map(|_| ()), "a tunnel did not come about"),
            }
            drop(place);
        });
        response
    }
}

/// A tunnel among the streams of a connection of HTTP/2, which is watched for what moves on it.
struct TunnelStream {
    streams: Arc<Streams>,
    /// A piece waits for the client.
    is_owed: bool,
}

impl TunnelStream {
    fn begin(streams: Arc<Streams>) -> Self {
        streams.begins();
        TunnelStream { streams, is_owed: false }
    }

    /// The client was offered a piece, and took it or did not.
    fn offers(&mut self, is_taken: bool) {
        self.streams.owing(&mut self.is_owed, !is_taken);
        if is_taken {
            self.streams.moves();
        }
    }
}

impl Drop for TunnelStream {
    fn drop(&mut self) {
        self.streams.owing(&mut self.is_owed, false);
        self.streams.ends();
    }
}

/// The head and the route of a request for a WebSocket that its route lets pass. One that may write is no such request: it is bracketed.
fn wish(exchange: &Exchange, request: &Request<Incoming>) -> Option<(http::request::Parts, Route)> {
    let is_wish = match request.version() {
        Version::HTTP_2 => is_extended_connect(request),
        Version::HTTP_11 => is_upgrade(request),
        _ => false,
    };
    if !is_wish || !request.body().is_end_stream() {
        return None;
    }
    let mut copy = Request::new(());
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    *copy.version_mut() = request.version();
    if let Some(ends) = request.extensions().get::<Ends>() {
        copy.extensions_mut().insert(*ends);
    }
    let mut head = copy.into_parts().0;
    received(&mut head).ok()?;
    let route = exchange.routes.find(head.uri.path());
    if !route.upgrade || matches!(Wanted::of(&head, false, &route, &exchange.cache.keys).intent, Intent::Update(_)) {
        return None;
    }
    let route = route.into_owned();
    Some((head, route))
}

/// A `GET` with `Upgrade: websocket` and no other protocol.
fn is_upgrade<B>(request: &Request<B>) -> bool {
    let mut protocols = request.headers().get_all(UPGRADE).iter();
    let is_websocket = protocols.next().is_some_and(|protocol| protocol.as_bytes().eq_ignore_ascii_case(b"websocket"));
    is_websocket && protocols.next().is_none() && request.method() == Method::GET && is_connections(request)
}

/// A `CONNECT` to a path, for a WebSocket (RFC 8441 section 4).
fn is_extended_connect<B>(request: &Request<B>) -> bool {
    let protocol = request.extensions().get::<Protocol>();
    request.method() == Method::CONNECT && protocol.is_some_and(|protocol| protocol.as_str() == "websocket")
}

/// Whether `Connection` says that `Upgrade` is meant for this connection (RFC 9110 section 7.8).
fn is_connections<B>(request: &Request<B>) -> bool {
    let lines = request.headers().get_all(CONNECTION).into_iter();
    lines
        .flat_map(|line| line.as_bytes().split(|byte| *byte == b','))
        .any(|option| option.trim_ascii().eq_ignore_ascii_case(b"upgrade"))
}

/// With an answer after which the connection ends: what came behind the request was perhaps none.
fn closing(mut response: Response<Body>) -> Response<Body> {
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// How long a tunnel may carry nothing.
#[derive(Clone, Copy)]
struct Patience {
    carries_nothing: Duration,
    /// When the client has said its last: over HTTP/2 one that has gone looks like that.
    is_over: Duration,
}

/// Passes bytes until both ends have said their last, or for too long none, or the proxy ends.
async fn carry(
    (client, stream): (Upgraded, Option<TunnelStream>),
    application: Upgraded,
    patience: Patience,
    mut ending: watch::Receiver<()>,
) {
    let (moved, has_ended) = (Arc::new(AtomicU64::new(0)), Arc::new(Notify::new()));
    let mut client = Counting::new(client, &moved);
    (client.among, client.ended) = (stream, Some(has_ended.clone()));
    let mut application = Counting::new(application, &moved);
    let idle = async {
        let (mut before, mut patience_now) = (moved.load(Ordering::Relaxed), patience.carries_nothing);
        loop {
            tokio::select! {
                () = sleep(patience_now) => {}
                () = has_ended.notified() => {
                    patience_now = patience.is_over;
                    continue;
                }
            }
            let now = moved.load(Ordering::Relaxed);
            if now == before {
                return;
            }
            before = now;
        }
    };
    tokio::select! {
        ended = copy_bidirectional_with_sizes(&mut client, &mut application, BUFFER, BUFFER) => {
            tracing::debug!(?ended, "a tunnel ended");
        }
        () = idle => tracing::debug!("a tunnel carried nothing for too long"),
        _ = ending.changed() => {}
    }
}

/// An end of a tunnel that counts what is read from it.
struct Counting {
    stream: TokioIo<Upgraded>,
    moved: Arc<AtomicU64>,
    /// If it is a stream of HTTP/2.
    among: Option<TunnelStream>,
    /// Told when it has said its last, where that is to be known.
    ended: Option<Arc<Notify>>,
}

impl Counting {
    fn new(end: Upgraded, moved: &Arc<AtomicU64>) -> Self {
        Counting { stream: TokioIo::new(end), moved: moved.clone(), among: None, ended: None }
    }
}

impl AsyncRead for Counting {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<IoResult<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        let bytes = buffer.filled().len() - before;
        self.moved.fetch_add(bytes as u64, Ordering::Relaxed);
        if bytes == 0
            && read.is_ready()
            && let Some(ended) = self.ended.take()
        {
            ended.notify_one();
        }
        if let Some(stream) = self.among.as_ref().filter(|_| read.is_ready()) {
            stream.streams.moves();
        }
        read
    }
}

impl AsyncWrite for Counting {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<IoResult<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        if let Some(stream) = &mut self.among {
            stream.offers(written.is_ready());
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<IoResult<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<IoResult<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
