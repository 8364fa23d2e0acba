//! Programs: each finds a segment, or makes it, gets and puts, and now and then releases one.

use std::time::Duration;

use verbena_memory::service::{Look, Stepped};
use verbena_memory::{
    Answer, Coherence, Placement, Refusal, RequestId, Segment, SegmentId, SegmentName, Target, Wanted, Wish,
};
use verbena_terms::{Incarnation, Rank, Time, ViewNumber};
use verbena_testkit::keeper::LEASE;
use verbena_testkit::world::{Run, ms};

use crate::common::history::{Fate, GetOf, MODELS, Manner, PutOf, manner};
use crate::storm::cluster::{Cluster, Event};
use crate::storm::settings::NULL;

/// Words of a value: it does not fit into what a fabric does at once.
const WORDS: usize = 24;
/// Whose they all are.
const USER: u32 = 1000;

#[derive(Clone, Debug, Default)]
pub struct Client {
    /// Where it believes the segments to be, and the version that it saw last.
    known: [Option<(SegmentId, u64)>; MODELS.len()],
    pub doing: Option<(RequestId, Doing)>,
    /// What it reads in place.
    window: Option<Window>,
    /// Which of its turns comes next: it has one at a time.
    turn: u64,
}

#[derive(Clone, Copy, Debug)]
pub struct Doing {
    model: usize,
    what: What,
    begun: Time,
}

#[derive(Clone, Debug)]
struct Window {
    model: usize,
    segment: Segment,
    view: ViewNumber,
    forgets: u64,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Find,
    Allocate,
    Release,
    List,
    /// Words from this one on.
    Get(SegmentId, usize),
    Put(SegmentId, u64),
    /// QuestionId for when so much was forgotten.
    Window(u64),
}

fn words_of(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect()
}

pub fn name(model: usize) -> SegmentName {
    SegmentName::new(&format!("s{model}")).unwrap()
}

impl Cluster {
    /// It does what comes next.
    pub fn client(&mut self, at: usize, nth: usize, run: u64, turn: u64) {
        let is_of_run = self.world.nodes[at].run == run && self.world.nodes[at].service.is_some();
        if !is_of_run
            || self.world.nodes[at].clients[nth].turn != turn
            || self.world.nodes[at].clients[nth].doing.is_some()
        {
            return;
        }
        // It is not its node that is asked, nor stopped with it.
        self.look(at, nth);
        if self.world.fabric.is_paused(self.world.nodes[at].me) {
            return self.next_turn(at, nth, ms(5));
        }
        if self.world.is_calm {
            return;
        }
        let model = if self.world.dice.below(2) == 0 {
            self.settings.focus
        } else {
            self.world.dice.below(MODELS.len() as u64) as usize
        };
        let chance = self.world.dice.below(100);
        self.ask(at, nth, model, chance);
    }

    pub fn next_turn(&mut self, at: usize, nth: usize, pause: Duration) {
        let client = &mut self.world.nodes[at].clients[nth];
        client.turn += 1;
        let (turn, run) = (client.turn, self.world.nodes[at].run);
        self.world.later(pause, Event::Client { at, nth, run, turn });
    }

    /// What it sees in its window counts as got at this moment.
    fn look(&mut self, at: usize, nth: usize) {
        let (Some(service), Some(window)) = (&self.world.nodes[at].service, &self.world.nodes[at].clients[nth].window)
        else {
            return;
        };
        let Window { model, segment, view, forgets } = window;
        let (id, coherence, now) = (segment.id, MODELS[*model], self.world.fabric.now());
        match service.look(segment, *view, *forgets) {
            Look::Over => {
                self.seen.closed += 1;
                self.world.nodes[at].clients[nth].window = None;
            }
            Look::Elsewhere => self.broken.push(format!("node {at} shows {id} in memory of another view")),
            Look::Shown(value) => {
                self.seen.looks += 1;
                self.holders.still_there(id, now, coherence, &mut self.broken);
                let (words, stamp) = (words_of(&value.bytes), Some(value.stamp_ns));
                let get = GetOf { from: 0, words, version: value.version, stamp, begun: now, ended: now };
                self.histories.got(id, coherence, get);
            }
        }
    }

