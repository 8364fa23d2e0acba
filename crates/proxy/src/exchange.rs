//! One request, from its head to the head of its answer.

use std::net::IpAddr;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant, SystemTime};

use bytes::BytesMut;
use http::header::{ETAG, IF_MODIFIED_SINCE, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version, request, response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::ext::ReasonPhrase;
use tokio::sync::watch;
use tokio::time::timeout_at;
use verbena_caching::{
    Answer, Bracket, CacheStatus, Conditions, Hidden, Intent, Key, Keys, Reason, Request as Wanted, Route, Routes, Via,
    for_client, for_origin, for_page, has_tag, received, store,
};
use verbena_content::service::Reading;
use verbena_content::{
    Declared, Dependency, DependencyField, PageId, Scope, Undeclared, Unstorable, Verdict, Words, look,
};
use verbena_metrics::Latency;
use verbena_terms::ViewNumber;

use crate::answer::{self, NAME, forwarded};
use crate::body::{Body, Cut, Passing};
use crate::cache::{Cache, Found, Missed};
use crate::connection::Asked;
use crate::fill::{Kept, Leader, fill};
use crate::observed::{Counted, Done};
use crate::origin::{Connections, Failure, Place};
use crate::page::Page;
use crate::queries::{Depends, FILL, Queries, beside_database};
use crate::responding::Responding;
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
    /// Where a relay of this process sees the queries of the application.
    pub queries: Option<Queries>,
}

/// A request that is not answered at once.
struct Wants {
    head: request::Parts,
    body: Incoming,
    wanted: Wanted,
    route: Route,
    client: IpAddr,
    began: Instant,
}

/// Why a `HEAD` of a page that is not stored goes alone.
const HEAD: &str = "head";
/// Bytes of a body that are read before its client gets a head, where the client has a body by a tag that was made here.
const JUDGED_WHOLE: usize = 64 << 10;

/// What a look at the cache came to.
enum Looked {
    /// A validated page: the answer. Or none.
    Done(Result<Page, Missing>),
    /// The words are on their way.
    Reading(Found, Reading),
}

/// Why there is no validated page, and under which key and words it may be fetched.
struct Missing {
    key: Key,
    page: PageId,
    words: Option<(ViewNumber, Words)>,
    why: &'static str,
    detail: Option<&'static str>,
}

