//! Whether the origin's answer may be kept (RFC 9111 section 3, rule P9), and in which form.

use std::time::{Duration, SystemTime};

use http::header::{
    AGE, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, DATE, ETAG, EXPIRES, PRAGMA, SET_COOKIE, TRAILER,
    TRANSFER_ENCODING,
};
use http::{HeaderMap, HeaderValue, Method, StatusCode, request};

use crate::control::CacheControl;
use crate::cookies;
use crate::date::date;
use crate::fields::PROXY_AUTHENTICATION_INFO;
use crate::forward::{remove_hop_by_hop, remove_targeted};
use crate::freshness::{Lifetime, storable};
use crate::reason::Reason;
use crate::request::Request;
use crate::route::{Mode, Route};
use crate::slice::slice_of;
use crate::variant::Variant;

/// What is kept of an answer beside its body.
#[derive(Clone, Debug)]
pub struct Stored {
    /// Its status.
    pub status: StatusCode,
    /// Its headers as they go out: hop-by-hop ones and old ages taken off, `Cache-Control: no-cache` (rule P9).
    pub headers: HeaderMap,
    /// How long it may be used from the moment it arrived, if the origin set a bound (rule P9). Coherent mode.
    pub lifetime: Option<Duration>,
    /// How long it may be used without asking. Standard mode alone.
    pub standard: Option<Lifetime>,
    /// The origin says that it is for requests with `Authorization` as well.
    pub for_authorization: bool,
    /// It is for requests with cookies that its key has not as well.
    pub for_cookies: bool,
    /// Which requests of the page it answers.
    pub variant: Variant,
    /// The origin's weak tag. Hits carry a strong one in its place (rule P9), but the client that this answer went to was given this one.
    pub weak_tag: Option<HeaderValue>,
}

impl Stored {
    /// Whether it is for a request with these credentials.
    pub fn is_for(&self, credentials: Option<Reason>) -> bool {
        match credentials {
            None => true,
            Some(Reason::Cookie) => self.for_cookies,
            Some(_) => self.for_authorization,
        }
    }
}

/// The head of an answer, and when it came.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: &'a HeaderMap,
    /// When it came.
    pub at: SystemTime,
    /// How long after it was asked for.
    pub on_its_way: Duration,
}

/// Decides whether an answer to `head` may be stored.
///
/// # Errors
/// Why it must not.
pub fn store(request: &Request, head: &request::Parts, route: &Route, arrival: &Arrival<'_>) -> Result<Stored, Reason> {
    if head.method != Method::GET || arrival.headers.contains_key(TRAILER) {
        return Err(Reason::Form);
    }
    match request.mode {
        Mode::Coherent => coherent(request, route, arrival),
        Mode::Standard if request.is_for_slice() => slice(request, head, route, arrival),
        Mode::Standard => standard(request, head, route, arrival),
        Mode::Pass => Err(Reason::Route),
    }
}

/// A slice is kept by what its page would be kept by (rule H9).
fn slice(request: &Request, head: &request::Parts, route: &Route, arrival: &Arrival<'_>) -> Result<Stored, Reason> {
    let status = arrival.status;
    slice_of(head, status, arrival.headers).ok_or(Reason::NoSlice)?;
    let of_page = Arrival { status: StatusCode::OK, ..*arrival };
    standard(request, head, route, &of_page).map(|stored| Stored { status, ..stored })
}

/// By RFC 9111 section 3.
fn standard(request: &Request, head: &request::Parts, route: &Route, arrival: &Arrival<'_>) -> Result<Stored, Reason> {
    let Arrival { status, headers: answer, at, .. } = *arrival;
    let storable = storable(head, arrival)?;
    let has_body = ![StatusCode::NO_CONTENT, StatusCode::RESET_CONTENT].contains(&status);
    if has_body && !is_framed(answer) {
        return Err(Reason::Unframed);
    }
    if is_stream(answer) {
        return Err(Reason::Stream);
    }
    if cookies::sets_one(answer, &route.cookies) {
        return Err(Reason::SetCookie);
    }
    // A cookie may be of one user. An origin that states a lifetime has taken that into account.
    if request.credentials == Some(Reason::Cookie) && !storable.is_explicit {
        return Err(Reason::Cookie);
    }
    let variant = Variant::of(answer)?;
    let mut headers = answer.clone();
    remove_hop_by_hop(&mut headers);
    for name in [AGE, SET_COOKIE, PROXY_AUTHENTICATION_INFO] {
        headers.remove(name);
    }
    let mut headers = with_values_of_its_own(headers);
    // An answer without a date is of the moment it came, also when it is answered later (RFC 9110 section 6.6.1).
    if !headers.contains_key(DATE)
        && let Ok(date) = HeaderValue::try_from(httpdate::fmt_http_date(at))
    {
        headers.insert(DATE, date);
    }
    Ok(Stored {
        status,
        headers,
        lifetime: None,
        standard: Some(storable.lifetime),
        for_authorization: storable.for_authorization,
        for_cookies: storable.is_explicit,
        variant,
        weak_tag: None,
    })
}

