//! Pages in the memory of all nodes: the cooperative cache as a second store behind the one of this proxy (rule K14).
//!
//! A page that was stored here is offered to the pool, with its stamp. A proxy that has no copy looks there before it asks the application. What it gets
//! is judged as a copy of its own would be: by words that were read after the request arrived (rule P1). So the pool says where a page is, and never that it
//! is good; whatever became of it there, no stale page can come of it.
//!
//! Moments go as they are by the Unix clock. Where the clocks of two machines differ, so does the age of a page that goes from one to the other.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::header::VARY;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tokio::time::timeout;
use verbena_caching::{CacheStatus, Key, Lifetime, Reason, Stored, Variant};
use verbena_content::Stamp;
use verbena_coop::service::PoolService;
use verbena_coop::{Command, Reply, Tenant};
use verbena_memcache::semantics::Answer;
use verbena_memcache::{Exptime, Mode, Operation, Read, Remove, Store};
use verbena_metrics::{Counter, Family, Registry, RegistryError};
use verbena_terms::Time;

use crate::body::Body;
use crate::exchange::{Exchange, Wants};
use crate::looked::{Missing, Served};
use crate::page::{Aged, Page};
use crate::shapes::Shapes;
use crate::standard::opened;

/// What `Cache-Status` says of an answer that came from another node's memory.
const POOL: &str = "pool";
/// How long a page is looked for in the pool; after that the application is asked.
const WITHIN: Duration = Duration::from_millis(100);
/// The first byte of the keys of pages, which no text of a client has. What stands behind it is made under the cluster's secret.
const PAGES: u8 = 0;
/// Which form a page has there. Another one is no page.
const FORM: u8 = 1;

/// The pool of this process's node, for pages.
pub(crate) struct PagePool {
    pool: PoolService,
    offered: [Counter; 2],
    looked_for: [Counter; 3],
}

/// What became of looking for a page.
#[derive(Clone, Copy)]
enum Lookup {
    Hit,
    Absent,
    Old,
}

/// Both clocks of one moment.
#[derive(Clone, Copy)]
pub(crate) struct Moment {
    now: Time,
    /// Microseconds of the Unix clock.
    unix: u64,
}

/// A page as it lies in the pool.
#[derive(Serialize, Deserialize)]
struct Record<'a> {
    form: u8,
    stamp: [u64; 4],
    #[serde(borrow)]
    what: What<'a>,
}

#[derive(Serialize, Deserialize)]
enum What<'a> {
    /// The page has variants: by these fields.
    Varies(&'a str),
    #[serde(borrow)]
    Copy(CopyRecord<'a>),
}

#[derive(Serialize, Deserialize)]
struct CopyRecord<'a> {
    status: u16,
    /// When the lifetime that the origin set is over, in microseconds of the Unix clock.
    expires: Option<u64>,
    /// Of a standard page: when it came, and how long it may be used.
    times: Option<(u64, [u32; 4], bool)>,
    for_authorization: bool,
    for_cookies: bool,
    weak_tag: Option<&'a [u8]>,
    #[serde(borrow)]
    fields: Vec<(&'a str, &'a [u8])>,
    body: &'a [u8],
}

impl Moment {
    pub fn now(now: Time) -> Moment {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Moment { now, unix: u64::try_from(unix.as_micros()).unwrap_or(u64::MAX) }
    }

    fn to_unix(self, time: Time) -> u64 {
        let ahead = time.since(self.now).as_micros() as u64;
        self.unix.saturating_add(ahead).saturating_sub(self.now.since(time).as_micros() as u64)
    }

    fn of_unix(self, unix: u64) -> Time {
        let (ahead, ago) = (unix.saturating_sub(self.unix), self.unix.saturating_sub(unix));
        self.now + Duration::from_micros(ahead) - Duration::from_micros(ago)
    }
}

impl PagePool {
    pub fn new(pool: PoolService, registry: &Registry) -> Result<PagePool, RegistryError> {
        let offered: Family<Counter, 1> = registry.family(
            "verbena_proxy_pool_offers_total",
            "Pages that were stored here and offered to the cooperative cache, by whether it took them.",
            ["result"],
            2,
        )?;
        let looked_for: Family<Counter, 1> = registry.family(
            "verbena_proxy_pool_looks_total",
            "Pages that were looked for in the cooperative cache before the application was asked, by what came of it: a hit, no copy, or one that is not valid any more.",
            ["result"],
            3,
        )?;
        Ok(PagePool {
            pool,
            offered: ["kept", "refused"].map(|result| offered.with([result])),
            looked_for: ["hit", "absent", "old"].map(|result| looked_for.with([result])),
        })
    }

