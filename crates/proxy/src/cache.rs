//! What the threads of a proxy share: the stored pages, and the fills under way.

use std::collections::HashMap;
use std::time::Duration;

use http::request;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use verbena_caching::{Key, Keys, Request, Route, Stored, Variant};
use verbena_content::service::Content;
use verbena_content::{
    Alone, FillId, Kind, NotStored, PageId, Reader, ReaderLimits, Registered, Replacement, Scope, Settled, Stamp,
    Start, Store, Unstorable, Waiter, Words,
};
use verbena_terms::{Incarnation, Time, ViewNumber};

use crate::fill::Budget;
use crate::observed::Observed;
use crate::page::Page;
use crate::page_pool::{Moment, PagePool};
use crate::shapes::Shapes;

/// Pages whose answers are known not to be for requests with credentials; the oldest are forgotten.
const UNSHARED: usize = 16_384;

/// How long that is remembered.
const UNSHARED_FOR: Duration = Duration::from_secs(60);

/// Bytes of a page as it is expected: rather too few, for what the store remembers of pages that it no longer has.
const TYPICAL: usize = 1024;

/// A page that was fetched, and may be stored if its home agrees.
pub(crate) struct Fetched {
    /// The page, whatever its variants.
    pub page: Key,
    /// Among the page's variants.
    pub key: Key,
    pub stored: Stored,
    pub body: Vec<u8>,
    /// When it came, and when the lifetime that the origin set is over.
    pub times: (Time, Option<Time>),
}

/// A page that others fetched for those who wait for it.
#[derive(Clone)]
pub(crate) struct Shared {
    /// Among the page's variants.
    pub key: Key,
    pub variant: Variant,
    pub copy: Page,
}

/// Shared by the threads of a proxy.
pub(crate) struct Cache {
    pub content: Content,
    pub observed: Observed,
    /// For fills under way.
    pub budget: Budget,
    pub shapes: Shapes,
    pub keys: Keys,
    /// The memory of all nodes, if this one lends some.
    pub pool: Option<PagePool>,
    store: Store<Page>,
    fills: Mutex<Fills>,
    unshared: quick_cache::sync::Cache<Key, Time>,
    registration_patience: Duration,
}

struct Fills {
    /// Whom the reader takes this node for.
    me: Incarnation,
    reader: Reader<Key>,
    waiting: HashMap<Waiter, oneshot::Sender<Option<Shared>>>,
    next_waiter: Waiter,
}

impl Fills {
    /// Gives a request that waits the page, or lets it go without. Its client may have hung up.
    fn tell(&mut self, waiter: Waiter, copy: Option<Shared>) {
        if let Some(sender) = self.waiting.remove(&waiter) {
            let _ = sender.send(copy);
        }
    }
}

/// What is kept for a request.
pub(crate) struct Found {
    /// Under which a fill for it may be shared: of the page, or of the variant if the page is known to vary.
    pub key: Key,
    /// By whose words a copy is validated: the same for all variants of a page.
    pub page: PageId,
    pub copy: Option<Page>,
    /// Whether the page has variants.
    pub varies: bool,
}

/// What a request that missed does.
pub(crate) enum Missed {
    Lead(FillId),
    Wait(oneshot::Receiver<Option<Shared>>),
    Alone {
        why: &'static str,
        /// In better times it would be a hit, or a fill of its own.
        is_fill: bool,
        /// It is why an earlier answer was not stored.
        is_remembered: bool,
    },
}

impl Cache {
    pub fn new(
        content: Content,
        (observed, pool): (Observed, Option<PagePool>),
        replacement: Replacement,
        memory: u64,
        largest: usize,
    ) -> Self {
        let limits = ReaderLimits::default();
        let me = content.identity();
        let reader = Reader::new(me, limits);
        Cache {
            shapes: Shapes::new(),
            pool,
            store: Store::new(replacement, memory, TYPICAL, largest + 64 * 1024),
            fills: Mutex::new(Fills { me, reader, waiting: HashMap::new(), next_waiter: 0 }),
            unshared: quick_cache::sync::Cache::new(UNSHARED),
            registration_patience: limits.registration_deadline,
            keys: Keys::new(content.names().page_secret()),
            budget: Budget::new(usize::try_from(memory / 4).unwrap_or(usize::MAX).max(2 * largest)),
            content,
            observed,
        }
    }

    /// By whose words what has this key is validated.
    pub fn page_of(&self, key: Key) -> PageId {
        self.content.names().page(&key.0.to_le_bytes())
    }

    /// What is kept for this request.
    pub fn find(&self, request: &Request, head: &request::Parts, route: &Route) -> Found {
        let page = self.page_of(request.key);
        let found = self.store.copy(request.key.0);
        let Some(names) = found.as_ref().and_then(Page::varies_by) else {
            return Found { key: request.key, page, copy: found, varies: false };
        };
        let key = Variant::key_by(names, request.key, &head.headers, &route.cookies);
        let copy = self.store.copy(key.0).filter(|copy| copy.varies_by().is_none());
        Found { key, page, copy, varies: true }
    }

