//! Standard mode at work: pages that are asked about, refreshed and answered stale (rules H1, H4, H6), and what a write purges (rule H7).

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{CONTENT_LOCATION, HOST, IF_RANGE, LOCATION, RANGE};
use http::{HeaderMap, HeaderName, Method, Response, StatusCode, Uri, request};
use tokio::time::timeout;
use url::Url;
use verbena_caching::{
    Arrival, CacheStatus, Carried, Conditions, Hidden, Intent, Key, Reason, Request as Wanted, Route, for_refresh,
    is_of_another, store,
};
use verbena_content::{Change, Declared, Dependency, DependencyField, Kind, PageId, Scope, Undeclared, Unstorable};
use verbena_terms::Time;

use crate::answer::{self, CACHE_STATUS, forwarded};
use crate::body::Body;
use crate::cache::Missed;
use crate::exchange::{Exchange, Wants};
use crate::fill::{About, Kept, Leader};
use crate::looked::{Missing, kind_of};
use crate::old::Old;
use crate::origin::{Failure, Place};
use crate::page::{Aged, Page};
use crate::queries::Depends;
use crate::shapes::Shapes;
use crate::slices::Under;
use crate::upload::Upload;

/// How long the client of a write waits until what it purges is acknowledged by every home. The homes stay told (rule H7).
const PURGED_WITHIN: Duration = Duration::from_millis(500);

/// RFC 9875 section 3.
const GROUP_INVALIDATION: HeaderName = HeaderName::from_static("cache-group-invalidation");

/// What `Cache-Status` says of an answer that is stale because the origin fails.
const ORIGIN_DOWN: &str = "origin-down";

/// A stored page that the origin is asked about.
pub(crate) struct Base {
    pub old: Old,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// A 304 about a stored page.
pub(crate) struct Fresh {
    pub asked: Time,
    pub id: PageId,
    /// The head as the 304 made it new.
    pub headers: HeaderMap,
    pub base: Base,
    pub place: Place,
    pub noted: (&'static str, Option<&'static str>),
}

impl Base {
    pub fn of(old: Old, shapes: &Shapes) -> Self {
        let (headers, body) = opened(old.page.clone(), shapes);
        Base { old, headers, body }
    }
}

/// Head and body of a page, as they came.
pub(crate) fn opened(page: Page, shapes: &Shapes) -> (HeaderMap, Bytes) {
    let (mut headers, body) = page.opened(shapes);
    // The last one is that it was a hit.
    let mut others: Vec<_> = headers.get_all(CACHE_STATUS).into_iter().cloned().collect();
    others.pop();
    headers.remove(CACHE_STATUS);
    for other in others {
        headers.append(CACHE_STATUS, other);
    }
    (headers, body)
}

/// Whether a stale answer may stand for one of this status (RFC 5861 section 4).
pub(crate) fn is_failure(status: StatusCode) -> bool {
    matches!(status.as_u16(), 500 | 502..=504)
}

/// What a standard page that names nothing is found by: itself.
pub(crate) fn named(declared: Scope, id: PageId) -> Scope {
    match declared {
        Scope::On(_) => declared,
        Scope::Everything | Scope::All => Scope::of([id.into()]),
    }
}

impl Exchange {
    /// What a page to be stored declares that it is made of. A standard one that names too much could not be purged by what it names.
    pub fn declared(&self, headers: &HeaderMap, kind: Kind) -> Result<Declared, Reason> {
        let fields = headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        let declared = Declared::of_response(self.cache.content.names(), fields);
        match declared.because {
            Err(Undeclared::Many(_) | Undeclared::Long(_)) if kind == Kind::Standard => Err(Reason::TooManyNames),
            _ => Ok(declared),
        }
    }

    /// Whether this page may be answered because the origin fails.
    pub fn serves_for_failed_origin(&self, old: &Old) -> bool {
        old.may_answer_for_failed_origin(self.cache.content.now())
    }

    /// A copy whose life is over, because the origin fails.
    pub fn stale(&self, head: &request::Parts, old: Old) -> Response<Body> {
        let aged = old.aged(self.cache.content.now());
        let ttl = aged.map_or(0, |aged| aged.ttl);
        self.copied(head, old.page, CacheStatus::Aged { ttl, detail: Some(ORIGIN_DOWN) }, aged)
    }

    /// What a client gets when the origin fails: a stale copy if there is one that allows it.
    pub fn failed_or_stale(
        &self,
        head: &request::Parts,
        base: Option<Base>,
        failure: Failure,
        why: &'static str,
    ) -> Response<Body> {
        let failed = self.failed(failure, why);
        match base.filter(|base| failure.is_of_origin() && self.serves_for_failed_origin(&base.old)) {
            Some(base) => self.stale(head, base.old),
            None => failed,
        }
    }

    /// An answer from a copy, without the fields that are for the cache alone.
    pub fn copied(&self, head: &request::Parts, copy: Page, noted: CacheStatus, aged: Option<Aged>) -> Response<Body> {
        let slice = (copy.status() == StatusCode::PARTIAL_CONTENT).then(|| Under::Stored(*copy.stamp()));
        let mut response = answer::from_copy(head, copy, &self.cache.shapes, noted, aged);
        if let Some(under) = slice {
            response.extensions_mut().insert(under);
        }
        if aged.is_some() {
            // A 304 need not repeat them, so the copy has them (rule H4).
            self.withhold_dependencies(response.headers_mut());
        }
        response
    }

