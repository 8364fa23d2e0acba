//! What the fuzz targets `range`, `targeted_field`, `purge_headers` and `accept_list` drive: fields of which a second, much simpler reading knows what must come of
//! them, wherever it understands them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, SystemTime};

use http::header::{ACCEPT_ENCODING, ACCEPT_LANGUAGE, ETAG, HOST, IF_RANGE, RANGE};
use http::{HeaderMap, HeaderName, HeaderValue, Request as Http, StatusCode, request};

use crate::{
    Arrival, Coding, Codings, Cookies, Keys, Languages, MOST_RANGES, Mode, PURGE, Parts, Purge, Request, Route, parts,
    store,
};

/// The tag of the page of which parts are asked for.
const TAG: &str = "\"1\"";
/// A lifetime in `Cache-Control` that no input of the corpus has.
const OTHER_LIFE: u32 = 4_321;

fn lines(input: &[u8]) -> impl Iterator<Item = &[u8]> {
    input.split(|byte| *byte == b'\n')
}

/// The fields in these lines.
fn fields(input: &[u8]) -> HeaderMap {
    let field = |line: &[u8]| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let name = HeaderName::from_bytes(&line[..colon]).ok()?;
        Some((name, HeaderValue::from_bytes(line[colon + 1..].trim_ascii()).ok()?))
    };
    let mut headers = HeaderMap::new();
    for (name, value) in lines(input).take(64).filter_map(field) {
        headers.append(name, value);
    }
    headers
}

fn head(headers: HeaderMap) -> request::Parts {
    let mut head = Http::get("/a").body(()).expect("invariant: a request").into_parts().0;
    head.headers = headers;
    head
}

/// Reads `LENGTH`, a line of `Range`, and perhaps one of `If-Range`. What came of it.
///
/// # Panics
/// If a part is not within the page, or not what a simpler reading makes of the field.
pub fn range(input: &[u8]) -> Option<Parts> {
    let mut lines = lines(input);
    let length: u32 = str::from_utf8(lines.next()?).ok()?.parse().ok()?;
    let asked = HeaderValue::from_bytes(lines.next()?).ok()?;
    let condition = lines.next().and_then(|line| HeaderValue::from_bytes(line).ok());
    let mut headers = HeaderMap::from_iter([(RANGE, asked.clone())]);
    if let Some(condition) = &condition {
        headers.insert(IF_RANGE, condition.clone());
    }
    let page = HeaderMap::from_iter([(ETAG, HeaderValue::from_static(TAG))]);
    let length = u64::from(length);
    let parts = parts(&head(headers), &page, length);
    if condition.is_some_and(|condition| condition != TAG) {
        assert_eq!(parts, Parts::Whole, "a condition that does not hold");
    } else if let Some(expected) = plain_ranges(asked.as_bytes(), length) {
        assert_eq!(parts, expected, "{asked:?} of {length}");
    }
    if let Parts::Of(of) = &parts {
        assert!((1..=MOST_RANGES).contains(&of.len()));
        assert!(of.iter().all(|part| part.start < part.end && part.end <= length), "{of:?} of {length}");
    }
    Some(parts)
}

/// What `bytes=FIRST-LAST,...` asks for, where it is written without anything else and in numbers of 9 digits at most.
fn plain_ranges(field: &[u8], length: u64) -> Option<Parts> {
    let list = field.strip_prefix(b"bytes=")?;
    let mut there: Vec<Range<u64>> = Vec::new();
    let mut named = 0;
    for range in list.split(|byte| *byte == b',') {
        let dash = range.iter().position(|byte| *byte == b'-')?;
        let (first, last) = (plain_number(&range[..dash]), plain_number(&range[dash + 1..]));
        let (begin, end) = match (range[..dash].is_empty(), range[dash + 1..].is_empty()) {
            (true, true) => return None,
            (true, false) => (length.saturating_sub(last?), length),
            (false, true) => (first?, length),
            (false, false) => (first?, (last? + 1).min(length)),
        };
        if !range[..dash].is_empty() && !range[dash + 1..].is_empty() && first? > last? {
            return Some(Parts::Whole);
        }
        named += 1;
        if begin < end {
            there.push(begin..end);
        }
    }
    let bytes: u64 = there.iter().map(|part| part.end - part.start).sum();
    Some(match there.len() {
        _ if named > MOST_RANGES => Parts::Whole,
        0 => Parts::Unsatisfiable,
        2.. if bytes > length => Parts::Whole,
        _ => Parts::Of(there),
    })
}

