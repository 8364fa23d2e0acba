//! The conformance suite on the provider `verbs` between two machines of Debian's kernel that a cable joins: owners and targets are in the one, those who reach them in the
//! other, where what callers send is lost and reordered. Messages between nodes that both may call stay in one of them; those that go by adapters are sent from either to the other
//! beside the suite.

use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use crate::common::far::{self, Far, Wire};
use crate::common::network::{Network, socket};
use crate::common::sending::{Kept, LARGEST, PATIENCE, Went};
use parking_lot::Mutex;
use verbena_fabric::conformance::{
    Able, CHECKS, Fault, Harness, Target, a_queue_that_nobody_empties_is_full, control_does_not_wait_behind_bulk,
    messages_arrive_as_they_were_sent, run_all,
};
use verbena_fabric::verbs::{VerbsConfig, VerbsFabric};
use verbena_fabric::{Capabilities, Class, Fabric, Inbox, Port, Views};
use verbena_terms::{Incarnation, Rank};
use verbena_testkit::adapters::{self, Fate, IWARP, Kind, ROCE, ROUGH, SKIPPED, Weather, run};
use verbena_testkit::machine;
use verbena_testkit::relay::Mode;

/// The device and the interface at the cable.
const DEVICE: u8 = 9;
const LINK: &str = "e0";
const HERE: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 1);
const THERE: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 2);
/// Where the other machine is asked. What comes and goes by it has no weather.
const PORT: u16 = 700;
/// What adapters send by the cable.
const BAND: &str = "1:2";

#[test]
fn soft_roce_on_two_machines() {
    machine::in_two_machines_at_length(
        "rxe",
        "conformance_verbs_linked::inside_near",
        "conformance_verbs_linked::inside_far",
    );
}

#[test]
fn soft_iwarp_on_two_machines() {
    machine::in_two_machines_at_length(
        "siw",
        "conformance_verbs_linked::inside_siw_near",
        "conformance_verbs_linked::inside_siw_far",
    );
}

#[test]
fn inside_near() {
    check(ROCE, ROUGH);
}

#[test]
fn inside_siw_near() {
    check(IWARP, ROUGH);
}

#[test]
fn inside_far() {
    serve(ROCE);
}

#[test]
fn inside_siw_far() {
    serve(IWARP);
}

#[test]
fn target() {
    adapters::serve(|incarnation| config(ROCE, incarnation.rank, THERE));
}

#[test]
fn target_siw() {
    adapters::serve(|incarnation| config(IWARP, incarnation.rank, THERE));
}

fn config(kind: Kind, rank: Rank, address: Ipv4Addr) -> VerbsConfig {
    kind.config(rank, DEVICE, address)
}

fn serve(kind: Kind) {
    if machine::is_inside() {
        split(kind);
        let opened = far::serve(SocketAddr::from((THERE, PORT)), There(kind));
        println!("counted: {opened} nodes of {kind:?} for others");
    }
}

/// What the machine of owners and targets does.
struct There(Kind);

impl far::There for There {
    fn open(&self, incarnation: Incarnation, listen: SocketAddr) -> Arc<dyn Fabric> {
        let mut config = config(self.0, incarnation.rank, THERE);
        config.tcp.listen = listen;
        Arc::new(VerbsFabric::open(incarnation, config).expect("a fabric on a device"))
    }

    fn act(&self, words: &[&str]) -> String {
        match words {
            ["sent"] => adapters::sent(self.0, DEVICE, LINK).to_string(),
            [program, arguments @ ..] => {
                run(program, arguments.iter());
                String::new()
            }
            [] => panic!("nothing is asked for"),
        }
    }
}

fn split(kind: Kind) {
    adapters::make_bands(LINK);
    adapters::split(LINK, &[], kind, BAND);
}

fn check(kind: Kind, weather: Weather) {
    if !machine::is_inside() {
        return;
    }
    let there = SocketAddr::from((THERE, PORT));
    split(kind);
    let mut linked = Linked {
        kind,
        weather,
        there,
        wire: Wire::to(there),
        network: Arc::default(),
        capabilities: open(kind, Incarnation::new(1, 1)).capabilities().clone(),
        next_rank: 1,
        far: HashSet::new(),
        targets: 0,
        held: Mutex::default(),
    };
    linked.set_weather();
    let report = run_all(&mut linked);
    let skipped: Vec<&str> = report.skipped.iter().map(|(name, _)| *name).collect();
    // The memory of another machine cannot be handed on.
    let also_here = [&["what_is_handed_on_shows_the_region"], &SKIPPED[..]].concat();
    assert_eq!(skipped, also_here);
    assert_eq!(report.ran, CHECKS.len() - also_here.len());
    let sent = [adapters::sent(kind, DEVICE, LINK), linked.ask("sent").parse().expect("a number")];
    assert!(sent.iter().all(|packets| *packets > 10_000), "{sent:?} packets went by the cable");
    let (owners, targets) = (linked.far.len(), linked.targets);
    assert!(owners >= 30 && targets >= 3, "{owners} owners and {targets} targets were far");
    println!("counted: {} checks on {kind:?}, {owners} owners and {targets} targets far, {sent:?} packets", report.ran);
    messages_by_adapters_cross_the_cable(&mut linked);
}

