//! The world: true time, a queue of what will happen, a network, discs, and services that prepare views after a while.

mod office;
pub mod script;
mod trouble;

use std::collections::BTreeMap;

use siphasher::sip::SipHasher13;
use verbena_cluster::{
    Answer, ClusterConfig, Configured, EarlierLife, KeeperAction, KeeperEvent, Message, Notice, OfficeEvent,
    ParticipantAction, ParticipantEvent, Provider, Question, Role, Roles, Rules,
};
use verbena_terms::{Rank, Time, ViewNumber};

use crate::sim::check::Checkers;
use crate::sim::counts::Counts;
use crate::sim::dice::Dice;
use crate::sim::faults::{Knobs, MS};
use crate::sim::node::{Disc, Input, Node, Process, Skew};
use verbena_testkit::store::Store;

pub const LEASE: u64 = 2000 * MS;
/// How often a disc that refuses is asked again.
const DISC_AGAIN: u64 = 100 * MS;
/// Faults happen until then; afterwards everything works.
const FAULTS_END: u64 = 30_000 * MS;
/// So long after the faults ended everybody is in, where the keeper is always the same.
const ALL_IN: u64 = 3 * LEASE;
/// Where the office moves it may move once more in that time: of two processes of one name, the one that keeps may be the one that ends.
const MOVES: u64 = LEASE;
/// In `cut`: the register.
pub const STORE: Rank = Rank(1000);
/// Within which a question is answered, or given up.
const GIVEN_UP: u64 = LEASE / 4;
const MOST_STEPS: u64 = 200_000;

pub struct Outcome {
    pub violation: Option<String>,
    pub counts: Counts,
    /// A hash over everything that happened, in order.
    pub fingerprint: u64,
}

enum Happening {
    Arrive(Vec<u8>),
    Input(u64, Input),
    StartDurable(u64),
    KeeperDurable(u64),
    Wake(u64),
    /// A question arrives at the register, from this process.
    Asked(u64, u64, Question),
    Answered(u64, u64, Option<Answer>),
    Resume(u64),
    Crash(u64),
    Start(Rank),
    Mend(Rank, Rank),
    Fault,
    FaultsEnd,
}

pub struct World {
    dice: Dice,
    knobs: Knobs,
    rules: Rules,
    config: ClusterConfig,
    now: u64,
    queue: BTreeMap<(u64, u64), Happening>,
    sequence: u64,
    nodes: BTreeMap<Rank, Node>,
    store: Store,
    /// Questions that are neither answered nor given up, and whether a keeper waits for its record to be stored.
    asked: BTreeMap<(u64, u64), bool>,
    processes: BTreeMap<u64, Process>,
    next_process: u64,
    /// Ways that are cut, one direction each.
    cut: Vec<(Rank, Rank)>,
    /// Nodes whose discs store no keeper's record.
    disc_refuses: Vec<Rank>,
    /// Whether a process that starts knows how the one before ended, where chance does not decide it.
    earlier: Option<EarlierLife>,
    lost_leases: Vec<verbena_terms::Incarnation>,
    checkers: Checkers,
    counts: Counts,
    fingerprint: u64,
    trace: bool,
}

impl World {
    pub fn new(seed: u64, provider: Provider, rules: Rules, trace: bool) -> Self {
        let mut dice = Dice::new(seed);
        let knobs = Knobs::draw(&mut dice);
        let size = dice.between(2, 5) as u32;
        let mut world = World::of(size, (seed, dice), knobs, provider, rules, trace);
        for rank in 1..=size {
            let at = world.dice.between(0, 300) * MS;
            world.at(at, Happening::Start(Rank(rank)));
        }
        world.at(1000 * MS, Happening::Fault);
        world.at(FAULTS_END, Happening::FaultsEnd);
        world.say(format!("{:?}", world.knobs));
        world
    }

