//! By what a page is found in a cache.

use std::fmt;
use std::hash::Hasher;

use http::header::{FORWARDED, HOST};
use http::{HeaderValue, request};
use siphasher::sip128::{Hasher128, SipHasher13};

use crate::answer::{opaque, tags};
use crate::cookies;
use crate::fields::{ADDRESS, Fields, Kind};
use crate::path::Readings;
use crate::route::Route;
use crate::slice::SliceSize;
use crate::target::encoded_address;

/// The name of a page in a cache: 128 bits of SipHash over host, path and query, the fields that applications make their own address from, and the values of
/// the cookies in the key. Collisions are as unlikely as a disk that lies (2^-64 at 2^32 pages).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(pub u128);

/// Makes keys, under a secret: a client that does not know it finds no two pages that have one key, and no two bodies that have one tag. The secret must be
/// the same at all nodes, for they ask each other for words by these keys, and clients ask one node about pages that they got from another.
#[derive(Clone)]
pub struct Keys(SipHasher13);

/// Prefixes of a path by which its page can be purged (rule H2).
pub const MOST_PREFIXES: usize = 16;

/// What a tag's input begins with, and that of no key does: there it is the length of a host.
const TAG: u64 = u64::MAX;
/// What the input of a slice's key begins with, and that of no other.
const SLICE: u64 = u64::MAX - 1;

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keys(secret not shown)")
    }
}

impl Keys {
    /// Under this secret.
    pub fn new(secret: [u8; 16]) -> Self {
        Keys(SipHasher13::new_with_key(&secret))
    }

    /// Of a page without cookies in its key: by the host of its requests and its path and query. `None` if they are no such thing.
    pub fn of_page(&self, host: &str, target: &str) -> Option<Key> {
        let head = http::Request::get(target).header(HOST, host).body(()).ok()?.into_parts().0;
        (head.uri.authority().is_none() && target.starts_with('/'))
            .then(|| self.key(&head, Fields::of(&head.headers), &Route::default()))
    }

    /// Of the page that has the host, the path and what the route leaves of the query of this request, and nothing else. Hosts that differ in the port of a
    /// scheme alone are one here, and paths that RFC 3986 section 6.2.2 calls equivalent: a purge spells an address as it is usually written.
    pub fn of_address_alone(&self, head: &request::Parts, route: &Route) -> Key {
        let path = Readings::of(head.uri.path()).spelled;
        let query = head.uri.query().map_or_else(String::new, |query| format!("?{query}"));
        let target = format!("{}{query}", String::from_utf8_lossy(&path));
        let plain = http::Request::get(target).header(HOST, portless(host(head)).to_ascii_lowercase()).body(());
        match plain {
            Ok(plain) => self.key(&plain.into_parts().0, Fields::default(), route),
            Err(_) => self.key(head, Fields::default(), route),
        }
    }

    /// By what the page of this request is found when its address is purged: its address alone, and its path with any query where the route changes queries.
    pub fn of_target(&self, head: &request::Parts, route: &Route) -> impl Iterator<Item = Key> + use<> {
        let any_query = (!route.query.is_plain()).then(|| self.of_any_query(head));
        [self.of_address_alone(head, route)].into_iter().chain(any_query)
    }

    /// No page's: what each page depends on whose route changes queries ([`Query`](crate::Query)), by host and path. An address that is
    /// purged has the query as some client sent it, and the sender of the purge does not know the routes.
    pub fn of_any_query(&self, head: &request::Parts) -> Key {
        let mut hash = self.0;
        let mut part = |bytes: &[u8]| {
            hash.write_u64(bytes.len() as u64);
            hash.write(bytes);
        };
        part(&portless(host(head)).to_ascii_lowercase());
        part(&Readings::of(head.uri.path()).loose);
        part(b"any query");
        let hash = hash.finish128();
        Key(u128::from(hash.h1) << 64 | u128::from(hash.h2))
    }

