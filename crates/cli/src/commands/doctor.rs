//! `verbena doctor`: what this machine can do.

use std::io::Write;
use std::path::Path;

use anstyle::{AnsiColor, Style};
use clap::Args;
use serde_json::Value;

use crate::config::{self, Flags, Whose};
use crate::doctor::{Check, Provider, Report, Verdict, examine};
use crate::error::{Error, Result};
use crate::output::{Format, output, write_json};

const GOOD: Style = AnsiColor::Green.on_default();
const FAIR: Style = AnsiColor::Yellow.on_default();
const BAD: Style = AnsiColor::Red.on_default();
const HEAD: Style = Style::new().bold();

/// Show what this machine can do, what the configuration gets, and what is missing for the rest.
///
/// The fabric providers of this build are tried for real. Exit code 1 if the provider that the configuration asks for cannot work here.
#[derive(Args, Debug)]
#[command(after_long_help = "Examples:\n  verbena doctor\n  verbena doctor --fabric-provider tcp --json")]
pub struct Command {
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    flags: Flags,
}

impl Command {
    /// Looks and prints.
    pub fn run(&self, file: Option<&Path>) -> Result<()> {
        let report = examine(&config::load(file, &self.flags.0, Whose::Everyones)?.config);
        let mut out = output();
        if self.format.json {
            write_json(&mut out, &report)?
        } else {
            print(&mut out, &report)?
        }
        if report.choice.usable { Ok(()) } else { Err(Error::No) }
    }
}

fn print(out: &mut impl Write, report: &Report) -> Result<()> {
    for provider in &report.providers {
        let Provider { name, for_what, in_build, usable, checks, .. } = provider;
        let (style, word) = match (usable, in_build) {
            (true, _) => (GOOD, "works"),
            (false, true) => (BAD, "does not work"),
            (false, false) => (FAIR, "not in this build"),
        };
        writeln!(out, "{HEAD}{name}{HEAD:#}  {style}{word}{style:#}  {for_what}")?;
        print_checks(out, checks)?;
    }
    writeln!(out, "{HEAD}machine{HEAD:#}")?;
    print_checks(out, &report.machine)?;
    print_table(out, &report.providers)?;
    let choice = &report.choice;
    let asked = format!("{:?}", choice.asked).to_lowercase();
    let (style, got) = match choice.provider {
        Some(provider) if choice.usable => (GOOD, provider),
        Some(provider) => (BAD, provider),
        None => (BAD, "nothing"),
    };
    Ok(writeln!(out, "{HEAD}{asked}{HEAD:#} gives {style}{got}{style:#}: {}", choice.why)?)
}

fn print_checks(out: &mut impl Write, checks: &[Check]) -> Result<()> {
    for Check { what, verdict, found, remedy } in checks {
        let (style, mark) = match verdict {
            Verdict::Good => (GOOD, "+"),
            Verdict::Fair => (FAIR, "o"),
            Verdict::Missing => (BAD, "-"),
        };
        writeln!(out, "  {style}{mark}{style:#} {what}: {found}")?;
        if let Some(remedy) = remedy {
            writeln!(out, "      {remedy}")?;
        }
    }
    Ok(())
}

/// One line a capability, one column a provider that works.
fn print_table(out: &mut impl Write, providers: &[Provider]) -> Result<()> {
    let columns: Vec<_> = providers
        .iter()
        .filter_map(|provider| Some((provider.name, serde_json::to_value(provider.capabilities.as_ref()?).ok()?)))
        .collect();
    let Some((_, Value::Object(first))) = columns.first() else { return Ok(()) };
    let heads = columns.iter().map(|(name, _)| format!("{name:<15}")).collect::<String>();
    writeln!(out, "{HEAD}{:<20}{}{HEAD:#}", "capabilities", heads.trim_end())?;
    for name in first.keys().filter(|name| *name != "provider") {
        let value = |of: &Value| match &of[name] {
            Value::Bool(true) => "yes".into(),
            Value::Bool(false) => "no".into(),
            Value::String(word) => word.clone(),
            other => other.to_string(),
        };
        let cells = columns.iter().map(|(_, of)| format!("{:<15}", value(of))).collect::<String>();
        writeln!(out, "  {:<18}{}", name.replace('_', " "), cells.trim_end())?;
    }
    Ok(())
}
