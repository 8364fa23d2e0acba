//! A page that is stored in slices (rule H9): each slice is fetched, stored and answered as a page is, by a request of the cache's own, and the client gets them
//! one after the other as one body.
//!
//! ```text
//!  first slice   as any page: its head says how long the page is, and the client gets a head made of it
//!  each later    asked for with If-Range; it may follow if it has the tag of the first one, and was in force under the same words (see `run`)
//!  otherwise     bytes are out already: the connection is cut
//! ```
//!
//! An origin that answers otherwise than with slices is asked for whole pages for a while.

mod run;

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, IF_RANGE};
use http::{HeaderName, HeaderValue, Method, Response, StatusCode, request};
use http_body_util::BodyExt;
use hyper::ext::ReasonPhrase;
use tokio::sync::{mpsc, watch};
use verbena_caching::{
    Answer, FirstByte, Intent, Key, Mode, Parts, Reason, Request, Route, SliceHead, SliceSize, answer_by_dates_too,
    first_byte, parts, slice_of,
};
use verbena_content::{Kind, Stamp, Verdict, Words, look};
use verbena_terms::ViewNumber;

use crate::answer;
use crate::body::{Body, Cut};
use crate::exchange::{Exchange, Wants};
use crate::observed::Done;
use crate::standard::opened;
use run::{Follows, Run};

const CONTENT_DIGEST: HeaderName = HeaderName::from_static("content-digest");
const CONTENT_MD5: HeaderName = HeaderName::from_static("content-md5");

/// How often the slice that a client begins with is chosen anew: by what its head says of the page, and by what its request says.
const MOST_FIRST: usize = 3;
/// How often a later slice is fetched, if a stored one is of another state of the page.
const MOST_FETCHED: usize = 2;

/// Under which words an answer with a slice was in force. An extension of the answer.
#[derive(Clone, Debug)]
pub(crate) enum Under {
    /// It is stored under these.
    Stored(Stamp),
    /// It is being registered; and the words that were read before it was asked for.
    Registering(watch::Receiver<Option<Stamp>>, Option<Stamp>),
    /// It is not registered: the words that were read before it was asked for.
    Read(Option<Stamp>),
}

/// The stamp that a slice would have that was fetched under these words and is not registered.
pub(crate) fn read_stamp((_, words): (ViewNumber, Words)) -> Stamp {
    Stamp::standard(words.home, words.word, words.purge)
}

/// What the slices of one answer have in common.
struct Sliced {
    exchange: Arc<Exchange>,
    /// The client's request, which each request for a slice is made of.
    wants: Wants,
    size: SliceSize,
    /// Of the first one.
    head: SliceHead,
    /// The bytes that the client gets.
    range: Range<u64>,
    /// The first one was fetched for this answer, so it is the application's present one.
    is_fetched: bool,
}

/// In slices of which size the page is stored that a request is for, if it is in slices.
pub(crate) fn slice_size(head: &request::Parts, wanted: &Request, route: &Route) -> Option<SliceSize> {
    let is_read = matches!(wanted.intent, Intent::Look | Intent::Pass(Reason::Range)) && head.method == Method::GET;
    route.slice.filter(|_| is_read && wanted.mode == Mode::Standard && !wanted.only_if_cached)
}

impl Exchange {
    /// Answers a request for a page that is stored in slices. Gives the request back if it is for another page, or has to go another way.
    pub async fn as_slices(self: &Arc<Self>, wants: Wants) -> Result<(Done, Response<Body>), Wants> {
        if wants.route.slice.is_none() {
            return Err(wants);
        }
        let (path, began) = (wants.head.uri.path().to_owned(), wants.began);
        let answered = self.sliced(wants).await;
        if let Ok((Done::Miss, _)) = answered {
            self.cache.observed.missed(&path, began.elapsed());
        }
        answered
    }

