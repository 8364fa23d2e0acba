//! The program, run on frames as an interface would hand them to it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};

use verbena_terms::ViewNumber;

use super::*;
use crate::ending::{Outcome, RegionId};
use crate::operation::{Operation, OperationId, Settled};
use crate::pool::Pool;
use crate::region::{RegionKey, Secret};
use crate::supply::{Life, Part, Supply};
use crate::window::WINDOW;
use crate::xdp::node::{Counts, Node};
use crate::xdp::share::{REGION_PLACES, Share};
use crate::xdp::wire::{Answer, Datagram, FrameWriter, TagKey};

mod packets;

use packets::{Packet, sum_is_right};

const HERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 9, 0, 2)), 7400);
const KEY: TagKey = TagKey([0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908]);
const VIEW: ViewNumber = ViewNumber(3);
const FIRST: OperationId = OperationId(1);

/// A node with a region, and a caller that it knows.
struct Scene {
    share: Arc<Share>,
    node: Node,
    number: u32,
    region: Part,
    header: Life,
    caller: u32,
    serial: AtomicU64,
    pool: Pool,
}

impl Scene {
    fn new(bytes: u64) -> Option<Self> {
        let share = Share::alone(if_allowed(Program::load())?);
        let node = Node::new(share.clone()).unwrap();
        node.answer_at(HERE).unwrap();
        let header = Life { bytes, view: VIEW, change: Secret([1; 16]), read: Secret([2; 16]) };
        let (number, region) = node.make(&header).unwrap();
        let caller = node.admit(KEY, FIRST).unwrap();
        Some(Scene { share, node, number, region, header, caller, serial: AtomicU64::new(1), pool: Pool::new(1 << 20) })
    }

    fn id(&self) -> RegionId {
        RegionId { region: self.number, view: VIEW, secret: self.header.change }
    }

    fn word(&self, at: u64) -> u64 {
        self.region.load(at)
    }

    fn bytes(&self, at: u64, into: &mut [u8]) {
        self.region.copy_out(at, into);
    }

    /// A frame of requests, with a serial of its own.
    fn frame(&self, write: impl FnOnce(&mut FrameWriter)) -> (u64, Vec<u8>) {
        let mut writer = FrameWriter::default();
        write(&mut writer);
        let serial = self.serial.fetch_add(1, Ordering::Relaxed);
        let mut payload = Vec::new();
        writer.finish(self.caller, serial, KEY, &mut payload);
        (serial, payload)
    }

    fn run(&self, payload: &[u8]) -> (Verdict, Packet) {
        let mut packet = Packet::new(HERE, payload);
        let verdict = self.share.program().run(&mut packet.0).unwrap();
        (verdict, packet)
    }

    fn ask(&self, write: impl FnOnce(&mut FrameWriter)) -> Vec<Answer> {
        let (serial, payload) = self.frame(write);
        let (verdict, packet) = self.run(&payload);
        assert_eq!(verdict, Verdict::Answered);
        match Datagram::parse(packet.payload(), self.caller, KEY) {
            Some(Datagram::Answer(answered, items)) if answered == serial => items,
            other => panic!("{other:?} for {serial}"),
        }
    }

    fn batch(&self, first: Option<OperationId>, operations: &[Operation]) -> (Outcome, usize, Vec<Vec<u64>>) {
        self.batch_on(self.id(), first, operations)
    }

    fn batch_on(
        &self,
        id: RegionId,
        first: Option<OperationId>,
        operations: &[Operation],
    ) -> (Outcome, usize, Vec<Vec<u64>>) {
        match self.ask(|frame| frame.batch(&id, first, operations)).pop() {
            Some(Answer::Batch { outcome, done, bodies }) => (outcome, done, bodies),
            other => panic!("{other:?}"),
        }
    }

    fn settle(&self, id: u64) -> Option<Settled> {
        match self.ask(|frame| frame.settle(OperationId(id))).pop() {
            Some(Answer::Settled(settled)) => settled,
            other => panic!("{other:?}"),
        }
    }
}

fn add(addend: u64) -> [Operation; 1] {
    [Operation::FetchAdd { at: 8, addend }]
}

