//! What an intermediary changes in the headers that it passes on (RFC 9110 section 7.6).

use std::net::IpAddr;

use http::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CACHE_CONTROL, CONNECTION, COOKIE, EXPECT, EXPIRES, HOST, IF_MODIFIED_SINCE,
    IF_NONE_MATCH, IF_RANGE, MAX_FORWARDS, RANGE, TRANSFER_ENCODING, VIA,
};
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Version, request};

use crate::control::{CacheControl, is_targeted, split_list};
use crate::cookies::{self, Hidden};
use crate::fields::{Fields, HOP_BY_HOP, Kind};
use crate::http2::as_http1;
use crate::request::Intent;
use crate::route::{Mode, Route};
use crate::variant::Variant;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// The node that passes a message on: the pseudonym in `Via`.
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

/// Why a request is answered here and now, whatever page it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// It asks for a tunnel, or to be sent back (CONNECT, TRACE): 405.
    Method,
    /// Its target is of a form that its method has not (RFC 9112 section 3.2): 400.
    Target,
    /// It names no host, or several, or its host is malformed (RFC 9112 section 3.2): 400.
    Host,
    /// Its body comes in a coding that is not known here (RFC 9112 section 6.1): 501.
    Coding,
    /// It says several lengths, or one that is no number (RFC 9113 section 8.1.1): 400.
    Length,
    /// It expects what is not known here (RFC 9110 section 10.1.1): 417.
    Expectation,
    /// It is to be forwarded no further (RFC 9110 section 7.6.2), and asks what the next recipient can do: 200.
    LastHop,
}

/// Makes a head that came from a client what all look at who decide about it, the origin too: without what was for one connection, and
/// with the host that it is about in `Host` alone. So a page is never stored under another name than the one it was made for.
///
/// # Errors
/// If there is no page that it could be about.
pub fn received(head: &mut request::Parts) -> Result<(), Unfit> {
    // A TRACE answered by the application would show what proxies before it add, in an answer that pages may read.
    if matches!(head.method, Method::CONNECT | Method::TRACE) {
        return Err(Unfit::Method);
    }
    let fields = Fields::of(&head.headers);
    if fields.has(Kind::HopByHop) {
        if !is_framed_plainly(&head.headers) {
            return Err(Unfit::Coding);
        }
        remove_hop_by_hop(&mut head.headers);
    }
    if head.version == Version::HTTP_2 {
        as_http1(head)?;
    }
    if fields.has(Kind::Expect) {
        meet_expectation(head)?;
    }
    let target = head.uri.path_and_query().map(|target| target.as_str());
    if !target.is_some_and(|target| target.starts_with('/') || (target == "*" && head.method == Method::OPTIONS)) {
        return Err(Unfit::Target);
    }
    // Some applications know fields by names in which `-` and `_`, or all characters but ASCII letters and digits, are one (CGI's HTTP_X_FORWARDED_HOST), and
    // no rule here looks at those.
    let is_plain = |name: &HeaderName| name.as_str().bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let folded: Vec<HeaderName> = head.headers.keys().filter(|name| !is_plain(name)).cloned().collect();
    for name in folded {
        head.headers.remove(name);
    }
    if let Some(authority) = head.uri.authority() {
        // The absolute form of a target wins (RFC 9112 section 3.2.2); the user in it is no part of the host.
        let host = authority.as_str().rsplit('@').next().unwrap_or_default();
        let host = HeaderValue::try_from(host).map_err(|_| Unfit::Host)?;
        head.headers.insert(HOST, host);
    }
    let mut hosts = head.headers.get_all(HOST).iter();
    let small = match (hosts.next(), hosts.next()) {
        (Some(host), None) if is_host(host) => small(host)?,
        (None, _) if head.version < Version::HTTP_11 => None,
        _ => return Err(Unfit::Host),
    };
    // A host is the same in any case (RFC 9110 section 4.2.3), and some applications answer otherwise: with a redirect, or with 404.
    if let Some(host) = small {
        head.headers.insert(HOST, host);
    }
    forward_once_less(head)
}

/// Whether a body comes in chunks at most, and so is what it seems to be when they are put together (RFC 9112 section 7).
pub fn is_framed_plainly(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(TRANSFER_ENCODING).into_iter();
    codings.next().is_none_or(|coding| coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked"))
        && codings.next().is_none()
}

/// What is expected is an answer to the head, and the server in front of this gives it when the body is wanted. So it goes no further: the application has the body.
fn meet_expectation(head: &mut request::Parts) -> Result<(), Unfit> {
    let mut expected = head.headers.get_all(EXPECT).iter();
    let is_known = |value: &HeaderValue| value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"100-continue");
    // HTTP/1.0 has no such answer, and its `Expect` means nothing (RFC 9110 section 10.1.1).
    if head.version >= Version::HTTP_11 && !expected.all(is_known) {
        return Err(Unfit::Expectation);
    }
    head.headers.remove(EXPECT);
    Ok(())
}

