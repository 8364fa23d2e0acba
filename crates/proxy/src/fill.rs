//! An answer on its way from the origin, kept to be stored.
//!
//! A task of its own reads it at the origin's pace, so that a client that reads slowly, or has gone, does not hold up those who wait for the same
//! page. What the client has not taken yet waits here: at most what may be stored, from a common budget, and until it is stored. A
//! body that exceeds one of these is no longer kept, and the client reads the rest at its own pace.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, ETAG};
use http::{HeaderValue, StatusCode};
use http_body::{Body as _, Frame, SizeHint};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use verbena_caching::{Carried, Coding, Key, Keys, Reason, Stored};
use verbena_content::{FillId, Kind, PageId, Scope, Stamp, Unstorable};
use verbena_statements::Why;
use verbena_terms::Time;

use crate::ahead::{Next, Puts, Takes, ahead};
use crate::body::{Body, Cut, Passing};
use crate::cache::{Cache, Fetched};
use crate::joining::Joined;
use crate::origin::Place;
use crate::page::Page;
use crate::queries::{Depends, Unstored};
use crate::registering::pump_joined;

/// The longest that a body may take from its head to its end to be stored.
pub(crate) const LONGEST: Duration = Duration::from_secs(5);
/// The longest that others wait for a body from its head on. Most bodies are here with their head; who waits longer than this gets the page sooner by itself.
const WAITED_FOR: Duration = Duration::from_millis(500);

/// Bytes of room behind a body for the fields that are stored with it; where they need more, it is made.
pub(crate) const FIELDS: usize = 256;

/// The duty to say how a fill ended: dropped, it failed.
pub(crate) struct Leader {
    cache: Arc<Cache>,
    fill: Option<FillId>,
    /// Where the stamp under which it is registered is waited for.
    stamp: Option<watch::Sender<Option<Stamp>>>,
}

impl Leader {
    pub fn new(cache: Arc<Cache>, fill: FillId) -> Self {
        Leader { cache, fill: Some(fill), stamp: None }
    }

    /// Where the stamp will be, if its home accepts the page.
    pub fn stamp(&mut self) -> watch::Receiver<Option<Stamp>> {
        let (sender, receiver) = watch::channel(None);
        self.stamp = Some(sender);
        receiver
    }

    /// Its home has accepted the page.
    pub fn is_registered(&self, stamp: &Stamp) {
        if let Some(sender) = &self.stamp {
            sender.send_replace(Some(*stamp));
        }
    }

    /// It is forwarded only now, after a time.
    pub async fn waited(&self, page: PageId) {
        if let Some(fill) = self.fill {
            self.cache.waited(fill, page).await;
        }
    }

    /// Its body takes long: no other request waits for it any more.
    fn slow(&self) {
        if let Some(fill) = self.fill {
            self.cache.slow(fill);
        }
    }

    /// The fill, while its end is not told.
    pub fn fill(&self) -> Option<(Arc<Cache>, FillId)> {
        Some((self.cache.clone(), self.fill?))
    }

    /// Its end is told.
    pub fn is_told(&mut self) {
        self.fill = None;
    }

    pub fn unstorable(mut self, why: Unstorable) {
        if let Some(fill) = self.fill.take() {
            self.cache.unstorable(fill, why);
        }
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        if let Some(fill) = self.fill.take() {
            self.cache.failed(fill);
        }
    }
}

/// What is known of a page that is to be stored.
#[derive(Clone, Copy)]
pub(crate) struct About {
    pub id: PageId,
    /// By what its copy will be found to be good.
    pub kind: Kind,
    /// Why the answer itself does not say what it depends on.
    pub undeclared: Option<&'static str>,
}

/// What is to be stored at the end.
pub(crate) struct Kept {
    pub leader: Leader,
    /// The page, whatever its variants.
    pub page: Key,
    pub about: About,
    /// Among the page's variants.
    pub key: Key,
    pub stored: Stored,
    /// In which coding those that come will want it, as far as the request tells for which it is fetched.
    pub coding: Option<Coding>,
    /// When it came, and when the lifetime that the origin set is over.
    pub times: (Time, Option<Time>),
    pub depends: Depends,
    pub largest: usize,
    /// What its body must not carry.
    pub carried: Carried,
    /// Given back when the body is here.
    pub place: Place,
}

