//! How an answer goes out: whole, or as 304 to a client that has it (RFC 9110 section 13).

use http::header::{DATE, ETAG, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED};
use http::{HeaderMap, HeaderValue, StatusCode, request};

use crate::control::split_list;
use crate::date::date;

/// In which form to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Status, headers and, unless the request was HEAD, the body.
    Whole,
    /// 304: the client's copy is this one.
    NotModified,
}

/// The same by RFC 9110 section 13.2.2 alone, where a date counts if there is no tag: of what a cache in standard mode answers.
pub fn answer_by_dates_too(head: &request::Parts, status: StatusCode, headers: &HeaderMap) -> Answer {
    if status != StatusCode::OK || head.headers.contains_key(IF_NONE_MATCH) {
        return answer(head, status, headers);
    }
    let date = |value: Option<&HeaderValue>| value.and_then(date);
    let since = date(head.headers.get(IF_MODIFIED_SINCE));
    let changed = date(headers.get(LAST_MODIFIED)).or_else(|| date(headers.get(DATE)));
    match (since, changed) {
        (Some(since), Some(changed)) if changed <= since => Answer::NotModified,
        _ => Answer::Whole,
    }
}

/// Decides how an answer with these headers goes out to a GET or HEAD, be it a stored one or one that the origin has just sent. Only entity tags
/// count: `If-Modified-Since` knows seconds, in which a page may have changed twice (rule P9).
pub fn answer(head: &request::Parts, status: StatusCode, headers: &HeaderMap) -> Answer {
    let tag = headers.get(ETAG).map_or(&b""[..], |tag| tag.as_bytes());
    if status == StatusCode::OK && has_tag(head, tag) { Answer::NotModified } else { Answer::Whole }
}

/// Whether the client says in `If-None-Match` that it has what this tag is of. `*` says so of whatever there is.
pub fn has_tag(head: &request::Parts, tag: &[u8]) -> bool {
    tags(head).any(|wanted| wanted == b"*" || (!tag.is_empty() && opaque(wanted) == opaque(tag)))
}

/// The tags in `If-None-Match`, as they are written there.
pub(crate) fn tags(head: &request::Parts) -> impl Iterator<Item = &[u8]> {
    head.headers.get_all(IF_NONE_MATCH).into_iter().flat_map(|line| split_list(line.as_bytes()))
}

/// Weak comparison, which If-None-Match asks for (RFC 9110 section 8.8.3.2), leaves the `W/` out.
pub(crate) fn opaque(tag: &[u8]) -> &[u8] {
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
        let head = http::Request::get("/").header(IF_NONE_MATCH, "*").body(()).unwrap().into_parts().0;
        assert_eq!(answer(&head, StatusCode::OK, &HeaderMap::new()), Answer::NotModified, "there is a representation");
    }
}
