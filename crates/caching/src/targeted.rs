//! Fields for some caches alone (RFC 9213): for this one `Verbena-Cache-Control`, and for all that stand before an application
//! `CDN-Cache-Control`. The first that can be read takes the place of `Cache-Control` and `Expires`.

use http::HeaderMap;
use sfv::{BareItem, ListEntry, Parser};

use crate::control::CacheControl;

/// The targets of this cache, the nearest first.
const TARGETS: [&str; 2] = ["verbena-cache-control", "cdn-cache-control"];

/// In the place of an argument of a kind that no directive has.
const NO_ARGUMENT: &str = "?";

/// What the nearest field says. One that is no dictionary, or an empty one, is as if it were not there (section 2.1).
pub(crate) fn of(answer: &HeaderMap) -> Option<CacheControl> {
    TARGETS.iter().find_map(|name| read(answer, name))
}

fn read(answer: &HeaderMap, name: &str) -> Option<CacheControl> {
    let lines: Vec<&[u8]> = answer.get_all(name).into_iter().map(|line| line.as_bytes()).collect();
    let dictionary: sfv::Dictionary = Parser::new(&lines.join(&b", "[..])).parse().ok()?;
    if dictionary.is_empty() {
        return None;
    }
    let mut control = CacheControl::default();
    for (directive, value) in &dictionary {
        // What has an argument that it does not have is believed to be said all the same, and no life can be read from it.
        let ListEntry::Item(item) = value else {
            control.directive(directive.as_str(), Some(NO_ARGUMENT));
            continue;
        };
        let argument = match &item.bare_item {
            // `?0` says that it is not so.
            BareItem::Boolean(false) => continue,
            BareItem::Boolean(true) => None,
            BareItem::Integer(number) => Some(number.to_string()),
            BareItem::String(text) => Some(text.as_str().to_owned()),
            BareItem::Token(text) => Some(text.as_str().to_owned()),
            _ => Some(NO_ARGUMENT.to_owned()),
        };
        control.directive(directive.as_str(), argument.as_deref());
    }
    Some(control)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::HeaderName;

    use super::*;

    fn told(fields: &[(&'static str, &str)]) -> Option<CacheControl> {
        let mut answer = HeaderMap::new();
        for (name, value) in fields {
            answer.append(HeaderName::from_static(name), value.parse().unwrap());
        }
        of(&answer)
    }

    #[test]
    fn the_nearest_field_that_can_be_read_counts() {
        let both = [("cdn-cache-control", "max-age=60"), ("verbena-cache-control", "max-age=5, private")];
        let nearest = told(&both).unwrap();
        assert_eq!((nearest.max_age.least, nearest.private), (Some(Duration::from_secs(5)), true));
        let broken = [both[0], ("verbena-cache-control", "max-age=5, &")];
        assert_eq!(told(&broken).unwrap().max_age.least, Some(Duration::from_secs(60)));
        assert_eq!(told(&[("cdn-cache-control", "")]), None);
        assert_eq!(told(&[("cdn-cache-control", "max-age=60, Private")]), None, "a key has no capitals");
        assert_eq!(told(&[("surrogate-control", "max-age=60")]), None);
    }

    #[test]
    fn what_is_said_not_to_be_so_is_not_so() {
        let told = told(&[("cdn-cache-control", "no-store=?0, must-revalidate, max-age=\"x\"")]).unwrap();
        assert!(!told.no_store && told.must_revalidate && told.is_garbled);
        let odd = self::tests::told(&[("cdn-cache-control", "max-age=1.5, private=(\"a\"), no-store=1.5")]).unwrap();
        assert!(odd.is_garbled && odd.private && odd.no_store, "doubt means that it is not shared");
    }
}
