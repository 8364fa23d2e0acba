//! `Cache-Control`, read so that doubt means "do not share".
//!
//! Directive names are case-insensitive and may carry arguments (RFC 9111 section 5.2); a qualified `private="x"` or `no-store=...` is
//! taken as if it stood alone, which is what the RFC allows a cache that does not strip single fields. Directives that semicolons stand between
//! are taken for what their writer meant. A lifetime that cannot be read does not count, and the answer is stale at once
//! (section 4.2.1).

use std::time::Duration;

use http::HeaderMap;
use http::header::{CACHE_CONTROL, HeaderName};

/// Whether it is for caches in front of an application, or some of them (RFC 9213).
pub(crate) fn is_targeted(name: &HeaderName) -> bool {
    name == "surrogate-control" || name.as_str().ends_with("-cache-control")
}

/// The directives that matter here, of all `Cache-Control` lines of a message together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheControl {
    /// Not to be stored anywhere.
    pub no_store: bool,
    /// Not to be answered without asking.
    pub no_cache: bool,
    /// For one user.
    pub private: bool,
    /// For all clients, even if the request was authenticated.
    pub public: bool,
    /// Not to be used when it is stale.
    pub must_revalidate: bool,
    /// No cache or proxy on the way may change the body.
    pub no_transform: bool,
    /// A request that wants a stored answer or none.
    pub only_if_cached: bool,
    /// Not to be used by a shared cache when it is stale.
    pub proxy_revalidate: bool,
    /// To be stored only by a cache that knows what its status means, and then also if it says `no-store` (RFC 9111 section
    /// 5.2.2.3).
    pub must_understand: bool,
    /// Lifetime in seconds.
    pub max_age: Life,
    /// Lifetime in shared caches, in seconds.
    pub s_maxage: Life,
    /// How long after its lifetime it may be answered while it is fetched anew (RFC 5861 section 3).
    pub stale_while_revalidate: Option<Duration>,
    /// How long after its lifetime it may be answered if the origin fails (RFC 5861 section 4).
    pub stale_if_error: Option<Duration>,
    /// A request for an answer that stays fresh for at least this long (RFC 9111 section 5.2.1.3).
    pub min_fresh: Option<Duration>,
    /// A request that takes what is over since so long at most; for ever if it does not say how long (RFC 9111 section 5.2.1.2).
    pub max_stale: Option<Duration>,
    /// The message states its lifetime in a form that cannot be read.
    pub is_garbled: bool,
}

/// A lifetime that a message may state several times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Life {
    /// The shortest.
    pub least: Option<Duration>,
    /// The shortest that is not 0: 0 is no bound beside another one where each use is asked for.
    pub bound: Option<Duration>,
}

impl Life {
    fn add(&mut self, given: Duration) {
        self.least = Some(self.least.map_or(given, |before| before.min(given)));
        if !given.is_zero() {
            self.bound = Some(self.bound.map_or(given, |before| before.min(given)));
        }
    }
}

impl CacheControl {
    /// Of a message's headers.
    pub fn of(headers: &HeaderMap) -> Self {
        CacheControl::of_field(headers, &CACHE_CONTROL)
    }

    /// Of one field of a message that is written like it.
    pub(crate) fn of_field(headers: &HeaderMap, name: &HeaderName) -> Self {
        let mut control = CacheControl::default();
        control.read(headers, name);
        control
    }

    /// Of an answer's: with what is refused to caches in front of an application alone (RFC 9213 section 3.1, and the field that was there before it).
    /// Refusals are obeyed whichever cache they address; permissions are not taken from there, for they are not for a cache that validates.
    pub(crate) fn of_answer(headers: &HeaderMap) -> Self {
        let mut targeted = CacheControl::default();
        headers.keys().filter(|name| is_targeted(name)).for_each(|name| targeted.read(headers, name));
        let control = CacheControl::of(headers);
        CacheControl {
            no_store: control.no_store || targeted.no_store,
            private: control.private || targeted.private,
            no_transform: control.no_transform || targeted.no_transform,
            ..control
        }
    }