    /// So many nodes of which none runs, and nothing that will happen.
    fn of(
        size: u32,
        (seed, mut dice): (u64, Dice),
        knobs: Knobs,
        provider: Provider,
        rules: Rules,
        trace: bool,
    ) -> Self {
        let members = (1..=size).map(|rank| Configured {
            name: format!("n{rank}"),
            address: format!("sim:{rank}"),
            roles: if rank == 2 { Roles::of(Role::Reader) } else { Roles::ALL },
        });
        let config = match provider {
            Provider::Static => ClusterConfig { members: members.collect(), ..ClusterConfig::default() },
            Provider::Etcd => ClusterConfig { provider, ..ClusterConfig::default() },
        };
        let node = |clock| Node { disc: Disc::default(), clock, process: None };
        let nodes = (1..=size).map(|rank| (Rank(rank), node(Skew::draw(&mut dice, &knobs)))).collect();
        World {
            dice,
            knobs,
            rules,
            config,
            now: 0,
            queue: BTreeMap::new(),
            sequence: 0,
            nodes,
            store: Store::default(),
            asked: BTreeMap::new(),
            processes: BTreeMap::new(),
            next_process: 1,
            cut: vec![],
            disc_refuses: vec![],
            earlier: None,
            lost_leases: vec![],
            checkers: Checkers::default(),
            counts: Counts::default(),
            fingerprint: seed,
            trace,
        }
    }

    pub fn run(mut self) -> Outcome {
        let mut violation = None;
        while violation.is_none() {
            let Some(((at, _), happening)) = self.queue.pop_first() else { break };
            if at > self.end() {
                break;
            }
            self.now = at;
            self.counts.steps += 1;
            assert!(self.counts.steps < MOST_STEPS, "the queue never runs dry");
            violation = self.happen(happening).and_then(|()| self.look()).err();
        }
        self.now = self.end();
        let violation = violation.or_else(|| self.all_in().err());
        if let Some(violation) = &violation {
            self.say(format!("VIOLATION {violation}"));
        }
        let store = self.store.counts;
        (self.counts.terms, self.counts.resigned, self.counts.overtaken) =
            (store.taken, store.resigned, store.overtaken);
        Outcome { violation, counts: self.counts, fingerprint: self.fingerprint }
    }

    fn end(&self) -> u64 {
        FAULTS_END + ALL_IN + if self.config.provider == Provider::Etcd { MOVES } else { 0 }
    }

    /// After every step.
    fn look(&mut self) -> Result<(), String> {
        for process in self.processes.values() {
            let local = self.nodes[&process.node].clock.local(self.now);
            self.checkers.acting(self.now, local, process)?;
        }
        for process in self.processes.values().filter(|process| process.inbox.is_none()) {
            let local = self.nodes[&process.node].clock.local(self.now);
            let Some(keeper) = process.keeper.as_ref().filter(|keeper| keeper.may_act_at(local)) else { continue };
            self.checkers.declared(self.now, keeper.view(), keeper.in_effect().is_some())?;
            self.counts.views = self.checkers.in_effect.0 as u64;
            self.counts.at_rest = self.checkers.at_rest.len() as u64;
        }
        Ok(())
    }

    /// At the end: everyone is up, in, leased, and in the one newest view.
    fn all_in(&self) -> Result<(), String> {
        for (rank, node) in &self.nodes {
            let process = node.process.and_then(|id| self.processes.get(&id)).ok_or(format!("idle: {rank} is down"))?;
            let view = process.word.in_effect_at(node.clock.local(self.now));
            let newest = self.checkers.in_effect;
            if view != Some(newest) || newest == ViewNumber(0) {
                return Err(format!("idle: {} has {:?} of {newest}", process.participant.incarnation(), process.word));
            }
        }
        Ok(())
    }

    fn happen(&mut self, happening: Happening) -> Result<(), String> {
        match happening {
            Happening::Arrive(bytes) => {
                let message = Message::decode(&bytes).map_err(|error| format!("unreadable: {error}"))?;
                self.arrive(message)
            }
            Happening::Input(id, input) => self.input(id, input),
            Happening::StartDurable(id) => self.start_durable(id),
            Happening::KeeperDurable(id) => self.keeper_durable(id),
            Happening::Wake(id) => self.wake(id),
            Happening::Asked(id, number, question) => {
                self.asked_at_store(id, number, &question);
                Ok(())
            }
            Happening::Answered(id, number, answer) => self.answered(id, number, answer),
            Happening::Resume(id) => self.resume(id),
            Happening::Crash(id) => self.crash(id, 0),
            Happening::Start(rank) => self.start(rank),
            Happening::Mend(from, to) => {
                self.cut.retain(|way| *way != (from, to));
                Ok(())
            }
            Happening::Fault => self.fault(),
            Happening::FaultsEnd => self.faults_end(),
        }
    }

