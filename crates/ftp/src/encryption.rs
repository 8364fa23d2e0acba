//! TLS of the server: the certificate, and which connections belong together.
//!
//! Each control connection has a random name. It stands in every ticket that the control connection and its data
//! connections give, and a ticket with another name is none: so a data connection that resumes a session proves whose it is
//! (rule T2). rustls has data of its own for tickets, but reads it in TLS 1.3 alone. Data connections by which
//! the client uploads give no TLS 1.3 tickets: a client that closes without reading them makes its kernel reset the
//! connection, and the end of the upload is lost (rule T4).

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ProducesTickets, ServerSessionMemoryCache};
use rustls::{HandshakeKind, ServerConfig, ServerConnection, StreamOwned};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::moving::Connection;
use crate::options::{DataTls, ServeError, TlsOptions};

/// The name of a control connection in its tickets.
pub(crate) type SessionName = [u8; 16];

/// Sessions without tickets that a control connection keeps: clients of TLS 1.2 may know nothing else.
const MOST_SESSIONS: usize = 4;

/// What connections are encrypted with.
pub(crate) struct Encryption {
    config: ServerConfig,
    pub is_required: bool,
    data: DataTls,
    takes_unclean_end: bool,
}

/// Tickets of one control connection.
#[derive(Debug)]
struct NamedTickets {
    all: Arc<dyn ProducesTickets>,
    name: SessionName,
}

impl ProducesTickets for NamedTickets {
    fn enabled(&self) -> bool {
        self.all.enabled()
    }

    fn lifetime(&self) -> u32 {
        self.all.lifetime()
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.all.encrypt(&[&self.name, plain].concat())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        self.all.decrypt(ticket)?.strip_prefix(&self.name).map(<[u8]>::to_vec)
    }
}

/// What one control connection and its data connections are encrypted with.
pub(crate) struct SessionTls {
    tickets: TlsAcceptor,
    no_tickets: TlsAcceptor,
    data: DataTls,
    takes_unclean_end: bool,
}

impl std::fmt::Debug for Encryption {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("Encryption").field("data", &self.data).finish_non_exhaustive()
    }
}

/// What a PEM file has, or why it cannot be used.
fn read<T>(path: &Path, result: Result<T, rustls::pki_types::pem::Error>, what: &str) -> Result<T, ServeError> {
    use rustls::pki_types::pem::Error;
    result.map_err(|error| {
        let problem = match error {
            Error::Io(error) => format!("{error}; give a PEM file with the {what}, which this user can read"),
            Error::NoItemsFound => format!("it holds no {what}; give a PEM file that does"),
            other => format!("no PEM file with the {what}: {other}"),
        };
        ServeError::Tls { path: path.to_owned(), problem }
    })
}

impl Encryption {
    /// Reads the certificate and its key.
    pub(crate) fn load(options: &TlsOptions) -> Result<Encryption, ServeError> {
        let path = options.certificates.as_path();
        let found = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let certificates = read(path, found, "certificate")?;
        if certificates.is_empty() {
            read(path, Err(rustls::pki_types::pem::Error::NoItemsFound), "certificate")?;
        }
        let key = read(&options.key, PrivateKeyDer::from_pem_file(&options.key), "unencrypted private key")?;
        let unusable = |problem: String| ServeError::Tls { path: options.key.clone(), problem };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(error.to_string()))?
            .with_no_client_auth();
        let mut config = builder.with_single_cert(certificates, key).map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => unusable(format!(
                "the key is not that of the first certificate in {}; put the server's certificate first",
                path.display()
            )),
            error => unusable(format!("the key does not fit the certificate in {}: {error}", path.display())),
        })?;
        config.ticketer =
            rustls::crypto::ring::Ticketer::new().map_err(|error| unusable(format!("no random numbers: {error}")))?;
        Ok(Encryption {
            config,
            is_required: options.is_required,
            data: options.data,
            takes_unclean_end: options.takes_unclean_end,
        })
    }

    /// For the control connection `name`.
    pub(crate) fn session(&self, name: SessionName) -> SessionTls {
        let mut config = self.config.clone();
        config.ticketer = Arc::new(NamedTickets { all: config.ticketer, name });
        config.session_storage = ServerSessionMemoryCache::new(MOST_SESSIONS);
        let mut without = config.clone();
        without.send_tls13_tickets = 0;
        SessionTls {
            tickets: TlsAcceptor::from(Arc::new(config)),
            no_tickets: TlsAcceptor::from(Arc::new(without)),
            data: self.data,
            takes_unclean_end: self.takes_unclean_end,
        }
    }
}

impl SessionTls {
    /// The handshake of the control connection.
    pub(crate) async fn control(&self, stream: TcpStream) -> std::io::Result<TlsStream<TcpStream>> {
        self.tickets.accept(stream).await
    }

    /// The handshake of a data connection. `None` if it fails, or does not prove whose the connection is.
    pub(crate) async fn data(&self, stream: TcpStream, is_upload: bool) -> Option<Box<Private>> {
        let acceptor = if is_upload { &self.no_tickets } else { &self.tickets };
        let peer = stream.peer_addr().ok();
        let stream = match acceptor.accept(stream).await {
            Ok(stream) => stream,
            Err(error) => {
                tracing::info!(?peer, %error, "a data connection ended in its TLS handshake");
                return None;
            }
        };
        let (stream, connection) = stream.into_inner();
        if self.data == DataTls::Resumed && connection.handshake_kind() != Some(HandshakeKind::Resumed) {
            tracing::info!(?peer, "a data connection that does not resume its control connection's TLS was closed");
            return None;
        }
        Some(Box::new(Private { stream, connection, takes_unclean_end: self.takes_unclean_end }))
    }
}

/// A data connection behind its handshake.
pub(crate) struct Private {
    pub stream: TcpStream,
    connection: ServerConnection,
    takes_unclean_end: bool,
}

impl Private {
    /// Its socket, and what makes a connection of the socket once that can wait.
    pub(crate) fn into_parts(self) -> (TcpStream, impl FnOnce(std::net::TcpStream) -> TlsData) {
        let Private { stream, connection, takes_unclean_end } = self;
        (stream, move |socket| TlsData { stream: StreamOwned::new(connection, socket), takes_unclean_end })
    }
}

/// A data connection by TLS.
pub(crate) struct TlsData {
    stream: StreamOwned<ServerConnection, std::net::TcpStream>,
    takes_unclean_end: bool,
}

impl Read for TlsData {
    /// An end without `close_notify` is an error: it may have been cut off (rule T4).
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        match self.stream.read(bytes) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof && self.takes_unclean_end => Ok(0),
            other => other,
        }
    }
}

impl Write for TlsData {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.stream.flush()
    }
}

impl Connection for TlsData {
    fn end(&mut self) -> std::io::Result<()> {
        self.stream.conn.send_close_notify();
        self.stream.flush()?;
        self.stream.sock.shutdown(Shutdown::Write)
    }

    fn socket(&self) -> &std::net::TcpStream {
        &self.stream.sock
    }
}
