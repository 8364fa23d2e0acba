//! Requests that join a page that is still coming (rules H5, H13).

use std::time::Duration;

use verbena_caching::Mode;
use verbena_content::Change;

use crate::scene::{Client, Scene};

const PAGE: &str = "HTTP/1.1 200 OK\r\nVerbena-Dependencies: front\r\nContent-Length: 8\r\n\r\n";

/// What a client has of a body that goes on, at least.
#[track_caller]
fn begins(client: &mut Client, body: &str) {
    client.head().has(200);
    client.has_of_body(body.as_bytes());
}

#[test]
fn who_waited_and_who_comes_later_get_what_is_there_at_once() {
    for mode in [Mode::Coherent, Mode::Standard] {
        let scene = Scene::with(|config| config.mode = mode);
        let (mut leader, mut asked, mut waited) = scene.two_ask("/");
        asked.says(&PAGE.replace("\r\n\r\n", "\r\nCache-Control: max-age=600\r\n\r\n")).says("half");
        begins(&mut leader, "half");
        begins(&mut waited, "half");
        let mut later = scene.client();
        later.get("/");
        let head = later.head();
        head.has(200).said("collapsed");
        assert_eq!(head.field("content-length").as_deref(), Some("8"));
        later.has_of_body(b"half");
        scene.origin.is_left_alone();
        asked.says("half");
        for client in [&mut leader, &mut waited, &mut later] {
            client.has_of_body(b"halfhalf");
        }
        scene.hits("/", "halfhalf");
        scene.origin.is_left_alone();
        scene.comes("the memory", |scene| scene.gauge("verbena_proxy_fill_bytes") == 0.0);
    }
}

#[test]
fn a_herd_costs_one_request_and_all_of_it_get_what_is_there_at_once() {
    let scene = Scene::new();
    let mut herd: Vec<Client> = (0..200).map(|_| scene.client()).collect();
    herd[0].get("/");
    let mut asked = scene.origin.asked("/");
    for client in &mut herd[1..150] {
        client.get("/");
    }
    scene.has_waiting(149);
    asked.says(PAGE).says("half");
    for client in &mut herd[..150] {
        begins(client, "half");
    }
    for client in &mut herd[150..] {
        client.get("/");
        begins(client, "half");
    }
    scene.origin.is_left_alone();
    asked.says("half");
    for client in &mut herd {
        client.has_of_body(b"halfhalf");
    }
    scene.hits("/", "halfhalf");
    scene.origin.is_left_alone();
}

/// Rule H5: the page was made before the update, which was acknowledged before this request came.
#[test]
fn who_comes_after_an_update_does_not_join_what_was_made_before_it() {
    let scene = Scene::new();
    let mut leader = scene.client();
    leader.get("/");
    let mut old = scene.origin.asked("/");
    old.says(PAGE).says("old ");
    begins(&mut leader, "old ");
    let mut before = scene.client();
    before.get("/");
    begins(&mut before, "old ");
    scene.ends(scene.begins(Some("front")));
    let mut after = scene.client();
    after.get("/");
    scene.origin.asked("/").depends("front", "new");
    after.answer().is(200, "new").said("stored");
    scene.hits("/", "new");
    // What comes to its end now is older, and does not take its place (rule H6).
    old.says("page");
    for client in [&mut leader, &mut before] {
        client.has_of_body(b"old page");
    }
    for _ in 0..10 {
        scene.hits("/", "new");
        std::thread::sleep(Duration::from_millis(5));
    }
    scene.origin.is_left_alone();
}

/// While an update is open nothing is joined either.
#[test]
fn who_comes_while_an_update_is_open_goes_to_the_application() {
    let scene = Scene::new();
    let mut leader = scene.client();
    leader.get("/");
    let mut asked = scene.origin.asked("/");
    asked.says(PAGE).says("half");
    begins(&mut leader, "half");
    let update = scene.begins(Some("front"));
    let mut other = scene.client();
    other.get("/");
    scene.origin.asked("/").depends("front", "own");
    other.answer().is(200, "own").said("detail=update-open");
    scene.ends(update);
    asked.says("half");
    leader.has_of_body(b"halfhalf");
    scene.misses("/");
}

#[test]
fn a_purge_is_not_outlived_by_what_is_still_coming() {
    let scene = Scene::with(|config| config.mode = Mode::Standard);
    let mut leader = scene.client();
    leader.get("/");
    let mut asked = scene.origin.asked("/");
    asked.says(&PAGE.replace("\r\n\r\n", "\r\nCache-Control: max-age=600\r\n\r\n")).says("old ");
    begins(&mut leader, "old ");
    let purge = scene.node.content.purge(Change::Hard, scene.node.only(b"front"));
    assert!(scene.runtime.block_on(purge).is_ok());
    let mut after = scene.client();
    // For a moment after a purge is acknowledged its end is on its way to the home, which stores nothing until then.
    let is_stored = (0..1000).any(|_| {
        after.get("/");
        scene.origin.asked("/").answers(&["Cache-Control: max-age=600"], "new");
        let answer = after.answer();
        answer.is(200, "new");
        answer.field("cache-status").is_some_and(|status| status.contains("stored"))
    });
    assert!(is_stored, "the home stores nothing after a purge");
    asked.says("page");
    leader.has_of_body(b"old page");
    scene.hits("/", "new");
}

