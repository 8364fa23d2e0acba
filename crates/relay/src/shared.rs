//! Brackets that several commits share (Q9), without input or output.
//!
//! One `Begin` is under way at a time. Writes that come meanwhile wait and share the next. A bracket ends when each of
//! its members has been answered, and no member is told of the end before it is confirmed.
//!
//! ```text
//! member:   waiting --Begin of its bracket--> beginning --begun--> open --answered--> done --ended--> told
//! ```

use std::collections::BTreeMap;

use crate::{Outcome, Rejection};

/// The commits of one relay, and the brackets that they share.
#[derive(Debug, Clone)]
pub struct Shared<W> {
    waiting: Vec<(u64, W)>,
    /// Brackets of one member each that are being begun beside the others, and that member.
    alone: BTreeMap<u64, u64>,
    /// The bracket whose `Begin` is under way.
    beginning: Option<(u64, Vec<u64>)>,
    open: BTreeMap<u64, Open>,
    members: u64,
    brackets: u64,
}

#[derive(Debug, Clone)]
struct Open {
    members: Vec<u64>,
    unanswered: Vec<u64>,
    outcome: Outcome,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step<W> {
    /// Begin a bracket for these writes, and say [`Shared::begun`].
    Begin {
        /// The bracket's number.
        bracket: u64,
        /// What its members write.
        writes: Vec<W>,
    },
    /// Tell a member that its bracket is begun, or is not, which is the last that it hears.
    Begun {
        /// The member.
        member: u64,
        /// What became of it.
        result: Result<(), Rejection>,
    },
    /// End a bracket, and say [`Shared::ended`].
    End {
        /// The bracket's number.
        bracket: u64,
        /// `Unknown` where it is of any member; `Unsent` where no member sent anything.
        outcome: Outcome,
    },
    /// Tell a member that the end of its bracket is confirmed, or is not.
    Ended {
        /// The member.
        member: u64,
        /// Whether it is.
        is_confirmed: bool,
    },
}

impl<W> Default for Shared<W> {
    fn default() -> Self {
        Self {
            waiting: Vec::new(),
            alone: BTreeMap::new(),
            beginning: None,
            open: BTreeMap::new(),
            members: 0,
            brackets: 0,
        }
    }
}

impl<W> Shared<W> {
    /// A write is to be bracketed. Gives its number as a member.
    pub fn join(&mut self, write: W) -> (u64, Vec<Step<W>>) {
        let member = self.members;
        self.members += 1;
        self.waiting.push((member, write));
        (member, self.begin_next().into_iter().collect())
    }

    /// The same of one that shares its bracket with no other: it neither waits for the `Begin` of others nor holds one up.
    pub fn join_alone(&mut self, write: W) -> (u64, Vec<Step<W>>) {
        let (member, bracket) = (self.members, self.brackets);
        self.members += 1;
        self.brackets += 1;
        self.alone.insert(bracket, member);
        (member, vec![Step::Begin { bracket, writes: vec![write] }])
    }

    fn begin_next(&mut self) -> Option<Step<W>> {
        if self.beginning.is_some() || self.waiting.is_empty() {
            return None;
        }
        let bracket = self.brackets;
        self.brackets += 1;
        let (members, writes) = std::mem::take(&mut self.waiting).into_iter().unzip();
        self.beginning = Some((bracket, members));
        Some(Step::Begin { bracket, writes })
    }

    /// A `Begin` is acknowledged by every home, or is not.
    pub fn begun(&mut self, bracket: u64, result: Result<(), Rejection>) -> Vec<Step<W>> {
        let (members, mut steps) = match self.alone.remove(&bracket) {
            Some(member) => (vec![member], Vec::new()),
            None => {
                let begun = self.beginning.take_if(|(number, _)| *number == bracket);
                let Some((_, members)) = begun else { return Vec::new() };
                // The next bracket first: its `Begin` need not wait for what the members do.
                (members, self.begin_next().into_iter().collect())
            }
        };
        steps.extend(members.iter().map(|member| Step::Begun { member: *member, result }));
        if result.is_ok() {
            let open = Open { unanswered: members.clone(), members, outcome: Outcome::Unsent };
            self.open.insert(bracket, open);
        }
        steps
    }

    /// The database has answered a member, or will not.
    pub fn answered(&mut self, member: u64, outcome: Outcome) -> Vec<Step<W>> {
        let mut all = self.open.iter_mut();
        let Some((&bracket, open)) = all.find(|(_, open)| open.unanswered.contains(&member)) else { return Vec::new() };
        open.unanswered.retain(|other| *other != member);
        open.outcome = worse(open.outcome, outcome);
        if !open.unanswered.is_empty() {
            return Vec::new();
        }
        vec![Step::End { bracket, outcome: open.outcome }]
    }

    /// An end is confirmed, or is not.
    pub fn ended(&mut self, bracket: u64, is_confirmed: bool) -> Vec<Step<W>> {
        let Some(open) = self.open.remove(&bracket) else { return Vec::new() };
        open.members.into_iter().map(|member| Step::Ended { member, is_confirmed }).collect()
    }
}

fn worse(one: Outcome, other: Outcome) -> Outcome {
    match (one, other) {
        (Outcome::Unknown, _) | (_, Outcome::Unknown) => Outcome::Unknown,
        (Outcome::Answered, _) | (_, Outcome::Answered) => Outcome::Answered,
        _ => Outcome::Unsent,
    }
}
