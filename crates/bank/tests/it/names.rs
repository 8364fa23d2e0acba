//! What a bank may say of names and attributes, explored before it says anything: the rules file had names as not explored.
//!
//! | promise | names and missing names of a directory | attributes of its files |
//! |---|---|---|
//! | `open` | under the directory's version, looked at after the request arrived (one message a directory, however many names), where the file system has a change time of its own | never: a write to a file does not move its directory |
//! | `sealed`, `age=T` | with the time at which they were taken, for T less what has passed | the same |
//!
//! `open` ([`Versions`]): times move once a tick, a fill looks, reads and stores at some later moment, readers look and ask the bank. Each rule that
//! is switched off shows something old: a version that is not settled, times that a program can set back (B14: `rsync -t` does it to directories), and
//! attributes under the directory's version. A second look after the names is no rule here: where versions never come back,
//! a listing that was read too late is newer than its version says, never older.
//!
//! `age=T` ([`Ages`]): two mounts whose clocks differ, an item that says when it was taken, and kernels that believe what they were told. The time is the
//! writer's, from before it read below (B13's reason); a reader adds the largest difference of the clocks; its kernel
//! gets what is left of T and not T; and what came from the bank is not stored again as if it were new.

use std::collections::BTreeMap;

use stateright::{Checker, HasDiscoveries, Model, Property};

/// Names under the version of their directory.
#[derive(Clone, Copy, Debug)]
struct Versions {
    settled: bool,
    /// No program can set the directory's times back.
    change_time: bool,
    /// Attributes are asked below, and not taken from the listing.
    own_attributes: bool,
}

