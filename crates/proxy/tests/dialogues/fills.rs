//! Looking, filling, collapsing; what is stored and for whom.

use std::io::Write;
use std::time::Duration;

use verbena_caching::{Cookies, Route};

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
fn many_requests_for_one_page_ask_the_application_once() {
    let scene = Scene::new();
    let mut leader = scene.client();
    leader.get("/");
    let asked = scene.origin.asked("/");
    let mut others: Vec<_> = (0..20).map(|_| scene.client()).collect();
    others.iter_mut().for_each(|client| client.get("/"));
    scene.comes("all requests", |scene| scene.gauge("verbena_proxy_requests_in_flight") == 21.0);
    scene.origin.is_left_alone();
    asked.depends("front", "one");
    leader.answer().is(200, "one").said("stored");
    for client in &mut others {
        client.answer().is(200, "one").said("fwd=uri-miss; collapsed");
    }
    scene.origin.is_left_alone();
}

#[test]
fn when_a_fill_fails_one_of_those_who_wait_takes_over() {
    let scene = Scene::new();
    let mut leader = scene.client();
    leader.get("/");
    let first = scene.origin.asked("/");
    let mut others: Vec<_> = (0..5).map(|_| scene.client()).collect();
    others.iter_mut().for_each(|client| client.get("/"));
    scene.comes("all requests", |scene| scene.gauge("verbena_proxy_requests_in_flight") == 6.0);
    leader.hangs_up();
    let second = scene.origin.asked("/");
    scene.origin.is_left_alone();
    second.depends("front", "one");
    for client in &mut others {
        client.answer().is(200, "one");
    }
    drop(first);
}

#[test]
fn a_fill_that_an_update_overtook_serves_nobody_who_waited() {
    let scene = Scene::new();
    let mut leader = scene.client();
    leader.get("/");
    let asked = scene.origin.asked("/");
    let mut other = scene.client();
    other.get("/");
    scene.comes("both", |scene| scene.gauge("verbena_proxy_requests_in_flight") == 2.0);
    scene.ends(scene.begins(Some("front")));
    asked.depends("front", "old");
    leader.answer().is(200, "old");
    scene.origin.asked("/").depends("front", "new");
    other.answer().is(200, "new");
}

#[test]
fn a_fill_during_which_the_lease_is_lost_serves_nobody_who_waited() {
    let scene = Scene::new();
    let mut leader = scene.client();
    leader.get("/");
    let asked = scene.origin.asked("/");
    let mut other = scene.client();
    other.get("/");
    scene.comes("both", |scene| scene.gauge("verbena_proxy_requests_in_flight") == 2.0);
    scene.loses_lease();
    asked.depends("front", "old");
    leader.answer().is(200, "old");
    scene.origin.asked("/").depends("front", "new");
    other.answer().is(200, "new").said("detail=no-lease");
    scene.misses("/");
}

#[test]
fn who_waited_with_credentials_gets_a_page_of_its_own() {
    let scene = Scene::new();
    let (mut anonymous, mut user) = (scene.client(), scene.client());
    anonymous.get("/");
    let asked = scene.origin.asked("/");
    user.get_with("/", &["Cookie: user=1"]);
    scene.comes("both", |scene| scene.gauge("verbena_proxy_requests_in_flight") == 2.0);
    scene.origin.is_left_alone();
    asked.depends("front", "for all");
    anonymous.answer().is(200, "for all");
    scene.origin.asked("/").depends("front", "for 1");
    user.answer().is(200, "for 1").said("detail=cookie");
    scene.hits("/", "for all");
    // The next time it does not wait for what it will not get.
    scene.ends(scene.begins(Some("front")));
    anonymous.get("/");
    let asked = scene.origin.asked("/");
    user.get_with("/", &["Cookie: user=1"]);
    scene.origin.asked("/").depends("front", "for 1 again");
    user.answer().is(200, "for 1 again").said("detail=moved");
    asked.depends("front", "for all again");
    anonymous.answer().is(200, "for all again");
}

