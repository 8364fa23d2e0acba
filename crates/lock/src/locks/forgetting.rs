//! Evicted words that a home asks its members to forget (rule L4).
//!
//! A member may still be involved with such words. It has asked to enter or asked to be put in, and the home's answer is in
//! flight; or its batch is in flight, and will find that the words were evicted. The member answers when that is over.
//! From then on nothing of it can reach them.

use std::collections::{BTreeMap, HashSet};

use verbena_terms::Incarnation;

use super::{Locks, LocksAction, Words};
use crate::action::ProtocolViolation;
use crate::evicted::MOST_FORGOTTEN;
use crate::wire::{MemberMessage, Slot};

/// What homes have asked and were not answered: the question's number, and the words that this node has to do with.
pub(super) type Forgetting = BTreeMap<Incarnation, (u64, Vec<Slot>)>;

impl Locks {
    /// A home asks to forget these.
    pub(super) fn asked_to_forget(
        &mut self,
        home: Incarnation,
        number: u64,
        slots: Vec<u32>,
        out: &mut Vec<LocksAction>,
    ) -> Result<(), ProtocolViolation> {
        if slots.len() > MOST_FORGOTTEN || self.forgetting.contains_key(&home) {
            return Err(ProtocolViolation("too many words to forget"));
        }
        let slots: HashSet<Slot> = slots.into_iter().map(|number| Slot { home, number }).collect();
        self.known.retain(|_, slot| !slots.contains(slot));
        let mut slots: Vec<Slot> = slots.into_iter().collect();
        slots.sort_unstable();
        self.forgetting.insert(home, (number, slots));
        self.forget_words(out);
        Ok(())
    }

    /// Whether its home has asked to forget it, and was not answered.
    pub(super) fn is_forgetting(&self, slot: Slot) -> bool {
        self.forgetting.get(&slot.home).is_some_and(|(_, slots)| slots.binary_search(&slot).is_ok())
    }

    /// Answers homes whose words this node has nothing to do with any more.
    pub(super) fn forget_words(&mut self, out: &mut Vec<LocksAction>) {
        if self.forgetting.is_empty() {
            return;
        }
        let posted: HashSet<Slot> = self.posts.values().map(|(slot, _)| *slot).collect();
        for (home, (number, mut slots)) in std::mem::take(&mut self.forgetting) {
            slots.retain(|slot| posted.contains(slot) || !self.forgets(*slot, out));
            if slots.is_empty() {
                self.members.say(home, MemberMessage::Forgotten { number });
            } else {
                self.forgetting.insert(home, (number, slots));
            }
        }
    }

    /// Whether the clients here have nothing to do with it. Those that want its lock ask for other words.
    fn forgets(&mut self, slot: Slot, out: &mut Vec<LocksAction>) -> bool {
        let Some(name) = self.names.get(&slot).cloned() else { return true };
        if let Some(here) = self.here.get_mut(&name) {
            if !here.local.forget_words() {
                return false;
            }
            here.words = Words::Unknown;
        }
        self.names.remove(&slot);
        self.advance(&name, out);
        true
    }
}
