//! Stored pages in a coding that clients accept (`compress` of a route), each made once and kept beside the page.
//!
//! ```text
//!  a page is stored, or asked for, and is not there in the coding that the request accepts best
//!      the answer is the page as it is; a thread that blocks nobody makes the other
//!  later requests that accept that coding best
//!      the page is found and validated as ever, then the coded one is answered in its place
//! ```
//!
//! No request waits for an encoder. A coded page is found through its page alone, and says of which head and body it was made: so the words, the lifetime and the purge of
//! the page are its own, and when the page is another one it is made anew. It is in the store like a page, and counted so.
//!
//! An encoder takes a processor for up to tenths of a second. Half of the processors are at it at most, and what comes beyond that is answered as it is.

use std::collections::HashSet;
use std::io::{self, Write};
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Instant;

use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::ETAG;
use http::{Response, StatusCode, request};
use parking_lot::Mutex;
use verbena_caching::{CacheStatus, Coding, Key, Route, varies_by_coding};
use verbena_metrics::{Counter, Family, Latency, Registry, RegistryError};

use crate::answer;
use crate::body::Body;
use crate::cache::Cache;
use crate::exchange::Exchange;
use crate::page::{Aged, Page};
use crate::standard::opened;

/// What is spent on a body: about 20 to 60 MB/s, for sizes that are near the best.
const GZIP_LEVEL: u32 = 6;
const BROTLI_QUALITY: i32 = 5;
const BROTLI_WINDOW: i32 = 22;
const ZSTD_LEVEL: i32 = 6;

/// Of how many parts of a body one must be saved, or the coded one is not kept.
const GAIN: usize = 16;

/// The encoders that are at work.
pub(crate) struct Coder {
    making: Mutex<HashSet<Key>>,
    at_once: usize,
}

/// What is counted of it.
#[derive(Clone)]
pub(crate) struct Coded {
    made: Family<Counter, 1>,
    bytes: Family<Counter, 1>,
    not_made: Family<Counter, 1>,
    answers: Family<Counter, 1>,
    latency: Latency,
}

/// One page that is being coded. Dropped, it is no more.
struct Making {
    cache: Arc<Cache>,
    key: Key,
}

impl Coded {
    pub fn new(registry: &Registry) -> Result<Self, RegistryError> {
        let labels = Coding::ALL.len();
        Ok(Coded {
            made: registry.family(
                "verbena_proxy_coded_total",
                "Stored pages that were compressed, by coding.",
                ["coding"],
                labels,
            )?,
            bytes: registry.family(
                "verbena_proxy_coded_bytes_total",
                "Bytes of stored pages that were compressed, before and after.",
                ["side"],
                2,
            )?,
            not_made: registry.family(
                "verbena_proxy_not_coded_total",
                "Stored pages that were asked for in a coding and not compressed, by reason.",
                ["reason"],
                2,
            )?,
            answers: registry.family(
                "verbena_proxy_coded_answers_total",
                "Answers with a page that was compressed here, by coding.",
                ["coding"],
                labels,
            )?,
            latency: registry.latency("verbena_proxy_coding_latency_seconds", "Time to compress a stored page.")?,
        })
    }
}

impl Coder {
    pub fn new() -> Self {
        let processors = available_parallelism().map_or(1, usize::from);
        Coder { making: Mutex::default(), at_once: (processors / 2).max(1) }
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        self.cache.coder.making.lock().remove(&self.key);
    }
}

impl Exchange {
    /// An answer from a copy that is kept under `key`, in the coding that the request accepts best, if that is made already.
    pub fn copied_as_accepted(
        &self,
        (head, route): (&request::Parts, &Route),
        (key, copy): (Key, Page),
        noted: CacheStatus,
        aged: Option<Aged>,
    ) -> Response<Body> {
        if route.compress.is_empty() || !copy.may_be_coded() {
            return self.copied(head, copy, noted, aged);
        }
        let accepted = route.compress.accepted(head, &route.cookies);
        let coded = accepted.and_then(|coding| self.cache.coded(coding, key, &copy));
        if let (Some(coding), Some(_)) = (accepted, &coded) {
            self.cache.observed.coded.answers.with([coding.name()]).increment();
        }
        let mut response = self.copied(head, coded.unwrap_or(copy), noted, aged);
        varies_by_coding(response.headers_mut());
        held(head, route, &mut response);
        response
    }
}

