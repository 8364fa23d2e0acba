//! What becomes of a lock when a view ends (rule L5).
//!
//! Every view has new words, perhaps at other homes. A holder keeps its lock and a waiter keeps waiting. Each reports
//! itself to the lock's home in the new view, as a [`Client`](crate::Client) of a server. The home serves these
//! survivors in an order that it knows. While survivors remain, the home stands in the new word itself as a writer with
//! a rank that no node has: the [`RecoveryHolder`]. Nodes that come in the new view find that writer at the tail and stand behind
//! it. When the last survivor has left, the recovery holder leaves its place as any writer does.
//!
//! ```text
//!   survivors --> Server: holders, queue             words of the new view
//!                   |  grants, in order                [RANK : n]  <--- CAS, FAA --- nodes of this view
//!                   |                                      |    <--- behind, join ---
//!                   +--- all have left --------------> the place is left: grants as src/place.rs says
//! ```

use serde::{Deserialize, Serialize};
use verbena_terms::Rank;

use crate::action::ProtocolViolation;
use crate::place::{Leave, Place};
use crate::{Action, LockWord, Message, Mode, Outcome, Rules, Server, To, Token};

/// What a node has of a lock when a view ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Survivor {
    /// It holds it, with a token of an earlier view.
    Holds(Mode, Token),
    /// It waits.
    Waits(Mode),
}

/// Stands in the word for those who had the lock in an earlier view, or stood in its queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RecoveryHolder {
    pub(crate) server: Server,
    pub(crate) place: Place,
    /// It is at the tail, or others stand behind it.
    pub(crate) stands: bool,
}

impl RecoveryHolder {
    /// A rank that no node has.
    pub const RANK: Rank = Rank(u32::MAX);

    /// The value of the word at first. It must be stored before any other node learns where the word is.
    pub const WORD: LockWord = LockWord::writer(RecoveryHolder::RANK);

    /// Of the survivors, who wait in this order. `last` is what stands in the token word: smaller than any token of this view.
    ///
    /// # Errors
    /// When they cannot all hold the lock.
    pub fn new(
        last: Token,
        survivors: impl IntoIterator<Item = (Rank, Survivor)>,
        rules: Rules,
        out: &mut Vec<Action>,
    ) -> Result<Self, ProtocolViolation> {
        let mut server = Server::new(last);
        for (rank, survivor) in survivors {
            server.inherit(rank, survivor)?;
        }
        let first = out.len();
        server.admit(out);
        to_survivors(&mut out[first..]);
        let mut recovery_holder =
            RecoveryHolder { server, place: Place::new(RecoveryHolder::RANK, rules), stands: true };
        recovery_holder.leave_if_over(out);
        Ok(recovery_holder)
    }

    /// Whether it has sent everything that it owes.
    pub fn is_over(&self) -> bool {
        !self.stands && self.place.owed == 0
    }

    /// A survivor says what it said to an earlier home's word, or to the writer before it: that it has released.
    ///
    /// # Errors
    /// When it cannot be in any order of events.
    pub fn heard_of_survivor(
        &mut self,
        from: Rank,
        message: Message,
        out: &mut Vec<Action>,
    ) -> Result<(), ProtocolViolation> {
        let first = out.len();
        self.server.heard(from, message, out)?;
        to_survivors(&mut out[first..]);
        self.leave_if_over(out);
        Ok(())
    }

    /// A node stands behind it.
    ///
    /// # Errors
    /// When it cannot be in any order of events.
    pub fn heard(&mut self, from: Rank, message: Message, out: &mut Vec<Action>) -> Result<(), ProtocolViolation> {
        match message {
            Message::Join => self.place.join(from, self.stands, out),
            Message::Behind { writer, readers } if self.stands => {
                let left = self.place.behind(writer, readers, out)?;
                self.stands = left.is_none();
                Ok(())
            }
            _ => Err(ProtocolViolation("what a recovery holder is not told")),
        }
    }

    /// A batch is done.
    ///
    /// # Errors
    /// When none was posted.
    pub fn completed(&mut self, outcome: &Outcome, out: &mut Vec<Action>) -> Result<(), ProtocolViolation> {
        let left = self.place.completed(outcome, out)?;
        self.stands = left.is_none();
        Ok(())
    }

    fn leave_if_over(&mut self, out: &mut Vec<Action>) {
        if self.stands && self.place.leaving.is_none() && self.server.is_at_rest() {
            let leave = Leave { token: self.server.last(), becomes_reader: false };
            self.stands = self.place.leave(leave, out).is_none();
        }
    }
}

