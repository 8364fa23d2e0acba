//! The other node of an experiment: this program again, in a process of its own.
//!
//! A row that needs a target starts the running program with [`CHILD_ARGUMENT`] as its first argument, and the program's
//! `main` passes what follows to [`child_main`]; a program whose `main` cannot do that names another one ([`child_program`]). The child
//! takes orders on its standard input and answers on its standard output, one JSON value a line, and ends when its standard input does: it
//! never outlives who started it. With [`ON_CORE`] and a number before its name it stays on that core, with whatever it starts.

use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::cores::Stay;
use crate::error::BenchError;
use crate::{cpu, emulator, locks, memory, primitives, web};

/// The first argument of a program that is to be a target. Not an option for people: it is not in any help text.
pub const CHILD_ARGUMENT: &str = "__bench-target";

/// Stands before a core's number and the name of a target that is to stay on it.
pub(crate) const ON_CORE: &str = "on-core";

/// How long a target may take to answer.
const PATIENCE: Duration = Duration::from_secs(60);

static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Has `program` play the targets of this process from now on, unless another one was named before.
pub fn child_program(program: PathBuf) {
    let _is_first = PROGRAM.set(program).is_ok();
}

/// What plays targets.
pub(crate) fn program() -> io::Result<PathBuf> {
    PROGRAM.get().cloned().map_or_else(std::env::current_exe, Ok)
}

/// Plays the target that `arguments` (what stands behind [`CHILD_ARGUMENT`]) ask for.
pub fn child_main(arguments: &[String]) -> ExitCode {
    match play(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            // The parent may have stopped listening; then the reason is not needed.
            let _ = say(&Answer::<()>::Failed(reason));
            ExitCode::FAILURE
        }
    }
}

fn play(arguments: &[String]) -> Result<(), String> {
    match arguments {
        [on_core, core, rest @ ..] if on_core == ON_CORE => {
            let core = core.parse().map_err(|_| format!("{core} is no number of a core"))?;
            let _stay = Stay::on(core)?;
            play(rest)
        }
        [role, provider] if role == primitives::ROLE => primitives::serve(provider),
        [role, provider, core] if role == primitives::READS => primitives::read(provider, core),
        [role, way, core] if role == primitives::CALLS => primitives::call(way, core),
        [role, place, rank, ways @ ..] if role == locks::NODE => locks::serve_node(place, rank, ways),
        [role, kind, place] if role == locks::CLIENT => locks::serve_client(kind, place),
        [role] if role == memory::IPC_HELPER => memory::serve_ipc(),
        [role] if role == memory::FILE_SERVER => memory::serve_file(),
        [role] if role == primitives::RESPONDER => primitives::respond(),
        [role] if role == emulator::FAR_SITE => emulator::serve_far_site(),
        _ => web::play(arguments).unwrap_or_else(|| Err(format!("no target is called {arguments:?}"))),
    }
}

/// What a target says to an order.
#[derive(Debug, Serialize, serde::Deserialize)]
pub(crate) enum Answer<T> {
    Done(T),
    Failed(String),
}

/// In the target: the next order, or `None` when there will be no more.
pub(crate) fn hear<T: DeserializeOwned>() -> Result<Option<T>, String> {
    let mut line = String::new();
    match io::stdin().lock().read_line(&mut line) {
        Ok(0) => Ok(None),
        Ok(_) => serde_json::from_str(&line).map(Some).map_err(|error| format!("the order {line:?}: {error}")),
        Err(error) => Err(error.to_string()),
    }
}

/// In the target: answers an order.
pub(crate) fn say<T: Serialize>(answer: &Answer<T>) -> Result<(), String> {
    let mut line = serde_json::to_string(answer).map_err(|error| error.to_string())?;
    line.push('\n');
    let mut out = io::stdout().lock();
    out.write_all(line.as_bytes()).and_then(|()| out.flush()).map_err(|error| error.to_string())
}

/// A target process, as its starter sees it. Ended when dropped.
pub(crate) struct Target {
    process: Child,
    orders: ChildStdin,
    answers: Receiver<String>,
}

impl Target {
    /// Starts this program as a target.
    pub(crate) fn start(arguments: &[&str]) -> Result<Self, BenchError> {
        let failed = |error: io::Error| BenchError::Target { doing: "start".to_owned(), reason: error.to_string() };
        let program = program().map_err(failed)?;
        let mut process = Command::new(program)
            .arg(CHILD_ARGUMENT)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let orders = process.stdin.take().expect("invariant: its standard input was asked for");
        let output = process.stdout.take().expect("invariant: its standard output was asked for");
        let (sender, answers) = sync_channel(16);
        // Reads until the target ends, which dropping it brings about.
        std::thread::spawn(move || {
            BufReader::new(output).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Ok(Target { process, orders, answers })
    }

    /// Processor time that it took so far, user and system, in nanoseconds.
    pub(crate) fn cpu_ns(&self) -> Result<u64, BenchError> {
        cpu::taken_ns(self.process.id()).map_err(|error| BenchError::Target {
            doing: "be asked for its processor time".to_owned(),
            reason: error.to_string(),
        })
    }

    /// Gives an order and waits for its answer.
    pub(crate) fn ask<T: DeserializeOwned>(&mut self, order: &impl Serialize, doing: &str) -> Result<T, BenchError> {
        self.tell(order, doing)?;
        self.answer(doing)
    }

    /// Gives an order, whose answer is to be waited for.
    pub(crate) fn tell(&mut self, order: &impl Serialize, doing: &str) -> Result<(), BenchError> {
        let mut line = serde_json::to_string(order).expect("invariant: an order has string keys only");
        line.push('\n');
        let written = self.orders.write_all(line.as_bytes()).and_then(|()| self.orders.flush());
        written.map_err(|error| BenchError::Target { doing: doing.to_owned(), reason: error.to_string() })
    }

    /// Waits for an answer.
    pub(crate) fn answer<T: DeserializeOwned>(&mut self, doing: &str) -> Result<T, BenchError> {
        let failed = |reason: String| BenchError::Target { doing: doing.to_owned(), reason };
        let line = match self.answers.recv_timeout(PATIENCE) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => {
                return Err(BenchError::TargetSilent { doing: doing.to_owned(), after: PATIENCE });
            }
            Err(RecvTimeoutError::Disconnected) => return Err(failed(format!("it ended: {:?}", self.process.wait()))),
        };
        match serde_json::from_str(&line) {
            Ok(Answer::Done(answer)) => Ok(answer),
            Ok(Answer::Failed(reason)) => Err(failed(reason)),
            Err(error) => Err(failed(format!("it said {line:?}: {error}"))),
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // Failing means that it has ended already, which is all that is wanted.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
