//! Parts of a stored page: 206 and 416 (RFC 9110 sections 14 and 15.3.7).

use bytes::{BufMut, Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode, request};
use hyper::ext::ReasonPhrase;
use verbena_caching::{Keys, Parts, parts};

use crate::body::Body;

/// Makes an answer with a whole page one with the parts that the request asks for.
pub(crate) fn part(head: &request::Parts, mut response: Response<Body>, keys: &Keys) -> Response<Body> {
    if response.status() != StatusCode::OK {
        return response;
    }
    let body = match std::mem::replace(response.body_mut(), Body::empty()) {
        Body::Whole(body) => body.unwrap_or_default(),
        other => {
            *response.body_mut() = other;
            return response;
        }
    };
    let length = body.len() as u64;
    let at = |range: &std::ops::Range<u64>| {
        // Within the body, which is in memory.
        let part = body.slice(range.start as usize..range.end as usize);
        (part, format!("bytes {}-{}/{length}", range.start, range.end - 1))
    };
    let (status, part) = match parts(head, response.headers(), length) {
        Parts::Whole => {
            *response.body_mut() = Body::from(body);
            return response;
        }
        Parts::Unsatisfiable => {
            response.headers_mut().remove(CONTENT_TYPE);
            set(&mut response, format!("bytes */{length}"));
            (StatusCode::RANGE_NOT_SATISFIABLE, Bytes::new())
        }
        Parts::Of(ranges) if ranges.len() == 1 => {
            let (part, range) = at(&ranges[0]);
            set(&mut response, range);
            (StatusCode::PARTIAL_CONTENT, part)
        }
        Parts::Of(ranges) => {
            // Made under a secret: the author of the page cannot have written the boundary into it.
            let tag = keys.entity_tag_of(&body);
            let boundary = tag.to_str().unwrap_or_default().trim_matches('"').to_owned();
            let media = response.headers_mut().remove(CONTENT_TYPE);
            let mut all = BytesMut::new();
            for (part, range) in ranges.iter().map(at) {
                all.put_slice(format!("\r\n--{boundary}\r\n").as_bytes());
                if let Some(media) = &media {
                    all.put_slice(b"Content-Type: ");
                    all.put_slice(media.as_bytes());
                    all.put_slice(b"\r\n");
                }
                all.put_slice(format!("Content-Range: {range}\r\n\r\n").as_bytes());
                all.put(part);
            }
            all.put_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
            let media = HeaderValue::try_from(format!("multipart/byteranges; boundary={boundary}"));
            response.headers_mut().insert(CONTENT_TYPE, media.expect("invariant: a token is a header value"));
            (StatusCode::PARTIAL_CONTENT, all.freeze())
        }
    };
    response.extensions_mut().remove::<ReasonPhrase>();
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(part.len()));
    *response.body_mut() = Body::from(part);
    response
}

fn set(response: &mut Response<Body>, range: String) {
    let range = HeaderValue::try_from(range).expect("invariant: digits are a header value");
    response.headers_mut().insert(CONTENT_RANGE, range);
}
