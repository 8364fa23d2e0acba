//! This home begins to serve a segment when its former leader, or another holder, has left.
//!
//! ```text
//!   looking ---------------> claiming -----------> naming --------------> telling ------------> standing
//!      its words are read       only the value's      the registrar of       the registrar of
//!                               slot is claimed       its name knows it      its number knows it
//! ```

use verbena_terms::Incarnation;

use super::held::{Site, Transition};
use crate::Segment;
use crate::access::{Given, Step};
use crate::actions::{HomeAction, QuestionId};
use crate::layout::{Word, claims_at, word_at};
use crate::segment::registrar_of;
use crate::wire::{Question, Reply};

/// How far a home is that is to serve a segment.
#[derive(Clone, Debug)]
pub(super) struct Adopting {
    /// The question of the former leader, if it asked.
    asker: Option<QuestionId>,
    step: AdoptStep,
}

#[derive(Clone, Copy, Debug)]
enum AdoptStep {
    /// Slots that were claimed are free.
    Looking,
    /// These claims are expected.
    Claiming(u64),
    Naming,
    Telling,
}

impl Adopting {
    /// It begins, for a segment with this control here.
    pub(super) fn begin(
        asker: Option<QuestionId>,
        segment: &Segment,
        control: u32,
        me: Incarnation,
        out: &mut Vec<HomeAction>,
    ) -> Self {
        let mut adopting = Adopting { asker, step: AdoptStep::Looking };
        adopting.look(segment, control, me, out);
        adopting
    }

    fn look(&mut self, segment: &Segment, control: u32, me: Incarnation, out: &mut Vec<HomeAction>) {
        self.step = AdoptStep::Looking;
        let steps = vec![Step::ReadWord(word_at(control)), Step::ReadWord(claims_at(control))];
        out.push(HomeAction::Post { id: segment.id, at: me, steps });
    }

    /// Its words were read, or its claims changed.
    pub(super) fn completed(
        &mut self,
        segment: &Segment,
        control: u32,
        given: &[Given],
        site: Site<'_>,
        out: &mut Vec<HomeAction>,
    ) -> Transition {
        let words: Vec<u64> = given.iter().map(Given::word).collect();
        match (self.step, &words[..]) {
            (AdoptStep::Looking, [word, claims]) => {
                let slot = Word::from_bits(*word).slot().unwrap_or(0);
                self.step = AdoptStep::Claiming(*claims);
                let steps = vec![Step::Swap(claims_at(control), *claims, 1 << slot)];
                out.push(HomeAction::Post { id: segment.id, at: site.me, steps });
                Transition::Wait
            }
            (AdoptStep::Claiming(expected), [found]) if expected == *found => {
                self.step = AdoptStep::Naming;
                match segment.wanted.name.as_ref().and_then(|name| name.registrar(site.view)) {
                    Some(to) => {
                        let question = Question::Register(segment.clone());
                        out.push(HomeAction::Ask { id: segment.id, to, question });
                        Transition::Wait
                    }
                    None => self.answered(segment, site, out),
                }
            }
            _ => {
                self.look(segment, control, site.me, out);
                Transition::Wait
            }
        }
    }

    /// A registrar knows that it is here.
    pub(super) fn answered(&mut self, segment: &Segment, site: Site<'_>, out: &mut Vec<HomeAction>) -> Transition {
        let id = segment.id;
        match (self.step, registrar_of(id, site.view)) {
            (AdoptStep::Naming, Some(to)) => {
                self.step = AdoptStep::Telling;
                out.push(HomeAction::Ask { id, to, question: Question::Moved(id) });
                Transition::Wait
            }
            _ => {
                if let Some(to) = self.asker.take() {
                    out.push(HomeAction::Reply { to, reply: Reply::Done });
                }
                Transition::Stand
            }
        }
    }
}
