//! Segments among nodes of a simulated network where nothing fails: what is refused, and that nothing is changed by it.

mod moving;

use std::sync::Arc;
use std::time::Duration;

use verbena_cluster::{Lease, LeaseWord, Member, Roles, View};
use verbena_fabric::sim::{Faults, World};
use verbena_memory::service::Stepped;
use verbena_memory::{
    Answer, Coherence, MAX_SEGMENT_BYTES, MemoryOptions, Placement, Refusal, RequestId, Rules, Segment, SegmentId,
    SegmentName, Target, Value, Wanted, Wish,
};
use verbena_terms::{Incarnation, Rank, Time, ViewNumber};

const USER: u32 = 1000;
/// Of each home.
const BYTES: u64 = 4096;
const LIMIT: u64 = 3072;

/// Nodes of ranks 1.., all of them homes. Their leases are for ever.
struct Nodes {
    world: World,
    nodes: Vec<(Stepped, Arc<LeaseWord>)>,
    answers: Vec<(usize, RequestId, Answer)>,
    view: u32,
    members: Option<Arc<View>>,
}

impl Nodes {
    fn new(count: usize) -> Nodes {
        let world = World::new(7, Faults::none());
        let options =
            MemoryOptions { bytes: BYTES, segments: 8, owner_bytes: LIMIT, copies_bytes: 1024, rules: Rules::ALL };
        let nodes = (0..count).map(|at| {
            let me = Incarnation::new(at as u32 + 1, 1);
            let (mut node, lease) = (Stepped::new(options, world.clock(me.rank)), Arc::default());
            node.life_begins(world.node(me), &lease).unwrap();
            (node, lease)
        });
        let nodes = nodes.collect();
        let mut nodes = Nodes { world, nodes, answers: vec![], view: 0, members: None };
        nodes.next_view(&(0..count).collect::<Vec<_>>());
        nodes
    }

    fn next_view(&mut self, members: &[usize]) {
        self.view += 1;
        let member = |&at: &usize| Member {
            incarnation: Incarnation::new(at as u32 + 1, 1),
            name: format!("n{at}"),
            address: format!("sim://{}", at + 1),
            roles: Roles::ALL,
        };
        let view = View::new(ViewNumber(self.view), members.iter().map(member).collect(), vec![]).unwrap();
        let view = Arc::new(view);
        self.members = Some(view.clone());
        for &at in members {
            let (node, lease) = &mut self.nodes[at];
            node.view_learnt(&view);
            lease.store(Lease { until: Time::FAR, acknowledged: view.number(), in_effect: view.number() });
        }
        self.run(Duration::from_millis(50));
    }

    fn run(&mut self, time: Duration) {
        let end = self.world.now() + time;
        while self.world.now() < end {
            for (at, (node, _)) in self.nodes.iter_mut().enumerate() {
                node.turn();
                self.answers.extend(node.answers().into_iter().map(|(id, answer)| (at, id, answer)));
                assert_eq!(node.strange(), 0);
            }
            self.world.run_until(self.world.now() + Duration::from_micros(100));
        }
    }

    fn ask(&mut self, at: usize, wish: Wish) -> Answer {
        let id = self.nodes[at].0.request(wish, Duration::from_millis(200));
        for _ in 0..100 {
            if let Some(nth) = self.answers.iter().position(|(node, answered, _)| (*node, *answered) == (at, id)) {
                return self.answers.swap_remove(nth).2;
            }
            self.run(Duration::from_millis(5));
        }
        panic!("{id:?} is not answered")
    }

    fn refused(&mut self, at: usize, wish: Wish) -> String {
        match self.ask(at, wish) {
            Answer::Refused(refusal) => refusal.to_string(),
            answer => panic!("{answer:?}"),
        }
    }

