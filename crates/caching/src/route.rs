//! What holds in a part of the address space.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::coding::Codings;
use crate::language::Languages;
use crate::names::Names;
use crate::path::Readings;
use crate::query::Query;
use crate::rule::{Rule, resolve};
use crate::slice::SliceSize;

/// The rules for paths that begin with a prefix. The longest prefix that fits decides; how paths are compared, [`Routes`] says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Paths that begin so. "/" is all.
    pub prefix: String,
    /// Which cookies make answers different.
    pub cookies: Cookies,
    /// Which parameters of a query do.
    pub query: Query,
    /// What requests of this route do to the data.
    pub writes: Writes,
    /// Statuses with which the application says that it wrote nothing: what it would have touched stays in the cache.
    pub harmless: BTreeSet<u16>,
    /// By what a copy is found to be good.
    pub mode: Mode,
    /// Whether a connection may become one of another protocol (WebSocket). No update brackets what is written through it.
    pub upgrade: bool,
    /// In which codings stored pages are answered that came in none.
    pub compress: Codings,
    /// Which languages the pages have.
    pub languages: Languages,
    /// In slices of which size pages are stored. Standard mode alone.
    pub slice: Option<SliceSize>,
}

/// By what copies of a route's pages are found to be good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// By version words: a hit is what the application would say. What the application is assumed to do is in rule P10.
    #[default]
    Coherent,
    /// By RFC 9111, lifetimes and validators; a purge and a write through the cluster are seen at once nevertheless (rules H1, H7). Nothing is
    /// assumed of the application.
    Standard,
    /// By nothing: nothing is stored.
    Pass,
}

impl Default for Route {
    fn default() -> Self {
        Route {
            prefix: "/".into(),
            cookies: Cookies::default(),
            query: Query::default(),
            writes: Writes::default(),
            harmless: BTreeSet::new(),
            mode: Mode::default(),
            upgrade: false,
            compress: Codings::default(),
            languages: Languages::default(),
            slice: None,
        }
    }
}

/// All rules, ready to be asked.
///
/// A path that different applications read differently is matched in each reading, and if they come to different rules, what is more careful of
/// each holds: too much care costs misses, too little would let a request that writes pass for one that reads.
#[derive(Clone, Debug)]
pub struct Routes {
    all: Vec<(Readings<'static>, Route)>,
    elsewhere: Route,
}

impl Routes {
    /// Of the configured rules, with what they inherit. `writes` and `mode` hold where none says it.
    pub fn of(rules: &[Rule], writes: Writes, mode: Mode) -> Self {
        let elsewhere = Route { writes, mode, ..Route::default() };
        Routes { elsewhere: elsewhere.clone(), ..Routes::new(resolve(rules, &elsewhere)) }
    }

    /// Of what holds under each prefix.
    pub fn new(routes: impl IntoIterator<Item = Route>) -> Self {
        let all = routes.into_iter().map(|route| (Readings::of_prefix(&route.prefix), route)).collect();
        Routes { all, elsewhere: Route::default() }
    }

    /// Whether there is a path where a connection may become one of another protocol.
    pub fn has_upgrades(&self) -> bool {
        self.all.iter().any(|(_, route)| route.upgrade)
    }

    /// The rule for a path: the one with the longest prefix that the path begins with, at a border between segments.
    pub fn find(&self, path: &str) -> Cow<'_, Route> {
        if self.all.is_empty() {
            return Cow::Borrowed(&self.elsewhere);
        }
        let path = Readings::of(path);
        let spelled = self.longest(|prefix| covers(&prefix.spelled, &path.spelled, is_slash));
        let resolved = self.longest(|prefix| covers(&prefix.resolved, &path.resolved, is_slash));
        let loose = self.longest(|prefix| covers(&prefix.loose, &path.loose, is_border));
        more_careful(more_careful(spelled, resolved), loose)
    }

