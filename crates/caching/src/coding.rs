//! Codings that a cache makes itself of what it has stored (RFC 9110 section 8.4): for which answers, for which requests, and under which head.
//!
//! Each coding of a page is a representation of its own, with a strong tag of its own: the origin's with [`SUFFIX`] and the coding's name before the last quote. So a
//! range, a condition or another cache never takes bytes of one for those of another.
//!
//! The compressed length tells something about the text. A page that has both a secret and text that another site chose, such as a search's, leaks the secret
//! one character at a time (BREACH). So nothing is coded for a request that identifies its client.

use std::fmt;
use std::hash::Hasher;

use http::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG,
    IF_NONE_MATCH, VARY,
};
use http::{HeaderMap, HeaderValue, StatusCode, request};
use serde::de::{Error, SeqAccess, Visitor, value::SeqAccessDeserializer};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use siphasher::sip128::{Hasher128, SipHasher13};

use crate::answer::has_tag;
use crate::control::{CacheControl, split_list};
use crate::cookies;
use crate::key::Key;
use crate::route::Cookies;

/// Bodies that are shorter gain less than their head takes.
pub const LEAST_CODED: usize = 512;

/// Between the origin's tag and the name of the coding: no origin's own suffix. The number is raised when an encoder makes other bytes of the same body.
const SUFFIX: &str = "~1";

/// Media types that shrink, beside all of `text/` and those that end in [`SHRINKING_SUFFIXES`].
const SHRINKING: [&str; 22] = [
    "application/dash+xml",
    "application/ecmascript",
    "application/graphql",
    "application/javascript",
    "application/json",
    "application/jsonl",
    "application/rtf",
    "application/sql",
    "application/toml",
    "application/vnd.apple.mpegurl",
    "application/vnd.ms-fontobject",
    "application/wasm",
    "application/x-javascript",
    "application/x-ndjson",
    "application/xml",
    "application/yaml",
    "font/otf",
    "font/ttf",
    "image/bmp",
    "image/vnd.microsoft.icon",
    "image/x-icon",
    "application/x-mpegurl",
];

/// Structured syntaxes that are text (RFC 6839).
const SHRINKING_SUFFIXES: [&str; 4] = ["+json", "+text", "+xml", "+yaml"];

/// Fields that say what bytes a body has. It would have others.
const DIGESTS: [&str; 5] = ["content-digest", "content-md5", "digest", "repr-digest", "signature-input"];

/// A coding that is made here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Coding {
    /// Brotli (RFC 7932).
    #[serde(rename = "br")]
    Brotli,
    /// Zstandard (RFC 8878).
    #[serde(rename = "zstd")]
    Zstd,
    /// gzip (RFC 1952).
    #[serde(rename = "gzip")]
    Gzip,
}

impl Coding {
    /// All, the one first that makes pages smallest.
    pub const ALL: [Coding; 3] = [Coding::Brotli, Coding::Zstd, Coding::Gzip];

    /// Its name in `Content-Encoding`.
    pub const fn name(self) -> &'static str {
        match self {
            Coding::Brotli => "br",
            Coding::Zstd => "zstd",
            Coding::Gzip => "gzip",
        }
    }

    /// Under which a page is kept in this coding that is kept under `page`.
    pub fn key(self, page: Key) -> Key {
        // The page's key is made under a secret, and so is what follows from it.
        let mut hash = SipHasher13::new();
        hash.write(&page.0.to_le_bytes());
        hash.write(b"coding ");
        hash.write(self.name().as_bytes());
        let hash = hash.finish128();
        Key(u128::from(hash.h1) << 64 | u128::from(hash.h2))
    }

    /// The strong tag of a page in this coding. `None` if that of the page is not strong.
    pub fn tag(self, page: &HeaderValue) -> Option<HeaderValue> {
        let bare = page.as_bytes().strip_prefix(b"\"")?.strip_suffix(b"\"")?;
        let tag = [b"\"", bare, SUFFIX.as_bytes(), self.name().as_bytes(), b"\""].concat();
        HeaderValue::from_maybe_shared(bytes::Bytes::from(tag)).ok()
    }

    /// Makes the head of a page that of the page in this coding, whose body has `bytes` bytes.
    pub fn head(self, headers: &mut HeaderMap, bytes: usize) {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static(self.name()));
        headers.insert(CONTENT_LENGTH, HeaderValue::from(bytes));
        if let Some(tag) = headers.get(ETAG).and_then(|tag| self.tag(tag)) {
            headers.insert(ETAG, tag);
        }
    }
}

/// The codings of a route, the preferred one first. None: nothing is coded here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Codings(Vec<Coding>);

