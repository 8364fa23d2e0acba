//! Which locks lose their words when a home has few left, and which locks get them (rule L4).
//!
//! A hand goes round over the locks like that of a clock. It passes over a lock that was used since it last came by,
//! and evicts one that was not. A writer shows in the token word, a reader by its release, which the home hears. So a
//! lock that is taken more often than the hand comes round keeps its words. However few locks there are, a round takes
//! its time: a member that has learnt where a lock's words are has to get there.
//!
//! The hand moves only when a name needs words while few are left, and only as far as that needs. A home with many
//! locks at rest and no new names evicts none.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use verbena_terms::{Incarnation, Rank, Time};

use super::{Directory, DirectoryAction, Lock, NOWHERE, Owner, Words};
use crate::action::ProtocolViolation;
use crate::name::Name;
use crate::wire::MemberMessage;
use crate::{Batch, Change, LockWord, Outcome, Removal, Scheme, Token};

/// The hand goes on while fewer than 1/`KEPT_FREE` of the words are free or about to be. Members take a while to
/// forget, and new names find words meanwhile. A larger share would evict locks that are taken again.
const KEPT_FREE: u32 = 8;
/// Members are asked to forget evicted words when fewer than 1/`FREED_AT` are free. That is half of `KEPT_FREE`, so one
/// message covers many words.
const FREED_AT: u32 = 16;
/// The hand comes round once in this time at most: some round trips of any network that locks are for.
const ROUND: Duration = Duration::from_millis(20);
/// Steps of the hand for each name that gets words while they are few. Two of them evict a lock that is not used: so it keeps up where one in four is not.
const STEPS_EACH: u32 = 8;
/// Steps of the hand, at most, before a name is refused that there are no words for.
const MOST_STEPS: u32 = 4096;
/// Words that the hand looks at at the same time.
const AT_ONCE: usize = 16;
/// Names that wait for words. One more is refused.
const MOST_WANTING: usize = 4096;
/// A lock that has used up `KEEPS_AT` quarters of the tokens left to all other locks keeps its words: its token would
/// become the floor of all.
const KEEPS_AT: u64 = 3;

/// What a home does about words that are few.
#[derive(Clone, Debug, Default)]
pub(super) struct Hand {
    at: u32,
    /// When it last began to go round, or to go at all.
    began: Time,
    /// How far it may go.
    steps: u32,
    /// What it looks at.
    looks: BTreeSet<u32>,
    /// Locks that are being evicted.
    evicting: BTreeSet<u32>,
    /// Members that wait for words, each with the lock's name.
    wanting: VecDeque<(Rank, Name)>,
    /// Members that asked for a lock during its eviction. They are apart from `wanting`, because the two wait for
    /// different events.
    asked_meanwhile: Vec<(Rank, Name)>,
    /// Locks that were evicted.
    evictions: u64,
    /// Words that were given to another lock.
    reused: u64,
}

/// How a home's words stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HomeWords {
    /// Locks that have words.
    pub used: usize,
    /// Words that any lock may get.
    pub free: usize,
    /// Words that were evicted and will be free.
    pub coming: usize,
    /// Locks that were evicted.
    pub evictions: u64,
    /// Words that were given to another lock after that.
    pub reused: u64,
}

impl Hand {
    /// It may go so far. A hand that has rested comes round no sooner than one that has not.
    fn may_go(&mut self, steps: u32, now: Time) {
        if self.steps == 0 {
            self.began = now;
        }
        self.steps = steps.min(MOST_STEPS);
    }
}

impl Directory {
    /// How its words stand.
    pub fn words(&self) -> HomeWords {
        let (free, coming) = (self.usable(), self.evicted.coming());
        HomeWords {
            used: (self.slots as usize).saturating_sub(free + coming),
            free,
            coming,
            evictions: self.hand.evictions,
            reused: self.hand.reused,
        }
    }

