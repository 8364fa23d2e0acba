//! A client's connection, from its first byte to its end.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Request};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ServerConfig;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::alpn::H2;
use crate::config::Hits;
use crate::connection::{Asked, Carrier, Connection};
use crate::exchange::Exchange;
use crate::observed::{Counted, Done, Observed};
use crate::proxy_protocol::{self, Ends, Network, NoHeader};
use crate::streams::{Streams, Verdict, Watch};
use crate::taking::Untaken;
use crate::tunnel::Tunnels;

/// Bytes that may wait in a connection's buffers, each way; of HTTP/2 in those of each stream on its way to the client.
const CONNECTION_BUFFER: usize = 64 << 10;
/// The longest head of a request, in bytes; a longer one is answered 431, and so is one of more than 100 fields over HTTP/1. HTTP/2 counts 32 more for each field
/// (RFC 9113 section 6.5.2), which bounds their number too. It also bounds how many CONTINUATION frames are read.
const LONGEST_HEAD: usize = 32 << 10;
/// Bytes of requests' bodies that a client may send over a connection of HTTP/2 before they are taken: what it can make the proxy hold.
const CONNECTION_WINDOW: u32 = 1 << 20;
/// The same for one stream: as much as a distant client needs to send at full speed, and never all of the connection.
const STREAM_WINDOW: u32 = 256 << 10;
/// Streams that a client opened and reset before the proxy came to them. Beyond, the connection ends (CVE-2023-44487); h2's own default, said here so that it stays.
const RESET_STREAMS: usize = 20;
/// Streams that the proxy reset for what the client sent on them. Beyond, the connection ends (CVE-2025-8671).
const ERROR_STREAMS: usize = 128;

const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// What one thread takes connections with.
pub(crate) struct Inbound {
    pub exchange: Arc<Exchange>,
    /// If clients speak TLS.
    pub tls: Option<Arc<ServerConfig>>,
    /// Networks whose connections begin with a header that says whose they are.
    pub balancers: Vec<Network>,
    /// If a route lets connections become tunnels.
    pub tunnels: Option<Arc<Tunnels>>,
    pub patience: Duration,
    /// Streams of a connection at once.
    pub streams: u32,
    /// Connections to the application begin with whose they are.
    pub introduces: bool,
    pub observed: Observed,
    /// Where hits are answered.
    pub hits: Hits,
    /// Changes when connections are to end. Each one watches it.
    pub ending: watch::Sender<()>,
}

/// The peer of a connection, and how it is connected.
#[derive(Clone, Copy)]
struct Client {
    address: SocketAddr,
    /// The address that it connected to, if the application gets to see it.
    here: Option<SocketAddr>,
    is_secure: bool,
}

impl Inbound {
    /// Lets requests under way come to their ends, and returns when all connections have.
    pub async fn end(&self) {
        self.ending.send_replace(());
        self.ending.closed().await;
    }

    /// Serves one connection.
    pub async fn serve(self: Arc<Self>, stream: TcpStream, address: SocketAddr, ending: watch::Receiver<()>) {
        let _counted = Counted::new(&self.observed.connections);
        // Small writes that wait for each other cost more than they save; a refusal costs only that.
        let _ = stream.set_nodelay(true);
        if self.balancers.iter().any(|network| network.has(address.ip())) {
            // Boxed: a connection without a header needs no room for one.
            return Box::pin(self.serve_passed_on(stream, address, ending)).await;
        }
        self.serve_client(stream, address, ending).await;
    }

    /// Serves a connection that a balancer passes on.
    async fn serve_passed_on(&self, mut stream: TcpStream, balancer: SocketAddr, ending: watch::Receiver<()>) {
        let reason = match timeout(self.patience, proxy_protocol::read(&mut stream)).await {
            Ok(Ok(client)) => return self.serve_client(stream, client.unwrap_or(balancer), ending).await,
            // The peer only checked whether the port listens.
            Ok(Err(NoHeader::Ended)) => return,
            Ok(Err(NoHeader::Malformed)) => "malformed",
            Ok(Err(NoHeader::Read(_))) => "broken",
            Err(_) => "slow",
        };
        self.observed.headers_refused.with([reason]).increment();
        tracing::debug!(%balancer, reason, "a connection without a header of the PROXY protocol");
    }

    async fn serve_client(&self, stream: TcpStream, address: SocketAddr, ending: watch::Receiver<()>) {
        let Some(tls) = self.tls.clone() else {
            let client = self.client(&stream, address, false);
            return self.serve_http1(stream, client, ending).await;
        };
        // Boxed: a connection without TLS needs no room for this.
        Box::pin(self.serve_secure(tls, stream, address, ending)).await;
    }

    async fn serve_secure(
        &self,
        tls: Arc<ServerConfig>,
        stream: TcpStream,
        address: SocketAddr,
        ending: watch::Receiver<()>,
    ) {
        let client = self.client(&stream, address, true);
        let Some(stream) = self.handshake(tls, stream, address).await else { return };
        match stream.get_ref().1.alpn_protocol() {
            Some(H2) => self.serve_http2(stream, client, ending).await,
            _ => self.serve_http1(stream, client, ending).await,
        }
    }

    fn client(&self, stream: &TcpStream, address: SocketAddr, is_secure: bool) -> Client {
        let here = stream.local_addr().ok().filter(|_| self.introduces);
        Client { address, here, is_secure }
    }

