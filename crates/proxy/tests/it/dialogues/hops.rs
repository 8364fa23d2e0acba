//! What an intermediary refuses, and what it takes for something else than it looks like: targets, codings, upgrades, overrides.

use crate::scene::Scene;

#[test]
fn what_is_about_no_page_is_refused_with_its_reason() {
    let scene = Scene::new();
    let refused = [
        ("GET /c HTTP/1.1\r\n\r\n", 400, "host"),
        ("GET /c HTTP/1.1\r\nHost: shop\r\nHost: evil\r\n\r\n", 400, "host"),
        ("GET /c HTTP/1.1\r\nHost: shop/evil\r\n\r\n", 400, "host"),
        ("GET * HTTP/1.1\r\nHost: shop\r\n\r\n", 400, "target"),
        ("GET shop:80 HTTP/1.1\r\nHost: shop\r\n\r\n", 400, "target"),
        ("TRACE / HTTP/1.1\r\nHost: shop\r\n\r\n", 405, "method-refused"),
        ("CONNECT shop:443 HTTP/1.1\r\nHost: shop\r\n\r\n", 405, "method-refused"),
        ("POST / HTTP/1.1\r\nHost: shop\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501, "transfer-coding"),
        ("OPTIONS / HTTP/1.1\r\nHost: shop\r\nMax-Forwards: 0\r\n\r\n", 200, "max-forwards"),
    ];
    for (request, status, detail) in refused {
        let mut client = scene.client();
        client.send(request);
        let answer = client.answer();
        answer.has(status).said(&format!("verbena; fwd=bypass; detail={detail}"));
        assert_eq!(answer.field("allow").is_some(), ["method-refused", "max-forwards"].contains(&detail), "{detail}");
    }
    for (detail, times) in
        [("host", 3), ("target", 2), ("method-refused", 2), ("transfer-coding", 1), ("max-forwards", 1)]
    {
        assert_eq!(scene.counted("verbena_proxy_misses_total", ("reason", detail)), times, "{detail}");
    }
    assert_eq!(scene.counted("verbena_proxy_answers_total", ("result", "error")), 9);
    scene.origin.is_left_alone();
}

#[test]
fn of_two_lengths_the_chunks_count_and_the_connection_ends() {
    let scene = Scene::new();
    let mut client = scene.client();
    let smuggled = "GET /smuggled HTTP/1.1\r\nHost: shop\r\n\r\n";
    client.send(&format!(
        "POST /x HTTP/1.1\r\nHost: shop\r\nContent-Length: {}\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n{smuggled}",
        18 + smuggled.len()
    ));
    let mut asked = scene.origin.asked("/x");
    assert_eq!((asked.field("content-length").unwrap().as_str(), asked.field("transfer-encoding")), ("3", None));
    assert_eq!(asked.reads(3), b"abc");
    asked.page("done");
    client.answer().is(200, "done");
    client.is_closed();
    scene.origin.is_left_alone();
}

#[test]
fn an_upgrade_is_not_made_and_nobody_waits_for_it() {
    let scene = Scene::new();
    let mut client = scene.client();
    let lines = ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: eA=="];
    client.get_with("/chat", &lines);
    let mut asked = scene.origin.asked("/chat");
    assert_eq!((asked.field("upgrade"), asked.field("connection")), (None, None));
    asked.says("HTTP/1.1 426 Upgrade Required\r\nUpgrade: websocket\r\nContent-Length: 4\r\n\r\nwhat");
    drop(asked);
    client.answer().is(426, "what").said("detail=status");
    // Nor one that nobody asked for.
    for method in ["GET", "POST"] {
        client
            .send(&format!("{method} /chat HTTP/1.1\r\nHost: shop\r\nUpgrade: websocket\r\nContent-Length: 0\r\n\r\n"));
        let mut asked = scene.origin.asked("/chat");
        asked.says("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
        client.answer().has(502).said("detail=origin-broken");
        drop(asked);
    }
}

#[test]
fn an_application_whose_answer_cannot_be_passed_on_is_502() {
    let scene = Scene::new();
    let mut client = scene.client();
    let answers = [
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
        "HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n",
    ];
    for answer in answers {
        client.get_with("/", &["If-None-Match: \"a\""]);
        let mut asked = scene.origin.asked("/");
        assert_eq!(asked.field("if-none-match"), None);
        asked.says(answer);
        drop(asked);
        client.answer().has(502).said("detail=origin-broken");
        scene.misses("/");
    }
    // To whom the application may say so, it may.
    client.get_with("/", &["If-None-Match: \"a\"", "Cache-Control: no-store"]);
    let mut asked = scene.origin.asked("/");
    asked.says("HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n");
    drop(asked);
    client.answer().has(304).said("detail=request-no-store");
}

#[test]
fn what_some_take_for_another_request_is_taken_for_one_that_writes() {
    let scene = Scene::new();
    scene.fills("/", "front", "one");
    let mut client = scene.client();
    for line in ["X-HTTP-Method-Override: DELETE", "X-Original-URL: /cart", "X-Rewrite-URL: /cart"] {
        client.get_with("/", &[line]);
        scene.origin.asked("/").page("deleted");
        client.answer().is(200, "deleted").said("fwd=method");
        scene.misses("/");
        scene.fills("/", "front", "one");
    }
}

#[test]
fn an_address_that_a_proxy_before_names_is_part_of_the_page() {
    let scene = Scene::new();
    scene.fills("/", "front", "one");
    let mut client = scene.client();
    client.get_with("/", &["Forwarded: for=10.0.0.1;host=evil"]);
    let asked = scene.origin.asked("/");
    assert_eq!(asked.field("forwarded").unwrap(), "for=10.0.0.1;host=evil");
    asked.depends("front", "links to evil");
    client.answer().is(200, "links to evil").said("uri-miss");
    // Some applications look at nothing else where there is one; who asks is no part of it.
    client.get_with("/", &["Forwarded: for=10.0.0.1"]);
    scene.origin.asked("/").depends("front", "one of them");
    client.answer().is(200, "one of them").said("uri-miss");
    scene.hits_with("/", &["Forwarded: for=10.0.0.2"], "one of them");
    scene.hits("/", "one");
}

#[test]
fn a_body_shorter_than_promised_is_the_clients_error() {
    let scene = Scene::new();
    // Before the update begins, and after.
    let mut client = scene.client();
    client.send("POST /x HTTP/1.1\r\nHost: shop\r\nContent-Length: 10\r\n\r\nabc");
    scene.has_in_flight(1);
    client.stream.shutdown(std::net::Shutdown::Write).unwrap();
    client.is_cut();
    scene.origin.is_left_alone();
    let mut client = scene.client();
    let piece = "x".repeat(100_000);
    client.send(&format!("POST /x HTTP/1.1\r\nHost: shop\r\nContent-Length: 200000\r\n\r\n{piece}"));
    let mut asked = scene.origin.asked("/x");
    asked.reads(100_000);
    client.stream.shutdown(std::net::Shutdown::Write).unwrap();
    client.is_cut();
    // What the application makes of half a body, nobody knows.
    scene.comes("an unknown outcome", |scene| scene.node.content.counts().updater.unknown == 1);
    drop(asked);
    // What is no chunk is no body either.
    let mut client = scene.client();
    client.send("POST /x HTTP/1.1\r\nHost: shop\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcdef\r\n0\r\n\r\n");
    client.answer().has(400).said("detail=client-broken");
    client.is_closed();
    scene.origin.is_left_alone();
    // More than promised is the next request, and none.
    let mut client = scene.client();
    client.send("GET /y HTTP/1.1\r\nHost: shop\r\nContent-Length: 1\r\n\r\nab\r\n\r\n");
    scene.origin.asked("/y").page("y");
    client.answer().is(200, "y");
    client.answer().has(400).said("detail=head-malformed");
    client.is_closed();
}

#[test]
fn of_two_lengths_of_an_answer_the_chunks_are_right() {
    let scene = Scene::new();
    let mut client = scene.client();
    for length in [5, 20] {
        for (method, line) in [("GET", "Accept: */*"), ("GET", "Cache-Control: no-store"), ("POST", "Accept: */*")] {
            client.send(&format!("{method} /{length} HTTP/1.1\r\nHost: shop\r\n{line}\r\nContent-Length: 0\r\n\r\n"));
            let mut asked = scene.origin.asked(&format!("/{length}"));
            let fields = format!("Content-Length: {length}\r\nTransfer-Encoding: chunked\r\nSet-Cookie: a=b");
            asked.says(&format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\na\r\n0123456789\r\n0\r\n\r\n"));
            drop(asked);
            client.answer().is(200, "0123456789");
        }
    }
}
