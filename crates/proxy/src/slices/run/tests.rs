//! Every order of one answer of three slices, a fill of another request, an origin that publishes the page anew, and a purge.

use std::collections::{HashMap, VecDeque};

use super::{Follows, Run};

const SLICES: usize = 3;

/// A word of the page: its generation, and whether an update is open.
type Word = (u8, bool);

/// What is held of one slice: which state of the page it is of, and the word that it is stored under.
type Copy = (u8, Word);

/// What can be left out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Off {
    Nothing,
    /// Tags are not compared.
    Tags,
    /// Stamps are not.
    Stamps,
    /// The words are not read once more, when a slice is in hand that is not registered.
    InForce,
}

/// Whether a page that is published anew has another tag, or the same one and is purged.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Anew {
    OtherTag,
    SameTag,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Fill {
    slice: usize,
    read: Word,
    /// The tag without which the origin sends the whole page (`If-Range`).
    tag: Option<u8>,
    /// What the origin has answered, if it has.
    came: Option<u8>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum Reader {
    Waits,
    /// Has the slices before this one.
    Looks(usize),
    Fetches(Fill),
    /// A slice is in hand: its state, and the words that it is registered under or was asked for under.
    Judges {
        slice: usize,
        state: u8,
        registered: Option<Word>,
        read: Option<Word>,
    },
    Cut,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct World {
    /// The state of the page at the origin: 0, then 1.
    state: u8,
    word: Word,
    is_purged: bool,
    kept: [Option<Copy>; SLICES],
    other: Option<Fill>,
    reader: Reader,
    run: Option<Run<Word, u8>>,
    got: Vec<u8>,
    /// The purge was acknowledged before the request came.
    must_be_new: bool,
}

/// Takes what comes next, as a change of the world.
type Step<'a> = dyn FnMut(&dyn Fn(&mut World)) + 'a;

struct Model {
    anew: Anew,
    off: Off,
}

impl Model {
    fn tag(&self, state: u8) -> u8 {
        if self.anew == Anew::OtherTag { state } else { 0 }
    }

    /// What the origin answers. `None`: no slice of this tag.
    fn answers(&self, world: &World, fill: &Fill) -> Option<u8> {
        fill.tag.is_none_or(|tag| tag == self.tag(world.state)).then_some(world.state)
    }

    /// The home accepts what it is asked to (rule P2).
    fn registers(world: &mut World, fill: &Fill, state: u8) -> Option<Word> {
        let accepts = !world.word.1 && world.word == fill.read;
        if accepts {
            world.kept[fill.slice] = Some((state, world.word));
        }
        accepts.then_some(world.word)
    }

    fn next(&self, world: &World) -> Vec<World> {
        let mut all = Vec::new();
        let mut step = |change: &dyn Fn(&mut World)| {
            let mut next = world.clone();
            change(&mut next);
            all.push(next);
        };
        // Under its old tag a page is published between begin and end of its purge. Before, nothing tells the one from the other: an answer that is whole when the
        // purge begins may be of both.
        if world.state == 0 && (self.anew == Anew::OtherTag || world.word.1) {
            step(&|next| next.state = 1);
        }
        if self.anew == Anew::SameTag && !world.is_purged {
            match world.word.1 {
                false => step(&|next| next.word = (world.word.0 + 1, true)),
                true if world.state == 1 => step(&|next| (next.word.1, next.is_purged) = (false, true)),
                true => {}
            }
        }
        for slice in 0..SLICES {
            if world.kept[slice].is_some() {
                step(&|next| next.kept[slice] = None);
            }
            if world.other.is_none() && world.kept[slice].is_none_or(|(_, word)| word != world.word) && !world.word.1 {
                step(&|next| next.other = Some(Fill { slice, read: world.word, tag: None, came: None }));
            }
        }
        match world.other {
            Some(fill @ Fill { came: None, .. }) => {
                step(&|next| next.other = Some(Fill { came: Some(world.state), ..fill }));
            }
            Some(fill @ Fill { came: Some(state), .. }) => {
                step(&|next| {
                    Self::registers(next, &fill, state);
                    next.other = None;
                });
            }
            None => {}
        }
        self.read_on(world, &mut step);
        all
    }

    fn read_on(&self, world: &World, step: &mut Step<'_>) {
        match world.reader.clone() {
            Reader::Waits => step(&|next| {
                next.reader = Reader::Looks(0);
                next.must_be_new = world.is_purged;
            }),
            Reader::Looks(SLICES) | Reader::Cut => {}
            Reader::Looks(slice) => step(&|next| {
                next.reader = match world.kept[slice] {
                    Some((state, word)) if word == world.word && !word.1 => {
                        Reader::Judges { slice, state, registered: Some(word), read: None }
                    }
                    _ => {
                        let tag = world.run.as_ref().map(|run| *run.tag());
                        Reader::Fetches(Fill { slice, read: world.word, tag, came: None })
                    }
                };
            }),
            Reader::Fetches(fill @ Fill { came: None, .. }) => step(&|next| {
                next.reader = match self.answers(world, &fill) {
                    Some(state) => Reader::Fetches(Fill { came: Some(state), ..fill }),
                    None => Reader::Cut,
                };
            }),
            Reader::Fetches(fill @ Fill { came: Some(state), .. }) => {
                let Fill { slice, read, .. } = fill;
                let read = Some(read).filter(|(_, is_busy)| !is_busy);
                // The home is asked, or it does not answer, or the fill is none of the store's.
                step(&|next| {
                    let registered = Self::registers(next, &fill, state);
                    next.reader = Reader::Judges { slice, state, registered, read };
                });
                step(&|next| next.reader = Reader::Judges { slice, state, registered: None, read });
            }
            Reader::Judges { slice, state, registered, read } => step(&|next| {
                let follows = match &world.run {
                    None => {
                        next.run = Some(Run::new(self.tag(state), registered, read));
                        Follows::Yes
                    }
                    Some(run) => {
                        let is_in_force = |word: &Word| *word == world.word || self.off == Off::InForce;
                        match run.follows(Some(&self.tag(state)), registered.as_ref(), read.as_ref(), is_in_force) {
                            Follows::OtherTag if self.off == Off::Tags => Follows::Yes,
                            Follows::Changed if self.off == Off::Stamps => Follows::Yes,
                            follows => follows,
                        }
                    }
                };
                next.reader = match follows {
                    Follows::Yes => Reader::Looks(slice + 1),
                    _ => Reader::Cut,
                };
                if follows == Follows::Yes {
                    next.got.push(state);
                }
            }),
        }
    }

    /// Looks at every order. How many states there are, answers that came whole among them, and the first that is wrong, with the steps to it.
    fn explore(&self) -> (usize, usize, Option<usize>) {
        let first = World {
            state: 0,
            word: (1, false),
            is_purged: false,
            kept: [None; SLICES],
            other: None,
            reader: Reader::Waits,
            run: None,
            got: Vec::new(),
            must_be_new: false,
        };
        let (mut steps, mut queue, mut whole) = (HashMap::from([(first.clone(), 0)]), VecDeque::from([first]), 0);
        while let Some(world) = queue.pop_front() {
            let taken = steps[&world];
            if world.got.len() == SLICES {
                whole += 1;
                let is_mixed = world.got.iter().any(|state| *state != world.got[0]);
                if is_mixed || (world.must_be_new && world.got[0] == 0) {
                    return (steps.len(), whole, Some(taken));
                }
            }
            for next in self.next(&world) {
                if !steps.contains_key(&next) {
                    steps.insert(next.clone(), taken + 1);
                    queue.push_back(next);
                }
            }
        }
        (steps.len(), whole, None)
    }
}

#[test]
fn an_answer_is_of_one_state_of_its_page_in_every_order() {
    for anew in [Anew::OtherTag, Anew::SameTag] {
        let (states, whole, wrong) = Model { anew, off: Off::Nothing }.explore();
        println!("{states} states, {whole} with a whole answer");
        assert_eq!(wrong, None, "steps to a mixed answer");
        assert!(states > 1000 && whole > 100, "{states} states, {whole} whole");
    }
}

#[test]
fn each_thing_that_is_compared_is_needed() {
    for (anew, off) in [(Anew::OtherTag, Off::Tags), (Anew::SameTag, Off::Stamps), (Anew::SameTag, Off::InForce)] {
        let (states, _, wrong) = Model { anew, off }.explore();
        assert!(wrong.is_some(), "nothing wrong in {states} states");
        println!("{} steps to a mixed answer", wrong.unwrap());
    }
}

#[test]
fn nothing_follows_what_was_in_force_under_nothing_known() {
    let run = Run::new("tag", None, None);
    assert_eq!(run.follows(Some(&"tag"), Some(&1), Some(&1), |_| true), Follows::Changed);
    let run = Run::new("tag", None, Some(1));
    assert_eq!(run.follows(Some(&"tag"), None, Some(&1), |_| true), Follows::Yes);
    assert_eq!(run.follows(Some(&"tag"), None, Some(&1), |_| false), Follows::Changed);
    assert_eq!(run.follows(None, Some(&1), None, |_| true), Follows::OtherTag);
}
