//! `memory.ops`: getting and putting values that are in another node's memory.
//!
//! After Figure 3(b, c): a program asks the helper of its node, which reads and writes the home's memory, by the value's size, in each mode of asking and over each
//! fabric. Beside it what each coherence costs, and what a program at the home itself has of a window, which no paper has.

use std::path::Path;
use std::time::{Duration, Instant};

use verbena_client::{Memory, NewSegment, Placement, Window};
use verbena_fabric::Provider;
use verbena_ipc::Mode;
use verbena_terms::{Coherence, SegmentId};

use crate::error::BenchError;
use crate::helpers::{Helpers, Seat};
use crate::primitives::fabrics::Place as Between;
use crate::primitives::{self, network};
use crate::report::{Axis, Claim, FabricFound, Findings, Line, Measurement, Panel, Ratio};
use crate::rounds::{Budget, interleave};
use crate::run::Plan;
use crate::scale::number;
use crate::stats::{RoundSummary, Spread};

const SIZES: [u64; 6] = [1, 64, 1 << 10, 16 << 10, 128 << 10, 1 << 20];
/// At which the modes are compared: the message is one cache line and little more.
const SMALL: u64 = 64;
/// As the paper has them, and copies that are at most that old.
const COHERENCES: [Coherence; 7] = [
    Coherence::Null,
    Coherence::Read,
    Coherence::Write,
    Coherence::Strict,
    Coherence::Version,
    Coherence::Delta(8),
    Coherence::Temporal(20_000),
];
/// The least length of a stretch, and its least number of operations.
const SHORTEST: Duration = Duration::from_millis(5);
const FEWEST: usize = 5;
const PATIENCE: Duration = Duration::from_secs(30);
/// What is wanted of `adaptive` over the best of the papers' modes, as of asking alone.
pub(super) const OVER_BEST: f64 = 1.3;

/// The providers whose memory programs of the home may see.
const WITH_WINDOWS: [Provider; 3] = [Provider::Shm, Provider::Tcp, Provider::Verbs];
/// For one sample, values are read through a window until they have this many bytes together: less takes little more
/// than a look at the clock.
const BYTES_OF_A_SAMPLE: u64 = 8 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Get,
    Put,
    GetAtHome,
    /// Finds the newest value, reads all of it and looks whether that counts.
    Window,
}

impl What {
    /// Of another node's memory.
    const BOTH: [What; 2] = [What::Get, What::Put];
    const AT_HOME: [What; 2] = [What::GetAtHome, What::Window];