impl Exchange {
    /// Answers a request: at once if the page is kept and its words are at hand, as they are on a fabric that is synchronous.
    pub fn respond(self: &Arc<Self>, request: Request<Incoming>, client: IpAddr, asked: Asked) -> Responding {
        let began = Instant::now();
        let (mut head, body) = request.into_parts();
        let observed = &self.cache.observed;
        if let Err(unfit) = received(&mut head) {
            let answer = answer::unfit(unfit);
            observed.answered(Done::Error, answer::reason(&answer));
            return Responding::now(asked, Ok(answer));
        }
        let route = self.routes.find(head.uri.path());
        let wanted = Wanted::of(&head, !hyper::body::Body::is_end_stream(&body), &route, &self.cache.keys);
        let looked = (wanted.intent == Intent::Look).then(|| self.look(&head, &wanted, &route));
        if let Some(Looked::Done(Ok(copy))) = looked {
            let answer = Ok(answer::from_copy(&head, copy, &self.cache.shapes, CacheStatus::Hit));
            self.answered(Done::Hit, &observed.hit_latency, began, &answer);
            return Responding::now(asked, answer);
        }
        let wants = Wants { head, body, wanted, route: route.into_owned(), client, began };
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
        let (done, latency, answer) = match wants.wanted.intent {
            Intent::Look => {
                let (done, answer) = self.judge(wants, looked).await;
                let latency = if done == Done::Hit { &observed.hit_latency } else { &observed.miss_latency };
                (done, latency, Ok(answer))
            }
            Intent::Pass(reason) => {
                let noted = forwarded("bypass", Some(reason.name()));
                (Done::Pass, &observed.miss_latency, Ok(self.pass(wants, None, Conditions::All, noted).await))
            }
            Intent::Update(Bracket::Announced) => {
                let noted = forwarded("method", Some("announced"));
                (Done::Pass, &observed.update_latency, Ok(self.pass(wants, None, Conditions::All, noted).await))
            }
            Intent::Update(bracket) => {
                let (head, _) =
                    self.outgoing(wants.head, wants.wanted.intent, Conditions::All, &wants.route, wants.client);
                let scope = match bracket {
                    Bracket::BesideDatabase => beside_database(self.cache.content.names()),
                    Bracket::Everything | Bracket::Announced => Scope::Everything,
                };
                (Done::Update, &observed.update_latency, update::respond(self.clone(), scope, head, wants.body).await)
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
            return Looked::Done(self.looked(found, None, wanted));
        };
        match reading.words_now() {
            Poll::Ready(words) => Looked::Done(self.looked(found, words, wanted)),
            Poll::Pending => Looked::Reading(found, reading),
        }
    }

    fn looked(&self, found: Found, words: Option<(ViewNumber, Words)>, wanted: &Wanted) -> Result<Page, Missing> {
        // What is judged is in hand; only now the clock, and only then the lease (rule P1).
        let now = self.cache.content.now();
        let lease = self.cache.content.lease();
        let (why, detail) = match (found.copy, &words) {
            (None, _) => (if found.varies { "vary-miss" } else { "uri-miss" }, None),
            (Some(_), None) => ("stale", Some("no-words")),
            (Some(copy), Some((posted, words))) => match look(copy.stamp(), words, *posted, &lease, now) {
                Verdict::Fresh if copy.is_over(now) => ("stale", Some("lifetime")),
                Verdict::Fresh if wanted.credentials.is_some() && !copy.is_for_credentials() => {
                    ("request", wanted.credentials.map(Reason::name))
                }
                Verdict::Fresh => return Ok(copy),
                other => ("stale", Some(answer::verdict(other))),
            },
        };
        Err(Missing { key: found.key, page: found.page, words, why, detail })
    }

    /// Answers with what was found, or fetches it.
    async fn judge(self: &Arc<Self>, wants: Wants, mut first: Option<Looked>) -> (Done, Response<Body>) {
        let mut has_waited = false;
        loop {
            let Wants { head, wanted, route, began, .. } = &wants;
            let looked = match first.take().unwrap_or_else(|| self.look(head, wanted, route)) {
                Looked::Done(looked) => looked,
                Looked::Reading(found, reading) => self.looked(found, reading.words().await, wanted),
            };
            let Missing { key, page, words, why, detail } = match looked {
                Ok(copy) => {
                    return (Done::Hit, answer::from_copy(head, copy, &self.cache.shapes, CacheStatus::Hit));
                }
                Err(missing) => missing,
            };
            if wanted.only_if_cached {
                let text = "not in the cache, and the request wants nothing else";
                return (Done::Miss, answer::own(StatusCode::GATEWAY_TIMEOUT, text, forwarded(why, detail)));
            }
            let missed = match wanted.credentials {
                Some(reason) if self.cache.is_unshared(wanted.key) => {
                    Missed::Alone { why: reason.name(), is_fill: false }
                }
                _ if head.method == Method::HEAD => Missed::Alone { why: HEAD, is_fill: false },
                _ => self.cache.miss(key, page, words),
            };
            let give_up = (*began + self.patience).into();
            let (alone, is_fill, takes_place) = match missed {
                Missed::Lead(fill) => {
                    let leader = Leader::new(self.cache.clone(), fill);
                    return (Done::Miss, self.lead(wants, page, (why, detail), leader).await);
                }
                Missed::Wait(filling) => match timeout_at(give_up, filling).await {
                    Err(_) => ("fill-slow", true, true),
                    Ok(filled) => {
                        let now = self.cache.content.now();
                        let shared = filled.ok().flatten().filter(|shared| {
                            shared.key == shared.variant.key(wanted.key, &head.headers, &route.cookies)
                                && !shared.copy.is_over(now)
                        });
                        match (shared.map(|shared| shared.copy), wanted.credentials) {
                            // Updates come faster than the page is made, or it fails: one after the other they would wait for ever.
                            (None, _) if has_waited => ("fills-lost", true, true),
                            // It failed, or was of another variant: of those who waited, one leads next.
                            (None, _) => {
                                has_waited = true;
                                continue;
                            }
                            (Some(copy), Some(reason)) if !copy.is_for_credentials() => {
                                self.cache.remember_unshared(wanted.key);
                                (reason.name(), false, true)
                            }
                            (Some(copy), _) => {
                                let (origin_status, stored, collapsed) = (None, false, true);
                                let noted = CacheStatus::Forwarded { why, origin_status, stored, collapsed, detail };
                                return (Done::Miss, answer::from_copy(head, copy, &self.cache.shapes, noted));
                            }
                        }
                    }
                },
                // Those who waited for a fetch of which nothing may be stored are let go together, as many as they are.
                Missed::Alone { why, is_fill } => (why, is_fill, is_fill || has_waited),
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
            let noted = forwarded(why, detail.or(Some(alone)));
            return (Done::Miss, self.pass(wants, place, conditions, noted).await);
        }
    }

    /// Fetches a page for all that wait for it, and for the store.
    async fn lead(
        self: &Arc<Self>,
        wants: Wants,
        id: PageId,
        (why, detail): (&'static str, Option<&'static str>),
        leader: Leader,
    ) -> Response<Body> {
        let Wants { head, body, wanted, route, client, began } = wants;
        let mut place = match self.connections.place((began + self.patience).into()).await {
            Ok(place) => place,
            Err(failure) => return self.failed(failure, why),
        };
        if place.waited {
            leader.waited(id).await;
        }
        let asked = self.cache.content.now();
        let (mut outgoing, hidden) = self.outgoing(head.clone(), wanted.intent, Conditions::Withheld, &route, client);
        let charging = self.queries.as_ref().map(Queries::begin);
        if let Some(charging) = &charging {
            charging.mark(&mut outgoing.headers);
        }
        let sent = self.connections.read(&outgoing, Some(&mut place)).await;
        let (answered, incoming) = match sent.and_then(|answered| asked_for(&outgoing, wanted.intent, answered)) {
            Ok(answered) => answered.into_parts(),
            Err(failure) => return self.failed(failure, why),
        };
        let keep = store(&wanted, &head, &route, answered.status, &answered.headers, SystemTime::now());
        let too_large = hyper::body::Body::size_hint(&incoming).lower() > self.largest as u64;
        let keep = keep.and_then(|stored| if too_large { Err(Reason::TooLarge) } else { Ok(stored) });
        if matches!(keep, Err(Reason::SetCookie)) && hidden.is_set_by(&answered.headers) {
            // The client has the cookie, and would not get the one to which this page belongs: its forms would be refused.
            self.cache.observed.not_stored.with([Reason::SetCookie.name()]).increment();
            leader.unstorable(Unstorable::Page);
            let wants = Wants { head, body, wanted, route, client, began };
            let noted = forwarded(why, Some(Reason::SetCookie.name()));
            return self.pass(wants, Some(place), Conditions::All, noted).await;
        }
        let carried = hidden.carried(&route);
        let is_for_one = || carried.is_in_fields(&answered.headers);
        let keep = keep.and_then(|stored| if is_for_one() { Err(Reason::CookieValue) } else { Ok(stored) });
        let names = self.cache.content.names();
        let fields = answered.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        let declared = Declared::of_response(names, fields);
        let passing = Passing::new(incoming, self.patience);
        let (stored, detail, body) = match keep {
            Ok(mut stored) => {
                let undeclared = declared.because.err().map(Undeclared::name);
                let addresses = self.addresses(&head, &route, wanted.key);
                let depends = Depends { declared: declared.scope, addresses, charging };
                self.withhold_dependencies(&mut stored.headers);
                let key = stored.variant.key(wanted.key, &head.headers, &route.cookies);
                // Its age counts from when it was asked for (RFC 9111 section 4.2.3).
                let expires = stored.lifetime.map(|lifetime| asked + lifetime);
                let (page, largest) = (wanted.key, self.largest);
                let kept =
                    Kept { leader, page, id, key, stored, expires, depends, undeclared, largest, carried, place };
                (true, detail, fill(passing, kept))
            }
            Err(reason) => {
                self.cache.observed.not_stored.with([reason.name()]).increment();
                if reason == Reason::CookieValue {
                    // Nothing follows of others' answers, and any client can bring it about: the next one leads.
                    drop(leader);
                } else if wanted.credentials.is_some() && reason.is_for_one() {
                    // Not for this client's like; others may share theirs.
                    self.cache.remember_unshared(wanted.key);
                } else {
                    leader.unstorable(unstorable(reason, answered.status));
                }
                (false, Some(reason.name()), Body::Origin(passing))
            }
        };
        let origin_status = Some(answered.status.as_u16());
        let noted = CacheStatus::Forwarded { why, origin_status, stored, collapsed: false, detail };
        // The condition did not go on, so it is judged here: by the tag of the answer, or of the body, if those of this page are made here.
        let has_it = verbena_caching::answer(&head, answered.status, &answered.headers) == Answer::NotModified;
        let has_own_tag = stored && answered.status == StatusCode::OK && !has_it && Keys::are_tagged_in(&head);
        let (body, own_tag) = match has_own_tag {
            true => match self.has_body(&head, body).await {
                Ok(judged) => judged,
                Err(_) => return self.failed(Failure::Broken, why),
            },
            false => (body, None),
        };
        let mut response = self.forwarded_answer(answered, &hidden, body, noted);
        if has_it || own_tag.is_some() {
            // What is to be stored is read on without this client.
            answer::not_modified(&mut response);
        }
        if let Some(tag) = own_tag {
            response.headers_mut().insert(ETAG, tag);
        }
        response
    }

    /// Reads a body, if it is a short one. The tag of one that the client has, and what the client reads otherwise.
    async fn has_body(&self, head: &request::Parts, mut body: Body) -> Result<(Body, Option<HeaderValue>), Cut> {
        let mut read = BytesMut::new();
        loop {
            if read.len() > JUDGED_WHOLE {
                return Ok((body.behind(read.freeze()), None));
            }
            match body.frame().await {
                Some(Ok(frame)) if frame.is_data() => read.extend(frame.into_data().ok()),
                // Trailers: it is no stored page any more.
                Some(Ok(_)) => {}
                Some(Err(cut)) => return Err(cut),
                None => break,
            }
        }
        let tag = self.cache.keys.entity_tag_of(&read);
        match has_tag(head, tag.as_bytes()) {
            true => Ok((Body::empty(), Some(tag))),
            false => Ok((Body::from(read.freeze()), None)),
        }
    }

    /// Dependencies by which a page is purged that is asked for by this request: its address alone, where its key has more than that, and its path, where an
    /// address with another query may be meant.
    fn addresses(&self, head: &request::Parts, route: &Route, key: Key) -> Vec<Dependency> {
        let keys = &self.cache.keys;
        let address = Some(keys.of_address_alone(head, route)).filter(|address| *address != key);
        let any_query = (!route.query.is_plain()).then(|| keys.of_any_query(head));
        address.into_iter().chain(any_query).map(|key| self.cache.page_of(key).into()).collect()
    }

    /// Forwards a request and its answer, and stores nothing.
    async fn pass(
        &self,
        wants: Wants,
        mut place: Option<Place>,
        conditions: Conditions,
        noted: CacheStatus,
    ) -> Response<Body> {
        let Wants { head, body, wanted: Wanted { intent, .. }, route, client, .. } = wants;
        let reads = head.method.is_safe() && hyper::body::Body::is_end_stream(&body);
        let (head, hidden) = self.outgoing(head, intent, conditions, &route, client);
        let sent = match reads {
            true => self.connections.read(&head, place.as_mut()).await,
            false => self.connections.write(&head, Upload::new(body, self.client_patience)).await,
        };
        match sent.and_then(|answered| asked_for(&head, intent, answered)) {
            Ok(answered) => self.passed(answered, &hidden, noted),
            Err(failure) => self.failed(failure, "bypass"),
        }
    }

    /// The origin's answer, for the client.
    pub fn passed(&self, answered: Response<Incoming>, hidden: &Hidden, noted: CacheStatus) -> Response<Body> {
        let (answered, incoming) = answered.into_parts();
        let CacheStatus::Forwarded { why, detail, .. } = noted else {
            unreachable!("invariant: what came from the origin was forwarded")
        };
        let origin_status = Some(answered.status.as_u16());
        let noted = CacheStatus::Forwarded { why, origin_status, stored: false, collapsed: false, detail };
        self.forwarded_answer(answered, hidden, Body::Origin(Passing::new(incoming, self.patience)), noted)
    }

    fn forwarded_answer(
        &self,
        answered: response::Parts,
        hidden: &Hidden,
        body: Body,
        noted: CacheStatus,
    ) -> Response<Body> {
        let mut response = Response::new(body);
        *response.status_mut() = answered.status;
        *response.headers_mut() = answered.headers;
        if let Some(phrase) = answered.extensions.get::<ReasonPhrase>() {
            response.extensions_mut().insert(phrase.clone());
        }
        for_client(response.headers_mut(), hidden, &self.via);
        self.withhold_dependencies(response.headers_mut());
        answer::note(&mut response, noted);
        response
    }

    /// Takes the fields that name dependencies off an answer, unless clients may see them: they are for the cache.
    fn withhold_dependencies(&self, headers: &mut HeaderMap) {
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

/// An answer to what was asked. Where a look went out without conditions: whose copy should be still right?
fn asked_for(
    outgoing: &request::Parts,
    intent: Intent,
    answered: Response<Incoming>,
) -> Result<Response<Incoming>, Failure> {
    let has_condition = [IF_NONE_MATCH, IF_MODIFIED_SINCE].iter().any(|name| outgoing.headers.contains_key(name));
    let is_about_a_copy = answered.status() == StatusCode::NOT_MODIFIED;
    if is_about_a_copy && intent == Intent::Look && !has_condition { Err(Failure::Broken) } else { Ok(answered) }
}

/// What follows of an answer that is not stored for the next one: nothing for long, where a request may have brought it about by what no key has, such as
/// a field that the application does not like.
fn unstorable(reason: Reason, status: StatusCode) -> Unstorable {
    let is_refused = status.is_client_error() || status.is_server_error();
    match reason {
        Reason::Status if is_refused => Unstorable::Failure,
        Reason::Status => Unstorable::Answer,
        _ => Unstorable::Page,
    }
}

/// Who passes messages on that came over this version.
pub(crate) fn via(version: Version) -> Via {
    Via::new(version, NAME).expect("invariant: a version that is served and a token make a Via")
}
