//! Checkpoints that are consistent across processes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use verbena_client::CheckpointRecord;

use crate::arguments::{self, Limit};
use crate::connection::{Shared, TURN};
use crate::errors::NotInTime;
use crate::memory::bytes_of;

/// From one look at whether a checkpoint is complete to the next, at first; then twice as long each time, up to a turn.
const SHORTEST_PAUSE: Duration = Duration::from_micros(50);

/// What several processes save together, so that all can go on from the same point: made by Memory.make_checkpoints, found by Memory.checkpoints. Each saves its part of checkpoint
/// 1, 2, 3, ...; one is complete when all have.
#[pyclass(frozen, module = "verbena")]
pub(crate) struct Checkpoints {
    shared: Arc<Shared>,
    name: String,
}

/// A process's place among those that save.
#[pyclass(frozen, module = "verbena")]
pub(crate) struct Joined {
    shared: Arc<Shared>,
    name: String,
    process: u32,
    joined: verbena_client::Joined,
    part: Option<Py<PyBytes>>,
}

/// How the saving stands.
#[pyclass(frozen, get_all, module = "verbena")]
pub(crate) struct CheckpointState {
    /// How often all began again, and 1.
    era: u64,
    /// The oldest complete checkpoint that is there.
    oldest: u64,
    /// The newest; 0 if there is none.
    complete: u64,
    /// How many have room.
    kept: u32,
    /// Bytes that a part may have.
    bytes: u64,
    /// Of each process: whether it has joined in this era, and which checkpoint it saved last in it (0: none).
    processes: Vec<(bool, u64)>,
}

impl Checkpoints {
    pub(crate) fn new(shared: Arc<Shared>, name: String) -> Self {
        Checkpoints { shared, name }
    }
}

#[pymethods]
impl Checkpoints {
    /// What they are called.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// A process begins, or begins again: gives its place, with its part of the newest complete checkpoint. If it joins twice in an era it has crashed, and all go back to that.
    ///
    /// process: which, from 0 on.
    fn join(&self, py: Python<'_>, process: u32) -> PyResult<Joined> {
        let (joined, part) = self.shared.with(py, |memory| memory.join_checkpoints(&self.name, process))?;
        let part = part.map(|part| PyBytes::new(py, &part).unbind());
        Ok(Joined { shared: self.shared.clone(), name: self.name.clone(), process, joined, part })
    }

    /// A process's part of a complete checkpoint, for who only looks. Raises NotFound for one that is not complete, or not there any more.
    fn part<'py>(&self, py: Python<'py>, process: u32, number: u64) -> PyResult<Bound<'py, PyBytes>> {
        let part = self.shared.with(py, |memory| memory.checkpoint_part(&self.name, process, number))?;
        Ok(PyBytes::new(py, &part))
    }

    /// How the saving stands.
    fn show(&self, py: Python<'_>) -> PyResult<CheckpointState> {
        let record = self.shared.with(py, |memory| memory.checkpoints(&self.name))?;
        let CheckpointRecord { era, oldest, complete, kept, bytes, processes } = record;
        Ok(CheckpointState { era, oldest, complete, kept, bytes, processes })
    }

    /// Makes all processes begin again from an older complete checkpoint: each is told by its next save. Raises NotFound for one that is not there any more.
    fn roll_back(&self, py: Python<'_>, number: u64) -> PyResult<()> {
        self.shared.with(py, |memory| memory.roll_back(&self.name, number))
    }

    /// Gives up all checkpoints of this name. If that ends early it can be done again.
    fn remove(&self, py: Python<'_>) -> PyResult<()> {
        self.shared.with(py, |memory| memory.remove_checkpoints(&self.name))
    }

    fn __repr__(&self) -> String {
        format!("<verbena.Checkpoints {}>", self.name)
    }
}

#[pymethods]
impl Joined {
    /// Which process.
    #[getter]
    fn process(&self) -> u32 {
        self.process
    }

    /// The era that it is in.
    #[getter]
    fn era(&self) -> u64 {
        self.joined.era
    }

    /// The checkpoint that it goes on from; 0 if there is none.
    #[getter]
    fn number(&self) -> u64 {
        self.joined.number
    }

    /// Its part of that; None if there is none.
    #[getter]
    fn part(&self, py: Python<'_>) -> Option<Py<PyBytes>> {
        self.part.as_ref().map(|part| part.clone_ref(py))
    }

    /// Saves its part of checkpoint `number`, the next after the newest complete one, and gives which is the newest complete one then. Raises RolledBack if another process began
    /// again: this one is to join again, and what it did since the checkpoint that it then gets did not happen.
    ///
    /// data: any buffer: bytes, an array of NumPy.
    fn save(&self, py: Python<'_>, number: u64, data: &Bound<'_, PyAny>) -> PyResult<u64> {
        let data = bytes_of(data)?;
        let era = self.joined.era;
        self.shared.with(py, |memory| memory.save_checkpoint(&self.name, self.process, era, number, &data))
    }

    /// Waits until all have saved checkpoint `number`: `timeout` seconds, as long as it takes with None. Raises NotInTime, and RolledBack as `save`.
    ///
    /// stop: an event that ends the wait when another thread sets it; raises NotInTime too.
    #[pyo3(signature = (number, timeout=None, *, stop=None))]
    fn wait(&self, py: Python<'_>, number: u64, timeout: Option<f64>, stop: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let at_most = match arguments::limit(timeout)? {
            Limit::Now => Some(Duration::ZERO),
            Limit::Within(limit) => Some(limit),
            Limit::None => None,
        };
        let (began, era) = (Instant::now(), self.joined.era);
        let mut pause = SHORTEST_PAUSE;
        loop {
            let is_over = at_most.is_some_and(|at_most| began.elapsed() >= at_most);
            if self.shared.with(py, |memory| memory.wait_for_checkpoint(&self.name, era, number, Duration::ZERO))? {
                return Ok(());
            }
            if is_over {
                let words = format!("checkpoint {number} was not complete within {:?}", began.elapsed());
                return Err(NotInTime::new_err(words));
            }
            py.check_signals()?;
            if arguments::is_set(stop)? {
                return Err(NotInTime::new_err("the wait was stopped"));
            }
            py.detach(|| std::thread::sleep(pause));
            pause = TURN.min(pause * 2);
        }
    }

    fn __repr__(&self) -> String {
        let verbena_client::Joined { era, number } = self.joined;
        format!("<verbena.Joined process {} of {}, era {era}, from {number}>", self.process, self.name)
    }
}

#[pymethods]
impl CheckpointState {
    fn __repr__(&self) -> String {
        format!("<verbena.CheckpointState era {}, complete {} to {}>", self.era, self.oldest, self.complete)
    }
}
