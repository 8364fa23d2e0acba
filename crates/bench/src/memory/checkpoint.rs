//! `memory.checkpoint`: how long a process takes to save its part of a checkpoint, by how many save together.
//!
//! After Figure 6: processes of one application save at random intervals, and with a small probability one begins again instead, as if it had crashed; then all go back to
//! the newest complete checkpoint, which is what makes checkpoints worth having. Every part that is restored is looked at: it must be whole, and all parts of a checkpoint of one
//! era.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

use rand_core::Rng;
use rand_pcg::Pcg64;
use verbena_client::{CheckpointOptions, Error, Joined, Memory, Placement, Socket};
use verbena_fabric::Provider;
use verbena_ipc::Mode;
use verbena_terms::{BootClock, Clock, Time};

use super::ops::{OVER_BEST, failed};
use crate::error::BenchError;
use crate::helpers::Helpers;
use crate::report::{Axis, Claim, Findings, Line, Measurement, Panel, Ratio};
use crate::rounds::{Budget, interleave};
use crate::run::Plan;
use crate::scale::number;
use crate::stats::{RoundSummary, Spread};
use crate::traces::generator;

const PROCESSES: [usize; 4] = [1, 4, 16, 64];
/// The most that ask by rings alone where there is not as much time as this: looking again and again, more need seconds for one checkpoint on few cores.
const MOST_BY_RINGS: usize = 16;
const ENOUGH: Duration = Duration::from_secs(120);
/// All of them homes.
const NODES: usize = 4;
/// Of one process's part.
const PART_BYTES: u64 = 1 << 10;
/// Complete checkpoints that are there: one, beside the one that is being saved.
const KEPT: u32 = 2;
/// Between two checkpoints a process does something else for up to so long.
const LONGEST_INTERVAL: Duration = Duration::from_millis(1);
/// A process begins again instead of saving once in this many times: the paper's probability.
const RESTART_ONCE_IN: u64 = 1_000;
/// A stretch is at least so long.
const SHORTEST: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(30);

/// Where processes and their checkpoints are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Processes at one node, checkpoints in its memory.
    Within,
    /// Processes at all nodes but one, checkpoints in the memory of that.
    One,
    /// The same processes, checkpoints in the memory of all nodes.
    Distributed,
}

impl Way {
    const ALL: [Way; 3] = [Way::Within, Way::One, Way::Distributed];

