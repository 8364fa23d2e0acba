//! What the configuration says of a part of the address space, key by key, and what holds there.
//!
//! A rule inherits each key that it does not say from the rule of the next shorter prefix, unless it says `inherit = false`. What `cookies.ignore` and
//! `cookies.only` say is one thing in two spellings, so a rule that says either does not inherit the other.

use serde::{Deserialize, Serialize};
use verbena_terms::Size;

use crate::coding::Codings;
use crate::language::Languages;
use crate::names::Names;
use crate::path::Readings;
use crate::query::Query;
use crate::route::{Cookies, Mode, Route, Writes, covers, is_slash};
use crate::slice::SliceSize;

/// One element of `proxy.routes`. A key that is `None` was not said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rule {
    /// Paths that begin so. "/" is all.
    pub prefix: String,
    /// Whether what it does not say is as the next shorter prefix says.
    pub inherit: bool,
    /// Which cookies make answers different.
    #[serde(skip_serializing_if = "CookieRule::is_empty")]
    pub cookies: CookieRule,
    /// Which parameters of a query do.
    #[serde(skip_serializing_if = "QueryRule::is_empty")]
    pub query: QueryRule,
    /// What requests do to the data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub writes: Option<Writes>,
    /// With which statuses the application says that it wrote nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub harmless: Option<Vec<u16>>,
    /// By what a copy is found to be good.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// Whether a connection may become one of another protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upgrade: Option<bool>,
    /// In which codings stored pages are answered that came in none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compress: Option<Codings>,
    /// Which languages the pages have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub languages: Option<Vec<String>>,
    /// In slices of which size pages are stored; 0: whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slice: Option<Size>,
}

/// What a rule says of cookies. Names end in `*` where they stand for all that begin so.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CookieRule {
    /// Those that the answers do not depend on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ignore: Option<Vec<String>>,
    /// Those that the answers may depend on: all others are ignored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub only: Option<Vec<String>>,
    /// Those whose value makes another page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<Vec<String>>,
    /// Whether answers that set an ignored cookie, or carry the value of one, are for all clients
    /// nevertheless.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub publish: Option<bool>,
}

/// What a rule says of the parameters of a query.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QueryRule {
    /// Those that the answers do not depend on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ignore: Option<Vec<String>>,
    /// Whether they are put in the order of their names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sort: Option<bool>,
}

impl Default for Rule {
    fn default() -> Self {
        let (cookies, query) = (CookieRule::default(), QueryRule::default());
        Rule {
            prefix: "/".into(),
            inherit: true,
            cookies,
            query,
            writes: None,
            harmless: None,
            mode: None,
            upgrade: None,
            compress: None,
            languages: None,
            slice: None,
        }
    }
}

impl CookieRule {
    fn is_empty(&self) -> bool {
        *self == CookieRule::default()
    }
}

impl QueryRule {
    fn is_empty(&self) -> bool {
        *self == QueryRule::default()
    }
}

impl Rule {
    /// Whether it says a prefix and nothing else.
    pub fn is_bare(&self) -> bool {
        self.cookies.is_empty()
            && self.query.is_empty()
            && self.writes.is_none()
            && self.harmless.is_none()
            && self.mode.is_none()
            && self.upgrade.is_none()
            && self.compress.is_none()
            && self.languages.is_none()
            && self.slice.is_none()
    }

    /// What holds under its prefix, where `inherited` holds around it.
    fn over(&self, inherited: &Route) -> Route {
        let CookieRule { ignore, only, key, publish } = &self.cookies;
        let publish = publish.unwrap_or(inherited.cookies.publish);
        let (ignore, only) = match (ignore, only) {
            (None, None) => (inherited.cookies.ignore.clone(), inherited.cookies.only.clone()),
            (ignore, only) => {
                (Names::of_cookies(ignore.iter().flatten()), only.as_ref().map(|only| only.iter().collect::<Names>()))
            }
        };
        let key = match key {
            Some(key) => key.iter().cloned().collect(),
            // The nearer rule decides about a cookie that it names.
            None if self.cookies.is_empty() => inherited.cookies.key.clone(),
            None => {
                let is_own = |name: &String| {
                    ignore.has(name.as_bytes()) || only.as_ref().is_some_and(|only| only.has(name.as_bytes()))
                };
                inherited.cookies.key.iter().filter(|name| !is_own(name)).cloned().collect()
            }
        };
        let query = Query {
            ignore: match &self.query.ignore {
                Some(own) => Names::of_parameters(own),
                None => inherited.query.ignore.clone(),
            },
            sort: self.query.sort.unwrap_or(inherited.query.sort),
        };
        let (writes, mode) = (self.writes.unwrap_or(inherited.writes), self.mode.unwrap_or(inherited.mode));
        let upgrade = self.upgrade.unwrap_or(inherited.upgrade);
        Route {
            prefix: self.prefix.clone(),
            cookies: Cookies { ignore, only, key, publish },
            query,
            writes,
            harmless: self
                .harmless
                .as_ref()
                .map_or_else(|| inherited.harmless.clone(), |own| own.iter().copied().collect()),
            mode,
            upgrade,
            compress: self.compress.clone().unwrap_or_else(|| inherited.compress.clone()),
            languages: self.languages.clone().map_or_else(|| inherited.languages.clone(), Languages::of),
            slice: self.slice.map_or(inherited.slice, |size| SliceSize::new(size.0)),
        }
    }
}

