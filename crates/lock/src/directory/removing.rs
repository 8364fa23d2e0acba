//! Locks that a member asks to evict now, whether words are few or not.

use verbena_terms::Rank;

use super::{Directory, DirectoryAction, Lock, Words};
use crate::action::ProtocolViolation;
use crate::name::Name;
use crate::wire::MemberMessage;
use crate::{Removal, Scheme};

/// Wishes in progress, at most. The answer to one more is that the lock is in use.
const MOST_WISHES: usize = 1024;

/// A wish that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    from: Rank,
    number: u64,
    slot: u32,
}

impl Wish {
    pub(super) fn is_for(&self, slot: u32) -> bool {
        self.slot == slot
    }
}

impl Directory {
    /// A member asks to evict this lock if it is not used.
    pub(super) fn remove(
        &mut self,
        from: Rank,
        number: u64,
        name: &Name,
        out: &mut Vec<DirectoryAction>,
    ) -> Result<(), ProtocolViolation> {
        let Some(&slot) = self.numbers.get(name) else {
            tell(from, number, Removal::Unknown, out);
            return Ok(());
        };
        let is_evicting = self.is_evicting(slot);
        let is_at_rest = matches!(self.locks.get(slot as usize), Some(Words::Of(Lock { home: None, .. })))
            && !self.recovery_holders.contains_key(&slot)
            && slot < self.slots
            && self.scheme != Scheme::Srsl;
        if !(is_evicting || is_at_rest) || self.wishes.len() >= MOST_WISHES {
            tell(from, number, Removal::InUse, out);
            return Ok(());
        }
        self.wishes.push(Wish { from, number, slot });
        if !is_evicting {
            // Which tokens it has given is seen there alone, and they become the floor of all others.
            self.look(slot, out);
        }
        Ok(())
    }

    /// An eviction ended, either way. Answers the members that asked for it.
    pub(super) fn has_been_removed(&mut self, slot: u32, out: &mut Vec<DirectoryAction>) {
        let removal = match self.locks.get(slot as usize) {
            Some(Words::Of(_)) => Removal::InUse,
            _ => Removal::Removed,
        };
        self.tell_of_removal(slot, removal, out);
    }

    pub(super) fn tell_of_removal(&mut self, slot: u32, removal: Removal, out: &mut Vec<DirectoryAction>) {
        for wish in self.wishes.extract_if(.., |wish| wish.slot == slot) {
            tell(wish.from, wish.number, removal, out);
        }
    }
}

fn tell(to: Rank, number: u64, removal: Removal, out: &mut Vec<DirectoryAction>) {
    out.push(DirectoryAction::Tell(to, MemberMessage::Removed { number, removal }));
}
