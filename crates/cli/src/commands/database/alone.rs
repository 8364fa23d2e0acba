//! `verbena database --to URL`: the relay on a node of its own, without a proxy.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use clap::Args;
use serde::Serialize;
use verbena_cluster::ClusterConfig;
use verbena_database::{Bound, DatabaseConfig, DatabaseError};
use verbena_metrics::Registry;
use verbena_node::{Event, Helper};
use verbena_terms::Section;

use crate::commands::relay;
use crate::commands::running::{self, Signals, in_words, say};
use crate::config::{self, Flag, Flags, Whose};
use crate::dashboard;
use crate::error::{Error, Result};
use crate::listening::{Short, ip_and_port, named};
use crate::output::Format;

/// The relay alone.
#[derive(Args, Debug)]
pub struct Alone {
    /// The application's database, mysql://USER:PASSWORD@HOST:PORT or postgres://USER:PASSWORD@HOST:PORT/DATABASE. The key database.to.
    #[arg(long, value_name = "URL")]
    to: Option<String>,

    /// Where the application reaches the relay instead of the database; without it on loopback, at the port after the database's. The key database.listen.
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    listen: Option<SocketAddr>,

    /// The name of the application's cluster, the same as at its proxies (`verbena proxy --name NAME`). Not needed where the configuration names the members.
    /// The key cluster.name.
    #[arg(long, value_name = "NAME", conflicts_with = "cluster.name")]
    name: Option<String>,

    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    flags: Flags,
}

/// What is printed, a line each.
#[derive(Serialize)]
#[serde(untagged)]
enum Line<'a> {
    Relaying(Relaying<'a>),
    Happened(&'a Event),
    Ended { event: &'static str },
}

#[derive(Serialize)]
struct Relaying<'a> {
    event: &'static str,
    /// What the node is called.
    name: &'a str,
    pid: u32,
    /// Where programs reach the helper.
    helper: &'a Path,
    http: &'a Path,
    address: SocketAddr,
    socket: &'a Path,
    to: String,
    /// The cluster that its proxies have to name.
    #[serde(skip)]
    cluster: Option<&'a str>,
}

fn address(given: &str) -> std::result::Result<SocketAddr, String> {
    ip_and_port(given, "127.0.0.1:3307, or 0.0.0.0:3307 for every interface")
}

impl Alone {
    /// Runs until it is told to end.
    pub fn run(mut self, file: Option<&Path>) -> Result<()> {
        let mut lay = |key, value| self.flags.0.push(Flag { section: DatabaseConfig::NAME, key, value });
        if let Some(to) = &self.to {
            lay("to", to.clone());
        }
        if let Some(listen) = self.listen {
            lay("listen", listen.to_string());
        }
        if let Some(name) = &self.name {
            self.flags.0.push(Flag { section: ClusterConfig::NAME, key: "name", value: name.clone() });
        }
        let loaded = config::load(file, &self.flags.0, Whose::Nodes)?;
        let mut settings = loaded.config.settings();
        relay::announce(&loaded.config.database, &mut settings);
        let (json, short) =
            (self.format.json, Short { section: DatabaseConfig::NAME, was_typed: self.listen.is_some() });
        running::raise_open_files(settings.open_files() + 2 * 10_000);
        running::block_on(async {
            let mut signals = Signals::listen()?;
            let observer = Box::new(move |event: &Event| say(json, &Line::Happened(event), words));
            let registry = Arc::new(Registry::new());
            // Before the helper joins a cluster that it would have to leave again.
            let bound = Bound::of(&loaded.config.database)?.ok_or_else(no_database)?;
            // Without a name each application of a user has a cluster of its own, and the relay cannot know which of them is its own: its commits would reach none.
            if settings.is_plain() && settings.cluster.name.is_none() {
                return Err(Error::Refused { problem: NO_NAME.into(), exit_code: 2 });
            }
            let helper = Helper::start(&settings, vec![], registry.clone(), observer)?;
            helper.show(dashboard::FILES);
            let (helper, database) = running::beside(helper, |helper| relay::start(bound, helper, &registry))?;
            let relaying = Relaying {
                event: "relaying",
                name: helper.name(),
                pid: std::process::id(),
                helper: helper.socket(),
                http: helper.http().0,
                address: database.address(),
                socket: database.socket(),
                to: database.upstream().to_string(),
                cluster: settings.cluster.name.as_deref().filter(|_| settings.is_plain()),
            };
            say(json, &Line::Relaying(relaying), words);
            signals.until_the_end(&helper, || running::reload(file, &self.flags, &loaded)).await;
            let stop = move || {
                // Connections end before the others are told that it has left.
                drop(database);
                helper.stop()
            };
            signals.leave(stop).await?;
            say(json, &Line::Ended { event: "ended" }, words);
            Ok(())
        })
        .map_err(|error| named(error, &loaded, &short))
    }
}

const NO_NAME: &str = "which application is this the relay of? Give it --name NAME, and its proxies the same (verbena proxy --name NAME): pages of proxies with another name, or with none, would stay as they were after a commit";

fn no_database() -> DatabaseError {
    DatabaseError::Setting {
        key: "to",
        problem: "no database: give --to mysql://USER@HOST:PORT or postgres://USER@HOST:PORT/DATABASE, or write it into the configuration".into(),
    }
}

/// A line, for people.
fn words(line: &Line<'_>) -> String {
    match line {
        Line::Relaying(Relaying { name, pid, address, socket, to, cluster, .. }) => format!(
            "relay of node {name} (process {pid})\ndatabase for your application, instead of {to}: {address} and {}{}",
            socket.display(),
            cluster.map(|name| format!("\nits commits reach the proxies that have --name {name}")).unwrap_or_default()
        ),
        Line::Happened(event) => in_words(event),
        Line::Ended { .. } => "ended".into(),
    }
}
