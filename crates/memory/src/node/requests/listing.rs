//! A listing: every home is asked for its segments, page by page.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use verbena_terms::Incarnation;

use super::{Progress, RequestAction, Terms};
use crate::request::Answer;
use crate::wire::Question;
use crate::{Segment, SegmentId};

pub(super) struct Listing {
    prefix: String,
    /// Homes that have more to say.
    left: BTreeSet<Incarnation>,
    found: Vec<Segment>,
    /// After how long those go whose homes have given notice.
    going: BTreeMap<SegmentId, Duration>,
}

impl Listing {
    pub(super) fn new(prefix: &str) -> Self {
        Listing { prefix: prefix.to_owned(), left: BTreeSet::new(), found: vec![], going: BTreeMap::new() }
    }

    pub(super) fn begin(&mut self, homes: Vec<Incarnation>, terms: &Terms, out: &mut Vec<RequestAction>) -> Progress {
        self.left = homes.iter().copied().collect();
        if homes.is_empty() {
            return Progress::Answers(self.answer());
        }
        for home in homes {
            self.ask(home, SegmentId { home: Incarnation::default(), number: 0 }, terms, out);
        }
        Progress::Stays
    }

    fn ask(&self, home: Incarnation, after: SegmentId, terms: &Terms, out: &mut Vec<RequestAction>) {
        terms.ask(home, Question::List { after, prefix: self.prefix.clone() }, terms.until, out);
    }

    /// A home has said some of its segments, and when those go that have notice.
    pub(super) fn page(
        &mut self,
        from: Incarnation,
        (segments, going): (Vec<Segment>, Vec<(SegmentId, Duration)>),
        is_last: bool,
        terms: &Terms,
        out: &mut Vec<RequestAction>,
    ) -> Progress {
        let last = segments.last().map(|segment| segment.id);
        self.found.extend(segments);
        self.going.extend(going);
        if let Some(after) = last.filter(|_| !is_last) {
            self.ask(from, after, terms, out);
            return Progress::Stays;
        }
        self.left.remove(&from);
        if self.left.is_empty() { Progress::Answers(self.answer()) } else { Progress::Stays }
    }

    /// What is known now. The homes that are left are silent.
    pub(super) fn answer(&mut self) -> Answer {
        let silent = std::mem::take(&mut self.left).into_iter().collect();
        let (mut segments, going) = (std::mem::take(&mut self.found), std::mem::take(&mut self.going));
        segments.sort_by_key(|segment| segment.id);
        Answer::Listed { segments, going, silent }
    }
}
