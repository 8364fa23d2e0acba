//! What the turns of `wan.overlap` say: measurements, ratios with the paper's claims, figures.

use verbena_fabric::{Executor, Provider};

use super::{ALONE, COMPUTING, LOAD, LOADS, LONGEST, MESSAGE, Taken, Turn, What, sent_far};
use crate::emulator::panel;
use crate::emulator::ways::{Way, executor_name};
use crate::report::{Axis, Claim, Findings, Line, Measurement, Panel, Ratio};
use crate::scale::{bytes, number};
use crate::stats::{RoundSummary, Spread};

const HIDDEN: &str = "overlap";
const FETCHED: &str = "time to fetch";
const COMPUTED: &str = "running time of a computation";
const SENT: &str = "throughput of the senders";

/// "Almost the same" once the delay is long.
const EQUAL: [f64; 2] = [0.95, 1.05];
/// "Without any impact" of the load, and of senders.
const FLAT: f64 = 1.2;
/// "Very high" under senders.
const DEGRADES: f64 = 1.2;

/// What executes one-sided operations of a way; `None` for sockets.
type Executors<'a> = dyn Fn(Way) -> Option<Executor> + 'a;

pub(super) fn summarise(turns: &[Turn], rounds: &[Vec<Taken>], executor: &Executors<'_>, findings: &mut Findings) {
    let all = All { turns, rounds };
    for (turn, rounds) in turns.iter().zip(rounds) {
        findings.measurements.extend(measurement(turn, rounds));
        if let What::Computed { senders: Some((_, sent)) } = turn.what {
            let rates = rounds.iter().map(|round| RoundSummary::one(round.mb_per_s, 1)).collect();
            let labels = labels(turn);
            let labels: Vec<(&str, &str)> = labels.iter().map(|(name, value)| (*name, value.as_str())).collect();
            findings.measurements.extend(Measurement::new(&labels, sent as f64, SENT, "MB/s", rates));
        }
    }
    for way in Way::ALL {
        let reason = match executor(way) {
            Some(executor) => format!("{} executes what comes", executor_name(executor)),
            None => "a thread of the target reads what comes".to_owned(),
        };
        findings.ratios.extend(all.against_sockets(way, &reason));
        findings.ratios.extend(all.under_load(way, &reason));
    }
    findings.panels = panels(turns, rounds);
    findings.notes = notes();
}

fn labels(turn: &Turn) -> Vec<(&'static str, String)> {
    let way = |way: Way| ("way", way.name().to_owned());
    let delay = ("delay", format!("{} us", turn.delay));
    match turn.what {
        What::Hidden { way: by, .. } => vec![way(by), delay],
        What::Fetched { way: by, .. } => vec![way(by), delay],
        What::Computed { senders: None } => vec![("way", "nobody".to_owned()), delay],
        What::Computed { senders: Some((by, sent)) } => vec![way(by), delay, ("bytes", sent.to_string())],
    }
}

/// By how long was computed, by the load, and by bytes that senders sent.
fn measurement(turn: &Turn, rounds: &[Taken]) -> Option<Measurement> {
    let (x, quantity, unit) = match turn.what {
        What::Hidden { computing, .. } => (computing as f64, HIDDEN, "share"),
        What::Fetched { load, .. } => (load as f64, FETCHED, "us"),
        What::Computed { senders } => (senders.map_or(0.0, |(_, sent)| sent as f64), COMPUTED, "ms"),
    };
    let labels = labels(turn);
    let labels: Vec<(&str, &str)> = labels.iter().map(|(name, value)| (*name, value.as_str())).collect();
    Measurement::new(&labels, x, quantity, unit, rounds.iter().map(|round| round.found).collect())
}

struct All<'a> {
    turns: &'a [Turn],
    rounds: &'a [Vec<Taken>],
}

