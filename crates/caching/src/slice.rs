//! Slices: a large page is stored in pieces of one size, each of which is asked for and stored by itself (rule H9). What its slices share is one strong tag and one
//! length; that they are of one state of the application, words say (see the crate `proxy`).

use std::ops::Range;

use http::header::{
    CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, RANGE,
};
use http::{HeaderMap, HeaderValue, StatusCode, request};

/// Bytes of each slice of a page but its last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SliceSize(u64);

/// What a client asks for, as far as it says before the length of the page is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstByte {
    /// Bytes from this one on; 0 if it asks for all, or for so many at the end.
    At(u64),
    /// Several ranges.
    Several,
}

/// What the head of an answer says of the slice that it is, and of the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceHead {
    /// The bytes of the page that it has.
    pub range: Range<u64>,
    /// Bytes of the whole page.
    pub length: u64,
    /// The strong tag of the page.
    pub tag: HeaderValue,
}

impl SliceSize {
    /// Slices of so many bytes; `None` for 0.
    pub fn new(bytes: u64) -> Option<Self> {
        (bytes > 0).then_some(SliceSize(bytes))
    }

    /// Bytes.
    pub fn bytes(self) -> u64 {
        self.0
    }

    /// Which slice has this byte.
    pub fn slice_of(self, byte: u64) -> u64 {
        byte / self.0
    }

    /// The bytes of a slice, if the page is that long.
    pub fn range(self, slice: u64) -> Range<u64> {
        let start = slice.saturating_mul(self.0);
        start..start.saturating_add(self.0)
    }

    /// Makes a client's request one for a slice: without its own conditions, and of a later slice only if the page has this tag still.
    pub fn ask(self, head: &mut request::Parts, slice: u64, tag: Option<&HeaderValue>) {
        for name in [RANGE, IF_RANGE, IF_NONE_MATCH, IF_MODIFIED_SINCE] {
            head.headers.remove(name);
        }
        let Range { start, end } = self.range(slice);
        let range = HeaderValue::try_from(format!("bytes={start}-{}", end - 1));
        head.headers.insert(RANGE, range.expect("invariant: digits are a header value"));
        if let Some(tag) = tag {
            head.headers.insert(IF_RANGE, tag.clone());
        }
    }
}

/// What a client asks for. A `Range` that cannot be read asks for all (RFC 9110 section 14.2).
pub fn first_byte(head: &request::Parts) -> FirstByte {
    let mut lines = head.headers.get_all(RANGE).into_iter();
    let range = match (lines.next().map(|line| line.to_str()), lines.next()) {
        (Some(Ok(range)), None) => range,
        _ => return FirstByte::At(0),
    };
    if range.contains(',') {
        return FirstByte::Several;
    }
    let bytes = range.split_once('=').filter(|(unit, _)| unit.trim().eq_ignore_ascii_case("bytes"));
    let first = bytes.and_then(|(_, range)| range.trim().split_once('-')?.0.parse().ok());
    FirstByte::At(first.unwrap_or(0))
}

/// What an answer to a request for a slice ([`SliceSize::ask`]) is. `None`: it is not that slice, or says too little of the page, or that in two ways.
pub fn slice_of(head: &request::Parts, status: StatusCode, headers: &HeaderMap) -> Option<SliceHead> {
    let asked = head.headers.get(RANGE)?.to_str().ok()?.strip_prefix("bytes=")?.split_once('-')?;
    let asked = asked.0.parse().ok()?..asked.1.parse::<u64>().ok()?.checked_add(1)?;
    let one = |name| {
        let mut lines = headers.get_all(name).into_iter();
        lines.next().filter(|_| lines.next().is_none())
    };
    let (range, length) = one(CONTENT_RANGE)?.to_str().ok()?.strip_prefix("bytes ")?.trim().split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let length: u64 = length.parse().ok()?;
    let range = first.parse().ok()?..last.parse::<u64>().ok()?.checked_add(1)?;
    let bytes = range.end.checked_sub(range.start)?;
    let says_length = |said: &HeaderValue| said.to_str().is_ok_and(|said| said.parse() == Ok(bytes));
    let tag = one(ETAG)
        .filter(|tag| tag.len() > 1 && tag.as_bytes().starts_with(b"\"") && tag.as_bytes().ends_with(b"\""))?;
    let has_several = headers
        .get(CONTENT_TYPE)
        .is_some_and(|media| media.as_bytes().to_ascii_lowercase().starts_with(b"multipart/byteranges"));
    let is_it = status == StatusCode::PARTIAL_CONTENT
        && !has_several
        && range == (asked.start..asked.end.min(length))
        && bytes > 0
        && headers.get(CONTENT_LENGTH).is_none_or(says_length);
    is_it.then(|| SliceHead { range, length, tag: tag.clone() })
}

#[cfg(test)]
mod tests {
    use http::Request;
    use http::header::HeaderName;
    use proptest::prelude::*;

    use super::*;

    fn asks(fields: &[(HeaderName, &str)]) -> request::Parts {
        fields
            .iter()
            .fold(Request::get("/"), |builder, (name, value)| builder.header(name, *value))
            .body(())
            .unwrap()
            .into_parts()
            .0
    }

