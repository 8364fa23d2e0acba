use super::*;

use stateright::{Checker, Model, Property};

fn written(table: &str, kind: Kind) -> Written {
    Written { tables: [(table.as_bytes().to_vec(), kind)].into(), is_more: false }
}

fn touches(table: &str, names: &[Name]) -> Names {
    Names::Of([(table.as_bytes().to_vec(), names.iter().cloned().collect())].into())
}

fn reading() -> Around {
    let mut around = Around::default();
    around.begins();
    around
}

fn is_ours(around: &mut Around, written: &Written) -> bool {
    around.committed(written).is_none()
}

/// A commit may write less than it touches: what was taken for it is purged with it.
#[test]
fn what_was_taken_for_a_commit_goes_with_it() {
    let mut around = reading();
    let touched = Names::Of([(b"a".to_vec(), [Name::Values].into()), (b"b".to_vec(), [Name::Values].into())].into());
    around.held(touched);
    assert!(is_ours(&mut around, &written("a", Kind::Update)), "a stranger's, taken for it");
    let mut both = written("b", Kind::Update);
    both.add(b"a".to_vec(), Kind::Update);
    assert_eq!(around.committed(&written("b", Kind::Update)), Some(both));
    // A definition that was taken for a commit of which nothing is known.
    let mut around = reading();
    around.held(Names::Everything);
    assert!(around.defined());
    let found = around.committed(&written("b", Kind::Update)).unwrap();
    assert!(found.is_more && found.names() == Names::Everything);
}

#[test]
fn while_the_log_is_not_read_nothing_is_expected() {
    let mut around = reading();
    let old = around.held(Names::Everything);
    around.answered(old, Time::from_nanos(5));
    around.rests();
    around.held(Names::Everything);
    around.begins();
    assert!(!is_ours(&mut around, &written("a", Kind::Update)));
}

#[test]
fn a_transaction_takes_what_is_narrow_before_what_is_everything() {
    let mut around = reading();
    around.held(Names::Everything);
    around.held(touches("a", &[Name::Values, Name::Row(b"7".to_vec())]));
    assert!(is_ours(&mut around, &written("a", Kind::Update)));
    assert!(is_ours(&mut around, &written("a", Kind::Insert)));
    assert!(!is_ours(&mut around, &written("a", Kind::Insert)));
}

#[test]
fn another_table_or_another_way_of_writing_is_another_transaction() {
    for (of, is_ours) in [
        (written("a", Kind::Update), true),
        (written("a", Kind::Delete), false),
        (written("a", Kind::Table), false),
        (written("b", Kind::Update), false),
    ] {
        let mut around = reading();
        around.held(touches("a", &[Name::Values, Name::Moved(b"price".to_vec()), Name::Any]));
        assert_eq!(super::tests::is_ours(&mut around, &of), is_ours, "{of:?}");
    }
    let mut around = reading();
    around.held(touches("a", &[Name::Table]));
    let mut both = written("a", Kind::Table);
    both.add(b"b".to_vec(), Kind::Insert);
    assert!(!is_ours(&mut around, &both));
    assert_eq!(
        both.names(),
        Names::Of([(b"a".to_vec(), [Name::Table].into()), (b"b".to_vec(), [Name::Table].into())].into())
    );
}

#[test]
fn a_transaction_of_many_tables_is_everything() {
    let mut many = Written::default();
    for table in 0..=TABLES {
        many.add(table.to_be_bytes().to_vec(), Kind::Insert);
    }
    assert_eq!((many.tables.len(), many.names()), (TABLES, Names::Everything));
}

/// Two commits of the relay's, and transactions that go around it, which all write one table.
struct Site {
    strangers: u8,
    /// A commit of the relay's may write nothing.
    may_be_idle: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Commit {
    Before,
    Held(u64),
    Done(u64),
    Answered,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    now: u64,
    commits: [Commit; 2],
    strangers: u8,
    /// Whether each entry is a stranger's.
    log: Vec<bool>,
    read: usize,
    /// Where the log stood at a moment.
    asked: Option<(u64, usize)>,
    expected: Vec<(u64, Option<u64>, bool)>,
    next: u64,
    found: u8,
    is_idle: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Hold(usize),
    Write(usize),
    DoNothing(usize),
    Answer(usize),
    GoAround,
    Read,
    Ask,
    Pass,
}

impl State {
    fn machine(&self) -> Around {
        let expected = self.expected.iter().map(|&(number, answered, came)| Expected {
            number,
            names: touches("a", &[Name::Values]),
            answered: answered.map(Time::from_nanos),
            came: came.then(|| written("a", Kind::Update)),
        });
        Around { expected: expected.collect(), next: self.next, is_read: true }
    }

