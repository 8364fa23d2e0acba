//! Requests that would write and that the application refuses, where its route says which answers are refusals.

use verbena_caching::Rule;

use crate::scene::{Client, Scene};

fn scene() -> Scene {
    Scene::with(|config| config.routes = vec![Rule { harmless: Some(vec![404, 405]), ..Rule::default() }])
}

fn is_answered(scene: &Scene, client: &mut Client, status: u16) {
    client.post("/wp-login.php", "log=admin");
    scene.origin.asked("/wp-login.php").answers_status(status, &[], "no");
    client.answer().is(status, "no");
}

#[test]
fn what_the_application_refused_leaves_the_cache_as_it_was() {
    let scene = scene();
    // One page with a list of what it depends on, and one without.
    scene.fills("/", "front", "one");
    let mut client = scene.client();
    client.get("/plain");
    scene.origin.asked("/plain").page("plain");
    client.answer().is(200, "plain");
    scene.hits("/plain", "plain");
    for status in [404, 405, 404] {
        client.post("/wp-login.php", "log=admin");
        let asked = scene.origin.asked("/wp-login.php");
        // While it is not known whether it writes, nothing is answered from the cache.
        scene.misses("/");
        asked.answers_status(status, &[], "no");
        client.answer().is(status, "no").said("fwd=method").said("detail=harmless");
        scene.hits("/", "one");
        scene.hits("/plain", "plain");
    }
    assert_eq!(scene.counted("verbena_proxy_emptied_total", ("path", "/wp-login.php")), 0);
}

#[test]
fn an_answer_that_no_rule_calls_harmless_is_a_write() {
    for status in [200, 403, 500] {
        let scene = scene();
        scene.fills("/", "front", "one");
        is_answered(&scene, &mut scene.client(), status);
        scene.misses("/");
    }
}

#[test]
fn a_refusal_hides_no_write_beside_it() {
    for refused_first in [true, false] {
        let scene = scene();
        scene.fills("/", "front", "one");
        let (mut scanner, mut buyer) = (scene.client(), scene.client());
        scanner.post("/wp-login.php", "");
        let scanned = scene.origin.asked("/wp-login.php");
        buyer.post("/buy", "one");
        let bought = scene.origin.asked("/buy");
        let refuse = |scanner: &mut Client| {
            scanned.answers_status(404, &[], "no");
            scanner.answer().is(404, "no");
        };
        let buy = |buyer: &mut Client| {
            bought.page("bought");
            buyer.answer().is(200, "bought");
        };
        match refused_first {
            true => {
                refuse(&mut scanner);
                buy(&mut buyer);
            }
            false => {
                buy(&mut buyer);
                refuse(&mut scanner);
            }
        }
        scene.misses("/");
    }
}

#[test]
fn what_may_be_another_request_than_it_says_is_a_write_whatever_its_answer() {
    let scene = scene();
    scene.fills("/", "front", "one");
    let mut client = scene.client();
    client.send("POST /a HTTP/1.1\r\nHost: shop\r\nX-Original-URL: /buy\r\nContent-Length: 0\r\n\r\n");
    scene.origin.asked("/a").answers_status(404, &[], "no");
    client.answer().is(404, "no");
    scene.misses("/");
}

#[test]
fn a_refusal_that_breaks_off_may_have_written() {
    let scene = scene();
    scene.fills("/", "front", "one");
    let mut client = scene.client();
    client.post("/wp-login.php", "");
    let mut asked = scene.origin.asked("/wp-login.php");
    asked.says("HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\nno");
    asked.closes();
    client.answer().has(502);
    scene.misses("/");
}

#[test]
fn what_was_not_sent_leaves_the_cache_as_it_was() {
    let scene = Scene::new();
    scene.fills("/", "front", "one");
    let update = scene.begins(None);
    scene.misses("/");
    update.not_sent();
    scene.hits("/", "one");
}
