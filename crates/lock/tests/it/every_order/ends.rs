//! Whether every order of events ends, and well.
//!
//! That nothing is stuck is asked of states in which nothing more can happen. It does not see a cycle that is never left: a machine that swaps for ever, and expects what never
//! stands there. So the states and the steps between them are kept here, and walked back from the good ends. From each state one of them can be reached; and one
//! is reached whatever happens, for nothing goes round in a cycle.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model, Representative};
use verbena_lock::{Rules, Scheme};

use crate::every_order::symmetry::hash;
use crate::every_order::world::World;
use crate::every_order::{Explored, READ, TRY_READ, TRY_WRITE, WRITE, checked, in_full, is_long, world};

/// A world's states, numbered as they are found.
struct Graph {
    /// By what they are told apart by.
    states: HashMap<u64, u32>,
    /// From a state to the next, sorted by that.
    steps: Vec<(u32, u32)>,
    /// Nothing more can happen, and everybody has had what they wanted.
    good_ends: Vec<u32>,
}

/// How many of the steps from a state have to lead to a good end.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Need {
    OneStep,
    AllSteps,
}

/// Explores it breadth first, where states with the same key are the same. Of each it is said what its number is, and what those of the next are. The numbers
/// of all.
pub(crate) fn walk<M: Model>(
    model: &M,
    key: impl Fn(&M::State) -> u64,
    mut visit: impl FnMut(&M::State, u32, &[u32]),
) -> HashMap<u64, u32> {
    let (mut numbers, mut ahead) = (HashMap::new(), VecDeque::new());
    let mut number = |state: M::State, ahead: &mut VecDeque<_>| {
        let next = numbers.len() as u32;
        let number = *numbers.entry(key(&state)).or_insert(next);
        if number == next {
            ahead.push_back((number, state));
        }
        number
    };
    for state in model.init_states() {
        number(state, &mut ahead);
    }
    while let Some((at, state)) = ahead.pop_front() {
        let next: Vec<u32> = model.next_states(&state).into_iter().map(|next| number(next, &mut ahead)).collect();
        visit(&state, at, &next);
    }
    numbers
}

/// The same for participants that could change places, where of their orders one is explored.
fn key<W: Explored>(world: &W, state: &W::State) -> u64 {
    if world.is_reduced() { hash(&state.representative()) } else { hash(state) }
}

impl Graph {
    fn of<W: Explored>(world: &W) -> Self {
        let (mut steps, mut good_ends) = (vec![], vec![]);
        let visit = |state: &W::State, at, next: &[u32]| {
            steps.extend(next.iter().map(|&to| (at, to)));
            if next.is_empty() && world.is_over(state) {
                good_ends.push(at);
            }
        };
        let states = walk(world, |state| key(world, state), visit);
        steps.sort_unstable_by_key(|&(at, to)| (to, at));
        Graph { states, steps, good_ends }
    }

    fn steps_to(&self, state: u32) -> impl Iterator<Item = u32> {
        let first = self.steps.partition_point(|&(_, to)| to < state);
        self.steps[first..].iter().take_while(move |&&(_, to)| to == state).map(|&(at, _)| at)
    }

    /// The states from which that does not hold, the nearest first.
    fn astray(&self, need: Need) -> Vec<u32> {
        let mut needed = vec![u32::from(need == Need::OneStep); self.states.len()];
        if need == Need::AllSteps {
            self.steps.iter().for_each(|&(at, _)| needed[at as usize] += 1);
        }
        let mut ends_well = vec![false; self.states.len()];
        self.good_ends.iter().for_each(|&end| ends_well[end as usize] = true);
        let mut ahead = self.good_ends.clone();
        while let Some(state) = ahead.pop() {
            for at in self.steps_to(state) {
                let needed = &mut needed[at as usize];
                *needed = needed.saturating_sub(1);
                if *needed == 0 && !std::mem::replace(&mut ends_well[at as usize], true) {
                    ahead.push(at);
                }
            }
        }
        (0..self.states.len() as u32).filter(|&state| !ends_well[state as usize]).collect()
    }

