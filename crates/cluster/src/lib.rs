//! Cluster membership: numbered views, held together by leases.
//!
//! A node may act only in the view that it has acknowledged and only while its lease lasts. The *keeper* (the lowest
//! rank of the configuration) grants the leases and numbers the views. A view takes effect when each node that could
//! act in an older one has acknowledged it, which ends acting in the older one, or has run out of lease. So at no
//! moment does one node act in a view while a later one is in effect, whatever is lost, delayed, paused, killed or cut
//! off. That is all that this crate promises, and everything above rests on it.
//!
//! Two state machines keep it: [`Keeper`] and, at every node, [`Participant`]. They take an event and the time and return
//! actions; they have no sockets, clocks, threads, files or randomness, so the same code runs in a node and under
//! the simulation in `tests/`. What hot paths need of it is one [`LeaseWord`], read without a lock. docs/concepts/membership.md has
//! the states, the messages, and what each single failure looks like (rules C1-C6).

mod config;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
mod fuzzing;
mod keeper;
mod lease;
mod notice;
mod office;
mod participant;
mod record;
mod register;
mod rendezvous;
mod roles;
mod rules;
mod seat;
#[cfg(test)]
mod testing;
mod view;
mod wire;

pub use config::{ClusterConfig, Configured, Membership, Provider, SEATS};
pub use error::ClusterError;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub use fuzzing::cluster_message;
pub use keeper::{EarlierLife, Keeper, KeeperAction, KeeperEvent, Term};
pub use lease::{Lease, LeaseTerms, LeaseWord};
pub use notice::{Notice, ParticipantAction, ParticipantEvent};
pub use office::{Office, OfficeAction, OfficeEvent};
pub use participant::Participant;
pub use record::{KEEPER_FORMAT, KeeperRecord, START_FORMAT, StartRecord};
pub use register::{Answer, BEAT_FORMAT, Beat, HOLDER_FORMAT, Holder, Question, RANKS_KEPT, Revision, Sight};
pub use rendezvous::{home_of, pool_heir_of, pool_home_of};
pub use roles::{Role, Roles};
#[doc(hidden)]
pub use rules::Rules;
pub use view::{Departed, MAX_DEPARTED, MAX_MEMBERS, MAX_TEXT_BYTES, Member, View};
pub use wire::{Body, MAX_MESSAGE_BYTES, MESSAGE_FORMAT, Message, Parting, Refusal, Renewal, Standing};