fn coherent(request: &Request, route: &Route, arrival: &Arrival<'_>) -> Result<Stored, Reason> {
    let Arrival { status, headers: answer, at, .. } = *arrival;
    if !is_final(status) {
        return Err(Reason::Status);
    }
    if !is_framed(answer) && status != StatusCode::NO_CONTENT {
        return Err(Reason::Unframed);
    }
    let control = CacheControl::of_answer(answer);
    if control.no_store {
        return Err(Reason::NoStore);
    }
    if is_stream(answer) {
        return Err(Reason::Stream);
    }
    if control.private {
        return Err(Reason::Private);
    }
    if cookies::sets_one(answer, &route.cookies) {
        return Err(Reason::SetCookie);
    }
    let shared_with_credentials = control.public || control.s_maxage.least.is_some();
    if let (Some(reason), false) = (request.credentials, shared_with_credentials) {
        return Err(reason);
    }
    let variant = Variant::of(answer)?;
    let lifetime = lifetime(&control, answer, at)?;
    let weak_tag = answer.get(ETAG).filter(|tag| is_weak(tag)).cloned();
    Ok(Stored {
        status,
        headers: outgoing(answer, control),
        lifetime,
        standard: None,
        for_authorization: shared_with_credentials,
        for_cookies: shared_with_credentials,
        variant,
        weak_tag,
    })
}

/// Whether a message says itself where its body ends, so that half of it cannot look like the whole (RFC 9112 section 6.3).
pub fn is_framed(headers: &HeaderMap) -> bool {
    [CONTENT_LENGTH, TRANSFER_ENCODING].iter().any(|name| headers.contains_key(name))
}

/// Statuses that say what a page is, rather than what became of one attempt. Those that RFC 9110 section 15.1 calls
/// heuristically cacheable, less 206, which is half a page, and 501 and 414, which are about the request.
fn is_final(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::OK
            | StatusCode::NON_AUTHORITATIVE_INFORMATION
            | StatusCode::NO_CONTENT
            | StatusCode::MULTIPLE_CHOICES
            | StatusCode::MOVED_PERMANENTLY
            | StatusCode::PERMANENT_REDIRECT
            | StatusCode::NOT_FOUND
            | StatusCode::GONE
    )
}

/// Events that go on as long as a client listens: a reader that waited for their end would not get the first
/// one.
fn is_stream(answer: &HeaderMap) -> bool {
    let media =
        answer.get(CONTENT_TYPE).map(|media| media.as_bytes().split(|byte| *byte == b';').next().unwrap_or(b""));
    media.is_some_and(|media| media.trim_ascii().eq_ignore_ascii_case(b"text/event-stream"))
}

/// The bound that the origin set. Zero and `no-cache` mean "ask before each use", which is what every hit does here, and so are no
/// bound; an `Expires` in the past means the same (RFC 9111 section 5.3).
fn lifetime(control: &CacheControl, answer: &HeaderMap, now: SystemTime) -> Result<Option<Duration>, Reason> {
    if control.is_garbled {
        return Err(Reason::Expired);
    }
    let expires = || {
        let said = answer.get(EXPIRES)?;
        // A number is a way to say that it is stale (RFC 9111 section 5.3). An origin that writes a date that cannot be read may mean one
        // to come.
        let is_number = said.to_str().is_ok_and(|said| said.trim().parse::<i64>().is_ok());
        let Some(expires) = date(said) else { return (!is_number).then_some(Err(Reason::Expired)) };
        // An answer without a date is of the moment it came (RFC 9110 section 6.6.1).
        let made = answer.get(DATE).and_then(date).unwrap_or(now);
        Some(Ok(expires.duration_since(made).unwrap_or_default()))
    };
    // Zero is no bound beside another one.
    let given = control.s_maxage.bound.or(control.max_age.bound).or(control.max_age.least).or(control.s_maxage.least);
    let given = match given {
        Some(given) => given,
        None => expires().transpose()?.unwrap_or_default(),
    };
    if given.is_zero() {
        return Ok(None);
    }
    match given.checked_sub(age(answer)) {
        Some(left) if !left.is_zero() => Ok(Some(left)),
        _ => Err(Reason::Expired),
    }
}