    /// The rules of the longest prefix, all together if several are as long.
    fn longest(&self, covered: impl Fn(&Readings<'_>) -> Option<usize>) -> Cow<'_, Route> {
        let mut longest = None;
        for (prefix, route) in &self.all {
            let Some(length) = covered(prefix) else { continue };
            longest = match longest.take() {
                Some((before, found)) if before > length => Some((before, found)),
                Some((before, found)) if before == length => Some((length, more_careful(found, Cow::Borrowed(route)))),
                _ => Some((length, Cow::Borrowed(route))),
            };
        }
        longest.map_or(Cow::Borrowed(&self.elsewhere), |(_, route)| route)
    }
}

/// What is safe if a path may be taken for one of either rule: writing sooner than not, and only what both ignore ignored.
fn more_careful<'a>(one: Cow<'a, Route>, other: Cow<'a, Route>) -> Cow<'a, Route> {
    // Most readings come to the same rule, which need not be compared with itself.
    if std::ptr::eq(&*one, &*other) || *one == *other {
        return one;
    }
    let writes = [one.writes, other.writes];
    let writes = [Writes::Always, Writes::UnsafeMethods, Writes::Database, Writes::Announced, Writes::Never]
        .into_iter()
        .find(|kind| writes.contains(kind));
    let cookies = one.cookies.more_careful(&other.cookies);
    let query = Query { ignore: one.query.ignore.and(&other.query.ignore), sort: one.query.sort && other.query.sort };
    let prefix = one.prefix.clone();
    let harmless = &one.harmless & &other.harmless;
    // Nothing stored is never wrong, and what words say is never older than what a lifetime says.
    let modes = [one.mode, other.mode];
    let mode = [Mode::Pass, Mode::Coherent].into_iter().find(|mode| modes.contains(mode)).unwrap_or(Mode::Standard);
    Cow::Owned(Route {
        prefix,
        cookies,
        query,
        harmless,
        mode,
        upgrade: one.upgrade && other.upgrade,
        compress: one.compress.and(&other.compress),
        // Where the two rules have different languages, pages are not distinguished by language.
        languages: if one.languages == other.languages { one.languages.clone() } else { Languages::default() },
        slice: one.slice.filter(|_| one.slice == other.slice),
        writes: writes.expect("invariant: each rule has one of the five"),
    })
}

/// The length of a prefix that a path begins with, if it ends at its own last slash, at the path's end, or before a border.
pub(crate) fn covers(prefix: &[u8], path: &[u8], is_border: fn(u8) -> bool) -> Option<usize> {
    let rest = path.strip_prefix(prefix)?;
    let ends = prefix.ends_with(b"/") || rest.first().is_none_or(|byte| is_border(*byte));
    ends.then_some(prefix.len())
}

pub(crate) fn is_slash(byte: u8) -> bool {
    byte == b'/'
}

/// Some applications serve `/cart.json`, or what else goes on with a sign, as a form of `/cart`.
fn is_border(byte: u8) -> bool {
    !byte.is_ascii_alphanumeric() && !matches!(byte, b'-' | b'_') && byte.is_ascii()
}

/// Which cookies matter (rule P9's remedy for session frameworks that set one for every client). A name in `key` is never ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cookies {
    /// Names that the answers do not depend on: taken off requests that may be answered from the cache, and off stored answers.
    pub ignore: Names,
    /// All names but these are ignored. Beside it, `ignore` is a bound: of the others only those are ignored that it has, unless it is empty.
    pub only: Option<Names>,
    /// Names whose values are part of a page's key: one copy for each value.
    pub key: BTreeSet<String>,
    /// An answer is for all clients even if it sets an ignored cookie, or carries the value of one.
    pub publish: bool,
}

impl Cookies {
    pub(crate) fn ignores(&self, name: &[u8]) -> bool {
        let is_ignored = match &self.only {
            None => self.ignore.has(name),
            Some(only) => !only.has(name) && (self.ignore.is_empty() || self.ignore.has(name)),
        };
        is_ignored && !self.is_key(name)
    }

    pub(crate) fn ignores_nothing(&self) -> bool {
        self.ignore.is_empty() && self.only.is_none()
    }

    pub(crate) fn knows(&self, name: &[u8]) -> bool {
        self.is_key(name) || self.ignores(name)
    }

