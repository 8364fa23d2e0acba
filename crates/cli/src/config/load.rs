//! The configuration of one command: what the file says, over it what flags say, below it the defaults.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;
use verbena_cluster::{ClusterConfig, Provider};
use verbena_content::service::PagesConfig;
use verbena_coop::service::PoolConfig;
use verbena_database::DatabaseConfig;
use verbena_etcd::EtcdConfig;
use verbena_fabric::tcp::keys;
use verbena_fabric::{Choice, FabricConfig, choose};
use verbena_ipc::IpcConfig;
use verbena_lock::service::LocksConfig;
use verbena_memory::service::MemoryConfig;
use verbena_monitor::MonitorConfig;
use verbena_node::{NodeConfig, Settings};
use verbena_pool::MemcachedConfig;
use verbena_proxy::ProxyConfig;
use verbena_terms::{Contradiction, Key, Section};

use super::mistake::{Located, Mistake, Place, Source, closest};
use super::section;
use super::tree::{self, Entry, Node, Table, Value};

/// The file that is read if there is one and no other was named.
pub const DEFAULT_FILE: &str = "verbena.toml";

/// The largest file that is taken for a configuration, in bytes.
pub const LARGEST_FILE: u64 = 1 << 20;

/// Everything that can be set. The sections belong to the crates whose behaviour they set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// Who is in.
    pub cluster: ClusterConfig,
    /// By what they agree on that, where no list says it.
    pub etcd: EtcdConfig,
    /// How they reach each other.
    pub fabric: FabricConfig,
    /// The helper.
    pub node: NodeConfig,
    /// How programs reach it.
    pub ipc: IpcConfig,
    /// The page protocol.
    pub pages: PagesConfig,
    /// Locks.
    pub locks: LocksConfig,
    /// Memory that nodes share.
    pub memory: MemoryConfig,
    /// The cooperative cache.
    pub pool: PoolConfig,
    /// How memcached clients reach it.
    pub memcached: MemcachedConfig,
    /// How loaded nodes are.
    pub monitor: MonitorConfig,
    /// The proxy.
    pub proxy: ProxyConfig,
    /// The database behind the application.
    pub database: DatabaseConfig,
}

/// Something that is done with each section in turn.
pub trait Visit {
    /// Does it.
    fn section<S: Section>(&mut self, section: &mut S);
}

impl Config {
    /// What a helper is started from.
    pub fn settings(&self) -> Settings {
        let Config { cluster, etcd, fabric, node, ipc, pages, locks, memory, pool, monitor, .. } = self.clone();
        Settings { cluster, etcd, fabric, node, ipc, pages, locks, memory, pool, monitor, relay: None }
    }

    /// Does something with each section, in the order of the reference.
    pub fn each(&mut self, visit: &mut impl Visit) {
        visit.section(&mut self.cluster);
        visit.section(&mut self.etcd);
        visit.section(&mut self.fabric);
        visit.section(&mut self.node);
        visit.section(&mut self.ipc);
        visit.section(&mut self.pages);
        visit.section(&mut self.locks);
        visit.section(&mut self.memory);
        visit.section(&mut self.pool);
        visit.section(&mut self.memcached);
        visit.section(&mut self.monitor);
        visit.section(&mut self.proxy);
        visit.section(&mut self.database);
    }
}

/// A section as the reference lists it.
#[derive(Clone, Copy, Debug)]
pub struct Described {
    /// Its name.
    pub name: &'static str,
    /// What it is about.
    pub help: &'static str,
    /// Its keys.
    pub keys: &'static [Key],
}

/// All sections and their keys.
pub fn sections() -> Vec<Described> {
    struct List(Vec<Described>);
    impl Visit for List {
        fn section<S: Section>(&mut self, _: &mut S) {
            self.0.push(Described { name: S::NAME, help: S::HELP, keys: S::KEYS });
        }
    }
    let mut list = List(vec![]);
    Config::default().each(&mut list);
    list.0
}

