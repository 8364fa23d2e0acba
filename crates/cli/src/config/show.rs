//! The configuration in effect, with the place that each value came from.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::{Map, Value};
use verbena_terms::Section;

use super::load::{Config, Loaded, Visit};
use super::mistake::Place;

/// One key in effect.
#[derive(Serialize)]
pub struct Effective {
    /// The key, with its section before a dot.
    pub key: String,
    /// Its value; null if it is not set.
    pub value: Value,
    /// The line of the file, the flag, or the default.
    pub from: String,
}

/// Every key in the order of the reference.
pub fn effective(loaded: &mut Loaded) -> Vec<Effective> {
    struct List(Vec<(&'static str, &'static str, Value)>);
    impl Visit for List {
        fn section<S: Section>(&mut self, section: &mut S) {
            let values = serde_json::to_value(&*section).expect("invariant: a section is text, numbers, lists, tables");
            self.0.extend(S::KEYS.iter().map(|key| (S::NAME, key.name, values[key.name].clone())));
        }
    }
    let mut list = List(vec![]);
    Config::each(&mut loaded.config, &mut list);
    let with_origin = |(section, key, value): (&'static str, &'static str, Value)| Effective {
        key: format!("{section}.{key}"),
        value,
        from: match loaded.origin(section, key) {
            Place::Default => "default".into(),
            Place::Flag(flag) => flag,
            Place::File(span) => {
                let (line, _) = loaded.source.position(span.start);
                format!("{}:{line}", loaded.source.name)
            }
        },
    };
    list.0.into_iter().map(with_origin).collect()
}

/// Prints it as a configuration file, with the places as comments.
pub fn print(out: &mut impl Write, effective: &[Effective]) -> io::Result<()> {
    let mut section = "";
    for Effective { key, value, from } in effective {
        let (of, name) = key.split_once('.').expect("invariant: made with a dot above");
        if of != section {
            let gap = if section.is_empty() { "" } else { "\n" };
            writeln!(out, "{gap}[{of}]")?;
            section = of;
        }
        let line = match as_toml(value) {
            Some(value) => format!("{name} = {value}"),
            None => format!("# {name} is not set"),
        };
        writeln!(out, "{line:<40} # {from}")?;
    }
    Ok(())
}

/// The value as it would be written in a file; nothing for what is not set.
pub(super) fn as_toml(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::Array(elements) => {
            Some(format!("[{}]", elements.iter().filter_map(as_toml).collect::<Vec<_>>().join(", ")))
        }
        Value::Object(entries) => Some(inline_table(entries)),
        Value::String(text) => Some(toml::Value::String(text.clone()).to_string()),
        scalar => Some(scalar.to_string()),
    }
}

fn inline_table(entries: &Map<String, Value>) -> String {
    let entries = entries.iter().filter_map(|(key, value)| Some(format!("{key} = {}", as_toml(value)?)));
    format!("{{ {} }}", entries.collect::<Vec<_>>().join(", "))
}