    /// No page's: what each page of this host depends on, and each whose path begins so by whole segments, the whole path included. The host
    /// first, then the prefixes, the shorter before the longer, [`MOST_PREFIXES`] at most (rule H2). Paths are read loosely, as an application may.
    pub fn of_prefixes(&self, head: &request::Parts) -> Vec<Key> {
        let (host, path) = (host(head), Readings::of(head.uri.path()).loose);
        let path = path.strip_suffix(b"/").unwrap_or(&path);
        let ends = (1..path.len()).filter(|at| path[*at] == b'/').chain([path.len()]).filter(|end| *end > 0);
        let prefixes = ends.take(MOST_PREFIXES).map(|end| self.prefix(host, &path[..end]));
        [self.prefix(host, b"")].into_iter().chain(prefixes).collect()
    }

    /// The same by the host and the target, path and query, that a client asked for. None if they are not those of a page.
    pub fn of_page_prefixes(&self, host: &str, target: &str) -> Vec<Key> {
        let request = http::Request::get(target).header(HOST, host).body(());
        request.map_or_else(|_| Vec::new(), |request| self.of_prefixes(&request.into_parts().0))
    }

    /// The one of these that stands for all paths that begin so: the longest of whole segments that is a beginning of all of them.
    pub(crate) fn of_wider_prefix(&self, head: &request::Parts, begin: &str) -> Key {
        let whole = Readings::of(&begin[..begin.rfind('/').unwrap_or(0)]).loose;
        let whole = whole.strip_suffix(b"/").unwrap_or(&whole);
        let end = (0..whole.len()).filter(|at| whole[*at] == b'/').nth(MOST_PREFIXES).unwrap_or(whole.len());
        self.prefix(host(head), &whole[..end])
    }

    /// The one of these that stands for a prefix of paths at a host, or for the host if it is `/`. `None` if it is no such thing, or deeper than
    /// prefixes are kept.
    pub fn of_prefix(&self, host: &str, prefix: &str) -> Option<Key> {
        let head = http::Request::get(prefix).header(HOST, host).body(()).ok()?.into_parts().0;
        let is_path = prefix.starts_with('/') && head.uri.query().is_none() && head.uri.authority().is_none();
        let deepest = Readings::of(head.uri.path()).loose;
        let deepest = deepest.strip_suffix(b"/").unwrap_or(&deepest);
        let is_kept = is_path && deepest.iter().filter(|byte| **byte == b'/').count() <= MOST_PREFIXES;
        is_kept.then(|| self.prefix(host.as_bytes(), deepest))
    }

    /// The same by an address, `http://HOST/PATH`.
    pub fn of_prefix_at(&self, address: &str) -> Option<Key> {
        let uri: http::Uri = encoded_address(address).parse().ok()?;
        let is_web = matches!(uri.scheme_str(), Some("http" | "https"));
        let host = uri.authority().filter(|host| is_web && !host.as_str().contains('@'))?;
        self.of_prefix(host.as_str(), uri.path_and_query().map_or("/", |target| target.as_str()))
    }

    fn prefix(&self, host: &[u8], prefix: &[u8]) -> Key {
        let mut hash = self.0;
        for part in [&portless(host).to_ascii_lowercase()[..], prefix, b"prefix"] {
            hash.write_u64(part.len() as u64);
            hash.write(part);
        }
        let hash = hash.finish128();
        Key(u128::from(hash.h1) << 64 | u128::from(hash.h2))
    }

    /// The same by an address, if that has a query.
    pub fn of_any_query_at(&self, address: &str) -> Option<Key> {
        let head = http::Request::get(&*encoded_address(address)).body(()).ok()?.into_parts().0;
        head.uri.query().is_some().then(|| self.of_any_query(&head))
    }

    /// Of a page without cookies in its key, by its address: `http://HOST/PATH?QUERY`, in any spelling. `None` if it is no such thing.
    pub fn of_address(&self, address: &str) -> Option<Key> {
        let uri: http::Uri = encoded_address(address).parse().ok()?;
        let is_web = matches!(uri.scheme_str(), Some("http" | "https"));
        uri.authority().filter(|host| is_web && !host.as_str().contains('@'))?;
        let head = http::Request::get(uri).body(()).ok()?.into_parts().0;
        Some(self.of_address_alone(&head, &Route::default()))
    }

