//! The options of a way as people write them: `delay=10ms`. One definition holds an option's name, help, parser and how it is shown; the
//! command line, files and changes of a running link are read by it.

use std::fmt;
use std::sync::Arc;

use verbena_terms::Lapse;

use crate::codel::CoDelOptions;
use crate::jitter::Jitter;
use crate::trace::Trace;
use crate::units::is_plain;
use crate::way::{Impossible, Way};

/// Reads a file that an option names.
pub type Reader<'a> = &'a dyn Fn(&str) -> Result<String, String>;

/// One option.
pub struct Definition {
    /// As it is written in files and in `name=value`.
    pub name: &'static str,
    /// What its value is, in the help.
    pub value: &'static str,
    /// What it does.
    pub help: &'static str,
    set: fn(&mut Way, &str, Reader<'_>) -> Result<(), String>,
    show: fn(&Way) -> Option<String>,
    reset: fn(&mut Way, Way),
}

impl fmt::Debug for Definition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Definition").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The value that takes an option back.
const NONE: &str = "none";

/// All of them, in the order of the help.
pub static DEFINITIONS: [Definition; 16] = [
    Definition {
        name: "delay",
        value: "TIME",
        help: "How long every packet takes, one way",
        set: |way, text, _| put(&mut way.delay, text.parse::<Lapse>()?.0),
        show: |way| (!way.delay.is_zero()).then(|| Lapse(way.delay).to_string()),
        reset: |way, usual| way.delay = usual.delay,
    },
    Definition {
        name: "km",
        value: "NUMBER",
        help: "A distance: adds 5 us of delay a kilometre",
        set: |way, text, _| put(&mut way.km, kilometres(text)?),
        show: |way| (way.km > 0.0).then(|| way.km.to_string()),
        reset: |way, usual| way.km = usual.km,
    },
    Definition {
        name: "jitter",
        value: "[LAW:]TIME",
        help: "How the delay varies: 2ms or uniform:2ms (at most that much less or more), normal:2ms (standard deviation), pareto:2ms (mean of \
               what is added, with a heavy tail), file:PATH (one of the times in the file is added, one a line)",
        set: |way, text, read| put(&mut way.jitter, Some(Jitter::parse(text, read)?)),
        show: |way| way.jitter.as_ref().map(ToString::to_string),
        reset: |way, usual| way.jitter = usual.jitter,
    },
    Definition {
        name: "order",
        value: "keep|free",
        help: "Whether packets may overtake each other by jitter: keep (as queues do) or free",
        set: |way, text, _| match text {
            "keep" | "free" => put(&mut way.may_overtake, text == "free"),
            _ => Err(format!("{text:?} is neither keep nor free")),
        },
        show: |way| way.may_overtake.then(|| "free".into()),
        reset: |way, usual| way.may_overtake = usual.may_overtake,
    },
    Definition {
        name: "loss",
        value: "PART",
        help: "How many packets are lost, each by itself: 0.1% or 0.001",
        set: |way, text, _| put(&mut way.loss, text.parse()?),
        show: |way| (way.loss.part() > 0.0).then(|| way.loss.to_string()),
        reset: |way, usual| way.loss = usual.loss,
    },
    Definition {
        name: "drop_rate",
        value: "N",
        help: "Exactly one packet in every N is lost, at a random place among them",
        set: |way, text, _| put(&mut way.drop_rate, Some(block(text, 1)?)),
        show: |way| way.drop_rate.map(|length| length.to_string()),
        reset: |way, usual| way.drop_rate = usual.drop_rate,
    },
    Definition {
        name: "burst",
        value: "P,R[,IN[,OUT]]",
        help: "Loss in bursts (Gilbert, Elliott): before each packet one begins with probability P, and ends with R; lost is what is in one, or \
               with IN the part of it, and OUT of what is outside",
        set: |way, text, _| put(&mut way.burst, Some(text.parse()?)),
        show: |way| way.burst.map(|burst| burst.to_string()),
        reset: |way, usual| way.burst = usual.burst,
    },
    Definition {
        name: "duplicate",
        value: "PART",
        help: "How many packets arrive twice",
        set: |way, text, _| put(&mut way.duplicate, text.parse()?),
        show: |way| (way.duplicate.part() > 0.0).then(|| way.duplicate.to_string()),
        reset: |way, usual| way.duplicate = usual.duplicate,
    },
    Definition {
        name: "corrupt",
        value: "PART",
        help: "In how many packets one bit is changed, anywhere from the IP header on",
        set: |way, text, _| put(&mut way.corrupt, text.parse()?),
        show: |way| (way.corrupt.part() > 0.0).then(|| way.corrupt.to_string()),
        reset: |way, usual| way.corrupt = usual.corrupt,
    },
    Definition {
        name: "ooo_rate",
        value: "N",
        help: "Exactly one packet in every N, at a random place among them, takes the time of --ooo-delay",
        set: |way, text, _| put(&mut way.ooo_rate, Some(block(text, 2)?)),
        show: |way| way.ooo_rate.map(|length| length.to_string()),
        reset: |way, usual| way.ooo_rate = usual.ooo_rate,
    },
    Definition {
        name: "ooo_delay",
        value: "TIME",
        help: "How long the packets of --ooo-rate take: more than the delay of the others",
        set: |way, text, _| put(&mut way.ooo_delay, Some(text.parse::<Lapse>()?.0)),
        show: |way| way.ooo_delay.map(|delay| Lapse(delay).to_string()),
        reset: |way, usual| way.ooo_delay = usual.ooo_delay,
    },
    Definition {
        name: "rate",
        value: "RATE",
        help: "How much is transmitted: 10mbit, 2.5gbit; bits of Ethernet frames a second",
        set: |way, text, _| put(&mut way.rate, Some(text.parse()?)),
        show: |way| way.rate.map(|rate| rate.to_string()),
        reset: |way, usual| way.rate = usual.rate,
    },
    Definition {
        name: "limit",
        value: "LIMIT",
        help: "How much may wait for the rate: 1000 (packets, as without this), 64KiB, or what takes 50ms",
        set: |way, text, _| put(&mut way.limit, Some(text.parse()?)),
        show: |way| way.limit.map(|limit| limit.to_string()),
        reset: |way, usual| way.limit = usual.limit,
    },
    Definition {
        name: "queue",
        value: "tail|codel",
        help: "What is dropped of what waits: tail (what does not fit) or codel (also what waits too long for too long), codel:TARGET,INTERVAL",
        set: |way, text, _| put(&mut way.codel, queue(text)?),
        show: |way| way.codel.map(show_queue),
        reset: |way, usual| way.codel = usual.codel,
    },
    Definition {
        name: "trace",
        value: "FILE",
        help: "Delay and rate that change with time: lines TIME DELAY RATE, a last line TIME repeat",
        set: |way, path, read| {
            let trace = Trace::parse(&read(path)?).map_err(|problem| format!("{path}: {problem}"))?;
            put(&mut way.trace, Some((path.into(), Arc::new(trace))))
        },
        show: |way| way.trace.as_ref().map(|(path, _)| path.display().to_string()),
        reset: |way, usual| way.trace = usual.trace,
    },
    Definition {
        name: "memory",
        value: "SIZE",
        help: "How many bytes may be under way or wait at most (256MiB without this); what is more is dropped, and counted apart",
        set: |way, text, _| put(&mut way.memory, text.parse()?),
        show: |way| (way.memory != Way::default().memory).then(|| way.memory.to_string()),
        reset: |way, usual| way.memory = usual.memory,
    },
];

/// What is wrong with an option.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// No option has this name.
    #[error("there is no option {name:?}; there are {}", names())]
    Unknown {
        /// What was written.
        name: String,
    },
    /// A value that it cannot have.
    #[error("{name}: {problem}")]
    Value {
        /// The option.
        name: &'static str,
        /// What is wrong.
        problem: String,
    },
    /// What is not `name=value`.
    #[error("{0:?} is not NAME=VALUE, such as delay=10ms")]
    Form(String),
    /// Options that do not go together.
    #[error(transparent)]
    Impossible(#[from] Impossible),
}

fn names() -> String {
    DEFINITIONS.iter().map(|definition| definition.name).collect::<Vec<_>>().join(", ")
}

impl Way {
    /// Sets one option; `none` takes it back. Whether all go together is for [`Way::check`].
    ///
    /// # Errors
    /// [`OptionError`], and nothing is changed.
    pub fn set(&mut self, name: &str, text: &str, read: Reader<'_>) -> Result<(), OptionError> {
        let spelled = name.replace('-', "_");
        let definition = DEFINITIONS.iter().find(|definition| definition.name == spelled);
        let definition = definition.ok_or_else(|| OptionError::Unknown { name: name.into() })?;
        if text == NONE {
            (definition.reset)(self, Way::default());
            return Ok(());
        }
        (definition.set)(self, text, read).map_err(|problem| OptionError::Value { name: definition.name, problem })
    }