/// Memory that fills take and give back.
pub(crate) struct Budget {
    left: AtomicUsize,
}

/// What one fill took of the budget; given back when it is stored or no longer kept, or its client has read it.
pub(crate) struct Share {
    cache: Arc<Cache>,
    taken: AtomicUsize,
}

/// The client's end of a fill.
pub(crate) struct Filled {
    ahead: Takes,
    /// Bytes that were read and put back.
    read: Option<Bytes>,
    rest: Option<Rest>,
    /// Of the whole.
    hint: SizeHint,
    share: Arc<Share>,
}

/// What the client reads by itself.
enum Rest {
    Alone(Passing),
    Beside(Joined),
}

/// Begins to read a body that is to be stored; gives what the client reads.
pub(crate) fn fill(passing: Passing, kept: Kept) -> Body {
    if passing.incoming.is_end_stream() {
        tokio::spawn(kept.register(Vec::new()));
        return Body::empty();
    }
    let share = Arc::new(Share { cache: kept.leader.cache.clone(), taken: AtomicUsize::new(0) });
    let (puts, takes) = ahead();
    let hint = passing.incoming.size_hint();
    match kept.may_be_joined() {
        true => drop(tokio::spawn(pump_joined(passing, kept, puts, share.clone()))),
        false => drop(tokio::spawn(pump(passing, kept, puts, share.clone()))),
    }
    Body::Filled(Box::new(Filled { ahead: takes, read: None, rest: None, hint, share }))
}

/// A client that has gone does not end it: others may wait.
async fn pump(mut passing: Passing, mut kept: Kept, puts: Puts, share: Arc<Share>) {
    let head_came = Instant::now();
    let give_up = head_came + LONGEST.min(passing.patience);
    let mut waited_for = Some(head_came + WAITED_FOR);
    let expected = passing.incoming.size_hint().exact().unwrap_or(0);
    let mut bytes = Vec::with_capacity(usize::try_from(expected).unwrap_or(0).min(kept.largest) + FIELDS);
    let reason = loop {
        // Also where it comes all the time.
        if waited_for.take_if(|until| *until <= Instant::now()).is_some() {
            kept.leader.slow();
        }
        let frame = match timeout_at(waited_for.unwrap_or(give_up).min(give_up), passing.next()).await {
            Err(_) if Instant::now() < give_up => continue,
            Err(_) => break Reason::TooSlow,
            Ok(None) => {
                return puts
                    .ends(async {
                        let body = kept.register(bytes).await?.body();
                        share.give_back();
                        Some(body)
                    })
                    .await;
            }
            Ok(Some(Err(cut))) => return puts.last(Next::Cut(cut)),
            Ok(Some(Ok(frame))) => frame,
        };
        let refused = match frame.data_ref() {
            None => Some(Reason::Form),
            Some(data) if bytes.len() + data.len() > kept.largest => Some(Reason::TooLarge),
            // What the client has not taken, and what is kept.
            Some(data) if !share.take(2 * data.len()) => Some(Reason::TooMuch),
            Some(data) => {
                bytes.extend_from_slice(data);
                kept.carried.is_in_body(&bytes).then_some(Reason::CookieValue)
            }
        };
        puts.frame(frame);
        if let Some(reason) = refused {
            break reason;
        }
    };
    kept.leader.cache.observed.not_stored.with([reason.name()]).increment();
    match reason {
        // Another time there may be room, or another client asks.
        Reason::TooMuch | Reason::CookieValue => drop(kept),
        _ => kept.leader.unstorable(Unstorable::Page(reason.name())),
    }
    drop(bytes);
    puts.last(Next::Rest(passing));
}

