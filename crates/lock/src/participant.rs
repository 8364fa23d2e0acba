//! A node's part in one lock. The node stands in the queue once, for all of its clients (rule L1).
//!
//! ```text
//!           request: the gate was found closed
//!   idle --------------------------------------> asking
//!    |                                              | open
//!    | request                                      v
//!    +-----------------------------------------> entering --------------+-----------------------> held
//!    ^                                              |   ^      queue    |                         |  |
//!    |   a try: the lock was taken                  |   |      empty    | others ahead:           |  |
//!    +----------------------------------------------+   | lost: again   | tell them               |  |
//!    |                                              |   +---------------+                         |  |
//!    |                                              |  lost too often:  v       grant             |  |
//!    |                                              +--- ask home --> waiting ------------------> |  |
//!    |                                                                                            |  |
//!    |                release of a reader: tell the home                                          |  |
//!    +--------------------------------------------------------------------------------------------+  |
//!    |                release of a writer, or downgrade: src/place.rs                                v
//!    +------------------------------------------------------------------------------------------ leaving
//! ```
//!
//! A participant returns to idle from asking the home, entering, and waiting for the home's help when it learns that the words
//! were evicted (rule L4). At that moment the words have no queue, and the participant has nothing to remember.
//!
//! A request that its clients gave up stays in the queue and is released when it is granted (rule L3). The queue is
//! never mended from the middle.

use serde::{Deserialize, Serialize};
use verbena_terms::Rank;

use crate::action::{ProtocolViolation, Refusal};
use crate::place::{Leave, Place};
use crate::{Action, Batch, Change, LockWord, Message, Mode, Outcome, Rules, Survivor, To, Token};

/// Swaps that a writer loses to others before it asks the home to put it into the queue (rule L3).
const LOST_SWAPS: u32 = 8;

/// What a node wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Request {
    /// Alone or with others.
    pub mode: Mode,
    /// Only if the lock is free at once: the request never waits.
    pub is_try: bool,
}

/// A node's part in one lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LockParticipant {
    pub(crate) lost_swaps: u32,
    pub(crate) stint: Stint,
    pub(crate) place: Place,
    is_closed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Stint {
    Idle,
    AskingHome(Request),
    Entering {
        request: Request,
        posted: Change,
        /// Swaps that others were faster than.
        lost: u32,
    },
    Waiting(Mode),
    Held(Mode, Token),
    /// A writer that releases or becomes a reader. Its place says which.
    Leaving,
}

impl LockParticipant {
    /// Of node `me`, which has nothing to do with the lock.
    pub fn new(me: Rank, rules: Rules) -> Self {
        LockParticipant { lost_swaps: LOST_SWAPS, stint: Stint::Idle, place: Place::new(me, rules), is_closed: false }
    }

    /// The mode and token it holds the lock with.
    pub fn held(&self) -> Option<(Mode, Token)> {
        match self.stint {
            Stint::Held(mode, token) => Some((mode, token)),
            _ => None,
        }
    }

    /// Whether a [`request`](Self::request) may be made.
    pub fn is_idle(&self) -> bool {
        self.stint == Stint::Idle
    }

    /// What is left of the participant when the view ends (rule L5). A try does not survive: the node makes it again. A
    /// writer that was becoming a reader survives as a reader, because other readers may already hold the lock with it.
    pub(crate) fn survives(&self) -> Option<Survivor> {
        match (self.stint, self.place.leaving) {
            (Stint::Held(mode, token), _) => Some(Survivor::Holds(mode, token)),
            (Stint::AskingHome(request) | Stint::Entering { request, .. }, _) => {
                (!request.is_try).then_some(Survivor::Waits(request.mode))
            }
            (Stint::Waiting(mode), _) => Some(Survivor::Waits(mode)),
            (Stint::Leaving, Some((Leave { token, becomes_reader: true }, _))) => Some(Survivor::reads_after(token)),
            (Stint::Idle | Stint::Leaving, _) => None,
        }
    }

    /// Another client of the node has it next, as a writer and with this token, and it stays the node's all the while. `None` if that
    /// cannot be: it is not held exclusively, or there is no further token.
    pub(crate) fn again(&mut self) -> Option<Token> {
        let Stint::Held(Mode::Exclusive, token) = &mut self.stint else { return None };
        *token = token.next(Mode::Exclusive)?;
        Some(*token)
    }