/// A host in lower case, if it has capitals.
fn small(host: &HeaderValue) -> Result<Option<HeaderValue>, Unfit> {
    let has_others = host.as_bytes().iter().any(u8::is_ascii_uppercase);
    let small = has_others.then(|| HeaderValue::from_bytes(&host.as_bytes().to_ascii_lowercase()));
    small.transpose().map_err(|_| Unfit::Host)
}

fn is_host(host: &HeaderValue) -> bool {
    let host = host.as_bytes();
    is_plain_host(host) || (!host.contains(&b'@') && Authority::try_from(host).is_ok())
}

/// Whether it is a name or an address with a port at most, as nearly all are: no need to take it apart.
fn is_plain_host(host: &[u8]) -> bool {
    let end = host.iter().position(|byte| *byte == b':').unwrap_or(host.len());
    let (name, port) = host.split_at(end);
    let is_port = port.is_empty() || (port.len() > 1 && port[1..].iter().all(u8::is_ascii_digit));
    !name.is_empty() && is_port && name.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-'))
}

fn forward_once_less(head: &mut request::Parts) -> Result<(), Unfit> {
    if head.method != Method::OPTIONS {
        return Ok(());
    }
    let left = head.headers.get(MAX_FORWARDS).and_then(|left| left.to_str().ok()?.trim().parse::<u64>().ok());
    match left {
        Some(0) => Err(Unfit::LastHop),
        Some(left) => {
            head.headers.insert(MAX_FORWARDS, HeaderValue::from(left - 1));
            Ok(())
        }
        None => Ok(()),
    }
}

/// Which conditions of a request that was looked for ([`Intent::Look`]) go on to the origin. Those of others all do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conditions {
    /// None: the answer may be shared, so the whole must come. The cache judges the condition itself ([`answer`](crate::answer)).
    Withheld,
    /// Tags: the answer is for this client alone, and others of the page are stored. A date knows seconds, in which such a page may
    /// have changed twice (rule P9).
    Tags,
    /// Tags and dates, and each cookie: nothing of this page is stored, so the origin decides as if no cache were there (RFC 9110 section 13.2.1).
    All,
}

/// Makes a client's request one to the origin. One whose answer may be shared (`Intent::Look`) is asked for with these conditions alone,
/// and without the cookies that the route ignores, unless nothing of its page is stored: which those are matters to [`for_client`].
pub fn for_origin(
    headers: &mut HeaderMap,
    intent: Intent,
    conditions: Conditions,
    route: &Route,
    client: IpAddr,
    via: &Via,
) -> Hidden {
    remove_hop_by_hop(headers);
    let mut hidden = Hidden::default();
    if intent == Intent::Look {
        let withheld: &[HeaderName] = match conditions {
            Conditions::Withheld => &[IF_RANGE, IF_MODIFIED_SINCE, IF_NONE_MATCH],
            Conditions::Tags => &[IF_RANGE, IF_MODIFIED_SINCE],
            // Without `Range` it means nothing (RFC 9110 section 13.1.5).
            Conditions::All => &[IF_RANGE],
        };
        // What has a `Range` here is a request of the cache's own, for a slice.
        let is_for_slice = headers.contains_key(RANGE);
        for name in withheld.iter().filter(|name| !is_for_slice || **name != IF_RANGE) {
            headers.remove(name);
        }
        if conditions == Conditions::Withheld {
            // What is coded here comes as it is, and serves those too that accept no coding.
            if !route.compress.is_empty() {
                headers.remove(ACCEPT_ENCODING);
            }
            route.languages.ask_for(headers);
        }
        if conditions != Conditions::All {
            hidden = cookies::remove_ignored(headers, &route.cookies);
        }
    }
    if let Some(host) = headers.get(HOST).cloned() {
        headers.entry(FORWARDED_HOST).or_insert(host);
    }
    headers.entry(FORWARDED_PROTO).or_insert(HeaderValue::from_static("http"));
    append_to_list(headers, FORWARDED_FOR, &client.to_string());
    headers.append(VIA, via.0.clone());
    hidden
}

/// Makes a client's request one that the cache sends for all, to fetch anew what is stored: without credentials, but for cookies in the key, and for those by which
/// the stored answer varies. Otherwise the application would make a page for this client, and others would get it.
pub fn for_refresh(headers: &mut HeaderMap, stored: &HeaderMap, route: &Route) {
    let varies = Variant::of(stored).unwrap_or_default();
    let varies_by = |name: HeaderName| varies.names().split(',').any(|varies| varies == name.as_str());
    if !varies_by(AUTHORIZATION) {
        headers.remove(AUTHORIZATION);
    }
    if !varies_by(COOKIE) {
        cookies::keep_those_in_key(headers, &route.cookies);
    }
}

