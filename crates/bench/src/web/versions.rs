//! `versions`: an application whose pages each say their version, and may be kept for an hour.
//!
//! ```text
//! GET  /standard/SECTION/NUMBER   Host: hHOST.test     a page: "PAGE VERSION", with a strong tag; 304 where the tag is the one that the client has
//! GET  /coherent/SECTION/NUMBER                        the same, and it says what it depends on
//! POST /write/FIRST/STEP/COUNT                         COUNT pages from FIRST on, each STEP apart, have their next version when this is answered
//! ```
//! A page is made of the version at the moment of its request, and takes up to two milliseconds: what is changed meanwhile is not in it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use clap::Parser;
use http_body_util::Full;
use hyper::header::{CACHE_CONTROL, ETAG, HOST, HeaderValue, IF_NONE_MATCH};
use hyper::{Method, Request, Response, StatusCode};
use verbena_terms::DEPENDENCY_FIELD;

use super::threads;

pub(crate) const ROLE: &str = "versions";

/// Hosts; sections of each, of which the first half is standard and the other one coherent; pages of a section.
pub(crate) const HOSTS: u64 = 4;
pub(crate) const SECTIONS: u64 = 8;
pub(crate) const NUMBERS: u64 = 8;
/// Pages of a host, and in all.
pub(crate) const OF_HOST: u64 = SECTIONS * NUMBERS;
pub(crate) const PAGES: u64 = HOSTS * OF_HOST;

/// Bytes of a page.
const PAGE_BYTES: usize = 2 << 10;
/// How long a page takes: so many times this, by its version.
const STEP: Duration = Duration::from_millis(1);
const MOST_STEPS: u64 = 3;

#[derive(Parser)]
struct Part {
    /// Where to listen.
    #[arg(long)]
    listen: SocketAddr,
}

/// Which host, section and number a page is.
pub(crate) fn place(page: u64) -> (u64, u64, u64) {
    (page / OF_HOST, page % OF_HOST / NUMBERS, page % NUMBERS)
}

/// The name of a host, and the path of a section.
pub(crate) fn host(host: u64) -> String {
    format!("h{host}.test")
}

/// See [`host`].
pub(crate) fn section(section: u64) -> String {
    format!("/{}/{section}", if section < SECTIONS / 2 { "standard" } else { "coherent" })
}

/// What pages of one number have on a host, in every section: their tag.
pub(crate) fn tag(host: u64, number: u64) -> String {
    format!("t{host}-{number}")
}

/// The page that a path names on a host.
fn page(of_host: &str, path: &str) -> Option<u64> {
    let at_host = (0..HOSTS).find(|nth| host(*nth) == of_host)?;
    let (before, number) = path.rsplit_once('/')?;
    let at_section = (0..SECTIONS).find(|nth| section(*nth) == before)?;
    let number = number.parse::<u64>().ok().filter(|number| *number < NUMBERS)?;
    Some(at_host * OF_HOST + at_section * NUMBERS + number)
}

pub(super) fn serve(arguments: &[String]) -> Result<(), String> {
    let part: Part = threads::part(ROLE, arguments)?;
    let versions: Arc<[AtomicU64]> = (0..PAGES).map(|_| AtomicU64::new(0)).collect();
    threads::serve(part.listen, 1, move |request| {
        let versions = Arc::clone(&versions);
        async move {
            let path = request.uri().path();
            match path.strip_prefix("/write/") {
                Some(which) if request.method() == Method::POST => written(&versions, which),
                _ => shown(&versions, &request).await,
            }
        }
    })
}

fn written(versions: &[AtomicU64], which: &str) -> Response<Full<Bytes>> {
    let numbers: Option<Vec<usize>> = which.split('/').map(|number| number.parse().ok()).collect();
    let Some(&[first, step @ 1..=usize::MAX, count]) = numbers.as_deref() else {
        return told(StatusCode::BAD_REQUEST);
    };
    for version in versions.iter().skip(first).step_by(step).take(count) {
        version.fetch_add(1, Ordering::Relaxed);
    }
    told(StatusCode::OK)
}

async fn shown<B>(versions: &[AtomicU64], request: &Request<B>) -> Response<Full<Bytes>> {
    let text = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
    let page = text(HOST).and_then(|host| page(host, request.uri().path()));
    let Some(page) = page else { return told(StatusCode::NOT_FOUND) };
    let version = versions[page as usize].load(Ordering::Relaxed);
    let strong = format!("\"{page}-{version}\"");
    tokio::time::sleep(STEP * (version % MOST_STEPS) as u32).await;
    let mut response = told(StatusCode::NOT_MODIFIED);
    if text(IF_NONE_MATCH) != Some(strong.as_str()) {
        *response.status_mut() = StatusCode::OK;
        let mut body = format!("{page} {version}\n").into_bytes();
        body.resize(PAGE_BYTES, b'.');
        *response.body_mut() = body.into();
    }
    let (host, section, number) = place(page);
    let value = |text: &str| HeaderValue::from_str(text).expect("invariant: names of pages are plain ASCII");
    let tag = value(&tag(host, number));
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=3600"));
    headers.insert(ETAG, value(&strong));
    if section >= SECTIONS / 2 {
        headers.insert(DEPENDENCY_FIELD, tag.clone());
    }
    headers.insert("cache-tag", tag);
    response
}

fn told(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_page_has_a_name_of_its_own() {
        for nth in 0..PAGES {
            let (at_host, at_section, number) = place(nth);
            assert_eq!(page(&host(at_host), &format!("{}/{number}", section(at_section))), Some(nth));
        }
        for (host, path) in
            [("h4.test", "/standard/0/0"), ("h0.test", "/standard/4/0"), ("h0.test", "/coherent/7/8"), ("h0.test", "/")]
        {
            assert_eq!(page(host, path), None, "{host}{path}");
        }
    }

    #[test]
    fn what_is_written_is_seen_and_what_a_client_has_is_not_sent() {
        let versions: Vec<AtomicU64> = (0..PAGES).map(|_| AtomicU64::new(0)).collect();
        assert_eq!(written(&versions, "3/8/8").status(), StatusCode::OK);
        assert_eq!(written(&versions, "3/0/8").status(), StatusCode::BAD_REQUEST);
        let changed = |page: usize| versions[page].load(Ordering::Relaxed);
        assert_eq!([3, 11, 59, 67, 4].map(changed), [1, 1, 1, 0, 0]);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let ask = |has: &str| {
            let request = Request::get("/standard/1/3").header(HOST, "h0.test").header(IF_NONE_MATCH, has).body(());
            runtime.block_on(shown(&versions, &request.unwrap())).status()
        };
        assert_eq!([ask("\"11-0\""), ask("\"11-1\"")], [StatusCode::OK, StatusCode::NOT_MODIFIED]);
    }
}
