//! A shop inside the test, asked without a network.

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt;
use tower::ServiceExt;
use verbena_shop::Database;

/// A database of its own; it goes with the directory.
pub fn database() -> (tempfile::TempDir, Database) {
    let directory = tempfile::tempdir().unwrap();
    let database = Database::open(&directory.path().join("shop.db")).unwrap();
    (directory, database)
}

pub async fn ask(shop: &Router, request: Request<Body>) -> (StatusCode, HeaderMap, String) {
    let (head, body) = shop.clone().oneshot(request).await.unwrap().into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    (head.status, head.headers, String::from_utf8(body.to_vec()).unwrap())
}

pub async fn get(shop: &Router, path: &str) -> String {
    let (status, _, body) = ask(shop, Request::get(path).body(Body::empty()).unwrap()).await;
    assert_eq!(status, 200, "{path}: {body}");
    body
}

pub async fn post(shop: &Router, path: &str, form: &str) -> (StatusCode, String) {
    let request = Request::post(path).header("content-type", "application/x-www-form-urlencoded");
    let (status, _, body) = ask(shop, request.body(Body::from(form.to_owned())).unwrap()).await;
    (status, body)
}

/// Posts a form that is accepted; gives the commit's number and what it was about.
pub async fn change(shop: &Router, path: &str, form: &str) -> (i64, i64) {
    let (status, body) = post(shop, path, form).await;
    assert_eq!(status, 200, "{path}: {body}");
    let words: Vec<&str> = body.split_whitespace().collect();
    assert_eq!((words[0], words[2], words.len()), ("commit", "id", 4), "{body}");
    (words[1].parse().unwrap(), words[3].parse().unwrap())
}

/// What comes after `before` in a page, up to the next quote.
pub fn attribute<'a>(page: &'a str, before: &str) -> &'a str {
    let (_, after) = page.split_once(before).unwrap_or_else(|| panic!("no {before} in {page}"));
    after.split_once('"').unwrap().0
}

pub fn shown_commit(page: &str) -> i64 {
    attribute(page, "data-commit=\"").parse().unwrap()
}

/// When this row of the page last changed.
pub fn shown_change(page: &str, row: &str) -> i64 {
    attribute(page, &format!("data-row=\"{row}\" data-changed=\"")).parse().unwrap()
}
