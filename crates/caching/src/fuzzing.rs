//! What the fuzz target `http_head` drives: a request and its answer, through everything that is decided from their heads.
//!
//! ```text
//!  GET /page?x              method, target
//!  cookie: lang=de          header lines
//!                           an empty line
//!  200                      status
//!  cache-control: public    header lines
//! ```
//!
//! The decision is checked against a second reading of the same lines that knows fewer rules: an answer of which that reading says
//! that it is private, or that it must not be stored by any cache, must not be stored.

mod fields;

use std::net::Ipv4Addr;
use std::time::{Duration, SystemTime};

use http::header::{AGE, CACHE_CONTROL, EXPIRES, HOST, IF_NONE_MATCH, PRAGMA, SET_COOKIE, VARY, VIA};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version, request};

use crate::{
    Answer, Arrival, Conditions, Cookies, Intent, Keys, Request, Route, Via, Writes, answer, for_client, for_origin,
    received, store,
};

#[cfg(feature = "fuzzing")]
pub use fields::{Targeted, accept_list, purge_headers, range, targeted_field};

/// What happened, so that a replay of the corpus can say that every road was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Outcomes {
    pub unfit: u32,
    pub looked: u32,
    pub passed: u32,
    pub updates: u32,
    pub stored: u32,
    pub refused: u32,
    pub not_modified: u32,
}

/// Reads `input` as drawn above; no outcome if it is no request and its answer.
///
/// # Panics
/// If something is stored or passed on that must not be.
pub fn http_head(input: &[u8]) -> Outcomes {
    let mut outcomes = Outcomes::default();
    let mut lines = input.split(|&byte| byte == b'\n');
    let Some(asked) = request_head(&mut lines) else { return outcomes };
    let mut head = asked.clone();
    if received(&mut head).is_err() {
        outcomes.unfit += 1;
        return outcomes;
    }
    assert!(asked.uri.authority().is_some() || asked.headers.get_all(HOST).iter().count() == 1, "{asked:?}");
    assert!(head.headers.get_all(HOST).iter().count() <= 1);
    assert!(only_end_to_end(&head.headers), "{:?}", head.headers);
    let mut again = head.clone();
    // Forwarding takes one from Max-Forwards each time.
    assert!(head.method == Method::OPTIONS || received(&mut again).is_ok() && again.headers == head.headers);

    let cookies = Cookies { ignore: ["sid"].into(), key: ["lang".to_owned()].into(), ..Default::default() };
    let route = Route { cookies, ..Route::default() };
    let keys = Keys::new([7; 16]);
    let request = Request::of(&head, false, &route, &keys);
    match request.intent {
        Intent::Look => {
            assert!(head.method == Method::GET || head.method == Method::HEAD);
            assert!(!says(&asked.headers, b"no-store"), "{:?}", asked.headers);
            outcomes.looked += 1;
        }
        Intent::Pass(_) => {
            assert!(head.method.is_safe(), "an update would not be noticed");
            outcomes.passed += 1;
        }
        Intent::Update(_) => outcomes.updates += 1,
    }
    let announced = Route { writes: Writes::Announced, ..route.clone() };
    assert_eq!(request.key, Request::of(&head, true, &announced, &keys).key, "a page is the same whoever announces");

    let via = Via::new(Version::HTTP_11, "fuzzed").expect("invariant: a version and a name that can be told");
    let mut on = head.headers.clone();
    let hidden = for_origin(&mut on, request.intent, Conditions::Withheld, &route, Ipv4Addr::LOCALHOST.into(), &via);
    assert!(on.contains_key(VIA) && only_end_to_end(&on));
    assert!(request.intent != Intent::Look || !on.contains_key(IF_NONE_MATCH), "a fill must be whole");

    let Some((status, came)) = answer_head(&mut lines) else { return outcomes };
    let arrival = Arrival { status, headers: &came, at: SystemTime::UNIX_EPOCH, on_its_way: Duration::ZERO };
    match store(&request, &head, &route, &arrival) {
        Ok(stored) => {
            outcomes.stored += 1;
            assert!(head.method == Method::GET && !says(&came, b"no-store") && !says(&came, b"private"), "{came:?}");
            let shared = says(&came, b"public") || says(&came, b"s-maxage");
            assert!(request.credentials.is_none() || shared, "{:?}: {came:?}", head.headers);
            let varies = came.get_all(VARY).iter().flat_map(|line| line.as_bytes().split(|&byte| byte == b','));
            assert!(varies.map(<[u8]>::trim_ascii).all(|name| name != b"*"), "{came:?}");
            assert!(only_end_to_end(&stored.headers) && only_asks(&stored.headers));
            assert!(![AGE, EXPIRES, PRAGMA, SET_COOKIE].iter().any(|name| stored.headers.contains_key(name)));
            assert!(stored.lifetime.is_none_or(|lifetime| lifetime > Duration::ZERO));
            let variant = stored.variant.key(request.key, &head.headers, &route);
            assert_eq!(variant, stored.variant.key(request.key, &again.headers, &route));
            assert!(!stored.variant.is_plain() || variant == request.key);
            if answer(&head, status, &stored.headers) == Answer::NotModified {
                assert!(head.headers.contains_key(IF_NONE_MATCH) && status == StatusCode::OK);
                outcomes.not_modified += 1;
            }
        }
        Err(_) => outcomes.refused += 1,
    }
    let mut out = came.clone();
    for_client(&mut out, &hidden, crate::Mode::Coherent, &via);
    assert!(only_end_to_end(&out) && !out.contains_key(EXPIRES));
    assert!(says(&out, b"no-cache") || says(&out, b"no-store"), "{out:?}");
    for kept in [&b"no-store"[..], b"no-transform"] {
        assert!(!says(&came, kept) || says(&out, kept), "{came:?}: {out:?}");
    }
    assert!(!says(&came, b"private") || says(&out, b"private") || says(&out, b"no-store"), "{came:?}: {out:?}");
    outcomes
}

