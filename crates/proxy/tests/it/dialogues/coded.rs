//! Pages that the proxy compresses (`compress`): made once, kept beside the page, and never answered for another.

use std::io::Read;

use verbena_caching::{Coding, Codings, Mode, Rule};

use crate::scene::{Client, Scene};

/// What a client got, and the coding.
type Got = (Vec<u8>, Option<String>);

fn scene(mode: Mode) -> Scene {
    Scene::with(|config| {
        config.mode = mode;
        config.routes = vec![Rule { compress: Some(Codings::of(Coding::ALL)), ..Rule::default() }];
    })
}

/// A page that shrinks, of so many lines.
fn page(word: &str, lines: usize) -> String {
    (0..lines).map(|line| format!("<p>{word} {line}</p>\n")).collect()
}

fn plain(coding: Option<&str>, bytes: &[u8]) -> String {
    let mut plain = String::new();
    match coding {
        None => plain.push_str(std::str::from_utf8(bytes).unwrap()),
        Some("gzip") => drop(flate2::read::GzDecoder::new(bytes).read_to_string(&mut plain).unwrap()),
        Some("br") => drop(brotli::Decompressor::new(bytes, 4096).read_to_string(&mut plain).unwrap()),
        Some("zstd") => drop(zstd::stream::read::Decoder::new(bytes).unwrap().read_to_string(&mut plain).unwrap()),
        Some(other) => panic!("{other}"),
    }
    plain
}

/// Asks with these lines until the answer is in this coding.
#[track_caller]
fn comes_in(scene: &Scene, client: &mut Client, lines: &[&str], coding: &str) -> Got {
    let mut got = (Vec::new(), None);
    scene.comes(coding, |_| {
        client.get_with("/", lines);
        let answer = client.answer();
        answer.has(200).said("verbena; hit");
        got = (answer.body.clone(), answer.field("etag"));
        answer.field("content-encoding").as_deref() == Some(coding)
    });
    got
}

const HTML: &str = "Content-Type: text/html";

#[test]
fn a_stored_page_is_answered_in_the_coding_that_its_client_accepts_best() {
    for mode in [Mode::Coherent, Mode::Standard] {
        let scene = scene(mode);
        let body = page("one", 200);
        let mut client = scene.client();
        client.get_with("/", &["Accept-Encoding: gzip"]);
        let asked = scene.origin.asked("/");
        assert_eq!(asked.field("accept-encoding"), None, "what comes serves all");
        asked.answers(
            &[
                HTML,
                "ETag: \"a\"",
                "Vary: Accept-Encoding",
                "Verbena-Dependencies: front",
                "Cache-Control: max-age=600",
            ],
            &body,
        );
        let first = client.answer();
        first.is(200, &body).said("stored");
        scene.hits("/", &body);
        assert_eq!(first.field("vary").as_deref(), Some("Accept-Encoding"));
        for (accepts, coding) in
            [("gzip", "gzip"), ("gzip, br", "br"), ("br,gzip", "br"), ("zstd, br;q=0.9, gzip;q=0.5", "zstd")]
        {
            let (bytes, tag) = comes_in(&scene, &mut client, &[&format!("Accept-Encoding: {accepts}")], coding);
            assert_eq!(tag, Some(format!("\"a~1{coding}\"")));
            assert!(bytes.len() < body.len() / 3 && plain(Some(coding), &bytes) == body);
            // Once it is made, it is what comes.
            client.get_with("/", &[&format!("Accept-Encoding: {accepts}")]);
            let again = client.answer();
            assert!(again.body == bytes && again.field("vary").as_deref() == Some("Accept-Encoding"), "{}", again.head);
            let length = again.field("content-length");
            client.send(&format!("HEAD / HTTP/1.1\r\nHost: shop\r\nAccept-Encoding: {accepts}\r\n\r\n"));
            assert_eq!(client.answer().field("content-length"), length);
        }
        for lines in [&[][..], &["Accept-Encoding: identity, gzip;q=0.5"], &["Accept-Encoding: deflate"]] {
            client.get_with("/", lines);
            let answer = client.answer();
            answer.is(200, &body);
            assert_eq!(
                (answer.field("etag").as_deref(), answer.field("vary").as_deref()),
                (Some("\"a\""), Some("Accept-Encoding"))
            );
        }
        scene.origin.is_left_alone();
        for coding in Coding::ALL {
            assert_eq!(scene.counted("verbena_proxy_coded_total", ("coding", coding.name())), 1, "{coding:?}");
        }
    }
}

