//! How long a stored answer may be used without asking (RFC 9111 section 4.2, RFC 5861): standard mode alone. In coherent mode words decide.

use std::time::{Duration, SystemTime};

use http::header::{AUTHORIZATION, DATE, ETAG, EXPIRES, LAST_MODIFIED};
use http::{HeaderMap, StatusCode, request};

use crate::control::CacheControl;
use crate::date::date;
use crate::reason::Reason;
use crate::store::{Arrival, age};
use crate::targeted;

/// Part of the time since an answer last changed for which it is taken for fresh, if it says nothing itself (RFC 9111 section 4.2.2).
const HEURISTIC_PART: u32 = 10;

/// What a request says of the age of the answers that it takes (RFC 9111 section 5.2.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    /// None that the origin was not asked about.
    pub no_cache: bool,
    /// None that is older.
    pub max_age: Option<Duration>,
    /// None that is over sooner.
    pub min_fresh: Option<Duration>,
    /// Also one that is over since so long at most.
    pub max_stale: Option<Duration>,
}

impl Wishes {
    pub(crate) fn of(control: &CacheControl) -> Self {
        let CacheControl { no_cache, max_age, min_fresh, max_stale, .. } = *control;
        Wishes { no_cache, max_age: max_age.least, min_fresh, max_stale }
    }
}

/// How long a stored answer may be used, counted from when it came. Whole seconds, of 2^32 at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lifetime {
    /// How old it was when it came (RFC 9111 section 4.2.3), with the time that it was on its way.
    pub initial_age: u32,
    /// From this age on it is stale. 0: it is always asked about.
    pub fresh_for: u32,
    /// For how long after that it is answered while it is fetched anew (RFC 5861 section 3).
    pub while_revalidate: u32,
    /// For how long after that it is answered if the origin fails (RFC 5861 section 4).
    pub if_error: u32,
    /// It is never answered stale, whatever a request says (RFC 9111 section 4.2.4).
    pub must_revalidate: bool,
}

/// How a copy may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// As it is.
    Answer,
    /// As it is, and it is fetched anew for those that come.
    AnswerAndRefresh,
    /// Only if the origin says that it is right still.
    Validate,
}

impl Lifetime {
    /// Its age, a time after it came. In whole seconds, as `Age` counts.
    pub fn age(&self, since_it_came: Duration) -> u64 {
        u64::from(self.initial_age) + since_it_came.as_secs()
    }

    /// Seconds until it is stale; less than 0 once it is. `ttl` in `Cache-Status` (RFC 9211 section 2.3).
    pub fn left(&self, since_it_came: Duration) -> i64 {
        i64::from(self.fresh_for) - i64::try_from(self.age(since_it_came)).unwrap_or(i64::MAX)
    }

    /// How it may be used for a request with these wishes, a time after it came.
    pub fn judge(&self, since_it_came: Duration, wishes: &Wishes) -> Use {
        let (age, left) = (self.age(since_it_came), self.left(since_it_came));
        let seconds = |wish: Duration| i64::try_from(wish.as_secs()).unwrap_or(i64::MAX);
        // A client that takes no answer older than 0 seconds wants the origin asked, also in the second in which
        // the answer came.
        if wishes.no_cache || wishes.max_age.is_some_and(|most| most.is_zero() || age > most.as_secs()) {
            return Use::Validate;
        }
        if left > 0 {
            let is_wanted = wishes.min_fresh.is_none_or(|least| left >= seconds(least));
            return if is_wanted { Use::Answer } else { Use::Validate };
        }
        if self.must_revalidate || wishes.min_fresh.is_some() {
            return Use::Validate;
        }
        if wishes.max_stale.is_some_and(|most| -left <= seconds(most)) {
            return Use::Answer;
        }
        if -left < i64::from(self.while_revalidate) { Use::AnswerAndRefresh } else { Use::Validate }
    }

