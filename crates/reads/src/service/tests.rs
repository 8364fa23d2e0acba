use verbena_cluster::{Departed, Lease, Member, Role, Roles, View};
use verbena_fabric::tcp::{TcpConfig, TcpFabric};
use verbena_fabric::{RegionKey, Rights, Secret};
use verbena_metrics::Registry;
use verbena_service::driver::Machine;
use verbena_terms::{BootClock, Clock, Time};

use std::sync::mpsc::{Receiver, channel};

use super::logs::{ASK_AGAIN, Action, Logs};
use super::*;
use crate::layout::Layout;
use crate::wire::{Frame, Message};
use crate::{Group, Lost, Read, Seen};

const NAMES: u64 = 5;
const PASSES_FOR: Duration = Duration::from_secs(1);

fn member(rank: u32, address: &str, roles: &[Role]) -> Member {
    let roles = roles.iter().fold(Roles::default(), |roles, role| roles.and(*role));
    Member { incarnation: Incarnation::new(rank, 1), name: format!("n{rank}"), address: address.into(), roles }
}

fn departed(rank: u32, is_relay: bool, at_rest: bool) -> Departed {
    Departed { incarnation: Incarnation::new(rank, 1), since: ViewNumber(1), at_rest, is_relay }
}

fn view(number: u32, members: Vec<Member>, departed: Vec<Departed>) -> Arc<View> {
    Arc::new(View::new(ViewNumber(number), members, departed).unwrap())
}

fn layout(owner: Incarnation, names: u64) -> Layout {
    Layout { owner, ring_words: 64, names, is_complete: true }
}

fn key(owner: Incarnation) -> RegionKey {
    let (view, rights, secret) = (ViewNumber(0), Rights::Change, Secret([7; 16]));
    RegionKey { owner, region: 1, view, bytes: layout(owner, NAMES).bytes(), rights, secret }
}

/// The machine alone, and what it did last.
struct Alone {
    logs: Logs,
    now: Time,
}

impl Alone {
    fn start() -> Alone {
        let mut logs = Logs::new(NAMES, PASSES_FOR);
        logs.start_incarnation(Incarnation::new(1, 1), &mut vec![]);
        Alone { logs, now: Time::ZERO + Duration::from_secs(1) }
    }

    fn does(&mut self, event: impl FnOnce(&mut Logs, Time, &mut Vec<Action>)) -> Vec<String> {
        let mut out = vec![];
        event(&mut self.logs, self.now, &mut out);
        out.iter()
            .map(|action| match action {
                Action::Send(to, Message::Ask) => format!("ask {to}"),
                Action::Send(to, Message::Key(key)) => format!("tell {to} the key of {}", key.owner),
                Action::Open(key) => format!("open {}", key.owner),
                Action::Read(owner) => format!("read {owner}"),
                Action::Refuse(who, why) => format!("refuse {who}: {why}"),
                Action::Settle(who) => format!("settle {who}"),
                Action::Publish => "publish".into(),
            })
            .collect()
    }

    fn view(&mut self, view: &Arc<View>, own: Option<RegionKey>) -> Vec<String> {
        self.does(|logs, now, out| logs.view(view, own, now, out))
    }

    fn tick(&mut self) -> Vec<String> {
        self.does(|logs, now, out| logs.tick(now, out))
    }

    fn says(&mut self, rank: u32, message: Message) -> Vec<String> {
        let from = Incarnation::new(rank, 1);
        self.does(|logs, now, out| logs.frame(Frame { from, message }, now, out))
    }

    fn read(&mut self, rank: u32, header: Option<header::Header>) -> Vec<String> {
        self.does(|logs, now, out| logs.completed(Incarnation::new(rank, 1), header, now, out))
    }

    fn is_open(&self, rank: u32) -> bool {
        self.logs.relays().any(|(who, layout)| who == Incarnation::new(rank, 1) && layout.is_some())
    }
}

