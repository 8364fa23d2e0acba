//! Cookies, by name (RFC 6265 section 4.1 and 5.4).

use http::header::{COOKIE, SET_COOKIE};
use http::{HeaderMap, HeaderValue};

use crate::route::Cookies;

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

/// Takes the ignored cookies off a request that goes to the origin for an answer to be shared: what the origin does not
/// see, its answer cannot depend on.
pub(crate) fn remove_ignored(headers: &mut HeaderMap, cookies: &Cookies) {
    if cookies.ignore.is_empty() || !headers.contains_key(COOKIE) {
        return;
    }
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
}

/// Whether an answer sets a cookie that the route does not ignore.
pub(crate) fn sets_other(headers: &HeaderMap, cookies: &Cookies) -> bool {
    headers.get_all(SET_COOKIE).into_iter().any(|line| {
        let name = line.as_bytes().split(|byte| matches!(byte, b'=' | b';')).next().unwrap_or_default();
        !cookies.ignores(name.trim_ascii())
    })
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
        Cookies { ignore: names.iter().map(|name| name.to_string()).collect(), ..Cookies::default() }
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
    fn an_answer_that_sets_only_ignored_cookies_can_be_shared() {
        let mut headers = HeaderMap::new();
        headers.append(SET_COOKIE, "sid=2; Path=/; HttpOnly".parse().unwrap());
        assert!(!sets_other(&headers, &ignoring(&["sid"])));
        headers.append(SET_COOKIE, "user=7".parse().unwrap());
        assert!(sets_other(&headers, &ignoring(&["sid"])));
    }
}