#[test]
fn every_operation_gives_its_result() {
    let Some(scene) = Scene::new(4096) else { return };
    let operations = [
        Operation::WriteWord { at: 0, value: 7 },
        Operation::ReadWord { at: 0 },
        Operation::CompareSwap { at: 0, expected: 7, desired: 9 },
        Operation::CompareSwap { at: 0, expected: 7, desired: 10 },
        Operation::FetchAdd { at: 0, addend: u64::MAX },
        Operation::Write { at: 4080, from: scene.pool.copy_of(&[5; 16]).unwrap() },
        Operation::Read { at: 4072, into: scene.pool.take(24).unwrap() },
    ];
    let (outcome, done, bodies) = scene.batch(Some(FIRST), &operations);
    assert_eq!((outcome, done), (Outcome::Done, 7));
    let fives = u64::from_ne_bytes([5; 8]);
    let expected: [&[u64]; 7] = [&[0], &[7], &[7, 9], &[9, 10], &[9], &[fives, fives], &[0, fives, fives]];
    assert_eq!(bodies, expected);
    assert_eq!((scene.word(0), scene.word(4088)), (8, fives));
    assert_eq!(scene.node.counts(), Counts { answered: 1, ..Counts::default() });
}

#[test]
fn bytes_are_written_and_read_at_every_alignment() {
    let Some(scene) = Scene::new(64) else { return };
    let mut id = 1;
    for at in 0..16 {
        for length in 0..=24usize {
            let (before, mut expected, mut after) = ([0xee; 64], [0xee; 64], [0; 64]);
            scene.region.copy_in(0, &before);
            let bytes: Vec<u8> = (1..=length as u8).collect();
            expected[at as usize..at as usize + length].copy_from_slice(&bytes);
            let write = [Operation::Write { at, from: scene.pool.copy_of(&bytes).unwrap() }];
            assert_eq!(scene.batch(Some(OperationId(id)), &write).0, Outcome::Done);
            id += 1;
            scene.bytes(0, &mut after);
            assert_eq!(after, expected, "{length} bytes at {at}");
            let (_, _, bodies) = scene.batch(None, &[Operation::Read { at, into: scene.pool.take(length).unwrap() }]);
            let mut read = vec![0; length];
            crate::xdp::wire::fill(at, &mut read, &bodies[0]);
            assert_eq!(read, bytes, "{length} bytes at {at}");
        }
    }
}

#[test]
fn a_batch_ends_at_the_first_refusal() {
    let Some(scene) = Scene::new(60) else { return };
    let buffer = |bytes| scene.pool.take(bytes).unwrap();
    let refused = [
        (Operation::ReadWord { at: 56 }, Outcome::OutOfBounds(60)),
        (Operation::FetchAdd { at: u64::MAX - 7, addend: 1 }, Outcome::OutOfBounds(60)),
        (Operation::Read { at: 53, into: buffer(8) }, Outcome::OutOfBounds(60)),
        (Operation::Write { at: 53, from: buffer(8) }, Outcome::OutOfBounds(60)),
        (Operation::CompareSwap { at: 4, expected: 0, desired: 1 }, Outcome::Misaligned),
    ];
    let mut id = 1;
    for (operation, outcome) in refused {
        let what = format!("{operation:?}");
        let effects = 2 + u64::from(operation.has_effect());
        let batch = [Operation::FetchAdd { at: 8, addend: 1 }, operation, Operation::FetchAdd { at: 16, addend: 1 }];
        let (found, done, _) = scene.batch(Some(OperationId(id)), &batch);
        assert_eq!((found, done), (outcome, 1), "{what}");
        // Its answer may be lost: a copy is told the same.
        let (again, done, _) = scene.batch(Some(OperationId(id)), &batch);
        assert_eq!((again, done), (outcome, 1), "{what}, again");
        // What was refused is barred, and what stands behind it never came.
        let settled: Vec<_> = (id..id + effects).map(|id| scene.settle(id)).collect();
        assert_eq!(settled[0], Some(Settled::Executed((id - 1) / 3)), "{what}");
        assert!(settled[1..].iter().all(|one| *one == Some(Settled::Barred)), "{what}: {settled:?}");
        id += 3;
    }
    assert_eq!((scene.word(8), scene.word(16)), (5, 0));
    // The last bytes of a region that ends within a word are its own.
    let last = [Operation::Read { at: 52, into: buffer(8) }, Operation::Write { at: 59, from: buffer(1) }];
    assert_eq!(scene.batch(Some(OperationId(id)), &last).0, Outcome::Done);
}

