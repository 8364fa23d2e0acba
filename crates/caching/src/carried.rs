//! Whether an answer that is to be stored for all clients carries the value of one client's cookie.
//!
//! The application is not shown an ignored cookie, and still its answer may carry the value: from the address, from another field, or from a cookie
//! that it sets. All values are looked for at once, as they came and with percent-encoding undone (Aho-Corasick), in the fields and then in the body as it grows.
//! Nothing is looked for where a request has no such cookie. A value that the application changes, and a body that it compresses, are not seen through.

use aho_corasick::AhoCorasick;
use http::HeaderMap;

/// The shortest value that is looked for, in bytes. Shorter ones (`1`, `de`, `dark`) are no secrets, and are in every page.
const SHORTEST: usize = 8;

/// Values that an answer must not carry, and how far its body was searched.
#[derive(Debug, Default)]
pub struct Carried {
    values: Option<AhoCorasick>,
    longest: usize,
    searched: usize,
}

impl Carried {
    pub(crate) fn of<'a>(values: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut all: Vec<Vec<u8>> = Vec::new();
        for value in values {
            let bare = value.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or(value);
            let decoded = percent_decoded(bare);
            all.extend([bare.to_vec(), decoded].into_iter().filter(|value| value.len() >= SHORTEST));
        }
        if all.is_empty() {
            return Carried::default();
        }
        all.sort_unstable();
        all.dedup();
        let longest = all.iter().map(Vec::len).max().unwrap_or_default();
        let values =
            AhoCorasick::new(&all).expect("invariant: a head has fewer bytes of cookies than there are states");
        Carried { values: Some(values), longest, searched: 0 }
    }

    /// Whether nothing is looked for.
    pub fn is_empty(&self) -> bool {
        self.values.is_none()
    }

    /// Whether one of them stands in the value of a field.
    pub fn is_in_fields(&self, headers: &HeaderMap) -> bool {
        self.values.as_ref().is_some_and(|values| headers.values().any(|value| values.is_match(value.as_bytes())))
    }

    /// Whether one of them stands in a body, of which more is here than when this was asked last.
    pub fn is_in_body(&mut self, body: &[u8]) -> bool {
        let Some(values) = &self.values else { return false };
        // One that began in what was searched ends behind it.
        let from = self.searched.saturating_sub(self.longest - 1);
        self.searched = body.len();
        values.is_match(&body[from..])
    }
}

fn percent_decoded(value: &[u8]) -> Vec<u8> {
    let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16)).map(|digit| digit as u8);
    let mut decoded = Vec::with_capacity(value.len());
    let mut at = 0;
    while let Some(byte) = value.get(at) {
        match (byte, digit(value.get(at + 1)), digit(value.get(at + 2))) {
            (b'%', Some(high), Some(low)) => {
                decoded.push(high << 4 | low);
                at += 3;
            }
            _ => {
                decoded.push(*byte);
                at += 1;
            }
        }
    }
    decoded
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(values: &[&str]) -> Carried {
        Carried::of(values.iter().map(|value| value.as_bytes()))
    }

    #[test]
    fn values_are_found_as_they_came_and_decoded() {
        for (value, body, is_in) in [
            ("abcdefg8", "<input value=abcdefg8>", true),
            ("\"abcdefg8\"", "abcdefg8", true),
            ("s%3Aabcdef%2f1", "token s:abcdef/1", true),
            ("s%3Aabcdef%2f1", "token s%3Aabcdef%2f1", true),
            ("s%3Aabcdef%2f1", "token s%3Aabcdef/1", false),
            ("100%", "100%", false),
            ("dark", "dark", false),
            ("abcdefg8", "abcdefg9", false),
        ] {
            assert_eq!(of(&[value]).is_in_body(body.as_bytes()), is_in, "{value} in {body}");
            assert_eq!(of(&["", "1", value]).is_in_body(body.as_bytes()), is_in, "{value} in {body}");
        }
        let mut headers = HeaderMap::new();
        headers.insert("location", "/?sid=abcdefg8".parse().unwrap());
        assert!(of(&["abcdefg8"]).is_in_fields(&headers) && !of(&["abcdefg9"]).is_in_fields(&headers));
        assert!(!of(&[]).is_in_fields(&headers));
    }

    proptest! {
        #[test]
        fn a_value_is_found_however_the_body_comes(
            before in "[ab]{0,40}", value in "[ab]{8,12}", behind in "[ab]{0,40}", other in "[ab]{8,20}",
            pieces in proptest::collection::vec(0_usize..30, 1..20),
        ) {
            let body = format!("{before}{value}{behind}");
            let found_in_pieces = |mut carried: Carried| {
                let mut here = 0;
                let mut is_found = false;
                for piece in pieces.iter().chain([&body.len()]) {
                    here = (here + piece).min(body.len());
                    is_found |= carried.is_in_body(&body.as_bytes()[..here]);
                }
                is_found
            };
            prop_assert!(found_in_pieces(of(&[&value])));
            prop_assert_eq!(found_in_pieces(of(&[&other])), body.contains(&other));
        }
    }
}
