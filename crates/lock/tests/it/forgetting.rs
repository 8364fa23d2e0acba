//! A member that is asked to forget words (rule L4): when it answers, and that it does not know them afterwards.

use std::sync::Arc;
use std::time::Duration;

use verbena_cluster::{Lease, Member, Role, Roles, View};
use verbena_lock::wire::{Frame, MemberMessage, Slot};
use verbena_lock::{
    Asker, LockWord, Locks, LocksAction, LocksOptions, Mode, Name, Outcome, PostId, Request, RequestId, Rules, Scheme,
    To, Token,
};
use verbena_terms::{Incarnation, Rank, Time, ViewNumber};

const HOME: Incarnation = Incarnation::new(1, 1);
const ME: Incarnation = Incarnation::new(2, 1);
const VIEW: ViewNumber = ViewNumber(1);
const WRITE: Request = Request { mode: Mode::Exclusive, is_try: false };

/// A node whose home is played by the test.
struct Node {
    locks: Locks,
    now: Time,
    /// Letters of the home.
    said: u64,
    /// The last that was heard of the node.
    heard: u64,
    requests: u64,
}

/// What the node did.
#[derive(Debug, Default)]
struct Did {
    posted: Vec<(PostId, Slot)>,
    said: Vec<MemberMessage>,
}

impl Node {
    fn new() -> Node {
        let options = LocksOptions { scheme: Scheme::Ncosed, slots: 4, rules: Rules::ALL };
        let mut node = Node { locks: Locks::new(options), now: Time::ZERO, said: 0, heard: 0, requests: 0 };
        let member = |incarnation: Incarnation, roles| Member {
            incarnation,
            name: format!("n{}", incarnation.rank),
            address: format!("sim://{}", incarnation.rank),
            roles,
        };
        let members = vec![member(HOME, Roles::ALL), member(ME, Roles::of(Role::Reader))];
        let view = Arc::new(View::new(VIEW, members, vec![]).unwrap());
        node.does(|locks, now, out| {
            locks.start_incarnation(ME, out);
            locks.view(&view, None, now, out);
            locks.lease(Lease { until: Time::FAR, acknowledged: VIEW, in_effect: VIEW }, now, out);
        });
        node
    }

    fn does(&mut self, event: impl FnOnce(&mut Locks, Time, &mut Vec<LocksAction>)) -> Did {
        self.now = self.now + Duration::from_millis(1);
        let (mut out, mut did) = (vec![], Did::default());
        event(&mut self.locks, self.now, &mut out);
        self.locks.flush(self.now, &mut out);
        for action in out {
            match action {
                LocksAction::Post(id, slot, _) => did.posted.push((id, slot)),
                LocksAction::Send(frame) => {
                    self.heard = self.heard.max(frame.first + frame.messages.len() as u64 - 1);
                    did.said.extend(frame.messages);
                }
                LocksAction::ProtocolViolation(_, violation) => panic!("{violation}"),
                _ => {}
            }
        }
        did
    }

    fn hears(&mut self, member_message: MemberMessage) -> Did {
        self.said += 1;
        let messages = vec![member_message];
        let frame = Frame { view: VIEW, from: HOME, to: ME, first: self.said, heard: self.heard, messages };
        self.does(|locks, now, out| locks.heard(frame, now, out))
    }

    fn finds(&mut self, post: PostId, before: LockWord) -> Did {
        let outcome = Outcome { before, token: Token::first_of(VIEW), is_closed: false };
        self.does(|locks, _, out| locks.completed(post, &outcome, out))
    }

    fn acquire(&mut self) -> (RequestId, Did) {
        self.requests += 1;
        let (id, asker) = (RequestId(self.requests), Asker { number: self.requests, pid: 0 });
        (id, self.does(|locks, _, out| assert!(!locks.acquire(id, asker, name(), WRITE, out))))
    }

    fn release(&mut self, id: RequestId) -> Did {
        self.does(|locks, _, out| locks.release(id, out).unwrap())
    }

    /// It has the lock, at the words of this slot.
    fn with_words(number: u32) -> (Node, RequestId) {
        let mut node = Node::new();
        let (id, did) = node.acquire();
        assert!(did.said.contains(&MemberMessage::Resolve(name())), "{did:?}");
        let did = node.hears(MemberMessage::Found { name: name(), slot: Some(number) });
        node.finds(did.posted[0].0, LockWord::FREE);
        (node, id)
    }
}

fn name() -> Name {
    Name::new(b"a").unwrap()
}

