//! Requests that write.

use std::time::Duration;

use verbena_caching::{Route, Writes};

use crate::scene::Scene;

#[test]
fn a_post_is_an_update_of_everything() {
    let scene = Scene::new();
    scene.fills("/", "front", "old");
    let mut writer = scene.client();
    writer.post("/buy", "one");
    let mut bought = scene.origin.asked("/buy");
    assert_eq!(bought.reads(3), b"one");
    // It is open while the application has it.
    let mut client = scene.client();
    client.get("/");
    scene.origin.asked("/").depends("front", "half");
    client.answer().is(200, "half").said("detail=update-open");
    bought.page("bought");
    writer.answer().is(200, "bought").said("verbena; fwd=method; fwd-status=200");
    client.get("/");
    scene.origin.asked("/").depends("front", "new");
    client.answer().is(200, "new").said("detail=moved");
    scene.hits("/", "new");
    assert_eq!(scene.counted("verbena_proxy_answers_total", ("result", "update")), 1);
}

#[test]
fn a_fill_that_began_before_a_post_is_not_stored_after_it() {
    let scene = Scene::new();
    let mut client = scene.client();
    client.get("/");
    let asked = scene.origin.asked("/");
    let mut writer = scene.client();
    writer.post("/buy", "");
    scene.origin.asked("/buy").page("bought");
    writer.answer().is(200, "bought");
    asked.depends("front", "old");
    client.answer().is(200, "old");
    scene.misses("/");
}

#[test]
fn a_route_that_announces_is_not_bracketed_and_one_that_writes_is() {
    let scene = Scene::with(|config| {
        let route = |prefix: &str, writes| Route { prefix: prefix.into(), writes, ..Route::default() };
        config.routes = vec![route("/api", Writes::Announced).into(), route("/cron", Writes::Always).into()];
    });
    scene.fills("/", "front", "one");
    let mut client = scene.client();
    client.post("/api/buy", "");
    scene.origin.asked("/api/buy").page("bought");
    client.answer().is(200, "bought").said("detail=announced");
    scene.hits("/", "one");
    client.get("/cron/run");
    let asked = scene.origin.asked("/cron/run");
    scene.misses("/");
    asked.page("ran");
    client.answer().is(200, "ran").said("fwd=method");
    scene.misses("/");
    assert_eq!(scene.counted("verbena_proxy_misses_total", ("reason", "announced")), 1);
}