    // The network.

    fn send(&mut self, id: u64, message: Message) -> Result<(), String> {
        self.checkers.sent(id, &message)?;
        self.say(format!("{} -> {} {:?}", message.from, message.to, message.body));
        let (Some(from), Some(to)) = (self.node_of(message.from.rank), self.node_of(message.to.rank)) else {
            return Ok(());
        };
        let well = self.now >= FAULTS_END;
        if !well && (self.cut.contains(&(from, to)) || self.dice.chance(self.knobs.loss)) {
            self.counts.lost += 1;
            return Ok(());
        }
        let copies = if !well && self.dice.chance(self.knobs.double) { 2 } else { 1 };
        self.counts.doubled += copies - 1;
        for _ in 0..copies {
            let late = !well && self.dice.chance(self.knobs.late);
            self.counts.late += u64::from(late);
            let most = if late { 5 * LEASE / 2 } else { self.knobs.delay };
            let delay = self.dice.between(1000, most);
            self.at(self.now + delay, Happening::Arrive(message.encode()));
        }
        Ok(())
    }

    fn arrive(&mut self, message: Message) -> Result<(), String> {
        // Of two that believe to be it, one was replaced: the other.
        let is_it = |id: u64, process: &Process| match message.to.start {
            0 if self.config.provider == Provider::Static => self.nodes[&message.to.rank].process == Some(id),
            0 => process.participant.incarnation().rank == message.to.rank,
            _ => process.participant.incarnation() == message.to,
        };
        let found = self.processes.iter().rfind(|(id, process)| is_it(**id, process));
        let Some(id) = found.map(|(id, _)| *id) else { return Ok(()) };
        let input = match message.to.start {
            0 => Input::Keeper(KeeperEvent::Message(message)),
            _ => Input::Participant(ParticipantEvent::Message(message)),
        };
        self.input(id, input)
    }

    /// The node that a life of this rank is on.
    fn node_of(&self, rank: Rank) -> Option<Rank> {
        if self.config.provider == Provider::Static {
            return Some(rank);
        }
        self.store.names.get(rank.0 as usize - 1).and_then(|name| name[1..].parse().ok()).map(Rank)
    }

    // The processes.

    fn start(&mut self, rank: Rank) -> Result<(), String> {
        if self.nodes[&rank].process.is_some() {
            return Ok(());
        }
        let membership = self.membership(rank);
        let node = &self.nodes[&rank];
        let local = node.clock.local(self.now);
        let drawn = if self.dice.chance(500) { EarlierLife::Ended } else { EarlierLife::MayRun };
        let earlier = self.earlier.unwrap_or(drawn);
        let (process, actions) = Process::start(rank, membership, &node.disc, earlier, local, self.rules);
        let id = self.next_process;
        self.next_process += 1;
        self.say(format!("process {id} starts as {}", process.participant.incarnation()));
        self.processes.insert(id, process);
        self.nodes.get_mut(&rank).expect("the node exists").process = Some(id);
        if self.keeper_node() == Some(rank) {
            self.checkers.keeper_disturbed(self.now);
        }
        self.participant_actions(id, actions)?;
        self.wake_later(id);
        if self.now < FAULTS_END && self.dice.chance(self.knobs.stillborn) {
            // What it handed to the disc may be lost.
            let after = self.dice.between(0, 80 * MS);
            self.at(self.now + after, Happening::Crash(id));
        }
        Ok(())
    }

