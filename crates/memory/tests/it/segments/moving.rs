//! A home that takes its memory back, where nothing fails: who holds what it held, and that nothing is changed by it.

use std::time::Duration;

use verbena_memory::{Answer, Coherence, Placement, Segment, SegmentId, Target, Value, Wanted, Wish};
use verbena_terms::Rank;

use super::{BYTES, Nodes, USER, get, held_by, named, wanted};

impl Nodes {
    /// A node is to offer so many bytes, at once; and some time goes by.
    fn take_back(&mut self, at: usize, bytes: u64) {
        let answer = self.ask(at, Wish::Reclaim { bytes, notice: Duration::ZERO });
        assert!(matches!(answer, Answer::Reclaims(_)), "{answer:?}");
        self.run(Duration::from_millis(100));
        let standing = self.nodes[at].0.standing();
        assert!(standing.taken <= bytes && standing.going == 0, "{standing:?}");
    }

    fn found_at(&mut self, at: usize, target: Target) -> Vec<u32> {
        held_by(&self.ask(at, Wish::Stat { target }))
    }
}

const COHERENCES: [&str; 7] = ["null", "read", "write", "strict", "version", "delta(1)", "temporal(1ms)"];

fn put_over(id: SegmentId, bytes: &[u8], version: u64) -> Wish {
    let (target, bytes) = (Target::Id(id), bytes.into());
    Wish::Put { target, offset: 0, bytes, named: Some(version), stamp_ns: 77, user: USER }
}

/// What it had, by whom, with which version.
fn holds(nodes: &mut Nodes, at: usize, target: Target, bytes: &[u8], version: u64) {
    let answer = nodes.ask(at, get(target, 0, None));
    let Answer::Value(Value { bytes: has, version: is, .. }) = answer else { panic!("{answer:?}") };
    assert_eq!((&has[..], is), (bytes, version));
}

#[test]
fn a_segment_moves_to_where_there_is_room() {
    for coherence in COHERENCES {
        let mut nodes = Nodes::new(3);
        let id = nodes.allocate(0, wanted("a", 4, coherence.parse().unwrap()), Placement::Node(Rank(2)));
        let takes = wanted("a", 4, coherence.parse().unwrap()).extent_bytes();
        for (at, version) in [(0, 1), (2, 2), (1, 3)] {
            assert_eq!(nodes.ask(at, put_over(id, b"here", version)), Answer::Put(version + 1), "{coherence}");
        }
        nodes.take_back(1, 0);
        assert_eq!(nodes.nodes[1].0.reclaimed(), [1, 0], "{coherence}");
        let home = nodes.found_at(0, Target::Id(id))[0];
        assert!(home != 2 && nodes.found_at(2, named("a")) == [home] && nodes.free()[1] == 0, "{coherence}: {home}");
        for at in 0..3 {
            holds(&mut nodes, at, Target::Id(id), b"here", 4);
            holds(&mut nodes, at, named("a"), b"here", 4);
        }
        // Its slots are free there, for whoever puts.
        for (at, version) in [(2, 4), (0, 5), (1, 6)] {
            assert_eq!(nodes.ask(at, put_over(id, b"more", version)), Answer::Put(version + 1), "{coherence}");
        }
        let Answer::Listed { segments, .. } = nodes.ask(1, Wish::List { prefix: String::new() }) else { panic!() };
        assert_eq!(segments.iter().map(|segment| segment.id).collect::<Vec<_>>(), [id], "{coherence}");
        // And on to where nobody has been asked; it comes back where it was made.
        nodes.take_back(1, BYTES);
        nodes.take_back(home as usize - 1, 0);
        let third = nodes.found_at(1, Target::Id(id))[0];
        assert_ne!(third, home, "{coherence}");
        nodes.take_back(third as usize - 1, 0);
        for at in 0..3 {
            holds(&mut nodes, at, Target::Id(id), b"more", 7);
        }
        let fourth = nodes.found_at(0, named("a"))[0];
        assert!(fourth != third, "{coherence}: {home}, {third}, {fourth}");
        // In the next view it is found, by its number too, whether who made it is there or not.
        for members in [&[0, 1, 2][..], &[fourth as usize - 1]] {
            nodes.next_view(members);
            for at in members {
                holds(&mut nodes, *at, Target::Id(id), b"more", 7);
                holds(&mut nodes, *at, named("a"), b"more", 7);
            }
        }
        let last = fourth as usize - 1;
        assert_eq!(nodes.free()[last], nodes.nodes[last].0.standing().offered - takes, "{coherence}");
        assert_eq!(nodes.ask(last, Wish::Release { target: Target::Id(id), user: USER }), Answer::Released);
        nodes.run(Duration::from_millis(100));
        assert_eq!(nodes.free()[last], nodes.nodes[last].0.standing().offered, "{coherence}");
        assert_eq!(nodes.refused(last, get(named("a"), 0, None)), "there is no segment a", "{coherence}");
    }
}

