//! Standard mode: lifetimes and validators (RFC 9111), with words read at every hit (rules H1, H4, H6, H7).

use verbena_caching::Mode;
use verbena_content::{Change, Scope};

use crate::scene::Scene;

const LIVES: &str = "Cache-Control: max-age=600";

fn scene() -> Scene {
    Scene::with(|config| config.mode = Mode::Standard)
}

/// A page that is stored with these lines.
#[track_caller]
fn fills(scene: &Scene, path: &str, lines: &[&str], body: &str) {
    let mut client = scene.client();
    client.get(path);
    scene.origin.asked(path).answers(lines, body);
    client.answer().is(200, body).said("stored");
}

/// An update of all copies, as a purge of everything is.
fn purge(scene: &Scene, scope: Scope) {
    scene.runtime.block_on(scene.node.content.purge(Change::Hard, scope)).unwrap();
}

/// The stored page comes to be this one: until it is stored, the one before it is right still.
#[track_caller]
fn becomes(scene: &Scene, body: &str) {
    let mut client = scene.client();
    scene.comes("the new page", |_| {
        client.get_with("/", &["Cache-Control: only-if-cached"]);
        client.answer().body == body.as_bytes()
    });
}

#[test]
fn a_page_is_answered_as_long_as_it_lives_and_leaves_as_the_application_sent_it() {
    let scene = scene();
    let lines = [LIVES, "Age: 7", "ETag: W/\"1\"", "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT"];
    fills(&scene, "/", &lines, "one");
    scene.hits("/", "one");
    let mut client = scene.client();
    client.get("/");
    let hit = client.answer();
    hit.is(200, "one").said("verbena; hit; ttl=59");
    assert_eq!(hit.field("cache-control").as_deref(), Some("max-age=600"));
    assert_eq!(hit.field("etag").as_deref(), Some("W/\"1\""));
    let age: u64 = hit.field("age").unwrap().parse().unwrap();
    assert!((7..100).contains(&age), "{age}");
    for condition in ["If-None-Match: \"1\"", "If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT"] {
        client.get_with("/", &[condition]);
        client.answer().is(304, "");
    }
    scene.origin.is_left_alone();
}

#[test]
fn what_other_pages_updates_touch_concerns_no_standard_page() {
    let scene = scene();
    fills(&scene, "/", &[LIVES], "one");
    scene.hits("/", "one");
    let update = scene.begins(None);
    scene.hits("/", "one");
    scene.ends(update);
    scene.hits("/", "one");
    purge(&scene, Scope::All);
    scene.misses("/");
}

#[test]
fn without_a_lease_nothing_is_answered_from_the_cache() {
    let scene = scene();
    fills(&scene, "/", &[LIVES], "one");
    scene.hits("/", "one");
    scene.loses_lease();
    scene.misses("/");
    scene.has_lease_again();
    scene.hits("/", "one");
}

#[test]
fn a_page_is_purged_by_its_tag() {
    let scene = scene();
    fills(&scene, "/", &[LIVES, "Surrogate-Key: shop front"], "one");
    fills(&scene, "/other", &[LIVES], "other");
    scene.hits("/", "one");
    scene.hits("/other", "other");
    let mut client = scene.client();
    client.get("/");
    assert_eq!(client.answer().field("surrogate-key"), None, "it is for the cache");
    purge(&scene, scene.node.only(b"shop"));
    scene.misses("/");
    scene.hits("/other", "other");
}

#[test]
fn an_old_page_is_asked_about_and_made_new_by_a_304() {
    let scene = scene();
    fills(&scene, "/", &["Cache-Control: max-age=0", "ETag: \"1\"", "Surrogate-Key: shop", "X-A: old"], "one");
    let mut client = scene.client();
    // It is stored a moment after its answer.
    scene.comes("a condition", |scene| {
        client.get("/");
        let asked = scene.origin.asked("/");
        let has_it = asked.field("if-none-match").as_deref() == Some("\"1\"");
        match has_it {
            true => asked.answers_head(304, &[LIVES, "ETag: \"1\"", "X-A: new"]),
            false => asked.answers(&["Cache-Control: max-age=0", "ETag: \"1\"", "Surrogate-Key: shop"], "one"),
        }
        let answer = client.answer();
        answer.is(200, "one");
        if has_it {
            answer.said("fwd=stale; fwd-status=304; stored");
            assert_eq!(answer.field("x-a").as_deref(), Some("new"));
        }
        has_it
    });
    scene.hits("/", "one");
    // It is found by what the first answer named: the 304 did not repeat it.
    purge(&scene, scene.node.only(b"shop"));
    scene.misses("/");
}

#[test]
fn a_304_that_a_purge_overtakes_is_answered_and_not_kept() {
    let scene = scene();
    let lines = ["Cache-Control: max-age=600", "ETag: \"1\"", "Surrogate-Key: shop"];
    fills(&scene, "/", &lines, "one");
    scene.hits("/", "one");
    let mut client = scene.client();
    client.get_with("/", &["Cache-Control: no-cache"]);
    let asked = scene.origin.asked("/");
    assert_eq!(asked.field("if-none-match").as_deref(), Some("\"1\""));
    purge(&scene, scene.node.only(b"shop"));
    asked.answers_head(304, &[LIVES, "ETag: \"1\""]);
    client.answer().is(200, "one");
    scene.misses("/");
}

