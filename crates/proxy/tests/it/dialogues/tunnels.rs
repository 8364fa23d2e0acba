//! Connections that become WebSockets (rule H14).

use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest, Sha1};
use verbena_caching::Rule;
use verbena_proxy::ProxyConfig;

use crate::scene::visitor::{DATA, END_STREAM, Frame, HEADERS, RST_STREAM, SETTINGS};
use crate::scene::{Asked, Client, Scene, Site, Visitor};

/// `/ws` may become a tunnel.
fn routes(config: &mut ProxyConfig) {
    config.routes = vec![Rule { prefix: "/ws".into(), upgrade: Some(true), ..Rule::default() }];
}

fn scene() -> Scene {
    Scene::with(routes)
}

/// What a browser sends.
const WISH: &str = "GET /ws HTTP/1.1\r\nHost: shop\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
const SWITCHED: &str = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

/// The bytes that come next.
fn reads(client: &mut Client, bytes: usize) -> Vec<u8> {
    let mut read = vec![0; bytes];
    client.stream.read_exact(&mut read).unwrap();
    read
}

#[test]
fn a_tunnel_begins_with_the_applications_word() {
    let scene = scene();
    let mut client = scene.client();
    client.send(&format!("{WISH}early"));
    let mut asked = scene.origin.asked("/ws");
    assert_eq!(asked.field("upgrade").as_deref(), Some("websocket"));
    assert_eq!(asked.field("connection").as_deref(), Some("upgrade"));
    assert_eq!(asked.field("sec-websocket-key").as_deref(), Some("dGhlIHNhbXBsZSBub25jZQ=="));
    assert_eq!(asked.field("x-forwarded-for").as_deref(), Some("127.0.0.1"));
    // What came behind the request waits.
    asked.stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let too_early = asked.stream.read(&mut [0; 16]);
    assert!(too_early.as_ref().is_err_and(|error| error.kind() == ErrorKind::WouldBlock), "{too_early:?}");
    asked.says(&format!("{SWITCHED}down"));
    let answer = client.head();
    answer.has(101).said("fwd=bypass").said("detail=upgrade");
    assert_eq!(answer.field("upgrade").as_deref(), Some("websocket"));
    assert_eq!(answer.field("connection").as_deref(), Some("upgrade"));
    assert_eq!(answer.field("sec-websocket-accept").as_deref(), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    assert_eq!(asked.reads(5), b"early");
    let here = client.left();
    assert_eq!(reads(&mut client, 4 - here).len() + here, 4);
    // Both ways, in turn, and longer than any buffer.
    let long = vec![7; 1 << 20];
    for _ in 0..3 {
        client.stream.write_all(b"up").unwrap();
        assert_eq!(asked.reads(2), b"up");
        let mut application = asked.stream.try_clone().unwrap();
        let sent = long.clone();
        let sender = std::thread::spawn(move || application.write_all(&sent));
        assert_eq!(reads(&mut client, long.len()), long);
        sender.join().unwrap().unwrap();
    }
    scene.comes("the tunnel", |scene| scene.gauge("verbena_proxy_tunnels") == 1.0);
    // The one end closes, then the other.
    client.stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(asked.stream.read(&mut [0; 16]).unwrap(), 0);
    asked.says("last");
    asked.closes();
    assert_eq!(reads(&mut client, 4), b"last");
    client.is_cut();
    scene.comes("the end of the tunnel", |scene| scene.gauge("verbena_proxy_tunnels") == 0.0);
}

#[test]
fn without_the_applications_word_the_connection_ends_after_the_answer() {
    let scene = scene();
    let mut client = scene.client();
    client.send(&format!("{WISH}GET /smuggled HTTP/1.1\r\nHost: shop\r\n\r\n"));
    scene.origin.asked("/ws").says("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno");
    let answer = client.answer();
    answer.is(403, "no").said("detail=upgrade");
    assert_eq!(answer.field("connection").as_deref(), Some("close"));
    client.is_cut();
    assert_eq!(client.left(), 0, "nothing else was answered");
    scene.origin.is_left_alone();
    // Nor where the application is silent, or says what is no HTTP.
    let mut client = scene.client();
    client.send(WISH);
    let mut asked = scene.origin.asked("/ws");
    asked.says("what?\r\n\r\n");
    asked.closes();
    client.answer().has(502).said("detail=origin-broken");
    client.is_cut();
}

#[test]
fn what_is_no_wish_for_a_websocket_is_a_request_like_others() {
    let scene = scene();
    for (wish, path) in [
        (WISH.replace("/ws", "/wsx"), "/wsx"),
        (WISH.replace(": WebSocket", ": h2c"), "/ws"),
        (WISH.replace(": WebSocket", ": h2c, websocket"), "/ws"),
        (WISH.replace("WebSocket\r\n", "websocket\r\nUpgrade: h2c\r\n"), "/ws"),
        (WISH.replace("keep-alive, Upgrade", "keep-alive"), "/ws"),
        // Some applications would take it for a request to another path, and that may write.
        (WISH.replace("Host", "X-Original-URL: /cart\r\nHost"), "/ws"),
        (WISH.replace("GET", "POST").replace("Host", "Content-Length: 0\r\nHost"), "/ws"),
    ] {
        let mut client = scene.client();
        client.send(&wish);
        let asked = scene.origin.asked(path);
        assert_eq!(asked.field("upgrade"), None, "{wish}");
        asked.answers(&["Cache-Control: no-store"], "page");
        client.answer().is(200, "page");
    }
    // An answer that nobody asked for.
    let mut client = scene.client();
    client.get("/wsx");
    scene.origin.asked("/wsx").says(SWITCHED);
    client.answer().has(502).said("detail=origin-broken");
}

#[test]
fn tunnels_are_so_many_and_end_when_they_carry_nothing() {
    let scene = Scene::with(|config| {
        routes(config);
        config.tunnels = 1;
        config.tunnel_timeout.0 = Duration::from_millis(400);
    });
    let opens = || {
        let mut client = scene.client();
        client.send(WISH);
        let mut asked = scene.origin.asked("/ws");
        asked.says(SWITCHED);
        client.head().has(101);
        (client, asked)
    };
    let (mut first, asked) = opens();
    let mut second = scene.client();
    second.send(WISH);
    second.answer().has(503).said("detail=tunnels-full");
    assert_eq!(scene.counter("verbena_proxy_tunnels_refused_total"), 1);
    // It carries nothing: both ends are closed, and there is a place again.
    first.is_cut();
    scene.comes("the end of the tunnel", |scene| scene.gauge("verbena_proxy_tunnels") == 0.0);
    drop(asked);
    let (mut third, _asked) = opens();
    scene.comes("the tunnel", |scene| scene.gauge("verbena_proxy_tunnels") == 1.0);
    let Scene { proxy, .. } = scene;
    proxy.stop();
    third.is_cut();
}

#[test]
fn a_tunnel_passes_through_tls() {
    let site = Site::new();
    let pair = site.issues("site", &["shop"]);
    let scene = Scene::with(|config| {
        routes(config);
        (config.tls_cert, config.tls_key) = (vec![pair.0], vec![pair.1]);
    });
    let mut visitor = Visitor::of(scene.proxy.address(), &site, "http/1.1");
    visitor.write_all(WISH.as_bytes()).unwrap();
    let mut asked = scene.origin.asked("/ws");
    asked.says(SWITCHED);
    let mut head = vec![];
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        visitor.read_exact(&mut byte).unwrap();
        head.extend_from_slice(&byte);
    }
    assert!(head.starts_with(b"HTTP/1.1 101 "), "{}", head.escape_ascii());
    visitor.write_all(b"up").unwrap();
    assert_eq!(asked.reads(2), b"up");
    asked.says("down");
    let mut down = [0; 4];
    visitor.read_exact(&mut down).unwrap();
    assert_eq!(&down, b"down");
}

