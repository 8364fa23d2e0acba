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
use rustls::pki_types::ServerName;
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
        let client = verbena_listening::client(authorities);
        let client = client.map_err(|problem| ProxyError::Setting { key: "origin_ca".into(), problem })?;
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
