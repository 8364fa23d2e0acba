//! `Accept-Language` against the languages that an application has (RFC 4647 section 3.4): each client spells what it reads otherwise, and an application with two languages would have a
//! copy for each spelling.

use std::cmp::Reverse;

use http::header::ACCEPT_LANGUAGE;
use http::{HeaderMap, HeaderValue};

use crate::control::split_list;

/// Ranges of one request that are looked at.
const MOST_RANGES: usize = 32;

/// The languages of a route's pages. None: the field is the application's own business.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Languages(pub(crate) Vec<String>);

impl Languages {
    /// These, in the order in which they are preferred where a client has no preference.
    pub fn of(languages: impl IntoIterator<Item = String>) -> Self {
        Languages(languages.into_iter().collect())
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The language that a request gets. `None`: the request names none of these languages, and the application chooses, without
    /// seeing what it names.
    ///
    /// `de-AT` is met by `de`, and `de` by `de-AT` where there is no `de`.
    pub fn chosen(&self, request: &HeaderMap) -> Option<&str> {
        let mut ranges: Vec<(u16, &[u8])> = Vec::new();
        let lines = request.get_all(ACCEPT_LANGUAGE).into_iter();
        for element in lines.flat_map(|line| split_list(line.as_bytes())).take(MOST_RANGES) {
            let mut parts = element.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
            let range = parts.next().unwrap_or_default();
            ranges.push((parts.next().map_or(1000, crate::coding::weight), range));
        }
        // Those of one weight stay in their order.
        ranges.sort_by_key(|(weight, _)| Reverse(*weight));
        let refused: Vec<&[u8]> = ranges.iter().filter(|(weight, _)| *weight == 0).map(|(_, range)| *range).collect();
        let wanted = ranges.iter().filter(|(weight, _)| *weight > 0).map(|(_, range)| *range);
        let may_be = |language: &&String| !refused.iter().any(|range| language.as_bytes().eq_ignore_ascii_case(range));
        let mut there = wanted.filter_map(|range| self.met(range, &may_be));
        there.next()
    }

    /// The one that meets a range.
    fn met(&self, range: &[u8], may_be: &impl Fn(&&String) -> bool) -> Option<&str> {
        let is_in = |inner: &[u8], outer: &[u8]| {
            let begins = inner.get(..outer.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(outer));
            begins && inner.get(outer.len()).is_none_or(|byte| *byte == b'-')
        };
        let there = || self.0.iter().filter(may_be);
        let found = match range {
            b"*" => there().next(),
            b"" => None,
            // The nearest that is as wide as the range or wider, else the first that is narrower.
            range => there()
                .filter(|language| is_in(range, language.as_bytes()))
                .max_by_key(|language| language.len())
                .or_else(|| there().find(|language| is_in(language.as_bytes(), range))),
        };
        found.map(String::as_str)
    }

    /// Makes the field say what was chosen and no more: what the origin does not see, its answer cannot depend on.
    pub(crate) fn ask_for(&self, request: &mut HeaderMap) {
        if self.is_empty() || !request.contains_key(ACCEPT_LANGUAGE) {
            return;
        }
        let chosen = self.chosen(request).and_then(|language| HeaderValue::try_from(language).ok());
        request.remove(ACCEPT_LANGUAGE);
        if let Some(chosen) = chosen {
            request.insert(ACCEPT_LANGUAGE, chosen);
        }
    }
}

/// Whether it is a tag of a language by its form: `de`, `pt-BR`, `zh-Hant-TW`.
pub fn is_language(tag: &str) -> bool {
    let is_part = |part: &str| (1..=8).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let first = tag.split('-').next().unwrap_or_default();
    tag.split('-').all(is_part) && first.len() > 1 && first.bytes().all(|byte| byte.is_ascii_alphabetic())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(line: &str) -> HeaderMap {
        HeaderMap::from_iter([(ACCEPT_LANGUAGE, line.parse().unwrap())])
    }

    #[test]
    fn each_spelling_is_one_of_the_languages_or_none() {
        let languages = Languages::of(["de", "en", "pt-BR"].map(String::from));
        for (line, expected) in [
            ("de", Some("de")),
            ("DE", Some("de")),
            ("de-AT, de;q=0.9, en;q=0.8", Some("de")),
            ("en-US,en;q=0.5", Some("en")),
            ("fr, en;q=0.1", Some("en")),
            ("en;q=0.5, de", Some("de")),
            ("en ; q = 0.5 ,, de ; q=0.6", Some("de")),
            ("pt", Some("pt-BR")),
            ("pt-br-x-own", Some("pt-BR")),
            ("pt-PT", None),
            ("*", Some("de")),
            ("fr, *;q=0.1", Some("de")),
            ("de;q=0, *", Some("en")),
            ("de;q=0", None),
            ("d", None),
            ("deu", None),
            ("fr", None),
            ("", None),
        ] {
            assert_eq!(languages.chosen(&request(line)), expected, "{line}");
        }
        assert_eq!(languages.chosen(&HeaderMap::new()), None);
    }

    #[test]
    fn the_application_is_asked_for_what_was_chosen_and_no_more() {
        let languages = Languages::of(["de", "en"].map(String::from));
        for (line, expected) in [("de-AT, en;q=0.8", Some("de")), ("fr", None)] {
            let mut asked = request(line);
            languages.ask_for(&mut asked);
            assert_eq!(asked.get(ACCEPT_LANGUAGE).map(|said| said.to_str().unwrap()), expected, "{line}");
        }
        let mut as_it_came = request("de-AT, en;q=0.8");
        Languages::default().ask_for(&mut as_it_came);
        assert_eq!(as_it_came, request("de-AT, en;q=0.8"));
    }

    #[test]
    fn a_language_has_the_form_of_one() {
        assert!(["de", "pt-BR", "zh-Hant-TW", "en-GB-oed"].iter().all(|tag| is_language(tag)));
        assert!(["", "d", "de_AT", "*", "de-", "de;q=1", "1a"].iter().all(|tag| !is_language(tag)));
    }
}
