//! Soft purges, hard ones and writes: what is left of a standard page (rule H3).

use verbena_caching::{Keys, Mode};
use verbena_content::{Change, Scope};

use crate::scene::{Answer, Scene};

/// May be answered stale, and asked about.
const LASTING: [&str; 3] = [
    "Cache-Control: max-age=600, stale-while-revalidate=600, stale-if-error=600",
    "ETag: \"1\"",
    "Surrogate-Key: shop",
];

fn scene() -> Scene {
    Scene::with(standard)
}

fn standard(config: &mut verbena_proxy::ProxyConfig) {
    config.mode = Mode::Standard;
    config.purge_from = vec!["127.0.0.0/8".into()];
}

/// A page that is stored with these lines.
fn fills(scene: &Scene, lines: &[&str]) {
    let mut client = scene.client();
    client.get("/");
    scene.origin.asked("/").answers(lines, "one");
    client.answer().is(200, "one").said("stored");
    scene.hits("/", "one");
}

/// What bears the name is purged, and its home has heard of the end.
fn purges(scene: &Scene, change: Change) {
    let scope = scene.node.only(b"shop");
    scene.runtime.block_on(scene.node.content.purge(change, scope)).unwrap();
    is_over(scene);
}

/// No update of the page is open at its home any more.
fn is_over(scene: &Scene) {
    let names = scene.node.content.names();
    let page = names.page(&Keys::new(names.page_secret()).of_page("shop", "/").unwrap().0.to_le_bytes());
    scene.comes("the end of the update", |scene| {
        let reading = scene.node.content.read(page).unwrap();
        let words = scene.runtime.block_on(reading.words());
        words.is_some_and(|(_, words)| !words.word.is_busy() && !words.purge.is_busy() && !words.everything.is_busy())
    });
}

fn asks(scene: &Scene, method: &str, lines: &str) -> Answer {
    let mut client = scene.client();
    client.send(&format!("{method} / HTTP/1.1\r\nHost: shop\r\n{lines}\r\n"));
    client.answer()
}

/// The application is asked for the page, by its tag or anew, and the client gets this.
#[track_caller]
fn is_fetched(scene: &Scene, by_tag: bool) {
    let mut client = scene.client();
    client.get("/");
    let asked = scene.origin.asked("/");
    assert_eq!(asked.field("if-none-match").is_some(), by_tag);
    asked.answers(&["Cache-Control: no-store"], "fetched");
    client.answer().is(200, "fetched").said("fwd=stale");
}

#[test]
fn a_softly_purged_page_is_answered_while_it_is_fetched_anew_and_a_304_makes_it_new() {
    for scene in [scene(), Scene::far_from_home(standard)] {
        fills(&scene, &LASTING);
        purges(&scene, Change::Soft);
        let mut client = scene.client();
        client.get("/");
        client.answer().is(200, "one").said("verbena; hit; ttl=0; detail=soft-purge");
        let asked = scene.origin.asked("/");
        assert_eq!(asked.field("if-none-match").as_deref(), Some("\"1\""));
        client.get("/");
        client.answer().is(200, "one").said("detail=soft-purge");
        scene.origin.is_left_alone();
        asked.answers_head(304, &LASTING);
        scene.comes("the page that is right still", |_| {
            client.get("/");
            let answer = client.answer();
            answer.is(200, "one");
            !answer.field("cache-status").unwrap().contains("soft-purge")
        });
        // A look that had begun before it was stored may have come to a refresh of its own.
        assert!((1..=2).contains(&scene.counter("verbena_proxy_refreshes_total")));
    }
}

#[test]
fn of_a_hard_purge_nothing_is_left_also_behind_a_soft_one() {
    for (changes, all) in
        [(&[Change::Hard][..], false), (&[Change::Soft, Change::Hard, Change::Soft], false), (&[], true)]
    {
        let scene = scene();
        fills(&scene, &LASTING);
        for change in changes {
            purges(&scene, *change);
        }
        if all {
            scene.runtime.block_on(scene.node.content.purge(Change::Hard, Scope::All)).unwrap();
            is_over(&scene);
        }
        is_fetched(&scene, false);
        // Nor for an application that fails.
        let mut client = scene.client();
        client.get("/");
        scene.origin.asked("/").answers_status(503, &[], "broken");
        client.answer().is(503, "broken");
    }
}

