//! What an intermediary changes in the headers that it passes on (RFC 9110 section 7.6).

use std::net::IpAddr;

use http::header::{CACHE_CONTROL, CONNECTION, EXPIRES, HOST, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, VIA};
use http::{HeaderMap, HeaderName, HeaderValue, Version, request};

use crate::control::{CacheControl, split_list};
use crate::cookies;
use crate::request::Intent;
use crate::route::Route;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Fields that are for one connection whether or not `Connection` names them.
const HOP_BY_HOP: [&str; 8] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "transfer-encoding",
    "upgrade",
];

/// Who passes a message on: the pseudonym in `Via`.
#[derive(Clone, Debug)]
pub struct Via(HeaderValue);

impl Via {
    /// A received message of HTTP `version`, passed on by `pseudonym` (a token).
    pub fn new(version: Version, pseudonym: &str) -> Option<Self> {
        let version = match version {
            Version::HTTP_10 => "1.0",
            Version::HTTP_11 => "1.1",
            Version::HTTP_2 => "2",
            _ => return None,
        };
        HeaderValue::try_from(format!("{version} {pseudonym}")).ok().map(Via)
    }
}

/// Makes a head that came from a client what all look at who decide about it, the origin too: without what was for one connection, and
/// with the host that it is about in `Host` alone. So a page is never stored under another name than the one it was made for. False if
/// that host is not known: the request is bad (RFC 9112 section 3.2).
#[must_use = "without one host there is no page"]
pub fn received(head: &mut request::Parts) -> bool {
    remove_hop_by_hop(&mut head.headers);
    if let Some(authority) = head.uri.authority() {
        // The absolute form of a target wins (RFC 9112 section 3.2.2); whoever asks is no part of the host.
        let host = authority.as_str().rsplit('@').next().unwrap_or_default();
        let Ok(host) = HeaderValue::try_from(host) else { return false };
        head.headers.insert(HOST, host);
        return true;
    }
    let hosts = head.headers.get_all(HOST).iter().count();
    hosts == 1 || (hosts == 0 && head.version < Version::HTTP_11)
}

/// Makes a client's request one to the origin. One whose answer may be shared (`Intent::Look`) is asked for without conditions, so that
/// the whole answer comes, and without the cookies that the route ignores.
pub fn for_origin(headers: &mut HeaderMap, intent: Intent, route: &Route, client: IpAddr, via: &Via) {
    remove_hop_by_hop(headers);
    if intent == Intent::Look {
        for name in [IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_RANGE] {
            headers.remove(name);
        }
        cookies::remove_ignored(headers, &route.cookies);
    }
    if let Some(host) = headers.get(HOST).cloned() {
        headers.entry(FORWARDED_HOST).or_insert(host);
    }
    headers.entry(FORWARDED_PROTO).or_insert(HeaderValue::from_static("http"));
    append_to_list(headers, FORWARDED_FOR, &client.to_string());
    headers.append(VIA, via.0.clone());
}

/// Makes the origin's answer one to the client, when it does not come from the cache. Caches farther out must not answer from it without
/// asking (rule P9); what it forbids them stays forbidden.
pub fn for_client(headers: &mut HeaderMap, via: &Via) {
    remove_hop_by_hop(headers);
    let control = CacheControl::of(headers);
    headers.remove(EXPIRES);
    remove_targeted(headers);
    headers.insert(
        CACHE_CONTROL,
        HeaderValue::from_static(match (control.no_store, control.private) {
            (true, _) => "no-store",
            (false, true) => "private, no-cache",
            (false, false) => "no-cache",
        }),
    );
    headers.append(VIA, via.0.clone());
}

/// Takes off what tells certain caches farther out that they need not ask: RFC 9213, and what was there before it.
pub(crate) fn remove_targeted(headers: &mut HeaderMap) {
    let is_targeted = |name: &&HeaderName| {
        name.as_str().ends_with("-cache-control") || matches!(name.as_str(), "surrogate-control" | "x-accel-expires")
    };
    let targeted: Vec<HeaderName> = headers.keys().filter(is_targeted).cloned().collect();
    for name in targeted {
        headers.remove(name);
    }
}

