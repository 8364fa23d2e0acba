//! So many pages are fetched from the application at once, and no more: after a cold start, a change of view, the loss of a lease.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::scene::{Client, Scene};

fn scene(fills: usize) -> Scene {
    Scene::with(|config| config.fills = fills)
}

impl Scene {
    /// Each asks for its page, one after the other, and comes to have a place or to wait for one.
    fn all_ask(&self, paths: &[String], waiting: usize) -> Vec<Client> {
        let mut clients = Vec::new();
        for (at, path) in paths.iter().enumerate() {
            let mut client = self.client();
            client.get(path);
            clients.push(client);
            let (fills, waits) = ((at + 1).min(paths.len() - waiting), (at + 1).saturating_sub(paths.len() - waiting));
            self.comes("its turn", |scene| {
                scene.gauge("verbena_proxy_fills") == fills as f64
                    && scene.gauge("verbena_proxy_fills_waiting") == waits as f64
            });
        }
        clients
    }
}

fn paths(pages: usize) -> Vec<String> {
    (0..pages).map(|page| format!("/{page}")).collect()
}

#[test]
fn a_cold_start_asks_the_application_for_a_few_pages_at_once_and_for_all_in_order() {
    let scene = scene(2);
    let paths = paths(7);
    let mut clients = scene.all_ask(&paths, 5);
    // They go out over two connections: either can be there first.
    let mut both = [scene.origin.asked_any(), scene.origin.asked_any()];
    both.sort_by(|one, other| one.head.cmp(&other.head));
    let [mut first, mut second] = both;
    assert!(first.head.starts_with("GET /0 ") && second.head.starts_with("GET /1 "));
    assert_eq!(scene.gauge("verbena_proxy_fills"), 2.0);
    for path in &paths[2..] {
        scene.origin.is_left_alone();
        // A head is not the whole answer.
        first.says("HTTP/1.1 200 OK\r\nVerbena-Dependencies: front\r\nContent-Length: 4\r\n\r\n");
        scene.origin.is_left_alone();
        first.says("page");
        drop(first);
        first = second;
        second = scene.origin.asked(path);
    }
    for asked in [first, second] {
        asked.depends("front", "page");
    }
    for (client, path) in clients.iter_mut().zip(&paths) {
        client.answer().is(200, "page").said("stored");
        scene.hits(path, "page");
    }
    scene.comes("the end", |scene| scene.gauge("verbena_proxy_fills") == 0.0);
    assert_eq!(scene.gauge("verbena_proxy_fills_waiting"), 0.0);
}

#[test]
fn a_change_of_view_asks_the_application_for_a_few_pages_at_once_and_only_for_those_that_moved() {
    let mut scene = scene(3);
    let paths = paths(40);
    for path in &paths {
        scene.fills(path, path, "before");
    }
    scene.another_home_joins();
    let mut clients: Vec<Client> = paths.iter().map(|_| scene.client()).collect();
    for (client, path) in clients.iter_mut().zip(&paths) {
        client.get(path);
    }
    let mut moved = BTreeSet::new();
    loop {
        let mut asked = Vec::new();
        while let Some(one) = scene.origin.asked_soon() {
            asked.push(one);
        }
        assert!(asked.len() <= 3, "{} at once", asked.len());
        if asked.is_empty() {
            break;
        }
        for one in asked {
            let path = one.head.split(' ').nth(1).unwrap().to_owned();
            one.depends(&path, "after");
            assert!(moved.insert(path), "a page is fetched twice");
        }
    }
    assert!((5..35).contains(&moved.len()), "{} of 40 pages have moved", moved.len());
    for (client, path) in clients.iter_mut().zip(&paths) {
        client.answer().is(200, if moved.contains(path) { "after" } else { "before" });
    }
}

#[test]
fn what_waited_is_stored_although_an_update_came_between() {
    let scene = scene(1);
    let mut clients = scene.all_ask(&paths(2), 1);
    let first = scene.origin.asked("/0");
    scene.ends(scene.begins(None));
    first.depends("front", "old");
    clients[0].answer().is(200, "old");
    scene.origin.asked("/1").depends("front", "new");
    clients[1].answer().is(200, "new");
    scene.hits("/1", "new");
}

#[test]
fn without_a_lease_the_application_is_asked_for_a_few_pages_at_once_too() {
    let scene = scene(2);
    scene.loses_lease();
    let mut clients = scene.all_ask(&vec!["/".to_owned(); 4], 2);
    for _ in 0..2 {
        let both = [scene.origin.asked("/"), scene.origin.asked("/")];
        scene.origin.is_left_alone();
        both.into_iter().for_each(|asked| asked.page("page"));
    }
    for client in &mut clients {
        client.answer().is(200, "page").said("detail=no-lease");
    }
}

