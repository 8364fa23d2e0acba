//! Shoppers in front of caches that lie, each in one way: it must be seen. And of one that does not.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::Method;
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt;
use tokio::sync::{Mutex, RwLock};
use tower::ServiceExt;
use verbena_shop::{Database, Plain, routes};
use verbena_shoppers::{Options, Totals, run};

/// How the cache in front of the shop misbehaves.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Cache {
    /// Not at all: a write has it to itself, and empties it.
    Honest,
    /// It keeps pages for a while, whatever is written.
    Stale,
    /// While a write is not acknowledged yet, it shows the new page and the old one in turn.
    NewThenOld,
    /// It makes a page of the first half of the new one and the second half of the old one.
    Mixed,
    /// It forgets that a page exists.
    Missing,
}

/// A page as it was fetched, and when.
type Pages = HashMap<String, (Bytes, Instant)>;

#[derive(Clone)]
struct Stub {
    cache: Cache,
    shop: Router,
    kept: Arc<RwLock<Pages>>,
    before: Arc<Mutex<Pages>>,
}

impl Stub {
    async fn fetch(&self, path: &str) -> Bytes {
        let answer = self.shop.clone().oneshot(Request::get(path).body(Body::empty()).unwrap()).await.unwrap();
        answer.into_body().collect().await.unwrap().to_bytes()
    }

    /// The page now, and as it was before its last change, with the time at which the change was seen.
    async fn now_and_before(&self, path: &str) -> (Bytes, Option<(Bytes, Instant)>) {
        let page = self.fetch(path).await;
        let mut kept = self.kept.write().await;
        let last = kept.insert(path.into(), (page.clone(), Instant::now()));
        let mut before = self.before.lock().await;
        if let Some((last, _)) = last.filter(|(last, _)| without_commit(last) != without_commit(&page)) {
            before.insert(path.into(), (last, Instant::now()));
        }
        (page, before.get(path).cloned())
    }

    async fn show(&self, path: &str) -> Response {
        match self.cache {
            Cache::Honest => {
                if let Some((page, _)) = self.kept.read().await.get(path) {
                    return hit(page.clone());
                }
                let mut kept = self.kept.write().await;
                let page = self.fetch(path).await;
                kept.insert(path.into(), (page.clone(), Instant::now()));
                page.into_response()
            }
            Cache::Stale => {
                let mut kept = self.kept.write().await;
                if let Some((page, _)) = kept.get(path).filter(|(_, since)| since.elapsed().as_millis() < 200) {
                    return hit(page.clone());
                }
                let page = self.fetch(path).await;
                kept.insert(path.into(), (page.clone(), Instant::now()));
                page.into_response()
            }
            Cache::NewThenOld => match self.now_and_before(path).await {
                (new, Some((old, since))) if since.elapsed().as_millis() < 100 => {
                    let odd = since.elapsed().as_micros() % 2 == 1;
                    hit(if odd { new } else { old })
                }
                (new, _) => new.into_response(),
            },
            Cache::Mixed => match self.now_and_before(path).await {
                (new, Some((old, _))) => match mixed(&new, &old) {
                    Some(page) => hit(page),
                    None => new.into_response(),
                },
                (new, None) => new.into_response(),
            },
            Cache::Missing if path.starts_with("/product/") => axum::http::StatusCode::NOT_FOUND.into_response(),
            Cache::Missing => self.fetch(path).await.into_response(),
        }
    }
}

fn hit(page: Bytes) -> Response {
    ([("cache-status", "stub; hit")], page).into_response()
}

fn without_commit(page: &[u8]) -> String {
    let text = std::str::from_utf8(page).unwrap();
    text.split_once("data-commit=").unwrap().1.split_once('>').unwrap().1.to_owned()
}

fn mixed(new: &[u8], old: &[u8]) -> Option<Bytes> {
    let items = |page: &[u8]| -> Vec<String> {
        std::str::from_utf8(page).unwrap().split_inclusive("</li>").map(str::to_owned).collect()
    };
    let (mut page, old) = (items(new), items(old));
    let half = page.len() / 2;
    (page.len() == old.len() && half > 0).then(|| {
        page[half..].clone_from_slice(&old[half..]);
        page.concat().into()
    })
}

