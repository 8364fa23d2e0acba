//! Reads a section's struct out of a tree, by serde, with errors that say which value and why.

use std::fmt;

use serde::de::value::StrDeserializer;
use serde::de::{
    self, DeserializeSeed, Deserializer, Expected, IntoDeserializer, MapAccess, SeqAccess, Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;

use super::tree::{Entry, Node, Value, parse_value};

/// Why a tree could not be read.
#[derive(Debug)]
pub struct Refusal {
    /// The way to the value, innermost step first.
    pub path: Vec<Step>,
    /// What is wrong there.
    pub reason: Reason,
}

/// One step down a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// To the value of a key.
    Key(String),
    /// To an element, by the index at which it was written.
    Index(usize),
}

/// What is wrong with a value.
#[derive(Debug)]
pub enum Reason {
    /// The table has no such key.
    UnknownKey(&'static [&'static str]),
    /// The table lacks a key.
    Missing(&'static str),
    /// The value is not what is expected.
    Value {
        /// What it is.
        found: String,
        /// What it should be.
        expected: String,
    },
    /// The value is not one of these words.
    NotOneOf {
        /// What it is.
        found: String,
        /// What it can be.
        known: &'static [&'static str],
    },
    /// What the type itself said.
    Other(String),
}

impl Refusal {
    fn new(reason: Reason) -> Self {
        Refusal { path: vec![], reason }
    }

    fn below(mut self, step: Step) -> Self {
        self.path.push(step);
        self
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.reason)
    }
}

impl std::error::Error for Refusal {}

impl de::Error for Refusal {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Refusal::new(Reason::Other(message.to_string()))
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Refusal::new(Reason::Value { found: found.to_string(), expected: expected.to_string() })
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Refusal::new(Reason::Value { found: found.to_string(), expected: expected.to_string() })
    }

    fn unknown_variant(found: &str, known: &'static [&'static str]) -> Self {
        Refusal::new(Reason::NotOneOf { found: found.to_owned(), known })
    }

    fn unknown_field(_: &str, known: &'static [&'static str]) -> Self {
        Refusal::new(Reason::UnknownKey(known))
    }

    fn missing_field(key: &'static str) -> Self {
        Refusal::new(Reason::Missing(key))
    }
}

/// What is written behind a flag is a string, unless who reads it asks for something else.
macro_rules! typed {
    ($($method:ident reads $type:ty as $variant:ident,)+) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
            match &self.value {
                Value::Text(text) => match text.trim().parse::<$type>() {
                    Ok(value) => visit(&Value::$variant(value), visitor),
                    Err(_) => Err(de::Error::invalid_type(Unexpected::Str(text), &visitor)),
                },
                value => visit(value, visitor),
            }
        }
    )+};
}

impl<'de> Deserializer<'de> for &Node {
    type Error = Refusal;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
        visit(&self.value, visitor)
    }

    typed! {
        deserialize_bool reads bool as Boolean,
        deserialize_u8 reads i64 as Integer,
        deserialize_u16 reads i64 as Integer,
        deserialize_u32 reads i64 as Integer,
        deserialize_u64 reads i64 as Integer,
        deserialize_i8 reads i64 as Integer,
        deserialize_i16 reads i64 as Integer,
        deserialize_i32 reads i64 as Integer,
        deserialize_i64 reads i64 as Integer,
        deserialize_f32 reads f64 as Float,
        deserialize_f64 reads f64 as Float,
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
        let Value::Text(text) = &self.value else { return visit(&self.value, visitor) };
        let elements = match parse_value(text, &self.place) {
            Some(Value::Array(elements)) => elements,
            // Words need no brackets and quotes on a command line.
            _ => text.split(',').map(|word| self.word(word)).enumerate().collect(),
        };
        // The tree does not hold what was read just now: the path to it ends at the flag.
        let tree = Node { place: self.place.clone(), value: Value::Array(elements) };
        visit(&tree.value, visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
        let Value::Text(text) = &self.value else { return visit(&self.value, visitor) };
        match parse_value(text, &self.place) {
            Some(value @ Value::Table(_)) => visit(&value, visitor),
            _ => Err(de::Error::invalid_type(Unexpected::Str(text), &visitor)),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refusal> {
        self.deserialize_map(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _name: &'static str, visitor: V) -> Result<V::Value, Refusal> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refusal> {
        match &self.value {
            Value::String(text) | Value::Text(text) => {
                let text: StrDeserializer<'_, Refusal> = text.as_str().into_deserializer();
                visitor.visit_enum(text)
            }
            other => Err(de::Error::invalid_type(unexpected(other), &"a word in quotes")),
        }
    }

    forward_to_deserialize_any! {
        i128 u128 char str string bytes byte_buf unit unit_struct tuple tuple_struct identifier ignored_any
    }
}

impl Node {
    fn word(&self, word: &str) -> Node {
        Node { place: self.place.clone(), value: Value::Text(word.trim().to_owned()) }
    }
}

fn visit<'de, V: Visitor<'de>>(value: &Value, visitor: V) -> Result<V::Value, Refusal> {
    match value {
        Value::String(text) | Value::Text(text) => visitor.visit_str(text),
        Value::Integer(integer) => match u64::try_from(*integer) {
            Ok(integer) => visitor.visit_u64(integer),
            Err(_) => visitor.visit_i64(*integer),
        },
        Value::Float(float) => visitor.visit_f64(*float),
        Value::Boolean(boolean) => visitor.visit_bool(*boolean),
        Value::Array(elements) => visitor.visit_seq(Elements(elements.iter())),
        Value::Table(table) => visitor.visit_map(Entries { rest: table.entries.iter(), current: None }),
    }
}

fn unexpected(value: &Value) -> Unexpected<'_> {
    match value {
        Value::String(text) | Value::Text(text) => Unexpected::Str(text),
        Value::Integer(integer) => Unexpected::Signed(*integer),
        Value::Float(float) => Unexpected::Float(*float),
        Value::Boolean(boolean) => Unexpected::Bool(*boolean),
        Value::Array(_) => Unexpected::Seq,
        Value::Table(_) => Unexpected::Map,
    }
}

struct Elements<'v>(std::slice::Iter<'v, (usize, Node)>);

impl<'de> SeqAccess<'de> for Elements<'_> {
    type Error = Refusal;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Refusal> {
        let Some((index, node)) = self.0.next() else { return Ok(None) };
        seed.deserialize(node).map(Some).map_err(|refusal| refusal.below(Step::Index(*index)))
    }
}

struct Entries<'v> {
    rest: std::slice::Iter<'v, Entry>,
    current: Option<&'v Entry>,
}

impl<'de> MapAccess<'de> for Entries<'_> {
    type Error = Refusal;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Refusal> {
        self.current = self.rest.next();
        let Some(entry) = self.current else { return Ok(None) };
        let key: StrDeserializer<'_, Refusal> = entry.key.as_str().into_deserializer();
        seed.deserialize(key).map(Some).map_err(|refusal| refusal.below(Step::Key(entry.key.clone())))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Refusal> {
        let entry = self.current.expect("serde asks for a value only after its key");
        seed.deserialize(&entry.node).map_err(|refusal| refusal.below(Step::Key(entry.key.clone())))
    }
}
