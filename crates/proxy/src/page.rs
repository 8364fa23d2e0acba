//! A stored page: one piece of memory, which each answer made from it holds by one count.
//!
//! ```text
//!    0  +--------------------------------+
//!       | who holds it                   |   a count
//!    8  | stamp                          |   home, page word, everything word, clock
//!   40  | expires                        |   a moment; the last of all: never
//!   48  | bytes of fields, status, form, |   4, 2, 1
//!       | for credentials, has weak tag  |   1, a bit each
//!   56  | bytes of what follows          |
//!   64  +--------------------------------+
//!       | body                           |
//!       +--------------------------------+
//!       | fields of the head             |   in a form of `shapes`
//!       +--------------------------------+
//!       | of which page it is a coding     |   8 bytes, if it is one
//!       +--------------------------------+
//!       | weak tag of the origin, length |   if it has one; 1 byte for the length
//!       | or: came, initial age, life,   |   of a standard page: 8, 4, 4,
//!       | while revalidate, if error     |   4, 4
//!       +--------------------------------+
//! ```
//!
//! Header values and body go out as parts of it. Two processors that answer from one page write to one line of memory that they share, the
//! first, and each once to take the page and once to give it back. Beside the body and the values of fields a page takes 64 bytes here, about
//! 24 of its [`heap`](crate::heap), its slot and its part of the hash table (`verbena_content::Replacement::entry_overhead_bytes`).

use std::hash::Hasher;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, StatusCode};
use siphasher::sip::SipHasher13;
use verbena_caching::{Lifetime, Reason, Stored, Use, Variant, Wishes, may_be_coded};
use verbena_content::{Stamp, Weigh};
use verbena_terms::Time;

use crate::heap::Piece;
use crate::shapes::Shapes;

/// The page lasts until an update or a purge says otherwise.
const NEVER: Time = Time::from_nanos(u64::MAX);
/// The form of what is no page, but says by which fields of a request its pages differ.
const VARIES: u8 = u8::MAX;

/// A page, or by what its variants differ. Cloned by its count.
#[derive(Clone)]
pub(crate) struct Page(Piece<Head>);

/// When a standard page came, and how long it may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Times {
    came: Time,
    lifetime: Lifetime,
}

/// How old an answer is, and how much of its lifetime is left, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Aged {
    pub age: u64,
    pub ttl: i64,
}

impl Times {
    /// When its page came.
    pub fn came(&self) -> Time {
        self.came
    }

    /// How long its page may be used from then on.
    pub fn lifetime(&self) -> Lifetime {
        self.lifetime
    }

    /// How its page may be used for a request with these wishes.
    pub fn judge(&self, wishes: &Wishes, now: Time) -> Use {
        self.lifetime.judge(self.since(now), wishes)
    }

    /// The same of a page that was purged softly.
    pub fn judge_purged_softly(&self, wishes: &Wishes, now: Time) -> Use {
        self.lifetime.judge_purged_softly(self.since(now), wishes)
    }

    /// Whether its page may be answered because the origin fails; also where it was purged softly.
    pub fn may_answer_for_failed_origin(&self, now: Time, is_purged: bool) -> bool {
        match is_purged {
            true => self.lifetime.may_answer_for_failed_origin_purged(self.since(now)),
            false => self.lifetime.may_answer_for_failed_origin(self.since(now)),
        }
    }

    /// How old its page is.
    pub fn aged(&self, now: Time) -> Aged {
        let since = self.since(now);
        Aged { age: self.lifetime.age(since), ttl: self.lifetime.left(since) }
    }

    fn since(&self, now: Time) -> Duration {
        Duration::from_nanos(now.nanos().saturating_sub(self.came.nanos()))
    }
}

#[derive(Clone, Copy)]
struct Head {
    stamp: Stamp,
    expires: Time,
    fields: u32,
    status: StatusCode,
    form: u8,
    flags: u8,
}

/// It is for requests with credentials as well.
const FOR_CREDENTIALS: u8 = 1;
/// The origin's weak tag stands at its end.
const HAS_WEAK_TAG: u8 = 2;
/// It is for requests with cookies that its key has not as well.
const FOR_COOKIES: u8 = 4;
/// It is a standard page: its times stand at its end.
const HAS_TIMES: u8 = 8;
/// A standard page is never answered stale.
const MUST_REVALIDATE: u8 = 16;
/// It may be answered in a coding that is made here.
const MAY_BE_CODED: u8 = 32;
/// It is another page in a coding: which one stands behind its fields.
const IS_CODED: u8 = 64;
/// Bytes by which a coded page knows its page.
const PRINT: usize = 8;
/// Bytes of the times of a standard page.
const TIMES: usize = 24;

