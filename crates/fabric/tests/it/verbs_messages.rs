//! Messages that go by the adapters, into a receive queue of the target's, in a machine with soft-RoCE or soft-iWARP: the suite's checks of messages where all of them do, and
//! a target that takes none for a while.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::sending::{Kept, LARGEST, PATIENCE, Sending, Went};
use verbena_fabric::conformance::{
    Able, Harness, Processes, Target, a_port_has_one_reader_and_can_be_opened_again,
    a_queue_that_nobody_empties_is_full, control_does_not_wait_behind_bulk, messages_arrive_as_they_were_sent,
    messages_of_other_views_are_dropped, serve_if_asked,
};
use verbena_fabric::verbs::{Completions, VerbsConfig, VerbsFabric};
use verbena_fabric::{Batch, Class, Fabric, Messages, Operation, Port, SharedRemote, Views};
use verbena_terms::{Incarnation, ViewNumber};
use verbena_testkit::adapters::{self, Fate, IWARP, Kind, MANAGED, ROCE, ROUGH, Weather};
use verbena_testkit::machine;

/// The smallest pool of which a receive queue is made, of 64 buffers, in bytes.
const SMALL_POOL: usize = 4 << 20;
/// What may be under way to one receive queue of one sender.
const WINDOW: u64 = 16;
const VIEW: ViewNumber = Target::VIEW;
const PORT: Port = Port(78);
/// Messages with this number or a later one only show that there is a way.
const MARKS: u64 = 1000;

#[test]
fn soft_roce() {
    machine::in_machine("rxe", "verbs_messages::inside_told");
}

#[test]
fn soft_roce_polled() {
    machine::in_machine_at_length("rxe", "verbs_messages::inside_polled");
}

#[test]
fn soft_roce_connected_by_the_manager() {
    machine::in_machine_at_length("rxe", "verbs_messages::inside_managed");
}

#[test]
fn soft_roce_on_a_link_that_loses_and_reorders() {
    machine::in_machine_at_length("rxe", "verbs_messages::inside_rough");
}

#[test]
fn soft_iwarp() {
    machine::in_machine_at_length("siw", "verbs_messages::inside_siw");
}

#[test]
fn soft_iwarp_on_a_link_that_loses_and_reorders() {
    machine::in_machine_at_length("siw", "verbs_messages::inside_siw_rough");
}

#[test]
fn inside_told() {
    check(ROCE, Completions::Told, &[]);
}

#[test]
fn inside_polled() {
    check(ROCE, Completions::Polled, &[]);
}

#[test]
fn inside_managed() {
    check(MANAGED, Completions::Told, &[]);
}

#[test]
fn inside_rough() {
    check(ROCE, Completions::Told, ROUGH);
}

#[test]
fn inside_siw() {
    check(IWARP, Completions::Told, &[]);
}

#[test]
fn inside_siw_rough() {
    check(IWARP, Completions::Told, ROUGH);
}

#[test]
fn target() {
    serve(ROCE);
}

#[test]
fn target_managed() {
    serve(MANAGED);
}

#[test]
fn target_siw() {
    serve(IWARP);
}

