//! The head of a request, if it is one that can be answered without hyper.
//!
//! Of all other requests only the place where their bytes end matters. It is known only if no two readers could see it differently: one length at
//! most, of digits, and nothing that changes what follows the head.
//!
//! A target may hold bytes that no URI has and that some clients send ([`encoded`]). Hyper knows no such target, so they are percent-encoded first.

use std::mem::MaybeUninit;
use std::ops::Range;

use bytes::BytesMut;
use http::header::HOST;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, request};
use verbena_caching::{encoded, is_unencoded};

/// Fields of a head; hyper refuses more.
const MOST_FIELDS: usize = 100;
/// Bytes of what memory is kept for the next head.
const MEMORY: usize = 8 << 10;

/// What a connection's bytes begin with.
#[expect(clippy::large_enum_variant, reason = "boxed, it would cost each hit an allocation")]
pub(crate) enum Head {
    /// A head that is not whole.
    Partial,
    /// The whole head of a GET or HEAD without a body, and nothing in it that is about the connection but `keep-alive`.
    Plain {
        head: request::Parts,
        /// Its length.
        bytes: usize,
    },
    /// A head whose target is to be encoded first: see [`encode_target`].
    Unencoded,
    /// Something else, for hyper.
    Other {
        /// Bytes of the request, its body included; `None` if the head does not determine them.
        bytes: Option<u64>,
    },
}

/// What one head after the other is parsed into. Each thread has one.
#[derive(Default)]
pub(crate) struct Memory {
    bytes: BytesMut,
    headers: HeaderMap,
}

impl Memory {
    /// Takes a head's map back: most heads have as many fields as the one before.
    pub fn takes_back(&mut self, mut headers: HeaderMap) {
        headers.clear();
        self.headers = headers;
    }
}

/// Fields that say something about the bytes behind a head, or about the connection.
enum Framing {
    No,
    KeepAlive,
    Length(u64),
    /// The head does not determine what follows.
    Unclear,
}

fn framing(name: &str, value: &[u8]) -> Framing {
    let is = |known: &str| name.eq_ignore_ascii_case(known);
    match name.len() {
        6 if is("expect") => Framing::Unclear,
        7 if is("upgrade") => Framing::Unclear,
        10 if is("connection") && value.eq_ignore_ascii_case(b"keep-alive") => Framing::KeepAlive,
        10 if is("connection") => Framing::Unclear,
        14 if is("content-length") => length(value).map_or(Framing::Unclear, Framing::Length),
        17 if is("transfer-encoding") => Framing::Unclear,
        _ => Framing::No,
    }
}

/// A length of digits alone. `None` for a length that no body has.
fn length(value: &[u8]) -> Option<u64> {
    let is_number = (1..=18).contains(&value.len()) && value.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(value).ok().filter(|_| is_number)?.parse().ok()
}

/// What the bytes begin with. There is one at least.
pub(crate) fn parse(bytes: &[u8], memory: &mut Memory) -> Head {
    match parse_encoded(bytes, memory) {
        Head::Other { .. } if target(bytes).is_some_and(|at| is_unencoded(&bytes[at])) => Head::Unencoded,
        head => head,
    }
}

/// Where the target of a request line of HTTP/1.1 is, if the bytes begin with one and nothing in the line but the target's bytes is unusual.
fn target(bytes: &[u8]) -> Option<Range<usize>> {
    let from = bytes.iter().position(|byte| !matches!(byte, b'\r' | b'\n'))?;
    let line = &bytes[from..from + bytes[from..].iter().position(|&byte| byte == b'\n')?];
    let method = line.iter().position(|&byte| byte == b' ')?;
    let target = line[method + 1..].iter().position(|&byte| byte == b' ')?;
    let is_method = method > 0 && line[..method].iter().all(u8::is_ascii_uppercase);
    let version = &line[method + 1 + target + 1..];
    let is_line = is_method && target > 0 && matches!(version, b"HTTP/1.1\r" | b"HTTP/1.1");
    is_line.then(|| from + method + 1..from + method + 1 + target)
}

/// The request with the bytes of its target encoded that no URI has. Nothing else of it changes.
pub(crate) fn encode_target(bytes: &[u8]) -> BytesMut {
    let at = target(bytes).unwrap_or_default();
    let mut whole = BytesMut::with_capacity(bytes.len() + 64);
    for part in [&bytes[..at.start], &encoded(&bytes[at.clone()]), &bytes[at.end..]] {
        whole.extend_from_slice(part);
    }
    whole
}

/// The same, of bytes whose target needs no encoding.
fn parse_encoded(bytes: &[u8], memory: &mut Memory) -> Head {
    const UNKNOWN: Head = Head::Other { bytes: None };
    let mut fields = [const { MaybeUninit::uninit() }; MOST_FIELDS];
    let mut parsed = httparse::Request::new(&mut []);
    let end = match parsed.parse_with_uninit_headers(bytes, &mut fields) {
        Ok(httparse::Status::Complete(end)) => end,
        Ok(httparse::Status::Partial) => return Head::Partial,
        Err(_) => return UNKNOWN,
    };
    let (Some(method), Some(target), Some(1)) = (parsed.method, parsed.path, parsed.version) else { return UNKNOWN };
    let (mut body, mut hosts) = (None, 0);
    for field in parsed.headers.iter() {
        match framing(field.name, field.value) {
            Framing::Unclear => return UNKNOWN,
            Framing::Length(length) => {
                if body.replace(length).is_some() {
                    return UNKNOWN;
                }
            }
            Framing::KeepAlive | Framing::No => {}
        }
        hosts += usize::from(field.name.eq_ignore_ascii_case(HOST.as_str()));
    }
    let whole = Head::Other { bytes: Some(end as u64 + body.unwrap_or(0)) };
    let method = match method {
        "GET" => Method::GET,
        "HEAD" => Method::HEAD,
        "CONNECT" => return UNKNOWN,
        _ => return whole,
    };
    if body.is_some() || hosts != 1 || !target.starts_with('/') {
        return whole;
    }
    match parts(method, target, &bytes[..end], parsed.headers, memory) {
        Some(head) => Head::Plain { head, bytes: end },
        None => UNKNOWN,
    }
}

