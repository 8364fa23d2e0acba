//! Clients that send no more: half-closed (RFC 9112 section 9.6), or gone. From here both look alike, until they are written to.

use std::net::Shutdown;

use crate::scene::{Client, Scene};

fn says_its_last(scene: &Scene, request: &str) -> Client {
    let mut client = scene.client();
    client.send(request);
    client.stream.shutdown(Shutdown::Write).unwrap();
    client
}

#[test]
fn a_client_that_sends_no_more_gets_its_answer() {
    let scene = Scene::new();
    scene.fills("/hit", "front", "page");
    for _ in 0..20 {
        let mut client = says_its_last(&scene, "GET /hit HTTP/1.1\r\nHost: shop\r\n\r\n");
        client.answer().is(200, "page").said("verbena; hit");
        client.is_closed();
    }
    for (request, path) in [
        ("GET /miss HTTP/1.1\r\nHost: shop\r\n\r\n", "/miss"),
        ("GET /old HTTP/1.0\r\nHost: shop\r\n\r\n", "/old"),
        ("OPTIONS /passed HTTP/1.1\r\nHost: shop\r\n\r\n", "/passed"),
        ("POST /write HTTP/1.1\r\nHost: shop\r\nContent-Length: 2\r\n\r\nhi", "/write"),
        ("POST /chunks HTTP/1.1\r\nHost: shop\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", "/chunks"),
    ] {
        let mut client = says_its_last(&scene, request);
        let asked = scene.origin.asked(path);
        client.waits();
        asked.page("done");
        client.answer().is(200, "done");
        client.is_closed();
    }
    // All that came before the end is answered.
    let hit = "GET /write HTTP/1.1\r\nHost: shop\r\n\r\n";
    let mut client = says_its_last(&scene, &format!("{hit}{hit}"));
    scene.origin.asked("/write").depends("front", "page");
    client.answer().is(200, "page");
    if let Some(asked) = scene.origin.asked_soon() {
        asked.page("page");
    }
    client.answer().is(200, "page");
    client.is_closed();
}

#[test]
fn a_fetch_goes_on_when_the_client_that_began_it_has_gone() {
    let scene = Scene::new();
    let (leader, asked, mut other) = scene.two_ask("/");
    leader.hangs_up();
    scene.origin.is_left_alone();
    asked.depends("front", "page");
    other.answer().is(200, "page").said("collapsed");
    // Also where no other client waits.
    let mut leader = scene.client();
    leader.get("/alone");
    let asked = scene.origin.asked("/alone");
    leader.hangs_up();
    scene.origin.is_left_alone();
    asked.depends("front", "page");
    scene.hits("/alone", "page");
}