#[test]
fn keys_give_what_they_say_and_no_more() {
    let Some(scene) = Scene::new(64) else { return };
    let read = RegionId { secret: scene.header.read, ..scene.id() };
    assert_eq!(scene.batch_on(read, None, &[Operation::ReadWord { at: 0 }]).0, Outcome::Done);
    assert_eq!(scene.batch_on(read, Some(FIRST), &add(1)).0, Outcome::Denied);
    let mut halfway = scene.header.change;
    halfway.0[15] ^= 1;
    let forged = [
        RegionId { secret: halfway, ..scene.id() },
        RegionId { view: ViewNumber(4), ..scene.id() },
        RegionId { region: scene.number + REGION_PLACES, ..scene.id() },
        RegionId { region: scene.number + 1, ..scene.id() },
    ];
    for id in forged {
        assert_eq!(scene.batch_on(id, Some(OperationId(2)), &add(1)).0, Outcome::Revoked, "{id:?}");
    }
    // Another node's region is not reached through this one, though its key is right.
    let other = Node::new(scene.share.clone()).unwrap();
    let (number, _theirs) = other.make(&scene.header).unwrap();
    let id = RegionId { region: number, ..scene.id() };
    assert_eq!(scene.batch_on(id, Some(OperationId(2)), &add(1)).0, Outcome::Revoked);
    assert_eq!(scene.word(8), 0);
}

#[test]
fn what_is_sent_again_is_executed_once() {
    let Some(scene) = Scene::new(64) else { return };
    let batch = [
        Operation::FetchAdd { at: 8, addend: 1 },
        Operation::Write { at: 16, from: scene.pool.copy_of(&[1; 8]).unwrap() },
        Operation::ReadWord { at: 16 },
    ];
    let once = scene.batch(Some(FIRST), &batch);
    scene.region.store(16, 77);
    let again = scene.batch(Some(FIRST), &batch);
    assert_eq!((scene.word(8), scene.word(16)), (1, 77));
    assert_eq!((again.0, &again.2[0]), (Outcome::Done, &once.2[0]));
    assert_eq!(again.2[2], [77]);
    // A read would find what stands behind it in its own batch (F1).
    let after_read = [Operation::ReadWord { at: 8 }, Operation::FetchAdd { at: 8, addend: 1 }];
    assert_eq!(scene.batch(Some(OperationId(3)), &after_read).0, Outcome::Done);
    assert_eq!(scene.batch(Some(OperationId(3)), &after_read).0, Outcome::Unknown);
    assert_eq!(scene.word(8), 2);
}

#[test]
fn settling_gives_the_outcome_or_bars_for_ever() {
    let Some(scene) = Scene::new(64) else { return };
    assert_eq!(scene.settle(1), Some(Settled::Barred));
    assert_eq!(scene.batch(Some(FIRST), &add(1)).0, Outcome::Unknown);
    assert_eq!(scene.word(8), 0);
    assert_eq!(scene.batch(Some(OperationId(2)), &add(5)).0, Outcome::Done);
    assert_eq!(scene.batch(Some(OperationId(3)), &add(5)).0, Outcome::Done);
    assert_eq!(scene.settle(3), Some(Settled::Executed(5)));
    // A whole window later nothing is known of it, and a late copy does nothing.
    assert_eq!(scene.batch(Some(OperationId(3 + WINDOW as u64)), &add(5)).0, Outcome::Done);
    assert_eq!(scene.settle(3), None);
    assert_eq!(scene.batch(Some(OperationId(3)), &add(5)).0, Outcome::Unknown);
    assert_eq!((scene.settle(0), scene.settle(u64::MAX)), (None, None));
    assert_eq!(scene.word(8), 15);
}

#[test]
fn of_what_a_former_window_knew_nothing_is_known() {
    let Some(mut scene) = Scene::new(64) else { return };
    scene.caller = scene.node.admit(KEY, OperationId(2000)).unwrap();
    for id in [1, 976, 1000, 1999] {
        assert_eq!(scene.batch(Some(OperationId(id)), &add(1)).0, Outcome::Unknown, "{id}");
        assert_eq!(scene.settle(id), None, "{id}");
    }
    assert_eq!(scene.batch(Some(OperationId(2000)), &add(1)).0, Outcome::Done);
    assert_eq!(scene.word(8), 1);
}

