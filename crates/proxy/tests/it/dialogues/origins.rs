//! Applications that fail.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use crate::scene::{Origin, Scene};

/// An address at which nobody listens.
fn nobody() -> TcpListener {
    // Bound and not listened on elsewhere: held, so that nobody else gets it.
    TcpListener::bind("127.0.0.1:0").unwrap()
}

#[test]
fn an_application_that_is_down_is_502() {
    let gone = nobody().local_addr().unwrap();
    let scene = Scene::with(|config| config.origin = vec![format!("http://{gone}")]);
    let mut client = scene.client();
    client.get("/");
    client.answer().has(502).said("detail=origin-unreachable");
    client.post("/", "");
    client.answer().has(502).said("detail=origin-unreachable");
    // Nothing was sent: the update is over.
    scene.comes("the end", |scene| {
        let counts = scene.node.content.counts().updater;
        counts.forwarded + counts.unknown == 0
    });
    assert_eq!(scene.counted("verbena_proxy_origin_errors_total", ("kind", "origin-unreachable")), 2);
    assert_eq!(scene.counted("verbena_proxy_misses_total", ("reason", "origin-unreachable")), 2);
}

#[test]
fn an_application_that_takes_no_connection_is_left_alone_whoever_noticed() {
    let gone = nobody().local_addr().unwrap();
    for method in ["GET", "POST"] {
        let scene = Scene::with(|config| config.origin = vec![format!("http://{gone}")]);
        assert_eq!(scene.proxy.origins(), (1, 1));
        let mut client = scene.client();
        client.send(&format!("{method} / HTTP/1.1\r\nHost: shop\r\nContent-Length: 0\r\n\r\n"));
        client.answer().has(502);
        assert_eq!(scene.proxy.origins(), (0, 1), "{method}");
    }
}

#[test]
fn an_application_that_is_silent_is_504() {
    let scene = Scene::with(|config| config.origin_timeout.0 = Duration::from_millis(200));
    let (mut client, mut writer) = (scene.client(), scene.client());
    client.get("/");
    let read = scene.origin.asked("/");
    client.answer().has(504).said("detail=origin-silent");
    writer.post("/", "");
    let written = scene.origin.asked("/");
    writer.answer().has(504).said("detail=origin-silent");
    scene.comes("an unknown outcome", |scene| scene.node.content.counts().updater.unknown == 1);
    drop((read, written));
}

#[test]
fn a_body_that_breaks_off_cuts_the_connection_and_is_not_stored() {
    let heads = [
        "Content-Length: 6\r\n\r\nabc",
        "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        "Transfer-Encoding: chunked\r\n\r\n6\r\nabc",
    ];
    for head in heads {
        for resets in [false, true] {
            let scene = Scene::new();
            let mut client = scene.client();
            client.get("/");
            let mut asked = scene.origin.asked("/");
            asked.says(&format!("HTTP/1.1 200 OK\r\nVerbena-Dependencies: a\r\n{head}"));
            if resets {
                // What was sent must not be overtaken by the reset.
                client.head().has(200);
                asked.resets();
                client.is_cut();
            } else {
                asked.closes();
                let answer = client.answer();
                assert!(!answer.whole, "half a page that looks whole: {}", answer.head);
            }
            scene.misses("/");
            assert_eq!(scene.gauge("verbena_proxy_pages"), 0.0);
        }
    }
}

#[test]
fn a_body_that_falls_silent_is_cut() {
    let scene = Scene::with(|config| config.origin_timeout.0 = Duration::from_millis(200));
    let mut client = scene.client();
    client.get("/");
    let mut asked = scene.origin.asked("/");
    asked.says("HTTP/1.1 200 OK\r\nVerbena-Dependencies: a\r\nContent-Length: 6\r\n\r\nabc");
    assert!(!client.answer().whole);
    scene.misses("/");
}

#[test]
fn a_body_longer_than_promised_ends_where_promised_and_spoils_nothing() {
    let scene = Scene::new();
    let mut client = scene.client();
    client.get("/");
    let mut asked = scene.origin.asked("/");
    asked.says("HTTP/1.1 200 OK\r\nVerbena-Dependencies: a\r\nContent-Length: 3\r\n\r\nabcHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil");
    client.answer().is(200, "abc");
    drop(asked);
    client.get("/next");
    scene.origin.asked("/next").page("next");
    client.answer().is(200, "next");
}

