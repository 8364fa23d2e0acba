//! Requests that two readers could take for different ones, over either version, before an application that records every byte: it gets one request or none.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::scene::visitor::{CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, RST_STREAM, block};
use crate::scene::{Client, Scene, Site, Visitor};

/// An application that records what it gets, connection by connection, and answers whatever looks like a request.
struct Recorder {
    address: SocketAddr,
    got: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Recorder {
    fn start() -> Recorder {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let got = Arc::new(Mutex::new(Vec::<Vec<u8>>::new()));
        let all = got.clone();
        std::thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                let all = all.clone();
                std::thread::spawn(move || {
                    let at = {
                        let mut all = all.lock();
                        all.push(Vec::new());
                        all.len() - 1
                    };
                    let mut buffer = [0; 65536];
                    while let Ok(read @ 1..) = stream.read(&mut buffer) {
                        all.lock()[at].extend_from_slice(&buffer[..read]);
                        let answer = "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Length: 2\r\n\r\nok";
                        if stream.write_all(answer.as_bytes()).is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Recorder { address, got }
    }

    /// Takes what came, and checks that it is one request at most, for nothing but what was asked, and nothing behind its end.
    #[track_caller]
    fn got_one_at_most(&self, what: &str) {
        let got: Vec<Vec<u8>> = std::mem::take(&mut *self.got.lock());
        let got: Vec<Vec<u8>> = got.into_iter().filter(|bytes| !bytes.is_empty()).collect();
        assert!(got.len() <= 1, "{what}: {} connections", got.len());
        for bytes in got {
            let text = bytes.escape_ascii().to_string();
            let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or_else(|| panic!("{what}: {text}"));
            let head = std::str::from_utf8(&bytes[..end]).unwrap().to_lowercase();
            assert!(!head.contains("smuggled"), "{what}: {text}");
            let lines: Vec<&str> = head.split("\r\n").skip(1).collect();
            assert!(
                lines.iter().all(|line| line.contains(':') && !line.contains(['\r', '\n', '\0'])),
                "{what}: {text}"
            );
            let framing: Vec<&&str> = lines
                .iter()
                .filter(|line| line.starts_with("content-length:") || line.starts_with("transfer-encoding:"))
                .collect();
            let behind = &bytes[end + 4..];
            let is_one = match framing[..] {
                [] => behind.is_empty(),
                [&"transfer-encoding: chunked"] => ends_once(behind),
                [line] => {
                    let length = line.strip_prefix("content-length: ").and_then(|length| length.parse::<usize>().ok());
                    length.is_some_and(|length| behind.len() <= length)
                }
                _ => false,
            };
            assert!(is_one, "{what}: {text}");
        }
    }
}

/// Whether these are chunks, and nothing behind the last; the rest may be missing.
fn ends_once(mut bytes: &[u8]) -> bool {
    loop {
        let Some(line) = bytes.windows(2).position(|two| two == b"\r\n") else { return bytes.len() < 20 };
        let size = std::str::from_utf8(&bytes[..line]).ok().and_then(|size| usize::from_str_radix(size, 16).ok());
        let Some(size) = size else { return false };
        bytes = &bytes[line + 2..];
        if size == 0 {
            return bytes.len() <= 2;
        }
        if bytes.len() < size + 2 {
            return true;
        }
        bytes = &bytes[size + 2..];
    }
}

/// A proxy before a recorder, with TLS or without.
fn scene(recorder: &Recorder, site: Option<&Site>) -> Scene {
    Scene::with(|config| {
        config.origin = vec![format!("http://{}", recorder.address)];
        // Some of these wait for a body that does not come.
        config.client_timeout.0 = Duration::from_millis(300);
        if let Some(site) = site {
            let pair = site.issues("site", &["shop"]);
            (config.tls_cert, config.tls_key) = (vec![pair.0], vec![pair.1]);
        }
    })
}

/// A request hidden in what follows, for a reader that ends the first one sooner.
const HIDDEN: &str = "GET /smuggled HTTP/1.1\r\nHost: shop\r\n\r\n";

#[test]
fn over_http1_there_is_one_request_or_none() {
    let recorder = Recorder::start();
    let scene = scene(&recorder, None);
    let length = HIDDEN.len();
    let chunk = format!("{length:x}\r\n{HIDDEN}\r\n0\r\n\r\n");
    let head = |lines: &str| format!("POST / HTTP/1.1\r\nHost: shop\r\n{lines}\r\n");
    let cases: Vec<(String, String)> = [
        // Lengths that differ, or are none.
        (format!("Content-Length: {length}\r\nContent-Length: 0\r\n"), HIDDEN),
        (format!("Content-Length: 0\r\nContent-Length: {length}\r\n"), HIDDEN),
        (format!("Content-Length: {length}, 0\r\n"), HIDDEN),
        (format!("Content-Length: +{length}\r\n"), HIDDEN),
        (format!("Content-Length: -{length}\r\n"), HIDDEN),
        (format!("Content-Length: 0x{length:x}\r\n"), HIDDEN),
        (format!("Content-Length: {length} 0\r\n"), HIDDEN),
        ("Content-Length: 18446744073709551616\r\n".into(), HIDDEN),
        ("Content-Length: \r\n".into(), HIDDEN),
        (format!("Content-Length : {length}\r\n"), HIDDEN),
        (format!(" Content-Length: {length}\r\n"), HIDDEN),
        (format!("X: y\r\n Content-Length: {length}\r\n"), HIDDEN),
        (format!("Content_Length: {length}\r\nContent-Length: {length}\r\n"), HIDDEN),
        (format!("Content-Length\0: {length}\r\n"), HIDDEN),
        (format!("Content-Length:\x0b{length}\r\n"), HIDDEN),
        // Codings that are not the one, or hidden.
        ("Transfer-Encoding: xchunked\r\n".into(), HIDDEN),
        ("Transfer-Encoding: chunked, identity\r\n".into(), HIDDEN),
        ("Transfer-Encoding: identity\r\n".into(), HIDDEN),
        ("Transfer-Encoding: gzip, chunked\r\n".into(), &chunk),
        ("Transfer-Encoding: chunked, chunked\r\n".into(), &chunk),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip\r\n".into(), &chunk),
        ("Transfer-Encoding:\x0bchunked\r\n".into(), &chunk),
        ("Transfer-Encoding : chunked\r\n".into(), &chunk),
        (" Transfer-Encoding: chunked\r\n".into(), &chunk),
        ("X: y\r\n Transfer-Encoding: chunked\r\n".into(), &chunk),
        ("Transfer-Encoding: \"chunked\"\r\n".into(), &chunk),
        ("Transfer-Encoding: chunked;q=1\r\n".into(), &chunk),
        ("Transfer-Encoding:\r\n chunked\r\n".into(), &chunk),
        ("Transfer-Encoding: chunked\r\nContent-Length: 3, 4\r\n".into(), &chunk),
        ("Transfer-Encoding: chunked\r\nContent-Length: x\r\n".into(), &chunk),
        // Chunks that are none.
        ("Transfer-Encoding: chunked\r\n".into(), "0x0\r\n\r\n"),
        ("Transfer-Encoding: chunked\r\n".into(), "-1\r\n\r\n"),
        ("Transfer-Encoding: chunked\r\n".into(), "10000000000000000\r\nx\r\n0\r\n\r\n"),
        ("Transfer-Encoding: chunked\r\n".into(), "1\r\nxx0\r\n\r\n"),
        ("Transfer-Encoding: chunked\r\n".into(), "1 \x0b\r\nx\r\n0\r\n\r\n"),
        ("Transfer-Encoding: chunked\r\n".into(), "\r\n1\r\nx\r\n0\r\n\r\n"),
        ("Transfer-Encoding: chunked\r\n".into(), "1;a\nb\r\nx\r\n0\r\n\r\n"),
        // Hosts and targets.
        ("Host: other\r\nContent-Length: 0\r\n".into(), ""),
        ("Host : other\r\nContent-Length: 0\r\n".into(), ""),
        ("X: \0\r\nContent-Length: 0\r\n".into(), ""),
        ("X: a\rb\r\nContent-Length: 0\r\n".into(), ""),
        ("Expect: 200-ok\r\nContent-Length: 1\r\n".into(), "x"),
    ]
    .map(|(lines, body)| (head(&lines), body.to_owned()))
    .into();
    let whole = [
        format!("POST / HTTP/1.0\r\nHost: shop\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}"),
        format!("POST / HTTP/1.1 \r\nHost: shop\r\nContent-Length: {length}\r\n\r\n{HIDDEN}"),
        format!("POST  / HTTP/1.1\r\nHost: shop\r\nContent-Length: {length}\r\n\r\n{HIDDEN}"),
        format!("POST /\tHTTP/1.1\r\nHost: shop\r\nContent-Length: {length}\r\n\r\n{HIDDEN}"),
        format!("POST / HTTP/1.2\r\nHost: shop\r\nContent-Length: {length}\r\n\r\n{HIDDEN}"),
        format!("POST / HTTP/1.1\rHost: shop\rContent-Length: {length}\r\r{HIDDEN}"),
        format!("POST / HTTP/2.0\r\nHost: shop\r\nContent-Length: {length}\r\n\r\n{HIDDEN}"),
        format!("PO(ST / HTTP/1.1\r\nHost: shop\r\nContent-Length: {length}\r\n\r\n{HIDDEN}"),
        format!("POST shop:80 HTTP/1.1\r\nHost: shop\r\nContent-Length: {length}\r\n\r\n{HIDDEN}"),
        format!("POST * HTTP/1.1\r\nHost: shop\r\nContent-Length: {length}\r\n\r\n{HIDDEN}"),
        format!("POST http://me@shop@x/ HTTP/1.1\r\nHost: shop\r\nContent-Length: {length}\r\n\r\n{HIDDEN}"),
        format!("POST /\r\nHost: shop\r\nContent-Length: {length}\r\n\r\n{HIDDEN}"),
    ];
    let all = cases.into_iter().map(|(head, body)| head + &body).chain(whole);
    for (nth, bytes) in all.enumerate() {
        let mut client = Client::of(scene.proxy.address());
        client.stream.write_all(bytes.as_bytes()).unwrap();
        client.stream.shutdown(std::net::Shutdown::Write).unwrap();
        client.is_cut();
        // As the body of a request it may come; as one of its own it may not.
        let what = format!("{nth}: {}", bytes.escape_debug());
        recorder.got_one_at_most(&what);
    }
}

#[test]
fn over_http2_there_is_one_request_or_none() {
    let (site, recorder) = (Site::new(), Recorder::start());
    let scene = scene(&recorder, Some(&site));
    let length = HIDDEN.len().to_string();
    let shop = |more: &[(&'static str, &'static str)]| {
        let mut fields = vec![(":method", "POST"), (":scheme", "https"), (":authority", "shop"), (":path", "/")];
        fields.extend_from_slice(more);
        fields
    };
    let shorter = "5";
    let with = |name, from, to| {
        shop(&[]).into_iter().map(|(field, value)| if field == name { (from, to) } else { (field, value) }).collect()
    };
    let cases: Vec<Vec<(&str, &str)>> = vec![
        // A length that the frames do not add up to.
        shop(&[("content-length", shorter)]),
        shop(&[("content-length", "9999")]),
        shop(&[("content-length", "0")]),
        shop(&[("content-length", "5"), ("content-length", "38")]),
        shop(&[("content-length", "38"), ("content-length", "38")]),
        shop(&[("content-length", "+38")]),
        shop(&[("content-length", "38, 38")]),
        shop(&[("content-length", "")]),
        shop(&[("content-length", "18446744073709551616")]),
        // Fields that are for one connection.
        shop(&[("transfer-encoding", "chunked")]),
        shop(&[("connection", "content-length")]),
        shop(&[("connection", "close")]),
        shop(&[("keep-alive", "1")]),
        shop(&[("upgrade", "websocket")]),
        shop(&[("proxy-connection", "close")]),
        shop(&[("te", "chunked")]),
        // Bytes that end a line, or are none of a field's.
        shop(&[("x", "y\r\nTransfer-Encoding: chunked")]),
        shop(&[("x", "y\nContent-Length: 0")]),
        shop(&[("x", "y\0z")]),
        shop(&[("x\r\nTransfer-Encoding", "chunked")]),
        shop(&[("x: y\r\ncontent-length", "0")]),
        shop(&[("X-Capital", "y")]),
        shop(&[("x y", "z")]),
        shop(&[("", "z")]),
        shop(&[("content-length ", "0")]),
        with(":path", ":path", "/ HTTP/1.1\r\nHost: shop\r\n\r\nGET /smuggled"),
        with(":path", ":path", "/x y"),
        with(":path", ":path", ""),
        with(":path", ":path", "x"),
        with(":path", ":path", "*"),
        with(":path", ":path", "http://other/"),
        with(":method", ":method", "GET /smuggled HTTP/1.1\r\nHost: shop\r\n\r\nGET"),
        with(":method", ":method", "PO ST"),
        with(":method", ":method", ""),
        with(":method", ":method", "CONNECT"),
        with(":method", ":method", "TRACE"),
        with(":scheme", ":scheme", "http://smuggled/?"),
        with(":scheme", ":scheme", ""),
        with(":authority", ":authority", "me@shop"),
        with(":authority", ":authority", "shop\r\nX: smuggled"),
        with(":authority", ":authority", "shop/smuggled"),
        with(":authority", ":authority", "shop, other"),
        with(":authority", ":authority", ""),
        with(":authority", "host", ""),
        with(":authority", "x", "y"),
        // Pseudo-fields that are none, or stand where they must not.
        shop(&[(":path", "/smuggled")]),
        shop(&[(":method", "GET")]),
        shop(&[(":status", "200")]),
        shop(&[(":other", "x")]),
        shop(&[("host", "other")]),
        shop(&[("host", "shop"), ("host", "other")]),
        shop(&[("x", "y"), (":path", "/smuggled")]),
        shop(&[("expect", "200-ok")]),
        vec![(":method", "POST"), (":scheme", "https"), (":authority", "shop")],
        vec![(":scheme", "https"), (":authority", "shop"), (":path", "/")],
        vec![(":method", "POST"), (":authority", "shop"), (":path", "/")],
        vec![(":status", "200")],
        vec![],
    ];
    assert_eq!(length, "38", "the lengths above are of the hidden request");
    for (nth, fields) in cases.into_iter().enumerate() {
        for ends_at_once in [false, true] {
            let mut visitor = Visitor::over_http2(scene.proxy.address(), &site);
            visitor.asks(1, if ends_at_once { END_STREAM } else { 0 }, &fields);
            // The connection may have ended with the head.
            if !ends_at_once {
                let _ = visitor.frame(DATA, END_STREAM, 1, HIDDEN.as_bytes());
            }
            ends(&mut visitor, 1);
            recorder.got_one_at_most(&format!("{nth} {ends_at_once}: {fields:?}"));
        }
    }
    // Frames that cut a head in two.
    let head = block(&shop(&[("content-length", "38")]));
    let (begin, rest) = head.split_at(20);
    type Frames<'a> = &'a [(u8, u8, u32, &'a [u8])];
    let cut: [Frames<'_>; 5] = [
        &[(HEADERS, 0, 1, begin), (DATA, END_STREAM, 1, HIDDEN.as_bytes())],
        &[(HEADERS, 0, 1, begin), (CONTINUATION, END_HEADERS, 3, rest)],
        &[(HEADERS, 0, 1, begin), (HEADERS, END_HEADERS, 1, rest)],
        &[(CONTINUATION, END_HEADERS, 1, &head)],
        &[(HEADERS, END_HEADERS, 1, &head), (HEADERS, END_HEADERS, 1, &head), (DATA, END_STREAM, 1, b"x")],
    ];
    for (nth, frames) in cut.into_iter().enumerate() {
        let mut visitor = Visitor::over_http2(scene.proxy.address(), &site);
        for (kind, flags, stream, payload) in frames {
            let _ = visitor.frame(*kind, *flags, *stream, payload);
        }
        ends(&mut visitor, 1);
        recorder.got_one_at_most(&format!("cut {nth}"));
    }
}

/// Until the stream, or the connection, has ended.
fn ends(visitor: &mut Visitor, stream: u32) {
    while let Some(frame) = visitor.next() {
        let is_last =
            frame.kind == RST_STREAM || (matches!(frame.kind, DATA | HEADERS) && frame.flags & END_STREAM > 0);
        if frame.stream == stream && is_last {
            return;
        }
    }
}