    /// The same of an answer that was purged softly: it is stale, and it may be answered for as long as it could have been without the purge, while it is
    /// fetched anew. The time of the purge is not known, so no request can say how stale it takes it.
    pub fn judge_purged_softly(&self, since_it_came: Duration, wishes: &Wishes) -> Use {
        let wants_more = wishes.no_cache
            || wishes.min_fresh.is_some()
            || wishes.max_age.is_some_and(|most| most.is_zero() || self.age(since_it_came) > most.as_secs());
        let is_allowed = self.while_revalidate > 0 && -self.left(since_it_came) < i64::from(self.while_revalidate);
        if wants_more || self.must_revalidate || !is_allowed { Use::Validate } else { Use::AnswerAndRefresh }
    }

    /// Whether one that was purged softly may be answered because the origin fails.
    pub fn may_answer_for_failed_origin_purged(&self, since_it_came: Duration) -> bool {
        self.if_error > 0 && self.may_answer_for_failed_origin(since_it_came)
    }

    /// Whether it may be answered because the origin fails.
    pub fn may_answer_for_failed_origin(&self, since_it_came: Duration) -> bool {
        !self.must_revalidate && -self.left(since_it_came) < i64::from(self.if_error)
    }
}

/// What a shared cache does with an answer (RFC 9111 section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Storable {
    pub lifetime: Lifetime,
    /// It is for requests with `Authorization` as well (section 3.5).
    pub for_authorization: bool,
    /// The answer itself states its lifetime, or that it is for all: so it is for requests with cookies as well.
    pub is_explicit: bool,
}

/// Whether and for how long a shared cache may keep an answer to GET.
pub(crate) fn storable(head: &request::Parts, arrival: &Arrival<'_>) -> Result<Storable, Reason> {
    let Arrival { status, headers: answer, at: now, on_its_way } = *arrival;
    // A field for caches of this kind takes the place of Cache-Control and Expires (RFC 9213 section 2.2).
    let targeted = targeted::of(answer);
    let control = targeted.unwrap_or_else(|| CacheControl::of(answer));
    if control.must_understand && !is_understood(status) {
        return Err(Reason::Status);
    }
    if control.no_store && !control.must_understand {
        return Err(Reason::NoStore);
    }
    if control.private {
        return Err(Reason::Private);
    }
    let given = match (control.is_garbled, control.s_maxage.least.or(control.max_age.least)) {
        // What cannot be read is stale (section 4.2.1).
        (true, _) => Some(Duration::ZERO),
        (false, Some(given)) => Some(given),
        (false, None) if targeted.is_none() => expires(answer, now),
        (false, None) => None,
    };
    let is_explicit = given.is_some() || control.public;
    let is_heuristic = is_heuristically_cacheable(status);
    if !is_whole(status) || !(is_explicit || is_heuristic) || is_of_one_request(status) {
        return Err(Reason::Status);
    }
    let for_authorization = control.public || control.s_maxage.least.is_some() || control.must_revalidate;
    if head.headers.contains_key(AUTHORIZATION) && !for_authorization {
        return Err(Reason::Authorization);
    }
    let has_validator = answer.contains_key(ETAG) || answer.contains_key(LAST_MODIFIED);
    let fresh_for = match given {
        _ if control.no_cache => Duration::ZERO,
        Some(given) => given,
        None => heuristic(answer, now).filter(|_| is_heuristic || control.public).unwrap_or_default(),
    };
    if fresh_for.is_zero() && !has_validator && control.stale_while_revalidate.is_none() {
        return Err(Reason::NoValidator);
    }
    let lifetime = Lifetime {
        initial_age: seconds(initial_age(answer, now, on_its_way)),
        fresh_for: seconds(fresh_for),
        while_revalidate: seconds(control.stale_while_revalidate.unwrap_or_default()),
        if_error: seconds(control.stale_if_error.unwrap_or_default()),
        must_revalidate: control.must_revalidate
            || control.proxy_revalidate
            || control.s_maxage.least.is_some()
            || control.no_cache,
    };
    Ok(Storable { lifetime, for_authorization, is_explicit })
}

