//! What a client may do over HTTP/2 without end: each is bounded, and others are answered meanwhile.

use std::io::Write;
use std::time::Duration;

use crate::scene::visitor::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, RST_STREAM, SETTINGS, WINDOW_UPDATE, block,
};
use crate::scene::{Scene, Site, Visitor};

const ENHANCE_YOUR_CALM: u32 = 11;
const REFUSED_STREAM: u32 = 7;

const PAGE: [(&str, &str); 4] = [(":method", "GET"), (":scheme", "https"), (":authority", "shop"), (":path", "/")];

fn scene(site: &Site, client_timeout: Duration) -> Scene {
    let pair = site.issues("site", &["shop"]);
    Scene::with(|config| {
        (config.tls_cert, config.tls_key) = (vec![pair.0], vec![pair.1]);
        config.client_timeout.0 = client_timeout;
    })
}

/// The number that a frame ends with: of RST_STREAM all, of GOAWAY the reason.
fn reason(payload: &[u8]) -> u32 {
    payload[payload.len().min(8) - 4..].first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

/// A page comes from the store to another client.
#[track_caller]
fn others_are_answered(scene: &Scene, site: &Site) {
    let mut visitor = Visitor::over_http2(scene.proxy.address(), site);
    let mut fields = PAGE.to_vec();
    fields.push(("cache-control", "only-if-cached"));
    visitor.asks(1, END_STREAM, &fields);
    assert!(visitor.next_of(HEADERS).is_some(), "another client is not answered");
}

#[test]
fn streams_are_so_many_and_the_next_is_refused() {
    let site = Site::new();
    let scene = scene(&site, Duration::from_secs(5));
    let mut visitor = Visitor::over_http2(scene.proxy.address(), &site);
    let settings = visitor.next_of(SETTINGS).unwrap().payload;
    let said = settings.chunks(6).find(|setting| setting[..2] == [0, 3]).map(|setting| reason(&setting[2..]));
    assert_eq!(said, Some(128));
    let mut fields = PAGE.to_vec();
    fields.push(("cache-control", "no-store"));
    for nth in 0..129 {
        visitor.asks(2 * nth + 1, END_STREAM, &fields);
    }
    let refused = visitor.next_of(RST_STREAM).unwrap();
    assert_eq!((refused.stream, reason(&refused.payload)), (257, REFUSED_STREAM));
    scene.comes("the requests", |scene| scene.gauge("verbena_proxy_requests_in_flight") == 128.0);
    others_are_answered(&scene, &site);
}

#[test]
fn a_flood_of_resets_ends_the_connection() {
    let site = Site::new();
    let scene = scene(&site, Duration::from_secs(5));
    let mut visitor = Visitor::over_http2(scene.proxy.address(), &site);
    let mut burst = Vec::new();
    for nth in 0..200_u32 {
        for (kind, flags, payload) in
            [(HEADERS, END_STREAM | END_HEADERS, block(&PAGE)), (RST_STREAM, 0, vec![0, 0, 0, 8])]
        {
            burst.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
            burst.extend_from_slice(&[kind, flags]);
            burst.extend_from_slice(&(2 * nth + 1).to_be_bytes());
            burst.extend_from_slice(&payload);
        }
    }
    let _ = visitor.write_all(&burst);
    let last = visitor.next_of(GOAWAY);
    assert_eq!(last.map(|frame| reason(&frame.payload)), Some(ENHANCE_YOUR_CALM));
    others_are_answered(&scene, &site);
}

#[test]
fn a_head_without_an_end_ends_the_connection() {
    let site = Site::new();
    let scene = scene(&site, Duration::from_secs(5));
    let mut visitor = Visitor::over_http2(scene.proxy.address(), &site);
    let mut sent = visitor.frame(HEADERS, 0, 1, &block(&PAGE));
    let more = block(&[("x-filler", "y".repeat(1000).as_str())]);
    let mut frames = 0;
    while sent.is_ok() && frames < 100_000 {
        sent = visitor.frame(CONTINUATION, 0, 1, &more);
        frames += 1;
    }
    assert!(sent.is_err(), "{frames} frames were taken");
    others_are_answered(&scene, &site);
    scene.origin.is_left_alone();
}

#[test]
fn a_connection_that_stands_still_ends() {
    let site = Site::new();
    let scene = scene(&site, Duration::from_millis(400));
    // Idle: it is told so.
    let mut idle = Visitor::over_http2(scene.proxy.address(), &site);
    assert_eq!(idle.next_of(GOAWAY).map(|frame| reason(&frame.payload)), Some(0));
    assert!(std::iter::from_fn(|| idle.next()).count() < 3, "it is closed");
    // More than the window of a stream, and nothing of it is taken.
    let mut visitor = Visitor::over_http2(scene.proxy.address(), &site);
    visitor.asks(1, END_STREAM, &PAGE);
    scene.origin.asked("/").page(&"x".repeat(250 << 10));
    while visitor.next().is_some() {}
    scene.comes("the count", |scene| scene.counter("verbena_proxy_stalled_connections_total") == 1);
    others_are_answered(&scene, &site);
}

#[test]
fn windows_and_crumbs_without_end_are_refused() {
    let site = Site::new();
    let scene = scene(&site, Duration::from_secs(5));
    let post = [(":method", "POST"), (":scheme", "https"), (":authority", "shop"), (":path", "/")];
    // A window beyond 2^31 - 1 (RFC 9113 section 6.9.1).
    let mut visitor = Visitor::over_http2(scene.proxy.address(), &site);
    for _ in 0..2 {
        let _ = visitor.frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0xff, 0xff]);
    }
    assert!(visitor.next_of(GOAWAY).is_some());
    // Bodies in frames of nothing.
    let mut visitor = Visitor::over_http2(scene.proxy.address(), &site);
    visitor.asks(1, 0, &post);
    let mut frames = 0;
    while frames < 1_000_000 && visitor.frame(DATA, 0, 1, &[]).is_ok() {
        frames += 1;
    }
    assert!(frames < 1_000_000, "{frames} empty frames were taken");
    others_are_answered(&scene, &site);
}