    /// Drops a stored page of which the answer to a HEAD says that it is another one now (RFC 9111 section 4.3.5).
    pub async fn compare(&self, key: Key, stored: Page, told: &Response<Body>) {
        let is_gone = matches!(told.status(), StatusCode::NOT_FOUND | StatusCode::GONE);
        let is_page = stored.status() == StatusCode::OK && told.status() == StatusCode::OK;
        let (stored, _) = opened(stored, &self.cache.shapes);
        if is_gone || (is_page && is_of_another(&stored, told.headers())) {
            self.cache.forget(key).await;
        }
    }

    /// Fetches a page anew for those that come, one at a time (rule H6). The whole of it, whatever the request that met it wants of it, and without its credentials.
    pub fn refresh(self: &Arc<Self>, mut wants: Wants, missing: Missing) {
        let slice = wants.wanted.is_for_slice().then_some(wants.wanted.key);
        if let Some(old) = &missing.base {
            let (stored, _) = opened(old.page.clone(), &self.cache.shapes);
            for_refresh(&mut wants.head.headers, &stored, &wants.route);
            wants.wanted = Wanted::of(&wants.head, false, &wants.route, &self.cache.keys);
        }
        wants.head.method = Method::GET;
        match slice {
            Some(slice) => wants.wanted = wants.wanted.for_slice(slice),
            None => {
                for part in [RANGE, IF_RANGE] {
                    wants.head.headers.remove(part);
                }
                wants.wanted.intent = Intent::Look;
            }
        }
        let kind = kind_of(wants.wanted.mode);
        let Missed::Lead(fill) = self.cache.miss(missing.key, (missing.page, kind), missing.words, |_| true) else {
            return;
        };
        let (leader, exchange) = (Leader::new(self.cache.clone(), fill), self.clone());
        if self.cache.stored_since(&missing, &wants.wanted).is_some() {
            return;
        }
        self.cache.observed.refreshes.increment();
        tokio::spawn(async move { drop(exchange.lead(wants, missing, leader).await) });
    }

    /// Keeps a page that the origin has called right still, and answers with it.
    pub async fn freshen(&self, wants: &Wants, fresh: Fresh, leader: Leader) -> Response<Body> {
        let Wants { head, wanted, route, .. } = wants;
        let Fresh { asked, id, headers, base, place, noted: (why, detail) } = fresh;
        let came = self.cache.content.now();
        let status = base.old.page.status();
        let arrival = Arrival { status, headers: &headers, at: SystemTime::now(), on_its_way: came.since(asked) };
        let keep = store(wanted, head, route, &arrival);
        let noted = |stored, detail| {
            let origin_status = Some(StatusCode::NOT_MODIFIED.as_u16());
            CacheStatus::Forwarded { why, origin_status, stored, collapsed: false, detail, remembered: false }
        };
        let keep = keep.and_then(|stored| Ok((stored, self.declared(&headers, Kind::Standard)?)));
        let (stored, declared) = match keep {
            Ok(keep) => keep,
            Err(reason) => {
                self.cache.observed.not_stored.with([reason.name()]).increment();
                leader.unstorable(Unstorable::Answer(reason.name()));
                let mut response = Response::new(Body::from(base.body));
                (*response.status_mut(), *response.headers_mut()) = (status, headers);
                self.withhold_dependencies(response.headers_mut());
                answer::note(&mut response, noted(false, Some(reason.name())));
                return response;
            }
        };
        let spare = stored.clone();
        let key = stored.variant.key(wanted.key, &head.headers, route);
        let kept = Kept {
            leader,
            page: wanted.key,
            about: About { id, kind: Kind::Standard, undeclared: None },
            key,
            stored,
            coding: route.compress.accepted(head, &route.cookies),
            times: (came, None),
            depends: Depends {
                declared: named(declared.scope, id),
                addresses: self.addresses(head, route),
                charging: None,
            },
            largest: self.largest,
            carried: Carried::default(),
            place,
        };
        let registered = kept.register(base.body.to_vec()).await;
        let is_stored = registered.is_some();
        let page = registered.unwrap_or_else(|| {
            let (stamp, body) = (*base.old.page.stamp(), base.body.to_vec());
            Page::new(stamp, (came, None), &spare, body, &self.cache.shapes)
        });
        let aged = page.times().map(|times| times.aged(self.cache.content.now()));
        self.copied_as_accepted((head, route), (key, page), noted(is_stored, detail), aged)
    }

    /// Forwards a write, and purges what it touches when the origin has answered and before its client is (rule H7). From the beginning on, a
    /// client that hangs up changes nothing of this.
    pub async fn write_standard(self: Arc<Self>, wants: Wants) -> Response<Body> {
        let (unfinished, exchange) = (self.unfinished.subscribe(), self.clone());
        let write = tokio::spawn(async move {
            let answered = exchange.written(wants).await;
            drop(unfinished);
            answered
        });
        write.await.unwrap_or_else(|_| self.failed(Failure::Broken, "method"))
    }

