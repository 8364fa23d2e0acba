//! `fabric.primitives`: what each primitive of a fabric costs, here and at the target.
//!
//! After Table 4.1 and Figures 5.5, 6.4 and 8.11 of the dissertation: send/receive, compare-and-swap, fetch-and-add, read
//! and write, by message size, completed by polling and by notification, on every fabric of this machine. The target is a process of
//! its own, so its processor time is its own too. Where a fabric needs a network between the two, each is in one of its own. A
//! message is timed there and back and counts half, as in the papers;
//! a one-sided operation is there and back by its nature and counts whole.

mod caller;
mod calls;
pub(crate) mod fabrics;
mod load;
pub(crate) mod network;
mod responder;
pub(crate) mod samples;
mod steering;
mod target;

use std::time::Duration;

use verbena_fabric::{Capabilities, Class, Executor, Provider};

use caller::Caller;
use fabrics::Place;
use responder::Asker;
use samples::Stretch;

use crate::child::{Answer, ON_CORE, hear, say};
use crate::error::BenchError;
use crate::report::{Axis, Claim, FabricFound, Findings, Line, Measurement, Panel, Ratio};
use crate::rounds::{Budget, interleave};
use crate::run::Plan;
use crate::stats::{RoundSummary, Spread};

pub(crate) use calls::{ROLE as CALLS, serve as call};
pub(crate) use load::measure as load;
pub(crate) use responder::{ROLE as RESPONDER, serve as respond};

/// What the target of this row is asked for by.
pub(crate) const ROLE: &str = "primitives";

/// What a process that times a read is asked for by.
pub(crate) const READS: &str = "reads";

const NAME: &str = "fabric.primitives";

/// What is on vertical axes.
const LATENCY: &str = "latency (microseconds)";
const CPU: &str = "CPU seconds per million operations";

/// Sizes in bytes, as far as a fabric takes them.
const SIZES: [usize; 7] = [8, 64, 512, 4 << 10, 32 << 10, 256 << 10, 1 << 20];

/// One sample spans at least this: reading the clock must not count.
const SHORTEST_SAMPLE: Duration = Duration::from_micros(4);

/// Larger operations travel with the bulk, as they would in any service.
const LARGEST_CONTROL: usize = 4 << 10;

/// Why no process of the row can be what it was started as.
const NO_SUCH_PLACE: &str = "no fabric of this name is in this build";

/// Plays the target at the place of this name.
pub(crate) fn serve(place: &str) -> Result<(), String> {
    target::serve(place)
}

/// Times reads of a word on the fabric of `provider`, of a target on core `core`. Orders are lengths; answers are microseconds.
pub(crate) fn read(provider: &str, core: &str) -> Result<(), String> {
    let place = Place::named(provider).ok_or(NO_SUCH_PLACE)?;
    let text = |error: BenchError| error.to_string();
    let mut caller = Caller::start(place, &[ON_CORE, core]).map_err(text)?;
    let word = caller.sleeping(Kind::Read, 8);
    while let Some(length) = hear::<Duration>()? {
        say(&match caller.stretch(&word, length, SHORTEST_SAMPLE) {
            Ok(stretch) => Answer::Done(stretch.latency_us),
            Err(error) => Answer::Failed(error.to_string()),
        })?;
    }
    Ok(())
}

/// What the fabric of `provider` can do on this machine; why not, if it does not work here.
pub(crate) fn capabilities(provider: Provider) -> Result<Capabilities, String> {
    let caller = Caller::start(Place::of(provider), &[]).map_err(|error| error.to_string())?;
    Ok(caller.capabilities().clone())
}