#[test]
fn a_region_made_anew_is_other_memory() {
    let Some(mut scene) = Scene::new(64) else { return };
    assert_eq!(scene.batch(Some(FIRST), &add(1)).0, Outcome::Done);
    let old = scene.id();
    scene.header = Life { change: Secret([3; 16]), read: Secret([4; 16]), ..scene.header };
    let former = std::mem::replace(&mut scene.region, scene.node.make_anew(old.region, &scene.header).unwrap());
    assert_eq!(scene.batch_on(old, Some(OperationId(2)), &add(1)).0, Outcome::Revoked);
    assert_eq!(scene.batch(Some(OperationId(2)), &add(1)).0, Outcome::Done);
    let in_former = former.load(8);
    assert_eq!((in_former, scene.word(8)), (1, 1));
    scene.node.take_back(old.region);
    assert_eq!(scene.batch(Some(OperationId(3)), &add(1)).0, Outcome::Revoked);
}

#[test]
fn many_requests_share_a_frame() {
    let Some(scene) = Scene::new(64) else { return };
    let revoked = RegionId { view: ViewNumber(1), ..scene.id() };
    let answers = scene.ask(|frame| {
        frame.batch(&scene.id(), Some(FIRST), &add(3));
        frame.batch(&revoked, Some(OperationId(2)), &add(3));
        frame.settle(OperationId(1));
        frame.batch(&scene.id(), None, &[Operation::ReadWord { at: 8 }]);
        while frame.room() >= 8 {
            frame.batch(&scene.id(), None, &[Operation::ReadWord { at: 8 }]);
        }
    });
    assert_eq!(answers.len(), 22);
    assert_eq!(answers[2], Answer::Settled(Some(Settled::Executed(0))));
    for (at, answer) in answers.iter().enumerate().filter(|(at, _)| *at != 2) {
        let (outcome, word) =
            if at == 1 { (Outcome::Revoked, 3) } else { (Outcome::Done, if at == 0 { 0 } else { 3 }) };
        let Answer::Batch { outcome: found, bodies, .. } = answer else { panic!("{answer:?}") };
        assert_eq!((*found, bodies[0][0]), (outcome, word), "{at}");
    }
}

#[test]
fn what_nobody_introduced_sent_is_dropped_and_counted() {
    let Some(scene) = Scene::new(64) else { return };
    let (_, payload) = scene.frame(|frame| frame.batch(&scene.id(), Some(FIRST), &add(1)));
    let changed = |at: usize| {
        let mut payload = payload.clone();
        payload[at] ^= 1;
        payload
    };
    // Of another version, of another kind; and cut off.
    for payload in
        [changed(0), changed(4), changed(5), changed(6), payload[..40].to_vec(), payload[..9].to_vec(), vec![]]
    {
        assert_eq!(scene.run(&payload).0, Verdict::Dropped);
    }
    assert_eq!(scene.node.counts().malformed, 7);
    // Changed on the way: every byte but the caller's number is under the tag.
    for at in 12..payload.len() {
        assert_eq!(scene.run(&changed(at)).0, Verdict::Dropped, "byte {at}");
    }
    assert_eq!(scene.node.counts().forged, payload.len() as u64 - 12);
    assert_eq!(scene.word(8), 0);
    assert_eq!(scene.run(&payload).0, Verdict::Answered);
    for _ in 0..3 {
        assert_eq!(scene.run(&payload).0, Verdict::Dropped);
    }
    assert_eq!((scene.node.counts().replayed, scene.word(8)), (3, 1));
    // Who is known to another node of the program is not known to this one.
    let other = Node::new(scene.share.clone()).unwrap();
    let theirs = other.admit(KEY, FIRST).unwrap();
    let mut frame = FrameWriter::default();
    frame.settle(FIRST);
    let mut payload = Vec::new();
    frame.finish(theirs, 9, KEY, &mut payload);
    assert_eq!(Datagram::parse(scene.run(&payload).1.payload(), theirs, KEY), Some(Datagram::Stranger(9)));
    // A caller that is not known is told so, in no more bytes than it sent.
    let (serial, payload) = scene.frame(|frame| frame.batch(&scene.id(), Some(OperationId(2)), &add(1)));
    scene.node.dismiss(scene.caller);
    let (verdict, packet) = scene.run(&payload);
    assert_eq!((verdict, packet.payload().len()), (Verdict::Answered, payload.len()));
    assert_eq!(Datagram::parse(packet.payload(), scene.caller, KEY), Some(Datagram::Stranger(serial)));
    assert_eq!((scene.node.counts().unknown_callers, scene.word(8)), (2, 1));
}

