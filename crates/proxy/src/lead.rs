//! A request that fetches a page for all that wait for it, and for the store (rules P2, H4).

use std::sync::Arc;
use std::time::SystemTime;

use bytes::BytesMut;
use http::header::{ETAG, IF_MODIFIED_SINCE, IF_NONE_MATCH};
use http::{HeaderValue, Response, StatusCode, request};
use http_body_util::BodyExt;
use verbena_caching::{
    Answer, Arrival, CacheStatus, Conditions, Keys, Reason, Route, answer_by_dates_too, freshened, has_tag,
    may_be_coded, store, varies_by_coding,
};
use verbena_content::{Dependency, Kind, Undeclared, Unstorable};

use crate::answer::{self, asked_for, forwarded};
use crate::body::{Body, Cut, Passing};
use crate::coded::held;
use crate::exchange::{Exchange, Wants};
use crate::fill::{About, Kept, Leader, fill};
use crate::looked::{Missing, kind_of};
use crate::origin::Failure;
use crate::queries::Depends;
use crate::slices::{Under, read_stamp};
use crate::standard::{Base, Fresh, is_failure, named};

/// Bytes of a body that are read before its client gets a head, where the client has a body by a tag that was made here.
const JUDGED_WHOLE: usize = 64 << 10;

impl Exchange {
    /// Fetches a page for all that wait for it, and for the store.
    pub async fn lead(self: &Arc<Self>, wants: Wants, missing: Missing, mut leader: Leader) -> Response<Body> {
        if wants.wanted.is_for_slice() {
            // The answer that is made of slices compares their stamps (rule H9).
            let under = Under::Registering(leader.stamp(), missing.words.map(read_stamp));
            let mut response = self.lead_one(wants, missing, leader).await;
            if response.extensions().get::<Under>().is_none() {
                response.extensions_mut().insert(under);
            }
            return response;
        }
        self.lead_one(wants, missing, leader).await
    }

