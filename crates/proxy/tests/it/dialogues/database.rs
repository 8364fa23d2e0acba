//! Pages whose dependencies are what the application's queries read (rules Q1 to Q3, Q6, Q11).

use std::sync::Arc;

use parking_lot::Mutex;
use verbena_content::Scope;
use verbena_content::service::Finish;
use verbena_proxy::Queries;
use verbena_statements::{FillRules, Fills, Name, Names, Rules, Side, Tag, Whose, Why};

use crate::scene::Scene;

fn queries(is_complete: bool) -> Queries {
    let fills = Arc::new(Mutex::new(Fills::new(FillRules::default())));
    Queries { has_relay: true, fills, identity: Arc::from(*b"database"), is_complete, logs: None }
}

fn row(key: &str) -> Names {
    Names::bounded(Rules::default(), Side::Read, [(b"products".to_vec(), Name::Row(key.into()))])
}

/// What a relay does for a statement that reads a row.
fn reads(queries: &Queries, tag: Option<Tag>, key: &str) {
    queries.fills.lock().read(tag.into(), &row(key), None);
}

/// What a relay does for a commit that touches a row.
fn commits(scene: &Scene, queries: &Queries, key: &str) {
    let scope = queries.scope(scene.node.content.names(), &row(key));
    assert_ne!(scope, Scope::Everything);
    let ticket = scene.runtime.block_on(scene.node.content.begin(scope)).unwrap();
    assert_eq!(scene.runtime.block_on(ticket.answered()), Finish::Answer);
}

#[test]
fn a_page_depends_on_the_rows_that_its_queries_read() {
    let queries = queries(true);
    let scene = Scene::before_a_database(Some(queries.clone()), |_| ());
    let mut client = scene.client();
    client.get("/7");
    let asked = scene.origin.asked("/7");
    reads(&queries, None, "7");
    asked.page("seven");
    client.answer().is(200, "seven").said("stored");
    scene.hits("/7", "seven");
    commits(&scene, &queries, "8");
    scene.hits("/7", "seven");
    commits(&scene, &queries, "7");
    scene.misses("/7");
}

#[test]
fn a_tag_has_a_read_count_for_one_of_two_fills() {
    let queries = queries(true);
    let scene = Scene::before_a_database(Some(queries.clone()), |_| ());
    let (mut one, mut two) = (scene.client(), scene.client());
    // A client's own tag says nothing.
    one.get_with("/7", &["Verbena-Fill: 0000000000000001"]);
    let at_seven = scene.origin.asked("/7");
    two.get("/8");
    let at_eight = scene.origin.asked("/8");
    let [tag, other] = [&at_seven, &at_eight].map(|asked| asked.field("verbena-fill").unwrap());
    assert!(tag != other && tag != "0000000000000001");
    let tag = Tag::from_str_radix(&tag, 16).unwrap();
    reads(&queries, Some(tag), "7");
    at_seven.page("seven");
    at_eight.page("eight");
    one.answer().is(200, "seven");
    two.answer().is(200, "eight");
    scene.hits("/7", "seven");
    scene.hits("/8", "eight");
    commits(&scene, &queries, "7");
    scene.misses("/7");
    scene.hits("/8", "eight");
}

#[test]
fn a_request_that_wrote_is_not_stored() {
    let queries = queries(true);
    let scene = Scene::before_a_database(Some(queries.clone()), |_| ());
    let mut client = scene.client();
    client.get("/counter");
    let asked = scene.origin.asked("/counter");
    queries.fills.lock().wrote(Whose::Anybody);
    asked.page("one");
    client.answer().is(200, "one");
    scene.misses("/counter");
    assert_eq!(scene.counted("verbena_proxy_not_stored_total", ("reason", Why::Wrote.name())), 1);
}

#[test]
fn a_write_that_may_be_anothers_keeps_a_page_out_once_and_no_longer() {
    let queries = queries(true);
    let scene = Scene::before_a_database(Some(queries.clone()), |_| ());
    let (mut client, mut writer) = (scene.client(), scene.client());
    client.get("/7");
    let asked = scene.origin.asked("/7");
    writer.post("/8", "a price");
    let written = scene.origin.asked("/8");
    queries.fills.lock().wrote(Whose::Anybody);
    asked.page("seven");
    written.page("done");
    client.answer().is(200, "seven");
    writer.answer().is(200, "done");
    // The next request for the page is stored (Q6).
    client.get("/7");
    scene.origin.asked("/7").page("seven");
    client.answer().is(200, "seven").said("stored");
    scene.hits("/7", "seven");
}

#[test]
fn the_tag_of_a_request_that_writes_has_its_statements_count_for_no_page() {
    let queries = queries(true);
    let scene = Scene::before_a_database(Some(queries.clone()), |_| ());
    let (mut client, mut writer) = (scene.client(), scene.client());
    client.get("/7");
    let asked = scene.origin.asked("/7");
    writer.post("/8", "a price");
    let written = scene.origin.asked("/8");
    let tag = Tag::from_str_radix(&written.field("verbena-fill").unwrap(), 16).unwrap();
    queries.fills.lock().wrote(Whose::Tagged(tag));
    written.page("done");
    writer.answer().is(200, "done");
    asked.page("seven");
    client.answer().is(200, "seven").said("stored");
    scene.hits("/7", "seven");
    // When that request is answered its tag is nobody's, and a statement with it counts for all.
    client.get("/9");
    let asked = scene.origin.asked("/9");
    queries.fills.lock().wrote(Whose::Tagged(tag));
    asked.page("nine");
    client.answer().is(200, "nine");
    scene.misses("/9");
}

#[test]
fn a_post_reaches_the_pages_without_a_list_alone() {
    let queries = queries(true);
    let scene = Scene::before_a_database(Some(queries.clone()), |_| ());
    let mut client = scene.client();
    client.get("/7");
    let asked = scene.origin.asked("/7");
    reads(&queries, None, "7");
    asked.page("seven");
    client.answer().is(200, "seven");
    client.get("/report");
    let asked = scene.origin.asked("/report");
    queries.fills.lock().read_everything(Whose::Anybody, Why::NotUnderstood);
    asked.page("report");
    client.answer().is(200, "report");
    scene.hits("/7", "seven");
    scene.hits("/report", "report");
    let mut writer = scene.client();
    writer.post("/upload", "a picture");
    scene.origin.asked("/upload").page("done");
    writer.answer().is(200, "done");
    scene.hits("/7", "seven");
    scene.misses("/report");
}

#[test]
fn without_the_promise_a_page_depends_on_everything() {
    let queries = queries(false);
    let scene = Scene::before_a_database(Some(queries.clone()), |_| ());
    let mut client = scene.client();
    client.get("/7");
    let asked = scene.origin.asked("/7");
    reads(&queries, None, "7");
    asked.page("seven");
    client.answer().is(200, "seven");
    scene.hits("/7", "seven");
    commits(&scene, &queries, "8");
    scene.misses("/7");
}