    fn answer(fields: &[(HeaderName, &str)]) -> HeaderMap {
        fields.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect()
    }

    #[test]
    fn a_request_for_a_slice_has_no_condition_but_the_tag_of_the_page() {
        let mut head =
            asks(&[(RANGE, "bytes=5-"), (IF_RANGE, "\"a\""), (IF_NONE_MATCH, "\"b\""), (IF_MODIFIED_SINCE, "x")]);
        let size = SliceSize::new(100).unwrap();
        size.ask(&mut head, 2, None);
        assert_eq!((head.headers.len(), &head.headers[RANGE]), (1, &HeaderValue::from_static("bytes=200-299")));
        size.ask(&mut head, 0, Some(&HeaderValue::from_static("\"t\"")));
        assert_eq!(
            (&head.headers[RANGE], &head.headers[IF_RANGE]),
            (&HeaderValue::from_static("bytes=0-99"), &HeaderValue::from_static("\"t\""))
        );
        assert_eq!(
            (SliceSize::new(0), size.slice_of(99), size.slice_of(100), size.range(u64::MAX)),
            (None, 0, 1, u64::MAX..u64::MAX)
        );
    }

    #[test]
    fn a_client_says_where_it_begins() {
        for (range, expected) in [
            ("bytes=200-", FirstByte::At(200)),
            ("bytes=7-9", FirstByte::At(7)),
            ("bytes=-9", FirstByte::At(0)),
            ("bytes=x-9", FirstByte::At(0)),
            ("nonsense", FirstByte::At(0)),
            ("lines=200-", FirstByte::At(0)),
            ("bytes=0-1,5-6", FirstByte::Several),
        ] {
            assert_eq!(first_byte(&asks(&[(RANGE, range)])), expected, "{range}");
        }
        assert_eq!(first_byte(&asks(&[])), FirstByte::At(0));
    }

    #[test]
    fn a_slice_is_the_one_that_was_asked_for_of_a_page_with_a_strong_tag() {
        let mut head = asks(&[]);
        SliceSize::new(100).unwrap().ask(&mut head, 1, None);
        let of = |status: u16, range: &str, tag: &str, more: &[(HeaderName, &str)]| {
            let fields = [&[(CONTENT_RANGE, range), (ETAG, tag)], more].concat();
            slice_of(&head, StatusCode::from_u16(status).unwrap(), &answer(&fields))
        };
        let tag = HeaderValue::from_static("\"t\"");
        let found = |range, length| Some(SliceHead { range, length, tag: tag.clone() });
        assert_eq!(of(206, "bytes 100-199/1000", "\"t\"", &[]), found(100..200, 1000));
        assert_eq!(
            of(206, "bytes 100-149/150", "\"t\"", &[(CONTENT_LENGTH, "50")]),
            found(100..150, 150),
            "the last one"
        );
        for (status, range, tag, more) in [
            (200, "bytes 100-199/1000", "\"t\"", &[][..]),
            (206, "bytes 100-198/1000", "\"t\"", &[]),
            (206, "bytes 0-199/1000", "\"t\"", &[]),
            (206, "bytes 100-199/*", "\"t\"", &[]),
            (206, "bytes 100-199/150", "\"t\"", &[]),
            (206, "bytes 199-100/1000", "\"t\"", &[]),
            (206, "bytes 100-99/100", "\"t\"", &[]),
            (206, "bytes */1000", "\"t\"", &[]),
            (206, "lines 100-199/1000", "\"t\"", &[]),
            (206, "bytes 100-199/1000", "W/\"t\"", &[]),
            (206, "bytes 100-199/1000", "t", &[]),
            (206, "bytes 100-199/1000", "\"t\"", &[(CONTENT_LENGTH, "99")]),
            (206, "bytes 100-199/1000", "\"t\"", &[(ETAG, "\"u\"")]),
            (206, "bytes 100-199/1000", "\"t\"", &[(CONTENT_RANGE, "bytes 100-199/1001")]),
            (206, "bytes 100-199/1000", "\"t\"", &[(CONTENT_TYPE, "Multipart/ByteRanges; boundary=x")]),
        ] {
            let fields = [&[(CONTENT_RANGE, range), (ETAG, tag)], more].concat();
            let mut headers = HeaderMap::new();
            for (name, value) in fields {
                headers.append(name, value.parse().unwrap());
            }
            assert_eq!(
                slice_of(&head, StatusCode::from_u16(status).unwrap(), &headers),
                None,
                "{status} {range} {tag} {more:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn a_slice_lies_within_its_page(range in "bytes [0-9]{0,4}-[0-9]{0,4}/[0-9*]{0,4}", slice in 0u64..20) {
            let mut head = asks(&[]);
            SliceSize::new(100).unwrap().ask(&mut head, slice, None);
            if let Some(of) = slice_of(&head, StatusCode::PARTIAL_CONTENT, &answer(&[(CONTENT_RANGE, &range), (ETAG, "\"t\"")])) {
                prop_assert!(of.range.start == slice * 100 && of.range.end <= of.length && of.range.end - of.range.start <= 100);
            }
        }
    }
}