fn plain_number(digits: &[u8]) -> Option<u64> {
    let is_plain = (1..=9).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
    str::from_utf8(digits).ok().filter(|_| is_plain)?.parse().ok()
}

/// What a simpler reading made of the nearest targeted field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Targeted {
    /// There is no targeted field that it understands.
    NotRead,
    /// It forbids to store.
    Refused,
    /// It states a lifetime of this many seconds.
    Lives(u32),
}

/// Reads lines of fields as an answer's, and stores it.
///
/// # Panics
/// If what the nearest targeted field says, simply and clearly, is not what holds.
pub fn targeted_field(input: &[u8]) -> Targeted {
    let mut headers = fields(input);
    for name in ["cache-control", "expires", "age", "date", "set-cookie", "vary", "pragma", "trailer", "content-type"] {
        headers.remove(name);
    }
    let other = HeaderValue::try_from(format!("max-age={OTHER_LIFE}"));
    headers.insert("cache-control", other.expect("invariant: a number is text"));
    headers.insert("content-length", HeaderValue::from_static("1"));
    headers.insert(ETAG, HeaderValue::from_static(TAG));
    let asked = head(HeaderMap::from_iter([(HOST, HeaderValue::from_static("shop"))]));
    let route = Route { mode: Mode::Standard, ..Route::default() };
    let request = Request::of(&asked, false, &route, &Keys::new([7; 16]));
    let (status, at) = (StatusCode::OK, SystemTime::UNIX_EPOCH);
    let arrival = Arrival { status, headers: &headers, at, on_its_way: Duration::ZERO };
    let stored = store(&request, &asked, &route, &arrival);
    let said = plain_directives(&headers);
    match said {
        Targeted::NotRead => {}
        Targeted::Refused => assert!(stored.is_err(), "{headers:?}"),
        Targeted::Lives(seconds) => {
            let lifetime = stored.ok().and_then(|stored| stored.standard);
            assert_eq!(lifetime.map(|life| life.fresh_for), Some(seconds), "{headers:?}");
        }
    }
    said
}

/// Of one line whose members are words, some with a number of 9 digits at most.
fn plain_directives(headers: &HeaderMap) -> Targeted {
    let Some(name) = ["verbena-cache-control", "cdn-cache-control"].iter().find(|name| headers.contains_key(**name))
    else {
        return Targeted::NotRead;
    };
    let mut lines = headers.get_all(*name).iter();
    let (Some(line), None) = (lines.next(), lines.next()) else { return Targeted::NotRead };
    let mut said: BTreeMap<&[u8], Option<u64>> = BTreeMap::new();
    for member in line.as_bytes().split(|byte| *byte == b',') {
        let member = member.trim_ascii();
        let at = member.iter().position(|byte| *byte == b'=');
        let (word, number) = match at {
            None => (member, None),
            Some(at) => match plain_number(&member[at + 1..]) {
                Some(number) => (&member[..at], Some(number)),
                None => return Targeted::NotRead,
            },
        };
        let is_word = word.first().is_some_and(u8::is_ascii_lowercase)
            && word.iter().all(|byte| byte.is_ascii_lowercase() || *byte == b'-');
        if !is_word {
            return Targeted::NotRead;
        }
        said.insert(word, number);
    }
    let is_said = |word: &str| said.contains_key(word.as_bytes());
    let seconds = |word: &str| said.get(word.as_bytes()).copied().flatten();
    let has_life_of_no_number = ["max-age", "s-maxage", "stale-if-error", "stale-while-revalidate"]
        .iter()
        .any(|word| is_said(word) && seconds(word).is_none());
    if is_said("must-understand") || is_said("no-cache") {
        return Targeted::NotRead;
    }
    if is_said("no-store") || is_said("private") {
        return Targeted::Refused;
    }
    match seconds("s-maxage").or_else(|| seconds("max-age")).and_then(|life| u32::try_from(life).ok()) {
        Some(life) if !has_life_of_no_number => Targeted::Lives(life),
        _ => Targeted::NotRead,
    }
}