    /// Chance says what: under 2 a release, under 10 a window, under 53 a get, and otherwise a put.
    pub fn ask(&mut self, at: usize, nth: usize, model: usize, chance: u64) {
        let begun = self.world.fabric.now();
        let patience = self.world.dice.between(ms(2), 3 * LEASE);
        let (wish, what) = match self.world.nodes[at].clients[nth].known[model] {
            None => (Wish::Stat { target: Target::Name(name(model)) }, What::Find),
            Some((id, _)) if chance < 2 => {
                self.holders.may_be_released(id);
                (Wish::Release { target: Target::Id(id), user: USER }, What::Release)
            }
            Some((id, _)) if chance < 10 => {
                let forgets = self.world.nodes[at].service.as_ref().map_or(0, Stepped::forgets);
                (Wish::Window { target: Target::Id(id), user: USER }, What::Window(forgets))
            }
            Some((id, _)) if chance < 53 => {
                let from = if self.world.dice.below(3) == 0 { self.world.dice.below(WORDS as u64) } else { 0 };
                let some = 1 + self.world.dice.below(WORDS as u64 - from);
                let length = (self.world.dice.below(3) == 0).then_some(8 * some);
                let wish = Wish::Get { target: Target::Id(id), offset: 8 * from, length, user: USER };
                (wish, What::Get(id, from as usize))
            }
            Some((id, version)) => {
                self.numbered += 1;
                let number = self.numbered;
                let coherence = MODELS[model];
                let cell = match manner(model) {
                    Manner::Whole => None,
                    Manner::Owned => Some((at * 4 + nth) % WORDS),
                    Manner::Mixed => {
                        (self.world.dice.below(4) > 0).then(|| self.world.dice.below(WORDS as u64) as usize)
                    }
                };
                let named = (coherence == Coherence::Version).then_some(version);
                let bytes = number.to_le_bytes().repeat(if cell.is_some() { 1 } else { WORDS }).into();
                let put = PutOf { number, cell, named, begun, fate: Fate::Open };
                self.histories.put(id, coherence, put);
                let offset = cell.unwrap_or(0) as u64 * 8;
                let target = Target::Id(id);
                (Wish::Put { target, offset, bytes, named, stamp_ns: number, user: USER }, What::Put(id, number))
            }
        };
        self.begin(at, nth, Doing { model, what, begun }, wish, patience);
    }

    fn begin(&mut self, at: usize, nth: usize, doing: Doing, wish: Wish, patience: Duration) {
        let Some(service) = &mut self.world.nodes[at].service else { return };
        let id = service.request(wish, patience);
        self.world.nodes[at].clients[nth].doing = Some((id, doing));
        self.after(at);
    }

    fn allocate(&mut self, at: usize, nth: usize, model: usize) {
        let placement = match self.world.dice.below(4) {
            0 => Placement::Spread,
            1 => Placement::MostFree,
            2 => Placement::Local,
            _ => Placement::Node(Rank(1 + self.world.dice.below(self.world.nodes.len() as u64) as u32)),
        };
        let wanted = Wanted {
            writers: self.settings.writers,
            copies: if model == NULL { 1 } else { self.settings.copies },
            ..Wanted::new(Some(name(model)), WORDS as u64 * 8, MODELS[model], USER)
        };
        let doing = Doing { model, what: What::Allocate, begun: self.world.fabric.now() };
        self.begin(at, nth, doing, Wish::Allocate { wanted, placement }, 2 * LEASE);
    }

    /// It wants to know of all there are.
    pub fn list(&mut self, at: usize) {
        let doing = Doing { model: 0, what: What::List, begun: self.world.fabric.now() };
        self.begin(at, 0, doing, Wish::List { prefix: String::new() }, LEASE);
    }

    /// A node's clients hear what became of what they wanted.
    pub fn hears(&mut self, at: usize) {
        let answers = self.world.nodes[at].service.as_mut().map(|service| service.answers()).unwrap_or_default();
        for (id, answer) in answers {
            if self.offers[at].reclaim == Some(id) {
                let is_told = matches!(answer, Answer::Reclaims(_) | Answer::Refused(Refusal::NoHome { .. }));
                self.broken.extend((!is_told).then(|| format!("node {at} is answered {answer:?} to a reclaim")));
                continue;
            }
            let is_its = |client: &Client| client.doing.is_some_and(|(doing, _)| doing == id);
            let Some(nth) = self.world.nodes[at].clients.iter().position(is_its) else {
                self.broken.push(format!("node {at} answers {id:?} to nobody: {answer:?}"));
                continue;
            };
            let Some((_, doing)) = self.world.nodes[at].clients[nth].doing.take() else { continue };
            self.answered(at, nth, doing, answer);
            let pause = self.world.dice.between(Duration::ZERO, ms(8));
            self.next_turn(at, nth, pause);
        }
    }