    /// A member wants to know where this lock's words are.
    pub(super) fn resolve(&mut self, from: Rank, name: Name, out: &mut Vec<DirectoryAction>) {
        match self.numbers.get(&name) {
            // A member that has met evicted words may ask before this home has the outcome of the eviction.
            Some(number) if self.hand.evicting.contains(number) => {
                match self.hand.asked_meanwhile.len() < MOST_WANTING {
                    true => self.hand.asked_meanwhile.push((from, name)),
                    false => self.found(from, name, NOWHERE, out),
                }
            }
            Some(&number) => self.found(from, name, number, out),
            None if self.hand.wanting.is_empty() && self.usable() > 0 => self.serve(from, name, out),
            None if self.scheme == Scheme::Srsl || self.hand.wanting.len() >= MOST_WANTING => {
                self.found(from, name, NOWHERE, out);
            }
            None => {
                self.hand.wanting.push_back((from, name));
                let steps = self.hand.steps.max(self.slots.saturating_mul(4));
                self.hand.may_go(steps, self.now);
            }
        }
    }

    /// A member remembers none of the words that it was asked to forget.
    pub(super) fn forgotten(&mut self, from: Incarnation, number: u64) -> Result<(), ProtocolViolation> {
        self.evicted.forgotten(from, number)
    }

    /// Does what is to be done about words that are few. A bounded part of it: what it posts and says brings the next.
    pub fn tend(&mut self, out: &mut Vec<DirectoryAction>) {
        if !self.is_open || self.scheme == Scheme::Srsl {
            return;
        }
        for (from, name) in std::mem::take(&mut self.hand.asked_meanwhile) {
            self.resolve(from, name, out);
        }
        while let Some((_, name)) = self.hand.wanting.front() {
            let has_words = self.numbers.contains_key(name);
            let can_be_told = has_words || self.usable() > 0;
            let Some((from, name)) = self.hand.wanting.pop_front_if(|_| can_be_told) else { break };
            match has_words {
                true => self.resolve(from, name, out),
                false => self.serve(from, name, out),
            }
        }
        if self.usable() < self.one_in(FREED_AT)
            && let Some((number, slots)) = self.evicted.ask()
        {
            out.push(DirectoryAction::TellAll(MemberMessage::Forget { number, slots }));
        }
        while let Some((slot, batch)) = self.evicted.free_next(AT_ONCE) {
            out.push(DirectoryAction::Access { slot, owner: Owner::Words, batch });
        }
        self.turn(out);
        let Hand { steps, looks, evicting, wanting, .. } = &mut self.hand;
        let has_ended = *steps == 0 && looks.is_empty() && evicting.is_empty();
        if has_ended && !wanting.is_empty() && self.evicted.coming() == 0 {
            for (from, name) in std::mem::take(wanting) {
                self.found(from, name, NOWHERE, out);
            }
        }
    }

    /// When the hand goes on, if a member waits for words.
    pub fn next_deadline(&self) -> Option<Time> {
        let Hand { steps, looks, evicting, wanting, began, .. } = &self.hand;
        // What is on its way brings it on by itself.
        let is_resting = looks.is_empty() && evicting.is_empty() && self.evicted.coming() == 0;
        (*steps > 0 && is_resting && !wanting.is_empty()).then(|| *began + ROUND)
    }

    /// What this posted itself is done.
    pub(super) fn tended(
        &mut self,
        number: u32,
        outcome: &Outcome,
        out: &mut Vec<DirectoryAction>,
    ) -> Result<(), ProtocolViolation> {
        if !self.evicted.is_freeing(number) {
            return self.looked(number, outcome, out);
        }
        match self.evicted.freed(number, outcome) {
            Some(batch) => out.push(DirectoryAction::Access { slot: number, owner: Owner::Words, batch }),
            None => self.locks[number as usize] = Words::Free,
        }
        Ok(())
    }

    /// The hand has looked at these words.
    fn looked(
        &mut self,
        number: u32,
        outcome: &Outcome,
        out: &mut Vec<DirectoryAction>,
    ) -> Result<(), ProtocolViolation> {
        self.hand.looks.remove(&number);
        let has_recovery_holder = self.recovery_holders.contains_key(&number);
        let Some(Words::Of(lock)) = self.locks.get_mut(number as usize) else { return Ok(()) };
        let given = outcome.token.to_bits() as u32;
        let is_used = std::mem::replace(&mut lock.seen, given) != given || lock.is_used;
        let is_wanted = self.wishes.iter().any(|wish| wish.is_for(number));
        // The hand looks for itself, and would take what this look found for old.
        lock.is_used |= is_used && is_wanted;
        let is_home_busy = lock.home.is_some();
        if is_home_busy || has_recovery_holder || outcome.before != LockWord::FREE || is_used && !is_wanted {
            self.tell_of_removal(number, Removal::InUse, out);
            return Ok(());
        }
        if self.would_use_up_tokens(given) {
            self.tell_of_removal(number, Removal::TokensUsedUp, out);
            return Ok(());
        }
        self.evict(number, out)
    }

