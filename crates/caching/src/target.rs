//! Targets with bytes that no URI has and that clients send all the same: `"`, `<`, `>`, a back quote, bytes beyond ASCII.
//!
//! They are percent-encoded (RFC 3986 section 2.1), as browsers do, and then the target is one like all others. What was encoded already, and what a URI may have,
//! stays as it is. A target that is a URI as it came stays too: in a query a `"` may be either.

use std::borrow::Cow;

use http::Uri;

/// A byte that no URI has and that clients send all the same.
fn is_encoded(byte: u8) -> bool {
    matches!(byte, b'"' | b'<' | b'>' | b'`' | 0x80..)
}

/// Whether a target is no URI because of bytes that can be encoded. Once they are encoded, no such bytes are
/// left.
pub fn is_unencoded(target: &[u8]) -> bool {
    let has_control = target.iter().any(u8::is_ascii_control);
    !has_control && target.iter().any(|&byte| is_encoded(byte)) && Uri::try_from(target).is_err()
}

/// The target with the bytes encoded that no URI has.
pub fn encoded(target: &[u8]) -> Vec<u8> {
    let mut encoded = Vec::with_capacity(target.len() + 64);
    for &byte in target {
        if is_encoded(byte) {
            let digit = |value: u8| b"0123456789ABCDEF"[usize::from(value)];
            encoded.extend_from_slice(&[b'%', digit(byte >> 4), digit(byte & 15)]);
        } else {
            encoded.push(byte);
        }
    }
    encoded
}

/// An address, `http://HOST/PATH?QUERY`, with its target as the proxy reads it.
pub fn encoded_address(address: &str) -> Cow<'_, str> {
    let host = address.find("://").map_or(0, |at| at + 3);
    let at = address[host..].find(['/', '?', '#']).map_or(address.len(), |end| host + end);
    let (before, target) = address.split_at(at);
    if !is_unencoded(target.as_bytes()) {
        return address.into();
    }
    // ASCII bytes that were encoded leave no other than those of the text.
    let target = String::from_utf8_lossy(&encoded(target.as_bytes())).into_owned();
    format!("{before}{target}").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_encoded_where_it_is_no_uri_and_nowhere_else() {
        for (address, expected) in [
            ("http://shop/?q=<x>", "http://shop/?q=%3Cx%3E"),
            ("http://shop/a`b", "http://shop/a%60b"),
            ("http://shop/\"a\"?q=<\"ü>", "http://shop/%22a%22?q=%3C%22%C3%BC%3E"),
            ("http://shop/a%3Cb", "http://shop/a%3Cb"),
            ("http://shop", "http://shop"),
            ("http://sh<op/", "http://sh<op/"),
            ("/a<b", "/a%3Cb"),
            ("http://shop/a b<c>", "http://shop/a b%3Cc%3E"),
        ] {
            assert_eq!(encoded_address(address), expected, "{address}");
        }
        for address in ["http://shop/?q=<x>", "http://shop/a`b\"<ü>?`"] {
            assert!(encoded_address(address).parse::<Uri>().is_ok(), "{address}");
        }
    }
}