impl All<'_> {
    fn medians(&self, turn: Turn) -> Option<Vec<f64>> {
        let at = self.turns.iter().position(|other| *other == turn)?;
        Some(self.rounds[at].iter().map(|round| round.found.median).collect())
    }

    /// The ratio of one turn to another, and what is claimed of it. `unit` is of the reason.
    fn ratio(
        &self,
        [above, below]: [Turn; 2],
        [what, under]: [String; 2],
        unit: &str,
        reason: &str,
        claim: impl FnOnce(&Spread, String) -> Option<Claim>,
    ) -> Option<Ratio> {
        let (above, below) = (self.medians(above)?, self.medians(below)?);
        let spread = Spread::ratio(&above, &below)?;
        let median = |rounds: &[f64]| number(Spread::of(rounds).map_or(0.0, |spread| spread.median));
        let claim = claim(&spread, format!("{reason}: {} {unit} against {} {unit}", median(&above), median(&below)));
        Some(Ratio { what, under, spread, claim })
    }

    /// What is one-sided over sockets, at every point where both are.
    fn against_sockets(&self, way: Way, reason: &str) -> Vec<Ratio> {
        let own = self.turns.iter().filter(|turn| way != Way::Sockets && turn.way() == Some(way));
        let ratio = |turn: &Turn| {
            let both = [*turn, turn.by(Way::Sockets)];
            let over = |what: &str| format!("{what}, {} over sockets", way.name());
            let delay = turn.delay;
            match turn.what {
                What::Hidden { computing, .. } => {
                    let names = [over(HIDDEN), format!("{computing} us of computing, {delay} us added")];
                    self.ratio(both, names, "", reason, |spread, reason| {
                        let [least, most] = EQUAL;
                        // Between adapters there is no router, which sockets cross.
                        if delay == 0 && computing == COMPUTING[0] && way != Way::OneSided(Provider::Verbs) {
                            Some(Claim::at_least(
                                1.0,
                                "better overlap, also of a short computation (at least 1)",
                                spread,
                                reason,
                            ))
                        } else if delay >= LONGEST {
                            let text = format!("the difference goes with the delay ({least} to {most})");
                            Some(Claim::between(least, most, &text, spread, reason))
                        } else {
                            None
                        }
                    })
                }
                What::Fetched { load, .. } => {
                    let names = [over(FETCHED), format!("load of {load} us, {delay} us added")];
                    self.ratio(both, names, "us", reason, |spread, reason| {
                        let text = "better progress under load (at most 1)";
                        (load == LOAD).then(|| Claim::at_most(1.0, text, spread, reason))
                    })
                }
                What::Computed { senders } => {
                    let sent = senders.map_or(0, |(_, sent)| sent);
                    let names = [over(COMPUTED), format!("senders of {}, {delay} us added", bytes(sent as f64))];
                    self.ratio(both, names, "ms", reason, |_, _| None)
                }
            }
        };
        own.filter_map(ratio).collect()
    }

    /// What is loaded over what is not.
    fn under_load(&self, way: Way, reason: &str) -> Vec<Ratio> {
        let is_one_sided = way != Way::Sockets;
        let own = self.turns.iter().filter(|turn| turn.way() == Some(way));
        let claim = |flat: &str, degrades: &str, spread: &Spread, reason| match is_one_sided {
            true => Claim::at_most(FLAT, &format!("{flat} (at most {FLAT})"), spread, reason),
            false => Claim::at_least(DEGRADES, &format!("{degrades} (at least {DEGRADES})"), spread, reason),
        };
        let ratio = |turn: &Turn| match turn.what {
            What::Fetched { load, .. } if load > 0 && turn.delay == 0 => {
                let idle = Turn { what: What::Fetched { way, load: LOADS[0] }, ..*turn };
                let names = [format!("{FETCHED}, load of {load} us over none"), format!("{}, no delay", way.name())];
                self.ratio([*turn, idle], names, "us", reason, |spread, reason| {
                    Some(claim("no impact of the load", "suffers from the load", spread, reason))
                })
            }
            What::Computed { senders: Some((_, sent)) } => {
                let alone = Turn { what: What::Computed { senders: None }, delay: 0 };
                let under = format!("{}, senders of {}, {} us added", way.name(), bytes(sent as f64), turn.delay);
                let names = [format!("{COMPUTED}, under 40 senders over alone"), under];
                self.ratio([*turn, alone], names, "ms", reason, |spread, reason| {
                    Some(claim("no significant impact", "very high", spread, reason))
                })
            }
            _ => None,
        };
        own.filter_map(ratio).collect()
    }
}

impl Turn {
    fn way(&self) -> Option<Way> {
        match self.what {
            What::Hidden { way, .. } | What::Fetched { way, .. } => Some(way),
            What::Computed { senders } => senders.map(|(way, _)| way),
        }
    }

    fn by(self, way: Way) -> Self {
        let what = match self.what {
            What::Hidden { computing, .. } => What::Hidden { way, computing },
            What::Fetched { load, .. } => What::Fetched { way, load },
            What::Computed { senders } => What::Computed { senders: senders.map(|(_, sent)| (way, sent)) },
        };
        Turn { what, ..self }
    }
}

