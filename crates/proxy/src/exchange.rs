//! One request, from its head to the head of its answer.

pub(crate) mod direct;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use http::{HeaderMap, Method, Request, Response, StatusCode, Version, request, response};
use hyper::body::Incoming;
use tokio::sync::watch;
use tokio::time::error::Elapsed;
use tokio::time::timeout_at;
use verbena_caching::{
    Bracket, CacheStatus, Conditions, Hidden, Intent, Key, Mode, Reason, Request as Wanted, Route, Routes, Use, Via,
    for_client, for_origin, for_page, received,
};
use verbena_content::service::Reading;
use verbena_content::{DependencyField, Scope};
use verbena_metrics::Latency;
use verbena_terms::Time;

use crate::answer::{self, NAME, asked_for, forwarded};
use crate::body::{Body, Passing};
use crate::cache::{Cache, Found, Missed};
use crate::connection::Asked;
use crate::fill::Leader;
use crate::looked::{Missing, Served, kind_of};
use crate::observed::{Counted, Done};
use crate::origin::{Connections, Failure, Place};
use crate::page::{Aged, Page};
use crate::parts::part;
use crate::purging::Purgers;
use crate::queries::{COMPLETE, Charging, FILL, Queries, beside_database};
use crate::responding::Responding;
use crate::slices::{Under, read_stamp};
use crate::standard::is_failure;
use crate::update;
use crate::upload::Upload;

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
    pub routes: Arc<Routes>,
    pub largest: usize,
    pub pass_dependencies: bool,
    pub patience: Duration,
    pub client_patience: Duration,
    /// Watched by the updates that are under way.
    pub unfinished: watch::Sender<()>,
    pub via: Via,
    /// The same for a request that came over HTTP/2.
    pub via_http2: Via,
    /// Who may purge by a request.
    pub purgers: Purgers,
    /// Where a relay may see the queries of the application.
    pub queries: Option<Queries>,
}

/// A request that is not answered at once.
pub(crate) struct Wants {
    pub head: request::Parts,
    /// None of a request that the cache makes itself.
    pub body: Option<Incoming>,
    pub wanted: Wanted,
    pub route: Route,
    pub client: IpAddr,
    pub began: Instant,
}

/// Bytes of the body of a request that purges that are read. It means nothing.
const GATHERED: usize = 64 << 10;
/// Why a `HEAD` of a page that is not stored goes alone.
pub(crate) const HEAD: &str = "head";
/// What a look at the cache came to.
#[allow(
    clippy::large_enum_variant,
    reason = "boxed, a read would cost each hit on such a fabric an allocation; how large it is depends on the features"
)]
enum Looked {
    /// A validated page: the answer. Or none.
    Done(Result<Served, Box<Missing>>),
    /// The words are on their way.
    Reading(Found, Reading),
}

impl Exchange {
    /// Answers a request: at once if the page is kept and its words are at hand, as they are on a fabric that is synchronous.
    pub fn respond(self: &Arc<Self>, request: Request<Incoming>, client: IpAddr, asked: Asked) -> Responding {
        let began = Instant::now();
        let (mut head, body) = request.into_parts();
        let observed = &self.cache.observed;
        // As it came: what is taken off for the next recipient says who stands in front.
        let purger = self.purgers.takes(&head.method).then(|| self.purgers.allows(&head.headers, client));
        if let Err(unfit) = received(&mut head) {
            let answer = answer::unfit(unfit);
            observed.answered(Done::Error, answer::reason(&answer));
            return Responding::now(asked, Ok(answer));
        }
        if let Some(is_allowed) = purger {
            let exchange = self.clone();
            return Responding::later(asked, async move {
                // Over HTTP/2 a body that nobody reads would end the stream before its answer.
                let mut body = Upload::new(body, exchange.client_patience);
                let answer = match body.gather(GATHERED).await {
                    Ok(()) => exchange.purge_as_asked(head, is_allowed).await,
                    Err(cut) => exchange.failed(cut.into(), "method"),
                };
                let answer = Ok(answer);
                exchange.answered(Done::Update, &exchange.cache.observed.update_latency, began, &answer);
                answer
            });
        }
        let route = self.routes.find(head.uri.path());
        let wanted = Wanted::of(&head, !hyper::body::Body::is_end_stream(&body), &route, &self.cache.keys);
        let is_part = wanted.intent == Intent::Pass(Reason::Range);
        let looked = (wanted.intent == Intent::Look || is_part).then(|| self.look(&head, &wanted, &route));
        if let Some(Looked::Done(Ok(Served { key, copy, aged, detail, refresh }))) = looked {
            let whole = self.hit((&head, &route), (key, copy), (aged, detail));
            let answer = Ok(if is_part { part(&head, whole, &self.cache.keys) } else { whole });
            self.answered(Done::Hit, &observed.hit_latency, began, &answer);
            if let Some(missing) = refresh {
                let wants = Wants { head, body: None, wanted, route: route.into_owned(), client, began };
                self.refresh(wants, *missing);
            }
            return Responding::now(asked, answer);
        }
        let wants = Wants { head, body: Some(body), wanted, route: route.into_owned(), client, began };
        Responding::later(asked, self.clone().respond_later(wants, looked))
    }