/// Section 4.2.3: as old as its date or its `Age` says, whichever is more, and no answer is of a moment before it was asked for.
fn initial_age(answer: &HeaderMap, now: SystemTime, on_its_way: Duration) -> Duration {
    let apparent = answer.get(DATE).and_then(date).and_then(|made| now.duration_since(made).ok()).unwrap_or_default();
    apparent.max(age(answer).saturating_add(on_its_way))
}

/// `Expires`, if it is there; one that cannot be read is in the past (section 5.3).
fn expires(answer: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let mut said = answer.get_all(EXPIRES).into_iter();
    let first = said.next()?;
    if said.next().is_some_and(|other| other != first) {
        return Some(Duration::ZERO);
    }
    let made = answer.get(DATE).and_then(date).unwrap_or(now);
    Some(date(first).and_then(|until| until.duration_since(made).ok()).unwrap_or_default())
}

fn heuristic(answer: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let changed = answer.get(LAST_MODIFIED).and_then(date)?;
    let made = answer.get(DATE).and_then(date).unwrap_or(now);
    Some(made.duration_since(changed).ok()? / HEURISTIC_PART)
}

/// Whether it is a final answer that stands by itself: no part of one (206), and nothing about one that is stored (304).
fn is_whole(status: StatusCode) -> bool {
    !status.is_informational() && ![StatusCode::PARTIAL_CONTENT, StatusCode::NOT_MODIFIED].contains(&status)
}

/// Statuses whose meaning for a cache is known here: it matters where the answer says `must-understand` (RFC 9111 section 3).
fn is_understood(status: StatusCode) -> bool {
    matches!(status.as_u16(), 200 | 203 | 204 | 300..=303 | 307 | 308 | 400..=408 | 410..=417 | 421..=431 | 451 | 500..=508 | 511)
}

/// RFC 9110 section 15.1, less 206, which is a part.
fn is_heuristically_cacheable(status: StatusCode) -> bool {
    matches!(status.as_u16(), 200 | 203 | 204 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501)
}

/// Answers about a request that no other request has a share in, whatever they say.
fn is_of_one_request(status: StatusCode) -> bool {
    matches!(status.as_u16(), 401 | 407 | 408 | 411..=413 | 416 | 417 | 421 | 425 | 428 | 429 | 431 | 511)
}

