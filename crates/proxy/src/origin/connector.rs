//! Opens the connections that are kept: to hosts, with TLS or without, and to unix sockets.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use http::uri::Authority;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use tokio::time::timeout;
use tower_service::Service;

use super::address::{Address, Stream};
use super::secure::Secure;
use crate::config::OriginHttp;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The authority in the URIs of an origin. For one that is not reached by plain TCP a reserved name (RFC 6761 section 6.4) that says which of the origins it is.
pub(super) fn authority_of(number: usize, address: &Address) -> Authority {
    match address {
        Address::Tcp(authority) => authority.clone(),
        Address::Tls(_) | Address::Unix(_) => {
            format!("origin-{number}.invalid").parse().expect("invariant: a name with a number in it is a host")
        }
    }
}

/// Opens connections for hyper's pool, which knows origins by the authority of their URIs.
#[derive(Clone)]
pub(super) struct Connector {
    http: HttpConnector,
    others: Arc<[(Authority, Address)]>,
    secure: Option<Secure>,
    connect_timeout: Duration,
}

impl Connector {
    /// To these origins, each within `connect_timeout`.
    pub fn new(addresses: impl Iterator<Item = Address>, secure: Option<Secure>, connect_timeout: Duration) -> Self {
        let mut http = HttpConnector::new();
        http.set_nodelay(true);
        http.set_connect_timeout(Some(connect_timeout));
        let named = addresses.enumerate().map(|(number, address)| (authority_of(number, &address), address));
        let others = named.filter(|(_, address)| !matches!(address, Address::Tcp(_))).collect();
        Connector { http, others, secure, connect_timeout }
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Stream>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<TokioIo<Stream>, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.http.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let other = self.others.iter().find(|(authority, _)| uri.authority() == Some(authority));
        if let Some((_, address)) = other.cloned() {
            let (connect_timeout, secure) = (self.connect_timeout, self.secure.clone());
            return Box::pin(async move {
                let connected =
                    timeout(connect_timeout, address.connect(secure.as_ref(), OriginHttp::Http1, &[])).await;
                let stream = connected.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
                Ok(TokioIo::new(stream))
            });
        }
        let connecting = self.http.call(uri);
        Box::pin(async move { Ok(TokioIo::new(Stream::Tcp(connecting.await?.into_inner()))) })
    }
}
