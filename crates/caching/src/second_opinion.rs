//! What another library of the same RFC thinks (`http-cache-semantics`), and why it thinks otherwise where it does.
//!
//! A difference that is not among [`Explained`] fails. An example shows each of these as well, so that the list keeps no difference that is gone.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::header::HOST;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use http_cache_semantics::{BeforeRequest, CacheOptions, CachePolicy};
use proptest::prelude::*;

use crate::control::CacheControl;
use crate::freshness::{Lifetime, Use, Wishes};
use crate::{Arrival, Keys, Mode, Reason, Request, Route, store};

/// Why opinions differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Explained {
    /// It stores only statuses that it knows. RFC 9111 section 3 asks for that where the answer says `must-understand` alone.
    KnowsFewerStatuses,
    /// What can never be used again, neither as it is nor after asking, takes no room here.
    IsOfNoUse,
    /// It stores an answer that sets a cookie, and gives it no lifetime. Here it is not stored (RFC 9111 section
    /// 7.3).
    SetsCookie,
    /// It stores what `Vary: *` can match no request. Here it is not stored.
    VariesByAll,
    /// It gives a lifetime of 0 to what says `proxy-revalidate`. That is about what is stale (RFC 9111 section
    /// 5.2.2.8).
    ProxyRevalidateOfFresh,
    /// It takes `s-maxage` beside a `max-age` that cannot be read. Here what is garbled is over (RFC 9111 section 4.2.1).
    GarbledBesideRead,
    /// It lets `max-stale` lift what `proxy-revalidate`, `s-maxage` and `no-cache` forbid (RFC 9111 section 4.2.4).
    StaleAgainstTheAnswer,
    /// `max-stale` with the seconds that it is over: it takes less than these, RFC 9111 section 5.2.1.2 "no more than".
    StaleBySoMuch,
    /// A request for nothing older than 0 seconds: it answers with what came within this second. Here the application is asked.
    OlderThanNothing,
    /// A request that wants a longer remaining lifetime than there is takes no stale answer here, though it
    /// says `max-stale` too.
    FreshAndStale,
}

#[derive(Clone, Debug)]
struct Case {
    status: u16,
    control: Vec<&'static str>,
    expires: Option<i64>,
    changed: Option<i64>,
    made: Option<i64>,
    age: Option<u32>,
    is_tagged: bool,
    vary: Option<&'static str>,
    sets_cookie: bool,
    is_authorized: bool,
    wish: &'static str,
    after: u32,
}

const PLAIN: Case = Case {
    status: 200,
    control: Vec::new(),
    expires: None,
    changed: None,
    made: None,
    age: None,
    is_tagged: true,
    vary: None,
    sets_cookie: false,
    is_authorized: false,
    wish: "",
    after: 0,
};

/// When each answer came.
fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

fn at(offset: i64) -> SystemTime {
    let distance = Duration::from_secs(offset.unsigned_abs());
    if offset < 0 { now() - distance } else { now() + distance }
}

impl Case {
    fn has(&self, directive: &str) -> bool {
        self.control.iter().any(|said| said.split('=').next() == Some(directive))
    }

    fn request(&self, wish: &str) -> http::Request<()> {
        let mut request = http::Request::get("http://shop/").header(HOST, "shop");
        if self.is_authorized {
            request = request.header("authorization", "Basic eA==");
        }
        if !wish.is_empty() {
            request = request.header("cache-control", wish);
        }
        request.body(()).unwrap()
    }

