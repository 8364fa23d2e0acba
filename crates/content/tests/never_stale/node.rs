//! One node: the machines of cluster and content, driven as a real driver does.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use verbena_cluster::{
    ClusterConfig, Configured, EarlierLife, Keeper, KeeperAction, KeeperEvent, KeeperRecord, Lease, Membership, Notice,
    Participant, ParticipantAction, ParticipantEvent, StartRecord, View, home_of,
};
use verbena_content::{
    Home, HomeAction, HomeLimits, Message, Outcome, PageId, PageTable, Reader, ReaderLimits, Scope, Settled, Stamp,
    Start, UpdateId, Updater, UpdaterAction, UpdaterLimits, Verdict, Word, Words, look,
};
use verbena_terms::{Incarnation, Rank, Time, ViewNumber};

use crate::database::{self, Content};
use crate::world::{Event, Kind, LEASE_MS, MAX_TRANSACTION_MS, MICRO, World};

pub type RequestId = u64;

/// What reaches a node's process.
#[derive(Clone, Debug)]
pub enum Input {
    Boot,
    Wake,
    Cluster(verbena_cluster::Message),
    Content(Message),
    Request(RequestId),
    Words {
        request: RequestId,
        words: Option<[u64; 3]>,
    },
    Page {
        request: RequestId,
        content: Option<Content>,
    },
    LookAtWord {
        updater: Incarnation,
        word: u32,
    },
    /// The step between the check and the first byte to the application.
    SendWrite(RequestId),
    WriteDone {
        request: RequestId,
        lost: bool,
    },
}

pub struct Node {
    at: usize,
    members: Vec<Configured>,
    pub clock_offset: u64,
    pub is_up: bool,
    pub life: u64,
    pub paused_until: u64,
    pub busy_until: u64,
    pub boots_at: Option<u64>,
    /// Incarnations of the present life of the process.
    pub incarnations: Vec<Incarnation>,
    start_record: Option<StartRecord>,
    keeper_record: Option<KeeperRecord>,
    running: Option<Running>,
}

struct Running {
    participant: Participant,
    keeper: Option<Keeper>,
    lease: Lease,
    views: BTreeMap<ViewNumber, Arc<View>>,
    home: Option<Home>,
    updater: Updater,
    reader: Reader<u64>,
    copies: BTreeMap<u64, (Stamp, Content)>,
    /// Reads on their way: where the words are read, and the view in which.
    posted: BTreeMap<RequestId, (Incarnation, ViewNumber)>,
    fills: BTreeMap<RequestId, verbena_content::FillId>,
    made: BTreeMap<verbena_content::FillId, Content>,
    writes: BTreeMap<UpdateId, RequestId>,
    wakes_at: u64,
}

impl Node {
    pub fn new(at: usize, members: Vec<Configured>, clock_offset: u64) -> Self {
        Node {
            at,
            members,
            clock_offset,
            is_up: false,
            life: 0,
            paused_until: 0,
            busy_until: 0,
            boots_at: None,
            incarnations: Vec::new(),
            start_record: None,
            keeper_record: None,
            running: None,
        }
    }

    pub fn die(&mut self) {
        self.is_up = false;
        self.running = None;
        self.life += 1;
        self.paused_until = 0;
        self.busy_until = 0;
    }

    fn membership(&self) -> Membership {
        let (lease, drift) = World::lease_terms();
        let name = Some(self.members[self.at].name.clone());
        Membership::new(&ClusterConfig { lease, drift, name, members: self.members.clone() })
            .expect("a sound configuration")
    }

    fn is_home(&self) -> bool {
        self.members[self.at].roles.has(verbena_cluster::Role::Home)
    }
}

impl World {
    /// Small numbers: pages share words of the small tables below, and in some runs even their ids.
    fn page_id(&self, page: u64) -> PageId {
        PageId(if self.settings.pages_share_ids { page % 4 } else { page })
    }

