//! Shared brackets: every order of events of small cases.

use std::collections::{BTreeMap, BTreeSet};

use verbena_relay::{Outcome, Rejection, Shared, Step};

/// One state of the machine, and what a checker remembers of the way to it.
#[derive(Clone, Default)]
struct World {
    machine: Shared<usize>,
    /// The next to join.
    joined: usize,
    beginning: Option<u64>,
    members: BTreeMap<u64, Vec<u64>>,
    open: BTreeSet<u64>,
    unanswered: BTreeSet<u64>,
    answers: BTreeMap<u64, Outcome>,
    ending: BTreeSet<u64>,
    confirmed: BTreeSet<u64>,
    told: BTreeSet<u64>,
    begins: usize,
    /// How many waited when the last `Begin` was answered.
    waiting: usize,
}

#[derive(Debug, Clone, Copy)]
enum Event {
    Join,
    Begun(u64, bool),
    Answered(u64, Outcome),
    Ended(u64, bool),
}

impl World {
    fn events(&self, writers: usize) -> Vec<Event> {
        let mut events = Vec::new();
        if self.joined < writers {
            events.push(Event::Join);
        }
        if let Some(bracket) = self.beginning {
            events.extend([true, false].map(|accepted| Event::Begun(bracket, accepted)));
        }
        for member in &self.unanswered {
            let outcomes = [Outcome::Answered, Outcome::Unknown, Outcome::Unsent];
            events.extend(outcomes.map(|outcome| Event::Answered(*member, outcome)));
        }
        for bracket in &self.ending {
            events.extend([true, false].map(|confirmed| Event::Ended(*bracket, confirmed)));
        }
        events
    }

    fn apply(&mut self, event: Event) {
        let steps = match event {
            Event::Join => {
                let (member, steps) = self.machine.join(self.joined);
                assert_eq!(member, self.joined as u64);
                self.joined += 1;
                self.waiting += 1;
                steps
            }
            Event::Begun(bracket, accepted) => {
                self.beginning = None;
                if accepted {
                    self.open.insert(bracket);
                }
                self.machine.begun(bracket, if accepted { Ok(()) } else { Err(Rejection::Retry) })
            }
            Event::Answered(member, outcome) => {
                self.unanswered.remove(&member);
                self.answers.insert(member, outcome);
                self.machine.answered(member, outcome)
            }
            Event::Ended(bracket, confirmed) => {
                self.ending.remove(&bracket);
                self.confirmed.insert(bracket);
                self.machine.ended(bracket, confirmed)
            }
        };
        steps.into_iter().for_each(|step| self.check(step, event));
    }

    fn check(&mut self, step: Step<usize>, event: Event) {
        match step {
            Step::Begin { bracket, writes } => {
                assert_eq!(self.beginning, None, "two Begins under way");
                assert_eq!(writes.len(), self.waiting, "a write that waited does not share the next Begin");
                self.waiting = 0;
                self.begins += 1;
                self.beginning = Some(bracket);
                self.members.insert(bracket, writes.iter().map(|write| *write as u64).collect());
            }
            Step::Begun { member, result } => {
                let Event::Begun(bracket, accepted) = event else { panic!("told of no Begin") };
                assert!(self.members[&bracket].contains(&member), "told of a bracket without its write");
                assert_eq!(result.is_ok(), accepted);
                if accepted {
                    self.unanswered.insert(member);
                } else {
                    self.told.insert(member);
                }
            }
            Step::End { bracket, outcome } => {
                assert!(self.open.remove(&bracket), "an end of what is not open");
                let answers: Vec<_> = self.members[&bracket].iter().map(|member| self.answers.get(member)).collect();
                assert!(answers.iter().all(Option::is_some), "ended before all of them were answered");
                let any = |outcome: Outcome| answers.contains(&Some(&outcome));
                assert_eq!(outcome == Outcome::Unknown, any(Outcome::Unknown));
                assert_eq!(outcome == Outcome::Unsent, !any(Outcome::Unknown) && !any(Outcome::Answered));
                self.ending.insert(bracket);
            }
            Step::Ended { member, is_confirmed } => {
                let Event::Ended(bracket, confirmed) = event else { panic!("told of no End") };
                assert!(self.members[&bracket].contains(&member));
                assert_eq!(is_confirmed, confirmed);
                assert!(self.told.insert(member), "told twice");
            }
        }
    }
}

/// Visits every order; gives the number of complete ones and the most and fewest `Begin`s.
fn explore(world: &World, writers: usize, ends: &mut (u64, usize, usize)) {
    let events = world.events(writers);
    if events.is_empty() {
        assert_eq!(world.told.len(), writers, "a writer was never told");
        assert!(world.open.is_empty());
        *ends = (ends.0 + 1, ends.1.min(world.begins), ends.2.max(world.begins));
        return;
    }
    for event in events {
        let mut next = world.clone();
        next.apply(event);
        explore(&next, writers, ends);
    }
}

#[test]
fn every_order_of_three_writers() {
    let mut ends = (0, usize::MAX, 0);
    explore(&World::default(), 3, &mut ends);
    eprintln!("{} orders, {} to {} Begins", ends.0, ends.1, ends.2);
    assert!(ends.0 > 10_000, "only {} orders", ends.0);
    assert_eq!((ends.1, ends.2), (2, 3));
}

#[test]
fn one_that_is_alone_waits_for_no_begin_and_holds_none_up() {
    let mut shared = Shared::default();
    let (first, steps) = shared.join("first");
    assert_eq!(steps, [Step::Begin { bracket: 0, writes: vec!["first"] }]);
    let (alone, steps) = shared.join_alone("alone");
    assert_eq!(steps, [Step::Begin { bracket: 1, writes: vec!["alone"] }], "beside the Begin that is under way");
    let (second, steps) = shared.join("second");
    assert_eq!(steps, []);
    assert_eq!(shared.begun(1, Ok(())), [Step::Begun { member: alone, result: Ok(()) }]);
    assert_eq!(shared.begun(1, Ok(())), [], "said twice");
    let begun = shared.begun(0, Ok(()));
    let next = Step::Begin { bracket: 2, writes: vec!["second"] };
    assert_eq!(begun, [next, Step::Begun { member: first, result: Ok(()) }]);
    let end = Step::End { bracket: 1, outcome: Outcome::Answered };
    assert_eq!(shared.answered(alone, Outcome::Answered), [end]);
    assert_eq!(shared.ended(1, true), [Step::Ended { member: alone, is_confirmed: true }]);
    assert_eq!(shared.begun(2, Err(Rejection::Retry)), [Step::Begun { member: second, result: Err(Rejection::Retry) }]);
}