    fn answer(&self) -> HeaderMap {
        let mut answer = HeaderMap::new();
        let mut put = |name: &'static str, value: String| {
            answer.append(HeaderName::from_static(name), HeaderValue::try_from(value).unwrap());
        };
        put("content-length", "1".into());
        if !self.control.is_empty() {
            put("cache-control", self.control.join(", "));
        }
        for (name, offset) in [("expires", self.expires), ("last-modified", self.changed), ("date", self.made)] {
            if let Some(offset) = offset {
                put(name, httpdate::fmt_http_date(at(offset)));
            }
        }
        if let Some(age) = self.age {
            put("age", age.to_string());
        }
        if self.is_tagged {
            put("etag", "\"1\"".into());
        }
        if let Some(vary) = self.vary {
            put("vary", vary.into());
        }
        if self.sets_cookie {
            put("set-cookie", "a=b".into());
        }
        answer
    }

    /// Ours.
    fn lifetime(&self) -> Result<Lifetime, Reason> {
        let head = self.request("").into_parts().0;
        let route = Route { mode: Mode::Standard, ..Route::default() };
        let wanted = Request::of(&head, false, &route, &Keys::new([7; 16]));
        let status = StatusCode::from_u16(self.status).unwrap();
        let (headers, on_its_way) = (self.answer(), Duration::ZERO);
        let stored = store(&wanted, &head, &route, &Arrival { status, headers: &headers, at: now(), on_its_way })?;
        Ok(stored.standard.expect("in standard mode"))
    }

    /// The other library's policy. It reads the age of the answer from `Age` alone, so the age is set there.
    fn policy(&self, age: u32) -> CachePolicy {
        let mut response = http::Response::builder().status(self.status).body(()).unwrap();
        *response.headers_mut() = self.answer();
        response.headers_mut().insert("age", HeaderValue::from(age));
        let options = CacheOptions { immutable_min_time_to_live: Duration::ZERO, ..CacheOptions::default() };
        CachePolicy::new_options(&self.request(""), &response, now(), options)
    }

    /// The first difference that is found, and why it is one; `Err` if that is not known.
    fn difference(&self) -> Result<Option<Explained>, String> {
        let ours = self.lifetime();
        let theirs = self.policy(0);
        let lifetime = match (ours, theirs.is_storable()) {
            (Err(_), false) => return Ok(None),
            (Ok(_), false) if [303, 400, 500, 599].contains(&self.status) => {
                return Ok(Some(Explained::KnowsFewerStatuses));
            }
            (Err(Reason::NoValidator), true) => return Ok(Some(Explained::IsOfNoUse)),
            (Err(Reason::SetCookie), true) => return Ok(Some(Explained::SetsCookie)),
            (Err(Reason::VaryAll), true) => return Ok(Some(Explained::VariesByAll)),
            (Ok(lifetime), true) => lifetime,
            (ours, theirs) => return Err(format!("storing: {ours:?}, and they say {theirs}")),
        };
        let (life, their_life) = (lifetime.fresh_for, theirs.time_to_live(now()).as_secs());
        if u64::from(life) != their_life {
            return match (life, their_life) {
                (_, 0) if self.has("proxy-revalidate") => Ok(Some(Explained::ProxyRevalidateOfFresh)),
                (0, _) if self.has("s-maxage") && self.control.contains(&"max-age=x") => {
                    Ok(Some(Explained::GarbledBesideRead))
                }
                _ => Err(format!("a life of {life}, and they say {their_life}")),
            };
        }
        let wishes = Wishes::of(&CacheControl::of(self.request(self.wish).headers()));
        let after = Duration::from_secs(self.after.into());
        let is_used = lifetime.judge(after, &wishes) != Use::Validate;
        let judged = self.policy(lifetime.initial_age).before_request(&self.request(self.wish), now() + after);
        let they_use = matches!(judged, BeforeRequest::Fresh(_));
        match (is_used, they_use) {
            (true, true) | (false, false) => Ok(None),
            (false, true) if wishes.max_age == Some(Duration::ZERO) => Ok(Some(Explained::OlderThanNothing)),
            (false, true) if wishes.max_stale.is_some() && lifetime.must_revalidate => {
                Ok(Some(Explained::StaleAgainstTheAnswer))
            }
            (false, true) if wishes.max_stale.is_some() && wishes.min_fresh.is_some() => {
                Ok(Some(Explained::FreshAndStale))
            }
            (true, false)
                if wishes.max_stale.is_some_and(|most| i64::try_from(most.as_secs()) == Ok(-lifetime.left(after))) =>
            {
                Ok(Some(Explained::StaleBySoMuch))
            }
            _ => Err(format!("use: {is_used}, and they say {they_use}")),
        }
    }
}