impl Filled {
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        if let Some(read) = self.read.take() {
            return Poll::Ready(Some(Ok(Frame::data(read))));
        }
        loop {
            if let Some(rest) = &mut self.rest {
                return match rest {
                    Rest::Alone(passing) => passing.poll(context),
                    Rest::Beside(joined) => joined.poll(context),
                };
            }
            return Poll::Ready(match ready!(self.ahead.poll(context)) {
                Some(Next::Frame(frame)) => Some(Ok(frame)),
                Some(Next::Cut(cut)) => Some(Err(cut)),
                Some(Next::End) => None,
                Some(Next::Rest(rest)) => {
                    // All that was kept or waited here has gone.
                    self.share.give_back();
                    self.rest = Some(Rest::Alone(rest));
                    continue;
                }
                Some(Next::Joined(joined)) => {
                    self.rest = Some(Rest::Beside(joined));
                    continue;
                }
                // The task ended before the body did.
                None => Some(Err(Cut::Abandoned)),
            });
        }
    }

    /// All that was read of it so far, to be read once more.
    pub fn put_back(&mut self, read: Bytes) {
        self.read = Some(read);
    }

    pub fn size_hint(&self) -> SizeHint {
        self.hint
    }
}

impl Kept {
    /// Whether it can be registered when its head is here: what only the whole answer shows is not needed.
    pub fn may_be_joined(&self) -> bool {
        self.depends.charging.is_none() && self.carried.is_empty()
    }

    /// What the page depends on. `None`: it is not to be stored, and its leader is told why.
    pub async fn scope(depends: Depends, leader: Leader, of: &About) -> Option<(Scope, Leader)> {
        let cache = &leader.cache;
        let scope = match depends.on(cache.content.names(), of.id.into()).await {
            Ok((scope, why)) => {
                if let Some(why) = why.map(Why::name).or(of.undeclared).filter(|_| scope == Scope::Everything) {
                    cache.observed.undeclared.with([why]).increment();
                }
                scope
            }
            Err(Unstored { why, is_of_this_time }) => {
                cache.observed.not_stored.with([why.name()]).increment();
                // Remembered where it was another's doing, it would keep the page out of the cache for as long as others write (rule Q6).
                if !is_of_this_time {
                    leader.unstorable(Unstorable::Answer(why.name()));
                }
                return None;
            }
        };
        if scope == Scope::Everything && of.kind == Kind::Standard {
            cache.observed.not_stored.with([Reason::TooManyNames.name()]).increment();
            leader.unstorable(Unstorable::Page(Reason::TooManyNames.name()));
            return None;
        }
        Some((scope, leader))
    }

    /// Stores it, if its home agrees.
    pub async fn register(self, body: Vec<u8>) -> Option<Page> {
        let Kept { leader, page, key, mut stored, coding, about, times, depends, place, .. } = self;
        drop(place);
        let (scope, mut leader) = Kept::scope(depends, leader, &about).await?;
        let fill = leader.fill?;
        stored_whole(&leader.cache.keys, about.kind, &mut stored, &body);
        let page = leader.cache.fetched(fill, scope, Fetched { page, key, stored, body, times }).await;
        leader.fill = None;
        if let Some(page) = &page {
            leader.is_registered(page.stamp());
            coded_soon(&leader.cache, coding, key, page);
        }
        page
    }
}

/// Makes the head of a page that is here to its end what it is stored with.
pub(crate) fn stored_whole(keys: &Keys, kind: Kind, stored: &mut Stored, body: &[u8]) {
    if kind == Kind::Coherent && !stored.headers.contains_key(ETAG) {
        stored.headers.insert(ETAG, keys.entity_tag_of(body));
    }
    if stored.status != StatusCode::NO_CONTENT {
        stored.headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
    }
}

/// Has a page compressed that was stored just now, for those that come.
pub(crate) fn coded_soon(cache: &Arc<Cache>, coding: Option<Coding>, key: Key, page: &Page) {
    if let Some(coding) = coding.filter(|_| page.may_be_coded()) {
        // Not for this client, whose answer is on its way.
        drop(cache.coded(coding, key, page));
    }
}

impl Budget {
    pub fn new(bytes: usize) -> Self {
        Budget { left: AtomicUsize::new(bytes) }
    }

    /// Bytes left.
    pub fn left(&self) -> usize {
        self.left.load(Ordering::Relaxed)
    }
}

impl Share {
    pub fn take(&self, bytes: usize) -> bool {
        let left = &self.cache.budget.left;
        if left.try_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes)).is_err() {
            return false;
        }
        self.taken.fetch_add(bytes, Ordering::Relaxed);
        true
    }

    pub fn give_back(&self) {
        self.cache.budget.left.fetch_add(self.taken.swap(0, Ordering::Relaxed), Ordering::Relaxed);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.give_back();
    }
}
