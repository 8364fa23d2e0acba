//! A writer's place in the queue: which node stands behind it, and how it leaves.
//!
//! ```text
//!                       no node known behind: write the token, swap [me : n] to [0 : n]
//!   standing ------------------------------------------------------------------------> freeing --+--> left; the n readers
//!      |                                                                                  |      |    release at the home
//!      | a writer is known behind                      another writer is at the tail      |      |
//!      |                                                                                  v      | readers came: swap again
//!      |  no readers between: hand over                                  its message is awaited  |
//!      +------------------------------------------> left <--------------------------------+      |
//!      |  readers between: write the token, grant them,                                          |
//!      |  tell the home after how many it grants the writer                                      |
//!      +------------------------------------------> left                        freeing <--------+
//! ```
//!
//! The word counts readers before their messages arrive. What is missing when a place is left is *owed*: the readers that come are granted then, with the
//! token of that hold, and it does not matter that one of a later hold may come first, because the home counts releases and not names (rule L3).

use verbena_terms::Rank;

use crate::action::ProtocolViolation;
use crate::{Action, Batch, LockWord, Message, Outcome, Rules, To, Token};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    /// The writer itself.
    pub me: Rank,
    pub rules: Rules,
    /// Readers that stand behind it, in order of arrival.
    pub readers: Vec<Rank>,
    /// The writer that does.
    pub behind: Option<Behind>,
    pub leaving: Option<(Leave, Step)>,
    /// Readers of the hold before this one, whose messages have not arrived, and the token of that hold.
    pub owed: u32,
    owed_after: Token,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Behind {
    pub writer: Rank,
    pub readers: u32,
}

/// How a hold ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Leave {
    /// It had this.
    pub token: Token,
    /// It goes on as a reader's.
    pub becomes_reader: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    /// The swap is posted.
    Freeing(LockWord),
    /// Another writer is at the tail: its message is awaited.
    Awaiting,
    /// The token is being written, because readers are granted next and the home will read it.
    Writing,
}

impl Place {
    /// The place of node `me`, with no node behind it.
    pub fn new(me: Rank, rules: Rules) -> Self {
        Place { me, rules, readers: vec![], behind: None, leaving: None, owed: 0, owed_after: Token::default() }
    }

    /// Whether no node stands behind it or waits for a message from it.
    pub fn is_empty(&self) -> bool {
        self.owed == 0 && self.readers.is_empty() && self.behind.is_none() && self.leaving.is_none()
    }

    /// A reader stands behind this place.
    pub fn join(&mut self, reader: Rank, stands: bool, out: &mut Vec<Action>) -> Result<(), ProtocolViolation> {
        if self.owed > 0 {
            self.owed -= 1;
            out.push(Action::grant(reader, self.owed_after));
        } else if stands {
            self.readers.push(reader);
        } else {
            return Err(ProtocolViolation("a reader stands behind a writer that is not in the queue"));
        }
        Ok(())
    }

    /// A writer stands behind it. Says how the place is left, if it is by that.
    pub fn behind(
        &mut self,
        writer: Rank,
        readers: u32,
        out: &mut Vec<Action>,
    ) -> Result<Option<Leave>, ProtocolViolation> {
        if self.behind.is_some() {
            return Err(ProtocolViolation("two writers stand behind one"));
        }
        if (self.readers.len() as u64) > u64::from(readers) {
            return Err(ProtocolViolation("more readers stand behind a writer than were counted"));
        }
        let behind = Behind { writer, readers };
        match self.leaving {
            Some((leave, Step::Awaiting)) => Ok(Some(self.pass(behind, leave, out))),
            _ => {
                self.behind = Some(behind);
                Ok(None)
            }
        }
    }

    /// The hold ends. Says how, if the place is left at once.
    pub fn leave(&mut self, leave: Leave, out: &mut Vec<Action>) -> Option<Leave> {
        let step = match self.behind {
            Some(behind) if behind.readers == 0 && !leave.becomes_reader => return Some(self.pass(behind, leave, out)),
            Some(_) => {
                out.push(Action::Access(Batch { token: Some(leave.token), ..Batch::default() }));
                Step::Writing
            }
            None => {
                let expected = LockWord { tail: self.me, count: self.readers.len() as u32 };
                let token = self.rules.token_before_free.then_some(leave.token);
                out.push(Action::Access(Batch { token, ..free(expected, leave) }));
                Step::Freeing(expected)
            }
        };
        self.leaving = Some((leave, step));
        None
    }

    /// What was posted is done. Says how the place is left, if it is by that.
    pub fn completed(&mut self, outcome: &Outcome, out: &mut Vec<Action>) -> Result<Option<Leave>, ProtocolViolation> {
        let Some((leave, step)) = self.leaving else {
            return Err(ProtocolViolation("a batch that a place did not post"));
        };
        let step = match (step, self.behind) {
            (Step::Freeing(expected), _) if outcome.before == expected => {
                self.left(expected.count, leave, out);
                return Ok(Some(leave));
            }
            (Step::Freeing(_), _) if outcome.before.tail == self.me => {
                out.push(Action::Access(free(outcome.before, leave)));
                Step::Freeing(outcome.before)
            }
            (Step::Freeing(_) | Step::Writing, Some(behind)) => return Ok(Some(self.pass(behind, leave, out))),
            (Step::Freeing(_), None) => Step::Awaiting,
            (Step::Writing | Step::Awaiting, _) => return Err(ProtocolViolation("a batch that a place did not post")),
        };
        self.leaving = Some((leave, step));
        Ok(None)
    }

    /// The place goes to the node behind. Where readers are in between, the token word has this token by now: the
    /// readers and the home read it there.
    fn pass(&mut self, behind: Behind, leave: Leave, out: &mut Vec<Action>) -> Leave {
        let Behind { writer, readers } = behind;
        self.left(readers, leave, out);
        // The number is another member's, and may be any.
        out.push(match readers.saturating_add(leave.becomes_reader.into()) {
            0 => Action::grant(writer, leave.token),
            readers => Action::Send(To::Home, Message::After { writer, readers }),
        });
        leave
    }

    /// The place was left with this many readers behind it.
    fn left(&mut self, readers: u32, Leave { token, .. }: Leave, out: &mut Vec<Action>) {
        let owed = if self.rules.count_owed { readers.saturating_sub(self.readers.len() as u32) } else { 0 };
        out.extend(self.readers.iter().map(|&reader| Action::grant(reader, token)));
        *self = Place { owed, owed_after: token, ..Place::new(self.me, self.rules) };
    }
}

fn free(expected: LockWord, leave: Leave) -> Batch {
    Batch::swap(expected, LockWord::readers(expected.count + u32::from(leave.becomes_reader)))
}