    /// The node wants the lock. One request at a time.
    ///
    /// # Errors
    /// When there is another.
    pub fn request(&mut self, request: Request, out: &mut Vec<Action>) -> Result<(), ProtocolViolation> {
        if self.stint != Stint::Idle {
            return Err(ProtocolViolation("a request beside another one of the same node"));
        }
        if self.is_closed && !request.is_try {
            self.stint = Stint::AskingHome(request);
            out.push(Action::Send(To::Home, Message::AskHome));
        } else {
            self.enter(request, self.first_change(request), 0, out);
        }
        Ok(())
    }

    /// The node needs it no longer.
    ///
    /// # Errors
    /// When it does not hold it.
    pub fn release(&mut self, out: &mut Vec<Action>) -> Result<(), ProtocolViolation> {
        let Stint::Held(mode, token) = self.stint else {
            return Err(ProtocolViolation("a release of what is not held"));
        };
        self.end(mode, token, out);
        Ok(())
    }

    /// Turns an exclusive hold into a shared one, with a token of its own. No other node can hold the lock exclusively
    /// in between.
    ///
    /// # Errors
    /// When it does not hold the lock exclusively.
    pub fn downgrade(&mut self, out: &mut Vec<Action>) -> Result<(), ProtocolViolation> {
        let Stint::Held(Mode::Exclusive, token) = self.stint else {
            return Err(ProtocolViolation("a downgrade of what is not held exclusively"));
        };
        self.leave(Leave { token, becomes_reader: true }, out);
        Ok(())
    }

    /// A batch is done.
    ///
    /// # Errors
    /// When none was posted.
    pub fn completed(&mut self, outcome: &Outcome, out: &mut Vec<Action>) -> Result<(), ProtocolViolation> {
        match self.stint {
            Stint::Entering { .. } if outcome.before.is_evicted() && self.place.rules.evicted_is_no_queue => {
                self.moved(out)
            }
            Stint::Entering { request, posted, lost } => {
                self.entered(request, posted, lost, outcome, out);
                Ok(())
            }
            Stint::Leaving => {
                let left = self.place.completed(outcome, out)?;
                self.has_left(left, out);
                Ok(())
            }
            _ => Err(ProtocolViolation("a batch that a participant did not post")),
        }
    }

    /// A message arrived.
    ///
    /// # Errors
    /// When it cannot be in any order of events.
    pub fn heard(&mut self, from: Rank, message: Message, out: &mut Vec<Action>) -> Result<(), ProtocolViolation> {
        match (message, self.stint) {
            (Message::Join, _) => self.place.join(from, self.stands(), out),
            (Message::Behind { .. }, _) if !self.stands() => {
                Err(ProtocolViolation("a writer stands behind one that is not in the queue"))
            }
            (Message::Behind { writer, readers }, _) => {
                let left = self.place.behind(writer, readers, out)?;
                self.has_left(left, out);
                Ok(())
            }
            (Message::Grant { last }, Stint::Waiting(mode)) => {
                self.granted(mode, last, out);
                Ok(())
            }
            (Message::Open, Stint::AskingHome(request)) => {
                self.is_closed = false;
                self.enter(request, self.first_change(request), 0, out);
                Ok(())
            }
            (Message::Moved, Stint::AskingHome(_) | Stint::Waiting(Mode::Exclusive)) => self.moved(out),
            (Message::Grant { .. } | Message::Open | Message::Moved, _) => {
                Err(ProtocolViolation("an answer to what was not asked"))
            }
            _ => Err(ProtocolViolation("what a participant is not told")),
        }
    }

