//! Other files of tables than the configuration. They are read as it is: one run finds every mistake, and names its place.

use std::path::Path;

use serde::de::DeserializeOwned;

use super::load::{Error, decode, read_file};
use super::mistake::{Mistake, Place, Source};
use super::section::{place_of, read_table};
use super::tree::{self, Node, Table, Value};

/// A file that is being read.
#[derive(Debug)]
pub struct Document {
    source: Source,
    tree: Table,
    mistakes: Vec<Mistake>,
}

impl Document {
    /// Reads its tables.
    ///
    /// # Errors
    /// The file cannot be read, is larger than [`LARGEST_FILE`](super::LARGEST_FILE), or is not TOML.
    pub fn open(file: &Path) -> Result<Self, Error> {
        Document::of(file.display().to_string(), &read_file(file)?)
    }

    /// The same of bytes. `name` is their name in messages.
    ///
    /// # Errors
    /// They are not TOML.
    pub fn of(name: String, bytes: &[u8]) -> Result<Self, Error> {
        let mut mistakes = vec![];
        let text = decode(bytes, &mut mistakes);
        let (tree, syntax) = tree::parse(&text);
        mistakes.extend(syntax);
        Document { source: Source { name, text }, tree, mistakes }.unmistaken()
    }

    /// What is in it.
    ///
    /// # Errors
    /// Its mistakes.
    pub fn read<T: DeserializeOwned>(mut self) -> Result<(T, Self), Error> {
        let whole = Node { place: Place::Default, value: Value::Table(self.tree.clone()) };
        match read_table(whole, "", &mut self.mistakes) {
            Some(read) => self.unmistaken().map(|document| (read, document)),
            None => Err(self.mistaken()),
        }
    }

    /// The value of this dotted key is wrong.
    pub fn mistake(&mut self, key: String, problem: String, suggestion: Option<String>) {
        let place = place_of(&self.tree, &key);
        self.mistakes.push(Mistake { place, key, problem, expected: None, suggestion });
    }

    /// The document again if there was no mistake so far.
    ///
    /// # Errors
    /// Otherwise its mistakes.
    pub fn unmistaken(self) -> Result<Self, Error> {
        if self.mistakes.is_empty() { Ok(self) } else { Err(self.mistaken()) }
    }

    fn mistaken(mut self) -> Error {
        self.mistakes.sort_by_key(|mistake| mistake.place.start());
        Error::Mistaken { mistakes: self.mistakes, source_text: self.source }
    }
}
