//! The forms of messages: methods, conditions, lengths, hosts, and what an intermediary must not pass on.

use crate::scene::Scene;

#[test]
fn head_and_conditions_are_answered_from_the_copy() {
    let scene = Scene::new();
    scene.fills("/", "front", "one");
    let mut client = scene.client();
    client.get("/");
    let whole = client.answer();
    let tag = whole.field("etag").unwrap();
    assert!(tag.starts_with('"'), "{tag} is no strong validator");
    client.send("HEAD / HTTP/1.1\r\nHost: shop\r\n\r\n");
    let head = client.answer();
    head.is(200, "").said("verbena; hit");
    assert_eq!((head.field("content-length"), head.field("etag")), (Some("3".into()), Some(tag.clone())));
    client.get_with("/", &[&format!("If-None-Match: {tag}")]);
    let same = client.answer();
    same.has(304).said("verbena; hit");
    assert_eq!((same.field("etag"), same.field("content-length")), (Some(tag), None));
    client.get_with("/", &["If-None-Match: \"other\""]);
    client.answer().is(200, "one").said("verbena; hit");
    client.get_with("/", &["If-Modified-Since: Sun, 06 Nov 2194 08:49:37 GMT"]);
    client.answer().is(200, "one");
    scene.origin.is_left_alone();
}

#[test]
fn a_head_that_misses_goes_through_and_stores_nothing() {
    let scene = Scene::new();
    let mut client = scene.client();
    client.send("HEAD / HTTP/1.1\r\nHost: shop\r\n\r\n");
    let mut asked = scene.origin.asked("/");
    asked.says("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n");
    drop(asked);
    let head = client.answer();
    head.has(200).said("detail=head");
    assert_eq!(head.field("content-length").unwrap(), "3");
    scene.misses("/");
    assert_eq!(scene.counted("verbena_proxy_misses_total", ("reason", "head")), 1);
}

#[test]
fn answers_without_a_body_are_kept_as_such() {
    let scene = Scene::new();
    let mut client = scene.client();
    for path in ["/204", "/empty"] {
        client.get(path);
        let mut asked = scene.origin.asked(path);
        let head = if path == "/204" { "204 No Content" } else { "200 OK\r\nContent-Length: 0" };
        asked.says(&format!("HTTP/1.1 {head}\r\nVerbena-Dependencies: a\r\n\r\n"));
        drop(asked);
        let first = client.answer();
        scene.comes("the page", |scene| scene.gauge("verbena_proxy_pages") == if path == "/204" { 1.0 } else { 2.0 });
        client.get(path);
        let again = client.answer();
        again.is(first.status, "").said("verbena; hit");
        assert_eq!(again.field("content-length"), first.field("content-length"));
    }
    // Another whole exchange: nothing was left on the connection.
    client.get("/204");
    client.answer().has(204);
}

#[test]
fn conditions_that_the_application_must_decide_go_there() {
    let scene = Scene::new();
    scene.fills("/", "front", "one");
    let mut client = scene.client();
    client.get_with("/", &["Range: bytes=0-1", "If-Match: \"1\""]);
    let mut asked = scene.origin.asked("/");
    assert_eq!(asked.field("range").unwrap(), "bytes=0-1");
    asked.says("HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-1/3\r\nContent-Length: 2\r\n\r\non");
    drop(asked);
    client.answer().is(206, "on").said("fwd=bypass").said("detail=precondition");
    client.get_with("/", &["Cache-Control: no-store"]);
    scene.origin.asked("/").page("one");
    client.answer().is(200, "one").said("detail=request-no-store");
    client.send("OPTIONS * HTTP/1.1\r\nHost: shop\r\n\r\n");
    scene.origin.asked("*").page("");
    client.answer().has(200).said("detail=method");
    client.send("CONNECT shop:443 HTTP/1.1\r\nHost: shop\r\n\r\n");
    let refused = client.answer();
    refused.has(405).said("detail=method-refused");
    assert!(refused.field("allow").is_some());
    for reason in ["precondition", "request-no-store", "method", "method-refused"] {
        assert_eq!(scene.counted("verbena_proxy_misses_total", ("reason", reason)), 1, "{reason}");
    }
}

#[test]
fn a_get_with_a_body_is_neither_answered_from_the_cache_nor_stored() {
    let scene = Scene::new();
    scene.fills("/", "front", "one");
    let mut client = scene.client();
    for path in ["/", "/other"] {
        client.send(&format!("GET {path} HTTP/1.1\r\nHost: shop\r\nContent-Length: 4\r\n\r\nevil"));
        let mut asked = scene.origin.asked(path);
        assert_eq!(asked.reads(4), b"evil");
        asked.depends("front", "evil page");
        client.answer().is(200, "evil page").said("fwd=bypass").said("detail=request-body");
    }
    scene.hits("/", "one");
    scene.misses("/other");
}