    pub fn boot(&mut self, at: usize) {
        let now = self.clock(at);
        let membership = self.nodes[at].membership();
        let node = &mut self.nodes[at];
        let (participant, actions) =
            Participant::start(&membership, format!("n{at}:1"), node.start_record, now).expect("a start");
        let me = participant.incarnation();
        let keeper =
            (at == 0).then(|| Keeper::start(membership, me, node.keeper_record.clone(), EarlierLife::Ended, now));
        node.is_up = true;
        node.boots_at = None;
        node.incarnations = vec![me];
        let names = self.names.fingerprint();
        let limits = UpdaterLimits {
            open: 8,
            begin_deadline: Duration::from_millis(2 * LEASE_MS),
            repeat_after: Duration::from_millis(3),
            max_transaction_time: Duration::from_millis(MAX_TRANSACTION_MS),
            frame_bytes: 200,
        };
        let reader_limits = ReaderLimits {
            registration_deadline: Duration::from_millis(40),
            unstorable_for: Duration::from_millis(5),
            ..ReaderLimits::default()
        };
        node.running = Some(Running {
            participant,
            keeper,
            lease: Lease::NONE,
            views: BTreeMap::new(),
            home: None,
            updater: Updater::with_rules(me, names, limits, self.settings.rules),
            reader: Reader::with_rules(me, reader_limits, self.settings.rules),
            copies: BTreeMap::new(),
            posted: BTreeMap::new(),
            fills: BTreeMap::new(),
            made: BTreeMap::new(),
            writes: BTreeMap::new(),
            wakes_at: u64::MAX,
        });
        self.make_home(at, me);
        self.cluster_actions(at, actions);
        self.keeper_event(at, KeeperEvent::Tick);
        self.set_wake(at);
    }

    /// What a driver does that waits for nothing: it closes the updater, and says how it is.
    pub fn leave(&mut self, at: usize) {
        self.tick(at);
        let updater = &mut self.running(at).updater;
        updater.close();
        let at_rest = updater.is_at_rest();
        self.participant_event(at, ParticipantEvent::Leave { at_rest });
        self.set_wake(at);
    }

    fn make_home(&mut self, at: usize, me: Incarnation) {
        if !self.nodes[at].is_home() {
            return;
        }
        let limits = HomeLimits {
            slots: 4,
            stamps: 8,
            pages: self.settings.pages_kept,
            dependencies: 256,
            in_flight: 6,
            lease: Duration::from_millis(LEASE_MS),
            max_transaction_time: Duration::from_millis(MAX_TRANSACTION_MS),
        };
        let home = Home::with_rules(me, self.names.fingerprint(), limits, self.settings.rules);
        self.tables.insert(me, home.words().collect());
        self.running(at).home = Some(home);
    }

    fn running(&mut self, at: usize) -> &mut Running {
        self.nodes[at].running.as_mut().expect("invariant: only a node that is up takes inputs")
    }

    /// A node's process takes an input.
    pub fn take(&mut self, at: usize, input: Input) {
        let now = self.clock(at);
        // A driver notices first that time has passed: a lease may have run out while it was stopped.
        self.tick(at);
        match input {
            Input::Boot => {}
            Input::Wake => self.running(at).wakes_at = u64::MAX,
            Input::Cluster(message) if message.to.rank == Rank(1) && message.to.start == 0 => {
                self.keeper_event(at, KeeperEvent::Message(message));
            }
            Input::Cluster(message) => self.participant_event(at, ParticipantEvent::Message(message)),
            Input::Content(Message::Registered(registered)) => {
                let running = self.running(at);
                let lease = running.lease;
                let settled = running.reader.registered(&registered, &lease, now);
                settled.into_iter().for_each(|settled| self.settled(at, settled));
            }
            Input::Content(message) => {
                let mut out = Vec::new();
                if let Some(home) = &mut self.running(at).home {
                    home.receive(message, now, &mut out);
                }
                self.home_actions(at, out);
            }
            Input::Request(request) => self.requested(at, request),
            Input::Words { request, words } => self.words(at, request, words),
            Input::Page { request, content } => self.page_made(at, request, content),
            Input::LookAtWord { updater, word } => self.look_at_word(at, updater, word),
            Input::SendWrite(request) => self.transact(request),
            Input::WriteDone { request, lost } => self.write_done(at, request, lost),
        }
        self.set_wake(at);
    }

