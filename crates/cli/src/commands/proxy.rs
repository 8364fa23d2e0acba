//! `verbena proxy`: the cache in front of an application, with the helper inside.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use serde::Serialize;
use verbena_cluster::ClusterConfig;
use verbena_database::{Bound, DatabaseConfig};
use verbena_metrics::Registry;
use verbena_node::{Application, Event, Helper};
use verbena_proxy::{Marks, Proxy, ProxyConfig};
use verbena_terms::Section;

use super::relay;
use super::running::{self, Signals, in_words, page, say};
use crate::config::{self, Flag, Flags, Whose};
use crate::dashboard;
use crate::error::Result;
use crate::listening::{Short, ip_and_port, named};
use crate::output::Format;

/// Run a cache in front of a web application. No answer is older than the application's last confirmed write.
///
/// The application stays as it is. Before the proxy answers a GET from the cache, it checks the page's version word at the page's home. A request that writes
/// (POST, PUT, PATCH, DELETE) begins an update at every home before it reaches the application. docs/concepts/never-stale.md says what is assumed. The helper
/// runs inside: on one machine nothing else is needed, also for several proxies of one application, which find each other. Another application of the same user
/// has a cluster of its own. On SIGHUP the proxy reads certificates and configuration again, and logs what would change at the next start.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  verbena proxy --origin http://127.0.0.1:8000 --listen 127.0.0.1:8080
  verbena proxy --origin http://127.0.0.1:8000 --origin http://127.0.0.1:8001 --node-api 127.0.0.1:9090
  verbena proxy --origin http://127.0.0.1:8000 --mode standard
  verbena proxy --origin http://127.0.0.1:8000 --listen 0.0.0.0:443 --tls-cert site.pem --tls-key site.key
  verbena proxy --origin http://127.0.0.1:8000 --database mysql://shop:secret@127.0.0.1:3306 --database-complete true
  verbena proxy --config /etc/verbena.toml --cluster-name proxy-1")]
pub struct Command {
    /// The application: http://HOST:PORT, https://HOST:PORT, or unix:/PATH for a unix socket. May be given several times: requests go to those that answer. The
    /// key proxy.origin.
    #[arg(long, value_name = "URL")]
    origin: Vec<String>,

    /// The name of this application's cluster, the same at all its proxies. Programs that announce updates, purge or ask name it with `--cluster-name`.
    /// Without it an application is known by its origins. The key cluster.name.
    #[arg(long, value_name = "NAME", conflicts_with = "cluster.name")]
    name: Option<String>,

    /// The application's database, mysql://USER:PASSWORD@HOST:PORT or postgres://USER:PASSWORD@HOST:PORT/DATABASE: a relay before it tells the cache what pages depend on. The key database.to.
    #[arg(long, value_name = "URL")]
    database: Option<String>,

    /// Where clients reach the cache; port 0 takes a free one. The key proxy.listen; 127.0.0.1:8080 if it is not set.
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    listen: Option<SocketAddr>,

    /// By which rules copies are good, where no route says another: coherent, by version words at homes; standard, by RFC 9111, which assumes nothing of the application; pass, nothing is
    /// stored. The key proxy.mode; coherent if it is not set.
    #[arg(long, value_name = "MODE", conflicts_with = "proxy.mode")]
    mode: Option<String>,

    /// The server's certificate, PEM. With it clients speak TLS. The key proxy.tls_cert.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// The private key of that certificate, PEM. The key proxy.tls_key.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    flags: Flags,
}

/// What is printed, a line each.
#[derive(Serialize)]
#[serde(untagged)]
enum Line<'a> {
    Serving(Box<Serving<'a>>),
    Happened(&'a Event),
    Ended { event: &'static str },
}

#[derive(Serialize)]
struct Serving<'a> {
    event: &'static str,
    address: SocketAddr,
    /// How clients reach it.
    scheme: &'static str,
    origins: &'a [String],
    /// What the node is called.
    name: &'a str,
    pid: u32,
    socket: &'a Path,
    http: &'a Path,
    api: Option<SocketAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    database: Option<Relay<'a>>,
}

/// Where the application finds its database.
#[derive(Serialize)]
struct Relay<'a> {
    address: SocketAddr,
    socket: &'a Path,
    to: String,
}

