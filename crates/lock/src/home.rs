//! The part of the node that owns the words of a lock: what no participant can know alone.
//!
//! * *The count* (rule L3). Readers that found no writer are counted in the word and release here. What has been released is taken off the word by a swap of
//!   exactly what stands there; so whatever number a writer finds, it is the readers that have released and are not taken off, and those that
//!   have yet to release. While such a swap is in flight the home cannot know which of both numbers a writer found, and it answers no writer.
//! * *Writers after readers* (rule L2). They are granted when as many have released as they found; the last writer's token is in the token word by then.
//! * *Eviction* (rule L4). A swap of the free word evicts an unused lock from its words, while the home has nothing to
//!   remember. Then the queue is empty and no reader has yet to release. Only a wish to enter or a wish to be put in can still
//!   arrive: the home answers both that the words have moved.
//! * *The gate* (rule L3). A writer that loses its swaps to others asks the home to put it into the queue. A node that
//!   finds the gate closed enters at most once more, because it asks the home the next time; so the home's swap is lost a
//!   bounded number of times.

use std::collections::VecDeque;

use verbena_terms::Rank;

use crate::action::ProtocolViolation;
use crate::participant::behind;
use crate::{Action, Batch, LockWord, Message, Outcome, Rules, To, Token};

/// In a word that is never free of readers, released readers are taken off the count when there are this many (2^31
/// would be too late).
const SETTLED_AT: u32 = 1 << 16;

/// The home's part in one lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Home {
    rules: Rules,
    pub(crate) settled_at: u32,
    /// Readers that have released and are not taken off the word.
    released: u32,
    /// The number of released readers when the word was last found to count others too.
    tried: u32,
    /// The next writer, and the number of releases that it waits for.
    pub(crate) next: Option<(Rank, u32)>,
    /// Writers to be put into the queue.
    pub(crate) entering: VecDeque<Rank>,
    /// Nodes that wait for the gate to open.
    pub(crate) asked_to_enter: Vec<Rank>,
    is_closed: bool,
    pub(crate) doing: Doing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Doing {
    Nothing,
    /// The token, for this writer.
    Reading(Rank),
    /// The number that is taken off the word.
    Settling {
        expected: LockWord,
        off: u32,
    },
    /// A writer is put into the queue.
    Entering(LockWord),
    Opening,
    /// A lock is being evicted from its words, if it is not used.
    Evicting(LockWord),
}

impl Home {
    /// The home role of a lock that is free.
    pub fn new(rules: Rules) -> Self {
        Home {
            rules,
            settled_at: SETTLED_AT,
            released: 0,
            tried: 0,
            next: None,
            entering: VecDeque::new(),
            asked_to_enter: Vec::new(),
            is_closed: false,
            doing: Doing::Nothing,
        }
    }

    /// Whether it has nothing to remember: the word says everything.
    pub fn is_at_rest(&self) -> bool {
        self.doing == Doing::Nothing
            && self.released == 0
            && self.next.is_none()
            && self.entering.is_empty()
            && self.asked_to_enter.is_empty()
            && !self.is_closed
    }

    /// Evicts the lock if it is not used: [`Action::Evicted`] follows, or nothing. Only where it [is at
    /// rest](Self::is_at_rest).
    ///
    /// # Errors
    /// Where it is not.
    pub fn evict(&mut self, out: &mut Vec<Action>) -> Result<(), ProtocolViolation> {
        if !self.is_at_rest() {
            return Err(ProtocolViolation("a lock that is to be evicted while it is used"));
        }
        self.swap_out(LockWord::FREE, out);
        Ok(())
    }

    /// A message arrived.
    ///
    /// # Errors
    /// When it cannot be in any order of events.
    pub fn heard(&mut self, from: Rank, message: Message, out: &mut Vec<Action>) -> Result<(), ProtocolViolation> {
        match message {
            Message::Released => self.released += 1,
            Message::After { .. } if self.next.is_some() => {
                return Err(ProtocolViolation("two writers are next after readers"));
            }
            Message::After { writer, readers } => self.next = Some((writer, readers)),
            Message::Enter => self.entering.push_back(from),
            Message::AskHome => self.asked_to_enter.push(from),
            _ => return Err(ProtocolViolation("what a home is not told")),
        }
        self.go_on(out)
    }

