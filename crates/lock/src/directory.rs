//! What a home knows of its locks in one view: which of its words are whose, and what no participant can know alone.
//!
//! The directory opens when the view is in effect and every member has reported its locks of the view before (rules C3,
//! L5). Until then it tells no member where words are, so no lock is granted.

mod evicting;
mod removing;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use verbena_terms::{Incarnation, Rank, Time, ViewNumber};

use crate::action::ProtocolViolation;
use crate::evicted::Evicted;
use crate::name::Name;
use crate::recovery_holder::in_order;
use crate::wire::{MemberMessage, Slot};
use crate::{
    Action, Batch, HomeRole, LOCK_BYTES, LOCK_WORD_AT, Message, Outcome, RecoveryHolder, Refusal, Request, Rules,
    Scheme, Survivor, TOKEN_WORD_AT, To, Token,
};
use evicting::Hand;
pub use evicting::HomeWords;
use removing::Wish;

/// No slot has this number: there are no words.
const NOWHERE: u32 = u32::MAX;

/// A home's locks in one view.
#[derive(Clone, Debug)]
pub(crate) struct Directory {
    me: Incarnation,
    first: Token,
    scheme: Scheme,
    rules: Rules,
    /// How many locks have words.
    slots: u32,
    /// Members that have not finished their report.
    awaited: BTreeSet<Incarnation>,
    /// What survives, of those who have.
    reported: BTreeMap<Name, Vec<(Rank, Survivor, Rank)>>,
    /// What was asked before it opened.
    early: Vec<(Incarnation, MemberMessage)>,
    is_open: bool,
    numbers: HashMap<Name, u32>,
    /// The state of each slot that was ever used. Behind the last slot: survivors' locks, which have no words.
    locks: Vec<Words>,
    /// The stand-ins for survivors, by slot.
    recovery_holders: HashMap<u32, RecoveryHolder>,
    /// What servers were asked whose recovery holder is not over ([`Scheme::Srsl`]): where there are words the recovery holder stands in them instead.
    behind_recovery: HashMap<u32, Vec<(Rank, Message)>>,
    evicted: Evicted,
    hand: Hand,
    wishes: Vec<Wish>,
    now: Time,
}

/// The state of one slot's words.
#[derive(Clone, Debug)]
enum Words {
    Of(Lock),
    /// The words belong to no lock, but members may remember them as a lock's.
    Evicted,
    /// The words belong to no lock, and no member remembers them.
    Free,
}

#[derive(Clone, Debug)]
struct Lock {
    name: Name,
    /// There while it has something to remember.
    home: Option<Box<HomeRole>>,
    /// The count of the token that stood there when the hand last looked.
    seen: u32,
    /// Something was said about it since the hand last came by.
    is_used: bool,
}

/// The part of the directory that posted a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Owner {
    Home,
    RecoveryHolder,
    /// The eviction of unused locks, which runs when few words are free.
    Words,
}

/// What a directory wants done, in this order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum DirectoryAction {
    /// Store this word in the node's own region. No other node knows of that slot yet.
    Store { at: u64, word: u64 },
    /// Post this at the words of this slot.
    Access { slot: u32, owner: Owner, batch: Batch },
    /// Say this.
    Tell(Rank, MemberMessage),
    /// Say it to all members.
    TellAll(MemberMessage),
}

impl Directory {
    /// Of this view, whose members are these: `me` is one of them.
    pub fn new(
        me: Incarnation,
        view: ViewNumber,
        members: impl IntoIterator<Item = Incarnation>,
        (scheme, rules, slots): (Scheme, Rules, u32),
    ) -> Self {
        let members: Vec<Incarnation> = members.into_iter().collect();
        let first = Token::first_of(view);
        Directory {
            me,
            first,
            scheme,
            rules,
            slots,
            awaited: members.iter().copied().collect(),
            reported: BTreeMap::new(),
            early: vec![],
            is_open: false,
            numbers: HashMap::new(),
            locks: vec![],
            recovery_holders: HashMap::new(),
            behind_recovery: HashMap::new(),
            evicted: Evicted::new(members, first, rules),
            hand: Hand::default(),
            wishes: vec![],
            now: Time::ZERO,
        }
    }

