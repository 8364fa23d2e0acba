//! Heads of answers, and the names of what became of a request.

use http::header::{
    AGE, ALLOW, CONTENT_LENGTH, CONTENT_TYPE, ETAG, Entry, IF_MODIFIED_SINCE, IF_NONE_MATCH, RETRY_AFTER,
};
use http::{HeaderName, HeaderValue, Method, Response, StatusCode, request};
use hyper::body::Incoming;
use hyper::ext::ReasonPhrase;
use verbena_caching::{Answer, CacheStatus, Intent, Unfit, answer, answer_by_dates_too, has_tag};
use verbena_content::{Alone, NotStored, Refusal, Verdict};

use crate::body::Body;
use crate::origin::Failure;
use crate::page::{Aged, Page};
use crate::shapes::Shapes;

/// RFC 9211.
pub(crate) const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");
/// What `Cache-Status` says of a hit.
pub(crate) const HIT: HeaderValue = HeaderValue::from_static("verbena; hit");
/// What this cache is called in `Cache-Status` and `Via`.
pub(crate) const NAME: &str = "verbena";
/// What the proxy's own answers are written in.
pub(crate) const PLAIN_TEXT: &str = "text/plain; charset=utf-8";

/// A validated copy, in the form that the request wants. One that has an age is a standard one, and says it.
pub(crate) fn from_copy(
    head: &request::Parts,
    copy: Page,
    shapes: &Shapes,
    noted: CacheStatus,
    aged: Option<Aged>,
) -> Response<Body> {
    let status = copy.status();
    let weak = copy.weak_tag().filter(|tag| status == StatusCode::OK && has_tag(head, tag));
    let weak = weak.and_then(|tag| HeaderValue::from_bytes(tag).ok());
    let (mut headers, mut body) = copy.opened(shapes);
    let is_ours = match aged {
        None => answer(head, status, &headers),
        Some(Aged { age, .. }) => {
            headers.insert(AGE, HeaderValue::from(age));
            answer_by_dates_too(head, status, &headers)
        }
    };
    let is_ours = is_ours == Answer::NotModified;
    if head.method == Method::HEAD {
        body.clear();
    }
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    if is_ours || weak.is_some() {
        not_modified(&mut response);
        // By the tag that a client has it knows which of its copies is meant (RFC 9111 section 4.3.4).
        if let Some(weak) = weak.filter(|_| !is_ours) {
            response.headers_mut().insert(ETAG, weak);
        }
    }
    if noted != CacheStatus::Hit {
        note_instead(&mut response, noted);
    }
    response
}

/// An answer to what was asked. Where a look went out without conditions: whose copy should be still right?
pub(crate) fn asked_for(
    outgoing: &request::Parts,
    intent: Intent,
    answered: Response<Incoming>,
) -> Result<Response<Incoming>, Failure> {
    let has_condition = [IF_NONE_MATCH, IF_MODIFIED_SINCE].iter().any(|name| outgoing.headers.contains_key(name));
    let is_about_a_copy = answered.status() == StatusCode::NOT_MODIFIED;
    if is_about_a_copy && intent == Intent::Look && !has_condition { Err(Failure::Broken) } else { Ok(answered) }
}

/// Makes it 304: the client has what it would say.
pub(crate) fn not_modified(response: &mut Response<Body>) {
    *response.status_mut() = StatusCode::NOT_MODIFIED;
    response.extensions_mut().remove::<ReasonPhrase>();
    for name in [CONTENT_LENGTH, CONTENT_TYPE] {
        response.headers_mut().remove(name);
    }
    *response.body_mut() = Body::empty();
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
        Unfit::Length => (StatusCode::BAD_REQUEST, "length", "a request has one length at most, and it is a number"),
        Unfit::Expectation => {
            (StatusCode::EXPECTATION_FAILED, "expectation", "nothing but 100-continue can be expected here")
        }
        Unfit::LastHop => (StatusCode::OK, "max-forwards", "as far as it was to go"),
    };
    let mut response = own(status, text, forwarded("bypass", Some(detail)));
    if matches!(unfit, Unfit::Method | Unfit::LastHop) {
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"));
    }
    response
}

/// Records what was done with the request, for the client and for the counters.
pub(crate) fn note(response: &mut Response<Body>, status: CacheStatus) {
    response.headers_mut().append(CACHE_STATUS, status.value(NAME));
    response.extensions_mut().insert(status);
}

/// The same on an answer that says that it is a hit: so does the head of a copy, and then it has nothing more to be counted by.
fn note_instead(response: &mut Response<Body>, status: CacheStatus) {
    if let Entry::Occupied(mut lines) = response.headers_mut().entry(CACHE_STATUS)
        && let Some(ours) = lines.iter_mut().next_back()
    {
        *ours = status.value(NAME);
    }
    response.extensions_mut().insert(status);
}

/// Why an answer is no hit, as it was noted.
pub(crate) fn reason(response: &Response<Body>) -> Option<&'static str> {
    match response.extensions().get()? {
        CacheStatus::Hit | CacheStatus::HitOf { .. } | CacheStatus::Aged { .. } => None,
        CacheStatus::Forwarded { remembered: true, .. } => Some("unstorable"),
        CacheStatus::Forwarded { why, detail, .. } => Some(detail.unwrap_or(why)),
    }
}

/// Went to the origin, without more to say.
pub(crate) const fn forwarded(why: &'static str, detail: Option<&'static str>) -> CacheStatus {
    CacheStatus::Forwarded { why, origin_status: None, stored: false, collapsed: false, detail, remembered: false }
}

/// What a request gets that another one fetched.
pub(crate) const fn collapsed(why: &'static str, detail: Option<&'static str>) -> CacheStatus {
    CacheStatus::Forwarded { why, origin_status: None, stored: false, collapsed: true, detail, remembered: false }
}

/// The same for a request that went alone, because an earlier answer was not stored for this reason.
pub(crate) const fn remembered(why: &'static str, reason: &'static str) -> CacheStatus {
    CacheStatus::Forwarded {
        why,
        origin_status: None,
        stored: false,
        collapsed: false,
        detail: Some(reason),
        remembered: true,
    }
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
        Alone::Unstorable(why) => why,
        Alone::Failing => "failing",
        Alone::Slow => "fill-slow",
        Alone::Full => "too-many-fills",
    }
}

/// The token for a page that was not stored.
pub(crate) const fn not_stored(why: NotStored) -> &'static str {
    match why {
        NotStored::Unstorable => "unstorable",
        NotStored::Failed => "failed",
        NotStored::Late => "home-late",
        NotStored::Overtaken => "overtaken",
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
