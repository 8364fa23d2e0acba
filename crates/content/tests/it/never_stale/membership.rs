//! A node's membership: the machines of `cluster`, driven over the fabric as the product's node drives them.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use parking_lot::Mutex;
use verbena_cluster::{
    Answer, Body, ClusterConfig, Configured, EarlierLife, Keeper, KeeperAction, KeeperEvent, KeeperRecord, Lease,
    LeaseWord, Membership, Message, Notice, Office, OfficeAction, OfficeEvent, Participant, ParticipantAction,
    ParticipantEvent, Provider, Role, Roles, StartRecord,
};
use verbena_content::service::{self, Content};
use verbena_fabric::{Address, Class, Fabric, Inbox, Port, Views};
use verbena_terms::{Clock, Incarnation, Lapse, Time, ViewNumber};
pub use verbena_testkit::world::rank;

use crate::never_stale::outside::{Outside, Run};
use crate::never_stale::settings::{DRIFT, LEASE};
use crate::never_stale::slow::Doing;

/// Membership's port.
pub const PORT: Port = Port(1);
/// The node that keeps, where it is always the same.
const KEEPER: usize = 0;

/// What a node has on its disk.
#[derive(Default)]
pub struct Disk {
    start: Option<StartRecord>,
    keeper: Option<KeeperRecord>,
}

pub struct Member {
    at: usize,
    run: Run,
    outside: Rc<Outside>,
    disk: Rc<RefCell<Disk>>,
    clock: Arc<dyn Clock>,
    participant: Participant,
    keeper: Option<Keeper>,
    /// Where the keeper is whoever holds it.
    office: Option<Office>,
    content: Content,
    lease: Arc<LeaseWord>,
    desk: Arc<Mutex<Desk>>,
    doing: Doing,
    /// The present life's fabric; none before the first.
    line: Option<(Arc<dyn Fabric>, Inbox)>,
    /// Messages of this node to itself.
    local: Vec<Message>,
    /// A life whose start number is stored and that has to begin.
    begins: Option<Incarnation>,
    leaving: Leaving,
}

/// What the page protocol has said, and membership has not looked at yet.
#[derive(Default)]
struct Desk {
    prepared: ViewNumber,
    settled: BTreeSet<Incarnation>,
    /// That it is closed, and whether it is at rest.
    closed: Option<bool>,
}

/// How far leaving is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leaving {
    No,
    /// What is open is ended first, until then at most.
    Closing(Time),
    Asked,
}

struct Back {
    desk: Arc<Mutex<Desk>>,
    doing: Doing,
}

impl service::Membership for Back {
    fn prepared(&self, view: ViewNumber) {
        let desk = self.desk.clone();
        self.doing.then(move || {
            let mut desk = desk.lock();
            desk.prepared = desk.prepared.max(view);
        });
    }

    fn settled(&self, who: Incarnation) {
        let desk = self.desk.clone();
        self.doing.then(move || {
            desk.lock().settled.insert(who);
        });
    }

    fn closed(&self, at_rest: bool) {
        let desk = self.desk.clone();
        self.doing.then(move || desk.lock().closed = Some(at_rest));
    }
}

/// Three homes, the first of them the keeper, and two proxies. Every one of them serves requests.
pub fn members() -> Vec<Configured> {
    let (both, proxy) = (Roles::ALL, Roles::of(Role::Reader).and(Role::Updater));
    let configured = |(at, roles)| Configured { name: format!("n{at}"), address: address(at).0, roles };
    [both, both, both, proxy, proxy].into_iter().enumerate().map(configured).collect()
}

fn address(at: usize) -> Address {
    Address(format!("sim://{}", rank(at)))
}

fn membership(at: usize, office_moves: bool) -> Membership {
    let (lease, drift, name) = (Lapse(LEASE), Lapse(DRIFT), Some(format!("n{at}")));
    let config = ClusterConfig { lease, drift, name, ..ClusterConfig::default() };
    let config = if office_moves {
        let Configured { address, roles, .. } = members().swap_remove(at);
        ClusterConfig { provider: Provider::Etcd, address: Some(address), roles, ..config }
    } else {
        ClusterConfig { members: members(), ..config }
    };
    Membership::new(&config).expect("a sound configuration")
}

/// Which life a process begins with that starts with this disk.
pub fn first_life(at: usize, outside: &Outside, disk: &Disk) -> Incarnation {
    if outside.settings.office_moves {
        return outside.enrolled(at);
    }
    let membership = membership(at, false);
    let (participant, _) = Participant::start(&membership, address(at).0, disk.start, Time::ZERO).expect("a start");
    participant.incarnation()
}

