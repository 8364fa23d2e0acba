//! What a request wants.

use std::hash::Hasher;

use http::header::{AUTHORIZATION, FORWARDED, HOST};
use http::{Method, request};
use siphasher::sip128::{Hasher128, SipHasher13};

use crate::control::CacheControl;
use crate::cookies;
use crate::fields::{ADDRESS, Fields, Kind, OTHER_METHOD, OTHER_PATH};
use crate::reason::Reason;
use crate::route::{Route, Writes};

/// What is to be done with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// Look in the cache; on a miss fetch and try to store.
    Look,
    /// Go to the origin, neither look nor store.
    Pass(Reason),
    /// It writes: bracket it with an update. `announced`: the application announces what it touches, itself.
    Update {
        /// Whether the application brackets it.
        announced: bool,
    },
}

/// The name of a page in a cache: 128 bits of SipHash over the origin's name, host, path and query, and the values of the cookies in the
/// key. Collisions are as unlikely as a disk that lies (2^-64 at 2^32 pages).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(pub u128);

/// What the headers of a request say about caching.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// What it wants.
    pub intent: Intent,
    /// The page it is about.
    pub key: Key,
    /// It carries credentials: a stored answer is for it only if that says so ([`Stored::shared_with_credentials`](crate::Stored)), and so is storing.
    pub credentials: Option<Reason>,
    /// It wants a stored answer or 504 (RFC 9111 section 5.2.1.7).
    pub only_if_cached: bool,
}

impl Request {
    /// Of a request's head as [`received`](crate::received) left it, under the rules of its route.
    pub fn of(head: &request::Parts, has_body: bool, route: &Route) -> Self {
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
        Request {
            intent: intent(head, fields, has_body, route, control),
            key: key(head, fields, route),
            credentials,
            only_if_cached: control.only_if_cached,
        }
    }
}