    async fn sliced(self: &Arc<Self>, wants: Wants) -> Result<(Done, Response<Body>), Wants> {
        let Wants { head, wanted, route, .. } = &wants;
        if head.method == Method::HEAD && wanted.intent == Intent::Look && wanted.mode == Mode::Standard {
            return match route.slice {
                Some(size) => Ok(self.told_of_slices(wants, size).await),
                None => Err(wants),
            };
        }
        let Some(size) = slice_size(head, wanted, route) else { return Err(wants) };
        let FirstByte::At(byte) = first_byte(head) else { return Err(wants) };
        let is_known_unsliced = self.cache.unsliced.has(wanted.key, self.cache.content.now())
            || (wanted.credentials.is_some() && self.cache.is_unshared(wanted.key));
        // While an update of the page is open, or no words can be read, its slices have nothing in common: it comes whole.
        if is_known_unsliced || !self.is_quiet(wanted.page).await {
            return Err(wants);
        }
        let mut slice = size.slice_of(byte);
        for _ in 0..MOST_FIRST {
            let asked = self.for_slice(&wants, size, slice, None);
            let asked_head = asked.head.clone();
            let (done, answered) = self.answer(asked).await;
            let Some(of) = slice_of(&asked_head, answered.status(), answered.headers()) else {
                // Whether the client gets a part, and whether there is such a part, the head of the page says.
                if slice > 0
                    && (answered.status() == StatusCode::RANGE_NOT_SATISFIABLE
                        || wants.head.headers.contains_key(IF_RANGE))
                {
                    slice = 0;
                    continue;
                }
                // A refusal says nothing about the page, and may be this client's alone.
                if matches!(answered.status(), StatusCode::OK | StatusCode::PARTIAL_CONTENT) {
                    self.cache.unsliced.remember(wants.wanted.key, self.cache.content.now());
                }
                // A part that the client has not asked for is no answer, nor is it that there is none.
                return match answered.status() {
                    StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE => Err(wants),
                    _ => Ok((done, answered)),
                };
            };
            let (status, range) = match gets(&wants.head, &answered, of.length) {
                Gets::NotModified => return Ok((done, not_modified(answered))),
                Gets::NoSuchPart => return Ok((done, no_such_part(answered, of.length))),
                Gets::Bytes(status, range) => (status, range),
            };
            let (first, last) = (size.slice_of(range.start), size.slice_of(range.end - 1));
            let is_registered = !matches!(answered.extensions().get(), None | Some(Under::Read(_)));
            if first != last && !is_registered {
                self.is_not_kept(&wants).await;
                break;
            }
            if first == slice {
                let is_fetched = done != Done::Hit;
                let sliced = Sliced { exchange: self.clone(), wants, size, head: of, range, is_fetched };
                return Ok((done, sliced.answer(status, answered)));
            }
            slice = first;
        }
        Err(wants)
    }

    /// The first slice may not be stored: later requests of this kind do not ask for it in vain.
    async fn is_not_kept(&self, wants: &Wants) {
        let key = wants.wanted.key;
        if wants.wanted.credentials.is_some() {
            self.cache.remember_unshared(key);
        } else if self.is_quiet(wants.wanted.page).await {
            self.cache.unsliced.remember(key, self.cache.content.now());
        }
    }

    /// A HEAD, which goes to the application. If its answer is about another page than the one whose first slice is stored, that is dropped (RFC 9111 section 4.3.5).
    async fn told_of_slices(self: &Arc<Self>, wants: Wants, size: SliceSize) -> (Done, Response<Body>) {
        let first = self.for_slice(&wants, size, 0, None);
        let (done, told) = self.answer(wants).await;
        let found = self.cache.find(&first.wanted, &first.head, &first.route);
        if let Some(copy) = found.copy {
            let (stored, _) = opened(copy, &self.cache.shapes);
            let of = slice_of(&first.head, StatusCode::PARTIAL_CONTENT, &stored);
            let length =
                told.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
            let is_other = |of: SliceHead| {
                told.headers().get(ETAG).is_some_and(|tag| *tag != of.tag)
                    || length.is_some_and(|length| length != of.length)
            };
            let is_gone = matches!(told.status(), StatusCode::NOT_FOUND | StatusCode::GONE);
            if is_gone || (told.status() == StatusCode::OK && of.is_none_or(is_other)) {
                self.cache.forget(found.key).await;
            }
        }
        (done, told)
    }

    /// Whether no update of a page is open, as far as words tell that can be read.
    async fn is_quiet(&self, page: Key) -> bool {
        self.words_of(page).await.is_some_and(|(_, words)| !words.are_busy(Kind::Standard))
    }

    /// The words of a page, as they are now.
    async fn words_of(&self, page: Key) -> Option<(ViewNumber, Words)> {
        self.cache.content.read(self.cache.page_of(page))?.words().await
    }

    /// The request for one slice.
    fn for_slice(&self, wants: &Wants, size: SliceSize, slice: u64, tag: Option<&HeaderValue>) -> Wants {
        let mut head = wants.head.clone();
        size.ask(&mut head, slice, tag);
        let key = self.cache.keys.of_slice(wants.wanted.key, size, slice);
        let (wanted, route) = (wants.wanted.for_slice(key), wants.route.clone());
        Wants { head, body: None, wanted, route, client: wants.client, began: Instant::now() }
    }
}

