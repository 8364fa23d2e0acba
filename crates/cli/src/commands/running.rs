//! What commands that run until a signal ends them have in common: limits, signals, leaving, and the lines
//! that they print.

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;
use verbena_node::{Event, Helper};

use crate::config::{self, Flags, Loaded, Whose};
use crate::date::exact_moment;
use crate::error::{Error, Result};
use crate::output::output;

/// Signals to end that come within this time are one: `timeout` and terminals send theirs to the process and to its group.
const ONE_SIGNAL: Duration = Duration::from_millis(500);

/// Starts what serves clients beside a helper. If it cannot start, the helper leaves in order, so that no node waits for what it might have
/// open.
pub(super) fn beside<T>(helper: Helper, start: impl FnOnce(&Helper) -> Result<T>) -> Result<(Helper, T)> {
    match start(&helper) {
        Ok(started) => Ok((helper, started)),
        Err(error) => {
            helper.stop()?;
            Err(error)
        }
    }
}

/// Runs `work` on this thread. What it has left behind when it ends is not waited for.
pub(super) fn block_on(work: impl Future<Output = Result<()>>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|source| Error::System { doing: "start a runtime", source })?;
    let ended = runtime.block_on(work);
    // A user who asked twice does not wait for the leaving.
    runtime.shutdown_background();
    ended
}

/// Raises the number of files that may be open to the highest that the system allows, and says so if `needed` are more.
pub(super) fn raise_open_files(needed: u64) {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "the number of files that may be open could not be raised");
    }
    if let Some(most) = getrlimit(Resource::Nofile).current.filter(|most| *most < needed) {
        tracing::warn!(
            most,
            needed,
            "fewer files may be open than the configured connections may need: connections beyond wait; raise the limit (ulimit -Hn)"
        );
    }
}

/// Reads the configuration again. Nothing of the present one can change under a running node: the members, the length of
/// leases, the node's addresses. So it says what would change.
pub(super) fn reload(file: Option<&Path>, flags: &Flags, running: &Loaded) {
    let file: Option<PathBuf> = file.map(Path::to_owned).or_else(|| running.file.clone());
    let mut read = match config::load(file.as_deref(), &flags.0, Whose::Nodes) {
        Ok(read) => read,
        Err(error) => {
            for mistake in error.located() {
                let (line, column) = (mistake.line.unwrap_or(0), mistake.column.unwrap_or(0));
                tracing::error!(at = mistake.at, line, column, key = mistake.key, "{}", mistake.problem);
            }
            return tracing::error!(%error, "the configuration was not read again: the running one stays");
        }
    };
    let mut running = running.clone();
    let before = config::effective(&mut running);
    let changed: Vec<_> =
        config::effective(&mut read).into_iter().zip(before).filter(|(now, then)| now.value != then.value).collect();
    for (now, then) in &changed {
        tracing::warn!(key = now.key, running = %then.value, file = %now.value, "takes effect at the next start");
    }
    tracing::info!(changed = changed.len(), "the configuration was read again");
}

/// What a signal says.
#[derive(PartialEq)]
pub(super) enum Told {
    /// Leave and end.
    End,
    /// Read the configuration again.
    Reload,
}

/// The signals that a long-running command obeys.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    reload: Signal,
}

impl Signals {
    /// Obeys them from now on. Before the helper starts: a program that reads that it listens may send one.
    pub(super) fn listen() -> Result<Self> {
        let listen = |kind| signal(kind).map_err(|source| Error::System { doing: "listen for signals", source });
        Ok(Signals {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            reload: listen(SignalKind::hangup())?,
        })
    }

    /// Waits until the helper ends by itself, or a signal or a request asks it to.
    pub(super) async fn until_the_end(&mut self, helper: &Helper, reload: impl Fn()) {
        loop {
            tokio::select! {
                () = helper.ended() => return,
                () = helper.asked_to_end() => return,
                told = self.next() => match told {
                    Told::End => return,
                    Told::Reload => reload(),
                },
            }
        }
    }

    /// Waits until a signal asks the command to end.
    pub(super) async fn until_told_to_end(&mut self) {
        while self.next().await != Told::End {}
    }

    /// Leaves by `stop`, which takes a moment; a user who asks a second time does not want to wait for it.
    pub(super) async fn leave(
        mut self,
        stop: impl FnOnce() -> verbena_node::Result<()> + Send + 'static,
    ) -> Result<()> {
        let leaving = tokio::task::spawn_blocking(stop);
        tokio::select! {
            left = leaving => left.map_err(|panic| Error::System { doing: "leave", source: panic.into() })??,
            () = self.end_at_once() => return Err(Error::No),
        }
        Ok(())
    }

    pub(super) async fn next(&mut self) -> Told {
        tokio::select! {
            _ = self.terminate.recv() => Told::End,
            _ = self.interrupt.recv() => Told::End,
            _ = self.reload.recv() => Told::Reload,
        }
    }

    /// Waits for a signal to end that is not the one which it obeys already.
    async fn end_at_once(&mut self) {
        let obeyed = Instant::now();
        while self.next().await != Told::End || !is_another(obeyed.elapsed()) {}
    }
}

/// Whether a signal to end that comes so long after the one that is obeyed is another one.
fn is_another(after: Duration) -> bool {
    after >= ONE_SIGNAL
}

/// A line for programs, with the time as the log has it: what happened can be laid beside the logs of other nodes.
#[derive(Serialize)]
struct Timed<'a, L> {
    #[serde(flatten)]
    line: &'a L,
    time: String,
}

/// Prints one line, as JSON or in words. The reader may have gone: the command goes on.
pub(super) fn say<L: Serialize>(json: bool, line: &L, words: impl FnOnce(&L) -> String) {
    let mut out = output();
    let _ = match serde_json::to_string(&Timed { line, time: exact_moment(SystemTime::now()) }) {
        Ok(text) if json => writeln!(out, "{text}"),
        _ => writeln!(out, "{}", words(line)),
    };
}

/// Where the dashboard is, for people, at the end of a line.
pub(super) fn page(api: Option<SocketAddr>) -> String {
    api.map(|api| format!("; the dashboard is at http://{api}/")).unwrap_or_default()
}

/// An event, for people.
pub(super) fn in_words(event: &Event) -> String {
    match event {
        Event::Life { incarnation, provider, why, address } => {
            format!("began incarnation {incarnation} on {provider} ({why}), reached at {address}")
        }
        Event::ViewLearnt { view, members } => {
            let members: Vec<_> = members.iter().map(ToString::to_string).collect();
            format!("view {view}: {}", members.join(" "))
        }
        Event::ViewInEffect { view } => format!("view {view} is in effect"),
        Event::LeaseLost => "the lease ran out: nothing is served until it is renewed".into(),
        Event::Expelled { next: Some(next) } => format!("this incarnation is over: joining again as {next}"),
        Event::Expelled { next: None } => "this incarnation is over: joining again as another".into(),
        Event::Refused { reason } => format!("the keeper refuses: {reason}"),
        Event::Trouble { what, reason } => format!("{what}: {reason}"),
        Event::Succeeded { incarnation } => {
            format!(
                "the keeper of this machine's cluster has ended: this process is the keeper from now on, as {incarnation}"
            )
        }
        Event::Left => "left the cluster".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_that_come_together_are_one_and_a_later_one_is_another() {
        let ms = Duration::from_millis;
        assert!([0, 50, 100, 499].iter().all(|after| !is_another(ms(*after))));
        assert!([500, 750, 60_000].iter().all(|after| is_another(ms(*after))));
    }
}
