//! One request, from its head to the head of its answer.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use http::{Method, Request, Response, StatusCode, Version, request};
use hyper::body::Incoming;
use verbena_caching::{CacheStatus, Intent, Reason, Request as Wanted, Route, Via, for_client, for_origin, store};
use verbena_content::{Declared, Verdict, look};

use crate::answer::{self, NAME, forwarded};
use crate::body::{Body, Passing};
use crate::cache::{Cache, Missed};
use crate::fill::{Kept, Leader, Tee};
use crate::origin::{Connections, Failure};
use crate::update;

/// The connection is to be closed without an answer (rule P7).
#[derive(Debug)]
pub(crate) struct Unanswered;

impl std::fmt::Display for Unanswered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an update could not be confirmed, its connection is closed without an answer")
    }
}

impl std::error::Error for Unanswered {}

/// What one thread answers requests with.
pub(crate) struct Exchange {
    pub cache: Arc<Cache>,
    pub connections: Connections,
    pub routes: Arc<[Route]>,
    pub largest: usize,
    pub patience: Duration,
    pub via: Via,
}

impl Exchange {
    /// Answers a request.
    pub async fn respond(
        self: Arc<Self>,
        request: Request<Incoming>,
        client: IpAddr,
    ) -> Result<Response<Body>, Unanswered> {
        let began = Instant::now();
        let (head, body) = request.into_parts();
        let observed = self.cache.observed.clone();
        observed.in_flight.add(1);
        let _counted = Counted(&observed.in_flight);
        if head.method == Method::CONNECT {
            let noted = forwarded("method", Some("connect"));
            return Ok(answer::own(StatusCode::METHOD_NOT_ALLOWED, "this is no tunnel", noted));
        }
        let everything = Route::default();
        let route = Route::find(&self.routes, head.uri.path()).unwrap_or(&everything);
        let wanted = Wanted::of(&head, route);
        let (result, latency, answered) = match wanted.intent {
            Intent::Look => {
                let (result, response) = self.look(head, body, wanted, route, client).await;
                let latency = if result == "hit" { &observed.hit_latency } else { &observed.miss_latency };
                (result, latency, Ok(response))
            }
            Intent::Pass(reason) => {
                let response =
                    self.pass(head, body, wanted.intent, route, client, forwarded("bypass", Some(reason.name())));
                ("pass", &observed.miss_latency, Ok(response.await))
            }
            Intent::Update { announced: true } => {
                let response =
                    self.pass(head, body, wanted.intent, route, client, forwarded("method", Some("announced")));
                ("pass", &observed.update_latency, Ok(response.await))
            }
            Intent::Update { announced: false } => {
                let head = self.outgoing(head, wanted.intent, route, client);
                ("update", &observed.update_latency, update::respond(self.clone(), head, body).await)
            }
        };
        latency.record(began.elapsed());
        let is_error = answered.as_ref().map_or(true, |response| response.status().is_server_error());
        observed.answers.with([if is_error { "error" } else { result }]).increment();
        answered
    }

    async fn look(
        self: &Arc<Self>,
        head: request::Parts,
        body: Incoming,
        wanted: Wanted,
        route: &Route,
        client: IpAddr,
    ) -> (&'static str, Response<Body>) {
        let page = self.cache.page(wanted.key);
        let (copy, varies) = self.cache.find(&wanted, &head, route);
        let words = match self.cache.content.read(page) {
            Some(reading) => reading.words().await,
            None => None,
        };
        // What is judged is in hand; only now the clock, and only then the lease (rule P1).
        let now = self.cache.content.now();
        let lease = self.cache.content.lease();
        let (why, mut detail) = match (&copy, &words) {
            (None, _) => (if varies { "vary-miss" } else { "uri-miss" }, None),
            (Some(_), None) => ("stale", Some("no-words")),
            (Some((stamp, copy)), Some((posted, words))) => match look(stamp, words, *posted, &lease, now) {
                Verdict::Fresh if copy.expires.is_some_and(|expires| expires <= now) => ("stale", Some("lifetime")),
                Verdict::Fresh if wanted.credentials.is_some() && !copy.stored.shared_with_credentials => {
                    ("request", wanted.credentials.map(Reason::name))
                }
                Verdict::Fresh => return ("hit", answer::from_copy(&head, copy, CacheStatus::Hit)),
                other => ("stale", Some(answer::verdict(other))),
            },
        };
        drop(copy);
        self.cache.observed.misses.with([detail.unwrap_or(why)]).increment();
        if wanted.only_if_cached {
            let text = "not in the cache, and the request wants nothing else";
            return ("miss", answer::own(StatusCode::GATEWAY_TIMEOUT, text, forwarded(why, detail)));
        }
        let missed = match wanted.credentials {
            Some(reason) if self.cache.is_unshared(wanted.key) => Missed::Alone(reason.name()),
            _ if head.method == Method::HEAD => Missed::Alone("head"),
            _ => self.cache.miss(wanted.key, page, words),
        };
        match missed {
            Missed::Lead(fill) => {
                let leader = Leader::new(self.cache.clone(), fill);
                return ("miss", self.lead(head, body, wanted, route, client, (why, detail), leader).await);
            }
            Missed::Wait(page) => {
                let served = page.await.ok().flatten().filter(|copy| {
                    let key = copy.stored.variant.key(wanted.key, &head.headers, &route.cookies);
                    key == copy.key && (wanted.credentials.is_none() || copy.stored.shared_with_credentials)
                });
                if let Some(copy) = served {
                    let status =
                        CacheStatus::Forwarded { why, origin_status: None, stored: false, collapsed: true, detail };
                    return ("miss", answer::from_copy(&head, &copy, status));
                }
                detail = detail.or(Some("fill-not-shared"));
            }
            Missed::Alone(why) => detail = detail.or(Some(why)),
        }
        ("miss", self.pass(head, body, wanted.intent, route, client, forwarded(why, detail)).await)
    }

