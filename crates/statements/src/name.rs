//! Names, their bytes and their bound.
//!
//! ```text
//! kind : 1 | length of the table : 4, big-endian | table | [length of the column : 4 | column] | [value or key]
//! ```
//! Names are hashed by `content`, with the identity of the database before them. Lengths keep two names apart whatever
//! bytes a table, a column or a value has.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::Rules;

/// The table whose name `t` stands for the catalog: each DDL touches it (rule Q18).
pub const CATALOG: &[u8] = b"";

/// The most names of one page and of one update.
pub const MAX_NAMES: usize = 256;

/// One name of a table (rules Q12 to Q16). Identifiers are bytes, as the catalog writes them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Name {
    /// `t`: in each read of the table; touched by a write of which no row is known.
    Table,
    /// `t:rows`: touched by each insert.
    Rows,
    /// `t:values`: touched by each update.
    Values,
    /// `t:gone`: touched by each delete.
    Gone,
    /// `t:window`: touched by each delete, for answers that a row beyond them can enter.
    Window,
    /// `t.c:new`: touched by an insert that does not say the column's value.
    New(Vec<u8>),
    /// `t.c:moved`: touched by an update of the column.
    Moved(Vec<u8>),
    /// `t.c=v`: the value is in the form of [`crate::canonical`].
    Value(Vec<u8>, Vec<u8>),
    /// `t.key=r`: a row, by its primary key.
    Row(Vec<u8>),
    /// `t:any`: touched by each write. Only a read that names no row, value or column has it.
    Any,
}

/// As docs/reference/STATEMENTS.md writes it, without the table: `id=7`, `price:moved`.
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
        match self {
            Name::Table => f.write_str("the table"),
            Name::Any => f.write_str("each write"),
            Name::Rows => f.write_str("each new row"),
            Name::Values => f.write_str("each update"),
            Name::Gone => f.write_str("each delete"),
            Name::Window => f.write_str("each delete, beyond what is shown too"),
            Name::New(column) => write!(f, "new rows with an unknown {}", text(column)),
            Name::Moved(column) => write!(f, "each update of {}", text(column)),
            Name::Value(column, value) => write!(f, "{}={}", text(column), text(value)),
            Name::Row(key) => write!(f, "the row {}", text(key)),
        }
    }
}

impl Name {
    /// The bytes that `content` hashes.
    pub fn bytes(&self, table: &[u8]) -> Vec<u8> {
        let (kind, column, rest): (u8, Option<&[u8]>, &[u8]) = match self {
            Name::Table => (0, None, &[]),
            Name::Rows => (1, None, &[]),
            Name::Values => (2, None, &[]),
            Name::Gone => (3, None, &[]),
            Name::Window => (4, None, &[]),
            Name::New(column) => (5, Some(column), &[]),
            Name::Moved(column) => (6, Some(column), &[]),
            Name::Value(column, value) => (7, Some(column), value),
            Name::Row(key) => (8, None, key),
            Name::Any => (9, None, &[]),
        };
        let mut bytes = vec![kind];
        for part in [Some(table), column].into_iter().flatten() {
            // A statement is at most 16 MiB, so the length of an identifier fits.
            bytes.extend_from_slice(&(part.len() as u32).to_be_bytes());
            bytes.extend_from_slice(part);
        }
        bytes.extend_from_slice(rest);
        bytes
    }
}

/// Which side of an invalidation a set of names is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// What a page depends on.
    Read,
    /// What an update touches.
    Write,
}

/// A bounded set of names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Names {
    /// All there is: more tables than the bound has room for.
    Everything,
    /// The names of each table, at most [`MAX_NAMES`] together.
    Of(BTreeMap<Vec<u8>, BTreeSet<Name>>),
}

impl Names {
    /// No name.
    pub fn none() -> Names {
        Names::Of(BTreeMap::new())
    }

    /// All names of several sets of one side, bounded.
    pub fn joined<'a>(rules: Rules, side: Side, sets: impl IntoIterator<Item = &'a Names>) -> Names {
        let mut pairs = Vec::new();
        for set in sets {
            let Names::Of(tables) = set else { return Names::Everything };
            pairs.extend(
                tables.iter().flat_map(|(table, names)| names.iter().map(|name| (table.clone(), name.clone()))),
            );
        }
        Names::bounded(rules, side, pairs)
    }

    /// Bounds the names of one side. The table with the most names collapses first.
    pub fn bounded(rules: Rules, side: Side, names: impl IntoIterator<Item = (Vec<u8>, Name)>) -> Names {
        let mut tables: BTreeMap<Vec<u8>, BTreeSet<Name>> = BTreeMap::new();
        for (table, name) in names {
            tables.entry(table).or_default().insert(name);
        }
        // A write collapses to `t`, which each read has. A read cannot: a write of known rows does not touch `t`.
        let collapsed: BTreeSet<Name> = match side {
            Side::Read if rules.collapse => [Name::Table, Name::Any].into(),
            Side::Read | Side::Write => [Name::Table].into(),
        };
        while tables.values().map(BTreeSet::len).sum::<usize>() > MAX_NAMES {
            match tables.values_mut().max_by_key(|names| names.len()) {
                Some(largest) if largest.len() > collapsed.len() => *largest = collapsed.clone(),
                _ => return Names::Everything,
            }
        }
        Names::Of(tables)
    }

    /// Whether a name is in both.
    pub fn meets(&self, other: &Names) -> bool {
        match (self, other) {
            (Names::Of(ours), Names::Of(theirs)) => {
                ours.iter().any(|(table, names)| theirs.get(table).is_some_and(|others| !names.is_disjoint(others)))
            }
            (Names::Everything, _) | (_, Names::Everything) => true,
        }
    }
}
