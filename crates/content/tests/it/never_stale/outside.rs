//! What all nodes share and none of them is: virtual time, chance, the application with its database, the clients and the checker.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use verbena_cluster::Answer;
use verbena_content::Names;
use verbena_content::record::{NoRecords, Records};
use verbena_fabric::sim::{self, Dice};
use verbena_terms::{Incarnation, Time};

use crate::never_stale::checker::{Checker, Sent};
use crate::never_stale::database::{Content, Database, Row, State};
use crate::never_stale::records::{Machine, OfProcess};
use crate::never_stale::register::Register;
use crate::never_stale::settings::{Settings, ms, us};

/// A run of a process: a node has another each time it starts.
pub type Run = u64;
pub type RequestId = u64;

/// What will happen.
pub enum Event {
    /// Something outside of the nodes.
    Outside(Box<dyn FnOnce()>),
    /// Something reaches a node's process, if it is still this run of it.
    Inside { at: usize, run: Run, arrive: Box<dyn FnOnce()> },
    /// A request reaches a node's process.
    Arrives { at: usize, run: Run, request: Request, kind: Kind },
    /// What the register answers to a process, or nothing within the time.
    Answered { at: usize, run: Run, number: u64, answer: Option<Answer> },
    /// A thread of a node's process has something to do.
    Thread { at: usize, run: Run, thread: Thread },
    /// A process that was told to stop has done so.
    End { at: usize, run: Run },
    /// A node starts again.
    Boot { at: usize },
    /// A link may be healed.
    Heal { from: usize, to: usize },
    /// Nature strikes.
    Nature,
    /// A client sends something.
    Client { write: bool },
}

/// The threads of a process. They share what the product's share, and act in any order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thread {
    Membership,
    Content,
    /// What the one of content does, step by step, after it has decided.
    Doing,
    /// Those of the proxy, which serve requests.
    Requests,
}

/// What a client sends.
#[derive(Clone, Debug)]
pub enum Kind {
    Read { page: u64 },
    Write { rows: Vec<Row>, announces: bool },
}

/// A request as the client knows it.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub id: RequestId,
    pub sent: Sent,
}

pub struct Outside {
    pub sim: Arc<sim::World>,
    pub settings: Settings,
    pub names: Names,
    pub checker: RefCell<Checker>,
    pub outcomes: RefCell<BTreeMap<RequestId, &'static str>>,
    /// Who lives at each node: what a search for the keeper finds.
    pub lives: RefCell<BTreeMap<usize, Incarnation>>,
    pub register: Register,
    /// Nothing goes wrong any more.
    pub calm: Cell<bool>,
    /// What every transaction takes beside chance.
    pub transaction_takes: Cell<Duration>,
    /// The connection to the application breaks when a write was sent.
    pub connection_breaks: Cell<bool>,
    /// What each machine keeps of the open updates of its nodes.
    pub machines: Vec<Arc<Machine>>,
    database: RefCell<Database>,
    dice: RefCell<Dice>,
    events: RefCell<BTreeMap<u64, Event>>,
    next: Cell<u64>,
}

impl Outside {
    pub fn new(settings: Settings) -> Self {
        let sim = sim::World::with_capabilities(settings.seed, settings.network.clone(), settings.capabilities.clone());
        Outside {
            sim: Arc::new(sim),
            names: Names::new([9; 16]),
            checker: RefCell::default(),
            outcomes: RefCell::default(),
            lives: RefCell::default(),
            register: Register::default(),
            calm: Cell::new(false),
            transaction_takes: Cell::new(Duration::ZERO),
            connection_breaks: Cell::new(false),
            machines: (0..settings.machines.max(1)).map(|_| Arc::default()).collect(),
            database: RefCell::default(),
            dice: RefCell::new(Dice::new(settings.seed)),
            events: RefCell::default(),
            next: Cell::new(0),
            settings,
        }
    }

    /// The records of the machine that this node is on.
    pub fn records(&self, at: usize) -> Box<dyn Records> {
        match self.settings.machines {
            0 => Box::new(NoRecords),
            machines => Box::new(OfProcess::new(&self.machines[at % machines])),
        }
    }

    pub fn now(&self) -> Time {
        self.sim.now()
    }

    /// A number that is not used again.
    pub fn number(&self) -> u64 {
        self.next.replace(self.next.get() + 1)
    }

    // Chance.

    /// From `least` on, and less than `most`.
    pub fn between(&self, least: Duration, most: Duration) -> Duration {
        if self.settings.shortest { least } else { self.dice.borrow_mut().between(least, most) }
    }