fn request_head<'a>(lines: &mut impl Iterator<Item = &'a [u8]>) -> Option<request::Parts> {
    let (method, target) = str::from_utf8(lines.next()?).ok()?.split_once(' ')?;
    let mut head = http::Request::builder().method(method).uri(target).body(()).ok()?.into_parts().0;
    head.headers = header_lines(lines);
    Some(head)
}

fn answer_head<'a>(lines: &mut impl Iterator<Item = &'a [u8]>) -> Option<(StatusCode, HeaderMap)> {
    let status = StatusCode::from_bytes(lines.next()?).ok()?;
    Some((status, header_lines(lines)))
}

fn only_asks(headers: &HeaderMap) -> bool {
    ["no-cache", "no-cache, no-transform"].contains(&headers[CACHE_CONTROL].to_str().unwrap_or_default())
}

/// Up to an empty line. What is no header line never gets past a server's or a client's own parser.
fn header_lines<'a>(lines: &mut impl Iterator<Item = &'a [u8]>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in lines.take_while(|line| !line.is_empty()) {
        let Some(colon) = line.iter().position(|&byte| byte == b':') else { continue };
        let name = HeaderName::from_bytes(&line[..colon]);
        let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii());
        if let (Ok(name), Ok(value)) = (name, value) {
            headers.append(name, value);
        }
    }
    headers
}

fn only_end_to_end(headers: &HeaderMap) -> bool {
    !["connection", "keep-alive", "proxy-authorization", "te", "transfer-encoding", "upgrade"]
        .iter()
        .any(|name| headers.contains_key(*name))
}

/// Whether a line of `Cache-Control` has the directive, after quoted strings are cut out. A quote that is never closed quotes nothing.
fn says(headers: &HeaderMap, directive: &[u8]) -> bool {
    headers.get_all(CACHE_CONTROL).iter().any(|line| {
        let mut plain = line.as_bytes().to_vec();
        while let Some((start, end)) = quoted(&plain) {
            plain.drain(start..=end);
        }
        let mut directives = plain.split(|&byte| byte == b',' || byte == b';');
        directives.any(|said| {
            let name = said.split(|&byte| byte == b'=').next().unwrap_or_default();
            name.trim_ascii().eq_ignore_ascii_case(directive)
        })
    })
}

/// Where the first quoted string begins and ends.
fn quoted(line: &[u8]) -> Option<(usize, usize)> {
    let start = line.iter().position(|&byte| byte == b'"')?;
    let mut at = start + 1;
    while let Some(&byte) = line.get(at) {
        match byte {
            b'"' => return Some((start, at)),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use verbena_terms::testing::corpus;

    use super::*;

    #[test]
    fn no_head_of_the_corpus_is_shared_that_must_not_be() {
        let inputs = corpus("http_head");
        let mut all = Outcomes::default();
        for input in &inputs {
            let one = http_head(input);
            all.unfit += one.unfit;
            all.looked += one.looked;
            all.passed += one.passed;
            all.updates += one.updates;
            all.stored += one.stored;
            all.refused += one.refused;
            all.not_modified += one.not_modified;
        }
        let Outcomes { unfit, looked, passed, updates, stored, refused, not_modified } = all;
        assert!(inputs.len() >= 12, "{} inputs", inputs.len());
        assert!(
            [unfit, looked, passed, updates, stored, refused, not_modified].iter().all(|count| *count >= 2),
            "{all:?}"
        );
    }
}
