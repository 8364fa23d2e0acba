//! Everything that a world is, behind one lock: the queue of what will happen, and the dispatch of what happens next.

use std::collections::BTreeMap;
use std::mem;

use parking_lot::Mutex;
use smallvec::SmallVec;
use verbena_terms::{Incarnation, Rank, Time};

use crate::capability::Capabilities;
use crate::completion::Completer;
use crate::error::Result;
use crate::message::{InboxSender, Message, Port};
use crate::operation::{Completed, Settled};

use super::caller::Post;
use super::dice::{Dice, nanos};
use super::executor::Frame;
use super::faults::Faults;
use super::memory::Memory;
use super::network::Link;
use super::node::{Node, NodeClock};
use super::slab::Slab;
use super::trace::{Log, Record, Trace, What};

/// A world, shared by its owner and by the fabrics of its nodes.
pub(super) struct Shared {
    pub(super) capabilities: Capabilities,
    state: Mutex<State>,
}

impl Shared {
    pub(super) fn new(seed: u64, log: Log, faults: Faults, capabilities: Capabilities) -> Self {
        Shared { state: Mutex::new(State::new(seed, log, faults, capabilities.clone())), capabilities }
    }

    /// Works on the state. What goes to the programs of the nodes (results, messages) goes after the lock was given
    /// back, because it wakes wakers, and those may call again.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock();
        let result = work(&mut state);
        let outgoing = mem::take(&mut state.outgoing);
        drop(state);
        for one in outgoing {
            match one {
                Outgoing::Batch(completer, result) => completer.complete(result),
                Outgoing::Settle(completer, result) => completer.complete(result),
                Outgoing::Message(inboxes, message) => inboxes.deliver(message),
            }
        }
        result
    }
}

/// What a program of a node gets to see.
pub(super) enum Outgoing {
    Batch(Completer<Completed>, Result<Completed>),
    Settle(Completer<Settled>, Result<Settled>),
    Message(InboxSender, Message),
}

/// What happened in one step of a world, as far as a driver of the nodes' programs must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A moment that was asked for: [`World::wake_at`](super::World::wake_at) or, with a node,
    /// [`World::wake_node_at`](super::World::wake_node_at).
    Wake {
        /// The node, if it is a node's.
        node: Option<Incarnation>,
        /// As it was given.
        token: u64,
    },
    /// A message came to a node: look into the inbox of this port.
    Message {
        /// The receiver.
        node: Incarnation,
        /// Where.
        port: Port,
    },
    /// An operation that a node posted, or a settlement, has ended: poll what it waits for.
    Completed {
        /// The node that posted it.
        node: Incarnation,
    },
    /// A node goes on after a pause. What had come meanwhile follows in the next steps.
    Resumed {
        /// Which.
        node: Incarnation,
    },
    /// Something on the network or in a node's memory, of which no program learns.
    Inside,
}

/// What the queue holds.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// A request comes to its target.
    Arrive(usize),
    /// The next element of a request is executed.
    Execute(usize),
    /// An answer comes back.
    Answer(usize),
    /// The deadline of a posted operation.
    Deadline(usize),
    /// A message comes to its target.
    Message(usize),
    /// A node wants to be woken.
    Wake { node: Option<usize>, token: u64 },
    /// The pause of a node ends, if it is still this one.
    Resume { node: usize, until: u64 },
}

/// When, and in which order of scheduling at that time.
pub(super) type Moment = (u64, u64);

/// A message on its way.
pub(super) struct Flying {
    pub(super) sender: usize,
    pub(super) to: Incarnation,
    pub(super) message: Message,
}

pub(super) struct State {
    pub(super) now: u64,
    scheduled: u64,
    queue: BTreeMap<Moment, Event>,
    pub(super) faults: Faults,
    pub(super) capabilities: Capabilities,
    pub(super) dice: Dice,
    pub(super) secrets: Dice,
    pub(super) trace: Trace,
    /// All incarnations that ever were.
    pub(super) nodes: Vec<Node>,
    /// The machine of a rank's incarnations, where it is not the one of that number.
    pub(super) settled: BTreeMap<Rank, Rank>,
    /// The incarnation that runs (or ran last) on each machine.
    pub(super) newest: BTreeMap<Rank, usize>,
    /// Between machines.
    pub(super) links: BTreeMap<(Rank, Rank), Link>,
    /// What waits for a link to heal.
    pub(super) held: Vec<(Rank, Rank, Event)>,
    pub(super) posts: Slab<Post>,
    pub(super) frames: Slab<Frame>,
    pub(super) flying: Slab<Flying>,
    pub(super) memories: Slab<Memory>,
    pub(super) outgoing: SmallVec<[Outgoing; 1]>,
}