impl Codings {
    /// These.
    pub fn of(codings: impl IntoIterator<Item = Coding>) -> Self {
        Codings(codings.into_iter().collect())
    }

    /// Whether the set has no coding.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One that stands there twice.
    pub fn repeated(&self) -> Option<Coding> {
        let repeated = |(at, coding): (usize, &Coding)| self.0[..at].contains(coding).then_some(*coding);
        self.0.iter().enumerate().find_map(repeated)
    }

    /// Those that are in both, in the order of the first.
    pub(crate) fn and(&self, other: &Codings) -> Codings {
        Codings(self.0.iter().copied().filter(|coding| other.0.contains(coding)).collect())
    }

    /// The one that a request accepts best (RFC 9110 section 12.5.3); of equal weight the one that the route names first. `None`: the page as it is.
    pub fn accepted(&self, head: &request::Parts, cookies: &Cookies) -> Option<Coding> {
        if self.is_empty() || says_who_asks(head, cookies) {
            return None;
        }
        let accepted = Accepted::of(&head.headers);
        let weights = self.0.iter().map(|coding| (accepted.weight_of(*coding), *coding));
        // Of equals the first.
        let (weight, best) = weights.rev().max_by_key(|(weight, _)| *weight)?;
        (weight > 0 && weight >= accepted.identity.unwrap_or(0)).then_some(best)
    }

    /// The tag of the page in a coding that the request accepts, if its client has it already: then it has what it would be sent, whether or not that is made here yet.
    pub fn tag_held(
        &self,
        head: &request::Parts,
        page: Option<&HeaderValue>,
        cookies: &Cookies,
    ) -> Option<HeaderValue> {
        let conditions = head.headers.get_all(IF_NONE_MATCH);
        let may_be = conditions
            .into_iter()
            .any(|line| line.as_bytes().windows(SUFFIX.len()).any(|part| part == SUFFIX.as_bytes()));
        if !may_be {
            return None;
        }
        let tag = self.accepted(head, cookies)?.tag(page?)?;
        has_tag(head, tag.as_bytes()).then_some(tag)
    }
}

/// In a configuration: `true` for all, `false` for none, or a list.
impl<'de> Deserialize<'de> for Codings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Said;
        impl<'de> Visitor<'de> for Said {
            type Value = Codings;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("true, false, or a list of \"br\", \"zstd\" and \"gzip\"")
            }

            fn visit_bool<E: Error>(self, all: bool) -> Result<Codings, E> {
                Ok(if all { Codings::of(Coding::ALL) } else { Codings::default() })
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Codings, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(list)).map(Codings)
            }
        }
        deserializer.deserialize_any(Said)
    }
}

impl Serialize for Codings {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

/// Whether an answer with this head and a body of `bytes` bytes may be coded: its type shrinks, it is not coded yet, and nothing
/// forbids it.
pub fn may_be_coded(status: StatusCode, headers: &HeaderMap, bytes: usize) -> bool {
    let has_page = status.is_success() || status.is_client_error();
    has_page
        && status != StatusCode::PARTIAL_CONTENT
        && bytes >= LEAST_CODED
        && shrinks(headers)
        && !headers.contains_key(CONTENT_ENCODING)
        && !headers.contains_key(CONTENT_RANGE)
        && !DIGESTS.iter().any(|name| headers.contains_key(*name))
        && !(headers.contains_key(CACHE_CONTROL) && CacheControl::of_answer(headers).no_transform)
}

/// Says in the head of an answer that another request may get it in another coding.
pub fn varies_by_coding(headers: &mut HeaderMap) {
    let is_said = |name: &[u8]| name == b"*" || name.eq_ignore_ascii_case(ACCEPT_ENCODING.as_str().as_bytes());
    if !headers.get_all(VARY).into_iter().flat_map(|line| split_list(line.as_bytes())).any(is_said) {
        headers.append(VARY, HeaderValue::from_static("Accept-Encoding"));
    }
}

fn shrinks(headers: &HeaderMap) -> bool {
    let Some(media) = headers.get(CONTENT_TYPE).and_then(|media| media.to_str().ok()) else { return false };
    let media = media.split(';').next().unwrap_or_default().trim();
    let begins = |with: &str| media.get(..with.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(with));
    let ends = |with: &&str| {
        let at = media.len().checked_sub(with.len());
        at.and_then(|at| media.get(at..)).is_some_and(|end| end.eq_ignore_ascii_case(with))
    };
    begins("text/")
        || SHRINKING.iter().any(|known| known.eq_ignore_ascii_case(media))
        || SHRINKING_SUFFIXES.iter().any(ends)
}

/// Whether a request identifies its client: by a cookie that the route does not ignore, or otherwise.
fn says_who_asks(head: &request::Parts, cookies: &Cookies) -> bool {
    head.headers.contains_key(AUTHORIZATION) || cookies::pairs(&head.headers).any(|(name, _)| !cookies.ignores(name))
}

/// What `Accept-Encoding` says of each coding, in thousandths. What it cannot be read as is not accepted.
#[derive(Default)]
struct Accepted {
    named: [Option<u16>; Coding::ALL.len()],
    others: Option<u16>,
    identity: Option<u16>,
}

impl Accepted {
    fn of(headers: &HeaderMap) -> Self {
        let mut accepted = Accepted::default();
        for element in headers.get_all(ACCEPT_ENCODING).into_iter().flat_map(|line| split_list(line.as_bytes())) {
            let mut parts = element.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
            let name = parts.next().unwrap_or_default();
            let weight = parts.next().map_or(1000, weight);
            let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
            let said = match Coding::ALL.iter().position(|coding| is(coding.name())) {
                Some(at) => &mut accepted.named[at],
                None if is("x-gzip") => &mut accepted.named[Coding::Gzip as usize],
                None if is("*") => &mut accepted.others,
                None if is("identity") => &mut accepted.identity,
                None => continue,
            };
            // Named twice, the more careful counts.
            *said = Some(said.map_or(weight, |before| before.min(weight)));
        }
        accepted
    }