fn forget(number: u32) -> MemberMessage {
    MemberMessage::Forget { number: 1, slots: vec![number, 3] }
}

fn answered(did: &Did) -> bool {
    did.said.contains(&MemberMessage::Forgotten { number: 1 })
}

#[test]
fn words_that_nobody_here_uses_are_forgotten_at_once() {
    let (mut node, id) = Node::with_words(0);
    let post = node.release(id).posted[0].0;
    node.finds(post, LockWord::writer(ME.rank));
    assert!(answered(&node.hears(forget(0))));
    let (_, did) = node.acquire();
    assert!(did.posted.is_empty() && did.said.contains(&MemberMessage::Resolve(name())), "{did:?}");
}

#[test]
fn words_that_a_release_is_on_its_way_to_are_forgotten_when_it_has_arrived() {
    let (mut node, id) = Node::with_words(0);
    let post = node.release(id).posted[0].0;
    assert!(!answered(&node.hears(forget(0))));
    assert!(answered(&node.finds(post, LockWord::writer(ME.rank))));
    let (_, did) = node.acquire();
    assert!(did.posted.is_empty() && did.said.contains(&MemberMessage::Resolve(name())), "{did:?}");
}

#[test]
fn words_that_a_request_is_on_its_way_to_are_forgotten_when_it_has_met_them() {
    let (mut node, id) = Node::with_words(0);
    let post = node.release(id).posted[0].0;
    node.finds(post, LockWord::writer(ME.rank));
    let (_, did) = node.acquire();
    let (post, slot) = did.posted[0];
    assert_eq!(slot, Slot { home: HOME, number: 0 });
    assert!(!answered(&node.hears(forget(0))));
    let did = node.finds(post, LockWord::EVICTED);
    assert!(answered(&did) && did.said.contains(&MemberMessage::Resolve(name())), "{did:?}");
    let did = node.hears(MemberMessage::Found { name: name(), slot: Some(2) });
    assert_eq!(did.posted[0].1.number, 2);
}

#[test]
fn words_whose_gate_is_asked_about_are_forgotten_when_the_home_has_answered() {
    let (mut node, id) = Node::with_words(0);
    let post = node.release(id).posted[0].0;
    node.finds(post, LockWord::writer(ME.rank));
    // Once more, and the gate is closed.
    let (id, did) = node.acquire();
    let outcome = Outcome { before: LockWord::FREE, token: Token::first_of(VIEW), is_closed: true };
    let post = did.posted[0].0;
    node.does(|locks, _, out| locks.completed(post, &outcome, out));
    let post = node.release(id).posted[0].0;
    node.finds(post, LockWord::writer(ME.rank));
    let (_, did) = node.acquire();
    assert!(did.posted.is_empty(), "{did:?}");
    assert!(!answered(&node.hears(forget(0))));
    let (slot, to) = (Slot { home: HOME, number: 0 }, To::Participant(Rank(2)));
    let did = node.hears(MemberMessage::About { slot, to, message: verbena_lock::Message::Moved });
    assert!(answered(&did) && did.said.contains(&MemberMessage::Resolve(name())), "{did:?}");
}

/// So long as a client waits for a lease nothing is on its way.
#[test]
fn words_that_are_only_waited_for_are_forgotten_at_once() {
    let (mut node, id) = Node::with_words(0);
    let post = node.release(id).posted[0].0;
    node.finds(post, LockWord::writer(ME.rank));
    let lease = Lease { until: Time::FAR, acknowledged: VIEW, in_effect: VIEW };
    node.does(|locks, now, out| locks.lease(Lease { acknowledged: ViewNumber(0), ..lease }, now, out));
    let (_, did) = node.acquire();
    assert!(did.posted.is_empty(), "{did:?}");
    assert!(answered(&node.hears(forget(0))));
    let did = node.does(|locks, now, out| locks.lease(lease, now, out));
    assert!(did.posted.is_empty() && did.said.contains(&MemberMessage::Resolve(name())), "{did:?}");
}

#[test]
fn a_node_that_is_asked_too_much_says_so() {
    let (mut node, _) = Node::with_words(0);
    let slots: Vec<u32> = (0..1025).collect();
    let messages = vec![MemberMessage::Forget { number: 1, slots }];
    node.said += 1;
    let frame = Frame { view: VIEW, from: HOME, to: ME, first: node.said, heard: node.heard, messages };
    let mut out = vec![];
    node.locks.heard(frame, node.now, &mut out);
    assert!(matches!(out[..], [LocksAction::ProtocolViolation(HOME, _)]), "{out:?}");
}