#[test]
fn nobody_waits_longer_for_another_request_than_for_the_application() {
    let scene = Scene::with(|config| config.origin_timeout.0 = Duration::from_millis(2000));
    let (mut leader, mut other) = (scene.client(), scene.client());
    leader.get("/");
    let mut asked = scene.origin.asked("/");
    other.get("/");
    scene.comes("both", |scene| scene.gauge("verbena_proxy_requests_in_flight") == 2.0);
    // The application is slow, but never silent for too long.
    std::thread::sleep(Duration::from_millis(1000));
    asked.says("HTTP/1.1 200 OK\r\nVerbena-Dependencies: front\r\nContent-Length: 2\r\n\r\na");
    scene.origin.asked("/").depends("front", "own");
    other.answer().is(200, "own").said("detail=fill-slow");
    asked.says("b");
    drop(asked);
    leader.answer().is(200, "ab");
}

#[test]
fn an_unstorable_page_is_remembered_so_that_nobody_waits_for_it() {
    let scene = Scene::new();
    let mut leader = scene.client();
    leader.get("/");
    let asked = scene.origin.asked("/");
    let mut other = scene.client();
    other.get("/");
    scene.comes("both", |scene| scene.gauge("verbena_proxy_requests_in_flight") == 2.0);
    asked.answers(&["Cache-Control: no-store"], "mine");
    leader.answer().is(200, "mine").said("detail=no-store");
    scene.origin.asked("/").answers(&["Cache-Control: no-store"], "yours");
    other.answer().is(200, "yours");
    // Two at once, although the first is not answered.
    let (mut one, mut two) = (scene.client(), scene.client());
    one.get("/");
    let first = scene.origin.asked("/");
    two.get("/");
    scene.origin.asked("/").answers(&["Cache-Control: no-store"], "2");
    two.answer().is(200, "2").said("detail=unstorable");
    first.answers(&["Cache-Control: no-store"], "1");
    one.answer().is(200, "1");
    assert_eq!(scene.counted("verbena_proxy_not_stored_total", ("reason", "no-store")), 1);
}

#[test]
fn a_client_that_takes_nothing_holds_nobody_up() {
    let scene = Scene::with(|config| config.largest.0 = 64 << 20);
    let body = "x".repeat(24 << 20);
    let mut leader = scene.client();
    leader.get("/");
    let asked = scene.origin.asked("/");
    let mut other = scene.client();
    other.get("/");
    scene.comes("both", |scene| scene.gauge("verbena_proxy_requests_in_flight") == 2.0);
    asked.depends("front", &body);
    assert_eq!(other.answer().body.len(), body.len());
    // Only now it begins to read.
    assert_eq!(leader.answer().body.len(), body.len());
}

#[test]
fn a_client_that_takes_nothing_for_too_long_is_given_up() {
    let scene = Scene::with(|config| config.client_timeout.0 = Duration::from_millis(300));
    let mut client = scene.client();
    client.get("/film");
    let mut asked = scene.origin.asked("/film");
    let sending = std::thread::spawn(move || {
        asked.says(&format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 1 << 30));
        let piece = vec![b'x'; 1 << 20];
        // Nobody takes it all: it ends with an error.
        while asked.stream.write_all(&piece).is_ok() {}
    });
    scene.comes("the end of the connection", |scene| {
        scene.counter("verbena_proxy_stalled_connections_total") == 1 && scene.gauge("verbena_proxy_connections") == 0.0
    });
    sending.join().unwrap();
    drop(client);
}

#[test]
fn fills_take_no_more_memory_than_there_is_for_them_and_give_it_back() {
    // A quarter of the memory, or two of the largest pages: 512 KiB here.
    let scene = Scene::with(|config| config.memory.0 = 1 << 20);
    let body = "x".repeat(200_000);
    let (mut one, mut two) = (scene.client(), scene.client());
    one.get("/1");
    let mut first = scene.origin.asked("/1");
    first.says(&format!("HTTP/1.1 200 OK\r\nVerbena-Dependencies: a\r\nContent-Length: 200001\r\n\r\n{body}"));
    // What is kept, and what the client may not have taken.
    scene.comes("most of it", |scene| scene.gauge("verbena_proxy_fill_bytes") == 400_000.0);
    two.get("/2");
    scene.origin.asked("/2").depends("a", &body);
    two.answer().is(200, &body);
    scene.comes("the refusal", |scene| scene.counted("verbena_proxy_not_stored_total", ("reason", "too-much")) == 1);
    scene.misses("/2");
    first.says("y");
    drop(first);
    one.answer().is(200, &format!("{body}y"));
    scene.hits("/1", &format!("{body}y"));
    scene.comes("the memory", |scene| scene.gauge("verbena_proxy_fill_bytes") == 0.0);
    scene.fills("/2", "a", &body);
}

