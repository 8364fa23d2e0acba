//! Parts of a stored page (RFC 9110 section 14): one range, or up to eight.

use std::ops::Range;

use http::header::{CONTENT_ENCODING, DATE, ETAG, IF_RANGE, LAST_MODIFIED, RANGE};
use http::{HeaderMap, HeaderValue, request};

use crate::date::date;

/// Ranges that one request may ask for. With more it gets the whole (RFC 9110 section 14.2 leaves that to the server).
pub const MOST_RANGES: usize = 8;

/// How a request for parts is answered from a whole page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parts {
    /// With all of it: it asks for no part, in a form that cannot be read, for too many, or for parts of another page than
    /// this one.
    Whole,
    /// With these bytes, in the order in which they were asked for.
    Of(Vec<Range<u64>>),
    /// With 416: none of them is there.
    Unsatisfiable,
}

/// What a request is to get of a page with these headers and `length` bytes.
pub fn parts(head: &request::Parts, headers: &HeaderMap, length: u64) -> Parts {
    let mut lines = head.headers.get_all(RANGE).into_iter();
    let (Some(line), None) = (lines.next(), lines.next()) else { return Parts::Whole };
    if !is_of_this(head, headers) {
        return Parts::Whole;
    }
    let Some(asked) = ranges(line) else { return Parts::Whole };
    let there: Vec<Range<u64>> = asked.iter().filter_map(|range| range.within(length)).collect();
    match there.is_empty() {
        true => Parts::Unsatisfiable,
        // Several parts of a coded page would stand in what is not coded.
        false if there.len() > 1 && headers.contains_key(CONTENT_ENCODING) => Parts::Whole,
        false if is_wasteful(&there, length) => Parts::Whole,
        false => Parts::Of(there),
    }
}

/// `If-Range` (RFC 9110 section 13.1.5): by a strong tag, or by a date that is one (section 8.8.2.2).
fn is_of_this(head: &request::Parts, headers: &HeaderMap) -> bool {
    let mut lines = head.headers.get_all(IF_RANGE).into_iter();
    let Some(condition) = lines.next() else { return true };
    if lines.next().is_some() {
        return false;
    }
    if condition.as_bytes().contains(&b'"') {
        return !condition.as_bytes().starts_with(b"W/") && headers.get(ETAG) == Some(condition);
    }
    let (changed, made) = (headers.get(LAST_MODIFIED), headers.get(DATE).and_then(date));
    let is_strong = || {
        let (changed, made) = (changed.and_then(date)?, made?);
        Some(made.duration_since(changed).ok()?.as_secs() >= 1)
    };
    changed == Some(condition) && is_strong() == Some(true)
}

/// One range as it is written.
#[derive(Clone, Copy)]
enum Asked {
    From(u64, Option<u64>),
    Last(u64),
}

impl Asked {
    fn within(self, length: u64) -> Option<Range<u64>> {
        let range = match self {
            Asked::From(first, last) => first..last.map_or(length, |last| last.saturating_add(1).min(length)),
            Asked::Last(bytes) => length.saturating_sub(bytes)..length,
        };
        (range.start < range.end).then_some(range)
    }
}

/// `None` for what is malformed, of another unit, or too much.
fn ranges(line: &HeaderValue) -> Option<Vec<Asked>> {
    let (unit, list) = line.to_str().ok()?.split_once('=')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return None;
    }
    let number = |digits: &str| {
        let are_digits = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        // What is beyond all that can be counted is beyond the end.
        are_digits.then(|| digits.parse().unwrap_or(u64::MAX))
    };
    let range = |text: &str| {
        let (first, last) = text.trim_matches([' ', '\t']).split_once('-')?;
        match (first, last) {
            ("", last) => number(last).map(Asked::Last),
            (first, "") => number(first).map(|first| Asked::From(first, None)),
            (first, last) => {
                let (first, last) = (number(first)?, number(last)?);
                (first <= last).then_some(Asked::From(first, Some(last)))
            }
        }
    };
    let asked: Option<Vec<Asked>> =
        list.split(',').filter(|text| !text.trim().is_empty()).take(MOST_RANGES + 1).map(range).collect();
    asked.filter(|asked| (1..=MOST_RANGES).contains(&asked.len()))
}

