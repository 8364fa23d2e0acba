//! `memory.scale`: how many programs the memory of other nodes serves.
//!
//! After Figure 4: programs get 64 bytes, each from a segment of its own, again and again. All at one node, in each mode of asking; and at two nodes, with the
//! segments at one home and at three. The same where each home is behind a narrow link of its own, so that the links decide and not the cores that all share.

use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use verbena_client::{Memory, NewSegment, Placement, Socket};
use verbena_fabric::Provider;
use verbena_ipc::Mode;
use verbena_namespaces::Error as NetworkError;
use verbena_terms::{BootClock, Clock, SegmentId, Time};
use verbena_wan::router::{DataPath, Mode as RouterMode};
use verbena_wan::{Backend, Error as WanError, Link, Plan as WanPlan, Rate, Site, Wan, Way as Direction};

use super::ipc::raise_open_files;
use super::ops::failed;
use crate::error::BenchError;
use crate::helpers::{Helpers, Seat};
use crate::report::{Axis, Claim, FabricFound, Findings, Line, Measurement, Panel, Ratio};
use crate::rounds::{Budget, interleave};
use crate::run::Plan;
use crate::scale::number;
use crate::stats::{RoundSummary, Spread};

/// The range of the paper's figure: to connect them takes longer than to measure.
const THREADS: [usize; 5] = [1, 4, 16, 64, MOST];
const MOST: usize = 512;
const HOMES: usize = 3;
/// Nodes that programs are at.
const NODES: usize = 2;
const BYTES: u64 = 64;
/// A stretch is at least so long.
const SHORTEST: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(30);
/// The number of threads at which data at one home and at several are compared: many times the cores.
const MANY: usize = 64;
/// Bits a second, each way, of the link that a home is behind, where links are narrow: a fraction of what the cores of a small machine do for one home.
const NARROW: u64 = 2_000_000;
/// With more threads than this, waiting for narrow links takes longer than anything else.
const MOST_BEHIND_LINKS: usize = MANY;

/// The nodes that ask, and the homes of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Programs at one node, in this mode; data at one home.
    Within(Mode),
    /// Programs at all nodes; data at one home.
    One,
    /// The same; data at all homes.
    Distributed,
    /// As [`Way::One`], the home behind a narrow link.
    NarrowOne,
    /// As [`Way::Distributed`], each home behind one.
    NarrowDistributed,
}

impl Way {
    fn all() -> impl Iterator<Item = Way> {
        let others = [Way::One, Way::Distributed, Way::NarrowOne, Way::NarrowDistributed];
        Mode::ALL.into_iter().map(Way::Within).chain(others)
    }

    fn is_narrow(self) -> bool {
        matches!(self, Way::NarrowOne | Way::NarrowDistributed)
    }

