//! The conformance suite on the provider `verbs`, in a machine of Debian's kernel: on soft-RoCE, two devices whose packets go by a virtual link, and on
//! soft-iWARP, whose packets go by `lo`; there they can be lost. Messages go by relays, as those of `tcp` do.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::network::{Network, socket};
use parking_lot::Mutex;
use verbena_fabric::conformance::{Able, CHECKS, Fault, Harness, Processes, Target, run_all};
use verbena_fabric::verbs::{Completions, VerbsConfig, VerbsFabric};
use verbena_fabric::{Batch, Class, Done, Error, Fabric, Operation, Rights};
use verbena_terms::{Incarnation, Rank, ViewNumber};
use verbena_testkit::adapters::{self, Fate, IWARP, Kind, MANAGED, ROCE, ROUGH, SKIPPED, Weather, run};
use verbena_testkit::machine;
use verbena_testkit::relay::Mode;

#[test]
fn soft_roce() {
    machine::in_machine("rxe", "conformance_verbs::inside_told");
}

#[test]
fn soft_roce_polled() {
    machine::in_machine_at_length("rxe", "conformance_verbs::inside_polled");
}

#[test]
fn soft_roce_connected_by_the_manager() {
    machine::in_machine_at_length("rxe", "conformance_verbs::inside_managed");
}

#[test]
fn soft_roce_on_a_link_that_loses_and_reorders() {
    machine::in_machine_at_length("rxe", "conformance_verbs::inside_rough");
}

#[test]
fn soft_iwarp() {
    machine::in_machine_at_length("siw", "conformance_verbs::inside_siw");
}