#[test]
fn what_nobody_has_room_for_is_reclaimed() {
    let mut nodes = Nodes::new(2);
    let id = nodes.allocate(0, wanted("a", 4, Coherence::Strict), Placement::Node(Rank(1)));
    assert_eq!(nodes.ask(1, put_over(id, b"here", 1)), Answer::Put(2));
    nodes.take_back(1, 0);
    nodes.take_back(0, 0);
    assert_eq!(nodes.nodes[0].0.reclaimed(), [0, 1]);
    for at in [0, 1] {
        for target in [named("a"), Target::Id(id)] {
            assert_eq!(
                nodes.refused(at, get(target, 0, None)),
                "segment 1.1/1 was reclaimed: 1.1 took its memory back"
            );
        }
    }
    nodes.take_back(1, BYTES);
    let again = nodes.allocate(0, wanted("a", 4, Coherence::Strict), Placement::Node(Rank(2)));
    holds(&mut nodes, 0, Target::Id(again), &[0; 4], 1);
    assert_eq!(nodes.refused(1, get(Target::Id(id), 0, None)), "segment 1.1/1 was reclaimed: 1.1 took its memory back");
}

#[test]
fn copies_go_elsewhere_and_a_home_gives_its_segments_to_who_holds_them() {
    for coherence in &COHERENCES[1..] {
        for (leaves, count) in [(3, 3), (1, 3), (3, 2), (1, 2)] {
            let mut nodes = Nodes::new(3);
            if count == 2 {
                // Nobody else has room.
                nodes.take_back(1, 0);
            }
            let two = Wanted { copies: 2, ..wanted("a", 4, coherence.parse().unwrap()) };
            let made = nodes.ask(1, Wish::Allocate { wanted: two, placement: Placement::Node(Rank(3)) });
            let Answer::Allocated(Segment { id, .. }) = made else { panic!("{made:?}") };
            assert_eq!(held_by(&made), [3, 1]);
            assert_eq!(nodes.ask(1, put_over(id, b"here", 1)), Answer::Put(2));
            nodes.take_back(leaves - 1, 0);
            let stays = if leaves == 3 { 1 } else { 3 };
            let expected: &[u32] = if count == 2 { &[stays] } else { &[stays, 2] };
            for at in 0..3 {
                assert_eq!(nodes.found_at(at, Target::Id(id)), expected, "{coherence}: {leaves} leaves");
                assert_eq!(nodes.found_at(at, named("a")), expected, "{coherence}: {leaves} leaves");
                holds(&mut nodes, at, Target::Id(id), b"here", 2);
            }
            for (at, version) in [(0, 2), (1, 3), (2, 4)] {
                assert_eq!(nodes.ask(at, put_over(id, b"more", version)), Answer::Put(version + 1), "{coherence}");
            }
            assert_eq!(nodes.nodes[leaves - 1].0.reclaimed(), [1, 0], "{coherence}");
            // Who stays is lost: the other one has every put.
            if count == 3 {
                nodes.next_view(&[1]);
                holds(&mut nodes, 1, named("a"), b"more", 5);
                assert_eq!(nodes.ask(1, Wish::Release { target: Target::Id(id), user: USER }), Answer::Released);
            }
        }
    }
}
