//! A TOML document as values that know where they were written.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::mistake::{Mistake, Place};

/// A value and where it was written.
#[derive(Clone, Debug)]
pub struct Node {
    /// Where.
    pub place: Place,
    /// What.
    pub value: Value,
}

/// What a value is.
#[derive(Clone, Debug)]
pub enum Value {
    /// Text, and dates, which no key here has.
    String(String),
    /// A whole number.
    Integer(i64),
    /// Any other number.
    Float(f64),
    /// True or false.
    Boolean(bool),
    /// The elements, with the index at which each was written.
    Array(Vec<(usize, Node)>),
    /// A table.
    Table(Table),
    /// What follows a flag: what it is depends on who reads it.
    Text(String),
}

/// The entries of a table, in order.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// The entries.
    pub entries: Vec<Entry>,
    /// Keys whose values were taken out because they were wrong.
    pub lost: Vec<String>,
}

/// A key and its value.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Where the key was written.
    pub place: Place,
    /// Its value.
    pub node: Node,
}

impl Table {
    /// The entry of a key.
    pub fn find(&self, key: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.key == key)
    }

    /// The value of a key, to change.
    pub fn find_mut(&mut self, key: &str) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|entry| entry.key == key)
    }

    /// Takes an entry out.
    pub fn take(&mut self, key: &str) -> Option<Entry> {
        let at = self.entries.iter().position(|entry| entry.key == key)?;
        Some(self.entries.remove(at))
    }
}

/// Reads a document as far as it can be read; every place where it cannot is a mistake.
pub fn parse(text: &str) -> (Table, Vec<Mistake>) {
    let (document, errors) = DeTable::parse_recoverable(text);
    let mut mistakes: Vec<_> = errors.iter().map(syntax).collect();
    // What follows a mistake on its line is mostly its consequence.
    mistakes.sort_by_key(|mistake| mistake.place.start());
    mistakes.dedup_by_key(|mistake| line_start(text, mistake.place.start()));
    let mut table = Table::default();
    if let Value::Table(read) = convert_table(document.get_ref(), &mut mistakes) {
        table = read;
    }
    (table, mistakes)
}

/// Reads one value, as it stands behind `=`.
pub fn parse_value(text: &str, place: &Place) -> Option<Value> {
    let value = DeValue::parse(text).ok()?;
    let mut mistakes = Vec::new();
    let mut node = convert(&value, &mut mistakes);
    replace_places(&mut node, place);
    mistakes.is_empty().then_some(node.value)
}

fn syntax(error: &toml::de::Error) -> Mistake {
    let mut problem = error.message().trim().replace('\n', "; ");
    if problem.is_empty() {
        problem = "not TOML".into();
    }
    Mistake { place: Place::File(error.span().unwrap_or(0..0)), problem, ..Mistake::default() }
}

fn line_start(text: &str, byte: usize) -> usize {
    text.as_bytes()[..byte.min(text.len())].iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1)
}

fn convert(value: &Spanned<DeValue<'_>>, mistakes: &mut Vec<Mistake>) -> Node {
    let span = value.span();
    let converted = match value.get_ref() {
        DeValue::String(text) => Value::String(text.to_string()),
        DeValue::Integer(integer) => match i64::from_str_radix(integer.as_str(), integer.radix()) {
            Ok(integer) => Value::Integer(integer),
            Err(_) => Value::String(too_large(integer.as_str(), &span, mistakes)),
        },
        DeValue::Float(float) => match float.as_str().parse() {
            Ok(float) => Value::Float(float),
            Err(_) => Value::String(too_large(float.as_str(), &span, mistakes)),
        },
        DeValue::Boolean(boolean) => Value::Boolean(*boolean),
        DeValue::Datetime(datetime) => Value::String(datetime.to_string()),
        DeValue::Array(elements) => {
            Value::Array(elements.iter().map(|element| convert(element, mistakes)).enumerate().collect())
        }
        DeValue::Table(table) => convert_table(table, mistakes),
    };
    Node { place: Place::File(span), value: converted }
}

fn convert_table(table: &DeTable<'_>, mistakes: &mut Vec<Mistake>) -> Value {
    let mut entries: Vec<_> = table
        .iter()
        .map(|(key, value)| Entry {
            key: key.get_ref().to_string(),
            place: Place::File(key.span()),
            node: convert(value, mistakes),
        })
        .collect();
    // The parser sorts by key; people read in the order of the file.
    entries.sort_by_key(|entry| entry.place.start());
    Value::Table(Table { entries, lost: vec![] })
}

fn too_large(number: &str, span: &Range<usize>, mistakes: &mut Vec<Mistake>) -> String {
    mistakes.push(Mistake {
        place: Place::File(span.clone()),
        problem: format!("{number} is larger than any number here can be"),
        ..Mistake::default()
    });
    number.to_owned()
}

fn replace_places(node: &mut Node, place: &Place) {
    node.place = place.clone();
    match &mut node.value {
        Value::Array(elements) => elements.iter_mut().for_each(|(_, element)| replace_places(element, place)),
        Value::Table(table) => {
            for entry in &mut table.entries {
                entry.place = place.clone();
                replace_places(&mut entry.node, place);
            }
        }
        _ => {}
    }
}