/// Makes the origin's answer one to the client, when it does not come from the cache. Caches farther out must not answer from it without
/// asking (rule P9); what it forbids them stays forbidden.
///
/// In the other modes they may, as the origin says.
pub fn for_client(headers: &mut HeaderMap, hidden: &Hidden, mode: Mode, via: &Via) {
    remove_hop_by_hop(headers);
    hidden.keep(headers);
    headers.append(VIA, via.0.clone());
    if mode != Mode::Coherent {
        return;
    }
    let control = CacheControl::of_answer(headers);
    headers.remove(EXPIRES);
    remove_targeted(headers);
    headers.insert(
        CACHE_CONTROL,
        HeaderValue::from_static(match (control.no_store, control.private, control.no_transform) {
            (true, _, false) => "no-store",
            (true, _, true) => "no-store, no-transform",
            (false, true, false) => "private, no-cache",
            (false, true, true) => "private, no-cache, no-transform",
            (false, false, false) => "no-cache",
            (false, false, true) => "no-cache, no-transform",
        }),
    );
}

/// Takes off what tells certain caches farther out that they need not ask: RFC 9213, and what was there before it.
pub(crate) fn remove_targeted(headers: &mut HeaderMap) {
    let is_it = |name: &&HeaderName| is_targeted(name) || name.as_str() == "x-accel-expires";
    let targeted: Vec<HeaderName> = headers.keys().filter(is_it).cloned().collect();
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
        let route =
            Route { cookies: crate::Cookies { ignore: ["sid"].into(), ..Default::default() }, ..Route::default() };
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
        for_origin(&mut look, Intent::Look, Conditions::Withheld, &route, Ipv4Addr::LOCALHOST.into(), &via());
        let expected = headers(&[
            ("host", "shop.example"),
            ("x-forwarded-for", "10.0.0.1, 127.0.0.1"),
            ("x-forwarded-host", "shop.example"),
            ("x-forwarded-proto", "http"),
            ("via", "1.1 verbena"),
        ]);
        assert_eq!(look, expected);
        let mut alone = came.clone();
        for_origin(&mut alone, Intent::Look, Conditions::All, &route, Ipv4Addr::LOCALHOST.into(), &via());
        assert_eq!(alone["cookie"], "sid=1", "nobody else gets the answer");
        let mut update = came;
        let writes = Intent::Update(crate::request::Bracket::Everything);
        for_origin(&mut update, writes, Conditions::Withheld, &route, Ipv4Addr::LOCALHOST.into(), &via());
        assert!(update.contains_key("cookie") && update.contains_key("if-none-match"));
    }

    #[test]
    fn what_is_fetched_for_all_is_asked_for_by_nobody() {
        let cookies = crate::Cookies { key: ["lang".to_string()].into(), ..Default::default() };
        let route = Route { cookies, ..Route::default() };
        let asked = |vary: &'static str| {
            let mut request =
                headers(&[("authorization", "Basic eA=="), ("cookie", "sid=1; lang=de"), ("cookie", "a")]);
            for_refresh(&mut request, &headers(&[("vary", vary)]), &route);
            request
        };
        assert_eq!(asked("accept"), headers(&[("cookie", "lang=de")]));
        assert_eq!(asked("cookie"), headers(&[("cookie", "sid=1; lang=de"), ("cookie", "a")]));
        assert_eq!(asked("Authorization"), headers(&[("authorization", "Basic eA=="), ("cookie", "lang=de")]));
    }

    fn receive(
        method: &str,
        target: &str,
        lines: &[(&'static str, &'static str)],
        version: Version,
    ) -> Result<HeaderMap, Unfit> {
        let head = http::Request::builder().method(method).uri(target).version(version);
        let mut head = head.body(()).unwrap().into_parts().0;
        head.headers = headers(lines);
        received(&mut head).map(|()| head.headers)
    }

    #[test]
    fn a_request_is_about_one_host() {
        let shop = headers(&[("host", "shop")]);
        let of_shop = |target, lines: &[(&'static str, &'static str)]| receive("GET", target, lines, Version::HTTP_11);
        assert_eq!(of_shop("/", &[("host", "shop"), ("connection", "host, x"), ("x", "1")]), Ok(shop.clone()));
        assert_eq!(of_shop("http://me@shop/", &[("host", "evil"), ("host", "worse")]), Ok(shop));
        assert_eq!(of_shop("/", &[("host", "shop"), ("host", "evil")]), Err(Unfit::Host));
        assert_eq!(of_shop("/", &[]), Err(Unfit::Host));
        for none in ["", "shop, evil", "shop/x", "me@shop", "sh op", "shop?"] {
            assert_eq!(of_shop("/", &[("host", none)]), Err(Unfit::Host), "{none}");
        }
        for host in ["shop.example:8080", "[::1]:80", "127.0.0.1", "a_b.example"] {
            assert!(of_shop("/", &[("host", host)]).is_ok(), "{host}");
        }
        assert!(receive("GET", "/", &[], Version::HTTP_10).is_ok());
        // The page of one is that of the other, so what the application is asked for is, too.
        for (target, host) in [("/", "SHOP.example:80"), ("http://Shop.Example:80/", "evil")] {
            assert_eq!(of_shop(target, &[("host", host)]), Ok(headers(&[("host", "shop.example:80")])), "{target}");
        }
        let folded = [
            ("host", "shop"),
            ("x_forwarded_prefix", "//evil"),
            ("x_http_method_override", "DELETE"),
            ("x.forwarded.port", "9"),
        ];
        assert_eq!(of_shop("/", &folded), of_shop("/", &folded[..1]));
    }

    #[test]
    fn targets_and_codings_that_are_none_are_refused() {
        let ask =
            |method, target, line| receive(method, target, &[("host", "shop"), line], Version::HTTP_11).map(|_| ());
        let plain = ("accept", "*/*");
        assert_eq!(ask("OPTIONS", "*", plain), Ok(()));
        assert_eq!(ask("GET", "*", plain), Err(Unfit::Target));
        assert_eq!(ask("GET", "shop:80", plain), Err(Unfit::Target));
        assert_eq!(ask("TRACE", "/", plain), Err(Unfit::Method));
        assert_eq!(ask("CONNECT", "shop:80", plain), Err(Unfit::Method));
        assert_eq!(ask("POST", "/", ("transfer-encoding", "Chunked")), Ok(()));
        for coding in ["gzip, chunked", "chunked, chunked", "identity", "xchunked"] {
            assert_eq!(ask("POST", "/", ("transfer-encoding", coding)), Err(Unfit::Coding), "{coding}");
        }
        let twice = [("host", "shop"), ("transfer-encoding", "gzip"), ("transfer-encoding", "chunked")];
        assert_eq!(receive("POST", "/", &twice, Version::HTTP_11), Err(Unfit::Coding));
    }

    #[test]
    fn nothing_but_a_body_is_waited_for() {
        let ask = |value, version| receive("POST", "/", &[("host", "shop"), ("expect", value)], version);
        for value in ["100-continue", "100-Continue "] {
            assert_eq!(ask(value, Version::HTTP_11), Ok(headers(&[("host", "shop")])), "{value}: it is met here");
        }
        for value in ["y-100-continue", "100-continue, x", "", "200-ok"] {
            assert_eq!(ask(value, Version::HTTP_11), Err(Unfit::Expectation), "{value}");
            assert_eq!(ask(value, Version::HTTP_10), Ok(headers(&[("host", "shop")])), "{value}");
        }
    }

    #[test]
    fn options_go_so_far_and_no_further() {
        let ask = |method, left| {
            let lines = [("host", "shop"), ("max-forwards", left)];
            receive(method, "/", &lines, Version::HTTP_11).map(|headers| headers["max-forwards"].clone())
        };
        assert_eq!(ask("OPTIONS", "0"), Err(Unfit::LastHop));
        assert_eq!(ask("OPTIONS", "7").unwrap(), "6");
        assert_eq!(ask("OPTIONS", "many").unwrap(), "many");
        assert_eq!(ask("GET", "0").unwrap(), "0", "other methods do not know it");
    }

    #[test]
    fn no_cache_farther_out_is_told_otherwise() {
        let mut answer =
            headers(&[("surrogate-control", "max-age=9"), ("cdn-cache-control", "max-age=9"), ("age", "1")]);
        for_client(&mut answer, &Hidden::default(), Mode::Coherent, &via());
        assert_eq!(answer, headers(&[("age", "1"), ("cache-control", "no-cache"), ("via", "1.1 verbena")]));
        let mut refused = headers(&[("cache-control", "public"), ("cdn-cache-control", "no-store")]);
        for_client(&mut refused, &Hidden::default(), Mode::Coherent, &via());
        assert_eq!(refused[CACHE_CONTROL], "no-store");
    }

    #[test]
    fn outer_caches_are_told_to_ask() {
        for (said, left) in [
            ("public, max-age=60", "no-cache"),
            ("private, max-age=60", "private, no-cache"),
            ("private, no-store", "no-store"),
            ("public, no-transform", "no-cache, no-transform"),
            ("no-transform, private", "private, no-cache, no-transform"),
        ] {
            let mut answer = HeaderMap::new();
            answer.insert(CACHE_CONTROL, HeaderValue::from_static(said));
            for_client(&mut answer, &Hidden::default(), Mode::Coherent, &via());
            assert_eq!(answer[CACHE_CONTROL], left, "{said}");
        }
    }
}