    fn read(&mut self, headers: &HeaderMap, name: &HeaderName) {
        for line in headers.get_all(name) {
            for element in split_list(line.as_bytes()) {
                let is_doubtful = split(element, b';').nth(1).is_some();
                split(element, b';').for_each(|directive| self.add(directive, is_doubtful));
            }
        }
    }

    /// One directive of a dictionary (RFC 9213 section 2.1).
    pub(crate) fn directive(&mut self, name: &str, argument: Option<&str>) {
        let written = argument.map_or_else(|| name.to_owned(), |argument| format!("{name}={argument}"));
        self.add(written.as_bytes(), false);
    }

    /// Adds one directive. Of a doubtful one, refusals and lifetimes are believed, and no permission.
    fn add(&mut self, directive: &[u8], is_doubtful: bool) {
        let (name, argument) = match directive.iter().position(|byte| *byte == b'=') {
            Some(at) => (directive[..at].trim_ascii(), Some(directive[at + 1..].trim_ascii())),
            None => (directive, None),
        };
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        if is("no-store") {
            self.no_store = true;
        } else if is("no-cache") {
            self.no_cache = true;
        } else if is("private") {
            self.private = true;
        } else if is("public") {
            self.public |= !is_doubtful;
        } else if is("must-revalidate") {
            self.must_revalidate = true;
        } else if is("proxy-revalidate") {
            self.proxy_revalidate = true;
        } else if is("must-understand") {
            self.must_understand = !is_doubtful;
        } else if is("stale-while-revalidate") {
            self.stale_while_revalidate = seconds(argument).filter(|_| !is_doubtful);
        } else if is("stale-if-error") {
            self.stale_if_error = seconds(argument).filter(|_| !is_doubtful);
        } else if is("min-fresh") {
            self.min_fresh = seconds(argument);
        } else if is("max-stale") {
            self.max_stale = argument.map_or(Some(Duration::MAX), |_| seconds(argument));
        } else if is("no-transform") {
            self.no_transform = true;
        } else if is("only-if-cached") {
            self.only_if_cached = true;
        } else if is("max-age") || is_doubtful && is("s-maxage") {
            match seconds(argument) {
                Some(life) => self.max_age.add(life),
                None => self.is_garbled = true,
            }
        } else if is("s-maxage") {
            match seconds(argument) {
                Some(life) => self.s_maxage.add(life),
                None => self.is_garbled = true,
            }
        }
        // Where a comma is missing.
        let words = directive.split(u8::is_ascii_whitespace).filter(|_| !directive.contains(&b'"'));
        for word in words {
            self.no_store |= word.eq_ignore_ascii_case(b"no-store");
            self.private |= word.eq_ignore_ascii_case(b"private");
        }
    }
}

/// The elements of a comma-separated list, commas inside quoted strings left alone, empty elements left out. A quote that is never
/// closed quotes nothing: what stands behind it may forbid to share.
pub(crate) fn split_list(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    split(line, b',')
}

fn split(line: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(line);
    let mut quotes_close = true;
    let elements = std::iter::from_fn(move || {
        let line = rest?;
        let end = element_end(line, separator, &mut quotes_close);
        rest = line.get(end + 1..);
        Some(&line[..end])
    });
    elements.map(<[u8]>::trim_ascii).filter(|element| !element.is_empty())
}

/// Where the first separator outside quotes is. `quotes_close` becomes false at a quote that is never closed; then none behind it is, and
/// looking again at each would take time that grows with the square of the line.
fn element_end(line: &[u8], separator: u8, quotes_close: &mut bool) -> usize {
    let mut at = 0;
    while let Some(&byte) = line.get(at) {
        at += match byte {
            byte if byte == separator => return at,
            b'"' if *quotes_close => quoted_bytes(&line[at..]).unwrap_or_else(|| {
                *quotes_close = false;
                1
            }),
            _ => 1,
        };
    }
    at
}

