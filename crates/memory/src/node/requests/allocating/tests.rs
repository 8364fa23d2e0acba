//! Where a segment is placed, and what a late answer means.

use std::time::Duration;

use crate::access::{Given, Outcome};
use crate::dialogue::{Node, rank};
use crate::request::{Answer, RequestId, Wish};
use crate::wire::{Message, Question};
use crate::{Action, Coherence, Placement, Refusal, Wanted};

const PATIENCE: Duration = Duration::from_secs(8);

/// Where most is free is looked for at homes 1 and 3, of which one may have no memory.
fn looking() -> (Node, [crate::PostId; 2]) {
    let mut node = Node::of(1, &[1, 3]);
    let wish = Wish::Allocate { wanted: Wanted::new(None, 8, Coherence::Strict, 7), placement: Placement::MostFree };
    node.does(|memory, now, out| memory.request(RequestId(1), wish, now + PATIENCE, now, out));
    let looks = node.posts();
    assert!(looks.iter().all(|(_, until)| *until == node.now + PATIENCE / 2), "{looks:?}");
    node.messages();
    let Ok(ids) = looks.iter().map(|(post, _)| post.id).collect::<Vec<_>>().try_into() else { panic!("{looks:?}") };
    (node, ids)
}

#[test]
fn a_home_that_does_not_say_how_much_is_free_is_not_asked() {
    let (mut node, [first, second]) = looking();
    node.ended(second, Outcome::Done(vec![Given::Word(1)]));
    assert!(node.messages().is_empty());
    node.passes(PATIENCE / 2);
    node.ended(first, Outcome::Late);
    let mut said = node.messages();
    said.retain(|(_, message)| matches!(message, Message::Ask { question: Question::Allocate { .. }, .. }));
    assert!(matches!(&said[..], [(to, _)] if *to == rank(3)), "{said:?}");
}

/// What is said of an allocation with two copies at home 1, which was asked before this.
fn said_of_an_asked_allocation(then: impl FnOnce(&mut Node)) -> Vec<Answer> {
    let mut node = Node::of(1, &[1, 3]);
    let wanted = Wanted { copies: 2, ..Wanted::new(None, 8, Coherence::Strict, 7) };
    let wish = Wish::Allocate { wanted, placement: Placement::Local };
    node.does(|memory, now, out| memory.request(RequestId(1), wish, now + PATIENCE, now, out));
    assert_eq!(node.memory.requests.open[&RequestId(1)].terms.asked_at, Some(rank(1)));
    then(&mut node);
    let answers = node.did().into_iter().filter_map(|action| match action {
        Action::Answer(_, answer) => Some(answer),
        _ => None,
    });
    answers.collect()
}

#[test]
fn what_was_asked_in_an_earlier_view_may_have_been_done() {
    let unknown = [Answer::Refused(Refusal::Unknown)];
    let late = said_of_an_asked_allocation(|node| {
        // In the next view it has no lease yet.
        let next = std::sync::Arc::new(crate::dialogue::view(2, &[1, 3]));
        node.does(|memory, now, out| memory.view(&next, now, out));
        node.passes(PATIENCE);
    });
    assert_eq!(late, unknown);
    let alone = said_of_an_asked_allocation(|node| node.next_view(&[1]));
    assert_eq!(alone, unknown);
}

#[test]
fn where_no_home_says_it_all_are_asked_once_more() {
    let (mut node, ids) = looking();
    node.passes(PATIENCE / 2);
    ids.into_iter().for_each(|id| node.ended(id, Outcome::Late));
    let looks = node.posts();
    assert!(looks.len() == 2 && looks.iter().all(|(_, until)| *until == node.now + PATIENCE / 2), "{looks:?}");
    node.passes(PATIENCE / 4);
    assert!(node.did().iter().all(|action| !matches!(action, Action::Answer(..))));
    looks.into_iter().for_each(|(look, _)| node.ended(look.id, Outcome::Late));
    let why = "how much is free at the homes".into();
    let answer = Action::Answer(RequestId(1), Answer::Refused(Refusal::TimedOut { why }));
    assert!(node.did().contains(&answer), "{answer:?}");
}