/// A site whose `/ws` may become a tunnel, over TLS.
fn secure_scene(change: impl FnOnce(&mut ProxyConfig)) -> (Site, Scene) {
    let site = Site::new();
    let pair = site.issues("site", &["shop"]);
    let scene = Scene::with(|config| {
        (config.tls_cert, config.tls_key) = (vec![pair.0], vec![pair.1]);
        change(config);
    });
    (site, scene)
}

/// What a browser sends over HTTP/2 (RFC 8441 section 5.1).
const CONNECT: [(&str, &str); 7] = [
    (":method", "CONNECT"),
    (":protocol", "websocket"),
    (":scheme", "https"),
    (":path", "/ws"),
    (":authority", "shop"),
    ("sec-websocket-version", "13"),
    ("sec-websocket-protocol", "chat"),
];

/// What the application says to the key that it was sent.
fn switched(asked: &Asked) -> String {
    let key = asked.field("sec-websocket-key").unwrap();
    let answer = Sha1::new().chain_update(key).chain_update("258EAFA5-E914-47DA-95CA-C5AB0DC85B11").finalize();
    let answer = STANDARD.encode(answer);
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {answer}\r\nSec-WebSocket-Protocol: chat\r\n\r\n"
    )
}

/// The `:status` at the beginning of the first head of a connection: an entry of HPACK's static table, or digits in Huffman's code (RFC 7541).
fn status(head: &Frame) -> String {
    let known = [(0x88, "200"), (0x8c, "400"), (0x8d, "404"), (0x8e, "500")];
    if let Some((_, status)) = known.iter().find(|(entry, _)| *entry == head.payload[0]) {
        return (*status).into();
    }
    assert!(head.payload[0] == 0x48 && head.payload[1] & 0x80 != 0, "{:?}", head.payload);
    let bits: String = head.payload[2..5].iter().map(|byte| format!("{byte:08b}")).collect();
    let mut rest = &bits[..];
    let digits = ["00000", "00001", "00010", "011001", "011010", "011011", "011100", "011101", "011110", "011111"];
    (0..3)
        .map(|_| {
            let digit = digits.iter().position(|code| rest.starts_with(code)).unwrap();
            rest = &rest[digits[digit].len()..];
            digit.to_string()
        })
        .collect()
}