/// Ranges that overlap make more of a page than it has: a small request for much work (RFC 9110 section 17.15).
fn is_wasteful(ranges: &[Range<u64>], length: u64) -> bool {
    ranges.len() > 1 && ranges.iter().map(|range| range.end - range.start).sum::<u64>() > length
}

#[cfg(test)]
mod tests {
    use http::Request;
    use http::header::HeaderName;
    use proptest::prelude::*;

    use super::*;

    fn of(fields: &[(HeaderName, &str)], length: u64) -> Parts {
        let builder = fields.iter().fold(Request::get("/"), |builder, (name, value)| builder.header(name, *value));
        let mut headers = HeaderMap::new();
        headers.insert(ETAG, HeaderValue::from_static("\"1\""));
        headers.insert(LAST_MODIFIED, HeaderValue::from_static("Sun, 06 Nov 1994 08:49:37 GMT"));
        headers.insert(DATE, HeaderValue::from_static("Sun, 06 Nov 1994 08:50:00 GMT"));
        parts(&builder.body(()).unwrap().into_parts().0, &headers, length)
    }

    fn one(range: Range<u64>) -> Parts {
        Parts::Of(vec![range])
    }

    fn range(line: &str) -> Parts {
        of(&[(RANGE, line)], 10)
    }

    #[test]
    fn ranges_are_cut_to_what_is_there() {
        assert_eq!((range("bytes=0-3"), range("bytes=4-"), range("bytes=-3")), (one(0..4), one(4..10), one(7..10)));
        assert_eq!(
            (range("bytes=8-99"), range("Bytes = -99"), range("bytes=0-0")),
            (one(8..10), one(0..10), one(0..1))
        );
        assert_eq!(range("bytes=0-1, 5-6 ,-1"), Parts::Of(vec![0..2, 5..7, 9..10]));
        assert_eq!(range("bytes=0-1,99-"), one(0..2), "one of them is there");
        for beyond in ["bytes=10-", "bytes=-0", "bytes=99999999999999999999-"] {
            assert_eq!(range(beyond), Parts::Unsatisfiable, "{beyond}");
        }
        assert_eq!(of(&[(RANGE, "bytes=0-")], 0), Parts::Unsatisfiable);
    }

    #[test]
    fn what_is_malformed_or_too_much_gets_the_whole() {
        for line in
            ["bytes", "bytes=", "bytes=a-b", "bytes=3-1", "bytes=-", "lines=1-2", "bytes=1-2-3", "bytes=+1-2", ","]
        {
            assert_eq!(range(line), Parts::Whole, "{line}");
        }
        assert_eq!(range(&format!("bytes={}", "0-0,".repeat(9))), Parts::Whole);
        assert_eq!(range(&format!("bytes={}", "0-0,".repeat(8))), Parts::Of(vec![0..1; 8]));
        assert_eq!(range("bytes=0-,0-"), Parts::Whole, "more than there is");
        assert_eq!(of(&[(RANGE, "bytes=0-1"), (RANGE, "bytes=0-1")], 10), Parts::Whole);
        assert_eq!(of(&[], 10), Parts::Whole);
    }

    #[test]
    fn a_part_is_of_the_page_that_the_client_has_the_rest_of() {
        let if_range = |condition| of(&[(RANGE, "bytes=0-1"), (IF_RANGE, condition)], 10);
        assert_eq!(if_range("\"1\""), one(0..2));
        assert_eq!(if_range("Sun, 06 Nov 1994 08:49:37 GMT"), one(0..2));
        for other in ["\"2\"", "W/\"1\"", "1", "Sun, 06 Nov 1994 08:49:38 GMT"] {
            assert_eq!(if_range(other), Parts::Whole, "{other}");
        }
    }

    proptest! {
        #[test]
        fn parts_are_within_the_page(line in "(bytes=)?([0-9]{0,3}-[0-9]{0,3},? ?){0,10}", length in 0u64..200) {
            if let Parts::Of(ranges) = of(&[(RANGE, &line)], length) {
                prop_assert!(ranges.len() <= MOST_RANGES);
                prop_assert!(ranges.iter().all(|range| range.start < range.end && range.end <= length));
            }
        }
    }
}