    /// Fetches a page for all that wait for it, and for the store.
    #[expect(clippy::too_many_arguments, reason = "all that is known of the one request, used once")]
    async fn lead(
        self: &Arc<Self>,
        head: request::Parts,
        body: Incoming,
        wanted: Wanted,
        route: &Route,
        client: IpAddr,
        (why, detail): (&'static str, Option<&'static str>),
        leader: Leader,
    ) -> Response<Body> {
        let outgoing = self.outgoing(head.clone(), wanted.intent, route, client);
        let (answered, incoming) = match self.connections.read(outgoing, body).await {
            Ok(answered) => answered.into_parts(),
            Err(failure) => return self.failed(failure, why),
        };
        let status = Some(answered.status.as_u16());
        let keep = store(&wanted, &head, route, answered.status, &answered.headers);
        let too_large = hyper::body::Body::size_hint(&incoming).lower() > self.largest as u64;
        let keep = keep.and_then(|stored| if too_large { Err(Reason::TooLarge) } else { Ok(stored) });
        let passing = Passing::new(incoming, self.patience);
        let mut headers = answered.headers;
        let names = self.cache.content.names();
        let fields = headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        let scope = Declared::of_response(names, fields).scope;
        for_client(&mut headers, &self.via);
        answer::remove_dependencies(&mut headers);
        let noted =
            |stored, detail| CacheStatus::Forwarded { why, origin_status: status, stored, collapsed: false, detail };
        let body = match keep {
            Ok(mut stored) => {
                answer::remove_dependencies(&mut stored.headers);
                answer::note(&mut headers, noted(true, detail));
                let key = stored.variant.key(wanted.key, &head.headers, &route.cookies);
                let expires = stored.lifetime.map(|lifetime| self.cache.content.now() + lifetime);
                let (largest, bytes) = (self.largest, BytesMut::new());
                Body::Tee(Box::new(Tee::new(passing, Kept { leader, key, stored, expires, scope, largest, bytes })))
            }
            Err(reason) => {
                self.cache.observed.not_stored.with([reason.name()]).increment();
                answer::note(&mut headers, noted(false, Some(reason.name())));
                match Some(reason) == wanted.credentials {
                    // Not for this client's like; others may share it.
                    true => self.cache.remember_unshared(wanted.key),
                    false => leader.unstorable(),
                }
                Body::Origin(passing)
            }
        };
        let mut response = Response::new(body);
        *response.status_mut() = answered.status;
        *response.headers_mut() = headers;
        response
    }

    /// Forwards a request and its answer, and stores nothing.
    async fn pass(
        &self,
        head: request::Parts,
        body: Incoming,
        intent: Intent,
        route: &Route,
        client: IpAddr,
        noted: CacheStatus,
    ) -> Response<Body> {
        let reads = head.method.is_safe();
        let head = self.outgoing(head, intent, route, client);
        let sent = match reads {
            true => self.connections.read(head, body).await,
            false => self.connections.write(head, body).await,
        };
        match sent {
            Ok(answered) => self.passed(answered, noted),
            Err(failure) => self.failed(failure, "bypass"),
        }
    }

    /// The origin's answer, for the client.
    pub fn passed(&self, answered: Response<Incoming>, noted: CacheStatus) -> Response<Body> {
        let (mut answered, incoming) = answered.into_parts();
        for_client(&mut answered.headers, &self.via);
        answer::remove_dependencies(&mut answered.headers);
        let CacheStatus::Forwarded { why, detail, .. } = noted else {
            unreachable!("invariant: what came from the origin was forwarded")
        };
        let origin_status = Some(answered.status.as_u16());
        let noted = CacheStatus::Forwarded { why, origin_status, stored: false, collapsed: false, detail };
        answer::note(&mut answered.headers, noted);
        let mut response = Response::new(Body::Origin(Passing::new(incoming, self.patience)));
        *response.status_mut() = answered.status;
        *response.headers_mut() = answered.headers;
        response
    }

    /// What the client is told when the origin fails.
    pub fn failed(&self, failure: Failure, why: &'static str) -> Response<Body> {
        self.cache.observed.origin_errors.with([failure.name()]).increment();
        let text = match failure {
            Failure::Unreachable => "the application cannot be reached",
            Failure::Silent => "the application does not answer",
            Failure::Broken => "the application broke off",
        };
        answer::own(failure.status(), text, forwarded(why, Some(failure.name())))
    }

    fn outgoing(&self, mut head: request::Parts, intent: Intent, route: &Route, client: IpAddr) -> request::Parts {
        for_origin(&mut head.headers, intent, route, client, &self.via);
        head
    }
}

/// Who passes messages on.
pub(crate) fn via() -> Via {
    Via::new(Version::HTTP_11, NAME).expect("invariant: HTTP/1.1 and a token make a Via")
}

struct Counted<'a>(&'a verbena_metrics::Gauge);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.add(-1);
    }
}