    /// Of a slice of a page that is stored in slices (rule H9).
    pub fn of_slice(&self, page: Key, size: SliceSize, slice: u64) -> Key {
        let mut hash = self.0;
        hash.write_u64(SLICE);
        hash.write_u128(page.0);
        hash.write_u64(size.bytes());
        hash.write_u64(slice);
        let hash = hash.finish128();
        Key(u128::from(hash.h1) << 64 | u128::from(hash.h2))
    }

    /// The strong validator of a body whose origin sent none.
    pub fn entity_tag_of(&self, body: &[u8]) -> HeaderValue {
        let mut hash = self.0;
        hash.write_u64(TAG);
        hash.write(body);
        let hash = hash.finish128();
        HeaderValue::try_from(format!("\"v{:016x}{:016x}\"", hash.h1, hash.h2))
            .expect("invariant: hexadecimal digits in quotes are a header value")
    }

    /// Whether the client says in `If-None-Match` that it has a body by a tag that was made here ([`entity_tag_of`](Self::entity_tag_of)).
    pub fn are_tagged_in(head: &request::Parts) -> bool {
        tags(head).map(opaque).any(|tag| match tag {
            [b'"', b'v', digits @ .., b'"'] => digits.len() == 32 && digits.iter().all(u8::is_ascii_hexdigit),
            _ => false,
        })
    }

    pub(crate) fn key(&self, head: &request::Parts, fields: Fields, route: &Route) -> Key {
        let mut hash = self.0;
        let mut part = |bytes: &[u8]| {
            hash.write_u64(bytes.len() as u64);
            hash.write(bytes);
        };
        // A host is the same in any case (RFC 9110 section 4.2.3). The absolute form of a target wins over `Host` (section 7.2).
        let host = host(head);
        match host.iter().any(u8::is_ascii_uppercase) {
            true => part(&host.to_ascii_lowercase()),
            false => part(host),
        }
        let target = head.uri.path_and_query().map_or("/", |target| target.as_str());
        match route.query.target(target) {
            Some(page) => part(page.as_str().as_bytes()),
            None => part(target.as_bytes()),
        }
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
            // `for` and `by` name the client and the proxy, and differ between clients (RFC 7239 section 4). But some applications look at the first
            // element alone, and some at no `X-Forwarded-*` where there is any.
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
}

fn host(head: &request::Parts) -> &[u8] {
    let host =
        head.uri.authority().map(|authority| authority.as_str().rsplit('@').next().unwrap_or_default().as_bytes());
    host.or_else(|| head.headers.get(HOST).map(|host| host.as_bytes())).unwrap_or_default()
}

/// A host without the port that one of the schemes has anyway. By which one a client came, the proxy may not know.
fn portless(host: &[u8]) -> &[u8] {
    host.strip_suffix(b":80").or_else(|| host.strip_suffix(b":443")).unwrap_or(host)
}

/// The pairs of an element of `Forwarded`, by those who have no regard to quotes.
fn pairs(element: &[u8]) -> impl Iterator<Item = &[u8]> {
    element.split(|byte| *byte == b';').map(<[u8]>::trim_ascii)
}

/// The value of a pair that names the client (`for`) or the proxy (`by`).
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

#[cfg(test)]
mod tests {
    use http::Request as Http;

    use super::*;
    use crate::Request;

    fn keys() -> Keys {
        Keys::new([7; 16])
    }

    fn of(builder: request::Builder, route: &Route) -> Key {
        Request::of(&builder.body(()).unwrap().into_parts().0, false, route, &keys()).key
    }

    fn get(target: &str) -> request::Builder {
        Http::get(target).header(HOST, "shop.example")
    }