/// Measures the row.
pub(crate) fn measure(plan: Plan) -> Result<Findings, BenchError> {
    let mut findings = Findings::default();
    let mut callers = Vec::new();
    for place in Place::ALL {
        let (caller, found) = open(place);
        findings.fabrics.push(found);
        callers.extend(caller);
    }
    let (mut responder, found) = open_responder();
    findings.fabrics.push(found);
    let mut variants = variants(&callers);
    // Behind the fabrics, and with nothing but a word.
    let (fabric, completion) = (callers.len(), Completion::Notification);
    variants.extend(responder.iter().map(|_| Variant { fabric, kind: Kind::Read, completion, bytes: 8 }));
    if variants.is_empty() {
        let reasons: Vec<String> =
            findings.fabrics.iter().map(|fabric| format!("{}: {}", fabric.name, fabric.because)).collect();
        return Err(BenchError::NothingToMeasure { name: NAME, reason: reasons.join("; ") });
    }

    let stretches = (plan.rounds + 1) * variants.len() as u32;
    let mut budget = Budget::new(plan.measuring, stretches);
    let names: Vec<&'static str> =
        callers.iter().map(Caller::name).chain(responder.iter().map(|_| responder::NAME)).collect();
    let measured = interleave(
        plan.rounds,
        &mut variants,
        |variant| format!("{} over {}", variant.describe(), names[variant.fabric]),
        |variant| match (callers.get_mut(variant.fabric), &mut responder) {
            (None, Some(asker)) => asker.stretch(budget.next(), SHORTEST_SAMPLE),
            (caller, _) => {
                let caller = caller.expect("invariant: what is behind the fabrics is the responder");
                caller.stretch(variant, budget.next(), SHORTEST_SAMPLE)
            }
        },
        plan.progress,
    )?;

    let results: Vec<Outcome> =
        variants.into_iter().zip(measured).map(|(variant, rounds)| Outcome::new(variant, &names, rounds)).collect();
    for (fabric, caller) in callers.iter().enumerate() {
        let here: Vec<&Outcome> = results.iter().filter(|outcome| outcome.variant.fabric == fabric).collect();
        findings.ratios.extend(ratios(names[fabric], caller.capabilities().executor, &here));
        findings.panels.extend(panels(names[fabric], &here));
    }
    findings.ratios.extend(by_adapter_over_sockets(&names, &results));
    findings.panels.extend(beside_each_other(&names, &results));
    findings.measurements =
        results.into_iter().flat_map(|outcome| [outcome.latency, outcome.peer_cpu, outcome.own_cpu]).collect();
    findings.notes = notes(plan.measuring / stretches);
    Ok(findings)
}

/// What is measured at one point.
#[derive(Clone, Debug)]
struct Variant {
    fabric: usize,
    kind: Kind,
    completion: Completion,
    bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    SendReceive,
    Read,
    Write,
    CompareSwap,
    FetchAdd,
}

impl Kind {
    const ALL: [Kind; 5] = [Kind::SendReceive, Kind::Read, Kind::Write, Kind::CompareSwap, Kind::FetchAdd];

    fn name(self) -> &'static str {
        match self {
            Kind::SendReceive => "send/recv",
            Kind::Read => "read",
            Kind::Write => "write",
            Kind::CompareSwap => "CAS",
            Kind::FetchAdd => "FAA",
        }
    }

    fn is_atomic(self) -> bool {
        matches!(self, Kind::CompareSwap | Kind::FetchAdd)
    }
}

/// How the caller learns that an operation is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Completion {
    /// The operation is complete when the call returns.
    Immediate,
    /// By looking again and again.
    Polling,
    /// By being woken.
    Notification,
}

impl Completion {
    fn name(self) -> &'static str {
        match self {
            Completion::Immediate => "immediate",
            Completion::Polling => "polling",
            Completion::Notification => "notification",
        }
    }
}

impl Variant {
    fn describe(&self) -> String {
        format!("{} of {} bytes, {}", self.kind.name(), self.bytes, self.completion.name())
    }

    fn class(&self) -> Class {
        if self.bytes <= LARGEST_CONTROL { Class::Control } else { Class::Bulk }
    }
}

/// One variant, over all rounds.
struct Outcome {
    variant: Variant,
    latency: Measurement,
    peer_cpu: Measurement,
    own_cpu: Measurement,
}

impl Outcome {
    fn new(variant: Variant, names: &[&str], rounds: Vec<Stretch>) -> Self {
        let labels = [
            ("fabric", names[variant.fabric]),
            ("operation", variant.kind.name()),
            ("completion", variant.completion.name()),
        ];
        let of = |quantity: &str, unit: &str, rounds: Vec<RoundSummary>| {
            Measurement::new(&labels, variant.bytes as f64, quantity, unit, rounds)
                .expect("invariant: there are at least FEWEST_ROUNDS rounds")
        };
        let cpu = |quantity: &str, seconds: fn(&Stretch) -> f64| {
            let rounds = rounds.iter().map(|round| RoundSummary::one(seconds(round), 1));
            of(quantity, "s for a million operations", rounds.collect())
        };
        let peer_cpu = cpu("processor time of the target", |round| round.peer_cpu_s);
        let own_cpu = cpu("processor time of the caller", |round| round.own_cpu_s);
        let latency = of("latency", "us", rounds.iter().map(|round| round.latency_us).collect());
        Outcome { variant, latency, peer_cpu, own_cpu }
    }
}

