//! What makes an operation happen exactly once (F2), without input or output: a target keeps one [`Window`] for every caller
//! incarnation and class.
//!
//! An operation is *claimed* before it is executed, so that of two copies one executes; its outcome is *kept*, so that a copy
//! that comes later gets the same answer; and *settling* an identifier that was not claimed bars it, so that a copy that is
//! still under way is never executed. The entry of identifier `i` is at `i % size`: a newer identifier takes the place of
//! one `size` older. The caller keeps its side of this by never posting past the oldest unsettled one plus `size`.
//!
//! What a window does not keep is what a batch *read*. A provider that may see a batch twice answers the later copy only if
//! that copy has read nothing before an effect that an earlier one has executed: it would find what stands behind the read
//! in its own batch (F1).

use crate::operation::{OperationId, Settled};

/// Identifiers that a window remembers.
pub const WINDOW: usize = 1024;

/// The memory of one caller incarnation's operations in one class.
#[derive(Clone, Debug)]
pub struct Window {
    entries: Box<[Entry]>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    id: u64,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It is being executed.
    Claimed,
    /// It was executed.
    Executed(u64),
    /// It was refused, or it came to be settled before it came.
    Barred,
}

/// What to do with an operation that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Execute it, then call [`Window::executed`] or [`Window::refused`].
    Execute,
    /// It was executed: answer with this.
    Executed(u64),
    /// It must not be executed; the answer is unknown.
    Barred,
    /// Another copy is being executed right now, or it is so old that nothing is known of it: unknown.
    Unknown,
}

impl Default for Window {
    fn default() -> Self {
        Window::new(WINDOW)
    }
}

impl Window {
    /// A window of `size` identifiers.
    pub fn new(size: usize) -> Self {
        assert!(size > 0, "a window remembers something");
        // Identifiers begin at 1, so that 0 is an entry that was never used.
        Window { entries: vec![Entry { id: 0, state: State::Barred }; size].into_boxed_slice() }
    }

    /// A window of `size` identifiers for a caller whose earlier window is gone and whose next identifier is `next`. Of what came
    /// before nothing is known, so it neither executes nor settles: an outcome that was forgotten is never called barred.
    pub fn resumed(size: usize, next: OperationId) -> Self {
        let mut window = Window::new(size);
        for id in next.0.saturating_sub(size as u64)..next.0 {
            // A claim that is never concluded answers unknown to everything.
            *window.entry(OperationId(id)) = Entry { id, state: State::Claimed };
        }
        window
    }

    /// An operation has arrived. No operation has identifier 0.
    pub fn claim(&mut self, id: OperationId) -> Claim {
        let entry = self.entry(id);
        if id.0 > entry.id {
            *entry = Entry { id: id.0, state: State::Claimed };
            return Claim::Execute;
        }
        if id.0 < entry.id || id.0 == 0 {
            return Claim::Unknown;
        }
        match entry.state {
            State::Claimed => Claim::Unknown,
            State::Executed(outcome) => Claim::Executed(outcome),
            State::Barred => Claim::Barred,
        }
    }

    /// A claimed operation was executed with this outcome.
    pub fn executed(&mut self, id: OperationId, outcome: u64) {
        self.conclude(id, State::Executed(outcome));
    }

    /// A claimed operation was refused, and nothing was changed.
    pub fn refused(&mut self, id: OperationId) {
        self.conclude(id, State::Barred);
    }

    /// Settles an identifier: its outcome, or it is barred from now on. `None` if it is being executed at this moment (ask again) or too old to be
    /// known.
    pub fn settle(&mut self, id: OperationId) -> Option<Settled> {
        let entry = self.entry(id);
        if id.0 > entry.id {
            *entry = Entry { id: id.0, state: State::Barred };
        }
        if id.0 < entry.id || id.0 == 0 {
            return None;
        }
        match entry.state {
            State::Claimed => None,
            State::Executed(outcome) => Some(Settled::Executed(outcome)),
            State::Barred => Some(Settled::Barred),
        }
    }

    fn conclude(&mut self, id: OperationId, state: State) {
        let entry = self.entry(id);
        // A claim that was overtaken by a whole window of newer ones has nothing left to conclude.
        if entry.id == id.0 {
            debug_assert_eq!(entry.state, State::Claimed, "only a claimed operation is concluded");
            entry.state = state;
        }
    }

    fn entry(&mut self, id: OperationId) -> &mut Entry {
        let size = self.entries.len() as u64;
        &mut self.entries[(id.0 % size) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: OperationId = OperationId(1);

    #[test]
    fn of_two_copies_one_executes() {
        let mut window = Window::new(4);
        assert_eq!(window.claim(FIRST), Claim::Execute);
        assert_eq!(window.claim(FIRST), Claim::Unknown);
        window.executed(FIRST, 42);
        assert_eq!(window.claim(FIRST), Claim::Executed(42));
    }

    #[test]
    fn what_was_settled_before_it_came_never_executes() {
        let mut window = Window::new(4);
        assert_eq!(window.settle(FIRST), Some(Settled::Barred));
        assert_eq!(window.claim(FIRST), Claim::Barred);
        assert_eq!(window.settle(FIRST), Some(Settled::Barred));
    }

    #[test]
    fn settling_gives_the_outcome() {
        let mut window = Window::new(4);
        window.claim(FIRST);
        assert_eq!(window.settle(FIRST), None);
        window.executed(FIRST, 7);
        assert_eq!(window.settle(FIRST), Some(Settled::Executed(7)));
        window.claim(OperationId(2));
        window.refused(OperationId(2));
        assert_eq!(window.settle(OperationId(2)), Some(Settled::Barred));
    }

    #[test]
    fn what_left_the_window_is_never_executed_again() {
        let mut window = Window::new(4);
        window.claim(FIRST);
        window.executed(FIRST, 7);
        window.claim(OperationId(5));
        assert_eq!(window.claim(FIRST), Claim::Unknown);
        assert_eq!(window.settle(FIRST), None);
        assert_eq!(window.claim(OperationId(0)), Claim::Unknown);
        assert_eq!(window.settle(OperationId(0)), None);
    }

    #[test]
    fn a_resumed_window_knows_nothing_of_what_came_before() {
        for next in [1, 2, 3, 9] {
            let mut window = Window::resumed(4, OperationId(next));
            for id in 0..next {
                assert_eq!(window.claim(OperationId(id)), Claim::Unknown, "{id} before {next}");
                assert_eq!(window.settle(OperationId(id)), None, "{id} before {next}");
            }
            assert_eq!(window.claim(OperationId(next)), Claim::Execute);
            assert_eq!(window.settle(OperationId(next + 1)), Some(Settled::Barred));
        }
    }
}