    /// The events of a shortest way there.
    fn way<W: Explored>(&self, world: &W, to: u32) -> Vec<W::Action> {
        // It was found from the first from which there is a step to it.
        let from = |&state: &u32| self.steps_to(state).next().filter(|&at| at < state);
        let mut numbers: Vec<u32> = std::iter::successors(Some(to), from).collect();
        numbers.reverse();
        let is = |state: &W::State, number| self.states.get(&key(world, state)) == Some(&number);
        let mut state = world.init_states().into_iter().find(|state| is(state, numbers[0])).expect("where it begins");
        let mut way = vec![];
        for &number in &numbers[1..] {
            let (event, next) =
                world.next_steps(&state).into_iter().find(|(_, next)| is(next, number)).expect("a step that was found");
            way.push(event);
            state = next;
        }
        way
    }
}

/// From each state a good end can be reached, and nothing goes round in a cycle.
pub(crate) fn end_well<W: Explored>(world: W, at_least: usize) {
    println!("{world}");
    let started = Instant::now();
    let graph = Graph::of(&world);
    let (states, steps, good_ends) = (graph.states.len(), graph.steps.len(), graph.good_ends.len());
    for need in [Need::OneStep, Need::AllSteps] {
        let astray = graph.astray(need);
        if let Some(&nearest) = astray.first() {
            panic!(
                "{need:?}: not so from {} states; to the nearest lead {:?}",
                astray.len(),
                graph.way(&world, nearest)
            );
        }
    }
    println!("  {states} states, {steps} steps, {good_ends} good ends, {} ms", started.elapsed().as_millis());
    assert!(states >= at_least, "only {states} states");
}

#[test]
fn every_order_of_events_ends_well() {
    let any = [WRITE, READ];
    let all = [WRITE, READ, TRY_WRITE, TRY_READ];
    end_well(in_full(world(3, 1, &any)), 30_000);
    end_well(in_full(world(2, 2, &any)), 50_000);
    end_well(in_full(world(3, 1, &all)), 100_000);
    end_well(World { downgrades: true, ..in_full(world(3, 1, &any)) }, 100_000);
    end_well(World { settled_at: Some(1), ..in_full(world(2, 2, &any)) }, 70_000);
    for (scheme, at_least) in [(Scheme::Dqnl, 100_000), (Scheme::Srsl, 2_000)] {
        end_well(World { scheme, ..in_full(world(3, 1, &all)) }, at_least);
    }
    if is_long() {
        end_well(world(3, 2, &any), 200_000);
        end_well(World { downgrades: true, ..world(3, 2, &any) }, 500_000);
        end_well(in_full(world(2, 3, &any)), 1_000_000);
    }
}

#[test]
fn gates_are_open_in_the_end() {
    let impatient = |world| World { lost_swaps: Some(0), ..world };
    end_well(impatient(in_full(world(2, 2, &[WRITE, READ]))), 70_000);
    end_well(impatient(world(3, 1, &[WRITE, READ, TRY_WRITE, TRY_READ])), 8_000);
    if is_long() {
        end_well(impatient(in_full(world(3, 1, &[WRITE, READ]))), 100_000);
        end_well(impatient(world(3, 2, &[WRITE, READ])), 1_000_000);
    }
}

/// Readers have released and nobody takes them off the word, for the home swaps for ever. Something can always happen, so nothing is stuck.
#[test]
fn l3_a_home_that_swaps_again_what_it_did_not_find_is_found() {
    let rules = Rules { swap_what_is_found: false, ..Rules::ALL };
    for is_reduced in [false, true] {
        let of = |requests| World { lost_swaps: Some(0), rules, is_reduced, ..world(2, 1, requests) };
        checked(of(&[WRITE, READ]), HasDiscoveries::All).assert_properties();
        let graph = Graph::of(&of(&[WRITE, READ]));
        let astray = graph.astray(Need::OneStep);
        assert!(!astray.is_empty(), "a good end can be reached from everywhere, although a rule is off");
        let way = graph.way(&of(&[WRITE, READ]), astray[0]);
        println!("  found in {} steps, {} states of {}", way.len(), astray.len(), graph.states.len());
        // Among writers the one before it can free the word, and until then it goes round.
        let graph = Graph::of(&of(&[WRITE]));
        assert!(graph.astray(Need::OneStep).is_empty() && !graph.astray(Need::AllSteps).is_empty());
    }
}
