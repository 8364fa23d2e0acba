//! What a node lets under way, and how its puts to one segment follow each other.

use std::sync::Arc;
use std::time::Duration;

use super::budget::{SHORT, UNDER_WAY};
use crate::access::{Given, Outcome};
use crate::dialogue::{Node, rank};
use crate::node::REQUESTS;
use crate::request::{Answer, RequestId, Wish};
use crate::{Action, Coherence, MAX_SEGMENT_BYTES, Refusal, Segment, SegmentId, Target, Wanted};

const PATIENCE: Duration = Duration::from_secs(8);
/// Values of the longest segments that may be under way.
const MOST: u64 = UNDER_WAY / MAX_SEGMENT_BYTES;

/// Node 1, of a view with home 3, that asks for things one after the other.
struct Asker {
    node: Node,
    asked: u64,
}

impl Asker {
    fn new() -> Asker {
        Asker { node: Node::of(1, &[1, 3]), asked: 0 }
    }

    /// It knows of a segment of home 3.
    fn knows(&mut self, number: u64, bytes: u64, coherence: Coherence) -> SegmentId {
        let id = SegmentId { home: rank(3), number };
        let wanted = Wanted::new(None, bytes, coherence, 7);
        let segment = Segment { id, wanted, home: rank(3), control: 0, at: 0, backups: vec![] };
        self.node.does(|memory, now, _| memory.handles.learn(segment, now));
        id
    }

    fn asks(&mut self, wish: Wish) -> RequestId {
        self.asked += 1;
        let id = RequestId(self.asked);
        self.node.does(|memory, now, out| memory.request(id, wish, now + PATIENCE, now, out));
        id
    }

    fn gets(&mut self, segment: SegmentId) -> RequestId {
        self.asks(Wish::Get { target: Target::Id(segment), offset: 0, length: None, user: 7 })
    }

    fn puts(&mut self, segment: SegmentId, bytes: &Arc<[u8]>, named: Option<u64>) -> RequestId {
        let (target, bytes) = (Target::Id(segment), bytes.clone());
        self.asks(Wish::Put { target, offset: 0, bytes, named, stamp_ns: 1, user: 7 })
    }

    /// The answers since the last look, and the posts.
    fn told(&mut self) -> (Vec<(RequestId, Answer)>, Vec<crate::PostId>) {
        let (mut answers, mut posts) = (vec![], vec![]);
        for action in self.node.did() {
            match action {
                Action::Answer(id, answer) => answers.push((id, answer)),
                Action::Post(post, _) => posts.push(post.id),
                _ => {}
            }
        }
        (answers, posts)
    }

    fn is_refused(&mut self, id: RequestId) {
        let answer = Answer::Refused(Refusal::TooMuch { most: UNDER_WAY });
        assert_eq!(self.told(), (vec![(id, answer)], vec![]));
    }

    fn under_way(&self) -> u64 {
        self.node.memory.under_way()
    }
}

#[test]
fn so_much_of_values_is_read_at_a_time_and_short_ones_always() {
    let mut asker = Asker::new();
    let (long, short) = (asker.knows(1, MAX_SEGMENT_BYTES, Coherence::Read), asker.knows(2, SHORT, Coherence::Read));
    (0..MOST).for_each(|_| _ = asker.gets(long));
    let (answers, posts) = asker.told();
    assert_eq!((answers.len(), posts.len() as u64, asker.under_way()), (0, MOST, UNDER_WAY));
    let another = asker.gets(long);
    asker.is_refused(another);
    asker.gets(short);
    assert_eq!(asker.told().1.len(), 1);
    // Whatever became of one, another may come.
    asker.node.ended(posts[0], Outcome::Late);
    assert_eq!(asker.told().0.len(), 1);
    asker.gets(long);
    assert_eq!(asker.told().1.len(), 1);
    asker.node.next_view(&[1, 3]);
    assert_eq!(asker.under_way(), UNDER_WAY, "they are asked for anew");
    asker.node.passes(PATIENCE);
    assert_eq!((asker.told().0.len() as u64, asker.under_way()), (MOST + 1, 0));
}

#[test]
fn so_much_of_values_is_put_at_a_time_also_behind_others_and_after_its_time() {
    let mut asker = Asker::new();
    let segment = asker.knows(1, MAX_SEGMENT_BYTES, Coherence::Write);
    let bytes: Arc<[u8]> = vec![1; MAX_SEGMENT_BYTES as usize].into();
    (0..MOST).for_each(|_| _ = asker.puts(segment, &bytes, None));
    let (answers, posts) = asker.told();
    assert_eq!((answers.len(), posts.len(), asker.under_way()), (0, 1, UNDER_WAY));
    let another = asker.puts(segment, &bytes, None);
    asker.is_refused(another);
    asker.node.passes(PATIENCE);
    assert_eq!((asker.told().0.len() as u64, asker.under_way()), (MOST, MAX_SEGMENT_BYTES), "one is on its way");
    asker.node.ended(posts[0], Outcome::Late);
    assert_eq!(asker.under_way(), 0);
}

#[test]
fn a_part_that_is_put_counts_as_the_value_that_it_is_put_into() {
    let mut asker = Asker::new();
    let part: Arc<[u8]> = [1].into();
    for number in 1..=MOST {
        let segment = asker.knows(number, MAX_SEGMENT_BYTES, Coherence::Write);
        asker.puts(segment, &part, None);
    }
    assert_eq!((asker.told().0.len(), asker.under_way()), (0, UNDER_WAY));
    let (full, null) =
        (asker.knows(100, MAX_SEGMENT_BYTES, Coherence::Write), asker.knows(101, MAX_SEGMENT_BYTES, Coherence::Null));
    let another = asker.puts(full, &part, None);
    asker.is_refused(another);
    // There it is written in its place.
    asker.puts(null, &part, None);
    assert_eq!((asker.told().1.len(), asker.under_way()), (1, UNDER_WAY));
}

#[test]
fn thousands_of_puts_that_replace_a_version_of_before_end_one_after_the_other() {
    let mut asker = Asker::new();
    let segment = asker.knows(1, 8, Coherence::Version);
    let bytes: Arc<[u8]> = [1; 8].into();
    (0..REQUESTS).for_each(|_| _ = asker.puts(segment, &bytes, Some(0)));
    // It looks which slots are free, claims one, and publishes in it.
    for _ in 0..3 {
        let (answers, posts) = asker.told();
        assert_eq!((answers.len(), posts.len()), (0, 1));
        asker.node.ended(posts[0], Outcome::Done(vec![Given::Word(0)]));
    }
    let (answers, posts) = asker.told();
    assert_eq!((answers.len(), posts.len()), (REQUESTS, 0));
    assert_eq!(answers[0].1, Answer::Put(1));
    let conflict = Answer::Refused(Refusal::Conflict { named: 0, current: 1 });
    assert!(answers[1..].iter().all(|(_, answer)| *answer == conflict));
}
