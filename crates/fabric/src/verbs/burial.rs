//! Destroys connections that have ended, in a thread of their own. That may take as long as packets of theirs wait in
//! the network's queues (fifty seconds on soft-RoCE), and no poster and no waiter is to wait with it.

use std::sync::mpsc::{Sender, channel};
use std::thread;

use super::line::Line;
use crate::error::{Error, Result};

/// Where connections go that have ended. Cheap to clone; its thread ends behind the last one.
#[derive(Clone)]
pub(super) struct Burial(Sender<Dead>);

/// Dropped in this order: the adapter lets go of the buffers, then they are given back.
struct Dead {
    _line: Line,
    _buffers: Box<dyn Send>,
}

impl Burial {
    pub(super) fn start() -> Result<Self> {
        let (bury, dead) = channel();
        let work = move || dead.into_iter().for_each(|dead: Dead| drop(dead));
        let started = thread::Builder::new().name("verbs-burial".into()).spawn(work);
        started.map(|_| Burial(bury)).map_err(|error| Error::system("start a thread", error))
    }

    /// Destroys a connection, then the buffers of what was under way on it.
    pub(super) fn bury(&self, line: Line, buffers: impl Send + 'static) {
        // Its thread takes them for as long as there is one to bury; without it they are destroyed here.
        let _ = self.0.send(Dead { _line: line, _buffers: Box::new(buffers) });
    }
}
