//! TLS with an application: whom to believe.
//!
//! An application proves by its certificate that it is the host of its address, by the authorities of the system, or by those of one file and no others. There is no
//! key that lets one pass that does not.
//!
//! HTTP/1.1 is spoken in it. HTTP/2 sends the host as `:authority`, and the pool of kept connections, which names origins by that, would send the origin's address instead of
//! the client's `Host`. And a write has a connection of its own, by which it is known whether a byte of it was sent (rule P7).

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

use crate::error::ProxyError;

/// What connections with TLS are made with.
#[derive(Clone)]
pub(crate) struct Secure(TlsConnector);

impl Secure {
    /// That believes the authorities of this file, PEM; of the system where there is none.
    ///
    /// # Errors
    /// That there are none.
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
        let mut client = builder.with_root_certificates(roots).with_no_client_auth();
        client.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Secure(TlsConnector::from(Arc::new(client))))
    }

    /// Begins TLS, and lets the other end prove that it is this host.
    pub async fn connect(&self, authority: &Authority, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        let name = ServerName::try_from(host).map_err(io::Error::other)?;
        self.0.connect(name, stream).await
    }
}