/// One state of a directory: how often its names and its file's attributes changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Seen {
    names: u8,
    attributes: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Fill {
    Idle,
    Looked {
        stamp: u8,
    },
    /// On its way to the bank.
    Sent {
        stamp: u8,
        seen: Seen,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Reading {
    Idle,
    Arrived { oldest: Seen },
    Looked { oldest: Seen, stamp: u8 },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Directory {
    tick: u8,
    now: Seen,
    /// The tick of the last change of a name: all that the directory's times show.
    stamp: u8,
    bank: BTreeMap<u8, Seen>,
    fills: [Fill; 2],
    reading: Reading,
    /// What a reader has seen, so that no later one sees less.
    floor: Seen,
    left: u8,
    hits: u8,
    old_names: bool,
    old_attributes: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Tick,
    Rename,
    Write,
    /// The directory has the time that it had in the beginning.
    Restore,
    Fill(usize),
    Drop(usize),
    Read,
    /// The bank forgets.
    Forget,
}

impl Model for Versions {
    type State = Directory;
    type Action = Step;

    fn init_states(&self) -> Vec<Directory> {
        vec![Directory {
            tick: 0,
            now: Seen::default(),
            stamp: 0,
            bank: BTreeMap::new(),
            fills: [Fill::Idle; 2],
            reading: Reading::Idle,
            floor: Seen::default(),
            left: 2,
            hits: 0,
            old_names: false,
            old_attributes: false,
        }]
    }

    fn actions(&self, state: &Directory, actions: &mut Vec<Step>) {
        if state.tick < 2 {
            actions.push(Step::Tick);
        }
        if state.left > 0 {
            actions.extend([Step::Rename, Step::Write]);
        }
        if !self.change_time && state.stamp > 0 {
            actions.push(Step::Restore);
        }
        for (at, fill) in state.fills.iter().enumerate() {
            actions.push(Step::Fill(at));
            if matches!(fill, Fill::Sent { .. }) {
                actions.push(Step::Drop(at));
            }
        }
        if state.hits < 2 {
            actions.push(Step::Read);
        }
        if !state.bank.is_empty() {
            actions.push(Step::Forget);
        }
    }

    fn next_state(&self, last: &Directory, step: Step) -> Option<Directory> {
        let mut state = last.clone();
        match step {
            Step::Tick => state.tick += 1,
            Step::Rename => {
                state.now.names += 1;
                state.stamp = state.tick;
                state.left -= 1;
            }
            Step::Write => {
                state.now.attributes += 1;
                state.left -= 1;
            }
            Step::Restore => state.stamp = 0,
            Step::Fill(at) => {
                state.fills[at] = match state.fills[at] {
                    Fill::Idle if !self.settled || state.tick > state.stamp => Fill::Looked { stamp: state.stamp },
                    Fill::Idle => return None,
                    Fill::Looked { stamp } => Fill::Sent { stamp, seen: state.now },
                    Fill::Sent { stamp, seen } => {
                        state.bank.insert(stamp, seen);
                        Fill::Idle
                    }
                };
            }
            Step::Drop(at) => state.fills[at] = Fill::Idle,
            Step::Read => {
                state.reading = match state.reading {
                    Reading::Idle => Reading::Arrived { oldest: state.now },
                    Reading::Arrived { oldest } => Reading::Looked { oldest, stamp: state.stamp },
                    Reading::Looked { oldest, stamp } => {
                        let found = state.bank.get(&stamp).copied();
                        state.hits += u8::from(found.is_some());
                        let mut served = found.unwrap_or(state.now);
                        if self.own_attributes {
                            served.attributes = state.now.attributes;
                        }
                        let at_least = |asked: u8, floor: u8| asked.max(floor);
                        state.old_names |= served.names < at_least(oldest.names, state.floor.names);
                        state.old_attributes |= served.attributes < at_least(oldest.attributes, state.floor.attributes);
                        state.floor.names = state.floor.names.max(oldest.names);
                        state.floor.attributes = state.floor.attributes.max(oldest.attributes);
                        Reading::Idle
                    }
                };
            }
            Step::Forget => state.bank.clear(),
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no name is old", |_, state: &Directory| !state.old_names),
            Property::always("no attribute is old", |_, state: &Directory| !state.old_attributes),
            Property::sometimes("names change and hit", |_, state: &Directory| state.hits > 1 && state.now.names > 1),
        ]
    }
}

/// Names and attributes with the time at which they were taken.
#[derive(Clone, Copy, Debug)]
struct Ages {
    /// How far the second mount's clock is ahead.
    ahead: i8,
    /// The largest difference of two clocks is added to an age.
    differs: bool,
    /// The time is from before the file system below was asked.
    before: bool,
    /// The kernel believes for what is left, and not for T anew.
    rest: bool,
    /// Only what was read below is stored.
    below: bool,
}

/// The promise, and the largest difference of clocks.
const AGE: i8 = 2;
const DIFFERENCE: i8 = 1;
const END: i8 = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Item {
    taken: i8,
    value: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Mount {
    /// What its kernel believes, and until when.
    believed: Option<(u8, i8)>,
    /// It asks below since this time, and has perhaps read.
    asking: Option<(i8, Option<u8>)>,
    sent: Option<Item>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Tree {
    time: i8,
    /// When each change was.
    changes: Vec<i8>,
    bank: Option<Item>,
    mounts: [Mount; 2],
    hits: u8,
    is_old: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Move {
    Time,
    Change,
    /// A program asks. The kernel, the bank or the file system below answers.
    Ask(usize),
    Answer(usize),
    Store(usize),
}

impl Ages {
    fn clock(&self, state: &Tree, mount: usize) -> i8 {
        state.time + if mount == 1 { self.ahead } else { 0 }
    }

    fn serve(state: &mut Tree, value: u8) {
        // It was true until the change after it.
        let until = state.changes.get(usize::from(value)).copied().unwrap_or(END);
        state.is_old |= until < state.time - AGE;
    }

    fn ask(&self, state: &mut Tree, at: usize) -> Option<()> {
        let now = self.clock(state, at);
        if state.mounts[at].asking.is_some() {
            return None;
        }
        if let Some((value, until)) = state.mounts[at].believed
            && state.time <= until
        {
            Self::serve(state, value);
            return Some(());
        }
        if let Some(item) = state.bank {
            let age = (now - item.taken).max(0) + if self.differs { DIFFERENCE } else { 0 };
            if age <= AGE {
                let rest = if self.rest { AGE - age } else { AGE };
                state.mounts[at].believed = Some((item.value, state.time + rest));
                state.hits = (state.hits + 1).min(2);
                if !self.below {
                    state.mounts[at].sent = Some(Item { taken: now, value: item.value });
                }
                Self::serve(state, item.value);
                return Some(());
            }
        }
        state.mounts[at].asking = Some((state.time, None));
        Some(())
    }

    fn answer(&self, state: &mut Tree, at: usize) -> Option<()> {
        let changes = state.changes.len() as u8;
        let now = self.clock(state, at);
        let (since, read) = state.mounts[at].asking?;
        let Some(value) = read else {
            state.mounts[at].asking = Some((since, Some(changes)));
            return Some(());
        };
        let taken = if self.before { now - (state.time - since) } else { now };
        state.mounts[at].asking = None;
        state.mounts[at].believed = Some((value, since + AGE));
        state.mounts[at].sent = Some(Item { taken, value });
        // An answer that took longer than the promise is asked for anew, by the program or by us.
        if state.time - since <= AGE {
            Self::serve(state, value);
        }
        Some(())
    }
}

impl Model for Ages {
    type State = Tree;
    type Action = Move;

    fn init_states(&self) -> Vec<Tree> {
        let (changes, mounts) = (vec![], [Mount::default(); 2]);
        vec![Tree { time: 0, changes, bank: None, mounts, hits: 0, is_old: false }]
    }

    fn actions(&self, state: &Tree, actions: &mut Vec<Move>) {
        if state.time < END {
            actions.push(Move::Time);
        }
        if state.changes.len() < 2 {
            actions.push(Move::Change);
        }
        for at in 0..2 {
            actions.extend([Move::Ask(at), Move::Answer(at), Move::Store(at)]);
        }
    }

    fn next_state(&self, last: &Tree, step: Move) -> Option<Tree> {
        let mut state = last.clone();
        match step {
            Move::Time => state.time += 1,
            Move::Change => state.changes.push(state.time),
            Move::Ask(at) => self.ask(&mut state, at)?,
            Move::Answer(at) => self.answer(&mut state, at)?,
            Move::Store(at) => state.bank = Some(state.mounts[at].sent.take()?),
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("nothing is older than the promise", |_, state: &Tree| !state.is_old),
            Property::sometimes("the bank answers after a change", |_, state: &Tree| {
                state.hits > 1 && state.changes.len() > 1
            }),
        ]
    }
}

/// Explores all orders, and gives the properties that do not hold.
fn broken<M>(model: M) -> Vec<&'static str>
where
    M: Model + Copy + std::fmt::Debug + Send + Sync + 'static,
    M::State: std::hash::Hash + Clone + std::fmt::Debug + PartialEq + Send + Sync + 'static,
    M::Action: Clone + PartialEq + Send + Sync + 'static,
{
    let checker = model.checker().threads(2).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    println!("{model:?}: {} states, {} deep", checker.unique_state_count(), checker.max_depth());
    let mut found: Vec<&'static str> = checker.discoveries().into_keys().collect();
    found.sort_unstable();
    found
}

#[test]
fn names_count_under_the_version_of_their_directory_and_attributes_do_not() {
    let rules = Versions { settled: true, change_time: true, own_attributes: true };
    assert_eq!(broken(rules), ["names change and hit"]);
    assert!(broken(Versions { settled: false, ..rules }).contains(&"no name is old"));
    assert!(broken(Versions { change_time: false, ..rules }).contains(&"no name is old"));
    assert!(broken(Versions { own_attributes: false, ..rules }).contains(&"no attribute is old"));
}

#[test]
fn what_was_taken_at_a_time_is_no_older_than_the_promise() {
    let ages = |ahead| Ages { ahead, differs: true, before: true, rest: true, below: true };
    let hold = ["the bank answers after a change"];
    for ahead in [-DIFFERENCE, 0, DIFFERENCE] {
        assert_eq!(broken(ages(ahead)), hold, "{ahead}");
    }
    let old = "nothing is older than the promise";
    // Without it a mount whose clock is behind takes an item for younger than it is.
    assert!(broken(Ages { differs: false, ..ages(-DIFFERENCE) }).contains(&old));
    assert!(broken(Ages { before: false, ..ages(0) }).contains(&old));
    assert!(broken(Ages { rest: false, ..ages(0) }).contains(&old));
    assert!(broken(Ages { below: false, ..ages(0) }).contains(&old));
}
