//! A node as its peers meet it, for tests: each test feeds it events one by one and reads its actions.

use std::sync::Arc;
use std::time::Duration;

use verbena_cluster::{Lease, Member, Roles, View};
use verbena_fabric::{RegionKey, Rights, Secret};
use verbena_terms::{Incarnation, Time, ViewNumber};

use crate::access::{Outcome, Post, PostId};
use crate::actions::Stands;
use crate::layout::extents_at;
use crate::wire::{Frame, Message, Question, Reply};
use crate::{Action, Coherence, Memory, MemoryOptions, Rules, Segment, SegmentId, SegmentName, Wanted};

const SEGMENTS: u32 = 4;
const BYTES: u64 = 4096;

pub(crate) fn rank(rank: u32) -> Incarnation {
    Incarnation::new(rank, 1)
}

pub(crate) fn view(number: u32, ranks: &[u32]) -> View {
    let member =
        |of: &u32| Member { incarnation: rank(*of), name: format!("n{of}"), address: String::new(), roles: Roles::ALL };
    View::new(ViewNumber(number), ranks.iter().map(member).collect(), vec![]).unwrap()
}

/// What home 1 leads, which is to have a copy.
pub(crate) fn segment() -> Segment {
    let wanted = Wanted { copies: 2, ..Wanted::new(Some(SegmentName::new("a").unwrap()), 8, Coherence::Strict, 7) };
    let (home, id) = (rank(1), SegmentId { home: rank(1), number: 1 });
    Segment { id, wanted, home, control: 0, at: 0, backups: vec![] }
}

pub(crate) struct Node {
    pub(crate) memory: Memory,
    pub(crate) now: Time,
    me: Incarnation,
    view: Arc<View>,
    did: Vec<Action>,
}

impl Node {
    /// In a view that is in effect, without its memory yet.
    pub(crate) fn of(me: u32, members: &[u32]) -> Node {
        let (bytes, segments, owner_bytes, copies_bytes, rules) = (BYTES, SEGMENTS, u64::MAX, 0, Rules::ALL);
        let memory = Memory::new(MemoryOptions { bytes, segments, owner_bytes, copies_bytes, rules });
        let view = Arc::new(view(1, members));
        let mut node = Node { memory, now: Time::ZERO + Duration::from_secs(1), me: rank(me), view, did: vec![] };
        node.memory.start_incarnation(rank(me), &mut node.did);
        node.comes(node.view.clone());
        node
    }

    /// Another view, in effect at once.
    pub(crate) fn next_view(&mut self, members: &[u32]) {
        self.comes(Arc::new(view(self.view.number().0 + 1, members)));
    }

    fn comes(&mut self, view: Arc<View>) {
        self.view = view;
        self.memory.view(&self.view, self.now, &mut self.did);
        let number = self.view.number();
        let lease = Lease { until: Time::FAR, acknowledged: number, in_effect: number };
        self.memory.lease(lease, self.now, &mut self.did);
    }

    /// Its memory is made, and this stands in it.
    pub(crate) fn is_made(&mut self, stand: Vec<Stands>) {
        assert!(self.is_to_renew());
        let (owner, view, bytes) = (self.me, self.view.number(), extents_at(SEGMENTS) + BYTES);
        let key = RegionKey { owner, region: 0, view, bytes, rights: Rights::Change, secret: Secret([0; 16]) };
        self.memory.renewed(Some((key, stand)), &mut self.did);
    }

    /// Its memory could not be made.
    pub(crate) fn is_not_made(&mut self) {
        assert!(self.is_to_renew());
        self.memory.renewed(None, &mut self.did);
    }

    fn is_to_renew(&mut self) -> bool {
        let renewals = self.take(|action| matches!(action, Action::Renew(_)).then_some(()));
        !renewals.is_empty()
    }

    pub(crate) fn passes(&mut self, time: Duration) {
        self.now = self.now + time;
        self.memory.tick(self.now, &mut self.did);
    }

    pub(crate) fn hears(&mut self, from: u32, message: Message) {
        let frame = Frame { view: self.view.number(), from: rank(from), to: self.me, message };
        let heard = Frame::decode(&frame.encode()).unwrap();
        self.memory.heard(heard, self.now, &mut self.did);
    }

    /// A question, and the answer if there is one at once.
    pub(crate) fn asked(&mut self, from: u32, number: u64, question: Question) -> Option<Reply> {
        self.hears(from, Message::Ask { number, oldest: 1, question });
        self.answer(from, number)
    }

    /// What it has answered since it was looked at.
    pub(crate) fn answer(&mut self, to: u32, of: u64) -> Option<Reply> {
        self.messages().into_iter().find_map(|(who, message)| match message {
            Message::Answer { number, answer } if (who, number) == (rank(to), of) => Some(answer),
            _ => None,
        })
    }

    /// What it has said since it was looked at.
    pub(crate) fn messages(&mut self) -> Vec<(Incarnation, Message)> {
        self.take(|action| match action {
            Action::Send(Frame { to, message, .. }) => Some((*to, message.clone())),
            _ => None,
        })
    }

    /// Posts that it wants done.
    pub(crate) fn posts(&mut self) -> Vec<(Post, Time)> {
        self.take(|action| match action {
            Action::Post(post, until) => Some((post.clone(), *until)),
            _ => None,
        })
    }

    /// What it did of a kind, and no longer has.
    fn take<T>(&mut self, of: impl Fn(&Action) -> Option<T>) -> Vec<T> {
        let taken = self.did.iter().filter_map(&of).collect();
        self.did.retain(|action| of(action).is_none());
        taken
    }

    pub(crate) fn ended(&mut self, post: PostId, outcome: Outcome) {
        self.memory.completed(post, outcome, self.now, &mut self.did);
    }

    /// All that it wants done is.
    pub(crate) fn posts_are_done(&mut self) {
        for (post, _) in self.posts() {
            self.ended(post.id, Outcome::Done(vec![]));
        }
    }

    pub(crate) fn did(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.did)
    }

    pub(crate) fn does(&mut self, event: impl FnOnce(&mut Memory, Time, &mut Vec<Action>)) {
        event(&mut self.memory, self.now, &mut self.did);
    }
}
