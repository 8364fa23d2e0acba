//! Clients that speak TLS, and HTTP/2 or HTTP/1.1 in it.

use std::fs;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::scene::visitor::{DATA, END_STREAM, HEADERS};
use crate::scene::{Curl, PATIENCE, Scene, Site, Visitor};

/// A proxy with certificates for these names, each of its own.
fn scene_of(site: &Site, names: &[&str]) -> Scene {
    let pairs: Vec<_> =
        names.iter().enumerate().map(|(nth, name)| site.issues(&format!("site-{nth}"), &[name])).collect();
    Scene::with(|config| {
        (config.tls_cert, config.tls_key) = pairs.into_iter().unzip();
    })
}

#[test]
fn a_page_is_one_over_both_versions() {
    let site = Site::new();
    let scene = scene_of(&site, &["shop"]);
    let asks = |path: &str, more: &[&str]| Curl::asks(scene.proxy.address(), &site.authority(), "shop", path, more);
    let Some(first) = asks("/", &["--http2"]) else { return };
    let asked = scene.origin.asked("/");
    assert!(asked.head.starts_with("GET / HTTP/1.1\r\n"), "{}", asked.head);
    let port = scene.proxy.address().port();
    assert_eq!(asked.field("host"), Some(format!("shop:{port}")));
    assert_eq!(asked.field("x-forwarded-proto").as_deref(), Some("https"));
    assert_eq!(asked.field("via").as_deref(), Some("2 verbena"));
    asked.depends("front", "page");
    let answer = first.answer();
    assert!(answer.head.starts_with("HTTP/2 200"), "{}", answer.head);
    answer.is(200, "page").said("stored");
    scene.comes("the page", |_| {
        asks("/", &["--http2", "-H", "Cache-Control: only-if-cached"]).unwrap().answer().status == 200
    });
    let answer = asks("/", &["--http2"]).unwrap().answer();
    answer.is(200, "page").said("verbena; hit");
    let answer = asks("/", &["--http1.1"]).unwrap().answer();
    assert!(answer.head.starts_with("HTTP/1.1 200"), "{}", answer.head);
    answer.is(200, "page").said("verbena; hit");
    // TLS 1.2, for those that have no other.
    asks("/", &["--tls-max", "1.2"]).unwrap().answer().is(200, "page").said("verbena; hit");
    let Some(write) = asks("/buy", &["--http2", "--data", "seven"]) else { return };
    let mut asked = scene.origin.asked("/buy");
    assert_eq!(asked.reads(5), b"seven");
    assert_eq!(asked.field("content-length").as_deref(), Some("5"));
    asked.page("bought");
    write.answer().is(200, "bought");
    scene.origin.is_left_alone();
}

#[test]
fn a_client_is_shown_the_certificate_of_the_name_that_it_asks_for() {
    let site = Site::new();
    let scene = scene_of(&site, &["first", "shop", "*.example.org"]);
    for (host, is_proven) in [
        ("shop", true),
        ("SHOP", true),
        ("a.example.org", true),
        ("first", true),
        ("other", false),
        ("a.b.example.org", false),
    ] {
        let more = ["-H", "Cache-Control: only-if-cached"];
        let Some(curl) = Curl::asks(scene.proxy.address(), &site.authority(), host, "/", &more) else { return };
        match curl.tries() {
            Ok(answer) => assert!(is_proven && answer.status == 504, "{host}: {answer:?}"),
            Err(said) => assert!(!is_proven && said.contains("certificate subject name"), "{host}: {said}"),
        }
    }
}

/// The subject of the certificate that is shown, as OpenSSL tells it.
fn shown(scene: &Scene, site: &Site) -> Option<String> {
    let client = Command::new("openssl")
        .args(["s_client", "-connect", &scene.proxy.address().to_string(), "-servername", "shop", "-CAfile"])
        .arg(site.authority())
        .args(["-verify_return_error"])
        .stdin(Stdio::null())
        .output();
    match client {
        Ok(output) => String::from_utf8_lossy(&output.stdout)
            .lines()
            .find_map(|line| Some(line.strip_prefix("subject=")?.trim().to_owned())),
        Err(error) => {
            eprintln!("skipped: openssl cannot be started: {error}");
            None
        }
    }
}

