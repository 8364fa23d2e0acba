//! What must hold, seen from outside: each answer is one state of the database, no older than the last write that was
//! acknowledged before its request was sent, nor than any answer that was received before.

use std::fmt;

use verbena_terms::Time;

use crate::never_stale::database::{Content, Database, State};

/// What a client sent, as far as it matters.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// The oldest state that an answer may show.
    pub oldest: State,
}

impl fmt::Display for Sent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "state {}", self.oldest)
    }
}

#[derive(Default)]
pub struct Checker {
    oldest: State,
    pub broken: Vec<String>,
    pub answers: u64,
    pub hits: u64,
    pub acknowledged: u64,
}

impl Checker {
    pub fn sends(&self) -> Sent {
        Sent { oldest: self.oldest }
    }

    pub fn acknowledged(&mut self, commit: State) {
        self.acknowledged += 1;
        self.oldest = self.oldest.max(commit);
    }

    pub fn answered(&mut self, database: &Database, sent: Sent, content: &Content, how: &str, at: Time) {
        self.answers += 1;
        self.hits += u64::from(how == "hit");
        match database.shown_until(content) {
            None => self.broken.push(format!("at {at}: a {how} shows no state of the database: {content:?}")),
            Some(until) if until < sent.oldest => self.broken.push(format!(
                "at {at}: a {how} shows {content:?}, gone after commit {until}, when {} was to be seen",
                sent.oldest
            )),
            Some(_) => {}
        }
        self.oldest = self.oldest.max(database.shown_since(content));
    }
}
