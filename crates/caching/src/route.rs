//! What the configuration says of a part of the address space.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// The rules for paths that begin with a prefix. The longest prefix that fits decides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Route {
    /// Paths that begin so. "/" is all.
    pub prefix: String,
    /// Which cookies make answers different.
    pub cookies: Cookies,
    /// What requests of this route do to the data.
    pub writes: Writes,
}

impl Default for Route {
    fn default() -> Self {
        Route { prefix: "/".into(), cookies: Cookies::default(), writes: Writes::default() }
    }
}

impl Route {
    /// The rule for a path: the one with the longest prefix that the path begins with, at a border between segments.
    pub fn find<'a>(routes: &'a [Route], path: &str) -> Option<&'a Route> {
        routes.iter().filter(|route| route.covers(path)).max_by_key(|route| route.prefix.len())
    }

    fn covers(&self, path: &str) -> bool {
        path.strip_prefix(self.prefix.as_str())
            .is_some_and(|rest| rest.is_empty() || self.prefix.ends_with('/') || rest.starts_with('/'))
    }
}

/// Which cookies matter (rule P9's remedy for session frameworks that set one for everybody).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Cookies {
    /// Names that the answers do not depend on: taken off requests that may be answered from the cache, and off stored answers.
    pub ignore: BTreeSet<String>,
    /// Names whose values are part of a page's key: one copy for each value.
    pub key: BTreeSet<String>,
}

impl Cookies {
    pub(crate) fn ignores(&self, name: &[u8]) -> bool {
        contains(&self.ignore, name)
    }

    pub(crate) fn knows(&self, name: &[u8]) -> bool {
        self.ignores(name) || contains(&self.key, name)
    }
}

fn contains(names: &BTreeSet<String>, name: &[u8]) -> bool {
    std::str::from_utf8(name).is_ok_and(|name| names.contains(name))
}

/// What requests do to the data that pages are made of (rule P10).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Writes {
    /// Unsafe methods write; each is an update of everything.
    #[default]
    UnsafeMethods,
    /// Unsafe methods write; the application announces what, by a bracket of its own.
    Announced,
    /// Every request writes, GET too.
    Always,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_decides_at_borders_of_segments() {
        let routes = ["/", "/shop", "/shop/cart/"].map(|prefix| Route { prefix: prefix.into(), ..Route::default() });
        let found = |path| Route::find(&routes, path).map(|route| route.prefix.as_str());
        assert_eq!(found("/shop"), Some("/shop"));
        assert_eq!(found("/shop/1"), Some("/shop"));
        assert_eq!(found("/shopping"), Some("/"));
        assert_eq!(found("/shop/cart/7"), Some("/shop/cart/"));
        assert_eq!(Route::find(&routes[1..], "/about"), None);
    }
}
