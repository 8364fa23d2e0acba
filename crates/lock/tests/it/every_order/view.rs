//! One view of a lock: its words, who owns them, and what is on its way.

use verbena_lock::{Batch, Change, HomeRole, LockRole, LockWord, Message, Mode, Outcome, RecoveryHolder, To, Token};
use verbena_terms::{Rank, ViewNumber};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct View {
    pub word: LockWord,
    pub token: Token,
    pub is_closed: bool,
    pub home: HomeRole,
    /// Who stands for those that had the lock in the view before.
    pub recovery_holder: Option<RecoveryHolder>,
    /// What each participant, then the home, and last the recovery holder, has posted.
    pub posted: Vec<Option<Posted>>,
    /// In order, for it does not matter.
    pub wire: Vec<MemberMessage>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Posted {
    pub rest: Batch,
    pub outcome: Outcome,
    /// It changes nothing.
    pub is_reading: bool,
}

/// Who it is for, who sent it, and what it says.
pub(crate) type MemberMessage = (Address, Rank, Message);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Address {
    Home,
    Participant(Rank),
    /// The recovery holder, from who has the lock from the view before. (Who found it at the tail writes to its rank.)
    Server,
    /// Who has the lock from the view before, from the recovery holder.
    Survivor(Rank),
}

/// All grants so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Grants {
    /// The largest token.
    pub highest: Token,
    /// The largest of a writer.
    pub highest_writer: Token,
}

pub(crate) fn rank(at: usize) -> Rank {
    Rank(at as u32 + 1)
}

/// How many of them hold the lock in this mode.
pub(crate) fn holders<'a>(sides: impl Iterator<Item = &'a LockRole>, mode: Mode) -> usize {
    sides.filter(|role| role.held().is_some_and(|(held, _)| held == mode)).count()
}

/// At most one writer holds, and then alone.
pub(crate) fn writers_are_alone<'a>(sides: impl Iterator<Item = &'a LockRole> + Clone) -> bool {
    let (writers, readers) = (holders(sides.clone(), Mode::Exclusive), holders(sides, Mode::Shared));
    writers == 0 || (writers == 1 && readers == 0)
}

impl From<To> for Address {
    fn from(to: To) -> Self {
        match to {
            To::Home => Address::Home,
            To::Participant(rank) => Address::Participant(rank),
            To::Survivor(rank) => Address::Survivor(rank),
        }
    }
}

impl View {
    /// Nobody has anything to do with the lock yet.
    pub(crate) fn new(number: ViewNumber, home: HomeRole, participants: usize) -> Self {
        View {
            word: LockWord::FREE,
            token: Token::first_of(number),
            is_closed: false,
            home,
            recovery_holder: None,
            posted: vec![None; participants + 2],
            wire: vec![],
        }
    }

    /// Nobody is in the lock, and nobody has anything to remember.
    pub(crate) fn is_over(&self) -> bool {
        self.word == LockWord::FREE
            && self.home.is_at_rest()
            && self.recovery_holder.as_ref().is_none_or(RecoveryHolder::is_over)
    }

    /// Whether that is the only one of its poster.
    pub(crate) fn post(&mut self, who: usize, batch: Batch) -> bool {
        let is_reading = batch == Batch { read: true, ..Batch::default() };
        self.posted[who].replace(Posted { rest: batch, outcome: Outcome::default(), is_reading }).is_none()
    }

    pub(crate) fn send(&mut self, member_message: MemberMessage) {
        let at = self.wire.partition_point(|other| *other < member_message);
        self.wire.insert(at, member_message);
    }

    /// Letters that are on their way, of equal ones the first.
    pub(crate) fn messages(&self) -> impl Iterator<Item = usize> {
        let is_first = |at: &usize| *at == 0 || self.wire[*at] != self.wire[*at - 1];
        (0..self.wire.len()).filter(is_first)
    }

    /// Those that have posted something.
    pub(crate) fn posters(&self) -> impl Iterator<Item = usize> {
        (0..self.posted.len()).filter(|&who| self.posted[who].is_some())
    }

    /// The next step of the batch; `None` when all have been made.
    pub(crate) fn execute(&mut self, who: usize) -> Option<()> {
        let Posted { rest, outcome, .. } = self.posted[who].as_mut()?;
        if let Some(gate) = rest.gate.take() {
            self.is_closed = gate;
        } else if let Some(token) = rest.token.take() {
            self.token = token;
        } else if let Some(change) = rest.change.take() {
            outcome.before = self.word;
            match change {
                Change::Swap { expected, new } if self.word == expected => self.word = new,
                Change::Swap { .. } | Change::Look => {}
                Change::AddReader => self.word = LockWord::from_bits(self.word.to_bits() + LockWord::READER),
            }
        } else if std::mem::take(&mut rest.read) {
            (outcome.token, outcome.is_closed) = (self.token, self.is_closed);
        } else {
            return None;
        }
        Some(())
    }
}

impl Grants {
    /// Before the first of a view.
    pub(crate) fn none_of(view: ViewNumber) -> Self {
        let first = Token::first_of(view);
        Grants { highest: first, highest_writer: first }
    }

    /// There is one more. Whether its token is as large as it has to be.
    pub(crate) fn grow(&mut self, to: &LockRole, mode: Mode, token: Token) -> bool {
        let grows = match mode {
            Mode::Exclusive => token > self.highest,
            // Where readers do not share, a writer that becomes one goes on as it was.
            Mode::Shared if matches!(to, LockRole::Dqnl(..)) => token >= self.highest,
            Mode::Shared => token >= self.highest && token > self.highest_writer,
        };
        self.highest = self.highest.max(token);
        if mode == Mode::Exclusive {
            self.highest_writer = token;
        }
        grows
    }
}
