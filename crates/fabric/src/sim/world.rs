//! The world that a scenario drives: its time, its steps, and what befalls its nodes and links.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use verbena_terms::{Clock, Incarnation, Rank, Time};

use crate::capability::{AtomicScope, Atomics, BatchTrips, Capabilities, Classes, Executor, Ordering};
use crate::completion::Pending;
use crate::error::Result;
use crate::provider::Fabric;

use super::dice::nanos;
use super::faults::Faults;
use super::network::Outage;
use super::provider::SimFabric;
use super::seeds::Seed;
use super::state::{Event, Shared, State, Step};

/// What the simulator promises by default: the least that the contract allows, but for the processor of the target,
/// which is free. Atomics are atomic against each other only, batches are not ordered.
pub const fn capabilities() -> Capabilities {
    Capabilities {
        provider: "sim",
        executor: Executor::Simulator,
        changes: Executor::Simulator,
        target_cpu_free: true,
        atomic_scope: AtomicScope::Fabric,
        atomics: Atomics::Native,
        largest_read: 64 << 10,
        largest_write: 64 << 10,
        largest_message: 64 << 10,
        largest_by_adapter: 0,
        batch: BatchTrips::One,
        ordering: Ordering::None,
        zero_copy: false,
        pins_memory: false,
        classes: Classes::Separate,
        synchronous: false,
        crosses_machines: true,
    }
}

/// Many nodes in virtual time. Nothing happens but in [`step`](Self::step), and what happens is decided by the seed.
///
/// For one thread: it would be no error to use it from several, but the order of their calls would not be the seed's.
pub struct World {
    shared: Arc<Shared>,
}

impl World {
    /// An empty world.
    pub fn new(seed: impl Into<Seed>, faults: Faults) -> Self {
        World::with_capabilities(seed, faults, capabilities())
    }

    /// An empty world whose fabrics have other capabilities. What only a real provider can be (synchronous, zero
    /// copy) is not taken over.
    pub fn with_capabilities(seed: impl Into<Seed>, faults: Faults, asked: Capabilities) -> Self {
        let seed = seed.into();
        let Capabilities { provider, executor, zero_copy, synchronous, .. } = capabilities();
        let capabilities = Capabilities { provider, executor, zero_copy, synchronous, ..asked };
        World { shared: Arc::new(Shared::new(seed.number(), seed.log(), faults, capabilities)) }
    }

    /// Sets the machine of a rank's incarnations, where each incarnation has a rank of its own: links, addresses and
    /// clocks belong to machines. The default is the machine of the same number.
    pub fn settle(&self, rank: Rank, machine: Rank) {
        self.shared.with(|state| state.settled.insert(rank, machine));
    }

    /// Starts an incarnation and gives its fabric. The one on its rank's machine until now has crashed.
    ///
    /// Panics if this or a later incarnation has run there before (C1).
    pub fn node(&self, incarnation: Incarnation) -> Arc<dyn Fabric> {
        let (node, inboxes) = self.shared.with(|state| {
            let node = state.start(incarnation);
            (node, state.nodes[node].inboxes.clone())
        });
        Arc::new(SimFabric::new(self.shared.clone(), node, incarnation, inboxes))
    }

    /// Starts another incarnation in a process that goes on, and gives its fabric: as [`node`](Self::node), but the clock stays.
    pub fn next_life(&self, incarnation: Incarnation) -> Arc<dyn Fabric> {
        let clock = self.shared.with(|state| state.clock_of(state.machine(incarnation.rank)));
        let fabric = self.node(incarnation);
        self.on(incarnation, |state, node| state.nodes[node].clock = clock);
        fabric
    }

    /// The clock of a machine, for what outlives an incarnation there. It shows nothing before the first.
    pub fn clock(&self, machine: Rank) -> Arc<dyn Clock> {
        Arc::new(MachineClock { world: self.shared.clone(), machine })
    }

    /// Time of the world. No node sees it: they have clocks of their own, on their fabrics.
    pub fn now(&self) -> Time {
        self.shared.with(|state| Time::from_nanos(state.now))
    }

    /// When the next event is, if there is one.
    pub fn next_at(&self) -> Option<Time> {
        self.shared.with(|state| state.next_at().map(Time::from_nanos))
    }

    /// Lets the next event happen and says what it was. `None` if nothing is left to happen.
    pub fn step(&self) -> Option<Step> {
        self.shared.with(State::step)
    }

    /// Lets the next event happen if it is not after `limit`; otherwise it becomes `limit`, and `None`.
    pub fn step_before(&self, limit: Time) -> Option<Step> {
        self.shared.with(|state| {
            if state.next_at().is_some_and(|at| at <= limit.nanos()) {
                return state.step();
            }
            state.now = state.now.max(limit.nanos());
            None
        })
    }

    /// Runs everything until `time`, without a look by any program: for scenarios whose nodes run no programs.
    pub fn run_until(&self, time: Time) {
        while self.step_before(time).is_some() {}
    }

    /// Runs everything until `condition` holds, without a look by any program. False if it does not hold by `limit`.
    pub fn run_until_true(&self, mut condition: impl FnMut() -> bool, limit: Time) -> bool {
        loop {
            if condition() {
                return true;
            }
            if self.step_before(limit).is_none() {
                return condition();
            }
        }
    }

    /// Runs everything until an operation has ended, without a look by any program.
    ///
    /// Panics if it cannot end any more: posted without a deadline, or by a node that is paused for ever.
    pub fn finish<T>(&self, mut pending: Pending<T>) -> Result<T> {
        loop {
            if let Some(result) = pending.poll_now() {
                return result;
            }
            assert!(self.step().is_some(), "nothing is left to happen, and the operation has not ended");
        }
    }

