//! What the threads of a proxy share: the stored pages, and the fills under way.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use verbena_caching::{Key, Request, Route, Stored, Variant};
use verbena_content::service::Content;
use verbena_content::{
    FillId, PageId, Reader, ReaderLimits, Scope, Settled, Stamp, Start, Store, Waiter, Weigh, Words,
};
use verbena_terms::{Time, ViewNumber};

use crate::observed::Observed;

/// Pages whose answers are known not to be for requests with credentials; the oldest are forgotten.
const UNSHARED: usize = 16_384;

/// A stored page.
pub(crate) struct Copy {
    /// Among the page's variants.
    pub key: Key,
    pub stored: Stored,
    pub body: Bytes,
    /// When the lifetime that the origin set is over.
    pub expires: Option<Time>,
}

/// What stands under a key: a page, or by what its pages differ.
#[derive(Clone)]
enum Entry {
    Page(Arc<Copy>),
    Varies(Variant),
}

impl Weigh for Entry {
    fn bytes(&self) -> usize {
        match self {
            Entry::Page(copy) => {
                let headers = copy.stored.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 64);
                size_of::<Copy>() + headers.sum::<usize>() + copy.body.len()
            }
            Entry::Varies(_) => size_of::<Variant>() + 256,
        }
    }
}

/// Shared by the threads of a proxy.
pub(crate) struct Cache {
    pub content: Content,
    pub observed: Observed,
    store: Store<Entry>,
    fills: Mutex<Fills>,
    unshared: quick_cache::sync::Cache<Key, ()>,
    registration_patience: Duration,
}

struct Fills {
    reader: Reader<Key>,
    waiting: HashMap<Waiter, oneshot::Sender<Option<Arc<Copy>>>>,
    next_waiter: Waiter,
}

/// What a request that missed does.
pub(crate) enum Missed {
    Lead(FillId),
    Wait(oneshot::Receiver<Option<Arc<Copy>>>),
    Alone(&'static str),
}

impl Cache {
    pub fn new(content: Content, observed: Observed, memory: u64, largest: usize) -> Self {
        let limits = ReaderLimits::default();
        let reader = Reader::new(content.identity(), limits);
        Cache {
            store: Store::new(memory, 8192, largest + 64 * 1024),
            fills: Mutex::new(Fills { reader, waiting: HashMap::new(), next_waiter: 0 }),
            unshared: quick_cache::sync::Cache::new(UNSHARED),
            registration_patience: limits.registration_deadline,
            content,
            observed,
        }
    }

    /// The word that a page is validated by: the same for all its variants.
    pub fn page(&self, key: Key) -> PageId {
        self.content.names().page(&key.0.to_le_bytes())
    }

    /// The copy that answers this request, if there is one, and whether the page has others.
    pub fn find(&self, request: &Request, head: &request::Parts, route: &Route) -> (Option<(Stamp, Arc<Copy>)>, bool) {
        let found = self.store.copy(&request.key.0.to_le_bytes());
        match found.map(|found| (found.stamp, found.value)) {
            None => (None, false),
            Some((stamp, Entry::Page(copy))) => (Some((stamp, copy)), false),
            Some((_, Entry::Varies(variant))) => {
                let key = variant.key(request.key, &head.headers, &route.cookies);
                let found = self.store.copy(&key.0.to_le_bytes());
                let copy = found.and_then(|found| match found.value {
                    Entry::Page(copy) => Some((found.stamp, copy)),
                    Entry::Varies(_) => None,
                });
                (copy, true)
            }
        }
    }

    /// Joins or begins the fill of a page (rules P2, P8). The words were read after the request arrived.
    pub fn miss(&self, key: Key, page: PageId, words: Option<(ViewNumber, Words)>) -> Missed {
        let now = self.content.now();
        let lease = self.content.lease();
        let mut fills = self.fills.lock();
        let waiter = fills.next_waiter;
        fills.next_waiter += 1;
        match fills.reader.start(&key, page, waiter, words, &lease, now) {
            Start::Lead(fill) => Missed::Lead(fill),
            Start::Wait(_) => {
                let (sender, receiver) = oneshot::channel();
                fills.waiting.insert(waiter, sender);
                Missed::Wait(receiver)
            }
            Start::Alone(why) => Missed::Alone(crate::answer::alone(why)),
        }
    }

    /// The answer must not be stored.
    pub fn unstorable(&self, fill: FillId) {
        let now = self.content.now();
        let settled = self.fills.lock().reader.unstorable(fill, now);
        settled.into_iter().for_each(|settled| self.settle(settled, None));
    }

    /// No whole answer came.
    pub fn failed(&self, fill: FillId) {
        let settled = self.fills.lock().reader.failed(fill);
        settled.into_iter().for_each(|settled| self.settle(settled, None));
    }

    /// The whole answer is here: asks the page's home, and stores it if the home accepts (rule P2).
    pub async fn fetched(&self, fill: FillId, scope: Scope, copy: Copy) {
        let Some(register) = self.fills.lock().reader.answered(fill, scope, self.content.now()) else { return };
        let registered = tokio::time::timeout(self.registration_patience, self.content.register(register)).await;
        let copy = Arc::new(copy);
        let settled = match registered {
            Ok(Some(registered)) => {
                let now = self.content.now();
                let lease = self.content.lease();
                self.fills.lock().reader.registered(&registered, &lease, now)
            }
            Ok(None) | Err(_) => self.fills.lock().reader.failed(fill),
        };
        settled.into_iter().for_each(|settled| self.settle(settled, Some(&copy)));
    }

    /// Whether the page's answers are known not to be for requests with credentials.
    pub fn is_unshared(&self, key: Key) -> bool {
        self.unshared.get(&key).is_some()
    }

    /// The page's answers are not for requests with credentials.
    pub fn remember_unshared(&self, key: Key) {
        self.unshared.insert(key, ());
    }

    /// Copies kept, and the bytes that they take.
    pub fn kept(&self) -> (usize, u64) {
        (self.store.len(), self.store.bytes())
    }

    /// This node is another incarnation now.
    pub fn rejoined(&self) {
        self.fills.lock().reader.rejoined(self.content.identity());
    }

    fn settle(&self, settled: Settled<Key>, fetched: Option<&Arc<Copy>>) {
        match (&settled.stored, fetched) {
            (Ok(stamp), Some(copy)) => {
                let variant = &copy.stored.variant;
                if !variant.is_plain() {
                    self.store.keep(&settled.key.0.to_le_bytes(), *stamp, Entry::Varies(variant.clone()));
                }
                self.store.keep(&copy.key.0.to_le_bytes(), *stamp, Entry::Page(copy.clone()));
            }
            (Err(why), Some(_)) => self.observed.not_stored.with([crate::answer::not_stored(*why)]).increment(),
            _ => {}
        }
        let mut fills = self.fills.lock();
        let mut tell = |waiter, copy| {
            if let Some(sender) = fills.waiting.remove(&waiter) {
                // Whoever waited may have hung up.
                let _ = sender.send(copy);
            }
        };
        for waiter in settled.serve {
            tell(waiter, fetched.cloned());
        }
        for waiter in settled.forward {
            tell(waiter, None);
        }
    }
}