    fn name(self) -> String {
        match self {
            Way::Within(mode) => format!("{mode}, one node, one home"),
            Way::One => format!("adaptive, {NODES} nodes, one home"),
            Way::Distributed => format!("adaptive, {NODES} nodes, {HOMES} homes"),
            Way::NarrowOne => format!("adaptive, {NODES} nodes, one home behind a narrow link"),
            Way::NarrowDistributed => format!("adaptive, {NODES} nodes, {HOMES} homes behind narrow links"),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Turn {
    way: Way,
    threads: usize,
}

struct Outcome {
    turn: Turn,
    rounds: Vec<Got>,
}

/// What one round gave.
#[derive(Clone, Copy, Debug)]
struct Got {
    /// All gets of all threads in a second.
    rate: f64,
    count: u64,
}

struct Place {
    helpers: Helpers,
    sockets: Vec<Socket>,
    /// By thread: at the first home, and at one after the other.
    at_one: Vec<SegmentId>,
    distributed: Vec<SegmentId>,
    /// Last: its networks are there until the nodes have ended.
    _wan: Option<Wan>,
}

/// Measures the row.
pub(crate) fn measure(plan: Plan) -> Result<Findings, BenchError> {
    let verbena = plan.verbena.ok_or(BenchError::NoProgram { name: plan.name })?;
    raise_open_files()
        .map_err(|reason| BenchError::Target { doing: "open files for 512 clients".to_owned(), reason })?;
    let mut place = Place::start(None, Helpers::start(verbena, Provider::Tcp, HOMES, NODES, None)?, MOST)?;
    let (mut narrow, found) = behind_links(verbena, plan.seed)?;
    let mut turns: Vec<Turn> =
        THREADS.into_iter().flat_map(|threads| Way::all().map(move |way| Turn { way, threads })).collect();
    turns.retain(|turn| !turn.way.is_narrow() || narrow.is_some() && turn.threads <= MOST_BEHIND_LINKS);
    let mut budget = Budget::new(plan.measuring, (plan.rounds + 1) * turns.len() as u32);
    let rounds = interleave(
        plan.rounds,
        &mut turns,
        |turn| format!("{}, {} threads", turn.way.name(), turn.threads),
        |turn| {
            let place = if turn.way.is_narrow() { narrow.as_ref() } else { Some(&place) };
            place.expect("invariant: only what is there has turns").get(*turn, budget.next().max(SHORTEST))
        },
        plan.progress,
    )?;
    place.helpers.look()?;
    narrow.as_mut().map_or(Ok(()), |narrow| narrow.helpers.look())?;
    let outcomes: Vec<Outcome> = turns.into_iter().zip(rounds).map(|(turn, rounds)| Outcome { turn, rounds }).collect();
    Ok(Findings {
        measurements: outcomes.iter().filter_map(Outcome::rate).collect(),
        fabrics: vec![found],
        ratios: ratios(&outcomes),
        panels: vec![panel(&outcomes)],
        notes: notes(),
    })
}

/// Both nodes in one network, and each home in one of its own, behind a link of the emulator. And what to say of it where that cannot be.
fn behind_links(verbena: &Path, seed: u64) -> Result<(Option<Place>, FabricFound), BenchError> {
    let found = |measured, because| {
        let name = "tcp behind narrow links".to_owned();
        FabricFound { name, measured, because, capabilities: None }
    };
    let rate = Rate::bits_per_s(NARROW);
    let narrow = || Direction { rate, ..Direction::default() };
    let home = |nth: usize| format!("home-{}", nth + 1);
    let link = |nth: usize| Link { name: home(nth), between: [0, nth + 1], mtu: 1500, ways: [narrow(), narrow()] };
    let sites = std::iter::once("nodes".to_owned()).chain((0..HOMES).map(home)).zip(0..);
    let wan = Wan::up(WanPlan {
        sites: sites.map(|(name, number)| Site::numbered(name, number)).collect(),
        links: (0..HOMES).map(link).collect(),
        backend: Backend::Router { mode: RouterMode::Sleep, path: DataPath::Packet, seed, core: None },
    });
    let wan = match wan {
        Ok(wan) => wan,
        // The user may make no networks.
        Err(WanError::Network(why @ NetworkError::Make(_))) => return Ok((None, found(false, why.to_string()))),
        Err(why) => return Err(why.into()),
    };
    let seat = |site: usize| {
        let Site { name, addresses } = &wan.plan().sites[site];
        Ok(Seat { network: wan.site(name)?, address: addresses[0] })
    };
    let seats = (1..=HOMES).chain([0; NODES]).map(seat).collect::<Result<Vec<_>, BenchError>>()?;
    let helpers = Helpers::start_at(verbena, Provider::Tcp, HOMES, NODES, None, &seats)?;
    let because =
        format!("each home behind a link of {} Mbit/s each way (verbena wan, mode sleep)", NARROW / 1_000_000);
    Ok((Some(Place::start(Some(wan), helpers, MOST_BEHIND_LINKS)?), found(true, because)))
}

impl Place {
    /// With segments for `threads` threads. The networks are before the nodes: what comes first is dropped last.
    fn start(wan: Option<Wan>, mut helpers: Helpers, threads: usize) -> Result<Place, BenchError> {
        let sockets = (HOMES..HOMES + NODES).map(|at| helpers.socket(at)).collect::<Result<Vec<Socket>, _>>()?;
        let mut program =
            Memory::connect(&sockets[0], PATIENCE).map_err(|error| failed("connect to a helper", &error))?;
        let mut allocate = |thread: usize, homes: usize| {
            let home = Placement::Node(format!("home-{}", thread % homes + 1));
            let wanted = NewSegment { writers: 1, ..NewSegment::of(BYTES).placed(home) };
            program.allocate(wanted).map(|made| made.id).map_err(|error| failed("allocate a segment", &error))
        };
        let mut all =
            |homes| (0..threads).map(|thread| allocate(thread, homes)).collect::<Result<Vec<SegmentId>, BenchError>>();
        let (at_one, distributed) = (all(1)?, all(HOMES)?);
        Ok(Place { helpers, sockets, at_one, distributed, _wan: wan })
    }

    /// Has the threads get their values, each again when it has it.
    fn get(&self, Turn { way, threads }: Turn, length: Duration) -> Result<Got, BenchError> {
        let (nodes, segments, mode) = match way {
            Way::Within(mode) => (1, &self.at_one, mode),
            Way::One | Way::NarrowOne => (NODES, &self.at_one, Mode::default()),
            Way::Distributed | Way::NarrowDistributed => (NODES, &self.distributed, Mode::default()),
        };
        // One after the other, and by one thread: all at once they would mostly wait for each other.
        let connect = |thread: usize| {
            let socket = self.sockets[thread % nodes].clone().in_mode(mode);
            let mut program = Memory::connect(&socket, PATIENCE)?;
            // Its node has found the segment by then.
            program.get(segments[thread])?;
            Ok(program)
        };
        let programs = (0..threads).map(connect).collect::<verbena_client::Result<Vec<Memory>>>();
        let programs = programs.map_err(|error| failed("connect to a helper", &error))?;
        let (begin, until) = (Barrier::new(threads + 1), AtomicU64::new(0));
        let mut took = Duration::ZERO;
        let counted: verbena_client::Result<Vec<u64>> = std::thread::scope(|scope| {
            let (begin, until) = (&begin, &until);
            let get = |(mut program, id): (Memory, SegmentId)| {
                scope.spawn(move || {
                    begin.wait();
                    let until = Time::from_nanos(until.load(Ordering::Acquire));
                    let mut count = 0u64;
                    while count == 0 || BootClock.now() < until {
                        program.get(id)?;
                        count += 1;
                    }
                    Ok(count)
                })
            };
            let getting: Vec<_> = programs.into_iter().zip(segments.iter().copied()).map(get).collect();
            let began = BootClock.now();
            until.store((began + length).nanos(), Ordering::Release);
            begin.wait();
            let joined = getting.into_iter().map(|thread| thread.join().expect("invariant: it does not panic"));
            let counted = joined.collect();
            took = BootClock.now().since(began);
            counted
        });
        let count: u64 = counted.map_err(|error| failed("get a value", &error))?.iter().sum();
        Ok(Got { rate: count as f64 / took.as_secs_f64(), count })
    }
}

impl Outcome {
    fn rate(&self) -> Option<Measurement> {
        let rounds = self.rounds.iter().map(|round| RoundSummary::one(round.rate, round.count)).collect();
        Measurement::new(&[("way", &self.turn.way.name())], self.turn.threads as f64, "gets", "1/s", rounds)
    }

    fn rates(&self) -> Vec<f64> {
        self.rounds.iter().map(|round| round.rate).collect()
    }

    fn median(&self) -> f64 {
        Spread::of(&self.rates()).map_or(0.0, |spread| spread.median)
    }
}

fn find(outcomes: &[Outcome], way: Way, threads: usize) -> Option<&Outcome> {
    outcomes.iter().find(|one| one.turn.way == way && one.turn.threads == threads)
}

fn ratios(outcomes: &[Outcome]) -> Vec<Ratio> {
    let mut ratios = vec![];
    let mut add = |what: &str, threads: usize, [above, below]: [Way; 2], least: f64, text: &str| {
        let [above, below] = [above, below].map(|way| find(outcomes, way, threads));
        let (Some(above), Some(below)) = (above, below) else { return };
        if let Some(spread) = Spread::ratio(&above.rates(), &below.rates()) {
            let reason = format!("{} a second against {}", number(above.median()), number(below.median()));
            let claim = Some(Claim::at_least(least, text, &spread, reason));
            ratios.push(Ratio { what: what.to_owned(), under: format!("{threads} threads"), claim, spread });
        }
    };
    let one_and_three = "gets, data at three homes over one";
    add(one_and_three, MANY, [Way::Distributed, Way::One], 1.0, "at least 1: distributed data scale");
    let behind = format!("{one_and_three}, each behind a narrow link");
    add(&behind, MANY, [Way::NarrowDistributed, Way::NarrowOne], 2.0, "at least 2: three homes have three links");
    let [rmq, rcq, mq] = [Mode::Rmq, Mode::Rcq, Mode::Mq].map(Way::Within);
    add("gets, rmq over rcq", MOST, [rmq, rcq], 1.0, "at least 1: rcq does not scale past the cores");
    add("gets, rmq over mq", MOST, [rmq, mq], 1.0, "at least 1: mq makes twice the kernel's events");
    ratios
}

fn panel(outcomes: &[Outcome]) -> Panel {
    let axis = |label: &str| Axis { label: label.to_owned(), logarithmic: true, bytes: false };
    let line = |(style, way): (usize, Way)| {
        let its = outcomes.iter().filter(|one| one.turn.way == way);
        Line { name: way.name(), style, points: its.filter_map(|one| Some(one.rate()?.point())).collect() }
    };
    Panel {
        title: format!("Gets of {BYTES} bytes of other nodes' memory"),
        x: axis("threads that get"),
        y: axis("gets of all of them (1/s)"),
        series: Way::all().enumerate().map(line).filter(|line| !line.points.is_empty()).collect(),
    }
}

fn notes() -> Vec<String> {
    [
        "Nodes are processes of one machine, over tcp: an agent of the home reads its memory. Homes, helpers and programs share the machine's cores; where these are few, \
         more homes are more that want them.",
        "Behind narrow links both nodes are in one network, and each home is in one of its own: what its link takes is what one home gives.",
        "Threads are in this process; each has a connection and a segment of its own, and gets at least one value: a turn ends when the last of them has ended.",
    ]
    .map(str::to_owned)
    .to_vec()
}
