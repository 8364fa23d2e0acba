//! `verbena cluster views`: the views that a node has learnt.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, SystemTime};

use clap::Args;
use serde::Serialize;
use verbena_client::wire::{Change, Seen, Why};
use verbena_terms::{Incarnation, Lapse, ViewNumber};

use super::{list, words};
use crate::commands::reach::Reach;
use crate::date::moment;
use crate::error::Result;
use crate::output::{Format, Output, output, write_json};

/// How often `--watch` looks.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Show the views that the running helper has learnt, newest last: time, members, which nodes came, which went and why.
///
/// The helper remembers the last 64 views of its process. Each is compared with the view that this node learnt before: views
/// that the node was not in are missing. Times are those of this machine's clock, in UTC. The keeper says why a node went, to
/// the members of that moment.
///
/// Exit code 0, or 3 if no helper runs.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  verbena cluster views
  verbena cluster views --cluster-name app-1 --json
  verbena cluster views --watch")]
pub struct Command {
    #[command(flatten)]
    format: Format,
    /// Go on, and print each further view when it is learnt and again when it is in effect; with --json, one object a line.
    #[arg(long)]
    watch: bool,
    #[command(flatten)]
    reach: Reach,
}

/// What `--json` prints of a view.
#[derive(Serialize)]
struct Shown<'a> {
    view: ViewNumber,
    learnt: String,
    learnt_ms_ago: u64,
    in_effect_after_ms: Option<u64>,
    members: Vec<Named<'a>>,
    came: Vec<Named<'a>>,
    went: Vec<Gone<'a>>,
}

#[derive(Serialize)]
struct Named<'a> {
    name: &'a str,
    incarnation: Incarnation,
}

#[derive(Serialize)]
struct Gone<'a> {
    #[serde(flatten)]
    who: Named<'a>,
    why: Why,
}

impl Command {
    /// Asks and prints.
    pub fn run(self, file: Option<&Path>) -> Result<()> {
        let mut helper = self.reach.helper(file)?;
        let mut out = output();
        let mut views = helper.views(ViewNumber(0))?;
        if !self.watch {
            if self.format.json {
                return write_json(&mut out, &views.iter().map(shown).collect::<Vec<_>>());
            }
            return views.iter().try_for_each(|seen| print(&mut out, seen));
        }
        // The newest that was printed, and whether it was in effect then.
        let mut printed = (ViewNumber(0), false);
        loop {
            for seen in &views {
                let state = (seen.view, seen.in_effect_after_ms.is_some());
                if state > printed {
                    if self.format.json {
                        serde_json::to_writer(&mut out, &shown(seen))?;
                        writeln!(out)?;
                    } else {
                        print(&mut out, seen)?;
                    }
                    printed = state;
                }
            }
            out.flush()?;
            std::thread::sleep(LOOK_EVERY);
            // The newest again, until it is in effect.
            let after = if printed.1 { printed.0.0 } else { printed.0.0.saturating_sub(1) };
            views = helper.views(ViewNumber(after))?;
        }
    }
}

fn shown(seen: &Seen) -> Shown<'_> {
    let named = |is_it: fn(Change) -> bool| {
        let those = seen.concerned.iter().filter(move |one| is_it(one.change));
        those.map(|one| Named { name: &one.name, incarnation: one.incarnation }).collect()
    };
    let went = seen.concerned.iter().filter_map(|one| match one.change {
        Change::Went(why) => Some(Gone { who: Named { name: &one.name, incarnation: one.incarnation }, why }),
        _ => None,
    });
    Shown {
        view: seen.view,
        learnt: learnt(seen),
        learnt_ms_ago: seen.learnt_ms_ago,
        in_effect_after_ms: seen.in_effect_after_ms,
        members: named(|change| !matches!(change, Change::Went(_))),
        came: named(|change| change == Change::Came),
        went: went.collect(),
    }
}

fn learnt(seen: &Seen) -> String {
    let ago = Duration::from_millis(seen.learnt_ms_ago);
    moment(SystemTime::now().checked_sub(ago).unwrap_or(SystemTime::UNIX_EPOCH))
}

fn print(out: &mut Output, seen: &Seen) -> Result<()> {
    let effect = match seen.in_effect_after_ms {
        Some(after) => format!("in effect after {}", Lapse::millis(after)),
        None => "not heard to be in effect".into(),
    };
    let members = list(seen, |change| (!matches!(change, Change::Went(_))).then(String::new));
    writeln!(out, "{:<5} {} {effect}: {members}", seen.view.to_string(), learnt(seen))?;
    let came = list(seen, |change| (change == Change::Came).then(String::new));
    let went = list(seen, |change| match change {
        Change::Went(why) => Some(format!(" ({})", words(why))),
        _ => None,
    });
    for (what, who) in [("came", came), ("went", went)] {
        if !who.is_empty() {
            writeln!(out, "      {what}  {who}")?;
        }
    }
    Ok(())
}
