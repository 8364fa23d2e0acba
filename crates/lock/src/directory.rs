//! What a home knows of its locks in one view: which of its words are whose, and what no contender can know alone.
//!
//! It opens when the view is in effect and every member has said what it has of locks from the view before (rules C3, L5). Until then nobody learns
//! where words are, so nobody is granted anything.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use verbena_terms::{Incarnation, Rank, ViewNumber};

use crate::action::Strange;
use crate::heir::in_order;
use crate::name::Name;
use crate::wire::{Letter, Slot};
use crate::{
    Action, Batch, Heir, HomeSide, LOCK_BYTES, LOCK_WORD_AT, Message, Outcome, Rules, Scheme, Survivor, TOKEN_WORD_AT,
    To, Token,
};

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
    /// Who has not said what it has.
    awaited: BTreeSet<Incarnation>,
    /// What survives, of those who have.
    reported: BTreeMap<Name, Vec<(Rank, Survivor, Rank)>>,
    /// What was asked before it opened.
    early: Vec<(Incarnation, Letter)>,
    is_open: bool,
    numbers: HashMap<Name, u32>,
    locks: Vec<Lock>,
}

#[derive(Clone, Debug)]
struct Lock {
    name: Name,
    /// There while it has something to remember.
    home: Option<Box<HomeSide>>,
    heir: Option<Box<Heir>>,
}

/// Whose batch it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Owner {
    Home,
    Heir,
}

/// What a directory wants done, in this order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum DirectoryAction {
    /// Store this word in its region: nobody knows of that slot yet.
    Store { at: u64, word: u64 },
    /// Post this at the words of this slot.
    Access { slot: u32, owner: Owner, batch: Batch },
    /// Say this.
    Tell(Rank, Letter),
}

impl Directory {
    /// Of this view, whose members are these: `me` is one of them.
    pub fn new(
        me: Incarnation,
        view: ViewNumber,
        members: impl IntoIterator<Item = Incarnation>,
        (scheme, rules, slots): (Scheme, Rules, u32),
    ) -> Self {
        Directory {
            me,
            first: Token::first_of(view),
            scheme,
            rules,
            slots,
            awaited: members.into_iter().collect(),
            reported: BTreeMap::new(),
            early: vec![],
            is_open: false,
            numbers: HashMap::new(),
            locks: vec![],
        }
    }

    /// Who keeps it from opening.
    pub fn awaited(&self) -> impl Iterator<Item = Incarnation> {
        self.awaited.iter().copied()
    }

    /// Locks that have words.
    pub fn locks(&self) -> usize {
        self.locks.len()
    }

    /// The view is in effect. Opens if everybody has reported.
    pub fn in_effect(&mut self, out: &mut Vec<DirectoryAction>) -> Result<(), Strange> {
        if self.is_open || !self.awaited.is_empty() {
            return Ok(());
        }
        self.is_open = true;
        let mut said = Ok(());
        for (name, survivors) in std::mem::take(&mut self.reported) {
            said = said.and(self.inherit(name, survivors, out));
        }
        for (from, letter) in std::mem::take(&mut self.early) {
            said = said.and(self.heard(from, letter, out));
        }
        said
    }