#[test]
fn soft_iwarp_on_a_link_that_loses_and_reorders() {
    machine::in_machine_at_length("siw", "conformance_verbs::inside_siw_rough");
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

fn check(kind: Kind, completions: Completions, weather: Weather) {
    if !machine::is_inside() {
        return;
    }
    let mut verbs = Verbs {
        kind,
        next_rank: 1,
        completions,
        network: Arc::default(),
        processes: Processes::default(),
        devices: Mutex::default(),
        weather,
        held: Mutex::default(),
    };
    if !kind.has_links {
        adapters::split_lo();
    }
    verbs.set_weather();
    let report = run_all(&mut verbs);
    let skipped: Vec<&str> = report.skipped.iter().map(|(name, _)| *name).collect();
    assert_eq!(skipped, SKIPPED);
    assert_eq!(report.ran, CHECKS.len() - SKIPPED.len());
    // By adapters of iWARP nothing goes that changes anything.
    if weather.is_empty() && kind.has_links {
        what_a_lost_connection_left_open_is_never_executed_later(&mut verbs);
        a_refusal_whose_answer_is_lost_is_told_by_the_owner(&mut verbs);
        if kind == ROCE {
            who_connects_in_another_way_is_refused(&mut verbs);
        }
    }
    for bytes in [64, 16 << 10] {
        let torn = what_is_larger_than_a_word_tears_under_a_writer(&mut verbs, bytes);
        println!("torn: {torn} reads of {bytes} bytes, no word");
    }
    let packets: u64 = [0, 1].map(|device| verbs.sent(device)).iter().sum();
    assert!(packets > 10_000, "{packets} packets went by the devices");
    println!("counted: {} checks on {kind:?}, {packets} packets", report.ran);
}

/// F2: when the transport has given up, the target destroys its end before there is another: what comes by the former one then changes nothing.
fn what_a_lost_connection_left_open_is_never_executed_later(verbs: &mut Verbs) {
    let (owner, caller) = (verbs.node(), verbs.node());
    let view = ViewNumber(1);
    let region = owner.register(64, view).expect("a node registers memory");
    let soon = |seconds| caller.clock().now() + Duration::from_secs(seconds);
    let peer = caller.connect(owner.identity(), &owner.address()).expect("a node connects");
    let remote = peer.open(&region.key(Rights::Change), soon(10)).expect("a key opens its region");
    let write = |value| Batch::one(Operation::WriteWord { at: 0, value });

    if verbs.kind.has_links {
        // Whoever connects looks for the other's link address first, and nothing leaves the device then.
        for (address, last, link) in [("10.77.0.2", "02", "v0"), ("10.77.0.1", "01", "v1")] {
            let there = format!("02:00:00:00:77:{last}");
            run("ip", ["neigh", "replace", address, "lladdr", &there, "dev", link, "nud", "permanent"].iter());
        }
    }
    remote.post(write(1), Class::Control, soon(10)).wait().expect("the link is sound");
    verbs.happen(verbs.device_of(caller.identity()), Fate::Hold);
    let lost = remote.post(write(2), Class::Control, soon(20)).wait().expect_err("nothing leaves the device");
    let Error::Unknown { first: Some(id), .. } = lost else { panic!("{lost}") };
    // By message, which is not held, the former end is taken away. The manager's calls are held too, until it is: then they come behind what was held before.
    let settling = remote.settle(id, Class::Control, soon(20));
    if verbs.kind.rdma_cm {
        std::thread::sleep(Duration::from_secs(1));
        verbs.set_weather();
    }
    let settled = settling.wait().expect_err("nobody has kept what became of it");
    assert!(matches!(settled, Error::Forgotten { operation, .. } if operation == id), "{settled}");
    verbs.set_weather();
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(region.load(0), Ok(1), "what was held has arrived, and was executed");
    remote.post(write(3), Class::Control, soon(10)).wait().expect("the link is sound");
    assert_eq!(region.load(0), Ok(3));
}

/// F4: an adapter refuses once; where that answer is lost, nothing more comes of the connection, and the owner is asked about the key.
fn a_refusal_whose_answer_is_lost_is_told_by_the_owner(verbs: &mut Verbs) {
    let (owner, caller) = (verbs.node(), verbs.node());
    let region = owner.register(64, ViewNumber(1)).expect("a node registers memory");
    let soon = || caller.clock().now() + Duration::from_secs(20);
    let peer = caller.connect(owner.identity(), &owner.address()).expect("a node connects");
    let remote = peer.open(&region.key(Rights::Change), soon()).expect("a key opens its region");
    let other = owner.register(64, ViewNumber(1)).expect("a node registers memory");
    let sound = peer.open(&other.key(Rights::Change), soon()).expect("a key opens its region");
    region.remake(ViewNumber(2)).expect("a region is made anew");
    verbs.happen(verbs.device_of(owner.identity()), Fate::Lose);
    let add = || Batch::one(Operation::FetchAdd { at: 0, addend: 1 });
    let refused = remote.post(add(), Class::Control, soon());
    // Behind it, with a key that is good: what only reads is read again, and of the other it is not known how far it came.
    let (read, changed) =
        (sound.post(Batch::read_words(&[0]), Class::Control, soon()), sound.post(add(), Class::Control, soon()));
    // The answer is lost at once; the link is sound again when a connection is made anew, which the manager does by it too.
    std::thread::sleep(Duration::from_millis(500));
    verbs.set_weather();
    let refused = refused.wait().expect_err("its key is of an earlier life");
    assert!(
        matches!(refused, Error::Revoked { region: number, .. } if number == region.key(Rights::Read).region),
        "{refused}"
    );
    let read = read.wait().expect("what only reads is read again");
    assert_eq!(read[0].word(), Some(0));
    let changed = changed.wait().expect_err("nobody says whether it was executed");
    assert!(changed.may_have_happened(), "{changed}");
    assert_eq!((region.load(0), other.load(0)), (Ok(0), Ok(0)), "an adapter that has refused executes nothing more");
    remote.post(add(), Class::Control, soon()).wait().expect_err("its key is of an earlier life still");
    sound.post(add(), Class::Control, soon()).wait().expect("a connection is made again");
    let (called, taken) = (caller.connections(), owner.connections());
    assert!(called.made >= 3 && called.lost == called.made - 1 && taken.taken >= called.made, "{called:?}, {taken:?}");
    assert_eq!((called.refused, taken.refused, called.taken, taken.made), (0, 0, 0, 0));
}

/// Who calls a node that connects by message is told so, and counted.
fn who_connects_in_another_way_is_refused(verbs: &mut Verbs) {
    let owner = verbs.node();
    let kind = std::mem::replace(&mut verbs.kind, MANAGED);
    let caller = verbs.node();
    verbs.kind = kind;
    let region = owner.register(64, ViewNumber(1)).expect("a node registers memory");
    let peer = caller.connect(owner.identity(), &owner.address()).expect("a node connects");
    let soon = caller.clock().now() + Duration::from_secs(5);
    let refused = peer.open(&region.key(Rights::Read), soon).map(drop).expect_err("it cannot be called").to_string();
    assert!(refused.contains("by message") && refused.contains("fabric.verbs_rdma_cm"), "{refused}");
    let (called, taken) = (caller.connections(), owner.connections());
    assert!(taken.refused >= 1 && taken.taken == 0 && called.made == 0, "{called:?}, {taken:?}");
}

/// Words that their owner writes over and over are read with some of one time and some of another, and each word whole: what is larger carries versions. How many
/// reads were.
fn what_is_larger_than_a_word_tears_under_a_writer(verbs: &mut Verbs, bytes: usize) -> u32 {
    const PATTERNS: [u8; 2] = [0x00, 0xff];
    let (owner, caller) = (verbs.node(), verbs.node());
    let region = owner.register(bytes as u64, ViewNumber(1)).expect("a node registers memory");
    let soon = || caller.clock().now() + Duration::from_secs(10);
    let peer = caller.connect(owner.identity(), &owner.address()).expect("a node connects");
    let remote = peer.open(&region.key(Rights::Read), soon()).expect("a key opens its region");
    let (is_over, give_up) = (AtomicBool::new(false), soon());
    let patterns = PATTERNS.map(|byte| vec![byte; bytes]);
    let mut torn = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for turn in (0..2).cycle() {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                region.write(0, &patterns[turn]).expect("an owner writes");
            }
        });
        // However this ends.
        let _over = Over(&is_over);
        while torn < 10 && caller.clock().now() < give_up {
            let into = caller.pool().take(bytes).expect("the pool has room");
            let read = remote.post(Batch::one(Operation::Read { at: 0, into }), Class::Control, soon()).wait();
            let Done::Buffer(buffer) = read.expect("the link is sound").remove(0) else {
                panic!("a read gives a buffer")
            };
            let words: Vec<_> = buffer.bytes().as_chunks::<8>().0.iter().collect();
            let torn_word = words.iter().find(|word| !PATTERNS.map(|byte| [byte; 8]).contains(word));
            assert!(torn_word.is_none(), "of {bytes} bytes a word is torn: {torn_word:x?}");
            torn += u32::from(words.iter().any(|word| *word != words[0]));
        }
    });
    assert!(torn >= 10, "only {torn} reads were torn");
    torn
}