#[test]
fn what_is_no_http_is_502() {
    for nonsense in ["nonsense\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", ""] {
        let scene = Scene::new();
        let mut client = scene.client();
        client.get("/");
        // A read may be said again, over a new connection, but not for ever.
        for _ in 0..2 {
            let mut asked = scene.origin.asked("/");
            asked.says(nonsense);
            asked.closes();
        }
        client.answer().has(502).said("detail=origin-broken");
        scene.origin.is_left_alone();
    }
}

#[test]
fn a_page_whose_end_nobody_can_tell_is_not_stored() {
    let scene = Scene::new();
    let mut client = scene.client();
    client.get("/");
    let mut asked = scene.origin.asked("/");
    asked.says("HTTP/1.0 200 OK\r\nVerbena-Dependencies: a\r\n\r\nis this all");
    asked.closes();
    client.answer().is(200, "is this all").said("detail=unframed");
    scene.misses("/");
}

#[test]
fn a_kept_connection_that_the_application_closed_is_no_error_to_a_reader() {
    let scene = Scene::new();
    let mut client = scene.client();
    client.get("/");
    let asked = scene.origin.asked("/");
    let connection = asked.stream.try_clone().unwrap();
    asked.page("one");
    client.answer().is(200, "one");
    connection.shutdown(std::net::Shutdown::Both).unwrap();
    client.get("/2");
    scene.origin.asked("/2").page("two");
    client.answer().is(200, "two");
}

#[test]
fn requests_go_round_an_application_that_is_down_until_it_is_back() {
    let down = nobody().local_addr().unwrap();
    let scene = Scene::with(|config| config.origin.push(format!("http://{down}")));
    let mut client = scene.client();
    for n in 0..6 {
        let path = format!("/{n}");
        client.get(&path);
        scene.origin.asked(&path).page("from the first");
        client.answer().is(200, "from the first");
        client.post(&path, "");
        scene.origin.asked(&path).page("written at the first");
        client.answer().is(200, "written at the first");
    }
    assert_eq!(scene.proxy.origins(), (1, 2));
    let second = Origin::listen(TcpListener::bind(down).unwrap());
    scene.comes("the second", |scene| scene.proxy.origins() == (2, 2));
    let end = Instant::now() + Duration::from_secs(5);
    for n in 6.. {
        assert!(Instant::now() < end, "nothing goes to the one that came back");
        let path = format!("/{n}");
        client.get(&path);
        let is_second = loop {
            assert!(Instant::now() < end, "nobody is asked for {path}");
            if let Some(asked) = second.asked_soon() {
                asked.page("from the second");
                break true;
            }
            if let Some(asked) = scene.origin.asked_soon() {
                asked.page("from the first");
                break false;
            }
        };
        client.answer().has(200);
        if is_second {
            break;
        }
    }
}

#[test]
fn requests_go_round_an_application_that_takes_connections_and_is_silent() {
    let silent = nobody();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let scene = Scene::with(|config| {
        config.origin.push(url.clone());
        // Long enough for the one that answers, on a busy machine too.
        config.origin_timeout.0 = Duration::from_secs(1);
    });
    let is_up = |scene: &Scene| {
        let label = ("origin", url.strip_prefix("http://").unwrap());
        scene.registry.snapshot(verbena_terms::Time::ZERO).gauge("verbena_proxy_origin_up", &[label])
    };
    assert_eq!(is_up(&scene), Some(1.0));
    let mut client = scene.client();
    let mut silences = 0;
    for n in 0..20 {
        let (path, method) = (format!("/{n}"), ["GET", "POST"][n % 2]);
        client.send(&format!("{method} {path} HTTP/1.1\r\nHost: shop\r\nContent-Length: 0\r\n\r\n"));
        let end = Instant::now() + Duration::from_secs(5);
        loop {
            if let Some(asked) = scene.origin.asked_soon() {
                asked.page("from the first");
                client.answer().is(200, "from the first");
                break;
            }
            if scene.counted("verbena_proxy_origin_errors_total", ("kind", "origin-silent")) > silences {
                silences += 1;
                client.answer().has(504);
                break;
            }
            assert!(Instant::now() < end, "nobody is asked for {path}");
        }
    }
    assert_eq!(silences, 1, "one request finds out, and the others are spared");
    assert_eq!((scene.proxy.origins(), is_up(&scene)), ((1, 2), Some(0.0)));
}
