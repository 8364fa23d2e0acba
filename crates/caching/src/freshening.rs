//! A stored answer that the origin calls right still: asked for with its validators, and made new by the 304 (RFC 9111 section 4.3, rule H4).

use http::header::{
    CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, ETAG, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED,
    TRANSFER_ENCODING, VARY,
};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::fields::PROXY_AUTHENTICATION_INFO;
use crate::forward::remove_hop_by_hop;

/// Says in a request which answer is stored. Whether there is a validator to say it with: without, a condition would be a guess.
pub fn ask_whether(request: &mut HeaderMap, stored: &HeaderMap) -> bool {
    let mut says = false;
    for (validator, condition) in [(ETAG, IF_NONE_MATCH), (LAST_MODIFIED, IF_MODIFIED_SINCE)] {
        if let Some(value) = stored.get(&validator).filter(|value| is_validator(&validator, value)) {
            request.insert(condition, value.clone());
            says = true;
        }
    }
    says
}

/// The same of an answer that may not be the origin's present one, and that a date with its whole seconds would not tell from that: by a strong tag alone (rule H4).
pub fn ask_by_tag(request: &mut HeaderMap, stored: &HeaderMap) -> bool {
    let tag = stored.get(ETAG).filter(|tag| tag.as_bytes().starts_with(b"\"") && is_validator(&ETAG, tag));
    if let Some(tag) = tag {
        request.remove(IF_MODIFIED_SINCE);
        request.insert(IF_NONE_MATCH, tag.clone());
    }
    tag.is_some()
}

fn is_validator(name: &HeaderName, value: &HeaderValue) -> bool {
    *name != ETAG || (value.len() > 1 && value.as_bytes().ends_with(b"\""))
}

/// The head of a stored answer as a 304 makes it new. `None` if the 304 is about another answer than the one that is stored: it is to be
/// fetched without conditions.
pub fn freshened(stored: &HeaderMap, not_modified: &HeaderMap) -> Option<HeaderMap> {
    let mut told = not_modified.clone();
    remove_hop_by_hop(&mut told);
    told.remove(PROXY_AUTHENTICATION_INFO);
    // Of the body that was not sent; its own are kept (section 3.2).
    let is_of_the_body = |name: &HeaderName| [CONTENT_LENGTH, CONTENT_RANGE, TRANSFER_ENCODING].contains(name);
    for name in [ETAG, VARY, CONTENT_ENCODING] {
        let lines = |headers: &HeaderMap| headers.get_all(&name).into_iter().cloned().collect::<Vec<_>>();
        let (told, stored) = (lines(&told), lines(stored));
        // A weak tag compares with a strong one, as the condition did (RFC 9110 section 13.1.2).
        let is_same = match name == ETAG {
            true => told.iter().map(opaque).eq(stored.iter().map(opaque)),
            false => told == stored,
        };
        if !told.is_empty() && !is_same {
            return None;
        }
    }
    let mut headers = stored.clone();
    for name in told.keys().filter(|name| !is_of_the_body(name) && **name != CONTENT_ENCODING) {
        headers.remove(name);
    }
    for (name, value) in told.iter().filter(|(name, _)| !is_of_the_body(name) && **name != CONTENT_ENCODING) {
        headers.append(name, value.clone());
    }
    Some(headers)
}

/// Whether the answer to a HEAD is about another answer than the one that is stored: in its tag, its date or its length (RFC 9111 section 4.3.5).
pub fn is_of_another(stored: &HeaderMap, told: &HeaderMap) -> bool {
    [ETAG, LAST_MODIFIED, CONTENT_LENGTH].iter().any(|name| match (stored.get(name), told.get(name)) {
        (Some(stored), Some(told)) => opaque(stored) != opaque(told),
        _ => false,
    })
}

fn opaque(tag: &HeaderValue) -> &[u8] {
    crate::answer::opaque(tag.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn a_condition_names_what_is_stored() {
        let mut request = HeaderMap::new();
        let stored = headers(&[("etag", "W/\"1\""), ("last-modified", "Sun, 06 Nov 1994 08:49:37 GMT")]);
        assert!(ask_whether(&mut request, &stored));
        assert_eq!((&request[IF_NONE_MATCH], &request[IF_MODIFIED_SINCE]), (&stored[ETAG], &stored[LAST_MODIFIED]));
        let mut request = HeaderMap::new();
        assert!(!ask_whether(&mut request, &headers(&[("etag", "bare"), ("date", "x")])) && request.is_empty());
    }

    #[test]
    fn what_has_moved_is_asked_about_by_a_strong_tag_alone() {
        let changed = ("last-modified", "Sun, 06 Nov 1994 08:49:37 GMT");
        for weak in [("etag", "W/\"1\""), ("etag", "bare"), ("etag", "\"")] {
            let mut request = HeaderMap::new();
            assert_eq!((ask_by_tag(&mut request, &headers(&[weak, changed])), request.len()), (false, 0), "{weak:?}");
        }
        let mut request = headers(&[("if-modified-since", changed.1)]);
        assert!(ask_by_tag(&mut request, &headers(&[("etag", "\"1\""), changed])));
        assert_eq!(request, headers(&[("if-none-match", "\"1\"")]));
    }

    #[test]
    fn a_304_makes_all_new_but_what_is_of_the_body() {
        let stored = headers(&[
            ("etag", "\"1\""),
            ("content-length", "5"),
            ("content-encoding", "gzip"),
            ("cache-control", "max-age=1"),
            ("x-a", "old"),
            ("x-b", "kept"),
        ]);
        let told = headers(&[
            ("etag", "W/\"1\""),
            ("content-length", "0"),
            ("content-range", "bytes 0-1/2"),
            ("cache-control", "max-age=2"),
            ("x-a", "1"),
            ("x-a", "2"),
            ("connection", "x-c"),
            ("x-c", "hop"),
            ("proxy-authentication-info", "a"),
        ]);
        let expected = headers(&[
            ("etag", "W/\"1\""),
            ("content-length", "5"),
            ("content-encoding", "gzip"),
            ("cache-control", "max-age=2"),
            ("x-a", "1"),
            ("x-a", "2"),
            ("x-b", "kept"),
        ]);
        assert_eq!(freshened(&stored, &told), Some(expected));
    }

    #[test]
    fn a_head_is_about_another_answer_if_something_of_it_differs() {
        let stored = headers(&[("etag", "W/\"1\""), ("content-length", "5"), ("x-a", "1")]);
        for same in [&[("etag", "\"1\"")][..], &[("x-a", "2")], &[("last-modified", "x")], &[]] {
            assert!(!is_of_another(&stored, &headers(same)), "{same:?}");
        }
        for other in [("etag", "\"2\""), ("content-length", "6")] {
            assert!(is_of_another(&stored, &headers(&[other])), "{other:?}");
        }
    }

    #[test]
    fn a_304_about_another_answer_is_of_no_use() {
        let stored = headers(&[("etag", "\"1\""), ("vary", "accept"), ("content-encoding", "gzip")]);
        for (name, value) in [("etag", "\"2\""), ("vary", "cookie"), ("content-encoding", "br")] {
            assert_eq!(freshened(&stored, &headers(&[(name, value)])), None, "{name}");
        }
        assert_eq!(freshened(&stored, &headers(&[])), Some(stored.clone()));
    }
}