/// Reads lines of fields as those of a `PURGE` request.
///
/// # Panics
/// If a name is lost or made up, or what is to be purged hard is purged softly.
pub fn purge_headers(input: &[u8]) -> Purge {
    let mut headers = fields(input);
    headers.insert(HOST, HeaderValue::from_static("shop"));
    let mut head = head(headers);
    head.method = PURGE.parse().expect("invariant: a method");
    let purge = Purge::of(&head, &Route::default(), &Keys::new([7; 16]));
    let said = |names: &[&str], between: &[u8]| -> Vec<Vec<u8>> {
        let lines = names.iter().flat_map(|name| head.headers.get_all(*name)).map(HeaderValue::as_bytes);
        let words = lines.flat_map(|line| line.split(|byte| between.contains(byte)));
        words.map(<[u8]>::trim_ascii).filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect()
    };
    let mut hard = said(&["surrogate-key", "xkey-purge", "xkey", "purge-cache-tags"], b" \t");
    hard.extend(said(&["cache-tag", "cache-tags"], b","));
    let soft = said(&["xkey-softpurge"], b" \t");
    assert!(hard.iter().chain(&soft).all(|name| purge.names.contains(name)), "a name is lost: {purge:?}");
    assert!(purge.names.iter().all(|name| hard.contains(name) || soft.contains(name)), "made up: {purge:?}");
    assert!(purge.keys.is_empty() != purge.names.is_empty(), "{purge:?}");
    let says_soft = head.headers.get("fastly-soft-purge").is_some_and(|value| value == "1");
    assert!(!purge.is_soft || says_soft || (hard.is_empty() && !soft.is_empty()), "{purge:?}");
    purge
}

/// Reads lines of `Accept-Encoding` and `Accept-Language`. What was chosen.
///
/// # Panics
/// If the chosen one does not exist, or the client refuses it.
pub fn accept_list(input: &[u8]) -> (Option<Coding>, Option<String>) {
    let asked = fields(input);
    let mut headers = HeaderMap::new();
    for name in [ACCEPT_ENCODING, ACCEPT_LANGUAGE] {
        for line in asked.get_all(&name) {
            headers.append(&name, line.clone());
        }
    }
    let languages = Languages::of(["de", "en", "pt-BR"].map(String::from));
    let language = languages.chosen(&headers).map(str::to_owned);
    let named = |name: &HeaderName, word: &str| {
        let lines = headers.get_all(name).into_iter().map(HeaderValue::as_bytes);
        let elements = lines.flat_map(|line| line.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii);
        let mut elements: Vec<Vec<u8>> = elements.map(<[u8]>::to_ascii_lowercase).collect();
        elements.retain(|element| element.starts_with(word.to_ascii_lowercase().as_bytes()));
        elements
    };
    let is_refused = |name: &HeaderName, word: &str| {
        let refusal = format!("{word};q=0").to_ascii_lowercase().into_bytes();
        let is_all = |name: &HeaderName| headers.get_all(name).iter().any(|line| line.as_bytes().contains(&b'*'));
        let is_quoted = headers.get_all(name).iter().any(|line| line.as_bytes().contains(&b'"'));
        named(name, word) == [refusal] && !is_all(name) && !is_quoted
    };
    if let Some(language) = &language {
        assert!(["de", "en", "pt-BR"].contains(&language.as_str()));
        assert!(!is_refused(&ACCEPT_LANGUAGE, language), "{language}: {headers:?}");
        let again = HeaderMap::from_iter([(ACCEPT_LANGUAGE, language.parse().expect("invariant: a language"))]);
        assert_eq!(languages.chosen(&again), Some(language.as_str()), "what is asked for is what is chosen");
    }
    let head = head(headers.clone());
    let coding = Codings::of(Coding::ALL).accepted(&head, &Cookies::default());
    if let Some(coding) = coding {
        assert!(!is_refused(&ACCEPT_ENCODING, coding.name()), "{coding:?}: {headers:?}");
        let is_named = !named(&ACCEPT_ENCODING, coding.name()).is_empty();
        let is_any = headers.get_all(ACCEPT_ENCODING).iter().any(|line| line.as_bytes().contains(&b'*'));
        let has_other_name = !named(&ACCEPT_ENCODING, "x-gzip").is_empty();
        assert!(is_named || is_any || has_other_name, "{coding:?} out of nothing: {headers:?}");
    }
    (coding, language)
}

