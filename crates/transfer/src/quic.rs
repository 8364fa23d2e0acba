//! The channel `quic`: one connection for each stream, pinned to the control connection (rule T2).
//!
//! The listening side makes a certificate when its process needs the first one, and the answer to `TPRT` carries its
//! fingerprint: BLAKE3 of the certificate. The other side takes this certificate and no other, whatever name and times are
//! in it. All connections of a process are driven by one thread, which ends behind the last of them; streams read and write from threads of their own.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{
    ClientConfig, Connection, Endpoint, EndpointConfig, RecvStream, SendStream, ServerConfig, TransportConfig,
};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::channel::{Channel, Ends, LinkCounts, Token, is_hello};
use crate::channel_kind::ChannelKind;
use crate::frame::{Frame, LENGTHS};
use crate::streams::Arrived;

/// What a certificate is known by.
pub type Fingerprint = [u8; 32];

/// The name of the protocol within TLS.
const PROTOCOL: &[u8] = b"verbena-transfer";
/// Strangers that may prove themselves at a time, and how long each has (rule T14).
const MOST_PROOFS: usize = 64;
const PROOF: Duration = Duration::from_secs(10);
/// Bytes under way on one connection: more than the session's credit, which bounds it.
const WINDOW: u32 = 32 << 20;
/// Buffers of the kernel for datagrams, as far as it lets us.
const SOCKET_BYTES: usize = 8 << 20;
/// A silence of so long ends a connection; pings keep it from one.
const SILENCE: Duration = Duration::from_secs(60);
const PING_EVERY: Duration = Duration::from_secs(10);
/// How long the other side may take to acknowledge what was sent last.
const FAREWELL: Duration = Duration::from_secs(60);
/// How long connections are driven behind the last one's end.
const LINGER: Duration = Duration::from_secs(1);
/// The longest hello.
const LONGEST_HELLO: usize = 256;

fn other(error: impl std::fmt::Display) -> Error {
    Error::other(error.to_string())
}

/// The runtime that drives all connections of this process, for as long as a connection or a listener holds it.
#[derive(Debug)]
struct Driver {
    handle: Handle,
    /// Dropped with the last holder: the thread then ends.
    _stop: oneshot::Sender<()>,
}

impl Driver {
    fn shared() -> Result<Arc<Driver>> {
        static SHARED: Mutex<Weak<Driver>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(driver) = shared.upgrade() {
            return Ok(driver);
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let (stop, stopped) = oneshot::channel();
        let driver = Arc::new(Driver { handle: runtime.handle().clone(), _stop: stop });
        std::thread::Builder::new().name("quic".into()).spawn(move || {
            runtime.block_on(async {
                let _ = stopped.await;
                // What was closed last is still told to the other side.
                tokio::time::sleep(LINGER).await;
            });
        })?;
        *shared = Arc::downgrade(&driver);
        Ok(driver)
    }
}

/// The certificate of this process, and its key.
fn certificate() -> Result<&'static (CertificateDer<'static>, PrivatePkcs8KeyDer<'static>)> {
    static MADE: OnceLock<std::result::Result<(CertificateDer<'static>, PrivatePkcs8KeyDer<'static>), String>> =
        OnceLock::new();
    let made = MADE.get_or_init(|| {
        let made = rcgen::generate_simple_self_signed(vec!["verbena".into()]).map_err(|error| error.to_string())?;
        Ok((made.cert.der().clone(), PrivatePkcs8KeyDer::from(made.signing_key.serialize_der())))
    });
    made.as_ref().map_err(|error| Error::other(error.clone()))
}

fn transport() -> Arc<TransportConfig> {
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_bidi_streams(1u8.into())
        .max_concurrent_uni_streams(0u8.into())
        .stream_receive_window(WINDOW.into())
        .receive_window(WINDOW.into())
        .send_window(WINDOW.into())
        .max_idle_timeout(SILENCE.try_into().ok())
        .keep_alive_interval(Some(PING_EVERY));
    Arc::new(transport)
}