/// Says when it is dropped that it is over.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
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

fn serve(kind: Kind) {
    adapters::serve(|incarnation| config(kind, incarnation.rank, 1));
}

/// On one of the two devices.
fn config(kind: Kind, rank: Rank, device: u8) -> VerbsConfig {
    kind.config(rank, device, Ipv4Addr::new(10, 77, 0, 1 + device))
}

struct Verbs {
    kind: Kind,
    next_rank: u32,
    completions: Completions,
    network: Arc<Network>,
    processes: Processes,
    /// Which device a node is at.
    devices: Mutex<HashMap<Incarnation, u8>>,
    weather: Weather,
    /// Devices whose packets are held.
    held: Mutex<Vec<u8>>,
}

impl Verbs {
    fn open(&self, incarnation: Incarnation, device: u8, listen: Option<SocketAddr>) -> Arc<dyn Fabric> {
        let mut config = config(self.kind, incarnation.rank, device);
        config.completions = self.completions;
        config.tcp.listen = listen.unwrap_or(config.tcp.listen);
        let inner = VerbsFabric::open(incarnation, config).expect("a fabric on a device");
        self.devices.lock().insert(incarnation, device);
        self.network.join(inner)
    }

    fn rank(&mut self) -> u32 {
        self.next_rank += 1;
        self.next_rank
    }

