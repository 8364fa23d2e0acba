//! What the threads of a proxy share: the stored pages, and the fills under way.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::request;
use http_body::SizeHint;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use verbena_caching::{Key, Keys, Request, Route, Stored, Variant};
use verbena_content::service::Content;
use verbena_content::{
    Alone, FillId, Kind, NotStored, PageId, Reader, ReaderLimits, Registered, Replacement, Scope, Settled, Stamp,
    Start, Store, Unstorable, Waiter, Word, Words,
};
use verbena_terms::{Incarnation, Time, ViewNumber};

use crate::coded::Coder;
use crate::fill::Budget;
use crate::joining::{Coming, Growing, Joined};
use crate::known::Known;
use crate::observed::Observed;
use crate::page::Page;
use crate::page_pool::{Moment, PagePool};
use crate::shapes::Shapes;

/// Requests that wait until one fill is registered; one more goes its own way.
const MOST_WAITING: usize = 1024;

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
    /// Without a body, if that is still coming.
    pub copy: Page,
    pub coming: Option<Arc<Coming>>,
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
    pub coder: Coder,
    pub store: Store<Page>,
    fills: Mutex<Fills>,
    /// Pages whose answers are not for requests with credentials.
    unshared: Known,
    /// Pages of routes with slices of which the origin gives no slices.
    pub unsliced: Known,
    registration_patience: Duration,
}

struct Fills {
    /// The incarnation of this node, as the reader knows it.
    me: Incarnation,
    reader: Reader<Key>,
    waiting: HashMap<Waiter, oneshot::Sender<Option<Shared>>>,
    next_waiter: Waiter,
    /// Pages whose head is registered and whose body is on its way; of several fills of a page the one that was registered last.
    coming: HashMap<Key, Arc<Coming>>,
    /// Fills that are being registered, by the key under which they are shared.
    registering: HashMap<Key, Registering>,
}

/// A fill that is being registered. Requests that could join it when it is wait until that is known.
struct Registering {
    fill: FillId,
    kind: Kind,
    /// The words under which it is.
    words: (ViewNumber, Word, Word),
    waiting: Vec<oneshot::Sender<()>>,
}

/// Ends the wait of those when it is dropped: what was registered is to be found by then, or one of them would fetch it once more.
pub(crate) struct Registers<'a> {
    cache: &'a Cache,
    key: Key,
    fill: FillId,
}

impl Drop for Registers<'_> {
    fn drop(&mut self) {
        let mut fills = self.cache.fills.lock();
        if fills.registering.get(&self.key).is_some_and(|registering| registering.fill == self.fill) {
            fills.registering.remove(&self.key);
        }
    }
}

impl Fills {
    /// Gives a request that waits the page, or lets it go without. Its client may have hung up.
    fn tell(&mut self, waiter: Waiter, copy: Option<Shared>) {
        if let Some(sender) = self.waiting.remove(&waiter) {
            let _ = sender.send(copy);
        }
    }

    fn tell_all(&mut self, served: Vec<Waiter>, forwarded: Vec<Waiter>, shared: Option<&Shared>) {
        for waiter in served {
            self.tell(waiter, shared.cloned());
        }
        for waiter in forwarded {
            self.tell(waiter, None);
        }
    }

    /// Whether this was the one of its key that later requests join. It is no more.
    fn leaves(&mut self, key: Key, coming: &Arc<Coming>) -> bool {
        let is_last = self.coming.get(&key).is_some_and(|last| Arc::ptr_eq(last, coming));
        if is_last {
            self.coming.remove(&key);
        }
        is_last
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
    /// One that is still coming: its head, and its body.
    Join(Page, Box<Joined>),
    /// Looks again, when it is known whether one that is coming may be joined.
    Again(oneshot::Receiver<()>),
    Alone {
        why: &'static str,
        /// In better times it would be a hit, or a fill of its own.
        is_fill: bool,
        /// It is why an earlier answer was not stored.
        is_remembered: bool,
    },
}

/// What a request that misses would do.
pub(crate) enum Foreseen {
    /// Be the one that fetches it.
    Lead,
    /// Wait for another one's fetch.
    Wait,
    /// Be answered with one that is still coming.
    Join,
    /// Be forwarded by itself.
    Alone(&'static str),
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
            fills: Mutex::new(Fills {
                me,
                reader,
                waiting: HashMap::new(),
                next_waiter: 0,
                coming: HashMap::new(),
                registering: HashMap::new(),
            }),
            unshared: Known::new(),
            unsliced: Known::new(),
            registration_patience: limits.registration_deadline,
            coder: Coder::new(),
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
        let page = self.page_of(request.page);
        let found = self.store.copy(request.key.0);
        let Some(names) = found.as_ref().and_then(Page::varies_by) else {
            return Found { key: request.key, page, copy: found, varies: false };
        };
        let key = Variant::key_by(names, request.key, &head.headers, route);
        let copy = self.store.copy(key.0).filter(|copy| copy.varies_by().is_none());
        Found { key, page, copy, varies: true }
    }

