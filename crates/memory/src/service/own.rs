//! What programs of this machine may read of a node's own memory without asking it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use verbena_fabric::Readable;
use verbena_terms::ViewNumber;

/// Callback with the number of times that the node has forgotten anything, before that has any consequence. Runs on the
/// thread that drives the service; must not block.
pub type Forgets = Box<dyn Fn(u64) + Send + Sync>;

/// A home's memory of this view, as it is handed to programs; and what tells them that it is not where they look any more.
pub(super) struct Own {
    memory: Mutex<Option<(ViewNumber, Arc<Readable>)>>,
    forgets: Forgets,
    said: AtomicU64,
}

/// Reads the memory without asking the node. Cheap to clone.
#[derive(Clone)]
pub struct OwnMemory(pub(super) Arc<Own>);

impl OwnMemory {
    /// That of this view, and of no other; `None` where the fabric's memory cannot be handed on.
    pub fn of(&self, view: ViewNumber) -> Option<Arc<Readable>> {
        let memory = self.0.memory.lock().unwrap_or_else(PoisonError::into_inner);
        memory.as_ref().filter(|(of, _)| *of == view).map(|(_, memory)| memory.clone())
    }
}

impl Own {
    pub(super) fn new(forgets: Forgets) -> Arc<Self> {
        Arc::new(Own { memory: Mutex::default(), forgets, said: AtomicU64::new(0) })
    }

    pub(super) fn set(&self, memory: Option<(ViewNumber, Readable)>) {
        let memory = memory.map(|(view, memory)| (view, Arc::new(memory)));
        *self.memory.lock().unwrap_or_else(PoisonError::into_inner) = memory;
    }

    /// By the thread that has the machine.
    pub(super) fn say_forgets(&self, count: u64) {
        if self.said.swap(count, Ordering::Relaxed) != count {
            (self.forgets)(count);
        }
    }
}
