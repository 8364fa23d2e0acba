//! The register, where the keeper is whoever holds an office: questions and answers are late and lost, and what was given up may be done yet.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use verbena_cluster::{Answer, Question};
use verbena_terms::{Incarnation, Rank, Time};
use verbena_testkit::store::{Store, StoreCounts};

use crate::never_stale::membership::rank;
use crate::never_stale::outside::{Event, Outside, Run};
use crate::never_stale::settings::{LEASE, ms, us};

/// Within which a question is answered, or given up.
const GIVEN_UP: Duration = Duration::from_millis(LEASE.as_millis() as u64 / 4);

#[derive(Default)]
pub struct Register {
    store: RefCell<Store>,
    /// Until when each node does not reach it.
    away: RefCell<Vec<Time>>,
}

impl Register {
    pub fn counts(&self) -> StoreCounts {
        self.store.borrow().counts
    }
}

impl Outside {
    /// The node that a life of this rank is or was on.
    pub fn node_of(&self, rank: Rank) -> Option<usize> {
        let nth = (rank.0 as usize).checked_sub(1)?;
        if !self.settings.office_moves {
            return Some(nth);
        }
        self.register.store.borrow().names.get(nth).and_then(|name| name[1..].parse().ok())
    }

    /// The first life of a process that starts, where ranks are enrolled: it waits for that before it does anything.
    pub fn enrolled(&self, at: usize) -> Incarnation {
        match self.execute(&Question::Enrol { name: format!("n{at}") }) {
            Answer::Enrolled(life) => life,
            other => unreachable!("{other:?} to who enrols"),
        }
    }

    /// For so long a node does not reach the register; none: nobody does.
    pub fn register_goes_away(&self, from: Option<usize>, length: Duration, nodes: usize) {
        let until = self.now() + length;
        let mut away = self.register.away.borrow_mut();
        away.resize(nodes, Time::ZERO);
        let cut = from.map_or(0..nodes, |at| at..at + 1);
        away[cut].iter_mut().for_each(|each| *each = until.max(*each));
    }

    /// A process asks. It is answered once.
    pub fn ask(self: &Rc<Self>, at: usize, run: Run, number: u64, question: Question) {
        let is_away = !self.calm.get() && self.register.away.borrow().get(at).is_some_and(|until| self.now() < *until);
        let lost = self.settings.faults.questions_lost;
        // What is not reached may be reached by the question alone.
        let loses = |chance| self.strikes(lost) || is_away && self.happens(chance);
        let (question_lost, answer_lost) = (loses(700), loses(1000));
        let slow = if self.strikes(lost) { LEASE * 2 } else { ms(4) };
        let (there, back) = (self.between(us(100), slow), self.between(us(50), ms(4)));
        if question_lost || answer_lost || there + back > GIVEN_UP {
            self.later(GIVEN_UP, Event::Answered { at, run, number, answer: None });
        }
        if question_lost {
            return;
        }
        let outside = self.clone();
        let arrive = move || {
            let answer = outside.execute(&question);
            if !answer_lost && there + back <= GIVEN_UP {
                outside.later(back, Event::Answered { at, run, number, answer: Some(answer) });
            }
        };
        self.later(there, Event::Outside(Box::new(arrive)));
    }

    fn execute(&self, question: &Question) -> Answer {
        let answer = self.register.store.borrow_mut().execute(question);
        self.sim.note(format_args!("register: {question:?}: {answer:?}"));
        if let (Answer::Enrolled(life), Question::Enrol { name }) = (&answer, question) {
            let at = name[1..].parse().expect("a name of this world");
            self.sim.settle(life.rank, rank(at));
        }
        answer
    }
}
