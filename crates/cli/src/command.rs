//! The command line as a whole.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use clap::{Parser, Subcommand};
use verbena_bench::{CHILD_ARGUMENT, child_main};
use verbena_wan::GUARD_ARGUMENT;

#[cfg(feature = "man")]
use crate::commands::man;
use crate::commands::start::START_ARGUMENT;
use crate::commands::wan::guard;
use crate::commands::{
    bank, bench, cluster, completions, config, cp, database, doctor, explain, fs, ftp, keys, lock, mem, node, pool,
    proxy, purge, start, status, top, traces, wan,
};
use crate::config::listed;
use crate::error::{EXIT_CODES, Error, Result};
use crate::log;

/// The variable that names the configuration file.
const CONFIG_VARIABLE: &str = "VERBENA_CONFIG";

/// Data-centre services through a small helper process on each machine.
///
/// The helper runs as `verbena node`, or inside the command that needs it. One machine alone needs no configuration.
#[derive(Debug, Parser)]
#[command(name = "verbena", version, propagate_version = true, after_long_help = EXIT_CODES)]
pub struct Command {
    /// Configuration file. Without it `verbena.toml` is read if there is one; otherwise every key has its default. Each key is a flag too:
    /// `verbena help config` lists them.
    #[arg(long, global = true, value_name = "FILE", env = CONFIG_VARIABLE)]
    config: Option<PathBuf>,

    /// What is logged to standard error: a level (error, warn, info, debug, trace), or levels by module.
    ///
    /// For example `info`, or `warn,verbena_node=debug`.
    #[arg(long, global = true, value_name = "FILTER", env = "VERBENA_LOG")]
    log: Option<String>,

    #[command(subcommand)]
    subcommand: Subcommands,
}

#[derive(Debug, Subcommand)]
enum Subcommands {
    Proxy(Box<proxy::Command>),
    Pool(Box<pool::Command>),
    Node(node::Command),
    Status(status::Command),
    Purge(purge::Command),
    #[command(visible_alias = "why")]
    Explain(explain::Command),
    #[command(subcommand)]
    Cluster(cluster::Command),
    #[command(subcommand)]
    Lock(lock::Command),
    #[command(subcommand)]
    Mem(mem::Command),
    #[command(subcommand)]
    Wan(wan::Command),
    Database(Box<database::Command>),
    Cp(cp::Command),
    #[command(subcommand)]
    Ftp(ftp::Command),
    #[command(subcommand)]
    Fs(fs::Command),
    #[command(subcommand)]
    Bank(bank::Command),
    Top(top::Command),
    Doctor(doctor::Command),
    #[command(subcommand, after_long_help = listed())]
    Config(config::Command),
    #[command(subcommand)]
    Keys(keys::Command),
    Bench(bench::Command),
    Traces(traces::Command),
    Completions(completions::Command),
    #[cfg(feature = "man")]
    #[command(hide = true)]
    Man(man::Command),
}

/// Runs one command line: the program's name and its arguments. What it could not do is an error; the exit code is another
/// than success only where it is that of a command that was run under a lock or in a site, or this program plays the target of an experiment or watches
/// another one.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> Result<ExitCode> {
    let arguments: Vec<_> = arguments.into_iter().collect();
    if arguments.get(1).is_some_and(|first| first == CHILD_ARGUMENT) {
        let rest: Vec<_> = arguments[2..].iter().map(|argument| argument.to_string_lossy().into_owned()).collect();
        return Ok(child_main(&rest));
    }
    if arguments.get(1).is_some_and(|first| first == GUARD_ARGUMENT) {
        return Ok(guard(&arguments[2..]));
    }
    if arguments.get(1).is_some_and(|first| first == START_ARGUMENT) {
        return Ok(start::in_between(&arguments[2..]));
    }
    match Command::try_parse_from(arguments) {
        Err(error) if is_of_empty_variable(&error) => Err(Error::EmptyVariable(CONFIG_VARIABLE)),
        parsed => execute(parsed?),
    }
}

/// Whether a flag has no value because the variable that stands for it is empty: the user did not write the flag that the error
/// would name.
fn is_of_empty_variable(error: &clap::Error) -> bool {
    let is_of_config =
        |named: &ContextValue| matches!(named, ContextValue::String(name) if name.starts_with("--config "));
    error.get(ContextKind::InvalidArg).is_some_and(is_of_config)
        && std::env::var_os(CONFIG_VARIABLE).is_some_and(|file| file.is_empty())
}

fn execute(command: Command) -> Result<ExitCode> {
    log::start(command.log.as_deref().unwrap_or(command.subcommand.default_log()))?;
    let file = command.config.as_deref();
    let done = match command.subcommand {
        Subcommands::Proxy(proxy) => proxy.run(file),
        Subcommands::Pool(pool) => pool.run(file),
        Subcommands::Node(node) => node.run(file),
        Subcommands::Status(status) => status.run(file),
        Subcommands::Purge(purge) => purge.run(file),
        Subcommands::Explain(explain) => explain.run(file),
        Subcommands::Cluster(cluster) => cluster.run(file),
        Subcommands::Lock(lock) => return lock.run(file),
        Subcommands::Mem(mem) => return mem.run(file),
        Subcommands::Wan(wan) => return wan.run(),
        Subcommands::Database(database) => database.run(file),
        Subcommands::Cp(cp) => cp.run(),
        Subcommands::Ftp(ftp) => ftp.run(),
        Subcommands::Fs(fs) => fs.run(file),
        Subcommands::Bank(bank) => bank.run(),
        Subcommands::Top(top) => top.run(file),
        Subcommands::Doctor(doctor) => doctor.run(file),
        Subcommands::Config(config) => config.run(file),
        Subcommands::Keys(keys) => keys.run(file),
        Subcommands::Bench(bench) => bench.run(),
        Subcommands::Traces(traces) => traces.run(),
        Subcommands::Completions(completions) => completions.run(),
        #[cfg(feature = "man")]
        Subcommands::Man(man) => man.run(),
    };
    done.map(|()| ExitCode::SUCCESS)
}

impl Subcommands {
    fn default_log(&self) -> &'static str {
        match self {
            // It runs on its own, and its log is what is looked at later.
            Subcommands::Node(_) | Subcommands::Proxy(_) => "info",
            _ => "warn",
        }
    }
}
