//! Every key of the configuration as a command-line flag, made from the sections' own lists.

use std::fmt::Write as _;

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

use super::load::{Flag, flag_name, sections};

/// The flags that were given. To be flattened into a command that reads the configuration.
#[derive(Clone, Debug, Default)]
pub struct Flags(pub Vec<Flag>);

impl Args for Flags {
    fn augment_args(mut command: Command) -> Command {
        for section in sections() {
            for key in section.keys {
                let help = plain(key.help);
                let short = help.split("\n\n").next().unwrap_or_default().to_owned();
                // A switch alone is `true`.
                let (least, alone) = if key.value == "BOOL" { (0, Some("true")) } else { (1, None) };
                command = command.arg(
                    Arg::new(id(section.name, key.name))
                        .long(flag_name(section.name, key.name))
                        .value_name(key.value)
                        .num_args(least..=1)
                        .default_missing_values(alone)
                        .help(short)
                        .long_help(help)
                        .help_heading(format!("Configuration, [{}]", section.name))
                        // They are in the manual page, and in completions.
                        .hide_short_help(true)
                        .hide_long_help(true),
                );
            }
        }
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        Flags::augment_args(command)
    }
}

impl FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut flags = Flags::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for section in sections() {
            for key in section.keys {
                if let Some(value) = matches.get_one::<String>(&id(section.name, key.name)) {
                    self.0.push(Flag { section: section.name, key: key.name, value: value.clone() });
                }
            }
        }
        Ok(())
    }
}

/// Columns of the list of all keys.
const COLUMNS: usize = 100;

/// Every key as a flag, with its help: what `verbena help config` shows.
pub fn listed() -> String {
    let mut list = String::from(
        "Every key of the configuration is a flag of the commands that read it, too, and the flag wins over the file.\n",
    );
    for section in sections() {
        let _ = write!(list, "\nConfiguration, [{}]:\n", section.name);
        for key in section.keys {
            let _ = writeln!(list, "  --{} <{}>", flag_name(section.name, key.name), key.value);
            for paragraph in plain(key.help).split("\n\n") {
                indent(paragraph, &mut list);
            }
        }
    }
    list
}

/// Writes a paragraph in lines that are not too long, each behind ten blanks.
fn indent(paragraph: &str, into: &mut String) {
    let mut column = COLUMNS;
    for word in paragraph.split(' ') {
        let width = word.chars().count() + 1;
        if column + width > COLUMNS {
            into.push_str(if column == COLUMNS { "         " } else { "\n         " });
            column = 9;
        }
        into.push(' ');
        into.push_str(word);
        column += width;
    }
    into.push('\n');
}

fn id(section: &str, key: &str) -> String {
    format!("{section}.{key}")
}

/// A documentation comment as plain text: without the blank before each line and the marks around code, a paragraph on one
/// line, to be wrapped where it is shown.
pub fn plain(help: &str) -> String {
    let paragraphs = help.split("\n\n").map(|paragraph| {
        let words: Vec<_> = paragraph.split_whitespace().collect();
        words.join(" ")
    });
    paragraphs.collect::<Vec<_>>().join("\n\n").replace('`', "")
}