#[test]
fn what_is_not_ours_passes_untouched() {
    let Some(scene) = Scene::new(64) else { return };
    let (_, payload) = scene.frame(|frame| frame.batch(&scene.id(), Some(FIRST), &add(1)));
    let other_port = SocketAddr::new(HERE.ip(), 7401);
    let other_address = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 9, 0, 3)), 7400);
    let ours = || Packet::new(HERE, &payload);
    let others = [
        Packet::new(other_port, &payload),
        Packet::new(other_address, &payload),
        Packet::new(SocketAddr::new(IpAddr::V6(Ipv6Addr::LOCALHOST), 7400), &payload),
        ours().with_vlan(),
        ours().first_fragment(),
        ours().later_fragment(),
        ours().with_ip_options(),
        ours().of_protocol(6),
        ours().of_ether_type(0x0806),
        ours().with_ip_length(40),
        ours().cut_to(14),
        ours().cut_to(40),
    ];
    for (at, packet) in others.into_iter().enumerate() {
        let mut seen = packet.0.clone();
        assert_eq!(scene.share.program().run(&mut seen).unwrap(), Verdict::Passed, "{at}");
        assert!(seen == packet.0, "{at}: changed");
    }
    assert_eq!(scene.node.counts(), Counts::default());
    // Its node gone, the address is no longer ours.
    let program = scene.share.program().clone();
    drop(scene);
    assert_eq!(program.run(&mut ours().0).unwrap(), Verdict::Passed);
}

#[test]
fn answers_go_back_with_right_sums() {
    let Some(scene) = Scene::new(1024) else { return };
    let six = SocketAddr::new(IpAddr::V6("fd00::2".parse().unwrap()), 7400);
    scene.node.answer_at(six).unwrap();
    for (nth, here) in (0u64..).zip([HERE, six].repeat(20)) {
        let bytes: Vec<u8> = (0..nth * 25).map(|byte| (byte * nth) as u8).collect();
        let write = [Operation::Write { at: 3, from: scene.pool.copy_of(&bytes).unwrap() }];
        let (_, payload) = scene.frame(|frame| frame.batch(&scene.id(), Some(OperationId(nth + 1)), &write));
        let asked = Packet::new(here, &payload);
        let mut answered = Packet(asked.0.clone());
        assert_eq!(scene.share.program().run(&mut answered.0).unwrap(), Verdict::Answered);
        assert_eq!(
            answered.ends(),
            {
                let (from, to) = asked.ends();
                (to, from)
            },
            "{here}"
        );
        assert!(sum_is_right(&answered), "{here}, {nth}");
        assert_eq!((answered.hops(), answered.class()), (64, asked.class()));
    }
}