impl State {
    fn new(seed: u64, log: Log, faults: Faults, capabilities: Capabilities) -> Self {
        State {
            now: 0,
            scheduled: 0,
            queue: BTreeMap::new(),
            faults,
            capabilities,
            dice: Dice::stream(seed, 1),
            secrets: Dice::stream(seed, 2),
            trace: Trace::new(seed, log),
            nodes: Vec::new(),
            settled: BTreeMap::new(),
            newest: BTreeMap::new(),
            links: BTreeMap::new(),
            held: Vec::new(),
            posts: Slab::new(),
            frames: Slab::new(),
            flying: Slab::new(),
            memories: Slab::new(),
            outgoing: SmallVec::new(),
        }
    }

    /// When the next event is.
    pub(super) fn next_at(&self) -> Option<u64> {
        self.queue.first_key_value().map(|(&(at, _), _)| at)
    }

    /// Lets the next event happen.
    pub(super) fn step(&mut self) -> Option<Step> {
        let ((at, _), event) = self.queue.pop_first()?;
        self.now = at;
        Some(self.happen(event))
    }

    fn happen(&mut self, event: Event) -> Step {
        match event {
            Event::Arrive(frame) => self.arrive(frame),
            Event::Execute(frame) => self.execute(frame),
            Event::Answer(frame) => self.answer(frame),
            Event::Deadline(post) => self.deadline(post),
            Event::Message(flying) => self.deliver(flying),
            Event::Wake { node, token } => self.wake(node, token),
            Event::Resume { node, until } if self.nodes[node].paused_until == Some(until) => self.go_on(node),
            Event::Resume { .. } => Step::Inside,
        }
    }

    pub(super) fn schedule(&mut self, at: u64, event: Event) -> Moment {
        self.scheduled += 1;
        let moment = (at.max(self.now), self.scheduled);
        self.queue.insert(moment, event);
        moment
    }

    pub(super) fn unschedule(&mut self, moment: Moment) {
        self.queue.remove(&moment);
    }

    pub(super) fn record(&mut self, what: What, node: Incarnation, other: Incarnation, a: u64, b: u64) {
        self.trace.record(self.now, Record { what, node, other, a, b });
    }

    /// Starts an incarnation on its rank's machine. The one before it there is gone (C1).
    pub(super) fn start(&mut self, incarnation: Incarnation) -> usize {
        let machine = self.machine(incarnation.rank);
        if let Some(&before) = self.newest.get(&machine) {
            assert!(self.nodes[before].incarnation < incarnation, "{incarnation} has lived already");
            self.crash(before);
        }
        let drift_ppm = i64::from(self.faults.clock_drift_ppm);
        let clock = NodeClock {
            ahead: self.dice.below(nanos(self.faults.clock_spread) + 1),
            drift_ppm: self.dice.below(2 * drift_ppm as u64 + 1) as i64 - drift_ppm,
        };
        let node = self.nodes.len();
        self.nodes.push(Node::new(incarnation, clock));
        self.newest.insert(machine, node);
        self.record(What::Start, incarnation, incarnation, clock.ahead, drift_ppm.unsigned_abs());
        node
    }

    /// Ends an incarnation: its memory and windows are gone, and its own operations are abandoned. What it sent is
    /// still under way.
    pub(super) fn crash(&mut self, node: usize) {
        if !mem::replace(&mut self.nodes[node].alive, false) {
            return;
        }
        let incarnation = self.nodes[node].incarnation;
        self.record(What::Crash, incarnation, incarnation, 0, 0);
        if self.nodes[node].leaves_memory {
            return self.end_program(node);
        }
        for region in mem::take(&mut self.nodes[node].regions).into_iter().flatten() {
            self.let_go(region.memory);
        }
        self.nodes[node].windows.clear();
        for frame in mem::take(&mut self.nodes[node].turns).into_values().flat_map(|turn| turn.into_iter().skip(1)) {
            self.drop_frame(frame);
        }
        self.end_program(node);
    }

    /// Abandons its own operations, and drops what waited for it to go on.
    fn end_program(&mut self, node: usize) {
        let posted: Vec<usize> = self.posts.taken().filter(|&post| self.posts[post].caller == node).collect();
        for post in posted {
            self.abandon(post);
        }
        for event in mem::take(&mut self.nodes[node].deferred) {
            // At a node that is gone, all that happens is that things are dropped; its deadlines went with its
            // operations.
            if !matches!(event, Event::Deadline(_)) {
                self.happen(event);
            }
        }
    }

