//! Answers that differ by request headers: `Vary` (RFC 9110 section 12.5.5, RFC 9111 section 4.1).

use std::hash::Hasher;

use http::header::{COOKIE, VARY};
use http::{HeaderMap, HeaderName};
use siphasher::sip128::{Hasher128, SipHasher13};

use crate::control::split_list;
use crate::cookies;
use crate::key::Key;
use crate::reason::Reason;
use crate::route::Cookies;

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

    /// Whether there is nothing to choose by.
    pub fn is_plain(&self) -> bool {
        self.names.is_empty()
    }

    /// The key of the answer for a request among those of a page.
    pub fn key(&self, page: Key, request: &HeaderMap, ignored: &Cookies) -> Key {
        if self.is_plain() { page } else { Variant::key_by(&self.names, page, request, ignored) }
    }

    /// The same for [`names`](Self::names) that were kept; there is one at least.
    pub fn key_by(names: &str, page: Key, request: &HeaderMap, ignored: &Cookies) -> Key {
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
                let seen = cookies::pairs(request).filter(|(name, _)| !ignored.ignores(name));
                seen.for_each(|(name, value)| {
                    part(name);
                    part(value);
                });
            } else {
                request.get_all(name).into_iter().for_each(|value| part(value.as_bytes().trim_ascii()));
            }
        }
        let hash = hash.finish128();
        Key(u128::from(hash.h1) << 64 | u128::from(hash.h2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    fn vary(line: &'static str) -> Result<Variant, Reason> {
        Variant::of(&headers(&[("vary", line)]))
    }

    #[test]
    fn requests_that_differ_in_a_named_header_get_other_answers() {
        let variant = vary("Accept-Language, accept-encoding,, Accept-Language").unwrap();
        let key = |pairs| variant.key(Key(1), &headers(pairs), &Cookies::default());
        let german = key(&[("accept-language", "de"), ("accept", "a")]);
        assert_eq!(german, key(&[("accept-language", "de"), ("accept", "b")]));
        assert_ne!(german, key(&[("accept-language", "en")]));
        assert_ne!(german, key(&[("accept-language", "de"), ("accept-encoding", "br")]));
        assert_ne!(german, key(&[("accept-encoding", "de")]));
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
    fn ignored_cookies_do_not_split() {
        let variant = vary("Cookie").unwrap();
        let ignored = Cookies { ignore: ["sid".to_string()].into(), ..Cookies::default() };
        let key = |line| variant.key(Key(1), &headers(&[("cookie", line)]), &ignored);
        assert_eq!(key("sid=1; lang=de"), key("lang=de; sid=2"));
        assert_ne!(key("lang=de"), key("lang=en"));
    }
}