    fn allocate(&mut self, at: usize, wanted: Wanted, placement: Placement) -> SegmentId {
        match self.ask(at, Wish::Allocate { wanted, placement }) {
            Answer::Allocated(segment) => segment.id,
            answer => panic!("{answer:?}"),
        }
    }

    fn free(&self) -> Vec<u64> {
        self.nodes.iter().map(|(node, _)| node.free().0).collect()
    }
}

fn wanted(name: &str, bytes: u64, coherence: Coherence) -> Wanted {
    Wanted { writers: 1, ..Wanted::new(Some(SegmentName::new(name).unwrap()), bytes, coherence, USER) }
}

fn named(name: &str) -> Target {
    Target::Name(SegmentName::new(name).unwrap())
}

fn get(target: Target, offset: u64, length: Option<u64>) -> Wish {
    Wish::Get { target, offset, length, user: USER }
}

fn put(target: Target, offset: u64, bytes: &[u8]) -> Wish {
    Wish::Put { target, offset, bytes: bytes.into(), named: None, stamp_ns: 77, user: USER }
}

fn value(bytes: &[u8], version: u64, stamp_ns: u64) -> Answer {
    Answer::Value(Value { bytes: bytes.to_vec(), version, stamp_ns })
}

#[test]
fn parts_are_put_and_got_by_any_node() {
    let mut nodes = Nodes::new(3);
    let two = Placement::Node(Rank(2));
    for (nth, coherence) in ["read", "write", "strict", "version", "delta(0)", "temporal(0us)"].into_iter().enumerate()
    {
        let name = format!("s{nth}");
        let id = nodes.allocate(0, wanted(&name, 10, coherence.parse().unwrap()), two);
        assert_eq!(id.home, Incarnation::new(2, 1));
        // Words of a segment that was released are used again, and their versions go on.
        let answer = nodes.ask(2, get(named(&name), 0, None));
        let Answer::Value(new) = answer else { panic!("{coherence}: {answer:?}") };
        let Value { version, .. } = new;
        assert_eq!(Answer::Value(new), value(&[0; 10], version, 0), "{coherence}");
        let first = Wish::Put {
            target: named(&name),
            offset: 3,
            bytes: [1, 2, 3].as_slice().into(),
            named: Some(version),
            stamp_ns: 77,
            user: USER,
        };
        assert_eq!(nodes.ask(1, first), Answer::Put(version + 1), "{coherence}");
        assert_eq!(nodes.ask(0, get(Target::Id(id), 2, Some(4))), value(&[0, 1, 2, 3], version + 1, 77), "{coherence}");
        let answer = nodes.ask(2, Wish::Stat { target: named(&name) });
        let Answer::Stat { segment, version: now, stamp_ns: 77, .. } = answer else {
            panic!("{coherence}: {answer:?}")
        };
        assert_eq!((segment.id, now), (id, version + 1));
        assert_eq!(nodes.ask(0, Wish::Release { target: named(&name), user: USER }), Answer::Released);
    }
    nodes.run(Duration::from_millis(100));
    assert_eq!(nodes.free(), [BYTES; 3], "what was released is free");
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let mut nodes = Nodes::new(2);
    let (one, two) = (Placement::Node(Rank(1)), Placement::Node(Rank(2)));
    let strict = |name: &str, bytes| wanted(name, bytes, Coherence::Strict);
    let id = nodes.allocate(0, strict("a", 10), two);
    assert_eq!(nodes.ask(0, put(named("a"), 0, b"0123456789")), Answer::Put(2));
    let before = (nodes.free(), nodes.ask(1, get(named("a"), 0, None)));
    let mut refused = |at: usize, wish: Wish, said: &str| assert_eq!(nodes.refused(at, wish), said);
    let allocate = |wanted: Wanted, placement| Wish::Allocate { wanted, placement };

    refused(0, allocate(strict("b", 0), one), "a segment of 0 bytes: it must have at least 1");
    let large = format!("a segment of {} bytes: at most {MAX_SEGMENT_BYTES}", MAX_SEGMENT_BYTES + 1);
    refused(0, allocate(strict("b", MAX_SEGMENT_BYTES + 1), one), &large);
    refused(0, allocate(Wanted { writers: 0, ..strict("b", 8) }, one), "a segment for 0 writers at a time: 1 to 62");
    refused(0, allocate(Wanted { writers: 63, ..strict("b", 8) }, one), "a segment for 63 writers at a time: 1 to 62");
    let copies = |copies, coherence| allocate(Wanted { copies, ..wanted("b", 8, coherence) }, one);
    refused(0, copies(0, Coherence::Strict), "0 copies of a segment: 1 to 4");
    refused(0, copies(5, Coherence::Strict), "5 copies of a segment: 1 to 4");
    refused(
        0,
        copies(3, Coherence::Strict),
        "3 homes are to hold the segment, and 2 offer memory: ask for fewer copies",
    );
    refused(0, copies(2, Coherence::Null), "a segment of coherence null has one copy");
    refused(0, allocate(strict("b", 2000), one), "user 1000 has 0 of 3072 bytes at 1.1: 4096 more are too many");
    let other = Wanted { owner: 7, ..strict("b", 1400) };
    refused(0, allocate(strict("a", 10), one), "there is a segment a");
    refused(0, allocate(strict("b", 8), Placement::Node(Rank(9))), "node 9 offers no memory");
    refused(0, get(named("c"), 0, None), "there is no segment c");
    refused(0, get(named("a"), 8, Some(3)), "3 bytes from byte 8 on are outside a segment of 10 bytes");
    refused(0, get(named("a"), 10, None), "0 bytes from byte 10 on are outside a segment of 10 bytes");
    refused(
        0,
        get(named("a"), u64::MAX, Some(2)),
        &format!("2 bytes from byte {} on are outside a segment of 10 bytes", u64::MAX),
    );
    refused(1, put(named("a"), 9, b"12"), "2 bytes from byte 9 on are outside a segment of 10 bytes");
    refused(1, put(named("a"), 0, b""), "0 bytes from byte 0 on are outside a segment of 10 bytes");
    for wish in [
        Wish::Release { target: named("a"), user: 7 },
        Wish::Get { target: named("a"), offset: 0, length: None, user: 7 },
        Wish::Put { target: named("a"), offset: 0, bytes: [1].as_slice().into(), named: None, stamp_ns: 1, user: 7 },
    ] {
        refused(0, wish, "segment 2.1/1 belongs to user 1000");
    }
    assert_eq!((nodes.free(), nodes.ask(1, get(named("a"), 0, None))), before);

    nodes.allocate(0, other, one);
    let another = Wanted { owner: 8, ..strict("c", 1400) };
    let said = nodes.refused(0, Wish::Allocate { wanted: another, placement: one });
    assert_eq!(said, "home 1.1 has no room for 2944 bytes: 1152 are free, 1152 of them in one piece");

    // What was released is refused by whoever still has a handle of it, also where its name is another's by now.
    assert_eq!(nodes.ask(0, Wish::Release { target: named("a"), user: USER }), Answer::Released);
    for at in [0, 1] {
        assert_eq!(nodes.refused(at, get(Target::Id(id), 0, None)), "segment 2.1/1 was released");
        assert_eq!(nodes.refused(at, put(Target::Id(id), 0, b"x")), "segment 2.1/1 was released");
        let again = Wish::Release { target: Target::Id(id), user: USER };
        assert_eq!(nodes.refused(at, again), "segment 2.1/1 was released");
    }
    nodes.allocate(1, strict("a", 10), two);
    assert_eq!(nodes.refused(0, put(Target::Id(id), 0, b"x")), "segment 2.1/1 was released");
    let Answer::Value(new) = nodes.ask(0, get(named("a"), 0, None)) else { panic!() };
    assert_eq!((&new.bytes[..], new.stamp_ns), (&[0; 10][..], 0), "nothing is left of what stood there");
}