    fn tick(&mut self, at: usize) {
        let now = self.clock(at);
        self.keeper_event(at, KeeperEvent::Tick);
        self.participant_event(at, ParticipantEvent::Tick);
        let mut out = Vec::new();
        let mut of_home = Vec::new();
        let running = self.running(at);
        running.updater.tick(now, &mut out);
        if let Some(home) = &mut running.home {
            home.tick(now, &mut of_home);
        }
        let late = running.reader.tick(now);
        self.home_actions(at, of_home);
        self.updater_actions(at, out);
        late.into_iter().for_each(|settled| self.settled(at, settled));
    }

    fn set_wake(&mut self, at: usize) {
        let (life, offset, now) = (self.nodes[at].life, self.nodes[at].clock_offset, self.now);
        let running = self.running(at);
        let deadlines = [
            Some(running.participant.wake_at()),
            running.keeper.as_ref().map(Keeper::wake_at),
            running.home.as_ref().and_then(Home::next_deadline),
            running.updater.next_deadline(),
            running.reader.next_deadline(),
        ];
        let soonest = deadlines.into_iter().flatten().min().unwrap_or(Time::FAR).nanos();
        let wake = soonest.saturating_sub(offset).max(now + 50 * MICRO);
        if wake < running.wakes_at {
            running.wakes_at = wake;
            self.schedule(wake, Event::At { node: at, life, input: Input::Wake });
        }
    }

    // The cluster.

    fn keeper_event(&mut self, at: usize, event: KeeperEvent) {
        let now = self.clock(at);
        let Some(keeper) = &mut self.running(at).keeper else { return };
        let mut todo = keeper.handle(now, event);
        while !todo.is_empty() {
            let mut more = Vec::new();
            for action in todo {
                match action {
                    KeeperAction::Send(message) => {
                        self.send(at, message.to.rank, self.now, Input::Cluster(message));
                    }
                    KeeperAction::Persist(record) => {
                        self.nodes[at].keeper_record = Some(record);
                        let keeper = self.running(at).keeper.as_mut().expect("invariant: it has just acted");
                        more.extend(keeper.handle(now, KeeperEvent::Persisted));
                    }
                }
            }
            todo = more;
        }
    }

    fn participant_event(&mut self, at: usize, event: ParticipantEvent) {
        let now = self.clock(at);
        let actions = self.running(at).participant.handle(now, event);
        self.cluster_actions(at, actions);
    }

    fn cluster_actions(&mut self, at: usize, actions: Vec<ParticipantAction>) {
        let now = self.clock(at);
        for action in actions {
            match action {
                ParticipantAction::Persist(record) => {
                    self.nodes[at].start_record = Some(record);
                    self.rejoin(at, Incarnation { rank: record.rank, start: record.start });
                    self.participant_event(at, ParticipantEvent::Persisted);
                }
                ParticipantAction::Publish(lease) => {
                    let mut out = Vec::new();
                    let running = self.running(at);
                    running.lease = lease;
                    if let Some(home) = &mut running.home {
                        home.lease(lease);
                    }
                    running.updater.lease(lease, now, &mut out);
                    self.updater_actions(at, out);
                }
                ParticipantAction::Send(message) => self.send(at, Rank(1), self.now, Input::Cluster(message)),
                ParticipantAction::Tell(Notice::ViewLearnt(view)) => {
                    let (mut out, mut of_home) = (Vec::new(), Vec::new());
                    let running = self.running(at);
                    running.views.insert(view.number(), Arc::clone(&view));
                    if let Some(home) = &mut running.home {
                        home.view(&view, now, &mut of_home);
                    }
                    running.updater.view(&view, now, &mut out);
                    self.home_actions(at, of_home);
                    self.updater_actions(at, out);
                }
                ParticipantAction::Tell(Notice::MemberOut { incarnation, .. }) => {
                    let mut out = Vec::new();
                    self.running(at).updater.gone(incarnation, now, &mut out);
                    self.updater_actions(at, out);
                }
                ParticipantAction::Tell(_) => {}
            }
        }
    }