/// What a client gets of the page.
enum Gets {
    NotModified,
    NoSuchPart,
    /// These, with 200 or 206.
    Bytes(StatusCode, Range<u64>),
}

/// By the head of a slice. Conditions come before ranges (RFC 9110 section 13.2.2).
fn gets(head: &request::Parts, answered: &Response<Body>, length: u64) -> Gets {
    if answer_by_dates_too(head, StatusCode::OK, answered.headers()) == Answer::NotModified {
        return Gets::NotModified;
    }
    match parts(head, answered.headers(), length) {
        Parts::Unsatisfiable => Gets::NoSuchPart,
        Parts::Of(ranges) if ranges.len() == 1 => Gets::Bytes(StatusCode::PARTIAL_CONTENT, ranges[0].clone()),
        Parts::Of(_) | Parts::Whole => Gets::Bytes(StatusCode::OK, 0..length),
    }
}

fn not_modified(mut answered: Response<Body>) -> Response<Body> {
    answered.headers_mut().remove(CONTENT_RANGE);
    answer::not_modified(&mut answered);
    answered
}

fn no_such_part(mut answered: Response<Body>, length: u64) -> Response<Body> {
    answered.headers_mut().remove(CONTENT_TYPE);
    become_status(&mut answered, StatusCode::RANGE_NOT_SATISFIABLE, 0..0, Some(format!("bytes */{length}")));
    *answered.body_mut() = Body::empty();
    answered
}

/// Makes the head of a slice that of an answer with these bytes of its page.
fn become_status(answered: &mut Response<Body>, status: StatusCode, bytes: Range<u64>, range: Option<String>) {
    answered.extensions_mut().remove::<ReasonPhrase>();
    *answered.status_mut() = status;
    let headers = answered.headers_mut();
    headers.insert(CONTENT_LENGTH, HeaderValue::from(bytes.end - bytes.start));
    // Of the bytes of the slice (RFC 9530 section 2, RFC 1864).
    for digest in [CONTENT_RANGE, CONTENT_DIGEST, CONTENT_MD5] {
        headers.remove(digest);
    }
    let range = range.map(|range| HeaderValue::try_from(range).expect("invariant: digits are a header value"));
    headers.extend(range.map(|range| (CONTENT_RANGE, range)));
}

impl Sliced {
    /// The answer for the client, made of that with the first slice.
    fn answer(self, status: StatusCode, mut answered: Response<Body>) -> Response<Body> {
        let Range { start, end } = self.range;
        let range = format!("bytes {start}-{}/{}", end - 1, self.head.length);
        become_status(&mut answered, status, start..end, Some(range).filter(|_| status == StatusCode::PARTIAL_CONTENT));
        let under = answered.extensions_mut().remove::<Under>().unwrap_or(Under::Read(None));
        let (pieces, taken) = mpsc::channel(1);
        let first = std::mem::replace(answered.body_mut(), Body::Held(taken));
        tokio::spawn(async move {
            if let Err(cut) = self.send(first, under, &pieces).await {
                self.exchange.cache.observed.slices_cut.increment();
                // The client may have gone.
                let _ = pieces.send(Err(cut)).await;
            }
        });
        answered
    }

    /// Sends slice after slice. Ends early if the client has gone.
    async fn send(&self, body: Body, under: Under, pieces: &Pieces) -> Result<(), Cut> {
        let (first, last) = (self.size.slice_of(self.range.start), self.size.slice_of(self.range.end - 1));
        let mut is_there = self.send_one(first, body, pieces).await?;
        if first == last || !is_there {
            let _ = pieces.send(Ok(None)).await;
            return Ok(());
        }
        let (registered, read) = resolved(under).await;
        let run = Run::new(self.head.tag.clone(), registered, read);
        for slice in first + 1..=last {
            let body = self.next(&run, slice).await?;
            self.exchange.cache.observed.slices.increment();
            is_there = self.send_one(slice, body, pieces).await?;
            if !is_there {
                return Ok(());
            }
        }
        let _ = pieces.send(Ok(None)).await;
        Ok(())
    }

