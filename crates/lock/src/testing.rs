//! What a model of all orders of events asks of the machines, and programs never do.

use verbena_terms::Rank;

pub use crate::local_queue::{LocalAction, LocalQueue};

use crate::home::Doing;
use crate::participant::Stint;
use crate::place::{Place, Step};
use crate::{
    Batch, Change, Home, HomeRole, LockParticipant, LockRole, LockWord, Message, Mode, RecoveryHolder, Server, To,
};

/// The same, where every node has another rank: of worlds that differ only in that, one is explored.
pub trait Renamed: Sized {
    /// With these names.
    fn renamed(&self, name: &impl Fn(Rank) -> Rank) -> Self;
}

impl LockParticipant {
    /// It asks the home for help after it has lost this many swaps.
    pub fn patient_for(mut self, lost_swaps: u32) -> Self {
        self.lost_swaps = lost_swaps;
        self
    }

    /// Whether a message from the node behind would change nothing but what it remembers.
    pub fn would_only_note_it(&self) -> bool {
        let has_no_grant = matches!(self.stint, Stint::Entering { .. } | Stint::Waiting(Mode::Exclusive));
        has_no_grant && self.stands() && self.place.owed == 0
    }
}

impl LocalQueue {
    /// This many clients go on with the node's hold where others wait or could.
    pub fn passing_on_to(mut self, at_most: u32) -> Self {
        self.at_most = at_most;
        self
    }
}

impl Home {
    /// It takes readers off the count of a word in use when this many have released.
    pub fn settling_at(mut self, settled_at: u32) -> Self {
        self.settled_at = settled_at;
        self
    }
}

impl Renamed for LockWord {
    fn renamed(&self, name: &impl Fn(Rank) -> Rank) -> Self {
        let tail = if self.tail == Rank::NOBODY { Rank::NOBODY } else { name(self.tail) };
        LockWord { tail, ..*self }
    }
}

impl Renamed for Batch {
    fn renamed(&self, name: &impl Fn(Rank) -> Rank) -> Self {
        Batch { change: self.change.map(|change| change.renamed(name)), ..*self }
    }
}

impl Renamed for Change {
    fn renamed(&self, name: &impl Fn(Rank) -> Rank) -> Self {
        match self {
            Change::Swap { expected, new } => Change::Swap { expected: expected.renamed(name), new: new.renamed(name) },
            Change::AddReader | Change::Look => *self,
        }
    }
}

impl Renamed for To {
    fn renamed(&self, name: &impl Fn(Rank) -> Rank) -> Self {
        match self {
            To::Home => To::Home,
            To::Participant(rank) => To::Participant(name(*rank)),
            To::Survivor(rank) => To::Survivor(name(*rank)),
        }
    }
}

impl Renamed for Message {
    fn renamed(&self, name: &impl Fn(Rank) -> Rank) -> Self {
        match *self {
            Message::Behind { writer, readers } => Message::Behind { writer: name(writer), readers },
            Message::After { writer, readers } => Message::After { writer: name(writer), readers },
            other => other,
        }
    }
}

impl Renamed for Place {
    fn renamed(&self, name: &impl Fn(Rank) -> Rank) -> Self {
        let mut other = self.clone();
        other.me = name(self.me);
        rename(&mut other.readers, name);
        other.behind.iter_mut().for_each(|behind| behind.writer = name(behind.writer));
        if let Some((_, Step::Freeing(word))) = &mut other.leaving {
            *word = word.renamed(name);
        }
        other
    }
}

impl Renamed for LockParticipant {
    fn renamed(&self, name: &impl Fn(Rank) -> Rank) -> Self {
        let mut other = self.clone();
        other.place = self.place.renamed(name);
        if let Stint::Entering { posted, .. } = &mut other.stint {
            *posted = posted.renamed(name);
        }
        other
    }
}

impl Renamed for Home {
    fn renamed(&self, name: &impl Fn(Rank) -> Rank) -> Self {
        let mut other = self.clone();
        other.next = self.next.map(|(writer, readers)| (name(writer), readers));
        other.entering = self.entering.iter().map(|&writer| name(writer)).collect();
        rename(&mut other.asked_to_enter, name);
        match &mut other.doing {
            Doing::Reading(writer) => *writer = name(*writer),
            Doing::Entering(expected) | Doing::Evicting(expected) => *expected = expected.renamed(name),
            Doing::Settling { .. } | Doing::Nothing | Doing::Opening => {}
        }
        other
    }
}

/// Ranks that are answered together: their order carries no information.
fn rename(ranks: &mut [Rank], name: &impl Fn(Rank) -> Rank) {
    ranks.iter_mut().for_each(|rank| *rank = name(*rank));
    ranks.sort_unstable();
}

impl Renamed for LockRole {
    fn renamed(&self, name: &impl Fn(Rank) -> Rank) -> Self {
        match self {
            LockRole::Ncosed(participant) => LockRole::Ncosed(participant.renamed(name)),
            LockRole::Dqnl(participant, mode) => LockRole::Dqnl(participant.renamed(name), *mode),
            LockRole::Srsl(_) => self.clone(),
        }
    }
}

impl Renamed for HomeRole {
    fn renamed(&self, name: &impl Fn(Rank) -> Rank) -> Self {
        match self {
            HomeRole::Words(home) => HomeRole::Words(home.renamed(name)),
            HomeRole::Server(server) => HomeRole::Server(server.renamed(name)),
        }
    }
}

impl Renamed for Server {
    fn renamed(&self, name: &impl Fn(Rank) -> Rank) -> Self {
        let mut other = self.clone();
        other.writer = other.writer.map(name);
        other.queue.iter_mut().for_each(|(rank, _)| *rank = name(*rank));
        other
    }
}

impl Renamed for RecoveryHolder {
    fn renamed(&self, name: &impl Fn(Rank) -> Rank) -> Self {
        RecoveryHolder { server: self.server.renamed(name), place: self.place.renamed(name), ..*self }
    }
}

impl LockRole {
    /// See [`LockParticipant::would_only_note_it`].
    pub fn would_only_note_it(&self) -> bool {
        match self {
            LockRole::Ncosed(participant) | LockRole::Dqnl(participant, _) => participant.would_only_note_it(),
            LockRole::Srsl(_) => false,
        }
    }
}