    pub fn below(&self, bound: u64) -> u64 {
        self.dice.borrow_mut().below(bound)
    }

    /// True so many times in a thousand, while things go wrong.
    pub fn strikes(&self, per_mille: u32) -> bool {
        !self.calm.get() && self.happens(per_mille)
    }

    /// True so many times in a thousand.
    pub fn happens(&self, per_mille: u32) -> bool {
        !self.settings.shortest && self.dice.borrow_mut().happens(per_mille)
    }

    // Time.

    pub fn later(&self, delay: Duration, event: Event) {
        let token = self.number();
        self.events.borrow_mut().insert(token, event);
        self.sim.wake_at(self.now() + delay, token);
    }

    pub fn take(&self, token: u64) -> Event {
        self.events.borrow_mut().remove(&token).expect("a token that was given")
    }

    /// A while, for a process.
    pub async fn sleep(&self, at: usize, run: Run, length: Duration) {
        let (wake, woken) = oneshot::channel();
        let arrive = Box::new(move || give(wake, ()));
        self.later(length, Event::Inside { at, run, arrive });
        let _ = woken.await;
    }

    // The application.

    /// Asks the application for a page. `None` if no answer comes. Of a page by whose tag it is asked it says whether it is right still: then that page is the answer.
    pub async fn query(self: &Rc<Self>, at: usize, run: Run, page: u64, asked: Option<Content>) -> Option<Content> {
        let (reply, answer) = oneshot::channel();
        let outside = self.clone();
        let look = move || {
            let database = outside.database.borrow();
            let content = database.page(page);
            let is_right_still = |asked: &Content| database.tag(asked) == database.tag(&content);
            let content = asked.filter(is_right_still).unwrap_or(content);
            let slow = if outside.happens(200) { ms(40) } else { ms(2) };
            let delay = outside.between(us(100), slow);
            let content = (!outside.strikes(outside.settings.faults.outcome_unknown)).then_some(content);
            let arrive = Box::new(move || give(reply, content));
            outside.later(delay, Event::Inside { at, run, arrive });
        };
        self.later(self.between(us(50), ms(3)), Event::Outside(Box::new(look)));
        answer.await.ok()?
    }

    /// Sends a write to the application, which commits it whatever becomes of the node. `None` if no answer comes. After a silent one pages have the tags of before.
    pub async fn transact(
        self: &Rc<Self>,
        (at, run): (usize, Run),
        request: RequestId,
        (rows, is_silent): (Vec<Row>, bool),
    ) -> Option<State> {
        let (reply, answer) = oneshot::channel();
        let outside = self.clone();
        let commit = move || {
            let state = outside.database.borrow_mut().commit(&rows, is_silent);
            outside.sim.note(format_args!("request {request} commits state {state}: rows {rows:?}"));
            let delay = outside.between(us(50), if outside.happens(500) { ms(20) } else { us(300) });
            let answered = (!outside.strikes(outside.settings.faults.outcome_unknown)).then_some(state);
            let arrive = Box::new(move || give(reply, answered));
            outside.later(delay, Event::Inside { at, run, arrive });
        };
        let delay = self.between(us(100), if self.happens(500) { ms(15) } else { us(500) });
        let delay = delay + self.transaction_takes.get();
        self.later(delay, Event::Outside(Box::new(commit)));
        if self.connection_breaks.get() || self.strikes(self.settings.faults.outcome_unknown / 2) {
            return None;
        }
        answer.await.ok()?
    }

    // The clients.

    pub fn sends(&self) -> Request {
        Request { id: self.number(), sent: self.checker.borrow().sends() }
    }

    /// A client has its page.
    pub fn answer(&self, request: Request, content: &Content, how: &'static str) {
        let (Request { id, sent }, at) = (request, self.now());
        self.sim.note(format_args!("request {id} answered, {how}: {content:?}"));
        self.checker.borrow_mut().answered(&self.database.borrow(), sent, content, how, at);
        self.outcomes.borrow_mut().insert(id, how);
    }

    /// A write was answered: its client knows that it is done.
    pub fn acknowledge(&self, request: Request, state: State) {
        self.checker.borrow_mut().acknowledged(state);
        self.ends(request, "acknowledged");
    }

    /// A request ends otherwise.
    pub fn ends(&self, request: Request, how: &'static str) {
        self.sim.note(format_args!("request {} ends: {how}", request.id));
        self.outcomes.borrow_mut().insert(request.id, how);
    }
}

/// Whoever waited may have gone with its process.
fn give<T>(sender: oneshot::Sender<T>, value: T) {
    let _ = sender.send(value);
}
