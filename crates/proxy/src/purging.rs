//! `PURGE` requests (rule H2): which clients may send one, and what is done.

use std::net::IpAddr;
use std::path::Path;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, Method, Response, StatusCode, request};
use verbena_caching::{PURGE, PURGEKEYS, Purge};
use verbena_content::{Change, Scope};
use verbena_terms::MAX_DEPENDENCY_NAME_BYTES;

use crate::answer::{self, forwarded};
use crate::body::Body;
use crate::error::ProxyError;
use crate::exchange::Exchange;
use crate::proxy_protocol::Network;

/// Fields that a proxy in front adds, besides all that begin with `X-Forwarded`. Where one is present, the address of the connection
/// does not identify the client.
const IN_FRONT: [&str; 9] = [
    "cf-connecting-ip",
    "fastly-client-ip",
    "forwarded",
    "true-client-ip",
    "via",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-envoy-external-address",
    "x-real-ip",
];

/// Which clients may purge by a request. With neither, `PURGE` is a method like any that is not known: it
/// writes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Purgers {
    from: Vec<Network>,
    token: Option<String>,
}

impl Purgers {
    /// Of the configuration.
    ///
    /// # Errors
    /// The file of the token cannot be read, or is empty.
    pub fn new(from: &[String], token: Option<&Path>) -> Result<Self, ProxyError> {
        let token = token.map(|file| {
            let read = std::fs::read_to_string(file);
            let text =
                read.map_err(|reason| ProxyError::PurgeToken { file: file.to_owned(), reason: reason.to_string() })?;
            match text.trim() {
                "" => Err(ProxyError::PurgeToken { file: file.to_owned(), reason: "it is empty".into() }),
                token => Ok(token.to_owned()),
            }
        });
        Ok(Purgers { from: from.iter().filter_map(|from| from.parse().ok()).collect(), token: token.transpose()? })
    }

    /// Whether a request of this method is for the cache.
    pub fn takes(&self, method: &Method) -> bool {
        (!self.from.is_empty() || self.token.is_some()) && [PURGE, PURGEKEYS].contains(&method.as_str())
    }

    /// Whether the client may purge, by the head of its request as it came.
    pub fn allows(&self, headers: &HeaderMap, client: IpAddr) -> bool {
        let is_told = || {
            let said = headers.get(AUTHORIZATION)?.as_bytes();
            let said = said.split_at_checked(7).filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"Bearer "))?.1;
            self.token.as_ref().map(|token| is_equal(token.as_bytes(), said.trim_ascii()))
        };
        // An address counts if it is the client's own: behind a proxy it is that proxy's.
        // Some write `_` for `-`.
        let is_in_front = |name: &HeaderName| {
            let name = name.as_str().replace('_', "-");
            name.starts_with("x-forwarded") || IN_FRONT.contains(&name.as_str())
        };
        let is_direct = || !headers.keys().any(is_in_front);
        is_told() == Some(true) || (self.from.iter().any(|network| network.has(client)) && is_direct())
    }
}

/// Takes as long wherever they differ.
fn is_equal(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |differs, (one, other)| differs | (one ^ other)) == 0
}

impl Exchange {
    /// Purges what a request names, if it may, and says so when every home has acknowledged it.
    pub async fn purge_as_asked(&self, head: request::Parts, is_allowed: bool) -> Response<Body> {
        let own = |status, text: &str, detail| answer::own(status, text, forwarded("method", Some(detail)));
        if !is_allowed {
            let text = "PURGE is for the networks of proxy.purge_from, or with the token of proxy.purge_token_file";
            return own(StatusCode::FORBIDDEN, text, "purge-refused");
        }
        let route = self.routes.find(head.uri.path());
        let Purge { keys, names, is_soft } = Purge::of(&head, &route, &self.cache.keys);
        if let Some(long) = names.iter().find(|name| name.len() > MAX_DEPENDENCY_NAME_BYTES) {
            let text = format!("a name of {} bytes; {MAX_DEPENDENCY_NAME_BYTES} at most", long.len());
            return own(StatusCode::BAD_REQUEST, &text, "purge-malformed");
        }
        if keys.is_empty() && names.is_empty() {
            return own(
                StatusCode::BAD_REQUEST,
                "PURGEKEYS names nothing: add xkey-purge or xkey-softpurge",
                "purge-malformed",
            );
        }
        let content = &self.cache.content;
        let change = if is_soft { Change::Soft } else { Change::Hard };
        let pages = keys.into_iter().map(|key| self.cache.page_of(key).into());
        let named = names.iter().map(|name| content.names().dependency(name));
        match content.purge(change, Scope::of_update(pages.chain(named))).await {
            Ok(()) if is_soft => own(StatusCode::OK, "purged softly", "purged-softly"),
            Ok(()) => own(StatusCode::OK, "purged", "purged"),
            Err(refused) => own(StatusCode::SERVICE_UNAVAILABLE, &format!("not purged: {refused}"), "purge-not-begun"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_counts_if_it_is_the_clients_own_and_a_token_always() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        std::fs::write(&file, "secret\n").unwrap();
        let purgers = Purgers::new(&["10.0.0.0/8".into()], Some(&file)).unwrap();
        let (inside, outside) = (IpAddr::from([10, 1, 2, 3]), IpAddr::from([192, 0, 2, 1]));
        let headers = |fields: &[(&'static str, &'static str)]| {
            let fields = fields.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
            fields.collect::<HeaderMap>()
        };
        assert!(purgers.allows(&headers(&[]), inside) && !purgers.allows(&headers(&[]), outside));
        for field in ["x-forwarded-for", "x_forwarded_for", "x-forwarded-proto", "forwarded", "via", "x-real-ip"] {
            assert!(!purgers.allows(&headers(&[(field, "10.1.2.3")]), inside), "{field}");
        }
        let told = |value| purgers.allows(&headers(&[("authorization", value), ("via", "1.1 a")]), outside);
        assert!(told("Bearer secret") && told("bearer secret "));
        assert!(!told("Bearer secre") && !told("Bearer secretx") && !told("Basic secret") && !told("Bearer"));
        assert!(!Purgers::default().takes(&Method::from_bytes(b"PURGE").unwrap()));
        std::fs::write(&file, " \n").unwrap();
        assert!(Purgers::new(&[], Some(&file)).unwrap_err().to_string().contains("empty"));
    }
}
