//! What a write of one table touches (rules Q12, Q15 and Q16).

use crate::{Name, Rules};

/// What a statement does to a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// INSERT: each column of the table, with its value where the statement says it in a form that has a name.
    Insert(Vec<(Vec<u8>, Option<Vec<u8>>)>),
    /// UPDATE of these columns; the primary keys of the rows where the statement gives them.
    Update(Vec<Vec<u8>>, Option<Vec<Vec<u8>>>),
    /// DELETE; the primary keys of the rows where the statement gives them.
    Delete(Option<Vec<Vec<u8>>>),
    /// DDL, TRUNCATE, and all else of which no row is known.
    Unknown,
}

/// One table in a statement that writes. REPLACE and ON CONFLICT are an insert, an update and a delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The table.
    pub table: Vec<u8>,
    /// What is done to it.
    pub change: Change,
}

impl Write {
    /// The names that the write touches.
    pub fn names(&self, rules: Rules) -> Vec<(Vec<u8>, Name)> {
        let mut names = Vec::new();
        match &self.change {
            Change::Insert(columns) => {
                names.push(Name::Rows);
                names.extend(columns.iter().filter(|_| rules.inserts).map(|(column, value)| match value {
                    Some(value) => Name::Value(column.clone(), value.clone()),
                    None => Name::New(column.clone()),
                }));
            }
            Change::Update(columns, keys) => {
                names.push(Name::Values);
                if rules.updates {
                    names.extend(columns.iter().cloned().map(Name::Moved));
                    names.extend(rows(keys.as_deref()));
                }
            }
            Change::Delete(keys) => {
                names.extend([Name::Gone, Name::Window]);
                if rules.updates {
                    names.extend(rows(keys.as_deref()));
                }
            }
            Change::Unknown => names.push(Name::Table),
        }
        if rules.collapse {
            names.push(Name::Any);
        }
        names.into_iter().map(|name| (self.table.clone(), name)).collect()
    }
}

/// The rows with these keys, or the table where no keys are known.
fn rows(keys: Option<&[Vec<u8>]>) -> Vec<Name> {
    keys.map_or_else(|| vec![Name::Table], |keys| keys.iter().cloned().map(Name::Row).collect())
}