    /// The members that the directory waits for before it opens.
    pub fn awaited(&self) -> impl Iterator<Item = Incarnation> {
        self.awaited.iter().copied()
    }

    /// It is this time, for all that is said from now on.
    pub fn at(&mut self, now: Time) {
        self.now = now;
    }

    /// The view is in effect. The directory opens if every member has reported.
    pub fn in_effect(&mut self, out: &mut Vec<DirectoryAction>) -> Result<(), ProtocolViolation> {
        if self.is_open || !self.awaited.is_empty() {
            return Ok(());
        }
        self.is_open = true;
        let mut said = Ok(());
        for (name, survivors) in std::mem::take(&mut self.reported) {
            said = said.and(self.inherit(name, survivors, out));
        }
        for (from, member_message) in std::mem::take(&mut self.early) {
            said = said.and(self.heard(from, member_message, out));
        }
        said
    }

    /// A member said this.
    ///
    /// # Errors
    /// When it cannot be in any order of events.
    pub fn heard(
        &mut self,
        from: Incarnation,
        member_message: MemberMessage,
        out: &mut Vec<DirectoryAction>,
    ) -> Result<(), ProtocolViolation> {
        let said = self.hear(from, member_message, out);
        self.tend(out);
        said
    }

    fn hear(
        &mut self,
        from: Incarnation,
        member_message: MemberMessage,
        out: &mut Vec<DirectoryAction>,
    ) -> Result<(), ProtocolViolation> {
        match member_message {
            MemberMessage::Survives { name, survivor, ahead } if self.awaited.contains(&from) => {
                self.reported.entry(name).or_default().push((from.rank, survivor, ahead));
                Ok(())
            }
            MemberMessage::Reported => {
                self.awaited.remove(&from);
                Ok(())
            }
            MemberMessage::Resolve(_) | MemberMessage::OfSurvivor { .. } | MemberMessage::Remove { .. }
                if !self.is_open =>
            {
                self.early.push((from, member_message));
                Ok(())
            }
            MemberMessage::Resolve(name) => {
                self.resolve(from.rank, name, out);
                Ok(())
            }
            MemberMessage::Forgotten { number } => self.forgotten(from, number),
            MemberMessage::Remove { number, name } => self.remove(from.rank, number, &name, out),
            MemberMessage::OfSurvivor { name, message, .. } => {
                let number = *self.numbers.get(&name).ok_or(ProtocolViolation("a survivor of an unknown lock"))?;
                self.recovery_holder(number, out, |recovery_holder, actions| {
                    recovery_holder.heard_of_survivor(from.rank, message, actions)
                })
            }
            MemberMessage::About { slot, to: To::Home, message } => self.home(slot.number, from.rank, message, out),
            MemberMessage::About { slot, to: To::Participant(RecoveryHolder::RANK), message } => {
                self.recovery_holder(slot.number, out, |recovery_holder, actions| {
                    recovery_holder.heard(from.rank, message, actions)
                })
            }
            _ => Err(ProtocolViolation("what a lock's home is not told")),
        }
    }

    /// A batch is done.
    ///
    /// # Errors
    /// When none was posted.
    pub fn completed(
        &mut self,
        slot: u32,
        owner: Owner,
        outcome: &Outcome,
        out: &mut Vec<DirectoryAction>,
    ) -> Result<(), ProtocolViolation> {
        let said = match owner {
            Owner::RecoveryHolder => {
                self.recovery_holder(slot, out, |recovery_holder, actions| recovery_holder.completed(outcome, actions))
            }
            Owner::Home => {
                let was_evicting = self.was_evicting(slot);
                let said = self.at_home(slot, out, |home, actions| home.completed(outcome, actions));
                if was_evicting {
                    self.has_been_removed(slot, out);
                }
                said
            }
            Owner::Words => self.tended(slot, outcome, out),
        };
        self.tend(out);
        said
    }

