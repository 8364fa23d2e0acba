//! A request that may be answered before hyper sees it: the same looks, in the same order, as [`Exchange::respond`] takes.

use std::time::Instant;

use http::header::{AGE, IF_MODIFIED_SINCE, IF_NONE_MATCH};
use http::{Method, StatusCode, request};
use verbena_content::Words;
use verbena_terms::ViewNumber;

use super::*;
use crate::answer::CACHE_STATUS;
use crate::direct::head::Memory;
use crate::direct::written::{Content, Output, Sends};

/// What a look came to.
#[expect(clippy::large_enum_variant, reason = "boxed, it would cost each hit an allocation")]
pub(crate) enum Direct {
    Hit(Hit),
    /// The words are on their way.
    Looking(Box<Looking>),
    /// Hyper is to have the request.
    Other,
}

/// A copy that is good for a request.
pub(crate) struct Hit {
    head: request::Parts,
    /// Under which it is kept.
    key: Key,
    copy: Page,
    /// Of a standard page.
    aged: Option<Aged>,
    /// It may be answered in another coding.
    may_be_coded: bool,
}

/// A request whose words are on their way.
pub(crate) struct Looking {
    pub began: Instant,
    pub reading: Reading,
    head: request::Parts,
    wanted: Wanted,
    found: Found,
    /// Its route answers in codings that are made here.
    compresses: bool,
}

impl Exchange {
    /// Looks for the copy of a request without a body. A miss comes here again by way of hyper, and is counted there.
    pub fn look_directly(&self, mut head: request::Parts, began: Instant) -> Direct {
        if received(&mut head).is_err() {
            return Direct::Other;
        }
        let route = self.routes.find(head.uri.path());
        let wanted = Wanted::of(&head, false, &route, &self.cache.keys);
        if wanted.intent != Intent::Look {
            return Direct::Other;
        }
        let found = self.cache.find(&wanted, &head, &route);
        if found.copy.is_none() {
            return Direct::Other;
        }
        let compresses = !route.compress.is_empty();
        drop(route);
        let Some(mut reading) = self.cache.content.read(found.page) else { return Direct::Other };
        match reading.words_now() {
            Poll::Ready(words) => match self.cache.looked(found, words, &wanted) {
                Ok(served) => served.directly(head, compresses).map_or(Direct::Other, Direct::Hit),
                Err(_) => Direct::Other,
            },
            Poll::Pending => Direct::Looking(Box::new(Looking { began, reading, head, wanted, found, compresses })),
        }
    }

    /// The words are here.
    pub fn looked_directly(&self, looking: Looking, words: Option<(ViewNumber, Words)>) -> Option<Hit> {
        self.cache.looked(looking.found, words, &looking.wanted).ok()?.directly(looking.head, looking.compresses)
    }

    /// Writes the answer and counts it; or nothing, and hyper is to have the request.
    pub fn write_hit(&self, hit: Hit, began: Instant, output: &mut Output, memory: &mut Memory) -> bool {
        let status = hit.copy.status();
        let is_plain = hit.head.method == Method::GET
            && !hit.may_be_coded
            && !hit.head.headers.contains_key(IF_NONE_MATCH)
            && !hit.head.headers.contains_key(IF_MODIFIED_SINCE)
            && (hit.aged.is_none() || !self.withholds(&hit.copy));
        let (status, is_written) = match is_plain {
            true => (status, self.write_whole(hit.copy, hit.aged, output)),
            false => self.write_in_form(&hit.head, (hit.key, hit.copy), hit.aged, output),
        };
        memory.takes_back(hit.head.headers);
        if is_written {
            let observed = &self.cache.observed;
            observed.hit_latency.record(began.elapsed());
            observed.answered(if status.is_server_error() { Done::Error } else { Done::Hit }, None);
        }
        is_written
    }

    /// Whether a standard page has fields that are for the cache alone.
    fn withholds(&self, copy: &Page) -> bool {
        let mut has_one = false;
        if !self.pass_dependencies {
            copy.each_field(&self.cache.shapes, |name, _| {
                has_one |= DependencyField::ALL.iter().any(|field| name.as_str() == field.name());
            });
        }
        has_one
    }

    /// The whole page, from where it is.
    fn write_whole(&self, copy: Page, aged: Option<Aged>, output: &mut Output) -> bool {
        let (now, body) = (output.began, copy.body_bytes());
        let mut writing = output.writes(copy.status(), Sends::Body(body));
        // What `Cache-Status` says of a hit stands behind what the origin said.
        let noted = aged.map(|Aged { ttl, .. }| CacheStatus::Aged { ttl, detail: None }.value(NAME));
        let (mut ours, mut has_age) = (None, false);
        copy.each_field(&self.cache.shapes, |name, value| {
            if let Some(noted) = &noted {
                if *name == CACHE_STATUS {
                    ours = Some(writing.at());
                } else if let Some(at) = ours.take() {
                    writing.back_to(at);
                    writing.field(&CACHE_STATUS, noted.as_bytes());
                }
                has_age |= *name == AGE;
            }
            writing.field(name, value);
        });
        if let (Some(noted), Some(at)) = (&noted, ours) {
            writing.back_to(at);
            writing.field(&CACHE_STATUS, noted.as_bytes());
        }
        if let Some(Aged { age, .. }) = aged {
            if has_age {
                writing.is_not_plain();
            }
            writing.field(&AGE, age.to_string().as_bytes());
        }
        writing.ends(now, Content::Page(copy, body))
    }

    /// In the form that the request wants.
    fn write_in_form(
        &self,
        head: &request::Parts,
        copy: (Key, Page),
        aged: Option<Aged>,
        output: &mut Output,
    ) -> (StatusCode, bool) {
        let route = self.routes.find(head.uri.path());
        let (answered, body) = self.hit((head, &route), copy, (aged, None)).into_parts();
        let Body::Whole(body) = body else { return (answered.status, false) };
        let body = body.unwrap_or_default();
        let sends = if head.method == Method::HEAD { Sends::HeadAlone } else { Sends::Body(body.len()) };
        let now = output.began;
        let mut writing = output.writes(answered.status, sends);
        for (name, value) in &answered.headers {
            writing.field(name, value.as_bytes());
        }
        (answered.status, writing.ends(now, Content::Bytes(body)))
    }
}

impl Served {
    /// A copy that is to be fetched anew needs more than an answer.
    fn directly(self, head: request::Parts, compresses: bool) -> Option<Hit> {
        let Served { key, copy, aged, refresh, .. } = self;
        let may_be_coded = compresses && copy.may_be_coded();
        refresh.is_none().then_some(Hit { head, key, copy, aged, may_be_coded })
    }
}
