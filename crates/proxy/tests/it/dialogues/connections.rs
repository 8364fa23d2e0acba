//! The edges of a client's connection: heads that are none, bodies that HTTP/1.0 cannot tell from cut ones, pipelines, and what is closed when.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use crate::scene::Scene;

/// Heads that hyper refuses, and what is said to each.
fn refused() -> [(String, u16, &'static str); 10] {
    let long = format!("GET / HTTP/1.1\r\nHost: shop\r\nX: {}\r\n\r\n", "x".repeat(40 << 10));
    let endless = format!("GET / HTTP/1.1\r\nHost: shop\r\nX: {}", "x".repeat(200 << 10));
    let target = format!("GET /{} HTTP/1.1\r\nHost: shop\r\n\r\n", "x".repeat(70_000));
    let many = format!("GET / HTTP/1.1\r\nHost: shop\r\n{}\r\n", "X: y\r\n".repeat(101));
    let post = |lines: &str| format!("POST / HTTP/1.1\r\nHost: shop\r\n{lines}\r\n\r\n0\r\n\r\n");
    [
        (long, 431, "head-too-large"),
        (endless, 431, "head-too-large"),
        (target, 431, "head-too-large"),
        (many, 431, "head-too-large"),
        ("GET / HTTP/1.1\r\nHost: shop\r\nfolded: a\r\n b\r\n\r\n".into(), 400, "head-malformed"),
        ("GET / HTTP/1.1\r\nHost : shop\r\n\r\n".into(), 400, "head-malformed"),
        ("nonsense\r\n\r\n".into(), 400, "head-malformed"),
        (post("Content-Length: 3\r\nContent-Length: 4"), 400, "head-malformed"),
        (post("Content-Length: 3, 3"), 400, "head-malformed"),
        (post("Content-Length: +3"), 400, "head-malformed"),
    ]
}

#[test]
fn what_is_no_request_is_answered_as_all_is() {
    let scene = Scene::new();
    for (head, status, detail) in refused() {
        let mut client = scene.client();
        // Not all of it may be taken.
        let _ = client.stream.write_all(head.as_bytes());
        let answer = client.answer();
        answer.has(status).said(&format!("verbena; fwd=bypass; detail={detail}"));
        assert_eq!(answer.field("connection").unwrap(), "close");
        assert!(answer.field("date").is_some() && !answer.body.is_empty(), "{}", answer.head);
        client.is_closed();
    }
    scene.comes("the counts", |scene| {
        let counted = |reason| scene.counted("verbena_proxy_misses_total", ("reason", reason));
        (counted("head-too-large"), counted("head-malformed")) == (4, 6)
    });
    assert_eq!(scene.counted("verbena_proxy_answers_total", ("result", "error")), 10);
    scene.origin.is_left_alone();
}

#[test]
fn what_is_no_request_after_one_that_was_is_answered_too() {
    let scene = Scene::new();
    scene.fills("/", "front", "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n");
    for (head, status, detail) in refused() {
        let mut client = scene.client();
        // Both in one piece, as a pipeline.
        let _ = client.stream.write_all(format!("GET / HTTP/1.1\r\nHost: shop\r\n\r\n{head}").as_bytes());
        client.answer().is(200, "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").said("verbena; hit");
        client.answer().has(status).said(&format!("detail={detail}"));
        client.is_closed();
    }
}

#[test]
fn a_refusal_is_not_lost_though_the_client_goes_on_sending() {
    let scene = Scene::new();
    let mut client = scene.client();
    let piece = [b'x'; 16 << 10];
    client.send("GET / HTTP/1.1\r\nHost: shop\r\nX: ");
    let mut sender = client.stream.try_clone().unwrap();
    // The answer is read only when all of it was taken.
    for _ in 0..20 {
        sender.write_all(&piece).unwrap();
        std::thread::sleep(Duration::from_millis(5));
    }
    sender.shutdown(Shutdown::Write).unwrap();
    client.answer().has(431);
    client.is_closed();
}

#[test]
fn a_head_that_does_not_come_to_its_end_is_408_and_none_is_no_error() {
    let scene = Scene::with(|config| config.client_timeout.0 = Duration::from_millis(300));
    scene.fills("/", "front", "one");
    let (mut idle, mut kept, mut slow, mut second) = (scene.client(), scene.client(), scene.client(), scene.client());
    kept.get("/");
    kept.answer().is(200, "one");
    second.get("/");
    second.answer().is(200, "one");
    second.send("GET /second HTTP/1.1\r\n");
    // A byte now and then makes it no better.
    slow.send("GET / HTTP/1.1\r\nHost: shop\r\nX: ");
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(20));
        if slow.stream.write_all(b"x").is_err() {
            break;
        }
    }
    for client in [&mut slow, &mut second] {
        client.answer().has(408).said("detail=head-slow");
        client.is_cut();
    }
    idle.is_closed();
    kept.is_closed();
    assert_eq!(scene.counted("verbena_proxy_misses_total", ("reason", "head-slow")), 2);
}