    /// Gives a lock words that were never used in this view. They are new memory, so only values other than 0 are
    /// stored.
    fn add(&mut self, name: Name, recovery_holder: Option<RecoveryHolder>, out: &mut Vec<DirectoryAction>) -> u32 {
        let (number, last) = (self.locks.len() as u32, self.evicted.floor());
        if number < self.slots {
            let at = u64::from(number) * LOCK_BYTES;
            out.push(DirectoryAction::Store { at: at + TOKEN_WORD_AT, word: last.to_bits() });
            if recovery_holder.is_some() {
                out.push(DirectoryAction::Store { at: at + LOCK_WORD_AT, word: RecoveryHolder::WORD.to_bits() });
            }
        }
        self.recovery_holders.extend(recovery_holder.map(|recovery_holder| (number, recovery_holder)));
        self.numbers.insert(name.clone(), number);
        self.locks.push(Words::Of(Lock { name, home: None, seen: last.to_bits() as u32, is_used: true }));
        number
    }

    /// Gives a lock words that belonged to another lock and are free.
    fn make(&mut self, name: Name, number: u32, out: &mut Vec<DirectoryAction>) {
        let (at, last) = (u64::from(number) * LOCK_BYTES, self.evicted.floor());
        out.push(DirectoryAction::Store { at: at + TOKEN_WORD_AT, word: last.to_bits() });
        self.numbers.insert(name.clone(), number);
        self.locks[number as usize] = Words::Of(Lock { name, home: None, seen: last.to_bits() as u32, is_used: true });
    }

    /// Where the lock gets no words for lack of room, the home still serves the survivors, but no further node joins.
    fn inherit(
        &mut self,
        name: Name,
        survivors: Vec<(Rank, Survivor, Rank)>,
        out: &mut Vec<DirectoryAction>,
    ) -> Result<(), ProtocolViolation> {
        let mut actions = vec![];
        match RecoveryHolder::new(self.first, in_order(survivors), self.rules, &mut actions) {
            Ok(recovery_holder) => {
                let number = self.add(name, Some(recovery_holder), out);
                self.act(number, Owner::RecoveryHolder, actions, out)
            }
            Err(violation) => {
                // Two survivors say that they hold it. No other node gets it in this view.
                self.numbers.insert(name, NOWHERE);
                Err(violation)
            }
        }
    }

    fn home(
        &mut self,
        number: u32,
        from: Rank,
        message: Message,
        out: &mut Vec<DirectoryAction>,
    ) -> Result<(), ProtocolViolation> {
        match self.locks.get_mut(number as usize) {
            Some(Words::Evicted) if matches!(message, Message::AskHome | Message::Enter) => {
                self.act(number, Owner::Home, vec![Action::Send(To::Participant(from), Message::Moved)], out)
            }
            _ if self.scheme == Scheme::Srsl && self.recovery_holders.contains_key(&number) => match message {
                Message::Ask(Request { is_try: true, .. }) => {
                    let busy = Action::Send(To::Participant(from), Message::Refuse(Refusal::Busy));
                    self.act(number, Owner::Home, vec![busy], out)
                }
                message => {
                    self.behind_recovery.entry(number).or_default().push((from, message));
                    Ok(())
                }
            },
            _ => self.at_home(number, out, |home, actions| home.heard(from, message, actions)),
        }
    }

