//! docs/reference/CONFIG.md, made from the sections' own lists.

use std::fmt::Write as _;

use serde_json::Value;
use verbena_terms::Section;

use super::load::{Config, Visit, flag_name};
use super::show::as_toml;

const HEAD: &str = "\
# Configuration

One TOML file, `verbena.toml` in the directory where `verbena` is started, or the one that `--config` names. Without a file every
key has its default. Every key is also a flag of the commands that read it; a flag wins over the file. A key that is not listed
here is a mistake; `verbena config check` explains each one with its line, `verbena config show` prints what is in effect and where
it comes from.

Times are written `\"250ms\"`, `\"2s\"`, `\"1m30s\"`, `\"1.5s\"`; sizes `\"64MiB\"`. Behind a flag, text needs no quotes of its own, a list of words
is written `a,b`, and any other list or table as in TOML.

This page is made from the code; a test compares them.
";

/// The reference of every key, as Markdown.
pub fn reference() -> String {
    struct Page(String);
    impl Visit for Page {
        fn section<S: Section>(&mut self, section: &mut S) {
            let defaults =
                serde_json::to_value(&*section).expect("invariant: a section is text, numbers, lists, tables");
            let page = &mut self.0;
            let _ = write!(page, "\n## [{}]\n\n{}\n", S::NAME, markdown(S::HELP));
            for key in S::KEYS {
                let default = match &defaults[key.name] {
                    Value::Null => "not set".into(),
                    value => as_toml(value).map_or_else(String::new, |value| format!("`{value}`")),
                };
                let flag = flag_name(S::NAME, key.name);
                let _ = write!(
                    page,
                    "\n### `{}`\n\n{}\n\nDefault: {default}. Flag: `--{flag} {}`.\n",
                    key.name,
                    markdown(key.help),
                    key.value
                );
            }
        }
    }
    let mut page = Page(HEAD.to_owned());
    Config::default().each(&mut page);
    page.0
}

/// A documentation comment is Markdown, but for the blank that each line begins with.
fn markdown(help: &str) -> String {
    let lines: Vec<_> = help.lines().map(|line| line.strip_prefix(' ').unwrap_or(line)).collect();
    lines.join("\n").trim().to_owned()
}
