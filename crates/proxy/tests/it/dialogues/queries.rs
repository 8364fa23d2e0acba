//! Parameters of a query that make no other page.

use verbena_caching::{Query, Route};

use crate::scene::Scene;

fn scene() -> Scene {
    let query = Query { ignore: ["utm_*", "gclid"].into(), sort: true };
    Scene::with(|config| config.routes = vec![Route { query, ..Route::default() }.into()])
}

#[test]
fn what_a_route_ignores_is_in_no_key_and_does_not_reach_the_application() {
    let scene = scene();
    let mut client = scene.client();
    client.get_with("/a?b=2&utm_source=mail&a=1", &["X-Original-URL: /a?b=2&utm_source=mail&a=1"]);
    let asked = scene.origin.asked("/a?a=1&b=2");
    assert_eq!(asked.field("x-original-url").as_deref(), Some("/a?a=1&b=2"));
    asked.depends("front", "page");
    client.answer().is(200, "page").said("stored");
    for spelled in ["/a?b=2&utm_source=mail&a=1", "/a?gclid=7&a=1&b=2", "/a?a=1&b=2"] {
        scene.hits(spelled, "page");
    }
    for other in ["/a", "/a?a=1", "/a?a=1&b=2&c"] {
        scene.misses(other);
    }
    scene.origin.is_left_alone();
}

#[test]
fn a_request_that_writes_or_is_passed_on_keeps_its_query() {
    let scene = scene();
    let mut client = scene.client();
    client.post("/a?utm_source=mail&b&a", "");
    scene.origin.asked("/a?utm_source=mail&b&a").page("written");
    client.answer().is(200, "written");
    client.get_with("/a?gclid=1&b", &["Range: bytes=0-0"]);
    scene.origin.asked("/a?gclid=1&b").page("part");
    client.answer().is(200, "part").said("detail=range");
}

#[test]
fn an_update_of_an_address_as_a_client_spelled_it_reaches_its_page() {
    let scene = scene();
    let keys = verbena_caching::Keys::new(scene.node.content.names().page_secret());
    for purged in ["http://shop/a?gclid=9&b=1", "http://SHOP/a?b=1"] {
        scene.fills("/a?b=1", "front", "old");
        let key = keys.of_any_query_at(purged).unwrap();
        let page = scene.node.content.names().page(&key.0.to_le_bytes());
        let update =
            scene.runtime.block_on(scene.node.content.begin(verbena_content::Scope::of([page.into()]))).unwrap();
        scene.ends(update);
        scene.misses("/a?b=1");
    }
}
