//! The scheme SRSL: one server a lock, and messages; no words (dissertation, 4.3).
//!
//! A client asks the server, which grants in the order in which requests arrive, readers that follow each other together. It is what the other schemes are
//! measured against.

use std::collections::VecDeque;

use verbena_terms::Rank;

use crate::action::{ProtocolViolation, Refusal};
use crate::{Action, Message, Mode, Request, Survivor, To, Token};

/// A node's part in one lock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Client {
    stint: Stint,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Stint {
    #[default]
    Idle,
    Waiting(Mode),
    Held(Mode, Token),
    /// As a writer, until the server says that it is a reader.
    Sharing(Token),
}

impl Client {
    /// Of a node that has this of the lock already (rule L5).
    pub(crate) fn of(survivor: Survivor) -> Self {
        let stint = match survivor {
            Survivor::Holds(mode, token) => Stint::Held(mode, token),
            Survivor::Waits(mode) => Stint::Waiting(mode),
        };
        Client { stint }
    }

    pub(crate) fn survives(&self) -> Option<Survivor> {
        match self.stint {
            Stint::Idle => None,
            Stint::Waiting(mode) => Some(Survivor::Waits(mode)),
            Stint::Held(mode, token) => Some(Survivor::Holds(mode, token)),
            Stint::Sharing(token) => Some(Survivor::reads_after(token)),
        }
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

    /// The node wants the lock. One request at a time.
    ///
    /// # Errors
    /// When there is another.
    pub fn request(&mut self, request: Request, out: &mut Vec<Action>) -> Result<(), ProtocolViolation> {
        if self.stint != Stint::Idle {
            return Err(ProtocolViolation("a request beside another one of the same node"));
        }
        self.stint = Stint::Waiting(request.mode);
        out.push(Action::Send(To::Home, Message::Ask(request)));
        Ok(())
    }

    /// The node needs it no longer.
    ///
    /// # Errors
    /// When it does not hold it.
    pub fn release(&mut self, out: &mut Vec<Action>) -> Result<(), ProtocolViolation> {
        let Stint::Held(mode, _) = self.stint else {
            return Err(ProtocolViolation("a release of what is not held"));
        };
        self.stint = Stint::Idle;
        let message = match mode {
            Mode::Shared => Message::Released,
            Mode::Exclusive => Message::Freed,
        };
        out.extend([Action::Send(To::Home, message), Action::Left]);
        Ok(())
    }

    /// Turns an exclusive hold into a shared one. The client holds the lock exclusively until [`Action::Granted`] says
    /// that it is a reader.
    ///
    /// # Errors
    /// When it does not hold the lock exclusively.
    pub fn downgrade(&mut self, out: &mut Vec<Action>) -> Result<(), ProtocolViolation> {
        let Stint::Held(Mode::Exclusive, token) = self.stint else {
            return Err(ProtocolViolation("a downgrade of what is not held exclusively"));
        };
        self.stint = Stint::Sharing(token);
        out.push(Action::Send(To::Home, Message::Shared));
        Ok(())
    }

    /// A message arrived.
    ///
    /// # Errors
    /// When it cannot be in any order of events.
    pub fn heard(&mut self, message: Message, out: &mut Vec<Action>) -> Result<(), ProtocolViolation> {
        let mode = match self.stint {
            Stint::Waiting(mode) => mode,
            Stint::Sharing(_) => Mode::Shared,
            Stint::Idle | Stint::Held(..) => return Err(ProtocolViolation("an answer to what was not asked")),
        };
        match message {
            Message::Grant { last } => {
                let Some(token) = last.next(mode) else {
                    // The server grants only what has a token.
                    return Err(ProtocolViolation("a grant without a token"));
                };
                self.stint = Stint::Held(mode, token);
                out.push(Action::Granted(mode, token));
            }
            Message::Refuse(why) => {
                self.stint = Stint::Idle;
                out.extend([Action::Refused(why), Action::Left]);
            }
            _ => return Err(ProtocolViolation("what a server does not say")),
        }
        Ok(())
    }
}

/// The server's part.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Server {
    last: Token,
    pub(crate) writer: Option<Rank>,
    readers: u32,
    pub(crate) queue: VecDeque<(Rank, Mode)>,
}

impl Server {
    /// The server of a free lock. `last` is smaller than every token that it grants from now on.
    pub fn new(last: Token) -> Self {
        Server { last, writer: None, readers: 0, queue: VecDeque::new() }
    }

    /// Whether the lock is free, with no waiters.
    pub fn is_at_rest(&self) -> bool {
        self.writer.is_none() && self.readers == 0 && self.queue.is_empty()
    }

    /// A message arrived. A client's request may come before the release of what it held.
    ///
    /// # Errors
    /// When it cannot be in any order of events.
    pub fn heard(&mut self, from: Rank, message: Message, out: &mut Vec<Action>) -> Result<(), ProtocolViolation> {
        match message {
            Message::Ask(Request { mode, is_try: true }) if !self.queue.is_empty() || !self.admits(mode) => {
                out.push(Action::Send(To::Participant(from), Message::Refuse(Refusal::Busy)));
            }
            Message::Ask(Request { mode, .. }) => self.queue.push_back((from, mode)),
            Message::Released if self.readers > 0 => self.readers -= 1,
            Message::Freed if self.writer == Some(from) => self.writer = None,
            Message::Shared if self.writer == Some(from) => {
                self.writer = None;
                self.grant(from, Mode::Shared, out);
            }
            _ => return Err(ProtocolViolation("what a server is not told")),
        }
        self.admit(out);
        Ok(())
    }

    /// A token that is smaller than all that it gives out from now on, and not than those that it gave writers.
    pub(crate) fn last(&self) -> Token {
        self.last
    }

    /// This client had it before there was this server, and holds the lock or waits for it behind those that were there before.
    pub(crate) fn inherit(&mut self, from: Rank, survivor: Survivor) -> Result<(), ProtocolViolation> {
        match survivor {
            Survivor::Waits(mode) => self.queue.push_back((from, mode)),
            Survivor::Holds(mode, _) if !self.admits(mode) => {
                return Err(ProtocolViolation("a lock that another holds too"));
            }
            Survivor::Holds(Mode::Exclusive, _) => self.writer = Some(from),
            Survivor::Holds(Mode::Shared, _) => self.readers += 1,
        }
        Ok(())
    }

    /// Grants the lock to all who are next.
    pub(crate) fn admit(&mut self, out: &mut Vec<Action>) {
        while let Some(&(next, mode)) = self.queue.front()
            && self.admits(mode)
        {
            self.queue.pop_front();
            self.grant(next, mode, out);
        }
    }

    fn admits(&self, mode: Mode) -> bool {
        self.writer.is_none() && (mode == Mode::Shared || self.readers == 0)
    }

    fn grant(&mut self, to: Rank, mode: Mode, out: &mut Vec<Action>) {
        let message = match self.last.next(mode) {
            None => Message::Refuse(Refusal::TokensUsedUp),
            Some(token) => {
                let last = self.last;
                match mode {
                    Mode::Shared => self.readers += 1,
                    Mode::Exclusive => (self.writer, self.last) = (Some(to), token),
                }
                Message::Grant { last }
            }
        };
        out.push(Action::Send(To::Participant(to), message));
    }
}
