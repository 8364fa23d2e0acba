//! What happened, as a running hash and, if asked for, as text.
//!
//! The hash takes in every event of the world in order (time, kind, who, two numbers), so two runs with one digest were
//! the same run. Notes of a scenario are commentary: they stand in the text and not in the hash, so that a run without
//! text costs nothing for them.

use std::collections::VecDeque;
use std::fmt;
use std::hash::Hasher;

use siphasher::sip::SipHasher13;
use verbena_terms::{Incarnation, Time};

/// Lines that a [`Log::Tail`] keeps.
const TAIL_LINES: usize = 120;

/// How much text a world keeps of what happens in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Log {
    /// None.
    #[default]
    Off,
    /// The last lines; printed if the run panics.
    Tail,
    /// All of it, for [`World::log`](super::World::log).
    Whole,
    /// All of it, printed to standard error as it happens.
    Print,
}

/// What kind of event. The numbers are part of the digest: new ones go to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum What {
    Start = 1,
    Crash,
    Pause,
    Resume,
    ClockJump,
    Register,
    Remake,
    GiveUp,
    OwnerStore,
    OwnerWrite,
    OwnerCompareSwap,
    OwnerFetchAdd,
    Post,
    Settle,
    Lost,
    Held,
    Refuse,
    ReadWord,
    WriteWord,
    CompareSwap,
    FetchAdd,
    ReadPart,
    WritePart,
    Swallow,
    SettleAnswer,
    Answer,
    LateAnswer,
    Deadline,
    Send,
    Deliver,
    Misaddressed,
    Wake,
    Cut,
    Heal,
    Clog,
}

/// One event: `a` and `b` mean what the text says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub(super) what: What,
    pub(super) node: Incarnation,
    pub(super) other: Incarnation,
    pub(super) a: u64,
    pub(super) b: u64,
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Record { what, node, other, a, b } = *self;
        match what {
            What::Start => write!(f, "{node} starts"),
            What::Crash => write!(f, "{node} is gone"),
            What::Pause => write!(f, "{node} is paused until {}", Time::from_nanos(a)),
            What::Resume => write!(f, "{node} goes on, {a} events waited"),
            What::ClockJump => write!(f, "{node}: clock jumps by {a} ns"),
            What::Register => write!(f, "{node} makes region {a} of {b} bytes"),
            What::Remake => write!(f, "{node} makes region {a} anew in v{b}"),
            What::GiveUp => write!(f, "{node} gives up region {a}"),
            What::OwnerStore => write!(f, "{node} stores {b:#x} at {a}"),
            What::OwnerWrite => write!(f, "{node} writes {b} bytes at {a}"),
            What::OwnerCompareSwap => write!(f, "{node} compare-swaps at {a}, finds {b:#x}"),
            What::OwnerFetchAdd => write!(f, "{node} fetch-adds at {a}, finds {b:#x}"),
            What::Post => write!(f, "{node} -> {other}: posts {a} elements, first effect #{b}"),
            What::Settle => write!(f, "{node} -> {other}: settles #{a}"),
            What::Lost => write!(f, "{node} -> {other}: a frame is lost"),
            What::Held => write!(f, "{node} -> {other}: a frame is held until the link heals"),
            What::Refuse => write!(f, "{node} refuses {other}'s element {a}, region {b}"),
            What::ReadWord => write!(f, "{node} for {other}: read at {a} gives {b:#x}"),
            What::WriteWord => write!(f, "{node} for {other}: write at {a} of {b:#x}"),
            What::CompareSwap => write!(f, "{node} for {other}: compare-swap at {a} finds {b:#x}"),
            What::FetchAdd => write!(f, "{node} for {other}: fetch-add at {a} finds {b:#x}"),
            What::ReadPart => write!(f, "{node} for {other}: read of {b} bytes at {a}"),
            What::WritePart => write!(f, "{node} for {other}: write of {b} bytes at {a}"),
            What::Swallow => write!(f, "{node}: the window swallows a copy of {other}'s #{a}"),
            What::SettleAnswer => {
                write!(f, "{node} for {other}: #{a} is {}", ["barred", "executed", "unknown"][b as usize])
            }
            What::Answer => write!(f, "{node} <- {other}: {}", ["done", "refused"][a as usize]),
            What::LateAnswer => write!(f, "{node} <- {other}: an answer that nobody waits for"),
            What::Deadline => write!(f, "{node} -> {other}: no answer in time, #{a} to #{b} unknown"),
            What::Send => write!(f, "{node} -> {other}: message {b} to port {a}"),
            What::Deliver => write!(f, "{node} <- {other}: message {b} to port {a}"),
            What::Misaddressed => write!(f, "{node} is not {other}: a frame is dropped"),
            What::Wake => write!(f, "{node}: wake {a}"),
            What::Cut => write!(f, "link {} -> {} is cut", node.rank, other.rank),
            What::Heal => write!(f, "link {} -> {} is healed", node.rank, other.rank),
            What::Clog => write!(f, "link {} -> {} is clogged until {}", node.rank, other.rank, Time::from_nanos(a)),
        }
    }
}

/// The record of one world.
pub(super) struct Trace {
    seed: u64,
    log: Log,
    hasher: SipHasher13,
    lines: VecDeque<String>,
}

impl Trace {
    pub(super) fn new(seed: u64, log: Log) -> Self {
        Trace { seed, log, hasher: SipHasher13::new(), lines: VecDeque::new() }
    }

    pub(super) fn record(&mut self, now: u64, record: Record) {
        for word in [now, record.what as u64, record.node.to_word(), record.other.to_word(), record.a, record.b] {
            self.hasher.write_u64(word);
        }
        if self.log != Log::Off {
            self.line(now, format_args!("{record}"));
        }
    }

    pub(super) fn note(&mut self, now: u64, text: fmt::Arguments<'_>) {
        if self.log != Log::Off {
            self.line(now, format_args!("    {text}"));
        }
    }

    pub(super) fn digest(&self) -> u64 {
        self.hasher.finish()
    }

    pub(super) fn text(&self) -> String {
        self.lines.iter().map(String::as_str).collect()
    }

    /// What a run that panicked leaves behind.
    pub(super) fn last_words(&self) {
        if self.log == Log::Tail {
            eprintln!("the last {} events of seed {}:\n{}", self.lines.len(), self.seed, self.text());
        }
    }

    fn line(&mut self, now: u64, text: fmt::Arguments<'_>) {
        let at = format_args!("{}.{:09}", now / 1_000_000_000, now % 1_000_000_000).to_string();
        if self.log == Log::Print {
            eprintln!("{at} {text}");
            return;
        }
        if self.log == Log::Tail && self.lines.len() == TAIL_LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(format!("{at} {text}\n"));
    }
}