#[test]
fn a_put_against_an_old_version_is_refused() {
    let mut nodes = Nodes::new(2);
    nodes.allocate(0, wanted("v", 8, Coherence::Version), Placement::Spread);
    let put = |bytes: &[u8], named| Wish::Put {
        target: Target::Name(SegmentName::new("v").unwrap()),
        offset: 0,
        bytes: bytes.into(),
        named,
        stamp_ns: 1,
        user: USER,
    };
    assert_eq!(nodes.ask(0, put(b"01234567", Some(1))), Answer::Put(2));
    let old = "the value is of version 2, and not of version 1 that was to be replaced";
    assert_eq!(nodes.refused(1, put(b"abcdefgh", Some(1))), old);
    assert_eq!(nodes.refused(1, put(b"ab", Some(1))), old, "a part");
    let coming = "the value is of version 2, and not of version 9 that was to be replaced";
    assert_eq!(nodes.refused(1, put(b"abcdefgh", Some(9))), coming);
    let none = "a put to a segment of coherence version names the version that it replaces";
    assert_eq!(nodes.refused(1, put(b"abcdefgh", None)), none);
    assert_eq!(nodes.ask(1, get(named("v"), 0, None)), value(b"01234567", 2, 1));
}

#[test]
fn who_only_reads_on_gives_back_what_it_put_with() {
    let mut nodes = Nodes::new(2);
    nodes.allocate(0, wanted("a", 8, Coherence::Strict), Placement::Node(Rank(1)));
    assert_eq!(nodes.ask(0, put(named("a"), 0, &[1; 8])), Answer::Put(2));
    let waits = nodes.nodes[1].0.request(put(named("a"), 0, &[2; 8]), Duration::from_millis(200));
    // More often than a slot is kept.
    for _ in 0..60 {
        nodes.ask(0, get(named("a"), 0, None));
    }
    let answer = nodes.answers.iter().find(|(node, id, _)| (*node, *id) == (1, waits)).map(|(_, _, answer)| answer);
    assert_eq!(answer, Some(&Answer::Put(3)));
    assert_eq!(nodes.ask(0, get(named("a"), 0, None)), value(&[2; 8], 3, 77));
}

