//! `verbena purge`: takes pages out of every cache of the cluster.

use std::io::Write;
use std::path::Path;

use clap::Args;
use serde::Serialize;
use verbena_client::api::Touched;
use verbena_client::{Helper, Place, Scope, Updates};
use verbena_terms::MAX_DEPENDENCY_NAME_BYTES;

use crate::commands::address::Port;
use crate::commands::reach::Reach;
use crate::commands::running::block_on;
use crate::error::{Error, Result};
use crate::output::{Format, output, write_json};

/// Take pages out of every cache of the cluster: those at addresses, under a prefix, of a host, with a tag, or all.
///
/// Purge what was changed past the proxy: by a deploy, a job, an SQL prompt. Purge *after* the change, and when every process of the
/// application shows it. A purge is an update that writes nothing: when this command ends, no proxy serves the state before.
///
/// A coherent page that names no dependencies depends on everything, so it goes with each purge of an address or a tag. A standard
/// page goes only with a purge of its address, its host, a prefix of its path by whole segments, or one of its tags.
///
/// Exit code 0 if every home has done it, 1 if it could not be done, 3 if no helper runs.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  verbena purge --everything
  verbena purge http://shop.example/product/7 'http://shop.example/list?page=2'
  verbena purge --host shop.example /product/7 --prefix /list
  verbena purge --host shop.example
  verbena purge --tag product:7 --tag category:3
  verbena purge --soft --tag product:7")]
pub struct Command {
    /// Addresses of pages, as clients ask for them: http://HOST/PATH?QUERY, with the port if they name one; or /PATH?QUERY with --host.
    #[arg(value_name = "URL")]
    pages: Vec<String>,
    /// Pages whose path begins with this one, by whole segments: http://HOST/PATH, or /PATH with --host.
    #[arg(long, value_name = "URL")]
    prefix: Vec<String>,
    /// The host of addresses and prefixes that begin with "/", with the port if clients name one; others are refused. Alone: all its pages.
    #[arg(long, value_name = "HOST")]
    host: Option<String>,
    /// Pages with this tag or dependency, as their answers name it (Verbena-Dependencies, Surrogate-Key, Cache-Tag, Cache-Groups).
    #[arg(long, value_name = "NAME")]
    tag: Vec<String>,
    /// All pages.
    #[arg(long, conflicts_with_all = ["pages", "tag", "prefix", "host"])]
    everything: bool,
    /// Mark standard pages as old instead of removing them. The application is asked whether the copy is still right (304); meanwhile the copy may be served where its
    /// answer said stale-while-revalidate or stale-if-error. Coherent pages are removed, as without this option.
    #[arg(long)]
    soft: bool,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    reach: Reach,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Purged<'a> {
    everything: bool,
    soft: bool,
    pages: &'a [String],
    prefixes: &'a [String],
    tags: &'a [String],
}

impl Command {
    /// Asks the helper, and says what was purged.
    pub fn run(self, file: Option<&Path>) -> Result<()> {
        let Command { pages, prefix, host, tag: tags, everything, soft, format, reach } = self;
        let refused = |problem: String| Err(Error::Refused { problem, exit_code: 2 });
        if !everything && host.is_none() && pages.is_empty() && prefix.is_empty() && tags.is_empty() {
            return refused(
                "nothing to purge is named: give addresses of pages, --prefix, --host or --tag, or --everything".into(),
            );
        }
        if let Some(host) =
            host.as_ref().filter(|host| host.is_empty() || host.contains(['/', '*', '?', '#', '@', ' ']))
        {
            return refused(format!(
                "--host {host:?} is no host: write it as clients name it, shop.example or shop.example:8080"
            ));
        }
        if let Some(tag) = tags.iter().find(|tag| !(1..=MAX_DEPENDENCY_NAME_BYTES).contains(&tag.len())) {
            return refused(format!("--tag of {} bytes: a name has 1 to {MAX_DEPENDENCY_NAME_BYTES}", tag.len()));
        }
        let pages = at_host(pages, host.as_deref())?;
        let mut prefixes = at_host(prefix, host.as_deref())?;
        if let Some(host) = host.filter(|_| pages.is_empty() && prefixes.is_empty()) {
            prefixes.push(format!("http://{host}/"));
        }
        let socket = reach.by(file, |socket, patience| Helper::connect(socket, patience).map(|_| socket.clone()))?;
        let updates = Updates::at(Place::from(socket));
        block_on(async {
            let touched = Touched { soft, ..Touched::default() };
            if everything {
                updates.purge_as(&Touched { everything, ..touched.clone() }).await?;
            }
            if !pages.is_empty() {
                updates.purge_as(&Touched { pages: pages.clone(), ..touched.clone() }).await?;
            }
            if !prefixes.is_empty() {
                updates.purge_as(&Touched { prefixes: prefixes.clone(), ..touched }).await?;
            }
            if !tags.is_empty() {
                updates.purge_as(&Touched { soft, ..Touched::from(&Scope::of(tags.iter().cloned())) }).await?;
            }
            Ok(())
        })?;
        let mut out = output();
        if format.json {
            return write_json(&mut out, &Purged { everything, soft, pages: &pages, prefixes: &prefixes, tags: &tags });
        }
        let all_under = prefixes.iter().map(|prefix| format!("{}*", prefix.trim_end_matches('*')));
        let each = pages.iter().cloned().chain(all_under).chain(tags.iter().cloned());
        let what = if everything { "everything".into() } else { each.collect::<Vec<_>>().join(", ") };
        let how = if soft { " softly" } else { "" };
        Ok(writeln!(out, "purged{how} {what}")?)
    }
}

/// Addresses in full: those that begin with `/` are of this host.
fn at_host(addresses: Vec<String>, host: Option<&str>) -> Result<Vec<String>> {
    let full = |address: String| match (address.starts_with('/'), host) {
        (false, Some(host)) if !is_of(&address, host) => {
            let problem = format!(
                "{address} is not of --host {host}: nothing was purged. Begin it with \"/\", or leave out --host"
            );
            Err(Error::Refused { problem, exit_code: 2 })
        }
        (false, _) => Port::of(&address).map(|_| address.clone()),
        (true, Some(host)) => Ok(format!("http://{host}{address}")),
        (true, None) => {
            let problem = format!("{address} is an address without a host: add --host HOST, as clients name it");
            Err(Error::Refused { problem, exit_code: 2 })
        }
    };
    addresses.into_iter().map(full).collect()
}

/// Whether a full address names this host, and this port if there is one.
fn is_of(address: &str, host: &str) -> bool {
    let of = address.split_once("://").and_then(|(_, rest)| rest.split(['/', '?', '#']).next());
    of.is_some_and(|of| of.eq_ignore_ascii_case(host))
}