#[test]
fn a_relay_is_asked_until_its_log_is_open_and_again_where_it_cannot_be_read() {
    let mut node = Alone::start();
    let (relay, other) = (Incarnation::new(2, 1), Incarnation::new(3, 1));
    let members = || vec![member(1, "a", &[Role::Reader]), member(2, "b", &[Role::Relay]), member(3, "c", &[])];
    assert_eq!(node.view(&view(1, members(), vec![]), None), ["publish"]);
    assert_eq!(node.tick(), ["ask 2.1"]);
    assert_eq!((node.tick(), node.logs.next_deadline()), (vec![], Some(node.now + ASK_AGAIN)));
    node.now = node.now + ASK_AGAIN;
    assert_eq!(node.tick(), ["ask 2.1"]);
    assert!(node.says(3, Message::Key(key(other))).is_empty(), "it is no relay");
    assert_eq!(node.says(2, Message::Key(key(relay))), ["open 2.1", "read 2.1"]);
    assert!(node.says(2, Message::Key(key(relay))).is_empty(), "it came twice");
    assert_eq!((node.tick(), node.logs.next_deadline()), (vec![], None));
    // What was in flight in the view before gives no outcome.
    assert_eq!(node.view(&view(2, members(), vec![]), None), ["read 2.1", "publish"]);
    let refused = node.read(2, Some(layout(relay, NAMES + 1).header()));
    assert!(
        refused[0].starts_with("refuse 2.1: names are hashed under another key") && !node.is_open(2),
        "{refused:?}"
    );
    assert_eq!(node.tick(), Vec::<String>::new(), "not at once");
    node.now = node.now + ASK_AGAIN;
    assert_eq!(node.tick(), ["ask 2.1"]);
    node.says(2, Message::Key(key(relay)));
    assert_eq!((node.read(2, Some(layout(relay, NAMES).header())), node.is_open(2)), (vec!["publish".into()], true));
    // It stays open in the next view; a fill that cannot read it has it opened anew.
    assert_eq!((node.view(&view(3, members(), vec![]), None), node.is_open(2)), (vec!["publish".into()], true));
    let lost = node.does(|logs, now, out| logs.lost(relay, now, out));
    assert_eq!((lost, node.is_open(2)), (vec!["publish".to_owned()], false));
    assert_eq!(node.tick(), ["ask 2.1"], "at once");
    // Other fills say the same, and put nothing off: not the question, and not what is opened by its answer.
    assert!(node.does(|logs, now, out| logs.lost(relay, now, out)).is_empty());
    node.says(2, Message::Key(key(relay)));
    assert!(node.does(|logs, now, out| logs.lost(relay, now, out)).is_empty());
    node.read(2, Some(layout(relay, NAMES).header()));
    assert!(node.is_open(2));
    assert_eq!(node.read(2, Some(layout(relay, NAMES).header())), ["publish"], "its header was read twice");
    assert_eq!(node.view(&view(4, members()[..1].to_vec(), vec![]), None), ["publish"]);
    assert_eq!((node.tick(), node.logs.next_deadline()), (vec![], None), "it has gone");
}

#[test]
fn a_node_tells_the_key_of_its_relay_and_has_none_where_none_runs() {
    let mut node = Alone::start();
    let members = vec![member(1, "a", &[Role::Relay]), member(2, "b", &[Role::Reader])];
    let refused = ["refuse 2.1: asked for the log of a node without a relay"];
    assert!(node.says(2, Message::Ask).is_empty(), "it is in no view yet");
    node.view(&view(1, members.clone(), vec![]), Some(key(Incarnation::new(1, 1))));
    assert_eq!(node.says(2, Message::Ask), ["tell 2.1 the key of 1.1"]);
    node.view(&view(2, members, vec![]), None);
    assert_eq!(node.says(2, Message::Ask), refused);
}

#[test]
fn a_relay_that_has_left_is_settled_when_it_has_surely_stopped() {
    let mut node = Alone::start();
    let alone = || vec![member(1, "a", &[Role::Reader])];
    let gone = || vec![departed(2, true, false), departed(3, true, true), departed(4, false, false)];
    assert_eq!(node.view(&view(1, alone(), gone()), None), ["settle 4.1", "publish"], "it was no relay");
    assert!(!node.logs.is_settled());
    assert_eq!(node.tick(), ["settle 3.1", "publish"], "it was at rest");
    assert!(!node.logs.is_settled());
    assert_eq!(node.logs.next_deadline(), Some(node.now + PASSES_FOR));
    node.now = node.now + PASSES_FOR;
    assert_eq!((node.tick(), node.logs.is_settled()), (vec!["settle 2.1".to_owned(), "publish".into()], true));
    // The next view lists them still: this home says it again, and waits for none anew.
    let again = node.view(&view(2, alone(), gone()), None);
    assert_eq!(again, ["settle 4.1", "settle 2.1", "settle 3.1", "publish"]);
    assert!(node.logs.is_settled() && node.tick().is_empty());
    // Another one leaves, and is back before its time.
    let gone = || vec![departed(5, true, false)];
    node.view(&view(3, alone(), gone()), None);
    assert!(!node.logs.is_settled() && node.tick().is_empty());
    let mut back = alone();
    back.push(Member { incarnation: Incarnation::new(5, 2), ..member(5, "e", &[Role::Relay]) });
    node.view(&view(4, back, gone()), None);
    assert_eq!(node.tick(), ["ask 5.2", "settle 5.1", "publish"]);
    assert!(node.logs.is_settled());
}

