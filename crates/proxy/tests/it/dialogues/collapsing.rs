//! Many requests for one page: one asks the application, the others wait (rule P8).

use std::time::Duration;

use verbena_caching::{CookieRule, Rule};
use verbena_proxy::ProxyConfig;

use crate::scene::{Asked, Client, Scene};

#[test]
fn many_requests_for_one_page_ask_the_application_once() {
    let scene = Scene::new();
    let mut leader = scene.client();
    leader.get("/");
    let asked = scene.origin.asked("/");
    let mut others: Vec<_> = (0..20).map(|_| scene.client()).collect();
    others.iter_mut().for_each(|client| client.get("/"));
    scene.has_waiting(20);
    scene.origin.is_left_alone();
    asked.depends("front", "one");
    leader.answer().is(200, "one").said("stored");
    for client in &mut others {
        client.answer().is(200, "one").said("fwd=uri-miss; collapsed");
    }
    scene.origin.is_left_alone();
}

#[test]
fn when_a_fill_fails_before_its_head_one_of_those_who_wait_takes_over() {
    let scene = Scene::new();
    let mut leader = scene.client();
    leader.get("/");
    let mut first = scene.origin.asked("/");
    let mut others: Vec<_> = (0..5).map(|_| scene.client()).collect();
    others.iter_mut().for_each(|client| client.get("/"));
    scene.has_waiting(5);
    // Whose copy should be still right?
    first.says("HTTP/1.1 304 Not Modified\r\n\r\n");
    drop(first);
    leader.answer().has(502).said("detail=origin-broken");
    let second = scene.origin.asked("/");
    scene.origin.is_left_alone();
    second.depends("front", "one");
    for client in &mut others {
        client.answer().is(200, "one");
    }
}

#[test]
fn a_fill_that_an_update_overtook_serves_nobody_who_waited() {
    let scene = Scene::new();
    let (mut leader, asked, mut other) = scene.two_ask("/");
    scene.ends(scene.begins(Some("front")));
    asked.depends("front", "old");
    leader.answer().is(200, "old");
    scene.origin.asked("/").depends("front", "new");
    other.answer().is(200, "new");
}

#[test]
fn who_has_waited_twice_for_nothing_waits_no_longer() {
    let scene = Scene::new();
    let (mut leader, asked, mut one) = scene.two_ask("/");
    let mut two = scene.client();
    two.get("/");
    scene.has_waiting(2);
    scene.ends(scene.begins(Some("front")));
    asked.depends("front", "old");
    leader.answer().is(200, "old");
    // One of the two leads now, and a third comes to wait.
    let asked = scene.origin.asked("/");
    scene.has_waiting(1);
    scene.origin.is_left_alone();
    let mut three = scene.client();
    three.get("/");
    scene.has_waiting(2);
    scene.origin.is_left_alone();
    scene.ends(scene.begins(Some("front")));
    asked.depends("front", "old too");
    // The third leads, and who has waited twice goes beside it.
    for asked in [scene.origin.asked("/"), scene.origin.asked("/")] {
        asked.depends("front", "new");
    }
    scene.origin.is_left_alone();
    let lost = [&mut one, &mut two].map(|client| client.answer().field("cache-status").unwrap());
    assert_eq!(lost.iter().filter(|said| said.contains("detail=fills-lost")).count(), 1, "{lost:?}");
    three.answer().is(200, "new").said("stored");
    scene.hits("/", "new");
}

#[test]
fn a_fill_during_which_the_lease_is_lost_serves_nobody_who_waited() {
    let scene = Scene::new();
    let (mut leader, asked, mut other) = scene.two_ask("/");
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
    scene.has_waiting(1);
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

/// A page of which only the whole shows whether it may be stored: nobody joins it. Its leader's cookie is ignored, and may stand in it.
fn two_ask_for_one_that_is_looked_into(scene: &Scene) -> (Client, Asked, Client) {
    let (mut leader, mut other) = (scene.client(), scene.client());
    leader.get_with("/", &["Cookie: sid=0123456789"]);
    let asked = scene.origin.asked("/");
    other.get("/");
    scene.has_waiting(1);
    (leader, asked, other)
}

fn ignoring(change: impl FnOnce(&mut ProxyConfig)) -> Scene {
    Scene::with(|config| {
        let cookies = CookieRule { ignore: Some(vec!["sid".into()]), ..CookieRule::default() };
        config.routes = vec![Rule { cookies, ..Rule::default() }];
        change(config);
    })
}

#[test]
fn nobody_waits_longer_for_another_request_than_for_the_application() {
    let scene = ignoring(|config| config.origin_timeout.0 = Duration::from_millis(2000));
    let (mut leader, mut asked, mut other) = two_ask_for_one_that_is_looked_into(&scene);
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
fn a_page_that_is_looked_into_and_takes_long_is_not_waited_for_and_is_stored() {
    let scene = ignoring(|config| config.fills = 2);
    let (mut leader, mut asked, mut one) = two_ask_for_one_that_is_looked_into(&scene);
    let mut two = scene.client();
    two.get("/");
    scene.has_waiting(2);
    asked.says("HTTP/1.1 200 OK\r\nVerbena-Dependencies: front\r\nContent-Length: 4\r\n\r\nlo");
    leader.head().has(200);
    // Those who waited go to the application one by one, within the fills that may be: one place is the slow page's.
    let first = scene.origin.asked("/");
    scene.origin.is_left_alone();
    first.depends("front", "soon");
    scene.origin.asked("/").depends("front", "soon");
    for client in [&mut one, &mut two] {
        client.answer().is(200, "soon").said("detail=fill-slow");
    }
    // Who comes now does not wait either.
    let mut three = scene.client();
    three.get("/");
    scene.origin.asked("/").depends("front", "soon");
    three.answer().is(200, "soon").said("detail=fill-slow");
    asked.says("ng");
    scene.comes("the page", |scene| scene.gauge("verbena_proxy_pages") == 1.0);
    scene.hits("/", "long");
}

#[test]
fn an_unstorable_page_is_remembered_so_that_nobody_waits_for_it() {
    let scene = Scene::new();
    let (mut leader, asked, mut other) = scene.two_ask("/");
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
    two.answer().is(200, "2").said("detail=no-store; remembered");
    first.answers(&["Cache-Control: no-store"], "1");
    one.answer().is(200, "1");
    assert_eq!(scene.counted("verbena_proxy_not_stored_total", ("reason", "no-store")), 1);
}

#[test]
fn who_waited_for_another_variant_gets_its_own() {
    let scene = Scene::new();
    let vary = ["Vary: Accept-Language", "Verbena-Dependencies: front"];
    let (mut one, mut two) = (scene.client(), scene.client());
    one.get_with("/", &["Accept-Language: de"]);
    let german = scene.origin.asked("/");
    two.get_with("/", &["Accept-Language: en"]);
    scene.has_waiting(1);
    german.answers(&vary, "hallo");
    one.answer().is(200, "hallo");
    scene.origin.asked("/").answers(&vary, "hello");
    two.answer().is(200, "hello").said("stored");
}

#[test]
fn nobody_waits_for_the_end_of_a_stream_of_events() {
    let scene = Scene::new();
    let (mut first, mut one, mut second) = scene.two_ask("/events");
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    one.says(head);
    let mut two = scene.origin.asked("/events");
    two.says(head);
    for asked in [&mut one, &mut two] {
        asked.says("8\r\ndata: 1\n\r\n0\r\n\r\n");
    }
    first.answer().is(200, "data: 1\n").said("detail=event-stream");
    second.answer().is(200, "data: 1\n");
}