/// How old it was when it came. Of several values the first counts (RFC 9111 section 5.1), and one that is too large to count is for ever.
pub(crate) fn age(answer: &HeaderMap) -> Duration {
    let first = answer.get(AGE).map(|age| age.as_bytes().split(|byte| *byte == b',').next().unwrap_or_default());
    match first.map(<[u8]>::trim_ascii) {
        Some(digits) if !digits.is_empty() && digits.iter().all(u8::is_ascii_digit) => {
            let seconds = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
            Duration::from_secs(seconds.unwrap_or(u64::MAX))
        }
        _ => Duration::ZERO,
    }
}

fn is_weak(tag: &HeaderValue) -> bool {
    tag.as_bytes().starts_with(b"W/\"")
}

fn outgoing(answer: &HeaderMap, control: CacheControl) -> HeaderMap {
    let mut headers = answer.clone();
    remove_hop_by_hop(&mut headers);
    remove_targeted(&mut headers);
    for name in [AGE, EXPIRES, PRAGMA, SET_COOKIE, PROXY_AUTHENTICATION_INFO] {
        headers.remove(name);
    }
    let ask = if control.no_transform { "no-cache, no-transform" } else { "no-cache" };
    headers.insert(CACHE_CONTROL, HeaderValue::from_static(ask));
    // A weak validator may stay the same over a change that matters here; the body's own takes its place.
    if headers.get(ETAG).is_some_and(|tag| is_weak(tag) || !tag.as_bytes().starts_with(b"\"")) {
        headers.remove(ETAG);
    }
    with_values_of_its_own(headers)
}