/// The name of a key's flag, without the dashes before it.
pub fn flag_name(section: &str, key: &str) -> String {
    format!("{section}-{key}").replace('_', "-")
}

/// A value that a flag gives to a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flag {
    /// The section.
    pub section: &'static str,
    /// The key.
    pub key: &'static str,
    /// What was written behind the flag.
    pub value: String,
}

/// A configuration, and where each of its values came from.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The values.
    pub config: Config,
    /// The file that was read, if one was.
    pub file: Option<PathBuf>,
    /// The text that it was read from.
    pub source: Source,
    tree: Table,
}

impl Loaded {
    /// Where a key's value came from.
    pub fn origin(&self, section: &str, key: &str) -> Place {
        let section = self.tree.find(section).map(|entry| &entry.node.value);
        let Some(Value::Table(table)) = section else { return Place::Default };
        table.find(key).map_or(Place::Default, |entry| entry.node.place.clone())
    }
}

/// Why there is no configuration.
#[derive(Debug, Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("{}: {reason}; give a configuration file that this user can read", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// What the system said.
        reason: io::Error,
    },
    /// It is too large to be one.
    #[error("{}: {bytes} bytes; a configuration has at most {LARGEST_FILE} bytes", file.display())]
    TooLarge {
        /// The file.
        file: PathBuf,
        /// Its size.
        bytes: u64,
    },
    /// It has mistakes.
    #[error("{} in the configuration", count(mistakes.len()))]
    Mistaken {
        /// Each of them, in the order of the file.
        mistakes: Vec<Mistake>,
        /// What they were found in.
        source_text: Source,
    },
}

fn count(mistakes: usize) -> String {
    if mistakes == 1 { "1 mistake".into() } else { format!("{mistakes} mistakes") }
}

impl Error {
    /// The mistakes with their places, for `--json`.
    pub fn located(&self) -> Vec<Located> {
        match self {
            Error::Mistaken { mistakes, source_text } => {
                mistakes.iter().map(|mistake| mistake.locate(source_text)).collect()
            }
            _ => vec![],
        }
    }
}

/// Whom a command concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// One node that is to run: it has to be said which, and where it is reached.
    Nodes,
    /// One node that runs, and is asked through its socket: it has to be said which.
    Running,
    /// The cluster: a file that all nodes share, and that names none of them, is right.
    Everyones,
}

/// The configuration in `file`, or in [`DEFAULT_FILE`] if there is one, or the embedded one; with flags over it.
pub fn load(file: Option<&Path>, flags: &[Flag], whose: Whose) -> Result<Loaded, Error> {
    let file = match file {
        Some(file) => Some(file.to_owned()),
        None => Path::new(DEFAULT_FILE).exists().then(|| DEFAULT_FILE.into()),
    };
    let name = file.as_ref().map_or_else(|| "(no file)".to_owned(), |file| file.display().to_string());
    let bytes = file.as_deref().map(read_file).transpose()?.unwrap_or_default();
    let (mut loaded, mistakes) = examine(name, &bytes, flags, whose);
    loaded.file = file;
    if mistakes.is_empty() { Ok(loaded) } else { Err(Error::Mistaken { mistakes, source_text: loaded.source }) }
}

pub(super) fn decode(bytes: &[u8], mistakes: &mut Vec<Mistake>) -> String {
    if let Err(error) = std::str::from_utf8(bytes) {
        let at = error.valid_up_to();
        mistakes.push(Mistake {
            place: Place::File(at..at + 1),
            problem: "this is not UTF-8 text".into(),
            ..Mistake::default()
        });
    }
    String::from_utf8_lossy(bytes).into_owned()
}

pub(super) fn read_file(file: &Path) -> Result<Vec<u8>, Error> {
    let unreadable = |reason| Error::Unreadable { file: file.to_owned(), reason };
    let bytes = fs::metadata(file).map_err(unreadable)?.len();
    if bytes > LARGEST_FILE {
        return Err(Error::TooLarge { file: file.to_owned(), bytes });
    }
    fs::read(file).map_err(unreadable)
}

