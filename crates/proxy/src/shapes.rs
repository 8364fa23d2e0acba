//! The fields of stored heads, written short.
//!
//! The pages of an application come in a few *shapes*: the same names, and mostly the same values. A shape is a header map as the first page
//! had it, sorted by name, and `Cache-Status` as it is on a hit. A page then keeps the values that are its own:
//!
//! ```text
//!   for each field of the shape, in its order
//!       0                             the value is that of the shape
//!       1 + bytes of the value, the value
//!   or, where there is no shape of these names:
//!       bytes of the name, the name, 1 + bytes of the value, the value
//!   numbers: 7 bits a byte, the lower first; the highest bit is set in all bytes but the last
//! ```
//!
//! The map of a hit is a copy of the shape's, in which no name is hashed, and no count shared: what a shape has is never given back. So there
//! are [`MOST`] of them at most, of [`LARGEST`] bytes, a megabyte in all. What comes after that, or is larger, is written in full, which costs
//! memory and time and nothing else.

use std::sync::OnceLock;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use parking_lot::Mutex;

use crate::answer::{CACHE_STATUS, HIT};

/// Shapes that are kept.
const MOST: u8 = 250;
/// Bytes that a shape may have.
const LARGEST: usize = 4096;
/// Bytes of a field of a shape beside its name and its value.
const FIELD: usize = 104;
/// The form of fields that are written in full.
const IN_FULL: u8 = MOST;

/// The shapes that are known.
pub(crate) struct Shapes {
    known: Box<[OnceLock<HeaderMap>]>,
    /// How many.
    count: Mutex<u8>,
}

impl Shapes {
    pub fn new() -> Self {
        Shapes { known: (0..MOST).map(|_| OnceLock::new()).collect(), count: Mutex::new(0) }
    }

    /// Writes the fields of a page, and that it was a hit, behind what is there. Gives their form.
    pub fn write(&self, headers: &HeaderMap, into: &mut Vec<u8>) -> u8 {
        let (status, hit) = (CACHE_STATUS, HIT);
        let mut fields: Vec<_> = headers.iter().chain([(&status, &hit)]).collect();
        // Some applications write them in any order.
        fields.sort_by_key(|(name, _)| name.as_str());
        let Some((form, shape)) = self.shape_of(&fields) else {
            for (name, value) in fields {
                put_number(into, name.as_str().len());
                into.extend_from_slice(name.as_str().as_bytes());
                put_value(into, value);
            }
            return IN_FULL;
        };
        for ((_, value), usual) in fields.iter().zip(shape.values()) {
            if *value == usual { put_number(into, 0) } else { put_value(into, value) }
        }
        form
    }

    /// The map of the fields that stand in `page` from `at` on. Its values are parts of the page.
    pub fn read(&self, form: u8, page: &Bytes, at: usize) -> HeaderMap {
        let mut written = Written { page, at };
        let part = |value: &[u8]| {
            HeaderValue::from_maybe_shared(page.slice_ref(value)).expect("invariant: it was the value of a field")
        };
        if let Some(shape) = self.known(form) {
            let mut headers = shape.clone();
            for value in headers.values_mut() {
                if let Some(own) = written.value() {
                    *value = part(own);
                }
            }
            return headers;
        }
        let mut headers = HeaderMap::new();
        while let Some((name, value)) = written.field() {
            headers.append(name, part(value));
        }
        headers
    }

    /// Hands on the fields that stand in `page` from `at` on, in the order in which that map has them.
    pub fn each<'a>(&'a self, form: u8, page: &'a [u8], at: usize, mut each: impl FnMut(&HeaderName, &'a [u8])) {
        let mut written = Written { page, at };
        if let Some(shape) = self.known(form) {
            for (name, usual) in shape {
                each(name, written.value().unwrap_or(usual.as_bytes()));
            }
            return;
        }
        while let Some((name, value)) = written.field() {
            each(&name, value);
        }
    }

    fn known(&self, form: u8) -> Option<&HeaderMap> {
        self.known.get(usize::from(form)).and_then(OnceLock::get)
    }

    /// The shape that has these names. It is made if it does not exist and there is room for it.
    fn shape_of(&self, fields: &[(&HeaderName, &HeaderValue)]) -> Option<(u8, &HeaderMap)> {
        let known = || {
            let has_them = |shape: &&HeaderMap| {
                shape.len() == fields.len()
                    && shape.iter().map(|(name, _)| name).eq(fields.iter().map(|(name, _)| *name))
            };
            let mut numbered = (0..).zip(self.known.iter().map_while(OnceLock::get));
            numbered.find(|(_, shape)| has_them(shape))
        };
        if let Some(found) = known() {
            return Some(found);
        }
        let bytes: usize = fields.iter().map(|(name, value)| name.as_str().len() + value.len() + FIELD).sum();
        let mut count = self.count.lock();
        if let Some(found) = known() {
            return Some(found);
        }
        let place = self.known.get(usize::from(*count)).filter(|_| bytes <= LARGEST)?;
        let mut shape = HeaderMap::with_capacity(fields.len());
        for (name, value) in fields {
            shape.append(HeaderName::from_static(name.as_str().to_owned().leak()), kept_for_ever(value));
        }
        *count += 1;
        Some((*count - 1, place.get_or_init(|| shape)))
    }
}

