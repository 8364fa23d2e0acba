//! What a read of one table depends on (rules Q12 to Q14).

use crate::{Name, Rules};

/// One `column = value`, or `column in (values)`, among the conditions that must all hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Equality {
    /// The column.
    pub column: Vec<u8>,
    /// The values, in the form of [`crate::canonical`].
    pub values: Vec<Vec<u8>>,
    /// Whether the column alone is a unique key.
    pub unique: bool,
}

/// One table in a statement that reads.
#[derive(Clone, Debug, PartialEq, Eq)]
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
        let mut names = self.before(rules);
        let mut found = self.rows.clone().unwrap_or_default();
        found.sort_unstable();
        found.dedup();
        names.extend(self.after(rules, found.len()));
        if rules.values {
            names.extend(found.into_iter().map(Name::Row));
        }
        names.into_iter().map(|name| (self.table.clone(), name)).collect()
    }

    /// The names that do not depend on which rows are found.
    pub(crate) fn before(&self, rules: Rules) -> Vec<Name> {
        let mut names = if rules.table { vec![Name::Table] } else { Vec::new() };
        match &self.equality {
            Some(equality) => {
                let value = |value: &Vec<u8>| Name::Value(equality.column.clone(), value.clone());
                names.extend(equality.values.iter().map(value));
            }
            None => names.push(Name::Rows),
        }
        if rules.membership {
            names.extend(self.deciding.iter().cloned().map(Name::Moved));
        }
        if rules.window && self.window {
            names.push(Name::Window);
        }
        if rules.values && self.rows.is_none() {
            names.extend([Name::Values, Name::Gone]);
        }
        names
    }

    /// The name that is needed unless each row that can match was found, given how many different ones were.
    pub(crate) fn after(&self, rules: Rules, found: usize) -> Option<Name> {
        let equality = self.equality.as_ref().filter(|_| rules.membership)?;
        // While the rows that can match stand, no other can be inserted.
        let complete = equality.unique && found >= equality.values.len();
        (!complete).then(|| Name::New(equality.column.clone()))
    }
}