fn endpoint(driver: &Driver, address: SocketAddr, server: Option<ServerConfig>) -> Result<Endpoint> {
    let socket = UdpSocket::bind(address)?;
    // A kernel that gives less only loses more in bursts.
    let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&socket, SOCKET_BYTES);
    let _ = rustix::net::sockopt::set_socket_send_buffer_size(&socket, SOCKET_BYTES);
    let _inside = driver.handle.enter();
    Endpoint::new(EndpointConfig::default(), server, socket, Arc::new(quinn::TokioRuntime))
}

/// Takes the streams of one session.
#[derive(Debug)]
pub struct QuicListener {
    endpoint: Endpoint,
    fingerprint: Fingerprint,
    driver: Arc<Driver>,
}

impl QuicListener {
    /// Listens at an address; port 0 lets the system choose.
    pub fn bind(address: SocketAddr) -> Result<QuicListener> {
        let (certificate, key) = certificate()?;
        let mut tls = rustls::ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(other)?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], key.clone_key().into())
            .map_err(other)?;
        tls.alpn_protocols = vec![PROTOCOL.to_vec()];
        let mut config = ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls).map_err(other)?));
        config.transport_config(transport());
        let driver = Driver::shared()?;
        let endpoint = endpoint(&driver, address, Some(config))?;
        Ok(QuicListener { endpoint, fingerprint: *blake3::hash(certificate).as_bytes(), driver })
    }

    /// Where it listens.
    pub fn address(&self) -> Result<SocketAddr> {
        self.endpoint.local_addr()
    }

    /// What the other side pins.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Takes streams that bring the token, from peers of these addresses, until what is returned is dropped, and hands them on. What comes
    /// without the token is closed, and listening goes on (rules T1 and T14).
    pub fn start(
        self,
        token: Token,
        streams: u16,
        allowed: Vec<IpAddr>,
        arriving: Sender<Arrived>,
    ) -> Result<QuicListening> {
        let QuicListener { endpoint, driver, .. } = self;
        let task = driver.clone().handle.spawn(async move {
            let mut proofs = JoinSet::new();
            loop {
                tokio::select! {
                    taken = endpoint.accept(), if proofs.len() < MOST_PROOFS => match taken {
                        None => return,
                        Some(incoming) if !allowed.contains(&incoming.remote_address().ip().to_canonical()) => {
                            tracing::info!(peer = %incoming.remote_address(), "a stranger at a port of a session was refused");
                            incoming.refuse();
                        }
                        Some(incoming) => {
                            proofs.spawn(tokio::time::timeout(PROOF, prove(incoming, token, streams, driver.clone())));
                        }
                    },
                    Some(proof) = proofs.join_next() => {
                        if let Ok(Ok(Some((number, stream)))) = proof
                            && arriving.send((number, Box::new(stream))).is_err()
                        {
                            return;
                        }
                    }
                }
            }
        });
        Ok(QuicListening(task.abort_handle()))
    }
}

/// Takes streams until it is dropped. Those that came go on.
#[derive(Debug)]
pub struct QuicListening(tokio::task::AbortHandle);