fn seconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_secs()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use http::Request as Http;
    use http::header::HeaderName;
    use proptest::prelude::*;

    use super::*;

    const NOW: &str = "Sun, 06 Nov 1994 08:50:07 GMT";
    const DATED: (&str, &str) = ("date", "Sun, 06 Nov 1994 08:50:07 GMT");
    const TAGGED: (&str, &str) = ("etag", "\"1\"");

    fn of(status: u16, fields: &[(&'static str, &str)], request: &[(&str, &str)]) -> Result<Storable, Reason> {
        let builder = request.iter().fold(Http::get("/"), |builder, (name, value)| builder.header(*name, *value));
        let head = builder.body(()).unwrap().into_parts().0;
        let mut answer = HeaderMap::new();
        for (name, value) in fields {
            answer.append(HeaderName::from_static(name), value.parse().unwrap());
        }
        let now = httpdate::parse_http_date(NOW).unwrap();
        let status = StatusCode::from_u16(status).unwrap();
        storable(&head, &Arrival { status, headers: &answer, at: now, on_its_way: Duration::from_secs(2) })
    }

    fn life(fields: &[(&'static str, &str)]) -> u32 {
        of(200, &[fields, &[TAGGED]].concat(), &[]).unwrap().lifetime.fresh_for
    }

    #[test]
    fn the_life_is_what_is_said_for_shared_caches_first() {
        let control = |line| life(&[("cache-control", line), DATED]);
        assert_eq!((control("max-age=60, s-maxage=30"), control("max-age=60"), control("s-maxage=0")), (30, 60, 0));
        assert_eq!((control("max-age=60, max-age=5"), control("max-age=0, max-age=60")), (5, 0), "the shortest");
        assert_eq!((control("max-age=x"), control("max-age=60.5"), control("max-age=99999999999")), (0, 0, 1 << 31));
        assert_eq!((control("max-age=60, no-cache"), control("no-cache=\"x\"")), (0, 0));
        let expires = |value| life(&[("expires", value), DATED]);
        assert_eq!(expires("Sun, 06 Nov 1994 08:51:07 GMT"), 60);
        assert_eq!((expires("0"), expires("Sun, 06 Nov 1994 08:50:00 GMT"), expires("soon")), (0, 0, 0));
        let both = [("cache-control", "max-age=5"), ("expires", "Sun, 06 Nov 1994 08:51:07 GMT"), DATED];
        assert_eq!(life(&both), 5);
        let targeted = [("cdn-cache-control", "max-age=7"), both[0], both[1], DATED];
        assert_eq!(life(&targeted), 7);
        let twice = [both[1], ("expires", "Sun, 06 Nov 1994 08:52:07 GMT"), DATED];
        assert_eq!(life(&twice), 0, "which of them?");
    }

    #[test]
    fn who_says_nothing_is_fresh_for_a_tenth_of_the_time_since_it_changed() {
        let changed = ("last-modified", "Sun, 06 Nov 1994 08:33:27 GMT");
        assert_eq!(life(&[changed, DATED]), 100);
        assert_eq!(life(&[("last-modified", "Sun, 06 Nov 1994 09:33:27 GMT"), DATED]), 0);
        for (status, stored) in [(200, true), (404, true), (501, true), (302, false), (500, false), (400, false)] {
            assert_eq!(of(status, &[changed, DATED], &[]).is_ok(), stored, "{status}");
            let said = of(status, &[("cache-control", "max-age=60")], &[]);
            assert!(said.is_ok(), "{status}: what it says itself counts");
        }
        assert_eq!(of(302, &[("cache-control", "public"), changed], &[]).unwrap().lifetime.fresh_for, 100);
    }

    #[test]
    fn what_cannot_be_used_again_is_not_kept() {
        let refused = |status, fields: &[(&'static str, &str)], request: &[(&str, &str)]| {
            of(status, fields, request).unwrap_err()
        };
        let lives = ("cache-control", "max-age=60");
        assert_eq!(refused(200, &[], &[]), Reason::NoValidator);
        assert_eq!(refused(200, &[("cache-control", "max-age=0")], &[]), Reason::NoValidator);
        assert_eq!(refused(200, &[("cache-control", "no-store, max-age=60")], &[]), Reason::NoStore);
        assert_eq!(refused(200, &[("cache-control", "private=\"x\", max-age=60")], &[]), Reason::Private);
        for status in [206, 304, 401, 429] {
            assert_eq!(refused(status, &[lives, TAGGED], &[]), Reason::Status, "{status}");
        }
        for status in [299, 499, 599] {
            assert!(
                of(status, &[lives], &[]).is_ok(),
                "{status}: what it means is of no matter if it says how long it lives"
            );
            assert_eq!(refused(status, &[TAGGED], &[]), Reason::Status, "{status}");
        }
        let understood = ("cache-control", "must-understand, no-store, max-age=60");
        assert!(of(200, &[understood], &[]).is_ok());
        assert_eq!(refused(599, &[understood], &[]), Reason::Status);
        let authorized = [("authorization", "Basic eA==")];
        assert_eq!(refused(200, &[lives], &authorized), Reason::Authorization);
        for shared in ["public, max-age=60", "s-maxage=60", "must-revalidate, max-age=60"] {
            assert!(of(200, &[("cache-control", shared)], &authorized).unwrap().for_authorization, "{shared}");
        }
    }

    #[test]
    fn it_is_as_old_as_its_date_or_its_age_says() {
        let initial =
            |fields: &[(&'static str, &str)]| of(200, &[fields, &[TAGGED]].concat(), &[]).unwrap().lifetime.initial_age;
        assert_eq!(initial(&[DATED]), 2, "the time that it was on its way");
        assert_eq!(initial(&[DATED, ("age", "10")]), 12);
        assert_eq!(initial(&[("date", "Sun, 06 Nov 1994 08:49:37 GMT"), ("age", "10")]), 30);
        assert_eq!(initial(&[("age", "99999999999999999999")]), u32::MAX);
        assert_eq!((initial(&[("age", "old")]), initial(&[("age", "-1")])), (2, 2));
    }

    #[test]
    fn a_request_says_how_old_an_answer_it_takes() {
        let lifetime = Lifetime { initial_age: 10, fresh_for: 60, ..Lifetime::default() };
        let judged = |since: u64, wishes: Wishes| lifetime.judge(Duration::from_secs(since), &wishes);
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        let none = Wishes::default();
        assert_eq!((judged(49, none), judged(50, none)), (Use::Answer, Use::Validate), "at its end it is over");
        assert_eq!(judged(0, Wishes { no_cache: true, ..none }), Use::Validate);
        let most = Wishes { max_age: seconds(20), ..none };
        assert_eq!((judged(10, most), judged(11, most)), (Use::Answer, Use::Validate));
        let least = Wishes { min_fresh: seconds(20), ..none };
        assert_eq!((judged(30, least), judged(31, least)), (Use::Answer, Use::Validate));
        let stale = Wishes { max_stale: seconds(5), ..none };
        assert_eq!((judged(55, stale), judged(56, stale)), (Use::Answer, Use::Validate));
        assert_eq!(judged(9999, Wishes { max_stale: Some(Duration::MAX), ..none }), Use::Answer);
        let bound = Lifetime { must_revalidate: true, while_revalidate: 99, if_error: 99, ..lifetime };
        assert_eq!(
            bound.judge(Duration::from_secs(55), &stale),
            Use::Validate,
            "no request lifts what the answer forbids"
        );
        assert!(!bound.may_answer_for_failed_origin(Duration::from_secs(55)));
    }

    #[test]
    fn stale_ones_serve_as_long_as_the_answer_says() {
        let told =
            of(200, &[("cache-control", "max-age=60, stale-while-revalidate=30, stale-if-error=90"), DATED], &[]);
        let lifetime = told.unwrap().lifetime;
        let judged = |since: u64| lifetime.judge(Duration::from_secs(since), &Wishes::default());
        assert_eq!(
            [57, 58, 87, 88].map(judged),
            [Use::Answer, Use::AnswerAndRefresh, Use::AnswerAndRefresh, Use::Validate]
        );
        let failed = |since: u64| lifetime.may_answer_for_failed_origin(Duration::from_secs(since));
        assert_eq!((failed(147), failed(148)), (true, false));
    }

    proptest! {
        /// Time makes nothing fresher, and no wish makes a stale answer that must be asked about one that need not.
        #[test]
        fn time_makes_nothing_fresher(
            initial_age in 0u32..100, fresh_for in 0u32..100, while_revalidate in 0u32..50, if_error in 0u32..50,
            must_revalidate: bool, since in 0u64..200, later in 0u64..200,
            wishes in (any::<bool>(), proptest::option::of(0u64..100), proptest::option::of(0u64..100), proptest::option::of(0u64..100)),
        ) {
            let lifetime = Lifetime { initial_age, fresh_for, while_revalidate, if_error, must_revalidate };
            let seconds = |wish: Option<u64>| wish.map(Duration::from_secs);
            let wishes = Wishes { no_cache: wishes.0, max_age: seconds(wishes.1), min_fresh: seconds(wishes.2), max_stale: seconds(wishes.3) };
            let rank = |used| match used { Use::Answer => 0, Use::AnswerAndRefresh => 1, Use::Validate => 2 };
            let judged = |since| rank(lifetime.judge(Duration::from_secs(since), &wishes));
            prop_assert!(judged(since) <= judged(since + later));
            if must_revalidate && lifetime.left(Duration::from_secs(since)) <= 0 {
                prop_assert_eq!(judged(since), 2);
            }
        }
    }
}
