//! Every key of the configuration as a command-line flag, made from the sections' own lists.

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
                command = command.arg(
                    Arg::new(id(section.name, key.name))
                        .long(flag_name(section.name, key.name))
                        .value_name(key.value)
                        .help(short)
                        .long_help(help)
                        .help_heading(format!("Configuration, [{}]", section.name))
                        .hide_short_help(true),
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
