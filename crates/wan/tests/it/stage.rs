//! Networks that one test of this process has at a time.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

use verbena_wan::{Error, Plan, Wan};

/// Each keeps a core busy, and what is timed or counted is this process's.
pub struct Stage {
    wan: Wan,
    _turn: MutexGuard<'static, ()>,
}

impl Stage {
    pub fn up(plan: Plan) -> Result<Stage, Error> {
        let turn = turn();
        Ok(Stage { wan: Wan::up(plan)?, _turn: turn })
    }
}

impl Deref for Stage {
    type Target = Wan;

    fn deref(&self) -> &Wan {
        &self.wan
    }
}

impl DerefMut for Stage {
    fn deref_mut(&mut self) -> &mut Wan {
        &mut self.wan
    }
}

/// Whose holder alone has networks.
pub fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}