/// A value whose copies are counted nowhere.
fn kept_for_ever(value: &HeaderValue) -> HeaderValue {
    let bytes: &'static [u8] = value.as_bytes().to_vec().leak();
    HeaderValue::from_maybe_shared(Bytes::from_static(bytes)).expect("invariant: it was the value of a field")
}

fn put_number(into: &mut Vec<u8>, mut number: usize) {
    while number > 0x7f {
        into.push(number as u8 | 0x80);
        number >>= 7;
    }
    into.push(number as u8);
}

fn put_value(into: &mut Vec<u8>, value: &HeaderValue) {
    put_number(into, 1 + value.len());
    into.extend_from_slice(value.as_bytes());
}

/// Fields as they are read.
struct Written<'a> {
    page: &'a [u8],
    at: usize,
}

impl<'a> Written<'a> {
    fn number(&mut self) -> usize {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = self.page[self.at];
            self.at += 1;
            number |= usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return number;
            }
            shift += 7;
        }
    }

    fn take(&mut self, length: usize) -> &'a [u8] {
        self.at += length;
        &self.page[self.at - length..self.at]
    }

    /// The value of the next field, if it is not that of the shape.
    fn value(&mut self) -> Option<&'a [u8]> {
        let length = self.number().checked_sub(1)?;
        Some(self.take(length))
    }

    /// The next field of those that are written in full.
    fn field(&mut self) -> Option<(HeaderName, &'a [u8])> {
        if self.at >= self.page.len() {
            return None;
        }
        let length = self.number();
        let name = HeaderName::from_bytes(self.take(length)).expect("invariant: it was the name of a field");
        Some((name, self.value()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&str, &str)]) -> HeaderMap {
        let parsed = |(name, value): &(&str, &str)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
        let mut headers = HeaderMap::new();
        for (name, value) in fields.iter().map(parsed) {
            headers.append(name, value);
        }
        headers
    }

    /// What is read of what was written behind a body, and how many bytes it took.
    fn through(shapes: &Shapes, fields: &[(&str, &str)]) -> (u8, HeaderMap, usize) {
        let mut page = b"a body".to_vec();
        let form = shapes.write(&headers(fields), &mut page);
        let bytes = page.len() - 6;
        (form, shapes.read(form, &page.into(), 6), bytes)
    }

    fn hit(fields: &[(&str, &str)]) -> HeaderMap {
        let mut expected = headers(fields);
        expected.append(CACHE_STATUS, HIT);
        expected
    }

    #[test]
    fn what_is_written_is_read_and_what_pages_share_takes_a_byte() {
        let shapes = Shapes::new();
        let long = "x".repeat(300);
        for (page, form) in [
            (vec![("etag", "\"a\""), ("content-type", "text/html"), ("x-own", "1"), ("link", "a"), ("link", "b")], 0),
            (vec![("link", "a"), ("x-own", ""), ("etag", "\"a\""), ("link", &long), ("content-type", "text/html")], 0),
            (vec![("etag", "\"a\"")], 1),
            (vec![("etag", "\"a\""), ("cache-status", "inner; hit")], 2),
            (vec![], 3),
        ] {
            let (found, read, bytes) = through(&shapes, &page);
            assert_eq!((found, &read), (form, &hit(&page)));
            let lines = |headers: &HeaderMap| -> Vec<_> {
                let lines = headers.get_all("link").iter().chain(headers.get_all(CACHE_STATUS));
                lines.cloned().collect()
            };
            assert_eq!(lines(&read), lines(&hit(&page)), "lines of one name are in order");
            // A byte for each that is the shape's, and for the empty one; two for the length of the long one.
            assert_eq!(bytes, if page.contains(&("link", &long)) { 4 + 1 + 2 + 300 } else { page.len() + 1 });
        }
    }

    #[test]
    fn what_finds_no_shape_is_written_in_full() {
        let shapes = Shapes::new();
        let large = [("x-large", "x".repeat(LARGEST)), ("etag", "\"a\"".into())];
        let large: Vec<(&str, &str)> = large.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let (form, read, _) = through(&shapes, &large);
        assert_eq!((form, read), (IN_FULL, hit(&large)));
        for n in 0..u16::from(MOST) + 10 {
            let name = format!("x-{n}");
            let page = [(name.as_str(), "1"), ("etag", "\"a\"")];
            let (form, read, _) = through(&shapes, &page);
            assert_eq!((u16::from(form), read), (n.min(IN_FULL.into()), hit(&page)));
        }
    }
}
