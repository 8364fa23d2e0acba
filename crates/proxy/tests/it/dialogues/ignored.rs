//! What becomes of an answer that sets an ignored cookie, or carries the value of one.

use verbena_caching::{CookieRule, Rule};

use crate::scene::Scene;

const NOT_STORED: &str = "verbena_proxy_not_stored_total";

/// A scene in which `sid` and `_ga*` are ignored.
fn scene(publish: Option<bool>) -> Scene {
    let ignore = Some(["sid", "_ga*"].map(String::from).into());
    let cookies = CookieRule { ignore, publish, ..CookieRule::default() };
    Scene::with(|config| config.routes = vec![Rule { cookies, ..Rule::default() }])
}

#[test]
fn a_page_with_a_new_session_goes_to_its_client_alone() {
    let scene = scene(None);
    let form = "<input name=csrf value=of-the-first>";
    let mut first = scene.client();
    first.get("/form");
    scene.origin.asked("/form").answers(&["Set-Cookie: sid=first; Path=/", "Verbena-Dependencies: a"], form);
    let answer = first.answer();
    assert_eq!(
        answer.is(200, form).said("detail=set-cookie").field("set-cookie").as_deref(),
        Some("sid=first; Path=/")
    );
    let mut second = scene.client();
    second.get("/form");
    scene.origin.asked("/form").answers(&["Set-Cookie: sid=second; Path=/", "Verbena-Dependencies: a"], "second");
    let answer = second.answer();
    assert_eq!(answer.is(200, "second").field("set-cookie").as_deref(), Some("sid=second; Path=/"));
    assert_eq!(scene.gauge("verbena_proxy_pages"), 0.0);
}

/// Its page belongs to the session that it has, or its forms would be refused.
#[test]
fn a_client_whose_session_was_hidden_is_asked_for_again_with_it() {
    let scene = scene(None);
    let mut client = scene.client();
    let with = ["Cookie: sid=mine; _ga=1"];
    client.get_with("/form", &with);
    let asked = scene.origin.asked("/form");
    assert_eq!(asked.field("cookie"), None);
    asked.answers(&["Set-Cookie: sid=new", "Verbena-Dependencies: a"], "token of new");
    let asked = scene.origin.asked("/form");
    assert_eq!(asked.field("cookie").as_deref(), Some("sid=mine; _ga=1"));
    asked.answers(&["Verbena-Dependencies: a"], "token of mine");
    let answer = client.answer();
    answer.is(200, "token of mine").said("detail=set-cookie");
    assert_eq!(answer.field("set-cookie"), None);
    // That nothing of it is stored is remembered, so the next one goes with its cookies at once.
    client.get_with("/form", &with);
    let asked = scene.origin.asked("/form");
    assert_eq!(asked.field("cookie").as_deref(), Some("sid=mine; _ga=1"));
    asked.answers(&["Set-Cookie: sid=renewed"], "token of mine");
    assert_eq!(client.answer().is(200, "token of mine").field("set-cookie").as_deref(), Some("sid=renewed"));
    scene.origin.is_left_alone();
}

#[test]
fn a_body_with_the_value_of_a_hidden_cookie_is_for_its_client_alone() {
    let scene = scene(None);
    let mut client = scene.client();
    client.get_with("/", &["Cookie: sid=s%3Asecret-7"]);
    let mut asked = scene.origin.asked("/");
    // It comes in pieces, and the value lies across them.
    asked.says("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nVerbena-Dependencies: a\r\n\r\n6\r\n<s:sec\r\n");
    client.head();
    asked.says("6\r\nret-7>\r\n0\r\n\r\n");
    asked.closes();
    scene.comes("the refusal", |scene| scene.counted(NOT_STORED, ("reason", "cookie-value")) == 1);
    // Nothing follows for others: the next one's page is stored.
    scene.fills("/", "a", "page");
    assert_eq!(scene.counted(NOT_STORED, ("reason", "cookie-value")), 1);
}

#[test]
fn a_field_with_the_value_of_a_hidden_cookie_is_for_its_client_alone() {
    let scene = scene(None);
    let mut client = scene.client();
    client.get_with("/", &["Cookie: sid=secret-7"]);
    scene.origin.asked("/").answers(&["Link: </?sid=secret-7>", "Verbena-Dependencies: a"], "page");
    client.answer().is(200, "page").said("detail=cookie-value");
    client.get_with("/", &["Cookie: sid=secret-8"]);
    scene.origin.asked("/").answers(&["Link: </>", "Verbena-Dependencies: a"], "page");
    client.answer().is(200, "page").said("stored");
    scene.hits("/", "page");
}

#[test]
fn a_short_value_is_no_secret() {
    let scene = scene(None);
    let mut client = scene.client();
    client.get_with("/", &["Cookie: sid=page"]);
    scene.origin.asked("/").depends("a", "the page");
    client.answer().is(200, "the page").said("stored");
    scene.hits("/", "the page");
}

#[test]
fn a_route_may_say_that_such_answers_are_for_everybody() {
    let scene = scene(Some(true));
    let mut client = scene.client();
    client.get_with("/", &["Cookie: _ga=GA1.2.345"]);
    scene.origin.asked("/").answers(&["Set-Cookie: sid=first", "Verbena-Dependencies: a"], "GA1.2.345");
    client.answer().is(200, "GA1.2.345").said("stored");
    scene.hits("/", "GA1.2.345");
}
