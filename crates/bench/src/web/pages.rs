//! `pages`: an application that has pages of every size, so that what is measured is what stands in front of it.

use std::net::SocketAddr;

use bytes::Bytes;
use clap::Parser;
use http_body_util::Full;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use verbena_terms::{DEPENDENCY_FIELD, MAX_DEPENDENCIES};

use super::application::declared;
use super::threads;

pub(crate) const ROLE: &str = "pages";

/// The largest page.
const LARGEST: usize = 16 << 20;

/// Answers `/BYTES/ANYTHING` with a page of so many bytes that any cache may keep for an hour, and `/BYTES/ANYTHING/NUMBER` with one that says
/// that it depends on so many things, which no other page depends on.
#[derive(Parser)]
struct Part {
    /// Where to listen.
    #[arg(long)]
    listen: SocketAddr,
    #[arg(long, default_value_t = 1)]
    threads: usize,
}

pub(super) fn serve(arguments: &[String]) -> Result<(), String> {
    let part: Part = threads::part(ROLE, arguments)?;
    threads::serve(part.listen, part.threads, |request| std::future::ready(answer(request.uri().path())))
}

fn answer(path: &str) -> Response<Full<Bytes>> {
    let mut parts = path.split('/').skip(1);
    let size = parts.next().and_then(|size| size.parse().ok()).filter(|size| *size <= LARGEST);
    let dependencies = parts.nth(1).and_then(|number| number.parse().ok()).unwrap_or(0).min(MAX_DEPENDENCIES);
    let (status, body) = match size {
        Some(size) => (StatusCode::OK, page(path, size)),
        None => (StatusCode::NOT_FOUND, Bytes::from_static(b"pages are called /BYTES/NAME\n")),
    };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=3600"));
    if let Some(names) = declared((0..dependencies).map(|nth| format!("{path}/{nth}"))) {
        response.headers_mut().insert(DEPENDENCY_FIELD, names);
    }
    response
}

/// Its name, over and over.
fn page(path: &str, size: usize) -> Bytes {
    path.bytes().chain(std::iter::once(b'\n')).cycle().take(size).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::body::Body;

    #[test]
    fn a_page_is_as_large_as_its_name_says() {
        let asked = |path| (answer(path).status(), answer(path).body().size_hint().exact());
        assert_eq!(asked("/1024/a"), (StatusCode::OK, Some(1024)));
        assert_eq!(asked("/0/"), (StatusCode::OK, Some(0)));
        for none in ["/", "/a", "/-1/a", "/16777217/a"] {
            assert_eq!(asked(none).0, StatusCode::NOT_FOUND, "{none}");
        }
        assert_eq!(page("/7/a", 7), "/7/a\n/7");
    }
}
