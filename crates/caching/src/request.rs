//! What a request wants.

use http::header::{AUTHORIZATION, IF_MATCH, IF_UNMODIFIED_SINCE};
use http::{Method, request};

use crate::control::CacheControl;
use crate::cookies;
use crate::fields::{Fields, Kind, OTHER_METHOD, OTHER_PATH};
use crate::freshness::Wishes;
use crate::key::{Key, Keys};
use crate::reason::Reason;
use crate::route::{Mode, Route, Writes};

/// What is to be done with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// Look in the cache; on a miss fetch and try to store.
    Look,
    /// Go to the origin, neither look nor store; for [`Reason::Range`] only if there is no whole page to take a part of.
    Pass(Reason),
    /// It writes.
    Update(Bracket),
}

/// The name that every request touches that writes where the database is seen (rule Q11): no page has it in its list, so it reaches those without one.
pub const BESIDE_DATABASE: &str = "\0request";

/// Which update is around a request that writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bracket {
    /// One of everything.
    Everything,
    /// One of everything, around what may be another request than it says: no rule for its path can be held to say what it does.
    OfAnother,
    /// One of whatever is not in the database: of all pages but those whose list of dependencies is complete (rule Q11).
    BesideDatabase,
    /// The application's own: it announces what it touches.
    Announced,
    /// One of its target, when the application has answered and before its client is (rule H7).
    After,
}

/// What the headers of a request say about caching.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// What it wants.
    pub intent: Intent,
    /// The page it is about, or the slice of it.
    pub key: Key,
    /// The page by whose words an answer is validated. It has this key itself, unless the request is for a slice of it.
    pub page: Key,
    /// It carries credentials: a stored answer is for it only if that says so ([`Stored::shared_with_credentials`](crate::Stored)), and so is storing.
    pub credentials: Option<Reason>,
    /// It wants a stored answer or 504 (RFC 9111 section 5.2.1.7).
    pub only_if_cached: bool,
    /// By what its copy is found to be good.
    pub mode: Mode,
    /// How old an answer it takes. Words decide in coherent mode, so there it is not looked at.
    pub wishes: Wishes,
}

impl Request {
    /// Of a request's head as [`received`](crate::received) left it, under the rules of its route.
    pub fn of(head: &request::Parts, has_body: bool, route: &Route, keys: &Keys) -> Self {
        let fields = Fields::of(&head.headers);
        let control = match fields.has(Kind::CacheControl) {
            true => CacheControl::of(&head.headers),
            false => CacheControl::default(),
        };
        let credentials = if head.headers.contains_key(AUTHORIZATION) {
            Some(Reason::Authorization)
        } else if fields.has(Kind::Cookie) && cookies::has_other(&head.headers, &route.cookies) {
            Some(Reason::Cookie)
        } else {
            None
        };
        let key = keys.key(head, fields, route);
        Request {
            intent: intent(head, fields, has_body, route, control),
            key,
            page: key,
            credentials,
            only_if_cached: control.only_if_cached,
            mode: route.mode,
            wishes: Wishes::of(&control),
        }
    }

    /// The same of the slice of its page that has this key ([`Keys::of_slice`]).
    pub fn for_slice(self, key: Key) -> Self {
        Request { intent: Intent::Look, key, ..self }
    }

    /// Whether it is for a slice.
    pub fn is_for_slice(&self) -> bool {
        self.key != self.page
    }
}

fn intent(head: &request::Parts, fields: Fields, has_body: bool, route: &Route, control: CacheControl) -> Intent {
    let reads = matches!(head.method, Method::GET | Method::HEAD);
    if asks_for_another(head, fields) {
        return Intent::Update(Bracket::OfAnother);
    }
    match route.writes {
        Writes::Always => return Intent::Update(Bracket::Everything),
        Writes::Announced if !head.method.is_safe() => return Intent::Update(Bracket::Announced),
        Writes::Database | Writes::UnsafeMethods if !head.method.is_safe() && route.mode == Mode::Standard => {
            return Intent::Update(Bracket::After);
        }
        Writes::Database if !head.method.is_safe() => return Intent::Update(Bracket::BesideDatabase),
        Writes::UnsafeMethods if !head.method.is_safe() => return Intent::Update(Bracket::Everything),
        _ => {}
    }
    if !reads {
        return Intent::Pass(Reason::Method);
    }
    if route.mode == Mode::Pass {
        return Intent::Pass(Reason::Route);
    }
    if control.no_store {
        return Intent::Pass(Reason::RequestNoStore);
    }
    if fields.has(Kind::Precondition) {
        let decides = head.method != Method::GET
            || has_body
            || [IF_MATCH, IF_UNMODIFIED_SINCE].iter().any(|name| head.headers.contains_key(name));
        return Intent::Pass(if decides { Reason::Precondition } else { Reason::Range });
    }
    // The body is not in the key, and some applications read it (RFC 9110 section 9.3.1 gives it no meaning).
    if has_body {
        return Intent::Pass(Reason::RequestBody);
    }
    Intent::Look
}