    /// Another life of the node in the same process; also one that follows a life that never got in.
    fn rejoin(&mut self, at: usize, next: Incarnation) {
        if self.nodes[at].incarnations.contains(&next) {
            return;
        }
        self.nodes[at].incarnations.push(next);
        let running = self.running(at);
        running.updater.rejoined(next);
        running.reader.rejoined(next);
        self.make_home(at, next);
    }

    // Content.

    fn home_actions(&mut self, at: usize, actions: Vec<HomeAction>) {
        let me = self.running(at).home.as_ref().map(|home| home.table().home());
        let mut moment = self.now;
        for action in actions {
            match action {
                HomeAction::Store { offset, word } => {
                    // Others may look in between.
                    moment += self.dice.within(0, 20 * MICRO);
                    let home = me.expect("invariant: a home has acted");
                    self.schedule(moment, Event::Store { home, offset, word });
                }
                HomeAction::Acknowledge { to, word, value } => self.write(at, moment, to, word, value),
                HomeAction::Send(message) => {
                    let to = message.to().rank;
                    self.send(at, to, moment, Input::Content(message));
                }
                HomeAction::Settled(who) => self.participant_event(at, ParticipantEvent::Settled(who)),
            }
        }
        self.nodes[at].busy_until = self.nodes[at].busy_until.max(moment);
    }

    fn updater_actions(&mut self, at: usize, actions: Vec<UpdaterAction>) {
        for action in actions {
            match action {
                UpdaterAction::Send(message) => {
                    let to = message.to().rank;
                    self.send(at, to, self.now, Input::Content(message));
                }
                UpdaterAction::Forward(id) => {
                    let request = self.running(at).writes[&id];
                    let (life, gap) = (self.nodes[at].life, self.settings.gap_us * MICRO);
                    self.input(at, life, gap, Input::SendWrite(request));
                }
                UpdaterAction::Abort(id) => self.write_over(at, id, "aborted"),
                UpdaterAction::Answer(id) => self.write_over(at, id, "acknowledged"),
                UpdaterAction::Close(id) => self.write_over(at, id, "closed"),
                UpdaterAction::Prepared(view) => self.participant_event(at, ParticipantEvent::Prepared(view)),
            }
        }
    }

    fn write_over(&mut self, at: usize, id: UpdateId, how: &'static str) {
        let request = self.running(at).writes[&id];
        self.write_ends(request, how);
    }

    fn look_at_word(&mut self, at: usize, updater: Incarnation, word: u32) {
        let now = self.clock(at);
        let current = self.running(at).participant.incarnation();
        if updater != current {
            return;
        }
        let value = self.acknowledgements[&updater][&word];
        let mut out = Vec::new();
        self.running(at).updater.acknowledged(word, value, now, &mut out);
        self.updater_actions(at, out);
    }

    fn requested(&mut self, at: usize, request: RequestId) {
        let now = self.clock(at);
        let Some(kind) = self.requests.get(&request).map(|request| request.kind.clone()) else { return };
        match kind {
            Kind::Read { page } => self.read_requested(at, request, page),
            Kind::Write { rows, announces, .. } => {
                let scope = if announces { database::scope_of(&self.names, rows) } else { Scope::Everything };
                let mut out = Vec::new();
                match self.running(at).updater.begin(scope, now, &mut out) {
                    Ok(id) => {
                        self.running(at).writes.insert(id, request);
                        self.updater_actions(at, out);
                    }
                    Err(_) => self.write_ends(request, "refused"),
                }
            }
        }
    }

    fn read_requested(&mut self, at: usize, request: RequestId, page: u64) {
        let now = self.clock(at);
        let (id, lease_looked_at) = (self.page_id(page), self.settings.lease_looked_at);
        let running = self.running(at);
        let acknowledged = running.lease.acknowledged;
        let acts_in = if lease_looked_at { running.lease.valid_at(now) } else { Some(acknowledged) };
        let view = acts_in.and_then(|view| running.views.get(&view));
        let home = view.and_then(|view| home_of(id.0, view));
        let Some(home) = home else { return self.ask_application(at, request, page) };
        running.posted.insert(request, (home, acknowledged));
        let table = PageTable::new(home, 4, 0);
        let offsets = [PageTable::clock_offset(), table.page_offset(id), PageTable::everything_offset()];
        self.post(at, request, home, offsets);
    }

