//! What members of the view say to each other about locks, and where it goes: to a lock of the clients here, or to the directory of this home.

use verbena_terms::Incarnation;

use super::{Locks, LocksAction, Poster, Words, note};
use crate::To;
use crate::action::ProtocolViolation;
use crate::directory::DirectoryAction;
use crate::local_queue::LocalQueue;
use crate::name::Name;
use crate::wire::{MemberMessage, Slot};

impl Locks {
    pub(super) fn hear_self(&mut self, out: &mut Vec<LocksAction>) {
        loop {
            while let Some(member_message) = self.members.said_to_self() {
                self.member_message(self.me, member_message, out);
            }
            self.forget_words(out);
            if !self.members.says_to_self() {
                break;
            }
        }
    }

    pub(super) fn member_message(
        &mut self,
        from: Incarnation,
        member_message: MemberMessage,
        out: &mut Vec<LocksAction>,
    ) {
        let me = self.me;
        let home = |name: &Name| self.members.home_of(name);
        let said = match member_message {
            MemberMessage::Words(key) if key.owner == from => {
                out.push(LocksAction::Open(key));
                Ok(())
            }
            MemberMessage::Found { name, slot } if home(&name) == Some(from) => {
                self.found(name, slot.map(|number| Slot { home: from, number }), out)
            }
            MemberMessage::About { slot, to: To::Participant(rank), message } if rank == me.rank => {
                let name = self.names.get(&slot).cloned();
                let said = name
                    .and_then(|name| self.with(&name, out, |local, actions| local.heard(from.rank, message, actions)));
                said.unwrap_or(Err(ProtocolViolation("a lock without a request here")))
            }
            MemberMessage::OfSurvivor { name, to: To::Survivor(rank), message } if rank == me.rank => {
                let said =
                    self.with(&name, out, |local, actions| local.heard_of_recovery_holder(from.rank, message, actions));
                said.unwrap_or(Err(ProtocolViolation("a lock without clients here")))
            }
            MemberMessage::About { slot, .. } if slot.home == me => self.tell_directory(from, member_message, out),
            MemberMessage::Survives { ref name, .. }
            | MemberMessage::Resolve(ref name)
            | MemberMessage::OfSurvivor { ref name, .. }
                if home(name) == Some(me) =>
            {
                self.tell_directory(from, member_message, out)
            }
            MemberMessage::Forget { number, slots } => self.asked_to_forget(from, number, slots, out),
            MemberMessage::Forgotten { .. } => self.tell_directory(from, member_message, out),
            MemberMessage::Remove { ref name, .. } if home(name) == Some(me) => {
                self.tell_directory(from, member_message, out)
            }
            MemberMessage::Removed { number, removal } => {
                out.push(LocksAction::Removed { number, from, removal });
                Ok(())
            }
            MemberMessage::Reported => {
                let said = self.tell_directory(from, member_message, out);
                self.open(out);
                said
            }
            MemberMessage::List { number, after, prefix } => {
                let page = self.page(after, &prefix);
                self.members.say(from, MemberMessage::Listed { number, page });
                Ok(())
            }
            MemberMessage::Listed { number, page } => {
                out.push(LocksAction::Listed { number, from, page });
                Ok(())
            }
            MemberMessage::Waits(probe) => self.probed(probe, out),
            MemberMessage::Deadlock { request, cycle } => {
                self.refused_as_youngest(request, cycle, out);
                Ok(())
            }
            _ => Err(ProtocolViolation("a member_message for another")),
        };
        note(from, said, out);
    }

    /// As a home, if its view is in effect.
    pub(super) fn open(&mut self, out: &mut Vec<LocksAction>) {
        let is_in_effect = self.members.view() == Some(self.lease.in_effect);
        if let Some(directory) = self.directory.as_mut().filter(|_| is_in_effect) {
            let mut actions = vec![];
            note(self.me, directory.in_effect(&mut actions), out);
            self.direct(actions, out);
        }
    }

    /// As a home that has too few words, perhaps.
    pub(super) fn tend_words(&mut self, out: &mut Vec<LocksAction>) {
        if let Some(directory) = &mut self.directory {
            let mut actions = vec![];
            directory.tend(&mut actions);
            self.direct(actions, out);
            self.hear_self(out);
        }
    }

    fn tell_directory(
        &mut self,
        from: Incarnation,
        member_message: MemberMessage,
        out: &mut Vec<LocksAction>,
    ) -> Result<(), ProtocolViolation> {
        let directory = self.directory.as_mut().ok_or(ProtocolViolation("a node that is no home, taken for one"))?;
        let mut actions = vec![];
        let said = directory.heard(from, member_message, &mut actions);
        self.direct(actions, out);
        said
    }

    /// The home answers with a lock's words, or says that it has no words for the lock.
    fn found(&mut self, name: Name, slot: Option<Slot>, out: &mut Vec<LocksAction>) -> Result<(), ProtocolViolation> {
        let here = self.here.get_mut(&name).filter(|here| here.words == Words::Asked);
        let here = here.ok_or(ProtocolViolation("words of a lock that was not asked for"))?;
        here.words = slot.map_or(Words::Unknown, Words::At);
        match slot {
            Some(slot) => {
                self.names.insert(slot, name.clone());
                self.advance(&name, out);
            }
            None => {
                self.with(&name, out, LocalQueue::refuse);
            }
        }
        Ok(())
    }

    pub(super) fn direct(&mut self, actions: Vec<DirectoryAction>, out: &mut Vec<LocksAction>) {
        for action in actions {
            match action {
                DirectoryAction::Store { at, word } => out.push(LocksAction::Store { at, word }),
                DirectoryAction::Access { slot, owner, batch } => {
                    let slot = Slot { home: self.me, number: slot };
                    self.post(slot, Poster::Directory(owner), batch, out);
                }
                DirectoryAction::TellAll(member_message) => self.members.say_to_all(&member_message),
                DirectoryAction::Tell(rank, member_message) => {
                    if let Some(member) = self.members.of_rank(rank) {
                        self.members.say(member, member_message);
                    }
                }
            }
        }
    }
}