/// A node with its thread, on a fabric.
struct Node {
    logs: ReadLogs,
    lease: Arc<LeaseWord>,
    fabric: Arc<dyn Fabric>,
    roles: Vec<Role>,
    settled: Option<Receiver<Incarnation>>,
}

impl Node {
    fn start(rank: u32, relay: Option<RelaySettings>, roles: &[Role]) -> Node {
        let fabric = TcpFabric::open(Incarnation::new(rank, 1), TcpConfig::default()).unwrap();
        let fabric: Arc<dyn Fabric> = Arc::new(fabric);
        let (patience, lease) = (Duration::from_secs(1), Duration::from_secs(1));
        let options = Options { relay, names: NAMES, patience, lease };
        let logs = ReadLogs::start(options, Metrics::new(&Registry::new()).unwrap()).unwrap();
        let lease = Arc::new(LeaseWord::new());
        logs.life_begins(fabric.clone(), &lease).unwrap();
        Node { logs, lease, fabric, roles: roles.to_vec(), settled: None }
    }

    fn member(&self) -> Member {
        member(self.fabric.identity().rank.0, &self.fabric.address().0, &self.roles)
    }

    fn enter(&mut self, view: &Arc<View>) {
        let (settles, settled) = channel();
        self.settled = Some(settled);
        self.logs.view_learnt(view, Box::new(move |who| settles.send(who).unwrap_or(())));
        let number = view.number();
        self.lease.store(Lease { until: Time::FAR, acknowledged: number, in_effect: number });
        self.logs.view_in_effect(number);
    }

    /// What a fill with this tag reads while `what` happens.
    fn fill(&self, tag: u64, what: impl FnOnce()) -> Read {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let watching = self.logs.begin(tag).await;
            what();
            watching.finish().await
        })
    }
}

#[test]
fn what_a_relay_records_is_in_the_fill_of_another_node() {
    let mut proxy = Node::start(1, None, &[Role::Reader]);
    let mut relay = Node::start(2, Some(RelaySettings { is_complete: true }), &[Role::Relay]);
    let recorder = relay.logs.recorder().unwrap();
    assert!(proxy.logs.recorder().is_none() && !recorder.may_pass() && !proxy.logs.has_relays());
    let both = view(1, vec![proxy.member(), relay.member()], vec![]);
    relay.enter(&both);
    proxy.enter(&both);
    assert!(recorder.may_pass() && recorder.is_read() && proxy.logs.has_relays());

    let names = |of: &[u64]| Seen::Names(vec![Group { table: 1, any: 2, names: of.to_vec() }]);
    let latest = BootClock.now() + Duration::from_secs(30);
    let reads = loop {
        let read = proxy.fill(77, || recorder.record(Some(77), None, names(&[11, 12])));
        if read != Read::Lost(Lost::Relays) {
            break read;
        }
        assert!(BootClock.now() < latest, "the log is not open");
        std::thread::sleep(Duration::from_millis(1));
    };
    assert_eq!(reads, Read::Names([11, 12].into()));
    // The request of that tag was answered: what is read for it counts for each that is open (rule Q3).
    assert_eq!(proxy.fill(78, || recorder.record(Some(77), None, names(&[13]))), Read::Names([13].into()));
    assert_eq!(proxy.fill(79, || {}), Read::Names([].into()));

    // The relay's incarnation ends: what it says no more cannot be known.
    relay.logs.life_ends();
    assert!(!recorder.is_read());
    assert!(matches!(proxy.fill(79, || {}), Read::Lost(Lost::Gone | Lost::Closed)));
    let mut alone = departed(2, true, false);
    alone.since = ViewNumber(2);
    proxy.enter(&view(2, vec![proxy.member()], vec![alone]));
    assert_eq!(proxy.fill(80, || {}), Read::Lost(Lost::Relays), "it may pass statements still");
    let settled = proxy.settled.as_ref().unwrap().recv_timeout(Duration::from_secs(30));
    assert_eq!(settled, Ok(Incarnation::new(2, 1)));
    let latest = BootClock.now() + Duration::from_secs(30);
    while proxy.fill(81, || {}) != Read::Names([].into()) {
        assert!(BootClock.now() < latest, "it is settled, and pages have lists again");
        std::thread::sleep(Duration::from_millis(1));
    }
}
