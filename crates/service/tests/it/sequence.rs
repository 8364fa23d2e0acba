//! A service written from nothing: a sequence that all nodes share. docs/internals/SERVICE.md explains it, block by block.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use verbena_cluster::{Lease, View};
use verbena_fabric::{self as fabric, Batch, Class, Completed, Fabric, Operation, Port, Region, RegionKey, Rights};
use verbena_service::batches::{End, Request};
use verbena_service::driver::{self, Driver, Host, Machine};
use verbena_service::endpoint::{Endpoint, Ports};
use verbena_terms::{Clock, Incarnation, Time, ViewNumber};

/// How long a node waits for the home's key before it asks again.
const ASK_AGAIN: Duration = Duration::from_millis(5);

/// A node's part in the sequence.
pub struct Sequence {
    rules: Rules,
    me: Incarnation,
    view: Option<Arc<View>>,
    lease: Lease,
    /// Of the home's counter, in this view.
    key: Option<RegionKey>,
    ask_at: Time,
    /// Numbers that callers wait for, and whether the batch of each is in flight.
    waiting: BTreeMap<u64, bool>,
}

/// What the machine wants done.
pub enum Action {
    Add { id: u64, home: Incarnation },
    Open(RegionKey),
    Send(Incarnation, Message),
    Answer { id: u64, number: u64 },
}

/// What nodes say to each other. May be lost or come twice.
#[derive(Serialize, Deserialize)]
pub struct Message {
    from: Incarnation,
    view: ViewNumber,
    /// The counter's key; none in a message that asks for it.
    key: Option<RegionKey>,
}

/// The rules that make the promise hold. A test switches each off and must see the promise broken.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// A number is taken in a view that is in effect (C3).
    pub view_in_effect: bool,
    /// A number begins with its view, because each view begins to count anew.
    pub view_in_number: bool,
}

impl Sequence {
    pub fn new(rules: Rules) -> Self {
        let (me, lease) = (Incarnation::default(), Lease::NONE);
        Sequence { rules, me, view: None, lease, key: None, ask_at: Time::ZERO, waiting: BTreeMap::new() }
    }

    /// A caller wants the next number; [`Action::Answer`] gives it.
    pub fn take(&mut self, id: u64, now: Time, out: &mut Vec<Action>) {
        self.waiting.insert(id, false);
        self.add_all(now, out);
    }

    /// The node whose memory has the counter: the member of the lowest rank.
    pub fn home(view: &View) -> Option<Incarnation> {
        view.members().iter().map(|member| member.incarnation).min()
    }

    /// Posts an addition for each caller that waits, if the node may act and knows the counter's key.
    fn add_all(&mut self, now: Time, out: &mut Vec<Action>) {
        let (Some(view), Some(key)) = (&self.view, &self.key) else { return };
        let acts_in = if self.rules.view_in_effect { self.lease.in_effect_at(now) } else { self.lease.valid_at(now) };
        if acts_in != Some(view.number()) {
            return;
        }
        for (id, is_in_flight) in &mut self.waiting {
            if !std::mem::replace(is_in_flight, true) {
                out.push(Action::Add { id: *id, home: key.owner });
            }
        }
    }

    fn say(&self, to: Incarnation, key: Option<RegionKey>, out: &mut Vec<Action>) {
        if let Some(view) = &self.view {
            out.push(Action::Send(to, Message { from: self.me, view: view.number(), key }));
        }
    }
}

impl Machine for Sequence {
    type Action = Action;
    type Frame = Message;
    type Batch = Add;

    fn start_incarnation(&mut self, me: Incarnation, _: &mut Vec<Action>) {
        let waiting = self.waiting.keys().map(|id| (*id, false)).collect();
        *self = Sequence { me, waiting, ..Sequence::new(self.rules) };
    }

    fn lease(&mut self, lease: Lease, _: Time, _: &mut Vec<Action>) {
        self.lease = lease;
    }

    /// The counter is new in each view. What was in flight has no outcome: its number is given to no caller.
    fn view(&mut self, view: &Arc<View>, region: Option<RegionKey>, _: Time, out: &mut Vec<Action>) {
        (self.view, self.ask_at) = (Some(view.clone()), Time::ZERO);
        self.waiting.values_mut().for_each(|is_in_flight| *is_in_flight = false);
        out.extend(region.clone().map(Action::Open));
        self.key = region;
    }