#[test]
fn a_body_that_breaks_off_resets_the_connection_of_http_1_0() {
    // Framed by chunks, by the end of the update, by silence: none of them is seen by the client.
    for (method, path) in [("GET", "/page"), ("POST", "/report"), ("GET", "/silent")] {
        let scene = Scene::with(|config| config.origin_timeout.0 = Duration::from_millis(1000));
        let mut client = scene.client();
        client.send(&format!("{method} {path} HTTP/1.0\r\nHost: shop\r\n\r\n"));
        let mut asked = scene.origin.asked(path);
        let piece = "x".repeat(100_000);
        asked.says(&format!(
            "HTTP/1.1 200 OK\r\nVerbena-Dependencies: a\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{piece}\r\n",
            piece.len()
        ));
        let head = client.head();
        head.has(200);
        assert_eq!((head.field("content-length"), head.field("transfer-encoding")), (None, None));
        if path != "/silent" {
            asked.closes();
        }
        client.is_reset();
    }
}

#[test]
fn a_whole_body_ends_in_good_order_for_http_1_0() {
    let scene = Scene::new();
    let piece = "x".repeat(3_000_000);
    for (method, path, reads) in [("GET", "/page", true), ("POST", "/report", true), ("GET", "/slow", false)] {
        let mut client = scene.client();
        client.send(&format!("{method} {path} HTTP/1.0\r\nHost: shop\r\nConnection: keep-alive\r\n\r\n"));
        let mut asked = scene.origin.asked(path);
        let whole = format!("{:x}\r\n{piece}\r\n0\r\n\r\n", piece.len());
        let sending = std::thread::spawn(move || {
            asked.says(&format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{whole}"));
        });
        if !reads {
            std::thread::sleep(Duration::from_millis(300));
        }
        let answer = client.answer();
        answer.is(200, &piece);
        assert!(answer.field("connection").unwrap().starts_with("close"), "{}", answer.head);
        client.is_closed();
        sending.join().unwrap();
    }
}

#[test]
fn http_1_0_keeps_a_connection_if_it_is_asked_to_and_knows_where_answers_end() {
    let scene = Scene::new();
    scene.fills("/", "front", "one");
    let mut client = scene.client();
    for _ in 0..2 {
        client.send("GET / HTTP/1.0\r\nHost: shop\r\nConnection: keep-alive\r\n\r\n");
        let answer = client.answer();
        answer.is(200, "one").said("verbena; hit");
        assert_eq!(answer.field("connection").unwrap(), "keep-alive");
    }
    client.send("GET / HTTP/1.0\r\nHost: shop\r\n\r\n");
    client.answer().is(200, "one");
    client.is_closed();
    // It knows no chunks: neither may it send them.
    let mut client = scene.client();
    client.send("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
    client.answer().has(400).said("detail=head-malformed");
    // Pages asked for without a host are pages of their own.
    let mut client = scene.client();
    client.send("GET / HTTP/1.0\r\n\r\n");
    let asked = scene.origin.asked("/");
    assert_eq!(asked.field("host").unwrap(), scene.origin.address.to_string());
    asked.depends("front", "of nobody");
    client.answer().is(200, "of nobody").said("uri-miss");
    scene.hits("/", "one");
}

#[test]
fn requests_in_a_pipeline_are_answered_in_order() {
    let scene = Scene::new();
    scene.fills("/", "front", "one");
    let mut client = scene.client();
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: shop\r\n\r\n");
    let post = "POST /buy HTTP/1.1\r\nHost: shop\r\nContent-Length: 3\r\n\r\nbuy";
    client.send(&format!("{}{post}{}{}", get("/"), get("/"), get("/other")));
    client.answer().is(200, "one").said("verbena; hit");
    scene.origin.asked("/buy").page("bought");
    client.answer().is(200, "bought");
    // What comes after the write sees it.
    scene.origin.asked("/").depends("front", "two");
    client.answer().is(200, "two").said("fwd=stale");
    scene.origin.asked("/other").page("other");
    client.answer().is(200, "other");
}

#[test]
fn an_answer_is_not_lost_though_the_client_goes_on_uploading() {
    let scene = Scene::new();
    let mut client = scene.client();
    let piece = "x".repeat(100_000);
    client.send(&format!("POST /upload HTTP/1.1\r\nHost: shop\r\nContent-Length: 100000000\r\n\r\n{piece}"));
    let mut asked = scene.origin.asked("/upload");
    asked.says("HTTP/1.1 413 Content Too Large\r\nConnection: close\r\nContent-Length: 3\r\n\r\nbig");
    asked.closes();
    scene.comes("the end", |scene| scene.node.content.counts().updater.forwarded == 0);
    // The answer is read only when all of it was taken.
    for _ in 0..20 {
        client.send(&piece[..10_000]);
        std::thread::sleep(Duration::from_millis(5));
    }
    client.stream.shutdown(Shutdown::Write).unwrap();
    client.answer().is(413, "big");
    client.is_closed();
}

#[test]
fn each_request_has_its_own_time_to_come() {
    let scene = Scene::with(|config| config.client_timeout.0 = Duration::from_millis(1000));
    scene.fills("/", "front", "one");
    let mut client = scene.client();
    for _ in 0..4 {
        client.get("/");
        client.answer().is(200, "one");
        std::thread::sleep(Duration::from_millis(400));
    }
}

/// The kernel says that there is room again when a third of some megabytes is free, which takes such a client longer than it may let its connection stand.
#[test]
fn a_client_that_takes_a_little_all_the_time_gets_all_of_it() {
    let patience = Duration::from_millis(1500);
    let scene = Scene::with(|config| (config.client_timeout.0, config.largest.0) = (patience, 16 << 20));
    let body = "x".repeat(12 << 20);
    scene.fills("/", "front", &body);
    let mut client = scene.client();
    socket2::SockRef::from(&client.stream).set_recv_buffer_size(16 << 10).unwrap();
    client.get("/");
    let began = std::time::Instant::now();
    let (mut taken, mut piece) = (0, [0; 8 << 10]);
    while began.elapsed() < 3 * patience {
        taken += client.stream.read(&mut piece).unwrap();
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(taken > 100_000 && taken < body.len() / 2, "{taken}");
    while taken < body.len() {
        let more = client.stream.read(&mut piece).unwrap();
        assert!(more > 0, "cut after {taken} bytes");
        taken += more;
    }
    assert_eq!(scene.counter("verbena_proxy_stalled_connections_total"), 0);
    // One that takes nothing is given up still.
    let mut client = scene.client();
    socket2::SockRef::from(&client.stream).set_recv_buffer_size(16 << 10).unwrap();
    client.get("/");
    scene.comes("the end", |scene| scene.counter("verbena_proxy_stalled_connections_total") == 1);
}
