//! Standard mode where two things meet: a purge and another spelling, a part and an application that fails, a refresh and its client's credentials.

use verbena_caching::Mode;

use crate::scene::Scene;

const LIVES: &str = "Cache-Control: max-age=600";
const OLD: [&str; 3] = ["Cache-Control: max-age=1, stale-if-error=600", "Age: 5", "ETag: \"1\""];

fn scene() -> Scene {
    Scene::with(|config| {
        config.mode = Mode::Standard;
        config.purge_from = vec!["127.0.0.0/8".into()];
    })
}

/// A page that is stored with these lines, old ones too.
#[track_caller]
fn fills(scene: &Scene, path: &str, lines: &[&str], body: &str) {
    let before = scene.gauge("verbena_proxy_pages");
    let mut client = scene.client();
    client.get(path);
    scene.origin.asked(path).answers(lines, body);
    client.answer().is(200, body).said("stored");
    scene.comes("a stored page", |scene| scene.gauge("verbena_proxy_pages") > before);
}

#[test]
fn an_address_is_purged_however_its_host_and_its_path_are_spelled() {
    for (host, target) in [("shop:80", "/blog?a"), ("shop:443", "/%62log?a"), ("SHOP", "/%62log?a")] {
        let scene = scene();
        for path in ["/blog?a", "/%62log?a", "/other"] {
            fills(&scene, path, &[LIVES], path);
            scene.hits(path, path);
        }
        let mut client = scene.client();
        client.send(&format!("PURGE {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        client.answer().has(200);
        scene.misses("/blog?a");
        scene.misses("/%62log?a");
        scene.hits("/other", "/other");
    }
}

#[test]
fn a_write_purges_its_target_however_that_is_spelled() {
    let scene = scene();
    fills(&scene, "/blog", &[LIVES], "one");
    scene.hits("/blog", "one");
    let mut client = scene.client();
    client.send("POST /%62log HTTP/1.1\r\nHost: shop:80\r\nContent-Length: 0\r\n\r\n");
    scene.origin.asked("/%62log").answers(&[], "done");
    client.answer().is(200, "done");
    scene.misses("/blog");
}

#[test]
fn a_prefix_is_purged_however_paths_under_it_are_spelled() {
    let scene = scene();
    for path in ["/%62log/a", "/x/../blog/b", "//blog/c", "/blogs"] {
        fills(&scene, path, &[LIVES], path);
        scene.hits(path, path);
    }
    let mut client = scene.client();
    client.send("PURGE /bl%6Fg/.* HTTP/1.1\r\nHost: shop\r\nX-Purge-Method: regex\r\n\r\n");
    client.answer().has(200);
    for path in ["/%62log/a", "/x/../blog/b", "//blog/c"] {
        scene.misses(path);
    }
    scene.hits("/blogs", "/blogs");
}

#[test]
fn a_write_that_breaks_off_purges_its_target() {
    let scene = scene();
    fills(&scene, "/a", &[LIVES], "one");
    scene.hits("/a", "one");
    let mut client = scene.client();
    client.post("/a", "new");
    let mut asked = scene.origin.asked("/a");
    asked.reads(3);
    asked.closes();
    client.answer().has(502).said("origin-broken");
    scene.misses("/a");
}

#[test]
fn a_part_of_an_old_page_stands_for_an_application_that_fails() {
    let scene = scene();
    fills(&scene, "/", &OLD, "0123456789");
    let mut client = scene.client();
    for fails in [true, false] {
        client.get_with("/", &["Range: bytes=2-4"]);
        let asked = scene.origin.asked("/");
        assert_eq!(asked.field("range").as_deref(), Some("bytes=2-4"));
        if fails {
            asked.answers_status(503, &[], "broken");
            client.answer().is(206, "234").said("origin-down");
        } else {
            asked.answers_status(206, &["Content-Range: bytes 2-4/10"], "abc");
            client.answer().is(206, "abc").said("range");
        }
    }
}

#[test]
fn a_head_with_another_tag_drops_the_stored_page() {
    for (tag, is_kept) in [("ETag: \"1\"", true), ("ETag: \"2\"", false)] {
        let scene = scene();
        fills(&scene, "/", &OLD, "one");
        let mut client = scene.client();
        client.send("HEAD / HTTP/1.1\r\nHost: shop\r\n\r\n");
        let asked = scene.origin.asked("/");
        assert!(asked.head.starts_with("HEAD "));
        asked.answers_head(200, &[LIVES, tag]);
        client.head().said("head");
        // What is stored is asked about; what is not is fetched.
        let mut client = scene.client();
        client.get("/");
        let asked = scene.origin.asked("/");
        assert_eq!(asked.field("if-none-match").is_some(), is_kept, "{tag}");
        asked.answers(&[LIVES], "two");
        client.answer().is(200, "two");
    }
}

#[test]
fn a_refresh_is_made_without_the_credentials_of_the_client_that_met_the_old_page() {
    let old = ["Cache-Control: public, max-age=1, stale-while-revalidate=600", "Age: 5", "ETag: \"1\""];
    for (vary, is_sent) in [("Vary: accept", false), ("Vary: cookie, authorization", true)] {
        let scene = scene();
        let lines = ["Authorization: Basic eA==", "Cookie: sid=1"];
        let mut client = scene.client();
        client.get_with("/", &lines);
        let stored: Vec<&str> = old.iter().copied().chain([vary]).collect();
        scene.origin.asked("/").answers(&stored, "one");
        client.answer().is(200, "one").said("stored");
        scene.comes("the stored page", |scene| scene.gauge("verbena_proxy_pages") > 1.0);
        client.get_with("/", &lines);
        client.answer().is(200, "one").said("hit; ttl=-");
        let asked = scene.origin.asked("/");
        assert_eq!(asked.field("if-none-match").as_deref(), Some("\"1\""));
        for name in ["authorization", "cookie"] {
            assert_eq!(asked.field(name).is_some(), is_sent, "{name} with {vary}");
        }
        asked.answers_head(304, &["Cache-Control: public, max-age=600"]);
        scene.comes("the page made new", |_| {
            client.get_with("/", &[&lines[..], &["Cache-Control: only-if-cached, max-stale=0"]].concat());
            client.answer().field("cache-status").is_some_and(|status| status.contains("ttl=5"))
        });
    }
}

#[test]
fn who_wants_the_newest_is_not_followed_by_an_older_page() {
    let scene = scene();
    let mut first = scene.client();
    first.get("/");
    let mut slow = scene.origin.asked("/");
    slow.says(&format!("HTTP/1.1 200 OK\r\n{LIVES}\r\nContent-Length: 5\r\n\r\nol"));
    let mut second = scene.client();
    second.get_with("/", &["Cache-Control: no-cache"]);
    // What is coming was asked for before the second request came: it has one of its own.
    scene.origin.asked("/").answers(&[LIVES], "newer");
    second.answer().is(200, "newer");
    scene.hits("/", "newer");
    slow.says("der");
    first.answer().is(200, "older");
    scene.hits("/", "newer");
    scene.comes("the end of the fill", |scene| scene.gauge("verbena_proxy_fill_bytes") == 0.0);
    scene.hits("/", "newer");
}
