//! What a look at the cache comes to: the copy and the words are in hand, and it is judged whether it is the answer (rules P1, H1).

use verbena_caching::{Key, Mode, Reason, Request as Wanted, Use};
use verbena_content::{Kind, PageId, Verdict, Words, look};
use verbena_terms::ViewNumber;

use crate::answer;
use crate::cache::{Cache, Found};
use crate::page::{Aged, Page};

/// A validated page.
pub(crate) struct Served {
    /// Under which it is kept.
    pub key: Key,
    pub copy: Page,
    /// Of a standard page.
    pub aged: Option<Aged>,
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
    /// A standard page that was not purged, to be asked about (rule H4).
    pub base: Option<Page>,
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
                    None => return Ok(Served { key, copy, aged: None, refresh: None }),
                    Some((Use::Answer, aged)) => return Ok(Served { key, copy, aged: Some(aged), refresh: None }),
                    Some((Use::AnswerAndRefresh, aged)) => {
                        let (why, base) = ("stale", Some(copy.clone()));
                        let missing = Missing { key, page, words: Some((*posted, *words)), why, detail: None, base };
                        return Ok(Served { key, copy, aged: Some(aged), refresh: Some(Box::new(missing)) });
                    }
                    Some((Use::Validate, aged)) => (if aged.ttl > 0 { "request" } else { "stale" }, None, Some(copy)),
                },
                other => ("stale", Some(answer::verdict(other)), None),
            },
        };
        Err(Box::new(Missing { key, page, words, why, detail, base }))
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
