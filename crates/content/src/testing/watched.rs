//! A fabric of which a test sees, and holds, what is done to its own regions.

use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use verbena_fabric::{Fabric, Layer, Region, RegionKey, Result, Rights};
use verbena_terms::ViewNumber;

/// What is done to a word of a region by its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// It is read: for a look at a page whose home this node is.
    Load,
    /// It is stored: by the home.
    Store,
}

/// Where touches of a node's own regions wait, while a test wants it.
#[derive(Default)]
pub struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// What is held, of threads whose name begins so.
    held: Option<(Touch, &'static str)>,
    waiting: usize,
}

impl Gate {
    /// Threads whose name begins with `threads` wait before such a touch, as long as what is returned is there.
    pub fn holds(self: &Arc<Self>, touch: Touch, threads: &'static str) -> Held {
        self.state.lock().held = Some((touch, threads));
        Held(self.clone())
    }

    /// Threads that wait.
    pub fn waiting(&self) -> usize {
        self.state.lock().waiting
    }

    fn pass(&self, touch: Touch) {
        let mut state = self.state.lock();
        let thread = std::thread::current();
        let is_held = |state: &State| {
            state.held.is_some_and(|(held, threads)| {
                held == touch && thread.name().is_some_and(|name| name.starts_with(threads))
            })
        };
        if is_held(&state) {
            state.waiting += 1;
            self.changed.wait_while(&mut state, |state| is_held(state));
            state.waiting -= 1;
        }
    }
}

/// Dropped, all go on: a test that fails leaves no thread waiting.
#[must_use = "dropped, nobody is held"]
pub struct Held(Arc<Gate>);

impl Held {
    /// All go on.
    pub fn lets_go(self) {}
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.state.lock().held = None;
        self.0.changed.notify_all();
    }
}

pub(super) struct Watched {
    pub fabric: Arc<dyn Fabric>,
    pub gate: Arc<Gate>,
}

struct WatchedRegion {
    region: Box<dyn Region>,
    gate: Arc<Gate>,
}

impl Layer for Watched {
    fn inner(&self) -> &dyn Fabric {
        &*self.fabric
    }

    fn register(&self, bytes: u64, view: ViewNumber) -> Result<Box<dyn Region>> {
        let region = self.fabric.register(bytes, view)?;
        Ok(Box::new(WatchedRegion { region, gate: self.gate.clone() }))
    }
}

impl Region for WatchedRegion {
    fn key(&self, rights: Rights) -> RegionKey {
        self.region.key(rights)
    }

    fn load(&self, at: u64) -> Result<u64> {
        self.gate.pass(Touch::Load);
        self.region.load(at)
    }

    fn store(&self, at: u64, value: u64) -> Result<()> {
        self.gate.pass(Touch::Store);
        self.region.store(at, value)
    }

    fn fetch_add(&self, at: u64, addend: u64) -> Result<u64> {
        self.region.fetch_add(at, addend)
    }

    fn compare_swap(&self, at: u64, expected: u64, desired: u64) -> Result<u64> {
        self.region.compare_swap(at, expected, desired)
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<()> {
        self.region.read(at, into)
    }

    fn write(&self, at: u64, from: &[u8]) -> Result<()> {
        self.region.write(at, from)
    }

    fn remake(&self, view: ViewNumber) -> Result<()> {
        self.region.remake(view)
    }

    fn everyone_is_in(&self, view: ViewNumber) {
        self.region.everyone_is_in(view);
    }
}
