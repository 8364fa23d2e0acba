//! `verbena cluster`: the views of a cluster, and their members.

pub mod expel;
pub mod views;

use std::path::Path;

use clap::Subcommand;
use verbena_client::wire::{Change, Seen, Why};

use crate::error::Result;

/// Show the views of the cluster, and take members out of them.
#[derive(Debug, Subcommand)]
pub enum Command {
    Views(views::Command),
    Expel(expel::Command),
}

impl Command {
    /// Does what it says.
    pub fn run(self, file: Option<&Path>) -> Result<()> {
        match self {
            Command::Views(views) => views.run(file),
            Command::Expel(expel) => expel.run(file),
        }
    }
}

/// A reason, for people.
fn words(why: Why) -> &'static str {
    match why {
        Why::LeftAtRest => "left at rest",
        Why::LeftOpen => "left with updates open",
        Why::RanOut => "ran out of lease",
        Why::Expelled => "expelled",
        Why::Superseded => "superseded by a later incarnation",
        Why::Untold => "the keeper did not say why",
    }
}

/// Those whose change is of this kind, as `NAME INCARNATION` with what `more` says of it.
fn list(seen: &Seen, more: impl Fn(Change) -> Option<String>) -> String {
    let named = seen.concerned.iter().filter_map(|one| {
        let more = more(one.change)?;
        Some(format!("{} {}{more}", one.name, one.incarnation))
    });
    named.collect::<Vec<_>>().join(", ")
}