    /// Puts a page there, for other nodes. This request does not wait for the outcome.
    pub fn offer(&self, key: Key, page: &Page, shapes: &Shapes, moment: Moment) {
        let value = written(page, shapes, moment);
        let [kept, refused] = self.offered.clone();
        let Some(value) = value.filter(|value| value.len() <= self.pool.limits().value_bytes) else {
            return refused.increment();
        };
        let (mode, flags, exptime, compare, new_cas) = (Mode::Set, 0, Exptime(0), None, None);
        let store = Store { mode, flags, exptime, value: &[], compare, is_stale_allowed: false, new_cas, vivify: None };
        let command =
            Command::Execute { tenant: Tenant::DEFAULT, key: pool_key(key), operation: Operation::Store(store), value };
        let counts = refused.clone();
        let begun = self.pool.command(command, move |reply| match reply {
            Reply::Answer(Answer::Stored { .. }, _) => kept.increment(),
            _ => refused.increment(),
        });
        if begun.is_err() {
            counts.increment();
        }
    }

    /// What lies there under this key, if it is a page. It may be of any time.
    async fn fetch(&self, key: Key, shapes: &Shapes, now: impl FnOnce() -> Time) -> Option<Page> {
        match self.ask(key, Operation::Read(Read::default())).await {
            Some(Reply::Answer(Answer::Hit(_), value)) => read(&value, shapes, Moment::now(now())),
            _ => None,
        }
    }

    /// Takes a page out that is known not to be one of the application's present answers, though its words have not
    /// moved.
    pub async fn withdraw(&self, key: Key) {
        // A pool that does not answer keeps the page until its lifetime ends, as other proxies do.
        let _ = self.ask(key, Operation::Remove(Remove::default())).await;
    }

    async fn ask(&self, key: Key, operation: Operation<'static>) -> Option<Reply> {
        let (told, reply) = oneshot::channel();
        let command = Command::Execute { tenant: Tenant::DEFAULT, key: pool_key(key), operation, value: vec![] };
        self.pool.command(command, move |reply| drop(told.send(reply))).ok()?;
        timeout(WITHIN, reply).await.ok()?.ok()
    }

    fn count(&self, looked: Lookup) {
        self.looked_for[looked as usize].increment();
    }
}

impl Exchange {
    /// Answers with a validated page from another node's memory, which is kept here from now on.
    pub async fn in_pool(&self, wants: &Wants, missing: &Missing) -> Option<Response<Body>> {
        let pool = self.cache.pool.as_ref()?;
        let Wants { head, wanted, route, .. } = wants;
        missing.words?;
        let now = || self.cache.content.now();
        let mut key = missing.key;
        let mut copy = pool.fetch(key, &self.cache.shapes, now).await;
        let mut varies = None;
        if let Some(names) = copy.as_ref().and_then(Page::varies_by) {
            key = Variant::key_by(names, wanted.key, &head.headers, route);
            varies = copy.take();
            copy = pool.fetch(key, &self.cache.shapes, now).await.filter(|copy| copy.varies_by().is_none());
        }
        let Some(copy) = copy else {
            pool.count(Lookup::Absent);
            return None;
        };
        // The words are those that were read when the request had arrived; the clock and the lease are looked at now, with all in hand (rule P1).
        let Some(Served { copy, aged, .. }) = self.cache.validated(copy, missing, wanted) else {
            pool.count(Lookup::Old);
            return None;
        };
        pool.count(Lookup::Hit);
        self.cache.put((wanted.key, varies), (key, copy.clone()));
        let noted = match aged {
            None => CacheStatus::HitOf { detail: POOL },
            Some(Aged { ttl, .. }) => CacheStatus::Aged { ttl, detail: Some(POOL) },
        };
        Some(self.copied_as_accepted((head, route), (key, copy), noted, aged))
    }
}

fn pool_key(key: Key) -> Vec<u8> {
    [&[PAGES][..], &key.0.to_le_bytes()].concat()
}

fn written(page: &Page, shapes: &Shapes, moment: Moment) -> Option<Vec<u8>> {
    let stamp = page.stamp().to_words();
    if let Some(names) = page.varies_by() {
        return postcard::to_stdvec(&Record { form: FORM, stamp, what: What::Varies(names) }).ok();
    }
    let weak_tag = page.weak_tag().map(<[u8]>::to_vec);
    let (headers, body) = opened(page.clone(), shapes);
    let copied = CopyRecord {
        status: page.status().as_u16(),
        expires: page.expires().map(|expires| moment.to_unix(expires)),
        times: page.times().map(|times| {
            let Lifetime { initial_age, fresh_for, while_revalidate, if_error, must_revalidate } = times.lifetime();
            (moment.to_unix(times.came()), [initial_age, fresh_for, while_revalidate, if_error], must_revalidate)
        }),
        for_authorization: page.is_for(Some(Reason::Authorization)),
        for_cookies: page.is_for(Some(Reason::Cookie)),
        weak_tag: weak_tag.as_deref(),
        fields: headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect(),
        body: &body,
    };
    postcard::to_stdvec(&Record { form: FORM, stamp, what: What::Copy(copied) }).ok()
}