    /// The fields by which the stored answers of a page differ.
    pub fn varies_by(&self, page: Key) -> Vec<String> {
        let found = self.store.copy(page.0);
        let names = found.as_ref().and_then(Page::varies_by).unwrap_or_default();
        names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
    }

    /// What [`miss`](Self::miss) would come to. Nothing is begun.
    pub fn foresee(
        &self,
        key: Key,
        page: (PageId, Kind),
        words: Option<(ViewNumber, Words)>,
        is_for: impl FnOnce(&Page) -> bool,
    ) -> Foreseen {
        let (now, lease) = (self.content.now(), self.content.lease());
        let fills = self.fills.lock();
        if let Some((posted, words)) = &words
            && fills.coming.get(&key).is_some_and(|coming| {
                coming.is_for(page.1, (*posted, words), &self.content)
                    && is_for(&coming.head)
                    && !coming.body.is_closed()
            })
        {
            return Foreseen::Join;
        }
        match fills.reader.foresee(&key, page, words, &lease, now) {
            Some(Err(why)) => Foreseen::Alone(crate::answer::alone(why)),
            Some(Ok(_)) => Foreseen::Wait,
            None => Foreseen::Lead,
        }
    }

    /// Joins or begins the fill of a page (rules P2, P8, H5). The words were read after the request arrived; `is_for` says whether a page with this head is for it.
    pub fn miss(
        &self,
        key: Key,
        page: (PageId, Kind),
        words: Option<(ViewNumber, Words)>,
        is_for: impl FnOnce(&Page) -> bool,
    ) -> Missed {
        let now = self.content.now();
        let lease = self.content.lease();
        let me = self.content.identity();
        let mut fills = self.fills.lock();
        if fills.me != me {
            // Another incarnation of this node (rule C1): registrations in the name of the former would not be
            // answered.
            fills.me = me;
            fills.reader.rejoined(me);
        }
        if let Some((posted, words)) = &words {
            if let Some(coming) = fills.coming.get(&key)
                && coming.is_for(page.1, (*posted, words), &self.content)
                && is_for(&coming.head)
                && let Some(joined) = coming.body.join(coming.hint)
            {
                return Missed::Join(coming.head.clone(), Box::new(joined));
            }
            if let Some(registering) = fills.registering.get_mut(&key)
                && registering.kind == page.1
                && registering.words == (*posted, words.word, words.common(page.1))
                && registering.waiting.len() < MOST_WAITING
            {
                let (sender, receiver) = oneshot::channel();
                registering.waiting.push(sender);
                return Missed::Again(receiver);
            }
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

    /// The proxy has learnt that the copy of this key is not one of the application's present answers.
    pub async fn forget(&self, key: Key) {
        {
            let mut fills = self.fills.lock();
            // Nor is one to be kept whose head came before that was known.
            fills.coming.remove(&key);
            self.store.forget(key.0);
        }
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
        let (settled, _registers) = self.register(fill, scope).await?;
        self.settle(settled, Some(fetched)).map(|shared| shared.copy)
    }

    /// Asks the page's home whether it accepts the page. Requests that could join it wait until it is announced or settled, and the second value dropped.
    pub async fn register(&self, fill: FillId, scope: Scope) -> Option<(Settled<Key>, Registers<'_>)> {
        let (register, registers) = {
            let mut fills = self.fills.lock();
            let key = *fills.reader.key(fill)?;
            let register = fills.reader.answered(fill, scope, self.content.now())?;
            let words = (register.view, register.word, register.common);
            let registering = Registering { fill, kind: register.kind, words, waiting: Vec::new() };
            fills.registering.insert(key, registering);
            (register, Registers { cache: self, key, fill })
        };
        let registered = tokio::time::timeout(self.registration_patience, self.content.register(register)).await;
        Some((self.conclude(fill, registered.ok().flatten().as_ref())?, registers))
    }

    /// The head of a page is registered, or was refused, and its body is on its way: tells all who wait. Later ones join it.
    pub fn announce(
        &self,
        settled: Settled<Key>,
        head: Fetched,
        (body, hint): (&Arc<Growing>, SizeHint),
    ) -> Option<Arc<Coming>> {
        let Fetched { page, key, stored, times, .. } = head;
        let stamp = match settled.stored {
            Ok(stamp) => stamp,
            Err(_) => {
                self.settle(settled, Some(Fetched { page, key, stored, body: Vec::new(), times }));
                return None;
            }
        };
        let head = Page::new(stamp, times, &stored, Vec::new(), &self.shapes);
        let coming = Arc::new(Coming { head, body: body.clone(), hint });
        let variants = (!stored.variant.is_plain()).then(|| Page::varies(stamp, &stored.variant));
        let shared = Shared { key, variant: stored.variant, copy: coming.head.clone(), coming: Some(coming.clone()) };
        let mut fills = self.fills.lock();
        if !self.is_superseded(&fills, key, &stamp) {
            if let Some(variants) = variants {
                self.store.keep(page.0, variants);
            }
            fills.coming.insert(key, coming.clone());
        }
        fills.tell_all(settled.serve, settled.forward, Some(&shared));
        Some(coming)
    }

    /// The body of such a page is here: it is stored, unless a newer fill of it was registered meanwhile (rule H6).
    pub fn arrived(&self, coming: &Arc<Coming>, fetched: Fetched) -> Page {
        let Fetched { page, key, stored, body, times } = fetched;
        let stamp = *coming.head.stamp();
        let copy = Page::new(stamp, times, &stored, body, &self.shapes);
        let variants = (!stored.variant.is_plain()).then(|| Page::varies(stamp, &stored.variant));
        let is_last = {
            let mut fills = self.fills.lock();
            let is_last = fills.leaves(key, coming);
            if is_last {
                self.put((page, variants.clone()), (key, copy.clone()));
            }
            is_last
        };
        if is_last {
            self.offer((page, variants), (key, &copy));
        }
        copy
    }

    /// Such a page is not stored: no further request joins it.
    pub fn abandon(&self, key: Key, coming: &Arc<Coming>) {
        self.fills.lock().leaves(key, coming);
    }

    /// The page's answers must not be stored.
    pub fn remember(&self, page: PageId, why: Unstorable) {
        let now = self.content.now();
        self.fills.lock().reader.remember(page, why, now);
    }

    /// Ends a fill with the home's answer, or without. An answer about another incarnation of this node does not
    /// count.
    fn conclude(&self, fill: FillId, registered: Option<&Registered>) -> Option<Settled<Key>> {
        let now = self.content.now();
        let lease = self.content.lease();
        let mut fills = self.fills.lock();
        let settled = registered.and_then(|registered| fills.reader.registered(registered, &lease, now));
        settled.or_else(|| Some(Settled { stored: Err(NotStored::Late), ..fills.reader.failed(fill)? }))
    }

    /// Whether the page's answers are known not to be for requests with credentials.
    pub fn is_unshared(&self, key: Key) -> bool {
        self.unshared.has(key, self.content.now())
    }

    /// The page's answers are not for requests with credentials.
    pub fn remember_unshared(&self, key: Key) {
        self.unshared.remember(key, self.content.now());
    }

    /// What is kept under a key.
    pub fn copy_at(&self, key: Key) -> Option<Page> {
        self.store.copy(key.0)
    }

    /// Keeps something beside the pages.
    pub fn keep_at(&self, key: Key, page: Page) {
        self.store.keep(key.0, page);
    }

    /// Copies kept, and the bytes that they take.
    pub fn kept(&self) -> (usize, u64) {
        (self.store.len(), self.store.bytes())
    }

    /// Tells all who wait; gives what they are given.
    pub fn settle(&self, settled: Settled<Key>, fetched: Option<Fetched>) -> Option<Shared> {
        let shared = match (settled.stored, fetched) {
            (Ok(stamp), Some(fetched)) => Some(self.keep(stamp, fetched)),
            (Err(why), Some(_)) => {
                self.observed.not_stored.with([crate::answer::not_stored(why)]).increment();
                None
            }
            _ => None,
        };
        self.fills.lock().tell_all(settled.serve, settled.forward, shared.as_ref());
        shared
    }

    /// Keeps a copy, and by what the page's variants differ if it has some.
    pub fn put(&self, (page, variants): (Key, Option<Page>), (key, copy): (Key, Page)) {
        if let Some(variants) = variants {
            self.store.keep(page.0, variants);
        }
        self.store.keep(key.0, copy);
    }

    /// Whether a copy of later words is kept already, or is coming: what the home said of this one took longer on its way.
    fn is_superseded(&self, fills: &Fills, key: Key, stamp: &Stamp) -> bool {
        let is_later = |page: &Page| stamp.is_before(page.stamp());
        fills.coming.get(&key).is_some_and(|coming| is_later(&coming.head))
            || self.store.copy(key.0).is_some_and(|copy| is_later(&copy))
    }

    /// Offers a copy to the memory of all nodes, and by what the page's variants differ.
    fn offer(&self, (page, variants): (Key, Option<Page>), (key, copy): (Key, &Page)) {
        let Some(pool) = &self.pool else { return };
        let moment = Moment::now(self.content.now());
        pool.offer(key, copy, &self.shapes, moment);
        if let Some(variants) = &variants {
            pool.offer(page, variants, &self.shapes, moment);
        }
    }

    fn keep(&self, stamp: Stamp, fetched: Fetched) -> Shared {
        let Fetched { page, key, stored, body, times } = fetched;
        let copy = Page::new(stamp, times, &stored, body, &self.shapes);
        let variants = (!stored.variant.is_plain()).then(|| Page::varies(stamp, &stored.variant));
        let is_newest;
        {
            let mut fills = self.fills.lock();
            is_newest = !self.is_superseded(&fills, key, &stamp);
            if is_newest {
                // One of which the body is still coming is older.
                fills.coming.remove(&key);
                self.put((page, variants.clone()), (key, copy.clone()));
            }
        }
        if is_newest {
            self.offer((page, variants), (key, &copy));
        }
        Shared { key, variant: stored.variant, copy, coming: None }
    }
}