const _: () =
    assert!(Piece::<Head>::memory(24) == 96, "a page takes 64 bytes beside body and fields, and 8 of the heap");

impl Page {
    /// A page as it was stored under `stamp`, when it `came`. Its fields are put behind `body`, in whose spare room there is place for them at best.
    pub fn new(
        stamp: Stamp,
        (came, expires): (Time, Option<Time>),
        stored: &Stored,
        mut body: Vec<u8>,
        shapes: &Shapes,
    ) -> Self {
        let before = body.len();
        let form = shapes.write(&stored.headers, &mut body);
        let mut weak = 0;
        // A tag that is longer is not stored: its client gets the page once more.
        if let Some((tag, length)) = stored.weak_tag.as_ref().and_then(|tag| Some((tag, u8::try_from(tag.len()).ok()?)))
        {
            body.extend_from_slice(tag.as_bytes());
            body.push(length);
            weak = HAS_WEAK_TAG;
        }
        let mut flags = if stored.for_authorization { FOR_CREDENTIALS } else { 0 } | weak;
        if may_be_coded(stored.status, &stored.headers, before) {
            flags |= MAY_BE_CODED;
        }
        if stored.for_cookies {
            flags |= FOR_COOKIES;
        }
        if let Some(lifetime) = &stored.standard {
            body.extend_from_slice(&came.nanos().to_le_bytes());
            let Lifetime { initial_age, fresh_for, while_revalidate, if_error, must_revalidate } = *lifetime;
            for seconds in [initial_age, fresh_for, while_revalidate, if_error] {
                body.extend_from_slice(&seconds.to_le_bytes());
            }
            flags |= HAS_TIMES | if must_revalidate { MUST_REVALIDATE } else { 0 };
        }
        let head = Head {
            stamp,
            expires: expires.unwrap_or(NEVER),
            fields: u32::try_from(body.len() - before).expect("invariant: the head of an answer is below 4 GiB"),
            status: stored.status,
            form,
            flags,
        };
        Page(Piece::new(head, &body))
    }

    /// This page in a coding, with this head and body. An empty body means that there is no copy in
    /// this coding.
    pub fn coded(&self, headers: &HeaderMap, mut body: Vec<u8>, shapes: &Shapes) -> Self {
        let before = body.len();
        let form = shapes.write(headers, &mut body);
        body.extend_from_slice(&self.print().to_le_bytes());
        // When it came and so on is said behind it in the same words.
        let bytes = self.0.bytes();
        body.extend_from_slice(&bytes[bytes.len() - self.behind()..]);
        let fields = u32::try_from(body.len() - before).expect("invariant: the head of an answer is below 4 GiB");
        let of = *self.0.head();
        let flags = of.flags & !MAY_BE_CODED | IS_CODED;
        Page(Piece::new(Head { fields, form, flags, ..of }, &body))
    }

    /// Whether it may be answered in a coding that is made here.
    pub fn may_be_coded(&self) -> bool {
        self.0.head().flags & MAY_BE_CODED != 0
    }

    /// Whether it is this very page in a coding: stored under the same words, with the same head, of the same time.
    pub fn is_coded_of(&self, page: &Page) -> bool {
        let (own, other) = (self.0.head(), page.0.head());
        let at = self.0.bytes().len().checked_sub(self.behind()).filter(|_| own.flags & IS_CODED != 0);
        let print = at.and_then(|at| self.0.bytes()[at..].first_chunk());
        own.stamp == other.stamp
            && own.expires == other.expires
            && print.is_some_and(|print| u64::from_le_bytes(*print) == page.print())
    }

    /// What distinguishes a page from others that are kept under the same words: its head, when it came, and how long it
    /// is.
    fn print(&self) -> u64 {
        let (head, body) = (self.0.head(), self.body_bytes());
        let mut hash = SipHasher13::new();
        hash.write(&self.0.bytes()[body..]);
        hash.write_usize(body);
        hash.write(&[head.form]);
        hash.write_u16(head.status.as_u16());
        hash.finish()
    }

    /// Bytes behind its fields.
    fn behind(&self) -> usize {
        let of = |flag: u8, bytes: usize| if self.0.head().flags & flag != 0 { bytes } else { 0 };
        of(IS_CODED, PRINT) + of(HAS_TIMES, TIMES) + self.weak_tag().map_or(0, |tag| tag.len() + 1)
    }