#[cfg(test)]
mod tests {
    use verbena_terms::testing::corpus;

    use super::*;

    #[test]
    fn every_outcome_of_a_range_is_in_the_corpus() {
        let all: Vec<Parts> = corpus("range").iter().filter_map(|input| range(input)).collect();
        let count = |is: fn(&Parts) -> bool| all.iter().filter(|parts| is(parts)).count();
        assert!(count(|parts| *parts == Parts::Whole) >= 3 && count(|parts| *parts == Parts::Unsatisfiable) >= 2);
        assert!(count(|parts| matches!(parts, Parts::Of(of) if of.len() == 1)) >= 2);
        assert!(count(|parts| matches!(parts, Parts::Of(of) if of.len() > 1)) >= 2);
    }

    #[test]
    fn every_outcome_of_a_targeted_field_is_in_the_corpus() {
        let all: Vec<Targeted> = corpus("targeted_field").iter().map(|input| targeted_field(input)).collect();
        let count = |is: fn(&Targeted) -> bool| all.iter().filter(|said| is(said)).count();
        assert!(count(|said| *said == Targeted::NotRead) >= 3 && count(|said| *said == Targeted::Refused) >= 2);
        assert!(count(|said| matches!(said, Targeted::Lives(life) if *life != OTHER_LIFE)) >= 3);
    }

    #[test]
    fn purges_of_both_kinds_are_in_the_corpus() {
        let all: Vec<Purge> = corpus("purge_headers").iter().map(|input| purge_headers(input)).collect();
        let count = |is: fn(&Purge) -> bool| all.iter().filter(|purge| is(purge)).count();
        assert!(count(|purge| purge.is_soft && purge.names.is_empty()) >= 1);
        assert!(count(|purge| purge.is_soft && !purge.names.is_empty()) >= 2);
        assert!(count(|purge| !purge.is_soft && purge.names.len() > 1) >= 2);
        assert!(count(|purge| !purge.keys.is_empty()) >= 2);
    }

    #[test]
    fn what_is_accepted_and_what_is_not_is_in_the_corpus() {
        let all: Vec<_> = corpus("accept_list").iter().map(|input| accept_list(input)).collect();
        let codings = all.iter().filter_map(|(coding, _)| *coding);
        assert!(Coding::ALL.iter().all(|coding| codings.clone().any(|accepted| accepted == *coding)));
        let languages = all.iter().filter_map(|(_, language)| language.as_deref());
        assert!(["de", "en", "pt-BR"].iter().all(|language| languages.clone().any(|chosen| chosen == *language)));
        assert!(all.iter().filter(|chosen| **chosen == (None, None)).count() >= 3);
    }
}
