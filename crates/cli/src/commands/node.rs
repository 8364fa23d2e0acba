//! `verbena node`: runs the helper.

mod drain;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use clap::{Args, Subcommand};
use serde::Serialize;
use verbena_metrics::Registry;
use verbena_node::{Event, Helper};

use super::running::{self, Signals, in_words, page, say};
use crate::config::{self, Flags, Whose};
use crate::dashboard;
use crate::error::Result;
use crate::output::Format;

/// Run the helper of this machine, or one of several nodes on it.
///
/// It joins the cluster of the configuration. Without one, its cluster is that of the other nodes and proxies of this machine that have no configuration
/// either. Programs reach it through a socket that only this user can use. On SIGTERM and SIGINT it leaves the cluster in good order and ends, as after
/// `verbena node drain`; a second signal ends it at once. On SIGHUP it reads the configuration again, and logs what is wrong with it or takes effect only at
/// the next start. Certificates need no signal: they are read again when they have changed.
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    after_long_help = "\
Examples:
  verbena node
  verbena node --config /etc/verbena.toml --cluster-name app-1
  verbena node --json | jq -r .event"
)]
pub struct Command {
    #[command(subcommand)]
    other: Option<Other>,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    flags: Flags,
}

/// What is done with a helper that runs.
#[derive(Debug, Subcommand)]
enum Other {
    Drain(drain::Command),
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
    api: Option<SocketAddr>,
}

impl Command {
    /// Runs until a signal or a request ends it.
    pub fn run(self, file: Option<&Path>) -> Result<()> {
        if let Some(Other::Drain(drain)) = self.other {
            return drain.run(file);
        }
        let loaded = config::load(file, &self.flags.0, Whose::Nodes)?;
        let settings = loaded.config.settings();
        let json = self.format.json;
        running::raise_open_files(settings.open_files());
        running::block_on(async {
            let mut signals = Signals::listen()?;
            let observer = Box::new(move |event: &Event| say(json, &Line::Happened(event), words));
            let helper = Helper::start(&settings, vec![], Arc::new(Registry::new()), observer)?;
            helper.show(dashboard::FILES);
            let (node, socket, state, (_, api)) = (helper.name(), helper.socket(), helper.state(), helper.http());
            let listening = Listening { event: "listening", node, pid: std::process::id(), socket, state, api };
            say(json, &Line::Listening(listening), words);
            signals.until_the_end(&helper, || running::reload(file, &self.flags, &loaded)).await;
            signals.leave(move || helper.stop()).await?;
            say(json, &Line::Ended { event: "ended" }, words);
            Ok(())
        })
    }
}

/// A line, for people.
fn words(line: &Line<'_>) -> String {
    let event = match line {
        Line::Listening(Listening { node, pid, socket, state, api, .. }) => {
            return format!(
                "node {node} (process {pid}) listens at {}; its state is in {}{}",
                socket.display(),
                state.display(),
                page(*api)
            );
        }
        Line::Ended { .. } => return "ended".into(),
        Line::Happened(event) => event,
    };
    in_words(event)
}
