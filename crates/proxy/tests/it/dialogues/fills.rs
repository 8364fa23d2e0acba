//! Looking, and filling what was not there.

use verbena_caching::Keys;
use verbena_content::Scope;

use crate::scene::Scene;

#[test]
fn a_page_is_fetched_once_and_then_hit() {
    let scene = Scene::new();
    let mut client = scene.client();
    client.get("/");
    scene.origin.asked("/").depends("front", "one");
    let answer = client.answer();
    answer.is(200, "one").said("verbena; fwd=uri-miss; fwd-status=200; stored");
    assert_eq!(answer.field("verbena-dependencies"), None);
    assert_eq!(answer.field("cache-control").unwrap(), "no-cache");
    scene.hits("/", "one");
    client.get("/");
    let hit = client.answer();
    hit.is(200, "one");
    assert_eq!(hit.field("cache-status").unwrap(), "verbena; hit");
    assert_eq!(hit.field("verbena-dependencies"), None);
    assert_eq!(hit.field("cache-control").unwrap(), "no-cache");
    scene.origin.is_left_alone();
    assert!(scene.counted("verbena_proxy_answers_total", ("result", "hit")) >= 2);
    assert_eq!(
        scene.counted("verbena_proxy_misses_total", ("reason", "uri-miss")),
        1 + scene.counted("verbena_proxy_answers_total", ("result", "error"))
    );
}

#[test]
fn a_fill_that_an_update_overtakes_is_not_stored() {
    // The update touches the page while it is made: it begins, it may end, then the old page comes.
    for ends_before in [true, false] {
        for touched in [Some("front"), None] {
            let scene = Scene::new();
            let mut client = scene.client();
            client.get("/");
            let asked = scene.origin.asked("/");
            let mut update = Some(scene.begins(touched));
            if ends_before {
                scene.ends(update.take().unwrap());
            }
            asked.depends("front", "old");
            client.answer().is(200, "old");
            scene.misses("/");
            if let Some(update) = update {
                scene.ends(update);
            }
            scene.misses("/");
            scene.fills("/", "front", "new");
        }
    }
}

#[test]
fn an_update_of_something_else_does_not_disturb_a_fill() {
    let scene = Scene::new();
    let mut client = scene.client();
    client.get("/");
    let asked = scene.origin.asked("/");
    let update = scene.begins(Some("other"));
    asked.depends("front", "one");
    client.answer().is(200, "one");
    scene.hits("/", "one");
    scene.ends(update);
    scene.hits("/", "one");
}

#[test]
fn a_page_that_declares_nothing_depends_on_everything() {
    let scene = Scene::new();
    let mut client = scene.client();
    client.get("/");
    scene.origin.asked("/").page("one");
    client.answer().is(200, "one");
    scene.hits("/", "one");
    scene.ends(scene.begins(Some("other")));
    client.get("/");
    scene.origin.asked("/").page("two");
    client.answer().is(200, "two").said("fwd=stale").said("detail=moved");
}

#[test]
fn a_page_goes_with_its_address_whatever_else_is_in_its_key() {
    let scene = Scene::new();
    let named = ["X-Forwarded-Host: shop", "X-Forwarded-Proto: https"];
    let mut client = scene.client();
    for (body, what) in [("one", "fwd=uri-miss"), ("two", "detail=moved")] {
        client.get_with("/?a", &named);
        scene.origin.asked("/?a").depends("front", body);
        client.answer().is(200, body).said(what);
        // Its client has it before it is stored.
        scene.comes("the page", |scene| scene.gauge("verbena_proxy_fill_bytes") == 0.0);
        for of in ["/?b", "/?a"] {
            client.get_with("/?a", &[&named[..], &["Cache-Control: only-if-cached"]].concat());
            client.answer().is(200, body).said("verbena; hit");
            let names = scene.node.content.names();
            let key = Keys::new(names.page_secret()).of_page("shop", of).unwrap();
            let page = names.page(&key.0.to_le_bytes());
            let purge = scene.node.content.begin(Scope::of([page.into()]));
            scene.ends(scene.runtime.block_on(purge).unwrap());
        }
    }
}

#[test]
fn during_an_update_pages_come_from_the_application() {
    let scene = Scene::new();
    scene.fills("/", "front", "one");
    let update = scene.begins(Some("front"));
    let mut client = scene.client();
    client.get("/");
    scene.origin.asked("/").depends("front", "during");
    client.answer().is(200, "during").said("fwd=stale").said("detail=update-open");
    scene.ends(update);
    client.get("/");
    scene.origin.asked("/").depends("front", "after");
    client.answer().is(200, "after").said("detail=moved");
    assert_eq!(scene.counted("verbena_proxy_misses_total", ("reason", "update-open")), 1);
    scene.hits("/", "after");
}

#[test]
fn without_a_lease_pages_come_from_the_application_and_updates_are_refused() {
    let scene = Scene::new();
    scene.fills("/", "front", "one");
    scene.loses_lease();
    let mut client = scene.client();
    client.get("/");
    scene.origin.asked("/").depends("front", "two");
    client.answer().is(200, "two").said("detail=no-lease");
    // Nor is anything filled.
    client.get("/other");
    scene.origin.asked("/other").depends("front", "other");
    client.answer().is(200, "other").said("fwd=uri-miss").said("detail=no-lease");
    client.post("/", "x");
    client.answer().has(503).said("fwd=method").said("detail=update-not-begun");
    scene.origin.is_left_alone();
    assert_eq!(scene.counted("verbena_proxy_misses_total", ("reason", "no-lease")), 2);
    assert_eq!(scene.counted("verbena_proxy_misses_total", ("reason", "update-not-begun")), 1);
}

#[test]
fn a_client_that_hangs_up_leaves_a_whole_page_or_none() {
    let scene = Scene::new();
    let mut client = scene.client();
    client.get("/");
    let mut asked = scene.origin.asked("/");
    asked.says("HTTP/1.1 200 OK\r\nVerbena-Dependencies: a\r\nContent-Length: 6\r\n\r\nabc");
    client.head().has(200);
    client.hangs_up();
    scene.misses("/");
    asked.says("def");
    scene.hits("/", "abcdef");
}

#[test]
fn another_life_of_the_node_stores_pages_again() {
    let mut scene = Scene::new();
    scene.fills("/", "a", "one");
    scene.lives_again();
    let mut client = scene.client();
    client.get("/");
    scene.origin.asked("/").depends("a", "two");
    client.answer().is(200, "two").said("fwd=stale");
    scene.hits("/", "two");
}