fn cases() -> impl Strategy<Value = Case> {
    let directives = prop::sample::subsequence(
        vec![
            "max-age=0",
            "max-age=60",
            "max-age=x",
            "s-maxage=0",
            "s-maxage=90",
            "no-cache",
            "no-store",
            "private",
            "public",
            "must-revalidate",
            "proxy-revalidate",
            "immutable",
        ],
        0..4,
    );
    let wish = [
        "",
        "no-cache",
        "max-age=0",
        "max-age=10",
        "min-fresh=30",
        "max-stale",
        "max-stale=40",
        "min-fresh=0, max-stale",
    ];
    let answer = (
        prop::sample::select(vec![200u16, 203, 204, 301, 302, 303, 400, 404, 410, 500, 501, 599]),
        directives,
        prop::option::of(-60i64..120),
        prop::option::of(prop::sample::select(vec![-100_000i64, -1000, 10])),
        prop::option::of(prop::sample::select(vec![0i64, -30, 20])),
        prop::option::of(prop::sample::select(vec![0u32, 30, 5000])),
        any::<bool>(),
        prop::option::of(prop::sample::select(vec!["accept", "*"])),
        prop::bool::weighted(0.1),
        prop::bool::weighted(0.2),
    );
    (answer, prop::sample::select(wish.to_vec()), 0u32..200).prop_map(|(answer, wish, after)| {
        let (status, control, expires, changed, made, age, is_tagged, vary, sets_cookie, is_authorized) = answer;
        // Of two lifetimes of one kind the shortest counts here, and there the answer is one to be asked about when it is stale: no origin writes
        // such lines.
        let mut names: Vec<&str> = Vec::new();
        let control = control.into_iter().filter(|said: &&'static str| {
            let name = said.split('=').next().unwrap();
            let is_new = !names.contains(&name);
            names.push(name);
            is_new
        });
        let control = control.collect();
        Case { status, control, expires, changed, made, age, is_tagged, vary, sets_cookie, is_authorized, wish, after }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    #[test]
    fn two_readings_of_the_rfc_differ_only_where_it_is_known_why(case in cases()) {
        let difference = case.difference();
        prop_assert!(difference.is_ok(), "{difference:?}");
    }
}

#[test]
fn each_known_difference_is_one() {
    let said = |line: &[&'static str]| Case { control: line.to_vec(), ..PLAIN };
    for (expected, case) in [
        (Explained::KnowsFewerStatuses, Case { status: 500, ..said(&["max-age=60"]) }),
        (Explained::IsOfNoUse, Case { is_tagged: false, ..PLAIN }),
        (Explained::SetsCookie, Case { sets_cookie: true, ..said(&["max-age=60"]) }),
        (Explained::VariesByAll, Case { vary: Some("*"), ..said(&["max-age=60"]) }),
        (Explained::ProxyRevalidateOfFresh, said(&["max-age=60", "proxy-revalidate"])),
        (Explained::GarbledBesideRead, said(&["max-age=x", "s-maxage=90"])),
        (Explained::StaleAgainstTheAnswer, Case { wish: "max-stale", after: 100, ..said(&["s-maxage=90"]) }),
        (Explained::StaleBySoMuch, Case { wish: "max-stale=40", after: 100, ..said(&["max-age=60"]) }),
        (Explained::OlderThanNothing, Case { wish: "max-age=0", ..said(&["max-age=60"]) }),
        (Explained::FreshAndStale, Case { wish: "min-fresh=0, max-stale", after: 100, ..said(&["max-age=60"]) }),
    ] {
        assert_eq!(case.difference(), Ok(Some(expected)));
    }
}
