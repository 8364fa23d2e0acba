//! `verbena cluster expel`: takes a member out of the cluster.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use verbena_client::wire::{Change, Seen, Why};
use verbena_client::{Helper, Report};
use verbena_terms::{Incarnation, Lapse, ViewNumber};

use super::words;
use crate::commands::reach::connect;
use crate::config::Flags;
use crate::error::{Error, Result};
use crate::output::{Format, output, write_json};

/// How often the helper is asked whether it has happened.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How often the request to the keeper is repeated: it may not have heard, or been started again.
const SAY_EVERY: Duration = Duration::from_millis(500);

/// Take a member's present incarnation out of the cluster, and wait for the view without it.
///
/// The keeper grants the member no further lease, so a view without it is made within two leases: the lease that it has runs out in
/// full. Its open updates are settled as those of a node that died. Use it for a node that holds the others up, or that must
/// not act any more and cannot be reached.
///
/// A node that still runs comes back at once as another incarnation, with an empty cache: to take it away for good, stop its process
/// (`verbena node drain` on its machine does it in good order). Ask any member; the keeper's own node cannot be expelled.
///
/// Exit code 0 when a view without it is in effect, 1 if the name is in no view, is the keeper's, or no such view came in time, 3 if no
/// helper runs.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  verbena cluster expel app-3
  verbena cluster expel app-3 --config /etc/verbena.toml --cluster-name app-1 --json")]
pub struct Command {
    /// The member's name, as `verbena status` shows it.
    name: String,
    #[command(flatten)]
    format: Format,
    /// How long to wait for the view without it.
    #[arg(long, value_name = "TIME", default_value_t = Lapse::seconds(30), value_parser = Lapse::or_seconds)]
    timeout: Lapse,
    /// How long to wait for each answer of the helper.
    #[arg(long, value_name = "TIME", default_value_t = Lapse::seconds(5), value_parser = Lapse::or_seconds)]
    patience: Lapse,
    #[command(flatten)]
    flags: Flags,
}

/// What happened.
#[derive(Serialize)]
struct Expelled<'a> {
    name: &'a str,
    expelled: Incarnation,
    view: ViewNumber,
    why: Why,
    /// Another incarnation of the node that is in by then.
    next: Option<Incarnation>,
    took_ms: u64,
}

impl Command {
    /// Asks, waits and says what happened.
    pub fn run(self, file: Option<&Path>) -> Result<()> {
        let mut helper = connect(file, &self.flags, self.patience)?;
        let Report { status, members } = helper.report()?;
        let Some(member) = members.iter().find(|member| member.name == self.name) else {
            let names = members.into_iter().map(|member| member.name).collect();
            return Err(Error::NotIn { given: self.name, view: status.view, names });
        };
        let (who, asked) = (member.incarnation, Instant::now());
        let seen = self.wait(&mut helper, who, status.view)?;
        let change = seen.concerned.iter().find(|one| one.incarnation == who).map(|one| one.change);
        let other = seen.concerned.iter().find(|one| one.name == self.name && one.incarnation != who);
        let happened = Expelled {
            name: &self.name,
            expelled: who,
            view: seen.view,
            why: if let Some(Change::Went(why)) = change { why } else { Why::Untold },
            next: other.filter(|one| !matches!(one.change, Change::Went(_))).map(|one| one.incarnation),
            took_ms: u64::try_from(asked.elapsed().as_millis()).unwrap_or(u64::MAX),
        };
        self.say(&happened)
    }

    /// The first view without `who`, when it is in effect.
    fn wait(&self, helper: &mut Helper, who: Incarnation, known: ViewNumber) -> Result<Seen> {
        let began = Instant::now();
        let (mut after, mut said) = (known, None::<Instant>);
        while began.elapsed() < self.timeout.0 {
            let views = helper.views(after)?;
            let is_in = |seen: &&Seen| {
                let member = seen.concerned.iter().find(|one| one.incarnation == who);
                member.is_some_and(|member| !matches!(member.change, Change::Went(_)))
            };
            match views.iter().find(|seen| !is_in(seen)) {
                // Another one was made before that was heard: every view takes effect, in order (rule C3).
                Some(seen) if seen.in_effect_after_ms.is_some() || views.last() != Some(seen) => {
                    return Ok(seen.clone());
                }
                Some(_) => {}
                None => {
                    after = views.last().map_or(after, |seen| seen.view);
                    if said.is_none_or(|said| said.elapsed() >= SAY_EVERY) {
                        match helper.expel(who) {
                            // It may be this very node, which is in no view for a moment.
                            Err(verbena_client::Error::Refused(_)) if said.is_some() => {}
                            done => done?,
                        }
                        said = Some(Instant::now());
                    }
                }
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Err(Error::StillIn { who, waited: self.timeout })
    }

    fn say(&self, happened: &Expelled<'_>) -> Result<()> {
        let mut out = output();
        if self.format.json {
            return write_json(&mut out, happened);
        }
        let Expelled { name, expelled, view, why, next, took_ms } = happened;
        let took = Lapse::millis(*took_ms);
        writeln!(
            out,
            "{view} is in effect without {name} {expelled} ({}), {took} after it was asked for",
            words(*why)
        )?;
        if let Some(next) = next {
            writeln!(out, "{name} still runs: it is back as {next}")?;
        }
        Ok(())
    }
}