    fn input(&mut self, id: u64, input: Input) -> Result<(), String> {
        let Some(process) = self.processes.get_mut(&id) else { return Ok(()) };
        if let Some(inbox) = &mut process.inbox {
            inbox.push(input);
            return Ok(());
        }
        let local = self.nodes[&process.node].clock.local(self.now);
        match input {
            Input::Participant(event) => {
                let from = match &event {
                    ParticipantEvent::Message(message) => Some(message.from),
                    _ => None,
                };
                let actions = process.participant.handle(local, event);
                let is_member = process.participant.view().is_some();
                if let Some(from) = from {
                    self.office_event(id, local, OfficeEvent::Heard { from, is_member })?;
                }
                self.participant_actions(id, actions)?;
            }
            Input::Keeper(event) => self.keeper_event(id, local, event)?,
            Input::Office(event) => self.office_event(id, local, event)?,
            Input::Wake => {
                let actions = process.participant.handle(local, ParticipantEvent::Tick);
                self.participant_actions(id, actions)?;
                self.keeper_event(id, local, KeeperEvent::Tick)?;
                self.office_event(id, local, OfficeEvent::Tick)?;
            }
        }
        self.wake_later(id);
        Ok(())
    }

    fn keeper_event(&mut self, id: u64, local: Time, event: KeeperEvent) -> Result<(), String> {
        let Some(keeper) = self.processes.get_mut(&id).and_then(|process| process.keeper.as_mut()) else {
            return Ok(());
        };
        for action in keeper.handle(local, event) {
            match action {
                KeeperAction::Send(message) => self.send(id, message)?,
                KeeperAction::Resign => self.office_event(id, local, OfficeEvent::Unheard)?,
                KeeperAction::Persist(record) if self.config.provider == Provider::Etcd => {
                    self.office_event(id, local, OfficeEvent::Store(Box::new(record)))?;
                }
                KeeperAction::Persist(record) => {
                    let process = self.processes.get_mut(&id).expect("it just acted");
                    assert!(process.keeper_on_its_way.is_none() || !self.rules.durable_view, "one record at a time");
                    process.keeper_on_its_way = Some(record);
                    let after = self.dice.between(1000, self.knobs.persist);
                    self.at(self.now + after, Happening::KeeperDurable(id));
                }
            }
        }
        Ok(())
    }

    fn participant_actions(&mut self, id: u64, actions: Vec<ParticipantAction>) -> Result<(), String> {
        for action in actions {
            let Some(process) = self.processes.get_mut(&id) else { return Ok(()) };
            match action {
                ParticipantAction::Persist(record) => {
                    process.start_on_its_way = Some(record);
                    let after = self.dice.between(1000, self.knobs.persist);
                    self.at(self.now + after, Happening::StartDurable(id));
                }
                ParticipantAction::Enrol => {
                    let local = self.nodes[&process.node].clock.local(self.now);
                    self.office_event(id, local, OfficeEvent::Over)?;
                    self.office_event(id, local, OfficeEvent::Enrol)?;
                }
                ParticipantAction::Publish(lease) => process.word = lease,
                ParticipantAction::Send(message) => self.send(id, message)?,
                ParticipantAction::Tell(notice) => self.tell(id, notice)?,
            }
        }
        Ok(())
    }

