//! How a validated copy goes out: whole, or as 304 to a client that has it (RFC 9110 section 13).

use http::header::{ETAG, IF_NONE_MATCH};
use http::{HeaderMap, StatusCode, request};

use crate::control::split_list;

/// In which form to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Status, headers and, unless the request was HEAD, the body.
    Whole,
    /// 304: the client's copy is this one.
    NotModified,
}

/// Decides how a stored answer goes out to a GET or HEAD. Only entity tags count: `If-Modified-Since` knows seconds, in which
/// a page may have changed twice (rule P9).
pub fn answer(head: &request::Parts, status: StatusCode, stored: &HeaderMap) -> Answer {
    let Some(tag) = stored.get(ETAG).filter(|_| status == StatusCode::OK) else { return Answer::Whole };
    let matches = |wanted: &[u8]| wanted == b"*" || opaque(wanted) == opaque(tag.as_bytes());
    let mut lines = head.headers.get_all(IF_NONE_MATCH).into_iter();
    if lines.any(|line| split_list(line.as_bytes()).any(matches)) { Answer::NotModified } else { Answer::Whole }
}

/// Weak comparison, which If-None-Match asks for (RFC 9110 section 8.8.3.2), leaves the `W/` out.
fn opaque(tag: &[u8]) -> &[u8] {
    tag.strip_prefix(b"W/").unwrap_or(tag)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn asked(line: &str, status: StatusCode) -> Answer {
        let head = http::Request::get("/").header(IF_NONE_MATCH, line).body(()).unwrap().into_parts().0;
        let mut stored = HeaderMap::new();
        stored.insert(ETAG, HeaderValue::from_static("\"a,b\""));
        answer(&head, status, &stored)
    }

    #[test]
    fn a_client_that_has_it_is_told_so() {
        for line in ["\"a,b\"", "\"x\", W/\"a,b\"", "*"] {
            assert_eq!(asked(line, StatusCode::OK), Answer::NotModified, "{line}");
        }
        for line in ["\"a\"", "a,b", "\"a,b", ""] {
            assert_eq!(asked(line, StatusCode::OK), Answer::Whole, "{line}");
        }
        assert_eq!(asked("*", StatusCode::NOT_FOUND), Answer::Whole);
    }
}