    async fn lead_one(self: &Arc<Self>, wants: Wants, missing: Missing, leader: Leader) -> Response<Body> {
        let Wants { head, body, wanted, route, client, began } = wants;
        let Missing { page: id, why, detail, mut base, .. } = missing;
        let mut place = match self.connections.place((began + self.patience).into()).await {
            Ok(place) => place,
            Err(failure) => {
                let base = base.map(|old| Base::of(old, &self.cache.shapes));
                return self.failed_or_stale(&head, base, failure, why);
            }
        };
        if place.waited {
            leader.waited(id).await;
            // What was left of it was left of it by the words of before (rule H3).
            if let Some(old) = base.take() {
                base = self.cache.reconsidered_after_wait(old, id).await;
            }
        }
        let mut base = base.map(|old| Base::of(old, &self.cache.shapes));
        let asked = self.cache.content.now();
        let (mut outgoing, hidden) = self.outgoing(head.clone(), wanted.intent, Conditions::Withheld, &route, client);
        let kind = kind_of(wanted.mode);
        let (mut charging, beside) = match kind {
            Kind::Coherent => (self.charging().await, None),
            // It is stored for a time, whatever it read.
            Kind::Standard => (None, self.tagged(&mut outgoing.headers).await),
        };
        if let Some(charging) = &charging {
            charging.mark(&mut outgoing.headers);
        }
        let asks = base.as_ref().is_some_and(|base| base.old.asks(&mut outgoing.headers, &base.headers));
        let mut sent = self.connections.read(&outgoing, Some(&mut place)).await;
        let is_right_still = |answered: &&Response<_>| asks && answered.status() == StatusCode::NOT_MODIFIED;
        if let Some(not_modified) = sent.as_ref().ok().filter(is_right_still)
            && let Some(base) = base.take()
        {
            if let Some(headers) = freshened(&base.headers, not_modified.headers()) {
                let fresh = Fresh { asked, id, headers, base, place, noted: (why, detail) };
                let wants = Wants { head, body, wanted, route, client, began };
                return self.freshen(&wants, fresh, leader).await;
            }
            // It is about another answer than the one that is stored: once more, without conditions (rule H4).
            for condition in [IF_NONE_MATCH, IF_MODIFIED_SINCE] {
                outgoing.headers.remove(condition);
            }
            sent = self.connections.read(&outgoing, Some(&mut place)).await;
        }
        let (mut answered, incoming) = match sent.and_then(|answered| asked_for(&outgoing, wanted.intent, answered)) {
            Ok(answered) => answered.into_parts(),
            Err(failure) => return self.failed_or_stale(&head, base, failure, why),
        };
        if let Some(charging) = &mut charging {
            charging.heed(&mut answered.headers);
        }
        if is_failure(answered.status)
            && let Some(base) = base.filter(|base| self.serves_for_failed_origin(&base.old))
        {
            leader.unstorable(Unstorable::Failure);
            return self.stale(&head, base.old);
        }
        let came = self.cache.content.now();
        let arrival = Arrival {
            status: answered.status,
            headers: &answered.headers,
            at: SystemTime::now(),
            on_its_way: came.since(asked),
        };
        let keep = store(&wanted, &head, &route, &arrival);
        let too_large = hyper::body::Body::size_hint(&incoming).lower() > self.largest as u64;
        let keep = keep.and_then(|stored| if too_large { Err(Reason::TooLarge) } else { Ok(stored) });
        if matches!(keep, Err(Reason::SetCookie)) && hidden.is_set_by(&answered.headers) {
            // The client has the cookie, and would not get the one to which this page belongs: its forms would be refused.
            self.cache.observed.not_stored.with([Reason::SetCookie.name()]).increment();
            leader.unstorable(Unstorable::Page(Reason::SetCookie.name()));
            let wants = Wants { head, body, wanted, route, client, began };
            let noted = forwarded(why, Some(Reason::SetCookie.name()));
            return self.pass(wants, Some(place), Conditions::All, noted).await;
        }
        let carried = hidden.carried(&route);
        let is_for_one = || carried.is_in_fields(&answered.headers);
        let keep = keep.and_then(|stored| if is_for_one() { Err(Reason::CookieValue) } else { Ok(stored) });
        let keep = keep.and_then(|stored| Ok((stored, self.declared(&answered.headers, kind)?)));
        let mut passing = Passing::new(incoming, self.patience).charging(beside);
        let (stored, detail, body) = match keep {
            Ok((mut stored, declared)) => {
                let undeclared = declared.because.err().map(Undeclared::name);
                let addresses = self.addresses(&head, &route);
                let declared = if kind == Kind::Standard { named(declared.scope, id) } else { declared.scope };
                let depends = Depends { declared, addresses, charging };
                if kind == Kind::Coherent {
                    self.withhold_dependencies(&mut stored.headers);
                }
                let key = stored.variant.key(wanted.key, &head.headers, &route);
                // Its age counts from when it was asked for (RFC 9111 section 4.2.3).
                let times = (came, stored.lifetime.map(|lifetime| asked + lifetime));
                let coding = route.compress.accepted(&head, &route.cookies);
                let (page, largest, about) = (wanted.key, self.largest, About { id, kind, undeclared });
                let kept = Kept { leader, page, about, key, stored, coding, times, depends, largest, carried, place };
                (true, detail, fill(passing, kept))
            }
            Err(reason) => {
                self.cache.observed.not_stored.with([reason.name()]).increment();
                // Nothing is stored, and the statements are its own until its body is here.
                passing = passing.charging(charging);
                if matches!(reason, Reason::CookieValue | Reason::NoSlice) {
                    // Nothing follows of others' answers, and any client can bring it about, or the page may be stored whole: the next one leads.
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
        let noted = CacheStatus::Forwarded { why, origin_status, stored, collapsed: false, detail, remembered: false };
        // The condition did not go on, so it is judged here: by the tag of the answer, or of the body, if those of this page are made here.
        let judge = if kind == Kind::Standard { answer_by_dates_too } else { verbena_caching::answer };
        let has_it = judge(&head, answered.status, &answered.headers) == Answer::NotModified;
        let length = hyper::body::Body::size_hint(&body).exact().map_or(usize::MAX, |bytes| bytes as usize);
        let is_coded_later =
            stored && !route.compress.is_empty() && may_be_coded(answered.status, &answered.headers, length);
        let has_own_tag = stored
            && kind == Kind::Coherent
            && answered.status == StatusCode::OK
            && !has_it
            && Keys::are_tagged_in(&head);
        let (body, own_tag) = match has_own_tag {
            true => match self.has_body(&head, body).await {
                Ok(judged) => judged,
                Err(_) => return self.failed(Failure::Broken, why),
            },
            false => (body, None),
        };
        let mut response = self.forwarded_answer(answered, (&hidden, wanted.mode), body, noted);
        if is_coded_later {
            varies_by_coding(response.headers_mut());
            if !has_it {
                held(&head, &route, &mut response);
            }
        }
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
    pub async fn has_body(&self, head: &request::Parts, mut body: Body) -> Result<(Body, Option<HeaderValue>), Cut> {
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

    /// Dependencies by which a page is purged that is asked for by this request: its address, its host, and each prefix of its path (rule H2).
    pub fn addresses(&self, head: &request::Parts, route: &Route) -> Vec<Dependency> {
        let keys = &self.cache.keys;
        let all = keys.of_target(head, route).chain(keys.of_prefixes(head));
        all.map(|key| self.cache.page_of(key).into()).collect()
    }
}

/// What follows of an answer that is not stored for the next one: nothing for long, where a request may have brought it about by what no key has, such as
/// a field that the application does not like.
fn unstorable(reason: Reason, status: StatusCode) -> Unstorable {
    let is_refused = status.is_client_error() || status.is_server_error();
    match reason {
        Reason::Status if is_refused => Unstorable::Failure,
        Reason::Status => Unstorable::Answer(reason.name()),
        _ => Unstorable::Page(reason.name()),
    }
}
