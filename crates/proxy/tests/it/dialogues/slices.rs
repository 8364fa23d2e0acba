//! Pages that are stored in slices (rule H9).

use verbena_caching::{Mode, Rule};
use verbena_content::{Change, Kind};
use verbena_terms::Size;

use crate::scene::{Asked, Client, Scene};

const SLICE: usize = 4096;
const TAG: &str = "ETag: \"1\"";
const LIVES: &str = "Cache-Control: max-age=600";

fn scene() -> Scene {
    Scene::with(|config| {
        let (prefix, mode, slice) = ("/".into(), Some(Mode::Standard), Some(Size(SLICE as u64)));
        config.routes = vec![Rule { prefix, mode, slice, ..Rule::default() }];
    })
}

/// A page of so many bytes, in which each place is known by its bytes.
fn page(bytes: usize) -> String {
    (0..bytes.div_ceil(8)).flat_map(|at| format!("{at:07} ").into_bytes()).take(bytes).map(char::from).collect()
}

/// Answers a request for a slice of the page with that slice.
#[track_caller]
fn gives(asked: Asked, page: &str, slice: usize, lines: &[&str]) {
    let (start, end) = (slice * SLICE, (slice * SLICE + SLICE).min(page.len()));
    let range = format!("bytes={start}-{}", slice * SLICE + SLICE - 1);
    assert_eq!(asked.field("range"), Some(range));
    let said = format!("Content-Range: bytes {start}-{}/{}", end - 1, page.len());
    asked.answers_status(206, &[&[&said[..]], lines].concat(), &page[start..end]);
}

/// Has all slices of a page stored.
#[track_caller]
fn fills(scene: &Scene, path: &str, page: &str, lines: &[&str]) {
    let mut client = scene.client();
    client.get(path);
    for slice in 0..page.len().div_ceil(SLICE) {
        let asked = scene.origin.asked(path);
        assert_eq!(asked.field("if-range"), (slice > 0).then(|| "\"1\"".into()), "a later one is of the same page");
        gives(asked, page, slice, lines);
    }
    client.answer().is(200, page).said("stored");
    scene.comes("the last slice", |scene| scene.gauge("verbena_proxy_pages") >= page.len().div_ceil(SLICE) as f64);
}

#[track_caller]
fn gets_part(client: &mut Client, path: &str, range: &str) -> crate::scene::Answer {
    client.get_with(path, &[&format!("Range: bytes={range}")]);
    client.answer()
}

/// No update of the page is open any more: while one is, the page comes whole.
fn has_no_update_open(scene: &Scene, path: &str) {
    let content = &scene.node.content;
    let page = content.names().page(&scene.name_of(path));
    scene.comes("the end of the update", |scene| {
        let words = scene.runtime.block_on(content.read(page).unwrap().words());
        words.is_some_and(|(_, words)| !words.are_busy(Kind::Standard))
    });
}

fn purge(scene: &Scene, path: &str, tag: &[u8]) {
    scene.runtime.block_on(scene.node.content.purge(Change::Hard, scene.node.only(tag))).unwrap();
    has_no_update_open(scene, path);
}

#[test]
fn a_large_page_is_stored_in_slices_and_answered_whole_and_in_parts() {
    let (scene, page) = (scene(), page(3 * SLICE + 100));
    fills(&scene, "/v", &page, &[TAG, LIVES, "Content-Type: video/x"]);
    let mut client = scene.client();
    client.get("/v");
    let whole = client.answer();
    whole.is(200, &page).said("verbena; hit; ttl=");
    assert_eq!((whole.field("content-length"), whole.field("content-range")), (Some(page.len().to_string()), None));
    assert_eq!(
        (whole.field("content-type").as_deref(), whole.field("etag").as_deref()),
        (Some("video/x"), Some("\"1\""))
    );
    for (range, start, end) in [
        ("0-0", 0, 1),
        ("4095-4096", 4095, 4097),
        ("100-9000", 100, 9001),
        ("8192-", 8192, page.len()),
        ("-50", page.len() - 50, page.len()),
        ("-9999999", 0, page.len()),
        ("12000-99999", 12000, page.len()),
    ] {
        let part = gets_part(&mut client, "/v", range);
        part.is(206, &page[start..end]).said("verbena; hit");
        assert_eq!(part.field("content-range"), Some(format!("bytes {start}-{}/{}", end - 1, page.len())), "{range}");
    }
    let beyond = gets_part(&mut client, "/v", &format!("{}-", page.len()));
    beyond.is(416, "");
    assert_eq!(beyond.field("content-range"), Some(format!("bytes */{}", page.len())));
    client.get_with("/v", &["If-None-Match: \"1\""]);
    client.answer().is(304, "");
    client.get_with("/v", &["Range: bytes=5-9", "If-Range: \"1\""]);
    client.answer().is(206, &page[5..10]);
    client.get_with("/v", &["Range: bytes=5-9", "If-Range: \"2\""]);
    client.answer().is(200, &page);
    scene.origin.is_left_alone();
}

