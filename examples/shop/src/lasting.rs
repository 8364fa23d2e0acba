//! Pages that say how long they last, have a tag, and are given in parts: what a cache by RFC 9111 goes by.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_RANGE, ETAG, IF_NONE_MATCH, IF_RANGE, RANGE};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};

/// Bytes of a page at most.
const LARGEST: usize = 8 << 20;

/// The shop, whose pages may be kept for so many seconds.
pub fn lasting(shop: Router, seconds: u32) -> Router {
    shop.layer(from_fn_with_state(seconds, last))
}

async fn last(State(seconds): State<u32>, request: Request, next: Next) -> Response {
    let (is_get, asked) = (request.method() == Method::GET, request.headers().clone());
    let answered = next.run(request).await;
    if !is_get || answered.status() != StatusCode::OK {
        return answered;
    }
    let (mut head, body) = answered.into_parts();
    let Ok(body) = to_bytes(body, LARGEST).await else { return StatusCode::INTERNAL_SERVER_ERROR.into_response() };
    let tag = tag(&body);
    head.headers.remove(CONTENT_LENGTH);
    head.headers.insert(CACHE_CONTROL, value(format!("max-age={seconds}")));
    head.headers.insert(ETAG, tag.clone());
    if asked.get(IF_NONE_MATCH) == Some(&tag) {
        head.status = StatusCode::NOT_MODIFIED;
        return Response::from_parts(head, Body::empty());
    }
    let length = body.len();
    let body = match part(&asked, &tag, length) {
        None => body,
        Some(part) if part.is_empty() => {
            head.status = StatusCode::RANGE_NOT_SATISFIABLE;
            head.headers.insert(CONTENT_RANGE, value(format!("bytes */{length}")));
            Bytes::new()
        }
        Some(part) => {
            head.status = StatusCode::PARTIAL_CONTENT;
            head.headers.insert(CONTENT_RANGE, value(format!("bytes {}-{}/{length}", part.start, part.end - 1)));
            body.slice(part)
        }
    };
    Response::from_parts(head, Body::from(body))
}

fn value(text: String) -> HeaderValue {
    HeaderValue::try_from(text).expect("invariant: digits and a few signs are a header value")
}

/// The strong tag of a page.
fn tag(body: &[u8]) -> HeaderValue {
    let mut hash = DefaultHasher::new();
    body.hash(&mut hash);
    value(format!("\"{:016x}\"", hash.finish()))
}

/// The part that a request asks for: one range with a first byte. Empty: there is no such byte.
fn part(asked: &HeaderMap, tag: &HeaderValue, length: usize) -> Option<Range<usize>> {
    if asked.get(IF_RANGE).is_some_and(|condition| condition != tag) {
        return None;
    }
    let (first, last) = asked.get(RANGE)?.to_str().ok()?.strip_prefix("bytes=")?.split_once('-')?;
    let first: usize = first.parse().ok()?;
    let end = if last.is_empty() { length } else { last.parse::<usize>().ok()?.saturating_add(1).min(length) };
    Some(first..end.max(first)).map(|part| if part.start < length { part } else { 0..0 })
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    use super::*;

    async fn asks(lines: &[(&str, &str)]) -> (StatusCode, HeaderMap, String) {
        let shop = lasting(Router::new().route("/", get("0123456789")), 60);
        let request = lines.iter().fold(Request::get("/"), |request, (name, value)| request.header(*name, *value));
        let (head, body) = shop.oneshot(request.body(Body::empty()).unwrap()).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        (head.status, head.headers, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn a_page_is_given_whole_in_parts_and_not_again() {
        let (status, whole, body) = asks(&[]).await;
        let tag = whole[ETAG].to_str().unwrap();
        assert_eq!(
            (status.as_u16(), &*body, whole[CACHE_CONTROL].to_str().unwrap()),
            (200, "0123456789", "max-age=60")
        );
        for (lines, status, body, range) in [
            (&[("range", "bytes=2-4")][..], 206, "234", Some("bytes 2-4/10")),
            (&[("range", "bytes=8-99")], 206, "89", Some("bytes 8-9/10")),
            (&[("range", "bytes=7-"), ("if-range", tag)], 206, "789", Some("bytes 7-9/10")),
            (&[("range", "bytes=7-"), ("if-range", "\"other\"")], 200, "0123456789", None),
            (&[("range", "bytes=10-")], 416, "", Some("bytes */10")),
            (&[("if-none-match", tag)], 304, "", None),
        ] {
            let (found, headers, text) = asks(lines).await;
            let said = headers.get(CONTENT_RANGE).map(|range| range.to_str().unwrap());
            assert_eq!((found.as_u16(), &*text, said), (status, body, range), "{lines:?}");
        }
    }
}
