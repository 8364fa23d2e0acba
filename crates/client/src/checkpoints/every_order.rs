//! The steps of two or three that join, save and go back, in every order; any of them may stop for ever after any step.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use super::record::{Head, Record, Refusal};
use super::steps::{Complete, Done, Join, Machine, Save, Seen, Step};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Act {
    Join,
    /// The next checkpoint after the one that it saved last, or from which it goes on.
    Save,
    Back(u64),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Doing {
    Join(Join, Done<Record>),
    Save(Save, Done<u64>),
    Back(u64, Done<()>),
}

/// An actor that runs as a process. Two may have the number of one process: then the first is believed dead, and is
/// not.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Actor {
    process: u32,
    plan: VecDeque<Act>,
    doing: Option<Doing>,
    era: u64,
    /// What it saved last, or goes on from.
    number: u64,
    /// It has a part to read that no other actor may take away.
    reads: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Slot {
    head: Head,
    version: u64,
    by: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    record: Record,
    version: u64,
    slots: BTreeMap<(u32, u32), Slot>,
    actors: Vec<Actor>,
    /// The actor that joined an era as a process.
    joined: BTreeMap<(u32, u64), usize>,
    /// Versions of the parts of complete checkpoints, when they were said to be complete.
    complete: BTreeMap<u64, Vec<u64>>,
}

#[derive(Debug, Default)]
#[allow(dead_code, reason = "some of it is printed alone")]
struct Counted {
    states: usize,
    ends: usize,
    /// Puts and swaps over another version.
    conflicts: usize,
    rolled_back: usize,
    /// Of all ends, how often which was the newest checkpoint, and which the era.
    newest: BTreeMap<u64, usize>,
    eras: BTreeMap<u64, usize>,
}

impl Actor {
    fn of(process: u32, plan: &[Act]) -> Actor {
        Actor { process, plan: plan.iter().copied().collect(), doing: None, era: 0, number: 0, reads: false }
    }

    fn can_act(&self) -> bool {
        self.doing.is_some() || !self.plan.is_empty()
    }
}

impl World {
    fn new(processes: u32, kept: u32, actors: &[Actor]) -> World {
        let slots = (0..processes).flat_map(|process| (0..kept).map(move |slot| (process, slot)));
        let none = Slot { head: Head::default(), version: 1, by: usize::MAX };
        World {
            record: Record::new(processes, kept, 8),
            version: 1,
            slots: slots.map(|slot| (slot, none.clone())).collect(),
            actors: actors.to_vec(),
            joined: BTreeMap::new(),
            complete: BTreeMap::new(),
        }
    }

    /// Runs this actor to the end of what it does, while no other acts.
    fn alone(&mut self, actor: usize) {
        for _ in 0..200 {
            if !self.actors[actor].can_act() {
                return;
            }
            self.step(actor, &mut Counted::default());
        }
        panic!("{actor} does not come to its end: {self:?}");
    }

    /// One read, put or swap.
    fn step(&mut self, actor: usize, counted: &mut Counted) {
        let its = &mut self.actors[actor];
        let doing = its.doing.take().unwrap_or_else(|| match its.plan.pop_front().unwrap() {
            Act::Join => Doing::Join(Join::new(its.process), Step::Look),
            Act::Save => Doing::Save(Save::new(its.process, its.era, its.number + 1, 8), Step::Look),
            Act::Back(number) => Doing::Back(number, Step::Look),
        });
        match doing {
            Doing::Join(mut join, step) => match join.next(self.execute(actor, step, counted)) {
                Step::Done(Ok(record)) => {
                    let its = &mut self.actors[actor];
                    (its.era, its.number, its.reads) = (record.era, record.complete, record.complete > 0);
                    let before = self.joined.insert((its.process, its.era), actor);
                    assert_eq!(before, None, "two joined one era as one process");
                }
                Step::Done(Err(refusal)) => panic!("{refusal:?}"),
                step => self.actors[actor].doing = Some(Doing::Join(join, step)),
            },
            Doing::Save(mut save, step) => match save.next(self.execute(actor, step, counted)) {
                Step::Done(Ok(complete)) => {
                    let its = &mut self.actors[actor];
                    its.number += 1;
                    assert!(complete <= its.number && complete + 1 >= its.number, "{complete}: {its:?}");
                }
                Step::Done(Err(refusal)) => {
                    counted.rolled_back += usize::from(refusal == Refusal::RolledBack);
                    // It joins again if it is to; without that it has no place.
                    let plan = &mut self.actors[actor].plan;
                    while plan.front() == Some(&Act::Save) {
                        plan.pop_front();
                    }
                }
                step => self.actors[actor].doing = Some(Doing::Save(save, step)),
            },
            Doing::Back(number, step) => match self.execute(actor, step, counted) {
                Seen::Record(record, _) if record.head(number).is_none() => {}
                Seen::Record(mut record, over) => {
                    record.begin_era(number);
                    self.actors[actor].doing = Some(Doing::Back(number, Step::Swap { record, over }));
                }
                Seen::Put(true) => {}
                _ => self.actors[actor].doing = Some(Doing::Back(number, Step::Look)),
            },
        }
        self.check();
    }

    fn execute<T>(&mut self, actor: usize, step: Step<T>, counted: &mut Counted) -> Seen {
        match step {
            Step::Look => Seen::Record(self.record.clone(), self.version),
            Step::Head { process, slot } => {
                let slot = &self.slots[&(process, slot)];
                Seen::Head(slot.head, slot.version)
            }
            Step::Put { process, slot, head, over } => {
                let its = &mut self.actors[actor];
                its.reads = false;
                assert_eq!(process, its.process, "another's part");
                let slot = self.slots.get_mut(&(process, slot)).unwrap();
                let is_over = slot.version == over;
                if is_over {
                    *slot = Slot { head, version: over + 1, by: actor };
                }
                counted.conflicts += usize::from(!is_over);
                Seen::Put(is_over)
            }
            Step::Swap { record, over } => {
                let is_over = self.version == over;
                if is_over {
                    let old = std::mem::replace(&mut self.record, record);
                    self.version += 1;
                    assert!(self.record.era >= old.era && self.record.oldest >= old.oldest, "{old:?}");
                    if self.record.complete > old.complete {
                        assert_eq!((old.era, old.complete + 1), (self.record.era, self.record.complete));
                        let versions = self.parts(self.record.complete).map(|part| part.version).collect();
                        self.complete.insert(self.record.complete, versions);
                    }
                }
                counted.conflicts += usize::from(!is_over);
                Seen::Put(is_over)
            }
            Step::Done(_) => unreachable!("it is done"),
        }
    }

    fn parts(&self, number: u64) -> impl Iterator<Item = &Slot> {
        (0..self.record.processes()).map(move |process| &self.slots[&(process, self.record.slot(number))])
    }

    /// Each complete checkpoint that is there is of one run, and as it was when it became complete.
    fn check(&self) {
        for number in self.record.oldest..=self.record.complete {
            let wanted = self.record.head(number).unwrap();
            for (process, part) in (0..).zip(self.parts(number)) {
                assert_eq!(part.head, wanted, "process {process}, checkpoint {number}: {self:?}");
                assert_eq!(part.by, self.joined[&(process, wanted.era)], "{process} {number}: {self:?}");
            }
            assert!(self.parts(number).map(|part| &part.version).eq(&self.complete[&number]), "{number}: {self:?}");
        }
        for its in self.actors.iter().filter(|its| its.reads && its.era == self.record.era) {
            assert!(self.record.head(its.number).is_some(), "its part was taken away: {self:?}");
        }
    }

    fn all_have_saved_the_next(&self) -> bool {
        let next = Head { era: self.record.era, number: self.record.complete + 1 };
        self.parts(next.number).all(|part| part.head == next)
    }

    /// All have stopped for ever: an actor that looks finds what is complete, and one that begins again comes to its
    /// end.
    fn goes_on(&self) {
        let mut world = self.clone();
        let (was_complete, number) = (self.all_have_saved_the_next(), self.record.complete + 1);
        let mut looks = Complete::new(self.record.era, number);
        let mut step: Done<bool> = Step::Look;
        while !matches!(step, Step::Done(_)) {
            let seen = world.execute(0, step, &mut Counted::default());
            step = looks.next(seen);
            world.check();
        }
        assert_eq!(step, Step::Done(Ok(was_complete)), "{self:?}");
        let mut world = self.clone();
        // An actor that joins a second time begins an era, and those that had joined before it join that era.
        let processes = self.record.processes();
        for (nth, process) in (0..processes).chain(0..processes).enumerate() {
            if nth < processes as usize || !world.joined.contains_key(&(process, world.record.era)) {
                world.actors.push(Actor::of(process, &[Act::Join]));
                world.alone(world.actors.len() - 1);
            }
        }
        let number = world.record.complete + 1;
        assert_eq!(number, self.record.complete + 1 + u64::from(was_complete), "{self:?}");
        let era = world.record.era;
        for process in 0..processes {
            let actor = world.joined[&(process, era)];
            world.actors[actor].plan = VecDeque::from([Act::Save]);
            world.actors[actor].doing = None;
            world.alone(actor);
        }
        assert_eq!((world.record.era, world.record.complete), (era, number), "{self:?}");
    }
}

fn every_order(world: World) -> Counted {
    let mut counted = Counted::default();
    let (mut seen, mut stack) = (HashSet::new(), vec![world]);
    while let Some(world) = stack.pop() {
        let mut hasher = DefaultHasher::new();
        world.hash(&mut hasher);
        if !seen.insert(hasher.finish()) {
            continue;
        }
        counted.states += 1;
        world.goes_on();
        let acting: Vec<usize> = (0..world.actors.len()).filter(|actor| world.actors[*actor].can_act()).collect();
        if acting.is_empty() {
            counted.ends += 1;
            *counted.newest.entry(world.record.complete).or_default() += 1;
            *counted.eras.entry(world.record.era).or_default() += 1;
            // The last one that saves says it.
            assert!(!world.all_have_saved_the_next(), "nobody said that all have saved: {world:?}");
        }
        for actor in acting {
            let mut next = world.clone();
            next.step(actor, &mut counted);
            stack.push(next);
        }
    }
    println!("counted: {counted:?}");
    counted
}

/// A world in which all processes have joined the first era and saved `checkpoints` checkpoints.
fn saved(processes: u32, kept: u32, checkpoints: usize) -> World {
    let actors: Vec<Actor> = (0..processes).map(|process| Actor::of(process, &[Act::Join])).collect();
    let mut world = World::new(processes, kept, &actors);
    for actor in 0..actors.len() {
        world.alone(actor);
    }
    for _ in 0..checkpoints {
        for actor in 0..actors.len() {
            world.actors[actor].plan.push_back(Act::Save);
            world.alone(actor);
        }
    }
    assert_eq!(world.record.complete, checkpoints as u64);
    world
}

#[test]
fn two_begin_and_save_twice() {
    let plan = [Act::Join, Act::Save, Act::Save];
    let counted = every_order(World::new(2, 2, &[Actor::of(0, &plan), Actor::of(1, &plan)]));
    assert!(counted.states > 400 && counted.conflicts > 10, "{counted:?}");
    assert!(counted.newest.contains_key(&2) && counted.eras.keys().eq(&[1]), "{counted:?}");
}

#[test]
fn three_save_together() {
    let mut world = saved(3, 2, 1);
    world.actors.iter_mut().for_each(|actor| actor.plan.push_back(Act::Save));
    let counted = every_order(world);
    assert!(counted.states > 300 && counted.newest.keys().eq(&[2]) && counted.rolled_back == 0, "{counted:?}");
}

/// One that was believed dead saves beside its successor, while the other saves.
#[test]
fn one_has_a_successor() {
    let mut world = saved(2, 2, 1);
    world.actors[0].plan.extend([Act::Save, Act::Save]);
    world.actors[1].plan.extend([Act::Save, Act::Join, Act::Save]);
    world.actors.push(Actor::of(0, &[Act::Join, Act::Save]));
    let counted = every_order(world);
    assert!(counted.states > 4_000 && counted.conflicts > 1_000 && counted.rolled_back > 1_000, "{counted:?}");
    assert!([2, 3].iter().all(|newest| counted.newest.contains_key(newest)), "{counted:?}");
}

/// The same among three, of which two are believed dead.
#[test]
fn two_of_three_have_successors() {
    let mut world = saved(3, 2, 1);
    world.actors.iter_mut().for_each(|actor| actor.plan.push_back(Act::Save));
    world.actors.push(Actor::of(0, &[Act::Join, Act::Save]));
    world.actors.push(Actor::of(2, &[Act::Join, Act::Save]));
    let counted = every_order(world);
    assert!(counted.states > 10_000 && counted.conflicts > 1_000 && counted.rolled_back > 1_000, "{counted:?}");
}

/// All go back to an older one, and both have successors.
#[test]
fn all_go_back_while_they_save() {
    let mut world = saved(2, 3, 2);
    world.actors[0].plan.push_back(Act::Save);
    world.actors[1].plan.extend([Act::Save, Act::Join, Act::Save]);
    world.actors.push(Actor::of(0, &[Act::Back(1), Act::Join, Act::Save]));
    let counted = every_order(world);
    assert!(counted.states > 4_000 && counted.conflicts > 1_000 && counted.rolled_back > 1_000, "{counted:?}");
    assert!([1, 2, 4].iter().all(|newest| counted.newest.contains_key(newest)), "{counted:?}");
}