/// The head as hyper would hand it on.
fn parts(
    method: Method,
    target: &str,
    bytes: &[u8],
    fields: &[httparse::Header<'_>],
    memory: &mut Memory,
) -> Option<request::Parts> {
    if memory.bytes.capacity() < bytes.len() {
        // The memory of heads that are gone is taken again.
        memory.bytes.reserve(bytes.len().max(MEMORY));
    }
    memory.bytes.extend_from_slice(bytes);
    let shared = memory.bytes.split().freeze();
    let part = |part: &[u8]| {
        let at = part.as_ptr() as usize - bytes.as_ptr() as usize;
        shared.slice(at..at + part.len())
    };
    let (mut head, ()) = Request::new(()).into_parts();
    head.method = method;
    head.uri = Uri::from_maybe_shared(part(target.as_bytes())).ok()?;
    head.headers = std::mem::take(&mut memory.headers);
    head.headers.reserve(fields.len());
    for field in fields {
        let name = HeaderName::from_bytes(field.name.as_bytes()).ok()?;
        // An empty value may point anywhere.
        let value = match field.value {
            [] => HeaderValue::from_static(""),
            value => HeaderValue::from_maybe_shared(part(value)).ok()?,
        };
        head.headers.append(name, value);
    }
    Some(head)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(bytes: &str) -> Head {
        parse(bytes.as_bytes(), &mut Memory::default())
    }

    #[test]
    fn a_plain_head_is_what_hyper_makes_of_it() {
        let mut memory = Memory::default();
        for _ in 0..2 {
            let text = "\r\nGET /a?b HTTP/1.1\r\nHost: shop\r\nAccept:  a \r\nX-Empty:\r\naccept: b\r\nConnection: Keep-Alive\r\n\r\n";
            let Head::Plain { head, bytes } = parse(format!("{text}GET").as_bytes(), &mut memory) else {
                panic!("it is plain")
            };
            assert_eq!((bytes, &head.method, head.uri.to_string().as_str()), (text.len(), &Method::GET, "/a?b"));
            let found: Vec<_> =
                head.headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
            let expected =
                [("host", "shop"), ("accept", "a"), ("accept", "b"), ("x-empty", ""), ("connection", "Keep-Alive")];
            assert_eq!(found, expected);
            memory.takes_back(head.headers);
        }
    }

    #[test]
    fn what_is_not_plain_ends_where_its_head_says_or_nobody_knows_where() {
        let head = |line: &str, fields: &str| format!("{line}\r\n{fields}\r\n");
        for (text, body) in [
            (head("POST / HTTP/1.1", "Host: a\r\nContent-Length: 5\r\n"), 5),
            (head("POST / HTTP/1.1", "Host: a\r\n"), 0),
            (head("GET / HTTP/1.1", "Host: a\r\nContent-Length: 5\r\n"), 5),
            (head("GET / HTTP/1.1", "Host: a\r\nContent-Length: 0\r\n"), 0),
            (head("GET / HTTP/1.1", "Host: a\r\nHost: b\r\n"), 0),
            (head("GET / HTTP/1.1", ""), 0),
            (head("GET http://a/ HTTP/1.1", "Host: a\r\n"), 0),
            (head("OPTIONS * HTTP/1.1", "Host: a\r\n"), 0),
        ] {
            let expected = Some(text.len() as u64 + body);
            assert!(matches!(parsed(&text), Head::Other { bytes } if bytes == expected), "{text}");
        }
        for text in [
            head("GET / HTTP/1.0", "Host: a\r\n"),
            head("GET / HTTP/1.2", "Host: a\r\n"),
            head("GET /", "Host: a\r\n"),
            head("CONNECT a:1 HTTP/1.1", "Host: a\r\n"),
            head("GET / HTTP/1.1", "Host: a\r\nConnection: close\r\n"),
            head("GET / HTTP/1.1", "Host: a\r\nConnection: keep-alive, x\r\n"),
            head("GET / HTTP/1.1", "Host: a\r\nUpgrade: h2c\r\n"),
            head("POST / HTTP/1.1", "Host: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n"),
            head("POST / HTTP/1.1", "Host: a\r\nTransfer-Encoding: chunked\r\n"),
            head("POST / HTTP/1.1", "Host: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n"),
            head("POST / HTTP/1.1", "Host: a\r\nContent-Length: 5\r\nContent-Length: 5\r\n"),
            head("POST / HTTP/1.1", "Host: a\r\nContent-Length: +5\r\n"),
            head("POST / HTTP/1.1", "Host: a\r\nContent-Length: 5, 5\r\n"),
            head("POST / HTTP/1.1", "Host: a\r\nContent-Length: 9999999999999999999\r\n"),
            head("GET / HTTP/1.1", "Host : a\r\n"),
            head("GET / HTTP/1.1", &"X: a\r\n".repeat(MOST_FIELDS + 1)),
            "\0".into(),
        ] {
            assert!(matches!(parsed(&text), Head::Other { bytes: None }), "{text}");
        }
        for text in ["G", "\r\n", "GET / HTTP/1.1\r\n", "GET / HTTP/1.1\r\nHost: a\r\n"] {
            assert!(matches!(parsed(text), Head::Partial), "{text}");
        }
    }
}