    fn words(&mut self, at: usize, request: RequestId, words: Option<[u64; 3]>) {
        let now = self.clock(at);
        let Some(Kind::Read { page }) = self.requests.get(&request).map(|request| request.kind.clone()) else { return };
        let (id, lease_looked_at) = (self.page_id(page), self.settings.lease_looked_at);
        let running = self.running(at);
        let Some((home, posted)) = running.posted.remove(&request) else { return };
        let lease = if lease_looked_at { running.lease } else { Lease { until: Time::FAR, ..running.lease } };
        let words = words.map(|[clock, word, everything]| {
            (posted, Words { home, word: Word(word), everything: Word(everything), clock })
        });
        if let (Some((posted, words)), Some((stamp, content))) = (words, running.copies.get(&page))
            && look(stamp, &words, posted, &lease, now) == Verdict::Fresh
        {
            let content = content.clone();
            return self.answer(request, &content, "hit");
        }
        match running.reader.start(&page, id, request, words, &lease, now) {
            Start::Lead(fill) => {
                running.fills.insert(request, fill);
                self.ask_application(at, request, page);
            }
            Start::Wait(_) => {}
            Start::Alone(_) => self.ask_application(at, request, page),
        }
    }

    fn ask_application(&mut self, at: usize, request: RequestId, page: u64) {
        let delay = self.dice.within(50 * MICRO, 3000 * MICRO);
        let life = self.nodes[at].life;
        self.schedule(self.now + delay, Event::Query { node: at, life, request, page });
    }

    fn page_made(&mut self, at: usize, request: RequestId, content: Option<Content>) {
        let now = self.clock(at);
        let fill = self.running(at).fills.remove(&request);
        let Some(content) = content else {
            self.requests.remove(&request);
            let settled = fill.and_then(|fill| self.running(at).reader.failed(fill));
            return settled.into_iter().for_each(|settled| self.settled(at, settled));
        };
        self.answer(request, &content, "origin");
        let Some(fill) = fill else { return };
        if !self.calm && self.dice.permille(20) {
            let settled = self.running(at).reader.unstorable(fill, now);
            return settled.into_iter().for_each(|settled| self.settled(at, settled));
        }
        let declares = !self.dice.permille(self.settings.pages_of_everything);
        let scope = match declares {
            true => database::scope_of(&self.names, content.rows.keys().copied()),
            false => Scope::Everything,
        };
        let running = self.running(at);
        running.made.insert(fill, content);
        if let Some(register) = running.reader.answered(fill, scope, now) {
            let to = register.to.rank;
            self.send(at, to, self.now, Input::Content(Message::Register(register)));
        }
    }

    fn settled(&mut self, at: usize, settled: Settled<u64>) {
        let content = self.running(at).made.remove(&settled.fill);
        if let (Ok(stamp), Some(content)) = (settled.stored, &content) {
            self.running(at).copies.insert(settled.key, (stamp, content.clone()));
        }
        for waiter in settled.serve {
            let content = content.clone().expect("invariant: what is served was made");
            self.answer(waiter, &content, "collapsed");
        }
        for waiter in settled.forward {
            self.ask_application(at, waiter, settled.key);
        }
    }

    fn write_done(&mut self, at: usize, request: RequestId, lost: bool) {
        let now = self.clock(at);
        let running = self.running(at);
        let Some((&id, _)) = running.writes.iter().find(|(_, of)| **of == request) else { return };
        let outcome = if lost { Outcome::Unknown } else { Outcome::Answered };
        let mut out = Vec::new();
        running.updater.finished(id, outcome, now, &mut out);
        if lost {
            self.write_ends(request, "unknown");
        }
        self.updater_actions(at, out);
    }
}
