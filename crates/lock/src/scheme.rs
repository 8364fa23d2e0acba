//! Three schemes behind one interface.

use verbena_terms::Rank;

use crate::action::ProtocolViolation;
use crate::{Action, Client, Home, LockParticipant, Message, Mode, Outcome, Request, Rules, Server, Survivor, Token};

/// How a lock is passed from node to node (dissertation, 4.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// A server and messages: readers share, everything goes through the server.
    Srsl,
    /// A distributed queue of writers: a reader waits like a writer, and holds the lock alone.
    Dqnl,
    /// A distributed queue of writers with readers in between.
    #[default]
    Ncosed,
}

/// A node's part in one lock, in any scheme.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LockRole {
    /// Of [`Scheme::Ncosed`].
    Ncosed(LockParticipant),
    /// The part of [`Scheme::Dqnl`]: the same, with writers only; and the mode that was requested.
    Dqnl(LockParticipant, Mode),
    /// Of [`Scheme::Srsl`].
    Srsl(Client),
}

/// The home's part in one lock, in any scheme.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HomeRole {
    /// Of the schemes that have words.
    Words(Home),
    /// Of [`Scheme::Srsl`].
    Server(Server),
}

impl LockRole {
    /// Of node `me`, which has nothing to do with the lock.
    pub fn new(scheme: Scheme, me: Rank, rules: Rules) -> Self {
        match scheme {
            Scheme::Ncosed => LockRole::Ncosed(LockParticipant::new(me, rules)),
            Scheme::Dqnl => LockRole::Dqnl(LockParticipant::new(me, rules), Mode::Exclusive),
            Scheme::Srsl => LockRole::Srsl(Client::default()),
        }
    }

    /// Of a node that has this of the lock from an earlier view (rule L5): in every scheme a server serves it.
    pub fn of(survivor: Survivor) -> Self {
        LockRole::Srsl(Client::of(survivor))
    }

    /// What the node has of the lock when the view ends. A try does not survive: the node makes it again. A writer that
    /// was becoming a reader survives as a reader, and [`held`](Self::held) gives its token.
    pub fn survives(&self) -> Option<Survivor> {
        match self {
            LockRole::Ncosed(participant) => participant.survives(),
            LockRole::Dqnl(participant, mode) => participant.survives().map(|survivor| match survivor {
                Survivor::Holds(_, token) => Survivor::Holds(*mode, token),
                Survivor::Waits(_) => Survivor::Waits(*mode),
            }),
            LockRole::Srsl(client) => client.survives(),
        }
    }

    /// Another client of the node has it next, as a writer and with this token, and it stays the node's all the while. `None` if that
    /// cannot be.
    pub fn again(&mut self) -> Option<Token> {
        match self {
            LockRole::Ncosed(participant) => participant.again(),
            LockRole::Dqnl(participant, Mode::Exclusive) => participant.again(),
            LockRole::Dqnl(_, Mode::Shared) | LockRole::Srsl(_) => None,
        }
    }

    /// Whether [`again`](Self::again) is possible, but for the end of a view's tokens.
    pub fn may_go_again(&self) -> bool {
        !matches!(self, LockRole::Srsl(_)) && matches!(self.held(), Some((Mode::Exclusive, _)))
    }

    /// Whether it has nothing to remember, and no message to it can be in flight.
    pub fn is_at_rest(&self) -> bool {
        match self {
            LockRole::Ncosed(participant) | LockRole::Dqnl(participant, _) => participant.is_at_rest(),
            LockRole::Srsl(client) => client.is_idle(),
        }
    }

    /// Forgets what it remembers of evicted words. Returns whether it has no part in them now.
    pub fn forget(&mut self) -> bool {
        match self {
            LockRole::Ncosed(participant) | LockRole::Dqnl(participant, _) => participant.forget(),
            LockRole::Srsl(_) => false,
        }
    }

    /// Whether others are known to wait behind it.
    pub fn is_waited_for(&self) -> bool {
        match self {
            LockRole::Ncosed(participant) | LockRole::Dqnl(participant, _) => participant.is_waited_for(),
            LockRole::Srsl(_) => false,
        }
    }

    /// Whether the lock's word shows the other readers and the waiting writers.
    pub fn is_in_word(&self) -> bool {
        matches!(self, LockRole::Ncosed(_))
    }

    /// The mode and token it holds the lock with. Where readers do not share, one holds it as it asked, and alone.
    pub fn held(&self) -> Option<(Mode, Token)> {
        match self {
            LockRole::Ncosed(participant) => participant.held(),
            LockRole::Dqnl(participant, mode) => participant.held().map(|(_, token)| (*mode, token)),
            LockRole::Srsl(client) => client.held(),
        }
    }

    /// Whether a [`request`](Self::request) may be made.
    pub fn is_idle(&self) -> bool {
        match self {
            LockRole::Ncosed(participant) | LockRole::Dqnl(participant, _) => participant.is_idle(),
            LockRole::Srsl(client) => client.is_idle(),
        }
    }

