//! `verbena pool`: memory of nodes that is one cache for every memcached client, with the helper inside.

mod ask;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use serde::Serialize;
use verbena_coop::SchemeName;
use verbena_coop::service::PoolConfig;
use verbena_metrics::Registry;
use verbena_node::{Event, Helper};
use verbena_pool::{Bound, MemcachedConfig, Server};
use verbena_terms::{Section, Size};

use super::running::{self, Signals, in_words, page, say};
use crate::config::{self, Flag, Flags, Whose};
use crate::dashboard;
use crate::error::{Error, Result};
use crate::listening::{Short, ip_and_port, named};
use crate::output::Format;

/// What a pool lends where nothing says how much.
const MEMORY: Size = Size(64 << 20);

/// Run a server of the memcached protocol. The memory that it and other nodes lend is one cache.
///
/// Any memcached client at any node sees one cache. No answer is older than the last acknowledged set, delete, touch or flush of its key, whatever dies.
/// Each key may be forgotten at any time. A change whose answer was lost is answered `SERVER_ERROR outcome unknown`. docs/concepts/pool.md says what this rests on.
/// The helper runs inside: on one machine nothing else is needed, also for several pools, which find each other. Commands below ask a pool that runs.
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    after_long_help = "\
Examples:
  verbena pool --listen 127.0.0.1:11211
  verbena pool --listen 127.0.0.1:11212 --memory 256MiB --socket /run/user/1000/pool.sock
  verbena pool --listen 127.0.0.1:11213 --tenant shop
  verbena pool --listen 0.0.0.0:11214 --tls-cert pool.pem --tls-key pool.key
  verbena pool get greeting --server 127.0.0.1:11212
  verbena pool --config /etc/verbena.toml --cluster-name cache-1"
)]
pub struct Command {
    /// Where clients reach it; port 0 takes a free one. The key memcached.listen; 127.0.0.1:11211 if it is not set.
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    listen: Option<SocketAddr>,

    /// Memory for objects that this node lends. The key pool.memory; 64MiB if it is not set.
    #[arg(long, value_name = "SIZE")]
    memory: Option<Size>,

    /// A unix socket where clients reach it as well. The key memcached.socket.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,

    /// The tenant that clients at this address belong to: each tenant has keys of its own. The key memcached.tenant; without it they belong to no tenant.
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,

    /// A file of users, lines NAME:PASSWORD, as memcached's -Y reads it. A user belongs to the tenant of the same name. The key memcached.users.
    #[arg(long, value_name = "FILE")]
    users: Option<PathBuf>,

    /// The server's certificate, PEM. With it clients speak TLS. The key memcached.tls_cert.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// The private key of that certificate, PEM. The key memcached.tls_key.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// Where objects go: ac, bcc, ccwr, mtacc, hybcc or adaptive. The key pool.scheme; adaptive if it is not set.
    #[arg(long, value_name = "NAME")]
    scheme: Option<SchemeName>,

    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    flags: Flags,
    #[command(subcommand)]
    other: Option<ask::Command>,
}