/// Makes an answer 304 whose client has it in a coding that is not made here yet, by the tag that it would have.
pub(crate) fn held(head: &request::Parts, route: &Route, response: &mut Response<Body>) {
    if response.status() != StatusCode::OK {
        return;
    }
    if let Some(tag) = route.compress.tag_held(head, response.headers().get(ETAG), &route.cookies) {
        answer::not_modified(response);
        response.headers_mut().insert(ETAG, tag);
    }
}

impl Cache {
    /// A page in a coding. If there is no such copy, it is made for later requests.
    pub fn coded(self: &Arc<Self>, coding: Coding, key: Key, page: &Page) -> Option<Page> {
        let key = coding.key(key);
        match self.copy_at(key).filter(|coded| coded.is_coded_of(page)) {
            Some(coded) => Some(coded).filter(|coded| !coded.is_empty()),
            None => {
                self.code(coding, key, page.clone());
                None
            }
        }
    }

    fn code(self: &Arc<Self>, coding: Coding, key: Key, page: Page) {
        let mut making = self.coder.making.lock();
        if making.contains(&key) {
            return;
        }
        if making.len() >= self.coder.at_once {
            self.observed.coded.not_made.with(["busy"]).increment();
            return;
        }
        making.insert(key);
        drop(making);
        let making = Making { cache: self.clone(), key };
        // The task ends by itself, and no request waits for it.
        drop(tokio::task::spawn_blocking(move || making.make(coding, &page)));
    }
}

impl Making {
    fn make(self, coding: Coding, page: &Page) {
        let (cache, observed) = (&self.cache, &self.cache.observed.coded);
        let began = Instant::now();
        let body = page.clone().body();
        let coded = match encode(coding, &body) {
            Ok(coded) if coded.len() < body.len() - body.len() / GAIN => {
                observed.made.with([coding.name()]).increment();
                observed.bytes.with(["before"]).add(body.len() as u64);
                observed.bytes.with(["after"]).add(coded.len() as u64);
                coded
            }
            // An empty page records that the coding gains too little, so that it is not tried again.
            Ok(_) => {
                observed.not_made.with(["no-gain"]).increment();
                Vec::new()
            }
            Err(error) => {
                tracing::warn!(coding = coding.name(), %error, "a page could not be compressed");
                Vec::new()
            }
        };
        observed.latency.record(began.elapsed());
        let (mut headers, _) = opened(page.clone(), &cache.shapes);
        coding.head(&mut headers, coded.len());
        cache.keep_at(self.key, page.coded(&headers, coded, &cache.shapes));
    }
}

fn encode(coding: Coding, body: &[u8]) -> io::Result<Vec<u8>> {
    match coding {
        Coding::Gzip => {
            let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 3), Compression::new(GZIP_LEVEL));
            encoder.write_all(body)?;
            encoder.finish()
        }
        Coding::Brotli => {
            let parameters = brotli::enc::BrotliEncoderParams {
                quality: BROTLI_QUALITY,
                lgwin: BROTLI_WINDOW,
                size_hint: body.len(),
                ..Default::default()
            };
            let (mut reader, mut coded) = (body, Vec::with_capacity(body.len() / 3));
            brotli::BrotliCompress(&mut reader, &mut coded, &parameters)?;
            Ok(coded)
        }
        Coding::Zstd => zstd::bulk::compress(body, ZSTD_LEVEL),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn each_coding_is_undone_by_its_decoder_and_is_the_same_each_time() {
        let body: Vec<u8> = (0..20_000_u32).flat_map(|n| format!("{} ", n * n % 977).into_bytes()).collect();
        for coding in Coding::ALL {
            let coded = encode(coding, &body).unwrap();
            assert!(coded.len() < body.len() / 2, "{coding:?}: {}", coded.len());
            // A strong tag says as much.
            assert_eq!(coded, encode(coding, &body).unwrap(), "{coding:?}");
            let mut plain = Vec::new();
            match coding {
                Coding::Gzip => flate2::read::GzDecoder::new(&coded[..]).read_to_end(&mut plain).unwrap(),
                Coding::Brotli => brotli::Decompressor::new(&coded[..], 4096).read_to_end(&mut plain).unwrap(),
                Coding::Zstd => zstd::stream::read::Decoder::new(&coded[..]).unwrap().read_to_end(&mut plain).unwrap(),
            };
            assert!(plain == body, "{coding:?}");
        }
    }
}