    /// Whether eviction of a lock with this token count would use up too many of the view's tokens.
    fn would_use_up_tokens(&self, given: u32) -> bool {
        let floor = self.evicted.floor().to_bits() as u32;
        let (left, used) = (u64::from(u32::MAX - floor), u64::from(given.saturating_sub(floor)));
        used * 4 >= left * KEEPS_AT
    }

    /// Sees whether these words are used, and then what is to become of them.
    pub(super) fn look(&mut self, number: u32, out: &mut Vec<DirectoryAction>) {
        if self.hand.looks.insert(number) {
            let batch = Batch { change: Some(Change::Look), read: true, ..Batch::default() };
            out.push(DirectoryAction::Access { slot: number, owner: Owner::Words, batch });
        }
    }

    /// Evicts the lock from these words. Its home role must be at rest.
    pub(super) fn evict(&mut self, number: u32, out: &mut Vec<DirectoryAction>) -> Result<(), ProtocolViolation> {
        self.hand.evicting.insert(number);
        self.at_home(number, out, |home, actions| home.evict(actions))
    }

    /// Whether it is on its way that they are.
    pub(super) fn is_evicting(&self, number: u32) -> bool {
        self.hand.evicting.contains(&number)
    }

    /// A batch of a lock's home role is done. Whether it was that one.
    pub(super) fn was_evicting(&mut self, number: u32) -> bool {
        self.hand.evicting.remove(&number)
    }

    /// The eviction succeeded: these words belong to no lock.
    pub(super) fn evicted(&mut self, number: u32, token: Token) {
        if let Words::Of(lock) = std::mem::replace(&mut self.locks[number as usize], Words::Evicted) {
            self.numbers.remove(&lock.name);
        }
        self.evicted.evict(number, token);
        self.hand.evictions += 1;
    }

    fn serve(&mut self, from: Rank, name: Name, out: &mut Vec<DirectoryAction>) {
        let number = match self.evicted.take() {
            Some(number) => {
                self.hand.reused += 1;
                self.make(name.clone(), number, out);
                number
            }
            None => self.add(name.clone(), None, out),
        };
        if self.is_short() {
            self.hand.may_go(self.hand.steps.saturating_add(STEPS_EACH), self.now);
        }
        self.found(from, name, number, out);
    }

    fn found(&self, to: Rank, name: Name, number: u32, out: &mut Vec<DirectoryAction>) {
        let slot = Some(number).filter(|number| *number < self.slots);
        out.push(DirectoryAction::Tell(to, MemberMessage::Found { name, slot }));
    }

    /// The hand goes on, as far as it may and has to.
    fn turn(&mut self, out: &mut Vec<DirectoryAction>) {
        let end = self.slots.min(self.locks.len() as u32);
        while self.hand.steps > 0 && self.hand.looks.len() + self.hand.evicting.len() < AT_ONCE {
            let wanted = self.hand.wanting.len();
            if !self.is_short() && wanted <= self.evicted.coming() {
                self.hand.steps = 0;
                break;
            }
            if self.hand.at >= end {
                if self.now < self.hand.began + ROUND {
                    break;
                }
                (self.hand.at, self.hand.began) = (0, self.now);
            }
            let number = self.hand.at;
            if self.hand.looks.contains(&number) || self.hand.evicting.contains(&number) {
                // It is there still from the round before.
                break;
            }
            self.hand.steps -= 1;
            self.hand.at = number + 1;
            let has_recovery_holder = self.recovery_holders.contains_key(&number);
            let Some(Words::Of(Lock { home: None, is_used, .. })) = self.locks.get_mut(number as usize) else {
                continue;
            };
            if !std::mem::take(is_used) && !has_recovery_holder {
                self.look(number, out);
            }
        }
    }

    /// Words that any lock may get.
    fn usable(&self) -> usize {
        (self.slots as usize).saturating_sub(self.locks.len()) + self.evicted.free()
    }

    fn is_short(&self) -> bool {
        self.usable() + self.evicted.coming() < self.one_in(KEPT_FREE)
    }

    fn one_in(&self, parts: u32) -> usize {
        (self.slots / parts).max(1) as usize
    }
}