    /// Joins or begins the fill of a page (rules P2, P8). The words were read after the request arrived.
    pub fn miss(&self, key: Key, page: (PageId, Kind), words: Option<(ViewNumber, Words)>) -> Missed {
        let now = self.content.now();
        let lease = self.content.lease();
        let me = self.content.identity();
        let mut fills = self.fills.lock();
        if fills.me != me {
            // Another life of this node (rule C1): registrations in the name of the former would not be answered.
            fills.me = me;
            fills.reader.rejoined(me);
        }
        let waiter = fills.next_waiter;
        fills.next_waiter += 1;
        match fills.reader.start(&key, page, waiter, words, &lease, now) {
            Start::Lead(fill) => Missed::Lead(fill),
            Start::Wait(_) => {
                let (sender, receiver) = oneshot::channel();
                fills.waiting.insert(waiter, sender);
                Missed::Wait(receiver)
            }
            Start::Alone(why) => {
                let is_remembered = matches!(why, Alone::Unstorable(_));
                Missed::Alone { why: crate::answer::alone(why), is_fill: !is_remembered, is_remembered }
            }
        }
    }

    /// The fill waited before it is forwarded: its words are read once more, or an update of meanwhile would be its end.
    pub async fn waited(&self, fill: FillId, page: PageId) {
        let Some(reading) = self.content.read(page) else { return };
        let Some(words) = reading.words().await else { return };
        let now = self.content.now();
        let lease = self.content.lease();
        self.fills.lock().reader.waited(fill, words, &lease, now);
    }

    /// The copy of this key is known to be none of the application's present answers.
    pub async fn forget(&self, key: Key) {
        self.store.forget(key.0);
        if let Some(pool) = &self.pool {
            pool.withdraw(key).await;
        }
    }

    /// A request for this key that wanted the newest has had it: neither the copy nor what a fill brings that is under way may be answered after it.
    pub async fn overtaken(&self, key: Key) {
        self.fills.lock().reader.overtaken(&key);
        self.forget(key).await;
    }

    /// The body takes long: those who wait for it are let go, each to take its place among the fills.
    pub fn slow(&self, fill: FillId) {
        let mut fills = self.fills.lock();
        for waiter in fills.reader.slow(fill) {
            fills.tell(waiter, None);
        }
    }

    /// The answer must not be stored.
    pub fn unstorable(&self, fill: FillId, why: Unstorable) {
        let now = self.content.now();
        let settled = self.fills.lock().reader.unstorable(fill, why, now);
        if let Some(settled) = settled {
            self.settle(settled, None);
        }
    }

    /// No whole answer came.
    pub fn failed(&self, fill: FillId) {
        let settled = self.fills.lock().reader.failed(fill);
        if let Some(settled) = settled {
            self.settle(settled, None);
        }
    }

    /// The whole answer is here: asks the page's home, and stores it if the home accepts (rule P2).
    pub async fn fetched(&self, fill: FillId, scope: Scope, fetched: Fetched) -> Option<Page> {
        let register = self.fills.lock().reader.answered(fill, scope, self.content.now())?;
        let registered = tokio::time::timeout(self.registration_patience, self.content.register(register)).await;
        let settled = self.conclude(fill, registered.ok().flatten().as_ref())?;
        self.settle(settled, Some(fetched)).map(|shared| shared.copy)
    }

    /// Ends a fill with the home's answer, or without: one that is about another life of this node counts as none.
    fn conclude(&self, fill: FillId, registered: Option<&Registered>) -> Option<Settled<Key>> {
        let now = self.content.now();
        let lease = self.content.lease();
        let mut fills = self.fills.lock();
        let settled = registered.and_then(|registered| fills.reader.registered(registered, &lease, now));
        settled.or_else(|| Some(Settled { stored: Err(NotStored::Late), ..fills.reader.failed(fill)? }))
    }

    /// Whether the page's answers are known not to be for requests with credentials.
    pub fn is_unshared(&self, key: Key) -> bool {
        self.unshared.get(&key).is_some_and(|until| self.content.now() < until)
    }

    /// The page's answers are not for requests with credentials.
    pub fn remember_unshared(&self, key: Key) {
        self.unshared.insert(key, self.content.now() + UNSHARED_FOR);
    }

    /// Copies kept, and the bytes that they take.
    pub fn kept(&self) -> (usize, u64) {
        (self.store.len(), self.store.bytes())
    }

    /// Tells all who wait; gives what they are given.
    fn settle(&self, settled: Settled<Key>, fetched: Option<Fetched>) -> Option<Shared> {
        let shared = match (settled.stored, fetched) {
            (Ok(stamp), Some(fetched)) => Some(self.keep(stamp, fetched)),
            (Err(why), Some(_)) => {
                self.observed.not_stored.with([crate::answer::not_stored(why)]).increment();
                None
            }
            _ => None,
        };
        let mut fills = self.fills.lock();
        for waiter in settled.serve {
            fills.tell(waiter, shared.clone());
        }
        for waiter in settled.forward {
            fills.tell(waiter, None);
        }
        shared
    }

    /// Keeps a copy, and by what the page's variants differ if it has some.
    pub fn put(&self, (page, variants): (Key, Option<Page>), (key, copy): (Key, Page)) {
        if let Some(variants) = variants {
            self.store.keep(page.0, variants);
        }
        self.store.keep(key.0, copy);
    }

    fn keep(&self, stamp: Stamp, fetched: Fetched) -> Shared {
        let Fetched { page, key, stored, body, times } = fetched;
        let copy = Page::new(stamp, times, &stored, body, &self.shapes);
        let variants = (!stored.variant.is_plain()).then(|| Page::varies(stamp, &stored.variant));
        if let Some(pool) = &self.pool {
            let moment = Moment::now(self.content.now());
            pool.offer(key, &copy, &self.shapes, moment);
            if let Some(variants) = &variants {
                pool.offer(page, variants, &self.shapes, moment);
            }
        }
        self.put((page, variants), (key, copy.clone()));
        Shared { key, variant: stored.variant, copy }
    }
}
