//! Standard copies that are no hit any more, and what they are still good for (rules H3, H4).
//!
//! One whose words are as they were is old by its lifetime alone. One whose words have moved was purged, or what it is made of was changed: which of both, and how
//! hard, stands in two more words at its home. They are read after the words of the request, so a hard purge of which those know nothing yet either is seen here,
//! or has the registration of what is fetched refused.

use http::HeaderMap;
use verbena_caching::{Request as Wanted, Use, ask_by_tag, ask_whether};
use verbena_content::{PageId, Rest};
use verbena_terms::Time;

use crate::cache::Cache;
use crate::looked::{Missing, Served};
use crate::page::{Aged, Page, Times};

/// What `Cache-Status` says of an answer that was purged softly, and is fetched anew.
pub(crate) const SOFT_PURGE: &str = "soft-purge";

/// A standard copy that is no hit.
#[derive(Clone)]
pub(crate) struct Old {
    pub page: Page,
    /// What its words left of it. Of one whose words are as they were all.
    rest: Rest,
    is_moved: bool,
}

impl Old {
    /// One whose words are as they were.
    pub fn unmoved(page: Page) -> Self {
        Old { page, rest: Rest::Stale, is_moved: false }
    }

    /// Says in a request which answer is stored, if there is a validator that may say so.
    pub fn asks(&self, request: &mut HeaderMap, stored: &HeaderMap) -> bool {
        match self.is_moved {
            true => ask_by_tag(request, stored),
            false => ask_whether(request, stored),
        }
    }

    /// Whether it may be answered because the origin fails.
    pub fn may_answer_for_failed_origin(&self, now: Time) -> bool {
        let allows = |times: Times| times.may_answer_for_failed_origin(now, self.is_moved);
        self.rest == Rest::Stale && self.page.times().is_some_and(allows)
    }

    /// How old it is. A page that was purged has no lifetime left.
    pub fn aged(&self, now: Time) -> Option<Aged> {
        let aged = self.page.times()?.aged(now);
        Some(if self.is_moved { Aged { ttl: aged.ttl.min(0), ..aged } } else { aged })
    }

    /// Whether the origin can be asked whether it is right still.
    pub fn can_be_asked_about(&self, cache: &Cache) -> bool {
        let (headers, _) = self.page.clone().opened(&cache.shapes);
        self.asks(&mut HeaderMap::new(), &headers)
    }
}

impl Cache {
    /// Judges a copy that has moved by what the last updates left of it.
    pub async fn reconsidered(&self, mut missing: Box<Missing>, wanted: &Wanted) -> Result<Served, Box<Missing>> {
        let Some(page) = missing.moved.take() else { return Err(missing) };
        let rest = self.rest(&page, missing.page).await;
        if rest == Rest::Nothing {
            return Err(missing);
        }
        let (now, old) = (self.content.now(), Old { page, rest, is_moved: true });
        missing.base = Some(old.clone());
        let judged = old.page.times().map(|times| times.judge_purged_softly(&wanted.wishes, now));
        if rest != Rest::Stale || judged != Some(Use::AnswerAndRefresh) {
            return Err(missing);
        }
        let (key, aged) = (missing.key, old.aged(now));
        Ok(Served { key, copy: old.page, aged, detail: Some(SOFT_PURGE), refresh: Some(missing) })
    }

    /// The same copy, after the words of its page were read anew for a fill that waited. It may have moved meanwhile.
    pub async fn reconsidered_after_wait(&self, old: Old, id: PageId) -> Option<Old> {
        let rest = self.rest(&old.page, id).await;
        (rest != Rest::Nothing).then_some(Old { rest, is_moved: true, ..old })
    }

    async fn rest(&self, page: &Page, id: PageId) -> Rest {
        let Some(reading) = self.content.read_last_changes(id) else { return Rest::Nothing };
        let Some((posted, last)) = reading.words().await else { return Rest::Nothing };
        let now = self.content.now();
        page.stamp().rest(&last, posted, &self.content.lease(), now)
    }
}