#[test]
fn a_part_fetches_the_slices_that_it_needs_and_no_other() {
    let (scene, page) = (scene(), page(4 * SLICE));
    let mut client = scene.client();
    client.get_with("/v", &["Range: bytes=5000-9000"]);
    for slice in [1, 2] {
        gives(scene.origin.asked("/v"), &page, slice, &[TAG, LIVES]);
    }
    client.answer().is(206, &page[5000..9001]);
    scene.comes("both slices", |scene| scene.gauge("verbena_proxy_pages") == 2.0);
    // By its first bytes it is a hit, the rest is fetched.
    client.get_with("/v", &["Range: bytes=8192-"]);
    gives(scene.origin.asked("/v"), &page, 3, &[TAG, LIVES]);
    client.answer().is(206, &page[8192..]).said("verbena; hit");
    scene.origin.is_left_alone();
    assert_eq!(scene.counter("verbena_proxy_slices_total"), 2);
}

/// Whether the client wants a part, the head of the page says: here it has a part of another page.
#[test]
fn a_part_beyond_the_end_of_what_is_another_page_gets_the_whole() {
    let (scene, page) = (scene(), page(SLICE));
    let mut client = scene.client();
    client.get_with("/v", &["Range: bytes=9000-", "If-Range: \"2\""]);
    let beyond = [TAG, "Content-Range: bytes */4096"];
    scene.origin.asked("/v").answers_status(416, &beyond, "");
    gives(scene.origin.asked("/v"), &page, 0, &[TAG, LIVES]);
    client.answer().is(200, &page);
    client.get_with("/v", &["Range: bytes=9000-"]);
    scene.origin.asked("/v").answers_status(416, &beyond, "");
    client.answer().is(416, "");
}

#[test]
fn many_clients_fetch_a_slice_once() {
    let (scene, page) = (scene(), page(2 * SLICE));
    let mut clients: Vec<Client> = (0..5).map(|_| scene.client()).collect();
    clients[0].get("/v");
    let asked = scene.origin.asked("/v");
    clients[1..].iter_mut().for_each(|client| client.get("/v"));
    scene.has_waiting(4);
    gives(asked, &page, 0, &[TAG, LIVES]);
    gives(scene.origin.asked("/v"), &page, 1, &[TAG, LIVES]);
    for client in &mut clients {
        client.answer().is(200, &page);
    }
    scene.origin.is_left_alone();
}

/// The page is published again under its tag, with other bytes, and purged: a client that has its first half gets no second half of the other.
#[test]
fn a_purge_between_two_slices_cuts_the_answer() {
    let (scene, old) = (scene(), page(3 * SLICE));
    let new = old.replace('0', "x");
    // The second slice is on its way when the page is purged.
    let mut client = scene.client();
    client.get("/v");
    gives(scene.origin.asked("/v"), &old, 0, &[TAG, LIVES, "Surrogate-Key: video"]);
    let asked = scene.origin.asked("/v");
    purge(&scene, "/v", b"video");
    gives(asked, &new, 1, &[TAG, LIVES, "Surrogate-Key: video"]);
    client.head().has(200);
    client.has_of_body(&old.as_bytes()[..SLICE]);
    client.is_cut();
    assert_eq!(scene.counter("verbena_proxy_slices_cut_total"), 1);
    // It is asked for when the page is purged already.
    fills(&scene, "/w", &old, &[TAG, LIVES, "Surrogate-Key: other"]);
    purge(&scene, "/w", b"other");
    let mut client = scene.client();
    client.get("/w");
    gives(scene.origin.asked("/w"), &new, 0, &[TAG, LIVES, "Surrogate-Key: other"]);
    gives(scene.origin.asked("/w"), &new, 1, &[TAG, LIVES, "Surrogate-Key: other"]);
    gives(scene.origin.asked("/w"), &new, 2, &[TAG, LIVES, "Surrogate-Key: other"]);
    client.answer().is(200, &new);
    scene.origin.is_left_alone();
}