async fn serve(State(stub): State<Stub>, request: Request) -> Response {
    if request.method() == Method::GET {
        let path = request.uri().path().to_owned();
        return stub.show(&path).await;
    }
    if stub.cache != Cache::Honest {
        let answer = stub.shop.oneshot(request).await.unwrap();
        tokio::time::sleep(Duration::from_millis(150)).await;
        return answer;
    }
    let mut kept = stub.kept.write().await;
    kept.clear();
    // Whole, before anyone may read again.
    let (head, body) = stub.shop.oneshot(request).await.unwrap().into_parts();
    Response::from_parts(head, Body::from(body.collect().await.unwrap().to_bytes()))
}

/// Shops in front of such a cache until `words` are said of an answer, or for as long.
async fn shop(cache: Cache, words: &'static str, limit: Duration) -> (Totals, Vec<String>) {
    let directory = tempfile::tempdir().unwrap();
    let database = Database::open(&directory.path().join("shop.db")).unwrap();
    let shop = routes(Plain { database });
    let stub = Stub { cache, shop, kept: Arc::default(), before: Arc::default() };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let served =
        tokio::spawn(async move { axum::serve(listener, Router::new().fallback(serve).with_state(stub)).await });
    let options = Options {
        read: vec![address.into()],
        write: vec![address.into()],
        parts_every: 0,
        readers: 8,
        writers: 4,
        every: Duration::from_millis(20),
        patience: Duration::from_secs(10),
        seed: 1,
    };
    let heard = Rc::new(RefCell::new(Vec::new()));
    let enough = Rc::new(tokio::sync::Notify::new());
    let (hears, tells) = (heard.clone(), enough.clone());
    let cry = move |text: &str| {
        hears.borrow_mut().push(text.to_owned());
        if text.contains(words) {
            tells.notify_one();
        }
    };
    let stop = async move {
        // At the latest then; what was heard is looked at in any case.
        let _ = tokio::time::timeout(limit, enough.notified()).await;
    };
    let totals = run(options, stop, |_| {}, cry).await.unwrap();
    served.abort();
    let heard = heard.take();
    (totals, heard)
}

async fn is_seen(cache: Cache, words: &'static str) -> Totals {
    let (totals, heard) = shop(cache, words, Duration::from_secs(30)).await;
    assert!(heard.iter().any(|text| text.contains(words)), "{cache:?}: {heard:?} {totals:?}");
    totals
}

#[tokio::test]
async fn nothing_is_said_of_an_honest_cache() {
    let (totals, heard) = shop(Cache::Honest, "", Duration::from_secs(3)).await;
    assert_eq!((heard.len(), totals.violations()), (0, 0), "{heard:?}");
    assert!(totals.answers > 300 && totals.hits > 50, "{totals:?}");
    assert!(totals.updates.acknowledged > 30 && totals.soon_after_update > 30, "{totals:?}");
    assert_eq!((totals.updates.unknown, totals.errors.sum()), (0, 0), "{totals:?}");
}

#[tokio::test]
async fn a_stale_page_is_seen() {
    let totals = is_seen(Cache::Stale, "is stale").await;
    assert!(totals.stale > 0 && totals.hits > 0);
}

#[tokio::test]
async fn an_old_page_after_a_new_one_is_seen() {
    assert!(is_seen(Cache::NewThenOld, "went backwards").await.backwards > 0);
}

#[tokio::test]
async fn a_page_of_two_states_is_seen() {
    assert!(is_seen(Cache::Mixed, "mixes states").await.mixed > 0);
}

#[tokio::test]
async fn a_page_that_ceased_to_exist_is_seen() {
    // Surveyed through categories, which are there.
    assert!(is_seen(Cache::Missing, "it exists").await.malformed > 0);
}

#[tokio::test]
async fn no_shop_is_an_error() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let options = Options {
        read: vec![address.into()],
        write: vec![],
        parts_every: 0,
        readers: 1,
        writers: 1,
        every: Duration::from_millis(1),
        patience: Duration::from_secs(1),
        seed: 1,
    };
    let refused = run(options, async {}, |_| {}, |_| {}).await.unwrap_err();
    assert!(refused.to_string().contains("need a proxy"), "{refused}");
}