/// Those checks on messages that both machines can take part in, with what goes by adapters alone; then as many more as are lost and reordered now and then.
fn messages_by_adapters_cross_the_cable(linked: &mut Linked) {
    let mut apart = Apart { linked, near: Kept::default(), far: Kept::default(), is_far: true };
    let checks: [fn(&mut dyn Harness) -> Able<()>; 3] =
        [messages_arrive_as_they_were_sent, control_does_not_wait_behind_bulk, a_queue_that_nobody_empties_is_full];
    let [mut from_here, mut from_there] = [Went::default(); 2];
    let mut count = |apart: &mut Apart| {
        apart.near.count(&mut from_here);
        apart.far.count(&mut from_there);
    };
    for check in checks {
        check(&mut apart).expect("adapters and processes are there");
        count(&mut apart);
    }
    let (there, back) = each_of_many_comes_whole_and_in_order(&mut apart);
    count(&mut apart);
    let (sent, by_tcp) = (from_here.sent + from_there.sent, from_here.by_tcp + from_there.by_tcp);
    let arrived = from_there.arrived;
    assert!(adapters::lost(LINK) > 0, "nothing was lost");
    assert!(by_tcp == 0, "{sent} messages went by the adapters, and {by_tcp} did not");
    assert!(
        sent > 1600 && arrived >= 800,
        "{sent} messages went by the adapters, and {arrived} came to the other machine"
    );
    println!(
        "counted: {sent} messages by adapters, {arrived} of them to the other machine; {there} and {back} in order"
    );
}

/// From each machine to the other at once. How many came there and back.
fn each_of_many_comes_whole_and_in_order(apart: &mut Apart) -> (usize, usize) {
    const COUNT: u64 = 400;
    const PORT: Port = Port(79);
    let (near, far) = (apart.node(), apart.node());
    let body = |number: u64| vec![number as u8; (number as usize * 997) % (LARGEST + 1)];
    let inboxes = [&near, &far].map(|node| node.listen(PORT, Views::Any).expect("a port opens"));
    let ways = [(&near, &far), (&far, &near)]
        .map(|(from, to)| from.connect(to.identity(), &to.address()).expect("a node connects"));
    let take_all = |inbox: &Inbox, from: &Arc<dyn Fabric>| {
        let mut next = [0; Class::ALL.len()];
        while next.iter().any(|next| *next < COUNT) {
            let message = inbox.take(PATIENCE).unwrap_or_else(|| panic!("of {COUNT} have come {next:?}"));
            let at = &mut next[message.class as usize];
            assert_eq!((message.from, message.number), (from.identity(), *at), "in order, and once");
            assert!(message.body == body(message.number), "message {} is torn", message.number);
            *at += 1;
        }
        next.iter().sum::<u64>() as usize
    };
    std::thread::scope(|scope| {
        for way in &ways {
            scope.spawn(|| {
                for number in 0..COUNT {
                    for class in Class::ALL {
                        while way.send(class, Target::VIEW, PORT, number, &body(number)).is_err() {
                            std::thread::sleep(Duration::from_millis(5));
                        }
                    }
                }
            });
        }
        let there = scope.spawn(|| take_all(&inboxes[1], &near));
        let back = take_all(&inboxes[0], &far);
        (there.join().expect("all have come"), back)
    })
}

/// Nodes by turns here and in the other machine, whose messages go by adapters.
struct Apart<'a> {
    linked: &'a mut Linked,
    near: Kept<VerbsFabric>,
    far: Kept<Far>,
    is_far: bool,
}

impl Harness for Apart<'_> {
    fn node(&mut self) -> Arc<dyn Fabric> {
        self.is_far = !self.is_far;
        let who = Incarnation::new(self.linked.rank(), 1);
        if !self.is_far {
            return self.near.keep(open(self.linked.kind, who));
        }
        self.far.keep(Far::open(self.linked.there, who, 0, self.linked.capabilities.clone()))
    }

    fn advance(&mut self) {
        self.linked.advance();
    }

    fn threads(&self) -> bool {
        true
    }

    fn target(&mut self, bytes: u64) -> Able<Target> {
        // Whoever comes next is here.
        self.is_far = true;
        self.linked.target(bytes)
    }

    fn pause(&mut self, target: Incarnation) -> Able<()> {
        self.linked.pause(target)
    }

    fn resume(&mut self, target: Incarnation) {
        self.linked.resume(target);
    }
}

fn open(kind: Kind, incarnation: Incarnation) -> VerbsFabric {
    VerbsFabric::open(incarnation, config(kind, incarnation.rank, HERE)).expect("a fabric on a device")
}