    /// Sets several, written `delay=10ms loss=1%`, and looks whether the whole can be.
    ///
    /// # Errors
    /// [`OptionError`], and nothing is changed.
    pub fn change(&mut self, text: &str, read: Reader<'_>) -> Result<(), OptionError> {
        let mut changed = self.clone();
        for word in text.split_whitespace() {
            let (name, value) = word.split_once('=').ok_or_else(|| OptionError::Form(word.into()))?;
            changed.set(name, value, read)?;
        }
        changed.check()?;
        *self = changed;
        Ok(())
    }

    /// The options that are not as usual, by name.
    pub fn options(&self) -> impl Iterator<Item = (&'static str, String)> {
        DEFINITIONS.iter().filter_map(|definition| Some((definition.name, (definition.show)(self)?)))
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self.options().map(|(name, value)| format!("{name}={value}")).collect();
        f.write_str(&words.join(" "))
    }
}

fn put<T>(place: &mut T, value: T) -> Result<(), String> {
    *place = value;
    Ok(())
}

fn block(text: &str, least: u64) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| *number >= least);
    number.ok_or_else(|| format!("{text:?} is not a number of packets from {least} on"))
}

/// To the moon and back.
const FARTHEST_KM: f64 = 1e6;

fn kilometres(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| is_plain(text) && (0.0..=FARTHEST_KM).contains(number));
    number.ok_or_else(|| format!("{text:?} is not a distance in kilometres, up to {FARTHEST_KM}"))
}

fn queue(text: &str) -> Result<Option<CoDelOptions>, String> {
    let expected = || format!("{text:?} is not tail, codel or codel:TARGET,INTERVAL such as codel:5ms,100ms");
    match text.split_once(':') {
        None if text == "tail" => Ok(None),
        None if text == "codel" => Ok(Some(CoDelOptions::default())),
        Some(("codel", times)) => {
            let (target, interval) = times.split_once(',').ok_or_else(expected)?;
            let (Lapse(target), Lapse(interval)) = (target.parse()?, interval.parse()?);
            if target.is_zero() || interval <= target {
                return Err("the interval is longer than the target, which is more than none".into());
            }
            Ok(Some(CoDelOptions { target, interval }))
        }
        _ => Err(expected()),
    }
}

fn show_queue(options: CoDelOptions) -> String {
    format!("codel:{},{}", Lapse(options.target), Lapse(options.interval))
}
