//! `verbena node drain`: has a node leave in good order.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use clap::Args;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::Serialize;
use verbena_client::Draining;
use verbena_client::wire::{Departure, Exit, Leaving, Work};
use verbena_terms::{Incarnation, Lapse, ViewNumber};

use crate::commands::reach::connect;
use crate::config::Flags;
use crate::error::{Error, Result};
use crate::output::{Format, Output, output};

/// How often it is looked how far it is.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Have the running helper of this machine, a node or a proxy, leave the cluster in good order and end; wait until it is gone.
///
/// It does what SIGTERM does, and reports it. A proxy takes no more requests and ends those under way; no update begins, and open updates
/// end; the keeper makes a view without the node; when that view is in effect, the process ends. Then no other node waits for it, and it
/// can be started again, also in another version. To restart a cluster do so node by node, each when `verbena status` shows the one before
/// as a member.
///
/// Without a configuration it is the first of this machine's nodes and proxies; `--cluster-name local-2` names another.
///
/// Exit code 0 when it is gone and had nothing open. 1 when it is gone and an update was open, or of unknown outcome, so that the
/// others keep its pages out of the cache for a while; when the keeper made no view without it, so that the others wait for its lease; or when it was not gone
/// in time, in which case it goes on leaving. 3 if no helper runs.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  verbena node drain
  verbena node drain --config /etc/verbena.toml --cluster-name app-1 --timeout 1m
  verbena node drain --json | jq -r .event")]
pub struct Command {
    #[command(flatten)]
    format: Format,
    /// How long to wait until it is gone.
    #[arg(long, value_name = "TIME", default_value_t = Lapse::seconds(30), value_parser = Lapse::or_seconds)]
    timeout: Lapse,
    /// How long to wait for each answer of the helper.
    #[arg(long, value_name = "TIME", default_value_t = Lapse::seconds(5), value_parser = Lapse::or_seconds)]
    patience: Lapse,
    #[command(flatten)]
    flags: Flags,
}

/// What is printed, a line each.
#[derive(Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Line<'a> {
    /// It was asked.
    Asked { node: &'a str, incarnation: Incarnation, pid: u32 },
    /// It ends what is open.
    Closing { own_updates: u64 },
    /// The keeper was asked for a view without it.
    Leaving { at_rest: bool },
    /// It has left.
    Left { at_rest: bool, view: Option<ViewNumber>, lease_runs_out: bool },
    /// Its process has ended.
    Ended { pid: u32, took_ms: u64 },
}

impl Command {
    /// Asks, and waits until it is gone.
    pub fn run(self, file: Option<&Path>) -> Result<()> {
        let mut helper = connect(file, &self.flags, self.patience)?;
        let status = helper.report()?.status;
        // It answered a moment ago and is asked by the same connection: so this is its process, and no later one of the number.
        let process = open(status.pid)?;
        let began = Instant::now();
        let until = began + self.timeout.0;
        let late = || Error::NotGone { node: status.name.clone(), waited: self.timeout };
        let mut draining = helper.drain()?;
        let mut out = Lines { out: output(), json: self.format.json };
        out.say(&Line::Asked { node: &status.name, incarnation: status.incarnation, pid: status.pid })?;
        let departure = wait(&mut draining, until, &mut out)?.ok_or_else(late)?;
        let view = if let Exit::InEffect(view) = departure.exit { Some(view) } else { None };
        let lease_runs_out = departure.exit == Exit::LeaseRunsOut;
        out.say(&Line::Left { at_rest: departure.at_rest, view, lease_runs_out })?;
        if !has_ended(&process, until.saturating_duration_since(Instant::now()))? {
            return Err(late());
        }
        let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        out.say(&Line::Ended { pid: status.pid, took_ms })?;
        if departure.at_rest && !lease_runs_out { Ok(()) } else { Err(Error::No) }
    }
}

/// How it left, if it has by then. Says how far it is meanwhile.
fn wait(draining: &mut Draining, until: Instant, out: &mut Lines) -> Result<Option<Departure>> {
    let mut said = None;
    while Instant::now() < until {
        if let Some(departure) = draining.wait(LOOK_EVERY)? {
            return Ok(Some(departure));
        }
        let Some(Work { pages, leaving }) = draining.work()? else { continue };
        let line = match leaving {
            // A proxy still ends what its clients wait for.
            None | Some(Leaving::Closing) => Line::Closing { own_updates: pages.own_updates },
            Some(leaving) => Line::Leaving { at_rest: leaving == Leaving::AtRest },
        };
        if said.as_ref() != Some(&line) {
            out.say(&line)?;
            said = Some(line);
        }
    }
    Ok(None)
}

fn open(process: u32) -> Result<OwnedFd> {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
    let opened = pid.ok_or(rustix::io::Errno::SRCH).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()));
    opened.map_err(|error| Error::System { doing: "watch the helper's process", source: error.into() })
}

fn has_ended(process: &OwnedFd, within: Duration) -> Result<bool> {
    let timeout = Timespec::try_from(within).ok();
    match poll(&mut [PollFd::new(process, PollFlags::IN)], timeout.as_ref()) {
        Ok(ready) => Ok(ready > 0),
        Err(error) => Err(Error::System { doing: "wait for the helper's process", source: error.into() }),
    }
}

/// The lines of the report.
struct Lines {
    out: Output,
    json: bool,
}

impl Lines {
    fn say(&mut self, line: &Line<'_>) -> Result<()> {
        if self.json {
            serde_json::to_writer(&mut self.out, line)?;
            writeln!(self.out)?;
        } else {
            writeln!(self.out, "{}", words(line))?;
        }
        Ok(self.out.flush()?)
    }
}

/// A line, for people.
fn words(line: &Line<'_>) -> String {
    match line {
        Line::Asked { node, incarnation, pid } => {
            format!("asked {node} {incarnation} (process {pid}) to leave and end")
        }
        Line::Closing { own_updates } => format!("it begins nothing more; updates of it that are open: {own_updates}"),
        Line::Leaving { at_rest: true } => "nothing of it is open; waiting for a view without it".into(),
        Line::Leaving { at_rest: false } => "updates of it are open; waiting for a view without it".into(),
        Line::Left { at_rest, view, lease_runs_out } => {
            let rest = if *at_rest { "at rest" } else { "with updates open: the others settle it as one that died" };
            let how = match view {
                Some(view) => format!("{view} is in effect without it"),
                None if *lease_runs_out => "no view without it came in time: the others wait for its lease".into(),
                None => "it was in no view".into(),
            };
            format!("it left {rest}; {how}")
        }
        Line::Ended { pid, took_ms } => {
            format!("process {pid} has ended, {} after it was asked", Lapse::millis(*took_ms))
        }
    }
}