/// The bytes that come next on a stream.
fn down(visitor: &mut Visitor, stream: u32, bytes: usize) -> Vec<u8> {
    let mut read = vec![];
    while read.len() < bytes {
        let frame = visitor.next_of(DATA).unwrap();
        // The end of another one.
        assert!(frame.stream == stream || frame.payload.is_empty(), "{frame:?}");
        read.extend_from_slice(&frame.payload);
    }
    read
}

#[test]
fn a_stream_of_http2_becomes_a_tunnel() {
    let (site, scene) = secure_scene(routes);
    let mut visitor = Visitor::over_http2(scene.proxy.address(), &site);
    // SETTINGS_ENABLE_CONNECT_PROTOCOL is 1 (RFC 8441 section 3).
    let settings = visitor.next_of(SETTINGS).unwrap().payload;
    assert!(settings.chunks(6).any(|setting| setting == [0, 8, 0, 0, 0, 1]), "{settings:?}");
    visitor.asks(1, 0, &CONNECT);
    visitor.frame(DATA, 0, 1, b"early").unwrap();
    let mut asked = scene.origin.asked("/ws");
    assert!(asked.head.starts_with("GET /ws HTTP/1.1\r\n"), "{}", asked.head);
    for (name, value) in
        [("upgrade", "websocket"), ("connection", "upgrade"), ("sec-websocket-version", "13"), ("host", "shop")]
    {
        assert_eq!(asked.field(name).as_deref(), Some(value));
    }
    let via = asked.field("via").unwrap();
    assert!(via.starts_with("2"), "{via}");
    // What came behind the request waits.
    asked.stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    assert!(asked.stream.read(&mut [0; 16]).is_err());
    let answer = switched(&asked);
    asked.says(&answer);
    let head = visitor.next_of(HEADERS).unwrap();
    assert_eq!((status(&head).as_str(), head.stream, head.flags & END_STREAM), ("200", 1, 0));
    let shown = head.payload.escape_ascii().to_string();
    assert!(!shown.contains("sec-websocket-accept") && !shown.contains("upgrade: "), "{shown}");
    assert_eq!(asked.reads(5), b"early");
    for _ in 0..3 {
        visitor.frame(DATA, 0, 1, b"up").unwrap();
        assert_eq!(asked.reads(2), b"up");
        asked.says("down");
        assert_eq!(down(&mut visitor, 1, 4), b"down");
    }
    // Other requests of the connection go on beside it.
    visitor.asks(
        3,
        END_STREAM,
        &[(":method", "GET"), (":scheme", "https"), (":path", "/page"), (":authority", "shop")],
    );
    scene.origin.asked("/page").page("page");
    assert_eq!(status(&visitor.next_of(HEADERS).unwrap()), "200");
    assert_eq!(down(&mut visitor, 3, 4), b"page");
    scene.comes("the tunnel", |scene| scene.gauge("verbena_proxy_tunnels") == 1.0);
    // The one end closes, then the other.
    visitor.frame(DATA, END_STREAM, 1, b"").unwrap();
    assert_eq!(asked.stream.read(&mut [0; 16]).unwrap(), 0);
    asked.says("last");
    asked.closes();
    assert_eq!(down(&mut visitor, 1, 4), b"last");
    scene.comes("the end of the tunnel", |scene| scene.gauge("verbena_proxy_tunnels") == 0.0);
}