    /// A member said this.
    ///
    /// # Errors
    /// When it cannot be in any order of events.
    pub fn heard(&mut self, from: Incarnation, letter: Letter, out: &mut Vec<DirectoryAction>) -> Result<(), Strange> {
        match letter {
            Letter::Survives { name, survivor, ahead } if self.awaited.contains(&from) => {
                self.reported.entry(name).or_default().push((from.rank, survivor, ahead));
                Ok(())
            }
            Letter::Reported => {
                self.awaited.remove(&from);
                Ok(())
            }
            Letter::Resolve(_) | Letter::OfSurvivor { .. } if !self.is_open => {
                self.early.push((from, letter));
                Ok(())
            }
            Letter::Resolve(name) => {
                let slot = self.number(&name, out);
                out.push(DirectoryAction::Tell(from.rank, Letter::Found { name, slot }));
                Ok(())
            }
            Letter::OfSurvivor { name, message, .. } => {
                let number = *self.numbers.get(&name).ok_or(Strange("a survivor of a lock that nobody had"))?;
                self.heir(number, out, |heir, actions| heir.heard_of_survivor(from.rank, message, actions))
            }
            Letter::About { slot, to: To::Home, message } => self.home(slot.number, from.rank, message, out),
            Letter::About { slot, to: To::Contender(Heir::RANK), message } => {
                self.heir(slot.number, out, |heir, actions| heir.heard(from.rank, message, actions))
            }
            _ => Err(Strange("what a lock's home is not told")),
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
    ) -> Result<(), Strange> {
        match owner {
            Owner::Heir => self.heir(slot, out, |heir, actions| heir.completed(outcome, actions)),
            Owner::Home => self.at_home(slot, out, |home, actions| home.completed(outcome, actions)),
        }
    }

    /// The lock's words are those of this slot; they are made now if it has none. `None` if there are no more.
    fn number(&mut self, name: &Name, out: &mut Vec<DirectoryAction>) -> Option<u32> {
        let number = match self.numbers.get(name) {
            Some(&number) => number,
            None if self.locks.len() >= self.slots as usize => return None,
            None => self.add(name.clone(), None, out),
        };
        (number < self.slots).then_some(number)
    }

    fn add(&mut self, name: Name, heir: Option<Box<Heir>>, out: &mut Vec<DirectoryAction>) -> u32 {
        let number = self.locks.len() as u32;
        if number < self.slots {
            let at = u64::from(number) * LOCK_BYTES;
            out.push(DirectoryAction::Store { at: at + TOKEN_WORD_AT, word: self.first.to_bits() });
            if heir.is_some() {
                out.push(DirectoryAction::Store { at: at + LOCK_WORD_AT, word: Heir::WORD.to_bits() });
            }
        }
        self.numbers.insert(name.clone(), number);
        self.locks.push(Lock { name, home: None, heir });
        number
    }

    /// Where there is no room for its words, survivors are served all the same, and nobody else comes.
    fn inherit(
        &mut self,
        name: Name,
        survivors: Vec<(Rank, Survivor, Rank)>,
        out: &mut Vec<DirectoryAction>,
    ) -> Result<(), Strange> {
        let mut actions = vec![];
        match Heir::new(self.first, in_order(survivors), self.rules, &mut actions) {
            Ok(heir) => {
                let number = self.add(name, Some(Box::new(heir)), out);
                self.act(number, Owner::Heir, actions, out)
            }
            Err(strange) => {
                // Two say that they hold it. Nobody else gets it in this view.
                self.numbers.insert(name, NOWHERE);
                Err(strange)
            }
        }
    }

    fn home(
        &mut self,
        number: u32,
        from: Rank,
        message: Message,
        out: &mut Vec<DirectoryAction>,
    ) -> Result<(), Strange> {
        self.at_home(number, out, |home, actions| home.heard(from, message, actions))
    }

    fn at_home(
        &mut self,
        number: u32,
        out: &mut Vec<DirectoryAction>,
        event: impl FnOnce(&mut HomeSide, &mut Vec<Action>) -> Result<(), Strange>,
    ) -> Result<(), Strange> {
        let new = || Box::new(HomeSide::new(self.scheme, self.first, self.rules));
        let lock = self.locks.get_mut(number as usize).ok_or(Strange("a lock that has no words"))?;
        let mut actions = vec![];
        let home = lock.home.get_or_insert_with(new);
        let said = event(home, &mut actions);
        if home.is_at_rest() && self.scheme != Scheme::Srsl {
            lock.home = None;
        }
        said.and(self.act(number, Owner::Home, actions, out))
    }

    fn heir(
        &mut self,
        number: u32,
        out: &mut Vec<DirectoryAction>,
        event: impl FnOnce(&mut Heir, &mut Vec<Action>) -> Result<(), Strange>,
    ) -> Result<(), Strange> {
        let lock = self.locks.get_mut(number as usize).ok_or(Strange("a lock that has no words"))?;
        let heir = lock.heir.as_mut().ok_or(Strange("an heir of a lock that nobody had"))?;
        let mut actions = vec![];
        let said = event(heir, &mut actions);
        if heir.is_over() {
            lock.heir = None;
        }
        said.and(self.act(number, Owner::Heir, actions, out))
    }

    fn act(
        &mut self,
        number: u32,
        owner: Owner,
        actions: Vec<Action>,
        out: &mut Vec<DirectoryAction>,
    ) -> Result<(), Strange> {
        let mut said = Ok(());
        let slot = Slot { home: self.me, number };
        for action in actions {
            match action {
                Action::Access(batch) if number < self.slots => {
                    out.push(DirectoryAction::Access { slot: number, owner, batch });
                }
                Action::Send(to @ To::Contender(rank), message) => {
                    out.push(DirectoryAction::Tell(rank, Letter::About { slot, to, message }));
                }
                Action::Send(to @ To::Survivor(rank), message) => {
                    let name = self.locks[number as usize].name.clone();
                    out.push(DirectoryAction::Tell(rank, Letter::OfSurvivor { name, to, message }));
                }
                // From the heir, which leaves readers behind.
                Action::Send(To::Home, message) => said = said.and(self.home(number, Heir::RANK, message, out)),
                // Without words there is nobody to leave them to; and neither holds anything.
                Action::Access(_) | Action::Granted(..) | Action::Refused(_) | Action::Left => {}
            }
        }
        said
    }
}