fn intent(head: &request::Parts, fields: Fields, has_body: bool, route: &Route, control: CacheControl) -> Intent {
    let reads = matches!(head.method, Method::GET | Method::HEAD);
    if asks_for_another(head, fields) {
        return Intent::Update { announced: false };
    }
    match route.writes {
        Writes::Always => return Intent::Update { announced: false },
        Writes::Announced if !head.method.is_safe() => return Intent::Update { announced: true },
        Writes::UnsafeMethods if !head.method.is_safe() => return Intent::Update { announced: false },
        _ => {}
    }
    if !reads {
        return Intent::Pass(Reason::Method);
    }
    if control.no_store {
        return Intent::Pass(Reason::RequestNoStore);
    }
    if fields.has(Kind::Precondition) {
        return Intent::Pass(Reason::Precondition);
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

impl Key {
    /// Of a page without cookies in its key: by the host of its requests and its path and query. `None` if they are no such thing.
    pub fn of_page(host: &str, target: &str) -> Option<Key> {
        let head = http::Request::get(target).header(HOST, host).body(()).ok()?.into_parts().0;
        (head.uri.authority().is_none() && target.starts_with('/'))
            .then(|| key(&head, Fields::of(&head.headers), &Route::default()))
    }

    /// Of the page that has the host, the path and the query of this request, and nothing else.
    pub fn of_address_alone(head: &request::Parts) -> Key {
        key(head, Fields::default(), &Route::default())
    }

    /// Of a page without cookies in its key, by its address: `http://HOST/PATH?QUERY`. `None` if it is no such thing.
    pub fn of_address(address: &str) -> Option<Key> {
        let uri: http::Uri = address.parse().ok()?;
        let is_web = matches!(uri.scheme_str(), Some("http" | "https"));
        let host = uri.authority().filter(|host| is_web && !host.as_str().contains('@'))?;
        Key::of_page(host.as_str(), uri.path_and_query().map_or("/", |target| target.as_str()))
    }
}

/// The pairs of an element of `Forwarded`, by those who have no regard to quotes.
fn pairs(element: &[u8]) -> impl Iterator<Item = &[u8]> {
    element.split(|byte| *byte == b';').map(<[u8]>::trim_ascii)
}

/// The value of a pair that says who asks, or by whom it was asked.
fn who(pair: &[u8]) -> Option<&[u8]> {
    let of = |name: &[u8]| pair.split_at_checked(name.len()).filter(|(found, _)| found.eq_ignore_ascii_case(name));
    of(b"for=").or_else(|| of(b"by=")).map(|(_, value)| value)
}

/// Whether all applications find the same in a line of `Forwarded`: those that have regard to quotes, those that do not, and those that look for
/// `host=` anywhere in it.
fn has_one_reading(line: &[u8]) -> bool {
    let is_address = |value: &[u8]| {
        let bare = value.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or(value);
        bare.iter().all(|byte| byte.is_ascii_alphanumeric() || b".:[]_-".contains(byte))
    };
    let has_closed = |pair: &[u8]| pair.iter().filter(|byte| **byte == b'"').count() % 2 == 0;
    let mut all = line.split(|byte| *byte == b',').flat_map(pairs);
    !line.contains(&b'\\') && all.all(|pair| has_closed(pair) && who(pair).is_none_or(is_address))
}

fn key(head: &request::Parts, fields: Fields, route: &Route) -> Key {
    let mut hash = SipHasher13::new();
    let mut part = |bytes: &[u8]| {
        hash.write_u64(bytes.len() as u64);
        hash.write(bytes);
    };
    // A host is the same in any case (RFC 9110 section 4.2.3). The absolute form of a target wins over `Host` (section 7.2).
    let host =
        head.uri.authority().map(|authority| authority.as_str().rsplit('@').next().unwrap_or_default().as_bytes());
    let host = host.or_else(|| head.headers.get(HOST).map(|host| host.as_bytes())).unwrap_or_default();
    match host.iter().any(u8::is_ascii_uppercase) {
        true => part(&host.to_ascii_lowercase()),
        false => part(host),
    }
    part(head.uri.path_and_query().map_or("/", |target| target.as_str()).as_bytes());
    // What applications make their own address from is part of the address.
    for name in ADDRESS.iter().filter(|_| fields.has(Kind::Address)) {
        for value in head.headers.get_all(*name) {
            part(name.as_bytes());
            part(value.as_bytes());
        }
    }
    let forwarded = fields.has(Kind::Forwarded).then(|| head.headers.get_all(FORWARDED).into_iter());
    for line in forwarded.into_iter().flatten().map(|line| line.as_bytes()) {
        if !has_one_reading(line) {
            part(FORWARDED.as_str().as_bytes());
            part(line);
            continue;
        }
        // `for` and `by` say who asks, and are different for everybody (RFC 7239 section 4). But some applications look at the first element alone, and
        // some at no `X-Forwarded-*` where there is any.
        for element in line.split(|byte| *byte == b',') {
            part(b"element");
            for pair in pairs(element).filter(|pair| who(pair).is_none()) {
                part(FORWARDED.as_str().as_bytes());
                part(pair);
            }
        }
    }
    for name in route.cookies.key.iter().filter(|_| fields.has(Kind::Cookie)) {
        for (_, value) in cookies::pairs(&head.headers).filter(|(found, _)| *found == name.as_bytes()) {
            part(name.as_bytes());
            part(value);
        }
    }
    let hash = hash.finish128();
    Key(u128::from(hash.h1) << 64 | u128::from(hash.h2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request as Http;

    fn of(builder: request::Builder, route: &Route) -> Request {
        Request::of(&builder.body(()).unwrap().into_parts().0, false, route)
    }

    fn get(target: &str) -> request::Builder {
        Http::get(target).header(HOST, "shop.example")
    }

    #[test]
    fn an_address_is_the_page_that_its_requests_are_about() {
        let asked = |target| Some(of(get(target), &Route::default()).key);
        assert_eq!(Key::of_address("http://Shop.example/a?b=%20"), asked("/a?b=%20"));
        assert_eq!(Key::of_address("https://shop.example"), asked("/"));
        assert_ne!(Key::of_address("http://shop.example:8080/"), asked("/"), "the port is a part of the host");
        for none in ["/a", "shop.example/a", "ftp://shop.example/", "http://me@shop.example/", "", "http://"] {
            assert_eq!(Key::of_address(none), None, "{none}");
        }
    }

    #[test]
    fn unsafe_methods_are_updates_whatever_else_they_say() {
        let plain = Route::default();
        for method in ["POST", "PUT", "DELETE", "PATCH", "PURGE"] {
            let request = of(get("/").method(method).header("cache-control", "no-store"), &plain);
            assert_eq!(request.intent, Intent::Update { announced: false }, "{method}");
        }
        assert_eq!(of(get("/").method("OPTIONS"), &plain).intent, Intent::Pass(Reason::Method));
        let announced = Route { writes: Writes::Announced, ..Route::default() };
        assert_eq!(of(get("/").method("POST"), &announced).intent, Intent::Update { announced: true });
        assert_eq!(of(get("/"), &announced).intent, Intent::Look);
        for (method, name, value, announced_to) in [
            ("GET", "x-http-method-override", "DELETE", None),
            ("GET", "x-original-url", "/cart", None),
            ("POST", "x-rewrite-url", "/cart", None),
            ("POST", "x-http-method", "PUT", Some(Intent::Update { announced: true })),
            ("GET", "x-original-uri", "/a?b", Some(Intent::Look)),
            ("GET", "x-method-override", "GET", Some(Intent::Look)),
        ] {
            let request = of(get("/a?b").method(method).header(name, value), &announced);
            let expected = announced_to.unwrap_or(Intent::Update { announced: false });
            assert_eq!(request.intent, expected, "{method} with {name}: {value}");
        }
        let writing = Route { writes: Writes::Always, ..Route::default() };
        assert_eq!(of(get("/"), &writing).intent, Intent::Update { announced: false });
    }

    #[test]
    fn a_page_is_its_host_path_query_and_key_cookies() {
        let route = Route {
            cookies: crate::Cookies { key: ["lang".to_string()].into(), ignore: ["sid".to_string()].into() },
            ..Route::default()
        };
        let page = |builder| of(builder, &route).key;
        assert_eq!(page(get("/a?b")), page(Http::get("/a?b").header(HOST, "SHOP.example")));
        assert_eq!(page(get("/a?b")), page(Http::get("http://shop.example/a?b").header(HOST, "other")));
        assert_eq!(page(get("/a?b")), page(Http::get("http://u@shop.example/a?b").header(HOST, "other")));
        assert_eq!(Some(page(get("/a?b"))), Key::of_page("shop.example", "/a?b"));
        assert_eq!(Key::of_page("shop.example", "a b"), None);
        assert_ne!(page(get("/a?b")), page(get("/a")));
        for name in ["x-forwarded-host", "x-forwarded-scheme", "x-host"] {
            assert_ne!(page(get("/a")), page(get("/a").header(name, "evil")), "{name}");
        }
        let forwarded = |said| page(get("/a").header("forwarded", said));
        let by_one = forwarded("for=10.0.0.1");
        for same in ["for=10.0.0.2;by=\"_b\"", "For=\"[2001:db8::17]:4711\"; by=unknown"] {
            assert_eq!(forwarded(same), by_one, "{same}");
        }
        // Some look at nothing else where there is one, and some at the first alone.
        assert_ne!(by_one, page(get("/a")));
        assert_ne!(by_one, forwarded("for=10.0.0.1, for=10.0.0.2"));
        assert_ne!(forwarded("for=10.0.0.1, for=10.0.0.2;host=a"), forwarded("for=10.0.0.1;host=a, for=10.0.0.2"));
        assert_ne!(by_one, forwarded("for=10.0.0.1; Host=evil"));
        assert_ne!(by_one, forwarded("for=10.0.0.1;host=\"a, for=b, c\""));
        // Whoever takes it apart without regard to quotes finds a host.
        for hidden in [
            "for=\"x, host=evil, for=y\"",
            "for=\"x;host=evil\"",
            "for=\"host=evil",
            "for=\"x\\\", host=evil\"",
            "for=host=evil",
            "for=1.2.3.4 proto=https",
            "by=x host=evil",
            "for=\"1.2.3.4\"host=evil",
        ] {
            assert_ne!(by_one, forwarded(hidden), "{hidden}");
            assert_ne!(forwarded("for=x"), forwarded(hidden), "{hidden}");
        }
        assert_ne!(page(get("/a?b")), page(get("/a?b").header("cookie", "lang=de")));
        assert_ne!(page(get("/").header("cookie", "lang=de")), page(get("/").header("cookie", "lang=en")));
        let builder =
            get("/a?b").header("cookie", "lang=de").header("x-forwarded-host", "a").header("forwarded", "host=a");
        let head = builder.body(()).unwrap().into_parts().0;
        assert_eq!(Some(Key::of_address_alone(&head)), Key::of_page("shop.example", "/a?b"));
        assert_eq!(page(get("/").header("cookie", "sid=1; lang=de")), page(get("/").header("cookie", "lang=de")));
    }

    #[test]
    fn credentials_are_seen() {
        let route = Route::default();
        assert_eq!(of(get("/"), &route).credentials, None);
        assert_eq!(of(get("/").header("cookie", "sid=1"), &route).credentials, Some(Reason::Cookie));
        assert_eq!(of(get("/").header("authorization", "Basic eA=="), &route).credentials, Some(Reason::Authorization));
    }
}