    fn answered(&mut self, at: usize, nth: usize, doing: Doing, answer: Answer) {
        let now = self.world.fabric.now();
        let Doing { model, what, begun } = doing;
        self.world.fabric.note(format_args!("node {at} client {nth}: {what:?} since {begun}: {answer:?}"));
        let coherence = MODELS[model];
        let known = &mut self.world.nodes[at].clients[nth].known[model];
        match (what, answer) {
            (What::Find, Answer::Stat { segment, version, .. }) => {
                *known = Some((segment.id, version));
                let (has_moved, maker) = (segment.home != segment.id.home, segment.id.home);
                self.seen.moved += u64::from(has_moved);
                let is_there = self.world.keeper.view.as_ref().is_some_and(|view| view.member(maker).is_some());
                self.seen.relocated += u64::from(has_moved && is_there);
                self.holders.held(&segment);
            }
            (What::Allocate, Answer::Allocated(segment)) => {
                self.seen.allocated += 1;
                *known = Some((segment.id, 1));
                self.seen.copies += segment.backups.len() as u64;
                self.holders.allocated(&segment);
            }
            (What::Find, Answer::Refused(Refusal::NotFound { .. })) => self.allocate(at, nth, model),
            (What::Find, Answer::Refused(Refusal::Reclaimed { id, home })) => {
                self.was_reclaimed(id, home);
                self.allocate(at, nth, model);
            }
            (What::Find, Answer::Refused(Refusal::Lost { id })) => {
                self.seen.lost += 1;
                self.is_lost(id);
                self.holders.name_may_be_released(name(model));
                let wish = Wish::Release { target: Target::Name(name(model)), user: USER };
                self.begin(at, nth, Doing { model, what: What::Release, begun }, wish, 2 * LEASE);
            }
            (What::Release, Answer::Released) => {
                self.seen.released += 1;
                match known.take() {
                    Some((id, _)) => self.holders.was_released(id, now),
                    None => self.holders.name_was_released(&name(model)),
                }
            }
            (What::List, Answer::Listed { segments, silent, .. }) => {
                assert!(silent.is_empty(), "{silent:?}");
                self.listed = segments;
            }
            (What::Get(id, from), Answer::Value(value)) => {
                self.seen.gets += 1;
                *known = Some((id, value.version));
                let words = words_of(&value.bytes);
                self.seen.parts += u64::from(words.len() < WORDS);
                self.holders.still_there(id, begun, coherence, &mut self.broken);
                // A put's time stamp is its number.
                let stamp = Some(value.stamp_ns);
                let get = GetOf { from, words, version: value.version, stamp, begun, ended: now };
                self.histories.got(id, coherence, get);
            }
            (What::Window(forgets), Answer::Window(segment, view)) => {
                self.seen.windows += 1;
                self.world.nodes[at].clients[nth].window = Some(Window { model, segment, view, forgets });
                self.look(at, nth);
            }
            (What::Put(id, number), Answer::Put(version)) => {
                self.seen.puts += 1;
                *known = Some((id, version));
                self.holders.still_there(id, begun, coherence, &mut self.broken);
                self.histories.fate(id, number, Fate::Done(version, now));
            }
            (what, Answer::Refused(refusal)) => {
                if let Refusal::Released { id } = &refusal {
                    self.holders.said_to_be_released(*id, &mut self.broken);
                }
                self.world.fabric.note(format_args!("node {at} client {nth}: {what:?} refused: {refusal}"));
                match &refusal {
                    Refusal::Conflict { current, .. } => {
                        self.seen.conflicts += 1;
                        *known = known.map(|(id, _)| (id, *current));
                    }
                    Refusal::Lost { id } => {
                        self.seen.gone += 1;
                        *known = None;
                        self.is_lost(*id);
                    }
                    // Whoever hears it: from then on nobody reads it.
                    Refusal::Released { id } => {
                        self.seen.gone += 1;
                        *known = None;
                        self.holders.was_released(*id, now);
                    }
                    Refusal::Reclaimed { id, home } => {
                        *known = None;
                        self.was_reclaimed(*id, *home);
                    }
                    Refusal::Unknown => self.seen.unknown += 1,
                    Refusal::TimedOut { .. } => self.seen.late += 1,
                    Refusal::NoRoom { .. }
                    | Refusal::NoWords { .. }
                    | Refusal::NoHome { .. }
                    | Refusal::FewHomes { .. }
                    | Refusal::Exists { .. }
                    | Refusal::Elsewhere { .. }
                    | Refusal::NotFound { .. } => {}
                    refusal => self.broken.push(format!("node {at} is refused {what:?}: {refusal}")),
                }
                if let What::Put(id, number) = what
                    && refusal != Refusal::Unknown
                {
                    self.histories.fate(id, number, Fate::Not);
                }
            }
            (what, answer) => self.broken.push(format!("node {at} is answered {answer:?} to {what:?}")),
        }
    }

    /// A client hears that a home took a segment's memory back: its notice is over.
    fn was_reclaimed(&mut self, id: SegmentId, home: Incarnation) {
        let now = self.world.fabric.now();
        self.seen.reclaimed += 1;
        self.holders.was_released(id, now);
        let over = |(asked, notice): &(Time, Duration)| *asked + notice.mul_f64(0.99) <= now;
        if !self.taken_back.get(&home).is_some_and(|all| all.iter().any(over)) {
            self.broken.push(format!("{id} was reclaimed by {home} before its time"));
        }
    }

    /// A client hears that a segment is lost.
    fn is_lost(&mut self, id: SegmentId) {
        self.holders.is_lost(id, self.world.fabric.now());
        let Some(view) = &self.world.keeper.view else { return };
        if let Some(who) = self.holders.left(id).find(|home| view.member(*home).is_some()) {
            self.broken.push(format!("{id} is said to be lost, and {who} holds it"));
        }
    }
}