    fn keep(&mut self, machine: Around) {
        self.next = machine.next;
        let of = |one: Expected| (one.number, one.answered.map(Time::nanos), one.came.is_some());
        self.expected = machine.expected.into_iter().map(of).collect();
    }

    fn is_over(&self) -> bool {
        self.commits == [Commit::Answered; 2]
            && self.strangers == 0
            && self.read == self.log.len()
            && self.expected.is_empty()
    }
}

impl Model for Site {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            now: 1,
            commits: [Commit::Before; 2],
            strangers: self.strangers,
            log: Vec::new(),
            read: 0,
            asked: None,
            expected: Vec::new(),
            next: 0,
            found: 0,
            is_idle: false,
        }]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        for (at, commit) in state.commits.iter().enumerate() {
            match commit {
                Commit::Before => steps.push(Step::Hold(at)),
                Commit::Held(_) => {
                    steps.push(Step::Write(at));
                    if self.may_be_idle {
                        steps.push(Step::DoNothing(at));
                    }
                }
                Commit::Done(_) => steps.push(Step::Answer(at)),
                Commit::Answered => {}
            }
        }
        if state.strangers > 0 {
            steps.push(Step::GoAround);
        }
        if state.read < state.log.len() {
            steps.push(Step::Read);
        }
        match state.asked {
            None if state.machine().is_waiting() => steps.push(Step::Ask),
            Some((_, place)) if state.read >= place => steps.push(Step::Pass),
            _ => {}
        }
    }

    fn next_state(&self, last: &State, step: Step) -> Option<State> {
        let mut state = last.clone();
        let mut machine = state.machine();
        match step {
            Step::Hold(at) => state.commits[at] = Commit::Held(machine.held(touches("a", &[Name::Values]))),
            Step::Write(at) | Step::DoNothing(at) => {
                let Commit::Held(number) = state.commits[at] else { return None };
                state.commits[at] = Commit::Done(number);
                match step {
                    Step::Write(_) => state.log.push(false),
                    _ => state.is_idle = true,
                }
            }
            Step::Answer(at) => {
                let Commit::Done(number) = state.commits[at] else { return None };
                state.now += 1;
                machine.answered(number, Time::from_nanos(state.now));
                state.commits[at] = Commit::Answered;
            }
            Step::GoAround => {
                state.strangers -= 1;
                state.log.push(true);
            }
            Step::Read => {
                state.read += 1;
                state.found += u8::from(machine.committed(&written("a", Kind::Update)).is_some());
            }
            Step::Ask => {
                state.now += 1;
                state.asked = Some((state.now, state.log.len()));
            }
            Step::Pass => {
                let (at, _) = state.asked.take()?;
                machine.passed(Time::from_nanos(at));
            }
        }
        state.keep(machine);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            // Where each commit writes, as many are found as went around, each not before it was written.
            Property::always("each is found", |site: &Site, state: &State| {
                !state.is_over() || state.is_idle || state.found == site.strangers
            }),
            Property::always("no more is found than went around", |_, state: &State| {
                state.log[..state.read].iter().filter(|is_around| **is_around).count() >= state.found.into()
            }),
            Property::sometimes("it ends", |_, state: &State| state.is_over()),
        ]
    }
}

fn explored(site: Site) -> (usize, Vec<&'static str>) {
    let checker = site.checker().spawn_bfs().join();
    (checker.unique_state_count(), checker.discoveries().into_keys().filter(|name| *name != "it ends").collect())
}

#[test]
fn each_transaction_that_goes_around_is_found_in_every_order() {
    for (strangers, may_be_idle) in [(1, false), (2, false), (2, true)] {
        let (states, wrong) = explored(Site { strangers, may_be_idle });
        println!("{strangers} that go around, idle commits: {may_be_idle}: {states} states");
        assert!(states > 500 && wrong.is_empty(), "{states} states, {wrong:?}");
    }
}