/// Length of the quoted string with which this begins, if it is closed.
fn quoted_bytes(line: &[u8]) -> Option<usize> {
    let mut at = 1;
    loop {
        match line.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// `None` for what is no number.
fn seconds(argument: Option<&[u8]>) -> Option<Duration> {
    let digits = argument.unwrap_or_default();
    let digits = digits.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or(digits);
    let number = std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    match number {
        // More than 2^31 seconds is for ever (RFC 9111 section 1.2.2).
        Some(text) if !text.is_empty() => Some(Duration::from_secs(text.parse::<u32>().unwrap_or(1 << 31).into())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(lines: &[&str]) -> CacheControl {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(CACHE_CONTROL, line.parse().unwrap());
        }
        CacheControl::of(&headers)
    }

    #[test]
    fn names_have_no_case_and_arguments_do_not_hide_them() {
        assert!(parsed(&["No-Store"]).no_store);
        assert!(parsed(&[r#"private="set-cookie, x-user", max-age=60"#]).private);
        let both = parsed(&["public", "S-MAXAGE=\"30\", max-age=60"]);
        assert!(both.public);
        assert_eq!(
            (both.s_maxage.least, both.max_age.least),
            (Some(Duration::from_secs(30)), Some(Duration::from_secs(60)))
        );
    }

    /// As a bound.
    fn life(life: Life) -> Option<Duration> {
        life.bound.or(life.least)
    }

    #[test]
    fn a_quoted_comma_hides_nothing_and_invents_nothing() {
        let control = parsed(&[r#"ext="a, no-store, \", private", max-age=5"#]);
        assert!(!control.no_store && !control.private);
        assert_eq!(control.max_age.least, Some(Duration::from_secs(5)));
    }

    #[test]
    fn a_quote_that_is_never_closed_hides_nothing() {
        for line in [r#"ext="a, no-store"#, r#"ext="\", ", private, no-store"#, r#"no-cache="x\", no-store"#] {
            assert!(parsed(&[line]).no_store, "{line}");
        }
        // Backslashes that each hide a quote: read in one pass, whatever their number.
        let long = format!("\"{} , no-store", "\\\"".repeat(200_000));
        assert!(parsed(&[&long]).no_store);
    }

    #[test]
    fn a_life_that_cannot_be_read_is_said_so_and_of_several_the_shortest_counts() {
        for line in ["max-age=soon", "max-age", "max-age=-1", "max-age=+5", "max-age=60.0", "s-maxage=1h, max-age=5"] {
            assert!(parsed(&[line]).is_garbled, "{line}");
        }
        let lives = |line| (parsed(&[line]).is_garbled, life(parsed(&[line]).max_age).map(|life| life.as_secs()));
        for line in
            ["max-age=60, max-age=0", "max-age=0, max-age=60", "max-age=60, max-age=90", "max-age=90;max-age=60"]
        {
            assert_eq!(lives(line), (false, Some(60)), "{line}");
        }
        assert_eq!(lives("max-age=0"), (false, Some(0)));
        assert_eq!(lives("max-age=99999999999"), (false, Some(1 << 31)));
    }

    #[test]
    fn semicolons_hide_nothing() {
        let control = parsed(&["private; max-age=5;no-store"]);
        assert!(control.private && control.no_store && control.max_age.least == Some(Duration::from_secs(5)));
        assert!(parsed(&[r#"private="a;b""#]).private);
        for line in
            [r#"no-cache="Set-Cookie"; no-store"#, r#"x="a; no-store"#, "max-age=9 no-store", "no-store max-age=9"]
        {
            assert!(parsed(&[line]).no_store, "{line}");
        }
        for line in [r#"public; private="x""#, "private max-age=0"] {
            assert!(parsed(&[line]).private, "{line}");
        }
        let doubtful = parsed(&["max-age=60; public; s-maxage=5"]);
        assert_eq!(
            (doubtful.public, doubtful.s_maxage.least, doubtful.max_age.least),
            (false, None, Some(Duration::from_secs(5)))
        );
    }
}
