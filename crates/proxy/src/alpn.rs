//! How ALPN calls the versions of HTTP (RFC 7301 section 6, RFC 9113 section 3.2), towards clients and towards applications.

pub(crate) const H2: &[u8] = b"h2";
pub(crate) const HTTP_1_1: &[u8] = b"http/1.1";
/// The better one first.
pub(crate) const BOTH: [&[u8]; 2] = [H2, HTTP_1_1];
