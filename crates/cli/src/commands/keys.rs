//! `verbena keys`: the certificates by which nodes on several machines know each other.

use std::fs::{self, DirBuilder};
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anstyle::{AnsiColor, Style};
use clap::{Args, Subcommand};
use serde::Serialize;
use verbena_cluster::Provider;
use verbena_fabric::tcp::keys::{Pair, create_authority, issue, issue_named};
use verbena_fabric::{authority_files, member_files, node_files};
use verbena_terms::{Lapse, Rank};

use crate::config::{self, Config, Flags, Whose};
use crate::date::day;
use crate::error::{Error, Result};
use crate::keys::{Certificate, files, read};
use crate::output::{Format, output, write_json};

const BAD: Style = AnsiColor::Red.on_default();

/// Make and show the certificates by which nodes know each other over tcp.
///
/// Make one authority, once, and keep its key where no other user has access. It issues each node a certificate for its rank. A
/// node has three files in the directory of `fabric.keys` (without that key, the directory keys): authority.pem, node-RANK.pem and node-RANK.key. Where
/// cluster.provider is etcd, certificates are for the names of nodes: member-NAME.pem and member-NAME.key.
#[derive(Debug, Subcommand)]
pub enum Command {
    Init(Init),
    Node(Node),
    Show(Show),
}

/// Make an authority: authority.pem and authority.key.
#[derive(Args, Debug)]
#[command(after_long_help = "Example:\n  verbena keys init --fabric-keys keys")]
pub struct Init {
    /// How long the certificate is good.
    #[arg(long, value_name = "TIME", default_value = "3650d")]
    valid: Lapse,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    flags: Flags,
}

/// Issue the certificate of a node: node-RANK.pem and node-RANK.key; with etcd member-NAME.pem and member-NAME.key.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  verbena keys node 2
  verbena keys node app-2 --config verbena.toml
  verbena keys node 2 --replace")]
pub struct Node {
    /// The node: its rank, or its name in cluster.members; its name where cluster.provider is etcd.
    node: String,
    /// How long it is good; never longer than its authority.
    #[arg(long, value_name = "TIME", default_value = "365d")]
    valid: Lapse,
    /// Put it in the place of an earlier one. A running node reads it when it makes its next connection.
    #[arg(long)]
    replace: bool,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    flags: Flags,
}

/// Show the certificates of a directory, and until when each is good.
///
/// Exit code 1 if a certificate is not good now, or the directory has no certificate.
#[derive(Args, Debug)]
#[command(after_long_help = "Example:\n  verbena keys show --fabric-keys keys --json")]
pub struct Show {
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    flags: Flags,
}

/// Where keys are if `fabric.keys` is not set.
const DEFAULT_DIRECTORY: &str = "keys";

impl Command {
    /// Runs it, with the configuration in `file` if one was named.
    pub fn run(self, file: Option<&Path>) -> Result<()> {
        match self {
            Command::Init(init) => init.run(&load(file, &init.flags)?),
            Command::Node(node) => node.run(&load(file, &node.flags)?),
            Command::Show(show) => show.run(&load(file, &show.flags)?),
        }
    }
}

fn load(file: Option<&Path>, flags: &Flags) -> Result<Config> {
    Ok(config::load(file, &flags.0, Whose::Everyones)?.config)
}

fn directory(config: &Config) -> PathBuf {
    config.fabric.keys.clone().unwrap_or_else(|| DEFAULT_DIRECTORY.into())
}

impl Init {
    fn run(&self, config: &Config) -> Result<()> {
        let directory = directory(config);
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&directory);
        made.map_err(|source| Error::File { doing: "make the directory", path: directory.clone(), source })?;
        let files = authority_files(&directory);
        create_authority(&files, from_now(self.valid))?;
        tell(self.format, &files)
    }
}