impl Member {
    /// A process that starts. Its first life begins when [`begins`](Self::begins) says so.
    pub fn start(
        (at, run, first): (usize, Run, Incarnation),
        outside: &Rc<Outside>,
        disk: &Rc<RefCell<Disk>>,
        content: Content,
        doing: Doing,
    ) -> Member {
        let (office_moves, rules) = (outside.settings.office_moves, outside.settings.cluster_rules);
        let (membership, clock) = (membership(at, office_moves), outside.sim.clock(rank(at)));
        let (start, keeper) = (disk.borrow().start, disk.borrow().keeper.clone());
        let now = clock.now();
        let (participant, actions) =
            Participant::with_rules(&membership, address(at).0, start, now, rules).expect("a start");
        let office = office_moves.then(|| Office::with_rules(&membership, now, rules));
        let keeper = (!office_moves && at == KEEPER)
            .then(|| Keeper::with_rules(membership, first, keeper, EarlierLife::Ended, now, rules));
        let mut member = Member {
            at,
            run,
            outside: outside.clone(),
            disk: disk.clone(),
            clock,
            participant,
            keeper,
            office,
            content,
            lease: Arc::new(LeaseWord::new()),
            desk: Arc::default(),
            doing,
            line: None,
            local: Vec::new(),
            begins: None,
            leaving: Leaving::No,
        };
        if office_moves {
            // It was asked for its rank before it started.
            member.enrolled(first);
        } else {
            member.act(actions);
        }
        member
    }

    pub fn me(&self) -> Incarnation {
        self.participant.incarnation()
    }

    pub fn lease(&self) -> &Arc<LeaseWord> {
        &self.lease
    }

    /// Closes the service, and then asks the keeper for a view without this node.
    pub fn leave(&mut self) {
        if self.leaving == Leaving::No {
            self.leaving = Leaving::Closing(self.clock.now() + LEASE);
            self.content.close(self.back());
        }
    }

    /// Whether it is out for good.
    pub fn has_ended(&self) -> bool {
        self.participant.ended()
    }

    /// The life that is to begin, once.
    pub fn begins(&mut self) -> Option<Incarnation> {
        self.begins.take()
    }

    /// The life before is over: nothing of it is heard any more.
    pub fn hang_up(&mut self) {
        self.line = None;
        let mut desk = self.desk.lock();
        // Closed is closed for good.
        *desk = Desk { closed: desk.closed, ..Desk::default() };
    }

    /// The life has begun on this fabric.
    pub fn has_begun(&mut self, fabric: Arc<dyn Fabric>) {
        let inbox = fabric.listen(PORT, Views::Any).expect("a port that nobody opened");
        self.line = Some((fabric, inbox));
        self.preside(OfficeEvent::Begun(self.me(), address(self.at).0));
        self.participate(ParticipantEvent::Persisted);
    }

    /// Handles what there is. Gives when there will be something on the clock.
    pub fn turn(&mut self) -> Time {
        while let Some(arrived) = self.line.as_ref().and_then(|(_, inbox)| inbox.try_take()) {
            let message = Message::decode(&arrived.body).expect("a message of this cluster");
            assert_eq!(message.from.rank, arrived.from.rank);
            self.deliver(message);
        }
        self.look_at_desk();
        self.participate(ParticipantEvent::Tick);
        self.keep(KeeperEvent::Tick);
        self.preside(OfficeEvent::Tick);
        if self.has_ended() {
            self.preside(OfficeEvent::Left);
        }
        let keeper = self.keeper.as_ref().map_or(Time::FAR, Keeper::wake_at);
        let office = self.office.as_ref().map_or(Time::FAR, Office::wake_at);
        let closing = if let Leaving::Closing(until) = self.leaving { until } else { Time::FAR };
        self.participant.wake_at().min(keeper).min(office).min(closing)
    }

    fn look_at_desk(&mut self) {
        let (prepared, settled, closed) = {
            let mut desk = self.desk.lock();
            (desk.prepared, std::mem::take(&mut desk.settled), desk.closed)
        };
        if let Leaving::Closing(until) = self.leaving
            && (closed.is_some() || self.clock.now() >= until)
        {
            self.leaving = Leaving::Asked;
            self.participate(ParticipantEvent::Leave { at_rest: closed.unwrap_or(false) });
        }
        for who in settled {
            self.participate(ParticipantEvent::Settled(who));
        }
        let Some(newest) = self.participant.view().map(|view| view.number()) else { return };
        if prepared >= newest && self.participant.lease().acknowledged < newest {
            self.participate(ParticipantEvent::Prepared(newest));
        }
    }

    fn participate(&mut self, event: ParticipantEvent) {
        let actions = self.participant.handle(self.clock.now(), event);
        self.act(actions);
        self.deliver_local();
    }