fn open(place: Place) -> (Option<Caller>, FabricFound) {
    let name = place.name().to_owned();
    match Caller::start(place, &[]) {
        Err(error) => (None, FabricFound { name, ..FabricFound::missing(place.provider, error.to_string()) }),
        Ok(caller) => {
            let between = if place.is_linked { ", between two networks with a virtual link" } else { "" };
            let works = format!("it works on this machine{between}");
            let found = FabricFound { name, ..FabricFound::measured(caller.capabilities(), works) };
            (Some(caller), found)
        }
    }
}

/// What stands beside the fabrics, to compare them with.
fn open_responder() -> (Option<Asker>, FabricFound) {
    let found =
        |measured, because| FabricFound { name: responder::NAME.to_owned(), measured, because, capabilities: None };
    match Asker::start(&[]) {
        Err(error) => (None, found(false, error.to_string())),
        Ok(asker) => (Some(asker), found(true, responder::IS.to_owned())),
    }
}

fn variants(callers: &[Caller]) -> Vec<Variant> {
    let mut variants = Vec::new();
    for (fabric, caller) in callers.iter().enumerate() {
        for &kind in caller.kinds() {
            let completions: &[Completion] = if caller.capabilities().synchronous && kind != Kind::SendReceive {
                &[Completion::Immediate]
            } else {
                &[Completion::Polling, Completion::Notification]
            };
            let largest = caller.largest(kind);
            let sizes = SIZES.into_iter().filter(|bytes| *bytes <= largest && (*bytes == 8 || !kind.is_atomic()));
            // Sizes outside, completions inside: what is compared stands next to each other in time.
            for bytes in sizes {
                variants.extend(completions.iter().map(|&completion| Variant { fabric, kind, completion, bytes }));
            }
        }
    }
    variants
}

/// One-sided operations against messages, by how they complete.
fn ratios(fabric: &str, executor: Executor, here: &[&Outcome]) -> Vec<Ratio> {
    const BYTES: usize = 8;
    let find = |kind, completion: Completion| {
        here.iter().find(|outcome| {
            let variant = &outcome.variant;
            variant.kind == kind
                && variant.bytes == BYTES
                && (variant.completion == completion || variant.completion == Completion::Immediate)
        })
    };
    let mut ratios = Vec::new();
    for completion in [Completion::Polling, Completion::Notification] {
        let Some(message) = find(Kind::SendReceive, completion) else { continue };
        for kind in [Kind::Read, Kind::Write, Kind::CompareSwap, Kind::FetchAdd] {
            let Some(one_sided) = find(kind, completion) else { continue };
            let under = format!("{fabric}, {BYTES} bytes, {}", completion.name());
            let costs = format!(
                "{} executes it, and the target spent {} processor seconds on a million of them, against {} on a million \
                 messages",
                executor_name(executor),
                crate::scale::number(one_sided.peer_cpu.spread.median),
                crate::scale::number(message.peer_cpu.spread.median),
            );
            let judged =
                |what: String, over: &Measurement, below: &Measurement, most: f64, text: &str, reason: String| {
                    let spread = Spread::ratio(&over.medians(), &below.medians())?;
                    // The papers claim nothing of writes.
                    let claim = (kind != Kind::Write).then(|| Claim::at_most(most, text, &spread, reason));
                    Some(Ratio { what, under: under.clone(), spread, claim })
                };
            let latency = judged(
                format!("latency of {} over send/recv", kind.name()),
                &one_sided.latency,
                &message.latency,
                1.5,
                "at most 1.5",
                format!("{costs}; a message counts one way, this there and back"),
            );
            let cpu = judged(
                format!("target's processor time, {} over send/recv", kind.name()),
                &one_sided.peer_cpu,
                &message.peer_cpu,
                0.05,
                "close to 0 (0.05)",
                costs.clone(),
            );
            ratios.extend(latency);
            ratios.extend(cpu);
        }
    }
    ratios
}

/// Messages that adapters carry over those that sockets do, where the same adapters are measured with both: of all sizes that fit a receive queue's buffers.
fn by_adapter_over_sockets(names: &[&str], results: &[Outcome]) -> Vec<Ratio> {
    let [by_adapter, by_sockets] = [Place::of(Provider::Verbs), Place::BY_SOCKETS].map(Place::name);
    let of = |name: &'static str| {
        results
            .iter()
            .filter(move |outcome| names[outcome.variant.fabric] == name && outcome.variant.kind == Kind::SendReceive)
    };
    let mut ratios = Vec::new();
    for sent in of(by_adapter).filter(|outcome| outcome.variant.bytes < LARGEST_CONTROL) {
        let alike = |other: &&Outcome| {
            (other.variant.bytes, other.variant.completion) == (sent.variant.bytes, sent.variant.completion)
        };
        let Some(other) = of(by_sockets).find(alike) else { continue };
        let under = format!("verbs, {} bytes, {}", sent.variant.bytes, sent.variant.completion.name());
        let ratio = |what: &str, sent: &Measurement, other: &Measurement| {
            let spread = Spread::ratio(&sent.medians(), &other.medians())?;
            let what = format!("{what} of send/recv by the adapter over by tcp");
            Some(Ratio { what, under: under.clone(), spread, claim: None })
        };
        ratios.extend(ratio("latency", &sent.latency, &other.latency));
        ratios.extend(ratio("target's processor time", &sent.peer_cpu, &other.peer_cpu));
    }
    ratios
}