    /// What happens to what a device sends, from now on.
    fn happen(&self, device: u8, fate: Fate) {
        if fate == Fate::Double {
            self.calm();
        }
        self.queue("replace", device, &fate.way(self.weather));
        self.held.lock().retain(|held| *held != device);
        if fate == Fate::Hold {
            self.queue("change", device, &["plug", "block"]);
            self.held.lock().push(device);
        }
    }

    fn queue(&self, action: &str, device: u8, way: &[&str]) {
        adapters::queue(self.kind, action, device, way);
    }

    /// Packets that a device has sent.
    fn sent(&self, device: u8) -> u64 {
        adapters::sent(self.kind, device, "lo")
    }

    /// Beside a netem that doubles there can be no other one on an interface.
    fn calm(&self) {
        if !self.kind.has_links {
            [0, 1].into_iter().for_each(|device| self.queue("replace", device, &["pfifo"]));
        }
    }

    fn set_weather(&self) {
        for device in std::mem::take(&mut *self.held.lock()) {
            self.queue("change", device, &["plug", "release_indefinite"]);
            std::thread::sleep(Duration::from_millis(20));
        }
        self.calm();
        [0, 1].into_iter().for_each(|device| self.happen(device, Fate::Pass));
    }

    fn device_of(&self, node: Incarnation) -> u8 {
        self.devices.lock()[&node]
    }
}

impl Harness for Verbs {
    fn node(&mut self) -> Arc<dyn Fabric> {
        let rank = self.rank();
        // One after the other at either end of the link: a device sends nothing to itself by it.
        self.open(Incarnation::new(rank, 1), (rank % 2) as u8, None)
    }

    fn advance(&mut self) {
        std::thread::sleep(Duration::from_micros(200));
    }

    fn threads(&self) -> bool {
        true
    }

    fn fault(&mut self, fault: Fault, from: Incarnation, to: Incarnation) -> Able<()> {
        let way = self.network.between(from, to);
        let ends = [self.device_of(from), self.device_of(to)];
        assert_ne!(ends[0], ends[1], "nothing can happen between a device and itself");
        match fault {
            Fault::Cut => {
                way.up(Mode::Lose);
                self.network.between(to, from).down(Mode::Lose);
                self.happen(ends[0], Fate::Lose);
            }
            Fault::LoseAnswers => {
                way.down(Mode::Lose);
                self.happen(ends[1], Fate::Lose);
            }
            Fault::Hold => {
                way.up(Mode::Hold);
                self.happen(ends[0], Fate::Hold);
            }
            Fault::Repeat => self.happen(ends[0], Fate::Double),
        }
        Ok(())
    }

    fn heal(&mut self, from: Incarnation, to: Incarnation) {
        let (way, back) = (self.network.between(from, to), self.network.between(to, from));
        way.up(Mode::Pass);
        way.down(Mode::Pass);
        back.down(Mode::Pass);
        self.set_weather();
    }

    fn target(&mut self, bytes: u64) -> Able<Target> {
        let incarnation = Incarnation::new(self.rank(), 1);
        Ok(self.processes.start(&format!("conformance_verbs::{}", self.kind.target), incarnation, bytes))
    }

    fn processes(&mut self) -> Option<&mut Processes> {
        Some(&mut self.processes)
    }

    fn restart(&mut self, former: Arc<dyn Fabric>) -> Able<Arc<dyn Fabric>> {
        let (address, Incarnation { rank, start }) = (socket(&former.address()), former.identity());
        let device = self.device_of(former.identity());
        drop(former);
        Ok(self.open(Incarnation { rank, start: start + 1 }, device, Some(address)))
    }
}
