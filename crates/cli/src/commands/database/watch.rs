//! `verbena database watch`: what the relay sees, as it happens.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use clap::Args;
use verbena_database::{Watched, watch_socket};

use crate::commands::at_least_one;
use crate::config::{self, Flags, Whose};
use crate::error::{Error, Result};
use crate::output::{Format, output};

/// Show what the relay of this machine sees, as it happens: each statement, its tag, how exactly its dependencies are known, and the updates that commits begin.
///
/// A statement that is known only by `table` or `everything` reaches more pages than it has to; the reason stands after it. Only the user who runs the relay
/// may watch, because statements hold data of the application's users. The command ends with the relay, or with Ctrl-C. Exit code 3 if no relay runs here.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  verbena database watch
  verbena database watch --wide
  verbena database watch --json | jq -r 'select(.named_by == \"everything\") | .statement'")]
pub struct Watch {
    /// Show only statements that are known by `table` or `everything`, and updates of everything.
    #[arg(long)]
    wide: bool,
    /// End after this many lines; without it, with the relay or Ctrl-C.
    #[arg(long, value_name = "NUMBER", value_parser = at_least_one())]
    count: Option<usize>,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    flags: Flags,
}

impl Watch {
    /// Prints until the relay ends.
    pub fn run(self, file: Option<&Path>) -> Result<()> {
        let settings = config::load(file, &self.flags.0, Whose::Running)?.config.settings();
        let sockets = settings.sockets()?;
        let relay = sockets.iter().find_map(|socket| UnixStream::connect(watch_socket(&socket.path())).ok());
        let Some(relay) = relay else {
            let problem = "no relay runs here that this user may watch: `verbena proxy --database` or `verbena database --to` starts one, and --cluster-name names its node".into();
            return Err(Error::Refused { problem, exit_code: 3 });
        };
        let mut out = output();
        let mut left = self.count.unwrap_or(usize::MAX);
        for line in BufReader::new(relay).lines() {
            let line = line.map_err(|source| Error::System { doing: "watch the relay", source })?;
            let watched: Watched = serde_json::from_str(&line)?;
            if left == 0 {
                break;
            }
            if self.wide && !is_wide(&watched) {
                continue;
            }
            if self.format.json {
                writeln!(out, "{line}")?;
            } else {
                writeln!(out, "{}", in_words(&watched))?;
            }
            out.flush()?;
            left -= 1;
            if left == 0 {
                break;
            }
        }
        Ok(())
    }
}

/// Whether it reaches more pages than those that show a row.
fn is_wide(watched: &Watched) -> bool {
    use verbena_database::NamedBy::{Everything, Table};
    match watched {
        Watched::Statement { named_by, .. } => matches!(named_by, Table | Everything),
        Watched::Update { touches, .. } => touches.iter().any(|name| name == "everything"),
        Watched::Ended { .. } => false,
        Watched::Missed { .. } => true,
    }
}

/// One line, for people.
fn in_words(watched: &Watched) -> String {
    match watched {
        Watched::Statement { statement, tag, named_by, is_held, not_stored, reasons, .. } => {
            let held = if *is_held { "held" } else { "" };
            let tag = tag.as_deref().unwrap_or("-");
            let statement: Vec<&str> = statement.split_whitespace().collect();
            let mut text = format!("{:<10} {held:<5} {tag:<16} {}", named_by.name(), statement.join(" "));
            for why in not_stored.iter().chain(reasons) {
                text.push_str(" -- ");
                text.push_str(why);
            }
            text
        }
        Watched::Update { commits, touches, result, micros } => {
            format!("update     {result}: {commits} commits, {micros} us: {}", touches.join("; "))
        }
        Watched::Ended { outcome, is_confirmed: true } => format!("ended      {outcome}"),
        Watched::Ended { outcome, .. } => format!("ended      {outcome}, not confirmed"),
        Watched::Missed { lines } => format!("missed     {lines} lines: this terminal is too slow"),
    }
}