#[test]
fn a_page_that_grows_beyond_what_may_be_stored_passes_and_is_not_stored() {
    let scene = Scene::with(|config| config.largest.0 = 64 << 10);
    let piece = "x".repeat(40_000);
    let mut client = scene.client();
    client.get("/");
    let mut asked = scene.origin.asked("/");
    asked.says("HTTP/1.1 200 OK\r\nVerbena-Dependencies: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    for _ in 0..3 {
        asked.says(&format!("{:x}\r\n{piece}\r\n", piece.len()));
    }
    asked.says("0\r\n\r\n");
    drop(asked);
    client.answer().is(200, &piece.repeat(3));
    scene.comes("the refusal", |scene| scene.counted("verbena_proxy_not_stored_total", ("reason", "too-large")) == 1);
    scene.misses("/");
}

#[test]
fn an_endless_page_is_not_waited_for() {
    let scene = Scene::with(|config| config.origin_timeout.0 = Duration::from_millis(1000));
    let mut leader = scene.client();
    leader.get("/events");
    let mut asked = scene.origin.asked("/events");
    asked.says("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n");
    let mut other = scene.client();
    other.get("/events");
    leader.head().has(200);
    let mut second = loop {
        // The stream goes on, so that nobody takes it for dead.
        asked.says("3\r\nand\r\n");
        std::thread::sleep(Duration::from_millis(50));
        if scene.gauge("verbena_proxy_requests_in_flight") > 0.0
            && scene.counted("verbena_proxy_not_stored_total", ("reason", "too-slow")) == 1
        {
            break scene.origin.asked("/events");
        }
    };
    second.says("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na");
    other.answer().is(200, "a");
    asked.says("0\r\n\r\n");
}

#[test]
fn answers_that_vary_are_kept_apart() {
    let scene = Scene::new();
    let vary = ["Vary: Accept-Language", "Verbena-Dependencies: front"];
    let mut client = scene.client();
    for (language, body, pages) in [("de", "hallo", 2.0), ("en", "hello", 3.0)] {
        client.get_with("/", &[&format!("Accept-Language: {language}")]);
        scene.origin.asked("/").answers(&vary, body);
        client.answer().is(200, body).said("stored");
        // By what the page varies, and its variants.
        scene.comes("the variant", |scene| scene.gauge("verbena_proxy_pages") == pages);
    }
    for (language, body) in [("de", "hallo"), ("en", "hello")] {
        client.get_with("/", &[&format!("Accept-Language: {language}")]);
        client.answer().is(200, body).said("verbena; hit");
    }
    // Two variants that are known to be such do not wait for one another.
    let (mut one, mut two) = (scene.client(), scene.client());
    one.get_with("/", &["Accept-Language: fr"]);
    let french = scene.origin.asked("/");
    two.get_with("/", &["Accept-Language: it"]);
    scene.origin.asked("/").answers(&vary, "ciao");
    two.answer().is(200, "ciao").said("fwd=vary-miss");
    french.answers(&vary, "salut");
    one.answer().is(200, "salut");
    scene.ends(scene.begins(Some("front")));
    client.get_with("/", &["Accept-Language: de"]);
    scene.origin.asked("/").answers(&vary, "servus");
    client.answer().is(200, "servus").said("detail=moved");
}

#[test]
fn who_waited_for_another_variant_gets_its_own() {
    let scene = Scene::new();
    let vary = ["Vary: Accept-Language", "Verbena-Dependencies: front"];
    let (mut one, mut two) = (scene.client(), scene.client());
    one.get_with("/", &["Accept-Language: de"]);
    let german = scene.origin.asked("/");
    two.get_with("/", &["Accept-Language: en"]);
    scene.comes("both", |scene| scene.gauge("verbena_proxy_requests_in_flight") == 2.0);
    german.answers(&vary, "hallo");
    one.answer().is(200, "hallo");
    scene.origin.asked("/").answers(&vary, "hello");
    two.answer().is(200, "hello").said("stored");
}

