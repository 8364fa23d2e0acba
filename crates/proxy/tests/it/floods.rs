//! What clients and applications may do to a proxy without end, beside what `memory` measures: each is bounded, answered with the
//! right status, and counted.

use std::time::Duration;

use crate::scene::{Client, Scene};
use verbena_content::MAX_DEPENDENCIES;

#[test]
fn updates_that_never_end_are_so_many_and_the_next_is_503() {
    const MOST: usize = 256;
    let scene = Scene::with(|config| config.origin_timeout.0 = Duration::from_secs(60));
    scene.fills("/", "front", "one");
    let mut writers: Vec<Client> = Vec::new();
    let mut asked = Vec::new();
    for _ in 0..MOST {
        let mut writer = scene.client();
        writer.post("/buy", "one");
        asked.push(scene.origin.asked("/buy"));
        writers.push(writer);
    }
    scene.comes("the last", |scene| scene.node.content.counts().updater.forwarded == MOST);
    assert_eq!(scene.gauge("verbena_proxy_requests_in_flight"), MOST as f64);
    let mut refused = scene.client();
    refused.post("/buy", "one");
    refused.answer().has(503).said("detail=too-many-updates");
    scene.origin.is_left_alone();
    assert_eq!(scene.counted("verbena_proxy_misses_total", ("reason", "too-many-updates")), 1);
    assert_eq!(scene.node.content.counts().updater.forwarded, MOST);
    // Readers are answered by the application.
    scene.misses("/");
    // One that ends makes room for one.
    asked.remove(0).page("bought");
    writers.remove(0).answer().is(200, "bought");
    refused.post("/buy", "one");
    scene.origin.asked("/buy").page("bought");
    refused.answer().is(200, "bought");
}

#[test]
fn a_page_that_names_too_much_is_kept_until_anything_is_updated() {
    let scene = Scene::new();
    let line = |count: usize| (0..count).map(|nth| format!("row-{nth}")).collect::<Vec<_>>().join(", ");
    for (path, declared, reason) in [
        ("/many", line(MAX_DEPENDENCIES + 1), "too-many"),
        ("/long", "x".repeat(1025), "too-long"),
        ("/wrong", "\"open".to_owned(), "malformed"),
    ] {
        scene.fills(path, &declared, "one");
        assert_eq!(scene.counted("verbena_proxy_undeclared_total", ("reason", reason)), 1, "{path}");
        // It could be anything that the page was made from.
        scene.ends(scene.begins(Some("something else")));
        scene.misses(path);
    }
    scene.fills("/most", &line(MAX_DEPENDENCIES), "one");
    scene.ends(scene.begins(Some(&format!("row-{}", MAX_DEPENDENCIES - 1))));
    scene.misses("/most");
    let mut client = scene.client();
    client.get("/none");
    scene.origin.asked("/none").page("one");
    client.answer().is(200, "one").said("stored");
    assert_eq!(scene.counted("verbena_proxy_undeclared_total", ("reason", "nothing")), 1);
}
