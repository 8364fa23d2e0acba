//! `verbena node`: runs the helper.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use serde::Serialize;
use tokio::signal::unix::{Signal, SignalKind, signal};
use verbena_metrics::Registry;
use verbena_node::{Event, Helper};

use crate::config::{self, Flags, Loaded, Whose};
use crate::error::{Error, Result};
use crate::output::{Format, output};

/// Run the helper of this machine, or of one node of several on it.
///
/// It joins the cluster of the configuration; without one the node is alone. Programs reach it through a socket that only this user
/// can use. On SIGTERM and SIGINT it leaves the cluster in good order and ends; a second one ends it at once. On SIGHUP it
/// reads the configuration again and says what is wrong with it or what takes effect at the next start only; certificates need no signal,
/// they are read again when they have changed.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  verbena node
  verbena node --config /etc/verbena.toml --cluster-name app-1
  verbena node --json | jq -r .event")]
pub struct Command {
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    flags: Flags,
}

/// What is printed, a line each.
#[derive(Serialize)]
#[serde(untagged)]
enum Line<'a> {
    Listening(Listening<'a>),
    Happened(&'a Event),
    Ended { event: &'static str },
}

#[derive(Serialize)]
struct Listening<'a> {
    event: &'static str,
    node: &'a str,
    pid: u32,
    socket: &'a Path,
    state: &'a Path,
}

impl Command {
    /// Runs until it is told to end.
    pub fn run(self, file: Option<&Path>) -> Result<()> {
        let loaded = config::load(file, &self.flags.0, Whose::Nodes)?;
        let settings = loaded.config.settings();
        let json = self.format.json;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|source| Error::System { doing: "start a runtime", source })?;
        let ended = runtime.block_on(async {
            // Before the helper: whoever reads that it listens may send a signal.
            let mut signals = Signals::listen()?;
            let observer = Box::new(move |event: &Event| say(json, &Line::Happened(event)));
            let helper = Helper::start(&settings, vec![], Arc::new(Registry::new()), observer)?;
            let (node, socket, state) = (settings.name(), helper.socket(), &settings.state_directory()?);
            say(json, &Line::Listening(Listening { event: "listening", node, pid: std::process::id(), socket, state }));
            loop {
                tokio::select! {
                    () = helper.ended() => break,
                    signal = signals.next() => match signal {
                        Told::End => break,
                        Told::Reload => reload(file, &self.flags, &loaded),
                    },
                }
            }
            // Leaving takes a moment; who asks twice does not want to wait for it.
            let leaving = tokio::task::spawn_blocking(move || helper.stop());
            tokio::select! {
                left = leaving => left.map_err(|panic| Error::System { doing: "leave", source: panic.into() })??,
                () = signals.end() => return Err(Error::No),
            }
            say(json, &Line::Ended { event: "ended" });
            Ok(())
        });
        // Who asked twice does not wait for the leaving either.
        runtime.shutdown_background();
        ended
    }
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
    pub(super) fn listen() -> Result<Self> {
        let listen = |kind| signal(kind).map_err(|source| Error::System { doing: "listen for signals", source });
        Ok(Signals {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            reload: listen(SignalKind::hangup())?,
        })
    }

    pub(super) async fn next(&mut self) -> Told {
        tokio::select! {
            _ = self.terminate.recv() => Told::End,
            _ = self.interrupt.recv() => Told::End,
            _ = self.reload.recv() => Told::Reload,
        }
    }

    pub(super) async fn end(&mut self) {
        while self.next().await != Told::End {}
    }
}

/// Reads the configuration again. Nothing of what there is can change under a running node: who is in, how long leases are,
/// where it is reached. So it says what would change.
fn reload(file: Option<&Path>, flags: &Flags, running: &Loaded) {
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

/// Prints one line. Who reads may have gone: the helper goes on.
fn say(json: bool, line: &Line<'_>) {
    let mut out = output();
    let _ = match serde_json::to_string(line) {
        Ok(text) if json => writeln!(out, "{text}"),
        _ => writeln!(out, "{}", words(line)),
    };
}

fn words(line: &Line<'_>) -> String {
    let event = match line {
        Line::Listening(Listening { node, pid, socket, state, .. }) => {
            return format!(
                "node {node} (process {pid}) listens at {}; its state is in {}",
                socket.display(),
                state.display()
            );
        }
        Line::Ended { .. } => return "ended".into(),
        Line::Happened(event) => event,
    };
    in_words(event)
}

/// An event, for people.
pub(super) fn in_words(event: &Event) -> String {
    match event {
        Event::Life { incarnation, provider, why, address } => {
            format!("began life {incarnation} on {provider} ({why}), reached at {address}")
        }
        Event::ViewLearnt { view, members } => {
            let members: Vec<_> = members.iter().map(ToString::to_string).collect();
            format!("view {view}: {}", members.join(" "))
        }
        Event::ViewInEffect { view } => format!("view {view} is in effect"),
        Event::LeaseLost => "the lease ran out: nothing is served until it is renewed".into(),
        Event::Expelled { next } => format!("this life is over: joining again as {next}"),
        Event::Refused { reason } => format!("the keeper refuses: {reason}"),
        Event::Trouble { what, reason } => format!("{what}: {reason}"),
        Event::Left => "left the cluster".into(),
    }
}