#[test]
fn of_two_copies_on_two_processors_one_is_executed() {
    const EACH: u64 = 20_000;
    let Some(scene) = Scene::new(64) else { return };
    let answered = [AtomicU64::new(0), AtomicU64::new(0)];
    let begun = AtomicU64::new(0);
    // Whoever fails is not waited for.
    struct Over<'a>(&'a AtomicU64);
    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.fetch_max(u64::MAX / 2, Ordering::SeqCst);
        }
    }
    std::thread::scope(|scope| {
        for (nth, answered) in answered.iter().enumerate() {
            let (scene, begun) = (&scene, &begun);
            scope.spawn(move || {
                let _over = Over(begun);
                pin(nth);
                for id in 1..=EACH {
                    // Both at once, as near as it goes; no thread is far behind, for it would be a window too late.
                    begun.fetch_add(1, Ordering::SeqCst);
                    while begun.load(Ordering::SeqCst) < 2 * id {
                        std::hint::spin_loop();
                    }
                    let (_, payload) = scene.frame(|frame| frame.batch(&scene.id(), Some(OperationId(id)), &add(1)));
                    let (verdict, packet) = scene.run(&payload);
                    if verdict == Verdict::Answered {
                        let Some(Datagram::Answer(_, answers)) = Datagram::parse(packet.payload(), scene.caller, KEY)
                        else {
                            panic!("no answer to {id}")
                        };
                        let Answer::Batch { outcome, bodies, .. } = &answers[0] else { panic!("{answers:?}") };
                        assert_eq!((*outcome, bodies[0][0]), (Outcome::Done, id - 1));
                        answered.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert_eq!(scene.word(8), EACH);
    let (answered, counts) = (answered.map(AtomicU64::into_inner), scene.node.counts());
    assert_eq!(answered[0] + answered[1] + counts.overtaken, 2 * EACH, "{answered:?} {counts:?}");
    assert!(answered.iter().all(|answers| *answers > EACH / 4), "{answered:?}");
    println!("counted: {} copies came while the other was executed", counts.overtaken);
}

/// To one processor of those that this process may run on.
fn pin(nth: usize) {
    let may = verbena_terms::usable_cores().unwrap();
    verbena_terms::stay_on(may[nth % may.len()]).unwrap();
}

#[test]
fn frames_that_make_no_sense_change_nothing() {
    let Some(scene) = Scene::new(64) else { return };
    scene.region.copy_in(0, &[0xaa; 64]);
    let word = |frame: &mut FrameWriter, nth: u64, value: u64| {
        frame.batch(&scene.id(), Some(OperationId(nth)), &[Operation::WriteWord { at: 0, value }]);
    };
    let (_, sound) = scene.frame(|frame| {
        word(frame, 1, 1);
        frame.settle(OperationId(9));
    });
    let refuses = |sound: &[u8], at: usize, value: u8| {
        let mut payload = sound.to_vec();
        payload[at] = value;
        let serial = scene.serial.fetch_add(1, Ordering::Relaxed);
        payload[16..24].copy_from_slice(&serial.to_le_bytes());
        crate::xdp::wire::tag(&mut payload, KEY);
        let before = scene.node.counts().malformed;
        assert_eq!(scene.run(&payload).0, Verdict::Dropped, "byte {at} set to {value}");
        assert_eq!(scene.node.counts().malformed, before + 1, "byte {at} set to {value}");
    };
    // Every field of an item or element, set to what it must not be; tagged as its caller would.
    for (at, value) in [
        (8 * 4, 3),       // no such kind
        (8 * 4 + 1, 1),   // an outcome in a request
        (8 * 4 + 2, 0),   // no element
        (8 * 4 + 2, 2),   // more than there are
        (8 * 4 + 4, 1),   // something done
        (8 * 4 + 6, 7),   // shorter than its elements
        (8 * 4 + 6, 9),   // longer
        (8 * 4 + 6, 200), // beyond the frame
        (8 * 9, 0),       // no such operation
        (8 * 9, 7),       // no such operation
        (8 * 9 + 1, 1),   // a word has no bytes that are left alone
        (8 * 9 + 3, 1),   // not zero
        (8 * 9 + 4, 2),   // a body of another length
        (8 * 12 + 2, 1),  // a settle with elements
        (8 + 4, 1),       // fewer items than there are
        (8 + 4, 3),       // more
        (8 + 6, 1),       // not zero
    ] {
        refuses(&sound, at, value);
    }
    let (_, swap) = scene.frame(|frame| {
        frame.batch(&scene.id(), Some(OperationId(1)), &[Operation::CompareSwap { at: 0, expected: 0, desired: 1 }]);
    });
    let bytes = scene.pool.copy_of(&[7; 24]).unwrap();
    let (_, write) =
        scene.frame(|frame| frame.batch(&scene.id(), Some(OperationId(1)), &[Operation::Write { at: 0, from: bytes }]));
    for (sound, at, value) in [
        (&swap, 8 * 9, 2),      // a body that is longer than what is written
        (&write, 8 * 9 + 1, 8), // more bytes left alone than a word has
        (&write, 8 * 9 + 2, 8), // the same at its end
    ] {
        refuses(sound, at, value);
    }
    assert_eq!(scene.word(0), u64::from_ne_bytes([0xaa; 8]));
    // The frame that all of these were made of is sound.
    assert_eq!(scene.run(&sound).0, Verdict::Answered);
    assert_eq!(scene.word(0), 1);
}

#[test]
fn a_key_of_a_region_says_what_a_frame_needs() {
    let key = RegionKey {
        owner: verbena_terms::Incarnation::new(1, 1),
        region: 5,
        view: VIEW,
        bytes: 64,
        rights: crate::region::Rights::Change,
        secret: Secret([9; 16]),
    };
    assert_eq!(RegionId::from(&key), RegionId { region: 5, view: VIEW, secret: Secret([9; 16]) });
}