#[test]
fn values_outlive_views_and_what_is_lost_is_said_to_be() {
    let mut nodes = Nodes::new(3);
    let strict = |name: &str| wanted(name, 4, Coherence::Strict);
    let stays = nodes.allocate(0, strict("stays"), Placement::Node(Rank(1)));
    let goes = nodes.allocate(0, strict("goes"), Placement::Node(Rank(3)));
    for name in ["stays", "goes"] {
        assert_eq!(nodes.ask(1, put(named(name), 0, b"here")), Answer::Put(2));
    }
    nodes.next_view(&[0, 1]);
    // Who has not learnt of the view has the keys of the one before: they reach nothing of this one's.
    let late = nodes.ask(2, put(Target::Id(stays), 0, b"late"));
    assert!(matches!(late, Answer::Refused(Refusal::Unknown | Refusal::TimedOut { .. })), "{late:?}");
    assert_eq!(nodes.ask(1, get(named("stays"), 0, None)), value(b"here", 2, 77));
    assert_eq!(nodes.ask(1, put(named("stays"), 0, b"more")), Answer::Put(3));
    for target in [Target::Id(goes), named("goes")] {
        assert_eq!(nodes.refused(1, get(target, 0, None)), "segment 3.1/1 is lost: its home is no member any more");
    }
    let again = Wish::Allocate { wanted: strict("goes"), placement: Placement::Local };
    assert_eq!(nodes.refused(0, again.clone()), "segment 3.1/1 is lost: its home is no member any more");
    assert_eq!(nodes.ask(0, Wish::Release { target: named("goes"), user: USER }), Answer::Released);
    assert!(matches!(nodes.ask(0, again), Answer::Allocated(_)));
    let Answer::Listed { segments, silent, .. } = nodes.ask(1, Wish::List { prefix: String::new() }) else { panic!() };
    let listed: Vec<String> = segments.iter().map(|segment| segment.wanted.name.clone().unwrap().to_string()).collect();
    assert_eq!((listed, silent), (vec!["stays".to_owned(), "goes".to_owned()], vec![]));
}

