//! Clients that take nothing, and pages that are too much to keep.

use std::io::Write;
use std::time::Duration;

use crate::scene::Scene;

#[test]
fn a_client_that_takes_nothing_holds_nobody_up() {
    let scene = Scene::with(|config| (config.memory.0, config.largest.0) = (64 << 20, 64 << 20));
    let body = "x".repeat(24 << 20);
    let (mut leader, asked, mut other) = scene.two_ask("/");
    asked.depends("front", &body);
    assert_eq!(other.answer().body.len(), body.len());
    // Nor does it hold anything of what fills may take: the page is stored.
    scene.comes("the memory", |scene| scene.gauge("verbena_proxy_fill_bytes") == 0.0);
    // Only now it begins to read.
    assert_eq!(leader.answer().body.len(), body.len());
}

#[test]
fn an_answer_in_many_small_pieces_is_passed_and_stored_whole() {
    let scene = Scene::new();
    let mut client = scene.client();
    client.get("/");
    let mut asked = scene.origin.asked("/");
    asked.says("HTTP/1.1 200 OK\r\nVerbena-Dependencies: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    let pieces: String = (0..40_000).map(|at| format!("1\r\n{}\r\n", at % 10)).collect();
    asked.says(&pieces).says("0\r\n\r\n");
    drop(asked);
    let whole: String = (0..40_000).map(|at| (at % 10).to_string()).collect();
    client.answer().is(200, &whole);
    scene.hits("/", &whole);
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
