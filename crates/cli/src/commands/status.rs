//! `verbena status`: how the helper is.

use std::io::Write;
use std::path::Path;

use anstyle::{AnsiColor, Style};
use clap::Args;
use serde::Serialize;
use verbena_client::Roll;
use verbena_client::api::Node;
use verbena_client::wire::{Departed, Member, Pages, SAMPLED_KEYS, State, Status};
use verbena_terms::Lapse;

use crate::commands::reach::Reach;
use crate::error::{Error, Result};
use crate::output::{Format, Output, output, write_json};

const GOOD: Style = AnsiColor::Green.on_default();
const BAD: Style = AnsiColor::Red.on_default();

/// A member whose last report is older than this, in milliseconds, is shown as one that does not answer.
const SILENT_MS: u64 = 500;
/// Beside the pages of a home that does not know what is open.
const AWAITING: &str = ", none cached: it does not know yet what others have open";

/// Show the running helper's state, incarnation, lease and view, and the state of the view's members.
///
/// Of each member: its incarnation, whether it has acknowledged the view, what is left of its lease as it reports itself now, and
/// the part of all names whose home it is. That is counted over 65536 names: a share of names, not of requests.
///
/// Without a configuration it is the first of this machine's nodes and proxies, with the others as members. `--cluster-name local-2`
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
    #[command(flatten)]
    reach: Reach,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    status: &'a Status,
    pages: &'a Pages,
    member_list: &'a [Node],
    departed_list: &'a [Departed],
    sampled_keys: u32,
}

impl Command {
    /// Asks and prints.
    pub fn run(self, file: Option<&Path>) -> Result<()> {
        let mut helper = self.reach.helper(file)?;
        let mut out = output();
        if self.metrics {
            return Ok(out.write_all(helper.metrics()?.as_bytes())?);
        }
        let roll = helper.roll()?;
        let Roll { status, nodes, departed, work } = &roll;
        if self.format.json {
            let shown = Shown {
                status,
                pages: &work.pages,
                member_list: nodes,
                departed_list: departed,
                sampled_keys: SAMPLED_KEYS,
            };
            write_json(&mut out, &shown)?;
        } else {
            print(&mut out, &roll)?;
        }
        if status.state == State::Member { Ok(()) } else { Err(Error::No) }
    }
}

fn print(out: &mut Output, Roll { status, nodes, departed, work }: &Roll) -> Result<()> {
    let (state, style) = match status.state {
        State::Member => ("member", GOOD),
        State::Joining => ("joining: in no view yet", BAD),
        State::Lapsed => ("without lease: serves nothing until it is renewed", BAD),
        State::Leaving => ("leaving", BAD),
    };
    writeln!(out, "node     {} (verbena {}, process {})", status.name, status.version, status.pid)?;
    writeln!(out, "state    {style}{state}{style:#}, incarnation {}", status.incarnation)?;
    writeln!(out, "uptime   {}", rounded(status.uptime_ms))?;
    writeln!(out, "lease    {} left of {}", rounded(status.lease_left_ms), rounded(status.lease_ms))?;
    let keeper =
        status.keeper_incarnation.map_or_else(|| format!("{}, not met yet", status.keeper), |who| who.to_string());
    writeln!(out, "keeper   {}", if status.keeper == status.incarnation.rank.0 { "this node".into() } else { keeper })?;
    writeln!(out, "fabric   {} ({})", status.fabric.provider, status.fabric.why)?;
    let effect = if status.in_effect == status.view { "in effect" } else { "not in effect yet" };
    let acknowledged = status.acknowledged;
    writeln!(out, "view     {} {effect} (acknowledged {acknowledged}, in effect {})", status.view, status.in_effect)?;
    let Pages { registered, open_updates_here, awaiting, own_updates, .. } = work.pages;
    writeln!(out, "updates  {own_updates} of this node open, {open_updates_here} open at this home")?;
    writeln!(out, "pages    {registered} at this home{}", if awaiting > 0 { AWAITING } else { "" })?;
    for Departed { name, incarnation, since, keeps_out } in departed {
        let name = name.as_deref().map(|name| format!("{name} ")).unwrap_or_default();
        let why = keeps_out.map_or_else(
            || "another home waits for what it may have open".to_owned(),
            |keeps_out| format!("{BAD}{keeps_out}{BAD:#}"),
        );
        writeln!(out, "departed {name}{incarnation} is not settled, gone since {since}: {why}")?;
    }
    if let Some(refused) = &status.refused {
        writeln!(out, "refused  {BAD}{refused}{BAD:#}")?;
    }
    if let Some(waits) = &status.waits {
        writeln!(out, "waits    {BAD}for {waits}{BAD:#}")?;
    }
    writeln!(out, "clients  {}", status.clients)?;
    let width = nodes.iter().map(|node| node.member.name.len()).max().unwrap_or(0);
    for node in nodes {
        let Member { name, incarnation, address, roles, acknowledged, out: is_out } = &node.member;
        let standing = match (acknowledged, is_out) {
            (_, true) => "out of lease",
            (true, false) => "ready",
            (false, false) => "not ready yet",
        };
        let (lease, share) = (lease(node), share(node));
        writeln!(
            out,
            "member   {name:<width$} {incarnation:<8} {standing:<13} {lease:<12} {share:<7} {roles} {address}"
        )?;
    }
    if nodes.iter().any(|node| node.keys.is_some()) {
        writeln!(
            out,
            "homes    the part of all names (not of the pages that are asked for) that each is home of, by {SAMPLED_KEYS} names"
        )?;
    }
    Ok(())
}

/// What is left of a member's lease, as it says itself.
fn lease(node: &Node) -> String {
    match &node.heard {
        Some(heard) if heard.age_ms < SILENT_MS => format!("lease {}", rounded(heard.told.lease_left_ms)),
        _ => "no answer".into(),
    }
}

/// Of which part of all names it is the home.
fn share(node: &Node) -> String {
    node.keys.map_or_else(|| "-".into(), |keys| format!("{:.1}%", f64::from(keys) * 100.0 / f64::from(SAMPLED_KEYS)))
}

/// To the unit that matters.
pub(super) fn rounded(millis: u64) -> Lapse {
    let seconds = if millis >= 10_000 { millis / 1000 * 1000 } else { millis };
    Lapse::millis(seconds)
}
