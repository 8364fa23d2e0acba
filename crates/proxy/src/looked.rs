//! What a look at the cache comes to: the copy and the words are in hand, and it is judged whether it is the answer (rules P1, H1).

use verbena_caching::{Key, Mode, Reason, Request as Wanted, Use};
use verbena_content::{Kind, PageId, Verdict, Words, look};
use verbena_terms::ViewNumber;

use crate::answer;
use crate::cache::{Cache, Found};
use crate::old::Old;
use crate::page::{Aged, Page};

/// A validated page.
pub(crate) struct Served {
    /// Under which it is kept.
    pub key: Key,
    pub copy: Page,
    /// Of a standard page.
    pub aged: Option<Aged>,
    /// What `Cache-Status` says beside.
    pub detail: Option<&'static str>,
    /// It is to be fetched anew for those that come.
    pub refresh: Option<Box<Missing>>,
}

/// Why there is no validated page, and under which key and words it may be fetched.
pub(crate) struct Missing {
    pub key: Key,
    pub page: PageId,
    pub words: Option<(ViewNumber, Words)>,
    pub why: &'static str,
    pub detail: Option<&'static str>,
    /// A standard page to be asked about, or to be answered if the origin fails (rules H3, H4, H12).
    pub base: Option<Old>,
    /// One that has moved, of which is not known yet what is left of it ([`Cache::reconsidered`]).
    pub moved: Option<Page>,
}

impl Cache {
    /// Judges what was found by its words.
    pub fn looked(
        &self,
        found: Found,
        words: Option<(ViewNumber, Words)>,
        wanted: &Wanted,
    ) -> Result<Served, Box<Missing>> {
        let Found { key, page, copy, varies } = found;
        // What is judged is in hand; only now the clock, and only then the lease (rule P1).
        let now = self.content.now();
        let lease = self.content.lease();
        let mut moved = None;
        let (why, detail, base) = match (copy, &words) {
            (None, _) => (if varies { "vary-miss" } else { "uri-miss" }, None, None),
            (Some(_), None) => ("stale", Some("no-words"), None),
            (Some(copy), Some((posted, words))) => match look(copy.stamp(), words, *posted, &lease, now) {
                Verdict::Fresh if copy.stamp().kind() != kind_of(wanted.mode) => ("stale", Some("other-mode"), None),
                Verdict::Fresh if copy.is_over(now) => ("stale", Some("lifetime"), None),
                Verdict::Fresh if !copy.is_for(wanted.credentials) => {
                    ("request", wanted.credentials.map(Reason::name), None)
                }
                Verdict::Fresh => match copy.times().map(|times| (times.judge(&wanted.wishes, now), times.aged(now))) {
                    None => return Ok(Served { key, copy, aged: None, detail: None, refresh: None }),
                    Some((Use::Answer, aged)) => {
                        return Ok(Served { key, copy, aged: Some(aged), detail: None, refresh: None });
                    }
                    Some((Use::AnswerAndRefresh, aged)) => {
                        let base = Some(Old::unmoved(copy.clone()));
                        let words = Some((*posted, *words));
                        let missing = Missing { key, page, words, why: "stale", detail: None, base, moved };
                        let refresh = Some(Box::new(missing));
                        return Ok(Served { key, copy, aged: Some(aged), detail: None, refresh });
                    }
                    Some((Use::Validate, aged)) => {
                        (if aged.ttl > 0 { "request" } else { "stale" }, None, Some(Old::unmoved(copy)))
                    }
                },
                Verdict::Moved
                    if copy.times().is_some()
                        && kind_of(wanted.mode) == Kind::Standard
                        && copy.is_for(wanted.credentials) =>
                {
                    moved = Some(copy);
                    ("stale", Some(answer::verdict(Verdict::Moved)), None)
                }
                other => ("stale", Some(answer::verdict(other)), None),
            },
        };
        Err(Box::new(Missing { key, page, words, why, detail, base, moved }))
    }

    /// The page that this request leads, if it was stored after the request had looked for it: the fill before ended between that look and the beginning of this one.
    pub fn stored_since(&self, missing: &Missing, wanted: &Wanted) -> Option<Served> {
        let copy = self.store.copy(missing.key.0).filter(|copy| copy.varies_by().is_none())?;
        self.validated(copy, missing, wanted)
    }

    /// A copy that was found elsewhere, if it may be answered by the words that were read for this request.
    pub fn validated(&self, copy: Page, missing: &Missing, wanted: &Wanted) -> Option<Served> {
        let found = Found { key: missing.key, page: missing.page, copy: Some(copy), varies: false };
        self.looked(found, missing.words, wanted).ok().filter(|served| served.refresh.is_none())
    }
}

/// By what copies are found to be good that are stored in this mode.
pub(crate) fn kind_of(mode: Mode) -> Kind {
    if mode == Mode::Standard { Kind::Standard } else { Kind::Coherent }
}