pub(crate) fn executor_name(executor: Executor) -> &'static str {
    match executor {
        Executor::Memory => "the caller",
        Executor::Kernel => "the target's kernel",
        Executor::Hardware => "the target's adapter",
        Executor::Agent => "a thread of the target",
        Executor::Simulator => "the simulator",
    }
}

/// Three panels for each fabric: latency polled, latency notified, and the target's processor time.
fn panels(fabric: &str, here: &[&Outcome]) -> Vec<Panel> {
    let lines = |completion: Completion, of: fn(&Outcome) -> &Measurement| -> Vec<Line> {
        let line = |(style, kind): (usize, Kind)| {
            let points = here.iter().filter(|outcome| {
                let variant = &outcome.variant;
                variant.kind == kind
                    && (variant.completion == completion || variant.completion == Completion::Immediate)
            });
            let points: Vec<_> = points.map(|outcome| of(outcome).point()).collect();
            (!points.is_empty()).then(|| Line { name: kind.name().to_owned(), style, points })
        };
        Kind::ALL.into_iter().enumerate().filter_map(line).collect()
    };
    let latency = |title: &str, completion| Panel {
        title: format!("{fabric}: latency, {title}"),
        x: size(),
        y: Axis { label: LATENCY.to_owned(), logarithmic: true, bytes: false },
        series: lines(completion, |outcome| &outcome.latency),
    };
    vec![
        latency("polling", Completion::Polling),
        latency("notification", Completion::Notification),
        Panel {
            title: format!("{fabric}: processor time of the target, notification"),
            x: size(),
            y: Axis { label: CPU.to_owned(), logarithmic: false, bytes: false },
            series: lines(Completion::Notification, |outcome| &outcome.peer_cpu),
        },
    ]
}

/// Three panels in which fabrics stand beside each other, for a read that is notified.
fn beside_each_other(names: &[&str], results: &[Outcome]) -> Vec<Panel> {
    let panel = |title: &str, label: &str, of: fn(&Outcome) -> &Measurement| {
        let line = |(fabric, name): (usize, &&str)| {
            let points = results.iter().filter(|outcome| {
                let Variant { fabric: its, kind, completion, .. } = outcome.variant;
                its == fabric && kind == Kind::Read && completion != Completion::Polling
            });
            Line {
                name: (*name).to_owned(),
                style: fabric,
                points: points.map(|outcome| of(outcome).point()).collect(),
            }
        };
        Panel {
            title: format!("read, notification: {title}"),
            x: size(),
            y: Axis { label: label.to_owned(), logarithmic: true, bytes: false },
            series: names.iter().enumerate().map(line).collect(),
        }
    };
    vec![
        panel("latency", LATENCY, |outcome| &outcome.latency),
        panel("processor time of the target", CPU, |outcome| &outcome.peer_cpu),
        panel("processor time of the caller", CPU, |outcome| &outcome.own_cpu),
    ]
}

fn size() -> Axis {
    Axis { label: "message size (bytes)".to_owned(), logarithmic: true, bytes: true }
}

fn notes(each: Duration) -> Vec<String> {
    vec![
        "Send/recv is half of the time there and back, as in the papers; one-sided operations and atomics are there and \
         back."
            .to_owned(),
        format!(
            "Each point was measured for about {} ms in each round. A sample is one operation, or as many as take 4 \
             microseconds, divided by their number. Operations of more than 4 KiB go with the bulk class.",
            each.as_millis()
        ),
        "A fabric whose operations are complete when the call returns has nothing to poll or to be notified of: its \
         one-sided operations stand the same in both panels."
            .to_owned(),
        "Processor time is that of a whole process, by its processor clock. With polling a receiver takes a whole core, whatever \
         arrives."
            .to_owned(),
        "A virtual link has the receiver's kernel work on the sender's core, in the sender's time, where nothing else is asked \
         for: a read over xdp is paid for by the caller. Over other cards the target's core pays for it in its interrupts, which no process \
         is charged for."
            .to_owned(),
    ]
}