/// Reads any bytes as a configuration. What is wrong in them has its default in the result and is among the mistakes,
/// which stand in the order of the text. `name` is the text's name in messages.
pub fn examine(name: String, bytes: &[u8], flags: &[Flag], whose: Whose) -> (Loaded, Vec<Mistake>) {
    let mut mistakes = Vec::new();
    let text = decode(bytes, &mut mistakes);
    let (mut tree, syntax) = tree::parse(&text);
    mistakes.extend(syntax);
    // What follows a place that could not be read may have been read as something else: no guesses about it.
    let readable = mistakes.is_empty();
    for flag in flags {
        lay_over(&mut tree, flag);
    }
    let mut reader = Reader { tree: &tree, mistakes: &mut mistakes };
    let mut config = Config::default();
    if readable {
        reader.unknown_sections();
        config.each(&mut reader);
        let may_lack = |key: &str| match key {
            "cluster.name" => whose == Whose::Everyones && config.cluster.name.is_none(),
            "cluster.address" => whose != Whose::Nodes && config.cluster.address.is_none(),
            _ => false,
        };
        mistakes.retain(|mistake| !may_lack(&mistake.key));
        if mistakes.is_empty() {
            mistakes.extend(provider_mistake(&config, &tree));
            mistakes.extend(register_mistakes(&config, &tree));
            mistakes.extend(name_mistake(&config, &tree));
            mistakes.extend(listener_mistakes(&config, &tree));
            mistakes.extend(database_mistakes(&config, &tree));
        }
    }
    mistakes.sort_by_key(|mistake| mistake.place.start());
    (Loaded { config, file: None, source: Source { name, text }, tree }, mistakes)
}

/// Whether there is a provider for the members that are configured, which concerns two sections.
fn provider_mistake(config: &Config, tree: &Table) -> Option<Mistake> {
    let members = config.cluster.members.iter().map(|member| member.address.clone());
    let own = config.cluster.address.clone();
    let key = if own.is_some() { "cluster.address" } else { "cluster.members" }.to_owned();
    let problem = choose(config.fabric.provider, &members.chain(own).collect::<Vec<_>>()).err()?.to_string();
    Some(Mistake { place: section::place_of(tree, &key), key, problem, ..Mistake::default() })
}

/// What is wrong with `[etcd]` where it is needed.
fn register_mistakes(config: &Config, tree: &Table) -> Vec<Mistake> {
    if config.cluster.provider != Provider::Etcd {
        return vec![];
    }
    let mistake = |Contradiction { key, problem }| {
        let key = format!("{}.{key}", EtcdConfig::NAME);
        Mistake { place: section::place_of(tree, &key), key, problem, ..Mistake::default() }
    };
    config.etcd.problems().into_iter().map(mistake).collect()
}

/// A name for which no certificate can be made, where certificates are for names.
fn name_mistake(config: &Config, tree: &Table) -> Option<Mistake> {
    let ClusterConfig { provider, name, address, .. } = &config.cluster;
    // Nodes that share memory show each other no certificates.
    let shares = address.as_ref().is_some_and(|address| address.starts_with("shm://"));
    let shows = config.fabric.keys.is_some() && config.fabric.provider != Choice::Shm && !shares;
    let refused = name.as_deref().filter(|_| *provider == Provider::Etcd && shows).and_then(keys::refusal_of)?;
    let (key, problem) = ("cluster.name".to_owned(), format!("there are fabric.keys, and {refused}"));
    Some(Mistake { place: section::place_of(tree, &key), key, problem, ..Mistake::default() })
}

