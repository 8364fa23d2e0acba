//! What a read of one table depends on (rules Q12 to Q14).

use crate::{Name, Rules};

/// One `column = value` among the conditions that must all hold.
#[derive(Clone, Debug)]
pub struct Equality {
    /// The column.
    pub column: Vec<u8>,
    /// The value, in the form of [`crate::canonical`].
    pub value: Vec<u8>,
    /// Whether the column alone is a unique key.
    pub unique: bool,
}

/// One table in a statement that reads.
#[derive(Clone, Debug)]
pub struct Read {
    /// The table.
    pub table: Vec<u8>,
    /// An equality of the conditions, a unique key first; nothing if there is no such condition.
    pub equality: Option<Equality>,
    /// The columns that decide membership, order, grouping or an aggregate.
    pub deciding: Vec<Vec<u8>>,
    /// Whether the statement has LIMIT, OFFSET, EXISTS, an aggregate, a distinct or a set operation.
    pub window: bool,
    /// The primary keys of the rows in the answer; nothing if the answer does not carry them.
    pub rows: Option<Vec<Vec<u8>>>,
}

impl Read {
    /// The names that the answer depends on.
    pub fn names(&self, rules: Rules) -> Vec<(Vec<u8>, Name)> {
        let mut names = vec![Name::Table];
        match &self.equality {
            Some(equality) => {
                names.push(Name::Value(equality.column.clone(), equality.value.clone()));
                // While the one row that can match stands, no other can be inserted.
                let found = equality.unique && self.rows.as_ref().is_some_and(|rows| !rows.is_empty());
                if rules.membership && !found {
                    names.push(Name::New(equality.column.clone()));
                }
            }
            None => names.push(Name::Rows),
        }
        if rules.membership {
            names.extend(self.deciding.iter().cloned().map(Name::Moved));
        }
        if rules.window && self.window {
            names.push(Name::Window);
        }
        match &self.rows {
            _ if !rules.values => {}
            Some(rows) => names.extend(rows.iter().cloned().map(Name::Row)),
            None => names.extend([Name::Values, Name::Gone]),
        }
        names.into_iter().map(|name| (self.table.clone(), name)).collect()
    }
}