    async fn handshake(
        &self,
        tls: Arc<ServerConfig>,
        stream: TcpStream,
        client: SocketAddr,
    ) -> Option<TlsStream<TcpStream>> {
        let reason = match timeout(self.patience, TlsAcceptor::from(tls).accept(stream)).await {
            Ok(Ok(stream)) => return Some(stream),
            Ok(Err(error)) => {
                tracing::debug!(%error, %client, "no TLS with a client");
                "refused"
            }
            Err(_) => "slow",
        };
        self.observed.handshakes_failed.with([reason]).increment();
        None
    }

    async fn serve_http1<S: Carrier + Send + 'static>(
        &self,
        stream: S,
        client: Client,
        mut ending: watch::Receiver<()>,
    ) {
        let mut stream = Connection::new(stream, self.patience, self.observed.clone());
        if self.hits == Hits::Direct && !client.is_secure {
            stream.answers_hits(crate::direct::DirectHits::new(self.exchange.clone()));
        }
        let (talk, end) = (stream.talk(), stream.talk());
        let (exchange, tunnels, closing) = (self.exchange.clone(), self.tunnels.clone(), ending.clone());
        let service = service_fn(move |mut request: Request<Incoming>| {
            let asked = talk.asked(&request);
            client.tells(&mut request);
            // A listener for both families has IPv4 addresses within IPv6 ones (RFC 4291 section 2.5.5.2); applications know them bare.
            let address = client.address.ip().to_canonical();
            match &tunnels {
                Some(tunnels) => tunnels.respond(&exchange, request, address, asked, &closing),
                None => exchange.respond(request, address, asked),
            }
        });
        // Without `pipeline_flush`: with it, hyper takes a body into memory without a bound (`can_buffer` in proto/h1/io.rs).
        // With `half_close`: a client that sends no more may still read (RFC 9112 section 9.6). One that reads no more is found when it is written to.
        let connection = http1::Builder::new()
            .half_close(true)
            .header_read_timeout(None)
            // Names go on as they came: some clients and applications know a field in one spelling alone.
            .preserve_header_case(true)
            .max_buf_size(CONNECTION_BUFFER)
            .max_header_size(LONGEST_HEAD)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades();
        let mut connection = pin!(connection);
        let ended = tokio::select! {
            biased;
            ended = connection.as_mut() => ended,
            _ = ending.changed() => {
                end.ends();
                // To hyper a connection rests on which a hit is being answered, and it would close it.
                let rests = poll_fn(|context| match connection.as_mut().poll(context) {
                    Poll::Ready(ended) => Poll::Ready(Some(ended)),
                    Poll::Pending if end.is_ahead() => Poll::Pending,
                    Poll::Pending => Poll::Ready(None),
                });
                match rests.await {
                    Some(ended) => ended,
                    None => {
                        connection.as_mut().graceful_shutdown();
                        connection.await
                    }
                }
            }
        };
        if let Err(error) = ended {
            if error.is_parse() {
                let reason = if error.is_parse_too_large() { "head-too-large" } else { "head-malformed" };
                self.observed.answered(Done::Error, Some(reason));
            }
            tracing::debug!(%error, client = %client.address, "a client's connection ended");
        }
    }

    async fn serve_http2<S: Carrier + Send + 'static>(
        &self,
        stream: S,
        client: Client,
        mut ending: watch::Receiver<()>,
    ) {
        let streams = Arc::new(Streams::default());
        let (exchange, opened) = (self.exchange.clone(), streams.clone());
        let (tunnels, closing) = (self.tunnels.clone(), ending.clone());
        let service = service_fn(move |mut request: Request<Incoming>| {
            let asked = Asked::on_stream(&opened);
            client.tells(&mut request);
            let address = client.address.ip().to_canonical();
            match &tunnels {
                Some(tunnels) => tunnels.respond(&exchange, request, address, asked, &closing),
                None => exchange.respond(request, address, asked),
            }
        });
        let mut http2 = http2::Builder::new(TokioExecutor::new());
        if self.tunnels.is_some() {
            http2.enable_connect_protocol();
        }
        // The connection holds the socket to the end of this.
        let untaken = Untaken::of(stream.socket());
        let connection = http2
            .max_concurrent_streams(self.streams)
            .max_header_list_size(LONGEST_HEAD as u32)
            .max_send_buf_size(CONNECTION_BUFFER)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .initial_stream_window_size(STREAM_WINDOW)
            .max_pending_accept_reset_streams(RESET_STREAMS)
            .max_local_error_reset_streams(ERROR_STREAMS)
            .serve_connection(TokioIo::new(stream), service);
        let mut connection = pin!(connection);
        let mut watched = Watch::new(self.patience, &streams, untaken.bytes(), Instant::now());
        let mut looks = interval(watched.every());
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut is_ending = false;
        let ended = loop {
            tokio::select! {
                biased;
                ended = connection.as_mut() => break ended,
                _ = ending.changed(), if !is_ending => {
                    is_ending = true;
                    connection.as_mut().graceful_shutdown();
                }
                now = looks.tick() => match watched.look(&streams, untaken.bytes(), now) {
                    Verdict::Stay => {}
                    Verdict::Leave => connection.as_mut().graceful_shutdown(),
                    Verdict::Close => return,
                    Verdict::GiveUp => {
                        self.observed.stalled.increment();
                        return tracing::debug!(client = %client.address, "a client lets its connection stand");
                    }
                },
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, client = %client.address, "a client's connection ended");
        }
    }
}

impl Client {
    /// Tells the application how the client came, as a proxy in front would: it makes addresses of that, so it is part of a page's key.
    fn tells<B>(self, request: &mut Request<B>) {
        if self.is_secure {
            request.headers_mut().entry(FORWARDED_PROTO).or_insert(HeaderValue::from_static("https"));
        }
        if let Some(here) = self.here {
            request.extensions_mut().insert(Ends { from: self.address, to: here });
        }
    }
}
