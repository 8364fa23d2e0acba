//! The events and actions of a participant, and the notices that services get.

use std::sync::Arc;

use verbena_terms::{Incarnation, Time, ViewNumber};

use crate::{ClusterError, Lease, Message, Refusal, StartRecord, View};

/// What happens to a participant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParticipantEvent {
    /// The record of the last [`ParticipantAction::Persist`] would survive a loss of power.
    Persisted,
    /// A message arrived.
    Message(Message),
    /// The services are ready for this view (rule P5): what they do in an older one is at an end.
    Prepared(ViewNumber),
    /// The services of this home have settled a departed incarnation (rule P6).
    Settled(Incarnation),
    /// The incarnation that [`ParticipantAction::Enrol`] asked for.
    Enrolled(Incarnation),
    /// This incarnation keeps the cluster from now on. Said where the keeper is not always a node of the same rank.
    Keeper(Incarnation),
    /// The node is to leave in good order. Said once.
    Leave {
        /// Nothing of it is open at any home, and it begins nothing more, in whichever incarnation (rule P6). Not so, it is
        /// settled like one that died.
        at_rest: bool,
    },
    /// A program wants this incarnation to have no more lease: ask the keeper, once.
    Expel(Incarnation),
    /// Time has passed.
    Tick,
}

/// What a participant wants done, in this order.
#[derive(Clone, Debug, PartialEq)]
pub enum ParticipantAction {
    /// Replace the durable start record by this one, then say [`ParticipantEvent::Persisted`].
    Persist(StartRecord),
    /// Find a rank that no incarnation has had, for another incarnation of the same era. Then say
    /// [`ParticipantEvent::Enrolled`] and, when this incarnation can begin, [`ParticipantEvent::Persisted`].
    Enrol,
    /// Store it in the [`LeaseWord`](crate::LeaseWord) before anything that follows is done.
    Publish(Lease),
    /// Send it to the keeper.
    Send(Message),
    /// Tell every service.
    Tell(Notice),
}

/// What services learn.
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    /// There is a newer view. Services prepare for it, handle Begins of it (rule P5) and say when they are ready; the
    /// driver then gives [`ParticipantEvent::Prepared`]. A later one replaces it.
    ViewLearnt(Arc<View>),
    /// This view is in effect: updates may be forwarded in it once it is also acknowledged here (rules C3, P3).
    ViewInEffect(ViewNumber),
    /// A member has acknowledged the view, so it has ended acting in every older one.
    MemberAcknowledged {
        /// The member.
        incarnation: Incarnation,
        /// Which view.
        view: ViewNumber,
    },
    /// A member of the view ran out of lease before it acknowledged: no node waits for it any more (rule P5).
    MemberOut {
        /// The member.
        incarnation: Incarnation,
        /// Which view.
        view: ViewNumber,
    },
    /// Every home has settled this departed incarnation.
    DepartedSettled(Incarnation),
    /// The lease runs until then.
    LeaseExtended(Time),
    /// The lease is over. It may be extended again unless [`Notice::Expelled`] follows.
    LeaseLost,
    /// This incarnation is over; everything that it owned belongs to the other nodes. The node joins again as this one,
    /// or as one that is not known yet.
    Expelled(Option<Incarnation>),
    /// This incarnation is over for good: a later incarnation of the same node has joined.
    Superseded(Incarnation),
    /// The keeper refuses; said once for each reason. The request is repeated all the same.
    Refused(Refusal),
    /// It has left: no lease, and the others do not count on it.
    Left,
    /// No further incarnation can be started.
    Failed(ClusterError),
}