/// The index of the rule that each of the rules inherits from if it may: that of the longest prefix that covers its own and is shorter.
pub fn parents(rules: &[Rule]) -> Vec<Option<usize>> {
    let prefixes: Vec<_> = rules.iter().map(|rule| Readings::of_prefix(&rule.prefix)).collect();
    let parent = |at: usize| {
        let own = &prefixes[at].spelled;
        let shorter = (0..rules.len()).filter(|other| {
            let other = &prefixes[*other].spelled;
            other.len() < own.len() && covers(other, own, is_slash).is_some()
        });
        shorter.max_by_key(|other| prefixes[*other].spelled.len())
    };
    (0..rules.len()).map(parent).collect()
}

/// What holds under each prefix, in the order of the rules, where `elsewhere` holds outside of them.
pub fn resolve(rules: &[Rule], elsewhere: &Route) -> Vec<Route> {
    let parents = parents(rules);
    let resolved = |at: usize| {
        // A chain ends, for each prefix on it is shorter than the one before.
        let chain: Vec<usize> =
            std::iter::successors(Some(at), |at| parents[*at].filter(|_| rules[*at].inherit)).collect();
        chain.iter().rev().fold(elsewhere.clone(), |around, at| rules[*at].over(&around))
    };
    (0..rules.len()).map(resolved).collect()
}

/// A rule that says what holds. An empty list is left out: the check of rules would report that it has no
/// effect.
impl From<Route> for Rule {
    fn from(route: Route) -> Self {
        let Route { prefix, cookies, query, writes, harmless, mode, upgrade, compress, languages, slice } = route;
        let said = |list: Vec<String>| (!list.is_empty()).then_some(list);
        let only = cookies.only.as_ref().map(|only| only.spelled().collect());
        let cookies = CookieRule {
            ignore: only.is_none().then(|| cookies.ignore.spelled().collect()).and_then(said),
            only,
            key: said(cookies.key.into_iter().collect()),
            publish: Some(cookies.publish),
        };
        let query = QueryRule { ignore: said(query.ignore.spelled().collect()), sort: Some(query.sort) };
        Rule {
            prefix,
            inherit: true,
            cookies,
            query,
            writes: Some(writes),
            harmless: (!harmless.is_empty()).then(|| harmless.into_iter().collect()),
            mode: Some(mode),
            upgrade: Some(upgrade),
            compress: (!compress.is_empty()).then_some(compress),
            languages: said(languages.0),
            slice: slice.map(|size| Size(size.bytes())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Option<Vec<String>> {
        Some(names.iter().map(|name| name.to_string()).collect())
    }

    fn rule(prefix: &str) -> Rule {
        Rule { prefix: prefix.into(), ..Rule::default() }
    }

    #[test]
    fn what_a_rule_does_not_say_is_as_around_it() {
        let rules = [
            Rule { cookies: CookieRule { key: names(&["lang"]), ..CookieRule::default() }, ..rule("/shop/view") },
            Rule {
                cookies: CookieRule { ignore: names(&["sid", "_ga*"]), ..CookieRule::default() },
                query: QueryRule { ignore: names(&["utm_*"]), sort: Some(true) },
                ..rule("/")
            },
            Rule { writes: Some(Writes::Announced), upgrade: Some(true), ..rule("/shop") },
            Rule { inherit: false, ..rule("/shop/account") },
            Rule { writes: Some(Writes::Always), ..rule("/shop/account/out") },
            rule("/shopping"),
        ];
        assert_eq!(parents(&rules), [Some(2), None, Some(1), Some(2), Some(3), Some(1)]);
        let [view, front, shop, account, out, shopping] = resolve(&rules, &Route::default()).try_into().unwrap();
        assert!(view.cookies.ignores(b"sid") && view.cookies.ignores(b"_ga_1") && view.cookies.key.contains("lang"));
        assert_eq!((view.writes, view.query.sort), (Writes::Announced, true));
        assert_eq!([&view, &front, &shop, &account].map(|route| route.upgrade), [true, false, true, false]);
        assert_eq!((shop.cookies, shop.query), (front.cookies.clone(), front.query.clone()));
        assert_eq!(account, Route { prefix: "/shop/account".into(), ..Route::default() });
        assert_eq!(out, Route { prefix: "/shop/account/out".into(), writes: Writes::Always, ..Route::default() });
        assert_eq!(shopping, Route { prefix: "/shopping".into(), ..front });
    }

    #[test]
    fn the_nearer_rule_decides_about_a_cookie_that_it_names() {
        let below = |cookies: CookieRule| {
            let around =
                CookieRule { ignore: names(&["sid"]), key: names(&["lang", "theme"]), ..CookieRule::default() };
            let rules = [Rule { cookies: around, ..rule("/") }, Rule { cookies, ..rule("/a") }];
            resolve(&rules, &Route::default()).remove(1).cookies
        };
        let keyed = below(CookieRule { key: names(&["sid"]), ..CookieRule::default() });
        assert!(!keyed.ignores(b"sid") && keyed.knows(b"sid"), "its value makes a page");
        assert!(!keyed.knows(b"lang"), "a list is said anew as a whole");
        let ignoring = below(CookieRule { ignore: names(&["lang"]), ..CookieRule::default() });
        assert!(ignoring.ignores(b"lang") && !ignoring.knows(b"sid") && ignoring.key.contains("theme"));
        let only = below(CookieRule { only: names(&["lang"]), ..CookieRule::default() });
        assert!(!only.knows(b"lang"), "with it, a request has credentials");
        assert!(only.ignores(b"sid") && only.ignores(b"any") && !only.ignores(b"theme") && only.knows(b"theme"));
    }
}