fn held_by(answer: &Answer) -> Vec<u32> {
    let (Answer::Stat { segment, .. } | Answer::Allocated(segment)) = answer else { panic!("{answer:?}") };
    segment.places().map(|place| place.home.rank.0).collect()
}

#[test]
fn a_copy_takes_the_place_of_a_home_that_is_lost() {
    for coherence in ["read", "write", "strict", "version", "delta(1)", "temporal(1ms)"] {
        let mut nodes = Nodes::new(3);
        let two = Wanted { copies: 2, ..wanted("a", 4, coherence.parse().unwrap()) };
        let bytes = two.extent_bytes();
        let made = nodes.ask(1, Wish::Allocate { wanted: two, placement: Placement::Node(Rank(3)) });
        assert_eq!(held_by(&made), [3, 1], "{coherence}");
        let Answer::Allocated(Segment { id, .. }) = made else { panic!("{coherence}: {made:?}") };
        assert_eq!(nodes.free(), [BYTES - bytes, BYTES, BYTES - bytes], "{coherence}: each copy counts where it is");
        let put = |bytes: &[u8], version| Wish::Put {
            target: Target::Id(id),
            offset: 0,
            bytes: bytes.into(),
            named: Some(version),
            stamp_ns: 77,
            user: USER,
        };
        assert_eq!(nodes.ask(1, put(b"here", 1)), Answer::Put(2), "{coherence}");
        assert_eq!(nodes.ask(0, put(b"HE", 2)), Answer::Put(3), "{coherence}: a part");
        // Its home goes: a copy stands, and another home has one.
        nodes.next_view(&[0, 1]);
        for target in [Target::Id(id), named("a")] {
            assert_eq!(nodes.ask(1, get(target.clone(), 0, None)), value(b"HEre", 3, 77), "{coherence}");
            assert_eq!(held_by(&nodes.ask(0, Wish::Stat { target })), [1, 2], "{coherence}");
        }
        assert_eq!(nodes.ask(1, put(b"more", 3)), Answer::Put(4), "{coherence}");
        nodes.next_view(&[1]);
        assert_eq!(nodes.ask(1, get(named("a"), 0, None)), value(b"more", 4, 77), "{coherence}");
        assert_eq!(held_by(&nodes.ask(1, Wish::Stat { target: Target::Id(id) })), [2], "{coherence}: one of two");
        let Answer::Listed { segments, .. } = nodes.ask(1, Wish::List { prefix: "a".into() }) else { panic!() };
        assert_eq!(segments.iter().map(|segment| segment.id).collect::<Vec<_>>(), [id], "{coherence}");
        assert_eq!(nodes.ask(1, Wish::Release { target: Target::Id(id), user: USER }), Answer::Released);
        assert_eq!(nodes.refused(1, get(named("a"), 0, None)), "there is no segment a", "{coherence}");
        nodes.run(Duration::from_millis(100));
        assert_eq!(nodes.free()[1], BYTES, "{coherence}");
    }
}

