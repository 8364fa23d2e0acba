//! Answers that differ by request headers: `Vary` (RFC 9110 section 12.5.5, RFC 9111 section 4.1).
//!
//! Values that mean the same are one value: clients spell what they accept in many ways, and each spelling would have a copy.
//!
//! ```text
//!   Accept-Encoding                             a set: codings in small letters with their weights, sorted
//!   Accept, Accept-Charset, Accept-Language     a list: lines joined, no space beside , ; and =, in small letters; the order stays
//!   others                                      lines as they are, without space around them
//! ```

use std::hash::Hasher;

use http::header::{ACCEPT, ACCEPT_CHARSET, ACCEPT_ENCODING, ACCEPT_LANGUAGE, COOKIE, VARY};
use http::{HeaderMap, HeaderName};
use siphasher::sip128::{Hasher128, SipHasher13};

use crate::control::split_list;
use crate::cookies;
use crate::key::Key;
use crate::reason::Reason;
use crate::route::Route;

/// Header names that one answer may vary by.
const MOST_NAMES: usize = 16;

/// Fields that the origin sees otherwise than they came here: each client has its own. Nothing could be matched by them.
const OURS: [&str; 2] = ["via", "x-forwarded-for"];

/// The request headers that choose between the answers of one page: their names, sorted, with commas between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Variant {
    names: Box<str>,
}

impl Variant {
    /// What an answer says that it varies by. `*` and nonsense are refused: nothing can be matched against them.
    pub fn of(answer: &HeaderMap) -> Result<Self, Reason> {
        let mut names = Vec::new();
        for name in answer.get_all(VARY).into_iter().flat_map(|line| split_list(line.as_bytes())) {
            // HeaderName refuses "*" too, as no token that it takes is named so.
            let name = HeaderName::from_bytes(name)
                .ok()
                .filter(|name| name != "*" && !OURS.contains(&name.as_str()))
                .ok_or(Reason::VaryAll)?;
            names.push(name);
        }
        names.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
        names.dedup();
        if names.len() > MOST_NAMES {
            return Err(Reason::VaryTooMuch);
        }
        Ok(Variant { names: names.iter().map(HeaderName::as_str).collect::<Vec<_>>().join(",").into() })
    }

    /// The names, with commas between them.
    pub fn names(&self) -> &str {
        &self.names
    }

    /// Whether the pages of this variant do not vary by any field.
    pub fn is_plain(&self) -> bool {
        self.names.is_empty()
    }

    /// The key of the answer for a request among those of a page.
    pub fn key(&self, page: Key, request: &HeaderMap, route: &Route) -> Key {
        if self.is_plain() { page } else { Variant::key_by(&self.names, page, request, route) }
    }

    /// The same for [`names`](Self::names) that were kept; there is one at least.
    pub fn key_by(names: &str, page: Key, request: &HeaderMap, route: &Route) -> Key {
        // The page's key is made under a secret, and so is what follows from it.
        let mut hash = SipHasher13::new();
        hash.write(&page.0.to_le_bytes());
        for name in names.split(',') {
            hash.write(name.as_bytes());
            hash.write_u8(b':');
            let mut part = |bytes: &[u8]| {
                hash.write_u64(bytes.len() as u64);
                hash.write(bytes);
            };
            if name == COOKIE {
                let seen = cookies::pairs(request).filter(|(name, _)| !route.cookies.ignores(name));
                seen.for_each(|(name, value)| {
                    part(name);
                    part(value);
                });
            } else if name == ACCEPT_ENCODING {
                // Where codings are made here the application is asked without it.
                if route.compress.is_empty() && request.contains_key(name) {
                    codings(request).iter().for_each(|coding| part(coding));
                    // None at all is another thing than no field (RFC 9110 section 12.5.3).
                    part(b"");
                }
            } else if name == ACCEPT_LANGUAGE && !route.languages.is_empty() {
                if let Some(language) = route.languages.chosen(request) {
                    part(language.as_bytes());
                }
            } else if [ACCEPT, ACCEPT_CHARSET, ACCEPT_LANGUAGE].iter().any(|list| list == name)
                && let Some(list) = list(request, name)
            {
                part(&list);
            } else {
                request.get_all(name).into_iter().for_each(|value| part(value.as_bytes().trim_ascii()));
            }
        }
        let hash = hash.finish128();
        Key(u128::from(hash.h1) << 64 | u128::from(hash.h2))
    }
}

/// What `Accept-Encoding` says, in one spelling: it has no order (RFC 9110 section 12.5.3).
fn codings(request: &HeaderMap) -> Vec<Vec<u8>> {
    let lines = request.get_all(ACCEPT_ENCODING).into_iter();
    let elements = lines.flat_map(|line| split_list(line.as_bytes()));
    let mut codings: Vec<Vec<u8>> = elements.map(|element| weighted(&bare(element))).collect();
    codings.sort_unstable();
    codings.dedup();
    codings
}

/// An element without a weight that says nothing: 1 is what it has without. `0.50` is `0.5`.
fn weighted(element: &[u8]) -> Vec<u8> {
    let weight = element.windows(3).position(|three| three == b";q=");
    let Some((coding, weight)) = weight.map(|at| element.split_at(at)) else { return element.to_vec() };
    let digits = &weight[3..];
    let is_number = !digits.is_empty() && digits.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.');
    let mut digits = digits.to_vec();
    if is_number && digits.contains(&b'.') {
        while digits.last() == Some(&b'0') {
            digits.pop();
        }
        digits.pop_if(|last| *last == b'.');
    }
    if digits == b"1" { coding.to_vec() } else { [coding, b";q=", &digits].concat() }
}

