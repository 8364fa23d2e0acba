//! What a `PURGE` request names, in the dialects of the plugins that send one.
//!
//! | request | names | sent by |
//! |---|---|---|
//! | `PURGE /PATH?QUERY` | the page at this address, and at its path with any query where the route changes queries | MediaWiki, Drupal, FOSHttpCache, WordPress plugins |
//! | with `X-Purge-Method: regex` and a path that ends in `.*` | all pages whose path begins so, widened to whole segments | WordPress plugins |
//! | with `Surrogate-Key`, `xkey-purge`, `xkey`, `Purge-Cache-Tags` | what bears one of these names, between spaces | FOSHttpCache, TYPO3, Drupal |
//! | with `Cache-Tag` or `Cache-Tags` | the same, between commas | Drupal |

use http::request;

use crate::key::{Key, Keys};
use crate::route::Route;

/// The method.
pub const PURGE: &str = "PURGE";

/// Fields that have names between spaces.
const SPACED: [&str; 4] = ["surrogate-key", "xkey-purge", "xkey", "purge-cache-tags"];
/// Fields that have names between commas.
const LISTED: [&str; 2] = ["cache-tag", "cache-tags"];

/// What is to be purged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Purge {
    /// Pages, or what pages are found by (rule H2).
    pub keys: Vec<Key>,
    /// Names of dependencies.
    pub names: Vec<Vec<u8>>,
}

impl Purge {
    /// Of a request's head as [`received`](crate::received) left it. One that has names is about them and not about its address.
    pub fn of(head: &request::Parts, route: &Route, keys: &Keys) -> Self {
        let named = |fields: &[&str], is_between: fn(&u8) -> bool| {
            let lines = fields.iter().flat_map(|name| head.headers.get_all(*name)).map(|line| line.as_bytes());
            let names = lines.flat_map(move |line| line.split(is_between).map(<[u8]>::trim_ascii));
            names.filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect::<Vec<_>>()
        };
        let mut names = named(&SPACED, u8::is_ascii_whitespace);
        names.extend(named(&LISTED, |byte| *byte == b','));
        if !names.is_empty() {
            return Purge { keys: Vec::new(), names };
        }
        let is_regex = head.headers.get("x-purge-method").is_some_and(|method| method.as_bytes() == b"regex");
        if let Some(begin) = head.uri.path().strip_suffix(".*").filter(|_| is_regex) {
            return Purge { keys: vec![keys.of_wider_prefix(head, begin)], names };
        }
        Purge { keys: keys.of_target(head, route).collect(), names }
    }
}

#[cfg(test)]
mod tests {
    use http::Request as Http;

    use super::*;

    fn keys() -> Keys {
        Keys::new([7; 16])
    }

    fn of(target: &str, fields: &[(&str, &str)]) -> Purge {
        let builder = Http::builder().method(PURGE).uri(target).header("host", "shop");
        let builder = fields.iter().fold(builder, |builder, (name, value)| builder.header(*name, *value));
        Purge::of(&builder.body(()).unwrap().into_parts().0, &Route::default(), &keys())
    }

    #[test]
    fn each_dialect_names_what_its_plugin_means() {
        assert_eq!(of("/a?b", &[]).keys, [keys().of_page("shop", "/a?b").unwrap()]);
        let names = |fields: &[(&str, &str)]| of("/", fields).names;
        let text = |names: &[&str]| names.iter().map(|name| name.as_bytes().to_vec()).collect::<Vec<_>>();
        assert_eq!(names(&[("xkey-purge", "a  b")]), text(&["a", "b"]));
        assert_eq!(names(&[("Cache-Tag", "a b, c,"), ("surrogate-key", "d")]), text(&["d", "a b", "c"]));
        assert_eq!(of("/", &[("xkey", "a")]).keys, [], "it is about names");
        let under = |target| of(target, &[("x-purge-method", "regex")]).keys;
        let prefix = |prefix| vec![keys().of_prefix("shop", prefix).unwrap()];
        assert_eq!((under("/a/b/.*"), under("/.*")), (prefix("/a/b"), prefix("/")));
        assert_eq!(under("/a/b.*"), prefix("/a"), "`/a/bc` begins so too");
        assert_eq!(of("/a/.*", &[]).keys, [keys().of_page("shop", "/a/.*").unwrap()], "no regex");
        let deep = format!("{}/.*", "/d".repeat(20));
        assert_eq!(under(&deep), prefix(&"/d".repeat(16)), "no page is found by more of its path");
    }
}
