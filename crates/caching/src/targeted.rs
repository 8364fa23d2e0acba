//! Fields for some caches alone (RFC 9213): for this one `Verbena-Cache-Control`, and for all that stand before an application
//! `CDN-Cache-Control`; then `Surrogate-Control`, which was there before them. The first that can be read takes the place of `Cache-Control` and `Expires`.

use http::{HeaderMap, HeaderName};
use sfv::{BareItem, ListEntry, Parser};

use crate::control::CacheControl;

/// The targets of this cache, the nearest first.
const TARGETS: [&str; 2] = ["verbena-cache-control", "cdn-cache-control"];

/// What applications say to the caches before them since long (Edge Architecture Specification section 2.2). Most of what it says is about other things
/// than caching.
const SURROGATE_CONTROL: HeaderName = HeaderName::from_static("surrogate-control");

/// Directives whose argument is a number of seconds.
const SECONDS: [&str; 4] = ["max-age", "s-maxage", "stale-if-error", "stale-while-revalidate"];

/// In the place of an argument of a kind that no directive has.
const NO_ARGUMENT: &str = "?";

/// What the nearest field says. A field that is no dictionary, is empty, or has lifetimes that are no numbers is as if it were not there (section 2.1); but
/// what it refuses is refused.
pub(crate) fn of(answer: &HeaderMap) -> Option<CacheControl> {
    TARGETS.iter().find_map(|name| read(answer, name)).or_else(|| of_surrogates(answer))
}

fn dictionary(answer: &HeaderMap, name: &str) -> Option<sfv::Dictionary> {
    let lines: Vec<&[u8]> = answer.get_all(name).into_iter().map(|line| line.as_bytes()).collect();
    let dictionary: sfv::Dictionary = Parser::new(&lines.join(&b", "[..])).parse().ok()?;
    (!dictionary.is_empty()).then_some(dictionary)
}

fn read(answer: &HeaderMap, name: &str) -> Option<CacheControl> {
    let (mut control, mut has_life_of_no_number) = (CacheControl::default(), false);
    for (directive, value) in &dictionary(answer, name)? {
        let mut is_number = false;
        // A directive with an argument that it does not take counts as said all the same, and no lifetime can be read from
        // it.
        let argument = match value {
            ListEntry::Item(item) => match &item.bare_item {
                // `?0` says that it is not so.
                BareItem::Boolean(false) => continue,
                BareItem::Boolean(true) => None,
                BareItem::Integer(number) => {
                    is_number = true;
                    Some(number.to_string())
                }
                BareItem::String(text) => Some(text.as_str().to_owned()),
                BareItem::Token(text) => Some(text.as_str().to_owned()),
                _ => Some(NO_ARGUMENT.to_owned()),
            },
            ListEntry::InnerList(_) => Some(NO_ARGUMENT.to_owned()),
        };
        has_life_of_no_number |= SECONDS.contains(&directive.as_str()) && !is_number;
        control.directive(directive.as_str(), argument.as_deref());
    }
    let is_believed = !has_life_of_no_number || control.no_store || control.private;
    is_believed.then_some(control)
}

/// A refusal however it is written, or a lifetime that is for all surrogates: one with a parameter is for the one that it
/// names.
fn of_surrogates(answer: &HeaderMap) -> Option<CacheControl> {
    if !answer.contains_key(SURROGATE_CONTROL) {
        return None;
    }
    let refused = CacheControl::of_field(answer, &SURROGATE_CONTROL);
    if refused.no_store || refused.private {
        let (no_store, private) = (refused.no_store, refused.private);
        return Some(CacheControl { no_store, private, ..CacheControl::default() });
    }
    let said = dictionary(answer, SURROGATE_CONTROL.as_str())?;
    let ListEntry::Item(life) = said.get("max-age")? else { return None };
    let BareItem::Integer(seconds) = life.bare_item else { return None };
    let mut control = CacheControl::default();
    control.directive("max-age", Some(&seconds.to_string()));
    life.params.is_empty().then_some(control)
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
    }

    #[test]
    fn what_is_said_not_to_be_so_is_not_so() {
        let said = |line| told(&[("cdn-cache-control", line)]);
        let told = said("no-store=?0, must-revalidate, max-age=-1").unwrap();
        assert!(!told.no_store && told.must_revalidate && told.is_garbled);
        for life in ["max-age=\"60\"", "max-age=1.5", "max-age", "s-maxage=x, must-revalidate", "max-age=(1 2)"] {
            assert_eq!(said(life), None, "{life}: a life is a number");
        }
        let odd = said("max-age=1.5, private=(\"a\"), no-store=1.5").unwrap();
        assert!(odd.is_garbled && odd.private && odd.no_store, "doubt means that it is not shared");
    }

    #[test]
    fn what_is_said_to_surrogates_is_a_life_or_a_refusal() {
        let said = |line| told(&[("surrogate-control", line)]);
        let life = said("max-age=60, content=\"ESI/1.0\"").unwrap().max_age.least;
        assert_eq!(life, Some(Duration::from_secs(60)));
        assert!(said("No-Store").unwrap().no_store && said("max-age=60+5;other, no-store").unwrap().no_store);
        for other in ["content=\"ESI/1.0\"", "max-age=60;other", "max-age=60+600", "MAX-AGE=60", "content=\"no-store\""]
        {
            assert_eq!(said(other), None, "{other}");
        }
        let nearer = [("surrogate-control", "max-age=60"), ("cdn-cache-control", "max-age=5")];
        assert_eq!(told(&nearer).unwrap().max_age.least, Some(Duration::from_secs(5)));
    }
}
