//! Requests of clients that have a copy (RFC 9110 section 13): whoever decides, 304 means that the copy is what a 200 would say.

use crate::scene::Scene;

const MET: &str = "If-None-Match: \"x\"";
const DATE: &str = "If-Modified-Since: Sun, 06 Nov 2094 08:49:37 GMT";

#[test]
fn a_condition_is_judged_against_the_answer_that_fills_the_cache() {
    let scene = Scene::new();
    let mut client = scene.client();
    for (path, line, tag, status) in [
        ("/strong", MET, "\"x\"", 304),
        ("/weakened", "If-None-Match: W/\"x\"", "\"x\"", 304),
        ("/weak", "If-None-Match: \"a\", W/\"x\"", "W/\"x\"", 304),
        ("/any", "If-None-Match: *", "\"y\"", 304),
        ("/other", MET, "\"y\"", 200),
        // In one second a page may change twice.
        ("/date", DATE, "\"x\"\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT", 200),
    ] {
        client.get_with(path, &[line]);
        let asked = scene.origin.asked(path);
        assert_eq!((asked.field("if-none-match"), asked.field("if-modified-since")), (None, None), "{path}");
        asked.answers(&[&format!("ETag: {tag}"), "Verbena-Dependencies: front"], "page");
        let answer = client.answer();
        answer.has(status).said("fwd-status=200; stored");
        assert!(tag.starts_with(&answer.field("etag").unwrap()), "{path}");
        assert_eq!(answer.field("content-length").is_some(), status == 200, "{path}");
        scene.hits(path, "page");
    }
    scene.origin.is_left_alone();
}

#[test]
fn a_client_that_waited_for_the_fetch_of_another_is_told_too() {
    let scene = Scene::new();
    let (mut leader, mut other) = (scene.client(), scene.client());
    leader.get("/");
    let asked = scene.origin.asked("/");
    other.get_with("/", &[MET]);
    scene.has_waiting(1);
    asked.answers(&["ETag: \"x\""], "page");
    leader.answer().is(200, "page");
    other.answer().has(304).said("collapsed");
}

#[test]
fn after_an_update_a_client_keeps_what_did_not_change() {
    let scene = Scene::new();
    scene.fills("/", "front", "one");
    let mut client = scene.client();
    client.get("/");
    // The application sends no tag, so it is made of the body.
    let tag = client.answer().field("etag").unwrap();
    let long = "x".repeat(100_000);
    for (body, lines, status) in [
        ("one", format!("If-None-Match: {tag}"), 304),
        ("one", format!("If-None-Match: W/{tag}"), 304),
        ("two", format!("If-None-Match: {tag}"), 200),
        (&long, format!("If-None-Match: {tag}"), 200),
        ("", format!("If-None-Match: {tag}"), 200),
    ] {
        scene.ends(scene.begins(None));
        client.get_with("/", &[&lines]);
        scene.origin.asked("/").depends("front", body);
        let answer = client.answer();
        match status {
            304 => assert_eq!(answer.has(304).field("etag").as_ref(), Some(&tag)),
            _ => drop(answer.is(200, body)),
        }
        answer.said("detail=moved");
        scene.hits("/", body);
    }
    // Half a body is judged by nothing.
    scene.ends(scene.begins(None));
    client.get_with("/", &[&format!("If-None-Match: {tag}")]);
    let mut asked = scene.origin.asked("/");
    asked.says("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\non");
    asked.closes();
    client.answer().has(502).said("detail=origin-broken");
}

#[test]
fn a_weak_tag_that_was_passed_on_is_known_again() {
    let scene = Scene::new();
    let mut client = scene.client();
    client.get("/");
    scene.origin.asked("/").answers(&["ETag: W/\"x\"", "Verbena-Dependencies: front"], "page");
    let answer = client.answer();
    assert_eq!(answer.is(200, "page").field("etag").unwrap(), "W/\"x\"");
    scene.hits("/", "page");
    client.get("/");
    let strong = client.answer().is(200, "page").said("verbena; hit").field("etag").unwrap();
    assert!(strong.starts_with("\"v"), "{strong}");
    for (lines, tag, status) in [
        ("If-None-Match: W/\"x\"", "W/\"x\"", 304),
        ("If-None-Match: \"x\"", "W/\"x\"", 304),
        (&format!("If-None-Match: W/\"x\", {strong}"), &strong, 304),
        ("If-None-Match: W/\"y\"", &strong, 200),
    ] {
        client.get_with("/", &[lines]);
        let answer = client.answer();
        answer.has(status).said("verbena; hit");
        assert_eq!(answer.field("etag").unwrap(), tag, "{lines}");
    }
    scene.origin.is_left_alone();
}

#[test]
fn where_nothing_may_be_stored_the_application_decides() {
    let scene = Scene::new();
    let mut client = scene.client();
    for (path, own, answer, detail) in [
        ("/private", "Accept: */*", "Cache-Control: private", "detail=private; remembered"),
        ("/cookie", "Cookie: sid=1", "X-Plain: 1", "detail=cookie"),
    ] {
        // The first is asked for whole: nobody knows yet.
        client.get_with(path, &[own, MET]);
        let asked = scene.origin.asked(path);
        assert_eq!(asked.field("if-none-match"), None);
        asked.answers(&["ETag: \"x\"", answer], "page");
        client.answer().has(304);
        for (line, status) in [(MET, 304), (DATE, 304), ("If-None-Match: \"y\"", 200)] {
            client.get_with(path, &[own, line]);
            let mut asked = scene.origin.asked(path);
            let (name, value) = line.split_once(": ").unwrap();
            assert_eq!(asked.field(name).as_deref(), Some(value), "{path}");
            match status {
                304 => {
                    asked.says("HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\n\r\n");
                    drop(asked);
                }
                _ => asked.answers(&["ETag: \"x\"", answer], "page"),
            }
            client.answer().has(status).said(detail);
        }
    }
}

#[test]
fn while_a_page_of_many_goes_to_one_its_date_is_not_judged_by_the_application() {
    let scene = Scene::new();
    let open = scene.begins(None);
    let mut client = scene.client();
    client.get_with("/", &[MET, DATE]);
    let mut asked = scene.origin.asked("/");
    assert_eq!((asked.field("if-none-match").as_deref(), asked.field("if-modified-since")), (Some("\"x\""), None));
    asked.says("HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\n\r\n");
    drop(asked);
    client.answer().has(304).said("detail=update-open");
    // Whose copy should be still right, where no condition went on?
    client.get_with("/", &[DATE]);
    let mut asked = scene.origin.asked("/");
    asked.says("HTTP/1.1 304 Not Modified\r\n\r\n");
    drop(asked);
    client.answer().has(502).said("detail=origin-broken");
    scene.ends(open);
}

#[test]
fn a_head_of_what_is_not_stored_may_have_a_condition() {
    let scene = Scene::new();
    let mut client = scene.client();
    client.send(&format!("HEAD / HTTP/1.1\r\nHost: shop\r\n{MET}\r\n\r\n"));
    let mut asked = scene.origin.asked("/");
    assert_eq!(asked.field("if-none-match").as_deref(), Some("\"x\""));
    asked.says("HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\n\r\n");
    drop(asked);
    client.answer().has(304).said("detail=head");
}
