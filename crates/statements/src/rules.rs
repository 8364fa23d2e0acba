//! The rules of docs/reference/STATEMENTS.md, each with a switch.

/// Which rules hold. All do, except in tests that show what a rule protects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Q12: each read has its table's name.
    pub table: bool,
    /// Q13: an equality also depends on inserts whose value is unknown, and on the columns that decide.
    pub membership: bool,
    /// Q13: an answer that deletions elsewhere can shift or empty depends on the window.
    pub window: bool,
    /// Q14: an answer depends on the rows it shows, or on the values of all.
    pub values: bool,
    /// Q15: an insert touches the values that it brings.
    pub inserts: bool,
    /// Q16: an update touches the columns that it moves, and a write without a key touches the table.
    pub updates: bool,
    /// Q17: a value has a name only in the form in which the database compares it.
    pub exact: bool,
    /// Q17: a value that the column may store in another form has no name.
    pub fits: bool,
    /// Q18: a view is its tables.
    pub views: bool,
    /// Q18: what a trigger does is part of the statement that fires it.
    pub triggers: bool,
    /// Q18: what a foreign key does to other tables is part of the statement.
    pub cascades: bool,
    /// A read that has the table's name alone, or collapses to it, is touched by each write.
    pub collapse: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Rules {
            table: true,
            membership: true,
            window: true,
            values: true,
            inserts: true,
            updates: true,
            exact: true,
            fits: true,
            views: true,
            triggers: true,
            cascades: true,
            collapse: true,
        }
    }
}