    fn is_key(&self, name: &[u8]) -> bool {
        std::str::from_utf8(name).is_ok_and(|name| self.key.contains(name))
    }

    /// Ignored, and published, is what both say; in the key is what is in either's.
    fn more_careful(&self, other: &Cookies) -> Cookies {
        let key = &self.key | &other.key;
        let publish = self.publish && other.publish;
        let only = match (&self.only, &other.only) {
            (Some(one), Some(other)) => Some(one.or(other)),
            (only, None) | (None, only) => only.clone(),
        };
        // Beside `only`, none at all is no bound.
        let is_bound = |cookies: &Cookies| cookies.only.is_none() || !cookies.ignore.is_empty();
        let ignore = match (is_bound(self), is_bound(other)) {
            (true, true) => self.ignore.and(&other.ignore),
            (true, false) => self.ignore.clone(),
            (false, true) => other.ignore.clone(),
            (false, false) => return Cookies { ignore: Names::default(), only, key, publish },
        };
        let only = only.filter(|_| !ignore.is_empty());
        Cookies { ignore, only, key, publish }
    }
}

/// What requests do to the data that pages are made of (rule P10).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Writes {
    /// Unsafe methods write; each is an update of everything.
    #[default]
    UnsafeMethods,
    /// Unsafe methods write, into the database, where the relay sees what; what else they change touches all pages whose dependencies are not known whole.
    Database,
    /// Unsafe methods write; the application announces what, by a bracket of its own.
    Announced,
    /// Every request writes, GET too.
    Always,
    /// None writes, whatever its method: a search by `POST`, or a path that only scanners ask for.
    Never,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn route(prefix: &str, writes: Writes) -> Route {
        Route { prefix: prefix.into(), writes, ..Route::default() }
    }

    fn shop() -> Routes {
        let cookies = |ignore: &[&str], key: &[&str]| {
            let set = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
            Cookies { ignore: ignore.iter().collect(), key: set(key), ..Cookies::default() }
        };
        Routes::new([
            Route { cookies: cookies(&["sid", "_ga"], &["lang"]), ..route("/shop", Writes::UnsafeMethods) },
            route("/shop/view", Writes::Announced),
            route("/cart/", Writes::Always),
            route("/cart/view", Writes::UnsafeMethods),
            Route { cookies: cookies(&["sid"], &["theme"]), ..route("/shop/b%c3%a4r", Writes::Always) },
        ])
    }

    #[test]
    fn the_longest_prefix_decides_at_borders_of_segments() {
        let routes = Routes::new(["/", "/shop", "/shop/cart/"].map(|prefix| route(prefix, Writes::UnsafeMethods)));
        let found = |path| routes.find(path).prefix.clone();
        assert_eq!(found("/shop"), "/shop");
        assert_eq!(found("/shop/1"), "/shop");
        assert_eq!(found("/shopping"), "/");
        assert_eq!(found("/shop/cart/7"), "/shop/cart/");
        assert_eq!(*shop().find("/about"), Route::default());
    }

    #[test]
    fn no_spelling_escapes_a_route_that_writes() {
        let routes = shop();
        for path in [
            "/cart/",
            "/cart/1",
            "/%63art/",
            "/c%61rt/%31",
            "/shop/../cart/1",
            "/shop/%2e%2E/cart/1",
            "/./cart/",
            // What not every application takes for it.
            "/cart",
            "//cart/",
            "/shop//../cart",
            "/cart;jsessionid=1",
            "/;x/cart",
            "/shop/..;/cart",
            "/cart%2f1",
            "/shop%2F..%2Fcart",
            "/shop%5c..%5Ccart",
            "/CART/1",
            "/cart.json",
            "/cart%00",
            "/cart/../shop/1",
            "/shop/b%C3%A4r",
            "/shop/b%c3%A4r/1",
            "/shop/b\u{e4}r",
        ] {
            assert_eq!(routes.find(path).writes, Writes::Always, "{path}");
        }
        for path in ["/shop/cart", "/carts", "/cart-1", "/%2563art/"] {
            assert_ne!(routes.find(path).writes, Writes::Always, "{path}");
        }
    }