    /// Whether it has nothing to remember, and no message to it can be in flight.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.is_idle() && self.place.owed == 0 && !self.is_closed
    }

    /// Forgets what it remembers of evicted words. Returns whether it has no part in them now.
    pub(crate) fn forget(&mut self) -> bool {
        if self.is_idle() {
            self.is_closed = false;
        }
        self.is_at_rest()
    }

    /// Whether others are known to wait behind it.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.place.behind.is_some() || !self.place.readers.is_empty()
    }

    /// Whether others may have found this node at the tail.
    pub(crate) fn stands(&self) -> bool {
        match self.stint {
            Stint::Idle | Stint::AskingHome(_) => false,
            Stint::Entering { request: Request { mode, .. }, .. } | Stint::Waiting(mode) | Stint::Held(mode, _) => {
                mode == Mode::Exclusive
            }
            Stint::Leaving => true,
        }
    }

    /// What is done first, when nothing is known of the word but perhaps that the gate was closed.
    fn first_change(&self, Request { mode, is_try }: Request) -> Change {
        match mode {
            // A try does not change the word while a writer waits for the home to put it into the queue.
            _ if is_try && self.is_closed => Change::Look,
            Mode::Exclusive => self.swap(mode, LockWord::FREE),
            Mode::Shared if is_try && self.place.rules.try_by_swap => Change::Look,
            Mode::Shared => Change::AddReader,
        }
    }

    fn swap(&self, mode: Mode, expected: LockWord) -> Change {
        let new = match mode {
            Mode::Exclusive => LockWord::writer(self.place.me),
            Mode::Shared => LockWord { count: expected.count + 1, ..expected },
        };
        Change::Swap { expected, new }
    }

    fn enter(&mut self, request: Request, posted: Change, lost: u32, out: &mut Vec<Action>) {
        out.push(Action::Access(Batch { change: Some(posted), read: true, ..Batch::default() }));
        self.stint = Stint::Entering { request, posted, lost };
    }

    fn entered(&mut self, request: Request, posted: Change, lost: u32, outcome: &Outcome, out: &mut Vec<Action>) {
        let Outcome { before, token, is_closed } = *outcome;
        let Request { mode, is_try } = request;
        let is_in = match posted {
            Change::AddReader => true,
            Change::Swap { expected, .. } => expected == before,
            Change::Look => false,
        };
        let is_free = match mode {
            Mode::Exclusive => before == LockWord::FREE,
            Mode::Shared => before.tail == Rank::NOBODY,
        };
        self.is_closed = is_closed;
        if is_in && is_free {
            self.granted(mode, token, out);
        } else if is_in && !is_try {
            self.stint = Stint::Waiting(mode);
            let (to, message) = match mode {
                Mode::Exclusive => behind(self.place.me, before, self.place.rules),
                Mode::Shared => (To::Participant(before.tail), Message::Join),
            };
            out.push(Action::Send(to, message));
        } else if is_try && (!is_free || self.is_closed || lost == self.lost_swaps) {
            self.stint = Stint::Idle;
            out.extend([Action::Refused(Refusal::Busy), Action::Left]);
        } else if lost == self.lost_swaps {
            self.stint = Stint::Waiting(mode);
            out.push(Action::Send(To::Home, Message::Enter));
        } else {
            // The first swap is a guess and a look is no swap. Both count towards `LOST_SWAPS` all the same.
            self.enter(request, self.swap(mode, before), lost + 1, out);
        }
    }

    fn granted(&mut self, mode: Mode, last: Token, out: &mut Vec<Action>) {
        match last.next(mode) {
            Some(token) => {
                self.stint = Stint::Held(mode, token);
                out.push(Action::Granted(mode, token));
            }
            None => {
                // The next writer is refused too, until a view begins whose tokens are larger.
                out.push(Action::Refused(Refusal::TokensUsedUp));
                self.end(mode, last, out);
            }
        }
    }

    /// The words were evicted. Eviction needs a free lock word, so no node stands behind this one and none is owed a
    /// grant.
    fn moved(&mut self, out: &mut Vec<Action>) -> Result<(), ProtocolViolation> {
        if !self.place.is_empty() {
            return Err(ProtocolViolation("a lock that was evicted while it was used"));
        }
        (self.stint, self.is_closed) = (Stint::Idle, false);
        out.push(Action::Moved);
        Ok(())
    }

    fn end(&mut self, mode: Mode, token: Token, out: &mut Vec<Action>) {
        match mode {
            Mode::Exclusive => self.leave(Leave { token, becomes_reader: false }, out),
            Mode::Shared => {
                self.stint = Stint::Idle;
                out.extend([Action::Send(To::Home, Message::Released), Action::Left]);
            }
        }
    }

    fn leave(&mut self, leave: Leave, out: &mut Vec<Action>) {
        self.stint = Stint::Leaving;
        let left = self.place.leave(leave, out);
        self.has_left(left, out);
    }

    fn has_left(&mut self, left: Option<Leave>, out: &mut Vec<Action>) {
        match left {
            Some(Leave { token, becomes_reader: true }) => self.granted(Mode::Shared, token, out),
            Some(_) => {
                self.stint = Stint::Idle;
                out.push(Action::Left);
            }
            None => {}
        }
    }
}

/// The message that a writer sends when it finds this word, and its receiver.
pub(crate) fn behind(writer: Rank, before: LockWord, rules: Rules) -> (To, Message) {
    let LockWord { tail, count } = before;
    match tail {
        Rank::NOBODY => (To::Home, Message::After { writer, readers: count }),
        tail => {
            let readers = if rules.after_readers_by_home { count } else { 0 };
            (To::Participant(tail), Message::Behind { writer, readers })
        }
    }
}