#[test]
fn a_renewed_certificate_is_shown_and_no_connection_is_lost() {
    let site = Site::new();
    let scene = scene_of(&site, &["shop"]);
    let Some(before) = shown(&scene, &site) else { return };
    assert!(before.ends_with("site-0"), "{before}");
    // A connection that is open all the while: it asks, and is answered when all is over.
    let Some(curl) = Curl::asks(scene.proxy.address(), &site.authority(), "shop", "/", &[]) else { return };
    let asked = scene.origin.asked("/");
    let becomes = |stem: &str, what: &str| {
        scene.comes(what, |_| shown(&scene, &site).is_some_and(|subject| subject.ends_with(stem)));
    };
    // One file before the other, as they are renamed: until both are there, the old pair is shown.
    let (certificate, key) = site.issues("renewed", &["shop"]);
    fs::rename(certificate, site.path("site-0.pem")).unwrap();
    let end = Instant::now() + Duration::from_millis(1500);
    while Instant::now() < end {
        assert_eq!(shown(&scene, &site).as_ref(), Some(&before), "a certificate without its key");
    }
    fs::rename(key, site.path("site-0.key")).unwrap();
    becomes("renewed", "the renewed certificate");
    // By a signal, whatever the files' stamps say.
    let (certificate, key) = site.issues("again", &["shop"]);
    fs::rename(certificate, site.path("site-0.pem")).unwrap();
    fs::rename(key, site.path("site-0.key")).unwrap();
    scene.proxy.reload_certificates();
    assert!(shown(&scene, &site).is_some_and(|subject| subject.ends_with("again")));
    // A key between the lines of an older form, as some tools write it.
    let (certificate, key) = site.issues("older", &["shop"]);
    let text = fs::read_to_string(key).unwrap().replace(" PRIVATE KEY", " EC PRIVATE KEY");
    fs::rename(certificate, site.path("site-0.pem")).unwrap();
    fs::write(site.path("site-0.key"), text).unwrap();
    scene.proxy.reload_certificates();
    assert!(shown(&scene, &site).is_some_and(|subject| subject.ends_with("older")));
    // What cannot be read leaves things as they are.
    fs::write(site.path("site-0.key"), "no key").unwrap();
    scene.proxy.reload_certificates();
    assert!(shown(&scene, &site).is_some_and(|subject| subject.ends_with("older")));
    asked.page("page");
    curl.answer().is(200, "page");
}

#[test]
fn what_is_no_tls_is_closed_and_counted() {
    let site = Site::new();
    let scene = scene_of(&site, &["shop"]);
    let mut plain = scene.client();
    plain.stream.write_all(b"GET / HTTP/1.1\r\nHost: shop\r\n\r\n").unwrap();
    let mut said = Vec::new();
    let _ = plain.stream.read_to_end(&mut said);
    assert!(!said.starts_with(b"HTTP"), "{said:?}");
    let failed = |reason| ("verbena_proxy_handshakes_failed_total", ("reason", reason));
    let (name, refused) = failed("refused");
    scene.comes("the count", |scene| scene.counted(name, refused) == 1);
    scene.origin.is_left_alone();
}

#[test]
fn a_client_that_says_nothing_is_given_up() {
    let site = Site::new();
    let pair = site.issues("site", &["shop"]);
    let scene = Scene::with(|config| {
        (config.tls_cert, config.tls_key) = (vec![pair.0], vec![pair.1]);
        config.client_timeout.0 = Duration::from_millis(300);
    });
    let mut silent = scene.client();
    silent.stream.set_read_timeout(Some(PATIENCE)).unwrap();
    silent.is_closed();
    let slow = ("reason", "slow");
    scene.comes("the count", |scene| scene.counted("verbena_proxy_handshakes_failed_total", slow) == 1);
}

#[test]
fn trailers_pass() {
    let site = Site::new();
    let scene = scene_of(&site, &["shop"]);
    let mut visitor = Visitor::over_http2(scene.proxy.address(), &site);
    let fields = [
        (":method", "GET"),
        (":scheme", "https"),
        (":authority", "shop"),
        (":path", "/"),
        ("cache-control", "no-store"),
        ("te", "trailers"),
    ];
    visitor.asks(1, END_STREAM, &fields);
    scene.origin.asked("/").says(
        "HTTP/1.1 200 OK\r\nTrailer: Grpc-Status\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npage\r\n0\r\nGrpc-Status: 0\r\n\r\n",
    );
    let frames: Vec<(u8, bool)> = std::iter::from_fn(|| visitor.next())
        .filter(|frame| frame.stream == 1)
        .scan(false, |ended, frame| {
            let is_over = std::mem::replace(ended, frame.flags & END_STREAM > 0);
            (!is_over).then_some((frame.kind, *ended))
        })
        .take(3)
        .collect();
    assert_eq!(frames, [(HEADERS, false), (DATA, false), (HEADERS, true)]);
}