    /// See [`LockParticipant::request`].
    ///
    /// # Errors
    /// When there is another request.
    pub fn request(&mut self, request: Request, out: &mut Vec<Action>) -> Result<(), ProtocolViolation> {
        match self {
            LockRole::Ncosed(participant) => participant.request(request, out),
            LockRole::Dqnl(participant, mode) => {
                participant.request(Request { mode: Mode::Exclusive, ..request }, out)?;
                *mode = request.mode;
                Ok(())
            }
            LockRole::Srsl(client) => client.request(request, out),
        }
    }

    /// See [`LockParticipant::release`].
    ///
    /// # Errors
    /// When the lock is not held.
    pub fn release(&mut self, out: &mut Vec<Action>) -> Result<(), ProtocolViolation> {
        match self {
            LockRole::Ncosed(participant) | LockRole::Dqnl(participant, _) => participant.release(out),
            LockRole::Srsl(client) => client.release(out),
        }
    }

    /// See [`LockParticipant::downgrade`]. Where readers do not share it changes nothing for others.
    ///
    /// # Errors
    /// When the lock is not held exclusively.
    pub fn downgrade(&mut self, out: &mut Vec<Action>) -> Result<(), ProtocolViolation> {
        match self {
            LockRole::Ncosed(participant) => participant.downgrade(out),
            // A reader has a token like a writer's here.
            LockRole::Dqnl(participant, mode @ Mode::Exclusive) if participant.held().is_some() => {
                match participant.again() {
                    Some(token) => {
                        *mode = Mode::Shared;
                        out.push(Action::Granted(Mode::Shared, token));
                        Ok(())
                    }
                    None => Err(ProtocolViolation("a downgrade for which the view has no token left")),
                }
            }
            LockRole::Dqnl(..) => Err(ProtocolViolation("a downgrade of what is not held exclusively")),
            LockRole::Srsl(client) => client.downgrade(out),
        }
    }

    /// A batch is done.
    ///
    /// # Errors
    /// When none was posted.
    pub fn completed(&mut self, outcome: &Outcome, out: &mut Vec<Action>) -> Result<(), ProtocolViolation> {
        match self {
            LockRole::Ncosed(participant) => participant.completed(outcome, out),
            LockRole::Dqnl(participant, mode) => {
                let first = out.len();
                participant.completed(outcome, out)?;
                granted_as(*mode, &mut out[first..]);
                Ok(())
            }
            LockRole::Srsl(_) => Err(ProtocolViolation("a batch that a client of a server did not post")),
        }
    }

    /// A message arrived.
    ///
    /// # Errors
    /// When it cannot be in any order of events.
    pub fn heard(&mut self, from: Rank, message: Message, out: &mut Vec<Action>) -> Result<(), ProtocolViolation> {
        match self {
            LockRole::Ncosed(participant) => participant.heard(from, message, out),
            LockRole::Dqnl(participant, mode) => {
                let first = out.len();
                participant.heard(from, message, out)?;
                granted_as(*mode, &mut out[first..]);
                Ok(())
            }
            LockRole::Srsl(client) => client.heard(message, out),
        }
    }
}

/// Reports grants in the mode that was requested.
fn granted_as(mode: Mode, actions: &mut [Action]) {
    for action in actions {
        if let Action::Granted(granted, _) = action {
            *granted = mode;
        }
    }
}

impl HomeRole {
    /// See [`Home::evict`]. A server has no words.
    ///
    /// # Errors
    /// Where it has something to remember.
    pub fn evict(&mut self, out: &mut Vec<Action>) -> Result<(), ProtocolViolation> {
        match self {
            HomeRole::Words(home) => home.evict(out),
            HomeRole::Server(_) => Err(ProtocolViolation("a server that is to be evicted")),
        }
    }

    /// The home role of a free lock. `last` is the value of its token word.
    pub fn new(scheme: Scheme, last: Token, rules: Rules) -> Self {
        match scheme {
            Scheme::Ncosed | Scheme::Dqnl => HomeRole::Words(Home::new(rules)),
            Scheme::Srsl => HomeRole::Server(Server::new(last)),
        }
    }

    /// Whether it has nothing to remember.
    pub fn is_at_rest(&self) -> bool {
        match self {
            HomeRole::Words(home) => home.is_at_rest(),
            HomeRole::Server(server) => server.is_at_rest(),
        }
    }

    /// A message arrived.
    ///
    /// # Errors
    /// When it cannot be in any order of events.
    pub fn heard(&mut self, from: Rank, message: Message, out: &mut Vec<Action>) -> Result<(), ProtocolViolation> {
        match self {
            HomeRole::Words(home) => home.heard(from, message, out),
            HomeRole::Server(server) => server.heard(from, message, out),
        }
    }

    /// A batch is done.
    ///
    /// # Errors
    /// When none was posted.
    pub fn completed(&mut self, outcome: &Outcome, out: &mut Vec<Action>) -> Result<(), ProtocolViolation> {
        match self {
            HomeRole::Words(home) => home.completed(outcome, out),
            HomeRole::Server(_) => Err(ProtocolViolation("a batch that a server did not post")),
        }
    }
}
