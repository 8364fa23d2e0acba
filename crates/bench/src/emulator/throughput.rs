//! `wan.throughput`: how many bytes a second get from one site to the other, by what carries them and by delay.
//!
//! After Figures 8.12 to 8.14, 9.5 and 9.6 of the dissertation. What is acknowledged is timed from the first message until the last one is acknowledged; of datagrams
//! it is counted what arrives.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use verbena_fabric::Provider;
use verbena_wan::router::Mode;

use super::adapters::Adapters;
use super::channels::{Sent, fire, stream, write};
use super::far::{Beside, Connections, Far, Pair, failed};
use super::flows::KEEPS_WHAT_WAS_LEARNT;
use super::panel;
use super::paths::{Link, set_ipv4};
use super::ways::{Ways, executor_name};
use super::work::Work;
use crate::child::ON_CORE;
use crate::cores::{self, Stay};
use crate::error::BenchError;
use crate::report::{Axis, Claim, FabricFound, Findings, Line, Measurement, Panel, Point, Ratio};
use crate::rounds::{Budget, interleave};
use crate::run::Plan;
use crate::scale::{bytes, number};
use crate::stats::{RoundSummary, Spread};

/// Of the link, one way, in microseconds.
const DELAYS: [u64; 5] = [0, 10, 100, 1_000, 10_000];
/// The larger ones.
const LARGE: [u64; 2] = [1_000, 10_000];
/// Sends for at least this many round trips of what the link adds, and at least for `SHORTEST`.
const TRIPS: u32 = 1;
const SHORTEST: Duration = Duration::from_millis(2);

/// Bytes of a datagram: the largest is that of the paper.
const DATAGRAMS: [usize; 2] = [256, 2 << 10];
/// Bytes of a write. `WINDOW` writes are under way.
const WRITES: [usize; 3] = [2 << 10, 32 << 10, 1 << 20];
const WINDOW: usize = 8;
/// How many writes of `MIDDLE` bytes are under way.
const MIDDLE: usize = WRITES[1];
const WINDOWS: [usize; 3] = [1, WINDOW, 64];
/// Bytes that either end of a connection has room for; none: the system decides.
const BUFFERS: [Option<usize>; 3] = [Some(64 << 10), Some(512 << 10), None];
/// The bytes of each message of a connection, one after the other, as in the paper.
const SOCKET_MESSAGE: usize = 2 << 20;
/// Connections side by side, with the least room each.
const STREAMS: [usize; 4] = [1, 2, 4, 8];

const RATE: &str = "throughput";
const LOST: &str = "datagrams that did not arrive";
const MB: &str = "throughput (MB/s)";

/// What carries the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Channel {
    /// Messages of this many bytes, without acknowledgement.
    Datagrams(usize),
    /// Writes of `bytes` bytes, with `window` of them under way.
    Writes { by: Provider, bytes: usize, window: usize },
    /// `streams` connections, each with room for `window` bytes.
    Sockets { window: Option<usize>, streams: usize },
}

impl Channel {
    /// With writes by these.
    fn all(fabrics: &[Provider]) -> Vec<Channel> {
        let mut all: Vec<Channel> = DATAGRAMS.map(Channel::Datagrams).into();
        for by in fabrics.iter().copied() {
            all.extend(WRITES.map(|bytes| Channel::Writes { by, bytes, window: WINDOW }));
            all.extend(WINDOWS.map(|window| Channel::Writes { by, bytes: MIDDLE, window }));
        }
        all.extend(BUFFERS.map(|window| Channel::Sockets { window, streams: 1 }));
        all.extend(STREAMS.map(|streams| Channel::Sockets { window: BUFFERS[0], streams }));
        let mut seen = vec![];
        all.retain(|channel| {
            !seen.contains(channel) && {
                seen.push(*channel);
                true
            }
        });
        all
    }