fn check(kind: Kind, completions: Completions, weather: Weather) {
    if !machine::is_inside() {
        return;
    }
    if !kind.has_links {
        adapters::split_lo();
    }
    let happen = |device, fate: Fate| adapters::queue(kind, "replace", device, &fate.way(weather));
    [0, 1].into_iter().for_each(|device| happen(device, Fate::Pass));
    let mut nodes = Nodes { kind, completions, next_rank: 1, processes: Processes::default(), kept: Kept::default() };
    let checks: [fn(&mut dyn Harness) -> Able<()>; 5] = [
        messages_arrive_as_they_were_sent,
        messages_of_other_views_are_dropped,
        a_port_has_one_reader_and_can_be_opened_again,
        control_does_not_wait_behind_bulk,
        a_queue_that_nobody_empties_is_full,
    ];
    let mut went = Went::default();
    for check in checks {
        check(&mut nodes).expect("adapters and processes are there");
        nodes.kept.count(&mut went);
    }
    let Went { sent, by_tcp, .. } = went;
    let link = if kind.has_links { "v0" } else { "lo" };
    assert!(weather.is_empty() || adapters::lost(link) > 0, "nothing was lost");
    assert!(sent > 200 && by_tcp == 0, "{sent} messages went by the adapters, and {by_tcp} did not");
    what_fits_no_buffer_goes_by_tcp(&mut nodes);
    if kind.has_links {
        what_has_come_unanswered_does_not_come_again(&mut nodes, |fate| happen(1, fate));
    }
    who_takes_none_by_its_adapter_is_told_by_tcp(&mut nodes);
    if !kind.has_links {
        ports_that_others_have_are_passed_over(&mut nodes);
    }
    let (come, lost) = a_target_that_takes_none_for_a_while_loses_or_takes_each_once(&mut nodes, weather);
    println!("counted: {sent} messages by {kind:?}; to a target that was stopped {come} came and {lost} were lost");
}

fn what_fits_no_buffer_goes_by_tcp(nodes: &mut Nodes) {
    let (from, to) = (nodes.open(0, |_| {}), nodes.open(1, |_| {}));
    let inbox = to.listen(PORT, Views::Any).expect("a port opens");
    let way = from.connect(to.identity(), &to.address()).expect("a node connects");
    let before = from.messages();
    for (number, bytes) in [(1, LARGEST), (2, LARGEST + 1)] {
        way.send(Class::Bulk, VIEW, PORT, number, &vec![number as u8; bytes]).expect("a message is taken");
        let message = inbox.take(PATIENCE).expect("a message arrives");
        assert_eq!((message.number, message.body), (number, vec![number as u8; bytes]));
        assert_eq!((message.from, message.view, message.class), (from.identity(), VIEW, Class::Bulk));
    }
    let after = from.messages();
    assert_eq!((after.sent, after.too_large), (before.sent + 1, before.too_large + 1));
    assert_eq!((to.messages().arrived, to.messages().malformed), (after.sent, 0));
}

/// F5: of what was under way when a connection ended nobody knows whether it has come.
fn what_has_come_unanswered_does_not_come_again(nodes: &mut Nodes, happen: impl Fn(Fate)) {
    const COUNT: u64 = 5;
    let (from, to) = (nodes.open(0, |_| {}), nodes.open(1, |_| {}));
    let inbox = to.listen(PORT, Views::Any).expect("a port opens");
    let way = from.connect(to.identity(), &to.address()).expect("a node connects");
    let before = from.messages();
    happen(Fate::Lose);
    for number in 0..COUNT {
        way.send(Class::Control, VIEW, PORT, number, b"once").expect("a message is taken");
    }
    let (mut come, until) = (Vec::new(), Instant::now() + PATIENCE);
    while from.messages().lost == before.lost && Instant::now() < until {
        come.extend(inbox.take(Duration::from_millis(50)).map(|message| message.number));
    }
    happen(Fate::Pass);
    come.extend(std::iter::from_fn(|| inbox.take(Duration::from_secs(2))).map(|message| message.number));
    let after = from.messages();
    // Where a link loses some, those before them may be unanswered too.
    let lost = COUNT..=COUNT + before.sent;
    assert!(lost.contains(&(after.lost - before.lost)) && after.sent - before.sent == COUNT, "{after:?}");
    assert!(come.iter().is_sorted_by(|one, next| one < next), "{come:?} came of 0 to {COUNT}");
    assert!(!come.is_empty(), "what was lost are answers");
}