#[test]
fn a_304_about_another_answer_is_no_use_and_it_is_fetched_without_conditions() {
    let scene = scene();
    fills(&scene, "/", &[LIVES, "ETag: \"1\""], "one");
    scene.hits("/", "one");
    let mut client = scene.client();
    client.get_with("/", &["Cache-Control: max-age=0"]);
    scene.origin.asked("/").answers_head(304, &["ETag: \"2\""]);
    let again = scene.origin.asked("/");
    assert_eq!(again.field("if-none-match"), None);
    again.answers(&[LIVES, "ETag: \"2\""], "two");
    client.answer().is(200, "two");
    becomes(&scene, "two");
}

#[test]
fn a_page_that_has_just_expired_is_answered_while_one_request_fetches_it_anew() {
    let scene = scene();
    fills(&scene, "/", &["Cache-Control: max-age=1, stale-while-revalidate=600", "Age: 5", "ETag: \"1\""], "one");
    scene.hits("/", "one");
    // The look of `hits` has begun it already.
    let asked = scene.origin.asked("/");
    for _ in 0..3 {
        scene.hits("/", "one");
    }
    scene.origin.is_left_alone();
    asked.answers(&[LIVES, "ETag: \"2\""], "two");
    becomes(&scene, "two");
    assert_eq!(scene.counter("verbena_proxy_refreshes_total"), 1);
}

#[test]
fn a_refresh_fetches_the_whole_page_whatever_met_the_old_one() {
    for request in ["HEAD / HTTP/1.1\r\nHost: shop\r\n\r\n", "GET / HTTP/1.1\r\nHost: shop\r\nRange: bytes=0-0\r\n\r\n"]
    {
        let scene = scene();
        fills(&scene, "/", &["Cache-Control: max-age=1, stale-while-revalidate=600", "Age: 5"], "one");
        // A look that wants no stale one sees when it is stored, and refreshes nothing.
        scene.comes("the stored page", |scene| scene.gauge("verbena_proxy_pages") > 0.0);
        let mut client = scene.client();
        client.send(request);
        let asked = scene.origin.asked("/");
        assert_eq!((asked.field("range"), asked.head.starts_with("GET ")), (None, true), "{request}");
        asked.answers(&[LIVES], "two");
        becomes(&scene, "two");
    }
}

#[test]
fn a_page_without_a_date_keeps_the_one_at_which_it_came() {
    let scene = scene();
    fills(&scene, "/", &[LIVES], "one");
    scene.hits("/", "one");
    let mut client = scene.client();
    let mut date = || {
        client.get("/");
        client.answer().field("date").unwrap()
    };
    let first = date();
    std::thread::sleep(std::time::Duration::from_millis(1100));
    assert_eq!(date(), first);
}

#[test]
fn a_stale_page_stands_for_an_application_that_fails_if_it_says_so() {
    let scene = scene();
    for (path, line, stands) in
        [("/a", "Cache-Control: max-age=1, stale-if-error=600", true), ("/b", "Cache-Control: max-age=1", false)]
    {
        fills(&scene, path, &[line, "Age: 5", "ETag: \"1\""], "one");
        let mut client = scene.client();
        scene.comes("a stored page", |scene| {
            client.get(path);
            let asked = scene.origin.asked(path);
            let is_stored = asked.field("if-none-match").is_some();
            match is_stored {
                true => asked.answers_status(503, &[], "broken"),
                false => asked.answers(&[line, "Age: 5", "ETag: \"1\""], "one"),
            }
            let answer = client.answer();
            match (is_stored, stands) {
                (true, true) => drop(answer.is(200, "one").said("hit; ttl=-").said("origin-down")),
                (true, false) => drop(answer.is(503, "broken")),
                (false, _) => drop(answer.is(200, "one")),
            }
            is_stored
        });
    }
}

#[test]
fn a_write_purges_its_target_before_its_client_is_answered() {
    let scene = scene();
    for path in ["/a", "/b", "/c", "/d"] {
        fills(&scene, path, &[LIVES, "Cache-Groups: \"of-d\""][..if path == "/d" { 2 } else { 1 }], path);
        scene.hits(path, path);
    }
    let mut client = scene.client();
    client.post("/a", "new");
    let mut asked = scene.origin.asked("/a");
    asked.reads(3);
    // Until the application has answered, the old one is right.
    scene.hits("/a", "/a");
    asked.answers(&["Location: /b", "Cache-Group-Invalidation: \"of-d\""], "done");
    client.answer().is(200, "done");
    for path in ["/a", "/b", "/d"] {
        scene.misses(path);
    }
    scene.hits("/c", "/c");
}

#[test]
fn a_write_that_fails_purges_nothing() {
    let scene = scene();
    fills(&scene, "/a", &[LIVES], "one");
    scene.hits("/a", "one");
    let mut client = scene.client();
    client.post("/a", "new");
    let mut asked = scene.origin.asked("/a");
    asked.reads(3);
    asked.answers_status(422, &[], "no");
    client.answer().is(422, "no");
    scene.hits("/a", "one");
}