impl Node {
    fn run(&self, config: &Config) -> Result<()> {
        let directory = directory(config);
        let authority = authority_files(&directory);
        // Under etcd every incarnation has another rank, and the name stays.
        let rank = if config.cluster.provider == Provider::Etcd { None } else { Some(rank_of(&self.node, config)?) };
        let make = |files: &Pair| match rank {
            Some(rank) => issue(&authority, rank, files, from_now(self.valid)),
            None => issue_named(&authority, &self.node, files, from_now(self.valid)),
        };
        let place = match rank {
            Some(rank) => node_files(&directory, rank),
            None => member_files(&directory, &self.node),
        };
        if !self.replace {
            make(&place)?;
            return tell(self.format, &place);
        }
        let beside = Pair { certificate: with(&place.certificate, ".next"), key: with(&place.key, ".next") };
        make(&beside)?;
        // The key first: a node that reads in between finds a pair that does not fit, and tries again at its next connection.
        for (from, to) in [(&beside.key, &place.key), (&beside.certificate, &place.certificate)] {
            fs::rename(from, to).map_err(|source| Error::File { doing: "replace", path: to.clone(), source })?;
        }
        tell(self.format, &place)
    }
}

impl Show {
    fn run(&self, config: &Config) -> Result<()> {
        let directory = directory(config);
        let unreadable = |source| Error::File { doing: "read the directory", path: directory.clone(), source };
        let now = SystemTime::now();
        let found = files(&directory).map_err(unreadable)?;
        let found: Vec<_> = found.iter().map(|file| read(file, now)).collect::<std::result::Result<_, _>>()?;
        let mut out = output();
        if self.format.json {
            write_json(&mut out, &found)?;
        } else if found.is_empty() {
            writeln!(out, "no certificate in {}: `verbena keys init` makes an authority", directory.display())?;
        } else {
            print(&mut out, &found)?;
        }
        if !found.is_empty() && found.iter().all(|certificate| certificate.good) { Ok(()) } else { Err(Error::No) }
    }
}

fn print(out: &mut impl Write, found: &[Certificate]) -> Result<()> {
    let width = found.iter().map(|certificate| certificate.file.display().to_string().len()).max().unwrap_or(0);
    for certificate in found {
        let Certificate { file, until, days_left, with_key, remark, .. } = certificate;
        let whose = match (certificate.rank, &certificate.member) {
            _ if certificate.authority => "authority".into(),
            (Some(rank), _) => format!("node {rank}"),
            (None, Some(name)) => format!("node {name}"),
            (None, None) => "no node of this cluster".into(),
        };
        let key = if *with_key { "with its key" } else { "without key" };
        let name = file.display().to_string();
        write!(out, "{name:<width$}  {whose:<12} until {until}, {days_left} days, {key}")?;
        match remark {
            Some(remark) => writeln!(out, "  {BAD}{remark}{BAD:#}")?,
            None => writeln!(out)?,
        }
    }
    Ok(())
}

#[derive(Serialize)]
struct Made<'a> {
    certificate: &'a Path,
    key: &'a Path,
    until: String,
}

fn tell(format: Format, files: &Pair) -> Result<()> {
    let until = day(verbena_fabric::tcp::keys::inspect(&files.certificate)?.valid.end);
    let mut out = output();
    if format.json {
        return write_json(&mut out, &Made { certificate: &files.certificate, key: &files.key, until });
    }
    Ok(writeln!(out, "{} and {}, good until {until}", files.certificate.display(), files.key.display())?)
}

fn rank_of(given: &str, config: &Config) -> Result<Rank> {
    let names: Vec<_> = config.cluster.members.iter().map(|member| member.name.clone()).collect();
    if let Some(at) = names.iter().position(|name| name == given) {
        return Ok(Rank(at as u32 + 1));
    }
    let rank = given.parse().ok().map(Rank).filter(|rank| *rank != Rank::NOBODY);
    rank.ok_or_else(|| Error::NoSuchNode { given: given.into(), names })
}

/// From a little before now, for clocks that are a little behind.
fn from_now(valid: Lapse) -> std::ops::Range<SystemTime> {
    let now = SystemTime::now();
    now - Duration::from_secs(3600)..now + valid.0
}

fn with(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}