    /// A batch is done.
    ///
    /// # Errors
    /// When none was posted.
    pub fn completed(&mut self, outcome: &Outcome, out: &mut Vec<Action>) -> Result<(), ProtocolViolation> {
        let Outcome { before, token, .. } = *outcome;
        match std::mem::replace(&mut self.doing, Doing::Nothing) {
            Doing::Nothing => return Err(ProtocolViolation("a batch that a home did not post")),
            Doing::Reading(writer) => {
                out.push(Action::grant(writer, token));
            }
            Doing::Settling { expected, off } => {
                if before == expected {
                    self.released -= off;
                } else if before.tail == Rank::NOBODY && off >= self.settled_at {
                    return self.settle(before, off, out);
                } else {
                    self.tried = off;
                }
            }
            Doing::Entering(expected) if before == expected => {
                let writer =
                    self.entering.pop_front().ok_or(ProtocolViolation("a writer that was not to be put in"))?;
                if before == LockWord::FREE {
                    out.push(Action::grant(writer, token));
                } else {
                    match behind(writer, before, self.rules) {
                        (To::Home, _) => self.next = Some((writer, before.count)),
                        (to, message) => out.push(Action::Send(to, message)),
                    }
                }
            }
            Doing::Entering(expected) => {
                self.put_in(if self.rules.swap_what_is_found { before } else { expected }, out);
                return Ok(());
            }
            Doing::Evicting(expected) if before == expected => return self.evicted(token, out),
            Doing::Evicting(_) if !self.rules.evict_what_is_free => {
                self.swap_out(before, out);
                return Ok(());
            }
            Doing::Evicting(_) => {}
            Doing::Opening => {
                self.is_closed = false;
                out.extend(
                    self.asked_to_enter.drain(..).map(|rank| Action::Send(To::Participant(rank), Message::Open)),
                );
            }
        }
        self.go_on(out)
    }

    fn go_on(&mut self, out: &mut Vec<Action>) -> Result<(), ProtocolViolation> {
        if self.doing != Doing::Nothing && (self.rules.answer_after_settling || self.next.is_none()) {
            return Ok(());
        }
        if let Some((writer, readers)) = self.next
            && self.released >= readers
        {
            self.released -= readers;
            self.tried = 0;
            self.next = None;
            self.doing = Doing::Reading(writer);
            out.push(Action::Access(Batch::default().and_read()));
        } else if !self.entering.is_empty() {
            self.put_in(LockWord::FREE, out);
        } else if self.is_closed || !self.asked_to_enter.is_empty() {
            self.doing = Doing::Opening;
            out.push(Action::Access(Batch { gate: Some(false), ..Batch::default() }));
        } else if self.next.is_none() && self.released > self.tried {
            return self.settle(LockWord::readers(self.released), self.released, out);
        }
        Ok(())
    }

    fn swap_out(&mut self, expected: LockWord, out: &mut Vec<Action>) {
        self.doing = Doing::Evicting(expected);
        out.push(Action::Access(Batch::swap(expected, LockWord::EVICTED).and_read()));
    }

    /// Answers the nodes that asked meanwhile and are in no queue.
    fn evicted(&mut self, token: Token, out: &mut Vec<Action>) -> Result<(), ProtocolViolation> {
        let is_used = self.released > 0 || self.next.is_some();
        let asked = self.entering.drain(..).chain(self.asked_to_enter.drain(..));
        let told = asked.filter(|_| self.rules.tell_who_asked);
        out.extend(told.map(|rank| Action::Send(To::Participant(rank), Message::Moved)));
        // The words belong to no lock whatever was answered: a node that comes to them must learn that they have moved.
        out.push(Action::Evicted(token));
        if is_used { Err(ProtocolViolation("a lock that was evicted while it was used")) } else { Ok(()) }
    }

    fn settle(&mut self, expected: LockWord, off: u32, out: &mut Vec<Action>) -> Result<(), ProtocolViolation> {
        let stay = expected.count.checked_sub(off).ok_or(ProtocolViolation("more readers released than there were"))?;
        self.tried = 0;
        self.doing = Doing::Settling { expected, off };
        out.push(Action::Access(Batch::swap(expected, LockWord::readers(stay))));
        Ok(())
    }

    fn put_in(&mut self, expected: LockWord, out: &mut Vec<Action>) {
        let Some(&writer) = self.entering.front() else { return };
        let gate = (!std::mem::replace(&mut self.is_closed, true)).then_some(true);
        self.doing = Doing::Entering(expected);
        out.push(Action::Access(Batch { gate, ..Batch::swap(expected, LockWord::writer(writer)) }.and_read()));
    }
}