#[test]
fn what_is_for_one_user_is_not_for_another() {
    let scene = Scene::new();
    let mut client = scene.client();
    let private: [(&str, &[&str], &[&str], &str); 5] = [
        ("/private", &[], &["Cache-Control: private"], "private"),
        ("/set", &[], &["Set-Cookie: user=1"], "set-cookie"),
        ("/cookie", &["Cookie: user=1"], &[], "cookie"),
        ("/auth", &["Authorization: Basic eA=="], &[], "authorization"),
        ("/star", &[], &["Vary: *"], "vary-all"),
    ];
    for (path, asks, says, reason) in private {
        client.get_with(path, asks);
        scene.origin.asked(path).answers(says, "mine");
        client.answer().is(200, "mine").said(&format!("detail={reason}"));
        scene.misses(path);
        assert_eq!(scene.counted("verbena_proxy_not_stored_total", ("reason", reason)), 1, "{reason}");
        assert_eq!(scene.counted("verbena_proxy_misses_total", ("reason", reason)), 1, "{reason}");
    }
    // What was fetched for nobody in particular is not for somebody, unless it says so.
    scene.fills("/page", "front", "anonymous");
    client.get_with("/page", &["Cookie: user=1"]);
    scene.origin.asked("/page").page("for 1");
    client.answer().is(200, "for 1").said("fwd=request").said("detail=cookie");
    scene.hits("/page", "anonymous");
    client.get_with("/public", &["Cookie: user=1"]);
    scene.origin.asked("/public").answers(&["Cache-Control: public", "Verbena-Dependencies: a"], "all");
    client.answer().is(200, "all").said("stored");
    scene.hits("/public", "all");
    client.get_with("/public", &["Cookie: user=2"]);
    client.answer().is(200, "all").said("verbena; hit");
}

#[test]
fn cookies_that_are_ignored_or_in_the_key_let_pages_be_shared() {
    let cookies = Cookies { ignore: ["sid".to_string()].into(), key: ["lang".to_string()].into() };
    let scene = Scene::with(|config| config.routes = vec![Route { cookies, ..Route::default() }]);
    let mut client = scene.client();
    client.get_with("/", &["Cookie: sid=1; lang=de"]);
    let asked = scene.origin.asked("/");
    assert_eq!(asked.field("cookie").unwrap(), "lang=de");
    asked.answers(&["Set-Cookie: sid=9", "Verbena-Dependencies: front"], "hallo");
    assert_eq!(client.answer().field("set-cookie").unwrap(), "sid=9");
    scene.comes("the page", |scene| scene.gauge("verbena_proxy_pages") == 1.0);
    client.get_with("/", &["Cookie: lang=de; sid=2"]);
    let hit = client.answer();
    hit.is(200, "hallo").said("verbena; hit");
    assert_eq!(hit.field("set-cookie"), None);
    client.get_with("/", &["Cookie: lang=en"]);
    scene.origin.asked("/").page("hello");
    client.answer().is(200, "hello").said("uri-miss");
}

#[test]
fn a_lifetime_is_an_upper_bound() {
    let scene = Scene::new();
    let mut client = scene.client();
    client.get("/");
    scene.origin.asked("/").answers(&["Cache-Control: max-age=1", "Verbena-Dependencies: a"], "one");
    client.answer().is(200, "one");
    scene.hits("/", "one");
    std::thread::sleep(Duration::from_millis(1000));
    client.get("/");
    scene.origin.asked("/").depends("a", "two");
    client.answer().is(200, "two").said("fwd=stale").said("detail=lifetime");
    scene.hits("/", "two");
}

#[test]
fn a_lifetime_counts_from_when_the_page_was_asked_for() {
    let scene = Scene::new();
    let mut client = scene.client();
    client.get("/");
    let asked = scene.origin.asked("/");
    std::thread::sleep(Duration::from_millis(1000));
    asked.answers(&["Cache-Control: max-age=1", "Verbena-Dependencies: a"], "one");
    client.answer().is(200, "one");
    scene.comes("the page", |scene| scene.gauge("verbena_proxy_pages") == 1.0);
    scene.misses("/");
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