    fn weight_of(&self, coding: Coding) -> u16 {
        self.named[coding as usize].or(self.others).unwrap_or(0)
    }
}

/// `q=0.5` in thousandths (RFC 9110 section 12.4.2). 0 for anything else.
pub(crate) fn weight(parameter: &[u8]) -> u16 {
    let value = parameter.split_at_checked(1).filter(|(name, _)| name.eq_ignore_ascii_case(b"q"));
    let value = value.and_then(|(_, value)| value.trim_ascii_start().strip_prefix(b"=")).map(<[u8]>::trim_ascii);
    let Some((whole, fraction)) = value.map(|value| {
        let (whole, rest) = value.split_at(value.len().min(1));
        (whole, rest.strip_prefix(b".").unwrap_or(rest))
    }) else {
        return 0;
    };
    if fraction.len() > 3 || !fraction.iter().all(u8::is_ascii_digit) {
        return 0;
    }
    let thousandths = (0..3).fold(0, |sum, at| sum * 10 + fraction.get(at).map_or(0, |digit| u16::from(digit - b'0')));
    match whole {
        b"0" => thousandths,
        b"1" if thousandths == 0 => 1000,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn request(lines: &[(&str, &str)]) -> request::Parts {
        let builder = lines.iter().fold(Request::get("/"), |builder, (name, value)| builder.header(*name, *value));
        builder.body(()).unwrap().into_parts().0
    }

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        let value = |value: &str| value.parse().unwrap();
        lines.iter().map(|(name, said)| (http::HeaderName::from_static(name), value(said))).collect()
    }

    #[test]
    fn the_best_that_a_request_accepts_is_chosen_however_it_is_spelled() {
        let all = Codings::of(Coding::ALL);
        let chosen = |line: &str| all.accepted(&request(&[("accept-encoding", line)]), &Cookies::default());
        for (line, expected) in [
            ("gzip, deflate, br, zstd", Some(Coding::Brotli)),
            ("br,gzip", Some(Coding::Brotli)),
            ("gzip,br", Some(Coding::Brotli)),
            ("GZIP", Some(Coding::Gzip)),
            ("x-gzip", Some(Coding::Gzip)),
            ("br;q=0.5, gzip", Some(Coding::Gzip)),
            ("br ; Q = 0.501 , zstd;q=0.50", Some(Coding::Brotli)),
            ("br;q=0, *", Some(Coding::Zstd)),
            ("*;q=0", None),
            ("gzip;q=0", None),
            ("identity, gzip;q=0.5", None),
            ("identity;q=0.5, gzip;q=0.5", Some(Coding::Gzip)),
            ("gzip;q=half", None),
            ("gzip;q=1.001", None),
            ("gzip;q=2", None),
            ("gzip, gzip;q=0", None),
            ("deflate", None),
            ("", None),
        ] {
            assert_eq!(chosen(line), expected, "{line}");
        }
        let two = [("accept-encoding", "gzip;q=0.1"), ("accept-encoding", "br;q=0.2")];
        assert_eq!(all.accepted(&request(&two), &Cookies::default()), Some(Coding::Brotli), "two lines are one list");
        let plain = request(&[]);
        assert_eq!(all.accepted(&plain, &Cookies::default()), None);
        let accepts = request(&[("accept-encoding", "gzip, br")]);
        assert_eq!(
            Codings::of([Coding::Gzip, Coding::Brotli]).accepted(&accepts, &Cookies::default()),
            Some(Coding::Gzip)
        );
        assert_eq!(Codings::default().accepted(&accepts, &Cookies::default()), None);
    }

    #[test]
    fn nothing_is_coded_for_a_request_that_says_who_asks() {
        let gzip = Codings::of([Coding::Gzip]);
        let route = Cookies { ignore: ["_ga"].into(), key: ["lang".into()].into(), ..Cookies::default() };
        for (line, is_coded) in [
            (("cookie", "_ga=1"), true),
            (("cookie", "lang=de"), false),
            (("cookie", "_ga=1; sid=2"), false),
            (("authorization", "Basic eDp5"), false),
        ] {
            let head = request(&[("accept-encoding", "gzip"), line]);
            assert_eq!(gzip.accepted(&head, &route).is_some(), is_coded, "{line:?}");
        }
    }

    #[test]
    fn what_does_not_shrink_is_coded_or_must_stay_as_it_is_is_left_alone() {
        let may = |lines: &[(&'static str, &str)]| may_be_coded(StatusCode::OK, &headers(lines), LEAST_CODED);
        for media in
            ["text/html; charset=utf-8", "Text/CSS", "application/json", "image/svg+xml", "application/ld+JSON"]
        {
            assert!(may(&[("content-type", media)]), "{media}");
        }
        for media in ["image/png", "video/mp4", "application/zip", "application/octet-stream", "font/woff2", "xml", ""]
        {
            assert!(!may(&[("content-type", media)]), "{media}");
        }
        let html = ("content-type", "text/html");
        for other in [
            ("content-encoding", "gzip"),
            ("cache-control", "max-age=1, no-transform"),
            ("content-digest", "sha-256=:YQ==:"),
            ("content-range", "bytes 0-1/2"),
        ] {
            assert!(!may(&[html, other]), "{other:?}");
        }
        assert!(may(&[html, ("cache-control", "max-age=1")]) && !may(&[]));
        let html = headers(&[html]);
        assert!(!may_be_coded(StatusCode::OK, &html, LEAST_CODED - 1));
        assert!(!may_be_coded(StatusCode::PARTIAL_CONTENT, &html, LEAST_CODED));
        assert!(!may_be_coded(StatusCode::FOUND, &html, LEAST_CODED));
        assert!(may_be_coded(StatusCode::NOT_FOUND, &html, LEAST_CODED));
    }

    #[test]
    fn a_coded_page_has_a_tag_of_its_own_and_who_has_it_is_known() {
        let mut coded = headers(&[("etag", "\"a\""), ("content-length", "9"), ("content-type", "text/html")]);
        Coding::Gzip.head(&mut coded, 7);
        let own = [("content-encoding", "gzip"), ("content-length", "7"), ("etag", "\"a~1gzip\"")];
        assert!(own.iter().all(|(name, value)| coded[*name] == *value), "{coded:?}");
        let mut weak = headers(&[("etag", "W/\"a\"")]);
        Coding::Gzip.head(&mut weak, 7);
        assert_eq!(weak["etag"], "W/\"a\"", "which says no more than that it means the same");
        let (all, page) = (Codings::of(Coding::ALL), HeaderValue::from_static("\"a\""));
        let held = |accepts: &str, has: &str| {
            let head = request(&[("accept-encoding", accepts), ("if-none-match", has)]);
            all.tag_held(&head, Some(&page), &Cookies::default())
        };
        assert_eq!(held("gzip", "\"x\", \"a~1gzip\""), Some(coded["etag"].clone()));
        for (accepts, has) in [("br", "\"a~1gzip\""), ("gzip", "\"a\""), ("gzip", "\"b~1gzip\""), ("", "\"a~1gzip\"")] {
            assert_eq!(held(accepts, has), None, "{accepts} {has}");
        }
        assert_ne!(Coding::Gzip.key(Key(1)), Coding::Brotli.key(Key(1)));
        assert_ne!(Coding::Gzip.key(Key(1)), Coding::Gzip.key(Key(2)));
    }

    #[test]
    fn vary_names_it_once() {
        for (before, after) in [
            (&[][..], "Accept-Encoding"),
            (&[("vary", "accept-encoding, x")], "accept-encoding, x"),
            (&[("vary", "*")], "*"),
        ] {
            let mut headers = headers(before);
            varies_by_coding(&mut headers);
            let lines: Vec<_> = headers.get_all(VARY).into_iter().collect();
            assert_eq!(lines, [after]);
        }
    }
}