    fn name(self) -> &'static str {
        match self {
            Way::Within => "one node and its memory",
            Way::One => "three nodes, memory of a fourth",
            Way::Distributed => "three nodes, memory of four",
        }
    }

    /// The nodes that processes are at.
    fn nodes(self) -> std::ops::Range<usize> {
        if self == Way::Within { 0..1 } else { 1..NODES }
    }

    fn placement(self) -> Placement {
        if self == Way::Distributed { Placement::Spread } else { Placement::Node("home-1".into()) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Turn {
    way: Way,
    mode: Mode,
    processes: usize,
}

struct Outcome {
    turn: Turn,
    rounds: Vec<Saved>,
}

/// What one round gave.
#[derive(Clone, Debug)]
struct Saved {
    /// Microseconds of a save.
    time: RoundSummary,
    /// All saves of all processes in a second.
    rate: f64,
    happened: Happened,
}

/// What happened to processes, summed.
#[derive(Clone, Debug, Default)]
struct Happened {
    /// Microseconds of each save.
    saves: Vec<f64>,
    /// How often one began again.
    restarts: u64,
    /// How often one went back because another began again.
    rolled_back: u64,
    /// Parts that were got back, and looked at.
    looked_at: u64,
}

/// For each checkpoint of which a process got a part back: the era in which it was saved.
type Eras = Mutex<BTreeMap<u64, u64>>;

struct Place {
    helpers: Helpers,
    sockets: Vec<Socket>,
    applications: Vec<(Way, usize, Eras)>,
}

/// Measures the row.
pub(crate) fn measure(plan: Plan) -> Result<Findings, BenchError> {
    let verbena = plan.verbena.ok_or(BenchError::NoProgram { name: plan.name })?;
    let mut place = Place::start(Helpers::start(verbena, Provider::Tcp, NODES, 0, None)?)?;
    let mut turns = turns(plan.measuring);
    let mut budget = Budget::new(plan.measuring, (plan.rounds + 1) * turns.len() as u32);
    let mut purpose = 0;
    let rounds = interleave(
        plan.rounds,
        &mut turns,
        |turn| format!("{}, {}, {} processes", turn.way.name(), turn.mode, turn.processes),
        |turn| {
            let (first, seed) = (purpose, plan.seed);
            purpose += turn.processes as u128;
            let random = (first..purpose).map(|process| generator(seed, process));
            place.save(*turn, budget.next().max(SHORTEST), random.collect())
        },
        plan.progress,
    )?;
    place.helpers.look()?;
    let outcomes: Vec<Outcome> = turns.into_iter().zip(rounds).map(|(turn, rounds)| Outcome { turn, rounds }).collect();
    Ok(Findings {
        measurements: outcomes.iter().flat_map(Outcome::measurements).flatten().collect(),
        ratios: ratios(&outcomes),
        panels: Way::ALL.map(|way| panel(&outcomes, way)).into(),
        notes: notes(&outcomes),
        ..Findings::default()
    })
}

fn turns(measuring: Duration) -> Vec<Turn> {
    let all = PROCESSES.into_iter().flat_map(|processes| {
        Way::ALL.into_iter().flat_map(move |way| Mode::ALL.map(|mode| Turn { way, mode, processes }))
    });
    all.filter(|turn| turn.mode != Mode::Rcq || turn.processes <= MOST_BY_RINGS || measuring >= ENOUGH).collect()
}

fn broken(reason: String) -> BenchError {
    BenchError::Target { doing: "save checkpoints".to_owned(), reason }
}

fn application(way: Way, processes: usize) -> String {
    format!("{way:?}/{processes}")
}

impl Place {
    fn start(mut helpers: Helpers) -> Result<Place, BenchError> {
        let sockets = (0..NODES).map(|at| helpers.socket(at)).collect::<Result<Vec<Socket>, _>>()?;
        let mut program =
            Memory::connect(&sockets[0], PATIENCE).map_err(|error| failed("connect to a helper", &error))?;
        let mut applications = vec![];
        for way in Way::ALL {
            for processes in PROCESSES {
                let (count, placement) = (processes as u32, way.placement());
                let options =
                    CheckpointOptions { processes: count, bytes: PART_BYTES, copies: 1, kept: KEPT, placement };
                let made = program.make_checkpoints(&application(way, processes), &options);
                made.map_err(|error| failed("make room for checkpoints", &error))?;
                applications.push((way, processes, Eras::default()));
            }
        }
        Ok(Place { helpers, sockets, applications })
    }

    /// Has the processes of `turn` save, each again when the last one is complete, and at least once.
    fn save(&self, turn: Turn, length: Duration, random: Vec<Pcg64>) -> Result<Saved, BenchError> {
        let Turn { way, mode, processes } = turn;
        let application_of = |(its, count, _): &&(Way, usize, Eras)| (*its, *count) == (way, processes);
        let (.., eras) = self.applications.iter().find(application_of).expect("invariant: each turn has one");
        let name = &application(way, processes);
        let nodes: Vec<usize> = way.nodes().collect();
        // One after the other, and by one thread: all at once they would mostly wait for each other.
        let join = |(number, random): (usize, Pcg64)| {
            let socket = self.sockets[nodes[number % nodes.len()]].clone().in_mode(mode);
            let memory = Memory::connect(&socket, PATIENCE).map_err(|error| failed("connect to a helper", &error))?;
            let joined = Joined { era: 0, number: 0 };
            let mut process =
                Process { memory, name, number: number as u32, random, eras, joined, happened: Happened::default() };
            process.join().map_err(broken)?;
            Ok(process)
        };
        let joined = random.into_iter().enumerate().map(join).collect::<Result<Vec<Process>, BenchError>>()?;
        let (begin, until) = (Barrier::new(processes + 1), AtomicU64::new(0));
        let began = BootClock.now();
        let happened: Result<Vec<Happened>, String> = std::thread::scope(|scope| {
            let (begin, until) = (&begin, &until);
            let each = joined.into_iter().map(|mut process| {
                scope.spawn(move || {
                    begin.wait();
                    process.save_until(Time::from_nanos(until.load(Ordering::Acquire)))?;
                    Ok(process.happened)
                })
            });
            let saving: Vec<_> = each.collect();
            until.store((BootClock.now() + length).nanos(), Ordering::Release);
            begin.wait();
            saving.into_iter().map(|thread| thread.join().expect("invariant: it does not panic")).collect()
        });
        let took = BootClock.now().since(began);
        let mut happened = happened.map_err(broken)?.into_iter().fold(Happened::default(), Happened::and);
        happened.looked_at += self.look_at_newest(name, processes, eras)?;
        let time = RoundSummary::of(&mut happened.saves).expect("invariant: each of them saved");
        Ok(Saved { time, rate: time.count as f64 / took.as_secs_f64(), happened })
    }

    /// Whether the newest complete checkpoint is whole and of one era. No process saves meanwhile.
    fn look_at_newest(&self, name: &str, processes: usize, eras: &Eras) -> Result<u64, BenchError> {
        let failed = |error: Error| failed("look at a checkpoint", &error);
        let mut program = Memory::connect(&self.sockets[0], PATIENCE).map_err(failed)?;
        let newest = program.checkpoints(name).map_err(failed)?.complete;
        for process in 0..processes as u32 {
            let part = program.checkpoint_part(name, process, newest).map_err(failed)?;
            look_at(&part, process, newest, eras).map_err(broken)?;
        }
        Ok(processes as u64)
    }
}

/// The part of a process in an era for a checkpoint: no two have the same.
fn part(process: u32, era: u64, number: u64) -> Vec<u8> {
    let words = [process.into(), era, number].into_iter();
    let sum = (u64::from(process) << 48) ^ (era << 24) ^ number;
    let rest = (1u64..).map(|nth| sum.wrapping_mul(2 * nth + 1));
    words.chain(rest).flat_map(u64::to_le_bytes).take(PART_BYTES as usize).collect()
}

/// Whether a restored part is what this process saved as its part of this checkpoint, in the same era as the others.
fn look_at(found: &[u8], process: u32, number: u64, eras: &Eras) -> Result<(), String> {
    let word = found.get(8..16).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes);
    let era = word.ok_or_else(|| format!("a part of {} bytes was restored", found.len()))?;
    if found != part(process, era, number) {
        return Err(format!("what process {process} got back is not what it saved as its part of checkpoint {number}"));
    }
    let of_others = *eras.lock().expect("invariant: nobody panics with it").entry(number).or_insert(era);
    if of_others == era {
        return Ok(());
    }
    Err(format!("checkpoint {number} has a part of era {of_others}, and that of process {process} is of era {era}"))
}

impl Happened {
    fn and(mut self, other: Happened) -> Happened {
        self.saves.extend(other.saves);
        self.restarts += other.restarts;
        self.rolled_back += other.rolled_back;
        self.looked_at += other.looked_at;
        self
    }
}

struct Process<'a> {
    memory: Memory,
    name: &'a str,
    number: u32,
    random: Pcg64,
    eras: &'a Eras,
    /// With the newest checkpoint of which it knows that it is complete.
    joined: Joined,
    happened: Happened,
}