struct Linked {
    kind: Kind,
    /// Of what this machine sends.
    weather: Weather,
    there: SocketAddr,
    /// The lifeline of the other machine.
    wire: Wire,
    network: Arc<Network>,
    /// What nodes of either machine can do.
    capabilities: Capabilities,
    next_rank: u32,
    /// Nodes in the other machine.
    far: HashSet<Incarnation>,
    targets: usize,
    /// Machines whose packets are held.
    held: Mutex<Vec<Side>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Here,
    There,
}

impl Linked {
    fn ask(&self, line: &str) -> String {
        self.wire.ask(line).expect("the other machine does as it is asked")
    }

    fn rank(&mut self) -> u32 {
        self.next_rank += 1;
        self.next_rank
    }

    fn open_far(&mut self, incarnation: Incarnation, port: u16) -> Arc<dyn Fabric> {
        let far = Far::open(self.there, incarnation, port, self.capabilities.clone());
        self.far.insert(incarnation);
        self.network.note(incarnation, &far.address());
        Arc::new(far)
    }

    fn side_of(&self, node: Incarnation) -> Side {
        if self.far.contains(&node) { Side::There } else { Side::Here }
    }

    /// What happens to what adapters of a machine send, from now on.
    fn happen(&self, side: Side, fate: Fate) {
        // Of the answers to a read of 1 MiB something would be lost every time, and sent again from there on.
        let weather = if side == Side::Here { self.weather } else { &[] };
        self.queue("replace", side, &fate.way(weather));
        self.held.lock().retain(|held| *held != side);
        if fate == Fate::Hold {
            self.queue("change", side, &["plug", "block"]);
            self.held.lock().push(side);
        }
    }

    fn queue(&self, action: &str, side: Side, way: &[&str]) {
        let words = [&["qdisc", action, "dev", LINK, "parent", BAND], way].concat();
        match side {
            Side::Here => run("tc", words.iter()),
            Side::There => drop(self.ask(&format!("tc {}", words.join(" ")))),
        }
    }

    fn set_weather(&self) {
        for side in std::mem::take(&mut *self.held.lock()) {
            self.queue("change", side, &["plug", "release_indefinite"]);
            std::thread::sleep(Duration::from_millis(20));
        }
        for side in [Side::Here, Side::There] {
            self.happen(side, Fate::Pass);
        }
    }
}

impl Harness for Linked {
    fn node(&mut self) -> Arc<dyn Fabric> {
        let rank = self.rank();
        self.network.join(open(self.kind, Incarnation::new(rank, 1)))
    }

    fn owner(&mut self) -> Arc<dyn Fabric> {
        let rank = self.rank();
        self.open_far(Incarnation::new(rank, 1), 0)
    }

    fn advance(&mut self) {
        std::thread::sleep(Duration::from_micros(200));
    }

    fn threads(&self) -> bool {
        true
    }

    fn fault(&mut self, fault: Fault, from: Incarnation, to: Incarnation) -> Able<()> {
        let way = self.network.between(from, to);
        let ends = [self.side_of(from), self.side_of(to)];
        assert!(ends == [Side::Here, Side::There], "what happens, happens on the way to the other machine");
        match fault {
            Fault::Cut => {
                way.up(Mode::Lose);
                self.happen(Side::Here, Fate::Lose);
            }
            Fault::LoseAnswers => {
                way.down(Mode::Lose);
                self.happen(Side::There, Fate::Lose);
            }
            Fault::Hold => {
                way.up(Mode::Hold);
                self.happen(Side::Here, Fate::Hold);
            }
            Fault::Repeat => self.happen(Side::Here, Fate::Double),
        }
        Ok(())
    }

    fn heal(&mut self, from: Incarnation, to: Incarnation) {
        let way = self.network.between(from, to);
        way.up(Mode::Pass);
        way.down(Mode::Pass);
        self.set_weather();
    }

    fn target(&mut self, bytes: u64) -> Able<Target> {
        let incarnation = Incarnation::new(self.rank(), 1);
        let line = self.ask(&format!(
            "target conformance_verbs_linked::{} {} {bytes}",
            self.kind.target,
            incarnation.to_word()
        ));
        self.targets += 1;
        Ok(line.parse().expect("a target says who it is"))
    }

    fn pause(&mut self, target: Incarnation) -> Able<()> {
        self.ask(&format!("pause {}", target.to_word()));
        Ok(())
    }

    fn resume(&mut self, target: Incarnation) {
        self.ask(&format!("resume {}", target.to_word()));
    }

    fn kill(&mut self, target: Incarnation) -> Able<()> {
        self.ask(&format!("kill {}", target.to_word()));
        Ok(())
    }

    fn restart(&mut self, former: Arc<dyn Fabric>) -> Able<Arc<dyn Fabric>> {
        let (port, Incarnation { rank, start }) = (socket(&former.address()).port(), former.identity());
        drop(former);
        Ok(self.open_far(Incarnation { rank, start: start + 1 }, port))
    }
}