fn who_takes_none_by_its_adapter_is_told_by_tcp(nodes: &mut Nodes) {
    let to = nodes.open_plain(1, |config| config.sends = false);
    let from = nodes.open_plain(0, |_| {});
    assert_eq!((to.capabilities().largest_by_adapter, from.capabilities().largest_by_adapter), (0, LARGEST as u32));
    let inbox = to.listen(PORT, Views::Any).expect("a port opens");
    let way = from.connect(to.identity(), &to.address()).expect("a node connects");
    for number in 0..50 {
        way.send(Class::Control, VIEW, PORT, number, b"by tcp").expect("a message is taken");
        assert_eq!(inbox.take(PATIENCE).expect("a message arrives").number, number);
        std::thread::sleep(Duration::from_millis(4));
    }
    assert_eq!(from.messages(), Messages { unconnected: 50, ..Messages::default() });
    let refused = to.connections().refused;
    assert!((1..=10).contains(&refused), "it was asked {refused} times, and is to be left in peace");
}

/// The kernel chooses the ports of who calls and who is called by iWARP, and does not look whether TCP has them.
fn ports_that_others_have_are_passed_over(nodes: &mut Nodes) {
    const RANGE: &str = "/proc/sys/net/ipv4/ip_local_port_range";
    const CALLS: usize = 12;
    let before = std::fs::read_to_string(RANGE).expect("the range of ports is told");
    std::fs::write(RANGE, "40000 40255").expect("the range of ports is set");
    let take = |port| TcpListener::bind((Ipv4Addr::new(10, 77, 0, 1), port)).ok();
    let taken: Vec<TcpListener> = (40_000..40_256).step_by(2).filter_map(take).collect();
    assert!(taken.len() > 100, "{} ports are taken", taken.len());
    let target = Incarnation::new(nodes.rank(), 1);
    let target = nodes.processes.start(&format!("verbs_messages::{}", nodes.kind.target), target, 64);
    for _ in 0..CALLS {
        let from = nodes.open_plain(0, |config| config.rdma_cm_port = 0);
        let peer = from.connect(target.incarnation, &target.address).expect("a node connects");
        let soon = from.clock().now() + PATIENCE;
        let remote = peer.open(&target.key, soon).expect("a key opens its region");
        remote.post(Batch::read_words(&[0]), Class::Control, soon).wait().expect("a word is read");
    }
    std::fs::write(RANGE, before).expect("the range of ports is set");
}

