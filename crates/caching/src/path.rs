//! The readings of a path: what different applications take one spelling for.
//!
//! Two spellings that RFC 3986 section 6.2.2 calls equivalent may be one page or two, as the application likes; a rule for a part of the
//! address space must hold for both, or `/%63art` would escape what is said of `/cart`. So paths are compared in these readings, and what
//! is forwarded, and what a page's key is made of, stays as it came.
//!
//! ```text
//!                 percent-encoded                     dot segments  the rest
//!   as spelled    letters, digits and -._~ decoded    stay          stays; the hexadecimal digits of %2f in capitals
//!   resolved      the same                            resolved      stays
//!   loose         all decoded                         resolved      \ is /, // is /, ;parameters left out, capitals small
//! ```
//!
//! The first two are what the RFC promises. The third is all that applications are known to add: decoding `%2F` before routing, serving `/CART`
//! and `/cart;jsessionid=1` as `/cart`.

use std::borrow::Cow;

/// A path, or a prefix of paths, in its readings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Readings<'a> {
    pub spelled: Cow<'a, [u8]>,
    pub resolved: Cow<'a, [u8]>,
    pub loose: Cow<'a, [u8]>,
}

impl<'a> Readings<'a> {
    /// Of a path. Most are the same in all readings, and cost no memory.
    pub fn of(path: &'a str) -> Self {
        let path = path.as_bytes();
        if is_plain(path) {
            return Readings { spelled: path.into(), resolved: path.into(), loose: path.into() };
        }
        let spelled = spelled(path);
        let resolved = resolved(&spelled);
        let loose = loose(path);
        Readings { spelled: spelled.into(), resolved: resolved.into(), loose: loose.into() }
    }

    /// Of the prefix of a rule: in the loose reading a last `/` asks for nothing, as many applications serve `/cart` as `/cart/`.
    pub fn of_prefix(prefix: &str) -> Readings<'static> {
        let Readings { spelled, resolved, loose } = Readings::of(prefix);
        let trimmed = match &*loose {
            [rest @ .., b'/'] if !rest.is_empty() => rest.to_vec(),
            whole => whole.to_vec(),
        };
        Readings { spelled: spelled.into_owned().into(), resolved: resolved.into_owned().into(), loose: trimmed.into() }
    }
}

/// Whether a path has one reading: no byte in it that a reading changes.
fn is_plain(path: &[u8]) -> bool {
    let mut before = 0;
    path.iter().all(|&byte| {
        let changes = match byte {
            b'%' | b'\\' | b';' | b'A'..=b'Z' | ..=b' ' | 0x7f.. => true,
            // A dot segment, or an empty one.
            b'.' | b'/' => before == b'/',
            _ => false,
        };
        before = byte;
        !changes
    })
}

fn spelled(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    for (byte, encoded) in decoded(path) {
        let unreserved = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        // A byte that no path may have means its encoding; a % that encodes nothing means itself.
        let foreign = byte <= b' ' || byte >= 0x7f;
        if (encoded && !unreserved) || foreign {
            out.extend_from_slice(format!("%{byte:02X}").as_bytes());
        } else {
            out.push(byte);
        }
    }
    out
}

/// RFC 3986 section 5.2.4. Empty segments are segments.
fn resolved(path: &[u8]) -> Vec<u8> {
    let mut segments: Vec<&[u8]> = Vec::new();
    let mut at_directory = false;
    for segment in path.strip_prefix(b"/").unwrap_or(path).split(|byte| *byte == b'/') {
        at_directory = matches!(segment, b"." | b"..");
        match segment {
            b"." => {}
            b".." => drop(segments.pop()),
            segment => segments.push(segment),
        }
    }
    if at_directory {
        segments.push(b"");
    }
    joined(&segments)
}

fn loose(path: &[u8]) -> Vec<u8> {
    let path: Vec<u8> = decoded(path).map(|(byte, _)| if byte == b'\\' { b'/' } else { byte }).collect();
    let mut segments: Vec<&[u8]> = Vec::new();
    for segment in path.split(|byte| *byte == b'/') {
        match segment.split(|byte| *byte == b';').next().unwrap_or_default() {
            b"" | b"." => {}
            b".." => drop(segments.pop()),
            segment => segments.push(segment),
        }
    }
    joined(&segments).to_ascii_lowercase()
}

fn joined(segments: &[&[u8]]) -> Vec<u8> {
    let mut path = vec![b'/'];
    path.extend_from_slice(&segments.join(&b'/'));
    path
}

/// The bytes of a path, and whether each was percent-encoded.
fn decoded(path: &[u8]) -> impl Iterator<Item = (u8, bool)> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let mut at = 0;
    std::iter::from_fn(move || {
        let byte = *path.get(at)?;
        let value = match path[at..] {
            [b'%', high, low, ..] => digit(high).zip(digit(low)).map(|(high, low)| (high * 16 + low) as u8),
            _ => None,
        };
        at += if value.is_some() { 3 } else { 1 };
        Some((value.unwrap_or(byte), value.is_some()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readings(path: &str) -> [String; 3] {
        let Readings { spelled, resolved, loose } = Readings::of(path);
        [spelled, resolved, loose].map(|reading| String::from_utf8(reading.into_owned()).unwrap())
    }

    #[test]
    fn each_reading_takes_its_own_liberties() {
        for (path, expected) in [
            ("/cart/1", ["/cart/1", "/cart/1", "/cart/1"]),
            ("/%63art/%2d%7E", ["/cart/-~", "/cart/-~", "/cart/-~"]),
            ("/a%2fb%3f", ["/a%2Fb%3F", "/a%2Fb%3F", "/a/b?"]),
            ("/a/../b/.", ["/a/../b/.", "/b/", "/b"]),
            ("/a/%2e%2E/b", ["/a/../b", "/b", "/b"]),
            ("/../b", ["/../b", "/b", "/b"]),
            ("//a//b/", ["//a//b/", "//a//b/", "/a/b"]),
            ("/A;x=1/b;y", ["/A;x=1/b;y", "/A;x=1/b;y", "/a/b"]),
            ("/a\\b%5Cc", ["/a\\b%5Cc", "/a\\b%5Cc", "/a/b/c"]),
            ("/%zz%4", ["/%zz%4", "/%zz%4", "/%zz%4"]),
            ("/caf\u{e9}", ["/caf%C3%A9", "/caf%C3%A9", "/caf\u{e9}"]),
            ("/caf%c3%a9", ["/caf%C3%A9", "/caf%C3%A9", "/caf\u{e9}"]),
            ("*", ["*", "*", "*"]),
        ] {
            assert_eq!(readings(path), expected, "{path}");
        }
        assert_eq!(&*Readings::of_prefix("/cart/").loose, b"/cart");
        assert_eq!(&*Readings::of_prefix("/").loose, b"/");
    }

    #[test]
    fn what_is_plain_would_not_be_changed() {
        for path in ["/", "/a/b.c/~d", "/a-b_c/1", "/a."] {
            assert!(is_plain(path.as_bytes()), "{path}");
            assert_eq!(spelled(path.as_bytes()), path.as_bytes());
            assert_eq!(resolved(path.as_bytes()), path.as_bytes());
            assert_eq!(loose(path.as_bytes()), path.as_bytes());
        }
    }
}
