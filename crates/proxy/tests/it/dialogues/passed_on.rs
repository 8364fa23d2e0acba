//! Balancers that say by the PROXY protocol whose connections they pass on.

use std::io::Write;
use std::net::Ipv4Addr;

use crate::scene::{Curl, Scene, Site};

fn scene(network: &str) -> Scene {
    Scene::with(|config| config.proxy_protocol_from = vec![network.into()])
}

/// Version 2, from 203.0.113.7.
fn second() -> Vec<u8> {
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
    header.extend(Ipv4Addr::new(203, 0, 113, 7).octets());
    header.extend([127, 0, 0, 1, 0x9c, 0x40, 0, 80]);
    header
}

const FIRST: &[u8] = b"PROXY TCP4 203.0.113.7 192.0.2.1 40000 80\r\n";

#[test]
fn the_client_is_whom_the_balancer_names() {
    let scene = scene("127.0.0.0/8");
    for (header, client_is) in [
        (FIRST.to_vec(), "203.0.113.7"),
        (second(), "203.0.113.7"),
        (b"PROXY UNKNOWN\r\n".to_vec(), "127.0.0.1"),
        (b"PROXY TCP6 2001:db8::7 ::1 1 2\r\n".to_vec(), "2001:db8::7"),
    ] {
        for pieces in [1, 7] {
            let mut client = scene.client();
            let request = [&header[..], b"GET / HTTP/1.1\r\nHost: shop\r\n\r\n"].concat();
            for piece in request.chunks(request.len().div_ceil(pieces)) {
                client.stream.write_all(piece).unwrap();
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            let asked = scene.origin.asked("/");
            assert_eq!(asked.field("x-forwarded-for").as_deref(), Some(client_is));
            asked.answers(&["Cache-Control: no-store"], "page");
            client.answer().is(200, "page");
            // Only the beginning of a connection has one.
            client.get("/");
            scene.origin.asked("/").answers(&["Cache-Control: no-store"], "page");
            client.answer().is(200, "page");
        }
    }
}

#[test]
fn a_connection_without_a_header_is_closed() {
    let scene = scene("127.0.0.1");
    for (nth, wrong) in [
        &b"GET / HTTP/1.1\r\nHost: shop\r\n\r\n"[..],
        b"PROXY TCP4 203.0.113.7 192.0.2.1 40000 65536\r\nGET / HTTP/1.1\r\nHost: shop\r\n\r\n",
        b"PROXY UNKNOWN",
        &[b'P'; 300],
    ]
    .into_iter()
    .enumerate()
    {
        let mut client = scene.client();
        client.stream.write_all(wrong).unwrap();
        if wrong.len() < 20 {
            client.stream.shutdown(std::net::Shutdown::Write).unwrap();
        }
        client.is_cut();
        assert_eq!(client.left(), 0, "no answer: {}", wrong.escape_ascii());
        let malformed = ("reason", "malformed");
        let expected = [1, 2, 2, 3][nth];
        scene.comes("the count", |scene| scene.counted("verbena_proxy_headers_refused_total", malformed) == expected);
    }
    scene.origin.is_left_alone();
}

#[test]
fn from_elsewhere_nobody_is_believed() {
    let scene = scene("10.0.0.0/8");
    let mut client = scene.client();
    client.stream.write_all(FIRST).unwrap();
    client.stream.write_all(b"GET / HTTP/1.1\r\nHost: shop\r\n\r\n").unwrap();
    client.answer().has(400).said("detail=head-malformed");
    scene.origin.is_left_alone();
    let mut client = scene.client();
    client.get("/");
    scene.origin.asked("/").page("page");
    client.answer().is(200, "page");
}

#[test]
fn the_header_stands_before_tls() {
    let site = Site::new();
    let pair = site.issues("site", &["shop"]);
    let scene = Scene::with(|config| {
        config.proxy_protocol_from = vec!["127.0.0.1".into()];
        (config.tls_cert, config.tls_key) = (vec![pair.0], vec![pair.1]);
    });
    let asks = |more: &[&str]| Curl::asks(scene.proxy.address(), &site.authority(), "shop", "/", more);
    let Some(curl) = asks(&["--haproxy-protocol"]) else { return };
    scene.origin.asked("/").page("page");
    curl.answer().is(200, "page");
    assert!(asks(&[]).unwrap().tries().is_err(), "without one");
}
