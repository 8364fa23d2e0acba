//! The callers of `fabric.load`: each a process that reads, over one way from caller to target, for the length of its
//! order.

use std::time::Duration;

use rustix::process::setsid;
use serde::{Deserialize, Serialize};
use verbena_fabric::Provider;

use super::Kind;
use super::caller::Caller;
use super::fabrics::Place;
use super::responder::{self, Asker};
use super::samples::Stretch;
use crate::child::{Answer, ON_CORE, hear, say};
use crate::error::BenchError;
use crate::report::FabricFound;

/// What such a process is asked for by.
pub(crate) const ROLE: &str = "calls";

/// A sample spans at least this: one operation, but where nothing is crossed.
const SHORTEST_SAMPLE: Duration = Duration::from_micros(1);

/// How a read gets from the caller to the target's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Xdp,
    XdpSteered,
    Shm,
    Verbs,
    VerbsPolled,
    Tcp,
    Responder,
}

impl Way {
    pub(super) const ALL: [Way; 7] =
        [Way::Xdp, Way::XdpSteered, Way::Shm, Way::Verbs, Way::VerbsPolled, Way::Tcp, Way::Responder];

    pub(super) fn name(self) -> &'static str {
        match self {
            Way::Xdp => "xdp, caller's core",
            Way::XdpSteered => "xdp, target's core",
            Way::Shm => "shm",
            Way::Verbs => "verbs, told",
            Way::VerbsPolled => Place::POLLED.name(),
            Way::Tcp => "tcp over a link",
            Way::Responder => responder::NAME,
        }
    }

    fn is(self) -> &'static str {
        match self {
            Way::Xdp => "what the target receives is done on the core of whoever sent it, as a virtual link has it",
            Way::XdpSteered => {
                "what the target receives is done on its own core by a thread of the kernel with real-time priority (threaded NAPI)"
            }
            Way::Shm => "memory that both have mapped",
            Way::Verbs => "adapters, of whose completions the caller is told by an interrupt",
            Way::VerbsPolled => "adapters, whose completions a thread of the caller looks for without a pause",
            Way::Tcp => "an agent thread of the target, over a virtual link",
            Way::Responder => responder::IS,
        }
    }

    /// Opens it to a target on this core.
    fn open(self, core: &str) -> Result<Calls, String> {
        let before = [ON_CORE, core];
        let start = |place| Caller::start(place, &before).map_err(|error| error.to_string());
        Ok(match self {
            Way::Xdp => Calls::Fabric(start(Place::of(Provider::Xdp))?),
            Way::XdpSteered => {
                let mut caller = start(Place::of(Provider::Xdp))?;
                caller.receive_on(core.parse().map_err(|_| format!("{core} is no number of a core"))?)?;
                Calls::Fabric(caller)
            }
            Way::Shm => Calls::Fabric(start(Place::of(Provider::Shm))?),
            Way::Verbs => Calls::Fabric(start(Place::of(Provider::Verbs))?),
            Way::VerbsPolled => Calls::Fabric(start(Place::POLLED)?),
            Way::Tcp => Calls::Fabric(start(Place::linked(Provider::Tcp))?),
            Way::Responder => Calls::Responder(Asker::start(&before).map_err(|error| error.to_string())?),
        })
    }
}

/// What a process says when it is ready.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Ready {
    pub(super) found: FabricFound,
    /// Whether the target's processes have no part in a read.
    pub(super) is_one_sided: bool,
    /// The most bytes of a read.
    pub(super) largest: usize,
}

/// A stretch of reads.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) bytes: usize,
    pub(super) length: Duration,
}

enum Calls {
    Fabric(Caller),
    Responder(Asker),
}

/// Reads over the way of this name from a target on core `core`. Answers are stretches, but for the first.
pub(crate) fn serve(name: &str, core: &str) -> Result<(), String> {
    let way = Way::ALL.into_iter().find(|way| way.name() == name).ok_or_else(|| format!("no way is called {name}"))?;
    let mut calls = way.open(core)?;
    // The kernel gives each session a share of a core by what it runs on all of them (autogroup). In that of the busy threads, where the target
    // stays, next to nothing would be left for the caller as soon as anything else runs on its core. It fails for the head of a session alone.
    let _ = setsid();
    say(&Answer::Done(calls.ready(way)))?;
    while let Some(order) = hear::<Order>()? {
        say(&match calls.stretch(order) {
            Ok(stretch) => Answer::Done(stretch),
            Err(error) => Answer::Failed(error.to_string()),
        })?;
    }
    Ok(())
}

impl Calls {
    fn ready(&self, way: Way) -> Ready {
        let (name, because) = (way.name().to_owned(), way.is().to_owned());
        match self {
            Calls::Fabric(caller) => {
                let capabilities = caller.capabilities();
                Ready {
                    found: FabricFound { name, ..FabricFound::measured(capabilities, because) },
                    is_one_sided: capabilities.target_cpu_free,
                    largest: caller.largest(Kind::Read),
                }
            }
            Calls::Responder(_) => {
                let found = FabricFound { name, measured: true, because, capabilities: None };
                Ready { found, is_one_sided: false, largest: 8 }
            }
        }
    }

    fn stretch(&mut self, Order { bytes, length }: Order) -> Result<Stretch, BenchError> {
        match self {
            Calls::Fabric(caller) => {
                let read = caller.sleeping(Kind::Read, bytes);
                caller.stretch(&read, length, SHORTEST_SAMPLE)
            }
            Calls::Responder(asker) => asker.stretch(length, SHORTEST_SAMPLE),
        }
    }
}
