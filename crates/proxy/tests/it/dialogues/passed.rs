//! What of an answer and of a client's address goes through as it came.

use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::scene::{Client, Scene};

#[test]
fn an_answer_may_have_many_lines() {
    let scene = Scene::new();
    let lines: String = (0..400).map(|n| format!("X-Line-{n}: {n}\r\n")).collect();
    let whole = format!("HTTP/1.1 200 OK\r\nVerbena-Dependencies: a\r\n{lines}Content-Length: 4\r\n\r\npage");
    let mut client = scene.client();
    client.get("/");
    scene.origin.asked("/").says(&whole);
    let answer = client.answer();
    assert_eq!(answer.is(200, "page").said("stored").field("x-line-399").as_deref(), Some("399"));
    scene.hits("/", "page");
    client.get("/");
    let answer = client.answer();
    assert_eq!(answer.is(200, "page").said("verbena; hit").field("x-line-399").as_deref(), Some("399"));
    client.post("/", "");
    scene.origin.asked("/").says(&whole);
    assert_eq!(client.answer().is(200, "page").field("x-line-399").as_deref(), Some("399"));
}

#[test]
fn an_answer_keeps_its_reason_phrase() {
    let scene = Scene::new();
    let mut client = scene.client();
    for (method, line) in [("GET", "520 Web Server Returned an Unknown Error"), ("GET", "599 "), ("POST", "200 Bought")]
    {
        client.send(&format!("{method} / HTTP/1.1\r\nHost: shop\r\nContent-Length: 0\r\n\r\n"));
        scene.origin.asked("/").says(&format!("HTTP/1.1 {line}\r\nContent-Length: 0\r\n\r\n"));
        let answer = client.answer();
        assert_eq!(answer.head.lines().next(), Some(format!("HTTP/1.1 {line}").as_str()));
    }
    client.get_with("/tagged", &["If-None-Match: \"x\""]);
    scene.origin.asked("/tagged").says("HTTP/1.1 200 Fine\r\nETag: \"x\"\r\nContent-Length: 0\r\n\r\n");
    assert!(client.answer().head.starts_with("HTTP/1.1 304 Not Modified\r\n"));
}

#[test]
fn a_client_over_ipv4_has_its_address_though_the_listener_is_one_of_both_families() {
    if std::net::TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)).is_err() {
        println!("skipped: no IPv6 here");
        return;
    }
    let scene = Scene::with(|config| config.listen = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)));
    let mut client = Client::of((Ipv4Addr::LOCALHOST, scene.proxy.address().port()).into());
    client.get("/");
    let asked = scene.origin.asked("/");
    assert_eq!(asked.field("x-forwarded-for").as_deref(), Some("127.0.0.1"));
    asked.page("page");
    client.answer().is(200, "page");
}

#[test]
fn browsers_that_accept_the_same_codings_share_a_copy() {
    let scene = Scene::new();
    let mut client = scene.client();
    client.get_with("/", &["Accept-Encoding: gzip, deflate, br"]);
    scene.origin.asked("/").answers(&["Vary: Accept-Encoding", "Verbena-Dependencies: a"], "page");
    client.answer().is(200, "page");
    scene.hits_with("/", &["Accept-Encoding: gzip,deflate,br"], "page");
    scene.hits_with("/", &["Accept-Encoding: br", "Accept-Encoding: GZIP;q=1.0, deflate"], "page");
    client.get_with("/", &["Accept-Encoding: gzip"]);
    scene.origin.asked("/").answers(&["Vary: Accept-Encoding", "Verbena-Dependencies: a"], "another");
    client.answer().is(200, "another").said("vary-miss");
    scene.origin.is_left_alone();
}

#[test]
fn names_of_fields_go_on_as_they_came() {
    let scene = Scene::new();
    let mut client = scene.client();
    for method in ["GET", "POST"] {
        client.send(&format!("{method} / HTTP/1.1\r\nHost: shop\r\nX-Some-ODD: 1\r\ncontent-Length: 0\r\n\r\n"));
        let mut asked = scene.origin.asked("/");
        assert!(asked.head.contains("\r\nX-Some-ODD: 1\r\n"), "{}", asked.head);
        asked.says("HTTP/1.1 200 OK\r\nX-My-HEADER: 1\r\nETag: \"a\"\r\ncontent-LENGTH: 4\r\n\r\npage");
        let answer = client.answer();
        answer.is(200, "page");
        for line in ["X-My-HEADER: 1", "ETag: \"a\"", "content-LENGTH: 4"] {
            assert!(answer.head.contains(&format!("\r\n{line}\r\n")), "{}", answer.head);
        }
    }
}

#[test]
fn a_target_with_bytes_that_no_uri_has_is_encoded() {
    let scene = Scene::new();
    let mut client = scene.client();
    let cases: [(&[u8], &str); 6] = [
        (b"/k?q=\"x\"", "/k?q=%22x%22"),
        (b"/k?q=<x>", "/k?q=%3Cx%3E"),
        (b"/`k<", "/%60k%3C"),
        (b"/k\xe9?\xff", "/k%E9?%FF"),
        ("/é<".as_bytes(), "/%C3%A9%3C"),
        ("/é".as_bytes(), "/é"),
    ];
    for (raw, encoded) in cases {
        // Cut within the target, and behind a request that is answered from the cache.
        let line = [b"\r\nGET ", raw, b" HTTP/1.1\r\nHost: shop\r\n\r\n"].concat();
        let mut asks = || {
            client.stream.write_all(&line[..9]).unwrap();
            client.stream.write_all(&line[9..]).unwrap();
        };
        asks();
        scene.origin.asked(encoded).depends("a", encoded);
        scene.hits(encoded, encoded);
        asks();
        client.answer().is(200, encoded).said("stored");
        client.answer().is(200, encoded).said("verbena; hit");
    }
    // A write, with a body, and a request behind it in the same bytes.
    client.send(
        "POST /w?<> HTTP/1.1\r\nHost: shop\r\nContent-Length: 4\r\n\r\n/<>?GET /\"? HTTP/1.1\r\nHost: shop\r\n\r\n",
    );
    let mut asked = scene.origin.asked("/w?%3C%3E");
    assert_eq!(asked.reads(4), b"/<>?");
    asked.page("written");
    client.answer().is(200, "written");
    scene.origin.asked("/\"?").page("next");
    client.answer().is(200, "next");
    for refused in [&b"GET /\x7f< HTTP/1.1"[..], b"GET /\0< HTTP/1.1", b"GET /< x HTTP/1.1", b"GET /< HTTP/1.x"] {
        let mut client = scene.client();
        client.stream.write_all(&[refused, b"\r\nHost: shop\r\n\r\n"].concat()).unwrap();
        client.answer().has(400).said("head-malformed");
    }
    scene.origin.is_left_alone();
}