/// Whether some applications would take it for a request other than the one that its first line says, and that one may write.
fn asks_for_another(head: &request::Parts, fields: Fields) -> bool {
    let says_other = |names: [&str; 3], same: &str| {
        names.iter().flat_map(|name| head.headers.get_all(*name)).any(|value| value.as_bytes() != same.as_bytes())
    };
    let target = head.uri.path_and_query().map_or("/", |target| target.as_str());
    (fields.has(Kind::OtherPath) && says_other(OTHER_PATH, target))
        || (fields.has(Kind::OtherMethod) && head.method.is_safe() && says_other(OTHER_METHOD, head.method.as_str()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::Request as Http;
    use http::header::HOST;

    use super::*;

    fn of(builder: request::Builder, route: &Route) -> Request {
        Request::of(&builder.body(()).unwrap().into_parts().0, false, route, &Keys::new([7; 16]))
    }

    fn get(target: &str) -> request::Builder {
        Http::get(target).header(HOST, "shop.example")
    }

    #[test]
    fn unsafe_methods_are_updates_whatever_else_they_say() {
        let plain = Route::default();
        for method in ["POST", "PUT", "DELETE", "PATCH", "PURGE"] {
            let request = of(get("/").method(method).header("cache-control", "no-store"), &plain);
            assert_eq!(request.intent, Intent::Update(Bracket::Everything), "{method}");
        }
        assert_eq!(of(get("/").method("OPTIONS"), &plain).intent, Intent::Pass(Reason::Method));
        let announced = Route { writes: Writes::Announced, ..Route::default() };
        assert_eq!(of(get("/").method("POST"), &announced).intent, Intent::Update(Bracket::Announced));
        assert_eq!(of(get("/"), &announced).intent, Intent::Look);
        for (method, name, value, announced_to) in [
            ("GET", "x-http-method-override", "DELETE", None),
            ("GET", "x-original-url", "/cart", None),
            ("POST", "x-rewrite-url", "/cart", None),
            ("POST", "x-http-method", "PUT", Some(Intent::Update(Bracket::Announced))),
            ("GET", "x-original-uri", "/a?b", Some(Intent::Look)),
            ("GET", "x-method-override", "GET", Some(Intent::Look)),
        ] {
            let request = of(get("/a?b").method(method).header(name, value), &announced);
            let expected = announced_to.unwrap_or(Intent::Update(Bracket::OfAnother));
            assert_eq!(request.intent, expected, "{method} with {name}: {value}");
        }
        let reading = Route { writes: Writes::Never, ..Route::default() };
        assert_eq!(of(get("/").method("POST"), &reading).intent, Intent::Pass(Reason::Method));
        assert_eq!(of(get("/"), &reading).intent, Intent::Look);
        let overriding = get("/").method("POST").header("x-original-url", "/cart");
        assert_eq!(of(overriding, &reading).intent, Intent::Update(Bracket::OfAnother), "perhaps another path");
        let writing = Route { writes: Writes::Always, ..Route::default() };
        assert_eq!(of(get("/"), &writing).intent, Intent::Update(Bracket::Everything));
    }

    #[test]
    fn a_mode_says_what_is_looked_for_and_what_a_write_touches() {
        let standard = Route { mode: Mode::Standard, ..Route::default() };
        assert_eq!(of(get("/").method("POST"), &standard).intent, Intent::Update(Bracket::After));
        let database = Route { writes: Writes::Database, ..standard.clone() };
        assert_eq!(of(get("/").method("POST"), &database).intent, Intent::Update(Bracket::After));
        let writing = Route { writes: Writes::Always, ..standard.clone() };
        assert_eq!(of(get("/"), &writing).intent, Intent::Update(Bracket::Everything));
        let request = of(get("/").header("cache-control", "max-stale, min-fresh=3"), &standard);
        let wishes =
            Wishes { max_stale: Some(Duration::MAX), min_fresh: Some(Duration::from_secs(3)), ..Wishes::default() };
        assert_eq!((request.intent, request.wishes, request.mode), (Intent::Look, wishes, Mode::Standard));
        let pass = Route { mode: Mode::Pass, ..Route::default() };
        assert_eq!(of(get("/"), &pass).intent, Intent::Pass(Reason::Route));
        assert_eq!(of(get("/").method("POST"), &pass).intent, Intent::Update(Bracket::Everything));
    }

    #[test]
    fn credentials_are_seen() {
        let route = Route::default();
        assert_eq!(of(get("/"), &route).credentials, None);
        assert_eq!(of(get("/").header("cookie", "sid=1"), &route).credentials, Some(Reason::Cookie));
        assert_eq!(of(get("/").header("authorization", "Basic eA=="), &route).credentials, Some(Reason::Authorization));
    }
}