    /// Sends what the client wants of one slice, all of which must come. Whether the client is still there.
    async fn send_one(&self, slice: u64, mut body: Body, pieces: &Pieces) -> Result<bool, Cut> {
        let Range { start: mut at, end } = self.size.range(slice);
        let end = end.min(self.range.end);
        while at < end {
            let data = match body.frame().await {
                Some(frame) => frame?.into_data().unwrap_or_default(),
                None => return Err(Cut::Abandoned),
            };
            let piece = within(data, at, self.range.start..end, &mut at);
            if !piece.is_empty() && pieces.send(Ok(Some(piece))).await.is_err() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The next slice, if it may follow those before.
    async fn next(&self, run: &Run<Stamp, HeaderValue>, slice: u64) -> Result<Body, Cut> {
        let cache = &self.exchange.cache;
        for _ in 0..MOST_FETCHED {
            let asked = self.exchange.for_slice(&self.wants, self.size, slice, Some(run.tag()));
            let (asked_head, wanted) = (asked.head.clone(), asked.wanted);
            let (done, mut answered) = self.exchange.answer(asked).await;
            let of = slice_of(&asked_head, answered.status(), answered.headers());
            if of.is_none() && answered.status().is_server_error() {
                return Err(Cut::Abandoned);
            }
            let tag = of.filter(|of| of.length == self.head.length).map(|of| of.tag);
            let under = answered.extensions_mut().remove::<Under>().unwrap_or(Under::Read(None));
            let (registered, read) = resolved(under).await;
            // Only now: what is in hand is judged by words of later.
            let now = self.words_now().await;
            match run.follows(tag.as_ref(), registered.as_ref(), read.as_ref(), |stamp| {
                now.as_ref().is_some_and(|now| now.are(stamp))
            }) {
                Follows::Yes => return Ok(answered.into_body()),
                // A stored one may be older than the first: it is fetched once more.
                Follows::OtherTag if done == Done::Hit => {
                    let found = cache.find(&wanted, &asked_head, &self.wants.route);
                    cache.forget(found.key).await;
                }
                Follows::OtherTag => break,
                Follows::Changed => {
                    self.leads_to_no_whole();
                    return Err(Cut::Changed);
                }
            }
        }
        self.leads_to_no_whole();
        // The origin has another page now: the slices of this one lead to no whole any more.
        for slice in [0, self.size.slice_of(self.range.start)] {
            let asked = self.exchange.for_slice(&self.wants, self.size, slice, None);
            let found = cache.find(&asked.wanted, &asked.head, &self.wants.route);
            cache.forget(found.key).await;
        }
        Err(Cut::Changed)
    }

    /// Slices that were fetched one after the other are none of one page, as far as this cache can tell: an application that names each slice otherwise would have
    /// each answer cut.
    fn leads_to_no_whole(&self) {
        if self.is_fetched {
            let cache = &self.exchange.cache;
            cache.unsliced.remember(self.wants.wanted.key, cache.content.now());
        }
    }

    async fn words_now(&self) -> Option<Now<'_>> {
        let words = self.exchange.words_of(self.wants.wanted.page).await?;
        Some(Now { exchange: &self.exchange, words })
    }
}

/// The stamp that it is registered under, or the words that were read before.
async fn resolved(under: Under) -> (Option<Stamp>, Option<Stamp>) {
    match under {
        Under::Stored(stamp) => (Some(stamp), None),
        Under::Read(read) => (None, read),
        Under::Registering(mut stamp, read) => {
            let registered = stamp.wait_for(Option::is_some).await.ok().and_then(|stamp| *stamp);
            (registered, read)
        }
    }
}

type Pieces = mpsc::Sender<Result<Option<Bytes>, Cut>>;

/// Words of the page that were read a moment ago.
struct Now<'a> {
    exchange: &'a Exchange,
    words: (ViewNumber, Words),
}

impl Now<'_> {
    /// Whether what has this stamp is in force (rule P1).
    fn are(&self, stamp: &Stamp) -> bool {
        let (content, (posted, words)) = (&self.exchange.cache.content, &self.words);
        let now = content.now();
        look(stamp, words, *posted, &content.lease(), now) == Verdict::Fresh
    }
}

/// What lies in `wanted` of data that begins at byte `begin` of the page. Moves `at` behind the data.
fn within(data: Bytes, begin: u64, wanted: Range<u64>, at: &mut u64) -> Bytes {
    let end = begin + data.len() as u64;
    *at = end;
    let (from, to) = (wanted.start.clamp(begin, end) - begin, wanted.end.clamp(begin, end) - begin);
    // Within the data, which is in memory.
    data.slice(from as usize..to.max(from) as usize)
}
