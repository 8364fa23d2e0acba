//! Each rule is switched off once, and what it is for happens.

use verbena_testkit::programs::wait_for;

use crate::apache::{Apache, Site, is_there};
use crate::application::{get, post};

/// Whether an answer that was read before a write, and came after it, is served later.
fn keeps_an_old_fill(site: &Site, apache: &Apache, page: &str) -> bool {
    let (path, asked) = (format!("/held/{page}"), site.application.asked(&format!("/held/{page}")));
    site.application.hold();
    let written = std::thread::scope(|scope| {
        let fill = scope.spawn(|| get(apache.port, &path));
        wait_for("the application to be asked", || site.application.asked(&path) > asked);
        let written = site.write(page);
        site.application.release();
        assert!(fill.join().unwrap().version() < written);
        written
    });
    get(apache.port, &path).version() < written
}

#[test]
fn words_are_read_before_a_request_is_forwarded_and_answers_registered_before_they_are_stored() {
    if !is_there() {
        return;
    }
    let site = Site::start();
    for (without, is_stale) in [("", false), ("V2", true), ("V3", true)] {
        let apache = site.apache(0, "socache", without);
        let kept = keeps_an_old_fill(&site, &apache, &format!("of{without}"));
        assert_eq!(kept, is_stale, "without {without:?}: {}", apache.log());
    }
}

#[test]
fn answers_are_shown_to_last_and_are_not_shared_and_writes_are_bracketed() {
    if !is_there() {
        return;
    }
    let site = Site::start();
    for without in ["", "V4", "V5", "V6"] {
        let apache = site.apache(0, "socache", without);
        let (name, port) = (format!("of{without}"), apache.port);
        // mod_cache keeps no page of which the application says nothing, and asks anew for each that says no-cache.
        match without {
            "V4" => assert!((0..10).all(|_| !get(port, &format!("/page/{name}")).is_hit())),
            _ => wait_for("a hit", || get(port, &format!("/page/{name}")).is_hit()),
        }
        match without {
            "V5" => wait_for("another's cookie", || get(port, &format!("/cookie/{name}")).is_hit()),
            _ => assert!((0..10).all(|_| !get(port, &format!("/cookie/{name}")).is_hit()), "without {without:?}"),
        }
        let written = post(port, &format!("/page/{name}")).version();
        let read = get(port, &format!("/page/{name}")).version();
        assert_eq!(read < written, without == "V6", "without {without:?}: {read} after {written}");
    }
}

#[test]
fn without_an_answer_of_the_helper_no_copy_is_used() {
    if !is_there() {
        return;
    }
    let site = Site::start();
    let apaches = ["", "V7"].map(|without| (site.apache(0, "socache", without), without));
    for (apache, _) in &apaches {
        wait_for("a hit", || get(apache.port, "/page/a").is_hit());
    }
    site.kill(0);
    // As whoever reaches the database goes on.
    let written = site.application.write("a");
    for (apache, without) in &apaches {
        let is_stale = get(apache.port, "/page/a").version() < written;
        assert_eq!(is_stale, *without == "V7", "without {without:?}: {}", apache.log());
    }
}

/// A fill registers its answer and is slow to store it; meanwhile the page changes, and a newer copy is stored.
#[test]
fn the_stamp_is_in_the_copy() {
    if !is_there() {
        return;
    }
    let site = Site::start();
    for store in ["socache", "disk"] {
        for without in ["", "V1"] {
            let apache = site.apache(0, store, without);
            let name = format!("slow{store}{without}");
            let path = format!("/page/{name}");
            apache.hold_commit();
            let written = std::thread::scope(|scope| {
                let slow = scope.spawn(|| get(apache.port, &path));
                wait_for("the first to have registered", || apache.is_commit_held());
                let written = site.write(&name);
                wait_for("a newer copy", || get(apache.port, &path).is_hit());
                apache.release_commit();
                assert!(slow.join().unwrap().version() < written);
                written
            });
            let is_stale = get(apache.port, &path).version() < written;
            assert_eq!(is_stale, without == "V1", "{store} without {without:?}: {}", apache.log());
        }
    }
}