    #[test]
    fn an_address_is_the_page_that_its_requests_are_about() {
        let asked = |target| Some(of(get(target), &Route::default()));
        assert_eq!(keys().of_address("http://Shop.example/a?b=%20"), asked("/a?b=%20"));
        assert_eq!(keys().of_address("https://shop.example"), asked("/"));
        assert_ne!(keys().of_address("http://shop.example:8080/"), asked("/"), "the port is a part of the host");
        for same in ["http://shop.example:80/blog?a", "https://shop.example:443/%62log?a"] {
            assert_eq!(keys().of_address(same), asked("/blog?a"), "{same}");
        }
        assert_ne!(keys().of_address("http://shop.example/BLOG?a"), asked("/blog?a"));
        for none in ["/a", "shop.example/a", "ftp://shop.example/", "http://me@shop.example/", "", "http://"] {
            assert_eq!(keys().of_address(none), None, "{none}");
        }
    }

    #[test]
    fn a_page_is_its_host_path_query_and_key_cookies() {
        let route = Route {
            cookies: crate::Cookies { key: ["lang".to_string()].into(), ignore: ["sid"].into(), ..Default::default() },
            ..Route::default()
        };
        let page = |builder| of(builder, &route);
        assert_eq!(page(get("/a?b")), page(Http::get("/a?b").header(HOST, "SHOP.example")));
        assert_eq!(page(get("/a?b")), page(Http::get("http://shop.example/a?b").header(HOST, "other")));
        assert_eq!(page(get("/a?b")), page(Http::get("http://u@shop.example/a?b").header(HOST, "other")));
        assert_eq!(Some(page(get("/a?b"))), keys().of_page("shop.example", "/a?b"));
        assert_eq!(keys().of_page("shop.example", "a b"), None);
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
        // A parser that takes it apart without regard to quotes finds a host.
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
        assert_eq!(Some(keys().of_address_alone(&head, &route)), keys().of_page("shop.example", "/a?b"));
        assert_eq!(page(get("/").header("cookie", "sid=1; lang=de")), page(get("/").header("cookie", "lang=de")));
    }

    #[test]
    fn keys_and_tags_are_those_of_a_secret() {
        let (one, other) = (keys(), Keys::new([8; 16]));
        assert_ne!(one.of_page("shop.example", "/"), other.of_page("shop.example", "/"));
        assert_ne!(one.entity_tag_of(b"a"), other.entity_tag_of(b"a"));
        assert_eq!(one.entity_tag_of(b"a"), keys().entity_tag_of(b"a"));
        assert_ne!(one.entity_tag_of(b"a"), one.entity_tag_of(b"b"));
        let tag = one.entity_tag_of(b"a").to_str().unwrap().to_owned();
        for (line, is_ours) in [(tag.clone(), true), (format!("\"x\", W/{tag}"), true), ("\"v1\", *".to_owned(), false)]
        {
            let head = http::Request::get("/").header("if-none-match", line).body(()).unwrap().into_parts().0;
            assert_eq!(Keys::are_tagged_in(&head), is_ours);
        }
        assert_eq!(format!("{one:?}"), "Keys(secret not shown)");
    }

    #[test]
    fn a_page_is_found_by_its_host_and_by_each_prefix_of_whole_segments() {
        let of = |target: &str| {
            keys().of_prefixes(&Http::get(target).header(HOST, "Shop.example").body(()).unwrap().into_parts().0)
        };
        let prefix = |prefix: &str| keys().of_prefix("shop.example", prefix).unwrap();
        let all = of("/a/b/c?x=1");
        assert_eq!(all, [prefix("/"), prefix("/a"), prefix("/a/b"), prefix("/a/b/c/")]);
        assert!(!all.contains(&prefix("/a/bc")) && !all.contains(&keys().of_prefix("other", "/a").unwrap()));
        assert_eq!((of("/"), of("/a/").len()), (vec![prefix("/")], 2));
        for same in ["/%61/b//c", "/A/x/../b/c;d=1", "/a%2Fb/c"] {
            assert_eq!(of(same), all, "{same}");
        }
        assert_eq!((prefix("/%61/"), keys().of_prefix("shop.example:443", "/a")), (prefix("/a"), Some(prefix("/a"))));
        assert_eq!(of(&"/d".repeat(40)).len(), 1 + MOST_PREFIXES);
        assert_eq!(keys().of_prefix("shop.example", &"/d".repeat(17)), None, "no page is found by it");
        assert_eq!((keys().of_prefix("h", "a"), keys().of_prefix("h", "/a?b")), (None, None));
    }
}
