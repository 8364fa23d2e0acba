//! The order of steps that the rules ask for, seen by holding one of them.

use std::time::Duration;

use verbena_cluster::Lease;
use verbena_content::testing::Touch;
use verbena_terms::ViewNumber;

use crate::scene::Scene;

/// Threads of the proxy, and of the page protocol.
const PROXY: &str = "proxy-";
const HOME: &str = "content";

#[test]
fn a_page_is_asked_for_only_when_its_words_are_in_hand() {
    let scene = Scene::new();
    let mut client = scene.client();
    let held = scene.node.gate.holds(Touch::Load, PROXY);
    client.get("/");
    scene.comes("the read", |scene| scene.node.gate.waiting() == 1);
    scene.origin.is_left_alone();
    // What is over before the words are read, the page shows (rule P2).
    scene.ends(scene.begins(Some("front")));
    held.lets_go();
    scene.origin.asked("/").depends("front", "one");
    client.answer().is(200, "one").said("fwd=uri-miss");
    scene.hits("/", "one");
}

#[test]
fn words_are_read_after_the_request_arrived() {
    let scene = Scene::new();
    scene.fills("/", "front", "one");
    let mut client = scene.client();
    let held = scene.node.gate.holds(Touch::Load, PROXY);
    client.get("/");
    scene.comes("the read", |scene| scene.node.gate.waiting() == 1);
    let update = scene.begins(Some("front"));
    held.lets_go();
    scene.origin.asked("/").depends("front", "two");
    client.answer().is(200, "two").said("fwd=stale").said("detail=update-open");
    scene.ends(update);
}

#[test]
fn a_lease_that_ends_while_the_words_are_read_vouches_for_nothing() {
    // It is taken away, or it runs out: the lease is looked at after the words are in hand, and so is the clock (rule P1).
    for runs_out in [false, true] {
        let scene = Scene::new();
        scene.fills("/", "front", "one");
        let mut client = scene.client();
        let soon = scene.node.content.now() + Duration::from_millis(300);
        if runs_out {
            let view = ViewNumber(1);
            scene.node.lease.store(Lease { until: soon, acknowledged: view, in_effect: view });
        }
        let held = scene.node.gate.holds(Touch::Load, PROXY);
        client.get("/");
        scene.comes("the read", |scene| scene.node.gate.waiting() == 1);
        match runs_out {
            true => scene.comes("the end of the lease", |scene| scene.node.content.now() > soon),
            false => scene.loses_lease(),
        }
        held.lets_go();
        scene.origin.asked("/").depends("front", "two");
        client.answer().is(200, "two").said("fwd=stale").said("detail=no-lease");
    }
}

#[test]
fn a_lease_that_ends_while_the_home_accepts_serves_nobody_who_waited() {
    // Rule P8: the acceptance in hand, lease and clock are looked at again.
    for runs_out in [false, true] {
        let scene = Scene::new();
        had_another_set(&scene);
        let (mut leader, asked, mut other) = scene.two_ask("/");
        let soon = scene.node.content.now() + Duration::from_millis(300);
        if runs_out {
            let view = ViewNumber(1);
            scene.node.lease.store(Lease { until: soon, acknowledged: view, in_effect: view });
        }
        // The home bumps the page, and has looked at its lease by then.
        let held = scene.node.gate.holds(Touch::Store, HOME);
        asked.depends("front", "one");
        scene.comes("the registration", |scene| scene.node.gate.waiting() == 1);
        match runs_out {
            true => scene.comes("the end of the lease", |scene| scene.node.content.now() > soon),
            false => scene.loses_lease(),
        }
        held.lets_go();
        leader.answer().is(200, "one");
        scene.origin.asked("/").depends("front", "two");
        other.answer().is(200, "two").said("detail=no-lease");
    }
}

/// A registration of `/` that names `front` bumps the page from now on, because another set stands. No copy is here, whose own reason would be given before others.
fn had_another_set(scene: &Scene) {
    let back = scene.node.only(b"back");
    scene.runtime.block_on(scene.node.fill_eventually(&scene.name_of("/"), back));
}

/// Rule H5: the home's acceptance says nothing of what happened before this request came. But the words that it reads then do.
#[test]
fn who_comes_while_a_fill_is_registered_looks_again_when_that_is_known() {
    // A registration that is not answered in time is given up, and who waited asks then: on a busy machine it may take a few attempts.
    let joins_when_it_is_registered = || {
        let scene = Scene::new();
        had_another_set(&scene);
        let (mut leader, mut late) = (scene.client(), scene.client());
        leader.get("/");
        let asked = scene.origin.asked("/");
        let held = scene.node.gate.holds(Touch::Store, HOME);
        asked.depends("front", "one");
        scene.comes("the registration", |scene| scene.node.gate.waiting() == 1);
        late.get("/");
        scene.has_in_flight(1);
        let own = scene.origin.asked_soon();
        held.lets_go();
        leader.answer().is(200, "one");
        match own.or_else(|| scene.origin.asked_soon()) {
            None => {
                late.answer().is(200, "one");
                true
            }
            Some(own) => {
                own.depends("front", "two");
                late.answer().is(200, "two");
                assert_eq!(
                    scene.counted("verbena_proxy_not_stored_total", ("reason", "home-late")),
                    1,
                    "it did not wait"
                );
                false
            }
        }
    };
    assert!((0..5).any(|_| joins_when_it_is_registered()), "it asked each time");
}

#[test]
fn a_page_whose_home_is_now_another_is_made_anew_and_others_stay() {
    let mut scene = Scene::new();
    let paths: Vec<String> = (0..16).map(|n| format!("/{n}")).collect();
    paths.iter().for_each(|path| scene.fills(path, "front", "one"));
    scene.another_home_joins();
    let (mut moved, mut stayed) = (0, 0);
    let mut client = scene.client();
    for path in &paths {
        client.get(path);
        match scene.origin.asked_soon() {
            Some(asked) => {
                asked.depends("front", "two");
                client.answer().is(200, "two").said("fwd=stale").said("detail=other-home");
                scene.hits(path, "two");
                moved += 1;
            }
            None => {
                client.answer().is(200, "one").said("verbena; hit");
                stayed += 1;
            }
        }
    }
    assert!(moved > 0 && stayed > 0, "{moved} moved, {stayed} stayed");
    // An update reaches both homes.
    scene.ends(scene.begins(Some("front")));
    for path in &paths {
        scene.misses(path);
    }
}
