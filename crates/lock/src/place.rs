//! A writer's place in the queue: who stands behind it, and how it leaves.
//!
//! ```text
//!                        nobody known behind: write the token, swap [me : n] to [0 : n]
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

use crate::action::Strange;
use crate::{Action, Batch, LockWord, Message, Outcome, Rules, To, Token};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    /// Whose.
    pub me: Rank,
    pub rules: Rules,
    /// Readers that stand behind it, in order of arrival.
    pub readers: Vec<Rank>,
    /// The writer that does.
    pub behind: Option<Behind>,
    pub leaving: Option<Leaving>,
    /// Readers of the hold before this one, whose messages have not arrived, and the token of that hold.
    pub owed: u32,
    owed_after: Token,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Behind {
    pub writer: Rank,
    pub readers: u32,
}

/// It is left with this token, to stay as so many readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Leaving {
    token: Token,
    staying: u32,
    pub step: Step,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    /// The swap is posted.
    Freeing(LockWord),
    /// Another writer is at the tail: its message is awaited.
    Awaiting,
    /// The token is being written, because readers are granted next and the home will read it.
    Writing(Behind),
}

impl Place {
    /// Of node `me`, with nobody behind it.
    pub fn new(me: Rank, rules: Rules) -> Self {
        Place { me, rules, readers: vec![], behind: None, leaving: None, owed: 0, owed_after: Token::default() }
    }

    /// A reader stands behind this place.
    pub fn join(&mut self, reader: Rank, stands: bool, out: &mut Vec<Action>) -> Result<(), Strange> {
        if self.owed > 0 {
            self.owed -= 1;
            out.push(grant(reader, self.owed_after));
        } else if stands {
            self.readers.push(reader);
        } else {
            return Err(Strange("a reader stands behind a writer that is not in the queue"));
        }
        Ok(())
    }

    /// A writer stands behind it. Says whether the place is left by that.
    pub fn behind(&mut self, writer: Rank, readers: u32, out: &mut Vec<Action>) -> Result<bool, Strange> {
        if self.behind.is_some() {
            return Err(Strange("two writers stand behind one"));
        }
        if (self.readers.len() as u64) > u64::from(readers) {
            return Err(Strange("more readers stand behind a writer than were counted"));
        }
        let behind = Behind { writer, readers };
        match self.leaving {
            Some(Leaving { token, staying, step: Step::Awaiting }) => {
                self.pass(behind, token, staying, out);
                Ok(true)
            }
            _ => {
                self.behind = Some(behind);
                Ok(false)
            }
        }
    }

    /// The hold with this token ends, or becomes one of `staying` readers. Says whether the place is left.
    pub fn leave(&mut self, token: Token, staying: u32, out: &mut Vec<Action>) -> bool {
        let step = match self.behind {
            Some(behind) if behind.readers + staying == 0 => {
                self.pass(behind, token, staying, out);
                return true;
            }
            Some(behind) => {
                out.push(Action::Access(Batch { token: Some(token), ..Batch::default() }));
                Step::Writing(behind)
            }
            None => {
                let expected = LockWord { tail: self.me, count: self.readers.len() as u32 };
                let token = self.rules.token_before_free.then_some(token);
                out.push(Action::Access(Batch { token, ..free(expected, staying) }));
                Step::Freeing(expected)
            }
        };
        self.leaving = Some(Leaving { token, staying, step });
        false
    }

    /// What was posted is done. Says whether the place is left by that.
    pub fn completed(&mut self, outcome: &Outcome, out: &mut Vec<Action>) -> Result<bool, Strange> {
        let Some(Leaving { token, staying, step }) = self.leaving else {
            return Err(Strange("a batch that a place did not post"));
        };
        let step = match step {
            Step::Freeing(expected) if outcome.before == expected => {
                self.left(expected.count, token, out);
                return Ok(true);
            }
            Step::Freeing(_) if outcome.before.tail == self.me => {
                out.push(Action::Access(free(outcome.before, staying)));
                Step::Freeing(outcome.before)
            }
            Step::Freeing(_) => match self.behind {
                Some(behind) => {
                    self.pass(behind, token, staying, out);
                    return Ok(true);
                }
                None => Step::Awaiting,
            },
            Step::Writing(behind) => {
                self.pass(behind, token, staying, out);
                return Ok(true);
            }
            Step::Awaiting => return Err(Strange("a batch that a place did not post")),
        };
        self.leaving = Some(Leaving { token, staying, step });
        Ok(false)
    }

    /// The place goes to who stands behind. Where readers are in between the token word has this token by now: they read it, and the home.
    fn pass(&mut self, behind: Behind, token: Token, staying: u32, out: &mut Vec<Action>) {
        let Behind { writer, readers } = behind;
        self.left(readers, token, out);
        out.push(match readers + staying {
            0 => grant(writer, token),
            readers => Action::Send(To::Home, Message::After { writer, readers }),
        });
    }

    /// So many readers stood behind it.
    fn left(&mut self, readers: u32, token: Token, out: &mut Vec<Action>) {
        let owed = if self.rules.count_owed { readers.saturating_sub(self.readers.len() as u32) } else { 0 };
        out.extend(self.readers.iter().map(|&reader| grant(reader, token)));
        *self = Place { owed, owed_after: token, ..Place::new(self.me, self.rules) };
    }
}

fn free(expected: LockWord, staying: u32) -> Batch {
    Batch::swap(expected, LockWord::readers(expected.count + staying))
}

fn grant(to: Rank, last: Token) -> Action {
    Action::Send(To::Contender(to), Message::Grant { last })
}