/// Nothing is known of what slices have in common then.
#[test]
fn while_an_update_of_it_is_open_a_page_comes_whole() {
    let (scene, page) = (scene(), page(2 * SLICE));
    fills(&scene, "/v", &page, &[TAG, LIVES, "Surrogate-Key: video"]);
    let update = scene.begins(Some("video"));
    let mut client = scene.client();
    for range in [None, Some("bytes=4000-5000")] {
        match range {
            None => client.get("/v"),
            Some(range) => client.get_with("/v", &[&format!("Range: {range}")]),
        }
        let asked = scene.origin.asked("/v");
        assert_eq!(asked.field("range").as_deref(), range, "it is the client's own request");
        asked.answers(&[TAG, LIVES], &page);
        client.answer().is(200, &page);
    }
    scene.ends(update);
    has_no_update_open(&scene, "/v");
    client.get("/v");
    gives(scene.origin.asked("/v"), &page, 0, &[TAG, LIVES, "Surrogate-Key: video"]);
    gives(scene.origin.asked("/v"), &page, 1, &[TAG, LIVES, "Surrogate-Key: video"]);
    client.answer().is(200, &page);
}

#[test]
fn a_page_that_has_another_tag_now_cuts_the_answer_and_is_fetched_anew() {
    let (scene, old) = (scene(), page(2 * SLICE));
    let new = old.replace('0', "x");
    let mut client = scene.client();
    client.get_with("/v", &["Range: bytes=0-9"]);
    gives(scene.origin.asked("/v"), &old, 0, &[TAG, LIVES]);
    client.answer().is(206, &old[..10]);
    scene.comes("the slice", |scene| scene.gauge("verbena_proxy_pages") == 1.0);
    client.get("/v");
    let asked = scene.origin.asked("/v");
    assert_eq!(asked.field("if-range").as_deref(), Some("\"1\""));
    asked.answers(&["ETag: \"2\"", LIVES], &new);
    client.head().has(200);
    client.has_of_body(&old.as_bytes()[..SLICE]);
    client.is_cut();
    // The old first slice is none of this page any more.
    let mut client = scene.client();
    client.get("/v");
    for slice in [0, 1] {
        gives(scene.origin.asked("/v"), &new, slice, &["ETag: \"2\"", LIVES]);
    }
    client.answer().is(200, &new);
}

/// A later slice is stored of an older page: it is fetched once more.
#[test]
fn a_stored_slice_of_an_older_page_is_replaced() {
    let (scene, old) = (scene(), page(2 * SLICE));
    let new = old.replace('0', "x");
    let mut client = scene.client();
    client.get_with("/v", &["Range: bytes=4096-"]);
    gives(scene.origin.asked("/v"), &old, 1, &[TAG, LIVES]);
    client.answer().is(206, &old[SLICE..]);
    scene.comes("the slice", |scene| scene.gauge("verbena_proxy_pages") == 1.0);
    client.get("/v");
    gives(scene.origin.asked("/v"), &new, 0, &["ETag: \"2\"", LIVES]);
    let asked = scene.origin.asked("/v");
    assert_eq!(asked.field("if-range").as_deref(), Some("\"2\""));
    gives(asked, &new, 1, &["ETag: \"2\"", LIVES]);
    client.answer().is(200, &new);
    scene.origin.is_left_alone();
}

#[test]
fn an_old_slice_is_asked_about_and_made_new() {
    let (scene, page) = (scene(), page(2 * SLICE));
    fills(&scene, "/v", &page, &[TAG, "Cache-Control: max-age=0"]);
    let mut client = scene.client();
    client.get("/v");
    for slice in [0, 1] {
        let asked = scene.origin.asked("/v");
        assert_eq!(asked.field("if-none-match").as_deref(), Some("\"1\""), "{slice}");
        asked.answers_head(304, &[TAG, LIVES]);
    }
    client.answer().is(200, &page);
    // What the last 304 made new is stored before its slice is sent.
    client.get("/v");
    client.answer().is(200, &page).said("verbena; hit; ttl=");
    scene.origin.is_left_alone();
}