    #[test]
    fn where_readings_differ_the_more_careful_rule_holds_of_each() {
        let routes = shop();
        assert_eq!(routes.find("/shop/view/1").writes, Writes::Announced);
        assert_eq!(routes.find("/shop/view;1").writes, Writes::UnsafeMethods, "not all take it for the view");
        assert_eq!(routes.find("/shop/view/../1").writes, Writes::UnsafeMethods);
        assert_eq!(routes.find("/cart/view").writes, Writes::UnsafeMethods);
        assert_eq!(routes.find("/x/../cart/view;1").writes, Writes::Always, "as the RFC has it, no view");
        let between = routes.find("/shop/b%C3%A4r/../1");
        assert_eq!(between.cookies.ignore, Names::from(["sid"]), "what either lets pass");
        assert_eq!(between.cookies.key, ["lang".to_string(), "theme".to_string()].into());
        assert!(routes.find("/SHOP/1").cookies.ignore.is_empty(), "perhaps no shop");
    }

    #[test]
    fn of_rules_for_one_prefix_the_careful_one_holds() {
        // The more careful one first.
        let kinds = [Writes::Always, Writes::UnsafeMethods, Writes::Announced, Writes::Never];
        for (at, careful) in kinds.into_iter().enumerate() {
            for other in kinds.into_iter().skip(at) {
                for prefixes in [["/a", "/%61"], ["/%61", "/a"]] {
                    let routes = Routes::new([route(prefixes[0], careful), route(prefixes[1], other)]);
                    assert_eq!(routes.find("/a/b").writes, careful, "beside {other:?}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn of_two_rules_for_cookies_both_must_ignore_one(
            sets in proptest::collection::vec((proptest::collection::vec("[ab]{0,2}[*]?", 0..3), proptest::option::of(
                proptest::collection::vec("[ab]{0,2}[*]?", 0..3)), proptest::collection::btree_set("[ab]{1,2}", 0..2)), 3),
            name in "[ab]{0,3}",
        ) {
            let of = |(ignore, only, key): &(Vec<String>, Option<Vec<String>>, BTreeSet<String>)| {
                let only = only.as_ref().map(|only| only.iter().collect::<Names>());
                // A rule says one of the two.
                let ignore = if only.is_some() { Names::default() } else { ignore.iter().collect() };
                Cookies { ignore, only, key: key.clone(), publish: false }
            };
            let all: Vec<Cookies> = sets.iter().map(of).collect();
            let careful = all[0].more_careful(&all[1]).more_careful(&all[2]);
            let name = name.as_bytes();
            let is_key = all.iter().any(|cookies| cookies.is_key(name));
            prop_assert_eq!(careful.is_key(name), is_key);
            prop_assert_eq!(careful.ignores(name), all.iter().all(|cookies| cookies.ignores(name)) && !is_key);
        }

        /// RFC 3986 section 6.2.2.2: they are one resource, so one rule.
        #[test]
        fn encoding_unreserved_characters_changes_no_rule(
            path in "(/(shop|view|cart|b%C3%A4r|[a-z.~_-]{0,3})){0,4}/?",
            encoded in proptest::collection::vec((any::<bool>(), any::<bool>()), 64),
        ) {
            let mut at_escape = 0;
            let respelled: String = path.chars().zip(encoded).map(|(char, (encode, capitals))| {
                let is_of_escape = at_escape > 0 || char == '%';
                at_escape = if char == '%' { 2 } else { i32::max(at_escape - 1, 0) };
                match (char, encode, capitals) {
                    (char, _, true) if is_of_escape => char.to_ascii_uppercase().to_string(),
                    (char, _, false) if is_of_escape => char.to_ascii_lowercase().to_string(),
                    ('/', ..) | (_, false, _) => char.to_string(),
                    (char, true, true) => format!("%{:02X}", char as u8),
                    (char, true, false) => format!("%{:02x}", char as u8),
                }
            }).collect();
            let routes = shop();
            prop_assert_eq!(&*routes.find(&respelled), &*routes.find(&path), "{}", respelled);
        }
    }
}
