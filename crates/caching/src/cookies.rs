//! Cookies, by name (RFC 6265 section 4.1 and 5.4).

use http::header::{COOKIE, SET_COOKIE};
use http::{HeaderMap, HeaderValue};

use crate::carried::Carried;
use crate::route::{Cookies, Route};

/// The cookies of a request, name and value, in order. A piece without `=` is a cookie with an empty name.
pub(crate) fn pairs(headers: &HeaderMap) -> impl Iterator<Item = (&[u8], &[u8])> {
    headers
        .get_all(COOKIE)
        .into_iter()
        .flat_map(|line| line.as_bytes().split(|byte| *byte == b';'))
        .map(<[u8]>::trim_ascii)
        .filter(|piece| !piece.is_empty())
        .map(|piece| match piece.iter().position(|byte| *byte == b'=') {
            Some(at) => (piece[..at].trim_ascii_end(), piece[at + 1..].trim_ascii_start()),
            None => (&b""[..], piece),
        })
}

/// Whether a request carries a cookie that the route neither ignores nor has in its key.
pub(crate) fn has_other(headers: &HeaderMap, cookies: &Cookies) -> bool {
    pairs(headers).any(|(name, _)| !cookies.knows(name))
}

/// Cookies that a client has and the application was not shown, name and value. It may take the client for a new one and set them anew.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hidden(Vec<(Vec<u8>, Vec<u8>)>);

impl Hidden {
    /// Whether an answer sets one of them: the application took the client for another one.
    pub fn is_set_by(&self, headers: &HeaderMap) -> bool {
        !self.0.is_empty() && headers.get_all(SET_COOKIE).into_iter().any(|line| self.is_of_one(line))
    }

    fn is_of_one(&self, line: &HeaderValue) -> bool {
        self.0.iter().any(|(name, _)| name == set_name(line))
    }

    /// The values, to be looked for in an answer, unless the route publishes such answers.
    pub fn carried(&self, route: &Route) -> Carried {
        match route.cookies.publish {
            true => Carried::default(),
            false => Carried::of(self.0.iter().map(|(_, value)| value.as_slice())),
        }
    }

    /// Takes what sets one of them off an answer: the client keeps its own.
    pub(crate) fn keep(&self, headers: &mut HeaderMap) {
        if !self.is_set_by(headers) {
            return;
        }
        let kept: Vec<_> =
            headers.get_all(SET_COOKIE).into_iter().filter(|line| !self.is_of_one(line)).cloned().collect();
        headers.remove(SET_COOKIE);
        for line in kept {
            headers.append(SET_COOKIE, line);
        }
    }
}

/// Leaves of the cookies of a request those that are in the key.
pub(crate) fn keep_those_in_key(headers: &mut HeaderMap, cookies: &Cookies) {
    let is_in_key = |name: &[u8]| cookies.key.iter().any(|known| known.as_bytes() == name);
    let kept = pairs(headers).filter(|(name, _)| is_in_key(name)).map(|(name, value)| [name, b"=", value].concat());
    let line = kept.collect::<Vec<_>>().join(&b"; "[..]);
    headers.remove(COOKIE);
    if let Some(line) = HeaderValue::from_bytes(&line).ok().filter(|line| !line.is_empty()) {
        headers.insert(COOKIE, line);
    }
}

/// Takes the ignored cookies off a request that goes to the origin for an answer to be shared: what the origin does not
/// see, its answer cannot depend on.
pub(crate) fn remove_ignored(headers: &mut HeaderMap, cookies: &Cookies) -> Hidden {
    if cookies.ignores_nothing() || !headers.contains_key(COOKIE) {
        return Hidden::default();
    }
    let hidden = pairs(headers)
        .filter(|(name, _)| cookies.ignores(name))
        .map(|(name, value)| (name.to_vec(), value.to_vec()))
        .collect();
    let kept = pairs(headers).filter(|(name, _)| !cookies.ignores(name)).fold(
        Vec::new(),
        |mut line: Vec<u8>, (name, value)| {
            if !line.is_empty() {
                line.extend_from_slice(b"; ");
            }
            if !name.is_empty() {
                line.extend_from_slice(name);
                line.push(b'=');
            }
            line.extend_from_slice(value);
            line
        },
    );
    headers.remove(COOKIE);
    if let (false, Ok(line)) = (kept.is_empty(), HeaderValue::from_bytes(&kept)) {
        headers.insert(COOKIE, line);
    }
    Hidden(hidden)
}

/// Whether an answer sets a cookie because of which it is not stored: any, but an ignored one where the route publishes such answers. What an
/// application that sets a session's cookie writes into the page (a token for its forms) is of that session.
pub(crate) fn sets_one(headers: &HeaderMap, cookies: &Cookies) -> bool {
    headers.get_all(SET_COOKIE).into_iter().any(|line| !cookies.publish || !cookies.ignores(set_name(line)))
}

fn set_name(line: &HeaderValue) -> &[u8] {
    line.as_bytes().split(|byte| matches!(byte, b'=' | b';')).next().unwrap_or_default().trim_ascii()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(line: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(COOKIE, line.parse().unwrap());
        headers
    }

    fn ignoring(names: &[&str]) -> Cookies {
        Cookies { ignore: names.iter().collect(), ..Cookies::default() }
    }

    #[test]
    fn ignored_cookies_leave_and_others_stay() {
        let mut headers = with("sid=1; lang=de ;; odd; _ga = x=y");
        assert!(has_other(&headers, &ignoring(&["sid"])));
        remove_ignored(&mut headers, &ignoring(&["sid", "_ga"]));
        assert_eq!(headers[COOKIE], "lang=de; odd");
        remove_ignored(&mut headers, &ignoring(&["lang", ""]));
        assert!(!headers.contains_key(COOKIE));
    }

    #[test]
    fn who_has_a_cookie_that_was_hidden_keeps_it() {
        let mut request = with("sid=1; lang=de");
        let hidden = remove_ignored(&mut request, &ignoring(&["sid", "_ga"]));
        let mut answer = HeaderMap::new();
        for line in ["sid=2; Path=/", "_ga=new", "sid2=3"] {
            answer.append(SET_COOKIE, line.parse().unwrap());
        }
        hidden.keep(&mut answer);
        let left: Vec<_> = answer.get_all(SET_COOKIE).into_iter().collect();
        assert_eq!(left, ["_ga=new", "sid2=3"], "what it had not may be set");
    }

    #[test]
    fn an_answer_that_sets_a_cookie_is_shared_only_if_that_is_ignored_and_published() {
        let mut headers = HeaderMap::new();
        headers.append(SET_COOKIE, "sid=2; Path=/; HttpOnly".parse().unwrap());
        let published = Cookies { publish: true, ..ignoring(&["sid"]) };
        assert!(sets_one(&headers, &ignoring(&["sid"])) && !sets_one(&headers, &published));
        headers.append(SET_COOKIE, "user=7".parse().unwrap());
        assert!(sets_one(&headers, &published));
    }
}