    /// Whether its body is.
    pub fn is_empty(&self) -> bool {
        self.body_bytes() == 0
    }

    /// What stands in the place of a page that has variants.
    pub fn varies(stamp: Stamp, variant: &Variant) -> Self {
        let (status, form) = (StatusCode::OK, VARIES);
        let head = Head { stamp, expires: NEVER, fields: 0, status, form, flags: 0 };
        Page(Piece::new(head, variant.names().as_bytes()))
    }

    /// The names by which it varies, if it is no page itself.
    pub fn varies_by(&self) -> Option<&str> {
        let names = (self.0.head().form == VARIES).then_some(self.0.bytes());
        names.and_then(|names| std::str::from_utf8(names).ok())
    }

    /// What its words are compared with.
    pub fn stamp(&self) -> &Stamp {
        &self.0.head().stamp
    }

    /// Whether the lifetime that the origin set is over.
    pub fn is_over(&self, now: Time) -> bool {
        self.0.head().expires <= now
    }

    /// When the lifetime that the origin set is over, if it set one.
    pub fn expires(&self) -> Option<Time> {
        Some(self.0.head().expires).filter(|expires| *expires != NEVER)
    }

    /// Whether it is for a request with these credentials.
    pub fn is_for(&self, credentials: Option<Reason>) -> bool {
        let flag = match credentials {
            None => return true,
            Some(Reason::Cookie) => FOR_COOKIES,
            Some(_) => FOR_CREDENTIALS,
        };
        self.0.head().flags & flag != 0
    }

    /// Of a standard page, when it came and how long it may be used.
    pub fn times(&self) -> Option<Times> {
        let flags = self.0.head().flags;
        let at = self.0.bytes().len().checked_sub(TIMES).filter(|_| flags & HAS_TIMES != 0)?;
        let (came, lives) = self.0.bytes()[at..].split_first_chunk()?;
        let mut seconds = lives.chunks_exact(4).filter_map(|four| four.try_into().ok().map(u32::from_le_bytes));
        let mut next = || seconds.next().unwrap_or_default();
        Some(Times {
            came: Time::from_nanos(u64::from_le_bytes(*came)),
            lifetime: Lifetime {
                initial_age: next(),
                fresh_for: next(),
                while_revalidate: next(),
                if_error: next(),
                must_revalidate: flags & MUST_REVALIDATE != 0,
            },
        })
    }

    /// The origin's weak tag, which the client has that fetched the page.
    pub fn weak_tag(&self) -> Option<&[u8]> {
        let (length, before) = self.0.bytes().split_last().filter(|_| self.0.head().flags & HAS_WEAK_TAG != 0)?;
        before.get(before.len() - usize::from(*length)..)
    }

    /// Its status.
    pub fn status(&self) -> StatusCode {
        self.0.head().status
    }

    /// Hands on the fields of its head, in their order, and that it is a hit.
    pub fn each_field<'a>(&'a self, shapes: &'a Shapes, each: impl FnMut(&HeaderName, &'a [u8])) {
        let bytes = self.0.bytes();
        shapes.each(self.0.head().form, &bytes[..bytes.len() - self.behind()], self.body_bytes(), each);
    }

    /// Bytes of its body, with which it begins.
    pub fn body_bytes(&self) -> usize {
        self.0.bytes().len() - self.0.head().fields as usize
    }

    /// The body, which holds it.
    pub fn body(self) -> Bytes {
        let body = self.body_bytes();
        let mut whole = Bytes::from_owner(self);
        whole.truncate(body);
        whole
    }

    /// Fields and body, which together hold it from now on.
    pub fn opened(self, shapes: &Shapes) -> (HeaderMap, Bytes) {
        let (form, body, behind) = (self.0.head().form, self.body_bytes(), self.behind());
        let mut whole = Bytes::from_owner(self);
        whole.truncate(whole.len() - behind);
        let headers = shapes.read(form, &whole, body);
        whole.truncate(body);
        (headers, whole)
    }
}

