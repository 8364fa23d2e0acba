//! What a home is asked by members, and what it makes of it.

use verbena_cluster::View;
use verbena_terms::Time;

use super::Home;
use super::moving::MOVES_AT_ONCE;
use crate::SegmentId;
use crate::actions::{HomeAction, QuestionId, Said};
use crate::wire::{Question, Reply};

impl Home {
    /// A question, in this view.
    pub(crate) fn on(
        &mut self,
        asker: QuestionId,
        question: Question,
        (view, now): (&View, Time),
        out: &mut Vec<HomeAction>,
    ) -> Said {
        match question {
            Question::Allocate { token, wanted, others } => match self.made_by(&token) {
                Some(id) => self.place_of(id, view),
                None => {
                    self.allocate(asker, token, wanted, others, out);
                    Said::Later
                }
            },
            Question::Reserve(segment) => {
                self.reserve(asker, segment, out);
                Said::Later
            }
            Question::Hold(segment) => Said::Kept(self.hold(segment)),
            Question::Drop { id, end } => {
                self.drop_copy(id, end, out);
                Said::Kept(Reply::Done)
            }
            Question::Leave(id) => {
                self.leave(id, out);
                Said::Kept(Reply::Done)
            }
            Question::Adopt(segment) => {
                self.adopted(asker, segment, out);
                Said::Later
            }
            Question::Yield(id) => self.yields(asker, id, view, out),
            Question::Release { id, owner } => self.said_of_another(id, view).unwrap_or_else(|| {
                self.release(asker, id, owner, out);
                Said::Later
            }),
            Question::Where(id) => self.place_of(id, view),
            Question::Notice(id) => self.said_of_another(id, view).unwrap_or_else(|| {
                let left = self.find(id).map(|segment| self.goes_in(segment.id, now));
                Said::Anew(left.map_or_else(Reply::Refused, Reply::Notice))
            }),
            Question::List { .. } if self.is_comparing_any() => Said::Nothing,
            Question::List { after, prefix } => Said::Anew(self.list(after, &prefix, now)),
            // Of other parts of a member.
            _ => Said::Nothing,
        }
    }

    /// What is said of a segment that cannot be spoken of now, or that another home holds.
    fn said_of_another(&self, id: SegmentId, view: &View) -> Option<Said> {
        if self.is_comparing(id) {
            return Some(Said::Nothing);
        }
        self.elsewhere(id, view).map(Said::Anew)
    }

    fn place_of(&self, id: SegmentId, view: &View) -> Said {
        self.said_of_another(id, view).unwrap_or_else(|| {
            let found = self.find(id);
            Said::Anew(found.map_or_else(Reply::Refused, |segment| Reply::Segment(segment.clone())))
        })
    }

    /// A copy's holder is to lead it from now on, for this home leaves.
    fn yields(&mut self, asker: QuestionId, id: SegmentId, view: &View, out: &mut Vec<HomeAction>) -> Said {
        if self.is_comparing(id) || self.moving() >= MOVES_AT_ONCE {
            return Said::Nothing;
        }
        if self.find(id).is_err() {
            return Said::Anew(Reply::Done);
        }
        match self.begin_move(id, asker.from, view, out) {
            true => Said::Kept(Reply::Done),
            false => Said::Nothing,
        }
    }
}