    fn keep(&mut self, event: KeeperEvent) {
        let mut events = vec![event];
        while let (Some(keeper), Some(event)) = (&mut self.keeper, events.pop()) {
            for action in keeper.handle(self.clock.now(), event) {
                match action {
                    KeeperAction::Send(message) => self.send(message),
                    KeeperAction::Persist(record) if self.office.is_some() => {
                        self.preside(OfficeEvent::Store(Box::new(record)));
                    }
                    KeeperAction::Persist(record) => {
                        self.disk.borrow_mut().keeper = Some(record);
                        events.push(KeeperEvent::Persisted);
                    }
                    KeeperAction::Resign => self.preside(OfficeEvent::Unheard),
                }
            }
        }
        self.deliver_local();
    }

    fn deliver_local(&mut self) {
        while !self.local.is_empty() {
            let message = self.local.remove(0);
            self.deliver(message);
        }
    }

    fn deliver(&mut self, message: Message) {
        match message.body {
            Body::Join { .. } | Body::Renew(_) | Body::Acknowledge(_) | Body::Leave { .. } => {
                self.keep(KeeperEvent::Message(message));
            }
            _ => {
                let from = message.from;
                self.participate(ParticipantEvent::Message(message));
                self.preside(OfficeEvent::Heard { from, is_member: self.participant.view().is_some() });
            }
        }
    }

    // The office.

    pub fn answered(&mut self, number: u64, answer: Option<Answer>) {
        self.preside(OfficeEvent::Answered(number, answer));
    }

    fn preside(&mut self, event: OfficeEvent) {
        let now = self.clock.now();
        let Some(office) = &mut self.office else { return };
        for action in office.handle(now, event) {
            match action {
                OfficeAction::Ask(number, question) => self.outside.ask(self.at, self.run, number, question),
                OfficeAction::Enrolled(life) => self.enrolled(life),
                OfficeAction::Appoint(record, term) => {
                    let (me, rules) = (self.me(), self.outside.settings.cluster_rules);
                    let record = record.map(|record| *record);
                    self.keeper = Some(Keeper::appointed(membership(self.at, true), me, record, term, now, rules));
                }
                OfficeAction::Dismiss => self.keeper = None,
                OfficeAction::Authority(until) => self.keep(KeeperEvent::Authority(until)),
                OfficeAction::Stored => self.keep(KeeperEvent::Persisted),
                OfficeAction::Follow(holder) => self.participate(ParticipantEvent::Keeper(holder.who)),
            }
        }
    }

    fn enrolled(&mut self, life: Incarnation) {
        self.participate(ParticipantEvent::Enrolled(life));
        self.begins = Some(self.me());
    }

    fn act(&mut self, actions: Vec<ParticipantAction>) {
        for action in actions {
            match action {
                ParticipantAction::Persist(record) => {
                    self.disk.borrow_mut().start = Some(record);
                    self.begins = Some(Incarnation { rank: record.rank, start: record.start });
                }
                // The fabric of the life before is there until the next begins, so that nothing rests on its being gone.
                ParticipantAction::Enrol => {
                    self.preside(OfficeEvent::Over);
                    self.preside(OfficeEvent::Enrol);
                }
                ParticipantAction::Publish(lease) => self.publish(lease),
                ParticipantAction::Send(message) => self.send(message),
                ParticipantAction::Tell(Notice::ViewLearnt(view)) => {
                    self.content.view_learnt(view, self.back());
                }
                ParticipantAction::Tell(Notice::MemberOut { incarnation, .. }) => {
                    self.content.member_out(incarnation);
                }
                ParticipantAction::Tell(_) => {}
            }
        }
    }

    fn back(&self) -> Back {
        Back { desk: self.desk.clone(), doing: self.doing.clone() }
    }

    fn publish(&mut self, lease: Lease) {
        self.lease.store(lease);
        if let Some((fabric, _)) = &self.line {
            fabric.set_view(lease.acknowledged);
        }
    }

    fn send(&mut self, message: Message) {
        if message.to.rank == self.me().rank {
            return self.local.push(message);
        }
        let Some((fabric, _)) = &self.line else { return };
        let Some(at) = self.outside.node_of(message.to.rank) else { return };
        // To the keeper's present life where the message leaves that open.
        let Some(lives) = self.outside.lives.borrow().get(&at).copied() else { return };
        let is_open = message.to.start == 0 || self.office.is_none() && at == KEEPER;
        let to = if is_open && lives.rank == message.to.rank { lives } else { message.to };
        let peer = fabric.connect(to, &address(at)).expect("an address of this world");
        // What cannot be sent is lost: everything that matters is repeated.
        let _ = peer.send(Class::Control, message.view, PORT, message.request, &message.encode());
    }
}