#[test]
fn a_fill_that_a_write_overtakes_is_not_kept() {
    let scene = scene();
    let (mut reader, mut writer) = (scene.client(), scene.client());
    reader.get("/a");
    let fill = scene.origin.asked("/a");
    writer.post("/a", "new");
    let mut write = scene.origin.asked("/a");
    write.reads(3);
    write.answers(&[], "done");
    writer.answer().is(200, "done");
    fill.answers(&[LIVES], "old");
    reader.answer().is(200, "old");
    scene.misses("/a");
}

#[test]
fn a_part_comes_from_the_whole_page_in_both_modes() {
    for mode in [Mode::Standard, Mode::Coherent] {
        let scene = Scene::with(|config| config.mode = mode);
        let lines = [LIVES, "ETag: \"1\"", "Content-Type: text/plain"];
        let mut client = scene.client();
        client.get_with("/", &["Range: bytes=0-1"]);
        scene.origin.asked("/").answers_status(206, &["Content-Range: bytes 0-1/10"], "01");
        client.answer().is(206, "01").said("range");
        scene.misses("/");
        fills(&scene, "/", &lines, "0123456789");
        scene.hits("/", "0123456789");
        let mut asks = |fields: &[&str]| {
            client.get_with("/", fields);
            client.answer()
        };
        let one = asks(&["Range: bytes=2-4"]);
        one.is(206, "234").said("hit");
        assert_eq!(one.field("content-range").as_deref(), Some("bytes 2-4/10"));
        assert_eq!(one.field("etag").as_deref(), Some("\"1\""));
        let two = asks(&["Range: bytes=0-0,-2"]);
        two.has(206);
        let body = String::from_utf8(two.body.clone()).unwrap();
        let boundary = two.field("content-type").unwrap().split_once("boundary=").unwrap().1.to_owned();
        let part = |range: &str, bytes: &str| {
            format!("\r\n--{boundary}\r\nContent-Type: text/plain\r\nContent-Range: bytes {range}/10\r\n\r\n{bytes}")
        };
        assert_eq!(body, format!("{}{}\r\n--{boundary}--\r\n", part("0-0", "0"), part("8-9", "89")));
        let none = asks(&["Range: bytes=10-"]);
        none.is(416, "");
        assert_eq!(none.field("content-range").as_deref(), Some("bytes */10"));
        asks(&["Range: bytes=2-4", "If-Range: \"1\""]).is(206, "234");
        asks(&["Range: bytes=2-4", "If-Range: \"2\""]).is(200, "0123456789");
        asks(&["Range: bytes=2-4", "If-None-Match: \"1\""]).is(304, "");
        scene.origin.is_left_alone();
    }
}

#[test]
fn a_purge_request_is_for_the_cache_where_the_configuration_says_so() {
    let scene = Scene::with(|config| {
        config.mode = Mode::Standard;
        config.purge_from = vec!["127.0.0.0/8".into()];
    });
    for (path, tag) in [("/a", "one"), ("/b/c", "two")] {
        fills(&scene, path, &[LIVES, &format!("Surrogate-Key: {tag}")], path);
        scene.hits(path, path);
    }
    let asks = |path: &str, lines: &str| {
        let mut client = scene.client();
        client.send(&format!("PURGE {path} HTTP/1.1\r\nHost: shop\r\n{lines}\r\n"));
        client.answer()
    };
    for front in [
        "X-Forwarded-For: 127.0.0.1",
        // What `Connection` names is for this hop; who stands in front is told by it all the same.
        "X-Forwarded-For: 9.9.9.9\r\nConnection: x-forwarded-for",
        "X_Forwarded_For: 9.9.9.9",
    ] {
        asks("/a", &format!("{front}\r\n")).has(403).said("purge-refused");
    }
    scene.hits("/a", "/a");
    asks("/a", "").has(200);
    scene.misses("/a");
    scene.hits("/b/c", "/b/c");
    asks("/", "xkey-purge: none two\r\n").has(200);
    scene.misses("/b/c");
    fills(&scene, "/b/c", &[LIVES], "again");
    scene.hits("/b/c", "again");
    asks("/b/.*", "X-Purge-Method: regex\r\n").has(200);
    scene.misses("/b/c");
    scene.origin.is_left_alone();
}

#[test]
fn cookies_and_credentials_keep_what_says_nothing_out() {
    let scene = scene();
    let changed = "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT";
    for (path, line, request, is_stored) in [
        ("/a", changed, "Cookie: sid=1", false),
        ("/b", LIVES, "Cookie: sid=1", true),
        ("/c", LIVES, "Authorization: Basic eA==", false),
        ("/d", "Cache-Control: s-maxage=60", "Authorization: Basic eA==", true),
    ] {
        let mut client = scene.client();
        client.get_with(path, &[request]);
        scene.origin.asked(path).answers(&[line], path);
        client.answer().is(200, path);
        if is_stored { scene.hits(path, path) } else { scene.misses(path) }
    }
}