/// As they came, values are parts of the connection's buffer, which is many times as large and would be kept with them.
pub(crate) fn with_values_of_its_own(mut headers: HeaderMap) -> HeaderMap {
    for value in headers.values_mut() {
        if let Ok(own) = HeaderValue::from_bytes(value.as_bytes()) {
            *value = own;
        }
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderName;

    const NOW: &str = "Sun, 06 Nov 1994 08:50:07 GMT";

    fn decide_for(request: request::Builder, status: u16, answer: &[(&'static str, &str)]) -> Result<Stored, Reason> {
        let route = Route {
            cookies: crate::Cookies { ignore: ["sid"].into(), publish: true, ..Default::default() },
            ..Route::default()
        };
        let head = request.body(()).unwrap().into_parts().0;
        let mut answer: HeaderMap =
            answer.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect();
        match answer.remove("unframed") {
            Some(_) => None,
            None => answer.insert(CONTENT_LENGTH, HeaderValue::from_static("1")),
        };
        let request = Request::of(&head, false, &route, &crate::Keys::new([7; 16]));
        let status = StatusCode::from_u16(status).unwrap();
        let now = httpdate::parse_http_date(NOW).unwrap();
        let arrival = Arrival { status, headers: &answer, at: now, on_its_way: Duration::ZERO };
        store(&request, &head, &route, &arrival)
    }

    fn decide(status: u16, answer: &[(&'static str, &str)]) -> Result<Stored, Reason> {
        decide_for(http::Request::get("/"), status, answer)
    }

    #[test]
    fn what_is_for_one_user_is_not_kept() {
        let refused = |answer| decide(200, answer).map(|_| ()).unwrap_err();
        assert_eq!(refused(&[("cache-control", "No-Store")]), Reason::NoStore);
        assert_eq!(refused(&[("cache-control", "private=\"x\"")]), Reason::Private);
        assert_eq!(refused(&[("cdn-cache-control", "max-age=9, No-Store")]), Reason::NoStore);
        assert_eq!(refused(&[("cache-control", "public"), ("surrogate-control", "no-store")]), Reason::NoStore);
        assert!(decide(200, &[("surrogate-control", "max-age=9, content=\"no-store\"")]).is_ok());
        assert_eq!(refused(&[("cache-control", "public"), ("cdn-cache-control", "private")]), Reason::Private);
        assert_eq!(refused(&[("cache-control", "private; max-age=0")]), Reason::Private);
        assert_eq!(refused(&[("cloudflare-cdn-cache-control", "no-store")]), Reason::NoStore);
        assert_eq!(refused(&[("set-cookie", "user=1")]), Reason::SetCookie);
        assert_eq!(refused(&[("vary", "*")]), Reason::VaryAll);
        assert_eq!(decide(200, &[("set-cookie", "sid=1")]).unwrap().headers.get(SET_COOKIE), None);
        let with_cookie = || http::Request::get("/").header("cookie", "user=1");
        assert_eq!(decide_for(with_cookie(), 200, &[]).map(|_| ()).unwrap_err(), Reason::Cookie);
        assert!(decide_for(with_cookie(), 200, &[("cache-control", "public")]).unwrap().for_cookies);
    }

    #[test]
    fn only_whole_final_answers_to_get_are_kept() {
        for status in [200, 203, 204, 300, 301, 308, 404, 410] {
            assert!(decide(status, &[]).is_ok(), "{status}");
        }
        for status in [201, 206, 302, 304, 400, 401, 403, 500, 503] {
            assert_eq!(decide(status, &[]).map(|_| ()).unwrap_err(), Reason::Status, "{status}");
        }
        assert_eq!(decide_for(http::Request::head("/"), 200, &[]).map(|_| ()).unwrap_err(), Reason::Form);
        assert_eq!(decide(200, &[("unframed", "")]).map(|_| ()).unwrap_err(), Reason::Unframed);
    }

    #[test]
    fn what_has_no_end_is_not_kept() {
        let media = |media| decide(200, &[("content-type", media)]).map(|_| ());
        assert_eq!(media("Text/Event-Stream; charset=utf-8"), Err(Reason::Stream));
        assert_eq!(media("text/event-stream-not"), Ok(()));
    }

    #[test]
    fn a_positive_lifetime_is_a_bound_and_no_cache_is_none() {
        let lifetime = |answer| decide(200, answer).map(|stored| stored.lifetime.map(|bound| bound.as_secs()));
        assert_eq!(lifetime(&[("cache-control", "max-age=60, s-maxage=30")]), Ok(Some(30)));
        assert_eq!(lifetime(&[("cache-control", "max-age=60"), ("age", "50")]), Ok(Some(10)));
        assert_eq!(lifetime(&[("cache-control", "max-age=60"), ("age", "60")]), Err(Reason::Expired));
        assert_eq!(lifetime(&[("cache-control", "max-age=60"), ("age", "50, 1")]), Ok(Some(10)));
        assert_eq!(lifetime(&[("cache-control", "max-age=60"), ("age", "99999999999999999999")]), Err(Reason::Expired));
        assert_eq!(lifetime(&[("cache-control", "max-age=60"), ("age", "old")]), Ok(Some(60)));
        assert_eq!(lifetime(&[("cache-control", "no-cache, max-age=0")]), Ok(None));
        assert_eq!(lifetime(&[("cache-control", "max-age=0, max-age=60")]), Ok(Some(60)));
        assert_eq!(lifetime(&[("cache-control", "max-age=60;public")]), Ok(Some(60)));
        for garbled in ["max-age=60.0", "s-maxage=1m, max-age=60", "max-age"] {
            let answer = [("cache-control", garbled)];
            assert_eq!(decide(200, &answer).map(|_| ()).unwrap_err(), Reason::Expired, "{garbled}");
        }
        assert_eq!(lifetime(&[("cache-control", "s-maxage=0, max-age=60")]), Ok(Some(60)));
        assert_eq!(lifetime(&[("expires", "Sun, 06-Nov-1994 08:50:37 GMT")]), Err(Reason::Expired));
        assert_eq!((lifetime(&[("expires", "0")]), lifetime(&[("expires", "-1")])), (Ok(None), Ok(None)));
        let day = [("date", "Sun, 06 Nov 1994 08:49:37 GMT"), ("expires", "Sun, 06 Nov 1994 08:50:37 GMT")];
        assert_eq!(lifetime(&day), Ok(Some(60)));
        assert_eq!(lifetime(&day[1..]), Ok(Some(30)), "an answer without a date is of now");
        assert_eq!(lifetime(&[day[0], ("expires", "0")]), Ok(None));
    }

    #[test]
    fn what_goes_out_asks_to_be_asked_again() {
        let stored = decide(
            200,
            &[
                ("cache-control", "public, max-age=60"),
                ("expires", "0"),
                ("connection", "x-hop"),
                ("x-hop", "1"),
                ("etag", "W/\"a\""),
                ("content-type", "text/html"),
            ],
        )
        .unwrap();
        assert_eq!(stored.headers[CACHE_CONTROL], "no-cache");
        assert_eq!(stored.headers.len(), 3, "{:?}", stored.headers);
        assert_eq!(stored.weak_tag.unwrap(), "W/\"a\"");
        let strong = decide(200, &[("etag", "\"a\"")]).unwrap();
        assert_eq!((&strong.headers[ETAG], strong.weak_tag), (&HeaderValue::from_static("\"a\""), None));
    }
}