#[test]
fn parts_and_conditions_are_of_the_coding_that_is_asked_for() {
    let scene = scene(Mode::Coherent);
    let body = page("one", 200);
    let mut client = scene.client();
    client.get("/");
    scene.origin.asked("/").answers(&[HTML, "ETag: \"a\"", "Verbena-Dependencies: front"], &body);
    client.answer().is(200, &body);
    scene.hits("/", &body);
    // The tag says what its client has, also before that is made here.
    client.get_with("/", &["Accept-Encoding: br", "If-None-Match: \"a~1br\""]);
    let has = client.answer();
    has.is(304, "");
    assert_eq!(
        (has.field("etag").as_deref(), has.field("vary").as_deref()),
        (Some("\"a~1br\""), Some("Accept-Encoding"))
    );
    let (bytes, _) = comes_in(&scene, &mut client, &["Accept-Encoding: gzip"], "gzip");
    let of_gzip = |client: &mut Client, line: &str| {
        client.get_with("/", &["Accept-Encoding: gzip", line]);
        client.answer()
    };
    of_gzip(&mut client, "If-None-Match: \"a~1gzip\"").is(304, "");
    assert_eq!(of_gzip(&mut client, "If-None-Match: \"a\"").has(200).body, bytes);
    let part = of_gzip(&mut client, "Range: bytes=5-14");
    assert_eq!((part.status, &part.body[..]), (206, &bytes[5..15]));
    assert_eq!(part.field("content-range"), Some(format!("bytes 5-14/{}", bytes.len())));
    assert_eq!(
        (part.field("content-encoding").as_deref(), part.field("etag").as_deref()),
        (Some("gzip"), Some("\"a~1gzip\""))
    );
    client.get_with("/", &["Accept-Encoding: gzip", "Range: bytes=5-14", "If-Range: \"a\""]);
    assert_eq!(client.answer().has(200).body, bytes, "what the client has a part of is another one");
    client.get_with("/", &["Range: bytes=5-14", "If-Range: \"a\""]);
    client.answer().is(206, &body[5..15]);
}

#[test]
fn an_update_of_the_page_reaches_what_was_made_of_it() {
    let scene = scene(Mode::Coherent);
    let mut client = scene.client();
    for (turn, word) in ["one", "two", "two"].into_iter().enumerate() {
        let body = page(word, 100 + turn);
        client.get_with("/", &["Accept-Encoding: gzip"]);
        scene.origin.asked("/").answers(&[HTML, "ETag: \"same\"", "Verbena-Dependencies: front"], &body);
        client.answer().is(200, &body);
        scene.hits("/", &body);
        let (bytes, _) = comes_in(&scene, &mut client, &["Accept-Encoding: gzip"], "gzip");
        assert_eq!(plain(Some("gzip"), &bytes), body);
        let update = scene.begins(Some("front"));
        client.get_with("/", &["Accept-Encoding: gzip", "Cache-Control: only-if-cached"]);
        client.answer().has(504);
        scene.ends(update);
    }
}