#[test]
fn a_route_that_never_writes_empties_nothing_and_what_does_is_named() {
    let scene = Scene::with(|config| {
        config.routes = vec![Route { prefix: "/find".into(), writes: Writes::Never, ..Route::default() }.into()];
    });
    scene.fills("/", "front", "one");
    let mut client = scene.client();
    client.post("/find", "");
    scene.origin.asked("/find").page("found");
    client.answer().is(200, "found").said("detail=method");
    scene.hits("/", "one");
    assert_eq!(scene.counted("verbena_proxy_emptied_total", ("path", "/find")), 0);
    client.post("/xmlrpc.php/1", "");
    scene.origin.asked("/xmlrpc.php/1").says("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    client.answer().has(404);
    scene.misses("/");
    for label in [("path", "/xmlrpc.php"), ("status", "404")] {
        assert_eq!(scene.counted("verbena_proxy_emptied_total", label), 1, "{label:?}");
    }
}

#[test]
fn a_route_that_writes_is_bracketed_however_its_path_is_spelled() {
    let scene = Scene::with(|config| {
        config.routes = vec![Route { prefix: "/cart".into(), writes: Writes::Always, ..Route::default() }.into()];
    });
    let mut client = scene.client();
    for path in ["/%63art", "/x/../cart/1", "//cart", "/cart%2F1?a=b", "/CART;x"] {
        // The page is as it came: two spellings may be two pages.
        client.get(path);
        scene.origin.asked(path).page("put");
        client.answer().is(200, "put").said("fwd=method");
    }
    client.send("GET http://shop/%63art HTTP/1.1\r\nHost: shop\r\n\r\n");
    scene.origin.asked("/%63art").page("put");
    client.answer().is(200, "put").said("fwd=method");
    client.get("/x?/../cart");
    scene.origin.asked("/x?/../cart").page("read");
    client.answer().is(200, "read").said("fwd=uri-miss");
    assert_eq!(scene.counted("verbena_proxy_answers_total", ("result", "update")), 6);
}

#[test]
fn a_client_that_hangs_up_does_not_end_its_update() {
    let scene = Scene::new();
    scene.fills("/", "front", "old");
    let mut writer = scene.client();
    writer.post("/buy", "");
    let mut bought = scene.origin.asked("/buy");
    writer.hangs_up();
    scene.misses("/");
    bought.says("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nbou");
    scene.misses("/");
    bought.says("ght");
    drop(bought);
    // It ended: pages are stored again.
    scene.comes("the end", |scene| {
        let counts = scene.node.content.counts().updater;
        counts.forwarded + counts.unknown == 0
    });
    scene.fills("/", "front", "new");
}

#[test]
fn an_update_is_never_sent_twice_and_its_outcome_may_be_unknown() {
    let scene = Scene::new();
    scene.fills("/", "front", "one");
    let mut writer = scene.client();
    writer.post("/buy", "");
    scene.origin.asked("/buy").resets();
    writer.answer().has(502).said("detail=origin-broken");
    scene.origin.is_left_alone();
    scene.comes("an unknown outcome", |scene| scene.node.content.counts().updater.unknown == 1);
    scene.misses("/");
    assert_eq!(scene.counted("verbena_proxy_origin_errors_total", ("kind", "origin-broken")), 1);
}

#[test]
fn half_an_answer_acknowledges_nothing() {
    let scene = Scene::new();
    let mut writer = scene.client();
    writer.post("/buy", "");
    let mut bought = scene.origin.asked("/buy");
    bought.says("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nbou");
    bought.closes();
    writer.answer().has(502);
    scene.comes("an unknown outcome", |scene| scene.node.content.counts().updater.unknown == 1);
}

#[test]
fn an_update_that_cannot_be_confirmed_gets_no_answer() {
    let scene = Scene::new();
    let mut writer = scene.client();
    writer.post("/buy", "");
    let bought = scene.origin.asked("/buy");
    scene.loses_lease();
    bought.page("bought");
    writer.is_closed();
    scene.comes("the confirming", |scene| scene.node.content.counts().updater.confirming == 1);
    assert_eq!(scene.counted("verbena_proxy_answers_total", ("result", "error")), 1);
}

#[test]
fn an_update_during_which_the_lease_was_lost_is_answered_once_it_is_confirmed() {
    let scene = Scene::new();
    scene.fills("/", "front", "old");
    let mut writer = scene.client();
    writer.post("/buy", "");
    let bought = scene.origin.asked("/buy");
    // For a while homes need not have held it: another update that is refused shows that this was noticed.
    scene.loses_lease();
    let mut other = scene.client();
    other.post("/buy", "");
    other.answer().has(503).said("detail=update-not-begun");
    scene.has_lease_again();
    bought.page("bought");
    writer.answer().is(200, "bought");
    scene.misses("/");
    scene.fills("/", "front", "new");
}

#[test]
fn a_long_answer_has_no_end_if_its_update_cannot_be_confirmed() {
    let scene = Scene::new();
    let mut writer = scene.client();
    writer.post("/report", "");
    let mut asked = scene.origin.asked("/report");
    let most = "x".repeat(256 << 10);
    asked.says(&format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{most}", most.len() + 3));
    scene.loses_lease();
    asked.says("end");
    drop(asked);
    let answer = writer.answer();
    answer.has(200);
    assert!(!answer.whole, "the client has all {} bytes", answer.body.len());
}

#[test]
fn half_a_long_answer_acknowledges_nothing() {
    let scene = Scene::new();
    let mut writer = scene.client();
    writer.post("/report", "");
    let mut asked = scene.origin.asked("/report");
    let half = "x".repeat(256 << 10);
    asked.says(&format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{half}", 2 * half.len()));
    asked.closes();
    assert!(!writer.answer().whole);
    scene.comes("an unknown outcome", |scene| scene.node.content.counts().updater.unknown == 1);
}

#[test]
fn a_graceful_stop_waits_no_longer_than_it_may() {
    let mut scene = Scene::with(|config| config.drain.0 = Duration::from_millis(100));
    let mut reader = scene.client();
    reader.get("/");
    let read = scene.origin.asked("/");
    let mut writer = scene.client();
    writer.post("/buy", "");
    let bought = scene.origin.asked("/buy");
    let spare = Scene::new();
    let proxy = std::mem::replace(&mut scene.proxy, spare.proxy);
    let stopping = std::thread::spawn(move || proxy.stop());
    scene.comes("the end of the stop", |_| stopping.is_finished());
    reader.is_closed();
    writer.is_closed();
    // What the application did with it, nobody knows.
    scene.comes("an unknown outcome", |scene| scene.node.content.counts().updater.unknown == 1);
    drop((read, bought));
}

#[test]
fn the_end_of_a_long_answer_is_held_back_until_the_update_ended() {
    let scene = Scene::new();
    let mut writer = scene.client();
    writer.post("/report", "");
    let mut asked = scene.origin.asked("/report");
    let piece = "x".repeat(1 << 20);
    asked.says(&format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{piece}{piece}", 3 << 20));
    writer.head().has(200);
    scene.misses("/");
    assert_eq!(scene.node.content.counts().updater.forwarded, 1);
    asked.says(&piece);
    drop(asked);
    scene.comes("the end", |scene| scene.node.content.counts().updater.forwarded == 0);
}

#[test]
fn a_client_that_does_not_read_a_long_answer_does_not_hold_the_update_open() {
    let scene = Scene::with(|config| config.client_timeout.0 = Duration::from_millis(300));
    let mut writer = scene.client();
    writer.post("/report", "");
    let mut asked = scene.origin.asked("/report");
    let body = "x".repeat(32 << 20);
    asked.says(&format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
    drop(asked);
    scene.comes("the end", |scene| scene.node.content.counts().updater.forwarded == 0);
    assert_eq!(scene.node.content.counts().updater.unknown, 0);
}

#[test]
fn an_upload_in_many_small_pieces_comes_whole() {
    let scene = Scene::new();
    let mut writer = scene.client();
    let pieces: String = (0..20_000).map(|at| format!("1\r\n{}\r\n", at % 10)).collect();
    writer.send(&format!(
        "POST /upload HTTP/1.1\r\nHost: shop\r\nTransfer-Encoding: chunked\r\n\r\n{pieces}0\r\nA: b\r\n\r\n"
    ));
    let mut asked = scene.origin.asked("/upload");
    let whole: Vec<u8> = (0..20_000).map(|at| b'0' + (at % 10) as u8).collect();
    assert_eq!(asked.reads(20_000), whole);
    asked.page("ok");
    writer.answer().is(200, "ok");
}

#[test]
fn a_slow_sender_does_not_open_an_update() {
    let scene = Scene::with(|config| config.client_timeout.0 = Duration::from_millis(300));
    scene.fills("/", "front", "one");
    let mut slow = scene.client();
    slow.send("POST /buy HTTP/1.1\r\nHost: shop\r\nContent-Length: 10\r\n\r\nabc");
    scene.has_in_flight(1);
    scene.hits("/", "one");
    slow.answer().has(408).said("detail=client-slow");
    scene.origin.is_left_alone();
    scene.hits("/", "one");
    assert_eq!(scene.counted("verbena_proxy_misses_total", ("reason", "client-slow")), 1);
}

#[test]
fn an_upload_may_take_longer_than_the_application_may_be_silent() {
    let scene = Scene::with(|config| config.origin_timeout.0 = Duration::from_millis(600));
    let mut client = scene.client();
    let piece = "x".repeat(100_000);
    client.send(&format!("POST /upload HTTP/1.1\r\nHost: shop\r\nContent-Length: {}\r\n\r\n", 8 * piece.len()));
    for _ in 0..8 {
        client.send(&piece);
        std::thread::sleep(Duration::from_millis(120));
    }
    let mut asked = scene.origin.asked("/upload");
    asked.reads(8 * piece.len());
    asked.page("thanks");
    client.answer().is(200, "thanks");
}

#[test]
fn an_answer_may_come_before_the_upload_ended() {
    let scene = Scene::new();
    let mut client = scene.client();
    let piece = "x".repeat(100_000);
    client.send(&format!("POST /upload HTTP/1.1\r\nHost: shop\r\nContent-Length: {}\r\n\r\n{piece}", 2 * piece.len()));
    let mut asked = scene.origin.asked("/upload");
    asked.says("HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nbig");
    client.answer().is(413, "big");
    scene.comes("the end", |scene| scene.node.content.counts().updater.forwarded == 0);
    drop(asked);
}

#[test]
fn a_graceful_stop_ends_what_is_under_way_and_takes_nothing_new() {
    let mut scene = Scene::new();
    let address = scene.proxy.address();
    let (mut reader, mut writer, mut gone) = (scene.client(), scene.client(), scene.client());
    reader.get("/");
    let read = scene.origin.asked("/");
    writer.post("/buy", "");
    let bought = scene.origin.asked("/buy");
    gone.post("/gone", "");
    let orphan = scene.origin.asked("/gone");
    gone.hangs_up();
    let spare = Scene::new();
    let proxy = std::mem::replace(&mut scene.proxy, spare.proxy);
    let stopping = std::thread::spawn(move || proxy.stop());
    scene.comes("no listener", |_| std::net::TcpStream::connect(address).is_err());
    read.depends("front", "one");
    reader.answer().is(200, "one");
    bought.page("bought");
    writer.answer().is(200, "bought");
    // Even an update whose client has gone.
    assert!(!stopping.is_finished());
    orphan.page("bought too");
    stopping.join().unwrap();
    scene.comes("the ends", |scene| {
        let counts = scene.node.content.counts().updater;
        counts.forwarded + counts.unknown == 0
    });
}

#[test]
fn an_answer_that_does_not_say_where_it_ends_leaves_the_outcome_unknown() {
    let scene = Scene::new();
    scene.fills("/", "front", "old");
    for (nth, length) in [(1, 11), (2, 100_000)] {
        let half = "h".repeat(length);
        let mut writer = scene.client();
        writer.post("/buy", "");
        let mut bought = scene.origin.asked("/buy");
        bought.says(&format!("HTTP/1.0 200 OK\r\n\r\n{half}"));
        bought.closes();
        writer.answer().is(200, &half);
        // Who was killed in the middle of it may have a transaction at the database.
        scene.comes("an unknown outcome", |scene| scene.node.content.counts().updater.unknown == nth);
        scene.misses("/");
    }
    // What has no body has an end.
    let mut writer = scene.client();
    writer.post("/buy", "");
    scene.origin.asked("/buy").says("HTTP/1.1 204 No Content\r\n\r\n");
    writer.answer().has(204);
    scene.comes("the end", |scene| scene.node.content.counts().updater.forwarded == 0);
    assert_eq!(scene.node.content.counts().updater.unknown, 2);
}