impl Drop for QuicListening {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Reads the hello of a connection that was taken.
async fn prove(
    incoming: quinn::Incoming,
    token: Token,
    streams: u16,
    driver: Arc<Driver>,
) -> Option<(u16, QuicStream)> {
    let connection = incoming.await.ok()?;
    let (send, mut receive) = connection.accept_bi().await.ok()?;
    let mut lengths = [0; LENGTHS];
    receive.read_exact(&mut lengths).await.ok()?;
    let (head_length, data_length) = Frame::lengths(&lengths).ok()?;
    if head_length > LONGEST_HELLO || data_length > 0 {
        return None;
    }
    let mut head = vec![0; head_length];
    receive.read_exact(&mut head).await.ok()?;
    let (number, all) = is_hello(&Frame::decode(&lengths, &head).ok()?, &token)?;
    (all == streams).then(|| (number, QuicStream { connection, send, receive, driver }))
}

/// A stream that has said hello, or heard it.
#[derive(Debug)]
pub struct QuicStream {
    connection: Connection,
    send: SendStream,
    receive: RecvStream,
    driver: Arc<Driver>,
}

impl QuicStream {
    /// Connects to a listener of this fingerprint, from this address where one is given, and says hello. Waits: not for a thread that drives a runtime.
    pub fn connect(
        here: Option<IpAddr>,
        to: SocketAddr,
        pinned: Fingerprint,
        hello: &Frame,
        most: Duration,
    ) -> Result<QuicStream> {
        let driver = Driver::shared()?;
        let provider = Arc::new(ring::default_provider());
        let mut tls = rustls::ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(other)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Pinned { fingerprint: pinned, provider }))
            .with_no_client_auth();
        tls.alpn_protocols = vec![PROTOCOL.to_vec()];
        let mut config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).map_err(other)?));
        config.transport_config(transport());
        let any: IpAddr = if to.is_ipv4() { [0u8; 4].into() } else { [0u16; 8].into() };
        let endpoint = endpoint(&driver, SocketAddr::new(here.unwrap_or(any), 0), None)?;
        let made = async {
            let connection = endpoint.connect_with(config, to, "verbena").map_err(other)?.await.map_err(other)?;
            let (mut send, receive) = connection.open_bi().await.map_err(other)?;
            send.write_all(&hello.encode(0)).await.map_err(other)?;
            Ok((connection, send, receive))
        };
        let made: Result<(Connection, SendStream, RecvStream)> =
            driver.handle.block_on(async { tokio::time::timeout(most, made).await.map_err(|_| ErrorKind::TimedOut)? });
        let (connection, send, receive) = made?;
        Ok(QuicStream { connection, send, receive, driver })
    }
}

struct Reader(RecvStream, Arc<Driver>);

impl Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        Ok(self.1.handle.block_on(self.0.read(buffer)).map_err(other)?.unwrap_or(0))
    }
}

struct Writer(Arc<Mutex<SendStream>>, Arc<Driver>);

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        let mut stream = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        self.1.handle.block_on(stream.write(bytes)).map_err(other)
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

impl Channel for QuicStream {
    fn ends(self: Box<Self>) -> Result<Ends> {
        let QuicStream { connection, send, receive, driver } = *self;
        let send = Arc::new(Mutex::new(send));
        let (finished, closed, counted, waits) = (send.clone(), connection.clone(), connection, driver.clone());
        Ok(Ends {
            read: Box::new(std::io::BufReader::with_capacity(64 << 10, Reader(receive, driver.clone()))),
            write: Box::new(Writer(send, driver)),
            finish: Box::new(move || {
                let mut stream = finished.lock().unwrap_or_else(PoisonError::into_inner);
                if stream.finish().is_ok() {
                    // A connection that is dropped drops what the other side has not acknowledged.
                    let stopped = stream.stopped();
                    let _ = waits.handle.block_on(async { tokio::time::timeout(FAREWELL, stopped).await });
                }
            }),
            close: Box::new(move || closed.close(0u8.into(), b"closed")),
            counts: Box::new(move || {
                let stats = counted.stats();
                Some(LinkCounts {
                    bytes: stats.udp_tx.bytes.saturating_sub(stats.path.lost_bytes),
                    packets: stats.path.sent_packets,
                    again: stats.path.lost_packets,
                    round_trip: stats.path.rtt,
                })
            }),
            channel: ChannelKind::Quic,
            about: "quic with cubic".into(),
            handover: None,
        })
    }
}

/// Takes one certificate, and no other.
#[derive(Debug)]
struct Pinned {
    fingerprint: Fingerprint,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        match *blake3::hash(end_entity).as_bytes() == self.fingerprint {
            true => Ok(ServerCertVerified::assertion()),
            false => {
                Err(rustls::Error::General("this is not the certificate that the control connection named".into()))
            }
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
