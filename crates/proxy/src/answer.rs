//! Heads of answers, and the names of what became of a request.

use http::header::{ALLOW, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderName, HeaderValue, Method, Response, StatusCode, request};
use verbena_caching::{Answer, CacheStatus, Unfit, answer};
use verbena_content::{Alone, NotStored, Refusal, Verdict};

use crate::body::Body;
use crate::cache::Copy;

/// RFC 9211.
const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");
/// What `Cache-Status` says of a hit.
const HIT: HeaderValue = HeaderValue::from_static("verbena; hit");
/// What this cache is called in `Cache-Status` and `Via`.
pub(crate) const NAME: &str = "verbena";
/// What the proxy's own answers are written in.
pub(crate) const PLAIN_TEXT: &str = "text/plain; charset=utf-8";

/// A validated copy, in the form that the request wants.
pub(crate) fn from_copy(head: &request::Parts, copy: &Copy, status: CacheStatus) -> Response<Body> {
    let not_modified = answer(head, copy.stored.status, &copy.stored.headers) == Answer::NotModified;
    let body = match not_modified || head.method == Method::HEAD {
        true => Body::empty(),
        false => Body::from(copy.body.clone()),
    };
    let mut response = Response::new(body);
    *response.headers_mut() = copy.stored.headers.clone();
    if not_modified {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        for name in [CONTENT_LENGTH, CONTENT_TYPE] {
            response.headers_mut().remove(name);
        }
    } else {
        *response.status_mut() = copy.stored.status;
    }
    note(&mut response, status);
    response
}

/// An answer of the proxy's own.
pub(crate) fn own(status: StatusCode, text: &str, noted: CacheStatus) -> Response<Body> {
    let mut response = Response::new(Body::from(bytes::Bytes::from(format!("{text}\n"))));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(PLAIN_TEXT));
    if status == StatusCode::SERVICE_UNAVAILABLE {
        headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    note(&mut response, noted);
    response
}

/// The answer to a request that is about no page.
pub(crate) fn unfit(unfit: Unfit) -> Response<Body> {
    let (status, detail, text) = match unfit {
        Unfit::Method => (StatusCode::METHOD_NOT_ALLOWED, "method-refused", "this is no tunnel, and no mirror"),
        Unfit::Target => (StatusCode::BAD_REQUEST, "target", "the target is of a form that the method has not"),
        Unfit::Host => (StatusCode::BAD_REQUEST, "host", "a request is for one host, which Host names"),
        Unfit::Coding => (StatusCode::NOT_IMPLEMENTED, "transfer-coding", "no transfer coding but chunked is known"),
        Unfit::LastHop => (StatusCode::OK, "max-forwards", "as far as it was to go"),
    };
    let mut response = own(status, text, forwarded("bypass", Some(detail)));
    if matches!(unfit, Unfit::Method | Unfit::LastHop) {
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"));
    }
    response
}

/// Says what was done with the request: to the client, and to whoever counts.
pub(crate) fn note(response: &mut Response<Body>, status: CacheStatus) {
    let value = if status == CacheStatus::Hit { HIT } else { status.value(NAME) };
    response.headers_mut().append(CACHE_STATUS, value);
    // A hit has nothing more to be counted by, and an extension costs it two allocations.
    if status != CacheStatus::Hit {
        response.extensions_mut().insert(status);
    }
}

/// Why an answer is no hit, as it was noted.
pub(crate) fn reason(response: &Response<Body>) -> Option<&'static str> {
    match response.extensions().get()? {
        CacheStatus::Hit => None,
        CacheStatus::Forwarded { why, detail, .. } => Some(detail.unwrap_or(why)),
    }
}

/// Went to the origin, without more to say.
pub(crate) const fn forwarded(why: &'static str, detail: Option<&'static str>) -> CacheStatus {
    CacheStatus::Forwarded { why, origin_status: None, stored: false, collapsed: false, detail }
}

/// The token for a copy that was not fresh.
pub(crate) const fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Fresh => "fresh",
        Verdict::Busy => "update-open",
        Verdict::Moved => "moved",
        Verdict::OtherHome => "other-home",
        Verdict::OtherView => "other-view",
        Verdict::NoLease => "no-lease",
    }
}

/// The token for a request that went alone.
pub(crate) const fn alone(why: Alone) -> &'static str {
    match why {
        Alone::NoWords => "no-words",
        Alone::NoLease => "no-lease",
        Alone::Busy => "update-open",
        Alone::Unstorable => "unstorable",
        Alone::Full => "too-many-fills",
    }
}

/// The token for a page that was not stored.
pub(crate) const fn not_stored(why: NotStored) -> &'static str {
    match why {
        NotStored::Unstorable => "unstorable",
        NotStored::Failed => "failed",
        NotStored::Late => "home-late",
        NotStored::Refused(Refusal::OtherView) => "refused-other-view",
        NotStored::Refused(Refusal::NoLease) => "refused-no-lease",
        NotStored::Refused(Refusal::Busy) => "refused-update-open",
        NotStored::Refused(Refusal::Moved) => "refused-moved",
        NotStored::Refused(Refusal::DependencyBusy) => "refused-dependency-busy",
        NotStored::Refused(Refusal::DependencyMoved) => "refused-dependency-moved",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hit_says_what_every_status_would() {
        assert_eq!(HIT, CacheStatus::Hit.value(NAME));
    }
}