/// A list in one spelling. `None` if it has quotes, within which spaces and capitals may matter, or if the field is
/// missing.
fn list(request: &HeaderMap, name: &str) -> Option<Vec<u8>> {
    let lines: Vec<&[u8]> = request.get_all(name).into_iter().map(|line| line.as_bytes()).collect();
    if lines.is_empty() || lines.iter().any(|line| line.contains(&b'"')) {
        return None;
    }
    Some(lines.into_iter().flat_map(split_list).map(bare).collect::<Vec<_>>().join(&b','))
}

/// Without space beside `;` and `=`, and in lower case.
fn bare(element: &[u8]) -> Vec<u8> {
    let pairs = element.split(|byte| *byte == b';').map(|pair| {
        let sides = pair.splitn(2, |byte| *byte == b'=').map(|side| side.trim_ascii().to_ascii_lowercase());
        sides.collect::<Vec<_>>().join(&b'=')
    });
    pairs.collect::<Vec<_>>().join(&b';')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::Cookies;
    use crate::{Coding, Codings, Languages};

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    fn vary(line: &'static str) -> Result<Variant, Reason> {
        Variant::of(&headers(&[("vary", line)]))
    }

    #[test]
    fn requests_that_differ_in_a_named_header_get_other_answers() {
        let variant = vary("Accept-Language, accept-encoding,, Accept-Language").unwrap();
        let key = |pairs| variant.key(Key(1), &headers(pairs), &Route::default());
        let german = key(&[("accept-language", "de"), ("accept", "a")]);
        assert_eq!(german, key(&[("accept-language", "de"), ("accept", "b")]));
        assert_ne!(german, key(&[("accept-language", "en")]));
        assert_ne!(german, key(&[("accept-language", "de"), ("accept-encoding", "br")]));
        assert_ne!(german, key(&[("accept-encoding", "de")]));
    }

    #[test]
    fn values_that_mean_the_same_are_one() {
        let variant = vary("Accept-Encoding, Accept-Language, Accept, X-Other").unwrap();
        let key = |name: &'static str, value| variant.key(Key(1), &headers(&[(name, value)]), &Route::default());
        for (name, one, same, others) in [
            (
                "accept-encoding",
                "gzip, deflate, br",
                &["gzip,deflate,br", "br, GZIP ,, deflate", "gzip;q=1, deflate;q=1.000, br ; Q = 1."][..],
                &["gzip, deflate", "gzip, deflate, br;q=0", "gzip, deflate, br;q=0.5", "gzip, deflate, br, zstd", ""][..],
            ),
            (
                "accept-encoding",
                "br;q=0.5",
                &["br;q=0.50", "br; q=0.500"],
                &["br;q=0.05", "br", "br;q=half", "br;q=10"],
            ),
            ("accept-language", "de-DE, en;q=0.5", &["de-de,en; q=0.5"], &["en;q=0.5, de-de", "de-DE"]),
            (
                "accept",
                "text/html, */*;q=0.8",
                &["text/html,*/* ; q=0.8"],
                &["*/*;q=0.8, text/html", "text/html;a=\"B\""],
            ),
            ("x-other", "a, b", &[" a, b "], &["a,b", "A, b"]),
        ] {
            for same in same {
                assert_eq!(key(name, one), key(name, same), "{name}: {same}");
            }
            for other in others {
                assert_ne!(key(name, one), key(name, other), "{name}: {other}");
            }
        }
        let capitals = ["text/html;a=\"B\"", "text/html;a=\"b\"", "text/html; a=\"B\""];
        assert!(capitals[1..].iter().all(|other| key("accept", capitals[0]) != key("accept", other)));
        let none = variant.key(Key(1), &HeaderMap::new(), &Route::default());
        assert_ne!(none, key("accept-encoding", ""), "which accepts no coding");
    }

    #[test]
    fn a_star_matches_nothing() {
        assert_eq!(vary("*"), Err(Reason::VaryAll));
        assert_eq!(vary("accept, *"), Err(Reason::VaryAll));
        assert_eq!(vary("no spaces"), Err(Reason::VaryAll));
        assert_eq!(vary("accept, X-Forwarded-For"), Err(Reason::VaryAll), "the origin sees what no client sent");
        assert!(Variant::of(&HeaderMap::new()).unwrap().is_plain());
        let many = (0..17).map(|n| format!("x-{n}")).collect::<Vec<_>>().join(",");
        assert_eq!(vary(many.leak()), Err(Reason::VaryTooMuch));
    }

    #[test]
    fn what_is_made_or_chosen_here_does_not_split() {
        let variant = vary("Accept-Encoding, Accept-Language").unwrap();
        let route = Route {
            compress: Codings::of([Coding::Gzip]),
            languages: Languages::of(["de", "en"].map(String::from)),
            ..Route::default()
        };
        let key = |encoding, language| {
            let pairs = [("accept-encoding", encoding), ("accept-language", language)];
            variant.key(Key(1), &headers(&pairs), &route)
        };
        assert_eq!(key("gzip", "de-AT,de;q=0.9"), key("br, zstd", "de, en;q=0.5"));
        assert_ne!(key("gzip", "de"), key("gzip", "en"));
        assert_eq!(key("gzip", "fr"), variant.key(Key(1), &HeaderMap::new(), &route), "of which none is known");
    }

    #[test]
    fn ignored_cookies_do_not_split() {
        let variant = vary("Cookie").unwrap();
        let cookies = Cookies { ignore: ["sid"].into(), ..Cookies::default() };
        let ignored = Route { cookies, ..Route::default() };
        let key = |line| variant.key(Key(1), &headers(&[("cookie", line)]), &ignored);
        assert_eq!(key("sid=1; lang=de"), key("lang=de; sid=2"));
        assert_ne!(key("lang=de"), key("lang=en"));
    }
}