    async fn written(self: Arc<Self>, wants: Wants) -> Response<Body> {
        let Wants { head, body, wanted, route, client, .. } = wants;
        let (mut outgoing, _) = self.outgoing(head.clone(), wanted.intent, Conditions::All, &route, client);
        let charging = self.tagged(&mut outgoing.headers).await;
        let sent = match body {
            Some(body) => self.connections.write(&outgoing, Upload::new(body, self.client_patience)).await,
            None => self.connections.read(&outgoing, None).await,
        };
        let answered = match sent {
            Ok(answered) => answered,
            Err(failure) => {
                // Whether the application has done it nobody knows: what it may have changed is fetched anew.
                if failure != Failure::Unreachable {
                    self.purge(self.touched(&head, &route, wanted.key, &HeaderMap::new())).await;
                }
                return self.failed(failure, "method");
            }
        };
        let status = answered.status();
        if status.is_success() || status.is_redirection() {
            self.purge(self.touched(&head, &route, wanted.key, answered.headers())).await;
        }
        self.passed(answered, (&Hidden::default(), route.mode), forwarded("method", None), charging)
    }

    /// What a write touches: its target, what the answer says is about the same, and the groups that the answer names.
    fn touched(&self, head: &request::Parts, route: &Route, key: Key, answer: &HeaderMap) -> Scope {
        let mut keys: Vec<Key> = self.cache.keys.of_target(head, route).chain([key]).collect();
        for other in [LOCATION, CONTENT_LOCATION].iter().flat_map(|name| answer.get_all(name)) {
            let Some(other) = other.to_str().ok().and_then(|other| same_origin(head, other)) else { continue };
            keys.extend(self.cache.keys.of_target(&other, &self.routes.find(other.uri.path())));
        }
        let mut touched: Vec<Dependency> = keys.into_iter().map(|key| self.cache.page_of(key).into()).collect();
        let names = self.cache.content.names();
        for groups in answer.get_all(GROUP_INVALIDATION) {
            let declared = Declared::of_field(names, DependencyField::CacheGroups, groups.as_bytes());
            touched.extend(declared.scope.dependencies());
        }
        Scope::of_update(touched)
    }

    /// An update of this, acknowledged by every home: what is in the store, what is being fetched, and what is being refreshed.
    async fn purge(self: &Arc<Self>, scope: Scope) {
        let (exchange, unfinished) = (self.clone(), self.unfinished.subscribe());
        let purged = tokio::spawn(async move {
            let purged = exchange.cache.content.purge(Change::Write, scope).await;
            drop(unfinished);
            purged.is_ok()
        });
        if !matches!(timeout(PURGED_WITHIN, purged).await, Ok(Ok(true))) {
            self.cache.observed.purged_late.increment();
        }
    }
}

/// A request for what a reference in the answer to `head` points to, if that is at the same host (RFC 9111 section 4.4).
fn same_origin(head: &request::Parts, reference: &str) -> Option<request::Parts> {
    let host = head.headers.get(HOST)?;
    let asked = Url::parse(&format!("http://{}{}", host.to_str().ok()?, head.uri.path_and_query()?)).ok()?;
    let meant = asked.join(reference).ok()?;
    let is_same =
        matches!(meant.scheme(), "http" | "https") && meant.host() == asked.host() && is_same_port(&asked, &meant);
    if !is_same {
        return None;
    }
    let query = meant.query().map_or_else(String::new, |query| format!("?{query}"));
    let uri: Uri = format!("{}{query}", meant.path()).parse().ok()?;
    Some(http::Request::get(uri).header(HOST, host).body(()).ok()?.into_parts().0)
}

/// A host without a port is that of each scheme's own: by which scheme a client came, the proxy may not know.
fn is_same_port(asked: &Url, meant: &Url) -> bool {
    asked.port() == meant.port() || (asked.port().is_none() && meant.port_or_known_default() == Some(443))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_counts_if_it_is_of_the_same_host() {
        let head = http::Request::post("/a/b?x").header(HOST, "shop:80").body(()).unwrap().into_parts().0;
        let target = |reference| same_origin(&head, reference).map(|other| other.uri.to_string());
        for (reference, expected) in [
            ("/c?d#e", Some("/c?d")),
            ("http://SHOP:80/c", Some("/c")),
            ("http://shop:80", Some("/")),
            ("http://shop/c", Some("/c")),
            ("http://shop:81/c", None),
            ("c", Some("/a/c")),
            ("./c", Some("/a/c")),
            ("../c", Some("/c")),
            ("/x/../c", Some("/c")),
            ("?q=1", Some("/a/b?q=1")),
            ("c?t=1:2", Some("/a/c?t=1:2")),
            ("//shop:80/c", Some("/c")),
            ("http://other/c", None),
            ("//other/c", None),
            ("mailto:a", None),
        ] {
            assert_eq!(target(reference).as_deref(), expected, "{reference}");
        }
    }
}