/// How many came of what was sent while the target stood still, and how many were lost.
fn a_target_that_takes_none_for_a_while_loses_or_takes_each_once(nodes: &mut Nodes, weather: Weather) -> (usize, u64) {
    const EACH: u64 = 40;
    let (buffers, is_roce) = (64, nodes.kind.has_links);
    // Of RoCE half as many more are sent at once as there are buffers; of iWARP no more are promised than there are.
    let senders = if is_roce { 3 * buffers / 2 / WINDOW } else { buffers / WINDOW };
    let rank = nodes.rank();
    let target =
        nodes.processes.start(&format!("verbs_messages::{}", nodes.kind.target), Incarnation::new(rank, 1), 64);
    let received = received(target.incarnation);
    let senders: Vec<_> = (0..senders)
        .map(|_| {
            let from = nodes.open(0, |_| {});
            let peer = from.connect(target.incarnation, &target.address).expect("a node connects");
            let soon = from.clock().now() + PATIENCE;
            let remote = peer.open(&target.key, soon).expect("a key opens its region");
            (from, peer, remote)
        })
        .collect();
    // How long the adapter takes. In bad weather its connection may end, and who stands still takes no other: then nobody knows whether it was done.
    let works = |from: &Arc<Sending<VerbsFabric>>, remote: &SharedRemote| {
        let since = Instant::now();
        let soon = from.clock().now() + PATIENCE;
        let add = Batch::one(Operation::FetchAdd { at: 0, addend: 1 });
        for batch in [Some(Batch::read_words(&[0])), is_roce.then_some(add)].into_iter().flatten() {
            if let Err(error) = remote.post(batch, Class::Control, soon).wait() {
                assert!(!weather.is_empty(), "a stopped target's adapter: {error}");
                return None;
            }
        }
        Some(since.elapsed())
    };
    for (from, _, remote) in &senders {
        works(from, remote);
    }

    let warm: Vec<Messages> = senders.iter().map(|(from, ..)| from.messages()).collect();
    nodes.processes.pause(target.incarnation);
    for number in 0..EACH {
        for (from, peer, _) in &senders {
            peer.send(Class::Control, VIEW, PORT, number, &body(from.identity(), number)).expect("a message is taken");
        }
    }
    let (until, mut slowest, mut reads) = (Instant::now() + Duration::from_secs(2), Duration::ZERO, 0);
    let mut connected: Vec<_> = senders.iter().collect();
    while Instant::now() < until && !connected.is_empty() {
        connected.retain(|(from, _, remote)| {
            let took = works(from, remote);
            slowest = slowest.max(took.unwrap_or_default());
            reads += u32::from(took.is_some());
            took.is_some()
        });
    }
    let counts: Vec<Messages> = senders.iter().map(|(from, ..)| from.messages()).collect();
    nodes.processes.resume(target.incarnation);

    assert!(reads >= 20 && slowest < Duration::from_secs(2), "{reads} reads, the slowest took {slowest:?}");
    let lost: u64 = counts.iter().map(|count| count.lost).sum();
    // The queue has taken what it could, and nobody had more under way than was promised.
    assert!(lost <= counts.len() as u64 * WINDOW);
    let sent: u64 = counts.iter().zip(&warm).map(|(count, warm)| count.sent - warm.sent).sum();
    assert!(sent >= buffers && lost >= sent - buffers && (lost > 0) == is_roce, "{sent} were sent: {counts:?}");
    // By the adapter again, from everybody, and behind all that was sent before.
    for (from, peer, _) in &senders {
        let (before, until) = (from.messages().sent, Instant::now() + PATIENCE);
        for number in MARKS.. {
            peer.send(Class::Control, VIEW, PORT, number, &body(from.identity(), number)).expect("a message is taken");
            std::thread::sleep(Duration::from_millis(20));
            let has_come = received.whole().iter().any(|(who, number)| *who == from.identity() && *number >= MARKS);
            if has_come && from.messages().sent > before {
                break;
            }
            assert!(Instant::now() < until, "nothing comes of {}: {:?}", from.identity(), from.messages());
        }
    }
    let mut come: BTreeMap<Incarnation, Vec<u64>> = BTreeMap::new();
    for (who, number) in received.whole().into_iter().filter(|(_, number)| *number < MARKS) {
        come.entry(who).or_default().push(number);
    }
    for (((from, ..), warm), before) in senders.iter().zip(&warm).zip(&counts) {
        let numbers = come.remove(&from.identity()).unwrap_or_default();
        let mut distinct = numbers.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(numbers.len(), distinct.len(), "what {} sent came twice: {numbers:?}", from.identity());
        // What has found a buffer is taken. What then went by tcp to a target that stood still may be lost there.
        let found = before.sent - warm.sent - before.lost;
        assert!(numbers.len() as u64 >= found, "of {found} of {} come {numbers:?}", from.identity());
        if before.lost == 0 {
            assert_eq!(numbers, (0..EACH).collect::<Vec<_>>(), "in order");
        }
    }
    assert!(received.dry() >= 1, "the receive queue was dry");
    let come = received.whole().iter().filter(|(_, number)| *number < MARKS).count();
    assert!(come as u64 >= buffers, "{come} of those came for which there were {buffers} buffers");
    (come, lost)
}

/// No two are alike, and no part of one is like another.
fn body(who: Incarnation, number: u64) -> Vec<u8> {
    let seed = who.to_word().wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number;
    let words = (0..375u64).map(|at| (seed ^ at).wrapping_mul(0xbf58_476d_1ce4_e5b9));
    words.flat_map(u64::to_le_bytes).collect()
}