fn read(bytes: &[u8], shapes: &Shapes, moment: Moment) -> Option<Page> {
    let Record { stamp, what, .. } =
        postcard::from_bytes(bytes).ok().filter(|record: &Record<'_>| record.form == FORM)?;
    let stamp = Stamp::from_words(stamp);
    let CopyRecord { status, expires, times, for_authorization, for_cookies, weak_tag, fields, body } = match what {
        What::Copy(copied) => copied,
        What::Varies(names) => {
            let vary = HeaderMap::from_iter([(VARY, HeaderValue::from_str(names).ok()?)]);
            return Variant::of(&vary)
                .ok()
                .filter(|variant| !variant.is_plain())
                .map(|variant| Page::varies(stamp, &variant));
        }
    };
    let mut headers = HeaderMap::with_capacity(fields.len());
    for (name, value) in fields {
        headers.append(HeaderName::from_bytes(name.as_bytes()).ok()?, HeaderValue::from_bytes(value).ok()?);
    }
    let lifetime = times.map(|(_, [initial_age, fresh_for, while_revalidate, if_error], must_revalidate)| Lifetime {
        initial_age,
        fresh_for,
        while_revalidate,
        if_error,
        must_revalidate,
    });
    let stored = Stored {
        status: StatusCode::from_u16(status).ok()?,
        headers,
        lifetime: None,
        standard: lifetime,
        for_authorization,
        for_cookies,
        variant: Variant::default(),
        weak_tag: weak_tag.map(HeaderValue::from_bytes).transpose().ok()?,
    };
    let came = times.map_or(moment.now, |(came, ..)| moment.of_unix(came));
    let expires = expires.map(|expires| moment.of_unix(expires));
    Some(Page::new(stamp, (came, expires), &stored, body.to_vec(), shapes))
}

#[cfg(test)]
mod tests {
    use verbena_content::Word;
    use verbena_terms::Incarnation;

    use super::*;

    fn stored(lifetime: Option<Lifetime>) -> Stored {
        let fields = [("content-type", "text/html"), ("etag", "\"a\""), ("cache-status", "origin; hit")];
        let fields = fields.map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        Stored {
            status: StatusCode::NOT_FOUND,
            headers: HeaderMap::from_iter(fields),
            lifetime: None,
            standard: lifetime,
            for_authorization: false,
            for_cookies: true,
            variant: Variant::default(),
            weak_tag: Some(HeaderValue::from_static("W/\"a\"")),
        }
    }

    fn stamp() -> Stamp {
        Stamp::new(Incarnation::new(1, 1), Word::new(1, false), Word::new(1, false), Some(9))
    }

    const HERE: Moment = Moment { now: Time::from_nanos(7_000_000_000), unix: 1_000_000_000 };
    /// Five seconds later at a machine whose clock began at another moment.
    const THERE: Moment = Moment { now: Time::from_nanos(99_000_000_000), unix: 1_005_000_000 };

    #[test]
    fn a_page_is_the_same_at_another_node() {
        let (shapes, others) = (Shapes::new(), Shapes::new());
        let lifetime =
            Lifetime { initial_age: 3, fresh_for: 60, while_revalidate: 5, if_error: 7, must_revalidate: true };
        for lifetime in [None, Some(lifetime)] {
            let times = (HERE.now - Duration::from_secs(2), Some(HERE.now + Duration::from_secs(20)));
            let page = Page::new(stamp(), times, &stored(lifetime), b"a page".to_vec(), &shapes);
            let there = read(&written(&page, &shapes, HERE).unwrap(), &others, THERE).unwrap();
            assert_eq!((there.stamp(), there.status()), (&stamp(), StatusCode::NOT_FOUND));
            assert_eq!(there.expires(), Some(THERE.now + Duration::from_secs(15)));
            assert!(there.is_for(Some(Reason::Cookie)) && !there.is_for(Some(Reason::Authorization)));
            assert_eq!(there.times().map(|times| times.lifetime()), lifetime);
            assert_eq!(there.times().map(|times| times.came()), lifetime.map(|_| THERE.now - Duration::from_secs(7)));
            assert_eq!(there.weak_tag(), page.weak_tag());
            assert_eq!(there.opened(&others), page.opened(&shapes));
        }
    }

    #[test]
    fn by_what_a_page_varies_is_the_same_at_another_node() {
        let shapes = Shapes::new();
        let vary = HeaderMap::from_iter([(VARY, HeaderValue::from_static("b, a"))]);
        let page = Page::varies(stamp(), &Variant::of(&vary).unwrap());
        let there = read(&written(&page, &shapes, HERE).unwrap(), &shapes, THERE).unwrap();
        assert_eq!((there.varies_by(), there.stamp()), (Some("a,b"), &stamp()));
    }

    #[test]
    fn what_is_cut_or_changed_is_no_page_or_another_and_never_harm() {
        let shapes = Shapes::new();
        let page = Page::new(stamp(), (Time::ZERO, None), &stored(None), b"a page".to_vec(), &shapes);
        let whole = written(&page, &shapes, HERE).unwrap();
        for cut in 0..whole.len() {
            assert!(read(&whole[..cut], &shapes, THERE).is_none(), "{cut}");
            for bits in [1, 0x80, 0xff] {
                let mut other = whole.clone();
                other[cut] ^= bits;
                let _ = read(&other, &shapes, THERE);
            }
        }
    }
}
