//! What a `PURGE` request names, in the dialects of the plugins that send one.
//!
//! | request | names | sent by |
//! |---|---|---|
//! | `PURGE /PATH?QUERY` | the page at this address, and at its path with any query where the route changes queries | MediaWiki, Drupal, FOSHttpCache, WordPress plugins |
//! | with `X-Purge-Method: regex` and a path that ends in `.*` | all pages whose path begins so, widened to whole segments | WordPress plugins |
//! | with `Surrogate-Key`, `xkey-purge`, `xkey`, `Purge-Cache-Tags` | what bears one of these names, between spaces | FOSHttpCache, TYPO3, Drupal |
//! | with `Cache-Tag` or `Cache-Tags` | the same, between commas | Drupal |
//! | with `xkey-softpurge` | as `xkey-purge`, softly | FOSHttpCache |
//! | with `Fastly-Soft-Purge: 1` | as without, softly | what speaks to Fastly |
//!
//! `PURGEKEYS`, which FOSHttpCache sends, is `PURGE` with names: without one it names nothing.

use http::request;

use crate::key::{Key, Keys};
use crate::route::Route;

/// The method.
pub const PURGE: &str = "PURGE";

/// The same method where names must be given.
pub const PURGEKEYS: &str = "PURGEKEYS";

/// Has names between spaces, whose pages are to be purged softly.
const SOFTLY: &str = "xkey-softpurge";
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
    /// Copies are old and not wrong: they may be used as RFC 5861 allows, and be asked about (rule H3).
    pub is_soft: bool,
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
        let softly = named(&[SOFTLY], u8::is_ascii_whitespace);
        let says_soft = head.headers.get("fastly-soft-purge").is_some_and(|soft| soft.as_bytes() == b"1");
        // One purge is of one kind: where a name is to be purged hard, all are.
        let is_soft = says_soft || (names.is_empty() && !softly.is_empty());
        names.extend(softly);
        if !names.is_empty() || head.method.as_str() == PURGEKEYS {
            return Purge { keys: Vec::new(), names, is_soft };
        }
        let is_regex = head.headers.get("x-purge-method").is_some_and(|method| method.as_bytes() == b"regex");
        if let Some(begin) = head.uri.path().strip_suffix(".*").filter(|_| is_regex) {
            return Purge { keys: vec![keys.of_wider_prefix(head, begin)], names, is_soft };
        }
        Purge { keys: keys.of_target(head, route).collect(), names, is_soft }
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
    fn a_purge_is_soft_where_all_of_it_says_so() {
        let is_soft = |fields: &[(&str, &str)]| of("/", fields).is_soft;
        assert!(is_soft(&[("fastly-soft-purge", "1")]) && is_soft(&[("xkey-softpurge", "a")]));
        assert!(is_soft(&[("fastly-soft-purge", "1"), ("surrogate-key", "a")]));
        assert!(!is_soft(&[]) && !is_soft(&[("fastly-soft-purge", "0")]) && !is_soft(&[("xkey-purge", "a")]));
        assert!(!is_soft(&[("xkey-softpurge", "a"), ("xkey-purge", "b")]), "b is to be gone");
        assert!(!is_soft(&[("xkey-softpurge", " ")]), "it names nothing, so the request is about its address");
    }

    #[test]
    fn each_dialect_names_what_its_plugin_means() {
        assert_eq!(of("/a?b", &[]).keys, [keys().of_page("shop", "/a?b").unwrap()]);
        let names = |fields: &[(&str, &str)]| of("/", fields).names;
        let text = |names: &[&str]| names.iter().map(|name| name.as_bytes().to_vec()).collect::<Vec<_>>();
        assert_eq!(names(&[("xkey-purge", "a  b")]), text(&["a", "b"]));
        assert_eq!(names(&[("Cache-Tag", "a b, c,"), ("surrogate-key", "d")]), text(&["d", "a b", "c"]));
        assert_eq!(of("/", &[("xkey", "a")]).keys, [], "it is about names");
        assert_eq!(names(&[("xkey-softpurge", "a b")]), text(&["a", "b"]));
        let under = |target| of(target, &[("x-purge-method", "regex")]).keys;
        let prefix = |prefix| vec![keys().of_prefix("shop", prefix).unwrap()];
        assert_eq!((under("/a/b/.*"), under("/.*")), (prefix("/a/b"), prefix("/")));
        assert_eq!(under("/a/b.*"), prefix("/a"), "`/a/bc` begins so too");
        assert_eq!(of("/a/.*", &[]).keys, [keys().of_page("shop", "/a/.*").unwrap()], "no regex");
        let deep = format!("{}/.*", "/d".repeat(20));
        assert_eq!(under(&deep), prefix(&"/d".repeat(16)), "no page is found by more of its path");
    }
}
