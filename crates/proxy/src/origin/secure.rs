//! TLS with an application: which certificates to believe.
//!
//! An application proves by its certificate that it is the host of its address, by the authorities of the system, or by those of one file and no others. There is no
//! key that lets one pass that does not.
//!
//! Which version of HTTP is spoken in it is agreed in the handshake (ALPN, RFC 7301).

use std::io;
use std::path::Path;
use std::sync::Arc;

use http::uri::Authority;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::alpn::{BOTH, H2, HTTP_1_1};
use crate::config::OriginHttp;
use crate::error::ProxyError;

/// What connections with TLS are made with.
#[derive(Clone)]
pub(crate) struct Secure {
    either: TlsConnector,
    http1: TlsConnector,
    http2: TlsConnector,
}

impl Secure {
    /// A client that believes the authorities of this file, PEM, or of the system where `authorities` is
    /// `None`.
    ///
    /// # Errors
    /// If there are no authorities, or the file cannot be read.
    pub fn new(authorities: Option<&Path>) -> Result<Self, ProxyError> {
        let wrong = |problem| ProxyError::Setting { key: "origin_ca".into(), problem };
        let mut roots = RootCertStore::empty();
        match authorities {
            Some(file) => {
                let unreadable = |error| {
                    let remedy = "it has to be PEM, and readable for the user that the proxy runs as";
                    wrong(format!("{}: {error}: {remedy}", file.display()))
                };
                for certificate in CertificateDer::pem_file_iter(file).map_err(unreadable)? {
                    roots.add(certificate.map_err(unreadable)?).map_err(|error| {
                        wrong(format!("{}: {error}: it has to hold certificates of authorities", file.display()))
                    })?;
                }
            }
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
        if roots.is_empty() {
            let problem = match authorities {
                Some(file) => format!("{}: no certificate is in it: it has to be PEM", file.display()),
                None => "no authorities are known on this system, so no https application can be believed: install the package ca-certificates, or name a file".into(),
            };
            return Err(wrong(problem));
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| ProxyError::Tls(error.to_string()))?;
        let client = builder.with_root_certificates(roots).with_no_client_auth();
        let offering = |versions: &[&[u8]]| {
            let mut client = client.clone();
            client.alpn_protocols = versions.iter().map(|version| version.to_vec()).collect();
            TlsConnector::from(Arc::new(client))
        };
        let (either, http1, http2) = (offering(&BOTH), offering(&[HTTP_1_1]), offering(&[H2]));
        Ok(Secure { either, http1, http2 })
    }

    /// Begins TLS, lets the other end prove that it is this host, and agrees with it on a version of HTTP.
    ///
    /// # Errors
    /// It proves nothing, or there is no version that both speak.
    pub async fn connect(
        &self,
        authority: &Authority,
        stream: TcpStream,
        http: OriginHttp,
    ) -> io::Result<TlsStream<TcpStream>> {
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        let name = ServerName::try_from(host).map_err(io::Error::other)?;
        let connector = match http {
            OriginHttp::Auto => &self.either,
            OriginHttp::Http1 => &self.http1,
            OriginHttp::Http2 => &self.http2,
        };
        let stream = connector.connect(name, stream).await?;
        if http == OriginHttp::Http2 && stream.get_ref().1.alpn_protocol() != Some(H2) {
            return Err(io::Error::other("it speaks no HTTP/2, which proxy.origin_http wants: write auto"));
        }
        Ok(stream)
    }
}