#[test]
fn what_does_not_come_in_slices_is_passed_on_and_stored_whole_next_time() {
    for (status, lines) in [(200, [TAG, LIVES]), (200, ["X-A: b", LIVES])] {
        let scene = scene();
        let mut client = scene.client();
        client.get("/v");
        let asked = scene.origin.asked("/v");
        assert_eq!(asked.field("range").as_deref(), Some("bytes=0-4095"));
        asked.answers_status(status, &lines, "page");
        client.answer().is(status, "page").said("detail=no-slice");
        client.get("/v");
        let asked = scene.origin.asked("/v");
        assert_eq!(asked.field("range"), None);
        asked.answers_status(status, &lines, "page");
        client.answer().is(status, "page").said("stored");
        scene.comes("the page", |scene| scene.gauge("verbena_proxy_pages") == 1.0);
        client.get("/v");
        client.answer().is(status, "page").said("verbena; hit");
    }
    // A part with a weak tag is no slice, and not what the client asked for.
    let scene = scene();
    let mut client = scene.client();
    client.get("/v");
    let asked = scene.origin.asked("/v");
    asked.answers_status(206, &["Content-Range: bytes 0-3/8", "ETag: W/\"1\"", LIVES], "half");
    scene.origin.asked("/v").answers(&[LIVES], "halfhalf");
    client.answer().is(200, "halfhalf");
}

#[test]
fn a_failing_application_between_two_slices_cuts_the_answer() {
    let (scene, page) = (scene(), page(2 * SLICE));
    let mut client = scene.client();
    client.get("/v");
    gives(scene.origin.asked("/v"), &page, 0, &[TAG, LIVES]);
    scene.origin.asked("/v").answers_status(503, &[], "no");
    client.head().has(200);
    client.has_of_body(&page.as_bytes()[..SLICE]);
    client.is_cut();
    // What is stored is right still.
    let mut client = scene.client();
    client.get("/v");
    gives(scene.origin.asked("/v"), &page, 1, &[TAG, LIVES]);
    client.answer().is(200, &page);
}

/// What one client is refused says nothing of the page.
#[test]
fn a_refusal_leaves_the_slices_as_they_are() {
    let (scene, page) = (scene(), page(2 * SLICE));
    fills(&scene, "/v", &page, &[TAG, LIVES]);
    let mut client = scene.client();
    for status in [401, 403, 404, 429] {
        client.get_with("/v", &["Authorization: Bearer bad"]);
        scene.origin.asked("/v").answers_status(status, &[], "no");
        client.answer().is(status, "no");
        client.get("/v");
        client.answer().is(200, &page).said("verbena; hit");
    }
    scene.origin.is_left_alone();
}

/// The second slice is never one of the page of the first: a client that comes again gets the whole.
#[test]
fn a_page_whose_slices_do_not_fit_comes_whole_the_next_time() {
    for (tag, names) in [("ETag: \"2\"", "X-A: b"), (TAG, "Surrogate-Key: second")] {
        let (scene, page) = (scene(), page(2 * SLICE));
        let mut client = scene.client();
        client.get("/v");
        gives(scene.origin.asked("/v"), &page, 0, &[TAG, LIVES, "Surrogate-Key: first"]);
        gives(scene.origin.asked("/v"), &page, 1, &[tag, LIVES, names]);
        client.head().has(200);
        client.has_of_body(&page.as_bytes()[..SLICE]);
        client.is_cut();
        let mut client = scene.client();
        client.get("/v");
        let asked = scene.origin.asked("/v");
        assert_eq!(asked.field("range"), None, "{tag} {names}");
        asked.answers(&[TAG, LIVES], &page);
        client.answer().is(200, &page);
    }
}

#[test]
fn digests_of_a_slice_are_none_of_the_answer() {
    let (scene, page) = (scene(), page(2 * SLICE));
    fills(
        &scene,
        "/v",
        &page,
        &[TAG, LIVES, "Content-Digest: sha-256=:slice:", "Content-MD5: slice", "Repr-Digest: sha-256=:page:"],
    );
    let mut client = scene.client();
    client.get("/v");
    let whole = client.answer();
    assert_eq!((whole.field("content-digest"), whole.field("content-md5")), (None, None));
    assert_eq!(whole.field("repr-digest").as_deref(), Some("sha-256=:page:"));
}