/// Takes off what is for one connection, and what `Connection` names. `Host` is for all, whatever it says (RFC 9110 section 7.6.1).
pub(crate) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .into_iter()
        .flat_map(|line| split_list(line.as_bytes()))
        .filter_map(|name| HeaderName::from_bytes(name).ok())
        .filter(|name| name != HOST)
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
}

fn append_to_list(headers: &mut HeaderMap, name: HeaderName, element: &str) {
    let mut line = headers.get_all(&name).into_iter().fold(Vec::new(), |mut line: Vec<u8>, value| {
        line.extend_from_slice(value.as_bytes());
        line.extend_from_slice(b", ");
        line
    });
    line.extend_from_slice(element.as_bytes());
    if let Ok(value) = HeaderValue::from_bytes(&line) {
        headers.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        headers
    }

    fn via() -> Via {
        Via::new(Version::HTTP_11, "verbena").unwrap()
    }

    #[test]
    fn a_request_to_share_goes_out_unconditional_and_without_ignored_cookies() {
        let route = Route {
            cookies: crate::Cookies { ignore: ["sid".to_string()].into(), ..Default::default() },
            ..Route::default()
        };
        let came = headers(&[
            ("host", "shop.example"),
            ("if-none-match", "*"),
            ("cookie", "sid=1"),
            ("connection", "close, X-Hop"),
            ("x-hop", "1"),
            ("te", "trailers"),
            ("x-forwarded-for", "10.0.0.1"),
        ]);
        let mut look = came.clone();
        for_origin(&mut look, Intent::Look, &route, Ipv4Addr::LOCALHOST.into(), &via());
        let expected = headers(&[
            ("host", "shop.example"),
            ("x-forwarded-for", "10.0.0.1, 127.0.0.1"),
            ("x-forwarded-host", "shop.example"),
            ("x-forwarded-proto", "http"),
            ("via", "1.1 verbena"),
        ]);
        assert_eq!(look, expected);
        let mut update = came;
        for_origin(&mut update, Intent::Update { announced: false }, &route, Ipv4Addr::LOCALHOST.into(), &via());
        assert!(update.contains_key("cookie") && update.contains_key("if-none-match"));
    }

    #[test]
    fn a_request_is_about_one_host() {
        let receive = |target: &str, lines: &[(&'static str, &'static str)], version| {
            let mut head = http::Request::get(target).version(version).body(()).unwrap().into_parts().0;
            head.headers = headers(lines);
            if received(&mut head) { Some(head.headers) } else { None }
        };
        let shop = headers(&[("host", "shop")]);
        let of_shop = |target, lines: &[(&'static str, &'static str)]| receive(target, lines, Version::HTTP_11);
        assert_eq!(of_shop("/", &[("host", "shop"), ("connection", "host, x"), ("x", "1")]), Some(shop.clone()));
        assert_eq!(of_shop("http://me@shop/", &[("host", "evil"), ("host", "worse")]), Some(shop));
        assert_eq!(of_shop("/", &[("host", "shop"), ("host", "evil")]), None);
        assert_eq!(of_shop("/", &[]), None);
        assert!(receive("/", &[], Version::HTTP_10).is_some());
    }

    #[test]
    fn no_cache_farther_out_is_told_otherwise() {
        let mut answer =
            headers(&[("surrogate-control", "max-age=9"), ("cdn-cache-control", "max-age=9"), ("age", "1")]);
        for_client(&mut answer, &via());
        assert_eq!(answer, headers(&[("age", "1"), ("cache-control", "no-cache"), ("via", "1.1 verbena")]));
    }

    #[test]
    fn outer_caches_are_told_to_ask() {
        for (said, left) in [
            ("public, max-age=60", "no-cache"),
            ("private, max-age=60", "private, no-cache"),
            ("private, no-store", "no-store"),
        ] {
            let mut answer = HeaderMap::new();
            answer.insert(CACHE_CONTROL, HeaderValue::from_static(said));
            for_client(&mut answer, &via());
            assert_eq!(answer[CACHE_CONTROL], left, "{said}");
        }
    }
}
