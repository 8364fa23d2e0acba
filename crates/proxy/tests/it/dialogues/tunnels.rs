//! Connections that become WebSockets (rule H14).

use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use verbena_caching::Rule;
use verbena_proxy::ProxyConfig;

use crate::scene::{Client, Scene, Site, Visitor};

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