/// Nothing has moved, but the application was asked anew: what was made of the page before is not answered for this one.
#[test]
fn what_was_made_of_a_page_is_not_answered_for_the_next_one_under_the_same_words() {
    let scene = scene(Mode::Standard);
    let mut client = scene.client();
    for turn in 0..4 {
        let body = page("page", 100 + turn);
        client.get_with("/", &["Accept-Encoding: gzip", "Cache-Control: no-cache"]);
        scene.origin.asked("/").answers(&[HTML, "ETag: \"same\"", "Cache-Control: max-age=600"], &body);
        client.answer().is(200, &body);
        scene.comes("the new page", |_| {
            client.get_with("/", &["Cache-Control: only-if-cached"]);
            client.answer().body == body.as_bytes()
        });
        // Each that comes, in whatever coding.
        scene.comes("the coded page", |_| {
            client.get_with("/", &["Accept-Encoding: gzip"]);
            let answer = client.answer();
            let coding = answer.field("content-encoding");
            assert_eq!(plain(coding.as_deref(), &answer.body), body);
            coding.is_some()
        });
    }
}

#[test]
fn what_may_not_be_compressed_comes_as_it_is() {
    let scene = scene(Mode::Coherent);
    let body = page("one", 200);
    let mut client = scene.client();
    for (path, lines) in [
        ("/image", &["Content-Type: image/png"][..]),
        ("/as-it-is", &[HTML, "Cache-Control: no-transform"]),
        ("/coded", &[HTML, "Content-Encoding: x-own"]),
        ("/short", &[HTML]),
        ("/secret", &[HTML, "Cache-Control: public"]),
    ] {
        let body = if path == "/short" { &body[..100] } else { &body[..] };
        let secret: &[&str] = if path == "/secret" { &["Cookie: sid=1"] } else { &[] };
        let request = [&["Accept-Encoding: gzip, br, zstd"], secret].concat();
        client.get_with(path, &request);
        scene.origin.asked(path).answers(&[lines, &["Verbena-Dependencies: front"]].concat(), body);
        client.answer().is(200, body).said("stored");
        scene.hits_with(path, &request, body);
        for _ in 0..3 {
            client.get_with(path, &request);
            assert_eq!(
                client.answer().is(200, body).said("verbena; hit").field("content-encoding").as_deref(),
                lines.iter().find_map(|line| line.strip_prefix("Content-Encoding: "))
            );
        }
    }
    for coding in Coding::ALL {
        assert_eq!(scene.counted("verbena_proxy_coded_total", ("coding", coding.name())), 0, "{coding:?}");
    }
    // Without a secret the same page is.
    client.get_with("/secret", &["Accept-Encoding: gzip"]);
    client.answer().is(200, &body);
    scene.comes("the coded page", |_| {
        client.get_with("/secret", &["Accept-Encoding: gzip"]);
        client.answer().field("content-encoding").is_some()
    });
}

#[test]
fn languages_are_those_of_the_route_and_each_has_one_copy() {
    let scene = Scene::with(|config| {
        config.routes = vec![Rule { languages: Some(["de", "en"].map(String::from).into()), ..Rule::default() }];
    });
    let mut client = scene.client();
    for (accepts, asked_for, hits) in [
        ("de-AT,de;q=0.9,en;q=0.8", Some("de"), ["de", "DE ; q=0.7", "fr, de-CH;q=0.3"]),
        ("en-US", Some("en"), ["en", "EN-gb,de;q=0.1", "en;q=1.0, de;q=0.999"]),
        ("fr", None, ["fr, it", "da", "x-own"]),
    ] {
        client.get_with("/", &[&format!("Accept-Language: {accepts}")]);
        let asked = scene.origin.asked("/");
        assert_eq!(asked.field("accept-language").as_deref(), asked_for, "{accepts}");
        let body = asked_for.unwrap_or("another");
        asked.answers(&["Vary: Accept-Language", "Verbena-Dependencies: front"], body);
        client.answer().is(200, body).said("stored");
        for same in hits {
            scene.hits_with("/", &[&format!("Accept-Language: {same}")], body);
        }
    }
    scene.origin.is_left_alone();
}
