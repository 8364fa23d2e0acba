//! TLS of the client: which authorities it believes, and its data connections, which resume the control connection's session.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme,
    StreamOwned,
};

/// Where systems keep the authorities they believe.
const BUNDLES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// TLS of a client. The server's certificate is always verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientTls {
    /// Whether TLS begins with the connection (`ftps://`), and not by `AUTH TLS`.
    pub is_implicit: bool,
    /// A PEM file with the authorities to believe; `None` takes the system's.
    pub authorities: Option<PathBuf>,
}

/// What the certificates of servers are verified with.
#[derive(Clone)]
pub(crate) struct Trust {
    config: Arc<ClientConfig>,
    host: ServerName<'static>,
}

pub(crate) type TlsStream = StreamOwned<ClientConnection, TcpStream>;

impl Trust {
    /// Reads the authorities. The error names the file and says what to do.
    pub(crate) fn load(tls: &ClientTls, host: &str) -> Result<Trust, String> {
        let path = match &tls.authorities {
            Some(path) => path.clone(),
            None => std::env::var_os("SSL_CERT_FILE").map(PathBuf::from).unwrap_or_else(|| {
                PathBuf::from(BUNDLES.into_iter().find(|path| Path::new(path).exists()).unwrap_or(BUNDLES[0]))
            }),
        };
        let remedy = "give a PEM file with the certificate of the server's authority by --ca";
        let mut roots = RootCertStore::empty();
        let certificates = CertificateDer::pem_file_iter(&path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let certificates = certificates.map_err(|error| format!("{}: {error}; {remedy}", path.display()))?;
        roots.add_parsable_certificates(certificates.iter().cloned());
        if roots.is_empty() {
            return Err(format!("{}: it holds no certificate; {remedy}", path.display()));
        }
        let name = match host.parse::<IpAddr>() {
            Ok(address) => ServerName::IpAddress(address.into()),
            Err(_) => ServerName::try_from(host.to_owned()).map_err(|_| format!("{host} is no name of a host"))?,
        };
        let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let by_authority = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
        let by_authority = by_authority.map_err(|error| format!("{}: {error}; {remedy}", path.display()))?;
        let verifier = Arc::new(Verifier { by_authority, trusted: certificates });
        let config = builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
        let config = Arc::new(config);
        Ok(Trust { config, host: name })
    }

    /// The handshake on a connection. It resumes the last session with this server, which servers ask of data connections.
    pub(crate) fn handshake(&self, mut stream: TcpStream) -> std::io::Result<TlsStream> {
        let connection = ClientConnection::new(self.config.clone(), self.host.clone());
        let mut connection = connection.map_err(|error| std::io::Error::new(ErrorKind::InvalidInput, error))?;
        while connection.is_handshaking() {
            connection.complete_io(&mut stream)?;
        }
        Ok(StreamOwned::new(connection, stream))
    }
}

/// Verifies as browsers do; and takes a certificate that is itself in the file of those that are trusted, byte for byte, if
/// nothing but its form as an authority speaks against it. `openssl req -x509` makes such certificates. The name must be right.
#[derive(Debug)]
struct Verifier {
    by_authority: Arc<WebPkiServerVerifier>,
    trusted: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        stapled: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match self.by_authority.verify_server_cert(certificate, intermediates, name, stapled, now) {
            // Its time is looked at first, and has an error of its own.
            Err(rustls::Error::InvalidCertificate(CertificateError::Other(_)))
                if self.trusted.iter().any(|trusted| trusted.as_ref() == certificate.as_ref()) =>
            {
                verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
                Ok(ServerCertVerified::assertion())
            }
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.by_authority.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.by_authority.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.by_authority.supported_verify_schemes()
    }
}

/// A connection of the client, in clear or by TLS.
pub(crate) enum Wire {
    Clear(TcpStream),
    Tls(Box<TlsStream>),
}

impl Wire {
    pub(crate) fn socket(&self) -> &TcpStream {
        match self {
            Wire::Clear(stream) => stream,
            Wire::Tls(stream) => &stream.sock,
        }
    }

    /// Says that nothing more will be sent, and waits until the server has ended too: a close before would make the kernel
    /// reset the connection if tickets are unread, and the end of an upload would be lost (rule T4).
    pub(crate) fn finish(mut self) -> std::io::Result<()> {
        if let Wire::Tls(stream) = &mut self {
            stream.conn.send_close_notify();
            stream.flush()?;
        }
        self.socket().shutdown(Shutdown::Write)?;
        let mut rest = [0; 4 << 10];
        loop {
            match self.read(&mut rest) {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Servers end data connections as they like once the client has ended: their reply says what came of it.
                Err(_) => return Ok(()),
            }
        }
    }
}

impl Read for Wire {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Wire::Clear(stream) => stream.read(bytes),
            Wire::Tls(stream) => stream.read(bytes),
        }
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Wire::Clear(stream) => stream.write(bytes),
            Wire::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        match self {
            Wire::Clear(stream) => stream.flush(),
            Wire::Tls(stream) => stream.flush(),
        }
    }
}