#[test]
fn a_segment_is_lost_when_all_who_held_it_are() {
    let mut nodes = Nodes::new(4);
    // Who knows the name stays.
    let view = nodes.members.clone().unwrap();
    let registrar = |name: &String| SegmentName::new(name).unwrap().registrar(&view).unwrap().rank.0;
    let name = (0..99).map(|nth| format!("s{nth}")).find(|name| registrar(name) <= 2).unwrap();
    let two = Wanted { copies: 2, ..wanted(&name, 4, Coherence::Strict) };
    let id = nodes.allocate(0, two.clone(), Placement::Node(Rank(3)));
    assert_eq!(nodes.ask(1, put(named(&name), 0, b"here")), Answer::Put(2));
    assert_eq!(held_by(&nodes.ask(0, Wish::Stat { target: Target::Id(id) })), [3, 4]);
    nodes.next_view(&[0, 1]);
    for target in [Target::Id(id), named(&name)] {
        assert_eq!(nodes.refused(1, get(target, 0, None)), "segment 3.1/1 is lost: its home is no member any more");
    }
    assert_eq!(nodes.ask(0, Wish::Release { target: named(&name), user: USER }), Answer::Released);
    assert_eq!(nodes.free()[..2], [BYTES; 2]);
    // Both stay: it is released at both.
    let id = nodes.allocate(0, two, Placement::Local);
    assert_eq!(nodes.ask(1, Wish::Release { target: Target::Id(id), user: USER }), Answer::Released);
    nodes.run(Duration::from_millis(100));
    assert_eq!(nodes.free()[..2], [BYTES; 2]);
    nodes.next_view(&[1]);
    assert_eq!(nodes.refused(1, get(Target::Id(id), 0, None)), "segment 1.1/1 is lost: its home is no member any more");
}

#[test]
fn copies_are_where_there_is_room_or_the_allocation_is_refused() {
    let mut nodes = Nodes::new(3);
    let large = |name: &str, owner| Wanted { owner, ..wanted(name, 1400, Coherence::Strict) };
    nodes.allocate(0, large("a", 1), Placement::Node(Rank(2)));
    // The second has no room any more: the third is asked.
    let two = Wanted { copies: 2, ..large("b", 2) };
    let made = nodes.ask(0, Wish::Allocate { wanted: two, placement: Placement::Node(Rank(1)) });
    assert_eq!(held_by(&made), [1, 3]);
    let small = Wanted { copies: 3, ..wanted("c", 100, Coherence::Strict) };
    let made = nodes.ask(0, Wish::Allocate { wanted: small.clone(), placement: Placement::MostFree });
    assert_eq!(held_by(&made).len(), 3);
    assert_eq!(nodes.ask(0, Wish::Release { target: named("c"), user: USER }), Answer::Released);
    // The third has no room: what was taken at the second is given back.
    nodes.allocate(0, Wanted { owner: 3, ..wanted("e", 100, Coherence::Strict) }, Placement::Node(Rank(3)));
    nodes.run(Duration::from_millis(100));
    let before = nodes.free();
    let three = Wanted { copies: 3, ..wanted("d", 560, Coherence::Strict) };
    let said = nodes.refused(0, Wish::Allocate { wanted: three, placement: Placement::Node(Rank(1)) });
    assert_eq!(said, "home 3.1 has no room for 1152 bytes: 896 are free, 896 of them in one piece");
    // And so it is where the name is another's.
    let taken = Wanted { name: Some(SegmentName::new("a").unwrap()), ..small };
    assert_eq!(nodes.refused(0, Wish::Allocate { wanted: taken, placement: Placement::Local }), "there is a segment a");
    nodes.run(Duration::from_millis(100));
    assert_eq!(nodes.free(), before);
}

#[test]
fn most_free_is_where_most_is_free() {
    let mut nodes = Nodes::new(3);
    let homes: Vec<u32> = (0..6)
        .map(|nth| {
            let wanted = wanted(&format!("s{nth}"), 100, Coherence::Null);
            nodes.allocate(1, wanted, Placement::MostFree).home.rank.0
        })
        .collect();
    assert_eq!(homes, [1, 2, 3, 1, 2, 3]);
    assert_eq!(nodes.free(), [BYTES - 2 * 128; 3]);
}