/// Where two listeners have one address, or the proxy takes the helper for the application.
fn listener_mistakes(config: &Config, tree: &Table) -> Vec<Mistake> {
    let Some(api) = config.node.api.filter(|api| api.port() != 0) else { return vec![] };
    let mistake = |key: String, problem: &str| {
        let problem = problem.to_owned();
        Mistake { place: section::place_of(tree, &key), key, problem, ..Mistake::default() }
    };
    let is_the_helper = |origin: &str| origin == format!("http://{api}");
    let origins = config.proxy.origin.iter().enumerate().filter(|(_, origin)| is_the_helper(origin));
    let origins = origins.map(|(at, _)| {
        mistake(
            format!("proxy.origin.{at}"),
            "the helper itself listens there (node.api): write where the application listens",
        )
    });
    let is_taken = !config.proxy.origin.is_empty() && config.proxy.listen == api;
    let api =
        is_taken.then(|| mistake("node.api".into(), "the proxy listens there (proxy.listen): write another port"));
    origins.chain(api).collect()
}

/// Routes that leave it to a relay to see what they write, where there is none: nobody would see it.
fn database_mistakes(config: &Config, tree: &Table) -> Vec<Mistake> {
    if config.database.to.is_some() {
        return vec![];
    }
    let mistake = |at| {
        let key = format!("proxy.routes.{at}.writes");
        let problem =
            "there is no relay before the database that sees what they write: set database.to, or leave this out";
        Mistake { place: section::place_of(tree, &key), key, problem: problem.to_owned(), ..Mistake::default() }
    };
    config.proxy.routes_of_the_database().map(mistake).collect()
}

struct Reader<'a> {
    tree: &'a Table,
    mistakes: &'a mut Vec<Mistake>,
}

impl Visit for Reader<'_> {
    fn section<S: Section>(&mut self, section: &mut S) {
        *section = section::read(self.tree, self.mistakes);
    }
}

impl Reader<'_> {
    fn unknown_sections(&mut self) {
        let sections = sections();
        for entry in &self.tree.entries {
            if sections.iter().any(|section| section.name == entry.key) {
                continue;
            }
            let home = sections.iter().find(|section| section.keys.iter().any(|key| key.name == entry.key));
            let names = sections.iter().map(|section| section.name);
            let is_table = matches!(entry.node.value, Value::Table(_));
            let listed: Vec<_> = names.clone().map(|name| format!("[{name}]")).collect();
            self.mistakes.push(Mistake {
                place: entry.place.clone(),
                key: entry.key.clone(),
                problem: if is_table { "there is no such section" } else { "a key stands below a section" }.into(),
                expected: Some(format!("one of {}", listed.join(", "))),
                suggestion: match home {
                    Some(section) if !is_table => Some(format!("{} below [{}]", entry.key, section.name)),
                    _ => closest(&entry.key, names).map(|name| format!("[{name}]")),
                },
            });
        }
    }
}

fn lay_over(tree: &mut Table, flag: &Flag) {
    let place = Place::Flag(format!("--{}", flag_name(flag.section, flag.key)));
    if tree.find(flag.section).is_none() {
        let node = Node { place: place.clone(), value: Value::Table(Table::default()) };
        tree.entries.push(Entry { key: flag.section.into(), place: place.clone(), node });
    }
    let section = tree.find_mut(flag.section).expect("invariant: put there above if it was missing");
    // A section that is no table is a mistake of its own.
    if let Value::Table(table) = &mut section.node.value {
        table.take(flag.key);
        let node = Node { place: place.clone(), value: Value::Text(flag.value.clone()) };
        table.entries.push(Entry { key: flag.key.into(), place, node });
    }
}

/// Reads any bytes as a configuration and shows every mistake in them, for people and for programs; how many there are.
/// What the fuzz target runs.
pub fn try_bytes(bytes: &[u8]) -> usize {
    let (loaded, mistakes) = examine("fuzzed.toml".into(), bytes, &[], Whose::Nodes);
    try_to_show(&mistakes, &loaded.source);
    mistakes.len()
}

/// That each of them can be shown, and has its place.
pub fn try_to_show(mistakes: &[Mistake], source: &Source) {
    for mistake in mistakes {
        let located = mistake.locate(source);
        assert!(!located.problem.is_empty() && !mistake.explain(source).is_empty());
        assert!(located.line.is_none_or(|line| line <= source.text.matches('\n').count() + 1));
    }
}