/// Neither is a part that there is not: the first slice says so.
#[test]
fn ranges_that_mean_nothing_and_conditions_are_judged_by_the_first_slice() {
    let (scene, page) = (scene(), page(2 * SLICE));
    fills(&scene, "/v", &page, &[TAG, LIVES]);
    let mut client = scene.client();
    client.get_with("/v", &["Range: lines=90000-"]);
    client.answer().is(200, &page);
    for (lines, status) in [
        (&["Range: bytes=90000-1"][..], 200),
        (&["Range: bytes=90000-", "If-None-Match: \"1\""], 304),
        (&["Range: bytes=90000-"], 416),
    ] {
        client.get_with("/v", lines);
        scene.origin.asked("/v").answers_status(416, &["Content-Range: bytes */8192"], "");
        client.answer().has(status);
    }
    scene.origin.is_left_alone();
    // A page of no bytes has no slice.
    client.get("/empty");
    scene.origin.asked("/empty").answers_status(416, &["Content-Range: bytes */0"], "");
    scene.origin.asked("/empty").answers(&[LIVES], "");
    client.answer().is(200, "");
}

#[test]
fn what_may_not_be_stored_is_asked_for_once() {
    let (scene, page) = (scene(), page(2 * SLICE));
    let never = "Cache-Control: no-store";
    let mut client = scene.client();
    client.get("/v");
    gives(scene.origin.asked("/v"), &page, 0, &[TAG, never]);
    gives(scene.origin.asked("/v"), &page, 1, &[TAG, never]);
    client.answer().is(200, &page);
    for turn in 0..3 {
        client.get("/v");
        let mut asked = scene.origin.asked("/v");
        if turn == 0 {
            gives(asked, &page, 0, &[TAG, never]);
            asked = scene.origin.asked("/v");
        }
        assert_eq!(asked.field("range"), None, "{turn}");
        asked.answers(&[TAG, never], &page);
        client.answer().is(200, &page);
    }
    scene.origin.is_left_alone();
}

#[test]
fn a_head_about_another_page_drops_the_first_slice() {
    let (scene, page) = (scene(), page(2 * SLICE));
    fills(&scene, "/v", &page, &[TAG, LIVES]);
    let mut client = scene.client();
    let head = "HEAD /v HTTP/1.1\r\nHost: shop\r\n\r\n";
    for (tag, is_same) in [(TAG, true), ("ETag: \"2\"", false)] {
        client.send(head);
        scene.origin.asked("/v").answers_head(200, &[tag, LIVES, "Content-Length: 8192"]);
        client.head().has(200);
        client.get("/v");
        if !is_same {
            gives(scene.origin.asked("/v"), &page, 0, &[TAG, LIVES]);
        }
        client.answer().is(200, &page);
    }
    scene.origin.is_left_alone();
}

#[test]
fn several_parts_go_to_the_application() {
    let (scene, page) = (scene(), page(2 * SLICE));
    fills(&scene, "/v", &page, &[TAG, LIVES]);
    let mut client = scene.client();
    client.get_with("/v", &["Range: bytes=0-1,5-6"]);
    let asked = scene.origin.asked("/v");
    assert_eq!(asked.field("range").as_deref(), Some("bytes=0-1,5-6"));
    asked.answers(&[TAG], &page);
    client.answer().is(200, &page);
}

#[test]
fn a_write_to_the_page_is_seen_by_the_next_request() {
    let (scene, old) = (scene(), page(2 * SLICE));
    let new = old.replace('0', "x");
    fills(&scene, "/v", &old, &[TAG, LIVES]);
    let mut client = scene.client();
    client.post("/v", "new");
    scene.origin.asked("/v").answers(&[], "");
    client.answer().has(200);
    has_no_update_open(&scene, "/v");
    client.get_with("/v", &["Range: bytes=4096-"]);
    let asked = scene.origin.asked("/v");
    gives(asked, &new, 1, &["ETag: \"2\"", LIVES]);
    client.answer().is(206, &new[SLICE..]);
}
