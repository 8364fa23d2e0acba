//! What happens in the helper's run, for the process that started it.

use std::sync::Arc;

use parking_lot::Mutex;
use serde::Serialize;
use verbena_terms::{Incarnation, ViewNumber};

/// An event in the helper's run, for the process that started it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// An incarnation began.
    Life {
        /// Which.
        incarnation: Incarnation,
        /// The interconnect.
        provider: &'static str,
        /// Why that one.
        why: String,
        /// Where peers reach it, without its secret.
        address: String,
    },
    /// There is a newer view.
    ViewLearnt {
        /// Its number.
        view: ViewNumber,
        /// The members.
        members: Vec<Incarnation>,
    },
    /// The view is in effect.
    ViewInEffect {
        /// Its number.
        view: ViewNumber,
    },
    /// The lease ran out.
    LeaseLost,
    /// The incarnation is over; the node joins again.
    Expelled {
        /// As this one, if that is known.
        next: Option<Incarnation>,
    },
    /// The keeper refuses.
    Refused {
        /// Why, and what to do.
        reason: String,
    },
    /// Something that must be done cannot be. It is tried again.
    Trouble {
        /// What.
        what: String,
        /// Why not.
        reason: String,
    },
    /// The process that kept the cluster of this machine's plain nodes has ended: this one keeps it from now on, as well.
    Succeeded {
        /// In the first seat, as this one.
        incarnation: Incarnation,
    },
    /// The node has left the cluster.
    Left,
}

/// Is told what happens, on membership's thread: must not block.
pub type Observer = Box<dyn FnMut(&Event) + Send>;
/// One that several threads tell.
pub(crate) type SharedObserver = Arc<Mutex<Observer>>;