impl Command {
    /// Runs until it is told to end.
    pub fn run(mut self, file: Option<&Path>) -> Result<()> {
        self.lay_over();
        let loaded = config::load(file, &self.flags.0, Whose::Nodes)?;
        let (mut settings, proxy) = (loaded.config.settings(), loaded.config.proxy.clone());
        relay::announce(&loaded.config.database, &mut settings);
        let (json, short) = (self.format.json, Short { section: ProxyConfig::NAME, was_typed: self.listen.is_some() });
        // A client's connection, and one to the application for it.
        running::raise_open_files(settings.open_files() + 2 * proxy.connections as u64);
        running::block_on(async {
            let mut signals = Signals::listen()?;
            let observer = Box::new(move |event: &Event| say(json, &Line::Happened(event), words));
            let registry = Arc::new(Registry::new());
            // Before the helper joins a cluster that it would have to leave again.
            Proxy::check(&proxy)?;
            let relay = Bound::of(&loaded.config.database)?;
            let mut application = Application::find(&settings, Marks::identity(&proxy))?;
            let helper = Helper::start(application.settings(), vec![], registry.clone(), observer)?;
            application.started();
            helper.show(dashboard::FILES);
            let (helper, (running, database, _marks)) = running::beside(helper, |helper| {
                let content = helper.content();
                let cluster = content.names().fingerprint();
                let mut marks = Marks::take(&proxy, cluster)?;
                marks.compare(&proxy, settings.pages.longest_transaction.0, cluster);
                let database = relay.map(|bound| relay::start(bound, helper, &registry)).transpose()?;
                let queries = Some(relay::queries(database.as_ref(), helper));
                let running =
                    Proxy::start(&proxy, content.clone(), helper.loads(), (queries, helper.pool()), &registry)?;
                let explainer = running.explainer();
                let itself = serde_json::json!({ "name": helper.name(), "listens": running.address() });
                helper.explain_by(Box::new(move |asked| {
                    let (explainer, itself) = (explainer.clone(), itself.clone());
                    Box::pin(async move {
                        let method = if asked.method.is_empty() { "GET" } else { &asked.method };
                        let explained = explainer.explain(method, &asked.url, &asked.fields).await?;
                        let mut explained = serde_json::to_value(explained).map_err(|error| error.to_string())?;
                        explained["proxy"] = itself;
                        Ok(explained)
                    })
                }));
                Ok((running, database, marks))
            })?;
            let (http, api) = helper.http();
            let serving = Serving {
                event: "serving",
                address: running.address(),
                scheme: if proxy.tls_cert.is_empty() { "http" } else { "https" },
                origins: &proxy.origin,
                name: helper.name(),
                pid: std::process::id(),
                socket: helper.socket(),
                http,
                api,
                database: database.as_ref().map(|database| Relay {
                    address: database.address(),
                    socket: database.socket(),
                    to: database.upstream().to_string(),
                }),
            };
            say(json, &Line::Serving(Box::new(serving)), words);
            tokio::spawn(running.look_for_origins());
            let reload = || {
                running.reload_certificates();
                running::reload(file, &self.flags, &loaded);
            };
            signals.until_the_end(&helper, reload).await;
            // Clients first: their requests need the helper.
            let stop = move || {
                running.stop();
                // The application writes no more when the relay is gone.
                drop(database);
                helper.stop()
            };
            signals.leave(stop).await?;
            say(json, &Line::Ended { event: "ended" }, words);
            Ok(())
        })
        .map_err(|error| named(error, &loaded, &short))
    }

    /// The flags that everybody needs are keys under shorter names.
    fn lay_over(&mut self) {
        let mut lay = |key, value| self.flags.0.push(Flag { section: ProxyConfig::NAME, key, value });
        if !self.origin.is_empty() {
            let list: Vec<String> = self.origin.iter().map(|origin| format!("{origin:?}")).collect();
            lay("origin", format!("[{}]", list.join(", ")));
        }
        if let Some(listen) = self.listen {
            lay("listen", listen.to_string());
        }
        if let Some(mode) = &self.mode {
            lay("mode", mode.clone());
        }
        for (key, file) in [("tls_cert", &self.tls_cert), ("tls_key", &self.tls_key)] {
            if let Some(file) = file {
                lay(key, format!("[{:?}]", file.display().to_string()));
            }
        }
        if let Some(name) = &self.name {
            self.flags.0.push(Flag { section: ClusterConfig::NAME, key: "name", value: name.clone() });
        }
        if let Some(database) = &self.database {
            self.flags.0.push(Flag { section: DatabaseConfig::NAME, key: "to", value: database.clone() });
        }
    }
}

fn address(given: &str) -> std::result::Result<SocketAddr, String> {
    ip_and_port(given, "127.0.0.1:8080, or 0.0.0.0:80 for every interface")
}

/// A line, for people.
fn words(line: &Line<'_>) -> String {
    match line {
        Line::Serving(serving) => {
            let Serving { address, scheme, origins, pid, http, api, database, .. } = &**serving;
            format!(
                "open {scheme}://{address} - in front of {} (process {pid}); status and updates at {}{}{}",
                origins.join(", "),
                http.display(),
                page(*api),
                database.as_ref().map_or_else(String::new, |Relay { address, socket, to }| format!(
                    "\ndatabase for your application, instead of {to}: {address} and {}",
                    socket.display()
                ))
            )
        }
        Line::Happened(event) => in_words(event),
        Line::Ended { .. } => "ended".into(),
    }
}
