//! Finding out what became of a batch whose answer is missing: its effects are settled one after the other, in their order (F2).

use std::task::Context;
use std::time::Duration;

use verbena_terms::Time;

use crate::completion::Pending;
use crate::error::Error;
use crate::message::Class;
use crate::operation::{OperationId, Settled};
use crate::region::SharedRemote;

/// How long a target may take to say what became of one.
const SETTLE_DEADLINE: Duration = Duration::from_secs(1);
/// When a target that could not be asked is asked again.
const AGAIN_AFTER: Duration = Duration::from_millis(2);

/// The effects of one batch, as far as they are settled.
pub struct Settling {
    remote: SharedRemote,
    class: Class,
    next: OperationId,
    last: OperationId,
    /// One before the next never will be executed.
    is_barred: bool,
    question: Question,
}

enum Question {
    /// To be asked then.
    ToAsk(Time),
    Asked(Pending<Settled>),
}

/// What was found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The next effect was executed, and found this.
    Executed(u64),
    /// There are no more: those that were not told of never will be executed.
    All,
    /// The fabric is closed, or a target did what it must not: nobody will say.
    Closed,
    /// Nobody knows what became of this one.
    Forgotten(OperationId),
}

impl Settling {
    /// Of what a batch in this class ended with; `None` unless there is something to be settled.
    pub fn after(error: &Error, remote: SharedRemote, class: Class, now: Time) -> Option<Self> {
        let Error::Unknown { first: Some(next), last: Some(last), .. } = *error else { return None };
        Some(Settling { remote, class, next, last, is_barred: false, question: Question::ToAsk(now) })
    }

    /// What has been found out since this was asked last, one effect after the other; asks on.
    pub fn look(&mut self, now: Time) -> Option<Found> {
        while self.next <= self.last {
            let asked = match &mut self.question {
                Question::ToAsk(at) if *at > now => return None,
                Question::ToAsk(_) => {
                    let asked = self.remote.settle(self.next, self.class, now + SETTLE_DEADLINE);
                    self.question = Question::Asked(asked);
                    continue;
                }
                Question::Asked(asked) => asked.poll_now()?,
            };
            self.question = Question::ToAsk(now);
            let found = match asked {
                Ok(Settled::Executed(word)) if !self.is_barred => Some(Found::Executed(word)),
                // Then nothing behind it was executed either; but it is to be settled, for the window.
                Ok(Settled::Barred) => {
                    self.is_barred = true;
                    None
                }
                Ok(Settled::Executed(_)) => {
                    tracing::error!(owner = %self.remote.key().owner, "a batch was executed from its middle on");
                    return Some(Found::Closed);
                }
                Err(Error::Closed) => return Some(Found::Closed),
                Err(Error::Forgotten { operation, .. }) => return Some(Found::Forgotten(operation)),
                Err(_) => {
                    self.question = Question::ToAsk(now + AGAIN_AFTER);
                    continue;
                }
            };
            self.next = OperationId(self.next.0 + 1);
            if found.is_some() {
                return found;
            }
        }
        Some(Found::All)
    }

    /// Whether an answer is awaited.
    pub fn is_asking(&self) -> bool {
        matches!(self.question, Question::Asked(_))
    }

    /// Whether an answer has come that was not looked at; if not, the task is woken when it comes.
    pub fn has_heard(&mut self, context: &mut Context<'_>) -> bool {
        match &mut self.question {
            Question::Asked(asked) => asked.is_there(context),
            Question::ToAsk(_) => false,
        }
    }

    /// When the target is to be asked again.
    pub fn next_deadline(&self) -> Option<Time> {
        match self.question {
            Question::ToAsk(at) => Some(at),
            Question::Asked(_) => None,
        }
    }
}