    /// Asks for [`Step::Wake`] at a time of the world: for the scenario itself.
    pub fn wake_at(&self, time: Time, token: u64) {
        self.shared.with(|state| state.schedule(time.nanos(), Event::Wake { node: None, token }));
    }

    /// Asks for [`Step::Wake`] at a time on a node's own clock: for the program that runs on it. It comes late if the
    /// node is paused then, and never if it crashed.
    pub fn wake_node_at(&self, node: Incarnation, time: Time, token: u64) {
        self.on(node, |state, node| {
            let at = state.nodes[node].clock.world(time.nanos());
            state.schedule(at, Event::Wake { node: Some(node), token });
        });
    }

    /// Other knobs from now on. What is under way is not changed, nor are the clocks.
    pub fn set_faults(&self, faults: Faults) {
        self.shared.with(|state| state.faults = faults);
    }

    /// Stops a node's processes for a while (`Duration::MAX`: until [`resume`](Self::resume)). Its program gets no
    /// step meanwhile and must not be driven; its clock goes on. Where the target's processor is not free
    /// ([`Capabilities::target_cpu_free`]) operations on its memory wait too, and are executed late.
    pub fn pause(&self, node: Incarnation, length: Duration) {
        self.on(node, |state, node| {
            let until = match length {
                Duration::MAX => u64::MAX,
                _ => state.now.saturating_add(nanos(length)),
            };
            state.pause(node, until);
        });
    }

    /// Ends a pause before its time: the next step is [`Step::Resumed`].
    pub fn resume(&self, node: Incarnation) {
        self.on(node, |state, node| state.resume(node));
    }

    /// Whether a node stands still.
    pub fn is_paused(&self, node: Incarnation) -> bool {
        self.on(node, |state, node| state.nodes[node].paused_until.is_some())
    }

    /// Ends an incarnation, as kill -9 and a loss of power do. What it sent before still arrives. The node starts again
    /// as [`node`](Self::node) with a larger start number.
    pub fn crash(&self, node: Incarnation) {
        self.on(node, |state, node| state.crash(node));
    }

    /// Whenever this incarnation ends, what executes one-sided operations goes on without its process: an adapter, or
    /// peers that have the memory mapped. Its regions are read and written as they were left, also while the next
    /// incarnation runs there. Where the target's processor is needed nothing is left.
    pub fn leave_memory(&self, node: Incarnation) {
        self.on(node, |state, node| state.nodes[node].leaves_memory = state.capabilities.target_cpu_free);
    }

    /// Whether this incarnation finds no memory for another region from now on. Those that it has stay.
    pub fn set_short_of_memory(&self, node: Incarnation, is_short: bool) {
        self.on(node, |state, node| state.nodes[node].is_short = is_short);
    }

    /// Cuts one way between two machines.
    pub fn partition_one_way(&self, from: Rank, to: Rank, outage: Outage) {
        self.shared.with(|state| state.cut(from, to, outage));
    }

    /// Cuts both ways between two machines. Frames are lost or held, as the seed says.
    pub fn partition(&self, one: Rank, other: Rank) {
        self.partition_one_way(one, other, Outage::Either);
        self.partition_one_way(other, one, Outage::Either);
    }

    /// Cuts both ways between a machine and each machine that has had an incarnation so far.
    pub fn isolate(&self, node: Rank) {
        let others: Vec<Rank> = self.shared.with(|state| state.newest.keys().copied().collect());
        for other in others.into_iter().filter(|other| *other != node) {
            self.partition(node, other);
        }
    }

    /// Heals both ways between two machines.
    pub fn heal(&self, one: Rank, other: Rank) {
        self.shared.with(|state| {
            state.heal(one, other);
            state.heal(other, one);
        });
    }

    /// Heals everything that is cut.
    pub fn heal_all(&self) {
        self.shared.with(State::heal_all);
    }

    /// Clogs one way: what is sent on it for a while arrives after it.
    pub fn clog(&self, from: Rank, to: Rank, length: Duration) {
        self.shared.with(|state| state.clog(from, to, nanos(length)));
    }

    /// Lets a node's clock jump forward, as that of a virtual machine does that was stopped and moved.
    pub fn jump_clock(&self, node: Incarnation, by: Duration) {
        self.on(node, |state, node| state.jump_clock(node, nanos(by)));
    }

    /// A line of the scenario in the log. The digest does not include it, and it costs nothing where no log is kept.
    pub fn note(&self, text: fmt::Arguments<'_>) {
        self.shared.with(|state| state.trace.note(state.now, text));
    }

    /// A hash of everything that has happened: two runs with one digest were the same run.
    pub fn digest(&self) -> u64 {
        self.shared.with(|state| state.trace.digest())
    }

    /// The log, one event a line, as far as it was kept.
    pub fn log(&self) -> String {
        self.shared.with(|state| state.trace.text())
    }

    fn on<T>(&self, node: Incarnation, work: impl FnOnce(&mut State, usize) -> T) -> T {
        self.shared.with(|state| {
            let found = state.nodes.iter().position(|known| known.incarnation == node);
            let node = found.unwrap_or_else(|| panic!("{node} has never lived in this world"));
            work(state, node)
        })
    }
}

struct MachineClock {
    world: Arc<Shared>,
    machine: Rank,
}

impl Clock for MachineClock {
    fn now(&self) -> Time {
        self.world.with(|state| Time::from_nanos(state.clock_of(self.machine).local(state.now)))
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shared.with(|state| state.trace.last_words());
        }
    }
}