#[test]
fn all_who_joined_are_cut_when_the_body_breaks_off_and_nothing_is_kept() {
    let scene = Scene::new();
    let (mut leader, mut asked, mut waited) = scene.two_ask("/");
    asked.says(PAGE).says("half");
    begins(&mut leader, "half");
    begins(&mut waited, "half");
    asked.closes();
    for client in [&mut leader, &mut waited] {
        client.is_cut();
    }
    scene.misses("/");
    scene.fills("/", "front", "whole");
}

/// Rule H13: what may not be stored is not joined.
#[test]
fn what_is_for_one_reaches_no_other() {
    let scene = Scene::new();
    let (mut leader, mut asked, mut waited) = scene.two_ask("/");
    asked.says(&PAGE.replace("\r\n\r\n", "\r\nSet-Cookie: sid=1\r\n\r\n")).says("mine");
    begins(&mut leader, "mine");
    scene.origin.asked("/").answers(&["Set-Cookie: sid=2"], "other");
    let other = waited.answer();
    other.is(200, "other");
    assert_eq!(other.field("set-cookie").as_deref(), Some("sid=2"));
    asked.says("mine");
    leader.has_of_body(b"minemine");
    drop(asked);
    // One with credentials does not join what is for those without.
    let mut anonymous = scene.client();
    anonymous.get("/other");
    let mut asked = scene.origin.asked("/other");
    asked.says(PAGE).says("half");
    begins(&mut anonymous, "half");
    let mut user = scene.client();
    user.get_with("/other", &["Authorization: Basic eDp5"]);
    scene.origin.asked("/other").depends("front", "own");
    user.answer().is(200, "own");
}

/// Larger than what may be stored, and longer than it may take: those who joined get all of it, at the pace of the slowest of them.
#[test]
fn what_turns_out_to_be_too_large_comes_to_its_end_for_all_who_joined() {
    let scene = Scene::with(|config| config.largest.0 = 64 << 10);
    let piece = "x".repeat(40_000);
    let (mut leader, mut asked, mut waited) = scene.two_ask("/");
    asked.says("HTTP/1.1 200 OK\r\nVerbena-Dependencies: front\r\nTransfer-Encoding: chunked\r\n\r\n");
    let chunk = format!("{:x}\r\n{piece}\r\n", piece.len());
    asked.says(&chunk);
    waited.head().has(200);
    let sending = std::thread::spawn(move || {
        for _ in 0..99 {
            asked.says(&chunk);
        }
        asked.says("0\r\n\r\n");
    });
    scene.comes("the refusal", |scene| scene.counted("verbena_proxy_not_stored_total", ("reason", "too-large")) == 1);
    // Nobody joins it any more, nor waits for it.
    let mut later = scene.client();
    later.get("/");
    scene.origin.asked("/").depends("front", "soon");
    later.answer().is(200, "soon");
    let reading = std::thread::spawn(move || waited.rest_of_chunks());
    let whole = leader.answer();
    assert!(whole.whole && whole.body.len() == 4_000_000, "{}", whole.body.len());
    assert_eq!(reading.join().unwrap(), 4_000_000);
    sending.join().unwrap();
    scene.comes("the memory", |scene| scene.gauge("verbena_proxy_fill_bytes") == 0.0);
    scene.misses("/");
}

#[test]
fn one_that_joined_and_takes_nothing_is_given_up_and_holds_up_the_others_no_longer() {
    let scene = Scene::with(|config| {
        config.largest.0 = 64 << 10;
        config.client_timeout.0 = Duration::from_millis(500);
    });
    let piece = "x".repeat(40_000);
    let (mut leader, mut asked, mut stalled) = scene.two_ask("/");
    asked.says("HTTP/1.1 200 OK\r\nVerbena-Dependencies: front\r\nTransfer-Encoding: chunked\r\n\r\n");
    let chunk = format!("{:x}\r\n{piece}\r\n", piece.len());
    asked.says(&chunk);
    stalled.head().has(200);
    let sending = std::thread::spawn(move || {
        for _ in 0..999 {
            asked.says(&chunk);
        }
        asked.says("0\r\n\r\n");
    });
    // The other takes nothing of these forty megabytes.
    let whole = leader.answer();
    assert!(whole.whole && whole.body.len() == 40_000_000, "{}", whole.body.len());
    sending.join().unwrap();
    assert_eq!(scene.counter("verbena_proxy_stalled_connections_total"), 1);
}
