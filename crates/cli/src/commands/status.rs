//! `verbena status`: how the helper is.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use clap::Args;
use serde::Serialize;
use verbena_client::wire::{Member, State, Status};
use verbena_client::{Helper, Report, Socket};
use verbena_terms::Lapse;

use crate::config::{self, Flags, Whose};
use crate::error::{Error, Result};
use crate::output::{Format, Output, output, write_json};

const GOOD: Style = AnsiColor::Green.on_default();
const BAD: Style = AnsiColor::Red.on_default();

/// Show how the running helper is: its life, lease, view and members.
///
/// Where nothing is configured: the first of this machine's nodes and proxies, with the others as members. `--cluster-name local-2`
/// shows the one of that name.
///
/// Exit code 0 if the node is a member with a lease, 1 if it is not, 3 if no helper runs.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  verbena status
  verbena status --cluster-name app-1 --json
  verbena status --metrics")]
pub struct Command {
    #[command(flatten)]
    format: Format,
    /// Print the helper's metrics in the OpenMetrics text format instead.
    #[arg(long, conflicts_with = "json")]
    metrics: bool,
    /// How long to wait for the helper.
    #[arg(long, value_name = "TIME", default_value_t = Lapse::seconds(5))]
    patience: Lapse,
    #[command(flatten)]
    flags: Flags,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    status: &'a Status,
    member_list: &'a [Member],
}

impl Command {
    /// Asks and prints.
    pub fn run(self, file: Option<&Path>) -> Result<()> {
        let settings = config::load(file, &self.flags.0, Whose::Nodes)?.config.settings();
        let mut helper = connect(&settings.sockets()?, self.patience.0.max(Duration::from_millis(1)))?;
        let mut out = output();
        if self.metrics {
            return Ok(out.write_all(helper.metrics()?.as_bytes())?);
        }
        let report = helper.report()?;
        if self.format.json {
            write_json(&mut out, &Shown { status: &report.status, member_list: &report.members })?;
        } else {
            print(&mut out, &report)?;
        }
        if report.status.state == State::Member { Ok(()) } else { Err(Error::No) }
    }
}

/// The first helper that listens at one of these sockets; if none does, why not at the first.
fn connect(sockets: &[Socket], patience: Duration) -> Result<Helper> {
    let mut missed = None;
    for socket in sockets {
        match Helper::connect(socket, patience) {
            Err(error @ verbena_client::Error::NoHelper { .. }) => {
                missed.get_or_insert(error);
            }
            other => return Ok(other?),
        }
    }
    Err(missed.expect("invariant: there is at least one socket").into())
}

fn print(out: &mut Output, Report { status, members }: &Report) -> Result<()> {
    let (state, style) = match status.state {
        State::Member => ("member", GOOD),
        State::Joining => ("joining: in no view yet", BAD),
        State::Lapsed => ("without lease: serves nothing until it is renewed", BAD),
        State::Leaving => ("leaving", BAD),
    };
    writeln!(out, "node     {} (verbena {}, process {})", status.name, status.version, status.pid)?;
    writeln!(out, "life     {}, {style}{state}{style:#}", status.incarnation)?;
    writeln!(out, "uptime   {}", rounded(status.uptime_ms))?;
    writeln!(out, "lease    {} left of {}", rounded(status.lease_left_ms), rounded(status.lease_ms))?;
    let keeper =
        status.keeper_incarnation.map_or_else(|| format!("{}, not met yet", status.keeper), |who| who.to_string());
    writeln!(out, "keeper   {}", if status.keeper == status.incarnation.rank.0 { "this node".into() } else { keeper })?;
    writeln!(out, "fabric   {} ({})", status.fabric.provider, status.fabric.why)?;
    writeln!(out, "view     {} acknowledged {} in effect {}", status.view, status.acknowledged, status.in_effect)?;
    if status.departed > 0 {
        writeln!(out, "departed {} not settled", status.departed)?;
    }
    if let Some(refused) = &status.refused {
        writeln!(out, "refused  {BAD}{refused}{BAD:#}")?;
    }
    writeln!(out, "clients  {}", status.clients)?;
    let width = members.iter().map(|member| member.name.len()).max().unwrap_or(0);
    for Member { name, incarnation, address, roles, acknowledged, out: is_out } in members {
        let standing = match (acknowledged, is_out) {
            (_, true) => "out of lease",
            (true, false) => "ready",
            (false, false) => "not ready yet",
        };
        writeln!(out, "member   {name:<width$} {incarnation:<8} {standing:<13} {roles} {address}")?;
    }
    Ok(())
}

/// To the unit that matters.
fn rounded(millis: u64) -> Lapse {
    let seconds = if millis >= 10_000 { millis / 1000 * 1000 } else { millis };
    Lapse::millis(seconds)
}
