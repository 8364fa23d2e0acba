//! Slow readers, ends, and connections that change hands.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use verbena_proxy::Hits;
use verbena_terms::Lapse;

use super::twins::Twin;
use crate::scene::{Client, Scene};

const HIT: &str = "GET / HTTP/1.1\r\nHost: shop\r\n\r\n";

#[test]
fn an_update_between_two_requests_of_a_connection_is_seen() {
    sees_updates(Twin::new(Hits::Direct, false));
}

#[test]
fn an_update_is_seen_where_words_are_waited_for() {
    sees_updates(Twin::new(Hits::Direct, true));
}

fn sees_updates(mut twin: Twin) {
    let request = "GET /p/small HTTP/1.1\r\nHost: shop\r\n\r\n";
    for _ in 0..5 {
        let mut client = twin.scene.client();
        client.send(&request.repeat(3));
        for _ in 0..3 {
            client.answer().has(200).said("verbena; hit");
        }
        let ticket = twin.scene.begins(Some("front"));
        client.get("/p/small");
        client.answer().has(200).said("detail=update-open");
        twin.scene.ends(ticket);
        client.get("/p/small");
        client.answer().has(200).said("fwd=stale");
        twin.fill();
    }
}

#[test]
fn without_a_lease_nothing_is_a_hit() {
    let scene = Scene::new();
    scene.fills("/", "front", "one");
    let mut client = scene.client();
    client.get("/");
    client.answer().is(200, "one").said("verbena; hit");
    scene.loses_lease();
    client.get("/");
    scene.origin.asked("/").page("two");
    client.answer().is(200, "two").said("no-lease");
    scene.has_lease_again();
}

#[test]
fn a_connection_changes_hands_and_comes_back() {
    let scene = Scene::new();
    scene.fills("/", "front", "one");
    let mut client = scene.client();
    for _ in 0..5 {
        // Behind a body, behind half a head, and behind a miss, in one piece.
        let post = "POST /n HTTP/1.1\r\nHost: shop\r\nContent-Length: 3\r\n\r\n";
        client.send(&format!("{HIT}GET /miss HTTP/1.1\r\nHost: shop\r\n\r\n{HIT}{post}ab"));
        scene.origin.asked("/miss").answers(&["Cache-Control: no-store"], "missed");
        client.answer().is(200, "one").said("verbena; hit");
        client.answer().is(200, "missed");
        client.answer().is(200, "one").said("verbena; hit");
        client.send(&format!("c{}", &HIT[..10]));
        let mut asked = scene.origin.asked("/n");
        assert_eq!(asked.reads(3), b"abc");
        asked.answers(&["Cache-Control: no-store"], "posted");
        client.answer().is(200, "posted");
        client.send(&HIT[10..]);
        // It was an update of everything.
        scene.origin.asked("/").depends("front", "one");
        client.answer().is(200, "one");
        scene.hits("/", "one");
    }
}

#[test]
fn who_takes_nothing_is_given_up_and_nothing_more_is_read_from_it() {
    let scene = Scene::with(|config| config.client_timeout = Lapse(Duration::from_millis(1500)));
    let body = "x".repeat(200_000);
    scene.fills("/", "front", &body);
    let mut client = scene.client();
    let requests = HIT.repeat(400);
    client.send(&requests);
    scene.comes("the end of a client that takes nothing", |scene| {
        scene.counter("verbena_proxy_stalled_connections_total") == 1
    });
    let hits = scene.counted("verbena_proxy_answers_total", ("result", "hit"));
    assert!(hits < 200, "{hits} answers for a client that takes none");
    scene.comes("the end of its connection", |scene| scene.gauge("verbena_proxy_connections") == 0.0);
}

#[test]
fn a_slow_reader_gets_all_of_its_answers_and_one_that_has_closed_its_half_too() {
    let scene = Scene::new();
    let body = "y".repeat(150_000);
    scene.fills("/", "front", &body);
    let mut client = scene.client();
    client.send(&HIT.repeat(60));
    client.stream.shutdown(Shutdown::Write).unwrap();
    for _ in 0..60 {
        client.answer().is(200, &body).said("verbena; hit");
        std::thread::sleep(Duration::from_millis(2));
    }
    client.is_closed();
}

#[test]
fn many_hits_of_one_client_let_others_pass() {
    let scene = Scene::with(|config| config.threads = 1);
    scene.fills("/", "front", "one");
    let mut greedy = scene.client();
    let mut sender = greedy.stream.try_clone().unwrap();
    let sending = std::thread::spawn(move || {
        for _ in 0..300 {
            if sender.write_all(HIT.repeat(100).as_bytes()).is_err() {
                return;
            }
        }
    });
    let mut other = scene.client();
    for _ in 0..50 {
        other.get("/");
        other.answer().is(200, "one");
    }
    greedy.answer().is(200, "one");
    drop(greedy);
    sending.join().unwrap();
}

#[test]
fn an_end_of_the_proxy_is_one_of_a_connection_that_was_answered() {
    let scene = Scene::new();
    scene.fills("/", "front", "one");
    let mut idle = scene.client();
    idle.get("/");
    idle.answer().is(200, "one").said("verbena; hit");
    let body = "z".repeat(200_000);
    scene.fills("/large", "front", &body);
    let mut slow: Client = scene.client();
    slow.send("GET /large HTTP/1.1\r\nHost: shop\r\n\r\n".repeat(30).as_str());
    slow.answer().is(200, &body);
    let Scene { node, proxy, origin, registry, runtime, .. } = scene;
    let stopping = std::thread::spawn(move || proxy.stop());
    idle.is_closed();
    // What was begun comes to its end, or its connection ends between two answers.
    let mut whole = 0;
    while slow.stream.peek(&mut [0]).is_ok_and(|bytes| bytes > 0) || slow.left() > 0 {
        let mut bytes = Vec::new();
        let _ = slow.stream.read_to_end(&mut bytes);
        whole += bytes.len();
    }
    assert!(whole > 0);
    stopping.join().unwrap();
    drop((node, origin, registry, runtime));
}

#[test]
fn half_a_head_between_hits_is_waited_for_and_then_answered_as_slow() {
    let scene = Scene::with(|config| config.client_timeout = Lapse(Duration::from_millis(1500)));
    scene.fills("/", "front", "one");
    let mut client = scene.client();
    client.send(&format!("{HIT}{}", &HIT[..12]));
    client.answer().is(200, "one").said("verbena; hit");
    client.answer().has(408).said("detail=head-slow");
    client.is_closed();
    // One that says nothing at all is closed without a word.
    let mut silent = scene.client();
    silent.get("/");
    silent.answer().is(200, "one");
    silent.is_closed();
}