#[test]
fn a_stream_is_no_tunnel_without_the_applications_word() {
    let (site, scene) = secure_scene(routes);
    let answered = |fields: &[(&str, &str)], says: Option<&str>| {
        let mut visitor = Visitor::over_http2(scene.proxy.address(), &site);
        visitor.asks(1, 0, fields);
        if let Some(says) = says {
            let mut asked = scene.origin.asked("/ws");
            asked.says(says);
            asked.closes();
        }
        status(&visitor.next_of(HEADERS).unwrap())
    };
    // To the client any 2xx would be a tunnel, and an answer to another question is one that was stored somewhere.
    for (says, status) in [
        ("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno", "403"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno", "502"),
        (SWITCHED, "502"),
    ] {
        assert_eq!(answered(&CONNECT, Some(says)), status, "{says}");
    }
    scene.comes("no tunnel", |scene| scene.gauge("verbena_proxy_tunnels") == 0.0);
    // A path that no route lets, another protocol, and what may be a request to another path: the application hears of none.
    let with = |name: &str, value: &'static str| {
        let mut fields = CONNECT;
        fields.iter_mut().filter(|field| field.0 == name).for_each(|field| field.1 = value);
        fields
    };
    let elsewhere = [&CONNECT[..], &[("x-original-url", "/cart")]].concat();
    for fields in [&with(":path", "/other")[..], &with(":protocol", "connect-udp"), &elsewhere] {
        assert_eq!(answered(fields, None), "405", "{fields:?}");
    }
    scene.origin.is_left_alone();
}

#[test]
fn streams_become_tunnels_where_a_route_lets_them_and_in_the_same_number() {
    let (site, scene) = secure_scene(|_| {});
    let mut visitor = Visitor::over_http2(scene.proxy.address(), &site);
    let settings = visitor.next_of(SETTINGS).unwrap().payload;
    assert!(settings.chunks(6).all(|setting| setting[..2] != [0, 8]), "{settings:?}");
    let (site, scene) = secure_scene(|config| {
        routes(config);
        config.tunnels = 1;
        config.tunnel_timeout.0 = Duration::from_millis(400);
    });
    let mut visitor = Visitor::over_http2(scene.proxy.address(), &site);
    visitor.asks(1, 0, &CONNECT);
    let mut asked = scene.origin.asked("/ws");
    let answer = switched(&asked);
    asked.says(&answer);
    assert_eq!(status(&visitor.next_of(HEADERS).unwrap()), "200");
    let mut other = Visitor::over_http2(scene.proxy.address(), &site);
    other.asks(1, 0, &CONNECT);
    assert_eq!(status(&other.next_of(HEADERS).unwrap()), "503");
    // It carries nothing: both ends are closed, and there is a place again.
    scene.comes("the end of the tunnel", |scene| scene.gauge("verbena_proxy_tunnels") == 0.0);
    visitor.asks(3, 0, &CONNECT);
    scene.origin.asked("/ws");
}

/// Some applications never close. Over HTTP/2 a client that has gone, and one that has said its last, look alike.
#[test]
fn a_tunnel_whose_client_has_gone_is_not_kept_for_an_application_that_does_not_end_it() {
    let (site, scene) = secure_scene(|config| {
        routes(config);
        config.client_timeout.0 = Duration::from_millis(300);
    });
    let mut visitor = Visitor::over_http2(scene.proxy.address(), &site);
    visitor.asks(1, 0, &CONNECT);
    let mut asked = scene.origin.asked("/ws");
    // A length means nothing here.
    let answer = switched(&asked).replace("Upgrade: websocket", "Content-Length: 5\r\nUpgrade: websocket");
    asked.says(&answer);
    assert_eq!(status(&visitor.next_of(HEADERS).unwrap()), "200");
    scene.comes("the tunnel", |scene| scene.gauge("verbena_proxy_tunnels") == 1.0);
    // As long as its client is there it may carry nothing.
    std::thread::sleep(Duration::from_millis(700));
    assert_eq!(scene.gauge("verbena_proxy_tunnels"), 1.0);
    const CANCEL: [u8; 4] = [0, 0, 0, 8];
    visitor.frame(RST_STREAM, 0, 1, &CANCEL).unwrap();
    scene.comes("the end of the tunnel", |scene| scene.gauge("verbena_proxy_tunnels") == 0.0);
}