    fn frame(&mut self, message: Message, now: Time, out: &mut Vec<Action>) {
        let Some(view) = self.view.as_ref().filter(|view| view.number() == message.view) else { return };
        match message.key {
            None => {
                let own = self.key.clone().filter(|key| key.owner == self.me);
                if own.is_some() {
                    self.say(message.from, own, out);
                }
            }
            Some(key) if Some(key.owner) == Sequence::home(view) && self.key.is_none() => {
                self.key = Some(key.clone());
                out.push(Action::Open(key));
                self.add_all(now, out);
            }
            Some(_) => {}
        }
    }

    /// The addition was executed after the caller asked, so its number counts whenever the answer comes.
    fn completed(&mut self, id: u64, count: u64, _: Time, out: &mut Vec<Action>) {
        let view = self.view.as_ref().filter(|_| self.rules.view_in_number).map_or(0, |view| view.number().0);
        self.waiting.remove(&id);
        out.push(Action::Answer { id, number: u64::from(view) << 32 | count });
    }

    fn tick(&mut self, now: Time, out: &mut Vec<Action>) {
        if self.key.is_none() && !self.waiting.is_empty() && now >= self.ask_at {
            self.ask_at = now + ASK_AGAIN;
            if let Some(home) = self.view.as_deref().and_then(Sequence::home) {
                self.say(home, None, out);
            }
        }
        self.add_all(now, out);
    }

    fn next_deadline(&self) -> Option<Time> {
        (self.key.is_none() && !self.waiting.is_empty()).then_some(self.ask_at)
    }
}

impl driver::Frame for Message {
    type Error = postcard::Error;

    fn decode(message: &fabric::Message) -> Result<Message, postcard::Error> {
        postcard::from_bytes(&message.body)
    }

    fn sender(&self) -> Incarnation {
        self.from
    }

    fn view(&self) -> Option<ViewNumber> {
        Some(self.view)
    }
}

/// One addition to the home's counter.
pub struct Add {
    id: u64,
    home: Incarnation,
    count: Option<u64>,
}

impl Request for Add {
    type Id = u64;
    type Outcome = u64;
    const TIMEOUT: Duration = Duration::from_millis(100);
    const SUBJECT: &'static str = "the sequence";

    fn id(&self) -> u64 {
        self.id
    }

    fn target(&self) -> Incarnation {
        self.home
    }

    fn batch(&mut self, _: &dyn Fabric) -> Option<(Batch, Class)> {
        Some((Batch::one(Operation::FetchAdd { at: 0, addend: 1 }), Class::Control))
    }

    fn completed(&mut self, done: Completed) {
        self.count = done.first().and_then(|done| done.word());
    }

    /// The answer was lost, and the home has said that the addition was executed.
    fn executed(&mut self, word: u64) {
        self.count = Some(word);
    }

    fn is_complete(&self) -> bool {
        self.count.is_some()
    }

    /// At [`End::Gone`] the caller waits for the next view.
    fn outcome(&mut self, end: End) -> Option<u64> {
        self.count.filter(|_| end == End::Complete)
    }
}

/// What a node has beside the fabric: the counter, if it is the home, and the answers.
#[derive(Default)]
pub struct Node {
    counter: Option<Box<dyn Region>>,
    pub answers: Vec<(u64, u64)>,
}

impl Host<Sequence> for Node {
    const PORTS: Ports = Ports::of_view(Port(77));

    fn act(
        &mut self,
        action: Action,
        _: &mut Sequence,
        endpoint: Option<&mut Endpoint<Add>>,
        now: Time,
        _: &mut VecDeque<Action>,
    ) {
        match (action, endpoint) {
            (Action::Answer { id, number }, _) => self.answers.push((id, number)),
            (Action::Add { id, home }, Some(endpoint)) => endpoint.submit(Add { id, home, count: None }, now),
            (Action::Open(key), Some(endpoint)) => endpoint.learn(key, now),
            (Action::Send(to, message), Some(endpoint)) => {
                let encode = || postcard::to_allocvec(&message).expect("invariant: a message is a few words");
                endpoint.send(to, message.view, encode);
            }
            (_, None) => {}
        }
    }

    fn enter_view(&mut self, _: &Sequence, view: &View, endpoint: &Endpoint<Add>) -> Option<RegionKey> {
        self.counter = None;
        if Sequence::home(view) == Some(endpoint.me()) {
            self.counter = endpoint.fabric().register(8, view.number()).ok();
        }
        self.counter.as_ref().map(|counter| counter.key(Rights::Change))
    }

    fn end_incarnation(&mut self) {
        self.counter = None;
    }
}

/// A node's driver, between two incarnations.
pub fn driver(rules: Rules, clock: Arc<dyn Clock>) -> Driver<Sequence, Node> {
    Driver::new(Sequence::new(rules), Node::default(), clock)
}
