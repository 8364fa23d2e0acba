use std::time::Duration;

use verbena_terms::{Incarnation, Rank, Time, ViewNumber};

use super::*;
use crate::{LockWord, Removal};

const ME: Incarnation = Incarnation::new(1, 1);

fn directory(slots: u32) -> Directory {
    let mut directory = Directory::new(ME, ViewNumber(1), [ME], (Scheme::Ncosed, Rules::ALL, slots));
    let mut out = vec![];
    directory.heard(ME, MemberMessage::Reported, &mut out).unwrap();
    directory.in_effect(&mut out).unwrap();
    assert_eq!(out, []);
    directory
}

/// Delivers a message, completes each batch with these words, and returns the messages sent.
fn heard(directory: &mut Directory, member_message: MemberMessage, [lock, token]: [u64; 2]) -> Vec<MemberMessage> {
    let (mut out, mut told) = (vec![], vec![]);
    directory.heard(ME, member_message, &mut out).unwrap();
    while !out.is_empty() {
        match out.remove(0) {
            DirectoryAction::Access { slot, owner, .. } => {
                let (before, token) = (LockWord::from_bits(lock), Token::from_bits(token));
                let outcome = Outcome { before, token, ..Outcome::default() };
                directory.completed(slot, owner, &outcome, &mut out).unwrap();
            }
            DirectoryAction::Tell(Rank(1), MemberMessage::Removed { number: 7, removal }) => {
                told.push(MemberMessage::Removed { number: 7, removal });
            }
            DirectoryAction::Store { .. } | DirectoryAction::TellAll(_) | DirectoryAction::Tell(..) => {}
        }
    }
    told
}

fn name(name: &str) -> Name {
    Name::new(name.as_bytes()).unwrap()
}

/// A directory with `slots` words, of which "a" has some and is to be removed; and the actions for that.
fn removing_a(slots: u32) -> (Directory, Vec<DirectoryAction>) {
    let (mut directory, mut out) = (directory(slots), vec![]);
    heard(&mut directory, MemberMessage::Resolve(name("a")), [0, 0]);
    directory.heard(ME, MemberMessage::Remove { number: 7, name: name("a") }, &mut out).unwrap();
    (directory, out)
}

/// Its token would be the floor of all locks of this home, and none of them had another one until the next view.
#[test]
fn a_lock_that_has_used_up_most_tokens_is_not_removed() {
    let first = Token::first_of(ViewNumber(1)).to_bits();
    let removed = |removal| vec![MemberMessage::Removed { number: 7, removal }];
    let mut directory = directory(4);
    let mut remove = |lock, given: u64| {
        heard(&mut directory, MemberMessage::Resolve(name("a")), [0, 0]);
        let messages =
            heard(&mut directory, MemberMessage::Remove { number: 7, name: name("a") }, [lock, first + given]);
        (messages, directory.evicted.floor().to_bits() - first)
    };
    let held = LockWord::writer(Rank(1)).to_bits();
    assert_eq!(remove(0, 0xFFFF_FFFE), (removed(Removal::TokensUsedUp), 0));
    assert_eq!(remove(0, 3 << 30), (removed(Removal::TokensUsedUp), 0));
    assert_eq!(remove(held, 3), (removed(Removal::InUse), 0));
    assert_eq!(remove(0, 2 << 30), (removed(Removal::Removed), 2 << 30));
    // One lock may use half of what is left behind the floor, so the tokens never end.
    assert_eq!(remove(0, (2 << 30) + 6), (removed(Removal::Removed), (2 << 30) + 6));
    assert_eq!(remove(0, 0xF000_0000), (removed(Removal::TokensUsedUp), (2 << 30) + 6));
    assert_eq!(remove(0, 0xC800_0000), (removed(Removal::Removed), 0xC800_0000));
}

/// The one lock that has words is to be evicted for another, and is taken in that moment.
#[test]
fn who_asks_during_an_eviction_that_fails_is_told_where_the_words_are() {
    let (mut directory, mut out) = removing_a(1);
    let mut messages = vec![MemberMessage::Resolve(name("b")), MemberMessage::Resolve(name("a"))];
    let (mut found, mut now) = (vec![], Time::ZERO);
    while found.len() < 2 && now < Time::ZERO + Duration::from_secs(1) {
        now = now + Duration::from_millis(1);
        directory.at(now);
        directory.tend(&mut out);
        for action in std::mem::take(&mut out) {
            match action {
                DirectoryAction::Access { slot, owner, .. } => {
                    let is_taken = owner == Owner::Home;
                    if is_taken {
                        messages
                            .drain(..)
                            .for_each(|member_message| directory.heard(ME, member_message, &mut out).unwrap());
                    }
                    let taken = LockWord::writer(Rank(1));
                    let before = if messages.is_empty() { taken } else { LockWord::FREE };
                    directory.completed(slot, owner, &Outcome { before, ..Outcome::default() }, &mut out).unwrap();
                }
                DirectoryAction::Tell(_, MemberMessage::Found { name, slot }) => found.push((name, slot)),
                _ => {}
            }
        }
    }
    assert_eq!(found, [(name("a"), Some(0)), (name("b"), None)]);
}

/// The words of one lock are being taken, and there are others.
#[test]
fn who_asks_for_other_locks_during_an_eviction_does_not_wait_for_it() {
    let (mut directory, mut out) = removing_a(2);
    while !directory.is_evicting(0) {
        let action = out.remove(0);
        let DirectoryAction::Access { slot, owner, .. } = action else { continue };
        directory.completed(slot, owner, &Outcome { before: LockWord::FREE, ..Outcome::default() }, &mut out).unwrap();
    }
    let found = |out: &[DirectoryAction]| {
        let told = out.iter().filter_map(|action| match action {
            DirectoryAction::Tell(_, MemberMessage::Found { name, slot }) => Some((name.clone(), *slot)),
            _ => None,
        });
        told.collect::<Vec<_>>()
    };
    for asked in ["a", "b"] {
        directory.heard(ME, MemberMessage::Resolve(name(asked)), &mut out).unwrap();
        directory.tend(&mut out);
    }
    assert_eq!(found(&out), [(name("b"), Some(1))]);
    // Nor does the hand look for words, for there are some.
    let looks = |action: &DirectoryAction| matches!(action, DirectoryAction::Access { slot: 1, owner, .. } if *owner != Owner::Words);
    assert!(!out.iter().any(looks), "{out:?}");
}