/// A target with a receive queue of 64 buffers, which writes down what it takes.
fn serve(kind: Kind) {
    serve_if_asked(|incarnation| {
        let mut config = config(kind, incarnation, 1);
        config.tcp.pool_bytes = SMALL_POOL;
        let fabric = Arc::new(VerbsFabric::open(incarnation, config).expect("a fabric on a device"));
        let (inbox, its) = (fabric.listen(PORT, Views::Any).expect("a port opens"), fabric.clone());
        let file = received(incarnation);
        std::thread::spawn(move || {
            let mut said = String::new();
            loop {
                let Some(message) = inbox.take(Duration::from_secs(1)) else { continue };
                let is_whole = message.body == body(message.from, message.number);
                let (who, dry) = (message.from.to_word(), its.messages().dry);
                writeln!(said, "{who} {} {is_whole} {dry}", message.number).expect("a text takes a line");
                file.write(&said);
            }
        });
        fabric
    });
}

/// What a target has taken: who sent it, its number, whether it was whole, and how often the queue was dry by then.
struct Received(PathBuf);

fn received(target: Incarnation) -> Received {
    Received(std::env::temp_dir().join(format!("verbs-messages-{}", target.to_word())))
}

impl Received {
    fn write(&self, said: &str) {
        let next = self.0.with_extension("next");
        std::fs::write(&next, said).and_then(|()| std::fs::rename(&next, &self.0)).expect("a file is written");
    }

    fn lines(&self) -> Vec<[u64; 4]> {
        let text = std::fs::read_to_string(&self.0).unwrap_or_default();
        let line = |line: &str| {
            let fields: Vec<&str> = line.split(' ').collect();
            let &[who, number, is_whole, dry] = fields.as_slice() else { panic!("four fields: {line}") };
            let number_of = |field: &str| field.parse().expect("a number");
            [number_of(who), number_of(number), u64::from(is_whole == "true"), number_of(dry)]
        };
        text.lines().map(line).collect()
    }

    fn whole(&self) -> Vec<(Incarnation, u64)> {
        let take = |[who, number, is_whole, _]: [u64; 4]| {
            let who = Incarnation::from_word(who);
            assert_eq!(is_whole, 1, "message {number} of {who} is torn");
            (who, number)
        };
        self.lines().into_iter().map(take).collect()
    }

    fn dry(&self) -> u64 {
        self.lines().last().map_or(0, |[.., dry]| *dry)
    }
}

fn config(kind: Kind, who: Incarnation, device: u8) -> VerbsConfig {
    kind.config(who.rank, device, Ipv4Addr::new(10, 77, 0, 1 + device))
}

struct Nodes {
    kind: Kind,
    completions: Completions,
    next_rank: u32,
    processes: Processes,
    kept: Kept<VerbsFabric>,
}

impl Nodes {
    fn rank(&mut self) -> u32 {
        self.next_rank += 1;
        self.next_rank
    }

    fn open_plain(&mut self, device: u8, change: impl FnOnce(&mut VerbsConfig)) -> VerbsFabric {
        let who = Incarnation::new(self.rank(), 1);
        let mut config = config(self.kind, who, device);
        config.completions = self.completions;
        change(&mut config);
        VerbsFabric::open(who, config).expect("a fabric on a device")
    }

    fn open(&mut self, device: u8, change: impl FnOnce(&mut VerbsConfig)) -> Arc<Sending<VerbsFabric>> {
        Arc::new(Sending::new(self.open_plain(device, change)))
    }
}

impl Harness for Nodes {
    fn node(&mut self) -> Arc<dyn Fabric> {
        let device = (self.next_rank % 2) as u8;
        let node = self.open_plain(device, |_| {});
        self.kept.keep(node)
    }

    fn advance(&mut self) {
        std::thread::sleep(Duration::from_micros(200));
    }

    fn threads(&self) -> bool {
        true
    }

    fn target(&mut self, bytes: u64) -> Able<Target> {
        let incarnation = Incarnation::new(self.rank(), 1);
        Ok(self.processes.start(&format!("verbs_messages::{}", self.kind.target), incarnation, bytes))
    }

    fn processes(&mut self) -> Option<&mut Processes> {
        Some(&mut self.processes)
    }
}
