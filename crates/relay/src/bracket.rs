//! Brackets of a relay's connections: the machine of [`Shared`] joined to the caller's [`Bracket`].

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::shared::{Shared, Step};
use crate::{Outcome, Rejection};

/// Begins and ends updates at the homes.
pub trait Bracket: Send + Sync + 'static {
    /// What a held command writes.
    type Write: Send + 'static;
    /// An update that was begun.
    type Ticket: Send + 'static;

    /// Whether this one shares its bracket with the commits that wait beside it (Q9). One that does not neither waits
    /// for the Begin of others nor holds one up.
    fn shares(&self, write: &Self::Write) -> bool {
        let _ = write;
        true
    }

    /// Begins one update for all these writes. `Ok` when every home has acknowledged it and the check of P3 is done.
    fn begin(&self, writes: Vec<Self::Write>) -> impl Future<Output = Result<Self::Ticket, Rejection>> + Send;

    /// Ends it. `true` when the end is confirmed, so that applications may have their answers (P7).
    fn end(&self, ticket: Self::Ticket, outcome: Outcome) -> impl Future<Output = bool> + Send;
}

/// The brackets of all connections of a relay.
pub(crate) struct Brackets<B: Bracket> {
    bracket: B,
    state: Mutex<State<B>>,
}

struct State<B: Bracket> {
    shared: Shared<B::Write>,
    begun: HashMap<u64, oneshot::Sender<Result<(), Rejection>>>,
    ended: HashMap<u64, oneshot::Sender<bool>>,
    tickets: HashMap<u64, B::Ticket>,
}

/// A held command that waits for its bracket.
pub(crate) struct Begin {
    pub(crate) member: u64,
    pub(crate) begun: oneshot::Receiver<Result<(), Rejection>>,
}

impl<B: Bracket> Brackets<B> {
    pub(crate) fn new(bracket: B) -> Arc<Self> {
        let (begun, ended, tickets) = (HashMap::new(), HashMap::new(), HashMap::new());
        let state = Mutex::new(State { shared: Shared::default(), begun, ended, tickets });
        Arc::new(Self { bracket, state })
    }

    /// No call that can panic runs under the lock.
    fn state(&self) -> MutexGuard<'_, State<B>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn begin(self: &Arc<Self>, write: B::Write) -> Begin {
        let (sender, begun) = oneshot::channel();
        let is_shared = self.bracket.shares(&write);
        let mut state = self.state();
        let (member, steps) = if is_shared { state.shared.join(write) } else { state.shared.join_alone(write) };
        state.begun.insert(member, sender);
        self.carry_out(&mut state, steps);
        Begin { member, begun }
    }

    pub(crate) fn end(self: &Arc<Self>, member: u64, outcome: Outcome) -> oneshot::Receiver<bool> {
        let (sender, ended) = oneshot::channel();
        let mut state = self.state();
        state.ended.insert(member, sender);
        let steps = state.shared.answered(member, outcome);
        self.carry_out(&mut state, steps);
        ended
    }

    fn carry_out(self: &Arc<Self>, state: &mut State<B>, steps: Vec<Step<B::Write>>) {
        for step in steps {
            match step {
                Step::Begin { bracket, writes } => {
                    let brackets = self.clone();
                    tokio::spawn(async move {
                        let result = brackets.bracket.begin(writes).await;
                        brackets.begun(bracket, result);
                    });
                }
                Step::End { bracket, outcome } => {
                    let Some(ticket) = state.tickets.remove(&bracket) else { continue };
                    let brackets = self.clone();
                    tokio::spawn(async move {
                        let is_confirmed = brackets.bracket.end(ticket, outcome).await;
                        brackets.ended(bracket, is_confirmed);
                    });
                }
                // A connection that is gone does not listen, and has said `end`, or will.
                Step::Begun { member, result } => {
                    let _ = state.begun.remove(&member).map(|sender| sender.send(result));
                }
                Step::Ended { member, is_confirmed } => {
                    let _ = state.ended.remove(&member).map(|sender| sender.send(is_confirmed));
                }
            }
        }
    }

    fn begun(self: &Arc<Self>, bracket: u64, result: Result<B::Ticket, Rejection>) {
        let mut state = self.state();
        let result = result.map(|ticket| {
            state.tickets.insert(bracket, ticket);
        });
        let steps = state.shared.begun(bracket, result);
        self.carry_out(&mut state, steps);
    }

    fn ended(self: &Arc<Self>, bracket: u64, is_confirmed: bool) {
        let mut state = self.state();
        let steps = state.shared.ended(bracket, is_confirmed);
        self.carry_out(&mut state, steps);
    }
}