    async fn respond_later(
        self: Arc<Self>,
        wants: Wants,
        looked: Option<Looked>,
    ) -> Result<Response<Body>, Unanswered> {
        let observed = &self.cache.observed;
        let _counted = Counted::new(&observed.in_flight);
        let began = wants.began;
        let (mut looked, mut old) = (looked, None);
        if wants.wanted.intent == Intent::Pass(Reason::Range) {
            let looked = match looked.take() {
                Some(Looked::Reading(found, reading)) => self.cache.looked(found, reading.words().await, &wants.wanted),
                Some(Looked::Done(looked)) => looked,
                None => unreachable!("invariant: a part is looked for"),
            };
            let looked = match looked {
                Err(missing) => self.cache.reconsidered(missing, &wants.wanted).await,
                served => served,
            };
            match looked {
                Ok(Served { key, copy, aged, detail, .. }) => {
                    let whole = self.hit((&wants.head, &wants.route), (key, copy), (aged, detail));
                    let answer = Ok(part(&wants.head, whole, &self.cache.keys));
                    self.answered(Done::Hit, &observed.hit_latency, began, &answer);
                    return answer;
                }
                Err(missing) => old = missing.base,
            }
        }
        let wants = match self.as_slices(wants).await {
            Ok((done, answer)) => {
                let latency = if done == Done::Hit { &observed.hit_latency } else { &observed.miss_latency };
                let answer = Ok(answer);
                self.answered(done, latency, began, &answer);
                return answer;
            }
            Err(wants) => wants,
        };
        let (done, latency, answer) = match wants.wanted.intent {
            Intent::Look => {
                let path = wants.head.uri.path().to_owned();
                let (done, answer) = self.judge(wants, looked).await;
                if done == Done::Miss {
                    observed.missed(&path, began.elapsed());
                }
                let latency = if done == Done::Hit { &observed.hit_latency } else { &observed.miss_latency };
                (done, latency, Ok(answer))
            }
            Intent::Pass(reason) => {
                let noted = forwarded("bypass", Some(reason.name()));
                let old = old.map(|old| (wants.head.clone(), old));
                let passed = self.pass(wants, None, Conditions::All, noted).await;
                match old {
                    Some((head, old)) if is_failure(passed.status()) && self.serves_for_failed_origin(&old) => {
                        let part = part(&head, self.stale(&head, old), &self.cache.keys);
                        (Done::Hit, &observed.hit_latency, Ok(part))
                    }
                    _ => (Done::Pass, &observed.miss_latency, Ok(passed)),
                }
            }
            Intent::Update(Bracket::Announced) => {
                let noted = forwarded("method", Some("announced"));
                (Done::Pass, &observed.update_latency, Ok(self.pass(wants, None, Conditions::All, noted).await))
            }
            Intent::Update(Bracket::After) => {
                (Done::Update, &observed.update_latency, Ok(self.clone().write_standard(wants).await))
            }
            Intent::Update(bracket) => {
                let Wants { head, body, wanted, mut route, client, .. } = wants;
                let (mut head, _) = self.outgoing(head, wanted.intent, Conditions::All, &route, client);
                let charging = self.tagged(&mut head.headers).await;
                let scope = match bracket {
                    Bracket::BesideDatabase => beside_database(self.cache.content.names()),
                    Bracket::Everything | Bracket::OfAnother | Bracket::Announced | Bracket::After => Scope::Everything,
                };
                let harmless = match bracket {
                    Bracket::Everything => std::mem::take(&mut route.harmless),
                    _ => BTreeSet::new(),
                };
                (
                    Done::Update,
                    &observed.update_latency,
                    update::respond(self.clone(), (scope, harmless, charging), head, body).await,
                )
            }
        };
        self.answered(done, latency, began, &answer);
        answer
    }

