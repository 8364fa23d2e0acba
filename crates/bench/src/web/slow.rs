//! `slow`: an application that takes its time for each page, and counts its requests.
//!
//! ```text
//! GET /shared/ANYTHING     a page that any cache may keep for an hour
//! GET /private/ANYTHING    one that no cache may keep
//! GET /count/PATH          how often PATH was asked for, at once
//! ```

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use clap::Parser;
use http_body_util::Full;
use hyper::Response;
use hyper::header::{CACHE_CONTROL, HeaderValue};

use super::threads;

pub(crate) const ROLE: &str = "slow";

/// Bytes of a page.
const PAGE_BYTES: usize = 8 << 10;

#[derive(Parser)]
struct Part {
    /// Where to listen.
    #[arg(long)]
    listen: SocketAddr,
    /// How long a page takes, in milliseconds.
    #[arg(long)]
    takes_ms: u64,
}

#[derive(Clone, Default)]
struct Counts(Arc<Mutex<BTreeMap<String, u64>>>);

impl Counts {
    fn add(&self, path: &str) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(path.to_owned()).or_default() += 1;
    }

    fn of(&self, path: &str) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(path).copied().unwrap_or(0)
    }
}

pub(super) fn serve(arguments: &[String]) -> Result<(), String> {
    let part: Part = threads::part(ROLE, arguments)?;
    let (counts, takes) = (Counts::default(), Duration::from_millis(part.takes_ms));
    threads::serve(part.listen, 1, move |request| {
        let (counts, path) = (counts.clone(), request.uri().path().to_owned());
        async move {
            if let Some(of) = path.strip_prefix("/count") {
                return answer(counts.of(of).to_string().into(), "no-store");
            }
            counts.add(&path);
            tokio::time::sleep(takes).await;
            let may_be_kept = path.starts_with("/shared/");
            answer(vec![b'x'; PAGE_BYTES].into(), if may_be_kept { "public, max-age=3600" } else { "no-store" })
        }
    })
}

fn answer(body: Bytes, cache_control: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static(cache_control));
    response
}
