//! Which answers are kept, by their status, and what a client's own wishes change about it.

use crate::scene::Scene;

#[test]
fn only_what_says_what_a_page_is_is_stored() {
    let scene = Scene::new();
    let mut client = scene.client();
    for status in [200, 404, 301, 410, 201, 206, 302, 303, 307, 400, 401, 403, 416, 429, 500, 502, 503, 504] {
        let path = format!("/{status}");
        client.get(&path);
        let mut asked = scene.origin.asked(&path);
        asked.says(&format!(
            "HTTP/1.1 {status} Status\r\nVerbena-Dependencies: a\r\nCache-Control: public, max-age=60\r\nContent-Length: 1\r\n\r\nx"
        ));
        drop(asked);
        let answer = client.answer();
        answer.is(status, "x").said(&format!("fwd-status={status}"));
        if [200, 404, 301, 410].contains(&status) {
            answer.said("; stored");
            scene.comes("the page", |scene| {
                client.get_with(&path, &["Cache-Control: only-if-cached"]);
                let answer = client.answer();
                answer.status == status && scene.gauge("verbena_proxy_requests_in_flight") == 0.0
            });
        } else {
            answer.said("detail=status");
            scene.misses(&path);
        }
    }
    assert_eq!(scene.counted("verbena_proxy_not_stored_total", ("reason", "status")), 14);
    assert_eq!(scene.gauge("verbena_proxy_pages"), 4.0);
}

#[test]
fn a_request_that_the_application_refuses_keeps_a_page_out_for_a_moment_only() {
    let scene = Scene::new();
    let mut client = scene.client();
    for (status, detail) in [(431, "detail=failing"), (302, "detail=status; remembered")] {
        let path = format!("/{status}");
        client.get_with(&path, &["Accept-Language: what nobody speaks"]);
        scene.origin.asked(&path).says(&format!("HTTP/1.1 {status} No\r\nContent-Length: 0\r\n\r\n"));
        client.answer().has(status).said("detail=status");
        client.get(&path);
        scene.origin.asked(&path).depends("front", "one");
        client.answer().is(200, "one").said(detail);
        scene.comes("a fill", |_| {
            client.get(&path);
            if let Some(asked) = scene.origin.asked_soon() {
                asked.depends("front", "two");
            }
            let answer = client.answer();
            answer.is(200, "two");
            answer.head.contains("verbena; hit")
        });
    }
}

#[test]
fn a_client_that_wants_to_be_sure_is_answered_from_a_copy_that_was_validated() {
    let scene = Scene::new();
    scene.fills("/", "front", "one");
    let mut client = scene.client();
    for line in ["Cache-Control: no-cache", "Cache-Control: max-age=0", "Pragma: no-cache", "Cache-Control: max-stale"]
    {
        client.get_with("/", &[line]);
        client.answer().is(200, "one").said("verbena; hit");
    }
    scene.origin.is_left_alone();
}

#[test]
fn tags_are_compared_as_the_rfc_compares_them() {
    let scene = Scene::new();
    let mut client = scene.client();
    client.get("/");
    scene.origin.asked("/").answers(&["ETag: \"a,b\"", "Verbena-Dependencies: front"], "one");
    client.answer().is(200, "one");
    scene.hits("/", "one");
    for (method, lines, status) in [
        ("GET", "If-None-Match: \"x\", W/\"a,b\"", 304),
        ("GET", "If-None-Match: \"x\"\r\nIf-None-Match: \"a,b\"", 304),
        ("GET", "If-None-Match: *", 304),
        ("HEAD", "If-None-Match: \"a,b\"", 304),
        ("GET", "If-None-Match: \"a\", \"b\"", 200),
        // A list that does not match makes the date count for nothing.
        ("GET", "If-None-Match: \"x\"\r\nIf-Modified-Since: Sun, 06 Nov 2194 08:49:37 GMT", 200),
    ] {
        client.send(&format!("{method} / HTTP/1.1\r\nHost: shop\r\n{lines}\r\n\r\n"));
        let answer = client.answer();
        answer.has(status).said("verbena; hit");
        assert_eq!(answer.field("etag").unwrap(), "\"a,b\"", "{lines}");
    }
    // What the application must decide, it decides.
    for line in ["If-Match: \"a,b\"", "If-Unmodified-Since: Sun, 06 Nov 1994 08:49:37 GMT"] {
        client.get_with("/", &[line]);
        let asked = scene.origin.asked("/");
        let (name, value) = line.split_once(": ").unwrap();
        assert_eq!(asked.field(name).unwrap(), value);
        asked.page("decided");
        client.answer().is(200, "decided").said("detail=precondition");
    }
    scene.hits("/", "one");
}

#[test]
fn what_varies_by_what_a_proxy_adds_is_for_nobody_else() {
    let scene = Scene::new();
    let mut client = scene.client();
    for (path, vary) in [("/address", "X-Forwarded-For"), ("/way", "Accept, Via")] {
        client.get(path);
        scene.origin.asked(path).answers(&[&format!("Vary: {vary}"), "Verbena-Dependencies: a"], "for 127.0.0.1");
        client.answer().is(200, "for 127.0.0.1").said("detail=vary-all");
        scene.misses(path);
    }
}