/// One figure: which turns are in it, and where along the horizontal axis.
struct Figure {
    title: String,
    x: (&'static str, bool),
    y: &'static str,
    at: At,
}

/// Where a turn stands; `None` if it does not.
type At = Box<dyn Fn(&Turn) -> Option<f64>>;

fn figures() -> Vec<Figure> {
    const DELAY: (&str, bool) = ("added delay, one way (us; 1 is none)", false);
    const SHARE: &str = "computing, of the whole";
    const US: &str = "time to fetch (us)";
    const MS: &str = "running time (ms)";
    let delay = |turn: &Turn| Some(turn.delay.max(1) as f64);
    let hidden = |turn: &Turn| if let What::Hidden { computing, .. } = turn.what { Some(computing) } else { None };
    let fetched = |turn: &Turn| if let What::Fetched { load, .. } = turn.what { Some(load) } else { None };
    let sent = |turn: &Turn| match turn.what {
        What::Computed { senders } => senders.map(|(_, sent)| sent),
        _ => None,
    };
    let computing = |with: u64| Figure {
        title: format!("overlap by computing, {with} us added"),
        x: ("computing (us)", false),
        y: SHARE,
        at: Box::new(move |turn| hidden(turn).filter(|_| turn.delay == with).map(|computing| computing as f64)),
    };
    vec![
        computing(super::COMPUTING_DELAYS[0]),
        computing(super::COMPUTING_DELAYS[1]),
        Figure {
            title: format!("overlap by delay, {LONGEST} us of computing"),
            x: DELAY,
            y: SHARE,
            at: Box::new(move |turn| hidden(turn).filter(|computing| *computing == LONGEST).and(delay(turn))),
        },
        Figure {
            title: format!("fetching {MESSAGE} bytes by load, no delay"),
            x: ("the target computes before it looks (us; 1 is not at all)", false),
            y: US,
            at: Box::new(move |turn| fetched(turn).filter(|_| turn.delay == 0).map(|load| load.max(1) as f64)),
        },
        Figure {
            title: format!("fetching {MESSAGE} bytes by delay, load of {LOAD} us"),
            x: DELAY,
            y: US,
            at: Box::new(move |turn| fetched(turn).filter(|load| *load == LOAD).and(delay(turn))),
        },
        Figure {
            title: "a computation under 40 senders, by size, no delay".to_owned(),
            x: ("size (bytes)", true),
            y: MS,
            at: Box::new(move |turn| sent(turn).filter(|_| turn.delay == 0).map(|sent| sent as f64)),
        },
        Figure {
            title: "a computation under 40 senders of 16 KiB (xdp: 1 KiB), by delay".to_owned(),
            x: DELAY,
            y: MS,
            at: Box::new(move |turn| {
                let is_it = |sent: &usize| turn.way().map(sent_far) == Some(*sent);
                sent(turn).filter(is_it).and(delay(turn))
            }),
        },
    ]
}

fn panels(turns: &[Turn], rounds: &[Vec<Taken>]) -> Vec<Panel> {
    let draw = |figure: Figure| {
        let line = |(style, way): (usize, Way)| {
            let point = |(turn, rounds): (&Turn, &Vec<Taken>)| {
                let x = (figure.at)(turn).filter(|_| turn.way() == Some(way))?;
                let point = measurement(turn, rounds)?.point();
                Some(crate::report::Point { x, ..point })
            };
            Line { name: way.name().to_owned(), style, points: turns.iter().zip(rounds).filter_map(point).collect() }
        };
        let (label, is_bytes) = figure.x;
        let x = Axis { label: label.to_owned(), logarithmic: true, bytes: is_bytes };
        panel(&figure.title, x, figure.y, Way::ALL.into_iter().enumerate().map(line).collect())
    };
    figures().into_iter().map(draw).collect()
}

fn notes() -> Vec<String> {
    vec![
        "Either end has a core. The router, in mode sleep, is on the far end's where the near end computes, and on the near end's where the far one does. What the far end's kernel \
         receives is done on its own core."
            .to_owned(),
        "Over tcp a thread of the target executes what comes, which is two-sided in the papers' sense: it takes its time of the core that computes. Over xdp the target's kernel does, in its \
         receive path: that takes time of the core as well, as interrupts do, and an adapter would not."
            .to_owned(),
        format!(
            "A computation is timed by the target and scaled to one that takes {} ms alone. Its senders are on the other core, with the router: how much they get through is their throughput. \
             Over tcp they are 40 nodes with a write under way each, over xdp one node with 40.",
            ALONE.as_millis()
        ),
        format!(
            "Over {} the senders are four nodes with ten writes under way each. What is between two adapters is netem, and no router, so that without delay they cross less than sockets do; and the \
             adapter of soft-RoCE is the kernel, which works on the core of whoever posts, and on that of whoever it receives for.",
            Provider::Verbs.name()
        ),
    ]
}