#[test]
fn a_softly_purged_page_stands_for_an_application_that_fails_and_a_written_one_does_not() {
    for change in [Change::Soft, Change::Write] {
        let scene = scene();
        fills(&scene, &["Cache-Control: max-age=600, stale-if-error=600", "ETag: \"1\"", "Surrogate-Key: shop"]);
        purges(&scene, change);
        let mut client = scene.client();
        client.get("/");
        let asked = scene.origin.asked("/");
        assert_eq!(asked.field("if-none-match").as_deref(), Some("\"1\""));
        asked.answers_status(503, &[], "broken");
        match change {
            Change::Soft => client.answer().is(200, "one").said("hit; ttl=0; detail=origin-down"),
            _ => client.answer().is(503, "broken"),
        };
    }
}

#[test]
fn what_was_written_is_never_answered_stale_and_is_asked_about_by_its_tag() {
    let scene = scene();
    fills(&scene, &LASTING);
    let mut client = scene.client();
    client.post("/", "a=1");
    scene.origin.asked("/").answers(&[], "written");
    client.answer().is(200, "written");
    is_over(&scene);
    client.get("/");
    let asked = scene.origin.asked("/");
    assert_eq!(asked.field("if-none-match").as_deref(), Some("\"1\""));
    asked.answers_head(304, &LASTING);
    client.answer().is(200, "one").said("fwd=stale; fwd-status=304; stored");
    scene.hits("/", "one");
}

#[test]
fn a_softly_purged_page_is_used_only_as_its_answer_and_the_request_allow() {
    for (lines, request, by_tag) in [
        (&["Cache-Control: max-age=600", "ETag: \"1\"", "Surrogate-Key: shop"][..], "", true),
        // A weak tag and a date do not tell two states of one second apart.
        (&["Cache-Control: max-age=600", "ETag: W/\"1\"", "Surrogate-Key: shop"], "", false),
        (
            &["Cache-Control: max-age=600", "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT", "Surrogate-Key: shop"],
            "",
            false,
        ),
        (&["Cache-Control: s-maxage=600, stale-while-revalidate=600", "ETag: \"1\"", "Surrogate-Key: shop"], "", true),
        (&LASTING, "Cache-Control: no-cache\r\n", true),
    ] {
        let scene = scene();
        fills(&scene, lines);
        purges(&scene, Change::Soft);
        let mut client = scene.client();
        client.send(&format!("GET / HTTP/1.1\r\nHost: shop\r\n{request}\r\n"));
        let asked = scene.origin.asked("/");
        assert_eq!(
            (asked.field("if-none-match").is_some(), asked.field("if-modified-since")),
            (by_tag, None),
            "{lines:?}"
        );
        asked.answers(&["Cache-Control: max-age=600"], "two");
        client.answer().is(200, "two").said("fwd=stale");
    }
}

#[test]
fn a_purge_request_says_whether_it_is_soft() {
    let scene = scene();
    for (method, lines) in [
        ("PURGE", "Fastly-Soft-Purge: 1\r\n"),
        ("PURGE", "Fastly-Soft-Purge: 1\r\nSurrogate-Key: shop\r\n"),
        ("PURGEKEYS", "xkey-softpurge: other shop\r\n"),
    ] {
        fills(&scene, &LASTING);
        asks(&scene, method, lines).has(200).said("purged-softly");
        is_over(&scene);
        let mut client = scene.client();
        client.get("/");
        client.answer().is(200, "one").said("detail=soft-purge");
        scene.origin.asked("/").answers(&LASTING, "two");
        asks(&scene, "PURGEKEYS", "xkey-purge: shop\r\n").has(200).said("purged");
        is_over(&scene);
        scene.misses("/");
        scene.comes("room for the next", |scene| {
            client.get("/");
            scene.origin.asked("/").answers(&LASTING, "one");
            let answer = client.answer();
            answer.field("cache-status").is_some_and(|status| status.contains("stored"))
        });
        scene.hits("/", "one");
        asks(&scene, "PURGE", "").has(200);
        is_over(&scene);
    }
    asks(&scene, "PURGEKEYS", "").has(400).said("purge-malformed");
}

#[test]
fn a_fill_that_waited_asks_about_nothing_that_was_purged_meanwhile() {
    for change in [Change::Hard, Change::Soft] {
        let scene = Scene::with(|config| {
            standard(config);
            config.fills = 1;
        });
        fills(&scene, &LASTING);
        let mut slow = scene.client();
        slow.get("/slow");
        let asked_first = scene.origin.asked("/slow");
        let mut client = scene.client();
        client.get_with("/", &["Cache-Control: no-cache"]);
        scene.comes("a fill that waits", |scene| scene.gauge("verbena_proxy_fills_waiting") == 1.0);
        purges(&scene, change);
        asked_first.answers(&["Cache-Control: no-store"], "slow");
        let asked = scene.origin.asked("/");
        assert_eq!(asked.field("if-none-match").is_some(), change == Change::Soft, "{change:?}");
        asked.answers(&LASTING, "two");
        client.answer().is(200, "two");
    }
}