    /// A server goes on where its recovery holder has ended, whose tokens were of this lock and view too.
    fn serve_on(&mut self, number: u32, last: Token, out: &mut Vec<DirectoryAction>) -> Result<(), ProtocolViolation> {
        let Some(Words::Of(lock)) = self.locks.get_mut(number as usize) else { return Ok(()) };
        lock.home = Some(Box::new(HomeRole::new(self.scheme, last, self.rules)));
        let mut said = Ok(());
        for (from, message) in self.behind_recovery.remove(&number).unwrap_or_default() {
            said = said.and(self.home(number, from, message, out));
        }
        said
    }

    fn at_home(
        &mut self,
        number: u32,
        out: &mut Vec<DirectoryAction>,
        event: impl FnOnce(&mut HomeRole, &mut Vec<Action>) -> Result<(), ProtocolViolation>,
    ) -> Result<(), ProtocolViolation> {
        let new = || Box::new(HomeRole::new(self.scheme, self.first, self.rules));
        let Some(Words::Of(lock)) = self.locks.get_mut(number as usize) else {
            return Err(ProtocolViolation("a lock that has no words"));
        };
        lock.is_used = true;
        let mut actions = vec![];
        let home = lock.home.get_or_insert_with(new);
        let said = event(home, &mut actions);
        if home.is_at_rest() && self.scheme != Scheme::Srsl {
            lock.home = None;
        }
        said.and(self.act(number, Owner::Home, actions, out))
    }

    fn recovery_holder(
        &mut self,
        number: u32,
        out: &mut Vec<DirectoryAction>,
        event: impl FnOnce(&mut RecoveryHolder, &mut Vec<Action>) -> Result<(), ProtocolViolation>,
    ) -> Result<(), ProtocolViolation> {
        let recovery_holder =
            self.recovery_holders.get_mut(&number).ok_or(ProtocolViolation("a recovery holder of an unknown lock"))?;
        let mut actions = vec![];
        let said = event(recovery_holder, &mut actions);
        // A lock without words has no place to leave.
        let (last, is_over) =
            (recovery_holder.server.last(), number >= self.slots && recovery_holder.server.is_at_rest());
        let has_left = recovery_holder.is_over();
        if is_over || has_left {
            self.recovery_holders.remove(&number);
        }
        let mut said = said.and(self.act(number, Owner::RecoveryHolder, actions, out));
        if has_left && self.scheme == Scheme::Srsl {
            said = said.and(self.serve_on(number, last, out));
        }
        if is_over && let Words::Of(lock) = std::mem::replace(&mut self.locks[number as usize], Words::Free) {
            self.numbers.remove(&lock.name);
            self.evicted.ended_at(last);
        }
        said
    }

    fn act(
        &mut self,
        number: u32,
        owner: Owner,
        actions: Vec<Action>,
        out: &mut Vec<DirectoryAction>,
    ) -> Result<(), ProtocolViolation> {
        let mut said = Ok(());
        let slot = Slot { home: self.me, number };
        for action in actions {
            match action {
                Action::Access(batch) if number < self.slots => {
                    out.push(DirectoryAction::Access { slot: number, owner, batch });
                }
                Action::Send(to @ To::Participant(rank), message) => {
                    out.push(DirectoryAction::Tell(rank, MemberMessage::About { slot, to, message }));
                }
                Action::Send(to @ To::Survivor(rank), message) => {
                    if let Words::Of(Lock { name, .. }) = &self.locks[number as usize] {
                        let name = name.clone();
                        out.push(DirectoryAction::Tell(rank, MemberMessage::OfSurvivor { name, to, message }));
                    }
                }
                // From the recovery holder, which leaves readers behind.
                Action::Send(To::Home, message) => {
                    said = said.and(self.home(number, RecoveryHolder::RANK, message, out))
                }
                Action::Evicted(token) => self.evicted(number, token),
                // Without words there is no place to leave; home and recovery holder hold nothing.
                Action::Access(_) | Action::Granted(..) | Action::Refused(_) | Action::Left | Action::Moved => {}
            }
        }
        said
    }
}
