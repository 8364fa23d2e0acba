//! `verbena purge`: takes pages out of every cache of the cluster.

use std::io::Write;
use std::path::Path;

use clap::Args;
use serde::Serialize;
use verbena_client::{Helper, Place, Scope, Updates};

use crate::commands::reach::Reach;
use crate::commands::running::block_on;
use crate::error::Result;
use crate::output::{Format, output, write_json};

/// Take pages out of every cache of the cluster: those at addresses, those with a tag, or all.
///
/// For what was changed past the proxy: a deploy, a job, a hand in the database. Purge *after* the change, and when every process of the
/// application shows it. It is an update that writes nothing: when this command ends, no proxy serves the state before.
///
/// A page that declares nothing that it is made of depends on everything, so it goes with each purge of an address or a tag. There is no purge of
/// all addresses that begin in one way: let pages carry a tag for that.
///
/// Exit code 0 if every home has done it, 1 if it could not be done, 3 if no helper runs.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  verbena purge --everything
  verbena purge http://shop.example/product/7 'http://shop.example/list?page=2'
  verbena purge --tag product:7 --tag category:3")]
pub struct Command {
    /// Addresses of pages, as clients ask for them: http://HOST/PATH?QUERY, with the port if they name one.
    #[arg(value_name = "URL", required_unless_present_any = ["tag", "everything"])]
    pages: Vec<String>,
    /// What pages are made of, as they declare it (Verbena-Dependencies, Surrogate-Key, Cache-Tag, Cache-Groups).
    #[arg(long, value_name = "NAME")]
    tag: Vec<String>,
    /// All pages.
    #[arg(long, conflicts_with_all = ["pages", "tag"])]
    everything: bool,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    reach: Reach,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Purged<'a> {
    everything: bool,
    pages: &'a [String],
    tags: &'a [String],
}

impl Command {
    /// Asks the helper, and says what was purged.
    pub fn run(self, file: Option<&Path>) -> Result<()> {
        let Command { pages, tag: tags, everything, format, reach } = self;
        let socket = reach.by(file, |socket, patience| Helper::connect(socket, patience).map(|_| socket.clone()))?;
        let updates = Updates::at(Place::from(socket));
        block_on(async {
            if everything {
                updates.purge(&Scope::EVERYTHING).await?;
            }
            if !pages.is_empty() {
                updates.purge_pages(pages.iter().cloned()).await?;
            }
            if !tags.is_empty() {
                updates.purge(&Scope::of(tags.iter().cloned())).await?;
            }
            Ok(())
        })?;
        let mut out = output();
        if format.json {
            return write_json(&mut out, &Purged { everything, pages: &pages, tags: &tags });
        }
        let each = pages.iter().map(String::as_str).chain(tags.iter().map(String::as_str));
        let what = if everything { "everything".into() } else { each.collect::<Vec<_>>().join(", ") };
        Ok(writeln!(out, "purged {what}")?)
    }
}