    /// What is compared with others of its kind.
    fn kind(self) -> &'static str {
        match self {
            Channel::Datagrams(_) => "datagrams",
            Channel::Writes { by: Provider::Verbs, .. } => "writes over verbs",
            Channel::Writes { .. } => "writes over tcp",
            Channel::Sockets { .. } => "sockets",
        }
    }

    fn name(self) -> String {
        match self {
            Channel::Datagrams(size) => format!("datagrams of {}", bytes(size as f64)),
            Channel::Writes { by, bytes: size, window } => {
                let by = if by == Provider::Verbs { "writes over verbs" } else { "writes" };
                format!("{by} of {}, {window} under way", bytes(size as f64))
            }
            Channel::Sockets { window, streams } => {
                let window = window.map_or_else(|| "the system's".to_owned(), |window| bytes(window as f64));
                let streams = if streams == 1 { "1 stream".to_owned() } else { format!("{streams} streams") };
                format!("sockets, window {window}, {streams}")
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Turn {
    channel: Channel,
    /// Microseconds.
    delay: u64,
}

impl Turn {
    fn name(&self) -> String {
        format!("{}, {} us", self.channel.name(), self.delay)
    }
}

/// What a turn gave.
#[derive(Clone, Copy)]
struct Taken {
    mb_per_s: f64,
    /// What was counted: writes, datagrams that arrived, reads of connections.
    messages: u64,
    /// Share of what was sent.
    lost: f64,
}

/// What is used with one delay alone, so that connections stay what they have become with it.
struct Reserved {
    delay: u64,
    pair: Pair,
    /// By how much room they have: as many as are ever used.
    sockets: Vec<(Option<usize>, Connections)>,
}

struct Stage {
    far: Far,
    datagrams: UdpSocket,
    reserved: Vec<Reserved>,
    /// With datagrams.
    turns: u64,
    link: Link,
    by_adapters: Option<ByAdapters>,
}

/// With all delays: between adapters nothing is learnt of the way.
struct ByAdapters {
    ways: Ways,
    /// Goes last.
    adapters: Adapters,
}

/// Measures the row.
pub(crate) fn measure(plan: Plan) -> Result<Findings, BenchError> {
    let cores = cores::two(plan.name, "one for the router and one for both ends")?;
    let on = |core| Stay::on(core).map_err(|what| failed("choosing a core", what));
    let stay = on(cores[1])?;
    let link = Link::new(Mode::Sleep, false, plan.seed)?;
    drop(stay);
    let _stay = on(cores[0])?;
    let (mut stage, fabrics) = Stage::open(link, cores)?;
    let by: &[Provider] =
        if stage.by_adapters.is_some() { &[Provider::Tcp, Provider::Verbs] } else { &[Provider::Tcp] };
    let mut turns: Vec<Turn> = vec![];
    for delay in DELAYS {
        turns.extend(Channel::all(by).into_iter().map(|channel| Turn { channel, delay }));
    }
    let mut budget = Budget::new(plan.measuring, (plan.rounds + 1) * turns.len() as u32);
    let rounds =
        interleave(plan.rounds, &mut turns, Turn::name, |turn| stage.take(*turn, budget.next()), plan.progress)?;
    let mut findings = Findings { fabrics, notes: notes(), ..Findings::default() };
    summarise(&turns, &rounds, &mut findings);
    Ok(findings)
}

impl Stage {
    /// Both ends of the link share a core, and of adapters either has one.
    fn open(mut link: Link, cores: [usize; 2]) -> Result<(Self, Vec<FabricFound>), BenchError> {
        for site in link.sites()? {
            // Turns are short.
            set_ipv4(site.network, &[KEEPS_WHAT_WAS_LEARNT])?;
        }
        let mut far = Far::start(link.sites()?[1], &[ON_CORE, &cores[0].to_string()])?;
        let datagrams = far.datagrams(link.sites()?)?;
        let mut reserved = vec![];
        for delay in DELAYS {
            link.set(Duration::from_micros(delay))?;
            let sites = link.sites()?;
            let pair = far.pair(Provider::Tcp, sites)?.map_err(|what| failed("opening tcp", what))?;
            let mut sockets = vec![];
            for window in BUFFERS {
                let count = if window == BUFFERS[0] { STREAMS[STREAMS.len() - 1] } else { 1 };
                sockets.push((window, far.connect(count, window, sites)?));
            }
            reserved.push(Reserved { delay, pair, sockets });
        }
        let capabilities = reserved[0].pair.near.fabric.capabilities();
        let executor = executor_name(capabilities.executor);
        let found = |name: &str, measured, because: &str| FabricFound {
            name: name.to_owned(),
            measured,
            because: because.to_owned(),
            capabilities: None,
        };
        let fabrics = [
            FabricFound::measured(capabilities, format!("writes are executed by {executor}")),
            FabricFound::missing(
                Provider::Xdp,
                "its writes have at most 1 KiB; what is larger goes by channels of tcp, as with tcp".to_owned(),
            ),
            found(
                "sockets",
                true,
                "TCP as a program has it; a window is the room that either end has (SO_SNDBUF, SO_RCVBUF)",
            ),
            found("datagrams", true, "UDP; nobody acknowledges them, and what did not arrive is not sent again"),
        ];
        let (by_adapters, verbs) = Adapters::with(cores, |adapters| ByAdapters::open(adapters, cores[1]));
        let fabrics = fabrics.into_iter().chain([verbs]).collect();
        Ok((Stage { far, datagrams, reserved, turns: 0, link, by_adapters }, fabrics))
    }

    fn take(&mut self, turn: Turn, length: Duration) -> Result<Taken, BenchError> {
        let delay = Duration::from_micros(turn.delay);
        let length = length.max(delay * 2 * TRIPS).max(SHORTEST);
        let wrong = |what: String| failed(&turn.name(), what);
        if let Channel::Writes { by: Provider::Verbs, bytes, window } = turn.channel {
            let by_adapters = self.by_adapters.as_ref();
            let ByAdapters { ways, adapters } = by_adapters.expect("invariant: turns are made of what there is");
            adapters.set(delay)?;
            let pair = ways.pair(Provider::Verbs).expect("invariant: adapters are kept with a pair");
            return write(pair, bytes, window, length).map(|sent| sent.taken()).map_err(wrong);
        }
        self.link.set(delay)?;
        let Stage { far, datagrams, reserved, turns, .. } = self;
        let reserved = reserved.iter().find(|reserved| reserved.delay == turn.delay);
        let reserved = reserved.expect("invariant: something is reserved for every delay");
        match turn.channel {
            Channel::Datagrams(bytes) => {
                *turns += 1;
                let number = *turns;
                let fired = |_: &mut Beside<'_>| {
                    fire(datagrams, number, bytes, length, delay).map_err(|error| wrong(error.to_string()))
                };
                let (sent, came) = far.during(Work::TakeDatagrams { number }, fired)?;
                if came.calls < 2 || came.bytes > sent.bytes {
                    return Err(wrong(format!("of {} datagrams {} arrived", sent.messages, came.calls)));
                }
                let mb_per_s = came.bytes as f64 / 1e6 / came.within.as_secs_f64();
                let lost = 1.0 - came.calls as f64 / sent.messages as f64;
                Ok(Taken { mb_per_s, messages: came.calls, lost })
            }
            Channel::Writes { bytes, window, .. } => {
                write(&reserved.pair, bytes, window, length).map(|sent| sent.taken()).map_err(wrong)
            }
            Channel::Sockets { window, streams } => {
                let found = reserved.sockets.iter().find(|(room, _)| *room == window);
                let (_, connections) = found.expect("invariant: there are connections with each window");
                let work = Work::Take { first: connections.first, count: streams };
                let streamed = |_: &mut Beside<'_>| {
                    // The far site has begun: how long that took is not of the turn.
                    let until = Instant::now() + length;
                    stream(&connections.near[..streams], SOCKET_MESSAGE, || Instant::now() < until)
                        .map_err(|error| wrong(error.to_string()))
                };
                let (sent, came) = far.during(work, streamed)?;
                if came.bytes != sent.bytes {
                    return Err(wrong(format!("of {} bytes {} arrived", sent.bytes, came.bytes)));
                }
                Ok(Taken { messages: came.calls, ..sent.taken() })
            }
        }
    }
}

impl ByAdapters {
    /// With the far end on that core.
    fn open(adapters: Adapters, far_core: usize) -> Result<(Self, FabricFound), BenchError> {
        let (ways, found) = Ways::by_adapters(&adapters, &[], &[ON_CORE, &far_core.to_string()])?;
        Ok((ByAdapters { ways, adapters }, found))
    }
}

impl Sent {
    fn taken(self) -> Taken {
        Taken { mb_per_s: self.bytes as f64 / 1e6 / self.took.as_secs_f64(), messages: self.messages, lost: 0.0 }
    }
}

fn summarise(turns: &[Turn], rounds: &[Vec<Taken>], findings: &mut Findings) {
    for (turn, rounds) in turns.iter().zip(rounds) {
        let name = turn.channel.name();
        let labels = [("kind", turn.channel.kind()), ("channel", name.as_str())];
        let mut say = |quantity, unit, of: fn(&Taken) -> f64| {
            let rounds = rounds.iter().map(|round| RoundSummary::one(of(round), round.messages)).collect();
            findings.measurements.extend(Measurement::new(&labels, turn.delay as f64, quantity, unit, rounds));
        };
        say(RATE, "MB/s", |round| round.mb_per_s);
        if matches!(turn.channel, Channel::Datagrams(_)) {
            say(LOST, "share", |round| round.lost);
        }
    }
    let rates = |channel: Channel, delay: u64| -> Vec<f64> {
        let at = turns.iter().position(|turn| *turn == Turn { channel, delay });
        at.map_or_else(Vec::new, |at| rounds[at].iter().map(|round| round.mb_per_s).collect())
    };
    findings.ratios = ratios(&rates);
    findings.panels = panels(&findings.measurements);
}

/// How one variant is to stand to another.
#[derive(Clone, Copy)]
enum Expected {
    AtLeast(f64, &'static str),
    Between(f64, f64, &'static str),
    Nothing,
}

fn ratios(rates: &dyn Fn(Channel, u64) -> Vec<f64>) -> Vec<Ratio> {
    let mut ratios = vec![];
    let mut ratio = |what: String, under: String, above: Vec<f64>, below: Vec<f64>, expected: Expected| {
        let Some(spread) = Spread::ratio(&above, &below) else { return };
        let median = |rates: &[f64]| number(Spread::of(rates).map_or(0.0, |spread| spread.median));
        let reason = format!("{} MB/s against {} MB/s", median(&above), median(&below));
        let claim = match expected {
            Expected::AtLeast(least, text) => Some(Claim::at_least(least, text, &spread, reason)),
            Expected::Between(least, most, text) => Some(Claim::between(least, most, text, &spread, reason)),
            Expected::Nothing => None,
        };
        ratios.push(Ratio { what, under, spread, claim });
    };
    let writes = |by, bytes| Channel::Writes { by, bytes, window: WINDOW };
    let sockets = |window, streams| Channel::Sockets { window, streams };
    let large = Channel::Datagrams(DATAGRAMS[1]);
    for delay in DELAYS {
        let under = format!("{delay} us");
        let if_large = |expected| if LARGE.contains(&delay) { expected } else { Expected::Nothing };
        let mut beside = |what: &str, above, below, expected| {
            ratio(format!("{RATE}, {what}"), under.clone(), rates(above, delay), rates(below, delay), expected);
        };
        let filled = if_large(Expected::AtLeast(2.0, "large messages keep the pipe full (at least 2)"));
        for (what, by) in [
            ("writes of 1 MiB over writes of 2 KiB", Provider::Tcp),
            ("over verbs writes of 1 MiB over writes of 2 KiB", Provider::Verbs),
        ] {
            beside(what, writes(by, WRITES[2]), writes(by, WRITES[0]), filled);
        }
        let wider = if_large(Expected::AtLeast(1.5, "larger windows carry more (at least 1.5)"));
        beside("sockets, window 512 KiB over 64 KiB", sockets(BUFFERS[1], 1), sockets(BUFFERS[0], 1), wider);
        for streams in &STREAMS[1..] {
            let parallel = Expected::AtLeast(1.5, "up to +50% at larger delays (at least 1.5)");
            let parallel = if *streams == STREAMS[STREAMS.len() - 1] { if_large(parallel) } else { Expected::Nothing };
            beside(
                &format!("{streams} streams over 1"),
                sockets(BUFFERS[0], *streams),
                sockets(BUFFERS[0], 1),
                parallel,
            );
        }
        beside("datagrams over sockets", large, sockets(None, 1), Expected::Nothing);
    }
    let far = DELAYS[DELAYS.len() - 1];
    let under = format!("{far} us over none");
    let independent = Expected::Between(0.8, 1.25, "independent of the delay (0.8 to 1.25)");
    for (channel, expected) in [
        (large, independent),
        (writes(Provider::Tcp, WRITES[2]), Expected::Nothing),
        (writes(Provider::Verbs, WRITES[2]), Expected::Nothing),
        (sockets(None, 1), Expected::Nothing),
    ] {
        ratio(format!("{RATE}, {}", channel.name()), under.clone(), rates(channel, far), rates(channel, 0), expected);
    }
    ratios
}

/// The figures, each with what its lines are.
fn figures() -> Vec<(&'static str, Vec<Channel>)> {
    let writes = |by, bytes, window| Channel::Writes { by, bytes, window };
    let sockets = |window, streams| Channel::Sockets { window, streams };
    let [tcp, verbs] = [Provider::Tcp, Provider::Verbs];
    vec![
        ("datagrams, by size", DATAGRAMS.map(Channel::Datagrams).into()),
        ("writes, by size", WRITES.map(|bytes| writes(tcp, bytes, WINDOW)).into()),
        ("writes, by how many are under way", WINDOWS.map(|window| writes(tcp, MIDDLE, window)).into()),
        ("writes over verbs, by size", WRITES.map(|bytes| writes(verbs, bytes, WINDOW)).into()),
        ("writes over verbs, by how many are under way", WINDOWS.map(|window| writes(verbs, MIDDLE, window)).into()),
        ("sockets, by window", BUFFERS.map(|window| sockets(window, 1)).into()),
        ("sockets, by streams", STREAMS.map(|streams| sockets(BUFFERS[0], streams)).into()),
        (
            "the most of each",
            vec![
                Channel::Datagrams(DATAGRAMS[1]),
                writes(tcp, WRITES[2], WINDOW),
                sockets(None, 1),
                writes(verbs, WRITES[2], WINDOW),
            ],
        ),
    ]
}

fn panels(measurements: &[Measurement]) -> Vec<Panel> {
    let figure = |(title, channels): (&'static str, Vec<Channel>)| {
        let line = |(style, channel): (usize, Channel)| {
            let name = channel.name();
            let has = |one: &&Measurement| one.quantity == RATE && one.labels.iter().any(|(_, value)| *value == name);
            // A logarithmic axis has no 0.
            let point = |one: &Measurement| Point { x: one.x.max(1.0), ..one.point() };
            let points = measurements.iter().filter(has).map(point).collect();
            Line { name, style, points }
        };
        let x = Axis { label: "added delay, one way (us; 1 is none)".to_owned(), logarithmic: true, bytes: false };
        let mut panel = panel(title, x, MB, channels.into_iter().enumerate().map(line).collect());
        panel.y.logarithmic = true;
        panel
    };
    // Without adapters their figures have no series.
    figures().into_iter().map(figure).filter(|panel| !panel.series.is_empty()).collect()
}

fn notes() -> Vec<String> {
    vec![
        "What is acknowledged is timed from the first message until the last one of the turn is acknowledged; of datagrams it is counted what arrives, by the receiver's clock. Every byte of a \
         connection has to arrive."
            .to_owned(),
        "Each delay has connections of its own, which do not begin slowly again after a rest: a turn goes on where the one before has ended, and the first is not counted."
            .to_owned(),
        format!(
            "The link has no rate: what limits without delay is the processor, of which the router has one core and both ends the other. Writes go over {}, where a thread of the target executes \
             them. The router is in mode sleep, and may be late by up to 130 us.",
            Provider::Tcp.name()
        ),
        format!(
            "Writes over {} go from adapter to adapter, where there are two, and the delay is netem's: nothing of ours carries them, and either end has a core. Soft-RoCE has at \
             most 128 packets of 4 KiB under way that were not acknowledged, however much is asked of it.",
            Provider::Verbs.name()
        ),
    ]
}
