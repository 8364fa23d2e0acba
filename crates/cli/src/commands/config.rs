//! `verbena config`: what is set, and what is wrong with it.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde::Serialize;

use crate::config::{self, Flags, Loaded, Located, Whose};
use crate::error::{Error, Result};
use crate::output::{Format, output, write_json};

/// Check the configuration, or show what is in effect.
#[derive(Debug, Subcommand)]
pub enum Command {
    Check(Check),
    Show(Show),
}

/// Explain every mistake in a configuration file.
///
/// Each mistake is printed with file, line and column, the key, what was expected and, where a word was probably misspelt, what
/// was meant. About a file without mistakes one line says that it is right.
#[derive(Args, Debug)]
#[command(after_long_help = "Examples:\n  verbena config check\n  verbena config check /etc/verbena.toml --json")]
pub struct Check {
    /// The configuration file. Without it, the file that the other commands would read.
    file: Option<PathBuf>,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    flags: Flags,
}

/// Show the configuration in effect, and where each value comes from.
///
/// The output is a configuration file again. Beside each value stands where it comes from: a line of the file, a flag, or the default.
#[derive(Args, Debug)]
#[command(after_long_help = "Example:\n  verbena config show --node-name app-1")]
pub struct Show {
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    flags: Flags,
}

impl Command {
    /// Runs it on `file`, if one was named.
    pub fn run(self, file: Option<&Path>) -> Result<()> {
        match self {
            Command::Check(check) => check.run(file),
            Command::Show(show) => show.run(file),
        }
    }
}

#[derive(Serialize)]
struct Checked<'a> {
    file: Option<&'a Path>,
    mistakes: Vec<Located>,
}

impl Check {
    fn run(&self, file: Option<&Path>) -> Result<()> {
        let named = self.file.as_deref().or(file);
        let mut out = output();
        match config::load(named, &self.flags.0, Whose::Everyones) {
            Ok(loaded) if self.format.json => {
                write_json(&mut out, &Checked { file: loaded.file.as_deref(), mistakes: vec![] })
            }
            Ok(Loaded { file: Some(file), .. }) => Ok(writeln!(out, "{}: no mistakes", file.display())?),
            Ok(Loaded { file: None, .. }) => {
                Ok(writeln!(out, "there is no {}: every key has its default", config::DEFAULT_FILE)?)
            }
            Err(error @ config::Error::Mistaken { .. }) if self.format.json => {
                let file = named.or(Some(Path::new(config::DEFAULT_FILE)));
                write_json(&mut out, &Checked { file, mistakes: error.located() })?;
                Err(Error::Mistaken)
            }
            Err(config::Error::Mistaken { mistakes, source_text }) => {
                for mistake in &mistakes {
                    write!(out, "{}", mistake.explain(&source_text))?;
                }
                Err(Error::Mistaken)
            }
            Err(error) => Err(error.into()),
        }
    }
}

impl Show {
    fn run(self, file: Option<&Path>) -> Result<()> {
        let mut loaded = config::load(file, &self.flags.0, Whose::Everyones)?;
        let effective = config::effective(&mut loaded);
        let mut out = output();
        if self.format.json { write_json(&mut out, &effective) } else { Ok(config::print(&mut out, &effective)?) }
    }
}