impl Process<'_> {
    fn save_until(&mut self, until: Time) -> Result<(), String> {
        let first = self.joined.number;
        loop {
            let has_one = self.joined.number > first;
            let is_over = BootClock.now() >= until;
            // It may have one without a save that counts: it learned that a process began again, when its part was in
            // place already and was the last.
            if has_one && is_over && !self.happened.saves.is_empty() {
                return Ok(());
            }
            std::thread::sleep(LONGEST_INTERVAL.mul_f64((self.random.next_u32() as f64) / f64::from(u32::MAX)));
            if self.random.next_u64().is_multiple_of(RESTART_ONCE_IN) {
                self.happened.restarts += 1;
                self.join()?;
                continue;
            }
            // A process that has seen one complete may be the last that is there; until then all are there.
            let at_most = if has_one { until.since(BootClock.now()) } else { PATIENCE };
            match self.save(at_most) {
                Ok(true) => self.joined.number += 1,
                Ok(false) if has_one => return Ok(()),
                Ok(false) => return Err(format!("not all saved a checkpoint within {PATIENCE:?}")),
                Err(Error::RolledBack) => {
                    self.happened.rolled_back += 1;
                    self.join()?;
                }
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    /// Saves the next checkpoint and waits for the others: whether it is complete.
    fn save(&mut self, at_most: Duration) -> verbena_client::Result<bool> {
        let Joined { era, number } = self.joined;
        let part = part(self.number, era, number + 1);
        let asked = Instant::now();
        self.memory.save_checkpoint(self.name, self.number, era, number + 1, &part)?;
        self.happened.saves.push(asked.elapsed().as_secs_f64() * 1e6);
        self.memory.wait_for_checkpoint(self.name, era, number + 1, at_most)
    }

    fn join(&mut self) -> Result<(), String> {
        let (joined, found) =
            self.memory.join_checkpoints(self.name, self.number).map_err(|error| error.to_string())?;
        if joined.number < self.joined.number {
            return Err(format!("checkpoint {} was complete, and {} is the newest", self.joined.number, joined.number));
        }
        self.joined = joined;
        if let Some(found) = found {
            look_at(&found, self.number, joined.number, self.eras)?;
            self.happened.looked_at += 1;
        }
        Ok(())
    }
}

impl Outcome {
    fn times(&self) -> Option<Measurement> {
        self.measurement("time of a save", "us", |saved| saved.time)
    }

    fn measurements(&self) -> [Option<Measurement>; 2] {
        let rate = |saved: &Saved| RoundSummary::one(saved.rate, saved.time.count);
        [self.times(), self.measurement("saves", "1/s", rate)]
    }

    fn measurement(&self, quantity: &str, unit: &str, of: impl Fn(&Saved) -> RoundSummary) -> Option<Measurement> {
        let Turn { way, mode, processes } = self.turn;
        let labels = [("way", way.name()), ("mode", mode.name())];
        Measurement::new(&labels, processes as f64, quantity, unit, self.rounds.iter().map(of).collect())
    }

    fn medians(&self) -> Vec<f64> {
        self.rounds.iter().map(|round| round.time.median).collect()
    }

    fn median(&self) -> f64 {
        Spread::of(&self.medians()).map_or(f64::INFINITY, |spread| spread.median)
    }
}

fn find(outcomes: &[Outcome], turn: Turn) -> &Outcome {
    outcomes.iter().find(|one| one.turn == turn).expect("invariant: each of these has a turn")
}

fn ratios(outcomes: &[Outcome]) -> Vec<Ratio> {
    let mut ratios = vec![];
    let mut add = |what: &str, under: String, above: &Outcome, below: &Outcome, most: Option<f64>, text: &str| {
        let Some(spread) = Spread::ratio(&above.medians(), &below.medians()) else { return };
        let reason = format!("{} us against {} us", number(above.median()), number(below.median()));
        let claim = match most {
            Some(most) => Claim::at_most(most, text, &spread, reason),
            None => Claim::at_least(1.0, text, &spread, reason),
        };
        ratios.push(Ratio { what: what.to_owned(), under, claim: Some(claim), spread });
    };
    let (fewest, many) = (PROCESSES[0], MOST_BY_RINGS);
    for way in Way::ALL {
        let of = |mode, processes| find(outcomes, Turn { way, mode, processes });
        let under = |processes: usize| format!("{}, {processes} processes", way.name());
        let text = "at least 1: rcq up to the number of cores";
        add("save, rmq over rcq", under(fewest), of(Mode::Rmq, fewest), of(Mode::Rcq, fewest), None, text);
        let text = "at least 1: rmq beyond the number of cores";
        add("save, rcq over rmq", under(many), of(Mode::Rcq, many), of(Mode::Rmq, many), None, text);
        for processes in [fewest, many] {
            let papers = [Mode::Mq, Mode::Rmq, Mode::Rcq].map(|mode| of(mode, processes));
            let best = papers.into_iter().min_by(|one, other| one.median().total_cmp(&other.median()));
            let best = best.expect("invariant: there are three");
            let (adaptive, text) = (of(Mode::Adaptive, processes), format!("at most {OVER_BEST}"));
            let what = "save, adaptive over the best of mq, rmq and rcq";
            add(what, under(processes), adaptive, best, Some(OVER_BEST), &text);
        }
    }
    let processes = PROCESSES[PROCESSES.len() - 1];
    let [one, distributed] =
        [Way::One, Way::Distributed].map(|way| find(outcomes, Turn { way, mode: Mode::Adaptive, processes }));
    let (what, text) = ("save, memory of one node over that of all", "at least 1: distributed checkpoints scale");
    add(what, format!("adaptive, {processes} processes"), one, distributed, None, text);
    ratios
}

fn panel(outcomes: &[Outcome], way: Way) -> Panel {
    let axis = |label: &str| Axis { label: label.to_owned(), logarithmic: true, bytes: false };
    let line = |(style, mode): (usize, Mode)| {
        let its = outcomes.iter().filter(|one| (one.turn.way, one.turn.mode) == (way, mode));
        Line { name: mode.to_string(), style, points: its.filter_map(|one| Some(one.times()?.point())).collect() }
    };
    Panel {
        title: format!("Checkpoints: {}", way.name()),
        x: axis("processes that save together"),
        y: axis("median time of a save (microseconds)"),
        series: Mode::ALL.into_iter().enumerate().map(line).collect(),
    }
}

fn notes(outcomes: &[Outcome]) -> Vec<String> {
    let rounds = || outcomes.iter().flat_map(|one| &one.rounds);
    let sum = |of: fn(&Happened) -> u64| rounds().map(|round| of(&round.happened)).sum::<u64>();
    let saves: u64 = rounds().map(|round| round.time.count).sum();
    vec![
        format!(
            "{} parts were restored after {saves} saves, {} simulated restarts and {} roll-backs that these brought about for others: each was whole, and all parts of a \
             checkpoint of one era.",
            sum(|happened| happened.looked_at),
            sum(|happened| happened.restarts),
            sum(|happened| happened.rolled_back),
        ),
        "A save puts the process's part, and looks at those of others until one is missing: the last one says in a record that all of them share that the checkpoint is complete. It is \
         counted until that is done. Then the process waits until all have saved, and does something else \
         for up to a millisecond."
            .to_owned(),
        format!(
            "By rings alone (rcq) more than {MOST_BY_RINGS} processes are measured in long runs only: each looks again and again and keeps its core while it does, so that one checkpoint of them \
             takes seconds."
        ),
        "Nodes are processes of one machine, over tcp: an agent of the home reads and writes its memory. Processes are threads of this one, each with a connection of its own."
            .to_owned(),
    ]
}