    fn name(self) -> &'static str {
        match self {
            What::Get => "get",
            What::Put => "put",
            What::GetAtHome => "get at the home",
            What::Window => "window at the home",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Turn {
    provider: Provider,
    mode: Mode,
    what: What,
    coherence: Coherence,
    bytes: u64,
}

/// A program at a node, and segments at another.
struct Place {
    provider: Provider,
    helpers: Helpers,
    /// In the order of [`Mode::ALL`].
    programs: Vec<Memory>,
    /// In the mode that is used where none is named.
    at_home: Memory,
    segments: Vec<(Coherence, u64, SegmentId)>,
}

struct Outcome {
    turn: Turn,
    rounds: Vec<RoundSummary>,
}

/// Measures the row.
pub(crate) fn measure(plan: Plan) -> Result<Findings, BenchError> {
    let verbena = plan.verbena.ok_or(BenchError::NoProgram { name: plan.name })?;
    let (mut places, mut fabrics) = (vec![], vec![]);
    for provider in Provider::ALL {
        let found = match primitives::capabilities(provider) {
            Err(why) => FabricFound::missing(provider, why),
            Ok(capabilities) => {
                let is_linked = Between::of(provider).is_linked;
                let between = if is_linked { ", between two networks with a virtual link" } else { "" };
                match helpers(verbena, provider, is_linked).and_then(|helpers| Place::start(provider, helpers)) {
                    Ok(place) => {
                        places.push(place);
                        FabricFound::measured(&capabilities, format!("it works on this machine{between}"))
                    }
                    // What this program can use, nodes may be unable to: `verbena` is another one.
                    Err(why) if matches!(provider, Provider::Verbs | Provider::Xdp) => {
                        FabricFound::missing(provider, format!("nodes could not use it: {why}"))
                    }
                    Err(why) => return Err(why),
                }
            }
        };
        fabrics.push(found);
    }
    let providers: Vec<Provider> = places.iter().map(|place| place.provider).collect();
    let mut turns = turns(&providers);
    let mut budget = Budget::new(plan.measuring, (plan.rounds + 1) * turns.len() as u32);
    let rounds = interleave(
        plan.rounds,
        &mut turns,
        |turn| {
            let Turn { provider, mode, what, coherence, bytes } = *turn;
            format!("{} of {bytes} bytes, {coherence}, {mode}, {}", what.name(), provider.name())
        },
        |turn| {
            let its = places.iter_mut().find(|place| place.provider == turn.provider);
            its.expect("invariant: each turn has a place").time(*turn, budget.next().max(SHORTEST))
        },
        plan.progress,
    )?;
    places.iter_mut().try_for_each(|place| place.helpers.look())?;
    let outcomes: Vec<Outcome> = turns.into_iter().zip(rounds).map(|(turn, rounds)| Outcome { turn, rounds }).collect();
    Ok(Findings {
        measurements: outcomes.iter().filter_map(Outcome::measurement).collect(),
        fabrics,
        ratios: ratios(&providers, &outcomes),
        panels: panels(&providers, &outcomes),
        notes: notes(),
    })
}

/// A home, and a node that programs are at.
fn helpers(verbena: &Path, provider: Provider, is_linked: bool) -> Result<Helpers, BenchError> {
    if !is_linked {
        return Helpers::start(verbena, provider, 1, 1, None);
    }
    // Both networks are there for as long as a process is in them.
    let network = network::Network::new()?;
    let seats = [(&network.target, network::TARGET_AT), (&network.caller, network::CALLER_AT)];
    let seats = seats.map(|(network, address)| Seat { network, address: address.into() });
    Helpers::start_at(verbena, provider, 1, 1, None, &seats)
}

fn turns(providers: &[Provider]) -> Vec<Turn> {
    let mut turns = vec![];
    for provider in providers.iter().copied() {
        for what in What::BOTH {
            let by_size = Mode::ALL
                .into_iter()
                .flat_map(|mode| SIZES.map(|bytes| Turn { provider, mode, what, coherence: Coherence::Strict, bytes }));
            let others = COHERENCES.into_iter().filter(|coherence| *coherence != Coherence::Strict);
            let mode = Mode::default();
            let by_coherence = others.map(|coherence| Turn { provider, mode, what, coherence, bytes: SMALL });
            turns.extend(by_size.chain(by_coherence));
        }
        if WITH_WINDOWS.contains(&provider) {
            let (mode, coherence) = (Mode::default(), Coherence::Strict);
            let at_home = |what| SIZES.map(|bytes| Turn { provider, mode, what, coherence, bytes });
            turns.extend(What::AT_HOME.into_iter().flat_map(at_home));
        }
    }
    turns
}

pub(super) fn failed(doing: &str, error: &verbena_client::Error) -> BenchError {
    BenchError::Target { doing: doing.to_owned(), reason: error.to_string() }
}

impl Place {
    fn start(provider: Provider, mut helpers: Helpers) -> Result<Place, BenchError> {
        let failed_to_connect = |error| failed("connect to a helper", &error);
        let at_home = Memory::connect(&helpers.socket(0)?, PATIENCE).map_err(failed_to_connect)?;
        let socket = helpers.socket(1)?;
        let connect = |mode| Memory::connect(&socket.clone().in_mode(mode), PATIENCE);
        let programs = Mode::ALL.into_iter().map(connect).collect::<Result<Vec<_>, _>>();
        let mut programs = programs.map_err(failed_to_connect)?;
        let kinds = SIZES.map(|bytes| (Coherence::Strict, bytes)).into_iter();
        let kinds = kinds.chain(COHERENCES.map(|coherence| (coherence, SMALL)));
        let mut segments: Vec<(Coherence, u64, SegmentId)> = vec![];
        for (coherence, bytes) in kinds {
            if segments.iter().any(|(its, size, _)| (*its, *size) == (coherence, bytes)) {
                continue;
            }
            let wanted = NewSegment::of(bytes).coherent(coherence).placed(Placement::Node("home-1".into()));
            let made = programs[0].allocate(wanted).map_err(|error| failed("allocate a segment", &error))?;
            segments.push((coherence, bytes, made.id));
        }
        Ok(Place { provider, helpers, programs, at_home, segments })
    }

    fn time(&mut self, turn: Turn, length: Duration) -> Result<RoundSummary, BenchError> {
        let mode = Mode::ALL.into_iter().position(|mode| mode == turn.mode).unwrap_or_default();
        let program = if What::AT_HOME.contains(&turn.what) { &mut self.at_home } else { &mut self.programs[mode] };
        let is_its =
            |(coherence, bytes, _): &&(Coherence, u64, SegmentId)| (*coherence, *bytes) == (turn.coherence, turn.bytes);
        let (_, _, id) = self.segments.iter().find(is_its).expect("invariant: each turn has a segment");
        let mut value = vec![7; turn.bytes as usize];
        let mut version = program.stat(*id).map_err(|error| failed("look at a segment", &error))?.version;
        let mut samples = vec![];
        let mut window = None;
        let began = Instant::now();
        while began.elapsed() < length || samples.len() < FEWEST {
            let asked = Instant::now();
            match turn.what {
                What::Get | What::GetAtHome => {
                    let got = program.get(*id).map_err(|error| failed("get a value", &error))?;
                    samples.push(asked.elapsed().as_secs_f64() * 1e6);
                    if got.bytes.len() as u64 != turn.bytes {
                        let reason = format!("{} bytes of {}", got.bytes.len(), turn.bytes);
                        return Err(BenchError::Target { doing: "get a value".to_owned(), reason });
                    }
                }
                What::Put => {
                    let options = verbena_client::PutOptions { offset: 0, over: Some(version) };
                    version = program.put_with(*id, &value, options).map_err(|error| failed("put a value", &error))?;
                    samples.push(asked.elapsed().as_secs_f64() * 1e6);
                }
                What::Window => {
                    let window = match &mut window {
                        Some(window) => window,
                        none => none.insert(program.window(*id).map_err(|error| failed("get a window", &error))?),
                    };
                    let times = (BYTES_OF_A_SAMPLE / turn.bytes).max(1);
                    let asked = Instant::now();
                    for _ in 0..times {
                        read_window(window, version, &mut value)?;
                    }
                    samples.push(asked.elapsed().as_secs_f64() * 1e6 / times as f64);
                }
            }
        }
        Ok(RoundSummary::of(&mut samples).expect("invariant: there is at least one sample"))
    }
}

/// Reads the newest value, which no put replaces meanwhile.
fn read_window(window: &mut Window, version: u64, into: &mut [u8]) -> Result<(), BenchError> {
    let failed = |reason: &str| BenchError::Target { doing: "read a window".to_owned(), reason: reason.to_owned() };
    *window = window.newest().ok_or_else(|| failed("it has ended"))?;
    if window.version() != version || !window.read(0, into) {
        return Err(failed("another value is there"));
    }
    std::hint::black_box(into);
    Ok(())
}

impl Outcome {
    fn measurement(&self) -> Option<Measurement> {
        let Turn { mode, what, coherence, bytes, .. } = self.turn;
        let labels = [
            ("fabric", self.turn.provider.name()),
            ("mode", mode.name()),
            ("operation", what.name()),
            ("coherence", &coherence.to_string()),
        ];
        Measurement::new(&labels, bytes as f64, "latency", "us", self.rounds.clone())
    }

    fn medians(&self) -> Vec<f64> {
        self.rounds.iter().map(|round| round.median).collect()
    }

    fn median(&self) -> f64 {
        Spread::of(&self.medians()).map_or(f64::INFINITY, |spread| spread.median)
    }
}

fn find(outcomes: &[Outcome], turn: Turn) -> &Outcome {
    outcomes.iter().find(|one| one.turn == turn).expect("invariant: each of these has a turn")
}

fn ratios(providers: &[Provider], outcomes: &[Outcome]) -> Vec<Ratio> {
    let mut ratios = vec![];
    for provider in providers.iter().copied() {
        if WITH_WINDOWS.contains(&provider) {
            ratios.extend(over_window(provider, outcomes));
        }
        for what in What::BOTH {
            let of = |mode| find(outcomes, Turn { provider, mode, what, coherence: Coherence::Strict, bytes: SMALL });
            let under = format!("{} of {SMALL} bytes over {}", what.name(), provider.name());
            let mut add = |what: String, above: &Outcome, below: &Outcome, claim: &dyn Fn(&Spread) -> Claim| {
                if let Some(spread) = Spread::ratio(&above.medians(), &below.medians()) {
                    ratios.push(Ratio { what, under: under.clone(), claim: Some(claim(&spread)), spread });
                }
            };
            let said = |above: &Outcome, below: &Outcome| {
                format!("{} us against {} us", number(above.median()), number(below.median()))
            };
            let rcq = of(Mode::Rcq);
            for (mode, found) in [(Mode::Mq, "2.8"), (Mode::Rmq, "1.4")] {
                let queue = of(mode);
                let text = format!("at least 1: the paper has {found}");
                add(format!("latency, {mode} over rcq"), queue, rcq, &|spread| {
                    Claim::at_least(1.0, &text, spread, said(queue, rcq))
                });
            }
            let papers = [Mode::Mq, Mode::Rmq, Mode::Rcq].map(of);
            let best = papers.into_iter().min_by(|one, other| one.median().total_cmp(&other.median()));
            let (best, adaptive) = (best.expect("invariant: there are three"), of(Mode::Adaptive));
            add("latency, adaptive over the best of mq, rmq and rcq".to_owned(), adaptive, best, &|spread| {
                Claim::at_most(OVER_BEST, &format!("at most {OVER_BEST}"), spread, said(adaptive, best))
            });
        }
    }
    ratios
}

/// What a get at the home takes of what reading through a window does, of a small value and the largest.
fn over_window(provider: Provider, outcomes: &[Outcome]) -> Vec<Ratio> {
    let of = |what, bytes| {
        let (mode, coherence) = (Mode::default(), Coherence::Strict);
        find(outcomes, Turn { provider, mode, what, coherence, bytes })
    };
    let ratio = |bytes| {
        let [get, window] = What::AT_HOME.map(|what| of(what, bytes));
        let spread = Spread::ratio(&get.medians(), &window.medians())?;
        let said = format!("{} us against {} us", number(get.median()), number(window.median()));
        let claim = Claim::at_least(1.0, "at least 1: nobody is asked", &spread, said);
        let under = format!("{bytes} bytes over {}", provider.name());
        Some(Ratio { what: "latency at the home, get over window".to_owned(), under, claim: Some(claim), spread })
    };
    [SMALL, SIZES[SIZES.len() - 1]].into_iter().filter_map(ratio).collect()
}

fn panels(providers: &[Provider], outcomes: &[Outcome]) -> Vec<Panel> {
    let x = || Axis { label: "bytes of the value".to_owned(), logarithmic: true, bytes: true };
    let y = || Axis { label: "median latency (microseconds)".to_owned(), logarithmic: true, bytes: false };
    let panel = |(provider, what): (Provider, What)| {
        let line = |(style, mode): (usize, Mode)| {
            let its = outcomes.iter().filter(|one| {
                let turn = one.turn;
                (turn.provider, turn.what, turn.mode, turn.coherence) == (provider, what, mode, Coherence::Strict)
            });
            Line {
                name: mode.to_string(),
                style,
                points: its.filter_map(|one| Some(one.measurement()?.point())).collect(),
            }
        };
        let title = format!("A {} of another node's memory over {}", what.name(), provider.name());
        Panel { title, x: x(), y: y(), series: Mode::ALL.into_iter().enumerate().map(line).collect() }
    };
    let all = providers.iter().flat_map(|provider| What::BOTH.map(|what| (*provider, what)));
    all.map(panel).collect()
}

fn notes() -> Vec<String> {
    [
        "A program asks the helper of its node, a process; the segment is in the memory of another node's process. A value that is longer than 15 KiB goes between program \
         and helper in parts of that size, three under way at a time.",
        "Puts name the version that they replace. The node has claimed a slot, as one has that puts again within 50 ms.",
        "The figure is of strict segments. What each coherence costs is measured at 64 bytes, asked in adaptive mode: copies of delta(8) and temporal(20ms) are served where \
         they may be.",
        "At the home a program gets in adaptive mode, or reads through a window: it finds the newest value, copies it out and looks whether that counts. Small values are read so many times for one \
         sample that it has 8 KiB.",
    ]
    .map(str::to_owned)
    .to_vec()
}