impl AsRef<[u8]> for Page {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl Weigh for Page {
    fn bytes(&self) -> usize {
        Piece::<Head>::memory(self.0.bytes().len())
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use verbena_caching::Keys;
    use verbena_content::{Replacement, Store, Word};
    use verbena_terms::Incarnation;

    use super::*;

    /// Set in the process that measures its own memory.
    const ALONE: &str = "VERBENA_TEST_ALONE";

    fn stamp() -> Stamp {
        Stamp::new(Incarnation::new(1, 1), Word::new(1, false), Word::new(1, false), None)
    }

    fn tag(body: &[u8]) -> HeaderValue {
        Keys::new([7; 16]).entity_tag_of(body)
    }

    fn stored(body: &[u8]) -> Stored {
        let mut headers = HeaderMap::new();
        headers.insert("content-type", HeaderValue::from_static("text/html"));
        headers.insert("etag", tag(body));
        let (status, variant) = (StatusCode::NOT_FOUND, Variant::default());
        Stored {
            status,
            headers,
            lifetime: None,
            standard: None,
            for_authorization: true,
            for_cookies: true,
            variant,
            weak_tag: None,
        }
    }

    #[test]
    fn an_answer_holds_its_page_once_and_gives_it_back() {
        let shapes = Shapes::new();
        // The values that a page shares with the first one are no parts of it.
        Page::new(stamp(), (Time::ZERO, None), &stored(b"the first"), Vec::new(), &shapes);
        let page = Page::new(
            stamp(),
            (Time::ZERO, Some(Time::from_nanos(7))),
            &stored(b"a page"),
            b"a page".to_vec(),
            &shapes,
        );
        let other = Page::new(stamp(), (Time::ZERO, None), &stored(b""), Vec::new(), &shapes);
        for (page, expected) in [(page, &b"a page"[..]), (other, b"")] {
            assert!(page.is_for(Some(Reason::Cookie)) && page.varies_by().is_none() && page.stamp() == &stamp());
            assert_eq!((page.status(), page.is_over(Time::from_nanos(7))), (StatusCode::NOT_FOUND, expected != b""));
            let (headers, body) = page.clone().opened(&shapes);
            assert_eq!(page.0.holders(), 2, "the page's own, and one for all that is answered");
            assert_eq!((&body[..], &headers["etag"]), (expected, &tag(expected)));
            assert_eq!((&headers["content-type"], headers.len()), (&HeaderValue::from_static("text/html"), 3));
            drop(body);
            assert_eq!(page.0.holders(), 2);
            drop(headers);
            assert_eq!(page.0.holders(), 1);
        }
    }

    #[test]
    fn a_weak_tag_is_no_part_of_fields_and_body() {
        let shapes = Shapes::new();
        let plain = Page::new(stamp(), (Time::ZERO, None), &stored(b"a page"), b"a page".to_vec(), &shapes);
        assert_eq!(plain.weak_tag(), None);
        for long in [false, true] {
            let mut weak = stored(b"a page");
            if long {
                // Written in full, without a shape.
                weak.headers.insert("x-long", HeaderValue::try_from("x".repeat(5000)).unwrap());
            }
            weak.weak_tag = Some(HeaderValue::from_static("W/\"a\""));
            let page = Page::new(stamp(), (Time::ZERO, None), &weak, b"a page".to_vec(), &shapes);
            assert_eq!(page.weak_tag(), Some(&b"W/\"a\""[..]));
            assert_eq!(page.clone().body(), "a page");
            let (headers, body) = page.opened(&shapes);
            assert_eq!(
                (&body[..], &headers["etag"], headers.len()),
                (&b"a page"[..], &tag(b"a page"), 3 + usize::from(long))
            );
        }
        let mut longest = stored(b"");
        longest.weak_tag = Some(HeaderValue::try_from(format!("W/\"{}\"", "x".repeat(300))).unwrap());
        assert_eq!(Page::new(stamp(), (Time::ZERO, None), &longest, Vec::new(), &shapes).weak_tag(), None);
    }

    #[test]
    fn a_standard_page_has_its_times_and_they_are_no_part_of_it() {
        let shapes = Shapes::new();
        let lifetime =
            Lifetime { initial_age: 1, fresh_for: 2, while_revalidate: 3, if_error: 4, must_revalidate: true };
        let standard = Stored { standard: Some(lifetime), for_cookies: false, ..stored(b"a page") };
        let came = Time::from_nanos(3_000_000_000);
        let page = Page::new(stamp(), (came, None), &standard, b"a page".to_vec(), &shapes);
        assert_eq!(page.times(), Some(Times { came, lifetime }));
        assert_eq!(page.times().unwrap().aged(Time::from_nanos(4_500_000_000)), Aged { age: 2, ttl: 0 });
        assert!(page.is_for(Some(Reason::Authorization)) && !page.is_for(Some(Reason::Cookie)));
        let (headers, body) = page.opened(&shapes);
        assert_eq!((&body[..], headers.len()), (&b"a page"[..], 3));
        assert_eq!(Page::new(stamp(), (came, None), &stored(b""), Vec::new(), &shapes).times(), None);
    }

    #[test]
    fn what_has_variants_says_by_what() {
        let mut headers = HeaderMap::new();
        headers.insert("vary", HeaderValue::from_static("b, a"));
        assert_eq!(Page::varies(stamp(), &Variant::of(&headers).unwrap()).varies_by(), Some("a,b"));
    }

    fn resident() -> f64 {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        statm.split(' ').nth(1).unwrap().parse::<f64>().unwrap() * 4096.0
    }

    /// Buffers and futures of requests under way, in the sizes that they have. They come and go in no order.
    struct UnderWay(Vec<Vec<u8>>);

    impl UnderWay {
        fn next(&mut self, page: usize) {
            for piece in page * 5..page * 5 + 5 {
                let chance = (piece as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
                let bytes = [80, 300, 1040, 1344, 2064, 2360, 3104, 8192][chance as usize % 8];
                self.0[chance as usize / 8 % 64] = vec![1; bytes];
            }
        }
    }

    /// Keeps `pages` pages, of sizes from `least` on, and returns how much more memory is taken than the store
    /// says.
    fn taken_to_said(
        replacement: Replacement,
        memory: u64,
        pages: usize,
        (least, most): (usize, usize),
    ) -> (f64, usize) {
        let (shapes, store) = (Shapes::new(), Store::new(replacement, memory, 8192, most + 4096));
        let mut under_way = UnderWay(vec![Vec::new(); 64]);
        let before = resident();
        for page in 0..pages {
            under_way.next(page);
            // Sizes come in no order.
            let body = vec![b'x'; least + page * 7919 % (most - least + 1)];
            let page = page as u128;
            let key = page.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
            store.keep(key, Page::new(stamp(), (Time::ZERO, None), &stored(&page.to_le_bytes()), body, &shapes));
        }
        ((resident() - before) / store.bytes() as f64, store.len())
    }

    /// Runs the test of this name again, for each policy in a process of its own: the memory of others is not measured. In that process, the policy.
    fn alone(test: &str) -> Option<Replacement> {
        if let Ok(name) = std::env::var(ALONE) {
            return Replacement::ALL.into_iter().find(|replacement| replacement.name() == name);
        }
        for replacement in Replacement::ALL {
            let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
            alone.args(["--exact", &format!("page::tests::{test}"), "--nocapture"]).env(ALONE, replacement.name());
            let output = alone.output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            println!("{}: {said}{}", replacement.name(), String::from_utf8_lossy(&output.stderr));
            let measured = output.status.success() && said.contains("of what the store says");
            assert!(measured, "{}: it failed, or measured nothing", replacement.name());
        }
        None
    }

    #[test]
    fn small_pages_take_as_much_memory_as_the_store_says() {
        if let Some(replacement) = alone("small_pages_take_as_much_memory_as_the_store_says") {
            let (taken, kept) = taken_to_said(replacement, 1 << 30, 100_000, (100, 400));
            println!("{kept} small pages: {taken:.3} of what the store says");
            assert_eq!(kept, 100_000);
            assert!((0.9..1.1).contains(&taken), "{taken:.3}");
        }
    }

    /// Among what requests take and give back, pages of one size would find no use for the holes that are smaller.
    #[test]
    fn pages_of_one_size_leave_no_holes_between_them() {
        if let Some(replacement) = alone("pages_of_one_size_leave_no_holes_between_them") {
            let (taken, kept) = taken_to_said(replacement, 1 << 30, 100_000, (512, 512));
            println!("{kept} pages of one size: {taken:.3} of what the store says");
            assert_eq!(kept, 100_000);
            assert!((0.9..1.05).contains(&taken), "{taken:.3}");
        }
    }

    #[test]
    fn pages_that_are_replaced_leave_their_memory_to_others() {
        if let Some(replacement) = alone("pages_that_are_replaced_leave_their_memory_to_others") {
            let (taken, kept) = taken_to_said(replacement, 32 << 20, 40_000, (100, 20_000));
            println!("{kept} pages of all sizes, others replaced: {taken:.3} of what the store says");
            assert!((2000..10_000).contains(&kept), "{kept} pages");
            assert!((0.9..1.15).contains(&taken), "{taken:.3}");
        }
    }
}