    /// What services do: prepare after a while, settle after a longer while.
    fn tell(&mut self, id: u64, notice: Notice) -> Result<(), String> {
        let process = &self.processes[&id];
        let (rank, who, replaced) = (process.node, process.participant.incarnation(), process.replaced);
        self.say(format!("{who} tells {notice:?}"));
        if matches!(notice, Notice::Left | Notice::Superseded(_)) {
            // Whoever ends gives the office up.
            let local = self.nodes[&rank].clock.local(self.now);
            self.office_event(id, local, OfficeEvent::Left)?;
        }
        match notice {
            Notice::ViewLearnt(view) => {
                let stuck = self.now < FAULTS_END && self.dice.chance(self.knobs.stuck);
                let at = if stuck { FAULTS_END } else { self.now } + self.dice.between(0, 30 * MS);
                self.at(at, Happening::Input(id, Input::Participant(ParticipantEvent::Prepared(view.number()))));
                for gone in view.departed() {
                    let at = self.now + self.dice.between(0, LEASE);
                    self.at(at, Happening::Input(id, Input::Participant(ParticipantEvent::Settled(gone.incarnation))));
                }
            }
            Notice::LeaseLost => self.lost_leases.push(who),
            Notice::LeaseExtended(_) => {
                let before = self.lost_leases.len();
                self.lost_leases.retain(|lost| *lost != who);
                self.counts.resumed += u64::from(self.lost_leases.len() < before);
            }
            Notice::Expelled(_) => self.counts.expelled += 1,
            Notice::Left => {
                self.counts.left += 1;
                self.kill(id, false);
                let down = if self.now < FAULTS_END { self.dice.between(0, LEASE) } else { 0 };
                self.at(self.now + down, Happening::Start(rank));
            }
            Notice::Superseded(_) if replaced => self.kill(id, false),
            // Of two processes of one name, that do not know of each other, the one that enrols last stays.
            Notice::Superseded(_) if self.is_twin(id) => {
                self.kill(id, false);
                let twin = self.processes.iter_mut().rfind(|(_, process)| process.node == rank);
                let twin = twin.map(|(&twin, process)| {
                    process.replaced = false;
                    twin
                });
                self.nodes.get_mut(&rank).expect("the node exists").process = twin;
            }
            Notice::Superseded(by) => return Err(format!("superseded: {who} by {by}, and there is no other process")),
            Notice::Failed(error) => return Err(format!("failed: {error}")),
            Notice::Refused(_)
            | Notice::ViewInEffect(_)
            | Notice::MemberAcknowledged { .. }
            | Notice::MemberOut { .. }
            | Notice::DepartedSettled(_) => {}
        }
        Ok(())
    }

    fn start_durable(&mut self, id: u64) -> Result<(), String> {
        let Some(process) = self.processes.get_mut(&id).filter(|process| !process.replaced) else { return Ok(()) };
        let Some(record) = process.start_on_its_way.take() else { return Ok(()) };
        let disc = &mut self.nodes.get_mut(&process.node).expect("the node exists").disc;
        disc.start = Some(record.encode());
        self.input(id, Input::Participant(ParticipantEvent::Persisted))
    }

    fn keeper_durable(&mut self, id: u64) -> Result<(), String> {
        let Some(process) = self.processes.get_mut(&id) else { return Ok(()) };
        if self.disc_refuses.contains(&process.node) {
            self.at(self.now + DISC_AGAIN, Happening::KeeperDurable(id));
            return Ok(());
        }
        let Some(record) = process.keeper_on_its_way.take() else { return Ok(()) };
        self.nodes.get_mut(&process.node).expect("the node exists").disc.keeper = Some(record.encode());
        self.input(id, Input::Keeper(KeeperEvent::Persisted))
    }

    fn resume(&mut self, id: u64) -> Result<(), String> {
        let Some(process) = self.processes.get_mut(&id) else { return Ok(()) };
        let Some(inbox) = process.inbox.take() else { return Ok(()) };
        self.say(format!("process {id} goes on"));
        if self.processes[&id].keeper.is_some() {
            self.checkers.keeper_disturbed(self.now);
        }
        // Its timers fire before it reads what arrived, or after.
        let first = self.dice.chance(500);
        if first {
            self.input(id, Input::Wake)?;
        }
        for input in inbox {
            self.input(id, input)?;
        }
        self.input(id, Input::Wake)
    }

    // Time.

    fn at(&mut self, at: u64, happening: Happening) {
        self.sequence += 1;
        self.queue.insert((at.max(self.now), self.sequence), happening);
    }

    fn wake_later(&mut self, id: u64) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        let wake = self.nodes[&process.node].clock.truth(process.wake_at());
        if wake < process.wakes_at {
            process.wakes_at = wake;
            self.at(wake, Happening::Wake(id));
        }
    }

    fn wake(&mut self, id: u64) -> Result<(), String> {
        match self.processes.get_mut(&id).filter(|process| process.wakes_at <= self.now) {
            Some(process) => {
                process.wakes_at = u64::MAX;
                self.input(id, Input::Wake)
            }
            None => Ok(()),
        }
    }

    fn say(&mut self, line: String) {
        let line = format!("{:>9.3} ms  {line}", self.now as f64 / MS as f64);
        self.fingerprint = SipHasher13::new_with_keys(self.fingerprint, 0).hash(line.as_bytes());
        if self.trace {
            println!("{line}");
        }
    }
}