    /// Counts an answer.
    fn answered(&self, done: Done, latency: &Latency, began: Instant, answer: &Result<Response<Body>, Unanswered>) {
        latency.record(began.elapsed());
        let is_error = answer.as_ref().map_or(true, |response| response.status().is_server_error());
        let why = answer.as_ref().ok().and_then(answer::reason);
        self.cache.observed.answered(if is_error { Done::Error } else { done }, why);
    }

    /// Looks whether a page is kept, and reads its words.
    fn look(&self, head: &request::Parts, wanted: &Wanted, route: &Route) -> Looked {
        let found = self.cache.find(wanted, head, route);
        let Some(mut reading) = self.cache.content.read(found.page) else {
            return Looked::Done(self.cache.looked(found, None, wanted));
        };
        match reading.words_now() {
            Poll::Ready(words) => Looked::Done(self.cache.looked(found, words, wanted)),
            Poll::Pending => Looked::Reading(found, reading),
        }
    }

    /// A hit.
    fn hit(
        &self,
        request: (&request::Parts, &Route),
        copy: (Key, Page),
        (aged, detail): (Option<Aged>, Option<&'static str>),
    ) -> Response<Body> {
        let noted = aged.map_or(CacheStatus::Hit, |Aged { ttl, .. }| CacheStatus::Aged { ttl, detail });
        self.copied_as_accepted(request, copy, noted, aged)
    }

    /// Answers with what is kept, or fetches it.
    pub async fn answer(self: &Arc<Self>, wants: Wants) -> (Done, Response<Body>) {
        self.judge(wants, None).await
    }

    /// Answers with what was found, or fetches it.
    async fn judge(self: &Arc<Self>, wants: Wants, mut first: Option<Looked>) -> (Done, Response<Body>) {
        let mut has_waited = false;
        loop {
            let Wants { head, wanted, route, began, .. } = &wants;
            let looked = match first.take().unwrap_or_else(|| self.look(head, wanted, route)) {
                Looked::Done(looked) => looked,
                Looked::Reading(found, reading) => self.cache.looked(found, reading.words().await, wanted),
            };
            let looked = match looked {
                Err(missing) => self.cache.reconsidered(missing, wanted).await,
                served => served,
            };
            let missing = match looked {
                Ok(Served { key, copy, aged, detail, refresh }) => {
                    let answer = self.hit((head, route), (key, copy), (aged, detail));
                    if let Some(missing) = refresh {
                        self.refresh(Wants { body: None, ..wants }, *missing);
                    }
                    return (Done::Hit, answer);
                }
                Err(missing) => *missing,
            };
            let Missing { key, page, words, why, detail, .. } = missing;
            if wanted.only_if_cached {
                let text = "not in the cache, and the request wants nothing else";
                return (Done::Miss, answer::own(StatusCode::GATEWAY_TIMEOUT, text, forwarded(why, detail)));
            }
            let missed = match wanted.credentials {
                Some(reason) if self.cache.is_unshared(wanted.key) => {
                    Missed::Alone { why: reason.name(), is_fill: false, is_remembered: false }
                }
                _ if head.method == Method::HEAD => Missed::Alone { why: HEAD, is_fill: false, is_remembered: false },
                _ => self.cache.miss(key, (page, kind_of(wanted.mode)), words, |copy| {
                    copy.is_for(wanted.credentials) && is_for_all(copy, wanted, self.cache.content.now())
                }),
            };
            let give_up = (*began + self.patience).into();
            let mut is_reason_remembered = false;
            let (alone, is_fill, takes_place) = match missed {
                Missed::Lead(fill) => {
                    // Dropped, it sends those who wait to what is in the store by then.
                    let leader = Leader::new(self.cache.clone(), fill);
                    if let Some(Served { key, copy, aged, detail, .. }) = self.cache.stored_since(&missing, wanted) {
                        drop(leader);
                        return (Done::Hit, self.hit((head, route), (key, copy), (aged, detail)));
                    }
                    if let Some(answer) = self.in_pool(&wants, &missing).await {
                        return (Done::Hit, answer);
                    }
                    return (Done::Miss, self.lead(wants, missing, leader).await);
                }
                Missed::Join(copy, joined) => {
                    let noted = answer::collapsed(why, detail);
                    return (Done::Miss, self.joined((head, route), copy, joined, noted).await);
                }
                Missed::Again(registered) => match self.waits(give_up, registered).await {
                    Ok(_) => continue,
                    Err(_) => ("fill-slow", true, true),
                },
                Missed::Wait(filling) => match self.waits(give_up, filling).await {
                    Err(_) => ("fill-slow", true, true),
                    Ok(filled) => {
                        let now = self.cache.content.now();
                        let shared = filled.ok().flatten().filter(|shared| {
                            shared.key == shared.variant.key(wanted.key, &head.headers, route)
                                && is_for_all(&shared.copy, wanted, now)
                        });
                        match (shared.map(|shared| (shared.key, shared.copy, shared.coming)), wanted.credentials) {
                            // Updates come faster than the page is made, or it fails: one after the other they would wait for ever.
                            (None, _) if has_waited => ("fills-lost", true, true),
                            // It failed, or was of another variant: of those who waited, one leads next.
                            (None, _) => {
                                has_waited = true;
                                continue;
                            }
                            (Some((_, copy, _)), Some(reason)) if !copy.is_for(wanted.credentials) => {
                                self.cache.remember_unshared(wanted.key);
                                (reason.name(), false, true)
                            }
                            (Some((_, copy, Some(coming))), _) => {
                                let Some(joined) = coming.body.join(coming.hint) else {
                                    has_waited = true;
                                    continue;
                                };
                                let noted = answer::collapsed(why, detail);
                                return (Done::Miss, self.joined((head, route), copy, joined.into(), noted).await);
                            }
                            (Some((key, copy, None)), _) => {
                                let noted = answer::collapsed(why, detail);
                                let aged = copy.times().map(|times| times.aged(now));
                                let answer = self.copied_as_accepted((head, route), (key, copy), noted, aged);
                                return (Done::Miss, answer);
                            }
                        }
                    }
                },
                // Those who waited for a fetch of which nothing may be stored are let go together, as many as they are.
                Missed::Alone { why, is_fill, is_remembered } => {
                    is_reason_remembered = is_remembered;
                    (why, is_fill, is_fill || has_waited)
                }
            };
            let place = match takes_place {
                true => match self.connections.place(give_up).await {
                    Ok(place) => Some(place),
                    Err(failure) => return (Done::Miss, self.failed(failure, why)),
                },
                false => None,
            };
            let is_kept_for_others = is_fill || alone == HEAD;
            let conditions = if is_kept_for_others { Conditions::Tags } else { Conditions::All };
            let noted = match detail {
                None if is_reason_remembered => answer::remembered(why, alone),
                _ => forwarded(why, detail.or(Some(alone))),
            };
            let old = missing.base.map(|base| (head.clone(), base));
            let wants_newest = is_fill
                && wanted.mode == Mode::Standard
                && wanted.credentials.is_none()
                && (wanted.wishes.no_cache || wanted.wishes.max_age.is_some());
            let is_slice = wanted.is_for_slice();
            let mut passed = self.pass(wants, place, conditions, noted).await;
            if is_slice {
                passed.extensions_mut().insert(Under::Read(missing.words.map(read_stamp)));
            }
            match old {
                Some((head, base)) if is_failure(passed.status()) && self.serves_for_failed_origin(&base) => {
                    return (Done::Hit, self.stale(&head, base));
                }
                Some((_, base)) if alone == HEAD => self.compare(key, base.page, &passed).await,
                _ if wants_newest && !is_failure(passed.status()) => self.cache.overtaken(key).await,
                _ => {}
            }
            return (Done::Miss, passed);
        }
    }

    /// Waits for what another request is fetching.
    async fn waits<T>(&self, until: tokio::time::Instant, fetched: impl Future<Output = T>) -> Result<T, Elapsed> {
        let _counted = Counted::new(&self.cache.observed.waiting);
        timeout_at(until, fetched).await
    }

    /// Forwards a request and its answer, and stores nothing.
    pub async fn pass(
        &self,
        wants: Wants,
        mut place: Option<Place>,
        conditions: Conditions,
        noted: CacheStatus,
    ) -> Response<Body> {
        let Wants { head, body, wanted: Wanted { intent, .. }, route, client, .. } = wants;
        let body = body.filter(|body| !head.method.is_safe() || !hyper::body::Body::is_end_stream(body));
        let (mut head, hidden) = self.outgoing(head, intent, conditions, &route, client);
        let charging = self.tagged(&mut head.headers).await;
        let sent = match body {
            None => self.connections.read(&head, place.as_mut()).await,
            Some(body) => self.connections.write(&head, Upload::new(body, self.client_patience)).await,
        };
        match sent.and_then(|answered| asked_for(&head, intent, answered)) {
            Ok(answered) => self.passed(answered, (&hidden, route.mode), noted, charging),
            Err(failure) => self.failed(failure, "bypass"),
        }
    }

    /// Gives a request a tag whose answer is not stored, where a relay sees its statements.
    pub async fn tagged(&self, headers: &mut HeaderMap) -> Option<Charging> {
        match &self.queries {
            Some(queries) => queries.pass(headers).await,
            None => None,
        }
    }

    /// A fill begins, where a relay sees the queries of the application.
    pub async fn charging(&self) -> Option<Charging> {
        match &self.queries {
            Some(queries) => queries.begin().await,
            None => None,
        }
    }

    /// The origin's answer, for the client.
    pub fn passed(
        &self,
        answered: Response<Incoming>,
        for_client: (&Hidden, Mode),
        noted: CacheStatus,
        charging: Option<Charging>,
    ) -> Response<Body> {
        let (mut answered, incoming) = answered.into_parts();
        if charging.is_some() {
            // It is for the cache.
            answered.headers.remove(COMPLETE);
        }
        let CacheStatus::Forwarded { why, detail, remembered, .. } = noted else {
            unreachable!("invariant: what came from the origin was forwarded")
        };
        let origin_status = Some(answered.status.as_u16());
        let noted = CacheStatus::Forwarded { why, origin_status, stored: false, collapsed: false, detail, remembered };
        let body = Body::Origin(Passing::new(incoming, self.patience).charging(charging));
        self.forwarded_answer(answered, for_client, body, noted)
    }

    pub fn forwarded_answer(
        &self,
        answered: response::Parts,
        (hidden, mode): (&Hidden, Mode),
        body: Body,
        noted: CacheStatus,
    ) -> Response<Body> {
        let mut response = Response::new(body);
        *response.status_mut() = answered.status;
        *response.headers_mut() = answered.headers;
        // The reason phrase, and how the names of fields are spelled.
        *response.extensions_mut() = answered.extensions;
        let via = if answered.version == Version::HTTP_2 { &self.via_http2 } else { &self.via };
        for_client(response.headers_mut(), hidden, mode, via);
        self.withhold_dependencies(response.headers_mut());
        answer::note(&mut response, noted);
        response
    }

    /// Takes the fields that name dependencies off an answer, unless clients may see them: they are for the cache.
    pub fn withhold_dependencies(&self, headers: &mut HeaderMap) {
        if !self.pass_dependencies {
            for field in DependencyField::ALL {
                headers.remove(field.name());
            }
        }
    }

    /// What the client is told when the origin fails.
    pub fn failed(&self, failure: Failure, why: &'static str) -> Response<Body> {
        if failure.is_of_origin() {
            self.cache.observed.origin_errors.with([failure.name()]).increment();
        }
        let text = match failure {
            Failure::Unreachable => "the application cannot be reached",
            Failure::Silent => "the application does not answer",
            Failure::Broken => "the application broke off",
            Failure::ClientSlow => "the body of the request did not come in time",
            Failure::ClientBroken => "the body of the request broke off",
            Failure::Crowded => "too many pages are being fetched from the application",
        };
        answer::own(failure.status(), text, forwarded(why, Some(failure.name())))
    }

    /// The request as the origin gets it.
    pub fn outgoing(
        &self,
        mut head: request::Parts,
        intent: Intent,
        conditions: Conditions,
        route: &Route,
        client: IpAddr,
    ) -> (request::Parts, Hidden) {
        if intent == Intent::Look {
            for_page(&mut head, route);
        }
        // A client says nothing about whose statements are whose (rule Q3).
        head.headers.remove(FILL);
        let via = if head.version == Version::HTTP_2 { &self.via_http2 } else { &self.via };
        let hidden = for_origin(&mut head.headers, intent, conditions, route, client, via);
        (head, hidden)
    }
}

/// Whether a page that was fetched just now is for others as well: one that each request is to ask about is for the one that did.
pub(crate) fn is_for_all(copy: &Page, wanted: &Wanted, now: Time) -> bool {
    !copy.is_over(now) && copy.times().is_none_or(|of| of.judge(&wanted.wishes, now) != Use::Validate)
}

/// Who passes messages on that came over this version.
pub(crate) fn via(version: Version) -> Via {
    Via::new(version, NAME).expect("invariant: a version that is served and a token make a Via")
}