    /// A node's processes stand still, and where they execute for others, that too.
    pub(super) fn pause(&mut self, node: usize, until: u64) {
        if !self.nodes[node].alive {
            return;
        }
        self.nodes[node].paused_until = Some(until);
        let incarnation = self.nodes[node].incarnation;
        self.record(What::Pause, incarnation, incarnation, until, 0);
        if until < u64::MAX {
            self.schedule(until, Event::Resume { node, until });
        }
    }

    /// Ends a pause now, in the next step.
    pub(super) fn resume(&mut self, node: usize) {
        if let Some(until) = self.nodes[node].paused_until {
            self.schedule(self.now, Event::Resume { node, until });
        }
    }

    /// A node goes on: everything that waited happens now. In half of the cases its timers and deadlines come first:
    /// which of two things that are both overdue a program sees first is not its choice.
    fn go_on(&mut self, node: usize) -> Step {
        self.nodes[node].paused_until = None;
        let incarnation = self.nodes[node].incarnation;
        let mut deferred = mem::take(&mut self.nodes[node].deferred);
        self.record(What::Resume, incarnation, incarnation, deferred.len() as u64, 0);
        if self.dice.happens(500) {
            deferred.sort_by_key(|event| !matches!(event, Event::Wake { .. } | Event::Deadline(_)));
        }
        for event in deferred {
            match event {
                Event::Deadline(post) => {
                    let moment = self.schedule(self.now, event);
                    self.posts[post].deadline = Some(moment);
                }
                _ => {
                    self.schedule(self.now, event);
                }
            }
        }
        Step::Resumed { node: incarnation }
    }

    /// Keeps an event for later if it is for the processes of a node that stands still.
    pub(super) fn wait_for(&mut self, node: usize, event: Event) -> bool {
        let waits = self.nodes[node].alive && self.nodes[node].paused_until.is_some();
        if waits {
            self.nodes[node].deferred.push(event);
        }
        waits
    }

    /// Lets a clock jump forward. Deadlines and timers on it come that much earlier.
    pub(super) fn jump_clock(&mut self, node: usize, by: u64) {
        let before = self.nodes[node].clock;
        self.nodes[node].clock.ahead += by;
        let after = self.nodes[node].clock;
        // When it shows what it would have shown: not a moment sooner, or a program would take its timer for a stale one.
        let sooner = |at: u64| after.world(before.local(at));
        let incarnation = self.nodes[node].incarnation;
        self.record(What::ClockJump, incarnation, incarnation, by, 0);
        let posted: Vec<usize> = self.posts.taken().filter(|&post| self.posts[post].caller == node).collect();
        for post in posted {
            if let Some(moment @ (at, _)) = self.posts[post].deadline
                && self.queue.remove(&moment).is_some()
            {
                let moment = self.schedule(sooner(at), Event::Deadline(post));
                self.posts[post].deadline = Some(moment);
            }
        }
        let is_timer = |event: &Event| matches!(event, Event::Wake { node: Some(owner), .. } if *owner == node);
        let timers: Vec<Moment> =
            self.queue.iter().filter(|(_, event)| is_timer(event)).map(|(&moment, _)| moment).collect();
        for moment in timers {
            if let Some(event) = self.queue.remove(&moment) {
                self.schedule(sooner(moment.0), event);
            }
        }
    }

    fn wake(&mut self, node: Option<usize>, token: u64) -> Step {
        let Some(index) = node else {
            self.record(What::Wake, Incarnation::default(), Incarnation::default(), token, 0);
            return Step::Wake { node: None, token };
        };
        if !self.nodes[index].alive || self.wait_for(index, Event::Wake { node, token }) {
            return Step::Inside;
        }
        let incarnation = self.nodes[index].incarnation;
        self.record(What::Wake, incarnation, incarnation, token, 0);
        Step::Wake { node: Some(incarnation), token }
    }

    /// The machine that incarnations of this rank are on.
    pub(super) fn machine(&self, rank: Rank) -> Rank {
        self.settled.get(&rank).copied().unwrap_or(rank)
    }

    /// The incarnation that runs, or ran last, on the machine of this rank.
    pub(super) fn newest_at(&self, rank: Rank) -> Option<usize> {
        self.newest.get(&self.machine(rank)).copied()
    }

    /// The clock of a machine.
    pub(super) fn clock_of(&self, machine: Rank) -> NodeClock {
        self.newest.get(&machine).map_or(NodeClock { ahead: 0, drift_ppm: 0 }, |&node| self.nodes[node].clock)
    }

    /// What a node's clock shows.
    pub(super) fn local_time(&self, node: usize) -> Time {
        Time::from_nanos(self.nodes[node].clock.local(self.now))
    }

    /// One holder less of a memory.
    pub(super) fn let_go(&mut self, memory: usize) {
        self.memories[memory].holders -= 1;
        if self.memories[memory].holders == 0 {
            self.memories.remove(memory);
        }
    }
}