/// What is printed, a line each.
#[derive(Serialize)]
#[serde(untagged)]
enum Line<'a> {
    Serving(Serving<'a>),
    Happened(&'a Event),
    Ended { event: &'static str },
}

#[derive(Serialize)]
struct Serving<'a> {
    event: &'static str,
    address: SocketAddr,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    listeners: Vec<Listener>,
    socket: Option<&'a Path>,
    memory: u64,
    node: &'a str,
    pid: u32,
    helper: &'a Path,
    http: &'a Path,
    api: Option<SocketAddr>,
}

/// A further address, and whose clients come there.
#[derive(Serialize)]
struct Listener {
    address: SocketAddr,
    tenant: Option<String>,
}

fn further(server: &Server, memcached: &MemcachedConfig) -> Vec<Listener> {
    let addresses = server.addresses().iter().skip(1).zip(&memcached.listeners);
    addresses.map(|(address, listener)| Listener { address: *address, tenant: listener.tenant.clone() }).collect()
}

impl Command {
    /// Asks a pool, or runs one until a signal or a request ends it.
    pub fn run(mut self, file: Option<&Path>) -> Result<()> {
        if let Some(other) = self.other {
            return other.run();
        }
        self.lay_over();
        let mut loaded = config::load(file, &self.flags.0, Whose::Nodes)?;
        if !loaded.config.pool.is_on() {
            loaded.config.pool.memory = MEMORY;
        }
        let (settings, memcached) = (loaded.config.settings(), loaded.config.memcached.clone());
        let json = self.format.json;
        let short = Short { section: MemcachedConfig::NAME, was_typed: self.listen.is_some() };
        running::raise_open_files(settings.open_files() + memcached.connections as u64);
        running::block_on(async {
            let mut signals = Signals::listen()?;
            let observer = Box::new(move |event: &Event| say(json, &Line::Happened(event), words));
            let registry = Arc::new(Registry::new());
            // Before the helper joins a cluster that it would have to leave again.
            let bound = Bound::of(&memcached)?;
            let helper = Helper::start(&settings, vec![], registry.clone(), observer)?;
            helper.show(dashboard::FILES);
            let (helper, server) = running::beside(helper, |helper| {
                let pool = helper.pool().ok_or_else(|| Error::Refused {
                    problem: "this node has no part in the pool: its role in cluster.members has to include reader"
                        .into(),
                    exit_code: 2,
                })?;
                Ok(Server::start(bound, &settings.pool.tenants, pool, &registry)?)
            })?;
            let (http, api) = helper.http();
            let serving = Serving {
                event: "serving",
                address: server.addresses()[0],
                listeners: further(&server, &memcached),
                socket: memcached.socket.as_deref(),
                memory: settings.pool.memory.0,
                node: helper.name(),
                pid: std::process::id(),
                helper: helper.socket(),
                http,
                api,
            };
            say(json, &Line::Serving(serving), words);
            signals.until_the_end(&helper, || running::reload(file, &self.flags, &loaded)).await;
            // Clients first: their commands need the helper.
            let stop = move || {
                server.stop();
                helper.stop()
            };
            signals.leave(stop).await?;
            say(json, &Line::Ended { event: "ended" }, words);
            Ok(())
        })
        .map_err(|error| named(error, &loaded, &short))
    }

    /// The flags that every user needs are keys under shorter names.
    fn lay_over(&mut self) {
        let mut lay = |section, key, value| self.flags.0.push(Flag { section, key, value });
        if let Some(listen) = self.listen {
            lay(MemcachedConfig::NAME, "listen", listen.to_string());
        }
        if let Some(socket) = &self.socket {
            lay(MemcachedConfig::NAME, "socket", socket.display().to_string());
        }
        if let Some(tenant) = &self.tenant {
            lay(MemcachedConfig::NAME, "tenant", tenant.clone());
        }
        if let Some(users) = &self.users {
            lay(MemcachedConfig::NAME, "users", users.display().to_string());
        }
        for (key, file) in [("tls_cert", &self.tls_cert), ("tls_key", &self.tls_key)] {
            if let Some(file) = file {
                lay(MemcachedConfig::NAME, key, file.display().to_string());
            }
        }
        if let Some(memory) = self.memory {
            lay(PoolConfig::NAME, "memory", memory.to_string());
        }
        if let Some(scheme) = self.scheme {
            lay(PoolConfig::NAME, "scheme", scheme.to_string());
        }
    }
}

fn address(given: &str) -> std::result::Result<SocketAddr, String> {
    ip_and_port(given, "127.0.0.1:11211, or 0.0.0.0:11211 for every interface")
}

/// A line, for people.
fn words(line: &Line<'_>) -> String {
    match line {
        Line::Serving(Serving { address, listeners, socket, memory, pid, http, api, .. }) => format!(
            "memcached clients are served at {address}{}{}, with {} of memory (process {pid}); status at {}{}",
            listeners.iter().map(|listener| format!(", {}", listener.address)).collect::<String>(),
            socket.map_or_else(String::new, |socket| format!(" and {}", socket.display())),
            Size(*memory),
            http.display(),
            page(*api),
        ),
        Line::Happened(event) => in_words(event),
        Line::Ended { .. } => "ended".into(),
    }
}