#[test]
fn the_host_that_names_a_page_is_the_one_that_the_application_sees() {
    let scene = Scene::new();
    // The absolute form wins over Host, for both.
    let mut client = scene.client();
    client.send("GET http://shop/a HTTP/1.1\r\nHost: evil\r\n\r\n");
    let asked = scene.origin.asked("/a");
    assert_eq!(asked.field("host").unwrap(), "shop");
    assert_eq!(asked.field("x-forwarded-host").unwrap(), "shop");
    asked.depends("a", "of shop");
    client.answer().is(200, "of shop");
    scene.hits("/a", "of shop");
    // A field that Connection names is not there for anybody; Host cannot be taken away so.
    client.get_with("/b", &["Connection: Host, Accept-Language", "Accept-Language: de"]);
    let asked = scene.origin.asked("/b");
    assert_eq!((asked.field("host").unwrap().as_str(), asked.field("accept-language")), ("shop", None));
    asked.answers(&["Vary: Accept-Language", "Verbena-Dependencies: a"], "default");
    client.answer().is(200, "default");
    // The page, by what it varies, and the one before.
    scene.comes("the page", |scene| scene.gauge("verbena_proxy_pages") == 3.0);
    client.get_with("/b", &["Accept-Language: de"]);
    scene.origin.asked("/b").page("deutsch");
    client.answer().is(200, "deutsch").said("vary-miss");
    // Another address seen from outside is another page.
    client.get_with("/a", &["X-Forwarded-Host: evil"]);
    scene.origin.asked("/a").depends("a", "of evil");
    client.answer().is(200, "of evil");
    scene.hits("/a", "of shop");
    // None, or two, is no request.
    for lines in ["", "Host: shop\r\nHost: evil\r\n"] {
        let mut client = scene.client();
        client.send(&format!("GET /c HTTP/1.1\r\n{lines}\r\n"));
        client.answer().has(400).said("detail=host");
    }
    scene.origin.is_left_alone();
}

#[test]
fn http_1_0_is_spoken() {
    let scene = Scene::new();
    scene.fills("/", "front", "one");
    let mut client = scene.client();
    client.send("GET / HTTP/1.0\r\nHost: shop\r\nConnection: keep-alive\r\n\r\n");
    client.answer().is(200, "one");
    client.send("GET / HTTP/1.0\r\nHost: shop\r\n\r\n");
    client.answer().is(200, "one");
    client.is_closed();
    // Without Host, the application gets its own name.
    let mut client = scene.client();
    client.send("POST /x HTTP/1.0\r\nContent-Length: 1\r\n\r\na");
    let mut asked = scene.origin.asked("/x");
    assert_eq!(asked.field("host").unwrap(), scene.origin.address.to_string());
    assert_eq!(asked.reads(1), b"a");
    asked.page("done");
    client.answer().is(200, "done");
}

#[test]
fn what_is_for_one_connection_stays_on_it() {
    let scene = Scene::new();
    let mut client = scene.client();
    client.get_with(
        "/",
        &["Connection: x-hop, upgrade", "X-Hop: 1", "Upgrade: websocket", "TE: trailers", "Keep-Alive: 5"],
    );
    let asked = scene.origin.asked("/");
    for gone in ["connection", "x-hop", "upgrade", "te", "keep-alive"] {
        assert_eq!(asked.field(gone), None, "{gone}");
    }
    assert_eq!(asked.field("via").unwrap(), "1.1 verbena");
    assert_eq!(asked.field("x-forwarded-for").unwrap(), "127.0.0.1");
    asked.answers(
        &[
            "Connection: x-hop",
            "X-Hop: 1",
            "Surrogate-Key: a",
            "Surrogate-Control: max-age=60",
            "CDN-Cache-Control: max-age=60",
            "Expires: 0",
        ],
        "one",
    );
    let answer = client.answer();
    scene.hits("/", "one");
    client.get("/");
    for answer in [answer, client.answer()] {
        for gone in ["x-hop", "surrogate-key", "surrogate-control", "cdn-cache-control", "expires"] {
            assert_eq!(answer.field(gone), None, "{gone}: {}", answer.head);
        }
    }
}

#[test]
fn an_upload_that_waits_for_leave_gets_it() {
    let scene = Scene::new();
    let mut client = scene.client();
    client.send("POST /x HTTP/1.1\r\nHost: shop\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n");
    client.head().has(100);
    client.send("body");
    let mut asked = scene.origin.asked("/x");
    assert_eq!(asked.reads(4), b"body");
    asked.says("HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n");
    asked.page("done");
    client.answer().is(200, "done");
}

#[test]
fn trailers_are_no_part_of_a_stored_page() {
    let scene = Scene::new();
    let mut client = scene.client();
    for (path, trailer) in [("/announced", "Trailer: X-Sum\r\n"), ("/not", "")] {
        client.get(path);
        let mut asked = scene.origin.asked(path);
        asked.says(&format!(
            "HTTP/1.1 200 OK\r\n{trailer}Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX-Sum: 1\r\n\r\n"
        ));
        drop(asked);
        client.answer().is(200, "a");
        scene.misses(path);
    }
}

#[test]
fn what_a_page_depends_on_goes_out_only_if_asked_for() {
    for asked_for in [false, true] {
        let scene = Scene::with(|config| config.pass_dependencies = asked_for);
        let fields = ["Verbena-Dependencies: \"front\"", "Surrogate-Key: a b", "Cache-Tag: c", "Cache-Groups: \"d\""];
        let shown = |field: &dyn Fn(&str) -> Option<String>| {
            fields.iter().filter(|line| field(line.split(':').next().unwrap()).is_some()).count()
        };
        let expected = if asked_for { fields.len() } else { 0 };
        let mut client = scene.client();
        client.get("/");
        scene.origin.asked("/").answers(&fields, "page");
        let answer = client.answer();
        answer.is(200, "page").said("stored");
        assert_eq!(shown(&|name| answer.field(name)), expected, "fetched");
        scene.comes("the page", |scene| scene.gauge("verbena_proxy_pages") == 1.0);
        client.get("/");
        let answer = client.answer();
        answer.is(200, "page").said("verbena; hit");
        assert_eq!(shown(&|name| answer.field(name)), expected, "from the store");
        client.post("/", "");
        scene.origin.asked("/").answers(&fields, "written");
        let answer = client.answer();
        answer.is(200, "written");
        assert_eq!(shown(&|name| answer.field(name)), expected, "written");
    }
}