/// What its server says goes to clients from an earlier view.
fn to_survivors(actions: &mut [Action]) {
    for action in actions {
        if let Action::Send(to, _) = action
            && let To::Participant(rank) = *to
        {
            *to = To::Survivor(rank);
        }
    }
}

/// In which order survivors wait. Each comes with the writer that it found at the tail, or [`Rank::NOBODY`] where it found none or does not know.
///
/// A survivor comes after the writer that it found, and readers come before the writer that found the same one: that is
/// the order in which they stood. Where this leaves the order open, readers come first, then lower ranks. It stays open
/// in a cycle: a writer has granted the lock to the next one, which has not received the grant, and stands in the queue
/// again.
pub fn in_order(mut survivors: Vec<(Rank, Survivor, Rank)>) -> Vec<(Rank, Survivor)> {
    survivors.sort_unstable_by_key(|&(rank, survivor, _)| (survivor.waits_for(), rank));
    let mut ordered = Vec::with_capacity(survivors.len());
    while !survivors.is_empty() {
        let is_behind = |ahead: Rank| {
            survivors.iter().any(|&(rank, survivor, _)| rank == ahead && survivor.waits_for() == Some(Mode::Exclusive))
        };
        let first = survivors.iter().position(|&(.., ahead)| !is_behind(ahead));
        let first = first.unwrap_or_else(|| first_of_cycle(&survivors));
        let (rank, survivor, _) = survivors.remove(first);
        ordered.push((rank, survivor));
    }
    ordered
}

/// Each survivor stands behind a writer among them, so following the links from one to the next reaches a cycle.
fn first_of_cycle(survivors: &[(Rank, Survivor, Rank)]) -> usize {
    let ahead_of = |at: usize| survivors.iter().position(|(rank, ..)| *rank == survivors[at].2);
    let way = std::iter::successors(Some(0), |&at| ahead_of(at));
    way.skip(survivors.len()).take(survivors.len()).min().unwrap_or(0)
}

impl Survivor {
    /// A writer that had this token and was becoming a reader. Others may read with it already, and no other writer has come between.
    pub(crate) fn reads_after(token: Token) -> Self {
        // A writer's token is even, and never a view's last.
        Survivor::Holds(Mode::Shared, token.next(Mode::Shared).unwrap_or(token))
    }

    /// `None` if it holds the lock.
    fn waits_for(self) -> Option<Mode> {
        match self {
            Survivor::Holds(..) => None,
            Survivor::Waits(mode) => Some(mode),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITES: Survivor = Survivor::Waits(Mode::Exclusive);
    const READS: Survivor = Survivor::Waits(Mode::Shared);
    const NOBODY: Rank = Rank::NOBODY;

    fn ranks(survivors: &[(u32, Survivor, Rank)]) -> Vec<u32> {
        let survivors = survivors.iter().map(|&(rank, survivor, ahead)| (Rank(rank), survivor, ahead)).collect();
        in_order(survivors).into_iter().map(|(rank, _)| rank.0).collect()
    }

    #[test]
    fn survivors_keep_the_order_in_which_they_stood() {
        let holder = Survivor::Holds(Mode::Exclusive, Token::default());
        let chain =
            [(1, WRITES, Rank(7)), (2, READS, Rank(9)), (7, WRITES, Rank(9)), (3, READS, Rank(7)), (9, holder, NOBODY)];
        assert_eq!(ranks(&chain), [9, 2, 7, 3, 1]);
    }

    #[test]
    fn where_one_is_missing_the_others_keep_theirs() {
        // 5 and what it found have gone: it cannot be known whether 4 or 8 was first.
        assert_eq!(ranks(&[(8, WRITES, Rank(5)), (2, WRITES, Rank(8)), (4, WRITES, NOBODY)]), [4, 8, 2]);
    }

    #[test]
    fn who_stands_behind_a_cycle_is_not_served_before_it() {
        // 7 granted 9 the lock, which has not heard of it, and stands behind it again.
        assert_eq!(
            ranks(&[(1, WRITES, Rank(9)), (2, READS, Rank(1)), (7, WRITES, Rank(9)), (9, WRITES, Rank(7))]),
            [7, 9, 1, 2]
        );
    }

    #[test]
    fn who_contradict_each_other_are_all_served() {
        assert_eq!(ranks(&[(1, WRITES, Rank(2)), (2, WRITES, Rank(1)), (3, WRITES, Rank(3))]), [1, 2, 3]);
    }
}