#[test]
fn what_writes_and_what_is_never_cached_takes_no_place() {
    let scene = scene(1);
    let mut clients = scene.all_ask(&paths(2), 1);
    let first = scene.origin.asked("/0");
    let (mut bypasses, mut writes) = (scene.client(), scene.client());
    bypasses.get_with("/now", &["Cache-Control: no-store"]);
    scene.origin.asked("/now").page("now");
    bypasses.answer().is(200, "now");
    writes.post("/cart", "one");
    let mut cart = scene.origin.asked("/cart");
    cart.reads(3);
    cart.page("done");
    writes.answer().is(200, "done");
    // What is remembered as never stored is asked for whatever the cache holds.
    first.answers(&["Cache-Control: no-store"], "mine");
    clients[0].answer().is(200, "mine");
    let second = scene.origin.asked("/1");
    let mut again = scene.client();
    again.get("/0");
    scene.origin.asked("/0").answers(&["Cache-Control: no-store"], "mine again");
    again.answer().is(200, "mine again").said("detail=no-store; remembered");
    second.page("page");
    clients[1].answer().is(200, "page");
}

#[test]
fn an_application_that_fails_is_asked_for_a_few_pages_at_once_too_and_soon_for_a_page_to_keep() {
    let scene = scene(1);
    let mut client = scene.client();
    client.get("/");
    scene.origin.asked("/").says("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nbusy");
    client.answer().is(503, "busy").said("detail=status");
    // Nobody waits for what another gets, and each takes a place.
    let (mut one, mut two) = (scene.client(), scene.client());
    one.get("/");
    let first = scene.origin.asked("/");
    two.get("/");
    scene.comes("one that waits", |scene| scene.gauge("verbena_proxy_fills_waiting") == 1.0);
    scene.origin.is_left_alone();
    first.page("well");
    one.answer().is(200, "well").said("detail=failing");
    scene.origin.asked("/").page("well");
    two.answer().is(200, "well").said("detail=failing");
    std::thread::sleep(Duration::from_millis(1100));
    scene.fills("/", "front", "page");
}

#[test]
fn beyond_those_that_may_wait_a_page_is_refused_at_once() {
    let scene = scene(1);
    let mut clients = scene.all_ask(&paths(33), 32);
    let mut beyond = scene.client();
    beyond.get("/beyond");
    beyond.answer().has(503).said("detail=fills-crowded");
    assert_eq!(scene.counter("verbena_proxy_fills_refused_total"), 1);
    for (client, path) in clients.iter_mut().zip(paths(33)) {
        scene.origin.asked(&path).depends("front", "page");
        client.answer().is(200, "page");
    }
    scene.fills("/beyond", "front", "page");
}

#[test]
fn nobody_waits_for_a_place_longer_than_for_the_application() {
    let scene = Scene::with(|config| (config.fills, config.origin_timeout.0) = (1, Duration::from_millis(2000)));
    let mut clients = scene.all_ask(&paths(1), 0);
    // Asked at the same time, the second would be given up at the same time as the first.
    std::thread::sleep(Duration::from_millis(500));
    for (waiting, path) in ["/1", "/2"].into_iter().enumerate() {
        let mut client = scene.client();
        client.get(path);
        clients.push(client);
        scene.comes("its turn", |scene| scene.gauge("verbena_proxy_fills_waiting") == (waiting + 1) as f64);
    }
    // It is silent: when the first is given up the second gets its place, and the third has waited long enough before that is over.
    let _silent = [scene.origin.asked("/0"), scene.origin.asked("/1")];
    clients[2].answer().has(503).said("detail=fills-crowded");
    for client in &mut clients[..2] {
        client.answer().has(504);
    }
}

#[test]
fn who_sends_no_more_while_it_waits_stays_in_the_queue() {
    let scene = scene(1);
    let mut clients = scene.all_ask(&paths(3), 2);
    let first = scene.origin.asked("/0");
    clients[1].stream.shutdown(std::net::Shutdown::Write).unwrap();
    first.depends("front", "page");
    scene.origin.asked("/1").depends("front", "page");
    scene.origin.asked("/2").depends("front", "page");
    for client in &mut clients {
        client.answer().is(200, "page");
    }
}

#[test]
fn who_waited_for_what_cannot_be_stored_is_let_go_within_the_places() {
    let scene = scene(1);
    let mut leader = scene.client();
    leader.get("/");
    let first = scene.origin.asked("/");
    let mut others: Vec<_> = (0..4).map(|_| scene.client()).collect();
    others.iter_mut().for_each(|client| client.get("/"));
    scene.has_waiting(4);
    first.answers(&["Cache-Control: private"], "hers");
    leader.answer().is(200, "hers");
    for _ in 0..4 {
        let asked = scene.origin.asked("/");
        scene.origin.is_left_alone();
        asked.answers(&["Cache-Control: private"], "page");
    }
    for client in &mut others {
        client.answer().is(200, "page").said("detail=private; remembered");
    }
}
